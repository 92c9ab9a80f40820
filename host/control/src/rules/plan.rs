//! Pure: decide the slots of a schedule that have come.

use std::borrow::Cow;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_schedule::policy::{
    Active, Displacements, LastCatchup, LaunchClass, Overlap, OverlapDecision, OverlapState,
    Policies, SlotAction, SlotDecisions, SlotEvaluator, SlotProgress, Stage,
};
use campanile_schedule::rule::Rule;
use campanile_store::launch::{NewLaunch, OVERLAP, UnfinishedLaunch};
use campanile_store::schedules::{CursorMove, DueSchedule, Revision};
use campanile_store::skipped_ranges::hour;
use campanile_store::{Decision, LaunchStatus, Origin};

/// Slots decided for one schedule in one transaction at most. The rest follows in the next.
pub(crate) const SLOTS_MAX: usize = 1_000;
/// The reason of a slot that had no package to launch.
pub const PACKAGE_MISSING: &str = "package_missing";

/// The decisions about one schedule. One transaction records them and the new cursor.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub launches: Vec<NewLaunch>,
    /// The earlier launches that are displaced by later ones.
    pub displacements: Displacements,
    /// How long a displaced launch may take to end.
    pub cancel_grace: Duration,
    pub advance: CursorMove,
}

/// Decide every slot after the cursor and up to `now`, at most `SLOTS_MAX` of them. `active` holds the
/// launches of the schedule that are not over.
///
/// The plan may have no launch although the schedule was due: its next slot was wrong, for example from before a change
/// of its zone's rules. Then the plan only corrects that.
pub fn plan(
    due: &DueSchedule,
    spec: SlotEvaluator<'_>,
    mut active: OverlapState,
    host: HostId,
    now: Timestamp,
) -> Plan {
    let policies = spec.policies;
    let rule = decidable(spec.rule, Some(due.next_slot));
    let evaluator = SlotEvaluator {
        rule: &rule,
        ..spec
    };
    let history = &due.history;
    let caught_up = history.last_catchup_at.zip(history.last_catchup_fire_time);
    let progress = SlotProgress {
        cursor: due.cursor_at,
        launches: history.launches_made(),
        caught_up: caught_up.map(|(decided_at, fire_time)| LastCatchup {
            decided_at,
            fire_time,
        }),
        skips: history.skipped_slots(),
    };
    let decided = evaluator.evaluate(&progress, now, SLOTS_MAX);
    let is_missing = due.digest.is_none() || due.missing_since.is_some();
    let overlap_decisions = if is_missing {
        vec![None; decided.decisions.len()]
    } else {
        overlap_decisions(due.id, &decided, policies, &mut active, now)
    };
    let mut caught_up = None;
    let mut interval_start = due.cursor_at;
    let mut launches = Vec::with_capacity(decided.decisions.len());
    for (slots, overlap_decision) in decided.decisions.iter().zip(overlap_decisions) {
        let launched = launch_of(slots.action);
        let (kind, fire_time) = launched.unwrap_or((LaunchKind::Schedule, slots.first));
        let (decision, reason, overlaps) = match (slots.action, overlap_decision) {
            (SlotAction::Drop(reason), _) => (Decision::Skipped, Some(reason.as_str()), None),
            _ if is_missing => (Decision::Skipped, Some(PACKAGE_MISSING), None),
            (_, by_policy) => recorded(by_policy.unwrap_or(OverlapDecision::Queue)),
        };
        if decision != Decision::Skipped && kind == LaunchKind::Catchup {
            caught_up = Some((now, fire_time));
        }
        let definer = Definer {
            schedule_id: due.id,
            revision: due.revision,
            package: &due.package,
            policies,
        };
        let launch = NewLaunch {
            last_scheduled_time: slots.last,
            slot_count: i64::try_from(slots.count).unwrap_or(i64::MAX),
            decision,
            reason,
            overlaps,
            proposed: due.origin == Origin::Package,
            digest: due.digest.clone(),
            interval_start,
            fire_time,
            decided_by: Some(host),
            ..launch_of_slot(&definer, &rule, kind, slots.first, now)
        };
        match launches
            .last_mut()
            .filter(|last| is_same_gap(last, &launch))
        {
            Some(last) => {
                last.last_scheduled_time = launch.last_scheduled_time;
                last.slot_count += launch.slot_count;
            }
            None => launches.push(launch),
        }
        interval_start = slots.last;
    }
    let is_launched = |launch: &&NewLaunch| launch.decision != Decision::Skipped;
    let launched = launches.iter().filter(is_launched).count() as i64;
    let cursor = decided.cursor.unwrap_or(due.cursor_at);
    let launches_made =
        u64::try_from(due.history.launches.saturating_add(launched)).unwrap_or_default();
    let next_slot = match spec.rule.delay_after_completion() {
        // Without a launch there is no end from which to count.
        Some(delay) if launched == 0 => policies.allowed_from(now.plus(delay), launches_made),
        Some(_) => None,
        None => policies.next_slot(&rule, cursor, launches_made),
    };
    Plan {
        launches,
        displacements: active.displacements,
        cancel_grace: policies.cancel_grace(),
        advance: CursorMove {
            launches: launched,
            caught_up,
            ..advance(due, cursor, next_slot)
        },
    }
}

/// Whether one row stands for both: no package could be launched at either, in the same hour.
fn is_same_gap(earlier: &NewLaunch, later: &NewLaunch) -> bool {
    let is_missing = |launch: &NewLaunch| launch.reason == Some(PACKAGE_MISSING);
    is_missing(earlier)
        && is_missing(later)
        && earlier.kind == later.kind
        && hour(earlier.scheduled_time) == hour(later.scheduled_time)
}

/// The revision that defines a launch.
pub struct Definer<'a> {
    pub schedule_id: ScheduleId,
    pub revision: i64,
    pub package: &'a str,
    pub policies: &'a Policies,
}

impl<'a> Definer<'a> {
    /// Returns the definer of `revision` with `policies`.
    pub fn of(revision: &'a Revision, policies: &'a Policies) -> Definer<'a> {
        Definer {
            schedule_id: revision.schedule_id,
            revision: revision.revision,
            package: &revision.package,
            policies,
        }
    }
}

/// Returns the launch of one slot. Callers replace the fields in which theirs differs.
pub fn launch_of_slot(
    definer: &Definer<'_>,
    rule: &Rule,
    kind: LaunchKind,
    slot: Timestamp,
    now: Timestamp,
) -> NewLaunch {
    let revision = (definer.schedule_id, definer.revision);
    NewLaunch {
        utc_offset: rule.utc_offset(slot),
        priority: definer.policies.priority().into(),
        group_name: definer.policies.group.as_ref().map(ToString::to_string),
        run_on: definer.policies.run_on.clone(),
        ..NewLaunch::of_slot(revision, definer.package.to_owned(), (kind, slot), now)
    }
}

/// Returns the columns of an overlap decision: the decision, its reason, and the preferred launch.
pub fn recorded(decision: OverlapDecision) -> (Decision, Option<&'static str>, Option<LaunchId>) {
    match decision {
        OverlapDecision::Start => (Decision::Launched, None, None),
        OverlapDecision::Queue => (Decision::Queued, None, None),
        OverlapDecision::Skip(other) => (Decision::Skipped, Some(OVERLAP), Some(other)),
    }
}

/// Returns the rule whose slots are to be decided. A rule that counts from the end of a launch has only `next_slot`.
pub fn decidable(rule: &Rule, next_slot: Option<Timestamp>) -> Cow<'_, Rule> {
    match (rule.delay_after_completion(), next_slot) {
        (Some(_), Some(slot)) => Cow::Owned(rule.only(slot)),
        _ => Cow::Borrowed(rule),
    }
}

/// Returns the kind and the fire time of the launch that an action requests.
fn launch_of(action: SlotAction) -> Option<(LaunchKind, Timestamp)> {
    match action {
        SlotAction::Launch { fire_time } => Some((LaunchKind::Schedule, fire_time)),
        SlotAction::CatchUp { fire_time } => Some((LaunchKind::Catchup, fire_time)),
        SlotAction::Drop(_) => None,
    }
}

/// Decide by the overlap policy what becomes of each slot that is launched.
///
/// Slots on time come first. Slots that are caught up queue behind them, although they are older.
fn overlap_decisions(
    schedule: ScheduleId,
    decided: &SlotDecisions,
    policies: &Policies,
    active: &mut OverlapState,
    now: Timestamp,
) -> Vec<Option<OverlapDecision>> {
    let mut found = vec![None; decided.decisions.len()];
    // The next transaction may decide more slots, and some of them on time.
    let more_come = decided.next.is_some_and(|next| next <= now);
    for class in [LaunchClass::OnTime, LaunchClass::Deferred] {
        for (found, slots) in found.iter_mut().zip(&decided.decisions) {
            let launch = launch_of(slots.action);
            if let Some((kind, fire_time)) = launch
                && LaunchClass::from(kind) == class
            {
                let id = LaunchId::of(schedule, slots.first, kind);
                let waits = fire_time > now || (more_come && class == LaunchClass::Deferred);
                *found = Some(active.admit(policies, id, class, waits));
            }
        }
    }
    found
}

/// Returns the launches of a schedule that count for the overlap policy at `now`, in the order of `unfinished`.
///
/// While the schedule is paused, its queued slots stay queued and do not count.
pub fn active(unfinished: &[UnfinishedLaunch], enabled: bool, now: Timestamp) -> Vec<Active> {
    let counts = |launch: &&UnfinishedLaunch| {
        launch.life.status != LaunchStatus::Queued || enabled || launch.kind.is_by_hand()
    };
    let stage = |launch: &UnfinishedLaunch| match launch.life.status {
        LaunchStatus::Queued if launch.fire_time > now => Stage::Early,
        // It was early when it was decided. A launch that is caught up or of a backfill is only spread.
        LaunchStatus::Queued
            if launch.fire_time > launch.decided_at
                && LaunchClass::from(launch.kind) == LaunchClass::OnTime =>
        {
            Stage::Due
        }
        LaunchStatus::Queued => Stage::Queued,
        LaunchStatus::Waiting => Stage::Retrying,
        LaunchStatus::Running if launch.life.must_end => Stage::Cancelling,
        LaunchStatus::Running => Stage::Running,
        _ if launch.life.recoveries > 0 => Stage::Recovering,
        _ => Stage::Open,
    };
    let counted = unfinished.iter().filter(counts);
    let active = counted.map(|launch| Active {
        launch: launch.id,
        class: LaunchClass::from(launch.kind),
        stage: stage(launch),
        alone: matches!(launch.overlap, Some(overlap) if overlap != Overlap::Allow),
    });
    active.collect()
}

/// Returns a plan that leaves the cursor where it is and the schedule without a next slot.
pub fn leave_undecided(due: &DueSchedule) -> Plan {
    Plan {
        launches: Vec::new(),
        displacements: Displacements::default(),
        cancel_grace: Duration::ZERO,
        advance: advance(due, due.cursor_at, None),
    }
}

/// Returns a step of the cursor that makes no launch.
fn advance(due: &DueSchedule, to: Timestamp, next_slot: Option<Timestamp>) -> CursorMove {
    CursorMove {
        id: due.id,
        revision: due.revision,
        from: due.cursor_at,
        to,
        next_slot,
        launches: 0,
        caught_up: None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::ArtifactDigest;
    use campanile_schedule::policy::{Catchup, Defaults};
    use campanile_schedule::rule::{HashKey, RuleKind, RuleText};
    use campanile_store::schedules::History;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn planned(rule: (RuleKind, &str), due: &DueSchedule, now: &str) -> Plan {
        planned_by(&Policies::default(), rule, due, now)
    }

    fn planned_by(
        policies: &Policies,
        rule: (RuleKind, &str),
        due: &DueSchedule,
        now: &str,
    ) -> Plan {
        let text = RuleText::new(rule.0, rule.1, "UTC");
        let rule = Rule::parse(&text, HashKey::of(due.id)).unwrap();
        let now = time(now);
        let evaluator = SlotEvaluator {
            schedule: due.id,
            rule: &rule,
            policies,
            defaults: &Defaults::default(),
        };
        plan(
            due,
            evaluator,
            OverlapState::new(Vec::new()),
            HostId::new(now),
            now,
        )
    }

    fn due(next_slot: &str) -> DueSchedule {
        DueSchedule {
            id: ScheduleId(uuid::Uuid::nil()),
            revision: 1,
            cursor_at: time("2026-01-01T00:00:00Z"),
            next_slot: time(next_slot),
            history: History::default(),
            origin: Origin::Operator,
            package: "hello".to_owned(),
            digest: Some(ArtifactDigest::of(b"hello")),
            version_decision: None,
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
            assert_eq!(launch.scheduled_time, time("2026-01-01T00:30:00Z"));
            assert_eq!(
                (plan.advance.to, plan.advance.next_slot),
                (launch.scheduled_time, None)
            );
        }
    }

    #[test]
    fn a_rule_that_counts_from_ends_has_a_next_slot_when_nothing_is_launched() {
        let missing = DueSchedule {
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

    #[test]
    fn slots_without_a_package_share_a_row_an_hour() {
        let missing = DueSchedule {
            missing_since: Some(time("2026-01-01T00:00:00Z")),
            ..due("2026-01-01T00:10:00Z")
        };
        let policies = Policies {
            catchup: Some(Catchup::All),
            ..Policies::default()
        };
        let rule = (RuleKind::Cron, "*/10 * * * *");
        let plan = planned_by(&policies, rule, &missing, "2026-01-01T01:20:00Z");
        let rows = plan.launches.iter();
        let rows: Vec<_> = rows
            .map(|row| (row.kind, row.slot_count, row.last_scheduled_time))
            .collect();
        let expected = [
            (LaunchKind::Catchup, 5, "2026-01-01T00:50:00Z"),
            (LaunchKind::Catchup, 2, "2026-01-01T01:10:00Z"),
            (LaunchKind::Schedule, 1, "2026-01-01T01:20:00Z"),
        ];
        assert_eq!(
            rows,
            expected.map(|(kind, count, last)| (kind, count, time(last)))
        );
        let reasons = plan.launches.iter().map(|row| row.reason);
        assert!(reasons.eq([Some(PACKAGE_MISSING); 3]));
    }
}
