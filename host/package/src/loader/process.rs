//! The host's side of a load: start the child process, pass it the file, read the verdict, and explain a failure.

use std::fmt::Display;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::Arc;
use std::time::Duration;

use campanile_model::ids::ArtifactDigest;
use campanile_model::text::{cut_error, printable_line, size_text};
use campanile_sandbox::SandboxSettings;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, Command};
use tokio::sync::Semaphore;

use super::exchange::{Accepted, ChildSettings, LoadLimits, Verdict, is_out_of_memory};
use super::verdicts::Verdicts;
use super::{Attempt, LoadError, LoadObserver, Pace, load_time};
use crate::files::off_thread;

/// Loads that run at the same time. With two, one slow file does not stop the others.
pub const LOADS_MAX: usize = 2;
/// How long a quick load may take. Ordinary files of about a megabyte need less.
const QUICK_TIME: Duration = Duration::from_secs(2);
/// The longest verdict. A description has at most 256 KiB, which JSON may escape.
const VERDICT_BYTES_MAX: u64 = 2 << 20;
/// How much of what the process writes to stderr is read.
const STDERR_BYTES_MAX: u64 = 16 << 10;

/// Starts the processes that load files.
pub(super) struct LoadProcesses {
    args: Vec<String>,
    observer: LoadObserver,
    settings: ChildSettings,
    slots: Semaphore,
    /// Held by the only load running at full pace.
    full_pace: Semaphore,
    verdicts: Arc<Verdicts>,
}

impl LoadProcesses {
    /// Prepare loads for a sandbox with these `settings`, which keeps compiled code in `cache_dir`.
    pub(super) fn new(
        settings: &SandboxSettings,
        cache_dir: PathBuf,
        limits: LoadLimits,
        args: Vec<String>,
        observer: LoadObserver,
    ) -> LoadProcesses {
        let settings = ChildSettings {
            package: String::new(),
            cache_dir,
            memory_bytes_max: settings.memory_bytes_max,
            stack_bytes_max: settings.stack_bytes_max,
            component_limits: settings.component_limits,
            loaded_bytes_max: settings.loaded_bytes_max,
            limits,
        };
        LoadProcesses {
            verdicts: Arc::new(Verdicts::new(&settings)),
            args,
            observer,
            settings,
            slots: Semaphore::new(LOADS_MAX),
            full_pace: Semaphore::new(1),
        }
    }

    /// Loads a file unless there's a verdict about it already, returning what's known.
    pub(super) async fn load(
        &self,
        package: &str,
        bytes: &Arc<Vec<u8>>,
        attempt: Attempt,
        pace: Pace,
    ) -> Result<(ArtifactDigest, Accepted), LoadError> {
        let hashed = Arc::clone(bytes);
        let digest = off_thread(move || ArtifactDigest::of(&hashed)).await?;
        let work = (attempt, pace);
        let verdict = self.verdict(package, bytes, &digest, work).await?;
        Ok((digest, verdict?))
    }

    /// Returns the verdict about a file, loading it if necessary. Errors concern the machine, or a file taking too long.
    async fn verdict(
        &self,
        package: &str,
        bytes: &Arc<Vec<u8>>,
        digest: &ArtifactDigest,
        (attempt, pace): (Attempt, Pace),
    ) -> Result<Verdict, LoadError> {
        if let Some(verdict) = self.known(digest, attempt).await? {
            return Ok(verdict);
        }
        // The semaphores are never closed. A load at full pace takes no slot while waiting its turn.
        let _full_pace = match pace {
            Pace::Quick => None,
            Pace::Full => self.full_pace.acquire().await.ok(),
        };
        let _slot = self.slots.acquire().await;
        // Another load of the same bytes may have ended meanwhile.
        if let Some(verdict) = self.known(digest, attempt).await? {
            return Ok(verdict);
        }
        let verdict = self.run(package, bytes, pace).await?;
        let (verdicts, found, digest) =
            (Arc::clone(&self.verdicts), verdict.clone(), digest.clone());
        off_thread(move || verdicts.keep(&digest, &found)).await?;
        Ok(verdict)
    }

    /// Returns the verdict on record that counts for this attempt.
    async fn known(
        &self,
        digest: &ArtifactDigest,
        attempt: Attempt,
    ) -> Result<Option<Verdict>, String> {
        let (verdicts, digest) = (Arc::clone(&self.verdicts), digest.clone());
        let known = off_thread(move || verdicts.find(&digest)).await?;
        let counts = |verdict: &Verdict| attempt == Attempt::First || verdict.is_ok();
        Ok(known.filter(counts))
    }

    /// Returns the result of an earlier load of the file with this digest.
    pub(super) async fn recall(&self, digest: &ArtifactDigest) -> Option<Result<Accepted, String>> {
        self.known(digest, Attempt::First).await.ok()?
    }

    /// Runs one process for one file. An error means trouble with the machine, or a file too slow for this pace: the next attempt may
    /// succeed.
    async fn run(&self, package: &str, bytes: &[u8], pace: Pace) -> Result<Verdict, LoadError> {
        let trouble = |error: std::io::Error| {
            failed(format_args!("the loading process cannot be used: {error}"))
        };
        let size = size_text(bytes.len() as u64);
        tracing::info!("loading {} ({size})", printable_line(package));
        let _observed = (self.observer)(package, bytes.len() as u64);
        let mut child = self.spawn(package).map_err(trouble)?;
        let limit = match pace {
            Pace::Quick => QUICK_TIME.min(self.settings.limits.time),
            Pace::Full => self.settings.limits.time,
        };
        let is_over = load_time::is_over(child.id(), limit);
        let ended = tokio::select! {
            ended = exchange(&mut child, bytes) => Some(ended),
            () = is_over => None,
        };
        let Some(ended) = ended else {
            // The slot is free only when the memory of the process is.
            child.kill().await.map_err(trouble)?;
            if limit < self.settings.limits.time {
                return Err(LoadError::Slow);
            }
            return Ok(Err(failed(self.too_slow())));
        };
        let (status, verdict, talk) = ended.map_err(trouble)?;
        match serde_json::from_slice(&verdict) {
            Ok(verdict) if status.success() => {
                // The process writing this may have been taken over by the file.
                let verdict: Verdict = verdict;
                Ok(verdict.map_err(|refusal| cut_error(printable_line(&refusal))))
            }
            _ => Ok(self.explain(status, &String::from_utf8_lossy(&talk))?),
        }
    }

    fn spawn(&self, package: &str) -> std::io::Result<Child> {
        let settings = ChildSettings {
            package: package.to_owned(),
            ..self.settings.clone()
        };
        Command::new(own_program()?)
            .args(&self.args)
            .arg(serde_json::to_string(&settings)?)
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
    }

    /// Say why a process ended without a result: because of the file, if the evidence allows it, or with trouble of the
    /// machine.
    fn explain(&self, status: ExitStatus, talk: &str) -> Result<Verdict, String> {
        const SIGXCPU: i32 = 24;
        const SIGXFSZ: i32 = 25;
        let memory = size_text(self.settings.limits.memory_bytes);
        let line = printable_line(talk.trim_start().lines().next().unwrap_or_default());
        let why = match status.signal() {
            _ if is_out_of_memory(talk) => format!(
                "out of memory at {memory}; build a smaller package, or raise `packages.load_memory`"
            ),
            _ if talk.contains("overflowed its stack") => {
                "the file is nested too deeply; build it with a current toolchain".to_owned()
            }
            Some(SIGXCPU) => self.too_slow(),
            Some(SIGXFSZ) => "its compiled code is too large; build a smaller package".to_owned(),
            Some(signal) => format!(
                "the loading process was ended by signal {signal} ({line}); touch the file to try again"
            ),
            None if line.is_empty() => {
                return Err(failed(format_args!(
                    "the loading process ended with {status}"
                )));
            }
            None => return Err(failed(line)),
        };
        Ok(Err(failed(why)))
    }

    fn too_slow(&self) -> String {
        format!(
            "it was not compiled within {}; build a smaller package, or raise `packages.load_time`",
            humantime::format_duration(self.settings.limits.time)
        )
    }
}

fn failed(why: impl Display) -> String {
    cut_error(format!("load failed: {why}"))
}

/// Hand the process the file, and wait for its end. Return its status, its verdict, and what it wrote to stderr.
async fn exchange(
    child: &mut Child,
    bytes: &[u8],
) -> std::io::Result<(ExitStatus, Vec<u8>, Vec<u8>)> {
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let write = async {
        if let Some(mut stdin) = stdin {
            // A process that ended early is judged by its end.
            let _ = stdin.write_all(bytes).await;
        }
    };
    let ((), verdict, talk) = tokio::join!(
        write,
        read(stdout, VERDICT_BYTES_MAX),
        read(stderr, STDERR_BYTES_MAX)
    );
    Ok((child.wait().await?, verdict, talk))
}

/// Read at most `most` bytes of `from`. The rest is read too, so that the process does not wait, and thrown away.
async fn read(from: Option<impl AsyncRead + Unpin>, most: u64) -> Vec<u8> {
    let mut read = Vec::new();
    if let Some(mut from) = from {
        // What was read before an error counts.
        let _ = (&mut from).take(most).read_to_end(&mut read).await;
        let _ = tokio::io::copy(&mut from, &mut tokio::io::sink()).await;
    }
    read
}

/// Returns the path of the program that runs, even if its file was replaced since.
fn own_program() -> std::io::Result<PathBuf> {
    if cfg!(target_os = "linux") {
        return Ok(PathBuf::from("/proc/self/exe"));
    }
    std::env::current_exe()
}
