//! The lease table: the runs that this host has claimed, and until when each claim is proven.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Instant;

use crate::lock::lock;
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_sandbox::StopSignal;

/// The proof that this host has claimed a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) run: RunId,
    pub(crate) fence: i64,
    /// On the database's clock.
    pub(crate) until: Timestamp,
    /// The same on the monotonic clock. Both are checked: the one may be set back, the other stands still while the
    /// machine sleeps.
    pub(crate) until_monotonic: Instant,
}

struct Entry {
    lease: Lease,
    stop: StopSignal,
    /// Set when the run was asked to end: the end of its grace.
    cancel_deadline: Option<Timestamp>,
}

/// The tracked runs of this host.
#[derive(Default)]
pub(crate) struct LeaseTable(Mutex<HashMap<RunId, Entry>>);

impl LeaseTable {
    /// Track a claimed run. Return the signal that stops it.
    pub(crate) fn track(&self, lease: Lease) -> StopSignal {
        let stop = StopSignal::default();
        let entry = Entry {
            lease,
            stop: stop.clone(),
            cancel_deadline: None,
        };
        lock(&self.0).insert(lease.run, entry);
        stop
    }

    /// Stop tracking a run, unless it has been claimed again under another fence, after a retry's pause.
    pub(crate) fn untrack(&self, run: RunId, fence: i64) {
        let mut entries = lock(&self.0);
        let has_fence = |entry: &Entry| entry.lease.fence == fence;
        if entries.get(&run).is_some_and(has_fence) {
            entries.remove(&run);
        }
    }

    /// Return how many runs are tracked.
    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    /// Return when the first lease expires.
    pub(crate) fn first_expiry(&self) -> Option<Timestamp> {
        let entries = lock(&self.0);
        let kept = entries.values().filter(|entry| !entry.stop.is_dropped());
        kept.map(|entry| entry.lease.until).min()
    }

    /// Ask every task to stop.
    pub(crate) fn request_stop(&self) {
        for entry in lock(&self.0).values() {
            entry.stop.request();
        }
    }

    /// Drop every call. Return the runs that were dropped; each is untracked when its call is gone.
    pub(crate) fn drop_all(&self) -> Vec<RunId> {
        let entries = lock(&self.0);
        for entry in entries.values() {
            entry.stop.drop_now();
        }
        entries.keys().copied().collect()
    }

    /// Return the runs to renew, each with its fence. A dropped run is left out: its lease must expire.
    pub(crate) fn to_renew(&self) -> Vec<(RunId, i64)> {
        let entries = lock(&self.0);
        let kept = entries.values().filter(|entry| !entry.stop.is_dropped());
        let leases = kept.map(|entry| (entry.lease.run, entry.lease.fence));
        let mut leases: Vec<(RunId, i64)> = leases.collect();
        // Every transaction changes these rows in the order of their ids, so that none waits for another in a circle.
        leases.sort_unstable_by_key(|(run, _)| *run);
        leases
    }

    /// Note what a renewal of `asked` proved. Cancel the runs that are to end, and drop those no longer `held`.
    ///
    /// Runs that ended meanwhile are not held either; to drop them does nothing.
    pub(crate) fn note_renewal(
        &self,
        asked: &[(RunId, i64)],
        held: &[(RunId, Option<Timestamp>)],
        until: Timestamp,
        until_monotonic: Instant,
    ) {
        let held: HashMap<RunId, Option<Timestamp>> = held.iter().copied().collect();
        let mut entries = lock(&self.0);
        for (run, fence) in asked {
            let entry = entries.get_mut(run);
            let Some(entry) = entry.filter(|entry| entry.lease.fence == *fence) else {
                continue;
            };
            let Some(cancel_deadline) = held.get(run) else {
                entry.stop.drop_now();
                continue;
            };
            entry.lease.until = until;
            entry.lease.until_monotonic = until_monotonic;
            entry.cancel_deadline = *cancel_deadline;
            if cancel_deadline.is_some() {
                entry.stop.cancel();
            }
        }
    }

    /// Drop the runs that were asked to end and whose grace is over.
    pub(crate) fn drop_cancelled(&self, now: Timestamp) {
        let is_over = |deadline| deadline <= now;
        for entry in lock(&self.0).values() {
            if entry.cancel_deadline.is_some_and(is_over) {
                entry.stop.drop_now();
            }
        }
    }

    /// Drop the runs whose lease has expired: another host may have claimed them. Return how many.
    pub(crate) fn drop_expired(&self, now: Timestamp, instant: Instant) -> usize {
        let has_expired = |lease: &Lease| lease.until <= now || lease.until_monotonic <= instant;
        let entries = lock(&self.0);
        let kept = entries.values().filter(|entry| !entry.stop.is_dropped());
        let expired = kept.filter(|entry| has_expired(&entry.lease));
        expired.inspect(|entry| entry.stop.drop_now()).count()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use campanile_model::ids::LaunchId;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn run(number: i64) -> RunId {
        RunId::of(LaunchId(uuid::Uuid::nil()), number)
    }

    fn lease(run: RunId, fence: i64, until: Timestamp, until_monotonic: Instant) -> Lease {
        Lease {
            run,
            fence,
            until,
            until_monotonic,
        }
    }

    #[test]
    fn a_run_that_was_asked_to_end_is_dropped_after_its_grace() {
        let table = LeaseTable::default();
        let later = Instant::now() + LEASE * 2;
        let runs = [1, 2].map(run);
        let stops = runs.map(|run| table.track(lease(run, 1, at(60), later)));
        let held = [(runs[0], Some(at(20))), (runs[1], None)];
        table.note_renewal(&table.to_renew(), &held, at(60), later);
        let asked = |stop: &StopSignal| (stop.is_cancelled(), stop.is_requested());
        assert_eq!(stops.each_ref().map(asked), [(true, true), (false, false)]);
        table.drop_cancelled(at(19));
        assert!(!stops[0].is_dropped());
        table.drop_cancelled(at(20));
        assert_eq!(stops.each_ref().map(StopSignal::is_dropped), [true, false]);
    }

    #[test]
    fn a_lost_run_is_dropped_and_a_run_claimed_again_is_not() {
        let table = LeaseTable::default();
        let start = Instant::now();
        let later = start + LEASE * 2;
        let runs: Vec<RunId> = (1..4).map(run).collect();
        let stops: Vec<StopSignal> = runs
            .iter()
            .map(|run| table.track(lease(*run, 1, at(30), later)))
            .collect();
        let asked = table.to_renew();
        assert_eq!(asked.len(), 3);
        // The third run's retry was claimed during the renewal.
        table.untrack(runs[2], 1);
        let again = table.track(lease(runs[2], 2, at(40), start + LEASE));
        table.untrack(runs[2], 1);
        table.note_renewal(&asked, &[(runs[0], None)], at(60), later);
        assert_eq!(
            [&stops[0], &stops[1], &again].map(StopSignal::is_dropped),
            [false, true, false]
        );
        assert_eq!(table.to_renew(), [(runs[0], 1), (runs[2], 2)]);
        assert_eq!(table.first_expiry(), Some(at(40)));
        assert_eq!(table.drop_expired(at(40), start), 1);
        assert!(again.is_dropped() && !stops[0].is_dropped());
        // The clock was set back, and the monotonic clock moved on.
        assert_eq!(table.drop_expired(at(0), later), 1);
        assert!(stops[0].is_dropped());
    }
}
