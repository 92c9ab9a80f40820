//! What commands print about a record whose old launches were removed.

use campanile_model::clock::{Clock, Timestamp};
use campanile_model::ids::LaunchId;
use campanile_store::{Db, retention};
use campanile_tests::{Place, on_both_empty};
use serde_json::Value;

use crate::site::{Site, stop, text};

on_both_empty!(
    commands_say_that_launches_were_removed,
    db_status_shows_the_size_of_the_record,
);

/// Return a site with a stopped host and the launches of `daily`, which an operator triggered.
fn site(place: Place, launches: usize) -> (Site, Vec<Value>) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("daily", "ok", &["--cron", "0 0 * * *"]);
    let launches = (0..launches)
        .map(|_| site.trigger_and_wait("daily"))
        .collect();
    stop(&mut host);
    (site, launches)
}

async fn remove(site: &Site, launches: &[LaunchId]) {
    let db = Db::open(&site.place().url).await.unwrap();
    let mut tx = db.write().await.unwrap();
    assert!(retention::lock(&mut tx).await.unwrap());
    let now = Clock::system().now();
    let removed = retention::remove(&mut tx, launches, now).await.unwrap();
    assert_eq!(removed, launches.len());
    tx.commit().await.unwrap();
    db.close().await;
}

fn id(launch: &Value) -> LaunchId {
    text(&launch["id"]).parse().unwrap()
}

async fn commands_say_that_launches_were_removed(place: Place) {
    let (site, launches) = site(place, 2);
    let [old, kept] = [&launches[0], &launches[1]];
    let before = site.json(["stats"]);
    remove(&site, &[id(old)]).await;

    let shown = site.run(["launch", "show", &text(&old["id"])]);
    shown.assert_refused(&[
        "retention has removed 1 launch of ",
        "`campanile stats` counts",
    ]);
    let logs = site.run(["run", "logs", &text(&old["run_id"])]);
    logs.assert_refused(&["retention has removed 1 launch of "]);
    // No launch of the day of this id was removed.
    let never = "01a3185c-5059-8d3c-9a6e-2833605df800";
    site.run(["launch", "show", never])
        .assert_refused(&["there is no launch 01a3185c"]);

    let list = site.run(["launch", "list", "--schedule", "daily"]);
    list.assert_stdout(&text(&kept["scheduled_time"]));
    list.assert_stderr("retention has removed launches that were decided up to");
    let first = site.run(["launch", "list", "--limit", "1"]);
    assert_eq!(first.stderr, "", "the list may have more");
    let why = site.ok([
        "schedule",
        "why",
        "daily",
        "--at",
        &text(&old["scheduled_time"]),
    ]);
    assert!(
        why.contains("1 launch of its slots was removed by retention"),
        "{why}"
    );

    // Whole days are counted: the removed launch is of today.
    let after = site.json(["stats", "--since", "48h"]);
    assert_eq!(after["succeeded"], before["succeeded"]);

    // The calls of the other launch went at their age.
    let run = text(&kept["run_id"]);
    assert_eq!(site.run(["run", "logs", &run]).stderr, "");
    let ended = text(&kept["finished_at"]).parse::<Timestamp>().unwrap();
    let ended = ended.minus(std::time::Duration::from_secs(20 * 86_400));
    let ended = site.place().backend.instant(ended);
    let sql = format!("UPDATE launch SET finished_at = {ended}; DELETE FROM task_run");
    site.execute(&sql).await;
    let logs = site.run(["run", "logs", &run]);
    assert_eq!(logs.code, 0, "{logs:?}");
    logs.assert_stderr("14days after the end of a launch (`retention.logs`)");
}

async fn db_status_shows_the_size_of_the_record(place: Place) {
    let (site, launches) = site(place, 2);
    let old = text(&launches[0]["finished_at"])
        .parse::<Timestamp>()
        .unwrap();
    let old = old.minus(std::time::Duration::from_secs(40 * 86_400));
    let old = site.place().backend.instant(old);
    site.execute(&format!(
        "UPDATE launch SET finished_at = {old} WHERE id = (SELECT id FROM launch ORDER BY id LIMIT 1)"
    ))
    .await;
    let status = site.json(["db", "status"]);
    assert_eq!(status["current"], true);
    let record = &status["record"];
    assert!(record["bytes"].as_i64().unwrap() > 100_000, "{record:#}");
    assert_eq!(record["oldest_launch"], launches[0]["scheduled_time"]);
    assert_eq!(record["complete_since"], Value::Null);
    let removable = &record["removable"];
    assert_eq!(removable["succeeded"], 1, "{removable}");
    assert_eq!(removable["at_least"], false);
    let tables = record["tables"].as_array().unwrap();
    let table = |name: &str| tables.iter().find(|table| table["table"] == name).unwrap();
    assert!(table("launch")["bytes"].as_i64().unwrap() > 0);
    // The bytes of the package are the largest part.
    let artifact = table("artifact")["bytes"].as_i64().unwrap();
    assert!(artifact > 100_000, "{tables:?}");
    if !site.place().url.is_shared() {
        assert_eq!(table("launch")["rows"], 2);
        let sum: i64 = tables
            .iter()
            .map(|table| table["bytes"].as_i64().unwrap())
            .sum();
        assert!(sum <= record["bytes"].as_i64().unwrap());
    }
    remove(&site, &[id(&launches[0])]).await;
    let record = site.json(["db", "status"])["record"].clone();
    assert_eq!(record["removable"]["succeeded"], 0);
    assert_ne!(record["complete_since"], Value::Null);
    let shown = site.ok(["db", "status"]);
    for part in [
        "oldest launch",
        "complete since",
        "past their age",
        "TABLE",
        "task_run",
    ] {
        assert!(shown.contains(part), "{shown}");
    }
}
