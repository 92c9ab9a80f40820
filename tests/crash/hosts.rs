//! Two hosts on one Postgres: one dies, or stands still for longer than its lease.

use std::collections::BTreeSet;
use std::time::Duration;

use campanile_store::{LaunchStatus, RunStatus};
use campanile_tests::Backend;
use rustix::process::Signal;

use crate::account;
use crate::tower::{Tower, now};

/// In the usual suite, and under `CAMPANILE_LONG_TESTS`, in seconds.
const LOAD_SECONDS: (u64, u64) = (20, 60);
const SCHEDULES: usize = 200;
/// How long each run is in its host's hands.
const HOLD: Duration = Duration::from_millis(300);
const LEASE: Duration = Duration::from_secs(5);
const RECOVERY: &str = "[recovery]\nlease = \"5s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";

#[test]
fn the_slots_of_a_killed_host_are_carried_out_once_by_the_other() {
    let seconds = if crate::long() {
        LOAD_SECONDS.1
    } else {
        LOAD_SECONDS.0
    };
    let tower = Tower::new(Backend::Postgres);
    tower.configure(RECOVERY);
    tower.install_bells(SCHEDULES, &format!("{{ after_ms = {} }}", HOLD.as_millis()));
    let mut stays = tower.start("stays");
    let mut dies = tower.start("dies");
    let begun = now();
    let half = Duration::from_secs(seconds / 2);
    tower.record_when(
        "half of the load",
        half + Duration::from_secs(20),
        &[&stays, &dies],
        |record| {
            record.schedules.len() == SCHEDULES
                && record
                    .schedules
                    .iter()
                    .all(|schedule| schedule.state.cursor_at >= begun.plus(half))
        },
    );
    // At a moment at which it has runs in its hands, and for a while yet.
    tower.newest_runs_when(
        "runs in the hands of the host that dies",
        Duration::from_secs(60),
        |runs| {
            let fresh = now().minus(HOLD / 2);
            runs.iter().any(|run| {
                run.status == RunStatus::Running
                    && run.host.as_deref() == Some("dies")
                    && run.started_at >= fresh
            })
        },
    );
    dies.kill();
    let killed = now();
    let end = begun
        .plus(Duration::from_secs(seconds))
        .max(killed.plus(LEASE * 2 + Duration::from_secs(3)));
    tower.record_when(
        "the other half",
        Duration::from_secs(seconds) + LEASE * 4,
        &[&stays],
        |record| {
            record
                .schedules
                .iter()
                .all(|schedule| schedule.state.cursor_at >= end)
        },
    );
    let record = tower.quiet(Duration::from_secs(20), &[&stays]);
    stays.terminate();
    assert!(stays.wait_exit().success());

    let account = account::check(&record, &tower.effects(), 1);
    println!(
        "{SCHEDULES} schedules every second for {seconds} s, one of two hosts killed: {account}"
    );
    assert_eq!(account.succeeded, account.launched, "{account}");
    assert_eq!(account.skipped, 0, "{account}");
    assert!(
        account.slots >= SCHEDULES as u64 * (seconds - 1),
        "{account}"
    );
    assert!(
        account.lost_runs > 0,
        "the killed host had nothing in its hands: {account}"
    );
    let hosts: BTreeSet<&str> = record
        .runs
        .iter()
        .filter_map(|run| run.host.as_deref())
        .collect();
    assert_eq!(hosts, BTreeSet::from(["dies", "stays"]), "both took part");
    let latest = record
        .runs
        .iter()
        .filter(|run| run.is_recovery)
        .map(|run| run.started_at.since(killed))
        .max()
        .expect("a recovery");
    println!(
        "the last run was taken over {:.1} s after the kill, with a lease of {LEASE:?}",
        latest.as_secs_f64()
    );
    assert!(latest <= LEASE + Duration::from_secs(5), "{latest:?}");
}

#[test]
fn the_outcome_of_a_host_that_stood_still_is_not_applied() {
    const SHORT: u64 = 6_000;
    // Longer than the takeover may ever take, so that it is still asleep when its host goes on.
    const LONG: u64 = 30_000;
    let tower = Tower::new(Backend::Postgres);
    tower.configure(RECOVERY);
    let slot = now().plus(Duration::from_secs(3));
    tower.install_append(&format!(
        "[[schedules]]\nname = \"short\"\nat = \"{slot}\"\ncontext = {{ before_ms = {SHORT} }}\n\
         [[schedules]]\nname = \"long\"\nat = \"{slot}\"\ncontext = {{ before_ms = {LONG} }}\n"
    ));
    let mut still = tower.start("still");
    let running = |name: &'static str, host: &'static str| {
        move |record: &crate::tower::Record| {
            let mut runs = record.runs.iter().filter(|run| run.schedule == name);
            runs.next_back().is_some_and(|run| {
                run.status == RunStatus::Running && run.host.as_deref() == Some(host)
            })
        }
    };
    tower.record_when("both run", Duration::from_secs(20), &[&still], |record| {
        running("short", "still")(record) && running("long", "still")(record)
    });
    still.signal(Signal::STOP);
    let mut takes_over = tower.start("takes-over");
    tower.record_when(
        "both are taken over",
        LEASE + Duration::from_secs(8),
        &[&takes_over],
        |record| running("short", "takes-over")(record) && running("long", "takes-over")(record),
    );
    // Until the short one's sleep is over and the long one's is not.
    let rest = Duration::from_millis(SHORT).saturating_sub(now().since(slot));
    std::thread::sleep(rest + Duration::from_millis(500));
    let slept = now().since(slot);
    assert!(
        slept < Duration::from_millis(LONG),
        "too late: after {slept:?}"
    );
    still.signal(Signal::CONT);
    still.wait_for_line("another host marked this one as dead");
    let record = tower.record_when(
        "both succeeded",
        Duration::from_secs(60),
        &[&still, &takes_over],
        |record| record.count(LaunchStatus::Succeeded) == 2,
    );
    let effects = tower.effects();
    let account = account::check(&record, &effects, 1);
    assert_eq!(
        (account.succeeded, account.lost_runs, account.recovered),
        (2, 2, 2),
        "{account}"
    );
    let of = |name: &str| {
        let id = record.launches[name][0].id.to_string();
        effects
            .iter()
            .filter(|effect| effect.execution_id == id)
            .map(|effect| effect.is_recovery)
            .collect::<Vec<_>>()
    };
    // What it was about to do when it lost the lease, it never did.
    assert_eq!(of("long"), [true]);
    // What it did before it could know is done; its outcome is not on the record.
    assert!(
        of("short")
            .iter()
            .filter(|is_recovery| **is_recovery)
            .count()
            == 1,
        "{effects:?}"
    );
    for run in &record.runs {
        let state = if run.is_recovery {
            RunStatus::Succeeded
        } else {
            RunStatus::Lost
        };
        assert_eq!(run.status, state, "{run:?}");
    }
    println!(
        "after standing still: {account}; the short task's effects by recovery: {:?}",
        of("short")
    );

    // It goes on with new launches.
    takes_over.terminate();
    assert!(takes_over.wait_exit().success());
    let since = now();
    tower.install_bells(3, "{}");
    let record = tower.record_when(
        "new launches",
        Duration::from_secs(20),
        &[&still],
        |record| {
            record
                .runs
                .iter()
                .filter(|run| run.status == RunStatus::Succeeded && run.started_at > since)
                .count()
                >= 6
        },
    );
    assert!(
        record
            .runs
            .iter()
            .filter(|run| run.started_at > since)
            .all(|run| run.host.as_deref() == Some("still"))
    );
    still.terminate();
    assert!(still.wait_exit().success());
}
