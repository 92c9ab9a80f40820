//! The list of schedules as one dense table: the state of each, how its last launches went, and when it runs next. Or as a grid:
//! how the launches of each went hour by hour, or day by day.

mod grid;

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::charts::{self, BARS, Bar, percent};
use super::parts::{self, ActionForm, badge_of, command, empty, field, next_page, one_of};
use super::words::{Clock, at_most, counted, line, moment, rough, shell, short, span};
use super::{View, Visit, links, new_schedule};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::schedule::{self, ScheduleRecord};
use campanile_control::reports::overview::{Overview, TroubleKind};
use campanile_control::reports::rollups::{self, RollupSpan, UnsealedLaunches};
use campanile_control::rules::lateness::looks_stuck;
use campanile_control::schedules::schedule_search::{ScheduleState, Search};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::rollup::Rollup;
use campanile_store::schedules::{self, Schedule};
use campanile_store::troubles::{self, RecentLaunch, Streak};
use campanile_store::{DbError, LaunchStatus, Tx};

/// The schedules of a page.
const SHOWN_MAX: usize = 100;
/// Up to this many schedules are counted.
pub(super) const COUNTED_MAX: i64 = 1_000;
/// The most characters of a note and of a rule in the list.
const NOTE_MAX: usize = 120;
const RULE_MAX: usize = 40;
/// How far back the newest decisions count for flaky schedules and those that skip slots.
const RECENT: Duration = Duration::from_secs(24 * 3_600);

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ListQuery {
    pub after: Option<String>,
    pub q: Option<String>,
    /// A state: `failing`, `never`, `flaky`, `skips`, `running`, `paused`, `enabled` or `ended`
    pub state: Option<String>,
    /// What the rows of a page are sorted by: `name`, `state`, `last`, `slowest`, `success` or `next`
    pub sort: Option<String>,
    /// What the rows are grouped by: `package` or `none`
    pub group: Option<String>,
    /// How the schedules are shown: `list` or `grid`
    pub view: Option<String>,
    /// How far the grid looks back: `24h` or `30d`
    pub span: Option<String>,
}

/// The filters that a chip shows: the word in the query, the one on the page, and the class of its number.
const CHIPS: [(&str, &str, &str); 6] = [
    ("failing", "Failing", "bad"),
    ("never", "Never succeeded", "bad"),
    ("flaky", "Flaky", "warn"),
    ("skips", "Skips slots", "warn"),
    ("running", "Running", ""),
    ("paused", "Paused", ""),
];
const SORTS: [&str; 6] = ["name", "state", "last", "slowest", "success", "next"];
const GROUPS: [&str; 2] = ["package", "none"];
const VIEWS: [&str; 2] = ["list", "grid"];
const SPANS: [&str; 2] = ["24h", "30d"];

/// The schedules of each chip.
type Chips = HashMap<&'static str, Vec<ScheduleId>>;

/// A schedule of the list.
struct Listed {
    record: ScheduleRecord,
    rule: String,
    /// The newest launches, the newest first.
    newest: Vec<RecentLaunch>,
    streak: Option<Streak>,
    trouble: Option<TroubleKind>,
    is_running: bool,
    /// How launches went in each period of the span.
    periods: BTreeMap<Timestamp, Rollup>,
}

/// What the page shows besides the schedules.
struct Shown {
    /// The span of the grid; the list has its first 24 hours.
    span: RollupSpan,
    is_grid: bool,
    is_grouped: bool,
    sort: &'static str,
    clock: Clock,
    counted_until: Timestamp,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let clock = visit.clock();
    let query: ListQuery = call.query.question()?;
    // A form that was not done has the search too.
    let or_typed = |value: Option<String>, name| {
        let typed = || visit.typed.given(name).map(str::to_owned);
        value.or_else(typed).unwrap_or_default()
    };
    let (wanted, state) = (or_typed(query.q, "q"), or_typed(query.state, "state"));
    let (wanted, state) = (wanted.trim(), state.as_str());
    let sort = one_of("sort", query.sort.as_deref(), &SORTS)?;
    let group = one_of("group", query.group.as_deref(), &GROUPS)?;
    let is_grid = one_of("view", query.view.as_deref(), &VIEWS)? == "grid";
    let span = match one_of("span", query.span.as_deref(), &SPANS)? {
        "30d" if is_grid => RollupSpan::DAYS_30,
        _ => RollupSpan::HOURS_24,
    };
    let after = query.after.unwrap_or_default();
    let mut tx = call.read().await?;
    let overview = Overview::read(&mut tx, clock.now.minus(RECENT)).await?;
    let chips = chips(&mut tx, &overview).await?;
    let total = at_most(
        troubles::schedules(&mut tx, COUNTED_MAX).await?,
        COUNTED_MAX,
    );
    let chip = CHIPS
        .iter()
        .find(|(word, ..)| *word == state && *word != "paused");
    let (rows, next) = match chip {
        Some((word, ..)) => {
            let ids = chips.get(word).map(Vec::as_slice).unwrap_or_default();
            let ids = ids.get(..ids.len().min(SHOWN_MAX)).unwrap_or_default();
            let mut rows = schedules::with_ids(&mut tx, ids).await?;
            let wanted = wanted.to_lowercase();
            rows.retain(|row| row.definition.name.to_lowercase().contains(&wanted));
            (rows, None)
        }
        None => {
            let in_state = Some(state).filter(|state| !state.is_empty());
            let in_state = in_state.map(ScheduleState::read).transpose();
            let in_state = in_state.map_err(|why| unknown_state(state, &why))?;
            let search = Search {
                text: wanted,
                state: in_state,
                is_paused: None,
            };
            let found = search.find(&mut tx, &after, SHOWN_MAX).await?;
            (found.rows, found.next)
        }
    };
    let running = chips.get("running").cloned().unwrap_or_default();
    let mut listed = read(&mut tx, rows, &overview, &running).await?;
    let counted_until = read_periods(&mut tx, &mut listed, span, clock.now).await?;
    drop(tx);
    listed.sort_by(|a, b| a.record.name().cmp(b.record.name()));
    sort_by(&mut listed, sort, clock.now);
    if group == "package" && sort == "name" {
        listed.sort_by(|a, b| a.package().cmp(b.package()));
    }
    let is_grouped = group == "package" && sort == "name" && listed.len() > 1;
    let is_filtered = !wanted.is_empty() || !state.is_empty();
    let shown = Shown {
        span,
        is_grid,
        is_grouped,
        sort,
        clock,
        counted_until,
    };
    let head = html! {
        div.head {
            h1 { "Schedules" }
            (filters(visit, &chips, &total, state))
            (views(visit, &shown))
            div.actions {
                form.filter method="get" action="/schedules" role="search" aria-label="Schedules" {
                    @if !state.is_empty() { input type="hidden" name="state" value=(line(state)); }
                    @if is_grid { input type="hidden" name="view" value="grid"; }
                    input type="search" name="q" value=(line(wanted)) placeholder="name, package, note" aria-label="Search schedules" maxlength="500";
                    button { "Search" }
                }
                a.button href=(new_schedule::PATH) { "New schedule" }
                @if !listed.is_empty() { (forms(visit, wanted, state)) }
            }
        }
    };
    let main = html! {
        @if listed.is_empty() && next.is_some() {
            p { "No schedule was found so far; the next page searches on." }
        } @else if listed.is_empty() && is_filtered {
            (empty("No schedule matches.", html! { a href="/schedules" { "Show all schedules" } ", or search for another text." }))
        } @else if listed.is_empty() {
            (empty("There is no schedule yet.", html! {
                a href=(new_schedule::PATH) { "Add one" } ", or write " code { "campanile schedule add nightly --package backup --cron '0 2 * * *'" } ". "
                a href="/packages" { "Packages" } " lists what can be launched."
            }))
        } @else {
            section.card {
                @if is_grid { (grid::grid(visit, &listed, &shown)) }
                @else { div.wide tabindex="0" role="region" aria-label="Schedules" { (table(visit, &listed, &shown)) } }
                p.more {
                    (listed.len()) " of " (total) " · "
                    @if is_grid { (grid::legend()) } @else { "bars: the height is the duration, the colour the outcome" } " · "
                    (charts::counted_until(shown.counted_until, clock))
                    @if is_grouped { a href=(here(visit, "group", "none")) { "don't group" } }
                    @else { a href=(here(visit, "group", "package")) { "group by package" } }
                }
                div.more { (command(&match after.as_str() {
                    "" => "campanile schedule list".to_owned(),
                    after => format!("campanile schedule list --after {}", shell(after)),
                })) }
            }
        }
        (next_page(visit, next.as_deref()))
    };
    View::with_head("Schedules", head, main)
}

fn unknown_state(state: &str, why: &str) -> ApiProblem {
    let chips = CHIPS.map(|(word, ..)| word).join(", ");
    let problem = ApiProblem::invalid(format!("`state` {why}"));
    problem.hint(format!(
        "{state:?} is no filter of this page either, which are {chips}"
    ))
}

/// Returns the address of this page with another value of one parameter, on the first page of the list.
fn here(visit: &Visit, name: &str, value: &str) -> String {
    let given = ["q", "state", "sort", "group", "view", "span"].map(|other| {
        let value = if other == name {
            value
        } else {
            parts::given(visit, other)
        };
        (other, value)
    });
    format!("/schedules{}", links::query(&given))
}

async fn chips(tx: &mut Tx, overview: &Overview) -> std::result::Result<Chips, DbError> {
    let of = |kinds: &[TroubleKind]| -> Vec<ScheduleId> {
        let schedules = kinds.iter().flat_map(|kind| overview.schedules_in(*kind));
        schedules.map(|(id, _)| *id).collect()
    };
    let most = SHOWN_MAX as i64;
    Ok(Chips::from([
        (
            "failing",
            of(&[TroubleKind::Failing, TroubleKind::NeverSucceeded]),
        ),
        ("never", of(&[TroubleKind::NeverSucceeded])),
        ("flaky", of(&[TroubleKind::Flaky])),
        ("skips", of(&[TroubleKind::SkipsSlots])),
        ("running", troubles::running(tx, most).await?),
        ("paused", troubles::paused(tx, most).await?),
    ]))
}

async fn read(
    tx: &mut Tx,
    rows: Vec<Schedule>,
    overview: &Overview,
    running: &[ScheduleId],
) -> std::result::Result<Vec<Listed>, DbError> {
    let ids = Vec::from_iter(rows.iter().map(|row| row.state.id));
    let streaks = troubles::streaks(tx, &ids).await?;
    let streaks: HashMap<ScheduleId, Streak> = streaks
        .into_iter()
        .map(|streak| (streak.schedule_id, streak))
        .collect();
    let mut kinds: HashMap<ScheduleId, TroubleKind> = HashMap::new();
    for trouble in &overview.troubles {
        for (id, _) in &trouble.schedules {
            kinds.entry(*id).or_insert(trouble.kind);
        }
    }
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let id = row.state.id;
        listed.push(Listed {
            newest: troubles::newest_of(tx, id, BARS as i64).await?,
            streak: streaks.get(&id).copied(),
            trouble: kinds.get(&id).copied(),
            is_running: running.contains(&id),
            rule: rule_in_words(&row),
            record: ScheduleRecord::new(row),
            periods: BTreeMap::new(),
        });
    }
    Ok(listed)
}

/// Reads how the launches of schedules went in a span; returns up to when they count.
async fn read_periods(
    tx: &mut Tx,
    listed: &mut [Listed],
    span: RollupSpan,
    now: Timestamp,
) -> std::result::Result<Timestamp, DbError> {
    let ids = Vec::from_iter(listed.iter().map(|one| one.record.row.state.id));
    let unsealed = UnsealedLaunches::read(tx, now).await?;
    let mut found = rollups::of_schedules(tx, &ids, span, &unsealed, now).await?;
    for one in listed {
        let periods = found.remove(&one.record.row.state.id);
        one.periods = periods.unwrap_or_default();
    }
    Ok(unsealed.counted_until)
}

/// Returns the rule in a few words, with the zone if it isn't UTC: `At 02:30 on Monday to Friday, Paris`.
fn rule_in_words(row: &Schedule) -> String {
    let text = &row.definition.rule;
    let zone = text.timezone.rsplit('/').next().unwrap_or_default();
    let zone = if text.timezone == "UTC" {
        String::new()
    } else {
        format!(", {}", zone.replace('_', " "))
    };
    let written = match text.kind.as_str() {
        "cron" => text.expression.clone(),
        kind => format!("{} {}", kind.replace('_', " "), text.expression),
    };
    if text.kind.as_str() != "cron" {
        return written;
    }
    let rule = schedule::rule(row).ok();
    let words = rule.and_then(|rule| rule.cron_sentence());
    let words = words.filter(|words| words.chars().count() <= RULE_MAX);
    format!("{}{zone}", words.unwrap_or(written))
}

impl Listed {
    fn package(&self) -> &str {
        &self.record.row.definition.package
    }

    /// Returns how long its launches take, in the middle and at most but for one in twenty.
    fn durations(&self) -> Option<(Duration, Duration)> {
        let succeeded = self
            .newest
            .iter()
            .filter(|launch| launch.status == LaunchStatus::Succeeded);
        let took =
            succeeded.filter_map(|launch| Some(launch.finished_at?.since(launch.started_at?)));
        let mut took = Vec::from_iter(took);
        took.sort_unstable();
        let last = took.len().checked_sub(1)?;
        Some((*took.get(last / 2)?, *took.get(last * 95 / 100)?))
    }

    /// Whether a launch of it has been running for much longer than usual.
    fn is_stuck(&self, now: Timestamp) -> bool {
        let Some((usual, _)) = self.durations() else {
            return false;
        };
        let running = self.newest.iter();
        let mut running = running.filter(|launch| launch.status == LaunchStatus::Running);
        running.any(|launch| {
            (launch.started_at).is_some_and(|started_at| looks_stuck(now.since(started_at), usual))
        })
    }

    /// Returns how its launches went in the span.
    fn sum(&self) -> Rollup {
        rollups::sum(self.periods.values())
    }

    /// Returns the share of its launches that succeeded, in millionths; none without a launch that ended.
    fn success(&self) -> Option<i64> {
        let sum = self.sum();
        (sum.ended() > 0).then(|| sum.succeeded * 1_000_000 / sum.ended())
    }

    /// Returns when it last started or, without a run, was decided.
    fn last(&self) -> Option<Timestamp> {
        let started = self.newest.iter().filter_map(|launch| launch.started_at);
        started.max()
    }

    fn is_paused(&self) -> bool {
        self.record.row.state.paused_at.is_some()
    }

    /// Returns how urgently a person should look, the most urgent first.
    fn rank(&self, now: Timestamp) -> u8 {
        match self.trouble {
            Some(TroubleKind::NeverSucceeded | TroubleKind::Failing) => 0,
            Some(_) => 1,
            None if self.is_stuck(now) => 1,
            None if self.is_paused() => 2,
            None if self.is_running => 3,
            None => 4,
        }
    }
}

fn sort_by(listed: &mut [Listed], sort: &str, now: Timestamp) {
    match sort {
        "state" => {
            listed.sort_by_key(|one| (one.rank(now), one.streak.and_then(|it| it.failing_since)))
        }
        "last" => listed.sort_by_key(|one| Reverse(one.last())),
        "slowest" => listed.sort_by_key(|one| Reverse(one.durations().map(|(_, late)| late))),
        "success" => listed.sort_by_key(|one| one.success().unwrap_or(i64::MAX)),
        "next" => listed.sort_by_key(|one| {
            one.record
                .row
                .state
                .next_slot
                .unwrap_or(now.plus(RECENT * 100_000))
        }),
        _ => {}
    }
}

fn filters(visit: &Visit, chips: &Chips, total: &str, state: &str) -> Markup {
    let shown = CHIPS.iter().filter_map(|(word, name, class)| {
        let count = chips.get(word).map_or(0, Vec::len);
        (count > 0 || *word == state).then_some((*word, *name, *class, count))
    });
    html! {
        nav.filters aria-label="Filters" {
            a href="/schedules" aria-current=[state.is_empty().then_some("true")] { "All " span.count { (total) } }
            @for (word, name, class, count) in shown {
                a href=(here(visit, "state", word)) aria-current=[(word == state).then_some("true")] {
                    (name) " " span.count.(class) { (count) @if count == SHOWN_MAX { "+" } }
                }
            }
        }
    }
}

/// Links to the list, and to the grid with its spans.
fn views(visit: &Visit, shown: &Shown) -> Markup {
    let is_shown = |span| (shown.is_grid && shown.span == span).then_some("true");
    let grid = |span: &str| {
        let others = ["q", "state", "sort", "group"].map(|name| (name, parts::given(visit, name)));
        let view = [("view", "grid"), ("span", span)];
        format!("/schedules{}", links::query(&[&others[..], &view].concat()))
    };
    html! {
        nav.filters aria-label="Views" {
            a href=(here(visit, "view", "")) aria-current=[(!shown.is_grid).then_some("true")] { "List" }
            a href=(grid("24h")) aria-current=[is_shown(RollupSpan::HOURS_24)] { "Grid, 24 hours" }
            a href=(grid("30d")) aria-current=[is_shown(RollupSpan::DAYS_30)] { "30 days" }
        }
    }
}

/// Links to the same list with other rows first.
fn sort_link(visit: &Visit, shown: &Shown, by: &str, words: &str) -> Markup {
    html! { a href=(here(visit, "sort", by)) { (words) @if by == shown.sort { " ▾" } } }
}

fn table(visit: &Visit, listed: &[Listed], shown: &Shown) -> Markup {
    let head = |by: &str, words: &str| sort_link(visit, shown, by, words);
    html! {
        table.cards {
            thead {
                tr {
                    th scope="col" { (head("name", "Schedule")) }
                    th scope="col" { (head("state", "State")) }
                    th scope="col" { "Rule" }
                    th scope="col" { "Last launches" }
                    th.number scope="col" { (head("last", "Last")) }
                    th.number.mid scope="col" { (head("slowest", "Takes p50 · p95")) }
                    th.number scope="col" { (head("success", "Success 24 h")) }
                    th.number scope="col" { (head("next", "Next")) }
                }
            }
            tbody {
                @for (place, one) in listed.iter().enumerate() {
                    @let before = place.checked_sub(1).and_then(|before| listed.get(before));
                    @if shown.is_grouped && before.is_none_or(|before| before.package() != one.package()) { (group_row(listed, one.package(), shown.clock.now)) }
                    (row(one, shown.is_grouped, shown.clock))
                }
            }
        }
    }
}

fn group_row(listed: &[Listed], package: &str, now: Timestamp) -> Markup {
    html! { tr.group { td colspan="8" { (group_words(listed, package, now)) } } }
}

fn group_words(listed: &[Listed], package: &str, now: Timestamp) -> Markup {
    let of = listed.iter().filter(|one| one.package() == package);
    let failing = of.clone().filter(|one| one.rank(now) == 0).count();
    html! {
        strong { (links::package(package)) } " · " (counted(of.count() as u64, "schedule"))
        @if failing > 0 { " · " span.bad-text { (failing) " failing" } }
    }
}

fn row(one: &Listed, is_grouped: bool, clock: Clock) -> Markup {
    let row = &one.record.row;
    let bars = one
        .newest
        .iter()
        .rev()
        .map(|launch| Bar::of(launch, clock.now));
    let bars = Vec::from_iter(bars);
    let rank = one.rank(clock.now);
    let (fails, looks) = (rank == 0, matches!(rank, 1 | 2));
    html! {
        tr.fails[fails].looks[looks] {
            td {
                a.name href=(links::path(&["schedules", one.record.name()])) { (line(one.record.name())) }
                @if !is_grouped { " " span.far { (links::package(one.package())) } }
                @if one.is_paused() && row.state.pause_note.is_some() { br; span.far { (short(row.state.pause_note.as_deref().unwrap_or_default(), NOTE_MAX)) } }
            }
            td { (state(one, clock.now)) }
            td.rule.rest title=(line(&one.rule)) { (short(&one.rule, RULE_MAX + 20)) }
            td.spark { (charts::bars(&bars)) }
            td.number.rest { @if let Some(last) = one.last() { (moment(last, clock)) } @else { "never" } }
            td.number.rest.mid { @if let Some((middle, late)) = one.durations() { (span(middle)) " · " (span(late)) } @else { "–" } }
            td.number.rest { (success(&one.sum())) }
            td.number.next {
                @match row.state.next_slot {
                    Some(slot) if slot < clock.now => { (badge_of("warn", "late")) " " (moment(slot, clock)) },
                    Some(slot) => (moment(slot, clock)),
                    None => "–",
                }
            }
        }
    }
}

/// Shows the share of the launches that succeeded, with the counts as its title.
fn success(sum: &Rollup) -> Markup {
    let (succeeded, ended) = (sum.succeeded, sum.ended());
    html! {
        @if ended == 0 { "–" } @else {
            span.bad-text[sum.failed > 0] title={ (succeeded) " of " (counted(ended.unsigned_abs(), "launch")) } { (percent(succeeded, ended)) }
        }
    }
}

/// Shows what's not as usual; nothing for a schedule that is well.
fn state(one: &Listed, now: Timestamp) -> Markup {
    let since = one.streak.and_then(|streak| streak.failing_since);
    html! {
        @match (one.trouble, since) {
            (Some(TroubleKind::Failing), Some(since)) => (badge_of("bad", &format!("failing {}", rough(now.since(since))))),
            (Some(kind), _) => (parts::badge(kind.as_str())),
            (None, _) if one.is_stuck(now) => (badge_of("warn", "stuck?")),
            (None, _) if one.is_paused() => (parts::badge("paused")),
            (None, _) if one.is_running => (parts::badge("running")),
            (None, _) if one.record.state == "ended" => (badge_of("skip", "ended")),
            _ => "",
        }
    }
}

/// Shows the forms that change all schedules of the search, on all pages of the list.
fn forms(visit: &Visit, wanted: &str, state: &str) -> Markup {
    let hidden = [("q", wanted), ("state", state)];
    let of = match (wanted, state) {
        ("", "") => "all schedules".to_owned(),
        _ => "all schedules of this search".to_owned(),
    };
    let pause = ActionForm {
        action: "pause_many",
        label: "Pause them",
        hidden: &hidden,
        fields: html! {
            p { "Pause " (of) ", on all pages of the list, that are not paused. You see first how many these are." }
            (field(visit, "note", "Why", "for the record"))
            (field(visit, "until", "Until (UTC)", "2026-12-24T08:00 or empty"))
        },
        command: "campanile schedule pause NAME --note NOTE --until TIME".to_owned(),
    };
    let resume = ActionForm {
        action: "resume_many",
        label: "Resume them",
        hidden: &hidden,
        fields: html! {
            p { "Resume " (of) ", on all pages of the list, that are paused. You see first how many these are." }
            label {
                input type="checkbox" name="catch_up" value="yes" checked[visit.typed.given("catch_up").is_some()];
                " Apply their catch-up policies to the slots of the pause"
            }
        },
        command: "campanile schedule resume NAME --catch-up".to_owned(),
    };
    html! {
        details.menu open[!visit.typed.is_empty()] {
            summary { "Pause many" }
            div {
                @if state != "paused" { (pause.show(visit)) }
                @if state != "enabled" && state != "ended" { (resume.show(visit)) }
            }
        }
    }
}
