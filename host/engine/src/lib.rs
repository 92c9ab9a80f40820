//! The path of a launch, one file per arrow:
//!
//! ```text
//! clock → due → decide → [intend: launch rows + cursor] → [take: run row + link] → run → [finish]
//! ```
//!
//! | file        | step                                                                    |
//! |-------------|-------------------------------------------------------------------------|
//! | `recover`   | launches that nobody carries out any more are run again or given up     |
//! | `intend`    | transaction 1: `plan` (pure) decides, launch rows and cursor go together |
//! | `backfill`  | launches that a person asked for, of slots of a time that is past       |
//! | `release`   | launches that waited for their turn are let go                          |
//! | `take`      | transaction 2: open launches become runs held under a lease             |
//! | `run`       | the workflow's tasks in order (`workflow`, pure), each a sandbox call   |
//! | `outcome`   | pure: retry or end                                                      |
//! | `finish`    | transaction 3: ends go on the record, if the run is still held          |
//!
//! `room` counts the places for runs, `lease` keeps what is held, `audit` looks everything over, `folder` follows the
//! plugin folder and `schedules_file` the schedules file, `backfill` launches slots of the past, `loops` runs each step
//! when it is time, `forecast` says beforehand what will come of it, and `why` afterwards what did. [`Engine::tick`] is
//! all of it once, for reading and for tests.

// Bad input ends in a sentence and an exit code, never in a panic. Tests may (clippy.toml).
#![warn(clippy::unwrap_used, clippy::expect_used, clippy::panic)]
// Stdout is data, and the command line's.
#![warn(clippy::print_stdout)]

pub mod approval;
pub mod audit;
pub mod backfill;
pub mod buckets;
pub mod forecast;
pub mod plan;
pub mod schedule_admin;
pub mod schedules_file;
pub mod why;

pub mod crash;
pub mod definition;
mod finish;
mod folder;
mod held;
mod intend;
mod lease;
mod loops;
mod recover;
mod release;
mod room;
mod run;
mod run_context;
pub mod secrets;
mod spec;
mod start;
mod take;
mod versions;
pub mod watch;

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures_util::future;
use tokio::sync::Notify;

pub use intend::Intended;
pub use recover::{Recovered, RecoveryLimits, verdict};
pub use schedules_file::Following;
pub use start::StartError;
pub use take::Work;

use crate::secrets::{Source, Vault};
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::{HostId, RunId};
use campanile_package::Packages;
use campanile_sandbox::{Sandbox, StopSignal};
use campanile_schedule::policy::Defaults;
use campanile_store::{Db, DbError};
use campanile_workflow::{context, outcome, workflow};

/// The pause after passing trouble with the database before the same is tried again.
const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// How an engine works; from the configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Runs that this host holds at the same time.
    pub runs_max: usize,
    pub lease: Duration,
    /// How often leases and the heartbeat are renewed.
    pub renew: Duration,
    /// What counts for schedules that do not say it themselves.
    pub late: Defaults,
    pub recovery: RecoveryLimits,
    pub recovery_interval: Duration,
    pub audit_interval: Duration,
    /// How long a stopping host waits for its runs.
    pub drain: Duration,
    /// Where each secret comes from, by its name.
    pub secrets: BTreeMap<String, Source>,
}

/// One host's engine.
pub struct Engine {
    db: Db,
    clock: Clock,
    host: HostId,
    name: String,
    settings: Settings,
    packages: Packages,
    sandbox: Arc<Sandbox>,
    room: room::Room,
    specs: spec::Specs,
    versions: versions::Versions,
    vault: Vault,
    /// Of the guests at the database.
    turns: buckets::Turns,
    told: held::Told,
    holding: lease::Holding,
    pulse: lease::Pulse,
    wake: Wake,
    trouble: Trouble,
    last_health: AtomicBool,
    /// Set while a backfill runs: then the end of a launch is the time to look for its next ones.
    fills_back: AtomicBool,
    /// Set while the clock is too far off the database's to decide or take anything.
    stands_back: AtomicBool,
}

/// Everything one turn did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tick {
    pub recovered: usize,
    /// Launches that recovery brought to an end.
    pub given_up: usize,
    pub decisions: usize,
    /// Launches of backfills.
    pub filled_back: usize,
    pub runs: usize,
    pub finished: usize,
}

impl Engine {
    /// The whole path once, at `now`, waiting for the runs that it takes.
    ///
    /// [`Engine::serve`] runs the same steps, each in its own loop.
    pub async fn tick(&self, now: Timestamp) -> Result<Tick, EngineError> {
        let recovered = self.recover(now).await?;
        let intended = self.intend(now).await?;
        let filled_back = self.run_backfills(now).await?;
        self.release(now).await?;
        let work = self.take(now).await?;
        let ends = future::join_all(work.iter().map(|work| self.hold_and_carry_out(work)));
        let ends: Vec<_> = ends.await.into_iter().flatten().collect();
        let finished = self.finish(&ends).await?;
        for work in &work {
            self.let_go(work.run_id, work.fence);
        }
        Ok(Tick {
            recovered: recovered.again,
            given_up: recovered.ended,
            decisions: intended.decisions,
            filled_back: filled_back.launched,
            runs: work.len(),
            finished,
        })
    }

    async fn hold_and_carry_out(&self, work: &Work) -> Option<campanile_store::runs::Finish> {
        let stop = self.hold(work);
        self.carry_out(work, &stop).await
    }

    /// Hold what was taken: renew its lease from now on, and stop it when it is lost or asked to end.
    pub fn hold(&self, work: &Work) -> StopSignal {
        self.holding.add(work)
    }

    /// Hold a run no more, unless it was taken anew under another fence.
    pub fn let_go(&self, run: RunId, fence: i64) {
        self.holding.remove(run, fence);
    }

    /// The database that this engine works on.
    pub fn db(&self) -> &Db {
        &self.db
    }

    /// The clock that this engine goes by.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// This life of the host.
    pub fn host(&self) -> HostId {
        self.host
    }

    /// The packages of this host's folder.
    pub fn packages(&self) -> &Packages {
        &self.packages
    }
}

/// Something could not be done; the loop that tried goes on.
#[derive(Debug, thiserror::Error)]
pub enum EngineError {
    #[error(transparent)]
    Db(#[from] DbError),
    #[error("another process serves under the name `{0}` now; give each host a name of its own")]
    NameLost(String),
    /// What must not be; nothing was changed.
    #[error("a bug in Campanile: {0}")]
    Bug(String),
}

impl EngineError {
    /// Whether the same step may succeed later without anybody changing the program.
    fn is_transient(&self) -> bool {
        match self {
            EngineError::Db(error) => error.is_transient(),
            EngineError::NameLost(_) | EngineError::Bug(_) => false,
        }
    }

    /// Whether the database may take the same later, if only because somebody lets this host in again.
    fn may_pass(&self) -> bool {
        self.is_transient() || matches!(self, EngineError::Db(DbError::Refused(_)))
    }
}

/// How one loop tells another that there is something to do.
#[derive(Default)]
struct Wake {
    scheduler: Notify,
    dispatcher: Notify,
    lease_keeper: Notify,
    folder_watcher: Notify,
}

impl Wake {
    /// Schedules have changed.
    fn schedules(&self) {
        self.scheduler.notify_one();
    }

    /// Launches are open, or capacity is free.
    fn launches(&self) {
        self.dispatcher.notify_one();
    }

    /// Somebody decided about versions of packages.
    fn folder(&self) {
        self.folder_watcher.notify_one();
    }

    /// Runs of this host may have been asked to end.
    fn leases(&self) {
        self.lease_keeper.notify_one();
    }
}

/// Trouble that is not over: an outage of an hour that stops every loop is one line and not thousands.
#[derive(Default)]
struct Trouble(Mutex<Outages>);

#[derive(Default)]
struct Outages {
    now: Option<Outage>,
    /// When the last one was over.
    over: Option<Instant>,
}

struct Outage {
    since: Instant,
    /// What does not pass by itself is said once each.
    said: HashSet<String>,
}

/// After an outage, what was begun during it may still fail: that is not another one.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Different texts remembered in one outage; past it they are said again.
const SAID_MAX: usize = 64;

impl Trouble {
    /// Say it, unless it is said already or is one more sign of the same outage.
    fn say(&self, doing: &str, error: &EngineError) {
        let mut outages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let begins = outages.now.is_none();
        let is_aftermath = outages.over.is_some_and(|over| over.elapsed() < AFTERMATH);
        if begins && is_aftermath && error.is_transient() {
            tracing::debug!("{doing}: {error}");
            return;
        }
        let outage = outages.now.get_or_insert_with(|| Outage {
            since: Instant::now(),
            said: HashSet::new(),
        });
        if error.is_transient() {
            if begins {
                tracing::error!("{doing}: {error}; trying again until it works");
            } else {
                tracing::debug!("{doing}: {error}");
            }
            return;
        }
        if outage.said.len() >= SAID_MAX {
            outage.said.clear();
        }
        if outage.said.insert(format!("{doing}: {error}")) {
            tracing::error!("{doing}: {error}; trying again");
        }
    }

    /// Say that it is over, if there was any.
    fn over(&self) {
        let mut outages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(outage) = outages.now.take() {
            outages.over = Some(Instant::now());
            let seconds = outage.since.elapsed().as_secs_f64();
            tracing::info!("the database answers again, after {seconds:.1} s");
        }
    }
}
