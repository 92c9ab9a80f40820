//! `campanile bench seals`: what sealing the record costs launches.
//!
//! ```text
//! round:   launches, nothing to seal ─▶ a minute ─▶ launches, the first ones are sealed beside them ─▶ until all are sealed
//! ```

use std::time::Duration;

use clap::Args;
use serde::Serialize;

use super::growth::remove_backlog;
use super::{BenchHost, add_backlog, first_decision, has_succeeded, launches_per_s, scratch_db};
use crate::config::Config;
use crate::output::{Record, Result, failed};
use crate::progress::Line;
use campanile_engine::packages::watch::Mode;
use campanile_model::clock::Timestamp;
use campanile_store::seals;

/// How often the newest seal is read.
const PAUSE: Duration = Duration::from_millis(100);

#[derive(Args)]
pub(crate) struct Seals {
    /// The number of launches of each half of a round
    #[arg(short, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1_000..=200_000))]
    n: u32,
    /// The number of rounds, of two minutes or more each
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=20))]
    rounds: u32,
}

/// The result of `bench seals`.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct SealsReport {
    backend: &'static str,
    rounds: Vec<Round>,
    /// The median of the ratios of the rounds.
    ratio: f64,
}

/// The launches of one round.
#[derive(Serialize, schemars::JsonSchema)]
struct Round {
    /// While nothing was sealed.
    launches_per_s_alone: f64,
    /// While launches of the first half were sealed.
    launches_per_s_sealing: f64,
    /// How many launches were sealed while the second half was executed.
    sealed: i64,
    /// The second speed divided by the first.
    ratio: f64,
}

impl Record for SealsReport {}

/// The launches of half a round.
struct Half {
    launches_per_s: f64,
    first_decided_at: Timestamp,
    last_decided_at: Timestamp,
}

impl Seals {
    pub(super) async fn measure(&self, config: &Config) -> Result<SealsReport> {
        let step = Line::step("starting a host");
        let host = BenchHost::start(config, scratch_db(config).await?, Mode::Off).await?;
        let mut rounds = Vec::new();
        for number in 1..=self.rounds {
            step.say(format_args!("round {number} of {}", self.rounds));
            let (round, last_decided_at) = self.round(&host).await?;
            rounds.push(round);
            if number < self.rounds {
                until_sealed(&host, last_decided_at).await?;
            }
        }
        host.stop().await?;
        let mut ratios: Vec<f64> = rounds.iter().map(|round| round.ratio).collect();
        ratios.sort_by(f64::total_cmp);
        Ok(SealsReport {
            backend: config.files.database.backend(),
            ratio: ratios[ratios.len() / 2],
            rounds,
        })
    }

    /// Execute both halves, and return when the last launch was decided.
    async fn round(&self, host: &BenchHost) -> Result<(Round, Timestamp)> {
        let alone = self.half(host).await?;
        until_sealed(host, alone.first_decided_at).await?;
        let before = sealed(host).await?;
        let sealing = self.half(host).await?;
        let sealed = sealed(host).await? - before;
        let round = Round {
            launches_per_s_alone: alone.launches_per_s,
            launches_per_s_sealing: sealing.launches_per_s,
            sealed,
            ratio: sealing.launches_per_s / alone.launches_per_s,
        };
        Ok((round, sealing.last_decided_at))
    }

    /// Execute a backlog, and remove its schedules.
    async fn half(&self, host: &BenchHost) -> Result<Half> {
        let db = host.engine.db();
        let now = host.engine.clock().now();
        add_backlog(db, self.n, now).await?;
        host.until_idle().await?;
        let rows = host.backlog(self.n, now).await?;
        remove_backlog(db).await?;
        let succeeded = rows.iter().filter(has_succeeded).count();
        if succeeded != self.n as usize {
            return Err(failed!("{succeeded} of {} launches succeeded", self.n));
        }
        let last = rows.iter().map(|row| row.decided_at).max();
        Ok(Half {
            launches_per_s: launches_per_s(&rows),
            first_decided_at: first_decision(&rows),
            last_decided_at: last.unwrap_or(now),
        })
    }
}

/// Wait until all launches that were decided up to `decided_at` are sealed. Launches are sealed a minute after their decision.
async fn until_sealed(host: &BenchHost, decided_at: Timestamp) -> Result {
    let is_sealed = async || {
        let newest = seals::newest(&mut host.engine.db().read().await?).await?;
        Ok(newest.is_some_and(|seal| seal.until_at > decided_at))
    };
    host.until(PAUSE, "the launches were not sealed in time", is_sealed)
        .await
}

/// Returns how many launches are sealed.
async fn sealed(host: &BenchHost) -> Result<i64> {
    let mut tx = host.engine.db().read().await?;
    let seals = seals::page(&mut tx, 0, i64::MAX).await?;
    Ok(seals.iter().map(|seal| seal.launches).sum())
}
