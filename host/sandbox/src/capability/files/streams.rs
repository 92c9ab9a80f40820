//! File streams. Each keeps its file open and takes its share of the threads; writing to one is an effect.

use std::fs::File;
use std::mem;
use std::sync::Arc;

use hyper::body::Bytes;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsResult, InputStream, OutputStream, Pollable, StreamError,
    StreamResult,
};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use crate::capability::files::quota_stream::QuotaOfStream;
use crate::capability::files::threads::FileThread;
use crate::capability::shared::{OpenFile, Shared};
use crate::effects::{Crash, EffectUnderWay};

/// How much to read for a guest waiting before its first read.
const READ_BYTES: usize = 4 << 10;

/// The call and file a stream belongs to.
#[derive(Clone)]
pub(super) struct StreamOwner {
    pub(super) shared: Arc<Shared>,
    pub(super) file: Arc<File>,
    /// Counts as an open file until the stream is dropped.
    pub(super) _open: Option<Arc<OpenFile>>,
}

impl StreamOwner {
    async fn thread(&self) -> FileThread {
        FileThread::wait(&self.shared, &self.file).await
    }
}

/// A stream, or its operation under way. Running that as a task of its own frees its thread as soon as it finishes, rather than when the
/// guest next asks.
enum State<S, T> {
    Ready(S),
    UnderWay(AbortOnDropJoinHandle<(S, StreamResult<T>)>),
    /// Only during a state change.
    Taken,
}

impl<S, T> State<S, T> {
    /// Waits for the operation under way, if any, and returns its result.
    async fn ended(&mut self) -> Option<StreamResult<T>> {
        let State::UnderWay(operation) = self else {
            return None;
        };
        let (stream, done) = operation.await;
        *self = State::Ready(stream);
        Some(done)
    }

    /// Takes the stream unless an operation is under way.
    fn take(&mut self) -> Option<S> {
        match mem::replace(self, State::Taken) {
            State::Ready(stream) => Some(stream),
            other => {
                *self = other;
                None
            }
        }
    }
}

/// Let a stream that reads a file keep it open.
pub(super) fn reading(
    table: &mut ResourceTable,
    stream: Resource<DynInputStream>,
    owner: StreamOwner,
) -> FsResult<Resource<DynInputStream>> {
    let stream = table.delete(stream)?;
    let reading: DynInputStream = Box::new(ReadingStream {
        state: State::Ready(stream),
        owner,
        wanted: READ_BYTES,
        read: None,
    });
    Ok(table.push(reading)?)
}

/// A stream reading its file only while the guest waits for it.
struct ReadingStream {
    state: State<DynInputStream, Bytes>,
    owner: StreamOwner,
    /// How much the guest last asked for.
    wanted: usize,
    /// Data read but not yet passed to the guest.
    read: Option<StreamResult<Bytes>>,
}

#[async_trait]
impl Pollable for ReadingStream {
    async fn ready(&mut self) {
        if self.read.is_some() {
            return;
        }
        if let Some(mut stream) = self.state.take() {
            let (owner, wanted) = (self.owner.clone(), self.wanted);
            let reading = tokio::spawn(async move {
                let thread = owner.thread().await;
                let read = stream.blocking_read(wanted).await;
                thread.end();
                (stream, read)
            });
            self.state = State::UnderWay(reading.into());
        }
        self.read = self.state.ended().await;
    }
}

#[async_trait]
impl InputStream for ReadingStream {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size == 0 {
            return Ok(Bytes::new());
        }
        match self.read.take() {
            Some(Ok(mut bytes)) => {
                let part = bytes.split_to(bytes.len().min(size));
                self.read = (!bytes.is_empty()).then_some(Ok(bytes));
                Ok(part)
            }
            Some(Err(error)) => Err(error),
            None => {
                self.wanted = size;
                Ok(Bytes::new())
            }
        }
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        if size > 0 && self.read.is_none() {
            self.read = match &mut self.state {
                // The guest is waiting for nothing else, so no separate task is needed.
                State::Ready(stream) => {
                    let thread = self.owner.thread().await;
                    let read = stream.blocking_read(size).await;
                    thread.end();
                    Some(read)
                }
                state => state.ended().await,
            };
        }
        self.read(size)
    }

    async fn cancel(&mut self) {
        // Nothing can stop a read once started, and its thread stays counted. Waiting here keeps a guest from piling them up.
        self.state.ended().await;
        if let State::Ready(stream) = &mut self.state {
            stream.cancel().await;
        }
    }
}

/// Let a stream that writes a file keep it open, report its effects, and keep to `quota`.
pub(super) fn writing(
    table: &mut ResourceTable,
    stream: Resource<DynOutputStream>,
    path: String,
    owner: StreamOwner,
    quota: Option<QuotaOfStream>,
) -> FsResult<Resource<DynOutputStream>> {
    let stream = table.delete(stream)?;
    let stream = match quota {
        Some(quota) => quota.limit(stream),
        None => stream,
    };
    let writing: DynOutputStream = Box::new(WritingStream {
        state: State::Ready(stream),
        path,
        owner,
        under_way: None,
        failed: None,
    });
    Ok(table.push(writing)?)
}

/// A stream that writes a file. Each write is an effect.
struct WritingStream {
    state: State<DynOutputStream, ()>,
    path: String,
    owner: StreamOwner,
    /// A write that is not known to have ended.
    under_way: Option<EffectUnderWay>,
    /// Error of the last write, not yet reported to the guest.
    failed: Option<StreamError>,
}

impl WritingStream {
    fn begin(&self, bytes: usize) -> StreamResult<EffectUnderWay> {
        let (path, effects) = (&self.path, &self.owner.shared.effects);
        effects
            .begin(|| format!("wasi:filesystem: write {bytes} bytes to {path}"))
            .map_err(trap)
    }

    fn check_failed(&mut self) -> StreamResult<()> {
        self.failed.take().map_or(Ok(()), Err)
    }
}

fn trap(crash: Crash) -> StreamError {
    StreamError::Trap(crash.into())
}

#[async_trait]
impl Pollable for WritingStream {
    async fn ready(&mut self) {
        if let Some(written) = self.state.ended().await {
            self.failed = written.err();
        } else if let State::Ready(stream) = &mut self.state {
            stream.ready().await;
        }
        // Dropping it ends it.
        self.under_way = None;
    }
}

#[async_trait]
impl OutputStream for WritingStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.check_failed()?;
        let kept = self.owner.shared.kept.keep_for_now(bytes.len() as u64);
        let kept = kept.map_err(|why| {
            self.owner.shared.exceed(why);
            StreamError::LastOperationFailed(
                std::io::Error::from(std::io::ErrorKind::OutOfMemory).into(),
            )
        })?;
        let effect = self.begin(bytes.len())?;
        let Some(mut stream) = self.state.take() else {
            return Err(StreamError::trap(
                "write not permitted: check_write not called first",
            ));
        };
        self.under_way = Some(effect);
        let owner = self.owner.clone();
        let writing = tokio::spawn(async move {
            let thread = owner.thread().await;
            let written = stream.blocking_write_and_flush(bytes).await;
            thread.end();
            drop(kept);
            (stream, written)
        });
        self.state = State::UnderWay(writing.into());
        Ok(())
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.ready().await;
        self.check_failed()?;
        let mut effect = self.begin(bytes.len())?;
        let State::Ready(stream) = &mut self.state else {
            return Err(StreamError::Closed);
        };
        let thread = self.owner.thread().await;
        let written = stream.blocking_write_and_flush(bytes).await;
        thread.end();
        effect.end().map_err(trap)?;
        written
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.check_failed()?;
        match &mut self.state {
            State::Ready(stream) => stream.flush(),
            // Writes are already flushed when they finish.
            _ => Ok(()),
        }
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        if self.owner.shared.effects.have_crashed() {
            return Err(trap(Crash));
        }
        self.check_failed()?;
        match &mut self.state {
            // The effect under way ends when the guest waits for it.
            State::Ready(stream) if self.under_way.is_none() => stream.check_write(),
            _ => Ok(0),
        }
    }

    async fn cancel(&mut self) {
        self.state.ended().await;
        if let State::Ready(stream) = &mut self.state {
            stream.cancel().await;
        }
    }
}
