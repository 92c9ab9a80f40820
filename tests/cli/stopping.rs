//! The orderly stop of a host: running launches finish, or are handed back and run again.

use campanile_tests::{Place, on_both_empty};
use rustix::process::Signal;
use serde_json::json;

use crate::site::{Site, eventually, millis};

on_both_empty!(
    a_stopping_host_finishes_its_running_launches,
    a_launch_that_outlasts_the_drain_is_handed_back_and_run_again,
);

async fn a_stopping_host_finishes_its_running_launches(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    for signal in [Signal::TERM, Signal::INT] {
        let mut host = site.serve();
        let schedule = if signal == Signal::TERM {
            "term"
        } else {
            "int"
        };
        site.ok([
            "schedule",
            "add",
            schedule,
            "--package",
            "guests",
            "--task",
            "sleep",
            "--at",
            "2099-01-01T00:00:00Z",
        ]);
        let launch = site.trigger(schedule, &json!({"ms": 2_000}));
        // On a busy machine it may have ended before this is read.
        site.wait_for_launch(schedule, |row| !row["started_at"].is_null());
        host.signal(signal);
        host.wait_for_line("stopping");
        let status = host.wait_exit();
        assert_eq!(status.code(), Some(0), "{:#?}", host.stderr_lines());
        assert!(host.stdout_lines().is_empty());
        let row = site.wait_until_ended(schedule, &launch);
        assert_eq!(row["status"], "succeeded", "{row:#}");
        assert_eq!(
            site.run_of(&row)["tasks"][0]["output"],
            json!({"slept_ms": 2_000})
        );
        let health = site.run(["health"]);
        assert_eq!(health.code, 1, "no host serves: {health:?}");
        health.assert_stdout("the scheduler is stopped");
    }
}

async fn a_launch_that_outlasts_the_drain_is_handed_back_and_run_again(place: Place) {
    let site = Site::new(place);
    std::fs::create_dir(site.folder().join("effects")).expect("a folder");
    site.configure("[host]\ndrain = '1s'\n");
    site.copy_package("append");
    site.sidecar(
        "append",
        "[[grants.directories]]\nhost = '../effects'\nguest = '/out'\naccess = 'write'\n",
    );
    let effects = || {
        let file = site.folder().join("effects/effects.log");
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().map(str::to_owned).collect::<Vec<String>>()
    };
    let effect = |nth: usize| {
        eventually(|| {
            let lines = effects();
            lines.get(nth).cloned().ok_or_else(|| format!("{lines:?}"))
        })
    };
    let mut host = site.serve();
    site.ok([
        "schedule",
        "add",
        "slow",
        "--package",
        "append",
        "--at",
        "2099-01-01T00:00:00Z",
    ]);
    let launch = site.trigger("slow", &json!({"after_ms": 600_000}));
    let first = effect(0);
    let before = site.wait_for_launch("slow", |row| row["status"] == "running");
    host.terminate();
    assert_eq!(
        host.wait_exit().code(),
        Some(0),
        "{:#?}",
        host.stderr_lines()
    );
    host.wait_for_line("handed_back=1");
    let handed_back = site.launches("slow").remove(0);
    assert_eq!(handed_back["id"], launch.as_str());
    assert!(handed_back["finished_at"].is_null(), "{handed_back:#}");

    let _host = site.serve();
    let second = effect(1);
    let slot = millis(&before["scheduled_time"]);
    for (line, which) in [(first, "first"), (second, "recovery")] {
        let fields: Vec<&str> = line.split(' ').collect();
        assert_eq!((fields[0], fields[2]), (launch.as_str(), which), "{line}");
        assert_eq!(millis(&json!(fields[3])), slot, "{line}");
    }
    let row = site.wait_for_launch("slow", |row| row["status"] == "running");
    assert_eq!(
        (&row["id"], &row["recoveries"]),
        (&json!(launch), &json!(1))
    );
    assert_ne!(
        row["run_id"], before["run_id"],
        "a new run of the same launch"
    );
    let runs = site.json(["run", "list", "--schedule", "slow"]);
    assert_eq!(
        (&runs[0]["status"], &runs[0]["is_recovery"]),
        (&json!("running"), &json!(true))
    );
    assert_eq!(
        (&runs[1]["status"], &runs[1]["is_recovery"]),
        (&json!("lost"), &json!(false))
    );
    assert_eq!(effects().len(), 2);
}
