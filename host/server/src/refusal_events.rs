//! The events of refused requests.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::app::State;
use crate::refusals::Due;
use campanile_store::DbError;
use campanile_store::events::{self, EventKind};

/// The time between two looks for events that are due.
const LOOK_INTERVAL: Duration = Duration::from_secs(1);
/// How long a stopping host may take to record the last ones.
const LAST_WAIT: Duration = Duration::from_secs(2);

/// Records the events of refused requests, until this is dropped.
pub(crate) async fn record(state: Arc<State>) {
    loop {
        sleep(LOOK_INTERVAL).await;
        record_due(&state, false).await;
    }
}

/// Records the events left at a stop.
pub(crate) async fn record_rest(state: &State) {
    // The host is stopping, and the log of the requests is not worth a wait.
    let _ = timeout(LAST_WAIT, record_due(state, true)).await;
}

async fn record_due(state: &State, all: bool) {
    for due in state.refusals.take_due(Instant::now(), all) {
        match record_one(state, &due).await {
            Ok(()) => due.log(),
            Err(error) => {
                tracing::debug!(%error, "an event of refused requests could not be recorded");
                state.refusals.put_back(due);
            }
        }
    }
}

async fn record_one(state: &State, due: &Due) -> Result<(), DbError> {
    let engine = &state.app.engine;
    let db = engine.db().acting_as(due.actor());
    let mut tx = db.write().await?;
    let (now, kind) = (engine.clock().now(), EventKind::RequestRefused);
    events::record(&mut tx, now, kind, &due.request, &due.detail).await?;
    tx.commit().await
}
