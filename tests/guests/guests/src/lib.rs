//! One task for each behaviour that the sandbox and the scheduler must handle.
//!
//! The tests call one task at a time. Do not launch the whole package.

mod effects;
mod failures;
mod floods;
mod plain;
mod reach;

use campanile_sdk::{Package, Task};

fn package() -> Package {
    let package = Package::new("guests", env!("CARGO_PKG_VERSION"))
        .summary("One task for each behaviour; for tests")
        .task(Task::new("ok", plain::ok))
        .task(Task::new("echo", plain::echo))
        .task(Task::new("facts", plain::facts))
        .task(Task::new("progress", plain::progress))
        .task(Task::new("log_levels", plain::log_levels))
        .task(Task::new("log_escapes", plain::log_escapes))
        .task(Task::new("print", plain::print))
        .task(Task::new("pass", plain::pass))
        .task(Task::new("context_conflict_a", plain::context_conflict_a))
        .task(Task::new("context_conflict_b", plain::context_conflict_b))
        .task(Task::new("strict", plain::strict))
        .task(Task::new("fail_retryable", failures::fail_retryable))
        .task(Task::new("fail_permanent", failures::fail_permanent))
        .task(Task::new("fail_denied", failures::fail_denied))
        .task(Task::new(
            "fail_until_attempt",
            failures::fail_until_attempt,
        ))
        .task(Task::new("panic", failures::panic))
        .task(Task::new("exit", failures::exit))
        .task(Task::new("spin", failures::spin))
        .task(Task::new("recurse", failures::recurse))
        .task(Task::new("alloc", failures::alloc))
        .task(Task::new("alloc_politely", failures::alloc_politely))
        .task(Task::new("sleep", failures::sleep))
        .task(Task::new(
            "sleep_until_cancelled",
            failures::sleep_until_cancelled,
        ));
    package
        .task(Task::new("stdout_flood", floods::stdout_flood))
        .task(Task::new("stderr_flood", floods::stderr_flood))
        .task(Task::new("log_flood", floods::log_flood))
        .task(Task::new("big_output", floods::big_output))
        .task(Task::new("big_pass", floods::big_pass))
        .task(Task::new("keep_by_chance", effects::keep_by_chance))
        .task(Task::new("open_files", floods::open_files))
        .task(Task::new("open_streams", floods::open_streams))
        .task(Task::new("read_file", reach::read_file))
        .task(Task::new("write_file", reach::write_file))
        .task(Task::new("list_directory", reach::list_directory))
        .task(Task::new("read_env", reach::read_env))
        .task(Task::new("list_env", reach::list_env))
        .task(Task::new("read_config", reach::read_config))
        .task(Task::new("tcp_echo", reach::tcp_echo))
        .task(Task::new("udp_echo", reach::udp_echo))
        .task(Task::new("tcp_listen", reach::tcp_listen))
        .task(Task::new("http_get", reach::http_get))
        .task(Task::new("now", reach::now))
        .task(Task::new("random", reach::random))
        .task(Task::new("append_line", effects::append_line))
        .task(Task::new("use_bucket", effects::use_bucket))
        .task(Task::new("fill_bucket", effects::fill_bucket))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_sdk::Run;
    use serde_json::{Value, json};

    #[test]
    fn task_ids_are_unique() {
        let manifest = package().manifest();
        let tasks = manifest["tasks"].as_array().unwrap();
        let mut names: Vec<&str> = tasks
            .iter()
            .map(|task| task["id"].as_str().unwrap())
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn a_task_that_fails_until_an_attempt_succeeds_on_it() {
        let context = json!({"succeed_on": 3});
        for (attempt, succeeds) in [(1, false), (2, false), (3, true), (4, true)] {
            let run = Run::fake()
                .context(context.clone())
                .attempt(attempt)
                .build();
            let result = package().call::<Value>("fail_until_attempt", &run);
            assert_eq!(result.is_ok(), succeeds, "{attempt}");
        }
    }

    #[test]
    fn use_bucket_calls_every_operation_and_counts_its_calls() {
        let run = Run::fake().bucket("default", [("calls", "41")]).build();
        assert_eq!(
            package().call::<Value>("use_bucket", &run).unwrap(),
            json!({
                "calls": 42,
                "text": b"one",
                "list": [1, 2],
                "exists": [false, true],
                "keys": [2003, "calls", "key-2000"],
                "some": [b"2000", null, b"7"],
                "left": ["calls"],
            })
        );
    }
}
