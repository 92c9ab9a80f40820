//! Runs: each launch is claimed once, and only the run's current fence can finish it.

use std::collections::HashMap;
use std::time::Duration;

use campanile_model::ids::{InputHash, LaunchId, RunId};
use campanile_store::hosts;
use campanile_store::launch::{self, Claim, NewLaunch, RunEnd, RunHashes};
use campanile_store::runs;
use campanile_store::task_runs;
use campanile_store::{Db, FailureKind, LaunchStatus, RunStatus};
use campanile_tests::dump::dump;
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    BYTES, ClaimedRun, PACKAGE, add_schedule, at, claim_all, claim_retries, claims_of, digest,
    host, host_id, host_with_schedules, insert_and_claim, launch, publish, status_of, task_run,
    unknown_run,
};

on_both!(
    a_launch_is_inserted_claimed_and_finished,
    a_failure_is_recorded_for_the_run_and_for_its_launch,
    launches_are_claimed_earliest_first_by_hosts_with_their_package,
    hosts_that_claim_concurrently_start_each_launch_once,
    a_finish_with_a_stale_fence_changes_nothing,
    a_retry_is_claimed_at_its_retry_time_with_a_new_fence,
    a_renewal_returns_the_runs_that_are_still_claimed,
    a_host_that_has_a_lost_run_and_the_newest_run_of_a_launch_holds_only_the_newest,
    task_calls_of_a_lost_run_are_refused,
    the_next_wake_is_the_earliest_fire_time_or_retry_time,
    runs_are_listed_newest_first_with_their_schedule_and_host,
);

async fn a_launch_is_inserted_claimed_and_finished(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 10)]).await.unwrap();
    assert_eq!(
        launch::claimable(&mut tx, host, at(9), 10).await.unwrap(),
        [],
        "its fire time is in the future"
    );
    let open = launch::claimable(&mut tx, host, at(10), 10).await.unwrap();
    assert_eq!(open.len(), 1);
    let (granted, given) = (InputHash::of(b"granted"), InputHash::of(b"given"));
    let claim = Claim {
        launch_id: open[0].launch_id,
        fence: open[0].fence(),
        hashes: RunHashes {
            grants: Some(granted.clone()),
            context: Some(given.clone()),
        },
    };
    launch::claim(&mut tx, host, &[claim], at(11), at(41))
        .await
        .unwrap();
    let claimed = ClaimedRun::of(&open[0]);
    assert_eq!(claimed.run_id, RunId::of(open[0].launch_id, 1));
    assert_eq!(claimed.fence, 1);
    tx.commit().await.unwrap();

    let mut tx = test.write().await;
    assert_eq!(
        launch::claimable(&mut tx, host, at(99), 10).await.unwrap(),
        []
    );
    let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (row.status, row.run_id.0),
        (LaunchStatus::Running, Some(claimed.run_id))
    );
    assert_eq!((row.attempts, row.started_at), (1, Some(at(11))));
    let run = runs::find(&mut tx, claimed.run_id).await.unwrap().unwrap();
    assert_eq!((run.status, run.finished_at), (RunStatus::Running, None));
    assert_eq!(run.host.as_deref(), Some("host-1"));
    let versions = [run.host_version, run.wasmtime_version, run.tzdata_version];
    assert_eq!(
        versions.map(Option::unwrap),
        ["0.1.0", "48", "2026a"],
        "the versions of its host"
    );
    assert_eq!(run.schedule_revision, 1);
    let hashes = (run.grants_hash, run.context_hash);
    assert_eq!(hashes, (Some(granted), Some(given)));

    let mut finish = claimed.succeeded(r#"{"sent":3}"#, at(15));
    finish.tasks = vec![task_run("build", 1), task_run("check", 1)];
    assert_eq!(
        launch::finish(&mut tx, &[finish]).await.unwrap(),
        [claimed.run_id]
    );
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (row.status, row.finished_at),
        (LaunchStatus::Succeeded, Some(at(15)))
    );
    let run = runs::find(&mut tx, claimed.run_id).await.unwrap().unwrap();
    assert_eq!(
        (run.status, run.finished_at),
        (RunStatus::Succeeded, Some(at(15)))
    );
    let tasks = task_runs::of_launch(&mut tx, row.id).await.unwrap();
    assert_eq!(tasks.len(), 2);
}

async fn a_failure_is_recorded_for_the_run_and_for_its_launch(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let end = RunEnd::Failed {
        kind: FailureKind::Trapped,
        message: "unreachable".to_owned(),
    };
    launch::finish(&mut tx, &[claimed.finish(end, at(12))])
        .await
        .unwrap();
    let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
    let run = &runs::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (row.status, run.status),
        (LaunchStatus::Failed, RunStatus::Failed)
    );
    assert_eq!(
        (row.failure, run.failure),
        (Some(FailureKind::Trapped), Some(FailureKind::Trapped))
    );
    assert_eq!(row.message.as_deref(), Some("unreachable"));
    assert_eq!(run.message.as_deref(), Some("unreachable"));
}

async fn launches_are_claimed_earliest_first_by_hosts_with_their_package(test: TestDb) {
    let host_1 = host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let host_2 = host_id(2);
    hosts::register(&mut tx, &host(host_2, "host-2", at(0)))
        .await
        .unwrap();
    publish(&mut tx, host_2, "other", BYTES, at(0)).await;
    let other = NewLaunch {
        package: "other".to_owned(),
        ..launch(3, 15)
    };
    let later = NewLaunch {
        fire_time: at(40),
        ..launch(2, 10)
    };
    launch::insert(&mut tx, &[launch(1, 30), later, other, launch(1, 20)])
        .await
        .unwrap();
    let slots = |launches: &[launch::ClaimedLaunch]| {
        launches
            .iter()
            .map(|launch| launch.scheduled_time)
            .collect::<Vec<_>>()
    };
    let open = launch::claimable(&mut tx, host_1, at(100), 10)
        .await
        .unwrap();
    assert_eq!(slots(&open), [at(20), at(30), at(10)], "by fire time");
    let open = launch::claimable(&mut tx, host_1, at(100), 2)
        .await
        .unwrap();
    assert_eq!(slots(&open), [at(20), at(30)]);
    let open = launch::claimable(&mut tx, host_1, at(39), 10)
        .await
        .unwrap();
    assert_eq!(slots(&open), [at(20), at(30)]);
    let open = launch::claimable(&mut tx, host_2, at(100), 10)
        .await
        .unwrap();
    assert_eq!(slots(&open), [at(15)]);
    assert_eq!(
        launch::claimable(&mut tx, host_id(3), at(100), 10)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        launch::claimable(&mut tx, host_1, at(100), 0)
            .await
            .unwrap(),
        []
    );
}

async fn hosts_that_claim_concurrently_start_each_launch_once(test: TestDb) {
    const LAUNCHES: u64 = 240;
    let host_1 = host_with_schedules(&test, 4).await;
    let mut tx = test.write().await;
    let all: Vec<NewLaunch> = (0..LAUNCHES)
        .map(|n| launch(u128::from(n % 4) + 1, 10 + n / 4))
        .collect();
    launch::insert(&mut tx, &all).await.unwrap();
    for number in 2..=4 {
        let id = host_id(number);
        hosts::register(&mut tx, &host(id, &format!("host-{number}"), at(0)))
            .await
            .unwrap();
        publish(&mut tx, id, PACKAGE, BYTES, at(0)).await;
    }
    tx.commit().await.unwrap();
    assert_eq!(host_1, host_id(1));
    let mut claims = Vec::new();
    for number in 1..=4 {
        let db = Db::open(&test.place.url).await.unwrap();
        for _ in 0..4 {
            let db = db.clone();
            claims.push(tokio::spawn(async move {
                let mut started: Vec<LaunchId> = Vec::new();
                loop {
                    let mut tx = db.write().await.unwrap();
                    let open = launch::claimable(&mut tx, host_id(number), at(1_000), 7)
                        .await
                        .unwrap();
                    if open.is_empty() {
                        return started;
                    }
                    let new = claims_of(&open);
                    launch::claim(&mut tx, host_id(number), &new, at(1_000), at(1_030))
                        .await
                        .unwrap();
                    tx.commit().await.unwrap();
                    started.extend(open.iter().map(|launch| launch.launch_id));
                }
            }));
        }
    }
    let mut times: HashMap<LaunchId, usize> = HashMap::new();
    for task in claims {
        for launch in task.await.unwrap() {
            *times.entry(launch).or_default() += 1;
        }
    }
    assert_eq!(times.len(), LAUNCHES as usize);
    assert!(times.values().all(|times| *times == 1));
    let mut tx = test.read().await;
    let rows = launch::list(&mut tx, None, 1_000).await.unwrap();
    assert!(
        rows.iter()
            .all(|row| row.attempts == 1 && row.status == LaunchStatus::Running)
    );
    assert_eq!(
        runs::list(&mut tx, None, 1_000).await.unwrap().len(),
        LAUNCHES as usize
    );
}

async fn a_finish_with_a_stale_fence_changes_nothing(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10), launch(2, 11)], at(11)).await;
    tx.commit().await.unwrap();
    let before = dump(&test).await;
    let mut stale = claimed[0].succeeded("1", at(12));
    stale.fence = 2;
    stale.tasks = vec![task_run("build", 1)];
    let mut unknown = claimed[0].failed("no", at(12));
    unknown.run_id = unknown_run();
    unknown.tasks = vec![task_run("build", 2)];
    let mut tx = test.write().await;
    assert_eq!(
        launch::finish(&mut tx, &[stale.clone(), unknown.clone()])
            .await
            .unwrap(),
        []
    );
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);

    // Together with a current finish, in either order, only the current one is applied.
    let mut tx = test.write().await;
    let current = claimed[1].succeeded("2", at(12));
    let applied = launch::finish(&mut tx, &[stale, current.clone(), unknown])
        .await
        .unwrap();
    assert_eq!(applied, [claimed[1].run_id]);
    // A second finish of the same run is not applied.
    assert_eq!(launch::finish(&mut tx, &[current]).await.unwrap(), []);
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &claimed[0]).await,
        ("running".into(), "running".into())
    );
    assert_eq!(
        status_of(&test, &claimed[1]).await,
        ("succeeded".into(), "succeeded".into())
    );
    let tasks = test
        .value("SELECT CAST(count(*) AS TEXT) FROM task_run")
        .await;
    assert_eq!(tasks, "0");
}

async fn a_retry_is_claimed_at_its_retry_time_with_a_new_fence(test: TestDb) {
    let host_1 = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host_1, &[launch(1, 10)], at(10)).await[0];
    let mut finish = claimed.finish(RunEnd::Waiting { retry_at: at(20) }, at(12));
    let mut failed = task_run("build", 1);
    failed.succeeded = false;
    failed.retry_at = Some(at(20));
    finish.tasks = vec![failed];
    assert_eq!(
        launch::finish(&mut tx, &[finish]).await.unwrap(),
        [claimed.run_id]
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &claimed).await,
        ("waiting".into(), "waiting".into())
    );

    // Another host continues it.
    let mut tx = test.write().await;
    let host_2 = host_id(2);
    hosts::register(&mut tx, &host(host_2, "host-2", at(0)))
        .await
        .unwrap();
    assert_eq!(
        claim_retries(&mut tx, host_2, at(20), at(50), 9)
            .await
            .unwrap(),
        [],
        "it lacks the package"
    );
    publish(&mut tx, host_2, PACKAGE, BYTES, at(0)).await;
    assert_eq!(
        claim_retries(&mut tx, host_2, at(19), at(50), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        claim_retries(&mut tx, host_2, at(20), at(50), 0)
            .await
            .unwrap(),
        []
    );
    let retries = claim_retries(&mut tx, host_2, at(20), at(50), 9)
        .await
        .unwrap();
    assert_eq!(retries.len(), 1);
    assert_eq!(
        (retries[0].run_id(), retries[0].fence()),
        (claimed.run_id, claimed.fence + 1)
    );
    assert_eq!(
        (retries[0].launch_id, retries[0].is_recovery()),
        (claimed.launch_id(), false)
    );
    assert_eq!(retries[0].scheduled_time, at(10));
    assert_eq!(
        claim_retries(&mut tx, host_1, at(20), at(50), 9)
            .await
            .unwrap(),
        [],
        "a retry is claimed once"
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &claimed).await,
        ("running".into(), "running".into())
    );

    // The fence of the first claim is stale. The fence of the second claim is current.
    let mut tx = test.write().await;
    assert_eq!(
        launch::finish(&mut tx, &[claimed.succeeded("1", at(21))])
            .await
            .unwrap(),
        []
    );
    assert!(
        !launch::record_tasks(&mut tx, claimed.run_id, claimed.fence, &[])
            .await
            .unwrap()
    );
    let current = ClaimedRun::of(&retries[0]);
    assert_eq!(
        launch::finish(&mut tx, &[current.succeeded("2", at(22))])
            .await
            .unwrap(),
        [claimed.run_id]
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &claimed).await,
        ("succeeded".into(), "succeeded".into())
    );
    let mut tx = test.read().await;
    let run = runs::find(&mut tx, claimed.run_id).await.unwrap().unwrap();
    assert_eq!((run.host.as_deref(), run.retry_at), (Some("host-2"), None));
}

async fn a_renewal_returns_the_runs_that_are_still_claimed(test: TestDb) {
    let host_1 = host_with_schedules(&test, 3).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(
        &mut tx,
        host_1,
        &[launch(1, 10), launch(2, 11), launch(3, 12)],
        at(12),
    )
    .await;
    launch::finish(&mut tx, &[claimed[0].succeeded("1", at(13))])
        .await
        .unwrap();
    launch::finish(
        &mut tx,
        &[claimed[1].finish(RunEnd::Waiting { retry_at: at(99) }, at(13))],
    )
    .await
    .unwrap();
    let mut fences: Vec<_> = claimed.iter().map(|run| (run.run_id, run.fence)).collect();
    assert_eq!(
        launch::renew(&mut tx, &fences, at(60)).await.unwrap(),
        [(claimed[2].run_id, None)]
    );
    // A run with another fence belongs to another claim.
    fences[2].1 += 1;
    assert_eq!(launch::renew(&mut tx, &fences, at(90)).await.unwrap(), []);
    assert_eq!(launch::renew(&mut tx, &[], at(90)).await.unwrap(), []);
    tx.commit().await.unwrap();
    let mut tx = test.write().await;
    for (now, lost) in [(59, 0), (60, 1)] {
        let orphans = launch::orphaned_runs(&mut tx, at(now), at(0), 9)
            .await
            .unwrap();
        assert_eq!(orphans.len(), lost);
    }
}

async fn a_host_that_has_a_lost_run_and_the_newest_run_of_a_launch_holds_only_the_newest(
    test: TestDb,
) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let lost = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let decision = launch::RecoveryDecision {
        launch_id: lost.launch_id(),
        action: launch::RecoveryAction::RunAgain,
        not_before: None,
    };
    launch::recover(&mut tx, host, &[decision], "gone", at(50))
        .await
        .unwrap();
    let newest = claim_all(&mut tx, host, at(51)).await[0];
    assert_eq!(newest.run_id, RunId::of(lost.launch_id(), 2));
    for both in [[lost, newest], [newest, lost]] {
        let fences = both.map(|run| (run.run_id, run.fence));
        assert_eq!(
            launch::renew(&mut tx, &fences, at(90)).await.unwrap(),
            [(newest.run_id, None)]
        );
    }
    let [mut late, mut current] = [lost.failed("late", at(60)), newest.succeeded("1", at(60))];
    late.tasks = vec![task_run("late", 1)];
    current.tasks = vec![task_run("build", 1)];
    let finished = launch::finish(&mut tx, &[late, current]).await.unwrap();
    assert_eq!(finished, [newest.run_id]);
    let row = &launch::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!((row.status, &row.message), (LaunchStatus::Succeeded, &None));
    let calls = task_runs::of_launch(&mut tx, lost.launch_id())
        .await
        .unwrap();
    let calls: Vec<_> = calls.iter().map(|call| &*call.task).collect();
    assert_eq!(calls, ["build"], "the call of the lost run is not kept");
}

async fn task_calls_of_a_lost_run_are_refused(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    assert!(
        launch::record_tasks(&mut tx, claimed.run_id, claimed.fence, &[task_run("a", 1)])
            .await
            .unwrap()
    );
    assert!(
        !launch::record_tasks(
            &mut tx,
            claimed.run_id,
            claimed.fence + 1,
            &[task_run("b", 1)]
        )
        .await
        .unwrap()
    );
    let decision = launch::RecoveryDecision {
        launch_id: claimed.launch_id(),
        action: launch::RecoveryAction::RunAgain,
        not_before: None,
    };
    launch::recover(&mut tx, host, &[decision], "gone", at(11))
        .await
        .unwrap();
    assert!(
        !launch::record_tasks(&mut tx, claimed.run_id, claimed.fence, &[task_run("c", 1)])
            .await
            .unwrap()
    );
    let tasks = task_runs::of_run(&mut tx, claimed.run_id).await.unwrap();
    assert_eq!(tasks, [task_run("a", 1)]);
}

async fn the_next_wake_is_the_earliest_fire_time_or_retry_time(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    assert_eq!(launch::next_wake(&mut tx, at(0)).await.unwrap(), None);
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    assert_eq!(launch::next_wake(&mut tx, at(10)).await.unwrap(), None);
    launch::finish(
        &mut tx,
        &[claimed.finish(RunEnd::Waiting { retry_at: at(40) }, at(12))],
    )
    .await
    .unwrap();
    assert_eq!(
        launch::next_wake(&mut tx, at(12)).await.unwrap(),
        Some(at(40))
    );
    launch::insert(&mut tx, &[launch(1, 20), launch(1, 30)])
        .await
        .unwrap();
    assert_eq!(
        launch::next_wake(&mut tx, at(12)).await.unwrap(),
        Some(at(20))
    );
    assert_eq!(
        launch::next_wake(&mut tx, at(20)).await.unwrap(),
        Some(at(30)),
        "the fire time 20 has come"
    );
    assert_eq!(
        launch::next_wake(&mut tx, at(30)).await.unwrap(),
        Some(at(40))
    );
    assert_eq!(
        launch::next_wake(&mut tx, at(40)).await.unwrap(),
        None,
        "the retry time 40 has come"
    );
}

async fn runs_are_listed_newest_first_with_their_schedule_and_host(test: TestDb) {
    let host = host_with_schedules(&test, 2).await;
    let mut tx = test.write().await;
    add_schedule(&mut tx, 3, 10).await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10), launch(2, 20)], at(20)).await;
    let run_ids: Vec<RunId> = claimed.iter().map(|run| run.run_id).collect();
    let ids = |rows: &[runs::RunRow]| rows.iter().map(|row| row.id).collect::<Vec<RunId>>();
    let all = runs::list(&mut tx, None, 10).await.unwrap();
    assert_eq!(ids(&all), [run_ids[1], run_ids[0]]);
    assert_eq!(
        (&*all[0].schedule, all[0].scheduled_time),
        ("schedule-2", at(20))
    );
    assert_eq!((&*all[0].package, &all[0].digest), (PACKAGE, &digest()));
    assert_eq!(
        ids(&runs::list(&mut tx, None, 1).await.unwrap()),
        [run_ids[1]]
    );
    assert_eq!(
        ids(&runs::list(&mut tx, Some(run_ids[1]), 9).await.unwrap()),
        [run_ids[0]]
    );
    let of_one = runs::list_of(&mut tx, "schedule-1", None, 9);
    assert_eq!(ids(&of_one.await.unwrap()), [run_ids[0]]);
    let older = runs::list_of(&mut tx, "schedule-1", Some(run_ids[0]), 9);
    assert_eq!(older.await.unwrap(), []);
    assert_eq!(
        runs::list_of(&mut tx, "schedule-3", None, 9).await.unwrap(),
        []
    );
    assert_eq!(all[0].started_at.since(at(20)), Duration::ZERO);
}
