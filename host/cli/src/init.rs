//! Acting as a container's first process.
//!
//! Orphaned processes become children of process 1, staying zombies until it waits for them. A host never waits for processes it hasn't
//! started, and the commands of secrets may leave some behind. As process 1, `serve` therefore runs the host as a child, passing on signals
//! and waiting for whatever ends.

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, wait};
use tokio::signal::unix::SignalKind;
use tokio::sync::mpsc;

use crate::output::{Result, failed};
use crate::signals;

/// Signals passed on to the host. All others end process 1, are ignored by it, or concern its own children.
const PASSED_ON: [Signal; 6] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
];

/// Added to the signal's number when a signal ended the process, as in shells.
const BY_SIGNAL: i32 = 128;

/// Whether this is the first process of a container or machine.
pub(crate) fn is_first_process() -> bool {
    std::process::id() == 1
}

/// Runs this command again as a child until it ends, returning its exit code.
pub(crate) fn run() -> Result<ExitCode> {
    let threads = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let threads = threads.map_err(|error| failed!("threads cannot be started: {error}"))?;
    threads.block_on(run_child())
}

async fn run_child() -> Result<ExitCode> {
    // Start listening before there's a child to end.
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
                // It may have ended already.
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

/// Starts this command again in its own process group. Signals from the terminal then reach this process alone, which passes each on just
/// once.
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

/// Reaps all processes that have ended, returning how `child` ended if it's among them.
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
