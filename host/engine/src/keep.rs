//! Looking after the record: sealing and retention.

pub(crate) mod retention;
pub(crate) mod seal;
