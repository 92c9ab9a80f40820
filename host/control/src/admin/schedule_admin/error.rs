//! Why a schedule cannot be changed as asked.

use super::holder::Holder;
use campanile_model::clock::Timestamp;
use campanile_model::namespace::Namespace;
use campanile_package::Manifest;
use campanile_package::context::ContextFault;
use campanile_schedule::policy::PolicyError;
use campanile_schedule::rule::RuleError;
use campanile_store::DbError;
use campanile_store::schedules::Revision;

/// The result of a change of schedules.
pub type Result<T = (), E = ScheduleError> = std::result::Result<T, E>;

/// Why a schedule cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("`{}` {fault}", .name.escape_debug())]
    Name { name: String, fault: String },
    #[error(
        "a schedule named `{name}` exists already, and is {}; choose another name, or remove that one first",
        .holder.text()
    )]
    Exists { name: String, holder: Holder },
    /// The name, and the end of the message, which may suggest another name.
    #[error("there is no package named `{0}`{1}")]
    UnknownPackage(String, String),
    #[error("the package `{name}` was rejected, and no version of it was ever active: {why}")]
    PackageRejected { name: String, why: String },
    #[error("the package `{0}` is in no live host's folder; put its .wasm back, then try again")]
    PackageMissing(String),
    #[error("{0}")]
    Rule(#[from] RuleError),
    #[error("{0} is in the past, so the schedule would never fire; give a later time")]
    Past(Timestamp),
    #[error(
        "the rule has no slot from now to the end of 2099, so the schedule would never fire; `campanile cron explain` shows what it comes to"
    )]
    NothingAhead,
    #[error("{0}")]
    Policy(#[from] PolicyError),
    #[error("this version cannot read the definition of `{name}`: {why}")]
    Unreadable { name: String, why: String },
    #[error("{0} is in the past, so the pause would have ended; give a later time")]
    PauseOver(Timestamp),
    #[error("{0}")]
    Reserved(#[from] ContextFault),
    #[error("`{name}` was changed since revision {revision}, it is at revision {now} now:{lines}")]
    Outdated {
        name: String,
        revision: i64,
        now: i64,
        /// The lines in which the current definition differs from that of `revision`, each after a line break.
        lines: String,
    },
    #[error("{slot} is no future slot of `{name}`{}", nearest_slots(.near))]
    NoSlot {
        name: String,
        slot: Timestamp,
        near: Vec<String>,
    },
    #[error("{0} is in the past, so it is decided already, or will be at once; name a future slot")]
    SlotPast(Timestamp),
    #[error("the slot {1} of `{0}` is skipped already")]
    Skipped(String, Timestamp),
    #[error("the slot {1} of `{0}` is not skipped")]
    NotSkipped(String, Timestamp),
    #[error(
        "{1} slots of `{0}` are skipped, which is the limit; exclude slots in its rule, or pause it"
    )]
    ManySkips(String, usize),
    #[error("`{0}` is paused already; to change the pause, resume it first")]
    Paused(String),
    #[error("`{0}` is not paused; `campanile schedule show {0}` shows its state")]
    NotPaused(String),
    #[error("another command or host changed `{0}` at the same time; look at it, then try again")]
    Raced(String),
    /// The schedule, launch, run or backfill is not on record.
    #[error("{0}")]
    NotFound(String),
    /// The state of the launch or of the backfill does not allow it.
    #[error("{0}")]
    Conflict(String),
    /// Why a request for a backfill is refused.
    #[error("{0}")]
    Backfill(String),
    /// Something that was given is wrong.
    #[error("{0}")]
    Invalid(String),
    /// Any other reason.
    #[error("{0}")]
    Refused(String),
    #[error(transparent)]
    Db(#[from] DbError),
}

/// Returns the end of a message about an unknown `name`: it suggests the nearest one of `known`, if any is alike enough. A name of
/// another namespace is not suggested, because the reader of the message may not be allowed to see it.
pub(crate) fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> String {
    let known = known.into_iter();
    let known = known.filter(|known| Namespace::of(known) == Namespace::of(name));
    let nearest = campanile_model::text::nearest(name, known).filter(|near| *near != name);
    nearest.map_or_else(String::new, |near| format!("; did you mean `{near}`?"))
}

/// Say that a package has no such task, and which ones it has.
pub fn no_task(package: &str, manifest: &Manifest, task: &str) -> String {
    let known = manifest.tasks.iter().map(|known| format!("`{}`", known.id));
    let known = known.collect::<Vec<_>>().join(", ");
    format!("the package `{package}` has no task `{task}`; it has {known}")
}

fn nearest_slots(near: &[String]) -> String {
    match near {
        [] => "; it has none".to_owned(),
        [one] => format!("; the nearest is {one}"),
        several => format!("; the nearest are {}", several.join(" and ")),
    }
}

impl ScheduleError {
    pub(super) fn exists(name: &str, holder: Holder) -> ScheduleError {
        let name = name.to_owned();
        ScheduleError::Exists { name, holder }
    }

    pub(crate) fn unreadable(definition: &Revision, why: String) -> ScheduleError {
        let name = definition.name.clone();
        ScheduleError::Unreadable { name, why }
    }

    /// Whether another change of the same schedule came first, so that a second attempt may succeed.
    pub fn is_collision(&self) -> bool {
        matches!(
            self,
            ScheduleError::Raced(_) | ScheduleError::Db(DbError::Conflict(_) | DbError::Busy(_))
        )
    }
}
