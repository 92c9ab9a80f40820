//! Remove old rows besides launches: events, answers of the API, delivered messages, alerts, bytes of artifacts, counts of
//! removed launches, sums of removed calls, periods of the rollup, days of package use, backfills, hosts.

use std::time::Duration;

use super::pass::Removed;
use crate::alive::chores;
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_model::rollup::Period;
use campanile_store::{
    DbError, Tx, alert_messages, alerts, api_answers, outbox, removed_launches, retention, rollup,
    seals, task_use,
};

/// The events, counts, hosts and artifacts of one transaction.
const BATCH: i64 = 256;
/// How long the answer to a request with an idempotency key is kept.
const ANSWERS_KEPT: Duration = Duration::from_secs(24 * 3_600);
/// The greatest difference between the clocks of two hosts: no launch that a host decided has a slot later than the host's
/// end by more than this.
const CLOCK_MARGIN: Duration = Duration::from_secs(3_600);

/// Remove old rows besides launches. Return whether there are more old events or counts. A host that does not do the chores any
/// more removes nothing.
pub(super) async fn remove_rest(ctx: &Ctx, removed: &mut Removed, now: Timestamp) -> Result<bool> {
    let limits = &ctx.settings.retention;
    if let Some(age) = limits.events {
        let before = now.minus(age);
        let remove = async |tx: &mut Tx| retention::remove_events(tx, before, BATCH).await;
        let events = batch(chores::write_long(ctx).await?, remove).await?;
        removed.events += events;
        if is_full(events) {
            return Ok(true);
        }
    }
    let before = now.minus(ANSWERS_KEPT);
    let remove = async |tx: &mut Tx| api_answers::remove_old(tx, before, BATCH).await;
    if is_full(batch(chores::write(ctx).await?, remove).await?) {
        return Ok(true);
    }
    for period in Period::ALL {
        let before = period.oldest(now);
        let remove = async |tx: &mut Tx| {
            let schedules = rollup::remove_schedules(tx, *period, before, BATCH).await?;
            let packages = rollup::remove_packages(tx, *period, before, BATCH).await?;
            Ok(schedules.max(packages))
        };
        if is_full(batch(chores::write(ctx).await?, remove).await?) {
            return Ok(true);
        }
    }
    if let Some(age) = limits.counts {
        let counts = remove_counts(ctx, now.minus(age)).await?;
        removed.counts += counts;
        let day = now.minus(age).day();
        let remove = async |tx: &mut Tx| task_use::remove_sums(tx, day, BATCH).await;
        let sums = batch(chores::write(ctx).await?, remove).await?;
        if is_full(counts as u64) || is_full(sums) {
            return Ok(true);
        }
    }
    if let Some(age) = limits.succeeded {
        let before = now.minus(age);
        // Most of the launches that these leaves cover are gone.
        let remove = async |tx: &mut Tx| seals::remove_leaves(tx, before, BATCH).await;
        if is_full(batch(chores::write(ctx).await?, remove).await?) {
            return Ok(true);
        }
        // Messages that were not delivered stay.
        let remove = async |tx: &mut Tx| outbox::remove_old(tx, before, BATCH).await;
        let messages = batch(chores::write_long(ctx).await?, remove).await?;
        removed.messages += messages;
        if is_full(messages) {
            return Ok(true);
        }
        let remove = async |tx: &mut Tx| remove_alerts(tx, before).await;
        if is_full(batch(chores::write_long(ctx).await?, remove).await?) {
            return Ok(true);
        }
    }
    if let Some(age) = limits.artifacts {
        removed.artifacts += remove_artifacts(ctx, now.minus(age), now).await?;
    }
    let Some(age) = limits.greatest_age() else {
        return Ok(false);
    };
    let before = now.minus(age);
    let remove = async |tx: &mut Tx| {
        retention::remove_package_days(tx, before.day()).await?;
        retention::remove_backfills(tx, before).await
    };
    removed.backfills += batch(chores::write_long(ctx).await?, remove).await?;
    removed.hosts += remove_hosts(ctx, before).await?;
    Ok(false)
}

/// Remove a batch in a transaction of a chore. Return how many rows; 0 without the transaction.
async fn batch(
    tx: Option<Tx>,
    remove: impl AsyncFnOnce(&mut Tx) -> Result<u64, DbError>,
) -> Result<u64> {
    let Some(mut tx) = tx else {
        return Ok(0);
    };
    let rows = remove(&mut tx).await?;
    tx.commit().await?;
    Ok(rows)
}

/// Whether there may be more rows after a batch of `rows`.
fn is_full(rows: u64) -> bool {
    rows >= BATCH.unsigned_abs()
}

/// Remove a batch of the resolved alerts, ended messages and silences from before `before`. Return the largest number of them.
async fn remove_alerts(tx: &mut Tx, before: Timestamp) -> Result<u64, DbError> {
    alert_messages::remove_old_alerts(tx, before, BATCH).await?;
    let messages = alert_messages::remove_old(tx, before, BATCH).await?;
    let alerts = alerts::remove_old(tx, before, BATCH).await?;
    let silences = alerts::remove_old_silences(tx, before, BATCH).await?;
    Ok(messages.max(alerts).max(silences))
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
