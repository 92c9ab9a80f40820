//! Packages of several tasks: order, concurrency, contexts, retries and the end of it all.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, millis, text};

on_both_empty!(
    tasks_run_in_their_order_and_the_independent_ones_together,
    a_task_that_fails_is_tried_again_alone_and_its_attempts_are_on_the_record,
    a_failure_for_good_ends_the_launch_with_its_words,
    what_a_task_says_cannot_pass_for_lines_of_the_record,
);

/// A site with a host and a schedule `dag` of the whole package, which rings only when it is triggered.
fn serving(place: Place, package: &str, task: &[&str]) -> (Site, campanile_tests::HostProcess) {
    let site = Site::new(place);
    site.bring(package);
    let host = site.serve();
    let fixed = ["schedule", "add", "dag", "--package", package];
    let never = ["--at", "2099-01-01T00:00:00Z"];
    site.ok(fixed.into_iter().chain(task.iter().copied()).chain(never));
    (site, host)
}

fn tasks(run: &Value) -> Vec<&Value> {
    run["tasks"].as_array().expect("a list").iter().collect()
}

fn names(run: &Value) -> Vec<&str> {
    tasks(run)
        .iter()
        .map(|task| task["task"].as_str().expect("a name"))
        .collect()
}

#[track_caller]
fn call<'r>(run: &'r Value, task: &str, attempt: i64) -> &'r Value {
    let found = tasks(run)
        .into_iter()
        .find(|call| call["task"] == task && call["attempt"] == attempt);
    found.unwrap_or_else(|| panic!("no call {attempt} of {task}: {run:#}"))
}

async fn tasks_run_in_their_order_and_the_independent_ones_together(place: Place) {
    let (site, _host) = serving(place, "diamond", &[]);
    let launch = site.trigger("dag", &json!({"ms": 700}));
    let conflict = site.trigger("dag", &json!({"conflict": true}));
    let launch = site.ended("dag", &launch);
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    let run = site.run_of(&launch);
    let mut called = names(&run);
    called.sort_unstable();
    assert_eq!(called, ["a", "b", "c", "d"]);
    let begun = |task: &str| millis(&call(&run, task, 1)["started_at"]);
    let ended = |task: &str| millis(&call(&run, task, 1)["finished_at"]);
    assert!(
        begun("b") >= ended("a") && begun("c") >= ended("a"),
        "{run:#}"
    );
    assert!(
        begun("c") < ended("b") && begun("b") < ended("c"),
        "together: {run:#}"
    );
    assert!(
        begun("d") >= ended("b") && begun("d") >= ended("c"),
        "{run:#}"
    );
    assert_eq!(call(&run, "b", 1)["output"]["saw"], json!(["a"]));
    assert_eq!(call(&run, "c", 1)["output"]["saw"], json!(["a"]));
    assert_eq!(
        call(&run, "d", 1)["output"]["saw"],
        json!(["a", "b", "from_c"])
    );
    assert_eq!(call(&run, "c", 1)["context"], json!({"from_c": 3}));

    let launch = site.ended("dag", &conflict);
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("invalid_output"))
    );
    let message = text(&launch["message"]);
    for part in ["same", "`b`", "`c`", "`d`"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
}

async fn a_task_that_fails_is_tried_again_alone_and_its_attempts_are_on_the_record(place: Place) {
    let (site, _host) = serving(place, "diamond", &[]);
    let launch = site.trigger("dag", &json!({"c": "fail_until_attempt", "succeed_on": 2}));
    let launch = site.ended("dag", &launch);
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    assert_eq!(launch["recoveries"], 0, "a retry is no recovery");
    let run = site.run_of(&launch);
    let mut called = names(&run);
    called.sort_unstable();
    assert_eq!(called, ["a", "b", "c", "c", "d"], "only c is called twice");
    let (first, second) = (call(&run, "c", 1), call(&run, "c", 2));
    assert_eq!(
        (&first["succeeded"], &second["succeeded"]),
        (&json!(false), &json!(true))
    );
    assert_eq!(first["failure"], "failed");
    assert_eq!(first["message"], "c fails on attempt 1");
    assert_eq!(second["output"]["attempt"], 2, "the task was told");
    // A second, give or take a quarter; and not called before that is over.
    let pause = millis(&first["retry_at"]) - millis(&first["finished_at"]);
    assert!((740..=1_260).contains(&pause), "{pause} ms");
    assert!(
        millis(&second["started_at"]) >= millis(&first["retry_at"]),
        "{run:#}"
    );
    assert_eq!(
        call(&run, "d", 1)["output"]["saw"],
        json!(["a", "b", "from_c"])
    );
}

async fn a_failure_for_good_ends_the_launch_with_its_words(place: Place) {
    let (site, _host) = serving(place, "diamond", &[]);
    let permanent = site.trigger("dag", &json!({"c": "fail_permanent"}));
    let panicking = site.trigger("dag", &json!({"c": "panic"}));
    let launch = site.ended("dag", &permanent);
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("failed"))
    );
    assert_eq!(launch["message"], "task `c`: c was told to fail for good");
    let run = site.run_of(&launch);
    assert_eq!(run["status"], "failed");
    assert!(!names(&run).contains(&"d"), "{run:#}");
    assert_eq!(call(&run, "c", 1)["retry_at"], Value::Null);

    // Three attempts, and then it is over.
    let launch = site.ended("dag", &panicking);
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("trapped"))
    );
    assert!(
        text(&launch["message"]).contains("c was told to panic"),
        "{launch:#}"
    );
    let run = site.run_of(&launch);
    assert_eq!(names(&run).iter().filter(|name| **name == "c").count(), 3);
    assert_eq!(call(&run, "c", 3)["retry_at"], Value::Null);
    let stats = site.json(["stats"]);
    assert_eq!(
        (&stats["launches"], &stats["failed"]),
        (&json!(2), &json!(2)),
        "{stats:#}"
    );
}

async fn what_a_task_says_cannot_pass_for_lines_of_the_record(place: Place) {
    let (site, _host) = serving(place, "guests", &["--task", "log_escapes"]);
    let launch = site.trigger("dag", &json!({}));
    let launch = site.ended("dag", &launch);
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    let logs = site.ok(["run", "logs", &text(&launch["run_id"])]);
    assert!(
        !logs.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']),
        "{logs}"
    );
    let forged = logs.lines().filter(|line| line.contains("forged line"));
    let begins: Vec<&str> = forged
        .map(|line| line.split("forged").next().unwrap_or_default())
        .collect();
    assert_eq!(begins, ["    | ", "stdout: ", "stderr: "], "{logs}");
}
