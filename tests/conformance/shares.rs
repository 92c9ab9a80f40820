//! Which launches a host claims when it cannot claim all: packages share its capacity, priorities order the launches of a
//! package, and concurrency groups bound runs on all hosts.

use campanile_control::reports::health;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use campanile_control::settings::Settings;
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_store::disk::DiskSigns;
use campanile_store::launch::{self, NewLaunch, RunEnd};
use campanile_tests::{Backend, TestDb, fresh_db, on_both, run_case};

use crate::fixtures::{self, add_schedule, launch};
use crate::serving::{self, NOOP, settings};

on_both!(
    packages_share_what_is_free,
    the_most_urgent_launches_of_a_package_come_first,
    a_proposed_launch_counts_apart,
    a_group_runs_at_most_its_max,
    two_hosts_never_run_more_of_a_group_than_its_max,
    a_full_group_holds_up_no_other_launch,
    the_urgent_launches_of_a_group_come_first_and_proposed_ones_last,
    a_retry_of_a_group_waits_for_room,
    a_claim_that_finds_nothing_leaves_its_group_free,
    retries_of_many_packages_share_what_is_free,
    health_names_a_group_that_is_full_for_too_long,
    the_next_wake_knows_launches_of_groups,
);

fn now() -> Timestamp {
    fixtures::at(10_000)
}

/// Start the host `name`, which has the packages `a`, `b` and `c`, with the schedules 1 to 9.
async fn start(test: &TestDb, name: &str, settings: Settings) -> Arc<Engine> {
    let clock = Clock::simulated(now());
    let place = (name, "plugins");
    let (engine, lock, _) = serving::start_named(test, &clock, settings, NOOP, place).await;
    std::mem::forget(lock);
    let mut tx = test.write().await;
    for package in ["a", "b", "c"] {
        fixtures::publish(&mut tx, engine.host(), package, package.as_bytes(), now()).await;
    }
    tx.commit().await.unwrap();
    engine
}

async fn add_schedules(test: &TestDb) {
    let mut tx = test.write().await;
    for number in 1..=9 {
        add_schedule(&mut tx, number, 10).await;
    }
    tx.commit().await.unwrap();
}

async fn insert(test: &TestDb, launches: &[NewLaunch]) {
    let mut tx = test.write().await;
    launch::insert(&mut tx, launches).await.unwrap();
    tx.commit().await.unwrap();
}

/// Launches of one package, one for each of the slots `from` to `to`.
fn of_package(package: &str, schedule: u128, from: u64, to: u64) -> Vec<NewLaunch> {
    let of = |slot| NewLaunch {
        package: package.to_owned(),
        decided_by: None,
        ..launch(schedule, slot)
    };
    (from..=to).map(of).collect()
}

/// The same launches in a group.
fn in_group(group: &str, launches: Vec<NewLaunch>) -> Vec<NewLaunch> {
    let with_group = |launch| NewLaunch {
        group_name: Some(group.to_owned()),
        ..launch
    };
    launches.into_iter().map(with_group).collect()
}

fn with_priority(priority: i64, launches: Vec<NewLaunch>) -> Vec<NewLaunch> {
    let with_priority = |launch| NewLaunch { priority, ..launch };
    launches.into_iter().map(with_priority).collect()
}

/// Claim once; return how many runs of each package began.
async fn claim(engine: &Engine) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for work in engine.claim(now()).await.unwrap() {
        *counts.entry(work.launch.package.clone()).or_default() += 1;
    }
    counts
}

fn counts(expected: &[(&str, usize)]) -> BTreeMap<String, usize> {
    let owned = expected
        .iter()
        .map(|(name, count)| ((*name).to_owned(), *count));
    owned.collect()
}

fn with_groups(settings: Settings, groups: &[(&str, u32)]) -> Settings {
    let groups = groups.iter().map(|(name, max)| ((*name).to_owned(), *max));
    Settings {
        groups: groups.collect(),
        ..settings
    }
}

async fn finish(engine: &Engine, work: &Work) {
    let end = RunEnd::Succeeded { output: None };
    engine
        .finish(&[work.finished(end, Vec::new(), now())])
        .await
        .unwrap();
}

async fn packages_share_what_is_free(test: TestDb) {
    let engine = start(&test, "host-1", settings(8)).await;
    add_schedules(&test).await;
    insert(&test, &of_package("a", 1, 10, 60)).await;
    insert(&test, &of_package("b", 2, 1_000, 1_002)).await;
    insert(&test, &of_package("c", 3, 2_000, 2_000)).await;
    // Each takes its share of the seven permits for late launches; the next step takes what `c` leaves.
    assert_eq!(
        claim(&engine).await,
        counts(&[("a", 3), ("b", 2), ("c", 1)])
    );
}

async fn the_most_urgent_launches_of_a_package_come_first(test: TestDb) {
    let engine = start(&test, "host-1", settings(4)).await;
    add_schedules(&test).await;
    insert(&test, &with_priority(0, of_package("a", 1, 10, 30))).await;
    insert(&test, &of_package("a", 2, 40, 60)).await;
    insert(&test, &with_priority(9, of_package("a", 3, 100, 102))).await;
    let claimed = engine.claim(now()).await.unwrap();
    let mut slots: Vec<i64> = claimed
        .iter()
        .map(|work| work.launch.scheduled_time.micros() / 1_000_000)
        .collect();
    slots.sort_unstable();
    let epoch = fixtures::at(0).micros() / 1_000_000;
    let slots: Vec<i64> = slots.iter().map(|slot| slot - epoch).collect();
    assert_eq!(slots, [40, 100, 101, 102]);
}

async fn a_proposed_launch_counts_apart(test: TestDb) {
    let engine = start(&test, "host-1", settings(8)).await;
    add_schedules(&test).await;
    let proposed = |launch| NewLaunch {
        proposed: true,
        ..launch
    };
    let flood = of_package("a", 1, 10, 60).into_iter().map(proposed);
    insert(&test, &flood.collect::<Vec<_>>()).await;
    // Half of the host at most.
    assert_eq!(claim(&engine).await, counts(&[("a", 4)]));
}

async fn a_group_runs_at_most_its_max(test: TestDb) {
    let engine = start(&test, "host-1", with_groups(settings(8), &[("db", 2)])).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 13))).await;
    insert(&test, &in_group("db", of_package("b", 2, 14, 15))).await;
    // A group that this host does not know runs one at a time.
    insert(&test, &in_group("unknown", of_package("c", 3, 10, 12))).await;
    let first = engine.claim(now()).await.unwrap();
    assert_eq!(first.len(), 3);
    assert_eq!(claim(&engine).await, counts(&[]));
    finish(&engine, &first[0]).await;
    assert_eq!(engine.claim(now()).await.unwrap().len(), 1);
    assert_eq!(claim(&engine).await, counts(&[]));
}

async fn two_hosts_never_run_more_of_a_group_than_its_max(test: TestDb) {
    let settings = with_groups(settings(8), &[("db", 3)]);
    let first = start(&test, "host-1", settings.clone()).await;
    // One process serves a SQLite file: there, the first host claims twice at the same time.
    let second = match test.backend() {
        Backend::Sqlite => Arc::clone(&first),
        Backend::Postgres => start(&test, "host-2", settings).await,
    };
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 69))).await;
    let work_off = async |engine: &Engine| {
        let mut done = 0;
        for _ in 0..400 {
            let claimed = engine.claim(now()).await.unwrap();
            let mut tx = test.read().await;
            let running = launch::running_in_group(&mut tx, "db").await.unwrap();
            drop(tx);
            assert!(running <= 3, "{running} runs of the group");
            for work in &claimed {
                finish(engine, work).await;
            }
            done += claimed.len();
            tokio::task::yield_now().await;
        }
        done
    };
    let (of_first, of_second) = tokio::join!(work_off(&first), work_off(&second));
    assert_eq!(of_first + of_second, 60);
}

async fn a_full_group_holds_up_no_other_launch(test: TestDb) {
    let engine = start(&test, "host-1", with_groups(settings(8), &[("db", 1)])).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 309))).await;
    insert(&test, &of_package("a", 2, 1_000, 1_000)).await;
    insert(&test, &of_package("b", 3, 1_001, 1_001)).await;
    assert_eq!(claim(&engine).await, counts(&[("a", 2), ("b", 1)]));
    assert_eq!(claim(&engine).await, counts(&[]));
}

async fn the_urgent_launches_of_a_group_come_first_and_proposed_ones_last(test: TestDb) {
    let engine = start(&test, "host-1", with_groups(settings(8), &[("db", 3)])).await;
    add_schedules(&test).await;
    let proposed = |launch| NewLaunch {
        proposed: true,
        priority: 9,
        ..launch
    };
    let flood = in_group("db", of_package("a", 1, 10, 60));
    insert(&test, &flood.into_iter().map(proposed).collect::<Vec<_>>()).await;
    insert(&test, &in_group("db", of_package("b", 2, 100, 100))).await;
    let urgent = in_group("db", with_priority(7, of_package("c", 3, 200, 200)));
    insert(&test, &urgent).await;
    assert_eq!(
        claim(&engine).await,
        counts(&[("a", 1), ("b", 1), ("c", 1)])
    );
}

async fn a_retry_of_a_group_waits_for_room(test: TestDb) {
    let engine = start(&test, "host-1", with_groups(settings(8), &[("db", 1)])).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 11))).await;
    let first = engine.claim(now()).await.unwrap();
    assert_eq!(first.len(), 1);
    let end = RunEnd::Waiting { retry_at: now() };
    let waiting = first[0].finished(end, Vec::new(), now());
    engine.finish(&[waiting]).await.unwrap();
    // The retry is first, and the other launch waits for it.
    let retried = engine.claim(now()).await.unwrap();
    let ids = |claimed: &[Work]| claimed.iter().map(|work| work.run_id()).collect::<Vec<_>>();
    assert_eq!(ids(&retried), ids(&first));
    assert_eq!(claim(&engine).await, counts(&[]));
    finish(&engine, &retried[0]).await;
    assert_eq!(claim(&engine).await, counts(&[("a", 1)]));
}

async fn a_claim_that_finds_nothing_leaves_its_group_free(test: TestDb) {
    let engine = start(&test, "host-1", with_groups(settings(8), &[("db", 1)])).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 11))).await;
    assert_eq!(claim(&engine).await, counts(&[("a", 1)]));
    for _ in 0..20 {
        assert_eq!(claim(&engine).await, counts(&[]));
        let mut tx = test.write().await;
        assert!(launch::lock_group(&mut tx, "db").await.unwrap());
        tx.abandon().await.unwrap();
    }
}

/// A group's lock belongs to one installation: a single schema in a Postgres database shared with others.
#[test]
fn groups_of_two_schemas_do_not_wait_for_each_other() {
    run_case(Backend::Postgres, async |test| {
        let other = fresh_db(Backend::Postgres).await;
        let mut holding = other.write().await;
        assert!(launch::lock_group(&mut holding, "db").await.unwrap());
        let mut tx = test.write().await;
        assert!(launch::lock_group(&mut tx, "db").await.unwrap());
        // Another host of the same installation does wait.
        let mut beside = test.write().await;
        assert!(!launch::lock_group(&mut beside, "db").await.unwrap());
    });
}

async fn retries_of_many_packages_share_what_is_free(test: TestDb) {
    let engine = start(&test, "host-1", settings(8)).await;
    add_schedules(&test).await;
    let wait = async |package: &str, schedule: u128, from: u64, to: u64| {
        insert(&test, &of_package(package, schedule, from, to)).await;
        let mut left = to - from + 1;
        while left > 0 {
            let claimed = engine.claim(now()).await.unwrap();
            let end = |work: &Work| {
                let end = RunEnd::Waiting {
                    retry_at: now().plus(Duration::from_secs(60)),
                };
                work.finished(end, Vec::new(), now())
            };
            let ends: Vec<_> = claimed.iter().map(end).collect();
            engine.finish(&ends).await.unwrap();
            assert!(!claimed.is_empty(), "{left} of `{package}` are left");
            left -= claimed.len() as u64;
        }
    };
    wait("a", 1, 10, 40).await;
    wait("b", 2, 100, 101).await;
    let later = now().plus(Duration::from_secs(60));
    let mut claimed = BTreeMap::new();
    for work in engine.claim(later).await.unwrap() {
        *claimed.entry(work.launch.package.clone()).or_insert(0) += 1;
    }
    assert_eq!(claimed, counts(&[("a", 4), ("b", 2)]));
}

async fn health_names_a_group_that_is_full_for_too_long(test: TestDb) {
    let settings = with_groups(settings(8), &[("db", 1)]);
    let engine = start(&test, "host-1", settings.clone()).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 10, 12))).await;
    assert_eq!(claim(&engine).await, counts(&[("a", 1)]));
    let issues = async |now| {
        let mut tx = test.read().await;
        let health = health::read(&mut tx, now, &settings, 0, DiskSigns::default())
            .await
            .unwrap();
        let of_group = |issue: &String| issue.contains("the group `db`");
        health.issues.into_iter().find(of_group)
    };
    let window = settings.late.catchup_window;
    assert_eq!(issues(fixtures::at(11).plus(window)).await, None);
    let oldest = fixtures::at(11);
    assert_eq!(
        issues(fixtures::at(12).plus(window)).await.unwrap(),
        format!(
            "the group `db` is too small: 1 of its launches wait, the oldest since {oldest}, longer than the `catchup_window` of 1day; give it a larger `max`, or its schedules fewer slots"
        )
    );
}

async fn the_next_wake_knows_launches_of_groups(test: TestDb) {
    start(&test, "host-1", settings(8)).await;
    add_schedules(&test).await;
    insert(&test, &in_group("db", of_package("a", 1, 40, 41))).await;
    insert(&test, &in_group("files", of_package("b", 2, 20, 30))).await;
    let mut tx = test.read().await;
    for (now, next) in [(10, Some(20)), (25, Some(26)), (30, Some(40)), (41, None)] {
        let found = launch::next_wake_of_groups(&mut tx, fixtures::at(now))
            .await
            .unwrap();
        assert_eq!(found, next.map(fixtures::at), "{now}");
    }
}
