//! The list of launches with filters: what it finds, and that it reads the record a window at a time.

use std::time::Duration;

use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_model::namespace::Namespace;
use campanile_store::launch::{self, LaunchFilter, LaunchPage, NewLaunch};
use campanile_store::{LaunchStatus, schedules};
use campanile_tests::{TestDb, on_both};

use crate::fixtures::{at, claim_all, host_with_schedules, launch, manual, schedule_id, skipped};

on_both!(
    each_filter_selects_its_launches,
    pages_of_a_filtered_list_continue_after_the_last_launch,
    a_launch_behind_thousands_of_others_is_found,
    a_list_that_finds_nothing_says_where_it_stopped,
    launches_are_found_by_the_beginning_of_their_ids,
    digits_are_looked_for_in_one_namespace,
);

/// Return the slots of a page, in seconds, each with its schedule.
fn slots(page: &LaunchPage) -> Vec<String> {
    let slots = page.rows.iter().map(|row| {
        let slot = row.scheduled_time.since(at(0)).as_secs();
        format!("{} {slot}", row.schedule.trim_start_matches("schedule-"))
    });
    slots.collect()
}

async fn list(test: &TestDb, filter: LaunchFilter<'_>) -> Vec<String> {
    let mut tx = test.read().await;
    let page = launch::search(&mut tx, &filter, None, 100, 10_000).await;
    let page = page.unwrap();
    assert_eq!(page.continues_after, None);
    slots(&page)
}

/// Insert launches of two schedules: 10 and 20 succeed, 30 fails, 40 is skipped, 50 is manual.
async fn five_launches_each(test: &TestDb) {
    let host = host_with_schedules(test, 2).await;
    let mut tx = test.write().await;
    let mut decided = Vec::new();
    for schedule in [1, 2] {
        decided.extend([10, 20, 30].map(|slot| launch(schedule, slot)));
        decided.push(skipped(schedule, 40, "overlap"));
    }
    launch::insert(&mut tx, &decided).await.unwrap();
    let claimed = claim_all(&mut tx, host, at(60)).await;
    let ends = claimed
        .iter()
        .map(|run| match run.scheduled_time == at(30) {
            true => run.failed("it broke", at(61)),
            false => run.succeeded("1", at(61)),
        });
    let ends: Vec<_> = ends.collect();
    assert_eq!(launch::finish(&mut tx, &ends).await.unwrap().len(), 6);
    let other = NewLaunch {
        package: "other".to_owned(),
        ..manual(2, 50)
    };
    launch::insert(&mut tx, &[manual(1, 50), other])
        .await
        .unwrap();
    tx.commit().await.unwrap();
}

async fn each_filter_selects_its_launches(test: TestDb) {
    five_launches_each(&test).await;
    let mut all = list(&test, LaunchFilter::default()).await;
    assert_eq!(all.len(), 10);
    all.sort();
    let of_first = LaunchFilter {
        schedule: Some("schedule-1"),
        ..LaunchFilter::default()
    };
    assert_eq!(
        list(&test, of_first.clone()).await,
        ["1 50", "1 40", "1 30", "1 20", "1 10"]
    );
    let failed = [LaunchStatus::Failed, LaunchStatus::Abandoned];
    let with_open = [LaunchStatus::Failed, LaunchStatus::Open];
    for (filter, expected) in [
        (
            LaunchFilter {
                statuses: &failed,
                ..LaunchFilter::default()
            },
            vec!["1 30", "2 30"],
        ),
        (
            LaunchFilter {
                statuses: &failed,
                ..of_first.clone()
            },
            vec!["1 30"],
        ),
        (
            LaunchFilter {
                statuses: &with_open,
                ..LaunchFilter::default()
            },
            vec!["1 30", "1 50", "2 30", "2 50"],
        ),
        (
            LaunchFilter {
                kind: Some(LaunchKind::Manual),
                ..LaunchFilter::default()
            },
            vec!["1 50", "2 50"],
        ),
        (
            LaunchFilter {
                reason: Some("overlap"),
                ..of_first.clone()
            },
            vec!["1 40"],
        ),
        // A launch without a reason has the kind of its failure in its place.
        (
            LaunchFilter {
                reason: Some("failed"),
                ..LaunchFilter::default()
            },
            vec!["1 30", "2 30"],
        ),
        (
            LaunchFilter {
                package: Some("other"),
                ..LaunchFilter::default()
            },
            vec!["2 50"],
        ),
        (
            LaunchFilter {
                package: Some("other"),
                ..of_first.clone()
            },
            vec![],
        ),
        (
            LaunchFilter {
                since: Some(at(20)),
                until: Some(at(30)),
                ..LaunchFilter::default()
            },
            vec!["1 20", "2 20"],
        ),
        (
            LaunchFilter {
                since: Some(at(20)),
                until: Some(at(30)),
                ..of_first.clone()
            },
            vec!["1 20"],
        ),
        (
            LaunchFilter {
                since: Some(at(30)),
                statuses: &failed,
                ..LaunchFilter::default()
            },
            vec!["1 30", "2 30"],
        ),
        (
            LaunchFilter {
                since: Some(at(31)),
                statuses: &failed,
                ..LaunchFilter::default()
            },
            vec![],
        ),
        (
            LaunchFilter {
                schedule: Some("nobody"),
                ..LaunchFilter::default()
            },
            vec![],
        ),
    ] {
        let mut found = list(&test, filter.clone()).await;
        found.sort();
        assert_eq!(found, expected, "{filter:?}");
    }
}

async fn pages_of_a_filtered_list_continue_after_the_last_launch(test: TestDb) {
    five_launches_each(&test).await;
    let succeeded = [LaunchStatus::Succeeded];
    for schedule in [None, Some("schedule-2")] {
        let filter = LaunchFilter {
            schedule,
            statuses: &succeeded,
            ..LaunchFilter::default()
        };
        let whole = list(&test, filter.clone()).await;
        let mut tx = test.read().await;
        let mut paged = Vec::new();
        let mut after = None;
        loop {
            let page = launch::search(&mut tx, &filter, after, 1, 10_000)
                .await
                .unwrap();
            paged.extend(slots(&page));
            match page.rows.last() {
                Some(last) => after = Some(last.id),
                None => break,
            }
        }
        assert_eq!(paged, whole);
    }
}

/// Insert a launch that fails at `at(1)`, and 4,500 later ones that are skipped.
async fn a_failure_behind_others(test: &TestDb) {
    let host = host_with_schedules(test, 1).await;
    let mut tx = test.write().await;
    launch::insert(&mut tx, &[launch(1, 1)]).await.unwrap();
    let claimed = claim_all(&mut tx, host, at(2)).await;
    let ends = [claimed[0].failed("it broke", at(3))];
    launch::finish(&mut tx, &ends).await.unwrap();
    let later: Vec<NewLaunch> = (10..4_510)
        .map(|slot| skipped(1, slot, "overlap"))
        .collect();
    launch::insert(&mut tx, &later).await.unwrap();
    tx.commit().await.unwrap();
}

async fn a_launch_behind_thousands_of_others_is_found(test: TestDb) {
    a_failure_behind_others(&test).await;
    let failed = [LaunchStatus::Failed];
    let with_open = [LaunchStatus::Failed, LaunchStatus::Open];
    for (statuses, schedule) in [
        (&failed[..], None),
        (&with_open[..], None),
        (&failed[..], Some("schedule-1")),
    ] {
        let filter = LaunchFilter {
            schedule,
            statuses,
            ..LaunchFilter::default()
        };
        assert_eq!(list(&test, filter).await, ["1 1"]);
    }
    // A removed schedule is found by its name.
    let mut tx = test.write().await;
    assert!(
        schedules::remove(&mut tx, schedule_id(1), at(5_000))
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    let filter = LaunchFilter {
        schedule: Some("schedule-1"),
        statuses: &failed,
        ..LaunchFilter::default()
    };
    assert_eq!(list(&test, filter).await, ["1 1"]);
}

async fn a_list_that_finds_nothing_says_where_it_stopped(test: TestDb) {
    a_failure_behind_others(&test).await;
    let manual = LaunchFilter {
        kind: Some(LaunchKind::Manual),
        ..LaunchFilter::default()
    };
    let mut tx = test.read().await;
    let page = launch::search(&mut tx, &manual, None, 10, 4_000)
        .await
        .unwrap();
    assert_eq!(page.rows, []);
    let last = page.continues_after.expect("older launches");
    let row = launch::with_ids(&mut tx, &[last]).await.unwrap().remove(0);
    assert_eq!(row.scheduled_time, at(510));
    let rest = launch::search(&mut tx, &manual, Some(last), 10, 4_000)
        .await
        .unwrap();
    assert_eq!(rest, LaunchPage::default());
    // The failures are an index of their own.
    let failed = [LaunchStatus::Failed];
    let failed = LaunchFilter {
        statuses: &failed,
        ..LaunchFilter::default()
    };
    let page = launch::search(&mut tx, &failed, None, 10, 1).await.unwrap();
    assert_eq!(
        (slots(&page), page.continues_after),
        (vec!["1 1".to_owned()], None)
    );
}

async fn launches_are_found_by_the_beginning_of_their_ids(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let mut tx = test.write().await;
    let far = Duration::from_secs(86_400 * 365);
    let ids = [at(10), at(20), at(10).plus(far)]
        .map(|slot| LaunchId::of(schedule_id(1), slot, LaunchKind::Schedule));
    for (id, slot) in ids.iter().zip([10, 20, 30]) {
        let launch = NewLaunch {
            id: *id,
            ..launch(1, slot)
        };
        launch::insert(&mut tx, &[launch]).await.unwrap();
    }
    for (text, expected) in [
        (&ids[0].short(), &ids[..1]),
        (&ids[0].to_string()[..5].to_owned(), &ids[..2]),
        (&"ffff".to_owned(), &[]),
    ] {
        let short: campanile_model::ids::ShortId = text.parse().unwrap();
        let range = (short.first, short.last);
        let found = launch::ids_between(&mut tx, range, None, 10).await;
        assert_eq!(found.unwrap().ids, expected, "{text}");
        let one = launch::ids_between(&mut tx, range, None, 1).await.unwrap();
        assert_eq!(one.ids.len(), expected.len().min(1));
    }
}

async fn digits_are_looked_for_in_one_namespace(test: TestDb) {
    host_with_schedules(&test, 1).await;
    let team: Namespace = "team".parse().unwrap();
    let mut tx = test.write().await;
    // More launches of others than one statement searches, with two of the namespace among them.
    let decided = (0..2_500).map(|slot| {
        let package = match slot {
            7 | 2_400 => "@team/backup",
            _ => "@other/backup",
        };
        NewLaunch {
            package: package.to_owned(),
            ..launch(1, slot)
        }
    });
    let decided = Vec::from_iter(decided);
    launch::insert(&mut tx, &decided).await.unwrap();
    let all = (LaunchId::FIRST, LaunchId::LAST);
    let found = launch::ids_between(&mut tx, all, Some(&team), 5)
        .await
        .unwrap();
    let own = decided
        .iter()
        .filter(|launch| launch.package == "@team/backup");
    let mut own = Vec::from_iter(own.map(|launch| launch.id));
    own.sort_unstable();
    assert_eq!((found.ids, found.is_cut), (own, false));
    let none: Namespace = "none".parse().unwrap();
    let found = launch::ids_between(&mut tx, all, Some(&none), 5).await;
    assert_eq!(found.unwrap().ids, []);
}
