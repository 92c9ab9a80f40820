//! The sandbox: one call of one task, in a fresh instance, with nothing but what was granted.
//!
//! The only room that names wasmtime. It knows nothing of schedules, launches or databases.
//!
//! The path of one call: a file is recognised (`recognise.rs`), made a component if it is none (`adapt.rs`), weighed
//! (`effort.rs`) and compiled (`artifact.rs`) once; each call then opens a store with its limits (`store.rs`) and grants
//! (`grants.rs`, `directories.rs`, `http.rs`, `connect.rs`), and runs to its report (`run.rs`; a program's is in
//! `command.rs`).

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

mod adapt;
mod address;
mod artifact;
mod command;
mod connect;
mod cpu;
mod describe;
mod directories;
mod effects;
mod effort;
mod engine;
mod files;
mod foreign;
mod gauges;
mod grants;
mod http;
mod imports;
mod keyvalue;
mod limits;
mod logs;
mod missed;
mod nowhere;
mod open_files;
mod outline;
mod random;
mod recognise;
mod response;
mod run;
mod script;
mod secrets;
mod sockets;
mod stdio;
mod stop;
mod store;
mod trap;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tokio::runtime::Runtime;
use tokio::sync::{AcquireError, OwnedSemaphorePermit, Semaphore};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{ArtifactDigest, LaunchId, RunId};
use campanile_model::text::printable_line;
use campanile_model::words;

pub use effects::{Crash, EffectObserver};
pub use grants::method_fault;
pub use http::Network;
pub use keyvalue::{BucketError, Buckets, Change, MemoryBuckets, add, check_growth, entry_bytes};
pub use limits::{Limits, Resource, Share, Usage};
pub use script::{HttpReply, HttpRequest, Replies};
pub use secrets::Redaction;
pub use secrets::{Secret, Secrets};
pub use stop::StopSignal;

/// The version of wasmtime built in. A test holds it to `Cargo.lock`.
pub const WASMTIME_VERSION: &str = "48.0.8";

/// How the names of the host's own variables begin, which it sets for programs and nobody can grant.
pub const ENV_PREFIX: &str = "CAMPANILE_";

/// Of a refusal; names in a file may have 100 KB.
const REFUSAL_BYTES_MAX: usize = 2 << 10;

/// Threads beside the guests' own, for host calls that block: files.
const BLOCKING_THREADS_MAX: usize = 64;

words! {
    /// How a call of a task ended.
    Outcome {
        /// The task returned a completion.
        Succeeded => "succeeded",
        /// The task returned a failure.
        Failed => "failed",
        /// The code hit a trap: a panic, an `unreachable`, an access out of bounds, a stack overflow.
        Trapped => "trapped",
        /// The wall-clock limit passed.
        TimedOut => "timed_out",
        /// The task wanted more memory than its limit and could not go on.
        MemoryExceeded => "memory_exceeded",
        /// The task needed something that was not granted.
        Denied => "denied",
        /// What the task returned is not the JSON it must be, or is too large.
        InvalidOutput => "invalid_output",
        /// The host could not carry the call out; not the task's doing.
        HostError => "host_error",
        /// The file is not a package that can run.
        Refused => "refused",
        /// The host dropped the call: shutdown, or the run's lease was lost.
        Cancelled => "cancelled",
    }
}

/// Why a call did not succeed.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Failure {
    /// Never [`Outcome::Succeeded`].
    pub kind: Outcome,
    /// One sentence for the person who reads the record.
    pub message: String,
    /// Whether the same call may succeed later.
    pub retryable: bool,
    /// The least time to wait before trying again, if the task asked for one.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// Whether it is known that none of the task's code has run.
    #[serde(skip)]
    pub precedes_call: bool,
    /// Anything more the task said, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<Value>,
}

/// One line that the task logged through `wasi:logging`, or a progress report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct LogLine {
    pub at: Timestamp,
    /// `trace`, `debug`, `info`, `warn`, `error` or `critical`.
    pub level: String,
    /// The guest's own grouping text; may be empty.
    pub context: String,
    pub message: String,
}

/// Everything a call left behind.
#[derive(Clone, Debug, PartialEq, Serialize, schemars::JsonSchema)]
pub struct Report {
    pub outcome: Outcome,
    /// The task's result, when it succeeded and gave one.
    pub output: Option<Value>,
    /// Keys to merge into the context of dependent tasks, when it succeeded and gave some.
    pub context: Option<Map<String, Value>>,
    pub failure: Option<Failure>,
    pub stdout: String,
    pub stderr: String,
    pub logs: Vec<LogLine>,
    pub usage: Usage,
}

/// A directory of the host that a task may see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirectoryGrant {
    /// An existing directory of the host, absolute and without links: one on the way is not followed.
    pub host: PathBuf,
    /// The path under which the task sees it, such as `/source`.
    pub guest: String,
    pub writable: bool,
}

/// A set of HTTP requests that a task may make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpGrant {
    /// `http` or `https`.
    pub scheme: String,
    /// An exact host name or address, or `*.example.com` for every name below a domain, or `*` for every public host.
    pub host: String,
    /// None is the scheme's own port.
    pub port: Option<u16>,
    /// Compared with their case, as RFC 9110 has it; empty means every method.
    pub methods: Vec<String>,
}

#[cfg(test)]
impl HttpGrant {
    /// `GET` at `http://host:port`.
    pub(crate) fn get(host: &str, port: u16) -> HttpGrant {
        HttpGrant {
            scheme: "http".to_owned(),
            host: host.to_owned(),
            port: Some(port),
            methods: vec!["GET".to_owned()],
        }
    }
}

words! {
    /// What is spoken over a socket.
    Protocol {
        Tcp => "tcp",
        Udp => "udp",
    }
}

/// A place that a task may connect to with a socket of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketGrant {
    pub protocol: Protocol,
    /// An exact host name or address, or `*.example.com` for every name below a domain, or `*` for every public host.
    pub host: String,
    pub port: u16,
}

/// A bucket of `wasi:keyvalue` that a task may open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketGrant {
    /// The name by which the task opens it.
    pub bucket: String,
    /// The name under which it is kept; packages that are granted the same one share it.
    pub namespace: String,
    pub writable: bool,
}

/// All that a task may do beyond computing. The default is nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants {
    pub directories: Vec<DirectoryGrant>,
    pub env: BTreeMap<String, String>,
    pub http: Vec<HttpGrant>,
    pub sockets: Vec<SocketGrant>,
    /// What `wasi:config/store` answers.
    pub config: BTreeMap<String, String>,
    pub keyvalue: Vec<BucketGrant>,
    /// Names of secrets that `wasi:config/store` answers when it is asked for one by its name.
    pub secrets: BTreeSet<String>,
    /// Variables whose values are secrets: the variable, and the secret's name.
    pub secret_env: BTreeMap<String, String>,
}

impl Grants {
    /// What is granted by both, with the values of these.
    pub fn shared_with(&self, others: &Grants) -> Grants {
        // Named one by one, so that a new kind of grant cannot be forgotten here.
        let Grants {
            directories,
            env,
            http,
            sockets,
            config,
            keyvalue,
            secrets,
            secret_env,
        } = others;
        let mut shared = self.clone();
        shared.directories.retain(|one| directories.contains(one));
        shared.env.retain(|name, _| env.contains_key(name));
        shared.http.retain(|one| http.contains(one));
        shared.sockets.retain(|one| sockets.contains(one));
        shared.config.retain(|key, _| config.contains_key(key));
        shared.keyvalue.retain(|one| keyvalue.contains(one));
        shared.secrets.retain(|name| secrets.contains(name));
        shared
            .secret_env
            .retain(|name, secret| secret_env.get(name) == Some(secret));
        shared
    }

    /// The names of all secrets in it.
    pub fn secret_names(&self) -> BTreeSet<&str> {
        let named = self.secrets.iter().chain(self.secret_env.values());
        named.map(String::as_str).collect()
    }
}

/// What the imported interface `run-info` tells the task.
#[derive(Clone, Debug)]
pub struct RunFacts {
    pub execution_id: LaunchId,
    pub run_id: RunId,
    pub attempt: u32,
    pub is_recovery: bool,
    pub scheduled_for: Timestamp,
    pub original_scheduled_time: Timestamp,
}

/// One call to make.
#[derive(Clone)]
pub struct Call {
    pub artifact: Arc<Artifact>,
    pub task: String,
    /// A JSON object, as text.
    pub context: String,
    pub facts: RunFacts,
    pub grants: Arc<Grants>,
    /// The values of the secrets that are granted.
    pub secrets: Arc<Secrets>,
    pub limits: Limits,
    pub world: World,
    pub stop: StopSignal,
}

/// What a call meets outside of the sandbox.
#[derive(Clone)]
pub struct World {
    /// Where its buckets are kept.
    pub buckets: Arc<dyn Buckets>,
    /// Where its HTTP requests go.
    pub network: Network,
    /// What its wall clock says.
    pub time: Time,
    /// Who watches what it does to the outside.
    pub observer: Option<Arc<dyn EffectObserver>>,
}

/// What a call's wall clock says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Time {
    /// The machine's time.
    #[default]
    Real,
    /// It begins here and goes on.
    From(Timestamp),
    /// It stands still, and random bytes are the same in every call: two calls in the same world do the same.
    Still(Timestamp),
}

impl Time {
    /// What it says at the beginning; none is the machine's time.
    pub fn beginning(self) -> Option<Timestamp> {
        match self {
            Time::Real => None,
            Time::From(now) | Time::Still(now) => Some(now),
        }
    }
}

impl World {
    /// The real network and time, and `buckets`.
    pub fn real(buckets: Arc<dyn Buckets>) -> World {
        World {
            buckets,
            network: Network::Real,
            time: Time::Real,
            observer: None,
        }
    }
}

/// A compiled package, ready to be called any number of times.
pub struct Artifact {
    /// Of the file, not of what was made of it.
    pub digest: ArtifactDigest,
    pub form: Form,
    labels: Labels,
    linked: artifact::Linked,
}

words! {
    /// How an artifact speaks with the host.
    Form {
        /// A component that exports `campanile:task/task`.
        TypedComponent => "typed_component",
        /// A component that exports `wasi:cli/run`: a program, with its context on stdin and its output on stdout.
        CommandComponent => "command_component",
        /// A program that is a core module for WASI preview 1, made a component on load.
        Preview1Command => "preview1_command",
        /// A core module that carries WIT metadata, made a component on load.
        CoreModuleWithWit => "core_module_with_wit",
    }
}

impl Form {
    fn is_command(self) -> bool {
        matches!(self, Form::CommandComponent | Form::Preview1Command)
    }
}

/// What the standard custom sections of a file say of it, as its tools wrote them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Labels {
    name: Option<String>,
    version: Option<String>,
    language: Option<String>,
}

/// The interfaces that `bytes`, a package that could run once, import; of a core module, `module name` each.
///
/// # Errors
///
/// One sentence, when they are no WebAssembly.
pub fn imports_of(bytes: &[u8]) -> Result<BTreeSet<String>, Refusal> {
    recognise::imports_of(bytes)
}

/// Why a file is not a package that can run: what it is, what the trouble is, what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Refusal {
    /// One line, safe to print.
    pub message: String,
}

impl Refusal {
    /// The refusal of a file, the names in which may be of any length and hold anything.
    fn printable(self) -> Refusal {
        let mut message = printable_line(&self.message);
        message.truncate(message.floor_char_boundary(REFUSAL_BYTES_MAX));
        Refusal { message }
    }
}

/// How the sandbox is set up, once per process.
#[derive(Clone, Debug, PartialEq)]
pub struct SandboxSettings {
    /// How many calls may run at the same time, at least 1; sizes the pool of instances.
    pub calls_max: u32,
    /// Threads that run guests, at least 1, apart from those of the scheduler and the database.
    pub guest_threads: usize,
    /// Where compiled code is kept between starts; none keeps nothing. Made private (0700).
    pub cache_dir: Option<PathBuf>,
    /// The greatest memory limit any call may be given; sizes the pool's memories.
    pub memory_bytes_max: u64,
    /// Of a guest's own stack: deeper recursion is a trap.
    pub stack_bytes_max: usize,
}

/// The engine and what every call shares.
pub struct Sandbox {
    engines: engine::Engines,
    compiling: Mutex<()>,
    /// One permit a slot of the pool, so that an instance never finds it full.
    calls: Arc<Semaphore>,
    describes: Arc<Semaphore>,
    memory_bytes_max: u64,
    clock: Clock,
    /// None only while it is dropped.
    guests: Option<Runtime>,
}

impl Sandbox {
    /// Start the engine, its epoch ticker and the guests' threads. `clock` dates what guests log.
    ///
    /// # Errors
    ///
    /// When the machine gives no thread or no memory, or `cache_dir` cannot be made private.
    pub fn new(mut settings: SandboxSettings, clock: Clock) -> Result<Sandbox, SandboxError> {
        settings.calls_max = settings.calls_max.max(1);
        let engines = engine::Engines::new(&settings)?;
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
            describes: Arc::new(Semaphore::new(engine::DESCRIBES_MAX as usize)),
            memory_bytes_max: settings.memory_bytes_max,
            clock,
            guests: Some(guests),
        })
    }

    /// Check and compile `bytes`. Takes from milliseconds to tens of seconds of CPU: call it off the async threads.
    ///
    /// One at a time; others wait here.
    ///
    /// # Errors
    ///
    /// One sentence that says what the file is and what to do, when it is not a package that can run.
    pub fn load(&self, bytes: &[u8]) -> Result<Artifact, Refusal> {
        let _one_at_a_time = self
            .compiling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        artifact::load(&self.engines, bytes).map_err(Refusal::printable)
    }

    /// What the package says of itself, or none when it says nothing. Where it exports `describe`, that guest code is
    /// run without any capability, within 1 s and 32 MiB; else it is `name`, `version` and `language` of the file's
    /// standard custom sections, as far as they are there.
    ///
    /// # Errors
    ///
    /// One sentence, when it does not return a JSON object of at most 256 KiB within those bounds.
    pub async fn describe(&self, artifact: &Arc<Artifact>) -> Result<Option<Value>, Refusal> {
        let slot = self.describes.clone().acquire_owned().await;
        self.among_guests(
            slot,
            describe::describe(artifact.clone(), self.clock.clone()),
        )
        .await
        .unwrap_or_else(|message| Err(Refusal { message }))
        .map_err(Refusal::printable)
    }

    /// Make one call. Never fails: whatever happens is in the report.
    ///
    /// May be awaited on any runtime; waits while `calls_max` calls are under way. Dropping the future drops the call.
    pub async fn run(&self, mut call: Call) -> Report {
        let slot = tokio::select! {
            biased;
            () = call.stop.dropped() => {
                let message = "the host dropped the call before it began".to_owned();
                return Report::without_call(Outcome::Cancelled, message);
            }
            slot = self.calls.clone().acquire_owned() => slot,
        };
        call.limits.memory_bytes_max = call.limits.memory_bytes_max.min(self.memory_bytes_max);
        self.among_guests(slot, run::run(call, self.clock.clone()))
            .await
            .unwrap_or_else(|message| Report::without_call(Outcome::HostError, message))
    }

    /// Make the same call `times` times in a row on one of the guests' threads, as fast as it goes: the
    /// floor that every launch stands on. For measuring; gives the last report.
    pub async fn run_in_a_row(&self, call: Call, times: u32) -> Report {
        let slot = self.calls.clone().acquire_owned().await;
        let clock = self.clock.clone();
        let in_a_row = async move {
            let mut report =
                Report::without_call(Outcome::Cancelled, "no call was made".to_owned());
            for _ in 0..times {
                report = run::run(call.clone(), clock.clone()).await;
            }
            report
        };
        self.among_guests(slot, in_a_row)
            .await
            .unwrap_or_else(|message| Report::without_call(Outcome::HostError, message))
    }

    /// Await `work` on the guests' threads and give `slot` back when it is done.
    ///
    /// A panic in it ends there and becomes the text of an error.
    async fn among_guests<T: Send + 'static>(
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
        // The ordinary way waits for threads, which an async context forbids.
        if let Some(guests) = self.guests.take() {
            guests.shutdown_background();
        }
    }
}

/// The engine could not be set up on this machine.
#[derive(Debug, thiserror::Error)]
#[error("the WebAssembly engine could not start: {0}")]
pub struct SandboxError(String);

#[cfg(test)]
mod tests;
