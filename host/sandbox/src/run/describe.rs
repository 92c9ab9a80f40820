//! The manifest of a package: from its `describe` function, run without any capability, or from the labels of the file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;
use wasmtime::Store;

use crate::bindings::exports::campanile::task::describe::GuestIndices;
use crate::capability::keyvalue::memory::MemoryBuckets;
use crate::grants::Grants;
use crate::limits::Limits;
use crate::load::artifact::{Artifact, Linked};
use crate::load::outline::Labels;
use crate::load::refusal::Refusal;
use crate::run::trap::trap_message;
use crate::run::waiting::{Ended, bounded};
use crate::state::{self, HostState, Opening};
use crate::stop_signal::StopSignal;
use crate::world::{RunFacts, World};
use campanile_model::clock::Clock;
use campanile_model::ids::{LaunchId, RunId};

const TIMEOUT: Duration = Duration::from_secs(1);
const MEMORY_BYTES_MAX: u64 = 32 << 20;
const MANIFEST_BYTES_MAX: usize = 256 << 10;

/// Return the package's manifest, or none when it has neither a `describe` function nor labels.
pub(crate) async fn describe(
    artifact: Arc<Artifact>,
    clock: Clock,
) -> Result<Option<Value>, Refusal> {
    let Some(describe) = &artifact.linked.describe else {
        return Ok(of_labels(&artifact.labels));
    };
    let refuse = |trouble: String| Refusal {
        message: format!("the package's describe() {trouble}"),
    };
    let mut store = open(&artifact.linked, clock);
    let stop = StopSignal::default();
    let calling = call_describe(&mut store, &artifact.linked, describe);
    let ended = bounded(async { Some(calling.await) }, TIMEOUT, &stop).await;
    let text = match ended {
        Ended::Returned(text) => text,
        Ended::Broke(error) => {
            let state = store.data();
            return Err(refuse(match state.memory.refusal() {
                Some(message) => format!("needs too much: {message}"),
                None => format!("broke off: {}", trap_message(&error, &state.stderr.text())),
            }));
        }
        Ended::TimedOut | Ended::CpuSpent | Ended::Dropped => {
            return Err(refuse(format!(
                "did not return within {}; it may only return what it knows, without waiting or computing",
                humantime::format_duration(TIMEOUT)
            )));
        }
    };
    manifest(&text).map(Some).map_err(refuse)
}

fn open(linked: &Linked, clock: Clock) -> Store<HostState> {
    let now = clock.now();
    let opening = Opening {
        task: String::new(),
        facts: RunFacts {
            execution_id: LaunchId(Uuid::nil()),
            run_id: RunId(Uuid::nil()),
            attempt: 1,
            is_recovery: false,
            scheduled_time: now,
            original_scheduled_time: now,
        },
        grants: Arc::new(Grants::default()),
        secrets: Arc::default(),
        limits: &Limits {
            timeout: TIMEOUT,
            memory_bytes_max: MEMORY_BYTES_MAX,
            ..Limits::default()
        },
        world: World::real(Arc::new(MemoryBuckets::default())),
        stop: StopSignal::default(),
        clock,
        program: None,
    };
    state::open(linked.instance.engine(), opening)
}

async fn call_describe(
    store: &mut Store<HostState>,
    linked: &Linked,
    describe: &GuestIndices,
) -> wasmtime::Result<String> {
    let instance = linked.instance.instantiate_async(&mut *store).await?;
    let guest = describe.load(&mut *store, &instance)?;
    guest.call_describe(store).await
}

/// Return the labels under the keys of a manifest.
fn of_labels(labels: &Labels) -> Option<Value> {
    let manifest: Map<String, Value> = [
        ("name", &labels.name),
        ("version", &labels.version),
        ("language", &labels.language),
    ]
    .into_iter()
    .filter_map(|(key, label)| Some((key.to_owned(), label.clone()?.into())))
    .collect();
    (!manifest.is_empty()).then_some(Value::Object(manifest))
}

fn manifest(text: &str) -> Result<Value, String> {
    if text.len() > MANIFEST_BYTES_MAX {
        return Err(format!(
            "returned {} bytes and its limit is {MANIFEST_BYTES_MAX}",
            text.len()
        ));
    }
    match serde_json::from_str(text) {
        Ok(manifest @ Value::Object(_)) => Ok(manifest),
        Ok(_) => Err("returned JSON that is not an object".to_owned()),
        Err(error) => Err(format!("returned a text that is not JSON: {error}")),
    }
}
