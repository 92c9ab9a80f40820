//! Granted directories: opened as they were when they were granted, and in them nothing that could block.

use std::fs::File;
use std::path::{Component, Path};
use std::sync::Arc;

use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;
use wasmtime::StoreContextMut;
use wasmtime::component::{Linker, LinkerInstance, Resource};
use wasmtime_wasi::filesystem::{Descriptor, Dir, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::FsResult;
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, ErrorCode, HostDescriptor as _, OpenFlags, PathFlags,
};
use wasmtime_wasi::{FsPerms, OpenMode, WasiView as _};

use super::files::{opening, tell_effects};
use super::missed::{Refused, Wish};
use super::nowhere;
use super::open_files::{OpenFile, OpenFiles, count_open_files};
use super::store::HostState;
use super::{DirectoryGrant, Grants};

/// As wasmtime-wasi names it; a test notices when that changes.
const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";

/// One sentence: a granted directory cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Unopened(String);

/// A granted directory, open for as long as its call lasts.
#[derive(Clone)]
pub(super) struct Granted {
    directory: Dir,
    /// The path under which the guest sees it.
    guest: String,
    file: OpenFile,
}

/// Open the granted directories, and count them.
pub(super) async fn open(
    grants: &Arc<Grants>,
    open_files: &OpenFiles,
) -> Result<Vec<Granted>, Unopened> {
    if grants.directories.is_empty() {
        return Ok(Vec::new());
    }
    let grants = Arc::clone(grants);
    // A file system that does not answer may hold up one of these threads, but not one of the guests' own.
    let opening = tokio::task::spawn_blocking(move || {
        let directories = grants.directories.iter();
        let opened: Result<Vec<_>, _> = directories.map(open_one).collect();
        opened
    });
    let opened = opening.await.unwrap_or_else(|error| {
        Err(Unopened(format!(
            "the granted directories cannot be opened: {error}"
        )))
    });
    let granted = opened?.into_iter().map(|(directory, guest)| Granted {
        directory,
        guest,
        file: open_files.open(),
    });
    Ok(granted.collect())
}

fn open_one(grant: &DirectoryGrant) -> Result<(Dir, String), Unopened> {
    let directory = open_without_links(&grant.host).map_err(|error| {
        let what = match error {
            Errno::NOTDIR | Errno::LOOP => {
                "a link or a file has taken the place of a directory on the way since it was granted".to_owned()
            }
            error => error.to_string(),
        };
        Unopened(format!(
            "the directory {} granted as {} cannot be opened: {what}; create it or change the grant",
            grant.host.display(),
            grant.guest,
        ))
    })?;
    let (permissions, mode) = match grant.writable {
        true => (FsPerms::ReadWrite, OpenMode::READ | OpenMode::WRITE),
        false => (FsPerms::ReadOnly, OpenMode::READ),
    };
    let directory = Dir::new(directory, permissions, mode, false);
    Ok((directory, grant.guest.clone()))
}

/// Open the directory at `path`, going from the root through directories only.
///
/// A grant holds a path without links. A task that may write to a directory above another grant could put a link in
/// its place, and so choose what it is granted.
fn open_without_links(path: &Path) -> Result<File, Errno> {
    let last = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // Going through a directory needs no right to read it.
    #[cfg(target_os = "linux")]
    let on_the_way = last | OFlags::PATH;
    #[cfg(not(target_os = "linux"))]
    let on_the_way = last;
    let mut directory = rustix::fs::open("/", on_the_way, Mode::empty())?;
    let mut names = path.components().peekable();
    if names.next() != Some(Component::RootDir) {
        return Err(Errno::INVAL);
    }
    while let Some(name) = names.next() {
        let Component::Normal(name) = name else {
            return Err(Errno::INVAL);
        };
        let flags = match names.peek() {
            Some(_) => on_the_way,
            None => last,
        };
        directory = openat(&directory, name, flags, Mode::empty())?;
    }
    Ok(File::from(directory))
}

impl preopens::Host for HostState {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let mut handles = Vec::new();
        for Granted {
            directory,
            guest,
            file,
        } in self.directories.clone()
        {
            let handle = self.ctx().table.push(Descriptor::Dir(directory))?;
            self.open_files.hold(&handle, file);
            self.paths.insert(handle.rep(), guest.clone());
            handles.push((handle, guest));
        }
        let grants_all = handles.iter().any(|(_, guest)| guest == "/");
        if !grants_all && let Some(nowhere) = nowhere::directory() {
            let handle = self.ctx().table.push(Descriptor::Dir(nowhere))?;
            self.paths.insert(handle.rep(), "/".to_owned());
            handles.push((handle, "/".to_owned()));
        }
        Ok(handles)
    }
}

/// Put checks before what opens files, and tell effects.
pub(super) fn hold_files(linker: &mut Linker<HostState>) -> wasmtime::Result<()> {
    // Now, because no call should wait for it.
    nowhere::directory();
    let mut files = linker.instance(FILESYSTEM)?;
    hold_opening(&mut files)?;
    count_open_files(&mut files)?;
    tell_effects(&mut files)
}

/// Put checks before `open-at`: opening a pipe waits for its other end, in a thread that nothing can stop; and a
/// process may have only so many files open.
fn hold_opening(files: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    files.func_wrap_async(
        "[method]descriptor.open-at",
        |mut store: StoreContextMut<'_, HostState>,
         (directory, follow, path, how, wanted): (
            Resource<Descriptor>,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            Box::new(async move {
                let state = store.data_mut();
                if state.misses(&directory, &path, wish(how, wanted))? {
                    return Ok((Err(ErrorCode::NoEntry),));
                }
                if let Err(why) = state.open_files.may_open() {
                    state.exceeded.record(why);
                    return Ok((Err(ErrorCode::Quota),));
                }
                let seen = state.path_in(&directory, &path);
                let effect = match opening(&seen, how) {
                    Some(words) => Some(state.effects.begin(|| words)?),
                    None => None,
                };
                let opened =
                    open_at(state.filesystem(), directory, follow, path, how, wanted).await;
                if let Some(effect) = effect {
                    state.effects.end(effect)?;
                }
                match opened {
                    Ok(opened) => {
                        let file = state.open_files.open();
                        state.open_files.hold(&opened, file);
                        state.paths.insert(opened.rep(), seen);
                        Ok((Ok(opened),))
                    }
                    Err(error) => Ok((Err(error.downcast()?),)),
                }
            })
        },
    )
}

impl HostState {
    /// Whether `path` lies in no directory that is granted. It is remembered then, and also when it lies in one that
    /// may not be written and `wish` is to.
    pub(super) fn misses(
        &mut self,
        directory: &Resource<Descriptor>,
        path: &str,
        wish: Wish,
    ) -> wasmtime::Result<bool> {
        let descriptor = self.ctx().table.get(directory)?;
        let is_nowhere = nowhere::is_nowhere(descriptor) && !matches!(path, "" | ".");
        let is_read_only = match descriptor {
            Descriptor::Dir(directory) => matches!(directory.perms, FsPerms::ReadOnly),
            Descriptor::File(_) => false,
        };
        if is_nowhere || (wish == Wish::Write && is_read_only) {
            let path = self.path_in(directory, path);
            self.missed.add(Refused {
                read_only: self.grant_of(&path),
                path,
                wish,
            });
        }
        Ok(is_nowhere)
    }

    /// The granted directory that holds `path`, as the guest sees it.
    fn grant_of(&self, path: &str) -> Option<String> {
        let holds = |guest: &str| {
            let rest = path.strip_prefix(guest.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let guests = self.grants.directories.iter().map(|grant| &grant.guest);
        let nearest = guests
            .filter(|guest| holds(guest))
            .max_by_key(|guest| guest.len());
        nearest.cloned()
    }
}

/// What whoever opens a file like this wants of it.
fn wish(how: OpenFlags, wanted: DescriptorFlags) -> Wish {
    let changes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
    match how.intersects(changes) || wanted.contains(DescriptorFlags::WRITE) {
        true => Wish::Write,
        false => Wish::Read,
    }
}

async fn open_at(
    mut files: WasiFilesystemCtxView<'_>,
    directory: Resource<Descriptor>,
    follow: PathFlags,
    path: String,
    how: OpenFlags,
    wanted: DescriptorFlags,
) -> FsResult<Resource<Descriptor>> {
    let looked_at = Resource::new_borrow(directory.rep());
    if let Ok(found) = files.stat_at(looked_at, follow, path.clone()).await {
        match found.type_ {
            // A link that is not to be followed is refused by the opening itself.
            DescriptorType::RegularFile
            | DescriptorType::Directory
            | DescriptorType::SymbolicLink => {}
            _ => return Err(ErrorCode::Unsupported.into()),
        }
    }
    files.open_at(directory, follow, path, how, wanted).await
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_link_anywhere_on_the_way_is_not_followed() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        symlink(root.join("a"), root.join("link")).unwrap();
        symlink("b", root.join("a/also")).unwrap();
        assert!(open_without_links(&root.join("a/b/c")).is_ok());
        for through in ["link", "link/b/c", "a/also", "a/also/c"] {
            let error = open_without_links(&root.join(through)).unwrap_err();
            assert!(
                matches!(error, Errno::NOTDIR | Errno::LOOP),
                "{through}: {error}"
            );
        }
        for unclear in ["a", "/a/../b"] {
            assert!(open_without_links(Path::new(unclear)).is_err(), "{unclear}");
        }
    }
}
