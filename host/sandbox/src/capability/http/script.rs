//! A script that answers in place of the network, for tests of tasks.

/// Answers the requests of a call in place of the network.
pub trait Replies: Send + Sync {
    /// Return the answer to `request`. Called on the guests' threads, and must not block.
    fn reply(&self, request: HttpRequest) -> HttpReply;
}

/// A request of a guest, as it would be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpRequest {
    /// As the guest wrote it. Its case counts.
    pub method: String,
    /// With scheme, host, path and query.
    pub url: String,
    /// Names in lower case. Values that are not UTF-8 have replacement characters.
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// The answer of a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HttpReply {
    Response {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// The connection is refused.
    Refused,
}
