//! Corrections made by an operator or a clock. They let `audit verify` explain what would otherwise be a fault.

use sqlx::FromRow;

use super::sql::statements;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

/// A cursor moved back. The slots after `to_at` up to `from_at` may be decided again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct CursorReset {
    pub reset_at: Timestamp,
    pub from_at: Timestamp,
    pub to_at: Timestamp,
    /// The schedule's revision deciding from then on.
    pub revision: i64,
}

/// A clock set back. Times recorded before, up to `until`, may be earlier than those recorded after, from `since` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromRow)]
pub struct ClockSetBack {
    pub since: Timestamp,
    pub until: Timestamp,
}

statements! {
    /// Records moving back a schedule's cursor.
    pub async fn record_cursor_reset(id: ScheduleId, reset: &CursorReset) -> () = run
        "INSERT INTO cursor_reset (schedule_id, reset_at, from_at, to_at, revision) VALUES ($1, $2, $3, $4, $5)
        ON CONFLICT (schedule_id, reset_at) DO NOTHING"
        => [id, reset.reset_at, reset.from_at, reset.to_at, reset.revision];

    /// Returns a schedule's cursor resets, oldest first.
    pub async fn cursor_resets(id: ScheduleId) -> Vec<CursorReset> = rows
        "SELECT reset_at, from_at, to_at, revision FROM cursor_reset WHERE schedule_id = $1 ORDER BY reset_at";

    /// Records a host's time going back from `until` to `since`.
    pub async fn record_clock_set_back(host: &str, back: ClockSetBack) -> () = run
        "INSERT INTO clock_set_back (host, since, until) VALUES ($1, $2, $3) ON CONFLICT (host, since) DO NOTHING"
        => [host, back.since, back.until];

    /// Returns when clocks went back, either while a host was serving or between two of its processes.
    pub async fn clock_set_backs() -> Vec<ClockSetBack> = rows
        "SELECT since, until FROM clock_set_back
        UNION SELECT later.started_at, earlier.heartbeat_at FROM host later
            JOIN host earlier ON earlier.name = later.name AND earlier.number = later.number - 1
            WHERE later.started_at < earlier.heartbeat_at
        ORDER BY 1";
}
