//! The only way out to the network: each request is checked against the grants, and its answer is bounded in
//! size and time.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Bytes, Frame, Incoming, SizeHint};
use hyper::client::conn::http1;
use hyper::{Request, Response, Uri};
use tokio::time::{Instant, Sleep, timeout};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, Result, WasiBody, WasiHttpHooks};

use super::connect::connect;
use super::grants::{Denial, Destination, Reach, reach};
use super::{Grants, StopSignal};

/// Resolving, connecting and greeting; a guest may ask for less.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Of the head of a response, and of what is read ahead.
const READ_BUFFER_BYTES_MAX: usize = 128 << 10;

/// Written to a request's body at once, of which two parts may wait: as much as one record of TLS.
const BODY_CHUNK_BYTES: usize = 16 << 10;

/// What the guest's HTTP requests pass through.
pub(super) struct HttpGate {
    pub(super) grants: Arc<Grants>,
    pub(super) stop: StopSignal,
    pub(super) denial: Denial,
    /// Of one response body.
    pub(super) response_bytes_max: u64,
    /// For the first byte of a response, and between two parts of its body.
    pub(super) wait_max: Duration,
}

type Exchanged = (Response<WasiBody>, Driver);
type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for HttpGate {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Driver,
    ) -> Box<dyn Future<Output = Result<Exchanged>> + Send> {
        match self.admit(&request) {
            Ok((destination, reach)) => Box::new(exchange(
                request,
                destination,
                reach,
                self.denial.clone(),
                self.waits(options.unwrap_or_default()),
                self.response_bytes_max,
            )),
            Err(error) => Box::new(std::future::ready(Err(error))),
        }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }
}

impl HttpGate {
    fn admit(&self, request: &Request<WasiBody>) -> Result<(Destination, Reach)> {
        if self.stop.is_dropped() {
            return Err(Error::HttpRequestDenied);
        }
        let destination = Destination::of(request).ok_or(Error::HttpRequestUriInvalid)?;
        match reach(&self.grants.http, &destination) {
            Some(reach) => Ok((destination, reach)),
            None => {
                self.denial.record(destination.refusal());
                Err(Error::HttpRequestDenied)
            }
        }
    }

    fn waits(&self, options: RequestOptions) -> Waits {
        let at_most = |max: Duration, asked: Option<Duration>| asked.map_or(max, |a| a.min(max));
        Waits {
            connect: at_most(CONNECT_WAIT_MAX, options.connect_timeout),
            first_byte: at_most(self.wait_max, options.first_byte_timeout),
            between_bytes: at_most(self.wait_max, options.between_bytes_timeout),
        }
    }
}

struct Waits {
    connect: Duration,
    first_byte: Duration,
    between_bytes: Duration,
}

async fn exchange(
    mut request: Request<WasiBody>,
    destination: Destination,
    reach: Reach,
    denial: Denial,
    waits: Waits,
    response_bytes_max: u64,
) -> Result<Exchanged> {
    let (mut sender, connection) = timeout(waits.connect, async {
        let stream = connect(&destination, reach, &denial).await?;
        let greeted = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .handshake(TokioIo::new(stream))
            .await;
        greeted.map_err(protocol_error)
    })
    .await
    .map_err(|_| Error::ConnectionTimeout)??;
    // Ends when the guest drops the exchange.
    let connection = AbortOnDropJoinHandle::from(tokio::spawn(connection));

    // To the server itself a request names only the path; its host is in the header.
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = match path {
        Some(path) => Uri::from(path),
        None => Uri::from_static("/"),
    };
    let response = timeout(waits.first_byte, sender.send_request(request))
        .await
        .map_err(|_| Error::HttpResponseTimeout)?
        .map_err(protocol_error)?;
    let response = response.map(|incoming| {
        BoundedBody {
            incoming,
            bytes_left: response_bytes_max,
            bytes_max: response_bytes_max,
            wait: waits.between_bytes,
            patience: Box::pin(tokio::time::sleep(waits.between_bytes)),
        }
        .boxed_unsync()
    });
    // What goes wrong on the connection is told by the body, so nobody needs it here a second time.
    let driver: Driver = Box::new(async move {
        let _ = connection.await;
        Ok(())
    });
    Ok((response, driver))
}

/// The guest gets one of the codes of wasi:http, which have no place for texts.
fn protocol_error(error: hyper::Error) -> Error {
    if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else {
        Error::HttpProtocolError
    }
}

/// A response body that ends in an error when it grows too large or pauses too long.
struct BoundedBody {
    incoming: Incoming,
    bytes_left: u64,
    bytes_max: u64,
    wait: Duration,
    patience: Pin<Box<Sleep>>,
}

impl Body for BoundedBody {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let frame = match Pin::new(&mut self.incoming).poll_frame(cx) {
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
            Some(Err(error)) => return Poll::Ready(Some(Err(protocol_error(error)))),
            Some(Ok(frame)) => frame,
        };
        let bytes = frame.data_ref().map_or(0, |data| data.len() as u64);
        match self.bytes_left.checked_sub(bytes) {
            Some(left) => {
                self.bytes_left = left;
                Poll::Ready(Some(Ok(frame)))
            }
            None => Poll::Ready(Some(Err(Error::HttpResponseBodySize(Some(self.bytes_max))))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::wasm::HttpGrant;

    fn gate(host: &str, port: u16) -> HttpGate {
        HttpGate {
            grants: Arc::new(Grants {
                http: vec![HttpGrant::get(host, port)],
                ..Grants::default()
            }),
            stop: StopSignal::default(),
            denial: Denial::default(),
            response_bytes_max: 1000,
            wait_max: Duration::from_millis(300),
        }
    }

    async fn send(gate: &mut HttpGate, method: &str, uri: &str) -> Result<Response<WasiBody>> {
        let body = Empty::<Bytes>::new()
            .map_err(|never| match never {})
            .boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "as.the.guest.says")
            .body(body)
            .unwrap();
        let sent = gate.send_request(request, None, Box::new(async { Ok(()) }));
        let (response, driver) = Pin::from(sent).await?;
        tokio::spawn(Pin::from(driver));
        Ok(response)
    }

    /// A server that answers one connection with `answer` and gives back the head it was sent.
    async fn server(answer: Vec<u8>) -> (u16, tokio::task::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                head.push(stream.read_u8().await.unwrap());
            }
            stream.write_all(&answer).await.unwrap();
            // Hold the connection open: only the content length may end the body.
            tokio::time::sleep(Duration::from_secs(5)).await;
            String::from_utf8(head).unwrap()
        });
        (port, served)
    }

    fn answer(declared_bytes: usize, sent_bytes: usize) -> Vec<u8> {
        let mut answer =
            format!("HTTP/1.1 200 OK\r\ncontent-length: {declared_bytes}\r\n\r\n").into_bytes();
        answer.extend(vec![b'x'; sent_bytes]);
        answer
    }

    #[tokio::test]
    async fn a_host_granted_by_name_is_reached_even_at_home() {
        let (port, served) = server(answer(3, 3)).await;
        let mut gate = gate("localhost", port);
        let uri = format!("http://localhost:{port}/a/b?c=d");
        let response = send(&mut gate, "GET", &uri).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"xxx");
        assert_eq!(gate.denial.message(), None);
        served.abort();
    }

    #[tokio::test]
    async fn a_wildcard_does_not_reach_home() {
        let (port, served) = server(answer(3, 3)).await;
        for (granted, asked, leads_to) in [
            ("*", "127.0.0.1", "127.0.0.1"),
            ("*", "localhost", "localhost"),
            // Spellings of 127.0.0.1 that only a resolver understands.
            ("*", "2130706433", "2130706433"),
            ("*", "0x7f.1", "0x7f.1"),
            ("*", "[::ffff:127.0.0.1]", "[::ffff:127.0.0.1]"),
        ] {
            let mut gate = gate(granted, port);
            let error = send(&mut gate, "GET", &format!("http://{asked}:{port}/"))
                .await
                .unwrap_err();
            // Resolvers differ in which of the odd spellings they read; none may be let through.
            if let Error::DnsError { .. } = error {
                assert!(asked.starts_with(|c: char| c.is_ascii_digit()), "{asked}");
                continue;
            }
            assert!(matches!(error, Error::DestinationIpProhibited), "{error:?}");
            let denial = gate.denial.message().unwrap();
            assert!(denial.contains("is not a public address"), "{denial}");
            assert!(
                denial.contains(&format!("GET http://{leads_to}:{port} leads to")),
                "{denial}"
            );
        }
        served.abort();
    }

    #[tokio::test]
    async fn what_is_not_granted_is_refused_and_remembered() {
        let mut gate = gate("example.com", 80);
        let error = send(&mut gate, "POST", "http://example.com/")
            .await
            .unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied));
        let error = send(&mut gate, "GET", "http://other.test/")
            .await
            .unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied));
        // The first refusal is the one that is told.
        assert!(
            gate.denial
                .message()
                .unwrap()
                .starts_with("POST http://example.com is not granted")
        );
    }

    #[tokio::test]
    async fn a_dropped_call_sends_nothing_more() {
        let (port, served) = server(answer(3, 3)).await;
        let mut gate = gate("127.0.0.1", port);
        gate.stop.drop_now();
        let error = send(&mut gate, "GET", &format!("http://127.0.0.1:{port}/"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied));
        assert_eq!(gate.denial.message(), None);
        assert!(!served.is_finished());
        served.abort();
    }

    #[tokio::test]
    async fn a_body_beyond_the_limit_ends_in_an_error() {
        let (port, served) = server(answer(1001, 1001)).await;
        let mut gate = gate("127.0.0.1", port);
        let response = send(&mut gate, "GET", &format!("http://127.0.0.1:{port}/"))
            .await
            .unwrap();
        let error = response.into_body().collect().await.unwrap_err();
        assert!(
            matches!(error, Error::HttpResponseBodySize(Some(1000))),
            "{error:?}"
        );
        served.abort();
    }

    #[tokio::test]
    async fn a_server_that_falls_silent_is_not_waited_for() {
        let (port, served) = server(answer(1000, 10)).await;
        let mut gate = gate("127.0.0.1", port);
        let response = send(&mut gate, "GET", &format!("http://127.0.0.1:{port}/"))
            .await
            .unwrap();
        let error = response.into_body().collect().await.unwrap_err();
        assert!(matches!(error, Error::ConnectionReadTimeout), "{error:?}");
        served.abort();
    }

    #[tokio::test]
    async fn the_request_line_names_the_path_only() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut gate = gate("127.0.0.1", port);
        let uri = format!("http://127.0.0.1:{port}?q=1");
        let (_, line) = tokio::join!(send(&mut gate, "GET", &uri), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = vec![0; 1024];
            let read = stream.read(&mut head).await.unwrap();
            let head = String::from_utf8_lossy(&head[..read]).into_owned();
            head.lines().next().unwrap().to_owned()
        });
        assert_eq!(line, "GET /?q=1 HTTP/1.1");
    }

    #[tokio::test]
    async fn a_server_that_does_not_speak_tls_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut gate = gate("127.0.0.1", port);
        Arc::get_mut(&mut gate.grants).unwrap().http[0].scheme = "https".into();
        let uri = format!("https://127.0.0.1:{port}/");
        let (sent, ()) = tokio::join!(send(&mut gate, "GET", &uri), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 No\r\n\r\n").await.unwrap();
        });
        let error = sent.unwrap_err();
        assert!(matches!(error, Error::TlsProtocolError), "{error:?}");
    }
}
