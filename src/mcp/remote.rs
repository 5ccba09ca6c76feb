//! A server at an address: each request is one POST, whose answer comes as JSON or as a stream of events. What the server wants to
//! tell beside the answers of requests is not asked for.
use super::{
    connection::{Letter, Unanswered, note_change},
    wire::{self, Said},
};
use crate::http::{BODY_CAP, Client, HttpRequest, HttpResponse, Timeouts};
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};
use sse_stream::SseByteStream;
use std::{error::Error, path::PathBuf, pin::pin, time::Duration};
use tokio::sync::{mpsc, oneshot};

/// Whoever asks says how long an answer may take.
const PATIENT: Timeouts = Timeouts { first_byte: Duration::from_hours(24), idle: Duration::from_hours(24) };
/// What nobody waits for.
const SHORT: Timeouts = Timeouts { first_byte: Duration::from_secs(5), idle: Duration::from_secs(5) };
/// How long a session may take to be begun once more.
const AGAIN: Timeouts = Timeouts { first_byte: Duration::from_secs(30), idle: Duration::from_secs(30) };
/// Characters of an error that are told.
const TOLD: usize = 500;

/// A conversation with one server.
pub(super) struct Remote {
    peer: Peer,
    /// The request that begins a session.
    hello: Option<(u64, Value)>,
}

/// Whoever is spoken with, as it is known when a request is sent.
#[derive(Clone)]
struct Peer {
    server: String,
    client: Client,
    /// Where to, and what each request says besides.
    request: HttpRequest,
    root: PathBuf,
    session: Session,
}

/// What the first answer has settled.
#[derive(Clone, Default, PartialEq)]
struct Session {
    id: Option<String>,
    version: Option<String>,
}

/// A request that is under way.
struct Open {
    id: u64,
    line: Value,
    answer: oneshot::Sender<Result<Value, Unanswered>>,
    /// Whether it was sent before, in a session that the server had ended.
    is_again: bool,
}

/// What became of a request.
enum Heard {
    /// Its answer, and the session that it names.
    Answer(Value, Option<String>),
    Nothing(Unanswered),
    /// The server knows the session no more, and has not done what was asked.
    SessionOver,
    NobodyWaits,
}

impl Remote {
    pub(super) fn new(server: &str, (client, request): (Client, HttpRequest), root: PathBuf) -> Remote {
        let peer = Peer { server: server.to_owned(), client, request, root, session: Session::default() };
        Remote { peer, hello: None }
    }

    /// Carries letters and answers until nobody can write any more, and ends the session then.
    pub(super) async fn run(mut self, mut inbox: mpsc::Receiver<Letter>) {
        let mut open = FuturesUnordered::new();
        loop {
            tokio::select! {
                letter = inbox.recv() => match letter {
                    Some(Letter::Ask { id, line, answer }) => {
                        if line["method"] == wire::HELLO {
                            self.hello = Some((id, line.clone()));
                        }
                        open.push(exchange(self.peer.clone(), Open { id, line, answer, is_again: false }));
                    }
                    Some(Letter::TakeBack { id, reason }) => {
                        self.peer.tell(&wire::notification("notifications/cancelled", &json!({"requestId": id, "reason": reason}))).await;
                    }
                    Some(Letter::Tell(line)) => self.peer.tell(&line).await,
                    None => break,
                },
                Some((asked_in, request, heard)) = open.next(), if !open.is_empty() => {
                    if let Some(again) = self.take(&asked_in, request, heard).await {
                        open.push(exchange(self.peer.clone(), again));
                    }
                }
            }
        }
        drop(open);
        self.peer.leave().await;
    }

    /// Hands an answer over; returns the request where it has to be sent once more.
    async fn take(&mut self, asked_in: &Session, open: Open, heard: Heard) -> Option<Open> {
        let answered = match heard {
            Heard::NobodyWaits => return None,
            Heard::Nothing(why) => Err(why),
            Heard::Answer(answer, session) => {
                if open.line["method"] == wire::HELLO {
                    self.peer.begin(&answer, session);
                }
                Ok(answer)
            }
            Heard::SessionOver if open.is_again => Err(Unanswered::Odd("it does not know the session that it has just begun".to_owned())),
            // Another request may have begun the next one already.
            Heard::SessionOver => match if self.peer.session == *asked_in { self.greet().await } else { Ok(()) } {
                Ok(()) => return Some(Open { is_again: true, ..open }),
                Err(why) => Err(why),
            },
        };
        let _nobody_waits = open.answer.send(answered);
        None
    }

    /// Begins a session in the place of one that the server has ended.
    async fn greet(&mut self) -> Result<(), Unanswered> {
        self.peer.session = Session::default();
        let Some((id, hello)) = &self.hello else { return Err(Unanswered::Odd("it ends sessions that were never begun".to_owned())) };
        match self.peer.ask(*id, hello, AGAIN).await {
            Heard::Answer(answer, session) => self.peer.begin(&answer, session),
            Heard::Nothing(why) => return Err(why),
            Heard::SessionOver | Heard::NobodyWaits => return Err(Unanswered::Odd("it begins no session".to_owned())),
        }
        self.peer.tell(&wire::notification("notifications/initialized", &json!({}))).await;
        Ok(())
    }
}

async fn exchange(peer: Peer, mut open: Open) -> (Session, Open, Heard) {
    let heard = tokio::select! {
        biased;
        () = open.answer.closed() => Heard::NobodyWaits,
        heard = peer.ask(open.id, &open.line, PATIENT) => heard,
    };
    (peer.session, open, heard)
}

impl Peer {
    fn begin(&mut self, answer: &Value, session: Option<String>) {
        self.session = Session { id: session, version: answer["protocolVersion"].as_str().map(str::to_owned) };
    }

    async fn ask(&self, id: u64, line: &Value, patience: Timeouts) -> Heard {
        let response = match self.client.post(&self.message(line), patience).await {
            Ok(response) => response,
            Err(error) => return Heard::Nothing(away(&error)),
        };
        let status = response.status();
        if status == 404 && self.session.id.is_some() {
            return Heard::SessionOver;
        }
        if !(200..300).contains(&status) {
            let said: String = response.error_text().await.trim().chars().take(TOLD).collect();
            let said = if said.is_empty() { said } else { format!(": {said}") };
            return Heard::Nothing(Unanswered::Odd(format!("it answers with the status {status}{said}")));
        }
        let session = response.header("mcp-session-id").map(str::to_owned);
        let is_stream = response.header("content-type").is_some_and(|kind| kind.starts_with("text/event-stream"));
        match if is_stream { self.listen(id, response).await } else { self.read(id, response).await } {
            Ok(answer) => Heard::Answer(answer, session),
            Err(why) => Heard::Nothing(why),
        }
    }

    async fn read(&self, id: u64, response: HttpResponse) -> Result<Value, Unanswered> {
        let (text, broken) = response.text(BODY_CAP).await;
        if let Some(error) = broken {
            return Err(away(&error));
        }
        let answer = self.hear(id, text.as_bytes()).await?;
        answer.ok_or_else(|| Unanswered::Odd("what it answers is no answer to what it was asked".to_owned()))
    }

    /// Reads a stream of events until the answer is among them.
    async fn listen(&self, id: u64, response: HttpResponse) -> Result<Value, Unanswered> {
        let mut events = pin!(SseByteStream::new(response.into_stream()));
        while let Some(event) = events.next().await {
            let Some(data) = event.map_err(|error| away(&error))?.data else { continue };
            if let Some(answer) = self.hear(id, data.as_bytes()).await? {
                return Ok(answer);
            }
        }
        Err(Unanswered::Away("its answer ended before it was whole".to_owned()))
    }

    /// Reads one message, and answers it where it asks for something.
    async fn hear(&self, id: u64, message: &[u8]) -> Result<Option<Value>, Unanswered> {
        match wire::read(message, &self.root) {
            Some(Said::Answer(of, answer)) if of == id => return answer.map(Some).map_err(Unanswered::Refused),
            Some(Said::Asks(reply)) => self.tell(&reply).await,
            Some(Said::ToolsChanged) => note_change(&self.server),
            Some(Said::Answer(..) | Said::Other) | None => {}
        }
        Ok(None)
    }

    /// Sends what nobody waits for an answer to.
    async fn tell(&self, line: &Value) {
        let _not_heard = self.client.post(&self.message(line), SHORT).await;
    }

    /// Ends the session, where the server has one.
    async fn leave(&self) {
        if self.session.id.is_some() {
            let _not_heard = self.client.delete(&HttpRequest { body: Vec::new(), ..self.message(&Value::Null) }, SHORT).await;
        }
    }

    fn message(&self, line: &Value) -> HttpRequest {
        let mut headers = self.request.headers.clone();
        let mut say = |name: &str, value: &str| headers.push((name.to_owned(), value.to_owned()));
        say("content-type", "application/json");
        say("accept", "application/json, text/event-stream");
        self.session.id.iter().for_each(|id| say("mcp-session-id", id));
        self.session.version.iter().for_each(|version| say("mcp-protocol-version", version));
        HttpRequest { url: self.request.url.clone(), headers, body: line.to_string().into_bytes() }
    }
}

fn away(error: &(dyn Error + 'static)) -> Unanswered {
    Unanswered::Away(super::with_causes(error))
}
