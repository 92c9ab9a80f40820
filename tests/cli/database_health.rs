//! `health` with something wrong with the database: it was migrated by a newer version, or refuses writes.

use std::time::Duration;

use campanile_tests::{Place, on_both_empty};

use crate::site::{Site, eventually, stop};

const TROUBLE: &str = "has trouble with the database since";

on_both_empty!(
    a_probe_of_the_older_version_is_answered_and_other_commands_are_refused,
    trouble_with_the_database_is_an_issue_at_once,
);

async fn a_probe_of_the_older_version_is_answered_and_other_commands_are_refused(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.wait_until_healthy();
    site.execute(
        "INSERT INTO _sqlx_migrations (version, description, installed_on, success, checksum, execution_time)
            SELECT 9000, 'the future', installed_on, success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1",
    )
    .await;
    let health = site.run(["health"]);
    assert_eq!(health.code, 0, "{health:?}");
    assert!(
        health.stdout.contains("note: nothing was checked: ")
            && health
                .stdout
                .contains("has schema version 9000, newer than"),
        "{health:?}"
    );
    for command in [["launch", "list"], ["db", "status"], ["run", "list"]] {
        let refused = site.run(command);
        refused.assert_refused(&["newer than version"]);
    }
    let refused = site.run(["stats", "--json"]);
    assert!(
        refused.stdout.contains("\"code\": \"newer_schema\""),
        "{refused:?}"
    );
    // The host of the older version keeps serving.
    host.stays_up(Duration::from_secs(1));
    stop(&mut host);
}

/// A write failing for lack of space is shown for as long as the host lives, even with smaller writes succeeding.
async fn trouble_with_the_database_is_an_issue_at_once(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("x", "ok", &["--every", "1s"]);
    site.wait_for_launch("x", |row| row["status"] == "succeeded");
    site.wait_until_healthy();
    let is_shared = site.place().url.is_shared();
    let (forbid, allow) = match is_shared {
        true => (
            "CREATE FUNCTION forbid() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
                RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
             CREATE TRIGGER forbid BEFORE INSERT ON launch FOR EACH STATEMENT EXECUTE FUNCTION forbid()",
            "DROP TRIGGER forbid ON launch",
        ),
        false => (
            "CREATE TRIGGER forbid BEFORE INSERT ON launch BEGIN SELECT RAISE(ABORT, 'could not extend file'); END",
            "DROP TRIGGER forbid",
        ),
    };
    site.execute(forbid).await;
    let health = |is_shown: bool| {
        eventually(|| {
            let health = site.run(["health"]);
            let trouble = health.stdout.lines().find(|line| line.contains(TROUBLE));
            match trouble.is_some_and(|line| line.contains("could not extend file")) {
                found if found == is_shown => Ok(health.code),
                _ => Err(format!("{health:?}")),
            }
        })
    };
    assert_eq!(health(true), 1);
    site.execute(allow).await;
    health(false);
    let log = host.stderr_lines();
    let count = |words: &str| log.iter().filter(|line| line.contains(words)).count();
    let (began, ended) = match is_shared {
        true => ("trying again until it works", "has room again"),
        false => ("deciding slots: ", "deciding slots: it works again"),
    };
    let log = log.join("\n");
    assert_eq!(count(began), if is_shared { 1 } else { 2 }, "{log}");
    assert_eq!(count(ended), 1, "{log}");
    assert_eq!(count("the database answers again"), 0, "{log}");
    stop(&mut host);
}
