//! Nodes that the plan has and the run may still come to: steps of rounds and calls that have not begun. Pure.
use super::{FINALLY, ON_FAILURE, Phase, RunState};
use crate::{
    event::{Frame, NodeId, NodeName, StepId},
    plan::{Plan, PlannedStep, Work},
};
use std::sync::Arc;

impl RunState {
    /// Returns what is planned of a node that has not ended, whether it is there or may still come to be.
    ///
    /// Items that are not known yet are no nodes.
    pub fn ahead(&self, node: &NodeId) -> Option<&PlannedStep> {
        let mut plan = &self.plan;
        for (depth, frame) in node.within.iter().enumerate() {
            if self.finished.is_some() || !self.may_open(plan, &node.within[..depth], frame) {
                return None;
            }
            plan = inside(plan, &frame.step)?;
        }
        let step = plan.step(&node.step)?;
        let comes = match self.nodes.get(node) {
            Some(state) => state.phase != Phase::Ended,
            None => node.item.is_none() && node.helper.is_none() && !self.frames.contains(&node.within),
        };
        comes.then_some(step)
    }

    /// Returns whether a node may still open this frame, or has it open.
    fn may_open(&self, plan: &Plan, within: &[Frame], frame: &Frame) -> bool {
        let most = match plan.step(&frame.step).map(|step| &step.work) {
            Some(Work::Loop(spec)) => spec.max,
            _ => 1,
        };
        let opener: NodeId = NodeName { within: within.to_vec(), step: frame.step.clone(), item: frame.item.clone(), helper: None }.into();
        let (attempt, round) = match self.nodes.get(&opener) {
            Some(state) if state.phase == Phase::Ended => return false,
            Some(state) if state.phase == Phase::Running => (state.attempts.max(1), state.round.max(1)),
            Some(state) => (state.attempts + 1, 1),
            // An ending is no node before it begins, and no item is one before the items are known.
            None if frame.item.is_some() => return false,
            None => (1, 1),
        };
        frame.attempt == attempt && (round..=most).contains(&frame.round)
    }
}

/// Returns the plan of the steps inside of what a step opens.
pub(super) fn inside<'p>(plan: &'p Plan, step: &StepId) -> Option<&'p Arc<Plan>> {
    match step.0.as_str() {
        ON_FAILURE => plan.on_failure.as_ref(),
        FINALLY => plan.finally.as_ref(),
        _ => plan.step(step)?.inner(),
    }
}
