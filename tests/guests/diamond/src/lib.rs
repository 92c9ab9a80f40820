//! Four tasks: `a`, then `b` and `c` at the same time, then `d`. The context sets the behaviour of `c`.

use std::fs::OpenOptions;
use std::io::Write;
use std::thread;
use std::time::Duration;

use campanile_sdk::{Error, Explain, Package, Result, Run, Task};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Context {
    /// The behaviour of `c`.
    #[serde(default)]
    c: Behaviour,
    /// The first attempt that succeeds, for `fail_until_attempt`.
    #[serde(default)]
    succeed_on: u32,
    /// The sleep at the beginning of `b` and `c`, in milliseconds.
    #[serde(default)]
    ms: u64,
    /// Whether `b` and `c` pass the key `same` with different values.
    #[serde(default)]
    conflict: bool,
    /// The file to which every task appends `<task> <execution id> <attempt>`.
    effects: Option<String>,
    /// The values that earlier tasks have passed.
    a: Option<u32>,
    b: Option<u32>,
    #[serde(rename = "from_c")]
    passed_by_c: Option<u32>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Behaviour {
    #[default]
    Succeed,
    FailRetryable,
    FailPermanent,
    FailUntilAttempt,
    Panic,
    Spin,
}

#[derive(Serialize)]
struct Output {
    task: &'static str,
    /// The keys in the context that earlier tasks have passed.
    saw: Vec<&'static str>,
    attempt: u32,
}

/// Append the task's line to the file of effects, and return its output.
fn begin(run: &Run, context: &Context, task: &'static str) -> Result<Output> {
    if let Some(path) = &context.effects {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(path)
            .explain(|| format!("opening {path}"))?;
        let line = format!("{task} {} {}\n", run.execution_id(), run.attempt());
        file.write_all(line.as_bytes())
            .explain(|| format!("appending to {path}"))?;
    }
    let keys = [
        ("a", context.a),
        ("b", context.b),
        ("from_c", context.passed_by_c),
    ];
    Ok(Output {
        task,
        saw: keys
            .iter()
            .filter(|(_, value)| value.is_some())
            .map(|(key, _)| *key)
            .collect(),
        attempt: run.attempt(),
    })
}

fn a(run: &Run, context: Context) -> Result<Output> {
    let output = begin(run, &context, "a")?;
    run.pass("a", 1)?;
    Ok(output)
}

fn b(run: &Run, context: Context) -> Result<Output> {
    let output = begin(run, &context, "b")?;
    thread::sleep(Duration::from_millis(context.ms));
    run.pass("b", 2)?;
    if context.conflict {
        run.pass("same", "from b")?;
    }
    Ok(output)
}

fn c(run: &Run, context: Context) -> Result<Output> {
    let output = begin(run, &context, "c")?;
    thread::sleep(Duration::from_millis(context.ms));
    match context.c {
        Behaviour::Succeed => {}
        Behaviour::FailRetryable => return Err(Error::retryable("c was told to fail")),
        Behaviour::FailPermanent => return Err(Error::permanent("c was told to fail for good")),
        Behaviour::FailUntilAttempt if run.attempt() >= context.succeed_on => {}
        Behaviour::FailUntilAttempt => {
            return Err(Error::retryable(format!(
                "c fails on attempt {}",
                run.attempt()
            )));
        }
        Behaviour::Panic => panic!("c was told to panic"),
        Behaviour::Spin => loop {
            std::hint::black_box(());
        },
    }
    run.pass("from_c", 3)?;
    if context.conflict {
        run.pass("same", "from c")?;
    }
    Ok(output)
}

fn d(run: &Run, context: Context) -> Result<Value> {
    let output = begin(run, &context, "d")?;
    let same = run.context().get("same");
    Ok(json!({"task": output.task, "saw": output.saw, "attempt": output.attempt, "same": same}))
}

fn package() -> Package {
    Package::new("diamond", env!("CARGO_PKG_VERSION"))
        .task(Task::new("a", a))
        .task(Task::new("b", b).depends_on(["a"]))
        .task(Task::new("c", c).depends_on(["a"]))
        .task(Task::new("d", d).depends_on(["b", "c"]))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_task_sees_the_values_of_all_other_tasks() {
        let run = Run::fake().build();
        package().call::<Value>("a", &run).unwrap();
        let after_a = Run::fake().context(run.passed().into()).build();
        package().call::<Value>("b", &after_a).unwrap();
        package().call::<Value>("c", &after_a).unwrap();
        let after_all = Run::fake()
            .context(run.passed().into())
            .context(after_a.passed().into())
            .build();
        let did: Value = package().call("d", &after_all).unwrap();
        assert_eq!(did["saw"], json!(["a", "b", "from_c"]));
    }
}
