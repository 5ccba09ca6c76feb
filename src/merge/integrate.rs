//! The merge itself: join one source after the other, then verify.
use super::{Conflict, Integration, MergeError, Report, Resolution, Source, accept, order};
use crate::{
    event::{CommitId, Failure, MergeProgress, NodeId},
    git::{CommitMeta, Expected, GitError, Merged, Repository, TreeId, ref_of},
    tasks,
    workflow::{ConflictThen, MergeMode, RedThen},
};
use std::collections::BTreeSet;

/// Joins all sources and verifies the result. Nothing the user sees is moved: the joined commit is kept by
/// `refs/spinney/RUN/SLUG/joined`, sources put aside by `refs/spinney/RUN/SLUG-OF-SOURCE/ejected`.
///
/// # Errors
/// `Red` where the joined commit did not pass, `Unsettled` where a conflict must be settled and was not.
pub async fn integrate(job: &Integration<'_>) -> Result<Report, MergeError> {
    let mut chain = Chain::resume(job).await?;
    let (onto, sources, order) = (job.onto.clone(), job.sources.to_vec(), job.options.order.clone());
    let places = chain.git(move |repository| order::ordered(repository, &onto, &sources, &order)).await?;
    chain.prove().await?;
    for source in places.into_iter().filter_map(|at| job.sources.get(at)) {
        if !chain.settled.contains(&source.node) {
            chain.add(source).await?;
            chain.prove().await?;
        }
    }
    chain.verify().await
}

/// The chain of joined commits as it grows.
struct Chain<'a> {
    job: &'a Integration<'a>,
    head: CommitId,
    report: Report,
    /// Sources that are joined or put aside.
    settled: BTreeSet<NodeId>,
    /// Sources whose conflict was told.
    conflicted: BTreeSet<NodeId>,
    /// What the checks said of the head, once they did.
    verdict: Option<(bool, String)>,
    /// The source that was joined last, and what the chain was before it, until it is known that it may stay.
    last: Option<(NodeId, Before)>,
}

/// A chain before a source was joined.
struct Before {
    head: CommitId,
    verdict: Option<(bool, String)>,
    conflicts: usize,
}

/// How a source's conflict ended.
enum Settling {
    By { tree: TreeId, by: String },
    No { reason: String },
}

impl<'a> Chain<'a> {
    /// Takes up what was told before a crash, as far as its commits are there: a machine that lost power may have lost the
    /// last of them, and what follows is done again with the same result.
    async fn resume(job: &'a Integration<'a>) -> Result<Chain<'a>, MergeError> {
        let mut chain =
            Chain { job, head: job.onto.clone(), report: Report::default(), settled: BTreeSet::new(), conflicted: BTreeSet::new(), verdict: None, last: None };
        for done in job.done {
            match done {
                MergeProgress::Joined { from, commit, settled } => {
                    let wanted = commit.clone();
                    if !chain.git(move |repository| repository.has_commit(&wanted)).await? {
                        break;
                    }
                    chain.joined(from, commit, settled);
                }
                MergeProgress::Ejected { from, reason } => {
                    chain.ejected(from, reason);
                    chain.keep_ejected(from).await?;
                }
                MergeProgress::Conflicted { from, .. } => drop(chain.conflicted.insert(from.clone())),
                MergeProgress::Verified { commit, passed, tail } if *commit == chain.head => chain.verdict = Some((*passed, tail.clone())),
                MergeProgress::Verified { .. } => {}
            }
        }
        if !chain.report.landed.is_empty() {
            chain.keep_head().await?;
        }
        Ok(chain)
    }

    async fn add(&mut self, source: &Source) -> Result<(), MergeError> {
        if let Some(missing) = self.missing(source).await? {
            return self.eject(source, format!("it builds on {missing}, which was put aside")).await;
        }
        let (ours, theirs) = (self.head.clone(), source.clone());
        let merged = self.git(move |repository| repository.merge_commits(Some(&theirs.base), &ours, &theirs.commit)).await?;
        let (tree, files, paths, messages) = match merged {
            Merged::Clean { tree } => return self.land(source, tree, Vec::new()).await,
            Merged::Conflicted { tree, files, paths, messages } => (tree, files, paths, messages),
        };
        let names: Vec<String> = files.iter().map(|file| file.path.clone()).collect();
        if self.conflicted.insert(source.node.clone()) {
            self.record(MergeProgress::Conflicted { from: source.node.clone(), paths: names.clone() }).await?;
        }
        let meta = self.meta(source, &format!("Conflict of {} with what was joined before it", source.node));
        let commit = self.commit(tree, meta).await?;
        let conflict = Conflict { source: source.clone(), ours: self.head.clone(), commit, files, paths, messages, attempt: 1, rejected: None };
        match self.settle(conflict).await? {
            Settling::By { tree, by } => self.land(source, tree, names.into_iter().map(|path| (path, by.clone())).collect()).await,
            Settling::No { reason } => match self.job.options.then {
                ConflictThen::Eject => self.eject(source, format!("it conflicts in {}: {reason}", names.join(", "))).await,
                ConflictThen::Fail => Err(MergeError::Unsettled { from: source.node.clone(), paths: names, reason }),
            },
        }
    }

    /// Returns a source put aside whose work this one builds on: without it, what fits as text would still be half a change.
    async fn missing(&self, source: &Source) -> Result<Option<NodeId>, MergeError> {
        for (node, _) in &self.report.ejected {
            let Some(gone) = self.job.sources.iter().find(|other| other.node == *node) else { continue };
            let (older, newer) = (gone.commit.clone(), source.base.clone());
            if self.git(move |repository| repository.is_ancestor(&older, &newer)).await? {
                return Ok(Some(node.clone()));
            }
        }
        Ok(None)
    }

    async fn settle(&self, mut conflict: Conflict) -> Result<Settling, MergeError> {
        let Some(resolver) = self.job.resolver else {
            return Ok(Settling::No { reason: "nobody was asked to settle it".to_owned() });
        };
        let mut reason = "no attempts are allowed".to_owned();
        for attempt in 1..=self.job.options.attempts {
            conflict.attempt = attempt;
            match resolver.resolve(&conflict).await {
                Resolution::GaveUp { reason: why } => return Ok(Settling::No { reason: why }),
                Resolution::Undone { reason: why } => {
                    reason.clone_from(&why);
                    conflict.rejected = Some(why);
                }
                Resolution::Settled { tree, by, beyond } => {
                    let (asked, given) = (conflict.clone(), tree.clone());
                    match self.git(move |repository| accept::rejection(repository, &asked, &given, &beyond)).await? {
                        None => return Ok(Settling::By { tree, by }),
                        Some(why) => {
                            reason = format!("the resolution of {by} was not accepted: {why}");
                            conflict.rejected = Some(why);
                        }
                    }
                }
            }
        }
        Ok(Settling::No { reason })
    }

    /// Puts a source's tree on the chain; one that changes nothing has landed without a commit.
    async fn land(&mut self, source: &Source, tree: TreeId, settled: Vec<(String, String)>) -> Result<(), MergeError> {
        let head = self.head.clone();
        let unchanged = self.git(move |repository| repository.tree_of(&head)).await? == tree;
        let commit = if unchanged { self.head.clone() } else { self.commit(tree, self.meta(source, &source.title)).await? };
        self.record(MergeProgress::Joined { from: source.node.clone(), commit: commit.clone(), settled: settled.clone() }).await?;
        self.joined(&source.node, &commit, &settled);
        self.keep_head().await
    }

    async fn eject(&mut self, source: &Source, reason: String) -> Result<(), MergeError> {
        self.record(MergeProgress::Ejected { from: source.node.clone(), reason: reason.clone() }).await?;
        self.ejected(&source.node, &reason);
        self.keep_ejected(&source.node).await
    }

    /// Verifies what was joined last, where each join is: one that turns the checks red is put aside, or fails the merge.
    async fn prove(&mut self) -> Result<(), MergeError> {
        if self.job.options.mode != MergeMode::Each {
            return Ok(());
        }
        let Some((node, _)) = &self.last else { return Ok(()) };
        let Some(source) = self.job.sources.iter().find(|source| source.node == *node) else { return Ok(()) };
        match self.judge().await? {
            None | Some((true, _)) => self.last = None,
            Some((false, tail)) if self.job.options.on_red == RedThen::Eject => {
                let said = tail.trim().lines().next().unwrap_or_default().to_owned();
                self.eject(source, format!("the checks are red with it: {said}")).await?;
                if !self.report.landed.is_empty() {
                    self.keep_head().await?;
                }
            }
            Some((false, tail)) => {
                self.report.commit = Some(self.head.clone());
                return Err(MergeError::Red { commit: self.head.clone(), tail, report: Box::new(std::mem::take(&mut self.report)) });
            }
        }
        Ok(())
    }

    async fn verify(mut self) -> Result<Report, MergeError> {
        if self.report.landed.is_empty() {
            return Ok(self.report);
        }
        self.report.commit = Some(self.head.clone());
        match self.judge().await? {
            None => Ok(self.report),
            Some((true, _)) => {
                self.report.verified = true;
                Ok(self.report)
            }
            Some((false, tail)) => Err(MergeError::Red { commit: self.head, tail, report: Box::new(self.report) }),
        }
    }

    /// Returns what the checks say of the head; they run where they have not.
    async fn judge(&mut self) -> Result<Option<(bool, String)>, MergeError> {
        let Some(verifier) = self.job.verifier else { return Ok(None) };
        if self.verdict.is_none() {
            let mut said = verifier.verify(&self.head).await.map_err(failed)?;
            for _ in 0..self.job.options.flaky_retries {
                if said.passed {
                    break;
                }
                said = verifier.verify(&self.head).await.map_err(failed)?;
            }
            self.record(MergeProgress::Verified { commit: self.head.clone(), passed: said.passed, tail: said.tail.clone() }).await?;
            self.verdict = Some((said.passed, said.tail));
        }
        Ok(self.verdict.clone())
    }

    fn joined(&mut self, from: &NodeId, commit: &CommitId, settled: &[(String, String)]) {
        let unchanged = self.head == *commit;
        let verdict = if unchanged { self.verdict.clone() } else { None };
        let before = Before { head: self.head.clone(), verdict: std::mem::replace(&mut self.verdict, verdict), conflicts: self.report.conflicts.len() };
        self.head = commit.clone();
        self.last = Some((from.clone(), before));
        self.settled.insert(from.clone());
        self.report.landed.push(from.clone());
        if let Some((_, by)) = settled.first() {
            self.report.conflicts.push((from.clone(), settled.iter().map(|(path, _)| path.clone()).collect(), by.clone()));
        }
    }

    /// Puts a source aside; one that was joined last is taken off the chain.
    fn ejected(&mut self, from: &NodeId, reason: &str) {
        if let Some((_, before)) = self.last.take_if(|(last, _)| last == from) {
            self.head = before.head;
            self.verdict = before.verdict;
            self.report.landed.pop();
            self.report.conflicts.truncate(before.conflicts);
        }
        self.settled.insert(from.clone());
        self.report.ejected.push((from.clone(), reason.to_owned()));
    }

    fn meta(&self, source: &Source, title: &str) -> CommitMeta {
        CommitMeta { title: title.to_owned(), at: self.job.at, ..CommitMeta::default() }
            .trailer("Spinney-Run", self.job.run.0.clone())
            .trailer("Spinney-Step", self.job.node.to_string())
            .trailer("Spinney-Source", source.node.to_string())
    }

    async fn commit(&self, tree: TreeId, meta: CommitMeta) -> Result<CommitId, MergeError> {
        let head = self.head.clone();
        self.git(move |repository| repository.commit_tree(&tree, &[head], &meta)).await
    }

    async fn keep_head(&self) -> Result<(), MergeError> {
        let (name, head) = (self.ref_name(self.job.node, "joined"), self.head.clone());
        self.git(move |repository| repository.set_ref(&name, &head, Expected::Any)).await
    }

    async fn keep_ejected(&self, node: &NodeId) -> Result<(), MergeError> {
        let Some(source) = self.job.sources.iter().find(|source| source.node == *node) else { return Ok(()) };
        let (name, commit) = (self.ref_name(node, "ejected"), source.commit.clone());
        self.git(move |repository| repository.set_ref(&name, &commit, Expected::Any)).await
    }

    fn ref_name(&self, node: &NodeId, name: &str) -> String {
        ref_of(self.job.run, &node.slug(), name)
    }

    async fn record(&self, progress: MergeProgress) -> Result<(), MergeError> {
        self.job.progress.record(progress).await.map_err(failed)
    }

    async fn git<T: Send + 'static>(&self, work: impl FnOnce(&Repository) -> Result<T, GitError> + Send + 'static) -> Result<T, MergeError> {
        let repository = self.job.repository.clone();
        Ok(tasks::blocking(move || work(&repository)).await??)
    }
}

fn failed(failure: Failure) -> MergeError {
    MergeError::Failed(Box::new(failure))
}
