//! The limits of a response: the bytes of its body, and the time between two parts of it.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use crate::capability::shared::Shared;
use crate::limits::{Limits, Resource};

/// Returns the longest wait for the head of a response, and between two parts of its body.
pub(crate) fn wait_max(limits: &Limits) -> Duration {
    limits.http_wait.min(limits.timeout)
}

/// Record that `wait` was not enough, unless the guest itself asked for a shorter wait.
pub(crate) fn record_wait(shared: &Shared, wait: Duration) {
    let most = wait_max(&shared.call.limits);
    if wait >= most {
        shared.exceed(format!(
            "a server let the task wait for {}, its limit; {}",
            humantime::format_duration(most),
            Resource::HttpWait.raise()
        ));
    }
}

/// A response body that ends in an error when it grows too large or pauses too long.
struct LimitedBody {
    body: WasiBody,
    bytes: u64,
    shared: Arc<Shared>,
    wait: Duration,
    timer: Pin<Box<Sleep>>,
}

/// Limit the bytes of `body`, and each pause in it to `wait`.
pub(crate) fn limited(body: WasiBody, shared: Arc<Shared>, wait: Duration) -> WasiBody {
    let limited = LimitedBody {
        body,
        bytes: 0,
        shared,
        wait,
        timer: Box::pin(tokio::time::sleep(wait)),
    };
    limited.boxed_unsync()
}

impl Body for LimitedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.timer.as_mut().poll(cx));
                record_wait(&self.shared, self.wait);
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            }
        };
        let until = Instant::now() + self.wait;
        self.timer.as_mut().reset(until);
        let Some(Ok(frame)) = frame else {
            return Poll::Ready(frame);
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        self.shared.record_peak(Resource::HttpResponse, self.bytes);
        let most = self.shared.limit(Resource::HttpResponse);
        if self.bytes > most {
            self.shared.exceed(format!(
                "a response had more than {most} bytes, the limit; {}",
                Resource::HttpResponse.raise()
            ));
            return Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(most)))));
        }
        Poll::Ready(Some(Ok(frame)))
    }
}
