//! Requests URLs and fails if a response is not as expected.

mod probe;

use std::time::Duration;

use campanile_sdk::{Error, Package, Result, Run, Task};
use serde::{Deserialize, Serialize};
use serde_json::json;

use probe::Probe;

/// The context.
#[derive(Deserialize)]
struct Params {
    urls: Vec<Target>,
}

/// A URL, alone or with the expected response.
#[derive(Deserialize)]
#[serde(untagged)]
enum Target {
    Url(String),
    Probe(Probe),
}

impl From<Target> for Probe {
    fn from(target: Target) -> Probe {
        match target {
            Target::Url(url) => Probe::new(url),
            Target::Probe(probe) => probe,
        }
    }
}

/// The result for one URL.
#[derive(Debug, Serialize, PartialEq)]
struct ProbeResult {
    url: String,
    /// The HTTP status, if there was a response.
    status: Option<u16>,
    /// The duration of the request, in milliseconds.
    ms: u64,
    ok: bool,
    /// Why the response is not as expected, or why there is none.
    error: Option<String>,
    #[serde(skip)]
    denied: bool,
}

fn check(run: &Run, params: Params) -> Result<Vec<ProbeResult>> {
    check_with(run, params, get)
}

/// Requests a URL: the URL, the time-out, and the maximum size of the response body in bytes.
type Get = fn(&str, Duration, usize) -> std::result::Result<fetch::Response, fetch::Failure>;

#[cfg(target_family = "wasm")]
use fetch::get;

/// Native builds have no network; tests pass their own function.
#[cfg(not(target_family = "wasm"))]
fn get(url: &str, _: Duration, _: usize) -> std::result::Result<fetch::Response, fetch::Failure> {
    let message = format!("{url}: requests work only in the sandbox");
    Err(fetch::Failure::Failed(message))
}

fn check_with(run: &Run, params: Params, get: Get) -> Result<Vec<ProbeResult>> {
    let probes: Vec<Probe> = params.urls.into_iter().map(Probe::from).collect();
    if probes.is_empty() {
        return Err(Error::permanent(
            "`urls` is empty; set at least one URL in the schedule's context",
        ));
    }
    let mut results = Vec::new();
    for probe in &probes {
        if run.cancel_requested() {
            return Err(Error::retryable(format!(
                "asked to stop after {} of {} URLs",
                results.len(),
                probes.len()
            )));
        }
        let result = probe.request(get)?;
        match &result.error {
            None => run.info(format!("{} answered in {} ms", result.url, result.ms)),
            Some(error) => run.warn(error),
        }
        results.push(result);
    }
    fail_if_any_failed(results)
}

/// Return the results, or an error that names every failed URL.
fn fail_if_any_failed(results: Vec<ProbeResult>) -> Result<Vec<ProbeResult>> {
    let failed: Vec<&ProbeResult> = results.iter().filter(|result| !result.ok).collect();
    if failed.is_empty() {
        return Ok(results);
    }
    let errors: Vec<&str> = failed
        .iter()
        .filter_map(|result| result.error.as_deref())
        .collect();
    let message = format!(
        "{} of {} URLs failed: {}",
        failed.len(),
        results.len(),
        errors.join("; ")
    );
    let denied = failed.iter().any(|result| result.denied);
    let error = if denied {
        Error::denied(message)
    } else {
        Error::retryable(message)
    };
    Err(error.details(json!({ "urls": results })))
}

fn package() -> Package {
    Package::new("http-check", env!("CARGO_PKG_VERSION"))
        .summary("Requests URLs and fails if a response is not as expected")
        .task(Task::new("check", check).summary("Requests each of `urls`, one after the other"))
        .context_schema(json!({
            "type": "object",
            "required": ["urls"],
            "properties": {
                "urls": {
                    "type": "array",
                    "minItems": 1,
                    "items": {
                        "oneOf": [
                            {"type": "string", "description": "A URL that must answer with a status from 200 to 299"},
                            {
                                "type": "object",
                                "required": ["url"],
                                "additionalProperties": false,
                                "properties": {
                                    "url": {"type": "string"},
                                    "expect_status": {"type": "integer", "description": "The expected status; by default any from 200 to 299"},
                                    "contains": {"type": "string", "description": "A text that the first MiB of the response must contain"},
                                    "timeout_ms": {"type": "integer", "default": 10000, "description": "The limit for the whole response, in milliseconds"}
                                }
                            }
                        ]
                    }
                }
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests;
