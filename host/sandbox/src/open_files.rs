//! How many files, directories and sockets a call has open, whatever holds them: a handle, or a stream that outlives it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hyper::body::Bytes;
use wasmtime::StoreContextMut;
use wasmtime::component::{LinkerInstance, Resource, ResourceType};
use wasmtime_wasi::filesystem::{Descriptor, WasiFilesystemView as _};
use wasmtime_wasi::p2::bindings::filesystem::types::{
    ErrorCode, Filesize, HostDescriptor, HostDirectoryEntryStream,
};
use wasmtime_wasi::p2::{
    DynInputStream, FsResult, InputStream, Pollable, ReaddirIterator, StreamResult,
};
use wasmtime_wasi::{WasiView as _, async_trait};

use super::files::as_wasi;
use super::gauges::Gauge;
use super::limits::Resource as Limit;
use super::store::HostState;

/// Listings of directories under way at once: each is in the host's memory whole.
const LISTINGS_MAX: u64 = 16;

/// The files that a call has open.
pub(super) struct OpenFiles {
    now: Arc<AtomicU64>,
    most: Gauge,
    listings: u64,
    /// What the guest's descriptors and sockets hold, by their handles.
    held: HashMap<u32, OpenFile>,
}

/// One open file, which counts until the last of its clones is gone.
#[derive(Clone)]
pub(super) struct OpenFile(#[expect(dead_code, reason = "held for its end")] Arc<Count>);

struct Count(Arc<AtomicU64>);

impl Drop for Count {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl OpenFiles {
    pub(super) fn new(most: Gauge) -> OpenFiles {
        OpenFiles {
            now: Arc::default(),
            most,
            listings: 0,
            held: HashMap::new(),
        }
    }

    /// Whether another may be opened; if not, why.
    pub(super) fn may_open(&self) -> Result<(), String> {
        let most = self.most.limit;
        match self.now.load(Ordering::Relaxed) < most {
            true => Ok(()),
            false => Err(format!(
                "the task has {most} files and directories open, its limit; close some, or {}",
                Limit::OpenFiles.raise()
            )),
        }
    }

    /// Count one more.
    pub(super) fn open(&self) -> OpenFile {
        let now = self.now.fetch_add(1, Ordering::Relaxed) + 1;
        self.most.reach(now);
        OpenFile(Arc::new(Count(Arc::clone(&self.now))))
    }

    /// A handle of the guest holds it.
    pub(super) fn hold<T: 'static>(&mut self, handle: &Resource<T>, file: OpenFile) {
        self.held.insert(handle.rep(), file);
    }

    /// The guest has given up the handle.
    pub(super) fn let_go(&mut self, handle: u32) {
        self.held.remove(&handle);
    }

    /// What a descriptor of the guest holds; none for the directory that stands for those which were not granted.
    pub(super) fn of(&self, descriptor: &Resource<Descriptor>) -> Option<OpenFile> {
        self.held.get(&descriptor.rep()).cloned()
    }
}

/// Put the counting before whatever closes a file, and whatever keeps one open.
pub(super) fn count_open_files(files: &mut LinkerInstance<'_, HostState>) -> wasmtime::Result<()> {
    files.resource_async(
        "descriptor",
        ResourceType::host::<Descriptor>(),
        |mut store, handle| {
            Box::new(async move {
                let state = store.data_mut();
                state.open_files.let_go(handle);
                state.paths.remove(&handle);
                HostDescriptor::drop(&mut state.filesystem(), Resource::new_own(handle))
            })
        },
    )?;
    files.func_wrap(
        "[method]descriptor.read-via-stream",
        |mut store: StoreContextMut<'_, HostState>,
         (fd, offset): (Resource<Descriptor>, Filesize)| {
            let state = store.data_mut();
            let file = state.open_files.of(&fd);
            let stream = state.filesystem().read_via_stream(fd, offset);
            Ok((as_wasi(
                stream.and_then(|stream| reading(state, stream, file)),
            )?,))
        },
    )?;
    files.func_wrap_async(
        "[method]descriptor.read-directory",
        |mut store: StoreContextMut<'_, HostState>, (fd,): (Resource<Descriptor>,)| {
            Box::new(async move {
                let state = store.data_mut();
                if state.open_files.listings >= LISTINGS_MAX {
                    state.exceeded.record(format!(
                        "the task reads {LISTINGS_MAX} directories at once, the most that it may; end some before it begins more"
                    ));
                    return Ok((Err(ErrorCode::Quota),));
                }
                let listing = state.filesystem().read_directory(fd).await;
                state.open_files.listings += u64::from(listing.is_ok());
                Ok((as_wasi(listing)?,))
            })
        },
    )?;
    files.resource(
        "directory-entry-stream",
        ResourceType::host::<ReaddirIterator>(),
        |mut store, handle| {
            let state = store.data_mut();
            state.open_files.listings -= 1;
            HostDirectoryEntryStream::drop(&mut state.filesystem(), Resource::new_own(handle))
        },
    )
}

/// Let a stream that reads a file hold it.
fn reading(
    state: &mut HostState,
    stream: Resource<DynInputStream>,
    file: Option<OpenFile>,
) -> FsResult<Resource<DynInputStream>> {
    let table = state.ctx().table;
    let stream = table.delete(stream)?;
    let holding: DynInputStream = Box::new(Reading {
        stream,
        _file: file,
    });
    Ok(table.push(holding)?)
}

/// A stream that reads a file, and holds it open.
struct Reading {
    stream: DynInputStream,
    _file: Option<OpenFile>,
}

#[async_trait]
impl Pollable for Reading {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[async_trait]
impl InputStream for Reading {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.stream.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.stream.blocking_read(size).await
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}
