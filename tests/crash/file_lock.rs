//! Tests of the lock on a SQLite file: no second host serves it under another name, or after its lock file was removed.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use campanile_store::{DatabaseUrl, RunStatus};
use campanile_tests::{Backend, HostProcess, PATIENCE, campanile_binary};
use rustix::process::Signal;

use crate::consistency;
use crate::site::{Site, now};

const SCHEDULES: usize = 5;

fn database(site: &Site) -> &Path {
    let DatabaseUrl::Sqlite(path) = &site.url else {
        panic!("not a file: {}", site.url);
    };
    path
}

/// Run a second host, which must exit with code 2, and return its messages.
fn refused(command: &mut Command) -> String {
    let mut host = HostProcess::spawn(command);
    let ended = host.wait_exit();
    let log = host.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(2), "{log}");
    log
}

/// Stops the host, checking that no slot was lost or doubled, and that no run was disturbed except those of the host `former`,
/// which ended or was replaced.
fn finish(site: &Site, mut host: HostProcess, former: Option<&str>) {
    site.wait_for_slots_after(now(), &[&host]);
    if let Some(former) = former {
        site.wait_until_ended(former);
    }
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 3);
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    let mut lost = record
        .runs
        .iter()
        .filter(|run| run.status == RunStatus::Lost);
    assert!(lost.all(|run| run.host.as_deref() == former), "{totals}");
}

/// Suspend a host that writes nothing at this moment. Inside a transaction it would keep the database locked.
fn suspend_between_transactions(site: &Site, host: &HostProcess) {
    for _ in 0..20 {
        host.signal(Signal::STOP);
        let is_free = site.with_db(|db| async move {
            let write = tokio::time::timeout(Duration::from_secs(5), db.write());
            matches!(write.await, Ok(Ok(_)))
        });
        if is_free {
            return;
        }
        host.signal(Signal::CONT);
        std::thread::sleep(Duration::from_millis(137));
    }
    panic!("the host was inside a transaction each time that it was suspended");
}

fn verify(site: &Site) {
    let mut verify = site.command(campanile_binary());
    let status = verify.args(["audit", "verify"]).status();
    assert!(status.expect("campanile").success());
}

#[test]
fn a_file_with_a_hard_link_is_served_by_no_second_host() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let host = site.start("first");
    site.wait_for_slots_after(now(), &[&host]);
    let other = database(&site).with_file_name("other.db");
    std::fs::hard_link(database(&site), &other).expect("a link");
    let mut second = site.serve("second");
    second.env(
        "CAMPANILE_DATABASE_URL",
        format!("sqlite:{}", other.display()),
    );
    let log = refused(&mut second);
    assert!(log.contains("has 2 names (hard links)"), "{log}");
    // Nothing is begun: SQLite would have created a journal of the second name.
    for end in ["-wal", "-shm", ".lock"] {
        let mut beside = other.clone().into_os_string();
        beside.push(end);
        assert!(!Path::new(&beside).exists(), "{beside:?}");
    }
    std::fs::remove_file(&other).expect("the link");
    finish(&site, host, None);
}

#[test]
fn a_removed_lock_file_lets_no_second_host_in() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let host = site.start("first");
    site.wait_for_slots_after(now(), &[&host]);
    let lock = database(&site).with_added_extension("lock");
    for name in ["second", "first"] {
        std::fs::remove_file(&lock).expect("the lock file");
        let log = refused(&mut site.serve(name));
        assert!(log.contains("another campanile already serves"), "{log}");
        assert!(lock.exists());
    }
    finish(&site, host, None);
}

/// Only the file is renamed: its write-ahead log stays beside the former name.
#[test]
fn a_renamed_file_stops_its_host_and_is_served_by_no_second_one() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("first");
    site.wait_for_slots_after(now(), &[&first]);
    // A suspended host notices nothing.
    first.signal(Signal::STOP);
    let moved = database(&site).with_file_name("moved.db");
    std::fs::rename(database(&site), &moved).expect("another name");
    let on_moved = |command: &mut Command| {
        let url = format!("sqlite:{}", moved.display());
        command.env("CAMPANILE_DATABASE_URL", url);
    };
    let mut second = site.serve("second");
    on_moved(&mut second);
    let log = refused(&mut second);
    assert!(
        log.contains("was renamed while a host serves it under its former name"),
        "{log}"
    );
    let mut list = site.command(campanile_binary());
    on_moved(&mut list);
    let listed = list.args(["launch", "list"]).output().expect("campanile");
    assert!(!listed.status.success(), "{listed:?}");

    first.signal(Signal::CONT);
    let ended = first.wait_exit();
    let log = first.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("is not at its path any more"), "{log}");
    // The file has everything, without its log.
    for end in ["-wal", "-shm", ".lock"] {
        let mut beside = database(&site).as_os_str().to_owned();
        beside.push(end);
        let _ = std::fs::remove_file(beside);
    }
    std::fs::rename(&moved, database(&site)).expect("the former name");
    let second = site.start("second");
    finish(&site, second, Some("first"));
    verify(&site);
}

/// The file is moved with its write-ahead log: a second host may open it, and waits for the first one.
#[test]
fn a_file_that_is_moved_with_its_log_is_served_by_one_host_after_the_other() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("first");
    site.wait_for_slots_after(now(), &[&first]);
    let move_all = |from: &str, to: &str| {
        for end in ["", "-wal", "-shm"] {
            let name = |name: &str| database(&site).with_file_name(format!("{name}{end}"));
            // SQLite removes the log when the last connection closes.
            if name(from).exists() {
                std::fs::rename(name(from), name(to)).expect("another name");
            }
        }
    };
    move_all("campanile.db", "moved.db");
    let ended = first.wait_exit();
    let log = first.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(log.contains("was renamed, or it was deleted"), "{log}");
    move_all("moved.db", "campanile.db");
    let second = site.start("second");
    finish(&site, second, Some("first"));
}

/// The log contains everything recorded since the last checkpoint. SQLite carries on with a deleted one.
#[test]
fn a_host_stops_when_its_log_is_deleted_or_replaced_and_loses_nothing() {
    for (end, replacement) in [("-wal", None), ("-shm", None), ("-wal", Some(""))] {
        let site = Site::new(Backend::Sqlite);
        site.install_schedules(SCHEDULES, "{}");
        let mut first = site.start("first");
        site.wait_for_slots_after(now(), &[&first]);
        let mut file = database(&site).as_os_str().to_owned();
        file.push(end);
        std::fs::remove_file(&file).expect("the file");
        if let Some(bytes) = replacement {
            std::fs::write(&file, bytes).expect("another file");
        }
        let ended = first.wait_exit();
        let log = first.stderr_lines().join("\n");
        assert_eq!(ended.code(), Some(1), "{log}");
        assert!(
            log.contains(&format!("campanile.db{end} was deleted or replaced")),
            "{log}"
        );
        assert!(log.contains("the database has everything"), "{log}");
        let effects = site.effects().len();
        let record = site.record();
        let recorded = record.all_launches().count();
        assert!(
            recorded >= effects,
            "{effects} effects, {recorded} on record"
        );
        let second = site.start("second");
        finish(&site, second, Some("first"));
        verify(&site);
    }
}

/// Destroying pages of the file under a host makes it stop launching and say so.
#[test]
fn a_host_whose_file_is_damaged_launches_nothing_more() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let mut host = site.start("first");
    site.wait_for_slots_after(now(), &[&host]);
    // Makes sure the pages are in the file, not just in the log.
    site.with_db(async |db| db.merge_log().await.expect("a checkpoint"));
    let file = std::fs::File::options().write(true).open(database(&site));
    let file = file.expect("the database");
    let bytes = file.metadata().expect("its length").len();
    assert!(bytes > 100 * 4_096, "{bytes} bytes");
    let garbage = vec![0xa5; usize::try_from(bytes - 4_096).expect("a length")];
    std::os::unix::fs::FileExt::write_all_at(&file, &garbage, 4_096).expect("a write");
    host.wait_for_line("this host decides and claims nothing until it is started again");
    // Ongoing calls end within a moment, and on a busy machine later.
    let until = Instant::now() + PATIENCE;
    loop {
        let before = site.effects().len();
        host.stays_up(Duration::from_secs(4));
        if site.effects().len() == before {
            break;
        }
        assert!(Instant::now() < until, "it launched on");
    }
    host.kill();
}

/// A host that does not run cannot create its lock file again. When it runs again, it stops.
#[test]
fn a_suspended_host_without_its_lock_file_stops_when_it_has_been_replaced() {
    let site = Site::new(Backend::Sqlite);
    site.install_schedules(SCHEDULES, "{}");
    let mut first = site.start("first");
    site.wait_for_slots_after(now(), &[&first]);
    suspend_between_transactions(&site, &first);
    let lock = database(&site).with_added_extension("lock");
    std::fs::remove_file(&lock).expect("the lock file");
    let second = site.start("second");
    first.signal(Signal::CONT);
    let ended = first.wait_exit();
    let log = first.stderr_lines().join("\n");
    assert_eq!(ended.code(), Some(1), "{log}");
    assert!(
        log.contains("because the lock file beside it was removed"),
        "{log}"
    );
    finish(&site, second, Some("first"));
    verify(&site);
}
