//! The runs that this host began lately. They show when a database has lost its newest records.
//!
//! A standby that is promoted may lack the last commits of its primary. Their slots are then decided again, and the same
//! runs are claimed again. The record does not show that their tasks were called before, but the host that called them
//! knows it.

use std::collections::{HashSet, VecDeque};
use std::mem::take;
use std::sync::Mutex;

use campanile_control::lock::lock;
use campanile_model::ids::RunId;

/// The most runs to remember, about 5 MB: the newest minute of 1,000 launches a second.
const RUNS_MAX: usize = 1 << 16;

/// A run, and the fence under which a host claimed it. The record has each pair at most once.
type Claimed = (RunId, i64);

/// The runs that this host began lately.
#[derive(Default)]
pub(crate) struct BegunRuns(Mutex<Remembered>);

#[derive(Default)]
struct Remembered {
    claims: HashSet<Claimed>,
    /// The same claims, the oldest first.
    in_order: VecDeque<Claimed>,
    /// The runs that began again since [`BegunRuns::take_repeated`].
    repeated: usize,
}

impl BegunRuns {
    /// Note that a run begins. Return whether it began before under the same fence: the database has lost that claim.
    pub(crate) fn note(&self, run: RunId, fence: i64) -> bool {
        let mut remembered = lock(&self.0);
        if !remembered.claims.insert((run, fence)) {
            remembered.repeated += 1;
            return true;
        }
        remembered.in_order.push_back((run, fence));
        if remembered.in_order.len() > RUNS_MAX
            && let Some(oldest) = remembered.in_order.pop_front()
        {
            remembered.claims.remove(&oldest);
        }
        false
    }

    /// Returns how many runs began again since the last call.
    pub(crate) fn take_repeated(&self) -> usize {
        take(&mut lock(&self.0).repeated)
    }

    /// Count runs that began again, which could not be reported.
    pub(crate) fn put_back(&self, repeated: usize) {
        lock(&self.0).repeated += repeated;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::LaunchId;

    fn run(number: u128) -> RunId {
        RunId::of(LaunchId(uuid::Uuid::from_u128(number << 8)), 1)
    }

    #[test]
    fn a_run_that_begins_again_under_its_fence_is_noticed() {
        let begun = BegunRuns::default();
        assert!(!begun.note(run(1), 1));
        // A retry has the next fence.
        assert!(!begun.note(run(1), 2));
        assert!(!begun.note(run(2), 1));
        assert_eq!(begun.take_repeated(), 0);
        assert!(begun.note(run(1), 1) && begun.note(run(1), 2));
        assert_eq!(begun.take_repeated(), 2);
        begun.put_back(2);
        assert_eq!(begun.take_repeated(), 2);
    }

    #[test]
    fn the_oldest_runs_are_forgotten() {
        let begun = BegunRuns::default();
        let count = RUNS_MAX as u128 + 10;
        for number in 0..count {
            assert!(!begun.note(run(number), 1));
        }
        assert_eq!(lock(&begun.0).claims.len(), RUNS_MAX);
        assert!(begun.note(run(10), 1) && begun.note(run(count - 1), 1));
        assert!(!begun.note(run(9), 1));
    }
}
