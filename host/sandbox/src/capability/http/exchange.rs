//! One HTTP exchange over a new connection.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::client::conn::{http1, http2};
use hyper::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Response, Uri, Version};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, timeout, timeout_at};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;
use wasmtime_wasi_http::io::TokioIo;
use wasmtime_wasi_http::{Error, Result, WasiBody};

use crate::capability::http::connect::{Connection, connect};
use crate::capability::http::destination::Destination;
use crate::capability::http::response::{limited, record_wait};
use crate::capability::network::reach::Reach;
use crate::capability::shared::Shared;
use crate::ledger::fair_shares::FairShare;

/// The longest head of a response, and the most that is read ahead.
const READ_BUFFER_BYTES_MAX: usize = 128 << 10;

/// The most that a server may send over HTTP/2 before the guest reads.
const WINDOW_BYTES: u32 = 128 << 10;

/// Host memory for a connection: data read ahead, the window, and a TLS record each way.
const BUFFER_BYTES: u64 = 320 << 10;

pub(crate) type Exchanged = (Response<WasiBody>, Driver);
pub(crate) type Driver = Box<dyn Future<Output = Result<(), Error>> + Send>;

/// How long each part of an exchange may take.
pub(crate) struct Waits {
    pub(crate) connect: Duration,
    pub(crate) first_byte: Duration,
    pub(crate) between_bytes: Duration,
}

/// Connect to `destination`, send `request`, and return the head of the response with its limited body.
pub(crate) async fn exchange(
    request: Request<WasiBody>,
    destination: Destination,
    reach: Reach,
    waits: Waits,
    shared: Arc<Shared>,
) -> Result<Exchanged> {
    let until = Instant::now() + waits.connect;
    let permit = timeout_at(until, Permit::acquire(&shared));
    let permit = permit.await.map_err(|_| {
        shared.note_lack_of_descriptors();
        Error::ConnectionTimeout
    })??;
    let (sending, driver) = timeout_at(until, async {
        let connection = connect(&destination, reach, &shared).await?;
        handshake(connection, request, permit).await
    })
    .await
    .map_err(|_| Error::ConnectionTimeout)??;
    let response = timeout(waits.first_byte, sending)
        .await
        .map_err(|_| {
            record_wait(&shared, waits.first_byte);
            Error::HttpResponseTimeout
        })?
        .map_err(protocol_error)?;
    let response = response.map(|incoming| {
        let body = incoming.map_err(protocol_error).boxed_unsync();
        limited(body, shared, waits.between_bytes)
    });
    Ok((response, driver))
}

/// What a connection takes from the limits of its call and the host.
struct Permit {
    _of_call: OwnedSemaphorePermit,
    _descriptor: FairShare,
    _buffers: FairShare,
}

impl Permit {
    /// Waits its turn, possibly for other requests of the package to end.
    async fn acquire(shared: &Shared) -> Result<Permit> {
        let of_call = Arc::clone(&shared.request_permits).acquire_owned().await;
        let (ledger, package) = (&shared.ledger, &shared.call.package);
        let descriptor = ledger.descriptors.acquire(package, 1, u64::MAX).await;
        let buffers = ledger.memory.acquire(package, BUFFER_BYTES, u64::MAX).await;
        let limited = || {
            shared.note_lack_of_descriptors();
            Error::ConnectionLimitReached
        };
        Ok(Permit {
            _of_call: of_call.map_err(|_| Error::ConnectionLimitReached)?,
            _descriptor: descriptor.ok_or_else(limited)?,
            _buffers: buffers.ok_or_else(limited)?,
        })
    }
}

/// Sends a request and returns the head of its response.
type Sending = Pin<Box<dyn Future<Output = hyper::Result<Response<Incoming>>> + Send>>;

/// Returns how to send `request` on a new connection. Nothing is sent of it yet.
async fn handshake(
    connection: Connection,
    mut request: Request<WasiBody>,
    permit: Permit,
) -> Result<(Sending, Driver)> {
    let stream = TokioIo::new(connection.stream);
    if connection.is_http2 {
        let shaken = http2::Builder::new(Spawn)
            .max_header_list_size(READ_BUFFER_BYTES_MAX as u32)
            .initial_stream_window_size(WINDOW_BYTES)
            .initial_connection_window_size(WINDOW_BYTES)
            .handshake(stream)
            .await;
        let (mut sender, connection) = shaken.map_err(protocol_error)?;
        // HTTP/2 carries the host in the address, and forbids the headers of a connection.
        for name in [HOST, CONNECTION, TRANSFER_ENCODING] {
            request.headers_mut().remove(name);
        }
        *request.version_mut() = Version::HTTP_2;
        let sending = async move { sender.send_request(request).await };
        Ok((Box::pin(sending), drive(connection, permit)))
    } else {
        let shaken = http1::Builder::new()
            .max_buf_size(READ_BUFFER_BYTES_MAX)
            .handshake(stream)
            .await;
        let (mut sender, connection) = shaken.map_err(protocol_error)?;
        // To the server itself a request names only the path; its host is in the header.
        let path = request.uri().path_and_query();
        // `as_str` turns an empty path into `/`, though a URI built from it has no path at all. It adds no slash before a lone query.
        let path = path.map_or("/", PathAndQuery::as_str);
        let slash = if path.starts_with('/') { "" } else { "/" };
        let path = Uri::try_from(format!("{slash}{path}"));
        *request.uri_mut() = path.map_err(|_| Error::HttpRequestUriInvalid)?;
        let sending = async move { sender.send_request(request).await };
        Ok((Box::pin(sending), drive(connection, permit)))
    }
}

/// Drive a connection until the guest drops the exchange, and return its permit then.
fn drive(
    connection: impl Future<Output = hyper::Result<()>> + Send + 'static,
    permit: Permit,
) -> Driver {
    let connection = AbortOnDropJoinHandle::from(tokio::spawn(connection));
    // The body reports errors of the connection.
    Box::new(async move {
        let _ = connection.await;
        drop(permit);
        Ok(())
    })
}

/// Runs what HTTP/2 does beside a request.
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

/// The codes of wasi:http carry no texts.
fn protocol_error(error: hyper::Error) -> Error {
    if error.is_timeout() {
        Error::HttpResponseTimeout
    } else if error.is_incomplete_message() {
        Error::HttpResponseIncomplete
    } else {
        Error::HttpProtocolError
    }
}
