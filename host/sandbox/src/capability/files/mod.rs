//! `wasi:filesystem`: the granted directories.
//!
//! wasmtime-wasi does the work. The functions here stand before its own: they refuse what could block or grow without
//! a limit, enforce quotas, count open files, record denied paths, and report effects.

pub(crate) mod denied_paths;
pub(crate) mod directories;
mod directory_usage;
pub(crate) mod host;
mod links;
mod measure;
pub(crate) mod quota;
mod quota_stream;
pub(crate) mod state;
mod streams;
