//! What the directories with quotas hold, as all calls of this process know it.
//!
//! A directory is measured when a call first makes it grow, and when a quota seems to be used up. Between two
//! measurements, each growth is added and nothing is subtracted. The sum is therefore at least what the directory holds,
//! unless another process adds to it.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::fs::fstat;
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use tokio::sync::{OwnedRwLockReadGuard, RwLock, Semaphore};
use wasmtime_wasi::runtime::spawn_blocking;

use crate::capability::files::measure::{Amount, Unmeasured, identity, measure};

/// Walks at once. Each takes a thread for blocking work, and a file descriptor for each directory on its way.
const WALKS_MAX: usize = 8;
static WALKS: Semaphore = Semaphore::const_new(WALKS_MAX);

/// The pause between two walks of a directory is this many times as long as the last walk took, within these bounds. A
/// task at its quota that tries again and again costs at most a twentieth of a thread in a small directory.
const PAUSE_WALKS: u32 = 20;
const PAUSE_LEAST: Duration = Duration::from_millis(10);
const PAUSE_MOST: Duration = Duration::from_secs(1);

/// The directories whose quotas are in use, by device and inode.
static DIRECTORIES: Mutex<BTreeMap<(u64, u64), Weak<DirectoryUsage>>> = Mutex::new(BTreeMap::new());

/// What one directory holds. The calls with a quota on it share this.
pub(super) struct DirectoryUsage {
    /// Also keeps the inode from being given to another directory.
    directory: Arc<File>,
    /// Held by each operation that may grow the directory, from the look at a file's size until the operation has
    /// ended; a walk holds it alone. Otherwise this could happen: A looks at a file of 1 GiB, B truncates it, a walk
    /// finds 0 bytes, A writes behind 1 GiB and believes that the file does not grow.
    operations: Arc<RwLock<()>>,
    measuring: tokio::sync::Mutex<()>,
    state: Mutex<State>,
}

struct State {
    used: Result<Amount, Unmeasured>,
    /// When the last walk began, and how long it took.
    measured: Option<(Instant, Duration)>,
    /// Files that calls have opened for writing. They count when they have no name any more.
    open: Vec<Weak<File>>,
    /// The length of `open` at which closed files are removed from it.
    open_most: usize,
}

impl DirectoryUsage {
    /// Returns what is known of `directory`.
    pub(super) fn of(directory: &Arc<File>) -> Result<Arc<DirectoryUsage>, Errno> {
        let identity = identity(&fstat(directory)?);
        let mut known = DIRECTORIES.lock().unwrap_or_else(PoisonError::into_inner);
        known.retain(|_, usage| usage.strong_count() > 0);
        if let Some(usage) = known.get(&identity).and_then(Weak::upgrade) {
            return Ok(usage);
        }
        let usage = Arc::new(DirectoryUsage {
            // A separate file: a call's operations count their threads by references to the call's own.
            directory: Arc::new(File::from(fcntl_dupfd_cloexec(directory, 0)?)),
            operations: Arc::default(),
            measuring: tokio::sync::Mutex::default(),
            state: Mutex::new(State {
                used: Ok(Amount::NOTHING),
                measured: None,
                open: Vec::new(),
                open_most: 16,
            }),
        });
        known.insert(identity, Arc::downgrade(&usage));
        Ok(usage)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begin an operation. No walk runs until the guard is dropped.
    pub(super) async fn begin(&self) -> OwnedRwLockReadGuard<()> {
        Arc::clone(&self.operations).read_owned().await
    }

    /// Returns what the directory holds at most, or none before it was measured.
    pub(super) fn used(&self) -> Option<Amount> {
        let state = self.state();
        state.measured.and(state.used.clone().ok())
    }

    /// Whether a walk began at `since` or later.
    pub(super) fn is_measured_since(&self, since: Instant) -> bool {
        self.state()
            .measured
            .is_some_and(|(began, _)| began >= since)
    }

    /// Add `more` if `check` permits it for what the directory then holds.
    pub(super) fn add(
        &self,
        more: Amount,
        check: impl FnOnce(Amount) -> Result<(), String>,
    ) -> Result<(), String> {
        let mut state = self.state();
        let used = state.used.clone().map_err(|why| format!(
            "has a quota, and what it holds is not known: {why}; remove what is too much, or grant another directory"
        ));
        let sum = used?.plus(more);
        check(sum)?;
        state.used = Ok(sum);
        Ok(())
    }

    /// Replace an amount that was added by what the directory really grew.
    pub(super) fn correct(&self, added: Amount, grown: Amount) {
        let mut state = self.state();
        if let Ok(used) = &mut state.used {
            *used = used.minus(added).plus(grown);
        }
    }

    /// Remember a file that was opened for writing.
    pub(super) fn remember(&self, file: &Arc<File>) {
        let mut state = self.state();
        if state.open.len() >= state.open_most {
            state.open.retain(|file| file.strong_count() > 0);
            state.open_most = (state.open.len() * 2).max(16);
        }
        state.open.push(Arc::downgrade(file));
    }

    /// Measure the directory, unless a walk began at `newest` or later.
    pub(super) async fn measure(&self, newest: Instant) {
        let _only = self.measuring.lock().await;
        let last = self.state().measured;
        if let Some((began, took)) = last {
            if began >= newest {
                return;
            }
            let pause = (took * PAUSE_WALKS).clamp(PAUSE_LEAST, PAUSE_MOST);
            tokio::time::sleep_until((began + pause).into()).await;
        }
        let alone = Arc::clone(&self.operations).write_owned().await;
        let permit = WALKS.acquire().await;
        let began = Instant::now();
        let directory = Arc::clone(&self.directory);
        let open: Vec<Arc<File>> = {
            let open = &mut self.state().open;
            open.retain(|file| file.strong_count() > 0);
            open.iter().filter_map(Weak::upgrade).collect()
        };
        // Dropped with this future when nothing waits for the walk any more.
        let waits = Arc::new(());
        let waiting = Arc::downgrade(&waits);
        let found = spawn_blocking(move || measure(&directory, &open, &waiting)).await;
        let mut state = self.state();
        state.used = found;
        state.measured = Some((began, began.elapsed()));
        drop((state, alone, permit, waits));
    }
}
