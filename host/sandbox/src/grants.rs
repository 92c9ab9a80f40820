//! Grants made effective: what is not granted is refused, and the refusal says which grant would allow it.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hyper::http::uri::Scheme;
use hyper::{Method, Request};
use serde_json::Value;
use wasmtime_wasi::{Deterministic, HostWallClock, WasiCtxBuilder};

use super::sockets::SocketGate;
use super::stdio::Capture;
use super::{ENV_PREFIX, Grants, HttpGrant, Secrets, Time};
use campanile_model::clock::Timestamp;
use campanile_model::ids::sha256;

/// Of a host name in a message; a guest may ask for a longer one.
const SHOWN_HOST_BYTES_MAX: usize = 253;

/// The random bytes of calls that are to be the same, with their time: those of a hash map's seed want some variety.
const ALWAYS_THE_SAME: &[u8] = b"the bells of one tower";

/// The WASI context of one call: its streams, the variables it was granted, and sockets that ask `sockets` for each
/// address.
pub fn wasi_context(
    grants: &Grants,
    secrets: &Secrets,
    stdout: &Capture,
    stderr: &Capture,
    time: Time,
    sockets: SocketGate,
) -> WasiCtxBuilder {
    let mut wasi = WasiCtxBuilder::new();
    wasi.stdout(stdout.clone())
        .stderr(stderr.clone())
        // `random.rs` counts them.
        .max_random_size(u64::MAX)
        .allow_tcp(true)
        .allow_udp(true)
        .socket_addr_check(move |address, wanted| {
            Box::pin(std::future::ready(sockets.permits(address, wanted)))
        });
    for (name, value) in &grants.env {
        // What begins like this is the host's word.
        if !name.starts_with(ENV_PREFIX) {
            wasi.env(name, value);
        }
    }
    for (variable, name) in &grants.secret_env {
        if let Some(secret) = secrets.get(name) {
            wasi.env(variable, secret.reveal());
        }
    }
    if let Some(now) = time.beginning() {
        wasi.wall_clock(SetClock::to(now, time));
    }
    if let Time::Still(now) = time {
        // Mixed, because the first bytes are those that are drawn.
        let seed = [ALWAYS_THE_SAME, &now.micros().to_le_bytes()].concat();
        let of_this_time = sha256(&seed).into_bytes();
        let same = || Deterministic::new(of_this_time.clone());
        wasi.secure_random(same())
            .insecure_random(same())
            .insecure_random_seed(u128::from(now.micros().unsigned_abs()));
    }
    wasi
}

/// A wall clock that was set to another time, and goes on from there.
struct SetClock {
    to: Duration,
    /// None when it stands still.
    at: Option<Instant>,
}

impl SetClock {
    fn to(now: Timestamp, time: Time) -> SetClock {
        SetClock {
            // What WASI tells has no times before 1970.
            to: Duration::from_micros(u64::try_from(now.micros()).unwrap_or(0)),
            at: matches!(time, Time::From(_)).then(Instant::now),
        }
    }
}

impl HostWallClock for SetClock {
    fn resolution(&self) -> Duration {
        Duration::from_micros(1)
    }

    fn now(&self) -> Duration {
        self.to + self.at.map_or(Duration::ZERO, |at| at.elapsed())
    }
}

/// The first thing that was refused to a call, shared between the store and the requests under way.
#[derive(Clone, Default)]
pub struct Denial(Arc<Mutex<Option<String>>>);

impl Denial {
    /// Remember a refusal, unless there was one before: the first is the cause of what follows.
    pub fn record(&self, message: String) {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert(message);
    }

    /// The first refusal, if there was one.
    pub fn message(&self) -> Option<String> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}

/// One more grant of `kind`, as one line of TOML. It holds above the first table of a sidecar file.
pub fn grant_line<'k>(kind: &str, keys: impl IntoIterator<Item = (&'k str, Value)>) -> String {
    let keys = keys.into_iter();
    // A text of JSON is one of TOML and never has a second line; only this character may not stand in it as it is.
    let value = |value: Value| value.to_string().replace('\u{7f}', "\\u007f");
    let keys: Vec<String> = keys
        .map(|(key, what)| format!("{key} = {}", value(what)))
        .collect();
    format!("grants.{kind} = [{{ {} }}]", keys.join(", "))
}

/// The methods that everybody knows.
const METHODS: [&str; 9] = [
    "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
];

/// What is wrong with a method as a person wrote it; the clause reads after the method. By RFC 9110 the case counts.
pub fn method_fault(method: &str) -> Option<String> {
    if Method::from_bytes(method.as_bytes()).is_err() {
        return Some("which is not an HTTP method such as \"GET\"".to_owned());
    }
    let meant = method.to_ascii_uppercase();
    let is_another = meant != method && METHODS.contains(&meant.as_str());
    is_another.then(|| format!("but the case of a method counts: write \"{meant}\""))
}

/// Where a request wants to go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destination {
    pub method: String,
    pub https: bool,
    /// Lower case, without the brackets of an IPv6 address and without a final dot.
    pub host: String,
    pub port: u16,
}

/// How far a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// The grant names this very host: wherever it is.
    Anywhere,
    /// The grant is a pattern: only where the address is public.
    PublicOnly,
}

impl Destination {
    /// Where `request` wants to go, or none when its address is not one.
    pub fn of<B>(request: &Request<B>) -> Option<Destination> {
        let uri = request.uri();
        let https = *uri.scheme()? == Scheme::HTTPS;
        let authority = uri.authority()?;
        // A user name before the host is never sent and only serves to deceive whoever reads the address.
        if authority.as_str().contains('@') {
            return None;
        }
        let host = plain_host(authority.host());
        if host.is_empty() {
            return None;
        }
        Some(Destination {
            method: request.method().as_str().to_owned(),
            https,
            host,
            port: authority
                .port_u16()
                .unwrap_or(default_port(scheme_name(https))),
        })
    }

    /// The address, when the host is one rather than a name.
    pub fn ip(&self) -> Option<IpAddr> {
        self.host.parse().ok()
    }

    /// The sentence that refuses this request.
    pub fn refusal(&self) -> String {
        format!(
            "{self} is not granted; to allow it, add `{}` at the top of the package's sidecar file",
            self.grant()
        )
    }

    /// The sentence that refuses this request because of where its name led.
    pub fn refusal_of_address(&self, address: IpAddr) -> String {
        format!(
            "{self} leads to {address}, which is not a public address, and only a grant that names the host itself reaches those; \
             to allow it, add `{}` at the top of the package's sidecar file",
            self.grant()
        )
    }

    /// The grant that would allow this request and little more, as one line of a sidecar file.
    fn grant(&self) -> String {
        let scheme = scheme_name(self.https);
        let mut grant = vec![
            ("scheme", scheme.into()),
            ("host", self.shown_host().into()),
        ];
        if self.port != default_port(scheme) {
            grant.push(("port", self.port.into()));
        }
        grant_line("http", grant)
    }

    fn shown_host(&self) -> &str {
        shown_host(&self.host)
    }
}

/// As much of a host as a message has room for.
pub fn shown_host(host: &str) -> &str {
    &host[..host.floor_char_boundary(SHOWN_HOST_BYTES_MAX)]
}

/// `GET https://example.com:8443`
impl std::fmt::Display for Destination {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = scheme_name(self.https);
        let host = self.shown_host();
        if host.parse::<Ipv6Addr>().is_ok() {
            write!(f, "{} {scheme}://[{host}]", self.method)?;
        } else {
            write!(f, "{} {scheme}://{host}", self.method)?;
        }
        if self.port != default_port(scheme) {
            write!(f, ":{}", self.port)?;
        }
        Ok(())
    }
}

/// How far `grants` let `destination` go; none when no grant covers it.
pub fn reach(grants: &[HttpGrant], destination: &Destination) -> Option<Reach> {
    let mut reach = None;
    for grant in grants {
        match covers(grant, destination) {
            Some(Reach::Anywhere) => return Some(Reach::Anywhere),
            Some(Reach::PublicOnly) => reach = Some(Reach::PublicOnly),
            None => {}
        }
    }
    reach
}

fn covers(grant: &HttpGrant, destination: &Destination) -> Option<Reach> {
    let scheme = scheme_name(destination.https);
    let port = grant.port.unwrap_or(default_port(scheme));
    let method = grant.methods.is_empty() || grant.methods.contains(&destination.method);
    if !grant.scheme.eq_ignore_ascii_case(scheme) || port != destination.port || !method {
        return None;
    }
    host_reach(&grant.host, &destination.host, destination.ip())
}

/// How far a grant for `granted`, a host or a pattern of hosts, lets go to `host`, which may be an address.
pub fn host_reach(granted: &str, host: &str, ip: Option<IpAddr>) -> Option<Reach> {
    if granted == "*" {
        return Some(Reach::PublicOnly);
    }
    if let Some(domain) = granted.strip_prefix("*.") {
        let below = host
            .strip_suffix(&plain_host(domain))
            .and_then(|name| name.strip_suffix('.'))
            .is_some_and(|name| !name.is_empty());
        // An address is not below any domain, whatever its digits are.
        return (below && ip.is_none()).then_some(Reach::PublicOnly);
    }
    let granted = plain_host(granted);
    let same = match (granted.parse::<IpAddr>(), ip) {
        (Ok(granted), Some(asked)) => granted.to_canonical() == asked.to_canonical(),
        _ => granted == host,
    };
    same.then_some(Reach::Anywhere)
}

/// In lower case, without the brackets of an IPv6 address and without a final dot.
pub fn plain_host(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

fn scheme_name(https: bool) -> &'static str {
    if https { "https" } else { "http" }
}

fn default_port(scheme: &str) -> u16 {
    if scheme == "https" { 443 } else { 80 }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        }
    }

    fn reaches(grant: &HttpGrant, uri: &str) -> Option<Reach> {
        reach(std::slice::from_ref(grant), &to("GET", uri).unwrap())
    }

    #[test]
    fn nothing_is_granted_by_default() {
        assert_eq!(
            reach(&[], &to("GET", "https://example.com/").unwrap()),
            None
        );
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
            assert_eq!(reaches(&granted, same), Some(Reach::Anywhere), "{same}");
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
            assert_eq!(reaches(&granted, below), Some(Reach::PublicOnly), "{below}");
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
            Some(Reach::PublicOnly)
        );
        assert_eq!(
            reaches(&granted, "https://127.0.0.1/"),
            Some(Reach::PublicOnly)
        );
        assert_eq!(reaches(&granted, "http://anything.test/"), None);
    }

    #[test]
    fn an_exact_grant_beats_a_wildcard() {
        let grants = [grant("http", "*"), grant("http", "localhost")];
        let destination = to("GET", "http://localhost/").unwrap();
        assert_eq!(reach(&grants, &destination), Some(Reach::Anywhere));
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
        let reach_of = |method, uri| reach(&grants, &to(method, uri).unwrap());
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
    fn a_line_that_grants_is_toml_whatever_is_named() {
        let name = "a\"b' \\ {}\n\u{7f}\u{1}é";
        let line = grant_line("keyvalue", [("bucket", name.into()), ("port", 1.into())]);
        assert!(!line.contains('\n'), "{line}");
        let read: toml::Table = line.parse().unwrap();
        assert_eq!(read["grants"]["keyvalue"][0]["bucket"].as_str(), Some(name));
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
