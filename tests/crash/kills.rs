//! Tests of `kill -9`: during a long task, and repeatedly at random times.

use std::path::Path;
use std::time::{Duration, Instant};

use campanile_store::{LaunchStatus, RunStatus, task_runs};
use campanile_tests::{Backend, HostProcess, PATIENCE};
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};

use crate::consistency;
use crate::site::{Record, Site, now};

/// The number of files that the backup copies, and its pause after each file.
const FILES: usize = 24;
const PAUSE_MS: u64 = 100;
/// The number of random kills, and the maximum time from the start of a process, or from its first line as a serving host,
/// to its kill.
const ROUNDS: usize = 16;
const LATEST_MS: u64 = 1_500;
const SCHEDULES: usize = 20;

#[test]
fn a_killed_backup_is_resumed_on_sqlite() {
    kill_a_backup(Backend::Sqlite);
}

#[test]
fn a_killed_backup_is_resumed_on_postgres() {
    kill_a_backup(Backend::Postgres);
}

fn kill_a_backup(backend: Backend) {
    let site = Site::new(backend);
    let source = site.folder.join("source");
    std::fs::create_dir(&source).expect("a folder");
    for n in 0..FILES {
        std::fs::write(
            source.join(format!("{n:02}.txt")),
            format!("file {n}\n").repeat(n * 200),
        )
        .expect("a file");
    }
    site.install(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/backup.wasm"),
        &format!(
            "[[grants.directories]]\nhost = \"../source\"\nguest = \"/source\"\naccess = \"read\"\n\
             [[grants.directories]]\nhost = \"../out\"\nguest = \"/snapshots\"\naccess = \"write\"\n\
             [[schedules]]\nname = \"nightly\"\nat = \"2099-01-01T00:00:00Z\"\ncontext = {{ pause_ms = {PAUSE_MS} }}\n"
        ),
    );
    let mut host = site.start("host-1");
    site.ok(&["schedule", "trigger", "nightly"]);
    let slot = {
        let record = site.record();
        let launch = record.all_launches().next().expect("a launch");
        launch.scheduled_time
    };
    // The snapshot has another name until it is complete.
    let partial = site
        .folder
        .join(format!("out/.partial-{}", &slot.to_string()[..10]));
    let until = Instant::now() + PATIENCE;
    while count_files(&partial) < 3 {
        assert!(
            Instant::now() < until,
            "no backup began:\n{}",
            host.stderr_lines().join("\n")
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    host.kill();
    let copied = count_files(&partial);
    assert!(
        (3..FILES).contains(&copied),
        "{copied} files were copied when it was killed"
    );

    let mut host = site.start("host-1");
    let record = site.record_when("the backup succeeded", &[&host], |record| {
        record
            .all_launches()
            .all(|launch| launch.status == LaunchStatus::Succeeded)
    });
    host.terminate();
    assert!(host.wait_exit().success());

    let launches: Vec<_> = record.all_launches().collect();
    let [launch] = launches[..] else {
        panic!("not one launch: {launches:?}")
    };
    assert_eq!((launch.scheduled_time, launch.recoveries), (slot, 1));
    let runs_of = record.runs_of(launch);
    let [first, second] = runs_of[..] else {
        panic!("not two runs: {runs_of:?}")
    };
    assert_eq!((first.status, first.is_recovery), (RunStatus::Lost, false));
    assert_eq!(
        (second.status, second.is_recovery),
        (RunStatus::Succeeded, true)
    );

    let snapshot = site.folder.join("out").join(&slot.to_string()[..10]);
    for n in 0..FILES {
        let name = format!("{n:02}.txt");
        assert_eq!(
            std::fs::read(snapshot.join(&name)).expect("a file of the snapshot"),
            std::fs::read(source.join(&name)).expect("a file of the source"),
            "{name}"
        );
    }
    assert!(!partial.exists());
    let output = site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let calls = task_runs::of_run(&mut tx, second.id)
            .await
            .expect("the calls");
        calls
            .into_iter()
            .next()
            .and_then(|call| call.output)
            .expect("an output")
    });
    let output: serde_json::Value = serde_json::from_str(&output).expect("JSON");
    assert_eq!(
        (&output["resumed"], &output["files"]),
        (&true.into(), &FILES.into()),
        "{output}"
    );
    println!(
        "killed after {copied} of {FILES} files on {}: {output}",
        backend.name()
    );
}

fn count_files(folder: &Path) -> usize {
    std::fs::read_dir(folder).map_or(0, |entries| {
        entries
            .flatten()
            .filter(|entry| entry.path().is_file())
            .count()
    })
}

#[test]
fn nothing_is_lost_or_doubled_by_random_kills_on_sqlite() {
    kill_at_random(Backend::Sqlite);
}

#[test]
fn nothing_is_lost_or_doubled_by_random_kills_on_postgres() {
    kill_at_random(Backend::Postgres);
}

/// Kill a host at random times, in every other round while it serves. `CAMPANILE_TEST_SEED` replays the times of an earlier
/// run.
fn kill_at_random(backend: Backend) {
    let seed: u64 = match std::env::var("CAMPANILE_TEST_SEED") {
        Ok(text) => text.parse().expect("CAMPANILE_TEST_SEED is a number"),
        Err(_) => rand::random(),
    };
    println!("CAMPANILE_TEST_SEED={seed} on {}", backend.name());
    let mut rng = StdRng::seed_from_u64(seed);
    let site = Site::new(backend);
    site.install_schedules(SCHEDULES, "{ after_ms = 30 }");
    let mut kills_while_serving = 0;
    for round in 0..ROUNDS {
        let mut host = HostProcess::spawn(&mut site.serve("host-1"));
        if round % 2 == 1 {
            // A start after a kill waits for a sign of life of the killed host on Postgres.
            host.wait_for_line("serving");
        }
        std::thread::sleep(Duration::from_millis(rng.random_range(0..=LATEST_MS)));
        host.kill();
        let log = host.stderr_lines();
        kills_while_serving += usize::from(log.iter().any(|line| line.contains("serving")));
        assert!(
            !log.iter()
                .any(|line| line.contains("ERROR") || line.starts_with("error")),
            "seed {seed}:\n{}",
            log.join("\n")
        );
    }
    let mut host = site.start("host-1");
    let restarted = now();
    site.wait_for_slots_after(restarted, &[&host]);
    // A launch that lost several runs pauses before the next.
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());

    let totals = consistency::check(&record, &site.effects(), 3);
    println!(
        "{} killed {ROUNDS} times, {kills_while_serving} times while serving: {totals}",
        backend.name()
    );
    assert_eq!(
        (
            totals.schedules,
            totals.failed,
            totals.skipped,
            totals.unfinished
        ),
        (SCHEDULES, 0, 0, 0),
        "seed {seed}"
    );
    assert_abandoned_after_four_lost_runs(&record, &format!("seed {seed}"));
    assert!(kills_while_serving >= ROUNDS / 2, "seed {seed}");
}

/// Check that every abandoned launch has lost four runs.
fn assert_abandoned_after_four_lost_runs(record: &Record, case: &str) {
    for launch in record
        .all_launches()
        .filter(|launch| launch.status == LaunchStatus::Abandoned)
    {
        let lost = record.runs_of(launch).len();
        assert_eq!(
            (lost, launch.reason.as_deref()),
            (4, Some("recovery_attempts")),
            "{case}: {launch:?}"
        );
    }
}

#[test]
fn a_crash_loop_abandons_nothing_that_never_ran_on_sqlite() {
    crash_in_a_loop(Backend::Sqlite);
}

#[test]
fn a_crash_loop_abandons_nothing_that_never_ran_on_postgres() {
    crash_in_a_loop(Backend::Postgres);
}

/// Kills a host soon after each start. With more launches than permits, most are recovered often and never claimed. The others lose
/// two runs but never a third, as no host lives through their pause.
fn crash_in_a_loop(backend: Backend) {
    const LIVES: usize = 25;
    const LIFE: Duration = Duration::from_millis(300);
    /// After a second lost run.
    const PAUSE: Duration = Duration::from_secs(5);
    // On a busy machine the loop takes minutes, and few schedules keep the launches few.
    const SCHEDULES: usize = 6;
    let site = Site::new(backend);
    site.configure("[host]\nruns_max = 4\n");
    site.install_schedules(SCHEDULES, "{ before_ms = 500 }");
    let (mut long_lives, mut life) = (0, LIFE);
    let mut number = 0;
    let record = loop {
        number += 1;
        let begun = Instant::now();
        let mut host = site.start("host-1");
        std::thread::sleep(life);
        host.kill();
        // On a busy machine, a host may live through the pause.
        long_lives += usize::from(begun.elapsed() >= PAUSE);
        if number < LIVES {
            continue;
        }
        let record = site.record();
        let is_there = record
            .all_launches()
            .any(|launch| launch.recoveries > 3 && record.runs_of(launch).is_empty());
        if is_there {
            break record;
        }
        assert!(
            number < 2 * LIVES,
            "no launch was recovered more often than the limit: {}",
            record.shown()
        );
        // A busy machine needs longer until a host recovers anything.
        life += LIFE;
    };
    for launch in record.all_launches() {
        let runs = record.runs_of(launch).len();
        assert!(runs <= 2 + long_lives, "{long_lives}: {launch:?}");
    }
    assert_eq!(record.count(LaunchStatus::Abandoned), 0);

    site.configure("");
    let mut host = site.start("host-1");
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    println!("{} in a crash loop: {totals}", backend.name());
    assert_eq!(
        (
            totals.failed,
            totals.unfinished,
            totals.skipped,
            totals.abandoned
        ),
        (0, 0, 0, 0),
        "{totals}"
    );
}
