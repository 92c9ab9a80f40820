//! Campanile, a bell tower for WebAssembly tasks.

pub mod clock;
pub mod db;
pub mod ids;
pub mod schedule;
pub mod words;
