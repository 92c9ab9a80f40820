use super::*;

use campanile_model::ids::{LaunchId, ScheduleId};

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros((1_800_000_000 + seconds) * 1_000_000)
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn schedule() -> WatchedSchedule {
    WatchedSchedule {
        id: ScheduleId::FIRST,
        name: "nightly".to_owned(),
        package: "backup".to_owned(),
        enabled: true,
        next_slot: None,
        created_at: at(0),
        resumed_at: None,
        policies: "{}".to_owned(),
        success_scheduled_time: None,
        failure_scheduled_time: None,
    }
}

/// A launch of a slot that started one second later and took ten.
fn launch(slot: i64, status: LaunchStatus) -> WatchedLaunch {
    let is_ended = !matches!(
        status,
        LaunchStatus::Open | LaunchStatus::Queued | LaunchStatus::Running | LaunchStatus::Waiting
    );
    let has_run = !matches!(status, LaunchStatus::Open | LaunchStatus::Queued);
    WatchedLaunch {
        id: LaunchId::FIRST,
        kind: LaunchKind::Schedule,
        status,
        scheduled_time: at(slot),
        fire_time: at(slot),
        started_at: has_run.then(|| at(slot + 1)),
        finished_at: is_ended.then(|| at(slot + 11)),
        reason: None,
        message: None,
    }
}

/// Whether the condition holds at the second 1,000.
fn holds(condition: Condition, schedule: &WatchedSchedule, launches: &[WatchedLaunch]) -> bool {
    let is_unfinished = |launch: &&WatchedLaunch| launch.finished_at.is_none();
    let unfinished: Vec<_> = launches.iter().filter(is_unfinished).cloned().collect();
    let facts = ScheduleFacts {
        schedule,
        expect_within: Some(s(100)),
        launches,
        unfinished: &unfinished,
        decision: launches.iter().find(|one| one.scheduled_time <= at(900)),
        usual: Some(s(50)),
    };
    found(&condition, &facts, at(1_000)).is_some()
}

use LaunchStatus::{Abandoned, Failed, Open, Queued, Running, Skipped, Succeeded, Unknown};

#[test]
fn failures_are_counted_in_a_row_or_within_a_time() {
    let in_a_row = |after| Condition::Failed {
        after,
        within: None,
    };
    let within = |after, seconds| Condition::Failed {
        after,
        within: Some(s(seconds)),
    };
    for (condition, statuses, expected) in [
        (in_a_row(1), &[Failed][..], true),
        (in_a_row(1), &[Succeeded, Failed], false),
        (in_a_row(1), &[Running, Failed], true),
        (in_a_row(2), &[Failed], false),
        (in_a_row(2), &[Failed, Unknown], true),
        (in_a_row(2), &[Failed, Succeeded, Failed], false),
        (
            in_a_row(2),
            &[Abandoned, LaunchStatus::Cancelled, Failed],
            true,
        ),
        (within(2, 300), &[Succeeded, Failed, Failed], true),
        // The second failure ended 389 seconds ago.
        (
            within(2, 300),
            &[Succeeded, Failed, Succeeded, Failed],
            false,
        ),
        (Condition::Abandoned, &[Abandoned, Succeeded], true),
        (Condition::Abandoned, &[Succeeded, Abandoned], false),
        (Condition::Unknown, &[Unknown], true),
        (Condition::Unknown, &[Failed], false),
    ] {
        let slots = (0..).map(|number| 900 - 100 * number);
        let launches: Vec<_> = statuses
            .iter()
            .zip(slots)
            .map(|(status, slot)| launch(slot, *status))
            .collect();
        assert_eq!(
            holds(condition, &schedule(), &launches),
            expected,
            "{condition:?} {statuses:?}"
        );
    }
}

#[test]
fn a_failed_launch_by_hand_says_nothing_and_a_success_by_hand_does() {
    let by_hand = |status| WatchedLaunch {
        kind: LaunchKind::Manual,
        ..launch(900, status)
    };
    let failed = Condition::Failed {
        after: 1,
        within: None,
    };
    assert!(!holds(failed, &schedule(), &[by_hand(Failed)]));
    assert!(!holds(
        failed,
        &schedule(),
        &[by_hand(Succeeded), launch(800, Failed)]
    ));
    assert!(holds(
        failed,
        &schedule(),
        &[by_hand(Failed), launch(800, Failed)]
    ));
}

#[test]
fn a_launch_is_late_while_it_waits_and_until_the_next_starts_in_time() {
    let late = Condition::LateStart { by: s(30) };
    for (launches, expected) in [
        (vec![launch(980, Open)], false),
        (vec![launch(960, Open)], true),
        (vec![launch(960, Queued)], true),
        (vec![launch(900, Running)], false),
        (
            vec![WatchedLaunch {
                started_at: Some(at(931)),
                ..launch(900, Succeeded)
            }],
            true,
        ),
        (
            vec![
                launch(950, Succeeded),
                WatchedLaunch {
                    started_at: Some(at(931)),
                    ..launch(900, Succeeded)
                },
            ],
            false,
        ),
    ] {
        assert_eq!(
            holds(late, &schedule(), &launches),
            expected,
            "{launches:?}"
        );
    }
    let undecided = WatchedSchedule {
        next_slot: Some(at(960)),
        ..schedule()
    };
    assert!(holds(late, &undecided, &[]));
}

#[test]
fn durations_are_compared_with_a_limit_or_with_what_is_usual() {
    let long = |than| Condition::TooLong { than };
    let running = [launch(849, Running)];
    assert!(holds(long(Some(s(149))), &schedule(), &running));
    assert!(!holds(long(Some(s(150))), &schedule(), &running));
    // Three times the usual 50 seconds are 150.
    assert!(!holds(long(None), &schedule(), &running));
    assert!(holds(long(None), &schedule(), &[launch(848, Running)]));
    assert!(!holds(
        long(Some(s(1))),
        &schedule(),
        &[launch(800, Succeeded)]
    ));
    let short = |than| Condition::TooShort { than: s(than) };
    assert!(holds(short(11), &schedule(), &[launch(900, Succeeded)]));
    assert!(!holds(short(10), &schedule(), &[launch(900, Succeeded)]));
    assert!(!holds(short(11), &schedule(), &[launch(900, Failed)]));
}

#[test]
fn no_success_counts_from_the_last_success_the_creation_or_the_last_pause() {
    let none_for = |than| Condition::NoSuccessFor { than: s(than) };
    assert!(holds(none_for(999), &schedule(), &[]));
    assert!(!holds(none_for(1_000), &schedule(), &[]));
    // It ended 89 seconds ago.
    let launches = [launch(950, Failed), launch(900, Succeeded)];
    assert!(holds(none_for(88), &schedule(), &launches));
    assert!(!holds(none_for(89), &schedule(), &launches));
    let resumed = WatchedSchedule {
        resumed_at: Some(at(990)),
        ..schedule()
    };
    assert!(!holds(none_for(20), &resumed, &[]));
    let paused = WatchedSchedule {
        enabled: false,
        ..schedule()
    };
    assert!(!holds(none_for(1), &paused, &[]));
}

#[test]
fn a_slot_must_have_a_success_within_the_policy_of_its_schedule() {
    let expect = Condition::ExpectWithin;
    let skipped = |reason: &str| WatchedLaunch {
        reason: Some(reason.to_owned()),
        ..launch(900, Skipped)
    };
    for (launches, expected) in [
        (vec![], false),
        (vec![launch(901, Running)], false),
        (vec![launch(900, Running)], true),
        (vec![launch(900, Failed)], true),
        (vec![skipped("overlap")], true),
        (vec![skipped("skipped_once")], false),
        (vec![skipped(PAUSED)], false),
    ] {
        assert_eq!(
            holds(expect, &schedule(), &launches),
            expected,
            "{launches:?}"
        );
    }
    let succeeded = WatchedSchedule {
        success_scheduled_time: Some(at(900)),
        ..schedule()
    };
    assert!(!holds(expect, &succeeded, &[launch(900, Succeeded)]));
    assert!(!holds(expect, &succeeded, &[launch(800, Failed)]));
    let absent = WatchedSchedule {
        next_slot: Some(at(900)),
        ..schedule()
    };
    assert!(holds(expect, &absent, &[]));
    let paused = WatchedSchedule {
        enabled: false,
        ..schedule()
    };
    assert!(!holds(expect, &paused, &[launch(900, Failed)]));
}
