//! The host as a test fakes it: answers that were set beforehand, and everything that the task said kept for asserting.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::run::{Level, Run};
use crate::time::Timestamp;

/// One line that a task logged to a faked run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogLine {
    /// How much it matters.
    pub level: Level,
    /// What it says.
    pub message: String,
}

/// One progress report that a task made to a faked run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    /// 0 to 100, or none when the task did not know.
    pub percent: Option<u8>,
    /// A few words.
    pub message: String,
}

/// The answers of a faked host, and what it was told.
pub struct Host {
    execution_id: String,
    run_id: String,
    attempt: u32,
    is_recovery: bool,
    scheduled_for: Timestamp,
    original_scheduled_time: Timestamp,
    deadline: Option<Timestamp>,
    cancel_requested: bool,
    config: BTreeMap<String, String>,
    logs: RefCell<Vec<LogLine>>,
    progress: RefCell<Vec<Progress>>,
}

impl Host {
    pub fn execution_id(&self) -> String {
        self.execution_id.clone()
    }

    pub fn run_id(&self) -> String {
        self.run_id.clone()
    }

    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    pub fn is_recovery(&self) -> bool {
        self.is_recovery
    }

    pub fn scheduled_for(&self) -> Timestamp {
        self.scheduled_for
    }

    pub fn original_scheduled_time(&self) -> Timestamp {
        self.original_scheduled_time
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        self.deadline
    }

    pub fn cancel_requested(&self) -> bool {
        self.cancel_requested
    }

    pub fn report_progress(&self, percent: Option<u8>, message: &str) {
        self.progress.borrow_mut().push(Progress {
            percent,
            message: message.to_owned(),
        });
    }

    pub fn log(&self, level: Level, message: &str) {
        self.logs.borrow_mut().push(LogLine {
            level,
            message: message.to_owned(),
        });
    }

    pub fn config(&self, key: &str) -> Result<Option<String>, String> {
        Ok(self.config.get(key).cloned())
    }
}

/// Builds a faked [`Run`]: the first attempt, by schedule, of a slot at 2026-01-01T00:00:00Z, unless told otherwise.
///
/// ```
/// use campanile_sdk::{Level, Run};
/// use serde_json::json;
///
/// let run = Run::fake()
///     .context(json!({"name": "Ada"}))
///     .at("2026-11-21T02:00:00Z")
///     .recovered_at("2026-11-21T02:05:00Z")
///     .config("greeting", "Ciao")
///     .build();
///
/// assert_eq!(run.original_scheduled_time().date(), "2026-11-21");
/// assert_eq!((run.attempt(), run.is_recovery()), (2, true));
/// assert_eq!(run.context()["recovery_attempt_time"], "2026-11-21T02:05:00Z");
/// run.warn("the mirror is slow");
/// assert_eq!(run.logs()[0].level, Level::Warn);
/// ```
#[must_use = "a faked run is made by `build`"]
pub struct FakeRun {
    context: Map<String, Value>,
    host: Host,
}

impl Run {
    /// A run for tests, with the host's facts faked. Native builds only.
    pub fn fake() -> FakeRun {
        // 2026-01-01T00:00:00Z
        let slot = Timestamp::new(1_767_225_600, 0);
        FakeRun {
            context: Map::new(),
            host: Host {
                execution_id: "00000000-0000-5000-8000-000000000001".to_owned(),
                run_id: "00000000-0000-7000-8000-000000000001".to_owned(),
                attempt: 1,
                is_recovery: false,
                scheduled_for: slot,
                original_scheduled_time: slot,
                deadline: None,
                cancel_requested: false,
                config: BTreeMap::new(),
                logs: RefCell::default(),
                progress: RefCell::default(),
            },
        }
    }

    /// What the task logged to this faked run, in order. Native builds only.
    pub fn logs(&self) -> Vec<LogLine> {
        self.host.logs.borrow().clone()
    }

    /// The progress that the task reported to this faked run, in order. Native builds only.
    pub fn progress_reports(&self) -> Vec<Progress> {
        self.host.progress.borrow().clone()
    }
}

impl FakeRun {
    /// Add the keys of `context` to the context. A reserved key replaces what the fake would put there.
    ///
    /// # Panics
    ///
    /// When `context` is not a JSON object.
    pub fn context(mut self, context: Value) -> FakeRun {
        let Value::Object(keys) = context else {
            panic!("a context is a JSON object, not {context}");
        };
        self.context.extend(keys);
        self
    }

    /// The launch's id.
    pub fn execution_id(mut self, id: impl Into<String>) -> FakeRun {
        self.host.execution_id = id.into();
        self
    }

    /// The run's id.
    pub fn run_id(mut self, id: impl Into<String>) -> FakeRun {
        self.host.run_id = id.into();
        self
    }

    /// The number of this attempt, from 1.
    pub fn attempt(mut self, attempt: u32) -> FakeRun {
        self.host.attempt = attempt;
        self
    }

    /// The slot, as RFC 3339: both `original_scheduled_time` and `scheduled_for`.
    ///
    /// # Panics
    ///
    /// When `time` is not RFC 3339.
    pub fn at(mut self, time: &str) -> FakeRun {
        self.host.original_scheduled_time = instant(time);
        self.host.scheduled_for = self.host.original_scheduled_time;
        self
    }

    /// The slot plus jitter, as RFC 3339, when it is not the slot itself. Call it after [`FakeRun::at`].
    ///
    /// # Panics
    ///
    /// When `time` is not RFC 3339.
    pub fn scheduled_for(mut self, time: &str) -> FakeRun {
        self.host.scheduled_for = instant(time);
        self
    }

    /// The run takes up, at `time` (RFC 3339), what an earlier one left when its host died. The attempt becomes 2 if it was 1.
    ///
    /// # Panics
    ///
    /// When `time` is not RFC 3339.
    pub fn recovered_at(mut self, time: &str) -> FakeRun {
        let time = instant(time).to_string();
        self.context
            .insert("recovery_attempt_time".to_owned(), time.into());
        self.host.is_recovery = true;
        self.host.attempt = self.host.attempt.max(2);
        self
    }

    /// When the host would stop the call, as RFC 3339.
    ///
    /// # Panics
    ///
    /// When `time` is not RFC 3339.
    pub fn deadline(mut self, time: &str) -> FakeRun {
        self.host.deadline = Some(instant(time));
        self
    }

    /// Somebody asked the run to stop.
    pub fn cancelled(mut self) -> FakeRun {
        self.host.cancel_requested = true;
        self
    }

    /// One value of the operator's config.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> FakeRun {
        self.host.config.insert(key.into(), value.into());
        self
    }

    /// The output of the last successful run.
    pub fn last_result(self, output: Value) -> FakeRun {
        self.context(json!({ "last_result": output }))
    }

    /// The run, with every reserved key in its context.
    pub fn build(self) -> Run {
        let FakeRun { context, host } = self;
        let slot = host.original_scheduled_time;
        let reserved = json!({
            "is_recovery": host.is_recovery,
            "original_scheduled_time": slot,
            "recovery_attempt_time": null,
            "execution_id": host.execution_id,
            "run_id": host.run_id,
            "attempt": host.attempt,
            "trigger": "schedule",
            "schedule": {"id": "fake", "name": "fake", "expression": "0 0 * * *", "timezone": "UTC"},
            "scheduled_local": slot,
            "interval_start": null,
            "interval_end": slot,
            "last_result": null,
            "last_failure": null,
        });
        let Value::Object(mut whole) = reserved else {
            unreachable!("written as an object right above")
        };
        whole.extend(context);
        Run::new(whole, host)
    }
}

fn instant(text: &str) -> Timestamp {
    match text.parse() {
        Ok(instant) => instant,
        Err(error) => panic!("{error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RESERVED_KEYS;

    #[test]
    fn a_faked_run_carries_exactly_the_reserved_keys_and_the_given_ones() {
        let run = Run::fake().context(json!({"b": 1})).build();
        let mut expected: Vec<&str> = RESERVED_KEYS.to_vec();
        expected.push("b");
        expected.sort_unstable();
        let mut keys: Vec<&String> = run.context().keys().collect();
        keys.sort_unstable();
        assert_eq!(keys, expected);
        assert_eq!(run.user_context().keys().collect::<Vec<_>>(), ["b"]);
    }

    #[test]
    fn a_fresh_run_is_a_first_attempt_by_schedule() {
        let run = Run::fake().build();
        assert_eq!((run.attempt(), run.is_recovery()), (1, false));
        assert_eq!(run.trigger(), "schedule");
        assert_eq!(
            run.original_scheduled_time().to_string(),
            "2026-01-01T00:00:00Z"
        );
        assert_eq!(run.scheduled_for(), run.original_scheduled_time());
        assert_eq!(run.scheduled_local(), Some("2026-01-01T00:00:00Z"));
        assert_eq!((run.deadline(), run.cancel_requested()), (None, false));
        assert_eq!(run.interval(), None);
        assert_eq!(run.config("any").unwrap(), None);
        assert_eq!(run.last_result::<u32>().unwrap(), None);
    }

    #[test]
    fn what_was_set_is_what_the_task_sees() {
        let run = Run::fake()
            .execution_id("launch")
            .run_id("run")
            .attempt(4)
            .at("2026-11-21T08:00:00Z")
            .scheduled_for("2026-11-21T08:00:03Z")
            .deadline("2026-11-21T08:05:00Z")
            .cancelled()
            .config("key", "value")
            .last_result(json!(41))
            .context(json!({"interval_start": "2026-11-21T07:00:00Z", "trigger": "backfill"}))
            .build();
        assert_eq!(
            (run.execution_id(), run.run_id()),
            ("launch".into(), "run".into())
        );
        assert_eq!(run.context()["attempt"], 4);
        assert_eq!(run.scheduled_for().to_string(), "2026-11-21T08:00:03Z");
        let (start, end) = run.interval().unwrap();
        assert_eq!(end.since(start).as_secs(), 3600);
        assert_eq!(run.deadline().unwrap().since(end).as_secs(), 300);
        assert!(run.cancel_requested());
        assert_eq!(run.config("key").unwrap().as_deref(), Some("value"));
        assert_eq!(run.last_result::<u32>().unwrap(), Some(41));
        assert!(!run.last_result::<Vec<u8>>().unwrap_err().is_retryable());
        assert_eq!(run.trigger(), "backfill");
    }

    #[test]
    fn an_interval_without_length_is_none() {
        let now = "2026-11-21T08:00:00Z";
        let run = Run::fake()
            .at(now)
            .context(json!({"interval_start": now}))
            .build();
        assert_eq!(run.interval(), None);
    }

    #[test]
    fn what_the_task_says_is_kept_in_order() {
        let run = Run::fake().build();
        run.trace("a");
        run.debug("b");
        run.info("c");
        run.warn("d");
        run.error("e");
        run.progress(250, "nearly");
        run.progress(None, "who knows");
        let said: Vec<String> = run
            .logs()
            .iter()
            .map(|line| format!("{} {}", line.level, line.message))
            .collect();
        assert_eq!(said, ["trace a", "debug b", "info c", "warn d", "error e"]);
        let percents: Vec<_> = run
            .progress_reports()
            .iter()
            .map(|report| report.percent)
            .collect();
        assert_eq!(percents, [Some(100), None]);
    }
}
