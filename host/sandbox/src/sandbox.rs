//! The façade: one sandbox loads packages, describes them and calls their tasks.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::ArtifactDigest;
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use crate::capability::shared::Call;
use crate::code_cache::CacheDir;
use crate::engine::{DESCRIBES_MAX, Engines, SandboxError, SandboxSettings};
use crate::ledger::kept::Kept;
use crate::ledger::{BLOCKING_THREADS, Ledger};
use crate::load::artifact;
use crate::load::loaded::{Artifact, HeldCode, LoadedCode, Room};
use crate::load::recognise::Form;
use crate::load::refusal::{Refusal, refuse};
use crate::outcome::{Outcome, Report};
use crate::run::call::{DROPPED, run};
use crate::run::describe::describe;

/// How many files' code may be reloaded from the cache at once.
const RELOADS_MAX: usize = 2;

/// Loads packages and calls their tasks. One for the process.
pub struct Sandbox {
    engines: Engines,
    pub(crate) loaded: Arc<LoadedCode>,
    compiling: Mutex<()>,
    /// Permits for reloading code from the cache.
    reloads: Semaphore,
    /// One permit for each slot of the pool, so that an instance always finds a free slot.
    pub(crate) calls: Arc<Semaphore>,
    describes: Arc<Semaphore>,
    memory_bytes_max: u64,
    pub(crate) ledger: Arc<Ledger>,
    clock: Clock,
    /// None only while the sandbox is dropped.
    guests: Option<Runtime>,
}

impl Sandbox {
    /// Start the engine, its epoch ticker and the guests' threads. `clock` dates the log lines of guests.
    ///
    /// # Errors
    ///
    /// When the machine gives no thread or no memory, or the directory of compiled code cannot be made private.
    pub fn new(mut settings: SandboxSettings, clock: Clock) -> Result<Sandbox, SandboxError> {
        settings.calls_max = settings.calls_max.max(1);
        let engines = Engines::new(&settings)?;
        // Last, because a runtime that is dropped in an async context panics.
        let guests = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(settings.guest_threads.max(1))
            .max_blocking_threads(BLOCKING_THREADS)
            .thread_name("campanile-guest")
            .enable_all()
            .build()
            .map_err(|error| SandboxError(format!("the guests' threads did not start: {error}")))?;
        let calls = usize::try_from(settings.calls_max).unwrap_or(Semaphore::MAX_PERMITS);
        Ok(Sandbox {
            engines,
            loaded: LoadedCode::new(settings.loaded_bytes_max),
            compiling: Mutex::new(()),
            reloads: Semaphore::new(RELOADS_MAX),
            calls: Arc::new(Semaphore::new(calls)),
            describes: Arc::new(Semaphore::new(DESCRIBES_MAX as usize)),
            memory_bytes_max: settings.memory_bytes_max,
            ledger: Arc::new(Ledger::of_machine(settings.memory_total_bytes)),
            clock,
            guests: Some(guests),
        })
    }

    /// Check and compile `bytes`. This takes from milliseconds to tens of seconds of processor time: call it outside of
    /// the async threads. Only one load runs at a time; others wait here.
    ///
    /// # Errors
    ///
    /// One sentence that says what the file is and what to do, when it is not a package that can run.
    pub fn load(&self, bytes: &[u8]) -> Result<Artifact, Refusal> {
        let digest = ArtifactDigest::of(bytes);
        let _only_load = (self.compiling.lock()).unwrap_or_else(PoisonError::into_inner);
        let code = artifact::load(&self.engines, bytes, false).map_err(Refusal::printable)?;
        let artifact = self.admit(digest, code.form, code.bytes)?;
        if let Some(room) = artifact.place.free_room() {
            drop(room.fill(code));
        }
        Ok(artifact)
    }

    /// Returns the artifact of a file already loaded earlier, by this process or another one sharing the cache.
    ///
    /// # Errors
    ///
    /// Returns a sentence if its code takes more memory than a package may now.
    pub fn admit(
        &self,
        digest: ArtifactDigest,
        form: Form,
        code_bytes: u64,
    ) -> Result<Artifact, Refusal> {
        Ok(Artifact {
            place: self.loaded.place(&digest, code_bytes)?,
            digest,
            form,
            code_bytes,
        })
    }

    /// Loads the code of `artifact`, whose file is `bytes`, from the cache if it fits without evicting anything. That makes the first call
    /// as fast as later ones. Blocks.
    ///
    /// # Errors
    ///
    /// Returns a sentence if loading fails.
    pub fn load_ahead(&self, artifact: &Artifact, bytes: &[u8]) -> Result<(), Refusal> {
        match artifact.place.free_room() {
            Some(room) => self.fill(artifact, room, bytes).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the code of `artifact`, keeping it loaded until the returned value is dropped. If necessary, loads it from the file returned
    /// by `read`, which takes milliseconds with a warm cache, or waits for room taken by other code in use.
    ///
    /// # Errors
    ///
    /// Returns a sentence if there has been no room for a minute, or loading fails.
    pub async fn hold<F>(
        self: &Arc<Self>,
        artifact: &Artifact,
        read: impl FnOnce() -> F + Send,
    ) -> Result<HeldCode, Refusal>
    where
        F: Future<Output = Result<Vec<u8>, String>> + Send,
    {
        let room = match artifact.place.held_or_room().await? {
            Ok(held) => return Ok(held),
            Err(room) => room,
        };
        // The semaphore is never closed.
        let _permit = self.reloads.acquire().await;
        let bytes = read().await.map_err(Refusal::new)?;
        let (sandbox, of) = (Arc::clone(self), artifact.clone());
        let loading = spawn_blocking(move || sandbox.fill(&of, room, &bytes));
        let loaded = loading
            .await
            .map_err(|error| Refusal::new(error.to_string()));
        loaded.flatten()
    }

    /// Loads the code of `artifact`, whose file is `bytes`, into `room`.
    fn fill(&self, artifact: &Artifact, room: Room, bytes: &[u8]) -> Result<HeldCode, Refusal> {
        if ArtifactDigest::of(bytes) != artifact.digest {
            return refuse("its file holds other bytes than its digest names");
        }
        let code = artifact::load(&self.engines, bytes, true).map_err(Refusal::printable)?;
        self.loaded.check(code.bytes)?;
        Ok(room.fill(code))
    }

    /// Returns the code of `artifact`, provided it's still loaded.
    async fn held(&self, artifact: &Artifact) -> Result<HeldCode, Refusal> {
        match artifact.place.held_or_room().await? {
            Ok(held) => Ok(held),
            Err(_) => refuse("its code was unloaded"),
        }
    }

    /// Returns the package's manifest, or none when it has none.
    ///
    /// A package that exports `describe` is called without any capability, within 1 s and 32 MiB. Otherwise the
    /// manifest is the `name`, `version` and `language` of the file's custom sections, as far as they exist.
    ///
    /// # Errors
    ///
    /// One sentence, when `describe` does not return a JSON object of at most 256 KiB within these limits.
    pub async fn describe(&self, artifact: &Artifact) -> Result<Option<Value>, Refusal> {
        let slot = self.describes.clone().acquire_owned().await;
        let (held, clock) = (self.held(artifact).await?, self.clock.clone());
        let ledger = Arc::clone(&self.ledger);
        self.spawn_guest(slot, async move { describe(&held, ledger, clock).await })
            .await
            .unwrap_or_else(refuse)
            .map_err(Refusal::printable)
    }

    /// Returns the directory of compiled code, without links in its path; none without a cache.
    pub fn cache_dir(&self) -> Option<&Path> {
        self.engines.cache_dir.as_ref().map(CacheDir::path)
    }

    /// Returns an empty charge for a run of `package`, to grow with what this process keeps in memory for it.
    pub fn nothing_kept(&self, package: &str) -> Kept {
        self.ledger.nothing_kept(package)
    }

    /// Returns the time by which the sandbox dates log lines.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Calls `artifact`, whose code must be loaded. Every outcome, including host errors, is in the report.
    ///
    /// Where others may unload that code meanwhile, use [`Sandbox::run_held`].
    pub async fn run(&self, artifact: &Artifact, call: Call) -> Report {
        match self.held(artifact).await {
            Ok(held) => self.run_held(held, call).await,
            Err(refusal) => Report::without_call(Outcome::HostError, refusal.message),
        }
    }

    /// Calls code returned by [`Sandbox::hold`]. Every outcome, including host errors, is in the report.
    ///
    /// The future may be awaited on any runtime. It waits while `calls_max` calls are under way, and dropping it drops
    /// the call.
    pub async fn run_held(&self, held: HeldCode, mut call: Call) -> Report {
        let slot = tokio::select! {
            biased;
            () = call.stop.dropped() => {
                return Report::without_call(Outcome::Cancelled, DROPPED);
            }
            slot = self.calls.clone().acquire_owned() => slot,
        };
        call.limits.memory_bytes_max = call.limits.memory_bytes_max.min(self.memory_bytes_max);
        // Boxed, because this future has several kilobytes, and each future that awaits it would have to hold them.
        let (ledger, clock) = (Arc::clone(&self.ledger), self.clock.clone());
        let work = Box::pin(async move { run(&held, call, ledger, clock).await });
        self.spawn_guest(slot, work)
            .await
            .unwrap_or_else(|message| Report::without_call(Outcome::HostError, message))
    }

    /// Make the same call `times` times in a row on one of the guests' threads, and return the last report. It measures
    /// the least time that a launch can take.
    pub async fn run_in_a_row(&self, artifact: &Artifact, call: Call, times: u32) -> Report {
        let slot = self.calls.clone().acquire_owned().await;
        let held = match self.held(artifact).await {
            Ok(held) => held,
            Err(refusal) => return Report::without_call(Outcome::HostError, refusal.message),
        };
        let (ledger, clock) = (Arc::clone(&self.ledger), self.clock.clone());
        let in_a_row = async move {
            let mut report = Report::without_call(Outcome::Cancelled, "no call was made");
            for _ in 0..times {
                report = run(&held, call.clone(), ledger.clone(), clock.clone()).await;
            }
            report
        };
        self.spawn_guest(slot, in_a_row)
            .await
            .unwrap_or_else(|message| Report::without_call(Outcome::HostError, message))
    }

    /// Await `work` on the guests' threads, and release `slot` when it is done. A panic in it becomes an error.
    pub(crate) async fn spawn_guest<T: Send + 'static>(
        &self,
        slot: Result<OwnedSemaphorePermit, AcquireError>,
        work: impl Future<Output = T> + Send + 'static,
    ) -> Result<T, String> {
        let (Ok(slot), Some(guests)) = (slot, &self.guests) else {
            return Err("the sandbox is shutting down".to_owned());
        };
        let work = guests.spawn(async move {
            let done = work.await;
            drop(slot);
            done
        });
        let mut work = AbortOnDropJoinHandle::from(work);
        (&mut *work)
            .await
            .map_err(|error| match error.try_into_panic() {
                Ok(panic) => format!("the host panicked: {}", panic_text(panic.as_ref())),
                Err(_) => "the sandbox is shutting down".to_owned(),
            })
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or(panic.downcast_ref::<&str>().copied())
        .unwrap_or("without a message")
}

impl Drop for Sandbox {
    fn drop(&mut self) {
        // Dropping the runtime waits for its threads, which an async context forbids.
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}
