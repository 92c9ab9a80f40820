//! Several Postgres servers in one address, and a server that has no connection left.

use campanile_store::{DatabaseUrl, Db, DbError, Tx, probe};
use campanile_tests::Cluster;

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

#[tokio::test]
async fn each_connection_goes_to_the_first_server_that_has_the_role() {
    let mut first = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let mut second = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let secret = password(&first);
    execute(
        second.url(),
        &format!("ALTER ROLE campanile PASSWORD '{secret}'"),
    )
    .await;
    let listed = format!(
        "postgres://campanile:{secret}@127.0.0.1:{},127.0.0.1:{}/postgres",
        first.port(),
        second.port()
    );
    let url: DatabaseUrl = format!("{listed}?target_session_attrs=read-write")
        .parse()
        .unwrap();
    let db = Db::open_and_migrate(&url).await.unwrap();
    assert_eq!(port(&mut db.write().await.unwrap()).await, first.port());

    // The second server accepts no writes yet, as a standby that was not promoted.
    let on_second = listed.replace(&format!("127.0.0.1:{},", first.port()), "");
    let on_second: DatabaseUrl = on_second.parse().unwrap();
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
