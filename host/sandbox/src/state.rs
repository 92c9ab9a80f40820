//! The host's state of one call: the state of each capability, and the store that holds them.

use std::sync::Arc;

use campanile_model::clock::Clock;
use wasmtime::component::ResourceTable;
use wasmtime::{Engine, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use crate::capability::clock::set_clock;
use crate::capability::config::set_variables;
use crate::capability::files::state::{Files, FilesView, HasFiles};
use crate::capability::http::gate::HttpGate;
use crate::capability::keyvalue::host::KeyValueView;
use crate::capability::logs::Logs;
use crate::capability::outbox::host::OutboxView;
use crate::capability::program_input::{HasProgramTexts, ProgramTexts};
use crate::capability::random::set_random;
use crate::capability::run_info::RunInfo;
use crate::capability::shared::{Call, Shared};
use crate::capability::sockets::Sockets;
use crate::capability::stdio::Capture;
use crate::ledger::{Charge, Ledger};
use crate::memory::MemoryMeter;
use crate::run::program::Input;
use crate::uncommitted::Uncommitted;

/// The most bytes of headers in one request. Servers commonly refuse more than 8 or 16 KiB.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// The host's state of one call.
pub(crate) struct HostState {
    pub(crate) shared: Arc<Shared>,
    pub(crate) run_info: RunInfo,
    pub(crate) stdout: Capture,
    pub(crate) stderr: Capture,
    pub(crate) files: Files,
    pub(crate) sockets: Sockets,
    pub(crate) memory: MemoryMeter,
    pub(crate) uncommitted: Uncommitted,
    program_texts: ProgramTexts,
    /// Bytes taken by the program's own arguments and variables, see [`Input::bytes`].
    pub(crate) input_bytes: usize,
    http_gate: HttpGate,
    http: WasiHttpCtx,
    wasi: WasiCtx,
    table: ResourceTable,
}

/// Create the store of one call, with every limit set. Opening its directories takes time and follows later. `clock`
/// dates the log lines and the deadline.
///
/// `input` is that of a program; a typed task gets its context as an argument.
pub(crate) fn open(
    engine: &Engine,
    (call, charge, ledger): (Call, Charge, Arc<Ledger>),
    clock: Clock,
    input: Option<Input>,
) -> Store<HostState> {
    let limits = call.limits.clone();
    let mut store = Store::new(engine, HostState::new((call, charge, ledger), clock, input));
    store.limiter(|state| &mut state.memory);
    store.set_hostcall_fuel(limits.list_bytes_max());
    store.set_max_component_handles(limits.handles_max);
    store.set_epoch_deadline(1);
    // The future of the call checks its deadline and its stop signal each time the guest yields.
    store.epoch_deadline_callback(|_| {
        let yielded = Box::pin(tokio::task::yield_now());
        Ok(UpdateDeadline::YieldCustom(1, yielded))
    });
    store
}

impl HostState {
    fn new(
        (call, charge, ledger): (Call, Charge, Arc<Ledger>),
        clock: Clock,
        input: Option<Input>,
    ) -> HostState {
        let shared = Arc::new(Shared::new(call, ledger, clock.now()));
        let Call { limits, world, .. } = &shared.call;
        let stdout = match &input {
            Some(_) => Capture::of_program(limits, &shared.kept),
            None => Capture::new(limits, &shared.kept),
        };
        let stderr = Capture::new(limits, &shared.kept);
        let input_bytes = input.as_ref().map_or(0, Input::bytes);
        let sockets = Sockets::new(shared.clone());
        let mut wasi = WasiCtxBuilder::new();
        wasi.stdout(stdout.clone()).stderr(stderr.clone());
        set_clock(&mut wasi, world.time);
        set_random(&mut wasi, world.time);
        set_variables(&mut wasi, &shared);
        sockets.set_check(&mut wasi);
        if let Some(input) = input {
            input.set(&mut wasi, &shared);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(limits.handles_max);
        let mut http = WasiHttpCtx::new();
        http.set_field_size_limit(HEADER_BYTES_MAX);
        HostState {
            run_info: RunInfo {
                logs: Logs::new(clock, limits.log_bytes_max, &shared.kept),
                shared: shared.clone(),
            },
            stdout,
            stderr,
            files: Files::new(shared.clone()),
            sockets,
            memory: MemoryMeter::new(limits, charge),
            uncommitted: Uncommitted::default(),
            program_texts: ProgramTexts::default(),
            input_bytes,
            http_gate: HttpGate(shared.clone()),
            http,
            wasi: wasi.build(),
            table,
            shared,
        }
    }

    pub(crate) fn keyvalue(&mut self) -> KeyValueView<'_> {
        KeyValueView {
            shared: &self.shared,
            uncommitted: &mut self.uncommitted,
            table: &mut self.table,
        }
    }

    pub(crate) fn outbox(&mut self) -> OutboxView<'_> {
        OutboxView {
            shared: &self.shared,
            uncommitted: &mut self.uncommitted,
        }
    }
}

impl HasFiles for HostState {
    fn files(&mut self) -> FilesView<'_> {
        FilesView {
            files: &mut self.files,
            table: &mut self.table,
        }
    }
}

impl HasProgramTexts for HostState {
    fn program_texts(&mut self) -> &mut ProgramTexts {
        &mut self.program_texts
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
