//! What all requests share.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit, broadcast, watch};
use tokio::time::{Duration, timeout};

use crate::pages::session::Sessions;
use crate::problem::ApiProblem;
use campanile_engine::token_admin::Authenticator;
use campanile_engine::{Engine, Settings};
use campanile_store::events::Event;

/// The requests that read or change the database at once. A host has few connections, and its own work comes first.
const CALLS_MAX: usize = 3;
/// How long a request waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The event streams and followed logs at once.
const LISTENERS_MAX: usize = 1_000;
/// The events that a slow listener may be behind. It is dropped when it is further behind.
const EVENTS_BEHIND_MAX: usize = 1_024;

/// What the API reads and changes.
pub struct App {
    pub engine: Arc<Engine>,
    pub settings: Settings,
    /// Holds true when the host is to stop.
    pub stopping: watch::Receiver<bool>,
    /// Return what an operator should look at on this machine: one sentence each. Blocks.
    pub machine_notes: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// An [`App`] with what bounds its use.
pub(crate) struct State {
    pub app: App,
    /// The local token; none on a Unix socket.
    pub token: Option<String>,
    /// Whether requests are encrypted.
    pub is_encrypted: bool,
    pub authenticator: Authenticator,
    /// The sessions of browsers.
    pub sessions: Sessions,
    /// The OpenAPI document.
    pub document: String,
    /// Each new event.
    pub events: broadcast::Sender<Arc<Event>>,
    pub listeners: Arc<Semaphore>,
    turns: Semaphore,
}

impl State {
    pub(crate) fn new(
        app: App,
        token: Option<String>,
        is_encrypted: bool,
        document: String,
    ) -> State {
        State {
            authenticator: Authenticator::new(app.engine.db().clone()),
            app,
            token,
            is_encrypted,
            sessions: Sessions::default(),
            document,
            events: broadcast::channel(EVENTS_BEHIND_MAX).0,
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
            turns: Semaphore::new(CALLS_MAX),
        }
    }

    /// Wait until this request may use the database.
    pub(crate) async fn turn(&self) -> Result<SemaphorePermit<'_>, ApiProblem> {
        match timeout(TURN_WAIT, self.turns.acquire()).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(ApiProblem::unavailable(
                "this host has too many requests; send it again later",
            )),
        }
    }
}
