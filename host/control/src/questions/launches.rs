//! Questions about launches and their runs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bounds::{Limit, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::orders::id;
use crate::problem::Problem;
use crate::question::{Page, Question, Read, paged, plain};
use crate::records;
use crate::records::ids;
use crate::records::launch::{LaunchDetail, refuse_unknown_schedule};
use crate::records::run::{Part, RunDetail, TaskLogs};
use campanile_model::ids::{LaunchKind, ShortId};
use campanile_model::time_text::Moment;
use campanile_store::launch::{LOOKED_AT_MAX, LaunchFilter, LaunchPage, LaunchRow};
use campanile_store::runs::{self, RunRow};
use campanile_store::task_runs::CallPlace;
use campanile_store::{LaunchStatus, Tx};

/// Launches to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListLaunches {
    /// List only those of this schedule
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub schedule: Option<String>,
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<ShortId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
    /// List only those with one of these statuses, separated by commas
    #[cfg_attr(feature = "clap", arg(long, value_name = "STATUS", value_delimiter = ',', value_parser = LaunchStatus::read))]
    #[serde(default)]
    pub status: Vec<LaunchStatus>,
    /// List only those of this kind
    #[cfg_attr(feature = "clap", arg(long, value_name = "KIND", value_parser = LaunchKind::read))]
    pub kind: Option<LaunchKind>,
    /// List only those with this reason, or with this kind of failure
    #[cfg_attr(feature = "clap", arg(long, value_name = "REASON"))]
    pub reason: Option<String>,
    /// List only those of this package
    #[cfg_attr(feature = "clap", arg(long, value_name = "PACKAGE"))]
    pub package: Option<String>,
    /// List only slots from this time on: a time, or a span before now such as 2h
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME|SPAN"))]
    pub since: Option<Moment>,
    /// List only slots before this time: a time, or a span before now. Launches of a backfill, and
    /// retries, that were requested later are only in the list of their schedule
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME|SPAN"))]
    pub until: Option<Moment>,
}

impl ListLaunches {
    /// Finds the launches, looking at about `looked_at_max` at most.
    ///
    /// # Errors
    ///
    /// Fails for schedules that never existed.
    pub async fn find(
        &self,
        desk: &Desk<'_>,
        looked_at_max: i64,
        tx: &mut Tx,
    ) -> Result<Page<Vec<LaunchRow>>, Problem> {
        let filter = LaunchFilter {
            schedule: self.schedule.as_deref(),
            statuses: &self.status,
            kind: self.kind,
            reason: self.reason.as_deref(),
            package: self.package.as_deref(),
            namespace: desk.namespace,
            since: self.since.map(|since| since.at(desk.now)),
            until: self.until.map(|until| until.at(desk.now)),
        };
        let limit = limit(self.limit);
        let LaunchPage {
            rows,
            continues_after,
        } = records::launch::list(tx, &filter, self.after.as_ref(), limit, looked_at_max).await?;
        let page = Page::of(rows, limit, |row| row.id.to_string());
        let next = page.next.or(continues_after.map(|id| id.to_string()));
        Ok(Page { next, ..page })
    }
}

impl Question for ListLaunches {
    type Answer = Vec<LaunchRow>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_launches",
        "/api/v1/launches",
        Scope::Chosen,
        "List the newest launches, newest first",
    )
    .cost(3);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        self.find(desk, LOOKED_AT_MAX, tx).await
    }
}

plain! {
    /// Show a launch.
    GetLaunch;
}

impl Question for GetLaunch {
    type Answer = LaunchDetail;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_launch",
        "/api/v1/launches/{id}",
        Scope::Launch,
        "Show one launch with its runs",
    );

    async fn ask(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(LaunchDetail::read(tx, &id(of)?, desk.namespace)
            .await?
            .into())
    }
}

/// Runs to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListRuns {
    /// List only those of this schedule
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub schedule: Option<String>,
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<ShortId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListRuns {
    type Answer = Vec<RunRow>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_runs",
        "/api/v1/runs",
        Scope::Chosen,
        "List the newest runs, newest first",
    )
    .cost(3);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let limit = limit(self.limit);
        let after = match &self.after {
            Some(after) => Some(ids::list_position(tx, after, desk.namespace).await?),
            None => None,
        };
        let rows = match desk.given_in_namespace("schedule", self.schedule.as_deref())? {
            Some(name) => {
                let rows = runs::list_of(tx, name, after, limit).await?;
                if rows.is_empty() {
                    refuse_unknown_schedule(tx, name).await?;
                }
                rows
            }
            None => runs::list(tx, after, limit).await?,
        };
        Ok(Page::of(rows, limit, |row| row.id.to_string()))
    }
}

/// Calls of a run to show.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetRun {
    /// Show the calls after this one, as named by the page before
    pub after: Option<CallPlace>,
}

impl Question for GetRun {
    type Answer = RunDetail;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_run",
        "/api/v1/runs/{id}",
        Scope::Launch,
        "Show one run with the calls of its tasks; what they wrote and returned comes in pages of about 4 MiB",
    );

    async fn ask(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let run = ids::run(tx, &id(of)?, desk.namespace).await?;
        let after = self.after.clone().unwrap_or_else(CallPlace::first);
        Ok(RunDetail::read(tx, run, &after).await?.into())
    }
}

/// Calls of a run whose logs to show.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetLogs {
    /// Show the calls after this one, as named by the page before
    pub after: Option<CallPlace>,
    /// Stream each call when it ends, until the run ends
    #[serde(default)]
    pub follow: bool,
}

impl Question for GetLogs {
    type Answer = Vec<TaskLogs>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_logs",
        "/api/v1/runs/{id}/logs",
        Scope::Launch,
        "Show what the tasks of one run logged and printed, in pages of about 4 MiB",
    );

    async fn ask(&self, of: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let run = ids::run(tx, &id(of)?, desk.namespace).await?;
        let after = self.after.clone().unwrap_or_else(CallPlace::first);
        Ok(TaskLogs::read(tx, run.id, &after).await?.into())
    }
}

impl<T> From<Part<T>> for Page<T> {
    fn from(part: Part<T>) -> Page<T> {
        Page {
            answer: part.part,
            next: part.next.map(|place| place.to_string()),
        }
    }
}

paged!(@searches ListLaunches);
paged!(ListRuns);
paged!(@parts GetRun GetLogs);
