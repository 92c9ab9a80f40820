//! The operations that create or move links: the check and the operation are one step.
//!
//! Two calls could otherwise do together what none may do alone: one creates a link in a directory, which the other moves up
//! between the check and the operation. So all calls of this process take turns, on each file system, and an operation
//! takes place in the directory that was checked, whatever its path leads to by then. Another process takes no turns.

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

/// Whose turn it is, by the number of the file system: no rename and no second name leads to another one.
static TURNS: Mutex<BTreeMap<u64, Weak<FairShares>>> = Mutex::new(BTreeMap::new());

/// Returns the turns of a file system. One package has at most one at a time, and none waits for all of another's.
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

/// The operations of one call.
pub(super) struct LinkChanges<'a> {
    pub(super) files: WasiFilesystemCtxView<'a>,
    pub(super) granted: Vec<Arc<File>>,
    pub(super) package: String,
    /// The directory of the operation. Its thread counts as long as it has this.
    pub(super) directory: Arc<File>,
}

/// Where an operation takes place.
struct Place {
    directory: Dir,
    /// None for a path that has no last name, for which the operation fails.
    name: Option<OsString>,
    /// The path from the directory: the last name, and slashes.
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
    /// Creates a link to `target` at `path` in the directory `fd`.
    pub(super) async fn symlink(mut self, fd: Fd, target: String, path: String) -> FsResult<()> {
        match leading_climb(&target) {
            // It leads into its own directory, wherever that is.
            Some(0) => self.files.symlink_at(fd, target, path).await,
            Some(climb) => {
                let at = self.place_of(&fd, &path).await?;
                self.take_turn(Change::Symlink { at, target, climb }).await
            }
            None => Err(ErrorCode::NotPermitted.into()),
        }
    }

    /// Renames a file, a link, or a directory with the links in it.
    pub(super) async fn rename(mut self, old: (Fd, String), new: (Fd, String)) -> FsResult<()> {
        let old = self.place_of(&old.0, &old.1).await?;
        let new = self.place_of(&new.0, &new.1).await?;
        self.take_turn(Change::Rename { old, new }).await
    }

    /// Gives a file or a link a second name.
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

    /// Opens the directory of the last name of `path`, as wasmtime does.
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

    /// Checks and makes `change` when no other call makes one there.
    async fn take_turn(self, change: Change) -> FsResult<()> {
        let directory = Arc::clone(&change.place().directory.dir);
        let found = spawn_blocking(move || fstat(&*directory)).await;
        let (device, _) = identity(&found.map_err(std::io::Error::from)?);
        let turn = turns_on(device).acquire(&self.package, 1, u64::MAX).await;
        let turn = turn.ok_or(ErrorCode::Busy)?;
        // Gone when the call is: the change doesn't begin then. Once it has begun, its turn lasts until it ends.
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
    /// Where something gets a name.
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
            // Programs then copy the files, and create each link anew.
            Refused::TooLarge => ErrorCode::CrossDevice.into(),
            Refused::Unwanted => ErrorCode::Interrupted.into(),
            Refused::Failed(error) => wasmtime_wasi::p2::FsError::from(std::io::Error::from(error)),
        })?;
        change.make().await
    }

    /// A link leads the same way from each directory that is as deep as its own, or deeper.
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
