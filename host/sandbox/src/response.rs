//! What a response may have: so many bytes of body, and so much time between two parts of it.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::Resource;
use super::gauges::Gauge;
use super::grants::Denial;

/// What the host lets a response have.
pub(super) struct Bounds {
    /// Of its body.
    pub(super) bytes_most: Gauge,
    pub(super) wait_max: Duration,
    /// Where it is remembered that it wanted more.
    pub(super) exceeded: Denial,
}

impl Bounds {
    /// Remember that `wait` was not enough, unless the guest itself wanted to wait no longer.
    pub(super) fn note_wait(&self, wait: Duration) {
        if wait >= self.wait_max {
            self.exceeded.record(format!(
                "a server let the task wait for {}, its limit; {}",
                humantime::format_duration(self.wait_max),
                Resource::HttpWait.raise()
            ));
        }
    }

    /// Whether a body may have so many bytes; when not, the reason is remembered.
    fn allow(&self, bytes: u64) -> bool {
        self.bytes_most.reach(bytes);
        let most = self.bytes_most.limit;
        if bytes > most {
            self.exceeded.record(format!(
                "a response had more than {most} bytes, the limit; {}",
                Resource::HttpResponse.raise()
            ));
        }
        bytes <= most
    }
}

/// A response body that ends in an error when it grows too large or pauses too long.
struct BoundedBody {
    body: WasiBody,
    bytes: u64,
    bounds: Bounds,
    wait: Duration,
    patience: Pin<Box<Sleep>>,
}

pub(super) fn bounded(body: WasiBody, bounds: Bounds, wait: Duration) -> WasiBody {
    let bounded = BoundedBody {
        body,
        bytes: 0,
        bounds,
        wait,
        patience: Box::pin(tokio::time::sleep(wait)),
    };
    bounded.boxed_unsync()
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match Pin::new(&mut self.body).poll_frame(cx) {
            Poll::Ready(frame) => frame,
            Poll::Pending => {
                ready!(self.patience.as_mut().poll(cx));
                self.bounds.note_wait(self.wait);
                return Poll::Ready(Some(Err(Error::ConnectionReadTimeout)));
            }
        };
        let until = Instant::now() + self.wait;
        self.patience.as_mut().reset(until);
        let frame = match frame {
            None => return Poll::Ready(None),
            Some(Err(error)) => return Poll::Ready(Some(Err(error))),
            Some(Ok(frame)) => frame,
        };
        self.bytes += frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.bounds.allow(self.bytes) {
            true => Poll::Ready(Some(Ok(frame))),
            false => {
                let most = self.bounds.bytes_most.limit;
                Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(most)))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
