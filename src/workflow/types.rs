//! The typed form of a workflow file. Templates are text here; `prompts` evaluates them.
use super::{
    choices::{Approve, Select},
    flaws::Flaws,
    hooks::Hooks,
    sandbox::AgentSandbox,
    servers::{Chosen, Server},
};
use crate::{
    event::Wake,
    message::ProviderTool,
    source::{Diagnostic, Source, Span, Spanned},
};
use serde_json::Value;
use std::{sync::Arc, time::Duration};

/// A name and what it names, in the order of the file.
pub type Entries<T> = Vec<(Spanned<String>, T)>;

/// A whole workflow file.
#[derive(Debug, Clone)]
pub struct Workflow {
    /// The file.
    pub source: Arc<Source>,
    /// `[a-z][a-z0-9-]*`.
    pub name: Spanned<String>,
    /// For people.
    pub description: Option<String>,
    /// What `--input` takes.
    pub inputs: Entries<Input>,
    /// For every command and shell tool.
    pub env: Entries<Spanned<String>>,
    /// Names of environment variables whose values are never written anywhere.
    pub secrets: Vec<Spanned<String>>,
    /// For the whole run.
    pub budget: Option<Spanned<Budget>>,
    /// Aliases.
    pub models: Entries<ModelAlias>,
    /// What steps and agents inherit.
    pub defaults: Defaults,
    /// The agents of this file.
    pub agents: Entries<Agent>,
    /// The agent that watches over the run.
    pub orchestrator: Option<Spanned<Orchestrator>>,
    /// JSON Schemas by name.
    pub schemas: Entries<Spanned<Value>>,
    /// Hooks that hold for the whole workflow.
    pub hooks: Hooks,
    /// Permission rules for the whole workflow.
    pub permissions: Permissions,
    /// Programs that lend tools to the agents.
    pub servers: Entries<Server>,
    /// Skills that every agent sees.
    pub skills: Vec<Spanned<String>>,
    /// The steps.
    pub steps: Vec<Step>,
    /// Name to template.
    pub outputs: Entries<Spanned<String>>,
    /// Steps that run after a run that failed.
    pub on_failure: Vec<Step>,
    /// Steps that run at the end of every run.
    pub finally: Vec<Step>,
    /// Whether its hooks and servers may run.
    pub trusted: bool,
    /// What somebody should look at although the file loads.
    pub warnings: Vec<Diagnostic>,
    /// What could not be read of it; a file that has any is judged and refused.
    pub flaws: Flaws,
}

impl Workflow {
    /// Returns what is said of the sandboxes of its agents.
    pub fn sandboxes(&self) -> impl Iterator<Item = (&Spanned<String>, &AgentSandbox)> {
        self.agents.iter().filter_map(|(name, agent)| Some((name, &agent.sandbox.as_ref()?.value)))
    }

    /// Takes out what allows tools without asking and what opens sandboxes, and has no hook or server run that stands in it: whoever wrote it is not trusted.
    pub fn distrust(&mut self) {
        self.trusted = false;
        self.permissions.allow.clear();
        for (_, agent) in &mut self.agents {
            agent.permissions.allow.clear();
            agent.sandbox.iter_mut().for_each(|sandbox| sandbox.value.shut());
        }
    }
}

/// One input: JSON Schema words with JSON Schema meaning.
#[derive(Debug, Clone)]
pub struct Input {
    /// Whether it must be given.
    pub required: bool,
    /// What it is when it is not given.
    pub default: Option<Spanned<Value>>,
    /// For people.
    pub description: Option<String>,
    /// The remaining words as a JSON Schema (`type`, `enum`, `pattern`, `minimum`, `maximum`, `items`).
    pub schema: Value,
    /// Where `type` stands.
    pub kind: Spanned<InputKind>,
}

/// The type of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Text.
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// `true` or `false`.
    Boolean,
    /// A list.
    Array,
    /// A map.
    Object,
}

/// Limits as written; what is absent is inherited.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Budget {
    /// Dollars.
    pub usd: Option<Spanned<f64>>,
    /// Tokens, in and out.
    pub tokens: Option<Spanned<u64>>,
    /// Wall time.
    pub time: Option<Spanned<Duration>>,
    /// Model calls.
    pub turns: Option<Spanned<u32>>,
    /// What happens at the limit.
    pub on_exceed: OnExceed,
}

/// What happens when a budget is used up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum OnExceed {
    /// The run fails, resumable.
    #[default]
    Stop,
    /// Nothing new starts, what there is is joined, the run ends well but partial.
    Finish,
    /// A person is asked whether as much again may be used.
    Ask,
}

/// `models: NAME: {use: [...]}`.
#[derive(Debug, Clone)]
pub struct ModelAlias {
    /// `provider/model`, in order of preference.
    pub choices: Vec<Spanned<String>>,
    /// Thinking effort, in the provider's word.
    pub effort: Option<String>,
    /// Cap on one reply, in tokens.
    pub max_output_tokens: Option<u32>,
}

/// `defaults:`.
#[derive(Debug, Clone, Default)]
pub struct Defaults {
    /// Alias or `provider/model`.
    pub model: Option<Spanned<String>>,
    /// For every step.
    pub timeout: Option<Duration>,
    /// For every agent: the longest time without a sign of life.
    pub idle_timeout: Option<Duration>,
    /// For every step.
    pub retry: Option<Retry>,
    /// For every step that may have one.
    pub workspace: Option<Spanned<Workspace>>,
    /// Agents at work at the same time.
    pub max_parallel: Option<Spanned<u32>>,
}

impl Defaults {
    /// Lays others under these: what these do not say, those do. Models are named apart, by whoever names one.
    pub fn lay_under(&mut self, others: &Defaults) {
        let Defaults { model: _, timeout, idle_timeout, retry, workspace, max_parallel } = others;
        self.timeout = self.timeout.or(*timeout);
        self.idle_timeout = self.idle_timeout.or(*idle_timeout);
        self.retry = self.retry.take().or_else(|| retry.clone());
        self.workspace = self.workspace.take().or_else(|| workspace.clone());
        self.max_parallel = self.max_parallel.take().or_else(|| max_parallel.clone());
    }
}

/// An agent.
#[derive(Debug, Clone, Default)]
pub struct Agent {
    /// `use: NAME`: everything not said here comes from the agent file of that name.
    pub base: Option<Spanned<String>>,
    /// The system text.
    pub system: Option<Spanned<Text>>,
    /// For people and for the orchestrator.
    pub description: Option<String>,
    /// Alias or `provider/model`; a template where the step sets it.
    pub model: Option<Spanned<String>>,
    /// Thinking effort.
    pub effort: Option<String>,
    /// What it may do.
    pub access: Option<Access>,
    /// Tools by name; absent means all that `access` allows.
    pub tools: Option<Vec<Spanned<String>>>,
    /// Tools that run at the provider.
    pub provider_tools: Vec<Spanned<ProviderTool>>,
    /// Skills by name.
    pub skills: Vec<Spanned<String>>,
    /// Hooks.
    pub hooks: Hooks,
    /// Permission rules.
    pub permissions: Permissions,
    /// What it says of servers; absent, it has those of the file.
    pub servers: Option<Chosen>,
    /// What its commands reach besides its workspace.
    pub sandbox: Option<Spanned<AgentSandbox>>,
    /// Limits of one session.
    pub budget: Option<Spanned<Budget>>,
    /// Model calls in one session.
    pub max_turns: Option<Spanned<u32>>,
    /// Wall time of one session.
    pub timeout: Option<Duration>,
    /// The longest time without a sign of life: a byte of a reply, output of a tool.
    pub idle_timeout: Option<Duration>,
    /// A folder inside the workspace where it starts, a template.
    pub cwd: Option<Spanned<String>>,
    /// How deep sub-agents may start sub-agents; 1 where they may not.
    pub max_depth: Option<Spanned<u32>>,
    /// Sub-agents of one session at work at the same time.
    pub max_parallel: Option<Spanned<u32>>,
}

/// Text that stands in the file, or the name of a file that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Text {
    /// The text.
    Inline(String),
    /// A path below a library root, ending in `.md`.
    File(String),
}

/// What an agent may do in its workspace.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Access {
    /// No writing tool; read-only shell commands.
    #[default]
    Read,
    /// Edits freely inside its worktree and scope.
    Write,
}

/// Permission rules in Claude Code's syntax.
#[derive(Debug, Clone, Default)]
pub struct Permissions {
    /// Allowed without asking.
    pub allow: Vec<Spanned<String>>,
    /// Asked about, even where an allow rule matches.
    pub ask: Vec<Spanned<String>>,
    /// Never.
    pub deny: Vec<Spanned<String>>,
}

/// `orchestrator:`.
#[derive(Debug, Clone)]
pub struct Orchestrator {
    /// The agent's name.
    pub agent: Spanned<String>,
    /// What it may do.
    pub may: Vec<Spanned<Power>>,
    /// How many items it may add in all.
    pub max_added: u32,
    /// When it is woken; the end of the run always wakes it.
    pub wake: Vec<Spanned<Wake>>,
}

/// A structural power of the orchestrator.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Power {
    /// Append items to a running `for_each`.
    AddItems,
    /// Try a failed item again.
    Retry,
    /// Stop an item that has not ended.
    Stop,
    /// Ask a person.
    Ask,
}

impl Power {
    /// Returns the tool that it is.
    pub fn tool(self) -> &'static str {
        match self {
            Power::AddItems => "AddItems",
            Power::Retry => "RetryItem",
            Power::Stop => "StopItem",
            Power::Ask => "AskPerson",
        }
    }
}

/// One step: a verb, multipliers, common keys.
#[derive(Debug, Clone)]
pub struct Step {
    /// Its id.
    pub id: Spanned<String>,
    /// Where its keys stand.
    pub place: StepPlace,
    /// What it does.
    pub verb: Verb,
    /// What it waits for.
    pub needs: Vec<Need>,
    /// `if`: an expression.
    pub condition: Option<Spanned<String>>,
    /// One node per item.
    pub for_each: Option<ForEach>,
    /// One node per combination.
    pub matrix: Option<Matrix>,
    /// When a recorded result stands for the work.
    pub cache: Option<Cache>,
    /// Where it works.
    pub workspace: Option<Spanned<Workspace>>,
    /// A folder inside the workspace, a template.
    pub cwd: Option<Spanned<String>>,
    /// Globs it may write: a list of templates, or one whole-value template that gives a list.
    pub scope: Option<Spanned<Scope>>,
    /// Checks that its work must pass.
    pub verify: Option<Verify>,
    /// What its output must look like.
    pub output: Option<Output>,
    /// Limits of the step.
    pub budget: Option<Spanned<Budget>>,
    /// A timeout is a failure.
    pub timeout: Option<Duration>,
    /// The longest time without a sign of life.
    pub idle_timeout: Option<Duration>,
    /// For transient errors.
    pub retry: Option<Retry>,
    /// Whether its failure is readable data that counts as success.
    pub allow_failure: bool,
    /// Name to template.
    pub env: Entries<Spanned<String>>,
    /// Skills by name, besides the agent's.
    pub skills: Vec<Spanned<String>>,
    /// Hooks, besides the agent's.
    pub hooks: Hooks,
    /// Overrides the agent's model; a template.
    pub model: Option<Spanned<String>>,
    /// Overrides the agent's effort.
    pub effort: Option<String>,
}

/// Where the keys of a step stand, for whoever puts one in.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StepPlace {
    /// Its map: from its brace where it has braces, else from its first key.
    pub map: Span,
    /// The value of `needs`.
    pub needs: Option<Span>,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Verb {
    /// One agent session.
    Agent {
        /// The agent's name.
        agent: Spanned<String>,
        /// A template.
        prompt: Spanned<Text>,
    },
    /// A shell command, a template.
    Run {
        /// The command.
        command: Spanned<String>,
    },
    /// Joins the work of many.
    Merge(Box<Merge>),
    /// Another workflow as a child of this run.
    Workflow {
        /// Its name.
        workflow: Spanned<String>,
        /// Its inputs: a literal, or a template.
        with: Entries<Spanned<Value>>,
    },
    /// Keeps one of several candidates.
    Select(Box<Select>),
    /// Waits for a person.
    Approve(Box<Approve>),
    /// A body of steps, again and again.
    Loop(Box<Loop>),
}

impl Step {
    /// Returns the steps whose work it joins or chooses from.
    pub fn sources(&self) -> &[Spanned<String>] {
        match &self.verb {
            Verb::Merge(merge) => &merge.from,
            Verb::Select(select) => &select.from,
            Verb::Agent { .. } | Verb::Run { .. } | Verb::Workflow { .. } | Verb::Approve(_) | Verb::Loop(_) => &[],
        }
    }
}

/// One need.
#[derive(Debug, Clone)]
pub struct Need {
    /// The step.
    pub step: Spanned<String>,
    /// How it must have ended.
    pub on: On,
}

/// How a needed step must have ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum On {
    /// Well.
    #[default]
    Success,
    /// In failure.
    Failure,
    /// In any way but skipped.
    Done,
}

/// `for_each:`.
#[derive(Debug, Clone)]
pub struct ForEach {
    /// A whole-value template that gives a list, or a literal list.
    pub items: Spanned<Value>,
    /// The name of the item in templates.
    pub name: Spanned<String>,
    /// A template for the item's key; absent: the item itself where it is text or a number, else its index.
    pub key: Option<Spanned<String>>,
    /// A whole-value template that gives a list of keys.
    pub needs: Option<Spanned<String>>,
    /// A number, or a template that gives one.
    pub max_parallel: Option<Spanned<Value>>,
    /// Whether the first failure stops the rest.
    pub fail_fast: bool,
    /// What the step needs of its items.
    pub join: Join,
    /// What the failure of one item means for the others.
    pub on_item_failure: OnItemFailure,
}

/// What the failure of an item means for the rest.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum OnItemFailure {
    /// Nothing: the others go on.
    #[default]
    Continue,
    /// No other item begins; those that have begun go on.
    Stop,
    /// It is tried once more by this agent.
    RetryWith(Spanned<String>),
}

/// `matrix:`; every combination of its axes is an item.
#[derive(Debug, Clone)]
pub struct Matrix {
    /// Name to a literal list, or to a whole-value template that gives one.
    pub axes: Entries<Spanned<Value>>,
    /// Combinations that are left out: each a map of axes to values, those of all that match.
    pub exclude: Vec<Spanned<Value>>,
    /// A number, or a template that gives one.
    pub max_parallel: Option<Spanned<Value>>,
    /// Whether the first failure stops the rest.
    pub fail_fast: bool,
    /// What the step needs of its combinations.
    pub join: Join,
}

/// `cache:`.
#[derive(Debug, Clone)]
pub struct Cache {
    /// Templates that make the key, besides prompt, model, agent and skills.
    pub key: Vec<Spanned<String>>,
    /// Globs of files whose content makes the key, templates.
    pub inputs: Vec<Spanned<String>>,
}

/// What a `for_each` needs of its items.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Join {
    /// All succeed, or the step fails.
    #[default]
    All,
    /// All end; failed ones are data.
    AllDone,
}

/// `workspace:`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Workspace {
    /// Which kind.
    pub kind: WorkspaceKind,
    /// What it starts from.
    pub base: Base,
    /// Commands that prepare it, templates.
    pub setup: Vec<Spanned<String>>,
    /// Globs of ignored files of the user's checkout that are copied in.
    pub copy: Vec<Spanned<String>>,
    /// Globs of ignored files and folders of the user's checkout that are linked in.
    pub link: Vec<Spanned<String>>,
    /// Globs of the only files that are checked out; empty: all.
    pub sparse: Vec<Spanned<String>>,
    /// Name to template, for what runs in it.
    pub env: Entries<Spanned<String>>,
}

/// What a workspace starts from, where nothing that the step needs has written.
#[derive(Debug, Clone, Default, PartialEq)]
pub enum Base {
    /// The commit that the run began at.
    #[default]
    Head,
    /// That, with what the user's checkout has besides: changed and new files.
    Dirty,
    /// A branch, tag or commit.
    Ref(Spanned<String>),
}

/// Where a step works.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum WorkspaceKind {
    /// A worktree of its own.
    Worktree,
    /// A read-only view of its input commit.
    #[default]
    Shared,
    /// Nowhere.
    None,
}

/// `scope:`.
#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    /// Templates that each give a glob.
    Globs(Vec<Spanned<String>>),
    /// One template that gives the list.
    Template(String),
}

/// Work is tried this often where `verify` does not say.
const VERIFY_ATTEMPTS: u32 = 3;

/// `verify:`.
#[derive(Debug, Clone)]
pub struct Verify {
    /// Commands, templates; all must exit 0.
    pub run: Vec<Spanned<String>>,
    /// How often an agent may mend its work, the first try included, where that is said.
    pub attempts: Option<Spanned<u32>>,
}

impl Verify {
    /// Returns how often an agent may mend its work, the first try included.
    pub fn attempts(&self) -> u32 {
        self.attempts.as_ref().map_or(VERIFY_ATTEMPTS, |attempts| attempts.value)
    }
}

/// `output:`.
#[derive(Debug, Clone, Default)]
pub struct Output {
    /// A schema of the workflow by name.
    pub schema: Option<Spanned<String>>,
    /// How a command's stdout becomes `output`.
    pub parse: Option<Spanned<Parse>>,
    /// The name of the file among the run's artefacts that keeps it.
    pub file: Option<Spanned<String>>,
}

/// How a command's output is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parse {
    /// A list of lines, without empty ones at the end.
    Lines,
    /// One JSON value.
    Json,
}

/// `retry:`.
#[derive(Debug, Clone, PartialEq)]
pub struct Retry {
    /// Tries after the first.
    pub max: u32,
    /// For which failures.
    pub on: Vec<RetryOn>,
    /// Before the first retry.
    pub delay: Duration,
    /// Whether the delay doubles each time.
    pub exponential: bool,
    /// The longest delay.
    pub max_delay: Duration,
}

/// A class of failures worth another try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RetryOn {
    /// The provider, the network.
    Transient,
    /// The step's time ran out.
    Timeout,
    /// Every failure but those that come again or were meant: a bug, a limit, a refusal, a cancellation.
    Any,
}

/// `merge:`.
#[derive(Debug, Clone)]
pub struct Merge {
    /// The steps whose work is joined.
    pub from: Vec<Spanned<String>>,
    /// When the checks run.
    pub mode: MergeMode,
    /// What decides which source comes first; what comes earlier here decides first. Never empty.
    pub order: Vec<MergeOrder>,
    /// Checks of the joined tree; commands, templates.
    pub verify: Vec<Spanned<String>>,
    /// Runs of a red check before it counts as red, beyond the first.
    pub flaky_retries: u32,
    /// The agent that settles conflicts.
    pub resolver: Option<Spanned<String>>,
    /// Its tries at one conflict.
    pub resolver_attempts: u32,
    /// What happens to a source whose conflict nobody settles.
    pub then: ConflictThen,
    /// What happens to a source that turns the checks red.
    pub on_red: RedThen,
}

/// When the checks of a merge run.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMode {
    /// Once, on all that is joined.
    #[default]
    Batch,
    /// After each source.
    Each,
}

/// What decides which source is joined first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergeOrder {
    /// What others need comes first, otherwise as in the file and in the list of items.
    Needs,
    /// What conflicts with the fewest others comes first.
    FewestConflicts,
}

/// What happens to a source that turns the checks red.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum RedThen {
    /// The step fails.
    #[default]
    Fail,
    /// It is put aside; its ref is kept.
    Eject,
}

/// What happens to a source whose conflict nobody settles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum ConflictThen {
    /// It is put aside; its ref is kept.
    #[default]
    Eject,
    /// The step fails.
    Fail,
}

/// `loop:` with its `steps:`.
#[derive(Debug, Clone)]
pub struct Loop {
    /// An expression over the last iteration.
    pub until: Spanned<String>,
    /// A loop that has not come to its end by then has failed.
    pub max: Spanned<u32>,
    /// The body.
    pub steps: Vec<Step>,
}
