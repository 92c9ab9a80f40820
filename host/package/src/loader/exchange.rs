//! The data that the host and the child process exchange.

use std::path::PathBuf;
use std::time::Duration;

use campanile_sandbox::{ComponentLimits, Form};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What one load may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoadLimits {
    /// Memory of the process that can be written, its stacks included.
    pub memory_bytes: u64,
    /// A load ends after this time on the clock, when its process had as much processor time.
    /// It ends at twice as much processor time in any case.
    pub time: Duration,
}

impl LoadLimits {
    pub(super) fn cpu_seconds(&self) -> u64 {
        self.time.as_secs().max(1) * 2
    }
}

/// The settings that the host passes to the child process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ChildSettings {
    pub(super) package: String,
    pub(super) cache_dir: PathBuf,
    pub(super) memory_bytes_max: u64,
    pub(super) stack_bytes_max: usize,
    pub(super) component_limits: ComponentLimits,
    pub(super) loaded_bytes_max: u64,
    pub(super) limits: LoadLimits,
}

/// The result of loading a file. The error is one sentence saying why it can't run as a package.
pub(super) type Verdict = Result<Accepted, String>;

/// What's known about a file fit to run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Accepted {
    pub(super) form: Form,
    /// Host memory for its compiled code, in bytes.
    pub(super) code_bytes: u64,
    /// The package's description of itself, if it has one.
    pub(super) description: Option<Value>,
}

/// Whether a message, of a refusal or on stderr, says that the process had no more memory.
pub(super) fn is_out_of_memory(message: &str) -> bool {
    [
        "memory allocation of",
        "Cannot allocate memory",
        "os error 12",
    ]
    .iter()
    .any(|sign| message.contains(sign))
}
