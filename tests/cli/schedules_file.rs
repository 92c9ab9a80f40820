//! The schedules file: what it orders is there, what it leaves out is ended, and a broken one changes nothing.

use std::time::Duration;

use campanile_tests::{Backend, HostProcess, Place, on_both_empty, run_empty_case};
use serde_json::{Value, json};

use crate::site::{Site, eventually, list, text};

on_both_empty!(
    what_the_file_orders_is_followed_while_a_host_serves,
    a_broken_file_and_one_that_is_gone_keep_the_schedules,
    a_name_that_is_held_is_refused_and_then_nothing_is_ended,
    a_schedule_waits_for_its_package,
    a_file_is_checked_without_being_taken_over,
);

fn order(site: &Site, text: &str) {
    std::fs::write(site.folder().join("schedules.toml"), text).expect("a schedules file");
}

/// A site whose file orders `text`, with a host.
fn ordered(place: Place, text: &str) -> (Site, HostProcess) {
    let site = Site::new(place);
    site.bring("guests");
    order(&site, text);
    let host = site.serve();
    (site, host)
}

fn schedule(name: &str, lines: &str) -> String {
    format!("[[schedules]]\nname = '{name}'\npackage = 'guests'\ntask = 'ok'\n{lines}\n")
}

/// Every schedule: its name, origin and revision.
fn all(site: &Site) -> Vec<(String, String, i64)> {
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
fn wait_for(site: &Site, wanted: &[(String, String, i64)]) {
    eventually(|| match all(site) {
        now if now == wanted => Ok(()),
        now => Err(format!("{now:#?}")),
    });
}

/// The details of the events of one kind, newest first.
fn events(site: &Site, kind: &str) -> Vec<String> {
    list(site.json(["event", "list"]))
        .iter()
        .filter(|event| event["kind"] == kind)
        .map(|event| text(&event["detail"]))
        .collect()
}

async fn what_the_file_orders_is_followed_while_a_host_serves(place: Place) {
    let secondly = schedule("secondly", "every = '1s'\noverlap = 'allow'");
    let hourly = schedule("hourly", "every = '1h'");
    let (site, mut host) = ordered(place, &format!("{secondly}{hourly}"));
    // They are there when it serves.
    assert_eq!(all(&site), [of_file("hourly", 1), of_file("secondly", 1)]);
    let rung = site.launch_where("secondly", |row| row["status"] == "succeeded");
    let applied = || events(&site, "schedules_file_applied");
    assert_eq!(applied(), ["2 added, 0 changed, 0 removed"]);
    site.run(["schedule", "edit", "hourly", "--jitter", "1m"])
        .refused(&[
            "`hourly` is defined in the schedules file",
            "change the schedules file",
        ]);

    let daily = schedule("daily", "cron = '@daily'\ntimezone = 'Europe/Rome'");
    let hourly = schedule("hourly", "every = '1h'\njitter = '1m'");
    order(&site, &format!("# Another order.\n{daily}\n{hourly}"));
    wait_for(&site, &[of_file("daily", 1), of_file("hourly", 2)]);
    assert_eq!(applied()[0], "1 added, 1 changed, 1 removed");
    assert_eq!(
        site.json(["schedule", "show", "hourly"])["policies"],
        json!({"jitter": "1m"})
    );
    let kept = events(&site, "schedule_removed");
    assert_eq!(kept, ["its launches stay on the record"]);
    let launches = list(site.json(["launch", "list"]));
    assert!(launches.iter().any(|row| row["id"] == rung["id"]));

    // A start with the same file changes nothing, nor does another text that orders the same.
    host.terminate();
    assert!(host.wait_exit().success());
    order(&site, &format!("{hourly}{daily}"));
    let host = site.serve();
    assert_eq!(all(&site), [of_file("daily", 1), of_file("hourly", 2)]);
    assert_eq!(applied().len(), 2);
    order(&site, "");
    host.wait_for_line("0 added, 0 changed, 2 removed");
    assert_eq!(all(&site), []);
}

async fn a_broken_file_and_one_that_is_gone_keep_the_schedules(place: Place) {
    let good = schedule("hourly", "every = '1h'");
    let (site, mut host) = ordered(place, &good);
    let kept = [of_file("hourly", 1)];
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
        order(&site, &broken);
        let said = host.wait_for_line(expected);
        assert!(said.contains("its schedules stay as they were"), "{said}");
        let told = events(&site, "schedules_file_rejected");
        assert!(told[0].contains(expected), "{told:?}");
        assert_eq!(all(&site), kept);
    }
    std::fs::remove_file(site.folder().join("schedules.toml")).expect("the file");
    host.wait_for_line("it is not there any more");
    assert_eq!(all(&site), kept);
    let told = events(&site, "schedules_file_rejected").len();
    host.terminate();
    assert!(host.wait_exit().success());

    // Also at the next start, and the file can come back.
    let host = site.serve();
    host.wait_for_line("it is not there any more");
    assert_eq!(all(&site), kept);
    assert_eq!(events(&site, "schedules_file_rejected").len(), told + 1);
    order(&site, &schedule("hourly", "every = '2h'"));
    wait_for(&site, &[of_file("hourly", 2)]);
}

async fn a_name_that_is_held_is_refused_and_then_nothing_is_ended(place: Place) {
    let first = schedule("first", "every = '1h'");
    let (site, host) = ordered(place, &first);
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
    let held = schedule("mine", "every = '1s'");
    order(&site, &format!("{second}{held}"));
    let said = host.wait_for_line("a schedule named `mine` exists already");
    assert!(said.contains("the operator's"), "{said}");
    let three = [of_file("first", 1), mine, of_file("second", 1)];
    assert_eq!(all(&site), three);
    assert_eq!(events(&site, "schedule_refused").len(), 1);

    site.ok(["schedule", "remove", "mine"]);
    // It is tried again without the file being touched.
    wait_for(&site, &[of_file("mine", 1), of_file("second", 1)]);
    assert_eq!(events(&site, "schedule_refused").len(), 1, "told once");
}

async fn a_schedule_waits_for_its_package(place: Place) {
    let site = Site::new(place);
    order(&site, &schedule("hourly", "every = '1h'"));
    let host = site.serve();
    let told = events(&site, "schedule_refused");
    assert!(
        told.len() == 1 && told[0].contains("there is no package named `guests`"),
        "{told:?}"
    );
    site.bring("guests");
    host.wait_for_line("1 added");
    assert_eq!(all(&site), [of_file("hourly", 1)]);
}

async fn a_file_is_checked_without_being_taken_over(place: Place) {
    let one = schedule("one", "every = '1h'");
    let two = schedule("two", "every = '1h'");
    let (site, _host) = ordered(place, &format!("{one}{two}"));
    let before = [of_file("one", 1), of_file("two", 1)];
    assert_eq!(all(&site), before);
    let write = |text: &str| {
        std::fs::write(site.folder().join("new.toml"), text).expect("a file");
    };
    let check = || site.run(["schedule", "check", "new.toml"]);
    let three = schedule("three", "cron = '@daily'\ntimezone = 'Europe/Rome'");
    let other = schedule("one", "every = '2h'\njitter = '1m'");
    write(&format!("{other}{three}"));
    let said = check();
    assert_eq!(
        (said.code, said.stdout.as_str()),
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

    // That of the configuration, which is in force.
    let said = site.run(["schedule", "check"]);
    assert_eq!(
        (said.code, said.stdout.as_str(), said.stderr.as_str()),
        (0, "", "the file would change nothing\n")
    );

    write(&schedule("four", "every = '1h'").replace("'ok'", "'okay'"));
    let said = check();
    assert_eq!(said.code, 1, "{said:?}");
    assert!(
        said.stdout
            .starts_with("refused four: the package `guests` has no task `okay`"),
        "{said:?}"
    );
    assert!(said.stderr.contains("none is removed"), "{said:?}");
    write(&schedule("one", "every = '1h'\njiter = '1m'"));
    check().refused(&["new.toml:6:1: unknown key `schedules[0].jiter`: did you mean `jitter`?"]);
    site.run(["schedule", "check", "nowhere.toml"])
        .refused(&["nowhere.toml: the file does not exist"]);
    assert_eq!(all(&site), before, "nothing was taken over");
    let refused: Vec<Value> = list(site.json(["event", "list"]))
        .into_iter()
        .filter(|event| event["kind"] == "schedule_refused")
        .collect();
    assert_eq!(refused, Vec::<Value>::new());
}

/// Trying again is about what was refused, and not about what the file had changed then.
#[test]
fn trying_again_reverts_nothing_that_another_host_changed_since() {
    run_empty_case(Backend::Postgres, async |place| {
        let hourly = schedule("first", "every = '1h'");
        let waits = schedule("waits", "every = '1h'").replace("guests", "nowhere");
        let (site, _north) = ordered(place, &format!("{hourly}{waits}"));
        assert_eq!(all(&site), [of_file("first", 1)]);

        let folder = site.folder().join("south");
        std::fs::create_dir(&folder).expect("a folder");
        std::fs::write(folder.join("campanile.toml"), "").expect("a configuration");
        let daily = schedule("first", "every = '1d'");
        std::fs::write(folder.join("schedules.toml"), daily).expect("a schedules file");
        let config = ["--config", "south/campanile.toml", "--plugins", "plugins"];
        let _south = site.serve_with(&[&["--name", "south"][..], &config].concat());
        assert_eq!(all(&site), [of_file("first", 2)]);
        // North tries again every 10 s.
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(all(&site), [of_file("first", 2)]);
    });
}

/// Of several hosts' files the one holds that was taken over last: also when an earlier one waits for something.
#[test]
fn trying_again_undoes_nothing_that_another_hosts_file_did() {
    run_empty_case(Backend::Postgres, async |place| {
        let (site, north) = ordered(place, &schedule("first", "every = '1h'"));
        let mine = ["schedule", "add", "mine", "--package", "guests"];
        site.ok(mine.into_iter().chain(["--every", "1h"]));
        let first = schedule("first", "every = '1h'");
        order(
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
        let held = [
            ("mine".to_owned(), "operator".to_owned(), 1),
            of_file("other", 1),
        ];
        assert_eq!(all(&site), held);
        // North tries again every 10 s.
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(all(&site), held);
        site.ok(["schedule", "remove", "mine"]);
        std::thread::sleep(Duration::from_secs(13));
        assert_eq!(all(&site), [of_file("other", 1)]);
    });
}
