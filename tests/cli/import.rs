//! `campanile schedule import crontab`: the report of each line, and repeated imports.

use std::fs::File;

use campanile_tests::{Place, on_both_empty};
use serde_json::{Value, json};

use crate::site::{CommandOutput, Site, list, text};

on_both_empty!(
    the_report_covers_every_line_of_a_crontab,
    a_system_crontab_imports_every_entry_into_one_package,
    an_unreadable_crontab_is_refused,
);

const CRONTAB: &str = r#"# the jobs of the old machine

PATH=/bin:/usr/bin
TZ=Europe/Rome
30 2 * * * /usr/local/bin/guests.sh --all
CRON_TZ=Asia/Tokyo
@daily guests
61 * * * * guests
0 5 * * * nobody-knows x
0 6 * * * guests%hello\%
30 2 * *
30 2 * * * /usr/local/bin/guests.sh --all
@reboot guests
"#;

fn serve_guests(place: Place) -> (Site, campanile_tests::HostProcess) {
    let site = Site::new(place);
    site.copy_package("guests");
    let host = site.serve();
    (site, host)
}

fn write(site: &Site, text: &str) {
    std::fs::write(site.folder().join("crontab"), text).expect("a crontab");
}

fn import(site: &Site, more: &[&str]) -> CommandOutput {
    let fixed = ["schedule", "import", "crontab", "crontab"];
    site.run(fixed.into_iter().chain(more.iter().copied()))
}

/// Return the number, the result and the schedule of each line of the report.
fn line_results(report: &Value) -> Vec<(u64, String, Value)> {
    let lines = list(report["lines"].clone());
    let short = |line: &Value| {
        let number = line["line"].as_u64().expect("a number");
        (number, text(&line["result"]), line["schedule"].clone())
    };
    lines.iter().map(short).collect()
}

fn schedules(site: &Site) -> Vec<Value> {
    list(site.json(["schedule", "list"]))
}

async fn the_report_covers_every_line_of_a_crontab(place: Place) {
    let (site, _host) = serve_guests(place);
    write(&site, CRONTAB);
    let expected = |result: &str| {
        let line = |number: u64, result: &str, name: Option<&str>| {
            (number, result.to_owned(), json!(name))
        };
        [
            line(3, "variable", None),
            line(4, "variable", None),
            line(5, result, Some("guests")),
            line(6, "zone", None),
            line(7, result, Some("guests-2")),
            line(8, "refused", None),
            line(9, "refused", None),
            line(10, result, Some("guests-3")),
            line(11, "refused", None),
            line(12, result, Some("guests-4")),
            line(13, result, Some("guests-5")),
        ]
    };
    let dry_run = import(&site, &["--dry-run", "--json"]);
    assert_eq!(
        (dry_run.code, dry_run.stderr.as_str()),
        (1, ""),
        "{dry_run:?}"
    );
    assert_eq!(line_results(&dry_run.json()), expected("added"));
    let text_output = import(&site, &["--dry-run"]);
    text_output.assert_stdout("line 5: would add guests: ");
    assert!(
        text_output
            .stderr
            .starts_with("5 would be added, 0 exist already, 3 not"),
        "{text_output:?}"
    );
    assert_eq!(
        schedules(&site),
        Vec::<Value>::new(),
        "a dry run adds nothing"
    );

    let output = import(&site, &["--json"]);
    assert_eq!((output.code, output.stderr.as_str()), (1, ""), "{output:?}");
    let report = output.json();
    assert_eq!(line_results(&report), expected("added"));
    let counts = ["added", "exist", "refused", "dry_run"].map(|key| report[key].clone());
    assert_eq!(counts, [json!(5), json!(0), json!(3), json!(false)]);
    let rows = schedules(&site);
    let rules: Vec<(String, String, String, Value)> = rows
        .iter()
        .map(|row| {
            let [name, rule, zone] = ["name", "expression", "timezone"].map(|key| text(&row[key]));
            assert_eq!(text(&row["package"]), "guests");
            (name, rule, zone, row["context"].clone())
        })
        .collect();
    let rule = |name: &str, rule: &str, zone: &str, command: &str| {
        let context = json!({ "command": command });
        (name.to_owned(), rule.to_owned(), zone.to_owned(), context)
    };
    let all = "/usr/local/bin/guests.sh --all";
    assert_eq!(
        rules,
        [
            rule("guests", "30 2 * * *", "UTC", all),
            rule("guests-2", "@daily", "Asia/Tokyo", "guests"),
            rule("guests-3", "0 6 * * *", "Asia/Tokyo", "guests"),
            rule("guests-4", "30 2 * * *", "Asia/Tokyo", all),
            rule("guests-5", "@reboot", "Asia/Tokyo", "guests"),
        ]
    );

    // A second import, as text: every schedule exists, and none is added.
    let output = import(&site, &[]);
    assert_eq!(output.code, 1, "{output:?}");
    let lines: Vec<&str> = output.stdout.lines().collect();
    assert_eq!(lines.len(), 11, "{output:?}");
    for (place, expected) in [
        (
            0,
            "line 3: not imported: the variable PATH; a task gets variables only from",
        ),
        (
            1,
            "line 4: not imported: the variable TZ; TZ is for the commands, not the time zone",
        ),
        (
            2,
            "line 5: exists as guests: cron 30 2 * * *, UTC, package guests, next slot 2",
        ),
        (3, "line 6: the lines below are in Asia/Tokyo"),
        (
            4,
            "line 7: exists as guests-2: cron @daily, Asia/Tokyo, package guests",
        ),
        (
            5,
            "line 8: not imported: `61` in the minute field at position 1 is out of range 0-59; write 0 to 59",
        ),
        (
            6,
            "line 9: not imported: there is no package named `nobody-knows`; put nobody-knows.wasm into",
        ),
        (7, "line 10: exists as guests-3"),
        (
            8,
            "line 11: not imported: it has no command; write minute, hour,",
        ),
        (9, "line 12: exists as guests-4"),
        (
            10,
            "line 13: exists as guests-5: cron @reboot, Asia/Tokyo, package guests",
        ),
    ] {
        assert!(
            lines[place].starts_with(expected),
            "not {expected:?}: {}",
            lines[place]
        );
    }
    assert!(lines[7].ends_with("the text after `%`, standard input for the command, is ignored"));
    output.assert_stderr("are read in UTC");
    assert_eq!(
        line_results(&import(&site, &["--json"]).json()),
        expected("exists")
    );
    assert_eq!(schedules(&site), rows, "nothing is added twice");

    // Another default zone makes another rule of the entries before CRON_TZ.
    let output = import(&site, &["--tz", "Europe/Rome", "--json"]);
    let added: Vec<u64> = line_results(&output.json())
        .into_iter()
        .filter(|(_, result, _)| result == "added")
        .map(|(line, _, _)| line)
        .collect();
    assert_eq!(added, [5]);
    assert_eq!(
        site.json(["schedule", "show", "guests-6"])["timezone"],
        "Europe/Rome"
    );
}

async fn a_system_crontab_imports_every_entry_into_one_package(place: Place) {
    let (site, _host) = serve_guests(place);
    write(
        &site,
        "17 *\t* * *\troot\tcd / && run-parts --report /etc/cron.hourly\n-H 3 * * * ada x.sh\n",
    );
    let system = ["--system", "--package", "guests", "--tz", "Europe/Paris"];
    let result = import(&site, &system);
    assert_eq!(result.code, 0, "{result:?}");
    let lines: Vec<&str> = result.stdout.lines().collect();
    assert!(lines[0].starts_with("line 1: added run-parts: cron 17 * * * *, Europe/Paris"));
    assert!(
        lines[0].ends_with("; the user root is ignored: tasks have no user"),
        "{result:?}"
    );
    assert!(lines[1].contains("the user ada is ignored"), "{result:?}");
    assert!(lines[1].ends_with("every launch is recorded"), "{result:?}");
    assert_eq!(result.stderr, "2 added, 0 exist already, 0 not imported\n");
    let shown = site.json(["schedule", "show", "run-parts"]);
    let command = "cd / && run-parts --report /etc/cron.hourly";
    assert_eq!(shown["context"], json!({ "command": command }));

    // The crontab can come from standard input.
    let file = File::open(site.folder().join("crontab")).expect("the crontab");
    let from_stdin = ["schedule", "import", "crontab", "-", "--json"];
    let output = site
        .command(from_stdin.iter().chain(&system))
        .stdin(file)
        .output()
        .expect("a run");
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (output.status.code(), &report["exist"]),
        (Some(0), &json!(2)),
        "{report:#}"
    );

    // Without --system, the user is read as the command.
    let result = import(&site, &["--package", "guests", "--dry-run"]);
    result.assert_stdout("would add root: cron 17 * * * *");
    result.assert_stdout("if `root` is the user, import it with --system");
}

async fn an_unreadable_crontab_is_refused(place: Place) {
    let (site, _host) = serve_guests(place);
    import(&site, &[]).assert_refused(&["crontab cannot be read: it does not exist"]);
    for (text, expected) in [
        (
            &b"# nothing\n\nPATH=/bin\nCRON_TZ=UTC\n"[..],
            "crontab: the file has no entry",
        ),
        (
            b"# ok\n0 3 * * * gr\xfc\xdfe\n",
            "crontab cannot be read: line 2 is not UTF-8 text; convert the file",
        ),
        (
            &[b'#'; 64 * 1024 + 1],
            "crontab cannot be read: the file has more than 65536 bytes",
        ),
    ] {
        std::fs::write(site.folder().join("crontab"), text).expect("a crontab");
        import(&site, &[]).assert_refused(&[expected]);
    }
    // An unknown zone is reported at its own line.
    write(&site, "CRON_TZ=Mars/Foo\n0 3 * * * guests\n");
    let output = import(&site, &["--dry-run"]);
    assert_eq!(output.code, 1, "{output:?}");
    let first = "line 1: not imported: timezone `Mars/Foo` is not known; ";
    assert!(output.stdout.starts_with(first), "{output:?}");

    write(&site, "0 3 * * * x\n");
    import(&site, &["--package", "guest"]).assert_refused(&["did you mean `guests`?"]);
    import(&site, &["--tz", "Europe/Pariss"]).assert_refused(&["`Europe/Pariss`", "hint: "]);
    assert_eq!(schedules(&site), Vec::<Value>::new());
}
