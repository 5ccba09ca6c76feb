//! The person at the terminal: answers, and signals.
use super::{
    args::OnAsk,
    report::{line, plain},
};
use crate::{
    agent::{Answer, Asker},
    event::NodeId,
    tasks,
};
use async_trait::async_trait;
use std::{
    cell::Cell,
    io::{self, Write},
};
use tokio::{signal::unix::SignalKind, sync::Mutex};
use tokio_util::sync::CancellationToken;

/// Whoever answers the questions of a run.
pub(super) struct Terminal {
    on_ask: OnAsk,
    present: bool,
    one_at_a_time: Mutex<()>,
}

impl Terminal {
    /// `present` says whether somebody is at the terminal.
    pub(super) fn new(on_ask: OnAsk, present: bool) -> Terminal {
        Terminal { on_ask, present, one_at_a_time: Mutex::new(()) }
    }
}

#[async_trait]
impl Asker for Terminal {
    async fn ask(&self, node: &NodeId, question: &str) -> Answer {
        match self.on_ask {
            OnAsk::Allow => return Answer::Allowed { by: "--on-ask allow".to_owned() },
            OnAsk::Deny => return Answer::Denied { by: "--on-ask deny".to_owned() },
            OnAsk::Park if !self.present => return Answer::Nobody,
            OnAsk::Park => {}
        }
        let _turn = self.one_at_a_time.lock().await;
        let prompt = format!("{} asks: {}\nAllow it? [y/N] ", plain(&node.to_string()), line(question, 500));
        let said = tasks::blocking(move || {
            io::stderr().write_all(prompt.as_bytes())?;
            let mut line = String::new();
            io::stdin().read_line(&mut line).map(|bytes| (bytes > 0).then_some(line))
        });
        match said.await {
            Ok(Ok(Some(line))) if matches!(line.trim(), "y" | "Y" | "yes") => Answer::Allowed { by: "the terminal".to_owned() },
            Ok(Ok(Some(_))) => Answer::Denied { by: "the terminal".to_owned() },
            Ok(Ok(None) | Err(_)) | Err(_) => Answer::Nobody,
        }
    }
}

/// What ended the process's part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Nothing from outside.
    None,
    /// An interrupt from the keyboard.
    Interrupt,
    /// The request to terminate, or the terminal's end.
    Terminate,
}

impl Signal {
    /// Returns the exit code of a run that it interrupted.
    pub(super) fn code(self) -> u8 {
        match self {
            Signal::None | Signal::Interrupt => 130,
            Signal::Terminate => 143,
        }
    }
}

/// Asks the run to stop at the first signal, which `first` is set to, and returns at the second.
pub(super) async fn second_signal(cancel: &CancellationToken, first: &Cell<Signal>, err: &mut Box<dyn Write + Send>) {
    let Ok(mut signals) = Signals::listen() else { return std::future::pending().await };
    first.set(signals.next().await);
    cancel.cancel();
    // Where standard error is gone, stopping goes on all the same.
    let _ = err.write_all(b"\nstopping after what is under way; once more ends it now\n");
    signals.next().await;
}

struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    hangup: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        use tokio::signal::unix::signal;
        Ok(Signals { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())?, hangup: signal(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => Signal::Interrupt,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.hangup.recv() => Signal::Terminate,
        }
    }
}
