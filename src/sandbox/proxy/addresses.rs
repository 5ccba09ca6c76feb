//! Addresses that no name leads a command to: of this machine, of its network, and of nobody.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Networks of version 4 that are not the public one, from IANA's registry of special purposes, and multicast; with the bits that count.
const RESERVED: &[(Ipv4Addr, u32)] = &[
    (Ipv4Addr::UNSPECIFIED, 8),
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::new(127, 0, 0, 0), 8),
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    (Ipv4Addr::new(224, 0, 0, 0), 3),
];

/// The same of version 6; of all others only `2000::/3` is given to anybody.
const RESERVED_6: &[(Ipv6Addr, u32)] =
    &[(Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20)];

/// Returns whether an address is one of the public network.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => !RESERVED.iter().any(|(network, bits)| address.to_bits() >> (32 - bits) == network.to_bits() >> (32 - bits)),
        IpAddr::V6(address) => match address.segments() {
            // Translators to version 4: NAT64 and 6to4.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => is_public(inside(high, low)),
            [0x2000..=0x3fff, ..] => !RESERVED_6.iter().any(|(network, bits)| address.to_bits() >> (128 - bits) == network.to_bits() >> (128 - bits)),
            _ => false,
        },
    }
}

fn inside(high: u16, low: u16) -> IpAddr {
    Ipv4Addr::from_bits(u32::from(high) << 16 | u32::from(low)).into()
}

#[cfg(test)]
mod tests {
    use super::is_public;

    #[test]
    fn only_what_is_everybodys_is_public() {
        let is_public = |text: &str| is_public(text.parse().unwrap());
        for text in
            ["1.1.1.1", "100.63.255.255", "100.128.0.0", "172.15.0.1", "172.32.0.1", "223.255.255.255", "2606:4700::1", "64:ff9b::101:101", "2002:101:101::1"]
        {
            assert!(is_public(text), "{text}");
        }
        for text in [
            "0.0.0.0",
            "0.1.2.3",
            "10.9.8.7",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.9.9.9",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.168.0.1",
            "192.0.0.192",
            "198.19.0.1",
            "224.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::ffff:10.0.0.1",
            "::10.0.0.1",
            "fe80::1",
            "fd00:ec2::254",
            "fec0::1",
            "ff02::1",
            "64:ff9b::7f00:1",
            "64:ff9b:1::1",
            "2002:a00:1::1",
            "2001::1",
            "2001:db8::1",
            "4000::1",
        ] {
            assert!(!is_public(text), "{text}");
        }
    }
}
