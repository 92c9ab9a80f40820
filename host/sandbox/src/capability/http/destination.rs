//! The destination of an HTTP request, and the grants that cover it.

use std::net::{IpAddr, Ipv6Addr};

use hyper::http::uri::Scheme;
use hyper::{Method, Request};

use crate::capability::network::reach::{
    Reach, host_reach, plain_host, refused_address, shown_host,
};
use crate::capability::shared::to_allow;
use crate::grants::{GrantSource, HttpGrant};

/// The methods of RFC 9110 and RFC 5789.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// Returns what is wrong with a method in a sidecar file, as a clause after the method. By RFC 9110 its case counts.
pub fn method_fault(method: &str) -> Option<String> {
    if Method::from_bytes(method.as_bytes()).is_err() {
        return Some("which is not an HTTP method such as \"GET\"".to_owned());
    }
    let meant = method.to_ascii_uppercase();
    let is_another = meant != method && METHODS.contains(&meant.as_str());
    is_another.then(|| format!("but the case of a method counts: write \"{meant}\""))
}

/// Where a request goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Destination {
    pub(crate) method: String,
    /// `https` or `http`; of a mail server `smtps`, or `smtp` for STARTTLS.
    pub(crate) scheme: &'static str,
    /// Lower case, without the brackets of an IPv6 address and without a final dot.
    pub(crate) host: String,
    pub(crate) port: u16,
}

impl Destination {
    /// Returns where `request` goes, or none when its address is not valid.
    pub(crate) fn of<B>(request: &Request<B>) -> Option<Destination> {
        let uri = request.uri();
        let scheme = if *uri.scheme()? == Scheme::HTTPS {
            "https"
        } else {
            "http"
        };
        let authority = uri.authority()?;
        // A user name before the host is never sent. It only deceives a reader of the address.
        if authority.as_str().contains('@') {
            return None;
        }
        let host = plain_host(authority.host());
        if host.is_empty() {
            return None;
        }
        Some(Destination {
            method: request.method().as_str().to_owned(),
            scheme,
            host,
            port: authority.port_u16().unwrap_or(default_port(scheme)),
        })
    }

    /// Returns the address, when the host is one rather than a name.
    pub(crate) fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// Returns how far `grants` reach for this request, or none when no grant covers it.
    pub(crate) fn reach(&self, grants: &[HttpGrant]) -> Option<Reach> {
        grants.iter().filter_map(|grant| self.reach_of(grant)).max()
    }

    fn reach_of(&self, grant: &HttpGrant) -> Option<Reach> {
        let port = grant.port.unwrap_or(default_port(self.scheme));
        let allows_method = grant.methods.is_empty() || grant.methods.contains(&self.method);
        if !grant.scheme.eq_ignore_ascii_case(self.scheme) || port != self.port || !allows_method {
            return None;
        }
        host_reach(&grant.host, grant.private, &self.host, self.ip())
    }

    /// Returns the host and the port, as the header `Host` has them.
    pub(crate) fn authority(&self) -> String {
        let host = match self.host.parse::<Ipv6Addr>() {
            Ok(address) => format!("[{address}]"),
            Err(_) => self.host.clone(),
        };
        if self.port == default_port(self.scheme) {
            host
        } else {
            format!("{host}:{}", self.port)
        }
    }

    /// Returns the name of the secret that signs messages to this destination: that of the first grant that covers it and
    /// has one.
    pub(crate) fn signing_secret<'g>(&self, grants: &'g [HttpGrant]) -> Option<&'g str> {
        let mut covering = grants.iter().filter(|grant| self.reach_of(grant).is_some());
        covering.find_map(|grant| grant.signing_secret.as_deref())
    }

    /// Returns the sentence that refuses this request.
    pub(crate) fn refusal(&self) -> String {
        format!(
            "{self} is not granted; {}",
            self.to_allow(&self.host, false)
        )
    }

    /// Returns the sentence that refuses this request because its name leads to `address`, with advice for grants from `source`.
    pub(crate) fn refusal_of_address(&self, address: IpAddr, source: GrantSource) -> String {
        let (why, host, is_private) = refused_address(&self.host, address);
        let to_allow = match source {
            GrantSource::Sidecar => self.to_allow(&host, is_private),
            GrantSource::Configuration => {
                "to allow it, write `private = true` beside the address in the configuration"
                    .to_owned()
            }
        };
        format!("{self} {why}; {to_allow}")
    }

    /// Propose the grant that allows this request to `host` and little more.
    fn to_allow(&self, host: &str, is_private: bool) -> String {
        let mut grant = vec![
            ("scheme", self.scheme.into()),
            ("host", shown_host(host).into()),
        ];
        if self.port != default_port(self.scheme) {
            grant.push(("port", self.port.into()));
        }
        if is_private {
            grant.push(("private", true.into()));
        }
        to_allow("http", grant)
    }
}

/// `GET https://example.com:8443`
impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = self.scheme;
        let host = shown_host(&self.host);
        match host.parse::<Ipv6Addr>() {
            Ok(_) => write!(f, "{} {scheme}://[{host}]", self.method)?,
            Err(_) => write!(f, "{} {scheme}://{host}", self.method)?,
        }
        if self.port != default_port(scheme) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

pub(crate) fn default_port(scheme: &str) -> u16 {
    match scheme {
        "https" => 443,
        "smtps" => 465,
        "smtp" => 587,
        _ => 80,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capability::network::reach::Reach;

    fn to(method: &str, uri: &str) -> Option<Destination> {
        let request = Request::builder().method(method).uri(uri).body(()).unwrap();
        Destination::of(&request)
    }

    fn grant(scheme: &str, host: &str) -> HttpGrant {
        HttpGrant {
            scheme: scheme.to_owned(),
            host: host.to_owned(),
            port: None,
            methods: Vec::new(),
            private: false,
            signing_secret: None,
        }
    }

    fn reaches(grant: &HttpGrant, uri: &str) -> Option<Reach> {
        to("GET", uri).unwrap().reach(std::slice::from_ref(grant))
    }

    #[test]
    fn nothing_is_granted_by_default() {
        assert_eq!(to("GET", "https://example.com/").unwrap().reach(&[]), None);
    }

    #[test]
    fn an_exact_host_is_that_host_in_any_spelling_and_no_other() {
        let granted = grant("https", "example.com");
        for same in [
            "https://example.com/",
            "https://EXAMPLE.com/a?b",
            "https://example.com./",
            "https://example.com:443/",
        ] {
            assert_eq!(reaches(&granted, same), Some(Reach::Public), "{same}");
        }
        for other in [
            "http://example.com/",
            "https://example.com:8443/",
            "https://www.example.com/",
            "https://example.com.evil.test/",
            "https://notexample.com/",
            "https://example.co/",
        ] {
            assert_eq!(reaches(&granted, other), None, "{other}");
        }
    }

    #[test]
    fn a_wildcard_is_every_name_below_the_domain_and_only_in_public() {
        let granted = grant("https", "*.Example.com");
        for below in ["https://a.example.com/", "https://a.b.example.com./"] {
            assert_eq!(reaches(&granted, below), Some(Reach::Public), "{below}");
        }
        for other in [
            "https://example.com/",
            "https://.example.com/",
            "https://aexample.com/",
            "https://a.example.com.evil.test/",
        ] {
            assert_eq!(reaches(&granted, other), None, "{other}");
        }
        let digits = grant("http", "*.0.0.1");
        assert_eq!(reaches(&digits, "http://127.0.0.1/"), None);
    }

    #[test]
    fn a_star_is_every_public_host() {
        let granted = grant("https", "*");
        assert_eq!(
            reaches(&granted, "https://anything.test/"),
            Some(Reach::Public)
        );
        assert_eq!(reaches(&granted, "https://127.0.0.1/"), Some(Reach::Public));
        assert_eq!(reaches(&granted, "http://anything.test/"), None);
    }

    #[test]
    fn an_exact_grant_beats_a_wildcard() {
        let grants = [grant("http", "*"), grant("http", "localhost")];
        let destination = to("GET", "http://localhost/").unwrap();
        assert_eq!(destination.reach(&grants), Some(Reach::Private));
    }

    #[test]
    fn addresses_are_compared_as_addresses() {
        let granted = grant("http", "::1");
        assert_eq!(
            reaches(&granted, "http://[0:0:0:0:0:0:0:1]/"),
            Some(Reach::Anywhere)
        );
        assert_eq!(
            reaches(&grant("http", "[::1]"), "http://[::1]/"),
            Some(Reach::Anywhere)
        );
        assert_eq!(reaches(&granted, "http://[::2]/"), None);
    }

    #[test]
    fn a_port_and_methods_narrow_a_grant() {
        let granted = HttpGrant {
            port: Some(8080),
            methods: vec!["GET".into(), "HEAD".into()],
            ..grant("http", "example.com")
        };
        let grants = [granted];
        let reach_of = |method, uri| to(method, uri).unwrap().reach(&grants);
        assert!(reach_of("GET", "http://example.com:8080/").is_some());
        assert!(reach_of("HEAD", "http://example.com:8080/").is_some());
        assert_eq!(reach_of("POST", "http://example.com:8080/"), None);
        // Another method, by RFC 9110.
        assert_eq!(reach_of("get", "http://example.com:8080/"), None);
        assert_eq!(reach_of("GET", "http://example.com/"), None);
    }

    #[test]
    fn an_address_that_deceives_or_names_nothing_is_not_a_destination() {
        assert_eq!(to("GET", "https://example.com@evil.test/"), None);
        assert_eq!(to("GET", "/just/a/path"), None);
    }

    #[test]
    fn a_refused_address_is_named_with_the_grant_that_reaches_it() {
        let refusal = |uri, address: &str| {
            let destination = to("GET", uri).unwrap();
            destination.refusal_of_address(address.parse().unwrap(), GrantSource::Sidecar)
        };
        assert_eq!(
            refusal("https://db.example.com:8443/a", "10.0.0.5"),
            "GET https://db.example.com:8443 leads to 10.0.0.5, which is not a public address (private); to allow it, add \
             `grants.http = [{ scheme = \"https\", host = \"db.example.com\", port = 8443, private = true }]` at the top of the package's sidecar file"
        );
        // For an address and for `localhost` the grant needs no `private`.
        assert_eq!(
            refusal("http://localhost/", "127.0.0.1"),
            "GET http://localhost leads to 127.0.0.1, which is not a public address (loopback); to allow it, add \
             `grants.http = [{ scheme = \"http\", host = \"localhost\" }]` at the top of the package's sidecar file"
        );
        assert_eq!(
            refusal("http://api.example.com/", "169.254.169.254"),
            "GET http://api.example.com leads to 169.254.169.254, which is not a public address (metadata service), \
             and no name reaches such a service: let the task use the address; to allow it, add \
             `grants.http = [{ scheme = \"http\", host = \"169.254.169.254\" }]` at the top of the package's sidecar file"
        );
        let hook = to("POST", "https://hooks.example.com/a").unwrap();
        assert_eq!(
            hook.refusal_of_address("10.0.0.5".parse().unwrap(), GrantSource::Configuration),
            "POST https://hooks.example.com leads to 10.0.0.5, which is not a public address (private); to allow it, write \
             `private = true` beside the address in the configuration"
        );
    }

    #[test]
    fn a_refusal_names_the_request_and_the_grant() {
        assert_eq!(
            to("GET", "https://example.com/a").unwrap().refusal(),
            "GET https://example.com is not granted; to allow it, add \
             `grants.http = [{ scheme = \"https\", host = \"example.com\" }]` at the top of the package's sidecar file"
        );
        assert_eq!(
            to("POST", "http://[::1]:8080/").unwrap().refusal(),
            "POST http://[::1]:8080 is not granted; to allow it, add \
             `grants.http = [{ scheme = \"http\", host = \"::1\", port = 8080 }]` at the top of the package's sidecar file"
        );
    }
}
