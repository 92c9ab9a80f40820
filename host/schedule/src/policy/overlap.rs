//! What happens to a launch while other launches of its schedule are not over.
//!
//! [`policy`](super) documents the rule. [`OverlapState::admit`] decides about a launch when it fires.
//! [`release`] does so for launches whose fire time has come since, and starts queued launches when a
//! run has ended or the schedule was edited, by the policies at that moment. A started launch stays
//! started, unless it is cancelled or terminated for another.
//!
//! ```text
//!            ┌── start ───────────────────┐
//! admit ─────┼── queue ─────── release ───┼──▶ active ──▶ over ──▶ release
//!            └── skip
//! ```
//!
//! A launch that fires later than it is decided is early. It is admitted when its fire time has come.
//!
//! Both answers hold for the transaction that read the state. Either it has locked the schedule's row, or it moves the
//! schedule's cursor by compare-and-set, which fails when another host has decided meanwhile.

use super::policies::{Keep, Policies};
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_model::status::{Displaced, Overlap};
use campanile_model::words;

words! {
    /// Whether a launch can wait.
    LaunchClass {
        /// A slot on time, a host's start, or a launch by hand.
        OnTime => "on_time",
        /// A caught-up or backfilled slot.
        Deferred => "deferred",
    }
}

impl From<LaunchKind> for LaunchClass {
    fn from(kind: LaunchKind) -> LaunchClass {
        match kind {
            LaunchKind::Catchup | LaunchKind::Backfill => LaunchClass::Deferred,
            LaunchKind::Schedule | LaunchKind::Manual | LaunchKind::Startup => LaunchClass::OnTime,
        }
    }
}

words! {
    /// How far a launch has come that is not over.
    Stage {
        /// Its fire time is in the future, so it blocks nothing.
        Early => "early",
        /// Its fire time has come, and it is not admitted yet.
        Due => "due",
        /// It is queued behind other launches.
        Queued => "queued",
        /// A host may claim it.
        Open => "open",
        /// A host executes it.
        Running => "running",
        /// One of its tasks failed and will be called again.
        Retrying => "retrying",
        /// Its host is dead, and it will be run again.
        Recovering => "recovering",
        /// It was asked to end.
        Cancelling => "cancelling",
    }
}

/// A launch that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    pub launch: LaunchId,
    pub class: LaunchClass,
    pub stage: Stage,
    /// Whether it starts only when no other launch is active, whatever the policies allow: an
    /// operator asked for that with `trigger --overlap`.
    pub alone: bool,
}

impl Active {
    /// Whether it was started and is not over.
    fn is_started(&self) -> bool {
        !matches!(self.stage, Stage::Early | Stage::Due | Stage::Queued)
    }

    fn is_queued_on_time(&self) -> bool {
        self.stage == Stage::Queued && self.class == LaunchClass::OnTime
    }
}

/// What happens to a launch that fires.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OverlapDecision {
    /// It starts.
    Start,
    /// It waits for other launches, or for its fire time.
    Queue,
    /// It is skipped: it overlaps this launch.
    Skip(LaunchId),
}

/// Decide about a new launch, and about others because of it.
///
/// `active` are the launches that are not over, in the order of their decisions.
fn admission(
    policies: &Policies,
    active: &[Active],
    by: LaunchId,
    class: LaunchClass,
) -> (OverlapDecision, Displacements) {
    let blocks = |other: &&Active| match class {
        LaunchClass::OnTime => other.is_started() || other.is_queued_on_time(),
        LaunchClass::Deferred => other.is_started() || other.stage == Stage::Queued,
    };
    let none = Displacements::default();
    let blocking: Vec<&Active> = active.iter().filter(blocks).collect();
    let first = match blocking.first() {
        Some(first) if blocking.len() >= policies.at_once_max() => first,
        _ => return (OverlapDecision::Start, none),
    };
    if class == LaunchClass::Deferred {
        return (OverlapDecision::Queue, none);
    }
    let started = || active.iter().filter(|other| other.is_started());
    let queued = || active.iter().filter(|other| other.is_queued_on_time());
    let skip = OverlapDecision::Skip(started().next().unwrap_or(first).launch);
    let displaced = |launches: &mut dyn Iterator<Item = &Active>| -> Vec<Displaced> {
        let launches = launches.map(|other| other.launch);
        launches.map(|launch| Displaced { launch, by }).collect()
    };
    let queued_displaced = || Displacements {
        skipped: displaced(&mut queued()),
        ..Displacements::default()
    };
    match policies.overlap {
        Overlap::Skip | Overlap::Allow => (skip, none),
        Overlap::BufferOne if queued().next().is_none() => (OverlapDecision::Queue, none),
        Overlap::BufferOne => match policies.keep() {
            Keep::First => (skip, none),
            Keep::Latest => (OverlapDecision::Queue, queued_displaced()),
        },
        Overlap::BufferAll if queued().count() < policies.max_buffered() as usize => {
            (OverlapDecision::Queue, none)
        }
        Overlap::BufferAll => (skip, none),
        Overlap::CancelOther => {
            let cancelled = &mut started().filter(|other| other.stage != Stage::Cancelling);
            let displacements = Displacements {
                cancelled: displaced(cancelled),
                ..queued_displaced()
            };
            (OverlapDecision::Queue, displacements)
        }
        Overlap::TerminateOther => {
            let displacements = Displacements {
                terminated: displaced(&mut started()),
                ..queued_displaced()
            };
            (OverlapDecision::Start, displacements)
        }
    }
}

/// The launches of one schedule that are not over, while new launches are admitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OverlapState {
    /// In the order of their decisions.
    active: Vec<Active>,
    pub displacements: Displacements,
}

/// Launches that end because of others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Displacements {
    /// Queued launches that end as skipped.
    pub skipped: Vec<Displaced>,
    /// Started launches that are asked to end.
    pub cancelled: Vec<Displaced>,
    /// Started launches that end at once.
    pub terminated: Vec<Displaced>,
}

impl OverlapState {
    /// Begin with `active`, in the order of their decisions.
    pub fn new(active: Vec<Active>) -> OverlapState {
        OverlapState {
            active,
            displacements: Displacements::default(),
        }
    }

    /// Decide about a new launch, and displace others for it.
    ///
    /// An `early` launch fires later; [`release`] admits it then.
    pub fn admit(
        &mut self,
        policies: &Policies,
        launch: LaunchId,
        class: LaunchClass,
        early: bool,
    ) -> OverlapDecision {
        if early {
            self.push(launch, class, Stage::Early);
            return OverlapDecision::Queue;
        }
        let (decision, displaced) = admission(policies, &self.active, launch, class);
        self.active.retain_mut(|other| {
            let is_in = |list: &[Displaced]| list.iter().any(|ended| ended.launch == other.launch);
            let is_cancelled = is_in(&displaced.cancelled);
            // A launch that no host executes is over as soon as it is cancelled.
            let is_over = is_in(&displaced.skipped)
                || is_in(&displaced.terminated)
                || is_cancelled && other.stage != Stage::Running;
            if is_cancelled {
                other.stage = Stage::Cancelling;
            }
            !is_over
        });
        let all = &mut self.displacements;
        all.skipped.extend(displaced.skipped);
        all.cancelled.extend(displaced.cancelled);
        all.terminated.extend(displaced.terminated);
        match decision {
            OverlapDecision::Start => self.push(launch, class, Stage::Open),
            OverlapDecision::Queue => self.push(launch, class, Stage::Queued),
            OverlapDecision::Skip(_) => {}
        }
        decision
    }

    fn push(&mut self, launch: LaunchId, class: LaunchClass, stage: Stage) {
        self.active.push(Active {
            launch,
            class,
            stage,
            alone: false,
        });
    }
}

/// What happens to the early and the queued launches of a schedule.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// These start.
    pub open: Vec<LaunchId>,
    /// These end for others, or are skipped because others block them at their fire time.
    pub displacements: Displacements,
}

/// Admit the launches whose fire time has come, and choose the queued launches that start.
///
/// `active` are the launches that are not over, in the order of their decisions. The launch that was
/// queued first starts first. Under `cancel_other` a launch on time starts first: the active launch was
/// cancelled for it.
pub fn release(policies: &Policies, active: Vec<Active>) -> Released {
    let is_due = |launch: &Active| launch.stage == Stage::Due;
    let (due, others): (Vec<Active>, Vec<Active>) = active.into_iter().partition(is_due);
    let mut state = OverlapState::new(others);
    let mut open = Vec::new();
    for Active { launch, class, .. } in due {
        match state.admit(policies, launch, class, false) {
            OverlapDecision::Start => open.push(launch),
            OverlapDecision::Queue => {}
            OverlapDecision::Skip(by) => state.displacements.skipped.push(Displaced { launch, by }),
        }
    }
    let active = state.active.iter();
    let mut started = active.clone().filter(|launch| launch.is_started()).count();
    let mut queued: Vec<&Active> = active
        .filter(|launch| launch.stage == Stage::Queued)
        .collect();
    if policies.overlap == Overlap::CancelOther {
        queued.sort_by_key(|launch| launch.class != LaunchClass::OnTime);
    }
    for launch in queued {
        let at_once_max = if launch.alone {
            1
        } else {
            policies.at_once_max()
        };
        if started < at_once_max {
            open.push(launch.launch);
            started += 1;
        }
    }
    // A launch that another launch of the same call displaced is skipped: no host has claimed it yet.
    let mut displacements = state.displacements;
    let skipped = &mut displacements.skipped;
    for ended in [&mut displacements.cancelled, &mut displacements.terminated] {
        skipped.extend(ended.extract_if(.., |other| open.contains(&other.launch)));
    }
    open.retain(|launch| skipped.iter().all(|other| other.launch != *launch));
    Released {
        open,
        displacements,
    }
}

impl Policies {
    /// Whether the other launches of the schedule can keep a launch from starting.
    pub fn has_limit_at_once(&self) -> bool {
        self.at_once_max() < usize::MAX
    }

    /// Returns how many launches are active at the same time, at most.
    pub fn at_once_max(&self) -> usize {
        match (self.overlap, self.max_concurrent) {
            (Overlap::Allow, None) => usize::MAX,
            (Overlap::Allow, Some(max)) => max as usize,
            _ => 1,
        }
    }
}

#[cfg(test)]
mod tests;
