//! Results of earlier runs that stand for work which would be the same again.
//!
//! A result is found by the hash of all that makes it: what is asked and of whom, under which rules, with which skills,
//! hooks and sub-agents, under which checks, and the content of the files that the step names as its inputs. The work of a writer is its
//! recorded change, and is taken over only where every path that it touched still has the content it had; otherwise the
//! work is done anew. Failures are never kept, and neither is a result that the value of a secret is part of.
//!
//! The store is `cache/` in the state folder, one file an entry, written in one piece under its key and checked by its own
//! hash when it is read: an entry that is not whole is passed over with a warning. A ref keeps the commit of a change. When
//! a run begins, the entries used last are kept, up to [`ENTRIES_MAX`].
use super::{
    Task,
    agent::chosen,
    place, rendered,
    session::{may_delegate, system},
};
use crate::{
    agent::{Trouble, blocking},
    event::{BlobId, CommitId, Event, Failure, FailureKind, Isolation, RunId, Success},
    git::{Captured, Change, Edit, Expected, GitError, Mode, Repository, Scope, ref_of},
    journal::read_plain,
    plan::{AgentSpec, Plan, PlannedStep, SandboxSpec, Work},
    prompts,
    secrets::Secrets,
    skills::Shelf,
    source::Spanned,
    trace,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::{
    collections::BTreeMap,
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

/// The form of an entry; part of every key, so that one of another form is never found.
const FORM: u32 = 3;
/// Entries that outlive the beginning of a run.
const ENTRIES_MAX: usize = 4096;
/// A result that is larger as JSON is not kept.
const BYTES_MAX: usize = 8 << 20;
/// What stands for a run in the refs that keep changes.
pub(in crate::engine) const REFS: &str = "cache";

/// What a look into the store gave.
pub(super) enum LookedUp {
    /// The result stands for the work.
    Hit(Success),
    /// The work is to be done, and kept under the key where there is one.
    Miss(Option<Key>),
}

/// What a result is kept under.
pub(super) struct Key {
    hash: String,
    base: Option<CommitId>,
}

/// One kept result.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    run: RunId,
    output: Value,
    /// What a writer changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    change: Option<Span>,
}

/// A change as two commits.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Span {
    base: CommitId,
    commit: CommitId,
}

/// Where results are kept.
#[derive(Debug)]
pub(crate) struct Store {
    folder: PathBuf,
    /// Whether what is there is looked up.
    reads: bool,
}

impl Store {
    /// Uses the store of a repository's state folder.
    pub(crate) fn open(state: &Path, reads: bool) -> Store {
        Store { folder: state.join("cache"), reads }
    }

    /// Drops the entries that were not used for longest, and the refs of those that are gone.
    pub(crate) fn prune(&self, repo: &Repository) {
        let Ok(listed) = fs::read_dir(&self.folder) else { return };
        let used = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            Some((entry.metadata().and_then(|found| found.modified()).unwrap_or(SystemTime::UNIX_EPOCH), entry.path()))
        };
        let mut entries: Vec<(SystemTime, PathBuf)> = listed.filter_map(used).collect();
        if entries.len() <= ENTRIES_MAX {
            return;
        }
        entries.sort_by(|a, b| b.cmp(a));
        for (_, path) in entries.drain(ENTRIES_MAX..) {
            let key = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            let name = ref_of(&REFS.into(), &key, "result");
            let dropped = fs::remove_file(&path).is_ok() && repo.ref_at(&name).ok().flatten().is_none_or(|at| repo.delete_ref(&name, &at).is_ok());
            if !dropped {
                tracing::info!(target: trace::TARGET, "the kept result {key} stays");
            }
        }
    }

    /// Takes an entry; `None` where there is none that is whole.
    fn get(&self, key: &str) -> Option<Entry> {
        let entry = self.read(key)?;
        // The time of its last use decides how long it stays.
        drop(fs::File::open(self.folder.join(key)).and_then(|file| file.set_modified(now())));
        Some(entry)
    }

    /// Reads an entry, which counts as no use of it.
    fn read(&self, key: &str) -> Option<Entry> {
        let path = self.folder.join(key);
        if fs::symlink_metadata(&path).is_err() {
            return None;
        }
        let text = read_plain(&path).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default();
        let whole = text.split_once('\n').filter(|(hash, body)| BlobId::of(body.as_bytes()).0 == *hash);
        let entry = whole.and_then(|(_, body)| serde_json::from_str(body).ok());
        if entry.is_none() {
            tracing::warn!(target: trace::TARGET, "the kept result {} is damaged and passed over", path.display());
        }
        entry
    }

    fn put(&self, key: &str, entry: &Entry) -> io::Result<()> {
        let body = serde_json::to_string(entry)?;
        if body.len() > BYTES_MAX {
            return Ok(());
        }
        fs::create_dir_all(&self.folder)?;
        let mut file = tempfile::NamedTempFile::new_in(&self.folder)?;
        write!(file, "{}\n{body}", BlobId::of(body.as_bytes()).0)?;
        file.persist(self.folder.join(key))?;
        Ok(())
    }
}

/// The file system's own time, which the entries' times are compared with.
fn now() -> SystemTime {
    tempfile::tempfile().and_then(|file| file.metadata()?.modified()).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Looks for a result that stands for a node's work.
pub(super) async fn look_up(task: &Task, step: &PlannedStep) -> Result<LookedUp, Trouble> {
    let begun = task.state.conversation.brief().is_some() || task.state.deeds.captured.is_some();
    let Some(key) = key(task, step).await? else { return Ok(LookedUp::Miss(None)) };
    if begun || !task.services.cache.reads {
        return Ok(LookedUp::Miss(Some(key)));
    }
    let Some(entry) = task.services.cache.get(&key.hash) else { return Ok(LookedUp::Miss(Some(key))) };
    let Ok(captured) = applied(task, &key, entry.change.clone()).await? else { return Ok(LookedUp::Miss(Some(key))) };
    task.record(Event::CacheHit { node: task.node.clone(), key: key.hash.clone(), run: entry.run }).await?;
    let commit = match captured {
        None => None,
        Some(captured) => {
            place::start(task, Isolation::Cache).await?;
            place::record_work(task, captured).await?
        }
    };
    Ok(LookedUp::Hit(Success { output: entry.output.into(), commit }))
}

/// Keeps the result of work that was done. What cannot be kept is done again the next time.
pub(super) async fn keep(task: &Task, key: Option<Key>, success: &Success) {
    let Some(key) = key else { return };
    // Where a secret was taken out of it, it is not the whole result.
    if task.services.secrets.marks(&success.output.to_string()) {
        return;
    }
    let change = success.commit.clone().zip(key.base).map(|(commit, base)| Span { base, commit });
    let entry = Entry { run: task.run.run.clone(), output: (*success.output).clone(), change };
    let (services, name) = (task.services.clone(), ref_of(&REFS.into(), &key.hash, "result"));
    let kept = blocking(FailureKind::Environment, move || {
        if let Some(change) = &entry.change {
            services.repo.set_ref(&name, &change.commit, Expected::Any).map_err(|error| error.to_string())?;
        }
        services.cache.put(&key.hash, &entry).map_err(|error| error.to_string())
    });
    if let Err(Trouble::Failed(failure)) = kept.await {
        tracing::warn!(target: trace::TARGET, "the result of {} could not be kept for later runs: {}", task.node, failure.message);
    }
}

/// Returns what a node's result is kept under; `None` where its step keeps none.
async fn key(task: &Task, step: &PlannedStep) -> Result<Option<Key>, Trouble> {
    if !is_kept(step) {
        return Ok(None);
    }
    let services = &task.services;
    let globs = globs(step, &task.scope)?;
    let base = if globs.is_empty() && !step.writes { None } else { Some(place::base(task).await?) };
    let inputs = match base.clone().filter(|_| !globs.is_empty()) {
        Some(base) => {
            let repo = services.repo.clone();
            blocking(FailureKind::Template, move || files(&repo, &base, &globs)).await?
        }
        None => Vec::new(),
    };
    let makings = Makings {
        plan: &task.plan,
        scope: &task.scope,
        shelf: &services.shelf,
        env: &services.env,
        secrets: &services.secrets,
        pins: &task.run.pins,
        script: task.run.script.as_ref(),
    };
    let agent = match &step.work {
        Work::Agent { agent, .. } => Some(task.agent(step, agent)),
        _ => None,
    };
    Ok(Some(Key { hash: makings.hash(step, agent, &inputs)?, base }))
}

/// Returns whether results of a step are kept at all.
pub(crate) fn is_kept(step: &PlannedStep) -> bool {
    step.cache.is_some() && matches!(step.work, Work::Agent { .. } | Work::Run { .. })
}

/// Returns the globs of the files that a step's key is made from.
fn globs(step: &PlannedStep, scope: &prompts::Scope) -> Result<Vec<String>, Failure> {
    step.cache.iter().flat_map(|cache| &cache.inputs).map(|text| rendered(scope, "cache.inputs", &text.value)).collect()
}

/// What a key is made from besides the step and its files.
#[derive(Clone, Copy)]
pub(crate) struct Makings<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) scope: &'a prompts::Scope,
    pub(crate) shelf: &'a Shelf,
    /// What commands get of the user's own environment.
    pub(crate) env: &'a BTreeMap<String, String>,
    pub(crate) secrets: &'a Secrets,
    pub(crate) pins: &'a BTreeMap<String, String>,
    pub(crate) script: Option<&'a BlobId>,
}

impl Makings<'_> {
    fn hash(&self, step: &PlannedStep, agent: Option<&Arc<AgentSpec>>, inputs: &[(String, String)]) -> Result<String, Failure> {
        let render = |what: &str, text: &str| rendered(self.scope, what, text);
        let all = |texts: &[Spanned<String>]| texts.iter().map(|text| render("cache", &text.value)).collect::<Result<Vec<_>, _>>();
        let parts = all(step.cache.as_ref().map(|cache| cache.key.as_slice()).unwrap_or_default())?;
        let work = match (&step.work, agent) {
            (Work::Agent { prompt, .. }, Some(agent)) => {
                let agent = chosen(self.plan, self.scope, agent)?;
                let system = system(self.shelf, self.plan, &agent, step.output_schema.as_deref());
                let others = self.plan.agents.values().filter(|_| may_delegate(&agent));
                let others: Vec<Value> = others.map(|other| self.agent(other, &other.system)).collect();
                json!({"prompt": render("prompt", &prompt.value)?, "agent": self.agent(&agent, &system), "may_start": others, "script": self.script})
            }
            (Work::Run { command }, _) => json!({"run": render("run", &command.value)?}),
            _ => Value::Null,
        };
        let own = place::rendered_env(step, self.scope, self.secrets)?;
        let mut env = self.env.clone();
        env.extend(own);
        for value in env.values_mut() {
            *value = self.secrets.text(value).into_owned();
        }
        let verify = step.verify.as_ref().map(|verify| all(&verify.run)).transpose()?;
        let (setup, scope) = (all(&step.workspace.setup)?, place::globs(step, self.scope)?);
        let made_of = json!({
            "form": FORM, "key": parts, "inputs": inputs, "work": work, "env": env, "verify": verify, "setup": setup, "scope": scope,
            "cwd": step.cwd.as_ref().map(|text| &text.value), "schema": step.output_schema, "parse": step.parse.map(|parse| format!("{parse:?}")),
            "writes": step.writes, "kind": format!("{:?}", step.workspace.kind), "sparse": all(&step.workspace.sparse)?,
        });
        Ok(BlobId::of(made_of.to_string().as_bytes()).0)
    }

    /// What an agent is.
    fn agent(&self, agent: &AgentSpec, system: &str) -> Value {
        let named = |kind: &str, names: &[String]| {
            let pins = names.iter().map(|name| format!("{kind}:{name}"));
            pins.map(|name| self.pins.get(&name).cloned().unwrap_or(name)).collect::<Vec<_>>()
        };
        let skills: Vec<&str> = agent.skills.iter().filter_map(|name| Some(self.shelf.get(name)?.body.as_str())).collect();
        let mut made_of = json!({
            "models": agent.model.choices, "effort": agent.model.effort, "system": system, "tools": agent.tools, "provider_tools": agent.provider_tools,
            "rules": [agent.rules.allow, agent.rules.ask, agent.rules.deny], "access": format!("{:?}", agent.access),
            "skills": skills, "skill_files": named("skill", &agent.skills), "hooks": named("hook", &agent.hooks),
            "cwd": agent.cwd.as_ref().map(|text| &text.value),
        });
        if !agent.servers.is_empty() {
            made_of["servers"] = agent.servers.iter().map(|(name, server)| server.made_of(name)).collect();
        }
        if agent.sandbox != SandboxSpec::default() {
            made_of["sandbox"] = json!([agent.sandbox.network.made_of(), agent.sandbox.read, agent.sandbox.write]);
        }
        made_of
    }
}

/// Returns the run whose result would stand for a node's work, before it is begun; it starts from `base`.
///
/// # Errors
/// Where a template reads what is not known yet, or the repository cannot be read.
pub(crate) fn foresee(store: &Store, repo: &Repository, step: &PlannedStep, makings: Makings<'_>, base: &CommitId) -> Result<Option<RunId>, String> {
    let globs = globs(step, makings.scope).map_err(|failure| failure.message)?;
    let inputs = if globs.is_empty() { Vec::new() } else { files(repo, base, &globs)? };
    let agent = if let Work::Agent { agent, .. } = &step.work { Some(agent) } else { None };
    let hash = makings.hash(step, agent, &inputs).map_err(|failure| failure.message)?;
    let Some(entry) = store.read(&hash) else { return Ok(None) };
    let fits = match &entry.change {
        Some(change) => changes(repo, change, base).map_err(|error| error.to_string())?.is_some(),
        None => true,
    };
    Ok(fits.then_some(entry.run))
}

/// Returns the files of a commit that some globs name, with their content's hashes.
fn files(repo: &Repository, commit: &CommitId, globs: &[String]) -> Result<Vec<(String, String)>, String> {
    let globs = Scope::compile(globs).map_err(|error| format!("`cache.inputs`: {error}"))?;
    let files = repo.files(commit).map_err(|error| format!("list the files of {commit}: {error}"))?;
    let named = files.into_iter().filter(|(path, _)| globs.contains(path));
    Ok(named.map(|(path, blob)| (path, format!("{:?} {}", blob.mode, blob.id))).collect())
}

/// Puts a kept change onto the commit that a node starts from; `Err` inside where it does not fit.
async fn applied(task: &Task, key: &Key, change: Option<Span>) -> Result<Result<Option<Captured>, ()>, Trouble> {
    let (Some(change), Some(onto)) = (change, key.base.clone()) else { return Ok(Ok(None)) };
    let (repo, meta) = (task.services.repo.clone(), place::meta(task, place::Author::default()));
    blocking(FailureKind::Environment, move || {
        let Some(touched) = changes(&repo, &change, &onto)? else { return Ok(Err(())) };
        let tree = repo.tree_of(&onto)?;
        let edit = |change: &Change| {
            let entry = change.after.as_ref().map(|blob| Ok::<_, GitError>((blob.mode, repo.blob(&blob.id)?))).transpose()?;
            Ok::<Edit, GitError>((change.path.clone(), entry))
        };
        let edits = touched.iter().map(edit).collect::<Result<Vec<Edit>, _>>()?;
        let commit = repo.commit_tree(&repo.tree_with(&tree, &edits)?, std::slice::from_ref(&onto), &meta)?;
        Ok::<_, GitError>(Ok(Some(Captured { commit: Some(commit), paths: touched.into_iter().map(|change| change.path).collect() })))
    })
    .await
}

/// Returns what a kept change does to its paths; `None` where one of them is another than it was.
fn changes(repo: &Repository, change: &Span, onto: &CommitId) -> Result<Option<Vec<Change>>, GitError> {
    if !repo.has_commit(&change.commit)? || !repo.has_commit(&change.base)? {
        return Ok(None);
    }
    let (before, after, tree) = (repo.tree_of(&change.base)?, repo.tree_of(&change.commit)?, repo.tree_of(onto)?);
    let touched = repo.changes(&before, &after)?;
    let overlaps =
        |a: &str, b: &str| a == b || a.strip_prefix(b).is_some_and(|rest| rest.starts_with('/')) || b.strip_prefix(a).is_some_and(|rest| rest.starts_with('/'));
    let moved = repo.changes(&before, &tree)?;
    let links = touched.iter().flat_map(|change| [&change.before, &change.after]).flatten().any(|blob| blob.mode == Mode::Gitlink);
    let clash = links || moved.iter().any(|other| touched.iter().any(|own| overlaps(&own.path, &other.path)));
    Ok((!clash).then_some(touched))
}
