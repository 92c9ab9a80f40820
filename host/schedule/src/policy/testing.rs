//! What the tests of this module share: times of one day, policies as JSON, decisions as text.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::{CaughtUp, Decision, Defaults, Judgement, Policies, Standing, Terms, Verdict};
use crate::rule::Rule;
use crate::rule::testing::time;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

const DAY: &str = "2026-01-01T";

/// `08:00` or `08:00:00.000001` on the day of the tests, in UTC.
pub(super) fn at(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    time(&format!("{DAY}{text}{seconds}Z"))
}

/// A time as [`at`] reads it.
fn clock(time: Timestamp) -> String {
    let text = time.to_string();
    let text = text.strip_prefix(DAY).unwrap_or(&text);
    let text = text.strip_suffix('Z').unwrap_or(text);
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

pub(super) fn policies(json: &str) -> Policies {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// A schedule that has launched nothing yet.
pub(super) fn standing(cursor: Timestamp) -> Standing {
    Standing {
        cursor,
        launches: 0,
        caught_up: None,
        taken_out: BTreeSet::new(),
    }
}

/// The terms of a schedule on a host that says nothing of its own.
pub(super) fn terms<'a>(rule: &'a Rule, policies: &'a Policies) -> Terms<'a> {
    const DEFAULTS: Defaults = Defaults {
        misfire_grace: Duration::from_secs(300),
        catchup_window: Duration::from_secs(86_400),
    };
    Terms {
        schedule: ScheduleId(Uuid::from_u128(7)),
        rule,
        policies,
        defaults: &DEFAULTS,
    }
}

/// Judge until nothing is left up to `now`, at most `slots_max` slots at a time, when all launches
/// are made.
pub(super) fn judged_in_pieces(
    terms: Terms<'_>,
    standing: &Standing,
    now: Timestamp,
    slots_max: usize,
) -> Judgement {
    let mut standing = standing.clone();
    let mut whole = Judgement {
        decisions: Vec::new(),
        cursor: None,
        next: None,
    };
    loop {
        let piece = terms.judge(&standing, now, slots_max);
        let decided: u64 = piece.decisions.iter().map(|decision| decision.count).sum();
        assert!(decided <= slots_max as u64);
        for decision in piece.decisions {
            standing.launches += u64::from(!matches!(decision.verdict, Verdict::Drop(_)));
            if let Verdict::CatchUp { fire_time } = decision.verdict {
                standing.caught_up = Some(CaughtUp {
                    decided_at: now,
                    fire_time,
                });
            }
            whole.append(decision);
        }
        standing.cursor = piece.cursor.unwrap_or(standing.cursor);
        whole.cursor = piece.cursor.or(whole.cursor);
        whole.next = piece.next;
        if whole.next.is_none_or(|next| next > now) {
            return whole;
        }
        assert!(decided > 0, "it would never come to an end");
    }
}

impl Judgement {
    /// Add a decision, in one range with the one before if that is the same drop.
    pub(super) fn append(&mut self, decision: Decision) {
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

/// A line for each decision: `08:00 launch`, `08:00 catchup, fires 08:30`, `08:00-09:00 window, 2`.
pub(super) fn shown(judgement: &Judgement) -> Vec<String> {
    let row = |decision: &Decision| {
        let first = clock(decision.first);
        let launched = |word: &str, fire_time: Timestamp| {
            assert_eq!((decision.last, decision.count), (decision.first, 1));
            match fire_time == decision.first {
                true => format!("{first} {word}"),
                false => format!("{first} {word}, fires {}", clock(fire_time)),
            }
        };
        match decision.verdict {
            Verdict::Launch { fire_time } => launched("launch", fire_time),
            Verdict::CatchUp { fire_time } => launched("catchup", fire_time),
            Verdict::Drop(reason) if decision.count == 1 => format!("{first} {reason}"),
            Verdict::Drop(reason) => {
                format!(
                    "{first}-{} {reason}, {}",
                    clock(decision.last),
                    decision.count
                )
            }
        }
    };
    judgement.decisions.iter().map(row).collect()
}
