#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod bucket;
mod error;
mod manifest;
mod outbox;
mod package;
mod request;
mod run;
mod schedule;
mod time;

#[cfg(not(target_family = "wasm"))]
#[path = "fake/mod.rs"]
mod host;
#[cfg(target_family = "wasm")]
mod host;
#[cfg(not(feature = "schema"))]
#[path = "no_schema.rs"]
mod schema;
#[cfg(feature = "schema")]
mod schema;

pub use bucket::Bucket;
pub use error::{Error, Explain, Result};
#[cfg(not(target_family = "wasm"))]
pub use host::{FakeRun, LogLine, Progress};
pub use outbox::Message;
pub use package::{Package, Task};
pub use request::Request;
pub use run::{Level, RESERVED_KEYS, Run};
pub use schedule::Schedule;
pub use time::Timestamp;

/// The context type of a task that ignores its context: it accepts and discards every value.
///
/// ```
/// use campanile_sdk::{AnyContext, Result, Run};
///
/// fn tick(run: &Run, _: AnyContext) -> Result<()> {
///     run.info("tick");
///     Ok(())
/// }
/// ```
pub use serde::de::IgnoredAny as AnyContext;

/// The crate of the derive macro that [`Task::with_schema`] needs.
///
/// Import it as `schemars` to use the derive macro without a dependency of your own.
///
/// ```
/// use campanile_sdk::schemars::{self, JsonSchema};
///
/// #[derive(JsonSchema)]
/// struct Feed {
///     /// The feed to read.
///     url: String,
/// }
/// # assert_eq!(Feed::schema_name(), "Feed");
/// ```
#[cfg(feature = "schema")]
pub use schemars;

/// The crate of the types `Value` and `Map` in this crate's signatures.
///
/// ```
/// use campanile_sdk::serde_json::json;
///
/// let run = campanile_sdk::Run::fake().context(json!({"name": "Ada"})).build();
/// assert_eq!(run.context()["name"], "Ada");
/// ```
pub use serde_json;

// Used by `export!`, which expands in the author's crate.
#[cfg(target_family = "wasm")]
#[doc(hidden)]
pub use host::{bindings, describe as __describe, run as __run};

/// Export a function that returns a [`Package`] as the package of this `.wasm`.
///
/// Call it once in a crate of type `cdylib`. On targets other than WebAssembly it only checks the function's type, so
/// that native tests compile.
///
/// ```
/// use campanile_sdk::Package;
///
/// fn package() -> Package {
///     Package::new("empty", "0.1.0")
/// }
///
/// campanile_sdk::export!(package);
/// ```
#[macro_export]
macro_rules! export {
    ($package:path) => {
        $crate::__export!($package);
    };
}

#[cfg(not(target_family = "wasm"))]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($package:path) => {
        const _: fn() -> $crate::Package = $package;
    };
}

#[cfg(target_family = "wasm")]
#[doc(hidden)]
#[macro_export]
macro_rules! __export {
    ($package:path) => {
        const _: () = {
            use $crate::bindings::exports::campanile::task;

            struct Exported;

            impl task::task::Guest for Exported {
                fn run(
                    task: ::std::string::String,
                    context: ::std::string::String,
                ) -> ::std::result::Result<task::task::Completion, task::task::Failure> {
                    $crate::__run($package(), &task, &context)
                }
            }

            impl task::describe::Guest for Exported {
                fn describe() -> ::std::string::String {
                    $crate::__describe($package())
                }
            }

    $crate::bindings::export_bindings!(Exported with_types_in $crate::bindings);
        };
    };
}
