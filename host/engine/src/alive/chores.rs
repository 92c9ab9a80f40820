//! The chores: regular work that one host does for all of them. `campanile_store::chores` has the lease.
//!
//! ```text
//! heartbeat: renew the lease, or take it when it has ended ─▶ held until a monotonic deadline
//! chore:     is it held? ─▶ [transaction: compare the epoch, write]
//! ```
//!
//! The deadline is before the time at which another host may take the lease, as for the lease of a run. A host that passes
//! it begins no chore. A host that was suspended inside a chore finds another epoch, and changes nothing.

use crate::alive::chore_lease::Held;
use crate::alive::lease_table::held_until;
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_model::clock::Timestamp;
use campanile_store::events::{self, EventKind};
use campanile_store::{Tx, chores};

/// Returns the epoch in which this host does the chores; none while another host does them.
fn epoch(ctx: &Ctx) -> Option<i64> {
    let held = ctx.chores.held()?;
    (ctx.clock.monotonic() < held.until).then_some(held.epoch)
}

/// Whether this host does the chores now.
pub(crate) fn are_ours(ctx: &Ctx) -> bool {
    epoch(ctx).is_some()
}

/// Renew the lease, or take it when it has ended. [`note`] the result after the commit.
///
/// A host with an unknown time does not take the lease: it does not know whether the lease of the other host has ended.
pub(crate) async fn renew_or_take(ctx: &Ctx, tx: &mut Tx, now: Timestamp) -> Result<Option<Held>> {
    let lease = ctx.settings.lease;
    let lease_until = now.plus(lease);
    let until = held_until(ctx.clock.monotonic_at(now), lease);
    if let Some(held) = ctx.chores.held() {
        let is_renewed = chores::renew(tx, ctx.host, held.epoch, lease_until).await?;
        let held = Held {
            until,
            is_new: false,
            ..held
        };
        return Ok(is_renewed.then_some(held));
    }
    if !ctx.may_recover() {
        return Ok(None);
    }
    let taken = chores::take(tx, ctx.host, now, lease_until).await?;
    Ok(taken.map(|epoch| Held {
        epoch,
        until,
        is_new: true,
    }))
}

/// Note what the last heartbeat proved.
pub(crate) fn note(ctx: &Ctx, held: Option<Held>) {
    let before = ctx.chores.replace(held);
    match (before, held) {
        (_, Some(held)) if held.is_new => {
            tracing::info!(host = %ctx.name, epoch = held.epoch, "this host does the chores: retention, seals, next slots, health");
        }
        (Some(before), None) => {
            tracing::warn!(host = %ctx.name, epoch = before.epoch, "another host does the chores now");
        }
        _ => {}
    }
}

/// Begin a write transaction of a chore; none when this host does not do the chores any more.
pub(crate) async fn write(ctx: &Ctx) -> Result<Option<Tx>> {
    let Some(epoch) = epoch(ctx) else {
        return Ok(None);
    };
    fenced(ctx, epoch, ctx.db.write().await?).await
}

/// Begin a write transaction of a chore whose statements may take minutes; none when this host does not do the chores any
/// more.
pub(crate) async fn write_long(ctx: &Ctx) -> Result<Option<Tx>> {
    let Some(epoch) = epoch(ctx) else {
        return Ok(None);
    };
    fenced(ctx, epoch, ctx.db.write_long().await?).await
}

async fn fenced(ctx: &Ctx, epoch: i64, mut tx: Tx) -> Result<Option<Tx>> {
    let held = chores::fence(&mut tx, ctx.host, epoch).await?;
    Ok(held.map(|_| tx))
}

/// Record an event of a chore, unless this host does not do the chores any more.
pub(crate) async fn record_event(
    ctx: &Ctx,
    now: Timestamp,
    kind: EventKind,
    subject: &str,
    detail: &str,
) -> Result {
    if let Some(mut tx) = write(ctx).await? {
        events::record(&mut tx, now, kind, subject, detail).await?;
        tx.commit().await?;
    }
    Ok(())
}
