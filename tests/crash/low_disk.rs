//! Tests of a disk that is low or full while a host serves: it decides and claims nothing, and continues by itself.

use std::time::{Duration, Instant};

use campanile_store::{Db, probe};
use campanile_tests::{Backend, HostProcess, PATIENCE, campanile_binary};

use crate::consistency;
use crate::disk::{FullDisk, integrity, site_in};
use crate::site::{Site, now};

const SCHEDULES: usize = 10;
const STOPPED: &str = "this host decides and claims nothing until there is room";
const RESUMED: &str = "the disk of the database has room again";

/// Wait until the host has decided nothing for two seconds, and return the number of its launches.
fn decided_while_stopped(site: &Site, host: &mut HostProcess) -> usize {
    let until = Instant::now() + PATIENCE;
    loop {
        // A busy machine may record late what the host had begun to decide.
        let before = site.record().all_launches().count();
        host.stays_up(Duration::from_secs(2));
        let launches = site.record().all_launches().count();
        if launches == before {
            return launches;
        }
        assert!(Instant::now() < until, "{launches} launches, and more");
    }
}

/// Run `campanile health`, and return its exit code and what it prints.
fn health(site: &Site) -> (Option<i32>, String) {
    let done = site
        .command(campanile_binary())
        .arg("health")
        .output()
        .expect("campanile");
    (
        done.status.code(),
        String::from_utf8_lossy(&done.stdout).into_owned(),
    )
}

/// Pause all schedules, stop the host, and check that no slot is lost or doubled.
fn finish(site: &Site, mut host: HostProcess) {
    let freed = now();
    site.wait_for_slots_after(freed, &[&host]);
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    println!("{totals}");
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    assert_eq!(totals.skipped, 0, "{totals}");
}

#[test]
fn a_host_stops_to_launch_before_the_disk_is_full_and_runs_end() {
    let disk = FullDisk::file_system();
    let FullDisk::FileSystem { .. } = disk else {
        return println!("cannot mount a file system: a low disk is not tested");
    };
    let site = site_in(disk.folder());
    site.configure("[host]\ndisk_reserve = \"6MiB\"\n[policy]\nforeign_writers = \"warn\"\n[sandbox]\ncache = false\n");
    // The runs last longer than the host takes to notice.
    site.install_schedules(SCHEDULES, "{ after_ms = 3000 }");
    let mut host = site.start("host-1");
    site.record_when("launches", &[&host], |record| {
        record.all_launches().count() >= SCHEDULES
    });
    assert_eq!(health(&site).0, Some(0));
    let filler = disk.folder().join("filler");
    let taken = rustix::fs::statvfs(disk.folder()).expect("a file system");
    let free = taken.f_bavail * taken.f_frsize;
    let size = usize::try_from(free - (5 << 20)).expect("more than 5 MiB are free");
    std::fs::write(&filler, vec![b'x'; size]).expect("a file");
    let line = host.wait_for_line(STOPPED);
    assert!(
        line.contains(" MiB free, less than the `disk_reserve` of 6.0 MiB"),
        "{line}"
    );
    decided_while_stopped(&site, &mut host);
    let (code, text) = health(&site);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains(" MiB free") && text.contains("free some space on it"),
        "{text}"
    );
    // Every run has ended, and the end is on record.
    site.record_when("ends", &[&host], |record| {
        record
            .all_launches()
            .all(|launch| launch.finished_at.is_some())
    });

    std::fs::remove_file(&filler).expect("a file");
    host.wait_for_line(RESUMED);
    finish(&site, host);
    assert_eq!(health(&site).1.matches("disk").count(), 0);
    assert_eq!(integrity(&site), "ok");
}

#[test]
fn a_host_that_starts_on_a_low_disk_launches_nothing() {
    let disk = FullDisk::file_system();
    let site = site_in(disk.folder());
    site.configure("[host]\ndisk_reserve = \"1TiB\"\n[policy]\nforeign_writers = \"warn\"\n[sandbox]\ncache = false\n");
    site.install_schedules(SCHEDULES, "{}");
    let mut host = site.start("host-1");
    host.wait_for_line(STOPPED);
    assert_eq!(decided_while_stopped(&site, &mut host), 0);
    host.terminate();
    assert!(host.wait_exit().success());
}

/// The error of a server whose disk is full, raised by a trigger on each table that a launch or an event writes.
#[test]
fn a_host_waits_for_a_postgres_server_whose_disk_is_full() {
    let site = Site::new(Backend::Postgres);
    site.install_schedules(SCHEDULES, "{}");
    let host = site.start("host-1");
    site.record_when("launches", &[&host], |record| {
        record.all_launches().count() >= SCHEDULES
    });
    let execute = |sql: &str| {
        site.with_db(async |db: Db| {
            let mut tx = db.write().await.expect("a transaction");
            probe::execute(&mut tx, sql).await.expect("a statement");
            tx.commit().await.expect("a commit");
        });
    };
    execute(
        "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
            RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = '53100'; END $$;
        CREATE TRIGGER full_disk BEFORE INSERT ON launch FOR EACH STATEMENT EXECUTE FUNCTION full_disk();
        CREATE TRIGGER full_disk BEFORE INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION full_disk()",
    );
    let line = host.wait_for_line("trying again until it works");
    assert!(
        line.contains("free some space on the server's disk"),
        "{line}"
    );
    let line = host.wait_for_line(STOPPED);
    assert!(line.contains("the disk of the database is full"), "{line}");
    let mut host = host;
    decided_while_stopped(&site, &mut host);
    execute("DROP TRIGGER full_disk ON launch; DROP TRIGGER full_disk ON event");
    host.wait_for_line(RESUMED);
    finish(&site, host);
}

/// Without a reserve, only a write that fails shows that the disk is full.
#[test]
fn a_full_disk_without_a_reserve_is_logged_once_and_is_unhealthy() {
    let disk = FullDisk::file_system();
    let FullDisk::FileSystem { .. } = disk else {
        return println!("cannot mount a file system: a full disk is not tested");
    };
    let site = site_in(disk.folder());
    site.install_schedules(SCHEDULES, "{}");
    let mut host = site.start("host-1");
    site.record_when("launches", &[&host], |record| {
        record.all_launches().count() >= SCHEDULES
    });
    assert_eq!(health(&site).0, Some(0));
    disk.fill(None);
    host.wait_for_line(STOPPED);
    // Longer than the pauses of the first attempts, and than the time between two heartbeats.
    host.stays_up(Duration::from_secs(25));
    let log = host.stderr_lines();
    let count = |words: &str| log.iter().filter(|line| line.contains(words)).count();
    for (words, times) in [
        (STOPPED, 1),
        (RESUMED, 0),
        ("the database answers again", 0),
        ("trying again until it works", 1),
    ] {
        assert_eq!(count(words), times, "{words}:\n{}", log.join("\n"));
    }
    let (code, text) = health(&site);
    assert_eq!(code, Some(1), "{text}");
    assert!(
        text.contains("the disk of the database is full, with "),
        "{text}"
    );
    disk.free(None);
    host.wait_for_line(RESUMED);
    finish(&site, host);
    assert_eq!(health(&site).1.matches("disk").count(), 0);
    assert_eq!(integrity(&site), "ok");
}
