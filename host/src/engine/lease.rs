//! The host's signs of life: its heartbeat, and the leases of the runs it holds.

use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, PoisonError};

use super::{Engine, EngineError};
use crate::clock::Timestamp;
use crate::db::{hosts, runs};
use crate::ids::RunId;
use crate::wasm::StopSignal;

/// A run that this host holds.
struct Held {
    stop: StopSignal,
    /// Until when the holding is proven.
    lease_until: Timestamp,
}

/// The runs that this host holds.
#[derive(Default)]
pub(super) struct Holding(Mutex<HashMap<RunId, Held>>);

impl Holding {
    pub(super) fn add(&self, run: RunId, lease_until: Timestamp) -> StopSignal {
        let stop = StopSignal::default();
        let held = Held {
            stop: stop.clone(),
            lease_until,
        };
        self.lock().insert(run, held);
        stop
    }

    pub(super) fn remove(&self, run: RunId) {
        self.lock().remove(&run);
    }

    pub(super) fn runs(&self) -> Vec<RunId> {
        self.lock().keys().copied().collect()
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

    /// Note what a renewal proved; gives the runs that were held when it began and are no longer.
    fn renewed(&self, before: &[RunId], held: &[RunId], lease_until: Timestamp) -> Vec<RunId> {
        let held: HashSet<&RunId> = held.iter().collect();
        let mut runs = self.lock();
        before
            .iter()
            .filter(|run| match runs.get_mut(run) {
                Some(entry) if held.contains(run) => {
                    entry.lease_until = lease_until;
                    false
                }
                Some(_) => true,
                None => false,
            })
            .copied()
            .collect()
    }

    /// Stop the runs whose lease has run out: another host may hold them now.
    fn stop_expired(&self, now: Timestamp) -> usize {
        let expired = |held: &&Held| held.lease_until <= now;
        let runs = self.lock();
        runs.values()
            .filter(expired)
            .inspect(|held| held.stop.drop_now())
            .count()
    }

    fn stop(&self, runs: &[RunId]) {
        let holding = self.lock();
        for held in runs.iter().filter_map(|run| holding.get(run)) {
            held.stop.drop_now();
        }
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
        let before = self.holding.runs();
        let mut tx = self.db.write().await?;
        if !hosts::beat(&mut tx, self.host, now).await? {
            hosts::revive(&mut tx, self.host, now).await?;
            self.publish_all(&mut tx).await?;
            tracing::warn!(host = %self.name, "this host had been silent for so long that others took its runs over; it goes on with new ones");
        }
        let held = runs::renew(&mut tx, self.host, lease_until).await?;
        tx.commit().await?;
        let lost = self.holding.renewed(&before, &held, lease_until);
        if !lost.is_empty() {
            // Runs whose end is being recorded just now are not running any more either; dropping them changes nothing.
            self.holding.stop(&lost);
        }
        Ok(())
    }

    /// Drop the runs whose lease has run out because it could not be renewed.
    pub fn drop_expired(&self, now: Timestamp) {
        let dropped = self.holding.stop_expired(now);
        if dropped > 0 {
            tracing::warn!(
                runs = dropped,
                "dropped runs whose lease could not be renewed in time"
            );
        }
    }
}
