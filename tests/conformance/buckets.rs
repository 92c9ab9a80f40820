//! Buckets of keys and values: the same on both databases, exact in size, fenced, and never half changed.

use std::time::{Duration, Instant};

use campanile_engine::buckets::{BucketPermits, RunBuckets};
use campanile_model::ids::RunId;
use campanile_sandbox::{BucketError, Buckets, MemoryBuckets, entry_bytes};
use campanile_store::{buckets as db_buckets, runs};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{at, begin, launch, run_id, small_setup};

on_both!(
    what_is_written_is_read_and_listed,
    a_bucket_counts_its_bytes_exactly,
    what_does_not_fit_changes_nothing,
    numbers_are_incremented_and_nothing_else_is,
    racing_increments_are_all_counted,
    a_run_that_lost_its_claim_writes_nothing,
    keys_are_bytes_to_the_database,
    the_database_does_what_memory_does,
);

const ROOM: u64 = 1 << 20;

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

/// The buckets of a running run.
async fn running(test: &TestDb) -> RunBuckets {
    let host = small_setup(test, 1).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    tx.commit().await.unwrap();
    RunBuckets {
        db: test.db.clone(),
        run: held.run_id,
        fence: held.fence,
        permits: BucketPermits::default(),
    }
}

async fn what_is_written_is_read_and_listed(test: TestDb) {
    let buckets = running(&test).await;
    let changes = [set("b", "2"), set("a", "1"), set("c", ""), set("b", "two")];
    buckets.write("p/default", &changes, ROOM).await.unwrap();
    buckets
        .write("p/other", &[set("a", "elsewhere")], ROOM)
        .await
        .unwrap();
    let asked = keys(&["a", "b", "c", "d", "a"]);
    let found = buckets.get("p/default", &asked).await.unwrap();
    assert_eq!(found, [text("1"), text("two"), text(""), None, text("1")]);
    // In the order in which they were first set, a page at a time.
    let listed = buckets.keys("p/default", 0, 2).await.unwrap();
    assert_eq!(listed, [(1, "b".to_owned()), (2, "a".to_owned())]);
    let listed = buckets.keys("p/default", 2, 2).await.unwrap();
    assert_eq!(listed, [(3, "c".to_owned())]);
    buckets
        .write("p/default", &[delete("b"), delete("never")], ROOM)
        .await
        .unwrap();
    buckets
        .write("p/default", &[set("b", "again")], ROOM)
        .await
        .unwrap();
    // A page is not upset by what came and went meanwhile.
    let listed = buckets.keys("p/default", 0, 10).await.unwrap();
    let places: Vec<u64> = listed.iter().map(|(place, _)| *place).collect();
    assert_eq!(places, [2, 3, 4]);
    assert_eq!(listed[2].1, "b");
    assert_eq!(buckets.keys("p/none", 0, 10).await.unwrap(), []);
}

async fn a_bucket_counts_its_bytes_exactly(test: TestDb) {
    let buckets = running(&test).await;
    let one = entry_bytes("a", b"12345");
    let bytes = buckets.write("n", &[set("a", "12345")], ROOM).await;
    assert_eq!(bytes, Ok(one));
    let bytes = buckets.write("n", &[set("a", "1")], ROOM).await;
    assert_eq!(bytes, Ok(one - 4));
    let both = one - 4 + entry_bytes("é", "é".as_bytes());
    assert_eq!(buckets.write("n", &[set("é", "é")], ROOM).await, Ok(both));
    let none = [delete("a"), delete("é"), delete("x")];
    assert_eq!(buckets.write("n", &none, ROOM).await, Ok(0));
}

async fn what_does_not_fit_changes_nothing(test: TestDb) {
    let buckets = running(&test).await;
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
    assert_eq!(found, [text("1"), None], "neither of the two");
    // A limit that was lowered meanwhile still lets it shrink, and stay as large.
    assert_eq!(buckets.write("n", &[set("a", "7")], 10).await, Ok(most));
    assert!(buckets.write("n", &[delete("a")], 10).await.is_ok());
    assert!(buckets.increment("n", "b", 100, 10).await.is_err());
}

async fn numbers_are_incremented_and_nothing_else_is(test: TestDb) {
    let buckets = running(&test).await;
    let increment = async |key: &'static str, delta| {
        let done = buckets.increment("n", key, delta, ROOM).await;
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
        .write("n", &[set("word", "ding")], ROOM)
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

async fn racing_increments_are_all_counted(test: TestDb) {
    let buckets = running(&test).await;
    let racing = (0..20).map(|_| buckets.increment("n", "count", 1, ROOM));
    let sums = futures_util::future::join_all(racing).await;
    let mut sums: Vec<u64> = sums.into_iter().map(|done| done.unwrap().0).collect();
    sums.sort_unstable();
    assert_eq!(sums, (1..=20).collect::<Vec<u64>>());
}

/// SQLite has one writer. A transaction waits for it in the pool and holds no lock meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_bucket_on_postgres_holds_neither_run_nor_database() {
    let test = campanile_tests::fresh_db(Backend::Postgres).await;
    let buckets = running(&test).await;
    // Another host's guest is in the middle of its change, and stays there.
    let mut theirs = test.write().await;
    db_buckets::lock(&mut theirs, "n").await.unwrap();
    let theirs = std::sync::Mutex::new(Some(theirs));
    let waiting = (0..10).map(async |_| {
        let answer = buckets.increment("n", "count", 1, ROOM).await;
        // The first one has waited too long and continues now.
        let held = theirs.lock().unwrap().take();
        if let Some(held) = held {
            held.commit().await.unwrap();
        }
        answer
    });
    let waiting = futures_util::future::join_all(waiting);
    let meanwhile = async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let began = Instant::now();
        let mut tx = test.write().await;
        let held = runs::lock_if_current(&mut tx, buckets.run, buckets.fence).await;
        assert!(held.unwrap());
        tx.commit().await.unwrap();
        assert!(began.elapsed() < Duration::from_secs(1));
    };
    let (answers, ()) = tokio::join!(waiting, meanwhile);
    let (done, refused): (Vec<_>, Vec<_>) = answers.into_iter().partition(Result::is_ok);
    assert!(refused.contains(&Err(BucketError::Unreachable)));
    assert!(
        done.len() >= 7,
        "those whose turn came later were done: {done:?}"
    );
}

async fn a_run_that_lost_its_claim_writes_nothing(test: TestDb) {
    let buckets = running(&test).await;
    buckets.write("n", &[set("a", "mine")], ROOM).await.unwrap();
    let another = |run: RunId, fence: i64| RunBuckets {
        db: test.db.clone(),
        run,
        fence,
        permits: BucketPermits::default(),
    };
    for stale in [
        another(buckets.run, buckets.fence - 1),
        another(run_id(999), buckets.fence),
    ] {
        let written = stale.write("n", &[set("a", "stale")], ROOM).await;
        assert_eq!(written, Err(BucketError::ClaimLost));
        let incremented = stale.increment("n", "count", 1, ROOM).await;
        assert_eq!(incremented, Err(BucketError::ClaimLost));
        // Reading does no harm.
        let found = stale.get("n", &keys(&["a", "count"])).await.unwrap();
        assert_eq!(found, [text("mine"), None]);
    }
    let mut tx = test.write().await;
    assert!(
        runs::lock_if_current(&mut tx, buckets.run, buckets.fence)
            .await
            .unwrap()
    );
}

async fn keys_are_bytes_to_the_database(test: TestDb) {
    let buckets = running(&test).await;
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
    buckets.write("n", &changes, ROOM).await.unwrap();
    let found = buckets.get("n", &keys(&odd)).await.unwrap();
    let values: Vec<_> = odd.iter().map(|key| text(key)).collect();
    assert_eq!(found, values);
    let listed = buckets.keys("n", 0, 100).await.unwrap();
    let listed: Vec<&str> = listed.iter().map(|(_, key)| key.as_str()).collect();
    assert_eq!(listed, odd);
}

/// The same operations, drawn at random, on the database and in memory: tests of tasks trust the latter.
async fn the_database_does_what_memory_does(test: TestDb) {
    use rand::{Rng as _, SeedableRng as _};
    let seed = rand::random();
    println!("seed {seed}");
    let mut random = rand::rngs::StdRng::seed_from_u64(seed);
    let buckets = running(&test).await;
    let memory = MemoryBuckets::default();
    for _ in 0..200 {
        let key = format!("k{}", random.random_range(0..6));
        let most = random.random_range(0..600);
        if random.random_bool(0.3) {
            let delta = random.random_range(0..1000);
            let one = buckets.increment("n", &key, delta, most).await;
            assert_eq!(one, memory.increment("n", &key, delta, most).await);
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
            let one = buckets.write("n", &changes, most).await;
            assert_eq!(one, memory.write("n", &changes, most).await);
        }
        let after = random.random_range(0..20);
        let listed = buckets.keys("n", after, 3).await.unwrap();
        assert_eq!(listed, memory.keys("n", after, 3).await.unwrap());
        let asked = keys(&["k0", "k1", "k2", "k3", "k4", "k5"]);
        let found = buckets.get("n", &asked).await.unwrap();
        assert_eq!(found, memory.get("n", &asked).await.unwrap());
    }
}
