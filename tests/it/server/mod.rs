//! A model server for tests: speaks Anthropic Messages, OpenAI Responses and Chat Completions, and Gemini on 127.0.0.1, refuses
//! what the real ones refuse, records what it was asked, and breaks in the ways that servers break.
//!
//! It depends on nothing but tokio, `serde_json` and the standard library, so it shares no mistake with the program.
//! What a request is answered with is decided by a function of the request; how the bytes travel by a [`Delivery`].
mod hosted;
mod say;
mod strict;
mod transport;

pub(crate) use hosted::Hosted;
pub(crate) use say::Said;
use serde_json::Value;
use std::{
    collections::BTreeMap,
    net::SocketAddr,
    sync::{Arc, Mutex},
    time::Duration,
};
use tokio::{net::TcpListener, sync::watch, task::JoinSet};

/// One request as it came.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// Its place among all requests, from 0.
    pub(crate) number: usize,
    /// The path.
    pub(crate) path: String,
    /// Names in lower case.
    pub(crate) headers: BTreeMap<String, String>,
    /// The body's bytes.
    pub(crate) body: Vec<u8>,
    /// The body; null where it is not JSON.
    pub(crate) json: Value,
    /// What the real server would refuse it for.
    pub(crate) problems: Vec<String>,
}

impl Asked {
    /// The protocol it is in.
    pub(crate) fn spoken(&self) -> Spoken {
        match &self.path {
            path if path.ends_with("/messages") => Spoken::Messages,
            path if path.ends_with("/responses") => Spoken::Responses,
            path if path.contains(":streamGenerateContent") => Spoken::Gemini,
            _ => Spoken::Chat,
        }
    }

    /// What is said in it, one entry a message or item: whether by the model, and the text.
    pub(crate) fn dialogue(&self) -> Vec<(bool, String)> {
        let list = ["messages", "input", "contents"].iter().find_map(|name| self.json[name].as_array()).cloned().unwrap_or_default();
        let by_model = |entry: &Value| match entry["role"].as_str() {
            Some(role) => role == "assistant" || role == "model",
            None => entry["type"] != "function_call_output",
        };
        list.iter().filter(|entry| entry["role"] != "system").map(|entry| (by_model(entry), text(entry))).collect()
    }

    /// Counts the model's turns: the number of the one that is asked for.
    pub(crate) fn turn(&self) -> usize {
        let speakers: Vec<bool> = self.dialogue().into_iter().map(|(by_model, _)| by_model).collect();
        speakers.iter().enumerate().filter(|(n, by_model)| **by_model && (*n == 0 || !speakers[n - 1])).count()
    }
}

/// Returns the text of a message, an item or a content.
fn text(entry: &Value) -> String {
    let parts = ["content", "output", "parts"].iter().find_map(|name| entry.get(name)).unwrap_or(&Value::Null);
    let answer = |part: &Value| ["output", "error"].iter().find_map(|word| part["functionResponse"]["response"][word].as_str().map(str::to_owned));
    let one = |part: &Value| part["text"].as_str().or_else(|| part["content"].as_str()).map(str::to_owned).or_else(|| answer(part));
    match parts {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(one).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
}

/// A protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Messages,
    Responses,
    Chat,
    Gemini,
}

/// What a request is answered with.
#[derive(Debug, Clone)]
pub(crate) enum Answer {
    /// A reply, in the form of the protocol that was spoken.
    Say(Said),
    /// A stream's exact bytes.
    Stream(Vec<u8>),
    /// An error.
    Status(u16, Vec<(&'static str, String)>, String),
}

impl Answer {
    /// An error of Anthropic's form.
    pub(crate) fn error(status: u16, kind: &str) -> Answer {
        Answer::Status(status, Vec::new(), format!(r#"{{"type":"error","error":{{"type":"{kind}","message":"told so"}}}}"#))
    }

    /// The same with a `retry-after` of so many seconds, or a date.
    pub(crate) fn wait(status: u16, kind: &str, retry_after: &str) -> Answer {
        match Answer::error(status, kind) {
            Answer::Status(status, _, body) => Answer::Status(status, vec![("retry-after", retry_after.to_owned())], body),
            other => other,
        }
    }
}

/// How the bytes of a body travel.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Delivery {
    /// The size of the pieces; absent: all at once.
    pub(crate) chunk: Option<usize>,
    /// Ends the body after so many bytes.
    pub(crate) cut_at: Option<usize>,
    /// With `cut_at`: ends it as if it were whole, instead of breaking the connection.
    pub(crate) is_clean: bool,
    /// Stops sending after so many bytes and keeps the connection open.
    pub(crate) stall_at: Option<usize>,
    /// Never answers at all.
    pub(crate) is_mute: bool,
    /// Answers only after so long.
    pub(crate) after: Duration,
    /// Answers only once so many requests that are to meet have come, this one included.
    pub(crate) meet: usize,
}

type Responder = dyn Fn(&Asked) -> (Answer, Delivery) + Send + Sync;

/// The running server. Dropped, it is gone.
pub(crate) struct Server {
    address: SocketAddr,
    shared: Arc<Shared>,
    _tasks: JoinSet<()>,
}

struct Shared {
    respond: Box<Responder>,
    asked: Mutex<Vec<Asked>>,
    /// Requests being answered now, and the most there ever were.
    running: Mutex<(usize, usize)>,
    /// How many requests that are to meet have come.
    met: watch::Sender<usize>,
}

impl Server {
    /// Starts a server that answers well.
    pub(crate) async fn start(respond: impl Fn(&Asked) -> Answer + Send + Sync + 'static) -> Server {
        Server::start_with(move |asked| (respond(asked), Delivery::default())).await
    }

    /// Starts a server whose answers travel as told.
    pub(crate) async fn start_with(respond: impl Fn(&Asked) -> (Answer, Delivery) + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("loopback has a free port");
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared { respond: Box::new(respond), asked: Mutex::default(), running: Mutex::default(), met: watch::Sender::new(0) });
        let mut tasks = JoinSet::new();
        let accepting = Arc::clone(&shared);
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let shared = Arc::clone(&accepting);
                connections.spawn(async move {
                    // A client that goes away is no failure of the server's.
                    let _ = transport::serve(stream, &shared).await;
                });
            }
        });
        Server { address, shared, _tasks: tasks }
    }

    /// Returns its address for `ANTHROPIC_BASE_URL`.
    pub(crate) fn anthropic_url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns its address for `OPENAI_BASE_URL` and `GEMINI_BASE_URL`.
    pub(crate) fn openai_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Returns every request so far.
    pub(crate) fn asked(&self) -> Vec<Asked> {
        self.shared.asked.lock().expect("no holder panics").clone()
    }

    /// Returns what the requests so far would have been refused for.
    pub(crate) fn problems(&self) -> Vec<String> {
        self.asked().into_iter().flat_map(|asked| asked.problems).collect()
    }

    /// Returns the most requests that were being answered at the same time.
    pub(crate) fn most_at_once(&self) -> usize {
        self.shared.running.lock().expect("no holder panics").1
    }
}

impl Shared {
    /// Records a request and decides its answer.
    fn answer(&self, mut asked: Asked) -> (Answer, Delivery) {
        // A list of models is asked for without a body, and so is what a key is.
        let is_list = asked.body.is_empty() && (asked.path.contains("/models") || asked.path.ends_with("/key"));
        let problems = if is_list { Vec::new() } else { strict::problems(&asked) };
        asked.problems.clone_from(&problems);
        let mut all = self.asked.lock().expect("no holder panics");
        asked.number = all.len();
        all.push(asked.clone());
        drop(all);
        if problems.is_empty() {
            (self.respond)(&asked)
        } else {
            let body = serde_json::json!({"type": "error", "error": {"type": "invalid_request_error", "message": problems.join("; ")}});
            (Answer::Status(400, Vec::new(), body.to_string()), Delivery::default())
        }
    }
}
