//! Choosing and ordering the due schedules for one transaction.

use std::collections::HashSet;
use std::time::Duration;

use crate::decide::batch_size::LAUNCHES_MIN;
use crate::error::Result;
use campanile_control::rules::lateness::ON_TIME_MAX;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::schedules::{self, DueSchedule};
use campanile_store::{Origin, Tx};

/// Schedules decided in one transaction at most.
const DUE_BATCH_MAX: i64 = 512;
/// Slots due for longer than this form a backlog when one transaction can't clear it. On-time slots then get a share of their own.
const BACKLOG_AGE: Duration = Duration::from_secs(1);

/// One decision in this many (plus one) is reserved for on-time slots.
const OTHERS_FOR_ONE: usize = 4;

/// The schedules for one transaction, in deciding order.
pub(crate) struct DueBatch {
    pub(crate) due: Vec<DueSchedule>,
    /// On-time schedules, decided ahead of the backlog.
    pub(crate) newest: HashSet<ScheduleId>,
    /// Whether the remaining schedules are a backlog.
    pub(crate) is_backlog: bool,
    /// Whether more schedules may be due.
    pub(crate) more: bool,
}

/// Reads up to `rows_max` due schedules, earliest first.
///
/// After an outage, the earliest schedules are the furthest behind and keep coming up until they've caught up. To stop them
/// from starving everything else, on-time schedules go first, up to their share. Among the rest, short periods go first: they
/// catch up soonest.
///
/// Packages can propose more slots than hosts can decide, so operators' schedules go ahead of proposed ones, leaving those a
/// minimum share.
pub(crate) async fn due_batch(tx: &mut Tx, rows_max: usize, now: Timestamp) -> Result<DueBatch> {
    let due_max = (rows_max as i64).min(DUE_BATCH_MAX);
    let mut earliest = schedules::due(tx, now, due_max).await?;
    let more = earliest.len() as i64 == due_max;
    let is_proposed = |due: &DueSchedule| due.origin == Origin::Package;
    let are_mixed = more && earliest.iter().any(is_proposed);
    if are_mixed {
        let of_operators = schedules::due_of_operators(tx, now, due_max).await?;
        earliest.retain(is_proposed);
        earliest.splice(0..0, of_operators);
    }
    let is_backlog = |due: &DueSchedule| now.since(due.next_slot) > BACKLOG_AGE;
    if !(more && earliest.iter().any(is_backlog)) {
        return Ok(DueBatch {
            due: earliest,
            newest: HashSet::new(),
            is_backlog: false,
            more,
        });
    }
    let since = now.minus(ON_TIME_MAX);
    let newest_max = Rows::newest_max(rows_max) as i64;
    let mut due = if are_mixed {
        schedules::newest_due_of_operators(tx, since, now, newest_max).await?
    } else {
        schedules::newest_due(tx, since, now, newest_max).await?
    };
    let newest: HashSet<ScheduleId> = due.iter().map(|due| due.id).collect();
    let mut others = earliest;
    others.retain(|due| !newest.contains(&due.id));
    others.sort_by_key(|due| (is_proposed(due), due.next_slot.since(due.cursor_at)));
    due.append(&mut others);
    Ok(DueBatch {
        due,
        newest,
        is_backlog: true,
        more,
    })
}

/// Pure: row budgets for one transaction, counting on-time, backlogged and proposed schedules separately.
pub(crate) struct Rows {
    newest: Counted,
    others: Counted,
    proposed: Counted,
}

pub(crate) struct Counted {
    plans: usize,
    rows: usize,
    rows_max: usize,
}

impl Rows {
    pub(crate) fn new(rows_max: usize) -> Rows {
        let counted = |rows_max| Counted {
            plans: 0,
            rows: 0,
            rows_max,
        };
        Rows {
            newest: counted(Rows::newest_max(rows_max)),
            others: counted(rows_max),
            proposed: counted(rows_max),
        }
    }

    /// Returns the row budget for on-time schedules, on top of `rows_max`.
    fn newest_max(rows_max: usize) -> usize {
        (rows_max / OTHERS_FOR_ONE).max(LAUNCHES_MIN)
    }

    pub(crate) fn of(&mut self, is_newest: bool, origin: Origin) -> &mut Counted {
        if is_newest {
            return &mut self.newest;
        }
        match origin {
            Origin::Package => {
                // They come last, and have what the others left.
                let least = self.others.rows_max / OTHERS_FOR_ONE;
                let left = self.others.rows_max.saturating_sub(self.others.rows);
                self.proposed.rows_max = left.max(least);
                &mut self.proposed
            }
            Origin::Operator | Origin::File | Origin::Sidecar => &mut self.others,
        }
    }
}

impl Counted {
    /// Whether to plan another schedule. The first is always planned, even if it exceeds the budget.
    pub(crate) fn has_room(&self, is_in_time: bool) -> bool {
        self.plans == 0 || (self.rows < self.rows_max && is_in_time)
    }

    /// Adds a plan's rows, returning whether it fits.
    pub(crate) fn add(&mut self, rows: usize) -> bool {
        self.rows += rows;
        let is_decided = self.plans == 0 || self.rows <= self.rows_max;
        self.plans += usize::from(is_decided);
        is_decided
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proposed_slots_have_what_others_leave_and_a_share_in_any_case() {
        for (others, proposed) in [(0, 400), (250, 150), (390, 100), (1_000, 100)] {
            let mut rows = Rows::new(400);
            rows.of(false, Origin::Sidecar).add(others);
            let of_packages = rows.of(false, Origin::Package);
            assert!(of_packages.has_room(true), "{others}");
            assert!(
                of_packages.add(1) && of_packages.add(proposed - 1),
                "{others}"
            );
            assert!(!of_packages.add(1), "{others}");
        }
    }

    #[test]
    fn slots_on_time_and_a_backlog_have_bounds_of_their_own() {
        let mut rows = Rows::new(400);
        // A schedule with more slots than a transaction has rows is decided all the same.
        assert!(rows.of(true, Origin::Operator).add(1_000));
        assert!(!rows.of(true, Origin::Operator).has_room(true));
        assert!(rows.of(false, Origin::File).has_room(false));
        assert!(rows.of(false, Origin::File).add(399));
        assert!(!rows.of(false, Origin::File).has_room(false));
        assert!(rows.of(false, Origin::File).has_room(true));
        assert!(!rows.of(false, Origin::File).add(2));
        for (rows_max, newest_max) in [(32, 32), (400, 100), (1_024, 256)] {
            assert_eq!(Rows::newest_max(rows_max), newest_max);
        }
    }
}
