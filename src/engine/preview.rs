//! The run before the run: what each step would be given, where it would work, and the most that it could cost.
//!
//! It reads the plan and what is known here; it begins nothing and asks nobody. The most that something could cost follows
//! from limits and prices alone: it is a bound, not a guess.
use super::{fan, project::Project};
use crate::{
    clock::{Clock, millis},
    event::{CommitId, StepId},
    llm::{self, Endpoints},
    message::Usage,
    plan::{AgentSpec, AliasSaid, Limits, ModelSpec, NamedBy, Plan, PlannedStep, Work},
    prompts::{self, Scope},
    workflow::{Access, Base, Budget, On, OnExceed, Retry, RetryOn, WorkspaceKind},
};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Keys of items that are named one by one.
const KEYS: usize = 20;

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
    /// The steps, needs before what needs them.
    pub steps: Vec<StepPreview>,
    /// The agent that watches.
    pub orchestrator: Option<AgentPreview>,
    /// Steps of a run that failed.
    pub on_failure: Vec<StepPreview>,
    /// Steps at the end of every run.
    pub finally: Vec<StepPreview>,
    /// The most that all of it could cost, within the run's limits.
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
    /// Seconds of one try.
    pub timeout_s: u64,
    /// What the step's own budget sets aside over all its items and tries.
    pub budget: Option<LimitsShown>,
    /// Whether a recorded result stands for its work.
    pub cache: String,
    /// Whether its failure counts as success.
    pub allow_failure: bool,
    /// Iterations at most, where it is a loop.
    pub iterations: Option<u32>,
    /// The steps inside it.
    pub steps: Vec<StepPreview>,
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
    /// `provider/model`, in order of preference.
    pub models: Vec<String>,
    /// Who named them.
    pub models_from: String,
    /// Thinking effort.
    pub effort: Option<String>,
    /// Its tools, those that its access or a rule forbid left out.
    pub tools: Vec<String>,
    /// Its permission rules.
    pub rules: Value,
    /// Its skills.
    pub skills: Vec<String>,
    /// Hooks that hold for it, those that hold everywhere first.
    pub hooks: Vec<String>,
    /// Those of them that nobody trusts: with one of these it can call no tool.
    pub untrusted_hooks: Vec<String>,
    /// What one session may use.
    pub limits: LimitsShown,
    /// Sessions of one try of one item.
    pub sessions: u64,
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
    /// How many may run at the same time, where it is said.
    pub max_parallel: Option<Value>,
}

/// Limits as they are shown. Times in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
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

/// The most that something could cost.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub struct Cost {
    /// Dollars; absent where a price or the number of items is not known.
    pub usd: Option<f64>,
    /// Tokens; absent where the number of items is not known.
    pub tokens: Option<u64>,
    /// Whether a price is not known.
    pub unpriced: bool,
    /// Whether the number of items is only known in the run.
    pub open: bool,
}

impl Cost {
    const NOTHING: Cost = Cost { usd: Some(0.0), tokens: Some(0), unpriced: false, open: false };

    #[must_use]
    fn and(self, other: Cost) -> Cost {
        Cost {
            usd: self.usd.zip(other.usd).map(|(a, b)| a + b),
            tokens: self.tokens.zip(other.tokens).map(|(a, b)| a.saturating_add(b)),
            unpriced: self.unpriced || other.unpriced,
            open: self.open || other.open,
        }
    }

    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a bound need not be exact beyond 2^52")]
    fn times(self, count: u64) -> Cost {
        Cost { usd: self.usd.map(|usd| usd * count as f64), tokens: self.tokens.map(|tokens| tokens.saturating_mul(count)), ..self }
    }

    /// What is never known to end costs what bounds it, or nobody can say.
    #[must_use]
    fn for_items(self, count: Option<usize>) -> Cost {
        match count {
            Some(count) => self.times(count as u64),
            None if self == Cost::NOTHING => self,
            None => Cost { usd: None, tokens: None, open: true, ..self },
        }
    }

    /// No more than a limit around it allows. A limit in dollars holds only what has a price.
    #[must_use]
    fn within(self, usd: Option<f64>, tokens: Option<u64>) -> Cost {
        let usd = if self.unpriced { self.usd } else { self.usd.into_iter().chain(usd).reduce(f64::min) };
        Cost { usd, tokens: self.tokens.into_iter().chain(tokens).min(), ..self }
    }
}

/// What a preview is made from besides the plan.
pub(super) struct Known<'a> {
    pub(super) project: &'a Project,
    pub(super) endpoints: &'a Endpoints,
    /// Who named the model for whoever names none.
    pub(super) default_from: &'a str,
    /// Whether all inputs are given.
    pub(super) complete: bool,
}

impl Project {
    /// Says what a run would be, before it is begun. `given` are inputs; some that must be given may be missing.
    ///
    /// # Errors
    /// A sentence for each input that does not fit.
    pub fn preview(&self, plan: &Plan, given: &Map<String, Value>, endpoints: &Endpoints, default_from: &str) -> Result<Preview, Vec<String>> {
        let missing: Vec<String> =
            plan.inputs.iter().filter(|(name, input)| input.required && !given.contains_key(name)).map(|(name, _)| name.clone()).collect();
        let inputs = if missing.is_empty() { plan.check_inputs(given)? } else { partial(plan, given) };
        let head = self.repo.head().ok();
        let known = Known { project: self, endpoints, default_from, complete: missing.is_empty() };
        let mut scope = Scope::new().with("inputs", Value::Object(inputs.clone()));
        if let Some(head) = &head {
            scope = scope.with("run", json!({"base": head.commit.0, "head": head.branch.clone().unwrap_or_else(|| head.commit.0.clone())}));
        }
        let none = BTreeSet::new();
        let steps = known.steps(plan, &none, &scope);
        let aside = |part: &Option<std::sync::Arc<Plan>>, base| part.as_ref().map(|part| known.steps(part, base, &scope)).unwrap_or_default();
        // What always runs at the end stands on all that was made.
        let bases = bases(plan, &none);
        let left = |step: &PlannedStep| if step.writes { BTreeSet::from([step.id.0.clone()]) } else { bases.get(&step.id).cloned().unwrap_or_default() };
        let all = plan.sinks().flat_map(left).collect();
        let (on_failure, finally) = (aside(&plan.on_failure, &none), aside(&plan.finally, &all));
        let orchestrator = plan.orchestrator.as_ref().and_then(|spec| plan.agents.get(&spec.agent)).map(|agent| known.agent(agent, 1));
        let watching = plan.orchestrator.as_ref().and_then(|spec| plan.agents.get(&spec.agent)).map_or(Cost::NOTHING, |agent| known.session(agent));
        let all = steps.iter().chain(&on_failure).chain(&finally).fold(watching, |sum, step| sum.and(step.at_most));
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
            steps,
            orchestrator,
            on_failure,
            finally,
            at_most: all.within(plan.limits.usd, Some(plan.limits.tokens)),
            inputs,
        })
    }
}

/// What is given, and the defaults of the rest.
fn partial(plan: &Plan, given: &Map<String, Value>) -> Map<String, Value> {
    let value = |name: &String, default: Option<Value>| given.get(name).cloned().or(default).map(|value| (name.clone(), value));
    plan.inputs.iter().filter_map(|(name, input)| value(name, input.default.as_ref().map(|default| default.value.clone()))).collect()
}

impl Known<'_> {
    /// `around` is what the plan itself starts from, where that is not where the run does.
    fn steps(&self, plan: &Plan, around: &BTreeSet<String>, scope: &Scope) -> Vec<StepPreview> {
        let bases = bases(plan, around);
        plan.steps().map(|step| self.step(plan, step, bases.get(&step.id).cloned().unwrap_or_default(), scope)).collect()
    }

    fn step(&self, plan: &Plan, step: &PlannedStep, given: BTreeSet<String>, scope: &Scope) -> StepPreview {
        let items = self.items(step, scope);
        let agent = Known::of_step(step);
        let steps = step.inner().map(|inner| self.steps(inner, &given, &inside(step, scope))).unwrap_or_default();
        let tries = step.retry.as_ref().map_or(1, |retry| retry.max.saturating_add(1));
        let iterations = if let Work::Loop(spec) = &step.work { Some(spec.max) } else { None };
        let again = step.retry_with.as_ref().map_or(Cost::NOTHING, |agent| self.session(agent));
        let one = self.one(step).times(u64::from(tries)).and(again);
        let inside = steps.iter().fold(Cost::NOTHING, |sum, step| sum.and(step.at_most)).times(u64::from(iterations.unwrap_or(1)));
        let inside = if let Work::Workflow(call) = &step.work { inside.within(call.plan.limits.usd, Some(call.plan.limits.tokens)) } else { inside };
        let mut at_most = one.and(inside.times(u64::from(tries)));
        if let Some(items) = &items {
            at_most = at_most.for_items(items.count);
        }
        if let Some(budget) = &step.budget {
            at_most = at_most.within(budget.usd.as_deref().copied(), budget.tokens.as_deref().copied());
        }
        StepPreview {
            id: step.id.0.clone(),
            verb: verb(&step.work).to_owned(),
            needs: plan.needs(&step.id).map(|(need, on)| json!({"step": need.id.0, "on": on_word(on)})).collect(),
            condition: step.condition.as_ref().map(|text| text.value.clone()),
            text: text(&step.work),
            from: from(&step.work),
            agent: agent.map(|(agent, sessions)| self.agent(agent, sessions)),
            retry_with: step.retry_with.as_ref().map(|agent| agent.name.clone()),
            items,
            workspace: workspace(step).to_owned(),
            base: base(step, given),
            scope: step.scope.as_ref().map(|scope| globs(&scope.value)),
            writes: step.writes,
            verify: step
                .verify
                .as_ref()
                .map(|verify| json!({"run": verify.run.iter().map(|text| &text.value).collect::<Vec<_>>(), "attempts": verify.attempts})),
            tries,
            retry_on: step.retry.as_ref().filter(|_| tries > 1).map(retry_on).unwrap_or_default(),
            timeout_s: step.timeout.as_secs(),
            budget: step.budget.as_ref().map(LimitsShown::written),
            cache: cache_standing(step).to_owned(),
            allow_failure: step.allow_failure,
            iterations,
            steps,
            at_most,
        }
    }

    /// Returns the agent of a step and its sessions in one try of one item.
    fn of_step(step: &PlannedStep) -> Option<(&AgentSpec, u64)> {
        match &step.work {
            Work::Agent { agent, .. } => Some((agent.as_ref(), 1)),
            Work::Merge(merge) => merge.resolver.as_ref().map(|agent| (agent.as_ref(), u64::from(merge.resolver_attempts))),
            Work::Select(select) => select.judge.as_ref().map(|judge| (judge.agent.as_ref(), u64::from(judge.votes))),
            Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => None,
        }
    }

    /// What one try of one item costs at most, besides the steps inside it.
    fn one(&self, step: &PlannedStep) -> Cost {
        match (&step.work, Known::of_step(step)) {
            // How many conflicts there are is only known in the run.
            (Work::Merge(_), Some((agent, _))) => self.session(agent).for_items(None),
            (_, Some((agent, sessions))) => self.session(agent).times(sessions),
            (_, None) => Cost::NOTHING,
        }
    }

    /// What one session costs at most: its limit of tokens at the dearest price, or its limit of dollars.
    #[expect(clippy::cast_precision_loss, reason = "a bound need not be exact beyond 2^52")]
    fn session(&self, agent: &AgentSpec) -> Cost {
        let prices: Option<Vec<f64>> = agent.model.choices.iter().map(|choice| self.dearest(choice)).collect();
        let priced = prices.map(|prices| prices.into_iter().fold(0.0, f64::max) * agent.limits.tokens as f64);
        let unpriced = priced.is_none();
        let usd = priced.map(|usd| agent.limits.usd.map_or(usd, |limit| limit.min(usd)));
        Cost { usd, tokens: Some(agent.limits.tokens), unpriced, open: false }
    }

    /// Returns the dollars that one token of a model costs at most.
    fn dearest(&self, choice: &str) -> Option<f64> {
        const MANY: u64 = 1_000_000;
        let (endpoint, model) = choice.split_once('/').and_then(|(provider, model)| Some((self.endpoints.get(provider)?, model)))?;
        let kinds = [Usage { input: MANY, ..Usage::default() }, Usage { output: MANY, ..Usage::default() }, Usage { cache_write: MANY, ..Usage::default() }];
        let now = Clock::system().now();
        let prices: Option<Vec<f64>> = kinds.iter().map(|usage| llm::usd(endpoint, model, usage, now)).collect();
        Some(prices?.into_iter().fold(0.0, f64::max) / 1e6)
    }

    /// Works the items of a step out as the run will, where everything that they are made from is known.
    fn items(&self, step: &PlannedStep, scope: &Scope) -> Option<ItemsPreview> {
        let (by, written): (&str, Vec<(Option<&str>, &Value)>) = match (&step.for_each, &step.matrix) {
            (Some(for_each), _) => ("for_each", vec![(None, &for_each.items.value)]),
            (None, Some(matrix)) => ("matrix", matrix.axes.iter().map(|(name, values)| (Some(name.as_str()), &values.value)).collect()),
            (None, None) => return None,
        };
        let most = step.for_each.as_ref().map_or_else(|| step.matrix.as_ref()?.max_parallel.as_ref(), |for_each| for_each.max_parallel.as_ref());
        let further = step.for_each.iter().flat_map(|for_each| for_each.key.iter().chain(&for_each.needs)).map(|text| text.value.as_str());
        let mut texts = written.iter().map(|(_, value)| *value).chain(most.map(|most| &most.value)).filter_map(Value::as_str).chain(further);
        let known = |text: &str| prompts::check(text).is_ok_and(|read| read.iter().all(|read| self.is_known(&read.path)));
        let items = if texts.all(known) { fan::expand(step, scope).ok() } else { None };
        let expression = written.iter().map(|(name, value)| name.map_or_else(|| shown(value), |name| format!("{name}: {}", shown(value)))).collect::<Vec<_>>();
        Some(ItemsPreview {
            by: by.to_owned(),
            count: items.as_ref().map(|(items, _)| items.len()),
            keys: items.iter().flat_map(|(items, _)| items).take(KEYS).map(|item| item.key.clone()).collect(),
            expression: items.is_none().then(|| expression.join(", ")),
            max_parallel: items.map_or_else(|| most.map(|most| most.value.clone()), |(_, most)| most.map(Value::from)),
        })
    }

    /// Returns whether what a template reads is known before the run.
    fn is_known(&self, path: &[String]) -> bool {
        match path.first().map(String::as_str) {
            Some("inputs") => self.complete,
            Some("steps" | "loop" | "matrix" | "env") => false,
            _ => true,
        }
    }

    fn agent(&self, agent: &AgentSpec, sessions: u64) -> AgentPreview {
        let hooks: Vec<String> = self.project.hooks.always().iter().map(|name| (*name).to_owned()).chain(agent.hooks.iter().cloned()).collect();
        let untrusted: BTreeSet<&str> = self.project.hooks.untrusted().collect();
        AgentPreview {
            name: agent.name.clone(),
            access: if agent.access == Access::Write { "write" } else { "read" }.to_owned(),
            models: agent.model.choices.clone(),
            models_from: self.named(&agent.model),
            effort: agent.model.effort.clone(),
            tools: agent.tools.clone(),
            rules: json!({"allow": agent.rules.allow, "ask": agent.rules.ask, "deny": agent.rules.deny}),
            skills: agent.skills.clone(),
            untrusted_hooks: hooks.iter().filter(|hook| untrusted.contains(hook.as_str())).cloned().collect(),
            hooks,
            limits: LimitsShown::of(&agent.limits),
            sessions,
        }
    }

    /// Says where a model's name came from.
    fn named(&self, model: &ModelSpec) -> String {
        let by = match model.named {
            NamedBy::Nobody => self.default_from,
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
}

impl LimitsShown {
    fn of(limits: &Limits) -> LimitsShown {
        LimitsShown { turns: Some(limits.turns), tokens: Some(limits.tokens), usd: limits.usd, time_ms: Some(millis(limits.time)) }
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
        return given.into_iter().map(|step| format!("steps.{step}")).collect();
    }
    vec![match &step.workspace.base {
        Base::Head => "head".to_owned(),
        Base::Dirty => "dirty".to_owned(),
        Base::Ref(name) => name.value.clone(),
    }]
}

/// What the steps inside another one may read that is known before the run.
fn inside(step: &PlannedStep, scope: &Scope) -> Scope {
    match &step.work {
        // The inputs of a called workflow are literal, or are known in the run.
        Work::Workflow(call) => {
            let value = |written: &Value| match written {
                Value::String(text) => prompts::evaluate(text, scope).ok(),
                other => Some(other.clone()),
            };
            let given: Map<String, Value> = call.with.iter().filter_map(|(name, written)| Some((name.clone(), value(&written.value)?))).collect();
            scope.clone().with("inputs", Value::Object(partial(&call.plan, &given)))
        }
        Work::Agent { .. } | Work::Run { .. } | Work::Merge(_) | Work::Select(_) | Work::Approve(_) | Work::Loop(_) => scope.clone(),
    }
}

/// Says whether a recorded result would stand for a step's work.
fn cache_standing(step: &PlannedStep) -> &'static str {
    if step.cache.is_some() { "looked up when its inputs are known" } else { "off" }
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
