//! How far a grant of a host or of a pattern of hosts reaches.

use std::net::IpAddr;

use crate::capability::network::address::is_public;

/// The longest host name in a message. A guest may ask for a longer name.
const SHOWN_HOST_BYTES_MAX: usize = 253;

/// How far a grant reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reach {
    /// The grant names this exact host, wherever it is.
    Anywhere,
    /// The grant is a pattern: it reaches public addresses only.
    PublicOnly,
}

impl Reach {
    pub(crate) fn includes(self, address: IpAddr) -> bool {
        self == Reach::Anywhere || is_public(address)
    }
}

/// Return how far a grant of `granted`, a host or a pattern of hosts, reaches for `host`. `ip` is the host's address, if
/// the host is one.
pub(crate) fn host_reach(granted: &str, host: &str, ip: Option<IpAddr>) -> Option<Reach> {
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

/// Return `host` in lower case, without the brackets of an IPv6 address and without a final dot.
pub(crate) fn plain_host(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Return as much of a host as fits a message.
pub(crate) fn shown_host(host: &str) -> &str {
    &host[..host.floor_char_boundary(SHOWN_HOST_BYTES_MAX)]
}
