//! How long a session on Postgres waits, and for whom: no transaction waits long for another host.

use std::time::{Duration, Instant};

use campanile_store::{DbError, Tx, hosts, probe};
use campanile_tests::{Backend, TestDb, fresh_db};

use crate::fixtures::{at, host, host_id, lease_until};

async fn shown(test: &TestDb, tx: &mut Tx) -> Vec<String> {
    let names = [
        "idle_in_transaction_session_timeout",
        "lock_timeout",
        "statement_timeout",
        "tcp_keepalives_idle",
        "tcp_keepalives_interval",
        "tcp_keepalives_count",
        "tcp_user_timeout",
    ];
    assert_eq!(test.backend(), Backend::Postgres);
    let list: Vec<String> = names
        .iter()
        .map(|name| format!("current_setting('{name}')"))
        .collect();
    let sql = format!("SELECT {}", list.join(", "));
    probe::rows(tx, &sql).await.unwrap().remove(0)
}

#[tokio::test]
async fn every_transaction_has_bounds_and_long_ones_have_longer_bounds() {
    let test = fresh_db(Backend::Postgres).await;
    let tcp = ["4", "2", "2", "8000"];
    for (mut tx, waits) in [
        (test.db.write().await.unwrap(), ["8s", "4s", "30s"]),
        (test.db.read().await.unwrap(), ["8s", "4s", "30s"]),
        (test.db.write_long().await.unwrap(), ["8s", "4s", "30min"]),
        (test.db.read_long().await.unwrap(), ["5min", "4s", "30min"]),
    ] {
        assert_eq!(shown(&test, &mut tx).await, [&waits[..], &tcp[..]].concat());
    }
    // The next transaction of the same connection has the usual bounds again.
    let mut tx = test.db.read().await.unwrap();
    assert_eq!(shown(&test, &mut tx).await[2], "30s");
    tx.allow_upload(100 << 20).await.unwrap();
    assert_eq!(shown(&test, &mut tx).await[0], "108s");
}

#[tokio::test]
async fn a_statement_waits_a_bounded_time_for_the_row_of_another_host() {
    let test = fresh_db(Backend::Postgres).await;
    let mut tx = test.write().await;
    hosts::register(&mut tx, &host(host_id(1), "host-1", at(0)))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut holder = test.write().await;
    assert!(
        hosts::heartbeat(&mut holder, host_id(1), at(1), lease_until(at(1)))
            .await
            .unwrap()
    );
    let mut waiter = test.write().await;
    let begun = Instant::now();
    let waited = hosts::heartbeat(&mut waiter, host_id(1), at(2), lease_until(at(2))).await;
    let took = begun.elapsed();
    // `Busy` is tried again.
    assert!(matches!(&waited, Err(DbError::Busy(_))), "{waited:?}");
    assert!(waited.unwrap_err().is_transient());
    // It waited, then gave up with the other transaction still holding the row.
    assert!(took >= Duration::from_secs(3), "{took:?}");
}

#[tokio::test]
async fn a_host_whose_heartbeat_is_locked_does_not_keep_others_from_being_marked_dead() {
    let test = fresh_db(Backend::Postgres).await;
    let mut tx = test.write().await;
    for (number, name) in [(1, "lost"), (2, "dead")] {
        hosts::register(&mut tx, &host(host_id(number), name, at(0)))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut lost = test.write().await;
    assert!(
        hosts::heartbeat(&mut lost, host_id(1), at(1), lease_until(at(1)))
            .await
            .unwrap()
    );
    let mut other = test.write().await;
    let dead = hosts::mark_silent_dead(&mut other, at(20)).await;
    let names: Vec<String> = dead.unwrap().into_iter().map(|host| host.name).collect();
    assert_eq!(names, ["dead"]);
    other.commit().await.unwrap();
    // Its session has ended.
    drop(lost);
    for _ in 0..200 {
        let mut other = test.write().await;
        let dead = hosts::mark_silent_dead(&mut other, at(20)).await;
        if dead.unwrap().iter().any(|host| host.name == "lost") {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("the host was not marked as dead");
}
