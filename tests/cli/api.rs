//! A host with its API, and a client that sends requests as they are.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use campanile_tests::{HostProcess, PATIENCE, Place};
use serde_json::{Value, json};

use crate::site::{CommandOutput, Site, eventually, run_until_exit};

/// A host with its API.
pub struct Api {
    pub site: Site,
    pub host: HostProcess,
    pub address: SocketAddr,
    pub token: String,
}

/// An answer.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// The names are in lower case.
    headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let found = self.headers.iter().find(|(found, _)| found == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Assert that the request was refused with problem details that contain `part`.
    #[track_caller]
    pub fn assert_problem(&self, status: u16, part: &str) {
        assert_eq!(self.status, status, "{self:?}");
        assert_eq!(
            self.header("content-type"),
            Some("application/problem+json")
        );
        let problem = self.json();
        assert_eq!(problem["status"], status, "{self:?}");
        for key in ["type", "title", "detail", "code"] {
            assert!(problem[key].is_string(), "{key}: {self:?}");
        }
        assert!(self.body.contains(part), "no `{part}`: {self:?}");
        assert!(!self.body.contains("panicked"), "{self:?}");
    }
}

/// Send a request as it is, and read the whole answer.
pub fn raw(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    // A server that refuses a request early may close the connection before all of it is sent.
    let _ = stream.write_all(request.as_bytes());
    parse(stream)
}

/// Read the whole answer of a connection that the server closes.
pub fn parse(mut stream: impl std::io::Read) -> Answer {
    let mut bytes = Vec::new();
    let _ = stream.read_to_end(&mut bytes);
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1));
    let headers = lines.filter_map(|line| line.split_once(": "));
    Answer {
        status: status.and_then(|status| status.parse().ok()).unwrap_or(0),
        headers: headers
            .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
            .collect(),
        body: body.to_owned(),
    }
}

impl Api {
    /// Start a host with the API on a free port, after `configuration`.
    pub fn start(place: Place, configuration: &str) -> Api {
        let site = Site::new(place);
        site.copy_package("guests");
        site.configure(configuration);
        Api::of(site)
    }

    pub fn of(site: Site) -> Api {
        let host = site.serve_with(&["--listen", "127.0.0.1:0"]);
        let line = host.wait_for_line("the API answers at http://");
        let (_, rest) = line.split_once("http://").expect("an address");
        let (address, rest) = rest.split_once("/api/v1").expect("a path");
        let (_, file) = rest.split_once("its token is in ").expect("a file");
        let token = std::fs::read_to_string(site.folder().join(file.trim())).expect("a token");
        Api {
            address: address.parse().expect("an address"),
            token: token.trim().to_owned(),
            site,
            host,
        }
    }

    /// Runs a command asking this host.
    pub fn run(&self, args: &[&str]) -> CommandOutput {
        let mut command = self.site.command(args);
        command.env_remove("CAMPANILE_DATABASE_URL");
        command.env("CAMPANILE_SERVER", format!("http://{}", self.address));
        command.env("CAMPANILE_TOKEN", &self.token);
        run_until_exit(&mut command)
    }

    pub fn head(&self, method: &str, path: &str) -> String {
        format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nAuthorization: Bearer {}\r\nConnection: close\r\n",
            self.address, self.token
        )
    }

    pub fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<&Value>,
    ) -> Answer {
        let mut request = self.head(method, path);
        for (name, value) in headers {
            request += &format!("{name}: {value}\r\n");
        }
        let body = body.map(Value::to_string).unwrap_or_default();
        if !body.is_empty() {
            request += "Content-Type: application/json\r\n";
        }
        raw(
            self.address,
            &format!("{request}Content-Length: {}\r\n\r\n{body}", body.len()),
        )
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Value {
        let answer = self.send("GET", path, &[], None);
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: Value) -> Value {
        let answer = self.send("POST", path, &[], Some(&body));
        assert!(answer.status < 300, "{path}: {answer:?}");
        answer.json()
    }

    /// Add a schedule of a task of `guests` that launches only when it is triggered.
    #[track_caller]
    pub fn add(&self, name: &str, task: &str) -> Value {
        let body = json!({"name": name, "package": "guests", "task": task, "kind": "at", "expression": "2099-01-01T00:00:00Z"});
        self.post("/api/v1/schedules", body)
    }

    /// Wait for the end of a launch. Return it.
    #[track_caller]
    pub fn end_of(&self, launch: &str) -> Value {
        eventually(|| {
            let row = self.get(&format!("/api/v1/launches/{launch}"));
            match row["finished_at"].is_null() {
                true => Err(row.to_string()),
                false => Ok(row),
            }
        })
    }

    /// Open a stream of events. Return a reader of its lines.
    pub fn stream(&self, path: &str, headers: &str) -> BufReader<TcpStream> {
        let mut stream = TcpStream::connect(self.address).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        let request = format!("{}{headers}\r\n", self.head("GET", path));
        stream.write_all(request.as_bytes()).expect("a request");
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line).expect("a status");
        assert!(line.contains(" 200 "), "{line}");
        // The first comment says that the server listens to events.
        while line.trim_end() != ":" {
            line.clear();
            assert!(
                reader.read_line(&mut line).expect("a line") > 0,
                "the stream ended"
            );
        }
        reader
    }
}

/// Read a stream up to an event for which `is_wanted` holds. Return its kind, id and data.
#[track_caller]
pub fn next_event(
    reader: &mut BufReader<TcpStream>,
    is_wanted: impl Fn(&str, &Value) -> bool,
) -> (String, String, Value) {
    let deadline = Instant::now() + PATIENCE;
    let (mut kind, mut id) = (String::new(), String::new());
    while Instant::now() < deadline {
        let mut line = String::new();
        assert!(
            reader.read_line(&mut line).expect("a line") > 0,
            "the stream ended"
        );
        let line = line.trim_end();
        if let Some(text) = line.strip_prefix("event: ") {
            text.clone_into(&mut kind);
        } else if let Some(text) = line.strip_prefix("id: ") {
            text.clone_into(&mut id);
        } else if let Some(data) = line.strip_prefix("data: ") {
            let data: Value = serde_json::from_str(data).expect("JSON");
            if is_wanted(&kind, &data) {
                return (kind, id, data);
            }
        }
    }
    panic!("no such event within {PATIENCE:?}");
}
