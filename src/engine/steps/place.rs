//! Where a step works, and how what it did becomes a commit.
use super::{
    Services, Task,
    command::{Around, Checked},
    cut,
    hold::Writes,
    rendered,
};
use crate::{
    agent::{Coming, Trouble, blocking},
    event::{Brief, CommitId, Event, Failure, FailureKind, Isolation, NodeId, RunId, because},
    git::{Bring, CaptureError, Captured, CommitMeta, Content, GitError, Repository, Scope, TreePolicy, Workspaces, Worktree, ref_of},
    journal::SETUP,
    merge,
    plan::{PlannedStep, Work},
    prompts,
    secrets::Secrets,
    source::Spanned,
    trace,
    workflow::{self, Base, Workspace, WorkspaceKind},
};
use futures_util::FutureExt as _;
use serde_json::Value;
use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
    sync::Arc,
};

/// How the names of read-only views begin.
pub(crate) const VIEW_PREFIX: &str = "view-";

/// Bytes of a command that are recorded.
const COMMAND_BYTES: usize = 16 * 1024;

/// Where a step works.
#[derive(Debug, Clone)]
pub(crate) struct Workplace {
    /// Its own worktree; absent for readers.
    pub(crate) worktree: Option<Arc<Worktree>>,
    /// The top folder.
    pub(crate) root: PathBuf,
    /// A folder inside it where the step stands.
    pub(crate) cwd: Option<PathBuf>,
    /// The commit it starts from.
    pub(crate) base: Option<CommitId>,
    /// Globs it may write.
    pub(crate) scope: Option<Vec<String>>,
    /// The whole environment of its commands.
    pub(crate) env: BTreeMap<String, String>,
    /// Set where the files are still being put there: to be awaited before anything looks at them.
    pub(crate) coming: Option<Coming>,
    /// What is linked into it.
    pub(crate) links: Vec<PathBuf>,
}

impl Workplace {
    /// Returns what surrounds a command in it.
    pub(super) fn around(&self) -> Around<'_> {
        Around { root: &self.root, cwd: self.cwd(), writes: Writes::All, links: &self.links, env: &self.env }
    }

    /// Returns where the step stands.
    pub(crate) fn cwd(&self) -> &Path {
        self.cwd.as_deref().unwrap_or(&self.root)
    }
}

/// Makes a step's workplace, or finds it again after a crash.
///
/// `command` is what is to run there, where the step is a command.
pub(super) async fn make(task: &Task, step: &PlannedStep, command: Option<&str>) -> Result<Workplace, Trouble> {
    let env = environment(task, step)?;
    let scope = globs(step, &task.scope)?;
    if step.workspace.kind == WorkspaceKind::None {
        if let (Some(command), None) = (command, &task.state.deeds.workspace) {
            let command = Some(cut(command, COMMAND_BYTES, "the command"));
            let (node, base) = (task.node.clone(), task.base().clone());
            task.record(Event::WorkspaceMade { node, base, isolation: Isolation::None, path: String::new(), command }).await?;
        }
        return Ok(Workplace { worktree: None, root: task.services.nowhere.clone(), cwd: None, base: None, scope, env, coming: None, links: Vec::new() });
    }
    let base = match &task.state.deeds.workspace {
        Some(workspace) => workspace.base.clone(),
        None => base(task).await?,
    };
    // A command may write where it likes in its own copy; a reading agent shares a view with the others.
    // Who has files of the checkout brought in needs a copy too, and whose setup may change files that others read.
    let Workspace { kind, copy, link, sparse, setup, .. } = &step.workspace;
    let brings = !copy.is_empty() || !link.is_empty() || !setup.is_empty();
    let only = if sparse.is_empty() { None } else { Some(named(task, "sparse", sparse)?) };
    let own = only.is_some() || step.writes || matches!(step.work, Work::Run { .. }) || *kind == WorkspaceKind::Worktree || brings;
    let mut coming = None;
    let (worktree, root) = if own {
        let workspaces = only.map_or_else(|| task.services.workspaces.clone(), |only| task.services.workspaces.clone().only(only));
        let slug = slug(&task.node, task.state.attempts);
        let mut worktree = open_in(workspaces.clone(), (&slug, &base), task.state.deeds.workspace.is_none()).await?;
        if task.state.deeds.workspace.is_some() && task.state.conversation.brief().is_none() {
            worktree = anew(workspaces, worktree).await?;
        }
        let _ = task.own.set(base.clone());
        (Some(worktree.clone()), worktree.path().to_owned())
    } else {
        // A reader's first request does not wait for its files; its first call does.
        let (services, commit) = (task.services.clone(), base.clone());
        coming = Some(
            async move {
                match view(&services, &commit).await {
                    Ok(_) => Ok(()),
                    Err(Trouble::Failed(failure)) => Err(failure),
                    Err(Trouble::Parked | Trouble::Interrupted) => Err(Failure::new(FailureKind::Isolation, "make the view: it was interrupted")),
                }
            }
            .boxed()
            .shared(),
        );
        (None, task.services.workspaces.path(&view_slug(&base)))
    };
    if task.state.deeds.workspace.is_none() {
        let event = Event::WorkspaceMade {
            node: task.node.clone(),
            base: base.clone(),
            isolation: if own { task.services.workspaces.isolation().into() } else { Isolation::View },
            path: root.display().to_string(),
            command: command.map(|command| cut(command, COMMAND_BYTES, "the command")),
        };
        task.record(event).await?;
    }
    let links = match &worktree {
        Some(worktree) if !copy.is_empty() || !link.is_empty() => bring(task, step, worktree).await?,
        Some(_) | None => Vec::new(),
    };
    let of_agent = if let Work::Agent { agent, .. } = &step.work { agent.cwd.as_ref() } else { None };
    let own_cwd = step.cwd.as_ref().or(of_agent);
    if let Some(view) = coming.as_ref().filter(|_| own_cwd.is_some()) {
        view.clone().await?;
    }
    let cwd = match own_cwd {
        None => None,
        Some(text) => Some(inside(&root, &task.render("cwd", &text.value)?)?),
    };
    let place = Workplace { worktree, root, cwd, base: Some(base), scope, env, coming, links };
    prepare(task, step, &place).await?;
    Ok(place)
}

/// Brings ignored files of the user's checkout into a worktree, and returns where links to them lead.
async fn bring(task: &Task, step: &PlannedStep, worktree: &Arc<Worktree>) -> Result<Vec<PathBuf>, Trouble> {
    let bring = Bring { copy: named(task, "copy", &step.workspace.copy)?, link: named(task, "link", &step.workspace.link)? };
    let (workspaces, worktree) = (task.services.workspaces.clone(), worktree.clone());
    blocking(FailureKind::Isolation, move || workspaces.bring(&worktree, &bring)).await
}

/// Compiles globs that may be templates.
fn named(task: &Task, what: &str, texts: &[Spanned<String>]) -> Result<Scope, Trouble> {
    let texts = texts.iter().map(|text| task.render(what, &text.value)).collect::<Result<Vec<_>, _>>()?;
    Ok(compiled(what, &texts)?)
}

fn compiled(what: &str, globs: &[String]) -> Result<Scope, Failure> {
    Scope::compile(globs).map_err(|error| {
        let failure = Failure::new(FailureKind::Template, format!("`{what}`: failed to {}", because(&error)));
        if let Some(hint) = error.hint() { failure.hint(hint) } else { failure }
    })
}

fn inside(root: &Path, folder: &str) -> Result<PathBuf, Trouble> {
    let wrong = |why: &str| Trouble::Failed(Failure::new(FailureKind::Isolation, format!("`cwd` is `{folder}`, which {why}")));
    let path = root.join(folder).canonicalize().map_err(|_| wrong("is not there"))?;
    let root = root.canonicalize().map_err(|_| wrong("is not there"))?;
    if path.starts_with(&root) { Ok(path) } else { Err(wrong("is outside the workspace")) }
}

/// Runs the setup commands, once an attempt. What they make is nobody's work.
async fn prepare(task: &Task, step: &PlannedStep, place: &Workplace) -> Result<(), Trouble> {
    if step.workspace.setup.is_empty() || task.state.conversation.brief().is_some() {
        return Ok(());
    }
    set_up(task, SETUP, step, place.around()).await?;
    let Some(worktree) = place.worktree.clone().filter(|_| step.writes) else { return Ok(()) };
    let workspaces = task.services.workspaces.clone();
    blocking(FailureKind::Isolation, move || workspaces.note_prepared(&worktree).map_err(|error| format!("note what setup has made: {error}"))).await
}

async fn set_up(task: &Task, at: &str, step: &PlannedStep, around: Around<'_>) -> Result<(), Trouble> {
    let commands = step.workspace.setup.iter().map(|text| task.render("setup", &text.value)).collect::<Result<Vec<_>, _>>()?;
    let checked = super::command::check(task, at, &commands, around).await?;
    if checked.passed { Ok(()) } else { Err(Failure::new(FailureKind::Isolation, format!("the workspace's setup failed: {}", checked.tail)).into()) }
}

/// Runs checks in a tree of their own that has the files of a commit and is prepared as the step says; nothing of it stays.
pub(super) async fn check_apart(
    task: &Task,
    step: &PlannedStep,
    (name, commit): (&str, &CommitId),
    commands: &[String],
    env: &BTreeMap<String, String>,
) -> Result<Checked, Trouble> {
    let slug = format!("{}.{name}-{}", task.node.slug(), &commit.0[..commit.0.len().min(12)]);
    // One that is there was left by a process that died in the middle of the checks.
    discard_named(&task.services, BTreeSet::from([slug.clone()])).await;
    let worktree = open(&task.services, (&slug, commit), true).await?;
    let checked = async {
        let Workspace { copy, link, .. } = &step.workspace;
        let links = if copy.is_empty() && link.is_empty() { Vec::new() } else { bring(task, step, &worktree).await? };
        let around = Around { root: worktree.path(), cwd: worktree.path(), writes: Writes::All, links: &links, env };
        set_up(task, name, step, around).await?;
        super::command::check(task, name, commands, around).await
    };
    let checked = checked.await;
    discard(&task.services, worktree).await;
    checked
}

/// Works out the commit that a step without files of its own starts from, and records it.
pub(super) async fn start(task: &Task, isolation: Isolation) -> Result<CommitId, Trouble> {
    if let Some(workspace) = &task.state.deeds.workspace {
        return Ok(workspace.base.clone());
    }
    let base = base(task).await?;
    task.record(Event::WorkspaceMade { node: task.node.clone(), base: base.clone(), isolation, path: String::new(), command: None }).await?;
    Ok(base)
}

/// Returns the one commit that a step starts from: the joined result of what it needs.
pub(super) async fn base(task: &Task) -> Result<CommitId, Trouble> {
    let (repo, tips) = (task.services.repo.clone(), task.tips.clone());
    let asked = task.plan.step(&task.node.step).map(|step| &step.workspace.base);
    let base = match asked.filter(|_| tips.is_empty() && *task.base() == task.run.base) {
        None | Some(Base::Head) => task.base().clone(),
        Some(Base::Dirty) => {
            let (repo, base, run, secrets) = (repo.clone(), task.base().clone(), task.run.run.clone(), task.services.secrets.clone());
            blocking(FailureKind::Isolation, move || repo.dirty(&base, &run, &secrets).map_err(|error| format!("take what the checkout has: {error}"))).await?
        }
        Some(Base::Ref(name)) => {
            let (repo, name) = (repo.clone(), task.render("base", &name.value)?);
            blocking(FailureKind::Isolation, move || repo.resolve(&name).map_err(|error| format!("start from `{name}`: {error}"))).await?
        }
    };
    blocking(FailureKind::Merge, move || merge::join(&repo, &base, &tips).map_err(|error| format!("join the results this step starts from: {error}"))).await
}

/// Names the view of a commit.
fn view_slug(commit: &CommitId) -> String {
    format!("{VIEW_PREFIX}{}", &commit.0[..commit.0.len().min(16)])
}

/// Returns a read-only view of a commit, shared by all readers of it.
pub(crate) async fn view(services: &Services, commit: &CommitId) -> Result<PathBuf, Trouble> {
    let (views, workspaces, commit) = (services.views.clone(), services.workspaces.clone(), commit.clone());
    // All of it off the scheduler: a view that nobody waits for any more is made to its end, and known to the next reader.
    blocking(FailureKind::Isolation, move || {
        let mut views = views.lock().map_err(|_| "make the worktree: an earlier one panicked".to_owned())?;
        if let Some(root) = views.get(&commit) {
            return Ok::<_, String>(root.clone());
        }
        let slug = view_slug(&commit);
        // Nobody knows what became of it since the process that made it.
        if workspaces.path(&slug).is_dir() {
            workspaces.renew(&slug, &commit).map_err(|error| format!("put the files of the view back: {error}"))?;
        }
        let made = workspaces.open(&slug, &commit).map_err(|error| format!("make the worktree: {error}"))?;
        let root = made.path().to_owned();
        views.insert(commit, root.clone());
        Ok(root)
    })
    .await
}

/// Makes a worktree, or finds it again after a crash; one that `is_new` is spoken of by no record yet.
pub(super) async fn open(services: &Services, worktree: (&str, &CommitId), is_new: bool) -> Result<Arc<Worktree>, Trouble> {
    open_in(services.workspaces.clone(), worktree, is_new).await
}

async fn open_in(workspaces: Workspaces, (slug, base): (&str, &CommitId), is_new: bool) -> Result<Arc<Worktree>, Trouble> {
    let (slug, base) = (slug.to_owned(), base.clone());
    blocking(FailureKind::Isolation, move || {
        let made = if is_new { workspaces.fresh(&slug, &base) } else { workspaces.open(&slug, &base) };
        made.map(Arc::new).map_err(|error| format!("make the worktree: {error}"))
    })
    .await
}

/// Makes a worktree again that a process left when it died: what commands did in it, whole or in part, is not known, and
/// they start from the beginning.
async fn anew(workspaces: Workspaces, worktree: Arc<Worktree>) -> Result<Arc<Worktree>, Trouble> {
    blocking(FailureKind::Isolation, move || {
        workspaces.remove(&worktree, Content::Discard)?;
        workspaces.open(worktree.slug(), worktree.base()).map(Arc::new)
    })
    .await
}

/// Says that a worktree is gone, and by which ref what its last checkpoint has is kept.
pub(crate) fn lost_worktree(repo: &Repository, (run, slug): (&RunId, &str), path: &Path) -> Result<String, GitError> {
    let checkpoint = ref_of(run, slug, "checkpoint");
    let left = match repo.ref_at(&checkpoint)? {
        Some(_) => format!("what it had at its last checkpoint is kept by `{checkpoint}`"),
        None => "with it what was done there".to_owned(),
    };
    if path.is_dir() {
        return Ok(format!("nothing is noted of its worktree any more, whose files stay at {}; {left}", path.display()));
    }
    Ok(format!("its worktree is gone, and {left}; it stood at {}", path.display()))
}

/// Names the worktree of an attempt.
pub(crate) fn slug(node: &NodeId, attempt: u32) -> String {
    format!("{}.{attempt}", node.slug())
}

pub(super) fn environment(task: &Task, step: &PlannedStep) -> Result<BTreeMap<String, String>, Trouble> {
    let mut env = task.services.env.clone();
    env.extend(rendered_env(step, &task.scope, &task.services.secrets)?);
    Ok(env)
}

/// Returns the variables that a step asks for; of a name that stands twice the last counts.
pub(super) fn rendered_env(step: &PlannedStep, scope: &prompts::Scope, secrets: &Secrets) -> Result<Vec<(String, String)>, Failure> {
    let scope = with_secrets(scope, secrets);
    step.env.iter().map(|(name, text)| Ok((name.clone(), rendered(&scope, &format!("env.{name}"), &text.value)?))).collect()
}

/// Shows templates the values of secrets: only those whose text nobody but a process or a server gets.
pub(super) fn with_secrets(scope: &prompts::Scope, secrets: &Secrets) -> prompts::Scope {
    let values = secrets.values().map(|(name, value)| (name.to_owned(), Value::from(value))).collect();
    scope.clone().with("secrets", Value::Object(values))
}

/// Returns the globs that a step may write, each of which was read: nothing runs under one that says nothing.
pub(crate) fn globs(step: &PlannedStep, scope: &prompts::Scope) -> Result<Option<Vec<String>>, Failure> {
    let globs = rendered_globs(step, scope)?;
    globs.as_deref().map(|globs| compiled("scope", globs)).transpose()?;
    Ok(globs)
}

fn rendered_globs(step: &PlannedStep, scope: &prompts::Scope) -> Result<Option<Vec<String>>, Failure> {
    let wrong = |why: String| Failure::new(FailureKind::Template, format!("`scope`: {why}"));
    match step.scope.as_ref().map(|scope| &scope.value) {
        None => Ok(None),
        Some(workflow::Scope::Globs(globs)) => globs.iter().map(|glob| rendered(scope, "scope", &glob.value)).collect::<Result<_, _>>().map(Some),
        Some(workflow::Scope::Template(text)) => match prompts::evaluate(text, scope).map_err(|error| wrong(error.to_string()))? {
            Value::Array(globs) => globs
                .iter()
                .map(|glob| glob.as_str().map(str::to_owned).ok_or_else(|| wrong(format!("{glob} is not text"))))
                .collect::<Result<_, _>>()
                .map(Some),
            other => Err(wrong(format!("it gave {other}, not a list of globs"))),
        },
    }
}

/// Whose work a commit is, where an agent did it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Author<'a> {
    /// What it was told.
    pub(super) brief: Option<&'a Brief>,
    /// The model that answered.
    pub(super) model: Option<&'a str>,
}

/// Commits a worktree's files; `Err` inside is what the tree policy has against it.
pub(super) async fn capture(task: &Task, worktree: &Arc<Worktree>, place: &Workplace, author: Author<'_>) -> Result<Result<Captured, String>, Trouble> {
    let policy = match &place.scope {
        None => TreePolicy::default(),
        Some(globs) => TreePolicy::within(globs).map_err(|error| Failure::of(FailureKind::Template, &error))?,
    };
    let meta = meta(task, author);
    let (workspaces, worktree) = (task.services.workspaces.clone(), worktree.clone());
    blocking(FailureKind::Environment, move || match workspaces.capture(&worktree, worktree.base(), &policy, &meta) {
        Ok(captured) => Ok(Ok(captured)),
        Err(policy @ CaptureError::Policy(_)) => Ok(Err(policy.to_string())),
        Err(CaptureError::Git(error)) => Err(format!("commit the work: {error}")),
    })
    .await
}

/// The same work gives the same commit: dated by the beginning of the attempt.
pub(super) fn meta(task: &Task, author: Author<'_>) -> CommitMeta {
    let asked = || author.brief.and_then(|brief| asked(&brief.message.text()));
    let title = task.state.item.as_ref().and_then(|item| item.title()).map(str::to_owned).or_else(asked).unwrap_or_else(|| format!("Work of {}", task.node));
    let step = task.plan.step(&task.node.step);
    let agent = step.and_then(|step| if let Work::Agent { agent, .. } = &step.work { Some(agent) } else { None });
    CommitMeta::of_work(&task.run.run, &task.node, &title, task.state.began.unwrap_or_default()).by(
        task.state.attempts,
        agent.map(|agent| agent.name.as_str()),
        author.model,
    )
}

/// Returns the first line of what an agent was asked to do, as a commit's title; the engine's words on the workspace are not it.
fn asked(brief: &str) -> Option<String> {
    const TITLE: usize = 72;
    let task = brief.split_once("</workspace>").map_or(brief, |(_, task)| task);
    let line = task.lines().map(str::trim).find(|line| !line.is_empty())?;
    Some(if line.chars().count() <= TITLE { line.to_owned() } else { format!("{}…", line.chars().take(TITLE - 1).collect::<String>().trim_end()) })
}

/// Returns the files of a worktree that nobody keeps and that are not as in the commit it was made of, as far as that can be told.
pub(super) async fn dropped(task: &Task, worktree: &Arc<Worktree>) -> Vec<String> {
    const LISTED: usize = 20;
    let (workspaces, worktree) = (task.services.workspaces.clone(), worktree.clone());
    match blocking(FailureKind::Environment, move || workspaces.differing(&worktree)).await {
        Ok(paths) => paths.into_iter().take(LISTED).collect(),
        Err(Trouble::Failed(failure)) => {
            tracing::warn!(target: trace::TARGET, "what {} changed cannot be told: {}", task.node, failure.message);
            Vec::new()
        }
        Err(Trouble::Parked | Trouble::Interrupted) => Vec::new(),
    }
}

/// Records a commit of work, then keeps it by a ref. A death in between is mended on resume, from the record.
pub(super) async fn record_work(task: &Task, captured: Captured) -> Result<Option<CommitId>, Trouble> {
    let Some(commit) = captured.commit else { return Ok(None) };
    task.record(Event::WorkCaptured { node: task.node.clone(), commit: commit.clone(), paths: captured.paths }).await?;
    let _ = task.captured.set(commit.clone());
    keep_result(task, &commit).await?;
    Ok(Some(commit))
}

/// Sets the ref that keeps a node's result, in which the checkpoint of its attempt ends.
pub(super) async fn keep_result(task: &Task, commit: &CommitId) -> Result<(), Trouble> {
    let name = task.services.workspaces.ref_name(&task.node.slug(), "result");
    let (workspaces, slug, commit) = (task.services.workspaces.clone(), slug(&task.node, task.state.attempts), commit.clone());
    blocking(FailureKind::Environment, move || workspaces.finish(&slug, (&name, &commit))).await
}

/// Removes the private copy of a step that makes no commit, however it ended: what was changed there is lost.
pub(super) async fn drop_scratch(task: &Task, step: &PlannedStep) {
    if !step.writes && task.own.get().is_some() {
        discard_named(&task.services, BTreeSet::from([slug(&task.node, task.state.attempts)])).await;
    }
}

/// Removes those worktrees of the names that there are; their content is given up.
pub(super) async fn discard_named(services: &Services, slugs: BTreeSet<String>) {
    let workspaces = services.workspaces.clone();
    let removed = blocking(FailureKind::Environment, move || {
        workspaces.slugs()?.iter().filter(|slug| slugs.contains(*slug)).try_for_each(|slug| workspaces.discard(slug))
    });
    if let Err(Trouble::Failed(failure)) = removed.await {
        tracing::warn!(target: trace::TARGET, "a worktree could not be removed: {}", failure.message);
    }
}

/// Removes a worktree whose content is given up.
pub(super) async fn discard(services: &Services, worktree: Arc<Worktree>) {
    let workspaces = services.workspaces.clone();
    let removed = blocking(FailureKind::Environment, move || workspaces.remove(&worktree, Content::Discard)).await;
    if let Err(Trouble::Failed(failure)) = removed {
        tracing::warn!(target: trace::TARGET, "a worktree could not be removed: {}", failure.message);
    }
}
