//! How many rows one transaction changes, so that it does not hold SQLite's writer for long.

use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use campanile_store::Db;

/// A transaction of a launch whose statements take longer makes the next one of its kind smaller. Its commit comes on top,
/// and a few of them may wait for the writer at the same time: a command waits for all that came before it.
const TRANSACTION_MAX: Duration = Duration::from_millis(10);
/// The fewest launches for which a transaction is worth its cost. A slow transaction does not lead to smaller ones.
pub(crate) const LAUNCHES_MIN: usize = 32;
/// The rows of one transaction that decides. When there are as many, no other schedule is decided in it. One schedule may
/// have more.
const DECISIONS_MAX: usize = 1_024;
/// The most runs that one transaction ends.
const ENDS_MAX: usize = 256;

/// The sizes of the transactions of a launch. That of a claim is bounded by the free permits.
///
/// They adapt on SQLite only. Postgres has many writers, and there the time is mostly that of the network.
pub(crate) struct BatchSizes {
    pub(crate) decisions: BatchSize,
    pub(crate) ends: BatchSize,
}

impl BatchSizes {
    pub(crate) fn new(db: &Db) -> BatchSizes {
        let time_max = (!db.url().is_shared()).then_some(TRANSACTION_MAX);
        let size = |rows_max| BatchSize::new(LAUNCHES_MIN..=rows_max, time_max);
        BatchSizes {
            decisions: size(DECISIONS_MAX),
            ends: size(ENDS_MAX),
        }
    }
}

/// The size of the next transaction of one kind.
///
/// A transaction whose statements took longer than `time_max` makes the next one half as large. A shorter one that filled
/// more than half of its size doubles it.
pub(crate) struct BatchSize {
    bounds: RangeInclusive<usize>,
    /// None when the size stays.
    time_max: Option<Duration>,
    rows: AtomicUsize,
}

impl BatchSize {
    /// A size within `bounds`. Where it adapts, it begins at a quarter of the greatest one.
    pub(crate) fn new(bounds: RangeInclusive<usize>, time_max: Option<Duration>) -> BatchSize {
        let first = match time_max {
            Some(_) => (bounds.end() / 4).max(*bounds.start()),
            None => *bounds.end(),
        };
        BatchSize {
            bounds,
            time_max,
            rows: AtomicUsize::new(first),
        }
    }

    /// Returns the rows of the next transaction.
    pub(crate) fn rows(&self) -> usize {
        self.rows.load(Ordering::Relaxed)
    }

    /// Adapt the size to a transaction whose statements changed `rows` in the time `took`. The wait for the writer and the
    /// commit do not count: a slow disk does not become faster by smaller transactions.
    pub(crate) fn adapt(&self, rows: usize, took: Duration) {
        let Some(time_max) = self.time_max else {
            return;
        };
        let (size, rows_min) = (self.rows(), *self.bounds.start());
        let adapted = match took > time_max {
            // The time has another cause than the number of rows.
            true if rows <= rows_min => size,
            true => (size.min(rows) / 2).max(rows_min),
            false if rows > size / 2 => (size * 2).min(*self.bounds.end()),
            false => size,
        };
        self.rows.store(adapted, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_transaction_halves_the_size_and_a_short_one_that_filled_it_doubles_it() {
        let size = BatchSize {
            bounds: 32..=256,
            time_max: Some(Duration::from_millis(10)),
            rows: AtomicUsize::new(64),
        };
        for (rows, took, expected) in [
            (64, 10, 128),
            (64, 10, 128),
            (65, 10, 256),
            (256, 10, 256),
            (256, 11, 128),
            // The size becomes half of the rows of the long transaction, not half of itself.
            (80, 11, 40),
            (6, 3, 40),
            (32, 50, 40),
            (40, 50, 32),
        ] {
            size.adapt(rows, Duration::from_millis(took));
            assert_eq!(size.rows(), expected, "after {rows} rows in {took} ms");
        }
    }
}
