//! Several Postgres servers in one address, a server turning read-only, and one with no connections left.

use campanile_control::reports::health;
use campanile_model::clock::Timestamp;
use campanile_store::disk::DiskSigns;
use campanile_store::{DatabaseUrl, Db, DbError, Tx, changes, probe};
use campanile_tests::{Cluster, PATIENCE};
use std::time::{Duration, Instant};

/// Run SQL on a server.
async fn execute(url: &DatabaseUrl, sql: &str) {
    let db = Db::open(url).await.unwrap();
    let mut tx = db.write().await.unwrap();
    probe::execute(&mut tx, sql).await.unwrap();
    tx.commit().await.unwrap();
    db.close().await;
}

/// Return the port of the server that has a transaction.
async fn port(tx: &mut Tx) -> u16 {
    let rows = probe::rows(tx, "SELECT current_setting('port')").await;
    rows.unwrap()[0][0].parse().unwrap()
}

/// Return the password in the address of a cluster.
fn password(cluster: &Cluster) -> String {
    let url = cluster.url().expose();
    let (_, rest) = url.split_once("campanile:").unwrap();
    rest.split_once('@').unwrap().0.to_owned()
}

/// Two servers with the same password, an address for both, and the second one's address.
async fn two_servers(options: &str) -> (Cluster, Cluster, DatabaseUrl, DatabaseUrl) {
    let first = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let second = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let secret = password(&first);
    execute(
        second.url(),
        &format!("ALTER ROLE campanile PASSWORD '{secret}'"),
    )
    .await;
    let url = format!(
        "postgres://campanile:{secret}@127.0.0.1:{},127.0.0.1:{}/postgres{options}",
        first.port(),
        second.port()
    );
    let (servers, _) = url.split_once("/postgres").unwrap();
    let on_second = servers.replace(&format!("127.0.0.1:{},", first.port()), "") + "/postgres";
    (
        first,
        second,
        url.parse().unwrap(),
        on_second.parse().unwrap(),
    )
}

/// Makes a running server refuse writes, as if demoted, without closing any connection.
async fn demote(cluster: &mut Cluster) {
    set_read_only(cluster, "on").await;
}

async fn set_read_only(cluster: &mut Cluster, value: &str) {
    let line = format!("default_transaction_read_only = '{value}'");
    cluster.set(&line).unwrap();
    let show = "SELECT current_setting('default_transaction_read_only')";
    wait_for_rows(cluster.url(), show, value).await;
}

/// Waits until a single-value query returns `wanted`, leaving no session open.
async fn wait_for_rows(url: &DatabaseUrl, query: &str, wanted: &str) {
    let until = Instant::now() + PATIENCE;
    // On a busy machine, the session of a closed one would still be counted by the next.
    let db = Db::open(url).await.unwrap();
    loop {
        let rows = probe::rows(&mut db.read().await.unwrap(), query).await;
        let rows = rows.unwrap();
        if rows[0][0] == wanted {
            return db.close().await;
        }
        assert!(Instant::now() < until, "{query}: {rows:?}, not {wanted}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

async fn write(db: &Db) -> Result<(), DbError> {
    let mut tx = db.write().await?;
    changes::bump(&mut tx).await?;
    tx.commit().await
}

/// Counts the pools' sessions, leaving out the test's own.
const SESSIONS: &str = "SELECT CAST(count(*) AS TEXT) FROM pg_stat_activity
    WHERE application_name = 'campanile' AND pid <> pg_backend_pid()";

/// A role change without closing a connection.
#[tokio::test]
async fn a_server_that_becomes_read_only_is_left_with_all_its_connections() {
    for options in ["", "?target_session_attrs=read-write"] {
        let (mut first, second, url, on_second) = two_servers(options).await;
        let db = Db::open_and_migrate(&url).await.unwrap();
        Db::open_and_migrate(&on_second).await.unwrap();
        let mut lock = db.host_lock("one").await.unwrap().expect("a free name");
        let mut idle = Vec::new();
        for _ in 0..5 {
            idle.push(db.read().await.unwrap());
        }
        let mut held = db.read().await.unwrap();
        drop(idle);
        demote(&mut first).await;

        let met = write(&db).await;
        assert!(matches!(met, Err(DbError::ReadOnly(_))), "{met:?}");
        write(&db).await.expect("the other server accepts writes");
        assert_eq!(port(&mut db.write().await.unwrap()).await, second.port());
        assert!(lock.hold().await.unwrap());
        let rows = "SELECT CAST(count(*) AS TEXT) FROM pg_locks WHERE locktype = 'advisory'";
        wait_for_rows(&on_second, rows, "1").await;
        // A transaction halfway through isn't disturbed; its connection ends along with it.
        assert_eq!(port(&mut held).await, first.port());
        wait_for_rows(first.url(), SESSIONS, "1").await;
        drop(held);
        wait_for_rows(first.url(), SESSIONS, "0").await;
    }
}

#[tokio::test]
async fn the_lock_of_a_name_notices_that_its_server_became_read_only() {
    let (mut first, second, url, on_second) = two_servers("?target_session_attrs=primary").await;
    let db = Db::open_and_migrate(&url).await.unwrap();
    Db::open_and_migrate(&on_second).await.unwrap();
    let mut lock = db.host_lock("one").await.unwrap().expect("a free name");
    demote(&mut first).await;
    // Nothing was written in the meantime.
    assert!(lock.hold().await.unwrap());
    assert_eq!(port(&mut db.write().await.unwrap()).await, second.port());
    wait_for_rows(first.url(), SESSIONS, "0").await;
}

#[tokio::test]
async fn the_only_server_is_used_again_when_it_accepts_writes_again() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let db = Db::open_and_migrate(cluster.url()).await.unwrap();
    write(&db).await.unwrap();
    demote(&mut cluster).await;
    for _ in 0..3 {
        let met = write(&db).await;
        let Err(error @ DbError::ReadOnly(_)) = met else {
            panic!("{met:?}");
        };
        assert!(error.is_transient());
    }
    let said = write(&db).await.unwrap_err().to_string();
    for part in [
        "the database's server accepts no writes",
        &format!("127.0.0.1:{} is a standby, or read-only", cluster.port()),
        "name every server of a cluster in the address",
    ] {
        assert!(said.contains(part), "{said}");
    }
    // Whatever can be read is read, and health says what is wrong.
    let now: Timestamp = "2026-05-04T20:30:00Z".parse().unwrap();
    let settings = crate::serving::settings(8);
    let mut tx = db.read().await.unwrap();
    let health = health::read(&mut tx, now, &settings, 0, DiskSigns::default()).await;
    let health = health.unwrap();
    let issue = health.issues.iter().find(|it| it.contains("no writes"));
    assert!(issue.is_some() && !health.healthy, "{health:?}");
    drop(tx);
    // A new host is refused before beginning anything.
    let refused = Db::open_and_migrate(cluster.url()).await.err();
    assert!(matches!(refused, Some(DbError::ReadOnly(_))), "{refused:?}");

    set_read_only(&mut cluster, "off").await;
    let until = Instant::now() + PATIENCE;
    while let Err(error) = write(&db).await {
        assert!(Instant::now() < until, "{error}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let health = health::read(
        &mut db.read().await.unwrap(),
        now,
        &settings,
        0,
        DiskSigns::default(),
    )
    .await;
    assert!(
        !health
            .unwrap()
            .issues
            .iter()
            .any(|it| it.contains("no writes"))
    );
}

#[tokio::test]
async fn each_connection_goes_to_the_first_server_that_has_the_role() {
    let (mut first, mut second, url, on_second) =
        two_servers("?target_session_attrs=read-write").await;
    let listed = url.expose().replace("?target_session_attrs=read-write", "");
    let db = Db::open_and_migrate(&url).await.unwrap();
    assert_eq!(port(&mut db.write().await.unwrap()).await, first.port());

    // The second server accepts no writes yet, as a standby that was not promoted.
    let read_only = "ALTER ROLE campanile SET default_transaction_read_only =";
    execute(&on_second, &format!("{read_only} on")).await;
    first.stop().unwrap();
    let Err(DbError::Unavailable(said)) = db.write().await else {
        panic!("a server that accepts no writes was used");
    };
    for part in [
        "none of the 2 servers",
        "refused",
        "target_session_attrs=read-write",
    ] {
        assert!(said.contains(part), "{said}");
    }
    let new = Db::open(&url).await;
    assert!(matches!(new.err(), Some(DbError::Unavailable(_))));
    let any: DatabaseUrl = listed.parse().unwrap();
    assert!(Db::open(&any).await.is_ok(), "any server will do");

    let mut tx = Db::open(&on_second).await.unwrap().write().await.unwrap();
    let writable = format!("SET TRANSACTION READ WRITE; {read_only} off");
    probe::execute(&mut tx, &writable).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = db.write().await.expect("the second server is writable now");
    assert_eq!(port(&mut tx).await, second.port());
    drop(tx);

    first.start_again().unwrap();
    second.stop().unwrap();
    assert_eq!(port(&mut db.write().await.unwrap()).await, first.port());
}

#[tokio::test]
async fn a_server_without_a_free_connection_is_named_and_tried_again() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let db = Db::open(cluster.url()).await.unwrap();
    let mut used = Vec::new();
    let error = loop {
        match Db::open(cluster.url()).await {
            // The pool keeps the connection open. The server closes connections that are idle in a transaction for 8 s, and
            // a slow machine needs longer to open all of them.
            Ok(other) => {
                drop(other.read().await.unwrap());
                used.push(other);
            }
            Err(error) => break error,
        }
    };
    assert!(matches!(error, DbError::Unavailable(_)), "{error:?}");
    let said = error.to_string();
    assert!(
        said.contains("too many clients") && said.contains("raise `max_connections`"),
        "{said}"
    );
    // While a host serves, it tries again.
    // A connection that was closed a moment ago may leave room for another one.
    let mut held = Vec::new();
    let refused = loop {
        match db.write().await {
            Ok(tx) => held.push(tx),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, DbError::Unavailable(_)), "{refused:?}");
    used.clear();
    held.clear();
    assert!(db.write().await.is_ok());
}
