//! Retention: which rows are old, and how they are removed.
//!
//! Candidates are read outside of transactions that write. A transaction that removes launches names them by id, and
//! counts only the rows that it deleted itself, so that no launch is counted twice.

use sqlx::FromRow;

use super::launch::{FinishedLaunch, finished_launch_columns};
use super::removed_launches;
use super::sql::{Batch, Locking, rows_batch, statements};
use super::task_use;
use super::{Result, Tx};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, BackfillId, HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;

/// A launch that may be removed.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct OldLaunch {
    pub id: LaunchId,
    pub schedule_id: ScheduleId,
    pub kind: LaunchKind,
    pub status: LaunchStatus,
    pub scheduled_time: Timestamp,
    pub decided_at: Timestamp,
    /// None while it is unfinished.
    pub finished_at: Option<Timestamp>,
    pub backfill_id: Option<BackfillId>,
}

/// What retention needs to know about a schedule.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct SchedulePolicies {
    pub id: ScheduleId,
    pub deleted_at: Option<Timestamp>,
    /// JSON.
    pub policies: String,
}

/// From which slots on the launches of a schedule are its newest; none where it has fewer launches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, FromRow)]
pub struct NewestSlots {
    /// Among all its launches.
    pub any: Option<Timestamp>,
    /// Among the launches of its slots that have succeeded or failed for good.
    pub with_outcome: Option<Timestamp>,
    /// The newest of its slots.
    pub of_slots: Option<Timestamp>,
}

macro_rules! old_launches {
    ($rest:literal) => {
        concat!("SELECT id, schedule_id, kind, status, scheduled_time, decided_at, finished_at, backfill_id FROM launch WHERE ", $rest)
    };
}
macro_rules! schedule_policies {
    ($rest:literal) => {
        concat!(
            "SELECT s.id, s.deleted_at, r.policies FROM schedule s
            JOIN schedule_revision r ON r.schedule_id = s.id AND r.revision = s.revision ",
            $rest
        )
    };
}
/// The rows that need the bytes of an artifact, besides unfinished launches.
macro_rules! unused_artifact {
    () => {
        "artifact.bytes IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM package p WHERE p.digest = artifact.digest OR p.pending_digest = artifact.digest)
            AND NOT EXISTS (SELECT 1 FROM package_host h WHERE h.digest = artifact.digest)"
    };
}

statements! {
    // The condition on the end is repeated here: a candidate was read in another transaction.
    const REMOVE: Batch = Batch::new(
        concat!("DELETE FROM launch WHERE id IN (SELECT v.column1 FROM (VALUES ($1)) AS v) AND (finished_at IS NOT NULL) IS TRUE
        RETURNING ", finished_launch_columns!()),
    );

    /// Take the right to remove rows until the transaction ends. False when another host has it.
    // SQLite has one writer, which is this transaction.
    pub async fn lock() -> bool = one_value Locking {
        sqlite: "SELECT 1 IS NOT NULL",
        postgres: "SELECT pg_try_advisory_xact_lock(720116, hashtext(current_schema()))",
    };

    /// Returns up to `limit` launches after `after` and before `before`, in the order of ids.
    pub async fn launches(after: LaunchId, before: LaunchId, limit: i64) -> Vec<OldLaunch> = rows
        old_launches!("id > $1 AND id < $2 ORDER BY id LIMIT $3");

    /// Returns up to `limit` launches of a schedule after the launch `after` of the slot `slot`, of slots before `before`.
    pub async fn launches_of(
        schedule: ScheduleId, slot: Timestamp, after: LaunchId, before: Timestamp, limit: i64,
    ) -> Vec<OldLaunch> = rows
        old_launches!("schedule_id = $1 AND (scheduled_time, id) > ($2, $3) AND scheduled_time < $4
            ORDER BY scheduled_time, id LIMIT $5");

    /// Returns up to `limit` launches with recorded calls, after `after` and before `before`, in the order of ids, each with
    /// its end unless unfinished.
    pub async fn called(after: LaunchId, before: LaunchId, limit: i64) -> Vec<(LaunchId, Option<Timestamp>)> = rows
        "SELECT l.id, l.finished_at FROM (SELECT DISTINCT launch_id FROM task_run
            WHERE launch_id > $1 AND launch_id < $2 ORDER BY launch_id LIMIT $3) AS t
        JOIN launch l ON l.id = t.launch_id ORDER BY l.id";

    /// Returns the policies of schedules, also of removed ones.
    pub async fn policies_of(schedules: &[ScheduleId]) -> Vec<SchedulePolicies> = rows_batch
        Batch::new(schedule_policies!("JOIN (VALUES ($1)) AS v ON s.id = v.column1")),
        schedules, |schedule| [*schedule];

    /// Returns up to `limit` schedules after `after` in the order of ids, also removed ones: those whose policies may set an
    /// age.
    // A partial index finds them, however many schedules there are.
    pub async fn policies_with_age(after: ScheduleId, limit: i64) -> Vec<SchedulePolicies> = rows
        schedule_policies!("WHERE r.policies LIKE '%\"retention\"%' AND r.schedule_id > $1 ORDER BY r.schedule_id LIMIT $2");

    /// Returns from which slots on the launches of a schedule are its newest `any` and, of those with an outcome, its newest
    /// `with_outcome`. Both numbers are at least 1.
    // The index `launch_schedule` yields the newest slots first.
    pub async fn newest_slots(schedule: ScheduleId, any: i64, with_outcome: i64) -> NewestSlots = one_row
        "SELECT (SELECT scheduled_time FROM launch WHERE schedule_id = $1 ORDER BY scheduled_time DESC LIMIT 1 OFFSET $2) AS any,
            (SELECT scheduled_time FROM launch WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill'
                AND status IN ('succeeded', 'failed', 'unknown', 'abandoned', 'cancelled')
                ORDER BY scheduled_time DESC LIMIT 1 OFFSET $3) AS with_outcome,
            (SELECT scheduled_time FROM launch WHERE schedule_id = $1 AND kind <> 'manual' AND kind <> 'backfill'
                ORDER BY scheduled_time DESC LIMIT 1) AS of_slots"
        => [schedule, any - 1, with_outcome - 1];

    /// Returns the launches that an unfinished launch refers to: those that displace it.
    pub async fn displacing() -> Vec<LaunchId> = values
        "SELECT overlaps_id FROM launch WHERE status IN ('running', 'waiting') AND overlaps_id IS NOT NULL";

    /// Returns the ids of the running backfills.
    pub async fn running_backfills() -> Vec<BackfillId> = values "SELECT id FROM backfill WHERE status = 'running'";

    /// Delete the lost runs of these launches.
    pub(super) async fn remove_lost_runs(launches: &[LaunchId]) -> () = execute_batch
        Batch::new("DELETE FROM lost_run WHERE launch_id IN (SELECT v.column1 FROM (VALUES ($1)) AS v)"),
        launches, |launch| [*launch];

    /// Delete up to `limit` events from before `before`, the oldest first; return how many.
    pub async fn remove_events(before: Timestamp, limit: i64) -> u64 = execute
        "DELETE FROM event WHERE id IN (SELECT id FROM event WHERE at < $1 ORDER BY at LIMIT $2)";

    /// Delete the days before `day` of what packages added to the record.
    pub async fn remove_package_days(day: i64) -> u64 = execute "DELETE FROM package_record WHERE day < $1";

    /// Delete the backfills that ended before `before` and have no launches any more; return how many.
    pub async fn remove_backfills(before: Timestamp) -> u64 = execute
        "DELETE FROM backfill WHERE status <> 'running' AND finished_at < $1
            AND NOT EXISTS (SELECT 1 FROM launch l WHERE l.backfill_id = backfill.id)";

    /// Returns up to `limit` hosts that ended before `before` and that no row refers to. A drained one stays, for its next process. Launches of slots from `until` on are
    /// not searched: a host cannot have decided or claimed a launch whose slot came after its end.
    pub async fn unused_hosts(before: Timestamp, until: LaunchId, limit: i64) -> Vec<HostId> = values
        "SELECT h.id FROM host h WHERE h.ended_at < $1 AND h.drained_at IS NULL
            AND NOT EXISTS (SELECT 1 FROM package_host p WHERE p.host_id = h.id)
            AND NOT EXISTS (SELECT 1 FROM package p WHERE p.rejected_by = h.id OR p.loading_by = h.id)
            AND NOT EXISTS (SELECT 1 FROM lost_run r WHERE r.host_id = h.id)
            AND NOT EXISTS (SELECT 1 FROM launch l WHERE l.id < $2 AND (l.decided_by = h.id OR l.host_id = h.id))
        ORDER BY h.ended_at LIMIT $3";

    /// Delete ended hosts.
    pub async fn remove_hosts(hosts: &[HostId]) -> () = execute_batch
        Batch::new("DELETE FROM host WHERE id IN (SELECT v.column1 FROM (VALUES ($1)) AS v) AND (ended_at IS NOT NULL) IS TRUE"),
        hosts, |host| [*host];

    /// Returns up to `limit` artifacts that nothing has needed since `since`: each belongs only to versions that another
    /// version had replaced by then.
    pub async fn unused_artifacts(since: Timestamp, limit: i64) -> Vec<ArtifactDigest> = values
        concat!("SELECT digest FROM artifact WHERE stored_at < $1 AND ", unused_artifact!(), "
            AND NOT EXISTS (SELECT 1 FROM package_version v WHERE v.digest = artifact.digest
                AND (v.activated_at >= $1 OR v.decided_at >= $1 OR (v.activated_at IS NOT NULL
                    AND NOT EXISTS (SELECT 1 FROM package_version n WHERE n.package = v.package
                        AND n.activated_at > v.activated_at AND n.activated_at < $1))))
            AND NOT EXISTS (SELECT 1 FROM launch l WHERE l.status IN ('running', 'waiting') AND l.digest = artifact.digest)
            AND NOT EXISTS (SELECT 1 FROM launch l WHERE l.status = 'open' AND l.schedule_id IS NOT NULL AND l.digest = artifact.digest)
            AND NOT EXISTS (SELECT 1 FROM launch l WHERE l.status = 'queued' AND l.digest = artifact.digest)
        ORDER BY stored_at LIMIT $2");

    /// Remove the bytes of an artifact, unless a package needs them by now. Its row stays.
    pub async fn remove_bytes(digest: &ArtifactDigest, now: Timestamp) -> bool = changed
        concat!("UPDATE artifact SET bytes = NULL, removed_at = $2 WHERE digest = $1 AND ", unused_artifact!());
}

/// Remove what the calls of finished launches wrote, and add their use to `removed_calls`.
pub async fn remove_calls(tx: &mut Tx, launches: &[LaunchId]) -> Result {
    let called = task_use::called(tx, launches).await?;
    task_use::remove(tx, &called).await
}

/// Remove finished launches with their task runs and lost runs, and add them to `removed_launches`. Return their number.
///
/// The caller has the right to remove rows: see [`lock`].
pub async fn remove(tx: &mut Tx, launches: &[LaunchId], now: Timestamp) -> Result<usize> {
    let mut removed: Vec<FinishedLaunch> = rows_batch!(tx, REMOVE, launches, |launch| [*launch])?;
    let ids: Vec<LaunchId> = removed.iter().map(|launch| launch.id).collect();
    let called = removed.iter().map(|launch| task_use::CalledLaunch {
        id: launch.id,
        schedule_id: launch.schedule_id,
        package: launch.package.clone(),
        scheduled_time: launch.scheduled_time,
        decided_at: launch.decided_at,
    });
    task_use::remove(tx, &called.collect::<Vec<_>>()).await?;
    remove_lost_runs(tx, &ids).await?;
    removed_launches::add(tx, &mut removed, now).await?;
    Ok(removed.len())
}
