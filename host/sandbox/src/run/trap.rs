//! Describing a trap in one sentence.

use wasmtime::{Trap, WasmBacktrace};
use wasmtime_wasi::I32Exit;

/// Return what went wrong in a guest, and in which functions.
pub(crate) fn trap_message(error: &wasmtime::Error, stderr: &str) -> String {
    let cause = if let Some(exit) = error.downcast_ref::<I32Exit>() {
        format!("the task called exit({}) instead of returning", exit.0)
    } else if let Some(panic) = panic_message(stderr) {
        format!("the task panicked: {panic}")
    } else if let Some(trap) = error.downcast_ref::<Trap>() {
        format!(
            "the task's code trapped: {}",
            trap.to_string().trim_start_matches("wasm trap: ")
        )
    } else {
        format!("the task's code was stopped: {}", error.root_cause())
    };
    let place = error.downcast_ref::<WasmBacktrace>().map(function_names);
    match place.filter(|names| !names.is_empty()) {
        Some(names) => format!("{cause} (in {})", names.join(", called by ")),
        None => cause,
    }
}

/// Return the message and place of the last panic that a Rust guest printed.
fn panic_message(stderr: &str) -> Option<String> {
    let mut after = None;
    for line in stderr.lines().rev() {
        if let Some((_, place)) = line.split_once(" panicked at ") {
            let place = place.trim_end_matches(':');
            return Some(match after {
                Some(message) => format!("{message}, at {place}"),
                None => format!("at {place}"),
            });
        }
        after = Some(line);
    }
    None
}

/// Return the innermost named functions of the guest, without those that only handle a panic.
fn function_names(backtrace: &WasmBacktrace) -> Vec<String> {
    const SHOWN: usize = 5;
    const SHOWN_BYTES: usize = 80;
    const HANDLERS: [&str; 6] = [
        "<wasm function",
        "std::",
        "core::",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rust_panic_is_told_in_one_line() {
        let stderr = "hello\n\nthread 'main' (1) panicked at src/lib.rs:10:5:\nno such key: a\nnote: run with `RUST_BACKTRACE=1`\n";
        assert_eq!(
            panic_message(stderr).unwrap(),
            "no such key: a, at src/lib.rs:10:5"
        );
        assert_eq!(panic_message("all is well\n"), None);
    }
}
