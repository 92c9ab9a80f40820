//! What a task knows of the run it is in, and what it can tell the host meanwhile.

use std::cell::RefCell;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Explain, Result};
use crate::host::Host;
use crate::time::Timestamp;

/// The context keys that the host sets. A task's own context type never sees them; [`Run::context`] does.
pub const RESERVED_KEYS: [&str; 13] = [
    "is_recovery",
    "original_scheduled_time",
    "recovery_attempt_time",
    "execution_id",
    "run_id",
    "attempt",
    "trigger",
    "schedule",
    "scheduled_local",
    "interval_start",
    "interval_end",
    "last_result",
    "last_failure",
];

/// One run of one task: the facts about it, its whole context, and the way to speak to the host.
///
/// In a test, [`Run::fake`] makes one.
pub struct Run {
    context: Map<String, Value>,
    passed: RefCell<Map<String, Value>>,
    pub(crate) host: Host,
}

impl Run {
    pub(crate) fn new(context: Map<String, Value>, host: Host) -> Run {
        Run {
            context,
            passed: RefCell::default(),
            host,
        }
    }

    /// The launch: the same text for every run of one slot, on every host and after every crash.
    /// Use it as the idempotency key of outward effects.
    pub fn execution_id(&self) -> String {
        self.host.execution_id()
    }

    /// This run. A recovered launch has a new one.
    pub fn run_id(&self) -> String {
        self.host.run_id()
    }

    /// 1 for the first call of this task for this launch; retries and recoveries count on.
    pub fn attempt(&self) -> u32 {
        self.host.attempt()
    }

    /// Whether recovery took this launch up again: an earlier run may have been lost with its host, and some of its
    /// effects may have happened.
    pub fn is_recovery(&self) -> bool {
        self.host.is_recovery()
    }

    /// When the host meant to start this run: the slot, plus jitter.
    pub fn scheduled_for(&self) -> Timestamp {
        self.host.scheduled_for()
    }

    /// The slot: the nominal time that the schedule's rule gave. For a run by hand, the time of the request.
    pub fn original_scheduled_time(&self) -> Timestamp {
        self.host.original_scheduled_time()
    }

    /// When the host will stop this call, or none when it has no time-out.
    pub fn deadline(&self) -> Option<Timestamp> {
        self.host.deadline()
    }

    /// Whether somebody asked this run to stop. A task that looks here, between two pieces of work, can stop tidily.
    pub fn cancel_requested(&self) -> bool {
        self.host.cancel_requested()
    }

    /// Tell how far the run is: 0 to 100, or `None` when that is not known, and a few words. More than 100 is told as 100.
    pub fn progress(&self, percent: impl Into<Option<u8>>, message: impl AsRef<str>) {
        let percent = percent.into().map(|percent| percent.min(100));
        self.host.report_progress(percent, message.as_ref());
    }

    /// Log a line for whoever follows every step.
    pub fn trace(&self, message: impl AsRef<str>) {
        self.host.log(Level::Trace, message.as_ref());
    }

    /// Log a line for whoever looks for a fault in this task.
    pub fn debug(&self, message: impl AsRef<str>) {
        self.host.log(Level::Debug, message.as_ref());
    }

    /// Log a line for whoever watches the task work.
    pub fn info(&self, message: impl AsRef<str>) {
        self.host.log(Level::Info, message.as_ref());
    }

    /// Log a line about something that went wrong and did not stop the task.
    pub fn warn(&self, message: impl AsRef<str>) {
        self.host.log(Level::Warn, message.as_ref());
    }

    /// Log a line about something that did stop the task, or part of it.
    pub fn error(&self, message: impl AsRef<str>) {
        self.host.log(Level::Error, message.as_ref());
    }

    /// The value that the operator granted under `key`, or none when there is none.
    ///
    /// # Errors
    ///
    /// Retryable, when the host could not look.
    pub fn config(&self, key: &str) -> Result<Option<String>> {
        self.host.config(key).map_err(|message| {
            Error::retryable(format!("reading the config key `{key}`: {message}"))
        })
    }

    /// The whole context: the user's keys and the [reserved ones](RESERVED_KEYS).
    pub fn context(&self) -> &Map<String, Value> {
        &self.context
    }

    /// What started this launch: `schedule`, `catchup`, `manual` or `backfill`. Empty when the host does not say.
    pub fn trigger(&self) -> &str {
        self.text("trigger").unwrap_or("")
    }

    /// The slot as the clocks in the schedule's zone show it, or none when the host does not say.
    pub fn scheduled_local(&self) -> Option<&str> {
        self.text("scheduled_local")
    }

    /// The stretch of time that this run answers for: after the first instant, up to and including the second.
    /// None when there is no such stretch, as for a run by hand.
    pub fn interval(&self) -> Option<(Timestamp, Timestamp)> {
        let start: Timestamp = self.text("interval_start")?.parse().ok()?;
        let end: Timestamp = self.text("interval_end")?.parse().ok()?;
        (start < end).then_some((start, end))
    }

    /// The output of the last successful run of this task's schedule, or none before the first.
    ///
    /// # Errors
    ///
    /// Permanent, when it does not have the shape of `T`.
    pub fn last_result<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.context.get("last_result") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone())
                .map(Some)
                .map_err(|error| Error::permanent(error.to_string()))
                .explain(|| "the last result has another shape"),
        }
    }

    /// Put `key` into the context of the tasks that depend on this one, should it succeed. The last value for a key wins.
    ///
    /// ```
    /// use campanile_sdk::Run;
    ///
    /// let run = Run::fake().build();
    /// run.pass("rows", [1, 2, 3])?;
    /// assert_eq!(run.passed()["rows"][2], 3);
    /// assert!(run.pass("attempt", 7).is_err(), "the host sets this key");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Permanent, when `key` is reserved or `value` cannot be JSON.
    pub fn pass(&self, key: impl Into<String>, value: impl Serialize) -> Result<()> {
        let key = key.into();
        if RESERVED_KEYS.contains(&key.as_str()) {
            return Err(Error::permanent(format!(
                "the context key `{key}` is set by the host; pass the value under another name"
            )));
        }
        let value = serde_json::to_value(value).map_err(|error| {
            Error::permanent(format!(
                "the value passed as `{key}` cannot be JSON: {error}"
            ))
        })?;
        self.passed.borrow_mut().insert(key, value);
        Ok(())
    }

    /// What [`Run::pass`] has put aside so far.
    pub fn passed(&self) -> Map<String, Value> {
        self.passed.borrow().clone()
    }

    /// The context without the reserved keys.
    pub(crate) fn user_context(&self) -> Map<String, Value> {
        self.context
            .iter()
            .filter(|(key, _)| !RESERVED_KEYS.contains(&key.as_str()))
            .map(|(key, value)| (key.clone(), value.clone()))
            .collect()
    }

    fn text(&self, key: &str) -> Option<&str> {
        self.context.get(key)?.as_str()
    }
}

/// How much a log line matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// Every step.
    Trace,
    /// For finding a fault.
    Debug,
    /// For watching the work.
    Info,
    /// Something is wrong, and the task goes on.
    Warn,
    /// Something is wrong, and the task, or part of it, does not go on.
    Error,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Level::Trace => "trace",
            Level::Debug => "debug",
            Level::Info => "info",
            Level::Warn => "warn",
            Level::Error => "error",
        })
    }
}
