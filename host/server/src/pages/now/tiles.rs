//! The tiles: an hour of the installation in four numbers.

use std::time::Duration;

use maud::{Markup, html};

use super::super::charts;
use super::super::words::span;
use super::{HOUR, Now};
use campanile_control::reports::overview::{has_failed, has_result};
use campanile_model::clock::Timestamp;
use campanile_model::ids::LaunchKind;
use campanile_store::troubles::RecentLaunch;

/// The parts of the hour in the charts.
const MINUTES: usize = 60;

/// What happened in a minute.
#[derive(Clone, Default)]
struct Minute {
    succeeded: usize,
    failed: usize,
    /// How late launches started.
    lags: Vec<Duration>,
    /// How many runs there were at its end.
    runs: usize,
}

/// Shows four numbers, each with the hour that led to it.
pub(super) fn tiles(now: &Now) -> Markup {
    let minutes = minutes(&now.overview.recent, now.clock.now);
    let ended = minutes
        .iter()
        .map(|minute| minute.succeeded + minute.failed);
    let ended: usize = ended.sum();
    let failed: usize = minutes.iter().map(|minute| minute.failed).sum();
    let newest = minutes.iter().rev().nth(1);
    let newest = newest.map_or(0, |minute| minute.succeeded + minute.failed);
    let stacked = Vec::from_iter(minutes.iter().map(|it| (it.succeeded, it.failed)));
    let shares = Vec::from_iter(minutes.iter().map(|minute| {
        let all = minute.succeeded + minute.failed;
        (all > 0).then(|| minute.failed as f64 / all as f64)
    }));
    let mut lags = Vec::from_iter(minutes.iter().flat_map(|minute| &minute.lags).copied());
    lags.sort_unstable();
    let lag_lines = |percent| {
        Vec::from_iter(minutes.iter().map(|minute| {
            let mut lags = minute.lags.clone();
            lags.sort_unstable();
            at_percent(&lags, percent).map(|lag| lag.as_secs_f64())
        }))
    };
    let (median, late) = (lag_lines(50), lag_lines(99));
    let runs = Vec::from_iter(minutes.iter().map(|minute| Some(minute.runs as f64)));
    let share = percent(failed, ended);
    let (before_ok, before_failed) = now.same_hour;
    let before = before_ok + before_failed;
    let usual = (before > 0).then(|| before_failed as f64 / before as f64);
    let usual_line = vec![usual; MINUTES];
    let usual = usual.map(|_| percent(before_failed as usize, before as usize));
    let (running, queued) = (now.unfinished.running, now.unfinished.queued);
    html! {
        div.tiles {
            section.card.tile.w3 aria-labelledby="ended" {
                h2 #ended { "Launches ended a minute" }
                p { (newest) " " small { "now · " (ended) " in an hour" } }
                (charts::stacked(&stacked, &format!("Launches ended in each minute of the last hour: {ended}, of which {failed} failed")))
            }
            section.card.tile.w3 aria-labelledby="failed" {
                h2 #failed { "Failed" }
                p { span.bad-text[failed > 0] { (share) } " " small { (failed) " of " (ended) } }
                (charts::lines(&[("line usual", &usual_line), ("line", &shares)], &match &usual {
                    Some(usual) => format!("The share of failures in each minute of the last hour; in this hour of the 7 days before it was {usual}"),
                    None => "The share of failures in each minute of the last hour".to_owned(),
                }))
                @if let Some(usual) = &usual { div.far { "grey: " (usual) " in this hour of the 7 days before" } }
            }
            section.card.tile.w3 aria-labelledby="lag" {
                h2 #lag { "Start lag p50 · p99" }
                p {
                    @match (at_percent(&lags, 50), at_percent(&lags, 99)) {
                        (Some(median), Some(late)) => { (span(median)) " · " (span(late)) },
                        _ => small { "no launch on time" },
                    }
                }
                (charts::lines(&[("line second", &late), ("line", &median)], "How late launches started in each minute of the last hour"))
            }
            section.card.tile.w3 aria-labelledby="runs" {
                h2 #runs { "Runs" }
                p { (running) " " small { "running · " (queued) " queued" } }
                (charts::lines(&[("line", &runs)], "The runs at the end of each minute of the last hour"))
            }
        }
    }
}

/// Pure: sorts decisions into the minutes of the hour before `now`, the oldest first.
fn minutes(recent: &[RecentLaunch], now: Timestamp) -> Vec<Minute> {
    let from = now.minus(HOUR);
    let place = |at: Timestamp| {
        let since = (at >= from).then(|| at.since(from))?;
        Some((since.as_secs() as usize / 60).min(MINUTES - 1))
    };
    let mut minutes = vec![Minute::default(); MINUTES];
    for launch in recent {
        if let Some(minute) = launch
            .finished_at
            .and_then(place)
            .and_then(|place| minutes.get_mut(place))
        {
            let failed = has_failed(launch.status);
            minute.failed += usize::from(failed);
            minute.succeeded += usize::from(has_result(launch.status) && !failed);
        }
        let Some(start) = launch.started_at else {
            continue;
        };
        let is_on_time = launch.kind == LaunchKind::Schedule && launch.opened_at.is_none();
        if let Some(minute) = place(start)
            .filter(|_| is_on_time)
            .and_then(|place| minutes.get_mut(place))
        {
            minute.lags.push(start.since(launch.fire_time));
        }
        let end = launch.finished_at.unwrap_or(now);
        let first = place(start.max(from)).unwrap_or(0);
        let last = place(end).map_or(0, |last| {
            if launch.finished_at.is_some() {
                last
            } else {
                MINUTES
            }
        });
        for minute in minutes.iter_mut().take(last).skip(first) {
            minute.runs += 1;
        }
    }
    minutes
}

/// Returns the value of sorted ones that so many percent don't exceed.
fn at_percent(sorted: &[Duration], percent: usize) -> Option<Duration> {
    let last = sorted.len().checked_sub(1)?;
    sorted.get(last * percent / 100).copied()
}

fn percent(part: usize, all: usize) -> String {
    if all == 0 {
        return "0 %".to_owned();
    }
    let share = part as f64 * 100.0 / all as f64;
    if part == 0 || share >= 10.0 {
        format!("{share:.0} %")
    } else {
        format!("{share:.1} %")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use campanile_model::ids::{LaunchId, ScheduleId};
    use campanile_store::LaunchStatus;

    fn at(seconds: u64) -> Timestamp {
        Timestamp::EPOCH.plus(Duration::from_secs(100_000 + seconds))
    }

    #[test]
    fn launches_are_counted_in_the_minutes_in_which_they_ended() {
        let launch = |status, start, end| RecentLaunch {
            id: LaunchId::FIRST,
            schedule_id: ScheduleId::FIRST,
            package: String::new(),
            kind: LaunchKind::Schedule,
            status,
            reason: None,
            scheduled_time: at(start),
            slot_count: None,
            fire_time: at(start),
            decided_at: at(start),
            opened_at: None,
            started_at: Some(at(start + 1)),
            finished_at: end,
            recoveries: 0,
        };
        let recent = [
            launch(LaunchStatus::Succeeded, 0, Some(at(130))),
            launch(LaunchStatus::Failed, 60, Some(at(61))),
            launch(LaunchStatus::Running, 3_500, None),
        ];
        let minutes = minutes(&recent, at(3_600));
        let counts = |place: usize| {
            (
                minutes[place].succeeded,
                minutes[place].failed,
                minutes[place].runs,
            )
        };
        assert_eq!(minutes.len(), 60);
        assert_eq!(counts(0), (0, 0, 1));
        assert_eq!(counts(1), (0, 1, 1));
        assert_eq!(counts(2), (1, 0, 0));
        assert_eq!(counts(59), (0, 0, 1));
        assert_eq!(minutes[0].lags, [Duration::from_secs(1)]);
    }

    #[test]
    fn a_share_has_as_many_digits_as_it_needs() {
        let shown = [(0, 0), (0, 9), (1, 1_000), (131, 704), (1, 1)];
        let shown = shown.map(|(part, all)| percent(part, all));
        assert_eq!(shown, ["0 %", "0 %", "0.1 %", "19 %", "100 %"]);
    }
}
