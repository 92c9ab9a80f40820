//! What is decided about slots: every policy of a schedule, and nothing that stores or launches.
//!
//! [`Policies`] is what a schedule says besides its rule. Three questions are answered here, by
//! pure functions, so that the engine, a forecast and an explanation give the same answers:
//!
//! ```text
//! slots after the cursor ── Terms::judge ──▶ launch, catch up, or drop and why
//!                                              │
//! what else of the schedule goes on ── admit ──┴──▶ now, later, not at all, or instead of another
//!                                              ┌──▶ which of those that wait
//! a run has ended, a fire time has come ── release
//! ```
//!
//! # Slots
//!
//! The first of these that holds decides about a slot:
//!
//! | the slot                                              | it is                             |
//! |-------------------------------------------------------|-----------------------------------|
//! | was taken out by a person                             | dropped: `skipped_once`           |
//! | is late by no more than `misfire_grace`               | launched                          |
//! | was missed, and `catchup` is `none`                   | dropped: `catchup_none`           |
//! | was missed by more than `catchup_window`              | dropped: `window`                 |
//! | was missed, `latest`: the newest / any other          | caught up / dropped: `coalesced`  |
//! | was missed, `earliest`: the oldest / any other        | caught up / dropped: `coalesced`  |
//! | was missed, `all`: the newest `catchup_max` / others  | caught up / dropped: `catchup_max`|
//!
//! What the rule yields before `start_at`, after `end_at` and when `max_launches` are made is no slot
//! of the schedule. A slot fires at its time and its jitter, and is late from then on. One that is caught up fires
//! at once; with `catchup_spread` it fires that long after now or after the one caught up before
//! it, whichever is later.
//!
//! # Overlap
//!
//! What goes on is whatever was let go and is not over: it runs, is retried or recovered, waits to
//! be taken, or was asked to end; and whatever asked for it. A slot in time, a host's start and a
//! person are prompt:
//!
//! | `overlap`         | while something goes on                                                    |
//! |-------------------|----------------------------------------------------------------------------|
//! | `skip`            | it is skipped                                                              |
//! | `buffer_one`      | it waits, if nothing prompt does; else `keep` says which of the two stays  |
//! | `buffer_all`      | it waits, if fewer than `max_buffered` prompt ones do; else it is skipped  |
//! | `cancel_other`    | what goes on is asked to end, and it waits for that                        |
//! | `terminate_other` | what goes on is ended, and it is launched                                  |
//! | `allow`           | it is launched, up to `max_concurrent`; then it is skipped                 |
//!
//! What is caught up or backfilled is patient: it waits for its turn under every policy, since to
//! skip it would undo what `catchup` decided, and to cancel a newer run for an older slot helps
//! nobody. While it waits it is in the way of nothing prompt. A slot with jitter is decided about when it
//! fires, and is in nobody's way before.

mod check;
mod error;
mod jitter;
mod judge;
mod overlap;
mod says;
mod typed;

#[cfg(test)]
mod cells;
#[cfg(test)]
mod model;
#[cfg(test)]
mod outage;
#[cfg(test)]
mod testing;

pub use campanile_model::status::{Displaced, Overlap};
pub use error::PolicyError;
pub use judge::{CaughtUp, Decision, DropReason, Judgement, Standing, Terms, Verdict};
pub use overlap::{
    Active, Admission, Beside, Claim, Displacements, Released, Stage, Turn, admit, release,
};
pub use says::{CATCHUP_MAX_MOST, Catchup, Defaults, Delivery, Keep, Policies};
pub use typed::{NUMBER_MOST, Policy, Shape};
