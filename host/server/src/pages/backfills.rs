//! The newest backfills, each with how its launches ended and how much is left.

use std::time::Duration;

use maud::{Markup, html};

use super::charts;
use super::parts::{ActionForm, badge, badge_of, command, empty, launches_where, next_page};
use super::words::{Clock, counted, line, moment, rough, span, time};
use super::{View, Visit, links};
use crate::call::Result;
use campanile_control::question::Page;
use campanile_control::questions::schedules::ListBackfills;
use campanile_model::clock::Timestamp;
use campanile_store::backfills::{self, Backfill};
use campanile_store::{BackfillStatus, DbError, LaunchStatus, Tx, troubles};

/// The backfills of a page.
const SHOWN_MAX: i64 = 50;
/// The most launches that are counted for one backfill, and for all of a page together.
const COUNTED_MAX: i64 = 10_000;
const COUNTED_OF_PAGE_MAX: i64 = 50_000;
/// The newest backfills among which Now looks for failures, how many of their launches it counts, and how long it shows them.
const LATELY_MAX: i64 = 10;
const COUNTED_LATELY_MAX: i64 = 5_000;
const LATELY: Duration = Duration::from_secs(24 * 3_600);

/// How the launches of a backfill have ended so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Ends {
    succeeded: i64,
    failed: i64,
    /// Cancelled, or skipped before they started.
    cancelled: i64,
    running: i64,
    queued: i64,
    /// Whether there are more launches than were counted.
    is_cut: bool,
}

pub(super) async fn show(visit: &Visit) -> Result<View> {
    let call = &visit.call;
    let ListBackfills { after, .. } = call.query.question()?;
    let clock = visit.clock();
    let mut tx = call.read().await?;
    let rows = backfills::list(&mut tx, None, after, SHOWN_MAX).await?;
    let Page { answer: rows, next } = Page::of(rows, SHOWN_MAX, |row| row.id.to_string());
    let listed = with_ends(&mut tx, rows, COUNTED_OF_PAGE_MAX).await?;
    drop(tx);
    View::new(
        "Backfills",
        html! {
            @if listed.is_empty() {
                (empty("There is no backfill.", html! { "A backfill launches past slots again. Begin one on the page of a " a href="/schedules" { "schedule" } "." }))
            }
            div.stack {
                @for (row, ends) in &listed { (one(visit, row, ends, clock)) }
                (next_page(visit, next.as_deref()))
                (command("campanile backfill list"))
            }
        },
    )
}

/// Returns backfills with how their launches ended, counting at most `left` launches.
async fn with_ends(
    tx: &mut Tx,
    rows: Vec<Backfill>,
    mut left: i64,
) -> Result<Vec<(Backfill, Ends)>, DbError> {
    let mut listed = Vec::with_capacity(rows.len());
    for row in rows {
        let limit = left.min(COUNTED_MAX);
        let statuses = troubles::backfill_statuses(tx, row.id, limit).await?;
        let ends = Ends::of(&row, &statuses, limit);
        left -= ends.launches();
        listed.push((row, ends));
    }
    Ok(listed)
}

/// Launches of a backfill that failed, for the first page.
pub(super) struct FailedBackfill {
    pub schedule: String,
    /// `3 of 40 launches`, or at least so many.
    pub failed: String,
    pub created_at: Timestamp,
    pub is_running: bool,
    /// The page that lists those launches.
    pub launches: String,
}

/// Returns the newest backfills with a failure that run, or ended within a day.
pub(super) async fn failed_lately(
    tx: &mut Tx,
    now: Timestamp,
) -> Result<Vec<FailedBackfill>, DbError> {
    let mut rows = backfills::list(tx, None, None, LATELY_MAX).await?;
    let since = now.minus(LATELY);
    rows.retain(|row| row.finished_at.is_none_or(|at| at >= since));
    let failed = with_ends(tx, rows, COUNTED_LATELY_MAX).await?;
    let failed = failed.into_iter().filter(|(_, ends)| ends.failed > 0);
    let shown = failed.map(|(row, ends)| FailedBackfill {
        failed: format!(
            "{} of {}",
            at_least(ends.failed, &ends),
            counted(row.launched.unsigned_abs(), "launch")
        ),
        created_at: row.created_at,
        is_running: row.status == BackfillStatus::Running,
        launches: launches_of(&row, Some(FAILED)),
        schedule: row.schedule,
    });
    Ok(shown.collect())
}

/// The statuses of launches that went wrong, as a search of launches has them.
const FAILED: &str = "failed,abandoned,unknown";

/// Returns the page of a backfill's launches, or of those with a status.
fn launches_of(row: &Backfill, status: Option<&str>) -> String {
    let from = row.from.to_string();
    let until = row.to.plus(Duration::from_secs(1)).to_string();
    let mut wanted = vec![
        ("schedule", row.schedule.as_str()),
        ("kind", "backfill"),
        ("since", &from),
        ("until", &until),
    ];
    wanted.extend(status.map(|status| ("status", status)));
    launches_where(&wanted)
}

impl Ends {
    fn of(row: &Backfill, statuses: &[(LaunchStatus, i64)], limit: i64) -> Ends {
        let mut ends = Ends::default();
        for (status, count) in statuses {
            let of_status = match status {
                LaunchStatus::Succeeded => &mut ends.succeeded,
                LaunchStatus::Failed | LaunchStatus::Unknown | LaunchStatus::Abandoned => {
                    &mut ends.failed
                }
                LaunchStatus::Cancelled | LaunchStatus::Skipped => &mut ends.cancelled,
                LaunchStatus::Running | LaunchStatus::Waiting => &mut ends.running,
                LaunchStatus::Open | LaunchStatus::Queued => &mut ends.queued,
            };
            *of_status += count;
        }
        ends.is_cut = ends.launches() >= limit && row.launched > limit;
        ends
    }

    fn launches(&self) -> i64 {
        self.ended() + self.running + self.queued
    }

    fn ended(&self) -> i64 {
        self.succeeded + self.failed + self.cancelled
    }
}

/// Returns how many slots of a backfill aren't launched yet.
fn to_launch(row: &Backfill) -> i64 {
    match row.status {
        BackfillStatus::Running => (row.slots - row.launched - row.slots_skipped).max(0),
        _ => 0,
    }
}

/// Pure: returns about how long a backfill goes on, at the pace so far and with the spread of its launches.
fn time_left(row: &Backfill, ends: &Ends, now: Timestamp) -> Option<Duration> {
    let left = ends.running + ends.queued + to_launch(row);
    if row.status != BackfillStatus::Running || ends.is_cut || ends.ended() == 0 || left == 0 {
        return None;
    }
    let pace = now.since(row.created_at).as_secs_f64() / ends.ended() as f64;
    let by_pace = Duration::try_from_secs_f64(pace * left as f64).ok()?;
    let spread = row.spread_ms.saturating_mul(to_launch(row));
    Some(by_pace.max(Duration::from_millis(spread.unsigned_abs())))
}

fn one(visit: &Visit, row: &Backfill, ends: &Ends, clock: Clock) -> Markup {
    let id = row.id.to_string();
    let cancel = ActionForm {
        action: "cancel_backfill",
        label: "Cancel the backfill",
        hidden: &[("id", &id)],
        fields: html! { p { "Launches that haven't started are skipped; those that run go on." } },
        command: format!("campanile backfill cancel {id}"),
    };
    html! {
        section.card {
            header {
                h2 { (links::schedule(&row.schedule)) }
                (status(row, ends))
                span.far { "slots from " (time(row.from, clock)) " to " (time(row.to, clock)) }
            }
            div.pad {
                (progress(row, ends))
                p {
                    @if let Some(left) = time_left(row, ends, clock.now) { strong { "about " (rough(left)) " left" } " at this pace. " }
                    @if let Some(at) = row.finished_at { "Ended " (moment(at, clock)) ", after " (span(at.since(row.created_at))) ". " }
                    "Requested " (moment(row.created_at, clock)) " by " (line(&row.created_by)) "."
                }
                div.actions {
                    a.button.small href=(launches_of(row, None)) { "Its launches" }
                    @if ends.failed > 0 { a.button.small href=(launches_of(row, Some(FAILED))) { "Failed launches" } }
                    @if row.status == BackfillStatus::Running {
                        details.menu.small { summary { "Cancel" } div { (cancel.show(visit)) } }
                    }
                    span.far { "Id " code { (id) } }
                }
            }
        }
    }
}

/// Shows what's not as usual; nothing for a backfill that went well.
fn status(row: &Backfill, ends: &Ends) -> Markup {
    html! {
        @match row.status {
            BackfillStatus::Done => {},
            status => (badge(status.as_str())),
        }
        @if ends.failed > 0 { (badge_of("bad", &format!("{} failed", at_least(ends.failed, ends)))) }
    }
}

fn at_least(count: i64, ends: &Ends) -> String {
    if ends.is_cut {
        format!("at least {count}")
    } else {
        count.to_string()
    }
}

/// Shows how far a backfill is: one bar, and the same in numbers.
fn progress(row: &Backfill, ends: &Ends) -> Markup {
    let uncounted = if ends.is_cut {
        row.launched - ends.launches()
    } else {
        0
    };
    let parts = [
        ("ok", ends.succeeded, "succeeded"),
        ("bad", ends.failed, "failed"),
        ("run", ends.running, "running"),
        ("planned", ends.queued + to_launch(row), "queued"),
        ("skip", ends.cancelled, "cancelled"),
        ("lag", uncounted, "not counted here"),
    ];
    let shown = parts
        .iter()
        .filter(|(class, count, _)| *count > 0 || *class == "bad");
    let words = shown
        .clone()
        .map(|(_, count, word)| format!("{count} {word}"));
    let text = format!(
        "Backfill of {}: {}",
        line(&row.schedule),
        Vec::from_iter(words).join(", ")
    );
    let bar = parts.map(|(class, count, _)| (class, count));
    html! {
        (charts::shares(&bar, &text))
        p {
            strong { (counted(row.slots.unsigned_abs(), "slot")) } ": "
            @for (class, count, word) in shown {
                span.legend { svg.key viewBox="0 0 10 10" aria-hidden="true" { path class=(class) d="M.5 .5h9v9h-9z" {} } (count) " " (word) }
            }
            @if row.slots_skipped > 0 { span.far { (row.slots_skipped) " not launched again" } }
            @if ends.is_cut { br; span.far { "Counted: " (ends.launches()) " of its " (row.launched) " launches." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{BackfillId, ScheduleId};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(seconds))
    }

    fn backfill(status: BackfillStatus, slots: i64, launched: i64) -> Backfill {
        Backfill {
            id: BackfillId::FIRST,
            schedule_id: ScheduleId::FIRST,
            schedule: "nightly".to_owned(),
            schedule_revision: 1,
            status,
            from: at(0),
            to: at(10),
            spread_ms: 0,
            forced: false,
            context: None,
            cursor_at: at(0),
            next_fire: at(0),
            slots,
            launched,
            slots_skipped: 0,
            created_at: at(100),
            created_by: String::new(),
            finished_at: None,
        }
    }

    #[test]
    fn failures_of_a_backfill_that_is_done_are_seen() {
        let row = backfill(BackfillStatus::Done, 198, 198);
        let statuses = [
            (LaunchStatus::Succeeded, 125),
            (LaunchStatus::Failed, 70),
            (LaunchStatus::Unknown, 3),
        ];
        let ends = Ends::of(&row, &statuses, COUNTED_MAX);
        assert_eq!((ends.failed, ends.is_cut), (73, false));
        assert!(status(&row, &ends).into_string().contains("73 failed"));
        let shown = progress(&row, &ends).into_string();
        assert!(shown.contains("125 succeeded, 73 failed"), "{shown}");
        assert!(shown.contains("class=\"bad\" x=\"631.3\""), "{shown}");
        let cut = Ends::of(&row, &statuses, 100);
        assert!(
            status(&row, &cut)
                .into_string()
                .contains("at least 73 failed")
        );
    }

    #[test]
    fn the_time_left_follows_from_the_pace() {
        let mut row = backfill(BackfillStatus::Running, 40, 20);
        let statuses = [(LaunchStatus::Succeeded, 10), (LaunchStatus::Open, 10)];
        let ends = Ends::of(&row, &statuses, COUNTED_MAX);
        let left = |row: &Backfill| time_left(row, &ends, at(200)).map(|left| left.as_secs());
        assert_eq!(left(&row), Some(300));
        row.spread_ms = 60_000;
        assert_eq!(left(&row), Some(1_200));
        row.status = BackfillStatus::Done;
        assert_eq!(left(&row), None);
    }
}
