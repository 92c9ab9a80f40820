//! Growth of use: schedules whose runs use more than twice of what they used a week before.
//!
//! ```text
//! the 7 days before the last 7 days ─▶ median ─┐
//! the last 7 days ───────────────────▶ median ─┴─▶ [`growth`] (pure) ─▶ the table `schedule_growth` ─▶ health
//! ```
//!
//! The audit of the host that does the chores looks at a page of schedules at a time, and begins anew an hour after the last
//! beginning. Health reads the table alone.

use std::time::Duration;

use crate::alive::chores;
use crate::ctx::Ctx;
use crate::error::Result;
use campanile_control::reports::health::growth::{has_more_cpu, has_more_memory};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ScheduleId;
use campanile_store::task_use::{self, LaunchUse};
use campanile_store::use_growth::{self, Growth};
use campanile_store::{DbError, Tx};

/// The time from the beginning of one pass over all schedules to the next, at least.
const INTERVAL: Duration = Duration::from_secs(3_600);
/// The schedules of a page.
const PAGE: i64 = 64;
/// The two spans that are compared.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// The newest slots of a week whose runs are looked at.
const SLOTS_MAX: i64 = 1_000;
/// With fewer runs in one of the weeks, nothing is said.
const RUNS_MIN: usize = 20;

/// The pass of a host over all schedules.
#[derive(Default)]
pub(crate) struct GrowthPass {
    /// When it began; none before the first one.
    begun_at: Option<Timestamp>,
    /// The last schedule that was looked at; none between two passes.
    after: Option<ScheduleId>,
}

impl GrowthPass {
    /// Look at the next page of schedules, unless no pass is due. Return whether the pass has more pages.
    pub(crate) async fn step(&mut self, ctx: &Ctx, now: Timestamp) -> Result<bool> {
        let (begun_at, after) = match (self.begun_at, self.after) {
            (Some(begun_at), Some(after)) => (begun_at, after),
            (Some(begun_at), None) if now.since(begun_at) < INTERVAL && begun_at <= now => {
                return Ok(false);
            }
            _ => (now, ScheduleId::FIRST),
        };
        // With a wrong clock, the wrong weeks would be compared.
        if !ctx.clock.is_known() {
            return Ok(false);
        }
        let mut tx = ctx.db.read_long().await?;
        let page = use_growth::schedules(&mut tx, after, PAGE).await?;
        let mut found = Vec::new();
        for schedule in &page {
            if let Some(growth) = growth_of(&mut tx, *schedule, now).await? {
                found.push((*schedule, growth));
            }
        }
        drop(tx);
        let last = page.last().filter(|_| page.len() as i64 == PAGE).copied();
        let Some(mut tx) = chores::write(ctx).await? else {
            // The next host that does the chores begins a new pass.
            *self = GrowthPass::default();
            return Ok(false);
        };
        use_growth::note(&mut tx, &found, begun_at).await?;
        if last.is_none() {
            use_growth::end_pass(&mut tx, begun_at).await?;
        }
        tx.commit().await?;
        *self = GrowthPass {
            begun_at: Some(begun_at),
            after: last,
        };
        Ok(last.is_some())
    }
}

/// Returns how the use of a schedule has grown, if it has.
async fn growth_of(
    tx: &mut Tx,
    schedule: ScheduleId,
    now: Timestamp,
) -> Result<Option<Growth>, DbError> {
    let week_began = now.minus(WEEK);
    let since = week_began.minus(WEEK);
    let before = task_use::of_successes(tx, schedule, since, week_began, SLOTS_MAX).await?;
    if before.len() < RUNS_MIN {
        return Ok(None);
    }
    let last = task_use::of_successes(tx, schedule, week_began, now, SLOTS_MAX).await?;
    Ok(growth(&before, &last))
}

/// Pure: compare the successful runs of two weeks. None when there are too few, or when neither median has grown.
fn growth(before: &[LaunchUse], last: &[LaunchUse]) -> Option<Growth> {
    if before.len().min(last.len()) < RUNS_MIN {
        return None;
    }
    let growth = Growth {
        cpu_us_before: median(before.iter().map(|(cpu_us, _)| *cpu_us)),
        cpu_us: median(last.iter().map(|(cpu_us, _)| *cpu_us)),
        memory_peak_bytes_before: median(before.iter().map(|(_, bytes)| *bytes)),
        memory_peak_bytes: median(last.iter().map(|(_, bytes)| *bytes)),
    };
    (has_more_cpu(&growth) || has_more_memory(&growth)).then_some(growth)
}

/// Returns the median; of an even number of values, the lower one of the two in the middle. 0 of none.
fn median(values: impl Iterator<Item = i64>) -> i64 {
    let mut values: Vec<i64> = values.collect();
    values.sort_unstable();
    let middle = values.len().saturating_sub(1) / 2;
    values.get(middle).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: i64 = 1 << 20;

    /// Returns `runs` runs that each used so much.
    fn runs(runs: usize, cpu_us: i64, bytes: i64) -> Vec<LaunchUse> {
        vec![(cpu_us, bytes); runs]
    }

    #[test]
    fn use_has_grown_when_its_median_is_more_than_twice_that_of_the_week_before() {
        let calm = runs(20, 10_000, 8 * MIB);
        for (before, last, expected) in [
            // The same, and twice: not more than twice.
            (calm.clone(), calm.clone(), [false, false]),
            (calm.clone(), runs(20, 20_000, 16 * MIB), [false, false]),
            (calm.clone(), runs(20, 20_001, 16 * MIB), [true, false]),
            (calm.clone(), runs(20, 20_000, 16 * MIB + 1), [false, true]),
            (calm.clone(), runs(500, 90_000, 90 * MIB), [true, true]),
            // Too few runs in either week.
            (calm.clone(), runs(19, 90_000, 90 * MIB), [false, false]),
            (runs(19, 1, 1), runs(20, 90_000, 90 * MIB), [false, false]),
            (Vec::new(), runs(20, 90_000, 90 * MIB), [false, false]),
            // Too little to matter.
            (runs(20, 1, 1), runs(20, 9_999, 4 * MIB - 1), [false, false]),
            (runs(20, 1, 1), runs(20, 10_000, 4 * MIB), [true, true]),
            // Less than half of the runs do not change the median.
            (
                calm.clone(),
                [runs(11, 10_000, 8 * MIB), runs(10, 90_000, 90 * MIB)].concat(),
                [false, false],
            ),
            (
                calm,
                [runs(10, 10_000, 8 * MIB), runs(11, 90_000, 90 * MIB)].concat(),
                [true, true],
            ),
        ] {
            let found = growth(&before, &last);
            let grown = found.map(|found| [has_more_cpu(&found), has_more_memory(&found)]);
            let expected = expected.contains(&true).then_some(expected);
            assert_eq!(grown, expected, "{before:?}\n{last:?}");
        }
    }

    #[test]
    fn the_median_is_the_value_in_the_middle() {
        for (values, expected) in [
            (&[][..], 0),
            (&[7], 7),
            (&[9, 1], 1),
            (&[9, 1, 5], 5),
            (&[4, 3, 2, 1], 2),
        ] {
            assert_eq!(median(values.iter().copied()), expected, "{values:?}");
        }
    }
}
