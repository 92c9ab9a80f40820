//! Traces: send a trace of each launch that this host ended to a collector of OpenTelemetry.
//!
//! ```text
//! end on record ─▶ queue of ids (bounded) ─▶ read the record ─▶ spans (pure) ─▶ request ─▶ collector
//! ```
//!
//! The path of a launch adds an id to a queue, and waits for nothing. A trace is made from the record, so it has the runs that
//! other hosts have lost too. Traces are no part of the record: a host that dies loses those in its queue.

mod otlp;
pub(crate) mod queue;
mod spans;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_control::traces_endpoint::TracesEndpoint;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, MessageId};
use campanile_model::text::printable_line;
use campanile_sandbox::{
    Delivered, DeliveryCall, OutboxMessage, Secrets, StopSignal, deliver, grants_to,
};
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::{Db, runs, task_runs};
use spans::{EndedLaunch, Span, spans};

/// The longest time of one request.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// The pause after a failed request, unless the collector asks for another.
const RETRY_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause that a collector may ask for.
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// How long a stopping host sends the traces that wait.
const LAST_WAIT: Duration = Duration::from_secs(5);
/// The name under which the permits of these requests are counted.
const SENDER: &str = "traces";

/// Notes launches that have ended on record. Without a collector, nothing is noted.
pub(crate) fn note_ended(ctx: &Ctx, launches: impl IntoIterator<Item = LaunchId>) {
    if ctx.settings.traces.is_some() {
        ctx.traces.add(launches);
    }
}

/// The service that sends traces.
#[derive(Default)]
pub(crate) struct TraceExport {
    /// Whether the last request failed, which is logged once.
    is_failing: bool,
}

/// What became of one batch.
enum Exported {
    /// No launch waits.
    Nothing,
    /// The traces are sent, or will never be.
    Done,
    /// The traces wait again, at least for this long.
    Waiting(Duration),
}

impl Service for TraceExport {
    const STEP: &'static str = "reading the traces of launches";
    const IS_INTERRUPTIBLE: bool = true;

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        Ok(match self.export(ctx).await? {
            Exported::Nothing => Next::WhenWoken,
            Exported::Done => Next::AtOnce,
            Exported::Waiting(pause) => {
                // The end of a launch must not end the pause.
                tokio::time::sleep(pause).await;
                Next::AtOnce
            }
        })
    }

    async fn woken(&mut self, ctx: &Ctx) {
        ctx.traces.wake.notified().await;
    }
}

impl TraceExport {
    /// Sends the traces of one batch.
    async fn export(&mut self, ctx: &Ctx) -> Result<Exported> {
        let Some(endpoint) = &ctx.settings.traces else {
            return Ok(Exported::Nothing);
        };
        let Some(batch) = ctx.traces.take() else {
            return Ok(Exported::Nothing);
        };
        let spans = read(&ctx.db, &batch.launches).await?;
        if spans.is_empty() {
            batch.finish();
            return Ok(Exported::Done);
        }
        Ok(match send(ctx, endpoint, &spans).await {
            Answer::Accepted => {
                ctx.metrics.traces_exported.inc_by(batch.finish());
                if mem::take(&mut self.is_failing) {
                    tracing::info!(%endpoint, "the collector accepts traces again");
                }
                Exported::Done
            }
            Answer::Refused(why) => {
                batch.give_up();
                self.report(endpoint, &format!("{why}; they are dropped"));
                Exported::Done
            }
            Answer::Failed(why, pause) => {
                self.report(endpoint, &format!("{why}; they are sent again"));
                Exported::Waiting(pause.unwrap_or(RETRY_PAUSE).min(PAUSE_MAX))
            }
        })
    }

    /// Logs the first of several failures.
    fn report(&mut self, endpoint: &TracesEndpoint, why: &str) {
        if !mem::replace(&mut self.is_failing, true) {
            tracing::warn!(%endpoint, why, "the collector did not accept traces");
        }
    }
}

/// Sends the traces that wait, as far as the collector accepts them in time. Returns how many launches still wait.
pub(crate) async fn export_waiting(ctx: &Ctx) -> usize {
    let mut export = TraceExport::default();
    let sending = async { while let Ok(Exported::Done) = export.export(ctx).await {} };
    // After a time-out, the returned number includes the launches that were not sent.
    let _ = tokio::time::timeout(LAST_WAIT, sending).await;
    ctx.traces.len()
}

/// Reads the spans of ended launches.
async fn read(db: &Db, launches: &[LaunchId]) -> Result<Vec<Span>> {
    let mut tx = db.read().await?;
    let ended = history::ended(&mut tx, launches).await?;
    let mut runs = runs::of_launches(&mut tx, launches).await?;
    let calls = task_runs::traced(&mut tx, launches).await?;
    drop(tx);
    let whole = |decided: DecidedLaunch| EndedLaunch {
        decided,
        runs: Vec::new(),
        calls: Vec::new(),
    };
    let ended = ended.into_iter().map(|it| (it.launch.id, whole(it)));
    let mut ended: BTreeMap<LaunchId, EndedLaunch> = ended.collect();
    runs.sort_unstable_by_key(|run| run.id);
    for run in runs {
        if let Some(ended) = ended.get_mut(&run.launch_id) {
            ended.runs.push(run);
        }
    }
    for call in calls {
        if let Some(ended) = ended.get_mut(&call.run.launch()) {
            ended.calls.push(call);
        }
    }
    Ok(ended.values().flat_map(spans).collect())
}

/// What a collector answered.
enum Answer {
    Accepted,
    /// It will never accept them.
    Refused(String),
    /// It may accept them later, perhaps after the pause that it asks for.
    Failed(String, Option<Duration>),
}

async fn send(ctx: &Ctx, endpoint: &TracesEndpoint, spans: &[Span]) -> Answer {
    let url = endpoint.url();
    // The operator chose the address, so it may be a private one.
    let grants = match grants_to(&url, true) {
        Ok(grants) => grants,
        Err(what) => return Answer::Refused(format!("its address {what}")),
    };
    let now = ctx.clock.now();
    let message = OutboxMessage {
        id: MessageId::of_alerts(now),
        method: "POST".to_owned(),
        url,
        headers: vec![("content-type".to_owned(), "application/json".to_owned())],
        body: otlp::request(spans, &ctx.name).into_bytes(),
    };
    let call = DeliveryCall {
        package: SENDER.to_owned(),
        grants: Arc::new(grants),
        secrets: Secrets::default(),
        also_signing: Vec::new(),
        now,
        wait_max: WAIT_MAX,
        stop: StopSignal::default(),
        traceparent: None,
    };
    match deliver(&message, call).await {
        Delivered::Answered { status, .. } if (200..300).contains(&status) => Answer::Accepted,
        // The protocol names these as worth another try.
        Delivered::Answered {
            status: status @ (429 | 502 | 503 | 504),
            retry_after,
            ..
        } => Answer::Failed(format!("it answered {status}"), retry_after),
        Delivered::Answered { status, text, .. } => {
            Answer::Refused(format!("it answered {status} {}", printable_line(&text)))
        }
        Delivered::Failed(why) => Answer::Failed(why, None),
    }
}
