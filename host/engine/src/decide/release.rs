//! Between transactions 1 and 2: a queued launch is opened when its schedule's overlap policy allows it to start.
//!
//! Every host derives this from the database alone. So no queued launch is forgotten when a host dies between the end
//! of one launch and the start of the next.

use std::collections::HashMap;

use crate::ctx::Ctx;
use crate::decide::displace;
use crate::error::Result;
use campanile_control::admin::schedule_admin::ScheduleDisplacements;
use campanile_control::rules::plan;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy;
use campanile_store::launch::{self, UnfinishedLaunch};
use campanile_store::schedules;

/// Schedules per transaction. After an outage, thousands of them have a hundred queued launches each, all read while other
/// transactions are waiting.
const SCHEDULES_AT_ONCE: usize = 128;

/// Open the queued launches that may start. Return how many.
pub(crate) async fn release(ctx: &Ctx, now: Timestamp) -> Result<usize> {
    let mut opened = 0;
    for candidates in releasable(ctx, now).await?.chunks(SCHEDULES_AT_ONCE) {
        opened += release_of(ctx, candidates, now).await?;
    }
    Ok(opened)
}

/// Opens these schedules' queued launches as far as they may start, returning how many.
async fn release_of(ctx: &Ctx, candidates: &[ScheduleId], now: Timestamp) -> Result<usize> {
    let mut tx = ctx.db.write().await?;
    // A transaction that decides launches of a schedule locks its row. A host that has locked one releases its launches.
    let held = schedules::lock_available(&mut tx, candidates).await?;
    let mut of_each: HashMap<ScheduleId, Vec<UnfinishedLaunch>> = HashMap::new();
    for launch in launch::unfinished(&mut tx, &held).await? {
        of_each.entry(launch.schedule_id).or_default().push(launch);
    }
    let schedules: Vec<ScheduleId> = of_each.keys().copied().collect();
    let states = schedules::states(&mut tx, &schedules).await?;
    let revisions = states.iter().map(|state| (state.id, state.revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    let mut opened: Vec<LaunchId> = Vec::new();
    let mut displaced: Vec<ScheduleDisplacements> = Vec::new();
    for (state, spec) in states.iter().zip(&specs) {
        let unfinished = of_each.remove(&state.id).unwrap_or_default();
        if !spec.knows_policies {
            continue;
        }
        let active = plan::active(&unfinished, state.enabled, now);
        let released = policy::release(&spec.policies, active);
        opened.extend(released.open);
        let cancel_grace = spec.policies.cancel_grace();
        displaced.push((state.id, released.displacements, cancel_grace));
    }
    let displaced = displace(ctx, &mut tx, displaced.into_iter(), now).await?;
    launch::release(&mut tx, ctx.host, &opened, now).await?;
    tx.commit().await?;
    ctx.launch_log.displaced(&displaced, |id| {
        let (_, spec) = states
            .iter()
            .zip(&specs)
            .find(|(state, _)| state.id == id)?;
        Some(&spec.definition.name)
    });
    Ok(opened.len())
}

/// Returns the schedules with a queued launch that may start, or whose fire time has come.
///
/// Reads without locks: a thousand schedules may each have a hundred launches queued behind a running one.
async fn releasable(ctx: &Ctx, now: Timestamp) -> Result<Vec<ScheduleId>> {
    let mut tx = ctx.db.read().await?;
    let queues = launch::queued_schedules(&mut tx, now).await?;
    let ids: Vec<ScheduleId> = queues.iter().map(|queue| queue.id).collect();
    let mut active: HashMap<ScheduleId, usize> = HashMap::new();
    for schedule in launch::active(&mut tx, &ids).await? {
        *active.entry(schedule).or_default() += 1;
    }
    let revisions = queues.iter().map(|queue| (queue.id, queue.revision));
    let specs = ctx.specs.get_all(&mut tx, revisions).await?;
    let mut candidates = Vec::new();
    for (queue, spec) in queues.iter().zip(&specs) {
        let active = active.get(&queue.id).copied().unwrap_or(0);
        if queue.arriving > 0 || active < spec.policies.at_once_max() {
            candidates.push(queue.id);
        }
    }
    Ok(candidates)
}
