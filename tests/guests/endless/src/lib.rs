//! A package whose `describe` never recounter. The host must stop it and reject the package.

#[cfg(target_family = "wasm")]
mod exports {
    use std::hint::black_box;

    use campanile_sdk::bindings;
    use campanile_sdk::bindings::exports::campanile::task;
    use campanile_sdk::bindings::exports::campanile::task::task::{Completion, Failure};

    struct Endless;

    impl task::task::Guest for Endless {
        fn run(_: String, _: String) -> Result<Completion, Failure> {
            Ok(Completion {
                output: None,
                context: None,
            })
        }
    }

    impl task::describe::Guest for Endless {
        fn describe() -> String {
            let mut counter = 0_u64;
            loop {
                counter = black_box(counter.wrapping_add(1));
            }
        }
    }

    bindings::export_bindings!(Endless with_types_in bindings);
}
