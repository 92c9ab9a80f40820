//! One schedule: how it is, how its launches went, when it launches next, why it did, and the forms that change it.

mod head;
mod history;
mod long_term;
mod pictures;
mod side;
mod table;
mod tiles;

use std::time::Duration;

use maud::html;
use schemars::JsonSchema;
use serde::Deserialize;

use self::history::History;
use self::long_term::LongTerm;
use super::words::{Clock, line};
use super::{View, Visit, links};
use crate::call::Result;
use crate::problem::ApiProblem;
use campanile_control::records::schedule::{self, ScheduleDetail};
use campanile_control::reports::why::{self, When};
use campanile_control::schedules::definition;
use campanile_model::clock::Timestamp;
use campanile_package::Manifest;
use campanile_schedule::rule::Rule;
use campanile_store::schedules::Schedule;
use campanile_store::{DbError, Tx, packages, troubles};

/// The newest launches that the page is about.
const LAUNCHES_MAX: i64 = 1_000;

/// The query of the page.
#[derive(Deserialize, JsonSchema)]
pub(super) struct ScheduleQuery {
    /// A slot or another time, to explain what was done, or will be
    pub at: Option<String>,
    /// How far the charts look back: `7d`, `12w` or `1y`
    pub span: Option<String>,
}

/// A coming slot.
struct Slot {
    at: Timestamp,
    local: String,
    is_skipped: bool,
    /// What a change of the clock does to it.
    changes: Vec<String>,
}

/// What the page shows.
struct Seen<'s> {
    name: &'s str,
    clock: Clock,
    detail: ScheduleDetail,
    history: History,
    long: LongTerm,
    slots: Vec<Slot>,
    /// After how long a call of its tasks is stopped, if the package says so.
    limit: Option<Duration>,
    too_slow: Option<history::TooSlow>,
    /// The hidden field of the form for a backfill.
    backfill: [(&'s str, &'s str); 1],
}

impl Seen<'_> {
    fn row(&self) -> &Schedule {
        &self.detail.schedule.schedule.row
    }
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let (clock, name) = (visit.clock(), call.name("name"));
    let query: ScheduleQuery = call.query.question()?;
    let at = query.at.as_deref();
    let shown = long_term::wanted(query.span.as_deref())?;
    let when = at.map(str::parse::<When>).transpose();
    let when = when.map_err(|error| ApiProblem::invalid(&error).hint(error.hint()))?;
    let mut tx = call.read().await?;
    let late = &call.state.app.settings.late;
    let detail = ScheduleDetail::read(&mut tx, name, late, clock.now).await?;
    let answer = match when {
        Some(when) => Some(why::why(&mut tx, name, Some(when), clock.now).await?),
        None => None,
    };
    let history = history(&mut tx, &detail).await?;
    let id = detail.schedule.schedule.row.state.id;
    let long = LongTerm::read(&mut tx, id, shown, clock.now).await?;
    let limit = limit(&mut tx, &detail).await?;
    drop(tx);
    let row = &detail.schedule.schedule.row;
    let rule = schedule::rule(row).ok();
    let slots = slots(row, rule.as_ref(), clock);
    let coming = Vec::from_iter(slots.iter().map(|slot| slot.at));
    let policies = definition::policies(&row.definition).unwrap_or_default();
    let seen = Seen {
        name,
        clock,
        too_slow: history.too_slow(row, rule.as_ref(), &policies, &coming),
        history,
        long,
        slots,
        limit,
        backfill: [("schedule", name)],
        detail,
    };
    let calendar = links::path(&["schedules", name, "calendar"]);
    let main = html! {
        (head::pause(&seen))
        @for warning in &seen.detail.schedule.warnings { p.warning { "Warning: " (line(&warning.message)) "; " (line(&warning.hint)) "." } }
        @if let Some(slow) = &seen.too_slow {
            p.warning {
                "It " (slow.text()) "."
                @for (place, remedy) in slow.remedies.iter().enumerate() { @if place == 0 { " Try " } @else { " or " } code { (remedy) } }
                @if !slow.remedies.is_empty() { "." }
            }
        }
        div.grid {
            (tiles::tiles(&seen))
            @if !seen.history.launches.is_empty() {
                (pictures::last(&seen.history, clock))
            }
            @if seen.long.has_any() {
                (long_term::failures(&seen.long, name, &calendar, clock))
                (long_term::durations(&seen.long, seen.limit))
            }
            div.stack.w8 {
                (table::table(&seen, &calendar))
                div.grid { (side::why(visit, &seen, at, answer.as_ref())) (side::commands(name, at)) }
            }
            div.stack.w4 { (side::next(visit, &seen)) (side::meaning(&seen)) }
        }
    };
    View::with_head(name, head::head(visit, &seen), main)
}

async fn history(tx: &mut Tx, detail: &ScheduleDetail) -> std::result::Result<History, DbError> {
    let id = detail.schedule.schedule.row.state.id;
    let newest = troubles::newest_of(tx, id, LAUNCHES_MAX).await?;
    let streak = troubles::streaks(tx, &[id]).await?.into_iter().next();
    Ok(History::new(newest, streak))
}

/// Returns after how long a call is stopped at the latest, as far as the package describes its tasks.
async fn limit(
    tx: &mut Tx,
    detail: &ScheduleDetail,
) -> std::result::Result<Option<Duration>, DbError> {
    let definition = &detail.schedule.schedule.row.definition;
    let Some(package) = packages::find(tx, &definition.package).await? else {
        return Ok(None);
    };
    let manifest = Manifest::from_stored(&package.name, &package.manifest);
    let is_called = |id: &str| definition.task.as_deref().is_none_or(|task| task == id);
    let tasks = manifest.tasks.iter().filter(|task| is_called(&task.id));
    Ok(tasks.filter_map(|task| task.timeout).max())
}

/// Returns the coming slots, those that a person skipped included.
fn slots(row: &Schedule, rule: Option<&Rule>, clock: Clock) -> Vec<Slot> {
    let Some(rule) = rule else {
        return Vec::new();
    };
    let policies = definition::policies(&row.definition).unwrap_or_default();
    let skips = schedule::skips(row);
    let slots = schedule::slots(row, rule, &policies, None, clock.now).take(side::SLOTS_SHOWN);
    let slot = |at: Timestamp| Slot {
        at,
        local: rule.local_text(at),
        is_skipped: skips.contains(&at),
        changes: clock_changes(rule, at),
    };
    slots.map(slot).collect()
}

fn clock_changes(rule: &Rule, at: Timestamp) -> Vec<String> {
    let effects = rule.dst_effects_at(at);
    effects
        .iter()
        .map(|effect| rule.dst_effect_text(effect))
        .collect()
}
