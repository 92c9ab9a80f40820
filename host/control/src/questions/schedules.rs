//! Questions about schedules and their backfills.

use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::admin::schedule_admin;
use crate::bounds::{Limit, Number, Span, YEAR_MS, limit};
use crate::order::{Desk, Endpoint, Scope};
use crate::orders::id;
use crate::problem::{ErrorCode, Problem};
use crate::question::{Page, Question, Read, paged, plain};
use crate::records::backfill::BackfillRecord;
use crate::records::schedule::{self, ScheduleDetail, ScheduleRecord};
use crate::reports::statistics::{self, ScheduleStatistics};
use crate::reports::why::{self, Answer, When};
use crate::schedules::calendar::Calendar;
use crate::schedules::definition::policies;
use campanile_model::clock::Timestamp;
use campanile_model::ids::BackfillId;
use campanile_model::namespace::Namespace;
use campanile_model::time_text::GivenTime;
use campanile_store::Tx;
use campanile_store::schedules::{self, Schedule};

/// About how many bytes of contexts and arguments fit on a page of schedules. A single schedule may exceed this.
const PAGE_BYTES: usize = 4 << 20;
/// How many schedules to read with a page's first statement, and the factor by which each following one reads more. Starting small matters,
/// as a context may take 1 MiB.
const FIRST: i64 = 16;
const GROWTH: i64 = 4;

/// Returns an endpoint below a schedule.
const fn endpoint(id: &'static str, path: &'static str, summary: &'static str) -> Endpoint {
    Endpoint::get(id, path, Scope::Named, summary)
}

/// Schedules to list.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListSchedules {
    /// List those after this name
    #[cfg_attr(feature = "clap", arg(long, value_name = "NAME"))]
    pub after: Option<String>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListSchedules {
    type Answer = Vec<ScheduleRecord>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_schedules",
        "/api/v1/schedules",
        Scope::Chosen,
        "List schedules by name",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let page = page(desk.namespace, self.after.clone(), limit(self.limit), tx).await?;
        Ok(Page {
            answer: page.answer.into_iter().map(ScheduleRecord::new).collect(),
            next: page.next,
        })
    }
}

/// Returns up to `limit` schedules, sorted by name and only those in `namespace` if given. Large ones end the page early.
pub(crate) async fn page(
    namespace: Option<&Namespace>,
    mut after: Option<String>,
    limit: i64,
    tx: &mut Tx,
) -> Result<Page<Vec<Schedule>>, Problem> {
    let pattern = namespace.map(Namespace::like);
    let (mut rows, mut bytes, mut size) = (Vec::new(), 0, FIRST);
    let name = |row: &Schedule| row.definition.name.clone();
    loop {
        let wanted = size.min(limit - rows.len() as i64);
        let found = match &pattern {
            Some(pattern) => schedules::list_like(tx, pattern, after.as_deref(), wanted).await?,
            None => schedules::list(tx, after.as_deref(), wanted).await?,
        };
        let is_last = (found.len() as i64) < wanted;
        for row in found {
            bytes += bytes_of(&row);
            if bytes > PAGE_BYTES && !rows.is_empty() {
                return Ok(Page::of(rows, 0, name));
            }
            rows.push(row);
        }
        if is_last || rows.len() as i64 >= limit {
            return Ok(Page::of(rows, limit, name));
        }
        after = rows.last().map(name);
        size *= GROWTH;
    }
}

fn bytes_of(schedule: &Schedule) -> usize {
    let definition = &schedule.definition;
    definition.context.len() + definition.args.as_ref().map_or(0, String::len)
}

plain! {
    /// Show a schedule.
    GetSchedule;
    /// Show a backfill.
    GetBackfill;
}

impl Question for GetSchedule {
    type Answer = ScheduleDetail;

    const ENDPOINT: Endpoint = endpoint(
        "get_schedule",
        "/api/v1/schedules/{name}",
        "Show one schedule with its newest launches",
    );

    async fn ask(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(
            ScheduleDetail::read(tx, name, &desk.settings.late, desk.now)
                .await?
                .into(),
        )
    }

    fn revision(detail: &Self::Answer) -> Option<i64> {
        Some(detail.schedule.schedule.row.state.revision)
    }
}

/// Slots to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NextSlots {
    /// The slots after this time instead of those from now on
    pub after: Option<GivenTime>,
    /// How many slots, 5 unless given
    pub n: Option<Number<1, 1_000>>,
}

impl Question for NextSlots {
    type Answer = Vec<Timestamp>;

    const ENDPOINT: Endpoint = endpoint(
        "next_slots",
        "/api/v1/schedules/{name}/next",
        "List the next slots of a schedule",
    );

    async fn ask(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let n = self.n.map_or(5, |n| n.0);
        let row = schedule_admin::find(tx, name).await?;
        let rule = schedule::rule(&row)?;
        let policies = policies(&row.definition).unwrap_or_default();
        let skips = schedule::skips(&row);
        let slots = schedule::slots(
            &row,
            &rule,
            &policies,
            self.after.map(|after| after.0),
            desk.now,
        );
        let slots = slots.filter(|slot| !skips.contains(slot));
        Ok(Vec::from_iter(slots.take(usize::try_from(n).unwrap_or_default())).into())
    }
}

/// A moment to explain.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct Why {
    /// A slot or any other time: 2026-11-21T08:00:00Z, now-2h, or in the schedule's zone "2026-03-08 02:30" or "yesterday 14:00"
    /// [default: the last decision, and the next slot]
    #[cfg_attr(feature = "clap", arg(long, value_name = "TIME"))]
    pub at: Option<String>,
}

impl Question for Why {
    type Answer = Answer;

    const ENDPOINT: Endpoint = endpoint(
        "why",
        "/api/v1/schedules/{name}/why",
        "Explain why a slot was launched or not, and how it ended",
    )
    .cost(5);

    async fn ask(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let when = self.at.as_deref().map(str::parse::<When>).transpose();
        let when = when.map_err(|error| {
            Problem::new(ErrorCode::InvalidArgument, format!("`at`: {error}")).hint(error.hint())
        })?;
        Ok(why::why(tx, name, when, desk.now).await?.into())
    }
}

/// A year to show.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetCalendar {
    /// The year, this one unless given
    pub year: Option<Number<1970, 2099>>,
}

impl Question for GetCalendar {
    type Answer = Calendar;

    const ENDPOINT: Endpoint = endpoint(
        "get_calendar",
        "/api/v1/schedules/{name}/calendar",
        "Show a year of a schedule by day: how its launches ended, how late they began, and how long they took",
    )
    .cost(5);

    async fn ask(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let row = schedule_admin::find(tx, name).await?;
        let year = self.year.map(|year| year.0);
        Ok(Calendar::read(tx, &row, year, desk.now).await?.into())
    }
}

/// How far statistics look back.
pub type Since = Span<0, YEAR_MS>;

/// Returns how far to look back.
pub(crate) fn since(given: Option<Since>) -> Duration {
    given.map_or(Duration::from_hours(24), |since| since.0)
}

/// A span to count.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GetScheduleStats {
    /// How far to look back, such as `30m` or `7days`; `24h` unless given
    pub since: Option<Since>,
}

impl Question for GetScheduleStats {
    type Answer = ScheduleStatistics;

    const ENDPOINT: Endpoint = endpoint(
        "get_schedule_stats",
        "/api/v1/schedules/{name}/stats",
        "Show statistics of one schedule",
    )
    .cost(10);

    async fn ask(&self, name: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let schedule = schedule_admin::find(tx, name).await?;
        let span = since(self.since);
        let rows = statistics::of_schedules(tx, &[schedule], desk.now, span).await?;
        let removed = || Problem::new(ErrorCode::Unavailable, "the schedule was removed meanwhile");
        Ok(rows.into_iter().next().ok_or_else(removed)?.into())
    }
}

/// Backfills to list.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[cfg_attr(feature = "clap", derive(clap::Args), group(skip))]
#[serde(deny_unknown_fields)]
pub struct ListBackfills {
    /// List those after this one of another list
    #[cfg_attr(feature = "clap", arg(long, value_name = "ID"))]
    pub after: Option<BackfillId>,
    /// Maximum number of entries, 50 unless given
    #[cfg_attr(feature = "clap", arg(skip))]
    pub limit: Option<Limit>,
}

impl Question for ListBackfills {
    type Answer = Vec<BackfillRecord>;

    const ENDPOINT: Endpoint = Endpoint::get(
        "list_backfills",
        "/api/v1/backfills",
        Scope::Chosen,
        "List the newest backfills, newest first",
    );

    async fn ask(&self, _: &str, desk: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        let (pattern, limit) = (desk.namespace.map(Namespace::like), limit(self.limit));
        let records = BackfillRecord::list(tx, pattern.as_deref(), self.after, limit).await?;
        Ok(Page::of(records, limit, |record| record.row.id.to_string()))
    }
}

impl Question for GetBackfill {
    type Answer = BackfillRecord;

    const ENDPOINT: Endpoint = Endpoint::get(
        "get_backfill",
        "/api/v1/backfills/{id}",
        Scope::Backfill,
        "Show one backfill",
    );

    async fn ask(&self, of: &str, _: &Desk<'_>, tx: &mut Tx) -> Read<Self::Answer> {
        Ok(BackfillRecord::read(tx, id(of)?).await?.into())
    }
}

paged!(ListSchedules ListBackfills);
