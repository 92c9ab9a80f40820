//! Adapter passing arguments and variables to preview 1 programs.
//!
//! wasmtime's adapter copies all of them into a single page of its own, trapping if they don't fit. This one asks the host for eight bytes
//! at a time and writes them straight to where the program wants them, needing no memory of its own.

use wasm_encoder::{
    BlockType, CodeSection, EntityType, ExportKind, ExportSection, Function, FunctionSection,
    ImportSection, InstructionSink, MemArg, MemoryType, Module, TypeSection, ValType,
};
use wit_component::{StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

use crate::capability::program_input::PROGRAM_INPUT;

/// The module from which programs import these functions instead.
pub(super) const INPUT_ADAPTER: &str = "campanile_program_input";

/// The preview 1 functions provided: number of the list, function for its sizes, function for its texts.
pub(super) const LISTS: [(i32, &str, &str); 2] = [
    (0, "args_sizes_get", "args_get"),
    (1, "environ_sizes_get", "environ_get"),
];

/// The interface of [`PROGRAM_INPUT`].
const INPUT_WIT: &str = "package campanile:program@0.1.0;
    interface input {
        count: func(variables: bool) -> u32;
        size: func(variables: bool) -> u32;
        bytes: func(variables: bool, at: u32) -> u64;
    }
    world reads { import input; }";
const COUNT: u32 = 0;
const SIZE: u32 = 1;
const BYTES: u32 = 2;

const PLAIN: MemArg = MemArg {
    offset: 0,
    align: 0,
    memory_index: 0,
};

/// Whether the adapter provides the preview 1 function of this name.
pub(super) fn provides(function: &str) -> bool {
    let mut lists = LISTS.iter();
    lists.any(|(_, sizes, texts)| function == *sizes || function == *texts)
}

pub(super) fn input_adapter() -> anyhow::Result<Vec<u8>> {
    use ValType::{I32, I64};
    let mut types = TypeSection::new();
    types.ty().function([I32], [I32]);
    types.ty().function([I32, I32], [I64]);
    types.ty().function([I32, I32], [I32]);
    let mut imports = ImportSection::new();
    for (name, ty) in [("count", 0), ("size", 0), ("bytes", 1)] {
        imports.import(PROGRAM_INPUT, name, EntityType::Function(ty));
    }
    imports.import(
        "env",
        "memory",
        MemoryType {
            minimum: 0,
            maximum: None,
            memory64: false,
            shared: false,
            page_size_log2: None,
        },
    );
    let (mut functions, mut exports, mut code) = (
        FunctionSection::new(),
        ExportSection::new(),
        CodeSection::new(),
    );
    for (place, (list, sizes, texts)) in (0..).zip(LISTS) {
        let first = BYTES + 1 + 2 * place;
        functions.function(2).function(2);
        exports.export(sizes, ExportKind::Func, first);
        exports.export(texts, ExportKind::Func, first + 1);
        code.function(&sizes_of(list)).function(&texts_of(list));
    }
    let mut adapter = Module::new();
    adapter.section(&types).section(&imports);
    adapter.section(&functions).section(&exports).section(&code);
    let mut adapter = adapter.finish();
    let mut resolve = Resolve::default();
    let package = resolve.push_source("input.wit", INPUT_WIT)?;
    let world = resolve.select_world(&[package], Some("reads"))?;
    embed_component_metadata(&mut adapter, &resolve, world, StringEncoding::UTF8)?;
    Ok(adapter)
}

/// Returns a function writing the number of texts and their total bytes to two addresses.
fn sizes_of(list: i32) -> Function {
    let mut function = Function::new([]);
    let mut code = function.instructions();
    for (address, what) in [(0, COUNT), (1, SIZE)] {
        code.local_get(address).i32_const(list).call(what);
        code.i32_store(PLAIN);
    }
    code.i32_const(0).end();
    function
}

/// Returns a function writing the texts to the second address, and the address of each to the first.
fn texts_of(list: i32) -> Function {
    const ADDRESSES: u32 = 0;
    const TEXTS: u32 = 1;
    const SIZE_LEFT: u32 = 2;
    const AT: u32 = 3;
    const BEGINS: u32 = 4;
    const CHUNK: u32 = 5;
    let mut function = Function::new([(3, ValType::I32), (1, ValType::I64)]);
    let mut code = function.instructions();
    let add = |code: &mut InstructionSink<'_>, local: u32, by: i32| {
        code.local_get(local)
            .i32_const(by)
            .i32_add()
            .local_set(local);
    };
    code.i32_const(list).call(SIZE).local_set(SIZE_LEFT);
    code.i32_const(1).local_set(BEGINS);
    code.block(BlockType::Empty).loop_(BlockType::Empty);
    code.local_get(SIZE_LEFT).i32_eqz().br_if(1);
    // Fetch the next eight bytes.
    code.local_get(AT).i32_const(7).i32_and().i32_eqz();
    code.if_(BlockType::Empty);
    code.i32_const(list)
        .local_get(AT)
        .call(BYTES)
        .local_set(CHUNK);
    code.end();
    code.local_get(BEGINS).if_(BlockType::Empty);
    code.local_get(ADDRESSES);
    code.local_get(TEXTS).local_get(AT).i32_add();
    code.i32_store(PLAIN);
    add(&mut code, ADDRESSES, 4);
    code.end();
    code.local_get(TEXTS).local_get(AT).i32_add();
    code.local_get(CHUNK).i64_store8(PLAIN);
    // Each text ends with a NUL byte.
    code.local_get(CHUNK).i64_const(0xff).i64_and().i64_eqz();
    code.local_set(BEGINS);
    code.local_get(CHUNK)
        .i64_const(8)
        .i64_shr_u()
        .local_set(CHUNK);
    add(&mut code, AT, 1);
    add(&mut code, SIZE_LEFT, -1);
    code.br(0).end().end();
    code.i32_const(0).end();
    function
}
