//! New events of the record, each once, read again and again.

use std::collections::HashSet;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::EventId;
use campanile_store::events::{self, Event};
use campanile_store::{DbError, Tx};

/// Transactions that overlap may commit later events with earlier ids. Ids of this time are read again.
pub const EVENTS_OVERLAP: Duration = Duration::from_secs(10);
/// The most events that one statement returns.
const EVENTS_MAX: i64 = 1_000;

/// The events that were read before, as far as they may be read again.
#[derive(Default)]
pub struct EventFeed {
    seen: HashSet<EventId>,
}

impl EventFeed {
    /// Returns the events recorded since the last call, oldest first.
    pub async fn read(&mut self, tx: &mut Tx, now: Timestamp) -> Result<Vec<Event>, DbError> {
        let from = EventId::first_at(now.minus(EVENTS_OVERLAP));
        self.forget_before(now);
        let (mut after, mut all) = (from, Vec::new());
        loop {
            let page = events::list_after(tx, after, EVENTS_MAX).await?;
            let is_last = (page.len() as i64) < EVENTS_MAX;
            after = page.last().map_or(after, |event| event.id);
            all.extend(self.unseen(page));
            if is_last {
                return Ok(all);
            }
        }
    }

    /// Forget the events that cannot be read again at `now`.
    pub fn forget_before(&mut self, now: Timestamp) {
        let from = EventId::first_at(now.minus(EVENTS_OVERLAP));
        self.seen.retain(|id| *id >= from);
    }

    /// Returns those of `events` not returned before.
    pub fn unseen(&mut self, events: Vec<Event>) -> Vec<Event> {
        let unseen = events
            .into_iter()
            .filter(|event| self.seen.insert(event.id));
        unseen.collect()
    }
}
