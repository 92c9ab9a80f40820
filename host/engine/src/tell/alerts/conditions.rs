//! Whether the condition of a rule holds for a schedule. Pure.
//!
//! A condition follows from the record alone, and not from what a host saw before. So every host that looks comes to the same
//! answer, also after a restart.

use std::time::Duration;

use campanile_control::admin::schedule_admin::PAUSED;
use campanile_control::reports::symptom::Symptom;
use campanile_control::rules::alert_rule::{Condition, USUAL_LEAST, USUAL_TIMES};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_schedule::policy::DropReason;
use campanile_store::LaunchStatus;
use campanile_store::alert_facts::{WatchedLaunch, WatchedSchedule};

/// What is known of a schedule.
pub(crate) struct ScheduleFacts<'f> {
    pub(crate) schedule: &'f WatchedSchedule,
    pub(crate) expect_within: Option<Duration>,
    /// The newest launches that were not skipped, newest slot first.
    pub(crate) launches: &'f [WatchedLaunch],
    pub(crate) unfinished: &'f [WatchedLaunch],
    /// The newest decision about a slot that is older than `expect_within`.
    pub(crate) decision: Option<&'f WatchedLaunch>,
    /// How long its launches usually take.
    pub(crate) usual: Option<Duration>,
}

/// Returns what is wrong with the schedule if the condition holds.
pub(crate) fn found(
    condition: &Condition,
    facts: &ScheduleFacts<'_>,
    now: Timestamp,
) -> Option<Symptom> {
    match *condition {
        Condition::Failed {
            after,
            within: None,
        } => facts.failed_in_a_row(after),
        Condition::Failed {
            after,
            within: Some(within),
        } => facts.failed_within(after, within, now),
        Condition::LateStart { by } => facts.late_start(by, now),
        Condition::TooLong { than } => facts.too_long(than, now),
        Condition::TooShort { than } => facts.too_short(than),
        Condition::NoSuccessFor { than } => facts.no_success_for(than, now),
        Condition::ExpectWithin => facts.not_within(now),
        Condition::Abandoned => facts.last_is(LaunchStatus::Abandoned),
        Condition::Unknown => facts.last_is(LaunchStatus::Unknown),
        Condition::HostSilent
        | Condition::RecoveryRate { .. }
        | Condition::RecordFull { .. }
        | Condition::PackageRejected => None,
    }
}

impl ScheduleFacts<'_> {
    /// The launches that ended by themselves, newest slot first. A failed launch by hand says nothing about the schedule;
    /// one that succeeded does.
    fn ended(&self) -> impl Iterator<Item = &WatchedLaunch> {
        self.launches.iter().filter(|launch| match launch.status {
            LaunchStatus::Succeeded => launch.kind != LaunchKind::Backfill,
            status => is_failure(status) && !launch.kind.is_by_hand(),
        })
    }

    fn failed_in_a_row(&self, launches: u32) -> Option<Symptom> {
        let in_a_row = self.ended().take_while(|launch| is_failure(launch.status));
        let in_a_row: Vec<_> = in_a_row.take(launches as usize).collect();
        let newest = in_a_row
            .first()
            .filter(|_| in_a_row.len() == launches as usize)?;
        Some(Symptom::Failing {
            schedule: self.name(),
            launches,
            why: reason(newest),
        })
    }

    fn failed_within(&self, after: u32, span: Duration, now: Timestamp) -> Option<Symptom> {
        let since = now.minus(span);
        let failed: Vec<_> = self
            .ended()
            .filter(|launch| is_failure(launch.status) && launch.finished_at >= Some(since))
            .collect();
        let newest = failed.first().filter(|_| failed.len() >= after as usize)?;
        Some(Symptom::FailedWithin {
            schedule: self.name(),
            launches: failed.len(),
            span,
            why: reason(newest),
        })
    }

    fn last_is(&self, status: LaunchStatus) -> Option<Symptom> {
        let last = self
            .ended()
            .next()
            .filter(|launch| launch.status == status)?;
        Some(Symptom::LastEnded {
            schedule: self.name(),
            status,
            why: reason(last),
        })
    }

    fn late_start(&self, span: Duration, now: Timestamp) -> Option<Symptom> {
        let schedule = self.name();
        let undecided = self.schedule.next_slot;
        if let Some(slot) = undecided.filter(|slot| slot.plus(span) < now) {
            return Some(Symptom::Undecided {
                schedule,
                slot,
                span,
            });
        }
        let mut waiting = self.unfinished.iter().filter(|launch| {
            let waits = matches!(launch.status, LaunchStatus::Open | LaunchStatus::Queued);
            waits && launch.kind != LaunchKind::Backfill && launch.fire_time.plus(span) < now
        });
        if let Some(launch) = waiting.next() {
            return Some(Symptom::NotStarted {
                schedule,
                due: launch.fire_time,
                span,
                status: launch.status,
            });
        }
        let mut started = self
            .launches
            .iter()
            .filter(|launch| launch.started_at.is_some() && launch.kind != LaunchKind::Backfill);
        let newest = started.next()?;
        let (due, started_at) = (newest.fire_time, newest.started_at?);
        (started_at > due.plus(span)).then_some(Symptom::StartedLate {
            schedule,
            due,
            started_at,
            span,
        })
    }

    fn too_long(&self, than: Option<Duration>, now: Timestamp) -> Option<Symptom> {
        let usual = self
            .usual
            .map(|usual| (usual * USUAL_TIMES).max(USUAL_LEAST));
        let limit = than.or(usual)?;
        let mut long = self.unfinished.iter().filter(|launch| {
            let runs = matches!(launch.status, LaunchStatus::Running | LaunchStatus::Waiting);
            let started_at = launch.started_at.filter(|_| runs);
            started_at.is_some_and(|at| now.since(at) > limit)
        });
        let (schedule, since) = (self.name(), long.next()?.started_at?);
        Some(match (than, self.usual) {
            (None, Some(usual)) => Symptom::RunsUnusuallyLong {
                schedule,
                since,
                usual,
            },
            _ => Symptom::RunsLong {
                schedule,
                since,
                limit,
            },
        })
    }

    fn too_short(&self, limit: Duration) -> Option<Symptom> {
        let last = self.ended().next()?;
        let took = last.finished_at?.since(last.started_at?);
        let is_short = last.status == LaunchStatus::Succeeded && took < limit;
        is_short.then(|| Symptom::Short {
            schedule: self.name(),
            took,
            limit,
        })
    }

    fn no_success_for(&self, span: Duration, now: Timestamp) -> Option<Symptom> {
        let schedule = self.schedule;
        let mut ends = self.ended();
        let success = ends.find(|launch| launch.status == LaunchStatus::Succeeded);
        let finished_at = success.and_then(|launch| launch.finished_at);
        let age = schedule.success_age(now);
        let age = finished_at.map_or(age, |at| age.min(now.since(at)));
        (schedule.enabled && age > span).then(|| Symptom::NoSuccessFor {
            schedule: self.name(),
            span,
        })
    }

    fn not_within(&self, now: Timestamp) -> Option<Symptom> {
        let (schedule, span) = (self.schedule, self.expect_within?);
        if !schedule.enabled {
            return None;
        }
        if let Some(slot) = schedule.next_slot.filter(|slot| slot.plus(span) <= now) {
            return Some(Symptom::NoLaunchWithin {
                schedule: self.name(),
                slot,
                span,
            });
        }
        let decision = self.decision?;
        let slot = decision.scheduled_time;
        let person = [PAUSED, DropReason::SkippedOnce.as_str()];
        let is_wanted = decision.status == LaunchStatus::Skipped
            && decision
                .reason
                .as_deref()
                .is_some_and(|why| person.contains(&why));
        let is_well = is_wanted || schedule.success_scheduled_time >= Some(slot);
        (!is_well).then(|| Symptom::NoSuccessWithin {
            schedule: self.name(),
            slot,
            span,
            status: decision.status,
        })
    }

    fn name(&self) -> String {
        self.schedule.name.clone()
    }
}

fn is_failure(status: LaunchStatus) -> bool {
    matches!(
        status,
        LaunchStatus::Failed | LaunchStatus::Unknown | LaunchStatus::Abandoned
    )
}

/// The longest text of a failure in a sentence, in characters.
const REASON_CHARS_MAX: usize = 300;

/// Returns why a launch failed.
fn reason(launch: &WatchedLaunch) -> Option<String> {
    let text = launch.message.as_deref().or(launch.reason.as_deref())?;
    Some(text.chars().take(REASON_CHARS_MAX).collect())
}

#[cfg(test)]
mod tests;
