//! Recovery: orphaned launches are found, counted, and run again or abandoned. Finished launches stay as they are.

use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_store::recovery::{
    self, OrphanCause, OrphanedLaunch, RecoveryAction, RecoveryDecision,
};
use campanile_store::runs::{self, RunEnd};
use campanile_store::task_runs;
use campanile_store::{FailureKind, LaunchStatus, RunStatus, hosts, launches, packages, schedules};
use campanile_tests::dump::dump;
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    BYTES, Held, PACKAGE, PAUSE, add_host, at, begin, host, host_id, launch, publish, run_id,
    schedule_id, skipped, small_setup, status_of, take, task_run,
};

on_both!(
    a_run_is_lost_when_its_lease_has_expired,
    a_run_is_lost_when_its_host_died_or_stopped,
    a_retry_that_no_host_can_claim_is_orphaned_in_the_end,
    a_launch_is_orphaned_when_its_host_died_or_no_host_claimed_it,
    an_orphaned_launch_has_what_the_decision_needs,
    taking_a_launch_up_again_counts_and_gives_it_a_new_run,
    giving_up_is_final,
    what_is_over_is_never_written_again,
    two_hosts_that_recover_at_once_recover_each_orphan_once,
);

fn ids(strays: &[OrphanedLaunch]) -> Vec<LaunchId> {
    strays.iter().map(|stray| stray.launch_id).collect()
}

fn again(held: &Held) -> RecoveryDecision {
    RecoveryDecision {
        launch_id: held.launch_id,
        run_id: Some(held.run_id),
        action: RecoveryAction::RunAgain,
    }
}

async fn a_run_is_lost_when_its_lease_has_expired(test: TestDb) {
    let host = small_setup(&test, 2).await;
    let mut tx = test.write().await;
    let first = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    let second = begin(&mut tx, host, &[launch(2, 11)], 2, at(20)).await[0];
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(39), at(0), 9)
            .await
            .unwrap(),
        []
    );
    let lost = recovery::orphaned_runs(&mut tx, at(40), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [first.launch_id]);
    let lost = recovery::orphaned_runs(&mut tx, at(50), at(0), 9)
        .await
        .unwrap();
    assert_eq!(
        ids(&lost),
        [first.launch_id, second.launch_id],
        "earliest first"
    );
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(50), at(0), 1)
            .await
            .unwrap()
            .len(),
        1
    );
    // What has been finished, or waits, is not lost.
    runs::finish(&mut tx, &[first.succeeded("1", at(45))])
        .await
        .unwrap();
    runs::finish(
        &mut tx,
        &[second.finish(RunEnd::Waiting { retry_at: at(60) }, at(45))],
    )
    .await
    .unwrap();
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(99), at(0), 9)
            .await
            .unwrap(),
        []
    );
}

async fn a_run_is_lost_when_its_host_died_or_stopped(test: TestDb) {
    let living = small_setup(&test, 3).await;
    let mut tx = test.write().await;
    let died = add_host(&mut tx, 2, at(0)).await;
    let stopped = add_host(&mut tx, 3, at(0)).await;
    begin(&mut tx, living, &[launch(1, 10)], 1, at(10)).await;
    let of_died = begin(&mut tx, died, &[launch(2, 11)], 2, at(11)).await[0];
    let of_stopped = begin(&mut tx, stopped, &[launch(3, 12)], 3, at(12)).await[0];
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(13), at(0), 9)
            .await
            .unwrap(),
        []
    );
    hosts::mark_predecessors_dead(&mut tx, "tower-2", at(13))
        .await
        .unwrap();
    hosts::end(&mut tx, stopped, at(13)).await.unwrap();
    let lost = recovery::orphaned_runs(&mut tx, at(13), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [of_died.launch_id, of_stopped.launch_id]);
    assert_eq!(lost[0].run_id, Some(of_died.run_id));
    // A host that was only asleep, and is back, has its runs again.
    hosts::revive(&mut tx, died, at(14)).await.unwrap();
    let lost = recovery::orphaned_runs(&mut tx, at(14), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [of_stopped.launch_id]);
}

async fn a_retry_that_no_host_can_claim_is_orphaned_in_the_end(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    runs::finish(
        &mut tx,
        &[held.finish(RunEnd::Waiting { retry_at: at(20) }, at(12))],
    )
    .await
    .unwrap();
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(99), at(19), 9)
            .await
            .unwrap(),
        []
    );
    let lost = recovery::orphaned_runs(&mut tx, at(99), at(20), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [held.launch_id]);
    recovery::apply(&mut tx, host, &[again(&held)], "nobody took it", at(99))
        .await
        .unwrap();
    let run = runs::find(&mut tx, held.run_id).await.unwrap().unwrap();
    assert_eq!((run.status, run.retry_at), (RunStatus::Lost, None));
}

async fn a_launch_is_orphaned_when_its_host_died_or_no_host_claimed_it(test: TestDb) {
    small_setup(&test, 3).await;
    let mut tx = test.write().await;
    add_host(&mut tx, 2, at(0)).await;
    add_host(&mut tx, 3, at(0)).await;
    let of = |schedule, slot, host| launches::NewLaunch {
        decided_by: Some(host_id(host)),
        ..launch(schedule, slot)
    };
    let unclaimed = launches::NewLaunch {
        decided_by: None,
        ..launch(1, 13)
    };
    let all = [of(1, 10, 1), of(2, 11, 2), of(3, 12, 3), unclaimed];
    launches::insert(&mut tx, &all).await.unwrap();
    assert_eq!(
        recovery::orphaned_launches(&mut tx, host_id(1), at(10), 9)
            .await
            .unwrap(),
        []
    );
    // A stopped host leaves decisions that others claim. A dead host may have been about to claim one.
    hosts::end(&mut tx, host_id(3), at(14)).await.unwrap();
    hosts::mark_predecessors_dead(&mut tx, "tower-2", at(14))
        .await
        .unwrap();
    let lost = recovery::orphaned_launches(&mut tx, host_id(1), at(10), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id]);
    assert_eq!(lost[0].run_id, None);
    // No host has claimed them since they were decided.
    let lost = recovery::orphaned_launches(&mut tx, host_id(1), at(13), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[0].id, all[1].id, all[2].id]);
    let lost = recovery::orphaned_launches(&mut tx, host_id(1), at(99), 9)
        .await
        .unwrap();
    assert_eq!(lost.len(), 4);
    assert_eq!(
        recovery::orphaned_launches(&mut tx, host_id(1), at(99), 2)
            .await
            .unwrap(),
        lost[..2]
    );
    // A host without the package could not have claimed any. It still finds the launches of the dead host.
    let lost = recovery::orphaned_launches(&mut tx, host_id(9), at(99), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id]);
    // After a recovery it is orphaned again only when as much time has passed once more.
    let verdict = RecoveryDecision {
        launch_id: all[0].id,
        run_id: None,
        action: RecoveryAction::RunAgain,
    };
    recovery::apply(&mut tx, host_id(1), &[verdict], "lost", at(200))
        .await
        .unwrap();
    let lost = recovery::orphaned_launches(&mut tx, host_id(1), at(200), 9)
        .await
        .unwrap();
    assert_eq!(ids(&lost), [all[1].id, all[2].id, all[3].id]);
    assert_eq!(
        recovery::orphaned_launches(&mut tx, host_id(1), at(201), 9)
            .await
            .unwrap()
            .len(),
        4
    );
}

async fn an_orphaned_launch_has_what_the_decision_needs(test: TestDb) {
    let host = small_setup(&test, 3).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10), launch(2, 11)], 1, at(11)).await;
    launches::insert(&mut tx, &[launch(3, 12)]).await.unwrap();
    schedules::pause(&mut tx, schedule_id(1), PAUSE, at(13))
        .await
        .unwrap();
    schedules::remove(&mut tx, schedule_id(2), at(14))
        .await
        .unwrap();
    hosts::mark_predecessors_dead(&mut tx, "tower-1", at(15))
        .await
        .unwrap();
    packages::withdraw_ended(&mut tx).await.unwrap();
    packages::mark_missing(&mut tx, at(16)).await.unwrap();
    let runs = recovery::orphaned_runs(&mut tx, at(17), at(0), 9)
        .await
        .unwrap();
    let paused = OrphanedLaunch {
        launch_id: held[0].launch_id,
        run_id: Some(held[0].run_id),
        schedule_id: held[0].schedule_id,
        schedule_revision: 1,
        cancel_deadline: None,
        kind: LaunchKind::Schedule,
        schedule: "bell-1".to_owned(),
        scheduled_time: at(10),
        claimed_at: at(10),
        recoveries: 0,
        enabled: false,
        deleted_at: None,
        missing_since: Some(at(16)),
        cause: OrphanCause::HostDied,
    };
    let removed = OrphanedLaunch {
        launch_id: held[1].launch_id,
        run_id: Some(held[1].run_id),
        schedule_id: held[1].schedule_id,
        schedule_revision: 1,
        cancel_deadline: None,
        kind: LaunchKind::Schedule,
        schedule: "bell-2".to_owned(),
        scheduled_time: at(11),
        claimed_at: at(11),
        enabled: true,
        deleted_at: Some(at(14)),
        ..paused.clone()
    };
    assert_eq!(runs, [paused, removed]);
    let decided = recovery::orphaned_launches(&mut tx, host_id(1), at(0), 9)
        .await
        .unwrap();
    assert_eq!(ids(&decided), [launch(3, 12).id]);
    assert_eq!(
        (decided[0].enabled, decided[0].missing_since),
        (true, Some(at(16)))
    );
}

async fn taking_a_launch_up_again_counts_and_gives_it_a_new_run(test: TestDb) {
    let host_1 = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    let first = begin(&mut tx, host_1, &[launch(1, 10)], 1, at(10)).await[0];
    let call = task_run("ring", 1);
    runs::record_tasks(
        &mut tx,
        first.run_id,
        first.fence,
        std::slice::from_ref(&call),
    )
    .await
    .unwrap();
    for round in 1..=3i64 {
        let now = at(100 * round as u64);
        let lost = recovery::orphaned_runs(&mut tx, now, at(0), 9)
            .await
            .unwrap();
        assert_eq!((lost.len(), lost[0].recoveries), (1, round - 1));
        let verdict = RecoveryDecision {
            launch_id: lost[0].launch_id,
            run_id: lost[0].run_id,
            action: RecoveryAction::RunAgain,
        };
        recovery::apply(&mut tx, host_2, &[verdict], "its host died", now)
            .await
            .unwrap();
        let row = &launches::list(&mut tx, None, 1).await.unwrap()[0];
        assert_eq!(
            (row.status, row.recoveries, row.attempts),
            (LaunchStatus::Open, round, round)
        );
        let taken = &runs::claimable(&mut tx, host_2, now, 9).await.unwrap()[0];
        assert_eq!((taken.recoveries, taken.recovered_at), (round, Some(now)));
        let again = take(&mut tx, host_2, 10 + round as u128, now).await[0];
        assert_eq!(again.launch_id, first.launch_id);
        let run = runs::find(&mut tx, again.run_id).await.unwrap().unwrap();
        assert!(run.is_recovery);
    }
    // The lost run stays as it was, with what it had done; the launch points to the newest.
    let run = runs::find(&mut tx, first.run_id).await.unwrap().unwrap();
    assert_eq!(
        (run.status, run.finished_at),
        (RunStatus::Lost, Some(at(100)))
    );
    assert_eq!(
        (run.failure, run.message.as_deref()),
        (Some(FailureKind::Lost), Some("its host died"))
    );
    let calls = task_runs::of_launch(&mut tx, first.launch_id)
        .await
        .unwrap();
    let calls: Vec<_> = calls.into_iter().map(|recorded| recorded.call).collect();
    assert_eq!(calls, [call]);
    let row = &launches::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(row.run_id, Some(run_id(13)));
    assert_eq!(runs::list(&mut tx, None, 9).await.unwrap().len(), 4);
    // Only the newest run finishes the launch.
    assert_eq!(
        runs::finish(&mut tx, &[first.succeeded("1", at(301))])
            .await
            .unwrap(),
        []
    );
    let newest = Held {
        run_id: run_id(13),
        ..first
    };
    assert_eq!(
        runs::finish(&mut tx, &[newest.succeeded("2", at(302))])
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

async fn giving_up_is_final(test: TestDb) {
    let host = small_setup(&test, 2).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    launches::insert(&mut tx, &[launch(2, 11)]).await.unwrap();
    let give_up = [
        RecoveryDecision {
            action: RecoveryAction::Abandon("recovery_attempts"),
            ..again(&held)
        },
        RecoveryDecision {
            launch_id: launch(2, 11).id,
            run_id: None,
            action: RecoveryAction::Abandon("schedule_deleted"),
        },
    ];
    recovery::apply(&mut tx, host, &give_up, "its host died", at(50))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let rows = launches::list(&mut tx, None, 9).await.unwrap();
    for (row, reason) in rows.iter().zip(["schedule_deleted", "recovery_attempts"]) {
        assert_eq!(
            (row.status, row.reason.as_deref()),
            (LaunchStatus::Abandoned, Some(reason))
        );
        assert_eq!(
            (row.finished_at, row.failure),
            (Some(at(50)), Some(FailureKind::Lost))
        );
        assert_eq!(row.recoveries, 0);
    }
    drop(tx);
    assert_eq!(
        status_of(&test, &held).await,
        ("abandoned".into(), "lost".into())
    );

    let before = dump(&test).await;
    let mut tx = test.write().await;
    let open_again: Vec<RecoveryDecision> = give_up
        .iter()
        .map(|verdict| RecoveryDecision {
            action: RecoveryAction::RunAgain,
            ..verdict.clone()
        })
        .collect();
    recovery::apply(&mut tx, host, &open_again, "again", at(60))
        .await
        .unwrap();
    assert_eq!(
        recovery::orphaned_runs(&mut tx, at(999), at(999), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        recovery::orphaned_launches(&mut tx, host_id(1), at(999), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(take(&mut tx, host, 50, at(999)).await, []);
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);
}

async fn what_is_over_is_never_written_again(test: TestDb) {
    let host_1 = small_setup(&test, 5).await;
    let mut tx = test.write().await;
    let host_2 = add_host(&mut tx, 2, at(0)).await;
    let slots = [1, 2, 3].map(|schedule| launch(schedule, 10 + schedule as u64));
    let held = begin(&mut tx, host_1, &slots, 1, at(20)).await;
    let mut ends = [held[0].succeeded("1", at(21)), held[1].failed("no", at(21))];
    ends[0].tasks = vec![task_run("ring", 1)];
    runs::finish(&mut tx, &ends).await.unwrap();
    let give_up = RecoveryDecision {
        action: RecoveryAction::Abandon("recovery_age"),
        ..again(&held[2])
    };
    recovery::apply(&mut tx, host_1, &[give_up], "gone", at(21))
        .await
        .unwrap();
    launches::insert(&mut tx, &[skipped(4, 14, "missed")])
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let before = dump(&test).await;
    let mut tx = test.write().await;
    let all: Vec<RecoveryDecision> = held
        .iter()
        .flat_map(|held| {
            [
                RecoveryAction::RunAgain,
                RecoveryAction::Abandon("schedule_disabled"),
            ]
            .map(|action| RecoveryDecision {
                action,
                ..again(held)
            })
        })
        .chain([RecoveryDecision {
            launch_id: skipped(4, 14, "missed").id,
            run_id: None,
            action: RecoveryAction::Abandon("recovery_age"),
        }])
        .collect();
    recovery::apply(&mut tx, host_2, &all, "again", at(30))
        .await
        .unwrap();
    for held in &held {
        for end in [
            held.succeeded("9", at(31)),
            held.failed("late", at(31)),
            held.finish(RunEnd::Waiting { retry_at: at(40) }, at(31)),
        ] {
            assert_eq!(runs::finish(&mut tx, &[end]).await.unwrap(), []);
        }
        assert!(
            !runs::record_tasks(&mut tx, held.run_id, held.fence, &[task_run("x", 9)])
                .await
                .unwrap()
        );
    }
    let claimed: Vec<_> = held.iter().map(|run| (run.run_id, run.fence)).collect();
    assert_eq!(runs::renew(&mut tx, &claimed, at(99)).await.unwrap(), []);
    assert_eq!(take(&mut tx, host_2, 50, at(99)).await, []);
    assert_eq!(
        runs::claim_retries(&mut tx, host_2, at(99), at(130), 9)
            .await
            .unwrap(),
        []
    );
    // Decisions about the same slots come too late as well.
    let decided: Vec<_> = (1..=4)
        .map(|schedule| launch(schedule, 10 + schedule as u64))
        .collect();
    launches::insert(&mut tx, &decided).await.unwrap();
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);
}

async fn two_hosts_that_recover_at_once_recover_each_orphan_once(test: TestDb) {
    const RUNS: u64 = 60;
    let host_1 = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let slots: Vec<_> = (10..10 + RUNS).map(|slot| launch(1, slot)).collect();
    begin(&mut tx, host_1, &slots, 1, at(100)).await;
    for number in 2..=5 {
        hosts::register(
            &mut tx,
            &host(host_id(number), &format!("tower-{number}"), at(0)),
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
                let lost = recovery::orphaned_runs(&mut tx, at(200), at(0), 5)
                    .await
                    .unwrap();
                if lost.is_empty() {
                    return;
                }
                let verdicts: Vec<RecoveryDecision> = lost
                    .iter()
                    .map(|stray| RecoveryDecision {
                        launch_id: stray.launch_id,
                        run_id: stray.run_id,
                        action: RecoveryAction::RunAgain,
                    })
                    .collect();
                recovery::apply(&mut tx, host_id(number), &verdicts, "gone", at(200))
                    .await
                    .unwrap();
                tx.commit().await.unwrap();
            }
        }));
    }
    for one in recovering {
        one.await.unwrap();
    }
    let mut tx = test.read().await;
    let rows = launches::list(&mut tx, None, 1_000).await.unwrap();
    assert_eq!(rows.len() as u64, RUNS);
    for row in rows {
        assert_eq!((row.status, row.recoveries), (LaunchStatus::Open, 1));
    }
}
