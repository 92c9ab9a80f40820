//! Questions about events and statistics.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::schedules::{Since, page, since};
use crate::bounds::{Limit, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::question::{Page, Question, Read, paged, plain};
use crate::reports::statistics::{self, ScheduleStatistics, Statistics};
use crate::reports::use_statistics::{
    DayStatistics, PackageStatistics, day_statistics, package_statistics,
};
use crate::reports::verify::{self, Checkpoint};
use campanile_model::ids::EventId;
use campanile_model::namespace::Namespace;
use campanile_store::events::{self, Event};
use campanile_store::{DbError, Tx};

/// How many events a statement reads when looking for a namespace's.
const WINDOW: i64 = 500;
/// Maximum number of events looked at for a page of a namespace's.
const LOOKED_AT_MAX: i64 = 10_000;

/// Events to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListEvents {
    /// List those after this event of another list; the JSON output shows the ids
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<EventId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListEvents {
    type Answer = Vec<Event>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_events",
        "/api/v1/events",
        Scope::Chosen,
        "List the newest events, newest first",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let limit = limit(self.limit);
        if let Some(namespace) = desk.namespace {
            return Ok(self.of(namespace, limit, tx).await?);
        }
        let rows = events::list(tx, self.after, limit).await?;
        Ok(Page::of(rows, limit, |row| row.id.to_string()))
    }
}

impl ListEvents {
    /// Reads events of one namespace, possibly ending a page early as most belong to others.
    async fn of(
        &self,
        namespace: &Namespace,
        limit: i64,
        tx: &mut Tx,
    ) -> Result<Page<Vec<Event>>, DbError> {
        let (mut rows, mut before, mut looked_at) = (Vec::new(), self.after, 0);
        let next = loop {
            let window = events::list(tx, before, WINDOW).await?;
            let is_last = (window.len() as i64) < WINDOW;
            looked_at += WINDOW;
            before = window.last().map(|event| event.id);
            let own = window.into_iter();
            rows.extend(own.filter(|event| namespace.contains(&event.subject)));
            if rows.len() as i64 >= limit {
                rows.truncate(usize::try_from(limit).unwrap_or_default());
                break rows.last().map(|event: &Event| event.id);
            }
            if is_last || looked_at >= LOOKED_AT_MAX {
                break before.filter(|_| !is_last);
            }
        };
        Ok(Page {
            answer: rows,
            next: next.map(|id| id.to_string()),
        })
    }
}

plain! {
    /// Show the newest hash of the chain over the record.
    GetCheckpoint;
}

impl Question for GetCheckpoint {
    type Answer = Option<Checkpoint>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_checkpoint",
        "/api/v1/audit/checkpoint",
        Scope::Installation,
        "Return the newest hash of the chain over the record; null while nothing is sealed",
    );

    async fn ask(&self, _: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(verify::checkpoint(tx).await?.into())
    }
}

/// A span to count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetStats {
    /// How far to look back, such as `30m` or `7days`; `24h` unless given
    pub since: Option<Since>,
}

impl Question for GetStats {
    type Answer = Statistics;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_stats",
        "/api/v1/stats",
        Scope::Installation,
        "Show statistics of all launches in a time span",
    )
    .cost(20);

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(statistics::read(tx, desk.now, since(self.since))
            .await?
            .into())
    }
}

/// Declares the questions for statistics of each schedule, package or day.
macro_rules! each {
    ($($question:ident: $id:literal, $path:literal, $summary:literal;)*) => {$(
        #[doc = concat!($summary, ".")]
        #[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
        #[serde(deny_unknown_fields)]
        pub struct $question {
            /// How far to look back, such as `30m` or `7days`; `24h` unless given
            pub since: Option<Since>,
            /// List those after this key, as named by the page before
            pub after: Option<String>,
            /// Maximum number of entries, 50 unless given
            pub limit: Option<Limit>,
        }

        impl $question {
            const AT: Endpoint = Endpoint::get($id, $path, Scope::Chosen, $summary).cost(20);
        }
    )*};
}

each! {
    ListScheduleStats: "list_schedule_stats", "/api/v1/stats/schedules", "Show statistics of each schedule by itself";
    ListPackageStats: "list_package_stats", "/api/v1/stats/packages", "Show what the tasks of each package used in a time span";
    ListDayStats: "list_day_stats", "/api/v1/stats/days", "Show what the tasks of each package used on each day";
}

impl Question for ListScheduleStats {
    type Answer = Vec<ScheduleStatistics>;

    const ENDPOINT: Endpoint = Self::AT;

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let page = page(desk.namespace, self.after.clone(), limit(self.limit), tx).await?;
        let span = since(self.since);
        Ok(Page {
            answer: statistics::of_schedules(tx, &page.answer, desk.now, span).await?,
            next: page.next,
        })
    }
}

impl Question for ListPackageStats {
    type Answer = Vec<PackageStatistics>;

    const ENDPOINT: Endpoint = Self::AT;

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (span, after, limit) = (since(self.since), self.after.as_deref(), limit(self.limit));
        let rows = package_statistics(tx, desk.now, span, desk.namespace, after, limit).await?;
        Ok(Page::of(rows, limit, |row| row.package.clone()))
    }
}

impl Question for ListDayStats {
    type Answer = Vec<DayStatistics>;

    const ENDPOINT: Endpoint = Self::AT;

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (span, after, limit) = (since(self.since), self.after.as_deref(), limit(self.limit));
        let rows = day_statistics(tx, desk.now, span, desk.namespace, after, limit).await?;
        Ok(Page::of(rows, limit, DayStatistics::key))
    }
}

paged!(@searches ListEvents);
paged!(ListScheduleStats ListPackageStats ListDayStats);
