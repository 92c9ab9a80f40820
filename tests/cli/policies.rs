//! Policies: set by flags or a sidecar, shown, and refused when they contradict each other.

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{Site, eventually, keys, list, text};

on_both_empty!(
    every_policy_is_set_by_a_flag_and_shown,
    contradicting_policies_are_refused_with_a_hint,
    a_sidecar_sets_policies_and_an_invalid_one_changes_nothing,
    policies_limit_the_slots_of_a_schedule,
);

async fn every_policy_is_set_by_a_flag_and_shown(place: Place) {
    let site = Site::with_guests(place);
    site.configure("[groups.db]\nmax = 2\n");
    for (name, flags, output) in [
        (
            "caught-up",
            &[
                "--catchup",
                "all",
                "--catchup-window",
                "90m",
                "--catchup-max",
                "7",
                "--catchup-spread",
                "1500ms",
                "--misfire-grace",
                "1m",
                "--delivery",
                "at_most_once",
                "--jitter",
                "30s",
                "--start-at",
                "2090-01-01T00:00:00+01:00",
                "--end-at",
                "2091-01-01T00:00:00Z",
                "--max-launches",
                "1000",
                "--pause-on-failure",
                "5",
                "--priority",
                "9",
                "--group",
                "db",
                "--run-on",
                "gpu,ssd",
                "--retention",
                "7days",
                "--expect-within",
                "1h",
                "--max-attempts",
                "8",
                "--backoff",
                "10s",
                "--backoff-coefficient",
                "1.5",
                "--backoff-max",
                "5m",
                "--retry-expiration",
                "1h",
                "--non-retryable",
                "timed_out,trapped",
            ][..],
            json!({
                "catchup": "all",
                "catchup_window": "1h 30m",
                "catchup_max": 7,
                "catchup_spread": "1s 500ms",
                "misfire_grace": "1m",
                "delivery": "at_most_once",
                "jitter": "30s",
                "start_at": "2089-12-31T23:00:00Z",
                "end_at": "2091-01-01T00:00:00Z",
                "max_launches": 1000,
                "pause_on_failure": 5,
                "priority": 9,
                "group": "db",
                "run_on": ["gpu", "ssd"],
                "retention": "7days",
                "expect_within": "1h",
                "max_attempts": 8,
                "backoff": "10s",
                "backoff_coefficient": 1.5,
                "backoff_max": "5m",
                "retry_expiration": "1h",
                "non_retryable": ["trapped", "timed_out"],
            }),
        ),
        (
            "first",
            &["--overlap", "buffer_one", "--keep", "latest"],
            json!({"overlap": "buffer_one", "keep": "latest"}),
        ),
        (
            "many",
            &["--overlap", "buffer_all", "--max-buffered", "3"],
            json!({"overlap": "buffer_all", "max_buffered": 3}),
        ),
        (
            "beside",
            &["--overlap", "allow", "--max-concurrent", "2"],
            json!({"overlap": "allow", "max_concurrent": 2}),
        ),
        (
            "cancelling",
            &["--overlap", "cancel_other", "--cancel-grace", "10s"],
            json!({"overlap": "cancel_other", "cancel_grace": "10s"}),
        ),
        // The names of other schedulers.
        ("skip", &["--catchup", "skip"], json!({"catchup": "none"})),
        ("all", &["--catchup", "run_all"], json!({"catchup": "all"})),
        (
            "latest",
            &["--catchup", "execute"],
            json!({"catchup": "latest"}),
        ),
        (
            "spread",
            &["--catchup", "execute_with_delay"],
            json!({"catchup": "latest", "catchup_spread": "30s"}),
        ),
        (
            "spread-more",
            &["--catchup", "execute_with_delay", "--catchup-spread", "1m"],
            json!({"catchup": "latest", "catchup_spread": "1m"}),
        ),
    ] {
        let more = [&["--every", "1h"], flags].concat();
        let said_of_it = site.run_add(name, "ok", &more);
        assert_eq!(said_of_it.code, 0, "{said_of_it:?}");
        let shown = site.json(["schedule", "show", name]);
        assert_eq!(shown["policies"], output, "{name}");
        let effective = &shown["effective_policies"];
        assert_eq!(keys(effective).len(), 27, "{effective:#}");
        for (key, value) in output.as_object().expect("an object") {
            assert_eq!(&effective[key], value, "{name}: {key}");
        }
        let stdout = site.ok(["schedule", "show", name]);
        for (key, value) in output.as_object().expect("an object") {
            let value = match value {
                Value::String(text) => text.clone(),
                Value::Array(words) => words.iter().map(text).collect::<Vec<_>>().join(","),
                number => number.to_string(),
            };
            let expected = format!(" {key} {value}");
            let row = |line: &str| line.ends_with(&expected);
            assert!(stdout.lines().any(row), "{expected}: {stdout}");
        }
    }
    let plain = site.json(["schedule", "show", "latest"]);
    assert_eq!(
        plain["effective_policies"],
        json!({
            "catchup": "latest",
            "catchup_window": "1day",
            "catchup_max": null,
            "catchup_spread": null,
            "misfire_grace": "5m",
            "overlap": "skip",
            "max_buffered": null,
            "keep": null,
            "max_concurrent": null,
            "cancel_grace": null,
            "delivery": "at_least_once",
            "jitter": null,
            "start_at": null,
            "end_at": null,
            "max_launches": null,
            "pause_on_failure": null,
            "priority": 5,
            "group": null,
            "run_on": null,
            "retention": null,
            "expect_within": null,
            "max_attempts": null,
            "backoff": "1s",
            "backoff_coefficient": 2,
            "backoff_max": "1m",
            "retry_expiration": null,
            "non_retryable": null,
        })
    );
}

async fn contradicting_policies_are_refused_with_a_hint(place: Place) {
    let site = Site::with_guests(place);
    let hourly = |flags: &[&str]| site.run_add("new", "ok", &[&["--every", "1h"], flags].concat());
    for (flags, expected) in [
        (
            &["--catchup", "none", "--catchup-window", "1h"][..],
            &[
                "catchup_window means nothing with catchup = `none`",
                "hint: leave catchup_window out, or choose catchup = `latest` or `earliest` or `all`",
            ][..],
        ),
        (
            &["--catchup-max", "3"],
            &["catchup_max means nothing", "choose catchup = `all`"],
        ),
        (
            &["--misfire-grace", "10m", "--catchup-window", "1m"],
            &[
                "catchup_window is 1m, shorter than misfire_grace, 10m",
                "hint: write a catchup_window of at least 10m",
            ],
        ),
        (
            &["--max-concurrent", "2"],
            &[
                "max_concurrent means nothing with overlap = `skip`",
                "choose overlap = `allow`",
            ],
        ),
        (
            &["--overlap", "allow", "--keep", "latest"],
            &["keep means nothing", "`buffer_one`"],
        ),
        (
            &[
                "--start-at",
                "2090-01-01T00:00:00Z",
                "--end-at",
                "2089-01-01T00:00:00Z",
            ],
            &["is not after start_at", "hint: write a later end_at"],
        ),
        (
            &["--end-at", "2020-01-01T00:00:00Z"],
            &["2020-01-01T00:00:00Z is in the past", "give a later time"],
        ),
        (
            &["--jitter", "2h"],
            &[
                "jitter is 2h, longer than from one slot to the next, 1h",
                "hint: write a jitter of at most 1h",
            ],
        ),
        (&["--jitter", "0s"], &["jitter is zero", "hint: "]),
        (
            &["--max-launches", "0"],
            &["max_launches is 0", "hint: write at least 1"],
        ),
        (&["--priority", "10"], &["priority is 10", "at most 9"]),
        (&["--group", "My DB"], &["--group is \"My DB\"", "1 to 64"]),
        (
            &["--group", "db"],
            &["its group `db` is not defined", "[groups.db]"],
        ),
        (
            &["--catchup", "lates"],
            &[
                "--catchup must be `none` or `latest`",
                "did you mean `latest`?",
            ],
        ),
        (
            &["--overlap", "allows"],
            &["--overlap must be", "did you mean `allow`?"],
        ),
        (
            &["--delivery", "atmost_once"],
            &["--delivery must be", "did you mean `at_most_once`?"],
        ),
        (
            &["--misfire-grace", "soon"],
            &["--misfire-grace is \"soon\"", "such as \"30s\""],
        ),
        (
            &["--catchup-spread", "30"],
            &["--catchup-spread is \"30\"", "a number with a unit"],
        ),
        (
            &["--catchup", "all", "--catchup-max", "many"],
            &["--catchup-max must be a whole number"],
        ),
        (
            &["--start-at", "noon"],
            &["--start-at", "`noon` is not a time", "`2026-11-21 08:00`"],
        ),
        (&["--jiter", "1s"], &["--jiter", "--jitter"]),
        (
            &["--backoff", "2m"],
            &[
                "backoff is 2m, longer than backoff_max, 1m",
                "hint: write a backoff_max of at least 2m",
            ],
        ),
        (
            &["--max-attempts", "0"],
            &["max_attempts is 0", "at least 1"],
        ),
        (
            &["--max-attempts", "1001"],
            &["max_attempts is 1001", "at most 1000"],
        ),
        (
            &["--backoff-coefficient", "0.5"],
            &["--backoff-coefficient must be a number from 1 to 10"],
        ),
        (
            &["--retry-expiration", "0s"],
            &["retry_expiration is zero", "hint: "],
        ),
        (
            &["--non-retryable", "failed,denied"],
            &["--non-retryable names \"denied\"", "write some of `failed`"],
        ),
    ] {
        hourly(flags).assert_refused(expected);
    }
    site.run_add("new", "ok", &["--cron", "@reboot", "--jitter", "1s"])
        .assert_refused(&[
            "jitter means nothing with `@reboot`",
            "hint: leave jitter out",
        ]);
    assert_eq!(site.json(["schedule", "list"]), json!([]));
    // The JSON has the same hint.
    let output = site.run_add("new", "ok", &["--every", "1h", "--jitter", "2h", "--json"]);
    assert_eq!(output.code, 2);
    assert_eq!(
        output.json()["hint"],
        "write a jitter of at most 1h",
        "{output:?}"
    );
}

async fn a_sidecar_sets_policies_and_an_invalid_one_changes_nothing(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let sidecar = |lines: &str| {
        let text = format!("[[schedules]]\nname = 'hourly'\nevery = '1h'\n{lines}");
        site.sidecar("guests", &text);
    };
    sidecar("overlap = 'allow'\nmax_concurrent = 2\nstart_at = 2090-01-01T00:00:00Z\n");
    let host = site.serve();
    let policies = || site.json(["schedule", "show", "hourly"])["policies"].clone();
    let first =
        json!({"overlap": "allow", "max_concurrent": 2, "start_at": "2090-01-01T00:00:00Z"});
    assert_eq!(policies(), first);
    for (lines, expected) in [
        (
            "jitter = '2h'\n",
            &[
                "guests.toml:4:1: `schedules[0].jitter` is refused",
                "at most 1h",
            ][..],
        ),
        (
            "overlap = 'alow'\n",
            &[
                "guests.toml:4:1: `schedules[0].overlap` must be",
                "did you mean `allow`?",
            ],
        ),
        (
            "backoff_coefficient = '2'\n",
            &[
                "guests.toml:4:1: `schedules[0].backoff_coefficient` must be",
                "a number",
            ],
        ),
        (
            "non_retryable = ['trapped', 'late']\n",
            &[
                "guests.toml:4:1: `schedules[0].non_retryable` names \"late\"",
                "write some of",
            ],
        ),
        (
            "non_retryable = []\n",
            &[
                "guests.toml:4:1: `schedules[0].non_retryable` names \"\"",
                "write some of",
            ],
        ),
    ] {
        sidecar(lines);
        let line = host.wait_for_line(expected[0]);
        assert!(line.contains(expected[1]), "{line}");
        assert_eq!(policies(), first, "the previous policies stay");
    }
    sidecar("jitter = '10m'\nbackoff_coefficient = 1.50\nnon_retryable = ['failed']\n");
    let jitter = json!({"jitter": "10m", "backoff_coefficient": 1.5, "non_retryable": ["failed"]});
    eventually(|| match policies() {
        current if current == jitter => Ok(()),
        current => Err(format!("{current:#}")),
    });
}

async fn policies_limit_the_slots_of_a_schedule(place: Place) {
    let site = Site::with_guests(place);
    let next = |name: &str| -> Vec<String> {
        let slots = list(site.json(["schedule", "next", name, "-n", "3"]));
        slots.iter().map(text).collect()
    };
    let state = |name: &str| site.json(["schedule", "show", name])["state"].clone();
    for (name, flags, slots) in [
        (
            "later",
            &["--start-at", "2090-01-01T00:30:00Z"][..],
            &[
                "2090-01-01T01:00:00Z",
                "2090-01-01T02:00:00Z",
                "2090-01-01T03:00:00Z",
            ][..],
        ),
        (
            "between",
            &[
                "--start-at",
                "2090-01-01T00:00:00Z",
                "--end-at",
                "2090-01-01T01:00:00Z",
            ],
            &["2090-01-01T00:00:00Z", "2090-01-01T01:00:00Z"],
        ),
        (
            "twice",
            &["--start-at", "2090-01-01T00:00:00Z", "--max-launches", "2"],
            &["2090-01-01T00:00:00Z", "2090-01-01T01:00:00Z"],
        ),
    ] {
        let added = site.run_add(name, "ok", &[&["--every", "1h"], flags].concat());
        assert_eq!(added.code, 0, "{added:?}");
        assert_eq!(next(name), slots, "{name}");
        assert_eq!(state(name), "enabled");
    }
    let days = site.json(["schedule", "next", "between", "--calendar"]);
    assert_eq!(days, json!([]), "no slots in these months");

    // A schedule ends after its last launch.
    let once = ["--every", "1s", "--max-launches", "1"];
    assert_eq!(site.run_add("once", "ok", &once).code, 0);
    let _host = site.serve();
    let launch = site.wait_for_launch("once", |row| row["status"] == "succeeded");
    assert_eq!(site.launches("once").len(), 1, "{launch:#}");
    assert_eq!(state("once"), "ended");
    let stdout = site.ok(["schedule", "list"]);
    let once = stdout.lines().find(|line| line.starts_with("once"));
    assert!(
        once.is_some_and(|line| line.contains(" ended ")),
        "{stdout}"
    );
    assert_eq!(
        site.json(["schedule", "show", "once"])["launches_made"],
        json!(1)
    );
    let pause = [
        "--note",
        "inventory",
        "--until",
        "2090-01-01T00:00:00Z",
        "--by",
        "Ada",
    ];
    site.ok(["schedule", "pause", "later"].into_iter().chain(pause));
    let shown = site.json(["schedule", "show", "later"]);
    for (key, value) in [
        ("state", json!("paused")),
        ("paused_by", json!("Ada")),
        ("pause_note", json!("inventory")),
        ("paused_until", json!("2090-01-01T00:00:00Z")),
    ] {
        assert_eq!(shown[key], value, "{key}");
    }
    assert_ne!(shown["paused_at"], Value::Null);
    let stdout = site.ok(["schedule", "show", "later"]);
    let pause_text = " by Ada, until 2090-01-01T00:00:00Z: inventory\n";
    assert!(stdout.contains(pause_text), "{stdout}");
}
