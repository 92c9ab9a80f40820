//! Trace contexts on their way from a trigger to what a task reaches, and traces in a receiver of OTLP over HTTP.

use std::collections::BTreeMap;
use std::fs;
use std::sync::mpsc::Receiver;
use std::time::Instant;

use campanile_model::ids::{LaunchId, RunId};
use campanile_model::trace_context::TraceContext;
use campanile_tests::receiver::{Request, attribute, receiver, spans};
use campanile_tests::{PATIENCE, Place, on_both_empty};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::api::Api;
use crate::site::{Site, run, stop, text};

on_both_empty!(
    a_trace_context_goes_from_the_trigger_to_the_requests_of_a_task,
    a_program_has_the_trace_context_in_a_variable,
    the_api_ignores_an_invalid_trace_context,
    a_launch_is_sent_as_one_trace,
);

/// The example of the W3C recommendation "Trace Context".
const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const NEVER: [&str; 2] = ["--at", "2099-01-01T00:00:00Z"];

/// Return the span of a call of `task` for a launch, by the ids on record.
fn span_of_call(launch: &str, caller: Option<&str>, run: i64, task: &str) -> TraceContext {
    let launch: LaunchId = launch.parse().expect("an id");
    let caller = caller.map(|caller| caller.parse().expect("a trace context"));
    let of_launch = TraceContext::of_launch(launch, caller);
    of_launch.of_run(RunId::of(launch, run)).of_call(task, 1)
}

/// Trigger a schedule with more arguments, and wait until its launch has ended. Return its id.
#[track_caller]
fn trigger(site: &Site, schedule: &str, more: &[&str]) -> String {
    let fixed = ["schedule", "trigger", schedule, "--overlap", "allow"];
    let triggered = site.json([&fixed[..], more].concat());
    let launch = text(&triggered["launch"]);
    site.wait_until_ended(schedule, &launch);
    launch
}

async fn a_trace_context_goes_from_the_trigger_to_the_requests_of_a_task(place: Place) {
    let (port, received) = receiver(&[]);
    let site = Site::new(place);
    site.copy_package("guests");
    site.sidecar(
        "guests",
        &format!("[[grants.http]]\nscheme = 'http'\nhost = '127.0.0.1'\nport = {port}\n"),
    );
    let mut host = site.serve();
    site.add("echo", "echo", &NEVER);
    let url = json!({"url": format!("http://127.0.0.1:{port}/")}).to_string();
    site.add(
        "http_get",
        "http_get",
        &[&NEVER[..], &["--context", &url]].concat(),
    );

    // A caller's trace continues, through the context and the request.
    let launch = trigger(&site, "http_get", &["--traceparent", CALLER]);
    let expected = span_of_call(&launch, Some(CALLER), 1, "http_get").to_string();
    let Request { head, .. } = received.recv_timeout(PATIENCE).expect("a request");
    assert!(
        head.contains(&format!("\r\ntraceparent: {expected}\r\n")),
        "{head}"
    );
    let shown = site.json(["launch", "show", &launch]);
    assert_eq!(shown["caller_traceparent"], CALLER);
    let of_launch = TraceContext::of_launch(launch.parse().expect("an id"), CALLER.parse().ok());
    assert_eq!(shown["traceparent"], of_launch.to_string());
    let of_run = of_launch.of_run(RunId::of(launch.parse().expect("an id"), 1));
    let shown = site.json(["run", "show", &launch]);
    assert_eq!(shown["traceparent"], of_run.to_string());
    let launch = trigger(&site, "echo", &["--traceparent", CALLER]);
    let output = &site.json(["run", "show", &launch])["tasks"][0]["output"];
    let expected = span_of_call(&launch, Some(CALLER), 1, "echo").to_string();
    assert_eq!(output["traceparent"], expected);

    // Without a caller, the launch has a trace of its own, and nothing is stored. Where no traces are sent, its tasks do
    // not see it.
    let launch = trigger(&site, "http_get", &[]);
    let Request { head, .. } = received.recv_timeout(PATIENCE).expect("a request");
    assert!(!head.contains("traceparent"), "{head}");
    let shown = text(&site.json(["launch", "show", &launch])["traceparent"]);
    assert!(shown.starts_with(&format!("00-{}-", launch.replace('-', ""))));
    assert_eq!(
        site.json(["launch", "show", &launch])["caller_traceparent"],
        Value::Null
    );

    // The environment of the command names a caller too. An invalid one is ignored there, and refused as a flag.
    for (variable, caller) in [
        (CALLER, json!(CALLER)),
        (
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            Value::Null,
        ),
        ("", Value::Null),
    ] {
        let args = [
            "schedule",
            "trigger",
            "echo",
            "--overlap",
            "allow",
            "--json",
        ];
        let output = site.command(args).env("TRACEPARENT", variable).output();
        let output = output.expect("the command");
        assert!(output.status.success(), "{output:?}");
        let triggered: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let shown = site.json(["launch", "show", &text(&triggered["launch"])]);
        assert_eq!(shown["caller_traceparent"], caller, "{variable}");
    }
    site.run(["schedule", "trigger", "echo", "--traceparent", "00-1-2-3"])
        .assert_refused(&["`00-1-2-3` is no trace context"]);
    stop(&mut host);
}

async fn a_program_has_the_trace_context_in_a_variable(place: Place) {
    let site = Site::new(place);
    for name in ["command", "command-p1"] {
        site.copy_package(name);
    }
    site.sidecar("command-p1", "[grants]\nenv = ['TRACEPARENT=mine']\n");
    let mut host = site.serve();
    for name in ["command", "command-p1"] {
        let fixed = ["schedule", "add", name, "--package", name];
        site.ok(fixed.into_iter().chain(NEVER));
        let launch = trigger(&site, name, &["--traceparent", CALLER]);
        let output = &site.json(["run", "show", &launch])["tasks"][0]["output"];
        let span = span_of_call(&launch, Some(CALLER), 1, name).to_string();
        assert_eq!(output["context"]["traceparent"], span);
        let expected = match name {
            "command" => span.as_str(),
            // A variable that the operator granted stays.
            _ => "mine",
        };
        assert_eq!(output["env"]["TRACEPARENT"], expected);
    }
    stop(&mut host);
}

async fn the_api_ignores_an_invalid_trace_context(place: Place) {
    let mut api = Api::start(place, "");
    api.add("echo", "echo");
    let zeros = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
    for (headers, caller) in [
        (&[("traceparent", CALLER)][..], json!(CALLER)),
        (&[("Traceparent", CALLER)], json!(CALLER)),
        (&[("traceparent", zeros)], Value::Null),
        (&[("traceparent", "bells")], Value::Null),
        (
            &[("traceparent", CALLER), ("traceparent", CALLER)],
            Value::Null,
        ),
        (&[], Value::Null),
    ] {
        let path = "/api/v1/schedules/echo/trigger";
        let body = json!({"overlap": "allow"});
        let answer = api.send("POST", path, headers, Some(&body));
        assert_eq!(answer.status, 200, "{answer:?}");
        let launch = text(&answer.json()["launch"]);
        let shown = api.get(&format!("/api/v1/launches/{launch}"));
        assert_eq!(shown["caller_traceparent"], caller, "{headers:?}");
        let run = text(&api.end_of(&launch)["run_id"]);
        let run = api.get(&format!("/api/v1/runs/{run}"));
        let parent = TraceContext::of_caller(&text(&run["traceparent"])).expect("a run's span");
        let seen = caller
            .is_string()
            .then(|| parent.of_call("echo", 1).to_string());
        assert_eq!(run["tasks"][0]["output"]["traceparent"], json!(seen));
    }
    stop(&mut api.host);
}

/// The spans of a trace by their names.
type Trace = BTreeMap<String, Span>;

/// Wait for a trace that has a span with this name.
#[track_caller]
fn wait_for_trace(
    received: &Receiver<Request>,
    traces: &mut BTreeMap<Vec<u8>, Trace>,
    name: &str,
) -> Trace {
    let until = Instant::now() + PATIENCE;
    loop {
        let found = traces.values().find(|trace| trace.contains_key(name));
        if let Some(trace) = found {
            return trace.clone();
        }
        let left = until.saturating_duration_since(Instant::now());
        let request = received.recv_timeout(left).expect("traces");
        for span in spans(&request) {
            let trace = traces.entry(span.trace_id.clone()).or_default();
            trace.insert(span.name.clone(), span);
        }
    }
}

async fn a_launch_is_sent_as_one_trace(place: Place) {
    let (port, received) = receiver(&["503 Service Unavailable\r\nretry-after: 1\r\n"]);
    let site = Site::new(place);
    site.copy_package("guests");
    site.configure(&format!("[traces]\nendpoint = 'http://127.0.0.1:{port}'\n"));
    let mut host = site.serve();
    for task in ["echo", "fail_permanent"] {
        site.add(task, task, &NEVER);
    }
    let launch = trigger(&site, "echo", &["--traceparent", CALLER]);
    // The first request is not accepted. The trace is sent again.
    received.recv_timeout(PATIENCE).expect("a request");
    host.wait_for_line("the collector did not accept traces");
    let mut traces = BTreeMap::new();
    let trace = wait_for_trace(&received, &mut traces, "launch echo");
    host.wait_for_line("the collector accepts traces again");
    let names: Vec<&str> = trace.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        ["call echo", "claim", "decide", "launch echo", "run 1"]
    );
    let caller: TraceContext = CALLER.parse().expect("a trace context");
    let root = &trace["launch echo"];
    assert_eq!(root.trace_id, caller.trace_id());
    assert_eq!(root.parent_span_id, caller.span_id());
    for (name, parent) in [
        ("decide", "launch echo"),
        ("claim", "launch echo"),
        ("run 1", "launch echo"),
        ("call echo", "run 1"),
    ] {
        assert_eq!(trace[name].parent_span_id, trace[parent].span_id, "{name}");
        assert!(trace[name].start_time_unix_nano <= trace[name].end_time_unix_nano);
    }
    let output = &site.json(["run", "show", &launch])["tasks"][0]["output"];
    let seen = TraceContext::of_caller(&text(&output["traceparent"])).expect("a span");
    assert_eq!(trace["call echo"].span_id, seen.span_id());
    let root_attributes = [
        "schedule",
        "package",
        "status",
        "kind",
        "attempts",
        "launch.id",
    ]
    .map(|key| attribute(root, &format!("campanile.{key}")).unwrap_or_default());
    assert_eq!(
        root_attributes,
        [
            "echo",
            "guests",
            "succeeded",
            "manual",
            "1",
            launch.as_str()
        ]
    );
    assert!(attribute(&trace["run 1"], "campanile.host").is_some());
    assert_eq!(
        attribute(&trace["call echo"], "campanile.attempt").as_deref(),
        Some("1")
    );

    // A failed launch without a caller is one more trace, whose root has no parent.
    let failed = trigger(&site, "fail_permanent", &[]);
    let trace = wait_for_trace(&received, &mut traces, "launch fail_permanent");
    let root = &trace["launch fail_permanent"];
    assert!(root.parent_span_id.is_empty());
    let id: LaunchId = failed.parse().expect("an id");
    assert_eq!(root.trace_id, id.0.as_bytes());
    for name in ["launch fail_permanent", "run 1", "call fail_permanent"] {
        let status = trace[name].status.as_ref().expect("a status");
        assert_eq!(status.code, StatusCode::Error as i32, "{name}");
        assert!(status.message.starts_with("failed: "), "{status:?}");
    }
    assert_eq!(
        attribute(root, "campanile.failure").as_deref(),
        Some("failed")
    );

    // The caller of a trace that is not sampled does not want it, so the next trace is that of the launch after it.
    trigger(
        &site,
        "echo",
        &[
            "--traceparent",
            &CALLER.replace("-01", "-00").replace("4bf9", "5bf9"),
        ],
    );
    trigger(
        &site,
        "echo",
        &["--traceparent", &CALLER.replace("4bf9", "6bf9")],
    );
    traces.clear();
    let trace = wait_for_trace(&received, &mut traces, "launch echo");
    assert_eq!(trace["launch echo"].trace_id[0], 0x6b);
    // A host that stops sends what waits.
    let late = CALLER.replace("4bf9", "7bf9");
    trigger(&site, "echo", &["--traceparent", &late]);
    stop(&mut host);
    traces.clear();
    let trace = wait_for_trace(&received, &mut traces, "launch echo");
    assert_eq!(trace["launch echo"].trace_id[0], 0x7b);
}

#[test]
fn a_wrong_address_of_a_collector_is_refused() {
    let folder = TempDir::with_prefix("campanile-test-").expect("a folder");
    fs::create_dir(folder.path().join("plugins")).expect("a folder");
    for (endpoint, expected) in [
        ("grpc://127.0.0.1:4317", "`traces.endpoint` is no address"),
        ("127.0.0.1:4318", "`traces.endpoint` is no address"),
        ("http://127.0.0.1:4318/v1/traces", "which the host adds"),
    ] {
        let configuration = format!("[traces]\nendpoint = '{endpoint}'\n");
        fs::write(folder.path().join("campanile.toml"), configuration).expect("a configuration");
        for command in ["config check", "serve"] {
            run(folder.path(), command.split(' ')).assert_refused(&[expected]);
        }
    }
}
