//! Tests of a primary that crashes while a host serves, and of its standby, which is promoted.

use std::time::Duration;

use campanile_store::launch::LaunchRow;
use campanile_store::{Db, LaunchStatus, probe};
use campanile_tests::{Cluster, HostProcess};

use crate::consistency;
use crate::outage::{BACK, LOST};
use crate::site::{Record, Site, is_unfinished, now};

const SCHEDULES: usize = 20;

/// A primary and its standby, and a site that has the addresses of both.
struct Pair {
    primary: Cluster,
    standby: Cluster,
    site: Site,
}

impl Pair {
    fn start() -> Pair {
        let primary = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
        let standby = primary.standby().unwrap_or_else(|line| panic!("{line}"));
        let ports = [primary.port(), standby.port()];
        let servers = ports.map(|port| format!("127.0.0.1:{port}")).join(",");
        let url = primary
            .url()
            .expose()
            .replace(&format!("127.0.0.1:{}", ports[0]), &servers);
        let url = format!("{url}?target_session_attrs=read-write");
        let site = Site::on(url.parse().expect("an address of two servers"));
        Pair {
            primary,
            standby,
            site,
        }
    }

    /// Start a host, and wait until launches of `slots` slots of each schedule have succeeded.
    fn serve(&self, slots: usize) -> HostProcess {
        let host = self.site.start("host-1");
        self.wait_for_launches(&host, slots);
        host
    }

    fn wait_for_launches(&self, host: &HostProcess, slots: usize) {
        self.site.record_when("launches", &[host], |record| {
            record.count(LaunchStatus::Succeeded) >= slots * SCHEDULES
        });
    }

    /// Let the primary crash, promote the standby, and wait until the host has launched slots of after that.
    fn fail_over(&mut self, host: &HostProcess) {
        self.primary.crash().expect("the primary ends");
        host.wait_for_line(LOST);
        let promoted = now();
        self.standby.promote().expect("the standby accepts writes");
        host.wait_for_line(BACK);
        println!(
            "the host works again {:?} after the promotion",
            now().since(promoted)
        );
        self.site
            .wait_for_slots_after(promoted.plus(Duration::from_secs(3)), &[host]);
    }

    /// Stop the launches and the host. Check that the record has one decision for each slot, and return it.
    fn finish(&self, mut host: HostProcess) -> Record {
        let record = self.site.pause_and_finish(&[&host]);
        host.terminate();
        assert!(host.wait_exit().success());
        let totals = consistency::check(&record, &self.site.effects(), 3);
        println!("after the promotion: {totals}");
        assert_eq!((totals.skipped, totals.failed), (0, 0), "{totals}");
        record
    }

    fn verify(&self) {
        let mut command = self.site.command(campanile_tests::campanile_binary());
        let output = command
            .args(["audit", "verify"])
            .output()
            .expect("the command runs");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
    }
}

#[test]
fn a_synchronous_standby_has_every_launch() {
    let mut pair = Pair::start();
    let set = pair.primary.set("synchronous_standby_names = 'standby'");
    set.expect("a running server");
    pair.site.install_schedules(SCHEDULES, "{ after_ms = 200 }");
    let host = pair.serve(3);
    pair.fail_over(&host);
    let record = pair.finish(host);
    let executed = pair.site.effects().len();
    let runs = record.runs.len();
    assert!(executed <= runs, "{executed} effects of {runs} runs");
    pair.verify();
}

/// The primary stops accepting writes without closing any connection.
#[test]
fn a_primary_that_becomes_read_only_is_left_for_its_standby() {
    let mut pair = Pair::start();
    let set = pair.primary.set("synchronous_standby_names = 'standby'");
    set.expect("a running server");
    pair.site.install_schedules(SCHEDULES, "{ after_ms = 200 }");
    let host = pair.serve(3);
    let demoted = pair.primary.set("default_transaction_read_only = 'on'");
    demoted.expect("a running server");
    let said = host.wait_for_line(LOST);
    assert!(said.contains("accepts no writes"), "{said}");
    pair.standby.promote().expect("the standby accepts writes");
    host.wait_for_line(BACK);
    pair.site
        .wait_for_slots_after(now().plus(Duration::from_secs(1)), &[&host]);
    let sessions = "SELECT CAST(count(*) AS TEXT) FROM pg_stat_activity
        WHERE application_name = 'campanile' AND pid <> pg_backend_pid()";
    let old = pair.site.block_on(async {
        let primary = Db::open(pair.primary.url()).await.expect("an open server");
        let mut tx = primary.read().await.expect("a transaction");
        let rows = probe::rows(&mut tx, sessions).await.expect("a row");
        rows[0][0].clone()
    });
    assert_eq!(old, "0", "sessions on the former primary");
    let record = pair.finish(host);
    let executed = pair.site.effects().len();
    let runs = record.runs.len();
    assert!(executed <= runs, "{executed} effects of {runs} runs");
    pair.verify();
}

/// Let a host launch slots that the standby does not receive, and fail over. Return the record, and the launches that have
/// more than one effect.
fn lag(policies: &str) -> (Record, usize) {
    let mut pair = Pair::start();
    pair.site.configure(
        "[audit]\ninterval = \"1s\"\n[recovery]\nlease = \"4s\"\nrenew = \"1s\"\ninterval = \"1s\"\n",
    );
    pair.site
        .install_schedules_with(SCHEDULES, "{ after_ms = 20 }", policies);
    let host = pair.serve(2);
    let set = pair.standby.set("primary_conninfo = ''");
    set.expect("a running server");
    let before = pair.site.record().all_launches().count();
    pair.wait_for_launches(&host, before / SCHEDULES + 4);
    pair.fail_over(&host);
    let back = now();
    host.wait_for_line("the database lost the record of");
    // On the record of the standby, the runs of its last slot are still running. They are lost.
    pair.site.record_when("no lost run", &[&host], |record| {
        let mut launches = record.all_launches();
        launches.all(|launch| launch.scheduled_time > back || !is_unfinished(launch.status))
    });
    let record = pair.finish(host);
    let effects = pair.site.effects();
    let mut repeated = 0;
    for launch in record.all_launches() {
        let id = launch.id.to_string();
        let mut of_launch = effects.iter().filter(|effect| effect.execution_id == id);
        of_launch.next();
        let again: Vec<_> = of_launch.collect();
        repeated += usize::from(!again.is_empty());
        assert!(
            again.iter().all(|effect| effect.is_recovery),
            "{launch:?}: {again:?}"
        );
    }
    pair.verify();
    (record, repeated)
}

#[test]
fn a_host_marks_the_runs_that_a_lagging_standby_does_not_know() {
    let (record, repeated) = lag("");
    let succeeded = |launch: &LaunchRow| launch.status == LaunchStatus::Succeeded;
    assert!(record.all_launches().all(succeeded), "{}", record.shown());
    assert!(repeated >= SCHEDULES, "{repeated} launches ran again");
}

#[test]
fn a_host_does_not_repeat_a_launch_at_most_once_that_a_lagging_standby_does_not_know() {
    let (record, repeated) = lag("delivery = \"at_most_once\"");
    let launches = record.all_launches();
    let unknown = launches
        .filter(|launch| launch.status == LaunchStatus::Unknown)
        .count();
    assert!(unknown >= SCHEDULES, "{unknown} launches are unknown");
    assert_eq!(repeated, 0);
}
