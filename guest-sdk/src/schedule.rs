//! Schedules that a package proposes.

use serde::Serialize;
use serde_json::{Map, Value};

/// A schedule that a package proposes: its rule, its context and its policies.
///
/// The host checks the schedule when it loads the package. The operator can disable or change it, or add other
/// schedules.
///
/// Every duration is a number with a unit, such as `10s`, `15m` or `1d`.
///
/// ```
/// use campanile_sdk::Schedule;
/// use serde_json::json;
///
/// Schedule::cron("0 2 * * *").timezone("Europe/Rome").name("nightly");
/// Schedule::every("10s").overlap("buffer_one").jitter("2s");
/// Schedule::at("2027-01-01T00:00:00Z").context(json!({"greeting": "Happy new year"}));
/// Schedule::after_completion("10m");
/// Schedule::cron("30 2 13 * FRI").day_match("and").exclude(["12-25", "2026-12-24..2027-01-01"]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(transparent)]
#[must_use]
pub struct Schedule {
    /// The schedule's keys in the manifest. The host has a default for each absent key.
    keys: Map<String, Value>,
}

impl Schedule {
    /// Create a schedule from a cron expression of 5 fields, or of 6 fields with seconds first.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::cron("0 2 * * *"));
    /// assert_eq!(package.manifest()["schedules"][0]["cron"], "0 2 * * *");
    /// ```
    pub fn cron(expression: impl Into<String>) -> Schedule {
        Schedule::with_rule("cron", expression)
    }

    /// Create a schedule that fires at a fixed interval, such as `10s`, `15m` or `1d`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::every("15m"));
    /// assert_eq!(package.manifest()["schedules"][0]["every"], "15m");
    /// ```
    pub fn every(interval: impl Into<String>) -> Schedule {
        Schedule::with_rule("every", interval)
    }

    /// Create a schedule that fires once, at an RFC 3339 time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::at("2027-01-01T00:00:00Z"));
    /// assert_eq!(package.manifest()["schedules"][0]["at"], "2027-01-01T00:00:00Z");
    /// ```
    pub fn at(time: impl Into<String>) -> Schedule {
        Schedule::with_rule("at", time)
    }

    /// Create a schedule that launches again a fixed time after its previous launch has ended.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::after_completion("10m"));
    /// assert_eq!(package.manifest()["schedules"][0]["after_completion"], "10m");
    /// ```
    pub fn after_completion(delay: impl Into<String>) -> Schedule {
        Schedule::with_rule("after_completion", delay)
    }

    fn with_rule(rule: &str, text: impl Into<String>) -> Schedule {
        Schedule { keys: Map::new() }.text(rule, text)
    }

    fn text(self, key: &str, text: impl Into<String>) -> Schedule {
        self.with(key, text.into())
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Schedule {
        self.keys.insert(key.to_owned(), value.into());
        self
    }

    /// Set the schedule's name.
    ///
    /// The default is the package's name, with a number appended if the package proposes several schedules.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").name("nightly");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["name"], "nightly");
    /// ```
    pub fn name(self, name: impl Into<String>) -> Schedule {
        self.text("name", name)
    }

    /// Launch only this task and the tasks that it depends on.
    ///
    /// By default, a launch runs all tasks of the package.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").task("report");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["task"], "report");
    /// ```
    pub fn task(self, task: impl Into<String>) -> Schedule {
        self.text("task", task)
    }

    /// Set the IANA time zone of a cron expression.
    ///
    /// The default is UTC. The host never uses the time zone of its machine.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").timezone("Europe/Rome");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["timezone"], "Europe/Rome");
    /// ```
    pub fn timezone(self, zone: impl Into<String>) -> Schedule {
        self.text("timezone", zone)
    }

    /// Set the RFC 3339 time from which the intervals of [`Schedule::every`] are counted.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::every("1h").anchor("2026-01-01T00:10:00Z");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["anchor"], "2026-01-01T00:10:00Z");
    /// ```
    pub fn anchor(self, anchor: impl Into<String>) -> Schedule {
        self.text("anchor", anchor)
    }

    /// Choose which days match when a cron expression restricts both the day of the month and the day of the week.
    ///
    /// With `or`, the default, a day matches if either field does, as in cron. With `and`, both fields must match.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").day_match("and");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["day_match"], "and");
    /// ```
    pub fn day_match(self, days: impl Into<String>) -> Schedule {
        self.text("day_match", days)
    }

    /// Choose what happens to a local time that a change of the clocks skips.
    ///
    /// `shift`, the default, moves it to the end of the gap. `skip` drops the slot.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").dst_gap("skip");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["dst_gap"], "skip");
    /// ```
    pub fn dst_gap(self, choice: impl Into<String>) -> Schedule {
        self.text("dst_gap", choice)
    }

    /// Choose when to fire if a change of the clocks makes a local time occur twice.
    ///
    /// The choices are `first`, the default, `second` and `both`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").dst_fold("both");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["dst_fold"], "both");
    /// ```
    pub fn dst_fold(self, choice: impl Into<String>) -> Schedule {
        self.text("dst_fold", choice)
    }

    /// Exclude local times from the schedule.
    ///
    /// Each entry is a date (`2026-12-25`), a date of every year (`12-25`), a range of days
    /// (`2026-12-24..2027-01-01`) or a cron expression of 5 fields. A repeated call adds entries.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").exclude(["12-25", "01-01"]);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["exclude"][1], "01-01");
    /// ```
    pub fn exclude<I: Into<String>>(self, times: impl IntoIterator<Item = I>) -> Schedule {
        let earlier = self.keys.get("exclude").and_then(Value::as_array);
        let mut all = earlier.cloned().unwrap_or_default();
        all.extend(times.into_iter().map(|time| Value::String(time.into())));
        self.with("exclude", all)
    }

    /// Choose which of the slots that were missed while no host ran are launched afterwards.
    ///
    /// The choices are `latest`, the default, `earliest`, `all` and `none`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").catchup("all");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["catchup"], "all");
    /// ```
    pub fn catchup(self, slots: impl Into<String>) -> Schedule {
        self.text("catchup", slots)
    }

    /// Set the age at which a missed slot becomes too old to be caught up, as a duration.
    ///
    /// The host's default is `24h`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").catchup_window("6h");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["catchup_window"], "6h");
    /// ```
    pub fn catchup_window(self, window: impl Into<String>) -> Schedule {
        self.text("catchup_window", window)
    }

    /// Limit the number of slots that are caught up with [`Schedule::catchup`] `all`, from 1 to 1000.
    ///
    /// The newest slots are launched. The default is 100.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").catchup("all").catchup_max(12);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["catchup_max"], 12);
    /// ```
    pub fn catchup_max(self, slots: u32) -> Schedule {
        self.with("catchup_max", slots)
    }

    /// Set the time between two launches that are caught up, as a duration.
    ///
    /// By default, they are launched without a pause.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").catchup_spread("30s");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["catchup_spread"], "30s");
    /// ```
    pub fn catchup_spread(self, pause: impl Into<String>) -> Schedule {
        self.text("catchup_spread", pause)
    }

    /// Set how late a slot may be before it counts as missed, as a duration.
    ///
    /// The host's default is `5m`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").misfire_grace("1m");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["misfire_grace"], "1m");
    /// ```
    pub fn misfire_grace(self, grace: impl Into<String>) -> Schedule {
        self.text("misfire_grace", grace)
    }

    /// Choose what happens to a slot that is due while a launch of this schedule is active.
    ///
    /// * `skip`, the default, skips the slot.
    /// * `buffer_one` and `buffer_all` queue the slot's launch until the active launch has ended.
    /// * `cancel_other` asks the active launch to end first; `terminate_other` stops it.
    /// * `allow` runs both launches at the same time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("buffer_one");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["overlap"], "buffer_one");
    /// ```
    pub fn overlap(self, choice: impl Into<String>) -> Schedule {
        self.text("overlap", choice)
    }

    /// Limit the number of launches in the queue of [`Schedule::overlap`] `buffer_all`.
    ///
    /// The default is 100.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("buffer_all").max_buffered(10);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_buffered"], 10);
    /// ```
    pub fn max_buffered(self, launches: u32) -> Schedule {
        self.with("max_buffered", launches)
    }

    /// Choose which launch stays in the queue of [`Schedule::overlap`] `buffer_one`.
    ///
    /// The choices are `first`, the default, and `latest`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("buffer_one").keep("latest");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["keep"], "latest");
    /// ```
    pub fn keep(self, choice: impl Into<String>) -> Schedule {
        self.text("keep", choice)
    }

    /// Limit the number of launches that are active at the same time with [`Schedule::overlap`] `allow`.
    ///
    /// By default, there is no limit.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("allow").max_concurrent(4);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_concurrent"], 4);
    /// ```
    pub fn max_concurrent(self, launches: u32) -> Schedule {
        self.with("max_concurrent", launches)
    }

    /// Set the time that a launch has to end after [`Schedule::overlap`] `cancel_other` has asked it to, as a
    /// duration.
    ///
    /// The default is `30s`. The task sees the request in [`Run::cancel_requested`](crate::Run::cancel_requested).
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("cancel_other").cancel_grace("2m");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["cancel_grace"], "2m");
    /// ```
    pub fn cancel_grace(self, grace: impl Into<String>) -> Schedule {
        self.text("cancel_grace", grace)
    }

    /// Choose whether a launch is run again after its run was lost with its host.
    ///
    /// The choices are `at_least_once`, the default, and `at_most_once`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").delivery("at_most_once");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["delivery"], "at_most_once");
    /// ```
    pub fn delivery(self, choice: impl Into<String>) -> Schedule {
        self.text("delivery", choice)
    }

    /// Delay each slot by up to this duration.
    ///
    /// The delay of a slot is computed from the slot, so it is the same on every host.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").jitter("30s");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["jitter"], "30s");
    /// ```
    pub fn jitter(self, max: impl Into<String>) -> Schedule {
        self.text("jitter", max)
    }

    /// Ignore all slots before an RFC 3339 time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").start_at("2027-01-01T00:00:00Z");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["start_at"], "2027-01-01T00:00:00Z");
    /// ```
    pub fn start_at(self, time: impl Into<String>) -> Schedule {
        self.text("start_at", time)
    }

    /// Ignore all slots after an RFC 3339 time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").end_at("2027-12-31T23:59:59Z");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["end_at"], "2027-12-31T23:59:59Z");
    /// ```
    pub fn end_at(self, time: impl Into<String>) -> Schedule {
        self.text("end_at", time)
    }

    /// End the schedule after this many launches. Launches by hand are not counted.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").max_launches(365);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_launches"], 365);
    /// ```
    pub fn max_launches(self, launches: u64) -> Schedule {
        self.with("max_launches", launches)
    }

    /// Pause the schedule after this many consecutive failed launches.
    ///
    /// A launch fails when its last attempt has failed or its failure is permanent.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").pause_on_failure(3);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["pause_on_failure"], 3);
    /// ```
    pub fn pause_on_failure(self, failures: u32) -> Schedule {
        self.with("pause_on_failure", failures)
    }

    /// Remove launches of the schedule from the record when they ended so long ago, whatever their outcome.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::every("1m").retention("7days");
    /// let package = Package::new("probe", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["retention"], "7days");
    /// ```
    pub fn retention(self, age: impl Into<String>) -> Schedule {
        self.text("retention", age)
    }

    /// Let an alert fire when no launch has succeeded within this time after a slot.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 3 * * *").expect_within("1h");
    /// let package = Package::new("probe", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["expect_within"], "1h");
    /// ```
    pub fn expect_within(self, time: impl Into<String>) -> Schedule {
        self.text("expect_within", time)
    }

    /// Set the context of the schedule's launches, which must be a JSON object.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::every("10s").context(serde_json::json!({"name": "Ada"}));
    /// let package = Package::new("hello", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["context"]["name"], "Ada");
    /// ```
    pub fn context(self, context: impl Into<Value>) -> Schedule {
        self.with("context", context)
    }

    /// Set the priority of the schedule's launches: 0 to 9, where 9 is the most urgent. The default is 5.
    ///
    /// It orders the launches of this package when a host has too little capacity for all of them.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").priority(9);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["priority"], 9);
    /// ```
    pub fn priority(self, priority: u32) -> Schedule {
        self.with("priority", priority)
    }

    /// Set the concurrency group of the schedule, which the operator defines in the configuration of the hosts.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").group("db");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["group"], "db");
    /// ```
    pub fn group(self, group: impl Into<String>) -> Schedule {
        self.text("group", group)
    }

    /// Limit the calls of each task in one launch, from 1 to 1000.
    ///
    /// The default is the number of the task. The `[retry]` of the operator's sidecar stands above this number.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").max_attempts(5);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_attempts"], 5);
    /// ```
    pub fn max_attempts(self, attempts: u32) -> Schedule {
        self.with("max_attempts", attempts)
    }

    /// Set the pause before the first retry of a task, as a duration.
    ///
    /// The default is `1s`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").backoff("10s");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["backoff"], "10s");
    /// ```
    pub fn backoff(self, pause: impl Into<String>) -> Schedule {
        self.text("backoff", pause)
    }

    /// Set how many times as long each pause before a retry is as the pause before it, from 1 to 10.
    ///
    /// The default is 2.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").backoff_coefficient(1.5);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["backoff_coefficient"], 1.5);
    /// ```
    pub fn backoff_coefficient(self, factor: f64) -> Schedule {
        self.with("backoff_coefficient", factor)
    }

    /// Set the longest pause before a retry, as a duration.
    ///
    /// The default is `60s`. A task may request a longer pause.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").backoff_max("5m");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["backoff_max"], "5m");
    /// ```
    pub fn backoff_max(self, pause: impl Into<String>) -> Schedule {
        self.text("backoff_max", pause)
    }

    /// Set the time after the slot, past which no retry begins, as a duration.
    ///
    /// By default, there is no such time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").retry_expiration("1h");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["retry_expiration"], "1h");
    /// ```
    pub fn retry_expiration(self, age: impl Into<String>) -> Schedule {
        self.text("retry_expiration", age)
    }

    /// Name the kinds of failure that are not retried.
    ///
    /// They are `failed`, `trapped`, `timed_out`, `memory_exceeded` and `host_error`. No other kind is ever retried.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").non_retryable(["timed_out"]);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["non_retryable"][0], "timed_out");
    /// ```
    pub fn non_retryable<I: Into<String>>(self, kinds: impl IntoIterator<Item = I>) -> Schedule {
        let kinds = kinds.into_iter().map(|kind| Value::String(kind.into()));
        self.with("non_retryable", kinds.collect::<Vec<Value>>())
    }

    /// Set the labels that a host must have to execute the launches. The operator gives a host its labels in its
    /// configuration.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").run_on(["gpu"]);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["run_on"][0], "gpu");
    /// ```
    pub fn run_on<I: Into<String>>(self, labels: impl IntoIterator<Item = I>) -> Schedule {
        let labels = labels.into_iter().map(|label| Value::String(label.into()));
        self.with("run_on", labels.collect::<Vec<Value>>())
    }
}
