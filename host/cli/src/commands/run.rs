//! `campanile run`: the attempts to execute launches, and the logs of their tasks.

use clap::Subcommand;

use super::calls::{close_to_limit, detail, print_logs};
use super::schedule::By;
use super::schedule::trigger::{self, Wait};
use super::{follow, launch};
use crate::ask::Source;
use crate::output::{self, Record, Result};
use crate::{Common, Limit, watch};
use campanile_control::orders::launches::{Cancel, RetryLaunch};
use campanile_control::questions::launches::{GetLogs, ListRuns};
use campanile_control::records::ids;
use campanile_control::records::run::{self as run_records, RunDetail, TaskLogs};
use campanile_model::clock::Clock;
use campanile_model::ids::ShortId;
use campanile_store::runs::RunRow;
use campanile_store::task_runs::TaskRun;

#[derive(Subcommand)]
pub(crate) enum Run {
    /// List the newest runs, newest first
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: ListRuns,
        #[command(flatten)]
        limit: Limit,
    },
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
        #[command(flatten)]
        order: Cancel,
        #[command(flatten)]
        by: By,
    },
    /// Launch a finished launch's slot again, with its context and the package's active version
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
    const DECIDING: &'static str = "schedule scheduled_time status message";
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
            Run::List { question, limit } => {
                let schedule = question.schedule.clone();
                launch::list(common, question, schedule.as_deref(), limit.limit).await
            }
            Run::Show { id } => {
                let source = common.source().await?;
                let run = detail(&source, &id.to_string()).await?;
                if run.tasks.is_empty() {
                    say_removed(common, &source, &id).await?;
                }
                common.print(&run)
            }
            Run::Logs { id, follow: false } => logs(common, &id).await,
            Run::Logs { id, follow: true } => follow::run(common, &id).await,
            Run::Cancel { id, order, by } => {
                let report = common.order(&id.to_string(), &order, &*by.by).await?;
                let (launch, status) = (report.launch, report.status);
                let text = match report.deadline {
                    None => format!("ended the launch {launch}, which did not run: it is {status}"),
                    Some(deadline) => format!(
                        "asked the launch {launch} to end by {deadline}; `campanile run logs {launch} --follow` follows it"
                    ),
                };
                common.print_report(&report, &text)
            }
            Run::Retry { id, wait, by } => {
                let order = RetryLaunch::default();
                let report = common.order(&id.to_string(), &order, &*by.by).await?;
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

/// Prints the logs and output of a run's tasks, page by page.
async fn logs(common: &Common, id: &ShortId) -> Result {
    let source = common.source().await?;
    let (mut all, mut is_empty) = (Vec::new(), true);
    let print = |page: Vec<TaskLogs>| {
        is_empty &= page.is_empty();
        if common.json {
            all.extend(page);
            return Ok(true);
        }
        for call in &page {
            if !print_logs(call)? {
                return Ok(false);
            }
        }
        Ok(true)
    };
    let of = id.to_string();
    source.pages(&of, GetLogs::default(), print).await?;
    if is_empty {
        say_removed(common, &source, id).await?;
    }
    if common.json {
        output::print_json(&all)
    } else {
        Ok(())
    }
}

/// Says if retention has removed the calls of a run. The age limit of a host behind an API isn't known.
async fn say_removed(common: &Common, source: &Source<'_>, id: &ShortId) -> Result {
    if let Some(mut tx) = source.record().await? {
        let run = ids::run(&mut tx, id, None).await?;
        if let Some(note) = removed_calls_note(common, &run)? {
            output::print_message(&note);
        }
    }
    Ok(())
}

/// Returns a sentence that retention has removed the calls of a run, if it ended long enough ago.
pub(crate) fn removed_calls_note(common: &Common, run: &RunRow) -> Result<Option<String>> {
    let age = common.config()?.retention.logs;
    let now = Clock::system().now();
    Ok(run_records::removed_calls_note(run.finished_at, age, now))
}
