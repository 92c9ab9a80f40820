//! Remove a package whose file is gone: its schedules end, and its bytes go when no other package has them.

use crate::admin::schedule_admin::{self, Result, ScheduleError, nearest_package};
use campanile_model::clock::Timestamp;
use campanile_store::events::EventKind;
use campanile_store::{Origin, Tx, changes, package_removal, packages, schedules};

/// What the removal of a package removed.
#[derive(
    Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize, schemars::JsonSchema,
)]
pub struct RemovedPackage {
    pub package: String,
    /// The schedules that it had proposed, or that its sidecar had defined. They are ended.
    pub schedules: Vec<String>,
    /// The size of the code that the database does not hold any more.
    pub bytes: i64,
    /// Whether its versions, and the decisions about them, stay on record.
    pub history_kept: bool,
}

/// The most schedules that a refusal names.
const NAMED_MAX: usize = 5;

/// Remove a package. With `keeps_history`, its versions and the decisions about them stay.
///
/// # Errors
/// When a live host has its file, when a schedule of another origin names it, or when a launch of it has not ended.
pub async fn remove(
    tx: &mut Tx,
    name: &str,
    keeps_history: bool,
    by: &str,
    now: Timestamp,
) -> Result<RemovedPackage> {
    if packages::lock(tx, name).await?.is_none() {
        let hint = nearest_package(tx, name).await?;
        return Err(ScheduleError::UnknownPackage(name.to_owned(), hint));
    }
    refuse_file(tx, name).await?;
    schedules::lock_defined_by_package(tx, name).await?;
    // One more than are named. There may be a million.
    let others = schedules::others_of_package(tx, name, NAMED_MAX as i64 + 1).await?;
    refuse_schedules(name, &others)?;
    let own = schedules::defined_by_package(tx, name).await?;
    for schedule in &own {
        schedule_admin::end(tx, schedule, now).await?;
    }
    if package_removal::has_unfinished(tx, name).await? {
        return Err(ScheduleError::Refused(format!(
            "a launch of the package `{name}` has not ended; `campanile launch list --package {name} --status \
             open,queued,running,waiting` shows it; wait for its end, or end it with `campanile run cancel`"
        )));
    }
    packages::clear_pending(tx, name).await?;
    let sizes = package_removal::remove_bytes(tx, name, now).await?;
    if keeps_history {
        package_removal::mark_missing(tx, name, now).await?
    } else {
        package_removal::forget(tx, name).await?
    }
    let detail = if keeps_history {
        format!("by {by}; its versions stay on record")
    } else {
        format!("by {by}")
    };
    changes::record(tx, now, EventKind::PackageRemoved, name, &detail).await?;
    Ok(RemovedPackage {
        package: name.to_owned(),
        schedules: own.into_iter().map(|own| own.definition.name).collect(),
        bytes: sizes.into_iter().fold(0, i64::saturating_add),
        history_kept: keeps_history,
    })
}

/// Refuse while a live host would record the package again.
async fn refuse_file(tx: &mut Tx, name: &str) -> Result {
    match &package_removal::hosts_with_file(tx, name).await?[..] {
        [] => Ok(()),
        hosts => Err(ScheduleError::Refused(format!(
            "the host `{}` has {name}.wasm or {name}.toml in its folder, or had it when it was killed; delete the file there, start the host if it does not run, then try again",
            hosts.join("`, `")
        ))),
    }
}

fn refuse_schedules(package: &str, others: &[(String, Origin)]) -> Result {
    if others.is_empty() {
        return Ok(());
    }
    let names = others.iter().take(NAMED_MAX);
    let names: Vec<&str> = names.map(|(name, _)| name.as_str()).collect();
    let more = if others.len() > NAMED_MAX {
        " and others"
    } else {
        ""
    };
    let of_file = others.iter().any(|(_, origin)| *origin == Origin::File);
    let how = if of_file {
        "`campanile schedule remove`, or from the schedules file"
    } else {
        "`campanile schedule remove`"
    };
    Err(ScheduleError::Refused(format!(
        "schedules launch the package `{package}`: `{}`{more}; remove them with {how}, or give them another package",
        names.join("`, `")
    )))
}
