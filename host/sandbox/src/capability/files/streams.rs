//! Streams of files: each keeps its file open, and writing is an effect.

use std::sync::Arc;

use hyper::body::Bytes;
use wasmtime::component::{Resource, ResourceTable};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{
    DynInputStream, DynOutputStream, FsResult, InputStream, OutputStream, Pollable, StreamError,
    StreamResult,
};

use crate::capability::files::quota_stream::QuotaOfStream;
use crate::capability::shared::OpenFile;
use crate::effects::{Crash, EffectUnderWay, Effects};

/// Let a stream that reads a file keep it open.
pub(super) fn reading(
    table: &mut ResourceTable,
    stream: Resource<DynInputStream>,
    file: Option<Arc<OpenFile>>,
) -> FsResult<Resource<DynInputStream>> {
    let stream = table.delete(stream)?;
    let reading: DynInputStream = Box::new(ReadingStream {
        stream,
        _file: file,
    });
    Ok(table.push(reading)?)
}

/// A stream that reads a file.
struct ReadingStream {
    stream: DynInputStream,
    _file: Option<Arc<OpenFile>>,
}

#[async_trait]
impl Pollable for ReadingStream {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[async_trait]
impl InputStream for ReadingStream {
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

/// Let a stream that writes a file keep it open, report its effects, and keep to `quota`.
pub(super) fn writing(
    table: &mut ResourceTable,
    stream: Resource<DynOutputStream>,
    path: String,
    file: Option<Arc<OpenFile>>,
    effects: Effects,
    quota: Option<QuotaOfStream>,
) -> FsResult<Resource<DynOutputStream>> {
    let stream = table.delete(stream)?;
    let stream = match quota {
        Some(quota) => quota.limit(stream),
        None => stream,
    };
    let writing: DynOutputStream = Box::new(WritingStream {
        stream,
        path,
        effects,
        _file: file,
        under_way: None,
    });
    Ok(table.push(writing)?)
}

/// A stream that writes a file. Each write is an effect.
struct WritingStream {
    stream: DynOutputStream,
    path: String,
    _file: Option<Arc<OpenFile>>,
    effects: Effects,
    /// A write that is not known to have ended.
    under_way: Option<EffectUnderWay>,
}

impl WritingStream {
    fn begin(&self, bytes: usize) -> StreamResult<EffectUnderWay> {
        let path = &self.path;
        self.effects
            .begin(|| format!("wasi:filesystem: write {bytes} bytes to {path}"))
            .map_err(trap)
    }
}

fn trap(crash: Crash) -> StreamError {
    StreamError::Trap(crash.into())
}

#[async_trait]
impl Pollable for WritingStream {
    async fn ready(&mut self) {
        self.stream.ready().await;
        // Dropping it ends it.
        self.under_way = None;
    }
}

#[async_trait]
impl OutputStream for WritingStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.under_way = Some(self.begin(bytes.len())?);
        self.stream.write(bytes)
    }

    async fn blocking_write_and_flush(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.ready().await;
        let mut effect = self.begin(bytes.len())?;
        let written = self.stream.blocking_write_and_flush(bytes).await;
        effect.end().map_err(trap)?;
        written
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.stream.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match self.effects.have_crashed() {
            true => Err(trap(Crash)),
            // The effect under way ends when the guest waits for it.
            false if self.under_way.is_some() => Ok(0),
            false => self.stream.check_write(),
        }
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}
