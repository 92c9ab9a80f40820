//! How far a grant of a host or of a pattern of hosts reaches.
//!
//! The owner of a name decides where it leads, and a guest may choose a name below a pattern. A grant of a name
//! therefore reaches the public network only, unless the operator grants the private one too. A service that gives the
//! credentials of a machine to every process on it is reached only by a grant of its address.

use std::net::IpAddr;

use crate::capability::network::addresses::AddressKind;

/// The longest host name in a message. A guest may ask for a longer name.
const SHOWN_HOST_BYTES_MAX: usize = 253;

/// The name of this machine on every machine.
const LOCALHOST: &str = "localhost";

/// How far a grant reaches, the least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Reach {
    /// Public addresses.
    Public,
    /// Also loopback, private and all other addresses, but no metadata service: a grant of `localhost`, or of a name
    /// with `private = true`.
    Private,
    /// The address that the grant names, whatever it is.
    Anywhere,
}

impl Reach {
    pub(crate) fn includes(self, address: IpAddr) -> bool {
        let needed = match AddressKind::of(address) {
            AddressKind::Public => Reach::Public,
            AddressKind::Metadata => Reach::Anywhere,
            _ => Reach::Private,
        };
        self >= needed
    }
}

/// Returns how far a grant of `granted`, a host or a pattern of hosts, reaches for `host`. `is_private` is what the grant
/// says about private addresses. `ip` is the host's address, if the host is one.
pub(crate) fn host_reach(
    granted: &str,
    is_private: bool,
    host: &str,
    ip: Option<IpAddr>,
) -> Option<Reach> {
    if granted == "*" {
        return Some(Reach::Public);
    }
    let by_name = if is_private {
        Reach::Private
    } else {
        Reach::Public
    };
    if let Some(domain) = granted.strip_prefix("*.") {
        let below = host
            .strip_suffix(&plain_host(domain))
            .and_then(|name| name.strip_suffix('.'))
            .is_some_and(|name| !name.is_empty());
        // An address is not below any domain, whatever its digits are.
        return (below && ip.is_none()).then_some(by_name);
    }
    let granted = plain_host(granted);
    match (granted.parse::<IpAddr>(), ip) {
        (Ok(granted), Some(asked)) => {
            (granted.to_canonical() == asked.to_canonical()).then_some(Reach::Anywhere)
        }
        _ if granted != host => None,
        _ if granted == LOCALHOST => Some(Reach::Private),
        _ => Some(by_name),
    }
}

/// Whether `private = true` has a meaning for a grant of `host`: an address and `localhost` mean what they say, and `*`
/// is every public host.
pub fn has_private_addresses(host: &str) -> bool {
    let host = plain_host(host);
    host != "*" && host != LOCALHOST && host.parse::<IpAddr>().is_err()
}

/// Returns the kind of the address that `host` is, such as "loopback", if it is one that is not public. A name has none before
/// it is looked up.
pub fn private_address(host: &str) -> Option<&'static str> {
    let host = plain_host(host);
    if host == LOCALHOST {
        return Some(AddressKind::Loopback.as_str());
    }
    let kind = AddressKind::of(host.parse().ok()?);
    (kind != AddressKind::Public).then_some(kind.as_str())
}

/// Returns why a grant of `host` does not reach `address`, as the end of a sentence, with the host to grant instead, and
/// whether as a private one.
pub(crate) fn refused_address(host: &str, address: IpAddr) -> (String, String, bool) {
    let kind = AddressKind::of(address);
    let why = format!("leads to {address}, which is not a public address ({kind})");
    if kind == AddressKind::Metadata {
        let why =
            format!("{why}, and no name reaches such a service: let the task use the address");
        return (why, address.to_canonical().to_string(), false);
    }
    (why, host.to_owned(), has_private_addresses(host))
}

/// Returns `host` in lower case, without the brackets of an IPv6 address and without a final dot.
pub(crate) fn plain_host(host: &str) -> String {
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase()
}

/// Returns a host for use in messages. No valid name is longer, and showing part of one could reveal part of a secret.
pub(crate) fn shown_host(host: &str) -> &str {
    if host.len() <= SHOWN_HOST_BYTES_MAX {
        host
    } else {
        "a name of more than 253 bytes"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_reaches_public_addresses_and_others_only_when_granted() {
        let reaches = |granted: &str, is_private, host: &str, address: &str| {
            let reach = host_reach(granted, is_private, host, host.parse().ok());
            reach.is_some_and(|reach| reach.includes(address.parse().unwrap()))
        };
        let (public, loopback, private, metadata) =
            ("1.1.1.1", "127.0.0.1", "10.0.0.1", "169.254.169.254");
        for (granted, is_private, host, reached) in [
            ("api.test", false, "api.test", &[public][..]),
            ("api.test", true, "api.test", &[public, loopback, private]),
            ("*.test", false, "api.test", &[public]),
            ("*.test", true, "api.test", &[public, loopback, private]),
            ("*", true, "api.test", &[public]),
            (
                "localhost",
                false,
                "localhost",
                &[public, loopback, private],
            ),
            (
                "127.0.0.1",
                false,
                "127.0.0.1",
                &[public, loopback, private, metadata],
            ),
            ("other.test", true, "api.test", &[]),
        ] {
            for address in [public, loopback, private, metadata] {
                let expected = reached.contains(&address);
                let found = reaches(granted, is_private, host, address);
                assert_eq!(found, expected, "{granted} {is_private} {host} {address}");
            }
        }
    }
}
