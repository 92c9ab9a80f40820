//! Streams that write to a file in a directory with a quota.

use std::fs::File;
use std::mem;
use std::sync::Arc;

use hyper::body::Bytes;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{DynOutputStream, OutputStream, Pollable, StreamError, StreamResult};
use wasmtime_wasi::runtime::AbortOnDropJoinHandle;

use crate::capability::files::quota::Quota;

/// What a stream needs to keep to a quota.
#[derive(Clone)]
pub(super) struct QuotaOfStream {
    pub(super) quota: Arc<Quota>,
    pub(super) file: Arc<File>,
    /// Where the next byte goes; none for the end of the file.
    pub(super) position: Option<u64>,
}

impl QuotaOfStream {
    /// Let `stream` write only what the quota allows.
    pub(super) fn limit(self, stream: DynOutputStream) -> DynOutputStream {
        Box::new(QuotaStream {
            target: self,
            state: State::Ready(stream),
        })
    }

    /// Write `bytes` to `stream`, if there is room for them.
    async fn write(&self, stream: &mut DynOutputStream, bytes: Bytes) -> StreamResult<()> {
        let new_size = size_after(bytes.len(), self.position);
        let admission = self.quota.admit_growth(&self.file, new_size).await;
        let admission =
            admission.map_err(|error| StreamError::LastOperationFailed(error.into()))?;
        let written = stream.blocking_write_and_flush(bytes).await;
        admission.end(written.is_ok()).await;
        written
    }
}

/// Returns how to get the size of a file after `count` bytes are written at `position`, or at its end.
pub(super) fn size_after(count: usize, position: Option<u64>) -> impl Fn(u64) -> u64 + Send + Sync {
    let count = count as u64;
    move |size| match (count, position) {
        (0, _) => size,
        (_, Some(position)) => size.max(position.saturating_add(count)),
        (_, None) => size.saturating_add(count),
    }
}

/// A stream that writes to a file. The quota may need a walk of the directory before a write, so each write is a task.
struct QuotaStream {
    target: QuotaOfStream,
    state: State,
}

enum State {
    Ready(DynOutputStream),
    /// A write, which returns where the next byte goes. Dropping it with the call stops what has not begun.
    Writing(AbortOnDropJoinHandle<StreamResult<(DynOutputStream, Option<u64>)>>),
    /// A write has failed, with an error that the guest does not know yet, or the stream was closed.
    Ended(Option<StreamError>),
}

impl QuotaStream {
    /// Returns the error of the last write, once, or say whether the stream is ready.
    fn check(&mut self) -> StreamResult<bool> {
        match &mut self.state {
            State::Ready(_) => Ok(true),
            State::Writing(_) => Ok(false),
            State::Ended(error) => Err(error.take().unwrap_or(StreamError::Closed)),
        }
    }
}

#[async_trait]
impl Pollable for QuotaStream {
    async fn ready(&mut self) {
        if let State::Writing(writing) = &mut self.state {
            self.state = match writing.await {
                Ok((stream, position)) => {
                    self.target.position = position;
                    State::Ready(stream)
                }
                Err(error) => State::Ended(Some(error)),
            };
        }
    }
}

#[async_trait]
impl OutputStream for QuotaStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if !self.check()? {
            return Err(StreamError::trap(
                "write not permitted: check_write not called first",
            ));
        }
        let State::Ready(mut stream) = mem::replace(&mut self.state, State::Ended(None)) else {
            return Err(StreamError::Closed);
        };
        let target = self.target.clone();
        let writing = tokio::spawn(async move {
            let count = bytes.len() as u64;
            target.write(&mut stream, bytes).await?;
            let position = target.position.map(|start| start.saturating_add(count));
            Ok::<_, StreamError>((stream, position))
        });
        self.state = State::Writing(writing.into());
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        // A write is flushed when it has ended.
        self.check().map(drop)
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match &mut self.state {
            State::Ready(stream) => stream.check_write(),
            _ => self.check().map(|_| 0),
        }
    }

    async fn cancel(&mut self) {
        match mem::replace(&mut self.state, State::Ended(None)) {
            State::Ready(mut stream) => stream.cancel().await,
            // A write that has begun continues in its thread; the guest may not begin many of them.
            State::Writing(writing) => drop(writing.await),
            State::Ended(_) => {}
        }
    }
}
