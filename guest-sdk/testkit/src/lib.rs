#![doc = include_str!("../README.md")]
#![warn(missing_docs)]

mod http;
mod report;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_sandbox::{BucketGrant, Sandbox, SandboxSettings, Secret, Time};
use campanile_trial::{self, Access, Directory, Stage, Subject};
use serde_json::Value;
use tempfile::TempDir;

pub use campanile_sandbox::{HttpRequest as Request, Limits, LogLine, Outcome};
pub use campanile_trial::{Crashed, Difference, Idempotence, Moment, Unreached};
pub use http::Reply;
pub use report::Report;

use http::Routes;

/// Calls of one process that run at the same time; the others wait.
const CALLS_MAX: u32 = 4;
/// The most memory that a test may give its task.
const MEMORY_BYTES_MAX: u64 = 1 << 30;
/// As hosts have it by default.
const STACK_BYTES_MAX: usize = 1 << 20;

/// Why a test could not be made, or not be carried out; not a failure of the task.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file is not a package that can run: what it is, and what to do.
    #[error("{0}")]
    Refused(String),
    /// What the test says cannot be.
    #[error("{0}")]
    Test(String),
    /// A directory or file of the test cannot be made, copied or read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A test of one task: the world that it is called in, put together step by step.
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
    /// Holds the files that the test gives; removed with it.
    files: Vec<TempDir>,
    /// What could not be set up, told when the test is run.
    trouble: Option<Error>,
}

impl TaskTest {
    /// A test of the task in the `.wasm` at `path`. The sidecar beside it, if there is one, is not read.
    ///
    /// # Errors
    ///
    /// When there is no such file, or it is not a package that can run.
    pub fn load(path: impl AsRef<Path>) -> Result<TaskTest, Error> {
        let path = path.as_ref();
        let bytes = std::fs::read(path)
            .map_err(|error| Error::Test(format!("{}: {error}", path.display())))?;
        let name = campanile_package::name_of(path);
        let sandbox = sandbox()?;
        let compiled =
            block_on(async { campanile_package::compile(&sandbox, &name, bytes).await })?;
        let (artifact, manifest) =
            compiled.map_err(|why| Error::Refused(format!("{}: {why}", path.display())))?;
        let task = match manifest.tasks.as_slice() {
            [only] => only.id.clone(),
            _ => String::new(),
        };
        Ok(TaskTest {
            subject: Subject { artifact, manifest },
            stage: Stage {
                task,
                attempt: 1,
                ..Stage::default()
            },
            routes: Routes::default(),
            files: Vec::new(),
            trouble: None,
        })
    }

    /// Which task, when the package has several.
    pub fn task(mut self, id: impl Into<String>) -> TaskTest {
        self.stage.task = id.into();
        self
    }

    /// The user's keys of the context: a JSON object. The reserved keys are the kit's.
    pub fn context(mut self, context: Value) -> TaskTest {
        match context {
            Value::Object(keys) => self.stage.context = keys,
            other => self.fail(format!("the context is {other} and must be a JSON object")),
        }
        self
    }

    /// One value of the operator's config, which the task reads through `wasi:config/store`.
    pub fn config(mut self, key: impl Into<String>, value: impl Into<String>) -> TaskTest {
        self.stage.grants.config.insert(key.into(), value.into());
        self
    }

    /// A secret, which the task reads as it reads its config. What the task lets slip of it is taken out of the report.
    pub fn secret(mut self, name: impl Into<String>, value: impl Into<String>) -> TaskTest {
        let name = name.into();
        self.stage.grants.secrets.insert(name.clone());
        self.stage.secrets.insert(name, Secret::new(value));
        self
    }

    /// A variable of the task's environment.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> TaskTest {
        self.stage.grants.env.insert(name.into(), value.into());
        self
    }

    /// A bucket that the task may read and write, and what it holds.
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

    /// A directory of this machine, which the task sees at `guest` and may only read.
    pub fn directory(self, guest: impl Into<String>, host: impl Into<PathBuf>) -> TaskTest {
        self.with_directory(guest, host.into(), Access::Read)
    }

    /// A directory that the task sees at `guest` and may only read, with these files: their paths in it, and their contents.
    pub fn files<P: AsRef<Path>, C: AsRef<[u8]>>(
        self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
    ) -> TaskTest {
        self.with_files(guest, files, Access::Read)
    }

    /// A directory that the task sees at `guest` and may write to, with these files at the beginning.
    pub fn writable_files<P: AsRef<Path>, C: AsRef<[u8]>>(
        self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
    ) -> TaskTest {
        self.with_files(guest, files, Access::WriteToCopy)
    }

    fn with_files<P: AsRef<Path>, C: AsRef<[u8]>>(
        mut self,
        guest: impl Into<String>,
        files: impl IntoIterator<Item = (P, C)>,
        access: Access,
    ) -> TaskTest {
        match written(files) {
            Ok(folder) => {
                let host = folder.path().to_path_buf();
                self.files.push(folder);
                self.with_directory(guest, host, access)
            }
            Err(error) => {
                self.trouble.get_or_insert(error.into());
                self
            }
        }
    }

    fn with_directory(
        mut self,
        guest: impl Into<String>,
        host: PathBuf,
        access: Access,
    ) -> TaskTest {
        let guest = guest.into();
        self.stage.directories.push(Directory {
            guest,
            host,
            access,
        });
        self
    }

    /// Grant requests that begin with `address`, such as `https://api.example.com/v1`, and answer them. Nothing goes out.
    pub fn http(
        mut self,
        address: impl Into<String>,
        answer: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> TaskTest {
        let address = address.into();
        match http::grant(&address) {
            Ok(grant) => {
                self.stage.grants.http.push(grant);
                self.routes.add(address, Box::new(answer));
            }
            Err(why) => self.fail(why),
        }
        self
    }

    /// What the task's clock says at the beginning: an RFC 3339 time.
    pub fn now(mut self, time: &str) -> TaskTest {
        if let Some(time) = self.time("now", time) {
            self.stage.time = Time::StartingAt(time);
        }
        self
    }

    /// The slot that the run is of: an RFC 3339 time. The present when it is not said.
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

    /// Which call of the task for this launch it is; 1 is the first.
    pub fn attempt(mut self, attempt: u32) -> TaskTest {
        self.stage.attempt = i64::from(attempt);
        self
    }

    /// Recovery took the launch up again: an earlier run was lost with its host.
    pub fn recovered(mut self) -> TaskTest {
        self.stage.is_recovery = true;
        self
    }

    /// The wall-clock limit.
    pub fn timeout(mut self, timeout: Duration) -> TaskTest {
        self.stage.limits.timeout = timeout;
        self
    }

    /// The limit of all memories together, in bytes; at most 1 GiB.
    pub fn memory(mut self, bytes: u64) -> TaskTest {
        self.stage.limits.memory_bytes_max = bytes;
        self
    }

    /// Any of the limits.
    pub fn limits(mut self, change: impl FnOnce(&mut Limits)) -> TaskTest {
        change(&mut self.stage.limits);
        self
    }

    /// Make the call. May be repeated: each time the world is as it was put together.
    ///
    /// # Errors
    ///
    /// When the test itself is wrong, or cannot be carried out. Whatever the task does is in the report.
    pub fn run(&mut self) -> Result<Report, Error> {
        let stage = self.set()?;
        let sandbox = sandbox()?;
        let subject = self.subject.clone();
        let trial = block_on(async move {
            campanile_trial::run(&sandbox, &subject, &stage, &Clock::system()).await
        })??;
        Ok(Report::of(trial))
    }

    /// Crash the task at each of its effects, or at 200 of more, run it again, and compare the worlds; see
    /// [`Idempotence`].
    ///
    /// # Errors
    ///
    /// When the test itself is wrong, or cannot be carried out.
    pub fn check_idempotent(&mut self) -> Result<Idempotence, Error> {
        let stage = self.set()?;
        let sandbox = sandbox()?;
        let subject = self.subject.clone();
        Ok(block_on(async move {
            let most = campanile_trial::EFFECTS_CRASHED;
            campanile_trial::check(&sandbox, &subject, &stage, &Clock::system(), most).await
        })??)
    }

    /// The stage, if it could be set up.
    fn set(&mut self) -> Result<Stage, Error> {
        if let Some(trouble) = self.trouble.take() {
            return Err(trouble);
        }
        let manifest = &self.subject.manifest;
        if manifest.task(&self.stage.task).is_none() {
            let ids: Vec<&str> = manifest.tasks.iter().map(|task| task.id.as_str()).collect();
            return Err(Error::Test(format!(
                "the package has no task {:?}: choose one of {} with `task`",
                self.stage.task,
                ids.join(", ")
            )));
        }
        campanile_package::context::check(&self.stage.context)
            .map_err(|reserved| Error::Test(format!("the context is refused: {reserved}")))?;
        Ok(Stage {
            replies: Some(Arc::new(self.routes.clone())),
            ..self.stage.clone()
        })
    }

    fn fail(&mut self, why: String) {
        self.trouble.get_or_insert(Error::Test(why));
    }
}

/// A directory with these files.
fn written<P: AsRef<Path>, C: AsRef<[u8]>>(
    files: impl IntoIterator<Item = (P, C)>,
) -> io::Result<TempDir> {
    let folder = TempDir::new()?;
    for (path, content) in files {
        let path = folder.path().join(path);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent)?;
        }
        std::fs::write(path, content)?;
    }
    Ok(folder)
}

/// The sandbox that all tests of this process share.
fn sandbox() -> Result<Arc<Sandbox>, Error> {
    static SANDBOX: OnceLock<Result<Arc<Sandbox>, String>> = OnceLock::new();
    let made = SANDBOX.get_or_init(|| {
        let settings = SandboxSettings {
            calls_max: CALLS_MAX,
            guest_threads: 2,
            cache_dir: None,
            memory_bytes_max: MEMORY_BYTES_MAX,
            stack_bytes_max: STACK_BYTES_MAX,
        };
        let sandbox = Sandbox::new(settings, Clock::system());
        sandbox.map(Arc::new).map_err(|error| error.to_string())
    });
    made.clone().map_err(Error::Test)
}

/// Await `work`, on a thread of its own: the test may be in an async context, which must not be blocked from inside.
fn block_on<T: Send>(work: impl Future<Output = T> + Send) -> Result<T, Error> {
    let awaited = || -> io::Result<T> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        Ok(runtime.block_on(work))
    };
    let joined = std::thread::scope(|scope| scope.spawn(awaited).join());
    match joined {
        Ok(done) => Ok(done?),
        Err(_) => Err(Error::Test("the host panicked".to_owned())),
    }
}
