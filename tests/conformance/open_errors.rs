//! The messages when a database cannot be opened: what is wrong, where, and what to do next.

use std::str::FromStr;

use campanile_store::{DatabaseUrl, Db, DbError};
use campanile_tests::cluster::free_port;
use campanile_tests::{Backend, TestDb, fresh_db, fresh_place, on_both};
use tempfile::TempDir;
use uuid::Uuid;

on_both!(a_closed_database_is_reported_as_closed);

/// Return the message of a refusal with the changing part `part` replaced by `name`.
fn message(refused: Result<Db, DbError>, part: &str, name: &str) -> String {
    let Err(error) = refused else {
        panic!("{part} was opened");
    };
    error.to_string().replace(part, name)
}

/// Return the part of a message after the address.
fn reason(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, reason)| reason)
}

async fn a_closed_database_is_reported_as_closed(test: TestDb) {
    test.db.close().await;
    let Err(error) = test.db.read().await else {
        panic!("read from a closed database");
    };
    assert_eq!(
        error.to_string(),
        "the database cannot be reached: it was closed"
    );
    assert!(error.is_transient());
}

#[tokio::test]
async fn a_missing_file_is_reported_with_the_next_step() {
    let place = fresh_place(Backend::Sqlite).await;
    let path = place.folder.path().display().to_string();
    for refused in [
        Db::open(&place.url).await,
        Db::open_current(&place.url).await,
    ] {
        assert!(matches!(refused, Err(DbError::Refused(_))));
        assert_eq!(
            message(refused, &path, "FOLDER"),
            "there is no database at FOLDER/campanile.db; start `campanile serve` to make one, or name another with --database"
        );
    }
    assert!(!place.folder.path().join("campanile.db").exists());
}

#[tokio::test]
async fn a_missing_folder_is_reported() {
    let place = fresh_place(Backend::Sqlite).await;
    let path = place.folder.path().display().to_string();
    let url = DatabaseUrl::Sqlite(place.folder.path().join("no/such/campanile.db"));
    assert_eq!(
        message(Db::open_and_migrate(&url).await, &path, "FOLDER"),
        "sqlite:FOLDER/no/such/campanile.db: unable to open database file; check that the folder exists and may be written"
    );
}

#[tokio::test]
async fn a_folder_is_not_a_database() {
    let place = fresh_place(Backend::Sqlite).await;
    let path = place.folder.path().display().to_string();
    let refused = Db::open_and_migrate(&DatabaseUrl::Sqlite(place.folder.path().into())).await;
    assert_eq!(
        message(refused, &path, "FOLDER"),
        "sqlite:FOLDER: unable to open database file; check that the folder exists and may be written"
    );
}

#[tokio::test]
async fn a_file_of_another_kind_is_not_a_database() {
    let place = fresh_place(Backend::Sqlite).await;
    let path = place.folder.path().join("notes.txt");
    let text = "These are notes, not a database.\n".repeat(100);
    std::fs::write(&path, &text).unwrap();
    let url = DatabaseUrl::Sqlite(path.clone());
    for refused in [Db::open(&url).await, Db::open_and_migrate(&url).await] {
        assert!(matches!(refused, Err(DbError::Refused(_))));
        assert_eq!(
            message(refused, &path.display().to_string(), "FILE"),
            "sqlite:FILE: file is not a database; restore the file from a backup, or give another one"
        );
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        text,
        "the file is unchanged"
    );
}

/// An empty, truncated or missing file where a database used to be.
#[tokio::test]
async fn what_is_left_of_a_database_is_no_new_one() {
    let place = fresh_place(Backend::Sqlite).await;
    let path = place.folder.path().join("campanile.db");
    let beside = |end: &str| place.folder.path().join(format!("campanile.db{end}"));
    let db = Db::open_and_migrate(&place.url).await.unwrap();
    let mut lock = db.host_lock("host-1").await.unwrap().unwrap();
    // Merely dropped, the lock's own connection could merge the log into the file later.
    lock.end_watch().await.unwrap();
    drop(lock);
    db.close().await;
    let whole = std::fs::read(&path).unwrap();
    for (bytes, log, part) in [
        (
            Some(0),
            "",
            "the file is empty, and a host has served it before",
        ),
        (
            Some(0),
            "log",
            "the file is empty, and its write-ahead log has 3 bytes",
        ),
        (
            None,
            "log",
            "the file is missing, and its write-ahead log has 3 bytes",
        ),
        (Some(1), "", ""),
        (Some(90), "", ""),
        (Some(511), "", ""),
        (Some(4_095), "", ""),
    ] {
        let _ = std::fs::remove_file(beside("-shm"));
        let _ = std::fs::remove_file(beside("-wal"));
        match bytes {
            Some(bytes) => std::fs::write(&path, &whole[..bytes]).unwrap(),
            None => std::fs::remove_file(&path).unwrap(),
        }
        if !log.is_empty() {
            std::fs::write(beside("-wal"), log).unwrap();
        }
        let mut attempts = vec![Db::open_and_migrate(&place.url).await.err()];
        if bytes.is_some() {
            attempts.push(Db::open(&place.url).await.err());
        }
        for refused in attempts {
            let Some(error @ DbError::Refused(_)) = refused else {
                panic!("{bytes:?} {log}: {refused:?}");
            };
            let said = error.to_string();
            assert!(said.contains(part) && said.contains("backup"), "{said}");
        }
        let length = std::fs::metadata(&path).ok().map(|it| it.len());
        assert_eq!(length, bytes.map(|bytes| bytes as u64));
        // SQLite leaves an empty log next to a file it can't read. It mustn't touch one with content.
        let left = std::fs::read(beside("-wal")).unwrap_or_default();
        assert_eq!(left, log.as_bytes(), "{bytes:?}");
    }
    // A person decides to start a new record.
    let _ = std::fs::remove_file(&path);
    assert!(Db::open_and_migrate(&place.url).await.is_ok());
}

#[tokio::test]
async fn a_stopped_server_is_reported_as_refusing() {
    let port = free_port().unwrap();
    let url =
        DatabaseUrl::from_str(&format!("postgres://app:secret@127.0.0.1:{port}/jobs")).unwrap();
    let refused = Db::open(&url).await;
    assert!(matches!(&refused, Err(error @ DbError::Unavailable(_)) if error.is_transient()));
    assert_eq!(
        message(refused, &port.to_string(), "PORT"),
        "the database cannot be reached: postgres://app:***@127.0.0.1:PORT/jobs: Connection refused (os error 111)"
            .replace("111", &rustix::io::Errno::CONNREFUSED.raw_os_error().to_string())
    );
}

/// Return the address of the shared server with `part` replaced, and the server's host and port.
async fn shared_url(part: &str, replacement: &str) -> (DatabaseUrl, String) {
    let (server, _) = campanile_tests::cluster::shared();
    let text = server.expose();
    let (head, database) = text.rsplit_once('/').unwrap();
    let (credentials, server_address) = head
        .trim_start_matches("postgres://")
        .rsplit_once('@')
        .unwrap();
    let (user, password) = credentials
        .split_once(':')
        .expect("TEST_POSTGRES_URL has a password");
    let [mut user, mut password, mut database] = [user, password, database];
    match part {
        "user" => user = replacement,
        "password" => password = replacement,
        _ => database = replacement,
    }
    let url = format!("postgres://{user}:{password}@{server_address}/{database}");
    (url.parse().unwrap(), server_address.to_owned())
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_printed() {
    let test = fresh_db(Backend::Postgres).await;
    test.execute(
        "DO $$ BEGIN CREATE ROLE campanile_stranger LOGIN PASSWORD 'right';
            EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
    )
    .await;
    let (server, place) = shared_url("user", "campanile_stranger").await;
    let (head, _) = server
        .expose()
        .rsplit_once('@')
        .map(|(head, tail)| (head.to_owned(), tail.to_owned()))
        .unwrap();
    let password = head.rsplit_once(':').unwrap().1.to_owned();
    let refused = Db::open(&server).await;
    assert!(matches!(&refused, Err(error @ DbError::Refused(_)) if !error.is_transient()));
    let text = message(refused, &place, "SERVER");
    assert!(!text.contains(&password), "{text}");
    assert_eq!(
        reason(&text),
        "password authentication failed for user \"campanile_stranger\"; check the user and the password in the address"
    );
    assert!(
        text.starts_with("postgres://campanile_stranger:***@SERVER/"),
        "{text}"
    );
}

#[tokio::test]
async fn an_unknown_user_is_refused() {
    let (server, place) = shared_url("user", "unknown_user").await;
    let text = message(Db::open(&server).await, &place, "SERVER");
    assert_eq!(
        reason(&text),
        "password authentication failed for user \"unknown_user\"; check the user and the password in the address"
    );
}

#[tokio::test]
async fn a_missing_database_is_reported_with_the_next_step() {
    let name = format!("no_{}", Uuid::new_v4().simple());
    let (server, place) = shared_url("database", &name).await;
    let refused = Db::open_and_migrate(&server).await;
    assert!(matches!(refused, Err(DbError::Refused(_))));
    let text = message(refused, &place, "SERVER").replace(&name, "NAME");
    assert_eq!(
        reason(&text),
        "database \"NAME\" does not exist; create it, or name another one in the address"
    );
}

#[tokio::test]
async fn a_missing_schema_is_reported_with_the_next_step() {
    let (server, _) = campanile_tests::cluster::shared();
    let refused = Db::open_and_migrate(&server.in_schema("no_such_schema")).await;
    let text = message(refused, "no_such_schema", "SCHEMA");
    assert_eq!(
        reason(&text),
        "no schema has been selected to create in; create the schema, or name another one in the address; if it exists, let its owner run what `campanile db grants ROLE` prints"
    );
}

#[tokio::test]
async fn an_invalid_address_is_refused_and_its_password_is_not_printed() {
    let url = DatabaseUrl::from_str("postgres://app:secret@dbserver:99/x?sslmode=nope").unwrap();
    let refused = Db::open(&url).await;
    assert!(matches!(refused, Err(DbError::Refused(_))));
    assert_eq!(
        message(refused, "dbserver", "HOST"),
        "postgres://app:***@HOST:99/x?sslmode=nope: error with configuration: unknown value \"nope\" for `ssl_mode`; write postgres://user:password@host:port/name"
    );
}

/// Under each name of a file, SQLite would keep another journal.
#[tokio::test]
async fn a_file_with_a_hard_link_is_not_opened_unless_a_restore_gave_it() {
    let folder = TempDir::new().expect("a folder");
    let at = |name: &str| folder.path().join(name);
    let url = |name: &str| DatabaseUrl::Sqlite(at(name));
    let opened = Db::open_and_migrate(&url("campanile.db")).await;
    opened.expect("a database").close().await;
    let restored = at("campanile.db.before-20260101T000000.000Z");
    std::fs::hard_link(at("campanile.db"), restored).expect("a link");
    let opened = Db::open(&url("campanile.db")).await;
    opened.expect("a database").close().await;

    std::fs::hard_link(at("campanile.db"), at("other.db")).expect("a link");
    std::os::unix::fs::symlink(at("campanile.db"), at("link.db")).expect("a link");
    for name in ["campanile.db", "other.db", "link.db"] {
        let refused = Db::open(&url(name)).await.err().expect("an error");
        assert!(matches!(refused, DbError::Refused(_)), "{refused:?}");
        assert!(refused.to_string().contains("has 3 names"), "{refused}");
    }
    std::fs::remove_file(at("other.db")).expect("the link");
    let opened = Db::open(&url("link.db")).await;
    opened.expect("a database").close().await;
}
