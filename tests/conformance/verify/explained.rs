//! Whatever a recorded correction explains is no fault; anything else is.

use campanile_control::admin::schedule_admin::{self, CursorReset};
use campanile_control::reports::verify::{Explained, FaultKind};
use campanile_model::json_text::JsonObject;
use campanile_package::ScheduleDefinition;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::Origin;
use campanile_store::corrections::{self, ClockSetBack};
use campanile_tests::{TestDb, on_both};

use super::{ALL, Scene};
use crate::host_steps::clock_time;

on_both!(
    a_reset_cursor_explains_a_second_decision_and_no_third,
    a_clock_that_was_set_back_explains_the_order_of_times,
);

/// Adds the schedule `often`, due every ten minutes.
async fn add_often(scene: &Scene) {
    let wanted = ScheduleDefinition {
        name: "often".to_owned(),
        package: "guests".to_owned(),
        task: Some("ok".to_owned()),
        rule: RuleText::new(RuleKind::Cron, "*/10 * * * *", "UTC"),
        policies: Policies::default(),
        args: None,
        context: JsonObject::new(),
        enabled: true,
    };
    let now = scene.clock.now();
    scene
        .change(async |tx| {
            let added = schedule_admin::add(tx, &wanted, Origin::Operator, now).await;
            added.map(drop).unwrap();
        })
        .await;
}

/// A wrong clock has moved the cursor to 15:20, past slots skipped in ranges. The true time is 10:41.
async fn a_reset_cursor_explains_a_second_decision_and_no_third(test: TestDb) {
    let wrong = Scene::start(test, "10:31:00").await;
    add_often(&wrong).await;
    wrong.tick("15:25:00").await;
    let Scene {
        test,
        engine,
        _lock,
        ..
    } = wrong;
    drop((engine, _lock));
    let scene = Scene::start(test, "10:41:00").await;
    let reset = async |name: &str| {
        let now = scene.clock.now();
        scene
            .change(async |tx| {
                let reset = CursorReset {
                    to: None,
                    by: "ada",
                };
                let done = schedule_admin::reset_cursor(tx, name, reset, now).await;
                done.map(drop).unwrap();
            })
            .await;
    };
    reset("often").await;
    for time in ["10:50:01", "11:00:01", "11:10:01", "11:20:01", "11:30:01"] {
        scene.tick(time).await;
    }
    // The schedule has since been renamed.
    let now = scene.clock.now();
    let renamed = |wanted: &mut ScheduleDefinition| "renamed".clone_into(&mut wanted.name);
    scene
        .change(async |tx| {
            let edited = schedule_admin::edit(tx, "often", None, renamed, now).await;
            edited.map(drop).unwrap();
        })
        .await;
    scene.tick("11:40:01").await;
    let found = scene.verify(ALL).await;
    assert_eq!(found.faults, []);
    let [explained] = &found.explained[..] else {
        panic!("{:?}", found.explained);
    };
    assert_eq!(
        (explained.kind, &*explained.subject),
        (FaultKind::SlotTwice, "renamed")
    );
    assert!(explained.rows >= 3, "{explained:?}");
    assert!(
        explained
            .text
            .contains("the cursor was reset at 2026-05-04T10:41:00Z"),
        "{explained:?}"
    );

    // Deciding a slot a third time is a fault, and so is launching at a time outside the slots.
    let backend = scene.test.backend();
    let columns = "schedule_id, schedule_revision, kind, fire_time, status, reason, utc_offset, package, digest, proposed, priority, \
        interval_start, decided_by, decided_at, finished_at";
    for (slot, kinds) in [
        (
            "11:20:00",
            &[FaultKind::SlotTwice, FaultKind::SlotWrong][..],
        ),
        ("11:27:00", &[FaultKind::SlotTwice]),
    ] {
        let id = backend.id(uuid::Uuid::from_u128(9));
        let slot = backend.instant(clock_time(slot));
        let forge = format!(
            "INSERT INTO launch (id, scheduled_time, last_scheduled_time, slot_count, {columns})
            SELECT {id}, {slot}, {}, 2, {columns} FROM launch WHERE status = 'skipped' AND slot_count > 1 LIMIT 1",
            backend.instant(clock_time("11:30:00"))
        );
        scene.test.execute(&forge).await;
        let found = scene.kinds().await;
        for kind in kinds {
            assert!(found.contains(kind), "{slot}: {found:?}");
        }
        scene
            .test
            .execute(&format!("DELETE FROM launch WHERE id = {id}"))
            .await;
        assert_eq!(scene.kinds().await, []);
    }
    // A reset contradicting its event explains nothing.
    let widened = backend.instant(clock_time("16:00:00"));
    scene
        .test
        .execute(&format!("UPDATE cursor_reset SET from_at = {widened}"))
        .await;
    assert!(scene.kinds().await.contains(&FaultKind::SlotTwice));
}

async fn a_clock_that_was_set_back_explains_the_order_of_times(test: TestDb) {
    let wrong = Scene::new(test).await;
    wrong.tick("15:00:01").await;
    let Scene {
        test,
        engine,
        _lock,
        ..
    } = wrong;
    drop((engine, _lock));
    let scene = Scene::start(test, "10:45:00").await;
    // A run ended by the next process at the right time.
    let backend = scene.test.backend();
    let instant = |time: &str| backend.instant(clock_time(time));
    let ended = format!(
        "DELETE FROM seal; UPDATE launch SET finished_at = {} WHERE started_at IS NOT NULL",
        instant("10:45:05")
    );
    scene.test.execute(&ended).await;
    let found = scene.verify(ALL).await;
    assert_eq!(found.faults, []);
    let is_order = |it: &&Explained| it.kind == FaultKind::LaunchImpossible;
    let explained = found.explained.iter().find(is_order);
    let explained = explained.unwrap_or_else(|| panic!("{found:?}"));
    assert!(
        explained
            .text
            .contains("a clock went back from 2026-05-04T15:00:01Z to 2026-05-04T10:45:00Z"),
        "{explained:?}"
    );

    // One process's clock goes back from 11:00 to 10:50.
    let run_at = |start: &str, end: &str| {
        format!(
            "UPDATE launch SET decided_at = {0}, started_at = {0}, finished_at = {1} WHERE started_at IS NOT NULL",
            instant(start),
            instant(end)
        )
    };
    let back = ClockSetBack {
        since: clock_time("10:50:00"),
        until: clock_time("11:00:00"),
    };
    for (start, end, is_explained) in [
        ("10:58:00", "10:52:00", true),
        ("11:00:30", "10:50:00", true),
        ("11:10:00", "10:52:00", false),
        ("10:58:00", "10:40:00", false),
    ] {
        scene.test.execute("DELETE FROM clock_set_back").await;
        scene.test.execute("DELETE FROM seal").await;
        // The setback at the restart would explain all of these.
        scene
            .test
            .execute(&format!(
                "UPDATE host SET heartbeat_at = {0}",
                instant("10:45:00")
            ))
            .await;
        scene.test.execute(&run_at(start, end)).await;
        assert!(scene.kinds().await.contains(&FaultKind::LaunchImpossible));
        scene
            .change(async |tx| {
                corrections::record_clock_set_back(tx, "host-1", back)
                    .await
                    .unwrap()
            })
            .await;
        let found = scene.kinds().await;
        let has_fault = found.contains(&FaultKind::LaunchImpossible);
        assert_eq!(!has_fault, is_explained, "{start} {end}: {found:?}");
    }
}
