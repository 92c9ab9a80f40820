//! Counts primes: an ordinary program. Its context comes on stdin, and its one line on stdout is the output.

mod primes;

use std::fs;
use std::io;
use std::process::ExitCode;

use serde_json::{Value, json};

use primes::{Order, count_primes, report_file};

fn main() -> ExitCode {
    match read() {
        Ok((context, order)) => work(&context, &order),
        Err(error) => {
            // The last line on stderr goes on the record as the reason. WASI 0.2 knows no other codes than 0 and 1.
            eprintln!("the context: {error}");
            ExitCode::FAILURE
        }
    }
}

/// The whole context, and this task's own keys of it.
fn read() -> serde_json::Result<(Value, Order)> {
    let context: Value = serde_json::from_reader(io::stdin())?;
    let order = serde_json::from_value(context.clone())?;
    Ok((context, order))
}

fn work(context: &Value, order: &Order) -> ExitCode {
    let mut primes = 0;
    for _ in 0..order.rounds {
        primes = count_primes(order.below);
    }
    // What stays in the world says nothing of the run that made it: a second run leaves the same.
    let mut result = json!({
        "below": order.below,
        "primes": primes,
        "slot": context["original_scheduled_time"],
    });
    if let Some(folder) = &order.report {
        // The slot is the same for every run of this launch, however late it is.
        let slot = context["original_scheduled_time"]
            .as_str()
            .unwrap_or_default();
        let file = report_file(folder, slot);
        if let Err(error) = fs::write(&file, result.to_string()) {
            eprintln!("{file} cannot be written: {error}");
            return ExitCode::FAILURE;
        }
    }
    for fact in ["is_recovery", "attempt"] {
        result[fact] = context[fact].clone();
    }
    println!("{result}");
    ExitCode::SUCCESS
}
