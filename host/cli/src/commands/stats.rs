//! `campanile stats` and `campanile health`.

use std::time::Duration;

use clap::Args;

use super::serve;
use crate::Common;
use crate::output::{self, Record, Result};
use campanile_engine::audit::{self, Health, Statistics};
use campanile_model::text;
use campanile_package::foreign_files;

#[derive(Args)]
pub(crate) struct Stats {
    /// How far to look back, such as 30m or 7days
    #[arg(long, default_value = "24h", value_parser = text::duration, value_name = "SPAN")]
    since: Duration,
}

impl Record for Statistics {
    fn text(&self, key: &str) -> Option<String> {
        let rate = self.success_rate.filter(|_| key == "success_rate")?;
        Some(format!("{:.2} %", rate * 100.0))
    }
}

impl Stats {
    pub async fn run(self, common: &Common) -> Result {
        let (mut tx, now) = common.read_with_time().await?;
        common.print(&audit::statistics(&mut tx, now.minus(self.since)).await?)
    }
}

impl Record for Health {
    fn print(&self) -> Result {
        if self.healthy {
            output::print_line("healthy")?;
        }
        for issue in &self.issues {
            output::print_line(issue)?;
        }
        for note in &self.notes {
            output::print_line!("note: {note}")?;
        }
        Ok(())
    }
}

/// Print the health of the installation; fail when it is not healthy.
pub(crate) async fn health(common: &Common) -> Result {
    let (db, clock) = common.open_with_clock().await?;
    let mut tx = db.read().await?;
    let config = common.config()?;
    let settings = serve::settings(&config);
    let (now, offset_us) = (clock.now(), clock.offset_us());
    let free_bytes = db.free_bytes().await;
    let mut health = audit::health(&mut tx, now, &settings, offset_us, free_bytes).await?;
    // The host may belong to another user than this command, so these are no issues.
    health.notes.extend(config.foreign_writers());
    health.notes.extend(foreign_files(&config.files.plugins));
    common.print(&health)?;
    output::check(health.healthy)
}
