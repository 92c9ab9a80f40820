//! Remove old rows besides launches: events, answers of the API, delivered messages, alerts, bytes of artifacts, counts of
//! removed launches, sums of removed calls, days of package use, backfills, hosts.

use std::time::Duration;

use super::pass::Removed;
use crate::chores;
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::{
    alert_messages, alerts, api_answers, outbox, removed_launches, retention, seals, task_use,
};

/// The events, counts, hosts and artifacts of one transaction.
const BATCH: i64 = 256;
/// How long the answer to a request with an idempotency key is kept.
const ANSWERS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// A host decides no launch whose slot is later than the host's end by more: the difference of two clocks.
const CLOCK_MARGIN: Duration = Duration::from_secs(3_600);

/// Remove old rows besides launches. Return whether there are more old events or counts. A host that does not do the chores any
/// more removes nothing.
pub(super) async fn remove_rest(ctx: &Ctx, removed: &mut Removed, now: Timestamp) -> Result<bool> {
    let limits = &ctx.settings.retention;
    if let Some(age) = limits.events {
        let Some(mut tx) = chores::write_long(ctx).await? else {
            return Ok(false);
        };
        let events = retention::remove_events(&mut tx, now.minus(age), BATCH).await?;
        tx.commit().await?;
        removed.events += events;
        if events >= BATCH.unsigned_abs() {
            return Ok(true);
        }
    }
    let Some(mut tx) = chores::write(ctx).await? else {
        return Ok(false);
    };
    let answers = api_answers::remove_old(&mut tx, now.minus(ANSWERS_KEPT), BATCH).await?;
    tx.commit().await?;
    if answers >= BATCH.unsigned_abs() {
        return Ok(true);
    }
    if let Some(age) = limits.counts {
        let counts = remove_counts(ctx, now.minus(age)).await?;
        removed.counts += counts;
        let sums = remove_sums(ctx, now.minus(age)).await?;
        if counts as i64 >= BATCH || sums >= BATCH.unsigned_abs() {
            return Ok(true);
        }
    }
    // Most of the launches that these leaves cover are gone.
    if let Some(age) = limits.succeeded {
        let Some(mut tx) = chores::write(ctx).await? else {
            return Ok(false);
        };
        let leaves = seals::remove_leaves(&mut tx, now.minus(age), BATCH).await?;
        tx.commit().await?;
        if leaves >= BATCH.unsigned_abs() {
            return Ok(true);
        }
    }
    // Those that were not delivered stay.
    if let Some(age) = limits.succeeded {
        let Some(mut tx) = chores::write_long(ctx).await? else {
            return Ok(false);
        };
        let messages = outbox::remove_old(&mut tx, now.minus(age), BATCH).await?;
        tx.commit().await?;
        removed.messages += messages;
        if messages >= BATCH.unsigned_abs() {
            return Ok(true);
        }
    }
    if let Some(age) = limits.succeeded
        && remove_alerts(ctx, now.minus(age)).await?
    {
        return Ok(true);
    }
    if let Some(age) = limits.artifacts {
        removed.artifacts += remove_artifacts(ctx, now.minus(age), now).await?;
    }
    let Some(age) = limits.greatest_age() else {
        return Ok(false);
    };
    let before = now.minus(age);
    let Some(mut tx) = chores::write_long(ctx).await? else {
        return Ok(false);
    };
    retention::remove_package_days(&mut tx, before.day()).await?;
    removed.backfills += retention::remove_backfills(&mut tx, before).await?;
    tx.commit().await?;
    removed.hosts += remove_hosts(ctx, before).await?;
    Ok(false)
}

/// Remove a batch of the resolved alerts, ended messages and silences from before `before`. Return whether there may be
/// more.
async fn remove_alerts(ctx: &Ctx, before: Timestamp) -> Result<bool> {
    let Some(mut tx) = chores::write_long(ctx).await? else {
        return Ok(false);
    };
    alert_messages::remove_old_alerts(&mut tx, before, BATCH).await?;
    let messages = alert_messages::remove_old(&mut tx, before, BATCH).await?;
    let alerts = alerts::remove_old(&mut tx, before, BATCH).await?;
    let silences = alerts::remove_old_silences(&mut tx, before, BATCH).await?;
    tx.commit().await?;
    Ok(messages.max(alerts).max(silences) >= BATCH.unsigned_abs())
}

/// Remove a batch of the counts of launches that were decided before `before`, for whole days. Return how many.
async fn remove_counts(ctx: &Ctx, before: Timestamp) -> Result<usize> {
    let Some(mut tx) = chores::write(ctx).await? else {
        return Ok(0);
    };
    if !retention::lock(&mut tx).await? {
        return Ok(0);
    }
    let counts = removed_launches::remove_counts(&mut tx, before.day(), BATCH).await?;
    tx.commit().await?;
    Ok(counts)
}

/// Remove a batch of the sums of calls of launches that were decided before `before`, for whole days. Return how many.
async fn remove_sums(ctx: &Ctx, before: Timestamp) -> Result<u64> {
    let Some(mut tx) = chores::write(ctx).await? else {
        return Ok(0);
    };
    let sums = task_use::remove_sums(&mut tx, before.day(), BATCH).await?;
    tx.commit().await?;
    Ok(sums)
}

/// Remove the bytes of artifacts that nothing has needed since `since`. Each transaction removes one: it may be large.
async fn remove_artifacts(ctx: &Ctx, since: Timestamp, now: Timestamp) -> Result<usize> {
    let unused = retention::unused_artifacts(&mut ctx.db.read_long().await?, since, BATCH).await?;
    let mut removed = 0;
    for digest in unused {
        let Some(mut tx) = chores::write_long(ctx).await? else {
            break;
        };
        removed += usize::from(retention::remove_bytes(&mut tx, &digest, now).await?);
        tx.commit().await?;
    }
    Ok(removed)
}

async fn remove_hosts(ctx: &Ctx, before: Timestamp) -> Result<usize> {
    let until = LaunchId::first_at(before.plus(CLOCK_MARGIN));
    let hosts =
        retention::unused_hosts(&mut ctx.db.read_long().await?, before, until, BATCH).await?;
    if hosts.is_empty() {
        return Ok(0);
    }
    let Some(mut tx) = chores::write_long(ctx).await? else {
        return Ok(0);
    };
    retention::remove_hosts(&mut tx, &hosts).await?;
    tx.commit().await?;
    Ok(hosts.len())
}
