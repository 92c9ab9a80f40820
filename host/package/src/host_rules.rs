//! What a host allows, against which sidecars are checked.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::PathBuf;

use campanile_sandbox::Limits;

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
    pub own_paths: Vec<PathBuf>,
    /// The names of the host's secrets.
    pub secrets: BTreeSet<String>,
}
