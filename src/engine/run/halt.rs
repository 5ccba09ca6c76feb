//! Ending what has begun before its work is done: on the orchestrator's word, a sibling's failure, a frame's time, or since the
//! run was called off. What is under way is cancelled and awaited, then the files that it leaves are kept, and only then is its
//! end recorded.
use super::{Engine, EngineError};
use crate::{
    engine::{powers, steps},
    event::{NodeId, Outcome},
    journal::Store,
};
use tokio::sync::oneshot;

/// The end of a node before its work is done.
pub(super) struct Halt {
    outcome: Outcome,
    pub(super) waiting: Vec<oneshot::Sender<Result<String, String>>>,
    /// Whether its files are kept, or are being kept.
    is_kept: bool,
}

impl<S: Store> Engine<'_, S> {
    /// Ends a node that has not ended, with all that is inside it, on the orchestrator's word, a sibling's failure or a
    /// frame's time. It is recorded once nothing of it is under way. Returns whether there was something to end.
    pub(super) fn halt(&mut self, node: &NodeId, outcome: Outcome) -> Result<bool, EngineError> {
        if self.journal.state().node(node).is_none_or(|state| state.outcome.is_some()) {
            return Ok(false);
        }
        self.cancel_work(|_, at| at == node || at.is_inside(node));
        self.live.halted.insert(node.clone());
        self.stopped.entry(node.clone()).or_insert_with(|| Halt { outcome, waiting: Vec::new(), is_kept: false });
        self.end_halted()?;
        Ok(true)
    }

    pub(super) fn is_halted(&self, node: &NodeId) -> bool {
        self.live.halted.iter().any(|owner| node == owner || node.is_inside(owner))
    }

    /// Records the end of what is being stopped and of which nothing is under way any more.
    pub(super) fn end_halted(&mut self) -> Result<(), EngineError> {
        if self.live.stopping || self.stopped.is_empty() {
            return Ok(());
        }
        let at_work = |owner: &NodeId| self.live.nodes().any(|node| node == owner || node.is_inside(owner));
        let still: Vec<NodeId> = self.stopped.keys().filter(|owner| !at_work(owner)).cloned().collect();
        for owner in still {
            if !self.keeps_files(&owner) {
                self.record_halt(&owner)?;
            }
        }
        Ok(())
    }

    /// Begins to keep the files of what was stopped, once, where there are some.
    fn keeps_files(&mut self, owner: &NodeId) -> bool {
        let unkept = steps::unkept(self.journal.state(), owner);
        let Some(halt) = self.stopped.get_mut(owner).filter(|halt| !halt.is_kept && !unkept.is_empty()) else { return false };
        halt.is_kept = true;
        let work = self.crew.keep(owner.clone(), unkept, &self.recorder);
        self.employ(owner.clone(), work);
        true
    }

    /// Records that a node was stopped, and only then says so: what is answered survives the death of the process.
    pub(super) fn record_halt(&mut self, node: &NodeId) -> Result<(), EngineError> {
        let Some(Halt { outcome, waiting, .. }) = self.stopped.remove(node) else { return Ok(()) };
        self.live.halted.remove(node);
        self.live.parked.retain(|parked| parked != node && !parked.is_inside(node));
        if self.journal.state().outcome(node).is_none() {
            self.node_ended(node, outcome)?;
        }
        for answer in waiting {
            let _ = answer.send(Ok(powers::stopped(node)));
        }
        Ok(())
    }
}
