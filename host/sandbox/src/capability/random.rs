//! Random bytes: limited, and repeatable where the time is frozen.

use campanile_model::ids::sha256;
use wasmtime::StoreContextMut;
use wasmtime::component::Linker;
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::{Deterministic, WasiCtxBuilder, WasiView};

use crate::capability::shared::Shared;
use crate::limits::Resource;
use crate::world::Time;

/// The names in wasmtime-wasi; a test notices when they change.
const RANDOM: &str = "wasi:random/random@0.2.12";
const INSECURE: &str = "wasi:random/insecure@0.2.12";

/// Mixed into the seed of repeatable random bytes: the seed of a hash map needs some variety.
const SEED: &[u8] = b"campanile: repeatable random bytes";

/// Make random bytes repeatable where the time is frozen, and leave their limit to [`limit_random`].
pub(crate) fn set_random(wasi: &mut WasiCtxBuilder, time: Time) {
    wasi.max_random_size(u64::MAX);
    if let (Time::Frozen(now), Some(seed)) = (time, random_seed(time)) {
        let same = || Deterministic::new(seed.clone());
        wasi.secure_random(same())
            .insecure_random(same())
            .insecure_random_seed(u128::from(now.micros().unsigned_abs()));
    }
}

/// Returns the seed for repeatable bytes, used while time is frozen.
pub(crate) fn random_seed(time: Time) -> Option<Vec<u8>> {
    match time {
        // Hashed as a whole, since guests take just the first bytes.
        Time::Frozen(now) => {
            Some(sha256(&[SEED, &now.micros().to_le_bytes()].concat()).into_bytes())
        }
        _ => None,
    }
}

/// Check the limit before each function that returns random bytes.
pub(crate) fn limit_random<T: WasiView>(
    linker: &mut Linker<T>,
    of: fn(&mut T) -> &Shared,
) -> wasmtime::Result<()> {
    linker.instance(RANDOM)?.func_wrap(
        "get-random-bytes",
        move |mut store: StoreContextMut<'_, T>, (bytes,): (u64,)| {
            spend(of(store.data_mut()), bytes)?;
            let source = store.data_mut().ctx().ctx.random();
            Ok((random::Host::get_random_bytes(source, bytes)?,))
        },
    )?;
    linker.instance(INSECURE)?.func_wrap(
        "get-insecure-random-bytes",
        move |mut store: StoreContextMut<'_, T>, (bytes,): (u64,)| {
            spend(of(store.data_mut()), bytes)?;
            let source = store.data_mut().ctx().ctx.random();
            Ok((insecure::Host::get_insecure_random_bytes(source, bytes)?,))
        },
    )
}

/// Spends `bytes` of the limit.
///
/// # Errors
/// Returns an error if less is left, ending the task.
pub(crate) fn spend(shared: &Shared, bytes: u64) -> wasmtime::Result<()> {
    if shared.spend(Resource::Random, bytes) {
        return Ok(());
    }
    let message = format!(
        "the task asked for more than {} random bytes; {}",
        shared.limit(Resource::Random),
        Resource::Random.raise()
    );
    shared.exceed(message.clone());
    Err(wasmtime::Error::msg(message))
}
