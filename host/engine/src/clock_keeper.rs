//! The database's clock: among many hosts one clock decides.

use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::ctx::{Ctx, SharedCtx};
use crate::error::Result;
use crate::service::{Next, Service};
use campanile_model::clock::Timestamp;

/// How often the offset between this host's clock and the database's is measured.
pub(crate) const CLOCK_INTERVAL: Duration = Duration::from_secs(60);
/// An offset that is reported, in microseconds.
pub const SKEW_REPORTED_US: i64 = 1_000_000;
/// With an offset this large the host neither decides nor claims, in microseconds.
const SKEW_REFUSED_US: i64 = 60_000_000;

/// The service that measures the clock's offset.
pub(crate) struct ClockKeeper;

impl Service for ClockKeeper {
    const STEP: &'static str = "reading the database's clock";

    fn first(_: &Ctx) -> Next {
        Next::After(CLOCK_INTERVAL)
    }

    async fn tick(&mut self, ctx: &SharedCtx, _: Timestamp) -> Result<Next> {
        measure_clock(ctx).await?;
        Ok(Self::first(ctx))
    }
}

/// Follow the database's clock from now on. Pause decisions and claims while this machine's clock is too far off.
pub(crate) async fn measure_clock(ctx: &Ctx) -> Result {
    let Some(offset_us) = ctx.db.clock_offset_us(&ctx.clock).await? else {
        return Ok(());
    };
    ctx.clock.set_offset_us(offset_us);
    let clock_skewed = is_skewed(offset_us);
    if ctx.clock_skewed.swap(clock_skewed, Ordering::Relaxed) != clock_skewed
        || offset_us.abs() >= SKEW_REPORTED_US
    {
        tracing::warn!(
            offset_ms = offset_us / 1_000,
            clock_skewed,
            "this machine's clock and the database's differ; the database's clock decides"
        );
    }
    Ok(())
}

/// Pure: whether a host whose clock is `offset_us` off the database's neither decides nor claims.
fn is_skewed(offset_us: i64) -> bool {
    offset_us.abs() >= SKEW_REFUSED_US
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_a_minute_off_is_skewed() {
        for (offset_us, expected) in [
            (0, false),
            (59_999_999, false),
            (-59_999_999, false),
            (60_000_000, true),
            (-60_000_000, true),
            (i64::from(u32::MAX) * 1_000_000, true),
        ] {
            assert_eq!(is_skewed(offset_us), expected, "{offset_us}");
        }
    }
}
