//! Schedules: their state, their revisions, and concurrent decisions about the same slots.

use std::collections::BTreeMap;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, LaunchKind, ScheduleId};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launch::{self, NewLaunch};
use campanile_store::schedules::{self, CursorMove, Revision, Schedule};
use campanile_store::{Db, DbError, Origin};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{
    PACKAGE, PAUSE, add_schedule, at, digest, host_id, host_with_schedules, insert_schedule,
    launch, revision, schedule_id, set_next,
};

on_both!(
    a_name_is_in_use_until_its_schedule_is_removed,
    a_revision_applies_only_on_the_revision_before_it,
    a_pause_clears_the_next_slot_and_a_resume_sets_one,
    a_removed_schedule_keeps_only_its_revisions,
    the_audit_corrects_a_next_slot_only_if_the_cursor_has_not_moved,
    due_schedules_are_listed_earliest_first_up_to_the_limit,
    schedules_are_listed_by_name_by_package_and_by_origin,
    a_cursor_moves_only_from_the_position_that_was_read,
    one_of_several_writers_with_the_same_cursor_moves_it,
    concurrent_hosts_decide_every_slot_once,
);

async fn a_name_is_in_use_until_its_schedule_is_removed(test: TestDb) {
    let mut tx = test.write().await;
    add_schedule(&mut tx, 1, 10).await;
    tx.commit().await.unwrap();
    let same_name = Revision {
        schedule_id: schedule_id(2),
        ..revision(1)
    };
    let mut tx = test.write().await;
    let refused = insert_schedule(&mut tx, &same_name, Origin::Operator, None).await;
    assert!(matches!(refused, Err(DbError::Conflict(_))), "{refused:?}");
    drop(tx);

    let mut tx = test.write().await;
    assert!(
        schedules::remove(&mut tx, schedule_id(1), at(5))
            .await
            .unwrap()
    );
    insert_schedule(&mut tx, &same_name, Origin::Operator, None)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let found = schedules::find(&mut tx, "schedule-1")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(found.state.id, schedule_id(2));
    drop(tx);

    // A rename to a name in use is refused with the same conflict.
    let mut tx = test.write().await;
    add_schedule(&mut tx, 3, 10).await;
    let renamed = Revision {
        name: "schedule-1".to_owned(),
        revision: 2,
        ..revision(3)
    };
    let refused = schedules::revise(&mut tx, &renamed, true, Origin::Sidecar, at(0), None).await;
    assert!(matches!(refused, Err(DbError::Conflict(_))), "{refused:?}");
}

async fn a_revision_applies_only_on_the_revision_before_it(test: TestDb) {
    let mut tx = test.write().await;
    let id = add_schedule(&mut tx, 1, 10).await;
    tx.commit().await.unwrap();
    let second = Revision {
        revision: 2,
        name: "renamed".to_owned(),
        package: "other".to_owned(),
        rule: RuleText::new(RuleKind::Every, "1 hour", "UTC"),
        since: at(7),
        ..revision(1)
    };
    let mut tx = test.write().await;
    assert!(
        schedules::revise(
            &mut tx,
            &second,
            true,
            Origin::Sidecar,
            at(7),
            Some(at(3600))
        )
        .await
        .unwrap()
    );
    // A writer that has read the first revision, and a writer that skips a revision.
    assert!(
        !schedules::revise(&mut tx, &second, true, Origin::Sidecar, at(8), Some(at(20)))
            .await
            .unwrap()
    );
    let fourth = Revision {
        revision: 4,
        ..second.clone()
    };
    assert!(
        !schedules::revise(&mut tx, &fourth, true, Origin::Sidecar, at(8), Some(at(20)))
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();

    let mut tx = test.read().await;
    assert_eq!(schedules::find(&mut tx, "schedule-1").await.unwrap(), None);
    let found = schedules::find(&mut tx, "renamed").await.unwrap().unwrap();
    assert_eq!(found.definition, second);
    assert_eq!(
        (found.state.revision, found.state.origin),
        (2, Origin::Sidecar)
    );
    assert_eq!(found.state.cursor_at, at(7));
    assert_eq!(found.state.next_slot, Some(at(3600)));
    assert_eq!(
        (found.state.created_at, found.state.updated_at),
        (at(0), at(7))
    );
    // The first revision stays for the launches that were decided by it.
    assert_eq!(
        schedules::revision(&mut tx, id, 1).await.unwrap(),
        Some(revision(1))
    );
    assert_eq!(schedules::revision(&mut tx, id, 4).await.unwrap(), None);
}

async fn a_pause_clears_the_next_slot_and_a_resume_sets_one(test: TestDb) {
    let mut tx = test.write().await;
    let id = add_schedule(&mut tx, 1, 10).await;
    assert!(schedules::pause(&mut tx, id, PAUSE, at(5)).await.unwrap());
    assert!(
        !schedules::pause(&mut tx, id, PAUSE, at(6)).await.unwrap(),
        "it is paused already"
    );
    let paused = schedules::find(&mut tx, "schedule-1")
        .await
        .unwrap()
        .unwrap()
        .state;
    assert!(!paused.enabled);
    assert_eq!((paused.next_slot, paused.updated_at), (None, at(5)));
    assert_eq!(schedules::due(&mut tx, at(100), 10).await.unwrap(), []);
    assert_eq!(schedules::next_due(&mut tx).await.unwrap(), None);

    assert!(
        schedules::resume(&mut tx, id, at(50), at(50), Some(at(60)))
            .await
            .unwrap()
    );
    assert!(
        !schedules::resume(&mut tx, id, at(51), at(51), Some(at(70)))
            .await
            .unwrap(),
        "it is not paused"
    );
    let resumed = schedules::find(&mut tx, "schedule-1")
        .await
        .unwrap()
        .unwrap()
        .state;
    assert!(resumed.enabled);
    assert_eq!(
        (resumed.cursor_at, resumed.next_slot),
        (at(50), Some(at(60)))
    );
    assert_eq!(schedules::next_due(&mut tx).await.unwrap(), Some(at(60)));
    let unknown = schedule_id(99);
    for (from, until, excluded, number) in [
        (60, 61, unknown, 1),
        (0, 60, unknown, 0),
        (61, 99, unknown, 0),
        (60, 61, id, 0),
    ] {
        let waiting = schedules::waiting(&mut tx, at(from), at(until), excluded).await;
        assert_eq!(
            waiting.unwrap(),
            number,
            "{from} to {until} without {excluded}"
        );
    }
    assert!(
        !schedules::pause(&mut tx, unknown, PAUSE, at(5))
            .await
            .unwrap()
    );
    assert!(
        !schedules::resume(&mut tx, unknown, at(5), at(5), None)
            .await
            .unwrap()
    );
}

async fn a_removed_schedule_keeps_only_its_revisions(test: TestDb) {
    let mut tx = test.write().await;
    let id = add_schedule(&mut tx, 1, 10).await;
    assert!(schedules::remove(&mut tx, id, at(5)).await.unwrap());
    assert!(
        !schedules::remove(&mut tx, id, at(6)).await.unwrap(),
        "it is removed already"
    );
    assert_eq!(schedules::find(&mut tx, "schedule-1").await.unwrap(), None);
    assert_eq!(schedules::due(&mut tx, at(100), 10).await.unwrap(), []);
    assert!(!schedules::pause(&mut tx, id, PAUSE, at(7)).await.unwrap());
    assert!(
        !schedules::resume(&mut tx, id, at(7), at(7), Some(at(9)))
            .await
            .unwrap()
    );
    assert!(
        !set_next(&mut tx, id, at(0), Some(at(9)), at(7))
            .await
            .unwrap()
    );
    let second = Revision {
        revision: 2,
        ..revision(1)
    };
    assert!(
        !schedules::revise(&mut tx, &second, true, Origin::Sidecar, at(7), None)
            .await
            .unwrap()
    );
    let step = CursorMove {
        id,
        revision: 1,
        from: at(0),
        to: at(10),
        next_slot: None,
        launches: 0,
        caught_up: None,
    };
    assert_eq!(schedules::advance(&mut tx, &[step]).await.unwrap(), []);
    assert_eq!(
        schedules::revision(&mut tx, id, 1).await.unwrap(),
        Some(revision(1))
    );
}

async fn the_audit_corrects_a_next_slot_only_if_the_cursor_has_not_moved(test: TestDb) {
    let mut tx = test.write().await;
    let id = add_schedule(&mut tx, 1, 10).await;
    assert!(
        !set_next(&mut tx, id, at(1), Some(at(30)), at(5))
            .await
            .unwrap()
    );
    assert!(
        set_next(&mut tx, id, at(0), Some(at(30)), at(5))
            .await
            .unwrap()
    );
    assert_eq!(schedules::next_due(&mut tx).await.unwrap(), Some(at(30)));
    schedules::pause(&mut tx, id, PAUSE, at(6)).await.unwrap();
    assert!(
        !set_next(&mut tx, id, at(0), Some(at(40)), at(7))
            .await
            .unwrap()
    );
}

async fn due_schedules_are_listed_earliest_first_up_to_the_limit(test: TestDb) {
    let mut tx = test.write().await;
    for (number, next) in [(1, 30), (2, 10), (3, 20), (4, 40), (5, 41)] {
        add_schedule(&mut tx, number, next).await;
    }
    crate::fixtures::add_host(&mut tx, 1, at(0)).await;
    insert_schedule(
        &mut tx,
        &Revision {
            package: "missing".to_owned(),
            ..revision(6)
        },
        Origin::Operator,
        Some(at(5)),
    )
    .await
    .unwrap();
    let due = schedules::due(&mut tx, at(40), 100).await.unwrap();
    let numbers: Vec<ScheduleId> = due.iter().map(|due| due.id).collect();
    assert_eq!(
        numbers,
        [6, 2, 3, 1, 4].map(schedule_id),
        "the slot 41 has not come"
    );
    assert_eq!(due[1].revision, 1);
    assert_eq!((due[1].cursor_at, due[1].next_slot), (at(0), at(10)));
    assert_eq!(
        (&*due[1].package, &due[1].digest),
        (PACKAGE, &Some(digest()))
    );
    assert_eq!(due[1].missing_since, None);
    assert_eq!((&*due[0].package, &due[0].digest), ("missing", &None));
    let first = schedules::due(&mut tx, at(40), 2).await.unwrap();
    assert_eq!(first[..], due[..2]);
    assert_eq!(schedules::due(&mut tx, at(4), 10).await.unwrap(), []);
    assert_eq!(schedules::next_due(&mut tx).await.unwrap(), Some(at(5)));
}

async fn schedules_are_listed_by_name_by_package_and_by_origin(test: TestDb) {
    let mut tx = test.write().await;
    for number in [3, 1, 2] {
        add_schedule(&mut tx, number, 10).await;
    }
    let other = Revision {
        package: "other".to_owned(),
        ..revision(4)
    };
    insert_schedule(&mut tx, &other, Origin::Sidecar, None)
        .await
        .unwrap();
    let of_file = Revision {
        name: "0-of-file".to_owned(),
        ..revision(5)
    };
    insert_schedule(&mut tx, &of_file, Origin::File, None)
        .await
        .unwrap();
    let removed = schedule_id(2);
    assert!(schedules::remove(&mut tx, removed, at(1)).await.unwrap());
    let all = schedules::all(&mut tx).await.unwrap();
    assert_eq!(names(&all), "0-of-file schedule-1 schedule-3 schedule-4");
    let first = schedules::list(&mut tx, None, 2).await.unwrap();
    assert_eq!(names(&first), "0-of-file schedule-1");
    let rest = schedules::list(&mut tx, Some("schedule-1"), 2).await;
    assert_eq!(names(&rest.unwrap()), "schedule-3 schedule-4");
    let some = schedules::names(&mut tx, 3).await.unwrap();
    assert_eq!(some, ["0-of-file", "schedule-1", "schedule-3"]);
    let of_package = schedules::names_of_package(&mut tx, PACKAGE, 9).await;
    let expected = ["0-of-file", "schedule-1", "schedule-3"];
    assert_eq!(of_package.unwrap(), expected);
    let first = schedules::names_of_package(&mut tx, PACKAGE, 2).await;
    assert_eq!(first.unwrap(), expected[..2]);
    let others = schedules::others_of_package(&mut tx, PACKAGE, 2).await;
    let expected = [
        ("0-of-file".to_owned(), Origin::File),
        ("schedule-1".to_owned(), Origin::Operator),
    ];
    assert_eq!(others.unwrap(), expected);
    let others = schedules::others_of_package(&mut tx, "other", 2).await;
    assert_eq!(others.unwrap(), []);
    let tasks = schedules::tasks_of_package(&mut tx, PACKAGE).await;
    assert_eq!(tasks.unwrap(), []);
    let with_task = Revision {
        task: Some("only".to_owned()),
        package: "other".to_owned(),
        ..revision(6)
    };
    insert_schedule(&mut tx, &with_task, Origin::Operator, None)
        .await
        .unwrap();
    let tasks = schedules::tasks_of_package(&mut tx, "other").await;
    let expected = [("schedule-6".to_owned(), "only".to_owned())];
    assert_eq!(tasks.unwrap(), expected);
    for (package, expected) in [("other", "schedule-4"), (PACKAGE, "")] {
        let own = schedules::defined_by_package(&mut tx, package).await;
        assert_eq!(names(&own.unwrap()), expected);
    }
    let of_file = schedules::defined_by_file(&mut tx).await.unwrap();
    assert_eq!(names(&of_file), "0-of-file");
    assert!(schedules::is_any_of_file(&mut tx).await.unwrap());
    let id = of_file[0].state.id;
    assert!(schedules::remove(&mut tx, id, at(1)).await.unwrap());
    assert!(!schedules::is_any_of_file(&mut tx).await.unwrap());
    let wanted = ["schedule-4", "schedule-2", "schedule-1", "unknown"];
    let mut named = schedules::named(&mut tx, &wanted).await.unwrap();
    named.sort_by(|a, b| a.definition.name.cmp(&b.definition.name));
    assert_eq!(names(&named), "schedule-1 schedule-4");
    let locked = schedules::lock_named(&mut tx, &wanted).await.unwrap();
    assert_eq!(locked.len(), 2);
}

fn names(schedules: &[Schedule]) -> String {
    let names = schedules.iter().map(|found| &*found.definition.name);
    names.collect::<Vec<_>>().join(" ")
}

async fn a_cursor_moves_only_from_the_position_that_was_read(test: TestDb) {
    let mut tx = test.write().await;
    for number in 1..=6 {
        add_schedule(&mut tx, number, 10).await;
    }
    schedules::pause(&mut tx, schedule_id(4), PAUSE, at(5))
        .await
        .unwrap();
    schedules::remove(&mut tx, schedule_id(5), at(5))
        .await
        .unwrap();
    let step = |number: u128| CursorMove {
        id: schedule_id(number),
        revision: 1,
        from: at(0),
        to: at(10),
        next_slot: Some(at(20)),
        launches: 0,
        caught_up: None,
    };
    let moves = [
        step(1),
        CursorMove {
            from: at(1),
            ..step(2)
        },
        CursorMove {
            revision: 2,
            ..step(3)
        },
        step(4),
        step(5),
        CursorMove {
            next_slot: None,
            ..step(6)
        },
        step(99),
    ];
    let mut moved = schedules::advance(&mut tx, &moves).await.unwrap();
    moved.sort();
    assert_eq!(moved, [schedule_id(1), schedule_id(6)]);
    // The same moves fail the second time, since the cursors have moved.
    assert_eq!(schedules::advance(&mut tx, &moves).await.unwrap(), []);
    tx.commit().await.unwrap();
    let mut tx = test.read().await;
    let states: Vec<(Timestamp, Option<Timestamp>)> = schedules::all(&mut tx)
        .await
        .unwrap()
        .iter()
        .map(|schedule| (schedule.state.cursor_at, schedule.state.next_slot))
        .collect();
    let untouched = (at(0), Some(at(10)));
    assert_eq!(
        states,
        [
            (at(10), Some(at(20))),
            untouched,
            untouched,
            (at(0), None),
            (at(10), None)
        ]
    );
}

async fn one_of_several_writers_with_the_same_cursor_moves_it(test: TestDb) {
    host_with_schedules(&test, 40).await;
    let moves: Vec<CursorMove> = (1..=40)
        .map(|number| CursorMove {
            id: schedule_id(number),
            revision: 1,
            from: at(0),
            to: at(10),
            next_slot: Some(at(20)),
            launches: 0,
            caught_up: None,
        })
        .collect();
    let mut deciding = Vec::new();
    for _ in 0..8 {
        let url = test.place.url.clone();
        let moves = moves.clone();
        deciding.push(tokio::spawn(async move {
            let db = Db::open(&url).await.unwrap();
            let mut tx = db.write().await.unwrap();
            let moved = schedules::advance(&mut tx, &moves).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            tx.commit().await.unwrap();
            db.close().await;
            moved
        }));
    }
    let mut moved = Vec::new();
    for task in deciding {
        moved.extend(task.await.unwrap());
    }
    moved.sort();
    let all: Vec<ScheduleId> = (1..=40).map(schedule_id).collect();
    assert_eq!(moved, all);
}

/// Decide slots as the engine does, for schedules with a slot every ten seconds. Return how many schedules were due.
async fn decide(db: &Db, now: Timestamp) -> Result<usize, DbError> {
    let mut tx = db.write().await?;
    let due = schedules::due(&mut tx, now, 8).await?;
    let moves: Vec<CursorMove> = due
        .iter()
        .map(|due| CursorMove {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: due.next_slot,
            next_slot: Some(due.next_slot.plus(Duration::from_secs(10))),
            launches: 0,
            caught_up: None,
        })
        .collect();
    let moved = schedules::advance(&mut tx, &moves).await?;
    let decided: Vec<NewLaunch> = moves
        .iter()
        .filter(|step| moved.contains(&step.id))
        .map(|step| NewLaunch {
            id: LaunchId::of(step.id, step.to, LaunchKind::Schedule),
            schedule_id: step.id,
            scheduled_time: step.to,
            last_scheduled_time: step.to,
            fire_time: step.to,
            decided_by: Some(host_id(1)),
            ..launch(0, 0)
        })
        .collect();
    launch::insert(&mut tx, &decided).await?;
    tx.commit().await?;
    Ok(due.len())
}

async fn concurrent_hosts_decide_every_slot_once(test: TestDb) {
    const SCHEDULES: u128 = 20;
    const SLOTS: u64 = 15;
    host_with_schedules(&test, SCHEDULES).await;
    let now = at(10 * SLOTS);
    // Four hosts, each with four concurrent tasks that decide.
    let mut deciding = Vec::new();
    for _ in 0..4 {
        let db = Db::open(&test.place.url).await.unwrap();
        for _ in 0..4 {
            let db = db.clone();
            deciding.push(tokio::spawn(async move {
                loop {
                    match decide(&db, now).await {
                        Ok(0) => return,
                        Ok(_) => tokio::task::yield_now().await,
                        Err(error) => panic!("{error}"),
                    }
                }
            }));
        }
    }
    for task in deciding {
        task.await.unwrap();
    }
    let mut tx = test.read().await;
    let mut slots: BTreeMap<String, Vec<Timestamp>> = BTreeMap::new();
    for launch in launch::list(&mut tx, None, 10_000).await.unwrap() {
        slots
            .entry(launch.schedule)
            .or_default()
            .push(launch.scheduled_time);
    }
    assert_eq!(slots.len(), SCHEDULES as usize);
    let expected: Vec<Timestamp> = (1..=SLOTS).map(|slot| at(10 * slot)).collect();
    for (schedule, mut decided) in slots {
        decided.sort();
        assert_eq!(decided, expected, "{schedule}");
    }
    for schedule in schedules::all(&mut tx).await.unwrap() {
        assert_eq!(schedule.state.cursor_at, now);
        assert_eq!(schedule.state.next_slot, Some(at(10 * SLOTS + 10)));
    }
}
