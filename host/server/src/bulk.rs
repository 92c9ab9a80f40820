//! Changes of many schedules at once, by a filter.

use std::fmt::Display;

use axum::http::StatusCode;
use serde::Serialize;

use crate::bodies::{self, BulkChange, BulkFilter};
use crate::call::{Call, Reply, Result};
use crate::change::change;
use crate::problem::ApiProblem;
use campanile_control::problem::{ErrorCode, Problem};
use campanile_control::records::schedule;
use campanile_control::schedule_admin;
use campanile_model::text::counted;
use campanile_store::schedules::{self, Pause, Schedule, ScheduleTexts};
use campanile_store::{DbError, Tx};

/// The states of a schedule.
pub(crate) const STATES: [&str; 3] = ["enabled", PAUSED, ENDED];
const PAUSED: &str = "paused";
const ENDED: &str = "ended";
/// The most schedules that one request changes: it is one transaction, and hosts wait for it.
const SCHEDULES_MAX: usize = 500;
/// The names that a count shows.
const NAMES_SHOWN: usize = 20;
/// The schedules whose names one statement reads.
const WINDOW: i64 = 2_000;
/// The most such statements of one search.
const WINDOWS_MAX: usize = 5;

/// Which schedules a search finds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search<'a> {
    /// A text that the name, package, rule or note has, in any case of letters.
    pub text: &'a str,
    /// One of [`STATES`]; empty for all.
    pub state: &'a str,
    /// Only those that a pause, or that a resume changes.
    pub change: Option<BulkChange>,
}

/// The schedules that a search has found.
pub(crate) struct Found {
    pub rows: Vec<Schedule>,
    /// If there may be more: the name after which a next search begins.
    pub next: Option<String>,
}

/// The schedules that a change of many would touch.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BulkCount {
    pub count: usize,
    /// The first names.
    pub names: Vec<String>,
    /// Whether these are all names.
    pub is_complete: bool,
}

/// The result of a change of many schedules.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct BulkReport {
    pub count: usize,
    pub names: Vec<String>,
    /// `paused` or `resumed`.
    pub done: &'static str,
}

/// Refuse a word that is no state of a schedule.
pub(crate) fn check_state(state: &str) -> Result<()> {
    if state.is_empty() || STATES.contains(&state) {
        return Ok(());
    }
    let problem = ApiProblem::invalid(format!("there is no state `{state}` of a schedule"));
    Err(problem.hint(format!("choose one of {}", STATES.join(", "))))
}

impl Search<'_> {
    /// Whether a schedule with these texts can match. `wanted` is the text in lower case.
    fn may_match(&self, texts: &ScheduleTexts, wanted: &str) -> bool {
        let is_changed = match self.change {
            Some(BulkChange::Pause) => texts.enabled,
            Some(BulkChange::Resume) => !texts.enabled,
            None => true,
        };
        let may_be_in_state = match self.state {
            "" => true,
            PAUSED => !texts.enabled,
            ENDED => texts.enabled && texts.next_slot.is_none(),
            _ => texts.enabled,
        };
        let note = texts.pause_note.as_deref().unwrap_or_default();
        let searched = [texts.name.as_str(), &texts.package, &texts.expression, note];
        is_changed
            && may_be_in_state
            && searched
                .iter()
                .any(|text| text.to_lowercase().contains(wanted))
    }

    /// The schedules that the first statement reads for a page of `limit`. Without a filter, they fill the page.
    fn first_window(&self, limit: usize) -> i64 {
        let has_filter = !self.text.is_empty() || !self.state.is_empty() || self.change.is_some();
        match i64::try_from(limit + 1) {
            Ok(size) if !has_filter => size.min(WINDOW),
            _ => WINDOW,
        }
    }
}

/// Return up to `limit` schedules after the name `after`, by name. It looks at the names of a window at a time, and reads those
/// schedules whole that match.
pub(crate) async fn find(
    tx: &mut Tx,
    search: Search<'_>,
    after: &str,
    limit: usize,
) -> Result<Found, DbError> {
    let wanted = search.text.to_lowercase();
    let (mut after, mut rows) = (after.to_owned(), Vec::new());
    let mut size = search.first_window(limit);
    for _ in 0..WINDOWS_MAX {
        let window = schedules::texts(tx, &after, size).await?;
        let is_last = (window.len() as i64) < size;
        size = WINDOW;
        let likely = window
            .iter()
            .filter(|texts| search.may_match(texts, &wanted));
        let likely = Vec::from_iter(likely.map(|texts| texts.name.as_str()));
        for names in likely.chunks(limit + 1) {
            let mut found = schedules::named(tx, names).await?;
            found.retain(|row| search.state.is_empty() || schedule::state(row) == search.state);
            found.sort_unstable_by(|a, b| a.definition.name.cmp(&b.definition.name));
            rows.append(&mut found);
            if rows.len() > limit {
                rows.truncate(limit);
                let next = rows.last().map(|last| last.definition.name.clone());
                return Ok(Found { rows, next });
            }
        }
        if is_last {
            return Ok(Found { rows, next: None });
        }
        if let Some(last) = window.last() {
            after.clone_from(&last.name);
        }
    }
    let next = Some(after);
    Ok(Found { rows, next })
}

/// Return the names of the schedules that a change of many would touch.
async fn names(call: &Call, filter: &BulkFilter, change: BulkChange) -> Result<Vec<String>> {
    let text = filter.q.as_deref().unwrap_or_default().trim();
    let state = filter.state.as_deref().unwrap_or_default();
    check_state(state)?;
    let change = Some(change);
    let search = Search {
        text,
        state,
        change,
    };
    let found = find(&mut call.read().await?, search, "", SCHEDULES_MAX).await?;
    let refused = |message: &dyn Display| {
        let problem = Problem::new(ErrorCode::Refused, message);
        ApiProblem::from(problem.hint("narrow the search, and do it in parts"))
    };
    if found.next.is_some() {
        return Err(refused(&format!(
            "the search finds more than {SCHEDULES_MAX} schedules, or there are too many to search"
        )));
    }
    let names = found.rows.into_iter().map(|row| row.definition.name);
    Ok(names.collect())
}

pub(crate) async fn count(call: Call) -> Result {
    let body = call.json::<bodies::BulkQuery>()?;
    let mut names = names(&call, &body.filter(), body.change).await?;
    if names.is_empty() {
        let state = match body.change {
            BulkChange::Pause => "not paused",
            BulkChange::Resume => "paused",
        };
        let message =
            format!("no schedule of the search is {state}, so there is nothing to change");
        return Err(Problem::new(ErrorCode::Conflict, message).into());
    }
    let count = names.len();
    names.truncate(NAMES_SHOWN);
    let is_complete = names.len() == count;
    Reply::json(&BulkCount {
        count,
        names,
        is_complete,
    })
}

/// Refuse a change of another number of schedules than the client has counted.
fn check_count(counted_before: usize, now: usize) -> Result<()> {
    if counted_before == now {
        return Ok(());
    }
    let message = format!(
        "the search finds {} to change now, not {counted_before}",
        counted(now, "schedule")
    );
    let problem = Problem::new(ErrorCode::Conflict, message);
    Err(problem.hint("look at them, and count them again").into())
}

pub(crate) async fn pause(call: Call) -> Result {
    let body = call.json::<bodies::BulkPause>()?;
    let names = names(&call, &body.filter(), BulkChange::Pause).await?;
    change!(call, StatusCode::OK, |tx, now| {
        check_count(body.count, names.len())?;
        for name in &names {
            let pause = Pause {
                by: call.by(),
                note: body.note.as_deref(),
                until: body.until,
            };
            schedule_admin::pause(tx, name, pause, now).await?;
        }
        (report(&names, "paused"), None)
    })
}

pub(crate) async fn resume(call: Call) -> Result {
    let body = call.json::<bodies::BulkResume>()?;
    let names = names(&call, &body.filter(), BulkChange::Resume).await?;
    change!(call, StatusCode::OK, |tx, now| {
        check_count(body.count, names.len())?;
        for name in &names {
            schedule_admin::resume(tx, name, call.by(), body.catch_up, now).await?;
        }
        (report(&names, "resumed"), None)
    })
}

fn report(names: &[String], done: &'static str) -> BulkReport {
    BulkReport {
        count: names.len(),
        names: names.to_vec(),
        done,
    }
}
