//! A task whose effects outlive it.

use std::fs::OpenOptions;
use std::io::Write;

use campanile_sdk::{Explain, Result, Run};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub struct Log {
    #[serde(default = "effects")]
    path: String,
}

fn effects() -> String {
    "/out/effects.log".to_owned()
}

/// Appends `<execution id> <attempt>` in one write.
pub fn append_line(run: &Run, log: Log) -> Result<Value> {
    let line = format!("{} {}\n", run.execution_id(), run.attempt());
    let mut file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(&log.path)
        .explain(|| format!("opening {}", log.path))?;
    file.write_all(line.as_bytes())
        .explain(|| format!("appending to {}", log.path))?;
    Ok(json!({"line": line.trim_end()}))
}
