//! One launch: how it ended and why, where its time went, what its tasks logged, and the launches around it.

mod log;
mod side;
mod where_time_went;

use std::collections::HashSet;
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parts::{ActionForm, badge_of, button, command, field};
use super::words::{Clock, counted, line, shell, short, span, tail};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::ids;
use campanile_control::records::launch::{LaunchDetail, next_step};
use campanile_control::records::run::RunDetail;
use campanile_control::reports::overview::{cause, has_failed};
use campanile_control::rules::lateness::looks_stuck;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchKind, RunId, ShortId};
use campanile_store::launch::{LaunchRow, newest_failures, with_ids};
use campanile_store::troubles::{self, RecentLaunch};
use campanile_store::{LaunchStatus, Tx};

/// The most launches that are read before this one, and after it.
const BEFORE_MAX: i64 = 20;
const AFTER_MAX: i64 = 9;
/// The newest runs whose calls are read.
const RUNS_READ_MAX: usize = 5;
/// The newest failures among which others with the same cause are sought.
const COMPARED_MAX: i64 = 100;
/// The most bytes of a message, and the most characters of its first line, which stands out.
const MESSAGE_BYTES_MAX: usize = 4 << 10;
const FIRST_LINE_MAX: usize = 600;

/// The query of the page.
#[derive(Default, Deserialize, JsonSchema)]
pub(super) struct LaunchQuery {
    /// Show only the log of this task
    pub task: Option<String>,
    /// Show only lines of the log from this level on: `trace`, `debug`, `info`, `warn` or `error`
    pub level: Option<String>,
}

/// What the page shows.
struct Shown {
    clock: Clock,
    detail: LaunchDetail,
    /// The newest runs with their calls, oldest first.
    runs: Vec<RunDetail>,
    /// The run that the page is about, if it isn't about all of them.
    only: Option<RunId>,
    /// The launches of the same schedule before it, nearest first, and those after it.
    before: Vec<RecentLaunch>,
    after: Vec<RecentLaunch>,
    same: SameCause,
    /// The version of the last launch before it that succeeded, if it ran another one.
    former: Option<ArtifactDigest>,
    filter: log::Filter,
}

/// Other failures with the same cause.
#[derive(Default)]
struct SameCause {
    launches: usize,
    schedules: usize,
}

/// Shows a launch with all its runs.
pub(super) async fn of_launch(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let detail = LaunchDetail::read(&mut tx, &id, call.namespace()).await?;
    show(visit, tx, detail, None).await
}

/// Shows the launch of a run, with the log of that run alone.
pub(super) async fn of_run(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let id = call.id::<ShortId>("id")?;
    let mut tx = call.read().await?;
    let run = ids::run(&mut tx, &id, call.namespace()).await?;
    let launch = run.launch_id.to_string().parse::<ShortId>();
    let launch = launch.map_err(ApiProblem::invalid)?;
    let detail = LaunchDetail::read(&mut tx, &launch, call.namespace()).await?;
    show(visit, tx, detail, Some(run.id)).await
}

async fn show(
    visit: &Visit,
    mut tx: Tx,
    detail: LaunchDetail,
    only: Option<RunId>,
) -> Result<View> {
    let filter = log::Filter::of(visit.call.query.question::<LaunchQuery>()?)?;
    let launch = &detail.decided.launch;
    let (id, slot) = (launch.id, launch.scheduled_time);
    let first = detail.runs.len().saturating_sub(RUNS_READ_MAX);
    let mut runs = Vec::new();
    for (place, run) in detail.runs.iter().enumerate() {
        if place >= first || Some(run.id) == only {
            runs.push(RunDetail::shown(&mut tx, run.clone()).await?);
        }
    }
    let before = troubles::launches_before(&mut tx, id, slot, BEFORE_MAX).await?;
    let shown = Shown {
        clock: visit.clock(),
        former: former_version(&mut tx, launch, &before).await?,
        before,
        after: troubles::launches_after(&mut tx, id, slot, AFTER_MAX).await?,
        same: same_cause(&mut tx, launch).await?,
        runs,
        only,
        filter,
        detail,
    };
    drop(tx);
    let launch = shown.launch();
    let title = format!("{} · {}", launch.schedule, shown.slot());
    let main = html! {
        @if launch.message.is_some() || has_failed(launch.status) { (problem(&shown)) }
        @if let Some((took, usual)) = shown.stuck() {
            p.warning {
                "It has run for " (span(took)) "; launches around it took " (span(usual)) " in the median. The end of its log says what it did last. "
                "Cancel it if it hangs; a lower " code { "timeout" } " in the sidecar of " (links::package(&launch.package)) " ends such calls by itself."
            }
        }
        div.grid {
            (where_time_went::card(&shown))
            @if shown.runs.is_empty() {
                div.stack.w8 { (side::facts(&shown)) }
                div.stack.w4 { (side::around(&shown)) }
            } @else {
                div.stack.w8 { (log::card(visit, &shown)) (side::usage(&shown)) }
                div.stack.w4 { (side::around(&shown)) (side::outputs(&shown)) (side::facts(&shown)) }
            }
        }
    };
    View::with_head(title, head(visit, &shown), main)
}

/// Returns the version of the last launch that succeeded before a failed one, if that's another version of its package.
async fn former_version(
    tx: &mut Tx,
    launch: &LaunchRow,
    before: &[RecentLaunch],
) -> Result<Option<ArtifactDigest>> {
    let success = before
        .iter()
        .find(|other| other.status == LaunchStatus::Succeeded);
    let Some(success) = success.filter(|_| has_failed(launch.status)) else {
        return Ok(None);
    };
    let row = with_ids(tx, &[success.id]).await?.pop();
    let row = row.filter(|row| row.package == launch.package);
    Ok(row
        .and_then(|row| row.digest)
        .filter(|digest| Some(digest) != launch.digest.as_ref()))
}

/// Counts the newest failures with the same cause as that of a launch.
async fn same_cause(tx: &mut Tx, launch: &LaunchRow) -> Result<SameCause> {
    let Some(message) = launch.message.as_deref() else {
        return Ok(SameCause::default());
    };
    if !has_failed(launch.status) {
        return Ok(SameCause::default());
    }
    let ids = newest_failures(tx, COMPARED_MAX).await?;
    let own = cause(message);
    let is_same = |other: &&LaunchRow| {
        let has_same_message = other.message.as_deref().map(cause).as_deref() == Some(&own);
        other.id != launch.id
            && other.package == launch.package
            && other.failure == launch.failure
            && has_same_message
    };
    let others = with_ids(tx, &ids).await?;
    let others = Vec::from_iter(others.iter().filter(is_same));
    let schedules: HashSet<&str> = others.iter().map(|row| row.schedule.as_str()).collect();
    Ok(SameCause {
        launches: others.len(),
        schedules: schedules.len(),
    })
}

impl Shown {
    fn launch(&self) -> &LaunchRow {
        &self.detail.decided.launch
    }

    /// Returns when the first run began.
    fn started(&self) -> Option<Timestamp> {
        let first = self.detail.runs.first().map(|run| run.started_at);
        first.or(self.launch().started_at)
    }

    /// Returns how long its runs took, or have taken so far.
    fn took(&self) -> Option<Duration> {
        let end = self.launch().finished_at.unwrap_or(self.clock.now);
        Some(end.since(self.started()?))
    }

    /// Returns how long the launches around it take that succeeded, in the middle and at most but for one in twenty.
    fn usual(&self) -> Option<(Duration, Duration)> {
        let around = self.before.iter().chain(&self.after);
        let succeeded = around.filter(|launch| launch.status == LaunchStatus::Succeeded);
        let took =
            succeeded.filter_map(|launch| Some(launch.finished_at?.since(launch.started_at?)));
        let mut took = Vec::from_iter(took);
        took.sort_unstable();
        let last = took.len().checked_sub(1)?;
        Some((*took.get(last / 2)?, *took.get(last * 95 / 100)?))
    }

    /// Returns how long it has run and how long launches around it took, if that looks stuck.
    fn stuck(&self) -> Option<(Duration, Duration)> {
        let (took, (usual, _)) = (self.took()?, self.usual()?);
        let is_stuck = self.launch().status == LaunchStatus::Running && looks_stuck(took, usual);
        is_stuck.then_some((took, usual))
    }

    /// Returns the slot with its weekday: `Sat 28 Nov 05:38:00`.
    fn slot(&self) -> String {
        let zone = self.clock.zone;
        let [slot, now] = [self.launch().scheduled_time, self.clock.now]
            .map(|at| at.to_chrono().with_timezone(&zone));
        let is_far = (slot - now).num_days().abs() >= 180;
        let format = if is_far {
            "%a %-d %b %Y %H:%M:%S"
        } else {
            "%a %-d %b %H:%M:%S"
        };
        slot.format(format).to_string()
    }
}

fn head(visit: &Visit, shown: &Shown) -> Markup {
    let launch = shown.launch();
    let slot = launch.scheduled_time;
    html! {
        div.head {
            h1 {
                (links::schedule(&launch.schedule)) " · "
                time datetime=(slot.to_string()) title=(shown.clock.whole(slot)) { (shown.slot()) }
                @if let Some(run) = shown.only { " · run " (run.number()) }
            }
            (chips(shown))
            div.actions {
                (neighbours(shown))
                @if launch.finished_at.is_some() {
                    (button(visit, &visit.call.uri, "retry", "Run again", &[("id", &launch.id.to_string())]))
                } @else {
                    (cancel(visit, launch))
                }
                (commands(launch))
            }
        }
    }
}

/// Shows how it ended, and what wasn't as usual.
fn chips(shown: &Shown) -> Markup {
    let launch = shown.launch();
    let status = launch.status.as_str();
    let took = shown.took();
    let words = match (launch.status, took.map(span)) {
        (LaunchStatus::Open, _) => "waits for a host".to_owned(),
        (LaunchStatus::Running, Some(took)) => format!("running for {took}"),
        (LaunchStatus::Waiting, Some(took)) => format!("waits for a retry, {took} so far"),
        (LaunchStatus::Succeeded, Some(took)) => format!("succeeded in {took}"),
        (_, Some(took)) if launch.finished_at.is_some() => format!("{status} after {took}"),
        _ => status.to_owned(),
    };
    let calls = shown.runs.iter().flat_map(|run| &run.tasks);
    let retries = calls.filter(|call| call.row.retry_at.is_some()).count();
    let recovered = match launch.recoveries {
        0 => None,
        1 => Some("recovered once".to_owned()),
        times => Some(format!("recovered {times} times")),
    };
    html! {
        (badge_of(charts::class(status), &words))
        @if shown.stuck().is_some() { (badge_of("warn", "stuck?")) }
        @match retries {
            0 => "",
            1 => (badge_of("warn", "after 1 retry")),
            many => (badge_of("warn", &format!("after {many} retries"))),
        }
        @if let Some(recovered) = recovered { (badge_of("warn", &recovered)) }
        @if launch.kind != LaunchKind::Schedule { (badge_of("plain", launch.kind.as_str())) }
    }
}

/// Links to the launches before and after it, and to the last one that succeeded.
fn neighbours(shown: &Shown) -> Markup {
    let (previous, next) = (shown.before.first(), shown.after.first());
    let success = (shown.before.iter()).find(|other| other.status == LaunchStatus::Succeeded);
    let success = success.filter(|success| {
        shown.launch().status != LaunchStatus::Succeeded
            && previous.is_none_or(|previous| previous.id != success.id)
    });
    let link = |to: &RecentLaunch, what: &str, text: String| {
        html! {
            a.button.small href=(links::path(&["launches", &to.id.to_string()])) title={ (what) ", " (to.status.as_str()) } { (text) }
        }
    };
    let at = |launch: &RecentLaunch| shown.clock.short(launch.scheduled_time);
    html! {
        @if let Some(to) = success { (link(to, "Last launch that succeeded", format!("last success {}", at(to)))) }
        @if let Some(to) = previous { (link(to, "Previous launch", format!("‹ {}", at(to)))) }
        @if let Some(to) = next { (link(to, "Next launch", format!("{} ›", at(to)))) }
    }
}

fn cancel(visit: &Visit, launch: &LaunchRow) -> Markup {
    let id = launch.id.to_string();
    let form = ActionForm {
        action: "cancel",
        label: "Cancel",
        hidden: &[("id", &id)],
        fields: html! {
            p { "End it on whatever host runs it." }
            (field(visit, "grace", "Time to end by itself", "30s, or empty for the schedule's own"))
        },
        command: format!("campanile run cancel {id} --grace SPAN"),
    };
    html! {
        details.menu.small open[!visit.typed.is_empty()] {
            summary { "Cancel" }
            div { (form.show(visit)) }
        }
    }
}

/// Shows the commands that show and do the same.
fn commands(launch: &LaunchRow) -> Markup {
    let id = launch.id;
    html! {
        details.menu.small {
            summary { "Commands" }
            div {
                (command(&format!("campanile launch show {id}")))
                @if launch.run_id.0.is_some() { (command(&format!("campanile run logs {id}"))) }
                @if launch.finished_at.is_some() { (command(&format!("campanile run retry {id}"))) }
                (command(&format!("campanile schedule why {} --at {}", shell(&launch.schedule), launch.scheduled_time)))
            }
        }
    }
}

/// Shows why it didn't succeed, and what to do next.
fn problem(shown: &Shown) -> Markup {
    let launch = shown.launch();
    let (message, left_out) = tail(
        launch.message.as_deref().unwrap_or_default(),
        MESSAGE_BYTES_MAX,
    );
    let (first, rest) = message.split_once('\n').unwrap_or((&message, ""));
    let rest = if first.len() > FIRST_LINE_MAX {
        &*message
    } else {
        rest
    };
    let note = shown.detail.note.as_deref().unwrap_or_default();
    let (note, more) = note.split_once('\n').unwrap_or((note, ""));
    let others = links::query(&[("status", "failed"), ("package", &launch.package)]);
    html! {
        div.problem {
            p {
                strong { @match launch.failure { Some(failure) => (failure.as_str().replace('_', " ")), None => (launch.status.as_str()) } }
                @if !first.is_empty() { ": " @if left_out > 0 { "…" } (short(first, FIRST_LINE_MAX)) }
            }
            @if !rest.is_empty() { pre tabindex="0" { (rest) } }
            @if !note.is_empty() { p.from-host { strong { "The host notes: " } (line(note)) } }
            @if !more.is_empty() { pre.from-host tabindex="0" { (tail(more, MESSAGE_BYTES_MAX).0) } }
            @if let Some(former) = &shown.former {
                p {
                    "The last launch that succeeded ran another version of " (links::package(&launch.package)) ", "
                    code { (former.short()) } @if let Some(digest) = &launch.digest { "; this one ran " code { (digest.short()) } }
                    ". Open the package to roll back."
                }
            }
            @if let Some(next) = next_step(launch) { p { "Next: " (next) "." } }
            @if shown.same.launches > 0 {
                p {
                    "Same cause as " a href={ "/launches" (others) } { (counted(shown.same.launches as u64, "other")) }
                    " of the newest " (COMPARED_MAX) " failures, on " (counted(shown.same.schedules as u64, "schedule")) "."
                }
            }
        }
    }
}
