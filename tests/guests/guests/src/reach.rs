//! Tasks that use capabilities: files, environment, config, network, clocks and random numbers.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{SystemTime, UNIX_EPOCH};

use campanile_sdk::{AnyContext, Error, Explain, Result, Run};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
pub struct Path {
    path: String,
}

pub fn read_file(_: &Run, file: Path) -> Result<Value> {
    let text = fs::read_to_string(&file.path).explain(|| format!("reading {}", file.path))?;
    Ok(json!({"text": text}))
}

#[derive(Deserialize)]
pub struct Written {
    path: String,
    #[serde(default)]
    text: String,
}

pub fn write_file(_: &Run, file: Written) -> Result<Value> {
    fs::write(&file.path, &file.text).explain(|| format!("writing {}", file.path))?;
    Ok(json!({"bytes": file.text.len()}))
}

pub fn list_directory(_: &Run, directory: Path) -> Result<Value> {
    let mut names = Vec::new();
    for entry in fs::read_dir(&directory.path).explain(|| format!("listing {}", directory.path))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_unstable();
    Ok(json!({"names": names}))
}

#[derive(Deserialize)]
pub struct Name {
    name: String,
}

pub fn read_env(_: &Run, variable: Name) -> Result<Value> {
    Ok(json!({"value": std::env::var(&variable.name).ok()}))
}

pub fn list_env(_: &Run, _: AnyContext) -> Result<Value> {
    let variables: BTreeMap<String, String> = std::env::vars().collect();
    Ok(json!({"variables": variables}))
}

#[derive(Deserialize)]
pub struct Key {
    key: String,
}

pub fn read_config(run: &Run, config: Key) -> Result<Value> {
    Ok(json!({"value": run.config(&config.key)?}))
}

#[derive(Deserialize)]
pub struct Target {
    /// The address, such as `127.0.0.1:80`.
    address: String,
    #[serde(default)]
    line: String,
}

/// Send a line and return the reply.
pub fn tcp_echo(_: &Run, target: Target) -> Result<Value> {
    let mut stream = TcpStream::connect(&target.address)
        .explain(|| format!("connecting to {}", target.address))?;
    writeln!(stream, "{}", target.line)?;
    let mut line = String::new();
    BufReader::new(stream).read_line(&mut line)?;
    Ok(json!({"line": line.trim_end()}))
}

/// Send a datagram and return the reply.
pub fn udp_echo(_: &Run, target: Target) -> Result<Value> {
    let socket = UdpSocket::bind("0.0.0.0:0").explain(|| "binding")?;
    socket
        .send_to(target.line.as_bytes(), &target.address)
        .explain(|| format!("sending to {}", target.address))?;
    let mut bytes = [0; 1000];
    let (count, _) = socket.recv_from(&mut bytes)?;
    Ok(json!({"line": String::from_utf8_lossy(&bytes[..count])}))
}

/// Listen on an address.
pub fn tcp_listen(_: &Run, target: Target) -> Result<Value> {
    let listener = TcpListener::bind(&target.address).explain(|| "listening")?;
    Ok(json!({"address": listener.local_addr()?.to_string()}))
}

#[derive(Deserialize)]
pub struct Url {
    url: String,
    #[serde(default = "ten_seconds")]
    timeout_ms: u64,
    /// The number of requests.
    #[serde(default = "once")]
    times: u64,
}

fn once() -> u64 {
    1
}

fn ten_seconds() -> u64 {
    10_000
}

/// Request a URL. A request that the host denies is an [`Error::denied`].
pub fn http_get(_: &Run, target: Url) -> Result<Value> {
    let request = || {
        get(&target).map_err(|failure| match failure {
            fetch::Failure::Denied(message) => Error::denied(message),
            fetch::Failure::BadUrl(message) => Error::permanent(message),
            other => Error::retryable(other.to_string()),
        })
    };
    let mut response = request()?;
    for _ in 1..target.times {
        response = request()?;
    }
    Ok(json!({
        "status": response.status,
        "body": String::from_utf8_lossy(&response.body),
        "truncated": response.truncated,
    }))
}

#[cfg(target_family = "wasm")]
fn get(target: &Url) -> std::result::Result<fetch::Response, fetch::Failure> {
    let timeout = std::time::Duration::from_millis(target.timeout_ms);
    fetch::get(&target.url, timeout, 64 << 20)
}

#[cfg(not(target_family = "wasm"))]
fn get(target: &Url) -> std::result::Result<fetch::Response, fetch::Failure> {
    let message = format!(
        "{} not requested in {} ms: there is no sandbox",
        target.url, target.timeout_ms
    );
    Err(fetch::Failure::Failed(message))
}

/// Return the time of the sandbox's wall clock.
#[allow(
    clippy::disallowed_methods,
    reason = "the guest's clock is what is tested"
)]
pub fn now(_: &Run, _: AnyContext) -> Result<Value> {
    let since = SystemTime::now().duration_since(UNIX_EPOCH)?;
    Ok(json!({"unix_ms": u64::try_from(since.as_millis())?}))
}

/// Return two numbers that differ between runs if the host's random numbers are real.
pub fn random(_: &Run, _: AnyContext) -> Result<Value> {
    use std::hash::{BuildHasher, RandomState};
    let state = RandomState::new();
    Ok(json!({"numbers": [state.hash_one(1), state.hash_one(2)]}))
}
