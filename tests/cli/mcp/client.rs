//! A client of the Model Context Protocol, and the server that it starts.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use campanile_tests::PATIENCE;
use serde_json::{Value, json};

use crate::site::{Site, keys, text};

/// A client and the server that it started.
pub struct Client {
    child: Child,
    /// None when it is closed.
    pub stdin: Option<ChildStdin>,
    /// The lines of stdout. The channel is closed when stdout ends.
    pub lines: Receiver<String>,
    last_id: i64,
}

impl Client {
    /// Start a server, and do not speak to it yet.
    pub fn start(site: &Site, more: &[&str]) -> Client {
        Client::of(site.command(["mcp"].iter().chain(more)))
    }

    /// Start this command, and do not speak to it yet.
    pub fn of(mut command: Command) -> Client {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.stderr(Stdio::null()).spawn().expect("the program");
        let stdout = BufReader::new(child.stdout.take().expect("stdout"));
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let stdin = child.stdin.take();
        Client {
            child,
            stdin,
            lines,
            last_id: 0,
        }
    }

    /// Start a server, and begin the session.
    pub fn connect(site: &Site, more: &[&str]) -> Client {
        let mut client = Client::start(site, more);
        client.initialize();
        client
    }

    /// Begin the session. Return what the server says about itself.
    pub fn initialize(&mut self) -> Value {
        let answer = self.request(
            "initialize",
            json!({
                "protocolVersion": "2025-06-18",
                "capabilities": {},
                "clientInfo": {"name": "test\u{202e}-assistant", "version": "1"},
            }),
        );
        self.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}).to_string());
        answer["result"].clone()
    }

    /// Send one line.
    pub fn send(&mut self, line: &str) {
        let stdin = self.stdin.as_mut().expect("stdin is open");
        writeln!(stdin, "{line}").expect("the server reads");
        stdin.flush().expect("the server reads");
    }

    /// Return the next message of the server. Each line of stdout must be one.
    #[track_caller]
    pub fn receive(&mut self) -> Value {
        let line = self.lines.recv_timeout(PATIENCE).expect("a message");
        let message: Value = serde_json::from_str(&line)
            .unwrap_or_else(|error| panic!("stdout is not the protocol ({error}): {line}"));
        assert_eq!(message["jsonrpc"], "2.0", "{message}");
        message
    }

    /// Send a request, and return the message that answers it.
    #[track_caller]
    pub fn request(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request.to_string());
        loop {
            let message = self.receive();
            if message["id"] == id {
                return message;
            }
        }
    }

    /// Call a tool. Return its result.
    #[track_caller]
    pub fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer["error"].is_null(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Call a tool, which must succeed. Return the JSON of its answer.
    #[track_caller]
    pub fn ok(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], false, "{tool}: {result}");
        first_json(&result)
    }

    /// Call a tool, which must fail. Return the JSON of its error.
    #[track_caller]
    pub fn refused(&mut self, tool: &str, arguments: Value) -> Value {
        let result = self.call(tool, arguments);
        assert_eq!(result["isError"], true, "{tool}: {result}");
        let error = first_json(&result);
        assert_eq!(keys(&error), ["code", "error", "hint"], "{tool}");
        error
    }

    /// Close stdin. Return the exit code of the server, which must end by itself.
    pub fn close(mut self) -> Option<i32> {
        drop(self.stdin.take());
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(status) = self.child.try_wait().expect("the server") {
                return status.code();
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        // It has ended already, unless a test failed.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Return the JSON in the first block of a result.
#[track_caller]
pub fn first_json(result: &Value) -> Value {
    let block = &result["content"][0];
    assert_eq!(block["type"], "text", "{result}");
    serde_json::from_str(&text(&block["text"])).unwrap_or_else(|error| panic!("{error}: {result}"))
}

/// Return the note in the second block of a result.
#[track_caller]
pub fn note(result: &Value) -> String {
    text(&result["content"][1]["text"])
}
