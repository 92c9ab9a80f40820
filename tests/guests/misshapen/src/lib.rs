//! Tasks that return invalid outputs and contexts, which the SDK prevents.

#[cfg(target_family = "wasm")]
mod exports {
    use campanile_sdk::bindings;
    use campanile_sdk::bindings::exports::campanile::task;
    use campanile_sdk::bindings::exports::campanile::task::task::{Completion, Failure};

    struct Misshapen;

    impl task::task::Guest for Misshapen {
        fn run(task: String, _: String) -> Result<Completion, Failure> {
            let completion = |output: Option<&str>, context: Option<&str>| {
                Ok(Completion {
                    output: output.map(str::to_owned),
                    context: context.map(str::to_owned),
                })
            };
            match task.as_str() {
                "output_not_json" => completion(Some("{"), None),
                "output_two_values" => completion(Some("1 2"), None),
                "output_empty" => completion(Some(""), None),
                "context_not_json" => completion(None, Some("nope")),
                "context_not_object" => completion(None, Some("[1]")),
                "context_reserved" => completion(None, Some(r#"{"attempt": 99, "fine": 1}"#)),
                "nothing" => completion(None, None),
                other => Err(Failure {
                    message: format!("{other}\u{1b}[31m in red\nand on two lines"),
                    retryable: false,
                    retry_after_ms: Some(u64::MAX),
                    details: Some("not json either".to_owned()),
                }),
            }
        }
    }

    impl task::describe::Guest for Misshapen {
        fn describe() -> String {
            // The tasks in the order of `run`, where "failure" is every other name.
            r#"{"name": "misshapen", "version": "0.1.0", "tasks": [
                {"id": "output_not_json"}, {"id": "output_two_values"}, {"id": "output_empty"},
                {"id": "context_not_json"}, {"id": "context_not_object"}, {"id": "context_reserved"},
                {"id": "nothing"}, {"id": "failure"}
            ], "colour": "a key that no host knows"}"#
                .to_owned()
        }
    }

    bindings::export_bindings!(Misshapen with_types_in bindings);
}
