//! The backup on real directories, with the run faked.

use std::fs;
use std::os::unix::fs::symlink;
use std::time::{Duration, SystemTime};

use campanile_sdk::Level;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::tree::Tree;

/// A source with three files in two directories, one of them empty, and a folder for snapshots.
struct Ground {
    folder: TempDir,
}

impl Ground {
    fn new() -> Ground {
        let ground = Ground {
            folder: tempfile::tempdir().unwrap(),
        };
        fs::create_dir_all(ground.source().join("deep/er")).unwrap();
        fs::create_dir_all(ground.source().join("empty")).unwrap();
        fs::create_dir_all(ground.snapshots()).unwrap();
        ground.write("a.txt", "alpha");
        ground.write("deep/b.txt", "");
        ground.write("deep/er/c.bin", &"c".repeat(200_000));
        ground
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

    fn back_up(&self, run: &Run, wishes: Wishes) -> Result<Done> {
        back_up(run, &wishes, &self.source(), &self.snapshots())
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
fn a_snapshot_has_the_name_of_the_slots_date_and_everything_in_it() {
    let ground = Ground::new();
    let old = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let file = fs::File::options()
        .append(true)
        .open(ground.source().join("a.txt"))
        .unwrap();
    file.set_modified(old).unwrap();
    let done = ground
        .back_up(&slot("2026-11-21T02:00:00Z"), Wishes::default())
        .unwrap();
    assert_eq!(
        serde_json::to_value(&done).unwrap(),
        json!({
            "snapshot": "2026-11-21", "files": 3, "bytes": 200_005, "already_existed": false,
            "resumed": false, "kept": 0, "skipped": 0, "removed": [],
        })
    );
    let whole = ground.snapshots().join("2026-11-21");
    assert_eq!(
        Tree::of(&whole).unwrap(),
        Tree::of(&ground.source()).unwrap()
    );
    assert_eq!(content(&whole), content(&ground.source()));
    assert_eq!(
        fs::metadata(whole.join("a.txt"))
            .unwrap()
            .modified()
            .unwrap(),
        old
    );
    assert_eq!(ground.names(), ["2026-11-21"]);
}

#[test]
fn a_second_run_of_the_slot_changes_nothing_and_says_so() {
    let ground = Ground::new();
    ground
        .back_up(&slot("2026-11-21T02:00:00Z"), Wishes::default())
        .unwrap();
    ground.write("a.txt", "changed since");
    let again = Run::fake()
        .at("2026-11-21T02:00:00Z")
        .recovered_at("2026-11-22T09:00:00Z")
        .build();
    let done = ground.back_up(&again, Wishes::default()).unwrap();
    assert!(done.already_existed);
    assert_eq!((done.files, done.bytes), (3, 200_005));
    let kept = fs::read_to_string(ground.snapshots().join("2026-11-21/a.txt")).unwrap();
    assert_eq!(kept, "alpha");
}

#[test]
fn a_recovered_run_goes_on_where_the_lost_one_stopped() {
    let ground = Ground::new();
    let partial = ground.snapshots().join(".partial-2026-11-21");
    fs::create_dir_all(partial.join("gone/too")).unwrap();
    fs::create_dir_all(partial.join("deep/er")).unwrap();
    fs::write(partial.join("a.txt"), "alpha").unwrap();
    fs::write(partial.join("gone/too/x"), "deleted from the source since").unwrap();
    fs::write(partial.join("deep/b.txt"), "grew shorter since").unwrap();
    // As long as the source's, but torn: the end was never written.
    let torn = format!("{}{}", "c".repeat(199_999), "\0");
    fs::write(partial.join("deep/er/c.bin"), torn).unwrap();
    let run = Run::fake()
        .at("2026-11-21T02:00:00Z")
        .recovered_at("2026-11-21T02:10:00Z")
        .build();
    let done = ground.back_up(&run, Wishes::default()).unwrap();
    assert!(done.resumed && !done.already_existed);
    assert_eq!((done.files, done.kept), (3, 1));
    let whole = ground.snapshots().join("2026-11-21");
    assert_eq!(
        Tree::of(&whole).unwrap(),
        Tree::of(&ground.source()).unwrap()
    );
    assert_eq!(content(&whole), content(&ground.source()));
    assert_eq!(ground.names(), ["2026-11-21"]);
}

#[test]
fn a_run_that_is_asked_to_stop_leaves_no_snapshot_and_can_be_taken_up() {
    let ground = Ground::new();
    let stopped = Run::fake().at("2026-11-21T02:00:00Z").cancelled().build();
    let error = ground.back_up(&stopped, Wishes::default()).unwrap_err();
    assert!(error.is_retryable(), "{error}");
    assert_eq!(ground.names(), [".partial-2026-11-21"]);
    let done = ground
        .back_up(&slot("2026-11-21T02:00:00Z"), Wishes::default())
        .unwrap();
    assert!(done.resumed);
    assert_eq!(ground.names(), ["2026-11-21"]);
}

#[test]
fn links_are_skipped_with_a_warning() {
    let ground = Ground::new();
    symlink("/etc/passwd", ground.source().join("link")).unwrap();
    symlink(ground.source(), ground.source().join("deep/loop")).unwrap();
    let run = slot("2026-11-21T02:00:00Z");
    let done = ground.back_up(&run, Wishes::default()).unwrap();
    assert_eq!((done.files, done.skipped), (3, 2));
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
fn only_the_newest_snapshots_are_kept_and_never_the_present_one_removed() {
    let ground = Ground::new();
    fs::create_dir_all(ground.snapshots().join("notes")).unwrap();
    fs::create_dir_all(ground.snapshots().join(".removing-2026-11-01/half")).unwrap();
    let keep_two = || Wishes {
        keep: Some(2),
        ..Wishes::default()
    };
    for day in ["18", "19", "20"] {
        ground
            .back_up(
                &slot(&format!("2026-11-{day}T02:00:00Z")),
                Wishes::default(),
            )
            .unwrap();
    }
    let done = ground
        .back_up(&slot("2026-11-21T02:00:00Z"), keep_two())
        .unwrap();
    assert_eq!(done.removed, ["2026-11-18", "2026-11-19"]);
    assert_eq!(ground.names(), ["2026-11-20", "2026-11-21", "notes"]);
    // Filling in an old day does not throw it away at once.
    let done = ground
        .back_up(&slot("2026-10-01T02:00:00Z"), keep_two())
        .unwrap();
    assert_eq!(done.removed, ["2026-11-20"]);
    assert_eq!(ground.names(), ["2026-10-01", "2026-11-21", "notes"]);
}

#[test]
fn the_date_is_the_one_on_the_calendar_of_the_schedules_zone() {
    let ground = Ground::new();
    let run = Run::fake()
        .at("2026-07-14T23:30:00Z")
        .context(json!({"scheduled_local": "2026-07-15T01:30:00+02:00"}))
        .build();
    let done = ground.back_up(&run, Wishes::default()).unwrap();
    assert_eq!(done.snapshot, "2026-07-15");
}

#[test]
fn progress_never_says_done_before_the_snapshot_is_whole() {
    let ground = Ground::new();
    let run = slot("2026-11-21T02:00:00Z");
    ground.back_up(&run, Wishes::default()).unwrap();
    let reports = run.progress_reports();
    let percents: Vec<u8> = reports.iter().filter_map(|report| report.percent).collect();
    assert_eq!(percents, [0, 0, 99]);
    assert_eq!(reports[2].message, "3 of 3 files");
}

#[test]
fn an_empty_source_makes_an_empty_snapshot() {
    let ground = Ground::new();
    fs::remove_dir_all(ground.source()).unwrap();
    fs::create_dir(ground.source()).unwrap();
    let done = ground
        .back_up(&slot("2026-11-21T02:00:00Z"), Wishes::default())
        .unwrap();
    assert_eq!((done.files, done.bytes), (0, 0));
    assert_eq!(ground.names(), ["2026-11-21"]);
}

#[test]
fn wishes_that_make_no_sense_are_refused_for_good() {
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
fn it_asks_for_both_directories_and_for_two_in_the_morning() {
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
