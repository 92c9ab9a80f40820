//! `campanile launch`: the decisions about slots.

use std::fmt::Display;

use clap::{Args, Subcommand};

use crate::client::Client;
use crate::output::{self, Record, Result, optional};
use crate::times::moment;
use crate::{Common, Limit, watch};
use campanile_control::records::launch::{self, LaunchDetail, refuse_unknown_schedule};
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, ShortId};
use campanile_model::time_text::Moment;
use campanile_store::launch_list::Filter;
use campanile_store::launches::{LOOKED_AT_MAX, LaunchRow};
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
    #[arg(long, value_name = "TIME|SPAN", value_parser = moment)]
    since: Option<Moment>,
    /// List only slots before this time: a time, or a span before now. Launches of a backfill, and
    /// retries, that were requested later are only in the list of their schedule
    #[arg(long, value_name = "TIME|SPAN", value_parser = moment)]
    until: Option<Moment>,
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
        finished_at attempts recoveries run_id traceparent caller_traceparent message note";

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
        let list = &self.list;
        if let Some(client) = common.client()? {
            return self.run_by_api(common, client).await;
        }
        let (mut tx, now) = common.read_with_time().await?;
        let filter = Filter {
            schedule: list.schedule.as_deref(),
            statuses: &self.status,
            kind: self.kind,
            reason: self.reason.as_deref(),
            package: self.package.as_deref(),
            namespace: None,
            since: self.since.map(|since| since.at(now)),
            until: self.until.map(|until| until.at(now)),
        };
        let (after, limit) = (list.after.as_ref(), list.limit.limit);
        let page = launch::list(&mut tx, &filter, after, limit, LOOKED_AT_MAX).await?;
        let id = |row: &LaunchRow| row.id.to_string();
        let is_end = page.continues_after.is_none();
        list.print(common, &mut tx, &page.rows, is_end, id).await?;
        say_continues(page.rows.len(), page.continues_after);
        Ok(())
    }

    async fn run_by_api(&self, common: &Common, client: &Client) -> Result {
        let list = &self.list;
        let statuses = self.status.iter().map(|status| status.as_str());
        let statuses = Vec::from_iter(statuses).join(",");
        let call = client
            .get(&["launches"])
            .query("schedule", list.schedule.as_ref())
            .query("after", list.after.as_ref())
            .query("status", Some(statuses).filter(|text| !text.is_empty()))
            .query("kind", self.kind)
            .query("reason", self.reason.as_ref())
            .query("package", self.package.as_ref())
            .query("since", self.since)
            .query("until", self.until);
        let (rows, continues_after) = call.page::<LaunchRow>(list.limit.limit).await?;
        common.print_page(&rows, list.limit.limit, |row| row.id)?;
        say_continues(rows.len(), continues_after);
        Ok(())
    }
}

/// If the search ended before the list was full, print how many launches it compared with the filter, and the option
/// `--after` that continues it.
fn say_continues(found: usize, after: Option<impl Display>) {
    if let Some(last) = after {
        output::print_message!(
            "found {found} among {LOOKED_AT_MAX} launches; `--after {last}` looks at older ones"
        );
    }
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Launch::List(options) => options.run(common).await,
            Launch::Show { id } => {
                if let Some(client) = common.client()? {
                    let call = client.get(&["launches", &id.to_string()]);
                    return common.print(&call.send::<LaunchDetail>().await?);
                }
                let mut tx = common.read().await?;
                common.print(&LaunchDetail::read(&mut tx, &id, None).await?)
            }
        }
    }
}
