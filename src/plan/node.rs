//! What a compiled plan holds per step and agent: everything resolved that can be known before the run.
use super::{Plan, Reads, SandboxSpec};
use crate::{
    event::{NodeId, Outcome, StepId, Wake},
    message::ProviderTool,
    source::{Span, Spanned},
    workflow::{
        Access, Approve, Budget, Cache, ConflictThen, ForEach, Matrix, MergeMode, MergeOrder, On, OnExceed, Parse, Power, RedThen, Retry, RetryOn, Scope, Tie,
        Verify, Workspace,
    },
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// Limits that are always there. `usd` may be open where no price is asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Limits {
    /// Model calls.
    pub turns: u32,
    /// Tokens, in and out, cached ones included.
    pub tokens: u64,
    /// Dollars.
    pub usd: Option<f64>,
    /// Wall time.
    pub time: Duration,
    /// Identical tool calls in a row.
    pub repeats: u32,
}

impl Limits {
    /// The limits of an agent's session that says nothing.
    pub const SESSION: Limits = Limits { turns: 100, tokens: 5_000_000, usd: Some(10.0), time: Duration::from_mins(30), repeats: 5 };
    /// The limits of a run that says nothing.
    pub const RUN: Limits = Limits { turns: 2_000, tokens: 50_000_000, usd: Some(50.0), time: Duration::from_hours(4), repeats: 5 };
}

/// Permission rules as written, in Claude Code's syntax; the layers above compile them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rules {
    /// Allowed without asking.
    pub allow: Vec<String>,
    /// Asked about.
    pub ask: Vec<String>,
    /// Never.
    pub deny: Vec<String>,
}

/// An agent, resolved.
#[derive(Debug, Clone)]
pub struct AgentSpec {
    /// Its name.
    pub name: String,
    /// The system text, not a template.
    pub system: String,
    /// For people and the orchestrator.
    pub description: String,
    /// The models it uses.
    pub model: ModelSpec,
    /// The thinking effort that it asks for itself, whatever model it has.
    pub effort: Option<String>,
    /// What it may do.
    pub access: Access,
    /// Tools it may use, sorted; those that `access` or a bare deny rule forbid are gone already.
    pub tools: Vec<String>,
    /// Tools that run at the provider, sorted; those that a rule is about are not declared.
    pub provider_tools: Vec<ProviderTool>,
    /// Servers whose tools it may use: those among `tools` that begin with `mcp__SERVER__`.
    pub servers: BTreeMap<String, ServerSpec>,
    /// Skills it sees, sorted.
    pub skills: Vec<String>,
    /// Hooks that hold for it, in order, besides those that hold everywhere.
    pub hooks: Vec<String>,
    /// Its rules with the workflow's.
    pub rules: Rules,
    /// What its commands reach besides its workspace.
    pub sandbox: SandboxSpec,
    /// Limits of one session.
    pub limits: Limits,
    /// What happens at the end of those.
    pub on_exceed: OnExceed,
    /// The longest time without a sign of life.
    pub idle_timeout: Duration,
    /// A folder inside the workspace, a template; the step's own comes before it.
    pub cwd: Option<Spanned<String>>,
    /// How deep sub-agents may start sub-agents.
    pub max_depth: u32,
    /// Sub-agents of one session at work at the same time.
    pub max_parallel: u32,
}

impl AgentSpec {
    /// The longest time without a sign of life of an agent that says nothing; longer than any one call may take.
    pub const IDLE_TIMEOUT: Duration = Duration::from_mins(15);
    /// How deep sub-agents may start sub-agents where nothing is said: not at all.
    pub const MAX_DEPTH: u32 = 1;
    /// Sub-agents at work at the same time where nothing is said.
    pub const MAX_PARALLEL: u32 = 4;

    /// Returns whether a person is asked, at the end of its limits, whether a session may use as much again.
    pub fn asks(&self) -> bool {
        self.on_exceed == OnExceed::Ask
    }
}

/// How a server is reached; its templates read nothing but secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ServerReach {
    /// A program is started.
    Program {
        /// The program.
        command: String,
        /// Its arguments.
        args: Vec<String>,
        /// Environment variables besides those of the agent's commands: templates.
        env: Vec<(String, String)>,
    },
    /// It is at an address.
    Address {
        /// Where.
        url: String,
        /// What each request says besides: templates.
        headers: Vec<(String, String)>,
    },
}

/// A server that lends tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerSpec {
    /// How it is reached.
    pub reach: ServerReach,
    /// The longest that one call may take.
    pub timeout: Duration,
    /// The longest until it has told its tools.
    pub start_timeout: Duration,
    /// Whether it may run.
    pub trusted: bool,
}

impl ServerSpec {
    /// Returns what stands among an agent's tools for all of a server.
    pub fn all_of(server: &str) -> String {
        format!("mcp__{server}__*")
    }

    /// Returns what makes it what it is, with what secrets it is given by name; times and trust are no part of that.
    pub fn made_of(&self, name: &str) -> Value {
        match &self.reach {
            ServerReach::Program { command, args, env } if env.is_empty() => json!([name, command, args]),
            ServerReach::Program { command, args, env } => json!([name, command, args, env]),
            ServerReach::Address { url, headers } => json!([name, {"url": url, "headers": headers}]),
        }
    }
}

/// A resolved choice of models.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ModelSpec {
    /// `provider/model`, in order of preference, never empty in a compiled plan.
    pub choices: Vec<String>,
    /// Thinking effort, in the provider's word.
    pub effort: Option<String>,
    /// Cap on one reply, in tokens.
    pub max_output_tokens: Option<u32>,
    /// Who named it.
    pub named: NamedBy,
    /// The alias that it was named by, where it was.
    pub alias: Option<Alias>,
}

/// Who named a model.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum NamedBy {
    /// Nobody in the workflow: it is the one for whoever names none.
    #[default]
    Nobody,
    /// The workflow's `defaults`.
    Defaults,
    /// The file of the agent.
    AgentFile,
    /// The agent.
    Agent,
    /// The step.
    Step,
}

/// An alias that was resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alias {
    /// Its name.
    pub name: String,
    /// Who said what it stands for.
    pub said: AliasSaid,
}

/// Who said what an alias stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AliasSaid {
    /// The workflow.
    Workflow,
    /// A configuration file, by its path.
    Configuration(String),
    /// Whoever began the run.
    Override,
}

/// The agent that watches over a run.
#[derive(Debug, Clone)]
pub struct OrchestratorSpec {
    /// Its node: the reserved step id `orchestrator`.
    pub node: NodeId,
    /// The agent as it is at work: it only reads, and its powers are among its tools.
    pub agent: Arc<AgentSpec>,
    /// What it may do.
    pub may: Vec<Power>,
    /// How many items it may add in all.
    pub max_added: u32,
    /// When it is woken, sorted.
    pub wake: Vec<Wake>,
    /// The `for_each` steps it supervises.
    pub supervises: Vec<StepId>,
}

/// One step of the graph.
#[derive(Debug, Clone)]
pub struct PlannedStep {
    /// Its id.
    pub id: StepId,
    /// Where it stands in the file.
    pub span: Span,
    /// What it does.
    pub work: Work,
    /// `if`: an expression without braces, or a whole-value template.
    pub condition: Option<Spanned<String>>,
    /// One node per item.
    pub for_each: Option<ForEach>,
    /// One node per combination.
    pub matrix: Option<Matrix>,
    /// The agent that tries a failed item once more, where there is one.
    pub retry_with: Option<Arc<AgentSpec>>,
    /// When a recorded result stands for the work.
    pub cache: Option<Cache>,
    /// Where it works.
    pub workspace: Workspace,
    /// A folder inside the workspace, a template.
    pub cwd: Option<Spanned<String>>,
    /// Globs it may write.
    pub scope: Option<Spanned<Scope>>,
    /// Whether it makes a commit.
    pub writes: bool,
    /// Checks of its work.
    pub verify: Option<Verify>,
    /// JSON Schema of its output, references resolved.
    pub output_schema: Option<Arc<Value>>,
    /// How a command's output is read.
    pub parse: Option<Parse>,
    /// What its items must fit, where they are entries of something that has a schema.
    pub item_schema: Option<Arc<Value>>,
    /// The artefact that keeps the output.
    pub file: Option<Spanned<String>>,
    /// Limits of the step, over all its items and attempts; `time` is in `timeout`.
    pub budget: Option<Budget>,
    /// Its wall time for one attempt.
    pub timeout: Duration,
    /// The longest time without a sign of life: of its agent, or output of its command.
    pub idle_timeout: Option<Duration>,
    /// For transient errors.
    pub retry: Option<Retry>,
    /// Whether its failure counts as success.
    pub allow_failure: bool,
    /// Name to template, the workflow's first.
    pub env: Vec<(String, Spanned<String>)>,
    /// What its templates read.
    pub reads: Reads,
}

/// What a step does.
#[derive(Debug, Clone)]
pub enum Work {
    /// One agent session.
    Agent {
        /// The agent with the step's own overrides applied.
        agent: Arc<AgentSpec>,
        /// The prompt, a template.
        prompt: Spanned<String>,
    },
    /// A shell command, a template.
    Run {
        /// The command.
        command: Spanned<String>,
    },
    /// Joins the work of many.
    Merge(MergeSpec),
    /// Another workflow as a child of this run.
    Workflow(CallSpec),
    /// Keeps one of several candidates.
    Select(SelectSpec),
    /// Waits for a person.
    Approve(Approve),
    /// A body of steps, again and again.
    Loop(LoopSpec),
}

/// A resolved call of another workflow.
#[derive(Debug, Clone)]
pub struct CallSpec {
    /// The workflow, compiled.
    pub plan: Arc<Plan>,
    /// Its inputs: a literal, or a template.
    pub with: Vec<(String, Spanned<Value>)>,
}

/// A resolved choice.
#[derive(Debug, Clone)]
pub struct SelectSpec {
    /// The steps whose work, or whose items' work, are the candidates, in the order of the graph.
    pub from: Vec<StepId>,
    /// Commands that a candidate must pass in its own tree, templates.
    pub gates: Vec<Spanned<String>>,
    /// Who chooses among those that passed.
    pub judge: Option<JudgeSpec>,
    /// What decides where the votes do not.
    pub tie: Tie,
    /// How long the refs of the others are kept.
    pub keep_losers: Option<Duration>,
}

/// A resolved judge.
#[derive(Debug, Clone)]
pub struct JudgeSpec {
    /// The agent.
    pub agent: Arc<AgentSpec>,
    /// Sessions that each vote once.
    pub votes: u32,
    /// Whether candidates go by letters, in another order for each vote.
    pub blind: bool,
    /// What it is told to look at, a template.
    pub rubric: Option<Spanned<String>>,
    /// What it scores, by name.
    pub criteria: Vec<String>,
}

/// A resolved loop.
#[derive(Debug, Clone)]
pub struct LoopSpec {
    /// The body: a plan whose inputs, agents and limits are those of the workflow around it.
    pub body: Arc<Plan>,
    /// An expression over the last iteration.
    pub until: Spanned<String>,
    /// What that reads.
    pub reads: Reads,
    /// The most iterations.
    pub max: u32,
}

impl PlannedStep {
    /// Returns whether its work is done by one node per item.
    pub fn is_fan(&self) -> bool {
        self.for_each.is_some() || self.matrix.is_some()
    }

    /// Returns the plan of the steps inside it, where it has any.
    pub fn inner(&self) -> Option<&Arc<Plan>> {
        match &self.work {
            Work::Workflow(call) => Some(&call.plan),
            Work::Loop(spec) => Some(&spec.body),
            Work::Agent { .. } | Work::Run { .. } | Work::Merge(_) | Work::Select(_) | Work::Approve(_) => None,
        }
    }

    /// Returns the agent that does it, or the one that a failed item is handed over to.
    pub fn agent(&self, handed_over: bool) -> Option<&Arc<AgentSpec>> {
        let Work::Agent { agent, .. } = &self.work else { return None };
        self.retry_with.as_ref().filter(|_| handed_over).or(Some(agent))
    }

    /// Returns the agents that it puts to work.
    pub fn agents(&self) -> impl Iterator<Item = &Arc<AgentSpec>> {
        self.sessions().map(|(agent, _)| agent).into_iter().chain(&self.retry_with)
    }

    /// Returns whether it is tried again where no model can be had: by its `retry`, or by the agent that a failed item is
    /// handed over to, unless that has it already.
    pub fn retries_outages(&self, handed_over: bool) -> bool {
        let again = |retry: &Retry| retry.on.iter().any(|on| matches!(on, RetryOn::Transient | RetryOn::Any));
        self.retry.as_ref().is_some_and(again) || (self.retry_with.is_some() && !handed_over)
    }

    /// Returns the agent that does one try of one item, settles its conflicts or judges it, and in how many sessions at most;
    /// a merge has as many for each conflict.
    pub fn sessions(&self) -> Option<(&Arc<AgentSpec>, u32)> {
        match &self.work {
            Work::Agent { agent, .. } => Some((agent, 1)),
            Work::Merge(merge) => merge.resolver.as_ref().map(|agent| (agent, merge.resolver_attempts)),
            Work::Select(select) => select.judge.as_ref().map(|judge| (&judge.agent, judge.votes)),
            Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => None,
        }
    }

    /// Returns the steps whose work it joins or chooses from, in the order of the graph.
    pub fn sources(&self) -> &[StepId] {
        match &self.work {
            Work::Merge(merge) => &merge.from,
            Work::Select(select) => &select.from,
            Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => &[],
        }
    }

    /// Returns whether it joins, or chooses from, what there is where one that it needs was skipped.
    pub(crate) fn goes_without(&self, need: &StepId, on: On) -> bool {
        on != On::Failure && self.sources().contains(need)
    }

    /// Returns whether an edge from it is satisfied by how it ended.
    pub(crate) fn satisfies(&self, on: On, outcome: &Outcome) -> bool {
        match (on, outcome) {
            (On::Success, Outcome::Succeeded(_)) | (On::Failure, Outcome::Failed(_)) | (On::Done, Outcome::Succeeded(_) | Outcome::Failed(_)) => true,
            (On::Success, Outcome::Failed(_)) => self.allow_failure,
            (_, Outcome::Skipped(_)) | (On::Failure, Outcome::Succeeded(_)) => false,
        }
    }

    /// Returns whether its nodes take one of the run's places while they run.
    pub fn takes_a_place(&self) -> bool {
        !matches!(self.work, Work::Workflow(_) | Work::Loop(_) | Work::Approve(_))
    }
}

/// A resolved merge.
#[derive(Debug, Clone)]
pub struct MergeSpec {
    /// The steps whose work is joined, in the order of the graph.
    pub from: Vec<StepId>,
    /// When the checks run.
    pub mode: MergeMode,
    /// What decides which source comes first; never empty.
    pub order: Vec<MergeOrder>,
    /// Checks of the joined tree; commands, templates.
    pub verify: Vec<Spanned<String>>,
    /// Runs of a red check beyond the first.
    pub flaky_retries: u32,
    /// The agent that settles conflicts.
    pub resolver: Option<Arc<AgentSpec>>,
    /// Its tries at one conflict.
    pub resolver_attempts: u32,
    /// What happens to a source whose conflict nobody settles.
    pub then: ConflictThen,
    /// What happens to a source that turns the checks red.
    pub on_red: RedThen,
}
