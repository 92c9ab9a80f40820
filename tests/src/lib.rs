//! Shared test support: fresh databases of both kinds, and the real program as a child process.
//!
//! ```text
//! on_both!(a_paused_schedule_is_not_due);
//!
//! async fn a_paused_schedule_is_not_due(test: TestDb) { … }
//! ```
//!
//! makes the tests `a_paused_schedule_is_not_due::sqlite` and `…::postgres`. [`cluster`] finds or starts Postgres.
//! Without Postgres those cases fail; they are never skipped.

pub mod cluster;
pub mod dump;
pub mod fuzz;
mod host_process;
pub mod hostile;
pub mod mail_server;
pub mod receiver;
pub mod rule_texts;
pub mod wasi_testsuite;

use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_store::{DatabaseUrl, Db, Tx, probe};
use tempfile::TempDir;
use uuid::Uuid;

pub use cluster::Cluster;
pub use host_process::{HostProcess, LISTEN, campanile_binary};

/// How long a test waits for a state before giving up.
///
/// It's the only limit of its kind, and far longer than anything takes. Tests assert which state comes, never how soon, because
/// other work on the machine can hog the processor for many seconds. What must *not* happen within a test's life, such as a
/// sleeping task ending, takes several times as long.
pub const PATIENCE: Duration = Duration::from_secs(300);

/// A kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    /// Both kinds.
    pub const ALL: [Backend; 2] = [Backend::Sqlite, Backend::Postgres];

    /// Return `sqlite` or `postgres`, which is also the folder of its migrations.
    pub fn name(self) -> &'static str {
        match self {
            Backend::Sqlite => "sqlite",
            Backend::Postgres => "postgres",
        }
    }

    /// Return an instant as SQL.
    pub fn instant(self, instant: Timestamp) -> String {
        match self {
            Backend::Sqlite => instant.micros().to_string(),
            Backend::Postgres => format!("TIMESTAMPTZ '{instant}'"),
        }
    }

    /// Return an id as SQL.
    pub fn id(self, id: Uuid) -> String {
        match self {
            Backend::Sqlite => format!("x'{}'", id.simple()),
            Backend::Postgres => format!("'{id}'"),
        }
    }

    /// Return bytes in hexadecimal, such as a digest, as SQL.
    pub fn bytes(self, hex: &str) -> String {
        match self {
            Backend::Sqlite => format!("x'{hex}'"),
            Backend::Postgres => format!("'\\x{hex}'"),
        }
    }
}

/// The location of one test's database, without tables: a file in a temporary folder, or a new schema.
///
/// A drop deletes it. A schema on a server given by `TEST_POSTGRES_URL` stays when its test fails.
pub struct Place {
    pub backend: Backend,
    pub url: DatabaseUrl,
    /// A folder for other files of the test.
    pub folder: TempDir,
    /// The server and the schema to drop, when the server outlives the tests.
    schema_to_drop: Option<(DatabaseUrl, String)>,
}

/// Return a new [`Place`], without tables.
pub async fn fresh_place(backend: Backend) -> Place {
    let folder = tempfile::Builder::new()
        .prefix("campanile-test-")
        .tempdir()
        .expect("a temporary folder");
    match backend {
        Backend::Sqlite => Place {
            backend,
            url: DatabaseUrl::Sqlite(folder.path().join("campanile.db")),
            folder,
            schema_to_drop: None,
        },
        Backend::Postgres => {
            let (server, server_outlives_tests) = cluster::shared();
            let schema = format!("t_{}", uuid::Uuid::new_v4().simple());
            run_sql(&server, &format!("CREATE SCHEMA {schema}")).await;
            Place {
                backend,
                url: server.in_schema(&schema),
                folder,
                schema_to_drop: server_outlives_tests.then_some((server, schema)),
            }
        }
    }
}

/// Return the package `once`, whose effects happen once.
pub fn once_package() -> Vec<u8> {
    let text = include_str!("../guests/once.wat");
    wat::parse_str(text).unwrap_or_else(|error| panic!("once.wat: {error}"))
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some((server, schema)) = self.schema_to_drop.take() else {
            return;
        };
        if std::thread::panicking() {
            eprintln!("the tables are left in the schema {schema}");
            return;
        }
        // Not in the runtime of the test: the runtime may be ending, and it still holds transactions
        // that the test has dropped.
        let dropping = std::thread::spawn(move || {
            let sql = format!(
                "SELECT pg_terminate_backend(l.pid) FROM pg_locks l
                    JOIN pg_class c ON c.oid = l.relation JOIN pg_namespace n ON n.oid = c.relnamespace
                    WHERE n.nspname = '{schema}' AND l.pid <> pg_backend_pid();
                 SET LOCAL lock_timeout = '5s';
                 DROP SCHEMA {schema} CASCADE"
            );
            runtime().block_on(run_sql(&server, &sql));
        });
        if dropping.join().is_err() {
            eprintln!("a test schema could not be dropped");
        }
    }
}

/// A migrated database of one test.
pub struct TestDb {
    pub db: Db,
    pub place: Place,
}

/// Return a new database with the tables of this version.
pub async fn fresh_db(backend: Backend) -> TestDb {
    let place = fresh_place(backend).await;
    let db = Db::open_and_migrate(&place.url)
        .await
        .unwrap_or_else(|error| panic!("{}: {error}", place.url));
    TestDb { db, place }
}

impl TestDb {
    /// Return the kind of the database.
    pub fn backend(&self) -> Backend {
        self.place.backend
    }

    /// Begin a read transaction.
    pub async fn read(&self) -> Tx {
        self.db.read().await.expect("a transaction")
    }

    /// Begin a write transaction.
    pub async fn write(&self) -> Tx {
        self.db.write().await.expect("a transaction")
    }

    /// Run any SQL and commit it.
    pub async fn execute(&self, sql: &str) {
        let mut tx = self.write().await;
        probe::execute(&mut tx, sql)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{sql}"));
        tx.commit().await.expect("a commit");
    }

    /// Return the rows of a query whose columns are all texts. A missing value is `~`.
    pub async fn rows(&self, sql: &str) -> Vec<Vec<String>> {
        let mut tx = self.read().await;
        probe::rows(&mut tx, sql)
            .await
            .unwrap_or_else(|error| panic!("{error}\n{sql}"))
    }

    /// Return the value of a query with one row and one text column.
    pub async fn value(&self, sql: &str) -> String {
        let rows = self.rows(sql).await;
        match rows.as_slice() {
            [row] if row.len() == 1 => row[0].clone(),
            other => panic!("not one value: {other:?}\n{sql}"),
        }
    }
}

async fn run_sql(url: &DatabaseUrl, sql: &str) {
    let db = Db::open(url)
        .await
        .unwrap_or_else(|error| panic!("{url}: {error}"));
    let mut tx = db.write().await.expect("a transaction");
    probe::execute(&mut tx, sql)
        .await
        .unwrap_or_else(|error| panic!("{error}\n{sql}"));
    tx.commit().await.expect("a commit");
    db.close().await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Run one case on a fresh database of one kind. [`on_both!`] expands to calls of this function.
pub fn run_case<F: Future<Output = ()>>(backend: Backend, case: impl FnOnce(TestDb) -> F) {
    runtime().block_on(async {
        let test = fresh_db(backend).await;
        case(test).await;
    });
}

/// Run one case on an empty place of one kind. [`on_both_empty!`] expands to calls of this function.
pub fn run_empty_case<F: Future<Output = ()>>(backend: Backend, case: impl FnOnce(Place) -> F) {
    runtime().block_on(async {
        let place = fresh_place(backend).await;
        case(place).await;
    });
}

/// Make two tests of each `async fn case(test: TestDb)`: `case::sqlite` and `case::postgres`.
#[macro_export]
macro_rules! on_both {
    ($($case:ident),* $(,)?) => {$(
        mod $case {
            #[test]
            fn sqlite() {
                $crate::run_case($crate::Backend::Sqlite, super::$case);
            }

            #[test]
            fn postgres() {
                $crate::run_case($crate::Backend::Postgres, super::$case);
            }
        }
    )*};
}

/// Like [`on_both!`], for each `async fn case(place: Place)`: a database that has no tables yet.
#[macro_export]
macro_rules! on_both_empty {
    ($($case:ident),* $(,)?) => {$(
        mod $case {
            #[test]
            fn sqlite() {
                $crate::run_empty_case($crate::Backend::Sqlite, super::$case);
            }

            #[test]
            fn postgres() {
                $crate::run_empty_case($crate::Backend::Postgres, super::$case);
            }
        }
    )*};
}

/// Whether one of the signatures of Standard Webhooks in `signatures` is that of `signed` with a secret: `ID.TIMESTAMP.BODY`.
pub fn is_signed(secret: &str, signed: &str, signatures: &str) -> bool {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use hmac::{Hmac, KeyInit as _, Mac as _};

    let key = secret
        .strip_prefix("whsec_")
        .expect("the prefix of a secret");
    let key = STANDARD.decode(key).expect("Base64");
    let mut mac = Hmac::<sha2::Sha256>::new_from_slice(&key).expect("a key");
    mac.update(signed.as_bytes());
    let expected = format!("v1,{}", STANDARD.encode(mac.finalize().into_bytes()));
    signatures.split(' ').any(|signature| signature == expected)
}
