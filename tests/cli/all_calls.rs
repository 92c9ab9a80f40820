//! Packages keeping to the limits of each call while together using up what the host itself needs, and a host given too little.

use std::process::Command;

use campanile_tests::hostile::{many_descriptors, many_instances};
use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, run_until_exit, stop};

on_both_empty!(
    packages_that_take_what_a_host_needs_are_refused_or_bounded_and_a_neighbour_launches_on,
    runs_that_keep_much_leave_memory_to_a_neighbour,
    an_address_space_that_is_too_small_is_one_error,
);

/// Returns `command` the way a shell would start it after `ulimit`.
fn with_limit(ulimit: &str, command: &Command) -> Command {
    let mut limited = Command::new("sh");
    let script = format!("ulimit {ulimit} && exec \"$0\" \"$@\"");
    limited.arg("-c").arg(script).arg(command.get_program());
    limited.args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        limited.current_dir(folder);
    }
    limited
}

fn rejection(site: &Site, name: &str) -> String {
    eventually(|| {
        let rows = list(site.json(["package", "list"]));
        let row = rows.into_iter().find(|row| row["name"] == name);
        let rejection = row.and_then(|row| row["rejection"].as_str().map(str::to_owned));
        rejection.ok_or_else(|| format!("{name} has no rejection"))
    })
}

/// Counts a package's launches with this status.
fn launches(site: &Site, package: &str, status: &str) -> usize {
    let launches = list(site.json(["launch", "list", "--limit", "1000"]));
    let is_wanted = |row: &&Value| row["package"] == package && row["status"] == status;
    launches.iter().filter(is_wanted).count()
}

fn until(what: &str, holds: impl Fn() -> bool) {
    eventually(|| match holds() {
        true => Ok(()),
        false => Err(what.to_owned()),
    });
}

async fn packages_that_take_what_a_host_needs_are_refused_or_bounded_and_a_neighbour_launches_on(
    place: Place,
) {
    let site = Site::new(place);
    site.configure("[host]\ndrain = '1s'\n");
    site.copy_package("noop");
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    let write = |name: &str, bytes: Vec<u8>| {
        let schedules = "[[schedules]]\nevery = '1s'\noverlap = 'allow'\n";
        site.sidecar(name, schedules);
        std::fs::write(site.plugin(&format!("{name}.wasm")), bytes).unwrap();
    };
    write("memories", many_instances(14, &"(memory 1)".repeat(73)));
    let globals = "(global i32 (i32.const 0))".repeat(1_000_000);
    write("globals", many_instances(20, &globals));
    write("tables", many_instances(100, "(table 1 funcref)"));
    write("descriptors", many_descriptors(240, 600));
    let mut host = HostProcess::spawn(&mut with_limit("-n 512", &site.command(["serve"])));
    host.wait_for_line("serving");
    for (name, has, key) in [
        ("memories", "1022 memories", "`memories_max`"),
        ("globals", "305.2 MiB of globals", "`instance_max`"),
        ("tables", "100 tables", "`tables_max`"),
    ] {
        let why = rejection(&site, name);
        assert!(why.contains(has) && why.contains(key), "{name}: {why}");
    }
    // More calls than descriptors allow: each wants 240, and the process may have 512.
    until("few calls hold descriptors", || {
        launches(&site, "descriptors", "running") >= 4
    });
    let before = launches(&site, "noop", "succeeded");
    until("the neighbour launches no more", || {
        launches(&site, "noop", "succeeded") >= before + 3
    });
    // The host can still open files of its own.
    site.copy_package("hello");
    until("a new package is not loaded", || {
        let packages = list(site.json(["package", "list"]));
        let hello = packages.iter().find(|row| row["name"] == "hello");
        hello.is_some_and(|row| row["rejection"].is_null() && row["digest"].is_string())
    });
    #[cfg(target_os = "linux")]
    {
        let open = std::fs::read_dir(format!("/proc/{}/fd", host.id()))
            .unwrap()
            .count();
        assert!(open < 512 - 64, "{open} descriptors are open");
    }
    stop(&mut host);
}

async fn runs_that_keep_much_leave_memory_to_a_neighbour(place: Place) {
    let site = Site::new(place);
    // Few calls at once, so that none runs out of guest memory first.
    site.configure(
        "[host]\ndrain = '1s'\nruns_max = 16\n[sandbox]\nmemory_max = '64MiB'\nmemory_total = '128MiB'\n",
    );
    site.copy_package("noop");
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    site.copy_package("wide");
    let _host = site.serve();
    let wide = [
        "schedule",
        "add",
        "wide",
        "--package",
        "wide",
        "--task",
        "few",
    ];
    let when = ["--at", "2099-01-01T00:00:00Z", "--overlap", "allow"];
    site.ok(wide.into_iter().chain(when));
    // Each would hold 60 MiB, while all together may hold 18.
    let hogs: Vec<String> = (0..6).map(|_| site.trigger("wide", &json!({}))).collect();
    let before = launches(&site, "noop", "succeeded");
    for hog in &hogs {
        let hog = site.wait_until_ended("wide", hog);
        assert_eq!(hog["failure"], "invalid_output", "{hog:#}");
        let message = hog["message"].as_str().unwrap();
        assert!(message.contains("a quarter of `memory_total`"), "{message}");
    }
    until("the neighbour launches no more", || {
        launches(&site, "noop", "succeeded") >= before + 3
    });
    assert_eq!(launches(&site, "noop", "failed"), 0);
}

async fn an_address_space_that_is_too_small_is_one_error(place: Place) {
    let site = Site::new(place);
    for kilobytes in [1_000_000, 4_000_000, 16_000_000] {
        let limit = format!("-v {kilobytes}");
        let output = run_until_exit(&mut with_limit(&limit, &site.command(["serve"])));
        output.assert_refused(&["address space of this process is limited", "ulimit -v"]);
    }
    // It's enough for a few small runs.
    site.configure("[host]\nruns_max = 4\n[sandbox]\nmemory_max = '64MiB'\n");
    let mut host = HostProcess::spawn(&mut with_limit("-v 16000000", &site.command(["serve"])));
    host.wait_for_line("serving");
    stop(&mut host);
}
