//! Tests of a host that is lost inside a transaction while it has locks. Other hosts continue when the server ends its session.
//!
//! Each test prints how long that takes; `docs/src/guides/many-hosts.md` has the times.

use std::time::{Duration, Instant};

use campanile_store::{LaunchStatus, RunStatus};
use campanile_tests::{Backend, Cluster, HostProcess};
use rustix::process::Signal;

use crate::consistency;
use crate::proxy::Proxy;
use crate::site::{Record, Site, now};

/// A host that is lost with locks blocks what it has locked for longer than this. Otherwise the test shows nothing.
const BLOCKED_MIN: Duration = Duration::from_secs(5);
const LEASE: Duration = Duration::from_secs(5);
const RECOVERY: &str = "[recovery]\nlease = \"5s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";
const SCHEDULES: usize = 40;
/// Longer than any test.
const LONG_TASK: &str = "{ before_ms = 600000 }";

/// Start the host `lost`, which stops itself at `point`, inside a transaction.
fn lose_at(site: &Site, point: &str) -> HostProcess {
    let host = HostProcess::spawn(site.serve("lost").env("CAMPANILE_STOP_AT", point));
    host.wait_stopped();
    host
}

/// Waits until the others continue, returning how long that took.
fn go_on(
    site: &Site,
    (point, lost_at): (&str, Instant),
    others: &[&HostProcess],
    wanted: impl Fn(&Record) -> bool,
) -> Duration {
    site.record_when(point, others, wanted);
    let took = lost_at.elapsed();
    println!(
        "lost {point}: the others continued after {:.1} s",
        took.as_secs_f64()
    );
    took
}

#[test]
fn a_host_lost_while_it_decides_does_not_stop_the_others() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    site.install_schedules(SCHEDULES, "{}");
    let healthy = site.start("healthy");
    let _lost = lose_at(&site, "before_decide_commit");
    let (lost_at, slot) = (Instant::now(), now().plus(Duration::from_secs(1)));
    let lost = ("before_decide_commit", lost_at);
    let took = go_on(&site, lost, &[&healthy], |record| {
        let mut schedules = record.schedules.iter();
        schedules.all(|schedule| schedule.state.cursor_at >= slot)
    });
    assert!(took >= BLOCKED_MIN, "it had no locks: {took:?}");
}

#[test]
fn a_host_lost_while_it_claims_does_not_stop_the_others() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    // A launch that waits for its fire time is claimed by itself.
    site.install_schedules_with(SCHEDULES, "{}", "jitter = \"200ms\"");
    let healthy = site.start("healthy");
    let _lost = lose_at(&site, "before_claim_commit");
    let (lost_at, until) = (Instant::now(), now());
    let lost = ("before_claim_commit", lost_at);
    let took = go_on(&site, lost, &[&healthy], |record| {
        let mut launches = record.all_launches();
        launches.all(|launch| launch.scheduled_time > until || launch.status != LaunchStatus::Open)
    });
    assert!(took >= BLOCKED_MIN, "it had no locks: {took:?}");
}

#[test]
fn a_host_lost_while_it_finishes_does_not_stop_the_others() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    site.install_schedules(SCHEDULES, "{}");
    let healthy = site.start("healthy");
    let _lost = lose_at(&site, "before_finish_commit");
    let (lost_at, until) = (Instant::now(), now());
    let lost = ("before_finish_commit", lost_at);
    let took = go_on(&site, lost, &[&healthy], |record| {
        let mut launches = record.all_launches();
        launches
            .all(|launch| launch.scheduled_time > until || launch.status == LaunchStatus::Succeeded)
    });
    assert!(took >= BLOCKED_MIN, "it had no locks: {took:?}");
}

/// Install one launch that runs for long, and start the host `dies`, which claims it.
fn start_long_run(site: &Site) -> HostProcess {
    let schedule = format!(
        "[[schedules]]\nname = \"long\"\nat = \"2099-01-01T00:00:00Z\"\ncontext = {LONG_TASK}\n"
    );
    site.install_append(&schedule);
    let dies = site.start("dies");
    site.ok(&["schedule", "trigger", "long"]);
    site.record_when("the run begins", &[&dies], |record| runs_on(record, "dies"));
    dies
}

/// Whether the newest run is executed by this host.
fn runs_on(record: &Record, host: &str) -> bool {
    let newest = record.runs.last();
    newest.is_some_and(|run| run.status == RunStatus::Running && run.host.as_deref() == Some(host))
}

#[test]
fn a_host_lost_in_its_heartbeat_does_not_keep_others_from_marking_a_dead_host() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    let mut dies = start_long_run(&site);
    let healthy = site.start("healthy");
    // A host may mark others as dead when it has sent heartbeats for as long as a lease.
    std::thread::sleep(LEASE + Duration::from_secs(1));
    let _lost = lose_at(&site, "before_heartbeat_commit");
    dies.kill();
    let lost = ("before_heartbeat_commit", Instant::now());
    go_on(&site, lost, &[&healthy], |record| {
        runs_on(record, "healthy")
    });
}

#[test]
fn a_host_lost_in_a_recovery_does_not_keep_others_from_recovering() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    let mut dies = start_long_run(&site);
    let healthy = site.start("healthy");
    // The other host recovers first.
    healthy.signal(Signal::STOP);
    dies.kill();
    let _lost = lose_at(&site, "before_recover_commit");
    healthy.signal(Signal::CONT);
    let lost = ("before_recover_commit", Instant::now());
    let took = go_on(&site, lost, &[&healthy], |record| {
        runs_on(record, "healthy")
    });
    assert!(took >= BLOCKED_MIN, "it had no locks: {took:?}");
}

/// The lost host is alive and cut off. When the network is back, its commit is refused, and it continues.
#[test]
fn a_host_cut_off_while_it_decides_does_not_stop_the_others() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let direct = Site::on(cluster.url().clone());
    let proxy = Proxy::to(&cluster);
    direct.configure(RECOVERY);
    direct.install_schedules(SCHEDULES, "{}");
    let mut healthy = direct.start("healthy");
    let mut command = direct.serve("lost");
    command.env("CAMPANILE_DATABASE_URL", proxy.url.expose());
    command.env("CAMPANILE_STOP_AT", "before_decide_commit");
    let mut lost = HostProcess::spawn(&mut command);
    lost.wait_stopped();
    proxy.stall();
    lost.signal(Signal::CONT);
    let (lost_at, slot) = (Instant::now(), now().plus(Duration::from_secs(1)));
    let cut_off = ("by its network, deciding", lost_at);
    let took = go_on(&direct, cut_off, &[&healthy, &lost], |record| {
        let mut schedules = record.schedules.iter();
        schedules.all(|schedule| schedule.state.cursor_at >= slot)
    });
    assert!(took >= BLOCKED_MIN, "it had no locks: {took:?}");
    proxy.resume();
    lost.wait_for_line("the database answers again");
    let back = now();
    let claims_again = |record: &Record| {
        let mut runs = record.runs.iter();
        runs.any(|run| run.host.as_deref() == Some("lost") && run.started_at > back)
    };
    direct.record_when("it executes runs again", &[&healthy, &lost], claims_again);
    let record = direct.pause_and_finish(&[&healthy, &lost]);
    for host in [&mut healthy, &mut lost] {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let totals = consistency::check(&record, &direct.effects(), 3);
    println!("cut off while it decided: {totals}");
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
}
