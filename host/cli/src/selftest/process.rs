//! A host as a child process of the selftest.

use std::fs::File;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, kill_process};

/// A running host. A drop kills it.
pub(super) struct HostProcess {
    child: Child,
    log: PathBuf,
}

impl HostProcess {
    /// Start `command`, which appends its log to the file `log`.
    ///
    /// The child has its own process group, so that Ctrl-C on a terminal signals only the selftest, which then kills the child.
    pub(super) fn start(mut command: Command, log: &Path) -> io::Result<HostProcess> {
        let lines = File::options().create(true).append(true).open(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(lines)
            .process_group(0)
            .spawn()?;
        Ok(HostProcess {
            child,
            log: log.to_owned(),
        })
    }

    /// Kill the process, also a suspended one, and wait for its end.
    pub(super) fn kill(&mut self) {
        // An error means that the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Send a signal, unless the process has ended: another one may have its number then.
    pub(super) fn signal(&mut self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid.filter(|_| self.ended().is_none()) {
            let _ = kill_process(pid, signal);
        }
    }

    /// Returns how the process ended, if it has.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }

    /// Returns the last line of the log.
    pub(super) fn last_line(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last = log.lines().rev().find(|line| !line.trim().is_empty());
        last.unwrap_or("nothing").to_owned()
    }
}

impl Drop for HostProcess {
    fn drop(&mut self) {
        self.kill();
    }
}
