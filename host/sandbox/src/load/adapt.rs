//! Turning a core module into a component.
//!
//! Modules for WASI preview 1 are joined with wasmtime's adapter, implementing preview 1 on top of WASI 0.2, and with one of our own for
//! arguments and variables. That leaves a single kind of instance, under one set of limits. The result isn't kept: making it takes a
//! fiftieth of the compile time.

use std::borrow::Cow;

use wasi_preview1_component_adapter_provider::{
    WASI_SNAPSHOT_PREVIEW1_ADAPTER_NAME as PREVIEW_1,
    WASI_SNAPSHOT_PREVIEW1_COMMAND_ADAPTER as COMMAND_ADAPTER,
    WASI_SNAPSHOT_PREVIEW1_REACTOR_ADAPTER as REACTOR_ADAPTER,
};
use wasm_encoder::reencode::{Reencode as _, RoundtripReencoder};
use wasm_encoder::{ImportSection, Module, RawSection};
use wasmparser::{Parser, Payload};
use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::linker::{EXIT_FUNCTION, EXIT_INTERFACE};
use crate::load::input_adapter::{self, INPUT_ADAPTER, input_adapter};
use crate::load::outline::Outline;
use crate::load::refusal::{Refusal, one_line, refuse};
use crate::load::reserve::with_reserved_pages;

/// The language of a module of the standard toolchain of Go.
const GO: &str = "Go";

/// The last version of clang whose library for WASI may take all memory above its data, as Go does.
const CLANG_TAKES_ALL: u32 = 15;

/// The adapter's `proc_exit` reduces exit codes to success or failure, and `wasi:cli/exit` to eight bits, making 256 a success. The
/// module's import is redirected to a host function taking the whole code.
const PROC_EXIT: &str = "proc_exit";

/// The interface that the module imports instead.
const EXIT_WIT: &str = "package campanile:exit@0.1.0;
    interface process { exit-with-code: func(code: u32); }
    world leaves { import process; }";

/// Returns the component to run for `module`, which has the outline `outline`.
pub(crate) fn component_of(module: &[u8], outline: &Outline) -> Result<Vec<u8>, Refusal> {
    encode(module, outline, adapter_of(outline)).or_else(|error| {
        let reason = format!("{error:#}");
        let reason = one_line(&reason);
        refuse(if outline.carries_wit {
            format!(
                "this core module does not do what its WIT metadata says ({reason}); \
                 build it again with matching versions of wit-bindgen and campanile-sdk"
            )
        } else {
            format!(
                "this program for WASI preview 1 cannot be run as a component ({reason}); \
                 build it again with a current toolchain, preferably for wasm32-wasip2"
            )
        })
    })
}

/// Whether a program for preview 1 has a function that takes a path.
pub(crate) fn opens_paths(outline: &Outline) -> bool {
    let mut imports = outline.imports.iter();
    imports.any(|name| name.starts_with("wasi_snapshot_preview1 path_"))
}

fn imported_functions(outline: &Outline) -> impl Iterator<Item = &str> {
    let imports = outline.imports.iter();
    imports.filter_map(|name| name.strip_prefix(PREVIEW_1)?.strip_prefix(' '))
}

fn adapter_of(outline: &Outline) -> Option<&'static [u8]> {
    let is_command = outline.exports.iter().any(|name| name == "_start");
    match (is_command, imported_functions(outline).next()) {
        (true, _) => Some(COMMAND_ADAPTER),
        (false, Some(_)) => Some(REACTOR_ADAPTER),
        (false, None) => None,
    }
}

/// Refuse a module that imports additions of another runtime to preview 1.
pub(crate) fn check_imports(outline: &Outline) -> Result<(), Refusal> {
    let Some(adapter) = adapter_of(outline) else {
        return Ok(());
    };
    let known = Outline::of(adapter)?.exports;
    let is_unknown = |function: &&str| !known.iter().any(|known| known == function);
    match imported_functions(outline).find(is_unknown) {
        None => Ok(()),
        Some(function) => refuse(format!(
            "this module imports `{PREVIEW_1}.{function}`, which is not a function of WASI preview 1 but an addition of another runtime; \
             build it without that, for plain wasm32-wasip1 or wasm32-wasip2"
        )),
    }
}

fn encode(module: &[u8], outline: &Outline, adapter: Option<&[u8]>) -> anyhow::Result<Vec<u8>> {
    let mut module = Cow::Borrowed(module);
    if is_plain_program(outline) {
        let language = outline.labels.language.as_deref();
        if language == Some(GO) {
            module = Cow::Owned(with_reserved_pages(&module)?);
        } else if matches!(outline.clang, Some(..=CLANG_TAKES_ALL))
            || (outline.clang.is_none() && language.is_none())
        {
            // A program that does not name its toolchain may have any allocator: AssemblyScript's takes all memory too. One
            // that cannot be moved may still have an allocator that needs no move.
            let moved = with_reserved_pages(&module).ok();
            module = moved.map_or(module, Cow::Owned);
        }
    }
    let of_preview_1 = outline.imports.iter();
    let of_preview_1 =
        of_preview_1.filter_map(|name| name.strip_prefix(PREVIEW_1)?.strip_prefix(' '));
    let exits = of_preview_1.clone().any(|function| function == PROC_EXIT);
    let reads_input = of_preview_1.clone().any(input_adapter::provides);
    if exits || reads_input {
        module = Cow::Owned(redirected(&module, exits)?);
    }
    // `compile_cost::check` validates the result.
    let mut encoder = ComponentEncoder::default().module(&module)?;
    if reads_input {
        encoder = encoder.adapter(INPUT_ADAPTER, &input_adapter()?)?;
    }
    if let Some(adapter) = adapter {
        encoder = encoder.adapter(PREVIEW_1, adapter)?;
    }
    encoder.encode()
}

/// Whether the module is a program for preview 1 alone, whose allocator may overwrite the adapter's memory.
fn is_plain_program(outline: &Outline) -> bool {
    let has = |name: &str| outline.exports.iter().any(|export| export == name);
    let mut imports = outline.imports.iter();
    let is_of_preview_1 = imports.all(|name| {
        name.split_once(' ')
            .is_some_and(|(module, _)| module == PREVIEW_1)
    });
    !outline.carries_wit && has("_start") && !has("cabi_realloc") && is_of_preview_1
}

/// Returns the module with some preview 1 imports redirected: those provided by [`input_adapter`] and, if `exits` is set, `proc_exit`,
/// whose replacement takes the whole code.
fn redirected(module: &[u8], exits: bool) -> anyhow::Result<Vec<u8>> {
    let mut redirected = Module::new();
    for payload in Parser::new(0).parse_all(module) {
        match payload? {
            Payload::ImportSection(section) => {
                let mut imports = ImportSection::new();
                for import in section.into_imports() {
                    let import = import?;
                    let ty = RoundtripReencoder.entity_type(import.ty)?;
                    match (import.module, import.name) {
                        (PREVIEW_1, PROC_EXIT) => imports.import(EXIT_INTERFACE, EXIT_FUNCTION, ty),
                        (PREVIEW_1, name) if input_adapter::provides(name) => {
                            imports.import(INPUT_ADAPTER, name, ty)
                        }
                        (module, name) => imports.import(module, name, ty),
                    };
                }
                redirected.section(&imports);
            }
            payload => {
                if let Some((id, range)) = payload.as_section() {
                    let data = &module[range];
                    redirected.section(&RawSection { id, data });
                }
            }
        }
    }
    let mut redirected = redirected.finish();
    if !exits {
        return Ok(redirected);
    }
    let mut resolve = Resolve::default();
    let package = resolve.push_source("exit.wit", EXIT_WIT)?;
    let world = resolve.select_world(&[package], Some("leaves"))?;
    embed_component_metadata(&mut redirected, &resolve, world, StringEncoding::UTF8)?;
    Ok(redirected)
}
