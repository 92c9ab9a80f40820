//! One list of random operations, run on both databases step by step: every answer is the same,
//! and so is every row at the end.
//!
//! `CAMPANILE_TEST_SEED=N` replays one list.

use std::fmt::Debug;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchKind, ScheduleId};
use campanile_store::events::{self, EventKind};
use campanile_store::launches::{self, NewLaunch};
use campanile_store::packages;
use campanile_store::recovery::{self, RecoveryAction, RecoveryDecision};
use campanile_store::runs::{self, NewRun, RunEnd, RunHashes};
use campanile_store::schedules::{self, CursorMove, Revision};
use campanile_store::task_runs::TaskRun;
use campanile_store::{DbError, FailureKind, Origin, Tx, changes, hosts, probe, stats};
use campanile_tests::dump::dump;
use campanile_tests::{Backend, TestDb, fresh_db};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use uuid::Uuid;

use crate::fixtures::{
    Held, PAUSE, at, host, host_id, launch, manual, publish, revision, run_id, set_next, skipped,
    task_run,
};

mod versions;

/// Operations in one list.
const OPERATIONS: usize = 500;
const HOSTS: u128 = 3;
const PACKAGES: [&str; 3] = ["chimes", "carillon", "gong"];
/// Between two slots of a schedule.
const PERIOD: Duration = Duration::from_secs(60);

/// What the caller of the database remembers: the same for both, as long as both answer the same.
struct Caller {
    random: StdRng,
    now: Timestamp,
    /// For whatever must not be there twice: instants, ids, attempts.
    count: u64,
    schedules: Vec<ScheduleId>,
    held: Vec<Held>,
    /// What has been done how often with any effect; a list that does nothing proves nothing.
    effects: std::collections::BTreeMap<&'static str, usize>,
}

impl Caller {
    fn new(seed: u64) -> Caller {
        Caller {
            random: StdRng::seed_from_u64(seed),
            now: at(0),
            count: 0,
            schedules: Vec::new(),
            held: Vec::new(),
            effects: Default::default(),
        }
    }

    fn next(&mut self) -> u64 {
        self.count += 1;
        self.count
    }

    /// An instant near `base` that no other answer has: order is then the same on both.
    fn apart(&mut self, base: Timestamp) -> Timestamp {
        let micros = Duration::from_micros(self.next());
        base.plus(micros)
    }

    fn one_in(&mut self, times: u32) -> bool {
        self.random.random_ratio(1, times)
    }

    fn host(&mut self) -> HostId {
        host_id(self.random.random_range(1..=HOSTS))
    }

    fn package(&mut self) -> &'static str {
        PACKAGES[self.random.random_range(0..PACKAGES.len())]
    }

    fn schedule(&mut self) -> ScheduleId {
        match self.schedules.len() {
            0 => ScheduleId(Uuid::from_u128(0)),
            len => self.schedules[self.random.random_range(0..len)],
        }
    }

    /// One of the newest runs; the older ones are over more often than not.
    fn held(&mut self) -> Option<Held> {
        let len = self.held.len();
        let newest = len.saturating_sub(12);
        (len > 0).then(|| self.held[self.random.random_range(newest..len)])
    }

    fn did(&mut self, what: &'static str, times: usize) {
        *self.effects.entry(what).or_default() += times;
    }
}

/// The answer as text. Of an error only its kind: its words are the database's own.
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

/// Do one random thing in one transaction; gives its name and the database's answer.
async fn step(test: &TestDb, caller: &mut Caller) -> (&'static str, String) {
    caller.now = caller
        .now
        .plus(Duration::from_secs(caller.random.random_range(0..12)));
    let now = caller.apart(caller.now);
    let mut tx = test.write().await;
    probe::execute(&mut tx, "SAVEPOINT before").await.unwrap();
    let (name, answer, commits) = match caller.random.random_range(0..100) {
        0..8 => add_schedule(&mut tx, caller, now).await,
        8..12 => revise(&mut tx, caller, now).await,
        12..20 => change_schedule(&mut tx, caller, now).await,
        20..35 => decide(&mut tx, caller, now).await,
        35..38 => trigger(&mut tx, caller, now).await,
        38..52 => take(&mut tx, caller, now).await,
        52..70 => finish(&mut tx, caller, now).await,
        70..75 => take_waiting(&mut tx, caller, now).await,
        75..78 => renew_or_record(&mut tx, caller, now).await,
        78..85 => recover(&mut tx, caller, now).await,
        85..91 => change_hosts(&mut tx, caller, now).await,
        91..96 => versions::change(&mut tx, caller, now).await,
        _ => look(&mut tx, now).await,
    };
    // Now and then everything is for nothing. Not by dropping the transaction: Postgres
    // learns of that a little later, and skips the locked rows until then.
    if !commits {
        probe::execute(&mut tx, "ROLLBACK TO SAVEPOINT before")
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    (name, answer)
}

type Done = (&'static str, String, bool);

async fn add_schedule(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let number = u128::from(caller.next());
    let definition = Revision {
        name: format!("bell-{}", caller.random.random_range(0..8)),
        package: caller.package().to_owned(),
        since: now,
        ..revision(number)
    };
    let next = caller.apart(now.plus(Duration::from_secs(20)));
    let next = Some(next).filter(|_| !caller.one_in(10));
    let origin = Origin::ALL[caller.random.random_range(0..Origin::ALL.len())];
    let answer = schedules::insert(tx, &definition, origin, next).await;
    if answer.is_ok() {
        caller.schedules.push(definition.schedule_id);
        caller.did("added", 1);
    }
    ("add", text(&answer), answer.is_ok())
}

async fn revise(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let id = caller.schedule();
    let all = schedules::list(tx, None, None).await.unwrap();
    let Some(found) = all.into_iter().find(|found| found.state.id == id) else {
        return ("revise", "gone".to_owned(), false);
    };
    let stale = i64::from(caller.one_in(4));
    let name = if caller.one_in(3) {
        format!("bell-{}", caller.random.random_range(0..8))
    } else {
        found.definition.name.clone()
    };
    let definition = Revision {
        revision: found.state.revision + 1 - stale,
        name,
        since: now,
        ..found.definition
    };
    let next = caller.apart(now.plus(PERIOD));
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
    caller.did("revised", usize::from(matches!(answer, Ok(true))));
    ("revise", text(&answer), answer.is_ok())
}

async fn change_schedule(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let id = caller.schedule();
    let next = caller.apart(now.plus(PERIOD));
    let answer = match caller.random.random_range(0..10) {
        0..3 => schedules::pause(tx, id, PAUSE, now).await,
        3..8 => schedules::resume(tx, id, now, now, Some(next)).await,
        8 => schedules::remove(tx, id, now).await,
        _ => set_next(tx, id, at(0), Some(next), now).await,
    };
    changes::bump(tx).await.unwrap();
    caller.did("changed", usize::from(matches!(answer, Ok(true))));
    ("change", text(&answer), answer.is_ok())
}

async fn decide(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let limit = caller.random.random_range(1..6);
    let due = schedules::due(tx, now, limit).await.unwrap();
    let mut moves = Vec::new();
    for due in &due {
        let stale = caller.one_in(6);
        moves.push(CursorMove {
            id: due.id,
            revision: due.revision,
            from: if stale { now } else { due.cursor_at },
            to: due.next_slot,
            next_slot: Some(due.next_slot.plus(PERIOD)).filter(|_| !caller.one_in(20)),
            launches: 1,
            caught_up: caller.one_in(5).then_some((now, due.next_slot)),
        });
    }
    let won = schedules::advance(tx, &moves).await.unwrap();
    let host = caller.host();
    let mut decided = Vec::new();
    for due in due.iter().filter(|due| won.contains(&due.id)) {
        let number = due.id.0.as_u128() - 0xB000;
        let base = if due.digest.is_none() || due.missing_since.is_some() {
            skipped(number, 0, "package_missing")
        } else if caller.one_in(8) {
            skipped(number, 0, "missed")
        } else {
            launch(number, 0)
        };
        let kind = if caller.one_in(5) {
            LaunchKind::Catchup
        } else {
            LaunchKind::Schedule
        };
        decided.push(NewLaunch {
            id: campanile_model::ids::LaunchId::of(due.id, due.next_slot, kind),
            kind,
            scheduled_time: due.next_slot,
            last_scheduled_time: due.next_slot,
            scheduled_local: due.next_slot.to_string(),
            fire_time: due.next_slot,
            interval_start: due.cursor_at,
            schedule_revision: due.revision,
            package: due.package.clone(),
            digest: due.digest.clone().filter(|_| base.reason.is_none()),
            decided_by: Some(host).filter(|_| !caller.one_in(10)),
            claimed_at: now,
            ..base
        });
    }
    let answer = launches::insert(tx, &decided).await;
    caller.did("decided", decided.len());
    (
        "decide",
        format!("{due:?} {:?} {}", sorted(Ok(won)), text(&answer)),
        true,
    )
}

async fn trigger(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let id = caller.schedule();
    let all = schedules::list(tx, None, None).await.unwrap();
    let Some(found) = all.into_iter().find(|found| found.state.id == id) else {
        return ("trigger", "gone".to_owned(), false);
    };
    let Some(package) = packages::find(tx, &found.definition.package).await.unwrap() else {
        return ("trigger", "no package".to_owned(), false);
    };
    let launch = NewLaunch {
        id: campanile_model::ids::LaunchId::of(id, now, LaunchKind::Manual),
        scheduled_time: now,
        last_scheduled_time: now,
        fire_time: now,
        claimed_at: now,
        package: package.name,
        digest: package.digest.clone(),
        ..manual(id.0.as_u128() - 0xB000, 0)
    };
    if package.digest.is_none() {
        return ("trigger", "no version".to_owned(), false);
    }
    let answer = launches::insert(tx, &[launch]).await;
    caller.did("triggered", 1);
    ("trigger", text(&answer), true)
}

async fn take(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let host = caller.host();
    let limit = caller.random.random_range(0..6);
    let open = runs::claimable(tx, host, now, limit).await.unwrap();
    let answer = format!("{open:?}");
    let mut new = Vec::new();
    for taken in &open {
        new.push(NewRun {
            id: run_id(u128::from(caller.next())),
            launch_id: taken.launch_id,
            schedule_id: taken.schedule_id,
            is_recovery: taken.recoveries > 0,
            digest: taken.digest.clone(),
            hashes: RunHashes {
                grants: Some(caller.next().to_string()),
                context: None,
            },
        });
    }
    let lease_until = now.plus(Duration::from_secs(90));
    runs::start(tx, host, &new, now, lease_until).await.unwrap();
    let commits = !caller.one_in(12);
    if commits {
        caller.did("begun", new.len());
        caller
            .held
            .extend(new.iter().zip(open).map(|(run, taken)| Held {
                run_id: run.id,
                fence: runs::FIRST_FENCE,
                launch_id: taken.launch_id,
                schedule_id: taken.schedule_id,
                scheduled_time: taken.scheduled_time,
            }));
    }
    ("take", answer, commits)
}

fn random_task(caller: &mut Caller) -> TaskRun {
    let failure = caller
        .one_in(3)
        .then(|| FailureKind::ALL[caller.random.random_range(0..FailureKind::ALL.len())]);
    TaskRun {
        succeeded: failure.is_none(),
        failure,
        message: failure.map(|kind| format!("it {kind}")),
        output: failure.is_none().then(|| "{\"n\":1}".to_owned()),
        stdout: "ding ".repeat(caller.random.random_range(0..9)),
        wall_ms: f64::from(caller.random.random_range(0..4_000)) / 4.0,
        cpu_ms: 0.25,
        memory_peak_bytes: 65_536,
        ..task_run("ring", caller.next() as i64)
    }
}

async fn finish(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let mut finishes = Vec::new();
    for _ in 0..caller.random.random_range(1..5) {
        let Some(mut held) = caller.held() else {
            break;
        };
        if finishes
            .iter()
            .any(|other: &runs::Finish| other.run_id == held.run_id)
        {
            continue;
        }
        if caller.one_in(8) {
            held.fence += 1;
        }
        let mut finish = match caller.random.random_range(0..10) {
            0..5 => held.succeeded(&format!("\"{}\"", held.scheduled_time), now),
            5..8 => held.failed("cracked", now),
            _ => {
                let retry_at = caller.apart(now.plus(Duration::from_secs(30)));
                held.finish(RunEnd::Waiting { retry_at }, now)
            }
        };
        for _ in 0..caller.random.random_range(0..3) {
            finish.tasks.push(random_task(caller));
        }
        finishes.push(finish);
    }
    let won = runs::finish(tx, &finishes).await;
    caller.did("finished", won.as_ref().map_or(0, Vec::len));
    caller.did("refused", finishes.len() - won.as_ref().map_or(0, Vec::len));
    ("finish", text(&sorted(won)), true)
}

async fn take_waiting(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let host = caller.host();
    let lease_until = now.plus(Duration::from_secs(90));
    let taken = runs::claim_retries(tx, host, now, lease_until, 4).await;
    for continued in taken.iter().flatten() {
        caller.did("continued", 1);
        caller.held.push(Held {
            run_id: continued.run_id,
            fence: continued.fence,
            launch_id: continued.launch.launch_id,
            schedule_id: continued.launch.schedule_id,
            scheduled_time: continued.launch.scheduled_time,
        });
    }
    ("take waiting", text(&taken), true)
}

async fn renew_or_record(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    if caller.one_in(2) {
        let newest = caller.held.len().saturating_sub(12);
        let mut claimed: Vec<_> = caller.held[newest..]
            .iter()
            .map(|held| (held.run_id, held.fence))
            .collect();
        claimed.dedup_by_key(|(run, _)| *run);
        let held = runs::renew(tx, &claimed, now.plus(Duration::from_secs(90))).await;
        caller.did("renewed", held.as_ref().map_or(0, Vec::len));
        return ("renew", text(&sorted(held)), true);
    }
    let Some(held) = caller.held() else {
        return ("record", "nothing".to_owned(), false);
    };
    let task = random_task(caller);
    let recorded = runs::record_tasks(tx, held.run_id, held.fence, &[task]).await;
    caller.did("recorded", usize::from(matches!(recorded, Ok(true))));
    ("record", text(&recorded), true)
}

async fn recover(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let retry_before = now.minus(Duration::from_secs(600));
    let lost = recovery::orphaned_runs(tx, now, retry_before, 20)
        .await
        .unwrap();
    let host = caller.host();
    let untouched_since = now.minus(Duration::from_secs(300));
    let forgotten = recovery::orphaned_launches(tx, host, untouched_since, 20)
        .await
        .unwrap();
    let answer = format!("{lost:?} {forgotten:?}");
    for strays in [lost, forgotten] {
        let mut verdicts = Vec::new();
        for stray in strays {
            if stray.missing_since.is_some() && !caller.one_in(3) {
                continue;
            }
            let action = match stray.recoveries {
                _ if stray.cancel_deadline.is_some() => RecoveryAction::Cancel,
                _ if !stray.enabled => RecoveryAction::Abandon("schedule_disabled"),
                2.. => RecoveryAction::MarkUnknown,
                _ => RecoveryAction::RunAgain,
            };
            caller.did(
                match action {
                    RecoveryAction::RunAgain => "recovered",
                    _ => "given up",
                },
                1,
            );
            verdicts.push(RecoveryDecision {
                launch_id: stray.launch_id,
                run_id: stray.run_id,
                action,
            });
        }
        recovery::apply(tx, host, &verdicts, "gone", now)
            .await
            .unwrap();
    }
    ("recover", answer, true)
}

async fn change_hosts(tx: &mut Tx, caller: &mut Caller, now: Timestamp) -> Done {
    let id = caller.host();
    let name = format!("tower-{}", id.0.as_u128() - 0xA000);
    let answer = match caller.random.random_range(0..12) {
        0..5 => text(&hosts::heartbeat(tx, id, now).await),
        5 => text(&hosts::end(tx, id, now).await),
        6 => text(&sorted(hosts::mark_predecessors_dead(tx, &name, now).await)),
        7 => {
            let silent_since = now.minus(Duration::from_secs(300));
            text(&sorted(
                hosts::mark_silent_dead(tx, silent_since, now).await,
            ))
        }
        _ => text(&hosts::revive(tx, id, now).await),
    };
    events::record(tx, now, EventKind::HostStarted, &name, &answer)
        .await
        .unwrap();
    let living = hosts::live(tx).await;
    ("hosts", format!("{answer} {:?}", sorted(living)), true)
}

async fn look(tx: &mut Tx, now: Timestamp) -> Done {
    let since = now.minus(Duration::from_secs(1_200));
    let seen = [
        text(&stats::counts(tx, since).await),
        text(&stats::health_signs(tx, now, now).await),
        text(&launches::list(tx, Some("bell-3"), 50).await),
        text(&runs::list(tx, None, 20).await),
        text(&schedules::list(tx, None, None).await),
        text(&runs::next_wake(tx, now).await),
        text(&schedules::next_due(tx).await),
        text(&events::list(tx, 30).await),
        text(&changes::counter(tx).await),
    ];
    ("look", seen.join("\n"), false)
}

async fn prepare(test: &TestDb) {
    let mut tx = test.write().await;
    for number in 1..=HOSTS {
        let id = host_id(number);
        hosts::register(&mut tx, &host(id, &format!("tower-{number}"), at(0)))
            .await
            .unwrap();
        for name in &PACKAGES[..number as usize] {
            publish(&mut tx, id, name, b"first", at(0)).await;
        }
    }
    tx.commit().await.unwrap();
}

#[tokio::test]
async fn both_databases_answer_a_random_list_of_operations_alike() {
    let seed = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    // Seen when the test fails.
    println!("CAMPANILE_TEST_SEED={seed}");
    let sqlite = fresh_db(Backend::Sqlite).await;
    let postgres = fresh_db(Backend::Postgres).await;
    prepare(&sqlite).await;
    prepare(&postgres).await;
    let mut callers = [Caller::new(seed), Caller::new(seed)];
    for number in 0..OPERATIONS {
        let (name, on_sqlite) = step(&sqlite, &mut callers[0]).await;
        let (_, on_postgres) = step(&postgres, &mut callers[1]).await;
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
    // What the index of open launches relies on, and what no foreign key checks.
    for wrong in [
        "launch WHERE status = 'open' AND run_id IS NOT NULL",
        "launch WHERE schedule_id NOT IN (SELECT id FROM schedule)",
        "launch WHERE run_id NOT IN (SELECT id FROM run)",
        "run WHERE launch_id NOT IN (SELECT id FROM launch)",
        "task_run WHERE run_id NOT IN (SELECT id FROM run)",
        "schedule_result WHERE schedule_id NOT IN (SELECT id FROM schedule)",
        "launch l WHERE (SELECT count(*) FROM run r
            WHERE r.launch_id = l.id AND r.status IN ('running', 'waiting', 'succeeded', 'failed')) > 1",
    ] {
        let count = format!("SELECT CAST(count(*) AS TEXT) FROM {wrong}");
        assert_eq!(sqlite.value(&count).await, "0", "{wrong}, CAMPANILE_TEST_SEED={seed}");
    }
    println!("{:?}, {} rows", callers[0].effects, rows.lines().count());
    for what in [
        "added", "changed", "decided", "begun", "finished", "refused",
    ] {
        assert!(
            callers[0]
                .effects
                .get(what)
                .is_some_and(|times| *times >= 3),
            "this list never did what it is for, {what}: {:?}, CAMPANILE_TEST_SEED={seed}",
            callers[0].effects
        );
    }
}
