//! `campanile stats` and `campanile health`.

use campanile_control::admin::approval::unsealed_approvals;
use campanile_control::reports::health;
use clap::Args;

use super::serve;
use crate::config::Config;
use crate::output::{self, ErrorCode, Failure, Record, Result, refused};

use crate::{Common, approval_key};
use campanile_control::problem::Problem;
use campanile_control::questions::record::{
    GetStats, ListDayStats, ListPackageStats, ListScheduleStats,
};
use campanile_control::questions::schedules::{GetScheduleStats, Since};
use campanile_control::reports::health::{Health, Symptoms};
use campanile_control::reports::statistics::{Rates, ScheduleStatistics, Statistics};
use campanile_control::reports::symptom::Symptom;
use campanile_control::reports::use_statistics::{DayStatistics, PackageStatistics};
use campanile_engine::tell::metrics::RecordMetrics;
use campanile_model::clock::{Clock, Timestamp};
use campanile_model::text;
use campanile_model::time_text::Moment;
use campanile_store::task_use::UseSums;
use campanile_store::{Db, package_versions};

#[derive(Args)]
pub(crate) struct Stats {
    /// How far to look back: a span such as 30m or 7days, or a time such as yesterday
    #[arg(long, default_value = "24h", value_name = "TIME|SPAN")]
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
    pub(crate) prometheus: bool,
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
        p50_time_ms p95_time_ms recovery_success_rate calls cpu_ms memory_peak_bytes";
    const DECIDING: &'static str = "launches failed failed_rate p95_time_ms";

    fn text(&self, key: &str) -> Option<String> {
        rate_text(&self.rates, key).or_else(|| size_of_use(&self.used, key))
    }
}

impl Record for PackageStatistics {
    const LIST: &'static str = "package calls cpu_ms memory_peak_bytes record_bytes http_requests";
    const DECIDING: &'static str = "calls cpu_ms";

    fn text(&self, key: &str) -> Option<String> {
        size_of_use(&self.used, key)
    }
}

impl Record for DayStatistics {
    const LIST: &'static str =
        "day package calls cpu_ms memory_peak_bytes record_bytes http_requests";
    const DECIDING: &'static str = "package calls cpu_ms";

    fn text(&self, key: &str) -> Option<String> {
        size_of_use(&self.used, key)
    }
}

/// Returns a number of bytes as people read it.
fn size_of_use(used: &UseSums, key: &str) -> Option<String> {
    let bytes = match key {
        "memory_peak_bytes" => used.memory_peak_bytes,
        "record_bytes" => used.record_bytes,
        _ => return None,
    };
    Some(text::size_rounded(bytes.unsigned_abs()))
}

/// Returns a share as people read it.
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
        if self.prometheus {
            return self.print_metrics(common).await;
        }
        let source = common.source().await?;
        let since = self.span(source.now)?;
        if let Some(name) = &self.schedule {
            let page = source.page(name, &GetScheduleStats { since }).await?;
            return common.print(&page.answer);
        }
        let (after, limit, size) = (self.after.clone(), None, self.limit);
        match self.by {
            None => common.print(&source.page("", &GetStats { since }).await?.answer),
            Some(Grouping::Schedule) => {
                let question = ListScheduleStats {
                    since,
                    after,
                    limit,
                };
                common.print_listed(&source.list(question, size).await?)
            }
            Some(Grouping::Package) => {
                let question = ListPackageStats {
                    since,
                    after,
                    limit,
                };
                common.print_listed(&source.list(question, size).await?)
            }
            Some(Grouping::Day) => {
                let question = ListDayStats {
                    since,
                    after,
                    limit,
                };
                common.print_listed(&source.list(question, size).await?)
            }
        }
    }

    async fn print_metrics(&self, common: &Common) -> Result {
        let (mut tx, now) = common.read_with_time().await?;
        let metrics = RecordMetrics::read(&mut tx, now, self.schedules).await?;
        output::print_line(metrics.text().trim_end())
    }

    /// Returns how far to look back from `now`.
    fn span(&self, now: Timestamp) -> Result<Option<Since>> {
        let since = self.since.at(now);
        if since > now {
            return Err(refused!("--since {since} is in the future").hint("give an earlier time"));
        }
        let span = text::duration_text(now.since(since)).parse();
        span.map(Some)
            .map_err(|why: String| refused!("--since: {why}"))
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
    let health = ask_health(common).await?;
    common.print(&health)?;
    output::check(health.healthy)
}

/// Returns the health of an installation already migrated by a newer version. Hosts of this version keep serving until they're replaced,
/// and mustn't be ended by a failing probe.
fn unknown_health(newer: &Failure) -> Health {
    let note = Symptom::Other(format!("nothing was checked: {}", newer.message));
    let unknown = Symptoms {
        notes: vec![note],
        ..Symptoms::default()
    };
    unknown.into()
}

async fn ask_health(common: &Common) -> Result<Health> {
    if let Some(client) = common.client()? {
        return client.get(&["health"]).send().await;
    }
    match common.open_with_clock().await {
        Err(newer) if newer.code == ErrorCode::NewerSchema => Ok(unknown_health(&newer)),
        opened => {
            let (db, clock) = opened?;
            Ok(read_health(&db, &clock, &common.config()?).await?)
        }
    }
}

/// Reads the health of the installation, along with notes about this machine.
pub(crate) async fn read_health(
    db: &Db,
    clock: &Clock,
    config: &Config,
) -> Result<Health, Problem> {
    let mut tx = db.read_long().await?;
    let settings = serve::settings(config);
    let (now, skew_us) = (clock.now(), clock.skew_us());
    let disk = db.disk_signs().await;
    let mut symptoms = health::find(&mut tx, now, &settings, skew_us, disk).await?;
    match approval_key::current(config) {
        Ok(Some(key)) => {
            let followed = package_versions::followed(&mut tx).await?;
            let notes = unsealed_approvals(&followed, &key, now);
            (symptoms.notes).extend(notes.into_iter().map(Symptom::Other));
        }
        // Nothing has been sealed here yet.
        Ok(None) => {}
        Err(failure) => {
            let note = format!("approvals weren't checked: {}", failure.message);
            symptoms.notes.push(Symptom::Other(note));
        }
    }
    let notes = serve::machine_notes(config).into_iter();
    symptoms.notes.extend(notes.map(Symptom::Other));
    Ok(symptoms.into())
}
