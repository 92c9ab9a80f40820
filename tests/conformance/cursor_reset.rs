//! A cursor that a wrong clock moved ahead, and its reset.

use std::sync::Arc;

use campanile_control::admin::schedule_admin::{self, CursorReset};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_schedule::policy::Policies;
use campanile_store::HostLock;
use campanile_store::launch::{self, LaunchRow};
use campanile_tests::{TestDb, on_both};

use crate::host_steps::{add, add_named, clock_time, tick_all};
use crate::serving::{self, GUESTS, settings};

on_both!(
    a_slot_on_record_is_not_launched_again_after_a_reset,
    all_cursors_ahead_are_reset_and_each_refusal_is_named,
    a_reset_is_refused_to_a_day_whose_launches_were_removed,
);

/// Start a host whose clock shows `at`.
async fn start(test: &TestDb, at: &str) -> (Arc<Engine>, HostLock) {
    let clock = Clock::simulated(clock_time(at));
    serving::start(test, &clock, settings(8), GUESTS).await
}

async fn reset(
    test: &TestDb,
    to: Option<Timestamp>,
    now: &str,
) -> schedule_admin::Result<Timestamp> {
    let mut tx = test.write().await;
    let reset = CursorReset { to, by: "Ada" };
    let done = schedule_admin::reset_cursor(&mut tx, "report", reset, clock_time(now)).await;
    tx.commit().await.unwrap();
    done
}

async fn rows(test: &TestDb) -> Vec<LaunchRow> {
    let mut rows = launch::list(&mut test.read().await, None, 100)
        .await
        .unwrap();
    rows.sort_by_key(|row| row.scheduled_time);
    rows
}

/// Let the host work at `at`, and return how many runs ended.
async fn tick(engine: &Engine, at: &str) -> usize {
    engine.clock().advance_to(clock_time(at));
    tick_all(engine, clock_time(at)).await.finished
}

async fn a_slot_on_record_is_not_launched_again_after_a_reset(test: TestDb) {
    let (wrong, lock) = start(&test, "10:30:00").await;
    add(&test, "guests", Some("ok"), &Policies::default()).await;
    assert_eq!(tick(&wrong, "11:00:01").await, 1);
    assert_eq!(tick(&wrong, "12:00:01").await, 1);
    let before = rows(&test).await;
    drop((wrong, lock));

    // The true time is 10:40.
    let (right, _lock) = start(&test, "10:40:00").await;
    let to = reset(&test, None, "10:40:00").await.unwrap();
    assert_eq!(to, clock_time("10:40:00"));
    for at in ["11:00:01", "12:00:01"] {
        assert_eq!(tick(&right, at).await, 0, "{at}");
    }
    assert_eq!(rows(&test).await, before);
    assert_eq!(tick(&right, "13:00:01").await, 1);
    let slots = rows(&test).await;
    let slots: Vec<Timestamp> = slots.iter().map(|row| row.scheduled_time).collect();
    assert_eq!(
        slots,
        ["11:00:00", "12:00:00", "13:00:00"].map(clock_time),
        "every slot has one launch"
    );
}

async fn all_cursors_ahead_are_reset_and_each_refusal_is_named(test: TestDb) {
    let (wrong, lock) = start(&test, "10:30:00").await;
    let ok = ("guests", Some("ok"));
    for (number, name) in [(1, "a"), (2, "b"), (3, "c")] {
        add_named(&test, (number, name), ok, &Policies::default()).await;
    }
    tick(&wrong, "12:00:01").await;
    drop((wrong, lock));
    let now = clock_time("10:40:00");
    // `b` was added after the time its cursor is supposed to go back to.
    let late = format!(
        "UPDATE schedule SET created_at = {} WHERE name = 'b'",
        test.backend().instant(clock_time("10:39:00"))
    );
    test.execute(&late).await;
    let reset_all = async |to: Option<Timestamp>| {
        let mut tx = test.write().await;
        let reset = CursorReset { to, by: "Ada" };
        let done = schedule_admin::reset_cursors(&mut tx, "", reset, now).await;
        tx.commit().await.unwrap();
        done.unwrap()
    };
    let done = reset_all(Some(clock_time("10:35:00"))).await;
    assert_eq!(done.reset, ["a", "c"]);
    let [refused] = &done.refused[..] else {
        panic!("{done:?}");
    };
    assert_eq!(refused.schedule, "b");
    assert!(refused.why.contains("was added, changed or resumed at"));
    // Cursors no longer ahead are left alone.
    let done = reset_all(None).await;
    assert_eq!(
        (&*done.reset, done.refused.len()),
        (&["b".to_owned()][..], 0)
    );
    assert_eq!(
        reset_all(None).await,
        schedule_admin::CursorResets::default()
    );
}

async fn a_reset_is_refused_to_a_day_whose_launches_were_removed(test: TestDb) {
    let (wrong, _lock) = start(&test, "10:30:00").await;
    add(&test, "guests", Some("ok"), &Policies::default()).await;
    assert_eq!(tick(&wrong, "12:00:01").await, 1);
    let (day, backend) = (clock_time("00:00:00").day(), test.backend());
    let id = backend.id(crate::fixtures::schedule_id(1).0);
    let removed_at = backend.instant(clock_time("10:35:00"));
    test.execute(&format!(
        "INSERT INTO removed_launches (schedule_id, slot_day, decided_day, status, launches, slots, recovered, recoveries, settled, removed_at, hash)
        VALUES ({id}, {day}, {day}, 'succeeded', 1, 1, 0, 0, 1, {removed_at}, {})",
        backend.bytes(&"00".repeat(32))
    ))
    .await;
    let refused = reset(&test, Some(clock_time("10:35:00")), "10:40:00").await;
    let why = refused.unwrap_err().to_string();
    assert!(why.contains("launches of 2026-05-04 were removed"), "{why}");
    // From now on, no removed slot is decided again.
    reset(&test, None, "10:40:00").await.unwrap();
}
