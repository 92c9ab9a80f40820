//! `schedule reset-cursor`, and how a cursor ahead of the clock is noticed.

use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, list, millis, stop, text};

on_both_empty!(
    a_cursor_ahead_of_the_clock_is_reported_at_once_and_reset,
    a_reset_that_could_launch_twice_is_refused,
    all_cursors_ahead_are_reset_by_one_command,
);

const HOUR: Duration = Duration::from_secs(3_600);

/// Move the cursor of every schedule to two hours from now, as a wrong clock does. Return it.
async fn move_cursors_ahead(site: &Site) -> Timestamp {
    let backend = site.place().backend;
    let ahead = Clock::system().now().plus(HOUR * 2);
    let sql = format!(
        "UPDATE schedule SET cursor_at = {}, next_slot = {}",
        backend.instant(ahead),
        backend.instant(ahead.plus(Duration::from_secs(1)))
    );
    site.execute(&sql).await;
    ahead
}

fn events(site: &Site, kind: &str) -> Vec<Value> {
    let mut events = list(site.json(["event", "list"]));
    events.retain(|event| event["kind"] == kind);
    events
}

async fn all_cursors_ahead_are_reset_by_one_command(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    for name in ["x", "y"] {
        site.add(name, "ok", &["--cron", "0 0 1 1 *"]);
    }
    stop(&mut host);
    move_cursors_ahead(&site).await;
    let all = ["schedule", "reset-cursor", "--all", "--by", "Ada"];
    assert_eq!(site.ok(all), "reset x\nreset y\n");
    assert_eq!(events(&site, "cursor_reset").len(), 2);
    assert_eq!(site.ok(all), "", "nothing is ahead any more");
    for wrong in [
        &["schedule", "reset-cursor"][..],
        &["schedule", "reset-cursor", "x", "--all"],
    ] {
        assert_eq!(site.run(wrong.iter().copied()).code, 2, "{wrong:?}");
    }
}

async fn a_cursor_ahead_of_the_clock_is_reported_at_once_and_reset(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("x", "ok", &["--every", "1s"]);
    let last = site.wait_for_launch("x", |row| row["status"] == "succeeded");
    stop(&mut host);
    let ahead = move_cursors_ahead(&site).await;

    let mut host = site.serve();
    let line = host.wait_for_line("ahead of the clock");
    assert!(
        line.contains("schedule=x") && line.contains("campanile schedule reset-cursor x"),
        "{line}"
    );
    let noticed = events(&site, "cursor_ahead");
    assert_eq!(noticed.len(), 1, "{noticed:?}");
    assert_eq!(noticed[0]["subject"], "x");
    let health = site.run(["health"]);
    assert_eq!(health.code, 1, "{health:?}");
    let parts = ["`x`", &ahead.to_string(), "schedule reset-cursor x"];
    assert!(
        parts.iter().all(|part| health.stdout.contains(part)),
        "{health:?}"
    );

    let reset = site.run(["schedule", "reset-cursor", "x", "--by", "Ada"]);
    assert_eq!(
        (reset.code, reset.stdout.as_str()),
        (0, "reset x\n"),
        "{reset:?}"
    );
    let recorded = events(&site, "cursor_reset");
    assert_eq!((recorded.len(), &recorded[0]["subject"]), (1, &json!("x")));
    let detail = text(&recorded[0]["detail"]);
    assert!(
        detail.starts_with(&format!("by Ada: from {ahead} to ")),
        "{detail}"
    );
    let until = millis(&last["scheduled_time"]);
    site.wait_for_launch("x", |row| {
        millis(&row["scheduled_time"]) > until + 1_000 && row["status"] == "succeeded"
    });
    site.wait_until_healthy();
    stop(&mut host);
}

async fn a_reset_that_could_launch_twice_is_refused(place: Place) {
    let site = Site::with_guests(place);
    site.add("x", "ok", &["--every", "1h"]);
    let reset = |more: &[&str]| {
        let fixed = ["schedule", "reset-cursor", "x"];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };
    reset(&[]).assert_refused(&["`x`", "not ahead of the clock", "schedule backfill x"]);
    let ahead = move_cursors_ahead(&site).await;
    reset(&["--to", "now+1h"]).assert_refused(&["ahead of the clock", "earlier time"]);
    reset(&["--to", "now-1h"]).assert_refused(&["`x` was added, changed or resumed at"]);
    reset(&["--to", "noon"]).assert_refused(&["`noon`", "RFC 3339"]);
    let unknown = site.run(["schedule", "reset-cursor", "y"]);
    unknown.assert_refused(&["no schedule named `y`"]);
    let show = || site.json(["schedule", "show", "x"]);
    assert_eq!(show()["cursor"], ahead.to_string());
    assert!(events(&site, "cursor_reset").is_empty());
    // A paused schedule has no next slot, and gets one when it is resumed.
    site.ok(["schedule", "pause", "x"]);
    site.ok(["schedule", "reset-cursor", "x"]);
    assert_eq!(show()["next_slot"], Value::Null);
    site.ok(["schedule", "resume", "x"]);
    assert!(millis(&show()["next_slot"]) < ahead.micros() / 1_000);
}
