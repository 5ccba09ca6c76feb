//! The files of attempts that end without a result: a commit under the run's refs keeps them, and the worktrees stay.
use super::{Services, Task, slug};
use crate::{
    agent::{Trouble, blocking},
    event::{CommitId, Event, Failure, FailureKind, NodeId, RunId},
    git::{Expected, GitError, ref_of},
    journal::{NodeState, Recorder, RunState},
    plan::{PlannedStep, Work},
    trace,
};

/// An attempt of an agent, or a command, that writes, and ends without a result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Unkept {
    pub(super) node: NodeId,
    /// Its owner's attempt.
    pub(super) attempt: u32,
    /// What its worktree was made from.
    pub(super) base: CommitId,
    /// The commit that is recorded to keep it already.
    pub(super) known: Option<CommitId>,
    /// The commit of its work, where that was made already: the ref of a result is the next attempt's.
    pub(super) captured: Option<CommitId>,
}

/// Names the ref that keeps the files of an attempt: the checkpoint of its worktree.
pub(crate) fn checkpoint_ref(run: &RunId, node: &NodeId, attempt: u32) -> String {
    ref_of(run, &slug(node, attempt), "checkpoint")
}

impl Unkept {
    /// Keeps the files, or the commit that they are in, as a checkpoint and records that; nothing where there are none, or none has
    /// changed. Says whether it did.
    pub(super) async fn keep(self, services: &Services, recorder: &Recorder) -> Result<bool, Trouble> {
        let Unkept { node, attempt, base, known, captured } = self;
        let (workspaces, repo, slug) = (services.workspaces.clone(), services.repo.clone(), slug(&node, attempt));
        let kept = blocking(FailureKind::Environment, move || {
            if let Some(commit) = captured {
                repo.set_ref(&workspaces.ref_name(&slug, "checkpoint"), &commit, Expected::Any)?;
                return Ok(Some(commit));
            }
            // Opening it would make one where there is none.
            if !workspaces.slugs()?.contains(&slug) {
                return Ok(None);
            }
            let commit = workspaces.checkpoint(&workspaces.open(&slug, &base)?)?;
            let is_changed = repo.tree_of(&commit)? != repo.tree_of(&base)?;
            Ok::<_, GitError>(is_changed.then_some(commit))
        });
        let Some(commit) = kept.await? else { return Ok(false) };
        if known.as_ref() != Some(&commit) {
            recorder.record(Event::CheckpointKept { node, commit }).await?;
        }
        Ok(true)
    }
}

/// Returns the attempts at a node and inside of it that have begun, with those of their sub-agents.
pub(in crate::engine) fn unkept(state: &RunState, owner: &NodeId) -> Vec<Unkept> {
    let writes = |node: &NodeId| state.step(node).is_some_and(works_in_files);
    let begun = state.running().filter(|node| (*node == owner || node.is_inside(owner)) && writes(node));
    let with_helpers = begun.filter_map(|node| {
        let of = state.node(node)?;
        let helpers = state.helpers(node).filter_map(|(name, helper)| one(node.helper(name), of.attempts, helper));
        Some(one(node.clone(), of.attempts, of).into_iter().chain(helpers))
    });
    with_helpers.flatten().collect()
}

/// Returns whether a step makes its work of the files of a worktree.
fn works_in_files(step: &PlannedStep) -> bool {
    step.writes && matches!(step.work, Work::Agent { .. } | Work::Run { .. })
}

fn one(node: NodeId, attempt: u32, state: &NodeState) -> Option<Unkept> {
    // What was delivered is kept for as long as its run.
    let workspace = state.deeds.workspace.as_ref().filter(|workspace| state.deeds.delivered.is_none() && !workspace.path.is_empty())?;
    let captured = state.deeds.captured.as_ref().map(|(commit, _)| commit.clone());
    Some(Unkept { node, attempt, base: workspace.base.clone(), known: state.deeds.checkpoint.clone(), captured })
}

/// Keeps what a failed attempt has in its worktree. What fails keeps no attempt from its end, but for what stops the process.
pub(super) async fn keep_what_there_is(task: &Task) -> Result<(), Failure> {
    let is_writer = task.plan.step(&task.node.step).is_some_and(works_in_files);
    let Some(base) = task.own.get().filter(|_| is_writer) else { return Ok(()) };
    let unkept = Unkept {
        node: task.node.clone(),
        attempt: task.state.attempts,
        base: base.clone(),
        known: task.state.deeds.checkpoint.clone(),
        captured: task.captured.get().cloned(),
    };
    match unkept.keep(&task.services, &task.recorder).await {
        Err(Trouble::Failed(failure)) if failure.kind == FailureKind::NoRoom => Err(failure),
        Err(Trouble::Failed(failure)) => {
            tracing::warn!(target: trace::TARGET, "the files of {} could not be kept as a checkpoint: {}", task.node, failure.message);
            Ok(())
        }
        Ok(_) | Err(Trouble::Parked | Trouble::Interrupted) => Ok(()),
    }
}

/// Keeps the files of attempts whose end is to be recorded. What fails keeps no run from its end, but a full disk does.
pub(in crate::engine) async fn keep_all(services: &Services, recorder: &Recorder, all: Vec<Unkept>) -> super::End {
    for unkept in all {
        let node = unkept.node.clone();
        match unkept.keep(services, recorder).await {
            Ok(_) => {}
            Err(Trouble::Failed(failure)) if failure.kind == FailureKind::NoRoom => return super::End::Finished(failure.into()),
            Err(Trouble::Failed(failure)) => {
                tracing::warn!(target: trace::TARGET, "the files of {node} could not be kept as a checkpoint: {}", failure.message);
            }
            Err(Trouble::Parked | Trouble::Interrupted) => return super::End::Interrupted,
        }
    }
    super::End::Kept
}
