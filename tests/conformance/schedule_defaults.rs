//! The policies that the configuration of the hosts gives to schedules which do not set them.

use std::sync::Arc;

use campanile_control::admin::schedule_admin::{self, ScheduleDefinition};
use campanile_control::schedules::definition;
use campanile_control::settings::Settings;
use campanile_engine::Engine;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::json_text::JsonObject;
use campanile_schedule::policy::{Catchup, Delivery, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::events::{self, EventKind};
use campanile_store::schedules::{self, Schedule};
use campanile_store::{HostLock, LaunchStatus, Origin, launch};
use campanile_tests::{TestDb, on_both};

use crate::serving::{GUESTS, settings, start_named};

on_both!(
    a_start_gives_another_revision_to_schedules_that_do_not_set_the_policy,
    a_decision_does_not_depend_on_the_host_that_makes_it,
    a_launch_keeps_the_delivery_with_which_it_was_decided,
);

/// Return the defaults of a configuration that sets none.
fn nothing() -> Policies {
    Policies::default()
}

fn catchup_none() -> Policies {
    Policies {
        catchup: Some(Catchup::None),
        ..nothing()
    }
}

fn clock_time(text: &str) -> Timestamp {
    format!("2026-05-04T{text}Z").parse().unwrap()
}

fn with(defaults: Policies) -> Settings {
    Settings {
        schedule_defaults: defaults,
        ..settings(8)
    }
}

async fn start(
    test: &TestDb,
    clock: &Clock,
    defaults: Policies,
    name: &str,
) -> (Arc<Engine>, HostLock) {
    let names = (name, name);
    let (engine, lock, _) = start_named(test, clock, with(defaults), GUESTS, names).await;
    (engine, lock)
}

/// Add an hourly schedule with these policies.
async fn add(test: &TestDb, name: &str, policies: Policies, now: Timestamp) {
    let wanted = ScheduleDefinition {
        name: name.to_owned(),
        package: "guests".to_owned(),
        task: Some("ok".to_owned()),
        rule: RuleText::new(RuleKind::Cron, "0 * * * *", "UTC"),
        policies,
        args: None,
        context: JsonObject::new(),
        enabled: true,
    };
    let mut tx = test.write().await;
    let added = schedule_admin::add(&mut tx, &wanted, Origin::Operator, now).await;
    added.unwrap();
    tx.commit().await.unwrap();
}

async fn find(test: &TestDb, name: &str) -> Schedule {
    let mut tx = test.read().await;
    schedules::find(&mut tx, name).await.unwrap().unwrap()
}

/// Return the revision of a schedule and the word of `catchup` that applies.
async fn catchup(test: &TestDb, name: &str) -> (i64, Catchup) {
    let schedule = find(test, name).await;
    let policies = definition::policies(&schedule.definition).unwrap();
    (schedule.state.revision, policies.catchup())
}

async fn a_start_gives_another_revision_to_schedules_that_do_not_set_the_policy(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (engine, lock) = start(&test, &clock, nothing(), "host-1").await;
    let says_latest = Policies {
        catchup: Some(Catchup::Latest),
        ..nothing()
    };
    add(&test, "silent", nothing(), clock.now()).await;
    add(&test, "latest", says_latest, clock.now()).await;
    let before = find(&test, "silent").await;
    drop((engine, lock));

    clock.advance_to(clock_time("10:31:00"));
    let (engine, lock) = start(&test, &clock, catchup_none(), "host-1").await;
    assert_eq!(catchup(&test, "silent").await, (2, Catchup::None));
    assert_eq!(catchup(&test, "latest").await, (1, Catchup::Latest));
    let after = find(&test, "silent").await;
    assert_eq!(after.state.cursor_at, before.state.cursor_at);
    assert_eq!(after.state.next_slot, before.state.next_slot);
    assert_eq!(after.definition.policies, "{}");
    assert_eq!(after.definition.since, clock_time("10:31:00"));
    let events = events::list(&mut test.read().await, None, 20)
        .await
        .unwrap();
    let is_change = |kind| kind == EventKind::DefaultsChanged;
    let change = events.iter().find(|event| is_change(event.kind)).unwrap();
    assert_eq!(
        (change.subject.as_str(), change.detail.as_str()),
        (
            "host-1",
            "catchup is none, delivery is at_least_once; schedules with another revision: 1"
        )
    );
    // A definition that is written from now on has them, also by a command that does not know the configuration.
    add(&test, "new", nothing(), clock.now()).await;
    assert_eq!(catchup(&test, "new").await, (1, Catchup::None));
    let mut tx = test.write().await;
    let set = |wanted: &mut ScheduleDefinition| wanted.policies.catchup = Some(Catchup::All);
    let edited = schedule_admin::edit(&mut tx, "new", None, set, clock.now()).await;
    assert_eq!(edited.unwrap(), 2);
    let clear = |wanted: &mut ScheduleDefinition| wanted.policies.catchup = None;
    let edited = schedule_admin::edit(&mut tx, "new", None, clear, clock.now()).await;
    assert_eq!(edited.unwrap(), 3);
    tx.commit().await.unwrap();
    assert_eq!(catchup(&test, "new").await, (3, Catchup::None));
    drop((engine, lock));

    // Another start with the same configuration changes no schedule.
    let unchanged = schedules_of(&test).await;
    drop(start(&test, &clock, catchup_none(), "host-1").await);
    assert_eq!(schedules_of(&test).await, unchanged);
    drop(start(&test, &clock, nothing(), "host-1").await);
    assert_eq!(catchup(&test, "silent").await, (3, Catchup::Latest));
}

async fn schedules_of(test: &TestDb) -> Vec<Schedule> {
    let mut tx = test.read().await;
    schedules::all(&mut tx).await.unwrap()
}

/// The slots of 11:00 to 13:00 were missed. Both hosts drop them, whatever their own configuration says.
async fn a_decision_does_not_depend_on_the_host_that_makes_it(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let (first, lock) = start(&test, &clock, nothing(), "host-1").await;
    // SQLite has one host at a time.
    drop(lock);
    let (_second, _lock) = start(&test, &clock, catchup_none(), "host-2").await;
    add(&test, "silent", nothing(), clock.now()).await;
    assert_eq!(catchup(&test, "silent").await, (1, Catchup::None));
    clock.advance_to(clock_time("13:30:00"));
    first.renew(clock.now()).await.unwrap();
    first.decide(clock.now()).await.unwrap();
    let mut tx = test.read().await;
    let rows = launch::list(&mut tx, None, 10).await.unwrap();
    let reasons: Vec<_> = rows.iter().map(|row| row.reason.as_deref()).collect();
    assert_eq!(reasons, [Some("catchup_none")], "{rows:#?}");
    assert_eq!(rows[0].slot_count, 3);
    drop(tx);
    let mut tx = test.read().await;
    let why = campanile_control::reports::why::why(&mut tx, "silent", None, clock.now()).await;
    let findings = why.unwrap().findings;
    let texts = findings.iter().map(|finding| finding.text.as_str());
    let texts: Vec<&str> = texts.collect();
    let expected = "skipped, since `catchup` is `none` by the configuration of the hosts";
    assert!(
        texts.iter().any(|text| text.ends_with(expected)),
        "{texts:#?}"
    );
}

async fn a_launch_keeps_the_delivery_with_which_it_was_decided(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let at_most_once = Policies {
        delivery: Some(Delivery::AtMostOnce),
        ..nothing()
    };
    let (engine, lock) = start(&test, &clock, at_most_once, "host-1").await;
    add(&test, "silent", nothing(), clock.now()).await;
    clock.advance_to(clock_time("11:00:00"));
    engine.renew(clock.now()).await.unwrap();
    engine.decide(clock.now()).await.unwrap();
    assert_eq!(engine.claim(clock.now()).await.unwrap().len(), 1);
    drop((engine, lock));
    // The host restarts with another configuration. The lost run may have done its work.
    clock.advance_to(clock_time("11:05:00"));
    let (engine, _lock) = start(&test, &clock, nothing(), "host-1").await;
    let recovered = engine.recover(clock.now()).await.unwrap();
    assert_eq!((recovered.reopened, recovered.ended), (0, 1));
    let mut tx = test.read().await;
    let rows = launch::list(&mut tx, None, 10).await.unwrap();
    assert_eq!(rows[0].status, LaunchStatus::Unknown);
}
