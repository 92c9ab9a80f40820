//! `campanile task run`: one run in the real sandbox, without a database.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{Said, command, keys, package, run};

fn folder() -> TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

/// Run a task of the package `name` as it is committed: without a sidecar.
fn task_run(name: &str, args: &[&str]) -> Said {
    let here = folder();
    let file = package(name);
    let args = ["task".as_ref(), "run".as_ref(), file.as_os_str()]
        .into_iter()
        .chain(args.iter().map(|arg| arg.as_ref()));
    run(here.path(), args)
}

/// The report of a task of `guests`, and the exit code.
fn guest(task: &str, context: &Value, more: &[&str]) -> (i32, Value) {
    let context = context.to_string();
    let mut args = vec!["--task", task, "--context", &context, "--json"];
    args.extend(more);
    let said = task_run("guests", &args);
    assert_eq!(said.stderr, "", "with --json only the report speaks");
    (said.code, said.json())
}

#[track_caller]
fn assert_failure(report: &Value, kind: &str, retryable: bool, expected: &str) {
    let failure = &report["failure"];
    assert_eq!(report["outcome"], kind, "{report:#}");
    assert_eq!(failure["kind"], kind, "{report:#}");
    assert_eq!(failure["retryable"], retryable, "{report:#}");
    let message = failure["message"].as_str().expect("a message");
    assert!(message.contains(expected), "no `{expected}`: {report:#}");
    assert_eq!(report["output"], Value::Null, "{report:#}");
}

#[test]
fn a_success_is_reported_with_every_promised_key_and_exit_code_0() {
    let said = task_run("hello", &["--context", r#"{"name": "bells"}"#, "--json"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
    let report = said.json();
    assert_eq!(
        keys(&report),
        [
            "context",
            "failure",
            "logs",
            "outcome",
            "output",
            "package",
            "stderr",
            "stdout",
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
    assert_eq!(report["output"], json!({"message": "Hello, bells!"}));
    assert_eq!(report["failure"], Value::Null);
    assert_eq!(report["package"]["name"], "hello");
    assert_eq!(report["package"]["form"], "typed_component");
    assert_eq!(report["package"]["manifest"]["name"], "hello");
    assert_eq!(report["package"]["digest"].as_str().map(str::len), Some(64));
    let logs = report["logs"].as_array().expect("a list of log lines");
    assert_eq!(logs.len(), 1, "{report:#}");
    assert_eq!(logs[0]["level"], "info");
    assert_eq!(logs[0]["message"], "Hello, bells!");
    for figure in ["wall_ms", "cpu_ms", "memory_peak_bytes"] {
        let figure = report["usage"][figure].as_f64().expect("a number");
        assert!(figure > 0.0, "{report:#}");
    }
}

#[test]
fn without_json_stdout_holds_the_output_alone_and_stderr_the_talk() {
    let said = task_run("hello", &[]);
    assert_eq!(said.code, 0);
    assert_eq!(said.json(), json!({"message": "Hello, world!"}));
    assert!(said.stderr.contains("Hello, world!"), "{said:?}");
    assert!(said.stderr.contains("succeeded in"), "{said:?}");
    let said = task_run("guests", &["--task", "fail_permanent"]);
    assert_eq!((said.code, said.stdout.as_str()), (1, ""), "{said:?}");
    assert!(said.stderr.contains("failed: told to fail"), "{said:?}");
}

#[test]
fn what_a_task_prints_and_passes_on_is_in_the_report() {
    let (code, report) = guest("print", &json!({}), &[]);
    assert_eq!(code, 0);
    assert_eq!(report["stdout"], "to stdout\n");
    assert_eq!(report["stderr"], "to stderr\n");
    let (code, report) = guest("context_conflict_a", &json!({}), &[]);
    assert_eq!(code, 0);
    assert_eq!(report["context"], json!({"same": "a"}));
}

#[test]
fn a_failure_says_whether_trying_again_helps_and_is_exit_code_1() {
    let (code, report) = guest("fail_retryable", &json!({"message": "no bell"}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "failed", true, "no bell");
    assert_eq!(keys(&report["failure"]), ["kind", "message", "retryable"]);
    let (code, report) = guest("fail_permanent", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "failed", false, "told to fail");
}

#[test]
fn a_panic_is_trapped_and_its_words_are_kept() {
    let (code, report) = guest("panic", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "trapped", true, "the bell has cracked");
}

#[test]
fn the_time_out_stops_a_loop_on_the_processor_and_a_sleep_in_the_host() {
    for (task, context) in [("spin", json!({})), ("sleep", json!({"ms": 600_000}))] {
        let begun = Instant::now();
        let (code, report) = guest(task, &context, &["--timeout", "300ms"]);
        assert_eq!(code, 1, "{task}");
        assert_failure(&report, "timed_out", true, "300ms");
        let wall = report["usage"]["wall_ms"].as_f64().expect("a number");
        assert!((300.0..10_000.0).contains(&wall), "{task}: {wall}");
        assert!(begun.elapsed() < Duration::from_secs(20), "{task}");
    }
}

#[test]
fn the_memory_limit_holds_for_all_memory_together() {
    let (code, report) = guest("alloc", &json!({}), &["--memory", "16MiB"]);
    assert_eq!(code, 1);
    assert_failure(&report, "memory_exceeded", true, "16.0 MiB");
    let peak = report["usage"]["memory_peak_bytes"]
        .as_u64()
        .expect("bytes");
    assert!(peak <= 16 << 20, "{peak}");
    let (code, _) = guest("alloc", &json!({"bytes": 20 << 20}), &["--memory", "32MiB"]);
    assert_eq!(code, 0, "the same task within a greater limit");
}

#[test]
fn an_output_that_may_not_be_is_invalid_and_never_worth_a_retry() {
    let (code, report) = guest("big_output", &json!({"bytes": 2 << 20}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "invalid_output", false, "its limit is 1048576");
    for (task, expected) in [
        ("output_not_json", "output is not JSON"),
        ("context_not_object", "context"),
        ("context_reserved", "may not set `attempt`"),
    ] {
        let said = task_run("misshapen", &["--task", task, "--json"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert_failure(&said.json(), "invalid_output", false, expected);
    }
}

#[test]
fn a_task_may_say_itself_that_it_was_denied() {
    let (code, report) = guest("fail_denied", &json!({}), &[]);
    assert_eq!(code, 1);
    assert_failure(&report, "denied", false, "told to fail");
}

#[test]
fn a_package_that_asks_for_what_is_not_granted_is_denied_before_it_begins() {
    let said = task_run("backup", &["--json"]);
    assert_eq!(said.code, 1, "{said:?}");
    let report = said.json();
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
    let noted = failure["note"].as_str().unwrap_or_default();
    assert!(noted.contains(note), "no `{note}`: {report:#}");
}

/// A folder with `guests.wasm`, and with its sidecar when one is given.
fn granted(sidecar: Option<&str>) -> TempDir {
    let here = folder();
    std::fs::copy(package("guests"), here.path().join("guests.wasm")).expect("a copy");
    std::fs::create_dir(here.path().join("data")).expect("a folder");
    std::fs::write(here.path().join("data/note.txt"), "ding").expect("a file");
    if let Some(sidecar) = sidecar {
        std::fs::write(here.path().join("guests.toml"), sidecar).expect("a sidecar");
    }
    here
}

fn in_folder(here: &Path, task: &str, context: &Value) -> (i32, Value) {
    let context = context.to_string();
    let said = run(
        here,
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
    (said.code, said.json())
}

const DATA: &str = "[[grants.directories]]\nhost = 'data'\nguest = '/data'\naccess = 'read'\n";

#[test]
fn a_directory_is_there_only_by_grant_and_written_only_by_a_grant_to_write() {
    let read =
        |here: &TempDir| in_folder(here.path(), "read_file", &json!({"path": "/data/note.txt"}));
    let write = |here: &TempDir| {
        let file = json!({"path": "/data/new.txt", "text": "dong"});
        in_folder(here.path(), "write_file", &file)
    };
    let without = granted(None);
    let (code, report) = read(&without);
    assert_eq!(code, 1, "{report:#}");
    let lines = |access: &str| format!("guest = \"/data\", access = \"{access}\" }}]`");
    // The failure stays what the task said, and a note proposes the grant.
    assert_note(
        &report,
        "failed",
        "/data/note.txt lies in no granted directory",
    );
    assert_note(&report, "failed", &lines("read"));
    let (_, report) = write(&without);
    assert_note(
        &report,
        "failed",
        "/data/new.txt lies in no granted directory",
    );
    assert_note(&report, "failed", &lines("write"));

    let reading = granted(Some(DATA));
    let (code, report) = read(&reading);
    assert_eq!((code, &report["output"]), (0, &json!({"text": "ding"})));
    let (code, report) = write(&reading);
    assert_eq!(code, 1, "{report:#}");
    // The task's SDK says `denied` itself for an error of permissions.
    let expected = "/data/new.txt cannot be written: /data is granted for reading only; to allow it, write `access = \"write\"`";
    assert_note(&report, "denied", expected);
    // What is not there in a granted directory is the task's own affair.
    let missing = json!({"path": "/data/missing.txt"});
    let (_, report) = in_folder(reading.path(), "read_file", &missing);
    assert_eq!(report["outcome"], "failed", "{report:#}");
    assert!(!reading.path().join("data/new.txt").exists());

    // Not the folder of the sidecar: a task that could write there could grant itself anything.
    let writing = granted(Some(&DATA.replace("'read'", "'write'")));
    let (code, report) = write(&writing);
    assert_eq!(code, 0, "{report:#}");
    let written = std::fs::read_to_string(writing.path().join("data/new.txt"));
    assert_eq!(written.expect("the task's file"), "dong");
}

#[test]
fn configuration_and_environment_are_what_the_sidecar_grants_and_nothing_else() {
    let without = granted(None);
    let config = |here: &TempDir| in_folder(here.path(), "read_config", &json!({"key": "site"}));
    let (_, report) = config(&without);
    assert_ne!(report["output"], json!({"value": "south"}));
    let env = |here: &TempDir| in_folder(here.path(), "list_env", &json!({}));
    assert_eq!(env(&without).1["output"], json!({"variables": {}}));

    let with = granted(Some(
        "[grants]\nenv = ['BELL=great']\nconfig = { site = 'south' }\n",
    ));
    assert_eq!(config(&with).1["output"], json!({"value": "south"}));
    let variables = json!({"variables": {"BELL": "great"}});
    assert_eq!(env(&with).1["output"], variables);
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
    let get = |here: &TempDir| {
        let url = format!("http://127.0.0.1:{port}/");
        in_folder(here.path(), "http_get", &json!({"url": url}))
    };
    let (code, report) = get(&granted(None));
    assert_eq!(code, 1);
    assert_failure(
        &report,
        "denied",
        false,
        "grant it in the package's sidecar",
    );

    let sidecar = format!("[[grants.http]]\nscheme = 'http'\nhost = '127.0.0.1'\nport = {port}\n");
    let (code, report) = get(&granted(Some(&sidecar)));
    assert_eq!(code, 0, "{report:#}");
    assert_eq!(report["output"]["body"], "ding");
}

#[test]
fn the_context_comes_as_json_from_a_file_and_over_the_sidecars() {
    let here = granted(Some("[context]\na = 'sidecar'\nb = 'sidecar'\n"));
    std::fs::write(here.path().join("context.json"), r#"{"b": "file"}"#).expect("a file");
    let said = run(
        here.path(),
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
    assert_eq!(said.code, 0, "{said:?}");
    let context = said.json();
    assert_eq!(
        (&context["a"], &context["b"]),
        (&json!("sidecar"), &json!("file"))
    );
    assert_eq!(context["trigger"], "manual");
    assert_eq!(context["is_recovery"], false);
    assert_eq!(context["attempt"], 1);
    assert_eq!(context["schedule"], Value::Null);
    for always in [
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
        assert!(keys(&context).contains(&always), "{always}: {context:#}");
    }
}

#[test]
fn a_context_that_is_none_is_refused_with_what_to_write() {
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
        task_run("noop", &["--context", context]).refused(&[expected]);
    }
}

#[test]
fn an_unknown_task_is_refused_with_the_nearest_one_and_several_want_a_choice() {
    task_run("guests", &["--task", "ecco"])
        .refused(&["has no task `ecco`", "did you mean `echo`?"]);
    task_run("guests", &[]).refused(&["has several tasks", "fail_retryable", "--task"]);
    let said = task_run("guests", &["--task", "ecco", "--json"]);
    assert_eq!(said.code, 2);
    assert_eq!(keys(&said.json()), ["error", "hint"]);
}

#[test]
fn limits_that_no_task_could_live_with_are_refused() {
    task_run("noop", &["--timeout", "0s"]).refused(&["--timeout", "1ms"]);
    task_run("noop", &["--timeout", "soon"]).refused(&["--timeout", "soon", "30s"]);
    task_run("noop", &["--memory", "1KiB"]).refused(&["--memory", "64KiB"]);
    task_run("noop", &["--memory", "abc"]).refused(&["is \"abc\", which is not a size", "64MiB"]);
    task_run("noop", &["--memory", "100GiB"]).refused(&["--memory", "sandbox.memory_max"]);
}

#[test]
fn a_program_runs_like_a_task_whichever_wasi_it_was_built_for() {
    for (name, form) in [
        ("command", "command_component"),
        ("command-p1", "preview1_command"),
    ] {
        let said = task_run(name, &["--context", r#"{"greeting": "ciao"}"#, "--json"]);
        assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
        let report = said.json();
        assert_eq!(report["package"]["form"], form);
        assert_eq!(report["package"]["manifest"], json!({}));
        let told = &report["output"];
        assert_eq!(told["context"]["greeting"], "ciao");
        assert_eq!(told["arguments"], json!([name]));
        assert_eq!(told["env"]["CAMPANILE_TASK_NAME"], name);
        for (variable, key) in [
            ("CAMPANILE_EXECUTION_ID", "execution_id"),
            ("CAMPANILE_RUN_ID", "run_id"),
            (
                "CAMPANILE_ORIGINAL_SCHEDULED_TIME",
                "original_scheduled_time",
            ),
        ] {
            assert_eq!(told["env"][variable], told["context"][key], "{variable}");
        }
        let said = task_run(name, &["--context", r#"{"do": "fail"}"#, "--json"]);
        assert_eq!(said.code, 1, "{said:?}");
        assert_failure(&said.json(), "failed", true, "exited with code 1: ");
    }
}

/// What became of a file with these bytes.
fn of_bytes(bytes: &[u8]) -> Said {
    let here = folder();
    std::fs::write(here.path().join("file.wasm"), bytes).expect("a file");
    run(here.path(), ["task", "run", "file.wasm", "--json"])
}

#[test]
fn what_is_no_package_is_refused_by_what_it_is_with_exit_code_2() {
    let whole = std::fs::read(package("noop")).expect("a package");
    let module = |text: &str| wat::parse_str(text).expect("WebAssembly");
    let draft = r#"(module (import "wasi_unstable" "fd_write"
        (func (param i32 i32 i32 i32) (result i32))) (func (export "_start")))"#;
    let later = r#"(component (instance $i) (export "wasi:cli/run@0.3.0" (instance $i)))"#;
    for (bytes, expected) in [
        (b"just text\n".to_vec(), "this is not WebAssembly"),
        (Vec::new(), "the file is empty"),
        (whole[..5000].to_vec(), "cut short"),
        (whole[..whole.len() - 1].to_vec(), "cut short"),
        (b"(module)".to_vec(), "WebAssembly text"),
        (module(draft), "`wasi_unstable.fd_write`"),
        (module(later), "wasi:cli/run@0.3.0"),
        (
            std::fs::read(package("cycle")).expect("a package"),
            "chicken → egg → chicken",
        ),
    ] {
        let said = of_bytes(&bytes);
        assert_eq!(
            (said.code, said.stderr.as_str()),
            (2, ""),
            "{expected}: {said:?}"
        );
        let report = said.json();
        assert_failure(&report, "refused", false, expected);
        assert_eq!(report["package"]["form"], Value::Null);
    }
    task_run("nowhere", &[]).refused(&["nowhere.wasm"]);
}

#[test]
fn a_file_that_could_not_be_read_as_a_package_is_reported_too() {
    let here = folder();
    std::fs::create_dir(here.path().join("directory.wasm")).expect("a folder");
    std::fs::File::create(here.path().join("huge.wasm"))
        .and_then(|file| file.set_len((64 << 20) + 1))
        .expect("a file with holes");
    make_fifo(&here.path().join("pipe.wasm"));
    for (file, expected) in [
        ("directory.wasm", "it is not a regular file"),
        ("pipe.wasm", "it is not a regular file"),
        ("huge.wasm", "and a package may have 64MiB"),
    ] {
        let said = run(here.path(), ["task", "run", file, "--json"]);
        assert_eq!((said.code, said.stderr.as_str()), (2, ""), "{said:?}");
        let report = said.json();
        assert_failure(&report, "refused", false, expected);
        assert_eq!(report["package"]["digest"], Value::Null);
    }
}

fn make_fifo(path: &Path) {
    let made = std::process::Command::new("mkfifo").arg(path).status();
    assert!(made.expect("mkfifo").success());
}

/// What a sidecar that a host would refuse is refused for here.
#[track_caller]
fn assert_refused(here: &TempDir, expected: &str) {
    let (code, report) = in_folder(here.path(), "ok", &json!({}));
    assert_eq!(code, 2, "{report:#}");
    assert_failure(&report, "refused", false, expected);
}

#[test]
fn a_sidecar_is_held_against_the_file_as_a_host_would() {
    for (sidecar, expected) in [
        (
            format!("sha256 = '{}'\n", "0".repeat(64)),
            "and guests.toml pins 0000",
        ),
        (
            "[[schedules]]\ncron = '0 0 * * MOO'\n".to_owned(),
            "guests.toml:2:1: `schedules[0].cron` is refused",
        ),
        (
            "[[schedules]]\nevery = '1h'\ntimezone = 'Europe/Pris'\n".to_owned(),
            "guests.toml:3:1: `schedules[0].timezone` is refused",
        ),
        (
            "[[schedules]]\nevery = '1h'\ntask = 'ecco'\n".to_owned(),
            "does not have: did you mean `echo`?",
        ),
        (
            "#".repeat((1 << 20) + 1),
            "guests.toml: it is larger than 1MiB",
        ),
    ] {
        assert_refused(&granted(Some(&sidecar)), expected);
    }
    let here = granted(None);
    make_fifo(&here.path().join("guests.toml"));
    assert_refused(&here, "guests.toml: it is not a regular file");
    let here = granted(None);
    std::os::unix::fs::symlink("nothing", here.path().join("guests.toml")).expect("a link");
    assert_refused(&here, "guests.toml: it is a link to nothing");
}

#[test]
fn a_sidecar_that_is_wrong_is_refused_with_file_line_key_and_hint() {
    for (sidecar, expected) in [
        (
            "[limits]\ntimout = '1s'\n",
            "guests.toml:2:1: unknown key `limits.timout`: did you mean `timeout`?",
        ),
        ("[grant]\n", "unknown key `grant`: did you mean `grants`?"),
        (
            "[[grants.directories]]\nhost = 'nowhere'\nguest = '/data'\naccess = 'read'\n",
            "nowhere, which cannot be used",
        ),
        ("[context]\nrun_id = 1\n", "may not set `run_id`"),
        (
            "context = 3\n",
            "guests.toml:1:1: `context` must be a table",
        ),
        ("this is no toml", "guests.toml:1"),
    ] {
        let here = granted(Some(sidecar));
        let (code, report) = in_folder(here.path(), "ok", &json!({}));
        assert_eq!(code, 2, "{report:#}");
        assert_failure(&report, "refused", false, expected);
    }
}

#[test]
fn no_database_is_made_or_needed() {
    let here = folder();
    let file = package("hello");
    let args = ["task".as_ref(), "run".as_ref(), file.as_os_str()];
    let output = command(here.path(), args)
        .env(
            "CAMPANILE_DATABASE_URL",
            "postgres://nobody@127.0.0.1:1/none",
        )
        .output()
        .expect("a run");
    assert!(output.status.success(), "{output:?}");
    let left = std::fs::read_dir(here.path()).expect("the folder").count();
    assert_eq!(left, 0);
}

#[test]
fn requests_are_answered_by_a_file_in_place_of_the_network() {
    let here = granted(Some("[[grants.http]]\nhost = 'api.example.com'\n"));
    let ask = |path: &str, replies: &Value| {
        std::fs::write(here.path().join("replies.json"), replies.to_string()).expect("a file");
        let context = json!({"url": format!("https://api.example.com{path}")}).to_string();
        let args = ["task", "run", "guests.wasm", "--task", "http_get", "--json"];
        let more = ["--replies", "replies.json", "--context", &context];
        run(here.path(), args.into_iter().chain(more))
    };
    let replies = json!([{"request": "GET https://api.example.com/a", "body": "ding"}]);
    let said = ask("/a", &replies);
    assert_eq!(said.code, 0, "{said:?}");
    let report = said.json();
    assert_eq!(report["output"]["body"], "ding");
    assert_eq!(report["unanswered"], json!([]));
    let report = ask("/b", &replies).json();
    assert_eq!(report["outcome"], "failed", "{report:#}");
    assert_eq!(
        report["unanswered"],
        json!(["GET https://api.example.com/b"])
    );
}
