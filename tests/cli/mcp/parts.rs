//! A run whose calls are too large for one answer is shown in parts, reading from the database or over HTTP.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use super::client::{Client, first_json};
use crate::api::Api;
use crate::site::{list, text};

on_both_empty!(a_run_is_shown_in_parts);

/// Calls added to a run, and the output size of each in bytes. An answer has at most 1 MiB.
const CALLS: usize = 12;
const OUTPUT: usize = 400 << 10;
/// Bytes printed by the first call, too large for an answer by itself.
const PRINTED: usize = 1 << 20;

fn notes(result: &Value) -> String {
    let blocks = list(result["content"].clone());
    let notes = blocks.iter().skip(1).map(|block| text(&block["text"]));
    Vec::from_iter(notes).join("; ")
}

/// Returns the next part's place, as named by a result.
fn next(result: &Value) -> Option<String> {
    let notes = notes(result);
    let (_, rest) = notes.split_once("call again with `after` \"")?;
    let (place, _) = rest.split_once('"')?;
    Some(place.to_owned())
}

/// Returns a tool's results, part by part.
fn parts(client: &mut Client, tool: &str, mut arguments: Value) -> Vec<Value> {
    let mut parts = Vec::new();
    loop {
        let result = client.call(tool, arguments.clone());
        assert_eq!(result["isError"], false, "{result:.300}");
        let next = next(&result);
        parts.push(result);
        assert!(parts.len() <= CALLS + 1, "{tool}: it does not end");
        match next {
            Some(place) => arguments["after"] = json!(place),
            None => return parts,
        }
    }
}

async fn a_run_is_shown_in_parts(place: Place) {
    let api = Api::start(place, "");
    api.add("much", "ok");
    let launched = api.post("/api/v1/schedules/much/trigger", json!({}));
    let run = text(&api.end_of(&text(&launched["launch"]))["run_id"]);
    let numbers = Vec::from_iter((1..=CALLS).map(|number| format!("({number})"))).join(", ");
    let columns = "succeeded, started_at, finished_at, stderr, logs, wall_ms, cpu_ms, memory_peak_bytes, usage";
    let add = format!(
        "INSERT INTO task_run (launch_id, task, attempt, run_number, stdout, output, {columns})
        SELECT launch_id, 'z', n.column1, run_number, 'printed by one', '\"{}\"', {columns}
        FROM task_run, (VALUES {numbers}) AS n WHERE task = 'ok'",
        "o".repeat(OUTPUT)
    );
    api.site.execute(&add).await;
    let print = format!(
        "UPDATE task_run SET stdout = '{}' WHERE attempt = 1 AND task = 'z'",
        "p".repeat(PRINTED)
    );
    api.site.execute(&print).await;

    let mut remote = api.site.command(["mcp"]);
    remote.env_remove("CAMPANILE_DATABASE_URL");
    remote.env("CAMPANILE_SERVER", format!("http://{}", api.address));
    remote.env("CAMPANILE_TOKEN", &api.token);
    let mut remote = Client::of(remote);
    remote.initialize();
    let mut local = Client::connect(&api.site, &[]);
    for client in [&mut local, &mut remote] {
        let shown = parts(client, "show_run", json!({"id": run}));
        let calls = shown
            .iter()
            .flat_map(|part| list(first_json(part)["tasks"].clone()));
        let calls = Vec::from_iter(calls);
        let attempts = Vec::from_iter(calls.iter().map(|call| call["attempt"].as_u64()));
        let expected = [1].into_iter().chain(1..=CALLS as u64).map(Some);
        assert_eq!(attempts, Vec::from_iter(expected));
        for call in &calls[1..] {
            assert_eq!(text(&call["output"]).len(), OUTPUT);
        }
        // The other tool shows what is left out of a call too large by itself.
        let left_out = shown
            .iter()
            .filter(|part| notes(part).contains("`run_logs` shows it"));
        assert_eq!(left_out.count(), 1);
        let logs = parts(client, "run_logs", json!({"id": run, "after": "start"}));
        assert!(
            notes(&logs[0]).contains("more calls"),
            "{}",
            notes(&logs[0])
        );
        let logs = logs.iter().flat_map(|part| list(first_json(part)));
        let logs = Vec::from_iter(logs);
        assert_eq!(logs.len(), CALLS + 1);
        assert_eq!(logs[CALLS]["stdout"], "printed by one");
        assert!(text(&logs[1]["stdout"]).starts_with("ppp"));
        // Along with the newest text, it says how to get the oldest.
        let newest = client.call("run_logs", json!({"id": run}));
        assert!(
            notes(&newest).contains("`after` \"start\""),
            "{}",
            notes(&newest)
        );
        for tool in ["show_run", "run_logs"] {
            let error = client.refused(tool, json!({"id": run, "after": "x"}));
            assert!(text(&error["error"]).contains("`after`: "), "{error}");
            // Nothing comes after the last call's place.
            let last = calls.last().expect("calls");
            let at = text(&last["started_at"]).parse::<campanile_model::clock::Timestamp>();
            let last = format!("{}.{CALLS}.z", at.expect("a time").micros());
            let answer = client.ok(tool, json!({"id": run, "after": last}));
            let found = answer.get("tasks").unwrap_or(&answer);
            assert_eq!(list(found.clone()).len(), 0, "{tool}");
        }
    }
}
