//! The host's state of one call: the state of each capability, and the store that holds them.

use std::sync::Arc;

use campanile_model::clock::Clock;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::capability::clock::set_clock;
use crate::capability::config::{Config, set_variables};
use crate::capability::files::state::{Files, FilesView};
use crate::capability::http::gate::HttpGate;
use crate::capability::keyvalue::host::{KeyValue, KeyValueView};
use crate::capability::logs::Logs;
use crate::capability::random::set_random;
use crate::capability::run_info::{RunInfo, RunInfoView};
use crate::capability::shared::Shared;
use crate::capability::sockets::Sockets;
use crate::capability::stdio::Capture;
use crate::effects::Effects;
use crate::grants::Grants;
use crate::limits::Limits;
use crate::memory::MemoryMeter;
use crate::run::program::Program;
use crate::secrets::Secrets;
use crate::stop_signal::StopSignal;
use crate::world::{RunFacts, World};

/// The most bytes of headers in one request. Servers commonly refuse more than 8 or 16 KiB.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// The host's state of one call.
pub(crate) struct HostState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run_info: RunInfo,
    pub(crate) logs: Logs,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) files: Files,
    pub(crate) sockets: Sockets,
    pub(crate) memory: MemoryMeter,
    keyvalue: KeyValue,
    http_gate: HttpGate,
    http: WasiHttpCtx,
    wasi: WasiCtx,
    table: ResourceTable,
}

/// The settings of the store of one call.
pub(crate) struct Opening<'a> {
    pub(crate) task: String,
    pub(crate) facts: RunFacts,
    pub(crate) grants: Arc<Grants>,
    pub(crate) secrets: Arc<Secrets>,
    pub(crate) limits: &'a Limits,
    pub(crate) world: World,
    pub(crate) stop: StopSignal,
    pub(crate) clock: Clock,
    /// None for a typed task, which gets its context as an argument.
    pub(crate) program: Option<Program>,
}

/// Create the store of one call, with every limit set. Opening its directories takes time and follows later.
pub(crate) fn open(engine: &Engine, opening: Opening<'_>) -> Store<HostState> {
    let limits = opening.limits;
    let host_call_bytes_max = limits.host_call_bytes_max;
    // A result that is only somewhat too large should be reported as such.
    let output_bytes = limits.output_bytes_max.saturating_mul(4);
    let handles_max = limits.handles_max;
    let mut store = Store::new(engine, HostState::new(opening));
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(host_call_bytes_max.max(output_bytes));
    store.set_max_component_handles(handles_max);
    store.set_epoch_deadline(1);
    // The future of the call checks its deadline and its stop signal each time the guest yields.
    store.epoch_deadline_callback(|_| {
        Ok(UpdateDeadline::YieldCustom(
            1,
            Box::pin(tokio::task::yield_now()),
        ))
    });
    store
}

impl HostState {
    fn new(opening: Opening<'_>) -> HostState {
        let (limits, world) = (opening.limits, opening.world);
        let shared = Arc::new(Shared::new(
            opening.grants,
            opening.secrets,
            limits,
            world.network,
            opening.stop,
            Effects::new(world.observer),
        ));
        let run_info = RunInfo {
            task: opening.task,
            facts: opening.facts,
            deadline: opening.clock.now().plus(limits.timeout),
            shared: shared.clone(),
        };
        let stdout = match &opening.program {
            Some(_) => Capture::of_program(limits),
            None => Capture::new(limits.stdio_bytes_max),
        };
        let stderr = Capture::new(limits.stdio_bytes_max);
        let sockets = Sockets::new(shared.clone());
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout.clone()).stderr(stderr.clone());
        set_clock(&mut wasi, world.time);
        set_random(&mut wasi, world.time);
        set_variables(&mut wasi, &shared);
        sockets.set_check(&mut wasi);
        if let Some(program) = opening.program {
            program.start_with(&mut wasi, &run_info);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles_max);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HEADER_BYTES_MAX);
        HostState {
            run_info,
            logs: Logs::new(opening.clock, limits.log_bytes_max),
            stdout,
            stderr,
            files: Files::new(shared.clone()),
            sockets,
            memory: MemoryMeter::new(limits),
            keyvalue: KeyValue {
                shared: shared.clone(),
                buckets: world.buckets,
            },
            http_gate: HttpGate(shared.clone()),
            http,
            wasi: wasi.build(),
            table,
            shared,
        }
    }

    pub(crate) fn config(&mut self) -> Config<'_> {
        Config(&self.shared)
    }

    pub(crate) fn run_info(&mut self) -> RunInfoView<'_> {
        RunInfoView {
            info: &self.run_info,
            logs: &mut self.logs,
        }
    }

    pub(crate) fn keyvalue(&mut self) -> KeyValueView<'_> {
        KeyValueView {
            state: &self.keyvalue,
            table: &mut self.table,
        }
    }

    pub(crate) fn files(&mut self) -> FilesView<'_> {
        FilesView {
            files: &mut self.files,
            table: &mut self.table,
        }
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.table,
        }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.http_gate,
            table: &mut self.table,
            ctx: &mut self.http,
        }
    }
}
