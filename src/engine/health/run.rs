//! One run against its records: its refs and commits, its blobs and artefacts, its worktrees and views, its letters.
use super::{
    files::{self, Files},
    views::{self, View},
};
use crate::{
    engine::{
        Inbox,
        doctor::Verdict,
        kept::{self, Kept},
    },
    event::{BlobId, CommitId, Event, Isolation, NodeId, Record, Recovery, RunId, because},
    git::{Expected, GitError, Repository, Unsound, is_given_up, is_lost, short_name},
    journal::{self, BlobError, Blobs, Conversation, Next, StoreError, read_plain},
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    path::{Path, PathBuf},
};

/// What to do where an object is not there.
const FETCH: &str =
    "`git fetch` from a clone that has it brings it back; otherwise `spinney cancel --as-it-stands`, then `spinney clean --drop`, and begin a new run";
/// What to do where an object is damaged: git fetches nothing that it has.
const RENEW: &str = "`git fsck` names its file; once that is moved away, `git fetch` from a clone that has it brings it back";

/// Something that is not as a run left it.
#[derive(Debug)]
pub(in crate::engine) struct Fault {
    /// Which file, ref or record.
    pub(in crate::engine) name: String,
    /// What is wrong with it.
    pub(in crate::engine) detail: String,
    pub(in crate::engine) verdict: Verdict,
    pub(in crate::engine) hint: Option<String>,
    pub(in crate::engine) mend: Option<Mend>,
}

/// What mends a fault without a loss.
#[derive(Debug)]
pub(in crate::engine) enum Mend {
    /// A ref is put where the records say.
    Ref { name: String, to: CommitId, expected: Expected },
    /// A blob is made again of a file that has its content.
    Blob(PathBuf),
    /// A file is made again of a blob.
    Artefact { file: PathBuf, content: BlobId },
    /// A letter that is none is put aside.
    Letter(String),
    /// The files of a view are put back.
    View(View),
    /// The files of a worktree that were taken out of it are put back.
    Files(Files),
    /// A ref that keeps nothing whole is taken away.
    Drop { name: String, at: CommitId },
    /// The journal goes on from what is there of it.
    Journal,
    /// What stands in the place of something else is put aside.
    Aside(PathBuf),
    /// The locks go that git has left on the run's refs.
    Unlock(RunId),
}

/// Why a fault could not be mended. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub(in crate::engine) enum MendError {
    #[error(transparent)]
    Git(#[from] GitError),
    #[error(transparent)]
    Blob(#[from] BlobError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("write it: {0}")]
    Io(#[from] io::Error),
}

impl Mend {
    /// Mends; whoever calls owns the run, and its lease where that is there.
    pub(in crate::engine) fn apply(&self, repo: &Repository, dir: &Path) -> Result<(), MendError> {
        match self {
            Mend::Ref { name, to, expected } => Ok(repo.set_ref(name, to, expected.clone())?),
            Mend::Blob(file) => Ok(Blobs::new(dir).put(&fs::read(file)?).map(drop)?),
            Mend::Artefact { file, content } => {
                let content = Blobs::new(dir).get(content)?;
                file.parent().map_or(Ok(()), fs::create_dir_all)?;
                Ok(fs::write(file, content)?)
            }
            Mend::Letter(name) => Ok(Inbox::of(dir).refuse(name, "it cannot be read")?),
            Mend::View(view) => Ok(view.put_back(repo)?),
            Mend::Files(files) => Ok(files.put_back(repo)?),
            Mend::Drop { name, at } => Ok(repo.delete_ref(name, at)?),
            Mend::Journal => Ok(journal::settle(dir)?),
            Mend::Aside(path) => Ok(fs::rename(path, free_beside(path))?),
            Mend::Unlock(run) => Ok(repo.unlock_refs(run)?),
        }
    }
}

/// Returns a name beside a file that nothing has.
fn free_beside(path: &Path) -> PathBuf {
    let named = |number: usize| path.with_extension(if number == 0 { "aside".to_owned() } else { format!("aside-{number}") });
    let free = (0..usize::from(u16::MAX)).map(named).find(|free| fs::symlink_metadata(free).is_err());
    free.unwrap_or_else(|| named(usize::MAX))
}

impl Fault {
    pub(super) fn broken(name: impl Into<String>, detail: impl Into<String>) -> Fault {
        Fault { name: name.into(), detail: detail.into(), verdict: Verdict::Broken, hint: None, mend: None }
    }

    pub(super) fn hint(self, hint: impl Into<String>) -> Fault {
        Fault { hint: Some(hint.into()), ..self }
    }

    pub(super) fn mended_by(self, mend: Mend) -> Fault {
        Fault { mend: Some(mend), hint: Some("`spinney doctor --repair` mends it".to_owned()), ..self }
    }

    pub(super) fn lightly(self) -> Fault {
        Fault { verdict: Verdict::Warn, ..self }
    }
}

/// Returns what of a run's refs, commits and letters is not as its records say: what can be looked at in a moment, and with `all` also
/// of the views that nobody reads, and of worktrees at work.
///
/// # Errors
/// Where git cannot tell.
pub(in crate::engine) fn faults(repo: &Repository, run: &RunId, (dir, records): (&Path, &[Record]), all: bool) -> Result<Vec<Fault>, GitError> {
    let kept = settled(run, records);
    let mut faults = refs(repo, run, (records, &kept))?;
    faults.extend(objects(repo, (records, &kept), false)?);
    faults.extend(views::faults(repo, run, records, all));
    faults.extend(if all { files::faults(repo, run, records) } else { Vec::new() });
    faults.extend(letters(dir));
    Ok(faults)
}

/// Returns whatever is not as the records of a run say.
pub(super) fn all_faults(repo: &Repository, run: &RunId, dir: &Path, records: &[Record]) -> Result<Vec<Fault>, GitError> {
    let kept = settled(run, records);
    // First: what is locked cannot be put in its place.
    let mut faults = locked(repo, run);
    faults.extend(refs(repo, run, (records, &kept))?);
    faults.extend(objects(repo, (records, &kept), true)?);
    faults.extend(views::faults(repo, run, records, true));
    faults.extend(files::faults(repo, run, records));
    faults.extend(torn_refs(repo, run, (records, &kept))?);
    faults.extend(blobs(dir, records));
    faults.extend(lost_worktrees(repo, run, records)?.into_iter().map(|(node, path)| {
        let lost = Fault::broken(
            path.display().to_string(),
            format!("the worktree of `{node}` is gone, or nothing is noted of it, and what was done there since its last checkpoint is in no commit"),
        );
        let whose = if node.helper.is_some() { format!("the attempt of `{}`, who has asked for it,", node.owner()) } else { "that attempt".to_owned() };
        lost.lightly().hint(format!("`spinney resume` starts {whose} over in a new one"))
    }));
    faults.extend(letters(dir));
    Ok(faults)
}

/// What a run's refs keep, of those that nothing moves any more.
type Keeping = BTreeMap<String, Kept>;

fn settled(run: &RunId, records: &[Record]) -> Keeping {
    kept::refs(run, records.iter().map(|record| &record.event)).into_iter().filter(|(_, kept)| kept.is_settled).collect()
}

/// The checkpoints of attempts at work, of which something is missing: they keep nothing that can be gone back to, and `git gc` fails
/// for as long as they stand.
fn torn_refs(repo: &Repository, run: &RunId, (records, kept): (&[Record], &Keeping)) -> Result<Vec<Fault>, GitError> {
    let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event) else { return Ok(Vec::new()) };
    let is_over = matches!(records.last().map(|record| &record.event), Some(Event::RunFinished { .. }));
    let found = repo.refs(&format!("refs/spinney/{run}"))?;
    let mut faults = Vec::new();
    for (name, at) in found.into_iter().filter(|(name, _)| name.ends_with("/checkpoint") && !kept.contains_key(name)) {
        if !is_whole(repo, &at, &started.base)? {
            let detail = format!("the commit {at} that it keeps is not whole: nothing can be brought back to it, and `git gc` fails by it");
            let fault = Fault::broken(name.clone(), detail).mended_by(Mend::Drop { name, at });
            faults.push(if is_over {
                fault.lightly()
            } else {
                Fault { hint: Some("`spinney doctor --repair` takes it away; `spinney resume` starts that attempt over".to_owned()), ..fault }
            });
        }
    }
    Ok(faults)
}

fn is_whole(repo: &Repository, commit: &CommitId, base: &CommitId) -> Result<bool, GitError> {
    match repo.unsound_objects(&[commit.clone()].into(), base, false) {
        Ok(unsound) => Ok(unsound == Unsound::default()),
        Err(GitError::Failed { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Returns the nodes at work whose files were to be brought back to a checkpoint that is not whole any more, each with that.
pub(in crate::engine) fn lost_checkpoints(repo: &Repository, records: &[Record]) -> Result<BTreeMap<NodeId, CommitId>, GitError> {
    let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event) else { return Ok(BTreeMap::new()) };
    let mut open: BTreeMap<(&NodeId, &str), &CommitId> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::ToolStarted { node, call, recovery: Recovery::Rollback(commit), .. } => drop(open.insert((node, call), commit)),
            Event::ToolFinished { node, result, .. } => drop(open.remove(&(node, result.call.as_str()))),
            Event::StepStarted { node, .. } | Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } => {
                open.retain(|(other, _), _| other.owner() != *node);
            }
            Event::RunFinished { .. } => open.clear(),
            _ => {}
        }
    }
    let mut lost = BTreeMap::new();
    for ((node, _), commit) in open {
        if !is_whole(repo, commit, &started.base)? {
            lost.insert(node.owner(), commit.clone());
        }
    }
    Ok(lost)
}

fn branch(records: &[Record]) -> Option<(&str, &CommitId)> {
    records.iter().rev().find_map(|record| match &record.event {
        Event::BranchMade { name, commit } => Some((name.as_str(), commit)),
        _ => None,
    })
}

fn refs(repo: &Repository, run: &RunId, (records, kept): (&[Record], &Keeping)) -> Result<Vec<Fault>, GitError> {
    let found: BTreeMap<String, CommitId> = repo.refs(&format!("refs/spinney/{run}"))?.into_iter().collect();
    let mut faults = Vec::new();
    for (name, Kept { commit, node, what, .. }) in kept {
        let what_it_is = what.of(node);
        let (detail, expected) = match found.get(name) {
            Some(at) if at == commit => continue,
            Some(at) => (format!("it stands at {at}, and {what_it_is} is {commit}"), Expected::At(at.clone())),
            None => (format!("it is gone, and keeps {commit}, {what_it_is}"), Expected::Absent),
        };
        let fault = Fault::broken(name.clone(), detail).mended_by(Mend::Ref { name: name.clone(), to: commit.clone(), expected });
        faults.push(if what.is_needed() || repo.has_commit(commit)? { fault } else { Fault { mend: None, ..fault }.lightly().hint(FETCH) });
    }
    let Some((name, commit)) = branch(records) else { return Ok(faults) };
    let landed = || Ok::<_, GitError>(repo.has_commit(commit)? && repo.is_ancestor(commit, &repo.head()?.commit)?);
    match repo.ref_at(name)? {
        Some(at) if at == *commit => {}
        Some(at) => faults.push(
            Fault::broken(name, format!("it stands at {at}, and the run left it at {commit}"))
                .lightly()
                .hint(format!("`git branch -f {} {commit}` puts it back, where nobody meant to move it", short_name(name))),
        ),
        // Who has landed it needs it no more.
        None if landed()? => {}
        None => {
            let mend = Mend::Ref { name: name.to_owned(), to: commit.clone(), expected: Expected::Absent };
            faults.push(Fault::broken(name, format!("it is gone, and keeps {commit}, what the run left")).lightly().mended_by(mend));
        }
    }
    Ok(faults)
}

/// What is missing or damaged of what a run goes on from; with `all` also of whatever else it has kept, and of its base.
fn objects(repo: &Repository, (records, kept): (&[Record], &Keeping), all: bool) -> Result<Vec<Fault>, GitError> {
    let Some(Event::RunStarted(started)) = records.first().map(|record| &record.event) else { return Ok(Vec::new()) };
    let is_needed = |kept: &&Kept| kept.what.is_needed();
    let needed: BTreeSet<CommitId> =
        kept.values().filter(is_needed).map(|kept| &kept.commit).chain(branch(records).map(|(_, commit)| commit)).cloned().collect();
    let whose = |object: &str| match kept.values().find(|kept| kept.commit.0 == object) {
        Some(kept) => kept.what.of(&kept.node),
        None if object == started.base.0 => "the commit that everything starts from".to_owned(),
        None => "part of its work".to_owned(),
    };
    let faults = |unsound: Result<Unsound, GitError>| -> Result<Vec<Fault>, GitError> {
        let unsound = match unsound {
            Ok(unsound) => unsound,
            Err(GitError::Failed { reason, .. }) => return Ok(vec![Fault::broken("the object database", reason).hint("`git fsck` says more")]),
            Err(error) => return Err(error),
        };
        let missing = unsound.missing.into_iter().map(|object| {
            let detail = format!("the object is not in the repository any more: {}", whose(&object));
            Fault::broken(object, detail).hint(FETCH)
        });
        let damaged = unsound.damaged.into_iter().map(|object| {
            let detail = format!("the object is in the repository, and damaged: {}", whose(&object));
            Fault::broken(object, detail).hint(RENEW)
        });
        Ok(missing.chain(damaged).collect())
    };
    let mut found = faults(repo.unsound_objects(&needed, &started.base, all))?;
    let others: BTreeSet<CommitId> = kept.values().map(|kept| kept.commit.clone()).filter(|commit| all && !needed.contains(commit)).collect();
    if found.is_empty() && !others.is_empty() {
        found.extend(faults(repo.unsound_objects(&others, &started.base, false))?.into_iter().map(Fault::lightly));
    }
    Ok(found)
}

fn blobs(dir: &Path, records: &[Record]) -> Vec<Fault> {
    let blobs = Blobs::new(dir);
    let mut known: BTreeMap<&BlobId, bool> = BTreeMap::new();
    let mut faults = Vec::new();
    for record in records {
        for id in ids(&record.event) {
            let whole = *known.entry(id).or_insert_with(|| blobs.get(id).is_ok());
            if whole {
                continue;
            }
            let said = blobs.get(id).err().map(|error| because(&error)).unwrap_or_default();
            let fault = Fault::broken(format!("blob {id} of record {}", record.seq), said);
            faults.push(match &record.event {
                Event::ArtefactKept { name, .. } if holds(&dir.join("artifacts").join(name), id) => {
                    fault.mended_by(Mend::Blob(dir.join("artifacts").join(name)))
                }
                Event::ToolFinished { .. } | Event::ArtefactKept { .. } => fault.lightly().hint("only this output is lost; the run goes on without it"),
                _ => fault.hint("nothing goes on without it: put the file back from a copy, or begin a new run"),
            });
        }
        if let Event::ArtefactKept { name, content, .. } = &record.event {
            let file = dir.join("artifacts").join(name);
            let is_last = !records[usize::try_from(record.seq).unwrap_or_default() + 1..]
                .iter()
                .any(|later| matches!(&later.event, Event::ArtefactKept { name: again, .. } if again == name));
            if is_last && !holds(&file, content) && known.get(content) == Some(&true) {
                let detail = "the file of this output is gone or was changed";
                faults.push(Fault::broken(file.display().to_string(), detail).lightly().mended_by(Mend::Artefact { file, content: content.clone() }));
            }
        }
    }
    faults
}

fn holds(file: &Path, content: &BlobId) -> bool {
    read_plain(file).is_ok_and(|bytes| BlobId::of(&bytes) == *content)
}

fn ids(event: &Event) -> Vec<&BlobId> {
    if let Event::RunStarted(started) = event { started.script.iter().collect() } else { event.blobs() }
}

/// Returns the worktrees that agents at work, and sub-agents of theirs, have lost, by whose they are.
///
/// # Errors
/// Where git cannot tell.
pub(in crate::engine) fn lost_worktrees(repo: &Repository, run: &RunId, records: &[Record]) -> Result<BTreeMap<NodeId, PathBuf>, GitError> {
    let mut open: BTreeMap<&NodeId, ((&str, &CommitId), bool)> = BTreeMap::new();
    for record in records {
        match &record.event {
            Event::WorkspaceMade { node, path, base, isolation, .. } if !path.is_empty() && *isolation != Isolation::View => {
                open.insert(node, ((path, base), false));
            }
            Event::AgentBriefed { node, .. } => {
                if let Some((_, begun)) = open.get_mut(node) {
                    *begun = true;
                }
            }
            // Its work is a commit by now.
            Event::WorkCaptured { node, .. } => drop(open.remove(node)),
            Event::StepStarted { node, .. } | Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. } => {
                open.retain(|other, _| other.owner() != *node);
            }
            Event::RunFinished { .. } => open.clear(),
            _ => {}
        }
    }
    let mut lost: BTreeMap<NodeId, PathBuf> = open
        .into_iter()
        .filter(|(_, ((path, base), begun))| *begun && is_lost(Path::new(path), base))
        .map(|(node, ((path, _), _))| (node.clone(), PathBuf::from(path)))
        .collect();
    if lost.keys().any(|node| node.helper.is_some()) {
        let talks = Talks::of(records, lost.keys().filter(|node| node.helper.is_some()));
        let mut over = Vec::new();
        for (node, path) in lost.iter().filter(|(node, _)| node.helper.is_some()) {
            // One that has ended and changed nothing leaves none.
            if !talks.is_awaited(node) || talks.is_over(node) && is_given_up(repo, run, path)? {
                over.push(node.clone());
            }
        }
        lost.retain(|node, _| !over.contains(node));
    }
    Ok(lost)
}

/// What sub-agents, and those who have asked for them, have said so far in the attempts that are open.
struct Talks(BTreeMap<NodeId, Conversation>);

impl Talks {
    fn of<'n>(records: &[Record], sub_agents: impl Iterator<Item = &'n NodeId>) -> Talks {
        let nodes = sub_agents.flat_map(|node| [Some(node.clone()), asked_by(node).map(|(who, ..)| who)]).flatten();
        let mut talks = Talks(nodes.map(|node| (node, Conversation::default())).collect());
        for event in records.iter().map(|record| &record.event) {
            if let Event::StepStarted { node, .. } = event {
                talks.0.iter_mut().filter(|(other, _)| other.owner() == *node).for_each(|(_, talk)| *talk = Conversation::default());
            }
            if let Some(talk) = event.node().and_then(|node| talks.0.get_mut(node)) {
                talk.apply(event);
            }
        }
        talks
    }

    /// Returns whether the call that a sub-agent works for has no result yet.
    fn is_awaited(&self, node: &NodeId) -> bool {
        let Some((who, turn, place)) = asked_by(node) else { return false };
        self.0.get(&who).is_some_and(|talk| {
            let call = talk.messages().last().and_then(|message| message.calls().nth(place.checked_sub(1)?));
            talk.spent().turns == turn && call.is_some_and(|call| talk.open_calls().any(|open| open.call.id == call.id))
        })
    }

    /// Returns whether a sub-agent has nothing more to say.
    fn is_over(&self, node: &NodeId) -> bool {
        self.0.get(node).is_some_and(|talk| matches!(talk.next(), Next::End(_)))
    }
}

/// Returns who has asked for a sub-agent, in which turn, and by which of its calls.
pub(super) fn asked_by(node: &NodeId) -> Option<(NodeId, u32, usize)> {
    let mut parts = node.helper.as_deref()?.rsplitn(3, '-');
    let (place, turn) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let who = match parts.next()? {
        "agent" => node.owner(),
        name => node.owner().helper(name),
    };
    Some((who, turn, place))
}

/// Returns the locks that git has left on the run's refs.
fn locked(repo: &Repository, run: &RunId) -> Vec<Fault> {
    let fault = |lock: PathBuf| Fault::broken(lock.display().to_string(), "a git has left it that died").mended_by(Mend::Unlock(run.clone()));
    repo.locks_of(run).into_iter().map(fault).collect()
}

fn letters(dir: &Path) -> Vec<Fault> {
    let inbox = Inbox::of(dir);
    let unread = inbox.waiting().into_iter().filter(|name| inbox.read(name).is_none());
    let mut faults: Vec<Fault> =
        unread.map(|name| Fault::broken(format!("inbox/{name}.json"), "it is no letter that can be read").lightly().mended_by(Mend::Letter(name))).collect();
    faults.extend(
        inbox.foreign().into_iter().map(|name| Fault::broken(format!("inbox/{name}"), "it is no letter; nothing looks at it").lightly().hint("remove it")),
    );
    faults
}
