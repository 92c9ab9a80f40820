//! The address of a host's API, and connections to it.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpStream, UnixStream};
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// How an address is written.
const EXAMPLES: &str = "write one such as http://127.0.0.1:7979, https://host.example:7979 or unix:/run/campanile.sock";

/// The end of the address that a host prints when it starts.
const API_PATH: &str = "/api/v1";

/// Where the API of a host answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Address {
    Tcp {
        is_encrypted: bool,
        host: String,
        port: u16,
        /// The path before that of a route, as a proxy may have one; without a slash at its end.
        path: String,
    },
    Unix(PathBuf),
}

/// A connection to an address.
pub(super) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl FromStr for Address {
    type Err = String;

    /// The error is a clause.
    fn from_str(text: &str) -> Result<Address, String> {
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Address::Unix(path.into()));
        }
        let no_address = || format!("is no address of an API: {EXAMPLES}");
        let (is_encrypted, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            _ => return Err(no_address()),
        };
        let (authority, path) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, ""),
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"?#@".contains(&byte);
        if !rest.bytes().all(is_plain) {
            return Err(no_address());
        }
        let default_port = if is_encrypted { 443 } else { 80 };
        let bracketed = authority
            .strip_prefix('[')
            .and_then(|rest| rest.split_once(']'));
        let (host, port) = match bracketed {
            Some((host, port)) => (host, port.strip_prefix(':')),
            None => match authority.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (authority, None),
            },
        };
        let port = port.map_or(Ok(default_port), |port| {
            port.parse().map_err(|_| no_address())
        })?;
        if host.is_empty() || (bracketed.is_none() && host.contains(':')) {
            return Err(no_address());
        }
        if !is_encrypted && !is_loopback(host) {
            return Err(format!(
                "would send the token to {host} unencrypted: write https://, or http:// with an address of this machine"
            ));
        }
        let path = path.trim_end_matches('/');
        Ok(Address::Tcp {
            is_encrypted,
            host: host.to_owned(),
            port,
            path: path.strip_suffix(API_PATH).unwrap_or(path).to_owned(),
        })
    }
}

fn is_loopback(host: &str) -> bool {
    host == "localhost"
        || host
            .parse()
            .is_ok_and(|address: IpAddr| address.is_loopback())
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp {
                is_encrypted, path, ..
            } => {
                let scheme = if *is_encrypted { "https" } else { "http" };
                write!(f, "{scheme}://{}{path}", self.authority())
            }
            Address::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl Address {
    /// Returns the host and the port, as the header `Host` has them.
    pub(super) fn authority(&self) -> String {
        match self {
            Address::Tcp { host, port, .. } if host.contains(':') => format!("[{host}]:{port}"),
            Address::Tcp { host, port, .. } => format!("{host}:{port}"),
            Address::Unix(_) => "localhost".to_owned(),
        }
    }

    /// Returns what stands before the path of a route.
    pub(super) fn path(&self) -> &str {
        match self {
            Address::Tcp { path, .. } => path,
            Address::Unix(_) => "",
        }
    }

    /// Connect.
    pub(super) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let (is_encrypted, host, port) = match self {
            Address::Unix(path) => return Ok(Box::new(UnixStream::connect(path).await?)),
            Address::Tcp {
                is_encrypted,
                host,
                port,
                ..
            } => (*is_encrypted, host, *port),
        };
        let stream = TcpStream::connect((host.as_str(), port)).await?;
        stream.set_nodelay(true)?;
        if !is_encrypted {
            return Ok(Box::new(stream));
        }
        let name = ServerName::try_from(host.clone()).map_err(io::Error::other)?;
        let connector = TlsConnector::from(Arc::new(tls_config()?));
        Ok(Box::new(connector.connect(name, stream).await?))
    }
}

/// Trust the certificates that this machine trusts.
fn tls_config() -> io::Result<ClientConfig> {
    let mut roots = RootCertStore::empty();
    // Certificates of this machine that rustls cannot read are left out. If the server's certificate needs one of them, the
    // connection fails with an error that says so.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_and_without_its_parts() {
        for (text, shown) in [
            ("http://127.0.0.1:7979", "http://127.0.0.1:7979"),
            ("http://127.0.0.1:7979/api/v1", "http://127.0.0.1:7979"),
            ("http://[::1]:1/", "http://[::1]:1"),
            ("http://localhost", "http://localhost:80"),
            ("https://a.example", "https://a.example:443"),
            (
                "https://a.example/campanile/",
                "https://a.example:443/campanile",
            ),
            ("unix:/run/a.sock", "unix:/run/a.sock"),
        ] {
            let address = text.parse::<Address>().map(|address| address.to_string());
            assert_eq!(address.as_deref(), Ok(shown), "{text}");
        }
    }

    #[test]
    fn a_wrong_address_is_refused_and_no_token_goes_unencrypted_to_another_machine() {
        for text in [
            "",
            "unix:",
            "127.0.0.1:7979",
            "ftp://a",
            "http://",
            "http://:1",
            "https://a:b",
            "https://a:70000",
            "https://::1",
            "https://u:p@a",
            "https://a/?b",
            "https://a b",
        ] {
            let error = text.parse::<Address>().unwrap_err();
            assert!(error.contains(EXAMPLES), "{text}: {error}");
        }
        let error = "http://a.example:7979".parse::<Address>().unwrap_err();
        assert!(error.contains("to a.example unencrypted"), "{error}");
    }
}
