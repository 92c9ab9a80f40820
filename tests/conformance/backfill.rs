//! Backfills of a host on a simulated clock, and the rows that they leave.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use campanile_control::admin::backfill::{self, BackfillPreview, BackfillRequest};
use campanile_control::admin::schedule_admin::{self, ScheduleDefinition, ScheduleError, Trigger};
use campanile_engine::Engine;
use campanile_engine::decide::backfill::UNFINISHED_MAX;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{BackfillId, LaunchId, LaunchKind};
use campanile_model::json_text::JsonObject;
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::backfills::{self, Backfill, LaunchTotals};
use campanile_store::launch::{self, LaunchRow};
use campanile_store::schedules::{self, Pause, Schedule};
use campanile_store::{BackfillStatus, Decision, HostLock, LaunchStatus, Origin, events};
use campanile_tests::{TestDb, on_both};
use futures_util::future::join_all;
use uuid::Uuid;

use crate::fixtures::at;
use crate::serving::{NOOP, settings, start};

mod cancel;
mod skipped;
mod undecided;

on_both!(
    a_backfill_includes_both_ends_of_its_range,
    backfill_launches_are_spread,
    succeeded_slots_are_skipped_unless_forced,
    slots_with_an_unfinished_launch_are_skipped_unless_forced,
    manual_launches_do_not_count_as_filled_slots,
    a_backfill_continues_after_a_restart_of_the_host,
    a_repeated_request_id_launches_nothing_twice,
    due_slots_are_launched_before_backfill_launches,
    a_paused_schedule_is_backfilled_within_the_window,
    concurrent_hosts_stay_within_the_window,
    a_removal_cancels_the_backfills_of_the_schedule,
    a_backfill_waits_for_a_missing_package,
    a_backfill_keeps_the_rule_of_its_request_after_an_edit,
    impossible_backfills_are_refused,
);

/// A host with the schedule `report`, which is due every minute and was created at `at(5)`.
struct System {
    test: TestDb,
    clock: Clock,
    host: Option<(Arc<Engine>, HostLock)>,
}

impl System {
    async fn new(test: TestDb, overlap: Overlap) -> System {
        let clock = Clock::simulated(at(5));
        let host = Some(start(&test, &clock, settings(8), NOOP).await);
        let system = System { test, clock, host };
        system
            .add("report", RuleKind::Cron, "* * * * *", overlap)
            .await;
        system
    }

    async fn add(&self, name: &str, kind: RuleKind, expression: &str, overlap: Overlap) {
        let wanted = ScheduleDefinition {
            name: name.to_owned(),
            package: "noop".to_owned(),
            task: None,
            rule: RuleText::new(kind, expression, "UTC"),
            policies: Policies {
                overlap,
                ..Policies::default()
            },
            args: None,
            context: JsonObject::new(),
            enabled: true,
        };
        let mut tx = self.test.write().await;
        schedule_admin::add(&mut tx, &wanted, Origin::Operator, self.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    fn engine(&self) -> &Engine {
        let (engine, _) = self.host.as_ref().expect("a host");
        engine
    }

    async fn preview(
        &self,
        request: &BackfillRequest<'_>,
    ) -> Result<BackfillPreview, ScheduleError> {
        let mut tx = self.test.read().await;
        backfill::preview(&mut tx, "report", request, self.clock.now()).await
    }

    async fn begin(&self, request: &BackfillRequest<'_>) -> BackfillPreview {
        let preview = self.preview(request).await.unwrap();
        let mut tx = self.test.write().await;
        backfill::begin(&mut tx, &preview, request, self.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        preview
    }

    async fn backfill_and_totals(&self, id: BackfillId) -> (Backfill, LaunchTotals) {
        let mut tx = self.test.read().await;
        let found = backfills::find(&mut tx, id).await.unwrap().unwrap();
        (found, backfills::launch_totals(&mut tx, id).await.unwrap())
    }

    async fn status(&self, id: BackfillId) -> BackfillStatus {
        self.backfill_and_totals(id).await.0.status
    }

    async fn schedule(&self) -> Schedule {
        let mut tx = self.test.read().await;
        schedule_admin::find(&mut tx, "report").await.unwrap()
    }

    /// Return the launches of backfills in slot order.
    async fn rows(&self) -> Vec<LaunchRow> {
        let mut tx = self.test.read().await;
        let mut rows = launch::list(&mut tx, None, 10_000).await.unwrap();
        rows.retain(|row| row.kind == LaunchKind::Backfill);
        rows.sort_by_key(|row| (row.scheduled_time, row.decided_at));
        rows
    }

    async fn events(&self) -> Vec<(String, String)> {
        let mut tx = self.test.read().await;
        let mut all = events::list(&mut tx, None, 1_000).await.unwrap();
        all.reverse();
        let all = all.into_iter().filter(|event| event.subject == "report");
        let all = all.map(|event| (event.kind.to_string(), event.detail));
        all.filter(|(kind, _)| kind.starts_with("backfill_"))
            .collect()
    }

    async fn pause(&self) {
        let pause = Pause {
            by: "ada",
            note: None,
            until: None,
        };
        let mut tx = self.test.write().await;
        schedule_admin::pause(&mut tx, "report", pause, self.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
    }

    /// Tick the host, one second later.
    async fn tick(&self) -> campanile_engine::Tick {
        let now = self.clock.now().plus(Duration::from_secs(1));
        self.clock.advance_to(now);
        self.engine().tick(now).await.unwrap()
    }

    /// Tick until the backfill has ended, at most `ticks` times.
    async fn tick_until_finished(&self, id: BackfillId, ticks: usize) {
        for _ in 0..ticks {
            if self.status(id).await != BackfillStatus::Running {
                return;
            }
            self.tick().await;
        }
        panic!(
            "not finished after {ticks} ticks: {:?}",
            self.backfill_and_totals(id).await
        );
    }
}

fn id(number: u128) -> BackfillId {
    BackfillId(Uuid::from_u128(0xBF00 + number))
}

/// Return the slot `minutes` minutes before `at(0)`.
fn ago(minutes: u64) -> Timestamp {
    at(0).minus(Duration::from_secs(60 * minutes))
}

fn request(number: u128, from: u64, to: u64) -> BackfillRequest<'static> {
    BackfillRequest {
        id: id(number),
        from: ago(from),
        to: ago(to),
        spread: Duration::ZERO,
        forced: false,
        context: None,
        by: "ada",
    }
}

fn slots(rows: &[LaunchRow]) -> Vec<Timestamp> {
    rows.iter().map(|row| row.scheduled_time).collect()
}

fn all_succeeded(rows: &[LaunchRow]) -> bool {
    rows.iter().all(|row| row.status == LaunchStatus::Succeeded)
}

async fn a_backfill_includes_both_ends_of_its_range(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    let before = system.schedule().await.state;
    let preview = system.begin(&request(1, 5, 3)).await;
    let survey = &preview.survey;
    assert_eq!((survey.slots, survey.slots_skipped), (3, 0));
    assert_eq!((survey.first, survey.last), (ago(5), ago(3)));
    system.tick_until_finished(id(1), 10).await;

    let rows = system.rows().await;
    assert_eq!(slots(&rows), [ago(5), ago(4), ago(3)]);
    assert!(all_succeeded(&rows), "{rows:#?}");
    for row in &rows {
        let id = LaunchId::of_backfill(before.id, row.scheduled_time, id(1));
        assert_eq!((row.id, row.attempts), (id, 1));
    }
    // Each interval starts at the slot before: the second at the first slot, the third at the second slot.
    let sql =
        "SELECT CAST(count(*) AS TEXT) FROM launch a JOIN launch b ON a.interval_start = b.scheduled_time
        WHERE a.kind = 'backfill' AND b.kind = 'backfill' AND a.scheduled_time > b.scheduled_time";
    assert_eq!(system.test.value(sql).await, "2");
    let (backfill, totals) = system.backfill_and_totals(id(1)).await;
    let counts = (backfill.slots, backfill.launched, backfill.slots_skipped);
    assert_eq!((backfill.status, counts), (BackfillStatus::Done, (3, 3, 0)));
    assert_eq!(backfill.cursor_at, ago(3));
    let succeeded = LaunchTotals {
        succeeded: 3,
        ..LaunchTotals::default()
    };
    assert_eq!(totals, succeeded);
    // The state of the schedule is unchanged.
    let after = system.schedule().await.state;
    assert_eq!(after, before);
    let started = format!("{} by ada: 3 slots from {} to {}", id(1), ago(5), ago(3));
    let done = format!(
        "{}: 3 succeeded, 0 failed, 0 cancelled, 0 left alone",
        id(1)
    );
    assert_eq!(
        system.events().await,
        [
            ("backfill_started".to_owned(), started),
            ("backfill_done".to_owned(), done),
        ]
    );
}

async fn backfill_launches_are_spread(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    let spread = BackfillRequest {
        spread: Duration::from_secs(10),
        ..request(1, 3, 1)
    };
    system.begin(&spread).await;
    system.tick_until_finished(id(1), 30).await;
    let rows = system.rows().await;
    assert!(rows.len() == 3 && all_succeeded(&rows), "{rows:#?}");
    let first = rows[0].fire_time;
    for (row, seconds) in rows.iter().zip([0, 10, 20]) {
        let due = first.plus(Duration::from_secs(seconds));
        assert_eq!((row.fire_time, row.started_at), (due, Some(due)));
    }
}

async fn succeeded_slots_are_skipped_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&request(1, 5, 3)).await;
    system.tick_until_finished(id(1), 10).await;
    let preview = system.begin(&request(2, 6, 1)).await;
    assert_eq!((preview.survey.slots, preview.survey.slots_skipped), (6, 3));
    system.tick_until_finished(id(2), 10).await;
    let (second, totals) = system.backfill_and_totals(id(2)).await;
    assert_eq!((second.launched, second.slots_skipped), (3, 3));
    assert_eq!(totals.succeeded, 3);
    let each_once: Vec<Timestamp> = (1..=6).rev().map(ago).collect();
    assert_eq!(slots(&system.rows().await), each_once);

    // A failed slot is launched again. The other slots have succeeded.
    let failed = LaunchId::of_backfill(system.schedule().await.state.id, ago(4), id(1));
    let failed = format!(
        "UPDATE launch SET status = 'failed' WHERE id = {}",
        system.test.backend().id(failed.0)
    );
    system.test.execute(&failed).await;
    let preview = system.begin(&request(3, 6, 1)).await;
    assert_eq!(preview.survey.slots_skipped, 5);
    system.tick_until_finished(id(3), 10).await;
    assert_eq!(system.backfill_and_totals(id(3)).await.0.launched, 1);

    let forced = BackfillRequest {
        forced: true,
        ..request(4, 6, 1)
    };
    let preview = system.begin(&forced).await;
    assert_eq!((preview.survey.slots, preview.survey.slots_skipped), (6, 0));
    system.tick_until_finished(id(4), 10).await;
    let (fourth, totals) = system.backfill_and_totals(id(4)).await;
    assert_eq!((fourth.launched, fourth.slots_skipped), (6, 0));
    assert_eq!(totals.succeeded, 6);
}

async fn slots_with_an_unfinished_launch_are_skipped_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    // The schedule's own launch of the slot is open.
    let slot = at(60);
    system.clock.advance_to(slot);
    assert_eq!(system.engine().decide(slot).await.unwrap().decisions, 1);
    for (number, forced, launched, slots_skipped) in [(1, false, 0, 1), (2, true, 1, 0)] {
        let one_slot = BackfillRequest {
            from: slot,
            to: slot,
            forced,
            ..request(number, 0, 0)
        };
        let preview = system.begin(&one_slot).await;
        assert_eq!(
            (preview.survey.slots, preview.survey.slots_skipped),
            (1, slots_skipped as u64)
        );
        system.engine().run_backfills(slot).await.unwrap();
        let (backfill, _) = system.backfill_and_totals(one_slot.id).await;
        assert_eq!(
            (backfill.launched, backfill.slots_skipped),
            (launched, slots_skipped)
        );
    }
}

async fn manual_launches_do_not_count_as_filled_slots(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.pause().await;
    let manual_slot = at(60);
    system.clock.advance_to(manual_slot);
    let mut tx = system.test.write().await;
    schedule_admin::trigger(&mut tx, "report", Trigger::default(), manual_slot)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(system.engine().tick(manual_slot).await.unwrap().finished, 1);
    let mut tx = system.test.write().await;
    schedule_admin::resume(&mut tx, "report", "ada", false, manual_slot)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let on_time_slot = at(120);
    system.clock.advance_to(on_time_slot);
    assert_eq!(
        system.engine().tick(on_time_slot).await.unwrap().finished,
        1
    );
    // At the first slot a manual launch has succeeded, at the second slot the launch of the schedule.
    for (slot, slots_skipped) in [(manual_slot, 0), (on_time_slot, 1)] {
        let one_slot = BackfillRequest {
            from: slot,
            to: slot,
            ..request(1, 0, 0)
        };
        let preview = system.preview(&one_slot).await.unwrap();
        let survey = &preview.survey;
        assert_eq!((survey.slots, survey.slots_skipped), (1, slots_skipped));
    }
}

async fn a_backfill_continues_after_a_restart_of_the_host(test: TestDb) {
    let mut system = System::new(test, Overlap::Allow).await;
    system.begin(&request(1, 150, 1)).await;
    let step = system
        .engine()
        .run_backfills(system.clock.now())
        .await
        .unwrap();
    assert_eq!(step.launched, 100);
    system.tick().await;
    let (before, _) = system.backfill_and_totals(id(1)).await;
    assert!(before.launched < 150, "{before:?}");
    // The host dies and is started again.
    drop(system.host.take());
    system.host = Some(start(&system.test, &system.clock, settings(8), NOOP).await);
    system.tick_until_finished(id(1), 100).await;
    let rows = system.rows().await;
    assert!(all_succeeded(&rows));
    let every_minute: Vec<Timestamp> = (1..=150).rev().map(ago).collect();
    assert_eq!(slots(&rows), every_minute);
}

async fn a_repeated_request_id_launches_nothing_twice(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    let request = request(1, 5, 1);
    let preview = system.begin(&request).await;
    for is_finished in [false, true] {
        if is_finished {
            system.tick_until_finished(id(1), 10).await;
        }
        let mut tx = system.test.write().await;
        let earlier = backfill::find_earlier(&mut tx, "report", &request).await;
        assert_eq!(earlier.unwrap().map(|earlier| earlier.id), Some(id(1)));
        let other = BackfillRequest {
            from: ago(6),
            ..request
        };
        let refused = backfill::find_earlier(&mut tx, "report", &other).await;
        let refused = refused.unwrap_err().to_string();
        let difference = format!("--from {} instead of {}", ago(5), ago(6));
        assert!(refused.contains(&difference), "{refused}");
        // Concurrent requests with one id: the primary key refuses the second.
        let again = backfill::begin(&mut tx, &preview, &request, system.clock.now()).await;
        assert!(matches!(again, Err(ScheduleError::Db(_))), "{again:?}");
    }
    assert_eq!(system.rows().await.len(), 5);
}

async fn due_slots_are_launched_before_backfill_launches(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    system.begin(&request(1, 200, 1)).await;
    for _ in 0..203 {
        let tick = system.tick().await;
        assert!(tick.claimed <= 1, "one run at a time: {tick:?}");
    }
    system.tick_until_finished(id(1), 3).await;
    let rows = system.rows().await;
    assert!(rows.len() == 200 && all_succeeded(&rows));
    let started: Vec<_> = rows.iter().map(|row| row.started_at).collect();
    assert!(started.is_sorted(), "launches start in slot order");
    let mut tx = system.test.read().await;
    let all = launch::list_of(&mut tx, "report", None, 1_000)
        .await
        .unwrap();
    let own: Vec<_> = all
        .iter()
        .filter(|row| row.kind == LaunchKind::Schedule)
        .collect();
    assert_eq!(own.len(), 3, "{own:#?}");
    for row in own {
        let found = (row.status, row.started_at);
        let expected = (LaunchStatus::Succeeded, Some(row.scheduled_time));
        assert_eq!(found, expected, "{row:?}");
    }
    // Only the schedule's own launches count towards `max_launches`.
    assert_eq!(system.schedule().await.state.history.launches, 3);
}

async fn a_paused_schedule_is_backfilled_within_the_window(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.pause().await;
    system.begin(&request(1, 250, 1)).await;
    let mut unfinished_most = 0;
    for _ in 0..100 {
        system
            .engine()
            .run_backfills(system.clock.now())
            .await
            .unwrap();
        let (backfill, totals) = system.backfill_and_totals(id(1)).await;
        assert!(totals.unfinished <= UNFINISHED_MAX, "{backfill:?}");
        unfinished_most = unfinished_most.max(totals.unfinished);
        if backfill.status == BackfillStatus::Done {
            break;
        }
        system.tick().await;
    }
    assert_eq!(unfinished_most, UNFINISHED_MAX);
    let (backfill, totals) = system.backfill_and_totals(id(1)).await;
    assert_eq!(
        (backfill.status, backfill.launched),
        (BackfillStatus::Done, 250)
    );
    assert_eq!(totals.succeeded, 250);
    let rows = system.rows().await;
    let distinct: BTreeSet<Timestamp> = slots(&rows).into_iter().collect();
    assert_eq!((rows.len(), distinct.len()), (250, 250));
    assert!(!system.schedule().await.state.enabled);
}

async fn concurrent_hosts_stay_within_the_window(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&request(1, 250, 1)).await;
    let now = system.clock.now();
    let steps = join_all((0..4).map(|_| system.engine().run_backfills(now))).await;
    let launched: usize = steps.into_iter().map(|step| step.unwrap().launched).sum();
    let (backfill, totals) = system.backfill_and_totals(id(1)).await;
    assert_eq!((launched, backfill.launched), (100, 100));
    assert_eq!(totals.unfinished, 100);
}

async fn a_removal_cancels_the_backfills_of_the_schedule(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    system.begin(&request(1, 5, 1)).await;
    system.tick().await;
    let mut tx = system.test.write().await;
    schedule_admin::remove(&mut tx, "report", system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for _ in 0..3 {
        assert_eq!(system.tick().await.claimed, 0);
    }
    let (backfill, totals) = system.backfill_and_totals(id(1)).await;
    assert_eq!(backfill.status, BackfillStatus::Cancelled);
    assert!(backfill.finished_at.is_some());
    assert_eq!(
        (totals.succeeded, totals.cancelled, totals.unfinished),
        (1, 4, 0)
    );
    let (kind, detail) = system.events().await.pop().unwrap();
    assert_eq!(kind, "backfill_cancelled");
    assert_eq!(detail, format!("{}, as its schedule was removed", id(1)));
}

async fn a_backfill_waits_for_a_missing_package(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system
        .test
        .execute("UPDATE package SET missing_since = loaded_at")
        .await;
    system.begin(&request(1, 3, 1)).await;
    for _ in 0..3 {
        assert_eq!(system.tick().await.backfill_launches, 0);
    }
    assert_eq!(system.status(id(1)).await, BackfillStatus::Running);
    system
        .test
        .execute("UPDATE package SET missing_since = NULL")
        .await;
    system.tick_until_finished(id(1), 5).await;
    assert!(all_succeeded(&system.rows().await));
    assert_eq!(system.rows().await.len(), 3);
}

async fn a_backfill_keeps_the_rule_of_its_request_after_an_edit(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&request(1, 5, 1)).await;
    let schedule = system.schedule().await;
    let mut definition = schedule.definition;
    definition.revision = 2;
    definition.rule.expression = "0 * * * *".to_owned();
    definition.since = system.clock.now();
    let (cursor, next) = (definition.since, Some(at(3_600)));
    let mut tx = system.test.write().await;
    let revised = schedules::revise(&mut tx, &definition, true, Origin::Operator, cursor, next);
    assert!(revised.await.unwrap());
    tx.commit().await.unwrap();
    system.tick_until_finished(id(1), 5).await;
    assert_eq!(system.rows().await.len(), 5);
    let sql = "SELECT DISTINCT CAST(schedule_revision AS TEXT) FROM launch";
    assert_eq!(system.test.value(sql).await, "1");
    // A new request uses the edited rule.
    let preview = system.preview(&request(2, 119, 0)).await.unwrap();
    assert_eq!(preview.survey.slots, 2);
}

async fn impossible_backfills_are_refused(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    let refused = async |request: &BackfillRequest<'_>| {
        system.preview(request).await.unwrap_err().to_string()
    };
    let message = refused(&request(1, 1, 2)).await;
    assert!(message.contains("would end before it begins"), "{message}");
    let future = BackfillRequest {
        from: at(60),
        to: at(120),
        ..request(1, 0, 0)
    };
    let message = refused(&future).await;
    assert!(message.contains("is in the future"), "{message}");
    let without_slot = BackfillRequest {
        from: ago(2).plus(Duration::from_secs(1)),
        to: ago(1).minus(Duration::from_secs(1)),
        ..request(1, 0, 0)
    };
    let message = refused(&without_slot).await;
    let next = format!("the next one after that is {}", ago(1));
    assert!(message.ends_with(&next), "{message}");
    let reserved = JsonObject::from([("attempt".to_owned(), serde_json::json!(1).into())]);
    let reserved = BackfillRequest {
        context: Some(&reserved),
        ..request(1, 2, 1)
    };
    let message = refused(&reserved).await;
    assert!(message.contains("attempt"), "{message}");
    let too_long = BackfillRequest {
        from: Timestamp::EPOCH,
        ..request(1, 0, 0)
    };
    let message = refused(&too_long).await;
    assert!(message.contains("more than 1000000 slots"), "{message}");
    system
        .add("chain", RuleKind::AfterCompletion, "10m", Overlap::Skip)
        .await;
    system
        .add("start", RuleKind::Cron, "@reboot", Overlap::Skip)
        .await;
    for name in ["chain", "start"] {
        let mut tx = system.test.read().await;
        let message = backfill::preview(&mut tx, name, &request(1, 5, 1), at(5)).await;
        let is_refused = matches!(
            &message,
            Err(ScheduleError::Backfill(why)) if why.contains("not by the clock")
        );
        assert!(is_refused, "{message:?}");
    }
    // The schedule itself decides its future slots, also those within the requested range.
    let into_the_future = BackfillRequest {
        to: at(600),
        ..request(1, 1, 0)
    };
    let preview = system.preview(&into_the_future).await.unwrap();
    assert_eq!((preview.survey.slots, preview.survey.last), (2, at(0)));
}
