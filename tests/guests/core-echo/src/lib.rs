//! A core module with WIT metadata, built for wasm32-unknown-unknown. The host converts it to a component.

use campanile_sdk::serde_json::{Map, Value};
use campanile_sdk::{AnyContext, Package, Result, Run, Task};

/// Return the whole context, including the reserved keys.
fn echo(run: &Run, _: AnyContext) -> Result<Map<String, Value>> {
    run.info("echo from a core module");
    Ok(run.context().clone())
}

/// Panic. Without WASI, the SDK's log line is the only trace of it.
fn panic(_: &Run, _: AnyContext) -> Result<()> {
    panic!("the bell has cracked");
}

fn package() -> Package {
    Package::new("core-echo", env!("CARGO_PKG_VERSION"))
        .task(Task::new("echo", echo))
        .task(Task::new("panic", panic))
}

campanile_sdk::export!(package);
