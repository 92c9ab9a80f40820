//! `campanile run`: the attempts to execute launches, and the logs of their tasks.

use std::time::Duration;

use super::calls::{close_to_limit, detail_by_api, print_logs};
use super::follow;
use super::launch::ListOptions;
use super::schedule::By;
use super::schedule::trigger::{self, Wait};
use crate::output::{self, Failure, Record, Result};
use crate::{Common, watch};
use campanile_control::launch_admin;
use campanile_control::orders::Nothing;
use campanile_control::records::ids;
use campanile_control::records::launch::{CancelReport, TriggerReport};
use campanile_control::records::run::{self as run_records, RunDetail, TaskLogs};
use campanile_model::clock::Clock;
use campanile_model::ids::{RunId, ShortId};
use campanile_model::text::{self, duration_text};
use campanile_server::bodies;
use campanile_store::Tx;
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::{self, CallPlace, TaskRun};
use clap::Subcommand;

#[derive(Subcommand)]
pub(crate) enum Run {
    /// List the newest runs, newest first
    #[command(arg = watch::arg())]
    List(ListOptions),
    /// Show one run with every call of its tasks
    #[command(arg = watch::arg())]
    Show {
        /// The run's id, or that of its launch; the first digits are enough when no other id begins with them
        id: ShortId,
    },
    /// Show what the tasks of one run logged and printed
    Logs {
        /// The run's id, or that of its launch; the first digits are enough when no other id begins with them
        id: ShortId,
        /// Show each call when it ends, until the run ends; exit code 1 when it did not succeed
        #[arg(long)]
        follow: bool,
    },
    /// End a launch on whatever host runs it; one that does not run is ended at once
    Cancel {
        /// The run's id, or that of its launch; the first digits are enough when no other id begins with them
        id: ShortId,
        /// How long its tasks have to end by themselves [default: `cancel_grace` of its schedule]
        #[arg(long, value_parser = text::duration, value_name = "SPAN")]
        grace: Option<Duration>,
        #[command(flatten)]
        by: By,
    },
    /// Launch the slot of a launch that has ended again: with its context, and the active version of its package
    Retry {
        /// The run's id, or that of its launch; the first digits are enough when no other id begins with them
        id: ShortId,
        #[command(flatten)]
        wait: Wait,
        #[command(flatten)]
        by: By,
    },
}

/// The keys of a run.
macro_rules! run_detail {
    () => {
        "id launch_id schedule scheduled_time status is_recovery package digest schedule_revision grants_hash context_hash \
        host host_version wasmtime_version tzdata_version started_at finished_at retry_at failure message"
    };
}

impl Record for RunRow {
    const LIST: &'static str =
        "id schedule scheduled_time status is_recovery host started_at finished_at message";
    const DETAIL: &'static str = run_detail!();

    fn text(&self, key: &str) -> Option<String> {
        (key == "id").then(|| self.id.short())
    }
}

impl Record for RunDetail {
    const DETAIL: &'static str = concat!(run_detail!(), " traceparent");

    fn print(&self) -> Result {
        output::print_detail(self)?;
        for call in &self.tasks {
            output::print_line("")?;
            output::print_detail(call)?;
            for share in call.usage.iter().filter(|share| share.is_close()) {
                let TaskRun { task, attempt, .. } = &call.row;
                let advice = close_to_limit(share);
                output::print_message!("warning: {task} (attempt {attempt}): {advice}");
            }
        }
        Ok(())
    }
}

impl Run {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Run::List(options) => list(common, &options).await,
            Run::Show { id } => {
                if let Some(client) = common.client()? {
                    return common.print(&detail_by_api(client, &id.to_string()).await?);
                }
                let mut tx = common.read().await?;
                let run = ids::run(&mut tx, &id, None).await?;
                let tasks = calls(common, &mut tx, &run).await?;
                common.print(&RunDetail::with_calls(&mut tx, run, tasks).await?)
            }
            Run::Logs { id, follow: false } => logs(common, &id).await,
            Run::Logs { id, follow: true } => {
                if let Some(client) = common.client()? {
                    return follow::run_by_api(client, &id.to_string(), common.json).await;
                }
                let run = ids::run(&mut common.read().await?, &id, None).await?;
                follow::run(common, run.id).await
            }
            Run::Cancel { id, grace, by } => cancel(common, &id, grace, &by.by).await,
            Run::Retry { id, wait, by } => {
                let report = match common.client()? {
                    Some(client) => {
                        let path = ["launches", &id.to_string(), "retry"];
                        client.post(&path, &Nothing {})?.send().await?
                    }
                    None => {
                        let launch = ids::launch(&mut common.read().await?, &id, None).await?;
                        let retry = async |tx: &mut Tx, now| {
                            launch_admin::retry(tx, launch, &by.by, now).await
                        };
                        let (retried, slot, schedule) = common.change(retry).await?;
                        TriggerReport::new(schedule, slot, retried)
                    }
                };
                let hint = |other| {
                    format!(
                        "wait for the end of the launch {other}, or end it with `campanile run cancel {other}`"
                    )
                };
                trigger::print(&report, common, "launched again", hint, &wait).await
            }
        }
    }
}

async fn list(common: &Common, options: &ListOptions) -> Result {
    if let Some(client) = common.client()? {
        let call = client
            .get(&["runs"])
            .query("schedule", options.schedule.as_ref());
        let call = call.query("after", options.after.as_ref());
        let (rows, _) = call.page::<RunRow>(options.limit.limit).await?;
        return common.print_page(&rows, options.limit.limit, |row| row.id);
    }
    let mut tx = common.read().await?;
    let after = match &options.after {
        Some(id) => Some(ids::list_position(&mut tx, id, None).await?),
        None => None,
    };
    let limit = options.limit.limit;
    let rows = match &options.schedule {
        Some(name) => runs::list_of(&mut tx, name, after, limit).await?,
        None => runs::list(&mut tx, after, limit).await?,
    };
    let id = |row: &RunRow| row.id.to_string();
    options.print(common, &mut tx, &rows, true, id).await
}

async fn cancel(common: &Common, id: &ShortId, grace: Option<Duration>, by: &str) -> Result {
    let report = request_cancel(common, id, grace, by).await?;
    let (launch, status) = (report.launch, report.status);
    let text = match report.deadline {
        None => format!("ended the launch {launch}, which did not run: it is {status}"),
        Some(deadline) => format!(
            "asked the launch {launch} to end by {deadline}; `campanile run logs {launch} --follow` follows it"
        ),
    };
    common.print_report(&report, &text)
}

/// Ask a launch to end, or end it if it does not run.
pub(crate) async fn request_cancel(
    common: &Common,
    id: &ShortId,
    grace: Option<Duration>,
    by: &str,
) -> Result<CancelReport> {
    if let Some(client) = common.client()? {
        let grace = grace.map(duration_text);
        let path = ["launches", &id.to_string(), "cancel"];
        return client.post(&path, &bodies::Cancel { grace })?.send().await;
    }
    let launch = ids::launch(&mut common.read().await?, id, None).await?;
    let run = id.number.map(|number| RunId::of(launch, number));
    let cancel =
        async |tx: &mut Tx, now| launch_admin::cancel(tx, (launch, run), grace, by, now).await;
    Ok(CancelReport::new(launch, common.change(cancel).await?))
}

/// Prints the logs and output of a run's tasks, page by page.
async fn logs(common: &Common, id: &ShortId) -> Result {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let (page, next) = match common.client()? {
            Some(client) => {
                let call = client.get(&["runs", &id.to_string(), "logs"]);
                call.query("after", after).part::<Vec<TaskLogs>>().await?
            }
            None => logs_of_record(common, id, after.as_deref()).await?,
        };
        match common.json {
            true => all.extend(page),
            false => {
                for call in &page {
                    if !print_logs(call)? {
                        return Ok(());
                    }
                }
            }
        }
        if next.is_none() {
            break;
        }
        after = next;
    }
    match common.json {
        true => output::print_json(&all),
        false => Ok(()),
    }
}

/// Reads a page of a run's logs from the database, along with the key of the next page. Says so if retention has removed them.
async fn logs_of_record(
    common: &Common,
    id: &ShortId,
    after: Option<&str>,
) -> Result<(Vec<TaskLogs>, Option<String>)> {
    let place = after.map(str::parse::<CallPlace>).transpose();
    let place = place.map_err(Failure::refused)?;
    let mut tx = common.read().await?;
    let run = ids::run(&mut tx, id, None).await?;
    let page = TaskLogs::read(&mut tx, run.id, &place.unwrap_or_else(CallPlace::first)).await?;
    if after.is_none()
        && page.part.is_empty()
        && let Some(note) = removed_calls_note(common, &run)?
    {
        output::print_message(&note);
    }
    Ok((page.part, page.next.map(|place| place.to_string())))
}

/// Return the recorded calls of a run, and say when retention has removed them.
async fn calls(common: &Common, tx: &mut Tx, run: &RunRow) -> Result<Vec<TaskRun>> {
    let calls = task_runs::of_run(tx, run.id).await?;
    if calls.is_empty()
        && let Some(note) = removed_calls_note(common, run)?
    {
        output::print_message(&note);
    }
    Ok(calls)
}

/// Return a sentence that retention has removed the calls of a run, if it ended long enough ago.
pub(crate) fn removed_calls_note(common: &Common, run: &RunRow) -> Result<Option<String>> {
    let age = common.config()?.retention.logs;
    let now = Clock::system().now();
    Ok(run_records::removed_calls_note(run.finished_at, age, now))
}
