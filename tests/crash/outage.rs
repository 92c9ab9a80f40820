//! The Postgres server goes away or falls silent under a serving host, and comes back.

use std::time::Duration;

use campanile_tests::{Cluster, HostProcess};

use crate::account::{self, Account};
use crate::line::Line;
use crate::tower::{Effect, Tower, now};

/// In the usual suite, and under `CAMPANILE_LONG_TESTS`, in seconds.
const OUTAGE_SECONDS: (u64, u64) = (4, 20);
const SCHEDULES: usize = 20;
/// Fewer, because each of their runs takes seconds.
const SILENT_SCHEDULES: usize = 5;
/// How an outage's first line ends, and its last begins.
pub const LOST: &str = "trying again until it works";
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

/// Longer than a lease, and the tasks' sleep longer than both: what ran is dropped, and recovered by the same
/// host when the database is back.
#[test]
fn a_host_goes_on_after_an_outage_longer_than_its_lease() {
    let recovery = "[recovery]\nlease = \"2s\"\nrenew = \"500ms\"\ninterval = \"1s\"\n";
    let record = go_away(
        recovery,
        outage() + Duration::from_secs(2),
        "{ after_ms = 5000 }",
        |cluster| cluster.crash(),
    );
    assert!(
        record.recovered > 0,
        "nothing was dropped and recovered: {record}"
    );
}

/// No error comes: the host has to notice by itself that it holds its runs no more.
#[test]
fn a_host_goes_on_after_its_postgres_was_silent_for_longer_than_its_lease() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let line = Line::to(&cluster);
    let tower = Tower::on(line.url.clone());
    tower.configure("[recovery]\nlease = \"4s\"\nrenew = \"1s\"\ninterval = \"1s\"\n");
    // What began in the last seconds before the silence is still asleep when its lease ends.
    tower.install_bells(SILENT_SCHEDULES, "{ before_ms = 7000 }");
    let account = go_on(&tower, SILENT_SCHEDULES * 2, |host| {
        line.fall_silent();
        let said = host.wait_for_line(LOST);
        assert!(said.contains("no answer in"), "{said}");
        host.wait_for_line("dropped runs whose lease could not be renewed in time");
        host.stays_up(outage() / 2);
        line.speak();
    });
    assert!(account.lost_runs > 0, "no run was lost: {account}");
    let recovered = |effect: &Effect| effect.is_recovery;
    assert!(tower.effects().iter().any(recovered), "{account}");
}

fn go_away(
    configuration: &str,
    outage: Duration,
    context: &str,
    away: impl FnOnce(&mut Cluster) -> Result<(), String>,
) -> Account {
    let mut cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let tower = Tower::on(cluster.url().clone());
    tower.configure(configuration);
    tower.install_bells(SCHEDULES, context);
    go_on(&tower, SCHEDULES * 2, |host| {
        away(&mut cluster).expect("the server ends");
        host.wait_for_line(LOST);
        host.stays_up(outage);
        cluster.start_again().expect("the server starts again");
    })
}

/// Serve, after some `launches` live through `outage`, and go on as if nothing had been.
fn go_on(tower: &Tower, launches: usize, outage: impl FnOnce(&mut HostProcess)) -> Account {
    let mut host = tower.start("tower");
    tower.record_when(
        "the first slots",
        Duration::from_secs(20),
        &[&host],
        |record| record.all_launches().count() >= launches,
    );
    let before = now();
    outage(&mut host);
    let back = now();
    host.wait_for_line(BACK);
    tower.rings_past(back.plus(Duration::from_secs(4)), &[&host]);
    let record = tower.quiet(Duration::from_secs(40), &[&host]);
    said_once(&host);
    host.terminate();
    assert!(host.wait_exit().success());

    let account = account::check(&record, &tower.effects(), 3);
    println!("Postgres away for {:?}: {account}", back.since(before));
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
