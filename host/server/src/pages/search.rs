//! The search of all pages: schedules, packages, hosts, and launches, runs and backfills by their ids.

use maud::{Markup, html};
use schemars::JsonSchema;
use serde::Deserialize;

use super::parts::{badge, badge_of, command, empty};
use super::words::{Clock, dated, line, shell, short};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::schedules::schedule_search::Search;
use campanile_model::ids::{BackfillId, ShortId};
use campanile_model::text::nearest;
use campanile_store::backfills::{self, Backfill};
use campanile_store::hosts::{self, Host};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::packages::{self, PackageRow};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{DbError, Tx};

/// The most hits of a kind that are shown, and the most that are looked at for the best.
const SHOWN_MAX: usize = 20;
const FOUND_MAX: usize = 100;
/// The most packages and newest backfills that are looked at, and the most names of which the nearest is suggested.
const PACKAGES_MAX: i64 = 2_000;
const BACKFILLS_MAX: i64 = 200;
const NAMES_MAX: i64 = 1_000;
/// The most characters of a rule and of a note.
const TEXT_MAX: usize = 100;

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct SearchQuery {
    /// A part of a name, a rule or a note, or the beginning of an id
    pub q: Option<String>,
}

/// What was found.
#[derive(Default)]
struct Hits {
    launches: Vec<LaunchRow>,
    /// The run whose id was given.
    run: Option<String>,
    backfills: Vec<Backfill>,
    schedules: Vec<Schedule>,
    /// Whether more schedules match.
    has_more: bool,
    packages: Vec<PackageRow>,
    hosts: Vec<Host>,
    /// Names that are almost as given, when there's nothing else.
    near: Near,
}

#[derive(Default)]
struct Near {
    schedule: Option<String>,
    package: Option<String>,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let query: SearchQuery = visit.call.query.question()?;
    let wanted = query.q.unwrap_or_default();
    let wanted = wanted.trim();
    let mut hits = Hits::default();
    if !wanted.is_empty() {
        let mut tx = visit.call.read().await?;
        hits = find(&mut tx, wanted).await?;
    }
    let clock = visit.clock();
    let head = html! {
        div.head {
            h1 { "Search" }
            div.actions {
                form.filter method="get" action="/search" {
                    input type="search" name="q" value=(line(wanted)) aria-label="Search everything" maxlength="200";
                    button { "Search" }
                }
            }
        }
    };
    let main = html! {
        @if wanted.is_empty() {
            (empty("Search for anything.", html! { "A part of the name of a schedule, a package or a host; a part of a rule or of a note; or at least four digits of the id of a launch, a run or a backfill." }))
        } @else if hits.is_empty() {
            (nothing(wanted, &hits.near))
        } @else {
            div.stack {
                (by_id(&hits, clock))
                (schedules_part(&hits, wanted))
                (packages_part(&hits))
                (hosts_part(&hits, clock))
            }
        }
        (command(&match hits.launches.first() {
            Some(launch) => format!("campanile launch show {}", launch.id.short()),
            None if wanted.is_empty() => "campanile schedule list".to_owned(),
            None => format!("campanile schedule list {}", shell(&format!("*{wanted}*"))),
        }))
    };
    View::with_head("Search", head, main)
}

async fn find(tx: &mut Tx, wanted: &str) -> std::result::Result<Hits, DbError> {
    let mut hits = Hits::default();
    if let Ok(id) = wanted.parse::<ShortId>() {
        let found = launch::ids_between(tx, (id.first, id.last), None, SHOWN_MAX).await?;
        hits.launches = launch::with_ids(tx, &found.ids).await?;
        hits.launches
            .sort_unstable_by_key(|hit| std::cmp::Reverse(hit.id));
        hits.run = id.number.map(|_| wanted.to_owned());
        hits.backfills = backfills_like(tx, wanted).await?;
    }
    let lower = wanted.to_lowercase();
    let search = Search {
        text: wanted,
        ..Search::default()
    };
    let found = search.find(tx, "", FOUND_MAX).await?;
    hits.has_more = found.next.is_some() || found.rows.len() > SHOWN_MAX;
    hits.schedules = found.rows;
    // Names after those that were found first may be exactly what's wanted.
    let exact = schedules::named(tx, &[wanted]).await?;
    hits.schedules.retain(|row| row.definition.name != wanted);
    hits.schedules.splice(0..0, exact);
    let name = |row: &Schedule| row.definition.name.to_lowercase();
    hits.schedules.sort_by_key(|row| rank(&name(row), &lower));
    hits.schedules.truncate(SHOWN_MAX);
    hits.packages = packages::list(tx, None, None, PACKAGES_MAX).await?;
    hits.packages
        .retain(|row| row.name.to_lowercase().contains(&lower));
    hits.packages
        .sort_by_key(|row| rank(&row.name.to_lowercase(), &lower));
    hits.packages.truncate(SHOWN_MAX);
    hits.hosts = hosts::newest(tx).await?;
    hits.hosts
        .retain(|host| host.name.to_lowercase().contains(&lower));
    hits.hosts
        .sort_by_key(|host| rank(&host.name.to_lowercase(), &lower));
    hits.hosts.truncate(SHOWN_MAX);
    if hits.is_empty() {
        let names = schedules::names(tx, NAMES_MAX).await?;
        hits.near.schedule = nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned);
        let names = packages::names(tx, NAMES_MAX).await?;
        hits.near.package = nearest(wanted, names.iter().map(String::as_str)).map(str::to_owned);
    }
    Ok(hits)
}

/// Returns the backfill of a whole id, or the newest whose ids begin with these digits.
async fn backfills_like(tx: &mut Tx, wanted: &str) -> std::result::Result<Vec<Backfill>, DbError> {
    if let Ok(id) = wanted.parse::<BackfillId>() {
        return Ok(backfills::find(tx, id).await?.into_iter().collect());
    }
    let wanted = wanted.to_lowercase();
    let mut newest = backfills::list(tx, None, None, BACKFILLS_MAX).await?;
    newest.retain(|row| row.id.to_string().starts_with(&wanted));
    newest.truncate(SHOWN_MAX);
    Ok(newest)
}

/// Returns how well a name fits, the best first: it's the text, it begins with it, it has it, or something else has it.
fn rank(name: &str, wanted: &str) -> u8 {
    if name == wanted {
        0
    } else if name.starts_with(wanted) {
        1
    } else if name.contains(wanted) {
        2
    } else {
        3
    }
}

impl Hits {
    fn is_empty(&self) -> bool {
        self.launches.is_empty()
            && self.backfills.is_empty()
            && self.schedules.is_empty()
            && self.packages.is_empty()
            && self.hosts.is_empty()
    }
}

fn nothing(wanted: &str, near: &Near) -> Markup {
    let next = html! {
        @match (&near.schedule, &near.package) {
            (None, None) => {
                "Look through " a href="/schedules" { "Schedules" } ", " a href="/packages" { "Packages" } " or " a href="/launches" { "Launches" } ", which have filters."
            },
            (schedule, package) => {
                "Did you mean "
                @if let Some(schedule) = schedule { "the schedule " (links::schedule(schedule)) }
                @if schedule.is_some() && package.is_some() { " or " }
                @if let Some(package) = package { "the package " (links::package(package)) }
                "?"
            },
        }
    };
    empty(
        &format!("Nothing matches {}.", short(wanted, TEXT_MAX)),
        next,
    )
}

fn by_id(hits: &Hits, clock: Clock) -> Markup {
    html! {
        @if let (Some(run), false) = (&hits.run, hits.launches.is_empty()) {
            section.card aria-labelledby="runs" {
                header { h2 #runs { "Run" } }
                div.row { a.id href=(links::path(&["runs", run])) { (line(run)) } }
            }
        }
        @if !hits.launches.is_empty() {
            section.card aria-labelledby="launches" {
                header { h2 #launches { "Launches" } }
                @for row in &hits.launches {
                    div.row {
                        p { a.id href=(links::path(&["launches", &row.id.to_string()])) { (row.id.short()) } " of " (links::schedule(&row.schedule)) }
                        span.far { (dated(row.scheduled_time, clock)) }
                        (badge(row.status.as_str()))
                    }
                }
                @if hits.launches.len() == SHOWN_MAX { p.more { "There may be more: give more digits." } }
            }
        }
        @if !hits.backfills.is_empty() {
            section.card aria-labelledby="backfills" {
                header { h2 #backfills { "Backfills" } a.far href="/backfills" { "all backfills" } }
                @for row in &hits.backfills {
                    div.row {
                        p { span.id { (row.id) } " of " (links::schedule(&row.schedule)) }
                        span.far { (dated(row.created_at, clock)) " by " (line(&row.created_by)) }
                        (badge(row.status.as_str()))
                    }
                }
            }
        }
    }
}

fn schedules_part(hits: &Hits, wanted: &str) -> Markup {
    let all = format!("/schedules{}", links::query(&[("q", wanted)]));
    html! {
        @if !hits.schedules.is_empty() {
            section.card aria-labelledby="schedules" {
                header { h2 #schedules { "Schedules" } a.far href=(all) { "as a list" } }
                @for row in &hits.schedules {
                    @let rule = &row.definition.rule;
                    div.row {
                        span {
                            strong { (links::schedule(&row.definition.name)) } " " span.far { (links::package(&row.definition.package)) }
                            @if let Some(note) = &row.state.pause_note { " " span.far { (short(note, TEXT_MAX)) } }
                        }
                        span.far { (short(&format!("{} {}", rule.kind, rule.expression), TEXT_MAX)) }
                        @if row.state.enabled { span {} } @else { (badge("paused")) }
                    }
                }
                @if hits.has_more { p.more { "More match. " a href=(all) { "See all of them" } } }
            }
        }
    }
}

fn packages_part(hits: &Hits) -> Markup {
    html! {
        @if !hits.packages.is_empty() {
            section.card aria-labelledby="packages" {
                header { h2 #packages { "Packages" } }
                @for row in &hits.packages {
                    @let state = row.state().as_str();
                    div.row { strong { (links::package(&row.name)) } span {} @if state == "active" { span {} } @else { (badge(state)) } }
                }
            }
        }
    }
}

fn hosts_part(hits: &Hits, clock: Clock) -> Markup {
    html! {
        @if !hits.hosts.is_empty() {
            section.card aria-labelledby="hosts" {
                header { h2 #hosts { "Hosts" } }
                @for host in &hits.hosts {
                    div.row {
                        strong { a href="/hosts?all=true" { (line(&host.name)) } }
                        span.far { "started " (dated(host.started_at, clock)) }
                        @if host.is_alive(clock.now) { span {} } @else { (badge_of("skip", "stopped")) }
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_name_is_first() {
        let mut names = ["my-sync-b", "other", "sync-a", "sync"];
        names.sort_by_key(|name| rank(name, "sync"));
        assert_eq!(names, ["sync", "sync-a", "my-sync-b", "other"]);
    }
}
