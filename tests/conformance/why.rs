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
        if let Ok(folder) = std::env::var("WHY_COLLECT") {
            let number = expected.trim();
            std::fs::write(format!("{folder}/{number}"), &told).unwrap();
            return;
        }
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
    stage.tells(Some("2026-05-04T12:30:00-04:00"), "@1").await;
    // A Sunday that is to come.
    stage.tells(Some("2026-05-10 02:30"), "@2").await;
}

async fn an_exclusion_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        exclude: vec!["2026-05-04..2026-05-05".to_owned(), "12-25".to_owned()],
        ..cron("0 12 * * *")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T12:00:00Z"), "@3").await;
}

async fn the_clock_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York");
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2027-03-14 02:30"), "@4").await;
    stage.tells(Some("2027-03-14 02:45"), "@5").await;
}

async fn the_clock_shows_it_twice(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        dst_fold: DstFold::First,
        ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-11-01 01:45"), "@6").await;
    stage.tells(Some("2026-11-01T01:45:00-05:00"), "@7").await;
}

async fn an_interval_and_a_single_time_have_no_slot_then(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        anchor: Some(time("10:00")),
        ..RuleText::new(RuleKind::Every, "10m", "UTC")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T10:15:00Z"), "@8").await;
}

async fn it_was_before_the_schedule_or_its_start(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        start_at: Some(time("10:30")),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:45").await;
    stage.tells(Some("2026-05-04T09:50:00Z"), "@9").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@10").await;
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
    stage.tells(Some("2026-05-04T10:20:00Z"), "@11").await;
    stage.tells(Some("2026-05-04T10:30:00Z"), "@12").await;
    stage.tells(None, "@13").await;
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
    stage.tells(Some("2026-05-04T10:10:00Z"), "@14").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@15").await;
}

async fn it_is_paused(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), Some("10:35"))
        .await;
    stage.pass_to("10:15").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@16").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@17").await;
    stage.tells(Some("2026-05-04T10:40:00Z"), "@18").await;
    stage.tells(None, "@19").await;
}

async fn it_fell_into_a_pause(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), None)
        .await;
    stage.resume("10:35").await;
    stage.pause("10:45", None, None).await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@20").await;
}

async fn it_was_missed_and_another_stands_for_it(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("11:07").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@21").await;
    stage.tells(Some("2026-05-04T11:00:00Z"), "@22").await;
    // Inside the range, and no slot.
    stage.tells(Some("2026-05-04T10:21:00Z"), "@23").await;
}

async fn it_was_missed_and_nothing_is_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::None,
        ..Policies::default()
    };
    missed(test, policies, "@24").await;
}

async fn it_was_missed_by_more_than_the_window(test: TestDb) {
    let policies = Policies {
        catchup_window: Some(Duration::from_secs(1_800)),
        ..Policies::default()
    };
    missed(test, policies, "@25").await;
}

async fn it_was_missed_and_newer_ones_are_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::All,
        catchup_max: Some(2),
        ..Policies::default()
    };
    missed(test, policies, "@26").await;
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
    stage.tells(Some("2026-05-04T10:02:00Z"), "@27").await;
    stage.end(&works[0], "10:02:30").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "@28").await;
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
    stage.tells(Some("2026-05-04T10:02:00Z"), "@29").await;
    stage.end(&works[0], "10:02:30").await;
    stage.pass_to("10:02:40").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "@30").await;
}

async fn it_was_launched_in_time_and_succeeded(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@31").await;
    // The same by what the clock shows, and without a time.
    stage.tells(Some("2026-05-04 10:10"), "@31").await;
    stage.tells(None, "@32").await;
}

async fn it_was_a_little_late_and_waited_for_its_jitter(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        jitter: Some(Duration::from_secs(120)),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:10:02").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@33").await;
    stage.pass_to("10:13").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@34").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@35").await;
}

async fn its_task_failed_again_and_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage
        .add_calling("fail_retryable", cron("*/10 * * * *"), Policies::default())
        .await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@36").await;
    stage.pass_to("10:10:10").await;
    stage.pass_to("10:10:20").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@37").await;
}

async fn its_run_was_lost_and_it_was_run_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@38").await;
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
    stage.tells(Some("2026-05-04T10:10:00Z"), "@39").await;
}

async fn it_was_given_up(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pause("10:10:20", None, None).await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@40").await;
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
    stage.tells(Some("2026-05-04T10:01:00Z"), "@41").await;
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
    tx.commit().await.unwrap();
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@42").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "@43").await;
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
    stage.tells(Some("2026-05-04T10:03:00Z"), "@44").await;
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
        .tells_of("bell", Some("2026-05-04T10:10:00Z"), "@45")
        .await;
    stage
        .tells_of("carillon", Some("2026-05-04T10:40:00Z"), "@46")
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
    stage.tells(Some("2026-05-04T10:20:00Z"), "@47").await;
    stage.tells(Some("2026-05-04T10:30:00Z"), "@48").await;
    stage.tells(None, "@49").await;
}

async fn nothing_has_happened_yet(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.tells(None, "@50").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@51").await;
}

async fn nobody_serves(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.clock.advance_to(time("10:15"));
    stage.tells(None, "@52").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "@53").await;
    let mut tx = stage.test.read().await;
    assert!(trail::bearers(&mut tx, "belfry").await.unwrap().is_empty());
}
