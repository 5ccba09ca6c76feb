//! The proxy outside of the walls, by which a command reaches the hosts that are named for it, and nothing else.
//!
//! A command that may reach some hosts has no network but its own, and in that one port, whose socket comes out by the [`door`](super::door).
//! The proxy answers there as HTTP proxies do: a connection by CONNECT, or one plain request. It goes only to hosts and ports of the list; looks
//! each up itself, once, and calls the very address that it has judged: one of this machine or of a private network only where the list names that address. A client
//! that speaks TLS has to ask for the host that it was connected for.
//!
//! It never reads what is encrypted: whom a request is for inside of that only the host itself knows.
//!
//! It ends with its command, and its connections with it.
mod addresses;
mod ask;
mod hello;
mod upstream;

pub use upstream::Upstream;

use super::{Output, SandboxError, door::Door};
use crate::{
    plan::{Destination, Host},
    tasks::Tasks,
    trace,
};
use ask::{Asked, Body, Exchange, HEAD_MAX, Wanted};
use hello::{Hello, Said};
use std::{
    convert::Infallible,
    fmt, io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
    time::Duration,
};
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader, copy, sink},
    net::{
        TcpStream, lookup_host,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    sync::mpsc,
    time::{sleep, timeout},
};

/// How long a connection may take to be made, names looked up.
const CONNECT_TIME: Duration = Duration::from_secs(15);
/// How long a head, or the first words of TLS, may take to come.
const HEAD_TIME: Duration = Duration::from_secs(30);
/// How long it is listened to whoever was refused, so that the answer arrives.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// How long nobody is let in where the system has no room.
const PAUSE: Duration = Duration::from_millis(50);
/// Connections at a time; more of them wait.
const CONNECTIONS_MAX: usize = 256;
/// Refusals that are kept of one command, and those that are heard, of which many may be of one host.
const REFUSALS_MAX: usize = 20;
const HEARD_MAX: usize = 1000;
/// Most that is read of the first words of TLS, of a line before a piece, and of lines behind the last one, in bytes.
const HELLO_MAX: usize = 64 * 1024;
const LINE_MAX: u64 = 8 * 1024;
const TRAILERS_MAX: usize = 100;

/// The network inside the walls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// None but one of its own.
    #[default]
    None,
    /// These hosts alone.
    Only(Allowed),
    /// The machine's.
    Full,
}

/// What may be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowed {
    /// The hosts.
    pub hosts: Vec<Destination>,
    /// The key that says so, for whoever is refused: `agents.fetcher.sandbox.network`.
    pub key: String,
}

/// A host that was asked for in vain.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    place: String,
    key: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    /// The list does not have it.
    NotListed,
    /// It leads here.
    Leads(IpAddr),
    /// The client asked for this one by TLS.
    Asked(Option<String>),
    /// The client spoke no TLS where that is spoken.
    NoTls,
    /// It may be reached, and was not.
    NotReached(String),
}

/// Why a connection did not come about.
#[derive(Debug)]
enum Denial {
    /// It may not be.
    Refused(Refusal),
    /// The request is none.
    Misspoken(&'static str),
    /// There is none to be had.
    Unreachable(String),
    /// Whoever asked is gone.
    Gone,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refusal { place, key, why } = self;
        let refused = format!("the sandbox refused {place}");
        match why {
            Why::NotListed => write!(f, "{refused}: not in {key}"),
            Why::Leads(address) => {
                write!(f, "{refused}: it leads to {address}, an address of this machine or of no public network, which is not in {key} itself")
            }
            Why::Asked(Some(other)) => write!(f, "{refused}: over that connection TLS asks for {other}"),
            Why::Asked(None) => write!(f, "{refused}: over that connection TLS asks for no host"),
            Why::NoTls => write!(f, "{refused}: over that connection no TLS is spoken"),
            Why::NotReached(why) => write!(f, "the sandbox lets {place} through, and it was not reached: {why}"),
        }
    }
}

impl Refusal {
    /// Returns whether the list lets it through.
    fn is_allowed(&self) -> bool {
        matches!(self.why, Why::NotReached(_))
    }
}

impl Allowed {
    /// Returns the variables inside that do not depend on where the proxy is. What is named of this machine is reached through it, too.
    pub(super) fn variables(&self) -> impl Iterator<Item = (&'static str, String)> {
        let own = ["localhost", "127.0.0.1", "::1"].into_iter();
        let is_named = |name: &str| name.parse().is_ok_and(|address: IpAddr| self.hosts.iter().any(|host| host.is_at(address)));
        let direct = own.filter(|name| !is_named(name)).collect::<Vec<_>>().join(",");
        [("NO_PROXY", direct.clone()), ("no_proxy", direct), ("NODE_USE_ENV_PROXY", "1".to_owned())].into_iter()
    }
}

/// What serves one process.
pub(super) struct Serving {
    pub(super) door: Door,
    pub(super) allowed: Allowed,
    pub(super) upstream: Upstream,
}

impl Serving {
    /// Serves a process while it runs, and adds to its output what was refused.
    pub(super) async fn beside(self, run: impl Future<Output = Result<Output, SandboxError>>) -> Result<Output, SandboxError> {
        let (told, mut refused) = mpsc::channel(HEARD_MAX);
        let proxy = Proxy { allowed: self.allowed, upstream: self.upstream, told };
        let mut output = tokio::select! {
            biased;
            output = run => output?,
            never = serve(self.door, Arc::new(proxy)) => match never {},
        };
        while let Ok(refusal) = refused.try_recv() {
            if output.refused.len() < REFUSALS_MAX && !output.refused.contains(&refusal) {
                output.refused.push(refusal);
            }
        }
        Ok(output)
    }
}

/// Answers whoever calls at the socket that comes by a door, as long as it is polled.
async fn serve(door: Door, proxy: Arc<Proxy>) -> Infallible {
    let listener = match door.socket().await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(target: trace::TARGET, "a command of a sandbox reaches none of its hosts: {error}");
            return std::future::pending().await;
        }
    };
    let mut connections = Tasks::default();
    loop {
        tokio::select! {
            called = listener.accept(), if connections.len() < CONNECTIONS_MAX => match called {
                Ok((client, _)) => connections.spawn(proxy.clone().attend(client), |_| ()),
                Err(_no_room) => sleep(PAUSE).await,
            },
            Some(()) = connections.next(), if !connections.is_empty() => {}
        }
    }
}

struct Proxy {
    allowed: Allowed,
    upstream: Upstream,
    told: mpsc::Sender<Refusal>,
}

/// The other end of a connection.
struct Far {
    read: BufReader<OwnedReadHalf>,
    write: OwnedWriteHalf,
}

impl Proxy {
    async fn attend(self: Arc<Proxy>, client: TcpStream) {
        let _only_slower = client.set_nodelay(true);
        let (read, mut write) = client.into_split();
        let mut read = BufReader::new(read);
        let asked = match timeout(HEAD_TIME, read_head(&mut read, HEAD_MAX)).await {
            Ok(Ok(head)) if !head.is_empty() => ask::read(&head).map_err(Denial::Misspoken),
            Ok(Ok(_) | Err(_)) | Err(_) => return,
        };
        let reached = match asked {
            Ok(asked) => self.reach(&asked).await.map(|far| (asked, far)),
            Err(denial) => Err(denial),
        };
        match reached {
            Ok((asked, far)) => match &asked.what {
                Wanted::Tunnel => self.tunnel(&asked, (read, write), far).await,
                Wanted::Exchange(exchange) => self.exchange((&asked, exchange), (read, write), far).await,
            },
            Err(denial) => answer(&denial, &mut read, &mut write).await,
        }
    }

    /// Connects to what is asked for, where it may be, and tells what came of that.
    async fn reach(&self, asked: &Asked) -> Result<Far, Denial> {
        let reached = self.connected(asked).await.map_err(|denial| match denial {
            Denial::Unreachable(why) => self.refused(asked, Why::NotReached(why)),
            other => other,
        });
        match &reached {
            Ok(_) => trace::reached(&asked.host, asked.port, "allowed"),
            Err(Denial::Refused(refusal)) => self.tell(asked, refusal.clone()),
            Err(Denial::Misspoken(_) | Denial::Unreachable(_) | Denial::Gone) => {}
        }
        reached
    }

    async fn connected(&self, asked: &Asked) -> Result<Far, Denial> {
        if !self.allowed.hosts.iter().any(|destination| destination.has(&asked.host, asked.port)) {
            return Err(self.refused(asked, Why::NotListed));
        }
        let is_tunnel = matches!(asked.what, Wanted::Tunnel);
        let next = self.upstream.next(&asked.host, is_tunnel);
        let connecting = async {
            match next {
                Some(next) => TcpStream::connect(next.address()?).await.map_err(|error| Denial::Unreachable(format!("the proxy of this machine: {error}"))),
                None => self.looked_up(asked).await,
            }
        };
        let stream = timeout(CONNECT_TIME, connecting).await.map_err(|_| Denial::Unreachable("no connection in time".to_owned()))??;
        let _only_slower = stream.set_nodelay(true);
        let (read, write) = stream.into_split();
        let mut far = Far { read: BufReader::new(read), write };
        if let (Some(next), true) = (next, is_tunnel) {
            next.connect(&asked.authority(), &mut far.read, &mut far.write).await?;
        }
        Ok(far)
    }

    /// Looks a host up, once, and calls it.
    async fn looked_up(&self, asked: &Asked) -> Result<TcpStream, Denial> {
        let addresses = match &asked.host {
            Host::Address(address) => vec![*address],
            Host::Name(name) => {
                let found = lookup_host((name.as_str(), asked.port)).await.map_err(|error| Denial::Unreachable(error.to_string()))?;
                found.map(|address| address.ip().to_canonical()).collect()
            }
        };
        self.called(asked, addresses).await
    }

    /// Calls the first of a host's addresses that may be called and answers.
    async fn called(&self, asked: &Asked, addresses: Vec<IpAddr>) -> Result<TcpStream, Denial> {
        let mut denial = Denial::Unreachable("it has no address".to_owned());
        for address in addresses {
            let is_named = self.allowed.hosts.iter().any(|destination| destination.names(address, asked.port));
            if !is_named && !addresses::is_public(address) {
                denial = self.refused(asked, Why::Leads(address));
                continue;
            }
            match TcpStream::connect(SocketAddr::new(address, asked.port)).await {
                // Whoever calls himself calls from where he calls.
                Ok(stream) if !is_named && stream.local_addr().is_ok_and(|own| own.ip().to_canonical() == address) => {
                    denial = self.refused(asked, Why::Leads(address));
                }
                Ok(stream) => return Ok(stream),
                Err(error) => denial = Denial::Unreachable(error.to_string()),
            }
        }
        Err(denial)
    }

    fn refused(&self, asked: &Asked, why: Why) -> Denial {
        Denial::Refused(Refusal { place: asked.place(), key: self.allowed.key.clone(), why })
    }

    fn tell(&self, asked: &Asked, refusal: Refusal) {
        trace::reached(&asked.host, asked.port, if refusal.is_allowed() { "unreachable" } else { "refused" });
        // Of more than are kept the first are enough.
        let _full = self.told.try_send(refusal);
    }

    /// Moves bytes both ways until both ends are silent, once the first words of the client are judged.
    async fn tunnel(&self, asked: &Asked, (mut read, mut write): (BufReader<OwnedReadHalf>, OwnedWriteHalf), mut far: Far) {
        if write.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
            return;
        }
        let there = async {
            let words = self.first_words(asked, &mut read).await?;
            // Whoever takes no more may still have something to say.
            let _gone = far.write.write_all(&words).await;
            let _gone = copy(&mut read, &mut far.write).await;
            let _gone = far.write.shutdown().await;
            Ok(())
        };
        let back = async {
            let _gone = copy(&mut far.read, &mut write).await;
            let _gone = write.shutdown().await;
            Ok(())
        };
        if let Err(Denial::Refused(refusal)) = tokio::try_join!(there, back) {
            self.tell(asked, refusal);
        }
    }

    /// Reads the first words of a client, where it matters whom they are for; otherwise none.
    async fn first_words(&self, asked: &Asked, read: &mut (impl AsyncRead + Unpin)) -> Result<Vec<u8>, Denial> {
        let Host::Name(host) = &asked.host else { return Ok(Vec::new()) };
        let is_encrypted = asked.port == 443;
        let mut hello = Hello::default();
        let mut words = Vec::new();
        let judged = async {
            loop {
                let begins = words.len();
                let count = read.read_buf(&mut words).await.map_err(|_| Denial::Gone)?;
                match hello.take(&words[begins..]) {
                    Said::Host(Some(said)) if said.trim_end_matches('.').eq_ignore_ascii_case(host) => return Ok(()),
                    Said::Host(said) => return Err(self.refused(asked, Why::Asked(said))),
                    Said::Other if is_encrypted => return Err(self.refused(asked, Why::NoTls)),
                    Said::Other => return Ok(()),
                    Said::More if count == 0 && begins == 0 => return Ok(()),
                    Said::More if count == 0 || words.len() > HELLO_MAX => return Err(self.refused(asked, Why::NoTls)),
                    Said::More => {}
                }
            }
        };
        if is_encrypted {
            timeout(HEAD_TIME, judged).await.map_err(|_| Denial::Gone)??;
        } else {
            // Where it may be another that begins, nobody is hurried.
            judged.await?;
        }
        Ok(words)
    }

    /// Sends one request on, and its answer back.
    async fn exchange(&self, (asked, exchange): (&Asked, &Exchange), (mut read, mut write): (BufReader<OwnedReadHalf>, OwnedWriteHalf), mut far: Far) {
        let there = async {
            far.write.write_all(exchange.head(asked, self.upstream.next(&asked.host, false)).as_bytes()).await?;
            match exchange.body {
                Body::Bytes(length) => copy(&mut (&mut read).take(length), &mut far.write).await.map(drop),
                Body::Chunks => copy_chunks(&mut read, &mut far.write).await,
            }?;
            // Whoever says more is not heard: the next request is judged anew, over another connection. That he is gone is.
            copy(&mut read, &mut sink()).await
        };
        let back = async {
            let _gone = copy(&mut far.read, &mut write).await;
            let _gone = write.shutdown().await;
        };
        tokio::pin!(back);
        tokio::select! {
            () = &mut back => {}
            sent = there => {
                if sent.is_err() {
                    // The host may have said why it takes no more.
                    let _gone = far.write.shutdown().await;
                }
                back.await;
            }
        }
    }
}

/// Reads to the empty line; nothing where the other end says nothing any more.
async fn read_head(read: &mut (impl AsyncBufRead + Unpin), most: usize) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let left = most.saturating_sub(head.len()) as u64;
        if (&mut *read).take(left).read_until(b'\n', &mut head).await? == 0 {
            let why = if head.is_empty() { return Ok(head) } else { "it breaks off, or is too long" };
            return Err(io::Error::new(io::ErrorKind::InvalidData, why));
        }
    }
    Ok(head)
}

/// Copies a body that comes in pieces: RFC 9112, 7.1.
async fn copy_chunks(read: &mut (impl AsyncBufRead + Unpin), write: &mut (impl AsyncWrite + Unpin)) -> io::Result<()> {
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a piece of a body is none");
    loop {
        let line = read_line(read).await?;
        let digits = line.split([';', '\r']).next().unwrap_or_default().trim_end_matches([' ', '\t']);
        let is_length = (1..=15).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let length = u64::from_str_radix(digits, 16).ok().filter(|_| is_length).ok_or_else(wrong)?;
        write.write_all(line.as_bytes()).await?;
        if length == 0 {
            break;
        }
        if copy(&mut (&mut *read).take(length), write).await? < length || read_line(read).await? != "\r\n" {
            return Err(wrong());
        }
        write.write_all(b"\r\n").await?;
    }
    for _ in 0..TRAILERS_MAX {
        let line = read_line(read).await?;
        write.write_all(line.as_bytes()).await?;
        if line == "\r\n" {
            return Ok(());
        }
    }
    Err(wrong())
}

async fn read_line(read: &mut (impl AsyncBufRead + Unpin)) -> io::Result<String> {
    let mut line = String::new();
    (&mut *read).take(LINE_MAX).read_line(&mut line).await?;
    let is_line = line.strip_suffix("\r\n").is_some_and(|line| !line.contains('\r'));
    if is_line { Ok(line) } else { Err(io::Error::new(io::ErrorKind::InvalidData, "a line of a body is none")) }
}

/// Says to whoever asked why there is no connection.
async fn answer(denial: &Denial, read: &mut (impl AsyncRead + Unpin), write: &mut (impl AsyncWrite + Unpin)) {
    let (status, text) = match denial {
        Denial::Refused(refusal) => (if refusal.is_allowed() { "502 Bad Gateway" } else { "403 Forbidden" }, refusal.to_string()),
        Denial::Misspoken(why) => ("400 Bad Request", (*why).to_owned()),
        Denial::Unreachable(_) | Denial::Gone => return,
    };
    let head =
        format!("HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{text}\n", text.len() + 1);
    let _gone = write.write_all(head.as_bytes()).await;
    let _gone = write.shutdown().await;
    // Bytes that nobody reads would have the system take the answer back.
    let _late = timeout(LAST_WORDS, copy(read, &mut sink())).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn no_name_leads_to_an_address_that_the_list_does_not_name() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (told, _heard) = mpsc::channel(1);
        let mut proxy = Proxy {
            allowed: Allowed { hosts: vec![Destination::parse(&format!("a.example:{port}")).unwrap()], key: "key".to_owned() },
            upstream: Upstream::default(),
            told,
        };
        let asked = Asked { host: Host::parse("a.example").unwrap(), port, what: Wanted::Tunnel };
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        for leads in ["127.0.0.1", "169.254.169.254", "10.0.0.1", "::ffff:127.0.0.1", "fd00::1"] {
            let denial = proxy.called(&asked, vec![address(leads)]).await.unwrap_err();
            let Denial::Refused(refusal) = denial else { panic!("{denial:?}") };
            assert_eq!(refusal.why, Why::Leads(address(leads)));
            assert!(refusal.to_string().starts_with(&format!("the sandbox refused a.example:{port}: it leads to {leads}, ")), "{refusal}");
        }
        proxy.allowed.hosts.push(Destination::parse(&format!("127.0.0.1:{port}")).unwrap());
        assert!(proxy.called(&asked, vec![address("10.0.0.1"), address("127.0.0.1")]).await.is_ok());
    }
}
