//! Two tasks trying together to create a link leading out of a directory they may both write.

use std::fs;
use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::time::Duration;

use super::guests::*;
use crate::*;

const ROUNDS: usize = 1_000;

/// A program's operation in its first directory, ignoring the result.
#[derive(Clone, Copy)]
enum Op {
    Symlink(&'static str, &'static str),
    Rename(&'static str, &'static str),
    Link(&'static str, &'static str),
    Unlink(&'static str),
    CreateDirectory(&'static str),
    RemoveDirectory(&'static str),
    /// Fails the program if there's a link.
    NoLink(&'static str),
}

/// Returns a program endlessly repeating `ops`.
fn repeats(ops: &[Op]) -> Vec<u8> {
    let mut data = String::new();
    let mut at = 1024;
    let mut text = |text: &str| {
        data += &format!("(data (i32.const {at}) \"{text}\")\n");
        at += text.len();
        format!("(i32.const {}) (i32.const {})", at - text.len(), text.len())
    };
    let mut body = String::new();
    let directory = "(i32.const 3)";
    for op in ops {
        body += &match op {
            Op::Symlink(target, path) => format!(
                "(drop (call $symlink {} {directory} {}))",
                text(target),
                text(path)
            ),
            Op::Rename(old, new) => format!(
                "(drop (call $rename {directory} {} {directory} {}))",
                text(old),
                text(new)
            ),
            Op::Link(old, new) => format!(
                "(drop (call $link {directory} (i32.const 0) {} {directory} {}))",
                text(old),
                text(new)
            ),
            Op::Unlink(path) => format!("(drop (call $unlink {directory} {}))", text(path)),
            Op::CreateDirectory(path) => {
                format!("(drop (call $create {directory} {}))", text(path))
            }
            Op::RemoveDirectory(path) => {
                format!("(drop (call $remove {directory} {}))", text(path))
            }
            Op::NoLink(path) => format!(
                "(if (i32.eqz (call $readlink {directory} {} (i32.const 64) (i32.const 64) (i32.const 0)))
                    (then unreachable))",
                text(path)
            ),
        };
        body.push('\n');
    }
    let program = format!(
        r#"(module
            (import "wasi_snapshot_preview1" "path_symlink" (func $symlink (param i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_rename" (func $rename (param i32 i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_link" (func $link (param i32 i32 i32 i32 i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_unlink_file" (func $unlink (param i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_create_directory" (func $create (param i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_remove_directory" (func $remove (param i32 i32 i32) (result i32)))
            (import "wasi_snapshot_preview1" "path_readlink" (func $readlink (param i32 i32 i32 i32 i32 i32) (result i32)))
            (memory (export "memory") 1)
            {data}
            (func (export "_start")
                (local $rounds i32)
                (loop $more
                    {body}
                    (local.set $rounds (i32.add (local.get $rounds) (i32.const 1)))
                    (br_if $more (i32.lt_u (local.get $rounds) (i32.const {ROUNDS}))))))"#
    );
    wat::parse_str(program).unwrap()
}

const OUT: &str = "../../../y";

#[tokio::test]
async fn two_tasks_at_once_make_no_link_that_leads_out() {
    use Op::*;
    let moves = [Rename("a/b/c", "c"), NoLink("c/l"), Rename("c", "a/b/c")];
    let creates = [Symlink(OUT, "a/b/c/l"), Unlink("a/b/c/l")];
    let moves_in = [Rename("a/b/k/l", "a/b/c/l"), Rename("a/b/c/l", "a/b/k/l")];
    let links = [Link("a/b/k/l", "a/b/c/l"), Unlink("a/b/c/l")];
    let swaps = [
        Symlink("a/b/c", "p"),
        Unlink("p"),
        CreateDirectory("p"),
        NoLink("p/l"),
        RemoveDirectory("p"),
    ];
    let creates_through = [Symlink(OUT, "p/l"), Unlink("a/b/c/l")];
    let swaps_source = [
        Symlink("z", "a/b/c/m"),
        Rename("a/b/c/m", "m"),
        NoLink("m/l"),
        Unlink("m"),
        Rename("m", "a/b/c/m"),
        Unlink("a/b/c/m/l"),
        RemoveDirectory("a/b/c/m"),
    ];
    let fills = [
        CreateDirectory("a/b/c/m"),
        Symlink("../../../../y", "a/b/c/m/l"),
    ];
    let sandbox = Arc::new(sandbox());
    for (one, other) in [
        (&creates[..], &moves[..]),
        (&moves_in, &moves),
        (&links, &moves),
        (&creates_through, &swaps),
        (&fills, &swaps_source),
    ] {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        fs::create_dir_all(root.join("a/b/c")).unwrap();
        fs::create_dir_all(root.join("a/b/k")).unwrap();
        symlink(OUT, root.join("a/b/k/l")).unwrap();
        let calls = [one, other].map(|ops| {
            let program = Arc::new(sandbox.load(&repeats(ops)).unwrap());
            let mut call = granted(Grants {
                directories: vec![DirectoryGrant {
                    host: root.clone(),
                    guest: "/".to_owned(),
                    writable: true,
                    quota: DirectoryQuota::default(),
                }],
                ..Grants::default()
            });
            call.limits.timeout = Duration::from_secs(120);
            let sandbox = Arc::clone(&sandbox);
            tokio::spawn(async move { sandbox.run(&program, call).await })
        });
        for call in calls {
            let report = call.await.unwrap();
            assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
        }
    }
}
