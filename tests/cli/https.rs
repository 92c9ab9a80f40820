//! HTTPS requests of a task: trusted certificates, and both versions of HTTP.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;

use rcgen::{CertifiedKey, KeyPair, generate_simple_self_signed};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::PrivateKeyDer;
use tokio_rustls::server::TlsStream;

use crate::site::{command, package};

/// A server on this machine with a self-signed certificate.
struct Server {
    folder: TempDir,
    address: SocketAddr,
    /// The requests that the server received, one line each.
    requests: JoinHandle<Vec<String>>,
}

impl Server {
    /// Start a server that offers `protocol` and answers one connection.
    async fn start(protocol: &'static [u8]) -> Server {
        let CertifiedKey { cert, signing_key } =
            generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("ca.pem"), cert.pem()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let acceptor = acceptor(&cert, &signing_key, protocol);
        let requests = tokio::spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            match acceptor.accept(stream).await {
                Ok(stream) if protocol == b"h2" => serve_http2(stream).await,
                Ok(stream) => serve_http1(stream).await,
                // The client does not trust this server.
                Err(_) => Vec::new(),
            }
        });
        Server {
            folder,
            address,
            requests,
        }
    }

    /// Run `http-check` against the server. Return the report and the requests that the server received.
    async fn run_check(self, is_trusted: bool) -> (Value, Vec<String>) {
        let url = format!("https://localhost:{}/health", self.address.port());
        let plugin = self.folder.path().join("http-check.wasm");
        std::fs::copy(package("http-check"), &plugin).unwrap();
        let sidecar = format!(
            "[[grants.http]]\nhost = \"localhost\"\nport = {}\n",
            self.address.port()
        );
        std::fs::write(plugin.with_extension("toml"), sidecar).unwrap();
        let context = json!({ "urls": [{ "url": url, "contains": "fine" }] }).to_string();
        let trusted = self.folder.path().join("ca.pem");
        let folder = self.folder.path().to_path_buf();
        let report = tokio::task::spawn_blocking(move || {
            report(&folder, plugin, &context, is_trusted.then_some(trusted))
        });
        let report = report.await.unwrap();
        (report, self.requests.await.unwrap())
    }
}

fn report(
    folder: &std::path::Path,
    plugin: PathBuf,
    context: &str,
    trusted: Option<PathBuf>,
) -> Value {
    let sidecar = plugin.with_extension("toml").display().to_string();
    let plugin = plugin.display().to_string();
    let options = ["--sidecar", &sidecar, "--context", context, "--json"];
    let mut command = command(folder, ["task", "run", &plugin].into_iter().chain(options));
    if let Some(trusted) = trusted {
        command.env("SSL_CERT_FILE", trusted);
    }
    let output = command.output().unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

fn acceptor(cert: &rcgen::Certificate, key: &KeyPair, protocol: &[u8]) -> TlsAcceptor {
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key)
        .unwrap();
    config.alpn_protocols = vec![protocol.to_vec()];
    TlsAcceptor::from(Arc::new(config))
}

async fn serve_http2(stream: TlsStream<TcpStream>) -> Vec<String> {
    let mut connection = h2::server::handshake(stream).await.unwrap();
    let mut requests = Vec::new();
    while let Some(request) = connection.accept().await {
        let Ok((request, mut answer)) = request else {
            break;
        };
        let host = request.headers().get("host").is_some();
        requests.push(format!(
            "{} {} host={host}",
            request.method(),
            request.uri()
        ));
        let mut body = answer
            .send_response(http::Response::new(()), false)
            .unwrap();
        body.send_data("all is fine".into(), true).unwrap();
    }
    requests
}

async fn serve_http1(mut stream: TlsStream<TcpStream>) -> Vec<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 11\r\nconnection: close\r\n\r\nall is fine";
    stream.write_all(answer).await.unwrap();
    stream.shutdown().await.unwrap();
    let head = String::from_utf8(head).unwrap();
    head.lines().take(1).map(str::to_owned).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_uses_http_2_when_the_server_offers_it() {
    let server = Server::start(b"h2").await;
    let port = server.address.port();
    let (report, requests) = server.run_check(true).await;
    assert_eq!(report["outcome"], "succeeded", "{report:#}");
    assert_eq!(report["output"][0]["status"], 200, "{report:#}");
    let address = format!("GET https://localhost:{port}/health host=false");
    assert_eq!(requests, [address]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_task_uses_http_1_when_the_server_offers_only_that() {
    let server = Server::start(b"http/1.1").await;
    let (report, requests) = server.run_check(true).await;
    assert_eq!(report["outcome"], "succeeded", "{report:#}");
    assert_eq!(requests, ["GET /health HTTP/1.1"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_untrusted_certificate_fails_the_request() {
    let server = Server::start(b"h2").await;
    let (report, requests) = server.run_check(false).await;
    assert_eq!(report["outcome"], "failed", "{report:#}");
    let report_text = report.to_string();
    assert!(
        report_text.to_lowercase().contains("certificate"),
        "{report_text}"
    );
    assert!(requests.is_empty(), "{requests:?}");
}
