//! The person at the terminal: answers, and signals.
use super::{
    answer,
    args::OnAsk,
    outlet::Outlet,
    report::{block, line, plain},
};
use crate::{
    engine::Asker,
    event::NodeId,
    journal::{Answered, Question},
    tasks,
};
use async_trait::async_trait;
use futures_util::{FutureExt, future::BoxFuture};
use std::{cell::Cell, io, sync::LazyLock, time::Duration};
use tokio::{signal::unix::SignalKind, sync::Mutex};
use tokio_util::sync::CancellationToken;

/// Whoever answers the questions of a run.
pub(super) struct Terminal {
    on_ask: OnAsk,
    present: bool,
    outlet: Outlet,
    /// The line that somebody is about to type: one at a time, and it outlives a question that another answers first.
    line: Mutex<Option<BoxFuture<'static, Option<Typed>>>>,
}

/// A line that was typed.
struct Typed {
    text: String,
    /// How many questions were shown by then.
    shown: u64,
}

impl Terminal {
    /// `present` says whether somebody is at the terminal, who reads what comes out of the outlet.
    pub(super) fn new(on_ask: OnAsk, present: bool, outlet: Outlet) -> Terminal {
        Terminal { on_ask, present, outlet, line: Mutex::new(None) }
    }
}

#[async_trait]
impl Asker for Terminal {
    async fn ask(&self, node: &NodeId, question: &Question) -> Option<Answered> {
        let by_option = |by: &str, allowed: bool| Some(Answered { allowed, by: by.to_owned(), note: None });
        match self.on_ask {
            // What asks for text cannot be answered beforehand.
            OnAsk::Allow if !question.form.open => return by_option("--on-ask allow", true),
            OnAsk::Deny if !question.form.open => return by_option("--on-ask deny", false),
            OnAsk::Allow | OnAsk::Deny | OnAsk::Park if !self.present => return None,
            OnAsk::Allow | OnAsk::Deny | OnAsk::Park => {}
        }
        let mut line = self.line.lock().await;
        let mut prompt = prompt(node, question);
        loop {
            let asked = self.outlet.question(prompt).await?;
            let said = loop {
                let typed = line.get_or_insert_with(|| read_line(self.outlet.clone()).boxed()).await;
                *line = None;
                let Some(typed) = typed else {
                    if is_gone() {
                        // The signal that says so is under way, and ends the run.
                        tokio::time::sleep(HANG_UP).await;
                    }
                    return None;
                };
                // What was typed before this question stood there is not its answer.
                if typed.shown >= asked.number {
                    break typed.text;
                }
            };
            // Who only presses the key for the end of a line means what stands in capitals.
            let said = if said.trim().is_empty() && !question.form.open { "no" } else { &said };
            match answer::says(&question.form, said, None) {
                Ok((allowed, note)) => return Some(Answered { allowed, by: "the terminal".to_owned(), note }),
                Err(wants) => prompt = format!("{wants}: "),
            }
        }
    }
}

/// How long the signal of a terminal that went away may take to be seen, where this process gets one.
const HANG_UP: Duration = Duration::from_secs(1);

/// Returns whether what is read from was a terminal that is no more.
fn is_gone() -> bool {
    matches!(rustix::termios::tcgetattr(io::stdin()), Err(rustix::io::Errno::IO))
}

async fn read_line(outlet: Outlet) -> Option<Typed> {
    let read = tasks::blocking(move || {
        let mut text = String::new();
        let bytes = io::stdin().read_line(&mut text).ok()?;
        (bytes > 0).then(|| Typed { text, shown: outlet.shown() })
    });
    read.await.ok()?
}

fn prompt(node: &NodeId, question: &Question) -> String {
    let form = &question.form;
    let shown = form.shown.as_ref().map(|shown| format!("{}\n", block(shown).trim_end())).unwrap_or_default();
    // The first is the only one for most, and is called by its step alone.
    let number = if question.number > 1 { format!("#{}", question.number) } else { String::new() };
    let asks = format!("{shown}{}{number} asks: {}\n", plain(&node.to_string()), line(&question.text, 500));
    match (form.open, form.choices.is_empty()) {
        (false, _) => format!("{asks}{} [y/N] ", if shown.is_empty() { "Allow it?" } else { "Approve it?" }),
        (true, true) => format!("{asks}Your answer: "),
        (true, false) => format!("{asks}Your answer ({}): ", line(&form.choices.join(", "), 300)),
    }
}

/// What ended the process's part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Signal {
    /// Nothing from outside.
    None,
    /// An interrupt from the keyboard.
    Interrupt,
    /// The request to terminate.
    Terminate,
    /// The terminal's end.
    HangUp,
}

impl Signal {
    /// Returns the exit code of a run that it interrupted.
    pub(super) fn code(self) -> u8 {
        match self {
            Signal::None | Signal::Interrupt => 130,
            Signal::Terminate => 143,
            Signal::HangUp => 129,
        }
    }
}

/// Waits for a signal that asks the process to end.
pub(super) async fn signalled() {
    match Signals::listen() {
        Ok(mut signals) => {
            signals.next().await;
        }
        Err(_) => std::future::pending().await,
    }
}

/// How long what is under way has to end after a first signal. Commands end well within it; git does not hear of it, and
/// whatever is ended after that is found by the next process as if this one had died.
const STOP: Duration = Duration::from_secs(5);

/// Asks the run to stop at the first signal, which `first` is set to, and returns at the second, or where it does not stop.
pub(super) async fn second_signal(cancel: &CancellationToken, first: &Cell<Signal>, outlet: &Outlet) {
    let Ok(mut signals) = Signals::listen() else { return std::future::pending().await };
    first.set(signals.next().await);
    cancel.cancel();
    outlet.note("\nstopping after what is under way; once more ends it now");
    let _late = tokio::time::timeout(STOP, signals.next()).await;
}

/// What is listened for; a signal that was ignored when the process began stays so.
struct Signals {
    interrupt: Option<tokio::signal::unix::Signal>,
    terminate: Option<tokio::signal::unix::Signal>,
    hangup: Option<tokio::signal::unix::Signal>,
}

impl Signals {
    fn listen() -> io::Result<Signals> {
        let listen = |kind| if is_ignored(kind) { Ok(None) } else { tokio::signal::unix::signal(kind).map(Some) };
        Ok(Signals { interrupt: listen(SignalKind::interrupt())?, terminate: listen(SignalKind::terminate())?, hangup: listen(SignalKind::hangup())? })
    }

    async fn next(&mut self) -> Signal {
        tokio::select! {
            () = come(&mut self.interrupt) => Signal::Interrupt,
            () = come(&mut self.terminate) => Signal::Terminate,
            () = come(&mut self.hangup) => Signal::HangUp,
        }
    }
}

async fn come(signal: &mut Option<tokio::signal::unix::Signal>) {
    match signal {
        Some(signal) => drop(signal.recv().await),
        None => std::future::pending().await,
    }
}

/// Returns whether a signal was ignored when the process began: `nohup`, and a shell without job control for what it starts in
/// the background, mean it to go on. Where the system does not tell, none was.
fn is_ignored(kind: SignalKind) -> bool {
    // Asked once, before the first is listened for: that one is not ignored from then on.
    static IGNORED: LazyLock<u64> = LazyLock::new(|| {
        let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
        mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
    });
    (*IGNORED >> (kind.as_raw_value() - 1)) & 1 == 1
}
