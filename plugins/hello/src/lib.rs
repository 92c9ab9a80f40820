//! Greets somebody every ten seconds: the smallest package worth copying.

use campanile_sdk::{Package, Result, Run, Schedule, Task, serde_json::json};
use serde::{Deserialize, Serialize};

/// What the schedule's context may say.
#[derive(Deserialize)]
struct Greeting {
    #[serde(default = "world")]
    name: String,
}

fn world() -> String {
    "world".to_owned()
}

/// What goes on the record.
#[derive(Serialize)]
struct Rung {
    message: String,
}

fn hello(run: &Run, greeting: Greeting) -> Result<Rung> {
    let message = format!("Hello, {}!", greeting.name);
    run.info(&message);
    Ok(Rung { message })
}

fn package() -> Package {
    Package::new("hello", env!("CARGO_PKG_VERSION"))
        .summary("Greets somebody every ten seconds")
        .task(Task::new("hello", hello).summary("Greets `name`"))
        .schedule(Schedule::every("10s"))
        .context_schema(json!({
            "type": "object",
            "properties": {
                "name": {"type": "string", "default": "world", "description": "Whom to greet"}
            }
        }))
}

campanile_sdk::export!(package);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn ring(run: &Run) -> Value {
        package().call("hello", run).unwrap()
    }

    #[test]
    fn greets_the_world_unless_told_otherwise() {
        let run = Run::fake().build();
        assert_eq!(ring(&run), json!({"message": "Hello, world!"}));
    }

    #[test]
    fn greets_whom_the_context_names_and_logs_one_line() {
        let run = Run::fake().context(json!({"name": "Ada"})).build();
        assert_eq!(ring(&run), json!({"message": "Hello, Ada!"}));
        let said: Vec<String> = run.logs().into_iter().map(|line| line.message).collect();
        assert_eq!(said, ["Hello, Ada!"]);
    }

    #[test]
    fn wants_nothing_and_proposes_to_ring_every_ten_seconds() {
        let manifest = package().manifest();
        assert_eq!(manifest["schedules"], json!([{"every": "10s"}]));
        assert_eq!(
            manifest["requests"],
            json!({
                "directories": [], "env": [], "http": [], "config": [], "keyvalue": [], "sockets": [],
            })
        );
    }
}
