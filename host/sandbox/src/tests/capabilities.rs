//! The access of guests without and with grants.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::guests::*;
use crate::*;

/// Returns a guest that sends `GET http://AUTHORITY/`, waits for the answer, and returns its prepared result.
fn http_guest(authority: &str) -> Guest {
    let body = format!(
        "(local $request i32)
        (local.set $request (call $request (call $fields)))
        (drop (call $set-scheme (local.get $request) (i32.const 1) (i32.const 0) (i32.const 0) (i32.const 0)))
        (drop (call $set-authority (local.get $request) (i32.const 1) (i32.const 2048) (i32.const {})))
        (drop (call $set-path (local.get $request) (i32.const 1) (i32.const 2047) (i32.const 1)))
        (call $handle (local.get $request) (i32.const 0) (i32.const 0) (i32.const 512))
        (if (i32.eqz (i32.load8_u (i32.const 512)))
            (then (call $block (call $subscribe-response (i32.load (i32.const 520))))))",
        authority.len()
    );
    guest(&body).data(2047, format!("/{authority}"))
}

fn gave_up() -> GuestFailure<'static> {
    GuestFailure {
        message: "no answer",
        retryable: true,
        ..GuestFailure::default()
    }
}

#[tokio::test]
async fn a_request_without_a_grant_is_denied_and_the_grant_is_named() {
    let report = run(http_guest("example.com:8080").fails(RESULT, &gave_up())).await;
    let failed = failure(&report, Outcome::Denied);
    assert_eq!(
        failed.message,
        "GET http://example.com:8080 is not granted; to allow it, add \
         `grants.http = [{ scheme = \"http\", host = \"example.com\", port = 8080 }]` at the top of the package's sidecar file \
         (the task said: \"no answer\")"
    );
    assert!(!failed.retryable);
}

#[tokio::test]
async fn a_task_that_handles_a_denial_succeeds() {
    let report = run(http_guest("example.com").completes(None, None)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_wildcard_grant_excludes_the_local_machine() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let report = http_report(
        http_guest(&format!("127.0.0.1:{port}")).fails(RESULT, &gave_up()),
        "*",
        port,
    )
    .await;
    let failed = failure(&report, Outcome::Denied);
    assert!(
        failed
            .message
            .contains("127.0.0.1, which is not a public address"),
        "{}",
        failed.message
    );
}

#[tokio::test]
async fn a_granted_request_goes_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let guest = http_guest(&format!("127.0.0.1:{port}")).completes(Some("1"), None);
    let (report, request) = tokio::join!(http_report(guest, "127.0.0.1", port), async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = vec![0; 1024];
        let read = stream.read(&mut head).await.unwrap();
        stream
            .write_all(b"HTTP/1.1 204 No Content\r\n\r\n")
            .await
            .unwrap();
        String::from_utf8_lossy(&head[..read]).into_owned()
    });
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert!(request.starts_with("GET / HTTP/1.1\r\n"), "{request}");
    assert!(
        request.contains(&format!("host: 127.0.0.1:{port}\r\n")),
        "{request}"
    );
}

async fn http_report(guest: Guest, host: &str, port: u16) -> Report {
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let grants = Grants {
        http: vec![HttpGrant::get(host, port)],
        ..Grants::default()
    };
    sandbox.run(&artifact, granted(grants)).await
}

#[tokio::test]
async fn a_task_reads_only_granted_configuration() {
    // Completes when the key `city` has a value of 5 bytes, and fails when it has none.
    let body = format!(
        "(call $get-config (i32.const 2048) (i32.const 4) (i32.const 512))
        (if (i32.load8_u (i32.const 512)) (then unreachable))
        (if (i32.eqz (i32.load8_u (i32.const 516))) (then (return (i32.const {OTHER_RESULT}))))
        (if (i32.ne (i32.load (i32.const 524)) (i32.const 5)) (then unreachable))"
    );
    let guest = guest(&body)
        .data(2048, "city")
        .completes(None, None)
        .fails(OTHER_RESULT, &gave_up());
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(&artifact, call()).await;
    failure(&report, Outcome::Failed);
    let grants = Grants {
        config: [("city".to_owned(), "Turin".to_owned())].into(),
        ..Grants::default()
    };
    let report = sandbox.run(&artifact, granted(grants)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

/// Returns grants of the directory `host` as `/source` and of nothing else.
fn directory(host: impl Into<PathBuf>, writable: bool) -> Grants {
    Grants {
        directories: vec![DirectoryGrant {
            host: host.into(),
            guest: "/source".into(),
            writable,
            quota: DirectoryQuota::default(),
        }],
        ..Grants::default()
    }
}

#[tokio::test]
async fn a_missing_granted_directory_is_a_host_error() {
    let sandbox = sandbox();
    let guest = guest("").completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox
        .run(&artifact, granted(directory("/no/such/directory", false)))
        .await;
    let message = &failure(&report, Outcome::HostError).message;
    assert!(
        message.starts_with("the directory /no/such/directory granted as /source cannot be opened"),
        "{message}"
    );
}

#[tokio::test]
async fn a_task_sees_only_granted_variables() {
    // Completes for exactly one variable with a name of 4 bytes and a value of 5.
    let body = "(call $get-environment (i32.const 512))
        (if (i32.ne (i32.load (i32.const 516)) (i32.const 1)) (then unreachable))
        (if (i32.ne (i32.load offset=4 (i32.load (i32.const 512))) (i32.const 4)) (then unreachable))
        (if (i32.ne (i32.load offset=12 (i32.load (i32.const 512))) (i32.const 5)) (then unreachable))";
    let sandbox = sandbox();
    let guest = guest(body).completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(&artifact, call()).await;
    failure(&report, Outcome::Trapped);
    let grants = Grants {
        env: [("CITY".to_owned(), "Turin".to_owned())].into(),
        ..Grants::default()
    };
    let report = sandbox.run(&artifact, granted(grants)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_directory_needs_a_grant_and_a_write_needs_write_access() {
    // Creates the directory `made` in its first directory. Fails when that is refused.
    let body = format!(
        "(call $get-directories (i32.const 512))
        (call $create-directory (i32.load (i32.load (i32.const 512))) (i32.const 2048) (i32.const 4) (i32.const 520))
        (if (i32.load8_u (i32.const 520)) (then (return (i32.const {OTHER_RESULT}))))"
    );
    let no = GuestFailure {
        message: "Operation not permitted",
        retryable: true,
        ..GuestFailure::default()
    };
    let guest = guest(&body)
        .data(2048, "made")
        .completes(None, None)
        .fails(OTHER_RESULT, &no);
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(&artifact, call()).await;
    let failed = failure(&report, Outcome::Failed);
    assert_eq!(failed.message, "Operation not permitted");
    assert!(failed.retryable);
    let note = "/made lies in no granted directory; to allow it, add `grants.directories = [{ \
         host = \"/a/directory/of/this/host\", guest = \"/made\", access = \"write\" }]` at the top of the package's sidecar file";
    assert_eq!(failed.note.as_deref(), Some(note));
    assert_eq!(
        failed.text(),
        format!("Operation not permitted; note: {note}")
    );

    let host = tempfile::tempdir().unwrap();
    let with = |writable| granted(directory(host.path(), writable));
    let report = sandbox.run(&artifact, with(false)).await;
    let failed = failure(&report, Outcome::Failed);
    let note = failed.note.as_ref().unwrap();
    assert!(
        note.starts_with(
            "/source/made cannot be written: /source is granted for reading only; to allow it, write `access = \"write\"`"
        ),
        "{note}"
    );
    assert!(!host.path().join("made").exists());
    let report = sandbox.run(&artifact, with(true)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert!(host.path().join("made").is_dir());
}

#[tokio::test]
async fn the_message_of_a_task_never_changes_the_kind_of_its_failure() {
    let sandbox = sandbox();
    for message in [
        "permission denied",
        "PermissionError: [Errno 63]: Operation not permitted",
        "error: AccessDenied",
        "No such file or directory (os error 44)",
        "out of memory",
        "the time-out passed",
    ] {
        // The task opens a path that is not granted, and fails with this message.
        let body = "(call $get-directories (i32.const 512))
            (call $create-directory (i32.load (i32.load (i32.const 512))) (i32.const 2048) (i32.const 4) (i32.const 520))";
        let failed = GuestFailure {
            message,
            retryable: true,
            ..GuestFailure::default()
        };
        let guest = guest(body).data(2048, "made").fails(RESULT, &failed);
        let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
        let report = sandbox.run(&artifact, call()).await;
        let failed = failure(&report, Outcome::Failed);
        assert_eq!(failed.message, message);
        assert!(failed.retryable, "{message}");
        assert!(failed.note.is_some(), "{message}");
    }
}
