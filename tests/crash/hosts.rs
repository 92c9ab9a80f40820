//! Tests of two hosts on one Postgres: one host dies, or is suspended for longer than its lease.

use std::collections::BTreeSet;
use std::time::Duration;

use campanile_store::{LaunchStatus, RunStatus};
use campanile_tests::Backend;
use rustix::process::Signal;

use crate::consistency;
use crate::site::{Site, now};

/// The duration of the load, in seconds: by default, and with `CAMPANILE_LONG_TESTS`.
const LOAD_SECONDS: (u64, u64) = (20, 60);
const SCHEDULES: usize = 200;
/// The duration of each run.
const RUN_TIME: Duration = Duration::from_millis(300);
/// A busy machine keeps a host from renewing it for seconds.
const LEASE: Duration = Duration::from_secs(10);
const RECOVERY: &str = "[recovery]\nlease = \"10s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";

#[test]
fn the_other_host_executes_the_slots_of_a_killed_host_once() {
    let seconds = if crate::long() {
        LOAD_SECONDS.1
    } else {
        LOAD_SECONDS.0
    };
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    site.install_schedules(
        SCHEDULES,
        &format!("{{ after_ms = {} }}", RUN_TIME.as_millis()),
    );
    let mut stays = site.start("stays");
    let mut dies = site.start("dies");
    let begun = now();
    let half = Duration::from_secs(seconds / 2);
    site.record_when("half of the load", &[&stays, &dies], |record| {
        record.schedules.len() == SCHEDULES
            && record
                .schedules
                .iter()
                .all(|schedule| schedule.state.cursor_at >= begun.plus(half))
    });
    // Kill the host while its runs are fresh.
    site.newest_runs_when("fresh runs on the host that dies", |runs| {
        let fresh = now().minus(RUN_TIME / 2);
        runs.iter().any(|run| {
            run.status == RunStatus::Running
                && run.host.as_deref() == Some("dies")
                && run.started_at >= fresh
        })
    });
    dies.kill();
    let killed = now();
    let end = begun
        .plus(Duration::from_secs(seconds))
        .max(killed.plus(LEASE * 2 + Duration::from_secs(3)));
    site.record_when("the other half", &[&stays], |record| {
        record
            .schedules
            .iter()
            .all(|schedule| schedule.state.cursor_at >= end)
    });
    let record = site.pause_and_finish(&[&stays]);
    stays.terminate();
    assert!(stays.wait_exit().success());

    let totals = consistency::check(&record, &site.effects(), 1);
    println!(
        "{SCHEDULES} schedules every second for {seconds} s, one of two hosts killed: {totals}"
    );
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    assert_eq!(totals.skipped, 0, "{totals}");
    assert!(totals.slots >= SCHEDULES as u64 * (seconds - 1), "{totals}");
    assert!(
        totals.lost_runs > 0,
        "the killed host had no runs: {totals}"
    );
    let hosts: BTreeSet<&str> = record
        .runs
        .iter()
        .filter_map(|run| run.host.as_deref())
        .collect();
    assert_eq!(
        hosts,
        BTreeSet::from(["dies", "stays"]),
        "both hosts executed runs"
    );
    let latest = record
        .runs
        .iter()
        .filter(|run| run.is_recovery)
        .map(|run| run.started_at.since(killed))
        .max()
        .expect("a recovery");
    println!(
        "the last run was recovered {:.1} s after the kill, with a lease of {LEASE:?}",
        latest.as_secs_f64()
    );
}

#[test]
fn the_outcome_of_a_suspended_host_is_not_recorded() {
    const SHORT: u64 = 6_000;
    // Longer than the recovery can take, so that the task still sleeps when its host resumes.
    const LONG: u64 = 60_000;
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    let never = "2099-01-01T00:00:00Z";
    site.install_append(&format!(
        "[[schedules]]\nname = \"short\"\nat = \"{never}\"\ncontext = {{ before_ms = {SHORT} }}\n\
         [[schedules]]\nname = \"long\"\nat = \"{never}\"\ncontext = {{ before_ms = {LONG} }}\n"
    ));
    let mut suspended = site.start("suspended");
    let begun = now();
    for name in ["long", "short"] {
        site.ok(&["schedule", "trigger", name]);
    }
    let running = |name: &'static str, host: &'static str| {
        move |record: &crate::site::Record| {
            let mut runs = record.runs.iter().filter(|run| run.schedule == name);
            runs.next_back().is_some_and(|run| {
                run.status == RunStatus::Running && run.host.as_deref() == Some(host)
            })
        }
    };
    site.record_when("both run", &[&suspended], |record| {
        running("short", "suspended")(record) && running("long", "suspended")(record)
    });
    suspended.signal(Signal::STOP);
    let stopped = now();
    let mut takes_over = site.start("takes-over");
    // The short task may have ended there before this test looks again.
    let claimed = |name: &'static str| {
        move |record: &crate::site::Record| {
            let mut runs = record.runs.iter().filter(|run| run.schedule == name);
            runs.any(|run| run.host.as_deref() == Some("takes-over"))
        }
    };
    site.record_when("both are recovered", &[&takes_over], |record| {
        claimed("short")(record) && running("long", "takes-over")(record)
    });
    // A host takes runs over when their leases end, and marks another as dead when it has itself served for as long as a lease.
    takes_over.wait_for_line("a host died; its runs are recovered");
    // Wait until the short task's sleep is over and the long task's sleep is not.
    let rest = Duration::from_millis(SHORT).saturating_sub(now().since(stopped));
    std::thread::sleep(rest + Duration::from_millis(500));
    let slept = now().since(begun);
    assert!(
        slept < Duration::from_millis(LONG),
        "too late: after {slept:?}"
    );
    suspended.signal(Signal::CONT);
    suspended.wait_for_line("another host marked this one as dead");
    let record = site.record_when("both succeeded", &[&suspended, &takes_over], |record| {
        record.count(LaunchStatus::Succeeded) == 2
    });
    let effects = site.effects();
    let totals = consistency::check(&record, &effects, 1);
    assert_eq!(
        (totals.succeeded, totals.lost_runs, totals.recovered),
        (2, 2, 2),
        "{totals}"
    );
    let of = |name: &str| {
        let id = record.launches[name][0].id.to_string();
        effects
            .iter()
            .filter(|effect| effect.execution_id == id)
            .map(|effect| effect.is_recovery)
            .collect::<Vec<_>>()
    };
    // The task that still slept when the lease was lost never had its effect.
    assert_eq!(of("long"), [true]);
    // The short task may have had its effect, but its outcome is not recorded.
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
        "after the suspension: {totals}; the short task's effects by recovery: {:?}",
        of("short")
    );

    // The resumed host executes new launches.
    takes_over.terminate();
    assert!(takes_over.wait_exit().success());
    let since = now();
    site.install_schedules(3, "{}");
    let record = site.record_when("new launches", &[&suspended], |record| {
        record
            .runs
            .iter()
            .filter(|run| run.status == RunStatus::Succeeded && run.started_at > since)
            .count()
            >= 6
    });
    assert!(
        record
            .runs
            .iter()
            .filter(|run| run.started_at > since)
            .all(|run| run.host.as_deref() == Some("suspended"))
    );
    suspended.terminate();
    assert!(suspended.wait_exit().success());
}
