//! From a folder to a run: what is found there, compiled, opened or begun.
//!
//! The environment is handed in; nothing here reads it. Everything that a library user needs to run a workflow is here,
//! so that `cli` only turns words into these calls.
use super::{
    Asker, Configuration, Services, Untrusted, caches,
    definition::{self, Resolved},
    doctor::Verdict,
    health::{self, Mend},
    inbox::Inbox,
    lost::{self, Why},
    origin::{ResetError, changed_steps, restore},
    secrets,
    steps::{Artefacts, CacheStore},
    token::Tokens,
    toolchains::toolchains,
};
use crate::{
    agent::Watcher,
    clock::{Clock, Timestamp},
    event::{BlobId, Definitions, Event, Given, Origin, Record, RunId, RunStarted},
    git::{Expected, GitError, Head, Isolation, Repository, Workspaces, start_of},
    hooks::{HookFile, Hooks},
    journal::{
        BlobError, Blobs, IllegalEvent, Journal, JournalError, Lease, LeaseError, RunDir, RunDirError, RunState, SqliteStore, StoreError, clear_unfinished,
    },
    library::{FILE_BYTES, Found, Kind, Library, Places, RootKind, Trust, TrustError, read_text},
    llm::{Endpoints, Head as RecordingHead, Model, Recorder, Recording, RecordingError, Replay, RunPlace},
    plan::{AgentFile, Catalog, Plan, PlannedStep, Prices, WorkflowFile},
    sandbox::{self, Sandbox, SandboxError, Walls},
    secrets::{SecretError, Secrets},
    skills::{self, Shelf},
    source::{Diagnostic, Diagnostics, Source},
    tools::Toolbox,
    workflow::Workflow,
};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fs, io,
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
    /// Inputs do not fit.
    #[error("use the inputs: {}", .0.join("; "))]
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

/// How a run is carried out here.
pub struct RunOptions {
    /// Who answers questions.
    pub asker: Arc<dyn Asker>,
    /// Whoever watches what is under way.
    pub watcher: Arc<dyn Watcher>,
    /// Time.
    pub clock: Clock,
    /// What was said of how it is carried out; recorded, so that whoever takes it up again can do as much.
    pub given: Given,
    /// Whether a run goes on although what it was pinned to has changed.
    pub accept_changes: bool,
    /// Where requests and replies are recorded.
    pub recording: Option<Arc<Recording>>,
}

impl RunOptions {
    /// Has a run's time go on from its last record, wherever the machine's clock was set meanwhile or is set later.
    fn steady(self, last: Timestamp) -> RunOptions {
        RunOptions { clock: self.clock.steady(last), ..self }
    }
}

/// A run ready to go on. The lease is held as long as this lives.
pub struct Prepared {
    /// Its journal.
    pub journal: Journal<SqliteStore>,
    /// What preparing it recorded.
    pub begun: Vec<Record>,
    /// What its steps share.
    pub services: Arc<Services>,
    /// Its folder.
    pub dir: RunDir,
    /// Its id.
    pub run: RunId,
    /// Its ownership.
    pub lease: Lease,
    /// What somebody should look at before it goes on.
    pub warnings: Vec<String>,
}

/// How a run begins.
pub(super) struct Beginning {
    /// Its inputs, checked and with defaults.
    pub(super) inputs: Map<String, Value>,
    /// Where it starts.
    pub(super) head: Head,
    /// The run that it follows from, and what holds of it.
    pub(super) origin: Option<Origin>,
    pub(super) held: Vec<(Timestamp, Event)>,
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
            workflow.forget_allow_rules();
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
            prompts: self.library.all(Kind::Prompt).into_iter().map(|found| (found.name.clone(), found.text.clone())).collect(),
            agents: self.agents.clone(),
            workflows: self.library.all(Kind::Workflow).into_iter().map(|found| (found.name.clone(), self.workflow_file(found))).collect(),
            prices: models.prices.clone(),
            providers: models.providers.iter().cloned().collect(),
            default_model: models.default.clone(),
            aliases: self.configuration.aliases(),
            defaults: self.configuration.defaults(),
            model_overrides: models.overrides.clone(),
        }
    }

    fn workflow_file(&self, found: &Found) -> WorkflowFile {
        let source = Source { name: found.path.clone(), text: found.text.clone() };
        WorkflowFile { source: Arc::new(source), trusted: self.trust.covers(found) }
    }

    /// Begins a run.
    ///
    /// # Errors
    /// Where its folder, journal or worktrees cannot be made, or the inputs do not fit.
    pub fn start(&self, plan: Arc<Plan>, given: &Map<String, Value>, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let inputs = plan.check_inputs(given).map_err(SetupError::Inputs)?;
        let head = self.repo.head()?;
        self.begin(plan, Beginning { inputs, head, origin: None, held: Vec::new() }, models, options)
    }

    /// Begins the journal of a run, with what holds of another one where it follows from one.
    pub(super) fn begin(&self, plan: Arc<Plan>, beginning: Beginning, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let options = options.steady(Timestamp::default());
        let Beginning { inputs, head, origin, held } = beginning;
        let secrets = secrets::of(&plan, &self.settings.environment, &self.endpoints())?;
        if self.repo.ref_at("refs/heads/spinney")?.is_some() {
            return Err(SetupError::BranchTaken);
        }
        let state = RunDir::state(self.checkout());
        let (run, dir) = new_run(&state, &plan.name)?;
        let first = || -> Result<_, SetupError> {
            let lease = Lease::take(dir.path(), std::process::id(), options.clock.now())?;
            let store = SqliteStore::create(dir.path(), &run)?;
            let blobs = Blobs::new(dir.path()).without(&secrets);
            let script = models.script.as_ref().map(|text| blobs.put(text.as_bytes())).transpose()?;
            if let Some(origin) = &origin {
                let theirs = Blobs::new(RunDir::open(&state, &origin.run)?.path());
                held.iter().flat_map(|(_, event)| event.blobs()).try_for_each(|id| blobs.take_over(id, &theirs))?;
            }
            let pins = self.pins(&plan);
            let started = RunStarted {
                run: run.clone(),
                workflow: plan.name.clone(),
                file: plan.source.name.clone(),
                inputs,
                base: head.commit,
                head: head.branch,
                steps: self.definitions(&plan, &pins),
                pins: pins.into_iter().chain(secrets::pins(&secrets)).collect(),
                script,
                origin,
                given: options.given.clone(),
            };
            let mut journal = Journal::new(store, RunState::new(plan), options.clock.clone()).without(&secrets);
            let begun = journal.take_over(Event::RunStarted(Box::new(started)), held)?;
            Ok((lease, journal, begun))
        };
        // Where its first records cannot be kept nothing of the run is.
        let (lease, journal, begun) = first().inspect_err(|_| dir.discard())?;
        let services = self.services(&run, (&dir, secrets), models, options)?;
        keep_start(&services.repo, journal.state())?;
        restore(&services, journal.state(), &begun)?;
        services.cache.prune(&services.repo);
        Ok(Prepared { journal, begun, services: Arc::new(services), dir, run, lease, warnings: Vec::new() })
    }

    /// Takes up a run again.
    ///
    /// # Errors
    /// Where it is over, somebody else has it, or what it was pinned to has changed and that is not accepted.
    pub fn resume(&self, run: &RunId, plan: Arc<Plan>, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let dir = RunDir::open(&RunDir::state(self.checkout()), run)?;
        let lease = Lease::take(dir.path(), std::process::id(), options.clock.now())?;
        let (store, records) = SqliteStore::open(dir.path())?;
        let torn = store.is_after_reboot() && !dir.is_at_rest();
        let options = options.steady(records.last().map(|last| last.at).unwrap_or_default());
        sandbox::reap(&dir.processes())?;
        clear_unfinished(dir.path()).map_err(|source| SetupError::File { path: dir.path().display().to_string(), source })?;
        self.repo.unlock_refs(run)?;
        let pins = self.pins(&plan);
        let secrets = secrets::of(&plan, &self.settings.environment, &self.endpoints())?;
        let state = RunState::replay(plan, &records)?;
        let started = state.started().ok_or_else(|| SetupError::Empty(run.clone()))?;
        if let Some(outcome) = state.finished() {
            return Err(SetupError::Over { run: run.clone(), how: outcome.word() });
        }
        let (then, pinned): (BTreeMap<_, _>, BTreeMap<_, _>) = started.pins.clone().into_iter().partition(|(name, _)| !secrets::is_pin(name));
        let mut warnings = secrets::changed(&pinned, &secrets);
        let changed = changed(&then, &pins);
        let steps = changed_steps(&records, started, self.definitions(state.plan(), &pins));
        if !options.accept_changes && !changed.is_empty() {
            return Err(SetupError::Changed { run: run.clone(), changed });
        }
        let given = Some(options.given.clone()).filter(|given| *given != Given::of(&records));
        let services = self.services(run, (&dir, secrets), models, options)?;
        if torn {
            lost::give_up_torn(&state, &services.workspaces)?;
        }
        warnings.extend(self.mend(run, &dir, &records)?);
        services.artefacts.recall(&records);
        keep_start(&services.repo, &state)?;
        restore(&services, &state, &records)?;
        let mut events = vec![Event::RunResumed { pid: std::process::id(), steps, given }];
        if services.reaches_out {
            lost::give_up(&state, &services.workspaces)?;
        }
        for (node, failure) in lost::attempts(&self.repo, (run, &state, &records), Why { reaches_out: services.reaches_out, torn })? {
            warnings.push(format!("`{node}` starts its attempt over: {}", failure.message));
            events.push(Event::RetryScheduled { node, due: services.clock.now(), failure, handed_over: false, lost: true });
        }
        dir.wake().map_err(|source| SetupError::File { path: dir.path().display().to_string(), source })?;
        let mut journal = Journal::new(store, state, services.clock.clone()).without(&services.secrets);
        let begun = journal.append(events)?;
        Ok(Prepared { journal, begun, services: Arc::new(services), dir, run: run.clone(), lease, warnings })
    }

    /// Puts what keeps a run's results back where the records say, and returns what was put there. What only hinders nothing
    /// is left to `spinney doctor`.
    ///
    /// # Errors
    /// `Damaged` where something is lost that the run goes on from.
    fn mend(&self, run: &RunId, dir: &RunDir, records: &[Record]) -> Result<Vec<String>, SetupError> {
        let mut mended = Vec::new();
        let mut lost = Vec::new();
        for fault in health::faults(&self.repo, run, dir.path(), records)? {
            match &fault.mend {
                _ if fault.verdict != Verdict::Broken => {}
                Some(mend @ Mend::Ref { to, .. }) if self.repo.has_commit(to)? => match mend.apply(&self.repo, dir.path()) {
                    Ok(()) => mended.push(format!("{}: {}; it was put back", fault.name, fault.detail)),
                    Err(error) => lost.push(format!("{}: {error}", fault.name)),
                },
                Some(mend @ Mend::View(_)) => match mend.apply(&self.repo, dir.path()) {
                    Ok(()) => mended.push(format!("{}: {}; they were put back", fault.name, fault.detail)),
                    Err(error) => lost.push(format!("{}: {error}", fault.name)),
                },
                Some(_) | None => lost.push(format!("{}: {}", fault.name, fault.detail)),
            }
        }
        if lost.is_empty() { Ok(mended) } else { Err(SetupError::Damaged { run: run.clone(), lost }) }
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
                pins.extend(self.pinned(Kind::Skill, agent.skills.iter().map(String::as_str)));
                pins.extend(self.pinned(Kind::Hook, agent.hooks.iter().map(String::as_str)));
            }
        }
        pins.extend(self.configuration.hash().map(|hash| ("configuration:config.yaml".to_owned(), hash)));
        pins.extend(self.pinned(Kind::Hook, self.hooks.always()));
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

    /// Returns what commands get of the user's environment.
    pub(super) fn command_environment(&self, secrets: &Secrets) -> BTreeMap<String, String> {
        secrets::outside(sandbox::clean_env(&self.settings.environment), secrets)
    }

    fn services(&self, run: &RunId, (dir, secrets): (&RunDir, Secrets), models: &Models, options: RunOptions) -> Result<Services, SetupError> {
        let folder = self.settings.cache.join("worktrees").join(self.repo.id()).join(&run.0);
        let repo = self.repo.registered(&dir.processes())?;
        let workspaces = Workspaces::new(&repo, &folder, run)?.isolated(Isolation::Private).without(&secrets);
        let path = self.settings.environment.get("PATH").map(Into::into);
        let sandbox = Sandbox::new(sandbox::Options { registry: Some(dir.processes()), path, secrets: secrets.clone() })?;
        let place = RunPlace { run: run.clone(), worktrees: folder.clone(), checkout: self.checkout().to_owned() };
        let model = model(models, options.recording, place, &secrets)?;
        let confine = !options.given.unconfined && sandbox.bubblewrap().is_some();
        let caches = dir.path().join("caches");
        let nowhere = dir.path().join("nowhere");
        fs::create_dir_all(&nowhere).map_err(|source| SetupError::File { path: nowhere.display().to_string(), source })?;
        Ok(Services {
            // Where there are no walls to be had, a script or a recording lifts the asking: whoever runs it has chosen what it says.
            free_shell: options.given.unconfined || confine || models.script.is_some(),
            lifted: !options.given.unconfined && !confine && models.script.is_some(),
            reaches_out: !confine && !self.settings.contained,
            walls: confine.then(|| self.walls(&caches)).transpose()?,
            model,
            toolbox: self.toolbox.clone(),
            hooks: self.hooks.clone(),
            shelf: self.shelf.clone(),
            asker: options.asker,
            inbox: Inbox::of(dir.path()),
            tokens: Tokens::new(dir.path(), &self.settings.cache),
            words: Arc::default(),
            watcher: options.watcher,
            clock: options.clock,
            repo,
            workspaces,
            artefacts: Artefacts::below(dir.path().join("artifacts")),
            cache: CacheStore::open(&RunDir::state(self.checkout()), !options.given.no_cache),
            blobs: Arc::new(Blobs::new(dir.path()).without(&secrets)),
            sandbox,
            env: self.command_environment(&secrets),
            secrets,
            dir: dir.clone(),
            project: self.checkout().to_owned(),
            home: self.settings.home.clone(),
            nowhere,
            caches,
            views: Arc::default(),
        })
    }

    /// What commands may see besides their worktree: the repository's objects and the toolchains, to read, and the run's caches.
    /// Not its git folder: the configuration in there may hold the keys of remotes.
    fn walls(&self, folder: &Path) -> Result<Walls, SetupError> {
        let set = caches::make(folder, &self.settings.environment).map_err(|source| SetupError::File { path: folder.display().to_string(), source })?;
        let mut readable = object_folders(&self.repo.common_dir().join("objects"));
        readable.extend(toolchains(&self.settings.environment));
        readable.extend(self.configuration.readable(self.settings.home.as_deref()));
        Ok(Walls { writable: vec![folder.to_owned()], readable, network: false, set })
    }
}

/// Keeps the commit that a run starts from, whatever becomes of the branches that have it.
fn keep_start(repo: &Repository, state: &RunState) -> Result<(), GitError> {
    let Some(started) = state.started() else { return Ok(()) };
    let name = start_of(&started.run);
    if repo.ref_at(&name)?.is_some() { Ok(()) } else { repo.set_ref(&name, &started.base, Expected::Absent) }
}

/// Makes the model of a run that takes place somewhere: one that is recorded, or knows where it replays.
fn model(models: &Models, recording: Option<Arc<Recording>>, place: RunPlace, secrets: &Secrets) -> Result<Arc<dyn Model>, RecordingError> {
    if let Some(replay) = &models.replay {
        replay.begin(place.clone(), secrets);
    }
    let Some(recording) = recording else { return Ok(models.model.clone()) };
    recording.begin(&RecordingHead::new(place, models.default.clone(), models.overrides.clone()))?;
    Ok(Arc::new(Recorder::new(models.model.clone(), recording, secrets.clone())))
}

/// Returns a folder of objects and those it borrows from, a few links deep.
fn object_folders(objects: &Path) -> Vec<PathBuf> {
    const MAX: usize = 16;
    let mut folders = vec![objects.to_owned()];
    let mut at = 0;
    while at < folders.len() && folders.len() < MAX {
        let borrowed = fs::read_to_string(folders[at].join("info/alternates")).unwrap_or_default();
        let named = borrowed.lines().filter(|line| !line.is_empty() && !line.starts_with('#')).map(|line| folders[at].join(line)).collect::<Vec<_>>();
        folders.extend(named);
        at += 1;
    }
    folders
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

/// Makes the folder of a run under a name that no other has.
fn new_run(state: &Path, workflow: &str) -> Result<(RunId, RunDir), SetupError> {
    const ALPHABET: &[u8] = b"abcdefghjkmnpqrstuvwxyz23456789";
    let mut tries = 0;
    loop {
        let tail: String = std::iter::repeat_with(|| char::from(ALPHABET[fastrand::usize(..ALPHABET.len())])).take(6).collect();
        let run = RunId(format!("{workflow}-{tail}"));
        match RunDir::create(state, &run) {
            Ok(dir) => return Ok((run, dir)),
            Err(RunDirError::Exists { .. }) if tries < 16 => tries += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Returns the names of what is another now than it was. A prompt or an agent that was not there before is no change of its own:
/// that somebody names it is one.
pub(super) fn changed(then: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Vec<String> {
    let is_named = |key: &&String| ["prompt:", "agent:", "system:"].iter().any(|kind| key.starts_with(kind));
    let new = now.keys().filter(|key| !then.contains_key(*key) && !is_named(key));
    then.keys().filter(|key| then.get(*key) != now.get(*key)).chain(new).cloned().collect()
}
