//! SQLite on a disk that does not do as it should: a clear sentence, and never a damaged file.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use campanile_store::{DatabaseUrl, Db, probe};
use campanile_tests::{Backend, HostProcess, campanile_binary};
use rustix::process::{Pid, Resource, Rlimit, geteuid, getrlimit, prlimit};
use tempfile::TempDir;

use crate::account;
use crate::tower::{Tower, now};

const SCHEDULES: usize = 20;
/// How large a file may become when that is what is short, in bytes: more than the effects, less than the journal.
const FILE_BYTES_MAX: u64 = 64 << 10;
/// A user and a group without rights of their own.
const NOBODY: u32 = 65_534;

/// A tower whose database lies in a folder of its own.
fn tower_in(folder: &Path) -> Tower {
    let tower = Tower::on(DatabaseUrl::Sqlite(folder.join("campanile.db")));
    tower.configure("[sandbox]\ncache = false\n");
    tower
}

fn migrate(tower: &Tower) {
    let made = tower
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

/// Start it, and give what it says when it ends by itself with exit code 2.
fn refusal(command: &mut Command) -> String {
    let mut host = HostProcess::spawn(command);
    let status = host.wait_exit();
    let said = host.stderr_lines().join("\n");
    assert_eq!(status.code(), Some(2), "{said}");
    assert!(said.contains("error: "), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    said
}

/// `campanile serve` as a user for whom permissions count.
fn serve_unprivileged(tower: &Tower) -> Command {
    let mut command;
    if geteuid().is_root() {
        // Out of folders that only root may enter.
        let binary = tower.folder.join("campanile");
        std::fs::copy(campanile_binary(), &binary).expect("a copy of the program");
        allow(&tower.folder, 0o755);
        command = tower.command(Path::new("setpriv"));
        command
            .args([format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")])
            .arg("--clear-groups")
            .arg(binary);
    } else {
        command = tower.command(campanile_binary());
    }
    command.args(["serve", "--name", "tower"]);
    command
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
}

fn integrity(tower: &Tower) -> String {
    tower.with_db(async |db| {
        let mut tx = db.read().await.expect("a transaction");
        let rows = probe::rows(&mut tx, "PRAGMA integrity_check")
            .await
            .expect("a check");
        rows.concat().join("\n")
    })
}

#[test]
fn a_file_that_may_not_be_written_is_refused_and_stays_as_it_was() {
    let folder = TempDir::new().expect("a folder");
    let tower = tower_in(folder.path());
    migrate(&tower);
    let file = folder.path().join("campanile.db");
    allow(folder.path(), 0o777);
    allow(&file, 0o444);
    let before = std::fs::read(&file).expect("the file");
    let said = refusal(&mut serve_unprivileged(&tower));
    assert!(
        said.contains("cannot be written") && said.contains("permissions"),
        "{said}"
    );
    assert_eq!(std::fs::read(&file).expect("the file"), before);
}

#[test]
fn a_folder_that_may_not_be_written_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let tower = tower_in(folder.path());
    allow(folder.path(), 0o555);
    let said = refusal(&mut serve_unprivileged(&tower));
    assert!(said.contains("folder exists and may be written"), "{said}");
    allow(folder.path(), 0o755);

    migrate(&tower);
    allow(&folder.path().join("campanile.db"), 0o666);
    allow(folder.path(), 0o555);
    let said = refusal(&mut serve_unprivileged(&tower));
    assert!(
        said.contains("cannot be written") && said.contains(&folder.path().display().to_string()),
        "{said}"
    );
    allow(folder.path(), 0o755);
    assert_eq!(integrity(&tower), "ok");
}

/// What there is too little of.
enum Scarce {
    /// A small file system of its own, with a file that fills it.
    Space { mount: TempDir },
    /// The bytes that a file of the process may have: for those who may not mount.
    Bytes { folder: TempDir },
}

impl Scarce {
    fn space() -> Scarce {
        let mount = TempDir::new().expect("a folder");
        let mounted = geteuid().is_root()
            && Command::new("mount")
                .args(["-t", "tmpfs", "-o", "size=16m", "tmpfs"])
                .arg(mount.path())
                .status()
                .is_ok_and(|status| status.success());
        if mounted {
            return Scarce::Space { mount };
        }
        println!("nothing may be mounted here: the size of files is limited instead");
        Scarce::bytes()
    }

    fn bytes() -> Scarce {
        Scarce::Bytes {
            folder: TempDir::new().expect("a folder"),
        }
    }

    fn folder(&self) -> &Path {
        match self {
            Scarce::Space { mount } => mount.path(),
            Scarce::Bytes { folder } => folder.path(),
        }
    }

    fn ballast(&self) -> PathBuf {
        self.folder().join("ballast")
    }

    fn fill(&self, host: Option<&HostProcess>) {
        match self {
            Scarce::Space { .. } => {
                let mut ballast = std::fs::File::create(self.ballast()).expect("the ballast");
                for size in [1 << 20, 4 << 10, 1] {
                    while ballast.write_all(&vec![b'x'; size]).is_ok() {}
                }
            }
            Scarce::Bytes { .. } => limit(host, Some(FILE_BYTES_MAX)),
        }
    }

    fn free(&self, host: Option<&HostProcess>) {
        match self {
            Scarce::Space { .. } => std::fs::remove_file(self.ballast()).expect("the ballast"),
            Scarce::Bytes { .. } => limit(host, None),
        }
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        if let Scarce::Space { mount } = self {
            let _ = Command::new("umount").arg("-l").arg(mount.path()).status();
        }
    }
}

/// Limit the size of a process's files, or lift the limit.
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

/// `campanile serve` that gets an error rather than a signal when a file would become too large.
fn serve_without_signal(tower: &Tower, file_blocks_max: Option<u32>) -> Command {
    let ulimit = file_blocks_max.map_or(String::new(), |blocks| format!("ulimit -f {blocks} && "));
    let mut command = tower.command(Path::new("sh"));
    command
        .args(["-c", &format!("trap '' XFSZ; {ulimit}exec \"$0\" \"$@\"")])
        .arg(campanile_binary())
        .args(["serve", "--name", "tower"]);
    command
}

#[test]
fn a_disk_that_is_full_at_the_start_is_refused() {
    let scarce = Scarce::space();
    let tower = tower_in(scarce.folder());
    scarce.fill(None);
    let blocks = matches!(scarce, Scarce::Bytes { .. }).then_some(16);
    let said = refusal(&mut serve_without_signal(&tower, blocks));
    assert!(
        said.contains("cannot be written") && said.contains("space"),
        "{said}"
    );
    if let Scarce::Space { .. } = scarce {
        scarce.free(None);
    }
    // Nothing half-made is left: the same folder serves when there is room.
    let mut host = tower.start("tower");
    host.terminate();
    assert!(host.wait_exit().success());
    assert_eq!(integrity(&tower), "ok");
}

#[test]
fn a_file_that_may_not_grow_at_the_start_is_refused() {
    let scarce = Scarce::bytes();
    let tower = tower_in(scarce.folder());
    let said = refusal(&mut serve_without_signal(&tower, Some(16)));
    assert!(
        said.contains("cannot be written") && said.contains("space"),
        "{said}"
    );
    let mut host = tower.start("tower");
    host.terminate();
    assert!(host.wait_exit().success());
    assert_eq!(integrity(&tower), "ok");
}

#[test]
fn a_host_goes_on_when_a_full_disk_has_space_again() {
    fill_while_serving(&Scarce::space());
}

#[test]
fn a_host_goes_on_when_its_files_may_grow_again() {
    fill_while_serving(&Scarce::bytes());
}

fn fill_while_serving(scarce: &Scarce) {
    let tower = tower_in(scarce.folder());
    tower.install_bells(SCHEDULES, "{ after_ms = 100 }");
    let mut host = HostProcess::spawn(&mut serve_without_signal(&tower, None));
    host.wait_for_line("serving");
    let journal = scarce.folder().join("campanile.db-wal");
    tower.record_when(
        "launches and a journal",
        Duration::from_secs(20),
        &[&host],
        |record| {
            record.all_launches().count() >= SCHEDULES * 2
                && std::fs::metadata(&journal).is_ok_and(|found| found.len() > 2 * FILE_BYTES_MAX)
        },
    );
    scarce.fill(Some(&host));
    let line = host.wait_for_line("trying again until it works");
    assert!(
        line.contains("cannot be written") && line.contains("space"),
        "{line}"
    );
    host.stays_up(Duration::from_secs(3));
    scarce.free(Some(&host));
    let freed = now();
    host.wait_for_line("the database answers again");
    tower.rings_past(freed.plus(Duration::from_secs(2)), &[&host]);
    let record = tower.quiet(Duration::from_secs(20), &[&host]);
    host.terminate();
    assert!(host.wait_exit().success());
    let account = account::check(&record, &tower.effects(), 1);
    println!("no space for 3 s: {account}");
    assert_eq!(account.succeeded, account.launched, "{account}");
    assert_eq!(account.skipped, 0, "{account}");
    assert_eq!(integrity(&tower), "ok");
}

#[test]
fn the_tables_of_a_newer_version_are_refused() {
    for backend in Backend::ALL {
        let tower = Tower::new(backend);
        migrate(&tower);
        tower.with_db(async |db: Db| {
            let mut tx = db.write().await.expect("a transaction");
            let sql = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
                SELECT 9999, 'of the future', success, checksum, 0 FROM _sqlx_migrations WHERE version = 1";
            probe::execute(&mut tx, sql).await.expect("a row");
            tx.commit().await.expect("a commit");
        });
        let said = refusal(&mut tower.serve("tower"));
        assert!(said.contains("schema version 9999, newer than"), "{said}");
        assert!(said.contains("use a newer campanile"), "{said}");
    }
}

#[test]
fn a_file_that_is_not_a_database_any_more_is_refused_and_left_alone() {
    let folder = TempDir::new().expect("a folder");
    let tower = tower_in(folder.path());
    migrate(&tower);
    // The last to close it puts what lies in the journal into the file itself.
    tower.with_db(async |_| ());
    assert!(!folder.path().join("campanile.db-wal").exists());
    let file = folder.path().join("campanile.db");
    let mut bytes = std::fs::read(&file).expect("the file");
    bytes[..100].fill(0x5a);
    std::fs::write(&file, &bytes).expect("the file");
    let said = refusal(&mut tower.serve("tower"));
    assert!(said.contains("restore the file from a backup"), "{said}");
    assert_eq!(std::fs::read(&file).expect("the file"), bytes);
}

/// The host keeps the file that it has open, and what it records there goes with it.
#[test]
fn a_file_that_is_deleted_under_a_host_is_missed() {
    let folder = TempDir::new().expect("a folder");
    let tower = tower_in(folder.path());
    tower.install_bells(1, "{}");
    let mut host = tower.start("tower");
    tower.record_when("a launch", Duration::from_secs(20), &[&host], |record| {
        record.all_launches().count() > 0
    });
    for name in ["campanile.db", "campanile.db-wal", "campanile.db-shm"] {
        let _ = std::fs::remove_file(folder.path().join(name));
    }
    host.wait_for_line("was deleted or replaced while it is served");
    host.terminate();
    host.wait_exit();
    let said = host.stderr_lines();
    assert_eq!(
        said.iter()
            .filter(|line| line.contains("was deleted or replaced"))
            .count(),
        1,
        "{said:?}"
    );
}
