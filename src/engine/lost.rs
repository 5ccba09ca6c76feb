//! Attempts that cannot go on as they stood when their run is taken up again, and what each has lost.
use super::{
    health,
    steps::{lost_worktree, slug},
};
use crate::{
    event::{NodeId, Record, RunId},
    git::{GitError, Repository, Workspaces},
    journal::RunState,
    plan::Work,
};
use std::collections::{BTreeMap, BTreeSet};

/// Returns the nodes whose attempt starts over, each with why. `reaches_out` says that what commands do beyond their worktree stays.
///
/// # Errors
/// Where git cannot tell.
pub(super) fn attempts(
    repo: &Repository,
    (run, state, records): (&RunId, &RunState, &[Record]),
    reaches_out: bool,
) -> Result<BTreeMap<NodeId, String>, GitError> {
    let mut lost: BTreeMap<NodeId, String> = BTreeMap::new();
    if reaches_out {
        let why = "its command was cut short: without walls it may have reached beyond its worktree, and what it did there may be done twice";
        lost.extend(commands(state).map(|node| (node, why.to_owned())));
    }
    for (node, commit) in health::lost_checkpoints(repo, records)? {
        lost.insert(node, format!("its files cannot be brought back to {commit}, as they were before the call that was cut short: objects of it are gone"));
    }
    for (node, path) in health::lost_worktrees(records) {
        let attempt = state.node(&node).map_or(1, |of| of.attempts);
        let why = lost_worktree(repo, (run, &slug(&node, attempt)), &path)?;
        lost.insert(node, why);
    }
    Ok(lost)
}

/// Removes what commands had worked in that were under way: they start from the beginning.
///
/// # Errors
/// Where something cannot be removed.
pub(super) fn give_up(state: &RunState, workspaces: &Workspaces) -> Result<(), GitError> {
    let given_up: BTreeSet<String> = commands(state).filter_map(|node| Some(slug(&node, state.node(&node)?.attempts))).collect();
    workspaces.slugs()?.iter().filter(|slug| given_up.contains(*slug)).try_for_each(|slug| workspaces.discard(slug))
}

/// Returns the nodes whose command was under way.
fn commands(state: &RunState) -> impl Iterator<Item = NodeId> {
    let is_command = |node: &NodeId| state.step(node).is_some_and(|step| matches!(step.work, Work::Run { .. }));
    state
        .running()
        .filter(move |node| is_command(node) && state.node(node).is_some_and(|of| of.deeds.workspace.is_some() && of.deeds.captured.is_none()))
        .cloned()
}
