//! Pure: what the rollup counts of a launch, and in which periods.

use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_model::status::LaunchStatus;
use campanile_store::launch::FinishedLaunch;
use campanile_store::rollup::Rollup;
use campanile_store::troubles::RecentLaunch;

use super::lateness;

/// A launch that has ended, as the rollup counts it.
///
/// It counts in the hour and on the day of its slot, whenever it was decided and has ended: so the cell of a grid says what
/// became of its slots. A manual launch has the time of its request as its slot.
#[derive(Debug, Clone, Copy)]
pub struct EndedLaunch {
    pub slot: Timestamp,
    kind: LaunchKind,
    status: LaunchStatus,
    slots: i64,
    fire_time: Timestamp,
    is_queued: bool,
    started_at: Option<Timestamp>,
    finished_at: Option<Timestamp>,
}

impl From<&FinishedLaunch> for EndedLaunch {
    fn from(launch: &FinishedLaunch) -> EndedLaunch {
        EndedLaunch {
            slot: launch.scheduled_time,
            kind: launch.kind,
            status: launch.status,
            slots: launch.slot_count,
            fire_time: launch.fire_time,
            is_queued: launch.opened_at.is_some(),
            started_at: launch.started_at,
            finished_at: launch.finished_at,
        }
    }
}

impl From<&RecentLaunch> for EndedLaunch {
    fn from(launch: &RecentLaunch) -> EndedLaunch {
        EndedLaunch {
            slot: launch.scheduled_time,
            kind: launch.kind,
            status: launch.status,
            slots: launch.slots(),
            fire_time: launch.fire_time,
            is_queued: launch.opened_at.is_some(),
            started_at: launch.started_at,
            finished_at: launch.finished_at,
        }
    }
}

impl EndedLaunch {
    /// Counts the launch. One that hasn't ended counts as nothing.
    pub fn count_in(&self, rollup: &mut Rollup) {
        let Some(finished_at) = self.finished_at else {
            return;
        };
        match self.status {
            LaunchStatus::Succeeded => rollup.succeeded += 1,
            LaunchStatus::Failed | LaunchStatus::Unknown | LaunchStatus::Abandoned => {
                rollup.failed += 1;
            }
            LaunchStatus::Cancelled => rollup.cancelled += 1,
            LaunchStatus::Skipped => rollup.skipped += self.slots,
            LaunchStatus::Open
            | LaunchStatus::Queued
            | LaunchStatus::Running
            | LaunchStatus::Waiting => {}
        }
        let Some(started_at) = self.started_at else {
            return;
        };
        if self.kind.is_of_slot() {
            let is_late = lateness::is_late(self.kind, self.fire_time, started_at);
            rollup.late += i64::from(is_late);
        }
        if self.kind == LaunchKind::Schedule && !self.is_queued {
            rollup.lags.count(started_at.since(self.fire_time));
        }
        if matches!(self.status, LaunchStatus::Succeeded | LaunchStatus::Failed) {
            let took = finished_at.since(started_at);
            let micros = i64::try_from(took.as_micros()).unwrap_or(i64::MAX);
            rollup.run_us = rollup.run_us.saturating_add(micros);
            rollup.durations.count(took);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    /// A launch of a slot that fired at 100 s, started at `start` and ended 3 s later.
    fn ended(status: LaunchStatus, start: Option<u64>) -> EndedLaunch {
        EndedLaunch {
            slot: at(100),
            kind: LaunchKind::Schedule,
            status,
            slots: 1,
            fire_time: at(100),
            is_queued: false,
            started_at: start.map(at),
            finished_at: Some(at(start.unwrap_or(100) + 3)),
        }
    }

    fn counted(launch: EndedLaunch) -> Rollup {
        let mut rollup = Rollup::default();
        launch.count_in(&mut rollup);
        rollup
    }

    #[test]
    fn each_status_counts_as_one_outcome() {
        use LaunchStatus::*;
        for (status, expected) in [
            (Succeeded, [1, 0, 0, 0]),
            (Failed, [0, 1, 0, 0]),
            (Unknown, [0, 1, 0, 0]),
            (Abandoned, [0, 1, 0, 0]),
            (Skipped, [0, 0, 4, 0]),
            (Cancelled, [0, 0, 0, 1]),
        ] {
            let slots = if status == Skipped { 4 } else { 1 };
            let launch = ended(status, None);
            let rollup = counted(EndedLaunch { slots, ..launch });
            let found = [
                rollup.succeeded,
                rollup.failed,
                rollup.skipped,
                rollup.cancelled,
            ];
            assert_eq!(found, expected, "{status}");
            assert_eq!(
                (rollup.durations.total(), rollup.late),
                (0, 0),
                "it never started"
            );
        }
        let unfinished = EndedLaunch {
            finished_at: None,
            ..ended(Succeeded, Some(101))
        };
        assert_eq!(counted(unfinished), Rollup::default());
    }

    #[test]
    fn a_time_counts_for_launches_that_ran_and_a_lag_for_those_that_waited_for_nothing_else() {
        let rollup = counted(ended(LaunchStatus::Failed, Some(101)));
        assert_eq!((rollup.run_us, rollup.durations.total()), (3_000_000, 1));
        assert_eq!((rollup.lags.total(), rollup.late), (1, 0));
        let late = counted(ended(LaunchStatus::Succeeded, Some(110)));
        assert_eq!((late.lags.total(), late.late), (1, 1));
        let cancelled = counted(ended(LaunchStatus::Cancelled, Some(101)));
        assert_eq!((cancelled.run_us, cancelled.durations.total()), (0, 0));
        let of_kind = |kind, is_queued| {
            let launch = ended(LaunchStatus::Succeeded, Some(101));
            let rollup = counted(EndedLaunch {
                kind,
                is_queued,
                ..launch
            });
            (rollup.lags.total(), rollup.late)
        };
        assert_eq!(of_kind(LaunchKind::Schedule, true), (0, 0));
        assert_eq!(of_kind(LaunchKind::Catchup, false), (0, 1));
        assert_eq!(of_kind(LaunchKind::Manual, false), (0, 0));
        assert_eq!(of_kind(LaunchKind::Backfill, false), (0, 0));
    }
}
