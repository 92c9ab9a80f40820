//! Bad input: one clear sentence with its place and a hint, exit code 2, and nothing half-written.

use std::path::Path;
use std::time::{Duration, Instant};

use campanile_tests::{Backend, Place, TestDb, cluster, on_both, on_both_empty, run_empty_case};
use serde_json::Value;

use crate::site::{Said, Site, eventually, list, run, text};

on_both_empty!(
    orders_that_make_no_sense_are_refused_and_change_nothing,
    packages_that_cannot_be_loaded_are_told_of_and_the_others_ring,
    a_database_without_tables_is_refused_until_somebody_serves_it,
);
on_both!(a_database_of_another_version_is_refused_and_left_alone);

/// Everything that an order could have changed.
fn everything(site: &Site) -> Vec<Value> {
    ["schedule", "launch", "run", "event", "package"]
        .into_iter()
        .map(|table| site.json([table, "list"]))
        .collect()
}

async fn orders_that_make_no_sense_are_refused_and_change_nothing(place: Place) {
    let site = Site::new(place);
    site.bring("guests");
    let _host = site.serve();
    let never = ["--at", "2099-01-01T00:00:00Z"];
    let fixed = [
        "schedule",
        "add",
        "known",
        "--package",
        "guests",
        "--task",
        "echo",
    ];
    site.ok(fixed.into_iter().chain(never));
    let before = everything(&site);
    let add = |more: &[&'static str]| {
        let fixed = [
            "schedule",
            "add",
            "new",
            "--package",
            "guests",
            "--task",
            "echo",
        ];
        site.run(fixed.into_iter().chain(more.iter().copied()))
    };

    add(&["--every", "1h", "--tz", "Europe/Pariss"]).refused(&[
        "timezone `Europe/Pariss` is not known",
        "hint: ",
        "Europe/Paris",
    ]);
    for (cron, expected) in [
        (
            "* * * *",
            &["expected 5 fields", "found 4", "30 2 * * *"][..],
        ),
        (
            "61 * * * *",
            &["`61` in the minute field at position 1", "write 0 to 59"],
        ),
        ("0 0 * * MOO", &["`MOO`", "day-of-week", "hint: "]),
        ("0 22-2 * * *", &["hour", "22-23,0-2"]),
        ("", &["hint: "]),
        (
            "0 0 31 2 *",
            &["never fires: month 2 has no day 31", "hint: "],
        ),
        ("0 0 31 4,6,9,11 *", &["never fires", "hint: "]),
    ] {
        add(&["--cron", cron]).refused(expected);
    }
    add(&["--every", "0s"]).refused(&["`0s` is zero", "hint: "]);
    add(&["--every", "often"]).refused(&["`often`", "hint: "]);
    add(&["--every", "1h", "--anchor", "noon"]).refused(&["--anchor", "`noon`", "RFC 3339"]);
    add(&["--at", "2020-01-01T00:00:00Z"])
        .refused(&["2020-01-01T00:00:00Z is in the past", "give a later time"]);
    add(&["--at", "tomorrow"]).refused(&["`tomorrow`", "RFC 3339", "hint: "]);
    for (context, expected) in [
        ("[1]", "--context: the context must be a JSON object"),
        ("{,}", "--context: not JSON"),
        (r#"{"trigger": "me"}"#, "may not set `trigger`"),
        ("@nowhere.json", "nowhere.json"),
    ] {
        add(&["--every", "1h", "--context", context]).refused(&[expected]);
        site.run(["schedule", "trigger", "known", "--context", context])
            .refused(&[expected]);
    }
    let schedule =
        |args: &[&'static str]| site.run(["schedule"].into_iter().chain(args.iter().copied()));
    schedule(&["add", "known", "--package", "guests", "--every", "1h"]).refused(&[
        "a schedule named `known` exists already",
        "choose another name",
    ]);
    schedule(&["add", "a b", "--package", "guests", "--every", "1h"])
        .refused(&["`a b` cannot name a schedule", "letters"]);
    schedule(&["add", "new", "--package", "guest", "--every", "1h"]).refused(&[
        "there is no package named `guest`",
        "did you mean `guests`?",
    ]);
    schedule(&[
        "add",
        "new",
        "--package",
        "guests",
        "--task",
        "ecco",
        "--every",
        "1h",
    ])
    .refused(&["has no task `ecco`", "did you mean `echo`?"]);
    for order in ["show", "next", "pause", "resume", "remove", "trigger"] {
        schedule(&[order, "knwon"]).refused(&[
            "there is no schedule named `knwon`",
            "did you mean `known`?",
        ]);
    }
    for lists in ["launch", "run"] {
        site.run([lists, "list", "--schedule", "knwon"]).refused(&[
            "there is no schedule named `knwon`",
            "did you mean `known`?",
        ]);
    }
    site.run(["package", "show", "guest"]).refused(&[
        "there is no package named `guest`",
        "did you mean `guests`?",
    ]);
    for order in ["show", "logs"] {
        site.run(["run", order, "00000000-0000-0000-0000-000000000000"])
            .refused(&["there is no run 00000000", "campanile run list"]);
    }
    let said = site.run(["schedule", "pause", "knwon", "--json"]);
    assert_eq!(said.code, 2);
    assert!(text(&said.json()["error"]).contains("`knwon`"), "{said:?}");

    assert_eq!(everything(&site), before, "nothing was half-written");
}

async fn packages_that_cannot_be_loaded_are_told_of_and_the_others_ring(place: Place) {
    let site = Site::new(place);
    for name in ["cycle", "babble", "noop", "append", "hello"] {
        site.bring(name);
    }
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    site.sidecar("append", "[limits]\ntimout = '5s'\n");
    site.sidecar(
        "hello",
        "[[grants.directories]]\nhost = '/no/such/place'\nguest = '/x'\naccess = 'read'\n",
    );
    let host = site.serve();
    site.launch_where("noop", |row| row["status"] == "succeeded");
    let packages = list(site.json(["package", "list"]));
    for (name, expected) in [
        (
            "cycle",
            "tasks that depend on each other: chicken → egg → chicken",
        ),
        ("babble", "describe() returned a text that is not JSON"),
        (
            "append",
            "append.toml:2:1: unknown key `limits.timout`: did you mean `timeout`?",
        ),
        ("hello", "/no/such/place, which cannot be used"),
    ] {
        let found = packages.iter().find(|package| package["name"] == name);
        let package = found.unwrap_or_else(|| panic!("no {name}: {packages:#?}"));
        assert_eq!(package["state"], "rejected", "{package:#}");
        assert!(
            text(&package["rejection"]).contains(expected),
            "{package:#}"
        );
        let said = host.wait_for_line(&format!("rejected {name}"));
        assert!(said.contains(expected), "{said}");
        site.run(["schedule", "add", "new", "--package", name, "--every", "1s"])
            .refused(&[&format!("the package `{name}` was rejected"), expected]);
    }
    assert_eq!(list(site.json(["schedule", "list"])).len(), 1);
    // A mended sidecar is all it takes.
    site.sidecar("hello", "");
    host.wait_for_line("added hello");
    eventually(|| match list(site.json(["schedule", "list"])).len() {
        2 => Ok(()),
        other => Err(format!("{other} schedules")),
    });
}

async fn a_database_without_tables_is_refused_until_somebody_serves_it(place: Place) {
    let site = Site::new(place);
    let orders = [
        &["launch", "list"][..],
        &["schedule", "add", "x", "--package", "p", "--every", "1s"],
        &["stats"],
        &["health"],
    ];
    let expected = match site.place().backend {
        Backend::Sqlite => ["there is no database at", "campanile serve"],
        Backend::Postgres => ["lacks schema version 1", "campanile db migrate"],
    };
    for order in orders {
        site.run(order.iter().copied()).refused(&expected);
    }
    if let Some(file) = site.place().url.sqlite_path() {
        assert!(!file.exists(), "looking makes no database");
    }
    site.ok(["db", "migrate"]);
    assert_eq!(site.ok(["launch", "list", "--json"]), "[]\n");
    assert_eq!(site.json(["db", "status"])["current"], true);
}

async fn a_database_of_another_version_is_refused_and_left_alone(test: TestDb) {
    let versions = "SELECT CAST(version AS TEXT) FROM _sqlx_migrations ORDER BY version";
    let steps = test.rows(versions).await.len();
    let at = |args: &[&str]| -> Said {
        let args = args.iter().copied();
        let url = test.place.url.expose();
        let folder = test.place.folder.path();
        run(folder, args.chain(["--database", &url]))
    };
    std::fs::create_dir(test.place.folder.path().join("plugins")).expect("a plugins folder");
    let copy = "CREATE TABLE kept AS SELECT * FROM _sqlx_migrations";
    test.execute(copy).await;
    test.execute("UPDATE _sqlx_migrations SET version = 999 WHERE version = 1")
        .await;
    for args in [
        &["launch", "list"][..],
        &["db", "status"],
        &["db", "migrate"],
        &["serve", "--wait", "0"],
    ] {
        let said = at(args);
        assert_eq!(
            (said.code, said.stdout.as_str()),
            (2, ""),
            "{args:?}: {said:?}"
        );
        for part in [
            "has schema version 999, newer than",
            "use a newer campanile",
        ] {
            assert!(said.stderr.contains(part), "{args:?}: {said:?}");
        }
    }
    assert_eq!(test.rows(versions).await.len(), steps, "nothing was added");

    test.execute("DELETE FROM _sqlx_migrations").await;
    at(&["launch", "list"]).refused(&["lacks schema version 1", "campanile db migrate"]);
    let status = at(&["db", "status", "--json"]);
    assert_eq!(status.code, 1, "{status:?}");
    assert_eq!(status.json()["current"], false);

    test.execute("INSERT INTO _sqlx_migrations SELECT * FROM kept")
        .await;
    assert_eq!(at(&["launch", "list"]).code, 0);
}

/// Run a command without a database of its own.
fn alone(here: &Path, args: &[&str]) -> Said {
    run(here, args.iter().copied())
}

#[test]
fn a_configuration_that_is_wrong_is_refused_with_file_line_key_and_hint() {
    let here = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(here.path().join("plugins")).expect("a plugins folder");
    for (config, expected) in [
        (
            "[host]\nruns_max = 'many'\n",
            "bad.toml:2:1: `host.runs_max` must be a whole number, not a text",
        ),
        (
            "[host]\n\nrun_max = 3\n",
            "bad.toml:3:1: unknown key `host.run_max`: did you mean `runs_max`?",
        ),
        ("databse = ''\n", "did you mean `database`?"),
        (
            "database = 'mysql://u:secret@h/d'\n",
            "write sqlite:PATH or postgres://",
        ),
        (
            "[recovery]\nlease = 30\n",
            "`recovery.lease` must be a duration in quotes",
        ),
        ("[host\n", "bad.toml:1"),
        (
            "plugins = \"a\\u0000b\"\n",
            "bad.toml:1:1: `plugins` holds a NUL character",
        ),
    ] {
        std::fs::write(here.path().join("bad.toml"), config).expect("a configuration");
        for command in [&["serve"][..], &["config", "check"], &["launch", "list"]] {
            let args: Vec<&str> = command
                .iter()
                .copied()
                .chain(["--config", "bad.toml"])
                .collect();
            let said = alone(here.path(), &args);
            said.refused(&[expected]);
            assert!(!said.stderr.contains("secret"), "{said:?}");
        }
    }
    std::fs::remove_file(here.path().join("bad.toml")).expect("the file");
    alone(here.path(), &["serve", "--config", "nowhere.toml"])
        .refused(&["nowhere.toml cannot be read", "--config"]);
    for (url, expected) in [
        ("mysql://u:secret@h/d", "--database begins with \"mysql\""),
        ("campanile.db", "--database is \"campanile.db\""),
        ("sqlite::memory:", "--database would forget every launch"),
    ] {
        let said = alone(here.path(), &["serve", "--database", url]);
        said.refused(&[expected, "write sqlite:PATH or postgres://"]);
        assert!(!said.stderr.contains("secret"), "{said:?}");
    }
    let left = std::fs::read_dir(here.path()).expect("the folder").count();
    assert_eq!(left, 1, "no database was made");
}

#[test]
fn a_plugins_folder_that_is_missing_is_refused_before_the_database_is_touched() {
    let here = tempfile::tempdir().expect("a folder");
    alone(here.path(), &["serve"])
        .refused(&["the plugins folder plugins does not exist", "--plugins"]);
    std::fs::write(here.path().join("plugins"), "").expect("a file");
    alone(here.path(), &["serve"]).refused(&["the plugins folder plugins is not a directory"]);
    let left = std::fs::read_dir(here.path()).expect("the folder").count();
    assert_eq!(left, 1, "no database was made");
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_is() {
    let here = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(here.path().join("plugins")).expect("a plugins folder");
    let file = here.path().join("notes.db");
    let notes = "these are notes and no database\n".repeat(100);
    std::fs::write(&file, &notes).expect("a file");
    for command in [&["serve"][..], &["db", "migrate"], &["launch", "list"]] {
        let args: Vec<&str> = command
            .iter()
            .copied()
            .chain(["--database", "sqlite:notes.db"])
            .collect();
        alone(here.path(), &args)
            .refused(&["notes.db: file is not a database", "give another one"]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), notes);
    alone(
        here.path(),
        &["serve", "--database", "sqlite:no/where/campanile.db"],
    )
    .refused(&["no/where/campanile.db", "check that the folder exists"]);
}

#[test]
fn a_server_that_is_not_there_is_waited_for_as_long_as_asked() {
    let here = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(here.path().join("plugins")).expect("a plugins folder");
    let port = cluster::free_port().expect("a port");
    let url = format!("postgres://site:secret@127.0.0.1:{port}/bells");
    let serve = |wait: &str| {
        let begun = Instant::now();
        let said = alone(here.path(), &["serve", "--database", &url, "--wait", wait]);
        assert!(!said.stderr.contains("secret"), "{said:?}");
        (said, begun.elapsed())
    };
    let place = format!("postgres://site:***@127.0.0.1:{port}/bells");
    let (said, took) = serve("0");
    said.refused(&[
        "the database cannot be reached",
        &place,
        "refused",
        "hint: ",
    ]);
    assert!(!said.stderr.contains("trying again"), "{said:?}");
    assert_eq!(
        said.stderr.matches("is right").count(),
        1,
        "one hint: {said:?}"
    );
    assert!(took < Duration::from_secs(4), "{took:?}");

    let (said, took) = serve("2s");
    said.refused(&[
        "the database cannot be reached",
        &place,
        "giving up at",
        "hint: ",
    ]);
    let tries = said.stderr.matches("trying again in").count();
    assert!(tries >= 3, "{said:?}");
    assert!(took >= Duration::from_secs(2), "{took:?}");

    let said = alone(here.path(), &["launch", "list", "--database", &url]);
    said.refused(&["the database cannot be reached", &place]);
}

#[test]
fn a_host_that_waits_begins_when_its_server_comes() {
    let mut server = match campanile_tests::Cluster::start() {
        Ok(server) => server,
        Err(line) => panic!("{line}"),
    };
    server.stop().expect("a stopped server");
    let here = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(here.path().join("plugins")).expect("a plugins folder");
    let mut command = crate::site::command(here.path(), ["serve", "--wait", "60s"]);
    command.env("CAMPANILE_DATABASE_URL", server.url().expose());
    let host = campanile_tests::HostProcess::spawn(&mut command);
    host.wait_for_line("trying again in");
    server.start_again().expect("the server");
    host.wait_for_line("serving");
}

#[test]
fn a_sqlite_file_is_served_by_one_host_at_a_time() {
    run_empty_case(Backend::Sqlite, async |place| {
        let site = Site::new(place);
        let mut first = site.serve();
        let second = site.run(["serve"]);
        second.refused(&[
            "another campanile already serves",
            "campanile.db",
            "use Postgres",
        ]);
        let named = site.run(["serve", "--name", "other"]);
        named.refused(&["another campanile already serves"]);
        assert_eq!(site.run(["health"]).code, 0, "the first goes on");
        first.terminate();
        assert!(first.wait_exit().success());
        let _third = site.serve();
    });
}

#[test]
fn one_postgres_has_one_host_of_each_name() {
    run_empty_case(Backend::Postgres, async |place| {
        let site = Site::new(place);
        let mut first = site.serve_with(&["--name", "north"]);
        site.run(["serve", "--name", "north"]).refused(&[
            "a host named `north` already serves this database",
            "--name",
        ]);
        let _second = site.serve_with(&["--name", "south"]);
        assert_eq!(site.json(["health"])["live_hosts"], 2);
        // Whatever way the first ends, its name is free at once.
        first.kill();
        let _third = site.serve_with(&["--name", "north"]);
        assert_eq!(site.json(["health"])["live_hosts"], 2);
        site.run(["serve", "--name", "no name"])
            .refused(&["--name is \"no name\"", "letters"]);
    });
}
