//! `campanile plan`: its forecasts, and the requests that it refuses.

use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, keys, list};

on_both_empty!(
    plan_shows_an_hour_with_a_chart,
    plan_respects_capacity_and_names_paused_schedules,
    plan_shows_the_decisions_after_an_outage,
    plan_diff_compares_another_schedules_file,
    plan_diff_leaves_out_a_schedule_that_the_file_removes,
    plan_refuses_invalid_times_and_names,
);

const HOUR_US: i64 = 3_600_000_000;

/// Return the start of the hour after the next.
fn next_full_hour() -> Timestamp {
    let now = Clock::system().now().micros();
    Timestamp::from_micros((now.div_euclid(HOUR_US) + 2) * HOUR_US)
}

fn minutes(after: Timestamp, minutes: u64) -> Timestamp {
    after.plus(Duration::from_secs(60 * minutes))
}

/// Return a site with the package `noop` and these schedules, without a running host.
fn site(place: Place, schedules: &[(&str, &str)]) -> Site {
    let site = Site::new(place);
    site.copy_package("noop");
    let host = site.serve();
    for (name, cron) in schedules {
        site.ok(["schedule", "add", name, "--package", "noop", "--cron", cron]);
    }
    drop(host);
    site
}

async fn plan_shows_an_hour_with_a_chart(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let from = next_full_hour();
    let to = minutes(from, 60);
    let (from_text, to_text) = (from.to_string(), to.to_string());
    let args = ["plan", "--from", &from_text, "--to", &to_text];
    let output = site.run(args);
    let gap = "·".repeat(14);
    let label = from_text[..16].replace('T', " ");
    let expected = format!(
        "SCHEDULE  LAUNCHES  SKIPPED  FIRST                 NEXT SLOT             DURATION  PEAK  LAG
quarter   4         0        {from}  {to}  ~1s       1     0s

starts per minute, at most 1, in UTC:
{label}  █{gap}█{gap}█{gap}█{gap}  4

at most 1 of 512 possible runs at one time, first at {from}
a launch waits at most 0s
"
    );
    assert_eq!(
        (output.stdout.as_str(), output.code),
        (expected.as_str(), 0)
    );
    assert_eq!(
        output.stderr,
        "~ marks a guessed duration: no launch of that schedule has succeeded yet\n"
    );
    let rows = site.ok(args.into_iter().chain(["--rows"]));
    let rows: Vec<&str> = rows.lines().take(5).collect();
    let expected = [0, 15, 30, 45].map(|after| {
        let slot = minutes(from, after);
        format!("{slot}  quarter   schedule  launched  -       {slot}  1")
    });
    assert_eq!(rows[1..], expected);
}

async fn plan_respects_capacity_and_names_paused_schedules(place: Place) {
    let hourly = "0 * * * *";
    let names = ["a", "b", "c", "d"];
    let site = site(place, &names.map(|name| (name, hourly)));
    let pause = ["schedule", "pause", "--by", "ada"];
    site.ok(pause.into_iter().chain(["c"]));
    let until_args = ["--until", "2099-01-01T00:00:00Z"];
    site.ok(pause.into_iter().chain(["d"]).chain(until_args));
    site.configure("[host]\nruns_max = 1\n");
    let from = next_full_hour();
    let (from_text, to_text) = (from.to_string(), minutes(from, 120).to_string());
    let args = ["plan", "--from", &from_text, "--to", &to_text];
    let plan = site.json(args);
    let expected_keys = [
        "capacity",
        "changes",
        "cut_at",
        "from",
        "lag_ms_max",
        "lag_of",
        "launches",
        "omitted",
        "outages",
        "peak",
        "recovered",
        "refused",
        "rows",
        "schedules",
        "skipped",
        "starts",
        "to",
    ];
    assert_eq!(keys(&plan), expected_keys);
    assert_eq!(plan["capacity"], 1);
    assert_eq!(plan["peak"], json!({ "running": 1, "at": from }));
    assert_eq!(
        (&plan["launches"], &plan["lag_ms_max"]),
        (&json!(4), &json!(1_000))
    );
    let until = "it is paused by ada until 2099-01-01T00:00:00Z, and resumes then";
    let omitted = json!([
        { "schedule": "c", "reason": "it is paused by ada" },
        { "schedule": "d", "reason": until },
    ]);
    assert_eq!(plan["omitted"], omitted);
    let starts = json!([
        { "at": from, "count": 2 },
        { "at": minutes(from, 60), "count": 2 },
    ]);
    assert_eq!(plan["starts"], starts);
    let schedules = list(plan["schedules"].clone());
    let expected_keys = [
        "duration_from",
        "duration_ms",
        "failing_since",
        "first",
        "lag_ms_max",
        "launches",
        "missing_labels",
        "next_slot",
        "peak",
        "schedule",
        "skipped",
    ];
    assert_eq!(
        schedules.iter().map(keys).collect::<Vec<_>>(),
        [expected_keys, expected_keys]
    );
    assert_eq!(schedules[0]["next_slot"], json!(minutes(from, 120)));
    let expected_keys = [
        "decided_at",
        "decision",
        "finished_at",
        "fire_time",
        "id",
        "kind",
        "lag_ms",
        "last_scheduled_time",
        "overlaps",
        "reason",
        "recoveries",
        "schedule",
        "scheduled_time",
        "slot_count",
        "started_at",
        "status",
    ];
    assert_eq!(keys(&plan["rows"][0]), expected_keys);

    // The forecast of one schedule counts the capacity that the others use.
    let one = site.json(args.into_iter().chain(["--schedule", "b"]));
    let rows = list(one["rows"].clone());
    let all_rows = list(plan["rows"].clone());
    let all_rows = all_rows.into_iter().filter(|row| row["schedule"] == "b");
    assert_eq!(rows, all_rows.collect::<Vec<Value>>());
    assert_eq!(one["launches"], 2);
}

async fn plan_shows_the_decisions_after_an_outage(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let from = next_full_hour();
    let at = |after| minutes(from, after);
    let outage = format!("{from}..{}", at(60));
    let stdout = site.ok(["plan", "--outage", &outage]);
    let (record, rest) = stdout.split_once("\n\n").expect("a paragraph of rows");
    let expected = format!(
        "decisions when a host starts at {}:
SCHEDULED TIME                               SCHEDULE  KIND      DECISION  REASON     FIRE TIME             SLOT COUNT
{} … {}  quarter   schedule  skipped   coalesced  -                     3
{}                         quarter   catchup   queued    -          {}  1
{}                         quarter   schedule  launched  -          {}  1",
        at(60),
        from,
        at(30),
        at(45),
        at(45),
        at(60),
        at(60),
    );
    assert_eq!(record, expected);
    assert!(rest.contains("quarter  coalesced  3"), "{rest}");
}

/// Return a launch that a schedules file adds or removes, as `plan --diff --json` shows it.
fn launch_of_change(schedule: &str, change: &str, slot: Timestamp) -> Value {
    let (before, after) = match change {
        "added" => (None, Some(slot)),
        _ => (Some(slot), None),
    };
    json!({
        "change": change,
        "scheduled_time": slot,
        "schedule": schedule,
        "start_before": before,
        "start_after": after,
    })
}

async fn plan_diff_compares_another_schedules_file(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let file = site.folder().join("new.toml");
    let file_text = "[[schedules]]\nname = \"half\"\npackage = \"noop\"\ncron = \"*/30 * * * *\"\n";
    std::fs::write(&file, file_text).expect("a schedules file");
    let before = site.json(["schedule", "list"]);
    let from = next_full_hour();
    let (from_text, to_text) = (from.to_string(), minutes(from, 60).to_string());
    let args = [
        "plan", "--from", &from_text, "--to", &to_text, "--diff", "new.toml",
    ];
    let plan = site.json(args);
    let changes = json!([{
        "schedule": "half",
        "added": [from, minutes(from, 30)],
        "removed": [],
        "moved": [],
        "first": from,
        "launches": [launch_of_change("half", "added", from), launch_of_change("half", "added", minutes(from, 30))],
    }]);
    assert_eq!(plan["changes"], changes);
    assert_eq!(
        (&plan["launches"], &plan["refused"]),
        (&json!(6), &json!([]))
    );
    let stdout = site.ok(args.into_iter().chain(["--rows"]));
    let lines: Vec<&str> = stdout.lines().take(6).collect();
    assert_eq!(lines[1], format!("half      2      0        0      {from}"));
    assert_eq!(
        lines[4],
        format!("added   {from}  half      -             {from}")
    );
    // The forecast changed no schedule.
    assert_eq!(site.json(["schedule", "list"]), before);

    // The file cannot take the name of a schedule of another origin.
    std::fs::write(&file, file_text.replace("half", "quarter")).expect("a schedules file");
    let output = site.run(args);
    assert_eq!(output.code, 1, "{output:?}");
    output.assert_stderr("`quarter` would be refused");
}

async fn plan_diff_leaves_out_a_schedule_that_the_file_removes(place: Place) {
    let site = Site::new(place);
    site.copy_package("noop");
    let write_file = |file: &str, names: &[&str]| {
        let schedules = names.iter().map(|name| {
            format!("[[schedules]]\nname = '{name}'\npackage = 'noop'\ncron = '*/30 * * * *'\n")
        });
        let text: String = schedules.collect();
        std::fs::write(site.folder().join(file), text).expect("a schedules file");
    };
    write_file("schedules.toml", &["gone", "half"]);
    write_file("new.toml", &["half"]);
    drop(site.serve());
    let from = next_full_hour();
    let (from_text, to_text) = (from.to_string(), minutes(from, 60).to_string());
    let args = [
        "plan", "--from", &from_text, "--to", &to_text, "--diff", "new.toml",
    ];
    let omitted = json!([{ "schedule": "gone", "reason": "the file removes it" }]);
    let changes = json!([{
        "schedule": "gone",
        "added": [],
        "removed": [from, minutes(from, 30)],
        "moved": [],
        "first": from,
        "launches": [launch_of_change("gone", "removed", from), launch_of_change("gone", "removed", minutes(from, 30))],
    }]);
    for (more, launches) in [(&[][..], 2), (&["--schedule", "gone"], 0)] {
        let args = args.into_iter().chain(more.iter().copied());
        let output = site.run(args.chain(["--json"]));
        assert_eq!(output.code, 0, "{output:?}");
        let plan = output.json();
        assert_eq!(plan["omitted"], omitted, "{more:?}");
        assert_eq!(plan["changes"], changes, "{more:?}");
        assert_eq!(plan["launches"], launches, "{more:?}");
    }
    let output = site.run(args.into_iter().chain(["--schedule", "gone"]));
    assert_eq!(output.code, 0, "{output:?}");
    output.assert_stdout(&format!("gone      0      2        0      {from}"));
    output.assert_stderr("`gone` is left out: the file removes it");
    // The plan of another schedule does not mention it.
    let half = site.json(args.into_iter().chain(["--schedule", "half"]));
    let summary = (&half["omitted"], &half["changes"], &half["launches"]);
    assert_eq!(summary, (&json!([]), &json!([]), &json!(2)));
}

async fn plan_refuses_invalid_times_and_names(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let later = next_full_hour();
    let [later, latest] = [later, minutes(later, 60)].map(|time| time.to_string());
    let backwards = format!("{latest}..{later}");
    let outage = format!("{later}..{latest}");
    let year = "2098-01-01T00:00:00Z";
    let past = "2020-01-01T00:00:00Z";
    let past_outage = "2020-01-01T00:00:00Z..2020-01-01T01:00:00Z";
    let times = "write two times with `..` between them";
    for (args, parts) in [
        (&["--outage", "tonight"][..], [times, "--outage"]),
        (
            &["--outage", "02:00..05:00"],
            ["`02:00` is not a time", times],
        ),
        (
            &["--outage", &backwards],
            [
                "the outage ends before it starts",
                "write the earlier time first",
            ],
        ),
        (&["--outage", past_outage], ["is in the past", "hint: "]),
        (
            &["--outage", &outage, "--to", &later],
            ["`outage`: it ends at", "hint: give one that ends within"],
        ),
        (
            &["--from", &latest, "--to", &later],
            ["is not after", "hint: give a later time"],
        ),
        (&["--from", "noon"], ["`noon` is not a time", "--from"]),
        (&["--from", past], ["is in the past", "hint: leave it out"]),
        (&["--to", past], ["is not after", "hint: "]),
        (
            &["--to", year],
            ["is more than a year ahead", "hint: give a time before"],
        ),
        (
            &["--schedule", "quarte"],
            ["no schedule named `quarte`", "did you mean `quarter`?"],
        ),
        (
            &["--diff", "none.toml"],
            ["none.toml", "the file does not exist"],
        ),
    ] {
        site.run(["plan"].into_iter().chain(args.iter().copied()))
            .assert_refused(&parts);
    }
}
