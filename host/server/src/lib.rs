//! The HTTP server of a host: the API, and the pages.
//!
//! ```text
//! listen ─▶ connection (TLS, time-outs) ─▶ auth ─▶ routes (one table) ─▶ handlers ─▶ engine, store
//! ```
//!
//! `routes` has the table of all routes: the router and the OpenAPI document are made from it. `pages` has those of the pages. A handler reads the database,
//! or runs the same order or question of `campanile-control` as the command of the same name. No host needs the server to launch.

// Bad input ends in a problem for the client, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod all_routes;
mod answer_body;
mod app;
mod auth;
mod backfills;
mod call;
mod change;
mod connection;
mod dispatch;
mod idempotency;
mod kept_answers;
mod listen;
mod log_span;
pub mod mcp;
mod news;
mod openapi;
mod pages;
mod peer;
mod probes;
mod problem;
mod proxies;
mod query;
mod rate;
mod read;
mod record_audit;
mod refusal_events;
mod refusals;
mod request;
mod router;
mod routes;
pub mod scope;
mod shares;
mod sign_in;
mod stream;
mod timed_io;
mod tls;
mod token;
mod upload;

pub use all_routes::routes;
pub use app::{App, Uploads};
pub use connection::serve;
pub use listen::{Bound, Listen, RATE_LIMIT, Server, bind};
pub use openapi::document;
pub use proxies::{Network, Proxies, ProxyRoles, check_header_name};
pub use request::BODY_BYTES_MAX;
pub use routes::{Form, Route};
pub use sign_in::SignIn;
pub use tls::{Tls, TlsFiles};
