//! `campanile plan`: a forecast of launches.

mod chart;
pub(crate) mod report;

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use super::schedule::check;
use super::serve;
use crate::Common;
use crate::output::{self, Result, refused};
use crate::times::time;
use campanile_engine::forecast::report::PlanReport;
use campanile_engine::forecast::snapshot::{self, OmittedSchedule};
use campanile_engine::forecast::{ForecastRequest, Outage};
use campanile_engine::schedule_admin;
use campanile_engine::schedules_file::rehearse;
use campanile_model::clock::Timestamp;
use campanile_package::ScheduleDefinition;
use campanile_store::{DbError, Tx, schedules};
use report::PrintedPlan;

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// The longest forecast.
const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// The most decisions of a forecast that is printed.
const ROWS_MAX: usize = 1_000_000;

#[derive(Args)]
pub(crate) struct Plan {
    /// The start of the forecast [default: now]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub from: Option<Timestamp>,
    /// The end of the forecast [default: one day later, or one day after the last outage]
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub to: Option<Timestamp>,
    /// Show only this schedule; the others are simulated too
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// Simulate an outage of all hosts between two times; can be repeated
    #[arg(long, value_name = "FROM..TO", value_parser = outage)]
    pub outage: Vec<Outage>,
    /// Simulate with this schedules file, and show the differences
    #[arg(long, value_name = "FILE")]
    pub diff: Option<PathBuf>,
    /// Print every decision
    #[arg(long)]
    pub rows: bool,
}

/// Parse an outage such as `2026-11-22T02:00:00Z..2026-11-22T05:00:00Z`.
pub(crate) fn outage(text: &str) -> Result<Outage, String> {
    let fix = "write two times with `..` between them, such as 2026-11-22T02:00:00Z..2026-11-22T05:00:00Z";
    let (from, to) = text.split_once("..").ok_or(fix)?;
    let read = |text: &str| time(text).map_err(|error| format!("{error}; {fix}"));
    let outage = Outage {
        from: read(from)?,
        to: read(to)?,
    };
    if outage.to <= outage.from {
        return Err("the outage ends before it starts; write the earlier time first".to_owned());
    }
    Ok(outage)
}

impl Plan {
    pub async fn run(self, common: &Common) -> Result {
        let report = self.forecast(common, ROWS_MAX).await?;
        let with_rows = self.rows;
        let printed = PrintedPlan { report, with_rows };
        common.print(&printed)?;
        output::check(printed.report.refused.is_empty())
    }

    /// Return the forecast. It stops after `rows_max` decisions.
    pub(crate) async fn forecast(&self, common: &Common, rows_max: usize) -> Result<PlanReport> {
        let config = common.config()?;
        let settings = serve::settings(&config);
        let (db, clock) = common.open_with_clock().await?;
        let now = clock.now();
        let question = self.question(now, rows_max)?;
        let wanted = self.diff.as_deref();
        let wanted = wanted.map(|file| check::read(file, &config.groups));
        let wanted = wanted.transpose()?;
        let mut tx = db.read_long().await?;
        let names = self.names(&mut tx, wanted.as_deref()).await?;
        let names: Vec<&str> = names.iter().map(|name| &**name).collect();
        let mut needed = snapshot::needed(&mut tx, &question, &names).await?;
        let learned = snapshot::estimate_durations(&mut tx, &needed).await?;
        if wanted.is_some() {
            // The file is applied without a commit. The locks keep hosts from deciding between the two snapshots.
            drop(tx);
            tx = db.write_long().await?;
            let locked = needed.iter().map(|needed| &*needed.definition.name);
            schedules::lock_named(&mut tx, &locked.collect::<Vec<_>>()).await?;
            needed = snapshot::needed(&mut tx, &question, &names).await?;
        }
        let (mut snapshot, mut omitted) =
            snapshot::read(&mut tx, &settings, &learned, &needed, now).await?;
        let (mut present, mut refused) = (None, Vec::new());
        if let Some(wanted) = &wanted {
            let diff;
            (diff, refused) = rehearse(&mut tx, wanted, now).await?;
            present = Some(snapshot);
            needed = snapshot::needed(&mut tx, &question, &names).await?;
            (snapshot, omitted) =
                snapshot::read(&mut tx, &settings, &learned, &needed, now).await?;
            omitted.extend(diff.removed.into_iter().map(|removed| OmittedSchedule {
                name: removed.definition.name,
                why: "the file removes it".to_owned(),
            }));
        }
        if let Some(name) = &self.schedule
            && omitted.iter().all(|omitted| omitted.name != *name)
        {
            schedule_admin::find(&mut tx, name).await?;
        }
        drop(tx);
        let present = present.as_ref();
        let name = self.schedule.as_deref();
        Ok(PlanReport::new(
            name, question, &snapshot, present, omitted, refused,
        ))
    }

    /// Return the names of schedules that the forecast must contain: the requested one, and those that the definitions
    /// `wanted` of a schedules file may change.
    async fn names(
        &self,
        tx: &mut Tx,
        wanted: Option<&[ScheduleDefinition]>,
    ) -> Result<Vec<String>, DbError> {
        let mut names: Vec<String> = self.schedule.iter().cloned().collect();
        if let Some(wanted) = wanted {
            let of_file = schedules::defined_by_file(tx).await?.into_iter();
            names.extend(of_file.map(|schedule| schedule.definition.name));
            names.extend(wanted.iter().map(|wanted| wanted.name.clone()));
        }
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn question(&self, now: Timestamp, rows_max: usize) -> Result<ForecastRequest> {
        let from = self.from.unwrap_or(now);
        if from < now {
            return Err(refused!("{from} is in the past").hint(
                "leave --from out to start now; `campanile launch list` shows past decisions",
            ));
        }
        let back_at = self.outage.iter().map(|outage| outage.to).max();
        let to = self
            .to
            .unwrap_or_else(|| from.max(back_at.unwrap_or(from)).plus(DAY));
        if to <= from {
            return Err(refused!("--to {to} is not after --from {from}")
                .hint("give a later --to, or leave it out for a day"));
        }
        if to > now.plus(AHEAD_MAX) {
            return Err(refused!("{to} is more than a year ahead")
                .hint(format!("give a --to before {}", now.plus(AHEAD_MAX))));
        }
        for outage in &self.outage {
            if outage.to <= now {
                return Err(
                    refused!("the outage that ends at {} is in the past", outage.to).hint(
                        "give one that ends later; `campanile launch list` shows past decisions",
                    ),
                );
            }
            if outage.to < from || outage.to >= to {
                return Err(refused!(
                    "the outage ends at {}, but the forecast is from {from} to {to}",
                    outage.to
                )
                .hint("give a --from before its end and a --to after it, or leave both out"));
            }
        }
        Ok(ForecastRequest {
            from,
            to,
            outages: self.outage.clone(),
            rows_max,
        })
    }
}
