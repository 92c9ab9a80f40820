//! `campanile task check`: the requests of a package, and its idempotence after a crash.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{CommandOutput, keys, package, run};

/// Returns a folder with the package `name` and this sidecar in its plugins folder.
fn folder_with(name: &str, sidecar: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for directory in ["source", "out", "plugins"] {
        std::fs::create_dir(folder.path().join(directory)).unwrap();
    }
    std::fs::write(folder.path().join("source/a.txt"), "one").unwrap();
    let file = folder.path().join(format!("plugins/{name}.wasm"));
    std::fs::copy(package(name), &file).unwrap();
    std::fs::write(file.with_extension("toml"), sidecar).unwrap();
    folder
}

fn check(folder: &Path, name: &str, more: &[&str]) -> CommandOutput {
    let file = format!("plugins/{name}.wasm");
    let args = ["task", "check", &file]
        .into_iter()
        .chain(more.iter().copied());
    run(folder, args)
}

const APPEND: &str =
    "[[grants.directories]]\nhost = \"../out\"\nguest = \"/out\"\naccess = \"write\"\n";
const BACKUP: &str = "[[grants.directories]]\nhost = \"../source\"\nguest = \"/source\"\naccess = \"read\"\n\
    [[grants.directories]]\nhost = \"../out\"\nguest = \"/snapshots\"\naccess = \"write\"\n";

#[test]
fn a_backup_passes_and_its_directories_stay_unchanged() {
    let folder = folder_with("backup", BACKUP);
    let output = check(folder.path(), "backup", &["--slot", "2026-11-21T02:00:00Z"]);
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_stdout("imports   campanile:task/run-info@0.1.0");
    output.assert_stdout("granted   directory read /source");
    output.assert_stdout("missing   nothing");
    output.assert_stdout("idempotent: ");
    let entries = std::fs::read_dir(folder.path().join("out")).unwrap();
    assert_eq!(entries.count(), 0, "the task writes only to copies");
}

#[test]
fn a_task_that_is_not_idempotent_fails_and_the_call_is_named() {
    let folder = folder_with("append", APPEND);
    let output = check(folder.path(), "append", &["--idempotent"]);
    assert_eq!(output.code, 1, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert!(
        lines[0]
            .starts_with("not idempotent: crashed before and after each of its 2 effects, and "),
        "{lines:?}"
    );
    output.assert_stdout("crashed after effect 2, wasi:filesystem: write ");
    output.assert_stdout("to /out/effects.log\n  the file /out/effects.log is ");
    let json = check(folder.path(), "append", &["--json"]).json();
    assert_eq!(
        keys(&json),
        [
            "granted",
            "idempotence",
            "imports",
            "missing",
            "package",
            "sidecar",
            "unanswered"
        ]
    );
    let idempotence = &json["idempotence"];
    assert_eq!(
        keys(idempotence),
        [
            "broken",
            "crashes",
            "effects",
            "failure",
            "holds",
            "outcome",
            "tried",
            "unlike",
            "unreached"
        ]
    );
    assert_eq!(idempotence["holds"], false);
    assert_eq!(idempotence["outcome"], "succeeded");
    assert_eq!(idempotence["effects"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (&idempotence["tried"], &idempotence["crashes"]),
        (&json!(2), &json!(4))
    );
    assert_eq!(idempotence["unreached"], json!([]));
    let broken = idempotence["broken"].as_array().unwrap();
    assert!(
        broken
            .iter()
            .any(|crashed| crashed["number"] == 2 && crashed["moment"] == "after")
    );
}

#[test]
fn a_missing_grant_is_shown_as_toml_and_the_task_is_not_called() {
    let folder = folder_with("backup", "");
    let output = check(folder.path(), "backup", &[]);
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_stdout("granted   nothing");
    output.assert_stdout("[[grants.directories]]");
    output.assert_stderr("the task was not called");
    let output = check(folder.path(), "backup", &["--no-call"]);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
}

#[test]
fn a_task_that_fails_without_a_crash_is_reported() {
    let folder = folder_with("guests", "");
    let output = check(folder.path(), "guests", &["--task", "unwrap_none"]);
    let known = check(
        folder.path(),
        "guests",
        &["--task", "spin", "--timeout", "50ms"],
    );
    assert_eq!(output.code, 2, "there is no such task: {output:?}");
    assert_eq!(known.code, 1, "{known:?}");
    known.assert_stdout("the undisturbed run did not succeed");
}

#[test]
fn requests_are_answered_from_the_replies_file() {
    let folder = folder_with(
        "http-check",
        "[[grants.http]]\nhost = \"status.example.com\"\n",
    );
    let context = json!({"urls": [{"url": "https://status.example.com/", "contains": "fine"}]});
    let context = context.to_string();
    let replies = folder.path().join("replies.json");
    let check_with = |replies: &Value| {
        std::fs::write(folder.path().join("replies.json"), replies.to_string()).unwrap();
        check(
            folder.path(),
            "http-check",
            &["--context", &context, "--replies", "replies.json"],
        )
    };
    let fine = json!([{"request": "GET https://status.example.com/", "body": "all is fine"}]);
    let output = check_with(&fine);
    assert_eq!(output.code, 0, "{output:?}");
    let elsewhere = json!([{"request": "POST https://status.example.com/"}]);
    let output = check_with(&elsewhere);
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_stderr("no reply is given for `GET https://status.example.com/`");
    let output = check_with(&json!([]));
    assert_eq!(output.code, 1, "an empty list answers nothing: {output:?}");
    output.assert_stderr("no reply is given for");
    let request = "GET https://status.example.com/";
    check_with(&json!([{"request": request}, {"request": request, "stauts": 200}])).assert_refused(
        &["--replies replies.json: unknown key `replies[1].stauts`: did you mean `status`?"],
    );
    check_with(&json!([{"request": request, "status": 7}]))
        .assert_refused(&["`replies[0].status` must be a whole number from 100 to 999"]);
    check_with(&json!([{"request": "get https://status.example.com/"}])).assert_refused(&[
        "`replies[0].request` starts with \"get\", but the case of a method counts",
    ]);
    std::fs::remove_file(replies).unwrap();
    check(folder.path(), "http-check", &["--replies", "replies.json"])
        .assert_refused(&["replies.json"]);
}

#[test]
fn effects_without_a_crash_are_counted_and_a_flag_covers_them() {
    let folder = folder_with("append", APPEND);
    let output = check(folder.path(), "append", &["--effects", "1"]);
    output.assert_stdout("1 of its 2 effects, spread over the whole run");
    output.assert_stderr("not crashed at 1 effects; `--effects 2` crashes it at all of them");
    let json = check(folder.path(), "append", &["--effects", "1", "--json"]).json();
    assert_eq!(json["idempotence"]["tried"], 1);
    assert_eq!(
        json["idempotence"]["effects"].as_array().map(Vec::len),
        Some(2)
    );
    check(folder.path(), "append", &["--effects", "0"])
        .assert_refused(&["--effects", "at least 1"]);
}

#[test]
fn a_task_without_effects_is_idempotent() {
    let folder = folder_with("noop", "");
    let output = check(folder.path(), "noop", &["--idempotent"]);
    assert_eq!(output.code, 0, "{output:?}");
    assert_eq!(
        output.stdout.trim(),
        "idempotent: the task has no effects, so there is nothing to crash at"
    );
}
