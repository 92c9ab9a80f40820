//! `campanile bench outage`: how a host catches up after an outage, and how long it keeps other writers waiting meanwhile.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::{BenchHost, HOUR, Scratch, add_many_schedules, every, scratch_db};
use crate::config::Config;
use crate::output::{Record, Result, failed};
use crate::progress::Line;
use campanile_engine::audit::Lag;
use campanile_engine::watch::Mode;
use campanile_store::{Db, stats};

/// The pause between two transactions of the other writer.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

#[derive(Args)]
pub(crate) struct Outage {
    /// The number of schedules, each with one missed slot
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    schedules: u32,
}

/// The result of `bench outage`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct OutageReport {
    backend: &'static str,
    schedules: u32,
    /// From the start of the host to the last recorded end.
    seconds: f64,
    launches_per_s: f64,
    /// How long another writer of the same process waited for its transaction. On SQLite the transactions before it, of
    /// which there may be several, have ended by then.
    write_wait_ms: Lag,
}

impl Record for OutageReport {}

impl Outage {
    pub(super) async fn measure(&self, config: &Config) -> Result<OutageReport> {
        let mut scratch = Scratch::new(config, scratch_db(config).await?).await?;
        // The package is on the record before the schedules, as after an earlier run of the host.
        scratch.load().await?;
        let db = scratch.engine.db().clone();
        let down = scratch.engine.clock().now().minus(HOUR);
        let missed = every("8760h", down.plus(HOUR / 2));
        add_many_schedules(&db, 0..self.schedules, &missed, down).await?;

        let _step = Line::step(format_args!("catching up {} launches", self.schedules));
        let begun = Instant::now();
        let host = BenchHost::serve(scratch, Mode::Off).await?;
        let mut waits = Vec::new();
        let caught_up = tokio::select! {
            caught_up = host.until_idle() => caught_up,
            error = write_again_and_again(&db, &mut waits) => error,
        };
        let seconds = begun.elapsed().as_secs_f64();
        let counts = stats::counts(&mut db.read().await?, down).await?;
        host.stop().await?;

        caught_up?;
        if counts.succeeded != i64::from(self.schedules) {
            return Err(failed!(
                "{} of {} missed slots have a launch that succeeded",
                counts.succeeded,
                self.schedules
            ));
        }
        Ok(OutageReport {
            backend: config.files.database.backend(),
            schedules: self.schedules,
            seconds,
            launches_per_s: f64::from(self.schedules) / seconds,
            write_wait_ms: Lag::of_times(waits),
        })
    }
}

/// Begin transactions that write, one after the other, until one fails. Record how long each waited.
async fn write_again_and_again(db: &Db, waits: &mut Vec<Duration>) -> Result {
    loop {
        let begun = Instant::now();
        drop(db.write().await?);
        waits.push(begun.elapsed());
        tokio::time::sleep(WRITE_INTERVAL).await;
    }
}
