//! The workflow of one launch, as pure functions.
//!
//! [`graph`] holds the tasks and their dependencies. [`workflow`] says which tasks can be called, [`inheritance`] and
//! [`context`] build the context JSON of a call, and [`outcome`] decides whether a call that ended is retried. This crate does no I/O and knows no database.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod context;
pub mod graph;
pub mod inheritance;
pub mod outcome;
pub mod workflow;
