//! The bytes of an answer, which are sent in parts.
//!
//! A large answer stays in memory until its client has read it. So large answers share a budget, and a client has a
//! bounded time to read one.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::app::State;
use crate::problem::ApiProblem;

/// Smaller answers are sent at once, and count for nothing.
const SMALL_BYTES: usize = 64 << 10;
/// How long a client may take to read an answer.
const READ_TIME: Duration = Duration::from_secs(60);

/// The rest of an answer.
struct Parts {
    rest: Bytes,
    until: Instant,
    _memory: OwnedSemaphorePermit,
}

/// Return the body of an answer.
///
/// # Errors
///
/// When too many large answers wait for their clients.
pub(crate) fn body(state: &State, bytes: Bytes) -> Result<Body, ApiProblem> {
    if bytes.len() <= SMALL_BYTES {
        return Ok(Body::from(bytes));
    }
    let kib = u32::try_from(bytes.len() >> 10).unwrap_or(u32::MAX);
    let memory = std::sync::Arc::clone(&state.answer_memory).try_acquire_many_owned(kib);
    let memory = memory.map_err(|_| {
        let problem = ApiProblem::unavailable("too many large answers wait for their clients");
        problem.hint("ask for less with `limit`, or send the request again later")
    })?;
    Ok(Body::new(Parts {
        rest: bytes,
        until: Instant::now() + READ_TIME,
        _memory: memory,
    }))
}

impl HttpBody for Parts {
    type Data = Bytes;
    type Error = Box<dyn std::error::Error + Send + Sync>;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        if self.rest.is_empty() {
            return Poll::Ready(None);
        }
        if Instant::now() > self.until {
            return Poll::Ready(Some(Err("the client reads too slowly".into())));
        }
        let length = self.rest.len().min(SMALL_BYTES);
        let part = self.rest.split_to(length);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.rest.len() as u64)
    }
}
