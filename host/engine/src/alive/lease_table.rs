//! The lease table: which runs this host has claimed, until when each claim is proven, and which have made no call yet.
//!
//! A run dropped before its first call has done nothing, so its claim is handed back and the run doesn't count. Only this host
//! knows that: once it's dead, the run counts as lost.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use campanile_control::lock::lock;
use campanile_model::clock::{Clock, Monotonic, Timestamp};
use campanile_model::ids::{LaunchId, RunId};
use campanile_sandbox::StopSignal;
use campanile_store::launch::UncalledClaim;

/// A measurement of the database's clock that may be wrong by more is none.
pub(crate) const CLOCK_ERROR_MAX: Duration = Duration::from_secs(1);

/// How long to keep handing back a claim missing from the database, because its transaction may still be open. The server ends a
/// transaction after 8 s of inactivity.
const HAND_BACK_WAIT: Duration = Duration::from_secs(60);

/// A lease of this duration ends for its holder so much earlier than others may take the run over.
///
/// Within this margin, the clocks of two hosts may differ, each by its greatest error, and what a run began before its lease
/// ended can end. A lease too short for that keeps a quarter.
fn margin(lease: Duration) -> Duration {
    (lease / 10).max((CLOCK_ERROR_MAX * 2).min(lease / 4))
}

/// Returns until when the holder of a lease acts. On record, the lease counts from `begun` too.
pub(crate) fn held_until(begun: Monotonic, lease: Duration) -> Monotonic {
    begun.plus(lease - margin(lease))
}

/// The proof that this host has claimed a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Lease {
    pub(crate) run: RunId,
    pub(crate) fence: i64,
    /// Whether the claim begins the run or continues it after a retry's pause.
    pub(crate) begins_run: bool,
    /// When the run is dropped: [`held_until`]. It is before the end of the lease on record.
    pub(crate) until: Monotonic,
}

impl Lease {
    fn uncalled(&self) -> UncalledClaim {
        UncalledClaim {
            launch_id: self.run.launch(),
            fence: self.fence,
            begins_run: self.begins_run,
            lease_until: None,
            not_before: None,
        }
    }
}

struct Entry {
    lease: Lease,
    stop: StopSignal,
    /// Set when the run was asked to end: the end of its grace, as it is on record and by this host's monotonic clock.
    cancel_deadline: Option<(Timestamp, Monotonic)>,
    /// Whether the run was dropped, and for which reason is logged.
    is_dropped: bool,
    /// Whether any call has begun.
    is_called: bool,
}

impl Entry {
    fn drop_now(&mut self) {
        self.is_dropped = true;
        self.stop.drop_now();
    }

    /// Whether the run was dropped before its first call. A run asked to end is cancelled instead.
    fn is_uncalled(&self) -> bool {
        !self.is_called && self.stop.is_dropped() && self.cancel_deadline.is_none()
    }
}

/// A claim to hand back.
struct HandBack {
    claim: UncalledClaim,
    /// Gives up at this point: recovery has found the claim, or it was never recorded.
    until: Monotonic,
}

/// The tracked runs of this host.
pub(crate) struct LeaseTable {
    clock: Clock,
    entries: Mutex<HashMap<RunId, Entry>>,
    /// Locked after the entries.
    uncalled: Mutex<HashMap<(LaunchId, i64), HandBack>>,
    /// Runs that ended because their lease was over, before [`LeaseTable::drop_expired`] noticed.
    expired: AtomicUsize,
}

impl LeaseTable {
    /// Create a table whose leases end by the monotonic time of `clock`.
    pub(crate) fn new(clock: Clock) -> LeaseTable {
        LeaseTable {
            clock,
            entries: Mutex::default(),
            uncalled: Mutex::default(),
            expired: AtomicUsize::new(0),
        }
    }

    fn entries(&self) -> MutexGuard<'_, HashMap<RunId, Entry>> {
        lock(&self.entries)
    }

    /// Track a claimed run. Return the signal that stops it.
    pub(crate) fn track(&self, lease: Lease) -> StopSignal {
        let stop = StopSignal::default();
        stop.set_lease(&self.clock, lease.until);
        let entry = Entry {
            lease,
            stop: stop.clone(),
            cancel_deadline: None,
            is_dropped: false,
            is_called: false,
        };
        self.entries().insert(lease.run, entry);
        // If the database has lost the former claim, it hands out the same fence again.
        lock(&self.uncalled).remove(&(lease.run.launch(), lease.fence));
        stop
    }

    /// Notes the beginning of a call. False forbids the call because the run was dropped.
    pub(crate) fn begin_call(&self, run: RunId, fence: i64) -> bool {
        let mut entries = self.entries();
        let Some(entry) = entries.get_mut(&run) else {
            return false;
        };
        let may_begin = entry.lease.fence == fence && !entry.stop.is_dropped();
        entry.is_called |= may_begin;
        may_begin
    }

    /// Stop tracking a run, unless it has been claimed again under another fence, after a retry's pause.
    pub(crate) fn untrack(&self, run: RunId, fence: i64) {
        if let Some(entry) = self.remove(run, fence)
            && entry.is_uncalled()
        {
            self.hand_back(entry.lease.uncalled());
        }
    }

    /// Stops tracking a run after a failure on this host's side, handing it back if it made no call. No host claims the launch
    /// before `not_before`.
    pub(crate) fn give_up(&self, run: RunId, fence: i64, not_before: Timestamp) {
        let Some(entry) = self.remove(run, fence).filter(|entry| !entry.is_called) else {
            return;
        };
        let is_dropped = entry.stop.is_dropped();
        self.hand_back(UncalledClaim {
            not_before: (!is_dropped).then_some(not_before),
            ..entry.lease.uncalled()
        });
    }

    fn remove(&self, run: RunId, fence: i64) -> Option<Entry> {
        let mut entries = self.entries();
        let has_fence = |entry: &Entry| entry.lease.fence == fence;
        if !entries.get(&run).is_some_and(has_fence) {
            return None;
        }
        let entry = entries.remove(&run)?;
        if entry.is_called && !entry.is_dropped && entry.stop.is_lease_over() {
            self.expired.fetch_add(1, Ordering::Relaxed);
        }
        Some(entry)
    }

    /// Schedules a claim for handing back.
    fn hand_back(&self, claim: UncalledClaim) {
        let key = (claim.launch_id, claim.fence);
        let until = self.clock.monotonic().plus(HAND_BACK_WAIT);
        lock(&self.uncalled).insert(key, HandBack { claim, until });
    }

    /// Keeps a transaction's claims, handing them back unless they're known to be recorded. `until` is when their leases end on
    /// record.
    pub(crate) fn in_doubt(
        &self,
        claims: impl Iterator<Item = Lease>,
        until: Timestamp,
    ) -> ClaimsInDoubt<'_> {
        let claims = claims.map(|lease| UncalledClaim {
            lease_until: Some(until),
            ..lease.uncalled()
        });
        ClaimsInDoubt {
            table: self,
            claims: claims.collect(),
        }
    }

    /// Returns the claims to hand back, ordered by launch.
    pub(crate) fn uncalled(&self) -> Vec<UncalledClaim> {
        let entries = self.entries();
        let dropped = entries.values().filter(|entry| entry.is_uncalled());
        let mut claims: Vec<UncalledClaim> = dropped.map(|entry| entry.lease.uncalled()).collect();
        drop(entries);
        let now = self.clock.monotonic();
        let mut uncalled = lock(&self.uncalled);
        uncalled.retain(|_, hand_back| now < hand_back.until);
        claims.extend(uncalled.values().map(|hand_back| hand_back.claim));
        claims.sort_unstable_by_key(|claim| (claim.launch_id, claim.fence));
        claims.dedup_by_key(|claim| (claim.launch_id, claim.fence));
        claims
    }

    /// Forgets claims already handed back.
    pub(crate) fn note_handed_back(&self, claims: &[UncalledClaim], launches: &[LaunchId]) {
        let launches: HashSet<LaunchId> = launches.iter().copied().collect();
        let mut uncalled = lock(&self.uncalled);
        for claim in claims {
            if launches.contains(&claim.launch_id) {
                uncalled.remove(&(claim.launch_id, claim.fence));
            }
        }
    }

    /// Returns how many runs are tracked.
    pub(crate) fn len(&self) -> usize {
        self.entries().len()
    }

    /// Returns in what time the first lease expires.
    pub(crate) fn until_first_expiry(&self) -> Option<Duration> {
        let entries = self.entries();
        let kept = entries.values().filter(|entry| !entry.stop.is_dropped());
        let first = kept.map(|entry| entry.lease.until).min();
        first.map(|until| until.since(self.clock.monotonic()))
    }

    /// Ask every task to stop.
    pub(crate) fn request_stop(&self) {
        for entry in self.entries().values() {
            entry.stop.request();
        }
    }

    /// Drop every call. Return the runs that were dropped; each is untracked when its call is gone.
    pub(crate) fn drop_all(&self) -> Vec<RunId> {
        let mut entries = self.entries();
        for entry in entries.values_mut() {
            entry.drop_now();
        }
        entries.keys().copied().collect()
    }

    /// Returns the runs to renew, each with its fence. A dropped run is left out: its lease must expire.
    pub(crate) fn to_renew(&self) -> Vec<(RunId, i64)> {
        let entries = self.entries();
        let kept = entries.values().filter(|entry| !entry.stop.is_dropped());
        let leases = kept.map(|entry| (entry.lease.run, entry.lease.fence));
        let mut leases: Vec<(RunId, i64)> = leases.collect();
        // Every transaction changes these rows in the order of their ids, so that none waits for another in a circle.
        leases.sort_unstable_by_key(|(run, _)| *run);
        leases
    }

    /// Note what a renewal of `asked` proved at `now`. Cancel the runs that are to end, and drop those no longer `held`.
    ///
    /// Runs that ended meanwhile are not held either; to drop them does nothing.
    pub(crate) fn note_renewal(
        &self,
        asked: &[(RunId, i64)],
        held: &[(RunId, Option<Timestamp>)],
        until: Monotonic,
        now: Timestamp,
    ) {
        let held: HashMap<RunId, Option<Timestamp>> = held.iter().copied().collect();
        let monotonic = self.clock.monotonic();
        let mut entries = self.entries();
        for (run, fence) in asked {
            let entry = entries.get_mut(run);
            let Some(entry) = entry.filter(|entry| entry.lease.fence == *fence) else {
                continue;
            };
            let Some(cancel_deadline) = held.get(run) else {
                entry.drop_now();
                continue;
            };
            entry.lease.until = until;
            entry.stop.set_lease(&self.clock, until);
            if let Some(deadline) = *cancel_deadline {
                // A step of the clock does not shorten a grace that has begun.
                let known = entry.cancel_deadline.filter(|known| known.0 == deadline);
                let end = || (deadline, monotonic.plus(deadline.since(now)));
                entry.cancel_deadline = Some(known.unwrap_or_else(end));
                entry.stop.cancel();
            }
        }
    }

    /// Drop the runs that were asked to end and whose grace is over.
    pub(crate) fn drop_cancelled(&self) {
        let now = self.clock.monotonic();
        for entry in self.entries().values_mut() {
            if entry.cancel_deadline.is_some_and(|(_, end)| end <= now) {
                entry.drop_now();
            }
        }
    }

    /// Drops runs with expired leases. Returns how many had called a task, among these and those stopping by themselves since the
    /// last call.
    pub(crate) fn drop_expired(&self) -> usize {
        let mut entries = self.entries();
        let kept = entries.values_mut().filter(|entry| !entry.is_dropped);
        let expired = kept.filter(|entry| entry.stop.is_lease_over());
        let mut called = 0;
        for entry in expired {
            entry.drop_now();
            called += usize::from(entry.is_called);
        }
        called + self.expired.swap(0, Ordering::Relaxed)
    }
}

/// Claims of a transaction whose commit hasn't been confirmed.
pub(crate) struct ClaimsInDoubt<'t> {
    table: &'t LeaseTable,
    claims: Vec<UncalledClaim>,
}

impl ClaimsInDoubt<'_> {
    /// Confirms the claims: they're recorded, and this host executes their runs.
    pub(crate) fn settle(mut self) {
        self.claims.clear();
    }
}

impl Drop for ClaimsInDoubt<'_> {
    fn drop(&mut self) {
        for claim in self.claims.drain(..) {
            self.table.hand_back(claim);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    /// The monotonic time of the simulated clock at `at(seconds)`.
    fn monotonic(seconds: u64) -> Monotonic {
        Clock::simulated(at(seconds)).monotonic()
    }

    fn run(number: i64) -> RunId {
        RunId::of(LaunchId(uuid::Uuid::nil()), number)
    }

    fn lease(run: RunId, fence: i64, until: u64) -> Lease {
        Lease {
            run,
            fence,
            begins_run: true,
            until: monotonic(until),
        }
    }

    fn table() -> (LeaseTable, Clock) {
        let clock = Clock::simulated(at(0));
        (LeaseTable::new(clock.clone()), clock)
    }

    #[test]
    fn a_lease_ends_for_its_holder_before_others_may_take_over() {
        for (lease, held_ms) in [(30, 27_000), (8, 6_000), (4, 3_000)] {
            let until = held_until(monotonic(100), Duration::from_secs(lease));
            let held = until.since(monotonic(100));
            assert_eq!(held, Duration::from_millis(held_ms));
        }
    }

    #[test]
    fn a_run_that_was_asked_to_end_is_dropped_after_its_grace() {
        let (table, clock) = table();
        let runs = [1, 2].map(run);
        let stops = runs.map(|run| table.track(lease(run, 1, 60)));
        let held = [(runs[0], Some(at(20))), (runs[1], None)];
        table.note_renewal(&table.to_renew(), &held, monotonic(60), at(0));
        let asked = |stop: &StopSignal| (stop.is_cancelled(), stop.is_requested());
        assert_eq!(stops.each_ref().map(asked), [(true, true), (false, false)]);
        clock.advance_to(at(19));
        // The database's time has stepped ahead. The grace has begun before.
        table.note_renewal(&table.to_renew(), &held, monotonic(60), at(3_600));
        table.drop_cancelled();
        assert!(!stops[0].is_dropped());
        clock.advance_to(at(20));
        table.drop_cancelled();
        assert_eq!(stops.each_ref().map(StopSignal::is_dropped), [true, false]);
        assert_eq!(table.drop_expired(), 0);
    }

    #[test]
    fn a_lost_run_is_dropped_and_a_run_claimed_again_is_not() {
        let (table, clock) = table();
        let runs: Vec<RunId> = (1..4).map(run).collect();
        let stops: Vec<StopSignal> = runs
            .iter()
            .map(|run| table.track(lease(*run, 1, 30)))
            .collect();
        let asked = table.to_renew();
        assert_eq!(asked.len(), 3);
        // The third run's retry was claimed during the renewal.
        table.untrack(runs[2], 1);
        let again = table.track(lease(runs[2], 2, 40));
        assert!(table.begin_call(runs[2], 2) && !table.begin_call(runs[2], 1));
        table.untrack(runs[2], 1);
        table.note_renewal(&asked, &[(runs[0], None)], monotonic(60), at(0));
        assert_eq!(
            [&stops[0], &stops[1], &again].map(StopSignal::is_dropped),
            [false, true, false]
        );
        assert_eq!(table.to_renew(), [(runs[0], 1), (runs[2], 2)]);
        assert_eq!(table.until_first_expiry(), Some(Duration::from_secs(40)));
        clock.advance_to(at(40));
        assert_eq!(table.drop_expired(), 1);
        assert!(again.is_dropped() && !stops[0].is_dropped());
    }

    #[test]
    fn a_run_that_noticed_the_end_of_its_lease_itself_is_counted_once() {
        let (table, clock) = table();
        let stops = [1, 2].map(|number| table.track(lease(run(number), 1, 30)));
        assert!(
            [1, 2]
                .into_iter()
                .all(|number| table.begin_call(run(number), 1))
        );
        clock.advance_to(at(30));
        assert!(stops[0].is_dropped());
        assert_eq!(table.to_renew(), []);
        table.untrack(run(1), 1);
        assert_eq!(table.drop_expired(), 2);
        table.untrack(run(2), 1);
        assert_eq!(table.drop_expired(), 0);
    }

    fn launch(number: u128) -> RunId {
        RunId::of(LaunchId(uuid::Uuid::from_u128(number << 8)), 1)
    }

    fn uncalled(table: &LeaseTable) -> Vec<LaunchId> {
        let claims = table.uncalled();
        claims.into_iter().map(|claim| claim.launch_id).collect()
    }

    #[test]
    fn a_run_that_is_dropped_before_its_first_call_is_handed_back_until_that_is_done() {
        let (table, clock) = table();
        let [called, dropped, ended, cancelled] = [1, 2, 3, 4].map(launch);
        for run in [called, dropped, ended, cancelled] {
            table.track(lease(run, 1, 30));
        }
        assert!(table.begin_call(called, 1));
        let held = [(cancelled, Some(at(60)))];
        table.note_renewal(&[(cancelled, 1)], &held, monotonic(30), at(0));
        assert_eq!(uncalled(&table), []);
        clock.advance_to(at(30));
        assert_eq!(uncalled(&table), [dropped.launch(), ended.launch()]);
        assert!(!table.begin_call(dropped, 1), "it is dropped for good");
        table.note_renewal(&[(dropped, 1)], &[(dropped, None)], monotonic(90), at(30));
        assert!(!table.begin_call(dropped, 1));
        table.untrack(ended, 1);
        table.untrack(dropped, 1);
        let claims = table.uncalled();
        assert_eq!(uncalled(&table), [dropped.launch(), ended.launch()]);
        table.note_handed_back(&claims, &[ended.launch()]);
        assert_eq!(uncalled(&table), [dropped.launch()]);
        // The same claim is made again after the database lost it.
        table.track(lease(dropped, 1, 60));
        assert_eq!(uncalled(&table), []);
    }

    #[test]
    fn a_claim_without_an_answer_is_handed_back_for_a_while() {
        let (table, clock) = table();
        let leases = || {
            [1, 2]
                .map(|number| lease(launch(number), 1, 30))
                .into_iter()
        };
        table.in_doubt(leases(), at(40)).settle();
        assert_eq!(uncalled(&table), []);
        drop(table.in_doubt(leases(), at(40)));
        let claims = table.uncalled();
        assert!(claims.iter().all(|claim| claim.lease_until == Some(at(40))));
        assert_eq!(claims.len(), 2);
        clock.advance_to(at(60));
        assert_eq!(uncalled(&table), []);
    }

    #[test]
    fn a_run_that_this_host_could_not_begin_is_handed_back_with_a_pause() {
        let (table, clock) = table();
        let [failed, called, dropped] = [1, 2, 3].map(launch);
        for run in [failed, called] {
            table.track(lease(run, 1, 30));
        }
        table.begin_call(called, 1);
        for run in [failed, called] {
            table.give_up(run, 1, at(70));
        }
        table.track(lease(dropped, 1, 5));
        clock.advance_to(at(5));
        table.give_up(dropped, 1, at(70));
        let claims = table.uncalled();
        let pauses: Vec<_> = claims.iter().map(|claim| claim.not_before).collect();
        assert_eq!(pauses, [Some(at(70)), None]);
    }
}
