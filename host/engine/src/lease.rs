//! The host's signs of life: its heartbeat, and the leases of the runs it holds.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::{Engine, EngineError, Work};
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_sandbox::StopSignal;
use campanile_store::{hosts, runs};

/// A run that this host holds.
struct Held {
    /// The fence that proves the holding.
    fence: i64,
    stop: StopSignal,
    /// Until when the holding is proven, on the clock of the record.
    lease_until: Timestamp,
    /// The same on the monotonic clock. Both are asked: the one may be set back, the other stands still while the machine sleeps.
    proven_until: Instant,
    /// Set when it was asked to end: until when it may take its time.
    cancel_deadline: Option<Timestamp>,
}

/// The runs that this host holds.
#[derive(Default)]
pub(super) struct Holding(Mutex<HashMap<RunId, Held>>);

impl Holding {
    /// Hold what was taken, for as long as it was taken for.
    pub(super) fn add(&self, work: &Work) -> StopSignal {
        self.hold(work.run_id, work.fence, work.lease_until, work.proven_until)
    }

    fn hold(
        &self,
        run: RunId,
        fence: i64,
        lease_until: Timestamp,
        proven_until: Instant,
    ) -> StopSignal {
        let stop = StopSignal::default();
        let held = Held {
            fence,
            stop: stop.clone(),
            lease_until,
            proven_until,
            cancel_deadline: None,
        };
        self.lock().insert(run, held);
        stop
    }

    /// Hold a run no more, unless it was taken anew since then, after a retry's pause.
    pub(super) fn remove(&self, run: RunId, fence: i64) {
        let mut runs = self.lock();
        if runs.get(&run).is_some_and(|held| held.fence == fence) {
            runs.remove(&run);
        }
    }

    pub(super) fn runs(&self) -> Vec<RunId> {
        self.lock().keys().copied().collect()
    }

    /// When the first of the leases ends.
    pub(super) fn first_end(&self) -> Option<Timestamp> {
        let runs = self.lock();
        runs.values()
            .filter(|held| !held.stop.is_dropped())
            .map(|held| held.lease_until)
            .min()
    }

    /// Ask every task to stop.
    pub(super) fn ask_to_stop(&self) {
        for held in self.lock().values() {
            held.stop.request();
        }
    }

    /// Drop every call; gives the runs that were dropped. Each lets go of itself when its call is gone.
    pub(super) fn drop_all(&self) -> Vec<RunId> {
        let runs = self.lock();
        for held in runs.values() {
            held.stop.drop_now();
        }
        runs.keys().copied().collect()
    }

    /// What is to be renewed, each with its fence. A run that was dropped is not: nobody carries it out.
    fn to_renew(&self) -> Vec<(RunId, i64)> {
        let runs = self.lock();
        let mut held: Vec<(RunId, i64)> = runs
            .iter()
            .filter(|(_, held)| !held.stop.is_dropped())
            .map(|(run, held)| (*run, held.fence))
            .collect();
        // In one order with whoever else changes these rows.
        held.sort_unstable_by_key(|(run, _)| *run);
        held
    }

    /// Note what a renewal proved, ask those to end that are to, and drop the runs that were held when it began and
    /// are no longer.
    ///
    /// Among these are runs whose end went on the record meanwhile; to them dropping does nothing.
    fn renewed(
        &self,
        before: &[(RunId, i64)],
        held: &[(RunId, Option<Timestamp>)],
        lease_until: Timestamp,
        proven_until: Instant,
    ) {
        let held: HashMap<RunId, Option<Timestamp>> = held.iter().copied().collect();
        let mut runs = self.lock();
        for (run, fence) in before {
            match runs.get_mut(run) {
                Some(entry) if entry.fence != *fence => {}
                Some(entry) => match held.get(run) {
                    Some(cancel_deadline) => {
                        entry.lease_until = lease_until;
                        entry.proven_until = proven_until;
                        entry.cancel_deadline = *cancel_deadline;
                        if cancel_deadline.is_some() {
                            entry.stop.cancel();
                        }
                    }
                    None => entry.stop.drop_now(),
                },
                None => {}
            }
        }
    }

    /// Drop the runs that were asked to end and have taken their time.
    fn drop_cancelled(&self, now: Timestamp) {
        let runs = self.lock();
        runs.values()
            .filter(|held| {
                held.cancel_deadline
                    .is_some_and(|cancel_deadline| cancel_deadline <= now)
            })
            .for_each(|held| held.stop.drop_now());
    }

    /// Drop the runs whose lease has run out: another host may hold them now. Gives how many those are.
    fn drop_expired(&self, now: Timestamp, instant: Instant) -> usize {
        let runs = self.lock();
        runs.values()
            .filter(|held| held.lease_until <= now || held.proven_until <= instant)
            .filter(|held| !held.stop.is_dropped())
            .inspect(|held| held.stop.drop_now())
            .count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Since when this host's own heartbeat has been on the record without a gap.
#[derive(Default)]
pub(super) struct Pulse(Mutex<Option<Beats>>);

#[derive(Clone, Copy)]
struct Beats {
    since: Timestamp,
    last: Timestamp,
}

impl Pulse {
    /// A heartbeat went on the record at `now`.
    pub(super) fn beat(&self, now: Timestamp, gap_max: Duration) {
        let mut beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let since = match *beats {
            Some(before) if now.since(before.last) <= gap_max => before.since,
            _ => now,
        };
        *beats = Some(Beats { since, last: now });
    }

    /// Whether the record has been open to heartbeats for at least `span` up to `now`.
    ///
    /// Only then does another host's silence mean that it is gone: after an outage of the database,
    /// or a sleep of the machine, every host on the record looks silent, this one too.
    pub(super) fn is_witness(&self, now: Timestamp, span: Duration) -> bool {
        let beats = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        beats.is_some_and(|beats| now.since(beats.since) >= span && now.since(beats.last) <= span)
    }
}

impl Engine {
    /// Say that this host lives and still runs what it holds.
    ///
    /// A run that is no longer this host's is dropped at once, and whatever it still tries is refused.
    pub async fn renew(&self, now: Timestamp) -> Result<(), EngineError> {
        let lease_until = now.plus(self.settings.lease);
        let proven_until = Instant::now() + self.settings.lease;
        let before = self.holding.to_renew();
        let mut tx = self.db.write().await?;
        let was_buried = !hosts::heartbeat(&mut tx, self.host, now).await?;
        if was_buried {
            hosts::revive(&mut tx, self.host, now).await?;
            self.publish_all(&mut tx).await?;
            tracing::warn!(host = %self.name, "this host had been silent for so long that others took its runs over; it goes on with new ones");
        }
        let held = runs::renew(&mut tx, &before, lease_until).await?;
        tx.commit().await?;
        if was_buried {
            // What it said of files that it cannot use was forgotten with it.
            self.told.tell_again();
            self.wake.folder();
        }
        self.pulse.beat(now, self.settings.lease);
        self.holding
            .renewed(&before, &held, lease_until, proven_until);
        Ok(())
    }

    /// Drop the runs that were asked to end and have not in their time, and those whose lease has run out because it
    /// could not be renewed.
    pub fn drop_expired(&self, now: Timestamp) {
        self.holding.drop_cancelled(now);
        let dropped = self.holding.drop_expired(now, Instant::now());
        if dropped > 0 {
            tracing::warn!(
                runs = dropped,
                "dropped runs whose lease could not be renewed in time"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    #[test]
    fn silence_is_witnessed_only_by_a_host_that_was_heard_all_along() {
        let pulse = Pulse::default();
        assert!(!pulse.is_witness(at(0), LEASE));
        for second in [0, 10, 20] {
            assert!(!pulse.is_witness(at(second), LEASE));
            pulse.beat(at(second), LEASE);
        }
        pulse.beat(at(30), LEASE);
        assert!(pulse.is_witness(at(30), LEASE));
        assert!(pulse.is_witness(at(60), LEASE));
        // An outage: nobody was heard.
        assert!(!pulse.is_witness(at(61), LEASE));
        pulse.beat(at(100), LEASE);
        assert!(!pulse.is_witness(at(101), LEASE));
        pulse.beat(at(130), LEASE);
        assert!(pulse.is_witness(at(131), LEASE));
    }

    #[test]
    fn a_run_that_was_asked_to_end_is_dropped_when_it_has_had_its_time() {
        let holding = Holding::default();
        let later = Instant::now() + LEASE * 2;
        let runs = [at(0), at(1)].map(RunId::new);
        let stops = runs.map(|run| holding.hold(run, 1, at(60), later));
        let held = [(runs[0], Some(at(20))), (runs[1], None)];
        holding.renewed(&holding.to_renew(), &held, at(60), later);
        let asked = |stop: &StopSignal| (stop.is_cancelled(), stop.is_requested());
        assert_eq!(stops.each_ref().map(asked), [(true, true), (false, false)]);
        holding.drop_cancelled(at(19));
        assert!(!stops[0].is_dropped());
        holding.drop_cancelled(at(20));
        assert_eq!(stops.each_ref().map(StopSignal::is_dropped), [true, false]);
    }

    #[test]
    fn a_lost_run_is_dropped_and_a_run_taken_anew_is_not() {
        let holding = Holding::default();
        let start = Instant::now();
        let later = start + LEASE * 2;
        let runs: Vec<RunId> = (0..3).map(|second| RunId::new(at(second))).collect();
        let stops: Vec<StopSignal> = runs
            .iter()
            .map(|run| holding.hold(*run, 1, at(30), later))
            .collect();
        let before = holding.to_renew();
        assert_eq!(before.len(), 3);
        // The third one's retry was taken while the renewal was under way.
        holding.remove(runs[2], 1);
        let anew = holding.hold(runs[2], 2, at(40), start + LEASE);
        holding.remove(runs[2], 1);
        holding.renewed(&before, &[(runs[0], None)], at(60), later);
        assert_eq!(
            [&stops[0], &stops[1], &anew].map(StopSignal::is_dropped),
            [false, true, false]
        );
        // What is dropped is not renewed: its lease must run out.
        assert_eq!(holding.to_renew(), [(runs[0], 1), (runs[2], 2)]);
        assert_eq!(holding.first_end(), Some(at(40)));
        assert_eq!(holding.drop_expired(at(40), start), 1);
        assert!(anew.is_dropped() && !stops[0].is_dropped());
        // The clock was set back; time passed all the same.
        assert_eq!(holding.drop_expired(at(0), later), 1);
        assert!(stops[0].is_dropped());
    }
}
