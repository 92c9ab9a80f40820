//! The vocabulary of all crates of Campanile.
//!
//! * [`access`]: roles, and who makes a change.
//! * [`approval_key`]: the key that seals approvals, and the tokens of approvers.
//! * [`clock`]: the type for an instant, and the only place that reads the clock.
//! * [`ids`]: ids of schedules, launches, runs, backfills and hosts, and the digest of a package.
//! * [`life`]: what can happen to a launch in which status.
//! * [`labels`]: the labels of hosts, and those that launches need.
//! * [`mod@words`]: enums whose values are words in the database, in JSON and on the command line.
//! * [`status`]: the words of the record, such as the status of a launch.
//! * [`rollup`]: the periods and the histograms of the rollup of launches.
//! * [`rule_text`]: a rule of time as its author wrote it.
//! * [`namespace`]: the namespaces of packages, schedules and tokens.
//! * [`text`]: durations, sizes and text from guests, read and printed.
//! * [`time_text`]: times as people type them.
//! * [`trace_context`]: the trace of a launch, and the spans of its parts.
//!
//! This crate does no I/O except for reading the clock. It decides nothing, and names no database and no
//! WebAssembly. Its feature `sqlx` defines how its types are stored; only `campanile-store` turns it on.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod access;
pub mod approval_key;
pub mod as_text;
pub mod clock;
#[cfg(feature = "sqlx")]
mod columns;
pub mod ids;
pub mod json;
pub mod json_depth;
pub mod json_text;
pub mod labels;
pub mod life;
pub mod namespace;
pub mod rollup;
pub mod rule_text;
pub mod status;
pub mod text;
pub mod time_text;
pub mod trace_context;
pub mod words;
