//! The files whose change makes `campanile dev` build and run again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::sleep;

use crate::output::{Result, failed, refused};
use campanile_engine::packages::watch::{Mode, QUIET, Watch};
use campanile_package::files::{self, FileState};

/// How often to look at the files without an event.
const LOOK: Duration = Duration::from_secs(5);

/// The most steps of one change. A file that is written without a pause does not delay a build for longer.
const STEPS_MAX: u32 = 6;

/// The most files of a project: a folder with more is probably not the one that was meant.
const FILES_MAX: usize = 10_000;

/// Folders that builds write. Hidden files and folders are left out too.
const WRITTEN: &[&str] = &["target", "node_modules", "dist", "build", "__pycache__"];

/// The files, and what they were when they were last looked at.
pub(super) struct Sources {
    /// The project's folder. A change of a file in it counts, unless a build writes that file.
    folder: Option<PathBuf>,
    /// Other files that count.
    files: BTreeSet<PathBuf>,
    mode: Mode,
    seen: Stamps,
    watches: Watches,
}

type Stamps = BTreeMap<PathBuf, Option<FileState>>;

impl Sources {
    pub(super) fn of_folder(folder: &Path, mode: Mode) -> Result<Sources> {
        let mut sources = Sources::none(Some(folder.to_owned()), mode);
        sources.seen = stamps(sources.folder.as_deref(), &sources.files)?;
        sources.watch();
        Ok(sources)
    }

    pub(super) fn of_file(file: &Path, mode: Mode) -> Sources {
        let mut sources = Sources::none(None, mode);
        sources.also(Some(file));
        sources
    }

    fn none(folder: Option<PathBuf>, mode: Mode) -> Sources {
        Sources {
            folder,
            files: BTreeSet::new(),
            mode,
            seen: Stamps::new(),
            watches: Watches::default(),
        }
    }

    /// Add a file, which need not exist.
    pub(super) fn also(&mut self, file: Option<&Path>) {
        if let Some(file) = file {
            self.files.insert(file.to_owned());
            self.seen.insert(file.to_owned(), files::inspect(file));
            self.watch();
        }
    }

    /// Wait until a file has changed since the last call of this function. A file that changed between two calls counts.
    ///
    /// Changes that follow each other within [`QUIET`] are one: an editor or a copy writes a file in several steps.
    pub(super) async fn changed(&mut self) -> Result {
        while !self.look().await? {
            self.watches.hints.notified().await;
        }
        for _ in 0..STEPS_MAX {
            sleep(QUIET).await;
            if !self.look().await? {
                break;
            }
        }
        Ok(())
    }

    /// Look at the files. Return whether one has changed since the last look.
    async fn look(&mut self) -> Result<bool> {
        let (folder, files) = (self.folder.clone(), self.files.clone());
        let found = spawn_blocking(move || stamps(folder.as_deref(), &files));
        let found = found.await;
        let found = found.map_err(|error| failed!("the files cannot be read: {error}"))??;
        let has_changed = found != self.seen;
        if has_changed {
            self.seen = found;
            self.watch();
        }
        Ok(has_changed)
    }

    /// Watch the folders of the files. Folders come and go.
    fn watch(&mut self) {
        let parents = self.seen.keys().filter_map(|file| file.parent());
        let folders: BTreeSet<PathBuf> = parents
            .chain(self.folder.as_deref())
            .map(|folder| {
                if folder == Path::new("") {
                    PathBuf::from(".")
                } else {
                    folder.to_owned()
                }
            })
            .collect();
        if folders != self.watches.folders {
            self.watches = Watches::of(folders, self.mode);
        }
    }
}

/// The watches of some folders. A hint of each is a hint here.
#[derive(Default)]
struct Watches {
    folders: BTreeSet<PathBuf>,
    hints: Arc<Notify>,
    /// A drop ends them.
    _tasks: JoinSet<()>,
}

impl Watches {
    fn of(folders: BTreeSet<PathBuf>, mode: Mode) -> Watches {
        let hints = Arc::new(Notify::new());
        let mut tasks = JoinSet::new();
        for folder in &folders {
            let mut watch = Watch::start(folder, mode, LOOK);
            let hints = Arc::clone(&hints);
            tasks.spawn(async move {
                loop {
                    watch.changed().await;
                    hints.notify_one();
                }
            });
        }
        Watches {
            folders,
            hints,
            _tasks: tasks,
        }
    }
}

/// Returns what the files of `folder` and the other `files` are now.
fn stamps(folder: Option<&Path>, files: &BTreeSet<PathBuf>) -> Result<Stamps> {
    let mut found: Stamps = (files.iter())
        .map(|file| (file.clone(), files::inspect(file)))
        .collect();
    let mut folders: Vec<PathBuf> = folder.map(Path::to_owned).into_iter().collect();
    while let Some(next) = folders.pop() {
        // A folder that has just been removed has no files.
        for entry in std::fs::read_dir(&next).into_iter().flatten().flatten() {
            let path = entry.path();
            let Ok(kind) = entry.file_type() else {
                continue;
            };
            if is_source(&path, kind.is_dir()) {
                if kind.is_dir() {
                    folders.push(path)
                } else {
                    _ = found.insert(path.clone(), files::inspect(&path))
                }
            }
        }
        if found.len() > FILES_MAX {
            let shown = folder.unwrap_or(&next).display();
            return Err(refused!("{shown} has more than {FILES_MAX} files")
                .hint("name the folder of one project, or the .wasm file"));
        }
    }
    Ok(found)
}

/// Whether a person writes this file, or files in this folder. A link to a folder is not followed.
fn is_source(path: &Path, is_folder: bool) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    !(name.starts_with('.') || is_folder && WRITTEN.contains(&name.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use tokio::time::timeout;

    use super::*;

    /// For what does come.
    const PATIENCE: Duration = Duration::from_secs(10);

    async fn changes_within(sources: &mut Sources, wait: Duration) -> bool {
        timeout(wait, sources.changed()).await.is_ok()
    }

    #[tokio::test]
    async fn a_file_in_a_new_folder_is_a_change_and_what_a_build_writes_is_none() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("build"), "x").unwrap();
        let mut sources = Sources::of_folder(root.path(), Mode::Auto).unwrap();
        for written in ["target", "node_modules", ".git"] {
            fs::create_dir(root.path().join(written)).unwrap();
            fs::write(root.path().join(written).join("file"), "x").unwrap();
        }
        assert!(!changes_within(&mut sources, Duration::from_millis(800)).await);
        fs::create_dir(root.path().join("src")).unwrap();
        fs::write(root.path().join("src/a.rs"), "1").unwrap();
        assert!(changes_within(&mut sources, PATIENCE).await);
        fs::write(root.path().join("src/a.rs"), "2").unwrap();
        assert!(changes_within(&mut sources, PATIENCE).await);
        fs::remove_file(root.path().join("src/a.rs")).unwrap();
        assert!(changes_within(&mut sources, PATIENCE).await);
        assert!(!changes_within(&mut sources, Duration::from_millis(800)).await);
    }

    #[tokio::test]
    async fn a_change_before_the_wait_counts() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a.wasm");
        fs::write(&file, "1").unwrap();
        let mut sources = Sources::of_file(&file, Mode::Auto);
        fs::write(root.path().join("other"), "1").unwrap();
        assert!(!changes_within(&mut sources, Duration::from_millis(800)).await);
        fs::write(&file, "22").unwrap();
        assert!(changes_within(&mut sources, PATIENCE).await);
    }

    #[tokio::test]
    async fn writes_that_follow_each_other_are_one_change() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("a.wasm");
        fs::write(&file, "1").unwrap();
        let mut sources = Sources::of_file(&file, Mode::Auto);
        let writes = async {
            for text in ["22", "333", "4444"] {
                fs::write(&file, text).unwrap();
                sleep(QUIET / 3).await;
            }
        };
        let (is_changed, ()) = tokio::join!(changes_within(&mut sources, PATIENCE), writes);
        assert!(is_changed);
        assert!(!changes_within(&mut sources, Duration::from_millis(800)).await);
    }

    #[test]
    fn a_folder_with_very_many_files_is_refused() {
        let root = tempfile::tempdir().unwrap();
        for number in 0..=FILES_MAX {
            fs::write(root.path().join(number.to_string()), "").unwrap();
        }
        let failure = stamps(Some(root.path()), &BTreeSet::new()).unwrap_err();
        assert!(
            failure.message.ends_with("more than 10000 files"),
            "{failure:?}"
        );
    }
}
