//! `wasi:http`: each request is checked against the grants, and its response is limited in size and time.

pub(crate) mod connect;
pub(crate) mod destination;
pub(crate) mod exchange;
pub(crate) mod gate;
mod length;
pub(crate) mod request_texts;
pub(crate) mod response;
pub(crate) mod scripted;
