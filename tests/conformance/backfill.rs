//! Backfills: a host fills back on a simulated clock, and what is on the record afterwards.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use campanile_engine::Engine;
use campanile_engine::backfill::{
    self, BackfillError, BackfillPreview, BackfillRequest, UNFINISHED_MAX,
};
use campanile_engine::schedule_admin::{self, ScheduleDefinition, ScheduleError, Trigger};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{BackfillId, LaunchId, LaunchKind};
use campanile_schedule::policy::{Overlap, Policies};
use campanile_schedule::rule::{RuleKind, RuleText};
use campanile_store::backfills::{self, Backfill, LaunchTotals};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::schedules::{self, Pause, Schedule};
use campanile_store::{BackfillStatus, Decision, HostLock, LaunchStatus, Origin, events};
use campanile_tests::{Backend, TestDb, on_both};
use futures_util::future::join_all;
use serde_json::Map;
use uuid::Uuid;

use crate::fixtures::at;
use crate::serving::{NOOP, settings, start};

mod cancel;
mod skipped;
mod undecided;

on_both!(
    both_ends_are_included_and_each_launch_stands_for_the_time_since_the_slot_before,
    launches_keep_their_distance,
    what_has_succeeded_is_left_alone_unless_forced,
    what_is_under_way_is_left_alone_unless_forced,
    launches_by_hand_fill_nothing_back,
    a_backfill_goes_on_where_a_host_left_off,
    the_same_id_launches_nothing_twice,
    slots_that_come_meanwhile_go_first,
    many_slots_go_through_a_window_and_a_paused_schedule_fills_back_too,
    hosts_that_look_at_once_do_not_launch_past_the_window,
    a_removed_schedule_ends_its_backfills,
    a_missing_package_is_waited_for,
    an_edited_schedule_fills_back_by_the_rule_of_the_request,
    what_cannot_be_filled_back_is_refused,
);

/// A host with the schedule `bell` of every minute, created at `at(5)`.
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
            .add("bell", RuleKind::Cron, "* * * * *", overlap)
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
            context: Map::new(),
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

    async fn preview(&self, asked: &BackfillRequest<'_>) -> Result<BackfillPreview, ScheduleError> {
        let mut tx = self.test.read().await;
        backfill::preview(&mut tx, "bell", asked, self.clock.now()).await
    }

    async fn begin(&self, asked: &BackfillRequest<'_>) -> BackfillPreview {
        let preview = self.preview(asked).await.unwrap();
        let mut tx = self.test.write().await;
        backfill::begin(&mut tx, &preview, asked, self.clock.now())
            .await
            .unwrap();
        tx.commit().await.unwrap();
        preview
    }

    async fn seen(&self, id: BackfillId) -> (Backfill, LaunchTotals) {
        let mut tx = self.test.read().await;
        let found = backfills::find(&mut tx, id).await.unwrap().unwrap();
        (found, backfills::launch_totals(&mut tx, id).await.unwrap())
    }

    async fn status(&self, id: BackfillId) -> BackfillStatus {
        self.seen(id).await.0.status
    }

    async fn schedule(&self) -> Schedule {
        let mut tx = self.test.read().await;
        schedule_admin::find(&mut tx, "bell").await.unwrap()
    }

    /// The launches of backfills, by slot.
    async fn rows(&self) -> Vec<LaunchRow> {
        let mut tx = self.test.read().await;
        let mut rows = launches::list(&mut tx, None, 10_000).await.unwrap();
        rows.retain(|row| row.kind == LaunchKind::Backfill);
        rows.sort_by_key(|row| (row.scheduled_time, row.claimed_at));
        rows
    }

    async fn events(&self) -> Vec<(String, String)> {
        let mut tx = self.test.read().await;
        let mut all = events::list(&mut tx, 1_000).await.unwrap();
        all.reverse();
        let all = all.into_iter().filter(|event| event.subject == "bell");
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
        schedule_admin::pause(&mut tx, "bell", pause, self.clock.now())
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
    async fn until_over(&self, id: BackfillId, ticks: usize) {
        for _ in 0..ticks {
            if self.status(id).await != BackfillStatus::Running {
                return;
            }
            self.tick().await;
        }
        panic!("not over after {ticks} ticks: {:?}", self.seen(id).await);
    }
}

fn id(number: u128) -> BackfillId {
    BackfillId(Uuid::from_u128(0xBF00 + number))
}

/// So many minutes before `at(0)`, which is a slot.
fn ago(minutes: u64) -> Timestamp {
    at(0).minus(Duration::from_secs(60 * minutes))
}

fn asked(number: u128, from: u64, to: u64) -> BackfillRequest<'static> {
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

async fn both_ends_are_included_and_each_launch_stands_for_the_time_since_the_slot_before(
    test: TestDb,
) {
    let system = System::new(test, Overlap::Skip).await;
    let before = system.schedule().await.state;
    let preview = system.begin(&asked(1, 5, 3)).await;
    assert_eq!((preview.slots, preview.slots_skipped), (3, 0));
    assert_eq!((preview.first, preview.last), (ago(5), ago(3)));
    system.until_over(id(1), 10).await;

    let rows = system.rows().await;
    assert_eq!(slots(&rows), [ago(5), ago(4), ago(3)]);
    assert!(all_succeeded(&rows), "{rows:#?}");
    for row in &rows {
        let id = LaunchId::of_backfill(before.id, row.scheduled_time, id(1));
        assert_eq!((row.id, row.attempts), (id, 1));
    }
    // Half open, from the slot before: the second begins where the first ends, the third where the second does.
    let sql =
        "SELECT CAST(count(*) AS TEXT) FROM launch a JOIN launch b ON a.interval_start = b.scheduled_time
        WHERE a.kind = 'backfill' AND b.kind = 'backfill' AND a.scheduled_time > b.scheduled_time";
    assert_eq!(system.test.value(sql).await, "2");
    let (backfill, ends) = system.seen(id(1)).await;
    let counts = (backfill.slots, backfill.launched, backfill.slots_skipped);
    assert_eq!((backfill.status, counts), (BackfillStatus::Done, (3, 3, 0)));
    assert_eq!(backfill.cursor_at, ago(3));
    let succeeded = LaunchTotals {
        succeeded: 3,
        ..LaunchTotals::default()
    };
    assert_eq!(ends, succeeded);
    // The schedule stands where it stood.
    let after = system.schedule().await.state;
    assert_eq!(after, before);
    let begun = format!("{} by ada: 3 slots from {} to {}", id(1), ago(5), ago(3));
    let done = format!(
        "{}: 3 succeeded, 0 failed, 0 cancelled, 0 left alone",
        id(1)
    );
    assert_eq!(
        system.events().await,
        [
            ("backfill_started".to_owned(), begun),
            ("backfill_done".to_owned(), done),
        ]
    );
}

async fn launches_keep_their_distance(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    let spread = BackfillRequest {
        spread: Duration::from_secs(10),
        ..asked(1, 3, 1)
    };
    system.begin(&spread).await;
    system.until_over(id(1), 30).await;
    let rows = system.rows().await;
    assert!(rows.len() == 3 && all_succeeded(&rows), "{rows:#?}");
    let first = rows[0].fire_time;
    for (row, seconds) in rows.iter().zip([0, 10, 20]) {
        let due = first.plus(Duration::from_secs(seconds));
        assert_eq!((row.fire_time, row.started_at), (due, Some(due)));
    }
}

async fn what_has_succeeded_is_left_alone_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&asked(1, 5, 3)).await;
    system.until_over(id(1), 10).await;
    let preview = system.begin(&asked(2, 6, 1)).await;
    assert_eq!((preview.slots, preview.slots_skipped), (6, 3));
    system.until_over(id(2), 10).await;
    let (second, ends) = system.seen(id(2)).await;
    assert_eq!((second.launched, second.slots_skipped), (3, 3));
    assert_eq!(ends.succeeded, 3);
    let each_once: Vec<Timestamp> = (1..=6).rev().map(ago).collect();
    assert_eq!(slots(&system.rows().await), each_once);

    // A failed slot is launched again. A launch of the schedule itself may have succeeded too.
    let failed = LaunchId::of_backfill(system.schedule().await.state.id, ago(4), id(1));
    let failed = format!(
        "UPDATE launch SET status = 'failed' WHERE id = {}",
        match system.test.backend() {
            Backend::Sqlite => format!("x'{}'", failed.0.simple()),
            Backend::Postgres => format!("'{failed}'"),
        }
    );
    system.test.execute(&failed).await;
    let preview = system.begin(&asked(3, 6, 1)).await;
    assert_eq!(preview.slots_skipped, 5);
    system.until_over(id(3), 10).await;
    assert_eq!(system.seen(id(3)).await.0.launched, 1);

    let forced = BackfillRequest {
        forced: true,
        ..asked(4, 6, 1)
    };
    let preview = system.begin(&forced).await;
    assert_eq!((preview.slots, preview.slots_skipped), (6, 0));
    system.until_over(id(4), 10).await;
    let (fourth, ends) = system.seen(id(4)).await;
    assert_eq!((fourth.launched, fourth.slots_skipped), (6, 0));
    assert_eq!(ends.succeeded, 6);
}

async fn what_is_under_way_is_left_alone_unless_forced(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    // The schedule's own launch of the slot is open.
    let slot = at(60);
    system.clock.advance_to(slot);
    assert_eq!(system.engine().decide(slot).await.unwrap().decisions, 1);
    for (number, forced, launched, slots_skipped) in [(1, false, 0, 1), (2, true, 1, 0)] {
        let here = BackfillRequest {
            from: slot,
            to: slot,
            forced,
            ..asked(number, 0, 0)
        };
        let preview = system.begin(&here).await;
        assert_eq!(
            (preview.slots, preview.slots_skipped),
            (1, slots_skipped as u64)
        );
        system.engine().run_backfills(slot).await.unwrap();
        let (backfill, _) = system.seen(here.id).await;
        assert_eq!(
            (backfill.launched, backfill.slots_skipped),
            (launched, slots_skipped)
        );
    }
}

async fn launches_by_hand_fill_nothing_back(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.pause().await;
    let by_hand = at(60);
    system.clock.advance_to(by_hand);
    let mut tx = system.test.write().await;
    schedule_admin::trigger(&mut tx, "bell", Trigger::default(), by_hand)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    assert_eq!(system.engine().tick(by_hand).await.unwrap().finished, 1);
    let mut tx = system.test.write().await;
    schedule_admin::resume(&mut tx, "bell", "ada", false, by_hand)
        .await
        .unwrap();
    tx.commit().await.unwrap();
    let in_time = at(120);
    system.clock.advance_to(in_time);
    assert_eq!(system.engine().tick(in_time).await.unwrap().finished, 1);
    // At the first slot a manual launch has succeeded, at the second slot the launch of the schedule.
    for (slot, slots_skipped) in [(by_hand, 0), (in_time, 1)] {
        let here = BackfillRequest {
            from: slot,
            to: slot,
            ..asked(1, 0, 0)
        };
        let preview = system.preview(&here).await.unwrap();
        assert_eq!((preview.slots, preview.slots_skipped), (1, slots_skipped));
    }
}

async fn a_backfill_goes_on_where_a_host_left_off(test: TestDb) {
    let mut system = System::new(test, Overlap::Allow).await;
    system.begin(&asked(1, 150, 1)).await;
    let filled = system
        .engine()
        .run_backfills(system.clock.now())
        .await
        .unwrap();
    assert_eq!(filled.launched, 100);
    system.tick().await;
    let (before, _) = system.seen(id(1)).await;
    assert!(before.launched < 150, "{before:?}");
    // The host is gone without a word, and comes back.
    drop(system.host.take());
    system.host = Some(start(&system.test, &system.clock, settings(8), NOOP).await);
    system.until_over(id(1), 100).await;
    let rows = system.rows().await;
    assert!(all_succeeded(&rows));
    let every_minute: Vec<Timestamp> = (1..=150).rev().map(ago).collect();
    assert_eq!(slots(&rows), every_minute);
}

async fn the_same_id_launches_nothing_twice(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    let request = asked(1, 5, 1);
    let preview = system.begin(&request).await;
    for over in [false, true] {
        if over {
            system.until_over(id(1), 10).await;
        }
        let mut tx = system.test.write().await;
        let before = backfill::find_earlier(&mut tx, "bell", &request).await;
        assert_eq!(before.unwrap().map(|before| before.id), Some(id(1)));
        let other = BackfillRequest {
            from: ago(6),
            ..request
        };
        let refused = backfill::find_earlier(&mut tx, "bell", &other).await;
        let refused = refused.unwrap_err().to_string();
        let difference = format!("--from {} instead of {}", ago(5), ago(6));
        assert!(refused.contains(&difference), "{refused}");
        // Two that ask in the same moment: the table knows.
        let again = backfill::begin(&mut tx, &preview, &request, system.clock.now()).await;
        assert!(matches!(again, Err(ScheduleError::Db(_))), "{again:?}");
    }
    assert_eq!(system.rows().await.len(), 5);
}

async fn slots_that_come_meanwhile_go_first(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    system.begin(&asked(1, 200, 1)).await;
    for _ in 0..203 {
        let tick = system.tick().await;
        assert!(tick.runs <= 1, "one at a time: {tick:?}");
    }
    system.until_over(id(1), 3).await;
    let rows = system.rows().await;
    assert!(rows.len() == 200 && all_succeeded(&rows));
    let started: Vec<_> = rows.iter().map(|row| row.started_at).collect();
    assert!(started.is_sorted(), "in the order of their slots");
    let mut tx = system.test.read().await;
    let all = launches::list(&mut tx, Some("bell"), 1_000).await.unwrap();
    let own: Vec<_> = all
        .iter()
        .filter(|row| row.kind == LaunchKind::Schedule)
        .collect();
    assert_eq!(own.len(), 3, "{own:#?}");
    for row in own {
        let told = (row.status, row.started_at);
        let in_time = (LaunchStatus::Succeeded, Some(row.scheduled_time));
        assert_eq!(told, in_time, "{row:?}");
    }
    // What counts to a limit of launches is the schedule's own.
    assert_eq!(system.schedule().await.state.history.launches, 3);
}

async fn many_slots_go_through_a_window_and_a_paused_schedule_fills_back_too(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.pause().await;
    system.begin(&asked(1, 250, 1)).await;
    let mut most = 0;
    for _ in 0..100 {
        system
            .engine()
            .run_backfills(system.clock.now())
            .await
            .unwrap();
        let (backfill, ends) = system.seen(id(1)).await;
        assert!(ends.unfinished <= UNFINISHED_MAX, "{backfill:?}");
        most = most.max(ends.unfinished);
        if backfill.status == BackfillStatus::Done {
            break;
        }
        system.tick().await;
    }
    assert_eq!(most, UNFINISHED_MAX);
    let (backfill, ends) = system.seen(id(1)).await;
    assert_eq!(
        (backfill.status, backfill.launched),
        (BackfillStatus::Done, 250)
    );
    assert_eq!(ends.succeeded, 250);
    let rows = system.rows().await;
    let distinct: BTreeSet<Timestamp> = slots(&rows).into_iter().collect();
    assert_eq!((rows.len(), distinct.len()), (250, 250));
    assert!(!system.schedule().await.state.enabled);
}

async fn hosts_that_look_at_once_do_not_launch_past_the_window(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&asked(1, 250, 1)).await;
    let now = system.clock.now();
    let looks = join_all((0..4).map(|_| system.engine().run_backfills(now))).await;
    let launched: usize = looks.into_iter().map(|look| look.unwrap().launched).sum();
    let (backfill, ends) = system.seen(id(1)).await;
    assert_eq!((launched, backfill.launched), (100, 100));
    assert_eq!(ends.unfinished, 100);
}

async fn a_removed_schedule_ends_its_backfills(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    system.begin(&asked(1, 5, 1)).await;
    system.tick().await;
    let mut tx = system.test.write().await;
    schedule_admin::remove(&mut tx, "bell", system.clock.now())
        .await
        .unwrap();
    tx.commit().await.unwrap();
    for _ in 0..3 {
        assert_eq!(system.tick().await.runs, 0);
    }
    let (backfill, ends) = system.seen(id(1)).await;
    assert_eq!(backfill.status, BackfillStatus::Cancelled);
    assert!(backfill.finished_at.is_some());
    assert_eq!((ends.succeeded, ends.cancelled, ends.unfinished), (1, 4, 0));
    let (kind, detail) = system.events().await.pop().unwrap();
    assert_eq!(kind, "backfill_cancelled");
    assert_eq!(detail, format!("{}, as its schedule was removed", id(1)));
}

async fn a_missing_package_is_waited_for(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system
        .test
        .execute("UPDATE package SET missing_since = loaded_at")
        .await;
    system.begin(&asked(1, 3, 1)).await;
    for _ in 0..3 {
        assert_eq!(system.tick().await.filled_back, 0);
    }
    assert_eq!(system.status(id(1)).await, BackfillStatus::Running);
    system
        .test
        .execute("UPDATE package SET missing_since = NULL")
        .await;
    system.until_over(id(1), 5).await;
    assert!(all_succeeded(&system.rows().await));
    assert_eq!(system.rows().await.len(), 3);
}

async fn an_edited_schedule_fills_back_by_the_rule_of_the_request(test: TestDb) {
    let system = System::new(test, Overlap::Allow).await;
    system.begin(&asked(1, 5, 1)).await;
    let schedule = system.schedule().await;
    let mut says = schedule.definition;
    says.revision = 2;
    says.rule.expression = "0 * * * *".to_owned();
    says.since = system.clock.now();
    let (cursor, next) = (says.since, Some(at(3_600)));
    let mut tx = system.test.write().await;
    let revised = schedules::revise(&mut tx, &says, true, Origin::Operator, cursor, next);
    assert!(revised.await.unwrap());
    tx.commit().await.unwrap();
    system.until_over(id(1), 5).await;
    assert_eq!(system.rows().await.len(), 5);
    let sql = "SELECT DISTINCT CAST(schedule_revision AS TEXT) FROM launch";
    assert_eq!(system.test.value(sql).await, "1");
    // One that is asked for now has the slots of now.
    assert_eq!(system.preview(&asked(2, 119, 0)).await.unwrap().slots, 2);
}

async fn what_cannot_be_filled_back_is_refused(test: TestDb) {
    let system = System::new(test, Overlap::Skip).await;
    let refused =
        async |asked: &BackfillRequest<'_>| system.preview(asked).await.unwrap_err().to_string();
    let told = refused(&asked(1, 1, 2)).await;
    assert!(told.contains("would end before it begins"), "{told}");
    let future = BackfillRequest {
        from: at(60),
        to: at(120),
        ..asked(1, 0, 0)
    };
    let told = refused(&future).await;
    assert!(told.contains("is in the future"), "{told}");
    let between = BackfillRequest {
        from: ago(2).plus(Duration::from_secs(1)),
        to: ago(1).minus(Duration::from_secs(1)),
        ..asked(1, 0, 0)
    };
    let told = refused(&between).await;
    let next = format!("the next one after that is {}", ago(1));
    assert!(told.ends_with(&next), "{told}");
    let reserved: Map<_, _> = [("attempt".to_owned(), 1.into())].into_iter().collect();
    let reserved = BackfillRequest {
        context: Some(&reserved),
        ..asked(1, 2, 1)
    };
    let told = refused(&reserved).await;
    assert!(told.contains("attempt"), "{told}");
    let long = BackfillRequest {
        from: Timestamp::EPOCH,
        ..asked(1, 0, 0)
    };
    let told = refused(&long).await;
    assert!(told.contains("more than 1000000 slots"), "{told}");
    system
        .add("chain", RuleKind::AfterCompletion, "10m", Overlap::Skip)
        .await;
    system
        .add("start", RuleKind::Cron, "@reboot", Overlap::Skip)
        .await;
    for name in ["chain", "start"] {
        let mut tx = system.test.read().await;
        let told = backfill::preview(&mut tx, name, &asked(1, 5, 1), at(5)).await;
        let is_refused = matches!(
            told,
            Err(ScheduleError::Backfill(BackfillError::NoClock(_)))
        );
        assert!(is_refused, "{told:?}");
    }
    // A future slot belongs to the schedule, also when the requested range reaches it.
    let into_the_future = BackfillRequest {
        to: at(600),
        ..asked(1, 1, 0)
    };
    let preview = system.preview(&into_the_future).await.unwrap();
    assert_eq!((preview.slots, preview.last), (2, at(0)));
}
