//! `campanile bench outage`: how a host catches up after an outage, how late on-time schedules start meanwhile, and how long other writers
//! are kept waiting.

use std::time::{Duration, Instant};

use clap::Args;
use serde::Serialize;

use super::{
    BenchHost, HOUR, Scratch, add_many_schedules, add_schedules_with, beside_each_other, every,
    has_succeeded, lag, scratch_db,
};
use crate::config::Config;
use crate::output::{Record, Result, failed};
use crate::progress::Line;
use campanile_control::rules::lateness::Lag;
use campanile_engine::packages::watch::Mode;
use campanile_model::clock::Timestamp;
use campanile_schedule::policy::{Catchup, Policies};
use campanile_store::Db;

/// The pause between two transactions of the other writer.
const WRITE_INTERVAL: Duration = Duration::from_millis(20);

/// On-time schedules are called `on-time-0`, `on-time-1` and so on.
const ON_TIME: &str = "on-time-";
/// Every this many of them has a period of ten seconds, the others one second.
const TEN_SECONDS_EVERY: u32 = 2;

#[derive(Args)]
pub(crate) struct Outage {
    /// The number of schedules with missed slots
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    schedules: u32,
    /// The number of missed slots of each
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    slots: u32,
    /// The number of schedules of one and of ten seconds beside them, which catch up nothing
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=10_000))]
    on_time: u32,
}

/// The result of `bench outage`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct OutageReport {
    backend: &'static str,
    schedules: u32,
    /// Launches that were caught up.
    launches: u64,
    /// From the start of the host to the last recorded end.
    seconds: f64,
    launches_per_s: f64,
    /// The schedules beside them, their launches for slots since the start of the host, and how late these started.
    on_time_schedules: u32,
    on_time_launches: usize,
    on_time_lag_ms: Lag,
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
        self.add_missed(&db, down).await?;
        self.add_on_time(&db, down).await?;

        let launches = u64::from(self.schedules) * u64::from(self.slots);
        let _step = Line::step(format_args!("catching up {launches} launches"));
        let (begun, begun_at) = (Instant::now(), scratch.engine.clock().now());
        let host = BenchHost::serve(scratch, Mode::Off).await?;
        let mut waits = Vec::new();
        let caught_up = tokio::select! {
            caught_up = host.until_idle() => caught_up,
            error = write_again_and_again(&db, &mut waits) => error,
        };
        let (seconds, ended_at) = (begun.elapsed().as_secs_f64(), host.engine.clock().now());
        let missed = host.launches(down, begun_at).await;
        let on_time = host.launches_of(ON_TIME, begun_at, ended_at).await;
        host.stop().await?;

        caught_up?;
        let (missed, on_time) = (missed?, on_time?);
        let missed = missed.iter().filter(has_succeeded).count();
        if missed as u64 != launches {
            return Err(failed!(
                "{missed} of {launches} missed slots have a launch that succeeded"
            ));
        }
        Ok(OutageReport {
            backend: config.files.database.backend(),
            schedules: self.schedules,
            launches,
            seconds,
            launches_per_s: launches as f64 / seconds,
            on_time_schedules: self.on_time,
            on_time_launches: on_time.len(),
            on_time_lag_ms: lag(&on_time),
            write_wait_ms: Lag::of_times(waits),
        })
    }

    /// Adds schedules with slots missed in the hour since `down`.
    async fn add_missed(&self, db: &Db, down: Timestamp) -> Result {
        let half = HOUR / 2;
        let (missed, ended) = match self.slots {
            1 => (every("8760h", down.plus(half)), None),
            // All in the first half hour.
            slots => {
                let period = half.as_secs() as u32 / slots;
                let last = down.plus(Duration::from_secs((period * slots).into()));
                (every(&format!("{period}s"), down), Some(last))
            }
        };
        let policies = Policies {
            end_at: ended,
            ..beside_each_other()
        };
        add_many_schedules(db, 0..self.schedules, &missed, &policies, down).await
    }

    /// Adds schedules dropping whatever they missed since `down`, then running on time.
    async fn add_on_time(&self, db: &Db, down: Timestamp) -> Result {
        for number in 0..self.on_time {
            let period = match number % TEN_SECONDS_EVERY {
                0 => "10s",
                _ => "1s",
            };
            let policies = Policies {
                catchup: Some(Catchup::None),
                misfire_grace: Some(Duration::from_secs(10)),
                ..beside_each_other()
            };
            let named = (ON_TIME, number..number + 1);
            add_schedules_with(db, named, &every(period, down), &policies, down).await?;
        }
        Ok(())
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
