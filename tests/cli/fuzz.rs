//! Random input for some seconds, on both processors: `CAMPANILE_FUZZ_SECONDS` for each target, 1 by default.
//!
//! A failure prints the seed and the number of the case. `CAMPANILE_FUZZ_SEED` repeats it. Without it the seed is fixed, so
//! that a plain test run has the same result each time; `.ci/run` gives a new one.

use std::time::{Duration, Instant};

use campanile_tests::{fuzz, rule_texts};
use rand::rngs::StdRng;
use rand::{RngCore as _, SeedableRng as _};

use crate::site::command;

/// Read a number from the environment.
fn number(variable: &str, default: u64) -> u64 {
    let value = std::env::var(variable).ok();
    value.map_or(default, |value| value.parse().unwrap())
}

/// Call `target` with random bytes until the time is over.
fn run(name: &str, least_bytes: usize, mut target: impl FnMut(&[u8])) {
    let seconds = Duration::from_secs(number("CAMPANILE_FUZZ_SECONDS", 1));
    let seed = number("CAMPANILE_FUZZ_SEED", 1);
    let (began, mut cases) = (Instant::now(), 0_u64);
    while began.elapsed() < seconds {
        let mut random = StdRng::seed_from_u64(seed.wrapping_add(cases));
        let mut bytes = vec![0; least_bytes + random.next_u32() as usize % least_bytes];
        random.fill_bytes(&mut bytes);
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| target(&bytes)));
        if let Err(panic) = outcome {
            let case_seed = seed.wrapping_add(cases);
            eprintln!("{name}: repeat with CAMPANILE_FUZZ_SEED={case_seed}");
            std::panic::resume_unwind(panic);
        }
        cases += 1;
    }
    println!("{name}: {cases} cases");
    assert!(cases > 0);
}

/// A target; too few bytes are no fault.
type Target = fn(&[u8]) -> arbitrary::Result<()>;

#[test]
fn manifests_become_workflows_that_end() {
    let target: Target = fuzz::manifest;
    run("manifest", 8_000, |bytes| _ = target(bytes));
}

#[test]
fn sidecars_are_read_or_refused() {
    let target: Target = fuzz::sidecar;
    run("sidecar", 1_000, |bytes| _ = target(bytes));
}

#[test]
fn schedules_files_are_read_or_refused() {
    let target: Target = fuzz::schedules_file;
    run("schedules file", 1_000, |bytes| _ = target(bytes));
}

#[test]
fn addresses_of_databases_are_read_or_refused() {
    let target: Target = fuzz::database_url;
    run("database URL", 300, |bytes| _ = target(bytes));
}

#[test]
fn rules_are_read_or_refused() {
    run("rule", 100, |bytes| {
        rule_texts::check(bytes, &mut |text| rule_texts::parse(text));
    });
}

/// `task check` loads a file as a host does: in a child process, under limits of memory and time.
#[test]
fn packages_are_loaded_or_refused() {
    let folder = tempfile::tempdir().unwrap();
    let limits = "[packages]\nload_memory = '256MiB'\nload_time = '10s'\n";
    std::fs::write(folder.path().join("campanile.toml"), limits).unwrap();
    let file = folder.path().join("random.wasm");
    run("package", 20_000, |bytes| {
        let Ok(package) = fuzz::package(bytes) else {
            return;
        };
        std::fs::write(&file, package).unwrap();
        let check = command(folder.path(), ["task", "check", "random.wasm"]);
        let output = { check }.output().unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        // Accepted, or refused with a reason.
        let code = output.status.code();
        assert!(matches!(code, Some(0..=2)), "{code:?}: {said}");
        assert!(
            !said.contains("panicked") && !said.contains("a bug in"),
            "{said}"
        );
    });
}
