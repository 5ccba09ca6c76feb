//! The commits that flow along the edges of the graph.
use crate::{
    event::{CommitId, Frame, NodeId, Outcome, StepId},
    journal::RunState,
    plan::{PlannedStep, Work},
};
use std::{collections::BTreeSet, sync::Arc};

/// What ended steps pass on, each worked out once.
#[derive(Default)]
pub(super) struct Tips {
    /// By the seat of the step.
    passed_on: Vec<Option<Arc<[CommitId]>>>,
}

impl Tips {
    /// Returns the commits that a node starts from, to be joined: those of its step's needs and of its item's; none where it
    /// starts from its frame's base.
    pub(super) fn for_node(&mut self, state: &RunState, node: &NodeId) -> Vec<CommitId> {
        if !state.has_commits() {
            return Vec::new();
        }
        let mut tips: BTreeSet<CommitId> = BTreeSet::new();
        for source in sources(state, node) {
            tips.extend(self.of(state, source).iter().cloned());
        }
        tips.extend(of_needed_items(state, node));
        tips.into_iter().collect()
    }

    /// Returns the commits that the last steps of a frame pass on.
    pub(super) fn of_frame(&mut self, state: &RunState, within: &[Frame]) -> Vec<CommitId> {
        let Some(plan) = state.frame(within).map(|frame| frame.plan.clone()) else { return Vec::new() };
        if !state.has_commits() {
            return Vec::new();
        }
        let tips: BTreeSet<CommitId> = plan.sinks().flat_map(|sink| self.of(state, &NodeId::inside(within, &sink.id)).to_vec()).collect();
        tips.into_iter().collect()
    }

    /// Returns the commits a step passes on: its own, its items', or those it was given. What a merge or a choice brought
    /// nothing of together goes no further: such a step passes on what its sources started from. Only asked of ended steps.
    fn of(&mut self, state: &RunState, step: &NodeId) -> Arc<[CommitId]> {
        // What it waits for comes first, however long the way to it is.
        let mut open = vec![step];
        while let Some(step) = open.last().copied() {
            if self.known(state, step).is_none() {
                let own = own(state, step);
                let unknown: Vec<&NodeId> = if own.is_empty() { sources(state, step) } else { Vec::new() };
                let unknown: Vec<&NodeId> = unknown.into_iter().filter(|source| self.known(state, source).is_none()).collect();
                if !unknown.is_empty() {
                    open.extend(unknown);
                    continue;
                }
                let tips = if own.is_empty() { self.for_node(state, step) } else { own.into_iter().collect() };
                self.keep(state, step, tips);
            }
            open.pop();
        }
        self.known(state, step).unwrap_or_default()
    }

    fn known(&self, state: &RunState, step: &NodeId) -> Option<Arc<[CommitId]>> {
        // A step that is not there passes on nothing.
        state.seat(step).map_or_else(|| Some(Arc::default()), |seat| self.passed_on.get(seat).cloned().flatten())
    }

    fn keep(&mut self, state: &RunState, step: &NodeId, tips: Vec<CommitId>) {
        let Some(seat) = state.seat(step) else { return };
        self.passed_on.resize(self.passed_on.len().max(seat + 1), None);
        // Most pass on nothing, and share that.
        self.passed_on[seat] = Some(if tips.is_empty() { Arc::default() } else { tips.into() });
    }
}

/// Returns the commits of a step and of its items.
fn own(state: &RunState, step: &NodeId) -> BTreeSet<CommitId> {
    commit(state.outcome(step)).into_iter().chain(state.items(step).filter_map(|(_, item)| commit(item.outcome.as_ref()))).collect()
}

/// Returns the steps whose work a node starts from. A merge starts where its sources started; their work is what it joins.
fn sources<'s>(state: &'s RunState, node: &NodeId) -> Vec<&'s NodeId> {
    let joined = state.step(node).map(joins).unwrap_or_default();
    let (around, mut from): (Vec<&NodeId>, Vec<&NodeId>) = state.needs(node).partition(|need| joined.contains(&need.step));
    from.extend(around.into_iter().flat_map(|merged| sources(state, merged)));
    from
}

/// Returns the commits of the items that an item needs. As between steps, one that changed nothing passes on what it started
/// from.
fn of_needed_items(state: &RunState, item: &NodeId) -> BTreeSet<CommitId> {
    let needs = |item: &NodeId| state.node(item).and_then(|state| state.item.as_ref()).map(|item| item.needs.clone()).unwrap_or_default();
    let (mut tips, mut seen, mut open) = (BTreeSet::new(), BTreeSet::new(), needs(item));
    while let Some(key) = open.pop() {
        let needed = item.with_item(&key);
        match commit(state.outcome(&needed)) {
            Some(commit) => drop(tips.insert(commit)),
            None => open.extend(needs(&needed).into_iter().filter(|key| !seen.contains(key))),
        }
        seen.insert(key);
    }
    tips
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
