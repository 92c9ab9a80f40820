//! A host on a simulated clock, minute by minute over the changes of local clocks.
//!
//! The recorded launches are printed and compared with tables that were written by hand. The rules alone must
//! give the same slots.

use std::collections::BTreeMap;
use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::rule::{DstFold, DstGap, HashKey, Rule, RuleKind, RuleText};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::schedules::Revision;
use campanile_store::{Decision, LaunchStatus, Origin};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{insert_schedule, schedule_id};
use crate::host_steps::tick_all;
use crate::serving::{self, NOOP, settings};

on_both!(
    schedules_fire_as_expected_over_the_spring_change_in_new_york,
    schedules_fire_as_expected_over_the_autumn_change_in_new_york,
    schedules_fire_as_expected_over_the_half_hour_gap_in_lord_howe,
    schedules_fire_as_expected_over_the_half_hour_fold_in_lord_howe,
);

/// The simulated time of each test, in minutes.
const MINUTES: u64 = 180;

/// A change of local clocks, and the expected launches around it.
struct ClockChange {
    timezone: &'static str,
    start: &'static str,
    /// When the daily schedules fire: minute and hour, as in cron.
    daily: &'static str,
    /// An earlier day at the same local time, the anchor of the interval of one day.
    anchor: &'static str,
    /// One line per slot: the slot in UTC, the local time, and the launched schedules.
    expected: &'static str,
}

async fn schedules_fire_as_expected_over_the_spring_change_in_new_york(test: TestDb) {
    let change = ClockChange {
        timezone: "America/New_York",
        start: "2026-03-08T00:35:00-05:00",
        daily: "30 2",
        anchor: "2026-03-06T02:30:00-05:00",
        expected: "
2026-03-08T05:45:00Z 00:45-05:00 hourly wildcard
2026-03-08T06:00:00Z 01:00-05:00 wildcard
2026-03-08T06:15:00Z 01:15-05:00 wildcard
2026-03-08T06:18:00Z 01:18-05:00 hashed
2026-03-08T06:30:00Z 01:30-05:00 wildcard
2026-03-08T06:45:00Z 01:45-05:00 hourly wildcard
2026-03-08T06:48:00Z 01:48-05:00 hashed
2026-03-08T07:00:00Z 03:00-04:00 both daily default hashed second wildcard
2026-03-08T07:15:00Z 03:15-04:00 wildcard
2026-03-08T07:30:00Z 03:30-04:00 wildcard
2026-03-08T07:45:00Z 03:45-04:00 hourly wildcard
2026-03-08T08:00:00Z 04:00-04:00 wildcard
2026-03-08T08:15:00Z 04:15-04:00 wildcard
2026-03-08T08:30:00Z 04:30-04:00 wildcard",
    };
    change.check(test).await;
}

async fn schedules_fire_as_expected_over_the_autumn_change_in_new_york(test: TestDb) {
    let change = ClockChange {
        timezone: "America/New_York",
        start: "2026-11-01T00:35:00-04:00",
        daily: "45 1",
        anchor: "2026-10-30T01:45:00-04:00",
        expected: "
2026-11-01T04:45:00Z 00:45-04:00 hourly wildcard
2026-11-01T05:00:00Z 01:00-04:00 wildcard
2026-11-01T05:15:00Z 01:15-04:00 wildcard
2026-11-01T05:18:00Z 01:18-04:00 hashed
2026-11-01T05:30:00Z 01:30-04:00 wildcard
2026-11-01T05:45:00Z 01:45-04:00 both daily default hourly skip wildcard
2026-11-01T05:48:00Z 01:48-04:00 hashed
2026-11-01T06:00:00Z 01:00-05:00 wildcard
2026-11-01T06:15:00Z 01:15-05:00 wildcard
2026-11-01T06:30:00Z 01:30-05:00 wildcard
2026-11-01T06:45:00Z 01:45-05:00 both hourly second wildcard
2026-11-01T07:00:00Z 02:00-05:00 wildcard
2026-11-01T07:15:00Z 02:15-05:00 wildcard
2026-11-01T07:18:00Z 02:18-05:00 hashed
2026-11-01T07:30:00Z 02:30-05:00 wildcard",
    };
    change.check(test).await;
}

/// The local clock skips half an hour.
async fn schedules_fire_as_expected_over_the_half_hour_gap_in_lord_howe(test: TestDb) {
    let change = ClockChange {
        timezone: "Australia/Lord_Howe",
        start: "2026-10-04T00:35:00+10:30",
        daily: "15 2",
        anchor: "2026-10-02T02:15:00+10:30",
        expected: "
2026-10-03T14:15:00Z 00:45+10:30 hourly wildcard
2026-10-03T14:30:00Z 01:00+10:30 wildcard
2026-10-03T14:45:00Z 01:15+10:30 wildcard
2026-10-03T14:48:00Z 01:18+10:30 hashed
2026-10-03T15:00:00Z 01:30+10:30 wildcard
2026-10-03T15:15:00Z 01:45+10:30 hourly wildcard
2026-10-03T15:18:00Z 01:48+10:30 hashed
2026-10-03T15:30:00Z 02:30+11:00 both daily default hashed second wildcard
2026-10-03T15:45:00Z 02:45+11:00 wildcard
2026-10-03T15:48:00Z 02:48+11:00 hashed
2026-10-03T16:00:00Z 03:00+11:00 wildcard
2026-10-03T16:15:00Z 03:15+11:00 hourly wildcard
2026-10-03T16:30:00Z 03:30+11:00 wildcard
2026-10-03T16:45:00Z 03:45+11:00 wildcard
2026-10-03T17:00:00Z 04:00+11:00 wildcard",
    };
    change.check(test).await;
}

/// The local clock repeats half an hour.
async fn schedules_fire_as_expected_over_the_half_hour_fold_in_lord_howe(test: TestDb) {
    let change = ClockChange {
        timezone: "Australia/Lord_Howe",
        start: "2026-04-05T00:35:00+11:00",
        daily: "45 1",
        anchor: "2026-04-03T01:45:00+11:00",
        expected: "
2026-04-04T13:45:00Z 00:45+11:00 hourly wildcard
2026-04-04T14:00:00Z 01:00+11:00 wildcard
2026-04-04T14:15:00Z 01:15+11:00 wildcard
2026-04-04T14:18:00Z 01:18+11:00 hashed
2026-04-04T14:30:00Z 01:30+11:00 wildcard
2026-04-04T14:45:00Z 01:45+11:00 both daily default hourly skip wildcard
2026-04-04T14:48:00Z 01:48+11:00 hashed
2026-04-04T15:00:00Z 01:30+10:30 wildcard
2026-04-04T15:15:00Z 01:45+10:30 both second wildcard
2026-04-04T15:30:00Z 02:00+10:30 wildcard
2026-04-04T15:45:00Z 02:15+10:30 hourly wildcard
2026-04-04T15:48:00Z 02:18+10:30 hashed
2026-04-04T16:00:00Z 02:30+10:30 wildcard
2026-04-04T16:15:00Z 02:45+10:30 wildcard
2026-04-04T16:18:00Z 02:48+10:30 hashed
2026-04-04T16:30:00Z 03:00+10:30 wildcard",
    };
    change.check(test).await;
}

impl ClockChange {
    fn start(&self) -> Timestamp {
        self.start.parse().unwrap()
    }

    fn end(&self) -> Timestamp {
        self.start().plus(Duration::from_secs(MINUTES * 60))
    }

    /// Run a host over the clock change and check the launches that it recorded.
    async fn check(&self, test: TestDb) {
        let clock = Clock::simulated(self.start());
        let (engine, _lock) = serving::start(&test, &clock, settings(8), NOOP).await;
        let rules = self.add_schedules(&test).await;
        let mut launched = 0;
        for minute in 1..=MINUTES {
            let now = self.start().plus(Duration::from_secs(minute * 60));
            clock.advance_to(now);
            let tick = tick_all(&engine, now).await;
            assert_eq!(
                (tick.claimed, tick.finished),
                (tick.decisions, tick.decisions)
            );
            launched += tick.decisions;
        }
        let mut tx = test.read().await;
        let mut rows = launch::list(&mut tx, None, 1_000).await.unwrap();
        drop(tx);
        rows.sort_by_key(|row| (row.scheduled_time, row.schedule.clone()));
        print(&rows);
        assert_eq!(rows.len(), launched);
        assert_eq!(table(&rows), self.expected.trim_start());
        for row in &rows {
            let found = (row.decision, row.status, row.slot_count, row.attempts);
            let expected = (Decision::Launched, LaunchStatus::Succeeded, 1, 1);
            assert_eq!(found, expected, "{row:?}");
            assert_eq!(row.fire_time, row.scheduled_time);
            assert_eq!(row.finished_at, Some(row.scheduled_time));
        }
        for (name, rule) in rules {
            let of_rule: Vec<Timestamp> = rule.slots(self.start(), self.end()).collect();
            let of_host: Vec<Timestamp> = rows
                .iter()
                .filter(|row| row.schedule == name)
                .map(|row| row.scheduled_time)
                .collect();
            assert_eq!(of_host, of_rule, "{name}");
        }
    }

    /// Return the rules of the schedules, by name.
    fn rules(&self) -> [(&'static str, RuleText); 8] {
        let daily = format!("{} * * *", self.daily);
        let new = |kind, expression: &str| RuleText::new(kind, expression, self.timezone);
        let cron = |expression: &str| new(RuleKind::Cron, expression);
        let folded = |dst_fold| RuleText {
            dst_fold,
            ..cron(&daily)
        };
        let every = |expression, anchor: &str| RuleText {
            anchor: Some(anchor.parse().unwrap()),
            ..new(RuleKind::Every, expression)
        };
        [
            ("wildcard", cron("*/15 * * * *")),
            ("default", cron(&daily)),
            (
                "skip",
                RuleText {
                    dst_gap: DstGap::Skip,
                    ..cron(&daily)
                },
            ),
            ("second", folded(DstFold::Second)),
            ("both", folded(DstFold::Both)),
            // The hash of schedule 5 gives the minutes 18 and 48.
            ("hashed", cron("H/30 1,2 * * *")),
            (
                "hourly",
                every(
                    "1h",
                    &self.start().plus(Duration::from_secs(600)).to_string(),
                ),
            ),
            ("daily", every("1d", self.anchor)),
        ]
    }

    async fn add_schedules(&self, test: &TestDb) -> Vec<(&'static str, Rule)> {
        let mut tx = test.write().await;
        let mut rules = Vec::new();
        for ((name, text), number) in self.rules().into_iter().zip(0..) {
            let id = schedule_id(number);
            let rule = Rule::parse(&text, HashKey::of(id)).unwrap();
            let revision = Revision {
                schedule_id: id,
                revision: 1,
                name: name.to_owned(),
                package: "noop".to_owned(),
                task: None,
                rule: text,
                policies: "{}".to_owned(),
                defaults: "{}".to_owned(),
                args: None,
                context: "{}".to_owned(),
                since: self.start(),
            };
            let next = rule.next(self.start());
            insert_schedule(&mut tx, &revision, Origin::Operator, next)
                .await
                .unwrap();
            rules.push((name, rule));
        }
        tx.commit().await.unwrap();
        rules
    }
}

fn print(rows: &[LaunchRow]) {
    for row in rows {
        println!(
            "{} {:<47} {:<6} {} {}",
            row.scheduled_time, row.scheduled_local, row.schedule, row.decision, row.status
        );
    }
}

/// Return one line per slot with the schedules that were launched.
fn table(rows: &[LaunchRow]) -> String {
    let mut lines: BTreeMap<Timestamp, String> = BTreeMap::new();
    for row in rows {
        // `2026-03-08T03:00:00-04:00[…]` is shown as `03:00-04:00`.
        let local = row.scheduled_local.as_str();
        let line_start = || {
            format!(
                "{} {}{}",
                row.scheduled_time,
                &local[11..16],
                &local[19..25]
            )
        };
        let line = lines.entry(row.scheduled_time).or_insert_with(line_start);
        line.push(' ');
        line.push_str(&row.schedule);
    }
    let lines: Vec<String> = lines.into_values().collect();
    lines.join("\n")
}
