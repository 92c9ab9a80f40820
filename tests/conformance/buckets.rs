//! Buckets of keys and values: exact byte counts, fenced writes, and changes that apply fully or not at all.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use campanile_engine::run::buckets::{BucketPermits, RunBuckets};
use campanile_model::ids::RunId;
use campanile_package::quota::{NamespaceQuota, Namespaces};
use campanile_sandbox::{BucketError, Buckets, MemoryBuckets, entry_bytes};
use campanile_store::{buckets as db_buckets, launch};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, unknown_run};

on_both!(
    written_values_are_read_and_listed,
    a_bucket_counts_its_bytes_exactly,
    a_write_over_the_limit_changes_nothing,
    the_buckets_of_a_namespace_share_its_quota,
    only_numbers_can_be_incremented,
    concurrent_increments_are_all_counted,
    a_run_that_lost_its_claim_cannot_write,
    keys_are_compared_as_bytes,
    database_buckets_and_memory_buckets_agree,
);

const BYTES_MAX: u64 = 1 << 20;

fn text(value: &str) -> Option<Vec<u8>> {
    Some(value.as_bytes().to_vec())
}

fn set(key: &str, value: &str) -> (String, Option<Vec<u8>>) {
    (key.to_owned(), text(value))
}

fn delete(key: &str) -> (String, Option<Vec<u8>>) {
    (key.to_owned(), None)
}

fn keys(keys: &[&str]) -> Vec<String> {
    keys.iter().map(|key| (*key).to_owned()).collect()
}

/// Return the buckets of a new run that a host has claimed.
async fn buckets_of_run(test: &TestDb) -> RunBuckets {
    let host = host_with_schedules(test, 1).await;
    let mut tx = test.write().await;
    let run = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    tx.commit().await.unwrap();
    RunBuckets {
        db: test.db.clone(),
        run: run.run_id,
        fence: run.fence,
        permits: BucketPermits::default(),
        namespaces: Default::default(),
    }
}

async fn written_values_are_read_and_listed(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let changes = [set("b", "2"), set("a", "1"), set("c", ""), set("b", "two")];
    buckets
        .write("p/default", &changes, BYTES_MAX)
        .await
        .unwrap();
    buckets
        .write("p/other", &[set("a", "elsewhere")], BYTES_MAX)
        .await
        .unwrap();
    let requested = keys(&["a", "b", "c", "d", "a"]);
    let found = buckets.get("p/default", &requested).await.unwrap();
    assert_eq!(found, [text("1"), text("two"), text(""), None, text("1")]);
    // Keys are listed in the order in which they were first set, a page at a time.
    let listed = buckets.keys("p/default", 0, 2).await.unwrap();
    assert_eq!(listed, [(1, "b".to_owned()), (2, "a".to_owned())]);
    let listed = buckets.keys("p/default", 2, 2).await.unwrap();
    assert_eq!(listed, [(3, "c".to_owned())]);
    buckets
        .write("p/default", &[delete("b"), delete("never")], BYTES_MAX)
        .await
        .unwrap();
    buckets
        .write("p/default", &[set("b", "again")], BYTES_MAX)
        .await
        .unwrap();
    // Deletions and new keys between two pages do not change the other positions.
    let listed = buckets.keys("p/default", 0, 10).await.unwrap();
    let positions: Vec<u64> = listed.iter().map(|(position, _)| *position).collect();
    assert_eq!(positions, [2, 3, 4]);
    assert_eq!(listed[2].1, "b");
    assert_eq!(buckets.keys("p/none", 0, 10).await.unwrap(), []);
}

async fn a_bucket_counts_its_bytes_exactly(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let one = entry_bytes("a", b"12345");
    let bytes = buckets.write("n", &[set("a", "12345")], BYTES_MAX).await;
    assert_eq!(bytes, Ok(one));
    let bytes = buckets.write("n", &[set("a", "1")], BYTES_MAX).await;
    assert_eq!(bytes, Ok(one - 4));
    let both = one - 4 + entry_bytes("é", "é".as_bytes());
    assert_eq!(
        buckets.write("n", &[set("é", "é")], BYTES_MAX).await,
        Ok(both)
    );
    let none = [delete("a"), delete("é"), delete("x")];
    assert_eq!(buckets.write("n", &none, BYTES_MAX).await, Ok(0));
}

async fn a_write_over_the_limit_changes_nothing(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let most = 2 * entry_bytes("a", b"1");
    let fits = [set("a", "1"), set("b", "2")];
    assert_eq!(buckets.write("n", &fits, most).await, Ok(most));
    let too_much = [set("a", "9"), set("c", "3")];
    let refused = buckets.write("n", &too_much, most).await.unwrap_err();
    let bytes = most + entry_bytes("c", b"3");
    assert_eq!(
        refused,
        BucketError::Full {
            bytes,
            bytes_max: most
        }
    );
    let found = buckets.get("n", &keys(&["a", "c"])).await.unwrap();
    assert_eq!(found, [text("1"), None], "neither change is applied");
    // Under a lowered limit a bucket may keep its size or shrink, but not grow.
    assert_eq!(buckets.write("n", &[set("a", "7")], 10).await, Ok(most));
    assert!(buckets.write("n", &[delete("a")], 10).await.is_ok());
    assert!(buckets.increment("n", "b", 100, 10).await.is_err());
}

async fn the_buckets_of_a_namespace_share_its_quota(test: TestDb) {
    let one = entry_bytes("a", b"1");
    let quota = NamespaceQuota {
        bucket_bytes: Some(2 * one),
        ..NamespaceQuota::default()
    };
    let team = "team".parse().unwrap();
    let buckets = RunBuckets {
        namespaces: Arc::new(Namespaces::from([(team, quota)])),
        ..buckets_of_run(&test).await
    };
    let write =
        async |bucket: &'static str, change| buckets.write(bucket, &[change], BYTES_MAX).await;
    assert_eq!(write("@team/a/default", set("a", "1")).await, Ok(one));
    assert_eq!(write("@team/b/default", set("a", "1")).await, Ok(one));
    let refused = write("@team/shared", set("a", "1")).await.unwrap_err();
    let bytes_max = 2 * one;
    let bytes = 3 * one;
    assert_eq!(
        refused,
        BucketError::NamespaceFull {
            namespace: "team".to_owned(),
            bytes,
            bytes_max,
        }
    );
    let found = buckets.get("@team/shared", &keys(&["a"])).await.unwrap();
    assert_eq!(found, [None]);
    // Other names do not count, and what does not grow is allowed.
    for bucket in ["p/default", "@team2/a/default"] {
        assert_eq!(write(bucket, set("a", "1")).await, Ok(one), "{bucket}");
    }
    assert_eq!(write("@team/a/default", set("a", "2")).await, Ok(one));
    assert_eq!(write("@team/a/default", delete("a")).await, Ok(0));
    assert_eq!(write("@team/shared", set("a", "1")).await, Ok(one));
}

async fn only_numbers_can_be_incremented(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let increment = async |key: &'static str, delta| {
        let done = buckets.increment("n", key, delta, BYTES_MAX).await;
        done.map(|(sum, _)| sum)
    };
    assert_eq!(increment("count", 5).await, Ok(5));
    assert_eq!(increment("count", 7).await, Ok(12));
    let found = buckets.get("n", &keys(&["count"])).await.unwrap();
    assert_eq!(found, [text("12")]);
    assert!(matches!(
        increment("count", u64::MAX).await,
        Err(BucketError::NoNumber { .. })
    ));
    buckets
        .write("n", &[set("word", "text")], BYTES_MAX)
        .await
        .unwrap();
    let refused = increment("word", 1).await.unwrap_err();
    assert!(
        refused
            .to_string()
            .contains("\"word\" cannot be incremented by 1")
    );
    assert_eq!(increment("count", 0).await, Ok(12));
}

async fn concurrent_increments_are_all_counted(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let increments = (0..20).map(|_| buckets.increment("n", "count", 1, BYTES_MAX));
    let sums = futures_util::future::join_all(increments).await;
    let mut sums: Vec<u64> = sums.into_iter().map(|done| done.unwrap().0).collect();
    sums.sort_unstable();
    assert_eq!(sums, (1..=20).collect::<Vec<u64>>());
}

/// SQLite has one writer. A transaction waits for it in the pool and holds no lock meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_bucket_on_postgres_locks_neither_the_run_nor_the_database() {
    let test = campanile_tests::fresh_db(Backend::Postgres).await;
    let buckets = buckets_of_run(&test).await;
    // A transaction of another host holds the bucket's lock.
    let mut other_tx = test.write().await;
    db_buckets::lock(&mut other_tx, "n").await.unwrap();
    let other_tx = std::sync::Mutex::new(Some(other_tx));
    let has_answered = AtomicBool::new(false);
    let waiting = (0..10).map(async |_| {
        let answer = buckets.increment("n", "count", 1, BYTES_MAX).await;
        has_answered.store(true, Ordering::Relaxed);
        // The first increment timed out. Release the lock for the others.
        let lock_holder = other_tx.lock().unwrap().take();
        if let Some(lock_holder) = lock_holder {
            lock_holder.commit().await.unwrap();
        }
        answer
    });
    let waiting = futures_util::future::join_all(waiting);
    let other_work = async {
        // By then, all increments have reached the lock. If one hasn't, this test merely proves less.
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut tx = test.write().await;
        let is_current = launch::lock_if_current(&mut tx, buckets.run, buckets.fence).await;
        assert!(is_current.unwrap());
        tx.commit().await.unwrap();
        let all_wait = !has_answered.load(Ordering::Relaxed);
        assert!(all_wait, "it waited until an increment gave up");
    };
    let (answers, ()) = tokio::join!(waiting, other_work);
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(refused.contains(&Err(BucketError::Unreachable)));
    assert!(
        done.len() >= 7,
        "the increments after the first one succeed: {done:?}"
    );
}

async fn a_run_that_lost_its_claim_cannot_write(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    buckets
        .write("n", &[set("a", "mine")], BYTES_MAX)
        .await
        .unwrap();
    let with_claim = |run: RunId, fence: i64| RunBuckets {
        db: test.db.clone(),
        run,
        fence,
        permits: BucketPermits::default(),
        namespaces: Default::default(),
    };
    for stale in [
        with_claim(buckets.run, buckets.fence - 1),
        with_claim(unknown_run(), buckets.fence),
    ] {
        let written = stale.write("n", &[set("a", "stale")], BYTES_MAX).await;
        assert_eq!(written, Err(BucketError::ClaimLost));
        let incremented = stale.increment("n", "count", 1, BYTES_MAX).await;
        assert_eq!(incremented, Err(BucketError::ClaimLost));
        // A stale run may still read.
        let found = stale.get("n", &keys(&["a", "count"])).await.unwrap();
        assert_eq!(found, [text("mine"), None]);
    }
    let mut tx = test.write().await;
    assert!(
        launch::lock_if_current(&mut tx, buckets.run, buckets.fence)
            .await
            .unwrap()
    );
}

async fn keys_are_compared_as_bytes(test: TestDb) {
    let buckets = buckets_of_run(&test).await;
    let odd = [
        "",
        "\0",
        "A",
        "a",
        "é",
        "e\u{301}",
        "\u{10ffff}",
        "' OR 1=1 --",
        "%",
    ];
    let changes: Vec<_> = odd.iter().map(|key| set(key, key)).collect();
    buckets.write("n", &changes, BYTES_MAX).await.unwrap();
    let found = buckets.get("n", &keys(&odd)).await.unwrap();
    let values: Vec<_> = odd.iter().map(|key| text(key)).collect();
    assert_eq!(found, values);
    let listed = buckets.keys("n", 0, 100).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(listed, odd);
}

/// Random operations give the same results in the database and in memory. Tests of tasks use buckets in memory.
async fn database_buckets_and_memory_buckets_agree(test: TestDb) {
    use rand::{Rng as _, SeedableRng as _};
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let buckets = buckets_of_run(&test).await;
    let memory = MemoryBuckets::default();
    for _ in 0..200 {
        let key = format!("k{}", random.random_range(0..6));
        let most = random.random_range(0..600);
        if random.random_bool(0.3) {
            let delta = random.random_range(0..1000);
            let result = buckets.increment("n", &key, delta, most).await;
            assert_eq!(result, memory.increment("n", &key, delta, most).await);
        } else {
            let change = |random: &mut rand::rngs::StdRng| {
                let key = format!("k{}", random.random_range(0..6));
                let value = random.random_bool(0.7).then(|| {
                    let bytes = random.random_range(0..4);
                    vec![b'7'; bytes]
                });
                (key, value)
            };
            let changes: Vec<_> = (0..random.random_range(0..4))
                .map(|_| change(&mut random))
                .collect();
            let result = buckets.write("n", &changes, most).await;
            assert_eq!(result, memory.write("n", &changes, most).await);
        }
        let after = random.random_range(0..20);
        let listed = buckets.keys("n", after, 3).await.unwrap();
        assert_eq!(listed, memory.keys("n", after, 3).await.unwrap());
        let requested = keys(&["k0", "k1", "k2", "k3", "k4", "k5"]);
        let found = buckets.get("n", &requested).await.unwrap();
        assert_eq!(found, memory.get("n", &requested).await.unwrap());
    }
}
