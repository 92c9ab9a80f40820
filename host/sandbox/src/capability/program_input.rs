//! Providing the arguments and variables of preview 1 programs to the adapter in `load/input_adapter.rs`.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;
use wasmtime_wasi::WasiView;
use wasmtime_wasi::cli::WasiCliView as _;
use wasmtime_wasi::p2::bindings::cli::environment::Host as _;

/// The interface imported by the adapter.
pub(crate) const PROGRAM_INPUT: &str = "campanile:program/input@0.1.0";

/// A program's texts in preview 1's layout: one after another, each followed by a NUL byte. Empty until the program asks.
#[derive(Default)]
pub(crate) struct ProgramTexts {
    arguments: Option<Texts>,
    variables: Option<Texts>,
}

#[derive(Default)]
struct Texts {
    count: u32,
    bytes: Vec<u8>,
}

impl Texts {
    fn of(texts: impl Iterator<Item = String>) -> Texts {
        let mut all = Texts::default();
        for text in texts {
            all.count += 1;
            all.bytes.extend(text.into_bytes());
            all.bytes.push(0);
        }
        all
    }

    /// Returns the eight bytes starting at `at`, little-endian, padding with zeros after the last text.
    fn eight(&self, at: u32) -> u64 {
        let rest = self.bytes.get(at as usize..).unwrap_or_default();
        let mut eight = [0; 8];
        for (byte, known) in eight.iter_mut().zip(rest) {
            *byte = *known;
        }
        u64::from_le_bytes(eight)
    }
}

/// State of a call holding its program's texts.
pub(crate) trait HasProgramTexts: WasiView + 'static {
    fn program_texts(&mut self) -> &mut ProgramTexts;
}

/// Defines the functions imported by the adapter.
pub(crate) fn add_program_input<T: HasProgramTexts>(
    linker: &mut Linker<T>,
) -> wasmtime::Result<()> {
    let mut functions = linker.instance(PROGRAM_INPUT)?;
    functions.func_wrap(
        "count",
        |mut store: StoreContextMut<'_, T>, (variables,): (bool,)| {
            Ok((texts(store.data_mut(), variables)?.count,))
        },
    )?;
    functions.func_wrap(
        "size",
        |mut store: StoreContextMut<'_, T>, (variables,): (bool,)| {
            let bytes = texts(store.data_mut(), variables)?.bytes.len();
            Ok((u32::try_from(bytes)?,))
        },
    )?;
    functions.func_wrap(
        "bytes",
        |mut store: StoreContextMut<'_, T>, (variables, at): (bool, u32)| {
            Ok((texts(store.data_mut(), variables)?.eight(at),))
        },
    )
}

fn texts<T: HasProgramTexts>(state: &mut T, variables: bool) -> wasmtime::Result<&Texts> {
    let known = state.program_texts();
    let is_known = if variables {
        known.variables.is_some()
    } else {
        known.arguments.is_some()
    };
    let made = match (is_known, variables) {
        (true, _) => None,
        (false, true) => {
            let variables = state.cli().get_environment()?.into_iter();
            Some(Texts::of(
                variables.map(|(name, value)| format!("{name}={value}")),
            ))
        }
        (false, false) => Some(Texts::of(state.cli().get_arguments()?.into_iter())),
    };
    let known = state.program_texts();
    let slot = if variables {
        &mut known.variables
    } else {
        &mut known.arguments
    };
    if made.is_some() {
        *slot = made;
    }
    Ok(slot.get_or_insert_default())
}
