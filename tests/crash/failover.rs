//! How long the runs of a killed host wait until another host executes them, with the default settings.

use std::time::{Duration, Instant};

use campanile_store::{RunStatus, hosts};
use campanile_tests::{Backend, HostProcess, PATIENCE};

use crate::site::{Site, now};

/// The kills, by default and with `CAMPANILE_LONG_TESTS`.
const KILLS: (u32, u32) = (4, 25);
/// The runs of the host at each kill.
const RUNS: usize = 8;
/// The default.
const LEASE: Duration = Duration::from_secs(8);

/// Wait until a host has noted for the nth time that it is drained.
fn wait_until_drained(host: &HostProcess, nth: usize) {
    let until = Instant::now() + PATIENCE;
    loop {
        let lines = host.stderr_lines();
        let noted = lines
            .iter()
            .filter(|line| line.contains("this host claims nothing more"));
        if noted.count() >= nth {
            return;
        }
        assert!(Instant::now() < until, "not drained: {lines:#?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// SQLite has one host, and its runs are recovered when it starts again.
#[test]
fn the_runs_of_a_killed_host_start_on_another_one() {
    let kills = if crate::long() { KILLS.1 } else { KILLS.0 };
    let site = Site::new(Backend::Postgres);
    site.install_append(
        "[[schedules]]\nname = \"long\"\nat = \"2099-01-01T00:00:00Z\"\noverlap = \"allow\"\ncontext = { before_ms = 600000 }\n",
    );
    let mut stays = site.start("stays");
    let mut waits = Vec::new();
    for kill in 0..kills {
        let mut dies = site.start(&format!("dies-{kill}"));
        site.ok(&["host", "drain", "stays"]);
        wait_until_drained(&stays, kill as usize + 1);
        for _ in 0..RUNS {
            site.ok(&["schedule", "trigger", "long"]);
        }
        let executes = |record: &crate::site::Record, host: &str| {
            let runs = record.runs.iter();
            let runs = runs.filter(|run| run.status == RunStatus::Running);
            runs.filter(|run| run.host.as_deref() == Some(host)).count()
        };
        let before = RUNS * kill as usize;
        let name = format!("dies-{kill}");
        site.record_when("runs on the host that dies", &[&dies], |record| {
            executes(record, &name) == RUNS
        });
        site.ok(&["host", "drain", "stays", "--undo"]);
        // At another moment between two renewals each time.
        let renewed = Instant::now() + Duration::from_millis(u64::from(kill * 700 % 2_000));
        std::thread::sleep(renewed.saturating_duration_since(Instant::now()));
        dies.kill();
        let killed = now();
        let dead = site.with_db(async |db| {
            let mut tx = db.read().await.expect("a transaction");
            hosts::find(&mut tx, &name).await.expect("hosts")
        });
        let dead = dead.expect("the host that died");
        let lease_until = dead.lease_until;
        assert_eq!(lease_until.since(dead.heartbeat_at), LEASE);
        let record = site.record_when("the runs on the other host", &[&stays], |record| {
            executes(record, "stays") == before + RUNS
        });
        let recovered = record.runs.iter();
        let recovered = recovered.filter(|run| run.is_recovery && run.started_at > killed);
        for run in recovered {
            // The lease of a live host must not be taken.
            assert!(run.started_at >= lease_until, "{lease_until}: {run:?}");
            waits.push(run.started_at.since(killed));
        }
    }
    stays.kill();
    waits.sort_unstable();
    assert_eq!(waits.len(), RUNS * kills as usize);
    let at = |share: usize| waits[(waits.len() * share).div_ceil(100) - 1].as_secs_f64();
    println!(
        "{} runs of {kills} killed hosts started on another host after p50 {:.2} s, p99 {:.2} s, max {:.2} s",
        waits.len(),
        at(50),
        at(99),
        at(100)
    );
}
