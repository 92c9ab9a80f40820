//! `campanile stats` and `campanile health`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::audit;
use campanile_model::text;

#[derive(Args)]
pub(crate) struct Stats {
    /// How far to look back, such as 30m or 7days
    #[arg(long, default_value = "24h", value_parser = text::duration, value_name = "SPAN")]
    since: Duration,
}

impl Stats {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let (db, clock) = common.open_with_clock().await?;
        let mut tx = db.read().await?;
        let statistics = audit::statistics(&mut tx, clock.now().minus(self.since)).await?;
        if common.json {
            output::json_out(&statistics)?;
            return Ok(ExitCode::SUCCESS);
        }
        let counts = statistics.counts;
        let lag = statistics.lag_ms;
        for (key, value) in [
            ("since", statistics.since.to_string()),
            ("launches", counts.launches.to_string()),
            ("succeeded", counts.succeeded.to_string()),
            ("failed", counts.failed.to_string()),
            ("abandoned", counts.abandoned.to_string()),
            ("unfinished", counts.unfinished.to_string()),
            ("skipped slots", counts.skipped.to_string()),
            (
                "success rate",
                statistics
                    .success_rate
                    .map_or("-".to_owned(), |rate| format!("{:.2} %", rate * 100.0)),
            ),
            (
                "recovered",
                format!(
                    "{} ({} attempts, {} succeeded, {} failed)",
                    counts.recovered,
                    counts.recovery_attempts,
                    counts.recovery_successes,
                    counts.recovery_failures
                ),
            ),
            (
                "lag",
                format!(
                    "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms",
                    lag.p50, lag.p99, lag.max
                ),
            ),
        ] {
            output::line(&format!("{key:13} {value}"))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}

#[derive(Args)]
pub(crate) struct HealthCommand {}

impl HealthCommand {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let (db, clock) = common.open_with_clock().await?;
        let mut tx = db.read().await?;
        let health = audit::health(&mut tx, clock.now(), clock.offset_us()).await?;
        if common.json {
            output::json_out(&health)?;
        } else {
            if health.healthy {
                output::line("healthy")?;
            }
            for issue in &health.issues {
                output::line(issue)?;
            }
            for note in &health.notes {
                output::line(&format!("note: {note}"))?;
            }
        }
        Ok(if health.healthy {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        })
    }
}
