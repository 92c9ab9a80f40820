//! The launches of one schedule in a span of days, for its calendar.

use sqlx::FromRow;

use super::sql::statements;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;

/// What a calendar shows of a launch, or of a range of skipped slots.
#[derive(Debug, Clone, PartialEq, FromRow)]
pub struct CalendarLaunch {
    pub scheduled_time: Timestamp,
    /// By how many seconds the clock of the schedule's zone was ahead of UTC.
    pub utc_offset: i64,
    /// The last slot of a range and the number of its slots; none for a single slot.
    pub last_scheduled_time: Option<Timestamp>,
    pub slot_count: Option<i64>,
    pub status: LaunchStatus,
    pub kind: LaunchKind,
    pub fire_time: Timestamp,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
}

/// The launches of one day and one status that retention removed.
#[derive(Debug, Clone, PartialEq, Eq, FromRow)]
pub struct RemovedSlots {
    /// Days since 1970, in UTC.
    pub slot_day: i64,
    pub status: LaunchStatus,
    pub slots: i64,
}

statements! {
    /// Returns the newest `limit` launches of a schedule with a slot from `from` until before `to`, newest slot first.
    // The index `launch_schedule` yields them in this order.
    pub async fn launches(schedule: ScheduleId, from: Timestamp, to: Timestamp, limit: i64) -> Vec<CalendarLaunch> = rows
        "SELECT scheduled_time, utc_offset, last_scheduled_time, slot_count, status, kind, fire_time, started_at, finished_at FROM launch
        WHERE schedule_id = $1 AND scheduled_time >= $2 AND scheduled_time < $3 ORDER BY scheduled_time DESC LIMIT $4";

    /// Count the slots of the removed launches of a schedule on the days from `first` to `last`, by day and status.
    // The primary key leads to the days of the schedule.
    pub async fn removed(schedule: ScheduleId, first: i64, last: i64) -> Vec<RemovedSlots> = rows
        "SELECT slot_day, status, CAST(sum(slots) AS BIGINT) AS slots FROM removed_launches
        WHERE schedule_id = $1 AND slot_day >= $2 AND slot_day <= $3 GROUP BY slot_day, status ORDER BY slot_day, status";
}
