//! Guests that make a list of operations on files, and return the result of each.

use super::guests::*;

/// The address of an operation's result.
const AT: u32 = 560;
/// The address of the handles.
const HANDLES: u32 = 640;
/// The address of the output: one character for each operation, as a JSON string.
const OUTPUT: u32 = 8192;
/// The address of the names of files.
const NAMES: u32 = 12288;
/// The address of the bytes to write, and their number.
const BYTES: u32 = 131_072;
pub const BYTES_MAX: u32 = 1 << 20;

/// The characters for results.
pub const OK: char = '.';
pub const QUOTA: char = '6';
pub const CROSS_DEVICE: char = 'T';
pub const CLOSED: char = 'c';

/// Flags of `open-at`.
pub const CREATE: u32 = 1;
pub const TRUNCATE: u32 = 8;

/// One operation. Directories are numbered in the order of their grants; handles of files and streams are kept by a
/// number that the script chooses.
#[derive(Clone, Copy, Debug)]
pub enum Op<'n> {
    Open(usize, &'n str, u32, u32),
    /// Close a file.
    Close(u32),
    Write(u32, u64, u32),
    SetSize(u32, u64),
    CreateDirectory(usize, &'n str),
    /// Directory, target, name.
    Symlink(usize, &'n str, &'n str),
    Link(usize, &'n str, usize, &'n str),
    Rename(usize, &'n str, usize, &'n str),
    Unlink(usize, &'n str),
    /// File, position, stream.
    WriteStream(u32, u64, u32),
    AppendStream(u32, u32),
    ReadStream(u32, u32),
    /// Write to a stream, and wait.
    StreamWrite(u32, u32),
    StreamZeroes(u32, u32),
    /// From the first stream to the second.
    Splice(u32, u32, u32),
    /// Begin to write, without a check and without waiting.
    BeginWrite(u32, u32),
    BeginZeroes(u32, u32),
    /// Wait for a stream, and check it.
    Wait(u32),
    DropStream(u32),
}

/// Returns a guest that makes the operations `script`.
pub fn scripted(script: &[Op<'_>]) -> Guest {
    let mut names = Names(Vec::new());
    let mut body = "(call $get-directories (i32.const 512))\n".to_owned();
    for (number, op) in script.iter().enumerate() {
        let (code, result) = op.code(&mut names);
        let at = OUTPUT + 1 + number as u32;
        body += &format!("{code} (i32.store8 (i32.const {at}) {result})\n");
    }
    let output = format!("\"{}\"", "-".repeat(script.len()));
    guest(&body)
        .pages(32)
        .with(
            "(func $code (param $error i32) (result i32)
                (if (result i32) (i32.load8_u (local.get $error))
                    (then (i32.const 99))
                    (else
                        (call $error-code (i32.load offset=4 (local.get $error)) (i32.const 600))
                        (if (result i32) (i32.load8_u (i32.const 600))
                            (then (i32.add (i32.const 48) (i32.load8_u (i32.const 601))))
                            (else (i32.const 33))))))",
        )
        .data(RESULT, completion_of(OUTPUT, output.len() as u32))
        .data(OUTPUT, output)
        .data(NAMES, names.0)
}

struct Names(Vec<u8>);

impl Names {
    /// Returns a name's address and length as two arguments.
    fn arguments(&mut self, name: &str) -> String {
        let at = NAMES + self.0.len() as u32;
        self.0.extend(name.as_bytes());
        format!("(i32.const {at}) (i32.const {})", name.len())
    }
}

fn directory(number: usize) -> String {
    format!(
        "(i32.load offset={} (i32.load (i32.const 512)))",
        12 * number
    )
}

fn handle(number: u32) -> String {
    format!("(i32.load (i32.const {}))", HANDLES + 4 * number)
}

/// Returns code that keeps the handle of a result, and the result's character.
fn kept(call: String, to: u32) -> (String, String) {
    let keep = format!(
        "{call} (i32.store (i32.const {}) (i32.load (i32.const {})))",
        HANDLES + 4 * to,
        AT + 4
    );
    (keep, file_result(4))
}

/// Returns the character of a `result<_, error-code>` whose payload is `offset` bytes from its start.
fn file_result(offset: u32) -> String {
    character(&format!(
        "(i32.add (i32.const 48) (i32.load8_u (i32.const {})))",
        AT + offset
    ))
}

/// Returns the character of a `result<_, stream-error>`.
fn stream_result(offset: u32) -> String {
    character(&format!("(call $code (i32.const {}))", AT + offset))
}

fn character(of_error: &str) -> String {
    format!(
        "(if (result i32) (i32.load8_u (i32.const {AT})) (then {of_error}) (else (i32.const 46)))"
    )
}

impl Op<'_> {
    /// Returns the code of the operation, and an expression for the character of its result.
    fn code(self, names: &mut Names) -> (String, String) {
        let at = format!("(i32.const {AT})");
        let bytes = |count: u32| {
            assert!(count <= BYTES_MAX);
            format!("(i32.const {BYTES}) (i32.const {count})")
        };
        match self {
            Op::Open(within, name, flags, to) => {
                let within = directory(within);
                let name = names.arguments(name);
                let call = format!(
                    "(call $open-at {within} (i32.const 1) {name} (i32.const {flags}) (i32.const 3) {at})"
                );
                kept(call, to)
            }
            Op::Close(file) => (
                format!("(call $drop-descriptor {})", handle(file)),
                "(i32.const 46)".to_owned(),
            ),
            Op::Write(file, offset, count) => (
                format!(
                    "(call $write-at {} {} (i64.const {offset}) {at})",
                    handle(file),
                    bytes(count)
                ),
                file_result(8),
            ),
            Op::SetSize(file, size) => (
                format!("(call $set-size {} (i64.const {size}) {at})", handle(file)),
                file_result(1),
            ),
            Op::CreateDirectory(within, name) => (
                format!(
                    "(call $create-directory {} {} {at})",
                    directory(within),
                    names.arguments(name)
                ),
                file_result(1),
            ),
            Op::Symlink(within, target, name) => (
                format!(
                    "(call $symlink-at {} {} {} {at})",
                    directory(within),
                    names.arguments(target),
                    names.arguments(name)
                ),
                file_result(1),
            ),
            Op::Link(from, old, to, new) => (
                format!(
                    "(call $link-at {} (i32.const 0) {} {} {} {at})",
                    directory(from),
                    names.arguments(old),
                    directory(to),
                    names.arguments(new)
                ),
                file_result(1),
            ),
            Op::Rename(from, old, to, new) => (
                format!(
                    "(call $rename-at {} {} {} {} {at})",
                    directory(from),
                    names.arguments(old),
                    directory(to),
                    names.arguments(new)
                ),
                file_result(1),
            ),
            Op::Unlink(within, name) => (
                format!(
                    "(call $unlink-at {} {} {at})",
                    directory(within),
                    names.arguments(name)
                ),
                file_result(1),
            ),
            Op::WriteStream(file, position, to) => kept(
                format!(
                    "(call $write-stream {} (i64.const {position}) {at})",
                    handle(file)
                ),
                to,
            ),
            Op::AppendStream(file, to) => {
                kept(format!("(call $append-stream {} {at})", handle(file)), to)
            }
            Op::ReadStream(file, to) => kept(
                format!("(call $read-stream {} (i64.const 0) {at})", handle(file)),
                to,
            ),
            Op::StreamWrite(stream, count) => (
                format!("(call $write {} {} {at})", handle(stream), bytes(count)),
                stream_result(4),
            ),
            Op::StreamZeroes(stream, count) => (
                format!(
                    "(call $write-zeroes {} (i64.const {count}) {at})",
                    handle(stream)
                ),
                stream_result(4),
            ),
            Op::Splice(from, to, count) => (
                format!(
                    "(call $splice {} {} (i64.const {count}) {at})",
                    handle(to),
                    handle(from)
                ),
                stream_result(8),
            ),
            Op::BeginWrite(stream, count) => (
                format!(
                    "(call $begin-write {} {} {at})",
                    handle(stream),
                    bytes(count)
                ),
                stream_result(4),
            ),
            Op::BeginZeroes(stream, count) => (
                format!(
                    "(call $begin-zeroes {} (i64.const {count}) {at})",
                    handle(stream)
                ),
                stream_result(4),
            ),
            Op::Wait(stream) => (
                format!(
                    "(i32.store (i32.const 608) (call $subscribe-write {0}))
                    (call $block (i32.load (i32.const 608)))
                    (call $drop-pollable (i32.load (i32.const 608)))
                    (call $check-write {0} {at})",
                    handle(stream)
                ),
                stream_result(8),
            ),
            Op::DropStream(stream) => (
                format!("(call $drop-stream {})", handle(stream)),
                "(i32.const 46)".to_owned(),
            ),
        }
    }
}
