//! Connections to a Postgres server: what proves that it is the right one, and how long each side waits for the other.
//!
//! The program that answers at the address of the server is asked for the record, and gets the password. So a server on another
//! machine must show a certificate for its name, unless the operator writes `sslmode=` in the address.
//!
//! Locks end with their session. So each session tells the server how soon to end it when this host is lost: other hosts
//! continue then. The driver has no options for the client's end of a connection. There this process bounds each wait.

use std::net::IpAddr;
use std::str::FromStr as _;
use std::sync::{Arc, LazyLock};
use std::time::{Duration, Instant};

use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use sqlx::{
    AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, PgPool, Postgres, Row as _,
    Transaction,
};
use tokio::sync::Mutex;
use tokio::time::timeout;
use url::Url;

use super::condition::{Answers, Condition, within, without_slow_statements};
use super::error::{TRANSACTION_POOLING, refused};
use super::url::{PostgresUrl, ServerRole};
use super::{ACQUIRE_SECONDS, DbError, Result, STATEMENTS_MAX};
use campanile_model::access::Actor;

/// The most connections of a host: it decides, claims, finishes, renews and reads at the same time.
const CONNECTIONS_MAX: u32 = 8;

/// How long the server waits inside a transaction for its next statement, in seconds. Then it ends the session, and with
/// it the locks of a lost host. No transaction of ours waits for anything but the database, so it is longer than all of
/// their pauses.
const IDLE_IN_TRANSACTION_SECONDS: u64 = 8;
/// The same in a transaction that only reads a large part of the record, in seconds. It locks no row.
const IDLE_IN_LONG_READ_SECONDS: u64 = 300;
/// How long a statement waits for the lock of another transaction, in seconds. It is shorter than
/// [`IDLE_IN_TRANSACTION_SECONDS`]: a host that is lost while it waits adds nothing to the wait of the others.
const LOCK_SECONDS: u64 = 4;
/// How long a statement may take, in seconds. Each one changes a batch that is made to take milliseconds.
const STATEMENT_SECONDS: u64 = 30;
/// The same for statements that read a large part of the record or migrate it, in seconds.
const LONG_STATEMENT_SECONDS: u64 = 1_800;
/// How long a migration waits for that of another host, in seconds.
const MIGRATION_LOCK_SECONDS: u64 = 60;
/// After how many seconds without a byte the server asks whether this machine is still there. A vanished machine is
/// noticed after `4 + 2 * 2` seconds, and not after the default two hours.
const KEEPALIVE_IDLE_SECONDS: u64 = 4;
/// The pause between two such questions, in seconds.
const KEEPALIVE_INTERVAL_SECONDS: u64 = 2;
/// So many questions without an answer end the session.
const KEEPALIVE_COUNT: u64 = 2;
/// How long the server keeps sending to a machine that confirms nothing, in milliseconds. It also ends a session whose
/// process has stopped in the middle of an answer.
const UNCONFIRMED_MILLISECONDS: u64 = 8_000;
/// How much longer than the server this process waits for the answer to a statement, in seconds. It bounds the wait on a
/// connection that only the network has lost.
const ANSWER_MARGIN_SECONDS: u64 = 5;
/// How long an idle connection may take to answer before another one is opened, in seconds.
const PING_SECONDS: u64 = 2;
/// How long one of several servers may take to accept a connection, in seconds. The next one is tried then.
const CONNECT_SECONDS: u64 = 2;
/// The rate at which a large value is sent at least, in bytes per second: the server counts sending as idle.
const UPLOAD_BYTES_PER_SECOND: u64 = 1 << 20;

/// What a session sets when it connects.
static SESSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SET idle_in_transaction_session_timeout = '{IDLE_IN_TRANSACTION_SECONDS}s'; \
        SET lock_timeout = '{LOCK_SECONDS}s'; \
        SET statement_timeout = '{STATEMENT_SECONDS}s'; \
        SET tcp_keepalives_idle = {KEEPALIVE_IDLE_SECONDS}; \
        SET tcp_keepalives_interval = {KEEPALIVE_INTERVAL_SECONDS}; \
        SET tcp_keepalives_count = {KEEPALIVE_COUNT}; \
        SET tcp_user_timeout = {UNCONFIRMED_MILLISECONDS}"
    )
});

/// What a session for migrations sets besides.
static MIGRATION_SESSION: LazyLock<String> = LazyLock::new(|| {
    format!(
        "SET lock_timeout = '{MIGRATION_LOCK_SECONDS}s'; SET statement_timeout = '{LONG_STATEMENT_SECONDS}s'"
    )
});

/// Whether a session is on a server that accepts no writes.
const IS_READ_ONLY: &str =
    "SELECT pg_is_in_recovery() OR current_setting('default_transaction_read_only') = 'on'";
const IS_STANDBY: &str = "SELECT pg_is_in_recovery()";

/// How often [`Server::refuse_shared_sessions`] looks: other users of a pooler may hide what one look would show.
const POOLER_LOOKS: usize = 3;

/// The longest wait for the answer to a statement of usual length.
const USUAL_PATIENCE: Duration = Duration::from_secs(STATEMENT_SECONDS + ANSWER_MARGIN_SECONDS);

/// A kind of transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Read,
    /// Reads a large part of the record.
    LongRead,
    Write,
    /// Its statements may take minutes.
    LongWrite,
}

impl Kind {
    pub(super) fn is_read(self) -> bool {
        matches!(self, Kind::Read | Kind::LongRead)
    }

    /// Returns the statements that begin the transaction.
    fn begin(self) -> String {
        const READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
        match self {
            Kind::Read => READ.to_owned(),
            Kind::LongRead => format!(
                "{READ}; SET LOCAL statement_timeout = '{LONG_STATEMENT_SECONDS}s'; \
                SET LOCAL idle_in_transaction_session_timeout = '{IDLE_IN_LONG_READ_SECONDS}s'"
            ),
            Kind::Write => "BEGIN".to_owned(),
            Kind::LongWrite => {
                format!("BEGIN; SET LOCAL statement_timeout = '{LONG_STATEMENT_SECONDS}s'")
            }
        }
    }

    fn patience(self) -> Duration {
        match self {
            Kind::Read | Kind::Write => USUAL_PATIENCE,
            Kind::LongRead | Kind::LongWrite => {
                Duration::from_secs(LONG_STATEMENT_SECONDS + ANSWER_MARGIN_SECONDS)
            }
        }
    }
}

/// A transaction with its actor.
pub struct PgTx {
    pub(super) tx: Transaction<'static, Postgres>,
    pub(super) actor: Arc<Actor>,
    pub(super) answers: Answers,
}

impl PgTx {
    pub(super) async fn commit(self) -> Result {
        self.answers.wait(self.tx.commit()).await
    }

    pub(super) async fn abandon(self) -> Result {
        self.answers.wait(self.tx.rollback()).await
    }

    /// Let the server wait until `bytes` are sent, although no statement runs meanwhile.
    pub(super) async fn allow_upload(&mut self, bytes: usize) -> Result {
        let seconds = IDLE_IN_TRANSACTION_SECONDS + bytes as u64 / UPLOAD_BYTES_PER_SECOND;
        let sql = format!("SET LOCAL idle_in_transaction_session_timeout = '{seconds}s'");
        let set = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut *self.tx);
        self.answers.wait(set).await?;
        Ok(())
    }
}

/// The server that has the record: one, or the one of several that has the wanted role.
#[derive(Clone)]
pub(super) struct Server {
    pool: PgPool,
    /// The options for each server of the address, in its order.
    places: Arc<[PgConnectOptions]>,
    role: ServerRole,
    condition: Arc<Condition>,
    /// When the last search found no server accepting writes, and its error.
    failed_search: Arc<Mutex<Option<(Instant, DbError)>>>,
}

impl Server {
    /// Connects to the first server of `url` in its role, preferring one accepting writes.
    ///
    /// # Errors
    ///
    /// `Refused` if the server can't prove its identity or refuses the user; `Unavailable` if it doesn't answer.
    pub(super) async fn open(url: &PostgresUrl, condition: Arc<Condition>) -> Result<Server> {
        let places = url.servers().into_iter().map(|server| options(&server));
        let places: Arc<[PgConnectOptions]> = places.collect::<Result<_>>()?;
        let role = url.role();
        // A pool tries again silently until its time-out. A single connection reports the error at once.
        let found = first_open(&places, role).await?;
        let acquire_seconds = match places.len() {
            1 => ACQUIRE_SECONDS,
            // The pool tries one server until then. After that the others are tried.
            _ => CONNECT_SECONDS,
        };
        let (acquired, released) = (Arc::clone(&condition), Arc::clone(&condition));
        let pool = PgPoolOptions::new()
            .max_connections(CONNECTIONS_MAX)
            .acquire_timeout(Duration::from_secs(acquire_seconds))
            .test_before_acquire(false)
            .before_acquire(move |connection, meta| {
                let is_given_up = acquired.is_given_up(meta.age);
                Box::pin(
                    async move { Ok(!is_given_up && answers(connection, PING_SECONDS).await?) },
                )
            })
            .after_connect(move |connection, _| Box::pin(prepare(connection, role)))
            .after_release(move |connection, meta| {
                let is_given_up = released.is_given_up(meta.age);
                Box::pin(
                    async move { Ok(!is_given_up && answers(connection, ACQUIRE_SECONDS).await?) },
                )
            })
            .connect_lazy_with(found.place);
        Ok(Server {
            pool,
            places,
            role,
            condition,
            failed_search: Arc::default(),
        })
    }

    /// Returns the pool of connections, for statements outside transactions.
    pub(super) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns the patience for replies to ordinary statements.
    pub(super) fn answers(&self) -> Answers {
        Answers {
            limit: Some(USUAL_PATIENCE),
            condition: Arc::clone(&self.condition),
        }
    }

    /// Begin a transaction, to the end even if the caller stops waiting.
    ///
    /// When a future of sqlx 0.9 is dropped while it begins a transaction, its connection returns to the pool inside that
    /// transaction, and the next user of the connection works in it: a writer, in one that is read-only. A task is not
    /// dropped with the future that waits for it.
    pub(super) async fn begin(&self, kind: Kind, actor: Arc<Actor>) -> Result<PgTx> {
        let server = self.clone();
        let begun = tokio::spawn(async move {
            server.give_up_idle();
            if !kind.is_read() {
                server.settle_doubt().await?;
            }
            match server.try_begin(kind, Arc::clone(&actor)).await {
                Err(DbError::Unavailable(_)) if server.places.len() > 1 => {
                    server.find_again().await?;
                    server.try_begin(kind, actor).await
                }
                begun => begun,
            }
        });
        match begun.await {
            Ok(begun) => begun,
            Err(_) => Err(DbError::Unavailable("this process is ending".to_owned())),
        }
    }

    async fn try_begin(&self, kind: Kind, actor: Arc<Actor>) -> Result<PgTx> {
        let begin = self.pool.begin_with(AssertSqlSafe(kind.begin()));
        // Failing to get a connection in time says nothing about the server's role.
        let tx = within(Some(USUAL_PATIENCE), begin).await?;
        let answers = Answers {
            limit: Some(kind.patience()),
            condition: Arc::clone(&self.condition),
        };
        Ok(PgTx { tx, actor, answers })
    }

    /// Closes idle connections to a server whose role is in doubt.
    fn give_up_idle(&self) {
        if !self.condition.take_drain() {
            return;
        }
        let pool = self.pool.clone();
        tokio::spawn(async move {
            for _ in 0..CONNECTIONS_MAX {
                let Some(idle) = pool.try_acquire() else {
                    return;
                };
                let _ = timeout(Duration::from_secs(PING_SECONDS), idle.close()).await;
            }
        });
    }

    /// If the current server is in doubt, finds one accepting writes.
    ///
    /// # Errors
    ///
    /// `ReadOnly` if no server of the address accepts writes, and `Unavailable` if none answers.
    async fn settle_doubt(&self) -> Result {
        if self.condition.doubted_since().is_none() {
            return Ok(());
        }
        let asked_at = Instant::now();
        let mut failed = self.failed_search.lock().await;
        // Another caller may have settled it in the meantime.
        let Some(since) = self.condition.doubted_since() else {
            return Ok(());
        };
        // All of a host's services share a single search.
        if let Some((_, error)) = failed.as_ref().filter(|(at, _)| *at >= asked_at) {
            return Err(error.clone());
        }
        let found = match self.find_again().await {
            Ok(Some(name)) => Err(read_only(&name)),
            found => found.map(drop),
        };
        match &found {
            Ok(()) => self.condition.settle_doubt(since),
            Err(error) => *failed = Some((Instant::now(), error.clone())),
        }
        found
    }

    /// Refuses a server accepting no writes.
    pub(super) async fn refuse_read_only(&self) -> Result {
        match self.find_again().await? {
            Some(name) => Err(read_only(&name)),
            None => Ok(()),
        }
    }

    /// Finds the server for all later connections: the first one accepting writes, or failing that, the first in the right role,
    /// whose name is then returned.
    async fn find_again(&self) -> Result<Option<String>> {
        let Found {
            place,
            is_read_only,
        } = first_open(&self.places, self.role).await?;
        let name = name_of(&place);
        if name_of(&self.pool.connect_options()) != name {
            self.pool.set_connect_options(place);
        }
        Ok(is_read_only.then_some(name))
    }

    /// Opens a connection outside the pool to the server accepting writes.
    pub(super) async fn connect(&self) -> Result<PgConnection> {
        self.settle_doubt().await?;
        let options = self.pool.connect_options();
        let connected = connect(&options, self.role, ACQUIRE_SECONDS).await;
        let connected = connected.inspect_err(|_| self.condition.raise_doubt());
        let mut connection = connected?;
        self.answers().wait(set_bounds(&mut connection)).await?;
        Ok(connection)
    }

    /// Whether the connection's server accepts writes. If it doesn't, all connections to it are abandoned.
    pub(super) async fn accepts_writes(&self, connection: &mut PgConnection) -> Result<bool> {
        let is_read_only = self.answers().wait(is_read_only(connection)).await?;
        if is_read_only {
            self.condition.raise_doubt();
        }
        Ok(!is_read_only)
    }

    /// Open a connection beside those of the pool whose statements may take minutes.
    pub(super) async fn connect_for_migration(&self) -> Result<PgConnection> {
        let mut connection = self.connect().await?;
        sqlx::raw_sql(MIGRATION_SESSION.as_str())
            .execute(&mut connection)
            .await?;
        Ok(connection)
    }

    /// Refuse a pooler that gives a connection another session for each transaction.
    ///
    /// The lock on a host's name, prepared statements and the settings of a session need one session. Two connections
    /// with one session, or one connection with two, show such a pooler.
    pub(super) async fn refuse_shared_sessions(&self) -> Result {
        // Nothing is set here: such a pooler would give the settings to other programs.
        let options = self.pool.connect_options();
        let mut first = connect(&options, self.role, ACQUIRE_SECONDS).await?;
        let mut second = connect(&options, self.role, ACQUIRE_SECONDS).await?;
        let mut is_shared = false;
        for _ in 0..POOLER_LOOKS {
            let before = session(&mut first, "SELECT pg_backend_pid()").await?;
            let other = session(&mut second, "BEGIN; SELECT pg_backend_pid()").await?;
            let after = session(&mut first, "SELECT pg_backend_pid()").await?;
            sqlx::raw_sql("ROLLBACK").execute(&mut second).await?;
            is_shared |= before != after || before == other;
        }
        first.close().await?;
        second.close().await?;
        if is_shared {
            return refused(TRANSACTION_POOLING);
        }
        Ok(())
    }
}

/// Returns the process id of the server for this session. A simple query: a pooler knows no prepared statement.
async fn session(connection: &mut PgConnection, sql: &'static str) -> Result<i32> {
    let rows = sqlx::raw_sql(sql).fetch_all(connection).await?;
    let row = rows.last();
    let pid = row.map(|row| row.try_get::<i32, _>(0)).transpose()?;
    Ok(pid.unwrap_or_default())
}

fn read_only(name: &str) -> DbError {
    DbError::ReadOnly(format!(
        "{name} is a standby, or read-only; name every server of a cluster in the address, or wait until this one accepts writes"
    ))
}

/// A usable server.
struct Found {
    place: PgConnectOptions,
    is_read_only: bool,
}

fn name_of(place: &PgConnectOptions) -> String {
    format!("{}:{}", place.get_host(), place.get_port())
}

/// Finds the first of `places` in the right role and accepting writes, or failing that, the first in the right role.
///
/// # Errors
///
/// The only server's error, or one combining what each of them said.
async fn first_open(places: &[PgConnectOptions], role: ServerRole) -> Result<Found> {
    let seconds = match places.len() {
        1 => ACQUIRE_SECONDS,
        _ => CONNECT_SECONDS,
    };
    let mut said: Vec<String> = Vec::new();
    let mut read_only = None;
    for place in places {
        match look_at(place, role, seconds).await {
            Ok(found) if !found.is_read_only => return Ok(found),
            Ok(found) => read_only = read_only.or(Some(found)),
            Err(error) if places.len() == 1 => return Err(error),
            Err(error) => said.push(format!("{}: {}", name_of(place), error.into_message())),
        }
    }
    let none = || {
        DbError::Unavailable(format!(
            "none of the {} servers can be used: {}",
            places.len(),
            said.join("; ")
        ))
    };
    read_only.ok_or_else(none)
}

/// Connects to a server, which must be in the right role, and checks whether it accepts writes.
async fn look_at(place: &PgConnectOptions, role: ServerRole, seconds: u64) -> Result<Found> {
    let mut connection = connect(place, role, seconds).await?;
    let asked = within(
        Some(Duration::from_secs(seconds)),
        is_read_only(&mut connection),
    );
    let is_read_only = asked.await?;
    connection.close().await?;
    Ok(Found {
        place: place.clone(),
        is_read_only,
    })
}

pub(super) async fn is_read_only(connection: &mut PgConnection) -> Result<bool, sqlx::Error> {
    // A simple query, as poolers may not support prepared statements.
    let answer = sqlx::raw_sql(IS_READ_ONLY).fetch_one(connection).await?;
    answer.try_get(0)
}

/// Open a connection to a server that has the role. Its session has no bounds yet.
async fn connect(
    options: &PgConnectOptions,
    role: ServerRole,
    seconds: u64,
) -> Result<PgConnection> {
    let connecting = async {
        let mut connection = options.connect().await.map_err(connect_error)?;
        check_role(&mut connection, role).await?;
        Ok(connection)
    };
    let no_answer = |_| DbError::Unavailable(format!("no answer in {seconds} seconds"));
    let connected = timeout(Duration::from_secs(seconds), connecting).await;
    connected.map_err(no_answer)?
}

/// Prepare a new connection of the pool.
async fn prepare(connection: &mut PgConnection, role: ServerRole) -> Result<(), sqlx::Error> {
    check_role(connection, role).await?;
    set_bounds(connection).await
}

async fn set_bounds(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    let set = sqlx::raw_sql(SESSION.as_str()).execute(connection).await;
    set.map(|_| ())
}

/// Returns an error when the server has another role than the wanted one.
async fn check_role(connection: &mut PgConnection, role: ServerRole) -> Result<(), sqlx::Error> {
    let question = match role {
        ServerRole::Any => return Ok(()),
        ServerRole::ReadWrite => IS_READ_ONLY,
        ServerRole::Primary => IS_STANDBY,
    };
    let answer = sqlx::raw_sql(question).fetch_one(connection).await?;
    if answer.try_get::<bool, _>(0)? {
        Err(sqlx::Error::Protocol(format!(
            "it is a standby or accepts no writes, and the address has target_session_attrs={role}"
        )))
    } else {
        Ok(())
    }
}

/// Returns true when the server answers on an idle connection. The driver closes a connection after an error.
async fn answers(connection: &mut PgConnection, seconds: u64) -> Result<bool, sqlx::Error> {
    let no_answer = |_| sqlx::Error::Protocol("no answer on an idle connection".to_owned());
    let pinged = timeout(Duration::from_secs(seconds), connection.ping()).await;
    pinged.map_err(no_answer)?.map(|()| true)
}

/// The keys of an address that say how TLS is used.
const SSL_MODE_KEYS: [&str; 2] = ["sslmode", "ssl-mode"];

/// Returns the options of the address of one server. The server's certificate is checked unless the server is on this
/// machine, or the address itself says how TLS is used.
fn options(server: &str) -> Result<PgConnectOptions> {
    let options = without_slow_statements(PgConnectOptions::from_str(server)?)
        .application_name("campanile")
        // A pooler refuses parameters that it does not know.
        .extra_float_digits(None)
        .statement_cache_capacity(STATEMENTS_MAX);
    let address = Url::parse(server);
    let names_ssl_mode = |address: &Url| {
        let mut keys = address.query_pairs().map(|(key, _)| key);
        keys.any(|key| SSL_MODE_KEYS.contains(&key.as_ref()))
    };
    if is_local(&options) || address.is_ok_and(|address| names_ssl_mode(&address)) {
        Ok(options)
    } else {
        Ok(options.ssl_mode(PgSslMode::VerifyFull))
    }
}

/// Whether the server is reached without a network: through a socket file or a loopback address.
fn is_local(options: &PgConnectOptions) -> bool {
    let host = options.get_host();
    let ip: Option<IpAddr> = host.trim_matches(['[', ']']).parse().ok();
    options.get_socket().is_some()
        || host.starts_with('/')
        || host.eq_ignore_ascii_case("localhost")
        || ip.is_some_and(|ip| ip.to_canonical().is_loopback())
}

/// The code of a server that has no connection left.
const TOO_MANY_CONNECTIONS: &str = "53300";

fn connect_error(error: sqlx::Error) -> DbError {
    match error {
        sqlx::Error::Tls(error) => DbError::Refused(format!(
            "no checked connection ({error}), and so no password was sent: let the server offer TLS, or write `sslmode=disable` in the address if every machine on the way is trusted"
        )),
        // The certificate is not valid. The library for TLS passes its errors on as invalid data.
        sqlx::Error::Io(error) if error.kind() == std::io::ErrorKind::InvalidData => {
            DbError::Refused(format!(
                "the server did not prove that it is the right one ({error}), and so no password was sent: write `sslrootcert=FILE` in the address, with the certificate of the authority that signed the server's, or `sslmode=require` to encrypt without checking the server"
            ))
        }
        sqlx::Error::Io(error) => DbError::Unavailable(error.to_string()),
        sqlx::Error::Database(error) if error.code().as_deref() == Some(TOO_MANY_CONNECTIONS) => {
            DbError::Unavailable(format!(
                "{}; a host uses up to {} connections: raise `max_connections` of the server, or stop a program that uses it",
                error.message(),
                CONNECTIONS_MAX + 1
            ))
        }
        error => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DatabaseUrl;

    #[test]
    fn the_server_is_checked_unless_it_is_local_or_the_address_says_otherwise() {
        for (address, expected) in [
            ("postgres://u:p@db.example.com/d", "VerifyFull"),
            ("postgres://u:p@10.0.0.5:5432/d", "VerifyFull"),
            ("postgres://u:p@0.0.0.0/d", "VerifyFull"),
            ("postgres://u:p@localhost.example.com/d", "VerifyFull"),
            ("postgres:///d?host=db.example.com", "VerifyFull"),
            ("postgres://u:p@localhost/d?hostaddr=10.0.0.5", "VerifyFull"),
            (
                "postgres://u:p@db.example.com/d?application_name=sslmode",
                "VerifyFull",
            ),
            ("postgres://u:p@db.example.com/d?sslmode=disable", "Disable"),
            (
                "postgres://u:p@db.example.com/d?ssl-mode=require",
                "Require",
            ),
            ("postgres://u:p@db.example.com/d?sslm%6fde=prefer", "Prefer"),
            ("postgres://u:p@localhost/d", "Prefer"),
            ("postgres://u:p@127.0.0.1/d", "Prefer"),
            ("postgres://u:p@127.8.9.1/d", "Prefer"),
            ("postgres://u:p@[::1]/d", "Prefer"),
            ("postgres://u:p@%2Fvar%2Frun%2Fpostgresql/d", "Prefer"),
            ("postgres:///d?host=/var/run/postgresql", "Prefer"),
            ("postgres://u:p@localhost/d?sslmode=verify-ca", "VerifyCa"),
        ] {
            let Ok(DatabaseUrl::Postgres(url)) = address.parse() else {
                panic!("{address}");
            };
            let mode = options(&url.servers()[0]).unwrap().get_ssl_mode();
            assert_eq!(format!("{mode:?}"), expected, "{address}");
        }
    }
}
