//! The gate of HTTP requests: it checks each against the grants and the limits, and sends it.

use std::sync::Arc;
use std::time::Duration;

use campanile_model::trace_context::{TRACEPARENT, TraceContext};
use hyper::Request;
use hyper::header::{Entry, HeaderValue};
use wasmtime_wasi_http::{Error, RequestOptions, Result, WasiBody, WasiHttpHooks};

use crate::capability::http::destination::Destination;
use crate::capability::http::exchange::{Driver, Exchanged, Waits, exchange};
use crate::capability::http::length::with_length;
use crate::capability::http::response::wait_max;
use crate::capability::http::scripted::answer;
use crate::capability::network::reach::Reach;
use crate::capability::shared::Shared;
use crate::effects::Crash;
use crate::limits::Resource;

/// The longest time to resolve, connect and shake hands. A guest may ask for less.
const CONNECT_WAIT_MAX: Duration = Duration::from_secs(30);

/// The most that a guest may write to a request's body at once, as much as one record of TLS. Two such parts may wait.
const BODY_CHUNK_BYTES: usize = 16 << 10;

/// The HTTP requests of one call.
pub(crate) struct HttpGate(pub(crate) Arc<Shared>);

impl HttpGate {
    fn admit(&self, request: &Request<WasiBody>) -> Result<(Destination, Reach)> {
        if self.0.call.stop.is_dropped() {
            return Err(Error::HttpRequestDenied);
        }
        let destination = Destination::of(request).ok_or(Error::HttpRequestUriInvalid)?;
        let Some(reach) = destination.reach(&self.0.call.grants.http) else {
            self.0.deny(destination.refusal());
            return Err(Error::HttpRequestDenied);
        };
        if !self.0.spend(Resource::HttpRequests, 1) {
            self.0.exceed(format!(
                "the task has made {} HTTP requests, its limit; {}",
                self.0.limit(Resource::HttpRequests),
                Resource::HttpRequests.raise()
            ));
            return Err(Error::ConnectionLimitReached);
        }
        Ok((destination, reach))
    }

    fn waits(&self, options: RequestOptions) -> Waits {
        let wait_max = wait_max(&self.0.call.limits);
        let at_most = |max: Duration, asked: Option<Duration>| asked.map_or(max, |a| a.min(max));
        Waits {
            connect: at_most(CONNECT_WAIT_MAX, options.connect_timeout),
            first_byte: at_most(wait_max, options.first_byte_timeout),
            between_bytes: at_most(wait_max, options.between_bytes_timeout),
        }
    }
}

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
        let describe = || format!("wasi:http: {} {}", request.method(), request.uri());
        let shared = Arc::clone(&self.0);
        let mut effect = match shared.effects.begin(describe) {
            Ok(effect) => effect,
            Err(Crash) => return Box::new(crashed(shared)),
        };
        let waits = self.waits(options.unwrap_or_default());
        Box::new(async move {
            let of_call = Arc::clone(&shared);
            let answer = match &shared.call.world.replies {
                None => {
                    let request = traced(request, of_call.call.facts.traceparent);
                    let request = with_length(request, &of_call.kept).await;
                    exchange(request, destination, reach, waits, of_call).await
                }
                Some(script) => answer(Arc::clone(script), request, of_call).await,
            };
            // The effect ends when the answer has arrived.
            match effect.end() {
                Ok(()) => answer,
                Err(Crash) => crashed(shared).await,
            }
        })
    }

    fn p2_outgoing_body_chunk_size(&mut self) -> usize {
        BODY_CHUNK_BYTES
    }
}

/// Name the span of the call as the caller of a request, unless the task has named one.
///
/// A script never sees the header: its answers must not depend on ids.
fn traced(mut request: Request<WasiBody>, span: Option<TraceContext>) -> Request<WasiBody> {
    let value = span.and_then(|span| HeaderValue::try_from(span.to_string()).ok());
    if let (Some(value), Entry::Vacant(place)) = (value, request.headers_mut().entry(TRACEPARENT)) {
        place.insert(value);
    }
    request
}

/// A request cannot end its call. It drops the call instead, and is never answered.
async fn crashed(shared: Arc<Shared>) -> Result<Exchanged> {
    shared.call.stop.drop_now();
    std::future::pending().await
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;

    use campanile_model::clock::Clock;
    use http_body_util::{BodyExt as _, Empty};
    use hyper::Response;
    use hyper::body::Bytes;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    use super::*;
    use crate::capability::shared::{Call, REQUESTS_UNDER_WAY_MAX};
    use crate::grants::{Grants, HttpGrant};
    use crate::ledger::Ledger;
    use crate::limits::Limits;

    fn gate(host: &str, port: u16) -> HttpGate {
        let limits = Limits {
            http_response_bytes_max: 1000,
            http_requests_max: 3,
            http_wait: Duration::from_millis(300),
            ..Limits::default()
        };
        gate_to(HttpGrant::get(host, port), &limits)
    }

    fn gate_to(grant: HttpGrant, limits: &Limits) -> HttpGate {
        let grants = Grants {
            http: vec![grant],
            ..Grants::default()
        };
        let now = Clock::system().now();
        let call = Call {
            grants: Arc::new(grants),
            ..Call::ungranted(limits.clone(), now)
        };
        HttpGate(Arc::new(Shared::new(
            call,
            Arc::new(Ledger::unbounded()),
            now,
        )))
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
            .header("host", "as.the.guest.says")
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
    async fn localhost_is_reached_when_it_is_granted() {
        let (port, served) = server(answer(3, 3)).await;
        let mut gate = gate("localhost", port);
        let uri = format!("http://localhost:{port}/a/b?c=d");
        let response = send(&mut gate, "GET", &uri).await.unwrap();
        assert_eq!(response.status(), 200);
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"xxx");
        assert_eq!(gate.0.denied(), None);
        served.abort();
    }

    #[test]
    fn a_request_names_the_span_of_its_call_unless_the_task_names_one() {
        let span = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        for (of_call, of_task, sent) in [
            (Some(span), None, Some(span)),
            (Some(span), Some("own"), Some("own")),
            (None, Some("own"), Some("own")),
            (None, None, None),
        ] {
            let body = Empty::<Bytes>::new().map_err(|never| match never {});
            let mut request = Request::new(body.boxed_unsync());
            let own = of_task.map(HeaderValue::from_static);
            if let Some(own) = own {
                request.headers_mut().insert(TRACEPARENT, own);
            }
            let request = traced(request, of_call.map(|span| span.parse().unwrap()));
            let names = request.headers().get_all(TRACEPARENT).iter();
            assert_eq!(names.collect::<Vec<_>>(), Vec::from_iter(sent));
        }
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
        let mut gate = gate_to(HttpGrant::get("localhost", port), &Limits::default());
        let uri = format!("http://localhost:{port}/");
        let mut under_way = Vec::new();
        for _ in 0..REQUESTS_UNDER_WAY_MAX {
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
            let denial = gate.0.denied().unwrap();
            assert!(denial.contains("is not a public address"), "{denial}");
            assert!(
                denial.contains(&format!("GET http://{leads_to}:{port} leads to")),
                "{denial}"
            );
        }
        served.abort();
    }

    #[tokio::test]
    async fn a_granted_name_leads_to_private_addresses_only_when_its_grant_says_so() {
        let (port, served) = server(answer(3, 3)).await;
        // Every resolver reads 127.1 as 127.0.0.1. For a grant it is a name.
        let uri = format!("http://127.1:{port}/");
        let public = HttpGrant::get("127.1", port);
        let mut gate = gate_to(public.clone(), &Limits::default());
        let error = send(&mut gate, "GET", &uri).await.unwrap_err();
        assert!(matches!(error, Error::DestinationIpProhibited), "{error:?}");
        assert_eq!(
            gate.0.denied().unwrap(),
            format!(
                "GET http://127.1:{port} leads to 127.0.0.1, which is not a public address (loopback); to allow it, add \
                 `grants.http = [{{ scheme = \"http\", host = \"127.1\", port = {port}, private = true }}]` at the top of the package's sidecar file"
            )
        );
        let private = HttpGrant {
            private: true,
            ..public
        };
        let mut gate = gate_to(private, &Limits::default());
        assert_eq!(send(&mut gate, "GET", &uri).await.unwrap().status(), 200);
        served.abort();
        // Also a private name does not lead to the service that has the machine's credentials: 169.254.169.254.
        let metadata = HttpGrant {
            private: true,
            ..HttpGrant::get("169.254.43518", 80)
        };
        let mut gate = gate_to(metadata, &Limits::default());
        let error = send(&mut gate, "GET", "http://169.254.43518/")
            .await
            .unwrap_err();
        assert!(matches!(error, Error::DestinationIpProhibited), "{error:?}");
        let denial = gate.0.denied().unwrap();
        assert!(
            denial.contains("no name reaches such a service"),
            "{denial}"
        );
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
        // The first refusal is reported.
        assert!(
            gate.0
                .denied()
                .unwrap()
                .starts_with("POST http://example.com is not granted")
        );
    }

    #[tokio::test]
    async fn a_dropped_call_sends_nothing_more() {
        let (port, served) = server(answer(3, 3)).await;
        let mut gate = gate("127.0.0.1", port);
        gate.0.call.stop.drop_now();
        let error = send(&mut gate, "GET", &format!("http://127.0.0.1:{port}/"))
            .await
            .unwrap_err();
        assert!(matches!(error, Error::HttpRequestDenied));
        assert_eq!(gate.0.denied(), None);
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
            gate.0.exceeded().unwrap(),
            "a response had more than 1000 bytes, the limit; raise `limits.http_response` in the package's sidecar file"
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
            gate.0.exceeded().unwrap(),
            "a server let the task wait for 300ms, its limit; raise `limits.http_wait` in the package's sidecar file"
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
        let grant = HttpGrant {
            scheme: "https".into(),
            ..HttpGrant::get("127.0.0.1", port)
        };
        let mut gate = gate_to(grant, &Limits::default());
        let uri = format!("https://127.0.0.1:{port}/");
        let (sent, ()) = tokio::join!(send(&mut gate, "GET", &uri), async {
            let (mut stream, _) = listener.accept().await.unwrap();
            stream.write_all(b"HTTP/1.1 400 No\r\n\r\n").await.unwrap();
        });
        let error = sent.unwrap_err();
        assert!(matches!(error, Error::TlsProtocolError), "{error:?}");
    }
}
