//! `db backup`, `db restore` and `db compact`: refused files, written files, and the lines for Postgres.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use campanile_store::{DatabaseUrl, Db, probe};
use campanile_tests::cluster::server_programs;
use campanile_tests::{Backend, Place, run_empty_case};
use serde_json::Value;

use crate::site::{CommandOutput, Site, millis, stop, text};

/// Run a case on a site with a SQLite database, the package `guests`, and a schedule named `before`.
fn on_sqlite(case: impl AsyncFnOnce(Site)) {
    run_empty_case(Backend::Sqlite, async |place: Place| {
        let site = Site::with_guests(place);
        site.add("before", "echo", &["--at", "2099-01-01T00:00:00Z"]);
        case(site).await;
    });
}

fn names(site: &Site) -> Vec<String> {
    let listed = site.json(["schedule", "list"]);
    let listed = listed.as_array().expect("a list");
    listed.iter().map(|row| text(&row["name"])).collect()
}

/// Return the names of the files in the site's folder that contain `part`.
fn files(site: &Site, part: &str) -> Vec<String> {
    let entries = fs::read_dir(site.folder()).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut found: Vec<String> = names.filter(|name| name.contains(part)).collect();
    found.sort_unstable();
    found
}

#[test]
fn a_place_that_cannot_have_a_backup_is_refused() {
    on_sqlite(async |site| {
        let at = |name: &str| site.folder().join(name);
        fs::create_dir(at("folder")).expect("a folder");
        fs::write(at("old.db"), "an older backup").expect("a file");
        fs::write(at("used.db"), "").expect("a file");
        fs::write(at("used.db-wal"), "").expect("a file");
        symlink("campanile.db", at("link.db")).expect("a link");
        symlink("nowhere.db", at("dangling.db")).expect("a link");
        fs::hard_link(at("campanile.db"), at("hard.db")).expect("a link");
        let itself = "is a file of the database itself; give another name";
        let before = files(&site, "");
        for (file, expected) in [
            ("campanile.db", itself),
            ("./folder/../campanile.db", itself),
            ("campanile.db-wal", itself),
            ("campanile.db-shm", itself),
            ("campanile.db-journal", itself),
            ("campanile.db.lock", itself),
            ("link.db", itself),
            ("hard.db", itself),
            ("dangling.db", "is not a plain file"),
            ("folder", "is a folder; name a file in it"),
            ("folder/", "is a folder; name a file in it"),
            ("new/", "is a folder; name a file in it"),
            (".", "is a folder; name a file in it"),
            ("no/where.db", "there is no folder no; create it first"),
            ("/dev/null", "is not a plain file"),
            ("used.db", "is a database in use"),
        ] {
            for force in [&[][..], &["--force"]] {
                let command = ["db", "backup", file];
                let refused = site.run(command.iter().chain(force).copied());
                refused.assert_refused(&[file, expected]);
            }
        }
        let refused = site.run(["db", "backup", "old.db"]);
        refused.assert_refused(&["old.db exists", "--force"]);
        assert_eq!(files(&site, ""), before);
        assert_eq!(fs::read(at("old.db")).expect("a file"), b"an older backup");
        // No command opens a database that has two names.
        fs::remove_file(at("hard.db")).expect("a link");
        let replaced = site.json(["db", "backup", "old.db", "--force"]);
        assert_eq!(replaced["launches"], 0);
        let missing = site.run(["db", "backup", "x.db", "--database", "sqlite:no.db"]);
        missing.assert_refused(&["there is no database at no.db"]);
    });
}

#[test]
fn a_file_that_is_no_backup_is_refused_and_the_database_stays() {
    on_sqlite(async |site| {
        let at = |name: &str| site.folder().join(name);
        site.ok(["db", "backup", "good.db"]);
        let good = fs::read(at("good.db")).expect("a backup");
        let damaged = |name: &str, from: usize, bytes: &[u8]| {
            let mut copy = good.clone();
            copy[from..from + bytes.len()].copy_from_slice(bytes);
            fs::write(at(name), copy).expect("a file");
        };
        damaged("header.db", 0, &[b'x'; 100]);
        // Ten pages, the roots of some tables among them. Other bytes in a value would be no damage that SQLite sees.
        damaged("page.db", 10 << 12, &[0x5a; 40_000]);
        // A file that ends in the middle.
        fs::write(at("short.db"), &good[..good.len() / 2]).expect("a file");
        fs::write(at("empty.db"), "").expect("a file");
        fs::write(at("notes.txt"), "notes\n".repeat(1_000)).expect("a file");
        fs::create_dir(at("folder")).expect("a folder");
        fs::copy(at("good.db"), at("used.db")).expect("a copy");
        fs::write(at("used.db-wal"), "frames").expect("a file");
        for (name, change) in [
            ("foreign.db", "DROP TABLE _sqlx_migrations"),
            ("newer.db", "UPDATE _sqlx_migrations SET version = 999"),
            (
                "other.db",
                "UPDATE _sqlx_migrations SET checksum = x'00' WHERE version = 1",
            ),
        ] {
            fs::copy(at("good.db"), at(name)).expect("a copy");
            execute(&at(name), change).await;
        }
        let before = fs::read(at("campanile.db")).expect("the database");
        let listed = files(&site, "");
        for (file, expected) in [
            ("no.db", "cannot be read"),
            ("folder", "is not a plain file"),
            ("campanile.db", "is a file of the database itself"),
            ("header.db", "file is not a database"),
            ("notes.txt", "file is not a database"),
            ("page.db", "page.db"),
            ("short.db", "short.db"),
            ("empty.db", "has no tables of Campanile"),
            ("used.db", "is a database in use"),
            ("foreign.db", "has no tables of Campanile"),
            ("newer.db", "newer than version"),
            ("other.db", "was made by a different build"),
        ] {
            let refused = site.run(["db", "restore", file, "--force"]);
            refused.assert_refused(&[expected]);
        }
        let refused = site.run(["db", "restore", "good.db"]);
        refused.assert_refused(&["campanile.db exists", "--force"]);
        assert_eq!(fs::read(at("campanile.db")).expect("the database"), before);
        assert_eq!(files(&site, ""), listed);

        let mut host = site.serve();
        let refused = site.run(["db", "restore", "good.db", "--force"]);
        refused.assert_refused(&["a host serves", "campanile.db; stop it"]);
        site.run(["db", "compact"])
            .assert_refused(&["a host serves"]);
        stop(&mut host);
        assert_eq!(names(&site), ["before"]);
    });
}

/// Change a SQLite file that no host uses.
async fn execute(file: &Path, sql: &str) {
    let url = DatabaseUrl::Sqlite(file.to_owned());
    let db = Db::open(&url).await.expect("a database");
    let mut tx = db.write().await.expect("a transaction");
    probe::execute(&mut tx, sql).await.expect("a statement");
    tx.commit().await.expect("a commit");
    db.close().await;
}

#[test]
fn a_restored_database_is_the_one_that_was_copied() {
    on_sqlite(async |site| {
        let mut host = site.serve();
        let backup = site.json(["db", "backup", "copy.db"]);
        stop(&mut host);
        let copy = site.folder().join("copy.db");
        let mode = fs::metadata(&copy).expect("a copy").permissions().mode();
        assert_eq!(mode & 0o7777, 0o600);
        assert_eq!(backup["bytes"], fs::metadata(&copy).expect("a copy").len());
        assert_eq!(files(&site, "copy.db"), ["copy.db"]);

        site.add("after", "echo", &["--at", "2099-01-01T00:00:00Z"]);
        let restored = site.run(["db", "restore", "copy.db", "--force", "--json"]);
        assert_eq!(restored.code, 0, "{restored:?}");
        let warning = restored.stderr.as_str();
        assert!(
            warning.contains("launches that ran since then may run again"),
            "{warning}"
        );
        assert!(warning.contains(&text(&backup["taken_at"])), "{warning}");
        let report = restored.json();
        assert_eq!(report["taken_at"], backup["taken_at"]);
        assert_eq!(report["skipped"], Value::Null);
        assert_eq!(names(&site), ["before"]);
        let events = site.json(["event", "list"]).to_string();
        assert!(
            events.contains("database_restored") && events.contains("backup_taken"),
            "{events}"
        );

        // The replaced database is complete: it can be restored too.
        let kept = text(&report["kept"]);
        let back = site.json_with_warning(["db", "restore", &kept, "--force"]);
        assert_eq!(names(&site), ["after", "before"]);
        assert_ne!(back["kept"], report["kept"]);
        assert_eq!(files(&site, ".before-").len(), 2);
        assert_eq!(files(&site, ".partial"), [] as [String; 0]);

        // Into a place without a database.
        let url = format!("sqlite:{}", site.folder().join("new.db").display());
        let fresh = site.run(["db", "restore", "copy.db", "--database", &url, "--json"]);
        assert_eq!(fresh.json()["kept"], Value::Null, "{fresh:?}");
        stop(&mut site.serve());
    });
}

#[test]
fn a_damaged_database_is_kept_and_its_journal_is_not_applied_to_the_new_one() {
    on_sqlite(async |site| {
        site.ok(["db", "backup", "copy.db"]);
        let at = |name: &str| site.folder().join(name);
        fs::write(at("campanile.db"), "damaged".repeat(1_000)).expect("a file");
        fs::write(at("campanile.db-wal"), "frames").expect("a file");
        let report = site.json_with_warning(["db", "restore", "copy.db", "--force"]);
        assert!(
            fs::read_to_string(text(&report["kept"]))
                .expect("a file")
                .starts_with("damaged")
        );
        assert_eq!(files(&site, "campanile.db-"), [] as [String; 0]);
        assert_eq!(names(&site), ["before"]);
    });
}

#[test]
fn nothing_is_launched_after_a_restore_that_skips_what_was_missed() {
    on_sqlite(async |site| {
        site.add("often", "echo", &["--every", "1s", "--overlap", "allow"]);
        let mut host = site.serve();
        site.wait_for_launch("often", |row| row["status"] == "succeeded");
        let backup = site.json(["db", "backup", "copy.db"]);
        let taken_at = millis(&backup["taken_at"]);
        site.wait_for_launch("often", |row| millis(&row["scheduled_time"]) > taken_at);
        host.kill();
        let command = ["db", "restore", "copy.db", "--force", "--skip-missed"];
        let restored = site.json_with_warning(command);
        assert_eq!(restored["skipped"]["schedules"], 1, "{restored}");
        let last = site.launches("often").pop().expect("a launch");
        let end = (text(&last["status"]), text(&last["reason"]));
        assert_eq!(end, ("skipped".to_owned(), "restored".to_owned()));
        let skipped_until = millis(&last["last_scheduled_time"]);
        assert!(skipped_until > taken_at, "{last}");

        let mut host = site.serve();
        site.wait_for_launch("often", |row| {
            millis(&row["scheduled_time"]) > skipped_until && row["status"] == "succeeded"
        });
        stop(&mut host);
        for launch in site.launches("often") {
            let slot = millis(&launch["scheduled_time"]);
            let is_after = slot > taken_at && slot <= skipped_until;
            assert!(!is_after || launch["reason"] == "restored", "{launch}");
            // A stopped host may leave launches of newer slots that it has not claimed.
            let has_ended = !launch["finished_at"].is_null();
            assert!(slot > skipped_until || has_ended, "{launch}");
        }
        let why = site.ok([
            "schedule",
            "why",
            "often",
            "--at",
            &text(&last["scheduled_time"]),
        ]);
        assert!(
            why.contains("the database was restored from a copy without it"),
            "{why}"
        );
    });
}

#[test]
fn a_compacted_database_is_smaller_and_the_same() {
    on_sqlite(async |site| {
        let file = site.folder().join("campanile.db");
        execute(&file, "CREATE TABLE ballast AS WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 2000) SELECT randomblob(1000) AS b FROM n").await;
        execute(&file, "DROP TABLE ballast").await;
        let report = site.json(["db", "compact"]);
        let bytes = |key: &str| report[key].as_u64().expect("bytes");
        assert!(
            bytes("bytes_before") > bytes("bytes_after") + 1_900_000,
            "{report}"
        );
        assert_eq!(
            fs::metadata(&file).expect("a file").len(),
            bytes("bytes_after")
        );
        assert_eq!(names(&site), ["before"]);
        stop(&mut site.serve());
    });
}

#[test]
fn a_sqlite_file_of_another_program_is_refused_unchanged() {
    on_sqlite(async |site| {
        let file = site.folder().join("shop.db");
        fs::copy(site.folder().join("campanile.db"), &file).expect("a copy");
        execute(&file, "ALTER TABLE _sqlx_migrations RENAME TO orders").await;
        // The marks of a file without a write-ahead log: opening it for writing would change them.
        let mut before = fs::read(&file).expect("a file");
        before[18..20].fill(1);
        fs::write(&file, &before).expect("a file");
        for command in [
            &["serve"][..],
            &["db", "migrate"],
            &["db", "status"],
            &["launch", "list"],
            &["db", "backup", "copy.db"],
            &["db", "compact"],
        ] {
            let database = ["--database", "sqlite:shop.db"];
            let refused = site.run(command.iter().chain(&database).copied());
            refused.assert_refused(&[
                "shop.db: it has tables of another program",
                "give another file",
            ]);
        }
        assert_eq!(fs::read(&file).expect("a file"), before);
        assert_eq!(files(&site, "shop.db"), ["shop.db"]);
    });
}

/// Return the line that a refusal shows, run by a shell with the programs of Postgres.
fn run_line(site: &Site, refused: &CommandOutput, password: &str) {
    refused.assert_refused(&["by a program of Postgres", "~/.pgpass"]);
    assert!(!refused.stderr.contains(password), "{refused:?}");
    let line = refused.stderr.lines().last().expect("a line").trim();
    let programs = server_programs().expect("the programs of Postgres");
    let path = std::env::var("PATH").expect("PATH");
    let done = Command::new("sh")
        .args(["-c", line])
        .current_dir(site.folder())
        .env("PATH", format!("{}:{path}", programs.display()))
        .env("PGPASSWORD", password)
        .output()
        .expect("sh");
    assert!(done.status.success(), "{line}\n{done:?}");
}

#[test]
fn the_lines_for_postgres_copy_restore_and_compact() {
    run_empty_case(Backend::Postgres, async |place: Place| {
        let site = Site::with_guests(place);
        let address = site.place().url.expose();
        let (_, rest) = address.split_once("//").expect("an address");
        let (credentials, _) = rest.split_once('@').expect("a user");
        let (_, password) = credentials.split_once(':').expect("a password");
        site.add("before", "echo", &["--at", "2099-01-01T00:00:00Z"]);
        run_line(&site, &site.run(["db", "backup", "it's.dump"]), password);
        site.add("after", "echo", &["--at", "2099-01-01T00:00:00Z"]);
        run_line(&site, &site.run(["db", "restore", "it's.dump"]), password);
        assert_eq!(names(&site), ["before"]);
        run_line(&site, &site.run(["db", "compact"]), password);
        stop(&mut site.serve());
    });
}
