//! Files that do harm while they are read or compiled: small, and without any grant.

use std::iter::repeat_n;

/// The header of a module, and of a component.
const MODULE: &[u8] = b"\0asm\x01\0\0\0";
const COMPONENT: &[u8] = b"\0asm\x0d\0\x01\0";

/// The ids of sections: of a module, and of a component.
const CUSTOM: u8 = 0;
const TYPES: u8 = 1;
const FUNCTIONS: u8 = 3;
const TABLES: u8 = 4;
const MEMORIES: u8 = 5;
const EXPORTS: u8 = 7;
const ELEMENTS: u8 = 9;
const CODE: u8 = 10;
const DATA: u8 = 11;
const NESTED_COMPONENT: u8 = 4;
const COMPONENT_TYPES: u8 = 7;

/// A program with `count` empty functions: some bytes each in the file, and some kilobytes each in the compiler.
pub fn many_functions(count: usize) -> Vec<u8> {
    let functions = repeat_n(0, count).collect::<Vec<u8>>();
    let bodies = repeat_n(EMPTY_BODY, count).flatten().collect::<Vec<u8>>();
    program(&[
        (TYPES, vector(1, NO_RESULT)),
        (FUNCTIONS, vector(count, &functions)),
        (MEMORIES, vector(1, &[0, 1])),
        (EXPORTS, vector(2, START_AND_MEMORY)),
        (CODE, vector(count, &bodies)),
    ])
}

/// A program with `count` types of functions, which all differ.
pub fn many_types(count: usize) -> Vec<u8> {
    let number_types = [0x7f, 0x7e, 0x7d, 0x7c];
    let mut types = NO_RESULT.to_vec();
    for number in 0..count {
        types.extend([0x60, 10]);
        types.extend((0..10).map(|place| number_types[number >> (2 * place) & 3]));
        types.push(0);
    }
    program(&[
        (TYPES, vector(count + 1, &types)),
        (FUNCTIONS, vector(1, &[0])),
        (MEMORIES, vector(1, &[0, 1])),
        (EXPORTS, vector(2, START_AND_MEMORY)),
        (CODE, vector(1, &EMPTY_BODY)),
    ])
}

/// A program with `count` segments of elements.
pub fn many_elements(count: usize) -> Vec<u8> {
    let segment = [0, 0x41, 0, 0x0b, 1, 0];
    let segments = repeat_n(segment, count).flatten().collect::<Vec<u8>>();
    program(&[
        (TYPES, vector(1, NO_RESULT)),
        (FUNCTIONS, vector(1, &[0])),
        (TABLES, vector(1, &[0x70, 0, 1])),
        (MEMORIES, vector(1, &[0, 1])),
        (EXPORTS, vector(2, START_AND_MEMORY)),
        (ELEMENTS, vector(count, &segments)),
        (CODE, vector(1, &EMPTY_BODY)),
    ])
}

/// A program like those containing a language engine: ten thousand pieces of data in 8 MiB of mostly zeros, with a file no smaller.
pub fn language_engine() -> Vec<u8> {
    const PIECES: usize = 10_000;
    const DISTANCE: usize = (8 << 20) / PIECES;
    let piece = |number: usize| {
        // An address constant is a signed number; using this many bytes keeps its sign.
        let address = number * DISTANCE;
        let address = [0, 7, 14, 21].map(|bits| (address >> bits & 0x7f) as u8 | 0x80);
        [
            &[0, 0x41],
            &address[..],
            &[0, 0x0b],
            &vector(300, &[1; 300]),
        ]
        .concat()
    };
    let pieces = (0..PIECES).flat_map(piece).collect::<Vec<u8>>();
    program(&[
        (CUSTOM, vector(1, &vec![b'x'; 6 << 20])),
        (TYPES, vector(1, NO_RESULT)),
        (FUNCTIONS, vector(1, &[0])),
        (MEMORIES, vector(1, &[&[0], leb(128).as_slice()].concat())),
        (EXPORTS, vector(2, START_AND_MEMORY)),
        (CODE, vector(1, &EMPTY_BODY)),
        (DATA, vector(PIECES, &pieces)),
    ])
}

/// The package `package`, followed by components that are nested `depth` deep.
pub fn nested_components(package: &[u8], depth: usize) -> Vec<u8> {
    let mut nested = COMPONENT.to_vec();
    for _ in 0..depth {
        nested = [COMPONENT, &section(NESTED_COMPONENT, &nested)].concat();
    }
    [package, &section(NESTED_COMPONENT, &nested)].concat()
}

/// A program whose WIT metadata has types that are nested `depth` deep.
pub fn nested_types(depth: usize) -> Vec<u8> {
    const COMPONENT_TYPE: u8 = 0x41;
    const DECLARES_TYPE: u8 = 1;
    let mut nested = vec![COMPONENT_TYPE, 0];
    for _ in 0..depth {
        nested = [&[COMPONENT_TYPE, 1, DECLARES_TYPE], nested.as_slice()].concat();
    }
    let metadata = [COMPONENT, &section(COMPONENT_TYPES, &vector(1, &nested))].concat();
    let name = b"component-type:nested";
    let custom = [&leb(name.len()), name.as_slice(), &metadata].concat();
    [many_functions(1), section(CUSTOM, &custom)].concat()
}

/// A program of a few hundred bytes with data at both ends of 16 MB.
///
/// # Panics
///
/// Panics if the text is invalid, which would be a mistake here.
pub fn distant_data() -> Vec<u8> {
    let text = r#"(module (memory (export "memory") 300) (func (export "_start"))
        (data (i32.const 0) "a") (data (i32.const 16000000) "b"))"#;
    wat::parse_str(text).expect("a module")
}

/// A component whose instances double over `levels` levels.
///
/// # Panics
/// When the text is not valid, which is a mistake here.
pub fn doubled_instances(levels: usize) -> Vec<u8> {
    let mut text =
        "(component (component $c0 (core module $m) (core instance (instantiate $m)))\n".to_owned();
    for level in 1..levels {
        text += &format!(
            "(component $c{level} (alias outer 1 $c{} (component $below))
                (instance (instantiate $below)) (instance (instantiate $below)))\n",
            level - 1
        );
    }
    text += &format!("(instance (instantiate $c{}))\n{MAIN})", levels - 1);
    wat::parse_str(&text).expect("a component")
}

/// The end of a component doing nothing and succeeding.
const MAIN: &str = r#"(core module $main (func (export "run") (result i32) i32.const 0))
    (core instance $main (instantiate $main))
    (func $run (result (result)) (canon lift (core func $main "run")))
    (instance $command (export "run" (func $run)))
    (export "wasi:cli/run@0.2.3" (instance $command))"#;

/// A program with `instances` instances of a module containing `definitions`.
pub fn many_instances(instances: usize, definitions: &str) -> Vec<u8> {
    let instances = "(core instance (instantiate $m))".repeat(instances);
    let text = format!("(component (core module $m {definitions}) {instances} {MAIN})");
    wat::parse_str(&text).expect("a component")
}

/// A WASI preview 1 program opening the root, where it sees nothing, up to `times` times, then sleeping for `seconds`.
pub fn many_descriptors(times: u32, seconds: u64) -> Vec<u8> {
    let body = format!(
        "(local.set $left (i32.const {times}))
        (loop $more
            (if (i32.eqz (call $open (i32.const 3) (i32.const 0) (i32.const 8) (i32.const 1)
                    (i32.const 2) (i64.const 0) (i64.const 0) (i32.const 0) (i32.const 16)))
                (then
                    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                    (br_if $more (local.get $left)))))"
    );
    sleeper(&body, seconds)
}

/// A WASI preview 1 program growing its memory by up to `pages`, writing to each, then sleeping for `seconds`.
pub fn much_memory(pages: u32, seconds: u64) -> Vec<u8> {
    let body = format!(
        "(local.set $left (i32.const {pages}))
        (loop $more
            (if (i32.ne (memory.grow (i32.const 1)) (i32.const -1))
                (then
                    (memory.fill (i32.mul (i32.sub (memory.size) (i32.const 1)) (i32.const 65536))
                        (i32.const 1) (i32.const 65536))
                    (local.set $left (i32.sub (local.get $left) (i32.const 1)))
                    (br_if $more (local.get $left)))))"
    );
    sleeper(&body, seconds)
}

/// A WASI preview 1 program executing `body`, then sleeping for `seconds`.
fn sleeper(body: &str, seconds: u64) -> Vec<u8> {
    let nanos = seconds * 1_000_000_000;
    let text = format!(
        r#"(module
        (import "wasi_snapshot_preview1" "path_open" (func $open
            (param i32 i32 i32 i32 i32 i64 i64 i32 i32) (result i32)))
        (import "wasi_snapshot_preview1" "poll_oneoff" (func $poll
            (param i32 i32 i32 i32) (result i32)))
        (memory (export "memory") 1)
        (data (i32.const 8) ".")
        (func (export "_start") (local $left i32)
            {body}
            (i32.store (i32.const 64) (i32.const 0))
            (i32.store (i32.const 80) (i32.const 1))
            (i64.store (i32.const 88) (i64.const {nanos}))
            (drop (call $poll (i32.const 64) (i32.const 128) (i32.const 1) (i32.const 256)))))"#
    );
    wat::parse_str(&text).expect("a module")
}

const NO_RESULT: &[u8] = &[0x60, 0, 0];
const EMPTY_BODY: [u8; 3] = [2, 0, 0x0b];
const START_AND_MEMORY: &[u8] = b"\x06_start\x00\x00\x06memory\x02\x00";

fn program(sections: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let sections = sections
        .iter()
        .flat_map(|(id, content)| section(*id, content));
    MODULE.iter().copied().chain(sections).collect()
}

fn section(id: u8, content: &[u8]) -> Vec<u8> {
    [&[id][..], &leb(content.len()), content].concat()
}

fn vector(length: usize, items: &[u8]) -> Vec<u8> {
    [&leb(length), items].concat()
}

/// Return a number as WebAssembly writes it.
fn leb(mut number: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    loop {
        let low = (number & 0x7f) as u8;
        number >>= 7;
        if number == 0 {
            bytes.push(low);
            return bytes;
        }
        bytes.push(low | 0x80);
    }
}
