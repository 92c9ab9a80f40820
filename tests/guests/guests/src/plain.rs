//! Tasks that succeed.

use std::collections::BTreeMap;

use campanile_sdk::{AnyContext, Result, Run};
use serde::Deserialize;
use serde_json::{Map, Value, json};

pub fn ok(_: &Run, _: AnyContext) -> Result<Value> {
    Ok(json!({"ok": true}))
}

/// Return the whole context, including the reserved keys.
pub fn echo(run: &Run, _: AnyContext) -> Result<Map<String, Value>> {
    Ok(run.context().clone())
}

/// Return the values of `run-info`, for a comparison with the context.
pub fn facts(run: &Run, _: AnyContext) -> Result<Value> {
    Ok(json!({
        "execution_id": run.execution_id(),
        "run_id": run.run_id(),
        "attempt": run.attempt(),
        "is_recovery": run.is_recovery(),
        "scheduled_for": run.scheduled_for(),
        "original_scheduled_time": run.original_scheduled_time(),
        "deadline": run.deadline(),
        "cancel_requested": run.cancel_requested(),
    }))
}

pub fn progress(run: &Run, _: AnyContext) -> Result<()> {
    run.progress(0, "begun");
    run.progress(None, "somewhere");
    run.progress(100, "done");
    Ok(())
}

pub fn log_levels(run: &Run, _: AnyContext) -> Result<()> {
    run.trace("a trace line");
    run.debug("a debug line");
    run.info("an info line");
    run.warn("a warn line");
    run.error("an error line");
    Ok(())
}

/// Log and print text that must be escaped for a terminal or a page.
pub fn log_escapes(run: &Run, _: AnyContext) -> Result<Value> {
    let text = "\u{1b}[31mred\u{1b}[0m\r\nforged line\u{7}\u{202e}<script>alert(1)</script>";
    run.info(text);
    println!("{text}");
    eprintln!("{text}");
    Ok(json!({"text": text}))
}

pub fn print(_: &Run, _: AnyContext) -> Result<()> {
    println!("to stdout");
    eprintln!("to stderr");
    Ok(())
}

/// Pass every key of the context on.
pub fn pass(run: &Run, context: BTreeMap<String, Value>) -> Result<()> {
    for (key, value) in context {
        run.pass(key, value)?;
    }
    Ok(())
}

pub fn context_conflict_a(run: &Run, _: AnyContext) -> Result<()> {
    run.pass("same", "a")
}

pub fn context_conflict_b(run: &Run, _: AnyContext) -> Result<()> {
    run.pass("same", "b")
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Strict {
    name: String,
    #[serde(default)]
    ports: Vec<u16>,
}

/// Reject unknown keys.
pub fn strict(_: &Run, context: Strict) -> Result<Value> {
    Ok(json!({"name": context.name, "ports": context.ports}))
}
