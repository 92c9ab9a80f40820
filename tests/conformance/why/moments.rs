//! Moments that were not launched, and how a schedule stands.

use campanile_engine::schedule_admin;
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{DstFold, RuleKind, RuleText};
use campanile_store::events::{self, EventKind};
use campanile_store::launches::{self, NewLaunch};
use campanile_store::schedules::{self, Revision};
use campanile_store::{Decision, Origin, packages};
use campanile_tests::{TestDb, on_both};

use super::stage::{Stage, cron, time};
use crate::fixtures::schedule_id;

on_both!(
    a_field_does_not_match,
    an_exclusion_leaves_it_out,
    the_clock_leaves_it_out,
    the_clock_shows_it_twice,
    an_interval_and_a_single_time_have_no_slot_then,
    it_was_before_the_schedule_or_its_start,
    it_was_after_the_end_or_the_last_launch,
    a_person_took_it_out,
    it_is_paused,
    it_fell_into_a_pause,
    it_was_overdue_when_a_pause_began,
    the_timing_was_changed_in_a_pause,
    no_host_had_its_package,
    the_timing_was_changed_and_it_has_another_name,
    it_was_removed,
    nothing_has_happened_yet,
    nobody_serves,
);

async fn a_field_does_not_match(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * MON-FRI", "America/New_York");
    stage.add(rule, Policies::default()).await;
    stage.pass_to("20:00").await;
    stage.tells(Some("2026-05-04T12:30:00-04:00"), "
            no_slot, 2026-05-04T16:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the hour field `2` does not allow 12
            before, 2026-05-04T06:30:00Z: the slot before it
            after, 2026-05-05T06:30:00Z: the slot after it").await;
    // A Sunday that is to come.
    stage.tells(Some("2026-05-10 02:30"), "
            no_slot, 2026-05-10T06:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the day-of-week field `MON-FRI` does not allow Sunday
            before, 2026-05-08T06:30:00Z: the slot before it
            after, 2026-05-11T06:30:00Z: the slot after it").await;
}

async fn an_exclusion_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        exclude: vec!["2026-05-04..2026-05-05".to_owned(), "12-25".to_owned()],
        ..cron("0 12 * * *")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T12:00:00Z"), "
            left_out, 2026-05-04T12:00:00Z: a slot of cron `0 12 * * *` (revision 1), if its exclusion `2026-05-04..2026-05-05` did not leave it out
            before, 2026-05-03T12:00:00Z: the slot before it
            after, 2026-05-06T12:00:00Z: the slot after it").await;
}

async fn the_clock_leaves_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York");
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2027-03-14 02:30"), "
            clock, 2027-03-14T07:00:00Z: 2027-03-14 02:30 is left out by the clock: it fires at 2027-03-14T03:00:00-04:00
            slot, 2027-03-14T07:00:00Z: a slot of cron `30 2 * * *` (revision 1)
            coming, 2027-03-14T07:00:00Z: it will be decided then").await;
    stage.tells(Some("2027-03-14 02:45"), "
            clock, 2027-03-14T07:00:00Z: the clock skips 2027-03-14 02:45, and continues here
            no_slot: no slot of cron `30 2 * * *` (revision 1): the minute field `30` does not allow 45
            before, 2027-03-13T07:30:00Z: the slot before it
            after, 2027-03-15T06:30:00Z: the slot after it").await;
}

async fn the_clock_shows_it_twice(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        dst_fold: DstFold::First,
        ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-11-01 01:45"), "
            clock: the clock shows 2026-11-01 01:45 twice, 1h apart
            clock, 2026-11-01T06:00:00Z: 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            slot, 2026-11-01T05:45:00Z: a slot of cron `45 1 * * *` (revision 1)
            coming, 2026-11-01T05:45:00Z: it will be decided then
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
    stage.tells(Some("2026-11-01T01:45:00-05:00"), "
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
}

async fn an_interval_and_a_single_time_have_no_slot_then(test: TestDb) {
    let stage = Stage::new(test).await;
    let rule = RuleText {
        anchor: Some(time("10:00")),
        ..RuleText::new(RuleKind::Every, "10m", "UTC")
    };
    stage.add(rule, Policies::default()).await;
    stage.tells(Some("2026-05-04T10:15:00Z"), "
            no_slot, 2026-05-04T10:15:00Z: no slot of every `10m` (revision 1): it fires every 10 minutes of elapsed time, counted from 2026-05-04T10:00:00+00:00[UTC]
            before, 2026-05-04T10:10:00Z: the slot before it
            after, 2026-05-04T10:20:00Z: the slot after it").await;
}

async fn it_was_before_the_schedule_or_its_start(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        start_at: Some(time("10:30")),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:45").await;
    stage
        .tells(
            Some("2026-05-04T09:50:00Z"),
            "
            slot, 2026-05-04T09:50:00Z: a slot of cron `*/10 * * * *` (revision 1)
            added, 2026-05-04T10:00:00Z: the schedule was added then, and launches no slot before",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            not_begun, 2026-05-04T10:30:00Z: `start_at`: nothing before it is launched",
        )
        .await;
}

async fn it_was_after_the_end_or_the_last_launch(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        end_at: Some(time("10:25")),
        max_launches: Some(1),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:10").await;
    stage.pass_to("10:45").await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:30:00Z"),
            "
            slot, 2026-05-04T10:30:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:25:00Z: `end_at`: nothing after it is launched",
        )
        .await;
    stage.tells(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1").await;
}

async fn a_person_took_it_out(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = stage.test.write().await;
    let skips = r#"["2026-05-04T10:10:00Z","2026-05-04T10:20:00Z"]"#;
    schedules::set_skips(&mut tx, schedule_id(1), Some(skips), time("10:00"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            taken_out, 2026-05-04T10:10:00Z: skipped by `tower` with tzdata <tzdata>: a person skipped this slot").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            taken_out, 2026-05-04T10:20:00Z: a person skipped this slot: it will not be launched, and the slots after it will").await;
}

async fn it_is_paused(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), Some("10:35"))
        .await;
    stage.pass_to("10:15").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            undecided, 2026-05-04T10:10:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            undecided, 2026-05-04T10:20:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    stage
        .tells(
            Some("2026-05-04T10:40:00Z"),
            "
            slot, 2026-05-04T10:40:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            coming, 2026-05-04T10:40:00Z: it will be decided then",
        )
        .await;
    stage
        .tells(
            None,
            "
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the clapper is loose
            coming, 2026-05-04T10:40:00Z: the first slot after the pause",
        )
        .await;
}

async fn it_fell_into_a_pause(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .pause("10:05", Some("the clapper is loose"), None)
        .await;
    stage.resume("10:35").await;
    stage.pause("10:45", None, None).await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            paused, 2026-05-04T10:05:00Z: by ada: the clapper is loose
            resumed, 2026-05-04T10:35:00Z: by ben; skipped, as is each slot of a pause").await;
}

async fn it_was_overdue_when_a_pause_began(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    // No host decided until then.
    stage.pause("10:25", None, None).await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:25:00Z: by ada
            undecided, 2026-05-04T10:10:00Z: no host had decided it when the pause began, and it is skipped when that ends, unless `resume --catch-up` ends it
            no_host, 2026-05-04T10:00:00Z: no host serves: `tower` sent its last heartbeat then").await;
    stage.resume("10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: one of 2 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:20:00Z
            overdue: no host had decided it when the pause began
            paused, 2026-05-04T10:25:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot that was undecided when a pause began").await;
    stage.tells(Some("2026-05-04T10:30:00Z"), "
            slot, 2026-05-04T10:30:00Z: one of 2 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:30:00Z to 2026-05-04T10:40:00Z
            paused, 2026-05-04T10:25:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot of a pause").await;
    // The rows join: one stands for the time since the other.
    let sql = "SELECT CAST(count(*) AS TEXT) FROM launch a JOIN launch b ON b.interval_start = a.last_scheduled_time
        WHERE a.reason = 'overdue' AND b.reason = 'paused'";
    assert_eq!(stage.test.value(sql).await, "1");
}

async fn the_timing_was_changed_in_a_pause(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:00").await;
    stage.pause("10:15", None, None).await;
    let mut tx = stage.test.write().await;
    let half_hourly = |wanted: &mut schedule_admin::ScheduleDefinition| {
        wanted.rule.expression = "*/30 * * * *".to_owned()
    };
    schedule_admin::edit(&mut tx, "bell", None, half_hourly, time("10:25"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.resume("10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            overdue: no host had decided it when the pause began
            paused, 2026-05-04T10:15:00Z: by ada
            edited, 2026-05-04T10:25:00Z: skipped: the timing was changed while it was paused (revision 2: cron */30 * * * *)").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            paused, 2026-05-04T10:15:00Z: by ada
            edited, 2026-05-04T10:25:00Z: skipped: the timing was changed while it was paused (revision 2: cron */30 * * * *)").await;
    stage
        .tells(
            Some("2026-05-04T10:30:00Z"),
            "
            slot, 2026-05-04T10:30:00Z: a slot of cron `*/30 * * * *` (revision 2), launch <id>
            paused, 2026-05-04T10:15:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot of a pause",
        )
        .await;
}

async fn no_host_had_its_package(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = stage.test.write().await;
    packages::withdraw(&mut tx, stage.engine.host(), "guests")
        .await
        .unwrap();
    packages::mark_missing(&mut tx, time("10:05"))
        .await
        .unwrap();
    let detail = "no live host has it any more";
    events::record(
        &mut tx,
        time("10:05"),
        EventKind::PackageMissing,
        "guests",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            no_package, 2026-05-04T10:10:00Z: skipped by `tower` with tzdata <tzdata>: no live host had the package `guests` in its folder, since 2026-05-04T10:05:00Z").await;
    stage
        .tells(
            Some("2026-05-04T10:20:00Z"),
            "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then
            no_package, 2026-05-04T10:05:00Z: no live host has the package `guests` since then",
        )
        .await;
}

async fn the_timing_was_changed_and_it_has_another_name(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    let id = schedule_id(1);
    let mut tx = stage.test.write().await;
    let said = schedules::revision(&mut tx, id, 1).await.unwrap().unwrap();
    let missed = NewLaunch {
        id: LaunchId::of(id, time("10:10"), LaunchKind::Schedule),
        schedule_id: id,
        schedule_revision: 1,
        kind: LaunchKind::Schedule,
        scheduled_time: time("10:10"),
        scheduled_local: "10:10".to_owned(),
        last_scheduled_time: time("10:10"),
        slot_count: 1,
        decision: Decision::Skipped,
        reason: Some("edited"),
        overlaps: None,
        package: "guests".to_owned(),
        digest: None,
        context: None,
        overlap: None,
        backfill_id: None,
        interval_start: time("10:00"),
        fire_time: time("10:10"),
        decided_by: None,
        claimed_at: time("10:12"),
    };
    launches::insert(&mut tx, &[missed]).await.unwrap();
    let definition = Revision {
        revision: 2,
        name: "carillon".to_owned(),
        rule: cron("30 * * * *"),
        since: time("10:12"),
        ..said
    };
    let cursor = time("10:12");
    let next = Some(time("10:30"));
    assert!(
        schedules::revise(&mut tx, &definition, true, Origin::Operator, cursor, next)
            .await
            .unwrap()
    );
    let detail = "revision 2: cron 30 * * * *";
    events::record(
        &mut tx,
        cursor,
        EventKind::ScheduleChanged,
        "carillon",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:15").await;
    stage
        .tells_of("bell", Some("2026-05-04T10:10:00Z"), "
            renamed, 2026-05-04T10:12:00Z: what was called `bell` is called `carillon` from then on
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            edited, 2026-05-04T10:12:00Z: skipped: the timing was changed before a host decided it (revision 2: cron 30 * * * *)")
        .await;
    stage
        .tells_of("carillon", Some("2026-05-04T10:40:00Z"), "
            no_slot, 2026-05-04T10:40:00Z: no slot of cron `30 * * * *` (revision 2): the minute field `30` does not allow 40
            before, 2026-05-04T10:30:00Z: the slot before it
            after, 2026-05-04T11:30:00Z: the slot after it")
        .await;
}

async fn it_was_removed(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:10").await;
    stage.clock.advance_to(time("10:25"));
    let mut tx = stage.test.write().await;
    schedule_admin::remove(&mut tx, "bell", time("10:25"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before a host decided it").await;
    stage
        .tells(
            Some("2026-05-04T10:30:00Z"),
            "
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched",
        )
        .await;
    stage.tells(None, "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before a host decided it
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched").await;
}

async fn nothing_has_happened_yet(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage
        .tells(
            None,
            "
            coming, 2026-05-04T10:10:00Z: the next slot",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:10:00Z: it will be decided then",
        )
        .await;
}

async fn nobody_serves(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.clock.advance_to(time("10:15"));
    stage
        .tells(
            None,
            "
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `tower` sent its last heartbeat then",
        )
        .await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `tower` sent its last heartbeat then",
        )
        .await;
}
