//! Changes that other processes make: a command, or another host.

use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::decide::peers;
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_model::clock::Timestamp;
use campanile_store::hosts::{self, Host};
use campanile_store::{DbError, changes, package_versions, schedules};

/// How often a host looks for changes.
const CHANGE_INTERVAL: Duration = Duration::from_millis(500);

/// The service that wakes the others when another process has changed something.
#[derive(Default)]
pub(crate) struct ChangeWatcher {
    /// The counter of changes at the last look.
    counter: Option<i64>,
    /// When an operator last decided about a version, at the last look.
    decided_at: Option<Option<Timestamp>>,
}

impl ChangeWatcher {
    async fn look(&mut self, ctx: &Ctx) -> Result<(), DbError> {
        let mut tx = ctx.db.read().await?;
        peers::look(ctx, &mut tx, ctx.clock.now()).await?;
        let counter = changes::counter(&mut tx).await?;
        if self.counter == Some(counter) {
            return Ok(());
        }
        let host = hosts::with_id(&mut tx, ctx.host).await?;
        let counting = schedules::after_completion(&mut tx).await?;
        ctx.specs.note_counting_from_ends(counting);
        let decided_at = package_versions::last_decided_at(&mut tx).await?;
        drop(tx);
        if let Some(host) = host {
            follow_drain(ctx, &host).await?;
        }
        let wake = &ctx.wake;
        if self.decided_at.replace(decided_at) != Some(decided_at) {
            wake.folder_sync.notify_one();
        }
        self.counter = Some(counter);
        wake.scheduler.notify_one();
        wake.dispatcher.notify_one();
        // A run may have been asked to end, or be over.
        wake.lease_keeper.notify_one();
        Ok(())
    }
}

/// Claim nothing while the record says that this host is drained. Record when the last claim was committed.
pub(crate) async fn follow_drain(ctx: &Ctx, host: &Host) -> Result<(), DbError> {
    if host.drained_at.is_none() {
        ctx.claim_gate.open();
    } else if host.claims_ended_at.is_none() {
        ctx.claim_gate.close().await;
        let mut tx = ctx.db.write().await?;
        hosts::end_claims(&mut tx, ctx.host, ctx.clock.now()).await?;
        tx.commit().await?;
        tracing::info!(host = %ctx.name, "drained: this host claims nothing more");
    }
    Ok(())
}

impl Service for ChangeWatcher {
    const STEP: &'static str = "looking for changes";

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        // A failed look changes nothing. The services that write report the outage.
        let _ = self.look(ctx).await;
        Ok(Next::After(CHANGE_INTERVAL))
    }
}
