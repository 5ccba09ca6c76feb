//! Attempts that cannot go on as they stood when their run is taken up again, and what each has lost.
//!
//! Of a run under which the machine went down the records are there up to the last that was synced, and maybe some more. The files of its
//! worktrees may be older than those records or newer, or torn: which of the calls that are recorded they show is not known, and what is not
//! recorded may be in them. So whoever was at work in files of his own begins his attempt anew, in a new worktree; the old one is left for people
//! to look at. What commands worked in and what is only read is made again.
use super::{
    health,
    steps::{VIEW_PREFIX, lost_worktree, slug},
};
use crate::{
    clock::Timestamp,
    event::{Event, Failure, FailureKind, Isolation, NodeId, Record, RunId},
    git::{GitError, Repository, Workspaces},
    journal::{NodeState, RunState},
    plan::Work,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Attempts at one node that are begun anew though they were lost; one more means that what it does ends whoever carries it out.
const LOST_MAX: u32 = 5;

/// Why attempts may not go on though all that they need seems to be there.
#[derive(Debug, Clone, Copy)]
pub(super) struct Why {
    /// What commands do beyond their worktree stays.
    pub(super) reaches_out: bool,
    /// The machine went down under the run.
    pub(super) torn: bool,
}

/// Returns what becomes of attempts that have lost something: each starts over, recorded as a retry that does not count, or has failed where that
/// has happened too often. Beside each record stands what people are told.
///
/// # Errors
/// Where git cannot tell.
pub(super) fn attempts(
    repo: &Repository,
    (run, state, records): (&RunId, &RunState, &[Record]),
    (why, now): (Why, Timestamp),
) -> Result<Vec<(String, Event)>, GitError> {
    let mut lost: BTreeMap<NodeId, String> = BTreeMap::new();
    if why.reaches_out {
        let why = "its command was cut short: without walls it may have reached beyond its worktree, and what it did there may be done twice";
        lost.extend(commands(state).map(|node| (node, why.to_owned())));
    }
    for (node, commit) in health::lost_checkpoints(repo, records)? {
        lost.insert(node, format!("its files cannot be brought back to {commit}, as they were before the call that was cut short: objects of it are gone"));
    }
    for (node, path) in health::lost_worktrees(repo, run, records)? {
        let owner = node.owner();
        let attempt = state.node(&owner).map_or(1, |of| of.attempts);
        let why = lost_worktree(repo, (run, &slug(&node, attempt)), &path)?;
        match node.helper {
            None => drop(lost.insert(owner, why)),
            // An orchestrator is told, and goes on.
            Some(_) if state.is_orchestrator(&owner) => {}
            Some(_) => drop(lost.entry(owner).or_insert_with(|| format!("its sub-agent `{node}` was at work: {why}"))),
        }
    }
    for (node, path) in if why.torn { at_work(state) } else { BTreeMap::new() } {
        let why = format!("the machine went down or records are lost, and what of it is in its worktree {} is not known", path.display());
        lost.entry(node).or_insert(why);
    }
    Ok(lost.into_iter().map(|(node, why)| begun_anew(state, node, why, now)).collect())
}

fn begun_anew(state: &RunState, node: NodeId, why: String, now: Timestamp) -> (String, Event) {
    let before = state.node(&node).map_or(0, |of| of.lost);
    if before < LOST_MAX {
        let failure = Failure::new(FailureKind::Isolation, why);
        let said = format!("`{node}` starts its attempt over: {}", failure.message);
        return (said, Event::RetryScheduled { node, due: now, failure, handed_over: false, lost: true });
    }
    let message = format!("{why}; that is the end of {} attempts by now, so that it is not begun again", before + 1);
    let said = format!("`{node}` has failed: {message}");
    let failure = Failure::new(FailureKind::Isolation, message).hint("see what it does to the process that carries it out; `spinney retry` begins it again");
    (said, Event::StepFinished { node, outcome: failure.into() })
}

/// Removes what commands had worked in that were under way: they start from the beginning.
///
/// # Errors
/// Where something cannot be removed.
pub(super) fn give_up(state: &RunState, workspaces: &Workspaces) -> Result<(), GitError> {
    let given_up: BTreeSet<String> = commands(state).filter_map(|node| Some(slug(&node, state.node(&node)?.attempts))).collect();
    workspaces.slugs()?.iter().filter(|slug| given_up.contains(*slug)).try_for_each(|slug| workspaces.discard(slug))
}

/// Removes what is made again when it is needed, so that nobody goes on from what is torn: views, and what commands worked in. What sub-agents
/// of an orchestrator did, which is told that it is gone, and whatever the records that are left do not tell of, is moved aside where
/// anything was done in it.
///
/// # Errors
/// Where something cannot be removed or moved.
pub(super) fn give_up_torn(state: &RunState, workspaces: &Workspaces) -> Result<(), GitError> {
    let briefed = state
        .each()
        .filter(|(node, session)| session.conversation.brief().is_some() && (session.deeds.captured.is_some() || !state.is_orchestrator(&node.owner())));
    let present: BTreeSet<&str> = briefed.filter_map(|(_, session)| own_files(session)?.file_name()?.to_str()).collect();
    let attempts: BTreeMap<String, u32> = state.each().filter(|(node, _)| node.helper.is_none()).map(|(node, of)| (node.slug(), of.attempts)).collect();
    // What an attempt has left that failed is for people to look at.
    let is_past = |slug: &str| {
        let (whose, attempt) = slug.rsplit_once('.')?;
        let owner = whose.split_once("..").map_or(whose, |(owner, _)| owner);
        Some(attempt.parse::<u32>().ok()? < *attempts.get(owner)?)
    };
    let is_kept = |slug: &str| !slug.starts_with(VIEW_PREFIX) && (present.contains(slug) || is_past(slug) == Some(true));
    let commands: BTreeSet<String> = commands(state).filter_map(|node| Some(slug(&node, state.node(&node)?.attempts))).collect();
    let is_made_again = |slug: &str| slug.starts_with(VIEW_PREFIX) || commands.contains(slug);
    workspaces
        .slugs()?
        .iter()
        .filter(|slug| !is_kept(slug))
        .try_for_each(|slug| if is_made_again(slug) { workspaces.discard(slug) } else { workspaces.leave(slug) })
}

/// Returns the nodes that were at work in files of their own, each with a worktree.
fn at_work(state: &RunState) -> BTreeMap<NodeId, PathBuf> {
    let place = |node: &NodeId| {
        let mut sessions = state.node(node).into_iter().chain(state.helpers(node).map(|(_, helper)| helper));
        sessions.find_map(|session| own_files(session).filter(|_| session.conversation.brief().is_some() && session.deeds.captured.is_none()))
    };
    state.running().filter_map(|node| Some((node.clone(), place(node)?.to_owned()))).collect()
}

/// Returns the worktree that a session has for itself.
fn own_files(session: &NodeState) -> Option<&Path> {
    let workspace = session.deeds.workspace.as_ref()?;
    (!workspace.path.is_empty() && workspace.isolation != Isolation::View).then(|| Path::new(&workspace.path))
}

/// Returns the nodes whose command was under way.
fn commands(state: &RunState) -> impl Iterator<Item = NodeId> {
    let is_command = |node: &NodeId| state.step(node).is_some_and(|step| matches!(step.work, Work::Run { .. }));
    state
        .running()
        .filter(move |node| is_command(node) && state.node(node).is_some_and(|of| of.deeds.workspace.is_some() && of.deeds.captured.is_none()))
        .cloned()
}
