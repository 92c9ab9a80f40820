//! What an operator sees of hosts, and the command to drain one.
//!
//! Draining only changes the record. The host notices it when it reads the counter of changes. A drained host claims
//! nothing: its runs end, and its other services continue.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin::{Result, ScheduleError};
use campanile_model::clock::Timestamp;
use campanile_model::ids::HostId;
use campanile_model::labels::Labels;
use campanile_model::text::did_you_mean;
use campanile_model::words;
use campanile_store::chores::{self, ChoreLease};
use campanile_store::events::EventKind;
use campanile_store::hosts::{self, EndReason, Host};
use campanile_store::{DbError, Tx, changes};

words! {
    /// What a host does.
    HostState {
        /// It claims launches.
        Serving => "serving",
        /// It is to claim nothing, and has runs, or has not noticed yet.
        Draining => "draining",
        /// It claims nothing, and has no run.
        Drained => "drained",
        /// Its lease has ended, and no host has marked it as dead yet.
        Silent => "silent",
        /// It shut down in order.
        Stopped => "stopped",
        /// It was marked as dead.
        Died => "died",
    }
}

/// One process of a host.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct HostReport {
    pub name: String,
    pub state: HostState,
    /// The runs that it executes now.
    pub runs: i64,
    /// The most runs at once.
    pub runs_max: i64,
    #[schemars(with = "Vec<String>")]
    pub labels: Labels,
    pub version: String,
    pub wasmtime_version: String,
    pub tzdata_version: String,
    /// The id of the process. A restart has another one.
    pub incarnation: HostId,
    pub started_at: Timestamp,
    pub heartbeat_at: Timestamp,
    /// When it counts as dead unless a heartbeat comes before.
    pub lease_until: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Set while an operator wants it to claim nothing.
    pub drained_at: Option<Timestamp>,
    pub drained_by: Option<String>,
    /// Since when it does the chores of all hosts; none while another host does them.
    pub chores_since: Option<Timestamp>,
}

impl HostReport {
    fn of(host: Host, runs: i64, chores: Option<&ChoreLease>, now: Timestamp) -> HostReport {
        let has_chores = |lease: &&ChoreLease| lease.host_id == host.id && lease.lease_until >= now;
        HostReport {
            chores_since: chores.filter(has_chores).map(|lease| lease.chores_since),
            state: state(&host, runs, now),
            runs,
            name: host.name,
            runs_max: host.runs_max,
            labels: host.labels,
            version: host.version,
            wasmtime_version: host.wasmtime_version,
            tzdata_version: host.tzdata_version,
            incarnation: host.id,
            started_at: host.started_at,
            heartbeat_at: host.heartbeat_at,
            lease_until: host.lease_until,
            ended_at: host.ended_at,
            drained_at: host.drained_at,
            drained_by: host.drained_by,
        }
    }
}

/// Pure: return what a host with `runs` does at `now`.
fn state(host: &Host, runs: i64, now: Timestamp) -> HostState {
    match (host.end_reason, host.drained_at, host.claims_ended_at) {
        (Some(EndReason::Stopped), ..) => HostState::Stopped,
        (Some(EndReason::Died), ..) => HostState::Died,
        _ if !host.is_alive(now) => HostState::Silent,
        (None, None, _) => HostState::Serving,
        (None, Some(_), Some(_)) if runs == 0 => HostState::Drained,
        (None, Some(_), _) => HostState::Draining,
    }
}

/// Returns the live and drained hosts by name. `all` adds the last process of every other host.
pub async fn list(tx: &mut Tx, all: bool, now: Timestamp) -> Result<Vec<HostReport>, DbError> {
    let runs: HashMap<HostId, i64> = hosts::running(tx).await?.into_iter().collect();
    let chores = chores::holder(tx).await?;
    let hosts = hosts::newest(tx).await?.into_iter();
    let shown = hosts.filter(|host| all || host.ended_at.is_none() || host.drained_at.is_some());
    let reports = shown.map(|host| {
        let runs = runs.get(&host.id).copied().unwrap_or_default();
        HostReport::of(host, runs, chores.as_ref(), now)
    });
    Ok(reports.collect())
}

/// Let the host `name` claim nothing, or let it claim launches again.
///
/// # Errors
/// When no host of that name is on record, or when it is drained already, or not drained.
pub async fn drain(
    tx: &mut Tx,
    name: &str,
    undo: bool,
    by: &str,
    now: Timestamp,
) -> Result<HostReport> {
    let Some(host) = hosts::find(tx, name).await? else {
        return Err(unknown(tx, name).await?);
    };
    let changed = if undo {
        hosts::end_drain(tx, host.id).await?
    } else {
        hosts::drain(tx, host.id, by, now).await?
    };
    if !changed {
        return Err(ScheduleError::Conflict(
            match (host.drained_at, host.drained_by) {
                (Some(since), Some(by)) => format!(
                    "the host `{name}` is drained already, since {since} by {by}; `campanile host drain {name} --undo` ends that"
                ),
                _ => format!(
                    "the host `{name}` is not drained; `campanile host list` shows its state"
                ),
            },
        ));
    }
    let (kind, what) = if undo {
        (EventKind::HostResumed, "claims launches again")
    } else {
        (EventKind::HostDrained, "claims nothing more")
    };
    let detail = format!("by {by}: the host {what}");
    changes::record(tx, now, kind, name, &detail).await?;
    let host = hosts::with_id(tx, host.id).await?;
    let host = host.ok_or_else(|| ScheduleError::Raced(name.to_owned()))?;
    let runs = hosts::running(tx).await?.into_iter();
    let runs = runs.filter(|(id, _)| *id == host.id).map(|(_, runs)| runs);
    let runs = runs.sum();
    let chores = chores::holder(tx).await?;
    Ok(HostReport::of(host, runs, chores.as_ref(), now))
}

/// Say that no host has this name, and which name is alike.
async fn unknown(tx: &mut Tx, name: &str) -> Result<ScheduleError> {
    let hosts = hosts::newest(tx).await?;
    let near = did_you_mean(name, hosts.iter().map(|host| &*host.name));
    Ok(ScheduleError::NotFound(format!(
        "no host named `{name}` is on record{near}; `campanile host list --all` lists all hosts"
    )))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(std::time::Duration::from_secs(seconds))
    }

    fn host() -> Host {
        Host {
            id: HostId::new(at(0)),
            name: "host-1".to_owned(),
            version: String::new(),
            wasmtime_version: String::new(),
            tzdata_version: String::new(),
            started_at: at(0),
            heartbeat_at: at(10),
            lease_until: at(20),
            runs_max: 8,
            labels: Labels::default(),
            ended_at: None,
            end_reason: None,
            drained_at: None,
            drained_by: None,
            claims_ended_at: None,
        }
    }

    #[test]
    fn a_host_is_drained_when_it_has_stopped_to_claim_and_has_no_run() {
        assert_eq!(state(&host(), 3, at(15)), HostState::Serving);
        let mut drained = Host {
            drained_at: Some(at(11)),
            ..host()
        };
        assert_eq!(state(&drained, 0, at(15)), HostState::Draining);
        drained.claims_ended_at = Some(at(12));
        assert_eq!(state(&drained, 1, at(15)), HostState::Draining);
        assert_eq!(state(&drained, 0, at(15)), HostState::Drained);
        assert_eq!(state(&drained, 0, at(21)), HostState::Silent);
        for (reason, expected) in [
            (EndReason::Stopped, HostState::Stopped),
            (EndReason::Died, HostState::Died),
        ] {
            let ended = Host {
                ended_at: Some(at(21)),
                end_reason: Some(reason),
                ..drained.clone()
            };
            assert_eq!(state(&ended, 0, at(30)), expected);
        }
    }
}
