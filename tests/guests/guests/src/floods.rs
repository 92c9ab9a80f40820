//! Tasks that want too much of something.

use std::fs::File;
use std::io::{self, Write};

use campanile_sdk::{Explain, Result, Run};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub struct Size {
    bytes: usize,
}

/// Ends with a last line, so that a test can see whether the end is kept.
pub fn stdout_flood(_: &Run, size: Size) -> Result<Value> {
    flood(io::stdout().lock(), size.bytes)
}

pub fn stderr_flood(_: &Run, size: Size) -> Result<Value> {
    flood(io::stderr().lock(), size.bytes)
}

fn flood(mut out: impl Write, bytes: usize) -> Result<Value> {
    let line = [b'.'; 1023];
    let mut written = 0;
    while written < bytes {
        out.write_all(&line)?;
        out.write_all(b"\n")?;
        written += 1024;
    }
    out.write_all(b"the last line\n")?;
    out.flush()?;
    Ok(json!({"bytes": written}))
}

#[derive(Deserialize)]
pub struct Lines {
    lines: u64,
    #[serde(default)]
    bytes_each: usize,
}

pub fn log_flood(run: &Run, lines: Lines) -> Result<()> {
    let padding = ".".repeat(lines.bytes_each);
    for line in 0..lines.lines {
        run.info(format!("line {line} {padding}"));
    }
    Ok(())
}

/// A JSON text of exactly `bytes` bytes, quotes included; at least 2.
pub fn big_output(_: &Run, size: Size) -> Result<String> {
    Ok("x".repeat(size.bytes.saturating_sub(2)))
}

pub fn big_pass(run: &Run, size: Size) -> Result<()> {
    run.pass("big", "x".repeat(size.bytes))
}

#[derive(Deserialize)]
pub struct Files {
    path: String,
    count: usize,
}

/// Holds one file open many times over.
pub fn open_files(_: &Run, files: Files) -> Result<Value> {
    let mut held = Vec::new();
    for nth in 0..files.count {
        held.push(
            File::open(&files.path)
                .explain(|| format!("opening {} for the {nth}th time", files.path))?,
        );
    }
    Ok(json!({"open": held.len()}))
}
