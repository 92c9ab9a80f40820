//! Server-sent events of the API.

use std::collections::VecDeque;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use crate::output::{Result, failed};

/// How long nothing may come; the server sends a line every 15 seconds.
const SILENCE_MAX: Duration = Duration::from_secs(60);
/// The most bytes of one event.
const EVENT_BYTES_MAX: usize = 64 << 20;

/// The events of an answer.
pub(crate) struct Events {
    body: Incoming,
    /// What has come after the last whole event.
    rest: Vec<u8>,
    whole: VecDeque<Event>,
}

/// One event.
pub(crate) struct Event {
    pub kind: String,
    pub id: String,
    data: String,
}

impl Event {
    /// Read what the event is about.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T> {
        serde_json::from_str(&self.data)
            .map_err(|error| failed!("an event of the server cannot be read: {error}"))
    }
}

impl Events {
    pub(super) fn new(body: Incoming) -> Events {
        Events {
            body,
            rest: Vec::new(),
            whole: VecDeque::new(),
        }
    }

    /// Wait for the next event. None when the connection has ended.
    pub(crate) async fn next(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.whole.pop_front() {
                return Some(event);
            }
            let frame = timeout(SILENCE_MAX, self.body.frame()).await.ok()??.ok()?;
            let Some(data) = frame.data_ref() else {
                continue;
            };
            self.rest.extend_from_slice(data);
            if self.rest.len() > EVENT_BYTES_MAX {
                return None;
            }
            self.whole.extend(whole_events(&mut self.rest));
        }
    }
}

/// Remove the whole events from `bytes`, and return them. A comment is no event.
fn whole_events(bytes: &mut Vec<u8>) -> Vec<Event> {
    const END: &[u8] = b"\n\n";
    let ends = bytes.windows(END.len()).rposition(|part| part == END);
    let Some(end) = ends else { return Vec::new() };
    let whole: Vec<u8> = bytes.drain(..end + END.len()).collect();
    let text = String::from_utf8_lossy(&whole);
    text.split("\n\n").filter_map(event).collect()
}

fn event(text: &str) -> Option<Event> {
    let field = |name: &str| {
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map(str::to_owned)
    };
    Some(Event {
        kind: field("event")?,
        id: field("id")?,
        data: field("data")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_read_as_they_become_whole() {
        let mut bytes = Vec::new();
        let mut read = |more: &str| {
            bytes.extend_from_slice(more.as_bytes());
            let events = whole_events(&mut bytes).into_iter();
            Vec::from_iter(events.map(|event| (event.kind, event.id, event.data)))
        };
        assert_eq!(read(":\n\nevent: call\nid: 7\nda"), []);
        let call = ("call".to_owned(), "7".to_owned(), "{\"a\": 1}".to_owned());
        assert_eq!(read("ta: {\"a\": 1}\n\n:\n\n"), [call]);
        assert_eq!(read("event: end\nid: 8\ndata: 2\n"), []);
        assert_eq!(read("\n").len(), 1);
    }
}
