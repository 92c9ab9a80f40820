//! Tasks that exceed limits.

use std::fs::File;
use std::io::{self, Write};

use campanile_sdk::{Error, Explain, Result, Run};
use serde::Deserialize;
use serde_json::{Value, json};
use wasip2::filesystem::preopens::get_directories;
use wasip2::filesystem::types::{DescriptorFlags, ErrorCode, OpenFlags, PathFlags};

#[derive(Deserialize)]
pub struct Size {
    bytes: usize,
}

/// Print to stdout, with a special last line by which a test detects truncation.
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

/// Return a JSON string of `bytes` bytes including the quotes, at least 2.
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

/// Open one file many times, and keep the handles.
pub fn open_files(_: &Run, files: Files) -> Result<Value> {
    let mut handles = Vec::new();
    for nth in 0..files.count {
        handles.push(
            File::open(&files.path)
                .explain(|| format!("opening {} for the {nth}th time", files.path))?,
        );
    }
    Ok(json!({"open": handles.len()}))
}

#[derive(Deserialize)]
pub struct Streams {
    path: String,
    count: usize,
    #[serde(default)]
    listings: bool,
}

/// Open one file or directory many times, and keep a stream of each instead of the handle.
pub fn open_streams(_: &Run, streams: Streams) -> Result<Value> {
    let directories = get_directories();
    let (directory, _) = directories
        .first()
        .ok_or_else(|| Error::permanent("no directory is granted"))?;
    let (mut contents, mut entries) = (Vec::new(), Vec::new());
    for nth in 0..streams.count {
        let fault = |code: ErrorCode| Error::permanent(format!("the {nth}th stream: {code}"));
        let none = (PathFlags::empty(), OpenFlags::empty());
        let opened = directory.open_at(none.0, &streams.path, none.1, DescriptorFlags::READ);
        let file = opened.map_err(fault)?;
        match streams.listings {
            true => entries.push(file.read_directory().map_err(fault)?),
            false => contents.push(file.read_via_stream(0).map_err(fault)?),
        }
    }
    let mut read = 0;
    for stream in &contents {
        read += stream.blocking_read(10)?.len();
    }
    Ok(json!({"open": contents.len() + entries.len(), "read": read}))
}
