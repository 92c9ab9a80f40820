//! Built for wasm32-unknown-unknown: a core module with WIT metadata, which the host makes a component.

use campanile_sdk::serde_json::{Map, Value};
use campanile_sdk::{AnyContext, Package, Result, Run, Task};

/// Returns its whole context, reserved keys included.
fn echo(run: &Run, _: AnyContext) -> Result<Map<String, Value>> {
    run.info("echo from a core module");
    Ok(run.context().clone())
}

/// Without WASI the only trace of a panic is what the SDK logs.
fn panic(_: &Run, _: AnyContext) -> Result<()> {
    panic!("the bell has cracked");
}

fn package() -> Package {
    Package::new("core-echo", env!("CARGO_PKG_VERSION"))
        .task(Task::new("echo", echo))
        .task(Task::new("panic", panic))
}

campanile_sdk::export!(package);
