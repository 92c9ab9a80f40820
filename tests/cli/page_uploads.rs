//! Files of packages that a person uploads, over the API and on the page of the packages.

use std::fs;

use campanile_tests::{PATIENCE, Place, on_both_empty};
use serde_json::json;

use crate::api::{Answer, Api};
use crate::browser::{Browser, assert_is_page, event, token};
use crate::site::{eventually, text};

on_both_empty!(
    a_file_is_uploaded_and_launched,
    a_file_that_cannot_be_used_is_refused_and_the_folder_stays,
    a_host_takes_no_uploads_unless_it_is_told_to,
    a_browser_uploads_a_file,
);

const ON: &str = "[server]\nupload = true\n";

/// Return the file of the package `guests`, and of a tiny one that says nothing.
fn guests(api: &Api) -> Vec<u8> {
    fs::read(api.site.folder().join("plugins/guests.wasm")).expect("a file")
}

/// Send a file.
fn upload(api: &Api, secret: &str, name: &str, kind: &str, body: &[u8]) -> Answer {
    let mut request = format!(
        "POST /api/v1/packages/{name}/upload HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n\
        Content-Type: {kind}\r\nIdempotency-Key: {name}-{}\r\nContent-Length: {}\r\n\r\n",
        api.address,
        body.len(),
        body.len()
    )
    .into_bytes();
    request.extend_from_slice(body);
    raw_bytes(api, &request)
}

fn raw_bytes(api: &Api, request: &[u8]) -> Answer {
    use std::io::Write as _;
    let mut stream = std::net::TcpStream::connect(api.address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    // A server that refuses a request early may close the connection before all of it is sent.
    let _ = stream.write_all(request);
    crate::api::parse(stream)
}

/// Return the names in the plugins folder, hidden ones too.
fn names(api: &Api) -> Vec<String> {
    let entries = fs::read_dir(api.site.folder().join("plugins")).expect("a folder");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names = Vec::from_iter(names.map(|name| name.to_string_lossy().into_owned()));
    names.sort_unstable();
    names
}

async fn a_file_is_uploaded_and_launched(place: Place) {
    let api = Api::start(place, ON);
    let approver = token(&api, "approver");
    let file = guests(&api);
    let answer = upload(&api, &approver, "copy", "application/wasm", &file);
    assert_eq!(answer.status, 201, "{answer:?}");
    let report = answer.json();
    assert_eq!(
        (&report["package"], &report["replaced"], &report["done"]),
        (&json!("copy"), &json!(false), &json!("uploaded"))
    );
    assert_eq!(names(&api), ["copy.wasm", "guests.wasm"]);
    let uploaded = event(&api, "package_uploaded");
    assert_eq!(
        (
            &uploaded["subject"],
            &uploaded["principal"],
            &uploaded["channel"]
        ),
        (&json!("copy"), &json!("approver"), &json!("api"))
    );
    eventually(
        || match api.send("GET", "/api/v1/packages/copy", &[], None) {
            answer if answer.status == 200 && answer.json()["state"] == "active" => Ok(()),
            answer => Err(format!("{answer:?}")),
        },
    );
    let rule = json!({"name": "copied", "package": "copy", "task": "ok", "kind": "at", "expression": "2099-01-01T00:00:00Z"});
    api.post("/api/v1/schedules", rule);
    let launched = api.post("/api/v1/schedules/copied/trigger", json!({}));
    assert_eq!(
        api.end_of(&text(&launched["launch"]))["status"],
        "succeeded"
    );
    // The same request again, and the same file under its own name.
    let again = upload(&api, &approver, "copy", "application/wasm", &file);
    assert_eq!(
        (again.status, again.header("idempotency-replayed")),
        (201, Some("true"))
    );
    let digest = text(&report["digest"]);
    let own = upload(&api, &approver, "guests", "application/wasm", &file).json();
    assert_eq!(
        (&own["replaced"], text(&own["digest"])),
        (&json!(true), digest)
    );
}

async fn a_file_that_cannot_be_used_is_refused_and_the_folder_stays(place: Place) {
    let api = Api::start(place, ON);
    let approver = token(&api, "approver");
    let wasm = "application/wasm";
    for (name, kind, body, status, part) in [
        ("a", wasm, &b"no wasm"[..], 400, "WebAssembly"),
        ("a", wasm, b"", 400, "0 bytes"),
        ("a", "application/json", b"{}", 415, "application/wasm"),
        ("a.b", wasm, b"x", 400, "cannot name a package"),
        ("..%2Fa", wasm, b"x", 400, "cannot name a package"),
    ] {
        let answer = upload(&api, &approver, name, kind, body);
        answer.assert_problem(status, part);
        assert_eq!(names(&api), ["guests.wasm"], "{name}");
    }
    fs::write(api.site.folder().join("plugins/a.toml"), "nonsense = 1\n").expect("a sidecar");
    let answer = upload(&api, &approver, "a", wasm, &guests(&api));
    answer.assert_problem(403, "nonsense");
    let length = (64 << 20) + 1;
    let head = format!(
        "{}Content-Type: {wasm}\r\nContent-Length: {length}\r\n\r\n",
        api.head("POST", "/api/v1/packages/b/upload")
    );
    raw_bytes(&api, head.as_bytes()).assert_problem(413, "67108864 bytes");
    assert_eq!(names(&api), ["a.toml", "guests.wasm"]);
    for role in ["viewer", "operator", "editor"] {
        let answer = upload(&api, &token(&api, role), "b", wasm, b"x");
        answer.assert_problem(403, "needs the role approver");
    }
}

async fn a_host_takes_no_uploads_unless_it_is_told_to(place: Place) {
    let api = Api::start(place, "");
    let answer = upload(&api, &api.token, "copy", "application/wasm", &guests(&api));
    answer.assert_problem(403, "this host takes no uploads");
    assert!(answer.body.contains("upload = true"), "{answer:?}");
    assert_eq!(names(&api), ["guests.wasm"]);
    let browser = Browser::of(&api, &api.token);
    assert!(!browser.page("/packages").contains("multipart/form-data"));
}

async fn a_browser_uploads_a_file(place: Place) {
    let api = Api::start(place, ON);
    let browser = Browser::of(&api, &token(&api, "approver"));
    let shown = browser.page("/packages");
    assert!(shown.contains("enctype=\"multipart/form-data\""), "{shown}");
    let first = browser.page("/");
    assert!(first.contains("href=\"/packages#upload\""), "{first}");
    let send = |cookie: &str, file_name: &str, file: &[u8]| {
        let mut body =
            b"--xyz\r\nContent-Disposition: form-data; name=\"key\"\r\n\r\nk\r\n--xyz\r\n".to_vec();
        let head = format!(
            "Content-Disposition: form-data; name=\"file\"; filename=\"{file_name}\"\r\nContent-Type: application/wasm\r\n\r\n"
        );
        body.extend_from_slice(head.as_bytes());
        body.extend_from_slice(file);
        body.extend_from_slice(b"\r\n--xyz\r\nContent-Disposition: form-data; name=\"do\"\r\n\r\nupload\r\n--xyz--\r\n");
        let head = format!(
            "POST /packages HTTP/1.1\r\nHost: {}\r\nAccept: text/html\r\nConnection: close\r\n{cookie}Sec-Fetch-Site: same-origin\r\n\
            Content-Type: multipart/form-data; boundary=xyz\r\nContent-Length: {}\r\n\r\n",
            api.address,
            body.len()
        );
        raw_bytes(&api, &[head.as_bytes(), &body].concat())
    };
    let done = send(&browser.cookie, "C:\\files\\copy.wasm", &guests(&api));
    assert_eq!(
        (done.status, done.header("location")),
        (303, Some("/packages?done=upload")),
        "{done:?}"
    );
    assert_eq!(names(&api), ["copy.wasm", "guests.wasm"]);
    for (file_name, file, status, part) in [
        ("copy.txt", &b"x"[..], 400, "does not end in `.wasm`"),
        ("", b"", 400, "the form has no file"),
        ("bad.wasm", b"bad", 400, "WebAssembly"),
    ] {
        let answer = send(&browser.cookie, file_name, file);
        assert_eq!(answer.status, status, "{answer:?}");
        assert_is_page(&answer);
        assert!(answer.body.contains(part), "no `{part}`: {answer:?}");
    }
    let ended = send("", "late.wasm", &guests(&api));
    assert_eq!(ended.status, 401);
    assert!(ended.body.contains("was not kept"), "{ended:?}");
    let operator = Browser::of(&api, &token(&api, "operator"));
    assert_eq!(send(&operator.cookie, "late.wasm", b"x").status, 403);
    assert!(
        operator
            .page("/packages")
            .contains("needs the role approver")
    );
    assert_eq!(names(&api), ["copy.wasm", "guests.wasm"]);
}
