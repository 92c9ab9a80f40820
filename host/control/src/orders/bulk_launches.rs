//! Launching many launches again, or ending them, all or none.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::launch_admin;
use crate::bounds::{Limit, Number};
use crate::order::{Desk, Endpoint, Order, Scope};
use crate::problem::{ErrorCode, Problem};
use crate::question::{Question, Read};
use crate::questions::launches::ListLaunches;
use crate::records::ids;
use campanile_model::access::Role;
use campanile_model::ids::{LaunchId, LaunchKind, ShortId};
use campanile_model::text::counted;
use campanile_model::time_text::Moment;
use campanile_model::words;
use campanile_store::launch::{self, LOOKED_AT_MAX, LaunchRow};
use campanile_store::{LaunchStatus, Tx, schedules};

/// Maximum number of launches to change at once: hosts wait for the transaction.
pub const LAUNCHES_MAX: usize = 200;
/// Maximum number of schedules named with a count.
const NAMES_SHOWN: usize = 20;

/// The statuses of launches that a filter finds for another try. Skipped ones are found if the filter names that status.
const UNSUCCESSFUL: [LaunchStatus; 4] = [
    LaunchStatus::Failed,
    LaunchStatus::Cancelled,
    LaunchStatus::Unknown,
    LaunchStatus::Abandoned,
];
const UNFINISHED: [LaunchStatus; 4] = [
    LaunchStatus::Open,
    LaunchStatus::Queued,
    LaunchStatus::Running,
    LaunchStatus::Waiting,
];

words! {
    /// What to do with many launches.
    LaunchChange {
        /// Launch the slots of those that ended without success again.
        Retry => "retry",
        /// End those that have not ended.
        Cancel => "cancel",
    }
}

/// A count of the launches that a change would touch: those of a list that ended without success, or that have not ended.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct CountLaunches {
    pub change: LaunchChange,
    /// Only these, by their ids separated by commas. With them there are no other filters
    #[serde(default)]
    pub ids: Vec<ShortId>,
    /// Only those of this schedule
    pub schedule: Option<String>,
    /// Only those with one of these statuses, separated by commas
    #[serde(default)]
    pub status: Vec<LaunchStatus>,
    /// Only those of this kind
    pub kind: Option<LaunchKind>,
    /// Only those with this reason, or with this kind of failure
    pub reason: Option<String>,
    /// Only those of this package
    pub package: Option<String>,
    /// Only slots from this time on: a time, or a span before now such as 2h
    pub since: Option<Moment>,
    /// Only slots before this time: a time, or a span before now
    pub until: Option<Moment>,
}

/// The launches that a change of many would touch.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LaunchCount {
    pub count: usize,
    /// How many have which status.
    pub statuses: BTreeMap<String, usize>,
    /// How many of the ids given are of launches that it would not touch.
    pub left_out: usize,
    /// The first schedules by name.
    pub schedules: Vec<String>,
    /// Whether these are all schedules.
    pub is_complete: bool,
}

/// A change of many launches, and how many the client has counted.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ChangeLaunches {
    /// What was counted.
    pub of: CountLaunches,
    /// How many the client has counted. With another number nothing is changed.
    pub count: usize,
}

/// The launches changed.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
pub struct LaunchesReport {
    pub count: usize,
    /// `retried` or `cancelled`.
    pub done: String,
    /// The new launches, or those that were cancelled.
    pub launches: Vec<LaunchId>,
}

impl LaunchChange {
    /// Returns the statuses to look for: those of `wanted` that the change touches.
    fn statuses(self, wanted: &[LaunchStatus]) -> Vec<LaunchStatus> {
        let touched = match self {
            LaunchChange::Retry => UNSUCCESSFUL,
            LaunchChange::Cancel => UNFINISHED,
        };
        if wanted.is_empty() {
            return touched.to_vec();
        }
        let is_touched = |status: &&LaunchStatus| {
            let is_skip = self == LaunchChange::Retry && **status == LaunchStatus::Skipped;
            is_skip || touched.contains(*status)
        };
        wanted.iter().filter(is_touched).copied().collect()
    }

    /// Whether the change touches a launch that was chosen.
    fn touches(self, row: &LaunchRow) -> bool {
        match self {
            // One row can stand for a range of skipped slots, which only a backfill launches.
            LaunchChange::Retry => {
                row.finished_at.is_some()
                    && row.status != LaunchStatus::Succeeded
                    && row.slot_count <= 1
            }
            LaunchChange::Cancel => row.finished_at.is_none(),
        }
    }
}

impl CountLaunches {
    /// Returns the launches to change in the order of their ids, and how many of those given by id are left out.
    async fn find(&self, desk: &Desk<'_>, tx: &mut Tx) -> Result<(Vec<LaunchRow>, usize), Problem> {
        let mut rows = if self.ids.is_empty() {
            self.matching(desk, tx).await?
        } else {
            self.chosen(desk, tx).await?
        };
        let all = rows.len();
        rows.retain(|row| self.change.touches(row));
        let left_out = if self.ids.is_empty() {
            0
        } else {
            all - rows.len()
        };
        if rows.is_empty() {
            let state = match self.change {
                LaunchChange::Retry => "has ended without success",
                LaunchChange::Cancel => "is unfinished",
            };
            let message = format!("no launch of these {state}, so there is nothing to change");
            return Err(Problem::new(ErrorCode::Conflict, message));
        }
        rows.sort_unstable_by_key(|row| row.id);
        Ok((rows, left_out))
    }

    async fn chosen(&self, desk: &Desk<'_>, tx: &mut Tx) -> Result<Vec<LaunchRow>, Problem> {
        // Each field, so that none is forgotten.
        let CountLaunches {
            change: _,
            ids: _,
            schedule,
            status,
            kind,
            reason,
            package,
            since,
            until,
        } = self;
        let is_filtered = [schedule, reason, package].into_iter().any(Option::is_some)
            || kind.is_some()
            || since.is_some()
            || until.is_some()
            || !status.is_empty();
        if is_filtered {
            let message = "`ids` comes without other filters";
            return Err(Problem::new(ErrorCode::InvalidArgument, message)
                .hint("leave out the ids, or the filters"));
        }
        if self.ids.len() > LAUNCHES_MAX {
            let message = format!(
                "`ids` has {}, more than {LAUNCHES_MAX}",
                counted(self.ids.len(), "launch")
            );
            return Err(Problem::new(ErrorCode::Refused, message).hint("do it in parts"));
        }
        let mut ids = Vec::with_capacity(self.ids.len());
        for id in &self.ids {
            ids.push(ids::launch(tx, id, desk.namespace).await?);
        }
        ids.sort_unstable();
        ids.dedup();
        Ok(launch::with_ids(tx, &ids).await?)
    }

    async fn matching(&self, desk: &Desk<'_>, tx: &mut Tx) -> Result<Vec<LaunchRow>, Problem> {
        let statuses = self.change.statuses(&self.status);
        if statuses.is_empty() {
            return Ok(Vec::new());
        }
        let list = ListLaunches {
            schedule: self.schedule.clone(),
            after: None,
            limit: Some(FOUND_MAX),
            status: statuses,
            kind: self.kind,
            reason: self.reason.clone(),
            package: self.package.clone(),
            since: self.since,
            until: self.until,
        };
        let found = list.find(desk, LOOKED_AT_MAX, tx).await?;
        if found.next.is_some() || found.answer.len() > LAUNCHES_MAX {
            let message =
                format!("more than {LAUNCHES_MAX} launches match, or there are too many to search");
            return Err(Problem::new(ErrorCode::Refused, message).hint(
                "narrow the search, such as by the schedule or with `since`, and do it in parts",
            ));
        }
        Ok(found.answer)
    }
}

/// One launch more than may be changed.
const FOUND_MAX: Limit = Number(LAUNCHES_MAX as i64 + 1);

impl Question for CountLaunches {
    type Answer = LaunchCount;

    const ENDPOINT: Endpoint = Endpoint::get(
        "count_launches",
        "/api/v1/bulk/launches/count",
        Scope::Installation,
        "Count the launches that a change of many would touch",
    )
    .role(Role::Operator)
    .cost(20);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (rows, left_out) = self.find(desk, tx).await?;
        let mut statuses = BTreeMap::new();
        for row in &rows {
            *statuses.entry(row.status.to_string()).or_default() += 1;
        }
        let mut schedules = names(&rows);
        let all = schedules.len();
        schedules.truncate(NAMES_SHOWN);
        Ok(LaunchCount {
            count: rows.len(),
            statuses,
            left_out,
            is_complete: schedules.len() == all,
            schedules,
        }
        .into())
    }
}

impl Order for ChangeLaunches {
    type Output = LaunchesReport;

    const ENDPOINT: Endpoint = Endpoint::post(
        "change_launches",
        "/api/v1/bulk/launches",
        (Role::Operator, Scope::Installation),
        "Launch many launches again, or end them, all or none",
    )
    .cost(50);

    async fn run(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Result<Self::Output, Problem> {
        let (rows, _) = self.of.find(desk, tx).await?;
        if rows.len() != self.count {
            let message = format!(
                "{} would be changed now, not {}",
                counted(rows.len(), "launch"),
                self.count
            );
            return Err(Problem::new(ErrorCode::Conflict, message)
                .hint("look at them, and count them again"));
        }
        let names = names(&rows);
        let names = Vec::from_iter(names.iter().map(String::as_str));
        // All of them in the order of their ids, before one launch is locked.
        schedules::lock_named(tx, &names).await?;
        let mut launches = Vec::with_capacity(rows.len());
        for row in &rows {
            launches.push(self.change(row.id, desk, tx).await?);
        }
        let done = match self.of.change {
            LaunchChange::Retry => "retried",
            LaunchChange::Cancel => "cancelled",
        };
        Ok(LaunchesReport {
            count: launches.len(),
            done: done.to_owned(),
            launches,
        })
    }
}

impl ChangeLaunches {
    /// Changes one launch. Returns the new one of a retry.
    async fn change(
        &self,
        id: LaunchId,
        desk: &Desk<'_>,
        tx: &mut Tx,
    ) -> Result<LaunchId, Problem> {
        Ok(match self.of.change {
            LaunchChange::Retry => {
                let (retried, ..) = launch_admin::retry(tx, id, desk.by, desk.now).await?;
                retried.launch
            }
            LaunchChange::Cancel => {
                launch_admin::cancel(tx, (id, None), None, desk.by, desk.now).await?;
                id
            }
        })
    }
}

/// Returns the names of the launches' schedules, sorted.
fn names(rows: &[LaunchRow]) -> Vec<String> {
    let mut names = Vec::from_iter(rows.iter().map(|row| row.schedule.clone()));
    names.sort_unstable();
    names.dedup();
    names
}
