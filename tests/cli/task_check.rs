//! `campanile task check`: what a file reaches for, and what a crash leaves.

use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::site::{Said, keys, package, run};

/// A folder with the package `name`, and a sidecar of this text beside it.
fn stage(name: &str, sidecar: &str) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join(format!("{name}.wasm"));
    std::fs::copy(package(name), &file).unwrap();
    std::fs::write(file.with_extension("toml"), sidecar).unwrap();
    for directory in ["source", "out"] {
        std::fs::create_dir(folder.path().join(directory)).unwrap();
    }
    std::fs::write(folder.path().join("source/a.txt"), "one").unwrap();
    folder
}

fn check(folder: &Path, name: &str, more: &[&str]) -> Said {
    let file = format!("{name}.wasm");
    let args = ["task", "check", &file]
        .into_iter()
        .chain(more.iter().copied());
    run(folder, args)
}

const APPEND: &str =
    "[[grants.directories]]\nhost = \"out\"\nguest = \"/out\"\naccess = \"write\"\n";
const BACKUP: &str = "[[grants.directories]]\nhost = \"source\"\nguest = \"/source\"\naccess = \"read\"\n\
    [[grants.directories]]\nhost = \"out\"\nguest = \"/snapshots\"\naccess = \"write\"\n";

#[test]
fn a_backup_passes_and_leaves_its_directories_alone() {
    let folder = stage("backup", BACKUP);
    let said = check(folder.path(), "backup", &["--slot", "2026-11-21T02:00:00Z"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout
            .contains("imports   campanile:task/run-info@0.1.0"),
        "{}",
        said.stdout
    );
    assert!(
        said.stdout.contains("granted   directory read /source"),
        "{}",
        said.stdout
    );
    assert!(said.stdout.contains("missing   nothing"), "{}", said.stdout);
    assert!(said.stdout.contains("idempotent: "), "{}", said.stdout);
    let left = std::fs::read_dir(folder.path().join("out")).unwrap();
    assert_eq!(left.count(), 0, "only copies are written to");
}

#[test]
fn a_task_that_is_not_idempotent_fails_with_the_call() {
    let folder = stage("append", APPEND);
    let said = check(folder.path(), "append", &["--idempotent"]);
    assert_eq!(said.code, 1, "{said:?}");
    let lines: Vec<&str> = said.stdout.lines().collect();
    assert!(
        lines[0]
            .starts_with("not idempotent: crashed before and after each of its 2 effects, and "),
        "{lines:?}"
    );
    assert!(
        said.stdout
            .contains("crashed after effect 2, wasi:filesystem: write "),
        "{}",
        said.stdout
    );
    assert!(
        said.stdout
            .contains("to /out/effects.log\n  the file /out/effects.log is "),
        "{}",
        said.stdout
    );
    let json = check(folder.path(), "append", &["--json"]).json();
    assert_eq!(
        keys(&json),
        [
            "granted",
            "idempotence",
            "imports",
            "missing",
            "package",
            "unanswered"
        ]
    );
    let found = &json["idempotence"];
    assert_eq!(
        keys(found),
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
    assert_eq!(found["holds"], false);
    assert_eq!(found["outcome"], "succeeded");
    assert_eq!(found["effects"].as_array().map(Vec::len), Some(2));
    assert_eq!((&found["tried"], &found["crashes"]), (&json!(2), &json!(4)));
    assert_eq!(found["unreached"], json!([]));
    let broken = found["broken"].as_array().unwrap();
    assert!(
        broken
            .iter()
            .any(|crashed| crashed["number"] == 2 && crashed["moment"] == "after")
    );
}

#[test]
fn what_is_missing_is_told_with_its_lines_and_the_task_not_called() {
    let folder = stage("backup", "");
    let said = check(folder.path(), "backup", &[]);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(said.stdout.contains("granted   nothing"), "{}", said.stdout);
    assert!(
        said.stdout.contains("[[grants.directories]]"),
        "{}",
        said.stdout
    );
    assert!(
        said.stderr.contains("the task was not called"),
        "{}",
        said.stderr
    );
    let said = check(folder.path(), "backup", &["--no-call"]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""), "{said:?}");
}

#[test]
fn a_task_that_fails_undisturbed_says_so() {
    let folder = stage("guests", "");
    let said = check(folder.path(), "guests", &["--task", "unwrap_none"]);
    let known = check(
        folder.path(),
        "guests",
        &["--task", "spin", "--timeout", "50ms"],
    );
    assert_eq!(said.code, 2, "there is no such task: {said:?}");
    assert_eq!(known.code, 1, "{known:?}");
    assert!(
        known.stdout.contains("the undisturbed run did not succeed"),
        "{}",
        known.stdout
    );
}

#[test]
fn requests_are_answered_by_a_file() {
    let folder = stage(
        "http-check",
        "[[grants.http]]\nhost = \"status.example.com\"\n",
    );
    let context = json!({"urls": [{"url": "https://status.example.com/", "contains": "fine"}]});
    let context = context.to_string();
    let replies = folder.path().join("replies.json");
    let looked = |replies: &Value| {
        std::fs::write(folder.path().join("replies.json"), replies.to_string()).unwrap();
        check(
            folder.path(),
            "http-check",
            &["--context", &context, "--replies", "replies.json"],
        )
    };
    let fine = json!([{"request": "GET https://status.example.com/", "body": "all is fine"}]);
    let said = looked(&fine);
    assert_eq!(said.code, 0, "{said:?}");
    let elsewhere = json!([{"request": "POST https://status.example.com/"}]);
    let said = looked(&elsewhere);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr
            .contains("no reply is given for `GET https://status.example.com/`"),
        "{said:?}"
    );
    let said = looked(&json!([]));
    assert_eq!(said.code, 1, "an empty list answers nothing: {said:?}");
    assert!(said.stderr.contains("no reply is given for"), "{said:?}");
    let request = "GET https://status.example.com/";
    looked(&json!([{"request": request}, {"request": request, "stauts": 200}])).refused(&[
        "--replies replies.json: unknown key `replies[1].stauts`: did you mean `status`?",
    ]);
    looked(&json!([{"request": request, "status": 7}]))
        .refused(&["`replies[0].status` must be a whole number from 100 to 999"]);
    looked(&json!([{"request": "get https://status.example.com/"}]))
        .refused(&["`replies[0].request` starts with \"get\", but the case of a method counts"]);
    std::fs::remove_file(replies).unwrap();
    check(folder.path(), "http-check", &["--replies", "replies.json"]).refused(&["replies.json"]);
}

#[test]
fn what_was_not_crashed_at_is_told_and_may_be_asked_for() {
    let folder = stage("append", APPEND);
    let some = check(folder.path(), "append", &["--effects", "1"]);
    assert!(
        some.stdout
            .contains("1 of its 2 effects, spread over the whole run"),
        "{some:?}"
    );
    assert!(
        some.stderr
            .contains("not crashed at 1 effects; `--effects 2` crashes it at all of them"),
        "{some:?}"
    );
    let json = check(folder.path(), "append", &["--effects", "1", "--json"]).json();
    assert_eq!(json["idempotence"]["tried"], 1);
    assert_eq!(
        json["idempotence"]["effects"].as_array().map(Vec::len),
        Some(2)
    );
    check(folder.path(), "append", &["--effects", "0"]).refused(&["--effects", "at least 1"]);
}

#[test]
fn a_task_without_effects_is_told_to_have_none() {
    let folder = stage("noop", "");
    let said = check(folder.path(), "noop", &["--idempotent"]);
    assert_eq!(said.code, 0, "{said:?}");
    assert_eq!(
        said.stdout.trim(),
        "idempotent: the task has no effects, so there is nothing to crash at"
    );
}
