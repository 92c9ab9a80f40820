//! Pure: write spans as a request of the OpenTelemetry Protocol over HTTP, in its JSON form.
//!
//! `https://opentelemetry.io/docs/specs/otlp/`: ids are hexadecimal, 64-bit numbers are texts, enums are numbers.

use serde_json::{Value, json};

use super::spans::Span;
use campanile_model::clock::Timestamp;

/// Work inside of a program.
const SPAN_KIND_INTERNAL: u32 = 1;
/// A request that a program answers, or a job that it takes up.
const SPAN_KIND_CONSUMER: u32 = 5;
const STATUS_ERROR: u32 = 2;
/// The flag of the trace context.
const SAMPLED: u32 = 1;

/// Returns the body of a request with `spans`, which the host `host` sends.
pub(crate) fn request(spans: &[Span], host: &str) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let resource = [
        ("service.name", json!("campanile")),
        ("service.version", json!(version)),
        ("service.instance.id", json!(host)),
    ];
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({
        "resourceSpans": [{
            "resource": {"attributes": attributes(&resource)},
            "scopeSpans": [{
                "scope": {"name": "campanile", "version": version},
                "spans": spans,
            }],
        }],
    })
    .to_string()
}

fn span(span: &Span) -> Value {
    let parent = span.parent.map(hex).unwrap_or_default();
    let kind = if parent.is_empty() || span.name.starts_with("launch ") {
        SPAN_KIND_CONSUMER
    } else {
        SPAN_KIND_INTERNAL
    };
    let status = match &span.error {
        Some(message) => json!({"code": STATUS_ERROR, "message": message}),
        None => json!({}),
    };
    json!({
        "traceId": hex(span.context.trace_id()),
        "spanId": hex(span.context.span_id()),
        "parentSpanId": parent,
        "flags": SAMPLED,
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.start),
        "endTimeUnixNano": nanos(span.end),
        "attributes": attributes(&span.attributes),
        "status": status,
    })
}

/// Returns the attributes with a value.
fn attributes(all: &[(&'static str, Value)]) -> Vec<Value> {
    let value = |value: &Value| match value {
        Value::Null => None,
        Value::Number(number) => Some(json!({"intValue": number.to_string()})),
        Value::String(text) => Some(json!({"stringValue": text})),
        other => Some(json!({"stringValue": other.to_string()})),
    };
    let all = all.iter();
    let all = all.filter_map(|(key, it)| Some(json!({"key": key, "value": value(it)?})));
    all.collect()
}

fn nanos(time: Timestamp) -> String {
    (i128::from(time.micros()).max(0) * 1_000).to_string()
}

fn hex<const N: usize>(bytes: [u8; N]) -> String {
    use std::fmt::Write as _;

    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
