//! Recognising the form of a file, or refusing it with one sentence: what the file is and what to do.
//!
//! Only names and sections are read; nothing is compiled.

use std::borrow::Cow;
use std::collections::BTreeSet;

use campanile_model::words;
use wasmtime::Engine;

use crate::load::outline::{Labels, Outline};
use crate::load::refusal::{Refusal, cut_short, refuse};
use crate::load::{adapt, foreign};

/// The largest package. The largest Python packages have some 40 MiB.
pub(crate) const ARTIFACT_BYTES_MAX: usize = 128 << 20;

const MAGIC: &[u8] = b"\0asm";

words! {
    /// How an artifact communicates with the host.
    Form {
        /// A component that exports `campanile:task/task`.
        TypedComponent => "typed_component",
        /// A component that exports `wasi:cli/run`: a program, with its context on stdin and its output on stdout.
        CommandComponent => "command_component",
        /// A program that is a core module for WASI preview 1, turned into a component on load.
        Preview1Command => "preview1_command",
        /// A core module that carries WIT metadata, turned into a component on load.
        CoreModuleWithWit => "core_module_with_wit",
    }
}

impl Form {
    /// Whether the artifact is a program.
    pub fn is_command(self) -> bool {
        matches!(self, Form::CommandComponent | Form::Preview1Command)
    }
}

/// A file that can be a package, as the component that is compiled for it.
pub(crate) struct Recognised<'f> {
    pub(crate) form: Form,
    pub(crate) component: Cow<'f, [u8]>,
    pub(crate) labels: Labels,
    /// Whether it may open files by their paths.
    pub(crate) opens_paths: bool,
}

/// Recognises `bytes`, turning core modules into components where possible. `check_code` checks the original code first.
///
/// Names in the file come even before that, since refusing those takes no time or memory.
pub(crate) fn recognise(
    bytes: &[u8],
    check_code: impl FnOnce(&[u8]) -> Result<(), Refusal>,
) -> Result<Recognised<'_>, Refusal> {
    check_file(bytes)?;
    let outline = Outline::of(bytes)?;
    foreign::check_memories(&outline)?;
    let (form, component) = if outline.is_component {
        let form = if foreign::exports_task(&outline)? {
            Form::TypedComponent
        } else {
            Form::CommandComponent
        };
        foreign::check_component_imports(&outline)?;
        check_code(bytes)?;
        (form, Cow::Borrowed(bytes))
    } else {
        foreign::check_core_module(&outline)?;
        adapt::check_imports(&outline)?;
        check_code(bytes)?;
        let component = adapt::component_of(bytes, &outline)?;
        let form = if foreign::exports_task(&Outline::of(&component)?)? {
            Form::CoreModuleWithWit
        } else {
            Form::Preview1Command
        };
        (form, Cow::Owned(component))
    };
    Ok(Recognised {
        opens_paths: form != Form::Preview1Command || adapt::opens_paths(&outline),
        form,
        component,
        labels: outline.labels,
    })
}

/// Returns the interfaces that `bytes`, a package that could run once, import; of a core module, `module name` each.
///
/// # Errors
///
/// One sentence, when they are not WebAssembly.
pub fn imports_of(bytes: &[u8]) -> Result<BTreeSet<String>, Refusal> {
    Outline::of(bytes).map(|outline| BTreeSet::from_iter(outline.imports))
}

/// Refuse a file that is not a WebAssembly binary.
fn check_file(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes.is_empty() {
        return refuse(
            "the file is empty: its build failed or its copy has not finished; copy the compiled .wasm again",
        );
    }
    if bytes.len() > ARTIFACT_BYTES_MAX {
        return refuse(format!(
            "the file has {} MiB and a package may have {} MiB; build in release mode and strip it, for example with `wasm-tools strip`",
            bytes.len().div_ceil(1 << 20),
            ARTIFACT_BYTES_MAX >> 20
        ));
    }
    if Engine::detect_precompiled(bytes).is_some() {
        return refuse(
            "this is native code that wasmtime compiled before (.cwasm), and native code cannot be checked; \
             give the .wasm it was made from: Campanile compiles it and caches the result",
        );
    }
    if bytes.len() < 8 && (bytes.starts_with(MAGIC) || MAGIC.starts_with(bytes)) {
        return refuse(cut_short(bytes.len()));
    }
    if bytes.starts_with(MAGIC) {
        return Ok(());
    }
    if is_text_format(bytes) {
        return refuse(
            "this is WebAssembly text, and a package is the binary form; convert it with `wasm-tools parse task.wat -o task.wasm`",
        );
    }
    refuse(format!(
        "this is not WebAssembly: {}; copy the .wasm that your build made, such as target/wasm32-wasip2/release/task.wasm",
        looks_like(bytes)
    ))
}

fn is_text_format(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    let mut text = head.trim_start_matches('\u{feff}').trim_start();
    // Comments before the first form: `;; to the end of the line`, `(; block ;)`.
    while let Some(rest) = after_comment(text) {
        text = rest;
    }
    text.strip_prefix('(')
        .map(str::trim_start)
        .is_some_and(|form| form.starts_with("module") || form.starts_with("component"))
}

/// Returns what follows the comment with which `text` begins, if it begins with one.
fn after_comment(text: &str) -> Option<&str> {
    let (comment, end) = match text.strip_prefix(";;") {
        Some(comment) => (comment, "\n"),
        None => (text.strip_prefix("(;")?, ";)"),
    };
    let rest = comment.split_once(end).map_or("", |(_, rest)| rest);
    Some(rest.trim_start())
}

fn looks_like(bytes: &[u8]) -> String {
    const KNOWN: [(&[u8], &str); 8] = [
        (b"\x7fELF", "a native Linux program (ELF)"),
        (b"MZ", "a native Windows program"),
        (b"\xcf\xfa\xed\xfe", "a native macOS program"),
        (b"\x1f\x8b", "a gzip archive"),
        (b"\x28\xb5\x2f\xfd", "a zstd archive"),
        (b"PK\x03\x04", "a zip archive"),
        (b"#!", "a script"),
        (
            b"<",
            "a page of HTML or XML, perhaps a download that failed",
        ),
    ];
    match KNOWN.iter().find(|(magic, _)| bytes.starts_with(magic)) {
        Some((_, name)) => format!("it looks like {name}"),
        None => format!(
            "its first bytes are {}, and those of WebAssembly are 0061736d",
            hex::encode(&bytes[..bytes.len().min(4)])
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        recognise(bytes, |_| Ok(())).err().unwrap().message
    }

    fn wat(text: &str) -> Vec<u8> {
        wat::parse_str(text).unwrap()
    }

    #[track_caller]
    fn assert_teaches(bytes: &[u8], what: &str, remedy: &str) {
        let message = refusal(bytes);
        assert!(message.contains(what), "{message}");
        assert!(message.contains(remedy), "{message}");
        assert!(!message.contains('\n'), "{message}");
    }

    #[test]
    fn an_empty_file() {
        assert_teaches(b"", "empty", "copy the compiled .wasm again");
    }

    #[test]
    fn a_file_that_is_too_large() {
        let mut bytes = wat("(module)");
        bytes.resize(ARTIFACT_BYTES_MAX + 1, 0);
        assert_teaches(&bytes, "129 MiB", "strip");
    }

    #[test]
    fn text_format() {
        for text in [
            "(module)",
            "\u{feff}\n ;; a comment\n(; another\n;) ( component)",
        ] {
            assert_teaches(text.as_bytes(), "WebAssembly text", "wasm-tools parse");
        }
    }

    #[test]
    fn files_of_other_kinds() {
        assert_teaches(b"\x7fELF\x02\x01\x01", "native Linux program", ".wasm");
        assert_teaches(b"<!DOCTYPE html>", "HTML", ".wasm");
        assert_teaches(b"PK\x03\x04", "zip", ".wasm");
        assert_teaches(b"\xde\xad\xbe\xef", "deadbeef", ".wasm");
        assert_teaches(b"(", "are 28,", ".wasm");
    }

    #[test]
    fn code_that_was_compiled_before() {
        let engine = Engine::default();
        let compiled = engine.precompile_component(&wat("(component)")).unwrap();
        assert_teaches(&compiled, ".cwasm", "give the .wasm");
    }

    #[test]
    fn files_that_are_cut_short() {
        let whole = wat("(module (func (export \"f\") (result i32) i32.const 7))");
        for length in [1, 4, 7, whole.len() - 1, whole.len() - 3] {
            let message = refusal(&whole[..length]);
            assert!(message.contains("cut short"), "{length}: {message}");
        }
    }

    #[test]
    fn files_that_are_damaged() {
        assert_teaches(b"\0asm\x63\0\0\0", "damaged near byte", "again");
    }

    #[test]
    fn a_library_for_wasi_preview_1() {
        let library =
            wat("(module (import \"wasi_snapshot_preview1\" \"sched_yield\" (func (result i32))))");
        assert_teaches(&library, "library for WASI preview 1", "main function");
    }

    #[test]
    fn modules_for_other_hosts() {
        for (module, name, what, remedy) in [
            (
                "wbg",
                "__wbindgen_throw",
                "JavaScript",
                "without wasm-bindgen",
            ),
            (
                "__wbindgen_placeholder__",
                "__wbg_log",
                "wasm-bindgen",
                "wasm32-wasip2",
            ),
            ("env", "emscripten_resize_heap", "Emscripten", "wasi-sdk"),
            ("gojs", "runtime.wasmExit", "Go's JavaScript", "GOOS=wasip1"),
            (
                "wasi_unstable",
                "fd_write",
                "came before WASI preview 1",
                "wasm32-wasip2",
            ),
            ("wasi", "thread-spawn", "threads", "without them"),
            ("bells", "ring", "does not provide", "campanile-sdk"),
            (
                "wasi_snapshot_preview1",
                "sock_open",
                "another runtime",
                "plain wasm32-wasip1",
            ),
        ] {
            let text = format!(
                "(module (import \"{module}\" \"{name}\" (func)) (memory (export \"memory\") 1) (func (export \"_start\")))"
            );
            assert_teaches(&wat(&text), &format!("`{module}.{name}`, which "), remedy);
            assert_teaches(&wat(&text), what, remedy);
        }
    }

    #[test]
    fn memories_that_no_task_can_have() {
        for (memory, what) in [
            ("1 1 shared", "built for threads"),
            ("i64 1", "built for 64 bits"),
        ] {
            for text in [
                format!("(module (memory {memory}))"),
                format!("(module (import \"env\" \"memory\" (memory {memory})))"),
                format!("(component (core module (memory {memory})))"),
            ] {
                assert_teaches(&wat(&text), what, "for wasm32-wasip2");
            }
        }
    }

    #[test]
    fn a_module_that_says_nothing_of_itself() {
        assert_teaches(
            &wat("(module (func (export \"run\")))"),
            "this core module carries no WIT metadata and exports no `_start`",
            "campanile-sdk",
        );
    }

    #[test]
    fn a_program_that_does_not_fit_the_adapter() {
        let text = "(module (import \"wasi_snapshot_preview1\" \"proc_exit\" (func)) (func (export \"_start\")))";
        assert_teaches(&wat(text), "cannot be run as a component", "again");
    }

    #[test]
    fn components_that_export_something_else() {
        assert_teaches(
            &wat("(component)"),
            "exports nothing",
            "campanile:task/task@0.1",
        );
        let many: String = (0..6)
            .map(|n| format!("(instance $i{n}) (export \"a:b/c{n}\" (instance $i{n}))"))
            .collect();
        assert_teaches(
            &wat(&format!("(component {many})")),
            "exports `a:b/c0`, `a:b/c1`, `a:b/c2`, `a:b/c3` and 2 more",
            "campanile-sdk",
        );
        for (export, what, remedy) in [
            (
                "wasi:cli/run@0.3.0",
                "built for WASI 0.3 (it exports `wasi:cli/run@0.3.0`), which is newer than",
                "wasm32-wasip2",
            ),
            (
                "wasi:cli/run@0.2.0-rc-2023-12-05",
                "a command for another WASI",
                "wasm32-wasip2",
            ),
            (
                "wasi:http/incoming-handler@0.2.3",
                "an HTTP server (it exports wasi:http/incoming-handler)",
                "main function",
            ),
            ("wasi:http/handler@0.3.0", "an HTTP server", "main function"),
            (
                "campanile:task/task@0.2.0",
                "built for campanile:task@0.2.0",
                "speaks 0.1",
            ),
        ] {
            let text = format!("(component (instance $i) (export \"{export}\" (instance $i)))");
            assert_teaches(&wat(&text), what, remedy);
        }
    }

    #[test]
    fn a_component_that_imports_what_is_to_come() {
        let text = "(component (import \"wasi:http/types@0.3.0\" (instance)))";
        let what = "built for WASI 0.3 (it imports `wasi:http/types@0.3.0`), which is newer than";
        assert_teaches(&wat(text), what, "wasm32-wasip2");
    }

    #[test]
    fn exports_of_nested_components_are_not_mistaken_for_the_package_s_own() {
        let nested = wat(
            "(component (component (instance $i) (export \"campanile:task/task@0.1.0\" (instance $i))))",
        );
        assert_teaches(&nested, "exports nothing", "campanile-sdk");
    }
}
