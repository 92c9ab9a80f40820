//! What needs a person: schedules in trouble by cause, then all else that's wrong.

use maud::{Markup, html};

use super::super::backfills::FailedBackfill;
use super::super::bodies::{IDS, TICKED};
use super::super::charts::{self, BARS, Bar};
use super::super::parts::{badge, badge_of, button};
use super::super::words::{counted, line, moment, prose, short, span, time};
use super::super::{Visit, links};
use super::{Now, TROUBLES_MAX, TroubleKind};
use campanile_control::orders::alerts::SUBJECTS_MAX;
use campanile_control::orders::bulk_launches::LAUNCHES_MAX;
use campanile_control::reports::overview::Trouble;
use campanile_control::reports::symptom::Symptom;
use campanile_model::ids::LaunchId;
use campanile_store::events::{Event, EventKind};
use campanile_store::stats::OldRun;

/// The most names of a trouble, and the most lines and characters of its message.
const NAMES_MAX: usize = 6;
const LINES_MAX: usize = 12;
const MESSAGE_MAX: usize = 150;
/// With more troubles, the further lines of each are folded, so that all of them fit on a screen.
const UNFOLDED_MAX: usize = 3;

/// Shows what needs a person.
pub(super) fn card(visit: &Visit, now: &Now) -> Markup {
    let troubles = &now.overview.troubles;
    let issues = Now::others(&now.symptoms.issues);
    let notes = Now::others(&now.symptoms.notes);
    let stuck = now.runs.iter().filter(|run| now.is_stuck(run));
    let pending = visit.attention.pending;
    let others = issues.clone().count() + notes.clone().count();
    let all = troubles.len()
        + now.backfills.len()
        + others
        + stuck.clone().count()
        + usize::from(pending > 0);
    let room = TROUBLES_MAX.saturating_sub(troubles.len());
    let shown = troubles.iter().take(TROUBLES_MAX);
    html! {
        section.card.w8 aria-labelledby="needs" {
            header {
                h2 #needs { "Needs a person" }
                @if all > 0 { (badge_of("plain", &counted(all as u64, "thing"))) }
                span.far { "what's broken first · " code { "campanile health" } }
            }
            @if all == 0 { p.more { "Nothing. Each schedule's newest launch succeeded, and every host serves." } }
            @for trouble in shown.clone().filter(is_bad) { (part(visit, now, trouble)) }
            @for symptom in issues.take(room) { (other("bad", symptom)) }
            @for trouble in shown.filter(|trouble| !is_bad(trouble)) { (part(visit, now, trouble)) }
            @for backfill in now.backfills.iter().take(room) { (failed_backfill(now, backfill)) }
            @for run in stuck.take(room) { (stuck_run(now, run)) }
            @if pending > 0 { (waiting(pending)) }
            @for symptom in notes.take(room) { (other("warn", symptom)) }
            @if all > TROUBLES_MAX { p.more { "These are the first " (TROUBLES_MAX) " of " (all) ". " a href="/schedules?state=failing" { "All that fails" } } }
        }
    }
}

fn part(visit: &Visit, now: &Now, trouble: &Trouble) -> Markup {
    let is_bad = is_bad(&trouble);
    let mut lines = trouble.message.lines();
    let first = lines.next().unwrap_or_default();
    let rest = Vec::from_iter(lines.take(LINES_MAX));
    let launches = trouble.schedules.first().map(|(id, _)| *id);
    let failures = trouble.newest_failures(&now.overview.recent);
    let newest = failures.first();
    let bars = now
        .overview
        .recent
        .iter()
        .filter(|launch| Some(launch.schedule_id) == launches);
    let bars = bars.take(BARS).map(|launch| Bar::of(launch, now.clock.now));
    let mut bars = Vec::from_iter(bars);
    bars.reverse();
    let more = trouble.schedules.len().saturating_sub(NAMES_MAX);
    html! {
        div.trouble.warn[!is_bad] {
            div {
                h3 {
                    @for (place, (_, name)) in trouble.schedules.iter().take(NAMES_MAX).enumerate() {
                        @if place > 0 { ", " }
                        (links::schedule(name))
                    }
                    @if more > 0 { " and " (more) " more" }
                }
                " " (badge(trouble.kind.as_str()))
                p.message { (short(first, MESSAGE_MAX)) }
                @if let Some(since) = trouble.since {
                    p.far {
                        @match (trouble.streak, trouble.schedules.len()) {
                            (1, _) => "Failed once, ",
                            (streak, 1) => { (streak) " in a row since " },
                            (streak, _) => { (streak) " failures since " },
                        }
                        strong { (time(since, now.clock)) } " (" (moment(since, now.clock)) ")"
                        ", last success " @match trouble.last_success_at { Some(at) => (moment(at, now.clock)), None => "never" }
                    }
                }
                @if let Some(change) = &trouble.change { (changed(now, trouble, change)) }
                @if !rest.is_empty() {
                    details open[now.overview.troubles.len() <= UNFOLDED_MAX] {
                        summary { (counted(rest.len() as u64, "more line")) " of the message" }
                        pre tabindex="0" { @for line_ in &rest { (line(line_)) "\n" } }
                    }
                }
            }
            div.side {
                (charts::bars(&bars))
                div.actions {
                    @if let Some(launch) = newest {
                        @let path = links::path(&["launches", &launch.to_string()]);
                        a.button.small href={ (path) "#log" } { "Log" }
                        @if trouble.change.as_ref().is_some_and(is_of_version) {
                            a.button.small href=(links::path(&["packages", &trouble.package])) title="Roll back to the version before" { "Versions" }
                        }
                        @if failures.len() == 1 { (button(visit, &path, "retry", "Run again", &[])) }
                        @else { (run_again(visit, &failures)) }
                    }
                    @if let [(_, name)] = trouble.schedules.as_slice() {
                        @if newest.is_none() { a.button.small href=(links::path(&["schedules", name])) { "Open" } }
                    }
                    @if is_bad && trouble.schedules.len() <= SUBJECTS_MAX {
                        (button(visit, "/alerts", "silence", "Silence 1 h", &[("rule", "*"), ("subjects", &names(trouble)), ("for", "1h")]))
                    }
                }
            }
        }
    }
}

/// Whether schedules are broken, and not only to look at.
fn is_bad(trouble: &&Trouble) -> bool {
    matches!(
        trouble.kind,
        TroubleKind::Failing | TroubleKind::NeverSucceeded | TroubleKind::FailedOnce
    )
}

/// Whether a change is one of a package's version.
fn is_of_version(change: &Event) -> bool {
    use EventKind as Kind;
    matches!(
        change.kind,
        Kind::PackageLoaded
            | Kind::PackageUploaded
            | Kind::VersionApproved
            | Kind::VersionDowngraded
            | Kind::PackageRolledBack
    )
}

fn stuck_run(now: &Now, run: &OldRun) -> Markup {
    let launch = links::path(&["launches", &run.launch.to_string()]);
    let usual = now.usual.get(&run.schedule_id);
    html! {
        div.trouble.warn {
            div {
                h3 { (links::schedule(&run.schedule)) } " " (badge_of("warn", "stuck?")) " "
                span.far {
                    "runs for " (span(now.clock.now.since(run.started_at)))
                    @if let Some(usual) = usual { ", usually " (span(*usual)) }
                    @if let Some(host) = &run.host { ", on " (line(host)) }
                }
            }
            div.side { div.actions { a.button.small href={ (launch) "#log" } { "Log" } a.button.small href=(launch) { "Open" } } }
        }
    }
}

fn failed_backfill(now: &Now, backfill: &FailedBackfill) -> Markup {
    html! {
        div.trouble.whole.warn {
            div {
                p {
                    a href=(backfill.launches) { (backfill.failed) " failed" } " in a " a href="/backfills" { "backfill" } " of "
                    (links::schedule(&backfill.schedule)) ", requested " (moment(backfill.created_at, now.clock))
                    @if backfill.is_running { " and running" }
                }
            }
        }
    }
}

fn waiting(pending: i64) -> Markup {
    html! {
        div.trouble.whole.warn {
            div {
                p { a href="/packages" { (counted(pending.unsigned_abs(), "version")) } @if pending == 1 { " waits" } @else { " wait" } " for approval" }
            }
        }
    }
}

/// Returns the names of all schedules of a trouble, as the field of a form has them.
fn names(trouble: &Trouble) -> String {
    let names = trouble.schedules.iter().map(|(_, name)| name.as_str());
    Vec::from_iter(names).join(",")
}

/// Shows the button that launches the newest failures of several schedules again.
fn run_again(visit: &Visit, failures: &[LaunchId]) -> Markup {
    let ids = failures.iter().take(LAUNCHES_MAX).map(LaunchId::to_string);
    let ids = Vec::from_iter(ids);
    let label = format!("Run {} again", ids.len());
    let fields = [(TICKED, "yes"), (IDS, &ids.join(","))];
    button(visit, "/launches", "retry_many", &label, &fields)
}

fn changed(now: &Now, trouble: &Trouble, change: &Event) -> Markup {
    let before = trouble.since.map(|since| since.since(change.at));
    // Some details say it themselves.
    let by = change.principal.as_ref();
    let by = by.filter(|by| !change.detail.contains(by.as_str()));
    html! {
        p.far {
            "Changed just before: " a href="/events" { (change.kind.as_str().replace('_', " ")) } " "
            strong { (line(&change.subject)) } " " (short(&change.detail, MESSAGE_MAX)) ", "
            (time(change.at, now.clock))
            @if let Some(by) = by { " by " (line(by)) }
            @if let Some(before) = before { ", " (super::rough(before)) " before the first failure" }
        }
    }
}

fn other(class: &str, symptom: &Symptom) -> Markup {
    let text = symptom.to_string();
    let mut lines = text.lines();
    let first = lines.next().unwrap_or_default();
    html! {
        div.trouble.whole.warn[class == "warn"] {
            div {
                p { (prose(first)) }
                @for more in lines.take(LINES_MAX) { pre { (line(more)) } }
            }
        }
    }
}
