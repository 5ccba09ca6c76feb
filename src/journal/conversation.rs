//! One agent's conversation as a fold over its events, and what follows from it.
//!
//! The same `apply` builds it live and on resume, so a request after a crash is byte-equal to what it would have been.
//! Messages only ever grow at the end; results of one reply become one message, in call order, once all are there.
use super::Spent;
use crate::{
    event::{BlobId, Brief, Event, Failure, Form, HookVerdict, Recovery, Why},
    message::{Block, Message, Reply, Role, SUBMIT, StopReason, ToolCall, ToolResult, Usage},
};
use serde_json::Value;
use std::{
    collections::BTreeMap,
    ops::Deref,
    sync::{Arc, LazyLock},
};

/// Bytes that a message costs besides its blocks.
const MESSAGE_BYTES: u64 = 32;

/// A conversation so far. Copies share what was said, and one that was never begun is nothing: most nodes of a large run
/// have none.
#[derive(Debug, Clone, Default)]
pub struct Conversation(Option<Arc<Talk>>);

impl Deref for Conversation {
    type Target = Talk;

    fn deref(&self) -> &Talk {
        static NOTHING: LazyLock<Talk> = LazyLock::new(Talk::default);
        self.0.as_deref().unwrap_or_else(|| &*NOTHING)
    }
}

impl PartialEq for Conversation {
    fn eq(&self, other: &Conversation) -> bool {
        **self == **other
    }
}

impl Conversation {
    /// Folds one event of this conversation's node; events that say nothing to an agent change nothing.
    pub fn apply(&mut self, event: &Event) {
        let talk = Arc::make_mut(self.0.get_or_insert_default());
        talk.settled += u32::from(event.settles());
        talk.apply(event);
    }
}

/// What was said in a conversation. Invariant: messages alternate in role, the first one the user's.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Talk {
    brief: Option<Arc<Brief>>,
    messages: Vec<Arc<Message>>,
    /// Of all messages, with what each costs besides its blocks.
    bytes: u64,
    calls: Vec<Call>,
    last: Option<Last>,
    begun: Option<Begun>,
    is_full: bool,
    is_capped: bool,
    model: Option<String>,
    container: Option<String>,
    fallen: Vec<Failure>,
    choice: usize,
    spent: Spent,
    settled: u32,
    tally: Tally,
    sizing: Sizing,
    last_stop: Option<String>,
    pub(super) questions: Vec<Question>,
    asked: u32,
    told: usize,
    must_answer: bool,
    /// What it was told of replies that held nothing, before there was any other.
    nudges: Vec<Block>,
    shown: Vec<String>,
    seen: BTreeMap<String, BlobId>,
}

/// Something a person was asked.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    /// What tells it from others of its node: the id of a call, say.
    pub call: String,
    /// Which of the questions of its node's attempt it is, from 1: what people call it by.
    pub number: u32,
    /// What is asked.
    pub text: String,
    /// How it is to be answered.
    pub form: Form,
    /// The answer, once there is one.
    pub answer: Option<Answered>,
    /// Whether a hook carried it to somebody.
    pub carried: bool,
}

/// A person's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answered {
    /// Yes or no; yes where text was asked for.
    pub allowed: bool,
    /// Whose it is.
    pub by: String,
    /// What they said besides, or the text that was asked for.
    pub note: Option<String>,
}

/// One call of the last reply on its way to its result.
#[derive(Debug, Clone, PartialEq)]
pub struct Call {
    /// The call as the model made it.
    pub call: ToolCall,
    /// Whether it was cut by an output limit; such a call is never run.
    pub cut: bool,
    /// Set when its effect may have begun.
    pub started: Option<Started>,
    result: Option<(ToolResult, Vec<String>)>,
}

impl Call {
    /// Returns the answer that the call gave, where it is one that was taken.
    fn submitted(&self) -> Option<String> {
        let taken = self.call.name == SUBMIT && self.result.as_ref().is_some_and(|(result, _)| !result.is_error);
        taken.then(|| self.started.as_ref().and_then(|started| started.input.as_ref()).unwrap_or(&self.call.input).to_string())
    }
}

/// What was recorded before a call's effect.
#[derive(Debug, Clone, PartialEq)]
pub struct Started {
    /// The input as hooks left it, where they changed it.
    pub input: Option<Value>,
    /// How to recover.
    pub recovery: Recovery,
}

#[derive(Debug, Clone, PartialEq)]
struct Last {
    stop: StopReason,
    /// All that it says, what was said of it before it was cut or paused included.
    text: String,
    /// Whether nothing came.
    empty: bool,
}

/// What was said so far of a reply that goes on.
#[derive(Debug, Clone, PartialEq)]
struct Begun {
    text: String,
    /// What broke it off.
    by: StopReason,
}

/// How often the engine had to speak since the last good answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Empty or cut replies in a row.
    pub continues: u32,
    /// Those of them that were empty.
    pub empties: u32,
    /// Red checks so far.
    pub reds: u32,
    /// Answers that did not fit their schema so far.
    pub misfits: u32,
    /// Blocks by Stop hooks in a row.
    pub stops: u32,
    /// How often in a row the same calls were made with the same inputs.
    pub repeats: u32,
    signature: u64,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Sizing {
    /// Prompt tokens the provider counted for the last request.
    counted: u64,
    /// Bytes of that request's messages.
    counted_bytes: u64,
    /// Tokens of it that were read from the provider's cache or written to it.
    cached: u64,
    /// Tokens of the longest reply so far.
    longest: u64,
}

/// What follows from a conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// It was never begun.
    Brief,
    /// Make room: the window was full.
    Shorten,
    /// Ask the model.
    Ask,
    /// Answer the calls of the last reply that have no result.
    Act,
    /// The model has stopped: judge how.
    End(Ending),
}

/// How a model's turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ending {
    /// As it should.
    Done {
        /// The last reply's text, all of it where it came in parts.
        text: String,
    },
    /// With nothing said.
    Empty,
    /// Cut at the output limit.
    Cut,
    /// Cut because the window is full.
    WindowFull,
    /// The model declined.
    Refused {
        /// The provider's category.
        category: String,
    },
    /// For a reason this program does not know.
    Unknown {
        /// The provider's word.
        word: String,
    },
}

/// The hook event that carries a question to somebody.
pub(crate) const CARRIES: &str = "Notification";
/// What the name of a question ends with that a call itself is, where the name before it is the call's.
pub(crate) const PERSON: &str = "#person";

impl Talk {
    /// Returns how often it was settled what becomes of a request: by a reply, by what follows from none, by another one instead.
    pub fn settled(&self) -> u32 {
        self.settled
    }

    /// Returns the files that the agent knows, by path, each with what it last read or wrote there.
    pub fn seen(&self) -> impl Iterator<Item = (&String, &BlobId)> {
        self.seen.iter()
    }

    fn apply(&mut self, event: &Event) {
        match event {
            Event::AgentBriefed { brief, .. } => {
                self.push(brief.message.clone());
                self.brief = Some(brief.clone());
            }
            Event::MessageAdded { message, why, .. } => {
                if *why == Why::Continue && self.is_fresh() {
                    self.nudges.extend(message.blocks.iter().cloned());
                }
                self.count(*why);
                self.last_stop = (*why == Why::StopHook).then(|| message.text());
                self.push(message.clone());
            }
            Event::OrchestratorWoken { message, .. } => {
                self.begun = None;
                self.push(message.clone());
            }
            Event::ModelReplied { reply, prefix, .. } => {
                self.shown.extend_from_slice(prefix);
                self.replied(reply);
            }
            Event::AttemptsLost { usage, usd, capped, .. } => {
                self.spent += Spent::without_reply(usage, *usd);
                self.is_capped |= *capped;
            }
            Event::FellBack { to, failure, .. } => self.fell_back(to, failure),
            // Whoever takes it up again begins with the first of its models.
            Event::Parked { .. } => {
                self.fallen.clear();
                self.choice = 0;
            }
            Event::ToolStarted { call, input, recovery, .. } => {
                if let Some(open) = self.calls.iter_mut().find(|open| open.call.id == *call) {
                    open.started = Some(Started { input: input.clone(), recovery: recovery.clone() });
                }
            }
            Event::ToolFinished { result, context, seen, .. } => {
                self.seen.extend(seen.iter().map(|file| (file.path.clone(), file.content.clone())));
                self.last_stop = None;
                self.finished(result, context);
            }
            Event::QuestionAsked { call, question, form, .. } => self.asked(call, question, form),
            Event::QuestionAnswered { call, allowed, by, note, .. } => {
                if let Some(open) = self.questions.iter_mut().find(|open| open.call == *call) {
                    open.answer = Some(Answered { allowed: *allowed, by: by.clone(), note: note.clone() });
                }
            }
            Event::HookRan { call, on, verdict, .. } => {
                let carried = on == CARRIES && *verdict == HookVerdict::Told;
                if let Some(open) = self.questions.iter_mut().find(|open| carried && Some(&open.call) == call.as_ref()) {
                    open.carried = true;
                }
            }
            Event::Compacted { cut, messages, .. } => self.shortened(*cut, messages),
            Event::RunStarted(_)
            | Event::RunResumed { .. }
            | Event::RunCancelled { .. }
            | Event::ConditionEvaluated { .. }
            | Event::FrameOpened { .. }
            | Event::ItemsAdded { .. }
            | Event::StepStarted { .. }
            | Event::WorkspaceMade { .. }
            | Event::VerifyRan { .. }
            | Event::WorkCaptured { .. }
            | Event::CheckpointKept { .. }
            | Event::CacheHit { .. }
            | Event::ArtefactKept { .. }
            | Event::MergeAdvanced { .. }
            | Event::Told { .. }
            | Event::SelectAdvanced { .. }
            | Event::WorkDelivered { .. }
            | Event::RetryScheduled { .. }
            | Event::TimerFired { .. }
            | Event::OrchestratorRested { .. }
            | Event::LimitReached { .. }
            | Event::StepFinished { .. }
            | Event::BranchIntended { .. }
            | Event::BranchMade { .. }
            | Event::RunFinished { .. } => {}
        }
    }

    /// Returns what comes next.
    pub fn next(&self) -> Next {
        if self.brief.is_none() {
            return Next::Brief;
        }
        let halted = self.last.as_ref().is_some_and(|last| matches!(last.stop, StopReason::Refusal { .. } | StopReason::Unknown(_)));
        if !self.calls.is_empty() && !halted {
            return Next::Act;
        }
        let Some(last) = &self.last else { return if self.is_full { Next::Shorten } else { Next::Ask } };
        let ending = match &last.stop {
            StopReason::PauseTurn => return Next::Ask,
            StopReason::Refusal { category } => Ending::Refused { category: category.clone() },
            StopReason::Unknown(word) => Ending::Unknown { word: word.clone() },
            StopReason::MaxTokens => Ending::Cut,
            StopReason::WindowExceeded => Ending::WindowFull,
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse if last.empty => Ending::Empty,
            StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => Ending::Done { text: last.text.clone() },
        };
        Next::End(ending)
    }

    /// Returns what is frozen for it, once it is briefed.
    pub fn brief(&self) -> Option<&Arc<Brief>> {
        self.brief.as_ref()
    }

    /// Returns the messages as they are sent.
    pub fn messages(&self) -> &[Arc<Message>] {
        &self.messages
    }

    /// Returns the calls of the last reply that have no result yet.
    pub fn open_calls(&self) -> impl Iterator<Item = &Call> {
        self.calls.iter().filter(|call| call.result.is_none())
    }

    /// Returns what a person was asked by this name, answered or not.
    pub fn question(&self, call: &str) -> Option<&Question> {
        self.questions.iter().find(|question| question.call == call)
    }

    /// Returns the questions that wait for an answer.
    pub fn open_questions(&self) -> impl Iterator<Item = &Question> {
        self.questions.iter().filter(|question| question.answer.is_none())
    }

    /// Returns how many of the words that people have for it were said in it.
    pub fn told(&self) -> usize {
        self.told
    }

    /// Returns whether nothing is wanted but the answer, which was asked for again.
    pub fn must_answer(&self) -> bool {
        self.must_answer
    }

    /// Returns whether the last reply was cut at the cap on its length, so that the next one is its rest, or the whole of it.
    pub fn is_cut(&self) -> bool {
        self.is_capped || self.begun.as_ref().is_some_and(|begun| begun.by == StopReason::MaxTokens)
    }

    /// Returns whether the provider paused the last reply.
    pub fn is_paused(&self) -> bool {
        self.last.as_ref().is_some_and(|last| last.stop == StopReason::PauseTurn)
    }

    /// Returns the running hashes of what the model was shown, since the conversation was last shortened.
    pub fn shown(&self) -> &[String] {
        &self.shown
    }

    /// Returns the model that answers this conversation, once one has.
    pub fn model(&self) -> Option<&str> {
        self.model.as_deref()
    }

    /// Returns where the provider ran code for it last.
    pub fn container(&self) -> Option<&str> {
        self.container.as_deref()
    }

    /// Returns the place in the list of its models of the one that is asked while none has answered.
    pub fn choice(&self) -> usize {
        self.choice
    }

    /// Returns why the models of its list that were asked before gave no answer.
    pub fn fallen(&self) -> &[Failure] {
        &self.fallen
    }

    /// Returns whether no model has said anything in it, a refusal aside: any model may then take it over, since there is no
    /// thinking in it that is bound to another.
    pub fn is_fresh(&self) -> bool {
        let declined = self.last.as_ref().is_some_and(|last| matches!(last.stop, StopReason::Refusal { .. }));
        let said = self.messages.iter().filter(|message| message.role == Role::Assistant).count();
        said == 0 || (declined && said == 1 && self.messages.last().is_some_and(|last| last.role == Role::Assistant))
    }

    /// Returns what it has used.
    pub fn spent(&self) -> &Spent {
        &self.spent
    }

    /// Returns how often the engine had to speak.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Returns why a Stop hook last kept the agent going.
    pub fn last_stop_reason(&self) -> Option<&str> {
        self.last_stop.as_deref()
    }

    /// Returns an estimate of the next prompt in tokens: what the provider counted last, and 1 token for 3.2 bytes of
    /// what came after (current tokenizers of code), the brief included.
    pub fn estimated_prompt(&self) -> u64 {
        let fixed = self.brief.as_ref().map_or(0, |brief| brief.system.len() + brief.tools.iter().map(|tool| tool.description.len() + 400).sum::<usize>());
        if self.sizing.counted > 0 {
            self.sizing.counted + tokens(self.bytes.saturating_sub(self.sizing.counted_bytes))
        } else {
            tokens(fixed as u64 + self.bytes)
        }
    }

    /// Returns what the next request is expected to use: what was cached is read again, all other input is new, and the reply is
    /// as long as the longest so far, a short one at least, unless `most` cuts it.
    pub fn expected(&self, most: Option<u32>) -> Usage {
        const SHORT: u64 = 1_000;
        let prompt = self.estimated_prompt();
        let cache_read = self.sizing.cached.min(prompt);
        let output = self.sizing.longest.max(SHORT).min(most.map_or(u64::MAX, u64::from));
        Usage { input: prompt - cache_read, output, cache_read, ..Usage::default() }
    }

    /// Counts the bytes of all messages anew.
    fn weigh(&mut self) {
        self.bytes = self.messages.iter().map(|message| message.bytes() as u64 + MESSAGE_BYTES).sum();
    }

    fn count(&mut self, why: Why) {
        self.must_answer = why == Why::SchemaMismatch || (self.must_answer && why == Why::Told);
        match why {
            Why::VerifyRed => self.tally.reds += 1,
            Why::SchemaMismatch => self.tally.misfits += 1,
            Why::Continue => {
                self.tally.continues += 1;
                self.tally.empties += u32::from(self.next() == Next::End(Ending::Empty));
            }
            Why::StopHook => self.tally.stops += 1,
            Why::NextTask => {
                self.tally = Tally::default();
                self.begun = None;
            }
            Why::Told => self.told += 1,
        }
    }

    /// Appends a message; two of one role in a row become one, since protocols want them to alternate.
    fn push(&mut self, message: Message) {
        if message.role == Role::User {
            self.last = None;
        }
        self.bytes += message.bytes() as u64;
        match self.messages.last_mut() {
            Some(last) if last.role == message.role => {
                let mut blocks: Vec<Block> = last.blocks.clone();
                blocks.extend(message.blocks);
                *last = Arc::new(Message { role: message.role, blocks });
            }
            _ => {
                self.bytes += MESSAGE_BYTES;
                self.messages.push(Arc::new(message));
            }
        }
    }

    fn replied(&mut self, reply: &Reply) {
        (self.must_answer, self.is_capped) = (false, false);
        let Usage { cache_read, cache_write, output, .. } = reply.usage;
        self.sizing =
            Sizing { counted: reply.usage.prompt(), counted_bytes: self.bytes, cached: cache_read + cache_write, longest: self.sizing.longest.max(output) };
        self.spent += Spent::of(reply);
        let last = self.put_together(reply);
        self.model = Some(reply.model.clone());
        self.container = reply.container.clone().or(self.container.take());
        self.is_full = reply.stop == StopReason::WindowExceeded;
        let count = reply.calls().count();
        self.calls = reply
            .calls()
            .enumerate()
            .map(|(at, call)| Call { call: call.clone(), cut: reply.is_cut_in_call() && at + 1 == count, started: None, result: None })
            .collect();
        self.count_repeats();
        if !self.calls.is_empty() || !(reply.is_cut() || last.empty) {
            (self.tally.continues, self.tally.empties) = (0, 0);
        }
        self.last = Some(last);
        if let Some(message) = reply.message() {
            self.push(message);
        }
    }

    /// Takes a reply for the rest of the one before it, where that was cut or paused: they are one text. What was cut goes on in the
    /// middle of a word, what was paused with a block of its own. Where an object is wanted, a server that makes it by a format may
    /// begin it anew: then that one is the answer.
    fn put_together(&mut self, reply: &Reply) -> Last {
        let own = reply.text();
        let is_paused = reply.stop == StopReason::PauseTurn;
        let Some(begun) = self.begun.take() else {
            let last = Last { stop: reply.stop.clone(), empty: own.trim().is_empty(), text: own };
            self.begun = (reply.is_cut() || is_paused).then(|| Begun { text: last.text.clone(), by: last.stop.clone() });
            return last;
        };
        let was_paused = begun.by == StopReason::PauseTurn;
        let between = if was_paused && !begun.text.is_empty() && !own.is_empty() { "\n\n" } else { "" };
        let joined = format!("{}{between}{own}", begun.text);
        let is_object = |text: &str| serde_json::from_str::<serde_json::Map<String, Value>>(text.trim()).is_ok();
        let wants_object = self.brief.as_ref().is_some_and(|brief| brief.output_schema.is_some());
        let text = if wants_object && is_object(&own) && !is_object(&joined) { own.clone() } else { joined };
        // A paused reply is all one. Of one that was cut, nobody knows that nothing was to come.
        let empty = if was_paused { text.trim().is_empty() } else { own.trim().is_empty() };
        if reply.is_cut() || is_paused || empty {
            let by = if empty { begun.by } else { reply.stop.clone() };
            self.begun = Some(Begun { text: text.clone(), by });
        }
        Last { stop: reply.stop.clone(), text, empty }
    }

    /// Puts `messages` in the place of the first ones.
    fn shortened(&mut self, cut: usize, messages: &[Message]) {
        let cut = cut.min(self.messages.len());
        self.messages.splice(..cut, messages.iter().cloned().map(Arc::new));
        self.weigh();
        self.sizing = Sizing::default();
        self.shown.clear();
        self.is_full = false;
    }

    /// Forgets what a model said that declined, or gave nothing, and what it was told about that: another one begins where it began.
    fn fell_back(&mut self, to: &str, failure: &Failure) {
        let rest = self.brief.iter().flat_map(|brief| brief.models.iter().enumerate().skip(self.choice + 1));
        self.choice = rest.into_iter().find(|(_, model)| *model == to).map_or(self.choice + 1, |(place, _)| place);
        if self.messages.last().is_some_and(|last| last.role == Role::Assistant) {
            self.messages.pop();
        }
        let nudges = std::mem::take(&mut self.nudges);
        if let Some(last) = self.messages.last_mut().filter(|_| !nudges.is_empty()) {
            Arc::make_mut(last).blocks.retain(|block| !nudges.contains(block));
        }
        self.weigh();
        self.fallen.push(failure.clone());
        self.calls.clear();
        (self.last, self.begun, self.is_full, self.is_capped) = (None, None, false, false);
        (self.model, self.container, self.sizing) = (None, None, Sizing::default());
        (self.tally.continues, self.tally.empties) = (0, 0);
        // What it was shown is no concern of the next one.
        self.shown.clear();
    }

    fn count_repeats(&mut self) {
        use std::hash::{Hash as _, Hasher as _};
        if self.calls.is_empty() {
            self.tally.repeats = 0;
            self.tally.signature = 0;
            return;
        }
        // Only compared within one process and one conversation, so the hasher need not be stable across versions.
        let mut hasher = std::hash::DefaultHasher::new();
        for call in &self.calls {
            (&call.call.name, call.call.input.to_string()).hash(&mut hasher);
        }
        let signature = hasher.finish();
        self.tally.repeats = if signature == self.tally.signature { self.tally.repeats + 1 } else { 1 };
        self.tally.signature = signature;
    }

    /// Notes a question. One that is asked again while it is open is the same one, and its time runs on.
    fn asked(&mut self, call: &str, text: &str, form: &Form) {
        if self.open_questions().any(|open| open.call == call && open.text == text) {
            return;
        }
        self.questions.retain(|question| question.call != call);
        self.asked += 1;
        let question = Question { call: call.to_owned(), number: self.asked, text: text.to_owned(), form: form.clone(), answer: None, carried: false };
        self.questions.push(question);
    }

    fn finished(&mut self, result: &ToolResult, context: &[String]) {
        self.questions.retain(|question| question.call.strip_suffix(PERSON).unwrap_or(&question.call) != result.call);
        if let Some(open) = self.calls.iter_mut().find(|open| open.call.id == result.call) {
            open.result = Some((result.clone(), context.to_vec()));
            self.spent.calls += 1;
        }
        if self.calls.iter().all(|call| call.result.is_some()) {
            let answer = self.calls.iter().rev().find_map(Call::submitted);
            let (results, contexts): (Vec<ToolResult>, Vec<Vec<String>>) = std::mem::take(&mut self.calls).into_iter().filter_map(|call| call.result).unzip();
            let context = contexts.concat().join("\n\n");
            self.push(Message::results(&results, (!context.is_empty()).then_some(context.as_str())));
            self.begun = None;
            self.last = answer.map(|text| Last { stop: StopReason::EndTurn, text, empty: false });
        }
    }
}

/// Estimates tokens: 3.2 bytes each, rounded up.
fn tokens(bytes: u64) -> u64 {
    (bytes * 10).div_ceil(32)
}
