//! Why a step of the engine failed.

use std::path::PathBuf;

use campanile_control::admin::schedule_admin::ScheduleError;
use campanile_store::DbError;

/// The result of a step of the engine.
pub type Result<T = (), E = EngineError> = std::result::Result<T, E>;

/// A step that failed. Its service tries again.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("another process now serves under the host name `{0}`; give each host its own name")]
    NameLost(String),
    #[error(
        "another process now serves {0}, because the lock file beside it was removed or replaced; a SQLite file is served by one host at a time"
    )]
    FileLost(String),
    #[error(
        "the database file {0} is not at its path any more, so this host has stopped; put the file back, or name its new path with --database, and start again"
    )]
    FileMoved(String),
    #[error(
        "the file {} was deleted or replaced while this host served, so this host has stopped; {hint}", path.display()
    )]
    JournalLost { path: PathBuf, hint: &'static str },
    #[error(
        "the file {} was cut short or overwritten while this host served, so this host has stopped; restore a backup with `campanile db restore FILE --force`", .0.display()
    )]
    FileOverwritten(PathBuf),
    /// A state that must not occur. Nothing was changed.
    #[error("a bug in Campanile: {0}")]
    Bug(String),
}

impl EngineError {
    /// Whether the same step may succeed later without a change to the program.
    pub(crate) fn is_transient(&self) -> bool {
        matches!(self, EngineError::Db(error) if error.is_transient())
    }

    /// Whether the database may accept the same step later, for example after an operator restores access.
    pub(crate) fn may_pass(&self) -> bool {
        self.is_transient()
            || matches!(
                self,
                EngineError::Db(DbError::Refused(_) | DbError::Damaged(_))
            )
    }
}

impl From<ScheduleError> for EngineError {
    fn from(error: ScheduleError) -> EngineError {
        match error {
            ScheduleError::Db(error) => error.into(),
            other => EngineError::Bug(other.to_string()),
        }
    }
}
