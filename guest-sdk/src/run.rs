//! The run of a task: facts about it, and functions of the host.

use std::cell::RefCell;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{Error, Explain, Result};
use crate::host::Host;
use crate::time::Timestamp;

/// The context keys that the host sets. [`Run::context`] has them; a task's own context type never sees them.
///
/// ```
/// use campanile_sdk::RESERVED_KEYS;
///
/// assert!(RESERVED_KEYS.contains(&"execution_id"));
/// ```
pub const RESERVED_KEYS: [&str; 15] = [
    "is_recovery",
    "scheduled_time",
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
    "traceparent",
    "last_result",
    "last_failure",
];

/// One run of one task: the facts about the run, its context, and the functions of the host.
///
/// [`Run::fake`] creates a run for a test.
///
/// ```
/// use campanile_sdk::{AnyContext, Result, Run};
///
/// /// Names the report after the slot, so that a recovery a day later writes the same file.
/// fn report(run: &Run, _: AnyContext) -> Result<String> {
///     let file = format!("/reports/{}.csv", run.original_scheduled_time().date());
///     run.info(format!("writing {file}"));
///     Ok(file)
/// }
///
/// let run = Run::fake().at("2026-11-21T02:00:00Z").build();
/// assert_eq!(report(&run, AnyContext)?, "/reports/2026-11-21.csv");
/// # Ok::<(), campanile_sdk::Error>(())
/// ```
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

    /// Return the id of the launch.
    ///
    /// The id is the same for every run of one slot, on every host and after every crash. Use it as the idempotency
    /// key of requests to other systems.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().execution_id("8c1d").build();
    /// let header = format!("Idempotency-Key: {}", run.execution_id());
    /// assert_eq!(header, "Idempotency-Key: 8c1d");
    /// ```
    pub fn execution_id(&self) -> String {
        self.host.execution_id()
    }

    /// Return the id of this run. The new run of a recovered launch has a new id.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert_ne!(run.run_id(), run.execution_id());
    /// ```
    pub fn run_id(&self) -> String {
        self.host.run_id()
    }

    /// Return the number of this call of the task for this launch, from 1.
    ///
    /// Retries and recoveries increase the number.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().attempt(2).build();
    /// if run.attempt() > 1 {
    ///     run.info("not the first attempt");
    /// }
    /// # assert_eq!(run.logs().len(), 1);
    /// ```
    pub fn attempt(&self) -> u32 {
        self.host.attempt()
    }

    /// Return whether this run recovers its launch.
    ///
    /// An earlier run may have been lost with its host, and some of its effects may have happened.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().recovered_at("2026-01-01T00:05:00Z").build();
    /// if run.is_recovery() {
    ///     run.info("checking which mails the lost run has sent");
    /// }
    /// # assert_eq!(run.logs().len(), 1);
    /// ```
    pub fn is_recovery(&self) -> bool {
        self.host.is_recovery()
    }

    /// Return the time at which the host should start this run: the slot plus jitter.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert!(run.scheduled_for() >= run.original_scheduled_time());
    /// ```
    pub fn scheduled_for(&self) -> Timestamp {
        self.host.scheduled_for()
    }

    /// Return the slot: the time that the schedule's rule computed.
    ///
    /// For a run by hand, it is the time of the request.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().at("2026-11-21T02:00:00Z").build();
    /// assert_eq!(run.original_scheduled_time().to_string(), "2026-11-21T02:00:00Z");
    /// ```
    pub fn original_scheduled_time(&self) -> Timestamp {
        self.host.original_scheduled_time()
    }

    /// Return the time at which the host will stop this call, or `None` if the call has no time-out.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().deadline("2026-01-01T00:00:30Z").build();
    /// let seconds = run.deadline().map(|deadline| deadline.since(run.scheduled_for()).as_secs());
    /// assert_eq!(seconds, Some(30));
    /// ```
    pub fn deadline(&self) -> Option<Timestamp> {
        self.host.deadline()
    }

    /// Return whether the run was asked to stop.
    ///
    /// Check this between two pieces of work to stop in a consistent state.
    ///
    /// ```
    /// use campanile_sdk::{Error, Result, Run};
    ///
    /// fn copy(run: &Run, files: &[&str]) -> Result<()> {
    ///     for file in files {
    ///         if run.cancel_requested() {
    ///             return Err(Error::retryable(format!("asked to stop before {file}")));
    ///         }
    ///     }
    ///     Ok(())
    /// }
    ///
    /// assert!(copy(&Run::fake().cancelled().build(), &["a", "b"]).is_err());
    /// ```
    pub fn cancel_requested(&self) -> bool {
        self.host.cancel_requested()
    }

    /// Report the progress of the run: a percentage, or `None` if it is not known, and a short message.
    ///
    /// A percentage above 100 is reported as 100.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.progress(40, "two of five files");
    /// run.progress(None, "waiting for the server");
    /// # assert_eq!(run.progress_reports()[0].percent, Some(40));
    /// ```
    pub fn progress(&self, percent: impl Into<Option<u8>>, message: impl AsRef<str>) {
        let percent = percent.into().map(|percent| percent.min(100));
        self.host.report_progress(percent, message.as_ref());
    }

    /// Log a message at level `trace`, for each step of the task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.trace("row 17 of 4000");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Trace);
    /// ```
    pub fn trace(&self, message: impl AsRef<str>) {
        self.host.log(Level::Trace, message.as_ref());
    }

    /// Log a message at level `debug`, for diagnosing a fault in the task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.debug("the response has 12 headers");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Debug);
    /// ```
    pub fn debug(&self, message: impl AsRef<str>) {
        self.host.log(Level::Debug, message.as_ref());
    }

    /// Log a message at level `info`, about the normal work of the task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.info(format!("{} rows read", 4000));
    /// # assert_eq!(run.logs()[0].message, "4000 rows read");
    /// ```
    pub fn info(&self, message: impl AsRef<str>) {
        self.host.log(Level::Info, message.as_ref());
    }

    /// Log a message at level `warn`, about a problem that did not stop the task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.warn("skipped 3 rows without a date");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Warn);
    /// ```
    pub fn warn(&self, message: impl AsRef<str>) {
        self.host.log(Level::Warn, message.as_ref());
    }

    /// Log a message at level `error`, about a problem that stopped the task or a part of it.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.error("the server does not answer");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Error);
    /// ```
    pub fn error(&self, message: impl AsRef<str>) {
        self.host.log(Level::Error, message.as_ref());
    }

    /// Return the value that the operator granted under `key`, or `None` if there is no such grant.
    ///
    /// A granted secret is returned under its name. The host redacts secrets in everything that it records of the
    /// run.
    ///
    /// ```
    /// # use campanile_sdk::{Error, Result, Run};
    /// fn token(run: &Run) -> Result<String> {
    ///     run.config("token")?
    ///         .ok_or_else(|| Error::denied("the operator has not granted `token`"))
    /// }
    ///
    /// let run = Run::fake().config("token", "abc").build();
    /// assert_eq!(token(&run)?, "abc");
    /// # Ok::<(), Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Retryable if the host could not read its configuration.
    pub fn config(&self, key: &str) -> Result<Option<String>> {
        self.host.config(key).map_err(|message| {
            Error::retryable(format!("reading the config key `{key}`: {message}"))
        })
    }

    /// Return the whole context: the user's keys and the [reserved keys](RESERVED_KEYS).
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # use serde_json::json;
    /// # let run = Run::fake().context(json!({"name": "Ada"})).build();
    /// assert_eq!(run.context()["name"], "Ada");
    /// assert_eq!(run.context()["attempt"], 1);
    /// ```
    pub fn context(&self) -> &Map<String, Value> {
        &self.context
    }

    /// Return what started this launch: `schedule`, `catchup`, `manual` or `backfill`.
    ///
    /// Empty if the context does not have the key.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert_eq!(run.trigger(), "schedule");
    /// ```
    pub fn trigger(&self) -> &str {
        self.text("trigger").unwrap_or("")
    }

    /// Return the slot as an RFC 3339 time in the schedule's time zone.
    ///
    /// `None` if the context does not have the key.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # use serde_json::json;
    /// # let run = Run::fake().context(json!({"scheduled_local": "2026-11-21T03:00:00+01:00"})).build();
    /// assert_eq!(run.scheduled_local(), Some("2026-11-21T03:00:00+01:00"));
    /// ```
    pub fn scheduled_local(&self) -> Option<&str> {
        self.text("scheduled_local")
    }

    /// Return the interval of time that this run covers: after the first instant, up to and including the second.
    ///
    /// `None` if the run covers no interval, such as a run by hand.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # use serde_json::json;
    /// # let run = Run::fake().at("2026-11-21T02:00:00Z").context(json!({"interval_start": "2026-11-20T02:00:00Z"})).build();
    /// if let Some((after, until)) = run.interval() {
    ///     run.info(format!("rows after {after} until {until}"));
    /// }
    /// # assert_eq!(run.logs()[0].message, "rows after 2026-11-20T02:00:00Z until 2026-11-21T02:00:00Z");
    /// ```
    pub fn interval(&self) -> Option<(Timestamp, Timestamp)> {
        let start: Timestamp = self.text("interval_start")?.parse().ok()?;
        let end: Timestamp = self.text("interval_end")?.parse().ok()?;
        (start < end).then_some((start, end))
    }

    /// Return the span of this call as a trace context of W3C, or `None` from a host that sets none.
    ///
    /// The host adds it to requests over HTTP that have no header `traceparent`. Give it to what you reach in another way.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// if let Some(traceparent) = run.traceparent() {
    ///     assert!(traceparent.starts_with("00-"));
    /// }
    /// ```
    pub fn traceparent(&self) -> Option<&str> {
        self.text("traceparent")
    }

    /// Return the output of the newest successful slot of the schedule, or `None` before the first.
    ///
    /// ```
    /// # use campanile_sdk::{Result, Run};
    /// # use serde::{Deserialize, Serialize};
    /// #[derive(Default, Serialize, Deserialize)]
    /// struct Report {
    ///     total: u64,
    /// }
    ///
    /// fn report(run: &Run, new: u64) -> Result<Report> {
    ///     let last = run.last_result::<Report>()?.unwrap_or_default();
    ///     Ok(Report { total: last.total + new })
    /// }
    ///
    /// let run = Run::fake().last_result(serde_json::json!({"total": 40})).build();
    /// assert_eq!(report(&run, 2)?.total, 42);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Permanent if the output cannot be read as a `T`.
    pub fn last_result<T: DeserializeOwned>(&self) -> Result<Option<T>> {
        match self.context.get("last_result") {
            None | Some(Value::Null) => Ok(None),
            Some(value) => serde_json::from_value(value.clone())
                .map(Some)
                .map_err(|error| Error::permanent(error.to_string()))
                .explain(|| "the last result cannot be read"),
        }
    }

    /// Put `key` into the context of the tasks that depend on this task.
    ///
    /// The tasks receive it if this task succeeds. A later value for the same key replaces an earlier one.
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
    /// Permanent if `key` is reserved or `value` cannot be written as JSON.
    pub fn pass(&self, key: impl Into<String>, value: impl Serialize) -> Result<()> {
        let key = key.into();
        if RESERVED_KEYS.contains(&key.as_str()) {
            return Err(Error::permanent(format!(
                "the host sets the context key `{key}`; pass the value under another key"
            )));
        }
        let value = serde_json::to_value(value).map_err(|error| {
            Error::permanent(format!(
                "the value passed as `{key}` cannot be written as JSON: {error}"
            ))
        })?;
        self.passed.borrow_mut().insert(key, value);
        Ok(())
    }

    /// Return the values that were passed with [`Run::pass`].
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.pass("rows", 3)?;
    /// assert_eq!(run.passed()["rows"], 3);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn passed(&self) -> Map<String, Value> {
        self.passed.borrow().clone()
    }

    /// Return the context without the reserved keys.
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

/// The severity of a log line.
///
/// ```
/// use campanile_sdk::Level;
///
/// assert!(Level::Error > Level::Warn);
/// assert_eq!(Level::Info.to_string(), "info");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// A single step of the task.
    Trace,
    /// A detail for diagnosing a fault.
    Debug,
    /// The normal work of the task.
    Info,
    /// A problem that did not stop the task.
    Warn,
    /// A problem that stopped the task or a part of it.
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
