//! Servers of tools that speak the Model Context Protocol, as a client sees them.
//!
//! A [`Server`] is a process of `sandbox` or an address, and one task that owns its pipes or its session and the requests that are open;
//! a caller's request is a letter to that task, so that many may be open at the same time. What a caller no longer waits for is told to the server. When the
//! process ends, everybody who waits learns of it, with the end of what it wrote to its standard error. Dropping a server ends it.
//!
//! A server is told of one folder, the agent's; it is never lent the model, and nobody answers its questions. Whether a call may be
//! made is decided elsewhere, and nothing here repeats one.
mod connection;
mod remote;
mod wire;

use crate::{
    http::{Client, HttpRequest},
    message::ToolSpec,
    sandbox::{Request, Sandbox, SandboxError},
    tasks::Tasks,
};
use connection::{Connection, Letter};
use remote::Remote;
use serde_json::{Value, json};
use std::{
    error::Error,
    path::PathBuf,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};
use tokio::{
    sync::{mpsc, oneshot},
    time::timeout,
};
use tokio_util::sync::{CancellationToken, DropGuard};

/// Letters that wait for a server's task.
const LETTERS_MAX: usize = 64;
/// Most pages of a list of tools.
const PAGES_MAX: usize = 100;

/// What to start, and for whom.
#[derive(Debug, Clone)]
pub struct Launch {
    /// The server's name, which is a part of the names of its tools.
    pub name: String,
    /// How it is reached.
    pub reach: Reach,
    /// The folder that it is told of.
    pub root: PathBuf,
    /// How long it may take until it has told its tools.
    pub start_timeout: Duration,
}

/// How a server is reached.
#[derive(Debug, Clone)]
pub enum Reach {
    /// By its process; the input of the request does not count.
    Process(Request),
    /// At an address, with the headers of the request; its body does not count.
    Address(Client, HttpRequest),
}

/// A tool that a server offers.
#[derive(Debug, Clone, PartialEq)]
pub struct Offer {
    /// What is declared to a model; its name begins with `mcp__SERVER__`.
    pub spec: ToolSpec,
    /// Its name at the server.
    pub own: String,
    /// Whether the server says that it changes nothing.
    pub only_reads: bool,
}

/// What a call gave.
#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// Its content as text, whole.
    pub text: String,
    /// Whether the tool calls it an error.
    pub is_error: bool,
    /// The result as the server sent it.
    pub whole: Value,
}

/// Why a server gave no answer. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// It could not be started.
    #[error("start the server `{server}`")]
    Start {
        /// The server.
        server: String,
        /// Why.
        source: SandboxError,
    },
    /// Its process is over.
    #[error("talk with the server `{server}`: it has ended{}", said(tail))]
    Ended {
        /// The server.
        server: String,
        /// The end of what it wrote to its standard error, or how it ended.
        tail: String,
    },
    /// It could not be reached, or its answer broke off.
    #[error("talk with the server `{server}`: {why}")]
    Away {
        /// The server.
        server: String,
        /// What went wrong.
        why: String,
    },
    /// It did not answer in time.
    #[error("get an answer of the server `{server}` to `{method}` within {} ms", after.as_millis())]
    NoAnswer {
        /// The server.
        server: String,
        /// What it was asked.
        method: String,
        /// The time that was borne.
        after: Duration,
    },
    /// It answers with an error.
    #[error("have `{method}` done by the server `{server}`: {message} ({code})")]
    Refused {
        /// The server.
        server: String,
        /// What it was asked.
        method: String,
        /// JSON-RPC's code.
        code: i64,
        /// Its reason.
        message: String,
    },
    /// It does not keep to the protocol.
    #[error("understand the server `{server}`: {what}")]
    Odd {
        /// The server.
        server: String,
        /// What is wrong.
        what: String,
    },
    /// The caller waits no longer.
    #[error("wait for the server `{server}`: it was cancelled")]
    Cancelled {
        /// The server.
        server: String,
    },
}

fn said(tail: &str) -> String {
    if tail.is_empty() { String::new() } else { format!(": {tail}") }
}

fn with_causes(error: &(dyn Error + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |error| (*error).source());
    causes.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// A server that has told its tools.
#[derive(Debug)]
pub struct Server {
    name: String,
    letters: mpsc::Sender<Letter>,
    count: AtomicU64,
    offers: Vec<Offer>,
    /// Dropped before the task is, so that the process ends as one that is cancelled.
    end: DropGuard,
    task: Tasks<()>,
}

impl Server {
    /// Starts a server and has it tell its tools.
    ///
    /// # Errors
    /// Where it does not start, ends, is not understood, or takes longer than it may.
    pub async fn start(sandbox: &Sandbox, launch: Launch, cancel: &CancellationToken) -> Result<Server, McpError> {
        let Launch { name, reach, root, start_timeout } = launch;
        let end = cancel.child_token();
        let (letters, inbox) = mpsc::channel(LETTERS_MAX);
        let mut task = Tasks::default();
        match reach {
            Reach::Process(request) => {
                let begun = sandbox.converse(request, end.clone());
                let (dialogue, process) = begun.map_err(|source| McpError::Start { server: name.clone(), source })?;
                task.spawn(Connection::new(&name, dialogue, root).run(process, inbox), |_panicked| ());
            }
            Reach::Address(client, request) => task.spawn(Remote::new(&name, (client, request), root).run(inbox), |_panicked| ()),
        }
        let mut server = Server { name, letters, count: AtomicU64::new(1), offers: Vec::new(), end: end.drop_guard(), task };
        let greeted = timeout(start_timeout, server.greet(start_timeout, cancel)).await;
        let late = || McpError::NoAnswer { server: server.name.clone(), method: "tools/list".to_owned(), after: start_timeout };
        server.offers = greeted.map_err(|_| late())??;
        Ok(server)
    }

    /// Ends it, and returns when its process and all that this has started are dead.
    pub async fn end(self) {
        let Server { letters, end, mut task, .. } = self;
        drop((letters, end));
        task.next().await;
    }

    /// Returns its tools, sorted by name.
    pub fn offers(&self) -> &[Offer] {
        &self.offers
    }

    /// Calls a tool by its name at the server.
    ///
    /// # Errors
    /// Where there is no result; one that is an error is a result.
    pub async fn call(&self, tool: &str, input: &Value, limit: Duration, cancel: &CancellationToken) -> Result<Answer, McpError> {
        let whole = self.ask("tools/call", &json!({"name": tool, "arguments": input}), (limit, cancel)).await?;
        let (text, is_error) = wire::result(&whole);
        Ok(Answer { text, is_error, whole })
    }

    async fn greet(&self, limit: Duration, cancel: &CancellationToken) -> Result<Vec<Offer>, McpError> {
        let hello = self.ask(wire::HELLO, &wire::hello(), (limit, cancel)).await?;
        wire::check_hello(&hello).map_err(|what| self.odd(what))?;
        self.tell(Letter::Tell(wire::notification("notifications/initialized", &json!({})))).await?;
        let mut offers = Vec::new();
        let mut params = json!({});
        if hello["capabilities"].get("tools").is_none() {
            return Ok(offers);
        }
        for _ in 0..PAGES_MAX {
            let (page, next) = wire::page(&self.name, &self.ask("tools/list", &params, (limit, cancel)).await?);
            offers.extend(page);
            let Some(cursor) = next else {
                offers.sort_by(|a, b| a.spec.name.cmp(&b.spec.name));
                offers.dedup_by(|a, b| a.spec.name == b.spec.name);
                return Ok(offers);
            };
            params = json!({"cursor": cursor});
        }
        Err(self.odd(format!("its list of tools has more than {PAGES_MAX} pages")))
    }

    /// Asks for something, and takes the request back where nobody waits for the answer any more.
    async fn ask(&self, method: &str, params: &Value, (limit, cancel): (Duration, &CancellationToken)) -> Result<Value, McpError> {
        let id = self.count.fetch_add(1, Ordering::Relaxed);
        let (answer, answered) = oneshot::channel();
        self.tell(Letter::Ask { id, line: wire::request(id, method, params), answer }).await?;
        let server = || self.name.clone();
        let (reason, error) = tokio::select! {
            biased;
            () = cancel.cancelled() => ("the agent was stopped", McpError::Cancelled { server: server() }),
            answered = timeout(limit, answered) => match answered {
                Ok(Ok(answered)) => return answered.map_err(|ended| ended.of(server(), method)),
                Ok(Err(_gone)) => return Err(McpError::Ended { server: server(), tail: String::new() }),
                Err(_late) => ("it takes too long", McpError::NoAnswer { server: server(), method: method.to_owned(), after: limit }),
            },
        };
        // A server that is gone needs not be told.
        let _gone = self.tell(Letter::TakeBack { id, reason }).await;
        Err(error)
    }

    async fn tell(&self, letter: Letter) -> Result<(), McpError> {
        self.letters.send(letter).await.map_err(|_| McpError::Ended { server: self.name.clone(), tail: String::new() })
    }

    fn odd(&self, what: String) -> McpError {
        McpError::Odd { server: self.name.clone(), what }
    }
}

#[cfg(test)]
mod tests;
