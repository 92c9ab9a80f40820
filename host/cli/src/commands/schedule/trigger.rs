//! `campanile schedule trigger`: launch a schedule now; with `--wait`, wait for the end of the launch.

use clap::Args;
use serde::Serialize;

use super::read_context;
use crate::ask::Giver;
use crate::commands::calls::detail;
use crate::commands::follow;
use crate::output::{self, Result};
use crate::{Common, environment};
use campanile_control::orders::schedules as orders;
use campanile_control::records::launch::TriggerReport;
use campanile_control::records::run::TaskCall;
use campanile_model::ids::LaunchId;
use campanile_model::text::printable_lines;
use campanile_model::trace_context::TraceContext;
use campanile_schedule::policy::Overlap;
use campanile_store::launch::LaunchRow;
use campanile_store::{Decision, LaunchStatus};

#[derive(Args)]
pub(crate) struct TriggerOptions {
    /// The schedule's name
    name: String,
    /// Context merged over the schedule's: a JSON object, or @FILE
    #[arg(long, value_name = "JSON|@FILE")]
    context: Option<String>,
    /// An argument of the program, in place of the schedule's; repeat it for more. `{{ context.KEY }}` stands for a value of
    /// the context
    #[arg(long = "arg", value_name = "TEXT", allow_hyphen_values = true)]
    args: Vec<String>,
    /// The overlap policy of this launch [default: the schedule's]
    #[arg(long, value_name = "POLICY", value_parser = Overlap::read)]
    overlap: Option<Overlap>,
    /// The span of the caller, a `traceparent` of W3C: the launch belongs to its trace [default: the variable TRACEPARENT, if
    /// it is valid]
    #[arg(long, value_name = "TRACEPARENT")]
    traceparent: Option<TraceContext>,
    #[command(flatten)]
    wait: Wait,
}

#[derive(Args)]
pub(crate) struct Wait {
    /// Wait for the end, and print logs and output; exit code 1 when the launch does not succeed
    #[arg(long)]
    wait: bool,
}

/// The result with `--wait`: the launch, and the calls of the run that ended it.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct WaitReport {
    #[serde(flatten)]
    launch: LaunchRow,
    tasks: Vec<TaskCall>,
}

impl TriggerOptions {
    pub(crate) async fn run(&self, common: &Common) -> Result {
        let own = read_context(self.context.as_deref())?;
        let caller = self.traceparent.or_else(of_environment);
        let hint =
            |_| "`--overlap allow` launches it anyway, `--overlap buffer_all` queues it".to_owned();
        let order = orders::Trigger {
            context: own,
            args: (!self.args.is_empty()).then(|| self.args.clone()),
            overlap: self.overlap,
        };
        let giver = Giver {
            caller,
            ..Giver::default()
        };
        let report = common.order(&self.name, &order, giver).await?;
        print(&report, common, "triggered", hint, &self.wait).await
    }
}

/// Returns the span that the environment names. As the recommendation demands, an invalid one counts as none.
fn of_environment() -> Option<TraceContext> {
    TraceContext::of_caller(&std::env::var(environment::TRACEPARENT).ok()?)
}

/// Print the decision; `done` is the command's verb in the past tense, and `hint` says what to do about a launch in the
/// way. With `--wait`, wait for the end of the launch.
pub(crate) async fn print(
    report: &TriggerReport,
    common: &Common,
    done: &str,
    hint: impl Fn(LaunchId) -> String,
    wait: &Wait,
) -> Result {
    let (name, launch) = (&report.schedule, report.launch);
    let text = match report.overlaps {
        Some(other) => {
            format!("skipped {name}: launch {launch} overlaps launch {other}, which is unfinished")
        }
        None if report.decision == Decision::Queued => {
            format!("{done} {name}: launch {launch} is queued behind an unfinished launch")
        }
        None => format!("{done} {name}: launch {launch}"),
    };
    if wait.wait && report.overlaps.is_none() {
        if !common.json {
            output::print_message(&text);
        }
        return wait_for_end(common, launch).await;
    }
    common.print_report(report, &text)?;
    if let Some(other) = report.overlaps {
        output::print_message!("hint: {}", hint(other));
    }
    output::check(report.overlaps.is_none())
}

/// Wait for the end of a launch. Print the logs of its calls when they end, and then its output.
async fn wait_for_end(common: &Common, id: LaunchId) -> Result {
    let launch = follow::launch(common, id).await?;
    let tasks = match launch.run_id.0 {
        Some(run) => {
            let source = common.source().await?;
            detail(&source, &run.to_string()).await?.tasks
        }
        None => Vec::new(),
    };
    let has_succeeded = launch.status == LaunchStatus::Succeeded;
    if common.json {
        output::print_json(&WaitReport { launch, tasks })?;
        return output::check(has_succeeded);
    }
    for TaskCall { row, .. } in &tasks {
        if let Some(output) = &row.output {
            output::print_line!("{}: {output}", row.task)?;
        }
    }
    output::print_message(&ending(&launch));
    output::check(has_succeeded)
}

/// Returns how a launch ended, such as `failed: trapped: unreachable`.
fn ending(launch: &LaunchRow) -> String {
    let status = launch.status.to_string();
    let reason = launch.reason.clone();
    let failure = launch.failure.map(|failure| failure.to_string());
    let parts = [
        Some(status),
        reason.or(failure),
        launch.message.as_deref().map(printable_lines),
    ];
    Vec::from_iter(parts.into_iter().flatten()).join(": ")
}
