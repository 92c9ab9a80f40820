//! Everything that a guest may import: all of WASI 0.2 with wasi:http, and the host's own interfaces.
//!
//! Every function is always defined, and refuses inside: the runtimes of many languages import sockets or HTTP without
//! using them.

use std::sync::Arc;

use wasmtime::component::{HasSelf, Linker};
use wasmtime::{Engine, StoreContextMut};
use wasmtime_wasi::I32Exit;

use crate::bindings::campanile::task::{outbox, run_info, session, types};
use crate::bindings::wasi::config::store as config;
use crate::bindings::wasi::keyvalue::{atomics, batch, store as keyvalue};
use crate::bindings::wasi::logging::logging;
use crate::capability::files::host::guard_files;
use crate::capability::http::request_texts::limit_request_texts;
use crate::capability::keyvalue::host::KeyValueView;
use crate::capability::logs::Logs;
use crate::capability::outbox::host::OutboxView;
use crate::capability::program_input::{PROGRAM_INPUT, add_program_input};
use crate::capability::random::limit_random;
use crate::capability::run_info::RunInfo;
use crate::capability::shared::Shared;
use crate::capability::sockets::guard_sockets;
use crate::state::HostState;

/// Lets preview 1 programs exit with all 32 bits of their code.
pub(crate) const EXIT_INTERFACE: &str = "campanile:exit/process@0.1.0";
pub(crate) const EXIT_FUNCTION: &str = "exit-with-code";

/// Define everything that a guest may import on `engine`.
pub(crate) fn linker(engine: &Engine) -> wasmtime::Result<Linker<HostState>> {
    let mut linker: Linker<HostState> = Linker::new(engine);
    wasmtime_wasi::p2::add_to_linker_async(&mut linker)?;
    wasmtime_wasi_http::p2::add_only_http_to_linker_async(&mut linker)?;
    types::add_to_linker::<_, HasSelf<RunInfo>>(&mut linker, |state| &mut state.run_info)?;
    run_info::add_to_linker::<_, HasSelf<RunInfo>>(&mut linker, |state| &mut state.run_info)?;
    logging::add_to_linker::<_, HasSelf<Logs>>(&mut linker, |state| &mut state.run_info.logs)?;
    config::add_to_linker::<_, HasSelf<Arc<Shared>>>(&mut linker, |state| &mut state.shared)?;
    keyvalue::add_to_linker::<_, KeyValueView<'static>>(&mut linker, HostState::keyvalue)?;
    atomics::add_to_linker::<_, KeyValueView<'static>>(&mut linker, HostState::keyvalue)?;
    batch::add_to_linker::<_, KeyValueView<'static>>(&mut linker, HostState::keyvalue)?;
    session::add_to_linker::<_, KeyValueView<'static>>(&mut linker, HostState::keyvalue)?;
    outbox::add_to_linker::<_, OutboxView<'static>>(&mut linker, HostState::outbox)?;
    add_program_input(&mut linker)?;
    let exit = |_: StoreContextMut<'_, HostState>, (code,): (u32,)| -> wasmtime::Result<()> {
        Err(I32Exit(code.cast_signed()).into())
    };
    linker
        .instance(EXIT_INTERFACE)?
        .func_wrap(EXIT_FUNCTION, exit)?;
    // These replace functions of WASI by stricter ones.
    linker.allow_shadowing(true);
    guard_files(&mut linker)?;
    limit_random(&mut linker, |state| &state.shared)?;
    limit_request_texts(&mut linker)?;
    guard_sockets(&mut linker, |state| &mut state.sockets)?;
    Ok(linker)
}

/// Whether [`linker`] defines an interface of this name, by its package and version.
pub(crate) fn is_provided(interface: &str) -> bool {
    if interface == PROGRAM_INPUT {
        return true;
    }
    let (package, name) = interface.split_once('/').unwrap_or_default();
    match package {
        "wasi:cli" | "wasi:clocks" | "wasi:filesystem" | "wasi:io" | "wasi:random"
        | "wasi:sockets" => name.contains("@0.2."),
        "wasi:http" => name.contains("@0.2.") && !name.starts_with("incoming-handler"),
        "wasi:config" => name == "store@0.2.0-rc.1",
        "wasi:keyvalue" => matches!(
            name,
            "store@0.2.0-draft" | "atomics@0.2.0-draft" | "batch@0.2.0-draft"
        ),
        "wasi:logging" => name == "logging@0.1.0-draft",
        "campanile:exit" => interface == EXIT_INTERFACE,
        "campanile:task" => ["run-info@0.1.", "session@0.1.", "outbox@0.1."]
            .iter()
            .any(|known| name.starts_with(known)),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_provided_goes_by_package_and_version() {
        for provided in [
            "wasi:http/outgoing-handler@0.2.3",
            "wasi:cli/stdout@0.2.0",
            "campanile:task/run-info@0.1.7",
            "campanile:task/session@0.1.0",
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
