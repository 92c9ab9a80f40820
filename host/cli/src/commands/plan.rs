//! `campanile plan`: what will run.

mod chart;
mod shown;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::schedule::check;
use super::serve;
use crate::Common;
use crate::output::{self, Failure};
use campanile_engine::forecast::snapshot::{self, OmittedSchedule};
use campanile_engine::forecast::{Forecast, ForecastRequest, Outage, SystemSnapshot};
use campanile_engine::schedule_admin;
use campanile_engine::schedules_file::{Refusal, rehearse};
use campanile_model::clock::Timestamp;
use campanile_store::schedules::{self, Schedule};

const DAY: Duration = Duration::from_secs(24 * 3_600);
/// How far ahead a forecast may go.
const AHEAD_MAX: Duration = Duration::from_secs(366 * 24 * 3_600);
/// Decisions after which a forecast breaks off.
const ROWS_MAX: usize = 1_000_000;

#[derive(Args)]
pub(crate) struct Plan {
    /// From when on [default: now]
    #[arg(long, value_name = "TIME")]
    from: Option<Timestamp>,
    /// Until when [default: a day later, or a day after the last outage]
    #[arg(long, value_name = "TIME")]
    to: Option<Timestamp>,
    /// Only this schedule; the others take their places all the same
    #[arg(long, value_name = "NAME")]
    schedule: Option<String>,
    /// What if no host lived from the first time to the second? May be given several times
    #[arg(long, value_name = "FROM..TO", value_parser = outage)]
    outage: Vec<Outage>,
    /// What if these were the schedules of the schedules file? Says what would be different, too
    #[arg(long, value_name = "FILE")]
    diff: Option<PathBuf>,
    /// Print every decision
    #[arg(long)]
    rows: bool,
}

/// What is asked, and what the answer is.
struct Answer {
    tower: SystemSnapshot,
    left_out: Vec<OmittedSchedule>,
    question: ForecastRequest,
    forecast: Forecast,
    /// The schedule that is asked for, if one is.
    name: Option<String>,
    before: Option<Before>,
}

/// What another file of schedules is held against.
struct Before {
    tower: SystemSnapshot,
    forecast: Forecast,
    /// Schedules of the file that would not be taken.
    refusals: Vec<Refusal>,
}

/// Read `2026-11-22T02:00:00Z..2026-11-22T05:00:00Z`.
fn outage(text: &str) -> Result<Outage, String> {
    let fix = "write two times with `..` between them, such as 2026-11-22T02:00:00Z..2026-11-22T05:00:00Z";
    let (from, to) = text.split_once("..").ok_or(fix)?;
    let read = |text: &str| {
        let time = text.trim().parse::<Timestamp>();
        time.map_err(|error| format!("{error}; {fix}"))
    };
    let outage = Outage {
        from: read(from)?,
        to: read(to)?,
    };
    if outage.to <= outage.from {
        return Err("it ends before it begins; write the earlier time first".to_owned());
    }
    Ok(outage)
}

/// A schedule that the file does not have any more.
fn removed(schedule: Schedule) -> OmittedSchedule {
    OmittedSchedule {
        name: schedule.definition.name,
        why: "the file removes it".to_owned(),
    }
}

impl Plan {
    pub async fn run(self, common: &Common) -> Result<ExitCode, Failure> {
        let settings = serve::settings(&common.config()?);
        let (db, clock) = common.open_with_clock().await?;
        let now = clock.now();
        let question = self.question(now)?;
        let wanted = self.diff.as_deref().map(check::read).transpose()?;
        let mut tx = db.read().await?;
        let learned = snapshot::learn(&mut tx).await?;
        if wanted.is_some() {
            // What a file would change is tried, and not committed. Nobody decides anything between the two readings.
            drop(tx);
            tx = db.write().await?;
            schedules::lock(&mut tx, None, None).await?;
        }
        let (mut tower, mut left_out) = snapshot::read(&mut tx, &settings, &learned, now).await?;
        let mut before = None;
        if let Some(wanted) = &wanted {
            let (diff, refusals) = rehearse(&mut tx, wanted, now).await?;
            let changed = snapshot::read(&mut tx, &settings, &learned, now).await?;
            let tower = std::mem::replace(&mut tower, changed.0);
            left_out = changed.1;
            left_out.extend(diff.removed.into_iter().map(removed));
            before = Some((tower, refusals));
        }
        if let Some(name) = &self.schedule
            && left_out.iter().all(|left_out| left_out.name != *name)
        {
            schedule_admin::find(&mut tx, name).await?;
        }
        drop(tx);
        let before = before.map(|(tower, refusals)| Before {
            forecast: tower.forecast(&question),
            tower,
            refusals,
        });
        let answer = Answer {
            forecast: tower.forecast(&question),
            tower,
            left_out,
            question,
            name: self.schedule,
            before,
        };
        answer.print(self.rows, common.json)?;
        let refused = answer
            .before
            .is_some_and(|before| !before.refusals.is_empty());
        Ok(ExitCode::from(u8::from(refused)))
    }

    fn question(&self, now: Timestamp) -> Result<ForecastRequest, Failure> {
        let from = self.from.unwrap_or(now);
        if from < now {
            return Err(Failure::refused(format!("{from} is in the past"))
                .hint("leave --from out to begin now; what was decided before is in `campanile launch list`"));
        }
        let back_at = self.outage.iter().map(|outage| outage.to).max();
        let to = self
            .to
            .unwrap_or_else(|| from.max(back_at.unwrap_or(from)).plus(DAY));
        if to <= from {
            return Err(
                Failure::refused(format!("--to {to} is not after --from {from}"))
                    .hint("give a later --to, or leave it out for a day"),
            );
        }
        if to > now.plus(AHEAD_MAX) {
            return Err(Failure::refused(format!("{to} is more than a year ahead"))
                .hint(format!("give a --to before {}", now.plus(AHEAD_MAX))));
        }
        for outage in &self.outage {
            if outage.to <= now {
                return Err(Failure::refused(format!(
                    "the outage that ends at {} is over already",
                    outage.to
                ))
                .hint(
                    "what became of it is in `campanile launch list`; give one that ends later",
                ));
            }
            if outage.to < from || outage.to >= to {
                return Err(Failure::refused(format!(
                    "the outage ends at {}, and the plan is from {from} to {to}",
                    outage.to
                ))
                .hint("give a --from before its end and a --to after it, or leave both out"));
            }
        }
        Ok(ForecastRequest {
            from,
            to,
            outages: self.outage.clone(),
            rows_max: ROWS_MAX,
        })
    }
}

impl Answer {
    fn print(&self, rows: bool, as_json: bool) -> Result<(), Failure> {
        if as_json {
            return output::json_out(&self.shown());
        }
        let is_plain = self.question.outages.is_empty() && self.before.is_none();
        if let Some(before) = &self.before {
            self.print_changes(before, rows)?;
        }
        for back_at in self.question.outages.iter().map(|outage| outage.to) {
            output::line(&format!("on the record when a host is back at {back_at}:"))?;
            self.print_rows(|row| row.decided_at == back_at)?;
            output::line("")?;
        }
        if rows && is_plain {
            self.print_rows(|_| true)?;
            output::line("")?;
        }
        self.print_schedules()?;
        self.print_skips()?;
        self.print_starts()?;
        self.talk();
        Ok(())
    }
}
