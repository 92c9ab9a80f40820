//! Verification of the record: a clean one has no faults, and each change behind Campanile's back is found.

mod explained;

use std::sync::Arc;
use std::time::Duration;

use campanile_control::admin::schedule_admin;
use campanile_control::reports::verify::{self, Checkpoint, FaultKind, Span, Verification};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::json_text::JsonObject;
use campanile_package::ScheduleDefinition;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::schedules::Pause;
use campanile_store::{HostLock, Origin, Tx, seals};
use campanile_tests::{TestDb, on_both};

use crate::host_steps::{clock_time, tick_all};
use crate::serving::{self, GUESTS, settings};

on_both!(
    a_clean_record_has_no_faults,
    a_change_of_the_record_is_found,
    a_chain_that_was_made_again_does_not_agree_with_a_checkpoint,
    a_launch_without_an_end_is_sealed_later,
    many_events_are_sealed_in_parts,
    what_is_recorded_after_the_clock_was_set_back_is_sealed_too,
    removed_launches_are_no_faults,
    recoveries_meanwhile_are_no_faults,
);

/// The whole record.
pub const ALL: Span = Span {
    from: Timestamp::FIRST,
    to: Timestamp::LAST,
};

struct Scene {
    test: TestDb,
    clock: Clock,
    engine: Arc<Engine>,
    _lock: HostLock,
}

impl Scene {
    /// Start a host with two schedules: `report` each hour, and `broken`, whose launches fail, each half hour.
    async fn new(test: TestDb) -> Scene {
        let scene = Scene::start(test, "10:30:00").await;
        for (name, task, expression) in [
            ("report", "ok", "0 * * * *"),
            ("broken", "fail_permanent", "*/30 * * * *"),
        ] {
            let wanted = ScheduleDefinition {
                name: name.to_owned(),
                package: "guests".to_owned(),
                task: Some(task.to_owned()),
                rule: RuleText::new(RuleKind::Cron, expression, "UTC"),
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
        scene
    }

    /// Start a host without new schedules.
    async fn start(test: TestDb, time: &str) -> Scene {
        let clock = Clock::simulated(clock_time(time));
        let (engine, lock) = serving::start(&test, &clock, settings(8), GUESTS).await;
        Scene {
            test,
            clock,
            engine,
            _lock: lock,
        }
    }

    async fn change(&self, change: impl AsyncFnOnce(&mut Tx)) {
        let mut tx = self.test.write().await;
        change(&mut tx).await;
        tx.commit().await.unwrap();
    }

    /// Let the host do its steps at a time of the day.
    async fn tick(&self, time: &str) {
        self.clock.advance_to(clock_time(time));
        let now = self.clock.now();
        self.engine.renew(now).await.unwrap();
        tick_all(&self.engine, now).await;
        self.engine.hold_chores(now).await.unwrap();
        self.engine.seal(now).await.unwrap();
    }

    /// Make a record with launches, failures, a pause, an edit and missed slots, and seal it.
    async fn live(&self) {
        for time in ["11:00:00", "11:30:00", "12:00:00", "12:30:00", "13:00:00"] {
            self.tick(time).await;
        }
        let now = self.clock.now();
        let pause = Pause {
            by: "ada",
            note: None,
            until: None,
        };
        self.change(async |tx| {
            schedule_admin::pause(tx, "report", pause, now)
                .await
                .unwrap()
        })
        .await;
        self.tick("15:10:00").await;
        let now = self.clock.now();
        self.change(async |tx| {
            let resumed = schedule_admin::resume(tx, "report", "ada", false, now).await;
            resumed.unwrap();
        })
        .await;
        self.tick("16:00:00").await;
        self.clock.advance_to(clock_time("16:15:00"));
        let now = self.clock.now();
        let faster = |wanted: &mut ScheduleDefinition| {
            "*/10 * * * *".clone_into(&mut wanted.rule.expression);
        };
        self.change(async |tx| {
            let edited = schedule_admin::edit(tx, "report", None, faster, now).await;
            edited.map(drop).unwrap();
        })
        .await;
        // No host decides for three hours: the newest slot is caught up, and the others are skipped.
        for time in ["16:20:00", "19:25:00", "19:30:00", "19:31:00", "19:35:00"] {
            self.tick(time).await;
        }
    }

    async fn verify(&self, span: Span) -> Verification {
        self.verify_against(span, None).await
    }

    async fn verify_against(&self, span: Span, checkpoint: Option<&Checkpoint>) -> Verification {
        let now = self.clock.now();
        let verified = verify::verify(&self.test.db, span, checkpoint, now).await;
        verified.unwrap()
    }

    async fn kinds(&self) -> Vec<FaultKind> {
        let found = self.verify(ALL).await;
        let mut kinds: Vec<FaultKind> = found.faults.iter().map(|fault| fault.kind).collect();
        kinds.dedup();
        kinds
    }
}

async fn a_clean_record_has_no_faults(test: TestDb) {
    let scene = Scene::new(test).await;
    scene.live().await;
    let found = scene.verify(ALL).await;
    assert_eq!((&*found.faults, &*found.notes), (&[][..], &[][..]));
    assert_eq!(found.schedules, 2);
    // `report`: 11 to 16, and each ten minutes from 16:20 to 19:30. `broken`: each half hour from 11:00 to 19:30.
    assert_eq!(found.slots, 6 + 20 + 18);
    assert_eq!(found.artifacts, 1);
    assert!(found.seals > 3 && found.events > 3, "{found:?}");
    assert!(
        found.launches > 12 && found.launches_unsealed < 4,
        "{found:?}"
    );

    let part = Span {
        from: clock_time("12:00:00"),
        to: clock_time("13:00:00"),
    };
    let found = scene.verify(part).await;
    assert_eq!(found.faults, []);
    assert_eq!(found.slots, 2 + 3);
}

async fn a_change_of_the_record_is_found(test: TestDb) {
    use FaultKind::*;
    let scene = Scene::new(test).await;
    scene.live().await;
    let backend = scene.test.backend();
    let instant = |time: &str| backend.instant(clock_time(time));
    let at_12 = format!(
        "scheduled_time = {} AND schedule_id = (SELECT id FROM schedule WHERE name = 'report')",
        instant("12:00:00")
    );
    let id = backend.id(uuid::Uuid::from_u128(7));
    let columns = "schedule_id, schedule_revision, status, utc_offset, package, digest, proposed, priority, interval_start, decided_by, \
        decided_at, host_id, attempts, started_at, finished_at";
    let copy = |slot: &str, kind: &str| {
        format!(
            "INSERT INTO launch (id, kind, scheduled_time, fire_time, {columns})
            SELECT {id}, '{kind}', {slot}, {slot}, {columns} FROM launch WHERE {at_12}"
        )
    };
    let other_bytes = backend.bytes("0061736d");
    let other_hash = backend.bytes(&"ab".repeat(32));
    let newest_seal = "number = (SELECT max(number) FROM seal)";
    for (table, change, kinds) in [
        ("launch", format!("UPDATE launch SET message = 'all is well' WHERE {at_12}"), &[LaunchChanged][..]),
        (
            "launch",
            "UPDATE launch SET status = 'succeeded', failure = NULL, message = NULL WHERE status = 'failed'".to_owned(),
            &[LaunchChanged],
        ),
        (
            "launch",
            format!("UPDATE launch SET decided_at = {} WHERE {at_12}", instant("12:30:00")),
            &[LaunchChanged, LaunchImpossible],
        ),
        ("launch", format!("DELETE FROM launch WHERE {at_12}"), &[LaunchDeleted, SlotMissing]),
        ("launch", copy(&instant("12:07:00"), "schedule"), &[LaunchAdded, SlotWrong]),
        ("launch", copy(&instant("12:00:00"), "catchup"), &[LaunchAdded, SlotTwice, SlotWrong]),
        (
            "launch",
            format!("UPDATE launch SET scheduled_time = {} WHERE {at_12}", instant("12:07:00")),
            &[LaunchImpossible, LaunchChanged, SlotMissing, SlotWrong],
        ),
        (
            "launch",
            "UPDATE launch SET slot_count = slot_count - 1 WHERE slot_count > 2".to_owned(),
            &[LaunchChanged, SlotWrong],
        ),
        ("event", "UPDATE event SET detail = 'by nobody' WHERE kind = 'schedule_paused'".to_owned(), &[EventChanged]),
        ("event", "DELETE FROM event WHERE kind = 'schedule_paused'".to_owned(), &[EventDeleted]),
        (
            "event",
            format!("INSERT INTO event SELECT {id}, at, kind, 'other', launch_id, detail, principal, channel, address, from_at, to_at FROM event WHERE kind = 'schedule_paused'"),
            &[EventAdded],
        ),
        ("seal", "DELETE FROM seal WHERE number = 2".to_owned(), &[LaunchAdded, SealBroken]),
        ("seal", format!("UPDATE seal SET hash = {other_hash} WHERE {newest_seal}"), &[SealBroken]),
        ("seal", "UPDATE seal SET events = events + 1 WHERE number = 1".to_owned(), &[SealBroken]),
        ("artifact", format!("UPDATE artifact SET bytes = {other_bytes}"), &[ArtifactChanged]),
        (
            "schedule",
            format!("UPDATE schedule SET cursor_at = {}, next_slot = NULL", instant("21:05:00")),
            &[SlotMissing],
        ),
    ] {
        let keep = format!("CREATE TABLE kept AS SELECT * FROM {table}");
        scene.test.execute(&keep).await;
        scene.test.execute(&change).await;
        let found = scene.kinds().await;
        let mut expected = kinds.to_vec();
        expected.sort_unstable_by_key(|kind| kind.as_str());
        let mut sorted = found.clone();
        sorted.sort_unstable_by_key(|kind| kind.as_str());
        sorted.dedup();
        assert_eq!(sorted, expected, "{change}: {:#?}", scene.verify(ALL).await.faults);
        let restore = match table {
            // Other tables refer to these rows.
            "artifact" => "UPDATE artifact SET bytes = (SELECT k.bytes FROM kept k WHERE k.digest = artifact.digest)".to_owned(),
            "schedule" => "UPDATE schedule SET cursor_at = (SELECT k.cursor_at FROM kept k WHERE k.id = schedule.id),
                next_slot = (SELECT k.next_slot FROM kept k WHERE k.id = schedule.id)".to_owned(),
            _ => format!("DELETE FROM {table}; INSERT INTO {table} SELECT * FROM kept"),
        };
        scene.test.execute(&restore).await;
        scene.test.execute("DROP TABLE kept").await;
        assert_eq!(scene.kinds().await, [], "restored after {change}");
    }
}

async fn a_chain_that_was_made_again_does_not_agree_with_a_checkpoint(test: TestDb) {
    let scene = Scene::new(test).await;
    scene.live().await;
    let checkpoint = verify::checkpoint(&mut scene.test.read().await)
        .await
        .unwrap();
    let checkpoint = checkpoint.expect("a seal");
    let found = scene.verify_against(ALL, Some(&checkpoint)).await;
    assert_eq!(found.faults, []);
    // A person who can write to the database can also make the chain again.
    let forge =
        "UPDATE launch SET message = 'all is well' WHERE status = 'failed'; DELETE FROM seal";
    scene.test.execute(forge).await;
    let now = scene.clock.now();
    scene.engine.hold_chores(now).await.unwrap();
    scene.engine.seal(now).await.unwrap();
    assert_eq!(scene.kinds().await, []);
    let found = scene.verify_against(ALL, Some(&checkpoint)).await;
    assert_eq!(found.faults[0].kind, FaultKind::SealBroken);
}

/// The clock is set back from 19:35 to 18:00, and the host starts again.
async fn what_is_recorded_after_the_clock_was_set_back_is_sealed_too(test: TestDb) {
    let Scene { test, engine, .. } = {
        let scene = Scene::new(test).await;
        scene.live().await;
        assert_eq!(scene.kinds().await, []);
        scene
    };
    drop(engine);
    let scene = Scene::start(test, "18:00:00").await;
    let mut requested = 0;
    for time in [
        "18:00:05", "18:00:15", "18:03:00", "18:03:10", "18:40:00", "19:20:00", "19:33:50",
        "19:34:30", "19:35:20", "19:36:40", "19:38:00", "19:45:00",
    ] {
        scene.clock.advance_to(clock_time(time));
        let now = scene.clock.now();
        scene
            .change(async |tx| {
                let trigger = schedule_admin::Trigger::default();
                let triggered = schedule_admin::trigger(tx, "report", trigger, now).await;
                triggered.map(drop).unwrap();
            })
            .await;
        requested += 1;
        scene.tick(time).await;
        let found = scene.verify(ALL).await;
        assert_eq!(found.faults, [], "{time}");
    }
    scene.tick("19:50:00").await;
    let found = scene.verify(ALL).await;
    assert_eq!(found.faults, []);
    assert!(found.launches_unsealed <= 2, "{found:?} {requested}");
    crate::rollup::check(&scene.test, scene.clock.now(), "the clock was set back").await;
    let part = Span {
        from: clock_time("18:30:00"),
        to: clock_time("19:00:00"),
    };
    assert_eq!(scene.verify(part).await.faults, []);

    // What is changed behind Campanile's back in this time is found.
    let backend = scene.test.backend();
    let since = backend.instant(clock_time("18:39:00"));
    let until = backend.instant(clock_time("18:41:00"));
    for (change, undo, kind) in [
        (
            format!("UPDATE launch SET message = 'x' WHERE decided_at > {since} AND decided_at < {until}"),
            format!("UPDATE launch SET message = NULL WHERE decided_at > {since} AND decided_at < {until}"),
            FaultKind::LaunchChanged,
        ),
        (
            "UPDATE event SET detail = detail || '.' WHERE kind = 'host_started'".to_owned(),
            "UPDATE event SET detail = substr(detail, 1, length(detail) - 1) WHERE kind = 'host_started'".to_owned(),
            FaultKind::EventChanged,
        ),
        (
            "UPDATE seal SET late_at = NULL WHERE late_at IS NOT NULL".to_owned(),
            String::new(),
            FaultKind::SealBroken,
        ),
    ] {
        scene.test.execute(&change).await;
        assert_eq!(scene.kinds().await, [kind], "{change}");
        if !undo.is_empty() {
            scene.test.execute(&undo).await;
            assert_eq!(scene.kinds().await, [], "{undo}");
        }
    }
}

async fn a_launch_without_an_end_is_sealed_later(test: TestDb) {
    let scene = Scene::new(test).await;
    scene.clock.advance_to(clock_time("11:00:00"));
    let now = scene.clock.now();
    // A busy machine may need two transactions.
    while scene.engine.decide(now).await.unwrap().more {}
    let claimed = scene.engine.claim(now).await.unwrap();
    assert_eq!(claimed.len(), 2);
    for minutes in [2, 4] {
        let later = now.plus(Duration::from_secs(60 * minutes));
        scene.clock.advance_to(later);
        scene.engine.renew(later).await.unwrap();
        scene.engine.hold_chores(later).await.unwrap();
        scene.engine.seal(later).await.unwrap();
        assert_eq!(scene.kinds().await, []);
    }
    let ends: Vec<_> = claimed
        .iter()
        .map(|work| {
            crate::any_sequence::host::finish(
                work,
                campanile_store::launch::RunEnd::Succeeded { output: None },
                scene.clock.now(),
            )
        })
        .collect();
    assert_eq!(scene.engine.finish(&ends).await.unwrap(), 2);
    scene.tick("11:30:00").await;
    scene.tick("11:35:00").await;
    let found = scene.verify(ALL).await;
    assert_eq!((&*found.faults, found.launches_unsealed), (&[][..], 0));
    scene
        .test
        .execute("UPDATE launch SET message = 'edited' WHERE status = 'succeeded'")
        .await;
    assert_eq!(scene.kinds().await, [FaultKind::LaunchChanged]);
}

async fn removed_launches_are_no_faults(test: TestDb) {
    let scene = Scene::new(test).await;
    scene.live().await;
    let mut tx = scene.test.write().await;
    let end = campanile_model::ids::LaunchId::first_at(clock_time("13:00:01"));
    let first = campanile_model::ids::LaunchId::FIRST;
    let old = campanile_store::retention::launches(&mut tx, first, end, 100)
        .await
        .unwrap();
    let old: Vec<_> = old.iter().map(|launch| launch.id).collect();
    let removed = campanile_store::retention::remove(&mut tx, &old, scene.clock.now()).await;
    assert_eq!(removed.unwrap(), old.len());
    tx.commit().await.unwrap();
    let found = scene.verify(ALL).await;
    assert_eq!(found.faults, []);
    assert!(found.slots_removed as usize >= old.len(), "{found:?}");
    // One more is gone than retention has removed.
    scene
        .test
        .execute(
            "DELETE FROM launch WHERE id = (SELECT id FROM launch WHERE status = 'succeeded' ORDER BY decided_at LIMIT 1)",
        )
        .await;
    assert_eq!(scene.kinds().await, [FaultKind::LaunchDeleted]);
}

/// A verification reads the launches and their lost runs as they were at one moment.
async fn recoveries_meanwhile_are_no_faults(test: TestDb) {
    const RECOVERIES: usize = 200;
    let scene = Scene::new(test).await;
    scene.live().await;
    let newest = "(SELECT id FROM launch WHERE started_at IS NOT NULL ORDER BY id DESC LIMIT 1)";
    let recover = async {
        for number in 1..=RECOVERIES {
            let recovery = format!(
                "INSERT INTO lost_run (launch_id, number, host_id, started_at, finished_at, message)
                SELECT id, {number}, host_id, started_at, finished_at, 'lost' FROM launch WHERE id = {newest};
                UPDATE launch SET recoveries = {number} WHERE id = {newest}"
            );
            scene.test.execute(&recovery).await;
        }
    };
    let verify = async {
        loop {
            let kinds = scene.kinds().await;
            assert!(!kinds.contains(&FaultKind::LaunchImpossible), "{kinds:?}");
        }
    };
    tokio::select! {
        () = recover => {}
        () = verify => {}
    }
    let lost = scene
        .test
        .value("SELECT CAST(count(*) AS TEXT) FROM lost_run")
        .await;
    assert_eq!(lost, RECOVERIES.to_string());
}

async fn many_events_are_sealed_in_parts(test: TestDb) {
    let scene = Scene::start(test, "10:30:00").await;
    for (time, count) in [("10:31:00", 700), ("10:31:01", 700), ("10:31:02", 2_000)] {
        let one = || NewEvent::new(EventKind::SchedulePaused, "report", "");
        let events: Vec<NewEvent> = std::iter::repeat_with(one).take(count).collect();
        let at = clock_time(time);
        scene
            .change(async |tx| events::record_all(tx, at, &events).await.unwrap())
            .await;
    }
    scene.clock.advance_to(clock_time("10:35:00"));
    let now = scene.clock.now();
    scene.engine.renew(now).await.unwrap();
    scene.engine.hold_chores(now).await.unwrap();
    scene.engine.seal(now).await.unwrap();

    let mut tx = scene.test.read().await;
    let seals = seals::page(&mut tx, 0, 10).await.unwrap();
    drop(tx);
    // The first has those of the start of the host too. Events of one moment are in one seal.
    let counts: Vec<i64> = seals.iter().map(|seal| seal.events).collect();
    let [first, second, third] = counts[..] else {
        panic!("{counts:?}");
    };
    assert!((700..800).contains(&first), "{counts:?}");
    assert_eq!((second, third), (700, 2_000));
    let found = scene.verify(ALL).await;
    assert_eq!(found.faults, []);
    assert_eq!(found.events, u64::try_from(first + second + third).unwrap());
}
