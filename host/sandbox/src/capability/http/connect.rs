//! Connecting to a granted destination.
//!
//! The host resolves the name, checks each address, and connects to an address that passed. A name therefore cannot
//! change its address between the check and the connection.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, LazyLock};

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto};
use wasmtime_wasi_http::{Error, Result};

use crate::capability::http::destination::Destination;
use crate::capability::network::leased::LeasedStream;
use crate::capability::network::lookup::LOOKUPS;
use crate::capability::network::reach::Reach;
use crate::capability::shared::Shared;

/// The name of HTTP/2 in the negotiation of TLS.
const HTTP2: &[u8] = b"h2";

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream to a server, and the negotiated version of HTTP.
pub(crate) struct Connection {
    pub(crate) stream: Box<dyn Stream>,
    pub(crate) is_http2: bool,
}

/// Connect to `destination`, at an address within `reach`.
pub(crate) async fn connect(
    destination: &Destination,
    reach: Reach,
    shared: &Shared,
) -> Result<Connection> {
    let stream = connect_unencrypted(destination, reach, shared).await?;
    if destination.scheme == "http" {
        return Ok(Connection {
            stream: Box::new(stream),
            is_http2: false,
        });
    }
    let tls = encrypt(stream, destination, &[HTTP2, b"http/1.1"]).await?;
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(HTTP2);
    Ok(Connection {
        stream: Box::new(tls),
        is_http2,
    })
}

/// Connect to `destination`, at an address within `reach`, without TLS.
pub(crate) async fn connect_unencrypted(
    destination: &Destination,
    reach: Reach,
    shared: &Shared,
) -> Result<LeasedStream<TcpStream>> {
    let addresses = resolve(destination, shared).await?;
    let allowed = permitted(&addresses, destination, reach, shared)?;
    let stop = shared.call.stop.clone();
    if stop.is_dropped() {
        return Err(Error::HttpRequestDenied);
    }
    let stream = TcpStream::connect(&allowed[..])
        .await
        .map_err(|error| connect_error(&error))?;
    Ok(LeasedStream { stream, stop })
}

/// Encrypt a stream to `destination`. `protocols` are those that the server may choose from.
pub(crate) async fn encrypt<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    destination: &Destination,
    protocols: &[&[u8]],
) -> Result<TlsStream<S>> {
    let name = ServerName::try_from(destination.host.clone());
    let name = name.map_err(|_| Error::HttpRequestUriInvalid)?;
    let protocols = protocols.iter().map(|name| name.to_vec());
    let connector = TlsConnector::from(tls_config()?);
    let connecting = connector.with_alpn(protocols.collect());
    let connected = connecting.connect(name, stream).await;
    connected.map_err(|error| tls_error(&error))
}

async fn resolve(destination: &Destination, shared: &Shared) -> Result<Vec<SocketAddr>> {
    if let Some(ip) = destination.ip() {
        return Ok(vec![SocketAddr::new(ip, destination.port)]);
    }
    let (package, permits) = (&shared.call.package, &shared.lookup_permits);
    let found = LOOKUPS.look_up(package, &destination.host, destination.port, permits);
    let addresses = found.await.map_err(|error| match error.kind() {
        io::ErrorKind::TimedOut => Error::DnsTimeout,
        _ => Error::DnsError {
            rcode: Some(error.to_string()),
            info_code: None,
        },
    })?;
    if addresses.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    Ok(addresses)
}

/// Returns the addresses within `reach`, or record the refusal when there are none.
fn permitted(
    addresses: &[SocketAddr],
    destination: &Destination,
    reach: Reach,
    shared: &Shared,
) -> Result<Vec<SocketAddr>> {
    let within = addresses.iter().filter(|it| reach.includes(it.ip()));
    let allowed: Vec<SocketAddr> = within.copied().collect();
    match (allowed.is_empty(), addresses.first()) {
        (true, Some(address)) => {
            let source = shared.call.grants.source;
            shared.deny(destination.refusal_of_address(address.ip(), source));
            Err(Error::DestinationIpProhibited)
        }
        _ => Ok(allowed),
    }
}

// The codes of wasi:http carry no texts, and a task whose server is down should not fill the host's log.

fn connect_error(error: &io::Error) -> Error {
    match error.kind() {
        io::ErrorKind::ConnectionRefused => Error::ConnectionRefused,
        io::ErrorKind::TimedOut => Error::ConnectionTimeout,
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
            Error::DestinationIpUnroutable
        }
        _ => Error::DestinationUnavailable,
    }
}

fn tls_error(error: &io::Error) -> Error {
    let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
    match inner {
        Some(rustls::Error::InvalidCertificate(_)) => Error::TlsCertificateError,
        _ => Error::TlsProtocolError,
    }
}

/// Returns the TLS settings, made once: they trust the machine's certificate authorities and the public ones.
///
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` in the environment replace the machine's.
fn tls_config() -> Result<Arc<ClientConfig>> {
    static CONFIG: LazyLock<Result<Arc<ClientConfig>, rustls::Error>> =
        LazyLock::new(|| make_tls_config().map(Arc::new));
    CONFIG.clone().map_err(|_| Error::ConfigurationError)
}

fn make_tls_config() -> Result<ClientConfig, rustls::Error> {
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.into(),
    };
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "some certificates that this machine trusts cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    let config = ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(config)
}
