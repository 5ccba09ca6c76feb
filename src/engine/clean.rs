//! What is left of runs that are over, and taking it away where nothing is lost by that.
//!
//! A run is removed whole: its refs, its worktrees and views, its branch, and last its folder, so that one whose removal was
//! interrupted is found again. What it worked must be elsewhere: in the history of a branch that is no run's, or, where that
//! is so, in the joined commit that took it in. Everything in doubt counts as not landed. What goes with a run that is dropped
//! by its name is named, and commits that somebody else has put on its branch never go.
use super::steps::{KEPT_RESULTS, VIEW_PREFIX, slug};
use crate::{
    clock::Timestamp,
    event::{CommitId, Delivery, Event, MergeProgress, NodeId, Outcome, Record, RunId, RunStarted, SelectProgress, because},
    git::{Expected, GitError, RefMove, Repository, Workspaces, branch_of, short_name},
    journal::{self, Lease, RunDir, remove_all},
};
use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

/// What is to be cleaned, and where.
#[derive(Debug, Clone)]
pub struct Cleaning {
    /// The user's cache folder for this program.
    pub cache: PathBuf,
    /// How long a run must have been over.
    pub older_than: Duration,
    /// Now.
    pub now: Timestamp,
    /// Whether a run goes although worktrees of it hold what git ignores and no setup has made.
    pub ignored: bool,
    /// Whether nothing is removed, and only said what would be.
    pub dry_run: bool,
    /// Runs that are removed with work that is nowhere else, however young they are; only these are looked at where there are any.
    pub drop: Vec<RunId>,
}

/// What became of a run, with why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It was removed, or would be.
    Removed(String),
    /// It stays.
    Kept(String),
}

/// Removes what is left of runs that are over, and says for each what became of it.
///
/// # Errors
/// Where the runs cannot be listed.
pub fn clean(repo: &Repository, cleaning: &Cleaning) -> Result<Vec<(RunId, Fate)>, CleanError> {
    let state = RunDir::state(repo.main_checkout());
    if !cleaning.dry_run {
        RunDir::sweep(&state);
    }
    let mut runs = RunDir::list(&state)?;
    runs.extend(orphans(repo, &cleaning.cache)?);
    let meant = |run: &RunId| cleaning.drop.is_empty() || cleaning.drop.contains(run);
    Ok(runs
        .into_iter()
        .filter(meant)
        .map(|run| {
            let fate = one(repo, &state, &run, cleaning);
            (run, fate)
        })
        .collect())
}

/// Why what is left of runs cannot be looked at.
#[derive(Debug, thiserror::Error)]
pub enum CleanError {
    /// The runs cannot be listed.
    #[error(transparent)]
    Dir(#[from] journal::RunDirError),
    /// What they keep cannot be.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Returns the runs of which only refs or worktrees are left, sorted: somebody has removed `.spinney/state`, `git clean -fdx` say.
///
/// # Errors
/// Where the runs or what they keep cannot be listed.
pub fn orphans(repo: &Repository, cache: &Path) -> Result<BTreeSet<RunId>, CleanError> {
    // Without a main checkout each worktree has runs of its own.
    if repo.common_dir().parent() != Some(repo.main_checkout()) {
        return Ok(BTreeSet::new());
    }
    let refs = repo.refs("refs/spinney")?;
    // Kept results belong to no run.
    let of_refs = refs.iter().filter_map(|(name, _)| name.split('/').nth(2)).filter(|name| *name != KEPT_RESULTS).map(str::to_owned);
    let folders = fs::read_dir(cache.join("worktrees").join(repo.id())).into_iter().flatten().flatten();
    let of_folders = folders.filter_map(|entry| entry.file_name().into_string().ok());
    let known: BTreeSet<RunId> = RunDir::list(&RunDir::state(repo.main_checkout()))?.into_iter().collect();
    Ok(of_refs.chain(of_folders).map(RunId).filter(|run| !known.contains(run)).collect())
}

fn one(repo: &Repository, state: &Path, run: &RunId, cleaning: &Cleaning) -> Fate {
    match judged(repo, state, run, cleaning) {
        Err(why) => Fate::Kept(why),
        Ok(why) if cleaning.dry_run => Fate::Removed(why),
        Ok(why) => match remove(repo, state, run, cleaning) {
            Ok(()) => Fate::Removed(why),
            Err(error) => Fate::Kept(format!("it could not be removed: failed to {}", because(&error))),
        },
    }
}

/// Says why a run may be removed.
///
/// # Errors
/// Why it stays.
fn judged(repo: &Repository, state: &Path, run: &RunId, cleaning: &Cleaning) -> Result<String, String> {
    let named = cleaning.drop.contains(run);
    let dir = match RunDir::open(state, run) {
        Err(journal::RunDirError::Missing { .. }) => return judged_without_records(repo, run, cleaning),
        dir => dir.map_err(|error| error.to_string())?,
    };
    if let Some(owner) = Lease::owner(dir.path()).map_err(|error| error.to_string())? {
        return Err(format!("it is carried out: {}", owner.holder()));
    }
    if let Some(folder) = repo.checked_out(&branch_of(run)).map_err(|error| error.to_string())? {
        return Err(format!("its branch is checked out in {folder}"));
    }
    let records = match journal::read(dir.path()) {
        Ok(records) => records,
        Err(journal::StoreError::Missing { .. } | journal::StoreError::Unbegun { .. }) => Vec::new(),
        Err(_) if named => return Ok(format!("dropped, as asked for, though its journal cannot be read{}", dropped(repo, run, cleaning, &[]))),
        Err(error) => return Err(format!("its journal cannot be read: {error}")),
    };
    let (Some(first), Some(last)) = (records.first(), records.last()) else {
        return unbegun(repo, (&dir, run), cleaning, named);
    };
    let (Event::RunStarted(started), Event::RunFinished { .. }) = (&first.event, &last.event) else {
        return Err("it is not over: `spinney resume` goes on with it, `spinney cancel` ends it".to_owned());
    };
    if named {
        return Ok(format!("dropped, as asked for{}", dropped(repo, run, cleaning, &records)));
    }
    let ago = Duration::from_millis(cleaning.now.0.saturating_sub(last.at.0));
    if ago < cleaning.older_than {
        return Err("it ended not long enough ago".to_owned());
    }
    let work = Work { repo, run, started, nodes: Nodes::of(&records), now: cleaning.now };
    let lost = work.lost(&folder(repo, run, cleaning), cleaning.ignored).map_err(|error| format!("what it left cannot be judged: {error}"))?;
    match lost {
        Some(lost) => Err(format!("{lost} is on no branch but the run's own")),
        None if work.left_any() => Ok("its work has landed".to_owned()),
        None => Ok("it left no work".to_owned()),
    }
}

/// Says why a run may be removed that has no record.
fn unbegun(repo: &Repository, (dir, run): (&RunDir, &RunId), cleaning: &Cleaning, named: bool) -> Result<String, String> {
    if named {
        return Ok("dropped, as asked for; it never began".to_owned());
    }
    let made = fs::metadata(dir.path()).and_then(|found| found.modified()).ok().and_then(|made| made.duration_since(std::time::UNIX_EPOCH).ok());
    let ago = Duration::from_millis(cleaning.now.0).saturating_sub(made.unwrap_or_default());
    if ago < cleaning.older_than {
        return Err("it died before its first record, not long enough ago".to_owned());
    }
    // Of a run that was to follow from another one.
    let is_kept = |(name, commit): &(String, CommitId)| !is_start(name) && !repo.has_landed(commit).unwrap_or(false);
    match repo.refs(&format!("refs/spinney/{run}")).map_err(|error| error.to_string())?.iter().find(|kept| is_kept(kept)) {
        Some((name, _)) => {
            Err(format!("it died before its first record, and keeps `{}`: `spinney clean --drop {run}` removes it all the same", short_name(name)))
        }
        None => Ok("it died before its first record".to_owned()),
    }
}

/// Says what goes with a run that is dropped, and what of it stays.
fn dropped(repo: &Repository, run: &RunId, cleaning: &Cleaning, records: &[Record]) -> String {
    let parts = || -> Result<Vec<String>, GitError> {
        let mut parts = Vec::new();
        let (branch, stays) = (branch_of(run), others(repo, run, records)?);
        let tip = repo.ref_at(&branch)?;
        if let Some(tip) = &tip {
            let (name, at) = (short_name(&branch), &tip.0[..tip.0.len().min(12)]);
            parts.push(if stays { format!("`{name}` stays at {at}, which is not what the run left") } else { format!("`{name}` was at {at}") });
        }
        let refs = repo.refs(&format!("refs/spinney/{run}"))?.into_iter().filter(|(name, _)| !is_start(name)).map(|(_, commit)| commit);
        let commits: BTreeSet<CommitId> = refs.chain(tip.filter(|_| !stays)).collect();
        let count = repo.count_nowhere_else(&commits)?;
        if count > 0 {
            parts.push(format!("{count} {} nowhere else", if count == 1 { "commit was" } else { "commits were" }));
        }
        let folder = folder(repo, run, cleaning);
        if folder.is_dir() {
            let workspaces = Workspaces::new(repo, &folder, run)?;
            let nodes = Nodes::of(records);
            for slug in workspaces.slugs()?.iter().filter(|slug| !slug.starts_with(VIEW_PREFIX)) {
                let held = nodes.held_in(&workspaces, slug).unwrap_or_else(|| "files".to_owned());
                let ignored = nodes.places.get(slug).map_or(Ok(Vec::new()), |(base, _)| workspaces.ignored(slug, base))?;
                match (held.is_empty(), ignored.is_empty()) {
                    (false, _) => parts.push(format!("{} had work that is in no commit", workspaces.path(slug).display())),
                    (true, false) => parts.push(format!("{} had what git ignores: {}", workspaces.path(slug).display(), few(&ignored))),
                    (true, true) => {}
                }
            }
            parts.extend(strays(&workspaces)?.iter().map(|stray| format!("{} had files that are in no commit", stray.display())));
        }
        Ok(parts)
    };
    match parts() {
        Ok(parts) if parts.is_empty() => "; it left nothing that is nowhere else".to_owned(),
        Ok(parts) => format!(": {}", parts.join("; ")),
        Err(error) => format!("; what it left cannot be told: failed to {error}"),
    }
}

/// Returns whether somebody else has put commits on a run's branch that are nowhere else: they never go with the run.
fn others(repo: &Repository, run: &RunId, records: &[Record]) -> Result<bool, GitError> {
    let Some(tip) = repo.ref_at(&branch_of(run))? else { return Ok(false) };
    let left = |record: &Record| matches!(&record.event, Event::BranchMade { commit, .. } if *commit == tip);
    Ok(!records.iter().any(left) && !repo.has_landed(&tip)?)
}

/// Returns whether a ref only keeps what others have made: the base of the run, or that of a worktree.
fn is_start(name: &str) -> bool {
    name.ends_with("/base") || name.ends_with("/checkout/head")
}

/// Lists some names.
fn few(names: &[String]) -> String {
    const FEW: usize = 5;
    let more = if names.len() > FEW { format!(" and {} more", names.len() - FEW) } else { String::new() };
    format!("{}{more}", names[..names.len().min(FEW)].join(", "))
}

/// Says why a run may be removed whose records are gone: where nothing tells what its work went into, all must have landed itself.
fn judged_without_records(repo: &Repository, run: &RunId, cleaning: &Cleaning) -> Result<String, String> {
    if cleaning.drop.contains(run) {
        return Ok(format!("dropped, as asked for, though its folder is gone{}", dropped(repo, run, cleaning, &[])));
    }
    let lost = || -> Result<Option<String>, GitError> {
        for (name, commit) in repo.refs(&format!("refs/spinney/{run}"))?.iter().filter(|(name, _)| !is_start(name)) {
            if !repo.has_landed(commit)? {
                return Ok(Some(format!("what `{}` keeps", short_name(name))));
            }
        }
        let folder = folder(repo, run, cleaning);
        let (slugs, strays) = if folder.is_dir() {
            let workspaces = Workspaces::new(repo, &folder, run)?;
            (workspaces.slugs()?, strays(&workspaces)?)
        } else {
            (Vec::new(), Vec::new())
        };
        let held = slugs.into_iter().find(|slug| !slug.starts_with(VIEW_PREFIX)).map(|slug| format!("what the worktree `{slug}` may hold"));
        Ok(held.or_else(|| strays.first().map(|stray| format!("what stands in {}", stray.display()))))
    };
    match lost().map_err(|error| format!("its folder is gone, and what it left cannot be judged: {error}"))? {
        Some(lost) => Err(format!("its folder is gone, and {lost} is on no branch but the run's own: `spinney clean --drop {run}` removes it all the same")),
        None => Ok("its folder is gone, and its work has landed".to_owned()),
    }
}

/// Returns the files of worktrees that are known for no worktree any more, views aside.
fn strays(workspaces: &Workspaces) -> Result<Vec<PathBuf>, GitError> {
    Ok(workspaces.strays()?.into_iter().filter(|(slug, _)| !slug.starts_with(VIEW_PREFIX)).map(|(_, path)| path).collect())
}

/// Returns where the worktrees of a run stand.
fn folder(repo: &Repository, run: &RunId, cleaning: &Cleaning) -> PathBuf {
    cleaning.cache.join("worktrees").join(repo.id()).join(&run.0)
}

/// The work of one run, and where it went.
struct Work<'a> {
    repo: &'a Repository,
    run: &'a RunId,
    started: &'a RunStarted,
    nodes: Nodes<'a>,
    now: Timestamp,
}

/// What the records say of who made which commit, and what took it in.
#[derive(Default)]
struct Nodes<'a> {
    /// Who has made a commit, and who passed it on.
    made: HashMap<&'a CommitId, Vec<&'a NodeId>>,
    commits: HashMap<&'a NodeId, &'a CommitId>,
    /// What was made on top of a commit.
    built: HashMap<&'a CommitId, Vec<&'a CommitId>>,
    /// Which merge has joined a node's work, or which agent took a sub-agent's in.
    joined: HashMap<&'a NodeId, NodeId>,
    /// Until when the work of those is kept that were not chosen.
    losers: HashMap<&'a NodeId, Timestamp>,
    places: BTreeMap<String, (&'a CommitId, &'a NodeId)>,
    attempts: HashMap<&'a NodeId, u32>,
    /// Worktrees' names whose work was captured, and is their node's result: their checkpoints are what it was on the way.
    captured: BTreeSet<String>,
}

impl<'a> Nodes<'a> {
    fn of(records: &'a [Record]) -> Nodes<'a> {
        let mut nodes = Nodes::default();
        let mut bases: HashMap<&NodeId, &CommitId> = HashMap::new();
        for record in records {
            match &record.event {
                Event::StepStarted { node, attempt } => drop(nodes.attempts.insert(node, *attempt)),
                Event::WorkCaptured { node, commit, .. } => {
                    let attempt = nodes.attempts.get(&node.owner()).copied().unwrap_or(1);
                    nodes.captured.insert(slug(node, attempt));
                    if let Some(base) = bases.get(node) {
                        nodes.built.entry(base).or_default().push(commit);
                    }
                    nodes.made(node, commit);
                }
                Event::CheckpointKept { node, .. } => {
                    let attempt = nodes.attempts.get(&node.owner()).copied().unwrap_or(1);
                    nodes.captured.remove(&slug(node, attempt));
                }
                Event::StepFinished { node, outcome: Outcome::Succeeded(success) } => success.commit.iter().for_each(|commit| nodes.made(node, commit)),
                Event::MergeAdvanced { node, progress: MergeProgress::Joined { from, .. } } => drop(nodes.joined.insert(from, node.clone())),
                Event::MergeAdvanced { progress: MergeProgress::Ejected { from, .. }, .. } => drop(nodes.joined.remove(from)),
                Event::WorkDelivered { node, delivery: Delivery::Joined { .. } } => drop(nodes.joined.insert(node, node.owner())),
                Event::SelectAdvanced { progress: SelectProgress::Chosen { losers, kept_until: Some(until), .. }, .. } => {
                    nodes.losers.extend(losers.iter().map(|(loser, _)| (loser, *until)));
                }
                Event::WorkspaceMade { node, base, path, .. } => {
                    bases.insert(node, base);
                    if let Some(slug) = Path::new(path).file_name() {
                        nodes.places.insert(slug.to_string_lossy().into_owned(), (base, node));
                    }
                }
                _ => {}
            }
        }
        nodes
    }

    /// Says what a worktree has that no commit of its node has, empty where nothing; `None` where nobody knows whose it is.
    fn held_in(&self, workspaces: &Workspaces, slug: &str) -> Option<String> {
        let (base, node) = self.places.get(slug)?;
        let commits = [self.commits.get(node).copied(), Some(*base)];
        let beyond: Vec<Option<String>> = commits.into_iter().flatten().map(|commit| workspaces.beyond(slug, base, commit)).collect();
        Some(if beyond.iter().all(Option::is_some) { beyond.into_iter().flatten().next().unwrap_or_default() } else { String::new() })
    }

    fn made(&mut self, node: &'a NodeId, commit: &'a CommitId) {
        self.made.entry(commit).or_default().push(node);
        self.commits.insert(node, commit);
    }
}

impl Work<'_> {
    fn left_any(&self) -> bool {
        !self.nodes.commits.is_empty()
    }

    /// Returns the first piece of work that would be lost with the run.
    fn lost(&self, folder: &Path, ignored: bool) -> Result<Option<String>, GitError> {
        let mut refs = self.repo.refs(&format!("refs/spinney/{}", self.run))?;
        let branch = branch_of(self.run);
        refs.extend(self.repo.ref_at(&branch)?.map(|commit| (branch, commit)));
        let base = self.repo.tree_of(&self.started.base)?;
        let is_on_the_way = |name: &str| {
            let slug = name.strip_suffix("/checkpoint").and_then(|name| name.rsplit('/').next());
            is_start(name) || slug.is_some_and(|slug| self.nodes.captured.contains(slug))
        };
        for (name, commit) in refs.iter().filter(|(name, _)| !is_on_the_way(name)) {
            if !self.is_elsewhere(commit)? && self.repo.tree_of(commit)? != base {
                return Ok(Some(format!("what `{}` keeps", short_name(name))));
            }
        }
        if !folder.is_dir() {
            return Ok(None);
        }
        let workspaces = Workspaces::new(self.repo, folder, self.run)?;
        for slug in workspaces.slugs()?.iter().filter(|slug| !slug.starts_with(VIEW_PREFIX)) {
            let Some((base, _)) = self.nodes.places.get(slug) else { return Ok(Some(format!("what the worktree `{slug}` may hold"))) };
            if self.nodes.held_in(&workspaces, slug).is_none_or(|held| !held.is_empty()) {
                return Ok(Some(format!("what stands in the worktree {}", workspaces.path(slug).display())));
            }
            let names = if ignored { Vec::new() } else { workspaces.ignored(slug, base)? };
            if !names.is_empty() {
                return Ok(Some(format!("what git ignores in the worktree {} ({})", workspaces.path(slug).display(), few(&names))));
            }
        }
        Ok(strays(&workspaces)?.first().map(|stray| format!("what stands in {}", stray.display())))
    }

    /// Returns whether a commit, or one that its work went into, has landed. Whoever passes a commit on (a loop, a call, a choice) hands it
    /// to those that take his work; whoever has worked on top of it has it in what he made.
    fn is_elsewhere(&self, commit: &CommitId) -> Result<bool, GitError> {
        let (mut open, mut seen) = (vec![(commit, false)], BTreeSet::new());
        while let Some((commit, is_below)) = open.pop() {
            if !seen.insert((commit, is_below)) {
                continue;
            }
            if self.repo.has_landed(commit)? {
                return Ok(true);
            }
            for node in self.nodes.made.get(commit).into_iter().flatten() {
                // What was not chosen takes nothing with it that it was built on.
                if !is_below && self.nodes.losers.get(node).is_some_and(|until| *until <= self.now) {
                    return Ok(true);
                }
                open.extend(self.nodes.joined.get(node).and_then(|by| self.nodes.commits.get(by)).map(|by| (*by, is_below)));
            }
            open.extend(self.nodes.built.get(commit).into_iter().flatten().map(|built| (*built, true)));
        }
        Ok(false)
    }
}

/// Why what is left of a run could not be removed.
#[derive(Debug, thiserror::Error)]
enum RemoveError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Dir(#[from] journal::RunDirError),
    #[error(transparent)]
    Lease(#[from] journal::LeaseError),
    #[error("remove {path}: {source}")]
    Io { path: String, source: std::io::Error },
}

fn remove(repo: &Repository, state: &Path, run: &RunId, cleaning: &Cleaning) -> Result<(), RemoveError> {
    let dir = match RunDir::open(state, run) {
        Err(journal::RunDirError::Missing { .. }) => None,
        dir => Some(dir?),
    };
    let _lease = dir.as_ref().map(|dir| Lease::take(dir.path(), std::process::id(), cleaning.now)).transpose()?;
    // Nobody moves its refs now: what is locked was by a git that died.
    repo.unlock_refs(run)?;
    let records = dir.as_ref().and_then(|dir| journal::read(dir.path()).ok()).unwrap_or_default();
    if repo.ref_at(&branch_of(run))?.is_some() && !others(repo, run, &records)? {
        repo.delete_branch_of(run)?;
    }
    let folder = folder(repo, run, cleaning);
    if folder.is_dir() {
        let workspaces = Workspaces::new(repo, &folder, run)?;
        workspaces.slugs()?.iter().try_for_each(|slug| workspaces.discard(slug))?;
        delete(&folder)?;
    }
    let refs: BTreeSet<(String, CommitId)> = repo.refs(&format!("refs/spinney/{run}"))?.into_iter().collect();
    let moves: Vec<RefMove> = refs.into_iter().map(|(name, commit)| RefMove { name, to: None, expected: Expected::At(commit) }).collect();
    if !moves.is_empty() {
        repo.move_refs(&moves)?;
    }
    dir.map_or(Ok(()), |dir| dir.remove().map_err(|source| RemoveError::Io { path: dir.path().display().to_string(), source }))
}

fn delete(folder: &Path) -> Result<(), RemoveError> {
    remove_all(folder).map_err(|source| RemoveError::Io { path: folder.display().to_string(), source })
}
