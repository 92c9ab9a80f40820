//! The tiles: a schedule in four numbers.

use maud::{Markup, html};

use super::super::charts::percent;
use super::super::words::{counted, moment, span, time};
use super::Seen;

/// The slots after the next that its tile has.
const THEN: usize = 4;

/// Shows the next slot, how launches went and how long they take, and the last success.
pub(super) fn tiles(seen: &Seen) -> Markup {
    html! {
        div.tiles { (next(seen)) (success(seen)) (takes(seen)) (last_success(seen)) }
    }
}

fn next(seen: &Seen) -> Markup {
    let mut coming = seen.slots.iter().filter(|slot| !slot.is_skipped);
    let next = coming.next();
    let then = Vec::from_iter(coming.take(THEN));
    let is_paused = !seen.row().state.enabled;
    html! {
        section.card.tile.w3 aria-labelledby="tile-next" {
            h2 #tile-next { "Next" }
            p {
                @match (next, is_paused) {
                    (_, true) => "paused",
                    (Some(next), _) => (moment(next.at, seen.clock)),
                    (None, _) => "none",
                }
            }
            @if !then.is_empty() {
                div.far {
                    "then " @for (place, slot) in then.iter().enumerate() { @if place > 0 { " · " } (time(slot.at, seen.clock)) }
                }
            }
        }
    }
}

fn success(seen: &Seen) -> Markup {
    let (day, week) = seen.long.day_and_week(seen.clock.now);
    html! {
        section.card.tile.w3 aria-labelledby="tile-success" {
            h2 #tile-success { "Success, 24 h" }
            p {
                @if day.ended() == 0 { "–" } @else {
                    span.bad-text[day.failed > 0] { (percent(day.succeeded, day.ended())) } " "
                    small { @if day.failed > 0 { (day.failed) " failed" } }
                }
            }
            div.far {
                @if week.ended() > 0 { "7 days: " (percent(week.succeeded, week.ended())) " of " (counted(week.ended().unsigned_abs(), "launch")) ". " }
                (seen.long.note(seen.clock))
            }
        }
    }
}

fn takes(seen: &Seen) -> Markup {
    let of = |percent| seen.history.at_percent(percent);
    html! {
        section.card.tile.w3 aria-labelledby="tile-takes" {
            h2 #tile-takes { "Takes p50 · p95" }
            p { @if let (Some(middle), Some(late)) = (of(50), of(95)) { (span(middle)) " · " (span(late)) } @else { "–" } }
            div.far {
                @if seen.history.succeeded() > 0 { "of the newest " (counted(seen.history.succeeded() as u64, "success")) ". " }
                @if let Some(limit) = seen.limit { "A call is stopped after " (span(limit)) "." }
            }
        }
    }
}

fn last_success(seen: &Seen) -> Markup {
    let streak = seen.history.streak;
    let failing = streak.filter(|streak| streak.streak > 0);
    let longest = seen.history.longest_streak();
    html! {
        section.card.tile.w3 aria-labelledby="tile-last" {
            h2 #tile-last { "Last success" }
            p { @if let Some(at) = streak.and_then(|streak| streak.last_success_at) { (moment(at, seen.clock)) } @else { "never" } }
            div.far {
                @match failing {
                    Some(failing) => {
                        (counted(failing.streak.unsigned_abs(), "failure")) " since then"
                        @if let Some(since) = failing.failing_since { ", the first " (moment(since, seen.clock)) }
                    },
                    None if longest > 1 => { "longest row of failures: " (longest) },
                    None => "",
                }
            }
        }
    }
}
