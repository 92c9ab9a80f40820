//! Reporting to the outside: alerts, messages, metrics, traces, logging.

pub mod alerts;
pub(crate) mod audit;
pub(crate) mod delivery;
pub(crate) mod delivery_table;
pub(crate) mod launch_log;
pub(crate) mod log_spans;
pub mod metrics;
pub(crate) mod outbox;
pub mod traces;
pub(crate) mod use_growth;
