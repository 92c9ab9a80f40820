//! The policies of a schedule: what happens to its slots, and to launches that overlap. Pure.
//!
//! The engine, the forecast and the explanation of a launch call the same three functions:
//!
//! ```text
//! slots after the cursor ── SlotEvaluator::evaluate ──▶ launch, catch up, or drop with a reason
//!                                                         │
//! active launches of the schedule ── OverlapState::admit ─┴──▶ start, queue, or skip; displace others
//!                                                         ┌──▶ queued launches that start
//! a run has ended, a fire time has come ──── release ─────┘
//! ```
//!
//! This module stores nothing, launches nothing and does not read the clock.
//!
//! # Slots
//!
//! The first line that applies decides about a slot:
//!
//! | the slot                                                | decision                           |
//! |---------------------------------------------------------|------------------------------------|
//! | an operator skipped it                                  | dropped: `skipped_once`            |
//! | it is late by no more than `misfire_grace`              | launched                           |
//! | it was missed, and `catchup` is `none`                  | dropped: `catchup_none`            |
//! | it was missed by more than `catchup_window`             | dropped: `window`                  |
//! | it was missed; `latest`: the newest / another           | caught up / dropped: `coalesced`   |
//! | it was missed; `earliest`: the oldest / another         | caught up / dropped: `coalesced`   |
//! | it was missed; `all`: one of the newest `catchup_max` / another | caught up / dropped: `catchup_max` |
//!
//! Times of the rule before `start_at`, after `end_at` and after the last of `max_launches` are no
//! slots of the schedule. A slot fires at its time plus its jitter, and is late from then on. A slot
//! that is caught up fires at once. With `catchup_spread` it fires that long after now, or after the
//! slot that was caught up before it, whichever is later.
//!
//! # Overlap
//!
//! A launch is active from its start until it is over: it is open, runs, waits for a retry or a
//! recovery, or was asked to end. The kind of a launch does not matter. A launch of a slot on time, of
//! a host's start or by hand is on time:
//!
//! | `overlap`         | while a launch of the schedule is active                                       |
//! |-------------------|--------------------------------------------------------------------------------|
//! | `skip`            | the new launch is skipped                                                      |
//! | `buffer_one`      | it is queued, if no launch on time is; else `keep` says which of the two stays |
//! | `buffer_all`      | it is queued, if fewer than `max_buffered` launches on time are; else skipped  |
//! | `cancel_other`    | the active launch is asked to end, and the new launch is queued                |
//! | `terminate_other` | the active launch ends, and the new launch starts                              |
//! | `allow`           | the new launch starts, up to `max_concurrent`; then it is skipped              |
//!
//! Under `cancel_other` and `terminate_other`, queued launches on time are skipped too.
//!
//! A caught-up or backfilled launch is deferred: it is queued under every policy. Skipping it would
//! undo the decision of `catchup`, and cancelling a newer run for an older slot is never wanted. A queued
//! deferred launch does not block a launch on time. A slot with jitter is admitted when it fires, and
//! blocks nothing before.

mod check;
mod error;
mod group;
mod jitter;
mod overlap;
mod policies;
mod retry;
mod slots;

#[cfg(test)]
mod outage_tables;
#[cfg(test)]
mod slot_model;
#[cfg(test)]
mod slot_tables;
#[cfg(test)]
mod testing;

pub use campanile_model::status::{Displaced, Overlap};
pub use error::PolicyError;
pub use group::GroupName;
pub use overlap::{
    Active, Displacements, LaunchClass, OverlapDecision, OverlapState, Released, Stage, release,
};
pub use policies::{
    CATCHUP_MAX_LIMIT, Catchup, DefaultValue, Defaults, Delivery, Keep, MAX_ATTEMPTS_LIMIT,
    NUMBER_MAX, PRIORITY_MAX, Policies, Policy, PolicySpec, ValueKind,
};
pub use retry::{Coefficient, FailureKinds};
pub use slots::{
    DropReason, LastCatchup, SlotAction, SlotDecision, SlotDecisions, SlotEvaluator, SlotProgress,
};
