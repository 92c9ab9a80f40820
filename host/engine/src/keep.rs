//! Looking after the record: sealing and retention.

pub(crate) mod retention;
mod rollup;
pub(crate) mod seal;
