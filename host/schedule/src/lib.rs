//! The rules of time ([`rule`]) and the policies ([`policy`]) of schedules, as pure functions.
//!
//! This crate names `campanile-model` alone. It does no I/O, does not read the clock and stores nothing.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod policy;
pub mod rule;
