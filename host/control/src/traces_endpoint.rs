//! The address of a collector of traces.

use std::fmt;
use std::str::FromStr;

use campanile_sandbox::grants_to;

/// The path of traces below the address of a collector.
pub(crate) const PATH: &str = "/v1/traces";

/// The address of a collector, without the path of traces.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TracesEndpoint(String);

impl TracesEndpoint {
    /// Returns the address to which traces are sent.
    pub fn url(&self) -> String {
        format!("{self}{PATH}")
    }
}

impl FromStr for TracesEndpoint {
    type Err = String;

    /// Read the address of a collector; the error is a clause.
    fn from_str(text: &str) -> Result<TracesEndpoint, String> {
        let base = text.trim_end_matches('/');
        if let Some(rest) = base.strip_suffix(PATH) {
            return Err(format!(
                "ends with `{PATH}`, which the host adds: write \"{rest}\""
            ));
        }
        if let Some(extra) = ['?', '#', '@'].into_iter().find(|it| base.contains(*it)) {
            return Err(format!(
                "has a `{extra}`: write an address such as \"http://127.0.0.1:4318\""
            ));
        }
        match grants_to(&format!("{base}{PATH}"), true) {
            Ok(_) => Ok(TracesEndpoint(base.to_owned())),
            Err(_) => Err("is no address such as \"http://127.0.0.1:4318\"".to_owned()),
        }
    }
}

impl fmt::Display for TracesEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_address_of_a_collector_is_read() {
        for (text, read) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318"),
            ("https://otel.example.com/", "https://otel.example.com"),
            ("http://[::1]:4318", "http://[::1]:4318"),
            ("http://collector:4318/base", "http://collector:4318/base"),
        ] {
            let endpoint: TracesEndpoint = text.parse().unwrap();
            assert_eq!(endpoint.to_string(), read);
            assert_eq!(endpoint.url(), format!("{read}/v1/traces"));
        }
        for (text, what) in [
            ("", "is no address"),
            ("127.0.0.1:4318", "is no address"),
            ("grpc://127.0.0.1:4317", "is no address"),
            ("http://a b", "is no address"),
            ("http://127.0.0.1:4318/v1/traces", "which the host adds"),
            ("http://user:word@127.0.0.1", "has a `@`"),
            ("http://127.0.0.1?key=1", "has a `?`"),
        ] {
            let error = text.parse::<TracesEndpoint>().unwrap_err();
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
