//! Tests of a plugins folder that cannot be read when a host starts: what the host had stays, and is launched.

use std::time::Duration;

use campanile_store::{Db, packages};
use campanile_tests::{Backend, HostProcess};

use crate::consistency;
use crate::disk::{serve_unprivileged, set_mode};
use crate::site::{Site, now};

const SCHEDULES: usize = 5;
const UNREADABLE: &str = "cannot be read: Permission denied";

#[test]
fn an_unreadable_folder_at_the_start_removes_no_package_on_sqlite() {
    start_without_reading(Backend::Sqlite);
}

#[test]
fn an_unreadable_folder_at_the_start_removes_no_package_on_postgres() {
    start_without_reading(Backend::Postgres);
}

fn start_without_reading(backend: Backend) {
    let site = Site::new(backend);
    site.configure("[policy]\nforeign_writers = \"warn\"\n[sandbox]\ncache = false\n");
    site.install_schedules(SCHEDULES, "{}");
    let mut command = serve_unprivileged(&site);
    // The host and its tasks write here as another user.
    set_mode(&site.folder, 0o777);
    set_mode(&site.folder.join("out"), 0o777);
    let mut host = HostProcess::spawn(&mut command);
    host.wait_for_line("serving");
    site.wait_for_slots_after(now(), &[&host]);
    host.terminate();
    assert!(host.wait_exit().success());

    // The folder can be opened, and the files in it cannot be found.
    let plugins = site.folder.join("plugins");
    set_mode(&plugins, 0o444);
    let mut host = HostProcess::spawn(&mut command);
    host.wait_for_line("serving");
    let line = host.wait_for_line(UNREADABLE);
    assert!(line.contains("its packages stay as they are"), "{line}");
    let started = now();
    site.wait_for_slots_after(started.plus(Duration::from_secs(2)), &[&host]);
    assert_not_missing(&site);

    set_mode(&plugins, 0o755);
    host.wait_for_line("the plugins folder can be read again");
    // The sidecar is read again too, and a removed file is noticed.
    std::fs::remove_file(plugins.join("append.wasm")).expect("the package");
    host.wait_for_line("its schedules stay, their slots are skipped");
    host.terminate();
    assert!(host.wait_exit().success());
    let record = site.record();
    let totals = consistency::check(&record, &site.effects(), 1);
    println!("{}: {totals}", backend.name());
    let after = record
        .all_launches()
        .filter(|launch| launch.scheduled_time > started);
    assert!(after.count() >= SCHEDULES, "{totals}");
    assert_eq!(totals.failed, 0, "{totals}");
}

fn assert_not_missing(site: &Site) {
    let row = site.with_db(async |db: Db| {
        let mut tx = db.read().await.expect("a transaction");
        packages::find(&mut tx, "append").await.expect("a package")
    });
    let row = row.expect("the package");
    assert_eq!(row.missing_since, None);
}
