//! `wasi:filesystem`: the granted directories.
//!
//! wasmtime-wasi does the work. The functions here wrap its own, refusing what could block or grow without limit, sharing threads,
//! enforcing quotas, counting open files, recording denied paths, reporting effects and serving devices.

mod changes;
pub(crate) mod denied_paths;
pub(crate) mod devices;
pub(crate) mod directories;
mod directory_usage;
pub(crate) mod host;
mod link_changes;
mod links;
mod listing;
mod measure;
pub(crate) mod quota;
mod quota_stream;
mod slashes;
pub(crate) mod state;
mod streams;
mod threads;
