//! `campanile launch`: the decisions about slots.

use std::error::Error;
use std::fmt::Display;
use std::str::FromStr;

use clap::{Args, Subcommand};
use serde::Serialize;

use crate::output::{self, Failure, Record, Result, optional, refused};
use crate::{Common, Limit};
use campanile_engine::schedule_admin;
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchId;
use campanile_store::history::{self, DecidedLaunch};
use campanile_store::launches::{self, LaunchRow};
use campanile_store::runs::RunRow;
use campanile_store::{Tx, removed_launches};

#[derive(Subcommand)]
pub(crate) enum Launch {
    /// List the newest launches, newest first
    List(ListOptions<LaunchId>),
    /// Show one launch: its decision, the versions that made it, and all its runs
    Show {
        /// The launch's id, as `launch list` and `schedule trigger` print it
        id: LaunchId,
    },
}

/// The options of a list of launches or runs, whose ids are `K`.
#[derive(Args)]
pub(crate) struct ListOptions<K>
where
    K: FromStr<Err: Error + Send + Sync> + Copy + Display + Send + Sync + 'static,
{
    /// List only those of this schedule
    #[arg(long, value_name = "NAME")]
    pub schedule: Option<String>,
    /// List those after this one of another list
    #[arg(long, value_name = "ID")]
    pub after: Option<K>,
    #[command(flatten)]
    pub limit: Limit,
}

/// One launch with its runs.
#[derive(Serialize, schemars::JsonSchema)]
pub(crate) struct LaunchDetail {
    #[serde(flatten)]
    decided: DecidedLaunch,
    runs: Vec<RunRow>,
}

impl Record for LaunchRow {
    const LIST: &'static str = "scheduled_time schedule status reason kind attempts run_id message";

    fn text(&self, key: &str) -> Option<String> {
        match key {
            "scheduled_time" => Some(self.slots_text(&self.scheduled_time.to_string())),
            "reason" if self.reason.is_none() => Some(optional(&self.failure)),
            _ => None,
        }
    }
}

impl Record for LaunchDetail {
    const DETAIL: &'static str = "id scheduled_time scheduled_local schedule schedule_revision status reason kind \
        decision decided_by decided_at tzdata_version package digest overlaps fire_time opened_at started_at \
        finished_at attempts recoveries run_id message";

    fn text(&self, key: &str) -> Option<String> {
        self.decided.launch.text(key)
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

impl<K> ListOptions<K>
where
    K: FromStr<Err: Error + Send + Sync> + Copy + Display + Send + Sync + 'static,
{
    /// Print `rows`; refuse a schedule that never existed, because an empty list would hide the mistake. Say below a list
    /// that ended before its limit that retention has removed older launches.
    pub(crate) async fn print<R: Record>(
        &self,
        common: &Common,
        tx: &mut Tx,
        rows: &[R],
        id: impl Fn(&R) -> K,
    ) -> Result {
        if let (Some(name), true) = (&self.schedule, rows.is_empty()) {
            // A removed schedule is still known by its launches.
            let is_known = removed_launches::newest_day_of(tx, name).await?.is_some();
            if !is_known && launches::list_of(tx, name, None, 1).await?.is_empty() {
                schedule_admin::find(tx, name).await?;
            }
        }
        common.print_page(rows, self.limit.limit, id)?;
        let is_whole = (rows.len() as i64) < self.limit.limit;
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

/// Return the error that retention may have removed the launch `id`; none when no launch of its day was removed.
pub(crate) async fn removed_launch(tx: &mut Tx, id: LaunchId) -> Result<Option<Failure>> {
    let day = id.slot().day();
    let removed = removed_launches::of_all(tx, day).await?;
    Ok(removed.map(|removed| {
        let launches = match removed.launches {
            1 => "1 launch".to_owned(),
            n => format!("{n} launches"),
        };
        refused!(
            "the launch {id} is not on record: retention has removed {launches} of {}, the last at {}",
            Timestamp::of_day(day).date_text(),
            removed.removed_at
        )
        .hint("`campanile stats` counts removed launches; `[retention]` in the configuration sets their ages")
    }))
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result {
        let mut tx = common.read().await?;
        match self {
            Launch::List(options) => {
                let (after, limit) = (options.after, options.limit.limit);
                let rows = match &options.schedule {
                    Some(name) => launches::list_of(&mut tx, name, after, limit).await?,
                    None => launches::list(&mut tx, after, limit).await?,
                };
                options.print(common, &mut tx, &rows, |row| row.id).await
            }
            Launch::Show { id } => {
                let Some(decided) = history::launch(&mut tx, id).await? else {
                    let missing = refused!("there is no launch {id}")
                        .hint("`campanile launch list` shows the ids");
                    return Err(removed_launch(&mut tx, id).await?.unwrap_or(missing));
                };
                let runs = history::runs(&mut tx, id).await?;
                common.print(&LaunchDetail { decided, runs })
            }
        }
    }
}
