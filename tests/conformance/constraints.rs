//! The tables refuse impossible states, whichever statement writes them.

use campanile_store::{DbError, probe};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, skipped};

on_both!(impossible_states_are_refused, possible_states_are_accepted);

/// Insert a host, two schedules, the launches of the slots 10 (running), 20 (open) and 30 (skipped).
async fn prepare(test: &TestDb) {
    let host = host_with_schedules(test, 2).await;
    let mut tx = test.write().await;
    insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await;
    campanile_store::launch::insert(&mut tx, &[launch(1, 20), skipped(1, 30, "missed")])
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

/// Run a statement, in which `$T` is an instant and `$LOST` the columns of a lost run. Do not commit it.
async fn write(test: &TestDb, sql: &str) -> Result<(), DbError> {
    let mut tx = test.write().await;
    let columns = "launch_id, number, host_id, started_at, finished_at, message";
    let sql = sql.replace("$LOST", columns);
    let sql = sql.replace("$T", &test.backend().instant(at(3_600)));
    probe::execute(&mut tx, &sql).await
}

async fn impossible_states_are_refused(test: TestDb) {
    prepare(&test).await;
    for sql in [
        // Values that this version does not know.
        "UPDATE host SET ended_at = $T, end_reason = 'bored'",
        "UPDATE schedule SET origin = 'nowhere'",
        "UPDATE schedule_revision SET kind = 'sometimes'",
        "UPDATE launch SET kind = 'whim'",
        "INSERT INTO event (id, at, kind, subject, detail, channel) SELECT id, started_at, 'x', 'x', 'x', 'post' FROM host",
        // A person has a name, and a host acts without one.
        "INSERT INTO event (id, at, kind, subject, detail, channel) SELECT id, started_at, 'x', 'x', 'x', 'cli' FROM host",
        "INSERT INTO event (id, at, kind, subject, detail, channel, principal) SELECT id, started_at, 'x', 'x', 'x', 'host', 'ada' FROM host",
        // Only a reset moves a cursor.
        "INSERT INTO event (id, at, kind, subject, detail, channel, from_at) SELECT id, started_at, 'x', 'x', 'x', 'host', $T FROM host",
        "INSERT INTO event (id, at, kind, subject, detail, channel, from_at) SELECT id, started_at, 'cursor_reset', 'x', 'x', 'host', $T FROM host",
        "UPDATE launch SET status = 'lost'",
        "UPDATE launch SET priority = 10",
        // An ended host has a reason, and a host with a reason has ended.
        "UPDATE host SET ended_at = $T",
        "UPDATE host SET end_reason = 'died'",
        // A paused, removed or finished schedule has no next slot. A next slot is after the cursor.
        "UPDATE schedule SET enabled = (1 = 0), paused_at = $T",
        "UPDATE schedule SET deleted_at = $T",
        "UPDATE schedule SET next_slot = cursor_at",
        "UPDATE schedule SET cursor_at = $T",
        "UPDATE schedule SET revision = 0",
        // A disabled schedule is paused. Only a paused schedule has a pause note.
        "UPDATE schedule SET enabled = (1 = 0), next_slot = NULL",
        "UPDATE schedule SET paused_at = $T",
        "UPDATE schedule SET pause_note = 'why'",
        "UPDATE schedule SET last_catchup_at = $T",
        "UPDATE schedule SET name = 'same'",
        // A skipped launch is finished. Only a finished launch has an end.
        "UPDATE launch SET status = 'skipped' WHERE status = 'open'",
        "UPDATE launch SET status = 'open' WHERE status = 'skipped'",
        "UPDATE launch SET status = 'queued' WHERE status = 'skipped'",
        "UPDATE launch SET finished_at = NULL WHERE status = 'skipped'",
        "UPDATE launch SET finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'abandoned' WHERE status = 'open'",
        "UPDATE launch SET status = 'unknown', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'succeeded', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'cancelled', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'waiting', lease_until = NULL, retry_at = $T, finished_at = $T WHERE status = 'running'",
        // A running launch has a lease, and a waiting launch has a retry time. No other launch has them.
        "UPDATE launch SET lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET lease_until = $T WHERE status = 'open'",
        "UPDATE launch SET lease_until = $T WHERE status = 'skipped'",
        "UPDATE launch SET retry_at = $T WHERE status = 'running'",
        "UPDATE launch SET retry_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'waiting', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'waiting', retry_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'succeeded', finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'unknown', finished_at = $T WHERE status = 'running'",
        // A launch that a host claimed has that host and a start. A launch that no host may have claimed has neither.
        "UPDATE launch SET host_id = NULL WHERE status = 'running'",
        "UPDATE launch SET started_at = NULL WHERE status = 'running'",
        "UPDATE launch SET host_id = NULL, started_at = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'running', lease_until = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'waiting', retry_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'succeeded', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'failed', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET host_id = decided_by, started_at = $T WHERE status = 'open'",
        "UPDATE launch SET host_id = decided_by, started_at = $T WHERE status = 'skipped'",
        "UPDATE launch SET started_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'open', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'queued', lease_until = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'skipped', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        // Only a launch of a backfill belongs to one.
        "UPDATE launch SET kind = 'backfill'",
        "UPDATE launch SET backfill_id = schedule_id",
        // Only a manual launch has its own overlap policy.
        "UPDATE launch SET overlap = 'skip'",
        "UPDATE launch SET kind = 'manual', overlap = 'sometimes'",
        // A range has a last slot and a number of slots.
        "UPDATE launch SET last_scheduled_time = $T",
        "UPDATE launch SET slot_count = 2",
        "UPDATE launch SET last_scheduled_time = $T, slot_count = 0",
        // The number of a run is one byte of its id.
        "UPDATE launch SET recoveries = -1",
        "UPDATE launch SET recoveries = 255",
        // A launch is decided once, and each of its runs is lost once. Runs are numbered from 1.
        "INSERT INTO launch SELECT * FROM launch",
        "INSERT INTO lost_run ($LOST) SELECT id, 0, host_id, started_at, $T, 'gone' FROM launch WHERE status = 'running'",
        "INSERT INTO lost_run ($LOST) SELECT id, 1, host_id, started_at, $T, 'gone' FROM launch WHERE status = 'open'",
        "INSERT INTO lost_run ($LOST) SELECT id, 1, host_id, started_at, $T, NULL FROM launch WHERE status = 'running'",
        "INSERT INTO lost_run ($LOST) SELECT id, 1, host_id, started_at, $T, 'gone' FROM launch WHERE status = 'running';
            INSERT INTO lost_run SELECT * FROM lost_run",
        // A row that another row references cannot be deleted.
        "DELETE FROM schedule WHERE name = 'schedule-1'",
        "DELETE FROM host",
        "DELETE FROM artifact",
        // Only an artifact whose bytes were removed has none.
        "UPDATE artifact SET bytes = NULL",
        "UPDATE artifact SET removed_at = $T",
        // Only finished launches are removed.
        "INSERT INTO removed_launches SELECT schedule_id, 1, 1, 'open', 1, 1, 0, 0, 0, $T, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        // A row of removed calls has calls.
        "INSERT INTO removed_calls SELECT schedule_id, 1, 1, package, 0, 1, 1, 1, 1 FROM launch LIMIT 1",
        "INSERT INTO schedule_rollup SELECT schedule_id, 'week', $T, 1, 1, 1, 1, 1, 1, a.digest, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        "INSERT INTO package_rollup SELECT package, '', $T, 1, 1, 1, 1, 1, 1, a.digest, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        // The change counter has one row.
        "INSERT INTO change (id, counter) VALUES (2, 0)",
        "INSERT INTO change (id, counter) VALUES (1, 0)",
        // Required columns are not NULL.
        "UPDATE launch SET utc_offset = NULL",
        "UPDATE launch SET attempts = NULL",
    ] {
        let refused = write(&test, sql).await;
        assert!(
            matches!(refused, Err(DbError::Unexpected(_) | DbError::Conflict(_))),
            "{sql}\n{refused:?}"
        );
    }
}

/// Similar statements that are valid: they show that the refusals above have the intended reason.
async fn possible_states_are_accepted(test: TestDb) {
    prepare(&test).await;
    for sql in [
        "UPDATE host SET ended_at = $T, end_reason = 'stopped'",
        "UPDATE schedule SET enabled = (1 = 0), paused_at = $T, next_slot = NULL",
        "UPDATE schedule SET deleted_at = $T, next_slot = NULL",
        "UPDATE schedule SET cursor_at = $T, next_slot = NULL",
        "UPDATE schedule SET deleted_at = $T, next_slot = NULL, name = 'same'",
        "UPDATE launch SET status = 'skipped', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'queued' WHERE status = 'open'",
        "UPDATE launch SET status = 'abandoned', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'unknown', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'cancelled', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'running', lease_until = $T, host_id = decided_by, started_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'open', lease_until = NULL, host_id = NULL, started_at = NULL WHERE status = 'running'",
        "UPDATE launch SET status = 'waiting', lease_until = NULL, retry_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'succeeded', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'failed', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'cancelled', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'unknown', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'abandoned', lease_until = NULL, finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET kind = 'manual', overlap = 'skip'",
        "UPDATE launch SET kind = 'backfill', backfill_id = schedule_id",
        "UPDATE launch SET last_scheduled_time = $T, slot_count = 2",
        "UPDATE launch SET recoveries = 254, priority = 9",
        "UPDATE artifact SET bytes = NULL, removed_at = $T",
        "INSERT INTO removed_launches SELECT schedule_id, 1, 1, 'failed', 1, 1, 0, 0, 0, $T, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        "INSERT INTO removed_calls SELECT schedule_id, 1, 1, package, 1, 1, 1, 1, 1 FROM launch LIMIT 1",
        "INSERT INTO schedule_rollup SELECT schedule_id, 'hour', $T, 1, 1, 1, 1, 1, 1, a.digest, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        "INSERT INTO package_rollup SELECT package, 'day', $T, 1, 1, 1, 1, 1, 1, a.digest, a.digest FROM launch l JOIN artifact a ON l.digest = a.digest LIMIT 1",
        "INSERT INTO lost_run ($LOST) SELECT id, 1, host_id, started_at, $T, 'gone' FROM launch WHERE status = 'running'",
        "INSERT INTO lost_run ($LOST) SELECT id, 1, host_id, started_at, $T, 'gone' FROM launch WHERE status = 'running';
            INSERT INTO lost_run ($LOST) SELECT launch_id, 2, host_id, started_at, $T, 'gone' FROM lost_run",
    ] {
        let accepted = write(&test, sql).await;
        assert!(accepted.is_ok(), "{sql}\n{accepted:?}");
    }
}
