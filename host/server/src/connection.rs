//! Connections: accepted up to a bound, encrypted where a certificate is configured, and ended in order at a stop.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};
use tracing::Instrument as _;

use crate::app::App;
use crate::listen::{Bound, Listener};
use crate::log_span;
use crate::peer::Peer;
use crate::refusal_events;
use crate::router::router;
use crate::stream;
use crate::timed_io::TimedIo;
use crate::tls::Tls;

/// The connections at once. Further clients wait.
const CONNECTIONS_MAX: usize = 2_000;
/// How long a client may take for the head of a request, for a handshake, and between two requests.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// The buffer of a connection. The head of a request has at most twice as many bytes.
const BUFFER_BYTES_MAX: usize = 32 << 10;
/// How long connections may continue after a stop.
const STOP_WAIT: Duration = Duration::from_secs(5);
/// The pause after an error of the listener, such as too many open files.
const ERROR_PAUSE: Duration = Duration::from_millis(100);

/// Answers requests until the host is to stop, then ends the connections.
pub async fn serve(bound: Bound, app: App) {
    let mut stopping = app.stopping.clone();
    let (router, state) = router(app, bound.access);
    let feed = tokio::spawn(stream::feed(Arc::clone(&state)));
    let refusals = tokio::spawn(refusal_events::record(Arc::clone(&state)));
    let connections = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut open = JoinSet::new();
    loop {
        while open.try_join_next().is_some() {}
        let accepted = async {
            let permit = Arc::clone(&connections).acquire_owned().await.ok()?;
            Some((accept(&bound.listener).await, permit))
        };
        let accepted = tokio::select! {
            accepted = accepted => accepted,
            _ = stopping.wait_for(|stop| *stop) => None,
        };
        let Some(((peer, stream), permit)) = accepted else {
            break;
        };
        let service = (router.clone(), bound.tls.clone(), stopping.clone());
        open.spawn(connection(stream, peer, service, permit));
    }
    feed.abort();
    drop(bound.listener);
    refusals.abort();
    refusal_events::record_rest(&state).await;
    let ended = async { while open.join_next().await.is_some() {} };
    // The rest is dropped with the set.
    let _ = timeout(STOP_WAIT, ended).await;
}

/// A stream of bytes to a client.
trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Accepts one connection.
async fn accept(listener: &Listener) -> (Peer, Box<dyn Stream>) {
    loop {
        let accepted = match listener {
            Listener::Tcp(listener) => listener.accept().await.map(|(stream, from)| {
                // Small answers must not wait for more.
                let _ = stream.set_nodelay(true);
                let address = from.ip();
                (Peer::Tcp { address }, Box::new(stream) as Box<dyn Stream>)
            }),
            Listener::Unix(listener) => listener.accept().await.and_then(|(stream, _)| {
                let uid = stream.peer_cred()?.uid();
                Ok((Peer::Unix { uid }, Box::new(stream) as Box<dyn Stream>))
            }),
        };
        match accepted {
            Ok(accepted) => return accepted,
            Err(error) => {
                tracing::debug!(%error, "a connection to the API can't be accepted");
                sleep(ERROR_PAUSE).await;
            }
        }
    }
}

async fn connection(
    stream: Box<dyn Stream>,
    peer: Peer,
    (router, tls, stopping): (Router, Option<Tls>, watch::Receiver<bool>),
    _permit: OwnedSemaphorePermit,
) {
    let stream = TimedIo::new(stream);
    match tls {
        None => requests(stream, peer, router, stopping).await,
        Some(Tls(acceptor)) => {
            if let Ok(Ok(stream)) = timeout(HEAD_TIME, acceptor.accept(stream)).await {
                requests(stream, peer, router, stopping).await;
            }
        }
    }
}

/// Answers the requests of one connection.
async fn requests(
    stream: impl Stream + 'static,
    peer: Peer,
    router: Router,
    mut stopping: watch::Receiver<bool>,
) {
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(peer.clone());
        let router = TowerToHyperService::new(router.clone());
        let span = log_span::of(&request);
        async move {
            let answering = router.call(request).instrument(span.clone());
            let answered = answering.await.map_err(|never: Infallible| never);
            if let Ok(response) = &answered {
                let status = response.status().as_u16();
                span.in_scope(|| tracing::debug!(status, "answered the request"));
            }
            answered
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = std::pin::pin!(served);
    let is_stopping = tokio::select! {
        // A client that goes away, or that is no HTTP client, is no trouble of this host.
        _ = served.as_mut() => false,
        _ = stopping.wait_for(|stop| *stop) => true,
    };
    if is_stopping {
        served.as_mut().graceful_shutdown();
        let _ = served.await;
    }
}
