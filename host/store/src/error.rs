//! Database errors, by what the caller must do.

use std::borrow::Cow;
use std::fmt::Display;

use campanile_model::text::{cut_error, printable_line};

/// The result of a call of the database.
pub type Result<T = (), E = DbError> = std::result::Result<T, E>;

/// Why a pooler in transaction mode is refused, and what to change.
pub(super) const TRANSACTION_POOLING: &str = "a pooler before the server gives each transaction another session, and a host needs its own: set `pool_mode = session` for this database in PgBouncer, or name the server itself in the address";

/// An error of the database.
#[derive(Debug, Clone, thiserror::Error)]
pub enum DbError {
    /// The server is absent or has gone away: try again later.
    #[error("the database cannot be reached: {0}")]
    Unavailable(String),
    /// Another transaction was in the way: try again at once.
    #[error("the database was busy: {0}")]
    Busy(String),
    /// The server accepts no writes, being a standby or read-only. Try again, perhaps on another server.
    #[error("the database's server accepts no writes, as a standby does: {0}")]
    ReadOnly(String),
    /// It is readable but not writable: an operator must act, then try again.
    #[error("the database cannot be written: {0}")]
    NotWritable(String),
    /// The disk has no room for the write. Nothing was changed. Try again when there is room.
    #[error("the database cannot be written: {0}")]
    DiskFull(String),
    /// A row of that identity or name exists already.
    #[error("it exists already: {0}")]
    Conflict(String),
    /// The tables are not of this version.
    #[error("{0}")]
    Schema(String),
    /// The tables belong to a newer version.
    #[error("{0}")]
    NewerSchema(String),
    /// Something stored in the database can't be read. An operator must repair it.
    #[error("the database is damaged: {0}")]
    Damaged(String),
    /// The address, the user or the file cannot be used.
    #[error("{0}")]
    Refused(String),
    /// A bug of Campanile or a damaged database: another try does not help.
    #[error("the database answered something unexpected: {0}")]
    Unexpected(String),
}

impl DbError {
    /// Whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            DbError::Unavailable(_)
                | DbError::Busy(_)
                | DbError::ReadOnly(_)
                | DbError::NotWritable(_)
                | DbError::DiskFull(_)
        )
    }

    /// Whether the disk of the database is full.
    pub fn is_disk_full(&self) -> bool {
        matches!(self, DbError::DiskFull(_))
    }

    /// Returns the same error, with the name of the database before its message.
    pub(super) fn at(mut self, place: impl Display) -> DbError {
        let message = self.message_mut();
        *message = format!("{place}: {message}");
        self
    }

    /// Converts an error from opening a database. Anything unreadable at that point may never have been one.
    pub(super) fn while_opening(self) -> DbError {
        match self {
            DbError::Damaged(message) => DbError::Refused(message),
            error => error,
        }
    }

    /// Returns what is wrong, without the kind of the error.
    pub(super) fn into_message(mut self) -> String {
        std::mem::take(self.message_mut())
    }

    fn message_mut(&mut self) -> &mut String {
        let (DbError::Unavailable(message)
        | DbError::Busy(message)
        | DbError::ReadOnly(message)
        | DbError::NotWritable(message)
        | DbError::DiskFull(message)
        | DbError::Conflict(message)
        | DbError::Schema(message)
        | DbError::NewerSchema(message)
        | DbError::Damaged(message)
        | DbError::Refused(message)
        | DbError::Unexpected(message)) = self;
        message
    }
}

/// Returns the error [`DbError::Refused`]. The sentence `why` says what is wrong with the request, and what the operator can do.
pub(super) fn refused<T>(why: impl Into<String>) -> Result<T> {
    Err(DbError::Refused(why.into()))
}

impl From<sqlx::Error> for DbError {
    fn from(error: sqlx::Error) -> DbError {
        match error {
            sqlx::Error::Database(error) => of_code(
                error.code().unwrap_or(Cow::Borrowed("")).as_ref(),
                error.message(),
                error.is_unique_violation(),
            ),
            sqlx::Error::Io(error) => DbError::Unavailable(error.to_string()),
            sqlx::Error::PoolTimedOut => DbError::Unavailable(
                "no connection in time; it does not answer, or is busy".to_owned(),
            ),
            sqlx::Error::PoolClosed => DbError::Unavailable("it was closed".to_owned()),
            sqlx::Error::Tls(error) => DbError::Unavailable(error.to_string()),
            sqlx::Error::WorkerCrashed => {
                DbError::Unavailable("the SQLite thread ended".to_owned())
            }
            // The server went away in the middle of an answer.
            sqlx::Error::Protocol(message) => DbError::Unavailable(message),
            sqlx::Error::Configuration(error) => DbError::Refused(format!(
                "{error}; write postgres://user:password@host:port/name"
            )),
            // It may quote stored data.
            other => DbError::Unexpected(cut_error(printable_line(&other.to_string()))),
        }
    }
}

/// SQLite codes for an unreadable file: `SQLITE_IOERR_READ`, `_SHORT_READ`, `_DATA` and `_CORRUPTFS`.
const UNREADABLE: [&str; 4] = ["266", "522", "8202", "8458"];

/// Codes of both databases. SQLite's are decimal numbers whose low byte is the class;
/// Postgres's are five characters whose first two are the class.
fn of_code(code: &str, message: &str, unique: bool) -> DbError {
    if unique {
        return DbError::Conflict(message.to_owned());
    }
    let (kind, hint): (fn(String) -> DbError, &str) = if code.len() == 5 {
        match (code.get(..2).unwrap_or_default(), code) {
            (_, "08P01") if message.contains("startup parameter") => (
                DbError::Refused,
                "; a pooler before the server does not pass it on: name the server itself, or leave `options` out of the address and give the role a `search_path`",
            ),
            // 25P03: the server ended a session that paused in a transaction.
            ("08", _) | (_, "57P01" | "57P02" | "57P03" | "57P05" | "53300" | "25P03") => {
                (DbError::Unavailable, "")
            }
            // The prepared statement of another session.
            (_, "26000" | "42P05") => return DbError::Refused(TRANSACTION_POOLING.to_owned()),
            (_, "40001" | "40P01" | "55P03" | "57014") => (DbError::Busy, ""),
            (_, "25006") => (DbError::ReadOnly, ""),
            // A page or an index of a table can't be read.
            (_, "XX001" | "XX002") => (
                DbError::Damaged,
                "; restore a backup, or let the server's administrator mend it",
            ),
            (_, "53100") => (DbError::DiskFull, "; free some space on the server's disk"),
            // The server is short of memory or another resource.
            ("53", _) | (_, "58030") => (DbError::NotWritable, ""),
            ("28", _) => (
                DbError::Refused,
                "; check the user and the password in the address",
            ),
            (_, "42501") => (
                DbError::Refused,
                "; let the owner of the tables run what `campanile db grants ROLE` prints",
            ),
            ("3D", _) => (
                DbError::Refused,
                "; create it, or name another one in the address",
            ),
            ("3F", _) => (
                DbError::Refused,
                "; create the schema, or name another one in the address; if it exists, let its owner run what `campanile db grants ROLE` prints",
            ),
            _ => return DbError::Unexpected(format!("{message} (SQLSTATE {code})")),
        }
    } else {
        match code.parse::<u32>().map(|code| code & 0xff) {
            Ok(5 | 6) => (DbError::Busy, ""),
            Ok(8) => (
                DbError::NotWritable,
                "; check the permissions of the file and of its folder",
            ),
            Ok(13) => (DbError::DiskFull, "; free some space"),
            // SQLITE_IOERR_WRITE and SQLITE_IOERR_SHMSIZE: a quota, or the greatest size of a file. Or the disk is broken:
            // a host treats it alike.
            Ok(10) if ["778", "4874"].contains(&code) => (
                DbError::DiskFull,
                "; check the disk, its free space, and the limits of this user and of the size of files",
            ),
            Ok(10) if UNREADABLE.contains(&code) => (
                DbError::Damaged,
                "; check the disk, and restore the file from a backup",
            ),
            Ok(10) => (DbError::NotWritable, "; check the disk and its free space"),
            Ok(14) => (
                DbError::Refused,
                "; check that the folder exists and may be written",
            ),
            Ok(11 | 26) => (
                DbError::Damaged,
                "; restore the file from a backup, or give another one",
            ),
            _ => return DbError::Unexpected(format!("{message} (SQLite code {code})")),
        }
    };
    kind(format!("{message}{hint}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_both_databases_are_sorted_by_what_to_do() {
        let of = |code| of_code(code, "m", false);
        assert!(matches!(of("57P01"), DbError::Unavailable(_)));
        assert!(matches!(of("08006"), DbError::Unavailable(_)));
        assert!(matches!(of("25P03"), DbError::Unavailable(_)));
        assert!(matches!(of("40P01"), DbError::Busy(_)));
        // A lock or a statement took longer than its bound.
        assert!(matches!(of("55P03"), DbError::Busy(_)));
        assert!(matches!(of("57014"), DbError::Busy(_)));
        assert!(matches!(of("26000"), DbError::Refused(_)));
        assert!(of("53100").is_disk_full() && of("53100").is_transient());
        for code in ["58030", "53200", "53400"] {
            assert!(matches!(of(code), DbError::NotWritable(_)));
        }
        assert!(matches!(of("42703"), DbError::Unexpected(_)));
        // SQLITE_BUSY_SNAPSHOT, SQLITE_READONLY_DIRECTORY, SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_DELETE.
        assert!(matches!(of("517"), DbError::Busy(_)));
        assert!(matches!(of("1544"), DbError::NotWritable(_)));
        assert!(of("13").is_disk_full() && of("13").is_transient());
        assert!(of("778").is_disk_full());
        assert!(matches!(of("2570"), DbError::NotWritable(_)));
        for code in ["11", "26", "267", "266", "522", "8458", "XX001", "XX002"] {
            assert!(matches!(of(code), DbError::Damaged(_)), "{code}");
        }
        assert!(matches!(of("25006"), DbError::ReadOnly(_)));
        assert!(matches!(of_code("2067", "m", true), DbError::Conflict(_)));
    }
}
