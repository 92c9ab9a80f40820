//! A list of launches with filters. It reads a window of the record at a time, along an index, and never all of it.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::time::Duration;

use sqlx::FromRow;

use super::row::{LaunchRow, position, with_ids};
use crate::sql::statements;
use crate::{Result, Tx, schedules};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_model::namespace::Namespace;
use campanile_model::status::LaunchStatus;

/// What a [`LaunchFilter`] looks at.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub(super) struct Candidate {
    id: LaunchId,
    scheduled_time: Timestamp,
    kind: LaunchKind,
    status: LaunchStatus,
    /// The reason, or else the kind of the failure.
    reason: Option<String>,
    package: String,
}

/// Which launches a list has. A value that is not set excludes none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LaunchFilter<'a> {
    /// The name of a schedule, or of removed ones.
    pub schedule: Option<&'a str>,
    /// Any of these; none excludes no launch.
    pub statuses: &'a [LaunchStatus],
    pub kind: Option<LaunchKind>,
    /// The reason, or for a launch without one the kind of its failure.
    pub reason: Option<&'a str>,
    pub package: Option<&'a str>,
    /// Only those of packages of this namespace.
    pub namespace: Option<&'a Namespace>,
    /// Slots at this time or later.
    pub since: Option<Timestamp>,
    /// Slots before this time.
    pub until: Option<Timestamp>,
}

/// A page of a list with a [`LaunchFilter`].
#[derive(Debug, Default, PartialEq)]
pub struct LaunchPage {
    pub rows: Vec<LaunchRow>,
    /// The last launch that was looked at, when there may be older ones and the page is not full.
    pub continues_after: Option<LaunchId>,
}

/// The most launches that one statement looks at.
const WINDOW: i64 = 2_000;
/// The launches that the first statement for a page looks at, at least: most pages have no filter, and end there.
const FIRST_WINDOW: i64 = 64;
/// By how much each further window is larger.
const WINDOW_GROWTH: i64 = 4;

/// The most launches that a list on a page reads. The link to the next page continues after the last launch that was read.
pub const LOOKED_AT_FOR_BROWSER_MAX: i64 = 5_000;

/// The statuses of the index that [`window_of_failures`] reads.
const FAILURES: [LaunchStatus; 4] = [
    LaunchStatus::Failed,
    LaunchStatus::Cancelled,
    LaunchStatus::Unknown,
    LaunchStatus::Abandoned,
];

impl LaunchFilter<'_> {
    fn matches(&self, launch: &Candidate) -> bool {
        // Each field, so that none is forgotten. The window has the launches of the schedule.
        let LaunchFilter {
            schedule: _,
            statuses,
            kind,
            reason,
            package,
            namespace,
            since,
            until,
        } = *self;
        let has = |wanted: Option<&str>, value: Option<&str>| wanted.is_none() || wanted == value;
        (statuses.is_empty() || statuses.contains(&launch.status))
            && kind.is_none_or(|kind| kind == launch.kind)
            && has(reason, launch.reason.as_deref())
            && has(package, Some(&launch.package))
            && namespace.is_none_or(|namespace| namespace.contains(&launch.package))
            && since.is_none_or(|since| launch.scheduled_time >= since)
            && until.is_none_or(|until| launch.scheduled_time < until)
    }

    /// Whether an index has all launches that it can match.
    fn is_of_failures(&self) -> bool {
        let is_failure = |status| FAILURES.contains(status);
        !self.statuses.is_empty() && self.statuses.iter().all(is_failure)
    }
}

macro_rules! candidate_columns {
    () => {
        "l.id, l.scheduled_time, l.kind, l.status, coalesce(l.reason, l.failure) AS reason, l.package"
    };
}

statements! {
    /// Returns the newest `limit` launches from `from` until before `before`.
    pub(super) async fn window(from: LaunchId, before: LaunchId, limit: i64) -> Vec<Candidate> = rows
        concat!("SELECT ", candidate_columns!(), " FROM launch l WHERE l.id >= $1 AND l.id < $2 ORDER BY l.id DESC LIMIT $3");

    /// Returns the newest `limit` launches that failed or ended early, from `from` until before `before`.
    pub(super) async fn window_of_failures(from: LaunchId, before: LaunchId, limit: i64) -> Vec<Candidate> = rows
        concat!("SELECT ", candidate_columns!(), " FROM launch l
        WHERE l.status IN ('failed', 'cancelled', 'unknown', 'abandoned') AND l.id >= $1 AND l.id < $2 ORDER BY l.id DESC LIMIT $3");

    /// Returns the newest `limit` launches that failed or ended early, newest first.
    // The index has the ids, so no launch is read.
    pub async fn newest_failures(limit: i64) -> Vec<LaunchId> = values
        "SELECT id FROM launch WHERE status IN ('failed', 'cancelled', 'unknown', 'abandoned') ORDER BY id DESC LIMIT $1";

    /// Returns the newest `limit` launches of a schedule with a slot from `from` on: those before the launch `before` with
    /// its slot.
    pub(super) async fn window_of_schedule(
        schedule: ScheduleId, from: Timestamp, before: (Timestamp, LaunchId), limit: i64,
    ) -> Vec<Candidate> = rows
        concat!("SELECT ", candidate_columns!(), " FROM launch l
        WHERE l.schedule_id = $1 AND l.scheduled_time >= $2 AND (l.scheduled_time, l.id) < ($3, $4)
        ORDER BY l.scheduled_time DESC, l.id DESC LIMIT $5")
        => [schedule, from, before.0, before.1, limit];
}

/// Returns the newest launches before `before` that match `filter`, at most `limit`: newest slot first, those of a backfill
/// and retries by the time of the request.
///
/// It looks at about `looked_at_max` launches at most, a window at a time, however large the record is.
pub async fn search(
    tx: &mut Tx,
    filter: &LaunchFilter<'_>,
    before: Option<LaunchId>,
    limit: i64,
    looked_at_max: i64,
) -> Result<LaunchPage> {
    // A page without a filter is full after its first window.
    let mut size = limit.clamp(FIRST_WINDOW, WINDOW);
    let limit = usize::try_from(limit).unwrap_or_default();
    let mut windows = Windows::open(tx, filter, before).await?;
    let mut found: Vec<LaunchId> = Vec::new();
    let mut continues_after = None;
    let mut looked_at = 0;
    while looked_at < looked_at_max {
        let window = windows.next(tx, filter, size).await?;
        looked_at += size;
        let is_last = (window.len() as i64) < size;
        size = (size * WINDOW_GROWTH)
            .min(WINDOW)
            .min(looked_at_max - looked_at);
        continues_after = window.last().map(|launch| launch.id).filter(|_| !is_last);
        let matching = window.iter().filter(|launch| filter.matches(launch));
        found.extend(matching.map(|launch| launch.id));
        if is_last || found.len() >= limit {
            break;
        }
    }
    let is_full = found.len() >= limit;
    found.truncate(limit);
    let mut rows = with_ids(tx, &found).await?;
    let place: HashMap<LaunchId, usize> = found.iter().copied().zip(0..).collect();
    rows.sort_unstable_by_key(|row| place.get(&row.id).copied());
    Ok(LaunchPage {
        rows,
        continues_after: continues_after.filter(|_| !is_full),
    })
}

/// The launches of a list, a window at a time.
enum Windows {
    /// From the first id until before the second.
    All(LaunchId, LaunchId),
    /// The schedules of the name, each with the launch before which its next window begins.
    OfSchedules(Vec<(ScheduleId, (Timestamp, LaunchId))>),
}

/// The time that the ids of launches have as their unit.
const ID_UNIT: Duration = Duration::from_millis(256);

impl Windows {
    async fn open(
        tx: &mut Tx,
        filter: &LaunchFilter<'_>,
        before: Option<LaunchId>,
    ) -> Result<Windows> {
        let Some(name) = filter.schedule else {
            let from = filter.since.map_or(LaunchId::FIRST, LaunchId::first_at);
            let until = filter
                .until
                .map(|until| LaunchId::first_at(until.plus(ID_UNIT)));
            let before = before.unwrap_or(LaunchId::LAST);
            return Ok(Windows::All(from, before.min(until.unwrap_or(before))));
        };
        let ids = schedules::ids_named(tx, name).await?;
        let before = position(tx, before, &ids).await?;
        let until = filter.until.map(|until| (until, LaunchId::FIRST));
        let before = before.min(until.unwrap_or(before));
        let all = ids.into_iter().map(|id| (id, before));
        Ok(Windows::OfSchedules(all.collect()))
    }

    /// Returns the next `size` launches; fewer when there are no more.
    async fn next(
        &mut self,
        tx: &mut Tx,
        filter: &LaunchFilter<'_>,
        size: i64,
    ) -> Result<Vec<Candidate>> {
        match self {
            Windows::All(from, before) => {
                let window = if filter.is_of_failures() {
                    window_of_failures(tx, *from, *before, size).await?
                } else {
                    window(tx, *from, *before, size).await?
                };
                *before = window.last().map_or(*before, |launch| launch.id);
                Ok(window)
            }
            Windows::OfSchedules(schedules) => {
                let from = filter.since.unwrap_or(Timestamp::FIRST);
                let mut all = Vec::new();
                for (schedule, before) in schedules.iter() {
                    let window = window_of_schedule(tx, *schedule, from, *before, size).await?;
                    all.extend(window);
                }
                all.sort_unstable_by_key(|launch| Reverse((launch.scheduled_time, launch.id)));
                all.truncate(usize::try_from(size).unwrap_or_default());
                if let Some(last) = all.last() {
                    let next = (last.scheduled_time, last.id);
                    schedules.iter_mut().for_each(|(_, before)| *before = next);
                }
                Ok(all)
            }
        }
    }
}
