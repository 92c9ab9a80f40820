//! A schedule's definition, and the orders giving it one.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::admin::schedule_admin;
use crate::order::{Desk, Endpoint, Method, Order, Scope};
use crate::orders::Nothing;
use crate::problem::{ErrorCode, Problem};
use crate::records::schedule::{ChangeReport, NewSchedule, ScheduleRecord};
use crate::schedules::definition;
use campanile_model::access::Role;
use campanile_model::clock::Timestamp;
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::rule_text::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use campanile_package::{ScheduleDefinition, context};
use campanile_schedule::policy::Policies;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Origin, Tx};

/// The definition of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Definition {
    pub name: String,
    /// The package to launch: its file name without .wasm.
    pub package: String,
    /// Launch only this task and the tasks that it depends on.
    #[serde(default)]
    pub task: Option<String>,
    /// How to read the expression.
    pub kind: RuleKind,
    /// Such as `0 2 * * *`, `10s` or `2026-11-21T09:00:00+01:00`.
    pub expression: String,
    /// The instant from which periods are counted.
    #[serde(default)]
    pub anchor: Option<Timestamp>,
    /// The IANA name of the zone whose clock the rule follows.
    #[serde(default = "utc")]
    pub timezone: String,
    #[serde(default)]
    pub day_match: DayMatch,
    #[serde(default)]
    pub dst_gap: DstGap,
    #[serde(default)]
    pub dst_fold: DstFold,
    /// Local times to leave out, such as `12-25`.
    #[serde(default)]
    pub exclude: Vec<String>,
    /// The policies that are set, by name.
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub policies: Policies,
    /// The arguments of a program, each a template; null for those of the sidecar.
    #[serde(default)]
    pub args: Option<Vec<String>>,
    #[serde(default)]
    #[schemars(with = "Map<String, Value>")]
    pub context: JsonObject,
    /// Only for a new schedule: whether it is added paused.
    #[serde(default)]
    pub disabled: bool,
}

fn utc() -> String {
    campanile_package::spec::TIMEZONE_DEFAULT.to_owned()
}

impl From<Definition> for ScheduleDefinition {
    fn from(body: Definition) -> ScheduleDefinition {
        ScheduleDefinition {
            name: body.name,
            package: body.package,
            task: body.task,
            rule: RuleText {
                kind: body.kind,
                expression: body.expression,
                anchor: body.anchor,
                timezone: body.timezone,
                day_match: body.day_match,
                dst_gap: body.dst_gap,
                dst_fold: body.dst_fold,
                exclude: body.exclude,
            },
            policies: body.policies,
            args: body.args,
            context: body.context,
            enabled: !body.disabled,
        }
    }
}

impl From<ScheduleDefinition> for Definition {
    fn from(current: ScheduleDefinition) -> Definition {
        let rule = current.rule;
        Definition {
            name: current.name,
            package: current.package,
            task: current.task,
            kind: rule.kind,
            expression: rule.expression,
            anchor: rule.anchor,
            timezone: rule.timezone,
            day_match: rule.day_match,
            dst_gap: rule.dst_gap,
            dst_fold: rule.dst_fold,
            exclude: rule.exclude,
            policies: current.policies,
            args: current.args,
            context: current.context,
            disabled: false,
        }
    }
}

impl Definition {
    /// Returns the definition of a schedule to add.
    pub fn of_new(wanted: ScheduleDefinition) -> Definition {
        Definition {
            disabled: !wanted.enabled,
            ..Definition::from(wanted)
        }
    }
}

/// Add a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct AddSchedule(pub Definition);

impl Order for AddSchedule {
    type Output = NewSchedule;

    const ENDPOINT: Endpoint = Endpoint::post(
        "add_schedule",
        "/api/v1/schedules",
        (Role::Editor, Scope::Chosen),
        "Add a schedule",
    )
    .created();

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let wanted = ScheduleDefinition::from(self.0.clone());
        desk.refuse_other(&wanted.name)?;
        desk.check_group(&wanted.policies)?;
        schedule_admin::add(tx, &wanted, Origin::Operator, desk.now).await?;
        Ok(NewSchedule::read(tx, &wanted.name, desk.now).await?)
    }

    fn revision(added: &Self::Output) -> Option<i64> {
        Some(added.schedule.row.state.revision)
    }
}

/// Replace the definition of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct ReplaceSchedule(pub Definition);

impl Order for ReplaceSchedule {
    type Output = ScheduleRecord;

    const ENDPOINT: Endpoint = Endpoint::post(
        "replace_schedule",
        "/api/v1/schedules/{name}",
        (Role::Editor, Scope::Named),
        "Replace the definition of a schedule",
    )
    .method(Method::Put);

    const CHECKS_REVISION: bool = true;

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let wanted = redefinition(name, self.0.clone(), desk)?;
        lock(tx, name, desk).await?;
        revised(tx, name, &wanted, desk).await
    }

    fn revision(schedule: &Self::Output) -> Option<i64> {
        Some(schedule.row.state.revision)
    }
}

/// Change parts of a schedule's definition with a merge patch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct EditSchedule(#[schemars(with = "Map<String, Value>")] pub JsonObject);

impl Order for EditSchedule {
    type Output = ScheduleRecord;

    const ENDPOINT: Endpoint = Endpoint::post(
        "edit_schedule",
        "/api/v1/schedules/{name}",
        (Role::Editor, Scope::Named),
        "Change parts of a definition by a merge patch; null clears one",
    )
    .method(Method::Patch);

    const CHECKS_REVISION: bool = true;

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let row = lock(tx, name, desk).await?;
        let current = definition::read(&row.definition)
            .map_err(|why| Problem::new(ErrorCode::Refused, why))?;
        let wanted = redefinition(name, patched(current, self.0.clone())?, desk)?;
        revised(tx, name, &wanted, desk).await
    }

    fn revision(schedule: &Self::Output) -> Option<i64> {
        Some(schedule.row.state.revision)
    }
}

/// Remove a schedule; its launches stay on record.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
#[schemars(transparent)]
pub struct RemoveSchedule(Nothing);

impl Order for RemoveSchedule {
    type Output = ChangeReport<'static>;

    const ENDPOINT: Endpoint = Endpoint::post(
        "remove_schedule",
        "/api/v1/schedules/{name}",
        (Role::Editor, Scope::Named),
        "Remove a schedule; its launches stay on record",
    )
    .method(Method::Delete);

    const CHECKS_REVISION: bool = true;

    async fn run(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let now = lock(tx, name, desk).await?.state.revision;
        if let Some(known) = desk.revision.filter(|known| *known != now) {
            return Err(outdated(
                now,
                format!("`{name}` was changed since revision {known}, it is at revision {now} now"),
            ));
        }
        schedule_admin::remove(tx, name, desk.now).await?;
        Ok(ChangeReport {
            schedule: name.to_owned().into(),
            done: "removed".into(),
        })
    }
}

fn outdated(now: i64, message: String) -> Problem {
    Problem {
        revision: Some(now),
        ..Problem::new(ErrorCode::Conflict, message)
    }
}

/// Locks a schedule, refusing revisions it never had.
async fn lock(tx: &mut Tx, name: &str, desk: &Desk<'_>) -> Result<Schedule, Problem> {
    schedules::lock_named(tx, &[name]).await?;
    let row = schedule_admin::find(tx, name).await?;
    let now = row.state.revision;
    match desk.revision.filter(|known| !(1..=now).contains(known)) {
        None => Ok(row),
        Some(known) => Err(outdated(
            now,
            format!("`{name}` never had a revision {known}; it is at revision {now}"),
        )),
    }
}

/// Checks the new definition of an existing schedule.
fn redefinition(
    name: &str,
    wanted: Definition,
    desk: &Desk<'_>,
) -> Result<ScheduleDefinition, Problem> {
    let refused = |message: &str| Problem::new(ErrorCode::InvalidArgument, message);
    if wanted.name != name {
        let message = format!(
            "the body names the schedule `{}`, and the path `{name}`",
            wanted.name
        );
        return Err(
            refused(&message).hint("`POST /api/v1/schedules/{name}/rename` renames a schedule")
        );
    }
    if wanted.disabled {
        return Err(refused("`disabled` is only for a new schedule")
            .hint("`POST /api/v1/schedules/{name}/pause` pauses a schedule"));
    }
    desk.check_group(&wanted.policies)?;
    Ok(wanted.into())
}

/// Applies a merge patch to a definition.
fn patched(current: ScheduleDefinition, patch: JsonObject) -> Result<Definition, Problem> {
    let merged = serde_json::to_string(&Definition::from(current))
        .and_then(|current| serde_json::from_str::<JsonObject>(&current));
    let mut merged = merged.map_err(|error| Problem::new(ErrorCode::Internal, error))?;
    context::apply_patch(&mut merged, patch);
    serde_json::from_str(&text_of(&merged))
        .map_err(|error| Problem::new(ErrorCode::InvalidArgument, format!("the body: {error}")))
}

/// Gives a schedule its new definition.
async fn revised(
    tx: &mut Tx,
    name: &str,
    wanted: &ScheduleDefinition,
    desk: &Desk<'_>,
) -> Result<ScheduleRecord, Problem> {
    let replace = |current: &mut ScheduleDefinition| current.clone_from(wanted);
    schedule_admin::edit(tx, name, desk.revision, replace, desk.now).await?;
    Ok(ScheduleRecord::new(schedule_admin::find(tx, name).await?))
}
