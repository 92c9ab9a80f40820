//! The host of a task in the sandbox: the bindings of `wit/` and the exported functions.
//!
//! Each method of [`Host`] uses one import. A component has no imports for the methods that its tasks never call.

use serde_json::Map;

use crate::bucket::Fault;
use crate::error::Error;
use crate::outbox::{Message, Refused};
use crate::package::Package;
use crate::run::{Level, Run};
use crate::time::Timestamp;

use bindings::campanile::task::types::Instant;
use bindings::campanile::task::{outbox, run_info, session};
use bindings::exports::campanile::task::task::{Completion, Failure};
use bindings::wasi::config::store as config;
use bindings::wasi::keyvalue::{atomics, batch, store};
use bindings::wasi::logging::logging;

/// The bindings that `wit-bindgen` generates for the world `described-package`.
#[expect(missing_docs, reason = "generated; wit/ is the documentation")]
pub mod bindings {
    wit_bindgen::generate!({
        path: "wit",
        world: "described-package",
        pub_export_macro: true,
        export_macro_name: "export_bindings",
        default_bindings_module: "campanile_sdk::bindings",
        generate_all,
    });
}

/// The host of this instance.
pub(crate) struct Host;

impl Host {
    pub fn execution_id(&self) -> String {
        run_info::execution_id()
    }

    pub fn run_id(&self) -> String {
        run_info::run_id()
    }

    pub fn attempt(&self) -> u32 {
        run_info::attempt()
    }

    pub fn is_recovery(&self) -> bool {
        run_info::is_recovery()
    }

    pub fn scheduled_for(&self) -> Timestamp {
        run_info::scheduled_for().into()
    }

    pub fn original_scheduled_time(&self) -> Timestamp {
        run_info::original_scheduled_time().into()
    }

    pub fn deadline(&self) -> Option<Timestamp> {
        run_info::deadline().map(Timestamp::from)
    }

    pub fn cancel_requested(&self) -> bool {
        run_info::cancel_requested()
    }

    pub fn report_progress(&self, percent: Option<u8>, message: &str) {
        run_info::report_progress(percent, message);
    }

    pub fn log(&self, level: Level, message: &str) {
        let level = match level {
            Level::Trace => logging::Level::Trace,
            Level::Debug => logging::Level::Debug,
            Level::Info => logging::Level::Info,
            Level::Warn => logging::Level::Warn,
            Level::Error => logging::Level::Error,
        };
        logging::log(level, "", message);
    }

    pub fn config(&self, key: &str) -> Result<Option<String>, String> {
        config::get(key).map_err(|error| match error {
            config::Error::Upstream(message) | config::Error::Io(message) => message,
        })
    }

    pub fn open_bucket(&self, name: &str) -> Result<OpenBucket, Fault> {
        Ok(OpenBucket(store::open(name)?))
    }

    pub fn send(&self, message: &Message) -> Result<String, Refused> {
        let sent = outbox::send(&outbox::Message {
            method: message.method().to_owned(),
            url: message.url().to_owned(),
            headers: message.headers().to_vec(),
            body: message.body().to_vec(),
        });
        sent.map_err(|error| match error {
            outbox::Error::AccessDenied => Refused::AccessDenied,
            outbox::Error::Refused(why) => Refused::Other(why),
        })
    }

    pub fn open_session_bucket(&self, name: &str) -> Result<OpenBucket, Fault> {
        Ok(OpenBucket(session::open(name)?))
    }
}

/// A bucket that this instance has opened.
pub(crate) struct OpenBucket(store::Bucket);

impl OpenBucket {
    pub fn get(&self, key: &str) -> Result<Option<Vec<u8>>, Fault> {
        Ok(self.0.get(key)?)
    }

    pub fn set(&self, key: &str, value: &[u8]) -> Result<(), Fault> {
        Ok(self.0.set(key, value)?)
    }

    pub fn delete(&self, key: &str) -> Result<(), Fault> {
        Ok(self.0.delete(key)?)
    }

    pub fn exists(&self, key: &str) -> Result<bool, Fault> {
        Ok(self.0.exists(key)?)
    }

    pub fn keys(&self) -> Result<Vec<String>, Fault> {
        let mut page = self.0.list_keys(None)?;
        let mut keys = page.keys;
        while page.cursor.is_some() {
            page = self.0.list_keys(page.cursor)?;
            keys.append(&mut page.keys);
        }
        Ok(keys)
    }

    pub fn increment(&self, key: &str, by: u64) -> Result<u64, Fault> {
        Ok(atomics::increment(&self.0, key, by)?)
    }

    pub fn get_many(&self, keys: &[String]) -> Result<Vec<Option<Vec<u8>>>, Fault> {
        let entries = batch::get_many(&self.0, keys)?.into_iter();
        Ok(entries.map(|entry| entry.map(|(_, value)| value)).collect())
    }

    pub fn set_many(&self, entries: &[(String, Vec<u8>)]) -> Result<(), Fault> {
        Ok(batch::set_many(&self.0, entries)?)
    }

    pub fn delete_many(&self, keys: &[String]) -> Result<(), Fault> {
        Ok(batch::delete_many(&self.0, keys)?)
    }
}

impl From<store::Error> for Fault {
    fn from(error: store::Error) -> Fault {
        match error {
            store::Error::NoSuchStore => Fault::NoSuchStore,
            store::Error::AccessDenied => Fault::AccessDenied,
            store::Error::Other(message) => Fault::Other(message),
        }
    }
}

impl From<Instant> for Timestamp {
    fn from(instant: Instant) -> Timestamp {
        Timestamp::new(instant.seconds, instant.nanoseconds)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure {
            message: error.message().to_owned(),
            retryable: error.is_retryable(),
            retry_after_ms: error
                .retry_after_wanted()
                .map(|wait| u64::try_from(wait.as_millis()).unwrap_or(u64::MAX)),
            details: error.full_details().map(|details| details.to_string()),
        }
    }
}

/// Run a task: the exported `task.run`, which [`export!`](crate::export) calls.
pub fn run(package: Package, task: &str, context: &str) -> Result<Completion, Failure> {
    // Without WASI there is no stderr: log the panic, which would otherwise leave only a trap.
    #[cfg(target_os = "unknown")]
    std::panic::set_hook(Box::new(|panic| {
        logging::log(logging::Level::Critical, "panic", &panic.to_string());
    }));
    let context: Map<_, _> = serde_json::from_str(context).map_err(|error| {
        Error::permanent(format!("the host's context is not a JSON object: {error}"))
    })?;
    let run = Run::new(context, Host);
    let output = package.call_to_text(task, &run)?;
    let passed = run.passed();
    Ok(Completion {
        output: (output != "null").then_some(output),
        context: (!passed.is_empty()).then(|| serde_json::Value::Object(passed).to_string()),
    })
}

/// Return the manifest as text: the exported `describe.describe`.
pub fn describe(package: Package) -> String {
    package.into_manifest_text()
}
