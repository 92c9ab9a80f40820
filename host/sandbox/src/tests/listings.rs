//! Listing directories with many entries.

use std::sync::Arc;

use super::guests::*;
use crate::ledger::Ledger;
use crate::*;

const ENTRIES: usize = 1_000;

/// Lists its first directory through a small buffer, then resumes at the 301st entry, keeping that listing open.
fn lists_all() -> String {
    let found = ENTRIES + 2;
    format!(
        r#"(module
    (import "wasi_snapshot_preview1" "fd_readdir"
        (func $readdir (param i32 i32 i32 i64 i32) (result i32)))
    (memory (export "memory") 1)
    (global $count (mut i32) (i32.const 0))
    (global $cookie (mut i64) (i64.const 0))
    (global $after-300 (mut i64) (i64.const 0))
    (global $name-301 (mut i64) (i64.const 0))
    (func $expect (param i32) (if (i32.eqz (local.get 0)) (then unreachable)))
    (func $read (param $cookie i64) (result i32)
        (call $expect (i32.eqz (call $readdir
            (i32.const 3) (i32.const 1024) (i32.const 700) (local.get $cookie) (i32.const 0))))
        (i32.load (i32.const 0)))
    (func $whole (param $size i32)
        (local $at i32) (local $end i32)
        (loop $more
            (if (i32.gt_u (i32.add (local.get $at) (i32.const 24)) (local.get $size)) (then return))
            (local.set $end (i32.add (i32.add (local.get $at) (i32.const 24))
                (i32.load offset=1040 (local.get $at))))
            (if (i32.gt_u (local.get $end) (local.get $size)) (then return))
            (if (i32.eq (global.get $count) (i32.const 300)) (then
                (global.set $after-300 (global.get $cookie))
                (global.set $name-301 (i64.load offset=1048 (local.get $at)))))
            (global.set $count (i32.add (global.get $count) (i32.const 1)))
            (global.set $cookie (i64.load offset=1024 (local.get $at)))
            (local.set $at (local.get $end))
            (br $more)))
    (func (export "_start")
        (local $size i32)
        (loop $more
            (local.set $size (call $read (global.get $cookie)))
            (call $whole (local.get $size))
            (br_if $more (i32.eq (local.get $size) (i32.const 700))))
        (call $expect (i32.eq (global.get $count) (i32.const {found})))
        (drop (call $read (global.get $after-300)))
        (call $expect (i64.eq (i64.load (i32.const 1048)) (global.get $name-301)))))"#
    )
}

fn large_directory() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for number in 0..ENTRIES {
        // The first 8 bytes distinguish the names.
        std::fs::write(root.path().join(format!("{number:08}-of-many")), "").unwrap();
    }
    root
}

fn call_on(root: &tempfile::TempDir, open_files_max: u64) -> Call {
    let mut call = granted(Grants {
        directories: vec![DirectoryGrant {
            host: root.path().canonicalize().unwrap(),
            guest: "/".to_owned(),
            writable: false,
            quota: DirectoryQuota::default(),
        }],
        ..Grants::default()
    });
    call.limits.open_files_max = open_files_max;
    call
}

#[tokio::test]
async fn a_program_reads_a_large_directory_on_where_it_stopped_and_its_listing_is_an_open_file() {
    let root = large_directory();
    let sandbox = sandbox();
    let program = wat::parse_str(lists_all()).unwrap();
    let program = Arc::new(sandbox.load(&program).unwrap());
    let report = sandbox.run(&program, call_on(&root, 2)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    let mut shares = report.usage.shares.iter();
    let open = shares.find(|share| share.resource == Resource::OpenFiles);
    assert_eq!(open.unwrap().used, 2);
}

#[tokio::test]
async fn a_listing_beyond_the_bounds_of_its_call_or_of_all_calls_is_refused_with_the_reason() {
    let root = large_directory();
    let ledgers = [
        (1, Ledger::unbounded(), "has 1 files and directories open"),
        (9, Ledger::new(1 << 30, 10_000, 1), "ulimit -n"),
        (9, Ledger::new(600 << 10, 10_000, 99), "`memory_total`"),
    ];
    for (open_files_max, ledger, expected) in ledgers {
        let mut sandbox = sandbox();
        sandbox.ledger = Arc::new(ledger);
        let program = wat::parse_str(lists_all()).unwrap();
        let program = Arc::new(sandbox.load(&program).unwrap());
        let report = sandbox.run(&program, call_on(&root, open_files_max)).await;
        let message = &failure(&report, Outcome::Trapped).message;
        assert!(message.contains(expected), "{message}");
    }
}
