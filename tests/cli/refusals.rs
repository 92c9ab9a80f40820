//! Bad input: one clear error with its place and a hint, exit code 2, and no partial change.

use std::path::Path;
use std::time::{Duration, Instant};

use campanile_tests::{Backend, Place, TestDb, cluster, on_both, on_both_empty, run_empty_case};
use serde_json::Value;

use crate::site::{CommandOutput, Site, eventually, list, run, stop, text};

on_both_empty!(
    an_invalid_command_is_refused_and_changes_nothing,
    a_rejected_package_is_reported_and_the_others_launch,
    a_database_without_tables_is_refused_until_it_is_migrated,
);
on_both!(a_database_of_another_schema_version_is_refused_unchanged);

/// Return everything that a command could have changed.
fn snapshot(site: &Site) -> Vec<Value> {
    ["schedule", "launch", "run", "event", "package"]
        .into_iter()
        .map(|table| site.json([table, "list"]))
        .collect()
}

async fn an_invalid_command_is_refused_and_changes_nothing(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
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
    let before = snapshot(&site);
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

    add(&["--every", "1h", "--tz", "Europe/Pariss"]).assert_refused(&[
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
        add(&["--cron", cron]).assert_refused(expected);
    }
    add(&["--every", "0s"]).assert_refused(&["`0s` is zero", "hint: "]);
    add(&["--every", "often"]).assert_refused(&["`often`", "hint: "]);
    add(&["--every", "1h", "--anchor", "noon"]).assert_refused(&["--anchor", "`noon`", "RFC 3339"]);
    add(&["--at", "2020-01-01T00:00:00Z"])
        .assert_refused(&["2020-01-01T00:00:00Z is in the past", "give a later time"]);
    add(&["--at", "someday"]).assert_refused(&["`someday`", "write an RFC 3339 time"]);
    for (context, expected) in [
        ("[1]", "--context: the context must be a JSON object"),
        ("{,}", "--context: not JSON"),
        (r#"{"trigger": "me"}"#, "may not set `trigger`"),
        ("@nowhere.json", "nowhere.json"),
    ] {
        add(&["--every", "1h", "--context", context]).assert_refused(&[expected]);
        site.run(["schedule", "trigger", "known", "--context", context])
            .assert_refused(&[expected]);
    }
    let schedule =
        |args: &[&'static str]| site.run(["schedule"].into_iter().chain(args.iter().copied()));
    schedule(&["add", "known", "--package", "guests", "--every", "1h"]).assert_refused(&[
        "a schedule named `known` exists already",
        "choose another name",
    ]);
    schedule(&["add", "a b", "--package", "guests", "--every", "1h"])
        .assert_refused(&["`a b` cannot name a schedule", "letters"]);
    schedule(&["add", "new", "--package", "guest", "--every", "1h"]).assert_refused(&[
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
    .assert_refused(&["has no task `ecco`", "did you mean `echo`?"]);
    for command in ["show", "next", "pause", "resume", "remove", "trigger"] {
        schedule(&[command, "knwon"]).assert_refused(&[
            "there is no schedule named `knwon`",
            "did you mean `known`?",
        ]);
    }
    for table in ["launch", "run"] {
        site.run([table, "list", "--schedule", "knwon"])
            .assert_refused(&[
                "there is no schedule named `knwon`",
                "did you mean `known`?",
            ]);
    }
    site.run(["package", "show", "guest"]).assert_refused(&[
        "there is no package named `guest`",
        "did you mean `guests`?",
    ]);
    for command in ["show", "logs"] {
        site.run(["run", command, "00000000-0000-0000-0000-000000000000"])
            .assert_refused(&["there is no launch 00000000", "campanile launch list"]);
    }
    let output = site.run(["schedule", "pause", "knwon", "--json"]);
    assert_eq!(output.code, 2);
    assert!(
        text(&output.json()["error"]).contains("`knwon`"),
        "{output:?}"
    );

    assert_eq!(snapshot(&site), before, "no partial change");
}

async fn a_rejected_package_is_reported_and_the_others_launch(place: Place) {
    let site = Site::new(place);
    for name in ["cycle", "babble", "noop", "append", "hello"] {
        site.copy_package(name);
    }
    site.sidecar("noop", "[[schedules]]\nevery = '1s'\n");
    site.sidecar("append", "[limits]\ntimout = '5s'\n");
    site.sidecar(
        "hello",
        "[[grants.directories]]\nhost = '/no/such/place'\nguest = '/x'\naccess = 'read'\n",
    );
    let host = site.serve();
    site.wait_for_launch("noop", |row| row["status"] == "succeeded");
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
        let line = host.wait_for_line(&format!("rejected {name}"));
        assert!(line.contains(expected), "{line}");
        site.run(["schedule", "add", "new", "--package", name, "--every", "1s"])
            .assert_refused(&[&format!("the package `{name}` was rejected"), expected]);
    }
    assert_eq!(list(site.json(["schedule", "list"])).len(), 1);
    // A corrected sidecar is enough to load the package.
    site.sidecar("hello", "");
    host.wait_for_line("added hello");
    eventually(|| match list(site.json(["schedule", "list"])).len() {
        2 => Ok(()),
        other => Err(format!("{other} schedules")),
    });
}

async fn a_database_without_tables_is_refused_until_it_is_migrated(place: Place) {
    let site = Site::new(place);
    let commands = [
        &["launch", "list"][..],
        &["schedule", "add", "x", "--package", "p", "--every", "1s"],
        &["stats"],
        &["health"],
    ];
    let expected = match site.place().backend {
        Backend::Sqlite => ["there is no database at", "campanile serve"],
        Backend::Postgres => ["lacks schema version 1", "campanile db migrate"],
    };
    for command in commands {
        site.run(command.iter().copied()).assert_refused(&expected);
    }
    if let Some(file) = site.place().url.sqlite_path() {
        assert!(!file.exists(), "reading creates no database");
    }
    site.ok(["db", "migrate"]);
    assert_eq!(site.ok(["launch", "list", "--json"]), "[]\n");
    assert_eq!(site.json(["db", "status"])["current"], true);
}

async fn a_database_of_another_schema_version_is_refused_unchanged(test: TestDb) {
    let versions = "SELECT CAST(version AS TEXT) FROM _sqlx_migrations ORDER BY version";
    let count = test.rows(versions).await.len();
    let run_on_database = |args: &[&str]| -> CommandOutput {
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
        let output = run_on_database(args);
        assert_eq!(
            (output.code, output.stdout.as_str()),
            (2, ""),
            "{args:?}: {output:?}"
        );
        for part in [
            "has schema version 999, newer than",
            "use a newer campanile",
        ] {
            assert!(output.stderr.contains(part), "{args:?}: {output:?}");
        }
    }
    assert_eq!(test.rows(versions).await.len(), count, "nothing was added");

    test.execute("DELETE FROM _sqlx_migrations").await;
    run_on_database(&["launch", "list"])
        .assert_refused(&["lacks schema version 1", "campanile db migrate"]);
    let status = run_on_database(&["db", "status", "--json"]);
    assert_eq!(status.code, 1, "{status:?}");
    assert_eq!(status.json()["current"], false);

    test.execute("INSERT INTO _sqlx_migrations SELECT * FROM kept")
        .await;
    assert_eq!(run_on_database(&["launch", "list"]).code, 0);
}

/// Run a command without a site.
fn run_in(folder: &Path, args: &[&str]) -> CommandOutput {
    run(folder, args.iter().copied())
}

#[test]
fn an_invalid_configuration_is_refused_with_file_line_key_and_hint() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
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
        std::fs::write(folder.path().join("bad.toml"), config).expect("a configuration");
        for command in [&["serve"][..], &["config", "check"], &["launch", "list"]] {
            let args: Vec<&str> = command
                .iter()
                .copied()
                .chain(["--config", "bad.toml"])
                .collect();
            let output = run_in(folder.path(), &args);
            output.assert_refused(&[expected]);
            assert!(!output.stderr.contains("secret"), "{output:?}");
        }
    }
    std::fs::remove_file(folder.path().join("bad.toml")).expect("the file");
    run_in(folder.path(), &["serve", "--config", "nowhere.toml"])
        .assert_refused(&["nowhere.toml cannot be read", "--config"]);
    for (url, expected) in [
        ("mysql://u:secret@h/d", "--database begins with \"mysql\""),
        ("campanile.db", "--database is \"campanile.db\""),
        ("sqlite::memory:", "--database would forget every launch"),
    ] {
        let output = run_in(folder.path(), &["serve", "--database", url]);
        output.assert_refused(&[expected, "write sqlite:PATH or postgres://"]);
        assert!(!output.stderr.contains("secret"), "{output:?}");
    }
    let entries = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(entries, 1, "no database was created");
}

#[test]
fn a_missing_plugins_folder_is_refused_before_the_database_is_created() {
    let folder = tempfile::tempdir().expect("a folder");
    run_in(folder.path(), &["serve"])
        .assert_refused(&["the plugins folder plugins does not exist", "--plugins"]);
    std::fs::write(folder.path().join("plugins"), "").expect("a file");
    run_in(folder.path(), &["serve"])
        .assert_refused(&["the plugins folder plugins is not a directory"]);
    let entries = std::fs::read_dir(folder.path())
        .expect("the folder")
        .count();
    assert_eq!(entries, 1, "no database was created");
}

#[test]
fn a_file_that_is_no_database_is_refused_unchanged() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
    let file = folder.path().join("notes.db");
    let notes = "these are notes and no database\n".repeat(100);
    std::fs::write(&file, &notes).expect("a file");
    for command in [&["serve"][..], &["db", "migrate"], &["launch", "list"]] {
        let args: Vec<&str> = command
            .iter()
            .copied()
            .chain(["--database", "sqlite:notes.db"])
            .collect();
        run_in(folder.path(), &args)
            .assert_refused(&["notes.db: file is not a database", "give another one"]);
    }
    assert_eq!(std::fs::read_to_string(&file).expect("the file"), notes);
    run_in(
        folder.path(),
        &["serve", "--database", "sqlite:no/where/campanile.db"],
    )
    .assert_refused(&["no/where/campanile.db", "check that the folder exists"]);
}

#[test]
fn serve_waits_for_an_unreachable_server_up_to_the_given_time() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
    let port = cluster::free_port().expect("a port");
    let url = format!("postgres://site:secret@127.0.0.1:{port}/campanile");
    let serve = |wait: &str| {
        let started = Instant::now();
        let output = run_in(
            folder.path(),
            &["serve", "--database", &url, "--wait", wait],
        );
        assert!(!output.stderr.contains("secret"), "{output:?}");
        (output, started.elapsed())
    };
    let place = format!("postgres://site:***@127.0.0.1:{port}/campanile");
    let (output, _) = serve("0");
    output.assert_refused(&[
        "the database cannot be reached",
        &place,
        "refused",
        "hint: ",
    ]);
    assert!(!output.stderr.contains("trying again"), "{output:?}");
    assert_eq!(
        output.stderr.matches("is right").count(),
        1,
        "one hint: {output:?}"
    );

    let (output, elapsed) = serve("2s");
    output.assert_refused(&[
        "the database cannot be reached",
        &place,
        "giving up at",
        "hint: ",
    ]);
    assert!(output.stderr.contains("trying again in"), "{output:?}");
    assert!(elapsed >= Duration::from_secs(2), "{elapsed:?}");

    let output = run_in(folder.path(), &["launch", "list", "--database", &url]);
    output.assert_refused(&["the database cannot be reached", &place]);
}

#[test]
fn a_waiting_host_serves_when_its_server_starts() {
    let mut server = match campanile_tests::Cluster::start() {
        Ok(server) => server,
        Err(line) => panic!("{line}"),
    };
    server.stop().expect("a stopped server");
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::create_dir(folder.path().join("plugins")).expect("a plugins folder");
    let mut command = crate::site::command(folder.path(), ["serve", "--wait", "5m"]);
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
        second.assert_refused(&[
            "another campanile already serves",
            "campanile.db",
            "use Postgres",
        ]);
        let named = site.run(["serve", "--name", "other"]);
        named.assert_refused(&["another campanile already serves"]);
        // The first host still serves.
        site.wait_until_healthy();
        stop(&mut first);
        let _third = site.serve();
    });
}

#[test]
fn two_hosts_on_one_postgres_cannot_share_a_name() {
    run_empty_case(Backend::Postgres, async |place| {
        let site = Site::new(place);
        let mut first = site.serve_with(&["--name", "north"]);
        site.run(["serve", "--name", "north"]).assert_refused(&[
            "a host named `north` already serves this database",
            "--name",
        ]);
        let wait_for_two = || {
            eventually(|| {
                let health = site.wait_until_healthy();
                match health["live_hosts"].as_i64() {
                    Some(2) => Ok(()),
                    // One may be late with its heartbeat.
                    Some(1) => Err(format!("{health:#}")),
                    _ => panic!("{health:#}"),
                }
            });
        };
        let _second = site.serve_with(&["--name", "south"]);
        wait_for_two();
        // A killed host frees its name at once.
        first.kill();
        let _third = site.serve_with(&["--name", "north"]);
        wait_for_two();
        site.run(["serve", "--name", "no name"])
            .assert_refused(&["--name is \"no name\"", "letters"]);
    });
}
