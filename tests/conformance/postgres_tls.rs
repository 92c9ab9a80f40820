//! The password goes only to a Postgres server that proves its name, unless the address says otherwise.

use std::path::Path;
use std::sync::{Arc, Mutex};

use campanile_store::{Db, DbError};
use rcgen::{CertifiedKey, generate_simple_self_signed};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;

/// This machine, under an address that is not a loopback address.
const HOST: &str = "0.0.0.0";

const PASSWORD: &str = "hunter2";

/// The first message of a client that asks for TLS: its length, and this number.
const SSL_REQUEST: u32 = 80_877_103;

/// `AuthenticationCleartextPassword`: the server asks for the password as it is.
const ASK_PASSWORD: [u8; 9] = [b'R', 0, 0, 0, 8, 0, 0, 0, 3];

/// Somebody who answers at the address of a Postgres server, and asks for the password.
struct FakeServer {
    port: u16,
    heard: Arc<Mutex<Vec<u8>>>,
}

impl FakeServer {
    /// Start a server that offers TLS if it has `tls`.
    async fn start(tls: Option<TlsAcceptor>) -> FakeServer {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let heard = Arc::default();
        let hears = Arc::clone(&heard);
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                // A client that hangs up is what the tests are about.
                let _ = answer(stream, tls.as_ref(), &hears).await;
            }
        });
        FakeServer { port, heard }
    }

    /// Open a database at `host` with these options. Return the error, and whether the server got the password.
    async fn open(&self, host: &str, options: &str) -> (DbError, bool) {
        self.heard.lock().unwrap().clear();
        let port = self.port;
        let url = format!("postgres://app:{PASSWORD}@{host}:{port}/jobs{options}");
        let Err(error) = Db::open(&url.parse().unwrap()).await else {
            panic!("a server that is none was opened");
        };
        let heard = self.heard.lock().unwrap();
        let mut windows = heard.windows(PASSWORD.len());
        (error, windows.any(|bytes| bytes == PASSWORD.as_bytes()))
    }
}

async fn answer(
    mut stream: TcpStream,
    tls: Option<&TlsAcceptor>,
    heard: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let mut code = [0; 8];
    stream.peek(&mut code).await?;
    if u32::from_be_bytes([code[4], code[5], code[6], code[7]]) == SSL_REQUEST {
        stream.read_exact(&mut code).await?;
        if let Some(tls) = tls {
            stream.write_all(b"S").await?;
            return listen(tls.accept(stream).await?, heard).await;
        }
        stream.write_all(b"N").await?;
    }
    listen(stream, heard).await
}

/// Ask for the password, and remember everything that the client sends.
async fn listen(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    heard: &Mutex<Vec<u8>>,
) -> std::io::Result<()> {
    let startup_bytes = stream.read_u32().await?;
    let mut startup = vec![0; startup_bytes as usize - 4];
    stream.read_exact(&mut startup).await?;
    stream.write_all(&ASK_PASSWORD).await?;
    stream.flush().await?;
    let mut answer = [0; 64];
    let count = stream.read(&mut answer).await?;
    heard.lock().unwrap().extend(&answer[..count]);
    Ok(())
}

/// Return TLS with a self-signed certificate for [`HOST`], which is written to `folder` as `ca.pem`.
fn self_signed(folder: &Path) -> TlsAcceptor {
    let CertifiedKey { cert, signing_key } =
        generate_simple_self_signed([HOST.to_owned()]).unwrap();
    std::fs::write(folder.join("ca.pem"), cert.pem()).unwrap();
    let key = PrivateKeyDer::try_from(signing_key.serialize_der()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn a_server_without_tls_gets_no_password() {
    let server = FakeServer::start(None).await;
    let (error, got_password) = server.open(HOST, "").await;
    assert!(!got_password);
    assert!(matches!(error, DbError::Refused(_)), "{error:?}");
    let expected = format!(
        "postgres://app:***@{HOST}:{}/jobs: no checked connection (server does not support TLS), and so no password was sent: \
         let the server offer TLS, or write `sslmode=disable` in the address if every machine on the way is trusted",
        server.port
    );
    assert_eq!(error.to_string(), expected);
    // What the operator writes counts, and the network of this machine is trusted.
    assert!(server.open(HOST, "?sslmode=disable").await.1);
    assert!(server.open(HOST, "?sslmode=prefer").await.1);
    assert!(server.open("127.0.0.1", "").await.1);
    assert!(!server.open("127.0.0.1", "?sslmode=require").await.1);
}

#[tokio::test]
async fn a_server_with_an_unknown_certificate_gets_no_password() {
    let folder = tempfile::tempdir().unwrap();
    let server = FakeServer::start(Some(self_signed(folder.path()))).await;
    let (error, got_password) = server.open(HOST, "").await;
    assert!(!got_password);
    assert!(matches!(error, DbError::Refused(_)), "{error:?}");
    for part in [
        "the server did not prove that it is the right one (invalid peer certificate: ",
        "and so no password was sent: write `sslrootcert=FILE` in the address",
        "or `sslmode=require` to encrypt without checking the server",
    ] {
        assert!(error.to_string().contains(part), "{error}");
    }
    assert!(server.open(HOST, "?sslmode=require").await.1);
    let authority = folder.path().join("ca.pem");
    let trusted = format!("?sslrootcert={}", authority.display());
    let (error, got_password) = server.open(HOST, &trusted).await;
    assert!(got_password, "{error}");
}
