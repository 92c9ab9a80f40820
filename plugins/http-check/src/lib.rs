//! Probes URLs and fails when one does not answer as it should.

mod probe;

use std::time::Duration;

use campanile_sdk::{Error, Package, Result, Run, Task};
use serde::{Deserialize, Serialize};
use serde_json::json;

use probe::Probe;

/// What the schedule's context must say.
#[derive(Deserialize)]
struct Wishes {
    urls: Vec<Target>,
}

/// A URL, alone or with what its answer must be.
#[derive(Deserialize)]
#[serde(untagged)]
enum Target {
    Url(String),
    Probe(Probe),
}

impl From<Target> for Probe {
    fn from(target: Target) -> Probe {
        match target {
            Target::Url(url) => Probe::of(url),
            Target::Probe(probe) => probe,
        }
    }
}

/// One URL's line on the record.
#[derive(Debug, Serialize, PartialEq)]
struct Finding {
    url: String,
    /// The HTTP status, if there was an answer.
    status: Option<u16>,
    /// How long the answer took, in milliseconds.
    ms: u64,
    ok: bool,
    /// What is wrong with the answer, or why there is none.
    error: Option<String>,
    #[serde(skip)]
    denied: bool,
}

fn check(run: &Run, wishes: Wishes) -> Result<Vec<Finding>> {
    check_with(run, wishes, get)
}

/// Requests a URL, within the time, reading at most so many bytes of the answer.
type Get = fn(&str, Duration, usize) -> std::result::Result<fetch::Response, fetch::Failure>;

#[cfg(target_family = "wasm")]
use fetch::get;

/// There is no network outside the sandbox; the tests bring their own.
#[cfg(not(target_family = "wasm"))]
fn get(url: &str, _: Duration, _: usize) -> std::result::Result<fetch::Response, fetch::Failure> {
    let message = format!("{url}: requests are made from inside the sandbox only");
    Err(fetch::Failure::Failed(message))
}

fn check_with(run: &Run, wishes: Wishes, get: Get) -> Result<Vec<Finding>> {
    let probes: Vec<Probe> = wishes.urls.into_iter().map(Probe::from).collect();
    if probes.is_empty() {
        return Err(Error::permanent(
            "`urls` is empty: name at least one URL in the schedule's context",
        ));
    }
    let mut findings = Vec::new();
    for probe in &probes {
        if run.cancel_requested() {
            return Err(Error::retryable(format!(
                "asked to stop after {} of {} URLs",
                findings.len(),
                probes.len()
            )));
        }
        let finding = probe.find(get)?;
        match &finding.error {
            None => run.info(format!("{} answered in {} ms", finding.url, finding.ms)),
            Some(error) => run.warn(error),
        }
        findings.push(finding);
    }
    verdict(findings)
}

/// All is well, or a failure that names every URL that is not.
fn verdict(findings: Vec<Finding>) -> Result<Vec<Finding>> {
    let wrong: Vec<&Finding> = findings.iter().filter(|finding| !finding.ok).collect();
    if wrong.is_empty() {
        return Ok(findings);
    }
    let errors: Vec<&str> = wrong
        .iter()
        .filter_map(|finding| finding.error.as_deref())
        .collect();
    let message = format!(
        "{} of {} URLs did not answer as they should: {}",
        wrong.len(),
        findings.len(),
        errors.join("; ")
    );
    let denied = wrong.iter().any(|finding| finding.denied);
    let error = if denied {
        Error::denied(message)
    } else {
        Error::retryable(message)
    };
    Err(error.details(json!({ "urls": findings })))
}

fn package() -> Package {
    Package::new("http-check", env!("CARGO_PKG_VERSION"))
        .summary("Probes URLs and fails when one does not answer as it should")
        .task(Task::new("check", check).summary("Probes each of `urls`, one after the other"))
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
                                    "expect_status": {"type": "integer", "description": "The one right status; any from 200 to 299 if not said"},
                                    "contains": {"type": "string", "description": "A text that the first MiB of the answer must have in it"},
                                    "timeout_ms": {"type": "integer", "default": 10000, "description": "For the whole answer"}
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
