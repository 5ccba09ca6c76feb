//! The end of a run: its outputs, the joined commit of its sinks, its branch.
use super::{
    frames,
    steps::{self, Services, VIEW_PREFIX},
    tips::left_over,
};
use crate::{
    agent::{out_of_budget, stopping},
    event::{CommitId, Event, Failure, FailureKind, NodeId, Outcome, RunStarted, StepId, Success},
    git::{self, Content, Expected},
    journal::{Branch, NodeState, Recorder, RunState},
    merge, tasks, trace,
    workflow::OnExceed,
};
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};

/// The end of one run, with all it needs to know.
pub(super) struct Close {
    recorder: Recorder,
    run: Arc<RunStarted>,
    failure: Option<Failure>,
    output: Value,
    tips: Vec<CommitId>,
    branch: Option<Branch>,
    worktrees: Vec<(String, CommitId, CommitId)>,
    /// Whose work is a part of nothing that the run comes to.
    pub(super) left_over: Vec<NodeId>,
}

/// The node that the loop knows the closing worker by; it is never recorded.
pub(super) fn node() -> NodeId {
    NodeId::step(&StepId("(close)".to_owned()))
}

impl Close {
    pub(super) fn new(state: &RunState, tips: Vec<CommitId>, recorder: &Recorder) -> Close {
        let failure = frames::failure(state, &[]).or_else(|| stopped(state));
        // A run that failed may have come to its outputs all the same: a check at the end, say, that says no.
        let output = match state.frame(&[]).map(|frame| frames::outputs(state, &[], frame)) {
            Some((output, unmade)) if failure.is_none() || unmade.is_empty() => output,
            Some(_) | None => Value::Null,
        };
        Close {
            recorder: recorder.clone(),
            run: state.started().cloned().expect("a run is closed after it was started"),
            output,
            tips,
            branch: state.branch().cloned(),
            worktrees: captured(state),
            left_over: if failure.is_none() { left_over(state) } else { Vec::new() },
            failure,
        }
    }

    /// Says how the run ends, without its commit.
    pub(super) fn result(self) -> Outcome {
        match self.failure {
            Some(failure) => Failure { output: self.output, ..failure }.into(),
            None => Outcome::Succeeded(Success { output: self.output.into(), commit: None }),
        }
    }

    /// Makes the branch of a run that succeeded and returns how the run ended.
    ///
    /// # Errors
    /// A failure of the end itself.
    pub(super) async fn run(self, services: &Services) -> Result<Outcome, Failure> {
        if let Some(failure) = self.failure {
            return Ok(Failure { output: self.output, ..failure }.into());
        }
        let joined = join(services, self.run.base.clone(), self.tips.clone()).await?;
        let commit = (joined != self.run.base).then_some(joined);
        if let Some(commit) = &commit {
            self.make_branch(services, commit).await?;
        }
        self.clear_away(services).await;
        Ok(Outcome::Succeeded(Success { output: self.output.into(), commit }))
    }

    /// Removes the worktrees whose every file is in a commit that a ref keeps, and the views. What is not captured stays.
    async fn clear_away(&self, services: &Services) {
        let (workspaces, worktrees) = (services.workspaces.clone(), self.worktrees.clone());
        let cleared = tasks::blocking(move || {
            for error in workspaces.clear() {
                tracing::info!(target: trace::TARGET, "the rest of a worktree stays: {error}");
            }
            // Only those that are there: opening would make again what was removed by a process that died then.
            let there = workspaces.slugs().unwrap_or_default();
            for (slug, base, commit) in worktrees.into_iter().filter(|(slug, ..)| there.contains(slug)) {
                let removed = workspaces.open(&slug, &base).and_then(|worktree| workspaces.remove(&worktree, Content::Captured(&commit)));
                if let Err(error) = removed {
                    tracing::info!(target: trace::TARGET, "the worktree {slug} stays: {error}");
                }
            }
            for slug in workspaces.slugs().unwrap_or_default().iter().filter(|slug| slug.starts_with(VIEW_PREFIX)) {
                if let Err(error) = workspaces.discard(slug) {
                    tracing::info!(target: trace::TARGET, "the view {slug} stays: {error}");
                }
            }
            workspaces.fold();
        });
        if let Err(panic) = cleared.await {
            tracing::warn!(target: trace::TARGET, "clearing away failed: {panic}");
        }
    }

    async fn make_branch(&self, services: &Services, commit: &CommitId) -> Result<(), Failure> {
        let name = match &self.branch {
            Some(branch) => branch.name.clone(),
            None => git::branch_of(&self.run.run),
        };
        if self.branch.is_none() {
            let intent = Event::BranchIntended { name: name.clone(), commit: commit.clone() };
            self.recorder.record(intent).await.map_err(|_| Failure::new(FailureKind::Cancelled, "the run is over"))?;
        }
        let (repo, target, wanted) = (services.repo.clone(), name.clone(), commit.clone());
        let made = tasks::blocking(move || {
            // A branch that stands where it was intended was made by a process that died before it could say so.
            if repo.ref_at(&target)?.as_ref() == Some(&wanted) { Ok(()) } else { repo.set_ref(&target, &wanted, Expected::Absent) }
        });
        let made: Result<(), git::GitError> = made.await.map_err(Failure::from)?;
        made.map_err(|error| {
            let failure = Failure::new(FailureKind::Environment, format!("make the branch `{name}`: {error}"));
            stopping(failure.hint("the result is kept under refs/spinney; delete or rename the branch and resume"))
        })?;
        self.recorder.record(Event::BranchMade { name, commit: commit.clone() }).await.map_err(|_| Failure::new(FailureKind::Cancelled, "the run is over"))
    }
}

/// Joins the work of steps into one commit.
///
/// # Errors
/// Where they conflict.
pub(super) async fn join(services: &Services, base: CommitId, tips: Vec<CommitId>) -> Result<CommitId, Failure> {
    match tips.as_slice() {
        [] => return Ok(base),
        [tip] => return Ok(tip.clone()),
        [_, _, ..] => {}
    }
    let repo = services.repo.clone();
    let joined = tasks::blocking(move || merge::join(&repo, &base, &tips)).await.map_err(Failure::from)?;
    joined.map_err(|error| {
        let failure = Failure::new(FailureKind::Merge, format!("join the results of the last steps: {error}"));
        stopping(failure.hint("join them with a `merge` step"))
    })
}

/// Returns the worktrees of nodes whose work was captured: name, base and commit.
fn captured(state: &RunState) -> Vec<(String, CommitId, CommitId)> {
    let one = |id: &NodeId, node: &NodeState| {
        let commit = node.outcome.as_ref()?.success()?.commit.clone()?;
        let workspace = node.deeds.workspace.as_ref().filter(|workspace| !workspace.path.is_empty())?;
        Some((steps::slug(id, node.attempts), workspace.base.clone(), commit))
    };
    let captured: BTreeMap<&NodeId, _> = state.each().filter_map(|(id, node)| Some((id, one(id, node)?))).collect();
    captured.into_values().collect()
}

/// A run that was to stop at its budget did not succeed, whatever its steps made of it.
fn stopped(state: &RunState) -> Option<Failure> {
    let limit = state.limit().filter(|_| state.plan().on_exceed != OnExceed::Finish)?;
    Some(out_of_budget(limit))
}
