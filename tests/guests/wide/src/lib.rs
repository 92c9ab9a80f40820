//! 254 tasks that each pass on almost 1 MiB. `few` depends on the first 60 of them, and `all` on every one.

use campanile_sdk::{AnyContext, Package, Run, Task};

const GIVERS: usize = 254;
const FEW: usize = 60;

/// With its key, the context of a task stays within 1 MiB.
const BYTES: usize = 1_048_000;

/// Return the id of a task, and the key that it sets.
fn id(number: usize) -> String {
    format!("t{number}")
}

fn giver(number: usize) -> Task {
    Task::new(id(number), move |run: &Run, _: AnyContext| {
        run.pass(id(number), "x".repeat(BYTES))
    })
}

/// Return a task that depends on the first `givers` tasks, and returns how many values it got.
fn reader(name: &str, givers: usize) -> Task {
    let task = Task::new(name, |run: &Run, _: AnyContext| {
        let values = run.context().values();
        Ok(values
            .filter(|value| value.as_str().is_some_and(|text| text.len() == BYTES))
            .count())
    });
    task.depends_on((0..givers).map(id))
}

fn package() -> Package {
    let package = Package::new("wide", env!("CARGO_PKG_VERSION"));
    let package = (0..GIVERS).map(giver).fold(package, Package::task);
    package.task(reader("few", FEW)).task(reader("all", GIVERS))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_counts_the_large_values() {
        let giver = Run::fake().build();
        package().call::<()>("t0", &giver).unwrap();
        let reader = Run::fake().context(giver.passed().into()).build();
        assert_eq!(package().call::<usize>("all", &reader).unwrap(), 1);
    }
}
