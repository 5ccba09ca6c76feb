//! Runs that follow from an earlier one: what was wished, what would hold, and the beginning of the new run.
//!
//! The earlier run stays as it was. The new one has a journal of its own, which begins with what holds of the other's, and
//! is carried out from there like any run that is taken up: there is no second recovery. What the records name besides is
//! made again from them: blobs, the refs that keep commits, the files of artefacts.
use super::{
    Models, Prepared, Project, RunOptions, SetupError, kept,
    prepare::{self, Beginning},
    reset::{self, Anew, Held, Reason},
    steps::Services,
};
use crate::{
    clock::Timestamp,
    event::{CommitId, Definitions, Event, NodeId, Origin, Outcome, Record, RunId, RunStarted, StepId, Wish},
    git::{Expected, Head, RefMove, Repository, Unsound, start_of},
    journal::{self, FINALLY, Lease, ON_FAILURE, RunDir, RunState, Spent, write_whole},
    plan::{ORCHESTRATOR, Plan},
    source::nearest,
};
use serde_json::{Map, Value};
use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

/// What is wished of a run that has been.
#[derive(Debug, Clone)]
pub struct Again {
    /// What is to be done again, where something is named: what did not work out, or everything from a step on.
    pub from: Whence,
    /// Inputs that have another value now.
    pub inputs: Map<String, Value>,
}

/// From where a run is done again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Whence {
    /// What has changed, and what never ended.
    Changes,
    /// What did not work out.
    Failures,
    /// A step, or an item as `step/key`.
    Named(String),
}

/// Why nothing can follow from a run as it was wished. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum ResetError {
    /// No step of that name.
    #[error("begin again from `{name}`: the workflow has no such step")]
    UnknownStep {
        /// What was asked for.
        name: String,
        /// What there is.
        hint: String,
    },
    /// The step stands inside of another one.
    #[error("begin again from `{name}`: it stands inside of `{outer}`, which is done again as a whole")]
    Inside {
        /// What was asked for.
        name: String,
        /// The step around it.
        outer: StepId,
    },
    /// It is done in every run, at its end.
    #[error("begin again from `{name}`: it belongs to the end of a run, which every run does anew")]
    Ending {
        /// What was asked for.
        name: String,
    },
    /// No item of that key.
    #[error("begin again from `{name}`: the step `{step}` had no such item")]
    UnknownItem {
        /// What was asked for.
        name: String,
        /// The step.
        step: StepId,
        /// What there was.
        hint: String,
    },
    /// A commit that the new run would go on from is gone.
    #[error("do `{run}` again: what it would go on from is not in the repository any more, or damaged: {}", .lost.join("; "))]
    Gone {
        /// The run.
        run: RunId,
        /// What is gone, each with what it was.
        lost: Vec<String>,
    },
    /// Everything holds.
    #[error("do `{run}` again: it succeeded, and nothing in it has changed since")]
    Nothing {
        /// The run.
        run: RunId,
    },
}

impl ResetError {
    /// Returns what to do, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            ResetError::UnknownStep { hint, .. } | ResetError::UnknownItem { hint, .. } => Some(hint.clone()),
            ResetError::Inside { outer, .. } => Some(format!("name `{outer}`")),
            ResetError::Ending { .. } => Some("`spinney rerun RUN` alone does again what has changed, and the end".to_owned()),
            ResetError::Gone { .. } => Some("`git fetch` from a clone that has it brings it back; otherwise begin a new run".to_owned()),
            ResetError::Nothing { run } => Some(format!("`spinney rerun {run} --from STEP` does a step again, and what follows from it")),
        }
    }
}

/// What would hold of a run, and what would be done again; nothing has begun.
pub struct Reset {
    run: RunId,
    started: RunStarted,
    inputs: Map<String, Value>,
    wish: Wish,
    held: Held,
    over: Option<Outcome>,
    moved: Moved,
}

/// Where the branch stands by now that a run began on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moved {
    /// There is no such branch, or none was checked out.
    Unknown,
    /// So many commits further than where the run began.
    Further(u64),
    /// It does not have the commit any more.
    Away,
}

impl Reset {
    /// Returns the commit at which the new run begins, as the other did.
    pub fn base(&self) -> &CommitId {
        &self.started.base
    }

    /// Returns the branch on which the other run began, in full.
    pub fn head(&self) -> Option<&str> {
        self.started.head.as_deref()
    }

    /// Returns where that branch stands by now.
    pub fn moved(&self) -> Moved {
        self.moved
    }

    /// Returns the steps that failed and hold all the same.
    pub fn holds_failed(&self) -> Vec<&StepId> {
        let mut failed = Vec::new();
        for (_, event) in &self.held.events {
            if let Event::StepFinished { node, outcome: Outcome::Failed(_) } = event
                && node.within.is_empty()
                && node.item.is_none()
                && self.held.holds.contains(&node.step)
            {
                failed.push(&node.step);
            }
        }
        failed
    }

    /// Returns the steps and items that are done again, each with why.
    pub fn again(&self) -> &BTreeMap<NodeId, Reason> {
        &self.held.again
    }

    /// Returns the steps of which everything holds, in the order of the graph.
    pub fn holds(&self) -> &[StepId] {
        &self.held.holds
    }

    /// Returns the run that the new one would follow from.
    pub fn run(&self) -> &RunId {
        &self.run
    }

    /// Returns the inputs of the new run.
    pub fn inputs(&self) -> &Map<String, Value> {
        &self.inputs
    }

    /// Returns what the work that holds has used: it counts as used in the new run.
    pub fn spent(&self) -> Spent {
        let mut talk = journal::Conversation::default();
        let replies = self.held.events.iter().filter(|(_, event)| matches!(event, Event::ModelReplied { .. } | Event::AttemptsLost { .. }));
        replies.for_each(|(_, event)| talk.apply(event));
        *talk.spent()
    }
}

impl Project {
    /// Says what would hold of a run and what would be done again, changing nothing. Works while the run is carried out.
    ///
    /// # Errors
    /// Where there is no such run, the wish names what cannot be begun from, or the inputs do not fit.
    pub fn reset(&self, run: &RunId, plan: &Plan, again: &Again) -> Result<Reset, SetupError> {
        let dir = RunDir::open(&RunDir::state(self.checkout()), run)?;
        let records = journal::read(dir.path())?;
        let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event) else { return Err(SetupError::Empty(run.clone())) };
        let known = started.inputs.iter().filter(|(name, _)| plan.inputs.iter().any(|(input, _)| input == *name));
        let given = known.chain(&again.inputs).map(|(name, value)| (name.clone(), value.clone())).collect();
        let inputs = plan.check_inputs(&given).map_err(SetupError::Inputs)?;
        let wish = wish(plan, &records, &again.from)?;
        let pins = self.pins(plan);
        let steps = self.definitions(plan, &pins);
        let files = started.pins.iter().filter(|(name, _)| !super::secrets::is_pin(name)).map(|(name, hash)| (name.clone(), hash.clone())).collect();
        // A run that did not write down what its steps were has told of all files that made them.
        let before = if started.steps.is_empty() && prepare::changed(&files, &pins).is_empty() { &steps } else { &started.steps };
        let held = reset::holds(&records, Anew { plan, steps: &steps, before, inputs: &inputs, wish: &wish });
        let over = records.last().and_then(|record| if let Event::RunFinished { outcome } = &record.event { Some(outcome.clone()) } else { None });
        self.check_held(run, started, &held)?;
        let moved = self.moved(started)?;
        Ok(Reset { run: run.clone(), started: (**started).clone(), inputs, wish, held, over, moved })
    }

    /// Sees that all commits are there that a new run goes on from.
    fn check_held(&self, run: &RunId, started: &RunStarted, held: &Held) -> Result<(), SetupError> {
        let events = || held.events.iter().map(|(_, event)| event);
        let kept = kept::refs(run, events()).into_values().map(|kept| kept.commit);
        let commits: BTreeSet<CommitId> = kept.chain(events().filter_map(result_of).cloned()).collect();
        let named = |id: String| {
            let what = if id == started.base.0 { "the commit that everything starts from" } else { "a part of what holds" };
            format!("{id}, {what}")
        };
        let Unsound { missing, damaged } = self.repo.unsound_objects(&commits, &started.base, false)?;
        let lost: Vec<String> = missing.into_iter().chain(damaged).map(named).collect();
        if lost.is_empty() { Ok(()) } else { Err(ResetError::Gone { run: run.clone(), lost }.into()) }
    }

    fn moved(&self, started: &RunStarted) -> Result<Moved, SetupError> {
        let Some(head) = &started.head else { return Ok(Moved::Unknown) };
        let Some(tip) = self.repo.ref_at(head)? else { return Ok(Moved::Unknown) };
        Ok(if self.repo.is_ancestor(&started.base, &tip)? { Moved::Further(self.repo.count_between(&started.base, &tip)?) } else { Moved::Away })
    }

    /// Begins a run that follows from another one.
    ///
    /// # Errors
    /// Where a living process has the other run, everything in it holds, or the new one cannot be made.
    pub fn begin_again(&self, reset: Reset, plan: Arc<Plan>, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let Reset { run, started, inputs, wish, held, over, moved: _ } = reset;
        if over.is_none() {
            let dir = RunDir::open(&RunDir::state(self.checkout()), &run)?;
            Lease::owner(dir.path())?.map_or(Ok(()), Err)?;
        }
        if held.again.is_empty() && matches!(over, Some(Outcome::Succeeded(_))) {
            return Err(ResetError::Nothing { run }.into());
        }
        let origin = Origin { run, wish, held: held.events.len() as u64 };
        let head = Head { commit: started.base, branch: started.head };
        self.begin(plan, Beginning { inputs, head, origin: Some(origin), held: held.events }, models, options)
    }
}

/// Returns the commit that a node has ended with.
fn result_of(event: &Event) -> Option<&CommitId> {
    if let Event::StepFinished { outcome: Outcome::Succeeded(success), .. } = event { success.commit.as_ref() } else { None }
}

/// Finds what a wish names.
fn wish(plan: &Plan, records: &[Record], from: &Whence) -> Result<Wish, ResetError> {
    let name = match from {
        Whence::Changes => return Ok(Wish::Changed),
        Whence::Failures => return Ok(Wish::Failed),
        Whence::Named(name) => name,
    };
    let (step, key) = name.split_once('/').map_or((name.as_str(), None), |(step, key)| (step, Some(key)));
    let id = StepId::from(step);
    if plan.step(&id).is_none() {
        return Err(no_step(plan, name, step));
    }
    let Some(key) = key else { return Ok(Wish::From(NodeId::step(&id))) };
    let node = NodeId::step(&id);
    let added = records.iter().filter_map(|record| if let Event::ItemsAdded { step, items, .. } = &record.event { Some((step, items)) } else { None });
    let keys: Vec<&str> = added.filter(|(step, _)| **step == node).flat_map(|(_, items)| items).map(|item| item.key.as_str()).collect();
    if keys.contains(&key) {
        return Ok(Wish::From(node.with_item(key)));
    }
    let hint = match nearest(key, keys.iter().copied()) {
        Some(near) => format!("did you mean `{step}/{near}`?"),
        None if keys.is_empty() => format!("it had no items at all; name `{step}`"),
        None => format!("there were {}", keys.iter().take(20).copied().collect::<Vec<_>>().join(", ")),
    };
    Err(ResetError::UnknownItem { name: name.clone(), step: id, hint })
}

fn no_step(plan: &Plan, name: &str, step: &str) -> ResetError {
    // `loop#2.step` names its outermost step first.
    let first = step.split(['#', '@']).next().unwrap_or(step);
    let has = |plan: &Plan| plan.all().iter().any(|plan| plan.step(&StepId::from(step)).is_some());
    if [ON_FAILURE, FINALLY].contains(&first) || plan.on_failure.iter().chain(&plan.finally).any(|ending| has(ending)) {
        return ResetError::Ending { name: name.to_owned() };
    }
    let around = plan.steps().find(|outer| outer.id.0 == first || outer.inner().is_some_and(|inner| has(inner)));
    if let Some(outer) = around {
        return ResetError::Inside { name: name.to_owned(), outer: outer.id.clone() };
    }
    let steps: Vec<&str> = plan.order().iter().map(|id| id.0.as_str()).collect();
    let hint = match nearest(step, steps.iter().copied()) {
        _ if step == ORCHESTRATOR => "the orchestrator begins anew where something that it watches over is done again".to_owned(),
        Some(near) => format!("did you mean `{near}`?"),
        None => format!("there are {}", steps.iter().take(20).copied().collect::<Vec<_>>().join(", ")),
    };
    ResetError::UnknownStep { name: name.to_owned(), hint }
}

/// Returns what the steps are from now on, where the records know and it is something else than before.
pub(super) fn changed_steps(records: &[Record], started: &RunStarted, now: Definitions) -> Definitions {
    let resumed =
        |record: &Record| if let Event::RunResumed { steps, .. } = &record.event { Some(steps.clone()).filter(|steps| !steps.is_empty()) } else { None };
    let last = records.iter().rev().find_map(resumed).unwrap_or_else(|| started.steps.clone());
    if last.is_empty() || last == now { Definitions::new() } else { now }
}

/// Makes the refs of a run by which it keeps what holds of another one, and where it starts: before its first record, so that from then on
/// nothing that it goes on from hangs on the other run.
pub(super) fn keep_held(repo: &Repository, run: &RunId, base: &CommitId, held: &[(Timestamp, Event)]) -> Result<(), SetupError> {
    let kept = kept::refs(run, held.iter().map(|(_, event)| event)).into_iter().map(|(name, kept)| (name, kept.commit));
    let moves = kept.chain([(start_of(run), base.clone())]).map(|(name, commit)| RefMove { name, to: Some(commit), expected: Expected::Any });
    Ok(repo.move_refs(&moves.collect::<Vec<_>>())?)
}

/// Takes away what was made of a run that has not begun.
pub(super) fn take_back(repo: &Repository, dir: &RunDir, run: &RunId) {
    let moves = repo
        .refs(&format!("refs/spinney/{run}"))
        .map(|refs| refs.into_iter().map(|(name, commit)| RefMove { name, to: None, expected: Expected::At(commit) }).collect::<Vec<_>>());
    // What stays is told of by `doctor`, and goes with `clean`.
    let _ = moves.and_then(|moves| repo.move_refs(&moves));
    dir.discard();
}

/// Makes again what the records name that hold of another run: the refs by which commits are kept, and the files of artefacts.
/// What is there already stays as it is, so that a process may die at any point of it.
pub(super) fn restore(services: &Services, state: &RunState, records: &[Record]) -> Result<(), SetupError> {
    let Some(origin) = state.started().and_then(|started| started.origin.as_ref()) else { return Ok(()) };
    let held = held_of(origin, records);
    let there: BTreeSet<String> = services.repo.refs(&format!("refs/spinney/{}", services.workspaces.run()))?.into_iter().map(|(name, _)| name).collect();
    let missing = kept::refs(services.workspaces.run(), held).into_iter().filter(|(name, _)| !there.contains(name));
    let moves: Vec<RefMove> = missing.map(|(name, kept)| RefMove { name, to: Some(kept.commit), expected: Expected::Absent }).collect();
    if !moves.is_empty() {
        services.repo.move_refs(&moves)?;
    }
    restore_artefacts(services, state, records)
}

fn held_of<'r>(origin: &Origin, records: &'r [Record]) -> impl Iterator<Item = &'r Event> {
    let held = usize::try_from(origin.held).unwrap_or(usize::MAX);
    records.get(1..).unwrap_or_default().iter().take(held).map(|record| &record.event)
}

/// Makes the files of artefacts again that hold of another run.
pub(super) fn restore_artefacts(services: &Services, state: &RunState, records: &[Record]) -> Result<(), SetupError> {
    let Some(origin) = state.started().and_then(|started| started.origin.as_ref()) else { return Ok(()) };
    let kept = held_of(origin, records).filter_map(|event| if let Event::ArtefactKept { name, content, .. } = event { Some((name, content)) } else { None });
    let files: BTreeMap<&String, &crate::event::BlobId> = kept.collect();
    services.artefacts.recall(records);
    let folder = &services.artefacts.folder;
    for (name, content) in files.into_iter().filter(|(name, _)| !folder.join(name).exists()) {
        let content = services.blobs.get(content)?;
        let path = folder.join(name);
        write_whole(&path, &content).map_err(|source| SetupError::File { path: path.display().to_string(), source })?;
    }
    Ok(())
}
