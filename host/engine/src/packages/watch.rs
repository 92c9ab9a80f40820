//! When to look at the plugins folder again.
//!
//! A watch gives hints, and a scan finds what changed. Events of the file system are gathered until they pause. A hint
//! also comes at regular times, because network file systems, containers and overflowing queues lose events.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use campanile_model::words;
use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tokio::sync::Notify;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until};

/// A burst of events is over after this time without an event.
pub const QUIET: Duration = Duration::from_millis(300);
/// A burst that does not end is cut here.
const BURST_MOST: Duration = Duration::from_secs(2);
/// How often to look whether the folder is still the same one, and the distance of hints in [`Mode::Poll`].
const LOOK: Duration = Duration::from_secs(2);

words! {
    /// How changes of a folder are noticed.
    #[derive(Default)]
    Mode {
        /// By events of the operating system, and by polling where there are none.
        #[default]
        Auto => "auto",
        /// By a hint every two seconds: for network file systems and shared folders of containers.
        Poll => "poll",
        /// Only by the regular rescan.
        Off => "off",
    }
}

/// A watched folder. All its instants are on the monotonic clock.
pub struct Watch {
    folder: PathBuf,
    /// How changes are noticed at present: [`Mode::Poll`] where `Auto` got no events.
    mode: Mode,
    rescan: Duration,
    hints: Arc<Notify>,
    /// The operating system's watch, and its directories, which it follows when they are renamed.
    watcher: Option<(Option<Identity>, RecommendedWatcher)>,
    burst: Option<Burst>,
    rescan_at: Instant,
    look_at: Instant,
}

/// The device and the number of the folder, and of the folders of its namespaces.
type Identity = Vec<(u64, u64)>;

struct Burst {
    first: Instant,
    last: Instant,
}

impl Burst {
    fn over_at(&self) -> Instant {
        (self.last + QUIET).min(self.first + BURST_MOST)
    }
}

impl Watch {
    /// Watch `folder`, with a hint at least every `rescan`.
    ///
    /// It never fails. Where the operating system gives no events (its watches are used up, or it has none), this logs
    /// a warning and polls. Scan the folder once after this: hints are about later changes.
    pub fn start(folder: &Path, mode: Mode, rescan: Duration) -> Watch {
        let now = Instant::now();
        let mut watch = Watch {
            folder: folder.to_owned(),
            mode,
            rescan,
            hints: Arc::new(Notify::new()),
            watcher: None,
            burst: None,
            rescan_at: now + rescan,
            look_at: now + LOOK,
        };
        if mode == Mode::Auto {
            watch.arm();
        }
        watch
    }

    /// Wait until the folder should be looked at. May be dropped and called again without losing a hint.
    pub async fn changed(&mut self) {
        loop {
            let mut wake_at = self.rescan_at;
            if self.mode != Mode::Off {
                wake_at = wake_at.min(self.look_at);
            }
            if let Some(burst) = &self.burst {
                wake_at = wake_at.min(burst.over_at());
            }
            tokio::select! {
                () = self.hints.notified() => self.hint(),
                () = sleep_until(wake_at) => {}
            }
            if self.is_due().await {
                self.burst = None;
                self.rescan_at = Instant::now() + self.rescan;
                return;
            }
        }
    }

    fn hint(&mut self) {
        let last = Instant::now();
        let first = self.burst.as_ref().map_or(last, |burst| burst.first);
        self.burst = Some(Burst { first, last });
    }

    async fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let burst = self.burst.as_ref();
        if now >= self.rescan_at || burst.is_some_and(|burst| now >= burst.over_at()) {
            return true;
        }
        if self.mode == Mode::Off || now < self.look_at {
            return false;
        }
        self.look_at = now + LOOK;
        if self.mode == Mode::Poll {
            return true;
        }
        let folder = self.folder.clone();
        let identity = spawn_blocking(move || identity(&folder))
            .await
            .ok()
            .flatten();
        if identity.as_ref()
            != self
                .watcher
                .as_ref()
                .and_then(|(watched, _)| watched.as_ref())
        {
            // Another directory has this name now, or none has it, or there is another namespace.
            self.watcher = None;
            if identity.is_some() {
                self.arm();
                self.hint();
            }
        }
        false
    }

    /// Ask the operating system for events; poll when it gives none.
    fn arm(&mut self) {
        let hints = Arc::clone(&self.hints);
        // Runs on the watcher's own thread. An error is a hint too: something was missed.
        let handler = move |event: notify::Result<notify::Event>| {
            if event.map_or(true, |event| event.need_rescan() || matters(event.kind)) {
                hints.notify_one();
            }
        };
        let identity = identity(&self.folder);
        let armed = notify::recommended_watcher(handler).and_then(|mut watcher| {
            watcher.watch(&self.folder, RecursiveMode::NonRecursive)?;
            for namespace in namespaces(&self.folder) {
                watcher.watch(&namespace, RecursiveMode::NonRecursive)?;
            }
            Ok(watcher)
        });
        // A folder that has just been removed is watched again when it is back.
        if let Err(error) = &armed
            && self.folder.is_dir()
        {
            tracing::warn!(folder = %self.folder.display(), %error, "the operating system gives no file events, so the folder is polled every 2 s");
            self.mode = Mode::Poll;
        }
        self.watcher = armed.ok().map(|watcher| (identity, watcher));
    }
}

/// Returns what tells the folder, and the folders of its namespaces, from others at their paths; none when there is no folder.
/// Blocks.
fn identity(folder: &Path) -> Option<Identity> {
    let of = |path: &Path| {
        let found = fs::metadata(path).ok()?;
        Some((found.dev(), found.ino()))
    };
    let mut all = vec![of(folder)?];
    all.extend(namespaces(folder).iter().filter_map(|path| of(path)));
    Some(all)
}

/// Returns the folders of the namespaces in a plugins folder, sorted. Blocks.
fn namespaces(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let folders = entries.filter(|entry| {
        let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
        is_folder && entry.file_name().as_bytes().starts_with(b"@")
    });
    let mut folders: Vec<PathBuf> = folders.map(|entry| entry.path()).collect();
    folders.sort_unstable();
    folders
}

/// Whether an event may mean that a file has other content. A host's own reading opens and closes files, and must not
/// wake it to read them again.
fn matters(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(kind) => kind == AccessKind::Close(AccessMode::Write),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::timeout;

    const HOUR: Duration = Duration::from_secs(3600);
    /// For what does come.
    const PATIENCE_MS: u64 = 300_000;

    async fn wakes_within(watch: &mut Watch, wait_ms: u64) -> bool {
        timeout(Duration::from_millis(wait_ms), watch.changed())
            .await
            .is_ok()
    }

    #[tokio::test]
    async fn a_write_wakes_and_reading_does_not() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(root.path(), Mode::Auto, HOUR);
        assert_eq!(watch.mode, Mode::Auto);
        assert!(!wakes_within(&mut watch, 500).await);
        let file = root.path().join("a.wasm");
        fs::write(&file, "x").unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
        fs::read(&file).unwrap();
        fs::read_dir(root.path()).unwrap().count();
        assert!(!wakes_within(&mut watch, 800).await);
        fs::remove_file(&file).unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
    }

    #[tokio::test]
    async fn a_burst_is_one_hint() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(root.path(), Mode::Auto, HOUR);
        for n in 0..50 {
            fs::write(root.path().join(format!("{n}.wasm")), "x").unwrap();
        }
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
        assert!(!wakes_within(&mut watch, 800).await);
    }

    #[test]
    fn a_burst_ends_in_quiet_or_is_cut() {
        let first = Instant::now();
        let burst = |last_ms: u64| Burst {
            first,
            last: first + Duration::from_millis(last_ms),
        };
        assert_eq!(burst(0).over_at(), first + QUIET);
        assert_eq!(burst(500).over_at(), first + Duration::from_millis(800));
        assert_eq!(burst(9000).over_at(), first + BURST_MOST);
    }

    #[tokio::test]
    async fn a_hint_outlives_a_dropped_wait() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(root.path(), Mode::Auto, HOUR);
        fs::write(root.path().join("a.wasm"), "x").unwrap();
        for _ in 0..5 {
            assert!(!wakes_within(&mut watch, 20).await);
        }
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
    }

    #[tokio::test]
    async fn a_folder_that_vanishes_and_comes_back_is_watched_again() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("plugins");
        fs::create_dir(&folder).unwrap();
        let mut watch = Watch::start(&folder, Mode::Auto, HOUR);
        fs::rename(&folder, root.path().join("old")).unwrap();
        while wakes_within(&mut watch, 2500).await {}
        fs::create_dir(&folder).unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
        fs::write(folder.join("a.wasm"), "x").unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
    }

    #[tokio::test]
    async fn the_folder_of_a_namespace_is_watched_once_it_is_there() {
        let root = tempfile::tempdir().unwrap();
        let mut watch = Watch::start(root.path(), Mode::Auto, HOUR);
        let team = root.path().join("@team");
        fs::create_dir(&team).unwrap();
        // The new folder wakes, and so does the new watch.
        while wakes_within(&mut watch, 2500).await {}
        fs::write(team.join("a.wasm"), "x").unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
        fs::remove_dir_all(&team).unwrap();
        assert!(wakes_within(&mut watch, PATIENCE_MS).await);
    }

    #[tokio::test]
    async fn polling_and_the_regular_rescan_need_no_event() {
        let root = tempfile::tempdir().unwrap();
        let mut polled = Watch::start(root.path(), Mode::Poll, HOUR);
        assert!(wakes_within(&mut polled, PATIENCE_MS).await);
        let mut off = Watch::start(root.path(), Mode::Off, Duration::from_millis(400));
        fs::write(root.path().join("a.wasm"), "x").unwrap();
        assert!(!wakes_within(&mut off, 200).await);
        assert!(wakes_within(&mut off, PATIENCE_MS).await);
    }
}
