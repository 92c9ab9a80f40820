//! The HTTP server of a host: the API, and the pages.
//!
//! ```text
//! listen ─▶ connection (TLS, time-outs) ─▶ auth ─▶ routes (one table) ─▶ handlers ─▶ engine, store
//! ```
//!
//! `routes` has the table of all routes: the router and the OpenAPI document are made from it. `pages` has those of the pages. A handler reads the database,
//! or calls the same function of the engine as the command of the same name. No host needs the server to launch.

// Bad input ends in a problem for the client, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod alerts;
mod answer_body;
mod app;
mod auth;
mod bodies;
mod call;
mod change;
mod connection;
mod control;
mod idempotency;
mod listen;
mod openapi;
mod pages;
mod probes;
mod problem;
mod query;
mod read;
mod request;
mod router;
mod routes;
mod stream;
mod timed_io;
mod tls;
mod token;
mod tokens;

pub use app::App;
pub use connection::serve;
pub use listen::{Bound, Listen, Server, bind};
pub use openapi::document;
pub use routes::{Form, Route, routes};
pub use tls::{Tls, TlsFiles};
