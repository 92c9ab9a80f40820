//! Which slots a change of offset touches, and what happens to each. For people to read.

use chrono::NaiveDateTime;

use super::Rule;
use crate::clock::Timestamp;

/// A local time that a change of offset leaves out or shows twice, and what a rule does about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touched {
    /// The instant at which the offset changes.
    pub change: Timestamp,
    /// The local time that the rule names.
    pub local: NaiveDateTime,
    /// The last local time touched alike. Other than `local` only for a rule that follows the
    /// clock: all its local times of one change are told together.
    pub local_last: NaiveDateTime,
    /// What happens to it.
    pub fate: Fate,
}

/// What happens to a local time that a change of offset touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// In a gap: it fires when the gap ends, once with all others that do.
    Moved {
        /// The end of the gap.
        to: Timestamp,
    },
    /// In a gap: it does not fire, since the rule says so or the gap is longer than 3 hours.
    Skipped,
    /// In a gap: the clock does not show it, and the rule follows the clock.
    NotShown,
    /// In a fold: it fires in one of its two passes.
    Once {
        /// When it fires.
        at: Timestamp,
        /// The other pass, in which it does not.
        not_at: Timestamp,
    },
    /// In a fold: it fires in both passes.
    Twice {
        /// The first pass.
        first: Timestamp,
        /// The second pass.
        second: Timestamp,
    },
}

impl Rule {
    /// The local times of the rule touched by the changes of offset after `after`, up to and with
    /// `until`, in order. None for elapsed time, which does not look at the clock.
    pub fn touched(
        &self,
        after: Timestamp,
        until: Timestamp,
    ) -> impl Iterator<Item = Touched> + '_ {
        let _ = (after, until);
        std::iter::empty()
    }
}
