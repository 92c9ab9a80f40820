//! Told to stop at an awkward moment: it ends within a bounded time, and says how.

use std::os::unix::process::ExitStatusExt as _;
use std::time::{Duration, Instant};

use campanile_store::{DatabaseUrl, LaunchStatus, RunStatus};
use campanile_tests::{Backend, Cluster, HostProcess, cluster};
use rustix::process::Signal;

use crate::account;
use crate::line::Line;
use crate::outage::LOST;
use crate::tower::{Tower, now};

/// Moments after the start, in milliseconds.
const MOMENTS_MS: [u64; 8] = [0, 10, 30, 60, 120, 240, 480, 960];

#[test]
fn a_host_that_waits_for_its_database_stops_when_told() {
    let port = cluster::free_port().expect("a port");
    let url: DatabaseUrl = format!("postgres://u:p@127.0.0.1:{port}/d")
        .parse()
        .expect("an address");
    let tower = Tower::on(url);
    let mut host = HostProcess::spawn(&mut tower.serve("tower"));
    host.wait_for_line("trying again in");
    host.terminate();
    assert!(host.wait_exit_within(Duration::from_secs(3)).success());
    host.wait_for_line("stopped before the database answered");
}

#[test]
fn a_host_that_is_told_to_stop_while_it_starts_leaves_nothing_behind() {
    for backend in Backend::ALL {
        let tower = Tower::new(backend);
        tower.install_bells(3, "{}");
        let mut ends = Vec::new();
        for moment in MOMENTS_MS {
            let mut host = HostProcess::spawn(&mut tower.serve("tower"));
            std::thread::sleep(Duration::from_millis(moment));
            host.terminate();
            let status = host.wait_exit_within(Duration::from_secs(10));
            // Before it has begun to listen for signals, one ends it as it ends any process.
            let unheard = status.signal() == Some(Signal::TERM.as_raw());
            assert!(
                status.success() || unheard,
                "after {moment} ms: {status}\n{}",
                host.stderr_lines().join("\n")
            );
            ends.push(if unheard { "by the signal" } else { "in order" });
        }
        println!(
            "told to stop {MOMENTS_MS:?} ms after the start on {}: {ends:?}",
            backend.name()
        );
        let mut host = tower.start("tower");
        host.terminate();
        assert!(host.wait_exit_within(Duration::from_secs(10)).success());
        let mut host = tower.start("tower");
        let since = now();
        tower.rings_past(since, &[&host]);
        let record = tower.quiet(Duration::from_secs(20), &[&host]);
        host.terminate();
        assert!(host.wait_exit().success());
        let account = account::check(&record, &tower.effects(), 3);
        assert_eq!(account.schedules, 3, "{account}");
        assert_eq!(account.succeeded, account.launched, "{account}");
    }
}

/// Little time to end in.
const SHORT_DRAIN: &str = "[host]\ndrain = \"1s\"\n";

/// A tower on which one task sleeps for as long as the test may take.
fn busy(tower: &Tower, configuration: &str) -> HostProcess {
    tower.configure(configuration);
    let slot = now().plus(Duration::from_secs(3));
    tower.install_append(&format!(
        "[[schedules]]\nname = \"long\"\nat = \"{slot}\"\ncontext = {{ before_ms = 60000 }}\n"
    ));
    let host = tower.start("tower");
    tower.record_when("a task runs", Duration::from_secs(20), &[&host], |record| {
        record.count(LaunchStatus::Running) == 1
    });
    host
}

#[test]
fn a_host_that_is_told_twice_ends_at_once() {
    let tower = Tower::new(Backend::Sqlite);
    let mut host = busy(&tower, "");
    host.terminate();
    host.wait_for_line("stopping: no new launches");
    host.terminate();
    let status = host.wait_exit_within(Duration::from_secs(3));
    assert_eq!(status.code(), Some(1));
    host.wait_for_line("second stop signal");
    runs_again(&tower);
}

#[test]
fn a_host_hands_back_what_does_not_end_in_time() {
    for backend in Backend::ALL {
        let tower = Tower::new(backend);
        let mut host = busy(&tower, SHORT_DRAIN);
        host.terminate();
        assert!(host.wait_exit_within(Duration::from_secs(8)).success());
        let line = host.wait_for_line("stopped");
        assert!(line.contains("handed_back=1"), "{line}");
        let record = tower.record();
        assert_eq!(record.count(LaunchStatus::Open), 1, "{}", record.shown());
        assert_eq!(record.runs[0].status, RunStatus::Lost);
        runs_again(&tower);
    }
}

#[test]
fn a_host_whose_database_is_away_stops_when_told() {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let tower = Tower::on(cluster.url().clone());
    let mut host = busy(&tower, SHORT_DRAIN);
    cluster.stop().expect("the server ends");
    host.wait_for_line(LOST);
    ends_without_last_words(&mut host);
    cluster.start_again().expect("the server starts again");
    runs_again(&tower);
}

/// No error comes: what the host is in the middle of would wait for ever.
#[test]
fn a_host_whose_database_is_silent_stops_when_told() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let line = Line::to(&cluster);
    let tower = Tower::on(line.url.clone());
    let recovery = "[recovery]\nlease = \"4s\"\nrenew = \"1s\"\n";
    let mut host = busy(&tower, &format!("{SHORT_DRAIN}{recovery}"));
    line.fall_silent();
    host.wait_for_line(LOST);
    ends_without_last_words(&mut host);
    line.speak();
    runs_again(&tower);
}

/// Told to stop, it ends within its drain and what it waits for the database, and says that it could not do all.
fn ends_without_last_words(host: &mut HostProcess) {
    host.terminate();
    let told = Instant::now();
    let status = host.wait_exit_within(Duration::from_secs(40));
    let took = told.elapsed().as_secs_f64();
    let said = host.stderr_lines();
    let last = said.last().map_or("", String::as_str);
    println!("without its database it ended after {took:.1} s: {last}");
    assert_eq!(status.code(), Some(1), "{}", said.join("\n"));
    assert!(last.starts_with("error: "), "{}", said.join("\n"));
}

/// The next life recovers the one run that the last one left.
fn runs_again(tower: &Tower) {
    let host = tower.start("tower");
    tower.record_when(
        "it runs again",
        Duration::from_secs(20),
        &[&host],
        |record| {
            let runs = record.runs.iter();
            let states: Vec<_> = runs.map(|run| (run.status, run.is_recovery)).collect();
            states == [(RunStatus::Lost, false), (RunStatus::Running, true)]
        },
    );
}
