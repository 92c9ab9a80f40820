//! How far a grant of a host or of a pattern of hosts reaches.
//!
//! A guest may choose a name that points anywhere. A pattern of names therefore reaches the public network only; the
//! machine itself and private networks must be granted by an exact name or address.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

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

/// Whether `address` is on the public network. This machine, private and local networks, multicast groups and reserved
/// ranges are not, nor are their IPv4 addresses inside an IPv6 address.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let refused = a == 0 // "this network"; for Linux 0.0.0.0 is this machine
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local() // also the metadata services of clouds
        || (a == 100 && b & 0b1100_0000 == 64) // shared by carriers, 100.64.0.0/10
        || (a == 192 && b == 0 && c == 0) // protocol assignments
        || (a == 198 && b & 0b1111_1110 == 18) // benchmarks, 198.18.0.0/15
        || address.is_documentation()
        || a >= 224; // multicast, reserved, broadcast
    !refused
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let segments = address.segments();
    let embedded = |high: u16, low: u16| {
        let [a, b] = high.to_be_bytes();
        let [c, d] = low.to_be_bytes();
        is_public_v4(Ipv4Addr::new(a, b, c, d))
    };
    match segments {
        // Unspecified, loopback, IPv4-compatible (::a.b.c.d, long abolished).
        [0, 0, 0, 0, 0, 0, _, _] => false,
        // IPv4-mapped.
        [0, 0, 0, 0, 0, 0xffff, high, low] => embedded(high, low),
        // IPv4-translated.
        [0, 0, 0, 0, 0xffff, 0, high, low] => embedded(high, low),
        // NAT64: the well-known prefix carries an IPv4 address, the local one anything.
        [0x64, 0xff9b, 0, 0, 0, 0, high, low] => embedded(high, low),
        [0x64, 0xff9b, ..] => false,
        // Discard-only.
        [0x100, ..] => false,
        // Teredo, benchmarks, documentation and the rest of the protocol assignments, 2001::/23.
        [0x2001, second, ..] if second < 0x200 || second == 0xdb8 => false,
        // 6to4.
        [0x2002, high, low, ..] => embedded(high, low),
        // Documentation, 3fff::/20.
        [0x3fff, second, ..] if second < 0x1000 => false,
        // Global unicast is 2000::/3; the rest is local, multicast or not assigned.
        [first, ..] => first & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_public_network_is_public() {
        for address in [
            "1.1.1.1",
            "93.184.216.34",
            "172.15.0.1",
            "172.32.0.1",
            "100.63.255.255",
            "100.128.0.1",
            "192.0.1.1",
            "198.17.0.1",
            "198.20.0.1",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2001:4860:4860::8888",
            "::ffff:1.1.1.1",
            "64:ff9b::1.1.1.1",
            "2002:0101:0101::1",
        ] {
            assert!(is_public(address.parse().unwrap()), "{address}");
        }
    }

    #[test]
    fn everything_inside_is_not() {
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "127.0.0.1",
            "127.255.255.254",
            "10.0.0.1",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.1.1",
            "169.254.169.254",
            "100.64.0.1",
            "100.127.255.255",
            "192.0.0.8",
            "192.0.2.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.7",
            "203.0.113.9",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::127.0.0.1",
            "::ffff:127.0.0.1",
            "::ffff:169.254.169.254",
            "::ffff:0:10.0.0.1",
            "64:ff9b::10.0.0.1",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:db8::1",
            "2002:7f00:0001::1",
            "2002:c0a8:0101::",
            "3fff:0fff::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "fec0::1",
            "ff02::1",
            "4000::1",
        ] {
            assert!(!is_public(address.parse().unwrap()), "{address}");
        }
    }
}
