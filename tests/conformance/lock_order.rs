//! Transactions lock launches in the order of their ids, whatever the server's plan.

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_store::Db;
use campanile_store::launch::{self, NewLaunch};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{ClaimedRun, at, claim_all, host_with_schedules, launch};

on_both!(renewals_and_ends_do_not_deadlock);

const LAUNCHES: u64 = 600;
const ROUNDS: usize = 3;

/// Renewing many runs is planned as a join following the table's rows, which are in reverse order of ids. Ending a few runs follows
/// their ids.
async fn renewals_and_ends_do_not_deadlock(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    for round in 0..ROUNDS as u64 {
        let mut tx = test.write().await;
        let first = 100 + round * LAUNCHES;
        for slots in (first..first + LAUNCHES)
            .rev()
            .collect::<Vec<_>>()
            .chunks(100)
        {
            let slots: Vec<NewLaunch> = slots.iter().map(|slot| launch(1, *slot)).collect();
            launch::insert(&mut tx, &slots).await.unwrap();
        }
        let now = at(first + LAUNCHES);
        let mut claimed = claim_all(&mut tx, host, now).await;
        tx.commit().await.unwrap();
        test.execute("ANALYZE launch").await;
        claimed.sort_unstable_by_key(|run| run.run_id);
        assert_eq!(claimed.len() as u64, LAUNCHES);
        let ends = tokio::spawn(finish_all(open(&test).await, claimed.clone(), now));
        let renewals = [open(&test).await, open(&test).await];
        let renewals = renewals.map(|db| tokio::spawn(renew_until_none(db, claimed.clone(), now)));
        ends.await.unwrap();
        for renewal in renewals {
            renewal.await.unwrap();
        }
    }
}

/// Opens the database again. A file of SQLite has one writer at a time: other connections would wait for it without an order, and
/// one of them in vain on a busy machine.
async fn open(test: &TestDb) -> Db {
    match test.backend() {
        Backend::Sqlite => test.db.clone(),
        Backend::Postgres => Db::open(&test.place.url).await.unwrap(),
    }
}

/// Finishes runs, a few at a time, spread over all of them.
async fn finish_all(db: Db, claimed: Vec<ClaimedRun>, now: Timestamp) {
    const PIECES: usize = 60;
    for piece in 0..PIECES {
        let ends = claimed.iter().skip(piece).step_by(PIECES);
        let ends: Vec<_> = ends.map(|run| run.succeeded("1", now)).collect();
        let mut tx = db.write().await.unwrap();
        let finished = launch::finish(&mut tx, &ends).await;
        assert_eq!(finished.unwrap().len(), ends.len());
        tx.commit().await.unwrap();
    }
}

/// Keeps renewing the leases of runs until all of them have ended.
async fn renew_until_none(db: Db, claimed: Vec<ClaimedRun>, now: Timestamp) {
    let held: Vec<_> = claimed.iter().map(|run| (run.run_id, run.fence)).collect();
    for seconds in 0.. {
        let mut tx = db.write().await.unwrap();
        let until = now.plus(Duration::from_secs(30 + seconds));
        let renewed = launch::renew(&mut tx, &held, until).await.unwrap();
        tx.commit().await.unwrap();
        if renewed.is_empty() {
            return;
        }
    }
}
