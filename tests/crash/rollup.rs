//! Tests of a host that dies around the commit of a seal: the rollup has counted each launch once.

use campanile_engine::crash::SEAL_POINTS;
use campanile_store::probe;
use campanile_tests::{Backend, HostProcess};
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;

use crate::retention::{LAUNCHES, insert_old};
use crate::site::Site;

#[test]
fn a_launch_counts_once_after_a_crash_on_sqlite() {
    crash_at_every_point(Backend::Sqlite);
}

#[test]
fn a_launch_counts_once_after_a_crash_on_postgres() {
    crash_at_every_point(Backend::Postgres);
}

fn crash_at_every_point(backend: Backend) {
    let site = Site::new(backend);
    site.install_append("[[schedules]]\nname = \"yearly\"\ncron = \"0 0 1 1 *\"\n");
    let mut host = site.start("host-1");
    host.terminate();
    assert!(host.wait_exit().success());
    insert_old(&site);
    for point in SEAL_POINTS {
        let mut host = HostProcess::spawn(site.serve("host-1").env("CAMPANILE_CRASH_AT", point));
        assert_eq!(
            host.wait_exit().signal(),
            Some(Signal::ABORT.as_raw()),
            "{point}"
        );
        let expected = match point {
            "before_seal_commit" => [0; 3],
            _ => [LAUNCHES; 3],
        };
        assert_eq!(counts(&site), expected, "{point}");
    }
}

/// Returns how many launches seals cover, and how many hours and days count, of schedules and of packages.
fn counts(site: &Site) -> [u64; 3] {
    let sealed = "SELECT coalesce(sum(launches), 0) FROM seal";
    let of = |table: &str, period: &str| {
        format!("SELECT coalesce(sum(skipped), 0) FROM {table} WHERE period = '{period}'")
    };
    let numbers = [
        sealed.to_owned(),
        of("schedule_rollup", "hour"),
        of("package_rollup", "day"),
    ];
    numbers.map(|sql| number(site, &sql))
}

fn number(site: &Site, sql: &str) -> u64 {
    let rows = site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let sql = format!("SELECT CAST(({sql}) AS TEXT)");
        probe::rows(&mut tx, &sql).await.expect("rows")
    });
    rows[0][0].parse().expect("a number")
}
