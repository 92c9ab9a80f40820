//! Trace contexts of W3C: the trace of a launch, and the span of each of its parts.
//!
//! Every host computes the same ids from the ids of the record, so the record stores only the context of a caller.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{LaunchId, RunId, sha256_half};

/// The name of the header, and of the key in contexts and JSON.
pub const TRACEPARENT: &str = "traceparent";
/// The name of the environment variable.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";

/// The version of the format that is read and written.
const VERSION: &str = "00";
/// The flag by which a caller says that it may have recorded its span.
const SAMPLED: u8 = 1;

/// A span of a trace. As text it is a `traceparent` of version 00.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceContext {
    trace_id: [u8; 16],
    span_id: [u8; 8],
    is_sampled: bool,
}

/// A text that is no trace context.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{0}` is no trace context: give a traceparent of version 00, such as 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
)]
pub struct InvalidTraceContext(String);

impl TraceContext {
    /// Returns the span of a launch: in the trace of its caller, or else in a trace of its own, which is sampled.
    pub fn of_launch(launch: LaunchId, caller: Option<TraceContext>) -> TraceContext {
        let id = launch.0.into_bytes();
        TraceContext {
            trace_id: caller.map_or(id, |caller| caller.trace_id),
            span_id: span_id(&id),
            is_sampled: caller.is_none_or(|caller| caller.is_sampled),
        }
    }

    /// Returns the span of a run. `self` is the span of its launch.
    pub fn of_run(self, run: RunId) -> TraceContext {
        self.child(&format!("run {}", run.number()))
    }

    /// Returns the span of a call of a task. `self` is the span of its run.
    pub fn of_call(self, task: &str, attempt: i64) -> TraceContext {
        self.child(&format!("call {attempt} {task}"))
    }

    /// Returns the span of the part of this span that has this name. Each part needs a name of its own.
    pub fn child(self, name: &str) -> TraceContext {
        TraceContext {
            span_id: span_id(&[&self.span_id, name.as_bytes()].concat()),
            ..self
        }
    }

    pub fn trace_id(self) -> [u8; 16] {
        self.trace_id
    }

    pub fn span_id(self) -> [u8; 8] {
        self.span_id
    }

    /// Whether the spans of the trace are to be exported.
    pub fn is_sampled(self) -> bool {
        self.is_sampled
    }

    /// Read the context of a caller. As the recommendation demands, an invalid one counts as none.
    pub fn of_caller(text: &str) -> Option<TraceContext> {
        text.trim_matches([' ', '\t']).parse().ok()
    }
}

/// Returns an id for the span of `name`, which is not zero.
fn span_id(name: &[u8]) -> [u8; 8] {
    let [a, b, c, d, e, f, g, h, ..] = sha256_half(name);
    match [a, b, c, d, e, f, g, h] {
        [0, 0, 0, 0, 0, 0, 0, 0] => [0, 0, 0, 0, 0, 0, 0, 1],
        id => id,
    }
}

impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = if self.is_sampled { SAMPLED } else { 0 };
        let (trace_id, span_id) = (hex::encode(self.trace_id), hex::encode(self.span_id));
        write!(f, "{VERSION}-{trace_id}-{span_id}-{flags:02x}")
    }
}

impl FromStr for TraceContext {
    type Err = InvalidTraceContext;

    fn from_str(text: &str) -> Result<TraceContext, InvalidTraceContext> {
        parse(text).ok_or_else(|| InvalidTraceContext(text.chars().take(100).collect()))
    }
}

fn parse(text: &str) -> Option<TraceContext> {
    let mut parts = text.split('-');
    if parts.next() != Some(VERSION) {
        return None;
    }
    let (trace_id, span_id) = (bytes(parts.next()?)?, bytes(parts.next()?)?);
    let [flags] = bytes(parts.next()?)?;
    let is_whole = parts.next().is_none() && trace_id != [0; 16] && span_id != [0; 8];
    is_whole.then_some(TraceContext {
        trace_id,
        span_id,
        is_sampled: flags & SAMPLED != 0,
    })
}

/// Read exactly `N` bytes in lower-case hexadecimal.
fn bytes<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_digit = |digit: u8| matches!(digit, b'0'..=b'9' | b'a'..=b'f');
    let mut bytes = [0; N];
    let is_read = text.bytes().all(is_digit) && hex::decode_to_slice(text, &mut bytes).is_ok();
    is_read.then_some(bytes)
}

impl Serialize for TraceContext {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TraceContext {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<TraceContext, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::ids::{LaunchKind, ScheduleId};

    /// The example of the recommendation.
    const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_a_traceparent_of_version_00_is_read() {
        let read: TraceContext = CALLER.parse().unwrap();
        assert_eq!(read.to_string(), CALLER);
        assert!(read.is_sampled());
        assert_eq!(TraceContext::of_caller(&format!(" {CALLER}\t")), Some(read));
        // Of the flags, version 00 defines one.
        let flagged: TraceContext = CALLER.replace("-01", "-fe").parse().unwrap();
        assert_eq!(flagged.to_string(), CALLER.replace("-01", "-00"));
        for (part, by) in [
            ("00-4bf9", "01-4bf9"),
            ("00-4bf9", "ff-4bf9"),
            ("00-4bf9", "0-4bf9"),
            ("4bf92f35", "4BF92F35"),
            ("4bf92f35", "4bf92f3g"),
            ("4bf92f35", "4bf92f3"),
            ("4bf92f35", "4bf92f350"),
            (
                "4bf92f3577b34da6a3ce929d0e0e4736",
                "00000000000000000000000000000000",
            ),
            ("00f067aa0ba902b7", "0000000000000000"),
            ("00f067aa0ba902b7", "00f067aa0ba902b"),
            ("-01", ""),
            ("-01", "-1"),
            ("-01", "-0g"),
            ("-01", "-01-"),
            ("-01", "-01-more"),
            ("-01", "-01 "),
            (CALLER, ""),
        ] {
            let text = CALLER.replacen(part, by, 1);
            assert!(text.parse::<TraceContext>().is_err(), "{text}");
        }
    }

    #[test]
    fn each_part_of_a_launch_has_a_span_of_its_own_in_one_trace() {
        let at = |second: i64| {
            let slot = Timestamp::from_micros(second * 1_000_000);
            LaunchId::of(
                ScheduleId(uuid::Uuid::from_u128(7)),
                slot,
                LaunchKind::Manual,
            )
        };
        let own = TraceContext::of_launch(at(1), None);
        assert_eq!(own.trace_id(), at(1).0.into_bytes());
        assert!(own.is_sampled());
        let caller: TraceContext = CALLER.replace("-01", "-00").parse().unwrap();
        let called = TraceContext::of_launch(at(1), Some(caller));
        assert_eq!(called.trace_id(), caller.trace_id());
        assert!(!called.is_sampled());
        assert_eq!(called.span_id(), own.span_id());
        let (first, second) = (
            own.of_run(RunId::of(at(1), 1)),
            own.of_run(RunId::of(at(1), 2)),
        );
        let spans = [
            own,
            own.child("decide"),
            first,
            first.of_call("a", 1),
            first.of_call("a", 2),
            first.of_call("b", 1),
            second,
            second.of_call("a", 1),
        ];
        for (place, span) in spans.iter().enumerate() {
            assert_eq!(span.trace_id(), own.trace_id());
            assert_eq!(span.to_string().parse(), Ok(*span));
            assert!(!spans[..place].contains(span), "{span}");
        }
        assert_ne!(
            TraceContext::of_launch(at(2), None).span_id(),
            own.span_id()
        );
    }
}
