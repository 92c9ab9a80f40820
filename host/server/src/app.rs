//! What all requests share.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError};

use axum::body::Bytes;
use tokio::sync::{
    AcquireError, Mutex, OwnedSemaphorePermit, Semaphore, SemaphorePermit, broadcast, watch,
};
use tokio::time::{Duration, Instant, timeout};

use crate::kept_answers::KeptAnswers;
use crate::news::News;
use crate::pages::session::Sessions;
use crate::problem::ApiProblem;
use crate::proxies::Proxies;
use crate::rate::{COSTLY, RateLimit};
use crate::refusals::Refusals;
use crate::shares::Shares;
use crate::sign_in::SignInLink;
use campanile_control::admin::token_admin::{Authenticator, Principal};
use campanile_control::settings::{ConfigKey, Settings};
use campanile_engine::Engine;
use campanile_package::UploadFolder;

/// The requests that read or change the database at once. A host has few connections, and its own work comes first.
const CALLS_MAX: usize = 3;
/// How many of these places a cheap request takes while launches wait although they are due. Two cheap ones do not fit, a cheap and
/// a costly one do.
const PLACES_WHILE_SHORT: u32 = 2;
/// The costly requests among them, so that cheap ones need not wait for them.
const COSTLY_CALLS_MAX: usize = 1;
/// The requests of one principal that may wait behind those of others. Its further ones wait behind its own, so that none
/// keeps all others waiting.
const CALLS_OF_ONE_MAX: usize = 3;
/// The principals whose turns are remembered, besides those that have some.
const PRINCIPALS_MAX: usize = 1_024;
/// How long a request waits for its turn.
pub(crate) const TURN_WAIT: Duration = Duration::from_secs(5);
/// The memory of large answers at once, in KiB.
const ANSWER_MEMORY_KIB: usize = 64 << 10;
/// Memory for request bodies being read or waiting their turn, in KiB.
const BODY_MEMORY_KIB: usize = 64 << 10;
/// The event streams and followed logs at once.
const LISTENERS_MAX: usize = 1_000;
/// The events that a slow listener may be behind. It is dropped when it is further behind.
const EVENTS_BEHIND_MAX: usize = 1_024;

/// What the API reads and changes.
pub struct App {
    pub engine: Arc<Engine>,
    pub settings: Settings,
    /// Every key of the configuration, for the page that shows them.
    pub configuration: Vec<ConfigKey>,
    /// Holds true when the host is to stop.
    pub stopping: watch::Receiver<bool>,
    /// Where files of packages go that come to the running host; none when it takes none at all.
    pub uploads: Option<Uploads>,
    /// Returns what an operator should look at on this machine: one sentence each. Blocks.
    pub machine_notes: Arc<dyn Fn() -> Vec<String> + Send + Sync>,
}

/// Where files of packages go that come to a running host.
pub struct Uploads {
    pub folder: UploadFolder,
    /// Whether the host takes any file, and not just that of the package `hello`.
    pub takes_all: bool,
    /// The file of the package `hello`, which comes with the program.
    pub hello: &'static [u8],
}

/// Who may use an [`App`], and how much.
pub(crate) struct Access {
    /// The local token; none on a Unix socket.
    pub token: Option<String>,
    /// The name of the local token's file, without its folder.
    pub token_file: String,
    /// The link that signs a browser in with the local token.
    pub sign_in: Arc<SignInLink>,
    /// Whether requests are encrypted.
    pub is_encrypted: bool,
    /// The units of cost of a principal in a second.
    pub rate_limit: u32,
    pub proxies: Proxies,
}

/// An [`App`] with what bounds its use.
pub(crate) struct State {
    pub app: App,
    /// The local token; none on a Unix socket.
    pub token: Option<String>,
    /// The name of the local token's file, without its folder.
    pub token_file: String,
    /// The link that signs a browser in with the local token.
    pub sign_in: Arc<SignInLink>,
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
    pub answer_memory: Arc<Shares>,
    /// Memory available to request bodies until they're answered, in KiB.
    pub body_memory: Arc<Shares>,
    /// Each new event, and each new failure.
    pub news: broadcast::Sender<News>,
    pub listeners: Arc<Shares>,
    pub rate: RateLimit,
    pub refusals: Refusals,
    pub proxies: Proxies,
    /// The answers to costly reads.
    pub answers: KeptAnswers,
    /// One upload at a time: its file is in memory, and is compiled.
    pub upload_turn: Semaphore,
    /// One verification of the record at a time.
    pub verify_turn: Arc<Semaphore>,
    turns: Semaphore,
    costly_turns: Semaphore,
    /// By principal.
    turns_of_one: std::sync::Mutex<HashMap<String, TurnsOfOne>>,
}

/// The turns of the requests of one principal.
struct TurnsOfOne {
    all: Arc<Semaphore>,
    costly: Arc<Semaphore>,
}

impl Default for TurnsOfOne {
    fn default() -> TurnsOfOne {
        TurnsOfOne {
            all: Arc::new(Semaphore::new(CALLS_OF_ONE_MAX)),
            costly: Arc::new(Semaphore::new(COSTLY_CALLS_MAX)),
        }
    }
}

impl TurnsOfOne {
    /// Whether a request has a turn, or waits for one.
    fn are_used(&self) -> bool {
        Arc::strong_count(&self.all) > 1 || Arc::strong_count(&self.costly) > 1
    }
}

/// The right of a request to use the database.
pub(crate) struct Turn<'s> {
    _shared: SemaphorePermit<'s>,
    _own: OwnedSemaphorePermit,
    _costly: Option<(SemaphorePermit<'s>, OwnedSemaphorePermit)>,
}

impl State {
    /// Make what the requests to `app` share. `document` is the OpenAPI document.
    pub(crate) fn new(app: App, access: Access, document: String) -> State {
        let document = Bytes::from(document);
        State {
            authenticator: Authenticator::new(
                app.engine.db().clone(),
                app.engine.approval_key().clone(),
            ),
            app,
            token: access.token,
            token_file: access.token_file,
            sign_in: access.sign_in,
            is_encrypted: access.is_encrypted,
            sessions: Sessions::default(),
            document,
            news: broadcast::channel(EVENTS_BEHIND_MAX).0,
            listeners: Shares::new(LISTENERS_MAX),
            upload_turn: Semaphore::new(1),
            verify_turn: Arc::new(Semaphore::new(1)),
            ready: Mutex::default(),
            answer_memory: Shares::new(ANSWER_MEMORY_KIB),
            body_memory: Shares::new(BODY_MEMORY_KIB),
            rate: RateLimit::new(access.rate_limit),
            refusals: Refusals::default(),
            proxies: access.proxies,
            answers: KeptAnswers::default(),
            turns: Semaphore::new(CALLS_MAX),
            costly_turns: Semaphore::new(COSTLY_CALLS_MAX),
            turns_of_one: std::sync::Mutex::default(),
        }
    }

    /// Whether the host takes any file of a package.
    pub(crate) fn takes_uploads(&self) -> bool {
        let uploads = self.app.uploads.as_ref();
        uploads.is_some_and(|uploads| uploads.takes_all)
    }

    /// Take the units of a request of `principal` that costs `cost`.
    pub(crate) fn charge(&self, principal: &Principal, cost: u32) -> Result<(), ApiProblem> {
        let taken = self
            .rate
            .take(&principal.key(), cost, Instant::now().into_std());
        taken.map_err(|wait| ApiProblem::too_many(&principal.name, wait))
    }

    /// Wait until a request of `principal` that costs `cost` may use the database.
    pub(crate) async fn turn(
        &self,
        principal: &Principal,
        cost: u32,
    ) -> Result<Turn<'_>, ApiProblem> {
        self.turn_of(&principal.key(), cost >= COSTLY).await
    }

    /// Wait until a request of the principal with this key may use the database.
    ///
    /// First it waits for those of the same principal, then for others, so that the requests of one principal keep no other
    /// one waiting. A costly one waits for other costly ones before it waits for cheap ones. While launches wait although
    /// they are due, cheap ones are answered one at a time.
    pub(crate) async fn turn_of(
        &self,
        principal: &str,
        is_costly: bool,
    ) -> Result<Turn<'_>, ApiProblem> {
        let (all, costly) = {
            let mut turns = self
                .turns_of_one
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            if turns.len() > PRINCIPALS_MAX {
                turns.retain(|_, turns| turns.are_used());
            }
            let own = turns.entry(principal.to_owned()).or_default();
            (Arc::clone(&own.all), Arc::clone(&own.costly))
        };
        let turn = async {
            let costly = if is_costly {
                let own = costly.acquire_owned().await?;
                Some((self.costly_turns.acquire().await?, own))
            } else {
                None
            };
            let own = all.acquire_owned().await?;
            let places = places(self.app.engine.is_short(), is_costly);
            Ok::<_, AcquireError>(Turn {
                _costly: costly,
                _own: own,
                _shared: self.turns.acquire_many(places).await?,
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

/// Returns how many of the [`CALLS_MAX`] places a request takes. Launches wait although they are due when `is_short`.
fn places(is_short: bool, is_costly: bool) -> u32 {
    if is_short && !is_costly {
        PLACES_WHILE_SHORT
    } else {
        1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cheap_requests_are_answered_one_at_a_time_while_launches_wait() {
        let turns = Semaphore::new(CALLS_MAX);
        let begin = |is_short, is_costly| turns.try_acquire_many(places(is_short, is_costly)).ok();
        let cheap = begin(true, false);
        assert!(cheap.is_some());
        assert!(begin(true, false).is_none(), "a second cheap one waits");
        let costly = begin(true, true);
        assert!(costly.is_some(), "a costly one may run beside");
        drop((cheap, costly));
        let all = [(); CALLS_MAX].map(|()| begin(false, false));
        assert!(all.iter().all(Option::is_some));
        assert!(begin(false, false).is_none());
    }
}
