//! From local times to instants, through the gaps and folds of a clock change.
//!
//! ```text
//!           gap                            fold
//!  local  1:59│3:00                      1:00─1:59│1:00─1:59│2:00
//!         ────┼────                      ─────────┼─────────┼────
//!             └ 2:00 to 2:59 fire here,   first    second
//!               or not at all             pass     pass
//! ```

use super::error::RuleError;
use super::zone::{SECOND, Span, Zone};
use campanile_model::rule_text::{DstFold, DstGap, RuleText};

/// The longest gap that shifts its local times to its end. In a longer gap a country left out a day
/// of its calendar, and the local times of that day do not fire.
const GAP_MAX: i64 = 3 * 3_600 * SECOND;

/// The local times of a rule, in microseconds, within the years 1970 to 2099.
pub(super) trait LocalTimes {
    /// Returns the first local time at `from` or later.
    fn first_from(&self, from: i64) -> Option<i64>;

    /// Counts local times from `from` (inclusive) to `until` (exclusive).
    fn count(&self, from: i64, until: i64) -> u64;
}

/// The instants of a local time in a gap or a fold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DstMapping {
    pub(super) gap: DstGap,
    pub(super) fold: DstFold,
    /// Whether the rule follows the clock: its local times fire whenever the clock shows them.
    pub(super) follows_clock: bool,
}

impl DstMapping {
    /// The mapping of a rule that follows the clock.
    pub(super) const CLOCK: DstMapping = DstMapping {
        gap: DstGap::Skip,
        fold: DstFold::Both,
        follows_clock: true,
    };

    /// Returns the mapping of a rule whose local times fire once, or as the overrides of `text` say.
    pub(super) fn of(text: &RuleText) -> DstMapping {
        DstMapping {
            gap: text.dst_gap,
            fold: text.dst_fold,
            follows_clock: false,
        }
    }

    /// Returns the first instant of `times` after `after`.
    pub(super) fn next(self, times: &impl LocalTimes, zone: &Zone, after: i64) -> Option<i64> {
        let from = after.saturating_add(1);
        let mut seen: Option<(i64, Option<i64>)> = None;
        let mut first_from = |local: i64| {
            // A result holds for every later search up to the local time that was found.
            let holds = |&(from, found): &(i64, Option<i64>)| {
                from <= local && found.is_none_or(|found| local <= found)
            };
            let (from, found) = seen
                .filter(holds)
                .unwrap_or_else(|| (local, times.first_from(local)));
            seen = Some((from, found));
            found
        };
        for span in zone.spans_from(from) {
            if span.begin >= from && self.shifts(span) {
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

    /// Returns the first local time that fires when `span` shows it, and the end of these local times.
    pub(super) fn window(self, span: &Span) -> (i64, i64) {
        match self.fold {
            DstFold::First => (span.local_begin.max(span.reached), span.local_end),
            DstFold::Second => (span.local_begin, span.local_end.min(span.shown_again)),
            DstFold::Both => (span.local_begin, span.local_end),
        }
    }

    /// Whether a gap lies before `span` and shifts its local times to its end.
    pub(super) fn shifts(self, span: &Span) -> bool {
        self.gap == DstGap::Shift
            && span.reached < span.local_begin
            // The gap before the first span is endless.
            && span.local_begin.saturating_sub(span.reached) <= GAP_MAX
    }
}

/// Refuse `dst_gap` and `dst_fold`, which mean nothing to `what`. The hint proposes `instead`.
pub(super) fn refuse_overrides(
    text: &RuleText,
    what: &str,
    instead: &str,
) -> Result<(), RuleError> {
    let (name, word) = match (text.dst_gap, text.dst_fold) {
        (DstGap::Shift, DstFold::First) => return Ok(()),
        (DstGap::Shift, fold) => ("dst_fold", fold.as_str()),
        (gap, _) => ("dst_gap", gap.as_str()),
    };
    Err(RuleError::new(
        format!("{name} `{word}` means nothing to {what}"),
        format!("leave {name} out, or {instead}"),
    ))
}
