//! Adding the length of a request's body.
//!
//! Guests stream bodies, and most libraries leave out the length, so bodies would be sent in chunks, which S3 and other servers refuse. The
//! host therefore waits briefly for a short body to end, then sends its length.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes, Frame};
use hyper::header::{CONTENT_LENGTH, HeaderValue, TRANSFER_ENCODING};
use hyper::{Method, Request};
use tokio::time::timeout;
use wasmtime_wasi_http::{Error, WasiBody};

use crate::ledger::kept::{KeptForNow, KeptOfCall};

/// The longest body worth waiting for.
const BODY_BYTES_MAX: usize = 256 << 10;

/// How long to wait for the guest to finish its body. One writing more slowly is streaming, and may be waiting for the response first.
const BODY_WAIT: Duration = Duration::from_secs(1);

/// Adds the body's length to a request unless the guest has set one or the body doesn't end soon.
///
/// Whatever is read of it counts as `kept` until sent. If that's refused, the body is streamed like a long one.
pub(crate) async fn with_length(
    request: Request<WasiBody>,
    kept: &Arc<KeptOfCall>,
) -> Request<WasiBody> {
    with_length_within(BODY_WAIT, request, kept).await
}

async fn with_length_within(
    wait: Duration,
    request: Request<WasiBody>,
    kept: &Arc<KeptOfCall>,
) -> Request<WasiBody> {
    let (mut head, mut body) = request.into_parts();
    let names_framing = [CONTENT_LENGTH, TRANSFER_ENCODING];
    if names_framing
        .iter()
        .any(|name| head.headers.contains_key(name))
    {
        return Request::from_parts(head, body);
    }
    let mut begun = Begun {
        frames: VecDeque::new(),
        bytes: 0,
        kept: kept.nothing_for_now(),
    };
    let reading = timeout(wait, begun.read(&mut body)).await;
    if !matches!(reading, Ok(Ending::Whole)) {
        let rest = BegunBody {
            begun: begun.frames,
            rest: body,
            _kept: begun.kept,
        };
        return Request::from_parts(head, rest.boxed_unsync());
    }
    let (bytes, kept) = begun.whole();
    let needs_length = !bytes.is_empty() || !is_bodiless(&head.method);
    if needs_length {
        let length = HeaderValue::from(bytes.len());
        head.headers.insert(CONTENT_LENGTH, length);
    }
    let body = Full::new(bytes).map_err(move |never| {
        // Held until the body is dropped.
        let _ = &kept;
        match never {}
    });
    Request::from_parts(head, body.boxed_unsync())
}

/// Whether requests with this method have no length if they have no body.
fn is_bodiless(method: &Method) -> bool {
    method.is_safe() || method == Method::CONNECT
}

enum Ending {
    Whole,
    /// It's longer, or ends in trailers or an error.
    Other,
}

/// What has been read of a body.
struct Begun {
    frames: VecDeque<Result<Frame<Bytes>, Error>>,
    bytes: usize,
    kept: KeptForNow,
}

impl Begun {
    /// Reads `body` until it ends or gets too long to wait for. Cancelling this loses nothing.
    async fn read(&mut self, body: &mut WasiBody) -> Ending {
        while let Some(frame) = body.frame().await {
            let data = frame
                .as_ref()
                .ok()
                .and_then(Frame::data_ref)
                .map(Bytes::len);
            self.frames.push_back(frame);
            let bytes = data.filter(|bytes| self.bytes + bytes <= BODY_BYTES_MAX);
            match bytes.filter(|bytes| self.kept.grow(*bytes as u64).is_ok()) {
                Some(bytes) => self.bytes += bytes,
                None => return Ending::Other,
            }
        }
        Ending::Whole
    }

    fn whole(self) -> (Bytes, KeptForNow) {
        let mut bytes = Vec::with_capacity(self.bytes);
        for frame in self.frames.into_iter().flatten() {
            bytes.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
        }
        (bytes.into(), self.kept)
    }
}

/// A partly read body.
struct BegunBody {
    begun: VecDeque<Result<Frame<Bytes>, Error>>,
    rest: WasiBody,
    _kept: KeptForNow,
}

impl Body for BegunBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        match self.begun.pop_front() {
            Some(frame) => Poll::Ready(Some(frame)),
            None => Pin::new(&mut self.rest).poll_frame(context),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tokio::sync::mpsc;

    use super::*;
    use crate::ledger::Ledger;

    /// A body receiving its frames through a channel.
    struct Streamed(mpsc::Receiver<Bytes>);

    impl Body for Streamed {
        type Data = Bytes;
        type Error = Infallible;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
            let next = self.0.poll_recv(context);
            next.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
        }
    }

    fn streamed(
        method: Method,
        parts: &[&'static [u8]],
    ) -> (mpsc::Sender<Bytes>, Request<WasiBody>) {
        let (sender, receiver) = mpsc::channel(64);
        for part in parts {
            sender.try_send(Bytes::from_static(part)).unwrap();
        }
        let body = Streamed(receiver).map_err(|never| match never {});
        let request = Request::builder().method(method).body(body.boxed_unsync());
        (sender, request.unwrap())
    }

    fn kept() -> Arc<KeptOfCall> {
        KeptOfCall::new(Ledger::unbounded().nothing_kept("package"))
    }

    fn length(request: &Request<WasiBody>) -> Option<&str> {
        let length = request.headers().get(CONTENT_LENGTH);
        length.map(|length| length.to_str().unwrap())
    }

    #[tokio::test]
    async fn a_body_that_ends_has_its_length() {
        type Case<'c> = (Method, &'c [&'c [u8]], Option<&'c str>);
        let cases: [Case<'_>; 6] = [
            (Method::POST, &[b"ab", b"", b"c"], Some("3")),
            (Method::PUT, &[], Some("0")),
            (Method::POST, &[b""], Some("0")),
            (Method::DELETE, &[], Some("0")),
            (Method::GET, &[], None),
            (Method::GET, &[b"q"], Some("1")),
        ];
        for (method, parts, expected) in cases {
            let (sender, request) = streamed(method.clone(), parts);
            drop(sender);
            let request = with_length(request, &kept()).await;
            assert_eq!(length(&request), expected, "{method} {parts:?}");
            let body = request.into_body().collect().await.unwrap().to_bytes();
            assert_eq!(body, parts.concat());
        }
    }

    #[tokio::test]
    async fn a_body_that_goes_on_is_streamed_from_its_beginning() {
        let (sender, request) = streamed(Method::POST, &[b"first "]);
        let request = with_length_within(Duration::ZERO, request, &kept()).await;
        assert_eq!(length(&request), None);
        sender.try_send(Bytes::from_static(b"second")).unwrap();
        drop(sender);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, &b"first second"[..]);

        let part: &'static [u8] = &[7; BODY_BYTES_MAX / 4];
        let (sender, request) = streamed(Method::POST, &[part; 5]);
        drop(sender);
        let request = with_length(request, &kept()).await;
        assert_eq!(length(&request), None);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body.len(), 5 * part.len());
    }

    #[tokio::test]
    async fn a_body_counts_until_it_is_sent_and_one_that_may_not_be_kept_is_streamed() {
        let ledger = Ledger::new(4 << 20, 100, 100);
        let kept = KeptOfCall::new(ledger.nothing_kept("package"));
        let parts: [&'static [u8]; 2] = [&[7; 100 << 10]; 2];
        let (_, request) = streamed(Method::POST, &parts);
        let request = with_length_within(BODY_WAIT, request, &kept).await;
        assert_eq!(length(&request), Some("204800"));
        assert!(ledger.kept.held("package") >= 196 << 10);
        drop(request);
        assert_eq!(ledger.kept.held("package"), 0);
        kept.keep(450 << 10).unwrap();
        let (_, request) = streamed(Method::POST, &parts);
        let request = with_length_within(BODY_WAIT, request, &kept).await;
        assert_eq!(length(&request), None);
        let body = request.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(body, parts.concat());
    }
}
