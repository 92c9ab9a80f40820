//! The spans of log lines, so that a host's log can be filtered by what a line is about.
//!
//! | span | level | fields | around |
//! |---|---|---|---|
//! | `run` | error | `schedule`, `launch`, `run` | executing a run, and the line about its end |
//! | `decision` | error | `schedule`, `launch` | one line about a launch that doesn't run, or about a schedule |
//! | `delivery` | error | `id`, and `package` with `launch`, or `channel` with `rule` | delivering a message once |
//! | `call` | debug | `task`, `attempt` | calling a task, within `run` |
//! | `tick` | debug | `service`, `host` | one step of a service |
//!
//! `campanile-server` adds `request`.
//!
//! Those saying what a line is about are at the level error, kept by every filter with a level for all of Campanile: a warning without
//! its run is of little use. They cost about two microseconds for each run, formatting the ids once. Those saying which step is
//! under way are at the level debug: usually off, they cost an atomic load. A filter naming one of their fields turns them on.
//!
//! Spans outliving the step that begins them have no parent. So `run` and `delivery` come first in every line.

use campanile_model::ids::{LaunchId, MessageId, RunId};
use tracing::field::display;
use tracing::{Span, debug_span, error_span};

/// The span of a run. `schedule` is none when its name can't be read.
pub(crate) fn run(schedule: Option<&str>, run: RunId) -> Span {
    let schedule = schedule.map(display);
    error_span!(parent: None, "run", schedule, launch = %run.launch(), %run)
}

/// The span of a line about a schedule, and one of its launches.
pub(crate) fn decision(schedule: Option<&str>, launch: Option<LaunchId>) -> Span {
    let (schedule, launch) = (schedule.map(display), launch.map(display));
    error_span!(parent: None, "decision", schedule, launch)
}

/// The span of a message of the outbox being delivered.
pub(crate) fn outbox_delivery(message: MessageId, package: &str, launch: LaunchId) -> Span {
    error_span!(parent: None, "delivery", id = %message, %package, %launch)
}

/// The span of a message about alerts being delivered.
pub(crate) fn alert_delivery(message: MessageId, channel: &str, rule: &str) -> Span {
    error_span!(parent: None, "delivery", id = %message, %channel, %rule)
}

/// The span of a task's call.
pub(crate) fn call(task: &str, attempt: i64) -> Span {
    debug_span!("call", %task, attempt)
}

/// The span of a step of `service` on `host`.
pub(crate) fn tick(service: &str, host: &str) -> Span {
    debug_span!("tick", service, %host)
}
