//! Tests of a Postgres server that stops or does not answer while a host serves, and recovers.

use std::time::Duration;

use campanile_tests::{Cluster, HostProcess};

use crate::consistency::{self, Totals};
use crate::proxy::Proxy;
use crate::site::{Effect, Site, now};

/// The duration of an outage, in seconds: by default, and with `CAMPANILE_LONG_TESTS`.
const OUTAGE_SECONDS: (u64, u64) = (4, 20);
const SCHEDULES: usize = 20;
/// The number of schedules whose runs take seconds.
const STALL_SCHEDULES: usize = 5;
/// The end of an outage's first log line, and the beginning of its last.
pub const LOST: &str = "trying again until it works";
pub const BACK: &str = "the database answers again";

fn outage() -> Duration {
    let (usual, long) = OUTAGE_SECONDS;
    Duration::from_secs(if crate::long() { long } else { usual })
}

#[test]
fn a_host_continues_after_postgres_was_stopped() {
    stop_postgres("", outage(), "{ after_ms = 200 }", |cluster| cluster.stop());
}

#[test]
fn a_host_continues_after_postgres_crashed() {
    stop_postgres("", outage(), "{ after_ms = 200 }", |cluster| {
        cluster.crash()
    });
}

/// The outage is longer than the lease, and the tasks sleep for longer than both. The host drops the runs, and recovers
/// them when the database is back.
#[test]
fn a_host_continues_after_an_outage_longer_than_its_lease() {
    // On a busy machine, a renewal takes longer than a second.
    let recovery = "[recovery]\nlease = \"6s\"\nrenew = \"2s\"\ninterval = \"1s\"\n";
    let record = stop_postgres(
        recovery,
        outage() + Duration::from_secs(4),
        "{ after_ms = 9000 }",
        |cluster| cluster.crash(),
    );
    assert!(
        record.recovered > 0,
        "nothing was dropped and recovered: {record}"
    );
}

/// The connections report no error, so the host must detect by itself that its leases have expired.
#[test]
fn a_host_continues_after_postgres_did_not_answer_for_longer_than_its_lease() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let proxy = Proxy::to(&cluster);
    let site = Site::on(proxy.url.clone());
    // On a busy machine, a renewal takes longer than a second.
    site.configure("[recovery]\nlease = \"6s\"\nrenew = \"2s\"\ninterval = \"1s\"\n");
    // The runs that start in the last seconds before the stall still sleep when their lease expires.
    site.install_schedules(STALL_SCHEDULES, "{ before_ms = 9000 }");
    let totals = serve_through(&site, STALL_SCHEDULES * 2, |host| {
        proxy.stall();
        let log = host.wait_for_line(LOST);
        assert!(log.contains("no answer in"), "{log}");
        host.wait_for_line("dropped runs whose lease could not be renewed in time");
        host.stays_up(outage() / 2);
        proxy.resume();
    });
    assert!(totals.lost_runs > 0, "no run was lost: {totals}");
    let recovered = |effect: &Effect| effect.is_recovery;
    assert!(site.effects().iter().any(recovered), "{totals}");
}

fn stop_postgres(
    configuration: &str,
    outage: Duration,
    context: &str,
    stop: impl FnOnce(&mut Cluster) -> Result<(), String>,
) -> Totals {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let site = Site::on(cluster.url().clone());
    site.configure(configuration);
    site.install_schedules(SCHEDULES, context);
    serve_through(&site, SCHEDULES * 2, |host| {
        stop(&mut cluster).expect("the server ends");
        host.wait_for_line(LOST);
        host.stays_up(outage);
        cluster.start_again().expect("the server starts again");
    })
}

/// Start a host, run `outage` after some `launches`, and check that the host continues without lost launches.
fn serve_through(site: &Site, launches: usize, outage: impl FnOnce(&mut HostProcess)) -> Totals {
    let mut host = site.start("host-1");
    site.record_when("the first slots", &[&host], |record| {
        record.all_launches().count() >= launches
    });
    let before = now();
    outage(&mut host);
    let back = now();
    host.wait_for_line(BACK);
    site.wait_for_slots_after(back.plus(Duration::from_secs(4)), &[&host]);
    let record = site.pause_and_finish(&[&host]);
    assert_reported_once(&host);
    host.terminate();
    assert!(host.wait_exit().success());

    let totals = consistency::check(&record, &site.effects(), 3);
    println!(
        "Postgres did not answer for {:?}: {totals}",
        back.since(before)
    );
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    assert_eq!(totals.skipped, 0, "{totals}");
    totals
}

/// Check that the host logs one line at the beginning and one at the end of an outage.
fn assert_reported_once(host: &HostProcess) {
    let log = host.stderr_lines();
    for words in [LOST, BACK] {
        let lines: Vec<&String> = log.iter().filter(|line| line.contains(words)).collect();
        assert_eq!(
            lines.len(),
            1,
            "`{words}` was logged {} times:\n{}",
            lines.len(),
            log.join("\n")
        );
    }
    // The driver must not log an error for each connection.
    let is_error =
        |line: &&String| line.contains("ERROR") || line.contains("terminating connection");
    assert_eq!(log.iter().filter(is_error).count(), 1, "{}", log.join("\n"));
}
