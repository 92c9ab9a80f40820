//! What kind of file this is, and for those that cannot run: one sentence that says what it is and what to do.
//!
//! Looks at names and sections only; nothing is compiled here.

use std::borrow::Cow;
use std::collections::BTreeSet;

use wasmparser::{BinaryReaderError, Encoding, Parser, Payload};
use wasmtime::Engine;
use wit_component::ComponentEncoder;

use super::{Form, Refusal};

/// Of a package; the largest Python packages have some 40 MiB.
pub(super) const ARTIFACT_BYTES_MAX: usize = 128 << 20;

const MAGIC: &[u8] = b"\0asm";
const TASK_INTERFACE: &str = "campanile:task/task@";

/// The component in `bytes`, made first when they hold a core module that carries WIT metadata.
pub(super) fn component_of(bytes: &[u8]) -> Result<(Form, Cow<'_, [u8]>), Refusal> {
    check_file(bytes)?;
    let outline = Outline::of(bytes)?;
    match outline.encoding {
        Encoding::Component => {
            check_component(&outline)?;
            Ok((Form::TypedComponent, Cow::Borrowed(bytes)))
        }
        Encoding::Module => {
            check_core_module(&outline)?;
            let component = encode(bytes)?;
            check_component(&Outline::of(&component)?)?;
            Ok((Form::CoreModuleWithWit, Cow::Owned(component)))
        }
    }
}

/// The names of what `bytes` import.
pub(super) fn imports_of(bytes: &[u8]) -> Result<BTreeSet<String>, Refusal> {
    Outline::of(bytes).map(|outline| BTreeSet::from_iter(outline.imports))
}

fn refuse<T>(message: impl Into<String>) -> Result<T, Refusal> {
    Err(Refusal {
        message: message.into(),
    })
}

/// Refuse what is no WebAssembly binary.
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
            "this is native code that wasmtime compiled before (.cwasm), which nobody can check any more; \
             give the .wasm it was made from: Campanile compiles it and keeps the result itself",
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
        "this is not WebAssembly: it begins like {}; copy the .wasm that your build made, such as target/wasm32-wasip2/release/task.wasm",
        looks_like(bytes)
    ))
}

fn is_text_format(bytes: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&bytes[..bytes.len().min(64 << 10)]);
    let mut text = head.trim_start_matches('\u{feff}').trim_start();
    // Comments before the first form: `;; to the end of the line`, `(; block ;)`.
    loop {
        if let Some(rest) = text.strip_prefix(";;") {
            text = rest
                .split_once('\n')
                .map_or("", |(_, rest)| rest)
                .trim_start();
        } else if let Some(rest) = text.strip_prefix("(;") {
            text = rest
                .split_once(";)")
                .map_or("", |(_, rest)| rest)
                .trim_start();
        } else {
            break;
        }
    }
    text.strip_prefix('(')
        .map(str::trim_start)
        .is_some_and(|form| form.starts_with("module") || form.starts_with("component"))
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
        Some((_, name)) => (*name).to_owned(),
        None => format!(
            "nothing known ({})",
            hex::encode(&bytes[..bytes.len().min(4)])
        ),
    }
}

fn cut_short(bytes: usize) -> String {
    format!(
        "the file is cut short after {bytes} bytes: copy it again, best under another name that you change when it is complete"
    )
}

/// Refuse a core module that nobody here can call.
fn check_core_module(outline: &Outline) -> Result<(), Refusal> {
    let import = |wanted: fn(&str) -> bool| {
        outline.imports.iter().find(|name| {
            let module = name.split_once(' ').map_or("", |(module, _)| module);
            wanted(module)
        })
    };
    let dotted = |name: &String| name.replacen(' ', ".", 1);
    if import(|module| matches!(module, "wasi_snapshot_preview1" | "wasi_unstable")).is_some() {
        let what = if outline.exports.iter().any(|name| name == "_start") {
            "this is a WASI command (a core module for WASI preview 1)"
        } else {
            "this is a core module for WASI preview 1"
        };
        return refuse(format!("{what}, {RUNS_TYPED}"));
    }
    if let Some(name) = import(|module| module == "wbg" || module.contains("wbindgen")) {
        return refuse(format!(
            "this module imports `{}`, which wasm-bindgen supplies from JavaScript and Campanile has none of; \
             build it without wasm-bindgen, for wasm32-wasip2, with campanile-sdk",
            dotted(name)
        ));
    }
    if let Some(name) = import(|module| matches!(module, "env" | "a" | "GOT.mem" | "GOT.func")) {
        return refuse(format!(
            "this module imports `{}`, which the JavaScript of Emscripten or another host supplies and Campanile has none of; \
             build it for WASI instead, for example with wasi-sdk for wasm32-wasip2 and bindings of wit-bindgen",
            dotted(name)
        ));
    }
    if let Some(name) = import(|module| matches!(module, "go" | "gojs")) {
        return refuse(format!(
            "this module imports `{}`, which Go's JavaScript support supplies and Campanile has none of; \
             build it as a component with componentize-go",
            dotted(name)
        ));
    }
    if !outline.carries_wit {
        return refuse(format!(
            "this core module carries no WIT metadata, so nothing says how to call it, {RUNS_TYPED}"
        ));
    }
    Ok(())
}

const RUNS_TYPED: &str = "and this version of Campanile runs typed components; build it with campanile-sdk for wasm32-wasip2";

/// Refuse a component that does not export a task.
fn check_component(outline: &Outline) -> Result<(), Refusal> {
    let exported = |prefix: &str| {
        let mut names = outline.exports.iter();
        names.find_map(|name| name.strip_prefix(prefix))
    };
    match exported(TASK_INTERFACE) {
        Some(version) if version.starts_with("0.1.") => return Ok(()),
        Some(version) => {
            return refuse(format!(
                "this component was built for campanile:task@{version} and this version of Campanile speaks 0.1; \
                 build it with the campanile-sdk of this version"
            ));
        }
        None => {}
    }
    if let Some(version) = exported("wasi:cli/run@") {
        return refuse(format!(
            "this is a WASI command (it exports wasi:cli/run@{version}), {RUNS_TYPED}"
        ));
    }
    if exported("wasi:http/incoming-handler@").is_some() {
        return refuse(format!(
            "this is an HTTP server (it exports wasi:http/incoming-handler), {RUNS_TYPED}"
        ));
    }
    refuse(format!(
        "this component exports {}, and a package exports campanile:task/task@0.1; build it with campanile-sdk, \
         or against the world `described-package` of campanile:task with another language's bindings",
        listed(&outline.exports)
    ))
}

/// Up to four names in a sentence.
pub(super) fn listed(names: &[String]) -> String {
    const SHOWN: usize = 4;
    let shown: Vec<String> = names
        .iter()
        .take(SHOWN)
        .map(|name| format!("`{name}`"))
        .collect();
    match names.len() {
        0 => "nothing".to_owned(),
        n if n > SHOWN => format!("{} and {} more", shown.join(", "), n - SHOWN),
        _ => shown.join(", "),
    }
}

fn encode(module: &[u8]) -> Result<Vec<u8>, Refusal> {
    let encoded = ComponentEncoder::default()
        .validate(true)
        .module(module)
        .and_then(|mut encoder| encoder.encode());
    encoded.map_err(|error| Refusal {
        message: format!(
            "this core module does not do what its WIT metadata says ({}); build it again with matching versions of wit-bindgen and campanile-sdk",
            one_line(&format!("{error:#}"))
        ),
    })
}

/// The first line of an error's text, of a length fit for a sentence.
pub(super) fn one_line(text: &str) -> &str {
    const SHOWN_BYTES: usize = 300;
    let line = text
        .lines()
        .next()
        .unwrap_or("")
        .trim_end_matches(['.', ':']);
    &line[..line.floor_char_boundary(SHOWN_BYTES)]
}

/// The names on the outside of a module or component.
struct Outline {
    encoding: Encoding,
    /// Of a core module, `module name`; of a component, the interface.
    imports: Vec<String>,
    exports: Vec<String>,
    carries_wit: bool,
}

impl Outline {
    fn of(bytes: &[u8]) -> Result<Outline, Refusal> {
        Outline::read(bytes).map_err(|error| Refusal {
            message: if error.message().starts_with("unexpected end") {
                cut_short(bytes.len())
            } else {
                format!(
                    "the file is damaged near byte {}: {}; build it or copy it again",
                    error.offset(),
                    one_line(error.message())
                )
            },
        })
    }

    fn read(bytes: &[u8]) -> Result<Outline, BinaryReaderError> {
        let mut outline = Outline {
            encoding: Encoding::Module,
            imports: Vec::new(),
            exports: Vec::new(),
            carries_wit: false,
        };
        let mut depth = 0u32;
        for payload in Parser::new(0).parse_all(bytes) {
            match payload? {
                Payload::Version { encoding, .. } if depth == 0 => outline.encoding = encoding,
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                _ if depth > 0 => {}
                Payload::ImportSection(section) => {
                    for import in section.into_imports() {
                        let import = import?;
                        outline
                            .imports
                            .push(format!("{} {}", import.module, import.name));
                    }
                }
                Payload::ExportSection(section) => {
                    for export in section {
                        outline.exports.push(export?.name.to_owned());
                    }
                }
                Payload::ComponentImportSection(section) => {
                    for import in section {
                        outline.imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(section) => {
                    for export in section {
                        outline.exports.push(export?.name.name.to_owned());
                    }
                }
                Payload::CustomSection(section) => {
                    outline.carries_wit |= section.name().starts_with("component-type");
                }
                _ => {}
            }
        }
        Ok(outline)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(bytes: &[u8]) -> String {
        component_of(bytes).unwrap_err().message
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
        assert_teaches(b"(", "(28)", ".wasm");
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
    fn modules_for_wasi_preview_1() {
        let import = "(import \"wasi_snapshot_preview1\" \"fd_write\" (func (param i32 i32 i32 i32) (result i32)))";
        let command = wat(&format!("(module {import} (func (export \"_start\")))"));
        assert_teaches(&command, "this is a WASI command", "campanile-sdk");
        let library = wat(&format!("(module {import})"));
        assert_teaches(&library, "WASI preview 1", "campanile-sdk");
    }

    #[test]
    fn modules_for_javascript() {
        let bindgen = wat("(module (import \"wbg\" \"__wbindgen_throw\" (func (param i32 i32))))");
        assert_teaches(&bindgen, "`wbg.__wbindgen_throw`", "without wasm-bindgen");
        let placeholder =
            wat("(module (import \"__wbindgen_placeholder__\" \"__wbg_log\" (func)))");
        assert_teaches(&placeholder, "wasm-bindgen", "wasm32-wasip2");
        let emscripten = wat("(module (import \"env\" \"emscripten_resize_heap\" (func)))");
        assert_teaches(&emscripten, "`env.emscripten_resize_heap`", "wasi-sdk");
        let go = wat("(module (import \"gojs\" \"runtime.wasmExit\" (func)))");
        assert_teaches(&go, "`gojs.runtime.wasmExit`", "componentize-go");
    }

    #[test]
    fn a_module_without_wit_metadata() {
        assert_teaches(
            &wat("(module (func (export \"run\")))"),
            "no WIT metadata",
            "campanile-sdk",
        );
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
        let command =
            wat("(component (instance $i) (export \"wasi:cli/run@0.2.3\" (instance $i)))");
        assert_teaches(
            &command,
            "this is a WASI command (it exports wasi:cli/run@0.2.3)",
            "campanile-sdk",
        );
        let server = wat(
            "(component (instance $i) (export \"wasi:http/incoming-handler@0.2.3\" (instance $i)))",
        );
        assert_teaches(&server, "HTTP server", "campanile-sdk");
    }

    #[test]
    fn a_component_for_another_version_of_the_contract() {
        let later =
            wat("(component (instance $i) (export \"campanile:task/task@0.2.0\" (instance $i)))");
        assert_teaches(&later, "campanile:task@0.2.0", "speaks 0.1");
    }

    #[test]
    fn exports_of_nested_components_are_not_mistaken_for_the_package_s_own() {
        let nested = wat(
            "(component (component (instance $i) (export \"campanile:task/task@0.1.0\" (instance $i))))",
        );
        assert_teaches(&nested, "exports nothing", "campanile-sdk");
    }
}
