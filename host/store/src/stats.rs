//! Counts of launches, and the numbers that decide about health.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use sqlx::FromRow;

use super::removed_launches::{self, RemovedCounts, first_whole_day};
use super::sql::{Batch, one_row, statements};
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_model::labels::Labels;
use campanile_model::status::LaunchStatus;

/// Counts of launches decided at or after a given time, also of those that retention has removed.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    FromRow,
    schemars::JsonSchema,
)]
pub struct Counts {
    /// Decisions to launch.
    pub launches: i64,
    pub succeeded: i64,
    pub failed: i64,
    /// Ended before they were done.
    pub cancelled: i64,
    /// At-most-once launches whose run was lost.
    pub unknown: i64,
    /// Open, queued, running or waiting for a retry.
    pub unfinished: i64,
    /// Slots that were skipped; each slot of a range counts.
    pub skipped: i64,
    /// Launches that were recovered at least once.
    pub recovered: i64,
    /// Recoveries, over all launches.
    pub recovery_attempts: i64,
    pub recovery_successes: i64,
    pub recovery_failures: i64,
    pub abandoned: i64,
}

/// The counts of the newest launches of a span.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RecentCounts {
    pub counts: Counts,
    /// When the oldest launch was decided that is counted. None when all of the span are counted.
    pub counted_from: Option<Timestamp>,
}

/// The counts of the newest launches, how many these are, and when the oldest was decided.
#[derive(Debug, FromRow)]
struct NewestCounts {
    counted: i64,
    oldest: Option<Timestamp>,
    #[sqlx(flatten)]
    counts: Counts,
}

/// The counts of the launches of one schedule.
#[derive(Debug, FromRow)]
pub(super) struct ScheduleCounts {
    schedule_id: ScheduleId,
    #[sqlx(flatten)]
    counts: Counts,
}

/// The numbers that decide about health, at one moment.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    FromRow,
    schemars::JsonSchema,
)]
pub struct HealthSigns {
    /// Enabled schedules whose next slot is overdue: no host decides.
    pub overdue_schedules: i64,
    /// Open launches that no host has claimed for too long, and runs whose lease has expired.
    pub stalled: i64,
    /// Schedules with a next slot whose cursor is too far ahead of the clock.
    pub cursors_ahead: i64,
    pub live_hosts: i64,
    /// Enabled schedules, counted only when no host is live: counting reads all of them.
    pub schedules: i64,
}

/// A run that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, FromRow)]
pub struct ActiveRun {
    pub launch_id: LaunchId,
    pub started_at: Timestamp,
    /// When a task is called again, while the run waits for it.
    pub retry_at: Option<Timestamp>,
}

/// How many launches have not ended.
#[derive(
    Debug,
    Clone,
    Copy,
    Default,
    PartialEq,
    Eq,
    Serialize,
    Deserialize,
    FromRow,
    schemars::JsonSchema,
)]
pub struct Unfinished {
    /// With a run that has not ended; it may wait for a retry.
    pub running: i64,
    /// Waiting for a host.
    pub open: i64,
    /// Waiting for another launch of their schedule.
    pub queued: i64,
}

/// A run that has not ended, as `top` shows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct OldRun {
    pub launch: LaunchId,
    #[serde(skip)]
    pub schedule_id: ScheduleId,
    pub schedule: String,
    pub status: LaunchStatus,
    pub host: Option<String>,
    pub started_at: Timestamp,
}

/// The next slot of a schedule.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, FromRow, schemars::JsonSchema)]
pub struct NextSlot {
    pub schedule: String,
    pub slot: Timestamp,
}

/// How many schedules there are.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct ScheduleCount {
    pub total: i64,
    /// With a next slot.
    pub active: i64,
}

/// When a schedule is due, and when it succeeded.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct ScheduleTimes {
    pub schedule: String,
    pub next_slot: Option<Timestamp>,
    pub enabled: bool,
    /// The newest slot that succeeded.
    pub success_scheduled_time: Option<Timestamp>,
}

macro_rules! count_columns {
    () => {
        "count(*) FILTER (WHERE status <> 'skipped') AS launches,
        count(*) FILTER (WHERE status = 'succeeded') AS succeeded,
        count(*) FILTER (WHERE status = 'failed') AS failed,
        count(*) FILTER (WHERE status = 'cancelled') AS cancelled,
        count(*) FILTER (WHERE status = 'unknown') AS unknown,
        count(*) FILTER (WHERE status IN ('open', 'queued', 'running', 'waiting')) AS unfinished,
        CAST(coalesce(sum(coalesce(slot_count, 1)) FILTER (WHERE status = 'skipped'), 0) AS BIGINT) AS skipped,
        count(*) FILTER (WHERE recoveries > 0) AS recovered,
        CAST(coalesce(sum(recoveries), 0) AS BIGINT) AS recovery_attempts,
        count(*) FILTER (WHERE recoveries > 0 AND status = 'succeeded') AS recovery_successes,
        count(*) FILTER (WHERE recoveries > 0 AND status = 'failed') AS recovery_failures,
        count(*) FILTER (WHERE status = 'abandoned') AS abandoned"
    };
}

/// When a launch could start, and when it did.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct StartedLaunch {
    pub package: String,
    pub fire_time: Timestamp,
    pub started_at: Timestamp,
}

statements! {
    const COUNTS: &str = concat!("SELECT ", count_columns!(), " FROM launch WHERE decided_at >= $1");
    const COUNTS_OF_NEWEST: &str = concat!("SELECT count(*) AS counted, min(decided_at) AS oldest, ", count_columns!(), " FROM
        (SELECT decided_at, status, slot_count, recoveries FROM launch WHERE decided_at >= $1 ORDER BY decided_at DESC LIMIT $2) AS newest");

    /// Count the launches of schedules with a slot since `since`. A schedule without any is left out.
    // `launch_schedule` leads to the launches of each schedule in the span.
    pub(super) async fn launched_by(schedules: &[ScheduleId], since: Timestamp) -> Vec<ScheduleCounts> = rows_batch
        Batch::new(concat!("SELECT l.schedule_id, ", count_columns!(), " FROM launch l
        JOIN (VALUES ($1, $2)) AS v ON l.schedule_id = v.column1 AND l.scheduled_time >= v.column2 GROUP BY l.schedule_id")),
        schedules, |schedule| [*schedule, since];

    /// Returns start and end of the newest `limit` launches decided since `since`, with their last run succeeded or failed.
    pub async fn executions(since: Timestamp, limit: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT started_at, finished_at FROM launch
        WHERE decided_at >= $1 AND status IN ('succeeded', 'failed') AND started_at IS NOT NULL AND finished_at IS NOT NULL
        ORDER BY decided_at DESC LIMIT $2";

    /// Returns the same of the newest `limit` launches of a schedule with a slot since `since`.
    pub async fn executions_of(schedule: ScheduleId, since: Timestamp, limit: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT started_at, finished_at FROM launch
        WHERE schedule_id = $1 AND scheduled_time >= $2 AND status IN ('succeeded', 'failed') AND started_at IS NOT NULL
            AND finished_at IS NOT NULL ORDER BY scheduled_time DESC LIMIT $3";

    /// Returns fire time and start of the newest `limit` on-time launches decided since `since` without waiting
    /// for another launch.
    pub async fn lags(since: Timestamp, limit: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT fire_time, started_at FROM launch
        WHERE decided_at >= $1 AND kind = 'schedule' AND started_at IS NOT NULL AND opened_at IS NULL ORDER BY decided_at DESC LIMIT $2";

    /// Returns fire time and start of the on-time launches among the newest `searched` decided since `since`: of those
    /// that did not wait for another launch.
    // $2 bounds the search among launches of other kinds.
    pub async fn newest_lags(since: Timestamp, searched: i64) -> Vec<StartedLaunch> = rows
        "SELECT package, fire_time, started_at FROM
            (SELECT package, fire_time, started_at, kind, opened_at FROM launch WHERE decided_at >= $1 ORDER BY decided_at DESC LIMIT $2) AS newest
        WHERE kind = 'schedule' AND started_at IS NOT NULL AND opened_at IS NULL";

    /// Returns fire time and start of the newest `limit` launches decided since `since` after waiting for
    /// something besides a host: for another launch, or for an operator's request.
    pub async fn waits(since: Timestamp, limit: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT fire_time, started_at FROM launch
        WHERE decided_at >= $1 AND (kind <> 'schedule' OR opened_at IS NOT NULL) AND started_at IS NOT NULL ORDER BY decided_at DESC LIMIT $2";

    /// Count what is overdue since before `overdue_since`, the hosts with a heartbeat since `live_since`, and the cursors
    /// after `ahead_of`.
    pub async fn health_signs(overdue_since: Timestamp, now: Timestamp, ahead_of: Timestamp) -> HealthSigns = one_row
        "SELECT
            (SELECT count(*) FROM schedule WHERE next_slot < $1) AS overdue_schedules,
            (SELECT count(*) FROM launch WHERE status = 'open' AND group_name IS NULL
                    AND fire_time < $1 AND (opened_at IS NULL OR opened_at < $1))
                + (SELECT count(*) FROM launch WHERE status IN ('running', 'waiting') AND lease_until < $1) AS stalled,
            (SELECT count(*) FROM schedule WHERE next_slot IS NOT NULL AND cursor_at > $3) AS cursors_ahead,
            (SELECT count(*) FROM host WHERE ended_at IS NULL AND lease_until >= $2) AS live_hosts,
            CASE WHEN EXISTS (SELECT 1 FROM host WHERE ended_at IS NULL AND lease_until >= $2) THEN 0
                ELSE (SELECT count(*) FROM schedule WHERE deleted_at IS NULL AND enabled) END AS schedules";

    /// Count the schedules.
    // The indexes `schedule_name` and `schedule_due` answer it by themselves.
    pub async fn schedule_count() -> ScheduleCount = one_row
        "SELECT (SELECT count(name) FROM schedule WHERE deleted_at IS NULL) AS total,
            (SELECT count(next_slot) FROM schedule WHERE next_slot IS NOT NULL) AS active";

    /// Returns the times of up to `limit` schedules, by name.
    pub async fn schedule_times(limit: i64) -> Vec<ScheduleTimes> = rows
        "SELECT s.name AS schedule, s.next_slot, s.enabled, m.success_scheduled_time FROM schedule s
        LEFT JOIN schedule_result m ON m.schedule_id = s.id WHERE s.deleted_at IS NULL ORDER BY s.name LIMIT $1";

    /// Returns the hosts that did not stop and whose lease has ended, each with its last heartbeat.
    pub async fn silent_hosts(now: Timestamp) -> Vec<(String, Timestamp)> = rows
        "SELECT name, heartbeat_at FROM host WHERE ended_at IS NULL AND lease_until < $1 ORDER BY name";

    /// Returns the live hosts that an operator has drained: the name, who drained it, and since when.
    pub async fn drained_hosts() -> Vec<(String, String, Timestamp)> = rows
        "SELECT name, drained_by, drained_at FROM host WHERE ended_at IS NULL AND drained_at IS NOT NULL ORDER BY name";

    /// Returns up to `limit` sets of labels that launches need which have waited since before `since`, and that no live host
    /// has at `now`: each with the number of the launches, and the oldest fire time.
    pub async fn missing_labels(since: Timestamp, now: Timestamp, limit: i64) -> Vec<(Labels, i64, Timestamp)> = rows
        "SELECT l.run_on, count(*), min(l.fire_time) FROM launch l
        WHERE l.status = 'open' AND l.run_on IS NOT NULL AND l.fire_time < $1
            AND NOT EXISTS (SELECT 1 FROM host o WHERE o.ended_at IS NULL AND o.lease_until >= $2
                AND ',' || replace(o.labels, ',', ',,') || ',' LIKE '%,' || replace(l.run_on, ',', ',%,') || ',%')
        GROUP BY l.run_on ORDER BY l.run_on LIMIT $3";

    /// Returns up to `limit` schedules with a next slot whose cursor is after `ahead_of`, each with the cursor.
    pub async fn cursors_ahead(ahead_of: Timestamp, limit: i64) -> Vec<(String, Timestamp)> = rows
        "SELECT name, cursor_at FROM schedule WHERE next_slot IS NOT NULL AND cursor_at > $1 ORDER BY name LIMIT $2";

    /// Returns the clocks that stepped since `since`: each with the name of a host, when it noticed, and what it noted. At
    /// most `limit`, newest first.
    // The index `event_clock` finds these events: the span may have a million others, of a file with as many schedules.
    pub async fn clock_steps(since: Timestamp, limit: i64) -> Vec<(String, Timestamp, String)> = rows
        "SELECT subject, at, detail FROM event WHERE at >= $1 AND kind = 'clock_stepped' ORDER BY at DESC LIMIT $2";

    /// Returns the live hosts that ran into database damage, each with its note.
    // The index `event_damage` finds these events.
    pub async fn damage(limit: i64) -> Vec<(String, String)> = rows
        "SELECT h.name, max(e.detail) FROM event e JOIN host h ON h.name = e.subject AND h.ended_at IS NULL AND h.started_at <= e.at
        WHERE e.kind = 'database_damaged' GROUP BY h.name ORDER BY h.name LIMIT $1";

    /// Returns up to `limit` enabled schedules whose newest `failures` launches all failed for good, each with the last
    /// failure as JSON. Manual and backfill launches do not count.
    // Only schedules with a failure newer than their last success are looked at, and `launch_schedule` yields their launches.
    pub async fn failing_schedules(failures: i64, limit: i64) -> Vec<(String, String)> = rows
        "SELECT s.name, m.failure FROM schedule_result m JOIN schedule s ON s.id = m.schedule_id
        WHERE m.failure IS NOT NULL AND s.deleted_at IS NULL AND s.enabled AND $1 =
            (SELECT count(*) FROM
                (SELECT status FROM launch WHERE schedule_id = s.id AND kind <> 'manual' AND kind <> 'backfill'
                    AND status <> 'skipped' AND finished_at IS NOT NULL ORDER BY scheduled_time DESC LIMIT $1) AS newest
            WHERE status IN ('failed', 'unknown', 'abandoned'))
        ORDER BY s.name LIMIT $2";

    /// Returns up to `limit` packages with launches that no host has claimed since `overdue_since`, although a live host
    /// has the package and launches of other packages began meanwhile; each with their number and the oldest fire time.
    // The newest 2,000 launches show whether others began: a host decides as many in some seconds.
    pub async fn starved_packages(overdue_since: Timestamp, limit: i64) -> Vec<(String, i64, Timestamp)> = rows
        "SELECT l.package, l.launches, l.oldest FROM
            (SELECT package, count(*) AS launches, min(fire_time) AS oldest FROM launch
                WHERE status = 'open' AND group_name IS NULL AND fire_time < $1 AND (opened_at IS NULL OR opened_at < $1)
                GROUP BY package) AS l
        WHERE EXISTS (SELECT 1 FROM package_host p JOIN host h ON h.id = p.host_id WHERE p.package = l.package AND h.ended_at IS NULL)
            AND EXISTS (SELECT 1 FROM
                    (SELECT package, started_at FROM launch WHERE decided_at >= $1 ORDER BY decided_at DESC LIMIT 2000) AS o
                WHERE o.started_at IS NOT NULL AND o.package <> l.package)
        ORDER BY l.package LIMIT $2";

    /// Returns up to `limit` schedules skipping more than half their slots because of overlap or lateness, each with its numbers of
    /// skipped slots and of all slots. Considers the newest `searched` decisions since `since`, leaving out schedules with fewer
    /// than `slots_min` slots.
    pub async fn mostly_skipped(
        since: Timestamp, searched: i64, slots_min: i64, limit: i64,
    ) -> Vec<(String, i64, i64)> = rows
        "SELECT s.name, d.skipped, d.slots FROM
            (SELECT schedule_id, CAST(sum(coalesce(slot_count, 1)) AS BIGINT) AS slots,
                CAST(sum(CASE WHEN status = 'skipped' AND reason IN ('overlap', 'window', 'catchup_none', 'catchup_max', 'coalesced', 'displaced')
                    THEN coalesce(slot_count, 1) ELSE 0 END) AS BIGINT) AS skipped
            FROM (SELECT schedule_id, slot_count, status, reason FROM launch
                WHERE decided_at >= $1 AND kind <> 'backfill' ORDER BY decided_at DESC LIMIT $2) AS newest
            GROUP BY schedule_id) AS d JOIN schedule s ON s.id = d.schedule_id
        WHERE d.slots >= $3 AND d.skipped * 2 > d.slots AND s.deleted_at IS NULL ORDER BY s.name LIMIT $4";

    /// Returns up to `limit` concurrency groups with launches due before `overdue_since` and still without a run;
    /// each with their number and the oldest fire time.
    pub async fn waiting_groups(overdue_since: Timestamp, limit: i64) -> Vec<(String, i64, Timestamp)> = rows
        "SELECT group_name, count(*), min(fire_time) FROM launch
        WHERE status = 'open' AND group_name IS NOT NULL AND fire_time < $1
        GROUP BY group_name ORDER BY group_name LIMIT $2";

    /// Returns the schedules with queued launches: the name, the policies as JSON, and the earliest fire time. Slots of a
    /// paused schedule stay queued and do not count.
    // The index leads from one schedule to the next, however many queued launches each has.
    pub async fn queues() -> Vec<(String, String, Option<Timestamp>)> = rows
        "WITH RECURSIVE queue (id) AS (
            SELECT (SELECT schedule_id FROM launch WHERE status = 'queued' ORDER BY schedule_id LIMIT 1)
            UNION ALL SELECT (SELECT schedule_id FROM launch WHERE status = 'queued' AND schedule_id > queue.id
                ORDER BY schedule_id LIMIT 1) FROM queue WHERE queue.id IS NOT NULL)
        SELECT s.name, r.policies, (SELECT min(l.fire_time) FROM launch l WHERE l.schedule_id = s.id AND l.status = 'queued'
                AND (s.enabled OR l.kind IN ('manual', 'backfill')))
            FROM queue JOIN schedule s ON s.id = queue.id
            JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision ORDER BY s.name";

    /// Returns the packages whose newest file a host is loading, and since when.
    pub async fn loads() -> Vec<(String, Timestamp)> = rows
        "SELECT name, loading_since FROM package WHERE loading_since IS NOT NULL ORDER BY name";

    /// Returns up to `limit` packages whose newest file cannot be used, each with the reason.
    pub async fn rejections(limit: i64) -> Vec<(String, String)> = rows
        "SELECT name, rejection FROM package WHERE rejection IS NOT NULL ORDER BY name LIMIT $1";

    /// Count the launches that are open, queued, running or waiting for a retry. Cheap.
    // A partial index answers each part, however many launches there are.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn unfinished() -> i64 = one_value
        "SELECT (SELECT count(*) FROM launch WHERE status = 'open' AND schedule_id > $1)
            + (SELECT count(*) FROM launch WHERE status = 'queued')
            + (SELECT count(*) FROM launch WHERE status IN ('running', 'waiting'))" => [ScheduleId::FIRST];

    /// Returns when launches of a schedule started last, and when they finished.
    ///
    /// These are the newest `limit` that succeeded among the schedule's newest `searched` slots. Manual and backfill
    /// launches do not count: they may have another context.
    // The index `launch_schedule` yields the newest slots first. $3 bounds the search in a schedule that never succeeds.
    pub async fn successes(schedule: ScheduleId, limit: i64, searched: i64) -> Vec<(Timestamp, Timestamp)> = rows
        "SELECT started_at, finished_at FROM
            (SELECT scheduled_time, status, started_at, finished_at FROM launch
                WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill' ORDER BY scheduled_time DESC LIMIT $3) AS newest
        WHERE status = 'succeeded' AND started_at IS NOT NULL AND finished_at IS NOT NULL ORDER BY scheduled_time DESC LIMIT $2";

    /// Count the launches that have not ended, by what they wait for.
    // A partial index answers each part.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn unfinished_by_status() -> Unfinished = one_row
        "SELECT (SELECT count(*) FROM launch WHERE status IN ('running', 'waiting')) AS running,
            (SELECT count(*) FROM launch WHERE status = 'open' AND schedule_id > $1) AS open,
            (SELECT count(*) FROM launch WHERE status = 'queued') AS queued" => [ScheduleId::FIRST];

    /// Returns the `limit` oldest unfinished runs.
    // Hosts bound how many there are.
    pub async fn oldest_runs(limit: i64) -> Vec<OldRun> = rows
        "SELECT l.id AS launch, l.schedule_id, s.name AS schedule, l.status, h.name AS host, l.started_at FROM launch l
        JOIN schedule s ON s.id = l.schedule_id LEFT JOIN host h ON h.id = l.host_id
        WHERE l.status IN ('running', 'waiting') ORDER BY l.started_at LIMIT $1";

    /// Returns up to `limit` schedules with an undecided slot before `since`, each with that slot, oldest first.
    pub async fn overdue(since: Timestamp, limit: i64) -> Vec<(String, Timestamp)> = rows
        "SELECT name, next_slot FROM schedule WHERE next_slot < $1 ORDER BY next_slot, cursor_at DESC LIMIT $2";

    /// Returns the `limit` schedules whose next slot comes first.
    pub async fn next_slots(limit: i64) -> Vec<NextSlot> = rows
        "SELECT name AS schedule, next_slot AS slot FROM schedule
        WHERE next_slot IS NOT NULL ORDER BY next_slot, cursor_at DESC LIMIT $1";

    /// Returns the unfinished runs of all schedules.
    // The condition on `schedule_id` is always true. Without it, SQLite reads all launches in place of an index.
    pub async fn active_runs() -> Vec<ActiveRun> = rows
        "SELECT id AS launch_id, started_at, retry_at FROM launch WHERE status IN ('running', 'waiting') AND schedule_id > $1"
        => [ScheduleId::FIRST];
}

/// Count the launches decided since `since`.
///
/// Launches that retention removed are included, of the days (in UTC) that begin at `since` or later.
pub async fn counts(tx: &mut Tx, since: Timestamp) -> Result<Counts> {
    let mut counts: Counts = one_row!(tx, COUNTS, since)?;
    for removed in removed_launches::counts(tx, first_whole_day(since)).await? {
        counts.add(&removed);
    }
    Ok(counts)
}

/// Count the newest launches decided since `since`: up to `limit`, so that a page of a busy installation reads no more.
///
/// Removed launches are included as in [`counts`], when all others of the span are counted.
pub async fn counts_of_newest(tx: &mut Tx, since: Timestamp, limit: i64) -> Result<RecentCounts> {
    let newest: NewestCounts = one_row!(tx, COUNTS_OF_NEWEST, since, limit)?;
    let mut recent = RecentCounts {
        counts: newest.counts,
        counted_from: newest.oldest.filter(|_| newest.counted >= limit),
    };
    if recent.counted_from.is_none() {
        for removed in removed_launches::counts(tx, first_whole_day(since)).await? {
            recent.counts.add(&removed);
        }
    }
    Ok(recent)
}

/// Count the launches of `schedules` with a slot since `since`, by schedule. A schedule without any is left out.
///
/// Launches that retention removed are included, of the days (in UTC) that begin at `since` or later.
pub async fn counts_of(
    tx: &mut Tx,
    schedules: &[ScheduleId],
    since: Timestamp,
) -> Result<HashMap<ScheduleId, Counts>> {
    let mut all: HashMap<ScheduleId, Counts> = HashMap::new();
    for found in launched_by(tx, schedules, since).await? {
        all.insert(found.schedule_id, found.counts);
    }
    let removed = removed_launches::counts_of(tx, schedules, first_whole_day(since)).await?;
    for removed in removed {
        let counts = all.entry(removed.schedule_id).or_default();
        counts.add(&removed.counts);
    }
    Ok(all)
}

impl Counts {
    fn add(&mut self, removed: &RemovedCounts) {
        let launches = removed.launches;
        self.recovered += removed.recovered;
        self.recovery_attempts += removed.recoveries;
        if removed.status == LaunchStatus::Skipped {
            self.skipped += removed.slots;
            return;
        }
        self.launches += launches;
        match removed.status {
            LaunchStatus::Succeeded => {
                self.succeeded += launches;
                self.recovery_successes += removed.recovered;
            }
            LaunchStatus::Failed => {
                self.failed += launches;
                self.recovery_failures += removed.recovered;
            }
            LaunchStatus::Cancelled => self.cancelled += launches,
            LaunchStatus::Unknown => self.unknown += launches,
            LaunchStatus::Abandoned => self.abandoned += launches,
            // Only finished launches are removed.
            _ => {}
        }
    }
}
