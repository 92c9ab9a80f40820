//! What an operator grants to a package. The default is nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

use campanile_model::words;

/// The prefix of the variables that the host itself sets for programs. They cannot be granted.
pub const ENV_PREFIX: &str = "CAMPANILE_";

words! {
    /// Whether a task may change what it is granted.
    AccessMode {
        Read => "read",
        Write => "write",
    }
}

impl AccessMode {
    /// Returns the access to what is `writable`.
    pub fn of(writable: bool) -> AccessMode {
        if writable {
            AccessMode::Write
        } else {
            AccessMode::Read
        }
    }
}

/// A directory of the host that a task may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryGrant {
    /// An existing directory of the host: absolute and without links. A link on the way is not followed.
    pub host: PathBuf,
    /// The path under which the task sees it, such as `/source`.
    pub guest: String,
    pub writable: bool,
    /// Only for a writable directory.
    pub quota: DirectoryQuota,
}

/// How much a directory may hold. A task may not make it grow beyond that.
///
/// Everything below the directory counts, also what other programs wrote. A file counts its size in whole blocks of
/// [`QUOTA_BLOCK_BYTES`], and every entry at least one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectoryQuota {
    pub max_bytes: Option<u64>,
    /// Files, directories and links.
    pub max_files: Option<u64>,
}

/// What the smallest entry of a directory counts for its quota.
pub const QUOTA_BLOCK_BYTES: u64 = 4 << 10;

/// The most entries that a directory with a quota may have: more take too long to count.
pub const QUOTA_FILES_MOST: u64 = 1_000_000;

impl DirectoryQuota {
    /// Whether there is any limit.
    pub fn is_set(&self) -> bool {
        self.max_bytes.is_some() || self.max_files.is_some()
    }
}

/// A set of HTTP requests that a task may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// `http` or `https`.
    pub scheme: String,
    /// An exact host name or address, or `*.example.com` for every name below a domain, or `*` for every public host.
    pub host: String,
    /// None is the scheme's default port.
    pub port: Option<u16>,
    /// Compared with their case, as in RFC 9110; empty means every method.
    pub methods: Vec<String>,
    /// Whether a name may also lead to loopback, private and other addresses that are not public.
    pub private: bool,
    /// The name of the secret that signs messages of the outbox to this host.
    pub signing_secret: Option<String>,
}

words! {
    /// The transport protocol of a socket.
    Protocol {
        Tcp => "tcp",
        Udp => "udp",
    }
}

/// A host and port to which a task may connect a socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketGrant {
    pub protocol: Protocol,
    /// An exact host name or address, or `*.example.com` for every name below a domain, or `*` for every public host.
    pub host: String,
    pub port: u16,
    /// Whether a name may also lead to loopback, private and other addresses that are not public.
    pub private: bool,
}

words! {
    /// A device served to tasks below `/dev`.
    Device {
        /// Swallows everything written, and is empty when read.
        Null => "null",
        /// Random bytes, as from `wasi:random`.
        Random => "random",
        /// The same as `random`.
        Urandom => "urandom",
        /// Endless zeros.
        Zero => "zero",
    }
}

/// A bucket of `wasi:keyvalue` that a task may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketGrant {
    /// The name by which the task opens it.
    pub bucket: String,
    /// The name under which it is stored. Packages that are granted the same namespace share it.
    pub namespace: String,
    pub writable: bool,
}

/// Where grants are written, for advice about what is not granted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum GrantSource {
    /// The sidecar file of a package.
    #[default]
    Sidecar,
    /// An address in the host's configuration.
    Configuration,
}

/// Everything that a task may reach beyond computing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub directories: Vec<DirectoryGrant>,
    /// Without duplicates.
    pub devices: Vec<Device>,
    pub env: BTreeMap<String, String>,
    pub http: Vec<HttpGrant>,
    pub sockets: Vec<SocketGrant>,
    /// The answers of `wasi:config/store`.
    pub config: BTreeMap<String, String>,
    pub keyvalue: Vec<BucketGrant>,
    /// Names of secrets that `wasi:config/store` returns when the task asks for them by name.
    pub secrets: BTreeSet<String>,
    /// Variables whose values are secrets: the variable, and the secret's name.
    pub secret_env: BTreeMap<String, String>,
    pub source: GrantSource,
}

impl Grants {
    /// Returns what both grant, with the values of `self`.
    pub fn shared_with(&self, others: &Grants) -> Grants {
        // Named one by one, so that a new kind of grant cannot be forgotten here.
        let Grants {
            directories,
            devices,
            env,
            http,
            sockets,
            config,
            keyvalue,
            secrets,
            secret_env,
            source: _,
        } = others;
        let mut shared = self.clone();
        shared.directories.retain(|one| directories.contains(one));
        shared.devices.retain(|one| devices.contains(one));
        shared.env.retain(|name, _| env.contains_key(name));
        shared.http.retain(|one| http.contains(one));
        shared.sockets.retain(|one| sockets.contains(one));
        shared.config.retain(|key, _| config.contains_key(key));
        shared.keyvalue.retain(|one| keyvalue.contains(one));
        shared.secrets.retain(|name| secrets.contains(name));
        shared
            .secret_env
            .retain(|name, secret| secret_env.get(name) == Some(secret));
        shared
    }

    /// Returns the granted values other than secrets.
    pub fn plain_values(&self) -> impl Iterator<Item = &str> {
        let values = self.env.values().chain(self.config.values());
        values.map(String::as_str)
    }

    /// Whether a grant sets this environment variable.
    pub fn sets_variable(&self, name: &str) -> bool {
        self.env.contains_key(name) || self.secret_env.contains_key(name)
    }

    /// Returns the names of all granted secrets.
    pub fn secret_names(&self) -> BTreeSet<&str> {
        let named = self.secrets.iter().chain(self.secret_env.values());
        named.map(String::as_str).collect()
    }
}

/// A value that `Debug` does not show.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// The values of secrets, by name.
pub type Secrets = BTreeMap<String, Secret>;

impl Secret {
    pub fn new(value: impl Into<String>) -> Secret {
        Secret(value.into())
    }

    /// Returns the value, for the guest that it was granted to.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

#[cfg(test)]
impl HttpGrant {
    /// `GET` at `http://host:port`.
    pub(crate) fn get(host: &str, port: u16) -> HttpGrant {
        HttpGrant {
            scheme: "http".to_owned(),
            host: host.to_owned(),
            port: Some(port),
            methods: vec!["GET".to_owned()],
            private: false,
            signing_secret: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_shown_by_accident() {
        assert_eq!(format!("{:?}", Secret::new("hunter2")), "Secret(…)");
    }
}
