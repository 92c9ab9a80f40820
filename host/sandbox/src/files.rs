//! What a task does to files, told to whoever watches its effects.
//!
//! Each function stands before wasmtime's own of the same name. Nothing is told of a call that nobody watches.

use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource};
use wasmtime_wasi::WasiView as _;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    ErrorCode, Filesize, HostDescriptor as _, NewTimestamp, OpenFlags, PathFlags,
};
use wasmtime_wasi::p2::{
    DynOutputStream, FsResult, OutputStream, Pollable, StreamError, StreamResult,
};

use hyper::body::Bytes;

use super::effects::{Begun, Crash, Effects};
use super::missed::Wish;
use super::open_files::OpenFile;
use super::store::HostState;

/// Of a path that is remembered for messages: from directory to directory a guest can make one of any length.
const PATH_BYTES_MAX: usize = 4 << 10;

type Fd = Resource<Descriptor>;

/// Stand before one function of `descriptor`: what it does in words, and then wasmtime's own doing.
/// `in` names what it changes in which directories: they may not be granted for that, which is remembered.
macro_rules! tell {
    (
        $files:ident, $name:ident, $function:literal, ($($argument:ident: $type:ty),*),
        $(in $directory:ident: $path:ident,)* $words:expr
    ) => {
        $files.func_wrap_async(
            concat!("[method]descriptor.", $function),
            |mut store: StoreContextMut<'_, HostState>, ($($argument,)*): ($($type,)*)| {
                Box::new(async move {
                    let state = store.data_mut();
                    $(state.misses(&$directory, &$path, Wish::Write)?;)*
                    let words: fn(&HostState, ($(&$type,)*)) -> String = $words;
                    let effect = state.effects.begin(|| words(state, ($(&$argument,)*)))?;
                    let done = state.filesystem().$name($($argument),*).await;
                    state.effects.end(effect)?;
                    Ok((as_wasi(done)?,))
                })
            },
        )?;
    };
}

/// Put them before all functions that change files, other than `open-at`.
pub(super) fn tell_effects(files: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    tell!(files, set_size, "set-size", (fd: Fd, size: Filesize), |state, (fd, size)| {
        format!("wasi:filesystem: cut {} to {size} bytes", state.path_of(fd))
    });
    tell!(files, set_times, "set-times", (fd: Fd, accessed: NewTimestamp, modified: NewTimestamp), |state, (fd, _, _)| {
        format!("wasi:filesystem: set the times of {}", state.path_of(fd))
    });
    tell!(files, write, "write", (fd: Fd, bytes: Vec<u8>, offset: Filesize), |state, (fd, bytes, offset)| {
        let path = state.path_of(fd);
        format!("wasi:filesystem: write {} bytes at {offset} to {path}", bytes.len())
    });
    tell!(files, create_directory_at, "create-directory-at", (fd: Fd, path: String), in fd: path, |state, (fd, path)| {
        format!("wasi:filesystem: create the directory {}", state.path_in(fd, path))
    });
    tell!(files, unlink_file_at, "unlink-file-at", (fd: Fd, path: String), in fd: path, |state, (fd, path)| {
        format!("wasi:filesystem: remove {}", state.path_in(fd, path))
    });
    tell!(files, symlink_at, "symlink-at", (fd: Fd, target: String, path: String), in fd: path, |state, (fd, target, path)| {
        format!("wasi:filesystem: link {} to {target}", state.path_in(fd, path))
    });
    tell!(files, rename_at, "rename-at", (fd: Fd, old: String, new_fd: Fd, new: String), in fd: old, in new_fd: new, |state, (fd, old, new_fd, new)| {
        let new = state.path_in(new_fd, new);
        format!("wasi:filesystem: rename {} to {new}", state.path_in(fd, old))
    });
    tell!(
        files,
        link_at,
        "link-at",
        (fd: Fd, flags: PathFlags, old: String, new_fd: Fd, new: String),
        in new_fd: new,
        |state, (fd, _, old, new_fd, new)| {
            let new = state.path_in(new_fd, new);
            format!("wasi:filesystem: link {new} to {}", state.path_in(fd, old))
        }
    );
    tell!(
        files,
        set_times_at,
        "set-times-at",
        (fd: Fd, flags: PathFlags, path: String, accessed: NewTimestamp, modified: NewTimestamp),
        in fd: path,
        |state, (fd, _, path, _, _)| {
            format!("wasi:filesystem: set the times of {}", state.path_in(fd, path))
        }
    );
    remove_directories(files)?;
    files.func_wrap(
        "[method]descriptor.write-via-stream",
        |mut store: StoreContextMut<'_, HostState>, (fd, offset): (Fd, Filesize)| {
            let state = store.data_mut();
            let (path, file) = (state.path_of(&fd), state.open_files.of(&fd));
            let stream = state.filesystem().write_via_stream(fd, offset);
            Ok((as_wasi(
                stream.and_then(|stream| watched(state, stream, path, file)),
            )?,))
        },
    )?;
    files.func_wrap(
        "[method]descriptor.append-via-stream",
        |mut store: StoreContextMut<'_, HostState>, (fd,): (Fd,)| {
            let state = store.data_mut();
            let (path, file) = (state.path_of(&fd), state.open_files.of(&fd));
            let stream = state.filesystem().append_via_stream(fd);
            Ok((as_wasi(
                stream.and_then(|stream| watched(state, stream, path, file)),
            )?,))
        },
    )
}

/// The slashes at the end of the path only say that it is a directory, which is looked at anyway; of a path with them,
/// wasmtime would try to remove `.`, which no system does.
fn remove_directories(files: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    files.func_wrap_async(
        "[method]descriptor.remove-directory-at",
        |mut store: StoreContextMut<'_, HostState>, (fd, mut path): (Fd, String)| {
            Box::new(async move {
                let state = store.data_mut();
                let name = path.trim_end_matches('/').len();
                // Nothing but slashes is no name.
                if name > 0 {
                    path.truncate(name);
                }
                state.misses(&fd, &path, Wish::Write)?;
                let effect = state.effects.begin(|| {
                    let path = state.path_in(&fd, &path);
                    format!("wasi:filesystem: remove the directory {path}")
                })?;
                let removed = state.filesystem().remove_directory_at(fd, path).await;
                state.effects.end(effect)?;
                Ok((as_wasi(removed)?,))
            })
        },
    )
}

/// Whether opening `path` with these flags changes a file, in words.
pub(super) fn opening(path: &str, how: OpenFlags) -> Option<String> {
    if how.contains(OpenFlags::TRUNCATE) {
        Some(format!("wasi:filesystem: open {path}, emptying it"))
    } else if how.contains(OpenFlags::CREATE) {
        Some(format!("wasi:filesystem: open {path}, creating it"))
    } else {
        None
    }
}

impl HostState {
    /// The path by which the guest opened it.
    fn path_of(&self, fd: &Fd) -> String {
        self.paths.get(&fd.rep()).cloned().unwrap_or_default()
    }

    /// A path from an open directory, as much of it as is remembered.
    pub(super) fn path_in(&self, fd: &Fd, path: &str) -> String {
        let mut whole = format!("{}/{path}", self.path_of(fd).trim_end_matches('/'));
        whole.truncate(whole.floor_char_boundary(PATH_BYTES_MAX));
        whole
    }
}

/// An error that the guest may see, or a trap.
pub(super) fn as_wasi<T>(done: FsResult<T>) -> wasmtime::Result<Result<T, ErrorCode>> {
    match done {
        Ok(value) => Ok(Ok(value)),
        Err(error) => Ok(Err(error.downcast()?)),
    }
}

/// Put a observer before a stream that writes to a file, if there is one, and let it hold the file open.
fn watched(
    state: &mut HostState,
    stream: Resource<DynOutputStream>,
    path: String,
    file: Option<OpenFile>,
) -> FsResult<Resource<DynOutputStream>> {
    let effects = state.effects.clone();
    let table = state.ctx().table;
    let stream = table.delete(stream)?;
    let watched: DynOutputStream = Box::new(WatchedStream {
        stream,
        path,
        effects,
        _file: file,
        begun: None,
        crashed: false,
    });
    Ok(table.push(watched)?)
}

/// A stream into a file, whose every writing is an effect.
struct WatchedStream {
    stream: DynOutputStream,
    path: String,
    _file: Option<OpenFile>,
    effects: Effects,
    /// A writing that has begun and is not known to have ended.
    begun: Option<Begun>,
    crashed: bool,
}

impl WatchedStream {
    fn begin(&self, bytes: usize) -> Result<Begun, Crash> {
        let path = &self.path;
        self.effects
            .begin(|| format!("wasi:filesystem: write {bytes} bytes to {path}"))
    }
}

fn trap(crash: Crash) -> StreamError {
    StreamError::Trap(crash.into())
}

#[async_trait]
impl Pollable for WatchedStream {
    async fn ready(&mut self) {
        self.stream.ready().await;
        if let Some(begun) = self.begun.take() {
            self.crashed = self.effects.end(begun).is_err();
        }
    }
}

#[async_trait]
impl OutputStream for WatchedStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let begun = self.begin(bytes.len()).map_err(trap)?;
        self.begun = Some(begun);
        self.stream.write(bytes)
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.ready().await;
        let begun = self.begin(bytes.len()).map_err(trap)?;
        let written = self.stream.blocking_write_and_flush(bytes).await;
        self.effects.end(begun).map_err(trap)?;
        written
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.stream.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.crashed {
            true => Err(trap(Crash)),
            // What has begun is told to have ended when it is waited for.
            false if self.begun.is_some() => Ok(0),
            false => self.stream.check_write(),
        }
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}
