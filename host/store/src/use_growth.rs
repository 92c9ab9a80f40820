//! The schedules whose runs use much more than a week before. The host that does the chores finds them, a page at a time.

use sqlx::FromRow;

use super::sql::{Batch, statements};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

/// What the runs of a schedule used, each in the median of a week.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct Growth {
    /// Processor time in the week before the last one, in microseconds.
    pub cpu_us_before: i64,
    /// The same in the last week.
    pub cpu_us: i64,
    pub memory_peak_bytes_before: i64,
    pub memory_peak_bytes: i64,
}

/// A schedule whose use grows.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct GrowingSchedule {
    pub schedule: String,
    pub package: String,
    #[sqlx(flatten)]
    pub growth: Growth,
}

statements! {
    /// Returns up to `limit` schedules after `after`, in the order of ids.
    pub async fn schedules(after: ScheduleId, limit: i64) -> Vec<ScheduleId> = values
        "SELECT id FROM schedule WHERE id > $1 AND deleted_at IS NULL ORDER BY id LIMIT $2";

    /// Note schedules whose use grows, in the pass that began at `checked_at`.
    pub async fn note(found: &[(ScheduleId, Growth)], checked_at: Timestamp) -> () = execute_batch
        Batch::new("INSERT INTO schedule_growth (schedule_id, checked_at, cpu_us_before, cpu_us, memory_peak_bytes_before, memory_peak_bytes)
        VALUES ($1, $2, $3, $4, $5, $6)
        ON CONFLICT (schedule_id) DO UPDATE SET checked_at = excluded.checked_at, cpu_us_before = excluded.cpu_us_before,
            cpu_us = excluded.cpu_us, memory_peak_bytes_before = excluded.memory_peak_bytes_before,
            memory_peak_bytes = excluded.memory_peak_bytes"),
        found, |(schedule, growth)| [
            *schedule, checked_at, growth.cpu_us_before, growth.cpu_us, growth.memory_peak_bytes_before, growth.memory_peak_bytes,
        ];

    /// Delete the schedules that the pass which began at `checked_at` did not note.
    pub async fn end_pass(checked_at: Timestamp) -> u64 = execute "DELETE FROM schedule_growth WHERE checked_at <> $1";

    /// Returns up to `limit` schedules whose use grows, by name.
    // `CROSS JOIN` keeps SQLite from reading all schedules first, and `|| ''` keeps Postgres from reading them by name.
    pub async fn list(limit: i64) -> Vec<GrowingSchedule> = rows
        "SELECT s.name AS schedule, s.package, g.cpu_us_before, g.cpu_us, g.memory_peak_bytes_before, g.memory_peak_bytes
        FROM schedule_growth g CROSS JOIN schedule s WHERE s.id = g.schedule_id AND s.deleted_at IS NULL ORDER BY s.name || '' LIMIT $1";
}
