//! From local times to instants: what becomes of those that a gap leaves out or a fold shows twice.
//!
//! ```text
//!           gap                            fold
//!  local  1:59│3:00                      1:00─1:59│1:00─1:59│2:00
//!         ────┼────                      ─────────┼─────────┼────
//!             └ what names 2:00 to 2:59   first    second
//!               fires here, or not        pass     pass
//! ```

use super::zone::{SECOND, Span, Zone};
use campanile_model::rule_text::{DstFold, DstGap};

/// A gap up to this long moves what falls into it to its end. A longer one is a change of the
/// calendar, a day that a country left out, and what falls into it does not happen.
const GAP_MAX: i64 = 3 * 3_600 * SECOND;

/// The local times that a rule names, in microseconds, within the years 1970 to 2099.
pub(super) trait LocalTimes {
    /// The first at `from` or later.
    fn first_from(&self, from: i64) -> Option<i64>;

    /// The last before `before`.
    fn last_before(&self, before: i64) -> Option<i64>;
}

/// Which instants a local time stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Passes {
    pub(super) gap: DstGap,
    pub(super) fold: DstFold,
}

impl Passes {
    /// Every instant at which the clock shows the local time.
    pub(super) const CLOCK: Passes = Passes {
        gap: DstGap::Skip,
        fold: DstFold::Both,
    };

    /// The first instant of `times` after `after`.
    pub(super) fn next(self, times: &impl LocalTimes, zone: &Zone, after: i64) -> Option<i64> {
        let from = after.saturating_add(1);
        let mut seen: Option<(i64, Option<i64>)> = None;
        // What was found stays the answer for every later time up to it.
        let mut first_from = |local: i64| match seen {
            Some((searched, found))
                if searched <= local && found.is_none_or(|found| local <= found) =>
            {
                found
            }
            _ => {
                let found = times.first_from(local);
                seen = Some((local, found));
                found
            }
        };
        for span in zone.spans_from(from) {
            if span.begin >= from && self.moves(span) {
                let local = first_from(span.reached);
                if local.is_some_and(|local| local < span.local_begin) {
                    return Some(span.begin);
                }
            }
            let (begin, end) = self.window(span);
            let local = first_from(begin.max(from.saturating_add(span.offset)));
            if let Some(local) = local.filter(|&local| local < end) {
                return Some(local - span.offset);
            }
        }
        None
    }

    /// The last instant of `times` before `before`.
    pub(super) fn prev(self, times: &impl LocalTimes, zone: &Zone, before: i64) -> Option<i64> {
        let until = before.saturating_sub(1);
        let mut seen: Option<(i64, Option<i64>)> = None;
        let mut last_before = |local: i64| match seen {
            Some((searched, found))
                if local <= searched && found.is_none_or(|found| found < local) =>
            {
                found
            }
            _ => {
                let found = times.last_before(local);
                seen = Some((local, found));
                found
            }
        };
        for span in zone.spans_until(until).iter().rev() {
            let (begin, end) = self.window(span);
            let local = last_before(end.min(before.saturating_add(span.offset)));
            if let Some(local) = local.filter(|&local| local >= begin) {
                return Some(local - span.offset);
            }
            if self.moves(span) {
                let local = last_before(span.local_begin);
                if local.is_some_and(|local| local >= span.reached) {
                    return Some(span.begin);
                }
            }
        }
        None
    }

    /// The local times that fire when `span` shows them: its first, and the one after its last.
    fn window(self, span: &Span) -> (i64, i64) {
        match self.fold {
            DstFold::First => (span.local_begin.max(span.reached), span.local_end),
            DstFold::Second => (span.local_begin, span.local_end.min(span.shown_again)),
            DstFold::Both => (span.local_begin, span.local_end),
        }
    }

    /// Whether what is in the gap before `span`, if there is one, fires when that ends.
    pub(super) fn moves(self, span: &Span) -> bool {
        self.gap == DstGap::Shift
            && span.reached < span.local_begin
            // The first span has nothing before it.
            && span.local_begin.saturating_sub(span.reached) <= GAP_MAX
    }
}
