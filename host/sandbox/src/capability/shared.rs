//! What the capabilities of one call share: its grants, its limits, and what was refused.

use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, RunId};
use campanile_model::text::toml_string;
use serde_json::Value;
use tokio::sync::Semaphore;
use uuid::Uuid;
use wasmtime_wasi::TrappableError;

use crate::capability::keyvalue::memory::MemoryBuckets;
use crate::effects::Effects;
use crate::grants::{Grants, Secrets};
use crate::ledger::Ledger;
use crate::ledger::fair_shares::FairShare;
use crate::ledger::kept::KeptOfCall;
use crate::limits::{Limits, Resource};
use crate::program_input::ProgramInput;
use crate::stop_signal::StopSignal;
use crate::world::{RunFacts, World};

/// The HTTP requests of a call under way at once, each with its connection. Further requests wait for a permit.
pub(crate) const REQUESTS_UNDER_WAY_MAX: usize = 16;

/// The lookups of names of a call at once, so that a call with unknown names leaves permits for others.
const LOOKUPS_MAX: usize = 4;

/// One call to make.
#[derive(Clone)]
pub struct Call {
    /// The package of the task. What the calls of all packages share is shared fairly between packages.
    pub package: String,
    pub task: String,
    /// A JSON object, as text.
    pub context: String,
    pub facts: RunFacts,
    /// For a program.
    pub program: Arc<ProgramInput>,
    pub grants: Arc<Grants>,
    /// The values of the granted secrets.
    pub secrets: Arc<Secrets>,
    pub limits: Limits,
    pub world: World,
    pub stop: StopSignal,
}

impl Call {
    /// Returns a call at `now` without grants, within `limits`.
    pub(crate) fn ungranted(limits: Limits, now: Timestamp) -> Call {
        Call {
            package: String::new(),
            task: String::new(),
            context: String::new(),
            facts: RunFacts {
                execution_id: LaunchId(Uuid::nil()),
                run_id: RunId(Uuid::nil()),
                attempt: 1,
                is_recovery: false,
                scheduled_time: now,
                original_scheduled_time: now,
                traceparent: None,
            },
            program: Arc::default(),
            grants: Arc::default(),
            secrets: Arc::default(),
            limits,
            world: World::real(Arc::new(MemoryBuckets::default())),
            stop: StopSignal::default(),
        }
    }
}

/// What the capabilities of one call share.
pub(crate) struct Shared {
    pub(crate) call: Call,
    /// Budgets shared with other packages.
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) kept: Arc<KeptOfCall>,
    pub(crate) deadline: Timestamp,
    pub(crate) effects: Effects,
    pub(crate) request_permits: Arc<Semaphore>,
    pub(crate) lookup_permits: Arc<Semaphore>,
    /// The use of each resource that is counted here, or its peak, in the order of [`Resource::ALL`].
    used: [AtomicU64; Resource::ALL.len()],
    /// Files, directories and sockets that are open.
    open_files: AtomicU64,
    denied: OnceLock<String>,
    exceeded: OnceLock<String>,
}

impl Shared {
    /// Create what the capabilities of `call` share, which begins at `now`.
    pub(crate) fn new(call: Call, ledger: Arc<Ledger>, now: Timestamp) -> Shared {
        Shared {
            deadline: now.plus(call.limits.timeout),
            effects: Effects::new(call.world.observer.clone(), call.stop.clone()),
            request_permits: Arc::new(Semaphore::new(REQUESTS_UNDER_WAY_MAX)),
            lookup_permits: Arc::new(Semaphore::new(LOOKUPS_MAX)),
            used: Default::default(),
            open_files: AtomicU64::new(0),
            denied: OnceLock::new(),
            exceeded: OnceLock::new(),
            kept: KeptOfCall::new(ledger.nothing_kept(&call.package)),
            ledger,
            call,
        }
    }

    /// Record that a grant is missing. Only the first is kept: it is the cause of what follows.
    pub(crate) fn deny(&self, message: String) {
        let _ = self.denied.set(message);
    }

    /// Record that a limit was reached. Only the first is kept.
    pub(crate) fn exceed(&self, message: String) {
        let _ = self.exceeded.set(message);
    }

    /// Records the reason if the package is out of descriptors.
    pub(crate) fn note_lack_of_descriptors(&self) {
        let (ledger, package) = (&self.ledger, &self.call.package);
        if ledger
            .descriptors
            .try_acquire(package, 1, u64::MAX)
            .is_none()
        {
            self.exceed(ledger.no_descriptor(package));
        }
    }

    /// Returns why the first request without a grant was refused.
    pub(crate) fn denied(&self) -> Option<&str> {
        self.denied.get().map(String::as_str)
    }

    /// Returns which limit the call reached first, other than those of memory and tables.
    pub(crate) fn exceeded(&self) -> Option<&str> {
        self.exceeded.get().map(String::as_str)
    }

    pub(crate) fn limit(&self, resource: Resource) -> u64 {
        self.call.limits.get(resource).unwrap_or(u64::MAX)
    }

    /// Use `amount` more of `resource` and return true, or return false when less is left.
    pub(crate) fn spend(&self, resource: Resource, amount: u64) -> bool {
        let limit = self.limit(resource);
        let more = |used: u64| used.checked_add(amount).filter(|sum| *sum <= limit);
        self.used[resource as usize]
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    /// Record the use of `amount` of `resource` at once, if it is the greatest so far.
    pub(crate) fn record_peak(&self, resource: Resource, amount: u64) {
        self.used[resource as usize].fetch_max(amount, Ordering::Relaxed);
    }

    /// Returns the use of each resource, which is 0 when it is not counted here.
    pub(crate) fn used(&self) -> impl Iterator<Item = (Resource, u64)> {
        let used = self.used.iter().map(|used| used.load(Ordering::Relaxed));
        Resource::ALL.iter().copied().zip(used)
    }
}

/// One open file. It counts until it is dropped: by its handle, and by each stream that outlives the handle.
pub(crate) struct OpenFile {
    shared: Arc<Shared>,
    _descriptor: FairShare,
}

impl Drop for OpenFile {
    fn drop(&mut self) {
        self.shared.open_files.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenFile {
    /// Counts another open file before opening it. Returns none at a limit, recording the reason.
    pub(crate) fn open(shared: &Arc<Shared>) -> Option<Arc<OpenFile>> {
        let most = shared.limit(Resource::OpenFiles);
        if shared.open_files.load(Ordering::Relaxed) >= most {
            shared.exceed(format!(
                "the task has {most} files and directories open, its limit; close some, or {}",
                Resource::OpenFiles.raise()
            ));
            return None;
        }
        let open = OpenFile::of_grant(shared);
        open.map_err(|why| shared.exceed(why)).ok()
    }

    /// Counts a granted directory, for which the call's limit doesn't apply.
    ///
    /// # Errors
    ///
    /// Returns a sentence if the package is out of descriptors.
    pub(crate) fn of_grant(shared: &Arc<Shared>) -> Result<Arc<OpenFile>, String> {
        let descriptors = &shared.ledger.descriptors;
        let descriptor = descriptors.try_acquire(&shared.call.package, 1, u64::MAX);
        let _descriptor =
            descriptor.ok_or_else(|| shared.ledger.no_descriptor(&shared.call.package))?;
        let now = shared.open_files.fetch_add(1, Ordering::Relaxed) + 1;
        shared.record_peak(Resource::OpenFiles, now);
        Ok(Arc::new(OpenFile {
            shared: Arc::clone(shared),
            _descriptor,
        }))
    }
}

/// Returns an error that the guest may see, or trap.
pub(crate) fn as_wasi<T, E: Error + Send + Sync + 'static>(
    done: Result<T, TrappableError<E>>,
) -> wasmtime::Result<Result<T, E>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

/// Returns the clause that proposes one more grant of `kind`.
pub(crate) fn to_allow<'k>(kind: &str, keys: impl IntoIterator<Item = (&'k str, Value)>) -> String {
    let line = grant_line(kind, keys);
    format!("to allow it, add `{line}` at the top of the package's sidecar file")
}

/// Returns one more grant of `kind` as one line of TOML. It is valid above the first table of a sidecar file.
pub(crate) fn grant_line<'k>(
    kind: &str,
    keys: impl IntoIterator<Item = (&'k str, Value)>,
) -> String {
    let value = |value: Value| match value {
        Value::String(text) => toml_string(&text),
        other => other.to_string(),
    };
    let keys = keys.into_iter();
    let keys: Vec<String> = keys
        .map(|(key, what)| format!("{key} = {}", value(what)))
        .collect();
    format!("grants.{kind} = [{{ {} }}]", keys.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_grants_is_toml_whatever_is_named() {
        let name = "a\"b' \\ {}\n\u{7f}\u{1}é";
        let line = grant_line("keyvalue", [("bucket", name.into()), ("port", 1.into())]);
        assert!(!line.contains('\n'), "{line}");
        let read: toml::Table = line.parse().unwrap();
        assert_eq!(read["grants"]["keyvalue"][0]["bucket"].as_str(), Some(name));
    }
}
