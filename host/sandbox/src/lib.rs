//! The sandbox: one call of one task in a fresh instance, with the grants and limits of that call.
//!
//! The only crate that names wasmtime. It has no code about schedules, launches or databases.
//!
//! The files, from the bottom to the top; none names one that stands above it:
//!
//! 1. Vocabulary: [`outcome`](Outcome), [`limits`](Limits), [`grants`](Grants), `world`, `effects`,
//!    [`template`](Template), [`program_input`](ProgramInput); [`own_files`] and [`mounts`], about the host's own files;
//!    and `ledger/`: budgets shared by the calls of all packages.
//! 2. `capability/`: what a guest can import, one file or folder each, with its state, limits and host functions.
//! 3. `state` composes the state of one call, `linker` the functions, `engine` compiles and runs, and `code_cache` is
//!    where compiled code is kept.
//! 4. `load/`: from the bytes of a file to an [`Artifact`].
//! 5. `run/`: one [`Call`], from a fresh store to its [`Report`].
//! 6. `sandbox`: the façade, [`Sandbox`].

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod bindings;
mod capability;
mod code_cache;
mod effects;
mod engine;
mod grants;
mod ledger;
mod limits;
mod linker;
mod load;
mod memory;
pub mod mounts;
mod outcome;
pub mod own_files;
mod program_input;
mod run;
mod sandbox;
mod state;
mod stop_signal;
mod template;
mod uncommitted;
mod world;

pub use campanile_model::json_text::{JsonObject, JsonText, object_bytes, object_of, object_text};
pub use capability::http::destination::method_fault;
pub use capability::keyvalue::buckets::{
    BucketError, BucketResult, Buckets, Change, add, check_growth, entry_bytes,
};
pub use capability::keyvalue::memory::MemoryBuckets;
pub use capability::keyvalue::session::{BucketSession, Sessions};
pub use capability::network::reach::{has_private_addresses, private_address};
pub use capability::outbox::deliver::{Delivered, DeliveryCall, deliver, delivery_secrets};
pub use capability::outbox::mail::{Mail, MailLogin, check_mailbox, deliver_mail};
pub use capability::outbox::message::OutboxMessage;
pub use capability::outbox::target::{grants_to, grants_to_mail_server};
pub use capability::shared::Call;
pub use code_cache::CodeCache;
pub use effects::{Crash, EffectObserver};
pub use engine::{ComponentLimits, SandboxError, SandboxSettings, sparse_image_bytes_max};
pub use grants::{
    AccessMode, BucketGrant, Device, DirectoryGrant, DirectoryQuota, ENV_PREFIX, GrantSource,
    Grants, HttpGrant, Protocol, QUOTA_BLOCK_BYTES, QUOTA_FILES_MOST, Secret, Secrets, SocketGrant,
};
pub use ledger::kept::{KEPT_FREE_BYTES, Kept, KeptShare};
pub use ledger::{memory_of_machine, raise_descriptor_limit};
pub use limits::{
    DirectoryShare, LIMITS, LimitSpec, Limits, MEMORY_BYTES_LEAST, Resource, Share, Unit, Usage,
};
pub use load::loaded::Artifact;
pub use load::loaded::HeldCode;
pub use load::recognise::{Form, imports_of};
pub use load::refusal::Refusal;
pub use outcome::{Failure, LogLine, Outcome, Report};
pub use program_input::{
    ARGUMENT_BYTES_MAX, ProgramInput, STDIN_BYTES_MAX, Stdin, check_stdin_file,
};
pub use run::redaction::Redaction;
pub use sandbox::Sandbox;
pub use stop_signal::StopSignal;
pub use template::{ContextKey, ContextValues, Template};
pub use uncommitted::Uncommitted;
pub use wasmtime_wasi::async_trait;
pub use world::{HttpReply, HttpRequest, Replies, RunFacts, Time, World};

/// The version of wasmtime that is built in. A test compares it with `Cargo.lock`.
pub const WASMTIME_VERSION: &str = "48.0.8";

#[cfg(test)]
mod tests;
