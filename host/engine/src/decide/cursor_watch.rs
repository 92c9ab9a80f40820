//! Schedules whose cursor is ahead of the clock: a wrong clock has decided their slots, and they stay silent until the clock
//! has passed the cursor, or an operator resets it.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service};
use crate::tell::log_spans;
use campanile_control::reports::health::{CURSOR_AHEAD, NAMED_MAX};
use campanile_control::reports::symptom::silent_until;
use campanile_model::clock::Timestamp;
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::stats;

/// How often the cursors are compared with the clock, besides the start and each step of the clock.
const INTERVAL: Duration = Duration::from_secs(60);

/// The service that reports cursors ahead of the clock.
#[derive(Default)]
pub(crate) struct CursorWatch {
    /// The schedules that were reported and are still ahead.
    reported: BTreeSet<String>,
}

impl Service for CursorWatch {
    const STEP: &'static str = "comparing cursors with the clock";

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        if ctx.clock.is_known() {
            self.report(ctx, now).await?;
        }
        Ok(Next::After(INTERVAL))
    }

    async fn woken(&mut self, ctx: &Ctx) {
        ctx.wake.cursor_watch.notified().await;
    }
}

impl CursorWatch {
    /// Logs and records each schedule once.
    async fn report(&mut self, ctx: &Ctx, now: Timestamp) -> Result {
        let mut tx = ctx.db.read().await?;
        let ahead = stats::cursors_ahead(&mut tx, now.plus(CURSOR_AHEAD), NAMED_MAX).await?;
        drop(tx);
        let news = ahead
            .iter()
            .filter(|(name, _)| !self.reported.contains(name));
        let news = news.map(|(name, cursor_at)| {
            NewEvent::new(EventKind::CursorAhead, name, silent_until(name, *cursor_at))
        });
        let news: Vec<NewEvent> = news.collect();
        if !news.is_empty() {
            let mut tx = ctx.db.write().await?;
            events::record_all(&mut tx, now, &news).await?;
            tx.commit().await?;
            for event in &news {
                log_spans::decision(Some(&event.subject), None)
                    .in_scope(|| tracing::error!("the schedule {}", event.detail));
            }
        }
        self.reported = ahead.into_iter().map(|(name, _)| name).collect();
        Ok(())
    }
}
