//! `wasi:filesystem`: the granted directories.
//!
//! wasmtime-wasi does the work. The functions here stand before its own: they refuse what could block or grow without
//! a limit, count open files, record denied paths, and report effects.

pub(crate) mod denied_paths;
pub(crate) mod directories;
pub(crate) mod host;
pub(crate) mod state;
mod streams;
