//! From a folder to a plan: what is found there, and compiled.
//!
//! The environment is handed in; nothing here reads it. With what `prepare` makes of a plan it is all that a library user needs
//! to run a workflow, so that `cli` only turns words into these calls.
use super::{
    Configuration, Untrusted,
    definition::{self, Resolved},
    origin::ResetError,
};
use crate::{
    event::{BlobId, Definitions, RunId, StepId},
    git::{GitError, Repository},
    hooks::{self, HookFile, Hooks},
    journal::{BlobError, IllegalEvent, JournalError, LeaseError, RunDirError, StoreError},
    library::{FILE_BYTES, Found, Kind, Library, Places, RootKind, Trust, TrustError, read_text},
    llm::{Endpoints, Model, RecordingError, Replay},
    plan::{AgentFile, Catalog, HookLint, Plan, PlannedStep, Prices, RuleLint, WorkflowFile, WrittenHooks},
    sandbox::SandboxError,
    secrets::SecretError,
    skills::{self, Shelf},
    source::{Diagnostic, Diagnostics, Source},
    tools::Toolbox,
    workflow::Workflow,
};
use serde_json::{Value, json};
use std::{
    collections::{BTreeMap, HashSet},
    io,
    path::{Path, PathBuf},
    sync::Arc,
};

/// The provider of what a script says, besides those that it stands for.
pub(crate) const SCRIPTED: &str = "scripted";

/// What is known of the user and the machine.
#[derive(Debug, Clone, Default)]
pub struct Settings {
    /// Where the user stands.
    pub directory: PathBuf,
    /// The whole environment.
    pub environment: BTreeMap<String, String>,
    /// The user's configuration folder for this program.
    pub config: Option<PathBuf>,
    /// The user's cache folder for this program.
    pub cache: PathBuf,
    /// The user's home.
    pub home: Option<PathBuf>,
    /// The file of this program, which lets commands in that may reach some hosts of the network alone.
    pub program: Option<PathBuf>,
    /// Whether what commands do beyond their worktree is of no account, walls or not: one that a death cuts short is run again.
    pub contained: bool,
}

/// Why a run could not be prepared. Fits after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The repository.
    #[error(transparent)]
    Git(#[from] GitError),
    /// No workflow of that name or path.
    #[error("find the workflow `{name}`")]
    NoWorkflow {
        /// What was asked for.
        name: String,
        /// The names there are, and the nearest.
        hint: String,
    },
    /// The workflow is wrong.
    #[error("compile the workflow\n{0}")]
    Diagnostics(#[from] Diagnostics),
    /// The results of runs could not be kept as branches.
    #[error("begin a run: there is a branch named `spinney`, and results become branches named `spinney/RUN`")]
    BranchTaken,
    /// Where a step is to start from names nothing.
    #[error("start the step `{step}` from `{name}`: {source}")]
    Base {
        /// The step.
        step: StepId,
        /// What its `workspace.base` says.
        name: String,
        /// Why that is no commit.
        source: GitError,
    },
    /// Inputs do not fit.
    #[error("use the inputs: {}", in_lines(.0))]
    Inputs(Vec<String>),
    /// Secrets that the environment does not hold.
    #[error("begin the run without its secrets: the environment has no {}", .0.join(", "))]
    NoSecrets(Vec<String>),
    /// The recording cannot be begun.
    #[error(transparent)]
    Recording(#[from] RecordingError),
    /// A secret that could not be kept from being written.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// A file.
    #[error("read `{path}`: {source}")]
    File {
        /// The file.
        path: String,
        /// The system's error.
        source: io::Error,
    },
    /// The run's folder.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// Somebody else has the run.
    #[error(transparent)]
    Lease(#[from] LeaseError),
    /// The journal's store.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The journal and the workflow do not fit together.
    #[error("replay the journal: {0}")]
    Illegal(#[from] IllegalEvent),
    /// The blobs.
    #[error(transparent)]
    Blob(#[from] BlobError),
    /// Processes.
    #[error(transparent)]
    Sandbox(#[from] SandboxError),
    /// The record of trust.
    #[error(transparent)]
    Trust(#[from] TrustError),
    /// What a run was pinned to has changed since.
    #[error("resume `{run}`: these have changed since it began: {}", .changed.join(", "))]
    Changed {
        /// The run.
        run: RunId,
        /// `kind:name` of each.
        changed: Vec<String>,
    },
    /// Something is gone that the run goes on from.
    #[error("resume `{run}`: {}", .lost.join("; "))]
    Damaged {
        /// The run.
        run: RunId,
        /// What is gone.
        lost: Vec<String>,
    },
    /// The journal has no first record.
    #[error("resume `{0}`: its journal is empty")]
    Empty(RunId),
    /// The run is over.
    #[error("resume `{run}`: it is over, and {how}")]
    Over {
        /// The run.
        run: RunId,
        /// The word for how it ended.
        how: &'static str,
    },
    /// The sandbox of an agent cannot be here what it says.
    #[error("begin the run: the sandbox of agent `{agent}` {why}")]
    Walls {
        /// The agent.
        agent: String,
        /// What of it, after its name.
        why: String,
        /// What can be done.
        hint: &'static str,
    },
    /// Nothing can follow from a run as it was wished.
    #[error(transparent)]
    Reset(#[from] ResetError),
}

/// A repository and everything a workflow may name in it.
pub struct Project {
    /// What was handed in.
    pub settings: Settings,
    /// The repository.
    pub repo: Repository,
    /// What is found.
    pub library: Library,
    /// What the user has trusted.
    pub trust: Trust,
    /// The skills.
    pub shelf: Arc<Shelf>,
    /// The hooks.
    pub hooks: Arc<Hooks>,
    /// The tools.
    pub toolbox: Arc<Toolbox>,
    /// The agents found as files.
    pub agents: BTreeMap<String, AgentFile>,
    /// The configuration files.
    pub configuration: Configuration,
    /// What somebody should look at.
    pub warnings: Vec<String>,
}

/// Which models answer.
#[derive(Clone)]
pub struct Models {
    /// Who answers.
    pub model: Arc<dyn Model>,
    /// The names of the providers.
    pub providers: Vec<String>,
    /// For whoever names none.
    pub default: Option<String>,
    /// Aliases overridden for this run.
    pub overrides: BTreeMap<String, String>,
    /// Which of them have a known price.
    pub prices: Prices,
    /// The text of the script, where one stands for the models.
    pub script: Option<String>,
    /// The recording, where that is what stands for them.
    pub replay: Option<Arc<Replay>>,
}

impl Models {
    /// Models behind HTTP endpoints.
    pub fn endpoints(model: Arc<dyn Model>, endpoints: &Endpoints, default: Option<String>, overrides: BTreeMap<String, String>) -> Models {
        let default = default.or_else(|| endpoints.default_model().ok().map(str::to_owned));
        let known = endpoints.clone();
        let prices = Prices(Arc::new(move |model| known.is_priced(model)));
        Models { model, providers: endpoints.names().map(str::to_owned).collect(), default, overrides, prices, script: None, replay: None }
    }

    /// A script that stands for every model of the providers that are known here, and for one of its own.
    pub fn scripted(model: Arc<dyn Model>, text: String, endpoints: &Endpoints) -> Models {
        let providers = endpoints.names().chain([SCRIPTED]).map(str::to_owned).collect();
        Models {
            model,
            providers,
            default: Some(format!("{SCRIPTED}/model")),
            overrides: BTreeMap::new(),
            prices: Prices::default(),
            script: Some(text),
            replay: None,
        }
    }

    /// A recording that stands for every model; what it was recorded with holds where nothing else is said.
    pub fn replayed(replay: Replay, text: String, endpoints: &Endpoints, default: Option<String>, overrides: BTreeMap<String, String>) -> Models {
        let head = replay.head();
        let default = default.or_else(|| head.default.clone());
        let overrides = head.overrides.clone().into_iter().chain(overrides).collect();
        let replay = Arc::new(replay);
        let mut models = Models::scripted(replay.clone(), text, endpoints);
        // What answered then answers now, whether or not its provider is known here.
        models.providers.extend(replay.providers());
        Models { replay: Some(replay), overrides, default, ..models }
    }
}

impl Project {
    /// Opens the repository around a folder and finds what is there.
    ///
    /// # Errors
    /// Where there is no usable repository.
    pub fn open(settings: Settings) -> Result<Project, SetupError> {
        let repo = Repository::open(&settings.directory, &settings.environment)?;
        let trust_file = settings.config.clone().unwrap_or_else(|| settings.cache.clone()).join("trust.json");
        let trust = Trust::load(&trust_file)?;
        let configuration = Configuration::load(&settings, repo.main_checkout(), &trust)?;
        let library = Library::discover(&places(&settings, Some(repo.main_checkout())));
        let mut warnings = library.warnings().to_vec();
        warnings.extend(configuration.untrusted().iter().map(Untrusted::warning));
        let shelf = Shelf::of(&library);
        warnings.extend(shelf.warnings().iter().cloned());
        let (agents, more) = skills::agents(&library);
        let agents = agents.into_iter().map(|(name, (file, found))| (name, AgentFile { agent: file.agent, path: found.path })).collect();
        warnings.extend(more);
        let (hooks, more) = load_hooks(&library, &trust);
        let hooks = Arc::new(hooks.lent(&settings.environment));
        warnings.extend(more);
        let (shelf, toolbox) = (Arc::new(shelf), Arc::new(Toolbox::standard()));
        Ok(Project { settings, repo, library, trust, shelf, hooks, toolbox, agents, configuration, warnings })
    }

    /// Returns the folder that holds `.spinney`.
    pub fn checkout(&self) -> &Path {
        self.repo.main_checkout()
    }

    /// Returns the providers that are reached from here.
    pub fn endpoints(&self) -> Endpoints {
        self.configuration.endpoints(&self.settings.environment)
    }

    /// Finds a workflow by name, or by a path that ends in `.yaml` or `.yml`.
    ///
    /// # Errors
    /// Where there is none, or it is not YAML. What else is wrong with it is told when it is compiled.
    pub fn workflow(&self, name: &str) -> Result<Workflow, SetupError> {
        let (source, trusted) = self.workflow_source(name)?;
        let mut workflow = Workflow::read(&Arc::new(source))?;
        workflow.defaults.lay_under(&self.configuration.defaults());
        if !trusted {
            workflow.distrust();
        }
        Ok(workflow)
    }

    /// Finds the text of a workflow, and whether its allow rules count.
    ///
    /// # Errors
    /// Where there is none.
    pub fn workflow_source(&self, name: &str) -> Result<(Source, bool), SetupError> {
        if name.ends_with(".yaml") || name.ends_with(".yml") {
            let path = self.settings.directory.join(name);
            let text = read_text(&path, FILE_BYTES).map_err(|source| SetupError::File { path: name.to_owned(), source })?;
            let trusted = self.trust.is_trusted(BlobId::of(text.as_bytes()).0.as_str());
            return Ok((Source { name: name.to_owned(), text }, trusted));
        }
        if let Some(found) = self.library.find(Kind::Workflow, name) {
            return Ok((Source { name: found.path.clone(), text: found.text.clone() }, self.trust.covers(found)));
        }
        if let Some(unread) = self.library.unread().iter().find(|unread| unread.kind == Kind::Workflow && unread.name == name)
            && let Err(source) = read_text(&unread.file, FILE_BYTES)
        {
            return Err(SetupError::File { path: unread.path.clone(), source });
        }
        let names: Vec<&str> = self.library.all(Kind::Workflow).iter().map(|found| found.name.as_str()).collect();
        let hint = match crate::source::nearest(name, names.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("there are {}; a file is named by its path, ending in .yaml", names.join(", ")),
        };
        Err(SetupError::NoWorkflow { name: name.to_owned(), hint })
    }

    /// Compiles a workflow against what is known here.
    ///
    /// # Errors
    /// Every diagnostic at once.
    pub fn compile(&self, workflow: &Workflow, models: &Models) -> Result<(Plan, Vec<Diagnostic>), SetupError> {
        Ok(Plan::compile(workflow, &self.catalog(models))?)
    }

    /// Returns everything a workflow may name.
    pub fn catalog(&self, models: &Models) -> Catalog {
        Catalog {
            tools: self.toolbox.catalog(),
            skills: self.shelf.all().map(|skill| (skill.name.clone(), skill.description.clone())).collect(),
            offered_skills: self.shelf.all().filter(|skill| !skill.disable_model_invocation).map(|skill| skill.name.clone()).collect(),
            hooks: self.hooks.names().map(str::to_owned).collect(),
            hook_lint: self.hook_lint(),
            rule_lint: RuleLint(Arc::new(hooks::lint_rule)),
            prompts: self.library.all(Kind::Prompt).into_iter().map(|found| (found.name.clone(), found.text.clone())).collect(),
            agents: self.agents.clone(),
            workflows: self.library.all(Kind::Workflow).into_iter().map(|found| (found.name.clone(), self.workflow_file(found))).collect(),
            prices: models.prices.clone(),
            providers: models.providers.iter().cloned().collect(),
            // A script answers for whatever it is asked.
            without_tools: self
                .endpoints()
                .all()
                .filter(|there| models.script.is_none() && !there.protocol.has_tools())
                .map(|there| there.name.clone())
                .collect(),
            other_names: self.endpoints().other_names(),
            default_model: models.default.clone(),
            aliases: self.configuration.aliases(),
            defaults: self.configuration.defaults(),
            model_overrides: models.overrides.clone(),
        }
    }

    fn hook_lint(&self) -> HookLint {
        let dir = self.checkout().to_owned();
        HookLint(Arc::new(move |events| Hooks::load(&[HookFile { dir: dir.clone(), ..events_file("hooks".to_owned(), events) }]).1))
    }

    /// Returns the hooks of a run: those that are found here, and those that stand in its workflows.
    pub fn hooks_of(&self, plan: &Plan) -> Arc<Hooks> {
        let written = written(plan);
        if written.is_empty() {
            return self.hooks.clone();
        }
        let file =
            |hooks: &WrittenHooks| HookFile { dir: self.checkout().to_owned(), trusted: hooks.trusted, ..events_file(hooks.name.clone(), &hooks.events) };
        let (more, _) = Hooks::load(&written.into_iter().map(file).collect::<Vec<_>>());
        Arc::new((*self.hooks).clone().and(more.lent(&self.settings.environment)))
    }

    fn workflow_file(&self, found: &Found) -> WorkflowFile {
        let source = Source { name: found.path.clone(), text: found.text.clone() };
        WorkflowFile { source: Arc::new(source), trusted: self.trust.covers(found) }
    }

    /// Returns the content hash of everything a plan resolved here.
    pub fn pins(&self, plan: &Plan) -> BTreeMap<String, String> {
        let mut pins = BTreeMap::new();
        let plans = plan.all();
        pins.extend(plans.iter().map(|plan| (format!("workflow:{}", plan.name), BlobId::of(plan.source.text.as_bytes()).0)));
        for inner in plans {
            pins.extend(inner.files.iter().map(|(path, file)| (format!("prompt:{path}"), BlobId::of(file.text.as_bytes()).0)));
            // Called workflows have agents of their own, which may be named alike.
            let of = if inner.name == plan.name { String::new() } else { format!("{}/", inner.name) };
            for agent in inner.agents.values().chain(inner.steps().flat_map(PlannedStep::agents)) {
                pins.insert(format!("system:{of}{}", agent.name), BlobId::of(agent.system.as_bytes()).0);
                if agent.skills.iter().any(|name| name.contains("{{")) {
                    pins.extend(self.library.all(Kind::Skill).into_iter().map(|found| (format!("{}:{}", Kind::Skill, found.name), found.hash().to_owned())));
                }
                pins.extend(self.pinned(Kind::Skill, agent.skills.iter().map(String::as_str)));
                pins.extend(self.pinned(Kind::Hook, agent.hooks.iter().map(String::as_str)));
            }
        }
        pins.extend(self.configuration.hash().map(|hash| ("configuration:config.yaml".to_owned(), hash)));
        pins.extend(self.pinned(Kind::Hook, self.hooks.always()));
        let hash = |hooks: &WrittenHooks| BlobId::of(hooks.events.to_string().as_bytes()).0;
        pins.extend(written(plan).into_iter().map(|hooks| (format!("{}:{}", Kind::Hook, hooks.name), hash(hooks))));
        let files: BTreeMap<&str, &str> = self.library.all(Kind::Agent).into_iter().map(|found| (found.path.as_str(), found.hash())).collect();
        pins.extend(self.agents.iter().filter_map(|(name, file)| Some((format!("agent:{name}"), (*files.get(file.path.as_str())?).to_owned()))));
        pins
    }

    /// Returns what each step of a plan is, given the hashes of what it resolved.
    pub(super) fn definitions(&self, plan: &Plan, pins: &BTreeMap<String, String>) -> Definitions {
        definition::definitions(plan, Resolved { pins, always: &self.hooks.always() })
    }

    fn pinned<'n>(&self, kind: Kind, names: impl IntoIterator<Item = &'n str>) -> Vec<(String, String)> {
        let found = names.into_iter().filter_map(|name| self.library.find(kind, name));
        found.map(|found| (format!("{kind}:{}", found.name), found.hash().to_owned())).collect()
    }
}

/// Writes one thing behind what it is about, and several below it.
fn in_lines(things: &[String]) -> String {
    if let [one] = things { one.clone() } else { things.iter().map(|thing| format!("\n  {thing}")).collect() }
}

/// Returns the hooks that stand in the files of a plan and of all that it calls.
fn written(plan: &Plan) -> Vec<&WrittenHooks> {
    let mut seen = HashSet::new();
    plan.all().into_iter().flat_map(|plan| plan.written.iter()).filter(|hooks| seen.insert(hooks.name.as_str())).collect()
}

/// Returns hooks that stand in a workflow as a hook file of our own.
fn events_file(name: String, events: &Value) -> HookFile {
    HookFile { path: name.clone(), name, text: json!({ "hooks": events }).to_string(), dir: PathBuf::new(), trusted: true, strict: true }
}

fn places(settings: &Settings, project: Option<&Path>) -> Places {
    Places { project: project.map(Path::to_owned), user_config: settings.config.clone(), home: settings.home.clone(), cache: settings.cache.clone() }
}

fn load_hooks(library: &Library, trust: &Trust) -> (Hooks, Vec<String>) {
    let mut warnings = Vec::new();
    let mut files = Vec::new();
    for found in library.all(Kind::Hook) {
        match library.materialise(found) {
            Ok(dir) => files.push(hook_file(found, dir, trust)),
            Err(error) => warnings.push(error.to_string()),
        }
    }
    let (hooks, more) = Hooks::load(&files);
    warnings.extend(more);
    (hooks, warnings)
}

fn hook_file(found: &Found, dir: PathBuf, trust: &Trust) -> HookFile {
    HookFile {
        name: found.name.clone(),
        path: found.path.clone(),
        text: found.text.clone(),
        dir,
        trusted: found.root == RootKind::BuiltIn || trust.covers(found),
        strict: true,
    }
}
