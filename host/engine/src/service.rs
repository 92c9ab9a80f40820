//! The loop of every service: wait, do one step, log a failure, until the host stops.

use std::time::Duration;

use tokio::sync::watch;
use tracing::Instrument as _;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::{EngineError, Result};
use crate::tell::log_spans;
use campanile_model::clock::Timestamp;
use campanile_sandbox::StopSignal;
use campanile_store::DbError;
use campanile_store::events::{self, EventKind};

/// The pause after a failed step before it is tried again.
pub(crate) const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// When a service does its next step, unless something wakes it before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Next {
    AtOnce,
    After(Duration),
    /// At this time of `ctx.clock`, which follows the clock of the database.
    At(Timestamp),
    WhenWoken,
}

/// One loop of a serving host.
///
/// Errors never end a service. They're logged once per [trouble](crate::alive::trouble), and the step is retried.
pub(crate) trait Service: Sized + Send {
    /// The name of the step in log lines about failures, such as "claiming launches".
    const STEP: &'static str;
    /// Whether a stop interrupts a step. Otherwise the host waits for the step to end.
    const IS_INTERRUPTIBLE: bool = false;

    /// When the first step is due.
    fn first(_ctx: &Ctx) -> Next {
        Next::AtOnce
    }

    /// Does what is due at `now`.
    fn tick(
        &mut self,
        ctx: &SharedCtx,
        now: Timestamp,
    ) -> impl Future<Output = Result<Next>> + Send;

    /// When to try again after `error`.
    fn after_error(_error: &EngineError) -> Next {
        Next::After(RETRY_PAUSE)
    }

    /// Waits until something wakes the service before its time.
    ///
    /// The future may be dropped before it is ready, and the function called again: no wake may be lost by that.
    fn woken(&mut self, _ctx: &Ctx) -> impl Future<Output = ()> + Send {
        std::future::pending()
    }

    /// Runs until `stop` holds true. Returns the service, so that the caller drops what it holds, such as a lock.
    fn run(
        mut self,
        ctx: SharedCtx,
        mut stop: watch::Receiver<bool>,
    ) -> impl Future<Output = Self> + Send {
        async move {
            let mut next = Self::first(&ctx);
            loop {
                tokio::select! {
                    // `biased`: a service that is always due must end at the stop too.
                    biased;
                    _ = stop.wait_for(|stop| *stop) => return self,
                    () = wait_until_due(&ctx, next) => {}
                    () = self.woken(&ctx) => {}
                }
                let span = log_spans::tick(Self::STEP, &ctx.name);
                let step = self.tick(&ctx, ctx.clock.now());
                let result = tokio::select! {
                    biased;
                    _ = stop.wait_for(|stop| *stop), if Self::IS_INTERRUPTIBLE => return self,
                    result = step.instrument(span.clone()) => result,
                };
                span.in_scope(|| ctx.trouble.note(Self::STEP, &result));
                next = result.unwrap_or_else(|error| Self::after_error(&error));
            }
        }
    }
}

async fn wait_until_due(ctx: &Ctx, next: Next) {
    match next {
        Next::AtOnce => {}
        Next::After(pause) => tokio::time::sleep(pause).await,
        Next::At(time) => ctx.clock.sleep_until(time).await,
        Next::WhenWoken => std::future::pending().await,
    }
}

/// Retries `attempt` while its errors may pass and this host has the run.
///
/// Returns `None` when this host has lost the run, and after an error that does not pass. Then the run's lease expires,
/// and recovery takes the run.
pub(crate) async fn retry_while_tracked<T, F>(
    ctx: &Ctx,
    stop: &StopSignal,
    attempt: impl Fn() -> F,
) -> Option<T>
where
    F: Future<Output = Result<T>>,
{
    loop {
        let tried = attempt().await;
        ctx.trouble
            .note("reading or recording the tasks of a run", &tried);
        match tried {
            Ok(value) => return Some(value),
            Err(error) => {
                if !error.may_pass() {
                    return None;
                }
                tokio::select! {
                    () = stop.dropped() => return None,
                    () = tokio::time::sleep(RETRY_PAUSE) => {}
                }
            }
        }
    }
}

/// Begins a write transaction, records an event about `subject` in it, and commits it.
pub(crate) async fn record_event(
    ctx: &Ctx,
    now: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result {
    let mut tx = ctx.db.write().await?;
    events::record(&mut tx, now, kind, subject, detail).await?;
    Ok(tx.commit().await?)
}

/// Gives up on a database that does not answer within `limit`.
pub(crate) async fn within<T>(limit: Duration, step: impl Future<Output = Result<T>>) -> Result<T> {
    let no_answer = |_| DbError::Unavailable(format!("no answer in {:.1} s", limit.as_secs_f64()));
    tokio::time::timeout(limit, step).await.map_err(no_answer)?
}
