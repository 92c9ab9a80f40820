//! How many statements a step of a host sends: as many for forty launches as for one.
//!
//! sqlx logs each statement in the span of its caller, on both databases. A subscriber counts them by span.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock, Mutex, Once};
use std::time::Duration;

use campanile_engine::run::buckets::{BucketPermits, RunBuckets};
use campanile_engine::{Engine, Work};
use campanile_model::clock::{Clock, Timestamp};
use campanile_sandbox::Buckets as _;
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launch::{Finish, RunEnd};
use campanile_store::{FailureKind, Origin, hosts, schedules};
use campanile_tests::{Backend, TestDb, on_both};
use tracing::{Event, Instrument as _, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

use crate::fixtures::{at, host, host_id, insert_schedule, revision};
use crate::serving::{self, NOOP, settings};

on_both!(
    a_tick_sends_as_many_for_forty_launches_as_for_one,
    so_do_the_steps_of_launches_that_wait_on_the_record,
    so_does_the_release_of_queued_launches,
    so_do_renewal_and_recovery,
    so_do_the_changes_of_a_bucket,
    a_host_asks_for_the_runs_of_others_only_when_there_are_others,
);

/// The schedules of the larger measurement.
const MANY: usize = 32;
/// Planning stops after 20 ms, leaving the rest for the next transaction. A busy machine may need several slots before deciding all
/// launches at once.
const SLOTS_OF_MANY: [u64; 8] = [20, 30, 40, 50, 60, 70, 80, 90];
const COUNTED: &str = "counted";
/// The connections of SQLite that read.
const SQLITE_READERS: usize = 4;

/// The number of statements in each span called [`COUNTED`], by the id of the span.
static STATEMENTS: LazyLock<Mutex<HashMap<u64, usize>>> = LazyLock::new(Mutex::default);

struct Counter;

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Counter {
    fn on_event(&self, event: &Event<'_>, ctx: Context<'_, S>) {
        for span in ctx.event_scope(event).into_iter().flatten() {
            if span.name() == COUNTED {
                let mut statements = STATEMENTS.lock().unwrap();
                *statements.entry(span.id().into_u64()).or_default() += 1;
            }
        }
    }
}

/// Return the result of `step`, and how many statements it sent.
async fn counted<T>(test: &TestDb, step: impl Future<Output = T>) -> (T, usize) {
    static SUBSCRIBER: Once = Once::new();
    SUBSCRIBER.call_once(|| {
        let targets = Targets::new()
            .with_target("sqlx::query", Level::DEBUG)
            .with_target(module_path!(), Level::INFO);
        let subscriber = tracing_subscriber::registry().with(Counter.with_filter(targets));
        tracing::subscriber::set_global_default(subscriber).unwrap();
    });
    // The connections are opened before, because opening one sends statements too.
    use_all_connections(test).await;
    let span = tracing::info_span!("counted");
    let id = span.id().expect("the span is enabled").into_u64();
    let done = step.instrument(span.clone()).await;
    // A thread of SQLite logs a statement after its answer. When it begins another transaction, it has logged all before.
    use_all_connections(test).await;
    let count = STATEMENTS.lock().unwrap().remove(&id);
    (done, count.unwrap_or_default())
}

/// Begin a transaction on each connection of SQLite.
async fn use_all_connections(test: &TestDb) {
    let mut transactions = vec![test.write().await];
    for _ in 0..SQLITE_READERS {
        transactions.push(test.read().await);
    }
}

/// A host with capacity for all launches, and one schedule that is due at `at(10)` and every ten seconds after it.
async fn start(test: &TestDb, overlap: Overlap) -> (Arc<Engine>, Clock) {
    let clock = Clock::simulated(at(10));
    let (engine, lock) = serving::start(test, &clock, settings(256), NOOP).await;
    std::mem::forget(lock);
    add(test, 1..=1, overlap, at(10)).await;
    (engine, clock)
}

/// Add the other schedules, which are due at `first`.
async fn add_others(test: &TestDb, overlap: Overlap, first: Timestamp) {
    add(test, 2..=MANY, overlap, first).await;
}

async fn add(
    test: &TestDb,
    numbers: impl Iterator<Item = usize>,
    overlap: Overlap,
    first: Timestamp,
) {
    let policies = Policies {
        overlap,
        ..Policies::default()
    };
    let mut tx = test.write().await;
    for number in numbers {
        let definition = schedules::Revision {
            package: NOOP.0.to_owned(),
            policies: serde_json::to_string(&policies).unwrap(),
            rule: RuleText {
                anchor: Some(at(0)),
                ..RuleText::new(RuleKind::Every, "10s", "UTC")
            },
            // No slot is missed before the first one.
            since: first.minus(Duration::from_secs(5)),
            ..revision(number as u128)
        };
        insert_schedule(&mut tx, &definition, Origin::Operator, Some(first))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
}

/// Decides and claims so many launches. A busy machine needs several transactions, as planning stops after 20 ms.
async fn start_launches(engine: &Engine, now: Timestamp, launches: usize) -> Vec<Work> {
    let mut all = Vec::new();
    while all.len() < launches {
        let (decided, work) = engine.decide_and_claim(now).await.unwrap();
        assert!(decided.decisions > 0, "{} launches are due", all.len());
        all.extend(work);
    }
    assert_eq!(all.len(), launches);
    all
}

/// The ends of runs: they succeeded.
fn ends(work: &[Work], now: Timestamp) -> Vec<Finish> {
    let end = |work: &Work| {
        let output = Some("1".to_owned());
        work.finished(RunEnd::Succeeded { output }, Vec::new(), now)
    };
    work.iter().map(end).collect()
}

/// The ends of runs: they failed.
fn failures(work: &[Work], now: Timestamp) -> Vec<Finish> {
    let end = |work: &Work| {
        let (kind, message) = (FailureKind::Failed, "no".to_owned());
        work.finished(RunEnd::Failed { kind, message }, Vec::new(), now)
    };
    work.iter().map(end).collect()
}

async fn a_tick_sends_as_many_for_forty_launches_as_for_one(test: TestDb) {
    let (engine, clock) = start(&test, Overlap::Skip).await;
    let (tick, for_one) = counted(&test, engine.tick(at(10))).await;
    assert_eq!(tick.unwrap().finished, 1);
    assert!(for_one > 10, "{for_one} statements were seen");

    add_others(&test, Overlap::Skip, at(20)).await;
    for slot in SLOTS_OF_MANY.map(at) {
        clock.advance_to(slot);
        let (tick, for_many) = counted(&test, engine.tick(slot)).await;
        if tick.unwrap().finished == MANY {
            assert_eq!(for_many, for_one);
            return;
        }
        while engine.tick(slot).await.unwrap().finished > 0 {}
    }
    panic!("no transaction decided {MANY} launches");
}

async fn so_do_the_steps_of_launches_that_wait_on_the_record(test: TestDb) {
    let (engine, clock) = start(&test, Overlap::Skip).await;
    let (launches, for_one) = steps(&test, &engine, at(10)).await;
    assert_eq!(launches, 1);
    add_others(&test, Overlap::Skip, at(20)).await;
    for slot in SLOTS_OF_MANY.map(at) {
        clock.advance_to(slot);
        let (launches, for_many) = steps(&test, &engine, slot).await;
        if launches == MANY {
            assert_eq!(for_many, for_one);
            return;
        }
        while steps(&test, &engine, slot).await.0 > 0 {}
    }
    panic!("no transaction decided {MANY} launches");
}

/// Decides, claims and finishes launches, returning their number and the statement count of each step.
async fn steps(test: &TestDb, engine: &Engine, now: Timestamp) -> (usize, [usize; 3]) {
    let (decided, deciding) = counted(test, engine.decide(now)).await;
    let (work, claiming) = counted(test, engine.claim(now)).await;
    let work = work.unwrap();
    assert_eq!(work.len(), decided.unwrap().decisions);
    let (finished, finishing) = counted(test, engine.finish(&failures(&work, now))).await;
    assert_eq!(finished.unwrap(), work.len());
    (work.len(), [deciding, claiming, finishing])
}

async fn so_does_the_release_of_queued_launches(test: TestDb) {
    let (engine, clock) = start(&test, Overlap::BufferOne).await;
    let mut counts = Vec::new();
    for (now, launches) in [(10, 1), (40, MANY)] {
        if launches == MANY {
            add_others(&test, Overlap::BufferOne, at(now)).await;
        }
        clock.advance_to(at(now));
        let work = start_launches(&engine, at(now), launches).await;
        clock.advance_to(at(now + 10));
        let mut queued = 0;
        while queued < launches {
            let decided = engine.decide(at(now + 10)).await.unwrap().decisions;
            assert!(decided > 0, "{queued} launches are queued");
            queued += decided;
        }
        let finished = engine.finish(&ends(&work, at(now + 10))).await.unwrap();
        assert_eq!(finished, launches);
        let (released, releasing) = counted(&test, engine.release(at(now + 10))).await;
        assert_eq!(released.unwrap(), launches);
        let work = engine.claim(at(now + 10)).await.unwrap();
        engine.finish(&ends(&work, at(now + 10))).await.unwrap();
        // The schedules are due again at the same time.
        clock.advance_to(at(now + 20));
        let (_, work) = engine.decide_and_claim(at(now + 20)).await.unwrap();
        engine.finish(&ends(&work, at(now + 20))).await.unwrap();
        counts.push(releasing);
    }
    assert_eq!(counts[1], counts[0]);
}

async fn so_do_renewal_and_recovery(test: TestDb) {
    let (engine, clock) = start(&test, Overlap::Skip).await;
    let mut counts = Vec::new();
    for (now, launches) in [(10, 1), (200, MANY)] {
        if launches == MANY {
            add_others(&test, Overlap::Skip, at(now)).await;
        }
        clock.advance_to(at(now));
        let work = start_launches(&engine, at(now), launches).await;
        for work in &work {
            engine.track(work);
        }
        let (renewed, renewing) = counted(&test, engine.renew(at(now))).await;
        renewed.unwrap();
        for work in &work {
            engine.untrack(work.run_id(), work.fence());
        }
        // Nothing renews the leases any more.
        let later = at(now + 60);
        clock.advance_to(later);
        engine.renew(later).await.unwrap();
        let (recovered, recovering) = counted(&test, engine.recover(later)).await;
        assert_eq!(recovered.unwrap().reopened, launches);
        let work = engine.claim(later).await.unwrap();
        assert_eq!(work.len(), launches);
        engine.finish(&ends(&work, later)).await.unwrap();
        // The slots that came meanwhile are decided before the next round.
        let (_, work) = engine.decide_and_claim(at(now + 180)).await.unwrap();
        engine.finish(&ends(&work, at(now + 180))).await.unwrap();
        counts.push((renewing, recovering));
    }
    assert_eq!(counts[1], counts[0]);
}

async fn so_do_the_changes_of_a_bucket(test: TestDb) {
    let (engine, _) = start(&test, Overlap::Skip).await;
    let (_, work) = engine.decide_and_claim(at(10)).await.unwrap();
    let buckets = RunBuckets {
        db: test.db.clone(),
        run: work[0].run_id(),
        fence: work[0].fence(),
        permits: BucketPermits::default(),
        namespaces: Default::default(),
    };
    let mut counts = Vec::new();
    for keys in [1, MANY] {
        let keys: Vec<String> = (0..keys).map(|n| format!("{keys}-{n}")).collect();
        let changes = keys
            .iter()
            .map(|key| (key.clone(), Some(b"value".to_vec())));
        let changes: Vec<_> = changes.collect();
        let (written, writing) = counted(&test, buckets.write("p/b", &changes, 1 << 20)).await;
        written.unwrap();
        let (read, reading) = counted(&test, buckets.get("p/b", &keys)).await;
        assert_eq!(read.unwrap().into_iter().flatten().count(), keys.len());
        let deletions: Vec<_> = keys.iter().map(|key| (key.clone(), None)).collect();
        let (deleted, deleting) = counted(&test, buckets.write("p/b", &deletions, 1 << 20)).await;
        deleted.unwrap();
        counts.push((writing, reading, deleting));
    }
    assert_eq!(counts[1], counts[0]);
}

/// SQLite has one host.
async fn a_host_asks_for_the_runs_of_others_only_when_there_are_others(test: TestDb) {
    let (engine, clock) = start(&test, Overlap::Skip).await;
    let mut counts = Vec::new();
    // The first step also reads the definition of the schedule.
    for now in [at(10), at(20), at(30)] {
        clock.advance_to(now);
        engine.look_at_hosts(now).await.unwrap();
        let (decided, count) = counted(&test, engine.decide_and_claim(now)).await;
        let work = decided.unwrap().1;
        assert_eq!(work.len(), 1);
        // The next slot must not overlap the run.
        assert_eq!(engine.finish(&ends(&work, now)).await.unwrap(), 1);
        let mut tx = test.write().await;
        let other = hosts::Host {
            lease_until: at(60),
            ..host(host_id(2), "other", now)
        };
        if counts.len() == 1 {
            hosts::register(&mut tx, &other).await.unwrap();
        }
        tx.commit().await.unwrap();
        counts.push(count);
    }
    let more = usize::from(test.backend() == Backend::Postgres);
    assert_eq!(counts[2], counts[1] + more);
}
