//! A parser of URLs for requests.

use std::str::FromStr;

use crate::Failure;

/// The parts of a URL that a request needs.
///
/// ```
/// let address: fetch::Address = "https://example.com:8443?q=1#top".parse().unwrap();
/// assert!(address.secure);
/// assert_eq!(address.authority, "example.com:8443");
/// assert_eq!(address.path_and_query, "/?q=1");
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Address {
    /// Whether the scheme is `https` and not `http`.
    pub secure: bool,
    /// The host, with the port if the URL has one.
    pub authority: String,
    /// The path, which begins with `/`, and the query, without the fragment.
    pub path_and_query: String,
}

impl FromStr for Address {
    type Err = Failure;

    fn from_str(url: &str) -> Result<Address, Failure> {
        let bad = |why: &str| {
            Failure::BadUrl(format!(
                "`{}` cannot be requested: {why}",
                url.escape_debug()
            ))
        };
        if url.chars().any(|c| c.is_whitespace() || c.is_control()) {
            return Err(bad("it contains a blank or a control character"));
        }
        let (scheme, rest) = url
            .split_once("://")
            .ok_or_else(|| bad("it must begin with http:// or https://"))?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "http" => false,
            "https" => true,
            _ => return Err(bad("it must begin with http:// or https://")),
        };
        let rest = rest.split('#').next().unwrap_or("");
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        if authority.is_empty() {
            return Err(bad("it has no host"));
        }
        if authority.contains('@') {
            return Err(bad("it contains a user and password"));
        }
        Ok(Address {
            secure,
            authority: authority.to_owned(),
            path_and_query: if path.starts_with('/') {
                path.to_owned()
            } else {
                format!("/{path}")
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_its_parts() {
        for (url, expected) in [
            ("http://a", (false, "a", "/")),
            (
                "HTTPS://a.example/b/c?d=e#f",
                (true, "a.example", "/b/c?d=e"),
            ),
            ("http://[::1]:80/", (false, "[::1]:80", "/")),
            ("http://a?q", (false, "a", "/?q")),
        ] {
            let address: Address = url.parse().unwrap();
            let parts = (
                address.secure,
                &*address.authority,
                &*address.path_and_query,
            );
            assert_eq!(parts, expected, "{url}");
        }
    }

    #[test]
    fn an_invalid_url_is_rejected_with_the_reason() {
        for (url, reason) in [
            ("example.com", "must begin with"),
            ("ftp://example.com", "must begin with"),
            ("http:///path", "has no host"),
            ("http://me:secret@example.com", "user and password"),
            ("http://a/ b", "blank"),
            ("http://a/\r\nHost: b", "blank"),
        ] {
            let error = url.parse::<Address>().unwrap_err().to_string();
            assert!(error.contains(reason), "{error}");
        }
    }
}
