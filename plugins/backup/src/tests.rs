//! Tests on real directories with a fake run.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use campanile_sdk::Level;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::tree::Tree;

/// A source with three files and three directories, one of them empty, and a directory for snapshots.
struct Fixture {
    folder: TempDir,
}

impl Fixture {
    fn new() -> Fixture {
        let fixture = Fixture {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(fixture.source().join("deep/er")).unwrap();
        fs::create_dir_all(fixture.source().join("empty")).unwrap();
        fs::create_dir_all(fixture.snapshots()).unwrap();
        fixture.write("a.txt", "alpha");
        fixture.write("deep/b.txt", "");
        fixture.write("deep/er/c.bin", &"c".repeat(200_000));
        fixture
    }

    fn source(&self) -> PathBuf {
        self.folder.path().join("source")
    }

    fn snapshots(&self) -> PathBuf {
        self.folder.path().join("snapshots")
    }

    fn write(&self, path: &str, text: &str) {
        fs::write(self.source().join(path), text).unwrap();
    }

    fn back_up(&self, run: &Run, params: Params) -> Result<Summary> {
        back_up(run, &params, &self.source(), &self.snapshots())
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.snapshots()).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    }
}

fn slot(time: &str) -> Run {
    Run::fake().at(time).build()
}

fn content(root: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let files = Tree::of(root).unwrap().files;
    files
        .into_iter()
        .map(|file| (file.path.clone(), fs::read(root.join(&file.path)).unwrap()))
        .collect()
}

#[test]
fn a_snapshot_is_a_copy_named_by_the_date_of_the_slot() {
    let fixture = Fixture::new();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options()
        .append(true)
        .open(fixture.source().join("a.txt"))
        .unwrap();
    file.set_modified(old).unwrap();
    let summary = fixture
        .back_up(&slot("2026-11-21T02:00:00Z"), Params::default())
        .unwrap();
    assert_eq!(
        serde_json::to_value(&summary).unwrap(),
        json!({
            "snapshot": "2026-11-21", "files": 3, "bytes": 200_005, "already_existed": false,
            "resumed": false, "kept": 0, "skipped": 0, "removed": [],
        })
    );
    let snapshot = fixture.snapshots().join("2026-11-21");
    assert_eq!(
        Tree::of(&snapshot).unwrap(),
        Tree::of(&fixture.source()).unwrap()
    );
    assert_eq!(content(&snapshot), content(&fixture.source()));
    assert_eq!(
        fs::metadata(snapshot.join("a.txt"))
            .unwrap()
            .modified()
            .unwrap(),
        old
    );
    assert_eq!(fixture.names(), ["2026-11-21"]);
}

#[test]
fn a_second_run_of_the_slot_changes_nothing() {
    let fixture = Fixture::new();
    fixture
        .back_up(&slot("2026-11-21T02:00:00Z"), Params::default())
        .unwrap();
    fixture.write("a.txt", "changed since");
    let again = Run::fake()
        .at("2026-11-21T02:00:00Z")
        .recovered_at("2026-11-22T09:00:00Z")
        .build();
    let summary = fixture.back_up(&again, Params::default()).unwrap();
    assert!(summary.already_existed);
    assert_eq!((summary.files, summary.bytes), (3, 200_005));
    let kept = fs::read_to_string(fixture.snapshots().join("2026-11-21/a.txt")).unwrap();
    assert_eq!(kept, "alpha");
}

#[test]
fn a_recovered_run_resumes_the_lost_run() {
    let fixture = Fixture::new();
    let partial = fixture.snapshots().join(".partial-2026-11-21");
    fs::create_dir_all(partial.join("gone/too")).unwrap();
    fs::create_dir_all(partial.join("deep/er")).unwrap();
    fs::write(partial.join("a.txt"), "alpha").unwrap();
    fs::write(partial.join("gone/too/x"), "deleted from the source since").unwrap();
    fs::write(partial.join("deep/b.txt"), "grew shorter since").unwrap();
    // The same length as the source, but the last byte was never written.
    let torn = format!("{}{}", "c".repeat(199_999), "\0");
    fs::write(partial.join("deep/er/c.bin"), torn).unwrap();
    let run = Run::fake()
        .at("2026-11-21T02:00:00Z")
        .recovered_at("2026-11-21T02:10:00Z")
        .build();
    let summary = fixture.back_up(&run, Params::default()).unwrap();
    assert!(summary.resumed && !summary.already_existed);
    assert_eq!((summary.files, summary.kept), (3, 1));
    let snapshot = fixture.snapshots().join("2026-11-21");
    assert_eq!(
        Tree::of(&snapshot).unwrap(),
        Tree::of(&fixture.source()).unwrap()
    );
    assert_eq!(content(&snapshot), content(&fixture.source()));
    assert_eq!(fixture.names(), ["2026-11-21"]);
}

#[test]
fn a_cancelled_run_leaves_a_partial_snapshot_that_is_resumed() {
    let fixture = Fixture::new();
    let stopped = Run::fake().at("2026-11-21T02:00:00Z").cancelled().build();
    let error = fixture.back_up(&stopped, Params::default()).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(fixture.names(), [".partial-2026-11-21"]);
    let summary = fixture
        .back_up(&slot("2026-11-21T02:00:00Z"), Params::default())
        .unwrap();
    assert!(summary.resumed);
    assert_eq!(fixture.names(), ["2026-11-21"]);
}

#[test]
fn links_are_skipped_with_a_warning() {
    let fixture = Fixture::new();
    symlink("/etc/passwd", fixture.source().join("link")).unwrap();
    symlink(fixture.source(), fixture.source().join("deep/loop")).unwrap();
    let run = slot("2026-11-21T02:00:00Z");
    let summary = fixture.back_up(&run, Params::default()).unwrap();
    assert_eq!((summary.files, summary.skipped), (3, 2));
    let warnings: Vec<String> = run
        .logs()
        .into_iter()
        .filter(|line| line.level == Level::Warn)
        .map(|line| line.message)
        .collect();
    assert_eq!(
        warnings,
        [
            "skipped link: neither a file nor a directory",
            "skipped deep/loop: neither a file nor a directory",
        ]
    );
}

#[test]
fn the_oldest_snapshots_are_removed_but_never_the_current_one() {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.snapshots().join("notes")).unwrap();
    fs::create_dir_all(fixture.snapshots().join(".removing-2026-11-01/half")).unwrap();
    let keep_two = || Params {
        keep: Some(2),
        ..Params::default()
    };
    for day in ["18", "19", "20"] {
        fixture
            .back_up(
                &slot(&format!("2026-11-{day}T02:00:00Z")),
                Params::default(),
            )
            .unwrap();
    }
    let summary = fixture
        .back_up(&slot("2026-11-21T02:00:00Z"), keep_two())
        .unwrap();
    assert_eq!(summary.removed, ["2026-11-18", "2026-11-19"]);
    assert_eq!(fixture.names(), ["2026-11-20", "2026-11-21", "notes"]);
    // The snapshot of an old slot is not removed by its own run.
    let summary = fixture
        .back_up(&slot("2026-10-01T02:00:00Z"), keep_two())
        .unwrap();
    assert_eq!(summary.removed, ["2026-11-20"]);
    assert_eq!(fixture.names(), ["2026-10-01", "2026-11-21", "notes"]);
}

#[test]
fn the_date_is_in_the_time_zone_of_the_schedule() {
    let fixture = Fixture::new();
    let run = Run::fake()
        .at("2026-07-14T23:30:00Z")
        .context(json!({"scheduled_local": "2026-07-15T01:30:00+02:00"}))
        .build();
    let summary = fixture.back_up(&run, Params::default()).unwrap();
    assert_eq!(summary.snapshot, "2026-07-15");
}

#[test]
fn progress_stays_below_100_until_the_snapshot_is_complete() {
    let fixture = Fixture::new();
    let run = slot("2026-11-21T02:00:00Z");
    fixture.back_up(&run, Params::default()).unwrap();
    let reports = run.progress_reports();
    let percents: Vec<u8> = reports.iter().filter_map(|report| report.percent).collect();
    assert_eq!(percents, [0, 0, 99]);
    assert_eq!(reports[2].message, "3 of 3 files");
}

#[test]
fn an_empty_source_makes_an_empty_snapshot() {
    let fixture = Fixture::new();
    fs::remove_dir_all(fixture.source()).unwrap();
    fs::create_dir(fixture.source()).unwrap();
    let summary = fixture
        .back_up(&slot("2026-11-21T02:00:00Z"), Params::default())
        .unwrap();
    assert_eq!((summary.files, summary.bytes), (0, 0));
    assert_eq!(fixture.names(), ["2026-11-21"]);
}

#[test]
fn an_invalid_context_is_a_permanent_error() {
    for (context, expected) in [
        (json!({"source": "../etc"}), "`source` is `../etc`"),
        (json!({"source": "/etc"}), "`source` is `/etc`"),
        (json!({"snapshots": "a/../../b"}), "`snapshots` is"),
        (json!({"keep": 0}), "`keep` is 0"),
        (json!({"keeep": 3}), "unknown field `keeep`"),
    ] {
        let run = Run::fake().context(context).build();
        let error = package().call::<Value>("backup", &run).unwrap_err();
        assert!(error.message().contains(expected), "{error}");
        assert!(!error.is_retryable());
    }
}

#[test]
fn the_package_requests_both_directories_and_proposes_a_schedule() {
    let manifest = package().manifest();
    assert_eq!(manifest["schedules"], json!([{"cron": "0 2 * * *"}]));
    let access: Vec<_> = manifest["requests"]["directories"]
        .as_array()
        .unwrap()
        .iter()
        .map(|directory| {
            (
                directory["guest"].as_str().unwrap(),
                directory["access"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(access, [("/source", "read"), ("/snapshots", "write")]);
}
