//! A task whose effects can be counted: every call appends a line to a file.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;
use std::time::Duration;

use campanile_sdk::{Error, Explain, Package, Result, Run, Task};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Context {
    /// The file to append to. The directory `/out` must be granted for writing.
    #[serde(default = "effects")]
    path: String,
    /// The sleep before the line is written, in milliseconds.
    #[serde(default)]
    before_ms: u64,
    /// The sleep after the line is written, in milliseconds.
    #[serde(default)]
    after_ms: u64,
    /// The first attempt that succeeds. Earlier attempts write the line and fail retryably.
    #[serde(default)]
    succeed_on: u32,
}

fn effects() -> String {
    "/out/effects.log".to_owned()
}

#[derive(Serialize)]
struct Appended {
    line: String,
}

/// Append `<execution id> <attempt> <recovery|first> <slot>`.
fn append(run: &Run, context: Context) -> Result<Appended> {
    thread::sleep(Duration::from_millis(context.before_ms));
    let line = format!(
        "{} {} {} {}",
        run.execution_id(),
        run.attempt(),
        if run.is_recovery() {
            "recovery"
        } else {
            "first"
        },
        run.original_scheduled_time()
    );
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&context.path)
        .explain(|| format!("opening {}", context.path))?;
    // A single write keeps the lines of concurrent runs apart.
    file.write_all(format!("{line}\n").as_bytes())
        .explain(|| format!("appending to {}", context.path))?;
    thread::sleep(Duration::from_millis(context.after_ms));
    if run.attempt() < context.succeed_on {
        return Err(Error::retryable(format!(
            "attempt {} is too early",
            run.attempt()
        )));
    }
    run.info(&line);
    Ok(Appended { line })
}

fn package() -> Package {
    Package::new("append", env!("CARGO_PKG_VERSION"))
        .task(Task::new("append", append).max_attempts(10))
}

campanile_sdk::export!(package);
