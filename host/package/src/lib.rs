//! Task packages: the `.wasm` files of one folder, each with its author's manifest and its operator's sidecar.
//!
//! A scan ([`PluginsFolder::scan`]) finds changes and activates nothing. The engine records each change and then
//! applies it with [`Packages::apply`]. A run holds the `Arc` of its package, and so ends on the code it began with.
//! This crate uses no database and knows no launches.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod assemble;
pub mod context;
#[cfg(test)]
mod fake_loader;
pub mod files;
mod folder;
pub mod grant_record;
pub mod grants;
mod host_rules;
pub mod limits;
mod loader;
pub mod manifest;
pub mod names;
mod open_folder;
mod own_record;
mod package;
pub mod program;
pub mod quota;
pub mod reference;
pub mod requests;
pub mod schedule_reader;
pub mod schedules_file;
pub mod sidecar;
pub mod signature;
pub mod spec;
pub mod toml_reader;
mod upload;
pub mod version_policy;

pub use assemble::{FILE_BYTES_MAX, OpenError, open};
pub use folder::{PluginsFolder, SETTLE, Scan};
pub use grant_record::GrantRecord;
pub use host_rules::{ForeignWriters, HostRules, OwnPath, OwnPathKind};
pub use loader::{
    Attempt, LoadError, LoadLimits, LoadObserver, Loaded, Loader, Pace, PackageLoader, load,
    load_in_this_process,
};
#[cfg(target_os = "linux")]
pub use loader::{Confinement, confinement};
pub use manifest::{MAX_ATTEMPTS_DEFAULT, Manifest, Task};
pub use names::{name_of, package_name_fault};
pub use open_folder::foreign_files;
pub use own_record::{CountedDecision, FoundDecision, OwnRecord};
pub use package::{Change, Package, Packages};
pub use quota::Quota;
pub use sidecar::{Sidecar, Vouched};
pub use spec::ScheduleDefinition;
pub use upload::{CheckedUpload, UploadError, UploadFolder};
pub use version_policy::{Approval, VersionPolicy};
