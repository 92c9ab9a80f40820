//! Both databases accept every statement.

use campanile_store::launch::{self, RecoveryAction, RecoveryDecision};
use campanile_store::probe;
use campanile_store::schedules::{self, CursorMove};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, host_with_schedules, insert_and_claim, launch, task_run};

on_both!(
    every_statement_can_be_prepared,
    every_batch_statement_runs_at_every_size,
);

async fn every_statement_can_be_prepared(test: TestDb) {
    let tx = test.read().await;
    let all = probe::statements(&tx);
    drop(tx);
    assert!(all.len() >= 50, "{} statements", all.len());
    let mut refused = Vec::new();
    for sql in all {
        let mut tx = test.write().await;
        if let Err(error) = probe::prepare(&mut tx, sql.clone()).await {
            refused.push(format!("{error}\n{sql}"));
        }
    }
    assert!(refused.is_empty(), "{}", refused.join("\n\n"));
}

/// Numbers of rows: with and without rows of nulls after them in a statement for SQLite, and one that needs several
/// statements.
const SIZES: [u64; 10] = [1, 3, 16, 31, 50, 96, 120, 192, 256, 300];

async fn every_batch_statement_runs_at_every_size(test: TestDb) {
    let host = host_with_schedules(&test, 300).await;
    for (round, size) in (0..).zip(SIZES) {
        let first_slot = 1_000 * (round + 1);
        let mut tx = test.write().await;
        let moves: Vec<CursorMove> = schedules::all(&mut tx)
            .await
            .unwrap()
            .into_iter()
            .take(size as usize)
            .map(|schedule| CursorMove {
                id: schedule.state.id,
                revision: 1,
                from: schedule.state.cursor_at,
                to: at(first_slot),
                next_slot: Some(at(first_slot + 1_000)),
                launches: 0,
                caught_up: None,
            })
            .collect();
        let applied = schedules::advance(&mut tx, &moves).await.unwrap();
        assert_eq!(applied.len() as u64, size);

        // All succeed, then all fail, so that every schedule has a result and a failure.
        let succeeding: Vec<_> = (1..=size).map(|n| launch(n.into(), first_slot)).collect();
        let runs = insert_and_claim(&mut tx, host, &succeeding, at(first_slot)).await;
        assert_eq!(runs.len() as u64, size);
        let finishes: Vec<_> = runs
            .iter()
            .map(|run| {
                let mut finish = run.succeeded("1", at(first_slot + 1));
                finish.tasks = vec![task_run("build", 1)];
                finish
            })
            .collect();
        let applied = launch::finish(&mut tx, &finishes).await.unwrap();
        assert_eq!(applied.len() as u64, size);

        let failing: Vec<_> = (1..=size)
            .map(|n| launch(n.into(), first_slot + 10))
            .collect();
        let runs = insert_and_claim(&mut tx, host, &failing, at(first_slot + 10)).await;
        let finishes: Vec<_> = runs
            .iter()
            .map(|run| run.failed("no", at(first_slot + 11)))
            .collect();
        let applied = launch::finish(&mut tx, &finishes).await.unwrap();
        assert_eq!(applied.len() as u64, size);

        // All are lost and reopened, then abandoned.
        let losing: Vec<_> = (1..=size)
            .map(|n| launch(n.into(), first_slot + 20))
            .collect();
        let runs = insert_and_claim(&mut tx, host, &losing, at(first_slot + 20)).await;
        for action in [
            RecoveryAction::RunAgain,
            RecoveryAction::Abandon("recovery_age"),
        ] {
            let decisions: Vec<_> = runs
                .iter()
                .map(|run| RecoveryDecision {
                    launch_id: run.launch_id(),
                    action,
                    not_before: None,
                })
                .collect();
            launch::recover(&mut tx, host, &decisions, "gone", at(first_slot + 21))
                .await
                .unwrap();
        }
        tx.commit().await.unwrap();
        for (status, recoveries, slot) in [
            ("succeeded", 0, first_slot),
            ("failed", 0, first_slot + 10),
            ("abandoned", 1, first_slot + 20),
        ] {
            let slot = test.backend().instant(at(slot));
            // Each recovery has left a lost run.
            let sql = format!(
                "SELECT CAST(count(*) AS TEXT) FROM launch l
                 WHERE l.attempts = 1 AND l.status = '{status}' AND l.recoveries = {recoveries} AND l.scheduled_time = {slot}
                    AND (SELECT count(*) FROM lost_run r WHERE r.launch_id = l.id) = {recoveries}"
            );
            assert_eq!(test.value(&sql).await, size.to_string(), "{sql}");
        }
        let results = test
            .rows("SELECT DISTINCT result FROM schedule_result WHERE failure IS NOT NULL")
            .await;
        assert_eq!(results, [["1"]]);
    }
}
