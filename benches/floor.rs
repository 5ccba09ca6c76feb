//! The floor that the engine is measured against: the least that any agent loop does, and the model it talks to.
//!
//! [`Mock`] answers on 127.0.0.1 in the form of the Anthropic Messages API: `Bash` calls for each of the first turns, then
//! an end of turn. What it answers follows from the request alone, so any number of loops, this one or the engine's, may talk to it at once. [`converse`]
//! is the bare loop: ask, read the stream, run `bash -c true`, append the answer to the bytes that were sent before. It has
//! no journal, no hooks, no sandbox and no retries; what a bench takes above it is what those cost.
//!
//! A bench includes this file by `mod floor;` and takes both loops in one run, since only their ratio means something.
use futures_util::{StreamExt as _, future::try_join_all};
use serde::Deserialize;
use spinney::clock::Clock;
use sse_stream::SseStream;
use std::{
    fmt::Write as _,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

/// The most bytes of a request that the mock takes.
const REQUEST_BYTES: usize = 64 * 1024 * 1024;

/// What the mock asks for in each conversation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asks {
    /// Replies that call tools.
    pub(crate) turns: usize,
    /// Calls in each of them.
    pub(crate) calls: usize,
    /// The shell command of each; the number of the turn is added where it takes no argument, and stands where it says `TURN`.
    pub(crate) command: &'static str,
}

impl Asks {
    /// One call of `true` in each of `turns` replies.
    pub(crate) fn turns(turns: usize) -> Asks {
        Asks { turns, calls: 1, command: "true" }
    }
}

/// When the mock was asked.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heard {
    /// When the first request was complete.
    pub(crate) first: Option<Duration>,
    /// From the last byte of a reply with tool calls to the next complete request; of use where there is one conversation at a time.
    pub(crate) gaps: Vec<Duration>,
    answered: Option<Duration>,
}

/// A model on this machine, with its own threads; it lives as long as the process.
#[derive(Debug, Clone)]
pub(crate) struct Mock {
    address: SocketAddr,
    asks: Asks,
    heard: Arc<Mutex<Heard>>,
}

impl Mock {
    /// Starts a model that calls tools and then ends the turn, and takes the time by `clock`.
    #[expect(clippy::disallowed_methods, reason = "the mock is not of the program that is measured")]
    pub(crate) fn start(asks: Asks, clock: &Clock) -> io::Result<Mock> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let mock = Mock { address: listener.local_addr()?, asks, heard: Arc::default() };
        let (heard, clock) = (mock.heard.clone(), clock.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming().filter_map(Result::ok) {
                let (heard, clock) = (heard.clone(), clock.clone());
                std::thread::spawn(move || serve(stream, asks, &heard, &clock));
            }
        });
        Ok(mock)
    }

    /// Returns the base address, without a slash at its end.
    pub(crate) fn base(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns how many calls it makes in one conversation.
    pub(crate) fn calls(&self) -> usize {
        self.asks.turns * self.asks.calls
    }

    /// Returns when it was asked since the last time this was called.
    pub(crate) fn take_heard(&self) -> Heard {
        std::mem::take(&mut *self.heard.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Answers the requests of one connection until it ends.
fn serve(stream: TcpStream, asks: Asks, heard: &Mutex<Heard>, clock: &Clock) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::new(stream);
    let mut body = Vec::new();
    while read_request(&mut stream, &mut body)? {
        let now = clock.elapsed();
        {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.first.get_or_insert(now);
            let answered = heard.answered.take();
            heard.gaps.extend(answered.map(|answered| now.saturating_sub(answered)));
        }
        let turn = count(&body, b"\"tool_result\"") / asks.calls;
        let goes_on = turn < asks.turns;
        let reply = if goes_on { tool_calls(asks, turn) } else { end_of_turn() };
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: {}\r\n\r\n", reply.len());
        // Noted before the bytes leave, for the next request may be here before this thread goes on.
        if goes_on {
            heard.lock().unwrap_or_else(PoisonError::into_inner).answered = Some(clock.elapsed());
        }
        stream.get_mut().write_all((head + &reply).as_bytes())?;
    }
    Ok(())
}

/// Reads one request's body; `false` at the end of the connection.
fn read_request(stream: &mut BufReader<TcpStream>, body: &mut Vec<u8>) -> io::Result<bool> {
    let mut length = 0;
    let mut line = String::new();
    loop {
        line.clear();
        if stream.read_line(&mut line)? == 0 {
            return Ok(false);
        }
        if line == "\r\n" {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse().map_err(io::Error::other)?;
        }
    }
    if length > REQUEST_BYTES {
        return Err(io::Error::other("the request is too large"));
    }
    body.resize(length, 0);
    stream.read_exact(body)?;
    Ok(true)
}

fn count(body: &[u8], word: &[u8]) -> usize {
    body.windows(word.len()).filter(|window| *window == word).count()
}

fn tool_calls(asks: Asks, turn: usize) -> String {
    // The input differs by turn, so that nobody's guard against repeated calls ends the conversation.
    let command = if asks.command.contains(' ') { asks.command.replace("TURN", &turn.to_string()) } else { format!("{} {turn}", asks.command) };
    let block = |at: usize| {
        format!(
            "event: content_block_start\ndata: {{\"type\":\"content_block_start\",\"index\":{at},\"content_block\":{{\"type\":\"tool_use\",\"id\":\"toolu_{turn}_{at}\",\"name\":\"Bash\",\"input\":{{}}}}}}\n\n\
             event: content_block_delta\ndata: {{\"type\":\"content_block_delta\",\"index\":{at},\"delta\":{{\"type\":\"input_json_delta\",\"partial_json\":\"{{\\\"command\\\":\\\"{command}\\\"}}\"}}}}\n\n\
             event: content_block_stop\ndata: {{\"type\":\"content_block_stop\",\"index\":{at}}}\n\n"
        )
    };
    reply(&(0..asks.calls).map(block).collect::<String>(), "tool_use")
}

fn end_of_turn() -> String {
    let blocks = "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n\
                  event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"done\"}}\n\n\
                  event: content_block_stop\ndata: {\"type\":\"content_block_stop\",\"index\":0}\n\n";
    reply(blocks, "end_turn")
}

fn reply(blocks: &str, stop: &str) -> String {
    format!(
        "event: message_start\ndata: {{\"type\":\"message_start\",\"message\":{{\"id\":\"msg_1\",\"type\":\"message\",\"role\":\"assistant\",\"model\":\"mock\",\"content\":[],\"stop_reason\":null,\"stop_sequence\":null,\"usage\":{{\"input_tokens\":10,\"output_tokens\":1}}}}}}\n\n\
         {blocks}\
         event: message_delta\ndata: {{\"type\":\"message_delta\",\"delta\":{{\"stop_reason\":\"{stop}\",\"stop_sequence\":null}},\"usage\":{{\"output_tokens\":5}}}}\n\n\
         event: message_stop\ndata: {{\"type\":\"message_stop\"}}\n\n"
    )
}

/// Why the bare loop ended early.
#[derive(Debug, thiserror::Error)]
pub(crate) enum FloorError {
    /// The mock could not be asked.
    #[error("ask the mock")]
    Http(#[from] reqwest::Error),
    /// The stream broke.
    #[error("read the stream")]
    Stream(#[from] sse_stream::Error),
    /// An event was not understood.
    #[error("read an event")]
    Json(#[from] serde_json::Error),
    /// The shell could not be run.
    #[error("run the tool")]
    Tool(#[from] io::Error),
    /// The stream ended before its last event.
    #[error("read a whole reply")]
    Cut,
}

/// Makes the client that the bare loop uses: one for any number of conversations.
#[expect(clippy::disallowed_methods, reason = "the floor is measured without the program's own client")]
pub(crate) fn client() -> Result<reqwest::Client, FloorError> {
    let _ = rustls::crypto::ring::default_provider().install_default();
    Ok(reqwest::Client::builder().no_proxy().tcp_nodelay(true).build()?)
}

/// What of an event the loop looks at.
#[derive(Debug, Deserialize)]
struct StreamEvent<'a> {
    #[serde(rename = "type")]
    kind: &'a str,
    content_block: Option<StartedBlock<'a>>,
    delta: Option<Delta>,
}

#[derive(Debug, Deserialize)]
struct StartedBlock<'a> {
    id: Option<&'a str>,
}

#[derive(Debug, Deserialize)]
struct Delta {
    partial_json: Option<String>,
    stop_reason: Option<String>,
}

/// A call of the mock's.
#[derive(Debug, Default)]
struct Call {
    id: String,
    input: String,
}

#[derive(Debug, Deserialize)]
struct Input {
    command: String,
}

/// Holds one conversation to its end and returns how many tool calls it made. Runs on one thread: call it on a
/// current-thread runtime.
///
/// # Errors
/// The first that occurs; nothing is tried again.
pub(crate) async fn converse(client: &reqwest::Client, base: &str) -> Result<usize, FloorError> {
    let url = format!("{base}/v1/messages");
    let mut sent = "{\"model\":\"mock\",\"max_tokens\":1024,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"go\"}".to_owned();
    let mut made = 0;
    // The mock ends the conversation; a limit stands beside it, as beside every loop.
    for _ in 0..10_000 {
        let calls = ask(client, &url, format!("{sent}]}}")).await?;
        if calls.is_empty() {
            return Ok(made);
        }
        made += calls.len();
        let texts = try_join_all(calls.iter().map(run_tool)).await?;
        let (mut uses, mut results) = (Vec::new(), Vec::new());
        for (Call { id, input }, text) in calls.iter().zip(texts) {
            let text = serde_json::to_string(&text)?;
            uses.push(format!("{{\"type\":\"tool_use\",\"id\":\"{id}\",\"name\":\"Bash\",\"input\":{input}}}"));
            results.push(format!("{{\"type\":\"tool_result\",\"tool_use_id\":\"{id}\",\"content\":{text}}}"));
        }
        let _ = write!(sent, ",{{\"role\":\"assistant\",\"content\":[{}]}},{{\"role\":\"user\",\"content\":[{}]}}", uses.join(","), results.join(","));
    }
    Err(FloorError::Cut)
}

/// Asks once; gives the calls, none at the end of the turn.
async fn ask(client: &reqwest::Client, url: &str, body: String) -> Result<Vec<Call>, FloorError> {
    let response = client.post(url).header("content-type", "application/json").body(body).send().await?.error_for_status()?;
    let mut events = SseStream::from_bytes_stream(response.bytes_stream());
    let (mut calls, mut stop): (Vec<Call>, _) = (Vec::new(), None);
    while let Some(event) = events.next().await {
        let Some(data) = event?.data else { continue };
        let event: StreamEvent<'_> = serde_json::from_str(&data)?;
        if let Some(started) = event.content_block.and_then(|block| block.id) {
            calls.push(Call { id: started.to_owned(), input: String::new() });
        }
        if let Some(delta) = event.delta {
            if let Some(call) = calls.last_mut() {
                call.input.push_str(&delta.partial_json.unwrap_or_default());
            }
            stop = delta.stop_reason.or(stop);
        }
        if event.kind == "message_stop" {
            return Ok(if stop.as_deref() == Some("tool_use") { calls } else { Vec::new() });
        }
    }
    Err(FloorError::Cut)
}

/// Runs a call's command in bash, as bare as a tool call can be.
#[expect(clippy::disallowed_methods, reason = "the floor is measured without the sandbox")]
async fn run_tool(call: &Call) -> Result<String, FloorError> {
    let input: Input = serde_json::from_str(&call.input)?;
    let output = tokio::process::Command::new(bash()).args(["-c", &input.command]).stdin(std::process::Stdio::null()).output().await?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Finds bash once: searching `PATH` for each call would make the floor higher than it is.
#[expect(clippy::disallowed_methods, reason = "the floor is measured without the sandbox")]
fn bash() -> &'static Path {
    static BASH: OnceLock<PathBuf> = OnceLock::new();
    BASH.get_or_init(|| {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).map(|folder| folder.join("bash")).find(|file| file.is_file()).unwrap_or_else(|| "/bin/bash".into())
    })
}
