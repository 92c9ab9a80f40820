//! `campanile cron`: slots, explanations and calendars of a rule, without a database or a configuration.

use serde_json::{Value, json};

use crate::site::{CommandOutput, keys, list, run};

/// Run `campanile cron` in a folder with an invalid configuration, which it must not read.
fn cron(args: &[&str]) -> CommandOutput {
    let folder = tempfile::tempdir().expect("a folder");
    let config = folder.path().join("campanile.toml");
    std::fs::write(config, "broken = [").expect("a configuration");
    let output = run(folder.path(), ["cron"].iter().chain(args));
    let entries = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(entries, 1, "a file was created");
    output
}

/// Run `campanile cron`, which must succeed with an empty stderr. Return its stdout.
#[track_caller]
fn cron_ok(args: &[&str]) -> String {
    let output = cron(args);
    assert_eq!((output.code, output.stderr.as_str()), (0, ""), "{output:?}");
    output.stdout
}

#[track_caller]
fn cron_json(args: &[&str]) -> Value {
    let args: Vec<&str> = args.iter().copied().chain(["--json"]).collect();
    serde_json::from_str(&cron_ok(&args)).expect("JSON")
}

#[test]
fn cron_next_lists_the_expected_slots() {
    #[rustfmt::skip]
    let table: &[(&[&str], &str, &[&str])] = &[
        // A slot at the start itself is not listed.
        (&["0 9 * * *"], "2026-11-21T09:00:00Z", &["2026-11-22T09:00:00Z", "2026-11-23T09:00:00Z"]),
        (&["0 9 * * *"], "2026-11-21T09:59:59+01:00", &["2026-11-21T09:00:00Z"]),
        (&["30 0 9 * * *"], "2026-11-21T09:00:00Z", &["2026-11-21T09:00:30Z"]),
        // Zones without clock changes.
        (&["45 5 * * *", "--tz", "Asia/Kathmandu"], "2026-11-21T00:00:00Z", &["2026-11-22T00:00:00Z"]),
        (&["30 3 * * *", "--tz", "Asia/Tokyo"], "2026-11-21T00:00:00Z", &["2026-11-21T18:30:00Z"]),
        // A gap: 02:30 does not exist on 8 March.
        (&["30 2 * * *", "--tz", "America/New_York"], "2026-03-07T00:00:00Z",
            &["2026-03-07T07:30:00Z", "2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"]),
        (&["30 2 * * *", "--tz", "America/New_York", "--dst-gap", "skip"], "2026-03-07T00:00:00Z",
            &["2026-03-07T07:30:00Z", "2026-03-09T06:30:00Z"]),
        (&["*/30 2 * * *", "--tz", "America/New_York"], "2026-03-07T07:30:00Z",
            &["2026-03-09T06:00:00Z"]),
        // A fold: 01:30 exists twice on 1 November.
        (&["30 1 * * *", "--tz", "America/New_York"], "2026-11-01T00:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"]),
        (&["30 1 * * *", "--tz", "America/New_York", "--dst-fold", "second"], "2026-11-01T00:00:00Z",
            &["2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]),
        (&["30 1 * * *", "--tz", "America/New_York", "--dst-fold", "both"], "2026-11-01T00:00:00Z",
            &["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]),
        // A clock change of half an hour, on the southern hemisphere.
        (&["15 2 * * *", "--tz", "Australia/Lord_Howe"], "2026-10-03T00:00:00Z",
            &["2026-10-03T15:30:00Z", "2026-10-04T15:15:00Z"]),
        // Days of the month and of the week.
        (&["0 0 13 * FRI"], "2026-11-01T00:00:00Z",
            &["2026-11-06T00:00:00Z", "2026-11-13T00:00:00Z", "2026-11-20T00:00:00Z"]),
        (&["0 0 13 * FRI", "--day-match", "and"], "2026-11-01T00:00:00Z",
            &["2026-11-13T00:00:00Z", "2027-08-13T00:00:00Z"]),
        (&["0 0 L * *"], "2028-02-01T00:00:00Z", &["2028-02-29T00:00:00Z", "2028-03-31T00:00:00Z"]),
        (&["0 0 * * MON#2"], "2026-11-01T00:00:00Z", &["2026-11-09T00:00:00Z"]),
        (&["0 12 * * *", "--exclude", "12-25", "--exclude", "2026-12-27..2026-12-31"],
            "2026-12-24T12:00:00Z", &["2026-12-26T12:00:00Z", "2027-01-01T12:00:00Z"]),
        // Macros and other kinds.
        (&["@monthly"], "2026-11-21T00:00:00Z", &["2026-12-01T00:00:00Z"]),
        (&["@every 15m"], "2026-11-21T00:00:00Z", &["2026-11-21T00:15:00Z"]),
        (&["--every", "1mo", "--anchor", "2026-01-31T09:00:00Z"], "2026-01-31T09:00:00Z",
            &["2026-02-28T09:00:00Z", "2026-03-31T09:00:00Z", "2026-04-30T09:00:00Z"]),
        (&["--at", "2027-01-01T00:00:00+01:00"], "2026-11-21T00:00:00Z", &["2026-12-31T23:00:00Z"]),
        (&["0 0 1 1 *"], "2098-06-01T00:00:00Z", &["2099-01-01T00:00:00Z"]),
    ];
    for (rule, from, slots) in table {
        let number = slots.len().to_string();
        let more = ["--from", from, "-n", &number];
        let args: Vec<&str> = ["next"]
            .into_iter()
            .chain(rule.iter().copied())
            .chain(more)
            .collect();
        assert_eq!(cron_json(&args), json!(slots), "{args:?}");
    }
}

#[test]
fn slots_are_shown_in_utc_and_in_local_time() {
    let from = ["--tz", "Europe/Paris", "--from", "2027-03-27T00:00:00Z"];
    let next = ["next", "30 2 * * *", "-n", "2"];
    let stdout = cron_ok(&[&next[..], &from].concat());
    let expected = "\
2027-03-27T01:30:00Z  2027-03-27T02:30:00+01:00[Europe/Paris]
2027-03-28T01:00:00Z  2027-03-28T03:00:00+02:00[Europe/Paris]
";
    assert_eq!(stdout, expected);
}

#[test]
fn a_rule_without_slots_prints_when_it_launches() {
    for (rule, when) in [
        (&["@reboot"][..], "once at every start of a host"),
        (
            &["--after-completion", "10m"],
            "10 minutes after each launch ends",
        ),
    ] {
        let output = cron(&[&["next", "--json"][..], rule].concat());
        assert_eq!((output.code, output.json()), (0, json!([])), "{output:?}");
        let message = format!("the rule has no slots: it launches {when}\n");
        assert_eq!(output.stderr, message);
        assert!(cron_ok(&[&["explain"][..], rule].concat()).contains(message.trim_end()));
    }
    let output = cron(&[
        "next",
        "--at",
        "2020-01-01T00:00:00Z",
        "--from",
        "2026-11-21T00:00:00Z",
    ]);
    assert_eq!((output.code, output.stdout.as_str()), (0, ""), "{output:?}");
    assert_eq!(
        output.stderr,
        "there is no slot after 2026-11-21T00:00:00Z\n"
    );
}

#[test]
fn a_hashed_field_resolves_without_a_schedule_and_prints_a_note() {
    let message = "hashed values differ for each schedule; `schedule next NAME` shows them\n";
    let next = [
        "H 3 * * *",
        "--from",
        "2026-11-21T00:00:00Z",
        "-n",
        "1",
        "--json",
    ];
    let output = cron(&[&["next"][..], &next[..]].concat());
    assert_eq!(output.json(), json!(["2026-11-21T03:55:00Z"]));
    assert_eq!(output.stderr, message);
    let output = cron(&[&["explain"][..], &next[..]].concat());
    assert_eq!(output.stderr, message);
    let (normal, resolved) = (&output.json()["normal_form"], &output.json()["resolved"]);
    assert_eq!(
        (normal, resolved),
        (&json!("H 3 * * *"), &json!("55 3 * * *"))
    );
}

#[test]
fn bad_input_is_refused_with_its_position_and_a_hint() {
    for command in ["next", "explain", "calendar"] {
        for (rule, expected) in [
            (
                &["61 * * * *"][..],
                &["`61` in the minute field at position 1", "write 0 to 59"][..],
            ),
            (&["0 9 * *"], &["expected 5 fields", "found 4", "hint: "]),
            (&["0 22-2 * * *"], &["hour", "22-23,0-2"]),
            (
                &["0 0 31 2 *"],
                &["never fires: month 2 has no day 31", "hint: "],
            ),
            (
                &["0 9 * * *", "--tz", "Europe/Pariss"],
                &["`Europe/Pariss`", "hint: ", "Europe/Paris"],
            ),
            (
                &["0 9 * * *", "--from", "noon"],
                &["--from", "`noon`", "2026-11-21T08:00:00Z"],
            ),
            (
                &["0 9 * * *", "--exclude", "25-12"],
                &["exclusion 1", "hint: "],
            ),
            (
                &["0 9 * * *", "--dst-gap", "jump"],
                &["--dst-gap", "must be `shift` or `skip`"],
            ),
            (
                &["*/5 * * * *", "--dst-fold", "both"],
                &["dst_fold", "hint: "],
            ),
            (&["--every", "often"], &["`often`", "hint: "]),
            (
                &["--at", "someday"],
                &["`someday`", "write an RFC 3339 time"],
            ),
            (&["0 9 * * *", "--every", "1h"], &["cannot be used with"]),
            (&["0", "9", "*", "*", "*"], &["unexpected argument '9'"]),
            (
                &[],
                &["<EXPRESSION|--every <PERIOD>|--at <TIME>|--after-completion <PERIOD>>"],
            ),
        ] {
            cron(&[&[command][..], rule].concat()).assert_refused(expected);
        }
    }
    let output = cron(&["next", "61 * * * *", "--json"]);
    assert_eq!(
        (output.code, keys(&output.json())),
        (2, vec!["code", "error", "hint"])
    );
    for args in [
        &["next", "@daily", "-n", "0"][..],
        &["next", "@daily", "-n", "10001"],
        &["calendar", "@daily", "--months", "0"],
        &["calendar", "@daily", "--months", "25"],
    ] {
        cron(args).assert_refused(&["is not in 1.."]);
    }
}

#[test]
fn explain_prints_a_rule_as_text() {
    let rule = [
        "explain",
        "30 2 13 * FRI",
        "--tz",
        "Europe/Paris",
        "-n",
        "2",
    ];
    let stdout = cron_ok(&[&rule[..], &["--from", "2026-11-21T00:00:00Z"]].concat());
    let expected = "\
At 02:30 on the 13th and on Friday, in Europe/Paris.

normal form  30 2 13 * 5
zone         Europe/Paris (tzdata VERSION)

slots after 2026-11-21T00:00:00Z:
2026-11-27T01:30:00Z  2026-11-27T02:30:00+01:00[Europe/Paris]
2026-12-04T01:30:00Z  2026-12-04T02:30:00+01:00[Europe/Paris]

no clock change affects a slot until 2028-11-22

warning: both day fields are restricted, so that a day which matches either one fires: on the 13th and on Friday
   hint: for days that match both, set day_match to `and`; for one field only, write `*` in the other
";
    assert_eq!(
        stdout,
        expected.replace("VERSION", campanile_schedule::rule::tzdata_version())
    );
}

#[test]
fn explain_shows_the_effect_of_clock_changes() {
    for (rule, expected) in [
        (
            &["30 2 * * *"][..],
            &[
                "2027-03-28 02:30 is left out by the clock: it fires at 2027-03-28T03:00:00+02:00\n",
                "2027-10-31 02:30 is shown twice by the clock: it fires at 2027-10-31T02:30:00+02:00, \
             not at 2027-10-31T02:30:00+01:00\n",
            ][..],
        ),
        (
            &["30 2 * * *", "--dst-gap", "skip", "--dst-fold", "both"],
            &[
                "2027-03-28 02:30 is left out by the clock: nothing fires\n",
                "2027-10-31 02:30 is shown twice by the clock: it fires at 2027-10-31T02:30:00+02:00 \
             and at 2027-10-31T02:30:00+01:00\n",
            ],
        ),
        (
            &["*/10 * * * *"],
            &[
                "2027-03-28 02:00 to 02:50 are left out by the clock: nothing fires\n",
                "2027-10-31 02:00 to 02:50 are shown twice by the clock: they fire both times, from \
             2027-10-31T02:00:00+02:00 and from 2027-10-31T02:00:00+01:00\n",
            ],
        ),
    ] {
        let more = ["--tz", "Europe/Paris", "--from", "2026-11-21T00:00:00Z"];
        let stdout = cron_ok(&[&["explain"][..], rule, &more].concat());
        for expected in expected {
            assert!(stdout.contains(expected), "no {expected:?}: {stdout}");
        }
    }
}

#[test]
fn explain_shows_a_day_that_the_zone_skips() {
    let more = ["--tz", "Pacific/Apia", "--from", "2011-12-01T00:00:00Z"];
    for (rule, expected) in [
        (
            "0 12 * * *",
            "2011-12-30 12:00 is left out by the clock: nothing fires\n",
        ),
        (
            "0 * * * *",
            "2011-12-30 00:00 to 23:00 are left out by the clock: nothing fires\n",
        ),
    ] {
        let stdout = cron_ok(&[&["explain", rule][..], &more].concat());
        assert!(stdout.contains(expected), "no {expected:?}: {stdout}");
    }
}

#[test]
fn a_rule_of_another_scheduler_is_refused_with_the_line_to_write() {
    for (rule, fixes) in [
        ("0 8 1 * ? *", &["`0 8 1 * *`"][..]),
        ("0 15 10 ? * MON-FRI", &["`0 15 10 * * MON-FRI`"]),
        ("0 3 * * ?", &["`*` for any", "`H` for one chosen by hash"]),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", &["--tz Asia/Tokyo"]),
    ] {
        let output = cron(&["next", rule]);
        assert_eq!((output.code, output.stdout.as_str()), (2, ""), "{rule}");
        for fix in fixes {
            assert!(output.stderr.contains(fix), "{rule}: {}", output.stderr);
        }
    }
}

#[test]
fn explain_prints_a_rule_as_json() {
    let rule = [
        "explain",
        "0 30 2 * * SUN",
        "--tz",
        "Europe/Paris",
        "-n",
        "1",
    ];
    let report = cron_json(&[&rule[..], &["--from", "2027-03-20T00:00:00Z"]].concat());
    let mut effects = list(report["dst_effects"].clone());
    let warnings = list(report["warnings"].clone());
    assert_eq!(
        effects.len(),
        4,
        "two years have four clock changes: {report:#}"
    );
    let expected = json!({
        "kind": "cron",
        "expression": "0 30 2 * * SUN",
        "normal_form": "30 2 * * 0",
        "resolved": "30 2 * * 0",
        "timezone": "Europe/Paris",
        "tzdata_version": campanile_schedule::rule::tzdata_version(),
        "explanation": "At 02:30 on Sunday, in Europe/Paris.",
        "notes": [],
        "next": [{"utc": "2027-03-21T01:30:00Z", "local": "2027-03-21T02:30:00+01:00[Europe/Paris]"}],
        "dst_effects": effects,
        "warnings": warnings,
    });
    assert_eq!(report, expected);
    let first = json!({
        "change": "2027-03-28T01:00:00Z",
        "local": "2027-03-28T02:30:00",
        "local_last": "2027-03-28T02:30:00",
        "action": "shifted",
        "fire_times": ["2027-03-28T01:00:00Z"],
        "message": "2027-03-28 02:30 is left out by the clock: it fires at 2027-03-28T03:00:00+02:00",
    });
    assert_eq!(effects.remove(0), first);
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert_eq!(keys(&warnings[0]), ["hint", "kind", "message"]);
    assert_eq!(warnings[0]["kind"], "gap");
}

#[test]
fn calendar_shows_months_side_by_side() {
    let from = ["--tz", "Europe/Paris", "--from", "2026-11-21T12:00:00Z"];
    let stdout = cron_ok(&[&["calendar", "30 2 * * MON-FRI"][..], &from].concat());
    let expected = "\
Slots in Europe/Paris after 2026-11-21 13:00:00

       November 2026                 December 2026                 January 2027
Mo  Tu  We  Th  Fr  Sa  Su    Mo  Tu  We  Th  Fr  Sa  Su    Mo  Tu  We  Th  Fr  Sa  Su
                         1         1*  2*  3*  4*  5   6                     1*  2   3
 2   3   4   5   6   7   8     7*  8*  9* 10* 11* 12  13     4*  5*  6*  7*  8*  9  10
 9  10  11  12  13  14  15    14* 15* 16* 17* 18* 19  20    11* 12* 13* 14* 15* 16  17
16  17  18  19  20  21  22    21* 22* 23* 24* 25* 26  27    18* 19* 20* 21* 22* 23  24
23* 24* 25* 26* 27* 28  29    28* 29* 30* 31*               25* 26* 27* 28* 29* 30  31
30*

* a day with one slot
";
    assert_eq!(stdout, expected);
}

#[test]
fn calendar_counts_the_slots_of_each_day() {
    let from = [
        "--tz",
        "Europe/Paris",
        "--from",
        "2027-10-28T00:00:00Z",
        "--months",
        "1",
    ];
    let hourly = [&["calendar", "0 * * * *"][..], &from].concat();
    let expected = "\
Slots in Europe/Paris after 2027-10-28 02:00:00

              October 2027
Mo    Tu    We    Th    Fr    Sa    Su
                         1     2     3
 4     5     6     7     8     9    10
11    12    13    14    15    16    17
18    19    20    21    22    23    24
25    26    27    28*21 29*24 30*24 31*25

* a day with one slot; *2 a day with two slots, and so on
";
    assert_eq!(cron_ok(&hourly), expected);
    let days = json!([
        {"date": "2027-10-28", "count": 21},
        {"date": "2027-10-29", "count": 24},
        {"date": "2027-10-30", "count": 24},
        {"date": "2027-10-31", "count": 25},
    ]);
    assert_eq!(cron_json(&hourly), days);
}

#[test]
fn calendar_and_help_lines_have_at_most_100_characters() {
    let from = ["--from", "2026-11-01T00:00:00Z"];
    for rule in [
        "0 9 * * *",
        "0 9,17 * * *",
        "0 * * * *",
        "*/5 * * * *",
        "* * * * *",
    ] {
        let stdout = cron_ok(&[&["calendar", rule, "--months", "12"][..], &from].concat());
        let longest = stdout.lines().map(str::len).max();
        assert!(longest <= Some(100), "{longest:?} characters:\n{stdout}");
        assert_eq!(stdout.matches("Mo ").count(), 12, "{stdout}");
    }
    for command in ["next", "explain", "calendar"] {
        let help = cron_ok(&[command, "--help"]);
        let longest = help.lines().map(str::len).max();
        assert!(longest <= Some(100), "{longest:?} characters:\n{help}");
    }
}
