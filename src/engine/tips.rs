//! The commits that flow along the edges of the graph.
use super::frames;
use crate::{
    event::{CommitId, Frame, NodeId, Outcome, StepId},
    journal::RunState,
    plan::{PlannedStep, Work},
};
use foldhash::HashMap;
use std::{collections::BTreeSet, sync::Arc};

/// What ended steps pass on, each worked out once.
#[derive(Default)]
pub(super) struct Tips {
    passed_on: HashMap<NodeId, Arc<[CommitId]>>,
}

impl Tips {
    /// Returns the commits that a node starts from, to be joined: those of its step's needs and of its item's; none where it
    /// starts from its frame's base.
    pub(super) fn for_node(&mut self, state: &RunState, node: &NodeId) -> Vec<CommitId> {
        let Some(plan) = frames::plan_of(state, node) else { return Vec::new() };
        let mut tips: BTreeSet<CommitId> = BTreeSet::new();
        let joined = plan.step(&node.step).map(joins).unwrap_or_default();
        for (need, _) in plan.needs(&node.step) {
            if joined.contains(&need.id) {
                // A merge starts where its sources started; their work is what it joins.
                tips.extend(self.for_node(state, &node.beside(&need.id)));
            } else {
                tips.extend(self.of(state, &node.beside(&need.id)).iter().cloned());
            }
        }
        let item = state.node(node).and_then(|state| state.item.as_ref());
        tips.extend(item.into_iter().flat_map(|item| &item.needs).filter_map(|key| commit(state.outcome(&node.with_item(key)))));
        tips.into_iter().collect()
    }

    /// Returns the commits that the last steps of a frame pass on.
    pub(super) fn of_frame(&mut self, state: &RunState, within: &[Frame]) -> Vec<CommitId> {
        let Some(plan) = state.frame(within).map(|frame| frame.plan.clone()) else { return Vec::new() };
        let tips: BTreeSet<CommitId> = plan.sinks().flat_map(|sink| self.of(state, &NodeId::inside(within, &sink.id)).to_vec()).collect();
        tips.into_iter().collect()
    }

    /// Returns the commits a step passes on: its own, its items', or those it was given. What a merge or a choice brought
    /// nothing of together goes no further: such a step passes on what its sources started from. Only asked of ended steps.
    fn of(&mut self, state: &RunState, step: &NodeId) -> Arc<[CommitId]> {
        if let Some(tips) = self.passed_on.get(step) {
            return tips.clone();
        }
        let mut tips: BTreeSet<CommitId> = commit(state.outcome(step)).into_iter().collect();
        tips.extend(state.items(step).filter_map(|(_, item)| commit(item.outcome.as_ref())));
        if tips.is_empty() {
            tips.extend(self.for_node(state, step));
        }
        let tips: Arc<[CommitId]> = tips.into_iter().collect();
        self.passed_on.insert(step.clone(), tips.clone());
        tips
    }
}

/// Returns the steps whose work a step brings together itself.
fn joins(step: &PlannedStep) -> &[StepId] {
    match &step.work {
        Work::Merge(merge) => &merge.from,
        Work::Select(select) => &select.from,
        Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Approve(_) | Work::Loop(_) => &[],
    }
}

fn commit(outcome: Option<&Outcome>) -> Option<CommitId> {
    outcome.and_then(Outcome::success).and_then(|success| success.commit.clone())
}
