//! Refusing files that were built for another host, by their imports and exports.

use crate::linker::is_provided;
use crate::load::outline::Outline;
use crate::load::refusal::{Refusal, listed, newer, refuse};

const TASK_INTERFACE: &str = "campanile:task/task@";
const COMMAND_INTERFACE: &str = "wasi:cli/run@";

/// What to do instead, in either of two ways.
const BUILD: &str =
    "build a program with a main function, or a task with campanile-sdk, for wasm32-wasip2";

/// Returns the version in which an interface is exported, if it is.
fn exported<'o>(outline: &'o Outline, prefix: &str) -> Option<&'o str> {
    let mut names = outline.exports.iter();
    names.find_map(|name| name.strip_prefix(prefix))
}

/// Refuse memories that the engine does not support.
pub(crate) fn check_memories(outline: &Outline) -> Result<(), Refusal> {
    if outline.shares_memory {
        return refuse(
            "this file was built for threads (it has a shared memory), and a task has one thread; \
             build it without them, for wasm32-wasip2 or wasm32-wasip1",
        );
    }
    if outline.is_64_bit {
        return refuse(
            "this file was built for 64 bits (memory64), and Campanile runs 32 bits; build it for wasm32-wasip2",
        );
    }
    Ok(())
}

/// Refuses a component importing functions the host doesn't provide.
pub(crate) fn check_component_imports(outline: &Outline) -> Result<(), Refusal> {
    let called = outline.called_imports.iter();
    let missing: Vec<String> = called.filter(|name| !is_provided(name)).cloned().collect();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(not_provided(&missing))
    }
}

pub(crate) fn not_provided(missing: &[String]) -> Refusal {
    Refusal::new(format!(
        "this component imports {}, which Campanile does not provide; it provides WASI 0.2, wasi:http/outgoing-handler, \
         wasi:logging, wasi:config/store, wasi:keyvalue, and run-info, session and outbox of campanile:task",
        listed(missing)
    ))
}

/// Refuse a core module that says nothing about how to call it.
pub(crate) fn check_core_module(outline: &Outline) -> Result<(), Refusal> {
    check_imports(outline)?;
    if outline.carries_wit || outline.exports.iter().any(|name| name == "_start") {
        return Ok(());
    }
    let what = if outline.imports.is_empty() {
        "this core module"
    } else {
        "this library for WASI preview 1"
    };
    refuse(format!(
        "{what} carries no WIT metadata and exports no `_start`, so nothing says how to call it; {BUILD}"
    ))
}

/// Refuse the imports of a core module that neither WASI preview 1 nor its WIT metadata define.
fn check_imports(outline: &Outline) -> Result<(), Refusal> {
    for import in &outline.imports {
        let module = import.split_once(' ').map_or("", |(module, _)| module);
        let (supplier, remedy) = match module {
            "wasi_snapshot_preview1" => continue,
            "wasi_unstable" => (
                "belongs to the draft that came before WASI preview 1, which is not supported any more",
                "build it with a current toolchain, for wasm32-wasip2 or wasm32-wasip1",
            ),
            "wasi" => (
                "is for threads, and a task has one thread",
                "build it without them, for wasm32-wasip2 or wasm32-wasip1",
            ),
            module if module == "wbg" || module.contains("wbindgen") => (
                "wasm-bindgen supplies from JavaScript and Campanile does not",
                "build it without wasm-bindgen, as a program or with campanile-sdk, for wasm32-wasip2",
            ),
            "go" | "gojs" => (
                "Go's JavaScript support supplies and Campanile does not",
                "build it with GOOS=wasip1 GOARCH=wasm, or as a component with componentize-go",
            ),
            "env" | "a" | "GOT.mem" | "GOT.func" => (
                "the JavaScript of Emscripten, another host or a library that was not linked would supply and Campanile does not",
                "link what is missing, or build it for WASI, for example with wasi-sdk for wasm32-wasip2",
            ),
            _ if outline.carries_wit => continue,
            _ => ("Campanile does not provide", BUILD),
        };
        return refuse(format!(
            "this module imports `{}`, which {supplier}; {remedy}",
            import.replacen(' ', ".", 1)
        ));
    }
    Ok(())
}

/// Whether a component exports Campanile's task interface, rather than that of a command. Refuse one that does neither.
pub(crate) fn exports_task(outline: &Outline) -> Result<bool, Refusal> {
    let of_wasi_0_3 = |name: &&String| name.starts_with("wasi:") && name.contains("@0.3");
    if let Some(name) = outline.imports.iter().find(of_wasi_0_3) {
        return refuse(newer(&format!("imports `{name}`")));
    }
    if let Some(version) = exported(outline, TASK_INTERFACE) {
        return if version.starts_with("0.1.") {
            Ok(true)
        } else {
            refuse(format!(
                "this component was built for campanile:task@{version} and this version of Campanile speaks 0.1; \
                 build it with the campanile-sdk of this version"
            ))
        };
    }
    if let Some(version) = exported(outline, COMMAND_INTERFACE) {
        // A draft of 0.2 is a version of its own, which only that draft matches.
        let is_newer = version.starts_with("0.3.");
        return match version.starts_with("0.2.") && !version.contains('-') {
            true => Ok(false),
            false if is_newer => refuse(newer(&format!("exports `{COMMAND_INTERFACE}{version}`"))),
            false => refuse(format!(
                "this is a command for another WASI (it exports {COMMAND_INTERFACE}{version}), and this version of Campanile runs those of 0.2; \
                 build it for wasm32-wasip2"
            )),
        };
    }
    for server in ["wasi:http/incoming-handler@", "wasi:http/handler@"] {
        if exported(outline, server).is_some() {
            return refuse(format!(
                "this is an HTTP server (it exports {}), and Campanile calls tasks and serves no requests; {BUILD}",
                server.trim_end_matches('@')
            ));
        }
    }
    refuse(format!(
        "this component exports {}, and a package exports campanile:task/task@0.1 or wasi:cli/run@0.2; {BUILD}, \
         or build against the world `described-package` of campanile:task with another language's bindings",
        listed(&outline.exports)
    ))
}
