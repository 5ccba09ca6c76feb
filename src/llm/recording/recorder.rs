//! A model whose requests and replies are written to a file.
use super::{Answer, Exchange, Head, Line, Lost, RecordingError, parts};
use crate::{
    event::{NodeId, RunId},
    llm::{Booking, Model, ModelCall, ModelError, Ordinal, Retry, Sink},
    message::{Reply, Usage},
    secrets::Secrets,
};
use async_trait::async_trait;
use std::{
    collections::BTreeSet,
    fmt,
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

/// A file that is recorded to.
#[derive(Debug)]
pub struct Recording {
    path: PathBuf,
    out: Mutex<Out>,
}

#[derive(Debug)]
struct Out {
    file: File,
    /// The head of what the file holds already.
    head: Option<Head>,
    /// The names of what was written once and need not be again.
    written: BTreeSet<String>,
    error: Option<io::Error>,
}

impl Recording {
    /// Opens a file to record to: a new one, or one that recorded `run` before it stopped.
    ///
    /// # Errors
    /// `Write` where it cannot be opened, `Exists` where it holds something else.
    pub fn open(path: &Path, run: Option<&RunId>) -> Result<Recording, RecordingError> {
        let failed = |source| RecordingError::Write { path: path.to_owned(), source };
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        // It holds whatever the agents read.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let mut file = options.open(path).map_err(failed)?;
        // A device or a pipe may have no end.
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(RecordingError::Exists(path.to_owned()));
        }
        let mut text = String::new();
        let is_text = |error: io::Error| if error.kind() == io::ErrorKind::InvalidData { RecordingError::Exists(path.to_owned()) } else { failed(error) };
        file.read_to_string(&mut text).map_err(is_text)?;
        // A line that was cut short is written again by the request it belonged to.
        let end = text.rfind('\n').map_or(0, |at| at + 1);
        let mut lines = text[..end].lines();
        let head = lines.next().and_then(|line| serde_json::from_str::<Head>(line).ok()).filter(Head::is_readable);
        if !text.is_empty() && (head.is_none() || head.as_ref().map(|head| &head.place.run) != run) {
            return Err(RecordingError::Exists(path.to_owned()));
        }
        let written = lines.filter_map(|line| serde_json::from_str(line).ok()).filter_map(|line| once(&line)).collect();
        let length = u64::try_from(end).unwrap_or(u64::MAX);
        file.set_len(length).and_then(|()| file.seek(io::SeekFrom::Start(length))).map_err(failed)?;
        Ok(Recording { path: path.to_owned(), out: Mutex::new(Out { file, head, written, error: None }) })
    }

    /// Begins to record a run, or goes on with it.
    ///
    /// # Errors
    /// `Exists` where the file holds another run, `Write` where it cannot be written.
    pub fn begin(&self, head: &Head) -> Result<(), RecordingError> {
        let mut out = self.out();
        match &out.head {
            Some(known) if known.place == head.place => {
                out.write(&Line::Resumed {}).map_err(|source| RecordingError::Write { path: self.path.clone(), source })
            }
            Some(_) => Err(RecordingError::Exists(self.path.clone())),
            None => {
                out.head = Some(head.clone());
                out.write(head).map_err(|source| RecordingError::Write { path: self.path.clone(), source })
            }
        }
    }

    /// Notes that the run is over: what has no end by then never came.
    pub fn finish(&self) {
        self.add(&Line::Finished {});
    }

    /// Returns why the recording is not whole, where it is not: a run goes on without it.
    pub fn error(&self) -> Option<RecordingError> {
        let source = self.out().error.take()?;
        Some(RecordingError::Write { path: self.path.clone(), source })
    }

    /// Returns whether a text of this name is in it.
    fn holds(&self, name: &str) -> bool {
        self.out().written.contains(name)
    }

    fn add(&self, line: &Line) {
        let mut out = self.out();
        if out.error.is_some() {
            return;
        }
        if let Some(name) = once(line)
            && !out.written.insert(name)
        {
            return;
        }
        out.error = out.write(line).err();
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Out {
    fn write(&mut self, line: &impl serde::Serialize) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        self.file.write_all(text.as_bytes())
    }
}

/// Returns a name for what is written once.
fn once(line: &Line) -> Option<String> {
    match line {
        Line::Text { name, .. } => Some(name.clone()),
        Line::Window { model, .. } => Some(format!("window {model}")),
        Line::Exchange(_) | Line::Price { .. } | Line::Booked { .. } | Line::Stopped { .. } | Line::Resumed {} | Line::Finished {} => None,
    }
}

/// A model that is listened to.
pub struct Recorder {
    model: Arc<dyn Model>,
    recording: Arc<Recording>,
    secrets: Secrets,
}

impl Recorder {
    /// Listens to a model. No value of `secrets` is written.
    pub fn new(model: Arc<dyn Model>, recording: Arc<Recording>, secrets: Secrets) -> Recorder {
        Recorder { model, recording, secrets }
    }
}

impl fmt::Debug for Recorder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorder").field("recording", &self.recording.path).finish_non_exhaustive()
    }
}

/// A request under way: a sink that hears too what is lost. Dropped before the request has come to an end, it writes that it was
/// stopped.
struct Listening<'a> {
    sink: &'a dyn Sink,
    lost: Mutex<Vec<Lost>>,
    call: &'a ModelCall<'a>,
    recording: Option<&'a Recording>,
}

impl Listening<'_> {
    fn take_lost(&self) -> Vec<Lost> {
        std::mem::take(&mut *self.lost.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Notes that it has come to an end. Returns what was lost until then.
    fn end(mut self) -> Vec<Lost> {
        self.recording = None;
        self.take_lost()
    }
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        if let Some(recording) = self.recording {
            recording.add(&Line::Stopped { node: self.call.node.to_string(), ordinal: self.call.ordinal, lost: self.take_lost() });
        }
    }
}

impl Sink for Listening<'_> {
    fn text(&self, delta: &str) {
        self.sink.text(delta);
    }

    fn thinking(&self, delta: &str) {
        self.sink.thinking(delta);
    }

    fn retrying(&self, retry: &Retry<'_>) {
        self.sink.retrying(retry);
    }

    fn asking(&self) {
        self.sink.asking();
    }

    fn waiting(&self, why: &str) {
        self.sink.waiting(why);
    }

    fn alive(&self) {
        self.sink.alive();
    }

    fn lost(&self, usage: &Usage, usd: Option<f64>) {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).push(Lost { usage: *usage, usd });
        self.sink.lost(usage, usd);
    }
}

#[async_trait]
impl Model for Recorder {
    async fn reply(&self, call: &ModelCall<'_>, sink: &dyn Sink) -> Result<Reply, ModelError> {
        let listening = Listening { sink, lost: Mutex::default(), call, recording: Some(&self.recording) };
        let result = self.model.reply(call, &listening).await;
        let lost = listening.end();
        let parts = parts(call);
        let exchange = Exchange {
            node: call.node.to_string(),
            ordinal: Some(call.ordinal),
            models: call.models.to_vec(),
            effort: call.effort.map(str::to_owned),
            max_output_tokens: call.max_output_tokens,
            parts: parts.iter().map(|(part, _)| part.clone()).collect(),
            answer: self.secrets.clean(Answer::of(&result)),
            lost,
        };
        for (part, text) in parts.into_iter().filter(|(part, _)| !self.recording.holds(part.name())) {
            self.recording.add(&Line::Text { name: part.name().to_owned(), text: self.secrets.text(&text).into_owned() });
        }
        self.recording.add(&Line::Exchange(Box::new(exchange)));
        result
    }

    fn window(&self, model: &str) -> u64 {
        let tokens = self.model.window(model);
        self.recording.add(&Line::Window { model: model.to_owned(), tokens, bound: self.model.is_bound(model) });
        tokens
    }

    fn is_bound(&self, model: &str) -> bool {
        self.model.is_bound(model)
    }

    fn price(&self, model: &str, usage: &Usage) -> Option<f64> {
        let usd = self.model.price(model, usage);
        self.recording.add(&Line::Price { model: model.to_owned(), usage: *usage, usd });
        usd
    }

    fn is_scripted(&self) -> bool {
        self.model.is_scripted()
    }

    async fn turn(&self, node: &NodeId, ordinal: Ordinal, is_settled: bool) {
        self.model.turn(node, ordinal, is_settled).await;
    }

    fn booked(&self, node: &NodeId, ordinal: Ordinal, how: Booking) {
        self.model.booked(node, ordinal, how);
        self.recording.add(&Line::Booked { node: node.to_string(), ordinal, how });
    }
}
