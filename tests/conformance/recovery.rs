//! Recovery: orphaned launches are found, counted, and run again or abandoned. Finished launches never change.

use campanile_model::ids::{LaunchId, LaunchKind, RunId};
use campanile_model::life::Life;
use campanile_store::launch::{
    self, NewLaunch, OrphanCause, OrphanedLaunch, RecoveryAction, RecoveryDecision, RunEnd,
};
use campanile_store::runs;
use campanile_store::task_runs;
use campanile_store::{Decision, FailureKind, LaunchStatus, RunStatus, hosts, packages, schedules};
use campanile_tests::dump::dump;
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    BYTES, ClaimedRun, PACKAGE, PAUSE, add_host, at, claim_all, claim_retries, host, host_id,
    host_with_schedules, insert_and_claim, launch, publish, schedule_id, skipped, status_of,
    task_run,
};

on_both!(
    a_run_is_lost_when_its_lease_has_expired,
    a_run_is_lost_when_its_host_died_or_stopped,
    a_retry_that_no_host_claims_in_time_is_orphaned,
    a_launch_is_orphaned_when_its_host_died_or_no_host_claimed_it,
    an_orphaned_launch_has_all_values_for_the_recovery_decision,
    a_recovery_is_counted_and_gives_the_launch_a_new_run,
    an_abandoned_launch_is_never_run_again,
    finished_launches_are_never_written_again,
    hosts_that_recover_concurrently_recover_each_orphan_once,
);

fn ids(orphans: &[OrphanedLaunch]) -> Vec<LaunchId> {
    orphans.iter().map(|orphan| orphan.launch_id).collect()
}

fn decision_to_run_again(run: &ClaimedRun) -> RecoveryDecision {
    RecoveryDecision {
        launch_id: run.launch_id(),
        action: RecoveryAction::RunAgain,
        not_before: None,
    }
}

async fn a_run_is_lost_when_its_lease_has_expired(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    let first = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let second = insert_and_claim(&mut tx, host, &[launch(2, 11)], at(20)).await[0];
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(39), at(0), 9)
            .await
            .unwrap(),
        []
    );
    let lost = launch::orphaned_runs(&mut tx, at(40), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [first.launch_id()]);
    let lost = launch::orphaned_runs(&mut tx, at(50), at(0), 9)
        .await
        .unwrap();
    assert_eq!(
        ids(&lost),
        [first.launch_id(), second.launch_id()],
        "earliest first"
    );
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(50), at(0), 1)
            .await
            .unwrap()
            .len(),
        1
    );
    // A finished run and a waiting run are not lost.
    launch::finish(&mut tx, &[first.succeeded("1", at(45))])
        .await
        .unwrap();
    launch::finish(
        &mut tx,
        &[second.finish(RunEnd::Waiting { retry_at: at(60) }, at(45))],
    )
    .await
    .unwrap();
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(99), at(0), 9)
            .await
            .unwrap(),
        []
    );
}

async fn a_run_is_lost_when_its_host_died_or_stopped(test: TestDb) {
    let live_host = host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let dead_host = add_host(&mut tx, 2, at(0)).await;
    let stopped_host = add_host(&mut tx, 3, at(0)).await;
    insert_and_claim(&mut tx, live_host, &[launch(1, 10)], at(10)).await;
    let run_of_dead_host = insert_and_claim(&mut tx, dead_host, &[launch(2, 11)], at(11)).await[0];
    let run_of_stopped_host =
        insert_and_claim(&mut tx, stopped_host, &[launch(3, 12)], at(12)).await[0];
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(13), at(0), 9)
            .await
            .unwrap(),
        []
    );
    hosts::mark_predecessors_dead(&mut tx, "host-2", at(13))
        .await
        .unwrap();
    hosts::end(&mut tx, stopped_host, at(13)).await.unwrap();
    let lost = launch::orphaned_runs(&mut tx, at(13), at(0), 9)
        .await
        .unwrap();
    assert_eq!(
        ids(&lost),
        [
            run_of_dead_host.launch_id(),
            run_of_stopped_host.launch_id()
        ]
    );
    assert!(lost[0].life.has_run);
}

async fn a_retry_that_no_host_claims_in_time_is_orphaned(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    launch::finish(
        &mut tx,
        &[claimed.finish(RunEnd::Waiting { retry_at: at(20) }, at(12))],
    )
    .await
    .unwrap();
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(99), at(19), 9)
            .await
            .unwrap(),
        []
    );
    let lost = launch::orphaned_runs(&mut tx, at(99), at(20), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [claimed.launch_id()]);
    launch::recover(
        &mut tx,
        host,
        &[decision_to_run_again(&claimed)],
        "no host claimed it",
        at(99),
    )
    .await
    .unwrap();
    let run = runs::find(&mut tx, claimed.run_id).await.unwrap().unwrap();
    assert_eq!((run.status, run.retry_at), (RunStatus::Lost, None));
}

async fn a_launch_is_orphaned_when_its_host_died_or_no_host_claimed_it(test: TestDb) {
    host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    add_host(&mut tx, 2, at(0)).await;
    add_host(&mut tx, 3, at(0)).await;
    let decided_by_host = |schedule, slot, host| launch::NewLaunch {
        decided_by: Some(host_id(host)),
        ..launch(schedule, slot)
    };
    let unclaimed = launch::NewLaunch {
        decided_by: None,
        ..launch(1, 13)
    };
    let all = [
        decided_by_host(1, 10, 1),
        decided_by_host(2, 11, 2),
        decided_by_host(3, 12, 3),
        unclaimed,
    ];
    launch::insert(&mut tx, &all).await.unwrap();
    assert_eq!(
        launch::orphaned_launches(&mut tx, host_id(1), at(10), 9)
            .await
            .unwrap(),
        []
    );
    // Other hosts claim the decisions of a stopped host. A dead host may have been about to claim its own decision.
    hosts::end(&mut tx, host_id(3), at(14)).await.unwrap();
    hosts::mark_predecessors_dead(&mut tx, "host-2", at(14))
        .await
        .unwrap();
    let lost = launch::orphaned_launches(&mut tx, host_id(1), at(10), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id]);
    assert!(!lost[0].life.has_run);
    // No host has claimed them since they were decided.
    let lost = launch::orphaned_launches(&mut tx, host_id(1), at(13), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[0].id, all[1].id, all[2].id]);
    let lost = launch::orphaned_launches(&mut tx, host_id(1), at(99), 9)
        .await
        .unwrap();
    assert_eq!(lost.len(), 4);
    assert_eq!(
        launch::orphaned_launches(&mut tx, host_id(1), at(99), 2)
            .await
            .unwrap(),
        lost[..2]
    );
    // A host without the package cannot claim them. It still finds the launches of the dead host.
    let lost = launch::orphaned_launches(&mut tx, host_id(9), at(99), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id]);
    // A recovered launch is orphaned again only after the same time has passed once more.
    let decision = RecoveryDecision {
        launch_id: all[0].id,
        action: RecoveryAction::RunAgain,
        not_before: None,
    };
    launch::recover(&mut tx, host_id(1), &[decision], "lost", at(200))
        .await
        .unwrap();
    let lost = launch::orphaned_launches(&mut tx, host_id(1), at(200), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id, all[2].id, all[3].id]);
    assert_eq!(
        launch::orphaned_launches(&mut tx, host_id(1), at(201), 9)
            .await
            .unwrap()
            .len(),
        4
    );
}

async fn an_orphaned_launch_has_all_values_for_the_recovery_decision(test: TestDb) {
    let host = host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10), launch(2, 11)], at(11)).await;
    launch::insert(&mut tx, &[launch(3, 12)]).await.unwrap();
    schedules::pause(&mut tx, schedule_id(1), PAUSE, at(13))
        .await
        .unwrap();
    schedules::remove(&mut tx, schedule_id(2), at(14))
        .await
        .unwrap();
    hosts::mark_predecessors_dead(&mut tx, "host-1", at(15))
        .await
        .unwrap();
    packages::withdraw_ended(&mut tx).await.unwrap();
    packages::mark_missing(&mut tx, at(16)).await.unwrap();
    let runs = launch::orphaned_runs(&mut tx, at(17), at(0), 9)
        .await
        .unwrap();
    let paused = OrphanedLaunch {
        launch_id: claimed[0].launch_id(),
        life: Life::decided(Decision::Launched, Some(1)),
        schedule_id: claimed[0].schedule_id,
        schedule_revision: 1,
        kind: LaunchKind::Schedule,
        schedule: "schedule-1".to_owned(),
        scheduled_time: at(10),
        claimable_since: at(10),
        started_at: Some(at(11)),
        not_before: None,
        host_id: Some(host),
        lease_until: Some(at(15)),
        is_host_alive: false,
        enabled: false,
        deleted_at: None,
        missing_since: Some(at(16)),
        cause: OrphanCause::HostDied,
    };
    let removed = OrphanedLaunch {
        launch_id: claimed[1].launch_id(),
        schedule_id: claimed[1].schedule_id,
        schedule_revision: 1,
        kind: LaunchKind::Schedule,
        schedule: "schedule-2".to_owned(),
        scheduled_time: at(11),
        claimable_since: at(11),
        enabled: true,
        deleted_at: Some(at(14)),
        ..paused.clone()
    };
    assert_eq!(runs, [paused, removed]);
    let decided = launch::orphaned_launches(&mut tx, host_id(1), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&decided), [launch(3, 12).id]);
    assert_eq!(
        (decided[0].enabled, decided[0].missing_since),
        (true, Some(at(16)))
    );
}

async fn a_recovery_is_counted_and_gives_the_launch_a_new_run(test: TestDb) {
    let host_1 = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    let by_hand = NewLaunch {
        kind: LaunchKind::Manual,
        args: Some(r#"["--full"]"#.to_owned()),
        ..launch(1, 10)
    };
    let args = by_hand.args.clone();
    let first = insert_and_claim(&mut tx, host_1, &[by_hand], at(10)).await[0];
    let call = task_run("build", 1);
    launch::record_tasks(
        &mut tx,
        first.run_id,
        first.fence,
        std::slice::from_ref(&call),
    )
    .await
    .unwrap();
    let mut newest = first;
    for round in 1..=3i64 {
        let now = at(100 * round as u64);
        let lost = launch::orphaned_runs(&mut tx, now, at(0), 9).await.unwrap();
        assert_eq!((lost.len(), lost[0].life.recoveries), (1, round - 1));
        let decision = RecoveryDecision {
            launch_id: lost[0].launch_id,
            action: RecoveryAction::RunAgain,
            not_before: None,
        };
        launch::recover(&mut tx, host_2, &[decision], "its host died", now)
            .await
            .unwrap();
        let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
        assert_eq!(
            (row.status, row.recoveries, row.attempts),
            (LaunchStatus::Open, round, round)
        );
        let claimable = &launch::claimable(&mut tx, host_2, now, 9).await.unwrap()[0];
        assert_eq!(
            (claimable.recoveries, claimable.recovered_at),
            (round, Some(now))
        );
        assert_eq!(claimable.args, args);
        newest = claim_all(&mut tx, host_2, now).await[0];
        assert_eq!(newest.run_id, RunId::of(first.launch_id(), round + 1));
        assert_eq!(newest.fence, first.fence + round);
        let run = runs::find(&mut tx, newest.run_id).await.unwrap().unwrap();
        assert!(run.is_recovery);
    }
    // The lost run keeps its calls. The launch refers to the newest run.
    let run = runs::find(&mut tx, first.run_id).await.unwrap().unwrap();
    assert_eq!(
        (run.status, run.finished_at),
        (RunStatus::Lost, Some(at(100)))
    );
    assert_eq!(
        (run.failure, run.message.as_deref()),
        (Some(FailureKind::Lost), Some("its host died"))
    );
    let calls = task_runs::of_run(&mut tx, first.run_id).await.unwrap();
    assert_eq!(calls, [call]);
    let calls = task_runs::of_launch(&mut tx, first.launch_id())
        .await
        .unwrap();
    assert_eq!((calls.len(), calls[0].run_number), (1, 1));
    let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(row.run_id.0, Some(newest.run_id));
    let listed = runs::list(&mut tx, None, 9).await.unwrap();
    let listed: Vec<RunId> = listed.iter().map(|run| run.id).collect();
    let numbers = [4, 3, 2, 1].map(|number| RunId::of(first.launch_id(), number));
    assert_eq!(listed, numbers, "newest first");
    let two = runs::list(&mut tx, None, 2).await.unwrap();
    assert_eq!([two[0].id, two[1].id], numbers[..2]);
    let lost = runs::lost_of_launch(&mut tx, first.launch_id()).await;
    assert_eq!(lost.unwrap(), [1, 2, 3]);
    // Only the newest run finishes the launch.
    assert_eq!(
        launch::finish(&mut tx, &[first.succeeded("1", at(301))])
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        launch::finish(&mut tx, &[newest.succeeded("2", at(302))])
            .await
            .unwrap()
            .len(),
        1
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &newest).await,
        ("succeeded".into(), "succeeded".into())
    );
}

async fn an_abandoned_launch_is_never_run_again(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    launch::insert(&mut tx, &[launch(2, 11)]).await.unwrap();
    let abandon = [
        RecoveryDecision {
            action: RecoveryAction::Abandon("recovery_attempts"),
            ..decision_to_run_again(&claimed)
        },
        RecoveryDecision {
            launch_id: launch(2, 11).id,
            action: RecoveryAction::Abandon("schedule_deleted"),
            not_before: None,
        },
    ];
    launch::recover(&mut tx, host, &abandon, "its host died", at(50))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let rows = launch::list(&mut tx, None, 9).await.unwrap();
    for (row, reason) in rows.iter().zip(["schedule_deleted", "recovery_attempts"]) {
        assert_eq!(
            (row.status, row.reason.as_deref()),
            (LaunchStatus::Abandoned, Some(reason))
        );
        assert_eq!(
            (row.finished_at, row.failure),
            (Some(at(50)), Some(FailureKind::Lost))
        );
        assert_eq!(row.message.as_deref(), Some("its host died"));
        assert_eq!(row.recoveries, 0);
    }
    drop(tx);
    assert_eq!(
        status_of(&test, &claimed).await,
        ("abandoned".into(), "lost".into())
    );

    let before = dump(&test).await;
    let mut tx = test.write().await;
    let run_again: Vec<RecoveryDecision> = abandon
        .iter()
        .map(|decision| RecoveryDecision {
            action: RecoveryAction::RunAgain,
            ..decision.clone()
        })
        .collect();
    launch::recover(&mut tx, host, &run_again, "again", at(60))
        .await
        .unwrap();
    assert_eq!(
        launch::orphaned_runs(&mut tx, at(999), at(999), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        launch::orphaned_launches(&mut tx, host_id(1), at(999), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(claim_all(&mut tx, host, at(999)).await, []);
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);
}

async fn finished_launches_are_never_written_again(test: TestDb) {
    let host_1 = host_with_schedules(&test, 5).await;
    let mut tx = test.write().await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    let slots = [1, 2, 3].map(|schedule| launch(schedule, 10 + schedule as u64));
    let claimed = insert_and_claim(&mut tx, host_1, &slots, at(20)).await;
    let mut ends = [
        claimed[0].succeeded("1", at(21)),
        claimed[1].failed("no", at(21)),
    ];
    ends[0].tasks = vec![task_run("build", 1)];
    launch::finish(&mut tx, &ends).await.unwrap();
    let abandon = RecoveryDecision {
        action: RecoveryAction::Abandon("recovery_age"),
        ..decision_to_run_again(&claimed[2])
    };
    launch::recover(&mut tx, host_1, &[abandon], "gone", at(21))
        .await
        .unwrap();
    launch::insert(&mut tx, &[skipped(4, 14, "missed")])
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let before = dump(&test).await;
    let mut tx = test.write().await;
    let all: Vec<RecoveryDecision> = claimed
        .iter()
        .flat_map(|run| {
            [
                RecoveryAction::RunAgain,
                RecoveryAction::Abandon("schedule_disabled"),
            ]
            .map(|action| RecoveryDecision {
                action,
                ..decision_to_run_again(run)
            })
        })
        .chain([RecoveryDecision {
            launch_id: skipped(4, 14, "missed").id,
            action: RecoveryAction::Abandon("recovery_age"),
            not_before: None,
        }])
        .collect();
    launch::recover(&mut tx, host_2, &all, "again", at(30))
        .await
        .unwrap();
    for run in &claimed {
        for end in [
            run.succeeded("9", at(31)),
            run.failed("late", at(31)),
            run.finish(RunEnd::Waiting { retry_at: at(40) }, at(31)),
        ] {
            assert_eq!(launch::finish(&mut tx, &[end]).await.unwrap(), []);
        }
        assert!(
            !launch::record_tasks(&mut tx, run.run_id, run.fence, &[task_run("x", 9)])
                .await
                .unwrap()
        );
    }
    let fences: Vec<_> = claimed.iter().map(|run| (run.run_id, run.fence)).collect();
    assert_eq!(launch::renew(&mut tx, &fences, at(99)).await.unwrap(), []);
    assert_eq!(claim_all(&mut tx, host_2, at(99)).await, []);
    assert_eq!(
        claim_retries(&mut tx, host_2, at(99), at(130), 9)
            .await
            .unwrap(),
        []
    );
    // Later decisions about the same slots change nothing either.
    let decided: Vec<_> = (1..=4)
        .map(|schedule| launch(schedule, 10 + schedule as u64))
        .collect();
    launch::insert(&mut tx, &decided).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);
}

async fn hosts_that_recover_concurrently_recover_each_orphan_once(test: TestDb) {
    const RUNS: u64 = 60;
    let host_1 = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let slots: Vec<_> = (10..10 + RUNS).map(|slot| launch(1, slot)).collect();
    insert_and_claim(&mut tx, host_1, &slots, at(100)).await;
    for number in 2..=5 {
        hosts::register(
            &mut tx,
            &host(host_id(number), &format!("host-{number}"), at(0)),
        )
        .await
        .unwrap();
        publish(&mut tx, host_id(number), PACKAGE, BYTES, at(0)).await;
    }
    tx.commit().await.unwrap();
    let mut recovering = Vec::new();
    for number in 2..=5 {
        let db = campanile_store::Db::open(&test.place.url).await.unwrap();
        recovering.push(tokio::spawn(async move {
            loop {
                let mut tx = db.write().await.unwrap();
                let lost = launch::orphaned_runs(&mut tx, at(200), at(0), 5)
                    .await
                    .unwrap();
                if lost.is_empty() {
                    return;
                }
                let decisions: Vec<RecoveryDecision> = lost
                    .iter()
                    .map(|orphan| RecoveryDecision {
                        launch_id: orphan.launch_id,
                        action: RecoveryAction::RunAgain,
                        not_before: None,
                    })
                    .collect();
                launch::recover(&mut tx, host_id(number), &decisions, "gone", at(200))
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        }));
    }
    for task in recovering {
        task.await.unwrap();
    }
    let mut tx = test.read().await;
    let rows = launch::list(&mut tx, None, 1_000).await.unwrap();
    assert_eq!(rows.len() as u64, RUNS);
    for row in rows {
        assert_eq!((row.status, row.recoveries), (LaunchStatus::Open, 1));
    }
}
