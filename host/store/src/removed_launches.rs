//! Counts and a hash of the launches that retention removed, for each schedule, day and status.
//!
//! The hash is a chain over the removed launches in the order of their removal: within a transaction in the order of
//! their ids. Each link is the SHA-256 of the hash before, in hexadecimal digits, followed by the launch as JSON:
//! [`FinishedLaunch`]. The first link has no hash before it. A copy of the launches, such as `launch list --json` gives,
//! can be checked against it.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::FromRow;

use super::launch::FinishedLaunch;
use super::sql::{Batch, rows, rows_batch, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ChainHash, LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;

/// The reason of a slot that a person skipped.
const SKIPPED_BY_HAND: &str = "skipped_once";

/// What identifies a row: the schedule, the day of the slot, the day of the decision, and the status.
pub(super) type Key = (ScheduleId, i64, i64, &'static str);

/// A row to insert, or to add to the row that there is.
#[derive(Debug, Default)]
pub(super) struct Group {
    launches: i64,
    slots: i64,
    recovered: i64,
    recoveries: i64,
    settled: i64,
    hash: Option<ChainHash>,
}

/// The counts of removed launches of one status.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RemovedCounts {
    pub status: LaunchStatus,
    pub launches: i64,
    pub slots: i64,
    pub recovered: i64,
    pub recoveries: i64,
}

/// The same of one schedule.
#[derive(Debug, FromRow)]
pub(super) struct RemovedOfSchedule {
    pub schedule_id: ScheduleId,
    #[sqlx(flatten)]
    pub counts: RemovedCounts,
}

/// The launches of one day that were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct RemovedDay {
    pub launches: i64,
    /// When launches of that day were removed last.
    pub removed_at: Timestamp,
}

statements! {
    const HASHES: Batch = Batch::new(
        "SELECT r.schedule_id, r.slot_day, r.decided_day, r.status, r.hash FROM removed_launches r
        JOIN (VALUES ($1, $2, $3, $4)) AS v ON r.schedule_id = v.column1 AND r.slot_day = v.column2
            AND r.decided_day = v.column3 AND r.status = v.column4",
    );
    const REMOVE_COUNTS: &str = "DELETE FROM removed_launches WHERE (schedule_id, slot_day, decided_day, status) IN (
            SELECT schedule_id, slot_day, decided_day, status FROM removed_launches
            WHERE decided_day < $1 ORDER BY decided_day LIMIT $2)
        RETURNING schedule_id, slot_day, settled";
    /// Add groups of removed launches to the rows that there are.
    pub(super) async fn add_groups(groups: &[(Key, Group)], now: Timestamp) -> () = execute_batch
        Batch::new("INSERT INTO removed_launches (schedule_id, slot_day, decided_day, status, launches, slots, recovered, recoveries, settled,
            removed_at, hash)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)
        ON CONFLICT (schedule_id, slot_day, decided_day, status) DO UPDATE SET
            launches = removed_launches.launches + excluded.launches, slots = removed_launches.slots + excluded.slots,
            recovered = removed_launches.recovered + excluded.recovered,
            recoveries = removed_launches.recoveries + excluded.recoveries,
            settled = removed_launches.settled + excluded.settled,
            removed_at = excluded.removed_at, hash = excluded.hash"),
        groups, |(key, group)| [
            key.0, key.1, key.2, key.3, group.launches, group.slots, group.recovered, group.recoveries, group.settled, now, &group.hash,
        ];

    /// Note which days of schedules have no counts any more. The day never goes back.
    pub(super) async fn note_uncounted(days: &[(ScheduleId, i64)]) -> () = execute_batch
        Batch::new("UPDATE schedule SET uncounted_before = v.column2 FROM (VALUES ($1, $2)) AS v
        WHERE schedule.id = v.column1 AND (schedule.uncounted_before IS NULL OR schedule.uncounted_before < v.column2)"),
        days, |(schedule, day)| [*schedule, *day];

    /// Returns the day before which counts of a schedule were removed: which of those slots are settled is not known any
    /// more.
    pub async fn uncounted_before(schedule: ScheduleId) -> Option<i64> = one_value
        "SELECT uncounted_before FROM schedule WHERE id = $1";

    /// Count the removed launches that were decided on the day `since` (days since 1970, in UTC) or later, by status.
    pub async fn counts(since: i64) -> Vec<RemovedCounts> = rows
        "SELECT status, CAST(sum(launches) AS BIGINT) AS launches, CAST(sum(slots) AS BIGINT) AS slots,
            CAST(sum(recovered) AS BIGINT) AS recovered, CAST(sum(recoveries) AS BIGINT) AS recoveries
        FROM removed_launches WHERE decided_day >= $1 GROUP BY status ORDER BY status";

    /// Count the removed launches of schedules with a slot on the day `since` or later, by schedule and status.
    pub(super) async fn counts_of(schedules: &[ScheduleId], since: i64) -> Vec<RemovedOfSchedule> = rows_batch
        Batch::new("SELECT r.schedule_id, r.status, CAST(sum(r.launches) AS BIGINT) AS launches, CAST(sum(r.slots) AS BIGINT) AS slots,
            CAST(sum(r.recovered) AS BIGINT) AS recovered, CAST(sum(r.recoveries) AS BIGINT) AS recoveries
        FROM removed_launches r JOIN (VALUES ($1, $2)) AS v ON r.schedule_id = v.column1 AND r.slot_day >= v.column2
        GROUP BY r.schedule_id, r.status"),
        schedules, |schedule| [*schedule, since];

    /// Returns the days from `first` to `last` with a slot that a backfill does not launch again, and whose launch was
    /// removed.
    pub async fn settled_days(schedule: ScheduleId, first: i64, last: i64) -> Vec<i64> = values
        "SELECT DISTINCT slot_day FROM removed_launches
        WHERE schedule_id = $1 AND slot_day >= $2 AND slot_day <= $3 AND settled > 0 ORDER BY slot_day";

    /// Returns the last of the days from `first` to `last` with slots whose launches were removed, of one schedule.
    pub async fn last_day(schedule: ScheduleId, first: i64, last: i64) -> Option<i64> = one_value
        "SELECT max(slot_day) FROM removed_launches WHERE schedule_id = $1 AND slot_day >= $2 AND slot_day <= $3";

    /// Returns how many launches of the slots of a day were removed, of one schedule.
    pub async fn of_day(schedule: ScheduleId, day: i64) -> Option<RemovedDay> = row
        "SELECT CAST(sum(launches) AS BIGINT) AS launches, max(removed_at) AS removed_at FROM removed_launches
        WHERE schedule_id = $1 AND slot_day = $2 HAVING count(*) > 0";

    /// Returns how many launches of a day were removed, by slot or by decision, of all schedules.
    // A launch is decided on the day of its slot or soon after, so the index leads to few rows besides.
    pub async fn of_all(day: i64) -> Option<RemovedDay> = row
        "SELECT CAST(sum(launches) AS BIGINT) AS launches, max(removed_at) AS removed_at FROM removed_launches
        WHERE decided_day >= $1 AND decided_day <= $1 + 2 AND (slot_day = $1 OR decided_day = $1) HAVING count(*) > 0";

    /// Returns the newest day of a decision whose launch was removed.
    pub async fn newest_day() -> Option<i64> = one_value "SELECT max(decided_day) FROM removed_launches";

    /// Returns the newest day of a decision whose launch was removed, of the schedules called `schedule`.
    pub async fn newest_day_of(schedule: &str) -> Option<i64> = one_value
        "SELECT max(decided_day) FROM removed_launches WHERE schedule_id IN (
            SELECT id FROM schedule WHERE name = $1 AND deleted_at IS NULL
            UNION ALL SELECT id FROM schedule WHERE name = $1 AND deleted_at IS NOT NULL)";
}

impl FinishedLaunch {
    fn key(&self) -> Key {
        let (slot, decided) = (self.scheduled_time.day(), self.decided_at.day());
        (self.schedule_id, slot, decided, self.status.as_str())
    }

    /// Whether a backfill does not launch the slot again.
    fn is_settled(&self) -> bool {
        let by_hand = self.reason.as_deref() == Some(SKIPPED_BY_HAND);
        let is_of_slot = self.kind != LaunchKind::Manual || self.is_retry;
        is_of_slot && (self.status == LaunchStatus::Succeeded || by_hand)
    }
}

impl Group {
    fn add(&mut self, launch: &FinishedLaunch) {
        self.launches += 1;
        self.slots += launch.slot_count;
        self.recovered += i64::from(launch.recoveries > 0);
        self.recoveries += launch.recoveries;
        self.settled += i64::from(launch.is_settled());
        self.hash = Some(ChainHash::after(self.hash.as_ref(), &launch.canonical()));
    }
}

/// Returns the first day (in UTC) that begins at `since` or later.
pub(super) fn first_whole_day(since: Timestamp) -> i64 {
    since.minus(Duration::from_micros(1)).day() + 1
}

/// Delete up to `limit` rows of decisions before the day `before`, the oldest first. Return how many.
///
/// One transaction at a time may do so, as for the removal of launches.
pub async fn remove_counts(tx: &mut Tx, before: i64, limit: i64) -> Result<usize> {
    let removed: Vec<(ScheduleId, i64, i64)> = rows!(tx, REMOVE_COUNTS, before, limit)?;
    let mut days: BTreeMap<ScheduleId, i64> = BTreeMap::new();
    for (schedule, slot_day, _) in removed.iter().filter(|(_, _, settled)| *settled > 0) {
        let day = days.entry(*schedule).or_insert(*slot_day);
        *day = (*day).max(slot_day + 1);
    }
    note_uncounted(tx, &Vec::from_iter(days)).await?;
    Ok(removed.len())
}

/// Record launches that this transaction has removed.
///
/// One transaction at a time may do so: the hashes are read before they are written.
pub(super) async fn add(tx: &mut Tx, launches: &mut [FinishedLaunch], now: Timestamp) -> Result {
    launches.sort_unstable_by_key(|launch| launch.id);
    let keys = launches.iter().map(FinishedLaunch::key);
    let mut groups: BTreeMap<Key, Group> = keys.map(|key| (key, Group::default())).collect();
    let keys: Vec<Key> = groups.keys().copied().collect();
    let hashes: Vec<(ScheduleId, i64, i64, LaunchStatus, ChainHash)> =
        rows_batch!(tx, HASHES, &keys, |key| [key.0, key.1, key.2, key.3])?;
    for (schedule, slot, decided, status, hash) in hashes {
        if let Some(group) = groups.get_mut(&(schedule, slot, decided, status.as_str())) {
            group.hash = Some(hash);
        }
    }
    for launch in launches.iter() {
        groups.entry(launch.key()).or_default().add(launch);
    }
    let groups: Vec<(Key, Group)> = groups.into_iter().collect();
    add_groups(tx, &groups, now).await
}
