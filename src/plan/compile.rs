//! Compiles a workflow: the only judge of one.
//!
//! The order of the work is that of what depends on what: schemas, models and agents by name; needs as edges, frame by
//! frame; each step with its agent or the workflow it calls; templates; the writers and how their work comes together. An
//! error in one does not keep the others from being told.
use super::{
    AgentSpec, CallSpec, Catalog, Edge, JudgeSpec, Limits, LoopSpec, MergeSpec, OrchestratorSpec, OtherNames, Plan, PlannedStep, Reads, SelectSpec, Work,
    agents::Agents,
    calls::Calls,
    checks::{Checks, folder},
    findings::Findings,
    frames::{Around, At, Frames, MAIN, ORCHESTRATOR},
    graph::{Graph, OutputShape},
    inputs,
    models::check_overrides,
    readings::{Prompt, Reader},
    resolve::{Resolved, Resolver},
    schemas,
    shapes::Shapes,
    writers::Writers,
    written::{Written, WrittenHooks},
};
use crate::{
    event::{NodeId, StepId},
    source::{Diagnostic, Diagnostics, Source, Spanned, codes},
    workflow::{Merge, Select, Step, Verb, Workflow},
};
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::Duration,
};

/// Agents and commands at work at the same time where the file does not say.
pub const MAX_PARALLEL: usize = 8;
/// Steps that a plan can have, with those of everything inside it.
const STEPS_MAX: usize = 50_000;
/// The wall time of a command where nothing says.
const RUN_TIMEOUT: Duration = Duration::from_mins(30);

impl Plan {
    /// Compiles a workflow with all that it calls against what is known here, or tells everything that is wrong with it, what
    /// could not be read of it among that.
    /// Warnings come beside the plan.
    ///
    /// # Errors
    /// All errors of the workflow, in the order of its file; then those of the workflows it calls.
    pub fn compile(workflow: &Workflow, catalog: &Catalog) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
        let mut calls = Calls::new(workflow, catalog);
        let compiled = compile(workflow, &mut calls);
        let mut findings = Findings::new(workflow);
        check_overrides(workflow, catalog, &calls.aliases, &mut findings);
        match compiled {
            Ok(compiled) => findings.into_warnings().map(|_| compiled),
            Err(errors) => {
                findings.add(errors);
                Err(findings.into_errors())
            }
        }
    }
}

/// Compiles one workflow among those that call each other.
pub(super) fn compile(workflow: &Workflow, calls: &mut Calls<'_>) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let mut findings = Findings::new(workflow);
    workflow.warnings.iter().for_each(|warning| findings.report(warning.clone()));
    workflow.flaws.errors.iter().for_each(|errors| findings.add(errors.clone()));
    let limits = Limits::RUN.replaced(workflow.budget.as_deref());
    let schemas = schemas::resolve(workflow, &mut findings);
    inputs::check_declared(workflow, &mut findings);
    let frames = Frames::new(workflow, &mut findings);
    let written = Written::of(workflow, &frames, calls.catalog, &mut findings);
    let mut agents = Agents::new(workflow, calls.catalog, (limits, &written), &mut findings);
    calls.aliases.extend(workflow.models.iter().map(|(name, _)| name.value.clone()));
    let mut resolver = Resolver::new(workflow, &frames, &mut agents, calls);
    let resolved = resolver.all(&mut findings);
    let Resolver { called, files, .. } = resolver;

    let (items, output_shapes) = judge(&Judged { workflow, frames: &frames, schemas: &schemas, resolved: &resolved, called: &called }, &mut findings);
    let orchestrator = orchestrator(workflow, &frames, &mut agents, &mut findings);
    let models = agents.aliases();
    let agents = Arc::new(agents.finish(&mut findings));
    if findings.has_errors() {
        return Err(findings.into_errors());
    }
    let hooks = written.names(&workflow.hooks);
    let (models, other_names, files) = (Arc::new(models), Arc::new(calls.catalog.other_names.clone()), Arc::new(files));
    let shared = Shared { workflow, limits, agents, models, other_names, files, hooks, written: Arc::new(written.all) };
    let plan = Freezer { frames: &frames, schemas: &schemas, items: &items, called: &called, shared: &shared }.plan(resolved, (orchestrator, output_shapes));
    let plan = plan.expect("nothing is left out of a plan without an error");
    findings.into_warnings().map(|warnings| (plan, warnings))
}

/// A workflow with everything in it resolved.
struct Judged<'a> {
    workflow: &'a Workflow,
    frames: &'a Frames<'a>,
    schemas: &'a BTreeMap<String, Arc<Value>>,
    resolved: &'a [Vec<Resolved>],
    called: &'a HashMap<At, Arc<Plan>>,
}

/// Reports the call with which a workflow has more steps than a run can have: those of the workflows it calls are counted for
/// each call, so that a few files that call each other several times come to very many.
fn check_size(frames: &Frames<'_>, called: &HashMap<At, Arc<Plan>>, findings: &mut Findings<'_>) {
    let mut size = frames.steps().count();
    for (at, step) in frames.steps() {
        let Some(plan) = called.get(&at) else { continue };
        size = size.saturating_add(plan.size());
        if let (true, Verb::Workflow { workflow, .. }) = (size > STEPS_MAX, &step.verb) {
            let message = format!("with this call the workflow comes to {size} steps, more than the {STEPS_MAX} that a run can have");
            let label = format!("`{}` has {} steps, with those of the workflows it calls", workflow.value, plan.size());
            let help = "call it once for many things: a step with `for_each` is planned once, however many items it has";
            findings.report(findings.error(codes::TOO_MANY_STEPS, workflow.span, message).label(label).help(help));
            return;
        }
    }
}

/// Judges the steps one by one, their templates, and how the work of the writers comes together. Returns the schemas of items
/// that an orchestrator may add, and what is known of the outputs.
fn judge(judged: &Judged<'_>, findings: &mut Findings<'_>) -> (HashMap<At, Arc<Value>>, BTreeMap<String, OutputShape>) {
    let Judged { workflow, frames, schemas, resolved, called } = *judged;
    check_size(frames, called, findings);
    let all = |pick: fn(&Resolved) -> bool| resolved.iter().map(|steps| steps.iter().map(pick).collect::<Vec<bool>>()).collect::<Vec<_>>();
    let (writes, sure, starts) = (all(|step| step.writes), all(|step| step.sure), all(|step| step.starts));
    let shapes = Shapes { workflow, frames, schemas, writes: &writes, calls: called };
    let mut checks = Checks { shapes, files: BTreeMap::new() };
    workflow.agents.iter().filter_map(|(_, agent)| agent.cwd.as_ref()).for_each(|cwd| folder(cwd, findings));
    let mut reader = Reader::new(shapes);
    reader.file();
    for (at, _) in frames.steps() {
        let step = &resolved[at.frame][at.step];
        checks.step(at, step, findings);
        reader.step(at, Prompt { text: step.prompt.as_deref(), file: step.file.as_ref() });
    }
    let watched = frames.steps().filter(|(at, step)| workflow.orchestrator.is_some() && at.frame == MAIN && step.for_each.is_some());
    let items = watched.filter_map(|(at, _)| Some((at, Arc::new(reader.item_schema(at)?)))).collect();
    let output_shapes = reader.outputs();
    findings.absorb(reader.finish());
    for (at, frame) in frames.all.iter().enumerate() {
        Writers { frame, writes: &writes[at], sure: &sure[at], starts: &starts[at] }.check(findings);
    }
    (items, output_shapes)
}

fn orchestrator(workflow: &Workflow, frames: &Frames<'_>, agents: &mut Agents<'_>, findings: &mut Findings<'_>) -> Option<OrchestratorSpec> {
    let written = workflow.orchestrator.as_ref()?;
    // An item that is added to a matrix would be many.
    let supervised = workflow.steps.iter().filter(|step| step.for_each.is_some() && step.matrix.is_none());
    let supervises: Vec<StepId> = supervised.map(|step| StepId(step.id.value.clone())).collect();
    if supervises.is_empty() {
        let warning = findings.warning(codes::NOTHING_TO_SUPERVISE, written.span, "the orchestrator has no `for_each` to supervise");
        findings.report(warning.help("it is woken at the start and at the end, and can only sum the run up"));
    }
    warn_of_unreached(frames, findings);
    let mut wake: Vec<_> = written.wake.iter().map(|wake| wake.value).collect();
    wake.sort_unstable();
    wake.dedup();
    let mut may = Vec::new();
    for power in &written.may {
        if !may.contains(&power.value) {
            may.push(power.value);
        }
    }
    let agent = agents.watcher(&written.agent, &may, findings)?;
    let node = NodeId::step(&StepId::from(ORCHESTRATOR));
    Some(OrchestratorSpec { node, agent, may, max_added: written.max_added, wake, supervises })
}

/// Warns of items that the orchestrator hears nothing of and has no power over.
fn warn_of_unreached(frames: &Frames<'_>, findings: &mut Findings<'_>) {
    for (at, step) in frames.steps().filter(|(_, step)| step.for_each.is_some()) {
        let help = match frames.all[at.frame].around {
            Around::Nothing if step.matrix.is_none() => continue,
            Around::Nothing => "an item would be one for each combination of its `matrix`: make the combinations a part of the items",
            Around::Loop(_) => "it stands in a loop: the orchestrator reaches the `for_each` of the workflow's own steps",
            Around::End => "it runs when the orchestrator has said its last words",
        };
        let message = format!("the orchestrator does not reach the items of `{}`", step.id.value);
        findings.report(findings.warning(codes::OUT_OF_REACH, step.id.span, message).help(help));
    }
}

/// What the plans of all frames of a workflow have in common.
struct Shared<'a> {
    workflow: &'a Workflow,
    limits: Limits,
    agents: Arc<BTreeMap<String, Arc<AgentSpec>>>,
    models: Arc<BTreeMap<String, super::ModelSpec>>,
    other_names: Arc<OtherNames>,
    files: Arc<BTreeMap<String, Arc<Source>>>,
    hooks: Vec<String>,
    written: Arc<Vec<WrittenHooks>>,
}

impl Shared<'_> {
    /// Returns a plan without its steps; what belongs to a run as a whole is empty.
    fn plan(&self) -> Plan {
        let workflow = self.workflow;
        Plan {
            source: workflow.source.clone(),
            name: workflow.name.value.clone(),
            description: workflow.description.clone().unwrap_or_default(),
            inputs: workflow.inputs.iter().map(|(name, input)| (name.value.clone(), input.clone())).collect(),
            agents: self.agents.clone(),
            files: self.files.clone(),
            models: self.models.clone(),
            other_names: self.other_names.clone(),
            orchestrator: None,
            limits: self.limits,
            budget: workflow.budget.as_deref().cloned(),
            on_exceed: workflow.budget.as_ref().map(|budget| budget.on_exceed).unwrap_or_default(),
            max_parallel: workflow.defaults.max_parallel.as_ref().map_or(MAX_PARALLEL, |max| max.value as usize),
            secrets: workflow.secrets.iter().map(|name| name.value.clone()).collect(),
            hooks: self.hooks.clone(),
            written: self.written.clone(),
            on_failure: None,
            finally: None,
            outputs: Vec::new(),
            reads: Reads::default(),
            output_shapes: BTreeMap::new(),
            graph: Graph::default(),
        }
    }
}

/// Freezes what was judged to be sound.
struct Freezer<'a> {
    frames: &'a Frames<'a>,
    schemas: &'a BTreeMap<String, Arc<Value>>,
    /// The schemas of the items of steps.
    items: &'a HashMap<At, Arc<Value>>,
    called: &'a HashMap<At, Arc<Plan>>,
    shared: &'a Shared<'a>,
}

impl Freezer<'_> {
    /// Freezes all frames, bodies before what they stand in.
    fn plan(&self, resolved: Vec<Vec<Resolved>>, (orchestrator, output_shapes): (Option<OrchestratorSpec>, BTreeMap<String, OutputShape>)) -> Option<Plan> {
        let mut frozen: BTreeMap<usize, Arc<Plan>> = BTreeMap::new();
        for (frame, steps) in resolved.into_iter().enumerate().rev() {
            let mut plan = self.shared.plan();
            if frame == MAIN {
                let outputs = &self.shared.workflow.outputs;
                plan.outputs = outputs.iter().map(|(name, template)| (name.value.clone(), template.clone())).collect();
                plan.reads = Reads::of_texts(outputs.iter().map(|(_, template)| template.as_str()));
                plan.output_shapes = output_shapes;
                plan.orchestrator = orchestrator;
                plan.on_failure = self.frames.on_failure.and_then(|frame| frozen.remove(&frame));
                plan.finally = self.frames.finally.and_then(|frame| frozen.remove(&frame));
                return self.frame(MAIN, steps, &frozen, plan);
            }
            let plan = self.frame(frame, steps, &frozen, plan)?;
            frozen.insert(frame, Arc::new(plan));
        }
        None
    }

    fn frame(&self, frame: usize, resolved: Vec<Resolved>, frozen: &BTreeMap<usize, Arc<Plan>>, plan: Plan) -> Option<Plan> {
        let written = &self.frames.all[frame];
        let order = &written.edges.order;
        let mut position = vec![0; order.len()];
        order.iter().enumerate().for_each(|(place, &step)| position[step] = place);
        let mut graph = DiGraph::with_capacity(written.steps.len(), written.edges.needs.iter().map(Vec::len).sum());
        for (step, resolved) in resolved.into_iter().enumerate() {
            let at = At { frame, step };
            let sources = |from: &[Spanned<String>]| self.sources(at, from, &position);
            let work = match &written.steps[step].verb {
                Verb::Agent { prompt, .. } => Work::Agent { agent: resolved.agent?, prompt: Spanned::new(resolved.prompt?, prompt.span) },
                Verb::Run { command } => Work::Run { command: command.clone() },
                Verb::Merge(merge) => Work::Merge(merge_spec(merge, sources(&merge.from), resolved.helper)),
                Verb::Select(select) => Work::Select(select_spec(select, sources(&select.from), (resolved.helper, resolved.prompt))?),
                Verb::Approve(approve) => Work::Approve((**approve).clone()),
                Verb::Workflow { with, .. } => {
                    let with = with.iter().map(|(name, value)| (name.value.clone(), value.clone())).collect();
                    Work::Workflow(CallSpec { plan: self.called.get(&at)?.clone(), with })
                }
                Verb::Loop(spec) => {
                    let body = frozen.get(&self.frames.body(at)?)?.clone();
                    Work::Loop(LoopSpec { body, reads: Reads::of_condition(&spec.until), until: spec.until.clone(), max: spec.max.value })
                }
            };
            let rest = Resolved { agent: None, helper: None, prompt: None, ..resolved };
            let planned = self.step(&written.steps[step], work, rest);
            graph.add_node(Box::new(PlannedStep { item_schema: self.items.get(&at).cloned(), ..planned }));
        }
        for (at, needs) in written.edges.needs.iter().enumerate() {
            for (need, on) in needs.iter().zip(&written.edges.on[at]) {
                graph.add_edge(NodeIndex::new(*need), NodeIndex::new(at), Edge { on: *on });
            }
        }
        let order: Vec<NodeIndex> = order.iter().map(|&step| NodeIndex::new(step)).collect();
        Some(Plan { graph: Graph::new(graph, &order), ..plan })
    }

    /// Returns the steps that another one takes in, in the order of the graph.
    fn sources(&self, at: At, from: &[Spanned<String>], position: &[usize]) -> Vec<StepId> {
        let frame = &self.frames.all[at.frame];
        let mut from: Vec<usize> = from.iter().filter_map(|name| frame.index.get(name.as_str()).copied()).collect();
        from.sort_unstable_by_key(|&step| position[step]);
        from.dedup();
        from.into_iter().map(|step| StepId(frame.steps[step].id.value.clone())).collect()
    }

    fn step(&self, step: &Step, work: Work, resolved: Resolved) -> PlannedStep {
        let defaults = &self.shared.workflow.defaults;
        let (usual, idle_timeout) = match &work {
            Work::Agent { agent, .. } => (agent.limits.time, Some(agent.idle_timeout)),
            Work::Run { .. } => (RUN_TIMEOUT, step.idle_timeout.or(defaults.idle_timeout)),
            Work::Merge(_) | Work::Workflow(_) | Work::Select(_) | Work::Approve(_) | Work::Loop(_) => (Limits::RUN.time, None),
        };
        let of_called = if let Work::Workflow(call) = &work { call.plan.budget.as_ref() } else { None };
        let times = step.budget.as_deref().into_iter().chain(of_called).filter_map(|budget| budget.time.as_deref().copied());
        let budgeted = times.min();
        let timeout = step.timeout.or(defaults.timeout).unwrap_or(usual).min(budgeted.unwrap_or(Duration::MAX));
        let schema = step.output.as_ref().and_then(|output| output.schema.as_ref()).and_then(|name| self.schemas.get(&name.value));
        let layers = [&self.shared.workflow.env, &resolved.workspace.env, &step.env];
        let env = layers.into_iter().flatten().map(|(name, value)| (name.value.clone(), value.clone())).collect();
        let planned = PlannedStep {
            id: StepId(step.id.value.clone()),
            span: step.id.span,
            work,
            condition: step.condition.clone(),
            for_each: step.for_each.clone(),
            matrix: step.matrix.clone(),
            retry_with: resolved.retry_with,
            cache: step.cache.clone(),
            workspace: resolved.workspace,
            cwd: step.cwd.clone(),
            scope: step.scope.clone(),
            writes: resolved.writes,
            verify: step.verify.clone(),
            output_schema: schema.cloned(),
            parse: step.output.as_ref().and_then(|output| output.parse.as_deref().copied()),
            item_schema: None,
            file: step.output.as_ref().and_then(|output| output.file.clone()),
            budget: step.budget.as_deref().cloned(),
            timeout,
            idle_timeout,
            retry: step.retry.clone().or_else(|| defaults.retry.clone()),
            allow_failure: step.allow_failure,
            env,
            reads: Reads::default(),
        };
        PlannedStep { reads: Reads::of_step(&planned), ..planned }
    }
}

fn merge_spec(merge: &Merge, from: Vec<StepId>, resolver: Option<Arc<AgentSpec>>) -> MergeSpec {
    MergeSpec {
        from,
        mode: merge.mode,
        order: merge.order.clone(),
        verify: merge.verify.clone(),
        flaky_retries: merge.flaky_retries,
        resolver,
        resolver_attempts: merge.resolver_attempts,
        then: merge.then,
        on_red: merge.on_red,
    }
}

fn select_spec(select: &Select, from: Vec<StepId>, (agent, rubric): (Option<Arc<AgentSpec>>, Option<String>)) -> Option<SelectSpec> {
    let judge = match &select.judge {
        None => None,
        Some(judge) => Some(JudgeSpec {
            agent: agent?,
            votes: judge.votes,
            blind: judge.blind,
            rubric: judge.rubric.as_ref().and_then(|written| Some(Spanned::new(rubric?, written.span))),
            criteria: judge.criteria.iter().map(|name| name.value.clone()).collect(),
        }),
    };
    Some(SelectSpec { from, gates: select.gates.clone(), judge, tie: select.tie, keep_losers: select.keep_losers })
}
