//! Guests written as WebAssembly text.

use std::collections::HashSet;
use std::path::Path;

use wit_component::{ComponentEncoder, StringEncoding, embed_component_metadata};
use wit_parser::Resolve;

/// The address of the first prepared result in the memory of the guest.
pub const RESULT: u32 = 1024;
/// The address of a second prepared result.
pub const OTHER_RESULT: u32 = 4096;

/// A guest under construction.
#[derive(Default)]
pub struct Guest {
    body: String,
    describe: Option<String>,
    more: String,
    data: Vec<(u32, Vec<u8>)>,
    pages: u32,
}

/// Returns a guest whose `run` executes `body` and then returns the result at [`RESULT`], unless `body` returned another.
pub fn guest(body: &str) -> Guest {
    Guest {
        body: body.to_owned(),
        pages: 2,
        ..Guest::default()
    }
}

impl Guest {
    /// Prepare a completion at [`RESULT`].
    pub fn completes(self, output: Option<&str>, context: Option<&str>) -> Guest {
        self.data(RESULT, completion(RESULT, output, context))
    }

    /// Prepare a failure at `at`.
    pub fn fails(self, at: u32, failure: &GuestFailure<'_>) -> Guest {
        self.data(at, failure.image(at))
    }

    /// Place `bytes` at the address `at`.
    pub fn data(mut self, at: u32, bytes: impl Into<Vec<u8>>) -> Guest {
        self.data.push((at, bytes.into()));
        self
    }

    /// Add definitions to the module.
    pub fn with(mut self, definitions: &str) -> Guest {
        self.more.push_str(definitions);
        self
    }

    /// Start with `pages` of 64 KiB.
    pub fn pages(mut self, pages: u32) -> Guest {
        self.pages = pages;
        self
    }

    /// Export a `describe` that executes `body` and returns `manifest`.
    pub fn describes(self, body: &str, manifest: &str) -> Guest {
        let at = 8192u32;
        let mut image = word_bytes(&[at + 8, manifest.len() as u32]);
        image.extend_from_slice(manifest.as_bytes());
        let mut guest = self.data(at, image);
        guest.describe = Some(format!("{body} (i32.const {at})"));
        guest
    }

    /// Returns the core module with its WIT metadata.
    pub fn module(&self) -> Vec<u8> {
        let describe = self.describe.as_ref().map_or(String::new(), |body| {
            format!(
                r#"(func (export "campanile:task/describe@0.1.0#describe") (result i32) {body})"#
            )
        });
        let code = format!("{} {} {describe}", self.body, self.more);
        let mentioned: HashSet<&str> = code
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '$' | '-')))
            .collect();
        let imports: String = include_str!("imports.wat")
            .lines()
            .filter(|line| {
                line.split([' ', ')'])
                    .any(|word| mentioned.contains(word) && word.starts_with('$'))
            })
            .collect();
        let data: String = self
            .data
            .iter()
            .map(|(at, bytes)| {
                let escaped: String = bytes.iter().map(|byte| format!("\\{byte:02x}")).collect();
                format!("(data (i32.const {at}) \"{escaped}\")\n")
            })
            .collect();
        let text = format!(
            r#"(module
                {imports}
                (memory (export "memory") {pages})
                (global $free (mut i32) (i32.const 65536))
                (func (export "cabi_realloc") (param $old i32) (param i32) (param i32) (param $size i32) (result i32)
                    (local $at i32)
                    (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
                    (global.set $free (i32.add (local.get $at) (local.get $size)))
                    (if (i32.gt_u (global.get $free) (i32.mul (memory.size) (i32.const 65536)))
                        (then unreachable))
                    (local.get $at))
                (func $run (export "campanile:task/task@0.1.0#run")
                    (param $task i32) (param $task-size i32) (param $context i32) (param $context-size i32) (result i32)
                    {body}
                    (i32.const {RESULT}))
                {describe}
                {more}
                {data})"#,
            pages = self.pages,
            body = self.body,
            more = self.more,
        );
        let mut module = wat::parse_str(&text).unwrap();
        let world = if self.describe.is_some() {
            "described-guest"
        } else {
            "guest"
        };
        embed(&mut module, world);
        module
    }

    /// Returns the component.
    pub fn component(&self) -> Vec<u8> {
        ComponentEncoder::default()
            .validate(true)
            .module(&self.module())
            .unwrap()
            .encode()
            .unwrap()
    }
}

fn embed(module: &mut Vec<u8>, world: &str) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut resolve = Resolve::default();
    resolve.push_dir(root.join("../../wit")).unwrap();
    let package = resolve
        .push_source("wasi.wit", include_str!("wasi.wit"))
        .unwrap();
    let world = resolve.select_world(&[package], Some(world)).unwrap();
    embed_component_metadata(module, &resolve, world, StringEncoding::UTF8).unwrap();
}

/// The failure that a guest returns.
#[derive(Default)]
pub struct GuestFailure<'a> {
    pub message: &'a str,
    pub retryable: bool,
    pub retry_after_ms: Option<u64>,
    pub details: Option<&'a str>,
}

impl GuestFailure<'_> {
    /// Returns the bytes of a `result<completion, failure>` at the address `at`.
    fn image(&self, at: u32) -> Vec<u8> {
        let strings = at + 56;
        let mut image = word_bytes(&[1, 0, strings, self.message.len() as u32]);
        image.extend(word_bytes(&[u32::from(self.retryable), 0]));
        image.extend(word_bytes(&[u32::from(self.retry_after_ms.is_some()), 0]));
        image.extend(self.retry_after_ms.unwrap_or(0).to_le_bytes());
        image.extend(optional(self.details, strings + self.message.len() as u32));
        image.extend(word_bytes(&[0]));
        image.extend(self.message.as_bytes());
        image.extend(self.details.unwrap_or("").as_bytes());
        image
    }
}

/// Returns the bytes of a `result<completion, failure>` at the address `at`.
fn completion(at: u32, output: Option<&str>, context: Option<&str>) -> Vec<u8> {
    let strings = at + 32;
    let mut image = word_bytes(&[0, 0]);
    image.extend(optional(output, strings));
    image.extend(optional(
        context,
        strings + output.map_or(0, str::len) as u32,
    ));
    image.extend(output.unwrap_or("").as_bytes());
    image.extend(context.unwrap_or("").as_bytes());
    image
}

/// Returns a completion whose output is the `size` bytes at `from`.
pub fn completion_of(from: u32, size: u32) -> Vec<u8> {
    word_bytes(&[0, 0, 1, from, size, 0, 0, 0])
}

/// Returns an `option<string>` whose text is at `at`.
fn optional(text: Option<&str>, at: u32) -> Vec<u8> {
    word_bytes(&[
        u32::from(text.is_some()),
        at,
        text.map_or(0, str::len) as u32,
    ])
}

fn word_bytes(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_le_bytes()).collect()
}
