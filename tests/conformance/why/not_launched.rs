//! `why` about instants without a launch, and about a schedule without a time.

use campanile_control::admin::schedule_admin;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::Policies;
use campanile_schedule::rule::{DstFold, RuleKind, RuleText};
use campanile_store::events::{self, EventKind};
use campanile_store::launch::{self, NewLaunch};
use campanile_store::schedules::{self, Revision};
use campanile_store::{Decision, Origin, packages};
use campanile_tests::{TestDb, on_both};

use super::test_host::{TestHost, clock_time, cron};
use crate::fixtures::schedule_id;

on_both!(
    why_names_the_cron_field_that_does_not_match,
    why_reads_the_days_of_the_clock_of_the_schedule,
    why_names_the_exclusion_that_removes_a_slot,
    why_names_a_local_time_that_the_clock_skips,
    why_names_a_local_time_that_the_clock_repeats,
    why_names_the_interval_that_does_not_match,
    why_names_the_creation_and_the_start_after_a_slot,
    why_names_the_end_and_the_launch_limit_before_a_slot,
    why_names_the_skip_of_an_operator,
    why_names_the_current_pause,
    why_names_the_past_pause_of_a_dropped_slot,
    why_names_a_slot_that_was_overdue_when_a_pause_began,
    why_names_an_edit_of_the_timing_during_a_pause,
    why_names_the_missing_package,
    why_names_an_edit_of_the_timing_and_a_rename,
    why_names_the_removal,
    why_names_the_next_slot_before_the_first_launch,
    why_names_that_no_host_serves,
);

async fn why_names_the_cron_field_that_does_not_match(test: TestDb) {
    let host = TestHost::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * MON-FRI", "America/New_York");
    host.add(rule, Policies::default()).await;
    host.tick_at("20:00").await;
    host.assert_why(Some("2026-05-04T12:30:00-04:00"), "
            no_slot, 2026-05-04T16:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the hour field `2` does not allow 12
            before, 2026-05-04T06:30:00Z: the slot before it
            after, 2026-05-05T06:30:00Z: the slot after it").await;
    // A future Sunday.
    host.assert_why(Some("2026-05-10 02:30"), "
            no_slot, 2026-05-10T06:30:00Z: no slot of cron `30 2 * * MON-FRI` (revision 1): the day-of-week field `MON-FRI` does not allow Sunday
            before, 2026-05-08T06:30:00Z: the slot before it
            after, 2026-05-11T06:30:00Z: the slot after it").await;
}

async fn why_reads_the_days_of_the_clock_of_the_schedule(test: TestDb) {
    let host = TestHost::new(test).await;
    // At 20:00 UTC, the clock of Auckland shows 08:00 of the next day, 2026-05-05.
    let rule = RuleText::new(RuleKind::Cron, "0 14 * * *", "Pacific/Auckland");
    host.add(rule, Policies::default()).await;
    host.tick_at("20:00").await;
    for (text, expected) in [
        ("today 14:00", "2026-05-05T02:00:00Z"),
        ("tomorrow 14:00", "2026-05-06T02:00:00Z"),
        ("2026-05-06 14:00", "2026-05-06T02:00:00Z"),
        ("now+6h", "2026-05-05T02:00:00Z"),
    ] {
        let expected = format!(
            "slot, {expected}: a slot of cron `0 14 * * *` (revision 1)
            coming, {expected}: it will be decided then"
        );
        host.assert_why(Some(text), &expected).await;
    }
    host.assert_why(
        Some("yesterday 14:00"),
        "
            slot, 2026-05-04T02:00:00Z: a slot of cron `0 14 * * *` (revision 1)
            added, 2026-05-04T10:00:00Z: the schedule was added then, and launches no slot before",
    )
    .await;
}

async fn why_names_the_exclusion_that_removes_a_slot(test: TestDb) {
    let host = TestHost::new(test).await;
    let rule = RuleText {
        exclude: vec!["2026-05-04..2026-05-05".to_owned(), "12-25".to_owned()],
        ..cron("0 12 * * *")
    };
    host.add(rule, Policies::default()).await;
    host.assert_why(Some("2026-05-04T12:00:00Z"), "
            excluded, 2026-05-04T12:00:00Z: a slot of cron `0 12 * * *` (revision 1), if its exclusion `2026-05-04..2026-05-05` did not leave it out
            before, 2026-05-03T12:00:00Z: the slot before it
            after, 2026-05-06T12:00:00Z: the slot after it").await;
}

async fn why_names_a_local_time_that_the_clock_skips(test: TestDb) {
    let host = TestHost::new(test).await;
    let rule = RuleText::new(RuleKind::Cron, "30 2 * * *", "America/New_York");
    host.add(rule, Policies::default()).await;
    host.assert_why(Some("2027-03-14 02:30"), "
            clock, 2027-03-14T07:00:00Z: 2027-03-14 02:30 is left out by the clock: it fires at 2027-03-14T03:00:00-04:00
            slot, 2027-03-14T07:00:00Z: a slot of cron `30 2 * * *` (revision 1)
            coming, 2027-03-14T07:00:00Z: it will be decided then").await;
    host.assert_why(Some("2027-03-14 02:45"), "
            clock, 2027-03-14T07:00:00Z: the clock skips 2027-03-14 02:45, and continues here
            no_slot: no slot of cron `30 2 * * *` (revision 1): the minute field `30` does not allow 45
            before, 2027-03-13T07:30:00Z: the slot before it
            after, 2027-03-15T06:30:00Z: the slot after it").await;
}

async fn why_names_a_local_time_that_the_clock_repeats(test: TestDb) {
    let host = TestHost::new(test).await;
    let rule = RuleText {
        dst_fold: DstFold::First,
        ..RuleText::new(RuleKind::Cron, "45 1 * * *", "America/New_York")
    };
    host.add(rule, Policies::default()).await;
    host.assert_why(Some("2026-11-01 01:45"), "
            clock: the clock shows 2026-11-01 01:45 twice, 1h apart
            clock, 2026-11-01T06:00:00Z: 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            slot, 2026-11-01T05:45:00Z: a slot of cron `45 1 * * *` (revision 1)
            coming, 2026-11-01T05:45:00Z: it will be decided then
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
    host.assert_why(Some("2026-11-01T01:45:00-05:00"), "
            clock, 2026-11-01T06:45:00Z: no slot of cron `45 1 * * *` (revision 1): 2026-11-01 01:45 is shown twice by the clock: it fires at 2026-11-01T01:45:00-04:00, not at 2026-11-01T01:45:00-05:00
            before, 2026-11-01T05:45:00Z: the slot before it
            after, 2026-11-02T06:45:00Z: the slot after it").await;
}

async fn why_names_the_interval_that_does_not_match(test: TestDb) {
    let host = TestHost::new(test).await;
    let rule = RuleText {
        anchor: Some(clock_time("10:00")),
        ..RuleText::new(RuleKind::Every, "10m", "UTC")
    };
    host.add(rule, Policies::default()).await;
    host.assert_why(Some("2026-05-04T10:15:00Z"), "
            no_slot, 2026-05-04T10:15:00Z: no slot of every `10m` (revision 1): it fires every 10 minutes of elapsed time, counted from 2026-05-04T10:00:00+00:00[UTC]
            before, 2026-05-04T10:10:00Z: the slot before it
            after, 2026-05-04T10:20:00Z: the slot after it").await;
}

async fn why_names_the_creation_and_the_start_after_a_slot(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        start_at: Some(clock_time("10:30")),
        ..Policies::default()
    };
    host.add(cron("*/10 * * * *"), policies).await;
    host.tick_at("10:45").await;
    host.assert_why(
        Some("2026-05-04T09:50:00Z"),
        "
            slot, 2026-05-04T09:50:00Z: a slot of cron `*/10 * * * *` (revision 1)
            added, 2026-05-04T10:00:00Z: the schedule was added then, and launches no slot before",
    )
    .await;
    host.assert_why(
        Some("2026-05-04T10:20:00Z"),
        "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            not_begun, 2026-05-04T10:30:00Z: `start_at`: nothing before it is launched",
    )
    .await;
}

async fn why_names_the_end_and_the_launch_limit_before_a_slot(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        end_at: Some(clock_time("10:25")),
        max_launches: Some(1),
        ..Policies::default()
    };
    host.add(cron("*/10 * * * *"), policies).await;
    host.tick_at("10:10").await;
    host.tick_at("10:45").await;
    host.assert_why(
        Some("2026-05-04T10:20:00Z"),
        "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1",
    )
    .await;
    host.assert_why(
        Some("2026-05-04T10:30:00Z"),
        "
            slot, 2026-05-04T10:30:00Z: a slot of cron `*/10 * * * *` (revision 1)
            ended, 2026-05-04T10:25:00Z: `end_at`: nothing after it is launched",
    )
    .await;
    host.assert_why(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            ended, 2026-05-04T10:10:00Z: `max_launches` is reached: it has made 1").await;
}

async fn why_names_the_skip_of_an_operator(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = host.test.write().await;
    let skips = r#"["2026-05-04T10:10:00Z","2026-05-04T10:20:00Z"]"#;
    schedules::set_skips(&mut tx, schedule_id(1), Some(skips), clock_time("10:00"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    host.tick_at("10:10").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            slot_skipped, 2026-05-04T10:10:00Z: skipped by `host-1` with tzdata <tzdata>: a person skipped this slot").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            slot_skipped, 2026-05-04T10:20:00Z: a person skipped this slot: it will not be launched, and the slots after it will").await;
}

async fn why_names_the_current_pause(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.pause("10:05", Some("the disk is full"), Some("10:35"))
        .await;
    host.tick_at("10:15").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the disk is full
            undecided, 2026-05-04T10:10:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the disk is full
            undecided, 2026-05-04T10:20:00Z: it falls into the pause, and is skipped when that ends, unless `resume --catch-up` ends it").await;
    host.assert_why(
        Some("2026-05-04T10:40:00Z"),
        "
            slot, 2026-05-04T10:40:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the disk is full
            coming, 2026-05-04T10:40:00Z: it will be decided then",
    )
    .await;
    host.assert_why(
        None,
        "
            paused, 2026-05-04T10:05:00Z: by ada, until 2026-05-04T10:35:00Z: the disk is full
            coming, 2026-05-04T10:40:00Z: the first slot after the pause",
    )
    .await;
}

async fn why_names_the_past_pause_of_a_dropped_slot(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.pause("10:05", Some("the disk is full"), None).await;
    host.resume("10:35").await;
    host.pause("10:45", None, None).await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            paused, 2026-05-04T10:05:00Z: by ada: the disk is full
            resumed, 2026-05-04T10:35:00Z: by ben; skipped, as is each slot of a pause").await;
}

async fn why_names_a_slot_that_was_overdue_when_a_pause_began(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    // No host has decided a slot by then.
    host.pause("10:25", None, None).await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            paused, 2026-05-04T10:25:00Z: by ada
            undecided, 2026-05-04T10:10:00Z: no host had decided it when the pause began, and it is skipped when that ends, unless `resume --catch-up` ends it
            no_host, 2026-05-04T10:00:00Z: no host serves: `host-1` sent its last heartbeat then").await;
    host.resume("10:45").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: one of 2 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:20:00Z
            overdue: no host had decided it when the pause began
            paused, 2026-05-04T10:25:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot that was undecided when a pause began").await;
    host.assert_why(Some("2026-05-04T10:30:00Z"), "
            slot, 2026-05-04T10:30:00Z: one of 2 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:30:00Z to 2026-05-04T10:40:00Z
            paused, 2026-05-04T10:25:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot of a pause").await;
    // The interval of the paused slots starts at the last overdue slot.
    let sql = "SELECT CAST(count(*) AS TEXT) FROM launch a JOIN launch b ON b.interval_start = a.last_scheduled_time
        WHERE a.reason = 'overdue' AND b.reason = 'paused'";
    assert_eq!(host.test.value(sql).await, "1");
}

async fn why_names_an_edit_of_the_timing_during_a_pause(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.tick_at("10:00").await;
    host.pause("10:15", None, None).await;
    let mut tx = host.test.write().await;
    let half_hourly = |wanted: &mut schedule_admin::ScheduleDefinition| {
        wanted.rule.expression = "*/30 * * * *".to_owned()
    };
    schedule_admin::edit(&mut tx, "report", None, half_hourly, clock_time("10:25"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    host.resume("10:45").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            overdue: no host had decided it when the pause began
            paused, 2026-05-04T10:15:00Z: by ada
            edited, 2026-05-04T10:25:00Z: skipped: the timing was changed while it was paused (revision 2: cron */30 * * * *)").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            paused, 2026-05-04T10:15:00Z: by ada
            edited, 2026-05-04T10:25:00Z: skipped: the timing was changed while it was paused (revision 2: cron */30 * * * *)").await;
    host.assert_why(
        Some("2026-05-04T10:30:00Z"),
        "
            slot, 2026-05-04T10:30:00Z: a slot of cron `*/30 * * * *` (revision 2), launch <id>
            paused, 2026-05-04T10:15:00Z: by ada
            resumed, 2026-05-04T10:45:00Z: by ben; skipped, as is each slot of a pause",
    )
    .await;
}

async fn why_names_the_missing_package(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    let mut tx = host.test.write().await;
    packages::withdraw(&mut tx, host.engine.host(), "guests")
        .await
        .unwrap();
    packages::mark_missing(&mut tx, clock_time("10:05"))
        .await
        .unwrap();
    let detail = "no live host has it any more";
    events::record(
        &mut tx,
        clock_time("10:05"),
        EventKind::PackageMissing,
        "guests",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    host.tick_at("10:10").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            no_package, 2026-05-04T10:10:00Z: skipped by `host-1` with tzdata <tzdata>: no live host had the package `guests` in its folder, since 2026-05-04T10:05:00Z").await;
    host.assert_why(
        Some("2026-05-04T10:20:00Z"),
        "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then
            no_package, 2026-05-04T10:05:00Z: no live host has the package `guests` since then",
    )
    .await;
}

async fn why_names_an_edit_of_the_timing_and_a_rename(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    let id = schedule_id(1);
    let mut tx = host.test.write().await;
    let first_revision = schedules::revision(&mut tx, id, 1).await.unwrap().unwrap();
    let slot = (LaunchKind::Schedule, clock_time("10:10"));
    let skipped = NewLaunch {
        decision: Decision::Skipped,
        reason: Some("edited"),
        interval_start: clock_time("10:00"),
        ..NewLaunch::of_slot((id, 1), "guests".to_owned(), slot, clock_time("10:12"))
    };
    launch::insert(&mut tx, &[skipped]).await.unwrap();
    let definition = Revision {
        revision: 2,
        name: "summary".to_owned(),
        rule: cron("30 * * * *"),
        since: clock_time("10:12"),
        ..first_revision
    };
    let cursor = clock_time("10:12");
    let next = Some(clock_time("10:30"));
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
        "summary",
        detail,
    )
    .await
    .unwrap();
    tx.commit().await.unwrap();
    host.tick_at("10:15").await;
    host
        .assert_why_of("report", Some("2026-05-04T10:10:00Z"), "
            renamed, 2026-05-04T10:12:00Z: what was called `report` is called `summary` from then on
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            edited, 2026-05-04T10:12:00Z: skipped: the timing was changed before a host decided it (revision 2: cron 30 * * * *)")
        .await;
    host
        .assert_why_of("summary", Some("2026-05-04T10:40:00Z"), "
            no_slot, 2026-05-04T10:40:00Z: no slot of cron `30 * * * *` (revision 2): the minute field `30` does not allow 40
            before, 2026-05-04T10:30:00Z: the slot before it
            after, 2026-05-04T11:30:00Z: the slot after it")
        .await;
}

async fn why_names_the_removal(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.tick_at("10:10").await;
    host.clock.advance_to(clock_time("10:25"));
    let mut tx = host.test.write().await;
    schedule_admin::remove(&mut tx, "report", clock_time("10:25"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before a host decided it").await;
    host.assert_why(
        Some("2026-05-04T10:30:00Z"),
        "
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched",
    )
    .await;
    host.assert_why(None, "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            removed, 2026-05-04T10:25:00Z: skipped: the schedule was removed before a host decided it
            removed, 2026-05-04T10:25:00Z: it was removed; nothing after that is launched").await;
}

async fn why_names_the_next_slot_before_the_first_launch(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.assert_why(
        None,
        "
            coming, 2026-05-04T10:10:00Z: the next slot",
    )
    .await;
    host.assert_why(
        Some("2026-05-04T10:10:00Z"),
        "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:10:00Z: it will be decided then",
    )
    .await;
}

async fn why_names_that_no_host_serves(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.clock.advance_to(clock_time("10:15"));
    host.assert_why(
        None,
        "
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `host-1` sent its last heartbeat then",
    )
    .await;
    host.assert_why(
        Some("2026-05-04T10:10:00Z"),
        "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1)
            undecided, 2026-05-04T10:10:00Z: its time has come, and no host has decided it yet
            no_host, 2026-05-04T10:00:00Z: no host serves: `host-1` sent its last heartbeat then",
    )
    .await;
}
