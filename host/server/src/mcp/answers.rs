//! Answering calls from questions, orders and reports, the same for all backends.

use std::future::Future;
use std::time::Duration;

use rmcp::model::JsonObject;
use serde::Serialize;
use serde_json::Value;

use super::answer::{Answer, LogTail, next_page_note, searched_note, trigger_note};
use super::bounds;
use super::tools::{self, RunLogs, Tool};
use campanile_control::order::Order;
use campanile_control::orders::Nothing;
use campanile_control::orders::launches::Cancel;
use campanile_control::orders::schedules::{Pause, Resume, Trigger};
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::question::{Page, Paged, Question};
use campanile_control::questions::launches::{GetLaunch, GetLogs, GetRun, ListLaunches};
use campanile_control::questions::record::ListEvents;
use campanile_control::questions::schedules::{GetSchedule, ListSchedules, Why};
use campanile_control::records::run::{RunDetail, removed_calls_note};
use campanile_control::reports::forecast::GetPlan;
use campanile_control::reports::forecast::report::PlanReport;
use campanile_control::reports::health::Health;
use campanile_model::clock::Timestamp;
use campanile_store::task_runs::CallPlace;

/// What answers questions and takes orders.
pub trait Installation: Send + Sync {
    /// Asks a question, getting one page of the answer. `of` is the value of the path's parameter.
    fn ask<Q: Question>(
        &self,
        of: &str,
        question: Q,
    ) -> impl Future<Output = Result<Page<Q::Answer>, Problem>> + Send;

    /// Runs an order. `by` is what the client calls itself.
    fn order<O: Order>(
        &self,
        of: &str,
        order: O,
        by: &str,
    ) -> impl Future<Output = Result<O::Output, Problem>> + Send;

    fn plan(&self, plan: GetPlan) -> impl Future<Output = Result<PlanReport, Problem>> + Send;

    fn health(&self) -> impl Future<Output = Result<Health, Problem>> + Send;

    /// Returns how long retention keeps the calls of runs, if not forever.
    fn calls_kept(&self) -> Option<Duration>;

    fn now(&self) -> Timestamp;
}

/// One call.
struct Call<'c, I> {
    installation: &'c I,
    tool: Tool,
    /// The schedule, launch or run it's about.
    of: String,
    /// The other arguments.
    arguments: JsonObject,
    by: &'c str,
}

/// Answers a call. `by` is what the client calls itself.
///
/// # Errors
///
/// Fails for wrong arguments, and if the question or order does.
pub async fn answer<I: Installation>(
    installation: &I,
    tool: Tool,
    mut arguments: JsonObject,
    by: &str,
) -> Result<Answer, Problem> {
    bounds::check(&arguments).map_err(|why| Problem::new(ErrorCode::InvalidArgument, why))?;
    let call = Call {
        installation,
        tool,
        of: tool.take_subject(&mut arguments)?,
        arguments,
        by,
    };
    match tool {
        Tool::Why => call.ask::<Why>().await,
        Tool::ListSchedules => call.list::<ListSchedules, _>().await,
        Tool::ShowSchedule => call.ask::<GetSchedule>().await,
        Tool::ListLaunches => call.list::<ListLaunches, _>().await,
        Tool::ShowLaunch => call.ask::<GetLaunch>().await,
        Tool::ShowRun => call.show_run().await,
        Tool::RunLogs => call.logs().await,
        Tool::Plan => {
            let plan = tools::plan(tool.read_arguments(call.arguments)?);
            Answer::new(&installation.plan(plan).await?)
        }
        Tool::ListEvents => call.list::<ListEvents, _>().await,
        Tool::Health => {
            let Nothing {} = tool.read_arguments(call.arguments)?;
            Answer::new(&installation.health().await?)
        }
        Tool::TriggerSchedule => {
            let Nothing {} = tool.read_arguments(call.arguments)?;
            let as_defined = Trigger::default();
            let report = installation.order(&call.of, as_defined, by).await?;
            Ok(Answer::new(&report)?.note(trigger_note(&report)))
        }
        Tool::PauseSchedule => call.order::<Pause>().await,
        Tool::ResumeSchedule => call.order::<Resume>().await,
        Tool::CancelLaunch => call.order::<Cancel>().await,
    }
}

impl<I: Installation> Call<'_, I> {
    async fn ask<Q: Question>(self) -> Result<Answer, Problem> {
        let question: Q = self.tool.read_arguments(self.arguments)?;
        Answer::new(&self.installation.ask(&self.of, question).await?.answer)
    }

    async fn order<O: Order>(self) -> Result<Answer, Problem> {
        let order: O = self.tool.read_arguments(self.arguments)?;
        Answer::new(&self.installation.order(&self.of, order, self.by).await?)
    }

    /// Answers with one page of a list, noting how to get the next one.
    async fn list<Q: Paged<Answer = Vec<R>>, R: Serialize>(self) -> Result<Answer, Problem> {
        let wanted = self.arguments.get("limit").and_then(Value::as_u64);
        let question: Q = self.tool.read_arguments(self.arguments)?;
        let page = self.installation.ask(&self.of, question).await?;
        let found = page.answer.len();
        let is_short = found < wanted.map_or(50, |wanted| wanted as usize);
        let note = page.next.map(|next| {
            if Q::IS_SEARCH && is_short {
                searched_note(found, &next)
            } else {
                next_page_note(&next)
            }
        });
        Ok(Answer::new(&page.answer)?.note(note))
    }

    async fn show_run(self) -> Result<Answer, Problem> {
        let GetRun { after } = self.tool.read_arguments(self.arguments.clone())?;
        let (run, next, removed) = self.run(after).await?;
        Answer::run(run, next, removed)
    }

    /// Returns a run with its calls after a place, the place to continue after if there are more, and the note saying that retention
    /// removed them.
    async fn run(
        &self,
        after: Option<CallPlace>,
    ) -> Result<(RunDetail, Option<CallPlace>, Option<String>), Problem> {
        let page = self.installation.ask(&self.of, GetRun { after }).await?;
        let next = page.next.and_then(|key| key.parse().ok());
        let (kept, now) = (self.installation.calls_kept(), self.installation.now());
        let removed = removed_calls_note(page.answer.run.finished_at, kept, now);
        Ok((page.answer, next, removed))
    }

    /// Answers with the logs of a run's tasks: those after a place if one is given, otherwise the newest texts.
    async fn logs(self) -> Result<Answer, Problem> {
        let wanted: RunLogs = self.tool.read_arguments(self.arguments.clone())?;
        if let Some(place) = wanted.place()? {
            let (run, next, removed) = self.run(Some(place)).await?;
            return Answer::logs_after(run, next, &wanted, removed);
        }
        let mut tail = LogTail::new(&wanted);
        let mut question = GetLogs::default();
        loop {
            let page = self.installation.ask(&self.of, question.clone()).await?;
            tail.add(page.answer);
            let next = page.next.and_then(|key| key.parse().ok());
            if next.is_none() {
                break;
            }
            question.after = next;
        }
        let removed = if tail.is_empty() {
            self.run(None).await?.2
        } else {
            None
        };
        Answer::logs(tail, &self.of, &wanted, removed)
    }
}
