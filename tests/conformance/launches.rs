//! Launches: one decision per slot, and the lists of launches.

use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, LaunchKind};
use campanile_store::{Decision, LaunchStatus, launch, probe};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{
    PACKAGE, at, digest, host_id, host_with_schedules, insert_and_claim, launch, manual,
    schedule_id, skipped,
};

on_both!(
    the_first_decision_about_a_slot_is_kept,
    a_manual_launch_and_a_slot_of_the_same_instant_are_two_rows,
    launches_are_listed_newest_slot_first,
    the_readable_views_show_ids_and_instants_as_text,
    one_row_records_a_range_of_dropped_slots,
    launches_of_a_removed_schedule_stay_in_the_table,
);

async fn the_first_decision_about_a_slot_is_kept(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let first = launch(1, 10);
    let mut tx = test.write().await;
    launch::insert(&mut tx, std::slice::from_ref(&first))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    // The same decision again, and other decisions about the same slot.
    let late = launch::NewLaunch {
        kind: LaunchKind::Catchup,
        ..skipped(1, 10, "missed")
    };
    let other_version = launch::NewLaunch {
        digest: Some(ArtifactDigest::of(b"other")),
        ..launch(1, 10)
    };
    let mut tx = test.write().await;
    launch::insert(
        &mut tx,
        &[first.clone(), late, other_version, launch(1, 20)],
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let rows = launch::of_schedule(&mut tx, schedule_id(1), 10)
        .await
        .unwrap();
    assert_eq!(rows.len(), 2);
    assert_eq!(rows[0].scheduled_time, at(20));
    assert_eq!((rows[1].id, rows[1].kind), (first.id, LaunchKind::Schedule));
    assert_eq!(
        (rows[1].decision, rows[1].status),
        (Decision::Launched, LaunchStatus::Open)
    );
    assert_eq!(rows[1].digest, Some(digest()));
}

async fn a_manual_launch_and_a_slot_of_the_same_instant_are_two_rows(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 10), manual(1, 10)])
        .await
        .unwrap();
    // A repeated request is the same launch.
    launch::insert(&mut tx, &[manual(1, 10)]).await.unwrap();
    let rows = launch::of_schedule(&mut tx, schedule_id(1), 10)
        .await
        .unwrap();
    let mut kinds: Vec<&str> = rows.iter().map(|row| row.kind.as_str()).collect();
    kinds.sort_unstable();
    assert_eq!(kinds, ["manual", "schedule"]);
}

async fn launches_are_listed_newest_slot_first(test: TestDb) {
    host_with_schedules(&test, 2).await;
    // The order of the decisions is not the order of the slots.
    let decided = |schedule, slot, second| launch::NewLaunch {
        decided_at: at(second),
        ..launch(schedule, slot)
    };
    let mut tx = test.write().await;
    launch::insert(
        &mut tx,
        &[
            decided(1, 10, 50),
            decided(1, 20, 40),
            decided(2, 10, 45),
            decided(2, 20, 50),
        ],
    )
    .await
    .unwrap();
    let labels = |rows: &[launch::LaunchRow]| -> Vec<String> {
        let each = rows.iter();
        each.map(|row| {
            let slot = row.scheduled_time.since(at(0)).as_secs();
            format!("{} {slot}", row.schedule)
        })
        .collect()
    };
    let all = launch::list(&mut tx, None, 10).await.unwrap();
    let slots: Vec<u64> = all
        .iter()
        .map(|row| row.scheduled_time.since(at(0)).as_secs())
        .collect();
    assert_eq!(slots, [20, 20, 10, 10]);
    let first = launch::list(&mut tx, None, 3).await.unwrap();
    assert_eq!(first[..], all[..3]);
    let rest = launch::list(&mut tx, Some(all[2].id), 3).await.unwrap();
    assert_eq!(rest[..], all[3..]);
    let one = launch::list_of(&mut tx, "schedule-1", None, 10)
        .await
        .unwrap();
    assert_eq!(labels(&one), ["schedule-1 20", "schedule-1 10"]);
    let older = launch::list_of(&mut tx, "schedule-1", Some(one[0].id), 10)
        .await
        .unwrap();
    assert_eq!(older[..], one[1..]);
    assert_eq!(
        launch::list_of(&mut tx, "nobody", None, 10).await.unwrap(),
        []
    );
    let by_slot = launch::of_schedule(&mut tx, schedule_id(1), 10)
        .await
        .unwrap();
    assert_eq!(labels(&by_slot), ["schedule-1 20", "schedule-1 10"]);
    assert_eq!(
        launch::of_schedule(&mut tx, schedule_id(1), 1)
            .await
            .unwrap()[..],
        by_slot[..1]
    );
}

async fn the_readable_views_show_ids_and_instants_as_text(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let run = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(11)).await;
    let id = run[0].run_id.launch();
    let second_of = |column: &str| match test.backend() {
        Backend::Sqlite => format!("substr({column}, 1, 19)"),
        Backend::Postgres => {
            format!("to_char({column} AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS')")
        }
    };
    let sql = format!(
        "SELECT CAST(id AS TEXT), schedule, status, {}, {}, CASE WHEN finished_at IS NULL THEN 'unfinished' END FROM launch_readable",
        second_of("scheduled_time"),
        second_of("started_at")
    );
    let rows = probe::rows(&mut tx, &sql).await.unwrap();
    let second = |at: Timestamp| at.to_string()[..19].to_owned();
    assert_eq!(
        rows,
        [[
            id.to_string(),
            "schedule-1".to_owned(),
            "running".to_owned(),
            second(at(10)),
            second(at(11)),
            "unfinished".to_owned(),
        ]]
    );
    let sql = "SELECT CAST(launch_id AS TEXT) FROM task_run_readable";
    assert!(probe::rows(&mut tx, sql).await.unwrap().is_empty());
}

async fn one_row_records_a_range_of_dropped_slots(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let range = launch::NewLaunch {
        last_scheduled_time: at(90),
        slot_count: 9,
        ..skipped(1, 10, "catchup_latest")
    };
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[range]).await.unwrap();
    let row = &launch::list(&mut tx, None, 10).await.unwrap()[0];
    assert_eq!(
        (row.scheduled_time, row.last_scheduled_time, row.slot_count),
        (at(10), at(90), 9)
    );
    assert_eq!(
        (row.decision, row.status),
        (Decision::Skipped, LaunchStatus::Skipped)
    );
    assert_eq!(row.reason.as_deref(), Some("catchup_latest"));
    assert_eq!(
        row.finished_at,
        Some(row.decided_at),
        "it is finished when it is decided"
    );
    assert_eq!(row.digest, None);
    let claimable = campanile_store::launch::claimable(&mut tx, host_id(1), at(1_000), 10)
        .await
        .unwrap();
    assert_eq!(claimable, [], "no host can claim it");
}

async fn launches_of_a_removed_schedule_stay_in_the_table(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 10)]).await.unwrap();
    campanile_store::schedules::remove(&mut tx, schedule_id(1), at(11))
        .await
        .unwrap();
    let rows = launch::list_of(&mut tx, "schedule-1", None, 10)
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0].package, PACKAGE);
}
