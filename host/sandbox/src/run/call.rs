//! One call of one task.

use std::sync::Arc;
use std::time::{Duration, Instant};

use campanile_model::clock::Clock;
use wasmtime::Store;
use wasmtime_wasi::I32Exit;

use crate::capability::files::directories;
use crate::capability::shared::CallSettings;
use crate::effects::Crash;
use crate::grants::{Grants, Secrets};
use crate::limits::Limits;
use crate::load::artifact::{Artifact, Entry, Linked};
use crate::outcome::{Failure, Outcome, Report};
use crate::run::report::report;
use crate::run::time::{bounded, metered};
use crate::run::verdict::{Returned, verdict};
use crate::state::{self, HostState};
use crate::stop_signal::StopSignal;
use crate::world::{RunFacts, World};

/// One call to make.
#[derive(Clone)]
pub struct Call {
    pub artifact: Arc<Artifact>,
    pub task: String,
    /// A JSON object, as text.
    pub context: String,
    pub facts: RunFacts,
    pub grants: Arc<Grants>,
    /// The values of the granted secrets.
    pub secrets: Arc<Secrets>,
    pub limits: Limits,
    pub world: World,
    pub stop: StopSignal,
}

/// Make `call`. Every outcome is in the report.
pub(crate) async fn run(call: Call, clock: Clock) -> Report {
    let started = Instant::now();
    let (context, input) = match call.artifact.form.is_command() {
        true => (String::new(), Some(call.context)),
        false => (call.context, None),
    };
    let (timeout, cpu_max) = (call.limits.timeout, call.limits.cpu);
    let settings = CallSettings {
        task: call.task,
        facts: call.facts,
        grants: call.grants,
        secrets: call.secrets,
        limits: call.limits,
        world: call.world,
        stop: call.stop.clone(),
        clock,
    };
    let linked = &call.artifact.linked;
    let mut store = state::open(linked.instance.engine(), settings, input);
    let mut cpu = Duration::ZERO;
    let ended = {
        let calling = call_entry(&mut store, linked, context);
        bounded(metered(calling, &mut cpu, cpu_max), timeout, &call.stop).await
    };
    let wall = started.elapsed();
    let state = store.into_data();
    let verdict = match state.shared.effects.have_crashed() {
        true => Err(Failure::new(Outcome::Cancelled, Crash.to_string())),
        false => verdict(ended, &state),
    };
    report(verdict, state, wall, cpu)
}

async fn call_entry(
    store: &mut Store<HostState>,
    linked: &Linked,
    context: String,
) -> wasmtime::Result<Returned> {
    let shared = Arc::clone(&store.data().shared);
    let directories = directories::open(&shared).await?;
    store.data_mut().files.directories = directories;
    let instance = linked.instance.instantiate_async(&mut *store).await?;
    match &linked.entry {
        Entry::Task(task) => {
            let guest = task.load(&mut *store, &instance)?;
            let task = shared.call.task.as_str();
            let returned = guest.call_run(store, task, &context).await?;
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
