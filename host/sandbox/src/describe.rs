//! Asking a package what it says of itself: its own code, run without any capability, or the labels on the file.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use uuid::Uuid;
use wasmtime::Store;

use super::artifact::Linked;
use super::imports::bindings::exports::campanile::task::describe::GuestIndices;
use super::run::{Ended, bounded};
use super::store::{self, HostState, Opening};
use super::trap::trap_message;
use super::{
    Artifact, Grants, Labels, Limits, MemoryBuckets, Refusal, RunFacts, StopSignal, World,
};
use campanile_model::clock::Clock;
use campanile_model::ids::{LaunchId, RunId};

const TIMEOUT: Duration = Duration::from_secs(1);
const MEMORY_BYTES_MAX: u64 = 32 << 20;
const MANIFEST_BYTES_MAX: usize = 256 << 10;

/// The package's manifest, or none when neither its code nor its file has anything to say.
pub(super) async fn describe(
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
            return Err(refuse(match state.meter.refusal() {
                Some(message) => format!("needs too much: {message}"),
                None => format!("broke off: {}", trap_message(&error, &state.stderr.text())),
            }));
        }
        Ended::TimedOut | Ended::Spent | Ended::Dropped => {
            return Err(refuse(format!(
                "did not return within {}; it may only tell what is known, without waiting or computing",
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
            scheduled_for: now,
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
    store::open(linked.instance.engine(), opening)
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

/// The labels under the keys that a manifest has for them.
fn of_labels(labels: &Labels) -> Option<Value> {
    let says: Map<String, Value> = [
        ("name", &labels.name),
        ("version", &labels.version),
        ("language", &labels.language),
    ]
    .into_iter()
    .filter_map(|(key, label)| Some((key.to_owned(), label.clone()?.into())))
    .collect();
    (!says.is_empty()).then_some(Value::Object(says))
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
        Err(error) => Err(format!("returned what is not JSON: {error}")),
    }
}
