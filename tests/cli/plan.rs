//! `campanile plan`: what it says will run, and what it refuses to say.

use std::time::Duration;

use campanile_model::clock::{Clock, Timestamp};
use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, keys, list};

on_both_empty!(
    an_hour_is_shown_with_its_chart,
    capacity_is_respected_and_a_pause_is_named,
    an_outage_shows_the_rows_that_it_leads_to,
    another_schedules_file_is_held_against_the_schedules,
    a_schedule_that_another_file_removes_is_omitted_and_named,
    questions_without_an_answer_are_refused,
);

const HOUR_US: i64 = 3_600_000_000;

/// The whole hour after the next.
fn hour() -> Timestamp {
    let now = Clock::system().now().micros();
    Timestamp::from_micros((now.div_euclid(HOUR_US) + 2) * HOUR_US)
}

fn minutes(after: Timestamp, minutes: u64) -> Timestamp {
    after.plus(Duration::from_secs(60 * minutes))
}

/// A site that nobody serves any more, with the package `noop` and these schedules.
fn site(place: Place, schedules: &[(&str, &str)]) -> Site {
    let site = Site::new(place);
    site.bring("noop");
    let host = site.serve();
    for (name, cron) in schedules {
        site.ok(["schedule", "add", name, "--package", "noop", "--cron", cron]);
    }
    drop(host);
    site
}

async fn an_hour_is_shown_with_its_chart(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let from = hour();
    let to = minutes(from, 60);
    let (from_text, to_text) = (from.to_string(), to.to_string());
    let args = ["plan", "--from", &from_text, "--to", &to_text];
    let said = site.run(args);
    let gap = "·".repeat(14);
    let label = from_text[..16].replace('T', " ");
    let expected = format!(
        "SCHEDULE  LAUNCHES  SKIPPED  FIRST                 NEXT SLOT             DURATION  PEAK  LAG
quarter   4         0        {from}  {to}  ~1s       1     0s

starts per minute, at most 1, in UTC:
{label}  █{gap}█{gap}█{gap}█{gap}  4

at most 1 of 256 possible runs at one time, first at {from}
a launch waits at most 0s
"
    );
    assert_eq!((said.stdout.as_str(), said.code), (expected.as_str(), 0));
    assert_eq!(
        said.stderr,
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

async fn capacity_is_respected_and_a_pause_is_named(place: Place) {
    let hourly = "0 * * * *";
    let names = ["a", "b", "c", "d"];
    let site = site(place, &names.map(|name| (name, hourly)));
    let pause = ["schedule", "pause", "--by", "ada"];
    site.ok(pause.into_iter().chain(["c"]));
    let back_at = ["--until", "2099-01-01T00:00:00Z"];
    site.ok(pause.into_iter().chain(["d"]).chain(back_at));
    let config = site.folder().join("campanile.toml");
    std::fs::write(config, "[host]\nruns_max = 1\n").expect("a configuration");
    let from = hour();
    let (from_text, to_text) = (from.to_string(), minutes(from, 120).to_string());
    let args = ["plan", "--from", &from_text, "--to", &to_text];
    let plan = site.json(args);
    let known = [
        "capacity",
        "changes",
        "cut_at",
        "from",
        "lag_ms_max",
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
    assert_eq!(keys(&plan), known);
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
    let known = [
        "duration_from",
        "duration_ms",
        "first",
        "lag_ms_max",
        "launches",
        "next_slot",
        "peak",
        "schedule",
        "skipped",
    ];
    assert_eq!(
        schedules.iter().map(keys).collect::<Vec<_>>(),
        [known, known]
    );
    assert_eq!(schedules[0]["next_slot"], json!(minutes(from, 120)));
    let known = [
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
    assert_eq!(keys(&plan["rows"][0]), known);

    // Of one schedule, beside which the other takes its place all the same.
    let one = site.json(args.into_iter().chain(["--schedule", "b"]));
    let rows = list(one["rows"].clone());
    let second = list(plan["rows"].clone());
    let second = second.into_iter().filter(|row| row["schedule"] == "b");
    assert_eq!(rows, second.collect::<Vec<Value>>());
    assert_eq!(one["launches"], 2);
}

async fn an_outage_shows_the_rows_that_it_leads_to(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let from = hour();
    let at = |after| minutes(from, after);
    let outage = format!("{from}..{}", at(60));
    let said = site.ok(["plan", "--outage", &outage]);
    let (record, rest) = said.split_once("\n\n").expect("a paragraph of rows");
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

async fn another_schedules_file_is_held_against_the_schedules(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let file = site.folder().join("new.toml");
    let orders = "[[schedules]]\nname = \"half\"\npackage = \"noop\"\ncron = \"*/30 * * * *\"\n";
    std::fs::write(&file, orders).expect("a schedules file");
    let before = site.json(["schedule", "list"]);
    let from = hour();
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
    }]);
    assert_eq!(plan["changes"], changes);
    assert_eq!(
        (&plan["launches"], &plan["refused"]),
        (&json!(6), &json!([]))
    );
    let said = site.ok(args.into_iter().chain(["--rows"]));
    let lines: Vec<&str> = said.lines().take(6).collect();
    assert_eq!(lines[1], format!("half      2      0        0      {from}"));
    assert_eq!(
        lines[4],
        format!("added   {from}  half      -             {from}")
    );
    // It was tried and not done.
    assert_eq!(site.json(["schedule", "list"]), before);

    // What a schedule of another origin is called is not to be had.
    std::fs::write(&file, orders.replace("half", "quarter")).expect("a schedules file");
    let said = site.run(args);
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stderr.contains("`quarter` would be refused"),
        "{said:?}"
    );
}

async fn a_schedule_that_another_file_removes_is_omitted_and_named(place: Place) {
    let site = Site::new(place);
    site.bring("noop");
    let order = |file: &str, names: &[&str]| {
        let schedules = names.iter().map(|name| {
            format!("[[schedules]]\nname = '{name}'\npackage = 'noop'\ncron = '*/30 * * * *'\n")
        });
        let text: String = schedules.collect();
        std::fs::write(site.folder().join(file), text).expect("a schedules file");
    };
    order("schedules.toml", &["gone", "half"]);
    order("new.toml", &["half"]);
    drop(site.serve());
    let from = hour();
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
    }]);
    for (more, launches) in [(&[][..], 2), (&["--schedule", "gone"], 0)] {
        let asked = args.into_iter().chain(more.iter().copied());
        let said = site.run(asked.chain(["--json"]));
        assert_eq!(said.code, 0, "{said:?}");
        let plan = said.json();
        assert_eq!(plan["omitted"], omitted, "{more:?}");
        assert_eq!(plan["changes"], changes, "{more:?}");
        assert_eq!(plan["launches"], launches, "{more:?}");
    }
    let said = site.run(args.into_iter().chain(["--schedule", "gone"]));
    assert_eq!(said.code, 0, "{said:?}");
    assert!(
        said.stdout
            .contains(&format!("gone      0      2        0      {from}")),
        "{said:?}"
    );
    assert!(
        said.stderr
            .contains("`gone` is left out: the file removes it"),
        "{said:?}"
    );
    // Of the others nothing is told.
    let half = site.json(args.into_iter().chain(["--schedule", "half"]));
    let told = (&half["omitted"], &half["changes"], &half["launches"]);
    assert_eq!(told, (&json!([]), &json!([]), &json!(2)));
}

async fn questions_without_an_answer_are_refused(place: Place) {
    let site = site(place, &[("quarter", "*/15 * * * *")]);
    let later = hour();
    let [later, latest] = [later, minutes(later, 60)].map(|time| time.to_string());
    let backwards = format!("{latest}..{later}");
    let whole = format!("{later}..{latest}");
    let year = "2098-01-01T00:00:00Z";
    let past = "2020-01-01T00:00:00Z";
    let over = "2020-01-01T00:00:00Z..2020-01-01T01:00:00Z";
    let times = "write two times with `..` between them";
    for (args, parts) in [
        (&["--outage", "tonight"][..], [times, "--outage"]),
        (
            &["--outage", "02:00..05:00"],
            ["`02:00` is not an RFC 3339 time", times],
        ),
        (
            &["--outage", &backwards],
            [
                "the outage ends before it starts",
                "write the earlier time first",
            ],
        ),
        (&["--outage", over], ["is in the past", "hint: "]),
        (
            &["--outage", &whole, "--to", &later],
            ["the outage ends at", "hint: give a --from"],
        ),
        (
            &["--from", &latest, "--to", &later],
            ["is not after --from", "hint: give a later --to"],
        ),
        (
            &["--from", "noon"],
            ["`noon` is not an RFC 3339 time", "--from"],
        ),
        (
            &["--from", past],
            ["is in the past", "hint: leave --from out"],
        ),
        (&["--to", past], ["is not after --from", "hint: "]),
        (
            &["--to", year],
            ["is more than a year ahead", "hint: give a --to before"],
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
            .refused(&parts);
    }
}
