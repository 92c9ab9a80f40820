//! Launches: the decisions about slots, and the life of each launch until its end.
//!
//! | file | what it holds |
//! |---|---|
//! | `arrows.rs` | every statement that changes a status, named after the arrows of the diagram in ARCHITECTURE.md |
//! | `change.rs` | what those statements are given: decisions, claims, ends |
//! | `row.rs`, `search.rs` | launches as commands show and list them |
//! | `claim.rs` | which launches and retries a host may claim now |
//! | `finish.rs` | leases, recorded calls, ends of runs |
//! | `displace.rs` | launches of one schedule that overlap |
//! | `recover.rs` | launches that no host executes any more |
//! | `by_hand.rs` | launches an operator ends or retries |
//! | `finished.rs` | launches as their hashes cover them |
//!
//! What an arrow does to a launch is [`Life`].

mod arrows;
mod by_hand;
mod change;
mod claim;
mod displace;
mod finish;
mod finished;
mod recover;
mod row;
mod search;

pub use arrows::{
    abandon_all, claim, end, hand_back, insert, insert_claimed, release, skip_all_queued, withdraw,
    withdraw_backfill,
};
pub use by_hand::{LaunchState, ask_to_end, lock_schedule, state};
pub use campanile_model::life::Life;
pub use change::{
    Claim, Finish, LOSS_COUNTS_WITHIN, NewClaim, NewLaunch, OPERATOR, OVERLAP, RecoveryAction,
    RecoveryDecision, RunEnd, RunHashes, UncalledClaim,
};
pub use claim::{
    ClaimedLaunch, RetriesOf, WaitingClass, claimable, claimable_on_time, groups_with_retries,
    lock_group, next_wake, next_wake_of_groups, open_of_group, open_of_group_on_time,
    open_of_package, open_of_package_on_time, packages_with_retries, retries, running_in_group,
    waiting_groups, waiting_packages, waiting_packages_on_time,
};
pub use displace::{
    QueuedSchedule, UnfinishedLaunch, active, cancel, lock_unfinished, queued_schedules, skip,
    terminate, unfinished,
};
pub use finish::{finish, lock_if_current, record_tasks, renew};
pub use finished::FinishedLaunch;
pub use recover::{
    OrphanCause, OrphanedLaunch, has_orphaned_launches, orphaned_launches, orphaned_runs, recover,
    unclaimed_startups,
};
pub use row::{
    IdsBetween, LOOKED_AT_MAX, LaunchRow, LocalTime, NewestRun, caller_traceparent, ids_between,
    list, list_of, newest_finished_at, of_schedule, of_schedule_before, recent_outcomes,
    set_caller_traceparent, with_ids,
};
pub use search::{LOOKED_AT_FOR_BROWSER_MAX, LaunchFilter, LaunchPage, newest_failures, search};

pub(crate) use displace::UNFINISHED;
pub(crate) use finished::finished_launch_columns;
pub(crate) use row::{launch_columns, launch_tables, position};

use crate::sql::Statement;

/// The columns of a [`Life`], for a query with launches as `l`.
macro_rules! life_columns {
    () => {
        "l.status, l.attempts, l.recoveries, l.lost_runs, l.host_id IS NOT NULL AS has_run, l.cancel_deadline IS NOT NULL AS must_end"
    };
}
use life_columns;

/// The statements of each file.
pub(crate) const STATEMENTS: [&[&dyn Statement]; 8] = [
    arrows::STATEMENTS,
    claim::STATEMENTS,
    displace::STATEMENTS,
    by_hand::STATEMENTS,
    finish::STATEMENTS,
    recover::STATEMENTS,
    row::STATEMENTS,
    search::STATEMENTS,
];
