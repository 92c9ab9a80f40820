//! Helpers of the tests: times of one day, policies as JSON, decisions as text.

use std::collections::BTreeSet;
use std::time::Duration;

use uuid::Uuid;

use super::{
    Defaults, LastCatchup, Policies, SlotAction, SlotDecision, SlotDecisions, SlotEvaluator,
    SlotProgress,
};
use crate::rule::Rule;
use crate::rule::testing::time;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;

const DAY: &str = "2026-01-01T";

/// Read `08:00` or `08:00:00.000001` on the day of the tests, in UTC.
pub(super) fn at(text: &str) -> Timestamp {
    let seconds = if text.len() == 5 { ":00" } else { "" };
    time(&format!("{DAY}{text}{seconds}Z"))
}

/// Print a time as [`at`] reads it.
fn clock(time: Timestamp) -> String {
    let text = time.to_string();
    let text = text.strip_prefix(DAY).unwrap_or(&text);
    let text = text.strip_suffix('Z').unwrap_or(text);
    text.strip_suffix(":00").unwrap_or(text).to_owned()
}

pub(super) fn policies(json: &str) -> Policies {
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{json}: {error}"))
}

/// Returns the progress of a schedule without launches.
pub(super) fn progress_at(cursor: Timestamp) -> SlotProgress {
    SlotProgress {
        cursor,
        launches: 0,
        caught_up: None,
        skips: BTreeSet::new(),
    }
}

/// Returns an evaluator on a host with the default configuration.
pub(super) fn evaluator<'a>(rule: &'a Rule, policies: &'a Policies) -> SlotEvaluator<'a> {
    const DEFAULTS: Defaults = Defaults {
        misfire_grace: Duration::from_secs(300),
        catchup_window: Duration::from_secs(86_400),
    };
    SlotEvaluator {
        schedule: ScheduleId(Uuid::from_u128(7)),
        rule,
        policies,
        defaults: &DEFAULTS,
    }
}

/// Evaluates until every slot up to `now` is decided, making at most `slots_max` decisions per call, and makes all launches.
pub(super) fn evaluated_in_parts(
    evaluator: SlotEvaluator<'_>,
    progress: &SlotProgress,
    now: Timestamp,
    slots_max: usize,
) -> SlotDecisions {
    let mut progress = progress.clone();
    let mut whole = SlotDecisions {
        decisions: Vec::new(),
        cursor: None,
        next: None,
    };
    loop {
        let piece = evaluator.evaluate(&progress, now, slots_max);
        assert!(piece.decisions.len() <= slots_max);
        for decision in piece.decisions {
            progress.launches += u64::from(!matches!(decision.action, SlotAction::Drop(_)));
            if let SlotAction::CatchUp { fire_time } = decision.action {
                progress.caught_up = Some(LastCatchup {
                    decided_at: now,
                    fire_time,
                });
            }
            whole.push(decision);
        }
        progress.cursor = piece.cursor.unwrap_or(progress.cursor);
        whole.cursor = piece.cursor.or(whole.cursor);
        whole.next = piece.next;
        if whole.next.is_none_or(|next| next > now) {
            return whole;
        }
        assert!(piece.cursor.is_some(), "no slot was decided");
    }
}

/// Returns a line for each decision: `08:00 launch`, `08:00 catchup, fires 08:30`, `08:00-09:00 window, 2`.
pub(super) fn lines(decided: &SlotDecisions) -> Vec<String> {
    let row = |decision: &SlotDecision| {
        let first = clock(decision.first);
        let launched = |word: &str, fire_time: Timestamp| {
            assert_eq!((decision.last, decision.count), (decision.first, 1));
            if fire_time == decision.first {
                format!("{first} {word}")
            } else {
                format!("{first} {word}, fires {}", clock(fire_time))
            }
        };
        match decision.action {
            SlotAction::Launch { fire_time } => launched("launch", fire_time),
            SlotAction::CatchUp { fire_time } => launched("catchup", fire_time),
            SlotAction::Drop(reason) if decision.count == 1 => format!("{first} {reason}"),
            SlotAction::Drop(reason) => {
                format!(
                    "{first}-{} {reason}, {}",
                    clock(decision.last),
                    decision.count
                )
            }
        }
    };
    decided.decisions.iter().map(row).collect()
}
