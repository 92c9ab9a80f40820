//! Failed steps in the log: an outage of an hour that stops every service is one line, not thousands.

use std::collections::HashSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;

use crate::error::EngineError;
use crate::lock::lock;

/// How long after an outage a passing error still counts as part of it: a step that began during it may fail late.
const AFTERMATH: Duration = Duration::from_secs(2);

/// Different messages remembered in one outage. Past it they are logged again.
const LOGGED_MAX: usize = 64;

/// The outage of the database that is not over, shared by all services of a host.
#[derive(Default)]
pub(crate) struct Trouble {
    /// Every failed step.
    errors: Counter,
    outages: Mutex<Outages>,
    /// Set when a write failed because the disk is full.
    disk_full: AtomicBool,
}

#[derive(Default)]
struct Outages {
    /// When the current outage began, if there is one.
    since: Option<Instant>,
    /// Its errors that do not pass by themselves: each is logged once.
    logged: HashSet<String>,
    /// When the last outage was over.
    over_at: Option<Instant>,
    /// Whether the disk is full. Small writes may succeed then: they do not end the outage.
    is_disk_full: bool,
}

impl Trouble {
    /// Count each failed step with `errors`.
    pub(crate) fn new(errors: Counter) -> Trouble {
        Trouble {
            errors,
            ..Trouble::default()
        }
    }

    /// Log that `step` failed, unless it is logged already or belongs to the same outage.
    pub(crate) fn report(&self, step: &str, error: &EngineError) {
        self.errors.inc();
        let mut outages = lock(&self.outages);
        if matches!(error, EngineError::Db(error) if error.is_disk_full()) {
            self.disk_full.store(true, Ordering::Relaxed);
            outages.is_disk_full = true;
        }
        let is_aftermath = outages.over_at.is_some_and(|at| at.elapsed() < AFTERMATH);
        if error.is_transient() && (outages.since.is_some() || is_aftermath) {
            tracing::debug!("{step}: {error}");
            return;
        }
        outages.since.get_or_insert_with(Instant::now);
        if error.is_transient() {
            tracing::error!("{step}: {error}; trying again until it works");
            return;
        }
        if outages.logged.len() >= LOGGED_MAX {
            outages.logged.clear();
        }
        if outages.logged.insert(format!("{step}: {error}")) {
            tracing::error!("{step}: {error}; trying again");
        }
    }

    /// Whether a write failed since the last call because the disk is full.
    pub(crate) fn take_disk_full(&self) -> bool {
        self.disk_full.swap(false, Ordering::Relaxed)
    }

    /// The disk has room again: the next write that succeeds ends the outage.
    pub(crate) fn end_disk_full(&self) {
        lock(&self.outages).is_disk_full = false;
    }

    /// Log the end of the outage, if there was one. A write has succeeded.
    pub(crate) fn end(&self) {
        let mut outages = lock(&self.outages);
        if outages.is_disk_full {
            return;
        }
        if let Some(since) = outages.since.take() {
            outages.over_at = Some(Instant::now());
            outages.logged.clear();
            let seconds = since.elapsed().as_secs_f64();
            tracing::info!("the database answers again, after {seconds:.1} s");
        }
    }
}
