//! The loads that run beside the scans of a folder.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::task::{AbortHandle, JoinSet};

use crate::loader::{KNOWN_LOADS_MAX, LOADS_MAX};
use crate::package::Compiled;
use campanile_model::ids::ArtifactDigest;

/// The result of a load; the error is one sentence.
type LoadResult<A> = Result<Compiled<A>, String>;

/// The running loads, by the package's name.
pub(super) struct Loads<A> {
    tasks: JoinSet<LoadResult<A>>,
    running: BTreeMap<String, Running>,
    /// How many loads were started, and the number of the last one of each name. A file that changes again and again does
    /// not keep others waiting.
    started: u64,
    last_start: BTreeMap<String, u64>,
}

struct Running {
    /// Whether it needs no child process.
    is_known: bool,
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
        }
    }

    /// Whether another load may start now: one of a file that was loaded before, or of another.
    pub(super) fn has_room(&self, is_known: bool) -> bool {
        let running = self.running.values();
        let like_it = running.filter(|running| running.is_known == is_known);
        like_it.count() < if is_known { KNOWN_LOADS_MAX } else { LOADS_MAX }
    }

    /// Return which of `waiting` is to be loaded next: of those for which there is room, the one whose last load was started
    /// longest ago.
    pub(super) fn next_of(&self, waiting: &[(String, bool)]) -> Option<usize> {
        let may_start = |place: &usize| self.has_room(waiting[*place].1);
        let last_start = |place: &usize| self.last_start.get(&waiting[*place].0).copied();
        (0..waiting.len()).filter(may_start).min_by_key(last_start)
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
        (digest, is_known): (ArtifactDigest, bool),
        load: impl Future<Output = LoadResult<A>> + Send + 'static,
    ) {
        self.stop(name);
        self.started += 1;
        self.last_start.insert(name.to_owned(), self.started);
        let running = Running {
            is_known,
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

    /// Wait for the next load that ends; `None` when none runs. The future may be dropped before it is ready.
    pub(super) async fn next(&mut self) -> Option<(String, ArtifactDigest, LoadResult<A>)> {
        loop {
            let (id, result) = match self.tasks.join_next_with_id().await? {
                Ok((id, result)) => (id, result),
                Err(error) => {
                    let why = format!("the host failed while it loaded the file: {error}");
                    (error.id(), Err(why))
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
