//! What a host allows, against which sidecars are checked, and the files that it relies on.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fmt;
use std::path::PathBuf;

use super::quota::Groups;
use crate::version_policy::VersionPolicy;
use campanile_model::words;
use campanile_sandbox::Limits;
use campanile_sandbox::own_files::PathTrace;

/// The parts of a host's configuration and environment that packages and sidecars depend on.
#[derive(Clone)]
pub struct HostRules {
    /// The host's limits, which sidecars change.
    pub limits: Limits,
    /// The largest memory limit that a sidecar may set.
    pub memory_bytes_most: u64,
    /// Looks up a variable of the host's environment, which sidecars grant by name.
    pub env: fn(&str) -> Option<OsString>,
    /// The files and directories that the host uses, which no grant may make writable.
    pub own_paths: Vec<OwnPath>,
    /// The names of the host's secrets.
    pub secrets: BTreeSet<String>,
    /// Environment variables of the host containing secrets, each with its secret's name.
    pub secret_variables: BTreeMap<String, String>,
    /// What to do with packages and sidecars that other users of the machine can write.
    pub foreign_writers: ForeignWriters,
    /// The concurrency groups that schedules may name.
    pub groups: Groups,
    /// Which versions of packages may run.
    pub policy: VersionPolicy,
}

words! {
    /// What to do with a file of the host that other users of the machine can write.
    #[derive(Default)]
    ForeignWriters {
        /// Do not use it.
        #[default]
        Refuse => "refuse",
        /// Use it, and log a warning.
        Warn => "warn",
    }
}

words! {
    /// What a path of the host is for.
    OwnPathKind {
        Plugins => "plugins folder",
        Configuration => "configuration",
        Schedules => "schedules file",
        Database => "database",
        Cache => "directory of compiled code",
        State => "record of the host",
        Certificate => "certificate",
        SecretFile => "secret file",
        SecretCommand => "secret command",
    }
}

impl OwnPathKind {
    /// Whether a directory with such a path may be granted for reading.
    pub(crate) fn may_be_read(self) -> bool {
        !matches!(self, OwnPathKind::SecretFile | OwnPathKind::State)
    }
}

/// A path that the host uses. What changes its content changes what the host does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnPath {
    pub kind: OwnPathKind,
    /// As configured. Nothing need be there: a file that a task creates there would be used.
    pub path: PathBuf,
}

/// Such as `the database /var/lib/campanile/campanile.db`.
impl fmt::Display for OwnPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} {}", self.kind, self.path.display())
    }
}

impl OwnPath {
    /// Returns a sentence without an end when others than the user of this process can write the path, or replace it.
    /// Blocks.
    pub fn foreign_writer(&self) -> Option<String> {
        let found = PathTrace::of(&self.path).foreign_writer()?;
        Some(format!(
            "other users of this machine can change {self}: {found}"
        ))
    }
}
