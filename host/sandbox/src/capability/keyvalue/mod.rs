//! `wasi:keyvalue` and the session of a call: the granted buckets.

pub(crate) mod buckets;
pub(crate) mod host;
pub(crate) mod memory;
pub(crate) mod session;
