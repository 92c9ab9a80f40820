//! From a checked destination to a connection: resolve the name here, check each address, and connect to one that
//! passed, so that a name cannot change its mind in between.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, OnceLock};
use std::thread;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{Semaphore, oneshot};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{self, ClientConfig, RootCertStore, crypto};
use wasmtime_wasi_http::{Error, Result};

use super::address::is_public;
use super::grants::{Denial, Destination, Reach};

/// Names that may be looked up at the same time, each in a thread of its own. A resolver that does not answer holds up
/// these, and not the threads that read files.
const LOOKUPS_MAX: usize = 32;
static LOOKUPS: Semaphore = Semaphore::const_new(LOOKUPS_MAX);

/// As TLS calls it when it is agreed which protocol follows.
const HTTP2: &[u8] = b"h2";

pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// A stream to a server, and the version of HTTP that was agreed upon.
pub(super) struct Connection {
    pub(super) stream: Box<dyn Stream>,
    pub(super) is_http2: bool,
}

/// A stream to `destination`, which `reach` may not extend to all of: what is refused is remembered in `denial`.
pub(super) async fn connect(
    destination: &Destination,
    reach: Reach,
    denial: &Denial,
    lookups: &Arc<Semaphore>,
) -> Result<Connection> {
    let addresses = resolve(destination, lookups).await?;
    let allowed = permitted(&addresses, destination, reach, denial)?;
    let stream = TcpStream::connect(&allowed[..])
        .await
        .map_err(|error| connect_error(&error))?;
    if !destination.https {
        return Ok(Connection {
            stream: Box::new(stream),
            is_http2: false,
        });
    }
    let name = match destination.ip() {
        Some(ip) => ServerName::from(ip),
        None => ServerName::try_from(destination.host.clone())
            .map_err(|_| Error::HttpRequestUriInvalid)?,
    };
    let tls = TlsConnector::from(tls_config()?)
        .connect(name, stream)
        .await
        .map_err(|error| tls_error(&error))?;
    let is_http2 = tls.get_ref().1.alpn_protocol() == Some(HTTP2);
    Ok(Connection {
        stream: Box::new(tls),
        is_http2,
    })
}

async fn resolve(destination: &Destination, lookups: &Arc<Semaphore>) -> Result<Vec<SocketAddr>> {
    if let Some(ip) = destination.ip() {
        return Ok(vec![SocketAddr::new(ip, destination.port)]);
    }
    let found = look_up(destination.host.clone(), destination.port, lookups).await;
    let addresses = found.map_err(|error| Error::DnsError {
        rcode: Some(error.to_string()),
        info_code: None,
    })?;
    if addresses.is_empty() {
        return Err(Error::DestinationNotFound);
    }
    Ok(addresses)
}

/// Ask the machine's resolver, which blocks until it has an answer or gives up. Whoever asked may give up before it.
pub(super) async fn look_up(
    host: String,
    port: u16,
    lookups: &Arc<Semaphore>,
) -> io::Result<Vec<SocketAddr>> {
    let place_of_call = Arc::clone(lookups).acquire_owned().await;
    let place_of_call = place_of_call.map_err(io::Error::other)?;
    let place = LOOKUPS.acquire().await.map_err(io::Error::other)?;
    let (answer, answered) = oneshot::channel();
    thread::Builder::new()
        .name("campanile-names".to_owned())
        .spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            let _ = answer.send(found.map(Iterator::collect));
            drop((place, place_of_call));
        })?;
    answered.await.map_err(io::Error::other)?
}

/// Those of `addresses` that `reach` extends to; an error that was recorded when there are none.
fn permitted(
    addresses: &[SocketAddr],
    destination: &Destination,
    reach: Reach,
    denial: &Denial,
) -> Result<Vec<SocketAddr>> {
    let allowed: Vec<SocketAddr> = addresses
        .iter()
        .copied()
        .filter(|address| reach == Reach::Anywhere || is_public(address.ip()))
        .collect();
    match (allowed.is_empty(), addresses.first()) {
        (true, Some(address)) => {
            denial.record(destination.refusal_of_address(address.ip()));
            Err(Error::DestinationIpProhibited)
        }
        _ => Ok(allowed),
    }
}

// The guest gets one of the codes of wasi:http, which have no place for texts; and a task whose server is away
// should not fill the host's own log.

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

/// The certificate authorities that this machine trusts, and the public ones, read once.
///
/// `SSL_CERT_FILE` and `SSL_CERT_DIR` in the environment name others in place of the machine's.
fn tls_config() -> Result<Arc<ClientConfig>> {
    static CONFIG: OnceLock<Arc<ClientConfig>> = OnceLock::new();
    if let Some(config) = CONFIG.get() {
        return Ok(config.clone());
    }
    let mut roots = RootCertStore {
        roots: webpki_roots::TLS_SERVER_ROOTS.into(),
    };
    let found = rustls_native_certs::load_native_certs();
    for error in &found.errors {
        tracing::warn!(%error, "certificates that this machine trusts cannot be read");
    }
    roots.add_parsable_certificates(found.certs);
    let config = client_config(roots)?;
    Ok(CONFIG.get_or_init(|| Arc::new(config)).clone())
}

fn client_config(roots: RootCertStore) -> Result<ClientConfig> {
    let mut config =
        ClientConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|_| Error::ConfigurationError)?
            .with_root_certificates(roots)
            .with_no_client_auth();
    config.alpn_protocols = vec![HTTP2.to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_are_looked_up_while_every_thread_for_files_is_blocked() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (release, released) = std::sync::mpsc::channel::<()>();
            let blocked = tokio::task::spawn_blocking(move || released.recv());
            let lookups = Arc::new(Semaphore::new(1));
            let looked_up = look_up("localhost".to_owned(), 80, &lookups);
            let found = tokio::time::timeout(Duration::from_secs(10), looked_up).await;
            drop(release);
            assert!(blocked.await.unwrap().is_err());
            assert!(found.unwrap().unwrap()[0].ip().is_loopback());
        });
    }
}
