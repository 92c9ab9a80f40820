//! Pure: what to decide about a schedule's slots at `now`.

use std::collections::BTreeSet;
use std::time::Duration;

use campanile_model::clock::Timestamp;
use campanile_model::ids::{HostId, LaunchId, LaunchKind, ScheduleId};
use campanile_schedule::policy::{
    Active, Beside, CaughtUp, Claim, Defaults, DropReason, Judgement, MadeWay, Overlap, Policies,
    Stage, Standing, Terms, Turn, Verdict,
};
use campanile_schedule::rule::Rule;
use campanile_store::launches::NewLaunch;
use campanile_store::overlap::{REASON, UnfinishedLaunch};
use campanile_store::schedules::{CursorMove, DueSchedule, History};
use campanile_store::{Decision, LaunchStatus};

/// The reason of a slot that had no package to launch.
pub const PACKAGE_MISSING: &str = "package_missing";

/// Decisions about one schedule: they and the new cursor go to the database together, or not at all.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    pub launches: Vec<NewLaunch>,
    /// The launches of before, and of this plan, that make way for later ones.
    pub made_way: MadeWay,
    /// How long those may take that are asked to end.
    pub cancel_grace: Duration,
    pub advance: CursorMove,
}

/// What a schedule says, and its host where it says nothing.
#[derive(Debug, Clone, Copy)]
pub struct Says<'a> {
    pub rule: &'a Rule,
    pub policies: &'a Policies,
    pub defaults: &'a Defaults,
}

/// Decide every slot after the cursor and up to `now`, at most `slots_max` of them, beside the launches of the
/// schedule that are not over.
///
/// When none has come although the schedule was found due, its next slot was wrong, for example from
/// before a change of its zone's rules; then only that is corrected.
pub fn plan(
    due: &DueSchedule,
    says: Says<'_>,
    beside: Beside,
    host: HostId,
    now: Timestamp,
    slots_max: usize,
) -> Plan {
    let delay = says.rule.delay_after_completion();
    let waited_for;
    let rule = match delay {
        // It counts from ends: there is the one slot that the last end made.
        Some(_) => {
            waited_for = says.rule.only(due.next_slot);
            &waited_for
        }
        None => says.rule,
    };
    let terms = Terms {
        schedule: due.id,
        rule,
        policies: says.policies,
        defaults: says.defaults,
    };
    let judgement = terms.judge(&standing(due.cursor_at, &due.history), now, slots_max);
    let missing = due.digest.is_none() || due.missing_since.is_some();
    let mut beside = beside;
    let turns = match missing {
        true => Vec::new(),
        false => turns(due.id, &judgement, says.policies, &mut beside, now),
    };
    let mut caught_up = None;
    let mut interval_start = due.cursor_at;
    let mut launches = Vec::with_capacity(judgement.decisions.len());
    for (place, slots) in judgement.decisions.iter().enumerate() {
        let (kind, dropped, fire_time) = match slots.verdict {
            Verdict::Launch { fire_time } => (LaunchKind::Schedule, None, fire_time),
            Verdict::CatchUp { fire_time } => (LaunchKind::Catchup, None, fire_time),
            Verdict::Drop(reason) => (LaunchKind::Schedule, Some(reason), slots.first),
        };
        let id = LaunchId::of(due.id, slots.first, kind);
        let reason = dropped.map(DropReason::as_str);
        let (decision, reason, overlaps) = match reason.or(missing.then_some(PACKAGE_MISSING)) {
            Some(reason) => (Decision::Skipped, Some(reason), None),
            None => match turns.get(place).copied().flatten() {
                Some(Turn::Now) => (Decision::Launched, None, None),
                Some(Turn::Never(other)) => (Decision::Skipped, Some(REASON), Some(other)),
                Some(Turn::Later) | None => (Decision::Queued, None, None),
            },
        };
        if decision != Decision::Skipped && kind == LaunchKind::Catchup {
            caught_up = Some((now, fire_time));
        }
        launches.push(NewLaunch {
            id,
            schedule_id: due.id,
            schedule_revision: due.revision,
            kind,
            scheduled_time: slots.first,
            scheduled_local: rule.local_text(slots.first),
            last_scheduled_time: slots.last,
            slot_count: i64::try_from(slots.count).unwrap_or(i64::MAX),
            decision,
            reason,
            overlaps,
            package: due.package.clone(),
            digest: due.digest.clone(),
            context: None,
            overlap: None,
            backfill_id: None,
            interval_start,
            fire_time,
            decided_by: Some(host),
            claimed_at: now,
        });
        interval_start = slots.last;
    }
    let is_made = |launch: &&NewLaunch| launch.decision != Decision::Skipped;
    let made = launches.iter().filter(is_made).count() as i64;
    let cursor = judgement.cursor.unwrap_or(due.cursor_at);
    let all_made = u64::try_from(due.history.launches + made).unwrap_or_default();
    let next_slot = match delay {
        // Without a launch there is no end from which to count.
        Some(delay) if made == 0 => says.policies.allowed_from(now.plus(delay), all_made),
        Some(_) => None,
        None => terms.next_slot(cursor, all_made),
    };
    Plan {
        launches,
        made_way: beside.made_way,
        cancel_grace: says.policies.cancel_grace(),
        advance: CursorMove {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: cursor,
            next_slot,
            launches: made,
            caught_up,
        },
    }
}

/// The turn of each slot that is launched: first of those in time, then of those caught up, which wait for their turn
/// behind them although they are older.
fn turns(
    schedule: ScheduleId,
    judgement: &Judgement,
    policies: &Policies,
    beside: &mut Beside,
    now: Timestamp,
) -> Vec<Option<Turn>> {
    let mut turns = vec![None; judgement.decisions.len()];
    // Those in time may be among the slots that the next transaction decides.
    let more_come = judgement.next.is_some_and(|next| next <= now);
    for (turn, slots) in turns.iter_mut().zip(&judgement.decisions) {
        if let Verdict::Launch { fire_time } = slots.verdict {
            let id = LaunchId::of(schedule, slots.first, LaunchKind::Schedule);
            *turn = Some(beside.come(policies, id, Claim::Prompt, fire_time > now));
        }
    }
    for (turn, slots) in turns.iter_mut().zip(&judgement.decisions) {
        if let Verdict::CatchUp { fire_time } = slots.verdict {
            let id = LaunchId::of(schedule, slots.first, LaunchKind::Catchup);
            let waits = more_come || fire_time > now;
            *turn = Some(beside.come(policies, id, Claim::Patient, waits));
        }
    }
    turns
}

/// Where a schedule stands, for the judge.
pub fn standing(cursor: Timestamp, history: &History) -> Standing {
    let caught_up = history.last_catchup_at.zip(history.last_catchup_fire_time);
    Standing {
        cursor,
        launches: u64::try_from(history.launches).unwrap_or_default(),
        caught_up: caught_up.map(|(decided_at, fire_time)| CaughtUp {
            decided_at,
            fire_time,
        }),
        taken_out: taken_out(history.skips.as_deref()),
    }
}

/// Read the slots that a person took out.
pub fn taken_out(skips: Option<&str>) -> BTreeSet<Timestamp> {
    // Only this program writes the list.
    skips
        .and_then(|skips| serde_json::from_str(skips).ok())
        .unwrap_or_default()
}

/// What of a schedule is not over, at `now`, in the order of `unfinished`.
///
/// While it is paused, those of its slots that wait for their turn go on waiting, in nobody's way.
pub fn active(unfinished: &[UnfinishedLaunch], enabled: bool, now: Timestamp) -> Vec<Active> {
    let stands_aside = |launch: &&UnfinishedLaunch| {
        launch.status == LaunchStatus::Queued && !(enabled || launch.kind.is_by_hand())
    };
    let stage = |launch: &UnfinishedLaunch| match launch.status {
        LaunchStatus::Queued if launch.fire_time > now => Stage::Early,
        // It was early when it was decided; what is caught up or filled back is only spread.
        LaunchStatus::Queued
            if launch.fire_time > launch.claimed_at
                && Claim::from(launch.kind) == Claim::Prompt =>
        {
            Stage::Arriving
        }
        LaunchStatus::Queued => Stage::Queued,
        LaunchStatus::Waiting => Stage::Retrying,
        LaunchStatus::Running if launch.cancel_deadline.is_some() => Stage::Cancelling,
        LaunchStatus::Running => Stage::Running,
        _ if launch.recoveries > 0 => Stage::Recovering,
        _ => Stage::Open,
    };
    unfinished
        .iter()
        .filter(|launch| !stands_aside(launch))
        .map(|launch| Active {
            launch: launch.id,
            claim: Claim::from(launch.kind),
            stage: stage(launch),
            alone: launch
                .overlap
                .is_some_and(|overlap| overlap != Overlap::Allow),
        })
        .collect()
}

/// Decide nothing more about a schedule, leaving its cursor where it is.
pub fn stand_still(due: &DueSchedule) -> Plan {
    Plan {
        launches: Vec::new(),
        made_way: MadeWay::default(),
        cancel_grace: Duration::ZERO,
        advance: CursorMove {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: due.cursor_at,
            next_slot: None,
            launches: 0,
            caught_up: None,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::ArtifactDigest;
    use campanile_schedule::rule::{HashKey, RuleKind, RuleText};

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn planned(rule: (RuleKind, &str), due: &DueSchedule, now: &str) -> Plan {
        let text = RuleText::new(rule.0, rule.1, "UTC");
        let rule = Rule::parse(&text, HashKey::of(due.id)).unwrap();
        let now = time(now);
        let says = Says {
            rule: &rule,
            policies: &Policies::default(),
            defaults: &Defaults::default(),
        };
        plan(
            due,
            says,
            Beside::new(Vec::new()),
            HostId::new(now),
            now,
            10,
        )
    }

    fn due(next_slot: &str) -> DueSchedule {
        DueSchedule {
            id: ScheduleId(uuid::Uuid::nil()),
            revision: 1,
            cursor_at: time("2026-01-01T00:00:00Z"),
            next_slot: time(next_slot),
            history: History::default(),
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
            assert_eq!(launch.scheduled_time, time("2026-01-01T00:30:00Z"));
            assert_eq!(
                (plan.advance.to, plan.advance.next_slot),
                (launch.scheduled_time, None)
            );
        }
    }

    #[test]
    fn a_rule_that_counts_from_ends_goes_on_where_nothing_is_launched() {
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
}
