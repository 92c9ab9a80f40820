//! Runs one list of random operations on both databases, step by step. All results must be equal,
//! and so must all rows at the end.
//!
//! `CAMPANILE_TEST_SEED=N` replays one list.

use std::fmt::Debug;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, InputHash, LaunchKind, ScheduleId};
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{
    self, Claim, NewLaunch, RecoveryAction, RecoveryDecision, RunEnd, RunHashes,
};
use campanile_store::packages;
use campanile_store::runs;
use campanile_store::schedules::{self, CursorMove, Revision};
use campanile_store::task_runs::TaskRun;
use campanile_store::{DbError, FailureKind, Origin, Tx, changes, hosts, probe, stats};
use campanile_tests::dump::dump;
use campanile_tests::{Backend, TestDb, fresh_db};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Uuid;

use crate::fixtures::{
    ClaimedRun, PAUSE, at, host, host_id, insert_schedule, launch, manual, publish, revision,
    set_next, skipped, task_run,
};

mod versions;

/// Operations in one list.
const OPERATIONS: usize = 500;
const HOSTS: u128 = 3;
const PACKAGES: [&str; 3] = ["demo", "summary", "invoices"];
/// The time between two slots of a schedule.
const PERIOD: Duration = Duration::from_secs(60);

/// The state of one operation list. It is equal for both databases as long as both give the same results.
struct OperationList {
    random: StdRng,
    now: Timestamp,
    /// Makes instants, ids and attempts unique.
    count: u64,
    schedules: Vec<ScheduleId>,
    claimed: Vec<ClaimedRun>,
    /// How often each kind of operation had an effect. A list without effects would prove nothing.
    effects: std::collections::BTreeMap<&'static str, usize>,
}

impl OperationList {
    fn new(seed: u64) -> OperationList {
        OperationList {
            random: StdRng::seed_from_u64(seed),
            now: at(0),
            count: 0,
            schedules: Vec::new(),
            claimed: Vec::new(),
            effects: Default::default(),
        }
    }

    fn next_number(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// Return a unique instant shortly after `base`. Unique instants have the same order on both databases.
    fn unique_instant(&mut self, base: Timestamp) -> Timestamp {
        let micros = Duration::from_micros(self.next_number());
        base.plus(micros)
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    fn any_host(&mut self) -> HostId {
        host_id(self.random.random_range(1..=HOSTS))
    }

    fn any_package(&mut self) -> &'static str {
        PACKAGES[self.random.random_range(0..PACKAGES.len())]
    }

    fn any_schedule(&mut self) -> ScheduleId {
        match self.schedules.len() {
            0 => ScheduleId(Uuid::from_u128(0)),
            len => self.schedules[self.random.random_range(0..len)],
        }
    }

    /// Return one of the newest runs, since most older ones are finished.
    fn any_claimed(&mut self) -> Option<ClaimedRun> {
        let len = self.claimed.len();
        let newest = len.saturating_sub(12);
        (len > 0).then(|| self.claimed[self.random.random_range(newest..len)])
    }

    fn count_effect(&mut self, what: &'static str, times: usize) {
        *self.effects.entry(what).or_default() += times;
    }
}

/// Return a result as text. Of an error only the kind, since each database has its own messages.
fn text<T: Debug>(answer: &Result<T, DbError>) -> String {
    match answer {
        Ok(answer) => format!("{answer:?}"),
        Err(error) => {
            let debug = format!("{error:?}");
            debug.split('(').next().unwrap_or_default().to_owned()
        }
    }
}

fn sorted<T: Debug>(answer: Result<Vec<T>, DbError>) -> Result<Vec<String>, DbError> {
    answer.map(|rows| {
        let mut rows: Vec<String> = rows.iter().map(|row| format!("{row:?}")).collect();
        rows.sort();
        rows
    })
}

/// Do one random operation in one transaction. Return its name and its result as text.
async fn step(test: &TestDb, list: &mut OperationList) -> (&'static str, String) {
    list.now = list
        .now
        .plus(Duration::from_secs(list.random.random_range(0..12)));
    let now = list.unique_instant(list.now);
    let mut tx = test.write().await;
    probe::execute(&mut tx, "SAVEPOINT before").await.unwrap();
    let (name, answer, commits) = match list.random.random_range(0..100) {
        0..8 => add_schedule(&mut tx, list, now).await,
        8..12 => revise(&mut tx, list, now).await,
        12..20 => change_schedule(&mut tx, list, now).await,
        20..35 => decide(&mut tx, list, now).await,
        35..38 => trigger(&mut tx, list, now).await,
        38..52 => claim(&mut tx, list, now).await,
        52..70 => finish(&mut tx, list, now).await,
        70..75 => claim_retries(&mut tx, list, now).await,
        75..78 => renew_or_record(&mut tx, list, now).await,
        78..85 => recover(&mut tx, list, now).await,
        85..91 => change_hosts(&mut tx, list, now).await,
        91..96 => versions::change(&mut tx, list, now).await,
        _ => read_everything(&mut tx, now).await,
    };
    // Some operations are rolled back. The transaction is not dropped for that: Postgres
    // would notice the drop a little later, and skip the locked rows until then.
    if !commits {
        probe::execute(&mut tx, "ROLLBACK TO SAVEPOINT before")
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    (name, answer)
}

type StepResult = (&'static str, String, bool);

async fn add_schedule(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let number = u128::from(list.next_number());
    let definition = Revision {
        name: format!("schedule-{}", list.random.random_range(0..8)),
        package: list.any_package().to_owned(),
        since: now,
        ..revision(number)
    };
    let next = list.unique_instant(now.plus(Duration::from_secs(20)));
    let next = Some(next).filter(|_| !list.one_in(10));
    let origin = Origin::ALL[list.random.random_range(0..Origin::ALL.len())];
    let answer = insert_schedule(tx, &definition, origin, next).await;
    if answer.is_ok() {
        list.schedules.push(definition.schedule_id);
        list.count_effect("added", 1);
    }
    ("add", text(&answer), answer.is_ok())
}

async fn revise(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let id = list.any_schedule();
    let all = schedules::all(tx).await.unwrap();
    let Some(found) = all.into_iter().find(|found| found.state.id == id) else {
        return ("revise", "no schedule".to_owned(), false);
    };
    let stale = i64::from(list.one_in(4));
    let name = if list.one_in(3) {
        format!("schedule-{}", list.random.random_range(0..8))
    } else {
        found.definition.name.clone()
    };
    let definition = Revision {
        revision: found.state.revision + 1 - stale,
        name,
        since: now,
        ..found.definition
    };
    let next = list.unique_instant(now.plus(PERIOD));
    let next = Some(next).filter(|_| found.state.enabled);
    let answer = schedules::revise(
        tx,
        &definition,
        found.state.enabled,
        found.state.origin,
        now,
        next,
    )
    .await;
    list.count_effect("revised", usize::from(matches!(answer, Ok(true))));
    ("revise", text(&answer), answer.is_ok())
}

async fn change_schedule(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let id = list.any_schedule();
    let next = list.unique_instant(now.plus(PERIOD));
    let answer = match list.random.random_range(0..10) {
        0..3 => schedules::pause(tx, id, PAUSE, now).await,
        3..8 => schedules::resume(tx, id, now, now, Some(next)).await,
        8 => schedules::remove(tx, id, now).await,
        _ => set_next(tx, id, at(0), Some(next), now).await,
    };
    changes::bump(tx).await.unwrap();
    list.count_effect("changed", usize::from(matches!(answer, Ok(true))));
    ("change", text(&answer), answer.is_ok())
}

async fn decide(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let limit = list.random.random_range(1..6);
    let due = schedules::due(tx, now, limit).await.unwrap();
    let mut moves = Vec::new();
    for due in &due {
        let stale = list.one_in(6);
        moves.push(CursorMove {
            id: due.id,
            revision: due.revision,
            from: if stale { now } else { due.cursor_at },
            to: due.next_slot,
            next_slot: Some(due.next_slot.plus(PERIOD)).filter(|_| !list.one_in(20)),
            launches: 1,
            caught_up: list.one_in(5).then_some((now, due.next_slot)),
        });
    }
    let moved = schedules::advance(tx, &moves).await.unwrap();
    let host = list.any_host();
    let mut decided = Vec::new();
    for due in due.iter().filter(|due| moved.contains(&due.id)) {
        let number = due.id.0.as_u128() - 0xB000;
        let base = if due.digest.is_none() || due.missing_since.is_some() {
            skipped(number, 0, "package_missing")
        } else if list.one_in(8) {
            skipped(number, 0, "missed")
        } else {
            launch(number, 0)
        };
        let kind = if list.one_in(5) {
            LaunchKind::Catchup
        } else {
            LaunchKind::Schedule
        };
        decided.push(NewLaunch {
            id: campanile_model::ids::LaunchId::of(due.id, due.next_slot, kind),
            kind,
            scheduled_time: due.next_slot,
            last_scheduled_time: due.next_slot,
            utc_offset: 900 * list.random.random_range(-48..=56),
            fire_time: due.next_slot,
            interval_start: due.cursor_at,
            schedule_revision: due.revision,
            package: due.package.clone(),
            digest: due.digest.clone().filter(|_| base.reason.is_none()),
            decided_by: Some(host).filter(|_| !list.one_in(10)),
            decided_at: now,
            ..base
        });
    }
    let answer = launch::insert(tx, &decided).await;
    list.count_effect("decided", decided.len());
    (
        "decide",
        format!("{due:?} {:?} {}", sorted(Ok(moved)), text(&answer)),
        true,
    )
}

async fn trigger(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let id = list.any_schedule();
    let all = schedules::all(tx).await.unwrap();
    let Some(found) = all.into_iter().find(|found| found.state.id == id) else {
        return ("trigger", "no schedule".to_owned(), false);
    };
    let Some(package) = packages::find(tx, &found.definition.package).await.unwrap() else {
        return ("trigger", "no package".to_owned(), false);
    };
    let launch = NewLaunch {
        id: campanile_model::ids::LaunchId::of(id, now, LaunchKind::Manual),
        scheduled_time: now,
        last_scheduled_time: now,
        fire_time: now,
        decided_at: now,
        package: package.name,
        digest: package.digest.clone(),
        ..manual(id.0.as_u128() - 0xB000, 0)
    };
    if package.digest.is_none() {
        return ("trigger", "no version".to_owned(), false);
    }
    let answer = launch::insert(tx, &[launch]).await;
    list.count_effect("triggered", 1);
    ("trigger", text(&answer), true)
}

async fn claim(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let host = list.any_host();
    let limit = list.random.random_range(0..6);
    let open = launch::claimable(tx, host, now, limit).await.unwrap();
    let answer = format!("{open:?}");
    let mut new = Vec::new();
    for launch in &open {
        new.push(Claim {
            launch_id: launch.launch_id,
            fence: launch.fence(),
            hashes: RunHashes {
                grants: Some(InputHash::of(&list.next_number().to_be_bytes())),
                context: None,
            },
        });
    }
    let lease_until = now.plus(Duration::from_secs(90));
    launch::claim(tx, host, &new, now, lease_until)
        .await
        .unwrap();
    let commits = !list.one_in(12);
    if commits {
        list.count_effect("claimed", new.len());
        list.claimed.extend(open.iter().map(ClaimedRun::of));
    }
    ("claim", answer, commits)
}

fn random_task(list: &mut OperationList) -> TaskRun {
    let failure = list
        .one_in(3)
        .then(|| FailureKind::ALL[list.random.random_range(0..FailureKind::ALL.len())]);
    TaskRun {
        succeeded: failure.is_none(),
        failure,
        message: failure.map(|kind| format!("it {kind}")),
        output: failure.is_none().then(|| "{\"n\":1}".to_owned()),
        stdout: "line ".repeat(list.random.random_range(0..9)),
        wall_ms: f64::from(list.random.random_range(0..4_000)) / 4.0,
        cpu_ms: 0.25,
        memory_peak_bytes: 65_536,
        ..task_run("build", list.next_number() as i64)
    }
}

async fn finish(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let mut finishes = Vec::new();
    for _ in 0..list.random.random_range(1..5) {
        let Some(mut run) = list.any_claimed() else {
            break;
        };
        if finishes
            .iter()
            .any(|other: &launch::Finish| other.run_id.launch() == run.launch_id())
        {
            continue;
        }
        if list.one_in(8) {
            run.fence += 1;
        }
        let mut finish = match list.random.random_range(0..10) {
            0..5 => run.succeeded(&format!("\"{}\"", run.scheduled_time), now),
            5..8 => run.failed("the disk is full", now),
            _ => {
                let retry_at = list.unique_instant(now.plus(Duration::from_secs(30)));
                run.finish(RunEnd::Waiting { retry_at }, now)
            }
        };
        for _ in 0..list.random.random_range(0..3) {
            finish.tasks.push(random_task(list));
        }
        finishes.push(finish);
    }
    let applied = launch::finish(tx, &finishes).await;
    list.count_effect("finished", applied.as_ref().map_or(0, Vec::len));
    list.count_effect(
        "refused",
        finishes.len() - applied.as_ref().map_or(0, Vec::len),
    );
    ("finish", text(&sorted(applied)), true)
}

async fn claim_retries(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let host = list.any_host();
    let lease_until = now.plus(Duration::from_secs(90));
    let claimed = crate::fixtures::claim_retries(tx, host, now, lease_until, 4).await;
    for continued in claimed.iter().flatten() {
        list.count_effect("continued", 1);
        list.claimed.push(ClaimedRun::of(continued));
    }
    ("claim retries", text(&claimed), true)
}

async fn renew_or_record(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    if list.one_in(2) {
        let newest = list.claimed.len().saturating_sub(12);
        let mut fences: Vec<_> = list.claimed[newest..]
            .iter()
            .map(|run| (run.run_id, run.fence))
            .collect();
        fences.dedup_by_key(|(run, _)| *run);
        let renewed = launch::renew(tx, &fences, now.plus(Duration::from_secs(90))).await;
        list.count_effect("renewed", renewed.as_ref().map_or(0, Vec::len));
        return ("renew", text(&sorted(renewed)), true);
    }
    let Some(run) = list.any_claimed() else {
        return ("record", "nothing".to_owned(), false);
    };
    let task = random_task(list);
    let recorded = launch::record_tasks(tx, run.run_id, run.fence, &[task]).await;
    list.count_effect("recorded", usize::from(matches!(recorded, Ok(true))));
    ("record", text(&recorded), true)
}

async fn recover(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let retry_before = now.minus(Duration::from_secs(600));
    let lost = launch::orphaned_runs(tx, now, retry_before, 20)
        .await
        .unwrap();
    let host = list.any_host();
    let untouched_since = now.minus(Duration::from_secs(300));
    let unclaimed = launch::orphaned_launches(tx, host, untouched_since, 20)
        .await
        .unwrap();
    let answer = format!("{lost:?} {unclaimed:?}");
    for orphans in [lost, unclaimed] {
        let mut decisions = Vec::new();
        for orphan in orphans {
            if orphan.missing_since.is_some() && !list.one_in(3) {
                continue;
            }
            let action = match orphan.life.recoveries {
                _ if orphan.life.must_end => RecoveryAction::Cancel,
                _ if !orphan.enabled => RecoveryAction::Abandon("schedule_disabled"),
                2.. => RecoveryAction::MarkUnknown,
                _ => RecoveryAction::RunAgain,
            };
            list.count_effect(
                match action {
                    RecoveryAction::RunAgain => "recovered",
                    _ => "abandoned",
                },
                1,
            );
            decisions.push(RecoveryDecision {
                launch_id: orphan.launch_id,
                action,
                not_before: None,
            });
        }
        launch::recover(tx, host, &decisions, "gone", now)
            .await
            .unwrap();
    }
    ("recover", answer, true)
}

async fn change_hosts(tx: &mut Tx, list: &mut OperationList, now: Timestamp) -> StepResult {
    let id = list.any_host();
    let name = format!("host-{}", id.0.as_u128() - 0xA000);
    let lease_until = now.plus(Duration::from_secs(300));
    let answer = match list.random.random_range(0..15) {
        0..5 => text(&hosts::heartbeat(tx, id, now, lease_until).await),
        5 => text(&hosts::end(tx, id, now).await),
        6 => text(&sorted(hosts::mark_predecessors_dead(tx, &name, now).await)),
        7 => text(&sorted(hosts::mark_silent_dead(tx, now).await)),
        8 => text(&hosts::drain(tx, id, "ada", now).await),
        9 => text(&hosts::end_drain(tx, id).await),
        10 => text(&hosts::end_claims(tx, id, now).await),
        _ => text(&hosts::revive(tx, id, now, lease_until).await),
    };
    events::record(tx, now, EventKind::HostStarted, &name, &answer)
        .await
        .unwrap();
    let live = hosts::live(tx).await;
    ("hosts", format!("{answer} {:?}", sorted(live)), true)
}

/// Return the newest events without their ids, which are random.
async fn events_without_ids(tx: &mut Tx) -> Result<Vec<String>, DbError> {
    let events = events::list(tx, None, 30).await?.into_iter();
    let texts = events.map(|event| {
        format!(
            "{} {:?} {} {}",
            event.at, event.kind, event.subject, event.detail
        )
    });
    Ok(texts.collect())
}

async fn read_everything(tx: &mut Tx, now: Timestamp) -> StepResult {
    let since = now.minus(Duration::from_secs(1_200));
    let results = [
        text(&stats::counts(tx, since).await),
        text(&stats::health_signs(tx, now, now, now).await),
        text(&launch::list_of(tx, "schedule-3", None, 50).await),
        text(&runs::list(tx, None, 20).await),
        text(&schedules::all(tx).await),
        text(&launch::next_wake(tx, now).await),
        text(&launch::next_wake_of_groups(tx, now).await),
        text(&schedules::next_due(tx).await),
        text(&events_without_ids(tx).await),
        text(&changes::counter(tx).await),
    ];
    ("read", results.join("\n"), false)
}

async fn prepare(test: &TestDb) {
    let mut tx = test.write().await;
    for number in 1..=HOSTS {
        let id = host_id(number);
        hosts::register(&mut tx, &host(id, &format!("host-{number}"), at(0)))
            .await
            .unwrap();
        for name in &PACKAGES[..number as usize] {
            publish(&mut tx, id, name, b"first", at(0)).await;
        }
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn both_databases_give_equal_results_for_random_operations() {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    // Printed when the test fails.
    println!("CAMPANILE_TEST_SEED={seed}");
    let sqlite = fresh_db(Backend::Sqlite).await;
    let postgres = fresh_db(Backend::Postgres).await;
    prepare(&sqlite).await;
    prepare(&postgres).await;
    let mut lists = [OperationList::new(seed), OperationList::new(seed)];
    for number in 0..OPERATIONS {
        let (name, on_sqlite) = step(&sqlite, &mut lists[0]).await;
        let (_, on_postgres) = step(&postgres, &mut lists[1]).await;
        assert_eq!(
            on_sqlite, on_postgres,
            "operation {number}, {name}, CAMPANILE_TEST_SEED={seed}"
        );
    }
    let rows = dump(&sqlite).await;
    let other = dump(&postgres).await;
    let differing = rows.lines().zip(other.lines()).find(|(a, b)| a != b);
    assert_eq!(differing, None, "CAMPANILE_TEST_SEED={seed}");
    assert_eq!(rows.lines().count(), other.lines().count());
    // Conditions that no foreign key and no constraint checks.
    for wrong in [
        "launch WHERE schedule_id NOT IN (SELECT id FROM schedule)",
        "launch WHERE host_id NOT IN (SELECT id FROM host)",
        "lost_run WHERE launch_id NOT IN (SELECT id FROM launch)",
        "lost_run WHERE host_id NOT IN (SELECT id FROM host)",
        "task_run t WHERE NOT EXISTS (SELECT 1 FROM launch l
                WHERE l.id = t.launch_id AND l.recoveries + 1 = t.run_number AND l.host_id IS NOT NULL)
            AND NOT EXISTS (SELECT 1 FROM lost_run r WHERE r.launch_id = t.launch_id AND r.number = t.run_number)",
        "schedule_result WHERE schedule_id NOT IN (SELECT id FROM schedule)",
        // The newest run of a launch has the number `recoveries + 1`.
        "launch l JOIN lost_run r ON r.launch_id = l.id WHERE r.number > l.recoveries",
    ] {
        let count = format!("SELECT CAST(count(*) AS TEXT) FROM {wrong}");
        assert_eq!(sqlite.value(&count).await, "0", "{wrong}, CAMPANILE_TEST_SEED={seed}");
    }
    println!("{:?}, {} rows", lists[0].effects, rows.lines().count());
    for what in [
        "added", "changed", "decided", "claimed", "finished", "refused",
    ] {
        assert!(
            lists[0].effects.get(what).is_some_and(|times| *times >= 3),
            "this list had fewer than three operations `{what}` with an effect: {:?}, CAMPANILE_TEST_SEED={seed}",
            lists[0].effects
        );
    }
}
