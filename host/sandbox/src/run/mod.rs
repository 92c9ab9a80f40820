//! Making one call: from a fresh store to its report.

pub(crate) mod call;
mod cpu;
pub(crate) mod describe;
pub(crate) mod program;
pub(crate) mod redaction;
mod report;
mod trap;
mod verdict;
mod waiting;
