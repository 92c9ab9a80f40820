//! Tests of the lock on a host's name, whose connection breaks.

use std::time::Duration;

use campanile_store::RunStatus;
use campanile_store::events::{self, EventKind};
use campanile_tests::{Cluster, HostProcess};
use rustix::process::Signal;

use crate::consistency;
use crate::proxy::Proxy;
use crate::site::{Site, now};

const SCHEDULES: usize = 10;

/// A network device forgets the connections: the hosts see that they broke, and the server keeps the sessions.
#[test]
fn hosts_go_on_after_a_reset_that_the_server_does_not_see() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    site.install_schedules(SCHEDULES, "{}");
    let mut hosts = [site.start("one"), site.start("two")];
    // The second reset meets the locks that were acquired after the first.
    for _ in 0..2 {
        proxy.break_connections_of_host();
        for host in &mut hosts {
            host.stays_up(Duration::from_secs(4));
        }
        let [one, two] = &hosts;
        site.wait_for_slots_after(now().plus(Duration::from_secs(1)), &[one, two]);
    }
    for host in &hosts {
        host.wait_for_line("the server still keeps this host's name locked");
    }
    let [one, two] = &hosts;
    let record = site.pause_and_finish(&[one, two]);
    for host in &mut hosts {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let totals = consistency::check(&record, &site.effects(), 3);
    println!("after two resets: {totals}");
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    assert_eq!(totals.lost_runs, 0, "{totals}");
}

/// The restart of a host finds its name locked by a session of its dead process.
#[test]
fn a_restart_waits_for_the_dead_session_of_its_host() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    site.configure("[recovery]\nlease = \"5s\"\nrenew = \"1s\"\n");
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("north");
    // The server sees no end of these connections before the proxy ends.
    proxy.break_connections_of_host();
    first.kill();
    let mut command = site.serve("north");
    command.env("CAMPANILE_DATABASE_URL", cluster.url().expose());
    let mut second = HostProcess::spawn(&mut command);
    second.wait_for_line("the name of this host is locked");
    drop(proxy);
    second.wait_for_line("serving");
    second.terminate();
    assert!(second.wait_exit().success());
}

/// The proxy keeps the dead process's session open, as HAProxy does for half an hour.
#[test]
fn a_restart_takes_its_name_although_a_proxy_keeps_the_dead_session() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    site.configure("[recovery]\nlease = \"5s\"\nrenew = \"1s\"\n");
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("north");
    proxy.break_connections_of_host();
    first.kill();
    let mut command = site.serve("north");
    command.env("CAMPANILE_DATABASE_URL", cluster.url().expose());
    let second = HostProcess::spawn(&mut command);
    second.wait_for_line("this one takes the name");
    second.wait_for_line("serving");
    site.wait_for_slots_after(now(), &[&second]);
    let mut second = second;
    let record = site.pause_and_finish(&[&second]);
    second.terminate();
    assert!(second.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    drop(proxy);
}

/// The process holding the name was only suspended, along with all its connections.
#[test]
fn a_process_whose_name_was_taken_while_it_was_suspended_stops() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let site = Site::on(cluster.url().clone());
    site.configure("[recovery]\nlease = \"5s\"\nrenew = \"1s\"\n");
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("north");
    site.wait_for_slots_after(now(), &[&first]);
    first.signal(Signal::STOP);
    let second = HostProcess::spawn(&mut site.serve("north"));
    second.wait_for_line("this one takes the name");
    second.wait_for_line("serving");
    site.wait_for_slots_after(now(), &[&second]);
    first.signal(Signal::CONT);
    let ended = first.wait_exit();
    let log = first.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(
        log.contains("another process now serves under the host name `north`"),
        "{log}"
    );
    // The first one's end doesn't disturb the other.
    site.wait_for_slots_after(now(), &[&second]);
    let mut second = second;
    let record = site.pause_and_finish(&[&second]);
    second.terminate();
    assert!(second.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    // Only the one that had the name to the end has stopped, by the record.
    let stops = site.with_db(|db| async move {
        let mut tx = db.read().await.expect("a transaction");
        let all = events::list(&mut tx, None, 1_000).await.expect("events");
        all.iter()
            .filter(|event| event.kind == EventKind::HostStopped)
            .count()
    });
    assert_eq!(stops, 1);
}

/// A second process of the same name waits for it, and gets the lock first when all connections break.
#[test]
fn a_duplicate_that_waits_does_not_recover_the_runs_of_a_live_host() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    site.install_append(
        "[[schedules]]\nname = \"long\"\nat = \"2099-01-01T00:00:00Z\"\ncontext = { before_ms = 20000 }\n",
    );
    let mut live = site.start("north");
    site.ok(&["schedule", "trigger", "long"]);
    site.record_when("the run begins", &[&live], |record| {
        record
            .runs
            .iter()
            .any(|run| run.status == RunStatus::Running)
    });
    let mut duplicate = site.serve("north");
    duplicate.env("CAMPANILE_DATABASE_URL", cluster.url().expose());
    let mut duplicate = HostProcess::spawn(&mut duplicate);
    duplicate.wait_for_line("the name of this host is locked");
    proxy.break_connections();
    let ended = duplicate.wait_exit();
    let log = duplicate.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(2), "{log}");
    assert!(log.contains("a host named `north` already serves"), "{log}");
    let record = site.record_when("the run ends", &[&live], |record| {
        record
            .runs
            .iter()
            .all(|run| run.status == RunStatus::Succeeded)
    });
    live.terminate();
    assert!(live.wait_exit().success());
    assert_eq!(record.runs.len(), 1, "{:?}", record.runs);
    let effects = site.effects();
    assert!(effects.len() == 1 && !effects[0].is_recovery, "{effects:?}");
}
