//! Why a request for a backfill is refused.

use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_store::BackfillStatus;

/// How many slots one backfill may have.
pub const SLOTS_MAX: u64 = 1_000_000;

/// Why a request for a backfill is refused.
#[derive(Debug, thiserror::Error)]
pub enum BackfillError {
    #[error("the backfill would end before it begins: {to} is before {from}; exchange the two")]
    EndsFirst { from: Timestamp, to: Timestamp },
    #[error(
        "{0} is in the future, and slots to come are the schedule's own; begin with a time that is past"
    )]
    Future(Timestamp),
    #[error(
        "`{0}` has no slots to backfill: its rule launches at an event and not by the clock; `campanile schedule trigger` launches it now"
    )]
    NoClock(String),
    #[error("`{name}` has no slot from {from} to {to}; {}", next_is(.next))]
    NoSlots {
        name: String,
        from: Timestamp,
        to: Timestamp,
        next: Option<Timestamp>,
    },
    #[error(
        "`{name}` has more than {SLOTS_MAX} slots in this span; ask for a shorter one, and for the rest when that is done"
    )]
    TooMany { name: String },
    #[error(
        "there is a backfill {id} already, with {}; repeat the same request to follow it, or choose another id",
        .differences.join(", ")
    )]
    Differs {
        id: BackfillId,
        differences: Vec<String>,
    },
    #[error("there is no backfill {0}; `campanile backfill list` shows those there are")]
    Unknown(BackfillId),
    #[error("the backfill {id} is {status} already")]
    Over {
        id: BackfillId,
        status: BackfillStatus,
    },
}

fn next_is(next: &Option<Timestamp>) -> String {
    match next {
        Some(next) => format!("the next one after that is {next}"),
        None => "there is none after that either".to_owned(),
    }
}
