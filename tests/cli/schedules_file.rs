//! The schedules file: the host applies its schedules, ends the removed ones, and ignores an invalid file.

use std::time::Duration;

use campanile_tests::{Backend, HostProcess, Place, on_both_empty, run_empty_case};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, stop, text};

on_both_empty!(
    a_running_host_applies_changes_of_the_schedules_file,
    an_invalid_or_missing_file_keeps_the_schedules,
    a_name_of_another_origin_is_refused_and_nothing_is_ended,
    a_schedule_is_added_when_its_package_arrives,
    schedule_check_compares_a_file_without_applying_it,
    schedule_reconcile_applies_a_file_or_changes_nothing,
);

fn write_file(site: &Site, text: &str) {
    std::fs::write(site.folder().join("schedules.toml"), text).expect("a schedules file");
}

/// Return a site with this schedules file and a host.
fn serve_with_file(place: Place, text: &str) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.copy_package("guests");
    write_file(&site, text);
    let host = site.serve();
    (site, host)
}

fn schedule(name: &str, lines: &str) -> String {
    format!("[[schedules]]\nname = '{name}'\npackage = 'guests'\ntask = 'ok'\n{lines}\n")
}

/// Return the name, origin and revision of every schedule.
fn schedules(site: &Site) -> Vec<(String, String, i64)> {
    list(site.json(["schedule", "list"]))
        .iter()
        .map(|row| {
            let revision = row["revision"].as_i64().expect("a number");
            (text(&row["name"]), text(&row["origin"]), revision)
        })
        .collect()
}

fn of_file(name: &str, revision: i64) -> (String, String, i64) {
    (name.to_owned(), "file".to_owned(), revision)
}

#[track_caller]
fn wait_for_schedules(site: &Site, expected: &[(String, String, i64)]) {
    eventually(|| match schedules(site) {
        current if current == expected => Ok(()),
        current => Err(format!("{current:#?}")),
    });
}

/// Return the details of the events of one kind, newest first.
fn events(site: &Site, kind: &str) -> Vec<String> {
    list(site.json(["event", "list"]))
        .iter()
        .filter(|event| event["kind"] == kind)
        .map(|event| text(&event["detail"]))
        .collect()
}

async fn a_running_host_applies_changes_of_the_schedules_file(place: Place) {
    let secondly = schedule("secondly", "every = '1s'\noverlap = 'allow'");
    let hourly = schedule("hourly", "every = '1h'");
    let (site, mut host) = serve_with_file(place, &format!("{secondly}{hourly}"));
    let both = [of_file("hourly", 1), of_file("secondly", 1)];
    // The schedules exist when the host serves, unless it started before their package was loaded.
    let log = host.stderr_lines().concat();
    if !log.contains("the host starts without it") {
        assert_eq!(schedules(&site), both);
    }
    wait_for_schedules(&site, &both);
    let launch = site.wait_for_launch("secondly", |row| row["status"] == "succeeded");
    let applied = || events(&site, "schedules_file_applied");
    assert_eq!(applied(), ["2 added, 0 changed, 0 removed"]);
    site.run(["schedule", "edit", "hourly", "--jitter", "1m"])
        .assert_refused(&[
            "`hourly` is defined in the schedules file",
            "change the schedules file",
        ]);

    let daily = schedule("daily", "cron = '@daily'\ntimezone = 'Europe/Rome'");
    let hourly = schedule("hourly", "every = '1h'\njitter = '1m'");
    write_file(&site, &format!("# Another sequence.\n{daily}\n{hourly}"));
    wait_for_schedules(&site, &[of_file("daily", 1), of_file("hourly", 2)]);
    assert_eq!(applied()[0], "1 added, 1 changed, 1 removed");
    assert_eq!(
        site.json(["schedule", "show", "hourly"])["policies"],
        json!({"jitter": "1m"})
    );
    let removed = events(&site, "schedule_removed");
    assert_eq!(removed, ["its launches stay on the record"]);
    let launches = list(site.json(["launch", "list"]));
    assert!(launches.iter().any(|row| row["id"] == launch["id"]));

    // Neither a start with the same file nor another text with the same schedules changes anything.
    stop(&mut host);
    write_file(&site, &format!("{hourly}{daily}"));
    let host = site.serve();
    assert_eq!(
        schedules(&site),
        [of_file("daily", 1), of_file("hourly", 2)]
    );
    assert_eq!(applied().len(), 2);
    write_file(&site, "");
    host.wait_for_line("0 added, 0 changed, 2 removed");
    assert_eq!(schedules(&site), []);
}

async fn an_invalid_or_missing_file_keeps_the_schedules(place: Place) {
    let good = schedule("hourly", "every = '1h'");
    let (site, mut host) = serve_with_file(place, &good);
    let kept = [of_file("hourly", 1)];
    wait_for_schedules(&site, &kept);
    for (broken, expected) in [
        (
            schedule("hourly", "every = '1h'\njitter = '2h'"),
            "line 6: `schedules[0].jitter` is refused: jitter is 2h, longer",
        ),
        (
            schedule("hourly", "cron = '61 * * * *'"),
            "line 5: `schedules[0].cron` is refused: ",
        ),
        (
            schedule("hourly", "every = '1h'\noverlap = 'alow'"),
            "line 6: `schedules[0].overlap` must be ",
        ),
        (
            format!("{good}{good}"),
            "line 7: `schedules[1].name` is \"hourly\", the name of another schedule: choose another name",
        ),
        ("[[schedules]".to_owned(), "line 1: this is not TOML"),
    ] {
        write_file(&site, &broken);
        let line = host.wait_for_line(expected);
        assert!(line.contains("its schedules stay as they were"), "{line}");
        let rejections = events(&site, "schedules_file_rejected");
        assert!(rejections[0].contains(expected), "{rejections:?}");
        assert_eq!(schedules(&site), kept);
    }
    std::fs::remove_file(site.folder().join("schedules.toml")).expect("the file");
    host.wait_for_line("it is not there any more");
    assert_eq!(schedules(&site), kept);
    let rejections = events(&site, "schedules_file_rejected").len();
    stop(&mut host);

    // A start without the file keeps the schedules too. A new file applies.
    let host = site.serve();
    host.wait_for_line("it is not there any more");
    assert_eq!(schedules(&site), kept);
    assert_eq!(
        events(&site, "schedules_file_rejected").len(),
        rejections + 1
    );
    write_file(&site, &schedule("hourly", "every = '2h'"));
    wait_for_schedules(&site, &[of_file("hourly", 2)]);
}

async fn a_name_of_another_origin_is_refused_and_nothing_is_ended(place: Place) {
    let first = schedule("first", "every = '1h'");
    let (site, host) = serve_with_file(place, &first);
    wait_for_schedules(&site, &[of_file("first", 1)]);
    let mine = [
        "schedule",
        "add",
        "mine",
        "--package",
        "guests",
        "--every",
        "1h",
    ];
    site.ok(mine);
    let mine = ("mine".to_owned(), "operator".to_owned(), 1);
    let second = schedule("second", "every = '1h'");
    let taken = schedule("mine", "every = '1s'");
    write_file(&site, &format!("{second}{taken}"));
    let line = host.wait_for_line("a schedule named `mine` exists already");
    assert!(line.contains("the operator's"), "{line}");
    let expected = [of_file("first", 1), mine, of_file("second", 1)];
    assert_eq!(schedules(&site), expected);
    // Where the package was loaded late, `first` was refused too.
    let refusals = || {
        let refused = events(&site, "schedule_refused").into_iter();
        refused.filter(|why| why.contains("`mine`")).count()
    };
    assert_eq!(refusals(), 1);

    site.ok(["schedule", "remove", "mine"]);
    // The host retries although the file did not change.
    wait_for_schedules(&site, &[of_file("mine", 1), of_file("second", 1)]);
    assert_eq!(refusals(), 1, "one event for all retries");
}

async fn a_schedule_is_added_when_its_package_arrives(place: Place) {
    let site = Site::new(place);
    write_file(&site, &schedule("hourly", "every = '1h'"));
    let host = site.serve();
    let refusals = events(&site, "schedule_refused");
    assert!(
        refusals.len() == 1 && refusals[0].contains("there is no package named `guests`"),
        "{refusals:?}"
    );
    site.copy_package("guests");
    host.wait_for_line("1 added");
    assert_eq!(schedules(&site), [of_file("hourly", 1)]);
}

async fn schedule_check_compares_a_file_without_applying_it(place: Place) {
    let one = schedule("one", "every = '1h'");
    let two = schedule("two", "every = '1h'");
    let (site, _host) = serve_with_file(place, &format!("{one}{two}"));
    let before = [of_file("one", 1), of_file("two", 1)];
    wait_for_schedules(&site, &before);
    let write = |text: &str| {
        std::fs::write(site.folder().join("new.toml"), text).expect("a file");
    };
    let check = || site.run(["schedule", "check", "new.toml"]);
    // A host refuses such a file.
    write(&format!("{one}# {}\n", "x".repeat(4 << 20)));
    check().assert_refused(&["new.toml", "it is larger than 4MiB"]);
    site.run(["schedule", "reconcile", "new.toml"])
        .assert_refused(&["it is larger than 4MiB"]);
    let three = schedule("three", "cron = '@daily'\ntimezone = 'Europe/Rome'");
    let other = schedule("one", "every = '2h'\njitter = '1m'");
    write(&format!("{other}{three}"));
    let output = check();
    assert_eq!(
        (output.code, output.stdout.as_str()),
        (
            0,
            "added three: cron @daily Europe/Rome, of guests\n\
             changed one:\n  every   1h  ->  2h\n  jitter  -  ->  1m\n\
             removed two\n"
        )
    );
    let value = site.json(["schedule", "check", "new.toml"]);
    let differences = json!([
        {"key": "every", "before": "1h", "after": "2h"},
        {"key": "jitter", "before": null, "after": "1m"},
    ]);
    assert_eq!(
        value,
        json!({
            "added": ["three"],
            "changed": [{"schedule": "one", "differences": differences}],
            "removed": ["two"],
            "refused": [],
        })
    );

    // Without an argument the command checks the file of the configuration.
    let output = site.run(["schedule", "check"]);
    assert_eq!(
        (output.code, output.stdout.as_str(), output.stderr.as_str()),
        (
            0,
            "",
            "the file changes nothing: the schedules are those that it defines\n"
        )
    );

    write(&schedule("four", "every = '1h'").replace("'ok'", "'okay'"));
    let output = check();
    assert_eq!(output.code, 1, "{output:?}");
    assert!(
        output
            .stdout
            .starts_with("refused four: the package `guests` has no task `okay`"),
        "{output:?}"
    );
    output.assert_stderr("none is removed");
    write(&schedule("one", "every = '1h'\njiter = '1m'"));
    check().assert_refused(&[
        "new.toml:6:1: unknown key `schedules[0].jiter`: did you mean `jitter`?",
    ]);
    site.run(["schedule", "check", "nowhere.toml"])
        .assert_refused(&["nowhere.toml: the file does not exist"]);
    assert_eq!(schedules(&site), before, "the check applied nothing");
    let refused: Vec<Value> = list(site.json(["event", "list"]))
        .into_iter()
        .filter(|event| event["kind"] == "schedule_refused" && event["subject"] == "four")
        .collect();
    assert_eq!(refused, Vec::<Value>::new());
}

/// A retry applies only the refused schedules, not what the file had changed before.
#[test]
fn a_retry_keeps_what_another_host_changed_since() {
    run_empty_case(Backend::Postgres, async |place| {
        let hourly = schedule("first", "every = '1h'");
        let refused = schedule("waits", "every = '1h'").replace("guests", "nowhere");
        let (site, _north) = serve_with_file(place, &format!("{hourly}{refused}"));
        wait_for_schedules(&site, &[of_file("first", 1)]);

        let folder = site.folder().join("south");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("campanile.toml"), "").expect("a configuration");
        let daily = schedule("first", "every = '1d'");
        std::fs::write(folder.join("schedules.toml"), daily).expect("a schedules file");
        let config = ["--config", "south/campanile.toml", "--plugins", "plugins"];
        let _south = site.serve_with(&[&["--name", "south"][..], &config].concat());
        assert_eq!(schedules(&site), [of_file("first", 2)]);
        // The host `north` retries every 10 s.
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(schedules(&site), [of_file("first", 2)]);
    });
}

/// The file that was applied last decides, also when the file of another host still has refused schedules.
#[test]
fn a_retry_keeps_what_another_hosts_file_changed() {
    run_empty_case(Backend::Postgres, async |place| {
        let (site, north) = serve_with_file(place, &schedule("first", "every = '1h'"));
        wait_for_schedules(&site, &[of_file("first", 1)]);
        let mine = ["schedule", "add", "mine", "--package", "guests"];
        site.ok(mine.into_iter().chain(["--every", "1h"]));
        let first = schedule("first", "every = '1h'");
        write_file(
            &site,
            &format!("{first}{}", schedule("mine", "every = '1s'")),
        );
        north.wait_for_line("a schedule named `mine` exists already");

        let folder = site.folder().join("south");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("campanile.toml"), "").expect("a configuration");
        std::fs::write(
            folder.join("schedules.toml"),
            schedule("other", "every = '1h'"),
        )
        .expect("a schedules file");
        let config = ["--config", "south/campanile.toml", "--plugins", "plugins"];
        let _south = site.serve_with(&[&["--name", "south"][..], &config].concat());
        let expected = [
            ("mine".to_owned(), "operator".to_owned(), 1),
            of_file("other", 1),
        ];
        assert_eq!(schedules(&site), expected);
        // The host `north` retries every 10 s.
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(schedules(&site), expected);
        site.ok(["schedule", "remove", "mine"]);
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(schedules(&site), [of_file("other", 1)]);
    });
}

async fn schedule_reconcile_applies_a_file_or_changes_nothing(place: Place) {
    let site = Site::with_guests(place);
    let write = |text: &str| {
        std::fs::write(site.folder().join("mine.toml"), text).expect("a file");
    };
    let reconcile = ["schedule", "reconcile", "mine.toml", "--by", "ada"];
    let one = schedule("one", "every = '1h'");
    write(&format!("{one}{}", schedule("two", "every = '1h'")));
    assert_eq!(
        site.ok(reconcile),
        "added one: every 1h UTC, of guests\nadded two: every 1h UTC, of guests\n"
    );
    assert_eq!(schedules(&site), [of_file("one", 1), of_file("two", 1)]);
    write(&schedule("one", "every = '2h'"));
    let report = site.json(reconcile);
    assert_eq!(
        (&report["changed"][0]["schedule"], &report["removed"]),
        (&json!("one"), &json!(["two"]))
    );
    let after = [of_file("one", 2)];
    assert_eq!(schedules(&site), after);
    assert_eq!(
        events(&site, "schedules_file_applied"),
        [
            "0 added, 1 changed, 1 removed, by ada",
            "2 added, 0 changed, 0 removed, by ada"
        ]
    );
    let again = site.run(reconcile);
    assert_eq!((again.code, again.stdout.as_str()), (0, ""), "{again:?}");
    again.assert_stderr("the file changes nothing");

    // One refused schedule, and nothing changes.
    let three = schedule("three", "every = '1h'");
    write(&format!(
        "{three}{}",
        three.replace("three", "four").replace("'ok'", "'okay'")
    ));
    site.run(reconcile).assert_refused(&[
        "`four` of mine.toml is refused, so nothing was changed",
        "no task `okay`",
        "`campanile schedule check mine.toml`",
    ]);
    assert_eq!(schedules(&site), after);
    assert_eq!(events(&site, "schedules_file_applied").len(), 2);
    // The configured file is not there.
    site.run(["schedule", "reconcile"])
        .assert_refused(&["schedules.toml", "does not exist"]);
}
