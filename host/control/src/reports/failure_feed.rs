//! New failed launches, each once, read again and again.
//!
//! The end of a launch records no event. This reads the newest ids of an index instead, however large the record is.

use std::collections::HashSet;

use campanile_model::ids::LaunchId;
use campanile_model::status::LaunchStatus;
use campanile_store::launch::{self, LaunchRow};
use campanile_store::{DbError, Tx};

/// How many of the newest launches that failed or ended early are looked at. One with an older slot is not found.
const LOOKED_AT: i64 = 500;
/// The most launches that one call returns.
const ROWS_MAX: usize = 20;

/// The failed launches of the last call.
#[derive(Default)]
pub struct FailureFeed {
    seen: Option<HashSet<LaunchId>>,
}

impl FailureFeed {
    /// Returns launches that failed, are unknown or abandoned since the last call, at most the newest 20. The first call
    /// returns the newest 20 launches that failed, are unknown or abandoned, however long ago.
    pub async fn read(&mut self, tx: &mut Tx) -> Result<Vec<LaunchRow>, DbError> {
        let newest = launch::newest_failures(tx, LOOKED_AT).await?;
        let new = self.unseen(newest);
        if new.is_empty() {
            return Ok(Vec::new());
        }
        let mut rows = launch::with_ids(tx, &new).await?;
        rows.retain(|row| row.status != LaunchStatus::Cancelled);
        rows.sort_unstable_by_key(|row| row.finished_at);
        Ok(rows)
    }

    /// Forget the last call: the next one is a first call.
    pub fn reset(&mut self) {
        self.seen = None;
    }

    /// Returns the first of `newest` that the last call did not have.
    fn unseen(&mut self, newest: Vec<LaunchId>) -> Vec<LaunchId> {
        let seen = self.seen.take().unwrap_or_default();
        let oldest = seen.iter().min().copied();
        // Retention removes launches, and then older ones move up.
        let is_full = seen.len() as i64 >= LOOKED_AT;
        let has_moved_up = |id: &LaunchId| is_full && oldest.is_some_and(|oldest| *id < oldest);
        let is_new = |id: &&LaunchId| !seen.contains(*id) && !has_moved_up(id);
        let new = newest.iter().filter(is_new).take(ROWS_MAX).copied();
        let new = new.collect();
        self.seen = Some(newest.into_iter().collect());
        new
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::clock::Timestamp;
    use campanile_model::ids::{LaunchKind, ScheduleId};

    #[test]
    fn each_failure_comes_once() {
        let schedule = ScheduleId::random();
        let id = |second: i64| {
            let at = Timestamp::from_micros(second * 1_000_000);
            LaunchId::of(schedule, at, LaunchKind::Schedule)
        };
        let newest = |from: i64, to: i64| Vec::from_iter((from..=to).rev().map(id));
        let mut feed = FailureFeed::default();
        assert_eq!(feed.unseen(newest(5, 8)), newest(5, 8));
        assert_eq!(feed.unseen(newest(5, 8)), []);
        // A launch whose run took long has an older slot than the launches that failed before it.
        assert_eq!(feed.unseen(newest(3, 9)), [id(9), id(4), id(3)]);
        assert_eq!(feed.unseen(newest(100, 150)).len(), ROWS_MAX);
        assert_eq!(feed.unseen(newest(100, 150)), []);
        feed.reset();
        assert_eq!(feed.unseen(newest(100, 151)).len(), ROWS_MAX);
        // What moves up because newer ones were removed is not new.
        assert_eq!(feed.unseen(newest(201, 700)).len(), ROWS_MAX);
        assert_eq!(feed.unseen(newest(200, 699)), []);
    }
}
