//! The messages when a database cannot be opened: what is wrong, where, and what to do next.

use std::str::FromStr;
use std::time::{Duration, Instant};

use campanile_store::{DatabaseUrl, Db, DbError};
use campanile_tests::cluster::free_port;
use campanile_tests::{Backend, TestDb, fresh_db, fresh_place, on_both};
use uuid::Uuid;

on_both!(a_closed_database_says_so);

/// The message of a refusal, with the place that changes from run to run named.
fn message(refused: Result<Db, DbError>, place: &str, name: &str) -> String {
    let Err(error) = refused else {
        panic!("{place} was opened");
    };
    error.to_string().replace(place, name)
}

/// What follows the address.
fn reason(text: &str) -> &str {
    text.split_once(": ").map_or(text, |(_, reason)| reason)
}

async fn a_closed_database_says_so(test: TestDb) {
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
async fn a_file_that_is_not_there_is_said_to_be_missing() {
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
async fn a_folder_that_is_not_there_is_asked_for() {
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
    let text = "Dear diary, today I rang all bells of the town.\n".repeat(100);
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
        "it is left as it was"
    );
}

#[tokio::test]
async fn a_server_that_is_not_there_is_said_to_be_away_at_once() {
    let port = free_port().unwrap();
    let url =
        DatabaseUrl::from_str(&format!("postgres://bell:secret@127.0.0.1:{port}/tower")).unwrap();
    let begun = Instant::now();
    let refused = Db::open(&url).await;
    assert!(
        begun.elapsed() < Duration::from_secs(2),
        "{:?}",
        begun.elapsed()
    );
    assert!(matches!(&refused, Err(error @ DbError::Unavailable(_)) if error.is_transient()));
    assert_eq!(
        message(refused, &port.to_string(), "PORT"),
        "the database cannot be reached: postgres://bell:***@127.0.0.1:PORT/tower: Connection refused (os error 111)"
            .replace("111", &rustix::io::Errno::CONNREFUSED.raw_os_error().to_string())
    );
}

/// The address of the shared server with another part.
async fn shared_url(part: &str, replacement: &str) -> (DatabaseUrl, String) {
    let (server, _) = campanile_tests::cluster::shared();
    let text = server.expose();
    let (head, database) = text.rsplit_once('/').unwrap();
    let (credentials, place) = head
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
    let url = format!("postgres://{user}:{password}@{place}/{database}");
    (url.parse().unwrap(), place.to_owned())
}

#[tokio::test]
async fn a_wrong_password_is_refused_and_not_repeated() {
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
async fn a_user_who_does_not_exist_is_refused() {
    let (server, place) = shared_url("user", "nobody_at_all").await;
    let text = message(Db::open(&server).await, &place, "SERVER");
    assert_eq!(
        reason(&text),
        "password authentication failed for user \"nobody_at_all\"; check the user and the password in the address"
    );
}

#[tokio::test]
async fn a_database_that_does_not_exist_is_asked_for() {
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
async fn a_schema_that_does_not_exist_is_asked_for() {
    let (server, _) = campanile_tests::cluster::shared();
    let refused = Db::open_and_migrate(&server.in_schema("no_such_schema")).await;
    let text = message(refused, "no_such_schema", "SCHEMA");
    assert_eq!(
        reason(&text),
        "no schema has been selected to create in; create the schema, or name another one in the address"
    );
}

#[tokio::test]
async fn an_address_that_the_driver_cannot_read_is_refused_without_its_password() {
    let url = DatabaseUrl::from_str("postgres://bell:secret@tower:port/x").unwrap();
    let refused = Db::open(&url).await;
    assert!(matches!(refused, Err(DbError::Refused(_))));
    assert_eq!(
        message(refused, "tower", "HOST"),
        "postgres://bell:***@HOST:port/x: invalid port number; write postgres://user:password@host:port/name"
    );
}
