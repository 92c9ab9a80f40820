//! Tests of SQLite with disk failures: the host reports a clear error and never damages the file.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use campanile_store::{DatabaseUrl, Db, probe};
use campanile_tests::{Backend, HostProcess, campanile_binary};
use rustix::process::{Pid, Resource, Rlimit, geteuid, getrlimit, prlimit};
use tempfile::TempDir;

use crate::consistency;
use crate::site::{Site, now};

const SCHEDULES: usize = 20;
/// The limit of the file size, in bytes: more than the file of effects needs, less than the journal needs.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// The user and the group `nobody`.
const NOBODY: u32 = 65_534;

/// Return a site whose database is in `folder`.
pub fn site_in(folder: &Path) -> Site {
    let site = Site::on(DatabaseUrl::Sqlite(folder.join("campanile.db")));
    // Some hosts here run as another user, who can write the folder only if everyone can.
    site.configure("[policy]\nforeign_writers = \"warn\"\n[host]\ndisk_reserve = \"0\"\n[sandbox]\ncache = false\n");
    site
}

fn migrate(site: &Site) {
    let made = site
        .command(campanile_binary())
        .args(["db", "migrate"])
        .output()
        .expect("campanile");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

/// Run a host that must exit with code 2, and return its messages.
fn startup_error(command: &mut Command) -> String {
    let mut host = HostProcess::spawn(command);
    let status = host.wait_exit();
    let log = host.stderr_lines().join("\n");
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(log.contains("error: "), "{log}");
    assert!(!log.contains("panicked"), "{log}");
    log
}

/// Return `campanile serve` for a user whom file permissions restrict.
pub fn serve_unprivileged(site: &Site) -> Command {
    let mut command;
    if geteuid().is_root() {
        // Copy the program out of folders that only root can enter.
        // Not by this process: a child that another test starts meanwhile would keep the file open for writing.
        let binary = site.folder.join("campanile");
        let copied = Command::new("cp")
            .arg(campanile_binary())
            .arg(&binary)
            .status();
        assert!(copied.expect("cp").success());
        set_mode(&site.folder, 0o755);
        command = site.command(Path::new("setpriv"));
        command
            .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
            .arg("--clear-groups")
            .arg(binary);
    } else {
        command = site.command(campanile_binary());
    }
    command.args(["serve", "--name", "host-1"]);
    command
}

pub fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
}

pub fn integrity(site: &Site) -> String {
    site.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let rows = probe::rows(&mut tx, "PRAGMA integrity_check")
            .await
            .expect("a check");
        rows.concat().join("\n")
    })
}

#[test]
fn a_read_only_file_is_rejected_and_not_changed() {
    let folder = TempDir::new().expect("a folder");
    let site = site_in(folder.path());
    migrate(&site);
    let file = folder.path().join("campanile.db");
    set_mode(folder.path(), 0o777);
    set_mode(&file, 0o444);
    let before = std::fs::read(&file).expect("the file");
    let log = startup_error(&mut serve_unprivileged(&site));
    assert!(
        log.contains("cannot be written") && log.contains("permissions"),
        "{log}"
    );
    assert_eq!(std::fs::read(&file).expect("the file"), before);
}

#[test]
fn a_read_only_folder_is_rejected() {
    let folder = TempDir::new().expect("a folder");
    let site = site_in(folder.path());
    set_mode(folder.path(), 0o555);
    let log = startup_error(&mut serve_unprivileged(&site));
    assert!(log.contains("folder exists and may be written"), "{log}");
    set_mode(folder.path(), 0o755);

    migrate(&site);
    set_mode(&folder.path().join("campanile.db"), 0o666);
    set_mode(folder.path(), 0o555);
    let log = startup_error(&mut serve_unprivileged(&site));
    assert!(
        log.contains("cannot be written") && log.contains(&folder.path().display().to_string()),
        "{log}"
    );
    set_mode(folder.path(), 0o755);
    assert_eq!(integrity(&site), "ok");
}

/// A disk that can be filled.
pub enum FullDisk {
    /// A small file system, which a file can fill.
    FileSystem { mount: TempDir },
    /// A limit of the file size of the process, if mounting is not allowed.
    FileSize { folder: TempDir },
}

impl FullDisk {
    pub fn file_system() -> FullDisk {
        let mount = TempDir::new().expect("a folder");
        let mounted = geteuid().is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
                .arg(mount.path())
                .status()
                .is_ok_and(|status| status.success());
        if mounted {
            return FullDisk::FileSystem { mount };
        }
        println!("cannot mount a file system: limiting the file size instead");
        FullDisk::file_size()
    }

    fn file_size() -> FullDisk {
        FullDisk::FileSize {
            folder: TempDir::new().expect("a folder"),
        }
    }

    pub fn folder(&self) -> &Path {
        match self {
            FullDisk::FileSystem { mount } => mount.path(),
            FullDisk::FileSize { folder } => folder.path(),
        }
    }

    fn filler(&self) -> PathBuf {
        self.folder().join("filler")
    }

    pub fn fill(&self, host: Option<&HostProcess>) {
        match self {
            FullDisk::FileSystem { .. } => {
                let mut filler = std::fs::File::create(self.filler()).expect("a file");
                for size in [1 << 20, 4 << 10, 1] {
                    while filler.write_all(&vec![b'x'; size]).is_ok() {}
                }
            }
            FullDisk::FileSize { .. } => limit(host, Some(FILE_BYTES_MAX)),
        }
    }

    pub fn free(&self, host: Option<&HostProcess>) {
        match self {
            FullDisk::FileSystem { .. } => std::fs::remove_file(self.filler()).expect("a file"),
            FullDisk::FileSize { .. } => limit(host, None),
        }
    }
}

impl Drop for FullDisk {
    fn drop(&mut self) {
        if let FullDisk::FileSystem { mount } = self {
            let _ = Command::new("umount").arg("-l").arg(mount.path()).status();
        }
    }
}

/// Set or remove the limit of a process's file size.
fn limit(host: Option<&HostProcess>, bytes: Option<u64>) {
    let Some(host) = host else { return };
    let pid = Pid::from_raw(i32::try_from(host.id()).expect("a process id"));
    let maximum = getrlimit(Resource::Fsize).maximum;
    prlimit(
        pid,
        Resource::Fsize,
        Rlimit {
            current: bytes.or(maximum),
            maximum,
        },
    )
    .expect("a limit");
}

/// Return `campanile serve` with a limit of the size of its files.
fn serve_with_limit(site: &Site, file_blocks_max: Option<u32>) -> Command {
    let ulimit = file_blocks_max.map_or(String::new(), |blocks| format!("ulimit -f {blocks} && "));
    let mut command = site.command(Path::new("sh"));
    command
        .args(["-c", &format!("{ulimit}exec \"$0\" \"$@\"")])
        .arg(campanile_binary())
        .args(["serve", "--name", "host-1"]);
    command
}

#[test]
fn a_disk_that_is_full_at_the_start_is_rejected() {
    let disk = FullDisk::file_system();
    let site = site_in(disk.folder());
    disk.fill(None);
    let blocks = matches!(disk, FullDisk::FileSize { .. }).then_some(16);
    let log = startup_error(&mut serve_with_limit(&site, blocks));
    assert!(
        log.contains("cannot be written") && log.contains("space"),
        "{log}"
    );
    if let FullDisk::FileSystem { .. } = disk {
        disk.free(None);
    }
    // The failed start leaves nothing behind: the folder works when there is space.
    let mut host = site.start("host-1");
    host.terminate();
    assert!(host.wait_exit().success());
    assert_eq!(integrity(&site), "ok");
}

#[test]
fn a_limited_file_size_at_the_start_is_rejected() {
    let disk = FullDisk::file_size();
    let site = site_in(disk.folder());
    let log = startup_error(&mut serve_with_limit(&site, Some(16)));
    assert!(
        log.contains("cannot be written") && log.contains("space"),
        "{log}"
    );
    let mut host = site.start("host-1");
    host.terminate();
    assert!(host.wait_exit().success());
    assert_eq!(integrity(&site), "ok");
}

#[test]
fn a_host_continues_when_a_full_disk_has_space_again() {
    fill_while_serving(&FullDisk::file_system());
}

#[test]
fn a_host_continues_when_its_files_can_grow_again() {
    fill_while_serving(&FullDisk::file_size());
}

fn fill_while_serving(disk: &FullDisk) {
    let site = site_in(disk.folder());
    site.install_schedules(SCHEDULES, "{ after_ms = 100 }");
    let mut host = HostProcess::spawn(&mut serve_with_limit(&site, None));
    host.wait_for_line("serving");
    let journal = disk.folder().join("campanile.db-wal");
    site.record_when("launches and a journal", &[&host], |record| {
        record.all_launches().count() >= SCHEDULES * 2
            && std::fs::metadata(&journal).is_ok_and(|found| found.len() > 2 * FILE_BYTES_MAX)
    });
    disk.fill(Some(&host));
    let line = host.wait_for_line("trying again until it works");
    assert!(
        line.contains("cannot be written") && line.contains("space"),
        "{line}"
    );
    host.stays_up(Duration::from_secs(3));
    disk.free(Some(&host));
    let freed = now();
    host.wait_for_line("the disk of the database has room again");
    site.wait_for_slots_after(freed.plus(Duration::from_secs(2)), &[&host]);
    let record = site.pause_and_finish(&[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let totals = consistency::check(&record, &site.effects(), 1);
    println!("no space for 3 s: {totals}");
    assert_eq!(totals.succeeded, totals.launched, "{totals}");
    assert_eq!(totals.skipped, 0, "{totals}");
    assert_eq!(integrity(&site), "ok");
}

#[test]
fn the_tables_of_a_newer_version_are_rejected() {
    for backend in Backend::ALL {
        let site = Site::new(backend);
        migrate(&site);
        site.with_db(async |db: Db| {
            let mut tx = db.write().await.expect("a transaction");
            let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                SELECT 9999, 'newer', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1";
            probe::execute(&mut tx, sql).await.expect("a row");
            tx.commit().await.expect("a commit");
        });
        let log = startup_error(&mut site.serve("host-1"));
        assert!(log.contains("schema version 9999, newer than"), "{log}");
        assert!(log.contains("use a newer campanile"), "{log}");
    }
}

#[test]
fn a_damaged_file_is_rejected_and_not_changed() {
    let folder = TempDir::new().expect("a folder");
    let site = site_in(folder.path());
    migrate(&site);
    // Closing the last connection moves the journal into the file.
    site.with_db(async |_| ());
    assert!(!folder.path().join("campanile.db-wal").exists());
    let file = folder.path().join("campanile.db");
    let mut bytes = std::fs::read(&file).expect("the file");
    bytes[..100].fill(0x5a);
    std::fs::write(&file, &bytes).expect("the file");
    let log = startup_error(&mut site.serve("host-1"));
    assert!(log.contains("restore the file from a backup"), "{log}");
    assert_eq!(std::fs::read(&file).expect("the file"), bytes);
}

/// The host keeps the deleted file open, so what it records is lost.
#[test]
fn a_host_reports_once_that_its_file_was_deleted() {
    lose_the_file(|folder| {
        for name in ["campanile.db", "campanile.db-wal", "campanile.db-shm"] {
            let _ = std::fs::remove_file(folder.join(name));
        }
    });
}

#[test]
fn a_host_reports_once_that_its_file_was_replaced() {
    lose_the_file(|folder| {
        let (database, other) = (folder.join("campanile.db"), folder.join("other.db"));
        std::fs::copy(&database, &other).expect("a copy");
        std::fs::rename(&other, &database).expect("a new file in the place");
    });
}

fn lose_the_file(lose: impl FnOnce(&Path)) {
    let folder = TempDir::new().expect("a folder");
    let site = site_in(folder.path());
    site.install_schedules(1, "{}");
    let mut host = site.start("host-1");
    site.record_when("a launch", &[&host], |record| {
        record.all_launches().count() > 0
    });
    lose(folder.path());
    host.wait_for_line("was deleted or replaced while it is served");
    host.terminate();
    host.wait_exit();
    let log = host.stderr_lines();
    assert_eq!(
        log.iter()
            .filter(|line| line.contains("was deleted or replaced"))
            .count(),
        1,
        "{log:?}"
    );
}
