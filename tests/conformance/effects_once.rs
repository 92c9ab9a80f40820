//! Effects that happen once: what a call wrote in its bucket session takes effect with its success, or not at all.

use std::collections::HashMap;

use campanile_engine::run::buckets::{BucketPermits, RunBuckets};
use campanile_engine::run::call_commit::{CallCommit, SucceededCall, commit};
use campanile_model::ids::RunId;
use campanile_package::quota::Namespaces;
use campanile_sandbox::{BucketSession, Buckets, MemoryBuckets, Sessions, Uncommitted};
use campanile_schedule::policy::Policies;
use campanile_store::task_runs::{self, TaskRun};
use campanile_store::{Db, LaunchStatus, buckets as db_buckets, launch};
use campanile_tests::{TestDb, on_both, once_package};
use rand::{Rng as _, SeedableRng as _};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, unknown_run};
use crate::host_steps::{add, clock_time};
use crate::serving::{self, settings};

on_both!(
    a_session_takes_effect_with_the_success_of_its_call,
    a_failed_attempt_leaves_nothing_of_its_session,
    a_full_bucket_fails_the_call_and_nothing_is_written,
    a_commit_that_is_repeated_counts_once,
    a_run_that_lost_its_claim_commits_nothing,
    a_session_that_has_read_an_old_value_is_refused,
    increments_of_sessions_at_the_same_time_are_all_counted,
    database_sessions_and_memory_sessions_agree,
);

const BYTES_MAX: u64 = 1 << 20;

/// Run the package `once` with this sidecar for `ticks` minutes from its slot. Return the launch and the buckets `state`
/// and `plain`.
async fn run_once(
    test: &TestDb,
    sidecar: &str,
    ticks: usize,
) -> (launch::LaunchRow, [HashMap<String, String>; 2]) {
    let clock = campanile_model::clock::Clock::simulated(clock_time("10:30:00"));
    let plugins = test.place.folder.path().join("plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    std::fs::write(plugins.join("once.toml"), sidecar).unwrap();
    let package = once_package();
    let guest = ("once", package.as_slice());
    let (engine, _lock) = serving::start(test, &clock, settings(8), guest).await;
    add(test, "once", None, &Policies::default()).await;
    for minute in 0..ticks {
        let now = clock_time(&format!("11:{minute:02}:00"));
        clock.advance_to(now);
        engine.renew(now).await.unwrap();
        engine.tick(now).await.unwrap();
    }
    let mut tx = test.read().await;
    let launch = launch::list(&mut tx, None, 1).await.unwrap().remove(0);
    let state = entries(test, "once/state").await;
    let plain = entries(test, "once/plain").await;
    (launch, [state, plain])
}

async fn entries(test: &TestDb, namespace: &str) -> HashMap<String, String> {
    let mut tx = test.read().await;
    let keys = db_buckets::keys(&mut tx, namespace, 0, 100).await.unwrap();
    let keys: Vec<String> = keys
        .into_iter()
        .map(|row| String::from_utf8(row.key).unwrap())
        .collect();
    let asked: Vec<&str> = keys.iter().map(String::as_str).collect();
    let values = db_buckets::values(&mut tx, namespace, &asked)
        .await
        .unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    values
        .into_iter()
        .map(|(key, value)| (text(key), text(value)))
        .collect()
}

const STATE: &str = "[[grants.keyvalue]]\nbucket = 'state'\naccess = 'write'\n";
const PLAIN: &str = "[[grants.keyvalue]]\nbucket = 'plain'\naccess = 'write'\n";

async fn a_session_takes_effect_with_the_success_of_its_call(test: TestDb) {
    let (launch, [state, plain]) = run_once(&test, STATE, 1).await;
    assert_eq!(launch.status, LaunchStatus::Succeeded, "{launch:?}");
    let expected = [(launch.id.to_string(), "1"), ("count".to_owned(), "1")];
    assert_eq!(
        state,
        expected.map(|(key, value)| (key, value.to_owned())).into()
    );
    assert!(plain.is_empty());
}

async fn a_failed_attempt_leaves_nothing_of_its_session(test: TestDb) {
    let sidecar = format!("{STATE}{PLAIN}[grants.config]\nplain = 'yes'\nsucceed_on = '3'\n");
    let (launch, [state, plain]) = run_once(&test, &sidecar, 1).await;
    assert_eq!(launch.status, LaunchStatus::Waiting, "{launch:?}");
    assert!(state.is_empty(), "{state:?}");
    assert_eq!(plain[&launch.id.to_string()], "1");
}

async fn a_full_bucket_fails_the_call_and_nothing_is_written(test: TestDb) {
    let sidecar = format!("{STATE}[limits]\nkeyvalue = '120B'\n");
    let (launch, [state, _]) = run_once(&test, &sidecar, 1).await;
    assert_eq!(launch.status, LaunchStatus::Waiting, "{launch:?}");
    assert!(state.is_empty(), "{state:?}");
    let mut tx = test.read().await;
    let calls = task_runs::of_run(&mut tx, RunId::of(launch.id, 1))
        .await
        .unwrap();
    let [call] = calls.as_slice() else {
        panic!("{calls:?}");
    };
    assert!(!call.succeeded);
    let message = call.message.as_deref().unwrap();
    assert!(
        message.starts_with("the bucket would have 171 bytes and its limit is 120"),
        "{message}"
    );
}

/// A run that a host has claimed, and what its call left.
struct Claimed {
    run: (RunId, i64),
    call: TaskRun,
}

async fn committed(
    db: &Db,
    (run, fence): (RunId, i64),
    call: &TaskRun,
    uncommitted: &Uncommitted,
) -> CallCommit {
    let succeeded = SucceededCall {
        run,
        fence,
        package: "p",
        call,
        uncommitted,
        give_up_at: at(60),
        namespaces: &Namespaces::new(),
    };
    commit(db, succeeded).await.unwrap()
}

async fn claimed(test: &TestDb) -> Claimed {
    let host = host_with_schedules(test, 1).await;
    let mut tx = test.write().await;
    let run = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    tx.commit().await.unwrap();
    Claimed {
        run: (run.run_id, run.fence),
        call: TaskRun::succeeded("work", 1, at(10), at(11)),
    }
}

fn uncommitted(namespace: &str, session: BucketSession) -> Uncommitted {
    Uncommitted::of_sessions(Sessions::from([(namespace.to_owned(), session)]))
}

fn increment(key: &str) -> Uncommitted {
    let mut session = BucketSession::new(BYTES_MAX);
    session.add(key.to_owned(), 1);
    uncommitted("n", session)
}

async fn a_commit_that_is_repeated_counts_once(test: TestDb) {
    let Claimed { run, call } = claimed(&test).await;
    for _ in 0..2 {
        let done = committed(&test.db, run, &call, &increment("count")).await;
        assert_eq!(done, CallCommit::Done);
    }
    assert_eq!(entries(&test, "n").await["count"], "1");
    let mut tx = test.read().await;
    assert_eq!(task_runs::count_of_run(&mut tx, run.0).await.unwrap(), 1);
}

async fn a_run_that_lost_its_claim_commits_nothing(test: TestDb) {
    let Claimed { run, call } = claimed(&test).await;
    for stale in [(run.0, run.1 - 1), (unknown_run(), run.1)] {
        let done = committed(&test.db, stale, &call, &increment("count")).await;
        assert_eq!(done, CallCommit::Lost);
    }
    assert!(entries(&test, "n").await.is_empty());
    let mut tx = test.read().await;
    assert_eq!(task_runs::count_of_run(&mut tx, run.0).await.unwrap(), 0);
}

async fn a_session_that_has_read_an_old_value_is_refused(test: TestDb) {
    let Claimed { run, call } = claimed(&test).await;
    let buckets = RunBuckets {
        db: test.db.clone(),
        run: run.0,
        fence: run.1,
        permits: BucketPermits::default(),
        namespaces: Default::default(),
    };
    let set = |value: &str| [("balance".to_owned(), Some(value.as_bytes().to_vec()))];
    buckets.write("n", &set("10"), BYTES_MAX).await.unwrap();
    let mut session = BucketSession::new(BYTES_MAX);
    session.note_read("balance", Some(b"10"));
    let [change] = set("11");
    session.write(change);
    let session = uncommitted("n", session);
    buckets.write("n", &set("20"), BYTES_MAX).await.unwrap();
    let refused = CallCommit::Refused(
        "the value under \"balance\" was changed after the session had read it, so that nothing of the session was kept".to_owned(),
    );
    assert_eq!(committed(&test.db, run, &call, &session).await, refused);
    assert_eq!(entries(&test, "n").await["balance"], "20");
    // The same session is kept when the value is as the session has read it.
    buckets.write("n", &set("10"), BYTES_MAX).await.unwrap();
    assert_eq!(
        committed(&test.db, run, &call, &session).await,
        CallCommit::Done
    );
    assert_eq!(entries(&test, "n").await["balance"], "11");
}

async fn increments_of_sessions_at_the_same_time_are_all_counted(test: TestDb) {
    let Claimed { run, call } = claimed(&test).await;
    let commits = (1..=20).map(|attempt| {
        let (db, call) = (
            test.db.clone(),
            TaskRun {
                attempt,
                ..call.clone()
            },
        );
        async move { committed(&db, run, &call, &increment("count")).await }
    });
    for done in futures_util::future::join_all(commits).await {
        assert_eq!(done, CallCommit::Done);
    }
    assert_eq!(entries(&test, "n").await["count"], "20");
}

/// Random sessions have the same results in the database and in memory. Tests of tasks use buckets in memory.
async fn database_sessions_and_memory_sessions_agree(test: TestDb) {
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let Claimed { run, call } = claimed(&test).await;
    let memory = MemoryBuckets::default();
    for attempt in 1..=100 {
        let mut sessions = Sessions::new();
        for _ in 0..random.random_range(1..6) {
            let namespace = ["n", "m"][random.random_range(0..2)];
            let session = sessions
                .entry(namespace.to_owned())
                .or_insert_with(|| BucketSession::new(random.random_range(0..600)));
            let key = format!("k{}", random.random_range(0..6));
            match random.random_range(0..4) {
                0 => session.add(key, random.random_range(0..1000)),
                1 => {
                    let value = [None, Some(&b"7"[..]), Some(b"77")][random.random_range(0..3)];
                    session.note_read(&key, value);
                }
                2 => session.write((key, None)),
                _ => session.write((key, Some(vec![b'7'; random.random_range(0..4)]))),
            }
        }
        let uncommitted = Uncommitted::of_sessions(sessions);
        let call = TaskRun {
            attempt,
            ..call.clone()
        };
        let done = committed(&test.db, run, &call, &uncommitted).await;
        let expected = match memory.commit(&uncommitted.sessions) {
            Ok(()) => CallCommit::Done,
            Err(refusal) => CallCommit::Refused(refusal.to_string()),
        };
        assert_eq!(done, expected);
        for namespace in ["n", "m"] {
            let mut tx = test.read().await;
            let rows = db_buckets::keys(&mut tx, namespace, 0, 100).await.unwrap();
            let listed: Vec<(u64, String)> = rows
                .into_iter()
                .map(|row| {
                    (
                        row.position.unsigned_abs(),
                        String::from_utf8(row.key).unwrap(),
                    )
                })
                .collect();
            assert_eq!(listed, memory.keys(namespace, 0, 100).await.unwrap());
            let in_memory = memory.all().remove(namespace).unwrap_or_default();
            let in_database = entries(&test, namespace).await;
            let in_memory: HashMap<String, String> = in_memory
                .into_iter()
                .map(|(key, value)| (key, String::from_utf8(value).unwrap()))
                .collect();
            assert_eq!(in_database, in_memory);
        }
    }
}
