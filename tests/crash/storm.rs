//! A storm over the plugins folder while launches run: whatever happens to the files, no launch fails for it, and in the
//! end what is in force is what the folder holds.
//!
//! The seed of the operations is printed; `CAMPANILE_TEST_SEED=N` replays them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use campanile_store::{Decision, LaunchStatus, RunStatus};
use campanile_tests::{Backend, HostProcess, campanile_binary};
use serde_json::Value;

use crate::account;
use crate::tower::{Record, Tower};
use crate::weather::{Expected, NAMES, Weather};

const OPERATIONS: usize = 500;
/// Of each package, every second.
const SCHEDULES_EACH: usize = 2;
/// For a debounce, two readings and several rescans.
const PATIENCE: Duration = Duration::from_secs(20);

#[test]
fn no_launch_fails_for_a_storm_over_the_folder_on_sqlite() {
    storm_over(Backend::Sqlite);
}

#[test]
fn no_launch_fails_for_a_storm_over_the_folder_on_postgres() {
    storm_over(Backend::Postgres);
}

fn storm_over(backend: Backend) {
    let tower = Tower::new(backend);
    tower.configure("[watch]\nrescan = \"2s\"\n");
    let mut weather = Weather::over(&tower.folder, SCHEDULES_EACH);
    weather.clear_up();
    let host = tower.start("tower");
    let seed = weather.seed;
    println!("{}: CAMPANILE_TEST_SEED={seed}", backend.name());

    let began = Instant::now();
    for _ in 0..OPERATIONS {
        weather.change();
        std::thread::sleep(weather.pause());
    }
    let blew = began.elapsed();
    let differs = |weather: &Weather| difference(&weather.expected(), &listed(&tower));
    settle("the live set is the folder", &host, || differs(&weather));
    let reloads = count_said(&host, &["updated ", "added "]);
    let refusals = count_said(&host, &["rejected "]);

    // What was decided before its package went waits for it.
    weather.clear_up();
    settle("every package is back", &host, || differs(&weather));
    let record = tower.quiet(PATIENCE, &[&host]);
    let (launches, skipped) = check(&record);
    println!(
        "{}: {OPERATIONS} operations in {blew:.1?}, {reloads} versions taken, {refusals} refused; \
         {launches} launches succeeded, {skipped} slots without their package",
        backend.name()
    );
    assert!(launches > 100, "{launches} launches");
    assert!(reloads > 10 && refusals > 10, "{reloads}, {refusals}");
    assert!(skipped > 0, "no slot came while its package was gone");
}

/// No slot is without a row or has two, and nothing failed; gives the launches and the slots skipped.
fn check(record: &Record) -> (usize, usize) {
    account::check_slots(record);
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

/// `campanile package list`, by name.
fn listed(tower: &Tower) -> BTreeMap<String, Value> {
    let listed = tower
        .command(campanile_binary())
        .args(["package", "list", "--json"])
        .output()
        .expect("the list");
    let rows: Vec<Value> = serde_json::from_slice(&listed.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&listed.stderr)));
    let name = |row: &Value| row["name"].as_str().unwrap_or_default().to_owned();
    rows.into_iter().map(|row| (name(&row), row)).collect()
}

/// What of the folder is not as the record has it, if anything.
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
    let gone = |(name, _): &(&String, &Value)| !expected.contains_key(*name);
    for (name, row) in listed.iter().filter(gone) {
        // A file that was never taken leaves nothing behind, and no file a refusal.
        if row["state"] != "missing" || !row["rejection"].is_null() {
            return Some(format!("{name} is not in the folder, and it is {row:#}"));
        }
    }
    None
}

fn settle(what: &str, host: &HostProcess, differs: impl Fn() -> Option<String>) {
    let until = Instant::now() + PATIENCE;
    while let Some(difference) = differs() {
        if Instant::now() >= until {
            let said = host.stderr_lines().join("\n");
            panic!("not in {PATIENCE:?}: {what}\n{difference}\n{said}");
        }
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn count_said(host: &HostProcess, words: &[&str]) -> usize {
    let lines = host.stderr_lines();
    let expected = |line: &&String| words.iter().any(|word| line.contains(word));
    lines.iter().filter(expected).count()
}
