//! Campanile, a bell tower for WebAssembly tasks.

pub mod clock;
pub mod ids;
