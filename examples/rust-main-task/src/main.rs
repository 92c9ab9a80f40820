//! Counts primes: an ordinary program. It reads its context from stdin and prints its output on stdout.

mod primes;

use std::fs;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use primes::{Params, count_primes, report_file};

fn main() -> ExitCode {
    match read() {
        Ok((context, params)) => work(&context, &params),
        Err(error) => {
            // The last line on stderr is recorded as the message. WASI 0.2 has only the codes 0 and 1.
            eprintln!("the context: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Return the whole context and the task's keys.
fn read() -> serde_json::Result<(Value, Params)> {
    let context: Value = serde_json::from_reader(io::stdin())?;
    let params = serde_json::from_value(context.clone())?;
    Ok((context, params))
}

fn work(context: &Value, params: &Params) -> ExitCode {
    let mut primes = 0;
    for _ in 0..params.rounds {
        primes = count_primes(params.below);
    }
    // The result does not depend on the run, so a repeated run leaves the same result.
    let mut result = json!({
        "below": params.below,
        "primes": primes,
        "slot": context["original_scheduled_time"],
    });
    if let Some(folder) = &params.report {
        // The slot is the same for every run of this launch, however late the run is.
        let slot = context["original_scheduled_time"]
            .as_str()
            .unwrap_or_default();
        let file = report_file(folder, slot);
        if let Err(error) = fs::write(&file, result.to_string()) {
            eprintln!("{file} cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    for key in ["is_recovery", "attempt"] {
        result[key] = context[key].clone();
    }
    println!("{result}");
    ExitCode::SUCCESS
}
