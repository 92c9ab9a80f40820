//! Tests with a fake network, whose responses are in the URLs.

use super::*;
use campanile_sdk::Level;
use serde_json::Value;

/// Respond to `http://test/STATUS/BODY`, or fail if the status is `denied`, `slow` or `broken`.
fn fake_get(
    url: &str,
    timeout: Duration,
    _: usize,
) -> std::result::Result<fetch::Response, fetch::Failure> {
    let address: fetch::Address = url.parse()?;
    let mut parts = address.path_and_query[1..].splitn(2, '/');
    let status = parts.next().unwrap_or("");
    match status {
        "denied" => Err(fetch::Failure::Denied(format!(
            "{url}: the host refused the request"
        ))),
        "slow" => Err(fetch::Failure::TimedOut(format!(
            "{url}: no response in {} ms",
            timeout.as_millis()
        ))),
        "broken" => Err(fetch::Failure::Failed(format!("{url}: ConnectionRefused"))),
        _ => Ok(fetch::Response {
            status: status.parse().unwrap(),
            body: parts.next().unwrap_or("").into(),
            truncated: false,
        }),
    }
}

fn probe(run: &Run, urls: Value) -> Result<Vec<ProbeResult>> {
    let params = serde_json::from_value(json!({ "urls": urls })).unwrap();
    check_with(run, params, fake_get)
}

fn error_of(urls: Value) -> Error {
    probe(&Run::fake().build(), urls).unwrap_err()
}

#[test]
fn the_output_has_the_results_of_all_urls() {
    let run = Run::fake().build();
    let urls = json!([
        "http://test/200/hello",
        "https://test/204",
        {"url": "http://test/503/maintenance", "expect_status": 503},
        {"url": "http://test/200/all-services-up", "contains": "up"},
    ]);
    let mut results = serde_json::to_value(probe(&run, urls).unwrap()).unwrap();
    for result in results.as_array_mut().unwrap() {
        result["ms"] = json!(0);
    }
    assert_eq!(
        results[1],
        json!({"url": "https://test/204", "status": 204, "ms": 0, "ok": true, "error": null})
    );
    let statuses: Vec<&Value> = results
        .as_array()
        .unwrap()
        .iter()
        .map(|result| &result["status"])
        .collect();
    assert_eq!(statuses, [200, 204, 503, 200]);
    assert!(run.logs().iter().all(|line| line.level == Level::Info));
}

#[test]
fn one_unexpected_response_fails_retryably_and_names_its_url() {
    for (target, expected) in [
        (json!("http://test/500"), "http://test/500: status 500"),
        (json!("http://test/301"), "http://test/301: status 301"),
        (
            json!("http://test/broken"),
            "http://test/broken: ConnectionRefused",
        ),
        (
            json!({"url": "http://test/200", "expect_status": 404}),
            "http://test/200: status 200 instead of 404",
        ),
        (
            json!({"url": "http://test/200/abc", "contains": "x"}),
            "http://test/200/abc: \"x\" is not in the response",
        ),
        (
            json!({"url": "http://test/slow", "timeout_ms": 250}),
            "http://test/slow: no response in 250 ms",
        ),
    ] {
        let error = error_of(json!(["http://test/200", target]));
        assert_eq!(error.message(), format!("1 of 2 URLs failed: {expected}"));
        assert!(error.is_retryable());
        let details = error.full_details().unwrap();
        assert_eq!(
            (&details["urls"][0]["ok"], &details["urls"][1]["ok"]),
            (&json!(true), &json!(false))
        );
        assert_eq!(details["urls"][1]["error"], expected);
    }
}

#[test]
fn a_denied_url_does_not_stop_the_other_requests() {
    let error = error_of(json!(["http://test/denied", "http://test/200"]));
    assert!(error.is_denied() && !error.is_retryable());
    let details = error.full_details().unwrap();
    assert_eq!(details["kind"], "denied");
    assert_eq!(details["urls"][1]["status"], 200);
    assert!(
        error
            .message()
            .contains("http://test/denied: the host refused"),
        "{error}"
    );
}

#[test]
fn an_invalid_context_is_a_permanent_error() {
    for (context, expected) in [
        (json!({}), "missing field `urls`"),
        (json!({"urls": []}), "`urls` is empty"),
        (json!({"urls": [7]}), "`urls[0]`"),
    ] {
        let run = Run::fake().context(context).build();
        let error = package().call::<Value>("check", &run).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
        assert!(!error.is_retryable());
    }
    let error = error_of(json!(["example.com"]));
    assert!(error.message().contains("must begin with"), "{error}");
    assert!(!error.is_retryable());
}

#[test]
fn a_cancelled_run_stops_between_two_urls() {
    let run = Run::fake().cancelled().build();
    let error = probe(&run, json!(["http://test/200"])).unwrap_err();
    assert_eq!(error.message(), "asked to stop after 0 of 1 URLs");
}

#[test]
fn the_package_proposes_no_schedule() {
    let manifest = package().manifest();
    assert_eq!(manifest["schedules"], json!([]));
    assert_eq!(manifest["requests"]["http"], json!([]));
}
