//! What to do with slots that are already past.
//!
//! A slot is *late* up to the grace, and launches as if it were in time. After that it is
//! *missed*: of the missed slots the newest within the window is caught up, once, and every other
//! one is dropped and accounted for.
//!
//! ```text
//!     after       now - window             now - grace   now
//! ──────┼────s──s──s────┼────s──────s──────s──────┼──s──s─┼──▶
//!            └ window ┘      └ coalesced ┘ catch-up  launch
//! ```
//!
//! This module launches nothing and stores nothing; it also knows no other policy than this one.

use std::time::Duration;

use super::Rule;
use crate::clock::Timestamp;
use crate::words::words;

/// How late is too late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LatePolicy {
    /// A slot older than this was missed; up to this age it is merely late.
    pub misfire_grace: Duration,
    /// A missed slot older than this is not caught up.
    pub window: Duration,
}

impl Default for LatePolicy {
    fn default() -> LatePolicy {
        LatePolicy {
            misfire_grace: Duration::from_secs(5 * 60),
            window: Duration::from_secs(24 * 3_600),
        }
    }
}

/// What becomes of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// In time, or late within the grace.
    Launch,
    /// Missed, but to be launched instead of all the missed slots before it.
    CatchUp,
    /// Missed, and not to be launched.
    Drop(DropReason),
}

words! {
    /// Why a missed slot is not launched.
    DropReason {
        /// A later slot was missed too, and stands for it.
        Coalesced => "coalesced",
        /// It is older than the window.
        Window => "window",
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
    /// The slot after it. Not after `now` only when `slots_max` ended the work early; then judge
    /// again, after the cursor.
    pub next: Option<Timestamp>,
}

/// Decide on the slots of `rule` after `after` up to `now`, at most `slots_max` of them (at least 1).
///
/// Judging in several calls, each after the cursor of the one before, decides the same as one
/// call does: a slot is dropped in favour of a later one only when that one is there.
pub fn judge(
    rule: &Rule,
    after: Timestamp,
    now: Timestamp,
    policy: &LatePolicy,
    slots_max: usize,
) -> Judgement {
    let missed = |slot: Timestamp| now.since(slot) > policy.misfire_grace;
    let mut judgement = Judgement {
        decisions: Vec::new(),
        cursor: None,
        next: rule.next(after),
    };
    for _ in 0..slots_max.max(1) {
        let Some(slot) = judgement.next.filter(|&slot| slot <= now) else {
            break;
        };
        let following = rule.next(slot);
        let verdict = if !missed(slot) {
            Verdict::Launch
        } else if now.since(slot) > policy.window {
            Verdict::Drop(DropReason::Window)
        } else if following.is_some_and(missed) {
            Verdict::Drop(DropReason::Coalesced)
        } else {
            Verdict::CatchUp
        };
        judgement.push(slot, verdict);
        judgement.cursor = Some(slot);
        judgement.next = following;
    }
    judgement
}

impl Judgement {
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

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;
    use rand::Rng as _;

    const COALESCED: Verdict = Verdict::Drop(DropReason::Coalesced);
    const WINDOW: Verdict = Verdict::Drop(DropReason::Window);

    fn decided(expression: &str, after: &str, now: &str) -> Judgement {
        let rule = every(expression, "UTC").unwrap();
        judge(
            &rule,
            time(after),
            time(now),
            &LatePolicy::default(),
            10_000,
        )
    }

    fn decision(verdict: Verdict, first: &str, last: &str, count: u64) -> Decision {
        Decision {
            verdict,
            first: time(first),
            last: time(last),
            count,
        }
    }

    fn single(verdict: Verdict, slot: &str) -> Decision {
        decision(verdict, slot, slot, 1)
    }

    #[test]
    fn nothing_is_decided_before_a_slot_is_due() {
        let judgement = decided("1h", "2026-01-01T00:00:00Z", "2026-01-01T00:59:59.999999Z");
        assert_eq!(
            judgement,
            Judgement {
                decisions: vec![],
                cursor: None,
                next: Some(time("2026-01-01T01:00:00Z")),
            }
        );
    }

    #[test]
    fn slots_within_the_grace_all_launch() {
        let judgement = decided("2m", "2026-01-01T00:00:00Z", "2026-01-01T00:07:00Z");
        assert_eq!(
            judgement,
            Judgement {
                decisions: vec![
                    single(Verdict::Launch, "2026-01-01T00:02:00Z"),
                    single(Verdict::Launch, "2026-01-01T00:04:00Z"),
                    single(Verdict::Launch, "2026-01-01T00:06:00Z"),
                ],
                cursor: Some(time("2026-01-01T00:06:00Z")),
                next: Some(time("2026-01-01T00:08:00Z")),
            }
        );
    }

    #[test]
    fn a_slot_is_missed_only_after_the_whole_grace() {
        let at = |now| decided("1h", "2026-01-01T00:00:00Z", now).decisions;
        let slot = "2026-01-01T01:00:00Z";
        assert_eq!(at("2026-01-01T01:05:00Z"), [single(Verdict::Launch, slot)]);
        assert_eq!(
            at("2026-01-01T01:05:00.000001Z"),
            [single(Verdict::CatchUp, slot)]
        );
    }

    #[test]
    fn the_newest_missed_slot_is_caught_up_and_the_rest_are_accounted_for() {
        let judgement = decided("1h", "2026-01-01T00:00:00Z", "2026-01-02T03:02:00Z");
        assert_eq!(
            judgement.decisions,
            [
                decision(WINDOW, "2026-01-01T01:00:00Z", "2026-01-01T03:00:00Z", 3),
                decision(
                    COALESCED,
                    "2026-01-01T04:00:00Z",
                    "2026-01-02T01:00:00Z",
                    22
                ),
                single(Verdict::CatchUp, "2026-01-02T02:00:00Z"),
                single(Verdict::Launch, "2026-01-02T03:00:00Z"),
            ]
        );
        assert_eq!(judgement.cursor, Some(time("2026-01-02T03:00:00Z")));
        assert_eq!(judgement.next, Some(time("2026-01-02T04:00:00Z")));
    }

    #[test]
    fn a_slot_older_than_the_window_is_not_caught_up_even_alone() {
        let at = |now| decided("1w", "2026-01-01T00:00:00Z", now).decisions;
        let slot = "2026-01-08T00:00:00Z";
        assert_eq!(at("2026-01-09T00:00:00Z"), [single(Verdict::CatchUp, slot)]);
        assert_eq!(at("2026-01-09T00:00:00.000001Z"), [single(WINDOW, slot)]);
    }

    #[test]
    fn a_rule_without_further_slots_has_no_next() {
        let rule = at("2026-01-01T00:00:00Z", "UTC").unwrap();
        let (before, now) = (time("2025-12-31T00:00:00Z"), time("2026-01-01T12:00:00Z"));
        let judgement = judge(&rule, before, now, &LatePolicy::default(), 10);
        assert_eq!(
            judgement.decisions,
            [single(Verdict::CatchUp, "2026-01-01T00:00:00Z")]
        );
        assert_eq!(judgement.next, None);
    }

    #[test]
    fn the_work_ends_after_the_slots_allowed_and_never_without_one() {
        let rule = every("1h", "UTC").unwrap();
        let (after, now) = (time("2026-01-01T00:00:00Z"), time("2026-01-01T12:00:00Z"));
        for (slots_max, cursor, next) in [
            (0, "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"),
            (1, "2026-01-01T01:00:00Z", "2026-01-01T02:00:00Z"),
            (5, "2026-01-01T05:00:00Z", "2026-01-01T06:00:00Z"),
        ] {
            let judgement = judge(&rule, after, now, &LatePolicy::default(), slots_max);
            assert_eq!(judgement.cursor, Some(time(cursor)));
            assert_eq!(judgement.next, Some(time(next)));
        }
    }

    #[test]
    fn deciding_in_pieces_decides_the_same() {
        let mut random = seeded("pieces");
        let expressions = [
            "@every 7s",
            "@every 3m",
            "*/5 9-17 * * MON-FRI",
            "0 * * * *",
            "@daily",
        ];
        for _ in 0..400 {
            let expression = expressions[random.random_range(0..expressions.len())];
            let rule = cron(expression, "Europe/London").unwrap();
            let now = Timestamp::from_micros(
                1_774_700_000_000_000 + random.random_range(0..9_999_999_999),
            );
            let after = now.minus(Duration::from_secs(random.random_range(0..200_000)));
            let policy = LatePolicy {
                misfire_grace: Duration::from_secs(random.random_range(0..2_000)),
                window: Duration::from_secs(random.random_range(0..150_000)),
            };
            let whole = judge(&rule, after, now, &policy, usize::MAX);
            let count: u64 = whole.decisions.iter().map(|decision| decision.count).sum();
            assert_eq!(count, rule.slots(after, now).count() as u64);
            let slots_max = random.random_range(1..=1 + count as usize * 2);
            let mut pieces = Judgement {
                decisions: vec![],
                cursor: None,
                next: rule.next(after),
            };
            while pieces.next.is_some_and(|next| next <= now) {
                let cursor = pieces.cursor.unwrap_or(after);
                let piece = judge(&rule, cursor, now, &policy, slots_max);
                let decided: u64 = piece.decisions.iter().map(|decision| decision.count).sum();
                assert!((1..=slots_max as u64).contains(&decided));
                for decision in piece.decisions {
                    pieces.append(decision);
                }
                pieces.cursor = piece.cursor;
                pieces.next = piece.next;
            }
            assert_eq!(
                pieces, whole,
                "`{expression}` {after} {now} {policy:?} {slots_max}"
            );
        }
    }

    impl Judgement {
        /// Add a decision, in one range with the one before if that is the same drop.
        fn append(&mut self, decision: Decision) {
            match self.decisions.last_mut() {
                Some(last)
                    if last.verdict == decision.verdict
                        && matches!(decision.verdict, Verdict::Drop(_)) =>
                {
                    last.last = decision.last;
                    last.count += decision.count;
                }
                _ => self.decisions.push(decision),
            }
        }
    }
}
