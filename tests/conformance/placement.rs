//! Which host executes a launch: labels, and the turns of several hosts.

use std::sync::Arc;
use std::time::Duration;

use campanile_control::settings::{Placement, Settings};
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::labels::Labels;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::launch::{self, NewLaunch, RetriesOf, RunEnd, WaitingClass};
use campanile_store::schedules::Revision;
use campanile_store::{LaunchStatus, Origin, Tx, hosts, stats};
use campanile_tests::{Backend, TestDb, on_both};

use crate::fixtures::{
    self, add_schedule, at, host, host_id, insert_and_claim, insert_schedule, launch, publish,
    revision,
};
use crate::serving::{self, NOOP, settings};

on_both!(
    a_host_claims_only_launches_whose_labels_it_has,
    a_retry_waits_for_a_host_with_its_labels,
    an_open_launch_is_not_lost_while_only_hosts_without_its_labels_are_idle,
    labels_that_no_live_host_has_are_named,
    a_launch_decided_by_a_host_without_its_labels_is_opened,
    slots_go_to_each_of_two_idle_hosts_in_equal_parts,
    slots_are_packed_on_one_host,
    slots_that_the_other_host_does_not_take_are_not_left_for_long,
    a_host_whose_peer_has_stopped_takes_all,
    open_launches_go_to_the_host_with_fewer_runs,
    a_drained_host_leaves_slots_to_the_others,
);

fn labels(text: &str) -> Labels {
    Labels::stored(text)
}

/// Register a host with labels and the package of the fixtures.
async fn add_host(tx: &mut Tx, number: u128, text: &str) {
    let id = host_id(number);
    let host = hosts::Host {
        labels: labels(text),
        ..host(id, &format!("host-{number}"), at(0))
    };
    hosts::register(tx, &host).await.unwrap();
    publish(tx, id, fixtures::PACKAGE, fixtures::BYTES, at(0)).await;
}

/// The launch of schedule 1 at a slot, which needs labels.
fn needs(text: &str, slot: u64) -> NewLaunch {
    NewLaunch {
        run_on: Some(labels(text)),
        ..launch(1, slot)
    }
}

async fn a_host_claims_only_launches_whose_labels_it_has(test: TestDb) {
    let mut tx = test.write().await;
    for (number, text) in [(1, ""), (2, "gpu"), (3, "arm,eu,gpu,ssd"), (4, "gp,gpus,u")] {
        add_host(&mut tx, number, text).await;
    }
    add_schedule(&mut tx, 1, 10).await;
    let all = [
        launch(1, 10),
        needs("gpu", 20),
        needs("eu,ssd", 30),
        needs("eu,us", 40),
    ];
    let of_group = NewLaunch {
        group_name: Some("db".to_owned()),
        ..needs("gpu", 50)
    };
    launch::insert(&mut tx, &all).await.unwrap();
    launch::insert(&mut tx, &[of_group]).await.unwrap();
    for (number, expected, in_group) in [
        (1, &[10][..], 0),
        (2, &[10, 20], 1),
        (3, &[10, 20, 30], 1),
        (4, &[10], 0),
    ] {
        let host = host_id(number);
        let expected: Vec<Timestamp> = expected.iter().map(|slot| at(*slot)).collect();
        let claimable = launch::claimable(&mut tx, host, at(60), 9).await.unwrap();
        let slots: Vec<_> = claimable.iter().map(|it| it.scheduled_time).collect();
        assert_eq!(slots, expected, "host {number}");
        let class = |name: &str| WaitingClass {
            name: name.to_owned(),
            priority: 5,
            proposed: false,
        };
        let of_package = class(fixtures::PACKAGE);
        let open = launch::open_of_package(&mut tx, host, at(60), 9, &of_package).await;
        assert_eq!(open.unwrap().len(), expected.len(), "host {number}");
        let open = launch::open_of_group(&mut tx, host, at(60), 9, &class("db")).await;
        assert_eq!(open.unwrap().len(), in_group, "host {number}");
    }
    let row = launch::list(&mut tx, None, 9).await.unwrap();
    let kept = row.iter().find(|row| row.scheduled_time == at(30)).unwrap();
    assert_eq!(kept.run_on, Some(labels("eu,ssd")));
}

async fn a_retry_waits_for_a_host_with_its_labels(test: TestDb) {
    let mut tx = test.write().await;
    add_host(&mut tx, 1, "gpu").await;
    add_host(&mut tx, 2, "").await;
    add_schedule(&mut tx, 1, 10).await;
    let run = insert_and_claim(&mut tx, host_id(1), &[needs("gpu", 10)], at(10)).await[0];
    let waits = run.finish(RunEnd::Waiting { retry_at: at(20) }, at(12));
    launch::finish(&mut tx, &[waits]).await.unwrap();
    for (number, expected) in [(2, 0), (1, 1)] {
        let of = RetriesOf::AnyPackage;
        let due = launch::retries(&mut tx, of, host_id(number), at(30), 9).await;
        assert_eq!(due.unwrap().len(), expected, "host {number}");
    }
}

async fn an_open_launch_is_not_lost_while_only_hosts_without_its_labels_are_idle(test: TestDb) {
    let mut tx = test.write().await;
    add_host(&mut tx, 1, "gpu").await;
    add_host(&mut tx, 2, "").await;
    add_schedule(&mut tx, 1, 10).await;
    launch::insert(&mut tx, &[needs("gpu", 10)]).await.unwrap();
    for (number, expected) in [(2, 0), (1, 1)] {
        let lost = launch::orphaned_launches(&mut tx, host_id(number), at(500), 9).await;
        assert_eq!(lost.unwrap().len(), expected, "host {number}");
    }
}

async fn labels_that_no_live_host_has_are_named(test: TestDb) {
    let mut tx = test.write().await;
    add_host(&mut tx, 1, "eu,gpu").await;
    add_schedule(&mut tx, 1, 10).await;
    let all = [
        launch(1, 1),
        needs("gpu", 2),
        needs("eu,tpu", 3),
        needs("eu,tpu", 4),
    ];
    launch::insert(&mut tx, &all).await.unwrap();
    let missing =
        async |tx: &mut Tx, since, now| stats::missing_labels(tx, since, now, 9).await.unwrap();
    let tpu = (labels("eu,tpu"), 2, at(3));
    assert_eq!(
        missing(&mut tx, at(9), at(10)).await,
        std::slice::from_ref(&tpu)
    );
    assert_eq!(missing(&mut tx, at(3), at(10)).await, [], "not yet");
    // The only host is dead.
    let gpu = (labels("gpu"), 1, at(2));
    assert_eq!(missing(&mut tx, at(9), at(11)).await, [tpu, gpu]);
}

/// All schedules of the following tests are due.
fn now() -> Timestamp {
    at(10)
}

/// Start a host with a capacity of 64 runs.
async fn start(test: &TestDb, name: &str, change: impl FnOnce(&mut Settings)) -> Arc<Engine> {
    let mut settings = settings(64);
    change(&mut settings);
    let clock = Clock::simulated(now());
    let place = (name, "plugins");
    let (engine, lock, _) = serving::start_named(test, &clock, settings, NOOP, place).await;
    std::mem::forget(lock);
    engine
}

/// Start two hosts that know each other, in the order of their ids. SQLite has one.
async fn start_two(test: &TestDb, placement: Placement) -> [Arc<Engine>; 2] {
    let one = start(test, "one", |settings| settings.placement = placement).await;
    let two = match test.backend() {
        Backend::Postgres => start(test, "two", |settings| settings.placement = placement).await,
        Backend::Sqlite => Arc::clone(&one),
    };
    for engine in [&one, &two] {
        engine.look_at_hosts(now()).await.unwrap();
    }
    // Both ids have the same simulated time. Their order is random when another test makes an id of another time in between.
    let mut hosts = [one, two];
    hosts.sort_by_key(|engine| engine.host());
    hosts
}

/// Add schedules of every 10 seconds that are due at `now()`.
async fn add(test: &TestDb, count: u128, policies: &Policies) {
    add_each(test, count, |_| policies.clone()).await;
}

async fn add_each(test: &TestDb, count: u128, policies: impl Fn(u128) -> Policies) {
    let mut tx = test.write().await;
    for number in 1..=count {
        let definition = Revision {
            package: NOOP.0.to_owned(),
            policies: serde_json::to_string(&policies(number)).unwrap(),
            rule: RuleText {
                anchor: Some(at(0)),
                ..RuleText::new(RuleKind::Every, "10s", "UTC")
            },
            ..revision(number)
        };
        let added = insert_schedule(&mut tx, &definition, Origin::Operator, Some(now()));
        added.await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// A busy machine needs several transactions, as planning stops after 20 ms.
async fn claim_at_once(engine: &Engine, now: Timestamp) -> usize {
    let mut count = 0;
    loop {
        let (decided, work) = engine.decide_and_claim(now).await.unwrap();
        // The permits of the runs stay taken.
        count += work.len();
        std::mem::forget(work);
        if !decided.more {
            return count;
        }
    }
}

async fn statuses(test: &TestDb) -> Vec<LaunchStatus> {
    let rows = launch::list(&mut test.read().await, None, 99).await;
    rows.unwrap().iter().map(|row| row.status).collect()
}

async fn a_launch_decided_by_a_host_without_its_labels_is_opened(test: TestDb) {
    let engine = start(&test, "one", |settings| settings.labels = labels("eu,ssd")).await;
    let needs = |number| Policies {
        run_on: Some(labels(if number == 1 { "gpu" } else { "ssd" })),
        ..Policies::default()
    };
    add_each(&test, 2, needs).await;
    assert_eq!(claim_at_once(&engine, now()).await, 1);
    assert_eq!(engine.claim(now()).await.unwrap().len(), 0);
    let rows = launch::list(&mut test.read().await, None, 9).await;
    let mut rows: Vec<_> = rows
        .unwrap()
        .into_iter()
        .map(|row| (row.run_on.unwrap().to_string(), row.status))
        .collect();
    rows.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [("gpu", LaunchStatus::Open), ("ssd", LaunchStatus::Running)];
    assert_eq!(
        rows,
        expected.map(|(run_on, status)| (run_on.to_owned(), status))
    );
    // SQLite has one host.
    if test.backend() == Backend::Postgres {
        let gpu = start(&test, "two", |settings| settings.labels = labels("gpu")).await;
        assert_eq!(gpu.claim(now()).await.unwrap().len(), 1);
    }
}

/// Decide on the first host, and then on the second. SQLite has one host.
async fn decide_on_both(test: &TestDb, hosts: &[Arc<Engine>; 2], now: Timestamp) -> Vec<usize> {
    let mut counts = vec![claim_at_once(&hosts[0], now).await];
    if test.backend() == Backend::Postgres {
        counts.push(claim_at_once(&hosts[1], now).await);
    }
    counts
}

async fn slots_go_to_each_of_two_idle_hosts_in_equal_parts(test: TestDb) {
    let hosts = start_two(&test, Placement::Spread).await;
    add(&test, 10, &Policies::default()).await;
    let counts = decide_on_both(&test, &hosts, now()).await;
    match test.backend() {
        Backend::Postgres => assert_eq!(counts, [5, 5]),
        Backend::Sqlite => assert_eq!(counts, [10]),
    }
}

async fn slots_are_packed_on_one_host(test: TestDb) {
    let hosts = start_two(&test, Placement::Pack).await;
    add(&test, 10, &Policies::default()).await;
    // The second host leaves all to the older one.
    if test.backend() == Backend::Postgres {
        assert_eq!(claim_at_once(&hosts[1], now()).await, 0);
    }
    let counts = decide_on_both(&test, &hosts, now()).await;
    match test.backend() {
        Backend::Postgres => assert_eq!(counts, [10, 0]),
        Backend::Sqlite => assert_eq!(counts, [10]),
    }
}

async fn slots_that_the_other_host_does_not_take_are_not_left_for_long(test: TestDb) {
    let hosts = start_two(&test, Placement::Spread).await;
    add(&test, 10, &Policies::default()).await;
    let first = claim_at_once(&hosts[0], now().plus(Duration::from_millis(199))).await;
    let rest = claim_at_once(&hosts[0], now().plus(Duration::from_millis(200))).await;
    match test.backend() {
        Backend::Postgres => assert_eq!((first, rest), (5, 5)),
        Backend::Sqlite => assert_eq!((first, rest), (10, 0)),
    }
}

async fn a_host_whose_peer_has_stopped_takes_all(test: TestDb) {
    let [one, two] = start_two(&test, Placement::Spread).await;
    if test.backend() == Backend::Postgres {
        let mut tx = test.write().await;
        hosts::end(&mut tx, two.host(), now()).await.unwrap();
        tx.commit().await.unwrap();
    }
    one.look_at_hosts(now()).await.unwrap();
    add(&test, 10, &Policies::default()).await;
    assert_eq!(claim_at_once(&one, now()).await, 10);
    assert_eq!(statuses(&test).await, [LaunchStatus::Running; 10]);
}

async fn open_launches_go_to_the_host_with_fewer_runs(test: TestDb) {
    let [one, two] = start_two(&test, Placement::Spread).await;
    add(&test, 8, &Policies::default()).await;
    // All are decided by one host, which then has as many runs more.
    let late = now().plus(Duration::from_secs(1));
    let decided = claim_at_once(&one, late).await;
    assert_eq!(decided, 8);
    let mut tx = test.write().await;
    let waiting: Vec<NewLaunch> = (1..=6)
        .map(|number| NewLaunch {
            package: NOOP.0.to_owned(),
            digest: Some(campanile_model::ids::ArtifactDigest::of(NOOP.1)),
            ..launch(number, 11)
        })
        .collect();
    launch::insert(&mut tx, &waiting).await.unwrap();
    tx.commit().await.unwrap();
    let claimed = one.claim(at(11)).await.unwrap();
    match test.backend() {
        Backend::Postgres => {
            assert_eq!(claimed.len(), 0, "the other host has none");
            let by_two = two.claim(at(11)).await.unwrap();
            assert_eq!(by_two.len(), 6);
        }
        Backend::Sqlite => assert_eq!(claimed.len(), 6),
    }
}

async fn a_drained_host_leaves_slots_to_the_others(test: TestDb) {
    let [one, two] = start_two(&test, Placement::Pack).await;
    let mut tx = test.write().await;
    assert!(
        hosts::drain(&mut tx, one.host(), "ada", now())
            .await
            .unwrap()
    );
    tx.commit().await.unwrap();
    for engine in [&one, &two] {
        engine.follow_drain().await.unwrap();
        engine.look_at_hosts(now()).await.unwrap();
    }
    add(&test, 4, &Policies::default()).await;
    assert_eq!(claim_at_once(&one, now()).await, 0);
    match test.backend() {
        Backend::Postgres => {
            assert_eq!(statuses(&test).await, [], "left undecided");
            assert_eq!(claim_at_once(&two, now()).await, 4);
        }
        // No other host could have them.
        Backend::Sqlite => assert_eq!(statuses(&test).await, [LaunchStatus::Open; 4]),
    }
    let row = hosts::with_id(&mut test.read().await, one.host()).await;
    assert_eq!(row.unwrap().unwrap().claims_ended_at, Some(now()));
    assert_eq!(one.claim(now()).await.unwrap().len(), 0);
}
