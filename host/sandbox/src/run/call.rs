//! One call of one task.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_model::clock::Clock;
use wasmtime::Store;
use wasmtime_wasi::I32Exit;

use crate::capability::files::directories;
use crate::capability::shared::Call;
use crate::effects::Crash;
use crate::ledger::Ledger;
use crate::load::artifact::{Code, Entry};
use crate::load::loaded::HeldCode;
use crate::outcome::{Failure, Outcome, Report};
use crate::run::program::Input;
use crate::run::report::report;
use crate::run::time::{bounded, metered};
use crate::run::verdict::{Returned, verdict};
use crate::state::{self, HostState};

/// The reason for a call dropped before it began.
pub(crate) const DROPPED: &str = "the host dropped the call before it began";

/// Waits for what `call` needs from `ledger`, then runs it. Every outcome is in the report.
pub(crate) async fn run(
    held: &HeldCode,
    mut call: Call,
    ledger: Arc<Ledger>,
    clock: Clock,
) -> Report {
    let code = held.code();
    let charge = tokio::select! {
        biased;
        charge = ledger.admit(&call.package, code.footprint, &call.limits) => charge,
        () = call.stop.dropped() => return Report::without_call(Outcome::Cancelled, DROPPED),
    };
    let charge = match charge {
        Ok(charge) => charge,
        Err(why) => {
            let failure = Failure::before_call(Outcome::MemoryExceeded, why);
            return Report::of_failure(failure);
        }
    };
    let started = Instant::now();
    let input = if code.form.is_command() {
        match Input::prepare(&mut call, &ledger).await {
            Ok(input) => Some(input),
            Err(failure) => return Report::of_failure(*failure),
        }
    } else {
        None
    };
    // Preparing a program's input is a part of the call.
    let timeout = call.limits.timeout.saturating_sub(started.elapsed());
    let cpu_max = call.limits.cpu;
    let stop = call.stop.clone();
    let mut store = state::open(code.instance.engine(), (call, charge, ledger), clock, input);
    let mut cpu = Duration::ZERO;
    let ended = {
        // Pinning here saves space: a future takes twice its size when passed on.
        let calling = pin!(call_entry(&mut store, code));
        let metered = pin!(metered(calling, &mut cpu, cpu_max));
        bounded(metered, timeout, &stop).await
    };
    let wall = started.elapsed();
    let state = store.into_data();
    let verdict = if state.shared.effects.have_crashed() {
        Err(Failure::new(Outcome::Cancelled, Crash.to_string()))
    } else {
        verdict(ended, &state)
    };
    report(verdict, state, wall, cpu).await
}

async fn call_entry(store: &mut Store<HostState>, code: &Code) -> wasmtime::Result<Returned> {
    let shared = Arc::clone(&store.data().shared);
    let directories = directories::open(&shared).await?;
    let files = &mut store.data_mut().files;
    files.directories = directories;
    files.has_root = code.opens_paths;
    if code.form.is_command() {
        files.working_directory = shared.call.program.cwd.clone();
    }
    let instance = code.instance.instantiate_async(&mut *store).await?;
    match &code.entry {
        Entry::Task(task) => {
            let guest = task.load(&mut *store, &instance)?;
            let Call { task, context, .. } = &shared.call;
            let returned = guest.call_run(store, task, context).await?;
            Ok(returned.map_or_else(Returned::Failure, Returned::Completion))
        }
        Entry::Command(command) => {
            let guest = command.load(&mut *store, &instance)?;
            match guest.call_run(store).await {
                Ok(returned) => Ok(Returned::Exit(returned.is_err().into())),
                Err(error) => match error.downcast_ref::<I32Exit>() {
                    Some(exit) => Ok(Returned::Exit(exit.0)),
                    None => Err(error),
                },
            }
        }
    }
}
