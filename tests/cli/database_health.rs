//! `health` while something is wrong with the database.

use campanile_tests::{Place, on_both_empty};

use crate::site::{Site, eventually, stop};

const TROUBLE: &str = "has trouble with the database since";

on_both_empty!(
    trouble_with_the_database_is_an_issue_at_once,
);

/// A write that fails for lack of room is shown while the host lives, also when smaller writes succeed.
async fn trouble_with_the_database_is_an_issue_at_once(place: Place) {
    let site = Site::new(place);
    site.copy_package("guests");
    let mut host = site.serve();
    site.add("x", "ok", &["--every", "1s"]);
    site.wait_for_launch("x", |row| row["status"] == "succeeded");
    assert_eq!(site.run(["health"]).code, 0);
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
