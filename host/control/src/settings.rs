//! How an engine works, from the configuration.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::rules::alert_rule::AlertSettings;
use crate::traces_endpoint::TracesEndpoint;
use campanile_model::labels::Labels;
use campanile_model::words;
use campanile_package::quota::{Groups, Namespaces};
use campanile_package::{Quota, VersionPolicy};
use campanile_sandbox::Secret;
use campanile_schedule::policy::{Defaults, Policies};

/// How one host works.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Runs that this host executes at the same time.
    pub runs_max: usize,
    /// What one package may use; sidecars change it.
    pub quota: Quota,
    /// The concurrency groups: the most runs of each at the same time, on all hosts.
    pub groups: Groups,
    /// What the packages of each namespace may use together.
    pub namespaces: Arc<Namespaces>,
    pub labels: Labels,
    /// Which of several hosts executes a launch.
    pub placement: Placement,
    pub lease: Duration,
    /// How often leases and the heartbeat are renewed.
    pub renew: Duration,
    /// The policies of schedules that do not set their own.
    pub late: Defaults,
    /// The policies of schedules that do not set them, on every host.
    pub schedule_defaults: Policies,
    pub recovery: RecoveryLimits,
    pub recovery_interval: Duration,
    pub audit_interval: Duration,
    pub retention: RetentionLimits,
    /// The free bytes of a SQLite database's disk below which the host decides and claims nothing.
    pub disk_reserve_bytes: u64,
    /// How long after it was sent a message of the outbox is delivered again after failed deliveries.
    pub give_up_after: Duration,
    /// How long a stopping host waits for its runs.
    pub drain: Duration,
    /// The source of each secret, by its name.
    pub secrets: BTreeMap<String, SecretSource>,
    /// How long the file of a package may be away before the schedules end that it or its sidecar defined. Without it,
    /// they stay.
    pub forget_after: Option<Duration>,
    /// Which versions of packages may run.
    pub policy: VersionPolicy,
    /// The rules for alerts, and their channels.
    pub alerts: AlertSettings,
    /// The collector to which traces are sent; none for no traces.
    pub traces: Option<TracesEndpoint>,
}

words! {
    /// Where a value of the configuration comes from.
    ConfigOrigin {
        Default => "default",
        File => "file",
        Environment => "environment",
        Flag => "flag",
    }
}

/// A key of the configuration with its value, as a person sees it: without secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigKey {
    /// Empty for the top of the file.
    pub table: String,
    pub key: String,
    /// As TOML writes it; none for a key without a value.
    pub value: Option<String>,
    /// The value that it has unless it is set; none if that is not the same everywhere.
    pub default: Option<String>,
    pub origin: ConfigOrigin,
    pub meaning: String,
}

/// Where to get a secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SecretSource {
    /// An environment variable, with its value at startup.
    Env {
        variable: String,
        value: Option<Secret>,
    },
    /// A file, reread on every call. One trailing newline is stripped.
    File(PathBuf),
    /// Output of a command started without a shell, stripping one trailing newline.
    Command(Vec<String>),
}

/// `env NAME`, `file PATH` or `command NAME`, leaving out values and arguments as they may be secret.
impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SecretSource::Env { variable, .. } => write!(f, "env {variable}"),
            SecretSource::File(path) => write!(f, "file {}", path.display()),
            SecretSource::Command(words) => {
                write!(f, "command {}", words.first().map_or("", String::as_str))
            }
        }
    }
}

words! {
    /// How to choose among hosts when claiming a launch.
    #[derive(Default)]
    Placement {
        /// Prefers the host using the smallest share of its capacity.
        #[default]
        Spread => "spread",
        /// Prefers the busiest host having room.
        Pack => "pack",
    }
}

/// When a launch is recovered, and how often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryLimits {
    /// An open launch counts as lost after this long, although there was capacity for it.
    pub lost_threshold: Duration,
    /// An older launch is abandoned.
    pub age_max: Duration,
    /// Recoveries of one launch.
    pub attempts_max: i64,
}

/// How long the record keeps what has ended. Without an age, it keeps it for ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetentionLimits {
    pub succeeded: Option<Duration>,
    /// Of launches that failed, are unknown or abandoned, or were cancelled.
    pub failed: Option<Duration>,
    pub skipped: Option<Duration>,
    /// Of what the calls of tasks wrote. The launch stays.
    pub logs: Option<Duration>,
    pub events: Option<Duration>,
    /// Of the bytes of versions, from when another version replaced them.
    pub artifacts: Option<Duration>,
    /// Of the counts of removed launches, from their decision.
    pub counts: Option<Duration>,
    /// So many of the newest launches of each schedule stay, whatever their age. At least 1.
    pub keep_last: u32,
    /// The greatest size of the record in bytes. Past it, the oldest launches are removed before their age.
    pub max_bytes: Option<u64>,
}

impl RetentionLimits {
    /// Keep everything for ever.
    pub const FOR_EVER: RetentionLimits = RetentionLimits {
        succeeded: None,
        failed: None,
        skipped: None,
        logs: None,
        events: None,
        artifacts: None,
        counts: None,
        keep_last: 1,
        max_bytes: None,
    };

    /// Returns the least age at which a launch is removed; none when all are kept for ever.
    pub fn least_age(&self) -> Option<Duration> {
        let ages = [self.succeeded, self.failed, self.skipped];
        ages.into_iter().flatten().min()
    }

    /// Returns the age at which launches of every outcome are removed; none when some are kept for ever.
    pub fn greatest_age(&self) -> Option<Duration> {
        let ages = [self.succeeded?, self.failed?, self.skipped?];
        ages.into_iter().max()
    }
}
