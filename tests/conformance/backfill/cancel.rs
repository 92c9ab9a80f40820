//! Cancelled backfills.

use campanile_tests::Backend;

use super::*;

on_both!(
    a_cancelled_backfill_skips_launches_that_have_not_started,
    a_cancel_that_races_with_a_rename_is_tried_again,
);

async fn a_cancelled_backfill_skips_launches_that_have_not_started(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    let spread = BackfillRequest {
        spread: Duration::from_secs(3_600),
        ..request(1, 120, 1)
    };
    system.begin(&spread).await;
    system.tick().await;
    let (running, totals) = system.backfill_and_totals(id(1)).await;
    assert_eq!(
        (running.launched, totals.succeeded, totals.unfinished),
        (100, 1, 99)
    );
    let cancel = async |by| {
        let mut tx = system.test.write().await;
        let done = backfill::cancel(&mut tx, id(1), by, system.clock.now()).await;
        tx.commit().await.unwrap();
        done
    };
    assert_eq!(cancel("bob").await.unwrap(), 99);
    let second_time = cancel("bob").await.unwrap_err().to_string();
    assert_eq!(
        second_time,
        format!("the backfill {} is cancelled already", id(1))
    );
    for _ in 0..3 {
        system.tick().await;
    }
    let (cancelled, totals) = system.backfill_and_totals(id(1)).await;
    assert_eq!(cancelled.status, BackfillStatus::Cancelled);
    let expected = LaunchTotals {
        succeeded: 1,
        cancelled: 99,
        ..LaunchTotals::default()
    };
    assert_eq!(totals, expected);
    let rows = system.rows().await;
    let skipped = rows.iter().filter(|row| {
        (row.decision, row.reason.as_deref()) == (Decision::Skipped, Some("cancelled"))
    });
    assert_eq!(skipped.count(), 99);
    let (kind, detail) = system.events().await.pop().unwrap();
    assert_eq!(kind, "backfill_cancelled");
    assert_eq!(
        detail,
        format!("{} by bob, 99 launches had not begun", id(1))
    );

    // Open launches that no host had capacity for have not started either.
    system.begin(&request(2, 120, 101)).await;
    system
        .engine()
        .run_backfills(system.clock.now())
        .await
        .unwrap();
    let mut tx = system.test.write().await;
    let skipped = backfill::cancel(&mut tx, id(2), "bob", system.clock.now());
    assert_eq!(
        skipped.await.unwrap(),
        19,
        "one of the launches has succeeded"
    );
    tx.commit().await.unwrap();
    assert_eq!(system.tick().await.claimed, 0);
    assert_eq!(system.backfill_and_totals(id(2)).await.1.cancelled, 19);
    let rows = system.rows().await;
    let skipped = rows.iter().filter(|row| row.decision == Decision::Skipped);
    assert_eq!(skipped.count(), 99 + 19);
}

async fn a_cancel_that_races_with_a_rename_is_tried_again(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&request(1, 5, 1)).await;
    let now = system.clock.now();
    let mut renaming = system.test.write().await;
    schedule_admin::rename(&mut renaming, "report", "summary", now)
        .await
        .unwrap();
    match system.test.backend() {
        // SQLite has one writer at a time.
        Backend::Sqlite => renaming.commit().await.unwrap(),
        Backend::Postgres => {
            let mut tx = system.test.write().await;
            let cancel = backfill::cancel(&mut tx, id(1), "bob", now);
            let rename = async {
                tokio::time::sleep(Duration::from_millis(300)).await;
                renaming.commit().await
            };
            let (cancelled, renamed) = tokio::join!(cancel, rename);
            renamed.unwrap();
            let error = cancelled.unwrap_err();
            assert!(matches!(error, ScheduleError::Raced(_)), "{error}");
        }
    }
    let cancelled = schedule_admin::change(&system.test.db, async |tx| {
        backfill::cancel(tx, id(1), "bob", now).await
    });
    assert_eq!(cancelled.await.unwrap(), 0);
    assert_eq!(system.status(id(1)).await, BackfillStatus::Cancelled);
}
