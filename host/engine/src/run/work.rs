//! A claimed run: what this host knows when it executes one.

use std::sync::Arc;

use serde_json::json;

use crate::alive::lease_table::Lease;
use crate::claim::capacity::Permit;
use crate::decide::spec::Spec;
use crate::run::user_context::UserContext;
use campanile_control::stored::stored_json;
use campanile_model::clock::Timestamp;
use campanile_model::ids::RunId;
use campanile_model::trace_context::TraceContext;
use campanile_package::Package;
use campanile_sandbox::JsonText;
use campanile_store::launch::{Claim, ClaimedLaunch, Finish, RunEnd, RunHashes};
use campanile_store::task_runs::TaskRun;
use campanile_workflow::context::Facts;

/// How earlier runs of the schedule ended, as JSON; null where there was none.
#[derive(Clone)]
pub(crate) struct LastEnds {
    pub(crate) result: JsonText,
    pub(crate) failure: JsonText,
}

impl LastEnds {
    /// Read both from the database's texts.
    pub(crate) fn of(result: Option<String>, failure: Option<String>) -> LastEnds {
        let read = |text: Option<String>| stored_json(text.as_deref());
        LastEnds {
            result: read(result).unwrap_or_else(JsonText::null),
            failure: read(failure).unwrap_or_else(JsonText::null),
        }
    }

    pub(crate) fn bytes(&self) -> usize {
        self.result.as_str().len() + self.failure.as_str().len()
    }
}

/// A run that this host has claimed and is about to execute.
pub struct Work {
    pub launch: ClaimedLaunch,
    /// The lease of the claim, as long as it is not renewed.
    pub(crate) lease: Lease,
    /// The schedule's definition when the launch was decided.
    pub spec: Arc<Spec>,
    /// The package whose grants and limits apply; none when it has just left this host's folder.
    pub package: Option<Arc<Package>>,
    pub(crate) user: Arc<UserContext>,
    /// Held until the run ends. While too many ends are not recorded, it is held until its own end is recorded.
    pub(crate) permit: Permit,
    /// When this host began the run again: it had begun it before, and the database has lost that.
    pub(crate) repeated_at: Option<Timestamp>,
}

impl Work {
    pub fn run_id(&self) -> RunId {
        self.launch.run_id()
    }

    pub fn fence(&self) -> i64 {
        self.launch.fence()
    }

    /// Returns the claim to record.
    pub(crate) fn claim(&self) -> Claim {
        Claim {
            launch_id: self.launch.launch_id,
            fence: self.fence(),
            hashes: self.hashes(),
        }
    }

    pub(crate) fn hashes(&self) -> RunHashes {
        let package = self.package.as_ref();
        RunHashes {
            grants: package.map(|package| package.grant_record.hash.clone()),
            context: Some(self.user.hash.clone()),
        }
    }

    /// Returns the reserved keys for one call of `task`, the `attempt`-th for its launch. The task gets a trace context if
    /// the launch has a caller with one, or if `is_traced`.
    ///
    /// Without either, tasks see what they saw before there were traces.
    pub(crate) fn facts(
        &self,
        task: &str,
        attempt: i64,
        last: &LastEnds,
        is_traced: bool,
    ) -> Facts {
        let launch = &self.launch;
        let caller = launch.caller_traceparent;
        let of_call = || {
            let of_launch = TraceContext::of_launch(launch.launch_id, caller);
            of_launch.of_run(self.run_id()).of_call(task, attempt)
        };
        let definition = &self.spec.definition;
        Facts {
            is_recovery: launch.is_recovery() || self.repeated_at.is_some(),
            original_scheduled_time: launch.scheduled_time,
            recovery_attempt_time: self
                .repeated_at
                .or(launch.recovered_at.filter(|_| launch.is_recovery())),
            execution_id: launch.launch_id,
            run_id: self.run_id(),
            attempt,
            trigger: launch.kind,
            schedule: json!({
                "id": launch.schedule_id,
                "name": definition.name,
                "expression": definition.rule.expression,
                "timezone": definition.rule.timezone,
            }),
            scheduled_local: launch
                .scheduled_time
                .local_text(launch.utc_offset, &definition.rule.timezone),
            interval_start: launch.interval_start,
            traceparent: (is_traced || caller.is_some()).then(of_call),
            last_result: last.result.clone(),
            last_failure: last.failure.clone(),
        }
    }

    /// Returns the record of this run's end at `at`, with the calls not recorded yet.
    pub fn finished(&self, end: RunEnd, tasks: Vec<TaskRun>, at: Timestamp) -> Finish {
        Finish {
            run_id: self.run_id(),
            fence: self.fence(),
            schedule_id: self.launch.schedule_id,
            scheduled_time: self.launch.scheduled_time,
            at,
            end,
            tasks,
        }
    }
}
