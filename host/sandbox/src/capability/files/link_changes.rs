//! Creating and moving links, with the check and the operation in one step.
//!
//! Otherwise two calls could do together what neither may do alone: one creates a link in a directory while the other, between checking and
//! renaming, moves that directory up. So the calls of this process take turns on each file system, and each operation happens in the very
//! directory that was checked, even if its path leads elsewhere by then. Other processes take no turns.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Component, Path};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use rustix::fs::fstat;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemCtx, WasiFilesystemCtxView};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
};
use wasmtime_wasi::runtime::spawn_blocking;

use crate::capability::files::links::{Refused, Search, check_climb, depth, leading_climb};
use crate::capability::files::measure::identity;
use crate::capability::files::slashes::{self, Wants};
use crate::capability::files::state::Fd;
use crate::ledger::fair_shares::{Division, FairShares};

/// Turns by device number. One for each file system is enough, since neither renaming nor linking crosses over to another.
static TURNS: Mutex<BTreeMap<u64, Weak<FairShares>>> = Mutex::new(BTreeMap::new());

/// Returns the turns on a file system. Dividing them fairly keeps one package from making others wait for all of its operations.
fn turns_on(device: u64) -> Arc<FairShares> {
    let mut known = TURNS.lock().unwrap_or_else(PoisonError::into_inner);
    known.retain(|_, turns| turns.strong_count() > 0);
    if let Some(turns) = known.get(&device).and_then(Weak::upgrade) {
        return turns;
    }
    let turns = FairShares::new(1, Division::QUARTERS);
    known.insert(device, Arc::downgrade(&turns));
    turns
}

/// Link operations of one call.
pub(super) struct LinkChanges<'a> {
    pub(super) files: WasiFilesystemCtxView<'a>,
    pub(super) granted: Vec<Arc<File>>,
    pub(super) package: String,
    /// The directory the operation works in. Holding it keeps the operation's thread accounted for.
    pub(super) directory: Arc<File>,
}

/// Where an operation happens.
struct Place {
    directory: Dir,
    /// None if the path doesn't end in a name, which makes the operation fail.
    name: Option<OsString>,
    /// The last name with any trailing slashes, relative to `directory`.
    path: String,
}

enum Change {
    Symlink {
        at: Place,
        target: String,
        climb: usize,
    },
    Rename {
        old: Place,
        new: Place,
    },
    Link {
        flags: PathFlags,
        old: Place,
        new: Place,
    },
}

impl LinkChanges<'_> {
    /// Creates a link to `target` at `path` in `fd`.
    pub(super) async fn symlink(mut self, fd: Fd, target: String, path: String) -> FsResult<()> {
        match leading_climb(&target) {
            // Never leaves its own directory, wherever that is.
            Some(0) => self.files.symlink_at(fd, target, path).await,
            Some(climb) => {
                let at = self.place_of(&fd, &path).await?;
                self.take_turn(Change::Symlink { at, target, climb }).await
            }
            None => Err(ErrorCode::NotPermitted.into()),
        }
    }

    /// Renames a file, a link, or a directory including any links below it.
    pub(super) async fn rename(mut self, old: (Fd, String), new: (Fd, String)) -> FsResult<()> {
        let old = self.place_of(&old.0, &old.1).await?;
        let new = self.place_of(&new.0, &new.1).await?;
        self.take_turn(Change::Rename { old, new }).await
    }

    /// Adds a hard link to a file or symbolic link.
    pub(super) async fn link(
        mut self,
        flags: PathFlags,
        old: (Fd, String),
        new: (Fd, String),
    ) -> FsResult<()> {
        slashes::check(&mut self.files, &old.0, &old.1, Wants::Link).await?;
        slashes::check(&mut self.files, &new.0, &new.1, Wants::NewName).await?;
        let old = self.place_of(&old.0, &old.1).await?;
        let new = self.place_of(&new.0, &new.1).await?;
        self.take_turn(Change::Link { flags, old, new }).await
    }

    /// Opens the directory containing the last name of `path`, resolving it as wasmtime does.
    async fn place_of(&mut self, fd: &Fd, path: &str) -> FsResult<Place> {
        let mut names = Path::new(path).components();
        let name = match names.next_back() {
            Some(Component::Normal(name)) => Some(name.to_owned()),
            _ => None,
        };
        let parent = names.as_path().to_str().unwrap_or_default();
        if name.is_none() || parent.is_empty() {
            return match self.files.table.get(fd)? {
                Descriptor::Dir(directory) => Ok(Place {
                    directory: directory.clone(),
                    name,
                    path: path.to_owned(),
                }),
                Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
            };
        }
        let (follow, how) = (PathFlags::SYMLINK_FOLLOW, OpenFlags::DIRECTORY);
        let fd = Resource::new_borrow(fd.rep());
        let wanted = DescriptorFlags::READ;
        let opened = (self.files)
            .open_at(fd, follow, parent.to_owned(), how, wanted)
            .await?;
        match self.files.table.delete(opened)? {
            Descriptor::Dir(directory) => Ok(Place {
                directory,
                name,
                path: path[parent.len()..].trim_start_matches('/').to_owned(),
            }),
            Descriptor::File(_) => Err(ErrorCode::NotDirectory.into()),
        }
    }

    /// Waits for its turn, then checks and makes `change`.
    async fn take_turn(self, change: Change) -> FsResult<()> {
        let directory = Arc::clone(&change.place().directory.dir);
        let found = spawn_blocking(move || fstat(&*directory)).await;
        let (device, _) = identity(&found.map_err(std::io::Error::from)?);
        let turn = turns_on(device).acquire(&self.package, 1, u64::MAX).await;
        let turn = turn.ok_or(ErrorCode::Busy)?;
        // Dropped along with the call, which keeps a waiting change from starting. A change already under way keeps its turn until it ends.
        let waits = Arc::new(());
        let search = Search::new(device, Arc::downgrade(&waits));
        let granted = self.granted;
        let changing = tokio::spawn(async move {
            let done = change.check_and_make(granted, search).await;
            drop((turn, self.directory));
            done
        });
        let done = changing.await;
        drop(waits);
        done.unwrap_or_else(|_| Err(ErrorCode::Io.into()))
    }
}

impl Change {
    /// Where the new name goes.
    fn place(&self) -> &Place {
        match self {
            Change::Symlink { at: place, .. }
            | Change::Rename { new: place, .. }
            | Change::Link { new: place, .. } => place,
        }
    }

    async fn check_and_make(self, granted: Vec<Arc<File>>, search: Search) -> FsResult<()> {
        let checking = spawn_blocking(move || {
            let checked = self.check(&granted, search);
            (self, checked)
        });
        let (change, checked) = checking.await;
        checked.map_err(|refused| match refused {
            Refused::LeadsOut => ErrorCode::NotPermitted.into(),
            // On this error, programs copy the files and create each link anew.
            Refused::TooLarge => ErrorCode::CrossDevice.into(),
            Refused::Unwanted => ErrorCode::Interrupted.into(),
            Refused::Failed(error) => wasmtime_wasi::p2::FsError::from(std::io::Error::from(error)),
        })?;
        change.make().await
    }

    /// Moving links at the same depth or deeper is safe: they lead at most as far up as before.
    fn check(&self, granted: &[Arc<File>], mut search: Search) -> Result<(), Refused> {
        match self {
            Change::Symlink { at, climb, .. } => {
                check_climb(*climb, depth(&at.directory.dir, granted)?)?;
            }
            Change::Rename { old, new } | Change::Link { old, new, .. } => {
                if let (Some(name), Some(_)) = (&old.name, &new.name) {
                    let new_depth = depth(&new.directory.dir, granted)?;
                    if new_depth < depth(&old.directory.dir, granted)? {
                        check_climb(search.climb_of(&old.directory.dir, name)?, new_depth)?;
                    }
                }
            }
        }
        search.check_wanted()
    }

    async fn make(self) -> FsResult<()> {
        let (mut ctx, mut table) = (WasiFilesystemCtx::default(), ResourceTable::new());
        let mut files = WasiFilesystemCtxView {
            ctx: &mut ctx,
            table: &mut table,
        };
        let mut opened = |place: Place| -> FsResult<(Fd, String)> {
            let fd = files.table.push(Descriptor::Dir(place.directory))?;
            Ok((fd, place.path))
        };
        match self {
            Change::Symlink { at, target, .. } => {
                let (fd, path) = opened(at)?;
                files.symlink_at(fd, target, path).await
            }
            Change::Rename { old, new } => {
                let ((old_fd, old), (new_fd, new)) = (opened(old)?, opened(new)?);
                files.rename_at(old_fd, old, new_fd, new).await
            }
            Change::Link { flags, old, new } => {
                let ((old_fd, old), (new_fd, new)) = (opened(old)?, opened(new)?);
                files.link_at(old_fd, flags, old, new_fd, new).await
            }
        }
    }
}
