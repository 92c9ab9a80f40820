//! Tests of random changes to the plugins folder while launches run. No launch fails because of them, and at the end the
//! active versions are those in the folder.
//!
//! The test prints the seed of the operations. `CAMPANILE_TEST_SEED=N` replays them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use campanile_store::{Decision, LaunchStatus, RunStatus};
use campanile_tests::{Backend, HostProcess, PATIENCE, campanile_binary};
use serde_json::Value;

use crate::consistency;
use crate::folder_chaos::{Expected, FolderChaos, NAMES};
use crate::site::{Record, Site};

const OPERATIONS: usize = 500;
/// The number of schedules of each package, which are due every second.
const SCHEDULES_EACH: usize = 2;

#[test]
fn no_launch_fails_because_of_folder_changes_on_sqlite() {
    change_folder(Backend::Sqlite);
}

#[test]
fn no_launch_fails_because_of_folder_changes_on_postgres() {
    change_folder(Backend::Postgres);
}

fn change_folder(backend: Backend) {
    let site = Site::new(backend);
    site.configure("[watch]\nrescan = \"2s\"\n");
    let mut chaos = FolderChaos::new(&site.folder, SCHEDULES_EACH);
    chaos.restore();
    let host = site.start("host-1");
    let seed = chaos.seed;
    println!("{}: CAMPANILE_TEST_SEED={seed}", backend.name());

    let start = Instant::now();
    for _ in 0..OPERATIONS {
        chaos.change();
        std::thread::sleep(chaos.pause());
    }
    let took = start.elapsed();
    let differs = |chaos: &FolderChaos| difference(&chaos.expected(), &listed(&site));
    settle("the active versions are those in the folder", &host, || {
        differs(&chaos)
    });
    let reloads = count_logged(&host, &["updated ", "added "]);
    let rejections = count_logged(&host, &["rejected "]);

    // A launch that was decided before its package was removed waits for the package.
    chaos.restore();
    settle("every package is back", &host, || differs(&chaos));
    let record = site.pause_and_finish(&[&host]);
    let (launches, skipped) = check(&record);
    println!(
        "{}: {OPERATIONS} operations in {took:.1?}, {reloads} versions activated, {rejections} rejected; \
         {launches} launches succeeded, {skipped} slots without their package",
        backend.name()
    );
    assert!(launches > 100, "{launches} launches");
    assert!(reloads > 10 && rejections > 10, "{reloads}, {rejections}");
    assert!(skipped > 0, "no slot was due while its package was missing");
}

/// Check that every slot has one row and no launch failed, and return the number of launches and of skipped slots.
fn check(record: &Record) -> (usize, usize) {
    consistency::check_slots(record);
    assert_eq!(record.schedules.len(), NAMES.len() * SCHEDULES_EACH);
    let mut launches = 0;
    for launch in record.all_launches() {
        if launch.decision == Decision::Skipped {
            assert_eq!(
                launch.reason.as_deref(),
                Some("package_missing"),
                "{launch:?}"
            );
            continue;
        }
        let runs = record.runs_of(launch);
        assert_eq!(
            launch.status,
            LaunchStatus::Succeeded,
            "{launch:?}\n{runs:?}"
        );
        let states: Vec<RunStatus> = runs.iter().map(|run| run.status).collect();
        assert_eq!(states, [RunStatus::Succeeded], "{launch:?}\n{runs:?}");
        launches += 1;
    }
    (launches, record.count(LaunchStatus::Skipped))
}

/// Return the rows of `campanile package list`, by name.
fn listed(site: &Site) -> BTreeMap<String, Value> {
    let listed = site
        .command(campanile_binary())
        .args(["package", "list", "--json"])
        .output()
        .expect("the list");
    let rows: Vec<Value> = serde_json::from_slice(&listed.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&listed.stderr)));
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    rows.into_iter().map(|row| (name(&row), row)).collect()
}

/// Return a difference between the folder and the record, if there is one.
fn difference(
    expected: &BTreeMap<String, Expected>,
    listed: &BTreeMap<String, Value>,
) -> Option<String> {
    for (name, expected) in expected {
        let row = listed.get(name).unwrap_or(&Value::Null);
        if !expected.is_met(row) {
            return Some(format!(
                "{name} should be {}, and it is {row:#}",
                expected.shown()
            ));
        }
    }
    let is_removed = |(name, _): &(&String, &Value)| !expected.contains_key(*name);
    for (name, row) in listed.iter().filter(is_removed) {
        // A removed file must leave no rejection behind.
        if row["state"] != "missing" || !row["rejection"].is_null() {
            return Some(format!("{name} is not in the folder, and it is {row:#}"));
        }
    }
    None
}

/// Wait until there is no difference.
fn settle(what: &str, host: &HostProcess, differs: impl Fn() -> Option<String>) {
    let until = Instant::now() + PATIENCE;
    while let Some(difference) = differs() {
        if Instant::now() >= until {
            let log = host.stderr_lines().join("\n");
            panic!("not in {PATIENCE:?}: {what}\n{difference}\n{log}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn count_logged(host: &HostProcess, words: &[&str]) -> usize {
    let lines = host.stderr_lines();
    let expected = |line: &&String| words.iter().any(|word| line.contains(word));
    lines.iter().filter(expected).count()
}
