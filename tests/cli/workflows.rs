//! Packages of several tasks: order, concurrency, contexts, retries and failures.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, millis, package, text};

on_both_empty!(
    tasks_run_in_order_and_independent_tasks_run_concurrently,
    only_the_failed_task_is_retried_and_each_attempt_is_recorded,
    a_permanent_failure_ends_the_launch_with_its_message,
    task_output_cannot_imitate_lines_of_the_log,
    large_contexts_of_many_tasks_end_their_run_within_bounded_memory,
);

/// Return a site with a host and a schedule `dag` of the package, which launches only when it is triggered.
fn serve_package(
    place: Place,
    package: &str,
    task: &[&str],
) -> (Site, campanile_tests::HostProcess) {
    let site = Site::new(place);
    site.copy_package(package);
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

async fn tasks_run_in_order_and_independent_tasks_run_concurrently(place: Place) {
    let (site, _host) = serve_package(place, "diamond", &[]);
    let conflict = site.trigger("dag", &json!({"conflict": true}));
    let run_for = |ms: i64| {
        let launch = site.trigger("dag", &json!({"ms": ms}));
        let launch = site.wait_until_ended("dag", &launch);
        assert_eq!(launch["status"], "succeeded", "{launch:#}");
        site.run_of(&launch)
    };
    let of = |run: &Value, task: &str, key: &str| millis(&call(run, task, 1)[key]);
    let are_concurrent = |run: &Value| {
        of(run, "c", "started_at") < of(run, "b", "finished_at")
            && of(run, "b", "started_at") < of(run, "c", "finished_at")
    };
    // On a busy machine one may end before the other has begun, unless they take longer.
    let mut runs = [700, 5_000, 50_000].into_iter().map(run_for);
    let run = runs.find(are_concurrent);
    let run = run.expect("b and c run concurrently");
    let mut called = names(&run);
    called.sort_unstable();
    assert_eq!(called, ["a", "b", "c", "d"]);
    let started = |task: &str| of(&run, task, "started_at");
    let ended = |task: &str| of(&run, task, "finished_at");
    assert!(
        started("b") >= ended("a") && started("c") >= ended("a"),
        "{run:#}"
    );
    assert!(
        started("d") >= ended("b") && started("d") >= ended("c"),
        "{run:#}"
    );
    assert_eq!(call(&run, "b", 1)["output"]["saw"], json!(["a"]));
    assert_eq!(call(&run, "c", 1)["output"]["saw"], json!(["a"]));
    assert_eq!(
        call(&run, "d", 1)["output"]["saw"],
        json!(["a", "b", "from_c"])
    );
    assert_eq!(call(&run, "c", 1)["context"], json!({"from_c": 3}));

    let launch = site.wait_until_ended("dag", &conflict);
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("invalid_output"))
    );
    let message = text(&launch["message"]);
    for part in ["same", "`b`", "`c`", "`d`"] {
        assert!(message.contains(part), "no {part}: {message}");
    }
}

async fn only_the_failed_task_is_retried_and_each_attempt_is_recorded(place: Place) {
    let (site, _host) = serve_package(place, "diamond", &[]);
    let launch = site.trigger("dag", &json!({"c": "fail_until_attempt", "succeed_on": 2}));
    let launch = site.wait_until_ended("dag", &launch);
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
    assert_eq!(second["output"]["attempt"], 2, "the task knows its attempt");
    // The delay is one second with a jitter of a quarter. The retry starts after it.
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

async fn a_permanent_failure_ends_the_launch_with_its_message(place: Place) {
    let (site, _host) = serve_package(place, "diamond", &[]);
    let permanent = site.trigger("dag", &json!({"c": "fail_permanent"}));
    let panicking = site.trigger("dag", &json!({"c": "panic"}));
    let launch = site.wait_until_ended("dag", &permanent);
    assert_eq!(
        (&launch["status"], &launch["failure"]),
        (&json!("failed"), &json!("failed"))
    );
    assert_eq!(launch["message"], "task `c`: c was told to fail for good");
    let run = site.run_of(&launch);
    assert_eq!(run["status"], "failed");
    assert!(!names(&run).contains(&"d"), "{run:#}");
    assert_eq!(call(&run, "c", 1)["retry_at"], Value::Null);

    // A panic is retried until the third attempt.
    let launch = site.wait_until_ended("dag", &panicking);
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

async fn task_output_cannot_imitate_lines_of_the_log(place: Place) {
    let (site, _host) = serve_package(place, "guests", &["--task", "log_escapes"]);
    let launch = site.trigger("dag", &json!({}));
    let launch = site.wait_until_ended("dag", &launch);
    assert_eq!(launch["status"], "succeeded", "{launch:#}");
    let logs = site.ok(["run", "logs", &text(&launch["run_id"])]);
    assert!(
        !logs.contains(['\u{1b}', '\r', '\u{7}', '\u{202e}']),
        "{logs}"
    );
    let forged = logs.lines().filter(|line| line.contains("forged line"));
    let prefixes: Vec<&str> = forged
        .map(|line| line.split("forged").next().unwrap_or_default())
        .collect();
    assert_eq!(prefixes, ["    | ", "stdout: ", "stderr: "], "{logs}");
}

/// The most memory that a host may need, in bytes. When contexts were kept parsed, these runs needed more than 10 GB.
const PEAK_MAX: u64 = 1 << 30;

/// 254 tasks pass on 1 MiB each, and so do 60 tasks under a lower limit. In the third run, 60 MiB are within the limit of
/// the run, but beyond the memory of the task that gets them.
async fn large_contexts_of_many_tasks_end_their_run_within_bounded_memory(place: Place) {
    let site = Site::new(place);
    site.copy_package("wide");
    std::fs::copy(package("wide"), site.plugin("lower.wasm")).expect("a copy");
    site.sidecar("lower", "[limits]\nrun_context = '16MiB'\n");
    let host = site.serve();
    for (package, task, failure, part) in [
        ("wide", "all", "invalid_output", "their limit is 64MiB"),
        ("lower", "few", "invalid_output", "their limit is 16MiB"),
        ("wide", "few", "memory_exceeded", "`limits.memory`"),
    ] {
        let schedule = format!("{package}-{task}");
        let never = ["--at", "2099-01-01T00:00:00Z"];
        let fixed = [
            "schedule",
            "add",
            &schedule,
            "--package",
            package,
            "--task",
            task,
        ];
        site.ok(fixed.into_iter().chain(never));
        let launch = site.trigger_and_wait(&schedule);
        assert_eq!(launch["failure"], failure, "{launch:#}");
        let message = text(&launch["message"]);
        assert!(message.contains(part), "{message}");
    }
    let peak = host.peak_memory();
    println!("the host needed {} MiB", peak >> 20);
    assert!(peak < PEAK_MAX, "the host needed {} MiB", peak >> 20);
}
