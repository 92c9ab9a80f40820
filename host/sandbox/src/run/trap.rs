//! Describing a trap in one sentence.

use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

use crate::capability::stdio::Capture;
use crate::run::cause::Cause;

/// Returns what went wrong in a guest, and in which functions unless the guest itself says where.
pub(crate) fn trap_message(error: &wasmtime::Error, stderr: &Capture) -> String {
    let trap = error.downcast_ref::<Trap>();
    let cause = if let Some(exit) = error.downcast_ref::<I32Exit>() {
        let exit = format!("the task called exit({}) instead of returning", exit.0);
        match stderr.last_cause() {
            Some(cause) => return format!("{exit}: {}", cause.text()),
            None => exit,
        }
    } else if let Some(trap) = trap.filter(|trap| **trap != Trap::UnreachableCodeReached) {
        trapped(trap)
    } else if let Some(trap) = trap {
        match stderr.last_cause() {
            Some(Cause::Panic(panic)) => format!("the task panicked: {panic}"),
            Some(Cause::Exception(reason)) => return reason,
            Some(Cause::Reason(reason)) if reason.contains(", at ") => return reason,
            Some(Cause::Reason(reason)) => reason,
            Some(Cause::LastLine(line)) => format!("{}, after it wrote: {line}", trapped(trap)),
            None => trapped(trap),
        }
    } else {
        format!("the task's code was stopped: {}", error.root_cause())
    };
    let place = error.downcast_ref::<WasmBacktrace>().map(function_names);
    match place.filter(|names| !names.is_empty()) {
        Some(names) => format!("{cause} (in {})", names.join(", called by ")),
        None => cause,
    }
}

/// The preview 1 adapter other tools build into components.
const FOREIGN_ADAPTER: &str = "wasi_snapshot_preview1";

/// Whether an adapter for WASI preview 1 trapped in its own code.
pub(crate) fn is_of_adapter(error: &wasmtime::Error) -> bool {
    let backtrace = error.downcast_ref::<WasmBacktrace>();
    let innermost = backtrace.and_then(|backtrace| backtrace.frames().first());
    innermost.is_some_and(|frame| {
        let names = [frame.module().name(), frame.func_name()];
        let mut names = names.into_iter().flatten();
        names.any(|name| name.contains(FOREIGN_ADAPTER))
    })
}

fn trapped(trap: &Trap) -> String {
    let trap = trap.to_string();
    let trap = trap.trim_start_matches("wasm trap: ");
    format!("the task's code trapped: {trap}")
}

/// Returns the innermost named functions of the guest, without those that only handle a panic.
fn function_names(backtrace: &WasmBacktrace) -> Vec<String> {
    const SHOWN: usize = 5;
    const SHOWN_BYTES: usize = 80;
    const HANDLERS: [&str; 8] = [
        "<wasm function",
        "std::",
        "std[",
        "core::",
        "core[",
        "__rust",
        "rust_",
        "abort",
    ];
    // Only the engine's text has demangled names: `  0: 0x1f - module!function`.
    let text = backtrace.to_string();
    let mut names: Vec<String> = text
        .lines()
        .filter_map(|line| line.split_once(" - "))
        .map(|(_, name)| name.split_once('!').map_or(name, |(_, function)| function))
        .filter(|name| !HANDLERS.iter().any(|prefix| name.starts_with(prefix)))
        .map(|name| name[..name.floor_char_boundary(SHOWN_BYTES)].to_owned())
        .collect();
    // A recursion is one name, however deep.
    names.dedup();
    names.truncate(SHOWN);
    names
}
