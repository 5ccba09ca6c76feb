//! The proxies of this machine: where the user's environment names some, requests of commands go on through them, as this program's own do.
//!
//! What stands behind such a proxy is looked up by it, and not by this program.
use super::{Denial, HEAD_TIME, ask::HEAD_MAX, read_head};
use crate::plan::Host;
use std::{
    collections::BTreeMap,
    fmt,
    net::{IpAddr, Ipv6Addr},
};
use tokio::{
    io::{AsyncBufRead, AsyncWrite, AsyncWriteExt as _},
    time::timeout,
};

/// The proxies that an environment names.
#[derive(Debug, Clone, Default)]
pub struct Upstream {
    plain: Option<Next>,
    encrypted: Option<Next>,
    /// What is called without one.
    direct: Vec<String>,
}

/// A proxy to go on through.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Next {
    /// This one, with the value of the header that lets in.
    Proxy { address: String, authorization: Option<String> },
    /// One that is spoken with otherwise than by HTTP without encryption, by its scheme.
    Other(String),
}

impl fmt::Debug for Next {
    /// Shows where it is, and no password.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Next::Proxy { address, .. } => f.write_str(address),
            Next::Other(scheme) => write!(f, "{scheme}://…"),
        }
    }
}

impl Upstream {
    /// Reads what an environment says of proxies.
    pub fn of(environment: &BTreeMap<String, String>) -> Upstream {
        let variable = |name: &str| {
            let said = [name.to_ascii_uppercase(), name.to_owned()].into_iter().find_map(|name| environment.get(&name));
            said.map(|value| value.trim()).filter(|value| !value.is_empty())
        };
        let proxy = |name| variable(name).or_else(|| variable("all_proxy")).map(Next::read);
        let direct = variable("no_proxy").into_iter().flat_map(|list| list.split(',')).map(|name| name.trim().to_ascii_lowercase());
        Upstream { plain: proxy("http_proxy"), encrypted: proxy("https_proxy"), direct: direct.filter(|name| !name.is_empty()).collect() }
    }

    /// Returns the proxy to call a host through, for plain requests or for connections.
    pub(super) fn next(&self, host: &Host, is_tunnel: bool) -> Option<&Next> {
        let next = if is_tunnel { &self.encrypted } else { &self.plain };
        next.as_ref().filter(|_| !self.is_direct(host))
    }

    fn is_direct(&self, host: &Host) -> bool {
        let is_it = |said: &str| match host {
            Host::Name(name) => {
                let said = said.strip_prefix('*').unwrap_or(said);
                let said = said.strip_prefix('.').unwrap_or(said);
                name.strip_suffix(said).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            Host::Address(address) => is_in(*address, said),
        };
        matches!(host, Host::Address(address) if address.is_loopback()) || self.direct.iter().any(|said| said == "*" || is_it(said))
    }
}

impl Next {
    fn read(url: &str) -> Next {
        let (scheme, rest) = url.split_once("://").unwrap_or(("http", url));
        if !scheme.eq_ignore_ascii_case("http") {
            return Next::Other(scheme.to_ascii_lowercase());
        }
        let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
        let (user, place) = authority.rsplit_once('@').map_or((None, authority), |(user, place)| (Some(user), place));
        let has_port = place.rsplit_once(':').is_some_and(|(host, port)| !port.is_empty() && (!host.contains(':') || host.ends_with(']')));
        let address = if has_port { place.to_owned() } else { format!("{}:80", place.trim_end_matches(':')) };
        Next::Proxy { address, authorization: user.map(|user| format!("Basic {}", base64(&decoded(user)))) }
    }

    /// Returns the header that lets in, where one is needed.
    pub(super) fn authorization(&self) -> Option<String> {
        let Next::Proxy { authorization: Some(said), .. } = self else { return None };
        Some(format!("Proxy-Authorization: {said}"))
    }

    /// Returns where it is.
    pub(super) fn address(&self) -> Result<&str, Denial> {
        match self {
            Next::Proxy { address, .. } => Ok(address),
            Next::Other(scheme) => Err(Denial::Unreachable(format!("the proxy of this machine is one of `{scheme}://`: the sandbox takes one of `http://`"))),
        }
    }

    /// Asks it for a connection to a place.
    pub(super) async fn connect(&self, place: &str, read: &mut (impl AsyncBufRead + Unpin), write: &mut (impl AsyncWrite + Unpin)) -> Result<(), Denial> {
        let allowed = self.authorization().map(|line| line + "\r\n").unwrap_or_default();
        let asked = async {
            write.write_all(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n{allowed}\r\n").as_bytes()).await?;
            read_head(read, HEAD_MAX).await
        };
        let said = timeout(HEAD_TIME, asked).await.map_err(|_| Denial::Unreachable("the proxy of this machine does not answer".to_owned()))?;
        let said = said.map_err(|error| Denial::Unreachable(format!("the proxy of this machine does not answer: {error}")))?;
        let status = str::from_utf8(&said).ok().and_then(|head| head.strip_prefix("HTTP/1.")?.get(2..5)).unwrap_or_default();
        if status.starts_with('2') { Ok(()) } else { Err(Denial::Unreachable(format!("the proxy of this machine answers with {status}"))) }
    }
}

/// Returns whether an address is the one, or in the network (`10.0.0.0/8`), that a text names.
fn is_in(address: IpAddr, said: &str) -> bool {
    let bits = |address: IpAddr| if let IpAddr::V4(address) = address { address.to_ipv6_mapped() } else { v6(address) }.to_bits();
    let (network, length) = said.split_once('/').map_or((said, None), |(network, length)| (network, Some(length)));
    let Some(Host::Address(network)) = Host::parse(network) else { return false };
    let most: u32 = if network.is_ipv4() { 32 } else { 128 };
    let Some(length) = length.map_or(Some(most), |length| length.parse().ok().filter(|length| *length <= most)) else { return false };
    network.is_ipv4() == address.is_ipv4() && (bits(network) ^ bits(address)).checked_shr(most - length).unwrap_or_default() == 0
}

fn v6(address: IpAddr) -> Ipv6Addr {
    if let IpAddr::V6(address) = address { address } else { Ipv6Addr::UNSPECIFIED }
}

/// Undoes `%40` and the like.
fn decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while let Some(byte) = bytes.get(at) {
        let escaped = text.get(at + 1..at + 3).filter(|_| *byte == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        out.push(escaped.unwrap_or(*byte));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    out
}

/// Writes bytes as RFC 4648, 4 says.
fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let bits = three.iter().fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte)) << (8 * (3 - three.len()));
        for letter in 0..4 {
            let six = (bits >> (18 - 6 * letter)) & 63;
            out.push(if letter <= three.len() { char::from(LETTERS[six as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn upstream(variables: &[(&str, &str)]) -> Upstream {
        Upstream::of(&variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect())
    }

    #[test]
    fn the_environment_says_who_is_called_through_which_proxy() {
        let upstream = upstream(&[
            ("https_proxy", "http://me:a%40b@proxy.example:3128/"),
            ("ALL_PROXY", "proxy.example"),
            ("NO_PROXY", "a.org, .b.org,10.0.0.0/8,fd00::/8,[::2]"),
        ]);
        let next = |host: &str, is_tunnel| upstream.next(&Host::parse(host).unwrap(), is_tunnel);
        let proxy = next("c.org", true).unwrap();
        assert_eq!((proxy.address().unwrap(), proxy.authorization().as_deref()), ("proxy.example:3128", Some("Proxy-Authorization: Basic bWU6YUBi")));
        assert!(!format!("{upstream:?}").contains("a@b") && !format!("{upstream:?}").contains("bWU6"));
        assert_eq!((next("c.org", false).unwrap().address().unwrap(), next("c.org", false).unwrap().authorization()), ("proxy.example:80", None));
        assert!(["a.org", "x.a.org", "b.org", "x.b.org", "10.1.2.3", "[fd00::1]", "[::2]", "127.0.0.1", "[::1]"].iter().all(|host| next(host, true).is_none()));
        assert!(["aa.org", "11.0.0.1", "[::3]", "[fe00::1]"].iter().all(|host| next(host, true).is_some()));
    }

    #[test]
    fn a_proxy_that_speaks_otherwise_is_no_way_around() {
        let upstream = upstream(&[("HTTPS_PROXY", "socks5://proxy.example:1080")]);
        let next = upstream.next(&Host::parse("a.org").unwrap(), true).unwrap();
        assert!(matches!(next.address(), Err(Denial::Unreachable(why)) if why.contains("socks5://")));
    }

    #[test]
    fn text_in_base64_is_the_standards() {
        let of = |text: &str| base64(text.as_bytes());
        assert_eq!(["", "f", "fo", "foo", "foob", "fooba", "foobar"].map(of), ["", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"]);
    }
}
