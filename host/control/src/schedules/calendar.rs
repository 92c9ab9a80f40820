//! A year of a schedule, by day: how its launches ended, how late they began, and how long they took.
//!
//! A calendar reads a bounded number of launches, however many the record has. Of a schedule with more of them it has the
//! newest days, and says from which day on.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::problem::{ErrorCode, Problem};
use crate::records::schedule;
use campanile_model::clock::Timestamp;
use campanile_model::ids::{LaunchKind, ScheduleId};
use campanile_model::status::LaunchStatus;
use campanile_store::calendar::{self, CalendarLaunch, RemovedSlots};
use campanile_store::schedules::Schedule;
use campanile_store::{DbError, Tx};

/// The most launches that are read.
pub const LAUNCHES_MAX: i64 = 5_000;
/// By how much the clock of a zone may differ from UTC.
const OFFSET_MAX: Duration = Duration::from_secs(26 * 3_600);
/// The years of a calendar: rules have no later slots.
const YEARS: std::ops::RangeInclusive<i64> = 1970..=2099;

/// A year of a schedule.
#[derive(Debug, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Calendar {
    pub schedule: String,
    pub year: i64,
    /// The zone whose days these are.
    pub timezone: String,
    /// The first day of which all launches on record are counted. Null when these are all days of the year.
    pub counted_from: Option<String>,
    /// The days with a slot, the oldest first.
    pub days: Vec<CalendarDay>,
}

/// One day of a calendar. Launches that retention has removed count by their day in UTC.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CalendarDay {
    /// Such as `2026-11-22`.
    pub day: String,
    pub succeeded: i64,
    /// The launches that failed, are unknown or were abandoned.
    pub failed: i64,
    pub cancelled: i64,
    /// Slots that were skipped. Those of a range count on the day of the first one.
    pub skipped: i64,
    /// Whether the day is within a range of skipped slots that began before it.
    pub in_skipped_range: bool,
    /// Open, queued, running or waiting for a retry.
    pub unfinished: i64,
    /// The median from the start to the end of the launches that succeeded, in milliseconds. Removed ones have none.
    pub duration_ms: Option<u64>,
    /// The median from the fire time to the start of launches on time, in milliseconds.
    pub lag_ms: Option<u64>,
}

/// The counts and times of one day, while launches are added.
#[derive(Default)]
struct Sums {
    day: CalendarDay,
    durations_ms: Vec<u64>,
    lags_ms: Vec<u64>,
}

impl Calendar {
    /// Read the calendar of a schedule for a year; of the present year without one.
    ///
    /// # Errors
    /// When the year is not between 1970 and 2099.
    pub async fn read(
        tx: &mut Tx,
        row: &Schedule,
        year: Option<i64>,
        now: Timestamp,
    ) -> Result<Calendar, Problem> {
        let year = match year {
            Some(year) => year,
            None => present_year(row, now),
        };
        if !YEARS.contains(&year) {
            let (first, last) = YEARS.into_inner();
            let message = format!("the year {year} is not between {first} and {last}");
            return Err(Problem::new(ErrorCode::InvalidArgument, message));
        }
        let (rows, removed) = read_rows(tx, row.state.id, year).await?;
        let counted_from = counted_from(&rows, LAUNCHES_MAX);
        let days = days(&rows, &removed, year, counted_from);
        Ok(Calendar {
            schedule: row.definition.name.clone(),
            year,
            timezone: row.definition.rule.timezone.clone(),
            counted_from: counted_from.map(date),
            days,
        })
    }
}

fn present_year(row: &Schedule, now: Timestamp) -> i64 {
    let offset = schedule::rule(row).map_or(0, |rule| rule.utc_offset(now));
    year_of(local_day(now, offset))
}

fn year_of(day: i64) -> i64 {
    let date = date(day);
    let year = date.split('-').next().and_then(|year| year.parse().ok());
    year.unwrap_or(1970)
}

/// Returns the date of a day, given as days since 1970.
fn date(day: i64) -> String {
    Timestamp::of_day(day).date_text()
}

/// Returns the first day of a year, as days since 1970.
fn first_day(year: i64) -> i64 {
    let text = format!("{year:04}-01-01T00:00:00Z");
    text.parse::<Timestamp>().map_or(0, Timestamp::day)
}

/// Returns the day of an instant on a clock `offset` seconds ahead of UTC.
fn local_day(at: Timestamp, offset: i64) -> i64 {
    Timestamp::from_micros(at.micros().saturating_add(offset.saturating_mul(1_000_000))).day()
}

async fn read_rows(
    tx: &mut Tx,
    id: ScheduleId,
    year: i64,
) -> Result<(Vec<CalendarLaunch>, Vec<RemovedSlots>), DbError> {
    let (first, next) = (first_day(year), first_day(year + 1));
    let (from, to) = (Timestamp::of_day(first), Timestamp::of_day(next));
    let (from, to) = (from.minus(OFFSET_MAX), to.plus(OFFSET_MAX));
    let rows = calendar::launches(tx, id, from, to, LAUNCHES_MAX).await?;
    let removed = calendar::removed(tx, id, first, next - 1).await?;
    Ok((rows, removed))
}

/// Returns the first day of which all launches were read; none when all were read. `rows` has the newest first.
fn counted_from(rows: &[CalendarLaunch], limit: i64) -> Option<i64> {
    let oldest = rows.last().filter(|_| rows.len() as i64 >= limit)?;
    Some(local_day(oldest.scheduled_time, oldest.utc_offset) + 1)
}

/// Pure: sum up the days of a year, from the day `from` on.
fn days(
    rows: &[CalendarLaunch],
    removed: &[RemovedSlots],
    year: i64,
    from: Option<i64>,
) -> Vec<CalendarDay> {
    let (first, last) = (first_day(year), first_day(year + 1) - 1);
    let first = from.map_or(first, |from| from.max(first));
    let mut all: BTreeMap<i64, Sums> = BTreeMap::new();
    for row in rows {
        let day = local_day(row.scheduled_time, row.utc_offset);
        if (first..=last).contains(&day) {
            all.entry(day).or_default().add(row);
        }
        let end = row.last_scheduled_time.unwrap_or(row.scheduled_time);
        let end = local_day(end, row.utc_offset).min(last);
        for within in (day + 1).max(first)..=end {
            all.entry(within).or_default().day.in_skipped_range = true;
        }
    }
    for counts in removed.iter().filter(|counts| counts.slot_day >= first) {
        let day = &mut all.entry(counts.slot_day).or_default().day;
        day.count(counts.status, counts.slots);
    }
    all.into_iter()
        .map(|(day, sums)| sums.finish(day))
        .collect()
}

impl CalendarDay {
    fn count(&mut self, status: LaunchStatus, slots: i64) {
        use LaunchStatus as S;
        match status {
            S::Succeeded => self.succeeded += slots,
            S::Failed | S::Unknown | S::Abandoned => self.failed += slots,
            S::Cancelled => self.cancelled += slots,
            S::Skipped => self.skipped += slots,
            S::Open | S::Queued | S::Running | S::Waiting => self.unfinished += slots,
        }
    }
}

impl Sums {
    fn add(&mut self, row: &CalendarLaunch) {
        self.day.count(row.status, row.slot_count.unwrap_or(1));
        let Some(started) = row.started_at else {
            return;
        };
        let millis = |span: Duration| u64::try_from(span.as_millis()).unwrap_or(u64::MAX);
        if row.kind == LaunchKind::Schedule {
            self.lags_ms.push(millis(started.since(row.fire_time)));
        }
        if let (LaunchStatus::Succeeded, Some(ended)) = (row.status, row.finished_at) {
            self.durations_ms.push(millis(ended.since(started)));
        }
    }

    fn finish(self, day: i64) -> CalendarDay {
        CalendarDay {
            day: date(day),
            duration_ms: median(self.durations_ms),
            lag_ms: median(self.lags_ms),
            ..self.day
        }
    }
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn launch(slot: &str, status: LaunchStatus) -> CalendarLaunch {
        let slot: Timestamp = slot.parse().unwrap();
        CalendarLaunch {
            scheduled_time: slot,
            utc_offset: 3_600,
            last_scheduled_time: None,
            slot_count: None,
            status,
            kind: LaunchKind::Schedule,
            fire_time: slot,
            started_at: None,
            finished_at: None,
        }
    }

    #[test]
    fn a_day_is_one_of_the_zone() {
        use LaunchStatus as S;
        let second = Duration::from_secs(1);
        let ended = |slot: &str, status: LaunchStatus, lag: u32, took: u32| {
            let row = launch(slot, status);
            let started = row.fire_time.plus(second * lag);
            CalendarLaunch {
                started_at: Some(started),
                finished_at: Some(started.plus(second * took)),
                ..row
            }
        };
        let rows = [
            ended("2026-12-31T23:30:00Z", S::Succeeded, 1, 1),
            ended("2026-12-31T12:00:00Z", S::Succeeded, 3, 10),
            ended("2026-12-31T11:00:00Z", S::Failed, 2, 99),
            ended("2026-12-30T23:30:00Z", S::Succeeded, 1, 4),
            launch("2026-12-30T22:30:00Z", S::Unknown),
            launch("2026-12-30T21:30:00Z", S::Running),
            launch("2025-12-31T23:30:00Z", S::Skipped),
            launch("2025-12-31T22:30:00Z", S::Skipped),
        ];
        let removed = [RemovedSlots {
            slot_day: first_day(2026),
            status: S::Abandoned,
            slots: 7,
        }];
        let found = days(&rows, &removed, 2026, None);
        assert_eq!(
            found,
            [
                CalendarDay {
                    day: "2026-01-01".to_owned(),
                    failed: 7,
                    skipped: 1,
                    ..CalendarDay::default()
                },
                CalendarDay {
                    day: "2026-12-30".to_owned(),
                    failed: 1,
                    unfinished: 1,
                    ..CalendarDay::default()
                },
                CalendarDay {
                    day: "2026-12-31".to_owned(),
                    succeeded: 2,
                    failed: 1,
                    duration_ms: Some(10_000),
                    lag_ms: Some(2_000),
                    ..CalendarDay::default()
                },
            ]
        );
        let from = first_day(2027) - 1;
        assert_eq!(days(&rows, &removed, 2026, Some(from)).len(), 1);
    }

    #[test]
    fn a_range_of_skipped_slots_marks_each_of_its_days() {
        let range = CalendarLaunch {
            last_scheduled_time: Some("2026-03-04T10:00:00Z".parse().unwrap()),
            slot_count: Some(70),
            ..launch("2026-03-01T10:00:00Z", LaunchStatus::Skipped)
        };
        let found = days(&[range], &[], 2026, None);
        let skipped = found.iter().map(|day| (day.skipped, day.in_skipped_range));
        assert_eq!(
            Vec::from_iter(skipped),
            [(70, false), (0, true), (0, true), (0, true)]
        );
    }

    #[test]
    fn a_calendar_that_is_cut_begins_with_a_whole_day() {
        let rows = [
            launch("2026-03-02T10:00:00Z", LaunchStatus::Succeeded),
            launch("2026-03-01T10:00:00Z", LaunchStatus::Succeeded),
        ];
        assert_eq!(counted_from(&rows, 3), None);
        assert_eq!(
            counted_from(&rows, 2).map(date).as_deref(),
            Some("2026-03-02")
        );
        assert_eq!(year_of(first_day(2099)), 2099);
        assert_eq!(year_of(first_day(1971) - 1), 1970);
    }
}
