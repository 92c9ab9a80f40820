//! Two tasks that depend on each other. The host must reject the manifest.

use campanile_sdk::{AnyContext, Package, Result, Run, Task};

fn nothing(_: &Run, _: AnyContext) -> Result<()> {
    Ok(())
}

fn package() -> Package {
    Package::new("cycle", env!("CARGO_PKG_VERSION"))
        .task(Task::new("chicken", nothing).depends_on(["egg"]))
        .task(Task::new("egg", nothing).depends_on(["chicken"]))
}

campanile_sdk::export!(package);
