//! Hosts after an outage: next to a backlog of thousands, on-time launches get their share of decisions, claims and permits, and
//! long-missed slots take up few rows, however many there are.

use campanile_control::reports::health;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use campanile_control::admin::schedule_admin;
use campanile_control::reports::verify::{self, Span};
use campanile_control::settings::Settings;
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{BackfillId, LaunchKind, ScheduleId};
use campanile_schedule::policy::{Catchup, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::Origin;
use campanile_store::disk::DiskSigns;
use campanile_store::launch::{self, LaunchRow, NewLaunch, RunEnd};
use campanile_store::schedules::{self, NewSchedule, Revision};
use campanile_tests::{TestDb, on_both};
use uuid::Uuid;

use crate::fixtures::{self, at, launch, revision, schedule_id};
use crate::serving::{self, NOOP, settings};

on_both!(
    slots_on_time_are_decided_first_beside_a_backlog,
    what_operators_scheduled_is_decided_before_what_packages_propose,
    the_shortest_periods_of_a_backlog_are_settled_first,
    slots_on_time_start_while_launches_of_a_backlog_wait,
    launches_on_time_are_claimed_before_a_backlog_which_keeps_four_fifths,
    launches_of_backfills_and_retries_are_not_on_time,
    launches_on_time_of_a_full_group_have_one_turn_in_five,
    slots_since_1970_are_one_row,
    a_pause_since_1970_ends_with_one_row,
    health_names_schedules_that_have_slots_to_decide,
);

fn now() -> Timestamp {
    at(10_000)
}

/// Starts a host with the package of [`NOOP`].
async fn start(test: &TestDb, settings: Settings) -> (Arc<Engine>, Clock) {
    let clock = Clock::simulated(now());
    let (engine, lock) = serving::start(test, &clock, settings, NOOP).await;
    std::mem::forget(lock);
    (engine, clock)
}

/// A schedule of the host's package with a slot every `period` from `anchor` on, undecided since `since`.
fn schedule(number: u128, period: &str, (anchor, since): (Timestamp, Timestamp)) -> NewSchedule {
    let definition = Revision {
        package: NOOP.0.to_owned(),
        rule: RuleText {
            anchor: Some(anchor),
            ..RuleText::new(RuleKind::Every, period, "UTC")
        },
        since,
        ..revision(number)
    };
    NewSchedule {
        next_slot: Some(anchor),
        definition,
        origin: Origin::Operator,
    }
}

async fn add(test: &TestDb, schedules: &[NewSchedule]) {
    let mut tx = test.write().await;
    schedules::insert_all(&mut tx, schedules).await.unwrap();
    tx.commit().await.unwrap();
}

/// Adds schedules with one missed slot each.
async fn add_missed(test: &TestDb, numbers: std::ops::Range<u128>) {
    let missed = numbers.map(|number| schedule(number, "1d", (at(1_000), at(0))));
    add(test, &missed.collect::<Vec<_>>()).await;
}

/// Adds ten-second schedules with a slot now and none before.
async fn add_on_time(test: &TestDb, numbers: std::ops::Range<u128>) {
    let on_time = numbers.map(|number| schedule(number, "10s", (now(), at(9_999))));
    add(test, &on_time.collect::<Vec<_>>()).await;
}

async fn rows(test: &TestDb) -> Vec<LaunchRow> {
    let mut tx = test.read().await;
    launch::list(&mut tx, None, 10_000).await.unwrap()
}

async fn insert(test: &TestDb, launches: &[NewLaunch]) {
    let mut tx = test.write().await;
    launch::insert(&mut tx, launches).await.unwrap();
    tx.commit().await.unwrap();
}

/// Open launches of one schedule of the host's package, one per slot.
fn open(schedule: u128, slots: std::ops::Range<u64>) -> Vec<NewLaunch> {
    let of = |slot| NewLaunch {
        package: NOOP.0.to_owned(),
        decided_by: None,
        ..launch(schedule, slot)
    };
    slots.map(of).collect()
}

async fn finish(engine: &Engine, work: &[Work], now: Timestamp) {
    let end = || RunEnd::Succeeded { output: None };
    let ends = work
        .iter()
        .map(|work| work.finished(end(), Vec::new(), now));
    engine.finish(&ends.collect::<Vec<_>>()).await.unwrap();
}

fn schedules_of(work: &[Work]) -> BTreeSet<ScheduleId> {
    work.iter().map(|work| work.launch.schedule_id).collect()
}

async fn slots_on_time_are_decided_first_beside_a_backlog(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    add_missed(&test, 1..3_001).await;
    add_on_time(&test, 5_001..5_041).await;
    // A slow machine may need several transactions.
    let on_time = async || {
        let rows = rows(&test).await;
        rows.iter()
            .filter(|row| row.scheduled_time == now())
            .count()
    };
    while on_time().await < 40 {
        assert!(
            engine.decide(now()).await.unwrap().more,
            "the backlog is decided"
        );
    }
    let decided = rows(&test).await.len();
    // Part of the backlog is decided along with each.
    assert!(
        (41..3_000).contains(&decided),
        "{decided} slots are decided"
    );
    while engine.decide(now()).await.unwrap().more {}
    assert_eq!(self::rows(&test).await.len(), 3_040);
}

async fn what_operators_scheduled_is_decided_before_what_packages_propose(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    // First all at the same slot, then with slots from some seconds ago, making a backlog.
    for (first, slot) in [(1, at(9_999)), (10_001, at(9_990))] {
        let of = |number, slot, origin| NewSchedule {
            origin,
            ..schedule(number, "1d", (slot, at(9_000)))
        };
        let proposed = (first..first + 3_000).map(|number| of(number, slot, Origin::Package));
        add(&test, &proposed.collect::<Vec<_>>()).await;
        let own = (first + 5_000..first + 5_040).map(|number| of(number, now(), Origin::File));
        add(&test, &own.collect::<Vec<_>>()).await;
        let before = rows(&test).await.len();
        let of_operators = async || {
            let rows = rows(&test).await;
            let own = rows.iter().filter(|row| row.scheduled_time == now());
            own.count() % 40
        };
        // A slow machine may need several transactions.
        while {
            assert!(engine.decide(now()).await.unwrap().more, "all is decided");
            of_operators().await > 0
        } {}
        let decided = rows(&test).await.len() - before;
        assert!(
            (41..3_000).contains(&decided),
            "{decided} slots are decided from {slot}"
        );
        while engine.decide(now()).await.unwrap().more {}
        assert_eq!(rows(&test).await.len(), before + 3_040);
    }
}

async fn the_shortest_periods_of_a_backlog_are_settled_first(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    // More than fits in one transaction, all at the same moment.
    add_missed(&test, 1..3_001).await;
    let mut second = schedule(5_001, "1s", (at(1_000), at(999)));
    let none = Policies {
        catchup: Some(Catchup::None),
        ..Policies::default()
    };
    set_policies(&mut second, &none);
    add(&test, &[second]).await;
    assert!(engine.decide(now()).await.unwrap().more);
    let mut tx = test.read().await;
    let state = schedules::state(&mut tx, schedule_id(5_001)).await.unwrap();
    assert_eq!(state.unwrap().cursor_at, now());
}

async fn slots_on_time_start_while_launches_of_a_backlog_wait(test: TestDb) {
    let (engine, _) = start(&test, settings(16)).await;
    add_missed(&test, 1..2).await;
    insert(&test, &open(1, 10..100)).await;
    let late = engine.claim(now()).await.unwrap();
    assert!(engine.is_short(), "launches of the backlog wait");
    // They leave one permit, and a slot of the same package gets it in the transaction deciding it.
    add_on_time(&test, 5_001..5_002).await;
    let (_, started) = engine.decide_and_claim(now()).await.unwrap();
    assert_eq!(schedules_of(&started), [schedule_id(5_001)].into());
    assert_eq!(late.len(), 13);
    assert!(engine.claim(now()).await.unwrap().is_empty());
}

async fn launches_on_time_are_claimed_before_a_backlog_which_keeps_four_fifths(test: TestDb) {
    let (engine, _) = start(&test, settings(16)).await;
    add_missed(&test, 1..3).await;
    insert(&test, &open(1, 10..600)).await;
    let (mut late, mut rounds) = (0, 0);
    // Every second, more launches are on time than their share allows.
    while rounds < 20 {
        rounds += 1;
        let now = now().plus(Duration::from_secs(rounds));
        let first = 10_000 + rounds * 10;
        let mut fresh = open(2, first..first + 10);
        for launch in &mut fresh {
            launch.fire_time = now;
        }
        let newest = fresh.iter().map(|launch| launch.id).collect::<Vec<_>>();
        insert(&test, &fresh).await;
        let claimed = engine.claim(now).await.unwrap();
        let on_time = claimed
            .iter()
            .filter(|work| newest.contains(&work.launch.launch_id));
        assert!(on_time.count() >= 3, "in round {rounds}");
        late += claimed
            .iter()
            .filter(|work| work.launch.schedule_id == schedule_id(1))
            .count() as u64;
        finish(&engine, &claimed, now).await;
    }
    // Of the 14 launches one package may have at a time.
    assert!(5 * late >= 4 * 13 * rounds, "{late} in {rounds} rounds");
}

async fn launches_of_backfills_and_retries_are_not_on_time(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    add_missed(&test, 1..4).await;
    insert(&test, &open(1, 10..20)).await;
    // They retry now.
    let retry = engine.claim(now()).await.unwrap();
    let end = RunEnd::Waiting { retry_at: now() };
    let ends = retry
        .iter()
        .map(|work| work.finished(end.clone(), Vec::new(), now()));
    engine.finish(&ends.collect::<Vec<_>>()).await.unwrap();
    drop(retry);
    // A backfill fires when it's decided.
    let backfill = open(2, 20..60).into_iter().map(|launch| NewLaunch {
        kind: LaunchKind::Backfill,
        backfill_id: Some(BackfillId(Uuid::from_u128(1))),
        fire_time: now(),
        ..launch
    });
    insert(&test, &backfill.collect::<Vec<_>>()).await;
    let first = engine.claim(now()).await.unwrap();
    assert!(engine.is_short());
    assert!(first.len() < 7, "{} were claimed", first.len());
    insert(&test, &open(3, 9_999..10_000)).await;
    let second = engine.claim(now()).await.unwrap();
    assert_eq!(schedules_of(&second), [schedule_id(3)].into());
}

async fn launches_on_time_of_a_full_group_have_one_turn_in_five(test: TestDb) {
    let groups = [("db".to_owned(), 1)].into();
    let (engine, _) = start(
        &test,
        Settings {
            groups,
            ..settings(8)
        },
    )
    .await;
    add_missed(&test, 1..3).await;
    let in_group = |launches: Vec<NewLaunch>| {
        let in_group = launches.into_iter().map(|launch| NewLaunch {
            group_name: Some("db".to_owned()),
            ..launch
        });
        in_group.collect::<Vec<_>>()
    };
    insert(&test, &in_group(open(1, 10..60))).await;
    insert(&test, &in_group(open(2, 9_991..10_000))).await;
    let mut order = String::new();
    for _ in 0..14 {
        let claimed = engine.claim(now()).await.unwrap();
        assert_eq!(claimed.len(), 1);
        let is_late = claimed[0].launch.schedule_id == schedule_id(1);
        order += if is_late { "l" } else { "o" };
        finish(&engine, &claimed, now()).await;
    }
    // On its first look, the host sees that the group is full.
    assert_eq!(order, "lollllolllloll");
}

fn set_policies(schedule: &mut NewSchedule, policies: &Policies) {
    schedule.definition.policies = serde_json::to_string(policies).unwrap();
}

async fn verify_all(test: &TestDb) -> verify::Verification {
    let all = Span {
        from: Timestamp::FIRST,
        to: Timestamp::LAST,
    };
    verify::verify(&test.db, all, None, now()).await.unwrap()
}

/// A schedule added while the clock was in 1970.
async fn of_1970(test: &TestDb, number: u128, rule: RuleText, policies: &Policies) {
    let since = Timestamp::EPOCH;
    let mut added = schedule(number, "5s", (since, since));
    added.definition.rule = rule;
    added.next_slot = Some(since.plus(Duration::from_secs(5)));
    set_policies(&mut added, policies);
    add(test, &[added]).await;
}

async fn slots_since_1970_are_one_row(test: TestDb) {
    let (engine, _) = start(&test, settings(8)).await;
    let none = Policies {
        catchup: Some(Catchup::None),
        misfire_grace: Some(Duration::from_secs(1)),
        ..Policies::default()
    };
    let late = Policies {
        catchup: Some(Catchup::Latest),
        ..none.clone()
    };
    let all = Policies {
        catchup: Some(Catchup::All),
        catchup_max: Some(3),
        ..none.clone()
    };
    let five = RuleText::new(RuleKind::Every, "5s", "UTC");
    let excluding = RuleText {
        exclude: vec!["* 3 * * SAT".to_owned(), "12-25".to_owned()],
        ..RuleText::new(RuleKind::Cron, "*/5 * * * * *", "Europe/London")
    };
    // The current launch, plus with `latest` and `all` the caught-up ones, plus the drops within the window.
    for (number, rule, policies, expected) in [
        (1, &five, &none, 2),
        (2, &excluding, &none, 2),
        (3, &five, &late, 4),
        (4, &excluding, &all, 6),
    ] {
        of_1970(&test, number, rule.clone(), policies).await;
        let decided = engine.decide(now()).await.unwrap();
        assert_eq!(
            (decided.decisions, decided.more),
            (expected, false),
            "{number}"
        );
        let mut tx = test.read().await;
        let state = schedules::state(&mut tx, schedule_id(number))
            .await
            .unwrap();
        assert_eq!(state.unwrap().cursor_at, now(), "{number}");
    }
    let first = rows(&test)
        .await
        .into_iter()
        .min_by_key(|row| row.scheduled_time);
    let first = first.unwrap();
    assert_eq!(
        first.scheduled_time,
        Timestamp::EPOCH.plus(Duration::from_secs(5))
    );
    let report = verify_all(&test).await;
    assert_eq!(report.faults, []);
    assert!(report.slots > 4 * 300_000_000, "{} slots", report.slots);
    // A count off by one is found.
    let mut tx = test.write().await;
    let more = "UPDATE launch SET slot_count = slot_count + 1 WHERE slot_count > 1000000 AND schedule_revision = 1";
    campanile_store::probe::execute(&mut tx, more)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let report = verify_all(&test).await;
    assert_eq!(report.faults.len(), 4, "{:?}", report.faults);
}

async fn a_pause_since_1970_ends_with_one_row(test: TestDb) {
    start(&test, settings(8)).await;
    let second = RuleText::new(RuleKind::Cron, "* * * * * *", "Europe/London");
    of_1970(&test, 1, second, &Policies::default()).await;
    let skipped = at(5_000);
    let mut tx = test.write().await;
    let skips = serde_json::to_string(&[skipped]).unwrap();
    schedules::set_skips(&mut tx, schedule_id(1), Some(&skips), now())
        .await
        .unwrap();
    let name = "schedule-1";
    let pause = fixtures::PAUSE;
    schedule_admin::pause(&mut tx, name, pause, at(4_000))
        .await
        .unwrap();
    schedule_admin::resume(&mut tx, name, "the operator", false, now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut rows = rows(&test).await;
    rows.sort_by_key(|row| row.scheduled_time);
    let counted = rows
        .iter()
        .map(|row| (row.reason.as_deref().unwrap(), row.slot_count));
    let of_1970 = 1_800_000_000 + 4_000 - 1;
    let expected = [
        ("overdue", of_1970),
        ("paused", 1_000),
        ("skipped_once", 1),
        ("paused", 5_000),
    ];
    assert_eq!(counted.collect::<Vec<_>>(), expected);
}

async fn health_names_schedules_that_have_slots_to_decide(test: TestDb) {
    let (_, _) = start(&test, settings(8)).await;
    add_missed(&test, 1..3).await;
    let mut tx = test.read().await;
    let health = health::read(&mut tx, now(), &settings(8), 0, DiskSigns::default())
        .await
        .unwrap();
    let since = at(1_000);
    let expected =
        format!("the schedule `schedule-1` has slots since {since} that no host has decided");
    assert!(health.notes.contains(&expected), "{:?}", health.notes);
}
