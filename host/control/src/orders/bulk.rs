//! Orders changing many schedules at once, all or none.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin;
use crate::bounds::Note;
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::problem::{ErrorCode, Problem};
use crate::question::{Question, Read};
use crate::schedules::schedule_search::{ScheduleState, Search};
use campanile_model::access::Role;
use campanile_model::text::counted;
use campanile_model::time_text::GivenTime;
use campanile_model::words;
use campanile_store::Tx;
use campanile_store::schedules::Pause;

/// Maximum number of schedules to change at once: hosts wait for the transaction.
const SCHEDULES_MAX: usize = 500;
/// Maximum number of names shown with a count.
const NAMES_SHOWN: usize = 20;

words! {
    /// What to do with many schedules.
    BulkChange {
        Pause => "pause",
        Resume => "resume",
    }
}

/// A count of the schedules that a change would touch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkQuery {
    /// Only those whose name, package, rule or note has this text.
    pub q: Option<String>,
    /// Only those in this state.
    pub state: Option<ScheduleState>,
    pub change: BulkChange,
}

/// The schedules that a change of many would touch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkCount {
    pub count: usize,
    /// The first names.
    pub names: Vec<String>,
    /// Whether these are all names.
    pub is_complete: bool,
}

/// The schedules changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct BulkReport {
    pub count: usize,
    pub names: Vec<String>,
    /// `paused` or `resumed`.
    pub done: String,
}

impl Question for BulkQuery {
    type Answer = BulkCount;

    const ENDPOINT: Endpoint = Endpoint::get(
        "count_schedules",
        "/api/v1/bulk/count",
        Scope::Installation,
        "Count the schedules of a filter that a change of many would touch",
    )
    .role(Role::Operator)
    .cost(5);

    async fn ask(&self, _: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let is_paused = self.change == BulkChange::Resume;
        let mut names = names(tx, self.q.as_deref(), self.state, is_paused).await?;
        if names.is_empty() {
            let state = if is_paused { "paused" } else { "not paused" };
            let message =
                format!("no schedule of the search is {state}, so there is nothing to change");
            return Err(Problem::new(ErrorCode::Conflict, message));
        }
        let count = names.len();
        names.truncate(NAMES_SHOWN);
        Ok(BulkCount {
            is_complete: names.len() == count,
            count,
            names,
        }
        .into())
    }
}

/// Which schedules to pause, why, and until when.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkPause {
    /// Only those whose name, package, rule or note has this text.
    pub q: Option<String>,
    /// Only those in this state: `enabled` or `ended`.
    pub state: Option<ScheduleState>,
    /// How many the client has counted. With another number nothing is changed.
    pub count: usize,
    pub note: Option<Note>,
    /// When they resume by themselves.
    pub until: Option<GivenTime>,
}

impl Order for BulkPause {
    type Output = BulkReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "pause_schedules",
        "/api/v1/bulk/pause",
        (Role::Operator, Scope::Installation),
        "Pause the schedules of a filter, all or none",
    )
    .cost(20);

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let names = names(tx, self.q.as_deref(), self.state, false).await?;
        check_count(self.count, names.len())?;
        for name in &names {
            let pause = Pause {
                by: desk.by,
                note: self.note.as_deref(),
                until: self.until.map(|until| until.0),
            };
            schedule_admin::pause(tx, name, pause, desk.now).await?;
        }
        Ok(report(names, "paused"))
    }
}

/// Which schedules to resume, and how.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BulkResume {
    /// Only those whose name, package, rule or note has this text.
    pub q: Option<String>,
    /// Only those in this state: `paused`.
    pub state: Option<ScheduleState>,
    /// How many the client has counted. With another number nothing is changed.
    pub count: usize,
    /// Apply the catch-up policy to the slots of the pause.
    #[serde(default)]
    pub catch_up: bool,
}

impl Order for BulkResume {
    type Output = BulkReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "resume_schedules",
        "/api/v1/bulk/resume",
        (Role::Operator, Scope::Installation),
        "Resume the paused schedules of a filter, all or none",
    )
    .cost(20);

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let names = names(tx, self.q.as_deref(), self.state, true).await?;
        check_count(self.count, names.len())?;
        for name in &names {
            schedule_admin::resume(tx, name, desk.by, self.catch_up, desk.now).await?;
        }
        Ok(report(names, "resumed"))
    }
}

/// Returns the names of the paused schedules that a search finds, or of the others.
async fn names(
    tx: &mut Tx,
    text: Option<&str>,
    state: Option<ScheduleState>,
    is_paused: bool,
) -> Result<Vec<String>, Problem> {
    let search = Search {
        text: text.unwrap_or_default().trim(),
        state,
        is_paused: Some(is_paused),
    };
    let found = search.find(tx, "", SCHEDULES_MAX).await?;
    if found.next.is_some() {
        let message = format!(
            "the search finds more than {SCHEDULES_MAX} schedules, or there are too many to search"
        );
        return Err(
            Problem::new(ErrorCode::Refused, message).hint("narrow the search, and do it in parts")
        );
    }
    let names = found.rows.into_iter().map(|row| row.definition.name);
    Ok(names.collect())
}

/// Refuses to change another number of schedules than the client has counted.
fn check_count(counted_before: usize, now: usize) -> Result<(), Problem> {
    if counted_before == now {
        return Ok(());
    }
    let message = format!(
        "the search finds {} to change now, not {counted_before}",
        counted(now, "schedule")
    );
    Err(Problem::new(ErrorCode::Conflict, message).hint("look at them, and count them again"))
}

fn report(names: Vec<String>, done: &str) -> BulkReport {
    BulkReport {
        count: names.len(),
        names,
        done: done.to_owned(),
    }
}
