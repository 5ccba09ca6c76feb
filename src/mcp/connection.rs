//! One server's pipes and the requests that are open: the state of a conversation, in one task.
use super::{
    McpError,
    wire::{self, Refusal, Said},
    with_causes,
};
use crate::{
    sandbox::{Dialogue, Output, SandboxError},
    trace,
};
use bytes::BytesMut;
use serde_json::{Value, json};
use std::{collections::HashMap, future::Future, path::PathBuf};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::{mpsc, oneshot},
};

/// The longest line of a server.
const LINE_MAX: usize = 16 << 20;
/// Bytes of a server's standard error that are told when it has ended.
const TAIL: usize = 2000;

/// What a caller wants of a server.
pub(super) enum Letter {
    /// An answer.
    Ask { id: u64, line: Value, answer: oneshot::Sender<Result<Value, Unanswered>> },
    /// No answer any more.
    TakeBack { id: u64, reason: &'static str },
    /// That it knows something.
    Tell(Value),
}

/// Why there is no answer.
#[derive(Debug, Clone)]
pub(super) enum Unanswered {
    Refused(Refusal),
    Ended(String),
    Away(String),
    Odd(String),
}

impl Unanswered {
    pub(super) fn of(self, server: String, method: &str) -> McpError {
        match self {
            Unanswered::Refused(Refusal { code, message }) => McpError::Refused { server, method: method.to_owned(), code, message },
            Unanswered::Ended(tail) => McpError::Ended { server, tail },
            Unanswered::Away(why) => McpError::Away { server, why },
            Unanswered::Odd(what) => McpError::Odd { server, what },
        }
    }
}

/// A conversation with one server.
pub(super) struct Connection {
    server: String,
    dialogue: Dialogue,
    root: PathBuf,
    open: HashMap<u64, oneshot::Sender<Result<Value, Unanswered>>>,
    unsent: BytesMut,
    unread: BytesMut,
}

impl Connection {
    pub(super) fn new(server: &str, dialogue: Dialogue, root: PathBuf) -> Connection {
        Connection { server: server.to_owned(), dialogue, root, open: HashMap::new(), unsent: BytesMut::new(), unread: BytesMut::new() }
    }

    /// Carries letters and answers until the process is over or nobody can write any more.
    pub(super) async fn run(mut self, process: impl Future<Output = Result<Output, SandboxError>>, mut inbox: mpsc::Receiver<Letter>) {
        tokio::pin!(process);
        let (mut hears, mut ended) = (true, None);
        let why = loop {
            // What it has written last is read before its end is told.
            if let (Some(why), false) = (&ended, hears) {
                break Unanswered::clone(why);
            }
            let sends = !self.unsent.is_empty();
            tokio::select! {
                read = self.dialogue.output.read_buf(&mut self.unread), if hears => match read {
                    Ok(read) if read > 0 => {
                        if let Err(odd) = self.take_lines() {
                            break odd;
                        }
                    }
                    Ok(_) | Err(_) => hears = false,
                },
                sent = self.dialogue.input.write_buf(&mut self.unsent), if sends => {
                    if sent.is_err() {
                        self.unsent.clear();
                    }
                }
                letter = inbox.recv() => match letter {
                    Some(letter) => self.take(letter),
                    // Who has dropped the last of its senders has cancelled the process.
                    None if ended.is_some() => return,
                    None => return drop(process.await),
                },
                end = &mut process, if ended.is_none() => ended = Some(Unanswered::Ended(last_words(&end))),
            }
        };
        self.end(&why, inbox).await;
    }

    /// Tells everybody who waits, and whoever asks from now on.
    async fn end(mut self, why: &Unanswered, mut inbox: mpsc::Receiver<Letter>) {
        for (_, answer) in self.open.drain() {
            let _nobody_waits = answer.send(Err(why.clone()));
        }
        while let Some(letter) = inbox.recv().await {
            if let Letter::Ask { answer, .. } = letter {
                let _nobody_waits = answer.send(Err(why.clone()));
            }
        }
    }

    fn take(&mut self, letter: Letter) {
        match letter {
            Letter::Ask { id, line, answer } => {
                self.open.insert(id, answer);
                self.send(&line);
            }
            Letter::TakeBack { id, reason } => {
                if self.open.remove(&id).is_some() {
                    self.send(&wire::notification("notifications/cancelled", &json!({"requestId": id, "reason": reason})));
                }
            }
            Letter::Tell(line) => self.send(&line),
        }
    }

    fn send(&mut self, line: &Value) {
        self.unsent.extend_from_slice(line.to_string().as_bytes());
        self.unsent.extend_from_slice(b"\n");
    }

    fn take_lines(&mut self) -> Result<(), Unanswered> {
        while let Some(end) = self.unread.iter().position(|byte| *byte == b'\n') {
            let line = self.unread.split_to(end + 1);
            match wire::read(&line, &self.root) {
                Some(Said::Answer(id, answer)) => {
                    if let Some(waits) = self.open.remove(&id) {
                        let _nobody_waits = waits.send(answer.map_err(Unanswered::Refused));
                    }
                }
                Some(Said::Asks(answer)) => self.send(&answer),
                Some(Said::ToolsChanged) => note_change(&self.server),
                Some(Said::Other) | None => {}
            }
        }
        if self.unread.len() > LINE_MAX { Err(Unanswered::Odd(format!("a line of it is longer than {LINE_MAX} bytes"))) } else { Ok(()) }
    }
}

/// Notes that a server has other tools than before.
pub(super) fn note_change(server: &str) {
    tracing::info!(target: trace::TARGET, "the server `{server}` has other tools by now; agents keep those they were told of");
}

/// Says how a process ended: with its own last words, where it had some.
fn last_words(ended: &Result<Output, SandboxError>) -> String {
    match ended {
        Ok(output) => {
            let text = output.stderr.text();
            let text = text.trim();
            let tail = &text[text.ceil_char_boundary(text.len().saturating_sub(TAIL))..];
            if tail.is_empty() { format!("{:?}", output.exit) } else { tail.to_owned() }
        }
        Err(error) => with_causes(error),
    }
}
