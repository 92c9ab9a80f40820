//! The real `campanile` as a child process.

use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, OnceLock};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

use crate::PATIENCE;

/// Return the program under test, built from the current source.
///
/// `CAMPANILE_BIN` names another program. Otherwise it is built once for each process, with the profile of the test and
/// into the same folder.
///
/// # Panics
///
/// When it does not build.
pub fn campanile_binary() -> &'static Path {
    static BINARY: OnceLock<PathBuf> = OnceLock::new();
    BINARY.get_or_init(|| {
        if let Some(given) = std::env::var_os("CAMPANILE_BIN") {
            return PathBuf::from(given);
        }
        // target/<profile>/deps/<test>
        let test = std::env::current_exe().expect("the path of this test");
        let profile_folder = test
            .parent()
            .and_then(Path::parent)
            .expect("a test runs in target/<profile>/deps");
        let target_folder = profile_folder.parent().expect("a profile is in target");
        let profile = match profile_folder.file_name().and_then(|name| name.to_str()) {
            Some("debug") | None => "dev",
            Some(other) => other,
        };
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut build = Command::new(cargo);
        // Build scripts must not see the variables that cargo sets for the tests' package: those of dependencies would
        // run again, here and in the next build outside.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("CARGO_PKG_") || text.starts_with("CARGO_MANIFEST_") {
                build.env_remove(name);
            }
        }
        let status = build
            // Build the whole workspace, like the tests: with other features the dependencies would be compiled
            // again.
            .args(["build", "--quiet", "--workspace", "--bin"])
            .args(["campanile", "--profile", profile, "--target-dir"])
            .arg(target_folder)
            .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
            .status()
            .expect("cargo builds campanile");
        assert!(status.success(), "campanile does not build");
        profile_folder.join("campanile")
    })
}

/// The variable that says where the API of a host listens.
pub const LISTEN: &str = "CAMPANILE_LISTEN";

fn without_api(command: &mut Command) {
    if command.get_envs().all(|(name, _)| name != LISTEN) {
        command.env(LISTEN, "off");
    }
}

/// A running `campanile` process. A drop kills it.
pub struct HostProcess {
    child: Child,
    stderr: Arc<PipeLines>,
    stdout: Arc<PipeLines>,
}

#[derive(Default)]
struct PipeLines {
    state: Mutex<PipeState>,
    changed: Condvar,
}

#[derive(Default)]
struct PipeState {
    lines: Vec<String>,
    ended: bool,
}

impl HostProcess {
    /// Start `campanile` with `args` in the folder `folder`.
    pub fn start<I, S>(folder: &Path, args: I) -> HostProcess
    where
        I: IntoIterator<Item = S>,
        S: AsRef<std::ffi::OsStr>,
    {
        let mut command = Command::new(campanile_binary());
        command.args(args).current_dir(folder);
        HostProcess::spawn(&mut command)
    }

    /// Start a command that the caller made, for example with environment variables. Its API is off unless the caller sets
    /// the variable [`LISTEN`]: many hosts run at once on one machine.
    pub fn spawn(command: &mut Command) -> HostProcess {
        without_api(command);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let stderr = collect(child.stderr.take().expect("piped"));
        let stdout = collect(child.stdout.take().expect("piped"));
        HostProcess {
            child,
            stderr,
            stdout,
        }
    }

    /// Start a command whose stdout and stderr the caller has set. Their lines are not read here.
    pub fn spawn_without_reading(command: &mut Command) -> HostProcess {
        without_api(command);
        let child = command
            .stdin(Stdio::null())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        HostProcess {
            child,
            stderr: collect(std::io::empty()),
            stdout: collect(std::io::empty()),
        }
    }

    /// Return the process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns the process's peak resident memory so far in bytes, or 0 if the system doesn't tell.
    pub fn peak_memory(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()));
        let status = status.unwrap_or_default();
        let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kib = peak.and_then(|peak| peak.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        kib.unwrap_or_default() << 10
    }

    /// Waits for a line on stderr containing `text`, up to [`PATIENCE`], returning the first.
    ///
    /// # Panics
    ///
    /// Panics if no such line is printed, showing all printed lines.
    pub fn wait_for_line(&self, text: &str) -> String {
        let until = Instant::now() + PATIENCE;
        let mut state = self.stderr.state.lock().expect("no reader panics");
        loop {
            if let Some(line) = state.lines.iter().find(|line| line.contains(text)) {
                return line.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || state.ended {
                let ended = if state.ended { " and ended" } else { "" };
                let printed = state.lines.join("\n");
                // The reader must not find the lock poisoned.
                drop(state);
                panic!("campanile did not print `{text}`{ended}; it printed:\n{printed}");
            }
            (state, _) = self
                .stderr
                .changed
                .wait_timeout(state, left)
                .expect("no reader panics");
        }
    }

    /// Waits until the host has reported the files it started without because they weren't loaded yet, up to [`PATIENCE`]. Loading
    /// gets the processor after all tests. Files the host doesn't report are left to the caller.
    pub fn wait_for_late_loads(&self) {
        const LATE: &str = "the host starts without it package=";
        let until = Instant::now() + PATIENCE;
        let is_missing = |lines: &[String]| {
            let late = lines.iter().enumerate();
            let mut late = late.filter_map(|(place, line)| Some((place, line.split_once(LATE)?.1)));
            late.any(|(place, name)| {
                let later = lines[place + 1..].iter();
                let mut later =
                    later.filter(|line| !line.contains("loading ") && !line.contains(LATE));
                !later.any(|line| line.contains(name))
            })
        };
        while is_missing(&self.stderr_lines()) && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Return the lines on stderr until now.
    pub fn stderr_lines(&self) -> Vec<String> {
        self.stderr.lines()
    }

    /// Return the lines on stdout until now.
    pub fn stdout_lines(&self) -> Vec<String> {
        self.stdout.lines()
    }

    /// Kill the process with SIGKILL and wait for its end.
    pub fn kill(&mut self) -> ExitStatus {
        let _ = self.child.kill();
        self.child.wait().expect("the end of a killed process")
    }

    /// Ask the process to stop with SIGTERM, as an init system does.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Send a signal to the process.
    pub fn signal(&self, signal: Signal) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Waits until the process has stopped itself, up to [`PATIENCE`].
    ///
    /// # Panics
    ///
    /// Panics if it doesn't stop, showing everything it printed.
    pub fn wait_stopped(&self) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        let until = Instant::now() + PATIENCE;
        let options = WaitOptions::UNTRACED | WaitOptions::NOHANG;
        while Instant::now() < until {
            if let Ok(Some((_, status))) = waitpid(pid, options)
                && status.stopped()
            {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let printed = self.stderr_lines().join("\n");
        panic!("campanile did not stop itself; it printed:\n{printed}");
    }

    /// Return the exit status if the process has ended.
    pub fn try_wait(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child process")
    }

    /// Wait for `span`. The process must not end in that time.
    ///
    /// # Panics
    ///
    /// When the process ends. The message has everything it printed.
    pub fn stays_up(&mut self, span: Duration) {
        let until = Instant::now() + span;
        while Instant::now() < until {
            if let Some(status) = self.try_wait() {
                let printed = self.stderr_lines().join("\n");
                panic!("campanile ended with {status}; it printed:\n{printed}");
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the process has ended, up to [`PATIENCE`].
    ///
    /// # Panics
    ///
    /// Panics if it doesn't end, showing everything it printed.
    pub fn wait_exit(&mut self) -> ExitStatus {
        let until = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.try_wait() {
                self.stderr.wait_end();
                self.stdout.wait_end();
                return status;
            }
            assert!(
                Instant::now() < until,
                "campanile did not end in {PATIENCE:?}; it printed:\n{}",
                self.stderr_lines().join("\n")
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl PipeLines {
    fn lines(&self) -> Vec<String> {
        self.state.lock().expect("no reader panics").lines.clone()
    }

    /// Wait up to two seconds until the pipe is read to its end.
    fn wait_end(&self) {
        let state = self.state.lock().expect("no reader panics");
        let _ = self
            .changed
            .wait_timeout_while(state, Duration::from_secs(2), |state| !state.ended);
    }
}

fn collect(pipe: impl Read + Send + 'static) -> Arc<PipeLines> {
    let lines = Arc::new(PipeLines::default());
    let collected = lines.clone();
    std::thread::spawn(move || {
        let mut pipe = BufReader::new(pipe);
        let mut bytes = Vec::new();
        loop {
            bytes.clear();
            let read = pipe.read_until(b'\n', &mut bytes).unwrap_or(0);
            let mut state = collected.state.lock().expect("no reader panics");
            if read == 0 {
                state.ended = true;
            } else {
                let line = String::from_utf8_lossy(&bytes);
                state.lines.push(line.trim_end().to_owned());
            }
            collected.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    });
    lines
}
