//! Data on stdout, messages on stderr, and outputs that cannot be written.

use std::fs::File;
use std::process::{Command, Stdio};

use campanile_tests::{Backend, HostProcess, Place, on_both_empty, run_empty_case};
use serde_json::Value;

use crate::site::{Site, eventually, list, package, run, stop};

on_both_empty!(
    every_command_prints_json_and_text,
    no_text_reaches_a_terminal_with_control_characters,
);

async fn every_command_prints_json_and_text(place: Place) {
    let site = Site::new(place);
    site.copy_package("hello");
    site.sidecar("hello", "[[schedules]]\nevery = '1s'\n");
    let mut host = site.serve_with(&["--log-format", "json"]);
    let launch = site.wait_for_launch("hello", |row| row["status"] == "succeeded");
    let run = launch["run_id"].as_str().expect("a run");
    for command in [
        &["schedule", "list"][..],
        &["schedule", "show", "hello"],
        &["schedule", "next", "hello", "-n", "3"],
        &["launch", "list"],
        &["launches", "list"],
        &["packages", "list"],
        &["launch", "list", "--schedule", "hello", "--limit", "1"],
        &["run", "list", "--limit", "1"],
        &["run", "show", run],
        &["run", "logs", run],
        &["package", "list"],
        &["package", "show", "hello"],
        &["event", "list", "--limit", "2"],
        &["db", "status"],
        &["db", "migrate"],
        &["plan"],
        &["stats"],
        &["health"],
        &["config", "default"],
        &["config", "check"],
        &["schedule", "trigger", "hello", "--overlap", "allow"],
        &["schedule", "pause", "hello"],
        &["schedule", "resume", "hello"],
    ] {
        if command == ["health"] {
            site.wait_until_healthy();
        }
        let text = site.run(command.iter().copied());
        assert_eq!((text.code, text.stderr.as_str()), (0, ""), "{text:?}");
        assert!(!text.stdout.trim().is_empty(), "{command:?}");
        if let ["schedule", "pause" | "resume", _] = command {
            let again = site.run(command.iter().copied().chain(["--json"]));
            let error: Value = serde_json::from_str(&again.stdout).expect("JSON");
            assert_eq!(again.code, 2, "{again:?}");
            assert!(error["error"].is_string(), "{again:?}");
            continue;
        }
        site.json(command.iter().copied());
    }
    let newest = list(site.json(["launch", "list", "--limit", "1"]));
    assert_eq!(newest.len(), 1);
    stop(&mut host);
    assert!(host.stdout_lines().is_empty(), "serve has no data");
    for line in host.stderr_lines() {
        let line: Value =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        assert!(
            line["level"].is_string() && line["timestamp"].is_string(),
            "{line}"
        );
    }
}

/// Controls of C0 and C1, DEL, and characters that turn the direction of writing or that nobody sees.
const CONTROLS: [char; 8] = [
    '\u{1b}',
    '\u{7}',
    '\u{9b}',
    '\u{7f}',
    '\u{202e}',
    '\u{200b}',
    '\u{feff}',
    '\u{e0041}',
];

async fn no_text_reaches_a_terminal_with_control_characters(place: Place) {
    let hostile = format!("a{}b", String::from_iter(CONTROLS));
    let site = Site::new(place);
    site.copy_package("hello");
    site.sidecar("hello", "[[schedules]]\nevery = '1h'\n");
    let file = site.plugin(&format!("{hostile}.wasm"));
    std::fs::write(&file, "no package").expect("a file");
    let mut host = site.serve();
    let file = file.display().to_string();
    eventually(|| match site.run(["health"]) {
        output if output.stdout.contains("cannot be used") => Ok(()),
        output => Err(format!("{output:?}")),
    });
    site.ok(["schedule", "pause", "hello", "--note", &hostile]);
    for command in [
        &["health"][..],
        &["task", "check", &file],
        &["package", "list"],
        &["event", "list"],
        &["schedule", "show", "hello"],
        &["schedule", "why", "hello"],
    ] {
        let text = site.run(command.iter().copied());
        let json = site.run(command.iter().copied().chain(["--json"]));
        for output in [&text, &json] {
            let printed = format!("{}{}", output.stdout, output.stderr);
            assert!(!printed.contains(CONTROLS), "{command:?}: {output:?}");
        }
        json.json();
    }
    let schedule = site.json(["schedule", "show", "hello"]);
    let quoted = Value::from(hostile).to_string();
    assert!(schedule.to_string().contains(&quoted), "{schedule}");
    stop(&mut host);
    for line in host.stderr_lines() {
        assert!(!line.contains(CONTROLS), "{line:?}");
    }
}

#[test]
fn every_command_has_help_and_the_version_names_its_components() {
    let folder = tempfile::tempdir().expect("a folder");
    let stdout_of = |args: &[&str]| {
        let output = run(folder.path(), args);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        output.stdout
    };
    // All commands, as `--help` lists them.
    let mut commands = vec![Vec::<String>::new()];
    let mut count = 0;
    while let Some(command) = commands.pop() {
        count += 1;
        let args: Vec<&str> = command
            .iter()
            .map(String::as_str)
            .chain(["--help"])
            .collect();
        let help = stdout_of(&args);
        assert!(help.contains("Usage: campanile"), "{help}");
        let below = help.split("Commands:\n").nth(1).unwrap_or_default();
        for line in below.lines().take_while(|line| line.starts_with("  ")) {
            let name = line.split_whitespace().next().unwrap_or_default();
            if line.starts_with("   ") || name == "help" {
                continue;
            }
            let about = line.split_whitespace().count();
            assert!(about > 1, "`{name}` has no description:\n{help}");
            commands.push(command.iter().cloned().chain([name.to_owned()]).collect());
        }
    }
    assert!(count > 30, "only {count} commands were found");
    let version = stdout_of(&["--version"]);
    for part in ["campanile ", "wasmtime ", "tzdata "] {
        assert!(version.contains(part), "{version}");
    }
}

#[test]
fn wrong_usage_exits_with_2_and_names_the_argument() {
    let folder = tempfile::tempdir().expect("a folder");
    for (args, expected) in [
        (&["start"][..], "unrecognized subcommand 'start'"),
        (&["schedule", "add"], "--package"),
        (&["schedule", "add", "x", "--package", "p"], "--cron"),
        (
            &[
                "schedule",
                "add",
                "x",
                "--package",
                "p",
                "--every",
                "1s",
                "--cron",
                "* * * * *",
            ],
            "cannot be used with",
        ),
        (&["launch", "list", "--limit", "0"], "1..=100000"),
        (&["schedule", "next", "x", "-n", "0"], "1..=10000"),
        (&["run", "show", "x"], "x"),
        (&["serve", "--wait", "soon"], "30s"),
        (&["serve", "--log-format", "xml"], "json"),
    ] {
        run(folder.path(), args).assert_refused(&[expected]);
    }
    let entries = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(entries, 0, "no file was created");
}

/// Return the write end of a pipe without a reader.
fn broken_pipe() -> Stdio {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    writer.into()
}

fn full_device() -> Stdio {
    let full = File::options().write(true).open("/dev/full");
    full.expect("/dev/full").into()
}

fn code(command: &mut Command) -> Option<i32> {
    command.status().expect("a run").code()
}

fn on_sqlite(case: impl FnOnce(Site)) {
    run_empty_case(Backend::Sqlite, async |place| case(Site::new(place)));
}

#[test]
fn a_closed_stdout_is_no_failure_and_a_full_disk_is_one() {
    on_sqlite(|site| {
        site.ok(["db", "migrate"]);
        for args in [
            &["launch", "list"][..],
            &["launch", "list", "--json"],
            &["schedule", "list", "--json"],
            &["config", "default"],
            &["--help"],
        ] {
            let output = site
                .command(args)
                .stdout(broken_pipe())
                .output()
                .expect("a run");
            let stderr = String::from_utf8_lossy(&output.stderr);
            assert_eq!(
                (output.status.code(), stderr.as_ref()),
                (Some(0), ""),
                "{args:?}"
            );
        }
        // A full disk is a failure: the data is lost.
        let mut list = site.command(["launch", "list"]);
        assert_eq!(
            code(list.stdout(full_device()).stderr(Stdio::null())),
            Some(1)
        );
    });
}

#[test]
fn an_unwritable_stderr_does_not_change_the_exit_code() {
    on_sqlite(|site| {
        let mut unknown = site.command(["schedule", "show", "x", "--database", "sqlite:none.db"]);
        for stderr in [broken_pipe(), full_device()] {
            assert_eq!(code(unknown.stderr(stderr)), Some(2));
        }
        let file = crate::site::package("hello");
        let mut hello = site.command(["task".as_ref(), "run".as_ref(), file.as_os_str()]);
        assert_eq!(
            code(hello.stdout(Stdio::null()).stderr(broken_pipe())),
            Some(0)
        );
    });
}

#[test]
fn a_host_keeps_running_after_its_log_reader_closes() {
    on_sqlite(|site| {
        site.copy_package("hello");
        site.sidecar("hello", "[[schedules]]\nevery = '1s'\n");
        let mut command = site.command(["serve"]);
        let command = command.stderr(broken_pipe()).stdout(Stdio::null());
        let mut host = HostProcess::spawn_without_reading(command);
        eventually(|| match site.run(["launch", "list", "--json"]) {
            output if output.stdout.contains("succeeded") => Ok(()),
            output => Err(format!("{output:?}")),
        });
        host.terminate();
        assert_eq!(host.wait_exit().code(), Some(0));
    });
}

#[test]
fn task_output_cannot_imitate_lines_of_the_host() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let file = package("guests");
    let file = file.to_string_lossy();
    let output = run(
        folder.path(),
        ["task", "run", &file, "--task", "log_escapes"],
    );
    assert_eq!(output.code, 0, "{output:?}");
    assert!(
        !output
            .stderr
            .contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']),
        "{output:?}"
    );
    let forged: Vec<&str> = output
        .stderr
        .lines()
        .filter(|line| line.contains("forged line"))
        .collect();
    let prefixes: Vec<&str> = forged
        .iter()
        .map(|line| line.split("forged").next().unwrap_or_default())
        .collect();
    assert_eq!(prefixes, ["    | ", "stdout: ", "stderr: "], "{output:?}");
}
