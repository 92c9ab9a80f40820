//! Seals: a chain of hashes over finished launches and events, which shows a row that was edited, added or deleted behind
//! Campanile's back.
//!
//! A seal covers a span of time: the launches that were decided in it and have ended, those of former spans that have
//! ended meanwhile, and the events of the span. Its leaves are the ids of these rows, each with the first half of the
//! SHA-256 of the row as JSON. The hash of a seal is the SHA-256 of the hash of the seal before, as hexadecimal digits,
//! followed by the seal's number, end, counts and the hash of its leaves.

use sqlx::FromRow;

use super::launch::finished_launch_columns;
use super::sql::{Batch, statements};
use super::{Result, Tx};
use crate::events::{Event, event_columns};
use crate::launch::FinishedLaunch;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, ChainHash, LaunchId, LaunchKind, ScheduleId};

/// One link of the chain.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct Seal {
    /// 1, 2, 3 and so on.
    pub number: i64,
    /// The end of its span, which begins at the end of the one before.
    pub until_at: Timestamp,
    /// After the clock was set back: rows with earlier times than `until_at` are sealed up to this time. None when the clock
    /// has caught up.
    pub late_at: Option<Timestamp>,
    pub sealed_at: Timestamp,
    pub launches: i64,
    pub events: i64,
    /// The leaves of the launches, then those of the events. None when retention has removed them.
    pub leaves: Option<Vec<u8>>,
    pub leaves_hash: ChainHash,
    /// The ids of launches that were decided before `until_at` and have not ended: a later seal covers them.
    pub unfinished: Vec<u8>,
    pub hash: ChainHash,
}

/// A schedule whose slots are to be verified.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct VerifiedSchedule {
    pub id: ScheduleId,
    pub created_at: Timestamp,
    pub cursor_at: Timestamp,
    /// Before this day (since 1970, in UTC) removed launches are not counted any more.
    pub uncounted_before: Option<i64>,
}

/// The decision about a slot, or about a range of slots.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct SlotRow {
    pub id: LaunchId,
    pub kind: LaunchKind,
    pub scheduled_time: Timestamp,
    pub last_scheduled_time: Timestamp,
    pub slot_count: i64,
    pub schedule_revision: i64,
    /// Of the host that decided it, or opened it last.
    pub tzdata_version: Option<String>,
}

statements! {
    const INSERT: &str = "INSERT INTO seal (number, until_at, late_at, sealed_at, launches, events, leaves, leaves_hash, unfinished, hash)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (number) DO NOTHING";

    /// Returns the last seal.
    pub async fn newest() -> Option<Seal> = row
        "SELECT number, until_at, late_at, sealed_at, launches, events, leaves, leaves_hash, unfinished, hash FROM seal
        ORDER BY number DESC LIMIT 1";

    /// Returns up to when rows are sealed: the end of the last seal and, after the clock was set back, up to when of those that
    /// were recorded since.
    pub async fn newest_end() -> Option<(Timestamp, Option<Timestamp>)> = row
        "SELECT until_at, late_at FROM seal ORDER BY number DESC LIMIT 1";

    /// Returns the leaves of the seals whose spans end after `after`, where they are kept.
    pub async fn leaves_after(after: Timestamp) -> Vec<Vec<u8>> = values
        "SELECT leaves FROM seal WHERE leaves IS NOT NULL AND until_at > $1 ORDER BY until_at";

    /// Returns up to `limit` seals after the number `after`, in their order.
    pub async fn page(after: i64, limit: i64) -> Vec<Seal> = rows
        "SELECT number, until_at, late_at, sealed_at, launches, events, leaves, leaves_hash, unfinished, hash FROM seal
        WHERE number > $1 ORDER BY number LIMIT $2";

    /// Returns up to `limit` launches decided from `since` to before `until`, in this order.
    pub async fn decided(since: Timestamp, until: Timestamp, limit: i64) -> Vec<FinishedLaunch> = rows
        concat!("SELECT ", finished_launch_columns!(), " FROM launch WHERE decided_at >= $1 AND decided_at < $2 ORDER BY decided_at LIMIT $3");

    /// Returns launches by their ids.
    pub async fn launches(ids: &[LaunchId]) -> Vec<FinishedLaunch> = rows_batch
        Batch::new(concat!("SELECT ", finished_launch_columns!(), " FROM launch WHERE id IN (SELECT v.column1 FROM (VALUES ($1)) AS v)")),
        ids, |id| [*id];

    /// Returns up to `limit` events from `since` to before `until`, in the order of their times.
    pub async fn events(since: Timestamp, until: Timestamp, limit: i64) -> Vec<Event> = rows
        concat!("SELECT ", event_columns!(), " FROM event WHERE at >= $1 AND at < $2 ORDER BY at LIMIT $3");

    /// Returns the time of the oldest event.
    pub async fn oldest_event() -> Option<Timestamp> = one_value "SELECT min(at) FROM event";

    /// Remove the leaves of up to `limit` seals of spans that ended before `before`. Return how many.
    pub async fn remove_leaves(before: Timestamp, limit: i64) -> u64 = execute
        "UPDATE seal SET leaves = NULL WHERE number IN
            (SELECT number FROM seal WHERE leaves IS NOT NULL AND until_at < $1 ORDER BY until_at LIMIT $2)";

    /// Returns up to `limit` schedules after `after`, also removed ones, in the order of ids.
    pub async fn schedules(after: ScheduleId, limit: i64) -> Vec<VerifiedSchedule> = rows
        "SELECT id, created_at, cursor_at, uncounted_before FROM schedule WHERE id > $1 ORDER BY id LIMIT $2";

    /// Returns up to `limit` decisions about slots of a schedule, of slots after `after` and up to `until`, in this order.
    pub async fn slots(schedule: ScheduleId, after: Timestamp, until: Timestamp, limit: i64) -> Vec<SlotRow> = rows
        "SELECT l.id, l.kind, l.scheduled_time, coalesce(l.last_scheduled_time, l.scheduled_time) AS last_scheduled_time,
            coalesce(l.slot_count, 1) AS slot_count, l.schedule_revision, h.tzdata_version
        FROM launch l LEFT JOIN host h ON h.id = l.decided_by
        WHERE l.schedule_id = $1 AND l.scheduled_time > $2 AND l.scheduled_time <= $3 AND l.kind IN ('schedule', 'catchup')
            AND l.retry_of IS NULL ORDER BY l.scheduled_time LIMIT $4";

    /// Returns the last slot of the decision about a range of slots that begins up to `at` and ends later, if there is one.
    // Such a range is among the newest decisions up to `at`.
    pub async fn range_over(schedule: ScheduleId, at: Timestamp) -> Option<Timestamp> = one_value
        "SELECT max(r.last_scheduled_time) FROM (SELECT l.last_scheduled_time FROM launch l
            WHERE l.schedule_id = $1 AND l.scheduled_time <= $2 AND l.kind IN ('schedule', 'catchup') AND l.retry_of IS NULL
            ORDER BY l.scheduled_time DESC LIMIT 16) AS r WHERE r.last_scheduled_time > $2";

    /// Returns the digests of all artifacts. Those whose bytes are stored come with true.
    pub async fn artifacts() -> Vec<(ArtifactDigest, bool)> = rows
        "SELECT digest, bytes IS NOT NULL FROM artifact ORDER BY digest";

    /// Returns how many lost runs each of these launches has; one without any is left out.
    pub async fn lost_runs(launches: &[LaunchId]) -> Vec<(LaunchId, i64)> = rows_batch
        Batch::new("SELECT launch_id, count(*) FROM lost_run WHERE launch_id IN (SELECT v.column1 FROM (VALUES ($1)) AS v)
            GROUP BY launch_id"),
        launches, |launch| [*launch];
}

/// Add a seal. False when another host has added one of that number.
pub async fn insert(tx: &mut Tx, seal: &Seal) -> Result<bool> {
    super::sql::changed!(
        tx,
        INSERT,
        seal.number,
        seal.until_at,
        seal.late_at,
        seal.sealed_at,
        seal.launches,
        seal.events,
        seal.leaves.as_deref(),
        &seal.leaves_hash,
        &*seal.unfinished,
        &seal.hash,
    )
}
