//! `campanile task run`: one run in the real sandbox, without a database.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;

use campanile_tests::PATIENCE;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{CommandOutput, be_plugins_folder, command, keys, package, run};

pub fn temp_folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Run a task of the committed package `name`, without a sidecar.
pub fn task_run(name: &str, args: &[&str]) -> CommandOutput {
    let folder = temp_folder();
    let file = package(name);
    let args = ["task".as_ref(), "run".as_ref(), file.as_os_str()]
        .into_iter()
        .chain(args.iter().map(|arg| arg.as_ref()));
    run(folder.path(), args)
}

/// Run a task of `guests`. Return the exit code and the report.
pub fn run_guest(task: &str, context: &Value, more: &[&str]) -> (i32, Value) {
    let context = context.to_string();
    let mut args = vec!["--task", task, "--context", &context, "--json"];
    args.extend(more);
    let output = task_run("guests", &args);
    assert_eq!(output.stderr, "", "with --json stderr is empty");
    (output.code, output.json())
}

#[track_caller]
pub fn assert_failure(report: &Value, kind: &str, retryable: bool, expected: &str) {
    let failure = &report["failure"];
    assert_eq!(report["outcome"], kind, "{report:#}");
    assert_eq!(failure["kind"], kind, "{report:#}");
    assert_eq!(failure["retryable"], retryable, "{report:#}");
    let message = failure["message"].as_str().expect("a message");
    assert!(message.contains(expected), "no `{expected}`: {report:#}");
    assert_eq!(report["output"], Value::Null, "{report:#}");
}

#[test]
fn a_successful_run_reports_every_documented_key_and_exits_with_0() {
    let output = task_run("hello", &["--context", r#"{"name": "readers"}"#, "--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    let report = output.json();
    assert_eq!(
        keys(&report),
        [
            "context",
            "failure",
            "logs",
            "outcome",
            "output",
            "package",
            "sidecar",
            "stderr",
            "stderr_bytes_dropped",
            "stdout",
            "stdout_bytes_dropped",
            "unanswered",
            "usage"
        ]
    );
    assert_eq!(
        keys(&report["usage"]),
        ["cpu_ms", "memory_peak_bytes", "shares", "wall_ms"]
    );
    assert_eq!(
        keys(&report["package"]),
        ["digest", "form", "manifest", "name"]
    );
    assert_eq!(report["outcome"], "succeeded");
    assert_eq!(report["output"], json!({"message": "Hello, readers!"}));
    assert_eq!(report["failure"], Value::Null);
    assert_eq!(report["package"]["name"], "hello");
    assert_eq!(report["package"]["form"], "typed_component");
    assert_eq!(report["package"]["manifest"]["name"], "hello");
    assert_eq!(report["package"]["digest"].as_str().map(str::len), Some(64));
    let logs = report["logs"].as_array().expect("a list of log lines");
    assert_eq!(logs.len(), 1, "{report:#}");
    assert_eq!(logs[0]["level"], "info");
    assert_eq!(logs[0]["message"], "Hello, readers!");
    for figure in ["wall_ms", "cpu_ms", "memory_peak_bytes"] {
        let figure = report["usage"][figure].as_f64().expect("a number");
        assert!(figure > 0.0, "{report:#}");
    }
}

#[test]
fn without_json_stdout_holds_only_the_output_and_stderr_the_messages() {
    let output = task_run("hello", &[]);
    assert_eq!(output.code, 0);
    assert_eq!(output.json(), json!({"message": "Hello, world!"}));
    output.assert_stderr("Hello, world!");
    output.assert_stderr("succeeded in");
    let output = task_run("guests", &["--task", "fail_permanent"]);
    assert_eq!((output.code, output.stdout.as_str()), (1, ""), "{output:?}");
    output.assert_stderr("failed: told to fail");
}

#[test]
fn the_report_holds_stdout_stderr_and_the_context() {
    let (code, report) = run_guest("print", &json!({}), &[]);
    assert_eq!(code, 0);
    assert_eq!(report["stdout"], "to stdout\n");
    assert_eq!(report["stderr"], "to stderr\n");
    let (code, report) = run_guest("context_conflict_a", &json!({}), &[]);
    assert_eq!(code, 0);
    assert_eq!(report["context"], json!({"same": "a"}));
}

#[test]
fn a_failure_reports_whether_it_is_retryable_and_exits_with_1() {
    let (code, report) = run_guest("fail_retryable", &json!({"message": "not ready"}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "failed", true, "not ready");
    assert_eq!(keys(&report["failure"]), ["kind", "message", "retryable"]);
    let (code, report) = run_guest("fail_permanent", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "failed", false, "told to fail");
}

#[test]
fn a_panic_is_reported_as_trapped_with_its_message() {
    let (code, report) = run_guest("panic", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "trapped", true, "the bell has cracked");
}

#[test]
fn the_timeout_stops_a_busy_loop_and_a_sleep() {
    for (task, context) in [("spin", json!({})), ("sleep", json!({"ms": 600_000}))] {
        let (code, report) = run_guest(task, &context, &["--timeout", "300ms"]);
        assert_eq!(code, 1, "{task}");
        assert_failure(&report, "timed_out", true, "300ms");
        let wall = report["usage"]["wall_ms"].as_f64().expect("a number");
        // Without their time-out, one would never end and the other only after ten minutes.
        let patience = PATIENCE.as_secs_f64() * 1_000.0;
        assert!((300.0..patience).contains(&wall), "{task}: {wall}");
    }
}

#[test]
fn the_memory_limit_covers_all_memory_of_a_task() {
    let (code, report) = run_guest("alloc", &json!({}), &["--memory", "16MiB"]);
    assert_eq!(code, 1);
    assert_failure(&report, "memory_exceeded", true, "16.0 MiB");
    let peak = report["usage"]["memory_peak_bytes"]
        .as_u64()
        .expect("bytes");
    assert!(peak <= 16 << 20, "{peak}");
    let (code, _) = run_guest("alloc", &json!({"bytes": 20 << 20}), &["--memory", "32MiB"]);
    assert_eq!(code, 0, "the same task with a larger limit");
}

#[test]
fn an_invalid_output_is_not_retryable() {
    let (code, report) = run_guest("big_output", &json!({"bytes": 2 << 20}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "invalid_output", false, "its limit is 1048576");
    for (task, expected) in [
        ("output_not_json", "output is not JSON"),
        ("context_not_object", "context"),
        ("context_reserved", "may not set `attempt`"),
    ] {
        let output = task_run("misshapen", &["--task", task, "--json"]);
        assert_eq!(output.code, 1, "{output:?}");
        assert_failure(&output.json(), "invalid_output", false, expected);
    }
}

#[test]
fn a_task_that_calls_itself_denied_has_failed() {
    let (code, report) = run_guest("fail_denied", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "failed", false, "told to fail");
    assert_eq!(report["failure"]["note"], Value::Null, "{report:#}");
}

#[test]
fn a_package_with_an_ungranted_request_is_denied_before_the_call() {
    let output = task_run("backup", &["--json"]);
    assert_eq!(output.code, 1, "{output:?}");
    let report = output.json();
    assert_failure(
        &report,
        "denied",
        false,
        "needs to read the directory /source",
    );
    assert_failure(&report, "denied", false, "add to backup.toml");
}

#[track_caller]
fn assert_note(report: &Value, kind: &str, note: &str) {
    let failure = &report["failure"];
    assert_eq!(failure["kind"], kind, "{report:#}");
    let actual = failure["note"].as_str().unwrap_or_default();
    assert!(actual.contains(note), "no `{note}`: {report:#}");
}

/// Return a plugins folder with `guests.wasm`, and with its sidecar when one is given.
pub fn guests_folder(sidecar: Option<&str>) -> TempDir {
    let folder = temp_folder();
    std::fs::copy(package("guests"), folder.path().join("guests.wasm")).expect("a copy");
    std::fs::create_dir(folder.path().join("data")).expect("a folder");
    std::fs::write(folder.path().join("data/note.txt"), "ding").expect("a file");
    be_plugins_folder(folder.path());
    if let Some(sidecar) = sidecar {
        std::fs::write(folder.path().join("guests.toml"), sidecar).expect("a sidecar");
    }
    folder
}

pub fn run_in_folder(folder: &Path, task: &str, context: &Value) -> (i32, Value) {
    let context = context.to_string();
    let output = run(
        folder,
        [
            "task",
            "run",
            "guests.wasm",
            "--task",
            task,
            "--context",
            &context,
            "--json",
        ],
    );
    (output.code, output.json())
}

const DATA: &str = "[[grants.directories]]\nhost = 'data'\nguest = '/data'\naccess = 'read'\n";

/// Returns a directory with a note, and a grant for writing there, as nothing inside the plugins folder can be granted that way.
fn writable_data() -> (TempDir, String) {
    let data = temp_folder();
    std::fs::write(data.path().join("note.txt"), "ding").expect("a file");
    let host = format!("'{}'", data.path().display());
    let grant = DATA.replace("'read'", "'write'").replace("'data'", &host);
    (data, grant)
}

#[test]
fn a_directory_needs_a_grant_and_a_write_needs_write_access() {
    let read = |folder: &TempDir| {
        run_in_folder(
            folder.path(),
            "read_file",
            &json!({"path": "/data/note.txt"}),
        )
    };
    let write = |folder: &TempDir| {
        let file = json!({"path": "/data/new.txt", "text": "dong"});
        run_in_folder(folder.path(), "write_file", &file)
    };
    let ungranted = guests_folder(None);
    let (code, report) = read(&ungranted);
    assert_eq!(code, 1, "{report:#}");
    let grant_end = |access: &str| format!("guest = \"/data\", access = \"{access}\" }}]`");
    // The failure is the one of the task, and a note proposes the grant.
    assert_note(
        &report,
        "failed",
        "/data/note.txt lies in no granted directory",
    );
    assert_note(&report, "failed", &grant_end("read"));
    let (_, report) = write(&ungranted);
    assert_note(
        &report,
        "failed",
        "/data/new.txt lies in no granted directory",
    );
    assert_note(&report, "failed", &grant_end("write"));

    let read_only = guests_folder(Some(DATA));
    let (code, report) = read(&read_only);
    assert_eq!((code, &report["output"]), (0, &json!({"text": "ding"})));
    let (code, report) = write(&read_only);
    assert_eq!(code, 1, "{report:#}");
    // The task's SDK turns a permission error into `denied`. Only the host can say more, and does so in the note.
    let expected = "/data/new.txt cannot be written: /data is granted for reading only; to allow it, write `access = \"write\"`";
    assert_note(&report, "failed", expected);
    // A missing file in a granted directory is an ordinary failure of the task.
    let missing = json!({"path": "/data/missing.txt"});
    let (_, report) = run_in_folder(read_only.path(), "read_file", &missing);
    assert_eq!(report["outcome"], "failed", "{report:#}");
    assert!(!read_only.path().join("data/new.txt").exists());

    // Not in the sidecar's folder: a task writing there could extend its own grants.
    let (data, grant) = writable_data();
    let (code, report) = write(&guests_folder(Some(&grant)));
    assert_eq!(code, 0, "{report:#}");
    let written = std::fs::read_to_string(data.path().join("new.txt"));
    assert_eq!(written.expect("the task's file"), "dong");
}

#[test]
fn a_task_writes_to_a_directory_only_within_its_quota() {
    let (data, grant) = writable_data();
    let quota = format!("{grant}max_bytes = '8KiB'\n");
    let folder = guests_folder(Some(&quota));
    let write = |name: &str| {
        let file = json!({"path": format!("/data/{name}"), "text": "dong"});
        run_in_folder(folder.path(), "write_file", &file)
    };
    let (code, report) = write("new.txt");
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(
        report["usage"]["directories"],
        json!([{"guest": "/data", "bytes": 8192, "max_bytes": 8192, "files": 2, "max_files": null}])
    );
    let (code, report) = write("more.txt");
    assert_eq!(code, 1, "{report:#}");
    let note = report["failure"]["note"].as_str().expect("a note");
    assert!(
        note.starts_with("/data is full: it holds 8KiB of the 8KiB that its quota allows")
            && note.contains("raise `max_bytes`"),
        "{note}"
    );
    assert!(!data.path().join("more.txt").exists());
    let (code, report) = write("new.txt");
    assert_eq!(code, 0, "{report:#}");
}

#[test]
fn a_task_sees_only_the_configuration_and_variables_of_its_sidecar() {
    let ungranted = guests_folder(None);
    let config =
        |folder: &TempDir| run_in_folder(folder.path(), "read_config", &json!({"key": "site"}));
    let (_, report) = config(&ungranted);
    assert_ne!(report["output"], json!({"value": "south"}));
    let env = |folder: &TempDir| run_in_folder(folder.path(), "list_env", &json!({}));
    assert_eq!(env(&ungranted).1["output"], json!({"variables": {}}));

    let granted = guests_folder(Some(
        "[grants]\nenv = ['COLOR=green']\nconfig = { site = 'south' }\n",
    ));
    assert_eq!(config(&granted).1["output"], json!({"value": "south"}));
    let variables = json!({"variables": {"COLOR": "green"}});
    assert_eq!(env(&granted).1["output"], variables);
}

#[test]
fn the_network_is_denied_without_a_grant_and_reached_with_one() {
    let server = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = server.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for connection in server.incoming() {
            let Ok(mut connection) = connection else {
                return;
            };
            let mut request = [0; 4096];
            let _ = connection.read(&mut request);
            let _ = connection.write_all(
                b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\nconnection: close\r\n\r\nding",
            );
        }
    });
    let get = |folder: &TempDir| {
        let url = format!("http://127.0.0.1:{port}/");
        run_in_folder(folder.path(), "http_get", &json!({"url": url}))
    };
    let (code, report) = get(&guests_folder(None));
    assert_eq!(code, 1);
    assert_failure(
        &report,
        "denied",
        false,
        "grant it in the package's sidecar",
    );

    let sidecar = format!("[[grants.http]]\nscheme = 'http'\nhost = '127.0.0.1'\nport = {port}\n");
    let (code, report) = get(&guests_folder(Some(&sidecar)));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["output"]["body"], "ding");
}

#[test]
fn a_context_file_overrides_the_context_of_the_sidecar() {
    let folder = guests_folder(Some("[context]\na = 'sidecar'\nb = 'sidecar'\n"));
    std::fs::write(folder.path().join("context.json"), r#"{"b": "file"}"#).expect("a file");
    let output = run(
        folder.path(),
        [
            "task",
            "run",
            "guests.wasm",
            "--task",
            "echo",
            "--context",
            "@context.json",
        ],
    );
    assert_eq!(output.code, 0, "{output:?}");
    let context = output.json();
    assert_eq!(
        (&context["a"], &context["b"]),
        (&json!("sidecar"), &json!("file"))
    );
    assert_eq!(context["trigger"], "manual");
    assert_eq!(context["is_recovery"], false);
    assert_eq!(context["attempt"], 1);
    assert_eq!(context["schedule"], Value::Null);
    for key in [
        "scheduled_time",
        "original_scheduled_time",
        "recovery_attempt_time",
        "execution_id",
        "run_id",
        "scheduled_local",
        "interval_start",
        "interval_end",
        "last_result",
        "last_failure",
    ] {
        assert!(keys(&context).contains(&key), "{key}: {context:#}");
    }
    // No caller gave one.
    assert_eq!(context.get("traceparent"), None);
}

#[test]
fn an_invalid_context_is_refused_with_the_reason() {
    for (context, expected) in [
        ("[1]", "--context: the context must be a JSON object"),
        ("{", "--context: not JSON"),
        ("", "--context: not JSON"),
        (
            r#"{"attempt": 2}"#,
            "--context: the context may not set `attempt`",
        ),
        ("@nowhere.json", "nowhere.json"),
    ] {
        task_run("noop", &["--context", context]).assert_refused(&[expected]);
    }
}

#[test]
fn an_unknown_or_omitted_task_is_refused_with_a_hint() {
    task_run("guests", &["--task", "ecco"])
        .assert_refused(&["has no task `ecco`", "did you mean `echo`?"]);
    task_run("guests", &[]).assert_refused(&["has several tasks", "fail_retryable", "--task"]);
    let output = task_run("guests", &["--task", "ecco", "--json"]);
    assert_eq!(output.code, 2);
    assert_eq!(keys(&output.json()), ["code", "error", "hint"]);
}

#[test]
fn a_limit_out_of_range_is_refused() {
    task_run("noop", &["--timeout", "0s"]).assert_refused(&["--timeout", "1ms"]);
    task_run("noop", &["--timeout", "soon"]).assert_refused(&["--timeout", "soon", "30s"]);
    task_run("noop", &["--memory", "1KiB"]).assert_refused(&["--memory", "64KiB"]);
    task_run("noop", &["--memory", "abc"])
        .assert_refused(&["is \"abc\", which is not a size", "64MiB"]);
    task_run("noop", &["--memory", "100GiB"]).assert_refused(&["--memory", "sandbox.memory_max"]);
}

#[test]
fn a_wasi_program_runs_as_a_task_with_preview_1_and_2() {
    for (name, form) in [
        ("command", "command_component"),
        ("command-p1", "preview1_command"),
    ] {
        let output = task_run(name, &["--context", r#"{"greeting": "ciao"}"#, "--json"]);
        assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
        let report = output.json();
        assert_eq!(report["package"]["form"], form);
        assert_eq!(report["package"]["manifest"], json!({}));
        let received = &report["output"];
        assert_eq!(received["context"]["greeting"], "ciao");
        assert_eq!(received["arguments"], json!([name]));
        assert_eq!(received["env"]["CAMPANILE_TASK_NAME"], name);
        for (variable, key) in [
            ("CAMPANILE_EXECUTION_ID", "execution_id"),
            ("CAMPANILE_RUN_ID", "run_id"),
            (
                "CAMPANILE_ORIGINAL_SCHEDULED_TIME",
                "original_scheduled_time",
            ),
        ] {
            assert_eq!(
                received["env"][variable], received["context"][key],
                "{variable}"
            );
        }
        let output = task_run(name, &["--context", r#"{"do": "fail"}"#, "--json"]);
        assert_eq!(output.code, 1, "{output:?}");
        assert_failure(&output.json(), "failed", true, "exited with code 1: ");
    }
}

#[test]
fn task_run_needs_and_creates_no_database() {
    let folder = temp_folder();
    let file = package("hello");
    let args = ["task".as_ref(), "run".as_ref(), file.as_os_str()];
    let output = command(folder.path(), args)
        .env(
            "CAMPANILE_DATABASE_URL",
            "postgres://nobody@127.0.0.1:1/none",
        )
        .output()
        .expect("a run");
    assert!(output.status.success(), "{output:?}");
    let entries = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(entries, 0);
}

#[test]
fn requests_are_answered_from_the_replies_file() {
    let folder = guests_folder(Some("[[grants.http]]\nhost = 'api.example.com'\n"));
    let ask = |path: &str, replies: &Value| {
        std::fs::write(folder.path().join("replies.json"), replies.to_string()).expect("a file");
        let context = json!({"url": format!("https://api.example.com{path}")}).to_string();
        let args = ["task", "run", "guests.wasm", "--task", "http_get", "--json"];
        let more = ["--replies", "replies.json", "--context", &context];
        run(folder.path(), args.into_iter().chain(more))
    };
    let replies = json!([{"request": "GET https://api.example.com/a", "body": "ding"}]);
    let output = ask("/a", &replies);
    assert_eq!(output.code, 0, "{output:?}");
    let report = output.json();
    assert_eq!(report["output"]["body"], "ding");
    assert_eq!(report["unanswered"], json!([]));
    let report = ask("/b", &replies).json();
    assert_eq!(report["outcome"], "failed", "{report:#}");
    assert_eq!(
        report["unanswered"],
        json!(["GET https://api.example.com/b"])
    );
}

const TOKEN: &str = "grants.env = ['CHIME=ding']\n";

/// A downloaded folder may hold a sidecar that its operator never read.
#[test]
fn a_sidecar_outside_the_plugins_folder_applies_only_when_it_is_named() {
    let folder = guests_folder(Some(TOKEN));
    let download = folder.path().join("download");
    std::fs::create_dir(&download).expect("a folder");
    for file in ["guests.wasm", "guests.toml"] {
        std::fs::copy(folder.path().join(file), download.join(file)).expect("a copy");
    }
    let task_run = |file: &str, more: &[&str]| {
        let fixed = ["task", "run", file, "--task", "ok"];
        let args = fixed.into_iter().chain(more.iter().copied());
        let output = run(folder.path(), args.clone());
        assert_eq!(output.code, 0, "{output:?}");
        let report = run(folder.path(), args.chain(["--json"]));
        assert_eq!(report.stderr, "", "{report:?}");
        (output.stderr, report.json()["sidecar"].clone())
    };
    let (printed, applied) = task_run("download/guests.wasm", &[]);
    assert!(
        printed.contains("note: download/guests.toml is not applied")
            && printed.contains("--sidecar download/guests.toml"),
        "{printed}"
    );
    assert_eq!(applied, Value::Null);
    let named = ["--sidecar", "download/guests.toml"];
    let (printed, applied) = task_run("download/guests.wasm", &named);
    assert!(
        printed.contains("note: download/guests.toml grants env CHIME"),
        "{printed}"
    );
    assert_eq!(applied, "download/guests.toml");
    let (printed, applied) = task_run("guests.wasm", &[]);
    assert!(
        printed.contains("note: guests.toml grants env CHIME"),
        "{printed}"
    );
    assert_eq!(applied, "guests.toml");
    let (printed, applied) = task_run("guests.wasm", &["--no-sidecar"]);
    assert!(!printed.contains("note: "), "{printed}");
    assert_eq!(applied, Value::Null);

    let refused = |args: &[&str], parts: &[&str]| {
        let fixed = ["task", "run", "guests.wasm", "--task", "ok"];
        run(folder.path(), fixed.into_iter().chain(args.iter().copied())).assert_refused(parts);
    };
    refused(
        &["--sidecar", "nowhere.toml"],
        &["--sidecar nowhere.toml cannot be read"],
    );
    refused(
        &["--sidecar", "guests.toml", "--no-sidecar"],
        &["cannot be used with"],
    );
}
