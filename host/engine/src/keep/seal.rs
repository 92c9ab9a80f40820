//! Seal the record: add links to the chain of hashes that `campanile audit verify` compares with the rows.
//!
//! ```text
//! launches decided in a span ──────┐
//! unfinished launches of the last  ├─▶ ended launches, events ─▶ leaves ─▶ hash ─▶ a seal
//! events of the span ──────────────┘              └─▶ the rollup of their schedules and packages
//! ```
//!
//! The host that does the chores seals, outside of the transactions of launches: a launch waits for nothing. Rows are sealed
//! a minute after their decision. If that host dies, the next one continues after the last seal.
//!
//! One transaction adds a seal and counts its launches in the rollup, so that each counts once: if another host has added a seal
//! meanwhile, neither is written. Both are read before that transaction, in one snapshot.
//!
//! When the clock is set back, new rows have times of spans that are sealed. Until the clock has caught up, seals cover such
//! rows, and their spans are empty.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use uuid::Uuid;

use super::rollup::ChangedRollups;
use crate::alive::chores;
use crate::crash;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_control::rules::leaf::{DELAY, Leaf, hash_of, is_settled, late_from, read_ids};
use campanile_model::clock::Timestamp;
use campanile_model::ids::ChainHash;
use campanile_store::Tx;
use campanile_store::launch::FinishedLaunch;
use campanile_store::seals::{self, Seal};

/// The time from one seal to the next, at least.
const INTERVAL: Duration = Duration::from_secs(10);
/// The launches of one seal, unless more were decided at the same moment.
const LAUNCHES_MAX: usize = 2_048;
/// The events of one seal, unless more were recorded at the same moment. A file with a million schedules records as many.
const EVENTS_MAX: usize = 1_024;
/// So many launches may wait for a later seal. With more, sealing waits until some have ended.
const UNFINISHED_MAX: usize = 65_536;
/// The pause after a seal when there is more to seal, as a multiple of the time it took: sealing takes a twentieth of a processor.
const PAUSE: u32 = 19;
/// The same when sealing is [`BEHIND`]: it takes a fifth. Retention removes only what's sealed, so it must not stay behind.
const PAUSE_BEHIND: u32 = 4;
/// How far behind sealing hurries.
const BEHIND: Duration = Duration::from_secs(600);
/// The least time between two rows of different moments.
const MOMENT: Duration = Duration::from_micros(1);

/// The service that seals the record.
pub(crate) struct Sealer;

impl Service for Sealer {
    const STEP: &'static str = "sealing the record";

    fn first(_: &Ctx) -> Next {
        Next::After(INTERVAL)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        // With a wrong clock, the span of a seal could end in the future.
        if !ctx.clock.is_known() {
            return Ok(Next::After(INTERVAL));
        }
        let begun = Instant::now();
        let behind = seal(ctx, now).await?;
        Ok(Next::After(pause(begun.elapsed(), behind)))
    }
}

/// Returns the pause after a seal that took this long and left sealing behind by `behind`, or with nothing more to seal.
fn pause(took: Duration, behind: Option<Duration>) -> Duration {
    match behind {
        None => INTERVAL,
        Some(behind) if behind < BEHIND => took * PAUSE,
        Some(_) => took * PAUSE_BEHIND,
    }
}

/// Adds a seal if there is anything to seal. If there is more, returns how much later than the end of its span that goes.
pub(crate) async fn seal(ctx: &Ctx, now: Timestamp) -> Result<Option<Duration>> {
    if !chores::are_ours(ctx) {
        return Ok(None);
    }
    let begun = Instant::now();
    let mut tx = ctx.db.read().await?;
    let Some(next) = next_seal(&mut tx, now).await? else {
        return Ok(None);
    };
    let rollup_begun = Instant::now();
    let rollups = ChangedRollups::read(&mut tx, &next.ended, now).await?;
    drop(tx);
    let mut of_rollup = rollup_begun.elapsed();
    let Some(mut tx) = chores::write(ctx).await? else {
        return Ok(None);
    };
    if !seals::insert(&mut tx, &next.seal).await? {
        return Ok(None);
    }
    let rollup_begun = Instant::now();
    rollups.write(&mut tx).await?;
    of_rollup += rollup_begun.elapsed();
    crash::point("before_seal_commit");
    tx.commit().await?;
    crash::point("after_seal_commit");
    let (launches, took) = (next.ended.len(), begun.elapsed());
    tracing::debug!(launches, ?took, ?of_rollup, "sealed a part of the record");
    Ok(next.behind)
}

/// A seal to add.
struct NextSeal {
    seal: Seal,
    /// The launches that it covers.
    ended: Vec<FinishedLaunch>,
    /// If there is more to seal than it covers, how much later than the end of its span that goes.
    behind: Option<Duration>,
}

/// Returns the first rows from `since` to before `until`, and the end of the span that they fill. They are at most `max`, or all rows
/// of the first moment.
///
/// `read` returns up to a number of rows of a span, in the order of their times. `at` returns the time of a row.
async fn first_rows<T>(
    tx: &mut Tx,
    (since, until): (Timestamp, Timestamp),
    max: usize,
    read: impl AsyncFn(&mut Tx, Timestamp, Timestamp, i64) -> campanile_store::Result<Vec<T>>,
    at: impl Fn(&T) -> Timestamp,
) -> Result<(Vec<T>, Timestamp)> {
    let mut rows = read(tx, since, until, max as i64 + 1).await?;
    let Some(next) = rows.get(max).map(&at) else {
        return Ok((rows, until));
    };
    rows.retain(|row| at(row) < next);
    if !rows.is_empty() {
        return Ok((rows, next));
    }
    let end = next.plus(MOMENT);
    Ok((read(tx, since, end, i64::MAX).await?, end))
}

/// Returns the seal after the last one.
async fn next_seal(tx: &mut Tx, now: Timestamp) -> Result<Option<NextSeal>> {
    let last = seals::newest(tx).await?;
    let end_before = last.as_ref().map_or(Timestamp::FIRST, |last| last.until_at);
    let late_from = last.as_ref().and_then(|last| late_from(last, now));
    let (since, until) = match late_from {
        Some(from) => (from, now.minus(DELAY).min(end_before)),
        None => (end_before, now.minus(DELAY)),
    };
    if until <= since && late_from.is_none_or(|_| until < end_before) {
        return Ok(None);
    }
    let span = (since, until);
    let decided_at = |launch: &FinishedLaunch| launch.decided_at;
    let (mut decided, end) = first_rows(tx, span, LAUNCHES_MAX, seals::decided, decided_at).await?;
    let span = (since, end);
    let (mut events, end) =
        first_rows(tx, span, EVENTS_MAX, seals::events, |event| event.at).await?;
    // With many events, the span ends before some of the launches.
    decided.retain(|launch| launch.decided_at < end);
    let behind = (end < until).then(|| until.since(end));
    let until = end;
    let waiting = last.as_ref().map(|last| read_ids(&last.unfinished));
    let waiting = waiting.unwrap_or_default();
    if late_from.is_some() {
        // The span was sealed before the clock was set back.
        let sealed = seals::leaves_after(tx, since).await?;
        let sealed = sealed.iter().filter_map(|bytes| Leaf::read_all(bytes));
        let mut known: HashSet<Uuid> = sealed.flatten().map(|leaf| leaf.id).collect();
        known.extend(waiting.iter().map(|id| id.0));
        decided.retain(|launch| !known.contains(&launch.id.0));
        events.retain(|event| !known.contains(&event.id.0));
    }
    decided.extend(seals::launches(tx, &waiting).await?);
    let (ended, unfinished): (Vec<_>, Vec<_>) = decided
        .into_iter()
        .partition(|launch| is_settled(launch, now));
    let late_at = (late_from.is_some() && until < end_before).then_some(until);
    // A seal without rows records at once that the clock was set back, or that it has caught up.
    let was_late = last.as_ref().is_some_and(|last| last.late_at.is_some());
    let is_empty = ended.is_empty() && events.is_empty() && behind.is_none();
    let is_needed = !is_empty || was_late != late_at.is_some();
    if !is_needed || unfinished.len() > UNFINISHED_MAX {
        return Ok(None);
    }
    let mut leaves: Vec<Leaf> = ended.iter().map(Leaf::of_launch).collect();
    leaves.sort_unstable_by_key(|leaf| leaf.id);
    leaves.extend(events.iter().map(Leaf::of_event));
    let leaves = Leaf::write_all(&leaves);
    let ids = unfinished.iter().map(|launch| *launch.id.0.as_bytes());
    let before = last.as_ref().map(|last| &last.hash);
    let mut seal = Seal {
        number: last.as_ref().map_or(1, |last| last.number + 1),
        until_at: match late_from {
            Some(_) => end_before,
            None => until,
        },
        late_at,
        sealed_at: now,
        launches: ended.len() as i64,
        events: events.len() as i64,
        leaves_hash: ChainHash::of(&leaves),
        leaves: Some(leaves),
        unfinished: ids.flatten().collect(),
        // It covers the other fields, and is set below.
        hash: ChainHash::of(&[]),
    };
    seal.hash = hash_of(before, &seal);
    Ok(Some(NextSeal {
        seal,
        ended,
        behind,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sealing_hurries_when_it_is_ten_minutes_behind() {
        let took = Duration::from_millis(200);
        assert_eq!(pause(took, None), INTERVAL);
        assert_eq!(pause(took, Some(BEHIND - MOMENT)), took * 19);
        assert_eq!(pause(took, Some(BEHIND)), took * 4);
    }
}
