//! The parts of requests: how each is read, and how it compares with the same part of a grant.

use crate::names::is_plain;
use crate::toml_reader::{Error, Section};
use campanile_model::text::is_printable_line;
use campanile_model::words;
use campanile_sandbox::{AccessMode, ENV_PREFIX, Protocol, has_private_addresses};

const PRIVATE: &str = Part::Private.as_str();

/// The longest name DNS can look up.
const HOST_BYTES_MAX: usize = 253;

/// The longest label of such a name, between two dots.
const LABEL_BYTES_MAX: usize = 63;

words! {
    /// One part of a request, with the key that holds it in sidecars and descriptions.
    Part {
        Access => "access",
        GuestPath => "guest",
        Bucket => "bucket",
        Scheme => "scheme",
        Protocol => "protocol",
        Host => "host",
        /// Whether the host may have private addresses: `private`, or empty.
        Private => "private",
        Port => "port",
        /// The name of an environment variable, without a key.
        Variable => "variable",
        /// Another name, without a key.
        Name => "name",
    }
}

impl Part {
    /// Read this part of a request in a description.
    pub(crate) fn read_from(self, section: &mut Section<'_>) -> Result<String, Error> {
        let key = self.as_str();
        let text = match self {
            Part::Port => read_port(section)?.map(|port| port.to_string()),
            Part::Private => {
                let host = section.text(Part::Host.as_str())?.unwrap_or_default();
                Some(private_text(read_private(section, &host)?))
            }
            _ => section.text(key)?,
        };
        let default = match self {
            Part::Access => Some("read"),
            Part::Protocol => Some("tcp"),
            Part::Scheme => Some("https"),
            _ => None,
        };
        let text = text.or(default.map(str::to_owned));
        let text = text.ok_or_else(|| section.error(key, "is missing"))?;
        self.check(&text).map_err(|what| section.error(key, what))?;
        Ok(text)
    }

    /// Check this part of a request; the error is a clause about its key.
    pub(crate) fn check(self, text: &str) -> Result<(), String> {
        match self {
            Part::Access => AccessMode::read(text).map(drop),
            Part::Protocol => Protocol::read(text).map(drop),
            Part::GuestPath => check_guest_path(text),
            Part::Variable if text.starts_with(ENV_PREFIX) => Err(format!(
                "asks for {text}: the host sets the variables that begin with {ENV_PREFIX}, and they cannot be granted"
            )),
            Part::Variable | Part::Name if text.is_empty() => Err("holds an empty text".to_owned()),
            Part::Host => parse_host(text).map(drop),
            Part::Bucket | Part::Variable | Part::Name if !is_printable_line(text) => Err(format!(
                "holds {text:?}: leave out the characters that can't be seen, or that end a line"
            )),
            _ => Ok(()),
        }
    }

    /// Whether this part of a grant covers the same part of a request.
    pub(super) fn covers(self, granted: &str, wanted: &str) -> bool {
        match self {
            Part::Access => granted == AccessMode::Write.as_str() || granted == wanted,
            Part::Scheme => granted.eq_ignore_ascii_case(wanted),
            Part::Host => covers_host(granted, wanted),
            Part::Private => wanted.is_empty() || granted == wanted,
            _ => granted == wanted,
        }
    }
}

/// Whether a grant for `granted` covers a request for `wanted`, each a host or a pattern.
///
/// Ports and methods do not count: an HTTP request does not name them, and the sandbox checks each call.
fn covers_host(granted: &str, wanted: &str) -> bool {
    let (granted, wanted) = (granted.to_ascii_lowercase(), wanted.to_ascii_lowercase());
    let is_below = |domain: &str| {
        let name = wanted.strip_suffix(domain);
        name.is_some_and(|name| name.len() > 1 && name.ends_with('.'))
    };
    granted == "*" || granted == wanted || granted.strip_prefix("*.").is_some_and(is_below)
}

/// Read the required key `access` of a sidecar.
pub(super) fn is_writable(section: &mut Section<'_>) -> Result<bool, Error> {
    let access = section.parsed("access", AccessMode::read)?;
    let access =
        access.ok_or_else(|| section.error_of_table("needs `access`: \"read\" or \"write\""))?;
    Ok(access == AccessMode::Write)
}

/// Read the key `private` of a grant or of a request for `host`.
pub(super) fn read_private(section: &mut Section<'_>, host: &str) -> Result<bool, Error> {
    let private = section.boolean(PRIVATE)?.unwrap_or(false);
    if private && host == "*" {
        let what = "is true, but `*` is every public host: name the hosts that are not public";
        return Err(section.error(PRIVATE, what));
    }
    Ok(private && has_private_addresses(host))
}

/// Returns [`Part::Private`] of a grant.
pub(super) fn private_text(is_private: bool) -> String {
    let text = if is_private { PRIVATE } else { "" };
    text.to_owned()
}

pub(super) fn read_port(section: &mut Section<'_>) -> Result<Option<u16>, Error> {
    section.number("port", 1, u64::from(u16::MAX))
}

/// Check a path inside a task; the error is a clause.
pub(super) fn check_guest_path(path: &str) -> Result<(), String> {
    let is_plain = path.starts_with('/')
        && is_printable_line(path)
        && path.split('/').all(|part| part != ".." && part != ".");
    let is_tidy = path == "/" || (!path.ends_with('/') && !path.contains("//"));
    if is_plain && is_tidy {
        return Ok(());
    }
    Err(format!(
        "is {path:?}, which is not a path inside a task: write one from the root, such as \"/data\", without `.` or `..`"
    ))
}

/// Returns a grant's host in lower case. The error is a clause.
pub(super) fn parse_host(host: &str) -> Result<String, String> {
    let host = host.to_ascii_lowercase();
    let name = host.strip_prefix("*.").unwrap_or(&host);
    let is_name = name.split('.').all(is_plain);
    if is_name
        && (name.len() > HOST_BYTES_MAX
            || name.split('.').any(|label| label.len() > LABEL_BYTES_MAX))
    {
        return Err(format!(
            "is a name that DNS can't look up: write at most {HOST_BYTES_MAX} bytes, and {LABEL_BYTES_MAX} between two dots"
        ));
    }
    if host == "*" || is_name || host.parse::<std::net::IpAddr>().is_ok() {
        return Ok(host);
    }
    Err(format!(
        "is {host:?}, which is not a host: write a name or an address without scheme, port or path, or \"*.example.com\", or \"*\""
    ))
}
