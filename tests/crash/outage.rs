//! The Postgres server goes away under a serving host, and comes back.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
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

/// Stands between a host and its server. It can fall silent: connections stay open, and nothing passes.
struct Line {
    port: u16,
    silent: Arc<AtomicBool>,
    over: Arc<AtomicBool>,
}

/// How often a line looks whether it is silent or over.
const LOOK: Duration = Duration::from_millis(10);

impl Line {
    fn to(server: u16) -> Line {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
        listener
            .set_nonblocking(true)
            .expect("a listener that does not block");
        let line = Line {
            port: listener.local_addr().expect("an address").port(),
            silent: Arc::default(),
            over: Arc::default(),
        };
        let (silent, over) = (line.silent.clone(), line.over.clone());
        std::thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let Ok((host, _)) = listener.accept() else {
                    std::thread::sleep(LOOK);
                    continue;
                };
                let Ok(server) = TcpStream::connect(("127.0.0.1", server)) else {
                    continue;
                };
                for (from, to) in [(&host, &server), (&server, &host)] {
                    let (from, to) = (
                        from.try_clone().expect("a socket"),
                        to.try_clone().expect("a socket"),
                    );
                    let (silent, over) = (silent.clone(), over.clone());
                    std::thread::spawn(move || pass(from, to, &silent, &over));
                }
            }
        });
        line
    }

    fn fall_silent(&self) {
        self.silent.store(true, Ordering::Relaxed);
    }

    fn speak(&self) {
        self.silent.store(false, Ordering::Relaxed);
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

/// Pass on what comes, in one direction, until either end closes.
fn pass(mut from: TcpStream, mut to: TcpStream, silent: &AtomicBool, over: &AtomicBool) {
    from.set_nonblocking(false)
        .and_then(|()| from.set_read_timeout(Some(LOOK)))
        .expect("a read time-out");
    let mut bytes = [0; 16 << 10];
    while !over.load(Ordering::Relaxed) {
        let read = match from.read(&mut bytes) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                continue;
            }
            Err(_) => break,
        };
        while silent.load(Ordering::Relaxed) && !over.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&bytes[..read]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Both);
}

/// No error comes, as from a server behind a network that drops packets: only time tells.
#[test]
fn a_host_goes_on_after_its_postgres_was_silent_and_stops_while_it_is() {
    let cluster = Cluster::start().unwrap_or_else(|line| panic!("{line}"));
    let line = Line::to(cluster.port());
    let direct = format!(":{}/", cluster.port());
    let url = cluster
        .url()
        .expose()
        .replace(&direct, &format!(":{}/", line.port));
    let tower = Tower::on(url.parse().expect("an address"));
    tower.configure(
        "[host]\ndrain = \"1s\"\n[recovery]\nlease = \"3s\"\nrenew = \"1s\"\ninterval = \"1s\"\n",
    );
    tower.install_bells(SCHEDULES, "{ after_ms = 1500 }");
    let mut host = tower.start("tower");
    tower.record_when(
        "the first slots",
        Duration::from_secs(20),
        &[&host],
        |record| record.all_launches().count() >= SCHEDULES * 2,
    );
    line.fall_silent();
    let said = host.wait_for_line(LOST);
    assert!(said.contains("no answer in"), "{said}");
    // The lease of what runs ends by the host's own watch, whatever the database does not say.
    host.wait_for_line("dropped runs whose lease could not be renewed in time");
    std::thread::sleep(Duration::from_secs(2));
    line.speak();
    let back = now();
    host.wait_for_line(BACK);
    tower.record_when(
        "the slots after the silence",
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
    let account = account::check(&record, &tower.effects(), 2);
    println!("Postgres silent for longer than a lease: {account}");
    assert_eq!(account.succeeded, account.launched, "{account}");
    assert_eq!(account.skipped, 0, "{account}");
    assert!(account.recovered > 0, "{account}");

    line.fall_silent();
    host.terminate();
    let told = Instant::now();
    let status = host.wait_exit_within(Duration::from_secs(45));
    println!(
        "with its database silent it ended after {:.1} s",
        told.elapsed().as_secs_f64()
    );
    assert_eq!(status.code(), Some(1), "{}", host.stderr_lines().join("\n"));
    assert!(
        host.stderr_lines()
            .iter()
            .any(|line| line.starts_with("error: ")),
        "{:?}",
        host.stderr_lines()
    );
}
