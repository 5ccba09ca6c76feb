//! The one HTTP client: connections, watchdogs, proxies.
//!
//! A stream has no total time limit. What it has are two watchdogs: one for the first byte, armed when the request starts
//! (so a server that accepts and then says nothing is noticed), and one for silence between bytes, which any byte resets.
//! Redirects are not followed: a key must not travel to a host that nobody named. Proxies come from the environment,
//! except for loopback hosts. Nothing here retries.
use bytes::Bytes;
use futures_util::{Stream, stream};
use std::{sync::Arc, time::Duration};
use tokio::{sync::OnceCell, time::timeout};

/// How long a connection may take to be made.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// What is read of the body of an error at most, in bytes.
pub const ERROR_BODY_CAP: usize = 64 * 1024;
/// What is read of one streamed body at most, in bytes; also the bound on one event.
pub const BODY_CAP: usize = 64 * 1024 * 1024;

/// How long silence is borne.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timeouts {
    /// From the start of the request to the first byte of the body.
    pub first_byte: Duration,
    /// Between two pieces of the body.
    pub idle: Duration,
}

impl Default for Timeouts {
    /// 120 s to the first byte, 180 s between bytes.
    fn default() -> Timeouts {
        Timeouts { first_byte: Duration::from_mins(2), idle: Duration::from_mins(3) }
    }
}

/// A request as it goes on the wire. `Debug` shows no header's value: some are keys.
#[derive(Clone, PartialEq, Eq)]
pub struct HttpRequest {
    /// Where to.
    pub url: String,
    /// Names in lower case, in the order they are sent.
    pub headers: Vec<(String, String)>,
    /// The whole body.
    pub body: Vec<u8>,
}

impl std::fmt::Debug for HttpRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let names: Vec<&str> = self.headers.iter().map(|(name, _)| name.as_str()).collect();
        f.debug_struct("HttpRequest").field("url", &self.url).field("headers", &names).field("body_bytes", &self.body.len()).finish()
    }
}

/// Why a request gave no whole body.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The client could not be made.
    #[error("set up the HTTP client")]
    Setup(#[source] reqwest::Error),
    /// The machine has no root certificates, so no `https` host can be trusted.
    #[error("trust {host}: this machine has no root certificates")]
    NoCertificates {
        /// The host.
        host: String,
    },
    /// The URL or a header is not valid; its text is withheld, since it may hold a key.
    #[error("send a request to {host}: its URL or a header is not valid")]
    Invalid {
        /// The host, or `(no host)`.
        host: String,
    },
    /// No connection, or it broke before an answer.
    #[error("reach {host}")]
    Unreachable {
        /// The host.
        host: String,
        /// The client's reason.
        source: reqwest::Error,
    },
    /// Nothing came in time.
    #[error("get an answer from {host} within {} ms", after.as_millis())]
    NoAnswer {
        /// The host.
        host: String,
        /// The time that was borne.
        after: Duration,
    },
    /// The body stopped coming.
    #[error("read on from {host}: nothing came for {} ms", after.as_millis())]
    Idle {
        /// The host.
        host: String,
        /// The time that was borne.
        after: Duration,
    },
    /// The connection broke within the body.
    #[error("read on from {host}: the connection broke")]
    Broken {
        /// The host.
        host: String,
        /// The client's reason.
        source: reqwest::Error,
    },
    /// The body is larger than any sane one.
    #[error("read on from {host}: it sent more than {BODY_CAP} bytes")]
    TooLarge {
        /// The host.
        host: String,
    },
}

/// The client. Cheap to clone; clones share their connections.
#[derive(Debug, Clone)]
pub struct Client {
    /// For this machine, unencrypted: needs no certificates and no proxy.
    local: reqwest::Client,
    others: Arc<OnceCell<Others>>,
    connect: Duration,
}

/// For everybody else: made for the first of them.
#[derive(Debug)]
struct Others {
    proxied: reqwest::Client,
    direct: reqwest::Client,
    has_roots: bool,
}

impl Client {
    /// Makes the client. The machine's root certificates are only read for the first request that leaves this machine or is
    /// encrypted: reading them takes longer than all the rest of a start.
    ///
    /// # Errors
    /// `Setup` where the TLS library refuses.
    pub fn new() -> Result<Client, HttpError> {
        Client::with_connect_timeout(CONNECT_TIMEOUT)
    }

    /// Makes one that bears so long until a connection stands.
    ///
    /// # Errors
    /// As `new`.
    pub fn with_connect_timeout(connect: Duration) -> Result<Client, HttpError> {
        // A second installation changes nothing and says so: that is no error.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let local = builder(connect).no_proxy().tls_certs_only([]).build().map_err(HttpError::Setup)?;
        Ok(Client { local, others: Arc::default(), connect })
    }

    /// Returns the client for a URL.
    async fn client_for(&self, url: &reqwest::Url, host: &str) -> Result<&reqwest::Client, HttpError> {
        let is_local = is_loopback(host);
        if is_local && url.scheme() == "http" {
            return Ok(&self.local);
        }
        let others = self.others.get_or_try_init(|| async { Others::new(self.connect) }).await?;
        if url.scheme() == "https" && !others.has_roots {
            return Err(HttpError::NoCertificates { host: host.to_owned() });
        }
        Ok(if is_local { &others.direct } else { &others.proxied })
    }

    /// Sends `request` and waits for the head of the answer, whatever its status, and for the first piece of its body.
    ///
    /// # Errors
    /// Where no answer came; an answer with an error status is an answer.
    pub async fn post(&self, request: &HttpRequest, timeouts: Timeouts) -> Result<HttpResponse, HttpError> {
        self.send(reqwest::Method::POST, request, timeouts).await
    }

    /// Does the same with a GET; the request has no body.
    ///
    /// # Errors
    /// As `post`.
    pub async fn get(&self, request: &HttpRequest, timeouts: Timeouts) -> Result<HttpResponse, HttpError> {
        self.send(reqwest::Method::GET, request, timeouts).await
    }

    /// Does the same with a DELETE; the request has no body.
    ///
    /// # Errors
    /// As `post`.
    pub async fn delete(&self, request: &HttpRequest, timeouts: Timeouts) -> Result<HttpResponse, HttpError> {
        self.send(reqwest::Method::DELETE, request, timeouts).await
    }

    async fn send(&self, method: reqwest::Method, request: &HttpRequest, timeouts: Timeouts) -> Result<HttpResponse, HttpError> {
        let url = reqwest::Url::parse(&request.url).map_err(|_| HttpError::Invalid { host: "(no host)".to_owned() })?;
        let host = url.host_str().unwrap_or("(no host)").to_owned();
        let client = self.client_for(&url, &host).await?;
        let mut builder = client.request(method, url).body(request.body.clone());
        for (name, value) in &request.headers {
            builder = builder.header(name, value);
        }
        let built = builder.build().map_err(|_| HttpError::Invalid { host: host.clone() })?;
        let answer = async {
            let mut inner = client.execute(built).await.map_err(|error| HttpError::Unreachable { host: host.clone(), source: error.without_url() })?;
            let first = inner.chunk().await.map_err(|error| HttpError::Broken { host: host.clone(), source: error.without_url() })?;
            Ok((inner, first))
        };
        let (inner, first) =
            timeout(timeouts.first_byte, answer).await.map_err(|_| HttpError::NoAnswer { host: host.clone(), after: timeouts.first_byte })??;
        Ok(HttpResponse { read: first.as_ref().map_or(0, Bytes::len), ended: first.is_none(), inner, first, host, idle: timeouts.idle })
    }
}

impl Others {
    fn new(connect: Duration) -> Result<Others, HttpError> {
        let (proxied, has_roots) = match builder(connect).build() {
            Ok(client) => (client, true),
            // A machine without root certificates still talks to servers on `http`.
            Err(_) => (builder(connect).tls_certs_only([]).build().map_err(HttpError::Setup)?, false),
        };
        let direct = builder(connect).no_proxy();
        let direct = if has_roots { direct } else { direct.tls_certs_only([]) };
        Ok(Others { proxied, direct: direct.build().map_err(HttpError::Setup)?, has_roots })
    }
}

#[expect(clippy::disallowed_methods, reason = "this module makes the one client")]
fn builder(connect: Duration) -> reqwest::ClientBuilder {
    reqwest::Client::builder()
        .connect_timeout(connect)
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .tcp_nodelay(true)
        .pool_idle_timeout(Duration::from_mins(1))
        .user_agent(concat!("spinney/", env!("CARGO_PKG_VERSION")))
}

fn is_loopback(host: &str) -> bool {
    let host = host.trim_start_matches('[').trim_end_matches(']');
    host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The answer to a request: its head, and the body as it comes.
#[derive(Debug)]
pub struct HttpResponse {
    inner: reqwest::Response,
    first: Option<Bytes>,
    ended: bool,
    read: usize,
    host: String,
    idle: Duration,
}

impl HttpResponse {
    /// Returns the status code.
    pub fn status(&self) -> u16 {
        self.inner.status().as_u16()
    }

    /// Returns a header's value, where it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.inner.headers().get(name).and_then(|value| value.to_str().ok())
    }

    /// Returns how the body begins, before anything of it is taken.
    pub fn begins(&self) -> &[u8] {
        self.first.as_deref().unwrap_or_default()
    }

    /// Waits for the next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Where the connection broke, fell silent, or sent too much.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, HttpError> {
        if let Some(first) = self.first.take() {
            return Ok(Some(first));
        }
        if self.ended {
            return Ok(None);
        }
        let next = timeout(self.idle, self.inner.chunk()).await.map_err(|_| HttpError::Idle { host: self.host.clone(), after: self.idle })?;
        let next = next.map_err(|error| HttpError::Broken { host: self.host.clone(), source: error.without_url() })?;
        self.ended = next.is_none();
        self.read = self.read.saturating_add(next.as_ref().map_or(0, Bytes::len));
        if self.read > BODY_CAP { Err(HttpError::TooLarge { host: self.host.clone() }) } else { Ok(next) }
    }

    /// Returns the body as a stream, which ends after its first error.
    pub fn into_stream(self) -> impl Stream<Item = Result<Bytes, HttpError>> + Send {
        stream::unfold(Some(self), |state| async {
            let mut response = state?;
            match response.chunk().await {
                Ok(Some(bytes)) => Some((Ok(bytes), Some(response))),
                Ok(None) => None,
                Err(error) => Some((Err(error), None)),
            }
        })
    }

    /// Reads the body of an error as text: at most [`ERROR_BODY_CAP`] bytes, and what came before it broke.
    pub async fn error_text(self) -> String {
        self.text(ERROR_BODY_CAP).await.0
    }

    /// Reads the body as text, at most `cap` bytes of it; returns too why it broke, where it did.
    pub async fn text(mut self, cap: usize) -> (String, Option<HttpError>) {
        let mut bytes = Vec::new();
        let mut broken = None;
        while bytes.len() < cap {
            match self.chunk().await {
                Ok(Some(piece)) => bytes.extend_from_slice(&piece),
                Ok(None) => break,
                Err(error) => {
                    broken = Some(error);
                    break;
                }
            }
        }
        bytes.truncate(cap);
        (String::from_utf8_lossy(&bytes).into_owned(), broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_hosts_are_known_by_name_and_address() {
        for host in ["localhost", "LOCALHOST", "127.0.0.1", "127.9.9.9", "[::1]"] {
            assert!(is_loopback(host), "{host}");
        }
        for host in ["localhost.example.com", "10.0.0.1", "api.example.com", ""] {
            assert!(!is_loopback(host), "{host}");
        }
    }

    #[test]
    fn a_request_shows_no_header_value() {
        let request =
            HttpRequest { url: "https://example.com/v1".to_owned(), headers: vec![("x-api-key".to_owned(), "sk-secret".to_owned())], body: b"{}".to_vec() };
        let shown = format!("{request:?}");
        assert!(shown.contains("x-api-key") && !shown.contains("sk-secret"), "{shown}");
    }

    #[tokio::test]
    async fn a_request_that_cannot_be_sent_does_not_show_its_header() {
        let client = Client::new().unwrap();
        let request =
            HttpRequest { url: "http://127.0.0.1:9/".to_owned(), headers: vec![("x-api-key".to_owned(), "sk-secret\nline".to_owned())], body: Vec::new() };
        let error = client.post(&request, Timeouts::default()).await.unwrap_err();
        assert!(matches!(&error, HttpError::Invalid { host } if host == "127.0.0.1"), "{error:?}");
        assert!(!format!("{error:?}").contains("sk-secret"));
    }
}
