//! Tests of copies of a SQLite database: made while a host serves, killed in the middle, and served after a restore.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::Duration;

use campanile_engine::crash::DATABASE_POINTS;
use campanile_store::events::{self, EventKind};
use campanile_store::{DatabaseUrl, Db, LaunchStatus, backup};
use campanile_tests::{Backend, campanile_binary};
use rustix::process::Signal;

use crate::consistency;
use crate::disk::{FullDisk, integrity};
use crate::site::{Site, now};

const SCHEDULES: usize = 100;

fn database(site: &Site) -> PathBuf {
    site.url.sqlite_path().expect("a file").to_owned()
}

/// Run `campanile db` with `args`, in a process that dies at `point` if one is named.
fn db_dying(site: &Site, args: &[&str], point: Option<&str>) -> Output {
    let mut command = site.command(campanile_binary());
    command.arg("db").args(args);
    if let Some(point) = point {
        command.env("CAMPANILE_CRASH_AT", point);
    }
    command.output().expect("campanile")
}

/// Run `campanile db` with `args`, which must succeed, and return its messages.
fn db(site: &Site, args: &[&str]) -> String {
    let done = db_dying(site, args, None);
    let messages = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "{args:?}: {messages}");
    messages
}

/// Return the names of the files beside the database that are no files of a host.
fn left_beside(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.parent().expect("a folder")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    let mut left: Vec<String> = names.filter(|name| name.contains(".campanile-")).collect();
    left.sort_unstable();
    left
}

#[test]
fn a_host_continues_with_a_copy_that_was_made_while_it_served() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let mut host = site.start("host-1");
    site.record_when("launches", &[&host], |record| {
        record.count(LaunchStatus::Succeeded) > SCHEDULES * 2
    });
    db(&site, &["backup", "copy.db"]);
    let taken = now();
    site.wait_for_slots_after(taken.plus(Duration::from_secs(2)), &[&host]);
    site.record_when("launches that the copy lacks", &[&host], |record| {
        let mut launches = record.all_launches().filter(|launch| {
            launch.scheduled_time > taken && launch.status == LaunchStatus::Succeeded
        });
        launches.nth(SCHEDULES - 1).is_some()
    });
    host.kill();

    // The copy by itself: whole, and no launch without its rows.
    let copy = Site::on(DatabaseUrl::Sqlite(site.folder.join("copy.db")));
    assert_eq!(integrity(&copy), "ok");
    consistency::check_slots(&copy.record());

    db(&site, &["restore", "copy.db", "--force"]);
    let mut host = site.start("host-1");
    let restarted = now();
    site.wait_for_slots_after(restarted, &[&host]);
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    println!("restored: {totals}");
    assert_eq!(
        (totals.failed, totals.skipped, totals.abandoned),
        (0, 0, 0),
        "{totals}"
    );
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    // The slots after the copy were launched before the kill, and again with the same ids.
    assert!(totals.repeated >= SCHEDULES, "{totals}");
    assert_eq!(integrity(&site), "ok");
}

/// Record an event, by which a database and an earlier copy of it can be told apart.
fn mark(site: &Site, subject: &str) {
    site.with_db(async |db: Db| {
        let mut tx = db.write().await.expect("a transaction");
        events::record(&mut tx, now(), EventKind::HealthChanged, subject, "")
            .await
            .expect("a row");
        tx.commit().await.expect("a commit");
    });
}

fn is_marked(site: &Site, subject: &str) -> bool {
    site.with_db(async |db: Db| {
        let mut tx = db.read().await.expect("a transaction");
        let all = events::list(&mut tx, None, 1_000).await.expect("events");
        all.iter().any(|event| event.subject == subject)
    })
}

#[test]
fn a_killed_backup_leaves_no_backup_and_a_killed_restore_one_of_the_two_databases() {
    for point in DATABASE_POINTS {
        let site = Site::new(Backend::Sqlite);
        db(&site, &["migrate"]);
        mark(&site, "both");
        db(&site, &["backup", "good.db"]);
        // A journal that is not merged, as a killed host leaves it.
        let mut host = site.start("host-1");
        mark(&site, "newer");
        host.kill();

        let is_backup = point.contains("backup");
        let args: &[&str] = match is_backup {
            true => &["backup", "new.db"],
            false => &["restore", "good.db", "--force"],
        };
        let killed = db_dying(&site, args, Some(point));
        assert_eq!(
            killed.status.signal(),
            Some(Signal::ABORT.as_raw()),
            "{point}: {killed:?}"
        );
        assert!(!site.folder.join("new.db").exists(), "{point}");
        assert_eq!(integrity(&site), "ok", "{point}");
        assert!(is_marked(&site, "both"), "{point}");
        assert_eq!(
            is_marked(&site, "newer"),
            point != "after_restore_rename",
            "{point}"
        );

        // What the kill has left is deleted and named by the next command.
        let left = left_beside(&database(&site));
        let left_beside_backup = left_beside(&site.folder.join("new.db"));
        let messages = db(&site, args);
        for name in left.iter().chain(&left_beside_backup) {
            assert!(
                messages.contains(name.as_str()),
                "{point}: {name}: {messages}"
            );
        }
        assert_eq!(
            left.is_empty() && left_beside_backup.is_empty(),
            point == "after_restore_rename"
        );
        assert_eq!(left_beside(&database(&site)), [] as [String; 0], "{point}");
        assert_eq!(is_marked(&site, "newer"), is_backup, "{point}");
        let mut host = site.start("host-1");
        host.terminate();
        assert!(host.wait_exit().success(), "{point}");
    }
}

#[test]
fn a_backup_to_a_full_disk_is_refused_and_leaves_nothing() {
    let disk = FullDisk::file_system();
    let FullDisk::FileSystem { .. } = disk else {
        return println!("cannot mount a file system: a full disk is not tested");
    };
    let site = Site::new(Backend::Sqlite);
    db(&site, &["migrate"]);
    disk.fill(None);
    let place = disk.folder().join("copy.db");
    let refused = db_dying(&site, &["backup", place.to_str().expect("a path")], None);
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert_eq!(refused.status.code(), Some(2), "{message}");
    assert!(
        message.contains(" free, and ") && message.contains("free some space"),
        "{message}"
    );

    // The disk fills while the copy is written.
    let partial = campanile_store::PartialFile::create(&place).expect("a file");
    let copied = site.with_db(async |db: Db| db.copy_to(&partial).await);
    let message = copied.expect_err("a full disk").to_string();
    assert!(message.contains("is full; free some space"), "{message}");
    drop(partial);
    assert_eq!(left_beside(&place), [] as [String; 0]);

    disk.free(None);
    db(&site, &["backup", place.to_str().expect("a path")]);
    let copy = Site::on(DatabaseUrl::Sqlite(place));
    assert_eq!(integrity(&copy), "ok");
}

#[test]
fn a_database_that_another_process_has_open_is_not_replaced() {
    let site = Site::new(Backend::Sqlite);
    db(&site, &["migrate"]);
    db(&site, &["backup", "copy.db"]);
    let launches = site.with_db(async |db: Db| {
        let refused = db_dying(&site, &["restore", "copy.db", "--force"], None);
        let message = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert_eq!(refused.status.code(), Some(2), "{message}");
        assert!(
            message.contains("another process has") && message.contains("open"),
            "{message}"
        );
        backup::launches(&mut db.read().await.expect("a transaction")).await
    });
    assert_eq!(launches.expect("a count"), 0);
    db(&site, &["restore", "copy.db", "--force"]);
    let journal = PathBuf::from(format!("{}-wal", database(&site).display()));
    assert!(!journal.exists());
}
