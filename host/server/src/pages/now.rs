//! The first page: what's broken and since when, what changed before it, what runs, what comes next, and the time around now.

mod empty;
mod tiles;
mod trouble;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::backfills::{self, FailedBackfill};
use super::parts::button;
use super::schedules::COUNTED_MAX;
use super::timeline::{self, Lane, Window};
use super::words::{Clock, at_most, counted, line, moment, rough, short, span, time};
use super::{View, Visit, charts, links};
use crate::call::Result;
use crate::probes;
use crate::problem::ApiProblem;
use campanile_control::records::schedule;
use campanile_control::reports::health::Symptoms;
use campanile_control::reports::overview::{Overview, TroubleKind};
use campanile_control::reports::rollups;
use campanile_control::reports::symptom::Symptom;
use campanile_control::rules::lateness::looks_stuck;
use campanile_control::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::launch::{self, LaunchRow};
use campanile_store::packages;
use campanile_store::stats::{self, NextSlot, OldRun, Unfinished};
use campanile_store::troubles::{self, RecentLaunch};
use campanile_store::{DbError, LaunchStatus, Tx, schedules};

const HOUR: Duration = Duration::from_secs(3_600);
/// The most runs, and the most coming slots, that are listed.
const RUNS_MAX: i64 = 20;
const LISTED: usize = 8;
const LISTED_ON_PHONE: usize = 4;
/// The most schedules whose coming slots the timeline has.
const PLANNED_MAX: i64 = 200;
/// The most coming slots of one schedule.
const SLOTS_MAX: usize = 120;
/// The most troubles, and the most lanes, that are shown.
const TROUBLES_MAX: usize = 12;
const LANES_MAX: usize = 12;
/// The most packages that a new installation lists.
const PACKAGES_MAX: i64 = 50;
/// The spans of the timeline: a quarter of each is to come.
const SPANS: [(&str, &str, u64); 5] = [
    ("15m", "15 min", 900),
    ("30m", "30 min", 1_800),
    ("2h", "2 h", 7_200),
    ("12h", "12 h", 43_200),
    ("24h", "24 h", 86_400),
];
const USUAL_SPAN: &str = "30m";

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct NowQuery {
    /// How much time the timeline shows: `15m`, `30m`, `2h`, `12h` or `24h`
    pub span: Option<String>,
}

/// What the page shows.
struct Now {
    clock: Clock,
    /// The name of the timeline's span.
    span: &'static str,
    window: Window,
    symptoms: Symptoms,
    overview: Overview,
    unfinished: Unfinished,
    schedules: i64,
    runs: Vec<OldRun>,
    /// Backfills whose launches failed lately.
    backfills: Vec<FailedBackfill>,
    /// How long launches of a schedule usually take.
    usual: HashMap<ScheduleId, Duration>,
    next: Vec<NextSlot>,
    /// How many launches succeeded and failed in this hour of the 7 days before, all together.
    same_hour: (i64, i64),
    /// The coming slots of the schedules that come next.
    planned: HashMap<ScheduleId, Vec<Timestamp>>,
    /// Each schedule's id and package, of those that come next.
    known: HashMap<String, (ScheduleId, String)>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let clock = visit.clock();
    let (name, seconds) = wanted_span(call.query.question::<NowQuery>()?.span.as_deref())?;
    let window = Window {
        from: clock.now.minus(Duration::from_secs(seconds / 4 * 3)),
        to: clock.now.plus(Duration::from_secs(seconds / 4)),
    };
    let symptoms = probes::symptoms(call).await?;
    let mut tx = call.read().await?;
    if launch::list(&mut tx, None, 1).await?.is_empty() {
        let packages = packages::list(&mut tx, None, None, PACKAGES_MAX).await?;
        return View::with_head(
            "Now",
            empty::verdict(&symptoms),
            empty::steps(visit, &packages),
        );
    }
    let overview = Overview::read(&mut tx, clock.now.minus(HOUR).min(window.from)).await?;
    let next = stats::next_slots(&mut tx, PLANNED_MAX).await?;
    let (planned, known) = planned(&mut tx, &next, window).await?;
    let runs = stats::oldest_runs(&mut tx, RUNS_MAX).await?;
    let now = Now {
        clock,
        span: name,
        window,
        usual: usual(&mut tx, &overview.recent, &runs).await?,
        backfills: backfills::failed_lately(&mut tx, clock.now).await?,
        unfinished: stats::unfinished_by_status(&mut tx).await?,
        same_hour: rollups::same_hour_before(&mut tx, clock.now).await?,
        schedules: troubles::schedules(&mut tx, COUNTED_MAX).await?,
        symptoms,
        overview,
        runs,
        next,
        planned,
        known,
    };
    drop(tx);
    let main = html! {
        div.grid {
            (tiles::tiles(&now))
            (trouble::card(visit, &now))
            div.stack.w4 { (running(&now)) (coming(&now)) }
            (timeline_card(&now))
        }
    };
    View::with_head("Now", verdict(visit, &now), main)
}

fn wanted_span(wanted: Option<&str>) -> Result<(&'static str, u64)> {
    let wanted = wanted.unwrap_or(USUAL_SPAN);
    let found = SPANS.iter().find(|(name, ..)| *name == wanted);
    let found = found.map(|(name, _, seconds)| (*name, *seconds));
    found.ok_or_else(|| {
        let names = SPANS.map(|(name, ..)| name).join(", ");
        ApiProblem::invalid(format!(
            "`span` is {wanted:?}, and the timeline has {names}"
        ))
    })
}

/// Returns how long launches usually take: the median of the newest that succeeded, of the newest decisions or, for a schedule
/// that runs now, of its own newest ones.
async fn usual(
    tx: &mut Tx,
    recent: &[RecentLaunch],
    runs: &[OldRun],
) -> std::result::Result<HashMap<ScheduleId, Duration>, DbError> {
    /// The newest successes that count, among so many of the newest slots.
    const COUNTED: i64 = 11;
    const SEARCHED: i64 = 50;
    let mut took: HashMap<ScheduleId, Vec<Duration>> = HashMap::new();
    for launch in recent {
        let times = launch.started_at.zip(launch.finished_at);
        if let Some((start, end)) = times.filter(|_| launch.status == LaunchStatus::Succeeded) {
            let took = took.entry(launch.schedule_id).or_default();
            took.push(end.since(start));
        }
    }
    for run in runs {
        if took.contains_key(&run.schedule_id) {
            continue;
        }
        let ended = stats::successes(tx, run.schedule_id, COUNTED, SEARCHED).await?;
        let ended = ended.iter().map(|(start, end)| end.since(*start));
        took.insert(run.schedule_id, ended.collect());
    }
    let middle = |(id, mut took): (ScheduleId, Vec<Duration>)| {
        took.sort_unstable();
        Some((id, *took.get(took.len() / 2)?))
    };
    Ok(took.into_iter().filter_map(middle).collect())
}

/// The coming slots of schedules, and what is known of those by name.
type Planned = (
    HashMap<ScheduleId, Vec<Timestamp>>,
    HashMap<String, (ScheduleId, String)>,
);

/// Returns the slots in the window of the schedules that come next.
async fn planned(
    tx: &mut Tx,
    next: &[NextSlot],
    window: Window,
) -> std::result::Result<Planned, DbError> {
    let names = next.iter().filter(|next| next.slot < window.to);
    let names = Vec::from_iter(names.map(|next| next.schedule.as_str()));
    let (mut slots, mut known) = (HashMap::new(), HashMap::new());
    for row in schedules::named(tx, &names).await? {
        let package = row.definition.package.clone();
        known.insert(row.definition.name.clone(), (row.state.id, package));
        let Ok(rule) = schedule::rule(&row) else {
            continue;
        };
        let policies = definition::policies(&row.definition).unwrap_or_default();
        let after = window.from.max(row.state.cursor_at);
        let coming = schedule::slots(&row, &rule, &policies, Some(after), after);
        let coming = coming.take_while(|slot| *slot < window.to);
        slots.insert(row.state.id, coming.take(SLOTS_MAX).collect());
    }
    Ok((slots, known))
}

impl Now {
    /// Whether a symptom is about schedules that the troubles have anyway.
    fn is_shown_elsewhere(symptom: &Symptom) -> bool {
        matches!(
            symptom,
            Symptom::Failing { .. }
                | Symptom::FailedWithin { .. }
                | Symptom::LastEnded { .. }
                | Symptom::MostlySkipped { .. }
                | Symptom::AlertsFiring { .. }
        )
    }

    /// Returns the symptoms that make the installation unhealthy, or those to look at, that no schedule's trouble says.
    fn others(symptoms: &[Symptom]) -> impl Iterator<Item = &Symptom> + Clone {
        symptoms
            .iter()
            .filter(|symptom| !Now::is_shown_elsewhere(symptom))
    }

    fn is_stuck(&self, run: &OldRun) -> bool {
        let usual = self.usual.get(&run.schedule_id);
        usual.is_some_and(|usual| looks_stuck(self.clock.now.since(run.started_at), *usual))
    }
}

/// Says in one sentence how things are.
fn verdict(visit: &Visit, now: &Now) -> Markup {
    let overview = &now.overview;
    let failing = overview.failing();
    let stuck = now.runs.iter().filter(|run| now.is_stuck(run)).count();
    let issues = Now::others(&now.symptoms.issues).count();
    let notes = Now::others(&now.symptoms.notes).count();
    let pending = usize::from(visit.attention.pending > 0);
    let looks = overview.troubles.len() + notes + stuck + pending + now.backfills.len();
    let signs = &now.symptoms.signs;
    let symptoms = now.symptoms.issues.iter().chain(&now.symptoms.notes);
    let is_drained = |symptom: &&Symptom| matches!(symptom, Symptom::HostDrained { .. });
    let drained = symptoms.filter(is_drained).count();
    let stopped = signs.live_hosts == 0 && now.schedules > 0;
    let (class, what) = if stopped {
        ("bad", "No host serves: nothing is launched".to_owned())
    } else if failing > 0 {
        let is = if failing == 1 { "is" } else { "are" };
        let (all, s) = (
            at_most(now.schedules, COUNTED_MAX),
            if now.schedules == 1 { "" } else { "s" },
        );
        (
            "bad",
            format!("{failing} of {all} schedule{s} {is} failing"),
        )
    } else if signs.overdue_schedules > 0 {
        (
            "bad",
            format!(
                "{} late",
                counted(signs.overdue_schedules.unsigned_abs(), "schedule")
            ),
        )
    } else if issues > 0 {
        (
            "bad",
            format!("{} to mend", counted(issues as u64, "thing")),
        )
    } else if looks > 0 {
        (
            "warn",
            format!(
                "Nothing keeps failing; {} to look at",
                counted(looks as u64, "thing")
            ),
        )
    } else {
        ("ok", "All on time".to_owned())
    };
    let since = overview
        .troubles
        .iter()
        .filter_map(|trouble| trouble.since)
        .min();
    let causes = overview
        .troubles
        .iter()
        .filter(|trouble| trouble.since.is_some())
        .count();
    let rest = now.schedules - failing as i64;
    html! {
        section.verdict.(class) role="status" aria-labelledby="verdict" {
            svg viewBox="0 0 28 28" aria-hidden="true" {
                circle cx="14" cy="14" r="14" {}
                path d=(if class == "ok" { "M8 14.5l4 4 8-9" } else { "M14 7v8M14 20v.5" }) {}
            }
            div {
                h1 #verdict { (what) @if stuck > 0 && failing > 0 { ", " (stuck) @if stuck == 1 { " looks" } @else { " look" } " stuck" } }
                p.far {
                    @if let Some(since) = since { "Since " (time(since, now.clock)) " (" (moment(since, now.clock)) "). " (counted(causes as u64, "cause")) ". " }
                    @if failing > 0 && rest > 0 && !stopped { "The other " (at_most(rest, COUNTED_MAX - failing as i64)) " don't keep failing. " }
                    (counted(signs.live_hosts.unsigned_abs(), "host")) @if signs.live_hosts == 1 { " serves" } @else { " serve" }
                    @if drained > 0 { ", " (drained) " of them drained" }
                    @if now.unfinished.open > 0 { ", " (counted(now.unfinished.open.unsigned_abs(), "launch")) " waiting for a host" }
                    ". As of " (time(now.clock.now, now.clock)) "."
                }
            }
            @if visit.attention.firing > 0 {
                div.actions { (button(visit, "/alerts", "silence", "Silence all 1 h", &[("rule", "*"), ("subject", "*"), ("for", "1h")])) }
            }
        }
    }
}

fn running(now: &Now) -> Markup {
    let all = links::query(&[("status", "running,waiting")]);
    html! {
        section.card aria-labelledby="running" {
            header { h2 #running { "Running now" } a.far href={ "/launches" (all) } { (counted(now.unfinished.running.unsigned_abs(), "run")) } }
            @if now.runs.is_empty() { p.more { "Nothing runs now." } }
            @for run in now.runs.iter().take(LISTED) {
                @let lasted = now.clock.now.since(run.started_at);
                @let usual = now.usual.get(&run.schedule_id);
                div.row {
                    div {
                        a.name href=(links::path(&["launches", &run.launch.to_string()])) { (line(&run.schedule)) }
                        br;
                        @if now.is_stuck(run) { (super::parts::badge_of("warn", "stuck?")) " " }
                        @else if run.status == LaunchStatus::Waiting { (super::parts::badge("waiting")) " " }
                        span.far { (span(lasted)) @match usual { Some(usual) => { " of about " (span(*usual)) }, None => ", no usual time yet" } }
                    }
                    @if let Some(usual) = usual { (charts::against(lasted, *usual, run.status.as_str())) }
                }
            }
        }
    }
}

fn coming(now: &Now) -> Markup {
    html! {
        section.card aria-labelledby="next" {
            header { h2 #next { "Next" } a.far href="/plan" { "plan" } }
            @if now.next.is_empty() { p.more { "No schedule has a next slot." } }
            @for (place, next) in now.next.iter().take(LISTED).enumerate() {
                @let usual = now.known.get(&next.schedule).and_then(|(id, _)| now.usual.get(id));
                div.row.rest[place >= LISTED_ON_PHONE] {
                    a.name href=(links::path(&["schedules", &next.schedule])) { (line(&next.schedule)) }
                    span { @if next.slot < now.clock.now { (super::parts::badge("late")) " " } (moment(next.slot, now.clock)) }
                    span.far { @if let Some(usual) = usual { "~" (span(*usual)) } }
                }
            }
        }
    }
}

/// Shows the launches around now: schedules in trouble one by one, all others in a lane for their package.
fn timeline_card(now: &Now) -> Markup {
    let mut by_schedule: HashMap<ScheduleId, Vec<&RecentLaunch>> = HashMap::new();
    for launch in &now.overview.recent {
        by_schedule
            .entry(launch.schedule_id)
            .or_default()
            .push(launch);
    }
    let next: HashMap<&str, Timestamp> = now
        .next
        .iter()
        .map(|next| (next.schedule.as_str(), next.slot))
        .collect();
    let troubles = now
        .overview
        .troubles
        .iter()
        .flat_map(|trouble| &trouble.schedules);
    let running = now.runs.iter().filter(|run| now.is_stuck(run));
    let running = running.map(|run| (run.schedule_id, run.schedule.as_str()));
    let singled = troubles
        .map(|(id, name)| (*id, name.as_str()))
        .chain(running);
    let mut seen = HashSet::new();
    let singled = singled.filter(|(id, _)| seen.insert(*id)).take(LANES_MAX);
    let singled = Vec::from_iter(singled);
    let around = (now.window, now.clock.now);
    let none = Vec::new();
    let after =
        |slot: Option<Timestamp>| html! { @if let Some(slot) = slot { (moment(slot, now.clock)) } };
    let lane = |(id, name): &(ScheduleId, &str)| {
        let launches = by_schedule.get(id).into_iter().flatten().copied();
        let planned = now.planned.get(id).unwrap_or(&none);
        let texts = (links::schedule(name), after(next.get(name).copied()));
        Lane::new(texts, launches, planned, now.usual.get(id).copied(), around)
    };
    let troubled = Vec::from_iter(singled.iter().map(lane));
    let is_singled = |id: &ScheduleId| singled.iter().any(|(other, _)| other == id);
    // The schedules of each package: of those that were decided lately, or come next.
    let mut packages: BTreeMap<&str, HashMap<ScheduleId, &str>> = BTreeMap::new();
    for launch in &now.overview.recent {
        if let Some(name) = now.overview.names.get(&launch.schedule_id) {
            let of = packages.entry(&launch.package).or_default();
            of.insert(launch.schedule_id, name);
        }
    }
    for (name, (id, package)) in &now.known {
        packages.entry(package).or_default().insert(*id, name);
    }
    let of_package = |(package, schedules): (&&str, &HashMap<ScheduleId, &str>)| {
        let rest = Vec::from_iter(schedules.iter().filter(|(id, _)| !is_singled(id)));
        if rest.is_empty() {
            return None;
        }
        let launches = rest.iter().filter_map(|(id, _)| by_schedule.get(id));
        let planned = rest.iter().filter_map(|(id, _)| now.planned.get(id));
        let planned: Vec<Timestamp> = planned.flatten().copied().collect();
        let first = rest.iter().filter_map(|(_, name)| next.get(**name)).min();
        let label = html! { (links::package(package)) " " span.far { (rest.len()) } };
        let texts = (label, after(first.copied()));
        Some(Lane::new(
            texts,
            launches.flatten().copied(),
            &planned,
            None,
            around,
        ))
    };
    let calm = Vec::from_iter(packages.iter().filter_map(of_package).take(LANES_MAX));
    let is_cut = now.overview.complete_from > now.window.from;
    html! {
        section.card.w12 aria-labelledby="timeline" {
            header {
                h2 #timeline { "Timeline" }
                nav.filters aria-label="Span of the timeline" {
                    @for (name, words, _) in SPANS {
                        a href={ "/?span=" (name) } aria-current=[(name == now.span).then_some("true")] { (words) }
                    }
                }
                span.far { (timeline::legend()) }
            }
            (timeline::lanes(&[("", troubled), ("no trouble, one row a package", calm)], "next", now.window, now.clock))
            p.more {
                "Each bar is a launch, from its start to its end. The line is now. "
                @if is_cut { "Only the newest 2,000 decisions are drawn, since " (time(now.overview.complete_from, now.clock)) ". " }
                a href="/launches" { "As a table" }
            }
        }
    }
}

/// Returns why a launch did not succeed, in short.
pub(super) fn why(row: &LaunchRow) -> Markup {
    /// The most characters of a message in a list.
    const SHOWN_MAX: usize = 120;
    let message = row.message.as_deref().unwrap_or_default();
    let message = message.lines().next().unwrap_or_default();
    html! {
        @if let Some(reason) = &row.reason { (line(reason)) " " }
        @if let Some(failure) = row.failure { (failure.as_str()) " " }
        (short(message, SHOWN_MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_one_of_the_list() {
        assert_eq!(wanted_span(None).unwrap(), ("30m", 1_800));
        assert_eq!(wanted_span(Some("24h")).unwrap().1, 86_400);
        assert!(wanted_span(Some("1y")).is_err());
    }
}
