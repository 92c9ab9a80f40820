//! Search back through points that can only be searched forwards.
//!
//! Slots and local times have one search, for the first point from an instant on. A second search for the last point
//! before an instant would repeat the rules of days, exclusions and clock changes in reverse.

use super::zone::SECOND;

/// How much larger each step back is than the one before.
const STEP_GROWTH: i64 = 8;

/// Returns the last point before `before`; `None` when there is no point from `begin` on.
///
/// `first_from` returns the first point at an instant or later.
pub(super) fn last_before(
    before: i64,
    begin: i64,
    first_from: impl Fn(i64) -> Option<i64>,
) -> Option<i64> {
    let find = |from: i64| first_from(from).filter(|&point| point < before);
    // Most points are as far from the point before as from the point after.
    let gap = first_from(before.saturating_add(1)).map_or(SECOND, |next| next - before);
    // No point is in `end..before`.
    let (mut end, mut step) = (before, gap.max(SECOND));
    let mut last = loop {
        let from = before.saturating_sub(step).max(begin);
        if let Some(point) = find(from) {
            break point;
        }
        if from == begin {
            return None;
        }
        end = from;
        step = step.saturating_mul(STEP_GROWTH);
    };
    while let Some(next) = find(last + 1) {
        let middle = next.midpoint(end);
        last = find(middle).unwrap_or_else(|| {
            end = middle;
            next
        });
    }
    Some(last)
}
