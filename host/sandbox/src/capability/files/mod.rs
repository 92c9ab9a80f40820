//! `wasi:filesystem`: the granted directories.
//!
//! wasmtime-wasi does the work. The functions here stand before its own: they refuse what could block or grow without
//! a limit, share the threads, enforce quotas, count open files, record denied paths, report effects, and serve devices.

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
