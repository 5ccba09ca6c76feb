//! The graph: steps as nodes, needs as edges, found by id in constant time.
use super::{AgentSpec, Limits, ModelSpec, OrchestratorSpec, PlannedStep, Reads};
use crate::{
    event::StepId,
    source::{Source, Spanned},
    workflow::{Budget, Input, On, OnExceed},
};
use foldhash::HashMap;
use petgraph::{
    Direction,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef as _,
};
use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
};

/// What an edge asks of the step it comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Edge {
    /// How it must have ended.
    pub on: On,
}

/// A compiled workflow: frozen, shared, the same for the whole run.
#[derive(Debug)]
pub struct Plan {
    /// The file.
    pub source: Arc<Source>,
    /// The workflow's name.
    pub name: String,
    /// For people.
    pub description: String,
    /// The inputs by name, in the order of the file.
    pub inputs: Vec<(String, Input)>,
    /// All agents by name, those of files included.
    pub agents: Arc<BTreeMap<String, Arc<AgentSpec>>>,
    /// The files in which its prompts and rubrics stand, by the path that names them, with their text.
    pub files: Arc<BTreeMap<String, Arc<Source>>>,
    /// What each alias of a model stands for.
    pub models: Arc<BTreeMap<String, ModelSpec>>,
    /// The agent that watches over the run.
    pub orchestrator: Option<OrchestratorSpec>,
    /// Limits of the run tree.
    pub limits: Limits,
    /// The budget as it is written: what holds for a call of it.
    pub budget: Option<Budget>,
    /// What happens at those limits.
    pub on_exceed: OnExceed,
    /// Agents and commands at work at the same time.
    pub max_parallel: usize,
    /// Name to template.
    pub outputs: Vec<(String, Spanned<String>)>,
    /// What the outputs read.
    pub reads: Reads,
    /// Names of environment variables whose values are never written anywhere.
    pub secrets: Vec<String>,
    /// Hooks that hold for the whole workflow, in order.
    pub hooks: Vec<String>,
    /// What runs after a run that failed.
    pub on_failure: Option<Arc<Plan>>,
    /// What runs at the end of every run.
    pub finally: Option<Arc<Plan>>,
    pub(super) graph: Graph,
}

/// The steps with what they wait for; nothing outside `plan` changes it.
#[derive(Debug, Default)]
pub(super) struct Graph {
    steps: DiGraph<PlannedStep, Edge>,
    index: HashMap<StepId, NodeIndex>,
    order: Vec<StepId>,
    size: usize,
}

impl Graph {
    /// Freezes a graph that was checked to be acyclic; `order` is a topological order of it.
    pub(super) fn new(steps: DiGraph<PlannedStep, Edge>, order: &[NodeIndex]) -> Graph {
        let index = steps.node_indices().map(|node| (steps[node].id.clone(), node)).collect();
        let order = order.iter().map(|&node| steps[node].id.clone()).collect();
        let size = steps.node_weights().filter_map(PlannedStep::inner).fold(steps.node_count(), |sum, plan| sum.saturating_add(plan.size()));
        Graph { steps, index, order, size }
    }
}

impl Plan {
    /// Returns how many steps it has with those of everything inside it, a workflow counted for each call.
    pub fn size(&self) -> usize {
        self.on_failure.iter().chain(&self.finally).fold(self.graph.size, |sum, plan| sum.saturating_add(plan.size()))
    }

    /// Returns the ids of all steps, needs before what needs them.
    pub fn order(&self) -> &[StepId] {
        &self.graph.order
    }

    /// Returns all steps, needs before what needs them.
    pub fn steps(&self) -> impl Iterator<Item = &PlannedStep> {
        self.graph.order.iter().filter_map(|id| self.step(id))
    }

    /// Returns a step by id.
    pub fn step(&self, id: &StepId) -> Option<&PlannedStep> {
        self.graph.index.get(id).map(|&node| &self.graph.steps[node])
    }

    /// Returns what a step waits for, and how each must have ended.
    pub fn needs(&self, id: &StepId) -> impl Iterator<Item = (&PlannedStep, On)> {
        self.edges(id, Direction::Incoming)
    }

    /// Returns what waits for a step, and how it must have ended for each.
    pub fn dependents(&self, id: &StepId) -> impl Iterator<Item = (&PlannedStep, On)> {
        self.edges(id, Direction::Outgoing)
    }

    /// Returns the steps that nothing waits for.
    pub fn sinks(&self) -> impl Iterator<Item = &PlannedStep> {
        self.graph.order.iter().filter(|id| self.dependents(id).next().is_none()).filter_map(|id| self.step(id))
    }

    /// Returns this plan and every plan inside it once: the bodies of loops, called workflows, what runs at the end.
    pub fn all(&self) -> Vec<&Plan> {
        let mut seen = HashSet::new();
        let mut open = vec![self];
        let mut all = Vec::new();
        while let Some(plan) = open.pop() {
            if seen.insert(std::ptr::from_ref(plan)) {
                all.push(plan);
                let ends = plan.finally.iter().chain(&plan.on_failure).map(Arc::as_ref);
                let inner: Vec<&Plan> = plan.steps().filter_map(|step| step.inner().map(Arc::as_ref)).collect();
                open.extend(ends.chain(inner.into_iter().rev()));
            }
        }
        all
    }

    /// Returns whether an edge was satisfied by how `from` ended.
    pub fn satisfied(&self, from: &StepId, on: On, outcome: &crate::event::Outcome) -> bool {
        super::node::satisfied(on, outcome, self.step(from).is_some_and(|step| step.allow_failure))
    }

    fn edges(&self, id: &StepId, direction: Direction) -> impl Iterator<Item = (&PlannedStep, On)> {
        let node = self.graph.index.get(id).copied();
        node.into_iter().flat_map(move |node| {
            self.graph.steps.edges_directed(node, direction).map(move |edge| {
                let other = if direction == Direction::Incoming { edge.source() } else { edge.target() };
                (&self.graph.steps[other], edge.weight().on)
            })
        })
    }
}
