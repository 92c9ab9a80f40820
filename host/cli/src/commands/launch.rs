//! `campanile launch`: the decisions about slots.

use std::str::FromStr;
use std::time::Duration;

use clap::{Args, Subcommand};

use crate::output::{self, Record, Result, optional};
use crate::{Common, Limit, times, watch};
use campanile_engine::records::launch::{self, LaunchDetail, refuse_unknown_schedule};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, ShortId};
use campanile_model::text;
use campanile_store::launch_list::{Filter, LOOKED_AT_MAX, Page};
use campanile_store::launches::LaunchRow;
use campanile_store::{LaunchStatus, Tx, removed_launches};

#[derive(Subcommand)]
pub(crate) enum Launch {
    /// List the newest launches, newest first
    #[command(arg = watch::arg())]
    List(Box<LaunchListOptions>),
    /// Show one launch: its decision, the versions that made it, and all its runs
    #[command(arg = watch::arg())]
    Show {
        /// The launch's id, or that of one of its runs; the first digits are enough when no other id begins with them
        id: ShortId,
    },
}

/// The options of a list of launches or runs.
#[derive(Args)]
pub(crate) struct ListOptions {
    /// List only those of this schedule
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// List those after this one of another list
    #[arg(long, value_name = "ID")]
    pub after: Option<ShortId>,
    #[command(flatten)]
    pub limit: Limit,
}

#[derive(Args)]
pub(crate) struct LaunchListOptions {
    #[command(flatten)]
    list: ListOptions,
    /// List only those with one of these statuses, separated by commas
    #[arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = LaunchStatus::read)]
    status: Vec<LaunchStatus>,
    /// List only those of this kind
    #[arg(long, value_name = "KIND", value_parser = LaunchKind::read)]
    kind: Option<LaunchKind>,
    /// List only those with this reason, or with this kind of failure
    #[arg(long, value_name = "REASON")]
    reason: Option<String>,
    /// List only those of this package
    #[arg(long, value_name = "PACKAGE")]
    package: Option<String>,
    /// List only slots from this time on: a time, or a span before now such as 2h
    #[arg(long, value_name = "TIME|SPAN")]
    since: Option<Moment>,
    /// List only slots before this time: a time, or a span before now. Launches of a backfill, and
    /// retries, that were requested later are only in the list of their schedule
    #[arg(long, value_name = "TIME|SPAN")]
    until: Option<Moment>,
}

/// A time that an operator gives, as it is or as a span before now.
#[derive(Clone, Copy)]
pub(crate) enum Moment {
    At(Timestamp),
    Ago(Duration),
}

impl FromStr for Moment {
    type Err = String;

    fn from_str(text: &str) -> Result<Moment, String> {
        match (times::time(text), text::duration(text)) {
            (Ok(at), _) => Ok(Moment::At(at)),
            (_, Ok(span)) => Ok(Moment::Ago(span)),
            _ => Err(
                "is neither a time such as 2026-11-21T08:00:00Z or `yesterday 14:00` nor a span such as 2h"
                    .to_owned(),
            ),
        }
    }
}

impl Moment {
    /// Return the time that it means at `now`.
    pub(crate) fn at(self, now: Timestamp) -> Timestamp {
        match self {
            Moment::At(at) => at,
            Moment::Ago(span) => now.minus(span),
        }
    }
}

impl Record for LaunchRow {
    const LIST: &'static str = "id scheduled_time schedule status reason kind attempts message";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "id" => Some(self.id.short()),
            "scheduled_time" => Some(self.slots_text(&self.scheduled_time.to_string())),
            "reason" if self.reason.is_none() => Some(optional(&self.failure)),
            _ => None,
        }
    }
}

impl Record for LaunchDetail {
    const DETAIL: &'static str = "id scheduled_time scheduled_local schedule schedule_revision status reason kind \
        decision decided_by decided_at tzdata_version package digest overlaps retry_of args fire_time opened_at started_at \
        finished_at attempts recoveries run_id traceparent caller_traceparent message";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "id" => None,
            "schedule_revision" => {
                let (of_launch, newest) =
                    (self.decided.schedule_revision, self.decided.newest_revision);
                let is_edited = newest > of_launch;
                is_edited.then(|| {
                    format!("{of_launch}, and {newest} now: the schedule was edited since")
                })
            }
            _ => self.decided.launch.text(key),
        }
    }

    fn print(&self) -> Result {
        output::print_detail(self)?;
        for run in &self.runs {
            output::print_line("")?;
            output::print_detail(run)?;
        }
        Ok(())
    }
}

impl ListOptions {
    /// Print `rows`; refuse a schedule that never existed, because an empty list would hide the mistake. Say below a list
    /// that has fewer rows than its limit, at the end of the record (`is_end`), that retention has removed older launches.
    pub(crate) async fn print<R: Record>(
        &self,
        common: &Common,
        tx: &mut Tx,
        rows: &[R],
        is_end: bool,
        id: impl Fn(&R) -> String,
    ) -> Result {
        if let (Some(name), true) = (&self.schedule, rows.is_empty()) {
            refuse_unknown_schedule(tx, name).await?;
        }
        common.print_page(rows, self.limit.limit, id)?;
        let is_whole = is_end && (rows.len() as i64) < self.limit.limit;
        if common.json || !is_whole {
            return Ok(());
        }
        let day = match &self.schedule {
            Some(name) => removed_launches::newest_day_of(tx, name).await?,
            None => removed_launches::newest_day(tx).await?,
        };
        if let Some(day) = day {
            let day = Timestamp::of_day(day).date_text();
            output::print_message!(
                "retention has removed launches that were decided up to {day}; `campanile stats` counts them"
            );
        }
        Ok(())
    }
}

impl LaunchListOptions {
    async fn run(&self, common: &Common) -> Result {
        let (mut tx, now) = common.read_with_time().await?;
        let ListOptions {
            schedule,
            after,
            limit,
        } = &self.list;
        let filter = Filter {
            schedule: schedule.as_deref(),
            statuses: &self.status,
            kind: self.kind,
            reason: self.reason.as_deref(),
            package: self.package.as_deref(),
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
        };
        let Page {
            rows,
            continues_after,
        } = launch::list(&mut tx, &filter, after.as_ref(), limit.limit).await?;
        let id = |row: &LaunchRow| row.id.to_string();
        let is_end = continues_after.is_none();
        self.list.print(common, &mut tx, &rows, is_end, id).await?;
        if let Some(last) = continues_after {
            let found = rows.len();
            output::print_message!(
                "found {found} among {LOOKED_AT_MAX} launches; `--after {last}` looks at older ones"
            );
        }
        Ok(())
    }
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Launch::List(options) => options.run(common).await,
            Launch::Show { id } => {
                let mut tx = common.read().await?;
                common.print(&LaunchDetail::read(&mut tx, &id).await?)
            }
        }
    }
}
