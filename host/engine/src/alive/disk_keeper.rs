//! The database's disk: a host stops deciding and claiming before it's full, continuing once there's space.
//!
//! Ongoing runs continue, and the reserve is there for recording how they end. With Postgres, free space can't be measured. There,
//! and where a quota hides it, the first write failing for lack of space counts instead. Small writes may succeed even on a full
//! disk, so the host goes back to work on trial: if none of its writes fails for a while, there's space.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service, record_event};
use campanile_control::reports::health::disk::ROOM_MIN_BYTES;
use campanile_control::reports::symptom::short_of;
use campanile_model::clock::Timestamp;
use campanile_store::events::EventKind;

/// How often the free space is read.
const DISK_INTERVAL: Duration = Duration::from_secs(2);
/// The longest pause between two attempts to write to a disk that was full.
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// If the disk can't be measured, the host works on trial for this long before reporting that there's space.
const TRIAL: Duration = Duration::from_secs(5);
/// When the disk is low again so soon after it had room, the pause grows.
const CALM: Duration = Duration::from_secs(60);

/// The service that watches the disk of the database.
pub(crate) struct DiskKeeper {
    /// How long to wait for the next attempt while the disk is low.
    pause: Duration,
    /// Set from reporting a low disk until reporting that there's space.
    is_reported: bool,
    /// Whether a failing write revealed it, because the disk can't be measured or a quota hides it.
    is_found_by_write: bool,
    /// When the host went back to work on trial.
    trial_since: Option<Timestamp>,
    /// When the disk had room again.
    freed_at: Option<Timestamp>,
}

impl DiskKeeper {
    /// Look at the disk before a host decides anything.
    pub(crate) async fn start(ctx: &Ctx) -> DiskKeeper {
        let mut keeper = DiskKeeper {
            pause: DISK_INTERVAL,
            is_reported: false,
            is_found_by_write: false,
            trial_since: None,
            freed_at: None,
        };
        let free = ctx.db.free_bytes().await;
        if free.is_some_and(|free| is_short(free, ctx.settings.disk_reserve_bytes, false)) {
            keeper.stop_work(ctx, free, ctx.clock.now()).await;
        }
        keeper
    }

    /// Decide and claim nothing from now on.
    async fn stop_work(&mut self, ctx: &Ctx, free: Option<u64>, now: Timestamp) {
        self.pause = match self.freed_at {
            _ if self.trial_since.is_some() => (self.pause * 2).min(PAUSE_MAX),
            Some(freed_at) if now.since(freed_at) < CALM => (self.pause * 2).min(PAUSE_MAX),
            _ => DISK_INTERVAL,
        };
        self.trial_since = None;
        ctx.disk_low.store(true, Ordering::Relaxed);
        if self.is_reported {
            // The trial failed, so this is the same trouble.
            return;
        }
        self.is_reported = true;
        let detail = low(free, ctx.settings.disk_reserve_bytes);
        tracing::warn!("{detail}");
        // Without room for the event, the log has the line.
        let _ = record_event(ctx, now, EventKind::DiskLow, &ctx.name, &detail).await;
    }

    /// Starts deciding and claiming again: writing shows whether there's space.
    fn try_work(&mut self, ctx: &Ctx, now: Timestamp) {
        self.trial_since = Some(now);
        ctx.disk_low.store(false, Ordering::Relaxed);
        ctx.wake.scheduler.notify_one();
        ctx.wake.dispatcher.notify_one();
    }

    /// Reports that there's space, provided the database accepts a write.
    async fn report_room(&mut self, ctx: &Ctx, now: Timestamp) -> Result {
        let detail = "hosts decide and claim again; slots that came meanwhile are late or missed";
        record_event(ctx, now, EventKind::DiskFreed, &ctx.name, detail).await?;
        self.freed_at = Some(now);
        (self.is_reported, self.is_found_by_write) = (false, false);
        self.trial_since = None;
        ctx.trouble.end_disk_full();
        tracing::info!("the disk of the database has room again: {detail}");
        Ok(())
    }
}

impl Service for DiskKeeper {
    const STEP: &'static str = "looking at the disk of the database";

    fn first(_: &Ctx) -> Next {
        Next::After(DISK_INTERVAL)
    }

    async fn tick(&mut self, ctx: &SharedCtx, now: Timestamp) -> Result<Next> {
        let was_low = ctx.disk_low.load(Ordering::Relaxed);
        let was_full = ctx.trouble.take_disk_full();
        let reserve = ctx.settings.disk_reserve_bytes;
        let free = ctx.db.free_bytes().await;
        let is_short = free.is_some_and(|free| is_short(free, reserve, was_low));
        self.is_found_by_write |= was_full && !is_short;
        match (was_low, was_full || is_short) {
            (false, false) => match self.trial_since {
                Some(since) if now.since(since) >= TRIAL => self.report_room(ctx, now).await?,
                _ => {}
            },
            (false, true) => self.stop_work(ctx, free, now).await,
            // The free bytes can be measured, so no write has to be tried.
            (true, true) if is_short => self.pause = DISK_INTERVAL,
            (true, true) => self.pause = (self.pause * 2).min(PAUSE_MAX),
            (true, false) if self.is_found_by_write => self.try_work(ctx, now),
            (true, false) => {
                self.report_room(ctx, now).await?;
                self.try_work(ctx, now);
                self.trial_since = None;
            }
        }
        Ok(if ctx.disk_low.load(Ordering::Relaxed) {
            Next::After(self.pause)
        } else {
            Self::first(ctx)
        })
    }
}

/// Pure: whether `free` bytes are too few. A disk that was low has room only with an eighth more than the reserve.
fn is_short(free: u64, reserve: u64, was_low: bool) -> bool {
    if was_low {
        free < reserve.saturating_add(reserve / 8).max(ROOM_MIN_BYTES)
    } else {
        free < reserve
    }
}

/// Say that the disk is low; `free` is none when its free space cannot be seen.
fn low(free: Option<u64>, reserve: u64) -> String {
    let why = match free {
        Some(free) if free < reserve => short_of(free, reserve),
        _ => "the disk of the database is full".to_owned(),
    };
    format!("{why}: this host decides and claims nothing until there is room; free some space")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_short_below_its_reserve_until_it_has_an_eighth_more() {
        for (free, reserve, was_low, expected) in [
            (8 << 20, 8 << 20, false, false),
            ((8 << 20) - 1, 8 << 20, false, true),
            (8 << 20, 8 << 20, true, true),
            ((9 << 20) - 1, 8 << 20, true, true),
            (9 << 20, 8 << 20, true, false),
            // No reserve is no bound, until a write has failed.
            (0, 0, false, false),
            (0, 0, true, true),
            (ROOM_MIN_BYTES, 0, true, false),
            (0, u64::MAX, true, true),
        ] {
            assert_eq!(
                is_short(free, reserve, was_low),
                expected,
                "{free} {reserve}"
            );
        }
    }

    #[test]
    fn a_low_disk_is_named_with_its_free_space() {
        let text = low(Some(1 << 20), 256 << 20);
        assert!(
            text.contains("1.0 MiB free") && text.contains("of 256.0 MiB"),
            "{text}"
        );
        assert!(low(None, 256 << 20).starts_with("the disk of the database is full"));
        assert!(low(Some(512 << 20), 256 << 20).contains("is full"));
    }
}
