//! The façade: one sandbox loads packages, describes them and calls their tasks.

use std::any::Any;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use campanile_model::clock::{Clock, Timestamp};
use serde_json::Value;
use tokio::runtime::Runtime;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use crate::capability::shared::Call;
use crate::code_cache::CacheDir;
use crate::engine::{DESCRIBES_MAX, Engines, SandboxError, SandboxSettings};
use crate::ledger::Ledger;
use crate::load::artifact::{self, Artifact};
use crate::load::refusal::{Refusal, refuse};
use crate::outcome::{Outcome, Report};
use crate::run::call::{DROPPED, run};
use crate::run::describe::describe;

/// Threads for host calls that block, such as files.
const BLOCKING_THREADS_MAX: usize = 64;

/// Loads packages and calls their tasks. One for the process.
pub struct Sandbox {
    engines: Engines,
    compiling: Mutex<()>,
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
            .max_blocking_threads(BLOCKING_THREADS_MAX)
            .thread_name("campanile-guest")
            .enable_all()
            .build()
            .map_err(|error| SandboxError(format!("the guests' threads did not start: {error}")))?;
        let calls = usize::try_from(settings.calls_max).unwrap_or(Semaphore::MAX_PERMITS);
        Ok(Sandbox {
            engines,
            compiling: Mutex::new(()),
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
        self.load_unless_known(bytes, false)
    }

    /// Load `bytes` as [`Sandbox::load`]. If it has accepted them before, in this or another process with the same cache,
    /// so that the file `is_known`, this takes milliseconds while the cache has the compiled code.
    ///
    /// # Errors
    ///
    /// One sentence.
    pub fn load_unless_known(&self, bytes: &[u8], is_known: bool) -> Result<Artifact, Refusal> {
        let _only_load = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        artifact::load(&self.engines, bytes, is_known).map_err(Refusal::printable)
    }

    /// Return the package's manifest, or none when it has none.
    ///
    /// A package that exports `describe` is called without any capability, within 1 s and 32 MiB. Otherwise the
    /// manifest is the `name`, `version` and `language` of the file's custom sections, as far as they exist.
    ///
    /// # Errors
    ///
    /// One sentence, when `describe` does not return a JSON object of at most 256 KiB within these limits.
    pub async fn describe(&self, artifact: &Arc<Artifact>) -> Result<Option<Value>, Refusal> {
        let slot = self.describes.clone().acquire_owned().await;
        self.spawn_guest(
            slot,
            describe(
                artifact.clone(),
                Arc::clone(&self.ledger),
                self.clock.clone(),
            ),
        )
        .await
        .unwrap_or_else(refuse)
        .map_err(Refusal::printable)
    }

    /// Return the directory of compiled code, without links in its path; none without a cache.
    pub fn cache_dir(&self) -> Option<&Path> {
        self.engines.cache_dir.as_ref().map(CacheDir::path)
    }

    /// Return the time by which the sandbox dates log lines.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Make one call to `artifact`. Every outcome, also an error of the host, is in the report.
    ///
    /// The future may be awaited on any runtime. It waits while `calls_max` calls are under way, and dropping it drops
    /// the call.
    pub async fn run(&self, artifact: &Arc<Artifact>, mut call: Call) -> Report {
        let slot = tokio::select! {
            biased;
            () = call.stop.dropped() => {
                return Report::without_call(Outcome::Cancelled, DROPPED);
            }
            slot = self.calls.clone().acquire_owned() => slot,
        };
        call.limits.memory_bytes_max = call.limits.memory_bytes_max.min(self.memory_bytes_max);
        // Boxed, because this future has several kilobytes, and each future that awaits it would have to hold them.
        let ledger = Arc::clone(&self.ledger);
        let work = Box::pin(run(artifact.clone(), call, ledger, self.clock.clone()));
        self.spawn_guest(slot, work)
            .await
            .unwrap_or_else(|message| Report::without_call(Outcome::HostError, message))
    }

    /// Make the same call `times` times in a row on one of the guests' threads, and return the last report. It measures
    /// the least time that a launch can take.
    pub async fn run_in_a_row(&self, artifact: &Arc<Artifact>, call: Call, times: u32) -> Report {
        let slot = self.calls.clone().acquire_owned().await;
        let (artifact, clock) = (artifact.clone(), self.clock.clone());
        let ledger = Arc::clone(&self.ledger);
        let in_a_row = async move {
            let mut report = Report::without_call(Outcome::Cancelled, "no call was made");
            for _ in 0..times {
                report = run(
                    artifact.clone(),
                    call.clone(),
                    ledger.clone(),
                    clock.clone(),
                )
                .await;
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
