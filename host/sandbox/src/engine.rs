//! The engines that compile and run guests, and the thread that advances their epochs.
//!
//! There are two engines. A pool makes a fresh instance cheap, and has slots of fixed size. The engine without a pool
//! serves packages that do not fit a slot, and machines without enough address space for the pool.

use std::num::NonZeroUsize;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use campanile_model::text::size_text;
use serde::{Deserialize, Serialize};
use wasmtime::component::Linker;
use wasmtime::{
    Cache, CacheConfig, Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy,
    PoolingAllocationConfig, WasmBacktraceDetails,
};

use crate::code_cache::{CacheDir, CodeCache};
use crate::ledger::{address_space_max, memory_of_machine};
use crate::limits::MEMORY_BYTES_LEAST;
use crate::linker::linker;
use crate::state::HostState;

/// How often a computing guest yields to the host.
pub(crate) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Calls of `describe` that may run beside the tasks. They have their own slots, so that a busy host can still load.
pub(crate) const DESCRIBES_MAX: u32 = 2;

/// A call's share of the pool, within [`ComponentLimits`]. Larger packages are served without the pool.
const MEMORIES_PER_SLOT_MAX: u32 = 2;
const TABLES_PER_SLOT_MAX: u32 = 10;
const TABLE_ELEMENTS_MAX: usize = 100_000;

/// Memory that stays mapped in a slot between two guests. It is cleared and not returned to the kernel.
const MEMORY_KEPT_BYTES: usize = 256 << 10;
const TABLE_KEPT_BYTES: usize = 64 << 10;

/// The part of a call's stack for host calls, beside the guest's.
const HOST_STACK_BYTES: usize = 3 << 20;

/// Limits on an instance of a package, with or without the pool. Larger packages are refused when loading.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ComponentLimits {
    /// Instances of core modules.
    pub core_instances_max: u32,
    pub memories_max: u32,
    pub tables_max: u32,
    /// Host memory for the instances: globals, functions, imports, and the headers of memories and tables. Setting them up takes time
    /// during which a guest can't yield.
    pub instance_bytes_max: u64,
}

impl Default for ComponentLimits {
    fn default() -> ComponentLimits {
        ComponentLimits {
            core_instances_max: 200,
            memories_max: 8,
            tables_max: 40,
            instance_bytes_max: 8 << 20,
        }
    }
}

/// Address space for the host itself: threads, database and compiled code.
const HOST_ADDRESS_SPACE_BYTES: u64 = 4 << 30;

/// The setup of a sandbox.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSettings {
    /// How many calls may run at the same time, at least 1. It sizes the pool of instances.
    pub calls_max: u32,
    /// Threads that run guests, at least 1, apart from those of the scheduler and the database.
    pub guest_threads: usize,
    /// Where compiled code is kept.
    pub code_cache: CodeCache,
    /// The greatest memory limit that a call may have. It sizes the pool's memories.
    pub memory_bytes_max: u64,
    /// The size of a guest's stack. Deeper recursion is a trap.
    pub stack_bytes_max: usize,
    /// Most memory for all loaded code, of which one file may take half.
    pub loaded_bytes_max: u64,
    /// The largest mostly-zero memory image to keep for creating instances. Beyond it, each start copies the data using
    /// compiled code. Only matters when compiling.
    pub sparse_image_bytes_max: u64,
    pub component_limits: ComponentLimits,
    /// Memory for all calls together, counting linear memories, tables and instances.
    pub memory_total_bytes: u64,
}

impl Default for SandboxSettings {
    fn default() -> SandboxSettings {
        SandboxSettings {
            calls_max: 1,
            guest_threads: 1,
            code_cache: CodeCache::None,
            memory_bytes_max: 1 << 30,
            stack_bytes_max: 1 << 20,
            loaded_bytes_max: 1 << 30,
            sparse_image_bytes_max: sparse_image_bytes_max(0),
            component_limits: ComponentLimits::default(),
            memory_total_bytes: memory_of_machine() / 2,
        }
    }
}

/// Returns the largest sparse image for a file of `file_bytes`: the size of the file, within 1 to 16 MiB.
///
/// Capping it at the file's size keeps a tiny file from costing many megabytes. Language engines need their image: they scatter
/// ten thousand pieces of data over megabytes of zeros, and compiling code for copying those takes far more memory.
pub fn sparse_image_bytes_max(file_bytes: u64) -> u64 {
    file_bytes.clamp(1 << 20, 16 << 20)
}

impl SandboxSettings {
    /// Refuses to start with less address space than all calls may reserve, though most of that is never used. Otherwise the host itself
    /// could run out.
    ///
    /// # Errors
    ///
    /// Returns a sentence saying what to do.
    pub fn check_address_space(&self) -> Result<(), String> {
        let of_call = self.memory_bytes_max + (self.stack_bytes_max + HOST_STACK_BYTES) as u64;
        let needed = HOST_ADDRESS_SPACE_BYTES + of_call.saturating_mul(self.calls_max.into());
        match address_space_max() {
            Some(most) if most < needed => Err(format!(
                "the address space of this process is limited to {}, and with {} runs at once of up to {} a host reserves up to {}, most of which it never uses; \
                 start it without that limit (`ulimit -v unlimited`), and bound its memory by a control group, such as `MemoryMax` of its unit, or lower `runs_max` under `[host]` and `memory_max` under `[sandbox]`",
                size_text(most),
                self.calls_max,
                size_text(self.memory_bytes_max),
                size_text(needed),
            )),
            _ => Ok(()),
        }
    }
}

/// The engine could not be set up on this machine.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine could not start: {0}")]
pub struct SandboxError(pub(crate) String);

/// An engine, with everything that a guest may import.
pub(crate) struct LinkedEngine {
    pub(crate) engine: Engine,
    pub(crate) linker: Linker<HostState>,
}

/// The engine with the pool, if the machine allows one, and the engine without, created when it is first needed.
pub(crate) struct Engines {
    pub(crate) pooled: Option<LinkedEngine>,
    on_demand: OnceLock<LinkedEngine>,
    settings: SandboxSettings,
    pub(crate) cache_dir: Option<CacheDir>,
}

impl Engines {
    /// Start the engine with the pool, or the other when the machine does not allow the pool.
    pub(crate) fn new(settings: &SandboxSettings) -> Result<Engines, SandboxError> {
        let cache_dir = CacheDir::open(&settings.code_cache).map_err(SandboxError)?;
        let pooled = LinkedEngine::new(pooled_config(settings), cache_dir.as_ref());
        if let Err(error) = &pooled {
            tracing::warn!(
                %error,
                "this machine does not allow a pool of instances: each call sets up its memory, which costs about 50 µs more"
            );
        }
        let engines = Engines {
            pooled: pooled.ok(),
            on_demand: OnceLock::new(),
            settings: settings.clone(),
            cache_dir,
        };
        if engines.pooled.is_none() {
            engines.on_demand()?;
        }
        Ok(engines)
    }

    /// Starts as if the machine didn't allow the pool.
    #[cfg(test)]
    pub(crate) fn without_pool(settings: &SandboxSettings) -> Result<Engines, SandboxError> {
        let engines = Engines {
            pooled: None,
            on_demand: OnceLock::new(),
            settings: settings.clone(),
            cache_dir: None,
        };
        engines.on_demand()?;
        Ok(engines)
    }

    pub(crate) fn component_limits(&self) -> &ComponentLimits {
        &self.settings.component_limits
    }

    /// Returns the engine without the pool.
    pub(crate) fn on_demand(&self) -> Result<&LinkedEngine, SandboxError> {
        if let Some(engine) = self.on_demand.get() {
            return Ok(engine);
        }
        let engine = LinkedEngine::new(on_demand_config(&self.settings), self.cache_dir.as_ref())?;
        Ok(self.on_demand.get_or_init(|| engine))
    }
}

impl LinkedEngine {
    fn new(mut config: Config, cache_dir: Option<&CacheDir>) -> Result<LinkedEngine, SandboxError> {
        if let Some(dir) = cache_dir {
            let mut cache = CacheConfig::new();
            cache.with_directory(dir.path());
            config.cache(Some(Cache::new(cache).map_err(reason)?));
        }
        let engine = Engine::new(&config).map_err(reason)?;
        let linker = linker(&engine).map_err(reason)?;
        start_ticker(engine.weak())?;
        Ok(LinkedEngine { engine, linker })
    }
}

fn reason(error: wasmtime::Error) -> SandboxError {
    SandboxError(format!("{error:#}"))
}

/// Returns the settings of both engines.
fn config(settings: &SandboxSettings) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(settings.stack_bytes_max)
        .async_stack_size(settings.stack_bytes_max + HOST_STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(32))
        // Names come from the name section. Parsing a guest's DWARF costs too much.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_memory64(false)
        .memory_guaranteed_dense_image_size(settings.sparse_image_bytes_max)
        .concurrency_support(false);
    config
}

fn pooled_config(settings: &SandboxSettings) -> Config {
    let slots = settings.calls_max.saturating_add(DESCRIBES_MAX);
    let limits = &settings.component_limits;
    let memories = limits.memories_max.min(MEMORIES_PER_SLOT_MAX);
    let tables = limits.tables_max.min(TABLES_PER_SLOT_MAX);
    // The engine's own count is exact, but includes its adapters between components.
    let instance_bytes = usize::try_from(limits.instance_bytes_max).unwrap_or(usize::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(limits.core_instances_max))
        .total_memories(slots.saturating_mul(memories))
        .total_tables(slots.saturating_mul(tables))
        .total_stacks(slots)
        .total_gc_heaps(slots)
        .max_core_instances_per_component(limits.core_instances_max)
        .max_memories_per_component(memories)
        .max_memories_per_module(memories)
        .max_tables_per_component(tables)
        .max_tables_per_module(2)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_core_instance_size(instance_bytes)
        .max_component_instance_size(instance_bytes)
        .max_memory_size(memory_bytes(settings))
        .linear_memory_keep_resident(MEMORY_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        // With kernel 6.7 only the pages that a guest wrote are cleared, which halves the cost of a call.
        .pagemap_scan(Enabled::Auto);
    let mut config = config(settings);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Returns the settings without the pool. They reserve little address space; the price is a check at each memory access.
fn on_demand_config(settings: &SandboxSettings) -> Config {
    let mut config = config(settings);
    config
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_reservation(memory_bytes(settings) as u64)
        .memory_guard_size(64 << 10);
    config
}

/// Returns the memory limit in whole pages, within 32 bits of addresses.
fn memory_bytes(settings: &SandboxSettings) -> usize {
    let bytes = settings.memory_bytes_max.clamp(MEMORY_BYTES_LEAST, 4 << 30);
    usize::try_from(bytes.next_multiple_of(MEMORY_BYTES_LEAST)).unwrap_or(usize::MAX)
}

/// Advance the epoch of an engine until the engine is dropped.
///
/// This needs its own thread: computing guests may occupy every thread of the runtime.
fn start_ticker(engine: EngineWeak) -> Result<(), SandboxError> {
    thread::Builder::new()
        .name("campanile-epoch".to_owned())
        .spawn(move || {
            loop {
                thread::sleep(EPOCH_TICK);
                match engine.upgrade() {
                    Some(engine) => engine.increment_epoch(),
                    None => return,
                }
            }
        })
        .map(drop)
        .map_err(|error| SandboxError(format!("the epoch thread did not start: {error}")))
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn settings() -> SandboxSettings {
        SandboxSettings {
            calls_max: 2,
            guest_threads: 1,
            code_cache: CodeCache::None,
            memory_bytes_max: 64 << 20,
            ..SandboxSettings::default()
        }
    }

    #[test]
    fn an_impossible_pool_falls_back_to_on_demand() {
        let engines = Engines::new(&SandboxSettings {
            calls_max: 20_000_000,
            ..settings()
        })
        .unwrap();
        assert!(engines.pooled.is_none());
        assert!(engines.on_demand.get().is_some());
    }

    #[test]
    fn memory_is_sized_in_whole_pages_of_32_bits() {
        let of = |bytes| {
            memory_bytes(&SandboxSettings {
                memory_bytes_max: bytes,
                ..settings()
            })
        };
        assert_eq!(of(0), 65_536);
        assert_eq!(of(65_537), 131_072);
        assert_eq!(of(u64::MAX), 4 << 30);
    }

    #[test]
    fn the_ticker_ends_with_its_engine() {
        let engine = Engine::new(&config(&settings())).unwrap();
        let weak = engine.weak();
        start_ticker(engine.weak()).unwrap();
        drop(engine);
        // The ticker may hold the engine for the length of one increment.
        let until = Instant::now() + Duration::from_secs(5);
        while weak.upgrade().is_some() {
            assert!(Instant::now() < until, "the ticker keeps its engine");
            thread::sleep(EPOCH_TICK);
        }
    }
}
