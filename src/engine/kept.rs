//! The refs by which a run keeps commits, as its records tell: who looks after them and who makes them again asks here.
use super::steps::{checkpoint_ref, slug};
use crate::{
    event::{CommitId, Event, MergeProgress, NodeId, Outcome, RunId},
    git::ref_of,
};
use std::collections::{BTreeMap, BTreeSet};

/// What a ref keeps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) commit: CommitId,
    /// Whose it is.
    pub(super) node: NodeId,
    pub(super) what: What,
    /// Whether the ref must stand there: who moves it has ended.
    pub(super) is_settled: bool,
}

/// As what a commit is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// The work of a node.
    Result,
    /// The work of a sub-agent, which has been delivered.
    Helped,
    /// What a merge has joined.
    Joined,
    /// Work that a merge has put aside.
    Ejected,
    /// The files of an attempt without a result.
    Files,
}

impl What {
    /// Returns whether a run goes on from it: without it nothing can.
    pub(super) fn is_needed(self) -> bool {
        match self {
            What::Result => true,
            What::Helped | What::Joined | What::Ejected | What::Files => false,
        }
    }

    /// Says what it is of a node.
    pub(super) fn of(self, node: &NodeId) -> String {
        match self {
            What::Result | What::Helped => format!("the result of `{node}`"),
            What::Joined => format!("what `{node}` has joined"),
            What::Ejected => format!("the work of `{node}`, which was put aside"),
            What::Files => format!("the files of an attempt of `{node}`"),
        }
    }
}

/// Returns the refs that keep what the events of a run tell of, by name.
pub(super) fn refs<'r>(run: &RunId, events: impl IntoIterator<Item = &'r Event>) -> BTreeMap<String, Kept> {
    let mut refs = Refs {
        run,
        attempts: BTreeMap::new(),
        done: BTreeMap::new(),
        chains: BTreeMap::new(),
        choosing: BTreeSet::new(),
        moving: BTreeMap::new(),
        kept: BTreeMap::new(),
    };
    for event in events {
        refs.note(event);
    }
    refs.kept
}

struct Refs<'r> {
    run: &'r RunId,
    attempts: BTreeMap<&'r NodeId, u32>,
    /// The commits of nodes that have succeeded.
    done: BTreeMap<&'r NodeId, &'r CommitId>,
    /// What merges have joined, one after the other.
    chains: BTreeMap<&'r NodeId, Vec<(&'r NodeId, &'r CommitId)>>,
    choosing: BTreeSet<&'r NodeId>,
    /// What may still be moved, by the node that does.
    moving: BTreeMap<NodeId, Vec<String>>,
    kept: BTreeMap<String, Kept>,
}

impl<'r> Refs<'r> {
    fn note(&mut self, event: &'r Event) {
        match event {
            Event::StepStarted { node, attempt } => {
                self.attempts.insert(node, *attempt);
                self.chains.remove(node);
            }
            Event::WorkCaptured { node, commit, .. } => {
                // A sub-agent's work is that of one attempt.
                let (slug, what) = if node.helper.is_some() { (slug(node, self.attempt(node)), What::Helped) } else { (node.slug(), What::Result) };
                self.keep(node.owner(), ref_of(self.run, &slug, "result"), (node, commit), what);
                // What it had in its files on the way is in it, or was given up for it.
                self.kept.remove(&checkpoint_ref(self.run, node, self.attempt(node)));
            }
            Event::CheckpointKept { node, commit } => self.keep(node.owner(), checkpoint_ref(self.run, node, self.attempt(node)), (node, commit), What::Files),
            Event::MergeAdvanced { node, progress } => self.merged(node, progress),
            Event::SelectAdvanced { node, .. } => drop(self.choosing.insert(node)),
            Event::RetryScheduled { node, .. } => self.settle(node),
            Event::StepFinished { node, outcome } => {
                self.ended(node, outcome);
                self.settle(node);
            }
            // What was stopped inside of another node has no end of its own.
            Event::RunFinished { .. } => self.kept.values_mut().for_each(|kept| kept.is_settled = true),
            _ => {}
        }
    }

    fn merged(&mut self, node: &'r NodeId, progress: &'r MergeProgress) {
        let chain = self.chains.entry(node).or_default();
        let head = match progress {
            MergeProgress::Joined { from, commit, .. } => {
                chain.push((from, commit));
                Some(commit.clone())
            }
            MergeProgress::Ejected { from, .. } => {
                let taken = chain.pop_if(|(last, _)| *last == from);
                let head = chain.last().map(|(_, commit)| (*commit).clone()).filter(|_| taken.is_some());
                if let Some(commit) = self.done.get(from) {
                    self.keep(node.clone(), ref_of(self.run, &from.slug(), "ejected"), (from, commit), What::Ejected);
                }
                head
            }
            MergeProgress::Conflicted { .. } | MergeProgress::Verified { .. } => None,
        };
        if let Some(head) = head {
            self.keep(node.clone(), ref_of(self.run, &node.slug(), "joined"), (node, &head), What::Joined);
        }
    }

    /// What a merge has made, or a select has chosen, is its result.
    fn ended(&mut self, node: &'r NodeId, outcome: &'r Outcome) {
        let Some(commit) = outcome.success().and_then(|success| success.commit.as_ref()) else { return };
        self.done.insert(node, commit);
        if self.chains.contains_key(node) || self.choosing.contains(node) {
            self.keep(node.clone(), ref_of(self.run, &node.slug(), "result"), (node, commit), What::Result);
        }
    }

    fn attempt(&self, node: &NodeId) -> u32 {
        self.attempts.get(&node.owner()).copied().unwrap_or(1)
    }

    fn keep(&mut self, by: NodeId, name: String, (node, commit): (&NodeId, &CommitId), what: What) {
        self.moving.entry(by).or_default().push(name.clone());
        self.kept.insert(name, Kept { commit: commit.clone(), node: node.clone(), what, is_settled: false });
    }

    fn settle(&mut self, ended: &NodeId) {
        for name in self.moving.remove(ended).into_iter().flatten() {
            self.kept.entry(name).and_modify(|kept| kept.is_settled = true);
        }
    }
}
