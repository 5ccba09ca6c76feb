//! What commands may reach of the network: all, nothing, or hosts that are named.
//!
//! A destination is a host and its ports: `pypi.org` is that name, `*.pypi.org` every name below it and not itself, at any depth;
//! `127.0.0.1:8080` is one address. Letters count whatever their case, and a dot at the end of a name is none. Without a port it is
//! the two of the web, 80 and 443.
use std::{fmt, net::IpAddr};

/// The ports of a destination that names none.
const WEB: [u16; 2] = [80, 443];
/// Longest name of a host, and the longest part of one, in bytes: RFC 1035, 2.3.4.
const NAME_MAX: usize = 253;
const LABEL_MAX: usize = 63;

/// The network that an agent's commands reach.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum NetworkSpec {
    /// None but one of their own.
    #[default]
    None,
    /// These hosts, of which there is one at least.
    Only(Vec<Destination>),
    /// The machine's.
    Full,
}

/// A host, or all below a name, and where it may be called.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    host: Hosts,
    /// The one port; absent: those of the web.
    port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Hosts {
    /// This one.
    One(Host),
    /// Those below this name.
    Below(String),
}

/// A host as it is asked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Host {
    /// A name in lower case, without a dot at its end.
    Name(String),
    /// An address; one of version 4 in the clothes of version 6 is one of version 4.
    Address(IpAddr),
}

/// Why a text is no destination. Fits after the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoDestination {
    /// What is wrong.
    pub wrong: &'static str,
    /// What to write instead.
    pub help: &'static str,
}

impl NetworkSpec {
    /// Returns what both reach.
    #[must_use]
    pub fn within(&self, around: &NetworkSpec) -> NetworkSpec {
        match (self, around) {
            (NetworkSpec::None, _) | (_, NetworkSpec::None) => NetworkSpec::None,
            (NetworkSpec::Full, other) | (other, NetworkSpec::Full) => other.clone(),
            (NetworkSpec::Only(own), NetworkSpec::Only(others)) => {
                let mut both: Vec<Destination> = own.iter().flat_map(|own| others.iter().filter_map(|other| own.meet(other))).collect();
                both.sort();
                both.dedup();
                if both.is_empty() { NetworkSpec::None } else { NetworkSpec::Only(both) }
            }
        }
    }

    /// Returns what of it makes a step what it is.
    pub(crate) fn made_of(&self) -> serde_json::Value {
        match self {
            NetworkSpec::None => "None".into(),
            NetworkSpec::Only(_) => self.written(),
            NetworkSpec::Full => "Full".into(),
        }
    }

    /// Returns it as it is written: a word, or a list.
    pub fn written(&self) -> serde_json::Value {
        match self {
            NetworkSpec::None => "none".into(),
            NetworkSpec::Only(hosts) => hosts.iter().map(Destination::to_string).collect(),
            NetworkSpec::Full => "full".into(),
        }
    }
}

impl Host {
    /// Reads a host as it is asked for; an address of version 6 may stand in brackets. Nothing where the text is none.
    pub fn parse(text: &str) -> Option<Host> {
        let bare = text.strip_prefix('[').map_or(Some(text), |text| text.strip_suffix(']').filter(|inside| inside.contains(':')))?;
        if let Ok(address) = bare.parse::<IpAddr>() {
            return Some(Host::Address(address.to_canonical()));
        }
        let name = bare.strip_suffix('.').unwrap_or(bare).to_ascii_lowercase();
        is_name(&name).then_some(Host::Name(name))
    }
}

impl Destination {
    /// Reads a destination as it is written in a workflow.
    ///
    /// # Errors
    /// Where it is none, with what to write instead.
    pub fn parse(text: &str) -> Result<Destination, NoDestination> {
        let no = |wrong, help| Err(NoDestination { wrong, help });
        let is_plain = |text: &str| !text.contains(['/', '@', '?', '#', '{']) && !text.contains(char::is_whitespace);
        if text.is_empty() || !is_plain(text) {
            return no("is no host", "write the name alone: `pypi.org`, all below one: `*.pypi.org`, and a port where it is not 80 or 443: `pypi.org:8080`");
        }
        if !text.is_ascii() {
            return no("has letters that no name in the network has", "write it as it is there, which begins with `xn--`");
        }
        let (host, port) = match text.rsplit_once(':') {
            // Colons are of the address itself where there is no bracket at its end.
            Some((host, port)) if !host.contains(':') || host.ends_with(']') => match port.parse::<u16>() {
                Ok(number @ 1..) if port.bytes().all(|byte| byte.is_ascii_digit()) => (host, Some(number)),
                Ok(_) | Err(_) => return no("has no port behind its colon", "a port is a number from 1 to 65535"),
            },
            Some(_) | None => (text, None),
        };
        let Some(below) = host.strip_prefix("*.") else {
            return match Host::parse(host) {
                Some(Host::Address(IpAddr::V6(_))) if !host.starts_with('[') => no("is an address without brackets", "write it as `[::1]` or `[::1]:8080`"),
                Some(Host::Name(name)) if is_this_machine(&name) => no("is this machine", "name its address and the port: `127.0.0.1:8080`"),
                Some(host) => Ok(Destination { host: Hosts::One(host), port }),
                None if host == "*" => no("is everything", "write `network: full`, or name the hosts that are needed"),
                None if host.contains('*') => no("has its `*` where none can be", "`*.` at the beginning stands for all below a name: `*.pypi.org`"),
                None => no("is no host", "a name is letters, digits and `-`, parts joined by dots; an address is four numbers, or stands in brackets"),
            };
        };
        match Host::parse(below) {
            Some(Host::Name(name)) if is_this_machine(&name) => no("is this machine", "name its address and the port: `127.0.0.1:8080`"),
            Some(Host::Name(name)) if name.contains('.') => Ok(Destination { host: Hosts::Below(name), port }),
            Some(Host::Name(_)) => no("is nearly everything", "name what is below it: `*.pypi.org`"),
            Some(Host::Address(_)) => no("is below an address, where there is nothing", "write the address alone"),
            None => no("has its `*` where none can be, or is no host", "`*.` at the beginning stands for all below a name: `*.pypi.org`"),
        }
    }

    /// Returns whether a port of a host is one of it.
    pub fn has(&self, host: &Host, port: u16) -> bool {
        self.has_port(port) && self.host.has(host)
    }

    /// Returns whether it names this very address.
    pub fn names(&self, address: IpAddr, port: u16) -> bool {
        self.has(&Host::Address(address.to_canonical()), port)
    }

    /// Returns whether it names an address, whatever the port.
    pub fn is_at(&self, address: IpAddr) -> bool {
        self.host == Hosts::One(Host::Address(address.to_canonical()))
    }

    /// Returns whether all of another one is in it.
    pub fn covers(&self, other: &Destination) -> bool {
        self.meet(other).as_ref() == Some(other)
    }

    /// Returns what is in both.
    fn meet(&self, other: &Destination) -> Option<Destination> {
        let host = if self.host.covers(&other.host) {
            &other.host
        } else if other.host.covers(&self.host) {
            &self.host
        } else {
            return None;
        };
        let port = match (self.port, other.port) {
            (None, None) => None,
            (Some(port), at) | (at, Some(port)) => Some(port).filter(|port| at.map_or(WEB.contains(port), |at| at == *port)).map(Some)?,
        };
        Some(Destination { host: host.clone(), port })
    }

    fn has_port(&self, port: u16) -> bool {
        self.port.map_or(WEB.contains(&port), |own| own == port)
    }
}

impl Hosts {
    fn has(&self, host: &Host) -> bool {
        match (self, host) {
            (Hosts::One(own), host) => own == host,
            (Hosts::Below(above), Host::Name(name)) => is_below(name, above),
            (Hosts::Below(_), Host::Address(_)) => false,
        }
    }

    fn covers(&self, other: &Hosts) -> bool {
        match (self, other) {
            (own, Hosts::One(host)) => own.has(host),
            (Hosts::Below(above), Hosts::Below(name)) => name == above || is_below(name, above),
            (Hosts::One(_), Hosts::Below(_)) => false,
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Host::Name(name) => f.write_str(name),
            Host::Address(IpAddr::V4(address)) => address.fmt(f),
            Host::Address(IpAddr::V6(address)) => write!(f, "[{address}]"),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Hosts::One(host) => host.fmt(f)?,
            Hosts::Below(name) => write!(f, "*.{name}")?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

fn is_below(name: &str, above: &str) -> bool {
    name.strip_suffix(above).is_some_and(|rest| rest.ends_with('.') && rest.len() > 1)
}

/// Returns whether a name is of this machine, whatever it runs: RFC 6761, 6.3.
fn is_this_machine(name: &str) -> bool {
    name == "localhost" || is_below(name, "localhost")
}

/// Returns whether a text in lower case is the name of a host. One that ends in a number is an address written in another way: 127.1, 0x7f.1.
fn is_name(text: &str) -> bool {
    let is_label = |label: &str| {
        let ends = |end: Option<u8>| end.is_some_and(|byte| byte != b'-');
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'_'))
            && ends(label.bytes().next())
            && ends(label.bytes().last())
    };
    let last = text.rsplit('.').next().unwrap_or_default();
    let is_number =
        last.bytes().all(|byte| byte.is_ascii_digit()) || last.strip_prefix("0x").is_some_and(|rest| rest.bytes().all(|byte| byte.is_ascii_hexdigit()));
    text.len() <= NAME_MAX && !is_number && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Destination {
        Destination::parse(text).unwrap_or_else(|no| panic!("{text} {}", no.wrong))
    }

    fn has(pattern: &str, host: &str, port: u16) -> bool {
        of(pattern).has(&Host::parse(host).unwrap(), port)
    }

    #[test]
    fn a_name_is_itself_and_a_star_all_below() {
        assert!(has("PyPI.org", "pypi.ORG.", 443) && has("pypi.org.", "pypi.org", 80));
        assert!(!has("pypi.org", "files.pypi.org", 443) && !has("pypi.org", "pypi.org", 8080) && !has("pypi.org", "apypi.org", 443));
        assert!(has("*.pypi.org", "a.b.pypi.org", 443) && has("*.pypi.org:8443", "a.pypi.org", 8443));
        assert!(!has("*.pypi.org", "pypi.org", 443) && !has("*.pypi.org", "apypi.org", 443) && !has("*.pypi.org:8443", "a.pypi.org", 443));
        assert!(has("127.0.0.1:8080", "127.0.0.1", 8080) && has("[::1]:8080", "[0:0::1]", 8080) && has("10.0.0.1", "[::ffff:10.0.0.1]", 443));
        assert!(["127.1", "0x7f.1", "2130706433", "a..b", "-a.b", "a b", "[a]", "", "a.b:1"].iter().all(|text| Host::parse(text).is_none()));
    }

    #[test]
    fn what_is_no_destination_is_refused() {
        let wrong = |text: &str| Destination::parse(text).map_err(|no| no.wrong);
        for (text, said) in [
            ("https://pypi.org", "is no host"),
            ("pypi.org/simple", "is no host"),
            ("me@pypi.org", "is no host"),
            ("{{ inputs.host }}", "is no host"),
            ("", "is no host"),
            ("127.1", "is no host"),
            ("-a.org", "is no host"),
            ("bücher.de", "has letters that no name in the network has"),
            ("pypi.org:0", "has no port behind its colon"),
            ("pypi.org:65536", "has no port behind its colon"),
            ("pypi.org:+80", "has no port behind its colon"),
            ("pypi.org:", "has no port behind its colon"),
            ("::1", "is an address without brackets"),
            ("*", "is everything"),
            ("*.org", "is nearly everything"),
            ("a.*.org", "has its `*` where none can be"),
            ("*pypi.org", "has its `*` where none can be"),
            ("*.*.pypi.org", "has its `*` where none can be, or is no host"),
            ("*.127.0.0.1", "is below an address, where there is nothing"),
            ("localhost", "is this machine"),
            ("a.localhost:8080", "is this machine"),
            ("*.a.localhost", "is this machine"),
        ] {
            assert_eq!(wrong(text), Err(said), "{text}");
        }
    }

    #[test]
    fn two_lists_have_in_common_what_both_let_through() {
        let only = |texts: &[&str]| NetworkSpec::Only(texts.iter().map(|text| of(text)).collect());
        let (own, around) =
            (only(&["*.a.org", "b.c.org", "d.org:8080", "*.e.org:443"]), only(&["x.a.org", "*.c.org:80", "d.org", "*.x.e.org", "*.f.org", "a.org"]));
        assert_eq!(own.within(&around), only(&["b.c.org:80", "x.a.org", "*.x.e.org:443"]));
        assert_eq!(around.within(&own), own.within(&around));
        assert_eq!(own.within(&only(&["g.org"])), NetworkSpec::None);
        for (a, b, both) in [
            (NetworkSpec::Full, &own, &own),
            (own.clone(), &NetworkSpec::Full, &own),
            (own.clone(), &NetworkSpec::None, &NetworkSpec::None),
            (NetworkSpec::None, &NetworkSpec::Full, &NetworkSpec::None),
        ] {
            assert_eq!(&a.within(b), both);
        }
        assert!(of("*.a.org").covers(&of("x.a.org:443")) && !of("x.a.org:443").covers(&of("x.a.org")) && !of("a.org").covers(&of("b.org")));
    }
}
