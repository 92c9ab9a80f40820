//! Tasks with lasting effects.

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

/// Append `<execution id> <attempt>` in one write.
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

/// Two pages of keys and one more key.
const KEYS: usize = 2001;
/// The maximum number of keys in one call.
const PAGE: usize = 1000;

/// Store a value under a random key.
pub fn keep_by_chance(run: &Run, store: Store) -> Result<Value> {
    let key = wasip2::random::random::get_random_u64().to_string();
    run.bucket(&store.bucket)?.set(&key, "1")?;
    Ok(json!({"key": key}))
}

#[derive(Deserialize)]
pub struct Store {
    #[serde(default = "default_bucket")]
    bucket: String,
}

fn default_bucket() -> String {
    "default".to_owned()
}

#[derive(Deserialize)]
pub struct Fill {
    /// The size of each value, in bytes.
    bytes: usize,
    /// The number of keys.
    keys: usize,
}

/// Set keys of the bucket `default`, one after the other.
pub fn fill_bucket(run: &Run, fill: Fill) -> Result<Value> {
    let bucket = run.bucket("default")?;
    for key in 0..fill.keys {
        bucket.set(&format!("{key:04}"), vec![b'x'; fill.bytes])?;
    }
    Ok(json!({"keys": fill.keys}))
}

/// Use every operation of a bucket once, and return the results. The bucket keeps only the number of calls.
pub fn use_bucket(run: &Run, store: Store) -> Result<Value> {
    let bucket = run.bucket(&store.bucket)?;
    let calls = bucket.increment("calls", 1)?;
    bucket.set("text", "one")?;
    bucket.set_json("list", &[1, 2])?;
    let (text, list) = (bucket.get("text")?, bucket.get_json::<Value>("list")?);
    bucket.delete("text")?;
    let exists = [bucket.exists("text")?, bucket.exists("list")?];
    for first in (0..KEYS).step_by(PAGE) {
        let page = first..KEYS.min(first + PAGE);
        bucket.set_many(page.map(|number| (format!("key-{number}"), number.to_string())))?;
    }
    let keys = bucket.keys()?;
    let some = bucket.get_many(["key-2000", "key-2001", "key-7"])?;
    let others: Vec<&String> = keys.iter().filter(|key| *key != "calls").collect();
    for page in others.chunks(PAGE) {
        bucket.delete_many(page.iter().copied())?;
    }
    Ok(json!({
        "calls": calls,
        "text": text,
        "list": list,
        "exists": exists,
        "keys": [keys.len(), keys.first(), keys.last()],
        "some": some,
        "left": bucket.keys()?,
    }))
}
