//! The bytes of an answer, which are sent in parts.
//!
//! A large answer stays in memory until its client has read it. So large answers share a budget, and a client has a
//! bounded time to read one.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::Instant;

use crate::app::{State, TURN_WAIT};
use crate::problem::ApiProblem;
use crate::shares::Share;

/// Smaller answers are sent at once, and count for nothing.
const SMALL_BYTES: usize = 64 << 10;
/// How long a client may take to read an answer.
const READ_TIME: Duration = Duration::from_secs(60);

/// The rest of an answer.
struct Parts {
    rest: Bytes,
    until: Instant,
    _memory: Share,
}

/// Returns an answer's body for `principal`.
///
/// # Errors
///
/// Returns an error if large answers still waiting for their clients, this principal's or many others', leave too little memory for this
/// one.
pub(crate) async fn body(state: &State, principal: &str, bytes: Bytes) -> Result<Body, ApiProblem> {
    if bytes.len() <= SMALL_BYTES {
        return Ok(Body::from(bytes));
    }
    let memory = &state.answer_memory;
    let memory = memory.take(principal, bytes.len() >> 10, TURN_WAIT).await;
    let memory = memory.ok_or_else(|| {
        let problem = ApiProblem::unavailable("too many large answers wait for their clients");
        problem.hint("read the answers that you have asked for, ask for less with `limit`, or send the request again later")
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
