//! The rollup of launches equals a count over the launches themselves: after random sequences, with two seals at once, after
//! retention, and after a clock was set back (`any_sequence.rs` and `verify.rs` use [`check`] too).

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use campanile_control::reports::rollups::{self, RollupSpan, UnsealedLaunches};
use campanile_control::rules::leaf::read_ids;
use campanile_control::settings::{RetentionLimits, Settings};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_model::rollup::{LogBuckets, Period};
use campanile_store::launch::{self, FinishedLaunch, NewLaunch, RunEnd};
use campanile_store::rollup::{self, Rollup};
use campanile_store::{FailureKind, HostLock, package_versions, seals};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    BYTES, PACKAGE, add_schedule, at, claim_all, launch, manual, publish, schedule_id, skipped,
};
use crate::serving::{self, NOOP, settings};

on_both!(
    launches_count_in_the_hour_and_the_day_of_their_slots,
    two_seals_at_once_count_each_launch_once,
    a_launch_is_removed_after_it_has_counted,
    old_periods_go_at_their_age,
    the_newest_launches_count_before_they_are_sealed,
    sums_of_hours_are_those_of_all_packages,
);

/// Another package that the host has.
const OTHER: &str = "other";
const HOUR_S: u64 = 3_600;
const DAY_S: u64 = 86_400;

/// What a row of the rollup counts.
#[derive(Debug, Clone, Default, PartialEq)]
struct Counts {
    /// Succeeded, failed, skipped, cancelled, late.
    outcomes: [i64; 5],
    run_us: i64,
    durations: BTreeMap<usize, u64>,
    lags: BTreeMap<usize, u64>,
}

fn filled<const N: usize, const FIRST: u32>(
    buckets: &LogBuckets<N, FIRST>,
) -> BTreeMap<usize, u64> {
    let counts = buckets.buckets().map(|(_, _, count)| count).enumerate();
    counts.filter(|(_, count)| *count > 0).collect()
}

fn counts(rollup: &Rollup) -> Counts {
    Counts {
        outcomes: [
            rollup.succeeded,
            rollup.failed,
            rollup.skipped,
            rollup.cancelled,
            rollup.late,
        ],
        run_us: rollup.run_us,
        durations: filled(&rollup.durations),
        lags: filled(&rollup.lags),
    }
}

/// Returns the bucket of a time, of `buckets` that double, the first of which ends at `end_ms`.
fn bucket(time: Duration, mut end_ms: u128, buckets: usize) -> usize {
    let mut place = 0;
    while place < buckets - 1 && time.as_millis() >= end_ms {
        end_ms *= 2;
        place += 1;
    }
    place
}

impl Counts {
    /// Counts a launch, as the documents say it.
    fn count(&mut self, launch: &FinishedLaunch) {
        let word = launch.status.as_str();
        let outcome = match word {
            "succeeded" => 0,
            "failed" | "unknown" | "abandoned" => 1,
            "skipped" => 2,
            "cancelled" => 3,
            other => panic!("{other}"),
        };
        self.outcomes[outcome] += launch.slot_count;
        let Some(started) = launch.started_at else {
            return;
        };
        let lag = started.since(launch.fire_time);
        let is_late = match launch.kind {
            LaunchKind::Schedule => lag >= Duration::from_secs(10),
            LaunchKind::Catchup => true,
            _ => false,
        };
        self.outcomes[4] += i64::from(is_late);
        if launch.kind == LaunchKind::Schedule && launch.opened_at.is_none() {
            *self.lags.entry(bucket(lag, 8, 16)).or_default() += 1;
        }
        if word == "succeeded" || word == "failed" {
            let took = launch.finished_at.unwrap().since(started);
            self.run_us += took.as_micros() as i64;
            *self.durations.entry(bucket(took, 2, 24)).or_default() += 1;
        }
    }
}

/// Compares the rollup with the sealed launches on record, and the report of all with those that have ended. Returns how many
/// were compared.
pub async fn check(test: &TestDb, now: Timestamp, case: &str) -> usize {
    let mut tx = test.read().await;
    let last = seals::newest(&mut tx).await.unwrap();
    let until = last.as_ref().map_or(Timestamp::FIRST, |last| last.until_at);
    let unfinished = last.map(|last| read_ids(&last.unfinished));
    let unfinished: HashSet<LaunchId> = unfinished.unwrap_or_default().into_iter().collect();
    let all = seals::decided(&mut tx, Timestamp::FIRST, Timestamp::LAST, i64::MAX);
    let mut ended = all.await.unwrap();
    ended.retain(|launch| launch.finished_at.is_some() && !unfinished.contains(&launch.id));
    let is_sealed = |launch: &&FinishedLaunch| launch.decided_at < until;
    let mut of_schedules: BTreeMap<_, Counts> = BTreeMap::new();
    let mut of_packages: BTreeMap<_, Counts> = BTreeMap::new();
    for launch in ended.iter().filter(is_sealed) {
        for period in [Period::Hour, Period::Day] {
            let start = period.start(launch.scheduled_time);
            // Older ones may be gone.
            if start >= period.oldest(now) {
                let key = (launch.schedule_id, period.as_str(), start);
                of_schedules.entry(key).or_default().count(launch);
                let key = (launch.package.clone(), period.as_str(), start);
                of_packages.entry(key).or_default().count(launch);
            }
        }
    }
    let schedules: HashSet<ScheduleId> = ended.iter().map(|launch| launch.schedule_id).collect();
    let schedules = Vec::from_iter(schedules);
    let packages: HashSet<String> = ended.iter().map(|launch| launch.package.clone()).collect();
    let packages = Vec::from_iter(packages);
    let mut found_schedules = BTreeMap::new();
    let mut found_packages = BTreeMap::new();
    for period in [Period::Hour, Period::Day] {
        let since = period.oldest(now);
        let rows = rollup::of_schedules(&mut tx, &schedules, period, since);
        found_schedules.extend(rows.await.unwrap().into_iter().map(|row| {
            let key = (row.schedule_id, row.period.as_str(), row.starts_at);
            (key, counts(&row.rollup))
        }));
        let rows = rollup::of_packages(&mut tx, &packages, period, since);
        found_packages.extend(rows.await.unwrap().into_iter().map(|row| {
            let key = (row.package, row.period.as_str(), row.starts_at);
            (key, counts(&row.rollup))
        }));
    }
    assert_eq!(found_schedules, of_schedules, "{case}");
    assert_eq!(found_packages, of_packages, "{case}");

    for package in &packages {
        let sealed = ended.iter().filter(is_sealed);
        let sealed = Vec::from_iter(sealed.filter(|launch| launch.package == *package));
        for version in package_versions::of_package(&mut tx, package)
            .await
            .unwrap()
        {
            let of_version = sealed.iter();
            let of_version =
                of_version.filter(|launch| launch.digest.as_ref() == Some(&version.digest));
            let words = Vec::from_iter(of_version.map(|launch| launch.status.as_str()));
            let count = |of: &[&str]| words.iter().filter(|word| of.contains(word)).count() as i64;
            let expected = [
                count(&["succeeded"]),
                count(&["failed", "unknown", "abandoned"]),
            ];
            assert_eq!(
                [version.succeeded, version.failed],
                expected,
                "{case}: {package}"
            );
        }
    }

    let span = RollupSpan::DAYS_OF_A_YEAR;
    let unsealed = UnsealedLaunches::read(&mut tx, now).await.unwrap();
    let newest = rollups::of_schedules(&mut tx, &schedules, span, &unsealed, now);
    let mut expected: BTreeMap<ScheduleId, Counts> = BTreeMap::new();
    let is_counted = |launch: &&FinishedLaunch| {
        unsealed.counted_until == now || launch.decided_at < unsealed.counted_until
    };
    for launch in ended.iter().filter(is_counted) {
        expected
            .entry(launch.schedule_id)
            .or_default()
            .count(launch);
    }
    let newest = newest.await.unwrap().into_iter();
    let newest = newest.map(|(id, days)| (id, counts(&rollups::sum(days.values()))));
    assert_eq!(newest.collect::<BTreeMap<_, _>>(), expected, "{case}");
    of_schedules.len()
}

struct Scene {
    test: TestDb,
    clock: Clock,
    engine: Arc<Engine>,
    _lock: HostLock,
}

impl Scene {
    /// Starts a host at `at(0)`, 08:00, and adds two schedules.
    async fn new(test: TestDb, retention: RetentionLimits) -> Scene {
        let clock = Clock::simulated(at(0));
        let settings = Settings {
            retention,
            ..settings(8)
        };
        let (engine, lock) = serving::start(&test, &clock, settings, NOOP).await;
        let mut tx = test.write().await;
        for number in [1, 2] {
            add_schedule(&mut tx, number, 1_000 * DAY_S).await;
        }
        for package in [PACKAGE, OTHER] {
            publish(&mut tx, engine.host(), package, BYTES, at(0)).await;
        }
        tx.commit().await.unwrap();
        Scene {
            test,
            clock,
            engine,
            _lock: lock,
        }
    }

    /// Inserts launches, runs those that are to be launched, and ends them `seconds` after their slots.
    async fn run(&self, decided: &[NewLaunch], end: RunEnd, seconds: u64) {
        let mut tx = self.test.write().await;
        launch::insert(&mut tx, decided).await.unwrap();
        let newest = decided.iter().map(|launch| launch.fire_time).max().unwrap();
        let after = Duration::from_secs(seconds);
        loop {
            let claimed = claim_all(&mut tx, self.engine.host(), newest).await;
            if claimed.is_empty() {
                break;
            }
            let ends = claimed
                .iter()
                .map(|run| run.finish(end.clone(), run.scheduled_time.plus(after)));
            launch::finish(&mut tx, &Vec::from_iter(ends))
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
    }

    /// Lets the host seal all that can be sealed at a time.
    async fn seal(&self, now: Timestamp) {
        self.clock.advance_to(now);
        assert!(self.engine.hold_chores(now).await.unwrap());
        self.engine.seal(now).await.unwrap();
    }

    /// Returns the rows of a schedule: the hour or the day after `at(0)`; and how many succeeded, failed, were skipped and
    /// cancelled.
    async fn rows(&self, schedule: u128, period: Period) -> Vec<(u64, [i64; 4])> {
        let mut tx = self.test.read().await;
        let ids = [schedule_id(schedule)];
        let rows = rollup::of_schedules(&mut tx, &ids, period, Timestamp::FIRST).await;
        let row = |row: rollup::ScheduleRollup| {
            let after = row.starts_at.since(period.start(at(0)));
            let place = after.as_secs() / period.length().as_secs();
            let [succeeded, failed, skipped, cancelled, _] = counts(&row.rollup).outcomes;
            (place, [succeeded, failed, skipped, cancelled])
        };
        let mut rows = Vec::from_iter(rows.unwrap().into_iter().map(row));
        rows.sort_unstable();
        rows
    }
}

fn success() -> RunEnd {
    RunEnd::Succeeded { output: None }
}

fn failure() -> RunEnd {
    RunEnd::Failed {
        kind: FailureKind::Failed,
        message: "no".to_owned(),
    }
}

async fn launches_count_in_the_hour_and_the_day_of_their_slots(test: TestDb) {
    let scene = Scene::new(test, RetentionLimits::FOR_EVER).await;
    scene
        .run(&[launch(1, 10), launch(1, 20), launch(2, 30)], success(), 3)
        .await;
    // It runs into the next hour, and counts in the one of its slot.
    scene
        .run(&[launch(1, HOUR_S - 10)], failure(), 2 * HOUR_S)
        .await;
    let range = NewLaunch {
        slot_count: 7,
        last_scheduled_time: at(HOUR_S + 70),
        ..skipped(1, HOUR_S + 10, "overlap")
    };
    scene
        .run(&[range, manual(1, HOUR_S + 20)], success(), 1)
        .await;
    scene.seal(at(HOUR_S + 60)).await;
    let first = (0, [2, 1, 0, 0]);
    // What was decided less than a minute ago isn't sealed.
    assert_eq!(scene.rows(1, Period::Hour).await, [first]);
    scene.seal(at(HOUR_S + 90)).await;
    let hours = [first, (1, [1, 0, 7, 0])];
    assert_eq!(scene.rows(1, Period::Hour).await, hours);
    assert_eq!(scene.rows(1, Period::Day).await, [(0, [3, 1, 7, 0])]);
    assert_eq!(scene.rows(2, Period::Day).await, [(0, [1, 0, 0, 0])]);
    check(&scene.test, at(HOUR_S + 90), "the rows themselves").await;
    // A removed schedule keeps its rows, and a new name changes nothing.
    scene
        .test
        .execute("UPDATE schedule SET name = 'x' || name")
        .await;
    check(&scene.test, at(HOUR_S + 90), "another name").await;
    // A launch of a slot before the oldest hour counts by its day alone, one before the oldest day not at all.
    let (week, years) = (20 * DAY_S, 3 * 366 * DAY_S);
    scene.run(&[launch(2, week)], success(), 1).await;
    let decided_at = at(years);
    let late = |slot| NewLaunch {
        decided_at,
        ..launch(1, slot)
    };
    scene
        .run(
            &[late(40), late(years - 30 * DAY_S), late(years - 5)],
            success(),
            1,
        )
        .await;
    scene.seal(at(years + 100)).await;
    let hours = scene.rows(1, Period::Hour).await;
    assert_eq!(hours.len(), 3, "{hours:?}");
    assert_eq!(scene.rows(1, Period::Day).await.len(), 3);
    assert_eq!(scene.rows(2, Period::Hour).await.len(), 1);
}

/// Both read the same launches before one of them adds its seal.
async fn two_seals_at_once_count_each_launch_once(test: TestDb) {
    let scene = Scene::new(test, RetentionLimits::FOR_EVER).await;
    for round in 0..20 {
        let slot = round * 600;
        let decided = [
            launch(1, slot),
            launch(1, slot + 1),
            skipped(2, slot, "overlap"),
        ];
        scene.run(&decided, success(), 2).await;
        let now = at(slot + 300);
        scene.clock.advance_to(now);
        assert!(scene.engine.hold_chores(now).await.unwrap());
        let (first, second) = tokio::join!(scene.engine.seal(now), scene.engine.seal(now));
        first.unwrap();
        second.unwrap();
        check(&scene.test, now, "two at once").await;
    }
    let all = scene.rows(1, Period::Day).await;
    assert_eq!(all, [(0, [40, 0, 0, 0])]);
}

async fn a_launch_is_removed_after_it_has_counted(test: TestDb) {
    let limits = RetentionLimits {
        succeeded: Some(Duration::from_secs(60)),
        skipped: Some(Duration::from_secs(60)),
        keep_last: 1,
        ..RetentionLimits::FOR_EVER
    };
    let scene = Scene::new(test, limits).await;
    let slots = Vec::from_iter((1..=300).map(|slot| launch(1, slot)));
    scene.run(&slots, success(), 1).await;
    scene.run(&[skipped(1, 301, "overlap")], success(), 1).await;
    // Two of another schedule end after the seal.
    scene.run(&[launch(2, 100)], success(), 1).await;
    let later = Vec::from_iter((103..=106).map(|slot| launch(2, slot)));
    scene.run(&later, success(), 1).await;
    let mut tx = scene.test.write().await;
    launch::insert(&mut tx, &[launch(2, 101), launch(2, 102)])
        .await
        .unwrap();
    let runs = claim_all(&mut tx, scene.engine.host(), at(107)).await;
    tx.commit().await.unwrap();
    let now = at(1_000);
    scene.clock.advance_to(now);
    assert!(scene.engine.hold_chores(now).await.unwrap());
    // They're old enough, and not sealed.
    let removed = scene.engine.remove_old(now).await.unwrap();
    assert_eq!(removed.launches, 0);
    scene.seal(now).await;
    let before = scene.rows(1, Period::Day).await;
    assert_eq!(before, [(0, [300, 0, 1, 0])]);
    let ends = runs.iter().map(|run| run.finish(success(), at(900)));
    let mut tx = scene.test.write().await;
    launch::finish(&mut tx, &Vec::from_iter(ends))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // The two were unfinished at the seal. The newest three results of each schedule stay.
    let removed = scene.engine.remove_old(now).await.unwrap();
    assert_eq!(removed.launches, 297 + 2);
    assert_eq!(scene.rows(2, Period::Day).await, [(0, [5, 0, 0, 0])]);
    let now = at(1_010);
    scene.seal(now).await;
    let removed = scene.engine.remove_old(now).await.unwrap();
    assert_eq!(removed.launches, 2);
    assert_eq!(scene.rows(1, Period::Day).await, before);
    assert_eq!(scene.rows(2, Period::Day).await, [(0, [7, 0, 0, 0])]);
}

async fn old_periods_go_at_their_age(test: TestDb) {
    let scene = Scene::new(test, RetentionLimits::FOR_EVER).await;
    let slots = Vec::from_iter((0..600).map(|hour| launch(1, hour * HOUR_S)));
    for slots in slots.chunks(24) {
        scene.run(slots, success(), 1).await;
        scene
            .seal(
                slots
                    .last()
                    .unwrap()
                    .fire_time
                    .plus(Duration::from_secs(100)),
            )
            .await;
    }
    let now = at(600 * HOUR_S);
    scene.seal(now).await;
    check(&scene.test, now, "before").await;
    scene.engine.remove_old(now).await.unwrap();
    let hours = scene.rows(1, Period::Hour).await;
    // The first is two weeks old, the last an hour.
    let range = (hours[0].0, hours[hours.len() - 1].0);
    assert_eq!((hours.len(), range), (14 * 24, (600 - 14 * 24, 599)));
    assert_eq!(scene.rows(1, Period::Day).await.len(), 26);
    check(&scene.test, now, "after").await;
    let later = at(735 * DAY_S);
    scene.clock.advance_to(later);
    assert!(scene.engine.hold_chores(later).await.unwrap());
    scene.engine.remove_old(later).await.unwrap();
    assert_eq!(scene.rows(1, Period::Hour).await, []);
    let days = scene.rows(1, Period::Day).await;
    assert_eq!((days.len(), days[0].0), (21, 5));
    let packages = "SELECT CAST(count(*) AS TEXT) FROM package_rollup";
    assert_eq!(scene.test.value(packages).await, "21");
}

async fn the_newest_launches_count_before_they_are_sealed(test: TestDb) {
    let scene = Scene::new(test, RetentionLimits::FOR_EVER).await;
    scene.run(&[launch(1, 10)], success(), 1).await;
    scene.seal(at(100)).await;
    scene.run(&[launch(1, 110)], failure(), 1).await;
    scene.clock.advance_to(at(112));
    let read = async |now| {
        let mut tx = scene.test.read().await;
        let unsealed = UnsealedLaunches::read(&mut tx, now).await.unwrap();
        let ids = [schedule_id(1)];
        let span = RollupSpan::HOURS_24;
        let found = rollups::of_schedules(&mut tx, &ids, span, &unsealed, now);
        let found = found.await.unwrap();
        let sum = rollups::sum(found[&ids[0]].values());
        let packages = [PACKAGE.to_owned()];
        let of_packages = rollups::of_packages(&mut tx, &packages, span, &unsealed, now);
        let of_packages = of_packages.await.unwrap();
        assert_eq!(rollups::sum(of_packages[PACKAGE].values()), sum);
        (sum.succeeded, sum.failed, unsealed.counted_until)
    };
    assert_eq!(read(at(112)).await, (1, 1, at(112)));
    check(&scene.test, at(112), "one isn't sealed").await;
    // With very many, none of them counts, and the report says up to when it's whole.
    let slots = Vec::from_iter((0..2_000).map(|slot| launch(1, 200 + slot)));
    scene.run(&slots, success(), 1).await;
    let now = at(2_300);
    scene.clock.advance_to(now);
    assert_eq!(read(now).await, (1, 0, at(40)));
    check(&scene.test, now, "many aren't sealed").await;
    scene.seal(now).await;
    assert_eq!(read(now).await, (2_001, 1, now));
    check(&scene.test, now, "all are sealed").await;
}

async fn sums_of_hours_are_those_of_all_packages(test: TestDb) {
    let scene = Scene::new(test, RetentionLimits::FOR_EVER).await;
    let other = |slot| NewLaunch {
        package: OTHER.to_owned(),
        ..launch(2, slot)
    };
    for day in 0..9 {
        let slot = day * DAY_S;
        let others = [skipped(1, slot + 5, "overlap"), other(slot + HOUR_S)];
        scene.run(&[launch(1, slot)], success(), 1).await;
        scene.run(&[launch(2, slot + 1)], failure(), 1).await;
        scene.run(&others, failure(), 1).await;
        scene.seal(at(slot + 2 * HOUR_S)).await;
    }
    let mut tx = scene.test.read().await;
    // It's the ninth day: the seven before it count.
    let now = at(8 * DAY_S + 300);
    assert_eq!(
        rollups::same_hour_before(&mut tx, now).await.unwrap(),
        (7, 7)
    );
    let none = at(8 * DAY_S + 3 * HOUR_S);
    assert_eq!(
        rollups::same_hour_before(&mut tx, none).await.unwrap(),
        (0, 0)
    );
}
