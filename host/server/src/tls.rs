//! The certificate of the server and its key.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The paths of the certificate and its key, both in PEM.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the certificates of its issuers.
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
}

/// A certificate with its key.
#[derive(Clone)]
pub struct Tls(pub(crate) TlsAcceptor);

impl TlsFiles {
    /// Read both files. None when neither is configured.
    ///
    /// # Errors
    ///
    /// A sentence: one of them is missing or cannot be read, or they do not belong together.
    pub(crate) fn load(&self) -> Result<Option<Tls>, String> {
        let (certificate, key) = match (&self.certificate, &self.key) {
            (None, None) => return Ok(None),
            (Some(certificate), Some(key)) => (certificate, key),
            (Some(_), None) => {
                return Err(
                    "`[server.tls]` has a `certificate` and no `key`: write both".to_owned(),
                );
            }
            (None, Some(_)) => {
                return Err(
                    "`[server.tls]` has a `key` and no `certificate`: write both".to_owned(),
                );
            }
        };
        let unreadable = |path: &Path, error: &dyn std::fmt::Display| {
            format!("`[server.tls]`: {} cannot be read: {error}", path.display())
        };
        let mode = std::fs::metadata(key)
            .map_err(|error| unreadable(key, &error))?
            .mode();
        if mode & 0o007 != 0 {
            return Err(format!(
                "`[server.tls]`: every user of this machine can read or write the key {}: run `chmod o= {0}`",
                key.display()
            ));
        }
        let read = CertificateDer::pem_file_iter(certificate)
            .and_then(|all| all.collect::<Result<Vec<_>, _>>());
        let chain = read.map_err(|error| unreadable(certificate, &error))?;
        let secret = PrivateKeyDer::from_pem_file(key).map_err(|error| unreadable(key, &error))?;
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map(|builder| builder.with_no_client_auth())
            .and_then(|builder| builder.with_single_cert(chain, secret));
        let mut config = config.map_err(|error| {
            format!(
                "`[server.tls]`: the certificate {} and the key {} cannot be used together: {error}",
                certificate.display(),
                key.display()
            )
        })?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Some(Tls(TlsAcceptor::from(Arc::new(config)))))
    }
}
