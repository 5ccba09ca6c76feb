//! The files of agents at work, as far as the records tell what they must be: those of the last checkpoint, or of the commit that the
//! worktree was made of, until something ran there that may have changed any of them.
//!
//! Only what is gone or emptied is called a fault: a person may have changed a file while nobody was at work.
use super::run::{Fault, Mend, asked_by};
use crate::{
    event::{self, CommitId, Delivery, Event, NodeId, Record, Recovery, RunId},
    git::{GitError, Isolation, Repository, Workspaces, is_lost},
    tools::agent::NAME,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// Files that must be in a worktree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct Files {
    run: RunId,
    path: PathBuf,
    base: CommitId,
    /// The commit that has them.
    of: CommitId,
    /// Those that its agent has written since.
    spare: BTreeSet<String>,
}

impl Files {
    fn open(&self, repo: &Repository) -> Result<(Workspaces, String), GitError> {
        let folder = self.path.parent().unwrap_or(Path::new("."));
        let slug = self.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        Ok((Workspaces::new(repo, folder, &self.run)?.isolated(Isolation::Private), slug))
    }

    fn missed(&self, repo: &Repository) -> Result<Vec<String>, GitError> {
        let (workspaces, slug) = self.open(repo)?;
        workspaces.missed(&slug, &self.base, (&self.of, &self.spare))
    }

    pub(super) fn put_back(&self, repo: &Repository) -> Result<(), GitError> {
        let (workspaces, slug) = self.open(repo)?;
        workspaces.put_back(&slug, &self.base, (&self.of, &self.spare))
    }
}

/// What is known of a worktree.
struct Known<'a> {
    path: &'a str,
    base: &'a CommitId,
    of: &'a CommitId,
    spare: BTreeSet<String>,
    /// Whether nothing has run there since that may have changed any file.
    is_sure: bool,
    is_begun: bool,
    /// What is brought in, until the call that asked for it has ended.
    coming: Option<&'a CommitId>,
}

/// Returns the worktrees of agents at work from which files were taken.
pub(super) fn faults(repo: &Repository, run: &RunId, records: &[Record]) -> Vec<Fault> {
    let known = known(records).into_iter().filter(|(_, known)| known.is_sure && known.is_begun && !is_lost(Path::new(known.path), known.base));
    known
        .filter_map(|(node, Known { path, base, of, spare, .. })| {
            let files = Files { run: run.clone(), path: PathBuf::from(path), base: base.clone(), of: of.clone(), spare };
            // What git cannot tell of is named by itself.
            let missed = files.missed(repo).unwrap_or_default();
            let first = missed.first()?;
            let detail = format!("{} files that `{node}` had are gone or empty, among them `{first}`, and it has not done that", missed.len());
            Some(Fault::broken(path, detail).mended_by(Mend::Files(files)))
        })
        .collect()
}

fn known(records: &[Record]) -> BTreeMap<&NodeId, Known<'_>> {
    let mut all: BTreeMap<&NodeId, Known<'_>> = BTreeMap::new();
    for record in records {
        match &record.event {
            // What a hook does to files is in no record.
            Event::RunStarted(started) if started.pins.keys().any(|pin| pin.starts_with("hook")) => return BTreeMap::new(),
            Event::RunFinished { .. } => all.clear(),
            Event::WorkspaceMade { node, path, base, isolation, .. } if !path.is_empty() && *isolation != event::Isolation::View => {
                let known = Known { path, base, of: base, spare: BTreeSet::new(), is_sure: true, is_begun: false, coming: None };
                all.insert(node, known);
            }
            Event::WorkDelivered { node, delivery: Delivery::Joined { after, .. } } => {
                if let Some(known) = asked_by(node).and_then(|(who, ..)| all.get_mut(&who)) {
                    (known.coming, known.is_sure) = (Some(after), false);
                }
            }
            Event::WorkCaptured { node, .. } => drop(all.remove(node)),
            Event::StepStarted { node, .. } | Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } => {
                all.retain(|other, _| other.owner() != *node);
            }
            event => {
                if let Some(known) = event.node().and_then(|node| all.get_mut(node)) {
                    known.goes_on(event);
                }
            }
        }
    }
    all
}

impl<'a> Known<'a> {
    fn goes_on(&mut self, event: &'a Event) {
        match event {
            Event::AgentBriefed { .. } => self.is_begun = true,
            Event::ToolStarted { recovery, .. } => match recovery {
                Recovery::Again => {}
                Recovery::Restore(files) => self.spare.extend(files.iter().map(|file| file.path.clone())),
                // Its files are as they were then, and the sub-agent has others.
                Recovery::Delegated(commit) => self.of = commit,
                Recovery::Rollback(_) | Recovery::Unknown => self.is_sure = false,
            },
            Event::ToolFinished { tool, .. } if tool == NAME => {
                if let Some(after) = self.coming.take() {
                    (self.of, self.is_sure) = (after, true);
                }
            }
            // Its checks may run, and may write.
            Event::ModelReplied { reply, .. } if reply.calls().count() == 0 => self.is_sure = false,
            Event::VerifyRan { .. } => self.is_sure = false,
            _ => {}
        }
    }
}
