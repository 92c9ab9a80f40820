//! Whether the condition of a rule holds for a schedule. Pure.
//!
//! A condition follows from the record alone, and not from what a host saw before. So every host that looks comes to the same
//! answer, also after a restart.

use std::time::Duration;

use campanile_control::admin::schedule_admin::PAUSED;
use campanile_control::rules::alert_rule::{Condition, USUAL_LEAST, USUAL_TIMES};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_model::text::{counted, duration_text};
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

/// Return a sentence about the schedule if the condition holds.
pub(crate) fn found(
    condition: &Condition,
    facts: &ScheduleFacts<'_>,
    now: Timestamp,
) -> Option<String> {
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

    fn failed_in_a_row(&self, after: u32) -> Option<String> {
        let in_a_row = self.ended().take_while(|launch| is_failure(launch.status));
        let in_a_row: Vec<_> = in_a_row.take(after as usize).collect();
        let newest = in_a_row
            .first()
            .filter(|_| in_a_row.len() == after as usize)?;
        let name = &self.schedule.name;
        let why = reason(newest);
        Some(match after {
            1 => format!("the last launch of the schedule `{name}` failed{why}"),
            _ => format!("the last {after} launches of the schedule `{name}` all failed{why}"),
        })
    }

    fn failed_within(&self, after: u32, within: Duration, now: Timestamp) -> Option<String> {
        let since = now.minus(within);
        let failed: Vec<_> = self
            .ended()
            .filter(|launch| is_failure(launch.status) && launch.finished_at >= Some(since))
            .collect();
        let newest = failed.first().filter(|_| failed.len() >= after as usize)?;
        Some(format!(
            "{} of the schedule `{}` failed within {}{}",
            counted(failed.len(), "launch"),
            self.schedule.name,
            duration_text(within),
            reason(newest)
        ))
    }

    fn last_is(&self, status: LaunchStatus) -> Option<String> {
        let last = self
            .ended()
            .next()
            .filter(|launch| launch.status == status)?;
        Some(format!(
            "the last launch of the schedule `{}` is {status}{}",
            self.schedule.name,
            reason(last)
        ))
    }

    fn late_start(&self, by: Duration, now: Timestamp) -> Option<String> {
        let (name, late) = (&self.schedule.name, duration_text(by));
        let undecided = self.schedule.next_slot;
        if let Some(slot) = undecided.filter(|slot| slot.plus(by) < now) {
            return Some(format!(
                "no host has decided the slot {slot} of the schedule `{name}` within {late}"
            ));
        }
        let mut waiting = self.unfinished.iter().filter(|launch| {
            let waits = matches!(launch.status, LaunchStatus::Open | LaunchStatus::Queued);
            waits && launch.kind != LaunchKind::Backfill && launch.fire_time.plus(by) < now
        });
        if let Some(launch) = waiting.next() {
            return Some(format!(
                "a launch of the schedule `{name}` that was due at {} has not started within {late}: it is {}",
                launch.fire_time, launch.status
            ));
        }
        let mut started = self
            .launches
            .iter()
            .filter(|launch| launch.started_at.is_some() && launch.kind != LaunchKind::Backfill);
        let newest = started.next()?;
        let started_at = newest.started_at?;
        (started_at > newest.fire_time.plus(by)).then(|| {
            format!(
                "the last launch of the schedule `{name}` was due at {} and started at {started_at}, more than {late} later",
                newest.fire_time
            )
        })
    }

    fn too_long(&self, than: Option<Duration>, now: Timestamp) -> Option<String> {
        let usual = self
            .usual
            .map(|usual| (usual * USUAL_TIMES).max(USUAL_LEAST));
        let limit = than.or(usual)?;
        let mut long = self.unfinished.iter().filter(|launch| {
            let runs = matches!(launch.status, LaunchStatus::Running | LaunchStatus::Waiting);
            let started_at = launch.started_at.filter(|_| runs);
            started_at.is_some_and(|at| now.since(at) > limit)
        });
        let started_at = long.next()?.started_at?;
        let (name, limit) = (&self.schedule.name, duration_text(limit));
        Some(match (than, self.usual) {
            (None, Some(usual)) => format!(
                "a launch of the schedule `{name}` runs since {started_at}, longer than {USUAL_TIMES} times its usual {}",
                duration_text(usual)
            ),
            _ => format!(
                "a launch of the schedule `{name}` runs since {started_at}, longer than {limit}"
            ),
        })
    }

    fn too_short(&self, than: Duration) -> Option<String> {
        let last = self.ended().next()?;
        let took = last.finished_at?.since(last.started_at?);
        (last.status == LaunchStatus::Succeeded && took < than).then(|| {
            format!(
                "the last launch of the schedule `{}` succeeded after {}, in less than {}",
                self.schedule.name,
                duration_text(took),
                duration_text(than)
            )
        })
    }

    fn no_success_for(&self, than: Duration, now: Timestamp) -> Option<String> {
        let schedule = self.schedule;
        let mut ends = self.ended();
        let success = ends.find(|launch| launch.status == LaunchStatus::Succeeded);
        let finished_at = success.and_then(|launch| launch.finished_at);
        let age = schedule.success_age(now);
        let age = finished_at.map_or(age, |at| age.min(now.since(at)));
        (schedule.enabled && age > than).then(|| {
            format!(
                "no launch of the schedule `{}` has succeeded for {}",
                schedule.name,
                duration_text(than)
            )
        })
    }

    fn not_within(&self, now: Timestamp) -> Option<String> {
        let (schedule, within) = (self.schedule, self.expect_within?);
        if !schedule.enabled {
            return None;
        }
        let (name, limit) = (&schedule.name, duration_text(within));
        if let Some(slot) = schedule.next_slot.filter(|slot| slot.plus(within) <= now) {
            return Some(format!(
                "the slot {slot} of the schedule `{name}` has no launch {limit} later"
            ));
        }
        let decision = self.decision?;
        let slot = decision.scheduled_time;
        let person = [PAUSED, DropReason::SkippedOnce.as_str()];
        let is_wanted = decision.status == LaunchStatus::Skipped
            && decision
                .reason
                .as_deref()
                .is_some_and(|why| person.contains(&why));
        if is_wanted || schedule.success_scheduled_time >= Some(slot) {
            return None;
        }
        Some(format!(
            "no launch of the schedule `{name}` has succeeded within {limit} of the slot {slot}: its launch is {}",
            decision.status
        ))
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

/// Return why a launch failed, as the end of a sentence.
fn reason(launch: &WatchedLaunch) -> String {
    let text = launch.message.as_deref().or(launch.reason.as_deref());
    text.map_or_else(String::new, |text| {
        let text: String = text.chars().take(REASON_CHARS_MAX).collect();
        format!(": {}", campanile_model::text::printable_line(&text))
    })
}

#[cfg(test)]
mod tests;
