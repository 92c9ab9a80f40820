//! Pure: make the spans of an ended launch from its record.
//!
//! ```text
//! launch ─┬─ decide
//!         ├─ claim        until a host claimed the first run
//!         ├─ run 1 ─┬─ call of a task
//!         │         └─ call of a task
//!         ├─ recovery     of a lost run
//!         ├─ claim
//!         └─ run 2 ─── call of a task
//! ```
//!
//! The ids of spans follow from the ids on record, so a trace that is exported twice has the same ids.

use serde_json::{Value, json};

use campanile_model::clock::Timestamp;
use campanile_model::status::{FailureKind, LaunchStatus, RunStatus};
use campanile_model::text::printable;
use campanile_model::trace_context::TraceContext;
use campanile_store::history::DecidedLaunch;
use campanile_store::runs::RunRow;
use campanile_store::task_runs::TracedCall;

/// The most characters of a message. The record has all of it.
const MESSAGE_CHARS_MAX: usize = 500;

/// A part of a trace.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Span {
    pub(crate) context: TraceContext,
    /// The span that it belongs to; none at the beginning of a trace.
    pub(crate) parent: Option<[u8; 8]>,
    pub(crate) name: String,
    pub(crate) start: Timestamp,
    /// Not before the start.
    pub(crate) end: Timestamp,
    pub(crate) attributes: Vec<(&'static str, Value)>,
    /// The message of a span that failed.
    pub(crate) error: Option<String>,
}

/// A launch with its runs and calls.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct EndedLaunch {
    pub(crate) decided: DecidedLaunch,
    /// The earliest first.
    pub(crate) runs: Vec<RunRow>,
    pub(crate) calls: Vec<TracedCall>,
}

/// Returns the spans of a launch, each after its parent; none when its caller does not sample its trace.
pub(crate) fn spans(ended: &EndedLaunch) -> Vec<Span> {
    let (decided, launch) = (&ended.decided, &ended.decided.launch);
    let context = TraceContext::of_launch(launch.id, decided.caller_traceparent);
    if !context.is_sampled() {
        return Vec::new();
    }
    let mut spans = vec![of_launch(decided, context), decide(decided, context)];
    let opened_at = decided.opened_at.unwrap_or(launch.decided_at);
    let mut claimable_at = opened_at.max(launch.fire_time);
    for run in &ended.runs {
        let number = run.id.number();
        let of_run = context.of_run(run.id);
        spans.push(Span {
            attributes: vec![
                ("campanile.run.number", json!(number)),
                ("campanile.host", json!(run.host)),
            ],
            ..span(
                (context.child(&format!("claim {number}")), Some(context)),
                "claim".to_owned(),
                (claimable_at.min(run.started_at), run.started_at),
            )
        });
        spans.push(run_span(run, (of_run, context)));
        let calls = ended.calls.iter().filter(|call| call.run == run.id);
        spans.extend(calls.map(|call| call_span(call, of_run)));
        if run.status == RunStatus::Lost {
            let at = end(run);
            spans.push(Span {
                attributes: vec![
                    ("campanile.run.number", json!(number)),
                    ("campanile.message", text(run.message.as_deref())),
                ],
                ..span(
                    (context.child(&format!("recovery {number}")), Some(context)),
                    "recovery".to_owned(),
                    (at, at),
                )
            });
        }
        claimable_at = end(run);
    }
    spans
}

/// Returns when a run of an ended launch ended.
fn end(run: &RunRow) -> Timestamp {
    run.finished_at.unwrap_or(run.started_at)
}

fn of_launch(decided: &DecidedLaunch, context: TraceContext) -> Span {
    let launch = &decided.launch;
    let has_failed = matches!(
        launch.status,
        LaunchStatus::Failed | LaunchStatus::Abandoned | LaunchStatus::Unknown
    );
    let caller = decided.caller_traceparent;
    let end = launch.finished_at.unwrap_or(launch.decided_at);
    Span {
        parent: caller.map(TraceContext::span_id),
        attributes: vec![
            ("campanile.launch.id", json!(launch.id)),
            ("campanile.schedule", json!(launch.schedule)),
            ("campanile.package", json!(launch.package)),
            ("campanile.digest", json!(launch.digest)),
            ("campanile.kind", json!(launch.kind)),
            ("campanile.scheduled_time", json!(launch.scheduled_time)),
            ("campanile.status", json!(launch.status)),
            ("campanile.reason", json!(launch.reason)),
            ("campanile.failure", json!(launch.failure)),
            ("campanile.attempts", json!(launch.attempts)),
            ("campanile.recoveries", json!(launch.recoveries)),
        ],
        error: has_failed.then(|| error(launch.failure, launch.message.as_deref())),
        ..span(
            (context, None),
            format!("launch {}", launch.schedule),
            (launch.decided_at, end),
        )
    }
}

fn decide(decided: &DecidedLaunch, context: TraceContext) -> Span {
    let (launch, at) = (&decided.launch, decided.launch.decided_at);
    Span {
        attributes: vec![
            ("campanile.host", json!(decided.host)),
            ("campanile.scheduled_time", json!(launch.scheduled_time)),
        ],
        ..span(
            (context.child("decide"), Some(context)),
            "decide".to_owned(),
            (at, at),
        )
    }
}

fn run_span(run: &RunRow, (of_run, launch): (TraceContext, TraceContext)) -> Span {
    let has_failed = matches!(run.status, RunStatus::Failed | RunStatus::Lost);
    Span {
        attributes: vec![
            ("campanile.run.id", json!(run.id)),
            ("campanile.run.number", json!(run.id.number())),
            ("campanile.host", json!(run.host)),
            ("campanile.status", json!(run.status)),
            ("campanile.failure", json!(run.failure)),
        ],
        error: has_failed.then(|| error(run.failure, run.message.as_deref())),
        ..span(
            (of_run, Some(launch)),
            format!("run {}", run.id.number()),
            (run.started_at, end(run)),
        )
    }
}

fn call_span(call: &TracedCall, of_run: TraceContext) -> Span {
    Span {
        attributes: vec![
            ("campanile.task", json!(call.task)),
            ("campanile.attempt", json!(call.attempt)),
            ("campanile.failure", json!(call.failure)),
        ],
        error: (!call.succeeded).then(|| error(call.failure, call.message.as_deref())),
        ..span(
            (of_run.of_call(&call.task, call.attempt), Some(of_run)),
            format!("call {}", call.task),
            (call.started_at, call.finished_at),
        )
    }
}

/// Returns a successful span without attributes.
fn span(
    (context, parent): (TraceContext, Option<TraceContext>),
    name: String,
    (start, end): (Timestamp, Timestamp),
) -> Span {
    Span {
        context,
        parent: parent.map(TraceContext::span_id),
        name,
        start,
        end: end.max(start),
        attributes: Vec::new(),
        error: None,
    }
}

fn error(failure: Option<FailureKind>, message: Option<&str>) -> String {
    let kind = failure.map_or("failed", FailureKind::as_str);
    match message {
        Some(message) => format!("{kind}: {}", shortened(message)),
        None => kind.to_owned(),
    }
}

fn text(message: Option<&str>) -> Value {
    json!(message.map(shortened))
}

fn shortened(message: &str) -> String {
    let short: String = message.chars().take(MESSAGE_CHARS_MAX).collect();
    printable(&short).to_string()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use campanile_model::ids::{ArtifactDigest, LaunchId, LaunchKind, RunId, ScheduleId};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_micros(second * 1_000_000)
    }

    fn launch() -> DecidedLaunch {
        let id = LaunchId::of(
            ScheduleId(uuid::Uuid::from_u128(1)),
            at(10),
            LaunchKind::Schedule,
        );
        let launch = json!({
            "id": id, "schedule": "nightly", "scheduled_time": at(10), "scheduled_local": "", "last_scheduled_time": at(10),
            "slot_count": 1, "kind": "schedule", "decision": "launched", "status": "failed", "package": "guests", "priority": 5,
            "run_id": null, "attempts": 2, "recoveries": 1, "fire_time": at(12), "decided_at": at(11), "finished_at": at(40),
            "failure": "failed", "message": "no\u{1b}[31m", "schedule_revision": 1, "newest_revision": 1, "decided_by": "a", "args": null
        });
        serde_json::from_value(launch).unwrap()
    }

    fn run(number: i64, status: RunStatus, from: i64, to: i64) -> RunRow {
        let launch = launch().launch;
        let run = json!({
            "id": RunId::of(launch.id, number), "launch_id": launch.id, "schedule": "nightly", "scheduled_time": at(10),
            "status": status, "is_recovery": number > 1, "package": "guests", "digest": ArtifactDigest::of(b"guests"),
            "schedule_revision": 1, "host": "a", "started_at": at(from), "finished_at": at(to), "message": "it stopped"
        });
        serde_json::from_value(run).unwrap()
    }

    fn call(number: i64, task: &str, attempt: i64) -> TracedCall {
        TracedCall {
            run: RunId::of(launch().launch.id, number),
            task: task.to_owned(),
            attempt,
            succeeded: attempt > 1,
            started_at: at(30),
            // The clock of a host may go back.
            finished_at: at(29),
            failure: None,
            message: None,
        }
    }

    fn ended(decided: DecidedLaunch) -> EndedLaunch {
        EndedLaunch {
            decided,
            runs: vec![
                run(1, RunStatus::Lost, 13, 20),
                run(2, RunStatus::Failed, 25, 40),
            ],
            calls: vec![call(1, "load", 1), call(2, "load", 2)],
        }
    }

    #[test]
    fn a_trace_has_a_span_for_each_part_below_its_parent() {
        let spans = spans(&ended(launch()));
        let names: BTreeMap<[u8; 8], &str> = spans
            .iter()
            .map(|span| (span.context.span_id(), span.name.as_str()))
            .collect();
        assert_eq!(names.len(), spans.len(), "two spans have one id");
        let shown: Vec<(&str, Option<&str>, i64, i64)> = spans
            .iter()
            .map(|span| {
                let parent = span.parent.map(|parent| names[&parent]);
                let seconds = |time: Timestamp| time.micros() / 1_000_000;
                (&*span.name, parent, seconds(span.start), seconds(span.end))
            })
            .collect();
        let root = Some("launch nightly");
        assert_eq!(
            shown,
            [
                ("launch nightly", None, 11, 40),
                ("decide", root, 11, 11),
                ("claim", root, 12, 13),
                ("run 1", root, 13, 20),
                ("call load", Some("run 1"), 30, 30),
                ("recovery", root, 20, 20),
                ("claim", root, 20, 25),
                ("run 2", root, 25, 40),
                ("call load", Some("run 2"), 30, 30),
            ]
        );
        let error = spans[0].error.as_deref().unwrap();
        assert!(
            error.starts_with("failed: no") && !error.contains('\u{1b}'),
            "{error}"
        );
        assert_eq!(spans[8].error, None);
        assert_eq!(spans[4].error.as_deref(), Some("failed"));
    }

    #[test]
    fn a_launch_belongs_to_the_trace_of_its_caller_and_is_left_out_when_that_is_not_sampled() {
        let caller = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let of = |caller: &str| {
            spans(&ended(DecidedLaunch {
                caller_traceparent: Some(caller.parse().unwrap()),
                ..launch()
            }))
        };
        let context: TraceContext = caller.parse().unwrap();
        let sampled = of(caller);
        assert_eq!(sampled[0].parent, Some(context.span_id()));
        let is_in_trace = |span: &Span| span.context.trace_id() == context.trace_id();
        assert!(sampled.iter().all(is_in_trace));
        assert_eq!(of(&caller.replace("-01", "-00")), []);
    }
}
