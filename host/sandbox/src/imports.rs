//! What a guest may import: the host's facts, logging, configuration, buckets, and all of WASI 0.2 with wasi:http.
//!
//! Everything is always defined and refused inside: the runtimes of many languages import sockets or HTTP
//! that they never use.

use wasmtime::component::{HasSelf, Linker, Resource};
use wasmtime::{Engine, StoreContextMut};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi_http::WasiHttpView as _;
use wasmtime_wasi_http::p2::bindings::http::types::{HostOutgoingRequest as _, Method};

use super::directories::hold_files;
use super::random::hold_random;
use super::sockets::hold_sockets;
use super::store::HostState;
use bindings::campanile::task::{run_info, types};
use bindings::wasi::config::store as config;
use bindings::wasi::keyvalue::{atomics, batch, store as keyvalue};
use bindings::wasi::logging::logging;
use campanile_model::clock::Timestamp;

/// The contract of `wit/` in Rust.
pub(super) mod bindings {
    wasmtime::component::bindgen!({
        path: "wit",
        world: "campanile:task/described-package",
        imports: {
            "wasi:keyvalue/store": async | trappable,
            "wasi:keyvalue/atomics": async | trappable,
            "wasi:keyvalue/batch": async | trappable,
        },
        exports: { default: async },
        with: { "wasi:keyvalue/store.bucket": crate::keyvalue::Bucket },
    });
}

/// Of the path of a request with its query.
const PATH_BYTES_MAX: usize = 8 << 10;

/// Of the method and of the authority of a request; a name of a host has at most 253. A scheme has 64 by itself.
const WORD_BYTES_MAX: usize = 512;

/// As wasmtime-wasi-http names it; a test notices when that changes.
const HTTP_TYPES: &str = "wasi:http/types@0.2.12";

/// Everything that a guest may import, defined on `engine`.
pub(super) fn linker(engine: &Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    types::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    run_info::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    logging::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    config::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    keyvalue::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    atomics::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    batch::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    // What of WASI is held tighter than wasmtime holds it.
    linker.allow_shadowing(true);
    preopens::add_to_linker::<_, HasSelf<HostState>>(&mut linker, |state| state)?;
    hold_files(&mut linker)?;
    hold_random(&mut linker)?;
    hold_addresses(&mut linker)?;
    hold_sockets(&mut linker)?;
    Ok(linker)
}

/// Put a check before what sets the texts of a request, which the host keeps: a guest may have many requests, and
/// needs no grant to begin one.
fn hold_addresses(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    let mut types = linker.instance(HTTP_TYPES)?;
    types.func_wrap(
        "[method]outgoing-request.set-method",
        |mut store: StoreContextMut<'_, HostState>, (request, method): (Resource<_>, Method)| {
            let fits = !matches!(&method, Method::Other(name) if name.len() > WORD_BYTES_MAX);
            set(fits, || store.data_mut().http().set_method(request, method))
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-authority",
        |mut store: StoreContextMut<'_, HostState>,
         (request, authority): (Resource<_>, Option<String>)| {
            let fits = authority
                .as_ref()
                .is_none_or(|text| text.len() <= WORD_BYTES_MAX);
            set(fits, || {
                store.data_mut().http().set_authority(request, authority)
            })
        },
    )?;
    types.func_wrap(
        "[method]outgoing-request.set-path-with-query",
        |mut store: StoreContextMut<'_, HostState>,
         (request, path): (Resource<_>, Option<String>)| {
            let fits = path
                .as_ref()
                .is_none_or(|text| text.len() <= PATH_BYTES_MAX);
            set(fits, || {
                store.data_mut().http().set_path_with_query(request, path)
            })
        },
    )
}

/// The answer of wasi:http to a text that does not fit is the one to a text that is wrong.
fn set(
    fits: bool,
    set: impl FnOnce() -> wasmtime::Result<Result<(), ()>>,
) -> wasmtime::Result<(Result<(), ()>,)> {
    match fits {
        true => Ok((set()?,)),
        false => Ok((Err(()),)),
    }
}

/// Whether an interface of this name is among those of [`linker`], going by its package and version.
pub(super) fn is_provided(interface: &str) -> bool {
    const WASI_0_2: [&str; 7] = [
        "wasi:cli/",
        "wasi:clocks/",
        "wasi:filesystem/",
        "wasi:http/",
        "wasi:io/",
        "wasi:random/",
        "wasi:sockets/",
    ];
    let wasi = WASI_0_2
        .iter()
        .any(|package| interface.starts_with(package));
    let http_server = interface.starts_with("wasi:http/incoming-handler");
    (wasi && interface.contains("@0.2.") && !http_server)
        || interface.starts_with("campanile:task/run-info@0.1.")
        || interface == "wasi:logging/logging@0.1.0-draft"
        || interface == "wasi:config/store@0.2.0-rc.1"
        || matches!(
            interface,
            "wasi:keyvalue/store@0.2.0-draft"
                | "wasi:keyvalue/atomics@0.2.0-draft"
                | "wasi:keyvalue/batch@0.2.0-draft"
        )
}

impl types::Host for HostState {}

impl run_info::Host for HostState {
    fn execution_id(&mut self) -> String {
        self.facts.execution_id.to_string()
    }

    fn run_id(&mut self) -> String {
        self.facts.run_id.to_string()
    }

    fn task_name(&mut self) -> String {
        self.task.clone()
    }

    fn attempt(&mut self) -> u32 {
        self.facts.attempt
    }

    fn is_recovery(&mut self) -> bool {
        self.facts.is_recovery
    }

    fn scheduled_for(&mut self) -> types::Instant {
        instant(self.facts.scheduled_for)
    }

    fn original_scheduled_time(&mut self) -> types::Instant {
        instant(self.facts.original_scheduled_time)
    }

    fn deadline(&mut self) -> Option<types::Instant> {
        Some(instant(self.deadline))
    }

    fn cancel_requested(&mut self) -> bool {
        self.stop.is_requested()
    }

    fn report_progress(&mut self, percent: Option<u8>, message: String) {
        let message = match percent {
            Some(percent) => format!("{} % {message}", percent.min(100)),
            None => message,
        };
        let now = self.clock.now();
        self.logs.add(now, "info", "progress".to_owned(), message);
    }
}

impl logging::Host for HostState {
    fn log(&mut self, level: logging::Level, context: String, message: String) {
        let level = match level {
            logging::Level::Trace => "trace",
            logging::Level::Debug => "debug",
            logging::Level::Info => "info",
            logging::Level::Warn => "warn",
            logging::Level::Error => "error",
            logging::Level::Critical => "critical",
        };
        let now = self.clock.now();
        self.logs.add(now, level, context, message);
    }
}

impl config::Host for HostState {
    fn get(&mut self, key: String) -> Result<Option<String>, config::Error> {
        if self.grants.secrets.contains(&key)
            && let Some(secret) = self.secrets.get(&key)
        {
            return Ok(Some(secret.reveal().to_owned()));
        }
        Ok(self.grants.config.get(&key).cloned())
    }

    /// Without the secrets: they are for those who ask for them by name.
    fn get_all(&mut self) -> Result<Vec<(String, String)>, config::Error> {
        let pairs = self.grants.config.iter();
        Ok(pairs.map(|(k, v)| (k.clone(), v.clone())).collect())
    }
}

fn instant(time: Timestamp) -> types::Instant {
    let micros = time.micros();
    types::Instant {
        seconds: micros.div_euclid(1_000_000),
        // Below 1 000 000, so below 10⁹ when in nanoseconds.
        nanoseconds: micros.rem_euclid(1_000_000) as u32 * 1_000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_before_the_epoch_count_their_fraction_upwards() {
        let time = instant(Timestamp::from_micros(-1));
        assert_eq!((time.seconds, time.nanoseconds), (-1, 999_999_000));
        let time = instant(Timestamp::from_micros(1_500_000));
        assert_eq!((time.seconds, time.nanoseconds), (1, 500_000_000));
    }

    #[test]
    fn what_is_provided_goes_by_package_and_version() {
        for provided in [
            "wasi:http/outgoing-handler@0.2.3",
            "wasi:cli/stdout@0.2.0",
            "campanile:task/run-info@0.1.7",
            "wasi:logging/logging@0.1.0-draft",
            "wasi:keyvalue/batch@0.2.0-draft",
        ] {
            assert!(is_provided(provided), "{provided}");
        }
        for foreign in [
            "wasi:http/types@0.3.0",
            "wasi:http/incoming-handler@0.2.3",
            "wasi:keyvalue/watcher@0.2.0-draft",
            "wasi:keyvalue/store@0.2.0-draft2",
            "wasi:logging/logging@0.2.0",
            "campanile:task/run-info@0.2.0",
            "env",
        ] {
            assert!(!is_provided(foreign), "{foreign}");
        }
    }
}
