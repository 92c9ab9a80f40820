//! Pure: decide which launches retention removes.

use std::collections::HashSet;
use std::time::Duration;

use campanile_control::settings::RetentionLimits;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{BackfillId, LaunchId};
use campanile_store::LaunchStatus;
use campanile_store::retention::{NewestSlots, OldLaunch};

/// The age and the kept launches of one schedule.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct ScheduleRule {
    /// The age of its policy `retention`, in place of those of the configuration.
    pub own_age: Option<Duration>,
    /// From which slots on its launches stay; none when the schedule is removed.
    pub newest: Option<NewestSlots>,
}

/// The settings and the state on which a decision depends, besides the launch and its schedule.
pub(super) struct Rules<'a> {
    pub limits: &'a RetentionLimits,
    pub now: Timestamp,
    /// Unfinished launches refer to these launches, so they stay whatever their age.
    pub displacing: HashSet<LaunchId>,
    /// The running backfills. Their launches stay too.
    pub backfills: HashSet<BackfillId>,
    /// Whether the record is larger than it may be: then no age counts.
    pub over_size: bool,
}

impl ScheduleRule {
    /// Whether the launch is one of the newest of its schedule.
    fn keeps(&self, launch: &OldLaunch) -> bool {
        let Some(newest) = self.newest else {
            return false;
        };
        let slot = launch.scheduled_time;
        let is_from = |first: Option<Timestamp>| first.is_none_or(|first| slot >= first);
        let is_of_slots = !launch.kind.is_by_hand();
        let has_outcome = launch.status != LaunchStatus::Skipped;
        is_from(newest.any)
            || (is_of_slots && is_from(newest.of_slots))
            || (is_of_slots && has_outcome && is_from(newest.with_outcome))
    }
}

impl Rules<'_> {
    /// Whether the launch may be removed, if its schedule sets no age and does not keep it.
    pub(super) fn is_candidate(&self, launch: &OldLaunch) -> bool {
        self.may_remove(launch, &ScheduleRule::default())
    }

    /// Whether the launch is removed.
    pub(super) fn may_remove(&self, launch: &OldLaunch, schedule: &ScheduleRule) -> bool {
        let age = schedule.own_age.or_else(|| self.age_of(launch.status));
        let ends = launch.finished_at.zip(age);
        let is_old = ends.is_some_and(|(finished_at, age)| finished_at.plus(age) <= self.now);
        let is_finished = launch.finished_at.is_some();
        (is_old || (is_finished && self.over_size))
            && !self.needs(launch)
            && !schedule.keeps(launch)
    }

    /// Whether the launch, which is removed, should have gone longer than `delay` ago by the age of the configuration.
    pub(super) fn is_behind(&self, launch: &OldLaunch, delay: Duration) -> bool {
        let ends = launch.finished_at.zip(self.age_of(launch.status));
        ends.is_some_and(|(finished_at, age)| finished_at.plus(age).plus(delay) < self.now)
    }

    /// Returns the age of the configuration; none for launches that stay for ever, or have not ended.
    fn age_of(&self, status: LaunchStatus) -> Option<Duration> {
        match status {
            LaunchStatus::Succeeded => self.limits.succeeded,
            LaunchStatus::Skipped => self.limits.skipped,
            LaunchStatus::Failed
            | LaunchStatus::Unknown
            | LaunchStatus::Abandoned
            | LaunchStatus::Cancelled => self.limits.failed,
            LaunchStatus::Open
            | LaunchStatus::Queued
            | LaunchStatus::Running
            | LaunchStatus::Waiting => None,
        }
    }

    fn needs(&self, launch: &OldLaunch) -> bool {
        let is_filled = |id| self.backfills.contains(&id);
        launch.backfill_id.is_some_and(is_filled) || self.displacing.contains(&launch.id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{LaunchKind, ScheduleId};

    const DAY: Duration = Duration::from_secs(24 * 3_600);
    const LIMITS: RetentionLimits = RetentionLimits {
        succeeded: Some(DAY),
        failed: Some(Duration::from_secs(3 * 24 * 3_600)),
        skipped: None,
        ..RetentionLimits::FOR_EVER
    };

    const UNFINISHED: [LaunchStatus; 4] = [
        LaunchStatus::Open,
        LaunchStatus::Queued,
        LaunchStatus::Running,
        LaunchStatus::Waiting,
    ];

    fn day(days: u32) -> Timestamp {
        Timestamp::EPOCH.plus(DAY * days)
    }

    /// A launch of the slot at the beginning of a day, which ended at once.
    fn launch(days: u32, kind: LaunchKind, status: LaunchStatus) -> OldLaunch {
        let schedule_id = ScheduleId::FIRST;
        OldLaunch {
            id: LaunchId::of(schedule_id, day(days), kind),
            schedule_id,
            kind,
            status,
            scheduled_time: day(days),
            decided_at: day(days),
            finished_at: (!UNFINISHED.contains(&status)).then(|| day(days)),
            backfill_id: None,
        }
    }

    fn rules(over_size: bool) -> Rules<'static> {
        Rules {
            limits: &LIMITS,
            now: day(100),
            displacing: HashSet::new(),
            backfills: HashSet::new(),
            over_size,
        }
    }

    /// Keep the launches of these days and later ones.
    fn newest(any: u32, with_outcome: u32, of_slots: u32) -> ScheduleRule {
        ScheduleRule {
            own_age: None,
            newest: Some(NewestSlots {
                any: Some(day(any)),
                with_outcome: Some(day(with_outcome)),
                of_slots: Some(day(of_slots)),
            }),
        }
    }

    #[test]
    fn each_status_has_its_age() {
        use LaunchStatus::*;
        let rules = rules(false);
        let schedule = newest(100, 100, 100);
        for (status, removed_at) in [
            (Succeeded, Some(99)),
            (Failed, Some(97)),
            (Unknown, Some(97)),
            (Abandoned, Some(97)),
            (Cancelled, Some(97)),
            (Skipped, None),
            (Open, None),
            (Queued, None),
            (Running, None),
            (Waiting, None),
        ] {
            for days in [1, 96, 97, 98, 99] {
                let launch = launch(days, LaunchKind::Schedule, status);
                let expected = removed_at.is_some_and(|last| days <= last);
                assert_eq!(rules.may_remove(&launch, &schedule), expected, "{launch:?}");
            }
        }
    }

    #[test]
    fn the_newest_launches_of_a_schedule_stay() {
        use LaunchKind::{Backfill, Manual, Schedule};
        use LaunchStatus::{Skipped, Succeeded};
        let rules = rules(true);
        let schedule = newest(50, 30, 40);
        for (days, kind, status, is_removed) in [
            (50, Manual, Succeeded, false),
            (49, Manual, Succeeded, true),
            (49, Backfill, Succeeded, true),
            (40, Schedule, Skipped, false),
            (39, Schedule, Skipped, true),
            (30, Schedule, Succeeded, false),
            (29, Schedule, Succeeded, true),
        ] {
            let launch = launch(days, kind, status);
            assert_eq!(
                rules.may_remove(&launch, &schedule),
                is_removed,
                "{launch:?}"
            );
        }
        // A schedule with few launches keeps all; a removed schedule keeps none.
        let old = launch(1, Schedule, Succeeded);
        let few = ScheduleRule {
            own_age: None,
            newest: Some(NewestSlots::default()),
        };
        assert!(!rules.may_remove(&old, &few));
        assert!(rules.may_remove(&old, &ScheduleRule::default()));
    }

    #[test]
    fn the_age_of_the_schedule_counts_for_every_outcome() {
        use LaunchKind::Schedule;
        use LaunchStatus::{Failed, Running, Skipped, Succeeded};
        let rules = rules(false);
        let own = |days| ScheduleRule {
            own_age: Some(DAY * days),
            ..newest(100, 100, 100)
        };
        for (days, own_days, status, is_removed) in [
            (90, 20, Succeeded, false),
            (80, 20, Succeeded, true),
            (99, 1, Failed, true),
            (99, 1, Skipped, true),
            (1, 1, Running, false),
        ] {
            let launch = launch(days, Schedule, status);
            assert_eq!(
                rules.may_remove(&launch, &own(own_days)),
                is_removed,
                "{launch:?}"
            );
        }
    }

    #[test]
    fn what_others_need_stays_also_when_the_record_is_too_large() {
        let launch = launch(1, LaunchKind::Schedule, LaunchStatus::Succeeded);
        let backfill = BackfillId::new(day(1));
        let filled = OldLaunch {
            backfill_id: Some(backfill),
            ..launch.clone()
        };
        let none = rules(true);
        assert!(none.is_candidate(&launch) && none.is_candidate(&filled));
        let needed = Rules {
            displacing: [launch.id].into(),
            backfills: [backfill].into(),
            ..rules(true)
        };
        assert!(!needed.is_candidate(&launch) && !needed.is_candidate(&filled));
        let young = OldLaunch {
            status: LaunchStatus::Running,
            finished_at: None,
            ..launch
        };
        assert!(!none.is_candidate(&young));
    }
}
