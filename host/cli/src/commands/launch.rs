//! `campanile launch`: the decisions about slots.

use clap::Subcommand;

use crate::ask::{Listed, Source};
use crate::output::{self, Record, Result, optional};
use crate::{Common, Limit, watch};
use campanile_control::question::Paged;
use campanile_control::questions::launches::{GetLaunch, ListLaunches};
use campanile_control::records::launch::LaunchDetail;
use campanile_model::clock::Timestamp;
use campanile_model::ids::ShortId;
use campanile_store::launch::{LOOKED_AT_MAX, LaunchRow};
use campanile_store::removed_launches;

#[derive(Subcommand)]
pub(crate) enum Launch {
    /// List the newest launches, newest first
    #[command(arg = watch::arg())]
    List {
        #[command(flatten)]
        question: Box<ListLaunches>,
        #[command(flatten)]
        limit: Limit,
    },
    /// Show one launch: its decision, the versions that made it, and all its runs
    #[command(arg = watch::arg())]
    Show {
        /// The launch's id, or that of one of its runs; the first digits are enough when no other id begins with them
        id: ShortId,
    },
}

impl Record for LaunchRow {
    const LIST: &'static str = "id scheduled_time schedule status reason kind attempts message";
    const DECIDING: &'static str = "scheduled_time schedule status message";

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

/// Lists launches or runs, those of one schedule if named.
///
/// Says below lists reaching the end of the record that retention has removed older launches.
pub(crate) async fn list<Q, R: Record>(
    common: &Common,
    question: Q,
    schedule: Option<&str>,
    limit: i64,
) -> Result
where
    Q: Paged<Answer = Vec<R>>,
{
    let source = common.source().await?;
    let listed = source.list(question, limit).await?;
    let Listed { rows, next, is_cut } = &listed;
    if let (Some(next), true) = (next, is_cut) {
        common.print_list(rows)?;
        let found = rows.len();
        output::print_message!(
            "found {found} among {LOOKED_AT_MAX} launches; `--after {next}` looks at older ones"
        );
        return Ok(());
    }
    common.print_listed(&listed)?;
    if next.is_none() && !common.json {
        say_removed(&source, schedule).await
    } else {
        Ok(())
    }
}

async fn say_removed(source: &Source<'_>, schedule: Option<&str>) -> Result {
    let Some(mut tx) = source.record().await? else {
        return Ok(());
    };
    let day = match schedule {
        Some(name) => removed_launches::newest_day_of(&mut tx, name).await?,
        None => removed_launches::newest_day(&mut tx).await?,
    };
    if let Some(day) = day {
        let day = Timestamp::of_day(day).date_text();
        output::print_message!(
            "retention has removed launches that were decided up to {day}; `campanile stats` counts them"
        );
    }
    Ok(())
}

impl Launch {
    pub async fn run(self, common: &Common) -> Result {
        match self {
            Launch::List { question, limit } => {
                let schedule = question.schedule.clone();
                list(common, *question, schedule.as_deref(), limit.limit).await
            }
            Launch::Show { id } => common.print_answer(&id.to_string(), &GetLaunch {}).await,
        }
    }
}
