//! What a merge or a choice goes without: sources that were skipped are left out, unless something had failed before them, or none is left.
use super::RunState;
use crate::{
    event::{NodeId, Outcome},
    journal::seats::Seat,
    workflow::On,
};
use std::collections::BTreeSet;

impl RunState {
    /// Returns the source because of which a merge or a choice whose needs have all ended does not begin.
    pub(super) fn lacks_sources(&self, seat: Seat) -> Option<NodeId> {
        let step = self.planned(seat)?;
        let (node, from) = (self.nodes.name(seat), step.sources());
        let skipped: Vec<NodeId> = from.iter().map(|source| node.beside(source)).filter(|source| self.was_skipped(source)).collect();
        if skipped.is_empty() || skipped.len() == from.len() {
            return skipped.into_iter().next_back();
        }
        let plan = &self.frame(&node.within)?.plan;
        let whatever: BTreeSet<_> = plan.needs(&node.step).filter(|(_, on)| *on == On::Done).map(|(need, _)| &need.id).collect();
        skipped.into_iter().filter(|source| !whatever.contains(&source.step)).find(|source| self.follows_a_failure(source))
    }

    fn was_skipped(&self, node: &NodeId) -> bool {
        matches!(self.outcome(node), Some(Outcome::Skipped(_)))
    }

    /// Returns whether a step was skipped that needs the success of one that has failed, itself or through others that were skipped.
    fn follows_a_failure(&self, skipped: &NodeId) -> bool {
        let Some(plan) = self.frame(&skipped.within).map(|frame| &frame.plan) else { return false };
        let (mut seen, mut open) = (BTreeSet::new(), vec![skipped.step.clone()]);
        while let Some(step) = open.pop() {
            for (need, on) in plan.needs(&step) {
                match self.outcome(&skipped.beside(&need.id)) {
                    Some(failed @ Outcome::Failed(_)) if !need.satisfies(on, failed) => return true,
                    Some(Outcome::Skipped(_)) if seen.insert(need.id.clone()) => open.push(need.id.clone()),
                    _ => {}
                }
            }
        }
        false
    }
}
