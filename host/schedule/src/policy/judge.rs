//! What becomes of the slots that have come.
//!
//! ```text
//!     cursor      now - window            now - grace    now
//! ──────┼───s──s──s────┼────s──────s──────s──────┼──s──s──┼──▶
//!            └ window ┘     └ by `catchup` ┘       launch
//! ```
//!
//! The rule is in the documentation of [`policy`](super). Slots are walked one by one from the
//! cursor, as many as the caller allows; what is dropped together is one [`Decision`] with a
//! count, so a walk of any length needs no memory to speak of. Which slots are kept by `latest`
//! and `all` is known beforehand by going back from the newest missed one, at most
//! [`CATCHUP_MAX_MOST`](super::CATCHUP_MAX_MOST) steps and those that were taken out.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::time::Duration;

use super::jitter;
use super::says::{Catchup, Defaults, Policies};
use crate::rule::Rule;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::words;

/// The finest step of an instant.
const MICROSECOND: Duration = Duration::from_micros(1);

/// All that a schedule, and the host it is on, say about its slots.
#[derive(Clone, Copy, Debug)]
pub struct Terms<'a> {
    /// Chooses the jitter.
    pub schedule: ScheduleId,
    pub rule: &'a Rule,
    pub policies: &'a Policies,
    pub defaults: &'a Defaults,
}

/// Where a schedule stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// The last slot decided, or the instant of the schedule's creation.
    pub cursor: Timestamp,
    /// The launches that were made, other than by hand.
    pub launches: u64,
    /// The newest launch that was caught up.
    pub caught_up: Option<CaughtUp>,
    /// The slots that a person took out.
    pub taken_out: BTreeSet<Timestamp>,
}

/// What has to be known of a launch that was caught up, to go on after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaughtUp {
    /// The `now` with which that was decided.
    pub decided_at: Timestamp,
    /// When it fires.
    pub fire_time: Timestamp,
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In time, or late within the grace.
    Launch {
        /// The slot and its jitter.
        fire_time: Timestamp,
    },
    /// Missed, and launched after all.
    CatchUp {
        /// The slot and its jitter, or what the spread makes of it.
        fire_time: Timestamp,
    },
    /// Not launched.
    Drop(DropReason),
}

words! {
    /// Why a slot is not launched.
    DropReason {
        /// A person took it out.
        SkippedOnce => "skipped_once",
        /// It was missed, and the schedule catches nothing up.
        CatchupNone => "catchup_none",
        /// It was missed by more than the window.
        Window => "window",
        /// Another slot was missed too, and stands for it.
        Coalesced => "coalesced",
        /// It was missed, and enough later ones were too.
        CatchupMax => "catchup_max",
    }
}

/// A verdict on one slot, or the same drop of several that follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What becomes of the slots.
    pub verdict: Verdict,
    /// The first slot.
    pub first: Timestamp,
    /// The last slot; the first, unless slots were dropped together.
    pub last: Timestamp,
    /// How many slots of the rule lie from `first` to `last`, both counted.
    pub count: u64,
}

/// What was decided, and how far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Judgement {
    /// In the order of the slots, without a hole.
    pub decisions: Vec<Decision>,
    /// The last slot decided; `None` when none was.
    pub cursor: Option<Timestamp>,
    /// The slot at which there is something to decide again. Not after `now` when the work ended
    /// early; then judge again, after the cursor. `None` when the schedule has ended.
    pub next: Option<Timestamp>,
}

impl Terms<'_> {
    /// Decide on the slots after the cursor up to `now`, at most `slots_max` of them (at least 1).
    ///
    /// Judging in several calls, each from where the one before led, decides the same as one call
    /// does, when all launches are made that it decides on.
    pub fn judge(&self, standing: &Standing, now: Timestamp, slots_max: usize) -> Judgement {
        let mut hearing = Hearing::new(*self, standing, now);
        let mut judgement = Judgement {
            decisions: Vec::new(),
            cursor: None,
            next: self.next_slot(standing.cursor, standing.launches),
        };
        for _ in 0..slots_max.max(1) {
            let Some(slot) = judgement.next.filter(|&slot| slot <= now) else {
                break;
            };
            let next = self.rule.next(slot);
            judgement.push(slot, hearing.verdict(slot, next));
            judgement.cursor = Some(slot);
            judgement.next = next.filter(|_| hearing.left != Some(0));
            judgement.next = judgement
                .next
                .filter(|&next| self.policies.has_not_ended(next));
        }
        judgement
    }

    /// [`Policies::next_slot`] of the rule.
    pub fn next_slot(&self, after: Timestamp, launches: u64) -> Option<Timestamp> {
        self.policies.next_slot(self.rule, after, launches)
    }

    /// When `slot` fires, if it comes in time.
    pub fn fire_time(&self, slot: Timestamp) -> Timestamp {
        match self.policies.jitter {
            Some(_) => self.fire_time_before(slot, self.rule.next(slot)),
            None => slot,
        }
    }

    /// [`Terms::fire_time`], where the slot after it is known.
    fn fire_time_before(&self, slot: Timestamp, next: Option<Timestamp>) -> Timestamp {
        self.policies.jitter.map_or(slot, |most| {
            slot.plus(jitter::delay(self.schedule, slot, next, most))
        })
    }
}

impl Policies {
    /// The first slot of `rule` after `after` that the schedule may launch when it has made so many
    /// launches; `None` when it has ended.
    pub fn next_slot(&self, rule: &Rule, after: Timestamp, launches: u64) -> Option<Timestamp> {
        if self.launches_left(launches) == Some(0) {
            return None;
        }
        let before_start = self.start_at.map(|start| start.minus(MICROSECOND));
        let slot = rule.next(before_start.map_or(after, |before| before.max(after)))?;
        Some(slot).filter(|&slot| self.has_not_ended(slot))
    }

    fn has_not_ended(&self, slot: Timestamp) -> bool {
        self.end_at.is_none_or(|end| slot <= end)
    }
}

/// One call of [`Terms::judge`], as far as it has come.
struct Hearing<'a> {
    terms: Terms<'a>,
    standing: &'a Standing,
    now: Timestamp,
    grace: Duration,
    window: Duration,
    /// How many more launches the schedule may have.
    left: Option<u64>,
    caught_up: Option<CaughtUp>,
    /// The oldest of the missed slots that `latest` or `all` keeps.
    kept_from: OnceCell<Option<Timestamp>>,
}

impl<'a> Hearing<'a> {
    fn new(terms: Terms<'a>, standing: &'a Standing, now: Timestamp) -> Hearing<'a> {
        let (policies, defaults) = (terms.policies, terms.defaults);
        Hearing {
            terms,
            standing,
            now,
            grace: policies.misfire_grace.unwrap_or(defaults.misfire_grace),
            window: policies.catchup_window.unwrap_or(defaults.catchup_window),
            left: policies.launches_left(standing.launches),
            caught_up: standing.caught_up,
            kept_from: OnceCell::new(),
        }
    }

    /// What becomes of `slot`; slots are to be asked about in their order. `next` is the one after it.
    fn verdict(&mut self, slot: Timestamp, next: Option<Timestamp>) -> Verdict {
        if self.standing.taken_out.contains(&slot) {
            return Verdict::Drop(DropReason::SkippedOnce);
        }
        let fire_time = self.terms.fire_time_before(slot, next);
        let verdict = if self.was_missed_at(fire_time, self.now) {
            if let Some(reason) = self.not_caught_up(slot, fire_time) {
                return Verdict::Drop(reason);
            }
            self.catch_up(fire_time)
        } else {
            Verdict::Launch { fire_time }
        };
        self.left = self.left.map(|left| left.saturating_sub(1));
        verdict
    }

    /// Why `slot`, which was missed, is not launched after all.
    fn not_caught_up(&self, slot: Timestamp, fire_time: Timestamp) -> Option<DropReason> {
        let too_old = self.now.since(fire_time) > self.window;
        let kept = |count| {
            let from = *self.kept_from.get_or_init(|| self.oldest_of_newest(count));
            from.is_some_and(|from| from <= slot)
        };
        match self.terms.policies.catchup {
            Catchup::None => Some(DropReason::CatchupNone),
            _ if too_old => Some(DropReason::Window),
            Catchup::Latest if !kept(1) => Some(DropReason::Coalesced),
            Catchup::All if !kept(self.terms.policies.catchup_max()) => {
                Some(DropReason::CatchupMax)
            }
            // Another one was caught up when this one was missed already: that one stands for it.
            Catchup::Earliest
                if self
                    .caught_up
                    .is_some_and(|other| self.was_missed_at(fire_time, other.decided_at)) =>
            {
                Some(DropReason::Coalesced)
            }
            Catchup::Latest | Catchup::Earliest | Catchup::All => None,
        }
    }

    /// Going back from the newest missed slot that a launch could be made of, the last of `count`
    /// such slots, or the last there is after the cursor.
    fn oldest_of_newest(&self, count: u32) -> Option<Timestamp> {
        let ends = self.terms.policies.end_at.map(|end| end.plus(MICROSECOND));
        let start = self.terms.policies.start_at.unwrap_or(self.standing.cursor);
        let recent = self.now.minus(self.grace);
        let mut before = ends.map_or(recent, |ends| ends.min(recent));
        let mut oldest = None;
        let mut wanted = count;
        while wanted > 0 {
            let slot = self.terms.rule.prev(before);
            let Some(slot) = slot.filter(|&slot| slot > self.standing.cursor && slot >= start)
            else {
                break;
            };
            before = slot;
            // Its jitter may have kept it from being missed.
            let missed = self.was_missed_at(self.terms.fire_time(slot), self.now);
            if missed && !self.standing.taken_out.contains(&slot) {
                oldest = Some(slot);
                wanted -= 1;
            }
        }
        oldest
    }

    fn catch_up(&mut self, fire_time: Timestamp) -> Verdict {
        let fire_time = match self.terms.policies.catchup_spread {
            None => fire_time,
            Some(spread) => {
                let before = self.caught_up.map(|other| other.fire_time);
                before
                    .map_or(self.now, |before| before.max(self.now))
                    .plus(spread)
            }
        };
        self.caught_up = Some(CaughtUp {
            decided_at: self.now,
            fire_time,
        });
        Verdict::CatchUp { fire_time }
    }

    /// Whether a slot that fires at `fire_time` counted as missed at `instant`.
    fn was_missed_at(&self, fire_time: Timestamp, instant: Timestamp) -> bool {
        instant.since(fire_time) > self.grace
    }
}

impl Judgement {
    /// Add the verdict on `slot`, in one range with those before if it is the same drop.
    fn push(&mut self, slot: Timestamp, verdict: Verdict) {
        match self.decisions.last_mut() {
            Some(last) if last.verdict == verdict && matches!(verdict, Verdict::Drop(_)) => {
                last.last = slot;
                last.count += 1;
            }
            _ => self.decisions.push(Decision {
                verdict,
                first: slot,
                last: slot,
                count: 1,
            }),
        }
    }
}
