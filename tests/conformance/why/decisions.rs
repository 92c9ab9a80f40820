//! Slots that were decided, and what became of them.

use std::time::Duration;

use campanile_engine::schedule_admin::{self, Trigger};
use campanile_schedule::policy::{Catchup, Delivery, Overlap, Policies};
use campanile_tests::{TestDb, on_both};

use super::stage::{Stage, cron, time};

on_both!(
    it_was_missed_and_another_stands_for_it,
    it_was_missed_and_nothing_is_caught_up,
    it_was_missed_by_more_than_the_window,
    it_was_missed_and_newer_ones_are_caught_up,
    it_overlapped,
    it_waited_for_its_turn,
    it_was_launched_in_time_and_succeeded,
    it_was_a_little_late_and_waited_for_its_jitter,
    its_task_failed_again_and_again,
    its_run_was_lost_and_it_was_run_again,
    it_was_to_be_run_at_most_once,
    it_was_given_up,
    it_made_way_for_a_later_one,
    a_person_asked_for_it,
);

async fn it_was_missed_and_another_stands_for_it(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("11:07").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: one of 5 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:50:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `latest` and the slot 2026-05-04T11:00:00Z is caught up instead").await;
    stage.tells(Some("2026-05-04T11:00:00Z"), "
            slot, 2026-05-04T11:00:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T11:07:00Z: decided 7m after its time; caught up, since `catchup` is `latest`
            launched, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T11:07:00Z: by `tower`: run <id>
            called, 2026-05-04T11:07:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T11:07:00Z: succeeded").await;
    // Inside the range, and no slot.
    stage.tells(Some("2026-05-04T10:21:00Z"), "
            no_slot, 2026-05-04T10:21:00Z: no slot of cron `*/10 * * * *` (revision 1): the minute field `*/10` does not allow 21
            before, 2026-05-04T10:20:00Z: the slot before it
            after, 2026-05-04T10:30:00Z: the slot after it").await;
}

async fn it_was_missed_and_nothing_is_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::None,
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 6 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T11:00:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup` is `none`").await;
}

async fn it_was_missed_by_more_than_the_window(test: TestDb) {
    let policies = Policies {
        catchup_window: Some(Duration::from_secs(1_800)),
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 3 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:30:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_window` is 30m").await;
}

async fn it_was_missed_and_newer_ones_are_caught_up(test: TestDb) {
    let policies = Policies {
        catchup: Catchup::All,
        catchup_max: Some(2),
        ..Policies::default()
    };
    missed(test, policies, "
            slot, 2026-05-04T10:20:00Z: one of 4 slots of cron `*/10 * * * *` (revision 1) that were dropped together, from 2026-05-04T10:10:00Z to 2026-05-04T10:40:00Z
            late, 2026-05-04T11:07:00Z: decided by `tower` with tzdata <tzdata>, 47m after its time; skipped, since `catchup_max` is 2 and newer slots are caught up").await;
}

/// The findings about the slot 10:20, which was decided at 11:07 with the slots from 10:10 to 11:00.
async fn missed(test: TestDb, policies: Policies, expected: &str) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("11:07").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), expected).await;
}

async fn it_overlapped(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("* * * * *"), Policies::default()).await;
    let works = stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `tower` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now").await;
    stage.end(&works[0], "10:02:30").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            overlapped, 2026-05-04T10:02:00Z: skipped by `tower` with tzdata <tzdata>, since `overlap` is `skip`, beside the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z").await;
}

async fn it_waited_for_its_turn(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        overlap: Overlap::BufferAll,
        ..Policies::default()
    };
    stage.add(cron("* * * * *"), policies).await;
    let works = stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided by `tower` with tzdata <tzdata>, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which is running now
            outcome, 2026-05-04T10:02:00Z: queued: it waits for its turn").await;
    stage.end(&works[0], "10:02:30").await;
    stage.pass_to("10:02:40").await;
    stage.tells(Some("2026-05-04T10:02:00Z"), "
            slot, 2026-05-04T10:02:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            queued, 2026-05-04T10:02:00Z: decided, to wait for its turn behind the launch of 2026-05-04T10:01:00Z (<id>, run <id>), which succeeded at 2026-05-04T10:02:30Z
            turn, 2026-05-04T10:02:40Z: opened by `tower` with tzdata <tzdata> after 40s
            taken, 2026-05-04T10:02:40Z: by `tower`: run <id>
            called, 2026-05-04T10:02:40Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:02:40Z: succeeded").await;
}

async fn it_was_launched_in_time_and_succeeded(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    // The same by what the clock shows, and without a time.
    stage.tells(Some("2026-05-04 10:10"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded").await;
    stage.tells(None, "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:10:00Z: succeeded
            coming, 2026-05-04T10:20:00Z: the next slot").await;
}

async fn it_was_a_little_late_and_waited_for_its_jitter(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        jitter: Some(Duration::from_secs(120)),
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.pass_to("10:10:02").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided by `tower` with tzdata <tzdata>, to wait for its fire time
            outcome, 2026-05-04T10:10:02Z: queued: it waits for its fire time, 2026-05-04T10:10:10.671286Z").await;
    stage.pass_to("10:13").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            late, 2026-05-04T10:10:02Z: decided 2s after its time, within the grace
            queued, 2026-05-04T10:10:02Z: decided, to wait for its fire time
            waited, 2026-05-04T10:10:10.671286Z: until its fire time, 10s 671ms after its slot by its jitter
            turn, 2026-05-04T10:13:00Z: opened by `tower` with tzdata <tzdata> after 2m 58s
            taken, 2026-05-04T10:13:00Z: by `tower`: run <id>
            called, 2026-05-04T10:13:00Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:13:00Z: succeeded").await;
    stage.tells(Some("2026-05-04T10:20:00Z"), "
            slot, 2026-05-04T10:20:00Z: a slot of cron `*/10 * * * *` (revision 1)
            coming, 2026-05-04T10:20:00Z: it will be decided then, to fire 1m 42s later by its jitter").await;
}

async fn its_task_failed_again_and_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage
        .add_calling("fail_retryable", cron("*/10 * * * *"), Policies::default())
        .await;
    stage.pass_to("10:10").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            outcome, 2026-05-04T10:10:00Z: waiting until its task is called again").await;
    stage.pass_to("10:10:10").await;
    stage.pass_to("10:10:20").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            called, 2026-05-04T10:10:00Z: task `fail_retryable`, call 1: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:10Z
            called, 2026-05-04T10:10:10Z: task `fail_retryable`, call 2: failed (told to fail) after 0s; to be called again at 2026-05-04T10:10:20Z
            called, 2026-05-04T10:10:20Z: task `fail_retryable`, call 3: failed (told to fail) after 0s
            outcome, 2026-05-04T10:10:20Z: failed for good (told to fail)").await;
}

async fn its_run_was_lost_and_it_was_run_again(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pass_to("10:10:45").await;
    stage
        .tells(
            Some("2026-05-04T10:10:00Z"),
            "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease expired
            recovered, 2026-05-04T10:10:45Z: opened again, recovery 1 of 3: its lease expired
            taken, 2026-05-04T10:10:45Z: by `tower`, as a recovery: run <id>
            called, 2026-05-04T10:10:45Z: task `ok`, call 2: succeeded after 0s
            outcome, 2026-05-04T10:10:45Z: succeeded, in run 2",
        )
        .await;
}

async fn it_was_to_be_run_at_most_once(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        delivery: Delivery::AtMostOnce,
        ..Policies::default()
    };
    stage.add(cron("*/10 * * * *"), policies).await;
    stage.begin("10:10").await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease expired
            outcome, 2026-05-04T10:10:45Z: unknown: it runs at most once, and what the lost run did is not known").await;
}

async fn it_was_given_up(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.begin("10:10").await;
    stage.pause("10:10:20", None, None).await;
    stage.pass_to("10:10:45").await;
    stage.tells(Some("2026-05-04T10:10:00Z"), "
            slot, 2026-05-04T10:10:00Z: a slot of cron `*/10 * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:10:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:10:00Z: by `tower`: run <id>
            lost, 2026-05-04T10:10:45Z: the run of `tower`: its lease expired
            paused, 2026-05-04T10:10:20Z: by ada
            outcome, 2026-05-04T10:10:45Z: abandoned (schedule_disabled): its schedule was paused when it was to be run again").await;
}

async fn it_made_way_for_a_later_one(test: TestDb) {
    let stage = Stage::new(test).await;
    let policies = Policies {
        overlap: Overlap::TerminateOther,
        ..Policies::default()
    };
    stage.add(cron("* * * * *"), policies).await;
    stage.begin("10:01").await;
    stage.decide("10:02").await;
    stage.tells(Some("2026-05-04T10:01:00Z"), "
            slot, 2026-05-04T10:01:00Z: a slot of cron `* * * * *` (revision 1), launch <id>
            launched, 2026-05-04T10:01:00Z: decided by `tower` with tzdata <tzdata>, to run the package `guests`
            taken, 2026-05-04T10:01:00Z: by `tower`: run <id>
            outcome, 2026-05-04T10:02:00Z: cancelled, for the launch of 2026-05-04T10:02:00Z (<id>), which is open now").await;
}

async fn a_person_asked_for_it(test: TestDb) {
    let stage = Stage::new(test).await;
    stage.add(cron("*/10 * * * *"), Policies::default()).await;
    stage.clock.advance_to(time("10:03"));
    let mut tx = stage.test.write().await;
    schedule_admin::trigger(&mut tx, "bell", Trigger::default(), time("10:03"))
        .await
        .unwrap();
    tx.commit().await.unwrap();
    stage.pass_to("10:03:05").await;
    stage.tells(Some("2026-05-04T10:03:00Z"), "
            asked, 2026-05-04T10:03:00Z: a person or a program asked for a launch besides the slots: launch <id>
            launched, 2026-05-04T10:03:00Z: decided, to run the package `guests`
            waited, 2026-05-04T10:03:00Z: for 5s, until a host with the package `guests` had free capacity
            taken, 2026-05-04T10:03:05Z: by `tower`: run <id>
            called, 2026-05-04T10:03:05Z: task `ok`, call 1: succeeded after 0s
            outcome, 2026-05-04T10:03:05Z: succeeded").await;
}
