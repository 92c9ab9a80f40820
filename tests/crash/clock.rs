//! Tests of a machine whose wall clock steps while its host serves.
//!
//! A build with debug assertions adds the seconds in a file to the machine's clock.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use campanile_model::clock::CONFIRM;
use campanile_tests::{Backend, HostProcess, PATIENCE};

use crate::consistency;
use crate::site::{Record, Site, now};

const SCHEDULES: usize = 30;
/// Longer than a busy machine keeps a host from renewing it, and shorter than the steps of a clock.
const RECOVERY: &str = "[recovery]\nlease = \"30s\"\nrenew = \"1s\"\ninterval = \"1s\"\n";
const STEPPED: &str = "this machine's clock stepped by";
const WORKS: &str = "the host works again after";

/// A host on a machine whose clock a test sets.
struct Stepped {
    host: HostProcess,
    file: PathBuf,
    steps: usize,
}

impl Stepped {
    /// Start the host `name`, with a clock that is `seconds` ahead.
    fn start(site: &Site, name: &str, seconds: i64) -> Stepped {
        let file = site.folder.join(format!("{name}.clock"));
        std::fs::write(&file, seconds.to_string()).expect("the clock's file");
        let mut command = site.serve(name);
        command.env("CAMPANILE_TEST_WALL_CLOCK", &file);
        let host = HostProcess::spawn(&mut command);
        host.wait_for_line("serving");
        Stepped {
            host,
            file,
            steps: 0,
        }
    }

    /// Set the clock `seconds` ahead of the true time, and wait until the host has noticed.
    fn step_to(&mut self, seconds: i64) {
        // A reader must not find the file empty.
        let new = self.file.with_extension("new");
        std::fs::write(&new, seconds.to_string()).expect("the clock's file");
        std::fs::rename(&new, &self.file).expect("the clock's file");
        self.steps += 1;
        self.wait_for(STEPPED, self.steps);
    }

    /// Wait until the log has `count` lines with `text`, and return the last.
    fn wait_for(&self, text: &str, count: usize) -> String {
        let until = Instant::now() + PATIENCE;
        loop {
            let log = self.host.stderr_lines();
            let mut lines = log.iter().filter(|line| line.contains(text));
            if let Some(line) = lines.nth(count - 1) {
                return line.clone();
            }
            assert!(
                Instant::now() < until,
                "not {count} times `{text}`:\n{}",
                log.join("\n")
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Return how long the host paused for its last step, of `count` pauses, in seconds.
    fn pause(&self, count: usize) -> f64 {
        let line = self.wait_for(WORKS, count);
        let (_, rest) = line.split_once(WORKS).expect("the line");
        let seconds = rest.trim().split(' ').next().expect("a number");
        seconds.parse().unwrap_or_else(|_| panic!("{line}"))
    }
}

/// Check that every slot was launched once, that no launch began before its slot, and that no run was lost.
fn check(record: &Record, site: &Site) -> consistency::Totals {
    let totals = consistency::check(record, &site.effects(), 0);
    assert_eq!(
        (totals.schedules, totals.skipped, totals.lost_runs),
        (SCHEDULES, 0, 0),
        "{totals}"
    );
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    for run in &record.runs {
        assert!(run.started_at >= run.scheduled_time, "early: {run:?}");
    }
    totals
}

#[test]
fn a_stepped_clock_of_one_host_changes_nothing_on_postgres() {
    let site = Site::new(Backend::Postgres);
    site.configure(RECOVERY);
    site.install_schedules(SCHEDULES, "{ after_ms = 300 }");
    let mut steady = site.start("steady");
    // A machine that starts with a clock 100 s slow, which NTP then sets.
    let mut stepped = Stepped::start(&site, "stepped", -100);
    site.wait_for_slots_after(
        now().plus(Duration::from_secs(2)),
        &[&steady, &stepped.host],
    );
    let mut pauses = Vec::new();
    for seconds in [0, 3_600, 0, -3_600, 0, 40, 0, -40, 120, 0] {
        stepped.step_to(seconds);
        pauses.push(stepped.pause(stepped.steps));
        let later = now().plus(Duration::from_secs(1));
        site.wait_for_slots_after(later, &[&steady, &stepped.host]);
    }
    println!("pauses in seconds: {pauses:?}");
    // A measurement ends the pause. On a busy machine some take seconds, but not all.
    let is_measured = |pause: &&f64| **pause < CONFIRM.as_secs_f64();
    let measured = pauses.iter().filter(is_measured).count();
    assert!(measured > pauses.len() / 2, "{pauses:?}");
    let health = site
        .command(campanile_tests::campanile_binary())
        .arg("health")
        .output()
        .expect("`campanile health`");
    let health = String::from_utf8_lossy(&health.stdout).into_owned();
    assert!(
        health.contains("note: the clock of the host `stepped` stepped"),
        "{health}"
    );
    let record = site.pause_and_finish(&[&steady, &stepped.host]);
    for host in [&mut steady, &mut stepped.host] {
        host.terminate();
        assert!(host.wait_exit().success());
    }
    let totals = check(&record, &site);
    println!("{} steps of one of two hosts: {totals}", pauses.len());
    for host in ["steady", "stepped"] {
        let is_its = |run: &&campanile_store::runs::RunRow| run.host.as_deref() == Some(host);
        assert!(record.runs.iter().any(|run| is_its(&run)), "{host}");
    }
    assert!(
        !steady
            .stderr_lines()
            .iter()
            .any(|line| line.contains("died")),
        "a live host was marked as dead"
    );
}

#[test]
fn a_step_that_is_taken_back_changes_nothing_on_sqlite() {
    let site = Site::new(Backend::Sqlite);
    site.configure(RECOVERY);
    site.install_schedules(SCHEDULES, "{ after_ms = 300 }");
    let mut stepped = Stepped::start(&site, "stepped", 0);
    for (steps, seconds) in [(1, 3_600), (2, -3_600), (3, 40)] {
        stepped.step_to(seconds);
        stepped.step_to(0);
        let pause = stepped.pause(steps);
        println!("{seconds} s and back: a pause of {pause} s");
        assert!(pause >= CONFIRM.as_secs_f64(), "{pause}");
        site.wait_for_slots_after(now(), &[&stepped.host]);
    }
    // A step that stays is believed: the slots of the time that it left out are late, and none is lost.
    stepped.step_to(40);
    stepped.pause(4);
    site.wait_for_slots_after(now().plus(Duration::from_secs(38)), &[&stepped.host]);
    let record = site.pause_and_finish(&[&stepped.host]);
    stepped.host.terminate();
    assert!(stepped.host.wait_exit().success());
    println!("steps on SQLite: {}", check(&record, &site));
}
