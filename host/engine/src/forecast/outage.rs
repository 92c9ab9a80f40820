//! What an outage does to launches.

use std::collections::VecDeque;

use uuid::Uuid;

use super::Outage;
use super::simulator::Simulator;
use crate::recovery_action;
use campanile_model::ids::{LaunchId, RunId};
use campanile_store::LaunchStatus;
use campanile_store::overlap::REASON;
use campanile_store::recovery::{OrphanCause, OrphanedLaunch, RecoveryAction};

/// Any run: only whether there is one matters.
const RUN: RunId = RunId(Uuid::nil());

/// Outages in their order, those that meet as one.
pub(super) fn merged(outages: &[Outage]) -> VecDeque<Outage> {
    let mut sorted = outages.to_vec();
    sorted.sort_unstable_by_key(|outage| outage.from);
    let mut merged: VecDeque<Outage> = VecDeque::new();
    for outage in sorted {
        match merged.back_mut() {
            Some(last) if outage.from <= last.to => last.to = last.to.max(outage.to),
            _ => merged.push_back(outage),
        }
    }
    merged
}

impl Simulator<'_> {
    /// Let an outage pass: what it interrupts is lost, and taken up again when it is over.
    pub(super) fn pass(&mut self, outage: Outage) {
        self.now = outage.to;
        self.keep_retries();
        for id in self.ledger.open_or_running() {
            self.recover(id);
        }
    }

    /// Take up a launch that was lost, as recovery does.
    fn recover(&mut self, id: LaunchId) {
        let Some(simulated) = self.ledger.get_mut(id) else {
            return;
        };
        simulated.ends += 1;
        let scheduled = &self.snapshot.schedules[simulated.schedule];
        let launch = &simulated.launch;
        let stray = OrphanedLaunch {
            launch_id: id,
            run_id: (launch.status == LaunchStatus::Running).then_some(RUN),
            schedule_id: launch.schedule_id,
            schedule_revision: scheduled.due.revision,
            schedule: scheduled.name.clone(),
            scheduled_time: simulated.scheduled_time.unwrap_or(launch.fire_time),
            kind: launch.kind,
            claimed_at: simulated.opened_at,
            recoveries: launch.recoveries,
            enabled: scheduled.enabled,
            deleted_at: None,
            missing_since: scheduled.due.missing_since,
            cancel_deadline: launch.cancel_deadline,
            cause: OrphanCause::LeaseExpired,
        };
        let delivery = scheduled.policies.delivery;
        let found = recovery_action(&stray, delivery, &self.snapshot.recovery, self.now);
        match found.map(|found| found.action) {
            None => {}
            Some(RecoveryAction::RunAgain) => self.run_again(id),
            Some(RecoveryAction::Abandon(reason)) => {
                self.over(id, LaunchStatus::Abandoned, Some(reason))
            }
            Some(RecoveryAction::MarkUnknown) => self.over(id, LaunchStatus::Unknown, None),
            Some(RecoveryAction::Cancel) => self.over(id, LaunchStatus::Cancelled, Some(REASON)),
        }
    }

    fn run_again(&mut self, id: LaunchId) {
        self.ledger.set_status(id, LaunchStatus::Open);
        if let Some(simulated) = self.ledger.get_mut(id) {
            simulated.launch.recoveries += 1;
        }
        if let Some(row) = self.ledger.row(id) {
            row.recoveries += 1;
        }
        if self.now >= self.question.from {
            self.forecast.recovered += 1;
        }
        self.opens(id);
    }
}
