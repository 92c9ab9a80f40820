//! When a package proposes to be launched.

use serde::Serialize;
use serde_json::{Map, Value};

/// A schedule that a package proposes: when it wants to be launched, with what context, and by what policies.
///
/// What is proposed is checked when the package is loaded, and the operator may turn it off, change it or set others.
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
    /// By the keys of the manifest. What is not said is the host's to decide.
    said: Map<String, Value>,
}

impl Schedule {
    /// By a cron expression of 5 fields, or 6 with seconds first.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::cron("0 2 * * *"));
    /// assert_eq!(package.manifest()["schedules"][0]["cron"], "0 2 * * *");
    /// ```
    pub fn cron(expression: impl Into<String>) -> Schedule {
        Schedule::by("cron", expression)
    }

    /// Again and again, this far apart: a number with a unit, such as `10s`, `15m`, `1d`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::every("15m"));
    /// assert_eq!(package.manifest()["schedules"][0]["every"], "15m");
    /// ```
    pub fn every(interval: impl Into<String>) -> Schedule {
        Schedule::by("every", interval)
    }

    /// Once, at an RFC 3339 time.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::at("2027-01-01T00:00:00Z"));
    /// assert_eq!(package.manifest()["schedules"][0]["at"], "2027-01-01T00:00:00Z");
    /// ```
    pub fn at(time: impl Into<String>) -> Schedule {
        Schedule::by("at", time)
    }

    /// Again and again, each launch this long after the one before has ended: `10m`.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let package = Package::new("backup", "0.1.0").schedule(Schedule::after_completion("10m"));
    /// assert_eq!(package.manifest()["schedules"][0]["after_completion"], "10m");
    /// ```
    pub fn after_completion(pause: impl Into<String>) -> Schedule {
        Schedule::by("after_completion", pause)
    }

    fn by(rule: &str, text: impl Into<String>) -> Schedule {
        Schedule { said: Map::new() }.text(rule, text)
    }

    fn text(self, key: &str, text: impl Into<String>) -> Schedule {
        self.say(key, text.into())
    }

    fn say(mut self, key: &str, value: impl Into<Value>) -> Schedule {
        self.said.insert(key.to_owned(), value.into());
        self
    }

    /// A name of its own. Without one it has the package's, numbered if there are several.
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

    /// Launch this one task and those it depends on, rather than the whole package.
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

    /// The IANA zone in which a cron expression is meant. UTC if not said, never the machine's own.
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

    /// Where the grid of [`Schedule::every`] begins, as RFC 3339.
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

    /// Which days match when a cron expression restricts both day fields: `or`, as in every cron, or `and`.
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

    /// What becomes of a time of day that the clock leaves out: `shift` to the end of the gap, the default, or `skip`.
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

    /// In which pass a time of day fires that the clock shows twice: the `first`, the default, the `second` or `both`.
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

    /// Local times that are left out: dates (`2026-12-25`), dates of every year (`12-25`), ranges of days
    /// (`2026-12-24..2027-01-01`), or cron expressions of 5 fields. Said twice, all of them are.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").exclude(["12-25", "01-01"]);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["exclude"][1], "01-01");
    /// ```
    pub fn exclude<I: Into<String>>(self, times: impl IntoIterator<Item = I>) -> Schedule {
        let before = self.said.get("exclude").and_then(Value::as_array);
        let mut all = before.cloned().unwrap_or_default();
        all.extend(times.into_iter().map(|time| Value::String(time.into())));
        self.say("exclude", all)
    }

    /// Which slots are launched after all that were missed while no host ran: the `latest`, the default, the `earliest`,
    /// `all` or `none`.
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

    /// A slot missed by more than this is not caught up: a number with a unit. The host's default is `24h`.
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

    /// How many missed slots are caught up at most, the newest, with [`Schedule::catchup`] `all`: 1 to 1000, and 100 if not said.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").catchup("all").catchup_max(12);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["catchup_max"], 12);
    /// ```
    pub fn catchup_max(self, slots: u32) -> Schedule {
        self.say("catchup_max", slots)
    }

    /// The time between launches that are caught up: a number with a unit. None if not said.
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

    /// A slot that is late by more than this was missed: a number with a unit. The host's default is `5m`.
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

    /// What becomes of a slot while a launch of this schedule goes on: `skip` it, the default; `buffer_one` or `buffer_all`,
    /// to wait; `cancel_other`, to ask the other to end, or `terminate_other`, to end it; `allow`, both go on.
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

    /// How many launches wait at most, with [`Schedule::overlap`] `buffer_all`. 100 if not said.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("buffer_all").max_buffered(10);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_buffered"], 10);
    /// ```
    pub fn max_buffered(self, launches: u32) -> Schedule {
        self.say("max_buffered", launches)
    }

    /// Which launch waits, with [`Schedule::overlap`] `buffer_one`: the `first`, the default, or the `latest`.
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

    /// How many launches go on at the same time at most, with [`Schedule::overlap`] `allow`. Any number if not said.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").overlap("allow").max_concurrent(4);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_concurrent"], 4);
    /// ```
    pub fn max_concurrent(self, launches: u32) -> Schedule {
        self.say("max_concurrent", launches)
    }

    /// How long a launch may take that was asked to end, with [`Schedule::overlap`] `cancel_other`: a number with a unit.
    /// `30s` if not said. A task sees the question as [`Run::cancel_requested`](crate::Run::cancel_requested).
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

    /// Whether a launch whose run was lost with its host is run again: `at_least_once`, the default, or `at_most_once`.
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

    /// Each slot fires up to this long after its time: a number with a unit. The same slot always equally late.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").jitter("30s");
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["jitter"], "30s");
    /// ```
    pub fn jitter(self, most: impl Into<String>) -> Schedule {
        self.text("jitter", most)
    }

    /// No slot before this, as RFC 3339.
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

    /// No slot after this, as RFC 3339.
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

    /// It ends after so many launches, those by hand not counted.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").max_launches(365);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["max_launches"], 365);
    /// ```
    pub fn max_launches(self, launches: u64) -> Schedule {
        self.say("max_launches", launches)
    }

    /// It is paused after so many launches in a row that failed for good.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::cron("0 2 * * *").pause_on_failure(3);
    /// let package = Package::new("backup", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["pause_on_failure"], 3);
    /// ```
    pub fn pause_on_failure(self, failures: u32) -> Schedule {
        self.say("pause_on_failure", failures)
    }

    /// The context of its launches: a JSON object.
    ///
    /// ```
    /// # use campanile_sdk::{Package, Schedule};
    /// let schedule = Schedule::every("10s").context(serde_json::json!({"name": "Ada"}));
    /// let package = Package::new("hello", "0.1.0").schedule(schedule);
    /// assert_eq!(package.manifest()["schedules"][0]["context"]["name"], "Ada");
    /// ```
    pub fn context(self, context: impl Into<Value>) -> Schedule {
        self.say("context", context)
    }
}
