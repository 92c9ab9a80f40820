//! Claim launches in the transaction that decides them.
//!
//! Most launches are due when they are decided, and this host can run them. They are inserted as running, with their claim.
//! That is one transaction fewer than a claim afterwards, and one change of each row. A launch that cannot start now is
//! inserted as open.

use std::collections::HashMap;
use std::sync::Arc;

use crate::claim::capacity::Permit;
use crate::claim::choose::quota;
use crate::claim::shares::Ask;
use crate::ctx::Ctx;
use crate::decide::spec::Spec;
use crate::error::Result;
use crate::packages::version_check::is_unvouched;
use crate::run::starter::Claiming;
use crate::run::work::Work;
use campanile_control::rules::lateness::is_late;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_package::Package;
use campanile_store::launch::{self, ClaimedLaunch, NewClaim, NewLaunch};
use campanile_store::results::{self, LastEnds};
use campanile_store::schedules::DueSchedule;
use campanile_store::{Decision, Tx};

/// Insert decisions about the slots of `sources`, and claim those launches that this host can run now. Return their runs.
pub(crate) async fn insert<'a>(
    ctx: &Ctx,
    tx: &mut Tx,
    decisions: &[NewLaunch],
    sources: impl Iterator<Item = (&'a DueSchedule, &'a Arc<Spec>)>,
    claiming: &Claiming,
    now: Timestamp,
) -> Result<Vec<Work>> {
    let admitted = take_permits(ctx, decisions, now);
    let schedules = admitted.iter().map(|(launch, ..)| launch.schedule_id);
    let last = last_ends(tx, schedules.collect()).await?;
    let sources = sources.map(|source| (source.0.id, source));
    let sources: HashMap<ScheduleId, (&DueSchedule, &Arc<Spec>)> = sources.collect();
    let mut work: HashMap<LaunchId, Work> = HashMap::with_capacity(admitted.len());
    for (launch, package, permit) in admitted {
        let Some((due, spec)) = sources.get(&launch.schedule_id) else {
            continue;
        };
        let Some(claimed) = claimed(launch, due, last.get(&launch.schedule_id)) else {
            continue;
        };
        let run = claiming.work(claimed, Arc::clone(spec), Some(package), permit);
        work.insert(launch.id, run);
    }
    // The permits were taken after the wait for this transaction, so the runs that gave them back ended before this.
    let at = ctx.clock.now().max(now);
    let claim = |work: &Work| NewClaim {
        host: ctx.host,
        fence: work.fence(),
        at,
        lease_until: claiming.until,
        hashes: work.hashes(),
    };
    let rows = decisions.iter();
    let rows = rows.map(|launch| (launch, work.get(&launch.id).map(claim)));
    let rows: Vec<(&NewLaunch, Option<NewClaim>)> = rows.collect();
    let inserted = launch::insert_claimed(tx, &rows).await?;
    // The host that decided a slot before runs its launch.
    work.retain(|launch, _| inserted.contains(launch));
    Ok(work.into_values().collect())
}

/// Takes a permit for each launch ready to start, most urgent first and on-time ones ahead among equals, without overtaking waiting
/// launches unless allowed to.
fn take_permits<'a>(
    ctx: &Ctx,
    decisions: &'a [NewLaunch],
    now: Timestamp,
) -> Vec<(&'a NewLaunch, Arc<Package>, Permit)> {
    let is_due =
        |launch: &&NewLaunch| launch.decision == Decision::Launched && launch.fire_time <= now;
    let is_late = |launch: &NewLaunch| is_late(launch.kind, launch.fire_time, now);
    let mut due: Vec<&NewLaunch> = decisions.iter().filter(is_due).collect();
    due.sort_by_key(|launch| (-launch.priority, is_late(launch), launch.fire_time));
    let mut admitted = Vec::with_capacity(due.len());
    for launch in due {
        let late = is_late(launch);
        if !ctx.capacity.may_overtake(late) {
            continue;
        }
        // The dispatcher counts how many runs a group has on all hosts. A host with the labels claims what this one may not.
        let may_run =
            launch.group_name.is_none() && ctx.settings.labels.satisfy(launch.run_on.as_ref());
        // The dispatcher leaves a version to hosts with its file.
        let may_begin = |package: &Arc<Package>| {
            let digest = launch.digest.as_ref();
            may_run && digest.is_none_or(|digest| !is_unvouched(ctx, package, digest))
        };
        let package = ctx.packages.get(&launch.package);
        let Some(package) = package.filter(may_begin) else {
            continue;
        };
        let ask = Ask {
            package: &launch.package,
            quota: quota(ctx, Some(&package)),
            proposed: launch.proposed,
            late,
        };
        match ctx.capacity.take(&ask, now) {
            Ok(permit) => admitted.push((launch, package, permit)),
            Err(_) => {
                ctx.capacity.note_full(now);
                ctx.capacity.note_waiting(late);
            }
        }
    }
    admitted
}

async fn last_ends(
    tx: &mut Tx,
    mut schedules: Vec<ScheduleId>,
) -> Result<HashMap<ScheduleId, LastEnds>> {
    schedules.sort_unstable();
    schedules.dedup();
    let ends = results::last(tx, &schedules).await?;
    Ok(ends.into_iter().map(|end| (end.schedule_id, end)).collect())
}

/// Returns `launch` as a claimed launch; none when it has no version to run.
fn claimed(
    launch: &NewLaunch,
    due: &DueSchedule,
    last: Option<&LastEnds>,
) -> Option<ClaimedLaunch> {
    Some(ClaimedLaunch {
        launch_id: launch.id,
        schedule_id: launch.schedule_id,
        schedule_revision: launch.schedule_revision,
        kind: launch.kind,
        scheduled_time: launch.scheduled_time,
        utc_offset: launch.utc_offset,
        package: launch.package.clone(),
        digest: launch.digest.clone()?,
        version_decision: due.version_decision,
        context: launch.context.clone(),
        args: launch.args.clone(),
        // Only an operator's request has a caller.
        caller_traceparent: None,
        interval_start: launch.interval_start,
        fire_time: launch.fire_time,
        proposed: launch.proposed,
        group_name: None,
        run_on: launch.run_on.clone(),
        begins_run: true,
        attempts: 0,
        recoveries: 0,
        recovered_at: None,
        last_result: last.and_then(|last| last.result.clone()),
        last_failure: last.and_then(|last| last.failure.clone()),
    })
}
