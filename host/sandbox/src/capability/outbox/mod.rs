//! `campanile:task/outbox`: messages that the host delivers after the call has succeeded.

pub(crate) mod check;
pub(crate) mod deliver;
pub(crate) mod host;
pub(crate) mod mail;
pub(crate) mod message;
pub(crate) mod placeholders;
pub(crate) mod target;
