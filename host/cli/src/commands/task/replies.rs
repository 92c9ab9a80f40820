//! `--replies FILE`: the replies to granted requests, in place of the network.

use std::path::Path;
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::output::Failure;
use campanile_model::text;
use campanile_sandbox::{HttpReply, HttpRequest, Redaction, Replies, Secrets, method_fault};

/// The size limit of a file of replies.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// The most requests without a reply that are reported.
const UNANSWERED_MAX: usize = 100;

const KEYS: [&str; 4] = ["request", "status", "headers", "body"];

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
    status: u16,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Script {
    /// Read a file of replies.
    pub(crate) fn read(path: &Path) -> Result<Script, Failure> {
        let wrong = |why: String| Failure::refused(format!("--replies {}: {why}", path.display()));
        let size = std::fs::metadata(path).map_err(|error| wrong(error.to_string()))?;
        if size.len() > FILE_BYTES_MAX {
            return Err(wrong(format!(
                "the file has more than {FILE_BYTES_MAX} bytes"
            )));
        }
        let text = std::fs::read_to_string(path).map_err(|error| wrong(error.to_string()))?;
        Ok(Script {
            routes: Some(routes(&text).map_err(wrong)?),
            unanswered: Mutex::default(),
        })
    }

    /// Return the requests without a reply; the values of secrets are redacted.
    pub(crate) fn unanswered(&self, secrets: &Secrets) -> Vec<String> {
        let redaction = Redaction::of(secrets);
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        unanswered
            .iter_mut()
            .for_each(|request| redaction.text(request));
        unanswered
    }

    fn note(&self, request: String) {
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if unanswered.len() < UNANSWERED_MAX && !unanswered.contains(&request) {
            unanswered.push(request);
        }
    }
}

impl Replies for Script {
    /// Return the reply whose URL is the longest prefix of the request's.
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
            Some(route) => HttpReply::Response {
                status: route.status,
                headers: route.headers.clone(),
                body: route.body.clone(),
            },
            // A file must list every reply.
            None => {
                self.note(asked);
                HttpReply::Refused
            }
        }
    }
}

/// Parse the entries of a file; the error names the wrong entry and its key.
fn routes(text: &str) -> Result<Vec<Route>, String> {
    let value: Value = serde_json::from_str(text).map_err(|error| format!("not JSON: {error}"))?;
    let Value::Array(entries) = value else {
        return Err(
            "the file must be a list, such as [{\"request\": \"GET https://api.example.com/\", \"status\": 200}]"
                .to_owned(),
        );
    };
    let entries = entries.iter().enumerate();
    entries
        .map(|(place, entry)| route(entry).map_err(|why| format!("[{place}]{why}")))
        .collect()
}

/// Parse one entry; the error is the text that follows the entry's place in the list.
fn route(entry: &Value) -> Result<Route, String> {
    let Value::Object(entry) = entry else {
        return Err(format!(" must be an object, not {entry}"));
    };
    if let Some(unknown) = entry.keys().find(|key| !KEYS.contains(&key.as_str())) {
        let hint = match text::nearest(unknown, KEYS) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("the known keys are {}", KEYS.join(", ")),
        };
        return Err(format!(".{unknown} is not a key of a reply: {hint}"));
    }
    Ok(Route {
        request: request(entry)?,
        status: status(entry)?,
        headers: headers(entry)?,
        body: match entry.get("body") {
            None | Some(Value::Null) => Vec::new(),
            Some(Value::String(text)) => text.clone().into_bytes(),
            Some(other) => other.to_string().into_bytes(),
        },
    })
}

fn request(entry: &Map<String, Value>) -> Result<String, String> {
    let wrong = |why: &str| {
        Err(format!(
            ".request must be a method and the start of a URL, such as \"GET https://api.example.com/v1\"{why}"
        ))
    };
    let given = match entry.get("request") {
        None => return wrong(", and is missing"),
        Some(given) => given,
    };
    let Some((method, url)) = given.as_str().and_then(|text| text.split_once(' ')) else {
        return wrong(&format!(", not {given}"));
    };
    if let Some(fault) = method_fault(method) {
        return Err(format!(".request starts with {method:?}, {fault}"));
    }
    if !url.starts_with("http://") && !url.starts_with("https://") {
        return wrong(&format!(", not {given}"));
    }
    Ok(format!("{method} {url}"))
}

fn status(entry: &Map<String, Value>) -> Result<u16, String> {
    let Some(given) = entry.get("status") else {
        return Ok(200);
    };
    let status = given.as_u64().and_then(|status| u16::try_from(status).ok());
    match status {
        Some(status @ 100..=999) => Ok(status),
        _ => Err(format!(
            ".status must be a number from 100 to 999, not {given}"
        )),
    }
}

fn headers(entry: &Map<String, Value>) -> Result<Vec<(String, String)>, String> {
    let headers = match entry.get("headers") {
        None => return Ok(Vec::new()),
        Some(Value::Object(headers)) => headers,
        Some(other) => return Err(format!(".headers must be an object, not {other}")),
    };
    let one = |(name, value): (&String, &Value)| {
        let wrong = |what: &str| Err(format!(".headers.{name} {what}"));
        if hyper::header::HeaderName::from_bytes(name.as_bytes()).is_err() {
            return wrong("is not the name of an HTTP header");
        }
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return wrong(&format!("must be a text or a number, not {other}")),
        };
        match hyper::header::HeaderValue::from_str(&text) {
            Ok(_) => Ok((name.clone(), text)),
            Err(_) => wrong(&format!(
                "is {text:?}, which is not valid in an HTTP header"
            )),
        }
    };
    headers.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_error_names_the_entry_and_the_key() {
        let fine = json!({"request": "GET https://a.example/"});
        for (entry, expected) in [
            (json!(7), "[1] must be an object, not 7"),
            (
                json!({"request": "GET https://a.example/", "stauts": 200}),
                "[1].stauts is not a key of a reply: did you mean `status`?",
            ),
            (
                json!({"status": 200}),
                "[1].request must be a method and the start",
            ),
            (
                json!({"request": "https://a.example/"}),
                "such as \"GET https://api.example.com/v1\", not \"https://a.example/\"",
            ),
            (json!({"request": "GET a.example"}), "not \"GET a.example\""),
            (
                json!({"request": "get https://a.example/"}),
                "[1].request starts with \"get\", but the case of a method counts: write \"GET\"",
            ),
            (
                json!({"request": "GET https://a.example/", "status": "ok"}),
                "[1].status must be a number from 100 to 999, not \"ok\"",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": []}),
                "[1].headers must be an object, not []",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": {"a b": "c"}}),
                "[1].headers.a b is not the name of an HTTP header",
            ),
            (
                json!({"request": "GET https://a.example/", "headers": {"a": "b\n"}}),
                "[1].headers.a is \"b\\n\", which is not valid in an HTTP header",
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
