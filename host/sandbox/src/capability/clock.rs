//! The guest's wall clock, when it is not the machine's.

use std::time::{Duration, Instant};

use wasmtime_wasi::{HostWallClock, WasiCtxBuilder};

use crate::world::Time;

/// Set the guest's wall clock to `time`.
pub(crate) fn set_clock(wasi: &mut WasiCtxBuilder, time: Time) {
    if let Some(start) = time.start() {
        wasi.wall_clock(ShiftedClock {
            // WASI has no times before 1970.
            start: Duration::from_micros(u64::try_from(start.micros()).unwrap_or(0)),
            started: matches!(time, Time::StartingAt(_)).then(Instant::now),
        });
    }
}

/// A wall clock that was set to another time.
struct ShiftedClock {
    start: Duration,
    /// When it was started; none when it stands still.
    started: Option<Instant>,
}

impl HostWallClock for ShiftedClock {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        self.start + self.started.map_or(Duration::ZERO, |at| at.elapsed())
    }
}
