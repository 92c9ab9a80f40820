//! The answers to calls. Each reads or changes what the command of the same meaning does, by the same functions.

use std::fmt::Display;
use std::time::Duration;

use serde::de::DeserializeOwned;

use super::JsonObject;
use crate::Common;
use crate::commands::{plan, run, serve, stats};
use crate::output::{Failure, Result, refused};
use crate::times::{moment, time};
use campanile_control::orders::schedules as orders;
use campanile_control::records::ids;
use campanile_control::records::launch::{self, LaunchDetail};
use campanile_control::records::run::{Part, RunDetail, TaskLogs};
use campanile_control::records::schedule::{ScheduleDetail, ScheduleRecord};
use campanile_control::why::{self, When};
use campanile_model::ids::{EventId, ShortId};
use campanile_model::text::duration_within;
use campanile_server::mcp::tools::{self, limit};
use campanile_server::mcp::{self, Answer, LogTail, Tool};
use campanile_store::events;
use campanile_store::launch_list::Filter;
use campanile_store::launches::LOOKED_AT_MAX;
use campanile_store::schedules;
use campanile_store::task_runs::CallPlace;

/// The longest grace of a launch that is cancelled.
const GRACE_MAX: Duration = Duration::from_hours(24 * 366);

/// Run a tool. `by` names the client.
pub(super) async fn answer(
    common: &Common,
    tool: Tool,
    arguments: JsonObject,
    by: &str,
) -> Result<Answer> {
    mcp::check(&arguments).map_err(Failure::refused)?;
    match tool {
        Tool::Why => why(common, read(tool, arguments)?).await,
        Tool::ListSchedules => list_schedules(common, read(tool, arguments)?).await,
        Tool::ShowSchedule => show_schedule(common, read(tool, arguments)?).await,
        Tool::ListLaunches => list_launches(common, read(tool, arguments)?).await,
        Tool::ShowLaunch => show_launch(common, read(tool, arguments)?).await,
        Tool::ShowRun => show_run(common, read(tool, arguments)?).await,
        Tool::RunLogs => run_logs(common, read(tool, arguments)?).await,
        Tool::Plan => plan(common, read(tool, arguments)?).await,
        Tool::ListEvents => list_events(common, read(tool, arguments)?).await,
        Tool::Health => {
            let tools::Nothing {} = read(tool, arguments)?;
            Ok(Answer::new(&stats::read_health(common).await?)?)
        }
        Tool::TriggerSchedule => trigger(common, read(tool, arguments)?, by).await,
        Tool::PauseSchedule => pause(common, read(tool, arguments)?, by).await,
        Tool::ResumeSchedule => resume(common, read(tool, arguments)?, by).await,
        Tool::CancelLaunch => cancel(common, read(tool, arguments)?, by).await,
    }
}

/// Read the arguments of a call.
fn read<T: DeserializeOwned>(tool: Tool, arguments: JsonObject) -> Result<T> {
    Ok(tool.read_arguments(arguments)?)
}

/// Parse an argument that may be missing. The error names it.
fn parsed<T, E: Display>(
    name: &str,
    text: Option<&str>,
    parse: impl FnOnce(&str) -> Result<T, E>,
) -> Result<Option<T>> {
    let parsed = text.map(parse).transpose();
    parsed.map_err(|error| refused!("`{name}`: {error}"))
}

/// Parse the id of a launch or of a run.
fn id(text: &str) -> Result<ShortId> {
    text.parse()
        .map_err(|error| refused!("`id`: {error}").hint("`list_launches` shows the ids"))
}

async fn why(common: &Common, arguments: tools::Why) -> Result<Answer> {
    let when = arguments.at.as_deref().map(str::parse::<When>).transpose();
    let when = when.map_err(|error| refused!("`at`: {error}").hint(error.hint()))?;
    let (mut tx, now) = common.read_with_time().await?;
    Ok(Answer::new(
        &why::why(&mut tx, &arguments.schedule, when, now).await?,
    )?)
}

async fn list_schedules(common: &Common, arguments: tools::ListSchedules) -> Result<Answer> {
    let limit = limit(arguments.limit).map_err(Failure::refused)?;
    let mut tx = common.read().await?;
    let rows = schedules::list(&mut tx, arguments.after.as_deref(), limit).await?;
    let records = Vec::from_iter(rows.into_iter().map(ScheduleRecord::new));
    Ok(Answer::page(&records, limit, |record| {
        record.name().to_owned()
    })?)
}

async fn show_schedule(common: &Common, arguments: tools::OneSchedule) -> Result<Answer> {
    let late = serve::settings(&common.config()?).late;
    let (mut tx, now) = common.read_with_time().await?;
    Ok(Answer::new(
        &ScheduleDetail::read(&mut tx, &arguments.schedule, &late, now).await?,
    )?)
}

async fn list_launches(common: &Common, arguments: tools::ListLaunches) -> Result<Answer> {
    let limit = limit(arguments.limit).map_err(Failure::refused)?;
    let since = parsed("since", arguments.since.as_deref(), moment)?;
    let until = parsed("until", arguments.until.as_deref(), moment)?;
    let after = parsed("after", arguments.after.as_deref(), str::parse::<ShortId>)?;
    let (mut tx, now) = common.read_with_time().await?;
    let filter = Filter {
        schedule: arguments.schedule.as_deref(),
        statuses: &arguments.status,
        kind: arguments.kind,
        reason: arguments.reason.as_deref(),
        package: arguments.package.as_deref(),
        namespace: None,
        since: since.map(|since| since.at(now)),
        until: until.map(|until| until.at(now)),
    };
    let page = launch::list(&mut tx, &filter, after.as_ref(), limit, LOOKED_AT_MAX).await?;
    let searched = page.continues_after;
    let searched = searched.map(|last| mcp::searched_note(page.rows.len(), &last));
    Ok(Answer::page(&page.rows, limit, |row| row.id)?.note(searched))
}

async fn show_launch(common: &Common, arguments: tools::ShowLaunch) -> Result<Answer> {
    let id = id(&arguments.id)?;
    Ok(Answer::new(
        &LaunchDetail::read(&mut common.read().await?, &id, None).await?,
    )?)
}

async fn show_run(common: &Common, arguments: tools::ShowRun) -> Result<Answer> {
    let (page, removed) = page_of_run(common, &arguments.id, arguments.after.as_deref()).await?;
    Ok(Answer::run(page.part, page.next, removed)?)
}

/// Reads a page of a run's calls, and the note saying that retention removed them.
async fn page_of_run(
    common: &Common,
    given: &str,
    after: Option<&str>,
) -> Result<(Part<RunDetail>, Option<String>)> {
    let (id, after) = (id(given)?, tools::place(after).map_err(Failure::refused)?);
    let mut tx = common.read().await?;
    let run = ids::run(&mut tx, &id, None).await?;
    let removed = run::removed_calls_note(common, &run)?;
    let after = after.unwrap_or_else(CallPlace::first);
    Ok((RunDetail::read(&mut tx, run, &after).await?, removed))
}

async fn run_logs(common: &Common, arguments: tools::RunLogs) -> Result<Answer> {
    if let Some(after) = &arguments.after {
        let (page, removed) = page_of_run(common, &arguments.id, Some(after)).await?;
        return Ok(Answer::logs_after(
            page.part, page.next, &arguments, removed,
        )?);
    }
    let id = id(&arguments.id)?;
    let mut tail = LogTail::new(&arguments)?;
    let mut tx = common.read().await?;
    let run = ids::run(&mut tx, &id, None).await?;
    let mut after = Some(CallPlace::first());
    while let Some(place) = after {
        let page = TaskLogs::read(&mut tx, run.id, &place).await?;
        tail.add(page.part);
        after = page.next;
    }
    let removed = match tail.is_empty() {
        true => run::removed_calls_note(common, &run)?,
        false => None,
    };
    Ok(Answer::logs(tail, &arguments, removed)?)
}

async fn plan(common: &Common, arguments: tools::Plan) -> Result<Answer> {
    let outages = arguments.outages.iter();
    let outages =
        outages.map(|text| plan::outage(text).map_err(|error| refused!("`outages`: {error}")));
    let asked = plan::Plan {
        from: parsed("from", arguments.from.as_deref(), time)?,
        to: parsed("to", arguments.to.as_deref(), time)?,
        schedule: arguments.schedule,
        outage: outages.collect::<Result<_>>()?,
        diff: None,
        rows: true,
    };
    Ok(Answer::new(
        &asked.forecast(common, tools::DECISIONS_MAX).await?,
    )?)
}

async fn list_events(common: &Common, arguments: tools::ListEvents) -> Result<Answer> {
    let limit = limit(arguments.limit).map_err(Failure::refused)?;
    let after = parsed("after", arguments.after.as_deref(), str::parse::<EventId>)?;
    let rows = events::list(&mut common.read().await?, after, limit).await?;
    Ok(Answer::page(&rows, limit, |row| row.id)?)
}

async fn trigger(common: &Common, arguments: tools::OneSchedule, by: &str) -> Result<Answer> {
    // An operator triggers a schedule as it is defined.
    let as_defined = orders::Trigger::default();
    let report = common.order(&arguments.schedule, &as_defined, by).await?;
    let note = mcp::trigger_note(&report);
    Ok(Answer::new(&report)?.note(note))
}

async fn pause(common: &Common, arguments: tools::PauseSchedule, by: &str) -> Result<Answer> {
    let order = orders::Pause {
        note: arguments.note,
        until: parsed("until", arguments.until.as_deref(), time)?,
    };
    let report = common.order(&arguments.schedule, &order, by).await?;
    Ok(Answer::new(&report)?)
}

async fn resume(common: &Common, arguments: tools::ResumeSchedule, by: &str) -> Result<Answer> {
    let tools::ResumeSchedule { schedule, catch_up } = arguments;
    let order = orders::Resume { catch_up };
    Ok(Answer::new(&common.order(&schedule, &order, by).await?)?)
}

async fn cancel(common: &Common, arguments: tools::CancelLaunch, by: &str) -> Result<Answer> {
    let id = id(&arguments.id)?;
    let span = |text: &str| duration_within(text, Duration::ZERO, GRACE_MAX);
    let grace = parsed("grace", arguments.grace.as_deref(), span)?;
    Ok(Answer::new(
        &run::request_cancel(common, &id, grace, by).await?,
    )?)
}
