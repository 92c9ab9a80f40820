use super::*;

/// Read `text` as the file `schedules.toml`.
fn read(text: &str) -> Result<Vec<ScheduleDefinition>, String> {
    read_file("schedules.toml", text).map_err(|error| error.to_string())
}

/// The first lines of an hourly schedule, to which a test adds lines.
const HOURLY: &str = "[[schedules]]\nname = 'a'\npackage = 'p'\nevery = '1h'\n";

#[test]
fn a_whole_file_is_read() {
    let text = r#"
        [[schedules]]
        name = "nightly"
        package = "backup"
        task = "collect"
        cron = "30 2 * * *"
        timezone = "Europe/Rome"
        catchup = "all"
        catchup_window = "12h"
        catchup_max = 3
        start_at = 2027-01-01T00:00:00Z
        end_at = "2028-01-01T00:00:00+01:00"
        overlap = "buffer_one"
        keep = "latest"
        context = { full = true }
        [[schedules]]
        name = "check"
        package = "http-check"
        every = "5m"
    "#;
    let all = read(text).unwrap();
    let [nightly, check] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        (nightly.name.as_str(), nightly.package.as_str()),
        ("nightly", "backup")
    );
    assert_eq!(nightly.task.as_deref(), Some("collect"));
    assert_eq!(nightly.rule.timezone, "Europe/Rome");
    let actual: Vec<String> = nightly
        .policies
        .entries()
        .map(|(policy, text)| format!("{policy} {text}"))
        .collect();
    assert_eq!(
        actual,
        [
            "catchup all",
            "catchup_window 12h",
            "catchup_max 3",
            "overlap buffer_one",
            "keep latest",
            "start_at 2027-01-01T00:00:00Z",
            "end_at 2027-12-31T23:00:00Z",
        ]
    );
    assert_eq!(check.policies, Policies::default());
    assert_eq!(read(""), Ok(Vec::new()));
}

#[test]
fn the_example_is_read() {
    let example = include_str!("../../../../examples/config/schedules.toml");
    assert_eq!(read(example).map(|schedules| schedules.len()), Ok(3));
}

#[test]
fn a_mistake_in_a_file_is_refused_with_its_line_and_a_hint() {
    for (text, expected) in [
        (
            "[[schedules]]\npackage = 'p'\nevery = '1h'",
            "schedules.toml:1:1: `schedules[0]` needs `name`, which identifies the schedule in every later version of this file",
        ),
        (
            "\n[[schedules]]\nname = 'a'\nevery = '1h'",
            "schedules.toml:2:1: `schedules[0]` needs `package`, the name of a file in the plugins folder without .wasm",
        ),
        (
            "[[schedule]]\nname = 'a'",
            "schedules.toml:1:3: unknown key `schedule`: did you mean `schedules`?",
        ),
        (
            "[[schedules]]\nname = 'a b'",
            "schedules.toml:2:1: `schedules[0].name` is \"a b\", which cannot name a schedule: use 1 to 128 ASCII letters, \
             digits, `.`, `_` or `-`",
        ),
        (
            "schedules = 3",
            "schedules.toml:1:1: `schedules` must be a list of tables, such as [[schedules]], not a number",
        ),
        (
            "[[schedules]]\nname = 'a'\npackage = 'p'\ncron = '61 * * * *'",
            "schedules.toml:4:1: `schedules[0].cron` is refused: ",
        ),
    ] {
        let error = read(text).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
    let twice = format!("{HOURLY}\n{HOURLY}");
    assert_eq!(
        read(&twice).unwrap_err(),
        "schedules.toml:7:1: `schedules[1].name` is \"a\", the name of another schedule: choose another name"
    );
}

#[test]
fn invalid_or_contradicting_policies_are_refused_at_their_line() {
    for (lines, expected) in [
        (
            "overlap = 'alow'",
            "5:1: `schedules[0].overlap` must be `skip` or `buffer_one` or `buffer_all` or `cancel_other` or \
             `terminate_other` or `allow`; did you mean `allow`?",
        ),
        (
            "jitter = 'soon'",
            "5:1: `schedules[0].jitter` is \"soon\", which is not a duration: write a number with a unit, such as \
             \"30s\" or \"5m\"",
        ),
        (
            "jitter = 30",
            "5:1: `schedules[0].jitter` must be a text in quotes, not a number",
        ),
        (
            "catchup_max = '3'",
            "5:1: `schedules[0].catchup_max` must be a whole number, not a text",
        ),
        (
            "catch_up = 'all'",
            "5:1: unknown key `schedules[0].catch_up`: did you mean `catchup`?",
        ),
        (
            "end_at = 'noon'",
            "5:1: `schedules[0].end_at` is wrong: `noon` is not an RFC 3339 time such as 2026-11-21T08:00:00Z",
        ),
        (
            "catchup = 'none'\ncatchup_window = '1h'",
            "6:1: `schedules[0].catchup_window` is refused: catchup_window means nothing with catchup = `none`; leave \
             catchup_window out, or choose catchup = `latest` or `earliest` or `all`",
        ),
        (
            "misfire_grace = '10m'\ncatchup_window = '1m'",
            "6:1: `schedules[0].catchup_window` is refused: catchup_window is 1m, shorter than misfire_grace, 10m; ",
        ),
        (
            "max_concurrent = 2",
            "5:1: `schedules[0].max_concurrent` is refused: max_concurrent means nothing with overlap = `skip`; leave \
             max_concurrent out, or choose overlap = `allow`",
        ),
        (
            "start_at = 2027-02-01T00:00:00Z\nend_at = 2027-01-01T00:00:00Z",
            "6:1: `schedules[0].end_at` is refused: end_at, 2027-01-01T00:00:00Z, is not after start_at, \
             2027-02-01T00:00:00Z; ",
        ),
        (
            "jitter = '2h'",
            "5:1: `schedules[0].jitter` is refused: jitter is 2h, longer than from one slot to the next, 1h; write a \
             jitter of at most 1h",
        ),
        (
            "start_at = 2027-01-01T00:00:01Z\nend_at = 2027-01-01T00:00:02Z",
            "1:1: `schedules[0]` is refused: the rule has no slot from 2027-01-01T00:00:01Z to 2027-01-01T00:00:02Z, \
             so the schedule would never launch; ",
        ),
        (
            "max_launches = 0",
            "5:1: `schedules[0].max_launches` is refused: max_launches is 0; write at least 1, or leave max_launches out",
        ),
    ] {
        let error = read(&format!("{HOURLY}{lines}")).unwrap_err();
        let expected = format!("schedules.toml:{expected}");
        assert!(error.starts_with(&expected), "{error}\nnot {expected}");
    }
}
