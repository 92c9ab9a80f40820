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
///
/// ```
/// use campanile_sdk::RESERVED_KEYS;
///
/// assert!(RESERVED_KEYS.contains(&"execution_id"));
/// ```
pub const RESERVED_KEYS: [&str; 14] = [
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
    "last_result",
    "last_failure",
];

/// One run of one task: the facts about it, its whole context, and the way to speak to the host.
///
/// In a test, [`Run::fake`] makes one.
///
/// ```
/// use campanile_sdk::{AnyContext, Result, Run};
///
/// /// Names what it writes after the slot, so that a run that is recovered a day later writes the same.
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

    /// The launch: the same text for every run of one slot, on every host and after every crash.
    /// Use it as the idempotency key of outward effects.
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

    /// This run. A recovered launch has a new one.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert_ne!(run.run_id(), run.execution_id());
    /// ```
    pub fn run_id(&self) -> String {
        self.host.run_id()
    }

    /// 1 for the first call of this task for this launch; retries and recoveries count on.
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

    /// Whether recovery took this launch up again: an earlier run may have been lost with its host, and some of its
    /// effects may have happened.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().recovered_at("2026-01-01T00:05:00Z").build();
    /// if run.is_recovery() {
    ///     run.info("looking for what the lost run has sent");
    /// }
    /// # assert_eq!(run.logs().len(), 1);
    /// ```
    pub fn is_recovery(&self) -> bool {
        self.host.is_recovery()
    }

    /// When the host meant to start this run: the slot, plus jitter.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert!(run.scheduled_for() >= run.original_scheduled_time());
    /// ```
    pub fn scheduled_for(&self) -> Timestamp {
        self.host.scheduled_for()
    }

    /// The slot: the nominal time that the schedule's rule gave. For a run by hand, the time of the request.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().at("2026-11-21T02:00:00Z").build();
    /// assert_eq!(run.original_scheduled_time().to_string(), "2026-11-21T02:00:00Z");
    /// ```
    pub fn original_scheduled_time(&self) -> Timestamp {
        self.host.original_scheduled_time()
    }

    /// When the host will stop this call, or none when it has no time-out.
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

    /// Whether somebody asked this run to stop. A task that looks here, between two pieces of work, can stop tidily.
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

    /// Tell how far the run is: 0 to 100, or `None` when that is not known, and a few words. More than 100 is told as 100.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.progress(40, "two of five files");
    /// run.progress(None, "waiting for the mirror");
    /// # assert_eq!(run.progress_reports()[0].percent, Some(40));
    /// ```
    pub fn progress(&self, percent: impl Into<Option<u8>>, message: impl AsRef<str>) {
        let percent = percent.into().map(|percent| percent.min(100));
        self.host.report_progress(percent, message.as_ref());
    }

    /// Log a line for whoever follows every step.
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

    /// Log a line for whoever looks for a fault in this task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.debug("the answer has 12 headers");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Debug);
    /// ```
    pub fn debug(&self, message: impl AsRef<str>) {
        self.host.log(Level::Debug, message.as_ref());
    }

    /// Log a line for whoever watches the task work.
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

    /// Log a line about something that went wrong and did not stop the task.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.warn("3 rows have no date and are left out");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Warn);
    /// ```
    pub fn warn(&self, message: impl AsRef<str>) {
        self.host.log(Level::Warn, message.as_ref());
    }

    /// Log a line about something that did stop the task, or part of it.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// run.error("the mirror does not answer");
    /// # assert_eq!(run.logs()[0].level, campanile_sdk::Level::Error);
    /// ```
    pub fn error(&self, message: impl AsRef<str>) {
        self.host.log(Level::Error, message.as_ref());
    }

    /// The value that the operator granted under `key`, or none when there is none. Secrets that were granted are here as
    /// well, under their names: the host hides them wherever the run's text is kept.
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
    /// Retryable, when the host could not look.
    pub fn config(&self, key: &str) -> Result<Option<String>> {
        self.host.config(key).map_err(|message| {
            Error::retryable(format!("reading the config key `{key}`: {message}"))
        })
    }

    /// The whole context: the user's keys and the [reserved ones](RESERVED_KEYS).
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

    /// What started this launch: `schedule`, `catchup`, `manual` or `backfill`. Empty when the host does not say.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # let run = Run::fake().build();
    /// assert_eq!(run.trigger(), "schedule");
    /// ```
    pub fn trigger(&self) -> &str {
        self.text("trigger").unwrap_or("")
    }

    /// The slot as the clocks in the schedule's zone show it, or none when the host does not say.
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

    /// The stretch of time that this run answers for: after the first instant, up to and including the second.
    /// None when there is no such stretch, as for a run by hand.
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

    /// The output of the last successful run of this task's schedule, or none before the first.
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
    ///     let before = run.last_result::<Report>()?.unwrap_or_default();
    ///     Ok(Report { total: before.total + new })
    /// }
    ///
    /// let run = Run::fake().last_result(serde_json::json!({"total": 40})).build();
    /// assert_eq!(report(&run, 2)?.total, 42);
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
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
///
/// ```
/// use campanile_sdk::Level;
///
/// assert!(Level::Error > Level::Warn);
/// assert_eq!(Level::Info.to_string(), "info");
/// ```
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
