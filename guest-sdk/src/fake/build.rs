//! The builder of a fake run.

use std::cell::RefCell;
use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::bucket::Buckets;
use super::{Host, LogLine, Progress};
use crate::outbox::Message;
use crate::run::Run;
use crate::time::Timestamp;

/// Builds a fake [`Run`] for a test.
///
/// By default it is the first attempt of a scheduled run, whose slot is 2026-01-01T00:00:00Z.
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
/// run.warn("the server is slow");
/// assert_eq!(run.logs()[0].level, Level::Warn);
/// ```
#[must_use = "`build` creates the fake run"]
pub struct FakeRun {
    context: Map<String, Value>,
    host: Host,
}

impl Run {
    /// Return a builder of a fake run. Native builds only.
    ///
    /// ```
    /// use campanile_sdk::Run;
    ///
    /// let run = Run::fake().build();
    /// assert_eq!(run.trigger(), "schedule");
    /// ```
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
                buckets: Buckets::default(),
                denies_messages: false,
                held_back: RefCell::default(),
                messages: RefCell::default(),
                logs: RefCell::default(),
                progress: RefCell::default(),
            },
        }
    }

    /// Return the lines that the task logged to this fake run, in order. Native builds only.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().build();
    /// run.warn("the server is slow");
    /// assert_eq!(run.logs()[0].message, "the server is slow");
    /// ```
    pub fn logs(&self) -> Vec<LogLine> {
        self.host.logs.borrow().clone()
    }

    /// Return the messages of the calls that have succeeded on this fake run, in order. Native builds only.
    ///
    /// [`Package::call`](crate::Package::call) keeps the messages of a task that succeeds, and drops those of one that
    /// fails.
    ///
    /// ```
    /// # use campanile_sdk::{Message, Run};
    /// let run = Run::fake().build();
    /// run.send(Message::post("https://example.com/hook"))?;
    /// assert!(run.messages().is_empty(), "no call has succeeded");
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn messages(&self) -> Vec<Message> {
        self.host.messages.borrow().clone()
    }

    /// Return the progress that the task reported to this fake run, in order. Native builds only.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().build();
    /// run.progress(None, "counting");
    /// assert_eq!(run.progress_reports()[0].percent, None);
    /// ```
    pub fn progress_reports(&self) -> Vec<Progress> {
        self.host.progress.borrow().clone()
    }
}

impl FakeRun {
    /// Add the keys of `context` to the context.
    ///
    /// A reserved key replaces the fake's value.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # use serde_json::json;
    /// let run = Run::fake().context(json!({"name": "Ada", "trigger": "manual"})).build();
    /// assert_eq!(run.context()["name"], "Ada");
    /// assert_eq!(run.trigger(), "manual");
    /// ```
    ///
    /// # Panics
    ///
    /// If `context` is not a JSON object.
    pub fn context(mut self, context: Value) -> FakeRun {
        let Value::Object(keys) = context else {
            panic!("the context must be a JSON object, not {context}");
        };
        self.context.extend(keys);
        self
    }

    /// Set the id of the launch.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().execution_id("launch-1").build();
    /// assert_eq!(run.execution_id(), "launch-1");
    /// ```
    pub fn execution_id(mut self, id: impl Into<String>) -> FakeRun {
        self.host.execution_id = id.into();
        self
    }

    /// Set the id of the run.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().run_id("run-2").build();
    /// assert_eq!(run.run_id(), "run-2");
    /// ```
    pub fn run_id(mut self, id: impl Into<String>) -> FakeRun {
        self.host.run_id = id.into();
        self
    }

    /// Set the number of this attempt, from 1.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// assert_eq!(Run::fake().attempt(3).build().attempt(), 3);
    /// ```
    pub fn attempt(mut self, attempt: u32) -> FakeRun {
        self.host.attempt = attempt;
        self
    }

    /// Set the slot, an RFC 3339 time: both `original_scheduled_time` and `scheduled_for`.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().at("2026-11-21T02:00:00Z").build();
    /// assert_eq!(run.original_scheduled_time().date(), "2026-11-21");
    /// ```
    ///
    /// # Panics
    ///
    /// If `time` is not RFC 3339.
    pub fn at(mut self, time: &str) -> FakeRun {
        self.host.original_scheduled_time = instant(time);
        self.host.scheduled_for = self.host.original_scheduled_time;
        self
    }

    /// Set the slot plus jitter, an RFC 3339 time.
    ///
    /// Call it after [`FakeRun::at`], which also sets this time.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// # use std::time::Duration;
    /// let run = Run::fake().at("2026-11-21T02:00:00Z").scheduled_for("2026-11-21T02:00:07Z").build();
    /// let jitter = run.scheduled_for().since(run.original_scheduled_time());
    /// assert_eq!(jitter, Duration::from_secs(7));
    /// ```
    ///
    /// # Panics
    ///
    /// If `time` is not RFC 3339.
    pub fn scheduled_for(mut self, time: &str) -> FakeRun {
        self.host.scheduled_for = instant(time);
        self
    }

    /// Make the run a recovery at `time`, an RFC 3339 time, of an earlier run that was lost with its host.
    ///
    /// The attempt becomes at least 2.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().recovered_at("2026-11-21T02:05:00Z").build();
    /// assert!(run.is_recovery());
    /// assert_eq!(run.attempt(), 2);
    /// ```
    ///
    /// # Panics
    ///
    /// If `time` is not RFC 3339.
    pub fn recovered_at(mut self, time: &str) -> FakeRun {
        let time = instant(time).to_string();
        self.context
            .insert("recovery_attempt_time".to_owned(), time.into());
        self.host.is_recovery = true;
        self.host.attempt = self.host.attempt.max(2);
        self
    }

    /// Set the time at which the host would stop the call, as RFC 3339.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().deadline("2026-01-01T00:05:00Z").build();
    /// let left = run.deadline().map(|deadline| deadline.since(run.scheduled_for()));
    /// assert_eq!(left.map(|left| left.as_secs()), Some(300));
    /// ```
    ///
    /// # Panics
    ///
    /// If `time` is not RFC 3339.
    pub fn deadline(mut self, time: &str) -> FakeRun {
        self.host.deadline = Some(instant(time));
        self
    }

    /// Ask the run to stop: `cancel_requested` returns true.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// assert!(Run::fake().cancelled().build().cancel_requested());
    /// ```
    pub fn cancelled(mut self) -> FakeRun {
        self.host.cancel_requested = true;
        self
    }

    /// Set a value of the operator's config, or a secret that is granted under this name.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().config("token", "secret").build();
    /// assert_eq!(run.config("token")?.as_deref(), Some("secret"));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> FakeRun {
        self.host.config.insert(key.into(), value.into());
        self
    }

    /// Grant a bucket for reading and writing, and set its entries.
    ///
    /// Open the bucket after the call to see what the task wrote.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().bucket("default", [("calls", "1")]).build();
    /// run.bucket("default")?.increment("calls", 1)?;
    /// assert_eq!(run.bucket("default")?.get_json("calls")?, Some(2));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn bucket<K: Into<String>, V: Into<Vec<u8>>>(
        self,
        name: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> FakeRun {
        self.grant(name.into(), true, entries)
    }

    /// Grant a bucket for reading only, and set its entries.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().read_only_bucket("facts", [("pi", "3.14")]).build();
    /// let error = run.bucket("facts")?.set("pi", "3").unwrap_err();
    /// assert!(error.is_denied());
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn read_only_bucket<K: Into<String>, V: Into<Vec<u8>>>(
        self,
        name: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> FakeRun {
        self.grant(name.into(), false, entries)
    }

    fn grant<K: Into<String>, V: Into<Vec<u8>>>(
        mut self,
        name: String,
        writable: bool,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> FakeRun {
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()));
        self.host.buckets.grant(name, writable, entries.collect());
        self
    }

    /// Deny every message, as a host does whose operator has not granted its address.
    ///
    /// ```
    /// # use campanile_sdk::{Message, Run};
    /// let run = Run::fake().deny_messages().build();
    /// let sent = run.send(Message::post("https://example.com/hook"));
    /// assert!(sent.is_err_and(|error| error.is_denied()));
    /// ```
    pub fn deny_messages(mut self) -> FakeRun {
        self.host.denies_messages = true;
        self
    }

    /// Copy the buckets of an earlier fake run, in the state in which that run left them.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let lost = Run::fake().bucket("default", [("sent", "no")]).build();
    /// lost.bucket("default")?.set("sent", "yes")?;
    /// let run = Run::fake().buckets_of(&lost).recovered_at("2026-01-01T00:05:00Z").build();
    /// assert_eq!(run.bucket("default")?.get("sent")?, Some(b"yes".to_vec()));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn buckets_of(mut self, earlier: &Run) -> FakeRun {
        self.host.buckets = earlier.host.buckets.copy();
        self
    }

    /// Set the output of the last successful run.
    ///
    /// ```
    /// # use campanile_sdk::Run;
    /// let run = Run::fake().last_result(41.into()).build();
    /// assert_eq!(run.last_result::<u32>()?, Some(41));
    /// # Ok::<(), campanile_sdk::Error>(())
    /// ```
    pub fn last_result(self, output: Value) -> FakeRun {
        self.context(json!({ "last_result": output }))
    }

    /// Build the run, with every reserved key in its context.
    ///
    /// ```
    /// # use campanile_sdk::{RESERVED_KEYS, Run};
    /// let run = Run::fake().build();
    /// assert!(RESERVED_KEYS.iter().all(|key| run.context().contains_key(*key)));
    /// ```
    pub fn build(self) -> Run {
        let FakeRun { context, host } = self;
        let slot = host.original_scheduled_time;
        let reserved = json!({
            "is_recovery": host.is_recovery,
            "scheduled_time": slot,
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
            "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "last_result": null,
            "last_failure": null,
        });
        let Value::Object(mut all) = reserved else {
            unreachable!("`reserved` is an object")
        };
        all.extend(context);
        Run::new(all, host)
    }
}

fn instant(text: &str) -> Timestamp {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RESERVED_KEYS;

    #[test]
    fn the_context_has_exactly_the_reserved_and_the_given_keys() {
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
    fn the_default_run_is_a_first_scheduled_attempt() {
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
    fn a_task_sees_the_values_that_were_set() {
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
    fn an_empty_interval_is_none() {
        let now = "2026-11-21T08:00:00Z";
        let run = Run::fake()
            .at(now)
            .context(json!({"interval_start": now}))
            .build();
        assert_eq!(run.interval(), None);
    }

    #[test]
    fn logs_and_progress_are_kept_in_order() {
        let run = Run::fake().build();
        run.trace("a");
        run.debug("b");
        run.info("c");
        run.warn("d");
        run.error("e");
        run.progress(250, "nearly");
        run.progress(None, "unknown");
        let logged: Vec<String> = run
            .logs()
            .iter()
            .map(|line| format!("{} {}", line.level, line.message))
            .collect();
        assert_eq!(
            logged,
            ["trace a", "debug b", "info c", "warn d", "error e"]
        );
        let percents: Vec<_> = run
            .progress_reports()
            .iter()
            .map(|report| report.percent)
            .collect();
        assert_eq!(percents, [Some(100), None]);
    }
}
