//! How the sandbox is set up, once per process.

use std::path::PathBuf;

/// The setup of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSettings {
    /// How many calls may run at the same time, at least 1. It sizes the pool of instances.
    pub calls_max: u32,
    /// Threads that run guests, at least 1, apart from those of the scheduler and the database.
    pub guest_threads: usize,
    /// Where compiled code is kept between starts, made private (0700). None keeps nothing.
    pub cache_dir: Option<PathBuf>,
    /// The greatest memory limit that a call may have. It sizes the pool's memories.
    pub memory_bytes_max: u64,
    /// The size of a guest's stack. Deeper recursion is a trap.
    pub stack_bytes_max: usize,
}

/// The engine could not be set up on this machine.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine could not start: {0}")]
pub struct SandboxError(pub(crate) String);
