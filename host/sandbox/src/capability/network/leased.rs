//! Streams to the network that send nothing for a call that is to be dropped.
//!
//! Connections are driven by tasks of their own. After a suspension of the process, such a task may run before anything has
//! noticed that the lease of the call is over.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use wasmtime_wasi::async_trait;
use wasmtime_wasi::p2::{DynOutputStream, OutputStream, Pollable, StreamError, StreamResult};

use crate::effects::Crash;
use crate::stop_signal::StopSignal;

/// A connection of the host, for a call.
pub(crate) struct LeasedStream<S> {
    pub(crate) stream: S,
    pub(crate) stop: StopSignal,
}

impl<S: Unpin> LeasedStream<S> {
    /// Returns the stream to write to, unless the call is to be dropped.
    fn writable(self: Pin<&mut Self>) -> io::Result<Pin<&mut S>> {
        let this = self.get_mut();
        if this.stop.is_dropped() {
            Err(io::Error::other("the call is to be dropped"))
        } else {
            Ok(Pin::new(&mut this.stream))
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for LeasedStream<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for LeasedStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.writable()?.poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable()?.poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.writable()?.poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.writable()?.poll_write_vectored(cx, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

/// The stream by which a guest writes to its own socket.
pub(crate) struct LeasedOutput {
    pub(crate) stream: DynOutputStream,
    pub(crate) stop: StopSignal,
}

#[async_trait]
impl Pollable for LeasedOutput {
    async fn ready(&mut self) {
        self.stream.ready().await;
    }
}

#[async_trait]
impl OutputStream for LeasedOutput {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        if self.stop.is_dropped() {
            Err(StreamError::Trap(Crash.into()))
        } else {
            self.stream.write(bytes)
        }
    }

    fn flush(&mut self) -> StreamResult<()> {
        self.stream.flush()
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        self.stream.check_write()
    }

    async fn cancel(&mut self) {
        self.stream.cancel().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use campanile_model::clock::{Clock, Timestamp};
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn a_connection_sends_nothing_when_the_lease_is_over() {
        let clock = Clock::simulated(Timestamp::EPOCH);
        let stop = StopSignal::default();
        stop.set_lease(&clock, clock.monotonic().plus(Duration::from_secs(1)));
        let (stream, mut server) = tokio::io::duplex(64);
        let mut leased = LeasedStream { stream, stop };
        leased.write_all(b"before").await.unwrap();
        clock.advance_to(Timestamp::from_micros(1_000_000));
        assert!(leased.write_all(b"after").await.is_err());
        drop(leased);
        let mut received = Vec::new();
        server.read_to_end(&mut received).await.unwrap();
        assert_eq!(received, b"before");
    }
}
