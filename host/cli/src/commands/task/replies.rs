//! `--replies FILE`: the replies to granted requests, in place of the network.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hyper::header::{HeaderName, HeaderValue};
use serde_json::{Value, json};

use crate::output::{Failure, Result, refused};
use campanile_package::toml_reader::{Document, Error, Section};
use campanile_sandbox::{HttpReply, HttpRequest, Redaction, Replies, Secrets, method_fault};

/// The size limit of a file of replies.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The most requests without a reply that are reported.
const UNANSWERED_MAX: usize = 100;

/// What a request is.
const REQUEST: &str =
    "must be a method and the start of a URL, such as \"GET https://api.example.com/v1\"";

/// The replies, and the requests without one.
#[derive(Default)]
pub(crate) struct Script {
    /// Without routes, every reply is empty and has status 200.
    routes: Option<Vec<Route>>,
    /// The requests without a reply: each once, in order.
    unanswered: Mutex<Vec<String>>,
}

/// An entry of the file.
#[derive(Debug, PartialEq)]
struct Route {
    /// The method and the start of the URL.
    request: String,
    reply: HttpReply,
}

impl Script {
    /// Read a file of replies.
    pub(crate) fn read(path: &Path) -> Result<Script> {
        let wrong = |why: String| refused!("--replies {}: {why}", path.display());
        let unreadable = |error: std::io::Error| {
            Failure::unreadable(format_args!("--replies {}", path.display()), &error)
        };
        let size = std::fs::metadata(path).map_err(unreadable)?;
        if size.len() > FILE_BYTES_MAX {
            return Err(wrong(format!(
                "the file has more than {FILE_BYTES_MAX} bytes"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(unreadable)?;
        Ok(Script {
            routes: Some(routes(&text).map_err(wrong)?),
            unanswered: Mutex::default(),
        })
    }

    /// Returns the requests without a reply; the values of secrets are redacted.
    pub(crate) fn unanswered(&self, secrets: &Secrets) -> Vec<String> {
        let redaction = Redaction::of(secrets);
        let mut unanswered = self.lock_unanswered().clone();
        for request in &mut unanswered {
            redaction.text(request);
        }
        unanswered
    }

    fn lock_unanswered(&self) -> MutexGuard<'_, Vec<String>> {
        let locked = self.unanswered.lock();
        locked.unwrap_or_else(PoisonError::into_inner)
    }
}

impl Replies for Script {
    /// Returns the reply whose URL is the longest prefix of the request's.
    fn reply(&self, request: HttpRequest) -> HttpReply {
        let Some(routes) = &self.routes else {
            return HttpReply::Response {
                status: 200,
                headers: Vec::new(),
                body: Vec::new(),
            };
        };
        let asked = format!("{} {}", request.method, request.url);
        let matching = routes
            .iter()
            .filter(|route| asked.starts_with(&route.request));
        match matching.max_by_key(|route| route.request.len()) {
            Some(route) => route.reply.clone(),
            // A file must list every reply.
            None => {
                let mut unanswered = self.lock_unanswered();
                if unanswered.len() < UNANSWERED_MAX && !unanswered.contains(&asked) {
                    unanswered.push(asked);
                }
                HttpReply::Refused
            }
        }
    }
}

/// Parse the entries of a file; the error names the wrong entry and its key.
fn routes(text: &str) -> Result<Vec<Route>, String> {
    let list: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Array(entries) = &list else {
        return Err(
            "the file must be a list, such as [{\"request\": \"GET https://api.example.com/\", \"status\": 200}]"
                .to_owned(),
        );
    };
    if let Some(place) = entries.iter().position(|entry| !entry.is_object()) {
        return Err(format!(
            "`replies[{place}]` must be an object, not {}",
            entries[place]
        ));
    }
    let value = json!({ "replies": list });
    let document = Document::from_json(&value);
    let routes = document.and_then(|document| {
        let entries = document.section().tables("replies")?;
        entries.into_iter().flatten().map(read_route).collect()
    });
    routes.map_err(|error: Error| error.message)
}

fn read_route(mut entry: Section<'_>) -> Result<Route, Error> {
    let Some(request) = entry.parsed("request", request)? else {
        return Err(entry.error("request", format_args!("is missing: it {REQUEST}")));
    };
    let status = entry.number("status", 100, 999)?;
    let reply = HttpReply::Response {
        status: status.unwrap_or(200),
        headers: headers(&mut entry)?,
        body: match entry.any("body") {
            None => Vec::new(),
            Some(Value::String(text)) => text.clone().into_bytes(),
            Some(other) => other.to_string().into_bytes(),
        },
    };
    entry.finish()?;
    Ok(Route { request, reply })
}

/// Check a request; the error is a clause about the key.
fn request(text: &str) -> Result<String, String> {
    let wrong = || format!("{REQUEST}, not {text:?}");
    let (method, url) = text.split_once(' ').ok_or_else(wrong)?;
    if let Some(fault) = method_fault(method) {
        return Err(format!("starts with {method:?}, {fault}"));
    }
    let is_http = url.starts_with("http://") || url.starts_with("https://");
    is_http.then(|| text.to_owned()).ok_or_else(wrong)
}

fn headers(entry: &mut Section<'_>) -> Result<Vec<(String, String)>, Error> {
    let headers = entry.json("headers")?;
    let one = |(name, value): (String, Value)| {
        let wrong = |what: String| entry.error("headers", format_args!("has {name:?}, {what}"));
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            return Err(wrong("which is not the name of an HTTP header".to_owned()));
        }
        let text = match value {
            Value::String(text) => text,
            Value::Number(number) => number.to_string(),
            other => {
                return Err(wrong(format!(
                    "which must be a text or a number, not {other}"
                )));
            }
        };
        match HeaderValue::from_str(&text) {
            Ok(_) => Ok((name, text)),
            Err(_) => Err(wrong(format!("which no HTTP header can have as {text:?}"))),
        }
    };
    headers.into_iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_entry_and_the_key() {
        let fine = json!({"request": "GET https://a.example/"});
        for (entry, expected) in [
            (json!(7), "`replies[1]` must be an object, not 7"),
            (
                json!({"request": "GET https://a.example/", "stauts": 200}),
                "unknown key `replies[1].stauts`: did you mean `status`?",
            ),
            (
                json!({"status": 200}),
                "`replies[1].request` is missing: it must be a method and the start",
            ),
            (
                json!({"request": "https://a.example/"}),
                "such as \"GET https://api.example.com/v1\", not \"https://a.example/\"",
            ),
            (json!({"request": "GET a.example"}), "not \"GET a.example\""),
            (
                json!({"request": "get https://a.example/"}),
                "`replies[1].request` starts with \"get\", but the case of a method counts: write \"GET\"",
            ),
            (
                json!({"request": "GET https://a.example/", "status": "ok"}),
                "`replies[1].status` must be a whole number, not a text",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": []}),
                "`replies[1].headers` must be an object, not a list",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": {"a b": "c"}}),
                "`replies[1].headers` has \"a b\", which is not the name of an HTTP header",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": {"a": "b\n"}}),
                "`replies[1].headers` has \"a\", which no HTTP header can have as \"b\\n\"",
            ),
        ] {
            let error = routes(&json!([fine, entry]).to_string()).unwrap_err();
            assert!(error.contains(expected), "{entry}: {error}");
        }
        assert!(routes("{}").unwrap_err().contains("must be a list"));
        assert_eq!(routes("[]"), Ok(Vec::new()));
    }

    fn asked(method: &str, path: &str) -> HttpRequest {
        HttpRequest {
            method: method.to_owned(),
            url: format!("https://a.example{path}"),
            headers: Vec::new(),
            body: Vec::new(),
        }
    }

    fn status_of(reply: HttpReply) -> Option<u16> {
        match reply {
            HttpReply::Response { status, .. } => Some(status),
            HttpReply::Refused => None,
        }
    }

    #[test]
    fn the_longest_prefix_wins_and_a_request_without_a_reply_is_reported_once() {
        let list = json!([
            {"request": "GET https://a.example/", "status": 201},
            {"request": "GET https://a.example/b", "status": 202, "headers": {"n": 1}},
        ]);
        let script = Script {
            routes: Some(routes(&list.to_string()).unwrap()),
            unanswered: Mutex::default(),
        };
        assert_eq!(status_of(script.reply(asked("GET", "/a"))), Some(201));
        assert_eq!(status_of(script.reply(asked("GET", "/bc"))), Some(202));
        for method in ["POST", "get", "POST"] {
            assert_eq!(status_of(script.reply(asked(method, "/"))), None);
        }
        assert_eq!(
            script.unanswered(&Secrets::new()),
            ["POST https://a.example/", "get https://a.example/"]
        );
        assert_eq!(
            status_of(Script::default().reply(asked("POST", "/"))),
            Some(200)
        );
    }
}
