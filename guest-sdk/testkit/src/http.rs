//! Scripted replies to HTTP requests.

use std::sync::Arc;

use campanile_sandbox::{HttpGrant, HttpReply, HttpRequest, Replies};
use serde_json::Value;

/// The reply of a test to an HTTP request.
///
/// ```
/// use campanile_testkit::Reply;
/// use serde_json::json;
///
/// Reply::json(200, json!({"id": 7})).header("etag", "\"7\"");
/// Reply::text(503, "unavailable");
/// Reply::refused();
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub struct Reply(HttpReply);

impl Reply {
    /// Return a response with a body of bytes.
    pub fn bytes(status: u16, body: impl Into<Vec<u8>>) -> Reply {
        Reply(HttpReply::Response {
            status,
            headers: Vec::new(),
            body: body.into(),
        })
    }

    /// Return a response with a body of text.
    pub fn text(status: u16, body: impl Into<String>) -> Reply {
        Reply::bytes(status, body.into()).header("content-type", "text/plain; charset=utf-8")
    }

    /// Return a response with a JSON body.
    pub fn json(status: u16, body: Value) -> Reply {
        Reply::bytes(status, body.to_string()).header("content-type", "application/json")
    }

    /// Refuse the connection, like an address without a server.
    pub fn refused() -> Reply {
        Reply(HttpReply::Refused)
    }

    /// Add a header to the response.
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Reply {
        if let HttpReply::Response { headers, .. } = &mut self.0 {
            headers.push((name.into(), value.into()));
        }
        self
    }
}

type Answer = Arc<dyn Fn(&HttpRequest) -> Reply + Send + Sync>;

/// The functions that reply to requests, each with its address.
#[derive(Clone, Default)]
pub(crate) struct Routes(pub(crate) Vec<(String, Answer)>);

impl Replies for Routes {
    /// Reply with the function of the longest matching address, or refuse the connection.
    fn reply(&self, request: HttpRequest) -> HttpReply {
        let matching = self
            .0
            .iter()
            .filter(|(address, _)| request.url.starts_with(address.as_str()))
            .max_by_key(|(address, _)| address.len());
        match matching {
            Some((_, answer)) => answer(&request).0,
            None => HttpReply::Refused,
        }
    }
}

/// Return the grant for requests to `address`, or why the address is invalid.
pub(crate) fn grant(address: &str) -> Result<HttpGrant, String> {
    let invalid =
        || format!("{address:?} is not an address; use one such as \"https://api.example.com/v1\"");
    let (scheme, rest) = address.split_once("://").ok_or_else(invalid)?;
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        // The brackets of an IPv6 address contain its colons.
        Some((host, port)) if !port.contains(']') => {
            (host, Some(port.parse::<u16>().map_err(|_| invalid())?))
        }
        _ => (authority, None),
    };
    if host.is_empty() || !matches!(scheme, "http" | "https") {
        return Err(invalid());
    }
    Ok(HttpGrant {
        scheme: scheme.to_owned(),
        host: host.trim_matches(['[', ']']).to_ascii_lowercase(),
        port,
        methods: Vec::new(),
        // Scripts reply, and no name is looked up.
        private: false,
        signing_secret: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_grants_its_host_and_port() {
        let granted = |address| {
            let grant = grant(address).unwrap();
            (grant.scheme, grant.host, grant.port)
        };
        let https = |host: &str, port| ("https".to_owned(), host.to_owned(), port);
        assert_eq!(
            granted("https://A.example.com/v1?x"),
            https("a.example.com", None)
        );
        assert_eq!(granted("https://[::1]:8443"), https("::1", Some(8443)));
        assert_eq!(granted("https://[::1]/"), https("::1", None));
        for invalid in ["api.example.com", "ftp://a", "https://", "https://a:b"] {
            assert!(grant(invalid).is_err(), "{invalid}");
        }
    }
}
