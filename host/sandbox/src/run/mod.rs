//! Making one call: from a fresh store to its report.

pub(crate) mod call;
pub(crate) mod cause;
pub(crate) mod describe;
pub(crate) mod program;
pub(crate) mod redaction;
mod report;
pub(crate) mod time;
mod trap;
#[expect(
    clippy::result_large_err,
    reason = "a verdict is made once for each call, and moved once"
)]
mod verdict;
