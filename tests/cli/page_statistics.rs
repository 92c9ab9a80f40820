//! What pages show of the rollup: success, the grid of the schedules, heat maps and histograms, and the statistics.

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::rollup::Period;
use campanile_tests::{Place, on_both_empty};
use serde_json::json;

use crate::api::Api;
use crate::browser::{Browser, assert_is_page, token};
use crate::site::{list, text};

on_both_empty!(
    schedules_show_a_day_and_a_month,
    a_schedule_shows_a_week_and_a_year,
    statistics_agree_with_the_launches,
);

/// What a row of the rollup counts: succeeded, failed, skipped, late.
type Numbers = [i64; 4];

/// Adds rows for a schedule and its package: for periods so many hours or days ago.
async fn add_rows(api: &Api, schedule: &str, rows: &[(Period, u32, Numbers)]) -> Timestamp {
    let now = Clock::system().now();
    let backend = api.site.place().backend;
    for (period, before, [succeeded, failed, skipped, late]) in rows {
        let start = period.start(now).minus(period.length() * *before);
        let ended = succeeded + failed;
        // All took between 1 and 2 s, and started within 16 ms.
        let histogram = |place: u8| match ended {
            0 => backend.bytes(""),
            ended => backend.bytes(&format!("{place:02x}{ended:02x}")),
        };
        let (durations, lags) = (histogram(10), histogram(1));
        let values = format!(
            "'{period}', {}, {succeeded}, {failed}, {skipped}, 0, {late}, {}, {durations}, {lags}",
            backend.instant(start),
            ended * 1_500_000
        );
        api.site
            .execute(&format!(
                "INSERT INTO schedule_rollup SELECT id, {values} FROM schedule WHERE name = '{schedule}';
                 INSERT INTO package_rollup VALUES ('guests', {values})"
            ))
            .await;
    }
    now
}

#[track_caller]
fn has(body: &str, parts: &[&str]) {
    for part in parts {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
}

/// Returns the part of a page between two texts.
#[track_caller]
fn between<'b>(body: &'b str, from: &str, to: &str) -> &'b str {
    let (_, rest) = body
        .split_once(from)
        .unwrap_or_else(|| panic!("no `{from}`: {body}"));
    rest.split_once(to).map_or(rest, |(part, _)| part)
}

async fn schedules_show_a_day_and_a_month(place: Place) {
    let api = Api::start(place, "");
    for name in ["fine", "flaky", "quiet"] {
        api.add(name, "ok");
    }
    let rows = [
        (Period::Hour, 2, [30, 0, 0, 0]),
        (Period::Hour, 5, [10, 0, 0, 0]),
        (Period::Day, 0, [40, 0, 0, 0]),
    ];
    add_rows(&api, "fine", &rows).await;
    // Beyond the 24 hours, and the 30 days, nothing counts.
    let rows = [
        (Period::Hour, 1, [3, 1, 0, 0]),
        (Period::Hour, 4, [0, 0, 7, 0]),
        (Period::Hour, 24, [0, 90, 0, 0]),
        (Period::Day, 1, [96, 4, 7, 0]),
        (Period::Day, 12, [1, 2, 0, 0]),
        (Period::Day, 30, [0, 90, 0, 0]),
    ];
    let now = add_rows(&api, "flaky", &rows[..3]).await;
    let backend = api.site.place().backend;
    for (period, before, [succeeded, failed, skipped, _]) in &rows[3..] {
        let start = backend.instant(period.start(now).minus(period.length() * *before));
        let empty = backend.bytes("");
        api.site
            .execute(&format!(
                "INSERT INTO schedule_rollup SELECT id, '{period}', {start}, {succeeded}, {failed}, {skipped}, 0, 0, 0, {empty}, {empty}
                FROM schedule WHERE name = 'flaky'"
            ))
            .await;
    }
    let browser = Browser::of(&api, &token(&api, "viewer"));

    let shown = browser.page("/schedules?sort=success");
    has(
        &shown,
        &[
            "Success 24 h",
            "75.0 %",
            "3 of 4 launches",
            "100 %",
            "Grid, 24 hours",
        ],
    );
    let place = |name: &str| shown.find(&format!("href=\"/schedules/{name}\""));
    assert!(
        place("flaky") < place("fine") && place("fine") < place("quiet"),
        "{shown}"
    );

    let grid = browser.page("/schedules?view=grid&sort=success");
    let row = between(&grid, "href=\"/schedules/flaky\"", "class=\"label\"");
    let hour = period_name(Period::Hour, now, 1);
    let words = format!(
        "<title>1 hour with a failure, 1 hour with skipped slots; 1 failed, 7 skipped, 3 succeeded in all; the worst {hour}: 1 failed, 3 succeeded</title>"
    );
    has(
        row,
        &[
            &words,
            "class=\"bad2\"",
            "class=\"skip\"",
            "class=\"cut\"",
            ">75.0 %</a>",
        ],
    );
    // The failures of the row lead to their launches.
    let link = between(row, "class=\"after\"><a href=\"", "\"").replace("&amp;", "&");
    has(
        &link,
        &["/launches?schedule=flaky&status=failed%2Cabandoned%2Cunknown&since="],
    );
    browser.page(&link);
    let fine = between(&grid, "href=\"/schedules/fine\"", "class=\"label\"");
    has(fine, &["class=\"good3\"", "class=\"good1\"", "100 %"]);
    assert!(!fine.contains("class=\"cut\""), "{fine}");
    let quiet = between(&grid, "href=\"/schedules/quiet\"", "class=\"label\"");
    has(quiet, &["<title>no launches</title>", "–"]);
    // The axis has words, and the other views keep the sort.
    has(
        &grid,
        &[
            "text-anchor=\"middle\"",
            "/schedules?sort=success&amp;view=grid&amp;span=30d",
        ],
    );

    let month = browser.page("/schedules?view=grid&span=30d");
    let row = between(&month, "href=\"/schedules/flaky\"", "class=\"label\"");
    let day = period_name(Period::Day, now, 12);
    let words = format!(
        "2 days with a failure, 1 day with skipped slots; 6 failed, 7 skipped, 97 succeeded in all; the worst {day}: 2 failed"
    );
    has(row, &[&words]);
    for path in ["/schedules?view=tiles", "/schedules?view=grid&span=1y"] {
        let answer = browser.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert_is_page(&answer);
    }
}

/// Returns the name of a day in a heat map.
fn short_day(now: Timestamp, before: u32) -> String {
    let start = now.minus(Period::Day.length() * before);
    start.to_chrono().format("%b %-d").to_string()
}

fn period_name(period: Period, now: Timestamp, before: u32) -> String {
    let start = period.start(now).minus(period.length() * before);
    let format = match period {
        Period::Hour => "%H:%M",
        Period::Day => "%Y-%m-%d",
    };
    start.to_chrono().format(format).to_string()
}

async fn a_schedule_shows_a_week_and_a_year(place: Place) {
    let api = Api::start(place, "");
    api.add("nightly", "ok");
    let launch = text(&api.post("/api/v1/schedules/nightly/trigger", json!({}))["launch"]);
    api.end_of(&launch);
    let rows = [
        (Period::Hour, 3, [5, 2, 0, 0]),
        (Period::Hour, 30, [90, 2, 4, 0]),
        (Period::Day, 200, [0, 3, 0, 0]),
        (Period::Day, 60, [11, 0, 0, 0]),
    ];
    let now = add_rows(&api, "nightly", &rows).await;
    let browser = Browser::of(&api, &token(&api, "viewer"));
    let week = browser.page("/schedules/nightly");
    // The launch of this test isn't sealed yet, and counts.
    let tile = between(&week, "Success, 24 h", "</section>");
    has(
        tile,
        &["75.0 %", "2 failed", "7 days: 96.0 % of 100 launches"],
    );
    let hour = period_name(Period::Hour, now, 3);
    has(
        &week,
        &[
            "Failures by hour",
            "4 of 100 launches failed",
            &format!(" {hour}: 2 failed, 5 succeeded</title>"),
        ],
    );
    let histogram = between(&week, "How long it takes", "</section>");
    has(histogram, &["p50 about 1.5 s"]);
    // On a busy machine the launch of this test may take as long as the others.
    assert!(
        ["99", "100"]
            .iter()
            .any(|count| histogram.contains(&format!("1.0 s to 2.0 s: {count} launches"))),
        "{histogram}"
    );
    has(
        &week,
        &[
            "/schedules/nightly?span=12w#failures",
            "/schedules/nightly?span=1y#failures",
        ],
    );

    let weeks = browser.page("/schedules/nightly?span=12w");
    has(
        &weeks,
        &[
            "Failures by day",
            "0 of 12 launches failed",
            &format!("{}: 11 succeeded", short_day(now, 60)),
        ],
    );
    let year = browser.page("/schedules/nightly?span=1y");
    has(
        &year,
        &[
            "3 of 15 launches failed",
            &format!("{}: 3 failed", short_day(now, 200)),
        ],
    );
    has(&year, &["3 days with a slot, 1 day with a failure"]);
    let wrong = browser.get("/schedules/nightly?span=2d");
    assert_eq!(wrong.status, 400);
    has(&wrong.body, &["can be 7d, 12w, 1y"]);
}

async fn statistics_agree_with_the_launches(place: Place) {
    let api = Api::start(place, "");
    for (name, task, launches) in [("a-good", "ok", 3), ("b-bad", "fail_permanent", 2)] {
        api.add(name, task);
        for _ in 0..launches {
            let path = format!("/api/v1/schedules/{name}/trigger");
            let launch = text(&api.post(&path, json!({}))["launch"]);
            api.end_of(&launch);
        }
    }
    let browser = Browser::of(&api, &token(&api, "viewer"));
    let shown = browser.page("/statistics?by=schedule");
    for row in list(api.get("/api/v1/stats/schedules?since=24h")) {
        let cells = between(
            &shown,
            &format!("href=\"/schedules/{}\"", text(&row["schedule"])),
            "</tr>",
        );
        let cells = Vec::from_iter(cells.split("<td class=\"number").skip(1).map(|cell| {
            let cell = cell.split_once('>').expect("a cell").1;
            let text = cell.split("</td>").next().expect("an end");
            text.rsplit_once("</span>").map_or(text, |(text, _)| {
                text.rsplit_once('>').map_or(text, |(_, text)| text)
            })
        }));
        let number = |key: &str| row[key].as_i64().expect("a number");
        assert_eq!(cells[0], number("launches").to_string(), "{row}");
        assert_eq!(cells[2], number("failed").to_string(), "{row}");
        assert_eq!(cells[3], number("skipped").to_string(), "{row}");
        let rate = row["success_rate"].as_f64().expect("a rate");
        assert_eq!(cells[1], format!("{:.0} %", rate * 100.0), "{row}");
    }
    // All of them are of one package.
    let packages = browser.page("/statistics");
    let row = between(&packages, "href=\"/packages/guests\"", "</tr>");
    has(row, &[">5</td>", "60.0 %", ">2</td>"]);
    has(
        &packages,
        &[
            "campanile stats --by package --since 24h",
            "href=\"/statistics?span=30d\"",
            "href=\"/statistics\" data-key=\"m\"",
        ],
    );
    let sorted = browser.page("/statistics?by=schedule&sort=success&span=7d");
    assert!(
        sorted.find("/schedules/b-bad") < sorted.find("/schedules/a-good"),
        "{sorted}"
    );
    has(
        &sorted,
        &[
            "2 schedules",
            "Success ▾",
            "campanile stats --by schedule --since 7days",
        ],
    );
    for path in [
        "/statistics?by=host",
        "/statistics?sort=x",
        "/statistics?span=1y",
    ] {
        let answer = browser.get(path);
        assert_eq!(answer.status, 400, "{path}");
        assert_is_page(&answer);
    }
}
