#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod http;
mod report;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::json_text::object_of;
use campanile_package::{Attempt, PackageLoader, load};
use campanile_sandbox::own_files::temporary_directory;
use campanile_sandbox::{
    BucketGrant, CodeCache, DirectoryGrant, Sandbox, SandboxSettings, Secret, Time,
};
use campanile_trial::{self, Stage, Subject};
use serde_json::Value;
use tempfile::TempDir;

pub use campanile_sandbox::{
    Device, HttpRequest as Request, Limits, LogLine, OutboxMessage as Message, Outcome,
};
pub use campanile_trial::{Crashed, Difference, Idempotence, Moment, Unreached};
pub use http::Reply;
pub use report::Report;

use http::Routes;

/// The maximum number of concurrent calls in a process. Further calls wait.
const CALLS_MAX: u32 = 4;
/// The maximum memory limit of a task.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// The stack of a task, the same as in a host by default.
const STACK_BYTES_MAX: usize = 1 << 20;

/// The reason why a test could not run. A failure of the task is not an error.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not a package that can run. The message says why, and how to fix it.
    #[error("{0}")]
    Refused(String),
    /// The test is invalid.
    #[error("{0}")]
    Test(String),
    /// A directory or file of the test could not be created, copied or read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A test of one task, built step by step.
///
/// ```
/// use campanile_testkit::TaskTest;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/hello.wasm");
/// let report = TaskTest::load(path)?.run()?;
/// assert!(report.succeeded(), "{report}");
/// # Ok::<(), campanile_testkit::Error>(())
/// ```
#[must_use]
pub struct TaskTest {
    subject: Subject,
    stage: Stage,
    routes: Routes,
    /// The directories of the test's files, which are removed on drop.
    files: Vec<TempDir>,
    /// The first error of the builder, which `run` returns.
    error: Option<Error>,
}

impl TaskTest {
    /// Load the package at `path`, a `.wasm` file. A sidecar file beside it is ignored.
    ///
    /// # Errors
    ///
    /// If the file does not exist or is not a package that can run.
    pub fn load(path: impl AsRef<Path>) -> Result<TaskTest, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Test(format!("{}: {error}", path.display())))?;
        let name = campanile_package::name_of(path);
        let sandbox = sandbox()?;
        let loader = PackageLoader::in_this_process(Arc::clone(&sandbox));
        let compiled = block_on(async { load(&loader, &name, bytes, Attempt::First).await })?;
        let (artifact, manifest) =
            compiled.map_err(|why| Error::Refused(format!("{}: {why}", path.display())))?;
        let task = match manifest.tasks.as_slice() {
            [only] => only.id.clone(),
            _ => String::new(),
        };
        Ok(TaskTest {
            subject: Subject {
                sandbox,
                artifact,
                manifest,
            },
            stage: Stage {
                task,
                attempt: 1,
                writes_to_copies: true,
                ..Stage::default()
            },
            routes: Routes::default(),
            files: Vec::new(),
            error: None,
        })
    }

    /// Set the task to call, if the package has several.
    pub fn task(mut self, id: impl Into<String>) -> TaskTest {
        self.stage.task = id.into();
        self
    }

    /// Set the user's context, a JSON object. The testkit sets the reserved keys.
    pub fn context(mut self, context: Value) -> TaskTest {
        match context {
            Value::Object(keys) => self.stage.context = keys,
            other => self.fail(format!(
                "the context is {other}, but it must be a JSON object"
            )),
        }
        self
    }

    /// Grant a config value, which the task reads through `wasi:config/store`.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> TaskTest {
        self.stage.grants.config.insert(key.into(), value.into());
        self
    }

    /// Grant a secret, which the task reads like a config value. The report redacts it.
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> TaskTest {
        let name = name.into();
        self.stage.grants.secrets.insert(name.clone());
        self.stage.secrets.insert(name, Secret::new(value));
        self
    }

    /// Grant an environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> TaskTest {
        self.stage.grants.env.insert(name.into(), value.into());
        self
    }

    /// Grant a device below `/dev`. Its bytes are repeatable where the time is: see [`TaskTest::now`].
    pub fn device(mut self, device: Device) -> TaskTest {
        if !self.stage.grants.devices.contains(&device) {
            self.stage.grants.devices.push(device);
        }
        self
    }

    /// Grant a bucket for reading and writing, and set its entries.
    pub fn bucket<K: Into<String>, V: Into<Vec<u8>>>(
        mut self,
        name: impl Into<String>,
        entries: impl IntoIterator<Item = (K, V)>,
    ) -> TaskTest {
        let name = name.into();
        let entries = entries
            .into_iter()
            .map(|(key, value)| (key.into(), value.into()));
        self.stage.buckets.insert(name.clone(), entries.collect());
        self.stage.grants.keyvalue.push(BucketGrant {
            bucket: name.clone(),
            namespace: name,
            writable: true,
        });
        self
    }

    /// Grant a directory of this machine for reading. The task sees it at `guest`.
    pub fn directory(self, guest: impl Into<String>, host: impl Into<PathBuf>) -> TaskTest {
        self.with_directory(guest, host.into(), false)
    }

    /// Grant a directory with these files for reading: relative paths and contents. The task sees it at `guest`.
    pub fn files<P: AsRef<Path>, C: AsRef<[u8]>>(
        self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
    ) -> TaskTest {
        self.with_files(guest, files, false)
    }

    /// Grant a directory with these files for reading and writing: relative paths and contents. The task sees it at
    /// `guest`.
    pub fn writable_files<P: AsRef<Path>, C: AsRef<[u8]>>(
        self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
    ) -> TaskTest {
        self.with_files(guest, files, true)
    }

    fn with_files<P: AsRef<Path>, C: AsRef<[u8]>>(
        mut self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
        writable: bool,
    ) -> TaskTest {
        match create_files(files) {
            Ok(folder) => {
                let host = folder.path().to_path_buf();
                self.files.push(folder);
                self.with_directory(guest, host, writable)
            }
            Err(error) => {
                self.error.get_or_insert(error.into());
                self
            }
        }
    }

    fn with_directory(
        mut self,
        guest: impl Into<String>,
        host: PathBuf,
        writable: bool,
    ) -> TaskTest {
        self.stage.grants.directories.push(DirectoryGrant {
            guest: guest.into(),
            host,
            writable,
            quota: campanile_sandbox::DirectoryQuota::default(),
        });
        self
    }

    /// Grant requests whose URL begins with `address`, such as `https://api.example.com/v1`.
    ///
    /// `answer` replies to them. No request is sent.
    pub fn http(
        mut self,
        address: impl Into<String>,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> TaskTest {
        let address = address.into();
        match http::grant(&address) {
            Ok(grant) => {
                self.stage.grants.http.push(grant);
                self.routes.0.push((address, Arc::new(answer)));
            }
            Err(why) => self.fail(why),
        }
        self
    }

    /// Set the time of the task's clock at the beginning of the call, an RFC 3339 time.
    pub fn now(mut self, time: &str) -> TaskTest {
        if let Some(time) = self.time("now", time) {
            self.stage.time = Time::StartingAt(time);
        }
        self
    }

    /// Set the slot of the run, an RFC 3339 time. The default is the current time.
    pub fn slot(mut self, time: &str) -> TaskTest {
        self.stage.slot = self.time("slot", time).or(self.stage.slot);
        self
    }

    fn time(&mut self, what: &str, text: &str) -> Option<Timestamp> {
        match text.parse() {
            Ok(time) => Some(time),
            Err(error) => {
                self.fail(format!("{what} is {text:?}: {error}"));
                None
            }
        }
    }

    /// Set the number of the attempt, from 1.
    pub fn attempt(mut self, attempt: u32) -> TaskTest {
        self.stage.attempt = i64::from(attempt);
        self
    }

    /// Make the run a recovery of an earlier run that was lost with its host.
    pub fn recovered(mut self) -> TaskTest {
        self.stage.is_recovery = true;
        self
    }

    /// Set the limit of wall-clock time.
    pub fn timeout(mut self, timeout: Duration) -> TaskTest {
        self.stage.limits.timeout = timeout;
        self
    }

    /// Set the limit of all memories together, in bytes, at most 1 GiB.
    pub fn memory(mut self, bytes: u64) -> TaskTest {
        self.stage.limits.memory_bytes_max = bytes;
        self
    }

    /// Change any of the limits.
    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> TaskTest {
        change(&mut self.stage.limits);
        self
    }

    /// Call the task. A repeated call starts from the same state.
    ///
    /// # Errors
    ///
    /// If the test is invalid or cannot run. A failure of the task is not an error: see [`Report::outcome`].
    pub fn run(&mut self) -> Result<Report, Error> {
        let stage = self.stage()?;
        let trial = block_on(campanile_trial::run(&self.subject, &stage))??;
        Ok(Report::of(trial))
    }

    /// Check that the task is idempotent.
    ///
    /// Crash the task before and after each of its effects, run it again, and compare the results. At most 200
    /// effects are tested. See [`Idempotence`].
    ///
    /// # Errors
    ///
    /// If the test is invalid or cannot run.
    pub fn check_idempotent(&mut self) -> Result<Idempotence, Error> {
        let stage = self.stage()?;
        let most = campanile_trial::EFFECTS_CRASHED;
        Ok(block_on(campanile_trial::check(
            &self.subject,
            &stage,
            most,
        ))??)
    }

    /// Return the stage of the call, or the first error of the builder.
    fn stage(&mut self) -> Result<Stage, Error> {
        if let Some(error) = self.error.take() {
            return Err(error);
        }
        let manifest = &self.subject.manifest;
        if manifest.task(&self.stage.task).is_none() {
            let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
            return Err(Error::Test(format!(
                "the package has no task {:?}; choose one of {} with `task`",
                self.stage.task,
                ids.join(", ")
            )));
        }
        campanile_package::context::check(&object_of(&self.stage.context))
            .map_err(|reserved| Error::Test(format!("the context is refused: {reserved}")))?;
        Ok(Stage {
            replies: Some(Arc::new(self.routes.clone())),
            ..self.stage.clone()
        })
    }

    fn fail(&mut self, why: String) {
        self.error.get_or_insert(Error::Test(why));
    }
}

/// Create a temporary directory with these files.
fn create_files<P: AsRef<Path>, C: AsRef<[u8]>>(
    files: impl IntoIterator<Item = (P, C)>,
) -> io::Result<TempDir> {
    let folder = temporary_directory()?;
    for (path, content) in files {
        let path = folder.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(folder)
}

/// Return the sandbox that all tests of this process share.
fn sandbox() -> Result<Arc<Sandbox>, Error> {
    static SANDBOX: OnceLock<Result<Arc<Sandbox>, String>> = OnceLock::new();
    let made = SANDBOX.get_or_init(|| {
        let settings = SandboxSettings {
            calls_max: CALLS_MAX,
            guest_threads: 2,
            code_cache: CodeCache::None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            stack_bytes_max: STACK_BYTES_MAX,
            ..SandboxSettings::default()
        };
        let sandbox = Sandbox::new(settings, Clock::system());
        sandbox.map(Arc::new).map_err(|error| error.to_string())
    });
    made.clone().map_err(Error::Test)
}

/// Run a future to completion on a new thread, because the test may run in an async context that must not block.
fn block_on<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Error> {
    let run = || -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(work))
    };
    let joined = std::thread::scope(|scope| scope.spawn(run).join());
    match joined {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::Test("the host panicked".to_owned())),
    }
}
