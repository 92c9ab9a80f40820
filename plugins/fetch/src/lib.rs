//! A GET request from inside the sandbox, over `wasi:http`.
//!
//! It follows no redirects, keeps no cookies and sends no body: what a probe needs and no more.

mod address;
#[cfg(target_family = "wasm")]
mod wasi;

use std::error::Error;
use std::fmt;

pub use address::Address;
#[cfg(target_family = "wasm")]
pub use wasi::get;

/// What a server answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The HTTP status, 100 to 599.
    pub status: u16,
    /// The body, or its beginning.
    pub body: Vec<u8>,
    /// Whether the body was longer than asked for.
    pub truncated: bool,
}

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The URL cannot be requested by anybody.
    BadUrl(String),
    /// The operator has not granted this request.
    Denied(String),
    /// The time was over before the answer was complete.
    TimedOut(String),
    /// The name did not resolve, the connection broke, the certificate was wrong, ...
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
