//! Tests of stop signals at critical times: the host exits within a bounded time and reports how.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use campanile_store::{DatabaseUrl, LaunchStatus, RunStatus};
use campanile_tests::{Backend, Cluster, HostProcess, cluster};
use rustix::process::Signal;

use crate::consistency;
use crate::outage::LOST;
use crate::proxy::Proxy;
use crate::site::{Site, now};

/// The times of the signal after the start, in milliseconds.
const DELAYS_MS: [u64; 8] = [0, 10, 30, 60, 120, 240, 480, 960];

#[test]
fn a_host_that_waits_for_its_database_stops_on_a_signal() {
    let port = cluster::free_port().expect("a port");
    let url: DatabaseUrl = format!("postgres://u:p@127.0.0.1:{port}/d")
        .parse()
        .expect("an address");
    let site = Site::on(url);
    let mut host = HostProcess::spawn(&mut site.serve("host-1"));
    host.wait_for_line("trying again in");
    host.terminate();
    assert!(host.wait_exit().success());
    host.wait_for_line("stopped before the database answered");
}

#[test]
fn a_signal_during_the_start_leaves_a_usable_database() {
    for backend in Backend::ALL {
        let site = Site::new(backend);
        site.install_schedules(3, "{}");
        let mut ends = Vec::new();
        for delay in DELAYS_MS {
            let mut host = HostProcess::spawn(&mut site.serve("host-1"));
            std::thread::sleep(Duration::from_millis(delay));
            host.terminate();
            let status = host.wait_exit();
            // Before the host handles signals, a signal ends the process.
            let killed = status.signal() == Some(Signal::TERM.as_raw());
            assert!(
                status.success() || killed,
                "after {delay} ms: {status}\n{}",
                host.stderr_lines().join("\n")
            );
            ends.push(if killed { "by the signal" } else { "cleanly" });
        }
        println!(
            "stopped {DELAYS_MS:?} ms after the start on {}: {ends:?}",
            backend.name()
        );
        let mut host = site.start("host-1");
        host.terminate();
        assert!(host.wait_exit().success());
        let mut host = site.start("host-1");
        let since = now();
        site.wait_for_slots_after(since, &[&host]);
        let record = site.pause_and_finish(&[&host]);
        host.terminate();
        assert!(host.wait_exit().success());
        let totals = consistency::check(&record, &site.effects(), 3);
        assert_eq!(totals.schedules, 3, "{totals}");
        assert_eq!(totals.succeeded, totals.launched, "{totals}");
    }
}

/// A short drain.
const SHORT_DRAIN: &str = "[host]\ndrain = \"1s\"\n";

/// Start a host with a task that sleeps for longer than the test takes.
fn start_busy(site: &Site, configuration: &str) -> HostProcess {
    site.configure(configuration);
    site.install_append(
        "[[schedules]]\nname = \"long\"\nat = \"2099-01-01T00:00:00Z\"\ncontext = { before_ms = 600000 }\n",
    );
    let host = site.start("host-1");
    site.ok(&["schedule", "trigger", "long"]);
    site.record_when("a task runs", &[&host], |record| {
        record.count(LaunchStatus::Running) == 1
    });
    host
}

#[test]
fn a_second_signal_ends_the_host_at_once() {
    let site = Site::new(Backend::Sqlite);
    let mut host = start_busy(&site, "");
    host.terminate();
    host.wait_for_line("stopping: no new launches");
    host.terminate();
    let status = host.wait_exit();
    assert_eq!(status.code(), Some(1));
    host.wait_for_line("second stop signal");
    recovers(&site);
}

#[test]
fn a_host_hands_back_runs_that_do_not_end_in_time() {
    for backend in Backend::ALL {
        let site = Site::new(backend);
        let mut host = start_busy(&site, SHORT_DRAIN);
        host.terminate();
        assert!(host.wait_exit().success());
        let line = host.wait_for_line("handed_back=");
        assert!(line.contains("handed_back=1"), "{line}");
        let record = site.record();
        assert_eq!(record.count(LaunchStatus::Open), 1, "{}", record.shown());
        assert_eq!(record.runs[0].status, RunStatus::Lost);
        recovers(&site);
    }
}

#[test]
fn a_host_stops_while_its_database_is_stopped() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let site = Site::on(cluster.url().clone());
    let mut host = start_busy(&site, SHORT_DRAIN);
    cluster.stop().expect("the server ends");
    host.wait_for_line(LOST);
    exits_with_an_error(&mut host);
    cluster.start_again().expect("the server starts again");
    recovers(&site);
}

/// The connections report no error, so the host's queries would wait for ever.
#[test]
fn a_host_stops_while_its_database_does_not_answer() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    let mut host = start_busy(&site, SHORT_DRAIN);
    proxy.stall();
    host.wait_for_line(LOST);
    exits_with_an_error(&mut host);
    proxy.resume();
    recovers(&site);
}

/// Stop the host, and check that it exits within the drain and the database time-out, with an error.
fn exits_with_an_error(host: &mut HostProcess) {
    host.terminate();
    let stopped = Instant::now();
    let status = host.wait_exit();
    let took = stopped.elapsed().as_secs_f64();
    let log = host.stderr_lines();
    let last = log.last().map_or("", String::as_str);
    println!("the host exited after {took:.1} s without its database: {last}");
    assert_eq!(status.code(), Some(1), "{}", log.join("\n"));
    assert!(last.starts_with("error: "), "{}", log.join("\n"));
}

/// Check that a restarted host recovers the run.
fn recovers(site: &Site) {
    let host = site.start("host-1");
    site.record_when("the run is recovered", &[&host], |record| {
        let runs = record.runs.iter();
        let states: Vec<_> = runs.map(|run| (run.status, run.is_recovery)).collect();
        states == [(RunStatus::Lost, false), (RunStatus::Running, true)]
    });
}
