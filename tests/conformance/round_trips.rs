//! Stored values are read back unchanged, up to the limits of every type.

use campanile_model::clock::Timestamp;
use campanile_model::ids::{ArtifactDigest, InputHash, LaunchId, LaunchKind, RunId};
use campanile_model::text::cut_error;
use campanile_schedule::rule::{DayMatch, DstFold, DstGap, RuleKind, RuleText};
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::launch::{self, Claim, LocalTime, NewestRun, RunHashes};
use campanile_store::packages;
use campanile_store::runs;
use campanile_store::schedules::{self, Revision};
use campanile_store::task_runs::{self, LaunchCall, TaskRun};
use campanile_store::{FailureKind, Origin};
use campanile_tests::{TestDb, on_both};
use uuid::Uuid;

use crate::fixtures::{
    PACKAGE, add_schedule, at, digest, host_with_schedules, insert_and_claim, insert_schedule,
    launch, publish, revision, task_run, unknown_run,
};

on_both!(
    instants_are_read_back_to_the_microsecond_and_in_order,
    texts_of_any_length_are_read_back,
    every_enum_value_is_read_back,
    bytes_are_read_back_also_when_they_are_empty,
    a_task_run_is_read_back_completely,
    a_text_with_a_zero_byte_is_stored_without_it,
    a_revision_is_read_back_completely,
    a_launch_is_read_back_completely,
    ids_sort_by_their_bytes,
);

async fn instants_are_read_back_to_the_microsecond_and_in_order(test: TestDb) {
    let mut instants: Vec<Timestamp> = [
        i64::MIN, // the first instant of the year 1
        -62_135_596_799_999_999,
        -1_000_001,
        -1,
        0,
        1,
        999_999,
        1_000_000,
        946_684_799_999_999, // the last microsecond before Postgres's own epoch
        946_684_800_000_000,
        1_800_000_000_000_001,
        253_402_300_799_999_998,
        i64::MAX, // the last instant of the year 9999
    ]
    .map(Timestamp::from_micros)
    .to_vec();
    let mut tx = test.write().await;
    for (number, instant) in instants.iter().enumerate() {
        let subject = number.to_string();
        events::record(&mut tx, *instant, EventKind::HostStarted, &subject, "")
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let stored = events::list(&mut tx, None, 100).await.unwrap();
    instants.reverse();
    let read: Vec<Timestamp> = stored.iter().map(|event| event.at).collect();
    assert_eq!(read, instants);
}

async fn texts_of_any_length_are_read_back(test: TestDb) {
    let texts = [
        String::new(),
        " ".to_owned(),
        "it's \"quoted\" \\ $1 %s\r\n\ttab".to_owned(),
        "Größe 🔔 \u{10FFFF} e\u{301}".to_owned(),
        "x".repeat(1 << 20),
    ];
    let mut tx = test.write().await;
    for (second, text) in (0..).zip(&texts) {
        events::record(&mut tx, at(second), EventKind::HostStarted, text, text)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let mut stored = events::list(&mut tx, None, 100).await.unwrap();
    stored.reverse();
    assert_eq!(stored.len(), texts.len());
    for (event, text) in stored.iter().zip(&texts) {
        // Long details are cut when recorded.
        assert!(event.subject == *text && event.detail == cut_error(text.as_str()));
    }
}

async fn every_enum_value_is_read_back(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    for (second, kind) in (0..).zip(EventKind::ALL) {
        let is_reset = *kind == EventKind::CursorReset;
        let event = NewEvent {
            moved: is_reset.then(|| (at(second + 1), at(second))),
            ..NewEvent::new(*kind, "", "")
        };
        events::record_all(&mut tx, at(second), &[event])
            .await
            .unwrap();
    }
    let claimed = insert_and_claim(
        &mut tx,
        crate::fixtures::host_id(1),
        &[launch(1, 10)],
        at(10),
    )
    .await[0];
    let calls: Vec<TaskRun> = (1..)
        .zip(FailureKind::ALL)
        .map(|(attempt, kind)| TaskRun {
            failure: Some(*kind),
            ..task_run("build", attempt)
        })
        .collect();
    assert!(
        launch::record_tasks(&mut tx, claimed.run_id, claimed.fence, &calls)
            .await
            .unwrap()
    );
    for (number, origin) in (10..).zip(Origin::ALL) {
        insert_schedule(&mut tx, &revision(number), *origin, None)
            .await
            .unwrap();
    }
    for (number, &kind) in (20..).zip(RuleKind::ALL) {
        let definition = Revision {
            rule: RuleText::new(kind, "", "UTC"),
            ..revision(number)
        };
        insert_schedule(&mut tx, &definition, Origin::Operator, None)
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    let mut kinds: Vec<EventKind> = events::list(&mut tx, None, 100)
        .await
        .unwrap()
        .iter()
        .map(|event| event.kind)
        .collect();
    kinds.reverse();
    assert_eq!(kinds, EventKind::ALL);
    let stored = task_runs::of_run(&mut tx, claimed.run_id).await.unwrap();
    assert_eq!(stored, calls);
    let name_of = |number: u128| format!("schedule-{number}");
    for (number, origin) in (10..).zip(Origin::ALL) {
        let found = schedules::find(&mut tx, &name_of(number))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.state.origin, *origin);
    }
    for (number, &kind) in (20..).zip(RuleKind::ALL) {
        let found = schedules::find(&mut tx, &name_of(number))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(found.definition.rule.kind, kind);
    }
}

async fn bytes_are_read_back_also_when_they_are_empty(test: TestDb) {
    let host = host_with_schedules(&test, 0).await;
    let artifacts = [
        ("none", Vec::new()),
        ("each", (0..=255).collect()),
        ("many", vec![0xC3; 3 << 20]),
    ];
    let mut tx = test.write().await;
    for (name, bytes) in &artifacts {
        publish(&mut tx, host, name, bytes, at(1)).await;
    }
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    for (name, bytes) in &artifacts {
        let row = packages::find(&mut tx, name).await.unwrap().unwrap();
        assert_eq!(row.digest, Some(ArtifactDigest::of(bytes)));
        assert_eq!(row.size_bytes, Some(bytes.len() as i64));
        let stored = packages::artifact(&mut tx, &ArtifactDigest::of(bytes))
            .await
            .unwrap();
        assert!(stored.as_ref() == Some(bytes), "{name}");
    }
    let unknown = ArtifactDigest::of(b"not stored");
    assert_eq!(packages::artifact(&mut tx, &unknown).await.unwrap(), None);
}

async fn a_task_run_is_read_back_completely(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let full = TaskRun {
        task: "build".to_owned(),
        attempt: i64::MAX,
        succeeded: false,
        started_at: at(10),
        finished_at: Timestamp::from_micros(1_800_000_000_000_001),
        retry_at: Some(at(99)),
        output: Some("x".repeat(1 << 20)),
        context: Some(r#"{"ü":[1,null]}"#.to_owned()),
        failure: Some(FailureKind::TimedOut),
        message: Some(String::new()),
        note: Some("a grant\nit may lack".to_owned()),
        stdout: "out\n".repeat(50_000),
        stdout_bytes_dropped: i64::MAX,
        stderr: "err".to_owned(),
        stderr_bytes_dropped: 1,
        logs: "[]".to_owned(),
        wall_ms: 0.1 + 0.2,
        cpu_ms: f64::MAX,
        memory_peak_bytes: i64::MAX,
        usage: r#"{"memory":[1,2]}"#.to_owned(),
    };
    let empty = TaskRun {
        started_at: at(11),
        cpu_ms: f64::MIN_POSITIVE,
        ..task_run("", 0)
    };
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let calls = [full, empty];
    launch::record_tasks(&mut tx, claimed.run_id, claimed.fence, &calls)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let of_run = task_runs::of_run(&mut tx, claimed.run_id).await.unwrap();
    assert!(of_run == calls);
    let of_launch = task_runs::of_launch(&mut tx, claimed.launch_id())
        .await
        .unwrap();
    let [full, empty] = calls.map(|call| LaunchCall {
        run_number: 1,
        task: call.task,
        attempt: call.attempt,
        succeeded: call.succeeded,
        retry_at: call.retry_at,
        output: call.output,
        context: call.context,
        failure: call.failure,
        message: call.message,
    });
    // A call that is to be repeated passes nothing on, and its message is not needed.
    let full = LaunchCall {
        output: None,
        context: None,
        message: None,
        ..full
    };
    assert!(of_launch == [full, empty]);
}

/// Postgres cannot store a zero byte in a text. A task may print one, and its end must still be recorded.
async fn a_text_with_a_zero_byte_is_stored_without_it(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let claimed = insert_and_claim(&mut tx, host, &[launch(1, 10)], at(10)).await[0];
    let call = TaskRun {
        message: Some("a\0b".to_owned()),
        stdout: "\0".to_owned(),
        stderr: "x\0".to_owned(),
        ..task_run("build", 1)
    };
    let mut finish = claimed.failed("no \0 more", at(11));
    finish.tasks = vec![call];
    assert_eq!(launch::finish(&mut tx, &[finish]).await.unwrap().len(), 1);
    events::record(&mut tx, at(1), EventKind::PackageRejected, "p\0", "d\0")
        .await
        .unwrap();
    packages::reject(&mut tx, host, "bad", (None, "unknown import \0"), at(1))
        .await
        .unwrap();
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    let stored = task_runs::of_run(&mut tx, claimed.run_id).await.unwrap();
    assert_eq!(stored[0].message.as_deref(), Some("a\u{FFFD}b"));
    assert_eq!(stored[0].stdout, "\u{FFFD}");
    assert_eq!(stored[0].stderr, "x\u{FFFD}");
    let run = runs::find(&mut tx, claimed.run_id).await.unwrap().unwrap();
    assert_eq!(run.message.as_deref(), Some("no \u{FFFD} more"));
    let event = &events::list(&mut tx, None, 1).await.unwrap()[0];
    assert_eq!(
        (event.subject.as_str(), event.detail.as_str()),
        ("p\u{FFFD}", "d\u{FFFD}")
    );
    let rejected = packages::find(&mut tx, "bad").await.unwrap().unwrap();
    assert_eq!(
        rejected.rejection.as_deref(),
        Some("unknown import \u{FFFD}")
    );
}

async fn a_revision_is_read_back_completely(test: TestDb) {
    let full = Revision {
        task: Some("build".to_owned()),
        rule: RuleText {
            day_match: DayMatch::And,
            dst_gap: DstGap::Skip,
            dst_fold: DstFold::Both,
            exclude: vec!["2026-12-24..2027-01-01".to_owned(), "* * * * \"".to_owned()],
            ..RuleText::new(RuleKind::Cron, "*/5 * * * *", "Europe/Zürich")
        },
        args: Some(r#"["--url={{ context.url }}","ö"]"#.to_owned()),
        context: format!(r#"{{"text":"{}"}}"#, "ö".repeat(1 << 19)),
        since: Timestamp::from_micros(1_800_000_000_123_456),
        ..revision(1)
    };
    let mut tx = test.write().await;
    insert_schedule(&mut tx, &full, Origin::Sidecar, None)
        .await
        .unwrap();
    insert_schedule(&mut tx, &revision(2), Origin::Package, Some(at(1)))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let found = schedules::find(&mut tx, "schedule-1")
        .await
        .unwrap()
        .unwrap();
    assert!(found.definition == full);
    assert_eq!(found.state.created_at, full.since);
    assert_eq!(found.state.cursor_at, full.since);
    assert_eq!(found.state.next_slot, None);
    assert!(found.state.enabled && found.state.deleted_at.is_none());
    let other = schedules::find(&mut tx, "schedule-2")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(other.definition, revision(2));
    assert_eq!(other.state.next_slot, Some(at(1)));
    let stored = schedules::revision(&mut tx, full.schedule_id, 1)
        .await
        .unwrap();
    assert!(stored == Some(full));
}

async fn a_launch_is_read_back_completely(test: TestDb) {
    let host = host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let full = launch::NewLaunch {
        kind: LaunchKind::Manual,
        args: Some(r#"["a b"]"#.to_owned()),
        context: Some(r#"{"deep":{"er":[]}}"#.to_owned()),
        utc_offset: -34_200,
        interval_start: at(3),
        fire_time: Timestamp::from_micros(at(12).micros() + 7),
        decided_at: at(11),
        ..launch(1, 10)
    };
    launch::insert(&mut tx, std::slice::from_ref(&full))
        .await
        .unwrap();
    let row = &launch::list(&mut tx, None, 10).await.unwrap()[0];
    assert_eq!(
        (row.id, row.kind, row.decision),
        (full.id, full.kind, full.decision)
    );
    assert_eq!(row.schedule, "schedule-1");
    assert_eq!(row.scheduled_time, full.scheduled_time);
    let local = LocalTime::new(at(10), -34_200, "UTC");
    assert_eq!(row.scheduled_local, local);
    assert_eq!(local.as_str(), "2027-01-14T22:30:10-09:30[UTC]");
    assert_eq!(
        (row.last_scheduled_time, row.slot_count),
        (full.scheduled_time, 1)
    );
    assert_eq!((&row.package, &row.digest), (&full.package, &full.digest));
    assert_eq!(
        (row.fire_time, row.decided_at),
        (full.fire_time, full.decided_at)
    );
    assert_eq!((row.attempts, row.recoveries), (0, 0));
    assert_eq!(row.run_id, NewestRun(None));
    assert_eq!((row.started_at, row.finished_at), (None, None));
    assert_eq!(
        (row.failure, &row.message, &row.reason),
        (None, &None, &None)
    );

    let claimable = &launch::claimable(&mut tx, host, at(13), 10).await.unwrap()[0];
    assert_eq!(claimable.launch_id, full.id);
    assert_eq!(claimable.schedule_id, full.schedule_id);
    assert_eq!(
        (claimable.schedule_revision, claimable.kind),
        (1, full.kind)
    );
    assert_eq!(
        (claimable.scheduled_time, claimable.utc_offset),
        (full.scheduled_time, full.utc_offset)
    );
    assert_eq!(
        (&claimable.package, &claimable.digest),
        (&full.package, &digest())
    );
    assert_eq!(claimable.context, full.context);
    assert_eq!(claimable.args, full.args);
    assert_eq!(claimable.interval_start, full.interval_start);
    assert_eq!(claimable.fire_time, full.fire_time);
    assert_eq!(
        (claimable.recovered_at, &claimable.last_result),
        (None, &None)
    );
}

async fn ids_sort_by_their_bytes(test: TestDb) {
    let host = host_with_schedules(&test, 0).await;
    // Ids that signed numbers, texts or swapped halves would sort in another order. The last byte of a launch's id is 0.
    let ids: Vec<LaunchId> = [
        0,
        0x0100,
        0xFF00,
        0x01_0000,
        0x7F << 120,
        0x80 << 120,
        (0x80 << 120) | 0x0100,
        u128::MAX - 0xFF,
    ]
    .map(|bits| LaunchId(Uuid::from_u128(bits)))
    .to_vec();
    let mut tx = test.write().await;
    add_schedule(&mut tx, 1, 10).await;
    for (slot, id) in (10..).zip(&ids) {
        let launch = launch::NewLaunch {
            id: *id,
            ..launch(1, slot)
        };
        let claim = Claim {
            launch_id: *id,
            fence: 1,
            hashes: RunHashes {
                grants: Some(InputHash::of(id.0.as_bytes())),
                context: None,
            },
        };
        launch::insert(&mut tx, &[launch]).await.unwrap();
        launch::claim(&mut tx, host, &[claim], at(20), at(50))
            .await
            .unwrap();
    }
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let listed = runs::list(&mut tx, None, 100).await.unwrap();
    let mut read: Vec<LaunchId> = listed.iter().map(|run| run.launch_id).collect();
    read.reverse();
    assert_eq!(read, ids);
    assert_eq!(listed[0].package, PACKAGE);
    for id in ids {
        let run = RunId::of(id, 1);
        let row = runs::find(&mut tx, run).await.unwrap().unwrap();
        let hashes = (row.grants_hash, row.context_hash);
        assert_eq!(hashes, (Some(InputHash::of(id.0.as_bytes())), None));
        assert_eq!((row.id, row.launch_id), (run, id));
        let next = runs::find(&mut tx, RunId::of(id, 2)).await;
        assert!(next.unwrap().is_none());
    }
    assert!(runs::find(&mut tx, unknown_run()).await.unwrap().is_none());
}
