//! The end of a run as it stands, where it cannot be carried out to any other: its workflow is gone or wrong, a secret or a
//! commit is missing.
//!
//! Nothing is run, so that no plan is needed. What the records say is open ends as in a run that is called off, by the records
//! that would have told of it there; what belongs to the end, `finally`, is left out. What attempts have in their files is kept as
//! a commit as it is there, too; only where a secret of the run is not known does it stay where it is, for no commit may hold one.
use super::{frames::called_off, inbox::Inbox, reset, secrets, steps};
use crate::{
    clock::Clock,
    event::{CommitId, Event, Isolation, NodeId, Outcome, Record, SkipCause, because},
    git::{self, Expected, GitError, Repository, Workspaces},
    journal::{FINALLY, Lease, LeaseError, ON_FAILURE, RunDir, SqliteStore, Store as _, StoreError},
    sandbox::{self, SandboxError},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    path::Path,
};

/// Why a run could not be ended as it stands. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum GiveUpError {
    /// Somebody has it.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// Its journal.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A process that it left could not be ended.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
}

/// Where the files of a run's attempts are, and where they are kept.
#[derive(Debug, Clone, Copy)]
pub struct Files<'a> {
    /// Its repository.
    pub repo: &'a Repository,
    /// The user's cache folder for this program.
    pub cache: &'a Path,
    /// The user's environment, for the secrets that no commit may hold.
    pub environment: &'a BTreeMap<String, String>,
}

/// Ends a run that nobody carries out, as called off by somebody, without its `finally`. One that is over stays as it is. Returns
/// what of its files could not be kept, with why.
///
/// # Errors
/// Where a living process has it, or its journal cannot be read or written.
pub fn give_up(dir: &RunDir, files: Files<'_>, by: &str, clock: &Clock) -> Result<Vec<String>, GiveUpError> {
    let _lease = Lease::take(dir.path(), std::process::id(), clock.now())?;
    sandbox::reap(&dir.processes())?;
    let (mut store, records) = SqliteStore::open(dir.path())?;
    let last = records.last().map(|last| last.at).unwrap_or_default();
    let mut unkept = Vec::new();
    let mut events = ending(&records, by);
    if !events.is_empty() {
        let (kept, not) = keep(files, &records);
        let ends = events.iter().position(|event| !matches!(event, Event::RunCancelled { .. })).unwrap_or_default();
        events.splice(ends..ends, kept);
        unkept = not;
    }
    let at = clock.steady(last).now();
    let records: Vec<Record> = (records.len() as u64..).zip(events).map(|(seq, event)| Record { seq, at, event }).collect();
    store.append(&records, true)?;
    Inbox::of(dir.path()).take_cancel_back();
    Ok(unkept)
}

/// Keeps the files of attempts that are open by commits of the run; returns the records of that, and what could not be kept.
fn keep(Files { repo, cache, environment }: Files<'_>, records: &[Record]) -> (Vec<Event>, Vec<String>) {
    let open = at_work(records);
    let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event).filter(|_| !open.is_empty()) else { return Default::default() };
    let pins: BTreeMap<String, String> = started.pins.clone().into_iter().filter(|(name, _)| secrets::is_pin(name)).collect();
    let known = secrets::secrets_here(started, environment);
    if known.values().count() < pins.len() || !secrets::changed(&pins, &known).is_empty() {
        return (
            Vec::new(),
            vec!["the files of its attempts stay where they are: with the run's secrets in the environment they are kept as commits".to_owned()],
        );
    }
    let folder = cache.join("worktrees").join(repo.id()).join(&started.run.0);
    let one = |node: &NodeId, Open { attempt, base, captured }: &Open<'_>| -> Result<Option<CommitId>, GitError> {
        let workspaces = Workspaces::new(repo, &folder, &started.run)?.isolated(git::Isolation::Private).without(&known);
        let slug = steps::slug(node, *attempt);
        if let Some(commit) = captured {
            repo.set_ref(&workspaces.ref_name(&slug, "checkpoint"), commit, Expected::Any)?;
            return Ok(Some((*commit).clone()));
        }
        // Opening it would make one where there is none.
        if !workspaces.slugs()?.contains(&slug) {
            return Ok(None);
        }
        let commit = workspaces.checkpoint(&workspaces.open(&slug, base)?)?;
        Ok((repo.tree_of(&commit)? != repo.tree_of(base)?).then_some(commit))
    };
    let (mut kept, mut unkept) = (Vec::new(), Vec::new());
    for (node, attempt) in open {
        match one(node, &attempt) {
            Ok(Some(commit)) => kept.push(Event::CheckpointKept { node: node.clone(), commit }),
            Ok(None) => {}
            Err(error) => unkept.push(format!("the files of `{node}` stay where they are: failed to {}", because(&error))),
        }
    }
    (kept, unkept)
}

/// An attempt in files of its own that has not ended.
struct Open<'a> {
    attempt: u32,
    base: &'a CommitId,
    /// The commit of its work, where that was made.
    captured: Option<&'a CommitId>,
}

fn at_work(records: &[Record]) -> BTreeMap<&NodeId, Open<'_>> {
    let mut attempts: BTreeMap<&NodeId, u32> = BTreeMap::new();
    let mut open: BTreeMap<&NodeId, Open<'_>> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::StepStarted { node, attempt } => {
                attempts.insert(node, *attempt);
                open.retain(|other, _| other.owner() != *node);
            }
            Event::WorkspaceMade { node, base, path, isolation, .. } if !path.is_empty() && *isolation != Isolation::View => {
                let attempt = attempts.get(&node.owner()).copied().unwrap_or(1);
                open.insert(node, Open { attempt, base, captured: None });
            }
            Event::WorkCaptured { node, commit, .. } => {
                if let Some(open) = open.get_mut(node) {
                    open.captured = Some(commit);
                }
            }
            // What was delivered is kept for as long as its run.
            Event::WorkDelivered { node, .. } => drop(open.remove(node)),
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } => open.retain(|other, _| other.owner() != *node),
            _ => {}
        }
    }
    open
}

/// Returns the records that end a run, after these.
fn ending(records: &[Record], by: &str) -> Vec<Event> {
    let (mut begun, mut in_endings, mut cancelled) = (HashSet::new(), BTreeSet::new(), None);
    for record in records {
        match &record.event {
            Event::RunFinished { .. } => return Vec::new(),
            Event::RunCancelled { by } => cancelled = Some(by.as_str()),
            Event::StepStarted { node, .. } if is_of_ending(node) => drop(in_endings.insert(node)),
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } if is_of_ending(node) => drop(in_endings.remove(node)),
            Event::StepStarted { node, .. } | Event::FrameOpened { node, .. } | Event::RetryScheduled { node, .. } => {
                begun.insert(node.clone());
                begun.insert(node.whole());
            }
            _ => {}
        }
    }
    let failure = called_off(cancelled.unwrap_or(by));
    let ends = |node: NodeId, begun: bool| {
        let outcome = if begun { failure.clone().into() } else { Outcome::Skipped(SkipCause::RunEnding) };
        Event::StepFinished { node, outcome }
    };
    let mut events: Vec<Event> = Vec::new();
    events.extend(cancelled.is_none().then(|| Event::RunCancelled { by: by.to_owned() }));
    // Items come before their steps, what has an outer step ends with that.
    events.extend(in_endings.into_iter().rev().map(|node| ends(node.clone(), true)));
    events.extend(reset::unended(records).into_iter().map(|node| (begun.contains(&node), node)).map(|(begun, node)| ends(node, begun)));
    events.push(Event::RunFinished { outcome: failure.into() });
    events
}

/// Returns whether a node is a step, or an item, of `on_failure` or `finally` itself.
fn is_of_ending(node: &NodeId) -> bool {
    matches!(node.within.as_slice(), [frame] if matches!(frame.step.0.as_str(), ON_FAILURE | FINALLY))
}
