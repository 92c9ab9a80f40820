//! `doctor`, and what a service manager, a shell and `man` get from the program.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use campanile_store::disk;
use campanile_tests::{Backend, HostProcess, PATIENCE, Place, on_both_empty, run_empty_case};
use serde_json::Value;

use crate::site::{CommandOutput, Site, be_plugins_folder, list, run, stop, text};

on_both_empty!(doctor_finds_all_well_on_a_site_that_serves,);

/// Return the state and the text of a check: what was found, and what to do.
fn check(report: &Value, name: &str) -> (String, String) {
    let checks = list(report["checks"].clone());
    let found = checks.iter().find(|check| check["check"] == name);
    let found = found.unwrap_or_else(|| panic!("no {name}: {report:#}"));
    let fix = found["fix"].as_str().unwrap_or_default();
    (
        text(&found["state"]),
        format!("{} {fix}", text(&found["detail"])),
    )
}

async fn doctor_finds_all_well_on_a_site_that_serves(place: Place) {
    let site = Site::new(place);
    site.copy_package("hello");
    let mut host = site.serve();
    let report = site.json(["doctor"]);
    assert_eq!(report["ok"], true, "{report:#}");
    let is_file = site.place().backend == Backend::Sqlite;
    for name in [
        "configuration",
        if is_file { "file" } else { "database" },
        "database",
        "clock",
        "disk",
        "packages",
        "permissions",
        "cache",
        "sandbox",
    ] {
        assert_eq!(check(&report, name).0, "ok", "{report:#}");
    }
    let shown = site.ok(["doctor"]);
    assert!(
        shown.contains("ok       sandbox        a separate process"),
        "{shown}"
    );
    // The kernel of this machine may have neither Landlock nor seccomp.
    let (state, detail) = check(&report, "confinement");
    let confined = detail.starts_with("Landlock and seccomp confine");
    assert_eq!(state == "ok", confined, "{detail}");
    assert!(
        confined || state == "warning" && detail.contains("not: it can"),
        "{detail}"
    );
    stop(&mut host);
}

fn doctor(folder: &Path) -> (CommandOutput, Value) {
    let output = run(folder, ["doctor", "--json"]);
    let report = output.json();
    (output, report)
}

#[test]
fn doctor_names_what_is_wrong_and_what_to_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    let plugins = folder.join("plugins");
    let (output, report) = doctor(folder);
    assert_eq!(output.code, 1, "{output:?}");
    let (state, said) = check(&report, "packages");
    assert!(
        state == "failed" && said.contains("mkdir plugins"),
        "{said}"
    );
    let (state, said) = check(&report, "database");
    assert!(
        state == "warning" && said.contains("`campanile serve` creates it"),
        "{said}"
    );
    assert!(
        !folder.join("campanile.db").exists(),
        "doctor changes nothing"
    );

    std::fs::create_dir(&plugins).expect("a folder");
    be_plugins_folder(&plugins);
    let (output, report) = doctor(folder);
    assert_eq!(output.code, 0, "{output:?}");
    let (state, said) = check(&report, "packages");
    assert!(
        state == "warning" && said.contains("campanile new NAME"),
        "{said}"
    );

    std::fs::set_permissions(&plugins, PermissionsExt::from_mode(0o777)).expect("a mode");
    let (output, report) = doctor(folder);
    assert_eq!(output.code, 1, "{output:?}");
    let (state, said) = check(&report, "permissions");
    assert!(state == "failed" && said.contains("chmod go-w"), "{said}");

    std::fs::set_permissions(&plugins, PermissionsExt::from_mode(0o700)).expect("a mode");
    std::fs::write(folder.join("campanile.db"), "").expect("a file");
    let (output, report) = doctor(folder);
    assert_eq!(output.code, 0, "a host starts on an empty file: {report:#}");
    let (state, said) = check(&report, "database");
    assert!(
        state == "warning" && said.contains("`campanile serve` migrates them"),
        "{said}"
    );

    // The first start would have no room.
    std::fs::remove_file(folder.join("campanile.db")).expect("a file");
    let reserve = "[host]\ndisk_reserve = '1TiB'\n";
    std::fs::write(folder.join("campanile.toml"), reserve).expect("a file");
    let (_, report) = doctor(folder);
    let has_room = disk::free_bytes(folder).expect("a disk") >= 1 << 40;
    let (state, said) = check(&report, "disk");
    assert!(
        has_room || state == "failed" && said.contains("`disk_reserve` of 1.0 TiB"),
        "{said}"
    );
    std::fs::remove_file(folder.join("campanile.toml")).expect("a file");

    std::fs::write(folder.join("campanile.db"), "of another program").expect("a file");
    let (_, report) = doctor(folder);
    assert_eq!(check(&report, "database").0, "failed", "{report:#}");

    std::fs::write(folder.join("campanile.toml"), "plugin = 'x'").expect("a file");
    let (output, report) = doctor(folder);
    assert_eq!(output.code, 1, "{output:?}");
    let (state, said) = check(&report, "configuration");
    assert!(
        state == "failed" && said.contains("did you mean `plugins`?"),
        "{said}"
    );
}

/// `serve` would end as soon as it reads the damaged part.
#[test]
fn doctor_finds_damage_in_the_middle_of_a_file() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        site.copy_package("hello");
        let mut host = site.serve();
        stop(&mut host);
        let path = site.folder().join("campanile.db");
        let mut bytes = std::fs::read(&path).expect("the database");
        let middle = bytes.len() / 4096 / 2 * 4096;
        bytes[middle..middle + 8 * 4096].fill(0xa5);
        std::fs::write(&path, bytes).expect("the database");
        let (output, report) = doctor(site.folder());
        assert_eq!(output.code, 1, "{output:?}");
        let (state, said) = check(&report, "file");
        assert!(
            state == "failed" && said.contains("damaged") && said.contains("db restore"),
            "{said}"
        );
    });
}

#[test]
fn a_service_manager_learns_that_the_host_is_ready_alive_and_stopping() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        site.copy_package("hello");
        let path = site.folder().join("notify");
        let socket = UnixDatagram::bind(&path).expect("a socket");
        socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let message = || {
            let mut bytes = [0; 256];
            let length = socket.recv(&mut bytes).expect("a message");
            String::from_utf8_lossy(&bytes[..length]).into_owned()
        };
        let mut command = site.command(["serve"]);
        command
            .env("NOTIFY_SOCKET", &path)
            .env("WATCHDOG_USEC", "200000");
        let mut host = HostProcess::spawn(&mut command);
        assert_eq!(message(), "READY=1\nSTATUS=serving");
        let line = host.wait_for_line("serving");
        // Only a load that takes long is left for later.
        let is_late = |line: &String| line.contains("the host starts without it");
        assert!(
            line.contains("packages=1") || host.stderr_lines().iter().any(is_late),
            "ready before its packages: {line}"
        );
        for _ in 0..3 {
            assert_eq!(message(), "WATCHDOG=1");
        }
        host.terminate();
        while message() == "WATCHDOG=1" {}
        assert_eq!(host.wait_exit().code(), Some(0));
    });
}

#[test]
fn a_service_manager_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = crate::site::command(folder.path(), ["serve"]);
    command.env("NOTIFY_SOCKET", "/no/such/socket");
    let output = command.output().expect("an end");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("/no/such/socket in NOTIFY_SOCKET cannot be reached"),
        "{said}"
    );
}

#[test]
fn each_shell_gets_completions_and_man_gets_a_page_for_each_command() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    for (shell, part) in [
        ("bash", "complete -F _campanile"),
        ("zsh", "#compdef campanile"),
        ("fish", "complete -c campanile"),
        ("powershell", "Register-ArgumentCompleter"),
    ] {
        let output = run(folder, ["completions", shell]);
        assert_eq!(output.code, 0, "{output:?}");
        assert!(output.stdout.contains(part), "{shell}: {}", output.stdout);
        output.assert_stdout("trigger");
        assert!(!output.stdout.contains("load-package"), "{shell}");
    }
    run(folder, ["completions", "csh"]).assert_refused(&["'csh'", "bash"]);
    let page = run(folder, ["man"]);
    page.assert_stdout(".TH campanile 1");
    let output = run(folder, ["man", "--into", "pages", "--json"]);
    assert_eq!(output.json()["folder"], "pages", "{output:?}");
    for page in [
        "campanile.1",
        "campanile-schedule-add.1",
        "campanile-doctor.1",
    ] {
        assert!(folder.join("pages").join(page).is_file(), "{page}");
    }
    std::fs::write(folder.join("file"), "").expect("a file");
    let output = run(folder, ["man", "--into", "file"]);
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_stderr("cannot be written to file");
}
