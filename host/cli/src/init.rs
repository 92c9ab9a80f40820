//! The first process of a container.
//!
//! A process whose parent has ended becomes a child of process 1, and stays as a zombie until that waits for it. A host does not
//! wait for processes that it hasn't started: a command of a secret may leave some. So `serve` as process 1 runs the host as its child,
//! passes signals on, and waits for all that end.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use crate::output::{Result, failed};
use crate::signals;

/// The signals that are passed on. The others end process 1, are ignored by it, or are about its own children.
const PASSED_ON: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// As in shells: a process that a signal ended.
const BY_SIGNAL: i32 = 128;

/// Whether this is the first process of a container, or of a machine.
pub(crate) fn is_first_process() -> bool {
    std::process::id() == 1
}

/// Runs this command again as a child, until it ends. Returns its exit code.
pub(crate) fn run() -> Result<ExitCode> {
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let threads = threads.map_err(|error| failed!("threads cannot be started: {error}"))?;
    threads.block_on(run_child())
}

async fn run_child() -> Result<ExitCode> {
    // Listen before there's a child that could end.
    let mut ended = signals::listen(SignalKind::child())?;
    let (sender, mut passed_on) = mpsc::channel(PASSED_ON.len());
    for signal in PASSED_ON {
        let mut received = signals::listen(SignalKind::from_raw(signal.as_raw()))?;
        let sender = sender.clone();
        tokio::spawn(async move {
            while received.recv().await.is_some() && sender.send(signal).await.is_ok() {}
        });
    }
    let child = start()?;
    loop {
        tokio::select! {
            Some(signal) = passed_on.recv() => {
                // It may have ended.
                let _ = kill_process(child, signal);
            }
            _ = ended.recv() => {}
        }
        if let Some(status) = wait_for_ended(child) {
            return Ok(ExitCode::from(
                u8::try_from(code_of(status)).unwrap_or(u8::MAX),
            ));
        }
    }
}

/// Starts this command again. The terminal sends its signals to this process alone, which passes each on once.
fn start() -> Result<Pid> {
    let fail = |error: std::io::Error| {
        failed!("the host cannot be started as a child of process 1: {error}")
    };
    let mut arguments = std::env::args_os();
    let name = arguments.next().unwrap_or_default();
    let program = std::env::current_exe().map_err(fail)?;
    let mut command = Command::new(program);
    command.arg0(name).args(arguments).process_group(0);
    let child = command.spawn().map_err(fail)?;
    Ok(Pid::from_child(&child))
}

/// Waits for every process that has ended. Returns how `child` ended, if it has.
fn wait_for_ended(child: Pid) -> Option<WaitStatus> {
    let mut of_child = None;
    while let Ok(Some((process, status))) = wait(WaitOptions::NOHANG) {
        if process == child {
            of_child = Some(status);
        }
    }
    of_child
}

fn code_of(status: WaitStatus) -> i32 {
    let by_signal = || status.terminating_signal().map(|signal| BY_SIGNAL + signal);
    status.exit_status().or_else(by_signal).unwrap_or(1)
}
