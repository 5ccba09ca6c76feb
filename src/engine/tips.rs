//! The commits that flow along the edges of the graph.
use crate::{
    event::{CommitId, Frame, NodeId, Outcome},
    journal::RunState,
    plan::PlannedStep,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

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

/// Returns the nodes whose work is a part of nothing that came after it, and so stands on no branch of the run: what was to join
/// it was skipped, or has failed and that was allowed. What a merge has put aside, or a choice has passed over, is none of it.
pub fn left_over(state: &RunState) -> Vec<NodeId> {
    let mut left = Vec::new();
    let mut open = vec![Vec::new()];
    while let Some(within) = open.pop().filter(|_| state.has_commits()) {
        let Some(plan) = state.frame(&within).map(|frame| frame.plan.clone()) else { continue };
        let (mut passed, mut taken): (BTreeMap<NodeId, BTreeSet<NodeId>>, BTreeSet<NodeId>) = Default::default();
        for step in plan.steps() {
            let node = NodeId::inside(&within, &step.id);
            let of = |sources: &[&NodeId]| sources.iter().filter_map(|source| passed.get(*source)).flatten().cloned().collect::<BTreeSet<_>>();
            let arriving = of(&sources(state, &node));
            if state.outcome(&node).and_then(Outcome::success).is_some() {
                taken.extend(step.sources().iter().filter_map(|source| passed.get(&node.beside(source))).flatten().cloned());
            }
            let has_written = !own(state, &node).is_empty();
            open.extend(state.items(&node).map(|(item, _)| item).chain([node.clone()]).filter_map(|node| Some(state.inner(&node)?.0)));
            let passes = if has_written { BTreeSet::from([node.clone()]) } else { arriving.clone() };
            taken.extend(arriving.into_iter().filter(|_| has_written));
            passed.insert(node, passes);
        }
        let ends = plan.sinks().filter_map(|sink| passed.get(&NodeId::inside(&within, &sink.id))).flatten().cloned();
        taken.extend(ends);
        let wrote = |node: &NodeId| commit(state.outcome(node)).map(|_| node.clone());
        let lost = passed.keys().filter(|node| !taken.contains(*node));
        left.extend(lost.flat_map(|node| wrote(node).into_iter().chain(state.items(node).filter_map(|(item, _)| wrote(&item)))));
    }
    left
}

/// Returns the commits of a step and of its items.
fn own(state: &RunState, step: &NodeId) -> BTreeSet<CommitId> {
    commit(state.outcome(step)).into_iter().chain(state.items(step).filter_map(|(_, item)| commit(item.outcome.as_ref()))).collect()
}

/// Returns the steps whose work a node starts from. A merge starts where its sources started; their work is what it joins.
fn sources<'s>(state: &'s RunState, node: &NodeId) -> Vec<&'s NodeId> {
    let joined = state.step(node).map(PlannedStep::sources).unwrap_or_default();
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

fn commit(outcome: Option<&Outcome>) -> Option<CommitId> {
    outcome.and_then(Outcome::success).and_then(|success| success.commit.clone())
}
