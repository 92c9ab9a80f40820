//! Logs a greeting every ten seconds: a minimal package to copy.

use campanile_sdk::{Package, Result, Run, Schedule, Task, serde_json::json};
use serde::{Deserialize, Serialize};

/// The context.
#[derive(Deserialize)]
struct Greeting {
    #[serde(default = "world")]
    name: String,
}

fn world() -> String {
    "world".to_owned()
}

/// The output.
#[derive(Serialize)]
struct Greeted {
    message: String,
}

fn hello(run: &Run, greeting: Greeting) -> Result<Greeted> {
    let message = format!("Hello, {}!", greeting.name);
    run.info(&message);
    Ok(Greeted { message })
}

fn package() -> Package {
    Package::new("hello", env!("CARGO_PKG_VERSION"))
        .summary("Logs a greeting every ten seconds")
        .task(Task::new("hello", hello).summary("Logs a greeting to `name`"))
        .schedule(Schedule::every("10s"))
        .context_schema(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "world", "description": "The person to greet"}
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn call(run: &Run) -> Value {
        package().call("hello", run).unwrap()
    }

    #[test]
    fn greets_the_world_by_default() {
        let run = Run::fake().build();
        assert_eq!(call(&run), json!({"message": "Hello, world!"}));
    }

    #[test]
    fn greets_the_name_in_the_context_and_logs_one_line() {
        let run = Run::fake().context(json!({"name": "Ada"})).build();
        assert_eq!(call(&run), json!({"message": "Hello, Ada!"}));
        let logged: Vec<String> = run.logs().into_iter().map(|line| line.message).collect();
        assert_eq!(logged, ["Hello, Ada!"]);
    }

    #[test]
    fn requests_nothing_and_proposes_a_schedule_of_ten_seconds() {
        let manifest = package().manifest();
        assert_eq!(manifest["schedules"], json!([{"every": "10s"}]));
        let requests = manifest["requests"].as_object().unwrap();
        assert!(requests.values().all(|kind| *kind == json!([])));
    }
}
