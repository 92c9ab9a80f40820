//! A browser without JavaScript: requests as it sends them, and what holds for all pages.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::api::{Answer, Api, raw};
use crate::site::{list, text};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; \
    form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// The most bytes of a page.
const PAGE_BYTES_MAX: usize = 100_000;
/// A text that means markup to a browser, and commands to a terminal.
pub const HOSTILE: &str = "<script>alert(1)</script>\"'&\u{202e}\u{1b}[2J";

/// A browser with a session.
pub struct Browser<'a> {
    pub api: &'a Api,
    /// The header with its cookie.
    pub cookie: String,
}

/// Return fields as a form sends them.
pub fn encoded(fields: &[(&str, &str)]) -> String {
    let mut body = String::new();
    for (name, value) in fields {
        if !body.is_empty() {
            body.push('&');
        }
        let _ = write!(body, "{name}=");
        for byte in value.bytes() {
            match byte.is_ascii_alphanumeric() {
                true => body.push(char::from(byte)),
                false => _ = write!(body, "%{byte:02X}"),
            }
        }
    }
    body
}

pub fn send(api: &Api, method: &str, path: &str, headers: &str, body: &str) -> Answer {
    let address = api.address;
    let head = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nAccept: text/html,*/*;q=0.8\r\nConnection: close\r\n{headers}"
    );
    let kind = match method {
        "POST" => "Content-Type: application/x-www-form-urlencoded\r\n",
        _ => "",
    };
    let length = body.len();
    let request = format!("{head}{kind}Content-Length: {length}\r\n\r\n{body}");
    raw(address, &request)
}

impl Browser<'_> {
    /// Sign in with a token.
    #[track_caller]
    pub fn of<'a>(api: &'a Api, token: &str) -> Browser<'a> {
        let answer = send(api, "POST", "/login", "", &encoded(&[("token", token)]));
        assert_eq!(answer.status, 303, "{answer:?}");
        let cookie = answer.header("set-cookie").expect("a cookie");
        for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
            assert!(cookie.contains(part), "{cookie}");
        }
        // The requests of this test are not encrypted.
        assert!(!cookie.contains("Secure"), "{cookie}");
        let cookie = cookie.split(';').next().expect("a value");
        Browser {
            api,
            cookie: format!("Cookie: {cookie}\r\n"),
        }
    }

    pub fn get(&self, path: &str) -> Answer {
        send(self.api, "GET", path, &self.cookie, "")
    }

    pub fn post(&self, path: &str, fields: &[(&str, &str)]) -> Answer {
        let headers = format!("{}Sec-Fetch-Site: same-origin\r\n", self.cookie);
        send(self.api, "POST", path, &headers, &encoded(fields))
    }

    /// Open a page, and check what holds for all pages.
    #[track_caller]
    pub fn page(&self, path: &str) -> String {
        let answer = self.get(path);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert_is_page(&answer);
        answer.body
    }

    /// Send a form that is done. Return where the browser goes.
    #[track_caller]
    pub fn done(&self, path: &str, fields: &[(&str, &str)]) -> String {
        let answer = self.post(path, fields);
        assert_eq!(answer.status, 303, "{path} {fields:?}: {answer:?}");
        answer.header("location").expect("a location").to_owned()
    }
}

/// Assert what holds for all pages: the policy of the answer, no script or style inside, no raw control characters.
#[track_caller]
pub fn assert_is_page(answer: &Answer) {
    let body = &answer.body;
    assert_eq!(
        answer.header("content-security-policy"),
        Some(POLICY),
        "{answer:?}"
    );
    assert_eq!(
        answer.header("content-type"),
        Some("text/html; charset=utf-8")
    );
    assert_eq!(answer.header("x-content-type-options"), Some("nosniff"));
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    assert!(body.len() <= PAGE_BYTES_MAX, "{} bytes", body.len());
    let own = r#"<script src="/assets/app.js" defer></script>"#;
    assert_eq!(body.matches("<script").count(), 1, "{body}");
    assert!(body.contains(own), "{body}");
    for part in [" style=", "<style", "javascript:", " onclick=", " onload="] {
        assert!(!body.contains(part), "`{part}`: {body}");
    }
    for part in [
        "<!DOCTYPE html>",
        "lang=\"en\"",
        "<main",
        "href=\"#main\"",
        "<h1",
    ] {
        assert!(body.contains(part), "no `{part}`: {body}");
    }
    assert!(!body.contains(['\u{202e}', '\u{1b}']), "{body}");
}

/// Create a token of a role. Return its secret.
pub fn token(api: &Api, role: &str) -> String {
    let created = api.post("/api/v1/tokens", json!({"name": role, "role": role}));
    text(&created["secret"])
}

/// Return the newest event of a kind.
#[track_caller]
pub fn event(api: &Api, kind: &str) -> Value {
    let events = list(api.get("/api/v1/events"));
    let found = events.into_iter().find(|event| event["kind"] == kind);
    found.unwrap_or_else(|| panic!("no event {kind}"))
}
