//! The kinds of addresses: one table of every range that is not public.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use campanile_model::words;

words! {
    /// The kind of network that an address belongs to, with the words of a message.
    AddressKind {
        Public => "public",
        Loopback => "loopback",
        LinkLocal => "link-local",
        /// A private network, or a unique local address of IPv6.
        Private => "private",
        /// Shared by the customers of a carrier (NAT).
        Carrier => "carrier-grade NAT",
        Multicast => "multicast",
        /// For no host: unspecified, documentation, benchmarks, or not assigned.
        Reserved => "reserved",
        /// A service of a cloud that gives credentials to every process of a machine.
        Metadata => "metadata service",
    }
}

impl AddressKind {
    /// Returns the kind of `address`. An IPv4 address inside an IPv6 address counts as itself.
    pub(crate) fn of(address: IpAddr) -> AddressKind {
        match address {
            IpAddr::V4(address) => of_v4(address),
            IpAddr::V6(address) => of_v6(address),
        }
    }
}

/// The ranges of IPv4: first address, length of the prefix in bits, and kind. The first row that has an address counts;
/// an address in no row is public.
const RANGES_V4: [(Ipv4Addr, u32, AddressKind); 21] = [
    // AWS, Azure, Google and most others at .169; containers of AWS at .170.
    (Ipv4Addr::new(169, 254, 169, 0), 24, AddressKind::Metadata),
    (Ipv4Addr::new(169, 254, 170, 0), 24, AddressKind::Metadata),
    (Ipv4Addr::new(169, 254, 0, 23), 32, AddressKind::Metadata), // Tencent
    (Ipv4Addr::new(169, 254, 42, 42), 32, AddressKind::Metadata), // Scaleway
    (Ipv4Addr::new(100, 100, 100, 200), 32, AddressKind::Metadata), // Alibaba
    (Ipv4Addr::new(168, 63, 129, 16), 32, AddressKind::Metadata), // Azure
    (Ipv4Addr::new(192, 0, 0, 192), 32, AddressKind::Metadata),  // Oracle
    // "This network"; for Linux 0.0.0.0 is this machine.
    (Ipv4Addr::new(0, 0, 0, 0), 8, AddressKind::Reserved),
    (Ipv4Addr::new(10, 0, 0, 0), 8, AddressKind::Private),
    (Ipv4Addr::new(100, 64, 0, 0), 10, AddressKind::Carrier),
    (Ipv4Addr::new(127, 0, 0, 0), 8, AddressKind::Loopback),
    (Ipv4Addr::new(169, 254, 0, 0), 16, AddressKind::LinkLocal),
    (Ipv4Addr::new(172, 16, 0, 0), 12, AddressKind::Private),
    (Ipv4Addr::new(192, 0, 0, 0), 24, AddressKind::Reserved), // protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24, AddressKind::Reserved), // documentation
    (Ipv4Addr::new(192, 168, 0, 0), 16, AddressKind::Private),
    (Ipv4Addr::new(198, 18, 0, 0), 15, AddressKind::Reserved), // benchmarks
    (Ipv4Addr::new(198, 51, 100, 0), 24, AddressKind::Reserved), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24, AddressKind::Reserved), // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 4, AddressKind::Multicast),
    (Ipv4Addr::new(240, 0, 0, 0), 4, AddressKind::Reserved),
];

/// The ranges of IPv6, as those of IPv4. Only global unicast, 2000::/3, is public outside of these rows.
const RANGES_V6: [(Ipv6Addr, u32, AddressKind); 16] = [
    (v6(0xfd00, 0x0ec2, 0x0254), 128, AddressKind::Metadata), // AWS
    (v6(0xfd00, 0x0ec2, 0x0023), 128, AddressKind::Metadata), // containers of AWS
    (v6(0xfd20, 0x00ce, 0x0254), 128, AddressKind::Metadata), // Google
    (v6(0xfd00, 0x0042, 0x0042), 128, AddressKind::Metadata), // Scaleway
    (
        Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0xa9fe, 0xa9fe),
        128,
        AddressKind::Metadata,
    ), // OpenStack
    (Ipv6Addr::LOCALHOST, 128, AddressKind::Loopback),
    (v6(0x64, 0xff9b, 0), 32, AddressKind::Reserved), // NAT64 of a network's own
    (v6(0x100, 0, 0), 16, AddressKind::Reserved),     // discarded
    (v6(0x2001, 0, 0), 23, AddressKind::Reserved),    // Teredo and other protocols
    (v6(0x2001, 0xdb8, 0), 32, AddressKind::Reserved), // documentation
    (v6(0x3fff, 0, 0), 20, AddressKind::Reserved),    // documentation
    (v6(0xfc00, 0, 0), 7, AddressKind::Private),
    (v6(0xfe80, 0, 0), 10, AddressKind::LinkLocal),
    (v6(0xfec0, 0, 0), 10, AddressKind::Private), // site-local, abolished
    (v6(0xff00, 0, 0), 8, AddressKind::Multicast),
    (v6(0x2000, 0, 0), 3, AddressKind::Public),
];

/// Returns the address `first:second::last`.
const fn v6(first: u16, second: u16, last: u16) -> Ipv6Addr {
    Ipv6Addr::new(first, second, 0, 0, 0, 0, 0, last)
}

fn of_v4(address: Ipv4Addr) -> AddressKind {
    let same_bits = |first: &Ipv4Addr| (first.to_bits() ^ address.to_bits()).leading_zeros();
    kind_in(&RANGES_V4, same_bits).unwrap_or(AddressKind::Public)
}

fn of_v6(address: Ipv6Addr) -> AddressKind {
    let embedded =
        |high: u16, low: u16| of_v4(Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)));
    match address.segments() {
        // IPv4-mapped, IPv4-translated, and the well-known prefix of NAT64.
        [0, 0, 0, 0, 0, 0xffff, high, low]
        | [0, 0, 0, 0, 0xffff, 0, high, low]
        | [0x64, 0xff9b, 0, 0, 0, 0, high, low] => return embedded(high, low),
        // 6to4.
        [0x2002, high, low, ..] => return embedded(high, low),
        // IPv4-compatible, abolished, and a NAT64 of a network's own lead to nothing public.
        [0, 0, 0, 0, 0, 0, high, low] | [0x64, 0xff9b, 1, _, _, _, high, low]
            if !address.is_loopback() && embedded(high, low) != AddressKind::Public =>
        {
            return embedded(high, low);
        }
        _ => {}
    }
    let same_bits = |first: &Ipv6Addr| (first.to_bits() ^ address.to_bits()).leading_zeros();
    kind_in(&RANGES_V6, same_bits).unwrap_or(AddressKind::Reserved)
}

/// Returns the kind of the first of `ranges` that has an address, of whose bits the first `same_bits` are those of a
/// range's first address.
fn kind_in<A>(
    ranges: &[(A, u32, AddressKind)],
    same_bits: impl Fn(&A) -> u32,
) -> Option<AddressKind> {
    let range = ranges
        .iter()
        .find(|(first, bits, _)| same_bits(first) >= *bits);
    range.map(|(_, _, kind)| *kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(address: &str) -> AddressKind {
        AddressKind::of(address.parse().unwrap())
    }

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
            assert_eq!(kind(address), AddressKind::Public, "{address}");
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
            assert_ne!(kind(address), AddressKind::Public, "{address}");
        }
    }

    #[test]
    fn each_kind_is_told_apart_also_inside_an_ipv6_address() {
        for (address, expected) in [
            ("127.0.0.1", AddressKind::Loopback),
            ("::1", AddressKind::Loopback),
            ("169.254.1.1", AddressKind::LinkLocal),
            ("fe80::1", AddressKind::LinkLocal),
            ("10.1.2.3", AddressKind::Private),
            ("172.20.0.1", AddressKind::Private),
            ("192.168.0.1", AddressKind::Private),
            ("fd12::1", AddressKind::Private),
            ("100.64.0.1", AddressKind::Carrier),
            ("224.0.0.251", AddressKind::Multicast),
            ("ff02::fb", AddressKind::Multicast),
            ("0.0.0.0", AddressKind::Reserved),
            ("::", AddressKind::Reserved),
            ("::ffff:10.0.0.1", AddressKind::Private),
            ("64:ff9b::192.168.0.1", AddressKind::Private),
            ("64:ff9b:1::10.0.0.1", AddressKind::Private),
            ("64:ff9b:1::1.1.1.1", AddressKind::Reserved),
            ("::1.1.1.1", AddressKind::Reserved),
            ("2002:7f00:1::1", AddressKind::Loopback),
        ] {
            assert_eq!(kind(address), expected, "{address}");
        }
    }

    #[test]
    fn a_metadata_service_is_known_in_every_spelling() {
        for address in [
            "169.254.169.254",
            "169.254.169.253",
            "169.254.170.2",
            "169.254.170.23",
            "100.100.100.200",
            "168.63.129.16",
            "192.0.0.192",
            "fd00:ec2::254",
            "fd00:ec2::23",
            "fd20:ce::254",
            "fe80::a9fe:a9fe",
            "::ffff:169.254.169.254",
            "::ffff:0:169.254.169.254",
            "::169.254.169.254",
            "64:ff9b::169.254.169.254",
            "64:ff9b:1::169.254.169.254",
            "2002:a9fe:a9fe::1",
        ] {
            assert_eq!(kind(address), AddressKind::Metadata, "{address}");
        }
    }
}
