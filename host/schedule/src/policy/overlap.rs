//! What becomes of a launch while others of the same schedule are not over.
//!
//! The rule is in the documentation of [`policy`](super). [`admit`] decides about a launch when it
//! fires; [`release`] does so for those whose fire time has come since, and chooses among those that
//! wait when a run has ended or the schedule was edited, by the policy in force then. What was let go
//! is never taken back here; only [`Admission::Cancel`] and [`Admission::Terminate`] reach it.
//! [`Beside`] keeps account of one launch coming after the other.
//!
//! ```text
//!            ┌── Launch ──────────────────────────────┐
//! admit ─────┼── Queue, Replace, Cancel ── release ───┼──▶ goes on ──▶ over ──▶ release
//!            ├── Terminate: the others are over ──────┘
//!            └── Skip
//! ```
//!
//! One that fires later than it is decided is early, and nothing else, until [`release`] sees that its time has come.
//!
//! Both answers are for the transaction in which the state was read: what another host admits at
//! the same moment is in the next one's state, or the compare-and-set of the cursor fails.

use super::says::{Keep, Policies};
use campanile_model::ids::{LaunchId, LaunchKind};
use campanile_model::status::{Displaced, Overlap};
use campanile_model::words;

words! {
    /// Whether a launch can wait.
    Claim {
        /// A slot in time, a host's start or a person: it is for now.
        Prompt => "prompt",
        /// Caught up or backfilled: it stands for a time that is past.
        Patient => "patient",
    }
}

impl From<LaunchKind> for Claim {
    fn from(kind: LaunchKind) -> Claim {
        match kind {
            LaunchKind::Catchup | LaunchKind::Backfill => Claim::Patient,
            LaunchKind::Schedule | LaunchKind::Manual | LaunchKind::Startup => Claim::Prompt,
        }
    }
}

words! {
    /// How far a launch that is not over has come.
    Stage {
        /// Its fire time has not come: then it is decided about, and until then it is in nobody's way.
        Early => "early",
        /// Its fire time has come, and nobody has decided about it yet.
        Arriving => "arriving",
        /// Its fire time has come, and it waits for its turn.
        Queued => "queued",
        /// Let go: the next host with room takes it.
        Open => "open",
        /// A host carries it out.
        Running => "running",
        /// A task of it failed and will be called again.
        Retrying => "retrying",
        /// Its host is gone; it will be run again.
        Recovering => "recovering",
        /// It was asked to end, and has not yet.
        Cancelling => "cancelling",
    }
}

/// A launch that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Active {
    pub launch: LaunchId,
    pub claim: Claim,
    pub stage: Stage,
    /// Whether it is let go only when nothing else goes on, whatever the schedule says: somebody asked for that.
    pub alone: bool,
}

/// What becomes of a new launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing is in its way: it is let go.
    Launch,
    /// It waits for [`release`].
    Queue,
    /// It waits for [`release`] instead of others, which end as skipped: it overlaps them.
    Replace { waiting: Vec<LaunchId> },
    /// It waits for [`release`]. Those that run are asked to end; those that wait end as skipped.
    Cancel {
        running: Vec<LaunchId>,
        waiting: Vec<LaunchId>,
    },
    /// It is launched. Those that run end as cancelled, those that wait as skipped, in the same
    /// transaction.
    Terminate {
        running: Vec<LaunchId>,
        waiting: Vec<LaunchId>,
    },
    /// It ends as skipped.
    Skip {
        /// What it would have overlapped: the first that goes on, else the first that waits.
        overlaps: LaunchId,
    },
}

/// Decide about a new launch, beside the launches of its schedule that are not over, in the order
/// in which they were decided.
pub fn admit(policies: &Policies, active: &[Active], claim: Claim) -> Admission {
    let in_its_way = |other: &&Active| match claim {
        Claim::Prompt => other.goes_on() || other.waits_promptly(),
        Claim::Patient => other.goes_on() || other.stage == Stage::Queued,
    };
    let obstacles: Vec<&Active> = active.iter().filter(in_its_way).collect();
    let first = match obstacles.first() {
        Some(first) if obstacles.len() >= policies.at_once_max() => first,
        _ => return Admission::Launch,
    };
    if claim == Claim::Patient {
        return Admission::Queue;
    }
    let running = || active.iter().filter(|other| other.goes_on());
    let waiting = || active.iter().filter(|other| other.waits_promptly());
    let skip = Admission::Skip {
        overlaps: running().next().unwrap_or(first).launch,
    };
    match policies.overlap {
        Overlap::Skip | Overlap::Allow => skip,
        Overlap::BufferOne if waiting().next().is_none() => Admission::Queue,
        Overlap::BufferOne => match policies.keep() {
            Keep::First => skip,
            Keep::Latest => Admission::Replace {
                waiting: ids(waiting()),
            },
        },
        Overlap::BufferAll if waiting().count() < policies.max_buffered() as usize => {
            Admission::Queue
        }
        Overlap::BufferAll => skip,
        Overlap::CancelOther => Admission::Cancel {
            // Those that were asked already are not asked again.
            running: ids(running().filter(|other| other.stage != Stage::Cancelling)),
            waiting: ids(waiting()),
        },
        Overlap::TerminateOther => Admission::Terminate {
            running: ids(running()),
            waiting: ids(waiting()),
        },
    }
}

/// What becomes of those that waited for their fire time or their turn.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Released {
    /// These are let go.
    pub open: Vec<LaunchId>,
    /// These make way for one that has come to its fire time, or have come to theirs with others in their way.
    pub displacements: Displacements,
}

/// Decide about those whose fire time has come, and choose those that wait for their turn and have it now, among the
/// launches of a schedule that are not over, in the order in which they were decided.
///
/// The one that has waited longest is first. Under `cancel_other` it is the prompt one: what was
/// asked to end was asked so for its sake.
pub fn release(policies: &Policies, active: Vec<Active>) -> Released {
    let is_arriving = |launch: &Active| launch.stage == Stage::Arriving;
    let (arriving, others): (Vec<Active>, Vec<Active>) = active.into_iter().partition(is_arriving);
    let mut beside = Beside::new(others);
    let mut open = Vec::new();
    for Active { launch, claim, .. } in arriving {
        match beside.come(policies, launch, claim, false) {
            Turn::Now => open.push(launch),
            Turn::Later => {}
            Turn::Never(by) => beside.displacements.skipped.push(Displaced { launch, by }),
        }
    }
    let going_on = beside.active.iter().filter(|launch| launch.goes_on());
    let mut going_on = going_on.count();
    let mut queued: Vec<&Active> = beside
        .active
        .iter()
        .filter(|launch| launch.stage == Stage::Queued)
        .collect();
    if policies.overlap == Overlap::CancelOther {
        queued.sort_by_key(|launch| launch.claim != Claim::Prompt);
    }
    for launch in queued {
        let at_once_max = match launch.alone {
            true => 1,
            false => policies.at_once_max(),
        };
        if going_on < at_once_max {
            open.push(launch.launch);
            going_on += 1;
        }
    }
    let mut released = Released {
        open,
        displacements: beside.displacements,
    };
    released.skip_those_displaced();
    released
}

impl Released {
    /// Of two that come to their fire time in one moment the later may displace the earlier, which nobody has taken.
    fn skip_those_displaced(&mut self) {
        let displacements = &mut self.displacements;
        for displaced in [&mut displacements.cancelled, &mut displacements.terminated] {
            let (not_begun, others) = displaced
                .drain(..)
                .partition(|displaced| self.open.contains(&displaced.launch));
            *displaced = others;
            displacements.skipped.extend::<Vec<Displaced>>(not_begun);
        }
        let skipped = &displacements.skipped;
        let is_skipped = |launch: &LaunchId| skipped.iter().any(|other| other.launch == *launch);
        self.open.retain(|launch| !is_skipped(launch));
    }
}

/// The launches of one schedule that are not over, as new ones come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Beside {
    /// In the order in which they were decided.
    active: Vec<Active>,
    /// Those that made way.
    pub displacements: Displacements,
}

/// Launches that make way for others.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Displacements {
    /// These waited, and end as skipped.
    pub skipped: Vec<Displaced>,
    /// These are asked to end.
    pub cancelled: Vec<Displaced>,
    /// These are over.
    pub terminated: Vec<Displaced>,
}

/// What becomes of a new launch, when the others have made way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// It is let go.
    Now,
    /// It waits, for others or for its fire time.
    Later,
    /// It is skipped: it overlaps this one.
    Never(LaunchId),
}

impl Beside {
    /// Begin with `active`, in the order in which they were decided.
    pub fn new(active: Vec<Active>) -> Beside {
        Beside {
            active,
            displacements: Displacements::default(),
        }
    }

    /// Decide about a new launch, and let others make way for it. One that is `early` fires later, and is decided about
    /// then.
    pub fn come(
        &mut self,
        policies: &Policies,
        launch: LaunchId,
        claim: Claim,
        early: bool,
    ) -> Turn {
        if early {
            self.push(launch, claim, Stage::Early);
            return Turn::Later;
        }
        let admission = admit(policies, &self.active, claim);
        let displaced = |launches: &[LaunchId]| -> Vec<Displaced> {
            let by = launch;
            let each = launches.iter().map(|&launch| Displaced { launch, by });
            each.collect()
        };
        let turn = match &admission {
            Admission::Skip { overlaps } => return Turn::Never(*overlaps),
            Admission::Launch | Admission::Terminate { .. } => Turn::Now,
            _ => Turn::Later,
        };
        match admission {
            Admission::Replace { waiting } => {
                self.displacements.skipped.extend(displaced(&waiting));
                self.forget(&waiting);
            }
            Admission::Cancel { running, waiting } => {
                self.displacements.skipped.extend(displaced(&waiting));
                self.displacements.cancelled.extend(displaced(&running));
                self.forget(&waiting);
                self.ask_to_end(&running);
            }
            Admission::Terminate { running, waiting } => {
                self.displacements.skipped.extend(displaced(&waiting));
                self.displacements.terminated.extend(displaced(&running));
                self.forget(&waiting);
                self.forget(&running);
            }
            Admission::Launch | Admission::Queue | Admission::Skip { .. } => {}
        }
        let stage = match turn {
            Turn::Now => Stage::Open,
            Turn::Later | Turn::Never(_) => Stage::Queued,
        };
        self.push(launch, claim, stage);
        turn
    }

    fn push(&mut self, launch: LaunchId, claim: Claim, stage: Stage) {
        self.active.push(Active {
            launch,
            claim,
            stage,
            alone: false,
        });
    }

    fn forget(&mut self, over: &[LaunchId]) {
        self.active.retain(|other| !over.contains(&other.launch));
    }

    /// Those that nobody carries out at the moment are over at once.
    fn ask_to_end(&mut self, asked: &[LaunchId]) {
        self.active
            .retain(|other| other.stage == Stage::Running || !asked.contains(&other.launch));
        for other in &mut self.active {
            if asked.contains(&other.launch) {
                other.stage = Stage::Cancelling;
            }
        }
    }
}

impl Active {
    /// Whether it was let go and is not over.
    fn goes_on(&self) -> bool {
        !matches!(self.stage, Stage::Early | Stage::Arriving | Stage::Queued)
    }

    fn waits_promptly(&self) -> bool {
        self.stage == Stage::Queued && self.claim == Claim::Prompt
    }
}

impl Policies {
    /// Whether it matters to a launch that others go on.
    pub fn has_limit_at_once(&self) -> bool {
        self.at_once_max() < usize::MAX
    }

    /// How many launches go on at the same time, at most.
    pub fn at_once_max(&self) -> usize {
        match (self.overlap, self.max_concurrent) {
            (Overlap::Allow, None) => usize::MAX,
            (Overlap::Allow, Some(max)) => max as usize,
            _ => 1,
        }
    }
}

fn ids<'a>(launches: impl Iterator<Item = &'a Active>) -> Vec<LaunchId> {
    launches.map(|launch| launch.launch).collect()
}

#[cfg(test)]
mod tests;
