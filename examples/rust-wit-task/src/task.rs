//! The functions that Campanile calls: the exports of the world `described-package`.

use std::fs;
use std::io::{self, ErrorKind};

use serde_json::{Value, json};

use crate::primes::{Order, count_primes, report_file};
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
    /// The host calls this when it loads the file, without any capability. A proposal grants nothing.
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
    let order: Order = serde_json::from_value(context.clone())
        .map_err(|error| permanent(format!("the context: {error}")))?;
    // The slot is the same for every run of this launch, however late the run is.
    let slot = context["original_scheduled_time"]
        .as_str()
        .unwrap_or_default();
    if run_info::is_recovery() {
        let message = format!("an earlier run for {slot} was lost; this one does its work again");
        log(Level::Warn, "", &message);
    }
    let primes = count(&order);
    log(
        Level::Info,
        "",
        &format!("{primes} primes below {}", order.below),
    );
    // The result does not depend on the run, so a repeated run leaves the same result.
    let mut result = json!({"below": order.below, "primes": primes, "slot": slot});
    if let Some(folder) = &order.report {
        let file = report_file(folder, slot);
        fs::write(&file, result.to_string()).map_err(|error| unwritten(&file, &error))?;
    }
    if let Some(url) = &order.notify {
        // The id is the same for every run of this launch: the receiver recognises a repetition.
        let key = run_info::execution_id();
        webhook::post(url, &result.to_string(), &key).map_err(unsent)?;
    }
    result["is_recovery"] = run_info::is_recovery().into();
    result["attempt"] = run_info::attempt().into();
    Ok(result)
}

fn count(order: &Order) -> usize {
    let mut primes = 0;
    let mut reported = 0;
    for round in 1..=u64::from(order.rounds) {
        primes = count_primes(order.below);
        let percent = (round * 100 / u64::from(order.rounds)) as u8;
        if percent > reported {
            reported = percent;
            let message = format!("{round} of {} rounds", order.rounds);
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

fn unwritten(file: &str, error: &io::Error) -> Failure {
    let message = format!("{file} cannot be written: {error}");
    match error.kind() {
        ErrorKind::StorageFull | ErrorKind::ResourceBusy | ErrorKind::Interrupted => Failure {
            retryable: true,
            ..permanent(message)
        },
        // A missing grant looks like this from inside the sandbox.
        _ => denied(format!(
            "{message}; grant its directory with access = \"write\""
        )),
    }
}

fn unsent(trouble: webhook::Trouble) -> Failure {
    match trouble {
        webhook::Trouble::BadUrl(message) => permanent(message),
        webhook::Trouble::Denied(message) => denied(message),
        webhook::Trouble::Failed(message) => Failure {
            retryable: true,
            ..permanent(message)
        },
    }
}
