//! Metrics in Prometheus' text format.
//!
//! A host counts what it does while it does it (`Metrics`), without a look at the database: a counter is one atomic
//! addition, and a histogram one lock that is free. What all hosts share is read from the database when metrics are asked
//! for ([`RecordMetrics`]), with statements that indexes answer.
//!
//! Times are instants, never ages. No label has a launch, a run, a digest or a message; a schedule is a label only up to a
//! number that the caller gives, and a package up to a fixed one.

/// Register metrics, each with its name and its help text.
macro_rules! register {
    ($registry:expr; $($name:literal, $help:literal => $metric:expr;)*) => {
        $($registry.register($name, $help, $metric);)*
    };
    ($registry:expr, if known; $($name:literal, $help:literal => $value:expr;)*) => {
        $(if let Some(value) = $value {
            $registry.register($name, $help, ConstGauge::new(value));
        })*
    };
}

mod packages;
mod record;

use std::time::Duration;

use prometheus_client::encoding::{EncodeLabelSet, prometheus_text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;
use tokio::time::timeout;

use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_model::status::FailureKind;
use campanile_model::words;
use campanile_sandbox::Usage;
use campanile_store::Db;
use campanile_store::events::{EventKind, NewEvent};
use campanile_store::launch::{Finish, NewLaunch, RunEnd};

use packages::PackageMetrics;
pub use record::RecordMetrics;

/// The media type of the text.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// How long a request for metrics waits for the database.
const RECORD_WAIT: Duration = Duration::from_secs(5);

/// What the name of every metric begins with.
const PREFIX: &str = "campanile";

/// What recovery does with a launch, by its event.
const RECOVERIES: [EventKind; 4] = [
    EventKind::LaunchRecovered,
    EventKind::LaunchAbandoned,
    EventKind::LaunchUnknown,
    EventKind::LaunchCancelled,
];

words! {
    /// A transaction on the path of a launch.
    CommitOf {
        /// Decide slots, and claim their launches at once.
        Decide => "decide",
        /// Claim open launches and retries.
        Claim => "claim",
        /// Record ends of runs.
        Finish => "finish",
    }
}

/// Declare the labels of a metric.
macro_rules! labels {
    ($name:ident { $($label:ident),* }) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
        struct $name {
            $($label: &'static str,)*
        }
    };
}

labels!(LaunchLabels {
    decision,
    kind,
    reason
});
labels!(RunLabels { status, failure });
labels!(ResultLabel { result });
labels!(EventLabel { event });
labels!(CommitLabel { transaction });

/// What this host has counted since its start.
pub(crate) struct Metrics {
    launches: Family<LaunchLabels, Counter>,
    runs: Family<RunLabels, Counter>,
    run_duration: Histogram,
    start_lag: Histogram,
    claims: Counter,
    lost_leases: Counter,
    recoveries: Family<EventLabel, Counter>,
    pub(crate) database_errors: Counter,
    pub(crate) traces_exported: Counter,
    pub(crate) traces_dropped: Counter,
    commits: [Histogram; CommitOf::ALL.len()],
    loaded: Counter,
    rejected: Counter,
    packages: PackageMetrics,
    /// When the host looked last which slots are due, in microseconds; 0 before that.
    last_tick_us: Gauge,
    registry: Registry,
}

impl Default for Metrics {
    fn default() -> Metrics {
        let mut registry = registry();
        let launches = Family::default();
        let runs = Family::default();
        let recoveries = Family::default();
        let loads: Family<ResultLabel, Counter> = Family::default();
        let commit_seconds: Family<CommitLabel, Histogram> =
            Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.0005, 2.0, 14)));
        let commit = |of: CommitOf| {
            let transaction = of.as_str();
            commit_seconds.get_or_create_owned(&CommitLabel { transaction })
        };
        let load = |result| loads.get_or_create_owned(&ResultLabel { result });
        let metrics = Metrics {
            run_duration: Histogram::new(exponential_buckets(0.005, 2.5, 14)),
            start_lag: Histogram::new(exponential_buckets(0.001, 2.5, 14)),
            claims: Counter::default(),
            lost_leases: Counter::default(),
            database_errors: Counter::default(),
            traces_exported: Counter::default(),
            traces_dropped: Counter::default(),
            commits: [CommitOf::Decide, CommitOf::Claim, CommitOf::Finish].map(commit),
            loaded: load("loaded"),
            rejected: load("rejected"),
            packages: PackageMetrics::default(),
            last_tick_us: Gauge::default(),
            launches,
            runs,
            recoveries,
            registry: Registry::default(),
        };
        // They are 0 from the start, so that the first failure is an increase.
        for kind in FailureKind::ALL {
            metrics.run("failed", kind.as_str());
        }
        metrics.run("succeeded", "");
        metrics.run("cancelled", "");
        for kind in RECOVERIES {
            let event = kind.as_str();
            metrics
                .recoveries
                .get_or_create_owned(&EventLabel { event });
        }
        register! { registry;
            "claims", "Runs that this host has claimed" => metrics.claims.clone();
            "lost_leases", "Runs that this host dropped because it could not renew their lease, or whose end came too late"
                => metrics.lost_leases.clone();
            "database_errors", "Steps of this host that failed, mostly because the database did not answer"
                => metrics.database_errors.clone();
            "traces_exported", "Launches whose traces the collector has accepted" => metrics.traces_exported.clone();
            "traces_dropped", "Launches whose traces were dropped: too many waited, or the collector refused them"
                => metrics.traces_dropped.clone();
            "launches", "Decisions about slots by this host" => metrics.launches.clone();
            "runs", "Runs that this host has ended" => metrics.runs.clone();
            "recoveries", "Launches without a living host that this host has recovered or ended" => metrics.recoveries.clone();
            "package_loads", "Files of the plugins folder that this host has loaded or rejected" => loads.clone();
            "run_duration_seconds", "The time from the start of a run on this host to its end or its wait for a retry"
                => metrics.run_duration.clone();
            "start_lag_seconds", "How long after its time an on-time launch started on this host" => metrics.start_lag.clone();
            "commit_seconds", "How long the commit of a transaction took" => commit_seconds.clone();
        }
        metrics.packages.register(&mut registry);
        Metrics {
            registry,
            ..metrics
        }
    }
}

impl Metrics {
    fn run(&self, status: &'static str, failure: &'static str) -> Counter {
        self.runs
            .get_or_create_owned(&RunLabels { status, failure })
    }

    /// Note that the host looked which slots are due.
    pub(crate) fn note_tick(&self, now: Timestamp) {
        self.last_tick_us.set(now.micros());
    }

    /// Count committed decisions.
    pub(crate) fn count_decisions<'d>(&self, decisions: impl Iterator<Item = &'d NewLaunch>) {
        for launch in decisions {
            let labels = LaunchLabels {
                decision: launch.decision.as_str(),
                kind: launch.kind.as_str(),
                reason: launch.reason.unwrap_or_default(),
            };
            let slots = u64::try_from(launch.slot_count).unwrap_or_default();
            self.launches.get_or_create(&labels).inc_by(slots);
        }
    }

    /// Count a claimed run that starts at `now`. `is_first` is false for a retry and after a recovery.
    pub(crate) fn count_claim(
        &self,
        kind: LaunchKind,
        is_first: bool,
        fire_time: Timestamp,
        now: Timestamp,
    ) {
        self.claims.inc();
        if kind == LaunchKind::Schedule && is_first {
            self.start_lag.observe(now.since(fire_time).as_secs_f64());
        }
    }

    /// Note how long a run took on this host.
    pub(crate) fn observe_run(&self, duration: Duration) {
        self.run_duration.observe(duration.as_secs_f64());
    }

    /// Count the recorded ends of runs.
    pub(crate) fn count_ends<'e>(&self, ends: impl Iterator<Item = &'e Finish>) {
        for finish in ends {
            let (status, failure) = match &finish.end {
                RunEnd::Succeeded { .. } => ("succeeded", ""),
                RunEnd::Failed { kind, .. } => ("failed", kind.as_str()),
                RunEnd::Cancelled { .. } => ("cancelled", ""),
                RunEnd::Waiting { .. } => continue,
            };
            self.runs
                .get_or_create(&RunLabels { status, failure })
                .inc();
        }
    }

    /// Count runs that this host has lost.
    pub(crate) fn count_lost(&self, runs: usize) {
        self.lost_leases.inc_by(runs as u64);
    }

    /// Count the recoveries of which these are the events.
    pub(crate) fn count_recoveries(&self, events: &[NewEvent]) {
        for event in events.iter().map(|event| event.kind.as_str()) {
            self.recoveries.get_or_create(&EventLabel { event }).inc();
        }
    }

    /// Count a file of the plugins folder that was loaded, or rejected.
    pub(crate) fn count_load(&self, is_usable: bool) {
        if is_usable {
            self.loaded.inc()
        } else {
            self.rejected.inc()
        };
    }

    /// Count a call of a task of `package` that ended, and what it gave to the record, in bytes.
    pub(crate) fn count_call(&self, package: &str, usage: &Usage, record_bytes: u64) {
        self.packages.count(package, usage, record_bytes);
    }

    /// Note how long a commit took.
    pub(crate) fn observe_commit(&self, of: CommitOf, duration: Duration) {
        if let Some(histogram) = self.commits.get(of as usize) {
            histogram.observe(duration.as_secs_f64());
        }
    }

    /// Returns the text of what this host has counted, and of its capacity.
    pub(crate) fn text(&self, runs: usize, runs_max: usize) -> String {
        let mut text = encoded(&self.registry);
        let mut registry = registry();
        let last_tick = self.last_tick_us.get() as f64 / 1e6;
        register! { registry;
            "host_runs", "Runs that this host executes now" => ConstGauge::new(runs as f64);
            "host_runs_max", "The most runs that this host executes at once" => ConstGauge::new(runs_max as f64);
            "host_last_tick_timestamp_seconds", "When this host looked last which slots are due, in seconds since 1970; 0 before the first look"
                => ConstGauge::new(last_tick);
        }
        text += &encoded(&registry);
        text
    }
}

/// Returns `host_text`, which is what a host has counted, with the values on record at `now` and at most `schedules_max`
/// schedules.
///
/// A database that does not answer leaves out the values on record, and `campanile_record_readable` is 0.
pub(crate) async fn with_record(
    host_text: String,
    db: &Db,
    now: Timestamp,
    schedules_max: u32,
) -> String {
    let mut text = host_text;
    let read = async {
        let mut tx = db.read().await?;
        RecordMetrics::read(&mut tx, now, schedules_max).await
    };
    let read = timeout(RECORD_WAIT, read).await;
    let record = read.ok().and_then(Result::ok);
    let mut registry = registry();
    let is_readable = ConstGauge::new(f64::from(u8::from(record.is_some())));
    register! { registry;
        "record_readable", "1 when the database answered this request for metrics in time, otherwise 0" => is_readable;
    }
    text += &encoded(&registry);
    text += &record.map(|record| record.text()).unwrap_or_default();
    text
}

fn registry() -> Registry {
    Registry::with_prefix(PREFIX)
}

fn encoded(registry: &Registry) -> String {
    let mut text = String::new();
    // Writing to a text cannot fail.
    let _ = prometheus_text::encode(&mut text, registry);
    text
}

#[cfg(test)]
mod tests;
