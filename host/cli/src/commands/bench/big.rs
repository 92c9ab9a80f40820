//! A generated program for WASI preview 1, as large as a compiled interpreter.

/// The number of functions, and of operations in each: about 4 MB of code.
const FUNCTIONS: u32 = 1_000;
const TURNS: u32 = 260;
/// The size of the data, as of an interpreter's library.
const DATA_BYTES: u32 = 16 << 20;
const PAGE_BYTES: u32 = 1 << 16;

/// Returns the program. Its bytes are always the same.
pub(crate) fn component() -> Vec<u8> {
    // The types of `proc_exit`, of `_start`, and of the functions that take time to compile.
    let types = vec![3, 0x60, 1, 0x7f, 0, 0x60, 0, 0, 0x60, 1, 0x7f, 1, 0x7f];
    // The length of a name comes before it.
    let imports = b"\x01\x16wasi_snapshot_preview1\x09proc_exit\0\0".to_vec();
    let mut functions = Vec::new();
    number(&mut functions, FUNCTIONS + 1);
    functions.push(1);
    functions.extend(std::iter::repeat_n(2, FUNCTIONS as usize));
    let mut memory = vec![1, 0];
    number(&mut memory, DATA_BYTES / PAGE_BYTES + 1);
    let exports = b"\x02\x06memory\x02\0\x06_start\0\x01".to_vec();
    let mut data = vec![1, 0, 0x41, 0, 0x0b];
    number(&mut data, DATA_BYTES);
    data.extend((0..DATA_BYTES).map(|at| (at / 7) as u8));
    let mut module = b"\0asm\x01\0\0\0".to_vec();
    for (id, content) in [
        (1, types),
        (2, imports),
        (3, functions),
        (5, memory),
        (7, exports),
        (10, code()),
        (11, data),
    ] {
        module.push(id);
        number(&mut module, content.len() as u32);
        module.extend(content);
    }
    module
}

fn code() -> Vec<u8> {
    let mut code = Vec::new();
    number(&mut code, FUNCTIONS + 1);
    // `_start` does nothing.
    code.extend_from_slice(&[2, 0, 0x0b]);
    for function in 0..FUNCTIONS {
        // One local besides the parameter.
        let mut body = vec![1, 1, 0x7f];
        for turn in 0..TURNS {
            // local 1 = (local 0 * c) xor local 1; local 0 = local 0 + local 1
            body.extend_from_slice(&[0x20, 0, 0x41]);
            number(&mut body, (function + turn) % 64);
            body.extend_from_slice(&[0x6c, 0x20, 1, 0x73, 0x22, 1, 0x20, 0, 0x6a, 0x21, 0]);
        }
        body.extend_from_slice(&[0x20, 0, 0x0b]);
        number(&mut code, body.len() as u32);
        code.extend(body);
    }
    code
}

/// Append an unsigned LEB128 number.
fn number(into: &mut Vec<u8>, mut number: u32) {
    while number >= 0x80 {
        into.push(number as u8 | 0x80);
        number >>= 7;
    }
    into.push(number as u8);
}
