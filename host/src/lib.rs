//! Campanile, a bell tower for WebAssembly tasks.

pub mod cli;
pub mod clock;
pub mod config;
pub mod db;
pub mod engine;
pub mod ids;
pub mod package;
pub mod schedule;
pub mod telemetry;
pub mod strict;
pub mod wasm;
pub mod watch;
pub mod words;
