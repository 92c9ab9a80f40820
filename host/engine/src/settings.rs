//! How an engine works, from the configuration.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::secrets::Source;
use campanile_package::Policy;
use campanile_package::Quota;
use campanile_package::quota::Groups;
use campanile_schedule::policy::Defaults;

/// How one host works.
#[derive(Debug, Clone, PartialEq)]
pub struct Settings {
    /// Runs that this host executes at the same time.
    pub runs_max: usize,
    /// What one package may use; sidecars change it.
    pub quota: Quota,
    /// The concurrency groups: the most runs of each at the same time, on all hosts.
    pub groups: Groups,
    pub lease: Duration,
    /// How often leases and the heartbeat are renewed.
    pub renew: Duration,
    /// The policies of schedules that do not set their own.
    pub late: Defaults,
    pub recovery: RecoveryLimits,
    pub recovery_interval: Duration,
    pub audit_interval: Duration,
    /// The free bytes of a SQLite database's disk below which the host decides and claims nothing.
    pub disk_reserve_bytes: u64,
    /// How long a stopping host waits for its runs.
    pub drain: Duration,
    /// The source of each secret, by its name.
    pub secrets: BTreeMap<String, Source>,
    /// Which versions of packages may run.
    pub policy: Policy,
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
