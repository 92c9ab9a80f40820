//! `campanile stats` and `campanile health`.

use campanile_control::approval::unsealed_approvals;
use campanile_control::{health, statistics};
use std::time::Duration;

use clap::Args;

use super::serve;
use crate::client::{self, Client};
use crate::output::{self, ErrorCode, Failure, Record, Result, refused};
use crate::times::moment;
use crate::{Common, approval_key};
use campanile_control::health::Health;
use campanile_control::schedule_admin;
use campanile_control::statistics::{Rates, ScheduleStatistics, Statistics};
use campanile_control::use_statistics::{
    DayStatistics, PackageStatistics, day_statistics, package_statistics,
};
use campanile_engine::tell::metrics::RecordMetrics;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text;
use campanile_model::time_text::Moment;
use campanile_store::stats::HealthSigns;
use campanile_store::task_use::UseSums;
use campanile_store::{package_versions, schedules};

#[derive(Args)]
pub(crate) struct Stats {
    /// How far to look back: a span such as 30m or 7days, or a time such as yesterday
    #[arg(long, default_value = "24h", value_name = "TIME|SPAN", value_parser = moment)]
    since: Moment,
    /// Show each schedule, package, or day and package by itself
    #[arg(long, value_enum)]
    by: Option<Grouping>,
    /// Show only this schedule: its launches with a slot in the span
    #[arg(long, value_name = "NAME", conflicts_with = "by")]
    schedule: Option<String>,
    /// With `--by`: list those after this name, or with `--by day` after DAY/PACKAGE
    #[arg(long, value_name = "NAME", requires = "by")]
    after: Option<String>,
    /// With `--by`: the most entries to list
    #[arg(long, default_value_t = 50, requires = "by", value_parser = clap::value_parser!(i64).range(1..=10_000))]
    limit: i64,
    /// Print metrics of the record in Prometheus' text format, for node_exporter's textfile collector; `/metrics` of a host has more
    #[arg(long, conflicts_with_all = ["by", "schedule", "since", "json"])]
    prometheus: bool,
    /// With `--prometheus`: how many schedules get their own metrics, the first ones by name
    #[arg(long, value_name = "COUNT", default_value_t = 0, requires = "prometheus", value_parser = clap::value_parser!(u32).range(0..=10_000))]
    schedules: u32,
}

/// What statistics are shown of, each by itself.
#[derive(Clone, Copy, clap::ValueEnum)]
enum Grouping {
    /// The launches of each schedule with a slot in the span, and what their tasks used
    Schedule,
    /// What the tasks of each package used in launches that were decided in the span
    Package,
    /// The same for each day (UTC)
    Day,
}

impl Record for Statistics {
    fn text(&self, key: &str) -> Option<String> {
        rate_text(&self.rates, key)
    }
}

impl Record for ScheduleStatistics {
    const LIST: &'static str = "schedule launches failed skipped lost failed_rate executions_per_minute \
        average_time_ms recovery_success_rate calls cpu_ms memory_peak_bytes";

    fn text(&self, key: &str) -> Option<String> {
        rate_text(&self.rates, key).or_else(|| size_of_use(&self.used, key))
    }
}

impl Record for PackageStatistics {
    const LIST: &'static str = "package calls cpu_ms memory_peak_bytes record_bytes http_requests";

    fn text(&self, key: &str) -> Option<String> {
        size_of_use(&self.used, key)
    }
}

impl Record for DayStatistics {
    const LIST: &'static str =
        "day package calls cpu_ms memory_peak_bytes record_bytes http_requests";

    fn text(&self, key: &str) -> Option<String> {
        size_of_use(&self.used, key)
    }
}

/// Return a number of bytes as people read it.
fn size_of_use(used: &UseSums, key: &str) -> Option<String> {
    let bytes = match key {
        "memory_peak_bytes" => used.memory_peak_bytes,
        "record_bytes" => used.record_bytes,
        _ => return None,
    };
    Some(text::size_rounded(bytes.unsigned_abs()))
}

/// Return a share as people read it.
fn rate_text(rates: &Rates, key: &str) -> Option<String> {
    let rate = match key {
        "success_rate" => rates.success_rate,
        "failed_rate" => rates.failed_rate,
        "recovery_success_rate" => rates.recovery_success_rate,
        _ => None,
    };
    rate.map(|rate| format!("{:.2} %", rate * 100.0))
}

impl Stats {
    pub async fn run(self, common: &Common) -> Result {
        match common.client()? {
            Some(_) if self.prometheus => {
                let instead = "read `/metrics` of the host: it has these metrics, and those of the host itself";
                let command = "`campanile stats --prometheus`";
                return Err(client::needs_database(command, instead));
            }
            Some(client) => return self.run_by_api(common, client).await,
            None => {}
        }
        let (mut tx, now) = common.read_with_time().await?;
        if self.prometheus {
            let metrics = RecordMetrics::read(&mut tx, now, self.schedules).await?;
            return output::print_line(metrics.text().trim_end());
        }
        let span = self.span(now)?;
        if let Some(name) = &self.schedule {
            let schedule = schedule_admin::find(&mut tx, name).await?;
            let rows = statistics::of_schedules(&mut tx, &[schedule], now, span).await?;
            return rows.iter().try_for_each(|row| common.print(row));
        }
        match self.by {
            None => common.print(&statistics::read(&mut tx, now, span).await?),
            Some(Grouping::Schedule) => {
                let page = schedules::list(&mut tx, self.after.as_deref(), self.limit).await?;
                let rows = statistics::of_schedules(&mut tx, &page, now, span).await?;
                common.print_page(&rows, self.limit, |row| row.schedule.clone())
            }
            Some(Grouping::Package) => {
                let after = self.after.as_deref();
                let rows = package_statistics(&mut tx, now, span, None, after, self.limit).await?;
                common.print_page(&rows, self.limit, |row| row.package.clone())
            }
            Some(Grouping::Day) => {
                let after = self.after.as_deref();
                let rows = day_statistics(&mut tx, now, span, None, after, self.limit).await?;
                common.print_page(&rows, self.limit, DayStatistics::key)
            }
        }
    }
}

impl Stats {
    /// Return how far to look back from `now`.
    fn span(&self, now: Timestamp) -> Result<Duration> {
        let since = self.since.at(now);
        match since > now {
            true => Err(refused!("--since {since} is in the future").hint("give an earlier time")),
            false => Ok(now.since(since)),
        }
    }

    async fn run_by_api(&self, common: &Common, client: &Client) -> Result {
        let since = self.span(Clock::system().now())?;
        let since = Some(text::duration_text(since));
        if let Some(name) = &self.schedule {
            let call = client
                .get(&["schedules", name, "stats"])
                .query("since", since);
            return common.print(&call.send::<ScheduleStatistics>().await?);
        }
        let statistics = |path: &[&str]| {
            let call = client.get(path).query("since", since);
            call.query("after", self.after.as_ref())
        };
        let limit = self.limit;
        match self.by {
            None => common.print(&statistics(&["stats"]).send::<Statistics>().await?),
            Some(Grouping::Schedule) => {
                let rows = statistics(&["stats", "schedules"]).list(limit).await?;
                common.print_page(&rows, limit, |row: &ScheduleStatistics| {
                    row.schedule.clone()
                })
            }
            Some(Grouping::Package) => {
                let (rows, _) = statistics(&["stats", "packages"]).page(limit).await?;
                common.print_page(&rows, limit, |row: &PackageStatistics| row.package.clone())
            }
            Some(Grouping::Day) => {
                let (rows, _) = statistics(&["stats", "days"]).page(limit).await?;
                common.print_page(&rows, limit, DayStatistics::key)
            }
        }
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
    let health = read_health(common).await?;
    common.print(&health)?;
    output::check(health.healthy)
}

/// Returns the health of an installation already migrated by a newer version. Hosts of this version keep serving until they're replaced,
/// and mustn't be ended by a failing probe.
fn unknown_health(newer: &Failure) -> Health {
    let mut health = health::judge(HealthSigns::default(), 0);
    health
        .notes
        .push(format!("nothing was checked: {}", newer.message));
    health
}

/// Return the health of the installation.
pub(crate) async fn read_health(common: &Common) -> Result<Health> {
    if let Some(client) = common.client()? {
        return client.get(&["health"]).send().await;
    }
    let (db, clock) = match common.open_with_clock().await {
        Err(newer) if newer.code == ErrorCode::NewerSchema => return Ok(unknown_health(&newer)),
        opened => opened?,
    };
    let mut tx = db.read_long().await?;
    let config = common.config()?;
    let settings = serve::settings(&config);
    let (now, skew_us) = (clock.now(), clock.skew_us());
    let disk = db.disk_signs().await;
    let mut health = health::read(&mut tx, now, &settings, skew_us, disk).await?;
    match approval_key::current(&config) {
        Ok(Some(key)) => {
            let followed = package_versions::followed(&mut tx).await?;
            let notes = unsealed_approvals(&followed, &key, now);
            health.notes.extend(notes);
        }
        // Nothing has been sealed here yet.
        Ok(None) => {}
        Err(failure) => {
            let note = format!("approvals weren't checked: {}", failure.message);
            health.notes.push(note);
        }
    }
    health.notes.extend(serve::machine_notes(&config));
    Ok(health)
}
