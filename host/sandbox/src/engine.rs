//! The engines that compile and run guests, and the thread that keeps their epochs moving.
//!
//! There are two, because the pool that makes a fresh instance cheap has fixed slots: a package that
//! does not fit its slots, or a machine that will not give it address space, is served on demand.

use std::fs;
use std::num::NonZeroUsize;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use wasmtime::component::Linker;
use wasmtime::{
    Cache, CacheConfig, Config, Enabled, Engine, EngineWeak, InstanceAllocationStrategy,
    PoolingAllocationConfig, WasmBacktraceDetails,
};

use super::imports;
use super::store::HostState;
use super::{SandboxError, SandboxSettings};

/// How often a guest that computes is asked whether it may go on.
pub(super) const EPOCH_TICK: Duration = Duration::from_millis(10);

/// Calls of `describe` that may run beside the tasks, with slots of their own so that a full tower can still load.
pub(super) const DESCRIBES_MAX: u32 = 2;

/// What one call may take from the pool. More than this is served on demand.
const CORE_INSTANCES_PER_CALL_MAX: u32 = 200;
const MEMORIES_PER_CALL_MAX: u32 = 2;
const TABLES_PER_CALL_MAX: u32 = 10;
const TABLE_ELEMENTS_MAX: usize = 100_000;
const INSTANCE_METADATA_BYTES_MAX: usize = 10 << 20;

/// Memory that stays mapped in a slot between two guests: cleared by hand rather than given back to the kernel.
const MEMORY_KEPT_BYTES: usize = 256 << 10;
const TABLE_KEPT_BYTES: usize = 64 << 10;

/// What of a call's stack host calls may use, beside the guest's own.
const HOST_STACK_BYTES: usize = 3 << 20;

/// An engine, and everything a guest may import defined for it once.
pub(super) struct Workshop {
    pub(super) engine: Engine,
    pub(super) linker: Linker<HostState>,
}

/// The engine with the pool, if this machine can have one, and the one without, made when it is first needed.
pub(super) struct Engines {
    pooled: Option<Workshop>,
    on_demand: OnceLock<Workshop>,
    settings: SandboxSettings,
    cache_dir: Option<PathBuf>,
}

impl Engines {
    /// Start the pooled engine, or the other when the pool cannot be had.
    pub(super) fn new(settings: &SandboxSettings) -> Result<Engines, SandboxError> {
        let cache_dir = match &settings.cache_dir {
            Some(dir) => Some(private_dir(dir)?),
            None => None,
        };
        let pooled = Workshop::new(pooled_config(settings), cache_dir.as_deref());
        let engines = Engines {
            pooled: match pooled {
                Ok(workshop) => Some(workshop),
                Err(error) => {
                    tracing::warn!(
                        %error,
                        "no pool of instances on this machine: every call sets up its own memory, which costs about 50 µs more"
                    );
                    None
                }
            },
            on_demand: OnceLock::new(),
            settings: settings.clone(),
            cache_dir,
        };
        if engines.pooled.is_none() {
            engines.on_demand()?;
        }
        Ok(engines)
    }

    /// The engine with the pool.
    pub(super) fn pooled(&self) -> Option<&Workshop> {
        self.pooled.as_ref()
    }

    /// The engine without a pool.
    pub(super) fn on_demand(&self) -> Result<&Workshop, SandboxError> {
        if let Some(workshop) = self.on_demand.get() {
            return Ok(workshop);
        }
        let workshop = Workshop::new(on_demand_config(&self.settings), self.cache_dir.as_deref())?;
        Ok(self.on_demand.get_or_init(|| workshop))
    }
}

impl Workshop {
    fn new(mut config: Config, cache_dir: Option<&Path>) -> Result<Workshop, SandboxError> {
        if let Some(dir) = cache_dir {
            let mut cache = CacheConfig::new();
            cache.with_directory(dir);
            config.cache(Some(Cache::new(cache).map_err(reason)?));
        }
        let engine = Engine::new(&config).map_err(reason)?;
        let linker = imports::linker(&engine).map_err(reason)?;
        tick(engine.weak())?;
        Ok(Workshop { engine, linker })
    }
}

fn reason(error: wasmtime::Error) -> SandboxError {
    SandboxError(format!("{error:#}"))
}

/// What both engines share.
fn config(settings: &SandboxSettings) -> Config {
    let mut config = Config::new();
    config
        .epoch_interruption(true)
        .max_wasm_stack(settings.stack_bytes_max)
        .async_stack_size(settings.stack_bytes_max + HOST_STACK_BYTES)
        .wasm_backtrace_max_frames(NonZeroUsize::new(32))
        // Names come from the name section; a guest's DWARF is not worth parsing on the host.
        .wasm_backtrace_details(WasmBacktraceDetails::Disable)
        .wasm_memory64(false)
        .concurrency_support(false);
    config
}

fn pooled_config(settings: &SandboxSettings) -> Config {
    let slots = settings.calls_max.saturating_add(DESCRIBES_MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(slots)
        .total_core_instances(slots.saturating_mul(CORE_INSTANCES_PER_CALL_MAX))
        .total_memories(slots.saturating_mul(MEMORIES_PER_CALL_MAX))
        .total_tables(slots.saturating_mul(TABLES_PER_CALL_MAX))
        .total_stacks(slots)
        .total_gc_heaps(slots)
        .max_core_instances_per_component(CORE_INSTANCES_PER_CALL_MAX)
        .max_memories_per_component(MEMORIES_PER_CALL_MAX)
        .max_memories_per_module(2)
        .max_tables_per_component(TABLES_PER_CALL_MAX)
        .max_tables_per_module(2)
        .table_elements(TABLE_ELEMENTS_MAX)
        .max_core_instance_size(INSTANCE_METADATA_BYTES_MAX)
        .max_component_instance_size(INSTANCE_METADATA_BYTES_MAX)
        .max_memory_size(memory_bytes(settings))
        .linear_memory_keep_resident(MEMORY_KEPT_BYTES)
        .table_keep_resident(TABLE_KEPT_BYTES)
        // Where the kernel has it (6.7), only the pages that a guest wrote are cleared: half the cost of a call.
        .pagemap_scan(Enabled::Auto);
    let mut config = config(settings);
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    config
}

/// Reserves little address space, so that it also works where the pool could not be had; the price is an
/// explicit check at every access to memory.
fn on_demand_config(settings: &SandboxSettings) -> Config {
    let mut config = config(settings);
    config
        .allocation_strategy(InstanceAllocationStrategy::OnDemand)
        .memory_reservation(memory_bytes(settings) as u64)
        .memory_guard_size(64 << 10);
    config
}

/// The settings' memory limit in whole pages, within what 32 bits can address.
fn memory_bytes(settings: &SandboxSettings) -> usize {
    const PAGE_BYTES: u64 = 64 << 10;
    let bytes = settings.memory_bytes_max.clamp(PAGE_BYTES, 4 << 30);
    usize::try_from(bytes.next_multiple_of(PAGE_BYTES)).unwrap_or(usize::MAX)
}

/// Keep the epoch of an engine moving until the engine is gone.
///
/// A thread of its own: guests that compute may hold every thread of the runtime.
fn tick(engine: EngineWeak) -> Result<(), SandboxError> {
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

/// Make `dir` and keep everybody else out: what lies there is native code that this process will run.
fn private_dir(dir: &Path) -> Result<PathBuf, SandboxError> {
    let made = fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(dir)
        .and_then(|()| fs::set_permissions(dir, fs::Permissions::from_mode(0o700)))
        .and_then(|()| dir.canonicalize());
    made.map_err(|error| {
        SandboxError(format!(
            "the directory {} for compiled code cannot be made private: {error}; choose another one",
            dir.display()
        ))
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    fn settings() -> SandboxSettings {
        SandboxSettings {
            calls_max: 2,
            guest_threads: 1,
            cache_dir: None,
            memory_bytes_max: 64 << 20,
            stack_bytes_max: 1 << 20,
        }
    }

    #[test]
    fn an_impossible_pool_falls_back_to_on_demand() {
        let engines = Engines::new(&SandboxSettings {
            calls_max: 20_000_000,
            ..settings()
        })
        .unwrap();
        assert!(engines.pooled().is_none());
        assert!(engines.on_demand.get().is_some());
    }

    #[test]
    fn the_cache_directory_is_closed_to_others() {
        let parent = tempfile::tempdir().unwrap();
        let dir = parent.path().join("deep/cache");
        fs::create_dir_all(&dir).unwrap();
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).unwrap();
        Engines::new(&SandboxSettings {
            cache_dir: Some(dir.clone()),
            ..settings()
        })
        .unwrap();
        let mode = fs::metadata(&dir).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o700);
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
        tick(engine.weak()).unwrap();
        drop(engine);
        // The ticker may hold the engine for the length of one increment.
        let until = Instant::now() + Duration::from_secs(5);
        while weak.upgrade().is_some() {
            assert!(Instant::now() < until, "the ticker keeps its engine");
            thread::sleep(EPOCH_TICK);
        }
    }
}
