//! Why a slot was launched or not: a chain of findings for each reason, as it is read from the record of a host on a
//! simulated clock. Ids are shown as `<id>`, and the version of the time zone database as `<tzdata>`.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use campanile::clock::{Clock, Timestamp};
use campanile::db::events::{self, EventKind};
use campanile::db::launches::{self, NewLaunch};
use campanile::db::runs::{self, Finish, RunEnd};
use campanile::db::schedules::{self, Pause, Revision};
use campanile::db::{Decision, HostLock, Origin, packages, trail};
use campanile::engine::schedules::{self as orders, Trigger};
use campanile::engine::why::{Finding, why};
use campanile::engine::{Engine, RecoveryLimits, Settings, Work};
use campanile::ids::{LaunchId, LaunchKind};
use campanile::package::{Folder, Packages, Rules};
use campanile::policy::{Catchup, Defaults, Delivery, Overlap, Policies};
use campanile::schedule::{DstFold, HashKey, Rule, RuleKind, RuleText, tzdata_version};
use campanile::wasm::{Limits, Sandbox, SandboxSettings};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::schedule_id;

on_both!(
    a_field_does_not_match,
    an_exclusion_leaves_it_out,
    the_clock_leaves_it_out,
    the_clock_shows_it_twice,
    an_interval_and_a_single_time_have_no_slot_then,
    it_was_before_the_schedule_or_its_start,
    it_was_after_the_end_or_the_last_launch,
    a_person_took_it_out,
    it_is_paused,
    it_fell_into_a_pause,
    it_was_missed_and_another_stands_for_it,
    it_was_missed_and_nothing_is_caught_up,
    it_was_missed_by_more_than_the_window,
    it_was_missed_and_newer_ones_are_caught_up,
    it_overlapped,
    it_waited_for_its_turn,
    it_was_launched_in_time_and_succeeded,
    it_was_a_little_late_and_waited_for_its_jitter,
    its_task_failed_again_and_again,
    its_run_was_lost_and_it_was_run_again,
    it_was_to_be_run_at_most_once,
    it_was_given_up,
    it_made_way_for_a_later_one,
    no_host_had_its_package,
    a_person_asked_for_it,
    the_timing_was_changed_and_it_has_another_name,
    it_was_removed,
    nothing_has_happened_yet,
    nobody_serves,
);

const GUESTS: &[u8] = include_bytes!("../guests/guests.wasm");

/// A host in the morning of a Monday.
struct Stage {
    test: TestDb,
    clock: Clock,
    engine: Arc<Engine>,
    _lock: HostLock,
}

/// On the morning of the play, `10:05` or `10:05:30`.
fn time(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    format!("2026-05-04T{text}{seconds}Z").parse().unwrap()
}

fn cron(expression: &str) -> RuleText {
    RuleText::new(RuleKind::Cron, expression, "UTC")
}

impl Stage {
    async fn new(test: TestDb) -> Stage {
        let clock = Clock::simulated(time("10:00"));
        let memory_bytes_max = Limits::default().memory_bytes_max;
        let sandbox = SandboxSettings {
            calls_max: 8,
            guest_threads: 2,
            // Compiled once for all of these tests.
            cache_dir: Some(PathBuf::from(env!("CARGO_TARGET_TMPDIR"))),
            memory_bytes_max,
        };
        let sandbox = Arc::new(Sandbox::new(sandbox, clock.clone()).unwrap());
        let plugins = test.place.folder.path().join("plugins");
        std::fs::create_dir(&plugins).unwrap();
        std::fs::write(plugins.join("guests.wasm"), GUESTS).unwrap();
        let rules = Rules {
            limits: Limits::default(),
            memory_bytes_most: memory_bytes_max,
            env: |_| None,
            own_paths: Vec::new(),
        };
        let mut folder = Folder::open(&plugins, Arc::clone(&sandbox), rules).unwrap();
        let settings = Settings {
            runs_max: 8,
            lease: Duration::from_secs(30),
            renew: Duration::from_secs(10),
            late: Defaults::default(),
            recovery: RecoveryLimits {
                lost_threshold: Duration::from_secs(60),
                age_max: Duration::from_secs(3_600),
                attempts_max: 3,
            },
            recovery_interval: Duration::from_secs(10),
            audit_interval: Duration::from_secs(600),
            drain: Duration::from_secs(1),
        };
        let (engine, lock) = Engine::start(
            test.db.clone(),
            clock.clone(),
            Some("tower"),
            settings,
            Packages::default(),
            sandbox,
        )
        .await
        .unwrap();
        engine.scan(&mut folder).await.unwrap();
        Stage {
            test,
            clock,
            engine,
            _lock: lock,
        }
    }

    /// Add the schedule `bell`, which calls the task `ok`.
    async fn add(&self, rule: RuleText, policies: Policies) {
        self.add_calling("ok", rule, policies).await;
    }

    async fn add_calling(&self, task: &str, rule: RuleText, policies: Policies) {
        let id = schedule_id(1);
        let now = self.clock.now();
        let parsed = Rule::parse(&rule, HashKey::of(id)).unwrap();
        let next = policies.next_slot(&parsed, now, 0);
        let says = Revision {
            schedule_id: id,
            revision: 1,
            name: "bell".to_owned(),
            package: "guests".to_owned(),
            task: Some(task.to_owned()),
            rule,
            policies: serde_json::to_string(&policies).unwrap(),
            context: r#"{"retry_after_ms": 10000}"#.to_owned(),
            since: now,
        };
        let mut tx = self.test.write().await;
        schedules::insert(&mut tx, &says, Origin::Operator, next)
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Let everything happen that is to happen by then.
    async fn pass_to(&self, text: &str) {
        self.clock.advance_to(time(text));
        self.engine.renew(time(text)).await.unwrap();
        self.engine.tick(time(text)).await.unwrap();
    }

    /// Let slots be decided, and not be taken.
    async fn decide(&self, text: &str) {
        self.clock.advance_to(time(text));
        self.engine.intend(time(text)).await.unwrap();
    }

    /// Let slots be decided and taken, by a host that then says nothing more.
    async fn begin(&self, text: &str) -> Vec<Work> {
        self.decide(text).await;
        self.engine.take(time(text)).await.unwrap()
    }

    /// Let a run succeed that was begun.
    async fn end(&self, work: &Work, text: &str) {
        self.clock.advance_to(time(text));
        let finish = Finish {
            run_id: work.run_id,
            token: work.token,
            launch_id: work.taken.launch_id,
            schedule_id: work.taken.schedule_id,
            slot: work.taken.slot,
            at: time(text),
            end: RunEnd::Succeeded { output: None },
            tasks: Vec::new(),
        };
        let mut tx = self.test.write().await;
        assert_eq!(runs::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
        tx.commit().await.unwrap();
    }

    async fn pause(&self, text: &str, note: Option<&str>, until: Option<&str>) {
        self.clock.advance_to(time(text));
        let pause = Pause {
            by: "ada",
            note,
            until: until.map(time),
        };
        let mut tx = self.test.write().await;
        orders::pause(&mut tx, "bell", pause, time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    async fn resume(&self, text: &str) {
        self.clock.advance_to(time(text));
        let mut tx = self.test.write().await;
        orders::resume(&mut tx, "bell", "ben", false, time(text))
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Require the answer for `bell`, a line for each finding.
    async fn tells(&self, at: Option<&str>, expected: &str) {
        self.tells_of("bell", at, expected).await;
    }

    async fn tells_of(&self, name: &str, at: Option<&str>, expected: &str) {
        let mut tx = self.test.read().await;
        let when = at.map(|at| at.parse().unwrap());
        let answer = why(&mut tx, name, when, self.clock.now()).await.unwrap();
        let lines: Vec<String> = answer.findings.iter().map(line).collect();
        let told = lines.join("\n");
        let expected: Vec<&str> = expected.trim().lines().map(str::trim).collect();
        assert_eq!(told, expected.join("\n"), "\n{told}\n");
    }
}

/// `kind, time: text`.
fn line(finding: &Finding) -> String {
    let at = finding.at.map_or_else(String::new, |at| format!(", {at}"));
    let text = without_ids(&finding.text).replace(tzdata_version(), "<tzdata>");
    format!("{}{at}: {text}", finding.kind)
}

/// The text with `<id>` for each id.
fn without_ids(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        let id = word.trim_matches(['(', ')', ',', ':', ';']);
        match uuid::Uuid::parse_str(id) {
            Ok(_) => word.replace(id, "<id>"),
            Err(_) => word.to_owned(),
        }
    });
    words.collect::<Vec<String>>().join(" ")
}

async fn a_field_does_not_match(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * MON-FRI", "America/New_York");
    stage.add(rule, Policies::default()).await;
    stage.pass_to("20:00").await;
    stage.tells(Some("2026-05-04T12:30:00-04:00"), "
            no_slot, 2026-05-04T16:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the hour field `2` does not allow 12
            before, 2026-05-04T06:30:00Z: the slot before it
            after, 2026-05-05T06:30:00Z: the slot after it").await;
    // A Sunday that is to come.
    stage.tells(Some("2026-05-10 02:30"), "
            no_slot, 2026-05-10T06:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the day-of-week field `MON-FRI` does not allow Sunday
            before, 2026-05-08T06:30:00Z: the slot before it
            after, 2026-05-11T06:30:00Z: the slot after it").await;
}

async fn an_exclusion_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        exclude: vec!["2026-05-04..2026-05-05".to_owned(), "12-25".to_owned()],
        ..cron("0 12 * * *")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T12:00:00Z"), "
            left_out, 2026-05-04T12:00:00Z: a slot of cron `0 12 * * *` (revision 1), if its exclusion `2026-05-04..2026-05-05` did not leave it out
            before, 2026-05-03T12:00:00Z: the slot before it
            after, 2026-05-06T12:00:00Z: the slot after it").await;
}

async fn the_clock_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York");
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2027-03-14 02:30"), "
            clock, 2027-03-14T07:00:00Z: 2027-03-14 02:30 is left out by the clock: it fires at 2027-03-14T03:00:00-04:00
            slot, 2027-03-14T07:00:00Z: a slot of cron `30 2 * * *` (revision 1)
            coming, 2027-03-14T07:00:00Z: it will be decided then").await;
    stage.tells(Some("2027-03-14 02:45"), "
            clock, 2027-03-14T07:00:00Z: the clock leaves 2027-03-14 02:45 out, and goes on here
            no_slot: no slot of cron `30 2 * * *` (revision 1): the minute field `30` does not allow 45
            before, 2027-03-13T07:30:00Z: the slot before it
            after, 2027-03-15T06:30:00Z: the slot after it").await;
}

async fn the_clock_shows_it_twice(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        dst_fold: DstFold::First,
        ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-11-01 01:45"), "
            clock: the clock shows 2026-11-01 01:45 twice, 1h apart
            clock, 2026-11-01T06:00:00Z: 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            slot, 2026-11-01T05:45:00Z: a slot of cron `45 1 * * *` (revision 1)
            coming, 2026-11-01T05:45:00Z: it will be decided then
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
    stage.tells(Some("2026-11-01T01:45:00-05:00"), "
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
}

async fn an_interval_and_a_single_time_have_no_slot_then(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        anchor: Some(time("10:00")),
        ..RuleText::new(RuleKind::Every, "10m", "UTC")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T10:15:00Z"), "
            no_slot, 2026-05-04T10:15:00Z: no slot of every `10m` (revision 1): it rings every 10 minutes of elapsed time, counted from 2026-05-04T10:00:00+00:00[UTC]
            before, 2026-05-04T10:10:00Z: the slot before it
            after, 2026-05-04T10:20:00Z: the slot after it").await;
}

async fn it_was_before_the_schedule_or_its_start(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        start_at: Some(time("10:30")),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:45").await;
    stage
        .tells(
            Some("2026-05-04T09:50:00Z"),
            "
            slot, 2026-05-04T09:50:00Z: a slot of cron `*/10 * * * *` (revision 1)
            added, 2026-05-04T10:00:00Z: the schedule was added only then, and owes nothing before",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            not_begun, 2026-05-04T10:30:00Z: `start_at`: nothing before it is launched",
        )
        .await;
}

async fn it_was_after_the_end_or_the_last_launch(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        end_at: Some(time("10:25")),
        max_launches: Some(1),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:10").await;
    stage.pass_to("10:45").await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:30:00Z"),
            "
            slot, 2026-05-04T10:30:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:25:00Z: `end_at`: nothing after it is launched",
        )
        .await;
    stage.tells(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1").await;
}

async fn a_person_took_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = stage.test.write().await;
    let skips = r#"["2026-05-04T10:10:00Z","2026-05-04T10:20:00Z"]"#;
    schedules::set_skips(&mut tx, schedule_id(1), Some(skips), time("10:00"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            taken_out, 2026-05-04T10:10:00Z: skipped by `tower` with tzdata <tzdata>: a person had taken it out").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            taken_out, 2026-05-04T10:20:00Z: a person took it out: it will be skipped, and the slots after it will not").await;
}

async fn it_is_paused(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), Some("10:35"))
        .await;
    stage.pass_to("10:15").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            undecided, 2026-05-04T10:10:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            undecided, 2026-05-04T10:20:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    stage
        .tells(
            Some("2026-05-04T10:40:00Z"),
            "
            slot, 2026-05-04T10:40:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            coming, 2026-05-04T10:40:00Z: it will be decided then",
        )
        .await;
    stage
        .tells(
            None,
            "
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            coming, 2026-05-04T10:40:00Z: the first slot after the pause",
        )
        .await;
}

async fn it_fell_into_a_pause(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), None)
        .await;
    stage.resume("10:35").await;
    stage.pause("10:45", None, None).await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            paused, 2026-05-04T10:05:00Z: by ada: the clapper is loose
            resumed, 2026-05-04T10:35:00Z: by ben; skipped, as what falls into a pause is").await;
}

async fn it_was_missed_and_another_stands_for_it(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("11:07").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 5 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:50:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `latest` and the slot 2026-05-04T11:00:00Z stands for it").await;
    stage.tells(Some("2026-05-04T11:00:00Z"), "
            slot, 2026-05-04T11:00:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T11:07:00Z: decided 7m after its time; caught up, since `catchup` is `latest`
            launched, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T11:07:00Z: by `tower`: run <id>
            called, 2026-05-04T11:07:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T11:07:00Z: succeeded").await;
    // Inside the range, and no slot.
    stage.tells(Some("2026-05-04T10:21:00Z"), "
            no_slot, 2026-05-04T10:21:00Z: no slot of cron `*/10 * * * *` (revision 1): the minute field `*/10` does not allow 21
            before, 2026-05-04T10:20:00Z: the slot before it
            after, 2026-05-04T10:30:00Z: the slot after it").await;
}

async fn it_was_missed_and_nothing_is_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::None,
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 6 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T11:00:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `none`").await;
}

async fn it_was_missed_by_more_than_the_window(test: TestDb) {
    let policies = Policies {
        catchup_window: Some(Duration::from_secs(1_800)),
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_window` is 30m").await;
}

async fn it_was_missed_and_newer_ones_are_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::All,
        catchup_max: Some(2),
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 4 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:40:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_max` is 2 and newer slots are caught up").await;
}

/// What is told of the slot 10:20, which was decided at 11:07 with those from 10:10 to 11:00.
async fn missed(test: TestDb, policies: Policies, expected: &str) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("11:07").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), expected).await;
}

async fn it_overlapped(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("* * * * *"), Policies::default()).await;
    let works = stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `tower` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now").await;
    stage.end(&works[0], "10:02:30").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `tower` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z").await;
}

async fn it_waited_for_its_turn(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        overlap: Overlap::BufferAll,
        ..Policies::default()
    };
    stage.add(cron("* * * * *"), policies).await;
    let works = stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided by `tower` with tzdata <tzdata>, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now
            outcome, 2026-05-04T10:02:00Z: queued: it waits for its turn").await;
    stage.end(&works[0], "10:02:30").await;
    stage.pass_to("10:02:40").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z
            turn, 2026-05-04T10:02:40Z: let go by `tower` with tzdata <tzdata> after 40s
            taken, 2026-05-04T10:02:40Z: by `tower`: run <id>
            called, 2026-05-04T10:02:40Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:02:40Z: succeeded").await;
}

async fn it_was_launched_in_time_and_succeeded(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    // The same by what the clock shows, and without a time.
    stage.tells(Some("2026-05-04 10:10"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    stage.tells(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            coming, 2026-05-04T10:20:00Z: the next slot").await;
}

async fn it_was_a_little_late_and_waited_for_its_jitter(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        jitter: Some(Duration::from_secs(120)),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:10:02").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided by `tower` with tzdata <tzdata>, to wait for its fire time
            outcome, 2026-05-04T10:10:02Z: queued: it waits for its fire time, 2026-05-04T10:10:10.671286Z").await;
    stage.pass_to("10:13").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided, to wait for its fire time
            waited, 2026-05-04T10:10:10.671286Z: until its fire time, 10s 671ms after its slot by its jitter
            turn, 2026-05-04T10:13:00Z: let go by `tower` with tzdata <tzdata> after 2m 58s
            taken, 2026-05-04T10:13:00Z: by `tower`: run <id>
            called, 2026-05-04T10:13:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:13:00Z: succeeded").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then, to fire 1m 42s later by its jitter").await;
}

async fn its_task_failed_again_and_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage
        .add_calling("fail_retryable", cron("*/10 * * * *"), Policies::default())
        .await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            outcome, 2026-05-04T10:10:00Z: waiting until its task is called again").await;
    stage.pass_to("10:10:10").await;
    stage.pass_to("10:10:20").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            called, 2026-05-04T10:10:10Z: task `fail_retryable`, call 2: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:20Z
            called, 2026-05-04T10:10:20Z: task `fail_retryable`, call 3: failed (told to fail) after 0s
            outcome, 2026-05-04T10:10:20Z: failed for good (told to fail)").await;
}

async fn its_run_was_lost_and_it_was_run_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pass_to("10:10:45").await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease ran out
            recovered, 2026-05-04T10:10:45Z: opened again, recovery 1 of 3: its lease ran out
            taken, 2026-05-04T10:10:45Z: by `tower`, as a recovery: run <id>
            called, 2026-05-04T10:10:45Z: task `ok`, call 2: succeeded after 0s
            outcome, 2026-05-04T10:10:45Z: succeeded, in run 2",
        )
        .await;
}

async fn it_was_to_be_run_at_most_once(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        delivery: Delivery::AtMostOnce,
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.begin("10:10").await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease ran out
            outcome, 2026-05-04T10:10:45Z: unknown: it was to be run at most once, and nobody knows what the lost run did").await;
}

async fn it_was_given_up(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pause("10:10:20", None, None).await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease ran out
            paused, 2026-05-04T10:10:20Z: by ada
            outcome, 2026-05-04T10:10:45Z: abandoned (schedule_disabled): its schedule was paused when it was to be run again").await;
}

async fn it_made_way_for_a_later_one(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        overlap: Overlap::TerminateOther,
        ..Policies::default()
    };
    stage.add(cron("* * * * *"), policies).await;
    stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:01:00Z"), "
            slot, 2026-05-04T10:01:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:01:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:01:00Z: by `tower`: run <id>
            outcome, 2026-05-04T10:02:00Z: cancelled, for the launch of 2026-05-04T10:02:00Z (<id>), which is open now").await;
}

async fn no_host_had_its_package(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = stage.test.write().await;
    packages::withdraw(&mut tx, stage.engine.host(), "guests")
        .await
        .unwrap();
    packages::mark_missing(&mut tx, time("10:05"))
        .await
        .unwrap();
    let detail = "no live host has it any more";
    events::record(
        &mut tx,
        time("10:05"),
        EventKind::PackageMissing,
        "guests",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            no_package, 2026-05-04T10:10:00Z: skipped by `tower` with tzdata <tzdata>: no live host had the package `guests` in its folder, since 2026-05-04T10:05:00Z").await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then
            no_package, 2026-05-04T10:05:00Z: no live host has the package `guests` since then",
        )
        .await;
}

async fn a_person_asked_for_it(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.clock.advance_to(time("10:03"));
    let mut tx = stage.test.write().await;
    orders::trigger(&mut tx, "bell", Trigger::default(), time("10:03"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:03:05").await;
    stage.tells(Some("2026-05-04T10:03:00Z"), "
            asked, 2026-05-04T10:03:00Z: a person or a program asked for a launch besides the slots: launch <id>
            launched, 2026-05-04T10:03:00Z: decided, to run the package `guests`
            waited, 2026-05-04T10:03:00Z: for 5s, until a host with the package `guests` had a free place
            taken, 2026-05-04T10:03:05Z: by `tower`: run <id>
            called, 2026-05-04T10:03:05Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:03:05Z: succeeded").await;
}

async fn the_timing_was_changed_and_it_has_another_name(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let id = schedule_id(1);
    let mut tx = stage.test.write().await;
    let said = schedules::revision(&mut tx, id, 1).await.unwrap().unwrap();
    let missed = NewLaunch {
        id: LaunchId::of(id, time("10:10"), LaunchKind::Schedule),
        schedule_id: id,
        schedule_revision: 1,
        kind: LaunchKind::Schedule,
        slot: time("10:10"),
        slot_local: "10:10".to_owned(),
        slot_last: time("10:10"),
        slot_count: 1,
        decision: Decision::Skipped,
        reason: Some("edited"),
        overlaps: None,
        package: "guests".to_owned(),
        digest: None,
        context: None,
        backfill_id: None,
        interval_start: time("10:00"),
        fire_time: time("10:10"),
        decided_by: None,
        claimed_at: time("10:12"),
    };
    launches::insert(&mut tx, &[missed]).await.unwrap();
    let says = Revision {
        revision: 2,
        name: "carillon".to_owned(),
        rule: cron("30 * * * *"),
        since: time("10:12"),
        ..said
    };
    let cursor = time("10:12");
    let next = Some(time("10:30"));
    assert!(
        schedules::revise(&mut tx, &says, true, Origin::Operator, cursor, next)
            .await
            .unwrap()
    );
    let detail = "revision 2: cron 30 * * * *";
    events::record(
        &mut tx,
        cursor,
        EventKind::ScheduleChanged,
        "carillon",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:15").await;
    stage
        .tells_of("bell", Some("2026-05-04T10:10:00Z"), "
            renamed, 2026-05-04T10:12:00Z: what was called `bell` is called `carillon` from then on
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            edited, 2026-05-04T10:12:00Z: skipped: the timing was changed before anybody had decided it (revision 2: cron 30 * * * *)")
        .await;
    stage
        .tells_of("carillon", Some("2026-05-04T10:40:00Z"), "
            no_slot, 2026-05-04T10:40:00Z: no slot of cron `30 * * * *` (revision 2): the minute field `30` does not allow 40
            before, 2026-05-04T10:30:00Z: the slot before it
            after, 2026-05-04T11:30:00Z: the slot after it")
        .await;
}

async fn it_was_removed(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:10").await;
    stage.clock.advance_to(time("10:25"));
    let mut tx = stage.test.write().await;
    orders::remove(&mut tx, "bell", time("10:25"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before anybody had decided it").await;
    stage
        .tells(
            Some("2026-05-04T10:30:00Z"),
            "
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched",
        )
        .await;
    stage.tells(None, "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before anybody had decided it
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched").await;
}

async fn nothing_has_happened_yet(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .tells(
            None,
            "
            coming, 2026-05-04T10:10:00Z: the next slot",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:10:00Z: it will be decided then",
        )
        .await;
}

async fn nobody_serves(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.clock.advance_to(time("10:15"));
    stage
        .tells(
            None,
            "
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `tower` gave its last sign of life then",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `tower` gave its last sign of life then",
        )
        .await;
    let mut tx = stage.test.read().await;
    assert!(trail::bearers(&mut tx, "belfry").await.unwrap().is_empty());
}
