//! Quotas of granted directories, and the ways around them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::guests::*;
use super::quota_script::*;
use crate::*;

const BLOCK: u64 = QUOTA_BLOCK_BYTES;

/// Directories of the host, granted as `/0`, `/1` and so on.
struct Directories(tempfile::TempDir, Vec<DirectoryQuota>);

fn bytes(blocks: u64) -> DirectoryQuota {
    DirectoryQuota {
        max_bytes: Some(blocks * BLOCK),
        max_files: None,
    }
}

fn files(most: u64) -> DirectoryQuota {
    DirectoryQuota {
        max_bytes: None,
        max_files: Some(most),
    }
}

fn free() -> DirectoryQuota {
    DirectoryQuota::default()
}

fn directories(quotas: &[DirectoryQuota]) -> Directories {
    let root = tempfile::tempdir().unwrap();
    for number in 0..quotas.len() {
        fs::create_dir(root.path().join(number.to_string())).unwrap();
    }
    Directories(root, quotas.to_vec())
}

impl Directories {
    fn path(&self, number: usize) -> PathBuf {
        let root = self.0.path().canonicalize().unwrap();
        root.join(number.to_string())
    }

    fn call(&self) -> Call {
        let grants = self
            .1
            .iter()
            .enumerate()
            .map(|(number, quota)| DirectoryGrant {
                host: self.path(number),
                guest: format!("/{number}"),
                writable: true,
                quota: *quota,
            });
        granted(Grants {
            directories: grants.collect(),
            ..Grants::default()
        })
    }

    /// Make the operations in one call. Return the report, and the results.
    async fn call_script(&self, sandbox: &Sandbox, script: &[Op<'_>]) -> (Report, String) {
        let artifact = Arc::new(sandbox.load(&scripted(script).component()).unwrap());
        let report = sandbox.run(&artifact, self.call()).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        let output = report.output.as_ref().unwrap().value();
        let output = output.as_str().unwrap().to_owned();
        (report, output)
    }

    /// Assert the results of `script`.
    async fn check(&self, script: &[(Op<'_>, char)]) {
        let ops: Vec<Op<'_>> = script.iter().map(|(op, _)| *op).collect();
        let expected: String = script.iter().map(|(_, result)| *result).collect();
        let (_, results) = self.call_script(&sandbox(), &ops).await;
        assert_eq!(results, expected, "{script:#?}");
    }
}

/// Returns the bytes, in blocks, and the entries below `path`, where no file has two names.
fn held(path: &Path) -> (u64, u64) {
    let mut held = (0, 0);
    for entry in fs::read_dir(path).unwrap() {
        let path = entry.unwrap().path();
        let found = path.symlink_metadata().unwrap();
        let size = if found.is_dir() { 0 } else { found.len() };
        held.0 += size.max(1).div_ceil(BLOCK);
        held.1 += 1;
        if found.is_dir() {
            let below = self::held(&path);
            held = (held.0 + below.0, held.1 + below.1);
        }
    }
    held
}

#[tokio::test]
async fn a_write_beyond_the_quota_fails_with_its_code_and_the_report_says_so() {
    let directories = directories(&[bytes(4)]);
    let script = [
        Op::Open(0, "file", CREATE, 0),
        Op::Write(0, 0, 3 * 4096),
        Op::Write(0, 3 * 4096, 4096),
        Op::Write(0, 4 * 4096, 1),
        // What does not make the directory grow is allowed.
        Op::Write(0, 0, 4 * 4096),
        Op::Write(0, 4 * 4096, 0),
        Op::Open(0, "other", CREATE, 1),
        Op::Open(0, "file", CREATE, 1),
    ];
    let (report, results) = directories.call_script(&sandbox(), &script).await;
    assert_eq!(results, "...6..6.");
    assert_eq!(
        report.usage.directories,
        [DirectoryShare {
            guest: "/0".to_owned(),
            bytes: 4 * BLOCK,
            max_bytes: Some(4 * BLOCK),
            files: 1,
            max_files: None,
        }]
    );
    assert_eq!(held(&directories.path(0)), (4, 1));
}

#[tokio::test]
async fn a_task_that_fails_at_its_quota_has_the_reason_in_its_failure() {
    let directories = directories(&[bytes(1)]);
    let full = GuestFailure {
        message: "Disk quota exceeded",
        ..GuestFailure::default()
    };
    let script = [Op::Open(0, "a", CREATE, 0), Op::Open(0, "b", CREATE, 1)];
    let guest = scripted(&script).fails(RESULT, &full);
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(&artifact, directories.call()).await;
    let failed = failure(&report, Outcome::Failed);
    assert_eq!(failed.message, "Disk quota exceeded");
    assert_eq!(
        failed.note.as_deref(),
        Some(
            "/0 is full: it holds 4KiB of the 4KiB that its quota allows, and the task wants to add 4KiB; remove files, or raise \
             `max_bytes` where the package's sidecar file has `[[grants.directories]]` with `guest = \"/0\"`"
        )
    );
}

#[tokio::test]
async fn a_size_far_beyond_the_end_counts_whole() {
    directories(&[bytes(8)])
        .check(&[
            (Op::Open(0, "file", CREATE, 0), OK),
            (Op::Write(0, 1 << 40, 1), QUOTA),
            (Op::Write(0, u64::MAX >> 1, 100), QUOTA),
            (Op::SetSize(0, 8 * BLOCK + 1), QUOTA),
            (Op::SetSize(0, 8 * BLOCK), OK),
            (Op::WriteStream(0, 1 << 40, 1), OK),
            (Op::StreamWrite(1, 1), QUOTA),
            (Op::StreamWrite(1, 1), CLOSED),
        ])
        .await;
}

#[tokio::test]
async fn streams_keep_to_the_quota_however_they_are_written() {
    let directories = directories(&[bytes(4)]);
    fs::write(directories.path(0).join("source"), vec![7; 4096]).unwrap();
    directories
        .check(&[
            (Op::Open(0, "file", CREATE, 0), OK),
            // Opened before the directory is full.
            (Op::AppendStream(0, 1), OK),
            (Op::AppendStream(0, 2), OK),
            (Op::AppendStream(0, 3), OK),
            (Op::WriteStream(0, 8192, 4), OK),
            (Op::WriteStream(0, 0, 5), OK),
            (Op::AppendStream(0, 7), OK),
            (Op::Open(0, "source", 0, 8), OK),
            (Op::ReadStream(8, 6), OK),
            (Op::StreamWrite(1, 4096), OK),
            (Op::StreamWrite(1, 4096), OK),
            (Op::StreamZeroes(2, 4096), OK),
            (Op::StreamZeroes(2, 1), QUOTA),
            (Op::Splice(6, 3, 4096), QUOTA),
            // In place.
            (Op::StreamWrite(4, 4096), OK),
            (Op::StreamWrite(4, 1), QUOTA),
            // More at once than a check would allow.
            (Op::BeginWrite(5, 1 << 20), OK),
            (Op::Wait(5), QUOTA),
            (Op::BeginZeroes(7, 4096), OK),
            (Op::Wait(7), QUOTA),
            (Op::DropStream(7), OK),
        ])
        .await;
    assert_eq!(held(&directories.path(0)), (4, 2));
    let path = directories.path(0).join("file");
    assert_eq!(fs::metadata(path).unwrap().len(), 3 * BLOCK);
}

#[tokio::test]
async fn every_entry_counts_for_both_quotas() {
    for quota in [files(3), bytes(3)] {
        let directories = directories(&[quota]);
        let refused = [
            (Op::Open(0, "empty", CREATE, 1), QUOTA),
            (Op::CreateDirectory(0, "folder"), QUOTA),
            (Op::Symlink(0, "x", "symlink"), QUOTA),
            (Op::Link(0, "a", 0, "linked"), QUOTA),
        ];
        let mut script = vec![
            (Op::Open(0, "a", CREATE, 0), OK),
            (Op::CreateDirectory(0, "b"), OK),
            (Op::Symlink(0, "a", "c"), OK),
        ];
        script.extend(refused);
        script.extend([
            (Op::Rename(0, "a", 0, "b/a"), OK),
            (Op::Unlink(0, "c"), OK),
            (Op::Link(0, "b/a", 0, "linked"), OK),
        ]);
        script.extend(refused);
        directories.check(&script).await;
    }
}

#[tokio::test]
async fn a_failed_operation_costs_nothing() {
    directories(&[files(2)])
        .check(&[
            (Op::CreateDirectory(0, "a"), OK),
            (Op::CreateDirectory(0, "a"), '7'),
            (Op::CreateDirectory(0, "no/such"), 'D'),
            (Op::Link(0, "none", 0, "b"), 'D'),
            (Op::Open(0, "no/such", CREATE, 0), 'D'),
            (Op::CreateDirectory(0, "b"), OK),
            (Op::CreateDirectory(0, "c"), QUOTA),
        ])
        .await;
}

#[tokio::test]
async fn files_do_not_cross_the_border_of_a_quota() {
    for quotas in [[bytes(9), free()], [free(), bytes(9)], [bytes(9), files(9)]] {
        let directories = directories(&quotas);
        fs::write(directories.path(0).join("file"), "text").unwrap();
        fs::create_dir(directories.path(0).join("folder")).unwrap();
        directories
            .check(&[
                (Op::Rename(0, "file", 1, "file"), CROSS_DEVICE),
                (Op::Rename(0, "folder", 1, "folder"), CROSS_DEVICE),
                (Op::Link(0, "file", 1, "file"), CROSS_DEVICE),
                (Op::Rename(0, "file", 0, "renamed"), OK),
            ])
            .await;
        assert_eq!(held(&directories.path(1)), (0, 0));
    }
    let directories = directories(&[free(), free()]);
    fs::write(directories.path(0).join("file"), "text").unwrap();
    let both = [
        (Op::Link(0, "file", 1, "a"), OK),
        (Op::Rename(0, "file", 1, "b"), OK),
    ];
    directories.check(&both).await;
}

#[tokio::test]
async fn a_removed_file_counts_until_it_is_closed() {
    directories(&[bytes(4)])
        .check(&[
            (Op::Open(0, "a", CREATE, 0), OK),
            (Op::Write(0, 0, 4 * 4096), OK),
            // Opened a second time, only to keep it.
            (Op::Open(0, "a", 0, 1), OK),
            (Op::Close(0), OK),
            (Op::Unlink(0, "a"), OK),
            (Op::Open(0, "b", CREATE, 2), QUOTA),
            (Op::Close(1), OK),
            (Op::Open(0, "b", CREATE, 2), OK),
            (Op::Write(2, 0, 4 * 4096), OK),
            // It still grows without a name.
            (Op::Unlink(0, "b"), OK),
            (Op::Write(2, 4 * 4096, 1), QUOTA),
        ])
        .await;
}

#[tokio::test]
async fn what_is_truncated_or_removed_may_be_written_again_at_once() {
    let mut script = vec![(Op::Open(0, "a", CREATE, 0), OK)];
    for _ in 0..5 {
        script.extend([
            (Op::Write(0, 0, 4 * 4096), OK),
            (Op::SetSize(0, 0), OK),
            (Op::Write(0, 3 * 4096, 4096), OK),
            (Op::Open(0, "a", CREATE | TRUNCATE, 1), OK),
            (Op::Close(1), OK),
            (Op::Open(0, "b", CREATE, 1), OK),
            (Op::Write(1, 0, 3 * 4096), OK),
            (Op::Close(1), OK),
            (Op::Unlink(0, "b"), OK),
        ]);
    }
    directories(&[bytes(4)]).check(&script).await;
}

#[tokio::test]
async fn what_others_write_counts_and_a_directory_that_is_full_before_only_shrinks() {
    let directories = directories(&[bytes(4)]);
    let path = directories.path(0);
    fs::write(path.join("other"), vec![1; 5 * 4096]).unwrap();
    directories
        .check(&[
            (Op::Open(0, "a", CREATE, 0), QUOTA),
            (Op::Open(0, "other", 0, 0), OK),
            (Op::Write(0, 0, 5 * 4096), OK),
            (Op::SetSize(0, 3 * BLOCK), OK),
            (Op::Open(0, "a", CREATE, 1), OK),
            (Op::Write(1, 4096, 1), QUOTA),
        ])
        .await;
    // A later call sees what was added since.
    fs::write(path.join("later"), "").unwrap();
    directories
        .check(&[(Op::CreateDirectory(0, "b"), QUOTA)])
        .await;
}

#[tokio::test]
async fn a_deep_tree_of_a_task_is_refused_with_its_reason() {
    let directories = directories(&[bytes(1000)]);
    let mut path = directories.path(0);
    for _ in 0..70 {
        path.push("d");
    }
    fs::create_dir_all(path).unwrap();
    directories
        .check(&[(Op::CreateDirectory(0, "b"), QUOTA)])
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_at_once_do_not_exceed_the_quota_together() {
    let directories = directories(&[DirectoryQuota {
        max_bytes: Some(40 * BLOCK),
        max_files: Some(11),
    }]);
    let sandbox = sandbox();
    let path = directories.path(0);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j"];
    let script = |first: usize, link: &'static str| {
        let mut script = Vec::new();
        for (number, name) in names.iter().cycle().skip(first).take(10).enumerate() {
            let file = number as u32;
            script.push(Op::Open(0, name, CREATE, file));
            script.push(Op::AppendStream(file, 20));
            script.push(Op::StreamWrite(20, 4000));
            script.push(Op::StreamWrite(20, 4000));
            script.push(Op::Write(file, 8192, 4096));
            script.push(Op::SetSize(file, 100));
            script.push(Op::Write(file, 5 * 4096, 4096));
            script.push(Op::Symlink(0, "x", link));
            script.push(Op::Unlink(0, link));
        }
        script
    };
    for round in 0..5 {
        for name in names {
            // The files exist, so that opening them is never refused.
            fs::write(path.join(name), "").unwrap();
        }
        let (one, other) = (script(round, "one"), script(round + 5, "other"));
        tokio::join!(
            directories.call_script(&sandbox, &one),
            directories.call_script(&sandbox, &other)
        );
        let (blocks, entries) = held(&path);
        assert!(blocks <= 40 && entries <= 11, "{blocks} {entries}");
    }
}

/// A model of a directory: the sizes of its files; directories and links have none.
#[derive(Default)]
struct Model(BTreeMap<String, Option<u64>>);

impl Model {
    fn blocks(&self) -> u64 {
        let sizes = self.0.values().map(|size| size.unwrap_or(0));
        sizes.map(|size| size.max(1).div_ceil(BLOCK)).sum()
    }

    /// Make a change if the quota allows it.
    fn apply(&mut self, quota: DirectoryQuota, change: impl FnOnce(&mut Model)) -> char {
        let mut after = Model(self.0.clone());
        change(&mut after);
        let grows = (after.blocks() > self.blocks(), after.0.len() > self.0.len());
        let bytes = quota.max_bytes.unwrap_or(u64::MAX) / BLOCK;
        let files = quota.max_files.unwrap_or(u64::MAX);
        if (grows.0 && after.blocks() > bytes) || (grows.1 && after.0.len() as u64 > files) {
            return QUOTA;
        }
        *self = after;
        OK
    }
}

#[tokio::test]
async fn random_operations_have_the_results_of_a_model() {
    let names: Vec<String> = (0..8).map(|number| format!("n{number}")).collect();
    let sandbox = sandbox();
    for seed in 0..6 {
        let mut random = rand::rngs::StdRng::seed_from_u64(seed);
        let quota = DirectoryQuota {
            max_bytes: Some(random.random_range(1..20) * BLOCK),
            max_files: Some(random.random_range(1..6)),
        };
        let directories = directories(&[quota]);
        let mut model = Model::default();
        let mut script = Vec::new();
        // The name of the file that is open as 0.
        let mut open: Option<&str> = None;
        let mut add = |op, result| script.push((op, result));
        for _ in 0..80 {
            let name = names.choose(&mut random).unwrap().as_str();
            let size = random.random_range(0..12 * BLOCK);
            if let Some(path) = open {
                match random.random_range(0..5) {
                    0 => {
                        add(Op::Close(0), OK);
                        open = None;
                    }
                    1 => add(
                        Op::SetSize(0, size),
                        model.apply(quota, |model| {
                            model.0.insert(path.to_owned(), Some(size));
                        }),
                    ),
                    2 => {
                        let count = random.random_range(1..9000);
                        let result = model.apply(quota, |model| {
                            let end = size + u64::from(count);
                            let old = model.0[path].unwrap_or(0);
                            model.0.insert(path.to_owned(), Some(old.max(end)));
                        });
                        add(Op::Write(0, size, count), result);
                    }
                    _ => {
                        let count = random.random_range(1..4096);
                        let result = model.apply(quota, |model| {
                            let old = model.0[path].unwrap_or(0);
                            model
                                .0
                                .insert(path.to_owned(), Some(old + u64::from(count)));
                        });
                        add(Op::AppendStream(0, 1), OK);
                        add(Op::StreamWrite(1, count), result);
                        add(Op::DropStream(1), OK);
                    }
                }
                continue;
            }
            let exists = model.0.get(name).copied();
            match (random.random_range(0..4), exists) {
                (0, Some(Some(_))) => {
                    model.0.remove(name);
                    add(Op::Unlink(0, name), OK);
                }
                (1, None) => {
                    let result = model.apply(quota, |model| {
                        model.0.insert(name.to_owned(), None);
                    });
                    add(Op::CreateDirectory(0, name), result);
                }
                (_, None | Some(Some(_))) => {
                    let result = model.apply(quota, |model| {
                        model.0.entry(name.to_owned()).or_insert(Some(0));
                    });
                    add(Op::Open(0, name, CREATE, 0), result);
                    open = (result == OK).then_some(name);
                }
                _ => {}
            }
        }
        let (script, expected): (Vec<Op<'_>>, String) = script.into_iter().unzip();
        let (_, results) = directories.call_script(&sandbox, &script).await;
        assert_eq!(results, expected, "seed {seed}: {quota:?} {script:#?}");
        let is_held = held(&directories.path(0));
        assert_eq!(
            is_held,
            (model.blocks(), model.0.len() as u64),
            "seed {seed}"
        );
    }
}
