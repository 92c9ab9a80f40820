//! Backfills that are ended before their time.

use super::*;

on_both!(
    a_cancelled_backfill_skips_what_has_not_begun,
    a_backfill_of_a_schedule_that_is_renamed_meanwhile_is_looked_for_again,
);

async fn a_cancelled_backfill_skips_what_has_not_begun(test: TestDb) {
    let tower = Tower::new(test, Overlap::Allow).await;
    let spread = BackfillRequest {
        spread: Duration::from_secs(3_600),
        ..asked(1, 120, 1)
    };
    tower.begin(&spread).await;
    tower.tick().await;
    let (running, ends) = tower.seen(id(1)).await;
    assert_eq!(
        (running.launched, ends.succeeded, ends.unfinished),
        (100, 1, 99)
    );
    let cancel = async |by| {
        let mut tx = tower.test.write().await;
        let done = backfill::cancel(&mut tx, id(1), by, tower.clock.now()).await;
        tx.commit().await.unwrap();
        done
    };
    assert_eq!(cancel("bob").await.unwrap(), 99);
    let again = cancel("bob").await.unwrap_err().to_string();
    assert_eq!(
        again,
        format!("the backfill {} is cancelled already", id(1))
    );
    for _ in 0..3 {
        tower.tick().await;
    }
    let (cancelled, ends) = tower.seen(id(1)).await;
    assert_eq!(cancelled.status, BackfillStatus::Cancelled);
    let expected = LaunchTotals {
        succeeded: 1,
        cancelled: 99,
        ..LaunchTotals::default()
    };
    assert_eq!(ends, expected);
    let rows = tower.rows().await;
    let skipped = rows.iter().filter(|row| {
        (row.decision, row.reason.as_deref()) == (Decision::Skipped, Some("cancelled"))
    });
    assert_eq!(skipped.count(), 99);
    let (kind, detail) = tower.events().await.pop().unwrap();
    assert_eq!(kind, "backfill_cancelled");
    assert_eq!(
        detail,
        format!("{} by bob, 99 launches had not begun", id(1))
    );

    // Those that are open and that no host had room for have not begun either.
    tower.begin(&asked(2, 120, 101)).await;
    tower
        .engine()
        .run_backfills(tower.clock.now())
        .await
        .unwrap();
    let mut tx = tower.test.write().await;
    let skipped = backfill::cancel(&mut tx, id(2), "bob", tower.clock.now());
    assert_eq!(skipped.await.unwrap(), 19, "one of them has succeeded");
    tx.commit().await.unwrap();
    assert_eq!(tower.tick().await.runs, 0);
    assert_eq!(tower.seen(id(2)).await.1.cancelled, 19);
    let rows = tower.rows().await;
    let skipped = rows.iter().filter(|row| row.decision == Decision::Skipped);
    assert_eq!(skipped.count(), 99 + 19);
}

async fn a_backfill_of_a_schedule_that_is_renamed_meanwhile_is_looked_for_again(test: TestDb) {
    let tower = Tower::new(test, Overlap::Allow).await;
    tower.begin(&asked(1, 5, 1)).await;
    let now = tower.clock.now();
    let mut renaming = tower.test.write().await;
    schedule_admin::rename(&mut renaming, "bell", "carillon", now)
        .await
        .unwrap();
    match tower.test.backend() {
        // There is one writer at a time.
        Backend::Sqlite => renaming.commit().await.unwrap(),
        Backend::Postgres => {
            let mut tx = tower.test.write().await;
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
    let cancelled = schedule_admin::change(&tower.test.db, async |tx| {
        backfill::cancel(tx, id(1), "bob", now).await
    });
    assert_eq!(cancelled.await.unwrap(), 0);
    assert_eq!(tower.status(id(1)).await, BackfillStatus::Cancelled);
}
