//! A package whose `describe` returns text that is not JSON. The host must reject it with the reason.

#[cfg(target_family = "wasm")]
mod exports {
    use campanile_sdk::bindings;
    use campanile_sdk::bindings::exports::campanile::task;
    use campanile_sdk::bindings::exports::campanile::task::task::{Completion, Failure};

    struct Babble;

    impl task::task::Guest for Babble {
        fn run(_: String, _: String) -> Result<Completion, Failure> {
            Ok(Completion {
                output: None,
                context: None,
            })
        }
    }

    impl task::describe::Guest for Babble {
        fn describe() -> String {
            "this is no manifest".to_owned()
        }
    }

    bindings::export_bindings!(Babble with_types_in bindings);
}
