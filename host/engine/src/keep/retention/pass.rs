//! One pass over the record: its position, its cache of schedules, and its pauses.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use super::decision::{Rules, ScheduleRule};
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_control::rules::leaf::SealedLaunches;
use campanile_control::settings::RetentionLimits;
use campanile_control::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchId, ScheduleId};
use campanile_schedule::policy::{Policies, Policy};
use campanile_store::retention::{self, NewestSlots, OldLaunch, SchedulePolicies};
use campanile_store::{DbError, Tx, seals};

/// The pause after a page, as a multiple of the time of its statements.
const PAUSE: u32 = 4;
/// The same while the record is behind its ages by [`BEHIND`], or larger than it may be, and no launch is late.
const PAUSE_BEHIND: u32 = 1;
/// The same while launches are late and the record is not behind; the pause is at least [`PAUSE_LATE_MIN`].
const PAUSE_LATE: u32 = 16;
const PAUSE_LATE_MIN: Duration = Duration::from_millis(500);
pub(super) const BEHIND: Duration = Duration::from_secs(600);
/// The time from one pass to the next, at least; less when an age is shorter than ten times that.
pub(super) const INTERVAL: Duration = Duration::from_secs(60);
/// The same while the record is larger than it may be.
const INTERVAL_OVER_SIZE: Duration = Duration::from_secs(10);
/// The time from one pass to the next, as a multiple of the time in which the pass read rows that stay.
const INTERVAL_PER_READ: u32 = 10;
/// An id before that of any launch.
pub(super) const FIRST: LaunchId = LaunchId::FIRST;
/// The newest launches by which health reports a schedule as failing; see `audit.rs`.
const OUTCOMES_MIN: u32 = 3;
/// The schedules whose newest launches are remembered during a pass.
const SCHEDULES_MAX: usize = 100_000;

/// The numbers of rows that a pass removed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Removed {
    pub launches: usize,
    /// Launches of which the calls were removed, and that stay.
    pub calls: usize,
    pub events: u64,
    /// Messages of the outbox that were delivered or discarded.
    pub messages: u64,
    pub backfills: u64,
    pub hosts: usize,
    /// Artifacts whose bytes were removed.
    pub artifacts: usize,
    /// Rows with counts of removed launches.
    pub counts: usize,
}

/// One pass over the record.
pub(super) struct Pass {
    pub(super) stage: Stage,
    /// How many launches are still to be removed whatever their age, because the record is too large.
    pub(super) excess: usize,
    /// Whether the record was too large when the pass began.
    pub(super) is_over_size: bool,
    /// The schedules that were looked up.
    pub(super) schedules: HashMap<ScheduleId, ScheduleRule>,
    /// How long the statements of the present step took, without the wait for SQLite's writer.
    pub(super) worked: Duration,
    /// The time in which the pass read rows that stay.
    pub(super) read: Duration,
    pub(super) is_behind: bool,
    pub(super) removed: Removed,
}

/// The next step of a pass. A page begins after the row that `after` names.
pub(super) enum Stage {
    Calls { after: LaunchId },
    Launches { after: LaunchId },
    Schedules(ScheduleCursor),
    Rest,
    Done,
}

/// The place of a pass among the schedules that have an age of their own.
pub(super) struct ScheduleCursor {
    /// The last schedule that was read.
    pub(super) after: ScheduleId,
    pub(super) is_last_page: bool,
    /// Those with an age of their own. The last one is next.
    pub(super) todo: Vec<ScheduleId>,
    /// The last launch of the next one that was read, after its slot.
    pub(super) launch: (Timestamp, LaunchId),
}

impl ScheduleCursor {
    pub(super) fn first() -> ScheduleCursor {
        ScheduleCursor {
            after: ScheduleId::FIRST,
            is_last_page: false,
            todo: Vec::new(),
            launch: (Timestamp::FIRST, FIRST),
        }
    }
}

impl Pass {
    pub(super) fn new(excess: usize) -> Pass {
        Pass {
            stage: Stage::Calls { after: FIRST },
            excess,
            is_over_size: excess > 0,
            schedules: HashMap::new(),
            worked: Duration::ZERO,
            read: Duration::ZERO,
            is_behind: false,
            removed: Removed::default(),
        }
    }

    /// Returns the launches of a page to be removed.
    pub(super) async fn old(
        &mut self,
        ctx: &Ctx,
        tx: &mut Tx,
        page: &[OldLaunch],
        now: Timestamp,
    ) -> Result<Vec<OldLaunch>> {
        let limits = &ctx.settings.retention;
        let over_size = self.excess > 0;
        let rules = Rules {
            limits,
            now,
            displacing: HashSet::from_iter(retention::displacing(tx).await?),
            backfills: HashSet::from_iter(retention::running_backfills(tx).await?),
            over_size,
        };
        let by_schedule = matches!(self.stage, Stage::Schedules(_));
        let candidates = page.iter();
        let candidates = candidates.filter(|launch| by_schedule || rules.is_candidate(launch));
        let mut candidates: Vec<&OldLaunch> = candidates.collect();
        if !candidates.is_empty() {
            // The rollup counts launches when they're sealed.
            let sealed = SealedLaunches::new(seals::newest(tx).await?.as_ref(), now);
            candidates.retain(|launch| sealed.have(launch.id, launch.decided_at));
        }
        let schedules: HashSet<ScheduleId> =
            candidates.iter().map(|launch| launch.schedule_id).collect();
        self.look_up(ctx, tx, &Vec::from_iter(schedules)).await?;
        let old = candidates.into_iter().filter(|launch| {
            let rule = self.schedules.get(&launch.schedule_id);
            rule.is_some_and(|rule| rules.may_remove(launch, rule))
        });
        let old: Vec<OldLaunch> = old.cloned().collect();
        self.is_behind = over_size || old.iter().any(|launch| rules.is_behind(launch, BEHIND));
        Ok(old)
    }

    /// Read the ages and the kept launches of schedules, unless they are cached.
    pub(super) async fn look_up(
        &mut self,
        ctx: &Ctx,
        tx: &mut Tx,
        schedules: &[ScheduleId],
    ) -> Result {
        if self.schedules.len() + schedules.len() > SCHEDULES_MAX {
            self.schedules.clear();
        }
        let unknown = schedules.iter();
        let unknown = unknown.filter(|schedule| !self.schedules.contains_key(schedule));
        let unknown: Vec<ScheduleId> = unknown.copied().collect();
        for row in retention::policies_of(tx, &unknown).await? {
            let rule = ScheduleRule {
                own_age: own_age(ctx, &row),
                newest: match row.deleted_at {
                    Some(_) => None,
                    None => Some(newest(ctx, tx, &row).await?),
                },
            };
            self.schedules.insert(row.id, rule);
        }
        Ok(())
    }

    /// Count the time of a page of `rows`, by the share of the rows that stay.
    pub(super) fn count_read(&mut self, took: Duration, rows: usize, removed: usize) {
        self.worked += took;
        let stayed = rows.saturating_sub(removed) as f64 / rows.max(1) as f64;
        self.read += took.mul_f64(stayed);
    }

    /// Returns how long to wait after a step.
    pub(super) fn pause(&self, is_late: bool) -> Duration {
        let worked = self.worked;
        match (is_late, self.is_behind) {
            (true, false) => (worked * PAUSE_LATE).max(PAUSE_LATE_MIN),
            (false, true) => worked * PAUSE_BEHIND,
            (true, true) | (false, false) => worked * PAUSE,
        }
    }

    /// Returns the time from the end of this pass to the next one.
    pub(super) fn interval(&self, limits: &RetentionLimits) -> Duration {
        let least = if self.is_over_size {
            INTERVAL_OVER_SIZE
        } else {
            interval(limits)
        };
        least.max(self.read * INTERVAL_PER_READ)
    }

    pub(super) fn report(&self) {
        if self.removed == Removed::default() {
            return;
        }
        tracing::info!(
            launches = self.removed.launches,
            calls = self.removed.calls,
            events = self.removed.events,
            messages = self.removed.messages,
            artifacts = self.removed.artifacts,
            counts = self.removed.counts,
            "removed what is older than the ages of [retention]"
        );
    }
}

/// Returns the least time from one pass to the next.
pub(super) fn interval(limits: &RetentionLimits) -> Duration {
    let least = limits.least_age().into_iter().chain(limits.logs).min();
    least.map_or(INTERVAL, |age| (age / 10).min(INTERVAL))
}

/// Returns from which slots on the launches of a schedule stay.
async fn newest(ctx: &Ctx, tx: &mut Tx, row: &SchedulePolicies) -> Result<NewestSlots, DbError> {
    // Another version stored the policies: it may need all launches.
    let Some(policies) = policies_of(row) else {
        return Ok(NewestSlots::default());
    };
    let keep = ctx.settings.retention.keep_last.max(1);
    let counted = policies.pause_on_failure.unwrap_or_default();
    let outcomes = keep.max(counted).max(OUTCOMES_MIN);
    retention::newest_slots(tx, row.id, keep.into(), outcomes.into()).await
}
fn policies_of(row: &SchedulePolicies) -> Option<Policies> {
    stored_json(Some(&row.policies))
}

/// Returns the age of the schedule's own policy; none without it.
///
/// It is never shorter than what recovery and catch-up look back.
pub(super) fn own_age(ctx: &Ctx, row: &SchedulePolicies) -> Option<Duration> {
    // Most schedules have no such policy, and need not be parsed.
    let policies = row.policies.contains(Policy::Retention.as_str());
    let policies = policies.then(|| policies_of(row)).flatten()?;
    let window = policies.catchup_window;
    let window = window.unwrap_or(ctx.settings.late.catchup_window);
    let least = window.max(ctx.settings.recovery.age_max);
    policies.retention.map(|age| age.max(least))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pass_pauses_longer_while_launches_are_late_and_shorter_when_it_is_behind() {
        let worked = Duration::from_millis(100);
        for (is_late, is_behind, pause_ms) in [
            (false, false, 400),
            (false, true, 100),
            (true, false, 1_600),
            (true, true, 400),
        ] {
            let mut pass = Pass::new(0);
            pass.is_behind = is_behind;
            pass.worked = worked;
            let pause = pass.pause(is_late);
            assert_eq!(pause, Duration::from_millis(pause_ms));
        }
        let mut pass = Pass::new(0);
        pass.worked = Duration::from_micros(1);
        assert_eq!(pass.pause(true), PAUSE_LATE_MIN);
    }

    #[test]
    fn the_next_pass_waits_for_what_it_took_to_read_rows_that_stay() {
        let limits = RetentionLimits::FOR_EVER;
        let mut pass = Pass::new(0);
        assert_eq!(pass.interval(&limits), INTERVAL);
        pass.count_read(Duration::from_secs(100), 10, 9);
        assert_eq!(pass.interval(&limits), Duration::from_secs(100));
        let over_size = Pass::new(1);
        assert_eq!(over_size.interval(&limits), INTERVAL_OVER_SIZE);
        let short = RetentionLimits {
            logs: Some(Duration::from_secs(60)),
            ..limits
        };
        assert_eq!(Pass::new(0).interval(&short), Duration::from_secs(6));
    }
}
