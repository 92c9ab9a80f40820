//! The state of one call on the host's side, and its limits.

use std::collections::HashMap;
use std::sync::Arc;

use wasmtime::component::ResourceTable;
use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtx, WasiCtxView, WasiView};
use wasmtime_wasi_http::{WasiHttpCtx, WasiHttpCtxView, WasiHttpView};

use super::command::Program;
use super::directories::Granted;
use super::effects::Effects;
use super::gauges::Gauges;
use super::grants::{self, Denial};
use super::http::{HttpGate, Turns};
use super::logs::Logs;
use super::missed::Missed;
use super::open_files::OpenFiles;
use super::sockets::SocketGate;
use super::stdio::Capture;
use super::{
    Buckets, Grants, Limits, Network, Resource, RunFacts, Secrets, Share, StopSignal, World,
};
use campanile_model::clock::{Clock, Timestamp};

/// Of the headers of one request; servers commonly refuse more than 8 or 16 KiB.
const HEADER_BYTES_MAX: usize = 16 << 10;

/// Everything the host keeps for a call while it lasts.
pub(super) struct HostState {
    pub(super) task: String,
    pub(super) facts: RunFacts,
    pub(super) deadline: Timestamp,
    pub(super) grants: Arc<Grants>,
    pub(super) stop: StopSignal,
    pub(super) clock: Clock,
    pub(super) logs: Logs,
    pub(super) stdout: Capture,
    pub(super) stderr: Capture,
    pub(super) denial: Denial,
    pub(super) meter: Meter,
    pub(super) gauges: Gauges,
    /// The first limit that something was refused for, other than those of the meter.
    pub(super) exceeded: Denial,
    pub(super) open_files: OpenFiles,
    /// Of each open file and directory, the guest's path.
    pub(super) paths: HashMap<u32, String>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) buckets: Arc<dyn Buckets>,
    pub(super) effects: Effects,
    pub(super) host_call_bytes_max: usize,
    pub(super) keyvalue_bytes_max: u64,
    pub(super) keyvalue_value_bytes_max: u64,
    /// Empty until they are opened.
    pub(super) directories: Vec<Granted>,
    /// What it wanted of directories and was not granted.
    pub(super) missed: Missed,
    wasi: WasiCtx,
    resources: ResourceTable,
    http: WasiHttpCtx,
    gate: HttpGate,
    pub(super) socket_gate: SocketGate,
}

/// What [`open`] needs to know of a call.
pub(super) struct Opening<'a> {
    pub(super) task: String,
    pub(super) facts: RunFacts,
    pub(super) grants: Arc<Grants>,
    pub(super) secrets: Arc<Secrets>,
    pub(super) limits: &'a Limits,
    pub(super) world: World,
    pub(super) stop: StopSignal,
    pub(super) clock: Clock,
    /// None for a call of a function, which gets its context as an argument.
    pub(super) program: Option<Program>,
}

/// A store for one call, with every limit set. Its directories are still to be opened, which takes time.
pub(super) fn open(engine: &Engine, opening: Opening<'_>) -> Store<HostState> {
    let Opening {
        task,
        facts,
        grants,
        secrets,
        limits,
        world,
        stop,
        clock,
        program,
    } = opening;
    let deadline = clock.now().plus(limits.timeout);
    let stdout = match &program {
        Some(_) => Capture::of_program(limits.stdio_bytes_max, limits.output_bytes_max),
        None => Capture::new(limits.stdio_bytes_max),
    };
    let stderr = Capture::new(limits.stdio_bytes_max);
    let denial = Denial::default();
    let gauges = Gauges::new(limits);
    let exceeded = Denial::default();
    let effects = Effects::new(world.observer);
    let turns = Turns::default();
    let is_real = matches!(world.network, Network::Real);
    let socket_gate = SocketGate::new(grants.clone(), is_real, turns.clone(), denial.clone());
    let sockets = socket_gate.clone();
    let mut wasi = grants::wasi_context(&grants, &secrets, &stdout, &stderr, world.time, sockets);
    if let Some(program) = program {
        program.tell(&mut wasi, &task, &facts, deadline);
    }
    let mut resources = ResourceTable::new();
    resources.set_max_capacity(limits.handles_max);
    let mut http = WasiHttpCtx::new();
    http.set_field_size_limit(HEADER_BYTES_MAX);
    let gate = HttpGate {
        grants: grants.clone(),
        stop: stop.clone(),
        denial: denial.clone(),
        exceeded: exceeded.clone(),
        network: world.network,
        effects: effects.clone(),
        turns,
        requests: gauges.http_requests.clone(),
        response_bytes: gauges.http_response.clone(),
        wait_max: limits.http_wait.min(limits.timeout),
    };
    let state = HostState {
        task,
        facts,
        deadline,
        grants,
        stop,
        clock,
        logs: Logs::new(limits.log_bytes_max),
        stdout,
        stderr,
        denial,
        meter: Meter::new(limits),
        open_files: OpenFiles::new(gauges.open_files.clone()),
        gauges,
        exceeded,
        paths: HashMap::new(),
        secrets,
        buckets: world.buckets,
        effects,
        host_call_bytes_max: limits.host_call_bytes_max,
        keyvalue_bytes_max: limits.keyvalue_bytes_max,
        keyvalue_value_bytes_max: limits.keyvalue_value_bytes_max,
        directories: Vec::new(),
        missed: Missed::default(),
        wasi: wasi.build(),
        resources,
        http,
        gate,
        socket_gate,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| &mut state.meter);
    // An output that is somewhat too large is to be told as that.
    let output_bytes = limits.output_bytes_max.saturating_mul(4);
    store.set_hostcall_fuel(limits.host_call_bytes_max.max(output_bytes));
    store.set_max_component_handles(limits.handles_max);
    store.set_epoch_deadline(1);
    // Whoever awaits the call looks at its deadline and its stop signal each time the guest yields.
    store.epoch_deadline_callback(|_| {
        Ok(UpdateDeadline::YieldCustom(
            1,
            Box::pin(tokio::task::yield_now()),
        ))
    });
    store
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.wasi,
            table: &mut self.resources,
        }
    }
}

impl WasiHttpView for HostState {
    fn http(&mut self) -> WasiHttpCtxView<'_> {
        WasiHttpCtxView {
            hooks: &mut self.gate,
            table: &mut self.resources,
            ctx: &mut self.http,
        }
    }
}

/// Counts what a guest holds, over all its memories and tables, and refuses what is too much.
pub(super) struct Meter {
    memory: Growth,
    tables: Growth,
}

struct Growth {
    used: u64,
    peak: u64,
    max: u64,
    /// The growth last allowed, to be taken back when it fails after all.
    last: u64,
    refused: Option<u64>,
}

impl Meter {
    fn new(limits: &Limits) -> Meter {
        let growth = |max| Growth {
            used: 0,
            peak: 0,
            max,
            last: 0,
            refused: None,
        };
        Meter {
            memory: growth(limits.memory_bytes_max),
            tables: growth(limits.table_elements_max),
        }
    }

    /// The greatest sum of the linear memories so far, in bytes.
    pub(super) fn memory_peak_bytes(&self) -> u64 {
        self.memory.peak
    }

    /// Of memory and of tables.
    pub(super) fn shares(&self) -> [Share; 2] {
        let share = |resource, growth: &Growth| Share {
            resource,
            used: growth.peak,
            limit: growth.max,
        };
        [
            share(Resource::Memory, &self.memory),
            share(Resource::TableElements, &self.tables),
        ]
    }

    /// What was refused, as one sentence, if anything was.
    pub(super) fn refusal(&self) -> Option<String> {
        if let Some(wanted) = self.memory.refused {
            return Some(format!(
                "the task wanted {} of memory and its limit is {}; {}, or use less",
                size(wanted),
                size(self.memory.max),
                Resource::Memory.raise(),
            ));
        }
        self.tables.refused.map(|wanted| {
            format!(
                "the task wanted tables of {wanted} elements and its limit is {}; {}, or use less",
                self.tables.max,
                Resource::TableElements.raise(),
            )
        })
    }
}

fn size(bytes: u64) -> bytesize::Display {
    bytesize::ByteSize(bytes).display().iec()
}

impl Growth {
    fn grow(&mut self, current: usize, desired: usize) -> bool {
        let more = desired.saturating_sub(current) as u64;
        let wanted = self.used.saturating_add(more);
        if wanted > self.max {
            self.refused = Some(wanted);
            self.last = 0;
            return false;
        }
        self.used = wanted;
        self.peak = self.peak.max(wanted);
        self.last = more;
        true
    }

    fn take_back(&mut self) {
        self.used -= std::mem::take(&mut self.last);
    }
}

impl ResourceLimiter for Meter {
    fn memory_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.memory.grow(current, desired))
    }

    fn memory_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.memory.take_back();
        Ok(())
    }

    fn table_growing(
        &mut self,
        current: usize,
        desired: usize,
        _: Option<usize>,
    ) -> wasmtime::Result<bool> {
        Ok(self.tables.grow(current, desired))
    }

    fn table_grow_failed(&mut self, _: wasmtime::Error) -> wasmtime::Result<()> {
        self.tables.take_back();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meter(memory_bytes_max: u64) -> Meter {
        Meter::new(&Limits {
            memory_bytes_max,
            ..Limits::default()
        })
    }

    #[test]
    fn memories_are_counted_together() {
        let mut meter = meter(300);
        assert!(meter.memory_growing(0, 100, None).unwrap());
        assert!(meter.memory_growing(0, 100, None).unwrap());
        assert!(meter.memory_growing(100, 200, None).unwrap());
        assert_eq!(meter.refusal(), None);
        assert!(!meter.memory_growing(100, 101, None).unwrap());
        assert_eq!(meter.memory_peak_bytes(), 300);
        assert!(meter.refusal().unwrap().contains("wanted 301 B"));
    }

    #[test]
    fn growth_that_failed_after_all_is_not_held_against_the_task() {
        let mut meter = meter(300);
        assert!(meter.memory_growing(0, 200, None).unwrap());
        assert!(meter.memory_growing(200, 300, None).unwrap());
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        // A second report of the same failure, or one of a growth that was never allowed, takes nothing more.
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        assert!(meter.memory_growing(200, 300, None).unwrap());
        assert!(!meter.memory_growing(300, 301, None).unwrap());
        meter
            .memory_grow_failed(wasmtime::Error::msg("no"))
            .unwrap();
        assert_eq!(meter.memory.used, 300);
    }
}
