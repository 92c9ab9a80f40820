//! The host's time: among many hosts the database's clock decides, and between two measurements the monotonic clock.
//!
//! While the time is unknown the host decides, claims and recovers nothing, and marks no host as dead.

use std::mem::take;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::alive::lease_table::CLOCK_ERROR_MAX;
use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service, within};
use campanile_control::reports::health::SKEW_REPORTED_US;
use campanile_model::clock::{CONFIRM, Clock, Look, Monotonic, Timestamp};
use campanile_store::corrections::{self, ClockSetBack};
use campanile_store::events::{self, EventKind, NewEvent};
use campanile_store::{Db, DbError};

/// How often the database's clock is measured.
pub(crate) const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// How often the wall clock is compared with the monotonic clock.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// How long one measurement may take, and one recording of events.
const PATIENCE: Duration = Duration::from_secs(5);
/// When the host's time moves by so much, the leases on record may look older than they are, in microseconds.
const JUMP_US: u64 = 2_000_000;
/// Events kept while the database does not answer.
const UNRECORDED_MAX: usize = 16;

/// The service that knows the time.
#[derive(Default)]
pub(crate) struct ClockKeeper {
    measured_at: Option<Monotonic>,
    /// Since when a step of the wall clock keeps the time unknown.
    paused_at: Option<Monotonic>,
    /// What is not on record yet.
    unrecorded: Vec<NewEvent>,
    /// Amounts by which this host's time went back, not recorded yet.
    set_backs: Vec<ClockSetBack>,
    /// By how much the wall clock was off when that was logged last, in microseconds.
    logged_skew_us: i64,
}

impl Service for ClockKeeper {
    const STEP: &'static str = "reading the database's clock";

    fn first(_: &Ctx) -> Next {
        Next::After(LOOK_INTERVAL)
    }

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        match ctx.clock.look() {
            Look::Steady | Look::Resumed => {}
            Look::Stepped(step_us) => self.pause(ctx, step_us),
            Look::Confirmed(moved_us) => self.resume(ctx, moved_us),
        }
        self.follow_database(ctx).await?;
        self.record(ctx).await?;
        Ok(Self::first(ctx))
    }
}

impl ClockKeeper {
    /// Note that the wall clock stepped. The clock itself says already that the time is unknown.
    fn pause(&mut self, ctx: &Ctx, step_us: i64) {
        self.paused_at.get_or_insert(ctx.clock.monotonic());
        let until = if ctx.db.url().is_shared() {
            "the database's clock is measured".to_owned()
        } else {
            format!("it has not stepped for {} s", CONFIRM.as_secs())
        };
        let detail = format!(
            "this machine's clock stepped by {}; the host decides, claims and recovers nothing until {until}",
            seconds(step_us)
        );
        tracing::warn!("{detail}");
        self.note(ctx, EventKind::ClockStepped, detail);
    }

    /// Measure the database's clock once a minute, and at once while the time is unknown. SQLite has no other clock.
    async fn follow_database(&mut self, ctx: &Ctx) -> Result {
        let was_known = ctx.clock.is_known();
        let is_fresh = |at: Monotonic| ctx.clock.monotonic().since(at) < CLOCK_INTERVAL;
        if !ctx.db.url().is_shared() || (was_known && self.measured_at.is_some_and(is_fresh)) {
            return Ok(());
        }
        let measured = within(PATIENCE, measure(&ctx.db, &ctx.clock)).await;
        let moved_us = measured.inspect_err(|_| ctx.clock.forget())?;
        self.measured_at = Some(ctx.clock.monotonic());
        self.report_skew(ctx.clock.skew_us());
        if !was_known || moved_us.unsigned_abs() >= JUMP_US {
            self.resume(ctx, moved_us);
        }
        Ok(())
    }

    /// Work with a time that is known again, and that moved by `moved_us`.
    fn resume(&mut self, ctx: &Ctx, moved_us: i64) {
        let has_jumped = moved_us.unsigned_abs() >= JUMP_US;
        if has_jumped {
            ctx.note_jump();
        }
        if moved_us < 0 && has_jumped && self.set_backs.len() < UNRECORDED_MAX {
            let since = ctx.clock.now();
            let until = since.plus(Duration::from_micros(moved_us.unsigned_abs()));
            self.set_backs.push(ClockSetBack { since, until });
        }
        if let Some(paused_at) = self.paused_at.take() {
            let pause = ctx.clock.monotonic().since(paused_at).as_secs_f64();
            let moved = seconds(moved_us);
            let detail =
                format!("the host works again after {pause:.1} s; its time moved by {moved}");
            tracing::warn!("{detail}");
            self.note(ctx, EventKind::ClockKnown, detail);
        } else if has_jumped {
            let detail = format!(
                "the database's clock stepped by {}, compared with this machine's; recovery waits until every host has followed",
                seconds(moved_us)
            );
            tracing::warn!("{detail}");
            self.note(ctx, EventKind::ClockStepped, detail);
        }
        ctx.wake.scheduler.notify_one();
        ctx.wake.dispatcher.notify_one();
        ctx.wake.cursor_watch.notify_one();
    }

    fn note(&mut self, ctx: &Ctx, kind: EventKind, detail: String) {
        if self.unrecorded.len() < UNRECORDED_MAX {
            self.unrecorded.push(NewEvent::new(kind, &ctx.name, detail));
        }
    }

    /// Record events; they stay for the next time when that fails.
    async fn record(&mut self, ctx: &Ctx) -> Result {
        if self.unrecorded.is_empty() && self.set_backs.is_empty() {
            return Ok(());
        }
        let recording = async {
            let mut tx = ctx.db.write().await?;
            events::record_all(&mut tx, ctx.clock.now(), &self.unrecorded).await?;
            for back in &self.set_backs {
                corrections::record_clock_set_back(&mut tx, &ctx.name, *back).await?;
            }
            Ok(tx.commit().await?)
        };
        within(PATIENCE, recording).await?;
        take(&mut self.unrecorded);
        take(&mut self.set_backs);
        Ok(())
    }

    /// Log that the wall clock is off, once for each change by a second.
    fn report_skew(&mut self, skew_us: i64) {
        if (skew_us - self.logged_skew_us).abs() < SKEW_REPORTED_US {
            return;
        }
        self.logged_skew_us = skew_us;
        tracing::warn!(
            skew_ms = skew_us / 1_000,
            "this machine's clock and the database's differ; the database's clock decides"
        );
    }
}

/// Follow the database's clock, if it has one. Return by how many microseconds the host's time moved.
pub(crate) async fn measure(db: &Db, clock: &Clock) -> Result<i64> {
    let Some(anchor) = db.clock_anchor(clock).await? else {
        return Ok(0);
    };
    if anchor.error > CLOCK_ERROR_MAX {
        let took = (anchor.error * 2).as_secs_f64();
        let why = format!("its clock cannot be measured: an answer took {took:.1} s");
        return Err(DbError::Unavailable(why).into());
    }
    Ok(clock.follow(anchor))
}

/// Print microseconds as seconds with their sign.
fn seconds(micros: i64) -> String {
    format!("{:+.1} s", micros as f64 / 1e6)
}

impl Ctx {
    /// Note that this host's time moved by seconds: until every host has followed and has renewed its leases, a lease that
    /// looks expired proves nothing.
    fn note_jump(&self) {
        let measured = if self.db.url().is_shared() {
            CLOCK_INTERVAL
        } else {
            Duration::ZERO
        };
        let until = self.clock.monotonic().plus(measured + self.settings.lease);
        self.recover_after_us
            .store(until.micros(), Ordering::Relaxed);
        self.heartbeats.forget();
        // The leases of this host are renewed in the new time at once.
        self.wake.lease_keeper.notify_one();
    }
}
