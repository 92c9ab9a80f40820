//! A guest's stdout and stderr: the head is kept and the rest is counted.
//!
//! The stream never closes, because a guest whose stdout closes panics in its next `println!`. The stdout of a program
//! is also its output, which may be longer than the text that is kept.

use std::sync::{Arc, Mutex, PoisonError};

use hyper::body::Bytes;
use tokio::io::AsyncWrite;
use wasmtime_wasi::async_trait;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

use crate::ledger::kept::KeptOfCall;
use crate::limits::Limits;
use crate::run::cause::{self, Cause};

/// The line break that a program prints after its output.
const LINE_END_BYTES_MAX: usize = 2;

/// One captured stream. Clones share the bytes.
#[derive(Clone)]
pub(crate) struct Capture(Arc<Mutex<Captured>>);

struct Captured {
    head: Vec<u8>,
    kept: Arc<KeptOfCall>,
    /// Why the host kept less than the call's limits allow.
    refused_by_host: Option<String>,
    /// The most this stream accepts at once: as much as one host call may pass. Some programs never check how much of a write was accepted,
    /// silently losing the rest.
    write_bytes_max: usize,
    head_bytes_max: usize,
    text_bytes_max: usize,
    dropped_bytes: u64,
}

impl Capture {
    pub(crate) fn new(limits: &Limits, kept: &Arc<KeptOfCall>) -> Capture {
        Capture::keeping(limits.stdio_bytes_max, limits, kept)
    }

    /// Capture the stdout of a program: it keeps a whole output, and no more than the limit of `stdio` as text.
    pub(crate) fn of_program(limits: &Limits, kept: &Arc<KeptOfCall>) -> Capture {
        let output = limits.output_bytes_max.saturating_add(LINE_END_BYTES_MAX);
        Capture::keeping(limits.stdio_bytes_max.max(output), limits, kept)
    }

    fn keeping(head_bytes_max: usize, limits: &Limits, kept: &Arc<KeptOfCall>) -> Capture {
        Capture(Arc::new(Mutex::new(Captured {
            head: Vec::new(),
            kept: Arc::clone(kept),
            refused_by_host: None,
            write_bytes_max: limits.list_bytes_max(),
            head_bytes_max,
            text_bytes_max: limits.stdio_bytes_max,
            dropped_bytes: 0,
        })))
    }

    /// Returns the captured text and how many more bytes were dropped. Replacement characters stand in for bytes that aren't UTF-8.
    pub(crate) fn text(&self) -> (String, u64) {
        let captured = self.lock();
        let head = &captured.head[..captured.head.len().min(captured.text_bytes_max)];
        let beyond = captured.dropped_bytes + (captured.head.len() - head.len()) as u64;
        // The limit fell inside a character, through no fault of the guest. Keeping its first bytes would also hide the beginning of a
        // secret just before them from redaction.
        let last = head
            .utf8_chunks()
            .last()
            .map_or(&[][..], |chunk| chunk.invalid());
        let is_begun = std::str::from_utf8(last).is_err_and(|error| error.error_len().is_none());
        let whole = if beyond > 0 && is_begun {
            head.len() - last.len()
        } else {
            head.len()
        };
        let dropped = beyond + (head.len() - whole) as u64;
        (
            String::from_utf8_lossy(&head[..whole]).into_owned(),
            dropped,
        )
    }

    /// Returns how many bytes were written, kept or dropped.
    pub(crate) fn written_bytes(&self) -> u64 {
        let captured = self.lock();
        captured.head.len() as u64 + captured.dropped_bytes
    }

    /// Returns the captured bytes, and how many more were dropped.
    pub(crate) fn bytes(&self) -> (Vec<u8>, u64) {
        let captured = self.lock();
        (captured.head.clone(), captured.dropped_bytes)
    }

    /// Returns the last cause in the text. If anything was dropped, the last cause was dropped too.
    pub(crate) fn last_cause(&self) -> Option<Cause> {
        let (bytes, dropped) = self.bytes();
        let text = String::from_utf8_lossy(&bytes);
        (dropped == 0).then(|| cause::last_cause(&text)).flatten()
    }

    /// Forget the captured bytes, because they have become the output.
    pub(crate) fn clear(&self) {
        self.lock().head.clear();
    }

    pub(crate) fn write(&self, bytes: &[u8]) {
        let mut captured = self.lock();
        let room = captured.head_bytes_max.saturating_sub(captured.head.len());
        let (mut head, mut rest) = bytes.split_at(room.min(bytes.len()));
        if let Err(why) = captured.kept.keep(text_bytes(head)) {
            // Anything after a gap would seem to continue what's before it.
            captured.head_bytes_max = captured.head.len();
            captured.refused_by_host = Some(why);
            (head, rest) = (&[], bytes);
        }
        captured.head.extend_from_slice(head);
        captured.dropped_bytes += rest.len() as u64;
    }

    /// Returns why the host kept less than the call's limits allow, if it did.
    pub(crate) fn refusal_of_host(&self) -> Option<String> {
        self.lock().refused_by_host.clone()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Captured> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns an upper bound for the length of `bytes` as text: each byte that isn't UTF-8 becomes a three-byte character.
fn text_bytes(bytes: &[u8]) -> u64 {
    let beyond_ascii = bytes.iter().filter(|byte| !byte.is_ascii()).count();
    (bytes.len() + 2 * beyond_ascii) as u64
}

impl IsTerminal for Capture {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Capture {
    /// Only WASI 0.3 asks for this stream, and no guest can import that.
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(tokio::io::sink())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait]
impl Pollable for Capture {
    async fn ready(&mut self) {}
}

#[async_trait]
impl OutputStream for Capture {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        Capture::write(self, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(self.lock().write_bytes_max)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Ledger;

    fn capture(stdio_bytes_max: usize) -> Capture {
        let limits = Limits {
            stdio_bytes_max,
            ..Limits::default()
        };
        Capture::new(&limits, &kept_of(&Ledger::unbounded()))
    }

    fn kept_of(ledger: &Ledger) -> Arc<KeptOfCall> {
        KeptOfCall::new(ledger.nothing_kept("package"))
    }

    #[test]
    fn what_fits_is_kept_as_it_is() {
        let capture = capture(8);
        capture.write(b"ab\x1b[");
        capture.write(b"\xffxyz");
        assert_eq!(capture.text(), ("ab\u{1b}[\u{fffd}xyz".to_owned(), 0));
    }

    #[test]
    fn what_is_beyond_the_limit_is_counted() {
        let capture = capture(4);
        for _ in 0..1000 {
            capture.write(b"abc");
        }
        assert_eq!(capture.text(), ("abca".to_owned(), 2996));
    }

    #[test]
    fn an_output_may_be_longer_than_its_text() {
        let limits = Limits {
            stdio_bytes_max: 4,
            output_bytes_max: 4,
            ..Limits::default()
        };
        let capture = Capture::of_program(&limits, &kept_of(&Ledger::unbounded()));
        capture.write(b"abcdefgh");
        assert_eq!(capture.bytes(), (b"abcdef".to_vec(), 2));
        assert_eq!(capture.text(), ("abcd".to_owned(), 4));
        capture.clear();
        assert_eq!(capture.bytes().0, b"");
    }

    #[test]
    fn a_character_cut_by_the_limit_is_not_mangled() {
        let capture = capture(4);
        capture.write("abc€".as_bytes());
        assert_eq!(capture.text(), ("abc".to_owned(), 3));
    }

    #[test]
    fn a_character_cut_by_the_limit_is_dropped_also_behind_other_bytes() {
        let capture = capture(8);
        capture.write(b"\xffpassw\xc3");
        capture.write(b"\xb6rd");
        assert_eq!(capture.text(), ("\u{fffd}passwö".to_owned(), 2));
        let capture = self::capture(7);
        capture.write("\u{0}passwörd".as_bytes());
        assert_eq!(capture.text(), ("\u{0}passw".to_owned(), 4));
        let capture = self::capture(7);
        capture.write(b"\xffpassw\xc3\xb6rd");
        assert_eq!(capture.text(), ("\u{fffd}passw".to_owned(), 4));
    }
}
