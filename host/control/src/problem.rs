//! Why a request of an operator is not done: the same sentence, hint and code on the command line and in the API.

use std::fmt::{self, Display};

use serde::{Deserialize, Serialize};

use crate::admin::approval::PackageError;
use crate::admin::schedule_admin::ScheduleError;
use campanile_schedule::rule::RuleError;
use campanile_store::DbError;

/// What kind of error it is. The documentation of each is its row in the reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// an option, a rule, a time, a time zone, a name, or a file that was given is wrong: correct it
    InvalidArgument,
    /// the configuration file, or a variable of the environment, is wrong: correct it
    InvalidConfiguration,
    /// the schedule, package, launch, run, backfill or version that was named is not on record
    NotFound,
    /// the first digits of an id mean more than one: give more digits
    Ambiguous,
    /// the state does not allow it: the name is taken, it has ended, is paused, was changed meanwhile, or a host serves it
    Conflict,
    /// the tables of the database are of a newer version of Campanile: use that version
    NewerSchema,
    /// a rule of this installation does not allow it: a policy, a limit, an owner, a permission
    Refused,
    /// the database cannot be reached or written now: try again later
    Unavailable,
    /// the command was tried, and failed
    Failed,
    /// a bug of Campanile, or a damaged database: report it
    Internal,
}

/// Why a request is not done: one sentence, perhaps a hint, and a code. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    pub message: String,
    /// What the operator can do next.
    pub hint: Option<String>,
    pub code: ErrorCode,
    /// The present revision of a schedule that was to be changed at another one.
    pub revision: Option<i64>,
    /// Whether another transaction was in the way, so that another try helps.
    pub is_collision: bool,
}

impl Problem {
    /// Make a problem without a hint.
    pub fn new(code: ErrorCode, message: impl Display) -> Problem {
        Problem {
            message: message.to_string(),
            hint: None,
            code,
            revision: None,
            is_collision: false,
        }
    }

    /// Add what the operator can do next, unless `hint` is empty.
    pub fn hint(self, hint: impl Into<String>) -> Problem {
        let hint = Some(hint.into()).filter(|hint| !hint.is_empty());
        Problem { hint, ..self }
    }
}

impl Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl From<DbError> for Problem {
    fn from(error: DbError) -> Problem {
        let is_collision = matches!(error, DbError::Conflict(_) | DbError::Busy(_));
        let (code, hint) = match error {
            DbError::Unexpected(_) => (ErrorCode::Internal, ""),
            DbError::Unavailable(_) => (
                ErrorCode::Unavailable,
                "check that the server runs, that the address is right, and that no firewall blocks it",
            ),
            DbError::Busy(_)
            | DbError::ReadOnly(_)
            | DbError::NotWritable(_)
            | DbError::DiskFull(_) => (ErrorCode::Unavailable, ""),
            DbError::Conflict(_) | DbError::Schema(_) => (ErrorCode::Conflict, ""),
            DbError::NewerSchema(_) => (ErrorCode::NewerSchema, ""),
            DbError::Damaged(_) | DbError::Refused(_) => (ErrorCode::Refused, ""),
        };
        Problem {
            is_collision,
            ..Problem::new(code, error).hint(hint)
        }
    }
}

impl From<ScheduleError> for Problem {
    fn from(error: ScheduleError) -> Problem {
        use ScheduleError as E;
        let is_collision = error.is_collision();
        let code = match error {
            E::Db(error) => return error.into(),
            E::Rule(error) => return error.into(),
            E::Policy(error) => {
                return Problem::new(ErrorCode::InvalidArgument, &error).hint(error.hint());
            }
            E::Outdated { ref name, now, .. } => {
                let hint = format!(
                    "look at it with `campanile schedule show {name}`, then edit it with --revision {now}"
                );
                return Problem {
                    revision: Some(now),
                    ..Problem::new(ErrorCode::Conflict, &error).hint(hint)
                };
            }
            E::UnknownPackage(..) => {
                let hint = "`campanile package list` shows those there are; a file in the plugins folder is a package after a host has loaded it";
                return Problem::new(ErrorCode::NotFound, error).hint(hint);
            }
            E::NotFound(_) => ErrorCode::NotFound,
            E::Exists { .. }
            | E::Skipped(..)
            | E::NotSkipped(..)
            | E::Paused(_)
            | E::NotPaused(_)
            | E::Raced(_)
            | E::Conflict(_) => ErrorCode::Conflict,
            E::PackageRejected { .. }
            | E::PackageMissing(_)
            | E::Unreadable { .. }
            | E::ManySkips(..)
            | E::Refused(_) => ErrorCode::Refused,
            E::Name { .. }
            | E::Invalid(_)
            | E::Past(_)
            | E::NothingAhead
            | E::PauseOver(_)
            | E::Reserved(_)
            | E::NoSlot { .. }
            | E::SlotPast(_)
            | E::Backfill(_) => ErrorCode::InvalidArgument,
        };
        Problem {
            is_collision,
            ..Problem::new(code, error)
        }
    }
}

impl From<PackageError> for Problem {
    fn from(error: PackageError) -> Problem {
        let code = match error {
            PackageError::Db(error) => return error.into(),
            PackageError::NotFound(_) => ErrorCode::NotFound,
            PackageError::Ambiguous(_) => ErrorCode::Ambiguous,
            PackageError::Digest(_) => ErrorCode::InvalidArgument,
            PackageError::Refused { .. } => ErrorCode::Refused,
            PackageError::NoActiveVersion { .. }
            | PackageError::NothingPending(_)
            | PackageError::NotPending { .. }
            | PackageError::NoFormer(_) => ErrorCode::Conflict,
        };
        Problem::new(code, &error).hint(error.hint())
    }
}

impl From<RuleError> for Problem {
    fn from(error: RuleError) -> Problem {
        Problem::new(ErrorCode::InvalidArgument, &error).hint(error.hint())
    }
}
