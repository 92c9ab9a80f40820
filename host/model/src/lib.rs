//! The vocabulary that all of Campanile's crates share: ids, time, and the closed sets of words of the record.
//!
//! This crate does no I/O and knows no database and no WebAssembly. With its feature `sqlx`, which only
//! `campanile-store` turns on, it says how its types are stored.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod clock;
#[cfg(feature = "sqlx")]
mod columns;
pub mod ids;
pub mod rule_text;
pub mod status;
pub mod text;
pub mod words;
