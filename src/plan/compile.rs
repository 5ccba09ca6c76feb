//! Compiles a workflow: the only judge of one.
//!
//! The order of the work is that of what depends on what: schemas, models and agents by name; needs as edges; each step
//! with its agent; templates; the writers and how their work comes together. An error in one does not keep the others
//! from being told.
use super::{
    AgentSpec, Catalog, Edge, Limits, MergeSpec, OrchestratorSpec, Plan, PlannedStep, Work,
    agents::{Agents, text},
    edges::Edges,
    findings::{Findings, SCHEMA},
    graph::Parts,
    inputs, limits,
    readings::{Known, Reader},
    schemas,
    writers::Writers,
};
use crate::{
    event::{NodeId, StepId},
    source::{Diagnostic, Diagnostics, Source, Spanned, codes},
    workflow::{Access, Budget, Merge, Parse, Step, Verb, Workflow, Workspace, WorkspaceKind},
};
use petgraph::graph::{DiGraph, NodeIndex};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// The step id that the orchestrator's node has.
const ORCHESTRATOR: &str = "orchestrator";
/// Agents and commands at work at the same time where the file does not say.
const MAX_PARALLEL: usize = 8;
/// The wall time of a command where nothing says.
const RUN_TIMEOUT: Duration = Duration::from_mins(30);

impl Plan {
    /// Compiles a workflow against what is known here, or tells everything that is wrong with it. Warnings come beside
    /// the plan.
    ///
    /// # Errors
    /// All errors of the workflow, in the order of its file.
    pub fn compile(workflow: &Workflow, catalog: &Catalog) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
        let mut findings = Findings::new(&workflow.source);
        let plan = Compiler { workflow, catalog, index: index(&workflow.steps) }.compile(&mut findings);
        let warnings = findings.into_warnings()?;
        match plan {
            Some(plan) => Ok((plan, warnings)),
            // Nothing is left out of a plan without an error; should it be, that is said and not run.
            None => Err(Diagnostics(vec![Diagnostic::error(codes::VERBS, &workflow.source, workflow.name.span, "the workflow could not be compiled")])),
        }
    }
}

fn index(steps: &[Step]) -> BTreeMap<&str, usize> {
    steps.iter().enumerate().map(|(at, step)| (step.id.as_str(), at)).collect()
}

struct Compiler<'a> {
    workflow: &'a Workflow,
    catalog: &'a Catalog,
    index: BTreeMap<&'a str, usize>,
}

/// A step's work with what other checks must know of it.
struct Resolved {
    agent: Option<Arc<AgentSpec>>,
    prompt: Option<String>,
    prompt_file: Option<Arc<Source>>,
    workspace: WorkspaceKind,
    writes: bool,
    /// Whether that is known: the agent was found.
    sure: bool,
}

impl Compiler<'_> {
    fn compile(&self, findings: &mut Findings<'_>) -> Option<Plan> {
        let workflow = self.workflow;
        workflow.warnings.iter().for_each(|warning| findings.report(warning.clone()));
        let run_limits = Limits::RUN.replaced(workflow.budget.as_deref());
        let schemas = schemas::resolve(workflow, findings);
        inputs::check_declared(workflow, findings);
        let mut agents = Agents::new(workflow, self.catalog, run_limits, findings);
        let edges = Edges::new(&workflow.steps, &self.index, findings);
        let mut prompt_files = BTreeMap::new();
        let resolved: Vec<Resolved> = workflow.steps.iter().map(|step| self.resolve(step, &mut agents, &mut prompt_files, findings)).collect();
        let writes: Vec<bool> = resolved.iter().map(|step| step.writes).collect();
        let sure: Vec<bool> = resolved.iter().map(|step| step.sure).collect();
        let workspaces: Vec<WorkspaceKind> = resolved.iter().map(|step| step.workspace).collect();

        let mut reader = Reader::new(Known { workflow, index: &self.index, edges: &edges, schemas: &schemas, writes: &writes });
        reader.file();
        for (at, step) in resolved.iter().enumerate() {
            self.check_step(&workflow.steps[at], step, &schemas, findings);
            reader.step(at, step.prompt.as_deref().map(|prompt| (prompt, step.prompt_file.as_ref())));
        }
        findings.absorb(reader.finish(edges.order.as_deref()));
        if let Some(order) = &edges.order {
            Writers { steps: &workflow.steps, index: &self.index, edges: &edges, writes: &writes, sure: &sure, workspaces: &workspaces }.check(order, findings);
        }
        let orchestrator = self.orchestrator(&mut agents, findings);
        let resolvers: Vec<Option<Arc<AgentSpec>>> = workflow.steps.iter().map(|step| resolver(step, &mut agents, findings)).collect();
        let agents = agents.finish(findings);

        let order = edges.order.as_ref()?;
        let mut graph = DiGraph::with_capacity(workflow.steps.len(), edges.needs.iter().map(Vec::len).sum());
        for ((at, step), resolver) in resolved.into_iter().enumerate().zip(resolvers) {
            graph.add_node(self.planned(&workflow.steps[at], step, &schemas, &Merging { resolver, order })?);
        }
        for (at, needs) in edges.needs.iter().enumerate() {
            for (need, on) in needs.iter().zip(&edges.on[at]) {
                graph.add_edge(NodeIndex::new(*need), NodeIndex::new(at), Edge { on: *on });
            }
        }
        let order: Vec<NodeIndex> = order.iter().map(|&step| NodeIndex::new(step)).collect();
        let parts = Parts {
            source: workflow.source.clone(),
            name: workflow.name.value.clone(),
            description: workflow.description.clone().unwrap_or_default(),
            inputs: workflow.inputs.iter().map(|(name, input)| (name.value.clone(), input.clone())).collect(),
            agents,
            orchestrator,
            limits: run_limits,
            on_exceed: workflow.budget.as_ref().map(|budget| budget.on_exceed).unwrap_or_default(),
            max_parallel: workflow.defaults.max_parallel.as_ref().map_or(MAX_PARALLEL, |max| max.value as usize),
            secrets: workflow.secrets.iter().map(|name| name.value.clone()).collect(),
            hooks: workflow.hooks.iter().map(|name| name.value.clone()).collect(),
            on_failure: None,
            finally: None,
            outputs: workflow.outputs.iter().map(|(name, template)| (name.value.clone(), template.clone())).collect(),
        };
        Some(Plan::new(parts, graph, &order))
    }

    /// Finds a step's agent and prompt, and decides where it works and whether it writes.
    fn resolve(&self, step: &Step, agents: &mut Agents<'_>, files: &mut BTreeMap<String, Arc<Source>>, findings: &mut Findings<'_>) -> Resolved {
        let declared = step.workspace.as_ref().map(|workspace| workspace.kind);
        match &step.verb {
            Verb::Agent { agent, prompt } => {
                let agent = agents.for_step(agent, step, findings);
                let text = text(prompt, self.catalog, findings);
                let access = agent.as_ref().map(|agent| agent.access);
                let usual = if access == Some(Access::Write) { WorkspaceKind::Worktree } else { WorkspaceKind::Shared };
                let workspace = declared.unwrap_or(usual);
                let file = text.as_ref().and_then(|(text, file)| {
                    let path = file.as_ref()?;
                    Some(files.entry(path.clone()).or_insert_with(|| Arc::new(Source { name: path.clone(), text: text.clone() })).clone())
                });
                // An agent that is not known is taken for what its workspace says, so that one error does not become two.
                let writes = access.map_or(workspace == WorkspaceKind::Worktree, |access| access == Access::Write);
                let sure = agent.is_some();
                Resolved { agent, prompt: text.map(|(text, _)| text), prompt_file: file, workspace, writes, sure }
            }
            Verb::Run { .. } => {
                let usual = if step.scope.is_some() { WorkspaceKind::Worktree } else { WorkspaceKind::Shared };
                let workspace = declared.unwrap_or(usual);
                let writes = step.scope.is_some() || workspace == WorkspaceKind::Worktree;
                Resolved { agent: None, prompt: None, prompt_file: None, workspace, writes, sure: true }
            }
            Verb::Workflow { .. } | Verb::Select(_) | Verb::Approve(_) | Verb::Loop(_) | Verb::Merge(_) => {
                Resolved { agent: None, prompt: None, prompt_file: None, workspace: WorkspaceKind::None, writes: true, sure: true }
            }
        }
    }

    /// Checks what the parts of one step have to do with each other.
    fn check_step(&self, step: &Step, resolved: &Resolved, schemas: &BTreeMap<String, Arc<Value>>, findings: &mut Findings<'_>) {
        let id = &step.id;
        if id.value == ORCHESTRATOR {
            let error = findings.error(codes::RESERVED, id.span, "`orchestrator` is the id of the orchestrator's own node");
            findings.report(error.help("give the step another id"));
        }
        let merges = matches!(step.verb, Verb::Merge(_));
        if resolved.writes && !merges && resolved.workspace != WorkspaceKind::Worktree {
            let place = step.workspace.as_ref().map_or(id.span, |workspace| workspace.span);
            let error = findings.error(codes::NEEDS_WORKTREE, place, format!("step `{}` writes, so that it needs a worktree of its own", id.value));
            findings.report(error.help("leave `workspace` out, or write `workspace: worktree`"));
        }
        if let (Some(verify), false) = (&step.verify, resolved.writes || !resolved.sure) {
            let place = verify.run.first().map_or(id.span, |command| command.span);
            let error = findings.error(codes::VERIFY_READER, place, format!("step `{}` writes nothing that could be verified", id.value));
            findings.report(error.help("a step writes if its agent has `access: write`, or its command a `scope`"));
        }
        self.check_output(step, schemas, findings);
        if let (Verb::Run { .. }, Some(budget)) = (&step.verb, &step.budget) {
            let Budget { usd, tokens, turns, .. } = &budget.value;
            if usd.is_some() || tokens.is_some() || turns.is_some() {
                let error = findings.error(
                    codes::NOT_OF_THIS_VERB,
                    budget.span,
                    format!("step `{}` is a command: it has no tokens, turns or dollars to spend", id.value),
                );
                findings.report(error.help("bound its time by `timeout`"));
            }
        }
        if !matches!(step.verb, Verb::Agent { .. }) {
            limits::check_within(step.budget.as_ref(), self.workflow.budget.as_ref(), findings);
        }
    }

    fn check_output(&self, step: &Step, schemas: &BTreeMap<String, Arc<Value>>, findings: &mut Findings<'_>) {
        let Some(output) = &step.output else { return };
        if let Some(name) = &output.schema {
            let known = self.workflow.schemas.iter().map(|(name, _)| name.as_str());
            if !schemas.contains_key(&name.value) && !known.clone().any(|schema| schema == name.value) {
                findings.unknown(&SCHEMA, name, known);
            }
            if matches!(step.verb, Verb::Run { .. }) && output.parse.is_none() {
                let error = findings.error(codes::NOT_OF_THIS_VERB, name.span, "a command has no output to hold against a schema");
                findings.report(error.help("add `parse: json`"));
            }
        }
        if let (Verb::Agent { .. }, Some(Parse::Lines | Parse::Json)) = (&step.verb, output.parse) {
            let error = findings.error(codes::NOT_OF_THIS_VERB, step.id.span, format!("`parse` says nothing for the agent of step `{}`", step.id.value));
            findings.report(error.help("demand an object by `output: { schema: NAME }`"));
        }
    }

    fn orchestrator(&self, agents: &mut Agents<'_>, findings: &mut Findings<'_>) -> Option<OrchestratorSpec> {
        let written = self.workflow.orchestrator.as_ref()?;
        let supervises: Vec<StepId> = self.workflow.steps.iter().filter(|step| step.for_each.is_some()).map(|step| StepId(step.id.value.clone())).collect();
        if supervises.is_empty() {
            let warning = findings.warning(codes::NOTHING_TO_SUPERVISE, written.span, "the orchestrator has no `for_each` to supervise");
            findings.report(warning.help("it is woken at the start and at the end, and can only sum the run up"));
        }
        let agent = agents.at_work(&written.agent, findings)?;
        let mut wake: Vec<_> = written.wake.iter().map(|wake| wake.value).collect();
        wake.sort_unstable();
        wake.dedup();
        let mut may = Vec::new();
        for power in &written.may {
            if !may.contains(&power.value) {
                may.push(power.value);
            }
        }
        let node = NodeId::step(&StepId::from(ORCHESTRATOR));
        Some(OrchestratorSpec { node, agent: agent.name.clone(), may, max_added: written.max_added, wake, supervises })
    }

    fn planned(&self, step: &Step, resolved: Resolved, schemas: &BTreeMap<String, Arc<Value>>, merging: &Merging<'_>) -> Option<PlannedStep> {
        let defaults = &self.workflow.defaults;
        let work = match &step.verb {
            Verb::Agent { prompt, .. } => Work::Agent { agent: resolved.agent?, prompt: Spanned::new(resolved.prompt?, prompt.span) },
            Verb::Run { command } => Work::Run { command: command.clone() },
            Verb::Merge(merge) => Work::Merge(self.merge(merge, merging)),
            Verb::Approve(approve) => Work::Approve((**approve).clone()),
            Verb::Workflow { .. } | Verb::Select(_) | Verb::Loop(_) => return None,
        };
        let usual = match &work {
            Work::Agent { agent, .. } => agent.limits.time,
            Work::Run { .. } => RUN_TIMEOUT,
            Work::Merge(_) | Work::Workflow(_) | Work::Select(_) | Work::Approve(_) | Work::Loop(_) => Limits::RUN.time,
        };
        let idle = if let Work::Agent { agent, .. } = &work { Some(agent.idle_timeout) } else { None };
        let budgeted = step.budget.as_ref().and_then(|budget| budget.time.as_deref().copied());
        let timeout = step.timeout.or(defaults.timeout).unwrap_or(usual).min(budgeted.unwrap_or(Duration::MAX));
        let schema = step.output.as_ref().and_then(|output| output.schema.as_ref()).and_then(|name| schemas.get(&name.value));
        Some(PlannedStep {
            id: StepId(step.id.value.clone()),
            span: step.id.span,
            work,
            condition: step.condition.clone(),
            for_each: step.for_each.clone(),
            matrix: step.matrix.clone(),
            retry_with: None,
            cache: step.cache.clone(),
            workspace: Workspace { kind: resolved.workspace, ..step.workspace.as_deref().cloned().unwrap_or_default() },
            cwd: step.cwd.clone(),
            scope: step.scope.clone(),
            writes: resolved.writes,
            verify: step.verify.clone(),
            output_schema: schema.cloned(),
            parse: step.output.as_ref().and_then(|output| output.parse),
            file: step.output.as_ref().and_then(|output| output.file.clone()),
            budget: step.budget.as_deref().cloned(),
            timeout,
            idle_timeout: step.idle_timeout.or(idle),
            retry: step.retry.clone().or_else(|| defaults.retry.clone()),
            allow_failure: step.allow_failure,
            env: self
                .workflow
                .env
                .iter()
                .chain(step.workspace.iter().flat_map(|workspace| &workspace.env))
                .chain(&step.env)
                .map(|(name, value)| (name.value.clone(), value.clone()))
                .collect(),
        })
    }

    fn merge(&self, merge: &Merge, merging: &Merging<'_>) -> MergeSpec {
        let mut from: Vec<usize> = merge.from.iter().filter_map(|name| self.index.get(name.as_str()).copied()).collect();
        from.sort_unstable();
        from.dedup();
        if from.len() > 1 {
            let position: BTreeMap<usize, usize> = merging.order.iter().enumerate().map(|(place, &step)| (step, place)).collect();
            from.sort_by_key(|step| position.get(step));
        }
        MergeSpec {
            from: from.into_iter().map(|step| StepId(self.workflow.steps[step].id.value.clone())).collect(),
            verify: merge.verify.clone(),
            flaky_retries: merge.flaky_retries,
            resolver: merging.resolver.clone(),
            resolver_attempts: merge.resolver_attempts,
            then: merge.then,
            mode: merge.mode,
            order: merge.order.clone(),
            on_red: merge.on_red,
        }
    }
}

/// What a merge needs besides what is written of it.
struct Merging<'a> {
    resolver: Option<Arc<AgentSpec>>,
    order: &'a [usize],
}

/// Finds the agent that settles a merge's conflicts; it must be able to write.
fn resolver(step: &Step, agents: &mut Agents<'_>, findings: &mut Findings<'_>) -> Option<Arc<AgentSpec>> {
    let Verb::Merge(merge) = &step.verb else { return None };
    let name = merge.resolver.as_ref()?;
    let agent = agents.at_work(name, findings)?;
    if agent.access != Access::Write {
        let error = findings.error(codes::NEEDS_WORKTREE, name.span, format!("`{}` settles conflicts, so that it must write", name.value));
        findings.report(error.help("give it `access: write`"));
    }
    let limits = agent.limits.replaced(step.budget.as_deref()).within(&agent.limits);
    Some(if limits == agent.limits { agent } else { Arc::new(AgentSpec { limits, ..(*agent).clone() }) })
}
