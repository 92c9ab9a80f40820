//! The tables refuse impossible states, whichever statement writes them.

use campanile_store::{DbError, probe};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, skipped};

on_both!(impossible_states_are_refused, possible_states_are_accepted);

const T: &str = "'2027-01-15T09:00:00.000000Z'";

/// Insert a host, two schedules, the launches of the slots 10 (running), 20 (open) and 30 (skipped), and one run.
async fn prepare(test: &TestDb) {
    let host = host_with_schedules(test, 2).await;
    let mut tx = test.write().await;
    insert_and_claim(&mut tx, host, &[launch(1, 10)], 1, at(10)).await;
    campanile_store::launches::insert(&mut tx, &[launch(1, 20), skipped(1, 30, "missed")])
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn write(test: &TestDb, sql: &str) -> Result<(), DbError> {
    let mut tx = test.write().await;
    probe::execute(&mut tx, &sql.replace("$T", T)).await
}

async fn impossible_states_are_refused(test: TestDb) {
    prepare(&test).await;
    for sql in [
        // Values that this version does not know.
        "UPDATE host SET ended_at = $T, end_reason = 'bored'",
        "UPDATE schedule SET origin = 'nowhere'",
        "UPDATE schedule_revision SET kind = 'sometimes'",
        "UPDATE launch SET kind = 'whim'",
        "UPDATE launch SET decision = 'undecided'",
        "UPDATE launch SET status = 'lost'",
        "UPDATE run SET status = 'open', lease_until = NULL",
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
        "UPDATE launch SET status = 'skipped', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'open', finished_at = NULL WHERE status = 'skipped'",
        "UPDATE launch SET decision = 'skipped' WHERE status = 'open'",
        "UPDATE launch SET finished_at = NULL WHERE status = 'skipped'",
        "UPDATE launch SET finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'succeeded' WHERE status = 'running'",
        "UPDATE launch SET status = 'abandoned' WHERE status = 'open'",
        "UPDATE launch SET status = 'cancelled' WHERE status = 'running'",
        // A queued launch is not decided as launched.
        "UPDATE launch SET status = 'queued' WHERE status = 'open'",
        "UPDATE launch SET decision = 'queued' WHERE status = 'open'",
        "UPDATE launch SET kind = 'backfill'",
        // Only a manual launch has its own overlap policy.
        "UPDATE launch SET overlap = 'skip'",
        "UPDATE launch SET kind = 'manual', overlap = 'sometimes'",
        "UPDATE launch SET slot_count = 0",
        "UPDATE launch SET scheduled_time = $T",
        // A running run has a lease, a waiting run has a retry time, and a finished run has an end.
        "UPDATE run SET lease_until = NULL",
        "UPDATE run SET status = 'waiting', lease_until = NULL",
        "UPDATE run SET status = 'waiting', retry_at = $T",
        "UPDATE run SET retry_at = $T",
        "UPDATE run SET finished_at = $T",
        "UPDATE run SET status = 'succeeded', lease_until = NULL",
        "UPDATE run SET status = 'lost', finished_at = $T",
        // A row that another row references cannot be deleted.
        "DELETE FROM schedule WHERE name = 'schedule-1'",
        "DELETE FROM host",
        "DELETE FROM artifact",
        // The change counter has one row.
        "INSERT INTO change (id, counter) VALUES (2, 0)",
        "INSERT INTO change (id, counter) VALUES (1, 0)",
        // Required columns are not NULL.
        "UPDATE launch SET scheduled_local = NULL",
        "UPDATE run SET fence = NULL",
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
        "UPDATE launch SET status = 'succeeded', finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'abandoned', finished_at = $T WHERE status = 'open'",
        "UPDATE launch SET status = 'unknown', finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET status = 'cancelled', finished_at = $T WHERE status = 'running'",
        "UPDATE launch SET decision = 'queued', status = 'queued' WHERE status = 'open'",
        "UPDATE launch SET status = 'waiting' WHERE status = 'running'",
        "UPDATE launch SET scheduled_time = $T, kind = 'manual'",
        "UPDATE launch SET kind = 'manual', overlap = 'skip'",
        "UPDATE run SET status = 'waiting', lease_until = NULL, retry_at = $T",
        "UPDATE run SET status = 'succeeded', lease_until = NULL, finished_at = $T",
        "UPDATE run SET status = 'cancelled', lease_until = NULL, finished_at = $T",
        "UPDATE run SET status = 'lost', lease_until = NULL, finished_at = $T",
    ] {
        let accepted = write(&test, sql).await;
        assert!(accepted.is_ok(), "{sql}\n{accepted:?}");
    }
}
