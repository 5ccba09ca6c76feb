//! The head of a request to the proxy: what it asks for, and what goes on to the host of it.
//!
//! Whatever two readers could take for different things is refused: a head is read here once, and the host gets what was read.
use crate::plan::Host;

/// Longest head that is read, in bytes.
pub(super) const HEAD_MAX: usize = 64 * 1024;
/// The port of a URL that names none.
const HTTP: u16 = 80;
/// Headers that are between two neighbours alone (RFC 9110, 7.6.1), and those that are written anew.
const DROPPED: &[&str] = &["connection", "host", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection", "te", "upgrade"];

/// What a request asks for.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Asked {
    pub(super) host: Host,
    pub(super) port: u16,
    pub(super) what: Wanted,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// A connection, whatever goes through it.
    Tunnel,
    /// One request, and its answer.
    Exchange(Exchange),
}

/// A request that goes on to its host.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Exchange {
    method: String,
    path: String,
    version: &'static str,
    headers: Vec<String>,
    pub(super) body: Body,
}

/// What stands behind the head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Body {
    /// So many bytes.
    Bytes(u64),
    /// Pieces, each with its length before it.
    Chunks,
}

/// Reads a head, with the empty line that ends it.
///
/// # Errors
/// What is wrong with it.
pub(super) fn read(head: &[u8]) -> Result<Asked, &'static str> {
    let text = str::from_utf8(head).ok().and_then(|text| text.strip_suffix("\r\n\r\n")).ok_or("the head of the request is cut short, or no text")?;
    let mut lines = text.split("\r\n");
    let first = lines.next().unwrap_or_default();
    let headers = lines.map(header).collect::<Option<Vec<_>>>().ok_or("a header of the request is none")?;
    let [method, target, version] = first.split(' ').collect::<Vec<_>>()[..] else { return Err("the request has no method, target and version") };
    let version = ["HTTP/1.0", "HTTP/1.1"].into_iter().find(|known| *known == version).ok_or("the request is not in HTTP/1.1")?;
    if !is_token(method) || !target.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the method or target of the request is none");
    }
    if method == "CONNECT" {
        let (host, port) = place(target, None).ok_or("CONNECT takes a host and a port")?;
        return Ok(Asked { host, port, what: Wanted::Tunnel });
    }
    let wrong = "the target of the request is no URL of `http://`: what is encrypted is asked for by CONNECT";
    let rest = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).map(|_| &target[7..]).ok_or(wrong)?;
    let (authority, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let (host, port) = place(authority, Some(HTTP)).ok_or(wrong)?;
    let body = body(&headers, version)?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    let between: Vec<&str> = values(&headers, "connection").flat_map(|value| value.split(',')).map(str::trim).collect();
    let is_one = |names: &[&str], header: &Header<'_>| names.iter().any(|name| header.is(name));
    let goes_on = |header: &&Header<'_>| is_one(&["content-length", "transfer-encoding"], header) || !(is_one(DROPPED, header) || is_one(&between, header));
    let headers = headers.iter().filter(goes_on).map(|Header { name, value }| format!("{name}: {value}")).collect();
    let exchange = Exchange { method: method.to_owned(), path: path.split('#').next().unwrap_or_default().to_owned(), version, headers, body };
    Ok(Asked { host, port, what: Wanted::Exchange(exchange) })
}

impl Asked {
    /// Returns the host as it is written with its port; one of the web stands for itself.
    pub(super) fn place(&self) -> String {
        if matches!(self.port, 80 | 443) { self.host.to_string() } else { self.authority() }
    }

    /// Returns the host with its port.
    pub(super) fn authority(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }
}

impl Exchange {
    /// Writes the head that goes on: to the host itself, or to a proxy before it, which is told `authorization` where it asks for one.
    pub(super) fn head(&self, asked: &Asked, through: Option<&super::upstream::Next>) -> String {
        let host = if asked.port == HTTP { asked.host.to_string() } else { asked.authority() };
        let target = if through.is_some() { format!("http://{host}{}", self.path) } else { self.path.clone() };
        let mut lines = vec![format!("{} {target} {}", self.method, self.version), format!("Host: {host}")];
        lines.extend(through.and_then(super::upstream::Next::authorization));
        lines.extend(self.headers.iter().cloned());
        lines.push("Connection: close\r\n\r\n".to_owned());
        lines.join("\r\n")
    }
}

struct Header<'a> {
    name: &'a str,
    value: &'a str,
}

impl Header<'_> {
    fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }
}

/// Reads `name: value`.
fn header(line: &str) -> Option<Header<'_>> {
    let (name, value) = line.split_once(':')?;
    let value = value.trim_matches([' ', '\t']);
    (is_token(name) && !value.contains(['\r', '\n', '\0'])).then_some(Header { name, value })
}

fn values<'a>(headers: &'a [Header<'a>], name: &'a str) -> impl Iterator<Item = &'a str> {
    headers.iter().filter(move |header| header.is(name)).map(|header| header.value)
}

fn body(headers: &[Header<'_>], version: &str) -> Result<Body, &'static str> {
    let of = |name| values(headers, name).collect::<Vec<_>>();
    match (&of("content-length")[..], &of("transfer-encoding")[..]) {
        ([], []) => Ok(Body::Bytes(0)),
        ([length], []) if !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit()) => {
            length.parse().map(Body::Bytes).map_err(|_| "the request says no length of its body")
        }
        ([], [coding]) if coding.eq_ignore_ascii_case("chunked") && version == "HTTP/1.1" => Ok(Body::Chunks),
        _ => Err("the request says no length of its body, or two"),
    }
}

/// Reads `host:port`, where the port may be left out if there is one to take.
fn place(text: &str, default: Option<u16>) -> Option<(Host, u16)> {
    match text.rsplit_once(':') {
        Some((host, port)) if !host.contains(':') || host.ends_with(']') => {
            let port = port.parse().ok().filter(|number| *number > 0 && port.bytes().all(|byte| byte.is_ascii_digit()))?;
            Some((Host::parse(host)?, port))
        }
        Some(_) if !text.ends_with(']') => None,
        Some(_) | None => Some((Host::parse(text)?, default?)),
    }
}

fn is_token(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Result<Asked, &'static str> {
        read(format!("{}\r\n\r\n", text.replace('\n', "\r\n")).as_bytes())
    }

    fn sent(text: &str) -> (String, Body) {
        let asked = head(text).unwrap();
        let Wanted::Exchange(exchange) = &asked.what else { panic!("{asked:?}") };
        (exchange.head(&asked, None), exchange.body)
    }

    #[test]
    fn what_goes_on_is_for_the_host_that_was_judged() {
        let (text, body) = sent(
            "GET HTTP://A.org?q#f HTTP/1.1\nHost: other.org\nX: y\nProxy-Authorization: z\nKeep: 1\nConnection: keep-alive, keep, content-length\nContent-Length: 5",
        );
        assert_eq!(text, "GET /?q HTTP/1.1\r\nHost: a.org\r\nX: y\r\nContent-Length: 5\r\nConnection: close\r\n\r\n");
        assert_eq!(body, Body::Bytes(5));
        let (text, body) = sent("POST http://[::1]:8080/a/b HTTP/1.1\nTransfer-Encoding: Chunked");
        assert_eq!(text, "POST /a/b HTTP/1.1\r\nHost: [::1]:8080\r\nTransfer-Encoding: Chunked\r\nConnection: close\r\n\r\n");
        assert_eq!(body, Body::Chunks);
        let asked = head("CONNECT a.org:8443 HTTP/1.1\nHost: b.org:443").unwrap();
        assert_eq!((asked.authority().as_str(), asked.what), ("a.org:8443", Wanted::Tunnel));
    }

    #[test]
    fn what_two_could_read_in_two_ways_is_refused() {
        for text in [
            "",
            "GET / HTTP/1.1",
            "GET https://a.org/ HTTP/1.1",
            "GET http://me@a.org/ HTTP/1.1",
            "GET http:///x HTTP/1.1",
            "GET http://a.org:0/ HTTP/1.1",
            "GET http://a.org/ HTTP/2",
            "GET  http://a.org/ HTTP/1.1",
            "GET http://a.org/é HTTP/1.1",
            "CONNECT a.org HTTP/1.1",
            "CONNECT http://a.org:1 HTTP/1.1",
            "CONNECT 127.1:80 HTTP/1.1",
            "GET http://a.org/ HTTP/1.1\nA: b\n c",
            "GET http://a.org/ HTTP/1.1\nA : b",
            "GET http://a.org/ HTTP/1.1\nA: b\rC: d",
            "GET http://a.org/ HTTP/1.1\nA: b\0",
            "GET http://a.org/ HTTP/1.1\nContent-Length: 1\nContent-Length: 1",
            "GET http://a.org/ HTTP/1.1\nContent-Length: 1\nTransfer-Encoding: chunked",
            "GET http://a.org/ HTTP/1.1\nContent-Length: +1",
            "GET http://a.org/ HTTP/1.1\nContent-Length: 1, 1",
            "GET http://a.org/ HTTP/1.1\nTransfer-Encoding: gzip, chunked",
            "GET http://a.org/ HTTP/1.0\nTransfer-Encoding: chunked",
        ] {
            assert!(head(text).is_err(), "{text}");
        }
        assert!(read(b"GET http://a.org/ HTTP/1.1\nA: b\r\n\r\n").is_err() && read(b"GET http://a.org/ HTTP/1.1\r\n").is_err());
    }
}
