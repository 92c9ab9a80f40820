//! `why` about slots that a host has decided.

use std::time::Duration;

use campanile_control::admin::schedule_admin::{self, Trigger};
use campanile_schedule::policy::{Catchup, Delivery, Overlap, Policies};
use campanile_tests::{TestDb, on_both};

use super::test_host::{TestHost, clock_time, cron};

on_both!(
    why_of_a_missed_slot_names_the_slot_that_is_caught_up_instead,
    why_of_a_missed_slot_names_the_catchup_policy_none,
    why_of_a_missed_slot_names_the_catchup_window,
    why_of_a_missed_slot_names_the_catchup_maximum,
    why_of_an_overlapping_slot_names_the_active_launch,
    why_of_a_queued_launch_names_the_launch_before_it,
    why_of_an_on_time_launch_lists_its_decision_claim_call_and_outcome,
    why_of_a_late_launch_names_its_delay_and_its_jitter,
    why_of_a_failed_launch_lists_every_call,
    why_of_a_recovered_launch_lists_the_lost_run,
    why_of_an_at_most_once_launch_whose_run_was_lost_is_unknown,
    why_of_an_abandoned_launch_names_the_reason,
    why_of_a_displaced_launch_names_the_launch_that_displaced_it,
    why_of_a_manual_launch_names_the_request,
);

async fn why_of_a_missed_slot_names_the_slot_that_is_caught_up_instead(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.tick_at("11:07").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 5 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:50:00Z
            late, 2026-05-04T11:07:00Z: decided by `host-1` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `latest` and the slot 2026-05-04T11:00:00Z is caught up instead").await;
    host.assert_why(Some("2026-05-04T11:00:00Z"), "
            slot, 2026-05-04T11:00:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T11:07:00Z: decided 7m after its time; caught up, since `catchup` is `latest`
            launched, 2026-05-04T11:07:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T11:07:00Z: by `host-1`: run <id>
            called, 2026-05-04T11:07:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T11:07:00Z: succeeded").await;
    // An instant within the dropped range that is no slot.
    host.assert_why(Some("2026-05-04T10:21:00Z"), "
            no_slot, 2026-05-04T10:21:00Z: no slot of cron `*/10 * * * *` (revision 1): the minute field `*/10` does not allow 21
            before, 2026-05-04T10:20:00Z: the slot before it
            after, 2026-05-04T10:30:00Z: the slot after it").await;
}

async fn why_of_a_missed_slot_names_the_catchup_policy_none(test: TestDb) {
    let policies = Policies {
        catchup: Some(Catchup::None),
        ..Policies::default()
    };
    check_missed_slot(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 6 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T11:00:00Z
            late, 2026-05-04T11:07:00Z: decided by `host-1` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `none`").await;
}

async fn why_of_a_missed_slot_names_the_catchup_window(test: TestDb) {
    let policies = Policies {
        catchup_window: Some(Duration::from_secs(1_800)),
        ..Policies::default()
    };
    check_missed_slot(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            late, 2026-05-04T11:07:00Z: decided by `host-1` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_window` is 30m").await;
}

async fn why_of_a_missed_slot_names_the_catchup_maximum(test: TestDb) {
    let policies = Policies {
        catchup: Some(Catchup::All),
        catchup_max: Some(2),
        ..Policies::default()
    };
    check_missed_slot(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 4 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:40:00Z
            late, 2026-05-04T11:07:00Z: decided by `host-1` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_max` is 2 and newer slots are caught up").await;
}

/// Require the findings about the slot 10:20, which is decided at 11:07 with the slots from 10:10 to 11:00.
async fn check_missed_slot(test: TestDb, policies: Policies, expected: &str) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), policies).await;
    host.tick_at("11:07").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), expected)
        .await;
}

async fn why_of_an_overlapping_slot_names_the_active_launch(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("* * * * *"), Policies::default()).await;
    let claimed = host.decide_and_claim("10:01").await;
    host.decide("10:02").await;
    host.assert_why(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `host-1` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now").await;
    host.finish(&claimed[0], "10:02:30").await;
    host.assert_why(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `host-1` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z").await;
}

async fn why_of_a_queued_launch_names_the_launch_before_it(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        overlap: Overlap::BufferAll,
        ..Policies::default()
    };
    host.add(cron("* * * * *"), policies).await;
    let claimed = host.decide_and_claim("10:01").await;
    host.decide("10:02").await;
    host.assert_why(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided by `host-1` with tzdata <tzdata>, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now
            outcome, 2026-05-04T10:02:00Z: queued: it waits for its turn").await;
    host.finish(&claimed[0], "10:02:30").await;
    host.tick_at("10:02:40").await;
    host.assert_why(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z
            opened, 2026-05-04T10:02:40Z: left the queue by `host-1` with tzdata <tzdata> after 40s
            claimed, 2026-05-04T10:02:40Z: by `host-1`: run <id>
            called, 2026-05-04T10:02:40Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:02:40Z: succeeded").await;
}

async fn why_of_an_on_time_launch_lists_its_decision_claim_call_and_outcome(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.tick_at("10:10").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    // The same answer for the local time, and without a time.
    host.assert_why(Some("2026-05-04 10:10"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    host.assert_why(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            coming, 2026-05-04T10:20:00Z: the next slot").await;
}

async fn why_of_a_late_launch_names_its_delay_and_its_jitter(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        jitter: Some(Duration::from_secs(120)),
        ..Policies::default()
    };
    host.add(cron("*/10 * * * *"), policies).await;
    host.tick_at("10:10:02").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided by `host-1` with tzdata <tzdata>, to wait for its fire time
            outcome, 2026-05-04T10:10:02Z: queued: it waits for its fire time, 2026-05-04T10:10:10.671286Z").await;
    host.tick_at("10:13").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided, to wait for its fire time
            waited, 2026-05-04T10:10:10.671286Z: until its fire time, 10s 671ms after its slot by its jitter
            opened, 2026-05-04T10:13:00Z: left the queue by `host-1` with tzdata <tzdata> after 2m 58s
            claimed, 2026-05-04T10:13:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:13:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:13:00Z: succeeded").await;
    host.assert_why(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then, to fire 1m 42s later by its jitter").await;
}

async fn why_of_a_failed_launch_lists_every_call(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add_calling("fail_retryable", cron("*/10 * * * *"), Policies::default())
        .await;
    host.tick_at("10:10").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            outcome, 2026-05-04T10:10:00Z: waiting until its task is called again").await;
    host.tick_at("10:10:10").await;
    host.tick_at("10:10:20").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            called, 2026-05-04T10:10:10Z: task `fail_retryable`, call 2: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:20Z
            called, 2026-05-04T10:10:20Z: task `fail_retryable`, call 3: failed (told to fail) after 0s
            outcome, 2026-05-04T10:10:20Z: failed for good (told to fail)").await;
}

async fn why_of_a_recovered_launch_lists_the_lost_run(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.decide_and_claim("10:10").await;
    host.tick_at("10:10:45").await;
    host.assert_why(
        Some("2026-05-04T10:10:00Z"),
        "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `host-1`: its lease expired
            recovered, 2026-05-04T10:10:45Z: slot 2026-05-04T10:10:00Z runs again, recovery 1 of 3: its lease expired
            claimed, 2026-05-04T10:10:45Z: by `host-1`, as a recovery: run <id>
            called, 2026-05-04T10:10:45Z: task `ok`, call 2: succeeded after 0s
            outcome, 2026-05-04T10:10:45Z: succeeded, in run 2",
    )
    .await;
}

async fn why_of_an_at_most_once_launch_whose_run_was_lost_is_unknown(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        delivery: Some(Delivery::AtMostOnce),
        ..Policies::default()
    };
    host.add(cron("*/10 * * * *"), policies).await;
    host.decide_and_claim("10:10").await;
    host.tick_at("10:10:45").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `host-1`: its lease expired
            outcome, 2026-05-04T10:10:45Z: unknown: it runs at most once, and what the lost run did is not known").await;
}

async fn why_of_an_abandoned_launch_names_the_reason(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.decide_and_claim("10:10").await;
    host.pause("10:10:20", None, None).await;
    host.tick_at("10:10:45").await;
    host.assert_why(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:10:00Z: by `host-1`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `host-1`: its lease expired
            paused, 2026-05-04T10:10:20Z: by ada
            outcome, 2026-05-04T10:10:45Z: abandoned (schedule_disabled): its schedule was paused when it was to be run again").await;
}

async fn why_of_a_displaced_launch_names_the_launch_that_displaced_it(test: TestDb) {
    let host = TestHost::new(test).await;
    let policies = Policies {
        overlap: Overlap::TerminateOther,
        ..Policies::default()
    };
    host.add(cron("* * * * *"), policies).await;
    host.decide_and_claim("10:01").await;
    host.decide("10:02").await;
    host.assert_why(Some("2026-05-04T10:01:00Z"), "
            slot, 2026-05-04T10:01:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:01:00Z: decided by `host-1` with tzdata <tzdata>, to run the package `guests`
            claimed, 2026-05-04T10:01:00Z: by `host-1`: run <id>
            outcome, 2026-05-04T10:02:00Z: cancelled, for the launch of 2026-05-04T10:02:00Z (<id>), which is open now").await;
}

async fn why_of_a_manual_launch_names_the_request(test: TestDb) {
    let host = TestHost::new(test).await;
    host.add(cron("*/10 * * * *"), Policies::default()).await;
    host.clock.advance_to(clock_time("10:03"));
    let mut tx = host.test.write().await;
    schedule_admin::trigger(&mut tx, "report", Trigger::default(), clock_time("10:03"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    host.tick_at("10:03:05").await;
    host.assert_why(Some("2026-05-04T10:03:00Z"), "
            requested, 2026-05-04T10:03:00Z: a person or a program asked for a launch besides the slots: launch <id>
            launched, 2026-05-04T10:03:00Z: decided, to run the package `guests`
            waited, 2026-05-04T10:03:00Z: for 5s, until a host with the package `guests` had free capacity
            claimed, 2026-05-04T10:03:05Z: by `host-1`: run <id>
            called, 2026-05-04T10:03:05Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:03:05Z: succeeded").await;
}
