//! Retention: several hosts, rows besides launches, a record that is too large, and messages about removed launches.

use super::*;

on_both!(
    two_hosts_count_a_launch_once,
    the_rest_of_the_record_ends_too,
    bytes_of_replaced_versions_go_and_come_back,
    a_backfill_does_not_repeat_removed_slots,
    a_record_that_is_too_large_loses_its_oldest_launches,
    a_removed_slot_is_explained,
    counts_of_removed_launches_end_too,
);

async fn two_hosts_count_a_launch_once(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 3).await;
    for schedule in 1..=3 {
        let slots: Vec<NewLaunch> = (1..=200).map(|slot| launch(schedule, slot)).collect();
        host.run(&test, &slots, success).await;
    }
    let mut tx = test.read().await;
    let end = campanile_model::ids::LaunchId::first_at(at(DAY_S));
    let all = retention::launches(&mut tx, campanile_model::ids::LaunchId::FIRST, end, 1_000);
    let ids: Vec<_> = all.await.unwrap().iter().map(|launch| launch.id).collect();
    drop(tx);
    assert_eq!(ids.len(), 600);
    let remove = async || {
        let mut removed = 0;
        for batch in ids.chunks(50) {
            loop {
                let mut tx = test.write().await;
                if retention::lock(&mut tx).await.unwrap() {
                    removed += retention::remove(&mut tx, batch, at(DAY_S)).await.unwrap();
                    tx.commit().await.unwrap();
                    break;
                }
                drop(tx);
                tokio::task::yield_now().await;
            }
        }
        removed
    };
    let (first, second) = tokio::join!(remove(), remove());
    assert_eq!(first + second, 600);
    let counted = test
        .value("SELECT CAST(sum(launches) AS TEXT) FROM removed_launches")
        .await;
    assert_eq!(counted, "600");
    let calls = test
        .value("SELECT CAST(sum(calls) AS TEXT) FROM removed_calls")
        .await;
    assert_eq!(calls, "600");
    assert_eq!(count(&test, "launch").await, "0");
    if test.db.url().is_shared() {
        // The second host leaves the work to the one that does the chores.
        let second = TestHost::start(&test, "host-2", LIMITS).await;
        host.run(&test, &[launch(1, 1_000)], success).await;
        let mut tx = test.write().await;
        schedules::remove(&mut tx, schedule_id(1), at(2_000))
            .await
            .unwrap();
        tx.commit().await.unwrap();
        let now = at(30 * DAY_S);
        host.clock.advance_to(now);
        assert!(host.engine.hold_chores(now).await.unwrap());
        assert_eq!(second.remove_old(now).await, Removed::default());
        assert_eq!(host.remove_old(now).await.launches, 1);
    }
}

async fn the_rest_of_the_record_ends_too(test: TestDb) {
    let limits = RetentionLimits {
        events: Some(DAY * 10),
        ..LIMITS
    };
    let running = TestHost::start(&test, "host-1", limits).await;
    add_schedules(&test, 1).await;
    let mut tx = test.write().await;
    for (number, used) in [(1, true), (2, false)] {
        let id = host_id(number);
        hosts::register(&mut tx, &host(id, &format!("old-{number}"), at(0)))
            .await
            .unwrap();
        hosts::end(&mut tx, id, at(100)).await.unwrap();
        let decided = launch(1, 10 + number as u64);
        let decided = NewLaunch {
            decided_by: Some(id),
            ..decided
        };
        if used {
            launch::insert(&mut tx, &[decided]).await.unwrap();
        }
    }
    let day = DayUse {
        package: PACKAGE.to_owned(),
        day: at(0).day(),
        bytes: 7,
        exceeded: false,
    };
    package_record::add(&mut tx, &[day]).await.unwrap();
    for second in 0..300 {
        events::record(&mut tx, at(second), EventKind::HostStarted, "old", "")
            .await
            .unwrap();
    }
    events::record(&mut tx, at(29 * DAY_S), EventKind::HostStarted, "new", "")
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let removed = running.remove_old(at(30 * DAY_S)).await;
    assert_eq!((removed.hosts, removed.launches), (1, 0));
    assert!(removed.events >= 300, "{removed:?}");
    let mut tx = test.read().await;
    let left = events::list(&mut tx, None, 100).await.unwrap();
    assert_eq!(
        left.iter().map(|event| &*event.subject).collect::<Vec<_>>(),
        ["new"]
    );
    drop(tx);
    let names = test
        .rows("SELECT name FROM host ORDER BY name")
        .await
        .concat();
    assert_eq!(names, ["host-1", "old-1"]);
    assert_eq!(count(&test, "package_record").await, "0");
}

async fn bytes_of_replaced_versions_go_and_come_back(test: TestDb) {
    let limits = RetentionLimits {
        artifacts: Some(DAY * 10),
        ..LIMITS
    };
    let host = TestHost::start(&test, "host-1", limits).await;
    let replace = async |bytes: &[u8], now| {
        let mut tx = test.write().await;
        publish(&mut tx, host.engine.host(), PACKAGE, bytes, now).await;
        tx.commit().await.unwrap();
    };
    replace(b"second", at(DAY_S)).await;
    let kept = async || {
        let mut tx = test.read().await;
        let versions = package_versions::of_package(&mut tx, PACKAGE)
            .await
            .unwrap();
        versions
            .iter()
            .map(|version| version.removed_at.is_none())
            .collect::<Vec<_>>()
    };
    // The first version was replaced after a day.
    assert_eq!(host.remove_old(at(10 * DAY_S)).await.artifacts, 0);
    assert_eq!(host.remove_old(at(12 * DAY_S)).await.artifacts, 1);
    assert_eq!(host.remove_old(at(100 * DAY_S)).await.artifacts, 0);
    assert_eq!(kept().await, [false, true]);
    let mut tx = test.write().await;
    let refused = approval::roll_back(&mut tx, PACKAGE, None, ada(), at(100 * DAY_S)).await;
    let error = refused.unwrap_err();
    assert!(
        error.to_string().contains("retention removed them at"),
        "{error}"
    );
    assert!(error.hint().contains("demo.wasm"), "{}", error.hint());
    drop(tx);
    replace(BYTES, at(101 * DAY_S)).await;
    assert_eq!(kept().await, [true, true]);
}

async fn a_backfill_does_not_repeat_removed_slots(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 1).await;
    // Of the first day one launch succeeded, of the second none.
    host.run(&test, &[launch(1, 10)], success).await;
    host.run(&test, &[launch(1, DAY_S)], failure).await;
    let newest: Vec<NewLaunch> = (1..=3).map(|n| launch(1, 9 * DAY_S + 10 * n)).collect();
    host.run(&test, &newest, success).await;
    let now = at(20 * DAY_S);
    assert_eq!(host.remove_old(now).await.launches, 2);
    let preview = async |forced| {
        let request = BackfillRequest {
            id: BackfillId::new(now),
            from: at(0),
            to: at(2 * DAY_S),
            spread: Duration::ZERO,
            forced,
            context: None,
            by: "tester",
        };
        let mut tx = test.read().await;
        backfill::preview(&mut tx, "schedule-1", &request, now)
            .await
            .unwrap()
    };
    let asked = preview(false).await;
    // `at(0)` is 08:00 UTC: 16 hours of the first day are left, with a slot each 10 seconds.
    let of_first_day = 16 * 3_600 / 10;
    assert_eq!(
        (asked.survey.slots_skipped, asked.survey.slots_removed),
        (of_first_day, of_first_day)
    );
    let forced = preview(true).await;
    assert_eq!(
        (forced.survey.slots_skipped, forced.survey.slots),
        (0, asked.survey.slots)
    );
}

async fn a_record_that_is_too_large_loses_its_oldest_launches(test: TestDb) {
    let start = async |max_bytes| {
        let limits = RetentionLimits {
            max_bytes: Some(max_bytes),
            ..RetentionLimits::FOR_EVER
        };
        TestHost::start(&test, "host-1", limits).await
    };
    let host = start(u64::MAX).await;
    add_schedules(&test, 1).await;
    let used = async || {
        size::used_bytes(&mut test.read().await)
            .await
            .unwrap()
            .unsigned_abs()
    };
    let empty = used().await;
    for batch in 0..20 {
        let slots = batch * 250 + 1..=batch * 250 + 250;
        let slots: Vec<NewLaunch> = slots.map(|slot| launch(1, slot)).collect();
        host.run(&test, &slots, success).await;
    }
    // Postgres writes the statistics of a connection a moment after its last transaction.
    while size::launch_rows(&mut test.read().await).await.unwrap() < 5_000 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let full = used().await;
    assert_eq!(host.remove_old(at(DAY_S)).await, Removed::default());
    drop(host);
    let host = start(empty + (full - empty) / 2).await;
    let removed = host.remove_old(at(DAY_S)).await.launches;
    assert!((1_000..=4_500).contains(&removed), "{removed}");
    let left = remaining(&test, 1).await;
    assert_eq!(left.len(), 5_000 - removed);
    assert_eq!(left.last(), Some(&(5_000, 's')));
    assert_eq!(
        left.first().map(|(slot, _)| *slot),
        Some(removed as u64 + 1)
    );
    let mut tx = test.read().await;
    let events = events::list(&mut tx, None, 100).await.unwrap();
    let told = events
        .iter()
        .filter(|event| event.kind == EventKind::RecordSizeChanged);
    let told: Vec<&str> = told.map(|event| &*event.detail).collect();
    assert_eq!(told.len(), 1, "{told:?}");
    assert!(told[0].contains("`retention.max_bytes`"), "{told:?}");
}

async fn a_removed_slot_is_explained(test: TestDb) {
    let host = TestHost::start(&test, "host-1", LIMITS).await;
    add_schedules(&test, 1).await;
    let slots: Vec<NewLaunch> = (1..=5).map(|n| launch(1, 10 * n)).collect();
    host.run(&test, &slots, success).await;
    assert_eq!(host.remove_old(at(5 * DAY_S)).await.launches, 2);
    let mut tx = test.read().await;
    let when = at(10).to_string().parse().expect("a moment");
    let answer =
        campanile_control::reports::why::why(&mut tx, "schedule-1", Some(when), at(5 * DAY_S))
            .await;
    let findings = answer.unwrap().findings;
    let text = findings
        .iter()
        .map(|finding| format!("{} {}", finding.kind, finding.text));
    let text = text.collect::<Vec<_>>().join("\n");
    assert!(
        text.contains("expired of the day 2027-01-15 2 launches"),
        "{text}"
    );
    let found = removed_launches::of_all(&mut tx, at(10).day())
        .await
        .unwrap();
    assert_eq!(found.map(|day| day.launches), Some(2));
    let status = LaunchStatus::Succeeded;
    let counts = removed_launches::counts(&mut tx, at(0).day())
        .await
        .unwrap();
    assert_eq!(
        (counts.len(), counts[0].status, counts[0].launches),
        (1, status, 2)
    );
}

async fn counts_of_removed_launches_end_too(test: TestDb) {
    let limits = RetentionLimits {
        counts: Some(DAY * 100),
        ..LIMITS
    };
    let host = TestHost::start(&test, "host-1", limits).await;
    add_schedules(&test, 2).await;
    // Of schedule 1, a slot of the fourth day has succeeded. Of schedule 2, none has.
    host.run(&test, &[launch(1, 3 * DAY_S)], success).await;
    host.run(&test, &[launch(2, 3 * DAY_S)], failure).await;
    for schedule in [1, 2] {
        let newest: Vec<NewLaunch> = (1..=3).map(|n| launch(schedule, 9 * DAY_S + n)).collect();
        host.run(&test, &newest, success).await;
    }
    assert_eq!(host.remove_old(at(20 * DAY_S)).await.counts, 0);
    assert_ne!(count(&test, "removed_launches").await, "0");
    let skipped = async |schedule: &str, day: u64| {
        let now = at(200 * DAY_S);
        let request = BackfillRequest {
            id: BackfillId::new(now),
            from: at(day * DAY_S),
            to: at(day * DAY_S + 60),
            spread: Duration::ZERO,
            forced: false,
            context: None,
            by: "tester",
        };
        let mut tx = test.read().await;
        let preview = backfill::preview(&mut tx, schedule, &request, now).await;
        preview.unwrap().survey.slots_skipped > 0
    };
    let days = async |schedule| {
        let mut days = Vec::new();
        for day in [1, 3, 5] {
            days.push(skipped(schedule, day).await);
        }
        days
    };
    assert_eq!(days("schedule-1").await, [false, true, false]);
    assert_eq!(host.remove_old(at(108 * DAY_S)).await.counts, 2);
    // Which day it was is not known any more, so all days before it are left alone too.
    assert_eq!(days("schedule-1").await, [true, true, false]);
    assert_eq!(days("schedule-2").await, [false, false, false]);
    let mut tx = test.read().await;
    let when = at(3 * DAY_S).to_string().parse().expect("a moment");
    let now = at(200 * DAY_S);
    let answer = campanile_control::reports::why::why(&mut tx, "schedule-1", Some(when), now).await;
    let findings = answer.unwrap().findings;
    let mut texts = findings.iter().map(|finding| &finding.text);
    assert!(
        texts.any(|text| text.contains("and their counts")),
        "{findings:?}"
    );
}
