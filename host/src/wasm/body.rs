//! Bodies of responses, bounded in size and time.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::time::{Instant, Sleep};
use wasmtime_wasi_http::{Error, WasiBody};

use super::gauges::Gauge;

/// A response body that ends in an error when it grows too large or pauses too long.
struct BoundedBody {
    body: WasiBody,
    bytes: u64,
    bytes_most: Gauge,
    wait: Duration,
    patience: Pin<Box<Sleep>>,
}

/// Bound `body`: `bytes_most` is moved by what was read, and `wait` is for each part of it.
pub(super) fn bounded(body: WasiBody, bytes_most: Gauge, wait: Duration) -> WasiBody {
    let bounded = BoundedBody {
        body,
        bytes: 0,
        bytes_most,
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
        self.bytes_most.reach(self.bytes);
        let most = self.bytes_most.limit;
        match self.bytes > most {
            true => Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(most))))),
            false => Poll::Ready(Some(Ok(frame))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
