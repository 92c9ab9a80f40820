//! Tasks that fail in different ways.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

use campanile_sdk::{AnyContext, Error, Result, Run};
use serde::Deserialize;
use serde_json::{Value, json};

/// The failure to return.
#[derive(Deserialize)]
pub struct Params {
    #[serde(default = "default_message")]
    message: String,
    retry_after_ms: Option<u64>,
    details: Option<Value>,
}

fn default_message() -> String {
    "told to fail".to_owned()
}

impl Params {
    fn apply(self, error: impl Fn(String) -> Error) -> Error {
        let mut error = error(self.message);
        if let Some(wait) = self.retry_after_ms {
            error = error.retry_after(Duration::from_millis(wait));
        }
        if let Some(details) = self.details {
            error = error.details(details);
        }
        error
    }
}

pub fn fail_retryable(_: &Run, params: Params) -> Result<()> {
    Err(params.apply(Error::retryable))
}

pub fn fail_permanent(_: &Run, params: Params) -> Result<()> {
    Err(params.apply(Error::permanent))
}

pub fn fail_denied(_: &Run, params: Params) -> Result<()> {
    Err(params.apply(Error::denied))
}

#[derive(Deserialize)]
pub struct SucceedOn {
    succeed_on: u32,
}

pub fn fail_until_attempt(run: &Run, context: SucceedOn) -> Result<Value> {
    let attempt = run.attempt();
    if attempt < context.succeed_on {
        return Err(Error::retryable(format!("attempt {attempt} is too early")));
    }
    Ok(json!({"attempt": attempt}))
}

pub fn panic(_: &Run, _: AnyContext) -> Result<()> {
    panic!("the bell has cracked");
}

#[derive(Deserialize)]
pub struct Code {
    #[serde(default)]
    code: i32,
}

/// Call WASI's `exit` instead of returning.
pub fn exit(_: &Run, context: Code) -> Result<()> {
    std::process::exit(context.code)
}

pub fn spin(_: &Run, _: AnyContext) -> Result<()> {
    let mut counter = 0_u64;
    loop {
        counter = black_box(counter.wrapping_add(1));
    }
}

#[derive(Deserialize)]
pub struct Depth {
    /// The depth at which the recursion ends. It never ends by default.
    #[serde(default = "never")]
    depth: u64,
}

fn never() -> u64 {
    u64::MAX
}

/// Recurse to a depth, or until the stack overflows.
pub fn recurse(_: &Run, context: Depth) -> Result<Value> {
    // Neither a tail call nor a sum, so that the compiler cannot turn it into a loop.
    fn deeper(depth: u64, max: u64) -> u64 {
        if depth == max {
            return 0;
        }
        deeper(depth + 1, max).wrapping_mul(31) ^ depth
    }
    Ok(json!({"number": deeper(black_box(0), context.depth)}))
}

#[derive(Deserialize)]
pub struct Bytes {
    /// The size at which to stop. Without it, the task does not stop.
    bytes: Option<u64>,
}

const MEBIBYTE: usize = 1 << 20;

/// Allocate memory, and abort if an allocation fails, like most programs.
pub fn alloc(_: &Run, context: Bytes) -> Result<Value> {
    let mut kept = Vec::new();
    while context.bytes.is_none_or(|bytes| allocated(&kept) < bytes) {
        kept.push(black_box(vec![1_u8; MEBIBYTE]));
    }
    Ok(json!({"bytes": allocated(&kept)}))
}

/// Allocate memory, and return the allocated size if an allocation fails.
pub fn alloc_politely(_: &Run, context: Bytes) -> Result<Value> {
    let mut kept = Vec::new();
    while context.bytes.is_none_or(|bytes| allocated(&kept) < bytes) {
        let mut next: Vec<u8> = Vec::new();
        if next.try_reserve_exact(MEBIBYTE).is_err() {
            return Ok(json!({"refused_after_bytes": allocated(&kept)}));
        }
        next.resize(MEBIBYTE, 1);
        kept.push(black_box(next));
    }
    Ok(json!({"bytes": allocated(&kept)}))
}

fn allocated(kept: &[Vec<u8>]) -> u64 {
    kept.iter().map(|part| part.len() as u64).sum()
}

#[derive(Deserialize)]
pub struct Pause {
    ms: u64,
}

/// Sleep in a call to the host, where the guest executes no instructions.
pub fn sleep(_: &Run, pause: Pause) -> Result<Value> {
    thread::sleep(Duration::from_millis(pause.ms));
    Ok(json!({"slept_ms": pause.ms}))
}

/// Sleep in steps of 10 ms, and return early if the run is cancelled.
pub fn sleep_until_cancelled(run: &Run, pause: Pause) -> Result<Value> {
    let mut slept = 0;
    while slept < pause.ms {
        if run.cancel_requested() {
            return Ok(json!({"cancelled_after_ms": slept}));
        }
        thread::sleep(Duration::from_millis(10));
        slept += 10;
    }
    Ok(json!({"slept_ms": slept}))
}
