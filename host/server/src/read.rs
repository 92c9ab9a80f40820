//! The routes that only read. Each answer is what the command of the same name prints with `--json`.

use campanile_control::statistics;
use std::time::Duration;

use campanile_control::calendar::Calendar;
use campanile_control::forecast::report::PlanReport;
use campanile_control::forecast::{ForecastRequest, Outage, PreparedForecast};
use campanile_control::records::backfill::BackfillRecord;
use campanile_control::records::ids;
use campanile_control::records::launch::{self, LaunchDetail, refuse_unknown_schedule};
use campanile_control::records::package::{self, PackageDetail, PackageRecord};
use campanile_control::records::package_diff::DiffReport;
use campanile_control::records::run::{Part, RunDetail, TaskLogs};
use campanile_control::records::schedule::{self, ScheduleDetail, ScheduleRecord};
use campanile_control::records::top::TopReport;
use campanile_control::schedule_admin::{self, ScheduleDefinition};
use campanile_control::use_statistics::{DayStatistics, day_statistics, package_statistics};
use campanile_control::why::{self, When};
use campanile_control::{definition, host_admin};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, EventId, LaunchKind, ShortId};
use campanile_model::namespace::Namespace;
use campanile_model::text;
use campanile_store::launch_list::{Filter, Page};
use campanile_store::launches::{LOOKED_AT_MAX, LaunchRow};
use campanile_store::schedules::{self, Schedule};
use campanile_store::task_runs::CallPlace;
use campanile_store::{LaunchStatus, Tx, events, packages, runs};

use crate::bodies;
use crate::call::{Call, Reply, Result};
use crate::control::check_definition;
use crate::problem::ApiProblem;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The longest forecast.
const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The most decisions of a forecast.
const DECISIONS_MAX: usize = 10_000;
/// The most next slots of one request.
const SLOTS_MAX: usize = 1_000;
/// The events of which one statement looks for those of a namespace.
const EVENTS_WINDOW: i64 = 500;
/// The most events that are looked at for one page of those of a namespace. The next page continues after the last one.
const EVENTS_LOOKED_AT_MAX: i64 = 10_000;
/// How far statistics may look back.
const SINCE_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);

/// Return the key of the last entry of a full page.
pub(crate) fn last<R>(rows: &[R], limit: i64, key: impl Fn(&R) -> String) -> Option<String> {
    let is_full = rows.len() as i64 >= limit;
    rows.last().filter(|_| is_full).map(key)
}

pub(crate) async fn schedules(call: Call) -> Result {
    let limit = call.query.limit()?;
    let page = schedules_of(&call, &mut call.read().await?, limit).await?;
    let next = page.next(limit);
    let records = Vec::from_iter(page.rows.into_iter().map(ScheduleRecord::new));
    Reply::page(&call, &records, next)
}

/// About how many bytes of contexts and arguments fit on a page of schedules. A single schedule may exceed this.
const SCHEDULES_BYTES: usize = 4 << 20;
/// How many schedules to read with a page's first statement, and the factor by which each following one reads more. Starting small matters,
/// as a context may take 1 MiB.
const SCHEDULES_FIRST: i64 = 16;
const SCHEDULES_GROWTH: i64 = 4;

/// A page of schedules, and whether large ones ended it early.
struct SchedulesPage {
    rows: Vec<Schedule>,
    is_cut: bool,
}

impl SchedulesPage {
    /// Returns the next page's key.
    fn next(&self, limit: i64) -> Option<String> {
        let limit = if self.is_cut { 0 } else { limit };
        last(&self.rows, limit, |row| row.definition.name.clone())
    }
}

/// Returns up to `limit` schedules visible to the principal, sorted by name, starting where the query says.
async fn schedules_of(call: &Call, tx: &mut Tx, limit: i64) -> Result<SchedulesPage> {
    let pattern = call.namespace().map(like);
    let mut after = call.query.text("after").map(str::to_owned);
    let (mut rows, mut bytes, mut size) = (Vec::new(), 0, SCHEDULES_FIRST);
    loop {
        let wanted = size.min(limit - rows.len() as i64);
        let found = match &pattern {
            Some(pattern) => schedules::list_like(tx, pattern, after.as_deref(), wanted).await?,
            None => schedules::list(tx, after.as_deref(), wanted).await?,
        };
        let is_last = (found.len() as i64) < wanted;
        for row in found {
            bytes += bytes_of(&row);
            if bytes > SCHEDULES_BYTES && !rows.is_empty() {
                return Ok(SchedulesPage { rows, is_cut: true });
            }
            rows.push(row);
        }
        if is_last || rows.len() as i64 >= limit {
            return Ok(SchedulesPage {
                rows,
                is_cut: false,
            });
        }
        after = rows.last().map(|row| row.definition.name.clone());
        size *= SCHEDULES_GROWTH;
    }
}

fn bytes_of(schedule: &Schedule) -> usize {
    let definition = &schedule.definition;
    definition.context.len() + definition.args.as_ref().map_or(0, String::len)
}

/// Return the pattern of the names of a namespace. No namespace has a character with a meaning in patterns.
fn like(namespace: &Namespace) -> String {
    format!("{}%", namespace.prefix())
}

pub(crate) async fn schedule(call: Call) -> Result {
    let late = &call.state.app.settings.late;
    let mut tx = call.read().await?;
    let detail = ScheduleDetail::read(&mut tx, call.name("name"), late, call.now()).await?;
    let revision = detail.schedule.schedule.row.state.revision;
    Ok(Reply::json(&detail)?.revision(revision))
}

pub(crate) async fn next(call: Call) -> Result {
    let read = |text: &str| match text.parse() {
        Ok(n) if (1..=SLOTS_MAX).contains(&n) => Ok(n),
        _ => Err(format!("must be a number from 1 to {SLOTS_MAX}")),
    };
    let n = call.query.read_with("n", read)?.unwrap_or(5);
    let after = call.query.parsed::<Timestamp>("after")?;
    let row = schedule_admin::find(&mut call.read().await?, call.name("name")).await?;
    let rule = schedule::rule(&row)?;
    let policies = definition::policies(&row.definition).unwrap_or_default();
    let skips = schedule::skips(&row);
    let slots = schedule::slots(&row, &rule, &policies, after, call.now());
    let slots = slots.filter(|slot| !skips.contains(slot));
    Reply::json(&slots.take(n).collect::<Vec<_>>())
}

pub(crate) async fn why(call: Call) -> Result {
    let when = call.query.text("at").map(str::parse::<When>).transpose();
    let when =
        when.map_err(|error| ApiProblem::invalid(format!("`at`: {error}")).hint(error.hint()))?;
    let mut tx = call.read().await?;
    Reply::json(&why::why(&mut tx, call.name("name"), when, call.now()).await?)
}

pub(crate) async fn launches(call: Call) -> Result {
    let (rows, next) = listed_launches(&call, LOOKED_AT_MAX).await?;
    Reply::page(&call, &rows, next)
}

/// Return the launches that the query asks for, and the key after which the next page begins. At most about `looked_at_max`
/// launches are looked at.
pub(crate) async fn listed_launches(
    call: &Call,
    looked_at_max: i64,
) -> Result<(Vec<LaunchRow>, Option<String>)> {
    let query = &call.query;
    let (now, limit) = (call.now(), query.limit()?);
    let statuses = query.read_with("status", |text| {
        text.split(',')
            .map(LaunchStatus::read)
            .collect::<Result<Vec<_>, _>>()
    })?;
    let statuses = statuses.unwrap_or_default();
    let filter = Filter {
        schedule: query.text("schedule"),
        statuses: &statuses,
        kind: query.read_with("kind", LaunchKind::read)?,
        reason: query.text("reason"),
        package: query.text("package"),
        namespace: call.namespace(),
        since: query.moment("since", now)?,
        until: query.moment("until", now)?,
    };
    let after = query.parsed::<ShortId>("after")?;
    let mut tx = call.read().await?;
    let Page {
        rows,
        continues_after,
    } = launch::list(&mut tx, &filter, after.as_ref(), limit, looked_at_max).await?;
    let next = last(&rows, limit, |row| row.id.to_string());
    let next = next.or(continues_after.map(|id| id.to_string()));
    Ok((rows, next))
}

pub(crate) async fn launch(call: Call) -> Result {
    let id = call.id::<ShortId>("id")?;
    Reply::json(&LaunchDetail::read(&mut call.read().await?, &id, call.namespace()).await?)
}

pub(crate) async fn runs(call: Call) -> Result {
    let (query, limit) = (&call.query, call.query.limit()?);
    let after = query.parsed::<ShortId>("after")?;
    let mut tx = call.read().await?;
    let after = match after {
        Some(after) => Some(ids::list_position(&mut tx, &after, call.namespace()).await?),
        None => None,
    };
    let rows = match call.text_in_namespace("schedule")? {
        Some(name) => {
            let rows = runs::list_of(&mut tx, name, after, limit).await?;
            if rows.is_empty() {
                refuse_unknown_schedule(&mut tx, name).await?;
            }
            rows
        }
        None => runs::list(&mut tx, after, limit).await?,
    };
    Reply::page(&call, &rows, last(&rows, limit, |row| row.id.to_string()))
}

pub(crate) async fn run(call: Call) -> Result {
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let run = ids::run(&mut tx, &id, call.namespace()).await?;
    let Part { part, next } = RunDetail::read(&mut tx, run, &after(&call)?).await?;
    Reply::page(&call, &part, next.map(|place| place.to_string()))
}

/// Return what the tasks of a run logged and printed. The route chooses between this and the stream.
pub(crate) async fn logs(call: Call) -> Result {
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let run = ids::run(&mut tx, &id, call.namespace()).await?;
    let Part { part, next } = TaskLogs::read(&mut tx, run.id, &after(&call)?).await?;
    Reply::page(&call, &part, next.map(|place| place.to_string()))
}

/// Returns which of a run's calls the query wants to continue after.
fn after(call: &Call) -> Result<CallPlace> {
    let after = call.query.parsed("after")?;
    Ok(after.unwrap_or_else(CallPlace::first))
}

pub(crate) async fn backfills(call: Call) -> Result {
    let limit = call.query.limit()?;
    let after = call.query.parsed::<BackfillId>("after")?;
    let like = call.namespace().map(like);
    let records =
        BackfillRecord::list(&mut call.read().await?, like.as_deref(), after, limit).await?;
    Reply::page(
        &call,
        &records,
        last(&records, limit, |record| record.row.id.to_string()),
    )
}

pub(crate) async fn backfill(call: Call) -> Result {
    let id = call.id::<BackfillId>("id")?;
    Reply::json(&BackfillRecord::read(&mut call.read().await?, id).await?)
}

pub(crate) async fn packages(call: Call) -> Result {
    let (limit, after) = (call.query.limit()?, call.query.text("after"));
    let like = call.namespace().map(like);
    let rows = packages::list(&mut call.read().await?, like.as_deref(), after, limit).await?;
    let next = last(&rows, limit, |row| row.name.clone());
    let records = Vec::from_iter(rows.into_iter().map(PackageRecord::from));
    Reply::page(&call, &records, next)
}

pub(crate) async fn package(call: Call) -> Result {
    let mut tx = call.read().await?;
    let row = package::find(&mut tx, call.name("name")).await?;
    Reply::json(&PackageDetail::read(&mut tx, row).await?)
}

pub(crate) async fn package_diff(call: Call) -> Result {
    Reply::json(&diff_of(&call).await?)
}

/// Return the comparison of two versions that the query asks for.
pub(crate) async fn diff_of(call: &Call) -> Result<DiffReport> {
    let (from, to) = (call.query.text("from"), call.query.text("to"));
    Ok(DiffReport::read(&mut call.read().await?, call.name("name"), from, to).await?)
}

pub(crate) async fn top(call: Call) -> Result {
    Reply::json(&TopReport::read(&mut call.read().await?, call.now()).await?)
}

pub(crate) async fn hosts(call: Call) -> Result {
    let all = call.query.is_set("all")?;
    Reply::json(&host_admin::list(&mut call.read().await?, all, call.now()).await?)
}

pub(crate) async fn events(call: Call) -> Result {
    let limit = call.query.limit()?;
    let after = call.query.parsed::<EventId>("after")?;
    let Some(namespace) = call.namespace() else {
        let rows = events::list(&mut call.read().await?, after, limit).await?;
        return Reply::page(&call, &rows, last(&rows, limit, |row| row.id.to_string()));
    };
    let mut tx = call.read().await?;
    let (mut rows, mut before, mut looked_at) = (Vec::new(), after, 0);
    let next = loop {
        let window = events::list(&mut tx, before, EVENTS_WINDOW).await?;
        let is_last = (window.len() as i64) < EVENTS_WINDOW;
        looked_at += EVENTS_WINDOW;
        before = window.last().map(|event| event.id);
        let own = window.into_iter();
        rows.extend(own.filter(|event| namespace.contains(&event.subject)));
        if rows.len() as i64 >= limit {
            rows.truncate(usize::try_from(limit).unwrap_or_default());
            break rows.last().map(|event| event.id);
        }
        if is_last || looked_at >= EVENTS_LOOKED_AT_MAX {
            break before.filter(|_| !is_last);
        }
    };
    Reply::page(&call, &rows, next.map(|id| id.to_string()))
}

/// Return how far statistics look back.
fn since(call: &Call) -> Result<Duration> {
    let read = |text: &str| text::duration_within(text, Duration::ZERO, SINCE_MAX);
    Ok(call.query.read_with("since", read)?.unwrap_or(DAY))
}

pub(crate) async fn stats(call: Call) -> Result {
    let since = since(&call)?;
    Reply::json(&statistics::read(&mut call.read().await?, call.now(), since).await?)
}

pub(crate) async fn schedule_stats(call: Call) -> Result {
    let (since, limit) = (since(&call)?, call.query.limit()?);
    let mut tx = call.read().await?;
    let page = schedules_of(&call, &mut tx, limit).await?;
    let rows = statistics::of_schedules(&mut tx, &page.rows, call.now(), since).await?;
    Reply::page(&call, &rows, page.next(limit))
}

pub(crate) async fn package_stats(call: Call) -> Result {
    let (since, limit) = (since(&call)?, call.query.limit()?);
    let (mut tx, after) = (call.read().await?, call.query.text("after"));
    let (now, namespace) = (call.now(), call.namespace());
    let rows = package_statistics(&mut tx, now, since, namespace, after, limit).await?;
    Reply::page(&call, &rows, last(&rows, limit, |row| row.package.clone()))
}

pub(crate) async fn day_stats(call: Call) -> Result {
    let (since, limit) = (since(&call)?, call.query.limit()?);
    let (mut tx, after) = (call.read().await?, call.query.text("after"));
    let (now, namespace) = (call.now(), call.namespace());
    let rows = day_statistics(&mut tx, now, since, namespace, after, limit).await?;
    Reply::page(&call, &rows, last(&rows, limit, DayStatistics::key))
}

pub(crate) async fn stats_of_schedule(call: Call) -> Result {
    let since = since(&call)?;
    let mut tx = call.read().await?;
    let schedule = schedule_admin::find(&mut tx, call.name("name")).await?;
    let mut rows = statistics::of_schedules(&mut tx, &[schedule], call.now(), since).await?;
    match rows.pop() {
        Some(row) => Reply::json(&row),
        None => Err(ApiProblem::unavailable(
            "the schedule was removed meanwhile",
        )),
    }
}

pub(crate) async fn calendar(call: Call) -> Result {
    Reply::json(&calendar_of(&call).await?)
}

/// Return the calendar that the query asks for.
pub(crate) async fn calendar_of(call: &Call) -> Result<Calendar> {
    let read = |text: &str| {
        let year = text.parse::<i64>();
        year.map_err(|_| "must be a year such as 2026")
    };
    let year = call.query.read_with("year", read)?;
    let mut tx = call.read().await?;
    let row = schedule_admin::find(&mut tx, call.name("name")).await?;
    Ok(Calendar::read(&mut tx, &row, year, call.now()).await?)
}

pub(crate) async fn plan(call: Call) -> Result {
    Reply::json(&forecast(&call, None).await?)
}

pub(crate) async fn plan_diff(call: Call) -> Result {
    let file = call.json::<bodies::SchedulesFile>()?;
    let wanted = file.schedules.into_iter().map(ScheduleDefinition::from);
    let wanted = Vec::from_iter(wanted);
    for wanted in &wanted {
        check_definition(&call, wanted)?;
    }
    Reply::json(&forecast(&call, Some(&wanted)).await?)
}

/// Return the forecast that the query asks for, with the definitions `wanted` of a schedules file if there is one.
pub(crate) async fn forecast(
    call: &Call,
    wanted: Option<&[ScheduleDefinition]>,
) -> Result<PlanReport> {
    let now = call.now();
    let request = forecast_request(call, now)?;
    let settings = &call.state.app.settings;
    let name = call.query.text("schedule");
    let prepared = PreparedForecast::read(&call.db, settings, request, name, wanted, now).await?;
    // It is all computation.
    let report = tokio::task::spawn_blocking(move || prepared.report()).await;
    report.map_err(|_| ApiProblem::unavailable("the forecast was stopped"))
}

/// Return the beginning of the forecast of the next day, and when it ends earlier, the time at which more schedules have
/// slots.
pub(crate) async fn beginning_of_forecast(call: &Call) -> Result<(PlanReport, Option<Timestamp>)> {
    let now = call.now();
    let request = forecast_request(call, now)?;
    let settings = &call.state.app.settings;
    let (prepared, cut_at) =
        PreparedForecast::read_beginning(&call.db, settings, request, now).await?;
    let report = tokio::task::spawn_blocking(move || prepared.report()).await;
    let report = report.map_err(|_| ApiProblem::unavailable("the forecast was stopped"))?;
    Ok((report, cut_at))
}

/// Read what to forecast.
fn forecast_request(call: &Call, now: Timestamp) -> Result<ForecastRequest> {
    let query = &call.query;
    let outages: Vec<Outage> = query.all("outage").map(outage).collect::<Result<_>>()?;
    let from = query.parsed("from")?.unwrap_or(now);
    let back_at = outages.iter().map(|outage| outage.to).max();
    let to = query.parsed("to")?;
    let to = to.unwrap_or_else(|| from.max(back_at.unwrap_or(from)).plus(DAY));
    if from < now {
        return Err(ApiProblem::invalid(format!(
            "`from`: {from} is in the past; leave it out to start now"
        )));
    }
    if to <= from {
        return Err(ApiProblem::invalid(format!(
            "`to`: {to} is not after {from}; give a later time"
        )));
    }
    if to > now.plus(AHEAD_MAX) {
        return Err(ApiProblem::invalid(format!(
            "`to`: {to} is more than a year ahead; give an earlier time"
        )));
    }
    if let Some(wrong) = outages
        .iter()
        .find(|outage| outage.to < from || outage.to >= to || outage.to <= now)
    {
        return Err(ApiProblem::invalid(format!(
            "`outage`: it ends at {}, but the forecast is from {from} to {to}; give one that ends within the forecast",
            wrong.to
        )));
    }
    let read = |text: &str| match text.parse() {
        Ok(count) if (1..=DECISIONS_MAX).contains(&count) => Ok(count),
        _ => Err(format!("must be a number from 1 to {DECISIONS_MAX}")),
    };
    let rows_max = query.read_with("decisions", read)?;
    let rows_max = rows_max.unwrap_or(DECISIONS_MAX);
    Ok(ForecastRequest {
        from,
        to,
        outages,
        rows_max,
    })
}

/// Parse an outage such as `2026-11-22T02:00:00Z..2026-11-22T05:00:00Z`.
fn outage(text: &str) -> Result<Outage> {
    let times = text.split_once("..");
    let times = times.and_then(|(from, to)| Some((from.parse().ok()?, to.parse().ok()?)));
    match times {
        Some((from, to)) if from < to => Ok(Outage { from, to }),
        _ => Err(ApiProblem::invalid(
            "`outage` must be two times with `..` between them, the earlier one first, such as 2026-11-22T02:00:00Z..2026-11-22T05:00:00Z",
        )),
    }
}
