//! The views of a run: copies of a commit that several agents read, which nobody may change.
use super::run::{Fault, Mend};
use crate::{
    event::{self, CommitId, Event, Record, RunId, because},
    git::{GitError, Isolation, Repository, Workspaces, is_lost},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

/// A view by where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::engine) struct View {
    pub(super) run: RunId,
    pub(super) path: PathBuf,
    pub(super) commit: CommitId,
}

impl View {
    fn open<'p>(&'p self, repo: &Repository) -> Result<Option<(Workspaces, &'p str)>, GitError> {
        let (Some(folder), Some(slug)) = (self.path.parent(), self.path.file_name().and_then(|name| name.to_str())) else { return Ok(None) };
        if !self.path.is_dir() {
            return Ok(None);
        }
        Ok(Some((Workspaces::new(repo, folder, &self.run)?, slug)))
    }

    fn changed(&self, repo: &Repository) -> Result<Vec<String>, GitError> {
        self.open(repo)?.map_or(Ok(Vec::new()), |(workspaces, slug)| workspaces.changed(slug, &self.commit))
    }

    fn fault(self, repo: &Repository) -> Option<Fault> {
        let name = self.path.display().to_string();
        // One that is gone is made again.
        if self.path.is_dir() && is_lost(&self.path, &self.commit) {
            let detail = format!("nothing is noted of it, or something else than that it is of {}: agents read it", self.commit);
            return Some(Fault::broken(name, detail).mended_by(Mend::View(self)));
        }
        match self.changed(repo) {
            Ok(changed) => {
                let first = changed.first()?;
                let detail = format!("{} of its files are not as in {}, among them `{first}`: agents read them", changed.len(), self.commit);
                Some(Fault::broken(name, detail).mended_by(Mend::View(self)))
            }
            // What it is made of is named by itself where that is missing.
            Err(error) => Some(
                Fault::broken(name, format!("whether it is as it was cannot be told: failed to {}", because(&error))).lightly().hint("`git fsck` says more"),
            ),
        }
    }

    /// Puts the files back.
    pub(super) fn put_back(&self, repo: &Repository) -> Result<(), GitError> {
        self.open(repo)?.map_or(Ok(()), |(workspaces, slug)| workspaces.isolated(Isolation::Private).renew(slug, &self.commit))
    }
}

/// Returns the views in which something was changed; with `all` also those that nobody reads now.
pub(super) fn faults(repo: &Repository, run: &RunId, records: &[Record], all: bool) -> Vec<Fault> {
    let mut views: BTreeMap<&str, &CommitId> = BTreeMap::new();
    let mut open = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::WorkspaceMade { node, base, isolation: event::Isolation::View, path, .. } => {
                views.insert(path, base);
                open.insert(node, path.as_str());
            }
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } => open.retain(|other, _| other.owner() != *node && !other.is_inside(node)),
            Event::RunFinished { .. } => open.clear(),
            _ => {}
        }
    }
    let read: BTreeSet<&str> = open.into_values().collect();
    let looked_at = views.into_iter().filter(|(path, _)| all || read.contains(path));
    let views = looked_at.map(|(path, commit)| View { run: run.clone(), path: Path::new(path).to_owned(), commit: commit.clone() });
    views.filter_map(|view| view.fault(repo)).collect()
}
