//! The tiles: a schedule in four numbers.

use maud::{Markup, html};

use super::super::words::{counted, moment, span, time};
use super::Seen;
use super::pictures::DRAWN;

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
    let (failed, all) = seen.history.failures(DRAWN);
    let (failed_of_all, whole) = seen.history.failures(usize::MAX);
    html! {
        section.card.tile.w3 aria-labelledby="tile-success" {
            h2 #tile-success { "Success" @if all > 0 { ", last " (counted(all as u64, "result")) } }
            p {
                @if all == 0 { "–" } @else {
                    span.bad-text[failed > 0] { (percent(all - failed, all)) } " "
                    small { @if failed > 0 { (failed) " failed" } }
                }
            }
            @if whole > all {
                div.far { "of all " (whole) @if let Some(since) = seen.history.since() { " since " (time(since, seen.clock)) } ": " (percent(whole - failed_of_all, whole)) }
            }
        }
    }
}

/// Returns a share in percent. It's 100 or 0 only for all or none.
fn percent(part: usize, all: usize) -> String {
    let share = part as f64 * 100.0 / all.max(1) as f64;
    if part == all || part == 0 {
        format!("{share:.0} %")
    } else {
        format!("{:.1} %", share.clamp(0.1, 99.9))
    }
}

fn takes(seen: &Seen) -> Markup {
    let of = |percent| seen.history.at_percent(percent);
    html! {
        section.card.tile.w3 aria-labelledby="tile-takes" {
            h2 #tile-takes { "Takes p50 · p95" }
            p { @if let (Some(middle), Some(late)) = (of(50), of(95)) { (span(middle)) " · " (span(late)) } @else { "–" } }
            @if let Some(limit) = seen.limit { div.far { "a call is stopped after " (span(limit)) } }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_whole_only_for_all_or_none() {
        assert_eq!(percent(0, 9), "0 %");
        assert_eq!(percent(9, 9), "100 %");
        assert_eq!(percent(9_999, 10_000), "99.9 %");
        assert_eq!(percent(50, 90), "55.6 %");
    }
}
