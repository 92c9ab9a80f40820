//! Routes that only read.

use crate::call::{Call, Reply, Result};
use crate::problem::ApiProblem;
use campanile_control::orders::files::SchedulesFile;
use campanile_control::question::Question;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::forecast::{GetPlan, PreparedForecast};
use campanile_model::clock::Timestamp;
use campanile_package::ScheduleDefinition;

/// Answers a question.
pub(crate) async fn question<Q: Question>(call: Call) -> Result {
    let page = call.ask::<Q>().await?;
    let reply = Reply::page(&call, &page.answer, page.next)?;
    Ok(match Q::revision(&page.answer) {
        Some(revision) => reply.revision(revision),
        None => reply,
    })
}

pub(crate) async fn plan(call: Call) -> Result {
    Reply::json(&forecast(&call, None).await?)
}

pub(crate) async fn plan_diff(call: Call) -> Result {
    let file = call.json::<SchedulesFile>()?;
    let wanted = file.schedules.into_iter().map(ScheduleDefinition::from);
    let wanted = Vec::from_iter(wanted);
    let desk = call.desk();
    for wanted in &wanted {
        desk.check_group(&wanted.policies)?;
    }
    Reply::json(&forecast(&call, Some(&wanted)).await?)
}

/// Returns the forecast that the query asks for, with the definitions `wanted` of a schedules file if there is one.
pub(crate) async fn forecast(
    call: &Call,
    wanted: Option<&[ScheduleDefinition]>,
) -> Result<PlanReport> {
    let now = call.now();
    let plan = call.query.question::<GetPlan>()?;
    let request = plan.request(now)?;
    let settings = &call.state.app.settings;
    let name = plan.schedule.as_deref();
    let prepared = PreparedForecast::read(&call.db, settings, request, name, wanted, now).await?;
    // It is all computation.
    let report = tokio::task::spawn_blocking(move || prepared.report()).await;
    report.map_err(|_| ApiProblem::unavailable("the forecast was stopped"))
}

/// Returns the beginning of the forecast of the next day, and when it ends earlier, the time at which more schedules have
/// slots.
pub(crate) async fn beginning_of_forecast(call: &Call) -> Result<(PlanReport, Option<Timestamp>)> {
    let now = call.now();
    let plan = call.query.question::<GetPlan>()?;
    let request = plan.request(now)?;
    let settings = &call.state.app.settings;
    let (prepared, cut_at) =
        PreparedForecast::read_beginning(&call.db, settings, request, now).await?;
    let report = tokio::task::spawn_blocking(move || prepared.report()).await;
    let report = report.map_err(|_| ApiProblem::unavailable("the forecast was stopped"))?;
    Ok((report, cut_at))
}
