//! What happens to the slots of a schedule after its cursor.
//!
//! ```text
//!     cursor      now - window            now - grace    now
//! ──────┼───s──s──s────┼────s──────s──────s──────┼──s──s──┼──▶
//!            └ window ┘     └ by `catchup` ┘       launch
//! ```
//!
//! [`policy`](super) documents the rule. Consecutive drops for the same reason form one [`SlotDecision`] with a count. Where the reason
//! can't change, the evaluator counts the slots up to the end of the run instead of walking through them, since a clock starting in 1970
//! leaves a billion. It walks all others one by one, as many as the caller allows. For `latest` and `all` it first walks back from the
//! newest missed slot, past at most [`CATCHUP_MAX_LIMIT`](super::CATCHUP_MAX_LIMIT) slots not skipped.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::iter;
use std::ops::Bound;
use std::time::Duration;

use super::jitter;
use super::policies::{Catchup, Defaults, Policies};
use crate::rule::Rule;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_model::words;

/// The precision of [`Timestamp`].
const MICROSECOND: Duration = Duration::from_micros(1);

/// What decides about the slots of one schedule on one host.
#[derive(Clone, Copy, Debug)]
pub struct SlotEvaluator<'a> {
    /// The key of the jitter.
    pub schedule: ScheduleId,
    pub rule: &'a Rule,
    pub policies: &'a Policies,
    pub defaults: &'a Defaults,
}

/// How far the slots of a schedule are decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotProgress {
    /// The last slot that was decided, or the instant at which the schedule was created.
    pub cursor: Timestamp,
    /// The number of launches made, without launches by hand.
    pub launches: u64,
    /// The newest launch that was caught up.
    pub caught_up: Option<LastCatchup>,
    /// The slots that an operator skips.
    pub skips: BTreeSet<Timestamp>,
}

/// The newest launch that was caught up. The next one is spread from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastCatchup {
    /// The `now` of the decision.
    pub decided_at: Timestamp,
    pub fire_time: Timestamp,
}

/// What happens to a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotAction {
    /// Launch it: it is on time, or late within the grace.
    Launch {
        /// The slot plus its jitter.
        fire_time: Timestamp,
    },
    /// Launch it although it was missed.
    CatchUp {
        /// The slot plus its jitter, or the instant that `catchup_spread` gives it.
        fire_time: Timestamp,
    },
    /// Do not launch it.
    Drop(DropReason),
}

words! {
    /// Why a slot is not launched.
    DropReason {
        /// An operator skipped it.
        SkippedOnce => "skipped_once",
        /// It was missed, and `catchup` is `none`.
        CatchupNone => "catchup_none",
        /// It was missed by more than `catchup_window`.
        Window => "window",
        /// It was missed, and another missed slot stands for it.
        Coalesced => "coalesced",
        /// It was missed, and `catchup_max` newer slots were missed too.
        CatchupMax => "catchup_max",
    }
}

/// The action for one slot, or the same drop of consecutive slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotDecision {
    pub action: SlotAction,
    pub first: Timestamp,
    /// The last slot. It equals `first`, unless slots were dropped together.
    pub last: Timestamp,
    /// The number of slots from `first` to `last`, both included.
    pub count: u64,
}

/// The decisions of one call of [`SlotEvaluator::evaluate`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotDecisions {
    /// In the order of the slots, without a gap.
    pub decisions: Vec<SlotDecision>,
    /// The last slot that was decided; `None` when no slot was.
    pub cursor: Option<Timestamp>,
    /// The next slot to decide about; `None` when the schedule has ended. When it is not after `now`, the
    /// call reached `slots_max`: call again, from the cursor.
    pub next: Option<Timestamp>,
}

impl<'a> SlotEvaluator<'a> {
    /// Decides at most `slots_max` slots (at least one) after the cursor and up to `now`. A whole run of drops counts as one.
    ///
    /// Several calls, each continuing from the last one's cursor, decide the same as a single call, provided all their launches are made.
    pub fn evaluate(
        &self,
        progress: &SlotProgress,
        now: Timestamp,
        slots_max: usize,
    ) -> SlotDecisions {
        let (policies, defaults) = (self.policies, self.defaults);
        let mut evaluation = Evaluation {
            evaluator: *self,
            progress,
            now,
            grace: policies.misfire_grace.unwrap_or(defaults.misfire_grace),
            window: policies.catchup_window.unwrap_or(defaults.catchup_window),
            launches: progress.launches,
            caught_up: progress.caught_up,
            kept_from: OnceCell::new(),
        };
        let mut decided = SlotDecisions {
            decisions: Vec::new(),
            cursor: None,
            next: policies.next_slot(self.rule, progress.cursor, progress.launches),
        };
        for _ in 0..slots_max.max(1) {
            let Some(slot) = decided.next.filter(|&slot| slot <= now) else {
                break;
            };
            let mut next = self.rule.next(slot);
            let action = evaluation.decide(slot, next);
            let (mut last, mut count) = (slot, 1);
            if let SlotAction::Drop(reason) = action {
                let end = evaluation.end_of_drops(slot, reason);
                if next.is_some_and(|next| next < end) {
                    (last, count) = self.rule.run(slot, end);
                    next = self.rule.next(last);
                }
            }
            decided.push(SlotDecision {
                action,
                first: slot,
                last,
                count,
            });
            decided.cursor = Some(last);
            decided.next = next.and_then(|next| policies.allowed_from(next, evaluation.launches));
        }
        decided
    }

    /// Returns when `slot` fires if it is on time.
    pub fn fire_time(&self, slot: Timestamp) -> Timestamp {
        match self.policies.jitter {
            Some(_) => self.fire_time_before(slot, self.rule.next(slot)),
            None => slot,
        }
    }

    /// Returns the fire time of `slot`, given the slot after it.
    fn fire_time_before(&self, slot: Timestamp, next: Option<Timestamp>) -> Timestamp {
        self.policies.jitter.map_or(slot, |max| {
            slot.plus(jitter::delay(self.schedule, slot, next, max))
        })
    }
}

impl Policies {
    /// Returns the first slot of `rule` after `after` that the schedule may launch after `launches` launches.
    ///
    /// `None` when the schedule has ended.
    pub fn next_slot(&self, rule: &Rule, after: Timestamp, launches: u64) -> Option<Timestamp> {
        let before_start = self.start_at.map(|start| start.minus(MICROSECOND));
        let slot = rule.next(before_start.map_or(after, |before| before.max(after)))?;
        self.allowed_from(slot, launches)
    }
}

/// The state of one call of [`SlotEvaluator::evaluate`].
struct Evaluation<'a> {
    evaluator: SlotEvaluator<'a>,
    progress: &'a SlotProgress,
    now: Timestamp,
    grace: Duration,
    window: Duration,
    /// The launches made so far.
    launches: u64,
    caught_up: Option<LastCatchup>,
    /// The oldest missed slot that `latest` or `all` keeps.
    kept_from: OnceCell<Option<Timestamp>>,
}

impl Evaluation<'_> {
    /// Decide about `slot`, given the slot after it. Call this in the order of the slots.
    fn decide(&mut self, slot: Timestamp, next: Option<Timestamp>) -> SlotAction {
        if self.progress.skips.contains(&slot) {
            return SlotAction::Drop(DropReason::SkippedOnce);
        }
        let fire_time = self.evaluator.fire_time_before(slot, next);
        let action = if self.was_missed_at(fire_time, self.now) {
            if let Some(reason) = self.drop_reason(slot, fire_time) {
                return SlotAction::Drop(reason);
            }
            self.catch_up(fire_time)
        } else {
            SlotAction::Launch { fire_time }
        };
        self.launches += 1;
        action
    }

    /// Returns why `slot`, which was missed, is not caught up.
    fn drop_reason(&self, slot: Timestamp, fire_time: Timestamp) -> Option<DropReason> {
        let policies = self.evaluator.policies;
        let is_kept = |count| {
            let from = *self.kept_from.get_or_init(|| self.oldest_of_newest(count));
            from.is_some_and(|from| from <= slot)
        };
        // The slot that was caught up then stands for every slot that was already missed then.
        let is_represented = || {
            let last = self.caught_up;
            last.is_some_and(|last| self.was_missed_at(fire_time, last.decided_at))
        };
        match policies.catchup() {
            Catchup::None => Some(DropReason::CatchupNone),
            _ if self.now.since(fire_time) > self.window => Some(DropReason::Window),
            Catchup::Latest if !is_kept(1) => Some(DropReason::Coalesced),
            Catchup::All if !is_kept(policies.catchup_max()) => Some(DropReason::CatchupMax),
            Catchup::Earliest if is_represented() => Some(DropReason::Coalesced),
            Catchup::Latest | Catchup::Earliest | Catchup::All => None,
        }
    }

    /// Returns an instant before which all slots from `slot` on are dropped for the same `reason`.
    fn end_of_drops(&self, slot: Timestamp, reason: DropReason) -> Timestamp {
        let policies = self.evaluator.policies;
        // Because of its jitter, a slot may be less late than it seems.
        let jitter = policies.jitter.unwrap_or_default();
        let late_for = |instant: Timestamp, time: Duration| instant.minus(time).minus(jitter);
        let missed = late_for(self.now, self.grace);
        let kept_from = || self.kept_from.get().copied().flatten();
        let end = match reason {
            DropReason::SkippedOnce => slot,
            DropReason::CatchupNone => missed,
            DropReason::Window => late_for(self.now, self.window.max(self.grace)),
            // Anything already missed when catching up another slot.
            DropReason::Coalesced if policies.catchup() == Catchup::Earliest => {
                let last = self.caught_up.map_or(slot, |last| last.decided_at);
                late_for(last.min(self.now), self.grace)
            }
            DropReason::Coalesced | DropReason::CatchupMax => kept_from().unwrap_or(missed),
        };
        let after = (Bound::Excluded(slot), Bound::Unbounded);
        let skipped = self.progress.skips.range(after).next().copied();
        let ended = policies.end_at.map(|end| end.plus(MICROSECOND));
        [skipped, ended]
            .into_iter()
            .flatten()
            .fold(end, Timestamp::min)
    }

    /// Returns the oldest of the newest `count` missed slots after the cursor, leaving out skipped ones.
    fn oldest_of_newest(&self, count: u32) -> Option<Timestamp> {
        let policies = self.evaluator.policies;
        let ends = policies.end_at.map(|end| end.plus(MICROSECOND));
        let start = policies.start_at.unwrap_or(self.progress.cursor);
        let recent = self.now.minus(self.grace);
        let mut before = ends.map_or(recent, |ends| ends.min(recent));
        let slots = iter::from_fn(|| {
            before = self.evaluator.rule.prev(before)?;
            Some(before)
        });
        let slots = slots.take_while(|&slot| slot > self.progress.cursor && slot >= start);
        // With its jitter the slot may still be within the grace.
        let missed =
            slots.filter(|&slot| self.was_missed_at(self.evaluator.fire_time(slot), self.now));
        let kept = missed.filter(|slot| !self.progress.skips.contains(slot));
        kept.take(count as usize).last()
    }

    fn catch_up(&mut self, fire_time: Timestamp) -> SlotAction {
        let spread = self.evaluator.policies.catchup_spread;
        let fire_time = spread.map_or(fire_time, |spread| {
            let last = self.caught_up.map_or(self.now, |last| last.fire_time);
            last.max(self.now).plus(spread)
        });
        self.caught_up = Some(LastCatchup {
            decided_at: self.now,
            fire_time,
        });
        SlotAction::CatchUp { fire_time }
    }

    /// Whether a slot that fires at `fire_time` was missed at `instant`.
    fn was_missed_at(&self, fire_time: Timestamp, instant: Timestamp) -> bool {
        instant.since(fire_time) > self.grace
    }
}

impl SlotDecisions {
    /// Adds a decision, merging it into the previous one if both drop slots for the same reason.
    pub(super) fn push(&mut self, decision: SlotDecision) {
        let is_drop = matches!(decision.action, SlotAction::Drop(_));
        match self.decisions.last_mut() {
            Some(last) if is_drop && last.action == decision.action => {
                last.last = decision.last;
                last.count += decision.count;
            }
            _ => self.decisions.push(decision),
        }
    }
}
