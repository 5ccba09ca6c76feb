//! The run before the run: what each step would be given, where it would work, and the most that it could cost.
//!
//! It reads the plan and what is known here; it begins nothing and asks nobody. The most that something could cost follows
//! from limits and prices alone: it is a bound, not a guess. The steps inside loops and called workflows are told once for
//! all that run them, so that a preview is as long as the files and not as what comes of them.
mod cost;
mod hinges;
mod known;

use super::project::Project;
use crate::{
    clock::millis,
    event::{CommitId, StepId, Wake},
    llm::Endpoints,
    plan::{AliasSaid, Limits, ModelSpec, NamedBy, Plan, PlannedStep, Work},
    prompts::Scope,
    workflow::{Base, Budget, On, OnExceed, Retry, RetryOn, WorkspaceKind},
};
pub use cost::Cost;
pub use hinges::Hinges;
use known::{Known, Surroundings};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// What stands among the bases of a step inside another one: what the steps around it have left.
pub const AROUND: &str = "around";

/// A whole run, before it is begun.
#[derive(Debug, Clone, Serialize)]
pub struct Preview {
    /// The workflow's name.
    pub workflow: String,
    /// Where it was found.
    pub file: String,
    /// For people.
    pub description: String,
    /// The inputs, those that are not given left out.
    pub inputs: Map<String, Value>,
    /// Inputs that must be given and are not.
    pub missing: Vec<String>,
    /// The branch that is checked out, where there is one.
    pub head: Option<String>,
    /// The commit that everything starts from; absent in a repository without one.
    pub base: Option<String>,
    /// Limits of the run.
    pub limits: LimitsShown,
    /// What happens at those limits: `stop`, `finish` or `ask`.
    pub on_exceed: String,
    /// Agents and commands at work at the same time.
    pub max_parallel: usize,
    /// Its own steps.
    #[serde(flatten)]
    pub graph: GraphPreview,
    /// The bodies of loops and the called workflows, each before those that run it.
    pub bodies: Vec<BodyPreview>,
    /// The most that all of it could cost, within the run's limits.
    pub at_most: Cost,
}

/// The steps of one workflow, or of one body of a loop.
#[derive(Debug, Clone, Serialize)]
pub struct GraphPreview {
    /// The steps, needs before what needs them.
    pub steps: Vec<StepPreview>,
    /// The agent that watches.
    pub orchestrator: Option<OrchestratorPreview>,
    /// Steps of a run that failed.
    pub on_failure: Vec<StepPreview>,
    /// Steps at the end of every run.
    pub finally: Vec<StepPreview>,
}

/// Steps that other steps run.
#[derive(Debug, Clone, Serialize)]
pub struct BodyPreview {
    /// The workflow's name, or the id of the loop.
    pub name: String,
    /// The inputs that are known; a workflow that is called with different ones is told once for each.
    pub inputs: Map<String, Value>,
    /// How often it runs at most; absent where that is only known in the run.
    pub runs: Option<u64>,
    /// The steps.
    #[serde(flatten)]
    pub graph: GraphPreview,
    /// The most that running it once could cost.
    pub at_most: Cost,
}

/// One step, before it is begun.
#[derive(Debug, Clone, Serialize)]
pub struct StepPreview {
    /// Its id.
    pub id: String,
    /// Its verb.
    pub verb: String,
    /// What it waits for.
    pub needs: Vec<Value>,
    /// Its condition.
    pub condition: Option<String>,
    /// Its command or its message to a person, where it has one.
    pub text: Option<String>,
    /// The steps whose work a merge or a choice is among.
    pub from: Vec<String>,
    /// What a merge, a choice or a question hinges on.
    pub hinges: Option<Hinges>,
    /// Its agent: the one that works, settles conflicts or judges.
    pub agent: Option<AgentPreview>,
    /// The agent that tries a failed item once more.
    pub retry_with: Option<String>,
    /// Its items.
    pub items: Option<ItemsPreview>,
    /// Where it works: `worktree`, `view` or `none`.
    pub workspace: String,
    /// What it starts from: steps whose work it is given, or `head`, `dirty` or a ref.
    pub base: Vec<String>,
    /// The folder in there where its agent or its command begins; absent where that is the top.
    pub cwd: Option<String>,
    /// Globs it may write; absent where it may write everywhere or nothing.
    pub scope: Option<Vec<String>>,
    /// Whether it makes a commit.
    pub writes: bool,
    /// Checks of its work, and how often it is tried.
    pub verify: Option<Value>,
    /// Tries at most, the first included.
    pub tries: u32,
    /// For which failures it is tried again.
    pub retry_on: Vec<String>,
    /// Milliseconds of one try.
    pub timeout_ms: u64,
    /// What all that is inside it may use together, where that is limited.
    pub budget: Option<LimitsShown>,
    /// Whether a person is asked when that is used up whether as much again may be used.
    pub asks: bool,
    /// Whether a recorded result stands for its work; absent where none is ever kept.
    pub cache: Option<CachePreview>,
    /// Whether its failure counts as success.
    pub allow_failure: bool,
    /// Iterations at most, where it is a loop.
    pub iterations: Option<u32>,
    /// The steps inside it, by their place among the bodies of the preview.
    pub body: Option<usize>,
    /// How often one run of the steps around it does it at most; absent where that is only known in the run.
    pub times: Option<u64>,
    /// The most that it could cost.
    pub at_most: Cost,
}

/// An agent, before it is asked.
#[derive(Debug, Clone, Serialize)]
pub struct AgentPreview {
    /// Its name.
    pub name: String,
    /// What it may do: `read` or `write`.
    pub access: String,
    /// `provider/model`, in order of preference; a template where the step chooses by one.
    pub models: Vec<String>,
    /// Who named them.
    pub models_from: String,
    /// What that template gives, where it is known, in the order of the items.
    pub choices: Vec<ChoicePreview>,
    /// Thinking effort.
    pub effort: Option<String>,
    /// Its tools, those that its access or a rule forbid left out.
    pub tools: Vec<String>,
    /// Its permission rules.
    pub rules: Value,
    /// What its commands reach besides its workspace, and what must hold them; absent where nothing is said.
    pub sandbox: Option<SandboxPreview>,
    /// Its skills.
    pub skills: Vec<String>,
    /// Hooks that hold for it, those that hold everywhere first.
    pub hooks: Vec<String>,
    /// Those of them that nobody trusts: with one of these it does not begin.
    pub untrusted_hooks: Vec<String>,
    /// What one session may use.
    pub limits: LimitsShown,
    /// Whether a person is asked at those limits whether it may use as much again.
    pub asks: bool,
    /// Sessions of one try of one item.
    pub sessions: u64,
}

/// The sandbox of an agent.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct SandboxPreview {
    /// Its network: `none`, `full`, or a list of the hosts that it reaches.
    pub network: Value,
    /// Folders and files to read.
    pub read: Vec<String>,
    /// Folders and files to write.
    pub write: Vec<String>,
    /// What must hold it: `full`, `landlock` or `none`.
    pub require: &'static str,
    /// Whether it would open something, if the workflow were trusted.
    pub untrusted: bool,
}

/// The agent that watches over a run, as it is at work.
#[derive(Debug, Clone, Serialize)]
pub struct OrchestratorPreview {
    /// Who it is; its powers are among its tools.
    #[serde(flatten)]
    pub agent: AgentPreview,
    /// What it may do.
    pub may: Vec<String>,
    /// How many items it may add in all.
    pub max_added: u32,
    /// When it is woken besides the end.
    pub wake: Vec<Wake>,
    /// The steps whose items it watches over.
    pub supervises: Vec<String>,
}

/// What the template of a model gives for some of the items of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChoicePreview {
    /// `provider/model`, in order of preference.
    pub models: Vec<String>,
    /// Who named them.
    pub from: String,
    /// The keys of those items; none where the step has no items.
    pub keys: Vec<String>,
}

/// What is known of the recorded results of a step.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CachePreview {
    /// `hit` where a result stands for all its work, `miss` where for none, `part` where for some of its items, and `open`
    /// where that is only known in the run.
    pub standing: String,
    /// Items for which one stands.
    pub hits: usize,
    /// The runs that they are of.
    pub runs: Vec<String>,
    /// Why.
    pub why: String,
}

/// The items of a step, as far as they are known.
#[derive(Debug, Clone, Serialize)]
pub struct ItemsPreview {
    /// What multiplies it: `for_each` or `matrix`.
    pub by: String,
    /// How many; absent where that is only known in the run.
    pub count: Option<usize>,
    /// The first keys.
    pub keys: Vec<String>,
    /// Where they come from, where they are not known.
    pub expression: Option<String>,
    /// Why the step cannot begin, where its items follow from the inputs and are wrong.
    pub wrong: Option<String>,
    /// How many may run at the same time, where it is said.
    pub max_parallel: Option<Value>,
}

/// Limits as they are shown. Times in milliseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct LimitsShown {
    /// Model calls.
    pub turns: Option<u32>,
    /// Tokens.
    pub tokens: Option<u64>,
    /// Dollars.
    pub usd: Option<f64>,
    /// Wall time.
    pub time_ms: Option<u64>,
}

impl Project {
    /// Says what a run would be, before it is begun. `given` are inputs; some that must be given may be missing.
    ///
    /// # Errors
    /// A sentence for each input that does not fit.
    pub fn preview(&self, plan: &Plan, given: &Map<String, Value>, endpoints: &Endpoints, default_from: &str) -> Result<Preview, Vec<String>> {
        let missing: Vec<String> =
            plan.inputs.iter().filter(|(name, input)| input.required && !given.contains_key(name)).map(|(name, _)| name.clone()).collect();
        let inputs = if missing.is_empty() { plan.check_inputs(given)? } else { known::or_defaults(plan, given) };
        let head = self.repo.head().ok();
        let mut scope = Scope::new();
        if let Some(head) = &head {
            scope = scope.with("run", json!({"base": head.commit.0, "head": head.commit.0}));
        }
        let mut known = Known::new(self, plan, endpoints, default_from, head.as_ref().map(|head| head.commit.clone()));
        let at = Surroundings {
            complete: missing.is_empty(),
            inputs: inputs.clone(),
            scope: scope.with("inputs", Value::Object(inputs.clone())),
            base: None,
            limits: LimitsShown::of(&plan.limits),
        };
        let (graph, at_most) = known.graph(plan, &at);
        let bodies = known.into_bodies(&graph);
        Ok(Preview {
            workflow: plan.name.clone(),
            file: plan.source.name.clone(),
            description: plan.description.clone(),
            missing,
            head: head.as_ref().and_then(|head| head.branch.clone()),
            base: head.map(|head| head.commit).map(|CommitId(commit)| commit),
            limits: LimitsShown::of(&plan.limits),
            on_exceed: exceed(plan.on_exceed).to_owned(),
            max_parallel: plan.max_parallel,
            graph,
            bodies,
            at_most: at_most.within(plan.limits.usd, Some(plan.limits.tokens)),
            inputs,
        })
    }
}

impl Preview {
    /// Returns whether what bounds the cost is a budget that a person may raise when it is used up: the run's, or one within it.
    pub fn is_raisable(&self) -> bool {
        let (most, limits) = (&self.at_most, &self.limits);
        let at_limit = most.open || most.unpriced || most.tokens >= limits.tokens || (limits.usd.is_some() && most.usd >= limits.usd);
        let asks = |step: &StepPreview| step.asks || step.agent.as_ref().is_some_and(|agent| agent.asks);
        let inside = self.graph.all().chain(self.bodies.iter().flat_map(|body| body.graph.all())).any(asks);
        if at_limit { self.on_exceed == exceed(OnExceed::Ask) } else { inside }
    }
}

impl GraphPreview {
    /// Returns all its steps, the endings' included.
    pub fn all(&self) -> impl Iterator<Item = &StepPreview> {
        self.steps.iter().chain(&self.on_failure).chain(&self.finally)
    }
}

impl LimitsShown {
    fn of(limits: &Limits) -> LimitsShown {
        LimitsShown { turns: Some(limits.turns), tokens: Some(limits.tokens), usd: limits.usd, time_ms: Some(millis(limits.time)) }
    }

    /// Returns the narrower of each.
    #[must_use]
    fn within(self, around: &LimitsShown) -> LimitsShown {
        LimitsShown {
            turns: self.turns.into_iter().chain(around.turns).min(),
            tokens: self.tokens.into_iter().chain(around.tokens).min(),
            usd: self.usd.into_iter().chain(around.usd).reduce(f64::min),
            time_ms: self.time_ms.into_iter().chain(around.time_ms).min(),
        }
    }

    fn written(budget: &Budget) -> LimitsShown {
        LimitsShown {
            turns: budget.turns.as_deref().copied(),
            tokens: budget.tokens.as_deref().copied(),
            usd: budget.usd.as_deref().copied(),
            time_ms: budget.time.as_deref().copied().map(millis),
        }
    }
}

/// Returns for each step those whose work it starts from: the nearest before it that write.
fn bases(plan: &Plan, around: &BTreeSet<String>) -> BTreeMap<StepId, BTreeSet<String>> {
    let mut bases: BTreeMap<StepId, BTreeSet<String>> = BTreeMap::new();
    for id in plan.order() {
        let mut own = BTreeSet::new();
        for (need, _) in plan.needs(id) {
            if need.writes {
                own.insert(need.id.0.clone());
            } else {
                own.extend(bases.get(&need.id).into_iter().flatten().cloned());
            }
        }
        bases.insert(id.clone(), if own.is_empty() { around.clone() } else { own });
    }
    bases
}

fn base(step: &PlannedStep, given: BTreeSet<String>) -> Vec<String> {
    if !given.is_empty() {
        return given.into_iter().map(|step| if step == AROUND { step } else { format!("steps.{step}") }).collect();
    }
    vec![match &step.workspace.base {
        Base::Head => "head".to_owned(),
        Base::Dirty => "dirty".to_owned(),
        Base::Ref(name) => name.value.clone(),
    }]
}

/// Says where a model's name came from.
fn named(model: &ModelSpec, default_from: &str) -> String {
    let by = match model.named {
        NamedBy::Nobody => default_from,
        NamedBy::Defaults => "the workflow's `defaults`",
        NamedBy::AgentFile => "the agent's file",
        NamedBy::Agent => "the agent",
        NamedBy::Step => "the step",
    };
    match &model.alias {
        None => by.to_owned(),
        Some(alias) => {
            let said = match &alias.said {
                AliasSaid::Workflow => "of the workflow".to_owned(),
                AliasSaid::Configuration(file) => format!("of {file}"),
                AliasSaid::Override => "set from outside".to_owned(),
            };
            format!("{by}, as alias `{}` {said}", alias.name)
        }
    }
}

fn verb(work: &Work) -> &'static str {
    match work {
        Work::Agent { .. } => "agent",
        Work::Run { .. } => "run",
        Work::Merge(_) => "merge",
        Work::Workflow(_) => "workflow",
        Work::Select(_) => "select",
        Work::Approve(_) => "approve",
        Work::Loop(_) => "loop",
    }
}

fn text(work: &Work) -> Option<String> {
    match work {
        Work::Run { command } => Some(command.value.clone()),
        Work::Approve(approve) => Some(approve.message.value.clone()),
        Work::Loop(spec) => Some(spec.until.value.clone()),
        Work::Workflow(call) => Some(call.plan.name.clone()),
        Work::Agent { .. } | Work::Merge(_) | Work::Select(_) => None,
    }
}

fn from(work: &Work) -> Vec<String> {
    let ids = match work {
        Work::Merge(merge) => &merge.from,
        Work::Select(select) => &select.from,
        Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => return Vec::new(),
    };
    ids.iter().map(|id| id.0.clone()).collect()
}

fn workspace(step: &PlannedStep) -> &'static str {
    match step.workspace.kind {
        WorkspaceKind::Worktree => "worktree",
        WorkspaceKind::Shared => "view",
        WorkspaceKind::None => "none",
    }
}

fn globs(scope: &crate::workflow::Scope) -> Vec<String> {
    match scope {
        crate::workflow::Scope::Globs(globs) => globs.iter().map(|glob| glob.value.clone()).collect(),
        crate::workflow::Scope::Template(text) => vec![text.clone()],
    }
}

fn retry_on(retry: &Retry) -> Vec<String> {
    let word = |on: &RetryOn| match on {
        RetryOn::Transient => "transient",
        RetryOn::Timeout => "timeout",
        RetryOn::Any => "any",
    };
    retry.on.iter().map(|on| word(on).to_owned()).collect()
}

fn on_word(on: On) -> &'static str {
    match on {
        On::Success => "success",
        On::Failure => "failure",
        On::Done => "done",
    }
}

fn exceed(on_exceed: OnExceed) -> &'static str {
    match on_exceed {
        OnExceed::Stop => "stop",
        OnExceed::Finish => "finish",
        OnExceed::Ask => "ask",
    }
}

fn shown(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}
