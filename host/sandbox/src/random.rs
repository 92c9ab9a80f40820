//! Random bytes, counted.

use wasmtime::StoreContextMut;
use wasmtime::component::Linker;
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::p2::bindings::random::{insecure, random};

use super::Resource;
use super::store::HostState;

/// As wasmtime-wasi names them; a test notices when that changes.
const RANDOM: &str = "wasi:random/random@0.2.12";
const INSECURE: &str = "wasi:random/insecure@0.2.12";

/// Put a count before what gives random bytes.
pub(super) fn hold_random(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    linker.instance(RANDOM)?.func_wrap(
        "get-random-bytes",
        |mut store: StoreContextMut<'_, HostState>, (bytes,): (u64,)| {
            let state = store.data_mut();
            take(state, bytes)?;
            let source = state.ctx().ctx.random();
            Ok((random::Host::get_random_bytes(source, bytes)?,))
        },
    )?;
    linker.instance(INSECURE)?.func_wrap(
        "get-insecure-random-bytes",
        |mut store: StoreContextMut<'_, HostState>, (bytes,): (u64,)| {
            let state = store.data_mut();
            take(state, bytes)?;
            let source = state.ctx().ctx.random();
            Ok((insecure::Host::get_insecure_random_bytes(source, bytes)?,))
        },
    )
}

fn take(state: &HostState, bytes: u64) -> wasmtime::Result<()> {
    let random = &state.gauges.random;
    if random.take(bytes) {
        return Ok(());
    }
    let message = format!(
        "the task asked for more than {} random bytes; {}",
        random.limit,
        Resource::Random.raise()
    );
    state.exceeded.record(message.clone());
    Err(wasmtime::Error::msg(message))
}
