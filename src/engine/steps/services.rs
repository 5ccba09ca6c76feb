//! What the steps of a run share, built once.
use super::{
    super::{
        inbox::Inbox,
        people::{Asker, Spoken},
        token::Tokens,
        walls,
    },
    Workplace,
    hold::{self, Writes},
    shelf::OpenShelf,
};
use crate::{
    agent::{Account, Equipment, Session, Watcher},
    clock::{Clock, Pulse},
    event::{CommitId, Event, Failure, FailureKind, NodeId, Record, RunStarted},
    git::{Repository, Scope, Workspaces},
    hooks::{Hooks, Permissions, RuleContext},
    journal::{Blobs, Recorder, RunDir},
    llm::Model,
    plan::AgentSpec,
    sandbox::{Confinement, Sandbox, Walls},
    secrets::Secrets,
    skills::Shelf,
    tasks,
    tools::{Hidden, ShellPolicy, ToolContext, Toolbox},
    trace,
    workflow::Access,
};
use serde_json::Value;
use std::{
    collections::{BTreeMap, HashMap},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};
use tokio_util::sync::CancellationToken;

/// Characters of the skill list in a system text.
const SKILLS_CHARS: usize = 16_000;

/// The files that a run keeps of its outputs, and whose each is.
pub struct Artefacts {
    /// Where they stand.
    pub(crate) folder: PathBuf,
    owners: std::sync::Mutex<HashMap<String, NodeId>>,
}

impl Artefacts {
    /// Uses a folder; it is made with the first file.
    pub(crate) fn below(folder: PathBuf) -> Artefacts {
        Artefacts { folder, owners: std::sync::Mutex::default() }
    }

    /// Gives the names back to the nodes that had them before the process died.
    pub(crate) fn recall(&self, records: &[Record]) {
        let mut owners = self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        for record in records {
            if let Event::ArtefactKept { node, name, .. } = &record.event {
                owners.entry(name.clone()).or_insert_with(|| node.clone());
            }
        }
    }

    /// Gives a name to a node, and returns whether nobody had it; what is inside of something that is tried again has its
    /// name again. An error is whose it is.
    pub(crate) fn claim(&self, name: &str, node: &NodeId) -> Result<bool, NodeId> {
        let mut owners = self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_new = !owners.contains_key(name);
        let owner = owners.entry(name.to_owned()).or_insert_with(|| node.clone());
        let place = |node: &NodeId| node.within.iter().map(|frame| (frame.step.clone(), frame.item.clone(), frame.round)).collect::<Vec<_>>();
        if (&owner.step, &owner.item, place(owner)) == (&node.step, &node.item, place(node)) { Ok(is_new) } else { Err(owner.clone()) }
    }

    /// Takes a name back under which nothing was kept.
    pub(crate) fn release(&self, name: &str) {
        self.owners.lock().unwrap_or_else(std::sync::PoisonError::into_inner).remove(name);
    }
}

/// What the steps of a run share.
pub struct Services {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// All tools.
    pub toolbox: Arc<Toolbox>,
    /// All hooks.
    pub hooks: Arc<Hooks>,
    /// All skills.
    pub shelf: Arc<Shelf>,
    /// Who answers questions.
    pub asker: Arc<dyn Asker>,
    /// The letters of people.
    pub inbox: Inbox,
    /// Tokens for questions.
    pub tokens: Tokens,
    /// What people have said to agents.
    pub words: Arc<Spoken>,
    /// Whoever watches what is under way.
    pub watcher: Arc<dyn Watcher>,
    /// Time.
    pub clock: Clock,
    /// The repository.
    pub repo: Repository,
    /// The run's worktrees.
    pub workspaces: Workspaces,
    /// Where whole outputs go.
    pub blobs: Arc<Blobs>,
    /// Where outputs are kept as files.
    pub artefacts: Artefacts,
    /// The results of earlier runs.
    pub(crate) cache: super::CacheStore,
    /// What starts processes.
    pub sandbox: Sandbox,
    /// The environment of commands, clean of keys.
    pub env: BTreeMap<String, String>,
    /// Values that only the processes of a step get that asks for them.
    pub secrets: Secrets,
    /// How commands are walled in; absent where they are not.
    pub walls: Option<Walls>,
    /// Whether an agent's shell may do anything without asking.
    pub free_shell: bool,
    /// Whether it may only since there are no walls to be had, and nobody but a script says what it does.
    pub lifted: bool,
    /// Whether what a command does beyond its worktree stays: there are no walls around it.
    pub reaches_out: bool,
    /// The run's folder.
    pub dir: RunDir,
    /// The main checkout.
    pub project: PathBuf,
    /// The user's home, for rules that name it.
    pub home: Option<PathBuf>,
    /// An empty folder, for steps without a workspace.
    pub nowhere: PathBuf,
    /// The caches of commands inside the walls; they go when the run is over.
    pub caches: PathBuf,
    /// Read-only views by commit.
    pub views: Arc<Mutex<HashMap<CommitId, PathBuf>>>,
}

/// Whose session it is, and what ends it.
#[derive(Clone, Copy)]
pub(crate) struct Whose<'a> {
    pub(crate) node: &'a NodeId,
    pub(crate) run: &'a RunStarted,
    pub(crate) cancel: &'a CancellationToken,
    pub(crate) pulse: &'a Pulse,
}

impl Services {
    /// Has all that belongs to the run written to the disk, and says so for the next process.
    pub(crate) async fn rest(&self) {
        let (dir, objects, worktrees) = (self.dir.clone(), self.repo.common_dir().to_owned(), self.workspaces.folder().to_owned());
        let rested = tasks::blocking(move || dir.rest(&[&objects, &worktrees])).await;
        if let Ok(Err(error)) = rested {
            tracing::warn!(target: trace::TARGET, "the run was left, and not all of it is known to be on the disk: {error}");
        }
    }

    pub(crate) fn equipment(&self, recorder: &Recorder, account: Arc<Account>, pulse: &Pulse) -> Equipment {
        Equipment {
            model: self.model.clone(),
            toolbox: self.toolbox.clone(),
            hooks: self.hooks.clone(),
            account,
            words: self.words.clone(),
            blobs: self.blobs.clone(),
            clock: self.clock.clone(),
            recorder: recorder.clone(),
            watcher: self.watcher.clone(),
            workspaces: self.workspaces.clone(),
            sandbox: self.sandbox.felt(pulse),
            env: self.env.clone(),
            secrets: self.secrets.clone(),
            pulse: pulse.clone(),
        }
    }

    /// Makes what is one agent's own. A scope that does not compile was refused when the workplace was made.
    pub(crate) async fn session(&self, whose: Whose<'_>, spec: Arc<AgentSpec>, place: Workplace) -> Result<Session, Failure> {
        let Whose { node, run, cancel, pulse } = whose;
        let scope = place.scope.as_deref().map(Scope::compile).transpose().map_err(|error| Failure::of(FailureKind::Template, &error))?;
        let skills = OpenShelf { shelf: self.shelf.clone(), names: spec.skills.clone(), run: run.run.0.clone(), project: self.project.clone() };
        let kept = self.artefacts.folder.join("inputs").canonicalize();
        let opened = |paths| walls::places(paths, self.home.as_deref()).filter_map(|path| path.canonicalize().ok());
        let writable: Vec<PathBuf> = opened(&spec.sandbox.write).collect();
        let reads = spec
            .skills
            .iter()
            .filter_map(|name| self.shelf.get(name)?.dir.as_ref()?.canonicalize().ok())
            .chain(kept)
            .chain(opened(&spec.sandbox.read))
            .chain(writable.iter().cloned())
            .chain(place.links.iter().cloned())
            .collect();
        // Rules may name the workspace or the main checkout; a denied path stays denied in both.
        let (permissions, _) = Permissions::compile(&spec.rules, &place.root);
        let writes = place.scope.as_deref().map_or(Writes::All, Writes::Within);
        let confine = self.confinement(&place.root, (spec.access == Access::Write).then_some(writes), &place.links).await?;
        let confine = walls::opened(confine, &spec, self.home.as_deref());
        let hidden = permissions.hides_files().then(|| self.hidden(&permissions, &place));
        Ok(Session {
            node: node.clone(),
            attempt: 1,
            permissions,
            tools: ToolContext {
                cwd: place.cwd().to_owned(),
                access: spec.access,
                cancel: cancel.child_token(),
                reads,
                shell: Arc::new(ShellPolicy::new(self.sandbox.felt(pulse), confine, place.env)),
                scope: scope.map(Arc::new),
                hidden,
                skills: Arc::new(skills),
                seen: Arc::default(),
                secrets: self.secrets.clone(),
                root: place.root,
            },
            free_shell: self.free_shell,
            reaches_out: self.reaches_out || spec.sandbox.reaches_out(),
            spec,
            worktree: place.worktree,
            coming: place.coming,
            delegates: None,
            agent_id: node.to_string(),
            run: run.run.0.clone(),
            transcript: self.dir.journal(),
            home: self.home.clone(),
            writable,
            project: self.project.clone(),
            is_retried: false,
        })
    }

    /// Says which files the rules keep from an agent that works here.
    fn hidden(&self, permissions: &Permissions, place: &Workplace) -> Arc<Hidden> {
        let (permissions, home, root, cwd) = (permissions.clone(), self.home.clone(), place.root.clone(), place.cwd().to_owned());
        Arc::new(move |path| permissions.hides(path, &RuleContext { cwd: &cwd, root: &root, home: home.as_deref(), writable: &[] }))
    }

    /// Returns the walls around a command that works in `root`, and what it may write there, if anything; what is linked into it
    /// is there to read only.
    pub(crate) async fn confinement(&self, root: &Path, writes: Option<Writes<'_>>, links: &[PathBuf]) -> Result<Confinement, Failure> {
        let Some(walls) = &self.walls else { return Ok(Confinement::None) };
        let mut walls = walls.clone();
        walls.readable.extend(links.iter().cloned());
        match writes {
            Some(writes) => {
                let held = hold::found(root, writes).await?;
                walls.writable.push(root.to_owned());
                walls.writable.extend(held.writable);
                walls.readable.extend(held.read_only);
            }
            None => walls.readable.push(root.to_owned()),
        }
        Ok(Confinement::Bubblewrap(walls))
    }
}

/// Makes the system text of an agent that may open the skills of a shelf: the same bytes for every item of a step.
pub(super) fn system(shelf: &Shelf, agent: &AgentSpec, schema: Option<&Value>) -> String {
    let mut text = agent.system.trim_end().to_owned();
    text.push_str("\n\n# How you work here\nYou are one agent of a larger workflow, and you work alone: nobody answers questions. Do the task you are given, then end your turn with a short report of what you did and what you found.\n");
    text.push_str(match agent.access {
        Access::Write => "You have a git worktree of your own. Edit its files with your tools. Do not commit, push or switch branches: what you leave in the files is committed for you, checked, and merged with the work of others.\n",
        Access::Read => "You read a checkout of the repository and cannot change it.\n",
    });
    let listing = shelf.listing(&agent.skills, SKILLS_CHARS).text;
    if !listing.is_empty() {
        text.push_str("\n# Skills\nOpen one with the `Skill` tool when its description fits what you are doing.\n");
        text.push_str(&listing);
    }
    if let Some(schema) = schema {
        text.push_str("\n# Your answer\nEnd with one JSON object that fits this JSON Schema, and nothing else:\n");
        text.push_str(&schema.to_string());
    }
    text
}
