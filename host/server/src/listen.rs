//! Where the server listens.

use std::fmt;
use std::fs;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;

use tokio::net::{TcpListener, UnixListener, UnixStream};

use crate::app::Access;
use crate::proxies::Proxies;
use crate::sign_in::{SignIn, SignInLink};
use crate::tls::{Tls, TlsFiles};
use crate::token;

/// What the requests of one principal may cost in a second, unless the configuration says otherwise.
pub const RATE_LIMIT: u32 = 2_000;

/// The default address.
const DEFAULT: &str = "127.0.0.1:7979";

/// Where the server listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// It does not run.
    Off,
    Tcp(SocketAddr),
    /// A Unix socket, which accepts the user of the host without a token.
    Unix(PathBuf),
}

impl Default for Listen {
    fn default() -> Listen {
        DEFAULT.parse().map_or(Listen::Off, Listen::Tcp)
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Listen::Off => f.write_str("off"),
            Listen::Tcp(address) => write!(f, "{address}"),
            Listen::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

impl FromStr for Listen {
    type Err = String;

    /// The error is a clause.
    fn from_str(text: &str) -> Result<Listen, String> {
        if text == "off" {
            return Ok(Listen::Off);
        }
        if let Some(path) = text.strip_prefix("unix:").filter(|path| !path.is_empty()) {
            return Ok(Listen::Unix(path.into()));
        }
        let address = text.parse().map(Listen::Tcp);
        address.map_err(|_| {
            format!(
                "is `{text}`, which is no address: write `{DEFAULT}`, `unix:/run/campanile.sock` or `off`"
            )
        })
    }
}

/// How the server is configured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    pub listen: Listen,
    /// The certificate and the key; without them, requests are not encrypted.
    pub tls: TlsFiles,
    /// The file of the local token.
    pub token_file: PathBuf,
    /// What the requests of one principal may cost in a second.
    pub rate_limit: u32,
    /// The proxies that may say who makes a request.
    pub proxies: Proxies,
}

impl Default for Server {
    fn default() -> Server {
        Server {
            listen: Listen::default(),
            tls: TlsFiles::default(),
            token_file: PathBuf::new(),
            rate_limit: RATE_LIMIT,
            proxies: Proxies::default(),
        }
    }
}

impl Server {
    /// Check what needs no socket: the certificate, and that an address that other machines reach is encrypted. Return the
    /// certificate with its key. Reads files.
    ///
    /// # Errors
    ///
    /// A sentence that says what to write.
    pub fn check(&self) -> Result<Option<Tls>, String> {
        let tls = self.tls.load()?;
        if !self.proxies.addresses.is_empty() && matches!(self.listen, Listen::Unix(_)) {
            return Err(format!(
                "`server.trusted_proxies` lists addresses, and `server.listen` is {}, to which no address connects: listen on {DEFAULT}, or remove the list",
                self.listen
            ));
        }
        match &self.listen {
            Listen::Tcp(address) if !address.ip().is_loopback() && tls.is_none() => Err(format!(
                "`server.listen` is {address}, which other machines reach, and requests would not be encrypted: write `certificate` and `key` under `[server.tls]`, or listen on {DEFAULT}"
            )),
            _ => Ok(tls),
        }
    }
}

/// A socket that accepts connections.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// A server that is bound to its address, and does not answer yet.
pub struct Bound {
    pub(crate) listener: Listener,
    pub(crate) tls: Option<Tls>,
    /// The address of the API, for people.
    pub url: String,
    /// Makes a link that signs a browser in; none when other machines or no browser reach the address.
    pub sign_in: Option<SignIn>,
    pub(crate) access: Access,
}

/// Bind the address of `server`, and read or write the file of the local token. None when the server is off.
///
/// # Errors
///
/// A sentence. The host can continue without its API.
pub async fn bind(server: &Server, tls: Option<Tls>) -> Result<Option<Bound>, String> {
    let (listener, url, token) = match &server.listen {
        Listen::Off => return Ok(None),
        Listen::Tcp(address) => {
            let bound = TcpListener::bind(address).await;
            let listener = bound.map_err(|error| taken(&server.listen, &error))?;
            let address = listener.local_addr().map_err(|error| error.to_string())?;
            let token = token::read_or_create(&server.token_file)?;
            let scheme = if tls.is_some() { "https" } else { "http" };
            let url = format!("{scheme}://{address}/api/v1");
            (Listener::Tcp(listener), url, Some(token))
        }
        Listen::Unix(path) => {
            let listener = bind_unix(path).await;
            let listener = listener.map_err(|error| taken(&server.listen, &error))?;
            let url = format!("{} /api/v1", server.listen);
            (Listener::Unix(listener), url, None)
        }
    };
    let sign_in = Arc::<SignInLink>::default();
    let access = Access {
        token,
        token_file: server
            .token_file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned(),
        sign_in: Arc::clone(&sign_in),
        is_encrypted: tls.is_some(),
        rate_limit: server.rate_limit,
        proxies: server.proxies.clone(),
    };
    let is_own = match &listener {
        Listener::Tcp(listener) => listener
            .local_addr()
            .is_ok_and(|address| address.ip().is_loopback()),
        Listener::Unix(_) => false,
    };
    Ok(Some(Bound {
        sign_in: is_own.then(|| SignIn::new(url.trim_end_matches("/api/v1"), sign_in)),
        listener,
        tls,
        url,
        access,
    }))
}

fn taken(listen: &Listen, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => format!(
            "the API is off: another process listens on {listen}; write another address as `listen` under `[server]`"
        ),
        io::ErrorKind::AlreadyExists => format!(
            "the API is off: {listen} names a file that is no socket; write another path as `listen` under `[server]`"
        ),
        _ => format!("the API is off: {listen} cannot be listened on: {error}"),
    }
}

/// Bind a Unix socket that only the user of this process can open. A socket that no process listens on is replaced.
async fn bind_unix(path: &Path) -> io::Result<UnixListener> {
    if let Ok(found) = fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        fs::remove_file(path)?;
    }
    // Between the two calls another user may connect. The user of each client is checked, so the mode is a second wall.
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_as_it_is_written() {
        for text in ["off", "127.0.0.1:0", "[::1]:7979", "unix:/run/a.sock"] {
            assert_eq!(
                text.parse::<Listen>().map(|it| it.to_string()),
                Ok(text.to_owned())
            );
        }
        for text in ["", "7979", "unix:", "localhost", "127.0.0.1:70000"] {
            let error = text.parse::<Listen>().unwrap_err();
            assert!(error.contains(DEFAULT), "{error}");
        }
    }

    #[test]
    fn an_address_that_other_machines_reach_needs_tls() {
        let server = |listen: &str| Server {
            listen: listen.parse().unwrap(),
            ..Server::default()
        };
        let error = server("0.0.0.0:7979").check().map(drop).unwrap_err();
        assert!(error.contains("`[server.tls]`"), "{error}");
        let behind_proxy = Server {
            proxies: Proxies {
                addresses: vec!["127.0.0.1".parse().unwrap()],
                ..Proxies::default()
            },
            ..server("unix:/x")
        };
        let error = behind_proxy.check().map(drop).unwrap_err();
        assert!(error.contains("trusted_proxies"), "{error}");
        for listen in ["127.0.0.1:7979", "[::1]:1", "off", "unix:/x"] {
            assert!(server(listen).check().is_ok(), "{listen}");
        }
    }
}
