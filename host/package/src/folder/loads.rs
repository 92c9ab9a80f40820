//! The loads that run beside the scans of a folder.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::task::{AbortHandle, JoinSet};

use crate::loader::{LOADS_MAX, LoadError, Pace};
use crate::package::Compiled;
use campanile_model::ids::ArtifactDigest;
use campanile_model::namespace::split;

type LoadResult<A> = Result<Compiled<A>, LoadError>;

/// Returns the namespace in a package's name, or an empty text without one.
fn namespace(name: &str) -> &str {
    split(name).0.unwrap_or_default()
}

/// A file waiting to be loaded.
pub(super) struct Waiting {
    pub(super) name: String,
    pub(super) size_bytes: u64,
    pub(super) pace: Pace,
}

/// The running loads, by the package's name.
pub(super) struct Loads<A> {
    tasks: JoinSet<LoadResult<A>>,
    running: BTreeMap<String, Running>,
    /// How many loads were started, and the number of the last one of each name. A file that changes again and again does
    /// not keep others waiting.
    started: u64,
    last_start: BTreeMap<String, u64>,
    /// The same for each namespace.
    last_start_in: BTreeMap<String, u64>,
}

struct Running {
    pace: Pace,
    digest: ArtifactDigest,
    since: Instant,
    task: AbortHandle,
}

impl<A: Send + Sync + 'static> Loads<A> {
    pub(super) fn new() -> Loads<A> {
        Loads {
            tasks: JoinSet::new(),
            running: BTreeMap::new(),
            started: 0,
            last_start: BTreeMap::new(),
            last_start_in: BTreeMap::new(),
        }
    }

    /// Returns which of `waiting` to load next, if another load may start now.
    ///
    /// Only one load at a time runs at full pace, leaving the rest of the machine to quick ones: slow files delay just each other,
    /// and one of them goes first if none is running. Namespaces take turns. Within each, untried files come first, starting with
    /// the smallest, then the one whose last load started longest ago.
    pub(super) fn next_of(&self, waiting: &[Waiting]) -> Option<usize> {
        if self.running.len() >= LOADS_MAX {
            return None;
        }
        let is_slow_taken = self.running.values().any(|load| load.pace == Pace::Full);
        let may_start = |place: &usize| waiting[*place].pace == Pace::Quick || !is_slow_taken;
        let order = |place: &usize| {
            let Waiting {
                name,
                size_bytes,
                pace,
            } = &waiting[*place];
            (
                *pace == Pace::Quick,
                self.last_start_in.get(namespace(name)).copied(),
                self.last_start.get(name).copied(),
                *size_bytes,
            )
        };
        (0..waiting.len()).filter(may_start).min_by_key(order)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn is_running(&self, name: &str, digest: &ArtifactDigest) -> bool {
        self.running
            .get(name)
            .is_some_and(|running| running.digest == *digest)
    }

    /// Start to load a file of `name`, in place of the file that is loaded for it now.
    pub(super) fn start(
        &mut self,
        name: &str,
        (digest, pace): (ArtifactDigest, Pace),
        load: impl Future<Output = LoadResult<A>> + Send + 'static,
    ) {
        self.stop(name);
        self.started += 1;
        self.last_start.insert(name.to_owned(), self.started);
        self.last_start_in
            .insert(namespace(name).to_owned(), self.started);
        let running = Running {
            pace,
            digest,
            since: Instant::now(),
            task: self.tasks.spawn(load),
        };
        self.running.insert(name.to_owned(), running);
    }

    /// Stop the load for `name`, if one runs.
    pub(super) fn stop(&mut self, name: &str) {
        if let Some(running) = self.running.remove(name) {
            running.task.abort();
        }
    }

    /// Stops the load for `name`, whose file is gone, and forgets when it started.
    pub(super) fn forget(&mut self, name: &str) {
        self.stop(name);
        self.last_start.remove(name);
    }

    /// Wait for the next load that ends; `None` when none runs. The future may be dropped before it is ready.
    pub(super) async fn next(&mut self) -> Option<(String, ArtifactDigest, LoadResult<A>)> {
        loop {
            let (id, result) = match self.tasks.join_next_with_id().await? {
                Ok((id, result)) => (id, result),
                Err(error) => {
                    let why = format!("the host failed while it loaded the file: {error}");
                    (error.id(), Err(LoadError::Refused(why)))
                }
            };
            let mut running = self.running.iter();
            let ended = running.find(|(_, running)| running.task.id() == id);
            // A load that was stopped has no entry.
            if let Some((name, running)) = ended {
                let ended = (name.clone(), running.digest.clone(), result);
                self.running.remove(&ended.0);
                return Some(ended);
            }
        }
    }

    /// List the running loads: the package's name, and when the load began.
    pub(super) fn list(&self) -> impl Iterator<Item = (&str, Instant)> {
        let running = self.running.iter();
        running.map(|(name, running)| (name.as_str(), running.since))
    }
}
