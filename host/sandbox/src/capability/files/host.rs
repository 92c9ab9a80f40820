//! The host functions of `wasi:filesystem`.

use std::fs::File;
use std::sync::Arc;

use rustix::fs::fstat;
use wasmtime::StoreContextMut;
use wasmtime::component::{HasData, Linker, LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemCtxView, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::preopens;
use wasmtime_wasi::p2::bindings::filesystem::types::{
    DescriptorFlags, DescriptorType, DirectoryEntry, ErrorCode, Filesize, Host as _,
    HostDescriptor, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{DynInputStream, FsError, FsResult};
use wasmtime_wasi::runtime::spawn_blocking;

use crate::capability::files::changes::report_effects;
use crate::capability::files::denied_paths::DeniedPath;
use crate::capability::files::devices::{
    DeviceReader, Served, device_at, device_entries, hash_of, open_device, stat_of,
};
use crate::capability::files::directories::{OpenDirectory, Tracked, device_folder, empty_root};
use crate::capability::files::listing::{Listing, Unlisted};
use crate::capability::files::quota::{Quota, QuotaExceeded};
use crate::capability::files::quota_stream::QuotaOfStream;
use crate::capability::files::slashes::{Wants, check, following, stat_at};
use crate::capability::files::state::{Fd, FilesView, HasFiles, file_behind};
use crate::capability::files::streams::{StreamOwner, reading, writing};
use crate::capability::files::threads::{guard_waits, thread_for};
use crate::capability::shared::{OpenFile, as_wasi};
use crate::grants::AccessMode;
use crate::mounts;

/// The name in wasmtime-wasi; a test notices when it changes.
const FILESYSTEM: &str = "wasi:filesystem/types@0.2.12";

impl HasData for FilesView<'static> {
    type Data<'a> = FilesView<'a>;
}

impl preopens::Host for FilesView<'_> {
    fn get_directories(&mut self) -> wasmtime::Result<Vec<(Resource<Descriptor>, String)>> {
        let opened = self.files.directories.iter();
        let named = |open: &OpenDirectory| (open.tracked.path.clone(), open.clone());
        let mut opened: Vec<(String, OpenDirectory)> = opened.map(named).collect();
        // To a library, `.` and `/` are the same directory. A granted root is therefore the only one.
        if self.files.has_root && !opened.iter().any(|(guest, _)| guest == "/") {
            let working = self.files.working_directory.as_ref();
            let working = working.and_then(|cwd| opened.iter().find(|(guest, _)| guest == cwd));
            let root = match working {
                Some((_, open)) => Some((".".to_owned(), open.clone())),
                None => empty_root().as_ref().map(named),
            };
            opened.extend(root);
        }
        if self.files.has_root && !self.files.shared.call.grants.devices.is_empty() {
            opened.extend(device_folder().as_ref().map(named));
        }
        let handles = opened.into_iter().map(|(guest, open)| {
            let handle = self.table.push(Descriptor::Dir(open.directory))?;
            self.files.descriptors.insert(handle.rep(), open.tracked);
            Ok((handle, guest))
        });
        handles.collect()
    }
}

/// Put the checks, counts and reports before the functions of the interface.
pub(crate) fn guard_files<T: HasFiles>(linker: &mut Linker<T>) -> wasmtime::Result<()> {
    // Made now, so that no call waits for it.
    empty_root();
    preopens::add_to_linker::<_, FilesView<'static>>(linker, T::files)?;
    let mut functions = linker.instance(FILESYSTEM)?;
    guard_opening(&mut functions)?;
    guard_paths(&mut functions)?;
    guard_waits(&mut functions)?;
    count_open_files(&mut functions)?;
    report_effects(&mut functions)?;
    report_writes(&mut functions)
}

/// Put the checks before `open-at`. Opening a pipe waits for its other end, in a thread that nothing can stop; and a
/// process may have only so many files open.
fn guard_opening<T: HasFiles>(functions: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    functions.func_wrap_async(
        "[method]descriptor.open-at",
        move |mut store: StoreContextMut<'_, T>,
              (directory, follow, path, how, wanted): (
            Fd,
            PathFlags,
            String,
            OpenFlags,
            DescriptorFlags,
        )| {
            Box::new(async move {
                let thread = thread_for(&mut store, &directory).await?;
                thread
                    .during(async {
                        let mut view = store.data_mut().files();
                        if view.note_denied(&directory, &path, access_mode(how, wanted))? {
                            return Ok((Err(ErrorCode::NoEntry),));
                        }
                        let Some(file) = OpenFile::open(&view.files.shared) else {
                            return Ok((Err(ErrorCode::Quota),));
                        };
                        let shown = view.files.path_in(&directory, &path);
                        if view.serves_devices(&directory, &path) {
                            return Ok((view.open_device(&path, (shown, file), how, wanted)?,));
                        }
                        let effects = view.files.shared.effects.clone();
                        let quota = view.files.quota_of(&directory);
                        let files = store.data_mut().filesystem();
                        let creation = quota.as_deref();
                        let follow = following(follow, &path);
                        let opening =
                            open_at(files, directory, follow, path, how, wanted, creation);
                        let opened = match effect_of_opening(&shown, how) {
                            Some(effect) => effects.observe(|| effect, opening).await?,
                            None => opening.await,
                        };
                        let opened = as_wasi(opened)?;
                        if let Ok(opened) = &opened {
                            let view = store.data_mut().files();
                            if let (Some(quota), Descriptor::File(file)) =
                                (&quota, view.table.get(opened)?)
                            {
                                quota.remember(&file.file);
                            }
                            let tracked = Tracked {
                                path: shown,
                                file: Some(file),
                                quota,
                                served: None,
                            };
                            view.files.descriptors.insert(opened.rep(), tracked);
                        }
                        Ok((opened,))
                    })
                    .await
            })
        },
    )
}

fn access_mode(how: OpenFlags, wanted: DescriptorFlags) -> AccessMode {
    let changes = OpenFlags::CREATE | OpenFlags::EXCLUSIVE | OpenFlags::TRUNCATE;
    AccessMode::of(how.intersects(changes) || wanted.contains(DescriptorFlags::WRITE))
}

/// Describe the effect of opening `path`, if that changes a file.
fn effect_of_opening(path: &str, how: OpenFlags) -> Option<String> {
    if how.contains(OpenFlags::TRUNCATE) {
        Some(format!("wasi:filesystem: open {path}, emptying it"))
    } else if how.contains(OpenFlags::CREATE) {
        Some(format!("wasi:filesystem: open {path}, creating it"))
    } else {
        None
    }
}

async fn open_at(
    mut files: WasiFilesystemCtxView<'_>,
    directory: Fd,
    follow: PathFlags,
    path: String,
    how: OpenFlags,
    wanted: DescriptorFlags,
    quota: Option<&Quota>,
) -> FsResult<Fd> {
    let borrowed = Resource::new_borrow(directory.rep());
    let found = files.stat_at(borrowed, follow, path.clone()).await;
    // Opening itself refuses a link that is not to be followed.
    let may_open = |kind| {
        use DescriptorType::{Directory, RegularFile, SymbolicLink};
        matches!(kind, RegularFile | Directory | SymbolicLink)
    };
    let mut exists = found.is_ok();
    if found.is_ok_and(|found| !may_open(found.type_)) {
        return Err(ErrorCode::Unsupported.into());
    }
    let mut admission = None;
    if let Some(quota) = quota.filter(|_| how.contains(OpenFlags::CREATE)) {
        if exists {
            // While it is admitted, a file that another call removes still counts.
            admission = Some(quota.admit_move().await.map_err(ErrorCode::from)?);
            let borrowed = Resource::new_borrow(directory.rep());
            let found = files.stat_at(borrowed, follow, path.clone()).await;
            exists = found.is_ok();
        }
        if !exists {
            drop(admission.take());
            admission = Some(quota.admit_entry(0).await.map_err(ErrorCode::from)?);
        }
    }
    let parent = file_behind(files.table.get(&directory)?);
    let opened = files.open_at(directory, follow, path, how, wanted).await;
    if let Some(admission) = admission {
        admission.end(opened.is_ok()).await;
    }
    let opened = opened?;
    let file = file_behind(files.table.get(&opened)?);
    if leads_to_pseudo(&parent, file).await {
        files.table.delete(opened)?;
        Err(ErrorCode::NotPermitted.into())
    } else {
        Ok(opened)
    }
}

/// Whether `file` belongs to a pseudo file system, unlike `parent`, which it was opened in. Only this finds file systems mounted after
/// checking the grant.
async fn leads_to_pseudo(parent: &Arc<File>, file: Arc<File>) -> bool {
    let device = |file: &File| fstat(file).map(|found| found.st_dev);
    if device(parent).is_ok_and(|parent| device(&file) == Ok(parent)) {
        return false;
    }
    // Network file systems may take a while to answer.
    let parent = Arc::clone(parent);
    let asked = spawn_blocking(move || {
        let is_pseudo = mounts::pseudo(&*file).is_some();
        // Holding this keeps the thread accounted for.
        drop(parent);
        is_pseudo
    });
    asked.await
}

/// Wraps the functions looking at paths, handling trailing slashes and devices.
fn guard_paths<T: HasFiles>(functions: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    functions.func_wrap_async(
        "[method]descriptor.stat-at",
        |mut store: StoreContextMut<'_, T>, (fd, follow, path): (Fd, PathFlags, String)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                thread
                    .during(async {
                        let view = store.data_mut().files();
                        if view.serves_devices(&fd, &path) {
                            let device = device_at(&view.files.shared, &path);
                            return Ok((device.map(|_| stat_of(DescriptorType::CharacterDevice)),));
                        }
                        // Libraries ask about every name they list.
                        if let Some(kind) = view.escaped(&fd, &path) {
                            return Ok((Ok(stat_of(kind)),));
                        }
                        let mut files = store.data_mut().filesystem();
                        Ok((as_wasi(stat_at(&mut files, &fd, follow, &path).await)?,))
                    })
                    .await
            })
        },
    )?;
    functions.func_wrap_async(
        "[method]descriptor.metadata-hash-at",
        |mut store: StoreContextMut<'_, T>, (fd, follow, path): (Fd, PathFlags, String)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                thread
                    .during(async {
                        let view = store.data_mut().files();
                        if view.serves_devices(&fd, &path) {
                            let device = device_at(&view.files.shared, &path);
                            return Ok((device.map(|device| hash_of(device.as_str())),));
                        }
                        if view.escaped(&fd, &path).is_some() {
                            return Ok((Ok(hash_of(&view.files.path_in(&fd, &path))),));
                        }
                        let mut files = store.data_mut().filesystem();
                        if let Err(error) = check(&mut files, &fd, &path, Wants::Directory).await {
                            return Ok((as_wasi(Err(error))?,));
                        }
                        let follow = following(follow, &path);
                        Ok((as_wasi(files.metadata_hash_at(fd, follow, path).await)?,))
                    })
                    .await
            })
        },
    )?;
    functions.func_wrap_async(
        "[method]descriptor.readlink-at",
        |mut store: StoreContextMut<'_, T>, (fd, path): (Fd, String)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                thread
                    .during(async {
                        let view = store.data_mut().files();
                        if view.serves_devices(&fd, &path) {
                            let device = device_at(&view.files.shared, &path);
                            return Ok((device.and(Err(ErrorCode::Invalid)),));
                        }
                        let mut files = store.data_mut().filesystem();
                        if let Err(error) = check(&mut files, &fd, &path, Wants::ReadLink).await {
                            return Ok((as_wasi(Err(error))?,));
                        }
                        Ok((as_wasi(files.readlink_at(fd, path).await)?,))
                    })
                    .await
            })
        },
    )?;
    functions.func_wrap_async(
        "[method]descriptor.read",
        |mut store: StoreContextMut<'_, T>, (fd, length, offset): (Fd, Filesize, Filesize)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                thread
                    .during(async {
                        let files = store.data_mut().files().files;
                        let Some(Served::Device(device)) = files.served(&fd) else {
                            let mut files = store.data_mut().filesystem();
                            return Ok((as_wasi(files.read(fd, length, offset).await)?,));
                        };
                        let mut reader = DeviceReader::new(device, offset, &files.shared, None);
                        let bytes = reader.bytes(usize::try_from(length).unwrap_or(usize::MAX))?;
                        let is_end = bytes.is_empty() && length > 0;
                        Ok((Ok::<_, ErrorCode>((bytes, is_end)),))
                    })
                    .await
            })
        },
    )
}

impl FilesView<'_> {
    /// Whether `path` in `directory` names a device, granted or not.
    fn serves_devices(&self, directory: &Fd, path: &str) -> bool {
        self.files.served(directory) == Some(Served::Folder)
            && !matches!(path.trim_end_matches('/'), "" | ".")
    }

    /// Returns the type of the entry whose escaped name was listed as `path`.
    fn escaped(&self, directory: &Fd, path: &str) -> Option<DescriptorType> {
        let denied = &self.files.denied;
        denied.escaped(&self.files.path_in(directory, path))
    }

    /// Opens the device at `path`, shown to the task as `shown` and counted as `file`.
    fn open_device(
        &mut self,
        path: &str,
        (shown, file): (String, Arc<OpenFile>),
        how: OpenFlags,
        wanted: DescriptorFlags,
    ) -> wasmtime::Result<Result<Fd, ErrorCode>> {
        let device = match device_at(&self.files.shared, path) {
            Ok(device) => device,
            Err(error) => {
                self.files.denied.add(DeniedPath {
                    path: shown,
                    mode: access_mode(how, wanted),
                    read_only: None,
                });
                return Ok(Err(error));
            }
        };
        let opened = match open_device(device, how, wanted) {
            Ok(opened) => self.table.push(opened)?,
            Err(error) => return Ok(Err(error)),
        };
        let tracked = Tracked {
            path: shown,
            file: Some(file),
            quota: None,
            served: Some(Served::Device(device)),
        };
        self.files.descriptors.insert(opened.rep(), tracked);
        Ok(Ok(opened))
    }

    async fn list(&mut self, fd: &Fd) -> FsResult<Resource<Listing>> {
        let listing = match self.files.served(fd) {
            Some(Served::Folder) => Listing::of(device_entries(&self.files.shared)),
            _ => {
                let directory = match self.table.get(fd)? {
                    Descriptor::Dir(directory) => Arc::clone(&directory.dir),
                    Descriptor::File(_) => return Err(ErrorCode::NotDirectory.into()),
                };
                let path = self.files.path_of(fd).to_owned();
                let listing = Listing::begin(&self.files.shared, directory, path).await;
                listing.map_err(|why| match why {
                    Unlisted::Refused => ErrorCode::Quota.into(),
                    Unlisted::Failed(error) => FsError::from(std::io::Error::from(error)),
                })?
            }
        };
        Ok(self.table.push(listing)?)
    }

    async fn next_entry(
        &mut self,
        listing: &Resource<Listing>,
    ) -> FsResult<Option<DirectoryEntry>> {
        let listing = self.table.get_mut(listing)?;
        let denied = &mut self.files.denied;
        let next = listing.next(|path, kind| denied.add_escaped(path, kind));
        Ok(next.await.map_err(std::io::Error::from)?)
    }
}

/// Put the counting before the functions that close a file or keep one open.
fn count_open_files<T: HasFiles>(functions: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    functions.resource(
        "descriptor",
        ResourceType::host::<Descriptor>(),
        move |mut store, handle| {
            let state = store.data_mut();
            state.files().files.descriptors.remove(&handle);
            HostDescriptor::drop(&mut state.filesystem(), Resource::new_own(handle))
        },
    )?;
    functions.func_wrap(
        "[method]descriptor.read-via-stream",
        move |mut store: StoreContextMut<'_, T>, (fd, offset): (Fd, Filesize)| {
            let state = store.data_mut();
            let files = state.files().files;
            let open = files.file_of(&fd);
            let shared = Arc::clone(&files.shared);
            if let Some(Served::Device(device)) = files.served(&fd) {
                let reader = DeviceReader::new(device, offset, &shared, open);
                let stream: DynInputStream = Box::new(reader);
                return Ok((Ok(state.files().table.push(stream)?),));
            }
            let table = state.files().table;
            let file = file_behind(table.get(&fd)?);
            let stream = state.filesystem().read_via_stream(fd, offset);
            let table = state.files().table;
            let owner = StreamOwner {
                shared,
                file,
                _open: open,
            };
            Ok((as_wasi(
                stream.and_then(|stream| reading(table, stream, owner)),
            )?,))
        },
    )?;
    functions.func_wrap_async(
        "[method]descriptor.read-directory",
        move |mut store: StoreContextMut<'_, T>, (fd,): (Fd,)| {
            Box::new(async move {
                let thread = thread_for(&mut store, &fd).await?;
                thread
                    .during(async {
                        let listing = store.data_mut().files().list(&fd).await;
                        Ok((as_wasi(listing)?,))
                    })
                    .await
            })
        },
    )?;
    functions.resource(
        "directory-entry-stream",
        ResourceType::host::<Listing>(),
        move |mut store, handle| {
            let table = store.data_mut().files().table;
            table.delete(Resource::<Listing>::new_own(handle))?;
            Ok(())
        },
    )?;
    functions.func_wrap_async(
        "[method]directory-entry-stream.read-directory-entry",
        move |mut store: StoreContextMut<'_, T>, (listing,): (Resource<Listing>,)| {
            Box::new(async move {
                let entry = store.data_mut().files().next_entry(&listing).await;
                Ok((as_wasi(entry)?,))
            })
        },
    )
}

/// Put reports before the streams that write to a file, let them keep it open, and explain their errors.
fn report_writes<T: HasFiles>(functions: &mut LinkerInstance<'_, T>) -> wasmtime::Result<()> {
    let wrap = move |state: &mut T, fd: Fd, offset: Option<Filesize>| {
        let files = state.files().files;
        let (path, open) = (files.path_of(&fd).to_owned(), files.file_of(&fd));
        let shared = Arc::clone(&files.shared);
        let file = file_behind(state.files().table.get(&fd)?);
        let owner = StreamOwner {
            shared,
            file,
            _open: open,
        };
        let growing = state.files().growing(&fd);
        let quota = growing.map(|(quota, file)| QuotaOfStream {
            quota,
            file,
            position: offset,
        });
        let stream = match offset {
            Some(offset) => state.filesystem().write_via_stream(fd, offset),
            None => state.filesystem().append_via_stream(fd),
        };
        let table = state.files().table;
        as_wasi(stream.and_then(|stream| writing(table, stream, path, owner, quota)))
    };
    functions.func_wrap(
        "[method]descriptor.write-via-stream",
        move |mut store: StoreContextMut<'_, T>, (fd, offset): (Fd, Filesize)| {
            Ok((wrap(store.data_mut(), fd, Some(offset))?,))
        },
    )?;
    functions.func_wrap(
        "[method]descriptor.append-via-stream",
        move |mut store: StoreContextMut<'_, T>, (fd,): (Fd,)| {
            Ok((wrap(store.data_mut(), fd, None)?,))
        },
    )?;
    // A stream gives an error at its quota.
    functions.func_wrap(
        "filesystem-error-code",
        |mut store: StoreContextMut<'_, T>, (error,): (Resource<wasmtime::Error>,)| {
            let state = store.data_mut();
            if state.files().table.get(&error)?.is::<QuotaExceeded>() {
                return Ok((Some(ErrorCode::Quota),));
            }
            Ok((state.filesystem().filesystem_error_code(error)?,))
        },
    )
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_file_of_a_pseudo_file_system_is_found_behind_an_ordinary_directory() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a"), "").unwrap();
        let parent = Arc::new(File::open(folder.path()).unwrap());
        let open = |path: &std::path::Path| Arc::new(File::open(path).unwrap());
        for (path, is_pseudo) in [
            (folder.path().join("a"), false),
            ("/proc/self/environ".into(), true),
            ("/proc/self".into(), true),
            ("/dev/null".into(), true),
        ] {
            assert_eq!(
                leads_to_pseudo(&parent, open(&path)).await,
                is_pseudo,
                "{path:?}"
            );
        }
    }
}
