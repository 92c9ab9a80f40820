//! The host that does the chores is killed or suspended: how long it takes until another host does them, and what the
//! suspended host does when it wakes up.

use std::time::{Duration, Instant};

use campanile_store::chores::{self, ChoreLease};
use campanile_tests::{Backend, HostProcess, PATIENCE, campanile_binary};
use rustix::process::Signal;

use crate::site::Site;

impl Site {
    fn chores(&self) -> Option<ChoreLease> {
        self.with_db(async |db| {
            let mut tx = db.read().await.expect("a transaction");
            chores::holder(&mut tx).await.expect("a holder")
        })
    }

    /// Wait for a holder in an epoch after `epoch`. Return its epoch, and how long that took.
    fn wait_for_epoch_after(&self, epoch: i64, hosts: &[&HostProcess]) -> (i64, Duration) {
        let began = Instant::now();
        loop {
            let held = self.chores().filter(|held| held.epoch > epoch);
            if let Some(held) = held {
                return (held.epoch, began.elapsed());
            }
            let logs = || hosts.iter().map(|host| host.stderr_lines());
            assert!(
                began.elapsed() < PATIENCE,
                "no holder after epoch {epoch}: {:#?}",
                Vec::from_iter(logs())
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// Longer than a busy machine keeps a host from renewing it.
const RECOVERY: &str = "[recovery]\nlease = \"15s\"\n";

/// SQLite has one host.
#[test]
fn another_host_does_the_chores_when_the_holder_is_lost() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    site.install_schedules(3, "{}");
    let mut first = site.start("first");
    let (epoch, _) = site.wait_for_epoch_after(0, &[&first]);
    assert_eq!(epoch, 1);
    first.wait_for_line("this host does the chores");
    let second = site.start("second");
    let lines = second.stderr_lines();
    assert!(
        !lines
            .iter()
            .any(|line| line.contains("this host does the chores")),
        "{lines:#?}"
    );

    // It is suspended for longer than its lease.
    first.signal(Signal::STOP);
    let (epoch, suspended) = site.wait_for_epoch_after(epoch, &[&second]);
    assert_eq!(epoch, 2);
    second.wait_for_line("this host does the chores");
    first.signal(Signal::CONT);
    first.wait_for_line("another host does the chores now");
    let held = site.chores().expect("a holder");
    assert_eq!(held.epoch, 2, "the woken host took nothing back");

    // The new holder is killed, and the first one takes over.
    let mut second = second;
    second.kill();
    let (epoch, killed) = site.wait_for_epoch_after(epoch, &[&first]);
    assert_eq!(epoch, 3);

    // A host that stops gives the chores to another one at its next heartbeat.
    let third = site.start("third");
    first.terminate();
    assert!(first.wait_exit().success());
    let (epoch, stopped) = site.wait_for_epoch_after(epoch, &[&third]);
    assert_eq!(epoch, 4);
    println!(
        "another host did the chores {suspended:.1?} after a suspension, {killed:.1?} after a kill, {stopped:.1?} after a stop"
    );
    // Not before the lease has ended.
    assert!(suspended >= Duration::from_secs(5), "{suspended:?}");
    let verified = site
        .command(campanile_binary())
        .args(["audit", "verify"])
        .output()
        .expect("campanile");
    assert!(verified.status.success(), "{verified:?}");
}
