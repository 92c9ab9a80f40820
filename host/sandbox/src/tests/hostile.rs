//! Guests that attack the host.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::fs::{CWD, Mode};

use super::guests::*;
use crate::*;

/// Returns a guest that passes a slash and `bytes` letters to `setter` of a request, and fails when refused.
fn long_texts(bytes: u32, setter: &str) -> Guest {
    guest(&format!(
        "(local $request i32)
        (memory.fill (i32.const 131072) (i32.const 47) (i32.const 1))
        (memory.fill (i32.const 131073) (i32.const 97) (i32.const {bytes}))
        (local.set $request (call $request (call $fields)))
        (if {setter} (then (return (i32.const {OTHER_RESULT}))))"
    ))
    .pages(300)
    .completes(None, None)
    .fails(OTHER_RESULT, &GuestFailure::default())
}

#[tokio::test]
async fn the_host_does_not_keep_long_texts_for_a_request() {
    for (setter, most) in [
        ("set-method (local.get $request) (i32.const 9)", 512),
        (
            "set-scheme (local.get $request) (i32.const 1) (i32.const 2)",
            64,
        ),
        ("set-authority (local.get $request) (i32.const 1)", 512),
        ("set-path (local.get $request) (i32.const 1)", 8 << 10),
    ] {
        let with = |bytes| {
            // A path begins with the slash before the letters.
            let (at, length) = if setter.starts_with("set-path") {
                (131_072, bytes)
            } else {
                (131_073, bytes)
            };
            long_texts(
                bytes,
                &format!("(call ${setter} (i32.const {at}) (i32.const {length}))"),
            )
        };
        let report = run(with(most)).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{setter}: {report:#?}");
        for bytes in [(8 << 10) + 1, 8 << 20] {
            let report = run(with(bytes)).await;
            assert_eq!(report.outcome, Outcome::Failed, "{setter}: {report:#?}");
        }
    }
}

#[tokio::test]
async fn creating_a_socket_without_a_grant_is_denied() {
    for create in ["$create-tcp-socket", "$create-udp-socket"] {
        // Traps unless the result is the error `access-denied`.
        let body = format!(
            "(call {create} (i32.const 0) (i32.const 512))
            (if (i32.eqz (i32.load8_u (i32.const 512))) (then unreachable))
            (if (i32.ne (i32.load8_u (i32.const 516)) (i32.const 1)) (then unreachable))"
        );
        let report = run(guest(&body).completes(None, None)).await;
        assert_eq!(report.outcome, Outcome::Succeeded, "{create}: {report:#?}");
    }
}

/// Returns a guest that opens `name` in its only directory for reading, and fails when refused.
fn opens(name: &str) -> Guest {
    let body = format!(
        "(call $get-directories (i32.const 512))
        (call $open-at (i32.load (i32.load (i32.const 512))) (i32.const 1)
            (i32.const 2048) (i32.const {}) (i32.const 0) (i32.const 1) (i32.const 520))
        (if (i32.load8_u (i32.const 520)) (then (return (i32.const {OTHER_RESULT}))))",
        name.len()
    );
    guest(&body)
        .data(2048, name)
        .completes(None, None)
        .fails(OTHER_RESULT, &GuestFailure::default())
}

fn with_directory(host: &Path) -> Call {
    let mut call = call();
    call.limits.timeout = Duration::from_secs(5);
    call.grants = Arc::new(Grants {
        directories: vec![DirectoryGrant {
            host: host.to_owned(),
            guest: "/data".into(),
            writable: true,
            quota: DirectoryQuota::default(),
        }],
        ..Grants::default()
    });
    call
}

#[tokio::test]
async fn opening_a_pipe_in_a_granted_directory_does_not_block() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    rustix::fs::mkfifoat(CWD, root.join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
    symlink("pipe", root.join("link")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    fs::create_dir(root.join("directory")).unwrap();
    let sandbox = sandbox();
    for (name, outcome) in [
        ("pipe", Outcome::Failed),
        ("link", Outcome::Failed),
        ("missing", Outcome::Failed),
        ("file", Outcome::Succeeded),
        ("directory", Outcome::Succeeded),
    ] {
        let artifact = Arc::new(sandbox.load(&opens(name).component()).unwrap());
        let report = sandbox.run(&artifact, with_directory(&root)).await;
        assert_eq!(report.outcome, outcome, "{name}: {report:#?}");
    }
}

#[tokio::test]
async fn a_link_of_the_operator_that_leads_out_of_a_writable_directory_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("data/below")).unwrap();
    fs::write(root.join("file"), "").unwrap();
    let absolute = root.display().to_string();
    for (link, target) in [
        ("up", ".."),
        ("far", "below/../.."),
        ("below/up", "../.."),
        ("absolute", &absolute),
    ] {
        symlink(target, root.join("data").join(link)).unwrap();
    }
    let sandbox = sandbox();
    for link in ["up", "far", "below/up", "absolute"] {
        let name = format!("{link}/file");
        let artifact = Arc::new(sandbox.load(&opens(&name).component()).unwrap());
        let report = sandbox
            .run(&artifact, with_directory(&root.join("data")))
            .await;
        failure(&report, Outcome::Failed);
    }
}

#[tokio::test]
async fn a_link_that_replaces_a_granted_directory_is_not_followed() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().canonicalize().unwrap();
    fs::create_dir_all(root.join("data/in")).unwrap();
    fs::create_dir(root.join("secret")).unwrap();
    fs::write(root.join("secret/file"), "").unwrap();
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&opens("file").component()).unwrap());
    let call = with_directory(&root.join("data/in"));
    failure(&sandbox.run(&artifact, call.clone()).await, Outcome::Failed);

    fs::remove_dir(root.join("data/in")).unwrap();
    symlink("../secret", root.join("data/in")).unwrap();
    let report = sandbox.run(&artifact, call).await;
    let message = &failure(&report, Outcome::HostError).message;
    assert!(message.contains("has become a link or a file"), "{message}");
}

#[tokio::test]
async fn a_package_that_takes_minutes_to_compile_is_refused_at_once() {
    let branch = "(if (local.get $task) (then (local.set $task (local.get $size))))";
    let body = format!(
        "{} (local $size i32) (loop $again {} (br $again))",
        "(local i64)".repeat(3_000),
        branch.repeat(15_000)
    );
    let refusal = sandbox().load(&guest(&body).component()).err().unwrap();
    assert!(
        refusal.message.contains("far too long to compile"),
        "{refusal}"
    );
}
