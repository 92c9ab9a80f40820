//! Runs: claimed once, and finished only by the host that holds them.

use std::collections::HashMap;
use std::time::Duration;

use campanile_model::ids::{LaunchId, RunId};
use campanile_store::hosts;
use campanile_store::launches::{self, NewLaunch};
use campanile_store::recovery;
use campanile_store::runs::{self, NewRun, RunEnd, RunHashes};
use campanile_store::task_runs;
use campanile_store::{Db, FailureKind, LaunchStatus, RunStatus};
use campanile_tests::dump::dump;
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    BYTES, Held, PACKAGE, add_schedule, at, begin, digest, host, host_id, launch, publish, run_id,
    schedule_id, small_setup, status_of, task_run,
};

on_both!(
    a_launch_is_opened_begun_and_finished,
    a_failure_is_on_the_run_and_on_its_launch,
    launches_are_claimed_earliest_first_where_their_package_is,
    many_hosts_that_claim_start_each_launch_once,
    nothing_of_a_finish_with_a_stale_fence_is_applied,
    a_retry_waits_for_its_time_and_gets_a_new_fence,
    a_renewal_returns_the_runs_that_are_still_held,
    tasks_of_a_lost_run_are_refused,
    the_next_wake_is_the_earliest_fire_or_retry,
    runs_are_listed_newest_first_with_their_schedule_and_host,
);

async fn a_launch_is_opened_begun_and_finished(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    launches::insert(&mut tx, &[launch(1, 10)]).await.unwrap();
    assert_eq!(
        runs::claimable(&mut tx, host, at(9), 10).await.unwrap(),
        [],
        "its time has not come"
    );
    let open = runs::claimable(&mut tx, host, at(10), 10).await.unwrap();
    assert_eq!(open.len(), 1);
    let new = NewRun {
        id: run_id(1),
        launch_id: open[0].launch_id,
        schedule_id: open[0].schedule_id,
        is_recovery: false,
        digest: open[0].digest.clone(),
        hashes: RunHashes {
            grants: Some("granted".to_owned()),
            context: Some("given".to_owned()),
        },
    };
    runs::start(&mut tx, host, &[new], at(11), at(41))
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let mut tx = test.write().await;
    assert_eq!(
        runs::claimable(&mut tx, host, at(99), 10).await.unwrap(),
        []
    );
    let row = &launches::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (row.status, row.run_id),
        (LaunchStatus::Running, Some(run_id(1)))
    );
    assert_eq!((row.attempts, row.started_at), (1, Some(at(11))));
    let run = runs::find(&mut tx, run_id(1)).await.unwrap().unwrap();
    assert_eq!((run.status, run.finished_at), (RunStatus::Running, None));
    assert_eq!(run.host.as_deref(), Some("tower-1"));
    let versions = [run.host_version, run.wasmtime_version, run.tzdata_version];
    assert_eq!(
        versions.map(Option::unwrap),
        ["0.1.0", "48", "2026a"],
        "those of its host"
    );
    assert_eq!(run.schedule_revision, 1);
    let hashes = (run.grants_hash.as_deref(), run.context_hash.as_deref());
    assert_eq!(hashes, (Some("granted"), Some("given")));

    let held = Held {
        run_id: run_id(1),
        fence: runs::FIRST_FENCE,
        launch_id: row.id,
        schedule_id: schedule_id(1),
        scheduled_time: at(10),
    };
    let mut finish = held.succeeded(r#"{"rung":3}"#, at(15));
    finish.tasks = vec![task_run("ring", 1), task_run("swing", 1)];
    assert_eq!(runs::finish(&mut tx, &[finish]).await.unwrap(), [run_id(1)]);
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    let row = &launches::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (row.status, row.finished_at),
        (LaunchStatus::Succeeded, Some(at(15)))
    );
    let run = runs::find(&mut tx, run_id(1)).await.unwrap().unwrap();
    assert_eq!(
        (run.status, run.finished_at),
        (RunStatus::Succeeded, Some(at(15)))
    );
    let tasks = task_runs::of_launch(&mut tx, row.id).await.unwrap();
    assert_eq!(tasks.len(), 2);
}

async fn a_failure_is_on_the_run_and_on_its_launch(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    let end = RunEnd::Failed {
        kind: FailureKind::Trapped,
        message: "unreachable".to_owned(),
    };
    runs::finish(&mut tx, &[held.finish(end, at(12))])
        .await
        .unwrap();
    let row = &launches::list(&mut tx, None, 1).await.unwrap()[0];
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

async fn launches_are_claimed_earliest_first_where_their_package_is(test: TestDb) {
    let host_1 = small_setup(&test, 3).await;
    let mut tx = test.write().await;
    let host_2 = host_id(2);
    hosts::register(&mut tx, &host(host_2, "tower-2", at(0)))
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
    launches::insert(&mut tx, &[launch(1, 30), later, other, launch(1, 20)])
        .await
        .unwrap();
    let slots = |taken: &[runs::ClaimedLaunch]| {
        taken
            .iter()
            .map(|taken| taken.scheduled_time)
            .collect::<Vec<_>>()
    };
    let open = runs::claimable(&mut tx, host_1, at(100), 10).await.unwrap();
    assert_eq!(slots(&open), [at(20), at(30), at(10)], "by fire time");
    let open = runs::claimable(&mut tx, host_1, at(100), 2).await.unwrap();
    assert_eq!(slots(&open), [at(20), at(30)]);
    let open = runs::claimable(&mut tx, host_1, at(39), 10).await.unwrap();
    assert_eq!(slots(&open), [at(20), at(30)]);
    let open = runs::claimable(&mut tx, host_2, at(100), 10).await.unwrap();
    assert_eq!(slots(&open), [at(15)]);
    assert_eq!(
        runs::claimable(&mut tx, host_id(3), at(100), 10)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        runs::claimable(&mut tx, host_1, at(100), 0).await.unwrap(),
        []
    );
}

async fn many_hosts_that_claim_start_each_launch_once(test: TestDb) {
    const LAUNCHES: u64 = 240;
    let host_1 = small_setup(&test, 4).await;
    let mut tx = test.write().await;
    let all: Vec<NewLaunch> = (0..LAUNCHES)
        .map(|n| launch(u128::from(n % 4) + 1, 10 + n / 4))
        .collect();
    launches::insert(&mut tx, &all).await.unwrap();
    for number in 2..=4 {
        let id = host_id(number);
        hosts::register(&mut tx, &host(id, &format!("tower-{number}"), at(0)))
            .await
            .unwrap();
        publish(&mut tx, id, PACKAGE, BYTES, at(0)).await;
    }
    tx.commit().await.unwrap();
    assert_eq!(host_1, host_id(1));
    let mut taking = Vec::new();
    for number in 1..=4 {
        let db = Db::open(&test.place.url).await.unwrap();
        for taker in 0..4u128 {
            let db = db.clone();
            taking.push(tokio::spawn(async move {
                let mut begun: Vec<LaunchId> = Vec::new();
                loop {
                    let mut tx = db.write().await.unwrap();
                    let open = runs::claimable(&mut tx, host_id(number), at(1_000), 7)
                        .await
                        .unwrap();
                    if open.is_empty() {
                        return begun;
                    }
                    let first = (number * 10 + taker) << 64;
                    let new: Vec<NewRun> = open
                        .iter()
                        .zip(first + begun.len() as u128..)
                        .map(|(taken, number)| NewRun {
                            id: run_id(number),
                            launch_id: taken.launch_id,
                            schedule_id: taken.schedule_id,
                            is_recovery: false,
                            digest: digest(),
                            hashes: RunHashes::default(),
                        })
                        .collect();
                    runs::start(&mut tx, host_id(number), &new, at(1_000), at(1_030))
                        .await
                        .unwrap();
                    tx.commit().await.unwrap();
                    begun.extend(open.iter().map(|taken| taken.launch_id));
                }
            }));
        }
    }
    let mut times: HashMap<LaunchId, usize> = HashMap::new();
    for one in taking {
        for launch in one.await.unwrap() {
            *times.entry(launch).or_default() += 1;
        }
    }
    assert_eq!(times.len(), LAUNCHES as usize);
    assert!(times.values().all(|times| *times == 1));
    let mut tx = test.read().await;
    let rows = launches::list(&mut tx, None, 1_000).await.unwrap();
    assert!(
        rows.iter()
            .all(|row| row.attempts == 1 && row.status == LaunchStatus::Running)
    );
    assert_eq!(
        runs::list(&mut tx, None, 1_000).await.unwrap().len(),
        LAUNCHES as usize
    );
}

async fn nothing_of_a_finish_with_a_stale_fence_is_applied(test: TestDb) {
    let host = small_setup(&test, 2).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10), launch(2, 11)], 1, at(11)).await;
    tx.commit().await.unwrap();
    let before = dump(&test).await;
    let mut stale = held[0].succeeded("1", at(12));
    stale.fence = 2;
    stale.tasks = vec![task_run("ring", 1)];
    let mut unknown = held[0].failed("no", at(12));
    unknown.run_id = run_id(99);
    unknown.tasks = vec![task_run("ring", 2)];
    let mut tx = test.write().await;
    assert_eq!(
        runs::finish(&mut tx, &[stale.clone(), unknown.clone()])
            .await
            .unwrap(),
        []
    );
    tx.commit().await.unwrap();
    assert_eq!(dump(&test).await, before);

    // Together with a current finish, in either order, only the current one is applied.
    let mut tx = test.write().await;
    let good = held[1].succeeded("2", at(12));
    let won = runs::finish(&mut tx, &[stale, good.clone(), unknown])
        .await
        .unwrap();
    assert_eq!(won, [held[1].run_id]);
    // And only once.
    assert_eq!(runs::finish(&mut tx, &[good]).await.unwrap(), []);
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &held[0]).await,
        ("running".into(), "running".into())
    );
    assert_eq!(
        status_of(&test, &held[1]).await,
        ("succeeded".into(), "succeeded".into())
    );
    let tasks = test
        .value("SELECT CAST(count(*) AS TEXT) FROM task_run")
        .await;
    assert_eq!(tasks, "0");
}

async fn a_retry_waits_for_its_time_and_gets_a_new_fence(test: TestDb) {
    let host_1 = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host_1, &[launch(1, 10)], 1, at(10)).await[0];
    let mut finish = held.finish(RunEnd::Waiting { retry_at: at(20) }, at(12));
    let mut failed = task_run("ring", 1);
    failed.succeeded = false;
    failed.retry_at = Some(at(20));
    finish.tasks = vec![failed];
    assert_eq!(
        runs::finish(&mut tx, &[finish]).await.unwrap(),
        [held.run_id]
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &held).await,
        ("waiting".into(), "waiting".into())
    );

    // Another host continues it.
    let mut tx = test.write().await;
    let host_2 = host_id(2);
    hosts::register(&mut tx, &host(host_2, "tower-2", at(0)))
        .await
        .unwrap();
    assert_eq!(
        runs::claim_retries(&mut tx, host_2, at(20), at(50), 9)
            .await
            .unwrap(),
        [],
        "it lacks the package"
    );
    publish(&mut tx, host_2, PACKAGE, BYTES, at(0)).await;
    assert_eq!(
        runs::claim_retries(&mut tx, host_2, at(19), at(50), 9)
            .await
            .unwrap(),
        []
    );
    assert_eq!(
        runs::claim_retries(&mut tx, host_2, at(20), at(50), 0)
            .await
            .unwrap(),
        []
    );
    let taken = runs::claim_retries(&mut tx, host_2, at(20), at(50), 9)
        .await
        .unwrap();
    assert_eq!(taken.len(), 1);
    assert_eq!(
        (taken[0].run_id, taken[0].fence),
        (held.run_id, held.fence + 1)
    );
    assert_eq!(
        (taken[0].launch.launch_id, taken[0].is_recovery),
        (held.launch_id, false)
    );
    assert_eq!(taken[0].launch.scheduled_time, at(10));
    assert_eq!(
        runs::claim_retries(&mut tx, host_1, at(20), at(50), 9)
            .await
            .unwrap(),
        [],
        "once"
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &held).await,
        ("running".into(), "running".into())
    );

    // The fence of the first taking is no longer good, that of the second is.
    let mut tx = test.write().await;
    assert_eq!(
        runs::finish(&mut tx, &[held.succeeded("1", at(21))])
            .await
            .unwrap(),
        []
    );
    assert!(
        !runs::record_tasks(&mut tx, held.run_id, held.fence, &[])
            .await
            .unwrap()
    );
    let now_held = Held {
        fence: taken[0].fence,
        ..held
    };
    assert_eq!(
        runs::finish(&mut tx, &[now_held.succeeded("2", at(22))])
            .await
            .unwrap(),
        [held.run_id]
    );
    tx.commit().await.unwrap();
    assert_eq!(
        status_of(&test, &held).await,
        ("succeeded".into(), "succeeded".into())
    );
    let mut tx = test.read().await;
    let run = runs::find(&mut tx, held.run_id).await.unwrap().unwrap();
    assert_eq!((run.host.as_deref(), run.retry_at), (Some("tower-2"), None));
}

async fn a_renewal_returns_the_runs_that_are_still_held(test: TestDb) {
    let host_1 = small_setup(&test, 3).await;
    let mut tx = test.write().await;
    let held = begin(
        &mut tx,
        host_1,
        &[launch(1, 10), launch(2, 11), launch(3, 12)],
        1,
        at(12),
    )
    .await;
    runs::finish(&mut tx, &[held[0].succeeded("1", at(13))])
        .await
        .unwrap();
    runs::finish(
        &mut tx,
        &[held[1].finish(RunEnd::Waiting { retry_at: at(99) }, at(13))],
    )
    .await
    .unwrap();
    let mut claimed: Vec<_> = held.iter().map(|run| (run.run_id, run.fence)).collect();
    assert_eq!(
        runs::renew(&mut tx, &claimed, at(60)).await.unwrap(),
        [(held[2].run_id, None)]
    );
    // Under another fence it is not the caller's.
    claimed[2].1 += 1;
    assert_eq!(runs::renew(&mut tx, &claimed, at(90)).await.unwrap(), []);
    assert_eq!(runs::renew(&mut tx, &[], at(90)).await.unwrap(), []);
    tx.commit().await.unwrap();
    let mut tx = test.write().await;
    for (now, lost) in [(59, 0), (60, 1)] {
        let strays = recovery::orphaned_runs(&mut tx, at(now), at(0), 9)
            .await
            .unwrap();
        assert_eq!(strays.len(), lost);
    }
}

async fn tasks_of_a_lost_run_are_refused(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    assert!(
        runs::record_tasks(&mut tx, held.run_id, held.fence, &[task_run("a", 1)])
            .await
            .unwrap()
    );
    assert!(
        !runs::record_tasks(&mut tx, held.run_id, held.fence + 1, &[task_run("b", 1)])
            .await
            .unwrap()
    );
    let verdict = recovery::RecoveryDecision {
        launch_id: held.launch_id,
        run_id: Some(held.run_id),
        action: recovery::RecoveryAction::RunAgain,
    };
    recovery::apply(&mut tx, host, &[verdict], "gone", at(11))
        .await
        .unwrap();
    assert!(
        !runs::record_tasks(&mut tx, held.run_id, held.fence, &[task_run("c", 1)])
            .await
            .unwrap()
    );
    let tasks = task_runs::of_run(&mut tx, held.run_id).await.unwrap();
    assert_eq!(tasks, [task_run("a", 1)]);
}

async fn the_next_wake_is_the_earliest_fire_or_retry(test: TestDb) {
    let host = small_setup(&test, 1).await;
    let mut tx = test.write().await;
    assert_eq!(runs::next_wake(&mut tx, at(0)).await.unwrap(), None);
    let held = begin(&mut tx, host, &[launch(1, 10)], 1, at(10)).await[0];
    assert_eq!(runs::next_wake(&mut tx, at(10)).await.unwrap(), None);
    runs::finish(
        &mut tx,
        &[held.finish(RunEnd::Waiting { retry_at: at(40) }, at(12))],
    )
    .await
    .unwrap();
    assert_eq!(
        runs::next_wake(&mut tx, at(12)).await.unwrap(),
        Some(at(40))
    );
    launches::insert(&mut tx, &[launch(1, 20), launch(1, 30)])
        .await
        .unwrap();
    assert_eq!(
        runs::next_wake(&mut tx, at(12)).await.unwrap(),
        Some(at(20))
    );
    assert_eq!(
        runs::next_wake(&mut tx, at(20)).await.unwrap(),
        Some(at(30)),
        "20 has come"
    );
    assert_eq!(
        runs::next_wake(&mut tx, at(30)).await.unwrap(),
        Some(at(40))
    );
    assert_eq!(
        runs::next_wake(&mut tx, at(40)).await.unwrap(),
        None,
        "nor has 40 to come any more"
    );
}

async fn runs_are_listed_newest_first_with_their_schedule_and_host(test: TestDb) {
    let host = small_setup(&test, 2).await;
    let mut tx = test.write().await;
    add_schedule(&mut tx, 3, 10).await;
    begin(&mut tx, host, &[launch(1, 10), launch(2, 20)], 1, at(20)).await;
    let ids = |rows: &[runs::RunRow]| rows.iter().map(|row| row.id).collect::<Vec<RunId>>();
    let all = runs::list(&mut tx, None, 10).await.unwrap();
    assert_eq!(ids(&all), [run_id(2), run_id(1)]);
    assert_eq!(
        (&*all[0].schedule, all[0].scheduled_time),
        ("bell-2", at(20))
    );
    assert_eq!((&*all[0].package, &all[0].digest), (PACKAGE, &digest()));
    assert_eq!(
        ids(&runs::list(&mut tx, None, 1).await.unwrap()),
        [run_id(2)]
    );
    assert_eq!(
        ids(&runs::list(&mut tx, Some("bell-1"), 9).await.unwrap()),
        [run_id(1)]
    );
    assert_eq!(runs::list(&mut tx, Some("bell-3"), 9).await.unwrap(), []);
    assert_eq!(all[0].started_at.since(at(20)), Duration::ZERO);
}
