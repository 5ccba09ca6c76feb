//! The one vocabulary of what happened, and the words that cross layers.
//!
//! A run is its journal: [`Event`] is what is journalled, folded into state, shown, exported and replayed. The enum is
//! closed and in the past tense; an event is acknowledged before its effect is visible. Serialised externally tagged
//! (`{"step_started": {…}}`), since blocks inside keep their raw bytes, which tagged enums would lose.
mod choice;
mod id;
mod origin;
mod outcome;
mod words;

use crate::{
    clock::Timestamp,
    message::{Message, ProviderTool, Reply, ToolResult, ToolSpec, Usage},
};
pub use choice::{Delivery, MergeProgress, Scores, SelectProgress};
pub(crate) use id::hex;
pub use id::{BlobId, CommitId, FileSeen, Frame, NodeId, NodeName, RunId, StepId};
pub use origin::{Definitions, Given, Origin, Repeated, Wish};
pub use outcome::{Failure, FailureKind, Limit, Outcome, SkipCause, Success, because};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::{collections::BTreeMap, sync::Arc};
pub use words::{HookVerdict, Isolation, Wake};

/// A journalled event. `seq` starts at 0 and has no gaps.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Its place in the journal.
    pub seq: u64,
    /// When it was appended.
    pub at: Timestamp,
    /// What happened.
    pub event: Event,
}

/// The strategy of a `Compacted` that leaves nothing out but what was thought, which the provider does not take back.
pub const UNTHINKING: &str = "without thinking";

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// The run began; always the first record.
    RunStarted(Box<RunStarted>),
    /// Another process took the run up again.
    RunResumed {
        /// Its process id.
        pid: u32,
        /// What the steps are from now on, where that has changed and the change was accepted.
        #[serde(default, skip_serializing_if = "Definitions::is_empty")]
        steps: Definitions,
        /// How it is carried out from now on, where that is said otherwise than before.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        given: Option<Given>,
        /// What hooks and checks were under way when the process before it ended, and are done again.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        again: Vec<Repeated>,
    },
    /// A step's `if` was evaluated.
    ConditionEvaluated {
        /// The node.
        node: NodeId,
        /// What it gave.
        holds: bool,
    },
    /// A loop began an iteration, a call of another workflow began, or the run began its `on_failure` or `finally`.
    FrameOpened {
        /// The node whose steps begin.
        node: NodeId,
        /// The iteration, from 1.
        round: u32,
        /// The commit that the steps inside start from.
        base: CommitId,
        /// The inputs of a called workflow, checked and with defaults.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        inputs: Option<Map<String, Value>>,
    },
    /// A step with items got some, at its start or from the orchestrator.
    ItemsAdded {
        /// The step's node.
        step: NodeId,
        /// The new items, in order.
        items: Vec<Item>,
        /// Who added them: the step itself, or the orchestrator's node.
        by: NodeId,
        /// How many may run at the same time, where the step says so.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        max_parallel: Option<u32>,
    },
    /// An attempt of a node began.
    StepStarted {
        /// The node.
        node: NodeId,
        /// From 1.
        attempt: u32,
    },
    /// A node has a place to work in.
    WorkspaceMade {
        /// The node.
        node: NodeId,
        /// The commit it starts from.
        base: CommitId,
        /// How it is kept apart.
        isolation: Isolation,
        /// Where it stands.
        path: String,
        /// The command that is to run there, where the step is one; its beginning where it is long.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        command: Option<String>,
    },
    /// An agent's session began, or got its first message in this attempt: everything that is frozen for it.
    AgentBriefed {
        /// The node.
        node: NodeId,
        /// What it is told and may use.
        brief: Arc<Brief>,
    },
    /// The engine said something to an agent after its brief.
    MessageAdded {
        /// The node.
        node: NodeId,
        /// What was said; text only, results are recorded one by one.
        message: Message,
        /// Why.
        why: Why,
    },
    /// A whole reply arrived; recorded before it is judged.
    ModelReplied {
        /// The node.
        node: NodeId,
        /// The reply.
        reply: Box<Reply>,
        /// Running hashes of what it was asked with, as far as the reply before was not: the head, and each block.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        prefix: Vec<String>,
    },
    /// Requests were paid for that gave no reply: their streams broke, or were given up half-way.
    AttemptsLost {
        /// The node.
        node: NodeId,
        /// `provider/model` that was asked.
        model: String,
        /// What they used, as far as the provider said before they ended.
        usage: Usage,
        /// Dollars, where the price is known; never zero for unknown.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        usd: Option<f64>,
        /// Whether the last of them was cut within a call at a cap of the user's, so that the next one goes beyond that.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        capped: bool,
    },
    /// A model of an agent's list gave no answer, or declined, before anything was said: the next one is asked instead.
    FellBack {
        /// The node.
        node: NodeId,
        /// `provider/model` that gave none.
        from: String,
        /// The next of the list.
        to: String,
        /// Why.
        failure: Failure,
    },
    /// A node waits for a model that cannot be had now, however long this process waits: the run is to be resumed later.
    Parked {
        /// The node.
        node: NodeId,
        /// Why.
        failure: Failure,
    },
    /// A tool call passed the gate and is about to have its effect.
    ToolStarted {
        /// The node.
        node: NodeId,
        /// The call's id.
        call: String,
        /// The input as hooks left it, where they changed it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        input: Option<Value>,
        /// How to recover when its end was never recorded.
        recovery: Recovery,
    },
    /// A tool call has its one result.
    ToolFinished {
        /// The node.
        node: NodeId,
        /// What the model is told.
        result: ToolResult,
        /// The tool, for those who read only this record.
        tool: String,
        /// How the gate judged the call.
        verdict: String,
        /// What hooks want the model to know besides.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        context: Vec<String>,
        /// The whole output, where the text above is cut.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        output: Option<BlobId>,
        /// The files that it read or wrote whole, so that after the death of the process too none is overwritten that has changed since.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        seen: Vec<FileSeen>,
        /// How long it took.
        took_ms: u64,
    },
    /// A hook ran and had something to say, or failed.
    HookRan {
        /// The node.
        node: NodeId,
        /// The hook's name.
        hook: String,
        /// The hook event, `PreToolUse` say.
        on: String,
        /// The call it was asked about.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        call: Option<String>,
        /// What it said.
        verdict: HookVerdict,
        /// Its reason, or what went wrong.
        reason: String,
    },
    /// The older part of a conversation was replaced by a shorter one.
    Compacted {
        /// The node.
        node: NodeId,
        /// How many messages from the start were replaced (the first one, the brief's, is repeated in `messages`).
        cut: usize,
        /// What stands in their place.
        messages: Vec<Message>,
        /// The strategy's name; [`UNTHINKING`] is one.
        strategy: String,
        /// Estimated tokens before.
        before: u64,
        /// Estimated tokens after.
        after: u64,
    },
    /// A step's checks ran.
    VerifyRan {
        /// The node.
        node: NodeId,
        /// Whether all were green.
        passed: bool,
        /// The tail of the first red one's output, or empty.
        tail: String,
    },
    /// The engine made a commit of a node's work.
    WorkCaptured {
        /// The node.
        node: NodeId,
        /// The commit; its ref is set after this record and restored from it.
        commit: CommitId,
        /// Paths that differ from the base, sorted.
        paths: Vec<String>,
    },
    /// What an attempt without a result had in its files is kept, as the commit of its checkpoint; recorded once its ref stands.
    CheckpointKept {
        /// The node.
        node: NodeId,
        /// The commit.
        commit: CommitId,
    },
    /// A recorded result of an earlier run stands for a node's work.
    CacheHit {
        /// The node.
        node: NodeId,
        /// What it was found by: the hash of all that makes the result.
        key: String,
        /// The run that did the work.
        run: RunId,
    },
    /// A node's output is kept among the run's artefacts; its file is written after this record.
    ArtefactKept {
        /// The node.
        node: NodeId,
        /// The file's name below `artifacts`.
        name: String,
        /// Its content.
        content: BlobId,
        /// How many bytes it has.
        bytes: u64,
    },
    /// A step of a merge.
    MergeAdvanced {
        /// The merge step's node.
        node: NodeId,
        /// What happened.
        progress: MergeProgress,
    },
    /// A step of a choice.
    SelectAdvanced {
        /// The select step's node.
        node: NodeId,
        /// What happened.
        progress: SelectProgress,
    },
    /// A sub-agent's work reached whoever asked for it; recorded before any file is touched.
    WorkDelivered {
        /// The sub-agent's node.
        node: NodeId,
        /// What became of it.
        delivery: Delivery,
    },
    /// A node waits for a person.
    QuestionAsked {
        /// The node.
        node: NodeId,
        /// The call that is asked about, or what else tells the question from others of its node.
        call: String,
        /// What is asked.
        question: String,
        /// How it is to be answered, and what stands beside it.
        #[serde(default, skip_serializing_if = "Form::is_plain")]
        form: Form,
    },
    /// A question was answered.
    QuestionAnswered {
        /// The node.
        node: NodeId,
        /// The call that was asked about.
        call: String,
        /// Whether it may go on.
        allowed: bool,
        /// Who answered: `terminal`, `--on-ask`, a name.
        by: String,
        /// What they said besides, or the answer itself where text was asked for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        note: Option<String>,
    },
    /// A person has a word for an agent, which it hears at its next turn; every attempt of its node hears it.
    Told {
        /// The node.
        node: NodeId,
        /// The word.
        text: String,
        /// Whose.
        by: String,
        /// The letter it came by: one letter is taken once.
        letter: String,
    },
    /// A node will be tried again.
    RetryScheduled {
        /// The node.
        node: NodeId,
        /// Not before this.
        due: Timestamp,
        /// Why the last attempt failed.
        failure: Failure,
        /// Whether the agent that the step names for this does the next attempt.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        handed_over: bool,
        /// Whether the attempt was lost with its files, and does not count.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        lost: bool,
    },
    /// A retry is due.
    TimerFired {
        /// The node.
        node: NodeId,
    },
    /// The orchestrator was told what changed.
    OrchestratorWoken {
        /// Its node.
        node: NodeId,
        /// Why, sorted by their words.
        reasons: Vec<Wake>,
        /// What it was told.
        message: Message,
    },
    /// The orchestrator has said what it had to say to its last waking.
    OrchestratorRested {
        /// Its node.
        node: NodeId,
        /// Its words.
        text: String,
        /// Why it could not go on, where that is so; then it is not woken again and the graph alone decides.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        failure: Option<Failure>,
    },
    /// Somebody called the run off: nothing of it goes on but what belongs to its end.
    RunCancelled {
        /// Who.
        by: String,
    },
    /// A limit of the run was reached.
    LimitReached {
        /// Which.
        limit: Limit,
    },
    /// A node ended.
    StepFinished {
        /// The node.
        node: NodeId,
        /// How.
        outcome: Outcome,
    },
    /// A branch is about to be made; on disk before it is tried.
    BranchIntended {
        /// The branch's full ref name.
        name: String,
        /// Where it will stand.
        commit: CommitId,
    },
    /// The branch stands.
    BranchMade {
        /// The branch's full ref name.
        name: String,
        /// Where.
        commit: CommitId,
    },
    /// The run ended; always the last record.
    RunFinished {
        /// How.
        outcome: Outcome,
    },
}

/// Everything a run is pinned to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunStarted {
    /// The run.
    pub run: RunId,
    /// The workflow's name.
    pub workflow: String,
    /// Where the workflow was found, for people.
    pub file: String,
    /// The inputs, checked and with defaults.
    pub inputs: Map<String, Value>,
    /// The commit everything starts from.
    pub base: CommitId,
    /// The ref that was checked out when the run began, where there was one.
    pub head: Option<String>,
    /// Content hashes of the workflow and of all it resolved, by `kind:name`.
    pub pins: BTreeMap<String, String>,
    /// The script that stands for the models, where one does; then nothing of this run was said by a real one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobId>,
    /// Whether that is a recording, whose replies cost what they cost when they were made.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub replays: bool,
    /// What each step is; empty where that was not written down.
    #[serde(default, skip_serializing_if = "Definitions::is_empty")]
    pub steps: Definitions,
    /// The run that this one follows from, where there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origin: Option<Origin>,
    /// What was said of how it is carried out.
    #[serde(default, skip_serializing_if = "Given::is_nothing")]
    pub given: Given,
}

impl RunStarted {
    /// Returns whether what was said comes from a script that somebody wrote, and so costs nothing.
    pub fn is_scripted(&self) -> bool {
        self.script.is_some() && !self.replays
    }
}

/// One item of a `for_each`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Item {
    /// Unique in its step.
    pub key: String,
    /// What templates see under the `as` name.
    pub value: Value,
    /// The combination of the step's `matrix`.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub matrix: Map<String, Value>,
    /// Keys of items that must succeed first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub needs: Vec<String>,
}

impl Item {
    /// Returns its title, where its value has one.
    pub fn title(&self) -> Option<&str> {
        self.value.get("title").and_then(Value::as_str)
    }
}

/// How a question is to be answered, and what stands beside it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Form {
    /// Whether the answer is text; otherwise it is yes or no.
    pub open: bool,
    /// The only texts that are answers, where there are such.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub choices: Vec<String>,
    /// What is shown besides, a change say.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shown: Option<String>,
    /// Until when an answer counts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Deadline>,
    /// The input of the call that is asked about, where hooks changed it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input: Option<Value>,
    /// What hooks want the model to know about that call.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
}

/// The end of the time for an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deadline {
    /// When it is.
    pub at: Timestamp,
    /// Whether silence until then means yes.
    pub allows: bool,
}

impl Form {
    /// Returns whether it says nothing: yes or no, about the call as it was made.
    pub fn is_plain(&self) -> bool {
        *self == Form::default()
    }
}

/// What is frozen for an agent's session, so that a resumed one sends the same bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Brief {
    /// The agent's name.
    pub agent: String,
    /// `provider/model` choices, in order.
    pub models: Vec<String>,
    /// The system text.
    pub system: String,
    /// The tools declared, sorted by name.
    pub tools: Vec<ToolSpec>,
    /// Tools that run at the provider, sorted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub provider_tools: Vec<ProviderTool>,
    /// JSON Schema of the final answer, where one is demanded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_schema: Option<Value>,
    /// The first user message.
    pub message: Message,
}

/// Why the engine spoke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Why {
    /// `verify` was red.
    VerifyRed,
    /// The answer does not fit its schema.
    SchemaMismatch,
    /// The reply was empty or cut.
    Continue,
    /// A Stop hook wants more.
    StopHook,
    /// The conversation continues with a new task (a resolver's next conflict, say).
    NextTask,
    /// A person has a word for it.
    Told,
}

/// How to recover when a call's end was never recorded.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Recovery {
    /// It only reads: run it again.
    Again,
    /// It writes these files: put back what was there and run it again.
    Restore(Vec<FileBefore>),
    /// It may do anything in the worktree: go back to this commit's tree and run it again.
    Rollback(CommitId),
    /// A sub-agent does it, from this commit: its conversation goes on.
    Delegated(CommitId),
    /// It reaches beyond the worktree: tell the model that the outcome is unknown.
    Unknown,
}

/// What a file was before a write.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileBefore {
    /// Relative to the worktree's root.
    pub path: String,
    /// Its content; `None` where there was no file.
    pub content: Option<BlobId>,
    /// Whether it could be executed.
    #[serde(default)]
    pub executable: bool,
}

impl std::fmt::Display for Event {
    /// Writes its kind in the journal's word, and its node: ``step_started of `build` ``.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let value = serde_json::to_value(self).unwrap_or_default();
        f.write_str(value.as_object().and_then(|event| event.keys().next()).map_or("an event", String::as_str))?;
        self.node().map_or(Ok(()), |node| write!(f, " of `{node}`"))
    }
}

impl Event {
    /// Returns whether it says what becomes of a request to a model: a reply, what follows from none, or another one instead.
    pub fn settles(&self) -> bool {
        matches!(
            self,
            Event::ModelReplied { .. } | Event::FellBack { .. } | Event::Parked { .. } | Event::Compacted { .. } | Event::AttemptsLost { capped: true, .. }
        )
    }

    /// Returns the node this event is about, where it is about one.
    pub fn node(&self) -> Option<&NodeId> {
        match self {
            Event::ConditionEvaluated { node, .. }
            | Event::FrameOpened { node, .. }
            | Event::ItemsAdded { step: node, .. }
            | Event::StepStarted { node, .. }
            | Event::WorkspaceMade { node, .. }
            | Event::AgentBriefed { node, .. }
            | Event::MessageAdded { node, .. }
            | Event::ModelReplied { node, .. }
            | Event::AttemptsLost { node, .. }
            | Event::FellBack { node, .. }
            | Event::Parked { node, .. }
            | Event::ToolStarted { node, .. }
            | Event::ToolFinished { node, .. }
            | Event::HookRan { node, .. }
            | Event::Compacted { node, .. }
            | Event::VerifyRan { node, .. }
            | Event::WorkCaptured { node, .. }
            | Event::CheckpointKept { node, .. }
            | Event::CacheHit { node, .. }
            | Event::ArtefactKept { node, .. }
            | Event::MergeAdvanced { node, .. }
            | Event::SelectAdvanced { node, .. }
            | Event::WorkDelivered { node, .. }
            | Event::QuestionAsked { node, .. }
            | Event::QuestionAnswered { node, .. }
            | Event::Told { node, .. }
            | Event::RetryScheduled { node, .. }
            | Event::TimerFired { node }
            | Event::OrchestratorWoken { node, .. }
            | Event::OrchestratorRested { node, .. }
            | Event::StepFinished { node, .. } => Some(node),
            Event::RunStarted(_)
            | Event::RunCancelled { .. }
            | Event::LimitReached { .. }
            | Event::RunResumed { .. }
            | Event::BranchIntended { .. }
            | Event::BranchMade { .. }
            | Event::RunFinished { .. } => None,
        }
    }

    /// Returns whether this record must be on the disk, not only safe from the death of the process, before anything
    /// else happens: what follows it is visible outside the run.
    pub fn needs_sync(&self) -> bool {
        match self {
            // A resumed run goes on from records that the last process may not have lived to see on the disk.
            Event::RunStarted(_)
            | Event::RunResumed { .. }
            | Event::RunCancelled { .. }
            | Event::BranchIntended { .. }
            | Event::QuestionAnswered { .. }
            | Event::Told { .. }
            | Event::RunFinished { .. } => true,
            Event::ToolStarted { recovery, .. } => matches!(recovery, Recovery::Unknown),
            // What follows these is seen inside of the run alone. Whoever adds an event decides it here.
            Event::ConditionEvaluated { .. }
            | Event::FrameOpened { .. }
            | Event::ItemsAdded { .. }
            | Event::StepStarted { .. }
            | Event::WorkspaceMade { .. }
            | Event::AgentBriefed { .. }
            | Event::MessageAdded { .. }
            | Event::ModelReplied { .. }
            | Event::AttemptsLost { .. }
            | Event::FellBack { .. }
            | Event::Parked { .. }
            | Event::ToolFinished { .. }
            | Event::HookRan { .. }
            | Event::Compacted { .. }
            | Event::VerifyRan { .. }
            | Event::WorkCaptured { .. }
            | Event::CheckpointKept { .. }
            | Event::CacheHit { .. }
            | Event::ArtefactKept { .. }
            | Event::MergeAdvanced { .. }
            | Event::SelectAdvanced { .. }
            | Event::WorkDelivered { .. }
            | Event::QuestionAsked { .. }
            | Event::RetryScheduled { .. }
            | Event::TimerFired { .. }
            | Event::OrchestratorWoken { .. }
            | Event::OrchestratorRested { .. }
            | Event::LimitReached { .. }
            | Event::StepFinished { .. }
            | Event::BranchMade { .. } => false,
        }
    }
}
