//! The only way out to the network: each request is checked against the grants, and its answer is bounded in
//! size and time.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use hyper::{Request, Response, Uri, Version};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, RequestOptions, Result, WasiBody, WasiHttpHooks};

use super::connect::{Connection, connect};
use super::effects::{Begun, Crash, Effects};
use super::gauges::Gauge;
use super::grants::{Denial, Destination, Reach, reach};
use super::response::{Bounds, bounded};
use super::script::{Replies, ask};
use super::{Grants, Resource, StopSignal};

/// Resolving, connecting and greeting; a guest may ask for less.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);

/// Of the head of a response, and of what is read ahead.
const READ_BUFFER_BYTES_MAX: usize = 128 << 10;

/// Written to a request's body at once, of which two parts may wait: as much as one record of TLS.
const BODY_CHUNK_BYTES: usize = 16 << 10;

/// Requests of a call under way at once, each with a connection of its own; others wait until one of them ends.
const UNDER_WAY_MAX: usize = 16;

/// Names that a call looks up at once, so that one whose names nobody knows leaves room for the others.
const LOOKUPS_MAX: usize = 4;

/// Of what a server may send ahead over HTTP/2 before the guest has read.
const WINDOW_BYTES: u32 = 128 << 10;

/// Where the requests of a call go, once they are granted.
#[derive(Clone, Default)]
pub enum Network {
    /// To the servers that they name.
    #[default]
    Real,
    /// To a script, for tests.
    Scripted(Arc<dyn Replies>),
}

/// What the guest's HTTP requests pass through.
pub(super) struct HttpGate {
    pub(super) grants: Arc<Grants>,
    pub(super) stop: StopSignal,
    pub(super) denial: Denial,
    pub(super) exceeded: Denial,
    pub(super) network: Network,
    pub(super) effects: Effects,
    pub(super) turns: Turns,
    pub(super) requests: Gauge,
    /// Of one response body.
    pub(super) response_bytes: Gauge,
    /// For the head of a response, and between two parts of its body.
    pub(super) wait_max: Duration,
}

/// Whose turn it is among the requests of a call.
#[derive(Clone)]
pub(super) struct Turns {
    under_way: Arc<Semaphore>,
    pub(super) lookups: Arc<Semaphore>,
}

impl Default for Turns {
    fn default() -> Turns {
        Turns {
            under_way: Arc::new(Semaphore::new(UNDER_WAY_MAX)),
            lookups: Arc::new(Semaphore::new(LOOKUPS_MAX)),
        }
    }
}

pub(super) type Exchanged = (Response<WasiBody>, Driver);
pub(super) type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

impl WasiHttpHooks for HttpGate {
    fn send_request(
        &mut self,
        request: Request<WasiBody>,
        options: Option<RequestOptions>,
        _: Driver,
    ) -> Box<dyn Future<Output = Result<Exchanged>> + Send> {
        let (destination, reach) = match self.admit(&request) {
            Ok(admitted) => admitted,
            Err(error) => return Box::new(std::future::ready(Err(error))),
        };
        let tell = || format!("wasi:http: {} {}", request.method(), request.uri());
        let effect = match self.effects.begin(tell) {
            Ok(effect) => effect,
            Err(Crash) => return Box::new(crashed(self.stop.clone())),
        };
        let answer: Answering = match &self.network {
            Network::Real => Box::pin(exchange(
                request,
                destination,
                reach,
                self.denial.clone(),
                self.turns.clone(),
                self.waits(options.unwrap_or_default()),
                self.bounds(),
            )),
            Network::Scripted(script) => Box::pin(ask(Arc::clone(script), request, self.bounds())),
        };
        match self.effects.are_watched() {
            false => Box::new(answer),
            true => Box::new(watched(
                answer,
                effect,
                self.effects.clone(),
                self.stop.clone(),
            )),
        }
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }
}

type Answering = Pin<Box<dyn Future<Output = Result<Exchanged>> + Send>>;

/// Tell the end of `effect` when its answer is there.
async fn watched(
    answer: Answering,
    effect: Begun,
    effects: Effects,
    stop: StopSignal,
) -> Result<Exchanged> {
    let answer = answer.await;
    match effects.end(effect) {
        Ok(()) => answer,
        Err(Crash) => crashed(stop).await,
    }
}

/// A request has no way to stop its call, other than never to be answered while the call is dropped.
async fn crashed(stop: StopSignal) -> Result<Exchanged> {
    stop.drop_now();
    std::future::pending().await
}

impl HttpGate {
    fn admit(&self, request: &Request<WasiBody>) -> Result<(Destination, Reach)> {
        if self.stop.is_dropped() {
            return Err(Error::HttpRequestDenied);
        }
        let destination = Destination::of(request).ok_or(Error::HttpRequestUriInvalid)?;
        let Some(reach) = reach(&self.grants.http, &destination) else {
            self.denial.record(destination.refusal());
            return Err(Error::HttpRequestDenied);
        };
        if !self.requests.take(1) {
            self.exceeded.record(format!(
                "the task has made {} HTTP requests, its limit; {}",
                self.requests.limit,
                Resource::HttpRequests.raise()
            ));
            return Err(Error::ConnectionLimitReached);
        }
        Ok((destination, reach))
    }

    fn bounds(&self) -> Bounds {
        Bounds {
            bytes_most: self.response_bytes.clone(),
            wait_max: self.wait_max,
            exceeded: self.exceeded.clone(),
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
    request: Request<WasiBody>,
    destination: Destination,
    reach: Reach,
    denial: Denial,
    turns: Turns,
    waits: Waits,
    bounds: Bounds,
) -> Result<Exchanged> {
    let (sender, driver) = timeout(waits.connect, async {
        let turn = Arc::clone(&turns.under_way).acquire_owned().await;
        let turn = turn.map_err(|_| Error::ConnectionLimitReached)?;
        let connection = connect(&destination, reach, &denial, &turns.lookups).await?;
        greet(connection, turn).await
    })
    .await
    .map_err(|_| Error::ConnectionTimeout)??;
    let response = timeout(waits.first_byte, sender.send(request))
        .await
        .map_err(|_| {
            bounds.note_wait(waits.first_byte);
            Error::HttpResponseTimeout
        })?
        .map_err(protocol_error)?;
    let response = response.map(|incoming| {
        let body = incoming.map_err(protocol_error).boxed_unsync();
        bounded(body, bounds, waits.between_bytes)
    });
    Ok((response, driver))
}

/// A connection that a request can be sent on.
enum Sender {
    Http1(http1::SendRequest<WasiBody>),
    Http2(http2::SendRequest<WasiBody>),
}

/// Begin to speak HTTP, in the version that was agreed upon.
async fn greet(connection: Connection, turn: OwnedSemaphorePermit) -> Result<(Sender, Driver)> {
    let stream = TokioIo::new(connection.stream);
    if connection.is_http2 {
        let greeted = http2::Builder::new(Spawn)
            .max_header_list_size(READ_BUFFER_BYTES_MAX as u32)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (sender, connection) = greeted.map_err(protocol_error)?;
        Ok((Sender::Http2(sender), drive(connection, turn)))
    } else {
        let greeted = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .handshake(stream)
            .await;
        let (sender, connection) = greeted.map_err(protocol_error)?;
        Ok((Sender::Http1(sender), drive(connection, turn)))
    }
}

/// Keep a connection moving until the guest drops the exchange, whose turn then ends.
fn drive(
    connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
    turn: OwnedSemaphorePermit,
) -> Driver {
    let connection = AbortOnDropJoinHandle::from(tokio::spawn(connection));
    // What goes wrong on it is told by the body, so nobody needs it here a second time.
    Box::new(async move {
        let _ = connection.await;
        drop(turn);
        Ok(())
    })
}

impl Sender {
    async fn send(self, mut request: Request<WasiBody>) -> hyper::Result<Response<Incoming>> {
        match self {
            Sender::Http1(mut sender) => {
                // To the server itself a request names only the path; its host is in the header.
                let path = request.uri().path_and_query().cloned();
                *request.uri_mut() = match path {
                    Some(path) => Uri::from(path),
                    None => Uri::from_static("/"),
                };
                sender.send_request(request).await
            }
            Sender::Http2(mut sender) => {
                // The host is part of the address there, and a connection's own headers are errors.
                for name in [HOST, CONNECTION, TRANSFER_ENCODING] {
                    request.headers_mut().remove(name);
                }
                *request.version_mut() = Version::HTTP_2;
                sender.send_request(request).await
            }
        }
    }
}

/// Runs what HTTP/2 has to do beside a request.
#[derive(Clone, Copy)]
struct Spawn;

impl<F> hyper::rt::Executor<F> for Spawn
where
    F: Future<Output: Send> + Send + 'static,
{
    fn execute(&self, future: F) {
        tokio::spawn(future);
    }
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

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::gauges::Gauges;
    use crate::{HttpGrant, Limits};

    fn gate(host: &str, port: u16) -> HttpGate {
        let gauges = Gauges::new(&Limits {
            http_response_bytes_max: 1000,
            http_requests_max: 3,
            ..Limits::default()
        });
        HttpGate {
            grants: Arc::new(Grants {
                http: vec![HttpGrant::get(host, port)],
                ..Grants::default()
            }),
            stop: StopSignal::default(),
            denial: Denial::default(),
            exceeded: Denial::default(),
            network: Network::Real,
            effects: Effects::default(),
            turns: Turns::default(),
            requests: gauges.http_requests,
            response_bytes: gauges.http_response,
            wait_max: Duration::from_millis(300),
        }
    }

    async fn send(gate: &mut HttpGate, method: &str, uri: &str) -> Result<Response<WasiBody>> {
        let (response, driver) = begin(gate, method, uri, None).await?;
        tokio::spawn(Pin::from(driver));
        Ok(response)
    }

    async fn begin(
        gate: &mut HttpGate,
        method: &str,
        uri: &str,
        options: Option<RequestOptions>,
    ) -> Result<Exchanged> {
        let body = Empty::<Bytes>::new()
            .map_err(|never| match never {})
            .boxed_unsync();
        let request = Request::builder()
            .method(method)
            .uri(uri)
            .header("host", "as.the.guest.definition")
            .body(body)
            .unwrap();
        let sent = gate.send_request(request, options, Box::new(async { Ok(()) }));
        Pin::from(sent).await
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
    async fn one_request_too_many_waits_for_its_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let served = tokio::spawn(async move {
            let mut held = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = [0; 1024];
                assert!(stream.read(&mut request).await.unwrap() > 0);
                stream.write_all(&answer(3, 0)).await.unwrap();
                held.push(stream);
            }
        });
        let mut gate = gate("localhost", port);
        gate.requests = Gauges::new(&Limits::default()).http_requests;
        let uri = format!("http://localhost:{port}/");
        let mut under_way = Vec::new();
        for _ in 0..UNDER_WAY_MAX {
            under_way.push(begin(&mut gate, "GET", &uri, None).await.unwrap());
        }
        let hurried = RequestOptions {
            connect_timeout: Some(Duration::from_millis(100)),
            ..RequestOptions::default()
        };
        let error = begin(&mut gate, "GET", &uri, Some(hurried)).await;
        assert!(matches!(error.err(), Some(Error::ConnectionTimeout)));
        under_way.pop();
        assert!(begin(&mut gate, "GET", &uri, None).await.is_ok());
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
        assert_eq!(
            gate.exceeded.message().unwrap(),
            "a response had more than 1000 bytes, the limit; raise `http_response` among the limits of the package's sidecar file"
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
        assert_eq!(
            gate.exceeded.message().unwrap(),
            "a server let the task wait for 300ms, its limit; raise `http_wait` among the limits of the package's sidecar file"
        );
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
