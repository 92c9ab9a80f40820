//! The events by day, one line each: who did what, and what happened.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parts::{badge_of, command, empty, filter, next_page};
use super::words::{Clock, counted, line, short, time};
use super::{View, Visit, links, parts};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_model::clock::Timestamp;
use campanile_model::ids::EventId;
use campanile_store::events::{self, Event, EventKind};
use campanile_store::{DbError, Tx, troubles};

/// The most lines of a page, and the most events that are folded into them.
const LINES_MAX: usize = 50;
const SHOWN_MAX: usize = 100;
/// The most events that a page of one group looks at, and how many a statement reads.
const LOOKED_AT_MAX: usize = 2_000;
const READ_AT_ONCE: i64 = 500;
/// The most characters of a detail and of a subject.
const DETAIL_MAX: usize = 250;
/// The most events of a folded line that it lists.
const FOLDED_MAX: usize = 20;
/// Timestamps of ids are whole milliseconds.
const MILLISECOND: Duration = Duration::from_millis(1);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct EventsQuery {
    pub after: Option<EventId>,
    /// A group of events: `hosts`, `packages`, `schedules`, `launches`, `alerts`, `access` or `system`
    pub kind: Option<String>,
    /// Only events about the host, package or schedule of this name
    pub subject: Option<String>,
}

/// The groups of events: the word in the query, and the one on the page.
const GROUPS: [(&str, &str); 7] = [
    ("hosts", "Hosts"),
    ("packages", "Packages"),
    ("schedules", "Schedules"),
    ("launches", "Launches"),
    ("alerts", "Alerts"),
    ("access", "Access"),
    ("system", "System"),
];

/// The names that lead to a page.
#[derive(Default)]
struct Known {
    schedules: HashSet<String>,
    packages: HashSet<String>,
}

/// Events that are one line: the newest, and others like it of the same day.
struct Line<'e> {
    day: String,
    events: Vec<&'e Event>,
}

/// What the page found.
struct Found {
    events: Vec<Event>,
    /// How many events were looked at.
    looked_at: usize,
    /// The last event that was looked at, if there may be more.
    next: Option<EventId>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let query: EventsQuery = call.query.question()?;
    let group = query.kind.as_deref().map(known_group).transpose()?;
    let subject = query.subject.as_deref().map(str::trim);
    let clock = visit.clock();
    let mut tx = call.read().await?;
    let found = find(&mut tx, query.after, group, subject).await?;
    let (lines, next) = fold(&found, clock);
    let known = known(&mut tx, &lines).await?;
    drop(tx);
    let same = match query.after {
        Some(after) => format!("campanile event list --after {after}"),
        None => "campanile event list".to_owned(),
    };
    let is_filtered = group.is_some() || subject.is_some();
    let main = html! {
        @if lines.is_empty() && next.is_some() {
            p { "None of the " (found.looked_at) " events looked at matches; the next page looks at older ones." }
        } @else if lines.is_empty() && is_filtered {
            (empty("No event matches.", html! { a href="/events" { "Show all events" } "." }))
        } @else if lines.is_empty() {
            (empty("No event is on record.", html! { "A host records its start: " code { "campanile serve" } "." }))
        } @else {
            div.stack { section.card {
                (table(&lines, &known, clock))
                @if group.is_some() { p.more { "Shown: " (found.events.len()) " of the " (found.looked_at) " newest events that were looked at." } }
                div.more { (command(&same)) }
            } }
        }
        (next_page(visit, next.map(|id| id.to_string()).as_deref()))
    };
    View::with_head("Events", head(visit, group), main)
}

fn known_group(word: &str) -> Result<&'static str> {
    let found = GROUPS.iter().find(|(group, _)| *group == word);
    found.map(|(group, _)| *group).ok_or_else(|| {
        let groups = GROUPS.map(|(group, _)| group).join(", ");
        ApiProblem::invalid(format!("`kind` is {word:?}, and can be {groups}"))
    })
}

/// Pure: returns the group of a kind of event.
fn group_of(kind: EventKind) -> &'static str {
    let word = kind.as_str();
    let begins = |starts: &[&str]| starts.iter().any(|start| word.starts_with(start));
    if begins(&["host_"]) {
        "hosts"
    } else if begins(&["package_", "version_", "quota_"]) {
        "packages"
    } else if begins(&["schedule", "slot_", "proposal_", "defaults_"]) {
        "schedules"
    } else if begins(&["launch_", "backfill_", "runs_", "message_"]) {
        "launches"
    } else if begins(&["alert_"]) {
        "alerts"
    } else if begins(&["token_", "request_"]) {
        "access"
    } else {
        "system"
    }
}

/// Returns the class of a kind of event: what went wrong, and what to look at.
fn class(kind: EventKind) -> &'static str {
    use EventKind as Kind;
    match kind {
        Kind::HostDied
        | Kind::PackageRejected
        | Kind::VersionRefused
        | Kind::VersionAltered
        | Kind::ScheduleRefused
        | Kind::SchedulesFileRejected
        | Kind::LaunchAbandoned
        | Kind::LaunchUnknown
        | Kind::MessageDead
        | Kind::AlertFired
        | Kind::AlertMessageDead
        | Kind::DatabaseDamaged
        | Kind::DiskLow => "bad",
        Kind::HostDrained
        | Kind::PackageMissing
        | Kind::QuotaExceeded
        | Kind::VersionPending
        | Kind::VersionBlocked
        | Kind::VersionDowngraded
        | Kind::PackageRolledBack
        | Kind::SchedulePaused
        | Kind::LaunchRecovered
        | Kind::RequestRefused
        | Kind::RunsRepeated
        | Kind::ClockStepped => "warn",
        _ => "plain",
    }
}

/// Returns the newest events that match: of a subject by its index, of a group among the newest ones.
async fn find(
    tx: &mut Tx,
    after: Option<EventId>,
    group: Option<&str>,
    subject: Option<&str>,
) -> std::result::Result<Found, DbError> {
    let limit = match group {
        Some(_) => READ_AT_ONCE,
        None => SHOWN_MAX as i64,
    };
    let mut found = Found {
        events: Vec::new(),
        looked_at: 0,
        next: after,
    };
    loop {
        let rows = match subject {
            Some(subject) => {
                let before = found.next.unwrap_or(EventId::LAST);
                let until = found.next.map(|id| id.time().plus(MILLISECOND));
                let until = until.unwrap_or(Timestamp::from_micros(i64::MAX));
                troubles::events_about(tx, subject, until, before, limit).await?
            }
            None => events::list(tx, found.next, limit).await?,
        };
        let is_full = rows.len() as i64 >= limit;
        found.looked_at += rows.len();
        found.next = rows.last().filter(|_| is_full).map(|row| row.id);
        let matching = rows
            .into_iter()
            .filter(|row| group.is_none_or(|group| group_of(row.kind) == group));
        found.events.extend(matching);
        let is_enough = found.events.len() >= SHOWN_MAX || found.looked_at >= LOOKED_AT_MAX;
        if is_enough || found.next.is_none() || group.is_none() {
            break;
        }
    }
    if found.events.len() > SHOWN_MAX {
        found.events.truncate(SHOWN_MAX);
        found.next = found.events.last().map(|last| last.id);
    }
    Ok(found)
}

fn is_flap(kind: EventKind) -> bool {
    matches!(kind, EventKind::AlertFired | EventKind::AlertResolved)
}

/// Pure: folds events into lines, and returns the event after which the next page goes on.
///
/// All alerts of a subject that fired and were resolved on a day are one line, and so are events that say the same in a row.
fn fold(found: &Found, clock: Clock) -> (Vec<Line<'_>>, Option<EventId>) {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut last = None;
    for event in &found.events {
        let day = day(event.at, clock);
        let is_same = |line: &Line<'_>| {
            line.events.first().is_some_and(|first| {
                is_flap(first.kind) && first.subject == event.subject && line.day == day
            })
        };
        let is_copy = |line: &Line<'_>| {
            line.events.first().is_some_and(|first| {
                (first.kind, &first.subject, &first.detail)
                    == (event.kind, &event.subject, &event.detail)
                    && line.day == day
            })
        };
        let like = if is_flap(event.kind) {
            lines.iter().position(is_same)
        } else {
            lines
                .len()
                .checked_sub(1)
                .filter(|_| lines.last().is_some_and(is_copy))
        };
        match like {
            Some(place) => {
                if let Some(line) = lines.get_mut(place) {
                    line.events.push(event);
                }
            }
            None if lines.len() == LINES_MAX => return (lines, last),
            None => lines.push(Line {
                day,
                events: vec![event],
            }),
        }
        last = Some(event.id);
    }
    (lines, found.next)
}

/// Returns the day of a time on the reader's clock: `2026-11-28`.
fn day(at: Timestamp, clock: Clock) -> String {
    let whole = clock.whole(at);
    whole.split(' ').next().unwrap_or_default().to_owned()
}

/// Returns which subjects of the lines have a page.
async fn known(tx: &mut Tx, lines: &[Line<'_>]) -> std::result::Result<Known, DbError> {
    let (mut schedules, mut packages) = (BTreeSet::new(), BTreeSet::new());
    for event in lines.iter().filter_map(|line| line.events.first()) {
        match group_of(event.kind) {
            "schedules" | "launches" => _ = schedules.insert(event.subject.as_str()),
            "packages" => _ = packages.insert(event.subject.as_str()),
            "alerts" => {
                schedules.insert(&event.subject);
                packages.insert(&event.subject);
            }
            _ => {}
        }
    }
    let (schedules, packages) = (Vec::from_iter(schedules), Vec::from_iter(packages));
    Ok(Known {
        schedules: HashSet::from_iter(troubles::schedule_names(tx, &schedules).await?),
        packages: HashSet::from_iter(troubles::package_names(tx, &packages).await?),
    })
}

fn head(visit: &Visit, group: Option<&str>) -> Markup {
    let subject = parts::given(visit, "subject");
    let here = |kind: &str| {
        format!(
            "/events{}",
            links::query(&[("kind", kind), ("subject", subject)])
        )
    };
    html! {
        div.head {
            h1 { "Events" }
            nav.filters aria-label="Filters" {
                a href=(here("")) aria-current=[group.is_none().then_some("true")] { "All" }
                @for (word, name) in GROUPS {
                    a href=(here(word)) aria-current=[(group == Some(word)).then_some("true")] { (name) }
                }
            }
            div.actions {
                form.filter method="get" action="/events" role="search" aria-label="Filter of the events" {
                    @if let Some(group) = group { input type="hidden" name="kind" value=(group); }
                    (filter(visit, "subject", "About", "a schedule, package or host"))
                    button { "Show" }
                }
            }
        }
    }
}

fn table(lines: &[Line<'_>], known: &Known, clock: Clock) -> Markup {
    let today = day(clock.now, clock);
    let yesterday = day(clock.now.minus(DAY), clock);
    html! {
        table.cards {
            thead { tr { th.fit scope="col" { "Time" } th.fit scope="col" { "Event" } th scope="col" { "What happened" } th scope="col" { "By" } } }
            tbody {
                @for (place, line) in lines.iter().enumerate() {
                    @let before = place.checked_sub(1).and_then(|before| lines.get(before));
                    @if before.is_none_or(|before| before.day != line.day) {
                        tr.group {
                            td colspan="4" {
                                strong { @if line.day == today { "Today, " } @else if line.day == yesterday { "Yesterday, " } (line.day) }
                            }
                        }
                    }
                    (row(line, known, clock))
                }
            }
        }
    }
}

fn row(of: &Line<'_>, known: &Known, clock: Clock) -> Markup {
    let more = of.events.get(1..).unwrap_or_default();
    let (kind, is_bad) = of.events.first().map_or(("plain", false), |first| {
        (class(first.kind), class(first.kind) == "bad")
    });
    html! {
        @if let Some(first) = of.events.first() {
            tr.fails[is_bad] {
                td.fit { (clock_time(first.at, clock)) }
                td.fit { (badge_of(kind, &first.kind.as_str().replace('_', " "))) }
                td.text {
                    (subject(first, known))
                    @if more.is_empty() { " " (sentence(first)) }
                    @else {
                        " " strong { (folded(&of.events)) } ", at last: " (sentence(first))
                        details {
                            summary.far { (counted(of.events.len() as u64, "event")) }
                            ul.plain {
                                @for event in of.events.iter().take(FOLDED_MAX) {
                                    li { (clock_time(event.at, clock)) " " (event.kind.as_str().replace('_', " ")) " " (sentence(event)) }
                                }
                                @if of.events.len() > FOLDED_MAX { li { "and " (of.events.len() - FOLDED_MAX) " before" } }
                            }
                        }
                    }
                }
                td { (who(first)) }
            }
        }
    }
}

/// Shows the time of an event below the heading of its day.
fn clock_time(at: Timestamp, clock: Clock) -> Markup {
    if day(at, clock) == day(clock.now, clock) {
        return time(at, clock);
    }
    let whole = clock.whole(at);
    let shown = whole.split(' ').nth(1).unwrap_or_default();
    html! { time datetime=(at.to_string()) title=(whole) { (shown) } }
}

/// Says what a folded line stands for: `fired and resolved 9 times`.
fn folded(events: &[&Event]) -> String {
    let count = |kind| events.iter().filter(|event| event.kind == kind).count() as u64;
    let (fired, resolved) = (
        count(EventKind::AlertFired),
        count(EventKind::AlertResolved),
    );
    let times = |count| counted(count, "time");
    match (fired, resolved) {
        (0, 0) => times(events.len() as u64),
        (1, 1) => "fired and resolved".to_owned(),
        (fired, resolved) if fired == resolved => format!("fired and resolved {}", times(fired)),
        (fired, 0) => format!("fired {}", times(fired)),
        (0, resolved) => format!("resolved {}", times(resolved)),
        (fired, resolved) => format!("fired {}, resolved {}", times(fired), times(resolved)),
    }
}

/// Shows what an event is about, with a link if that has a page.
fn subject(event: &Event, known: &Known) -> Markup {
    let name = event.subject.as_str();
    let group = group_of(event.kind);
    match group {
        "hosts" => html! { strong { a href="/hosts?all=true" { (short(name, DETAIL_MAX)) } } },
        "packages" if known.packages.contains(name) => html! { strong { (links::package(name)) } },
        "schedules" | "launches" | "alerts" if known.schedules.contains(name) => {
            html! { strong { (links::schedule(name)) } }
        }
        "alerts" if known.packages.contains(name) => html! { strong { (links::package(name)) } },
        _ => html! { strong { (short(name, DETAIL_MAX)) } },
    }
}

fn sentence(event: &Event) -> Markup {
    html! {
        (short(&event.detail, DETAIL_MAX))
        @if let Some(launch) = event.launch_id { " · launch " (links::launch(launch)) }
    }
}

fn who(event: &Event) -> Markup {
    html! {
        @if let Some(principal) = &event.principal {
            (line(principal)) " "
            span.far { (event.channel.as_str()) @if let Some(address) = &event.address { ", " (line(address)) } }
        } @else { span.far { "the host itself" } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::access::Channel;
    use chrono_tz::Tz;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn event(kind: EventKind, subject: &str, seconds: u64) -> Event {
        Event {
            id: EventId::new(at(seconds)),
            at: at(seconds),
            kind,
            subject: subject.to_owned(),
            launch_id: None,
            detail: "a sentence".to_owned(),
            principal: None,
            channel: Channel::Host,
            address: None,
            from_at: None,
            to_at: None,
        }
    }

    fn found(events: Vec<Event>) -> Found {
        Found {
            looked_at: events.len(),
            events,
            next: None,
        }
    }

    fn clock() -> Clock {
        Clock {
            now: at(1_000_000),
            zone: Tz::UTC,
        }
    }

    #[test]
    fn alerts_that_come_and_go_are_one_line_a_day() {
        let (fired, resolved) = (EventKind::AlertFired, EventKind::AlertResolved);
        let found = found(vec![
            event(resolved, "a", 90_000),
            event(fired, "b", 89_000),
            event(fired, "a", 88_000),
            event(EventKind::PackageRejected, "p", 87_900),
            event(EventKind::PackageRejected, "p", 87_800),
            event(resolved, "a", 87_000),
            event(fired, "a", 1_000),
        ]);
        let (lines, next) = fold(&found, clock());
        let shown = lines.iter().map(|line| (line.events.len(), &*line.day));
        assert_eq!(
            Vec::from_iter(shown),
            [
                (3, "1970-01-02"),
                (1, "1970-01-02"),
                (2, "1970-01-02"),
                (1, "1970-01-01")
            ]
        );
        assert_eq!(folded(&lines[0].events), "fired 1 time, resolved 2 times");
        assert_eq!(folded(&lines[2].events), "2 times");
        assert_eq!(next, None);
    }

    #[test]
    fn a_page_with_all_its_lines_goes_on_after_its_last_event() {
        let names = Vec::from_iter((0..60).map(|number| format!("s{number}")));
        let events = names
            .iter()
            .rev()
            .enumerate()
            .map(|(place, name)| event(EventKind::ScheduleAdded, name, 1_000 - place as u64));
        let found = found(events.collect());
        let (lines, next) = fold(&found, clock());
        assert_eq!(lines.len(), LINES_MAX);
        assert_eq!(next, Some(found.events[LINES_MAX - 1].id));
    }

    #[test]
    fn each_kind_has_a_group_of_the_filter() {
        for (kind, group) in [
            (EventKind::HostDied, "hosts"),
            (EventKind::VersionPending, "packages"),
            (EventKind::SchedulesFileApplied, "schedules"),
            (EventKind::LaunchRetried, "launches"),
            (EventKind::AlertMessageDead, "alerts"),
            (EventKind::TokenRevoked, "access"),
            (EventKind::DiskLow, "system"),
        ] {
            assert_eq!(group_of(kind), group);
            assert!(known_group(group).is_ok());
        }
        assert!(known_group("host").is_err());
    }
}
