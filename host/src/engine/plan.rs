//! Pure: what to decide about a schedule's slots at `now`.

use crate::clock::Timestamp;
use crate::db::Decision;
use crate::db::launches::NewLaunch;
use crate::db::schedules::{Advance, Due};
use crate::ids::{HostId, LaunchId, LaunchKind};
use crate::schedule::Rule;
use crate::schedule::late::{self, LatePolicy, Verdict};

/// The reason of a slot that had no package to launch.
pub const PACKAGE_MISSING: &str = "package_missing";

/// Decisions about one schedule: they and the new cursor go to the database together, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub launches: Vec<NewLaunch>,
    pub advance: Advance,
}

/// Decide every slot after the cursor and up to `now`, at most `slots_max` of them.
///
/// When none has come although the schedule was found due, its next slot was wrong, for example from
/// before a change of its zone's rules; then only that is corrected.
pub fn plan(
    due: &Due,
    rule: &Rule,
    policy: &LatePolicy,
    host: HostId,
    now: Timestamp,
    slots_max: usize,
) -> Plan {
    let delay = rule.delay_after_completion();
    let waited_for;
    let rule = match delay {
        // It counts from ends: there is the one slot that the last end made.
        Some(_) => {
            waited_for = rule.only(due.next_slot);
            &waited_for
        }
        None => rule,
    };
    let judgement = late::judge(rule, due.cursor_at, now, policy, slots_max);
    let missing = due.digest.is_none() || due.missing_since.is_some();
    let mut interval_start = due.cursor_at;
    let mut launches = Vec::with_capacity(judgement.decisions.len());
    for decision in &judgement.decisions {
        let (kind, skip) = match decision.verdict {
            Verdict::Launch => (LaunchKind::Schedule, None),
            Verdict::CatchUp => (LaunchKind::Catchup, None),
            Verdict::Drop(reason) => (LaunchKind::Schedule, Some(reason.as_str())),
        };
        let skip = skip.or(missing.then_some(PACKAGE_MISSING));
        launches.push(NewLaunch {
            id: LaunchId::of(due.id, decision.first, kind),
            schedule_id: due.id,
            schedule_revision: due.revision,
            kind,
            slot: decision.first,
            slot_local: rule.local_text(decision.first),
            slot_last: decision.last,
            slot_count: i64::try_from(decision.count).unwrap_or(i64::MAX),
            decision: if skip.is_some() {
                Decision::Skipped
            } else {
                Decision::Launched
            },
            reason: skip,
            package: due.package.clone(),
            digest: due.digest.clone(),
            context: None,
            interval_start,
            fire_time: decision.first,
            decided_by: Some(host),
            claimed_at: now,
        });
        interval_start = decision.last;
    }
    let launched = |launch: &NewLaunch| launch.decision == Decision::Launched;
    let next_slot = match delay {
        // Without a launch there is no end from which to count.
        Some(delay) if !launches.iter().any(launched) => Some(now.plus(delay)),
        _ => judgement.next,
    };
    Plan {
        launches,
        advance: Advance {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: judgement.cursor.unwrap_or(due.cursor_at),
            next_slot,
        },
    }
}

/// Decide nothing more about a schedule, leaving its cursor where it is.
pub fn stand_still(due: &Due) -> Plan {
    Plan {
        launches: Vec::new(),
        advance: Advance {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: due.cursor_at,
            next_slot: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{ArtifactDigest, ScheduleId};
    use crate::schedule::{HashKey, RuleKind, RuleText};

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn planned(rule: (RuleKind, &str), due: &Due, now: &str) -> Plan {
        let text = RuleText::new(rule.0, rule.1, "UTC");
        let rule = Rule::parse(&text, HashKey::of(due.id)).unwrap();
        let now = time(now);
        plan(
            due,
            &rule,
            &LatePolicy::default(),
            HostId::new(now),
            now,
            10,
        )
    }

    fn due(next_slot: &str) -> Due {
        Due {
            id: ScheduleId(uuid::Uuid::nil()),
            revision: 1,
            cursor_at: time("2026-01-01T00:00:00Z"),
            next_slot: time(next_slot),
            package: "hello".to_owned(),
            digest: Some(ArtifactDigest::of(b"hello")),
            missing_since: None,
        }
    }

    #[test]
    fn a_wrong_next_slot_is_corrected_and_decides_nothing() {
        let due = due("2026-01-01T00:30:00Z");
        let plan = planned((RuleKind::Cron, "0 * * * *"), &due, "2026-01-01T00:45:00Z");
        assert_eq!(plan.launches, []);
        assert_eq!(plan.advance.to, due.cursor_at);
        assert_eq!(plan.advance.next_slot, Some(time("2026-01-01T01:00:00Z")));
    }

    const AFTER_COMPLETION: (RuleKind, &str) = (RuleKind::AfterCompletion, "10m");

    #[test]
    fn a_rule_that_counts_from_ends_has_its_one_slot_and_then_waits() {
        for (now, kind) in [
            ("2026-01-01T00:30:00Z", LaunchKind::Schedule),
            ("2026-01-01T20:00:00Z", LaunchKind::Catchup),
        ] {
            let plan = planned(AFTER_COMPLETION, &due("2026-01-01T00:30:00Z"), now);
            let [launch] = &plan.launches[..] else {
                panic!("{plan:?}");
            };
            assert_eq!((launch.kind, launch.decision), (kind, Decision::Launched));
            assert_eq!(launch.slot, time("2026-01-01T00:30:00Z"));
            assert_eq!(
                (plan.advance.to, plan.advance.next_slot),
                (launch.slot, None)
            );
        }
    }

    #[test]
    fn a_rule_that_counts_from_ends_goes_on_where_nothing_is_launched() {
        let missing = Due {
            missing_since: Some(time("2026-01-01T00:00:00Z")),
            ..due("2026-01-01T00:30:00Z")
        };
        for (due, now, next) in [
            (missing, "2026-01-01T00:30:01Z", "2026-01-01T00:40:01Z"),
            // Older than the window.
            (
                due("2026-01-01T00:30:00Z"),
                "2026-01-03T00:00:00Z",
                "2026-01-03T00:10:00Z",
            ),
        ] {
            let plan = planned(AFTER_COMPLETION, &due, now);
            let decisions: Vec<Decision> = plan.launches.iter().map(|row| row.decision).collect();
            assert_eq!(decisions, [Decision::Skipped]);
            assert_eq!(plan.advance.next_slot, Some(time(next)));
        }
    }
}
