//! Who hears a word that is meant for a name: an agent that works or will work, or all that work inside of what is named. Pure.
use crate::{
    event::{Frame, NodeId, StepId},
    journal::{FINALLY, ON_FAILURE, RunState},
    plan::{Plan, PlannedStep, Work},
};
use std::collections::BTreeSet;

/// Why nobody hears a word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unheard {
    /// There is nothing of this name.
    #[error("there is no such step")]
    Unknown,
    /// It is over.
    #[error("it has ended")]
    Ended,
    /// A round beyond the last, or one that is over.
    #[error("the run does not come to that")]
    Unreached,
    /// A session of an agent's own, which hears only that agent.
    #[error("it is a helper session of `{0}`")]
    Helper(NodeId),
    /// Its items are not known yet, or none of its agents is at work.
    #[error("no agent is at work inside of it now")]
    Nobody,
    /// It does its work without an agent that could be told.
    #[error("no agent works there: it is {0}")]
    NoAgent(&'static str),
}

/// Returns who hears what is said to `name`: the node of that name, or the agents at work inside of it.
///
/// # Errors
/// Why nobody does.
pub fn listeners(state: &RunState, name: &str) -> Result<Vec<NodeId>, Unheard> {
    let node = find(state, name).ok_or(Unheard::Unknown)?;
    match hears(state, &node) {
        Ok(()) => Ok(vec![node]),
        Err(Unheard::Nobody) => {
            let inside = |other: &&NodeId| other.is_inside(&node) || (node.item.is_none() && other.item.is_some() && other.whole() == node);
            let at_work: BTreeSet<NodeId> = state.running().filter(inside).filter(|other| hears(state, other).is_ok()).cloned().collect();
            if at_work.is_empty() { Err(Unheard::Nobody) } else { Ok(at_work.into_iter().collect()) }
        }
        Err(why) => Err(why),
    }
}

/// Says whether a node's own agent hears a word.
///
/// # Errors
/// Why it does not.
pub(super) fn hears(state: &RunState, node: &NodeId) -> Result<(), Unheard> {
    if state.finished().is_some() {
        return Err(Unheard::Ended);
    }
    if node.helper.is_some() {
        return Err(Unheard::Helper(node.owner()));
    }
    if state.is_orchestrator(node) {
        return Ok(());
    }
    let Some(step) = state.ahead(node) else {
        return Err(if state.node(node).is_some() { Unheard::Ended } else { Unheard::Unreached });
    };
    match &step.work {
        Work::Agent { .. } | Work::Loop(_) | Work::Workflow(_) if is_fan(step, node) => Err(Unheard::Nobody),
        Work::Agent { .. } => Ok(()),
        Work::Loop(_) | Work::Workflow(_) => Err(Unheard::Nobody),
        Work::Run { .. } => Err(Unheard::NoAgent("a command")),
        Work::Merge(_) => Err(Unheard::NoAgent("a merge")),
        Work::Select(_) => Err(Unheard::NoAgent("a choice")),
        Work::Approve(_) => Err(Unheard::NoAgent("a question to a person")),
    }
}

/// Returns the nodes whose agents can be told something, those at work first, `most` of them at most.
pub fn who_can_be_told(state: &RunState, most: usize) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = state.nodes().into_keys().filter(|node| hears(state, node).is_ok()).cloned().collect();
    nodes.sort_by_key(|node| !state.is_running(node));
    ahead(state, &[], state.plan(), &mut nodes, most);
    nodes.truncate(most);
    nodes
}

/// Adds the agents of what has not begun, each in the first round that it comes in.
fn ahead(state: &RunState, within: &[Frame], plan: &Plan, nodes: &mut Vec<NodeId>, most: usize) {
    for step in plan.steps() {
        if nodes.len() >= most {
            return;
        }
        let node = NodeId::inside(within, &step.id);
        if state.node(&node).is_none() && hears(state, &node).is_ok() {
            nodes.push(node);
        } else if let Some(inner) = step.inner().filter(|_| !step.is_fan()) {
            let (attempt, round) = state.node(&node).map_or((1, 1), |state| (state.attempts.max(1), state.round.max(1)));
            ahead(state, &node.frame(attempt, round), inner, nodes, most);
        }
    }
    for (id, inner) in endings(plan) {
        ahead(state, &NodeId::inside(within, &id).frame(1, 1), inner, nodes, most);
    }
}

/// Returns the steps that run at the end of a workflow.
fn endings(plan: &Plan) -> impl Iterator<Item = (StepId, &Plan)> {
    [(ON_FAILURE, &plan.on_failure), (FINALLY, &plan.finally)].into_iter().filter_map(|(id, inner)| Some((StepId::from(id), &**inner.as_ref()?)))
}

fn is_fan(step: &PlannedStep, node: &NodeId) -> bool {
    step.is_fan() && node.item.is_none()
}

/// Finds the node that is written like this, whether it is there or the plan has it.
fn find(state: &RunState, name: &str) -> Option<NodeId> {
    state.nodes().into_keys().find(|node| node.to_string() == name).cloned().or_else(|| read(state, &[], state.plan(), name))
}

/// Reads a node's name along the plan: an item's key may hold anything, so that only the plan tells where it ends.
fn read(state: &RunState, within: &[Frame], plan: &Plan, name: &str) -> Option<NodeId> {
    let endings = endings(plan).map(|(id, inner)| (id, Some(inner)));
    let watcher = plan.orchestrator.iter().map(|spec| (spec.node.step.clone(), None));
    let steps = plan.steps().map(|step| (step.id.clone(), step.inner().map(|inner| &**inner)));
    for (id, inner) in steps.chain(endings).chain(watcher) {
        let Some(rest) = name.strip_prefix(&id.0) else { continue };
        let node = NodeId::inside(within, &id);
        if rest.is_empty() {
            return Some(node);
        }
        let Some(inner) = inner else { continue };
        let items = state.items(&node).filter_map(|(item, _)| Some((rest.strip_prefix('/')?.strip_prefix(item.item.as_deref()?)?, item)));
        for (rest, opener) in std::iter::once((rest, node.clone())).chain(items) {
            let found = round(rest).and_then(|(attempt, round, rest)| read(state, &opener.frame(attempt, round), inner, rest));
            if found.is_some() {
                return found;
            }
        }
    }
    None
}

/// Reads `#round.` or `@attempt#round.`, and returns what stands behind it.
fn round(text: &str) -> Option<(u32, u32, &str)> {
    let (before, rest) = text.split_once('#')?;
    let attempt = if before.is_empty() { 1 } else { before.strip_prefix('@')?.parse().ok()? };
    let (round, rest) = rest.split_once('.')?;
    Some((attempt, round.parse().ok()?, rest))
}
