//! The pings of runs that wait, and what each of them says.

use std::collections::VecDeque;
use std::sync::Mutex;

use tokio::sync::Notify;

use campanile_control::lock::lock;
use campanile_control::rules::alert_rule::SCHEDULE_PLACEHOLDER;
use campanile_model::ids::{RunId, ScheduleId};
use campanile_store::launch::{Finish, RunEnd};

/// The pings that wait. Of more, the oldest are dropped.
const WAITING_MAX: usize = 4_096;

/// The start or the end of a run, as a monitor gets it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RunPing {
    pub(crate) schedule_id: ScheduleId,
    pub(crate) run_id: RunId,
    stage: Stage,
}

/// The part of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Stage {
    Started,
    Succeeded,
    /// With the reason.
    Failed(String),
}

impl RunPing {
    /// Returns the ping of the start of a run.
    pub(crate) fn started(schedule_id: ScheduleId, run_id: RunId) -> RunPing {
        RunPing {
            schedule_id,
            run_id,
            stage: Stage::Started,
        }
    }

    /// Returns the ping of the end of a run; none when it waits for a retry.
    pub(crate) fn ended(finish: &Finish) -> Option<RunPing> {
        let stage = match &finish.end {
            RunEnd::Succeeded { .. } => Stage::Succeeded,
            RunEnd::Failed { kind, message } => Stage::Failed(format!("{kind}: {message}")),
            RunEnd::Cancelled { message } => Stage::Failed(format!("cancelled: {message}")),
            RunEnd::Waiting { .. } => return None,
        };
        Some(RunPing {
            schedule_id: finish.schedule_id,
            run_id: finish.run_id,
            stage,
        })
    }

    /// Returns the address of the ping of the schedule `name`, from the address `url` of the configuration.
    pub(crate) fn url(&self, url: &str, name: &str) -> String {
        let url = url.replace(SCHEDULE_PLACEHOLDER, name);
        let (path, query) = match url.split_once('?') {
            Some((path, query)) => (path, format!("{query}&")),
            None => (url.as_str(), String::new()),
        };
        let path = path.trim_end_matches('/');
        let stage = match self.stage {
            Stage::Started => "/start",
            Stage::Succeeded => "",
            Stage::Failed(_) => "/fail",
        };
        format!("{path}{stage}?{query}rid={}", self.run_id)
    }

    pub(crate) fn body(&self) -> &str {
        match &self.stage {
            Stage::Failed(why) => why,
            Stage::Started | Stage::Succeeded => "",
        }
    }
}

/// The pings that were noted and that no service has taken.
#[derive(Default)]
pub(crate) struct PingQueue {
    waiting: Mutex<VecDeque<RunPing>>,
    /// Pings were added.
    pub(crate) wake: Notify,
}

impl PingQueue {
    /// Add pings. Of too many, the oldest are dropped.
    pub(crate) fn add(&self, pings: impl IntoIterator<Item = RunPing>) {
        let mut waiting = lock(&self.waiting);
        waiting.extend(pings);
        trim(&mut waiting);
        drop(waiting);
        self.wake.notify_one();
    }

    /// Take all pings, the oldest first.
    pub(crate) fn take(&self) -> Vec<RunPing> {
        lock(&self.waiting).drain(..).collect()
    }
}

/// Drop the oldest of too many pings.
pub(crate) fn trim<P>(waiting: &mut VecDeque<P>) {
    let surplus = waiting.len().saturating_sub(WAITING_MAX);
    if surplus > 0 {
        tracing::warn!(
            pings = surplus,
            "their monitor answers too slowly: the oldest pings of runs are dropped"
        );
    }
    waiting.drain(..surplus);
}

#[cfg(test)]
mod tests {
    use super::*;

    use campanile_model::ids::LaunchId;

    #[test]
    fn the_address_of_a_ping_says_the_stage_and_the_run() {
        let run_id = RunId::of(LaunchId(uuid::Uuid::from_u128(0x100)), 1);
        let url = |url: &str, stage| {
            let ping = RunPing {
                schedule_id: ScheduleId(uuid::Uuid::nil()),
                run_id,
                stage,
            };
            ping.url(url, "nightly")
        };
        let failed = || Stage::Failed("x".to_owned());
        for (address, stage, expected) in [
            ("https://a.b/1", Stage::Started, "https://a.b/1/start?rid="),
            ("https://a.b/1", Stage::Succeeded, "https://a.b/1?rid="),
            ("https://a.b/1/", failed(), "https://a.b/1/fail?rid="),
            (
                "https://a.b/k/{schedule}?create=1",
                failed(),
                "https://a.b/k/nightly/fail?create=1&rid=",
            ),
        ] {
            assert_eq!(url(address, stage), format!("{expected}{run_id}"));
        }
    }

    #[test]
    fn a_full_queue_drops_its_oldest_pings() {
        let mut waiting: VecDeque<usize> = (0..WAITING_MAX + 2).collect();
        trim(&mut waiting);
        assert_eq!((waiting.len(), waiting[0]), (WAITING_MAX, 2));
    }
}
