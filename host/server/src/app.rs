//! What all requests share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use axum::body::Bytes;
use tokio::sync::{
    AcquireError, Mutex, OwnedSemaphorePermit, Semaphore, SemaphorePermit, broadcast, watch,
};
use tokio::time::{Duration, Instant, timeout};

use crate::pages::session::Sessions;
use crate::problem::ApiProblem;
use campanile_engine::token_admin::Authenticator;
use campanile_engine::{Engine, Settings};
use campanile_store::events::Event;

/// The requests that read or change the database at once. A host has few connections, and its own work comes first.
const CALLS_MAX: usize = 3;
/// The requests of one principal among them, so that none keeps all others waiting.
const CALLS_OF_ONE_MAX: usize = 2;
/// How long a request waits for its turn.
const TURN_WAIT: Duration = Duration::from_secs(5);
/// The memory of large answers at once, in KiB.
const ANSWER_MEMORY_KIB: usize = 64 << 10;
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
    pub document: Bytes,
    /// The result of the last look whether the host is ready, and when it was.
    pub ready: Mutex<Option<(Instant, Result<(), String>)>>,
    /// The memory that large answers may have until their clients have read them, in KiB.
    pub answer_memory: Arc<Semaphore>,
    /// Each new event.
    pub events: broadcast::Sender<Arc<Event>>,
    pub listeners: Arc<Semaphore>,
    turns: Semaphore,
    /// By principal. There are at most as many as tokens.
    turns_of_one: std::sync::Mutex<HashMap<String, Arc<Semaphore>>>,
}

/// The right of a request to use the database.
pub(crate) struct Turn<'s> {
    _shared: SemaphorePermit<'s>,
    _own: OwnedSemaphorePermit,
}

impl State {
    pub(crate) fn new(
        app: App,
        token: Option<String>,
        is_encrypted: bool,
        document: String,
    ) -> State {
        let document = Bytes::from(document);
        State {
            authenticator: Authenticator::new(app.engine.db().clone()),
            app,
            token,
            is_encrypted,
            sessions: Sessions::default(),
            document,
            events: broadcast::channel(EVENTS_BEHIND_MAX).0,
            listeners: Arc::new(Semaphore::new(LISTENERS_MAX)),
            ready: Mutex::default(),
            answer_memory: Arc::new(Semaphore::new(ANSWER_MEMORY_KIB)),
            turns: Semaphore::new(CALLS_MAX),
            turns_of_one: std::sync::Mutex::default(),
        }
    }

    /// Wait until a request of `principal` may use the database.
    pub(crate) async fn turn(&self, principal: &str) -> Result<Turn<'_>, ApiProblem> {
        let own = {
            let mut all = self
                .turns_of_one
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            let own = all.entry(principal.to_owned());
            Arc::clone(own.or_insert_with(|| Arc::new(Semaphore::new(CALLS_OF_ONE_MAX))))
        };
        let turn = async {
            Ok::<_, AcquireError>(Turn {
                _own: own.acquire_owned().await?,
                _shared: self.turns.acquire().await?,
            })
        };
        match timeout(TURN_WAIT, turn).await {
            Ok(Ok(turn)) => Ok(turn),
            _ => Err(ApiProblem::unavailable(
                "this host has too many requests; send it again later",
            )),
        }
    }
}
