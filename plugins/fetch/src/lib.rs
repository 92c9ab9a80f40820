//! GET requests in the sandbox, with `wasi:http`.
//!
//! A request follows no redirects, stores no cookies and sends no body.

mod address;
#[cfg(target_family = "wasm")]
mod wasi;

use std::error::Error;
use std::fmt;

pub use address::Address;
#[cfg(target_family = "wasm")]
pub use wasi::get;

/// A response of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// The body, or its first bytes if it is truncated.
    pub body: Vec<u8>,
    /// Whether the body was longer than the limit.
    pub truncated: bool,
}

/// The reason why a request has no response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The URL is invalid.
    BadUrl(String),
    /// The operator has not granted this request.
    Denied(String),
    /// The response was not complete at the deadline.
    TimedOut(String),
    /// Any other failure, such as a name that does not resolve or a wrong certificate.
    Failed(String),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::BadUrl(message)
            | Failure::Denied(message)
            | Failure::TimedOut(message)
            | Failure::Failed(message) => f.write_str(message),
        }
    }
}

impl Error for Failure {}
