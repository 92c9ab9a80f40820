//! The line below the log of `serve` at a terminal: the next slot, and what this host has done.

use std::time::Duration;

use tokio::sync::watch;

use crate::commands::top::span_text;
use crate::progress::Line;
use campanile_engine::{EndedLaunches, Engine};
use campanile_model::clock::{Clock, Timestamp};
use campanile_store::stats::{self, NextSlot};
use campanile_store::{Db, DbError};

/// The time between two drawings.
const PAUSE: Duration = Duration::from_secs(1);

/// Draw the line until this is dropped.
pub(super) async fn draw(db: &Db, clock: &Clock, engine: &Engine, stopping: watch::Receiver<bool>) {
    let line = Line::state("");
    loop {
        let text = if *stopping.borrow() {
            stopping_text(engine.running())
        } else {
            // The log reports a database that does not answer.
            let next = next(db).await.unwrap_or_default();
            serving_text(next.as_ref(), clock.now(), engine.running(), engine.ended())
        };
        line.say(text);
        tokio::time::sleep(PAUSE).await;
    }
}

async fn next(db: &Db) -> Result<Option<NextSlot>, DbError> {
    let next = stats::next_slots(&mut db.read().await?, 1).await?;
    Ok(next.into_iter().next())
}

fn serving_text(
    next: Option<&NextSlot>,
    now: Timestamp,
    running: usize,
    ended: EndedLaunches,
) -> String {
    let next = match next {
        Some(NextSlot { schedule, slot }) => {
            let seconds = (slot.micros() - now.micros()) as f64 / 1e6;
            if seconds < 0.5 {
                format!("`{schedule}` is due")
            } else {
                format!("`{schedule}` in {}", span_text(seconds))
            }
        }
        None => "nothing is due".to_owned(),
    };
    let EndedLaunches {
        succeeded,
        failed,
        cancelled,
    } = ended;
    let mut text = format!("{next}; {running} running, {succeeded} succeeded, {failed} failed");
    if cancelled > 0 {
        text += &format!(", {cancelled} cancelled");
    }
    text
}

fn stopping_text(running: usize) -> String {
    format!("stopping: {running} running; Ctrl-C again ends the host at once")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_what_is_next_and_what_was_done() {
        let at = |text: &str| text.parse::<Timestamp>().unwrap();
        let next = NextSlot {
            schedule: "hello".to_owned(),
            slot: at("2026-11-24T14:31:10Z"),
        };
        let ended = EndedLaunches {
            succeeded: 12,
            failed: 1,
            cancelled: 0,
        };
        let shown = |now: &str| serving_text(Some(&next), at(now), 2, ended);
        assert_eq!(
            shown("2026-11-24T14:30:00Z"),
            "`hello` in 1 min 10 s; 2 running, 12 succeeded, 1 failed"
        );
        assert!(shown("2026-11-24T14:31:10Z").starts_with("`hello` is due; "));
        assert!(shown("2026-11-24T14:31:20Z").starts_with("`hello` is due; "));
        let cancelled = EndedLaunches {
            cancelled: 3,
            ..ended
        };
        let none = serving_text(None, next.slot, 0, cancelled);
        assert_eq!(
            none,
            "nothing is due; 0 running, 12 succeeded, 1 failed, 3 cancelled"
        );
    }
}
