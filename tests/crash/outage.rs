//! The Postgres server goes away under a serving host, and comes back.

use std::time::{Duration, Instant};

use campanile::db::DatabaseUrl;
use campanile_tests::{Cluster, HostProcess};

use crate::account;
use crate::tower::{Tower, now};

/// In the usual suite, and under `CAMPANILE_LONG_TESTS`, in seconds.
const OUTAGE_SECONDS: (u64, u64) = (4, 20);
const SCHEDULES: usize = 20;
const LOST: &str = "trying again until it works";
const BACK: &str = "the database answers again";

fn outage() -> Duration {
    let (usual, long) = OUTAGE_SECONDS;
    Duration::from_secs(if crate::long() { long } else { usual })
}

#[test]
fn a_host_goes_on_after_its_postgres_was_stopped_in_order() {
    go_away("", outage(), "{ after_ms = 200 }", |cluster| cluster.stop());
}

#[test]
fn a_host_goes_on_after_its_postgres_crashed() {
    go_away("", outage(), "{ after_ms = 200 }", |cluster| {
        cluster.crash()
    });
}

/// Longer than a lease: what ran is dropped, and recovered by the same host when the database is back.
#[test]
fn a_host_goes_on_after_an_outage_longer_than_its_lease() {
    let recovery = "[recovery]\nlease = \"2s\"\nrenew = \"500ms\"\ninterval = \"1s\"\n";
    let record = go_away(
        recovery,
        outage() + Duration::from_secs(2),
        "{ after_ms = 1500 }",
        |cluster| cluster.crash(),
    );
    assert!(
        record.recovered > 0,
        "nothing was dropped and recovered: {record}"
    );
}

fn go_away(
    configuration: &str,
    outage: Duration,
    context: &str,
    away: impl FnOnce(&mut Cluster) -> Result<(), String>,
) -> account::Account {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let url: DatabaseUrl = cluster.url().clone();
    let tower = Tower::on(url);
    tower.configure(configuration);
    tower.install_bells(SCHEDULES, context);
    let mut host = tower.start("tower");
    tower.record_when(
        "the first slots",
        Duration::from_secs(20),
        &[&host],
        |record| record.all_launches().count() >= SCHEDULES * 2,
    );
    away(&mut cluster).expect("the server ends");
    host.wait_for_line(LOST);
    let until = Instant::now() + outage;
    while Instant::now() < until {
        assert!(
            host.try_wait().is_none(),
            "the host ended:\n{}",
            host.stderr_lines().join("\n")
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    cluster.start_again().expect("the server starts again");
    let back = now();
    host.wait_for_line(BACK);
    tower.record_when(
        "the slots after the outage",
        Duration::from_secs(20),
        &[&host],
        |record| {
            record
                .schedules
                .iter()
                .all(|schedule| schedule.state.cursor_at > back.plus(Duration::from_secs(4)))
        },
    );
    let record = tower.quiet(Duration::from_secs(20), &[&host]);
    said_once(&host);
    host.terminate();
    assert!(host.wait_exit().success());

    let account = account::check(&record, &tower.effects(), 2);
    println!("Postgres away for {outage:?}: {account}");
    assert_eq!(account.succeeded, account.launched, "{account}");
    assert_eq!(account.skipped, 0, "{account}");
    account
}

/// An outage is one line when it begins and one when it is over.
fn said_once(host: &HostProcess) {
    let said = host.stderr_lines();
    for words in [LOST, BACK] {
        let lines: Vec<&String> = said.iter().filter(|line| line.contains(words)).collect();
        assert_eq!(
            lines.len(),
            1,
            "`{words}` was said {} times:\n{}",
            lines.len(),
            said.join("\n")
        );
    }
    // Not by the driver either, for every connection.
    let loud = |line: &&String| line.contains("ERROR") || line.contains("terminating connection");
    assert_eq!(said.iter().filter(loud).count(), 1, "{}", said.join("\n"));
}
