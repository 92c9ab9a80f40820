//! Simulate outages.

use uuid::Uuid;

use super::Outage;
use super::simulator::Simulator;
use crate::recovery_action;
use campanile_model::ids::{LaunchId, RunId};
use campanile_store::LaunchStatus;
use campanile_store::recovery::{OrphanCause, OrphanedLaunch};

/// Stands for any run: recovery only asks whether there is one.
const RUN: RunId = RunId(Uuid::nil());

impl Simulator<'_> {
    /// Let an outage pass: recover the launches that it interrupted.
    pub(super) fn pass(&mut self, outage: Outage) {
        self.now = outage.to;
        self.keep_retries();
        for id in self.launches.open_or_running() {
            self.recover(id);
        }
    }

    /// Recover an orphaned launch, as the host that returns first does.
    fn recover(&mut self, id: LaunchId) {
        let Some(simulated) = self.launches.unfinished.get_mut(&id) else {
            return;
        };
        simulated.ends += 1;
        let schedule = &self.schedules[simulated.schedule];
        let launch = &simulated.launch;
        let orphaned = OrphanedLaunch {
            launch_id: id,
            run_id: (launch.status == LaunchStatus::Running).then_some(RUN),
            schedule_id: launch.schedule_id,
            schedule_revision: schedule.due.revision,
            schedule: schedule.name.clone(),
            scheduled_time: launch.scheduled_time,
            kind: launch.kind,
            claimed_at: simulated.opened_at,
            recoveries: launch.recoveries,
            enabled: schedule.enabled,
            deleted_at: None,
            missing_since: schedule.due.missing_since,
            cancel_deadline: launch.cancel_deadline,
            cause: OrphanCause::LeaseExpired,
        };
        let delivery = schedule.policies.delivery;
        let found = recovery_action(&orphaned, delivery, &self.snapshot.recovery, self.now);
        match found.map(|found| found.action.end()) {
            None => {}
            Some(None) => self.run_again(id),
            Some(Some((status, reason))) => self.end(id, status, reason),
        }
    }

    fn run_again(&mut self, id: LaunchId) {
        self.launches.set_status(id, LaunchStatus::Open);
        if let Some(simulated) = self.launches.unfinished.get_mut(&id) {
            simulated.launch.recoveries += 1;
        }
        if let Some(row) = self.launches.row(id) {
            row.recoveries += 1;
        }
        self.forecast.recovered += u64::from(self.is_reported());
        self.make_claimable(id);
    }
}
