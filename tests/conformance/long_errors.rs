//! Error texts quoting a file are recorded only in part, whatever the file contains.

use campanile_model::clock::Clock;
use campanile_model::text::ERROR_BYTES_MAX;
use campanile_store::{events, packages};
use campanile_tests::{TestDb, on_both};

use crate::host_steps::clock_time;
use crate::serving::{self, NOOP, settings};

on_both!(
    errors_about_files_are_recorded_in_part,
    a_sidecar_that_is_a_file_of_the_kernel_is_refused,
);

async fn errors_about_files_are_recorded_in_part(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let names = ("host-1", "plugins");
    let started = serving::start_named(&test, &clock, settings(1), NOOP, names);
    let (engine, _lock, mut folder) = started.await;
    let long = "k".repeat(1_000_000);
    let sidecars = [
        ("key", format!("{long} = 1")),
        ("inner", format!("[limits]\n{long} = 1")),
        ("value", format!("[limits]\ntimeout = '{long}'")),
        ("size", format!("[limits]\nmemory = '{long}'")),
        ("pin", format!("sha256 = '{long}'")),
        ("version", format!("minimum_version = '{long}'")),
        ("env", format!("grants.env = ['{long}']")),
        ("kind", format!("grants.{long} = []")),
        (
            "directory",
            format!("[[grants.directories]]\nhost = '{long}'\nguest = '/a'\naccess = 'read'"),
        ),
        ("http", format!("[[grants.http]]\nhost = '{long}'")),
        (
            "schedule",
            format!("[[schedules]]\nname = '{long}'\nevery = '5m'"),
        ),
        (
            "rule",
            format!("[[schedules]]\nname = 'a'\ncron = '{long}'"),
        ),
        (
            "task",
            format!("[[schedules]]\nname = 'b'\nevery = '5m'\ntask = '{long}'"),
        ),
        ("number", format!("a = {}", "9".repeat(1_000_000))),
        ("text", format!("a = {long}")),
    ];
    let plugins = test.place.folder.path().join("plugins");
    for (name, sidecar) in &sidecars {
        std::fs::write(plugins.join(format!("{name}.wasm")), NOOP.1).unwrap();
        std::fs::write(plugins.join(format!("{name}.toml")), sidecar).unwrap();
    }
    engine.scan(&mut folder).await.unwrap();
    let mut tx = test.read().await;
    for (name, _) in &sidecars {
        let row = packages::find(&mut tx, name).await.unwrap();
        let rejection = row.and_then(|row| row.rejection);
        let rejection = rejection.unwrap_or_else(|| panic!("{name} is not refused"));
        assert!(
            rejection.len() <= ERROR_BYTES_MAX,
            "{name}: {} bytes",
            rejection.len()
        );
    }
    let events = events::list(&mut tx, None, 100).await.unwrap();
    assert!(events.len() >= sidecars.len());
    for event in events {
        assert!(event.detail.len() <= ERROR_BYTES_MAX, "{}", event.subject);
    }
}

async fn a_sidecar_that_is_a_file_of_the_kernel_is_refused(test: TestDb) {
    let clock = Clock::simulated(clock_time("10:30:00"));
    let names = ("host-1", "plugins");
    let started = serving::start_named(&test, &clock, settings(1), NOOP, names);
    let (engine, _lock, mut folder) = started.await;
    let plugins = test.place.folder.path().join("plugins");
    for (name, target) in [("a", "/proc/self/status"), ("b", "/proc/version")] {
        std::fs::write(plugins.join(format!("{name}.wasm")), NOOP.1).unwrap();
        std::os::unix::fs::symlink(target, plugins.join(format!("{name}.toml"))).unwrap();
    }
    std::os::unix::fs::symlink("/proc/cpuinfo", plugins.join("c.wasm")).unwrap();
    engine.scan(&mut folder).await.unwrap();
    for name in ["a", "b", "c"] {
        let row = packages::find(&mut test.read().await, name).await.unwrap();
        let rejection = row.and_then(|row| row.rejection).unwrap_or_default();
        assert!(
            rejection.contains("file system of the kernel"),
            "{name}: {rejection:?}"
        );
    }
}
