//! What a guest can reach without and with grants.

use std::path::PathBuf;
use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::guests::*;
use crate::*;

/// Sends `GET http://AUTHORITY/`, waits for the answer, and then returns what was prepared.
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

fn gave_up() -> SaidFailure<'static> {
    SaidFailure {
        message: "no answer",
        retryable: true,
        ..SaidFailure::default()
    }
}

#[tokio::test]
async fn a_request_without_a_grant_is_denied_and_the_grant_is_named() {
    let report = run(http_guest("example.com:8080").fails(RESULT, &gave_up())).await;
    let said = failure(&report, Outcome::Denied);
    assert_eq!(
        said.message,
        "GET http://example.com:8080 is not granted; to allow it, add \
         `grants.http = [{ scheme = \"http\", host = \"example.com\", port = 8080 }]` at the top of the package's sidecar file \
         (the task said: no answer)"
    );
    assert!(!said.retryable);
}

#[tokio::test]
async fn a_denied_task_that_copes_succeeds() {
    let report = run(http_guest("example.com").completes(None, None)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_wildcard_grant_does_not_open_the_machine_itself() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let report = http_report(
        http_guest(&format!("127.0.0.1:{port}")).fails(RESULT, &gave_up()),
        "*",
        port,
    )
    .await;
    let said = failure(&report, Outcome::Denied);
    assert!(
        said.message
            .contains("127.0.0.1, which is not a public address"),
        "{}",
        said.message
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
    sandbox.run(granted(&artifact, grants)).await
}

#[tokio::test]
async fn configuration_is_what_was_granted() {
    // Returns normally when the key `city` has a value of 5 bytes, and a failure when it has none.
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
    let report = sandbox.run(call(&artifact)).await;
    failure(&report, Outcome::Failed);
    let grants = Grants {
        config: [("city".to_owned(), "Turin".to_owned())].into(),
        ..Grants::default()
    };
    let report = sandbox.run(granted(&artifact, grants)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

/// The directory `host` as `/source`, and nothing else.
fn directory(host: impl Into<PathBuf>, writable: bool) -> Grants {
    Grants {
        directories: vec![DirectoryGrant {
            host: host.into(),
            guest: "/source".into(),
            writable,
        }],
        ..Grants::default()
    }
}

#[tokio::test]
async fn a_granted_directory_that_is_not_there_is_the_host_s_trouble() {
    let sandbox = sandbox();
    let guest = guest("").completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox
        .run(granted(&artifact, directory("/no/such/directory", false)))
        .await;
    let message = &failure(&report, Outcome::HostError).message;
    assert!(
        message.starts_with("the directory /no/such/directory granted as /source cannot be opened"),
        "{message}"
    );
}

#[tokio::test]
async fn a_task_sees_its_granted_variables_and_nothing_of_the_host_s() {
    // Wants exactly one variable, with a name of 4 bytes and a value of 5.
    let body = "(call $get-environment (i32.const 512))
        (if (i32.ne (i32.load (i32.const 516)) (i32.const 1)) (then unreachable))
        (if (i32.ne (i32.load offset=4 (i32.load (i32.const 512))) (i32.const 4)) (then unreachable))
        (if (i32.ne (i32.load offset=12 (i32.load (i32.const 512))) (i32.const 5)) (then unreachable))";
    let sandbox = sandbox();
    let guest = guest(body).completes(None, None);
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(call(&artifact)).await;
    failure(&report, Outcome::Trapped);
    let grants = Grants {
        env: [("CITY".to_owned(), "Turin".to_owned())].into(),
        ..Grants::default()
    };
    let report = sandbox.run(granted(&artifact, grants)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
}

#[tokio::test]
async fn a_directory_is_seen_when_granted_and_written_when_writable() {
    // Makes `made` in its first directory and completes; a failure when it may not.
    let body = format!(
        "(call $get-directories (i32.const 512))
        (call $create-directory (i32.load (i32.load (i32.const 512))) (i32.const 2048) (i32.const 4) (i32.const 520))
        (if (i32.load8_u (i32.const 520)) (then (return (i32.const {OTHER_RESULT}))))"
    );
    let no = SaidFailure {
        message: "Operation not permitted",
        retryable: true,
        ..SaidFailure::default()
    };
    let guest = guest(&body)
        .data(2048, "made")
        .completes(None, None)
        .fails(OTHER_RESULT, &no);
    let sandbox = sandbox();
    let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
    let report = sandbox.run(call(&artifact)).await;
    let said = failure(&report, Outcome::Failed);
    assert_eq!(said.message, "Operation not permitted");
    assert!(said.retryable);
    let note = "/made lies in no granted directory; to allow it, add `grants.directories = [{ \
         host = \"/a/directory/of/this/host\", guest = \"/made\", access = \"write\" }]` at the top of the package's sidecar file";
    assert_eq!(said.note.as_deref(), Some(note));
    assert_eq!(
        said.text(),
        format!("Operation not permitted; note: {note}")
    );

    let host = tempfile::tempdir().unwrap();
    let with = |writable| granted(&artifact, directory(host.path(), writable));
    let report = sandbox.run(with(false)).await;
    let said = failure(&report, Outcome::Failed);
    let note = said.note.as_ref().unwrap();
    assert!(
        note.starts_with(
            "/source/made cannot be written: /source is granted for reading only; to allow it, write `access = \"write\"`"
        ),
        "{note}"
    );
    assert!(!host.path().join("made").exists());
    let report = sandbox.run(with(true)).await;
    assert_eq!(report.outcome, Outcome::Succeeded, "{report:#?}");
    assert!(host.path().join("made").is_dir());
}

#[tokio::test]
async fn the_words_of_a_task_never_change_the_kind_of_its_failure() {
    let sandbox = sandbox();
    for words in [
        "permission denied",
        "PermissionError: [Errno 63]: Operation not permitted",
        "error: AccessDenied",
        "No such file or directory (os error 44)",
        "out of memory",
        "the time-out passed",
    ] {
        // The task tries a path that is not granted, copes or not, and fails with these words.
        let body = "(call $get-directories (i32.const 512))
            (call $create-directory (i32.load (i32.load (i32.const 512))) (i32.const 2048) (i32.const 4) (i32.const 520))";
        let failed = SaidFailure {
            message: words,
            retryable: true,
            ..SaidFailure::default()
        };
        let guest = guest(body).data(2048, "made").fails(RESULT, &failed);
        let artifact = Arc::new(sandbox.load(&guest.component()).unwrap());
        let report = sandbox.run(call(&artifact)).await;
        let said = failure(&report, Outcome::Failed);
        assert_eq!(said.message, words);
        assert!(said.retryable, "{words}");
        assert!(said.note.is_some(), "{words}");
    }
}
