//! The routes that change schedules, launches, backfills, packages and hosts. Each calls the same function of the engine as
//! the command of the same name.

use std::time::Duration;

use axum::http::StatusCode;

use campanile_control::approval::{self, Attribution};
use campanile_control::backfill::{self, BackfillRequest};
use campanile_control::orders::Nothing;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::records::backfill::{BackfillRecord, SLOTS_UNCONFIRMED_MAX, SurveyReport};
use campanile_control::records::ids;
use campanile_control::records::launch::{CancelReport, TriggerReport};
use campanile_control::records::package::DecisionReport;
use campanile_control::records::schedule::{ChangeReport, NewSchedule, ScheduleRecord};
use campanile_control::schedule_admin::{self, CursorReset, ScheduleDefinition};
use campanile_control::{definition, launch_admin};
use campanile_model::ids::{BackfillId, RunId, ShortId};
use campanile_model::json_text::{JsonObject, text_of};
use campanile_model::text;
use campanile_package::context;
use campanile_package::quota::check_group;
use campanile_store::schedules::{self, Schedule};
use campanile_store::{Origin, Tx};

use crate::bodies;
use crate::call::{Call, Reply, Result};
use crate::change::change;
use crate::problem::ApiProblem;

/// The least and the greatest spread of a backfill.
const SPREAD: (Duration, Duration) = (Duration::from_millis(1), Duration::from_hours(24 * 366));
/// The longest grace of a run.
const GRACE_MAX: Duration = Duration::from_hours(24 * 366);

/// Refuse a group that the configuration does not define.
pub(crate) fn check_definition(call: &Call, wanted: &ScheduleDefinition) -> Result<()> {
    check_group(&wanted.policies, &call.state.app.settings.groups).map_err(ApiProblem::invalid)
}

pub(crate) async fn add_schedule(call: Call) -> Result {
    let wanted = ScheduleDefinition::from(call.json::<bodies::Definition>()?);
    call.refuse_other(&wanted.name)?;
    check_definition(&call, &wanted)?;
    change!(call, StatusCode::CREATED, |tx, now| {
        schedule_admin::add(tx, &wanted, Origin::Operator, now).await?;
        let added = NewSchedule::read(tx, &wanted.name, now).await?;
        let revision = added.schedule.row.state.revision;
        (added, Some(revision))
    })
}

/// Lock a schedule, and refuse to change it unless the client has its present revision.
async fn lock(tx: &mut Tx, name: &str, revision: Option<i64>) -> Result<Schedule> {
    schedules::lock_named(tx, &[name]).await?;
    let row = schedule_admin::find(tx, name).await?;
    let now = row.state.revision;
    match revision {
        Some(revision) if !(1..=now).contains(&revision) => {
            let message =
                format!("`{name}` never had a revision {revision}; it is at revision {now}");
            let problem = Problem {
                revision: Some(now),
                ..Problem::new(ErrorCode::Conflict, message)
            };
            Err(ApiProblem::from(problem))
        }
        _ => Ok(row),
    }
}

/// Check the definition that a schedule is to have.
fn redefinition(call: &Call, name: &str, body: bodies::Definition) -> Result<ScheduleDefinition> {
    if body.name != name {
        let message = format!(
            "the body names the schedule `{}`, and the path `{name}`",
            body.name
        );
        return Err(ApiProblem::invalid(message)
            .hint("`POST /api/v1/schedules/{name}/rename` renames a schedule"));
    }
    if body.disabled {
        let problem = ApiProblem::invalid("`disabled` is only for a new schedule");
        return Err(problem.hint("`POST /api/v1/schedules/{name}/pause` pauses a schedule"));
    }
    let wanted = ScheduleDefinition::from(body);
    check_definition(call, &wanted)?;
    Ok(wanted)
}

pub(crate) async fn replace_schedule(call: Call) -> Result {
    let revision = call.if_match()?;
    let name = call.name("name");
    let wanted = redefinition(&call, name, call.json()?)?;
    change!(call, StatusCode::OK, |tx, now| {
        lock(tx, name, revision).await?;
        let edit = |current: &mut ScheduleDefinition| current.clone_from(&wanted);
        let revision = schedule_admin::edit(tx, name, revision, edit, now).await?;
        let row = schedule_admin::find(tx, name).await?;
        (ScheduleRecord::new(row), Some(revision))
    })
}

pub(crate) async fn edit_schedule(call: Call) -> Result {
    let revision = call.if_match()?;
    let name = call.name("name");
    let patch = call.json::<JsonObject>()?;
    change!(call, StatusCode::OK, |tx, now| {
        let row = lock(tx, name, revision).await?;
        let current = definition::read(&row.definition)
            .map_err(|why| Problem::new(ErrorCode::Refused, why))?;
        let wanted = patched(&call, current, patch.clone())?;
        let edit = |current: &mut ScheduleDefinition| current.clone_from(&wanted);
        let revision = schedule_admin::edit(tx, name, revision, edit, now).await?;
        let row = schedule_admin::find(tx, name).await?;
        (ScheduleRecord::new(row), Some(revision))
    })
}

/// Return a definition with a merge patch applied.
fn patched(
    call: &Call,
    current: ScheduleDefinition,
    patch: JsonObject,
) -> Result<ScheduleDefinition> {
    let name = current.name.clone();
    let current = serde_json::to_string(&bodies::Definition::from(current));
    let merged = current.and_then(|current| serde_json::from_str::<JsonObject>(&current));
    let Ok(mut merged) = merged else {
        return Err(Problem::new(
            ErrorCode::Internal,
            "the definition cannot be written as JSON",
        )
        .into());
    };
    context::apply_patch(&mut merged, patch);
    let body = serde_json::from_str(&text_of(&merged));
    let body = body.map_err(|error| ApiProblem::invalid(format!("the body: {error}")))?;
    redefinition(call, &name, body)
}

pub(crate) async fn reset_cursors(call: Call) -> Result {
    let bodies::ResetCursors { to, after } = call.json()?;
    change!(call, StatusCode::OK, |tx, now| {
        let reset = CursorReset { to, by: call.by() };
        let done = schedule_admin::reset_cursors(tx, &after, reset, now).await?;
        (done, None)
    })
}

pub(crate) async fn remove_schedule(call: Call) -> Result {
    let revision = call.if_match()?;
    let name = call.name("name");
    change!(call, StatusCode::OK, |tx, now| {
        let row = lock(tx, name, revision).await?;
        if let Some(wanted) = revision.filter(|wanted| *wanted != row.state.revision) {
            let now = row.state.revision;
            let message = format!(
                "`{name}` was changed since revision {wanted}, it is at revision {now} now"
            );
            let problem = Problem {
                revision: Some(now),
                ..Problem::new(ErrorCode::Conflict, message)
            };
            return Err(ApiProblem::from(problem));
        }
        schedule_admin::remove(tx, name, now).await?;
        (
            ChangeReport {
                schedule: name.into(),
                done: "removed".into(),
            },
            None,
        )
    })
}

pub(crate) async fn cancel(call: Call) -> Result {
    let id = call.id::<ShortId>("id")?;
    let grace = call.json::<bodies::Cancel>()?.grace;
    let read = |text: &str| text::duration_within(text, Duration::ZERO, GRACE_MAX);
    let grace = grace.as_deref().map(read).transpose();
    let grace = grace.map_err(|error| ApiProblem::invalid(format!("`grace`: {error}")))?;
    let launch = ids::launch(&mut call.read().await?, &id, call.namespace()).await?;
    let run = id.number.map(|number| RunId::of(launch, number));
    change!(call, StatusCode::OK, |tx, now| {
        let cancelled = launch_admin::cancel(tx, (launch, run), grace, call.by(), now).await?;
        (CancelReport::new(launch, cancelled), None)
    })
}

pub(crate) async fn retry(call: Call) -> Result {
    let id = call.id::<ShortId>("id")?;
    let Nothing {} = call.json()?;
    let launch = ids::launch(&mut call.read().await?, &id, call.namespace()).await?;
    change!(call, StatusCode::OK, |tx, now| {
        let (retried, slot, schedule) = launch_admin::retry(tx, launch, call.by(), now).await?;
        (TriggerReport::new(schedule, slot, retried), None)
    })
}

/// Decide about a version of a package by a function of `approval`, and answer with the word of the decision.
macro_rules! decide {
    ($call:ident, $decide:path, $done:literal) => {{
        let bodies::DecisionRequest { digest, note } = $call.json()?;
        let name = $call.name("name");
        change!($call, StatusCode::OK, |tx, now| {
            let by = Attribution {
                by: $call.by(),
                note: note.as_deref(),
                key: $call.state.app.engine.approval_key(),
            };
            let decided = $decide(tx, name, digest.as_deref(), by, now).await?;
            (DecisionReport::new(name.to_owned(), $done, decided), None)
        })
    }};
}

pub(crate) async fn approve(call: Call) -> Result {
    decide!(call, approval::approve, "approved")
}

pub(crate) async fn reject(call: Call) -> Result {
    decide!(call, approval::reject, "rejected")
}

pub(crate) async fn roll_back(call: Call) -> Result {
    decide!(call, approval::roll_back, "rolled_back")
}

/// Read the request for a backfill. Its context is in the body.
fn asked<'a>(
    call: &'a Call,
    body: &'a bodies::Backfill,
    id: BackfillId,
) -> Result<BackfillRequest<'a>> {
    let spread = body
        .spread
        .as_deref()
        .map(|text| text::duration_within(text, SPREAD.0, SPREAD.1));
    let spread = spread
        .transpose()
        .map_err(|error| ApiProblem::invalid(format!("`spread`: {error}")))?;
    Ok(BackfillRequest {
        id,
        from: body.from,
        to: body.to,
        spread: spread.unwrap_or_default(),
        forced: body.force,
        context: body.context.as_ref(),
        by: call.by(),
    })
}

pub(crate) async fn preview_backfill(call: Call) -> Result {
    let body = call.json::<bodies::Backfill>()?;
    call.refuse_other(&body.schedule)?;
    let now = call.now();
    let id = body.id.unwrap_or_else(|| BackfillId::new(now));
    let asked = asked(&call, &body, id)?;
    let preview = backfill::preview(&mut call.read().await?, &body.schedule, &asked, now).await?;
    Reply::json(&SurveyReport {
        schedule: body.schedule,
        survey: preview.survey,
    })
}

pub(crate) async fn begin_backfill(call: Call) -> Result {
    let body = call.json::<bodies::Backfill>()?;
    call.refuse_other(&body.schedule)?;
    let now = call.now();
    let id = body.id.unwrap_or_else(|| BackfillId::new(now));
    let (name, asked) = (body.schedule.as_str(), asked(&call, &body, id)?);
    // Counting the slots takes long, so it is not done in the write transaction.
    let preview = backfill::preview(&mut call.read().await?, name, &asked, now).await?;
    let survey = &preview.survey;
    if survey.slots > SLOTS_UNCONFIRMED_MAX && !body.yes {
        let message = format!(
            "`{name}` has {} slots from {} to {}, more than {SLOTS_UNCONFIRMED_MAX}",
            survey.slots, survey.first, survey.last
        );
        let problem = Problem::new(ErrorCode::Refused, message);
        return Err(problem
            .hint("choose a shorter span, or confirm with `\"yes\": true`")
            .into());
    }
    change!(call, StatusCode::CREATED, |tx, now| {
        let begun = match backfill::find_earlier(tx, name, &asked).await? {
            Some(before) => before,
            None => backfill::begin(tx, &preview, &asked, now).await?,
        };
        (BackfillRecord::read(tx, begun.id).await?, None)
    })
}
