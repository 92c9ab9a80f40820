//! `wasi:keyvalue`: the granted buckets.

pub(crate) mod buckets;
pub(crate) mod host;
pub(crate) mod memory;
