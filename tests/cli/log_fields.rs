//! The fields of log lines: what a line is about, for programs that read the log and for filters.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};

use campanile_tests::{HostProcess, Place, on_both_empty};
use serde_json::{Value, json};

use crate::api::raw;
use crate::browser::encoded;
use crate::site::{Site, eventually, stop, text};

on_both_empty!(
    json_lines_have_the_fields_of_runs_requests_and_deliveries,
    a_filter_shows_the_lines_of_one_schedule_launch_or_principal,
);

/// Starts a host with this filter.
fn serve(site: &Site, filter: &str, more: &[&str]) -> HostProcess {
    let mut command = site.command(["serve"].iter().chain(more));
    let host = HostProcess::spawn(command.env("CAMPANILE_LOG", filter));
    host.wait_for_line("serving");
    // Not every filter and format shows which packages are loaded later.
    eventually(|| match site.run(["package", "show", "guests"]) {
        shown if shown.code == 0 => Ok(()),
        missing => Err(format!("{missing:?}")),
    });
    host
}

/// Adds a schedule of that task and name, launching only when triggered.
fn add(site: &Site, task: &str) {
    site.add(task, task, &["--at", "2099-01-01T00:00:00Z"]);
}

/// Waits for a line containing `text`, and returns it with its innermost span.
#[track_caller]
fn wait_for(host: &HostProcess, text: &str) -> (Value, Value) {
    let line = host.wait_for_line(text);
    let line: Value = serde_json::from_str(&line).expect("JSON");
    let span = line["span"].clone();
    assert_eq!(line["spans"].as_array().map(Vec::len), Some(1), "{line}");
    (line, span)
}

/// Returns where the API of a host listens.
#[track_caller]
fn address(host: &HostProcess) -> SocketAddr {
    let line = host.wait_for_line("the API answers at http://");
    let (_, rest) = line.split_once("http://").expect("an address");
    let (address, _) = rest.split_once("/api/v1").expect("a path");
    address.parse().expect("an address")
}

/// Returns a request with that token.
fn get(address: SocketAddr, token: &Value) -> String {
    format!(
        "GET /api/v1/schedules HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        text(&token["secret"])
    )
}

/// Returns a request of a page with these fields.
fn form(address: SocketAddr, path: &str, headers: &str, fields: &[(&str, &str)]) -> String {
    let body = encoded(fields);
    format!(
        "POST {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/html\r\nConnection: close\r\n{headers}\
        Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Answers each request that the receiver wants no more. Returns its port.
fn gone() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            // A small request, whose body the answer doesn't need.
            let _ = stream.read(&mut [0; 64 << 10]);
            let _ = stream
                .write_all(b"HTTP/1.1 410 Gone\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        }
    });
    port
}

async fn json_lines_have_the_fields_of_runs_requests_and_deliveries(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    site.configure(&format!(
        "[[alerts]]\nkind = 'package_rejected'\nname = 'broken'\nchannels = ['ops']\n\
         [channels.ops]\nurl = 'http://127.0.0.1:{}/hook'\nprivate = true\ngroup_wait = '0s'\n",
        gone()
    ));
    let more = ["--log-format", "json", "--listen", "127.0.0.1:0"];
    let mut host = serve(&site, "", &more);
    add(&site, "fail_permanent");

    let launch = site.trigger_and_wait("fail_permanent");
    let (line, span) = wait_for(&host, ": failed: ");
    assert_eq!(
        span,
        json!({
            "name": "run",
            "schedule": "fail_permanent",
            "launch": launch["id"],
            "run": launch["run_id"],
        }),
        "{line}"
    );

    let address = address(&host);
    let reader = site.json(["token", "create", "reader", "--role", "viewer"]);
    let path = "/api/v1/schedules/fail_permanent/pause";
    let request = format!(
        "POST {path}?secret=x HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n",
        text(&reader["secret"])
    );
    assert_eq!(raw(address, &request).status, 403);
    let (line, span) = wait_for(&host, "refused a request");
    let wanted = json!({"name": "request", "method": "POST", "path": path, "principal": "reader"});
    assert_eq!(span, wanted, "{line}");
    assert_eq!(line["status"], 403, "{line}");

    std::fs::write(site.plugin("broken.wasm"), "no package").expect("a file");
    let (line, span) = wait_for(&host, "gave up a message about alerts");
    assert_eq!(
        (&span["name"], &span["channel"], &span["rule"]),
        (&json!("delivery"), &json!("ops"), &json!("broken")),
        "{line}"
    );
    assert!(span["id"].is_string(), "{line}");
    assert!(
        text(&line["error"]).starts_with("the receiver answered 410"),
        "{line}"
    );
    stop(&mut host);
}

async fn a_filter_shows_the_lines_of_one_schedule_launch_or_principal(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = serve(&site, "info", &[]);
    for task in ["ok", "fail_permanent"] {
        add(&site, task);
    }
    stop(&mut host);

    let about_ok = "error,campanile_engine::serve=info,campanile_engine[run{schedule=ok}]=debug";
    let mut host = serve(&site, about_ok, &[]);
    site.trigger_and_wait("fail_permanent");
    let launch = site.trigger_and_wait("ok");
    let ended = host.wait_for_line("the run has ended");
    let wanted = format!(
        "run{{schedule=ok launch={} run={}}}: the run has ended status=succeeded",
        text(&launch["id"]),
        text(&launch["run_id"])
    );
    assert!(ended.contains(&wanted), "{ended}");
    host.wait_for_line(":call{task=ok attempt=1}: called the task outcome=succeeded");
    stop(&mut host);
    let log = host.stderr_lines();
    let other = |line: &&String| line.contains("fail_permanent");
    assert_eq!(log.iter().find(other), None, "{log:#?}");

    // Of one of two launches, by the beginning of its id, and of one principal.
    let trigger = || {
        let command = ["schedule", "trigger", "ok", "--overlap", "allow", "--json"];
        text(&site.run(command).json()["launch"])
    };
    let (first, second) = (trigger(), trigger());
    let about_two = format!(
        "error,campanile_engine::serve=info,campanile::commands=info,[run{{launch={}.*}}]=debug,[request{{principal=^reader}}]=debug",
        &second[..second.len() - 2]
    );
    let mut host = serve(&site, &about_two, &["--listen", "127.0.0.1:0"]);
    for launch in [&first, &second] {
        site.wait_until_ended("ok", launch);
    }
    let address = address(&host);
    let [_, reader] = ["writer", "reader"].map(|name| {
        let token = site.json(["token", "create", name, "--role", "viewer"]);
        assert_eq!(raw(address, &get(address, &token)).status, 200);
        text(&token["secret"])
    });
    let answered = host.wait_for_line("answered the request");
    let wanted = "request{method=GET path=/api/v1/schedules principal=reader}: answered";
    assert!(answered.contains(wanted), "{answered}");
    // A form refused without waiting for anything after its principal is proved.
    let entered = raw(address, &form(address, "/login", "", &[("token", &reader)]));
    let cookie = entered.header("set-cookie").expect("a cookie");
    let cookie = cookie.split(';').next().expect("a value");
    let headers = format!("Cookie: {cookie}\r\nSec-Fetch-Site: same-origin\r\n");
    let pause = form(address, "/schedules/ok", &headers, &[("do", "pause")]);
    assert_eq!(raw(address, &pause).status, 403);
    let refused = host.wait_for_line("refused a request");
    let wanted = "request{method=POST path=/schedules/ok principal=reader}: refused";
    assert!(refused.contains(wanted), "{refused}");
    stop(&mut host);
    let log = host.stderr_lines();
    let about = |launch: &str| log.iter().filter(|line| line.contains(launch)).count();
    assert!(about(&second) >= 3, "{log:#?}");
    assert_eq!((about(&first), about("writer")), (0, 0), "{log:#?}");
}
