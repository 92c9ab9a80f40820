//! Changing what schedules say: the one way in for the command line, sidecars and packages' proposals.
//!
//! Everything is checked before anything is written, and each function writes within the
//! transaction it is given, so a refusal leaves nothing half-done.

use serde_json::{Map, Value};

use super::plan::PACKAGE_MISSING;
use crate::clock::Timestamp;
use crate::db::events::{self, EventKind};
use crate::db::launches::{self, NewLaunch};
use crate::db::packages::{self, PackageRow};
use crate::db::schedules::{self, Revision, Schedule};
use crate::db::{Db, DbError, Decision, Origin, Tx, changes};
use crate::ids::{LaunchId, LaunchKind, ScheduleId};
use crate::package::context::{self, ReservedKey};
use crate::package::{Manifest, spec};
use crate::schedule::{HashKey, Rule, RuleError, RuleKind, RuleText};

/// What a schedule shall say.
#[derive(Debug, Clone, PartialEq)]
pub struct Wanted {
    pub name: String,
    pub package: String,
    pub task: Option<String>,
    pub rule: RuleText,
    pub context: Map<String, Value>,
}

/// Why a schedule cannot be changed as asked.
#[derive(Debug, thiserror::Error)]
pub enum ScheduleError {
    #[error("`{0}` cannot name a schedule: use 1 to 128 letters, digits, `.`, `_` or `-`")]
    Name(String),
    #[error("a schedule named `{0}` exists already; choose another name, or remove that one first")]
    Exists(String),
    #[error("there is no schedule named `{name}`{}", hint(.nearest))]
    Unknown {
        name: String,
        nearest: Option<String>,
    },
    #[error("there is no package named `{name}`{}", hint(.nearest))]
    UnknownPackage {
        name: String,
        nearest: Option<String>,
    },
    #[error("the package `{name}` was rejected, and no version of it was ever taken: {why}")]
    PackageRejected { name: String, why: String },
    #[error("the package `{package}` has no task `{task}`; it has {}{}", .known.join(", "), hint(.nearest))]
    UnknownTask {
        package: String,
        task: String,
        nearest: Option<String>,
        known: Vec<String>,
    },
    #[error("the package `{0}` is in no live host's folder; put its .wasm back, then try again")]
    PackageMissing(String),
    #[error("{0}")]
    Rule(#[from] RuleError),
    #[error("{0} is in the past, so the schedule would never ring; give a later time")]
    Past(Timestamp),
    #[error(
        "the rule has no slot from now to the end of 2099, so the schedule would never ring; `campanile cron explain` shows what it comes to"
    )]
    NothingAhead,
    #[error("{0}")]
    Reserved(#[from] ReservedKey),
    #[error("`{name}` is {}; pause it, or change {}", origin_is(*.origin), origin_file(*.origin, .package))]
    NotTheOperators {
        name: String,
        package: String,
        origin: Origin,
    },
    #[error("`{0}` is paused already")]
    Paused(String),
    #[error("`{0}` is not paused")]
    NotPaused(String),
    #[error("somebody else changed `{0}` at the same time; look at it, then try again")]
    Raced(String),
    #[error(transparent)]
    Db(#[from] DbError),
}

fn hint(nearest: &Option<String>) -> String {
    nearest
        .as_ref()
        .map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

fn origin_is(origin: Origin) -> &'static str {
    match origin {
        Origin::Operator => "the operator's",
        Origin::Sidecar => "ordered by its package's sidecar",
        Origin::Package => "proposed by its package",
    }
}

fn origin_file(origin: Origin, package: &str) -> String {
    match origin {
        Origin::Operator => "it".to_owned(),
        Origin::Sidecar => format!("{package}.toml"),
        Origin::Package => format!("`schedules` in {package}.toml, which replaces the proposal"),
    }
}

/// Add a schedule; gives its id.
pub async fn add(
    tx: &mut Tx,
    wanted: &Wanted,
    origin: Origin,
    now: Timestamp,
) -> Result<ScheduleId, ScheduleError> {
    let id = ScheduleId::new();
    let rule = check(tx, wanted, id).await?;
    if schedules::find(tx, &wanted.name).await?.is_some() {
        return Err(ScheduleError::Exists(wanted.name.clone()));
    }
    let next = next_slot(tx, id, &rule, now).await?;
    if origin == Origin::Operator && next.is_none() && !rule.at_host_start() {
        if wanted.rule.kind != RuleKind::At {
            return Err(ScheduleError::NothingAhead);
        }
        return Err(ScheduleError::Past(
            wanted.rule.expression.parse().unwrap_or(now),
        ));
    }
    let says = revision(wanted, id, 1, now);
    schedules::insert(tx, &says, origin, next).await?;
    let detail = format!(
        "{} {} {}, {}",
        says.rule.kind,
        says.rule.expression,
        says.rule.timezone,
        origin_is(origin)
    );
    events::record(tx, now, EventKind::ScheduleAdded, &wanted.name, &detail).await?;
    changes::bump(tx).await?;
    Ok(says.schedule_id)
}

/// Make `schedule` say what is wanted. A change of timing never looks back; any other keeps the cursor.
pub(super) async fn revise(
    tx: &mut Tx,
    schedule: &Schedule,
    wanted: &Wanted,
    origin: Origin,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let rule = check(tx, wanted, schedule.state.id).await?;
    let same_timing = schedule.says.rule == wanted.rule;
    let cursor_at = if same_timing {
        schedule.state.cursor_at
    } else {
        drop_past_slots(tx, schedule, "edited", now).await?;
        now.max(schedule.state.cursor_at)
    };
    let next = match schedule.state.enabled {
        true => next_slot(tx, schedule.state.id, &rule, cursor_at).await?,
        false => None,
    };
    let revision_number = schedule.state.revision + 1;
    let says = revision(wanted, schedule.state.id, revision_number, now);
    if !schedules::revise(tx, &says, schedule.state.enabled, origin, cursor_at, next).await? {
        return Err(ScheduleError::Raced(wanted.name.clone()));
    }
    let detail = format!(
        "revision {revision_number}: {} {}",
        says.rule.kind, says.rule.expression
    );
    events::record(tx, now, EventKind::ScheduleChanged, &wanted.name, &detail).await?;
    changes::bump(tx).await?;
    Ok(())
}

/// Decide no more slots until it is resumed. What runs, runs on.
pub async fn pause(tx: &mut Tx, name: &str, now: Timestamp) -> Result<(), ScheduleError> {
    schedules::lock(tx, Some(name), None).await?;
    let schedule = find(tx, name).await?;
    if !schedules::pause(tx, schedule.state.id, now).await? {
        return Err(ScheduleError::Paused(name.to_owned()));
    }
    events::record(tx, now, EventKind::SchedulePaused, name, "by the operator").await?;
    changes::bump(tx).await?;
    Ok(())
}

/// Decide slots again. Those of the pause are owed to nobody; they go on the record as skipped.
pub async fn resume(tx: &mut Tx, name: &str, now: Timestamp) -> Result<(), ScheduleError> {
    schedules::lock(tx, Some(name), None).await?;
    let schedule = find(tx, name).await?;
    if schedule.state.enabled {
        return Err(ScheduleError::NotPaused(name.to_owned()));
    }
    let rule = rule_of(&schedule)?;
    let cursor_at = drop_past_slots(tx, &schedule, "paused", now).await?;
    let next = next_slot(tx, schedule.state.id, &rule, cursor_at.max(now)).await?;
    if !schedules::resume(tx, schedule.state.id, now, cursor_at, next).await? {
        return Err(ScheduleError::NotPaused(name.to_owned()));
    }
    events::record(tx, now, EventKind::ScheduleResumed, name, "by the operator").await?;
    changes::bump(tx).await?;
    Ok(())
}

/// End an operator's schedule for good. Its launches stay on the record.
pub async fn remove(tx: &mut Tx, name: &str, now: Timestamp) -> Result<(), ScheduleError> {
    schedules::lock(tx, Some(name), None).await?;
    let schedule = find(tx, name).await?;
    if schedule.state.origin != Origin::Operator {
        return Err(ScheduleError::NotTheOperators {
            name: name.to_owned(),
            package: schedule.says.package,
            origin: schedule.state.origin,
        });
    }
    end(tx, &schedule, now).await
}

/// End a schedule for good, whoever ordered it.
pub(super) async fn end(
    tx: &mut Tx,
    schedule: &Schedule,
    now: Timestamp,
) -> Result<(), ScheduleError> {
    let name = &schedule.says.name;
    let reason = match schedule.state.enabled {
        true => "removed",
        false => "paused",
    };
    drop_past_slots(tx, schedule, reason, now).await?;
    if !schedules::remove(tx, schedule.state.id, now).await? {
        return Err(ScheduleError::Raced(name.clone()));
    }
    events::record(
        tx,
        now,
        EventKind::ScheduleRemoved,
        name,
        "its launches stay on the record",
    )
    .await?;
    changes::bump(tx).await?;
    Ok(())
}

/// Launch a schedule now, besides its slots, with `own` laid over its context; gives the launch.
pub async fn trigger(
    tx: &mut Tx,
    name: &str,
    own: Option<&Map<String, Value>>,
    now: Timestamp,
) -> Result<LaunchId, ScheduleError> {
    let schedule = find(tx, name).await?;
    if let Some(own) = own {
        context::check(own)?;
    }
    let package = known_package(tx, &schedule.says.package).await?;
    if package.missing_since.is_some() {
        return Err(ScheduleError::PackageMissing(package.name));
    }
    let rule = rule_of(&schedule)?;
    let launch = NewLaunch {
        context: own.map(|own| Value::Object(own.clone()).to_string()),
        ..at_once(&schedule, &rule, Some(package), LaunchKind::Manual, now)
    };
    let id = launch.id;
    launches::insert(tx, &[launch]).await?;
    changes::bump(tx).await?;
    Ok(id)
}

/// The launch of a schedule besides its slots, or the record that there was no package to launch.
pub(super) fn at_once(
    schedule: &Schedule,
    rule: &Rule,
    package: Option<PackageRow>,
    kind: LaunchKind,
    now: Timestamp,
) -> NewLaunch {
    let package = package.filter(|package| package.missing_since.is_none());
    let digest = package.and_then(|package| package.digest);
    let (decision, reason) = match digest {
        Some(_) => (Decision::Launched, None),
        None => (Decision::Skipped, Some(PACKAGE_MISSING)),
    };
    NewLaunch {
        id: LaunchId::of(schedule.state.id, now, kind),
        schedule_id: schedule.state.id,
        schedule_revision: schedule.state.revision,
        kind,
        slot: now,
        slot_local: rule.local_text(now),
        slot_last: now,
        slot_count: 1,
        decision,
        reason,
        package: schedule.says.package.clone(),
        digest,
        context: None,
        interval_start: schedule.state.cursor_at.min(now),
        fire_time: now,
        decided_by: None,
        claimed_at: now,
    }
}

/// The next slot of a schedule that is decided up to `cursor_at`.
///
/// A rule that counts from ends begins at the next whole second, has no next slot while its launch goes on, and may
/// be due at once when it was edited or resumed.
pub(super) async fn next_slot(
    tx: &mut Tx,
    id: ScheduleId,
    rule: &Rule,
    cursor_at: Timestamp,
) -> Result<Option<Timestamp>, DbError> {
    const SECOND_US: i64 = 1_000_000;
    let Some(delay) = rule.delay_after_completion() else {
        return Ok(rule.next(cursor_at));
    };
    let soonest = Timestamp::from_micros(cursor_at.micros() + 1);
    Ok(match launches::newest_end(tx, id).await? {
        None => {
            let second = cursor_at.micros().div_euclid(SECOND_US) + 1;
            Some(Timestamp::from_micros(second * SECOND_US))
        }
        Some(ended_at) => ended_at.map(|ended_at| ended_at.plus(delay).max(soonest)),
    })
}

/// Run `change` in a transaction of its own.
///
/// Two hosts that change the same schedule at the same moment collide on its name or its revision;
/// the one that comes second looks again.
pub async fn change<T>(
    db: &Db,
    change: impl AsyncFn(&mut Tx) -> Result<T, ScheduleError>,
) -> Result<T, ScheduleError> {
    let mut tries = 0;
    loop {
        let mut tx = db.write().await?;
        let done = match change(&mut tx).await {
            Ok(done) => tx
                .commit()
                .await
                .map(|()| done)
                .map_err(ScheduleError::from),
            Err(error) => Err(error),
        };
        tries += 1;
        match done {
            Err(error) if error.is_collision() && tries < TRIES_MAX => {}
            done => return done,
        }
    }
}

/// How often a change is tried that collides with another.
pub(super) const TRIES_MAX: usize = 3;

impl ScheduleError {
    /// Whether somebody else changed the same at the same moment, so that looking again helps.
    pub(super) fn is_collision(&self) -> bool {
        matches!(
            self,
            ScheduleError::Raced(_) | ScheduleError::Db(DbError::Conflict(_) | DbError::Busy(_))
        )
    }
}

/// The schedule of that name, or the nearest name.
pub async fn find(tx: &mut Tx, name: &str) -> Result<Schedule, ScheduleError> {
    if let Some(schedule) = schedules::find(tx, name).await? {
        return Ok(schedule);
    }
    let all = schedules::list(tx, None, None).await?;
    let names = all.iter().map(|schedule| schedule.says.name.as_str());
    Err(ScheduleError::Unknown {
        name: name.to_owned(),
        nearest: crate::strict::nearest(name, names).map(str::to_owned),
    })
}

/// The package of that name, or the nearest name.
pub async fn known_package(tx: &mut Tx, name: &str) -> Result<PackageRow, ScheduleError> {
    match packages::find(tx, name).await? {
        Some(package) if package.digest.is_some() => return Ok(package),
        Some(PackageRow {
            rejection: Some(why),
            ..
        }) => {
            return Err(ScheduleError::PackageRejected {
                name: name.to_owned(),
                why,
            });
        }
        _ => {}
    }
    let all = packages::list(tx, None).await?;
    let names = all.iter().map(|package| package.name.as_str());
    Err(ScheduleError::UnknownPackage {
        name: name.to_owned(),
        nearest: crate::strict::nearest(name, names)
            .filter(|nearest| *nearest != name)
            .map(str::to_owned),
    })
}

async fn check(tx: &mut Tx, wanted: &Wanted, id: ScheduleId) -> Result<Rule, ScheduleError> {
    if spec::schedule_name_fault(&wanted.name).is_some() {
        return Err(ScheduleError::Name(wanted.name.clone()));
    }
    context::check(&wanted.context)?;
    let rule = Rule::parse(&wanted.rule, HashKey::of(id))?;
    let package = known_package(tx, &wanted.package).await?;
    if let Some(task) = &wanted.task {
        let manifest = Manifest::from_stored(&package.name, &package.manifest);
        if manifest.task(task).is_none() {
            return Err(ScheduleError::UnknownTask {
                package: package.name,
                task: task.clone(),
                nearest: manifest.nearest_task(task).map(str::to_owned),
                known: manifest
                    .tasks
                    .iter()
                    .map(|task| format!("`{}`", task.id))
                    .collect(),
            });
        }
    }
    Ok(rule)
}

fn rule_of(schedule: &Schedule) -> Result<Rule, RuleError> {
    Rule::parse(&schedule.says.rule, HashKey::of(schedule.state.id))
}

fn revision(wanted: &Wanted, id: ScheduleId, revision: i64, since: Timestamp) -> Revision {
    Revision {
        schedule_id: id,
        revision,
        name: wanted.name.clone(),
        package: wanted.package.clone(),
        task: wanted.task.clone(),
        rule: wanted.rule.clone(),
        context: Value::Object(wanted.context.clone()).to_string(),
        since,
    }
}

/// Account for the slots after the cursor and up to `now` that will never be decided otherwise, in one row;
/// gives the last of them, or the cursor.
async fn drop_past_slots(
    tx: &mut Tx,
    schedule: &Schedule,
    reason: &'static str,
    now: Timestamp,
) -> Result<Timestamp, ScheduleError> {
    let state = &schedule.state;
    // A rule that this version cannot read has no slots that it could count.
    let Ok(rule) = rule_of(schedule) else {
        return Ok(state.cursor_at);
    };
    let rule = match rule.delay_after_completion() {
        None => rule,
        // The one slot that it waits for, or would wait for if it were not paused.
        Some(_) => match next_slot(tx, state.id, &rule, state.cursor_at).await? {
            Some(slot) => rule.only(state.next_slot.unwrap_or(slot)),
            None => return Ok(state.cursor_at),
        },
    };
    let mut slots = rule.slots(state.cursor_at, now);
    let Some(first) = slots.next() else {
        return Ok(state.cursor_at);
    };
    let (last, count) = slots.fold((first, 1), |(_, count), slot| (slot, count + 1));
    let range = NewLaunch {
        id: LaunchId::of(state.id, first, LaunchKind::Schedule),
        schedule_id: state.id,
        schedule_revision: state.revision,
        kind: LaunchKind::Schedule,
        slot: first,
        slot_local: rule.local_text(first),
        slot_last: last,
        slot_count: count,
        decision: Decision::Skipped,
        reason: Some(reason),
        package: schedule.says.package.clone(),
        digest: None,
        context: None,
        interval_start: state.cursor_at,
        fire_time: first,
        decided_by: None,
        claimed_at: now,
    };
    launches::insert(tx, &[range]).await?;
    Ok(last)
}
