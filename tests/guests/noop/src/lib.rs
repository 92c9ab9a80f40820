//! A minimal task for the benchmark: it reads its context, logs one line and returns JSON.

use campanile_sdk::{Package, Result, Run, Task};
use serde::{Deserialize, Serialize};

#[derive(Deserialize)]
struct Context {
    #[serde(default)]
    n: u64,
}

#[derive(Serialize)]
struct Output {
    n: u64,
}

fn noop(run: &Run, context: Context) -> Result<Output> {
    run.info("noop");
    Ok(Output { n: context.n })
}

fn package() -> Package {
    Package::new("noop", env!("CARGO_PKG_VERSION")).task(Task::new("noop", noop))
}

campanile_sdk::export!(package);
