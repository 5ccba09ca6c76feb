//! What is known of a plan before its run: steps, the bodies they run, items, models and recorded results.
use super::{
    AROUND, AgentPreview, BodyPreview, CachePreview, ChoicePreview, Cost, GraphPreview, Hinges, ItemsPreview, LimitsShown, OrchestratorPreview, SandboxPreview,
    StepPreview, base, bases, cost::tries, from, globs, on_word, retry_on, shown, text, verb, workspace,
};
use crate::{
    clock::millis,
    engine::{
        fan,
        project::{Project, SetupError},
        secrets,
        steps::{self, CacheStore, Makings, foresee, is_kept},
    },
    event::{CommitId, Item},
    hooks::Hooks,
    journal::RunDir,
    llm::Endpoints,
    plan::{AgentSpec, ModelSpec, OrchestratorSpec, Plan, PlannedStep, SandboxSpec, Work},
    prompts::{self, Scope},
    secrets::Secrets,
    workflow::{Access, Base, OnExceed},
};
use serde_json::{Map, Value, json};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
};

/// Keys of items that are named one by one.
const KEYS: usize = 20;
/// Different inputs by which one called workflow is told apart; what is called in more ways is told as if nothing were known.
const VARIANTS: usize = 8;
/// Items whose recorded results are looked up.
const LOOKED_UP: usize = 1_000;

/// What a preview is made from besides the plan, and what it has found so far.
pub(super) struct Known<'a> {
    project: &'a Project,
    hooks: Arc<Hooks>,
    pub(super) endpoints: &'a Endpoints,
    /// Who named the model for whoever names none.
    default_from: &'a str,
    /// The commit that the run would start from.
    head: Option<CommitId>,
    pins: BTreeMap<String, String>,
    secrets: Result<Secrets, SetupError>,
    results: CacheStore,
    /// The dearest token of each model, where that is known.
    pub(super) prices: HashMap<String, Option<f64>>,
    bodies: Vec<BodyPreview>,
    /// The place of a body by its plan and its inputs.
    seen: HashMap<(usize, String), usize>,
    /// How many variants there are of each plan.
    variants: HashMap<usize, usize>,
}

/// What is around the steps of one graph.
#[derive(Clone)]
pub(super) struct Surroundings {
    /// Whether all inputs are known.
    pub(super) complete: bool,
    pub(super) inputs: Map<String, Value>,
    pub(super) scope: Scope,
    /// What steps start from that nothing before them has written, where that is not the start of the run.
    pub(super) base: Option<String>,
    /// The narrowest of the budgets around them.
    pub(super) limits: LimitsShown,
}

/// Returns what is given, and the defaults of the rest.
pub(super) fn or_defaults(plan: &Plan, given: &Map<String, Value>) -> Map<String, Value> {
    let value = |name: &String, default: Option<Value>| given.get(name).cloned().or(default).map(|value| (name.clone(), value));
    plan.inputs.iter().filter_map(|(name, input)| value(name, input.default.as_ref().map(|default| default.value.clone()))).collect()
}

impl<'a> Known<'a> {
    pub(super) fn new(project: &'a Project, plan: &Plan, endpoints: &'a Endpoints, default_from: &'a str, head: Option<CommitId>) -> Known<'a> {
        Known {
            hooks: project.hooks_of(plan),
            project,
            endpoints,
            default_from,
            head,
            pins: project.pins(plan),
            secrets: secrets::of(plan, &project.settings.environment, &project.endpoints()),
            results: CacheStore::open(&RunDir::state(project.checkout()), true),
            prices: HashMap::new(),
            bodies: Vec::new(),
            seen: HashMap::new(),
            variants: HashMap::new(),
        }
    }

    /// Tells the steps of a plan, and the most that running it once could cost.
    pub(super) fn graph(&mut self, plan: &Plan, at: &Surroundings) -> (GraphPreview, Cost) {
        let around: BTreeSet<String> = at.base.iter().cloned().collect();
        let steps = self.steps(plan, &around, at);
        // What always runs at the end stands on all that was made.
        let bases = bases(plan, &around);
        let left = |step: &PlannedStep| if step.writes { BTreeSet::from([step.id.0.clone()]) } else { bases.get(&step.id).cloned().unwrap_or_default() };
        let all = plan.sinks().flat_map(left).collect();
        let on_failure = plan.on_failure.as_ref().map(|ending| self.steps(ending, &around, at)).unwrap_or_default();
        let finally = plan.finally.as_ref().map(|ending| self.steps(ending, &all, at)).unwrap_or_default();
        let watching = plan.orchestrator.as_ref().map_or(Cost::NOTHING, |spec| self.session(&spec.agent, &spec.agent.model.choices));
        let orchestrator = plan.orchestrator.as_ref().map(|spec| self.orchestrator(spec, &at.limits));
        let graph = GraphPreview { steps, orchestrator, on_failure, finally };
        let at_most = graph.all().fold(watching, |sum, step| sum.and(step.at_most));
        (graph, at_most)
    }

    /// Gives the bodies away, each with how often it runs.
    pub(super) fn into_bodies(self, graph: &GraphPreview) -> Vec<BodyPreview> {
        let mut runs: Vec<Option<u64>> = vec![Some(0); self.bodies.len()];
        let add = |runs: &mut Vec<Option<u64>>, graph: &GraphPreview, around: Option<u64>| {
            for step in graph.all() {
                let Some(body) = step.body else { continue };
                let more = around.zip(step.times).map(|(around, times)| around.saturating_mul(times));
                runs[body] = runs[body].zip(more).map(|(sum, more)| sum.saturating_add(more));
            }
        };
        add(&mut runs, graph, Some(1));
        // Each stands before whatever runs it.
        for (place, body) in self.bodies.iter().enumerate().rev() {
            let around = runs[place];
            add(&mut runs, &body.graph, around);
        }
        self.bodies.into_iter().zip(runs).map(|(body, runs)| BodyPreview { runs, ..body }).collect()
    }

    fn steps(&mut self, plan: &Plan, around: &BTreeSet<String>, at: &Surroundings) -> Vec<StepPreview> {
        let bases = bases(plan, around);
        plan.steps().map(|step| self.step(plan, step, bases.get(&step.id).cloned().unwrap_or_default(), at)).collect()
    }

    fn step(&mut self, plan: &Plan, step: &PlannedStep, given: BTreeSet<String>, at: &Surroundings) -> StepPreview {
        let (items, made) = expanded(step, at);
        let count = if step.is_fan() { made.as_ref().map(|made| made.len() as u64) } else { Some(1) };
        let choices = self.choices(plan, step, made.as_deref(), at);
        let body = step.inner().map(|inner| self.body(step, inner, at));
        let iterations = if let Work::Loop(spec) = &step.work { Some(spec.max) } else { None };
        let each = tries(step).saturating_mul(iterations.unwrap_or(1).into());
        let times = count.map(|count| count.saturating_mul(each));
        let inside = body.map_or(Cost::NOTHING, |body| self.bodies[body].at_most.times(each).for_items(count));
        let by_models: Vec<(&[String], u64)> = choices.iter().map(|choice| (choice.models.as_slice(), choice.keys.len().max(1) as u64)).collect();
        let mut at_most = self.sessions(step, &by_models, count).and(inside);
        let own = LimitsShown { time_ms: Some(millis(step.timeout)), ..step.budget.as_ref().map(LimitsShown::written).unwrap_or_default() };
        let limits = own.within(&at.limits);
        let budget = step.budget.as_ref().filter(|_| body.is_some());
        if let Some(budget) = budget {
            at_most = at_most.within(budget.usd.as_deref().copied(), budget.tokens.as_deref().copied());
        }
        StepPreview {
            id: step.id.0.clone(),
            verb: verb(&step.work).to_owned(),
            needs: plan.needs(&step.id).map(|(need, on)| json!({"step": need.id.0, "on": on_word(on)})).collect(),
            condition: step.condition.as_ref().map(|text| text.value.clone()),
            text: text(&step.work),
            from: from(&step.work),
            hinges: Hinges::of(&step.work),
            agent: step.sessions().map(|(agent, sessions)| self.agent(agent, sessions.into(), choices, &limits)),
            retry_with: step.retry_with.as_ref().map(|agent| agent.name.clone()),
            cache: is_kept(step).then(|| self.cache(plan, step, (made.as_deref(), &given), at)),
            items,
            workspace: workspace(step).to_owned(),
            base: base(step, given),
            cwd: step.cwd.as_ref().or_else(|| step.sessions()?.0.cwd.as_ref()).map(|cwd| cwd.value.clone()),
            scope: step.scope.as_ref().map(|scope| globs(&scope.value)),
            writes: step.writes,
            verify: step
                .verify
                .as_ref()
                .map(|verify| json!({"run": verify.run.iter().map(|text| &text.value).collect::<Vec<_>>(), "attempts": if matches!(step.work, Work::Run { .. }) { 1 } else { verify.attempts() }})),
            tries: u32::try_from(tries(step)).unwrap_or(u32::MAX),
            retry_on: step.retry.as_ref().filter(|_| tries(step) > 1).map(retry_on).unwrap_or_default(),
            timeout_ms: millis(step.timeout),
            budget: budget.map(LimitsShown::written),
            asks: step.budget.as_ref().is_some_and(|budget| budget.on_exceed == OnExceed::Ask),
            allow_failure: step.allow_failure,
            iterations,
            body,
            times,
            at_most,
        }
    }

    /// Tells the steps inside another one, once for all that run them with the same inputs.
    fn body(&mut self, step: &PlannedStep, plan: &Arc<Plan>, at: &Surroundings) -> usize {
        let mut inside = Surroundings { base: Some(AROUND.to_owned()), ..at.clone() };
        if let Work::Workflow(call) = &step.work {
            inside.limits = call.plan.budget.as_ref().map_or(inside.limits, |budget| LimitsShown::written(budget).within(&inside.limits));
            let value = |written: &Value| is_all_known(written, at).then(|| prompts::evaluate_all(written, &at.scope).ok())?;
            let given: Map<String, Value> = call.with.iter().filter_map(|(name, written)| Some((name.clone(), value(&written.value)?))).collect();
            inside.inputs = or_defaults(plan, &given);
            // What is handed over and not known is no default.
            inside.inputs.retain(|name, _| given.contains_key(name) || call.with.iter().all(|(handed, _)| handed != name));
            inside.complete = plan
                .inputs
                .iter()
                .all(|(name, input)| inside.inputs.contains_key(name) || !input.required && call.with.iter().all(|(handed, _)| handed != name));
        }
        let of = Arc::as_ptr(plan).addr();
        let key = |inputs: &Map<String, Value>| (of, Value::Object(inputs.clone()).to_string());
        if !self.seen.contains_key(&key(&inside.inputs)) && self.variants.get(&of).is_some_and(|count| *count >= VARIANTS) {
            inside.inputs = Map::new();
            inside.complete = false;
        }
        if let Some(place) = self.seen.get(&key(&inside.inputs)) {
            return *place;
        }
        *self.variants.entry(of).or_default() += 1;
        inside.scope.insert("inputs", &Value::Object(inside.inputs.clone()));
        let (graph, mut at_most) = self.graph(plan, &inside);
        let mut name = step.id.0.clone();
        if let Work::Workflow(call) = &step.work {
            if let Some(budget) = &call.plan.budget {
                at_most = at_most.within(budget.usd.as_deref().copied(), budget.tokens.as_deref().copied());
            }
            name.clone_from(&call.plan.name);
        }
        self.seen.insert(key(&inside.inputs), self.bodies.len());
        self.bodies.push(BodyPreview { name, inputs: inside.inputs, runs: None, graph, at_most });
        self.bodies.len() - 1
    }

    /// Works out which models the items of a step get, where a template chooses them and all of it is known.
    fn choices(&self, plan: &Plan, step: &PlannedStep, items: Option<&[Item]>, at: &Surroundings) -> Vec<ChoicePreview> {
        let Work::Agent { agent, .. } = &step.work else { return Vec::new() };
        if !agent.model.choices.iter().any(|choice| choice.contains("{{")) || (step.is_fan() && items.is_none()) {
            return Vec::new();
        }
        let mut choices: Vec<ChoicePreview> = Vec::new();
        let whole: Vec<Option<&Item>> = items.map_or_else(|| vec![None], |items| items.iter().map(Some).collect());
        for item in whole {
            let scope = with_item(step, item, at);
            let names: Option<Vec<String>> = agent.model.choices.iter().map(|choice| prompts::render(choice, &scope).ok()).collect();
            let Some(names) = names else { return Vec::new() };
            let specs: Vec<ModelSpec> = names.iter().map(|name| plan.model(name)).collect();
            let models: Vec<String> = specs.iter().flat_map(|spec| spec.choices.clone()).collect();
            let by = |alias: &ModelSpec| super::named(&ModelSpec { named: agent.model.named, ..alias.clone() }, self.default_from);
            let from = specs.first().map(by).unwrap_or_default();
            let place = choices.iter().position(|choice| choice.models == models && choice.from == from).unwrap_or_else(|| {
                choices.push(ChoicePreview { models, from, keys: Vec::new() });
                choices.len() - 1
            });
            choices[place].keys.extend(item.map(|item| item.key.clone()));
        }
        choices
    }

    /// Looks up whether recorded results stand for a step's work, where all that it is made from is known.
    fn cache(&self, plan: &Plan, step: &PlannedStep, (items, given): (Option<&[Item]>, &BTreeSet<String>), at: &Surroundings) -> CachePreview {
        let open = |why: String| CachePreview { standing: "open".to_owned(), hits: 0, runs: Vec::new(), why };
        if let Some(read) = step.reads.steps.first() {
            return open(format!("it reads what `{read}` gives"));
        }
        if step.is_fan() && items.is_none() {
            return open("its items are not known before".to_owned());
        }
        let needs_base = step.writes || step.cache.as_ref().is_some_and(|cache| !cache.inputs.is_empty());
        let base = match (&step.workspace.base, &self.head) {
            _ if !needs_base => CommitId(String::new()),
            _ if !given.is_empty() => return open("the files that it starts from come of other steps".to_owned()),
            (Base::Head, Some(head)) => head.clone(),
            (Base::Ref(name), _) if !name.value.contains("{{") => match self.project.repo.resolve(&name.value) {
                Ok(commit) => commit,
                Err(error) => return open(error.to_string()),
            },
            (Base::Ref(_) | Base::Dirty | Base::Head, _) => return open("the files that it starts from are taken when it begins".to_owned()),
        };
        let secrets = match &self.secrets {
            Ok(secrets) => secrets,
            Err(error) => return open(error.to_string()),
        };
        let whole: Vec<Option<&Item>> = items.map_or_else(|| vec![None], |items| items.iter().take(LOOKED_UP).map(Some).collect());
        let env = self.project.command_environment(secrets);
        let (mut runs, mut hits) = (BTreeSet::new(), 0);
        for item in &whole {
            let scope = with_item(step, *item, at);
            let makings = Makings { plan, scope: &scope, shelf: &self.project.shelf, env: &env, secrets, pins: &self.pins, script: None };
            match foresee(&self.results, &self.project.repo, step, makings, &base) {
                Ok(found) => {
                    hits += usize::from(found.is_some());
                    runs.extend(found.map(|run| run.0));
                }
                Err(why) => return open(why),
            }
        }
        let standing = if hits == 0 {
            "miss"
        } else if hits == whole.len() {
            "hit"
        } else {
            "part"
        };
        let why = if hits == 0 { "no result is kept for just this" } else { "the same was done before" };
        CachePreview { standing: standing.to_owned(), hits, runs: runs.into_iter().collect(), why: why.to_owned() }
    }

    fn orchestrator(&self, spec: &OrchestratorSpec, around: &LimitsShown) -> OrchestratorPreview {
        OrchestratorPreview {
            agent: self.agent(&spec.agent, 1, Vec::new(), around),
            may: spec.may.iter().map(|power| power.word().to_owned()).collect(),
            max_added: spec.max_added,
            wake: spec.wake.clone(),
            supervises: spec.supervises.iter().map(|step| step.0.clone()).collect(),
        }
    }

    fn agent(&self, agent: &AgentSpec, sessions: u64, choices: Vec<ChoicePreview>, around: &LimitsShown) -> AgentPreview {
        let hooks: Vec<String> = self.hooks.always().iter().map(|name| (*name).to_owned()).chain(agent.hooks.iter().cloned()).collect();
        let untrusted: BTreeSet<&str> = self.hooks.untrusted().collect();
        AgentPreview {
            name: agent.name.clone(),
            access: if agent.access == Access::Write { "write" } else { "read" }.to_owned(),
            models: agent.model.choices.clone(),
            models_from: super::named(&agent.model, self.default_from),
            choices,
            effort: agent.model.effort.clone(),
            tools: agent.tools.iter().cloned().chain(steps::declared(agent).iter().map(|tool| format!("{} (at the provider)", tool.word()))).collect(),
            rules: json!({"allow": agent.rules.allow, "ask": agent.rules.ask, "deny": agent.rules.deny}),
            sandbox: sandbox(&agent.sandbox),
            skills: agent.skills.clone(),
            untrusted_hooks: hooks.iter().filter(|hook| untrusted.contains(hook.as_str())).cloned().collect(),
            hooks,
            limits: LimitsShown::of(&agent.limits).within(around),
            asks: agent.asks(),
            sessions,
        }
    }
}

/// Shows the sandbox of an agent, where something is said of it.
fn sandbox(spec: &SandboxSpec) -> Option<SandboxPreview> {
    let SandboxSpec { network, read, write, require, is_shut } = spec;
    (*spec != SandboxSpec::default()).then(|| SandboxPreview {
        network: network.written(),
        read: read.clone(),
        write: write.clone(),
        require: require.word(),
        untrusted: *is_shut,
    })
}

/// Works the items of a step out as the run will, where everything that they are made from is known.
fn expanded(step: &PlannedStep, at: &Surroundings) -> (Option<ItemsPreview>, Option<Vec<Item>>) {
    let (by, written): (&str, Vec<(Option<&str>, &Value)>) = match (&step.for_each, &step.matrix) {
        (Some(for_each), _) => ("for_each", vec![(None, &for_each.items.value)]),
        (None, Some(matrix)) => ("matrix", matrix.axes.iter().map(|(name, values)| (Some(name.as_str()), &values.value)).collect()),
        (None, None) => return (None, None),
    };
    let most = step.for_each.as_ref().map_or_else(|| step.matrix.as_ref()?.max_parallel.as_ref(), |for_each| for_each.max_parallel.as_ref());
    let axes = step.matrix.iter().flat_map(|matrix| matrix.axes.iter().map(|(_, values)| &values.value));
    let further = step.for_each.iter().flat_map(|for_each| for_each.key.iter().chain(&for_each.needs)).map(|text| text.value.as_str());
    let mut texts = written.iter().map(|(_, value)| *value).chain(axes).chain(most.map(|most| &most.value)).filter_map(Value::as_str).chain(further);
    let tried = texts.all(|text| is_known(text, at)).then(|| fan::expand(step, &at.scope));
    let (made, wrong) = match tried {
        Some(Ok(made)) => (Some(made), None),
        Some(Err(failure)) => (None, Some(failure.message)),
        None => (None, None),
    };
    let expression = written.iter().map(|(name, value)| name.map_or_else(|| shown(value), |name| format!("{name}: {}", shown(value)))).collect::<Vec<_>>();
    let items = ItemsPreview {
        by: by.to_owned(),
        count: made.as_ref().map(|(items, _)| items.len()),
        keys: made.iter().flat_map(|(items, _)| items).take(KEYS).map(|item| item.key.clone()).collect(),
        expression: made.is_none().then(|| expression.join(", ")),
        wrong,
        max_parallel: made.as_ref().map_or_else(|| most.map(|most| most.value.clone()), |(_, most)| most.map(Value::from)),
    };
    (Some(items), made.map(|(items, _)| items))
}

/// What the templates of one item may read that is known before the run.
fn with_item(step: &PlannedStep, item: Option<&Item>, at: &Surroundings) -> Scope {
    let Some(item) = item else { return at.scope.clone() };
    let scope = at.scope.clone().with("matrix", Value::Object(item.matrix.clone()));
    match &step.for_each {
        Some(for_each) => scope.with(&for_each.name.value, item.value.clone()),
        None => scope,
    }
}

/// Returns whether all templates in a value are known before the run.
fn is_all_known(value: &Value, at: &Surroundings) -> bool {
    match value {
        Value::String(text) => is_known(text, at),
        Value::Array(values) => values.iter().all(|value| is_all_known(value, at)),
        Value::Object(values) => values.values().all(|value| is_all_known(value, at)),
        Value::Null | Value::Bool(_) | Value::Number(_) => true,
    }
}

/// Returns whether all that a template reads is known before the run.
fn is_known(text: &str, at: &Surroundings) -> bool {
    let known = |path: &[String]| match path.first().map(String::as_str) {
        Some("inputs") => at.complete,
        Some("steps" | "loop" | "matrix" | "env") => false,
        _ => true,
    };
    prompts::check(text).is_ok_and(|read| read.iter().all(|read| known(&read.path)))
}
