//! The host's signs of life: its heartbeat, and the leases of the runs it holds.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::{Engine, EngineError, Work};
use crate::clock::Timestamp;
use crate::db::{hosts, runs};
use crate::ids::RunId;
use crate::wasm::StopSignal;

/// A run that this host holds.
struct Held {
    /// The fence that proves the holding.
    token: i64,
    stop: StopSignal,
    /// Until when the holding is proven.
    lease_until: Timestamp,
}

/// The runs that this host holds.
#[derive(Default)]
pub(super) struct Holding(Mutex<HashMap<RunId, Held>>);

impl Holding {
    /// Hold what was taken, for as long as it was taken for.
    pub(super) fn add(&self, work: &Work) -> StopSignal {
        let stop = StopSignal::default();
        let held = Held {
            token: work.token,
            stop: stop.clone(),
            lease_until: work.lease_until,
        };
        self.lock().insert(work.run_id, held);
        stop
    }

    /// Hold a run no more, unless it was taken anew since then, after a retry's pause.
    pub(super) fn remove(&self, run: RunId, token: i64) {
        let mut runs = self.lock();
        if runs.get(&run).is_some_and(|held| held.token == token) {
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

    /// Drop every call.
    pub(super) fn drop_all(&self) {
        for held in self.lock().values() {
            held.stop.drop_now();
        }
    }

    /// What is to be renewed, each with its fence. A run that was dropped is not: nobody carries it out.
    fn to_renew(&self) -> Vec<(RunId, i64)> {
        let runs = self.lock();
        let mut held: Vec<(RunId, i64)> = runs
            .iter()
            .filter(|(_, held)| !held.stop.is_dropped())
            .map(|(run, held)| (*run, held.token))
            .collect();
        // In one order with whoever else changes these rows.
        held.sort_unstable_by_key(|(run, _)| *run);
        held
    }

    /// Note what a renewal proved, and drop the runs that were held when it began and are no longer.
    ///
    /// Among these are runs whose end went on the record meanwhile; to them dropping does nothing.
    fn renewed(&self, before: &[(RunId, i64)], held: &[RunId], lease_until: Timestamp) {
        let held: HashSet<&RunId> = held.iter().collect();
        let mut runs = self.lock();
        for (run, token) in before {
            match runs.get_mut(run) {
                Some(entry) if entry.token != *token => {}
                Some(entry) if held.contains(run) => entry.lease_until = lease_until,
                Some(entry) => entry.stop.drop_now(),
                None => {}
            }
        }
    }

    /// Drop the runs whose lease has run out: another host may hold them now. Gives how many those are.
    fn drop_expired(&self, now: Timestamp) -> usize {
        let runs = self.lock();
        runs.values()
            .filter(|held| held.lease_until <= now && !held.stop.is_dropped())
            .inspect(|held| held.stop.drop_now())
            .count()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<RunId, Held>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Engine {
    /// Say that this host lives and still runs what it holds.
    ///
    /// A run that is no longer this host's is dropped at once, and whatever it still tries is refused.
    pub async fn renew(&self, now: Timestamp) -> Result<(), EngineError> {
        let lease_until = now.plus(self.settings.lease);
        let before = self.holding.to_renew();
        let mut tx = self.db.write().await?;
        if !hosts::beat(&mut tx, self.host, now).await? {
            hosts::revive(&mut tx, self.host, now).await?;
            self.publish_all(&mut tx).await?;
            tracing::warn!(host = %self.name, "this host had been silent for so long that others took its runs over; it goes on with new ones");
        }
        let held = runs::renew(&mut tx, &before, lease_until).await?;
        tx.commit().await?;
        self.holding.renewed(&before, &held, lease_until);
        Ok(())
    }

    /// Drop the runs whose lease has run out because it could not be renewed.
    pub fn drop_expired(&self, now: Timestamp) {
        let dropped = self.holding.drop_expired(now);
        if dropped > 0 {
            tracing::warn!(
                runs = dropped,
                "dropped runs whose lease could not be renewed in time"
            );
        }
    }
}
