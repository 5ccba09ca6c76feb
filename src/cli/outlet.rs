//! What a run says while it goes on, written by a thread of its own: a reader that does not read holds up the screen, never
//! the run.
//!
//! What waits to be written is bounded: of records past [`WAITING`] only the numbers are kept, and they are read again from
//! the journal once the reader has come so far. Everything comes in the order in which it was said. What is under way is shown
//! on a terminal alone, and left out where that takes nothing.
use super::{Context, progress::Bottom, report::json_text, screen::Screen, terminal};
use crate::{
    agent::{Note, Watcher},
    event::{NodeId, Record},
    journal,
    tasks::{self, Aside},
};
use rustix::termios::{QueueSelector, tcflush};
use std::{
    collections::VecDeque,
    io::{self, Write},
    path::PathBuf,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};
use tokio::sync::oneshot;

/// Records that wait to be written at most, and notes on what is under way.
const WAITING: usize = 64;
/// Records that are read again at once.
const PAGE: u64 = 64;
/// How long a process that was asked to end waits for a reader that takes nothing.
const PATIENCE: Duration = Duration::from_secs(1);

/// Where a run's words go in. Cheap to clone; nothing is written before it is opened.
#[derive(Clone, Default)]
pub(super) struct Outlet(Arc<Shared>);

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    more: Condvar,
    /// How much was written.
    written: AtomicU64,
    /// How many questions were shown.
    shown: AtomicU64,
    /// Whether nobody reads any more.
    is_lost: AtomicBool,
}

#[derive(Default)]
struct Queue {
    waiting: VecDeque<Said>,
    records: usize,
    notes: usize,
    /// Whether what is under way is shown.
    is_live: bool,
    closed: bool,
}

enum Said {
    Record(Box<Record>),
    /// Records that are in the journal, first and last.
    Again(u64, u64),
    /// For standard output.
    Text(String),
    /// For standard error.
    Note(String),
    /// A question, and who waits to hear that it stands there.
    Question(String, oneshot::Sender<u64>),
    /// It is answered, or nobody waits for the answer.
    Settled,
    /// What is under way at a node.
    UnderWay(NodeId, Note),
}

/// How records are written.
pub(super) enum Form {
    /// One JSON value a line.
    Json,
    /// One line for those that deserve one.
    Lines(Screen),
}

/// A question that stands on the screen; dropped, it is settled.
pub(super) struct Asked {
    outlet: Outlet,
    /// Its number.
    pub(super) number: u64,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.outlet.push(self.outlet.queue(), Said::Settled);
    }
}

/// Where it comes out.
pub(super) struct Streams {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    /// Why there is no more to be written: a reader that went away (`| head`), or a full disk. It does not end the run.
    lost: Option<io::Error>,
}

impl Outlet {
    /// Begins to write, of records those from a number on; returns who has the streams, which `context` is without until
    /// [`Outlet::close`].
    pub(super) fn open(&self, context: &mut Context, (form, from): (Form, u64), journal: PathBuf) -> io::Result<Aside<Streams>> {
        let out = std::mem::replace(&mut context.out, Box::new(io::sink()));
        let err = std::mem::replace(&mut context.err, Box::new(io::sink()));
        let bottom = (context.live && matches!(form, Form::Lines(_))).then(|| Bottom::new(context.color));
        self.queue().is_live = bottom.is_some();
        let writer = Writer { shared: self.0.clone(), streams: Streams { out, err, lost: None }, form, from, bottom, journal };
        tasks::aside("outlet", move || writer.run())
    }

    /// Says a record.
    pub(super) fn record(&self, record: &Record) {
        let mut queue = self.queue();
        if queue.records < WAITING {
            queue.records += 1;
            return self.push(queue, Said::Record(Box::new(record.clone())));
        }
        match queue.waiting.back_mut() {
            Some(Said::Again(_, last)) => *last = record.seq,
            _ => self.push(queue, Said::Again(record.seq, record.seq)),
        }
    }

    /// Says something on standard output.
    pub(super) fn text(&self, text: String) {
        self.push(self.queue(), Said::Text(text));
    }

    /// Says something on standard error.
    pub(super) fn note(&self, text: &str) {
        self.push(self.queue(), Said::Note(format!("{text}\n")));
    }

    /// Shows a question and returns once it stands there; what was typed and not read before that is dropped.
    pub(super) async fn question(&self, prompt: String) -> Option<Asked> {
        let (shown, stands) = oneshot::channel();
        self.push(self.queue(), Said::Question(prompt, shown));
        // Where this is given up while it waits, the question is settled too.
        let mut asked = Asked { outlet: self.clone(), number: 0 };
        asked.number = stands.await.ok()?;
        Some(asked)
    }

    /// Returns whether nobody reads any more.
    pub(super) fn is_lost(&self) -> bool {
        self.0.is_lost.load(Ordering::SeqCst)
    }

    /// Returns the number of the question that was shown last.
    pub(super) fn shown(&self) -> u64 {
        self.0.shown.load(Ordering::SeqCst)
    }

    /// Waits until all is written that was said, as long as the reader takes for that; but a signal ends it, and one that came
    /// before leaves it no time in which nothing is read. Returns why not all could be written.
    pub(super) fn close(self, writer: Aside<Streams>, told: bool, context: &mut Context) -> Option<io::Error> {
        let mut queue = self.queue();
        queue.closed = true;
        drop(queue);
        self.0.more.notify_one();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
        let streams = runtime.block_on(async {
            tokio::select! {
                streams = writer => streams.ok(),
                () = terminal::signalled(), if !told => None,
                () = self.stuck(), if told => None,
            }
        })?;
        (context.out, context.err) = (streams.out, streams.err);
        streams.lost.filter(|error| error.kind() != io::ErrorKind::BrokenPipe)
    }

    async fn stuck(&self) {
        let written = || self.0.written.load(Ordering::SeqCst);
        let mut before = None;
        while before != Some(written()) {
            before = Some(written());
            tokio::time::sleep(PATIENCE).await;
        }
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.0.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, mut queue: MutexGuard<'_, Queue>, said: Said) {
        queue.waiting.push_back(said);
        drop(queue);
        self.0.more.notify_one();
    }
}

impl Watcher for Outlet {
    fn sees(&self, node: &NodeId, note: Note) {
        let mut queue = self.queue();
        if !queue.is_live {
            return;
        }
        let note = match queue.waiting.back_mut() {
            Some(Said::UnderWay(last, before)) if last == node => before.join(note),
            _ => Some(note),
        };
        if let Some(note) = note
            && queue.notes < WAITING
        {
            queue.notes += 1;
            self.push(queue, Said::UnderWay(node.clone(), note));
        }
    }
}

struct Writer {
    shared: Arc<Shared>,
    streams: Streams,
    form: Form,
    from: u64,
    /// What stands below all else, where it can be wiped off.
    bottom: Option<Bottom>,
    journal: PathBuf,
}

impl Writer {
    fn run(mut self) -> Streams {
        while let Some(said) = self.next() {
            match said {
                Said::Record(record) => self.record(&record),
                Said::Again(first, last) => self.again(first, last),
                Said::Text(text) => self.put(&text),
                Said::Note(text) => self.note(&text),
                Said::Question(prompt, shown) => {
                    // Where standard input is no terminal there is nothing to drop.
                    let _ = tcflush(io::stdin(), QueueSelector::IFlush);
                    let number = self.shared.shown.fetch_add(1, Ordering::SeqCst) + 1;
                    self.note(&prompt);
                    self.bottom.iter_mut().for_each(|bottom| bottom.asks(true));
                    // Somebody else may have answered by now.
                    let _ = shown.send(number);
                }
                Said::Settled => self.bottom.iter_mut().for_each(|bottom| bottom.asks(false)),
                Said::UnderWay(node, note) => self.bottom.iter_mut().for_each(|bottom| bottom.note(&node, &note)),
            }
            self.shared.written.fetch_add(1, Ordering::SeqCst);
        }
        self.put("");
        self.streams
    }

    /// Waits for the next thing to say, and draws what is under way meanwhile; `None` at the end.
    fn next(&mut self) -> Option<Said> {
        loop {
            let due = self.bottom.as_ref().and_then(Bottom::due);
            let queue = self.shared.queue.lock().unwrap_or_else(PoisonError::into_inner);
            let idle = |queue: &mut Queue| queue.waiting.is_empty() && !queue.closed;
            let mut queue = match due {
                None => self.shared.more.wait_while(queue, idle).unwrap_or_else(PoisonError::into_inner),
                Some(due) => self.shared.more.wait_timeout_while(queue, due, idle).unwrap_or_else(PoisonError::into_inner).0,
            };
            let said = queue.waiting.pop_front();
            queue.records -= usize::from(matches!(said, Some(Said::Record(_))));
            queue.notes -= usize::from(matches!(said, Some(Said::UnderWay(..))));
            if said.is_some() || queue.closed {
                return said;
            }
            drop(queue);
            let drawn = self.bottom.as_mut().map(Bottom::redrawn).unwrap_or_default();
            self.write(&drawn);
        }
    }

    /// Writes what is to stay, above what is under way.
    fn put(&mut self, text: &str) {
        let wiped = self.bottom.as_mut().map(Bottom::wiped).unwrap_or_default();
        self.write(&(wiped + text));
    }

    fn note(&mut self, text: &str) {
        self.put("");
        // Where standard error is gone there is nobody left to tell.
        let _ = self.streams.err.write_all(text.as_bytes()).and_then(|()| self.streams.err.flush());
    }

    fn write(&mut self, text: &str) {
        let Streams { out, lost, .. } = &mut self.streams;
        if lost.is_none() && !text.is_empty() {
            *lost = out.write_all(text.as_bytes()).and_then(|()| out.flush()).err();
            self.shared.is_lost.store(lost.is_some(), Ordering::SeqCst);
        }
    }

    fn again(&mut self, first: u64, last: u64) {
        let mut next = first;
        while next <= last && self.streams.lost.is_none() {
            match journal::read_page(&self.journal, next, PAGE.min(last - next + 1)) {
                Ok(records) if records.is_empty() => return,
                Ok(records) => {
                    for record in &records {
                        self.record(record);
                    }
                    next += records.len() as u64;
                    self.shared.written.fetch_add(1, Ordering::SeqCst);
                }
                Err(error) => self.streams.lost = Some(io::Error::other(error)),
            }
        }
    }

    fn record(&mut self, record: &Record) {
        let is_told = record.seq >= self.from;
        let line = match &mut self.form {
            Form::Json => Some(record).filter(|_| is_told).and_then(|record| json_text(record).ok()),
            // What came before is counted all the same.
            Form::Lines(screen) => screen.line(record).filter(|_| is_told),
        };
        self.bottom.iter_mut().for_each(|bottom| bottom.record(&record.event));
        if let Some(line) = line {
            self.put(&(line + "\n"));
        }
    }
}
