//! Reserve the first pages of a program's memory for the adapter.
//!
//! The allocators of Go, of AssemblyScript, and of C libraries for WASI before that of clang 16, use all memory above the
//! program's data, also the pages by which the adapter has grown the memory. They would overwrite the adapter's state. So
//! [`with_reserved_pages`] moves the program up by [`RESERVED_PAGES`]:
//!
//! * each load, store and data segment has its address raised by [`SHIFT`];
//! * `memory.size` and `memory.grow` return sizes without the reserved pages;
//! * a wrapper of each WASI function raises the pointers among the arguments before the call, and afterwards lowers the
//!   pointers that the function has written;
//! * the adapter gets its pages from an exported `cabi_realloc`, as wit-component prefers.

use wasm_encoder::reencode::{self, Reencode, utils};
use wasm_encoder::{
    BlockType, CodeSection, ConstExpr, DataSection, ExportKind, ExportSection, Function,
    FunctionSection, ImportSection, Instruction, InstructionSink, MemArg, MemoryType, Module,
    TypeSection, ValType,
};
use wasmparser::{DataKind, Operator, Parser, TypeRef};

const PAGE: i32 = 1 << 16;
/// A page for these functions, so that no page of the adapter begins at 0; one for its state, and one for its stack.
const RESERVED_PAGES: u64 = 3;
const SHIFT: i32 = 3 * PAGE;
/// The most pages of a moved memory. Without the last page of 4 GiB, an access at [`OFFSET_MOST`] traps.
const PAGES_MOST: u64 = (1 << 16) - 1;
/// The greatest offset of an access that WebAssembly can write.
const OFFSET_MOST: u64 = u32::MAX as u64;

/// In the first page: how many bytes the adapter got, the numbers that a WASI function returns, and a buffer without bytes.
const TAKEN: i32 = 16;
const COUNT: i32 = 32;
const BYTES: i32 = 36;
const NO_BYTES: i32 = 40;

/// The types that are added: the helpers' parameters and results.
const ADDED_TYPES: [(usize, usize); 4] = [(3, 0), (0, 1), (1, 1), (4, 1)];

/// A helper: its place behind the wrappers, and its type among [`ADDED_TYPES`].
const COPY: (u32, u32) = (0, 0);
const FILL: (u32, u32) = (1, 0);
const SIZE: (u32, u32) = (2, 1);
const GROW: (u32, u32) = (3, 2);
const REALLOC: (u32, u32) = (4, 3);

/// The functions of preview 1 with pointers among their parameters, and the places of these.
const POINTERS: [(&str, &[u32]); 32] = [
    ("args_get", &[0, 1]),
    ("args_sizes_get", &[0, 1]),
    ("clock_res_get", &[1]),
    ("clock_time_get", &[2]),
    ("environ_get", &[0, 1]),
    ("environ_sizes_get", &[0, 1]),
    ("fd_fdstat_get", &[1]),
    ("fd_filestat_get", &[1]),
    ("fd_pread", &[1, 4]),
    ("fd_prestat_dir_name", &[1]),
    ("fd_prestat_get", &[1]),
    ("fd_pwrite", &[1, 4]),
    ("fd_read", &[1, 3]),
    ("fd_readdir", &[1, 4]),
    ("fd_seek", &[3]),
    ("fd_tell", &[1]),
    ("fd_write", &[1, 3]),
    ("path_create_directory", &[1]),
    ("path_filestat_get", &[2, 4]),
    ("path_filestat_set_times", &[2]),
    ("path_link", &[2, 5]),
    ("path_open", &[2, 8]),
    ("path_readlink", &[1, 3, 5]),
    ("path_remove_directory", &[1]),
    ("path_rename", &[1, 4]),
    ("path_symlink", &[0, 3]),
    ("path_unlink_file", &[1]),
    ("poll_oneoff", &[0, 1, 3]),
    ("random_get", &[0]),
    ("sock_accept", &[2]),
    ("sock_recv", &[1, 4, 5]),
    ("sock_send", &[1, 4]),
];

/// The functions whose second and third parameters are a list of buffers: a pointer and a length each.
const BUFFERS: [&str; 6] = [
    "fd_pread",
    "fd_pwrite",
    "fd_read",
    "fd_write",
    "sock_recv",
    "sock_send",
];

/// The functions that write a list of pointers to their first parameter, and those that return its length.
const LISTS: [(&str, &str); 2] = [
    ("args_get", "args_sizes_get"),
    ("environ_get", "environ_sizes_get"),
];

/// What such programs rarely do, and what this file does not move.
#[derive(Debug, thiserror::Error)]
#[error("a program with {0} cannot be moved in its memory")]
pub(super) struct Unsupported(&'static str);

type Error = reencode::Error<Unsupported>;

fn unsupported<T>(what: &'static str) -> Result<T, Error> {
    Err(Error::UserError(Unsupported(what)))
}

/// Returns the module with its first pages reserved for the adapter.
pub(super) fn with_reserved_pages(module: &[u8]) -> anyhow::Result<Vec<u8>> {
    let mut shift = Shift::default();
    let mut moved = Module::new();
    shift.parse_core_module(&mut moved, Parser::new(0), module)?;
    Ok(moved.finish())
}

/// What is known of the module so far.
#[derive(Default)]
struct Shift {
    /// The number of parameters of each type.
    types: Vec<u32>,
    imports: Vec<Import>,
    /// The number of functions of the module itself.
    functions: u32,
}

struct Import {
    name: String,
    ty: u32,
}

impl Shift {
    /// Returns the index of the wrapper of the first import.
    fn wrappers(&self) -> u32 {
        self.imported() + self.functions
    }

    fn imported(&self) -> u32 {
        u32::try_from(self.imports.len()).unwrap_or(u32::MAX)
    }

    fn helper(&self, (place, _): (u32, u32)) -> u32 {
        self.wrappers() + self.imported() + place
    }

    fn import(&self, name: &str) -> Option<u32> {
        let place = self.imports.iter().position(|import| import.name == name)?;
        u32::try_from(place).ok()
    }

    /// Returns the function that calls the import `index` with raised pointers.
    fn wrapper(&self, index: u32, import: &Import) -> Function {
        let name = import.name.as_str();
        let known = POINTERS.iter().find(|(known, _)| *known == name);
        let pointers = known.map_or(&[][..], |(_, pointers)| pointers);
        let params = self
            .types
            .get(import.ty as usize)
            .copied()
            .unwrap_or_default();
        let mut function = Function::new([(2, ValType::I32)]);
        let mut code = function.instructions();
        let move_buffers = |code: &mut InstructionSink<'_>, by| {
            if BUFFERS.contains(&name) {
                code.local_get(1)
                    .i32_const(SHIFT)
                    .i32_add()
                    .local_set(params);
                code.local_get(2).local_set(params + 1);
                move_pointers(code, params, 8, by);
            }
        };
        let push = |code: &mut InstructionSink<'_>, params: std::ops::Range<u32>| {
            for param in params {
                if pointers.contains(&param) {
                    raise(code, param);
                } else {
                    code.local_get(param);
                }
            }
        };
        if BUFFERS.contains(&name) {
            // Without a buffer, the adapter does not look at the descriptor. One without bytes means the same.
            code.local_get(2).i32_eqz().if_(BlockType::Empty);
            code.local_get(0).i32_const(NO_BYTES).i32_const(1);
            push(&mut code, 3..params);
            code.call(index).return_().end();
        }
        move_buffers(&mut code, SHIFT);
        push(&mut code, 0..params);
        code.call(index);
        move_buffers(&mut code, -SHIFT);
        let sizes = LISTS.iter().find(|(list, _)| *list == name);
        if let Some(sizes) = sizes.and_then(|(_, sizes)| self.import(sizes)) {
            code.i32_const(COUNT).i32_const(BYTES).call(sizes).drop();
            code.local_get(0)
                .i32_const(SHIFT)
                .i32_add()
                .local_set(params);
            code.i32_const(COUNT).i32_load(WORD).local_set(params + 1);
            move_pointers(&mut code, params, 4, -SHIFT);
        }
        code.end();
        function
    }
}

const WORD: MemArg = MemArg {
    offset: 0,
    align: 2,
    memory_index: 0,
};

/// Add `by` to the pointers that begin at the address in the local `at`, and are `step` bytes apart. The next local has
/// their number. Both locals are changed.
fn move_pointers(code: &mut InstructionSink<'_>, at: u32, step: i32, by: i32) {
    let left = at + 1;
    code.block(BlockType::Empty).loop_(BlockType::Empty);
    code.local_get(left).i32_eqz().br_if(1);
    code.local_get(at).local_get(at).i32_load(WORD);
    code.i32_const(by).i32_add().i32_store(WORD);
    code.local_get(at).i32_const(step).i32_add().local_set(at);
    code.local_get(left).i32_const(1).i32_sub().local_set(left);
    code.br(0).end().end();
}

/// Push the raised address in the local `at`. Trap where it has no raised one, as its use would have trapped.
fn raise(code: &mut InstructionSink<'_>, at: u32) {
    code.local_get(at).i32_const(-SHIFT).i32_ge_u();
    code.if_(BlockType::Empty).unreachable().end();
    code.local_get(at).i32_const(SHIFT).i32_add();
}

/// Returns the bodies of the helpers, in order.
fn helpers() -> [Function; 5] {
    let mut bodies = [(); 5].map(|()| Function::new([(1, ValType::I32)]));
    let [copy, fill, size, grow, realloc] = &mut bodies;
    let mut code = copy.instructions();
    raise(&mut code, 0);
    raise(&mut code, 1);
    code.local_get(2).memory_copy(0, 0).end();
    let mut code = fill.instructions();
    raise(&mut code, 0);
    code.local_get(1).local_get(2).memory_fill(0).end();
    let pages = RESERVED_PAGES as i32;
    let mut code = size.instructions();
    code.memory_size(0).i32_const(pages).i32_sub().end();
    let mut code = grow.instructions();
    code.local_get(0).memory_grow(0).local_tee(1);
    code.i32_const(-1).i32_eq();
    code.if_(BlockType::Result(ValType::I32)).i32_const(-1);
    code.else_()
        .local_get(1)
        .i32_const(pages)
        .i32_sub()
        .end()
        .end();
    // One page each time; there is no third one.
    let mut code = realloc.instructions();
    code.local_get(3).i32_const(PAGE).i32_gt_u();
    code.i32_const(TAKEN)
        .i32_load(WORD)
        .i32_const(2 * PAGE)
        .i32_ge_u()
        .i32_or();
    code.if_(BlockType::Empty).unreachable().end();
    code.i32_const(TAKEN);
    code.i32_const(TAKEN)
        .i32_load(WORD)
        .i32_const(PAGE)
        .i32_add()
        .local_tee(4);
    code.i32_store(WORD).local_get(4).end();
    bodies
}

impl Reencode for Shift {
    type Error = Unsupported;

    fn parse_type_section(
        &mut self,
        types: &mut TypeSection,
        section: wasmparser::TypeSectionReader<'_>,
    ) -> Result<(), Error> {
        for group in section.clone() {
            for ty in group?.into_types() {
                let params = match &ty.composite_type.inner {
                    wasmparser::CompositeInnerType::Func(function) => function.params().len(),
                    _ => 0,
                };
                self.types.push(u32::try_from(params).unwrap_or(u32::MAX));
            }
        }
        utils::parse_type_section(self, types, section)?;
        for (params, results) in ADDED_TYPES {
            let word = |count| std::iter::repeat_n(ValType::I32, count);
            types.ty().function(word(params), word(results));
        }
        Ok(())
    }

    fn parse_import_section(
        &mut self,
        imports: &mut ImportSection,
        section: wasmparser::ImportSectionReader<'_>,
    ) -> Result<(), Error> {
        for import in section.clone().into_imports() {
            let import = import?;
            if let TypeRef::Func(ty) = import.ty {
                let name = import.name.to_owned();
                self.imports.push(Import { name, ty });
            }
        }
        utils::parse_import_section(self, imports, section)
    }

    fn parse_function_section(
        &mut self,
        functions: &mut FunctionSection,
        section: wasmparser::FunctionSectionReader<'_>,
    ) -> Result<(), Error> {
        self.functions = section.count();
        utils::parse_function_section(self, functions, section)?;
        for import in &self.imports {
            functions.function(import.ty);
        }
        let added = u32::try_from(self.types.len()).unwrap_or(u32::MAX);
        for (_, ty) in [COPY, FILL, SIZE, GROW, REALLOC] {
            functions.function(added + ty);
        }
        Ok(())
    }

    fn memory_type(&mut self, memory: wasmparser::MemoryType) -> Result<MemoryType, Error> {
        let memory = utils::memory_type(self, memory);
        Ok(MemoryType {
            minimum: memory.minimum.saturating_add(RESERVED_PAGES),
            maximum: Some(memory.maximum.map_or(PAGES_MOST, |most| {
                most.saturating_add(RESERVED_PAGES).min(PAGES_MOST)
            })),
            ..memory
        })
    }

    fn parse_export_section(
        &mut self,
        exports: &mut ExportSection,
        section: wasmparser::ExportSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_export_section(self, exports, section)?;
        exports.export("cabi_realloc", ExportKind::Func, self.helper(REALLOC));
        Ok(())
    }

    fn parse_code_section(
        &mut self,
        code: &mut CodeSection,
        section: wasmparser::CodeSectionReader<'_>,
    ) -> Result<(), Error> {
        utils::parse_code_section(self, code, section)?;
        for (index, import) in (0..).zip(&self.imports) {
            code.function(&self.wrapper(index, import));
        }
        for helper in &helpers() {
            code.function(helper);
        }
        Ok(())
    }

    fn parse_data(
        &mut self,
        data: &mut DataSection,
        datum: wasmparser::Data<'_>,
    ) -> Result<(), Error> {
        let DataKind::Active {
            memory_index: 0,
            offset_expr,
        } = &datum.kind
        else {
            return unsupported("a passive data segment, or another memory");
        };
        let mut operators = offset_expr.get_operators_reader();
        let (Operator::I32Const { value }, Operator::End) = (operators.read()?, operators.read()?)
        else {
            return unsupported("a data segment at an address that is computed");
        };
        let Some(moved) = value.cast_unsigned().checked_add(SHIFT.cast_unsigned()) else {
            return unsupported("a data segment at the end of its memory");
        };
        let offset = ConstExpr::i32_const(moved.cast_signed());
        data.active(0, &offset, datum.data.iter().copied());
        Ok(())
    }

    /// A call of an import goes to its wrapper.
    fn function_index(&mut self, function: u32) -> Result<u32, Error> {
        Ok(if function < self.imported() {
            self.wrappers() + function
        } else {
            function
        })
    }

    fn mem_arg(&mut self, arg: wasmparser::MemArg) -> Result<MemArg, Error> {
        if arg.memory != 0 {
            return unsupported("several memories");
        }
        let arg = utils::mem_arg(self, arg)?;
        // Compilers leave accesses above all memory in code that never runs. They trap at the last address too.
        let moved = arg.offset.saturating_add(RESERVED_PAGES << 16);
        Ok(MemArg {
            offset: moved.min(OFFSET_MOST),
            ..arg
        })
    }

    fn instruction<'a>(&mut self, operator: Operator<'a>) -> Result<Instruction<'a>, Error> {
        Ok(match operator {
            Operator::MemoryInit { .. } => return unsupported("the instruction memory.init"),
            Operator::MemoryCopy { .. } => Instruction::Call(self.helper(COPY)),
            Operator::MemoryFill { .. } => Instruction::Call(self.helper(FILL)),
            Operator::MemorySize { .. } => Instruction::Call(self.helper(SIZE)),
            Operator::MemoryGrow { .. } => Instruction::Call(self.helper(GROW)),
            operator => utils::instruction(self, operator)?,
        })
    }
}
