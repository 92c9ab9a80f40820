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
/// None when no slot has come: the clock may have gone back since the schedule was found due.
pub fn plan(
    due: &Due,
    rule: &Rule,
    policy: &LatePolicy,
    host: HostId,
    now: Timestamp,
    slots_max: usize,
) -> Option<Plan> {
    let judgement = late::judge(rule, due.cursor_at, now, policy, slots_max);
    let cursor = judgement.cursor?;
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
    Some(Plan {
        launches,
        advance: Advance {
            id: due.id,
            revision: due.revision,
            from: due.cursor_at,
            to: cursor,
            next_slot: judgement.next,
        },
    })
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
