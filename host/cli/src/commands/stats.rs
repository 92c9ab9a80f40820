//! `campanile stats` and `campanile health`.

use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use crate::Common;
use crate::output::{self, Failure, Record};
use campanile_engine::audit::{self, Health, Lag, Statistics};
use campanile_model::text;

#[derive(Args)]
pub(crate) struct Stats {
    /// How far to look back, such as 30m or 7days
    #[arg(long, default_value = "24h", value_parser = text::duration, value_name = "SPAN")]
    since: Duration,
}

impl Record for Statistics {
    const DETAIL: &'static str = "since launches succeeded failed cancelled unknown abandoned unfinished skipped \
        recovered recovery_attempts recovery_successes recovery_failures success_rate lag_ms";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "success_rate" => Some(match self.success_rate {
                Some(rate) => format!("{:.2} %", rate * 100.0),
                None => String::new(),
            }),
            "lag_ms" => Some(lag_text(&self.lag_ms)),
            _ => None,
        }
    }
}

/// Return the percentiles of a lag in milliseconds.
pub(crate) fn lag_text(lag: &Lag) -> String {
    format!("p50 {:.1}, p99 {:.1}, max {:.1}", lag.p50, lag.p99, lag.max)
}

impl Stats {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let (db, clock) = common.open_with_clock().await?;
        let mut tx = db.read().await?;
        let statistics = audit::statistics(&mut tx, clock.now().minus(self.since)).await?;
        output::print_record(&statistics, common.json)?;
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
        output::print_report(&health, &text(&health), common.json)?;
        Ok(output::exit_code(health.healthy))
    }
}

fn text(health: &Health) -> String {
    let verdict = health.healthy.then(|| "healthy".to_owned());
    let notes = health.notes.iter().map(|note| format!("note: {note}"));
    let lines = verdict
        .into_iter()
        .chain(health.issues.clone())
        .chain(notes);
    lines.collect::<Vec<_>>().join("\n")
}
