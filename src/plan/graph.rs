//! The graph: steps as nodes, needs as edges, found by id in constant time.
use super::{AgentSpec, Limits, ModelSpec, OrchestratorSpec, OtherNames, PlannedStep, Reads, WrittenHooks};
use crate::{
    event::{NodeId, NodeName, StepId},
    source::{Source, Spanned},
    workflow::{Budget, Input, On, OnExceed},
};
use foldhash::HashMap;
use petgraph::{
    Direction,
    graph::{DiGraph, NodeIndex},
    visit::EdgeRef as _,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashSet},
    sync::{Arc, OnceLock},
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
    /// Other names of providers, for models that templates name.
    pub other_names: Arc<OtherNames>,
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
    /// What is known of the outputs, by their names.
    pub(super) output_shapes: BTreeMap<String, OutputShape>,
    /// Names of environment variables whose values are never written anywhere.
    pub secrets: Vec<String>,
    /// Hooks that hold for the whole workflow, in order.
    pub hooks: Vec<String>,
    /// The hooks that stand in its file.
    pub written: Arc<Vec<WrittenHooks>>,
    /// What runs after a run that failed.
    pub on_failure: Option<Arc<Plan>>,
    /// What runs at the end of every run.
    pub finally: Option<Arc<Plan>>,
    pub(super) graph: Graph,
}

/// What is known of an output before the run.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct OutputShape {
    /// A schema that it fits, where it is not null.
    pub(super) schema: Value,
    /// When it may be null.
    pub(super) null: Option<Null>,
}

/// When an output may be null.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Null {
    /// Where nobody gives the input that it passes on.
    Input(String),
    /// In words.
    When(String),
}

/// What the loop and the fold ask of a step again and again.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Trait {
    /// It has an `if`.
    Conditional,
    /// Its work is done by one node per item.
    Fan,
    /// Its nodes take one of the run's places while they run.
    TakesAPlace,
    /// There are steps inside it.
    HasSteps,
}

/// What a step is of that, in one byte: a step itself is large, and where there are many none is at hand.
#[derive(Debug, Clone, Copy)]
struct Traits(u8);

impl Traits {
    fn of(step: &PlannedStep) -> Traits {
        let traits = [
            (Trait::Conditional, step.condition.is_some()),
            (Trait::Fan, step.is_fan()),
            (Trait::TakesAPlace, step.takes_a_place()),
            (Trait::HasSteps, step.inner().is_some()),
        ];
        Traits(traits.into_iter().filter(|(_, holds)| *holds).fold(0, |all, (this, _)| all | 1 << this as u8))
    }

    fn has(self, this: Trait) -> bool {
        self.0 & 1 << this as u8 != 0
    }
}

/// The steps with what they wait for; nothing outside `plan` changes it. Invariant: each stands at its place in the order.
#[derive(Debug, Default)]
pub(super) struct Graph {
    /// Each beside the heap, so that what goes from step to step along the edges stays close together.
    steps: DiGraph<Box<PlannedStep>, Edge>,
    traits: Vec<Traits>,
    index: HashMap<StepId, usize>,
    order: Vec<StepId>,
    nodes: OnceLock<Vec<NodeId>>,
    size: usize,
}

impl Graph {
    /// Freezes a graph that was checked to be acyclic; `order` is a topological order of it.
    pub(super) fn new(steps: DiGraph<Box<PlannedStep>, Edge>, order: &[NodeIndex]) -> Graph {
        let size = steps.node_weights().filter_map(|step| step.inner()).fold(steps.node_count(), |sum, plan| sum.saturating_add(plan.size()));
        let steps = in_order(steps, order);
        let order: Vec<StepId> = steps.node_weights().map(|step| step.id.clone()).collect();
        let index = order.iter().cloned().zip(0..).collect();
        let traits = steps.node_weights().map(|step| Traits::of(step)).collect();
        Graph { steps, traits, index, order, nodes: OnceLock::new(), size }
    }
}

/// Puts the nodes of a graph in this order; the edges keep theirs.
fn in_order(steps: DiGraph<Box<PlannedStep>, Edge>, order: &[NodeIndex]) -> DiGraph<Box<PlannedStep>, Edge> {
    let (nodes, edges) = steps.into_nodes_edges();
    let mut places = vec![NodeIndex::end(); nodes.len()];
    for (place, node) in order.iter().enumerate() {
        places[node.index()] = NodeIndex::new(place);
    }
    let mut placed: Vec<(NodeIndex, Box<PlannedStep>)> = places.iter().copied().zip(nodes.into_iter().map(|node| node.weight)).collect();
    placed.sort_unstable_by_key(|(place, _)| *place);
    let mut graph = DiGraph::with_capacity(placed.len(), edges.len());
    for (_, step) in placed {
        graph.add_node(step);
    }
    for edge in edges {
        graph.add_edge(places[edge.source().index()], places[edge.target().index()], edge.weight);
    }
    graph
}

impl Plan {
    /// Returns how many steps it has with those of everything inside it, a workflow counted for each call.
    pub fn size(&self) -> usize {
        self.on_failure.iter().chain(&self.finally).fold(self.graph.size, |sum, plan| sum.saturating_add(plan.size()))
    }

    /// Returns what the name of a model stands for that a template has made: an alias, or a `provider/model`.
    pub fn model(&self, name: &str) -> ModelSpec {
        let plain = || ModelSpec { choices: vec![self.other_names.own(name)], ..ModelSpec::default() };
        self.models.get(name).cloned().unwrap_or_else(plain)
    }

    /// Returns the ids of all steps, needs before what needs them.
    pub fn order(&self) -> &[StepId] {
        &self.graph.order
    }

    /// Returns all steps, needs before what needs them.
    pub fn steps(&self) -> impl Iterator<Item = &PlannedStep> {
        self.graph.steps.node_weights().map(|step| &**step)
    }

    /// Returns a step by id.
    pub fn step(&self, id: &StepId) -> Option<&PlannedStep> {
        self.at(self.place(id)?)
    }

    /// Returns the place of a step in the order.
    pub(crate) fn place(&self, id: &StepId) -> Option<usize> {
        self.graph.index.get(id).copied()
    }

    /// Returns the step at a place in the order.
    pub(crate) fn at(&self, place: usize) -> Option<&PlannedStep> {
        self.graph.steps.node_weight(NodeIndex::new(place)).map(|step| &**step)
    }

    /// Returns whether the step at a place is of this kind; nothing where there is none.
    pub(crate) fn is(&self, place: usize, this: Trait) -> Option<bool> {
        self.graph.traits.get(place).map(|traits| traits.has(this))
    }

    /// Returns the names of its steps' nodes where it is the plan of the run itself, each with its place as its seat.
    pub(crate) fn nodes(&self) -> &[NodeId] {
        let seated = |(seat, id): (usize, &StepId)| NodeId::seated(NodeName { within: Vec::new(), step: id.clone(), item: None, helper: None }, seat);
        self.graph.nodes.get_or_init(|| self.graph.order.iter().enumerate().map(seated).collect())
    }

    /// Returns what a step waits for, and how each must have ended.
    pub fn needs(&self, id: &StepId) -> impl Iterator<Item = (&PlannedStep, On)> {
        self.place(id).into_iter().flat_map(|place| self.edges(place, Direction::Incoming)).map(|(_, step, on)| (step, on))
    }

    /// Returns what waits for a step, and how it must have ended for each.
    pub fn dependents(&self, id: &StepId) -> impl Iterator<Item = (&PlannedStep, On)> {
        self.place(id).into_iter().flat_map(|place| self.dependents_at(place)).map(|(_, step, on)| (step, on))
    }

    /// Returns the places of the steps that the one at a place waits for.
    pub(crate) fn needs_at(&self, place: usize) -> impl Iterator<Item = usize> {
        self.edges(place, Direction::Incoming).map(|(need, ..)| need)
    }

    /// Returns what waits for the step at a place, with its place, and how it must have ended for each.
    pub(crate) fn dependents_at(&self, place: usize) -> impl Iterator<Item = (usize, &PlannedStep, On)> {
        self.edges(place, Direction::Outgoing)
    }

    /// Returns the steps that nothing waits for.
    pub fn sinks(&self) -> impl Iterator<Item = &PlannedStep> {
        self.steps().enumerate().filter(|(place, _)| self.dependents_at(*place).next().is_none()).map(|(_, step)| step)
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

    fn edges(&self, place: usize, direction: Direction) -> impl Iterator<Item = (usize, &PlannedStep, On)> {
        self.graph.steps.edges_directed(NodeIndex::new(place), direction).map(move |edge| {
            let other = if direction == Direction::Incoming { edge.source() } else { edge.target() };
            (other.index(), &*self.graph.steps[other], edge.weight().on)
        })
    }
}
