//! One conversation in one workspace: ask the model, do what it asks, tell it, until it asks for nothing.
//!
//! What comes next follows from the transcript alone ([`Talk::next`](crate::journal::Talk::next)); this module only does it, and records
//! each thing before it is visible. Policy stands beside the loop: limits in `guard`, the gate that every tool call goes
//! through in `gate`, what may be used in `account`, room in the window in `compact`. It knows nothing of the graph it is a part of.
mod account;
mod act;
mod compact;
mod delegate;
mod gate;
mod guard;
mod lanes;
mod note;
mod shown;
mod unanswered;

use crate::{
    clock::{Clock, Pulse},
    event::{Brief, Event, Failure, FailureKind, Form, NodeId, Why},
    git::{KILLED, Workspaces, Worktree},
    hooks::{Hooks, Permissions},
    journal::{Blobs, Closed, Conversation, DISK, Ending, MEMORY, Next, OPEN_FILES, Prefix, ROOM, Recorder, Spent, more},
    llm::{Model, ModelCall, ModelError, ModelErrorKind, Ordinal},
    message::{Message, Reply},
    plan::AgentSpec,
    sandbox::Sandbox,
    secrets::Secrets,
    tasks,
    tools::{ToolContext, Toolbox},
    trace,
};
pub use account::{Account, Expected, Reservation, out_of_budget};
pub use delegate::{Delegates, Delivered, Done, Order};
use futures_util::future::{BoxFuture, Shared};
pub use note::{Note, Unwatched, Watcher};
use shown::Shown;
use std::{collections::BTreeMap, error::Error, path::PathBuf, sync::Arc, time::Duration};
use tracing::{Instrument as _, Span};

/// How often in a row a cut reply is asked to go on before the session fails.
const CONTINUES_MAX: u32 = 3;
/// The same of an empty one.
const EMPTIES_MAX: u32 = 1;
/// How often Stop hooks in a row may keep an agent working (Claude Code's cap).
const STOP_BLOCKS_MAX: u32 = 8;

/// What all agents of a run share.
pub struct Equipment {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// All tools.
    pub toolbox: Arc<Toolbox>,
    /// All hooks.
    pub hooks: Arc<Hooks>,
    /// The account it draws on.
    pub account: Arc<Account>,
    /// What people have to say to it.
    pub words: Arc<dyn Words>,
    /// Where whole outputs go.
    pub blobs: Arc<Blobs>,
    /// Time.
    pub clock: Clock,
    /// The way to the journal.
    pub recorder: Recorder,
    /// Whoever watches what is under way.
    pub watcher: Arc<dyn Watcher>,
    /// The run's worktrees.
    pub workspaces: Workspaces,
    /// What starts the hooks' processes.
    pub sandbox: Sandbox,
    /// The environment of hooks, clean of keys.
    pub env: BTreeMap<String, String>,
    /// What no agent is told and no record holds.
    pub secrets: Secrets,
    /// Where signs of life are noted.
    pub pulse: Pulse,
}

/// What is one agent's own.
pub struct Session {
    /// Its node.
    pub node: NodeId,
    /// Who it is.
    pub spec: Arc<AgentSpec>,
    /// Which attempt at it this is.
    pub attempt: u32,
    /// Its rules.
    pub permissions: Permissions,
    /// Where and how its calls run.
    pub tools: ToolContext,
    /// Its worktree, where it may write.
    pub worktree: Option<Arc<Worktree>>,
    /// Set where the workspace's files are still being put there.
    pub coming: Option<Coming>,
    /// Who does what it hands over, where it may start sub-agents.
    pub delegates: Option<Arc<dyn Delegates>>,
    /// Its node's name, for hooks.
    pub agent_id: String,
    /// The run's id, for hooks.
    pub run: String,
    /// Where the conversation is kept, for hooks.
    pub transcript: PathBuf,
    /// The user's home, for rules that name it.
    pub home: Option<PathBuf>,
    /// Folders beyond the workspace that its commands may write.
    pub writable: Vec<PathBuf>,
    /// The main checkout, for hooks.
    pub project: PathBuf,
    /// Whether its shell may do anything without asking: it is confined, or somebody said it need not be.
    pub free_shell: bool,
    /// Whether what its shell does beyond the worktree stays, and nothing can bring it back.
    pub reaches_out: bool,
    /// Whether whoever runs it tries again where no model can be had; otherwise it waits until the run is resumed.
    pub is_retried: bool,
}

/// Files on their way to a workspace; can be awaited by many, and goes on only while somebody does.
pub type Coming = Shared<BoxFuture<'static, Result<(), Failure>>>;

/// The words that people have for agents.
pub trait Words: Send + Sync {
    /// Returns the word at this place, from 0, of all that there are for a node so far.
    fn word(&self, node: &NodeId, place: usize) -> Option<String>;
}

/// Why a session ended without an end of turn.
#[derive(Debug, Clone, PartialEq)]
pub enum Trouble {
    /// It failed.
    Failed(Failure),
    /// It waits for a person, or for a model that cannot be had now.
    Parked,
    /// The process is to end, or the run is over; nothing is recorded and resume goes on from here.
    Interrupted,
}

impl Trouble {
    /// Returns whether it holds up whoever asked for the work: the work may yet be done.
    pub fn holds_up(&self) -> bool {
        match self {
            Trouble::Failed(failure) => failure.kind == FailureKind::NoRoom,
            Trouble::Parked | Trouble::Interrupted => true,
        }
    }
}

impl From<Closed> for Trouble {
    fn from(Closed: Closed) -> Trouble {
        Trouble::Interrupted
    }
}

impl From<Failure> for Trouble {
    fn from(failure: Failure) -> Trouble {
        Trouble::Failed(failure)
    }
}

/// Notes on the span of a step or a session how it ended. A message is not exported: it may quote what was said.
pub fn note<T>(span: &Span, ended: &Result<T, Trouble>) {
    match ended {
        Ok(_) => trace::ended(span, "succeeded"),
        Err(Trouble::Failed(failure)) => {
            trace::ended(span, "failed");
            trace::failed(span, failure.kind.word(), failure.kind.word());
        }
        Err(Trouble::Parked) => trace::ended(span, "parked"),
        Err(Trouble::Interrupted) => trace::ended(span, "interrupted"),
    }
}

/// Runs blocking work; where it fails, that is a failure of this kind.
///
/// # Errors
/// `Trouble::Failed`, with all causes of the error.
pub(crate) async fn blocking<T, E>(kind: FailureKind, work: impl FnOnce() -> Result<T, E> + Send + 'static) -> Result<T, Trouble>
where
    T: Send + 'static,
    E: Into<Box<dyn Error + Send + Sync>> + Send + 'static,
{
    let done = tasks::blocking(work).await.map_err(Failure::from)?;
    done.map_err(|error| stopping(Failure::of(kind, error.into().as_ref())).into())
}

/// Makes a failure that is nobody's but the machine's one that stops the process, with what can be done.
pub(crate) fn stopping(failure: Failure) -> Failure {
    match of_the_machine(&failure.message) {
        Some(mend) => Failure { kind: FailureKind::NoRoom, hint: Some(mend.to_owned()), ..failure },
        None => failure,
    }
}

/// Returns what can be done where the system said to this program, or to git, which has words of its own, that the machine is at an end:
/// of a disk, of what a process may hold, of patience with another's lock.
fn of_the_machine(message: &str) -> Option<&'static str> {
    const SAID: [(&str, &str); 9] = [
        ("No space left on device", ROOM),
        ("Disk quota exceeded", ROOM),
        ("Out of diskspace", ROOM),
        ("disk is full", ROOM),
        ("Read-only file system", "see why that file system takes no writes any more"),
        ("Input/output error", DISK),
        ("Too many open files", OPEN_FILES),
        ("Cannot allocate memory", MEMORY),
        (KILLED, "see what ends git: where memory is short the system does, and its log says so"),
    ];
    let said = SAID.into_iter().find(|(said, _)| message.contains(said)).map(|(_, mend)| mend);
    let is_locked = message.contains("Unable to create '") && message.contains(".lock': File exists");
    said.or(is_locked.then_some("see that no git is at work in the repository, and remove the lock that it names"))
}

/// An agent at work.
pub struct Agent<'a> {
    equipment: &'a Equipment,
    session: Session,
    talk: Conversation,
    prefix: Prefix,
    began: Duration,
    span: Span,
    /// Whether the conversation was shortened since the last reply because the provider would not take it.
    is_repaired: bool,
}

impl<'a> Agent<'a> {
    /// Takes up a conversation from wherever it stands.
    pub fn new(equipment: &'a Equipment, session: Session, talk: Conversation) -> Agent<'a> {
        let began = equipment.clock.elapsed();
        let span = trace::agent(&session.spec.name, &session.node);
        session.tools.seen.recall(talk.seen());
        Agent { equipment, session, talk, prefix: Prefix::default(), began, span, is_repaired: false }
    }

    /// Runs until the model ends its turn; `brief` is said where nothing was said yet. Returns the last text.
    ///
    /// # Errors
    /// `Trouble` says how else it ended.
    pub async fn run(&mut self, brief: &Brief) -> Result<String, Trouble> {
        let unavailable = self.equipment.hooks.unavailable(&self.session.spec.hooks);
        if !unavailable.is_empty() {
            let failure = Failure::new(FailureKind::Hook, format!("hold the agent to its hooks: {}", unavailable.join(", ")));
            return Err(failure.hint("`spinney trust` shows what each of them does and lets it run; without them the agent does nothing").into());
        }
        // Whatever it is doing when its time is over is cancelled and awaited, so that nothing of it is left running.
        let (time, cancel) = (self.session.spec.limits.time, self.session.tools.cancel.clone());
        let left = time.saturating_sub(self.equipment.clock.elapsed().saturating_sub(self.began));
        let span = self.span.clone();
        let ended = {
            let mut work = std::pin::pin!(self.converse(brief).instrument(span));
            tokio::select! {
                biased;
                ended = &mut work => ended,
                () = tokio::time::sleep(left) => {
                    cancel.cancel();
                    let _ = work.await;
                    Err(guard::out_of_time(time).into())
                }
            }
        };
        match ended {
            Err(Trouble::Parked) => Err(self.ask_for_more().await),
            ended => ended,
        }
    }

    /// Asks whether the session may use as much again of its budget, where that is what it waits for: itself, or a sub-agent of it.
    async fn ask_for_more(&self) -> Trouble {
        let account = &self.equipment.account;
        match account.reached().filter(|_| account.asks()) {
            Some(limit) => {
                let (question, by) = account.question(limit);
                self.park(&more(self.talk.allowance("").raises, by, ""), &question, Form::default()).await
            }
            None => Trouble::Parked,
        }
    }

    async fn converse(&mut self, brief: &Brief) -> Result<String, Trouble> {
        loop {
            self.go_on()?;
            let next = self.talk.next();
            // A reply that the provider paused is gone on with before anything else is said.
            if matches!(next, Next::Ask | Next::End(Ending::Done { .. }))
                && !self.talk.is_paused()
                && let Some(word) = self.equipment.words.word(&self.session.node, self.talk.told())
            {
                self.tell(&word, Why::Told).await?;
                continue;
            }
            match next {
                Next::Brief => self.record(Event::AgentBriefed { node: self.session.node.clone(), brief: Arc::new(brief.clone()) }).await?,
                Next::Shorten => self.compact(self.talk.estimated_prompt() * 3 / 4).await?,
                Next::Ask => self.ask().await?,
                Next::Act => self.act().await?,
                Next::End(ending) => {
                    if let Some(text) = self.judge(ending).await? {
                        return Ok(text);
                    }
                }
            }
        }
    }

    /// Says something to the agent, whose turn it is not.
    ///
    /// # Errors
    /// `Trouble::Interrupted` where the run is over.
    pub async fn tell(&mut self, text: &str, why: Why) -> Result<(), Trouble> {
        self.record(Event::MessageAdded { node: self.session.node.clone(), message: Message::user(text), why }).await
    }

    /// Returns the span of the session; whoever holds it notes its end there.
    pub fn span(&self) -> &Span {
        &self.span
    }

    /// Returns the conversation so far.
    pub fn talk(&self) -> &Conversation {
        &self.talk
    }

    /// Returns what is its own.
    pub fn session(&self) -> &Session {
        &self.session
    }

    fn go_on(&self) -> Result<(), Trouble> {
        if self.session.tools.cancel.is_cancelled() { Err(Trouble::Interrupted) } else { Ok(()) }
    }

    /// Records an event of this conversation, then folds it.
    async fn record(&mut self, event: Event) -> Result<(), Trouble> {
        let event = self.put(event).await?;
        self.talk.apply(&event);
        Ok(())
    }

    /// Records an event and returns it as the journal has it: what is told to the model holds no secret either.
    async fn put(&self, event: Event) -> Result<Event, Trouble> {
        self.equipment.pulse.beat();
        let event = self.equipment.secrets.clean(event);
        self.equipment.recorder.record(event.clone()).await?;
        Ok(event)
    }

    async fn ask(&mut self) -> Result<(), Trouble> {
        let Some(brief) = self.talk.brief().cloned() else { return Ok(()) };
        self.make_room(&brief).await?;
        // What was cut is gone on with beyond the cap.
        let cap = self.session.spec.model.max_output_tokens.filter(|_| !self.talk.is_cut());
        let expected = self.talk.expected(cap);
        let expected = Expected { tokens: expected.total(), usd: self.equipment.model.price(self.choice(&brief), &expected) };
        let prefix = self.prefix.extend(&brief, self.talk.messages(), self.talk.shown()).map_err(|unlike| {
            Failure::new(FailureKind::Bug, format!("go on with the conversation: {unlike}")).hint("nothing was sent; report this, with the run's journal")
        })?;
        // The accounts are asked first: where a session has no more than the step or the run, it is theirs that is used up, and
        // they know what follows.
        let (model, node, ordinal) = (&self.equipment.model, &self.session.node, self.ordinal());
        let booked = |how| model.booked(node, ordinal, how);
        let admitted = async {
            model.turn(node, ordinal, false).await;
            self.equipment.account.reserve(expected, &booked).await
        };
        let reserved = tokio::select! {
            reserved = admitted => reserved?,
            () = self.session.tools.cancel.cancelled() => return Err(Trouble::Interrupted),
        };
        let began = self.equipment.clock.elapsed().saturating_sub(self.began);
        guard::admit(&self.session.spec.limits, &self.talk, began)?;
        let (asked, lost) = self.request(&brief).await;
        let mut used = lost;
        if let Ok(reply) = &asked {
            used += Spent::of(reply);
        }
        tokio::select! {
            () = model.turn(node, ordinal, true) => {}
            () = self.session.tools.cancel.cancelled() => {}
        }
        reserved.settle(&used, &booked);
        let capped = asked.as_ref().is_err_and(|error| error.kind == ModelErrorKind::Capped);
        if capped || !lost.is_nothing() {
            let (node, model) = (self.session.node.clone(), self.choice(&brief).to_owned());
            let usd = (!lost.unpriced).then_some(lost.usd);
            self.record(Event::AttemptsLost { node, model, usage: lost.usage, usd, capped }).await?;
        }
        match asked {
            Ok(reply) => {
                self.is_repaired = false;
                let reply = self.unique_ids(reply);
                self.record(Event::ModelReplied { node: self.session.node.clone(), reply: Box::new(reply), prefix }).await
            }
            // It is asked again, with room for a longer reply.
            Err(_) if capped => self.go_on(),
            Err(error) => self.no_reply(error).await,
        }
    }

    /// Asks for a reply; returns too what attempts have used that gave none.
    async fn request(&self, brief: &Brief) -> (Result<Reply, ModelError>, Spent) {
        let model = [self.choice(brief).to_owned()];
        let spec = &self.session.spec;
        let call = ModelCall {
            node: &self.session.node,
            ordinal: self.ordinal(),
            agent: &spec.name,
            models: &model,
            effort: spec.model.effort.as_deref(),
            max_output_tokens: spec.model.max_output_tokens,
            is_longest: self.talk.is_cut(),
            prompt_tokens: self.talk.estimated_prompt(),
            system: &brief.system,
            tools: &brief.tools,
            provider_tools: &brief.provider_tools,
            output_schema: brief.output_schema.as_ref(),
            must_answer: self.talk.must_answer(),
            is_paused: self.talk.is_paused(),
            container: self.talk.container(),
            messages: self.talk.messages(),
        };
        let sink = Shown::new((self.equipment.watcher.as_ref(), &self.session.node), &self.equipment.pulse, &self.equipment.secrets);
        let asked = tokio::select! {
            biased;
            () = self.session.tools.cancel.cancelled() => Err(ModelError { kind: ModelErrorKind::Cut, message: "the request was cancelled".to_owned(), hint: None }),
            reply = self.equipment.model.reply(&call, &sink) => {
                sink.finish();
                reply
            }
            never = self.meanwhile() => match never {},
        };
        (asked, sink.lost())
    }

    /// Returns which of the node's requests is next.
    fn ordinal(&self) -> Ordinal {
        Ordinal { attempt: self.session.attempt, settled: self.talk.settled() }
    }

    /// Puts the workspace's files there while a request is under way; never ends.
    async fn meanwhile(&self) -> std::convert::Infallible {
        if let Some(coming) = &self.session.coming {
            // A failure is said by the first call that needs the files.
            let _ = coming.clone().await;
        }
        std::future::pending().await
    }

    /// Waits until the workspace's files are there.
    pub(crate) async fn settle_in(&self) -> Result<(), Trouble> {
        match &self.session.coming {
            Some(coming) => Ok(coming.clone().await?),
            None => Ok(()),
        }
    }

    /// Returns the model to ask: the one that has answered, or the first of the list that has not failed to.
    fn choice<'b>(&'b self, brief: &'b Brief) -> &'b str {
        self.talk.model().or(brief.models.get(self.talk.choice()).map(String::as_str)).unwrap_or_default()
    }

    /// Gives calls whose id is empty or was used before an id of their own, the same on every resume.
    fn unique_ids(&self, reply: Reply) -> Reply {
        act::unique_ids(reply, self.talk.messages(), self.talk.spent().turns)
    }

    /// Shortens the conversation where the next request would come near the window.
    async fn make_room(&mut self, brief: &Brief) -> Result<(), Trouble> {
        let window = self.equipment.model.window(self.choice(brief));
        let fits = window.saturating_sub(u64::from(self.session.spec.model.max_output_tokens.unwrap_or(16_000)).min(window / 3));
        if self.talk.estimated_prompt() * 100 < fits * compact::TRIGGER_PERCENT {
            return Ok(());
        }
        self.compact(fits).await
    }

    async fn compact(&mut self, fits: u64) -> Result<(), Trouble> {
        let before = self.talk.estimated_prompt();
        let full = || {
            Failure::new(
                FailureKind::ContextExhausted,
                format!("the conversation needs about {before} tokens, about {fits} fit, and nothing more can be dropped"),
            )
        };
        let is_bound = self.talk.brief().is_none_or(|brief| self.equipment.model.is_bound(self.choice(brief)));
        let messages =
            compact::compact(self.talk.messages(), fits, is_bound).ok_or_else(|| full().hint("split the task, or use a model with a larger window"))?;
        let (event, after) = self.shortened(&messages, "ledger");
        // It must not begin again at the next turn and come to nothing each time.
        if after * 10 > before * 8 && after * 100 >= fits * compact::TRIGGER_PERCENT {
            return Err(full().into());
        }
        self.record(event).await
    }

    /// Makes the event that puts `messages` in the place of all so far, and says how large the next prompt is then.
    fn shortened(&self, messages: &[Message], strategy: &str) -> (Event, u64) {
        let (cut, before) = (self.talk.messages().len(), self.talk.estimated_prompt());
        let event =
            |after| Event::Compacted { node: self.session.node.clone(), cut, messages: messages.to_vec(), strategy: strategy.to_owned(), before, after };
        let mut preview = self.talk.clone();
        preview.apply(&event(0));
        let after = preview.estimated_prompt();
        (event(after), after)
    }

    /// Judges how a turn ended: the text of a good end, `None` where the agent was told to go on.
    async fn judge(&mut self, ending: Ending) -> Result<Option<String>, Trouble> {
        let tally = self.talk.tally();
        let goes_on = tally.continues < CONTINUES_MAX;
        match ending {
            Ending::Done { text } => self.stopped(text).await,
            Ending::Empty if tally.empties < EMPTIES_MAX => {
                self.tell("Your reply held no answer. Go on with the task, or say what you have done if it is finished.", Why::Continue).await.map(|()| None)
            }
            Ending::Empty => Err(Failure::new(FailureKind::Truncated, "the model gave no answer, and again when it was asked to go on").into()),
            Ending::Cut if goes_on => {
                let text = "Your reply was cut at the output limit. Go on with what would have come next and repeat nothing: its parts are read as one.";
                self.tell(text, Why::Continue).await.map(|()| None)
            }
            Ending::Cut => Err(Failure::new(FailureKind::Truncated, "the model's replies were cut at the output limit, again and again")
                .hint("raise `max_output_tokens` of the model")
                .into()),
            // Then there is room to be made before the next request.
            Ending::WindowFull if goes_on => {
                let text = "Your reply was cut because the context window is full. Earlier parts are dropped. Go on with what would have come next \
                            and repeat nothing of that reply: its parts are read as one.";
                self.tell(text, Why::Continue).await.map(|()| None)
            }
            Ending::WindowFull => Err(Failure::new(FailureKind::ContextExhausted, "the context window is full and stays so").into()),
            Ending::Refused { category } => {
                let category = if category.is_empty() { String::new() } else { format!(" ({category})") };
                let failure = Failure::new(FailureKind::Refused, format!("the model declined{category}"));
                let hint = match self.talk.brief().map_or(0, |brief| brief.models.len()) {
                    _ if !self.talk.is_fresh() => "reword or split the task: another model takes over only where none has replied yet",
                    0 | 1 => "reword the task, or name a fallback in `models.use`",
                    _ => "reword the task, or name other models in `models.use`",
                };
                self.go_without(failure.hint(hint)).await.map(|()| None)
            }
            Ending::Unknown { word } => Err(Failure::new(FailureKind::UnknownStop, format!("the model stopped for an unknown reason, `{word}`")).into()),
        }
    }

    /// Asks the Stop hooks whether a good end is one.
    async fn stopped(&mut self, text: String) -> Result<Option<String>, Trouble> {
        self.settle_in().await?;
        let Some(objection) = self.stop_hooks(&text).await? else { return Ok(Some(text)) };
        let why = match self.talk.last_stop_reason() {
            _ if self.talk.tally().stops >= STOP_BLOCKS_MAX => format!("it objected {STOP_BLOCKS_MAX} times before"),
            Some(last) if last == objection.reason => "the agent was told so and has done nothing since".to_owned(),
            _ => return self.tell(&objection.reason, Why::StopHook).await.map(|()| None),
        };
        self.overrule(&objection, &why).await?;
        Ok(Some(text))
    }
}
