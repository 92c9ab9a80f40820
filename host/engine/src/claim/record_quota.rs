//! The record quota of packages in the database: what they use of it, and what happens when it is used up.

use std::collections::HashMap;

use crate::claim::choose::quota;
use crate::ctx::Ctx;
use crate::error::Result;
use crate::tell::log_spans;
use campanile_control::admin::schedule_admin::pause_text;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::events::{self, EventKind};
use campanile_store::launch::NewLaunch;
use campanile_store::schedules::{self, DueSchedule, Pause};
use campanile_store::{Origin, Tx, changes, package_record};

/// The bytes that count for the rows of one launch of a schedule that its package proposed.
///
/// Without them, a package that proposes 256 schedules of `every = "1s"` adds 22 million launches a day within its quota.
const PROPOSED_LAUNCH_BYTES: u64 = 1 << 10;
/// The author of a pause because of the quota, as it is recorded.
const PAUSER: &str = "quota";

/// Pauses the schedules among `due` whose package proposed them and has used up its quota of today, until midnight UTC.
/// Returns the others.
pub(crate) async fn pause_beyond_quota(
    ctx: &Ctx,
    tx: &mut Tx,
    due: Vec<DueSchedule>,
    now: Timestamp,
) -> Result<Vec<DueSchedule>> {
    let mut within = Vec::with_capacity(due.len());
    for due in due {
        let checked = match due.origin {
            Origin::Package => ctx.record_use.check(&due.package, quota_of(ctx, &due), now),
            _ => Ok(()),
        };
        match checked {
            Ok(()) => within.push(due),
            Err(why) => pause(tx, due.id, &why, now).await?,
        }
    }
    Ok(within)
}

async fn pause(tx: &mut Tx, id: ScheduleId, why: &str, now: Timestamp) -> Result {
    let pause = Pause {
        by: PAUSER,
        note: Some(why),
        until: Some(now.next_day()),
    };
    if schedules::pause(tx, id, pause, now).await?
        && let Some(name) = schedules::name(tx, id).await?
    {
        log_spans::decision(Some(&name), None)
            .in_scope(|| tracing::warn!(why, "paused until midnight UTC"));
        let detail = pause_text(pause);
        changes::record(tx, now, EventKind::SchedulePaused, &name, &detail).await?;
    }
    Ok(())
}

/// Counts the launches of schedules proposed by packages.
pub(crate) fn count_proposed(
    ctx: &Ctx,
    due: &[DueSchedule],
    decided: &[NewLaunch],
    now: Timestamp,
) {
    let proposed = due.iter().filter(|due| due.origin == Origin::Package);
    let of_each: HashMap<ScheduleId, &DueSchedule> = proposed.map(|due| (due.id, due)).collect();
    let decided = decided.iter().filter(|launch| launch.proposed);
    for due in decided.filter_map(|launch| of_each.get(&launch.schedule_id)) {
        let (package, quota) = (&due.package, quota_of(ctx, due));
        // When the quota is used up, the next decision pauses the schedule.
        let _ = ctx
            .record_use
            .add(package, quota, PROPOSED_LAUNCH_BYTES, now);
    }
}

fn quota_of(ctx: &Ctx, due: &DueSchedule) -> u64 {
    let package = ctx.packages.get(&due.package);
    quota(ctx, package.as_deref()).record_bytes_per_day
}

/// Adds this host's due counts to the table `package_record`, and records which packages have used up their
/// quota.
///
/// An error is logged and not returned, because the decisions and ends that were counted are committed already. The counts
/// stay due.
pub(crate) async fn write(ctx: &Ctx, now: Timestamp) {
    let written = try_write(ctx, now).await;
    ctx.trouble.note("recording what packages use", &written);
}

async fn try_write(ctx: &Ctx, now: Timestamp) -> Result {
    let due = ctx.record_use.due(now);
    if due.is_empty() {
        return Ok(());
    }
    let mut tx = ctx.db.write().await?;
    let sums = package_record::add(&mut tx, &due).await?;
    for exceeded in due.iter().filter(|used| used.exceeded) {
        let (package, day) = (&exceeded.package, exceeded.day);
        if package_record::mark_exceeded(&mut tx, package, day, now).await? {
            let detail = "its quota of today is used up: its launches fail until midnight UTC";
            events::record(&mut tx, now, EventKind::QuotaExceeded, package, detail).await?;
            tracing::warn!(package, "the package has used up its record quota of today");
        }
    }
    tx.commit().await?;
    ctx.record_use
        .written(&due, &sums.into_iter().collect(), now);
    Ok(())
}
