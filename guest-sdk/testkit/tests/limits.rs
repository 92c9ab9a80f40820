//! Tests of each limit, with a task that exceeds it and a task that stays within it, and of the recorded usage.

use std::path::PathBuf;
use std::time::Duration;

use campanile_sandbox::{Resource, Share};
use campanile_testkit::{Limits, Outcome, Reply, Report, TaskTest};
use serde_json::{Value, json};

fn task(id: &str, context: Value) -> TaskTest {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let test = TaskTest::load(root.join("tests/guests/guests.wasm")).unwrap();
    test.task(id).context(context)
}

fn within(test: TaskTest, change: impl FnOnce(&mut Limits)) -> Report {
    test.limits(change).run().unwrap()
}

#[track_caller]
fn fits(report: &Report) {
    assert!(report.succeeded(), "{report}");
}

#[track_caller]
fn exceeds(report: &Report, outcome: Outcome, expected: &str) {
    assert_eq!(report.outcome(), outcome, "{report}");
    let said = report.message();
    assert!(said.contains(expected), "no {expected:?}: {report}");
}

/// Check that the task failed in its own words, and that the host names the limit beside them.
#[track_caller]
fn is_noted(report: &Report, expected: &str) {
    assert_eq!(report.outcome(), Outcome::Failed, "{report}");
    let said = report.note();
    assert!(said.contains(expected), "no {expected:?}: {report}");
}

/// Return the recorded usage of a resource.
#[track_caller]
fn share(report: &Report, resource: Resource) -> Share {
    let shares = &report.usage().shares;
    let found = shares.iter().find(|share| share.resource == resource);
    *found.unwrap_or_else(|| panic!("no usage of {resource}: {shares:?}"))
}

#[test]
fn wall_clock_time() {
    let sleep = || task("sleep", json!({"ms": 100}));
    let limit = |ms| move |limits: &mut Limits| limits.timeout = Duration::from_millis(ms);
    let report = within(sleep(), limit(5_000));
    fits(&report);
    let share = share(&report, Resource::Timeout);
    assert!((100..5_000).contains(&share.used), "{share:?}");
    assert_eq!((share.limit, share.is_close()), (5_000, false));
    exceeds(
        &within(sleep(), limit(50)),
        Outcome::TimedOut,
        "time-out of 50ms; to give it more, raise `limits.timeout`",
    );
}

#[test]
fn time_on_a_processor() {
    let limit = |limits: &mut Limits| limits.cpu = Some(Duration::from_millis(80));
    // Sleeping uses no processor time.
    let report = within(task("sleep", json!({"ms": 150})), limit);
    fits(&report);
    let report = within(task("spin", json!({})), limit);
    exceeds(
        &report,
        Outcome::TimedOut,
        "80ms on a processor, its limit; to give it more, raise `limits.cpu`",
    );
    let share = share(&report, Resource::Cpu);
    assert_eq!(share.limit, 80);
    assert!(share.used >= 80 && share.is_close(), "{share:?}");
}

#[test]
fn memory() {
    let alloc = |mebibytes: u64| task("alloc", json!({"bytes": mebibytes << 20}));
    let limit = |limits: &mut Limits| limits.memory_bytes_max = 16 << 20;
    let report = within(alloc(12), limit);
    fits(&report);
    let share = share(&report, Resource::Memory);
    assert_eq!(share.limit, 16 << 20);
    assert!(share.used > 12 << 20 && share.is_close(), "{share:?}");
    exceeds(
        &within(alloc(17), limit),
        Outcome::MemoryExceeded,
        "its limit is 16.0 MiB",
    );
}

#[test]
fn stack() {
    fits(&task("recurse", json!({"depth": 1_000})).run().unwrap());
    let report = task("recurse", json!({})).run().unwrap();
    exceeds(&report, Outcome::Trapped, "stack");
}

#[test]
fn output() {
    let output = |bytes: u64| task("big_output", json!({"bytes": bytes}));
    let limit = |limits: &mut Limits| limits.output_bytes_max = 1_000;
    let report = within(output(1_000), limit);
    fits(&report);
    let share = share(&report, Resource::Output);
    assert_eq!(
        (share.used, share.limit, share.is_close()),
        (1_000, 1_000, true)
    );
    exceeds(
        &within(output(1_001), limit),
        Outcome::InvalidOutput,
        "1001 bytes and its limit is 1000; put large results in a file or a database and return where they are, \
         or raise `limits.output`",
    );
}

#[test]
fn printed_text_and_log() {
    let limit = |limits: &mut Limits| {
        limits.stdio_bytes_max = 2_048;
        limits.log_bytes_max = 1_000;
    };
    let report = within(task("stdout_flood", json!({"bytes": 1_024})), limit);
    fits(&report);
    assert!(report.stdout().ends_with("the last line\n"), "{report}");
    let printed = share(&report, Resource::Stdio);
    assert_eq!((printed.used, printed.limit), (1_024 + 14, 2_048));
    // Text beyond the limit is dropped and counted, and the task continues.
    let report = within(task("stdout_flood", json!({"bytes": 100_000})), limit);
    fits(&report);
    assert_eq!(report.stdout().len(), 2_048, "{report}");
    // It prints 98 lines of 1,024 bytes, and the last one.
    assert_eq!(report.stdout_bytes_dropped(), 98 * 1_024 + 14 - 2_048);
    assert!(share(&report, Resource::Stdio).is_close());
    let report = within(
        task("log_flood", json!({"lines": 2, "bytes_each": 100})),
        limit,
    );
    fits(&report);
    assert_eq!(report.logs().len(), 2);
    let report = within(
        task("log_flood", json!({"lines": 200, "bytes_each": 100})),
        limit,
    );
    fits(&report);
    assert!(
        report
            .logs()
            .last()
            .unwrap()
            .message
            .contains("were dropped or cut")
    );
    assert!(share(&report, Resource::Log).is_close());
}

#[test]
fn open_files() {
    let open = |count: u64| {
        task("open_files", json!({"path": "/in/a.txt", "count": count}))
            .files("/in", [("a.txt", "a")])
    };
    // The granted directory counts as open.
    let limit = |limits: &mut Limits| limits.open_files_max = 10;
    let report = within(open(9), limit);
    fits(&report);
    let share = share(&report, Resource::OpenFiles);
    assert_eq!((share.used, share.limit), (10, 10));
    is_noted(
        &within(open(10), limit),
        "has 10 files and directories open, its limit",
    );
}

#[test]
fn streams_keep_their_files_open() {
    let open = |path: &str, count: u64, listings: bool| {
        let params = json!({"path": path, "count": count, "listings": listings});
        task("open_streams", params).files("/in", [("a.txt", "a")])
    };
    let limit = |limits: &mut Limits| limits.open_files_max = 10;
    let report = within(open("a.txt", 9, false), limit);
    fits(&report);
    assert_eq!(report.output(), Some(&json!({"open": 9, "read": 9})));
    assert_eq!(share(&report, Resource::OpenFiles).used, 10);
    is_noted(
        &within(open("a.txt", 10, false), limit),
        "has 10 files and directories open, its limit",
    );
    // A listing is an open file too, beside the directory while that is open.
    let report = within(open(".", 8, true), limit);
    fits(&report);
    assert_eq!(share(&report, Resource::OpenFiles).used, 10);
    is_noted(
        &within(open(".", 9, true), limit),
        "has 10 files and directories open, its limit",
    );
}

#[test]
fn a_closed_file_does_not_count_as_open() {
    let test = task("read_file", json!({"path": "/in/a.txt"})).files("/in", [("a.txt", "a")]);
    let report = within(test, |limits| limits.open_files_max = 2);
    fits(&report);
    assert_eq!(share(&report, Resource::OpenFiles).used, 2);
}

#[test]
fn handles() {
    let open = |count: u64| {
        task("open_files", json!({"path": "/in/a.txt", "count": count}))
            .files("/in", [("a.txt", "a")])
    };
    let limit = |limits: &mut Limits| limits.handles_max = 100;
    fits(&within(open(50), limit));
    let report = within(open(200), limit);
    exceeds(&report, Outcome::Trapped, "at once; raise `limits.handles`");
}

#[test]
fn http_requests_and_responses() {
    let ask = |times: u64| {
        task(
            "http_get",
            json!({"url": "https://api.example.com/", "times": times}),
        )
        .http("https://api.example.com", |_| {
            Reply::text(200, "x".repeat(500))
        })
    };
    let limit = |limits: &mut Limits| limits.http_requests_max = 3;
    let report = within(ask(3), limit);
    fits(&report);
    let requests = share(&report, Resource::HttpRequests);
    assert_eq!((requests.used, requests.limit), (3, 3));
    let report = within(ask(4), limit);
    is_noted(&report, "has made 3 HTTP requests, its limit");
    let report = within(ask(1), |limits| limits.http_response_bytes_max = 500);
    fits(&report);
    let response = share(&report, Resource::HttpResponse);
    assert_eq!((response.used, response.limit), (500, 500));
    let report = within(ask(1), |limits| limits.http_response_bytes_max = 499);
    is_noted(
        &report,
        "more than 499 bytes, the limit; raise `limits.http_response`",
    );
}

#[test]
fn buckets_and_values() {
    let fill = |keys: u64, bytes: u64| {
        task("fill_bucket", json!({"keys": keys, "bytes": bytes}))
            .bucket("default", [("a", "b"); 0])
    };
    // A key of 4 bytes, a value of 32 and 64 for the entry: 100 each.
    let limit = |limits: &mut Limits| limits.keyvalue_bytes_max = 1_000;
    let report = within(fill(10, 32), limit);
    fits(&report);
    let share = share(&report, Resource::Keyvalue);
    assert_eq!((share.used, share.limit), (1_000, 1_000));
    let report = within(fill(11, 32), limit);
    exceeds(
        &report,
        Outcome::Failed,
        "would have 1100 bytes and its limit is 1000",
    );
    assert_eq!(report.bucket("default").len(), 10, "the other keys are set");
    let limit = |limits: &mut Limits| limits.keyvalue_value_bytes_max = 32;
    fits(&within(fill(1, 32), limit));
    exceeds(
        &within(fill(1, 33), limit),
        Outcome::Failed,
        "the value has 33 bytes and its limit is 32",
    );
}

#[test]
fn data_in_one_host_call() {
    let fill = |bytes: u64| {
        task("fill_bucket", json!({"keys": 1, "bytes": bytes})).bucket("default", [("a", "b"); 0])
    };
    // The limit is at least four times the output limit, so that a larger output is reported as such.
    let limit = |limits: &mut Limits| {
        limits.host_call_bytes_max = 100 << 10;
        limits.output_bytes_max = 1 << 10;
    };
    fits(&within(fill(50 << 10), limit));
    exceeds(
        &within(fill(200 << 10), limit),
        Outcome::Trapped,
        "more than 102400 bytes in one call; raise `limits.host_call`",
    );
}
