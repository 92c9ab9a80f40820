//! The functions that Campanile calls: the exports of the world `described-package`.

use std::fs;
use std::io::{self, ErrorKind};

use serde_json::{Value, json};

use crate::primes::{Params, count_primes, report_file};
use crate::webhook;
use bindings::campanile::task::run_info;
use bindings::exports::campanile::task::describe::Guest as Describe;
use bindings::exports::campanile::task::task::{Completion, Failure, Guest as Task};
use bindings::wasi::logging::logging::{Level, log};

mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "described-package",
        generate_all,
    });
}

struct Primes;

bindings::export!(Primes with_types_in bindings);

impl Describe for Primes {
    /// The host calls this when it loads the file, without any capability. The manifest grants nothing.
    fn describe() -> String {
        json!({
            "name": "rust-wit-task",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "Counts primes with a sieve",
            "schedules": [{"cron": "0 2 * * *"}],
        })
        .to_string()
    }
}

impl Task for Primes {
    fn run(_task: String, context: String) -> Result<Completion, Failure> {
        let context: Value = serde_json::from_str(&context)
            .map_err(|error| permanent(format!("the context: {error}")))?;
        let result = work(&context)?;
        Ok(Completion {
            output: Some(result.to_string()),
            context: None,
        })
    }
}

fn work(context: &Value) -> Result<Value, Failure> {
    let params: Params = serde_json::from_value(context.clone())
        .map_err(|error| permanent(format!("the context: {error}")))?;
    // The slot is the same for every run of this launch, however late the run is.
    let slot = context["original_scheduled_time"]
        .as_str()
        .unwrap_or_default();
    if run_info::is_recovery() {
        let message = format!("an earlier run for {slot} was lost; this run repeats its work");
        log(Level::Warn, "", &message);
    }
    let primes = count(&params);
    log(
        Level::Info,
        "",
        &format!("{primes} primes below {}", params.below),
    );
    // The result does not depend on the run, so a repeated run leaves the same result.
    let mut result = json!({"below": params.below, "primes": primes, "slot": slot});
    if let Some(folder) = &params.report {
        let file = report_file(folder, slot);
        fs::write(&file, result.to_string()).map_err(|error| write_failure(&file, &error))?;
    }
    if let Some(url) = &params.notify {
        // The id is the same for every run of this launch: the receiver can detect a repetition.
        let key = run_info::execution_id();
        webhook::post(url, &result.to_string(), &key).map_err(post_failure)?;
    }
    result["is_recovery"] = run_info::is_recovery().into();
    result["attempt"] = run_info::attempt().into();
    Ok(result)
}

fn count(params: &Params) -> usize {
    let mut primes = 0;
    let mut reported = 0;
    for round in 1..=u64::from(params.rounds) {
        primes = count_primes(params.below);
        let percent = (round * 100 / u64::from(params.rounds)) as u8;
        if percent > reported {
            reported = percent;
            let message = format!("{round} of {} rounds", params.rounds);
            run_info::report_progress(Some(percent), &message);
        }
    }
    primes
}

/// A failure that a retry cannot fix.
fn permanent(message: String) -> Failure {
    Failure {
        message,
        retryable: false,
        retry_after_ms: None,
        details: None,
    }
}

fn denied(message: String) -> Failure {
    Failure {
        details: Some(json!({"kind": "denied"}).to_string()),
        ..permanent(message)
    }
}

fn write_failure(file: &str, error: &io::Error) -> Failure {
    let message = format!("{file} cannot be written: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::ResourceBusy | ErrorKind::Interrupted => Failure {
            retryable: true,
            ..permanent(message)
        },
        // In the sandbox, a missing grant appears as one of these errors.
        _ => denied(format!(
            "{message}; grant its directory with access = \"write\""
        )),
    }
}

fn post_failure(error: webhook::Error) -> Failure {
    match error {
        webhook::Error::BadUrl(message) => permanent(message),
        webhook::Error::Denied(message) => denied(message),
        webhook::Error::Failed(message) => Failure {
            retryable: true,
            ..permanent(message)
        },
    }
}
