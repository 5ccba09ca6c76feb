//! From a plan to a run that can go on: begun anew, or taken up again from its journal, with all that its steps share.
use super::{
    Asker, Models, Project, Services, Settings, SetupError, caches,
    doctor::Verdict,
    health::{self, Mend},
    inbox::Inbox,
    lost::{self, Why},
    origin::{self, changed_steps, restore, restore_artefacts},
    secrets,
    steps::{Artefacts, CacheStore},
    token::Tokens,
    toolchains::toolchains,
    walls::{self, Here},
};
use crate::{
    agent::Watcher,
    clock::{Clock, Timestamp},
    event::{Event, Given, Origin, Record, Repeated, RunId, RunStarted},
    git::{Expected, GitError, Head, Isolation, Repository, Workspaces, start_of},
    journal::{Blobs, Journal, Lease, RunDir, RunDirError, RunState, SqliteStore, clear_unfinished, left_under_way},
    llm::{Head as RecordingHead, Model, Recorder, Recording, RecordingError, RunPlace},
    plan::Plan,
    sandbox::{self, Sandbox, Upstream, Walls},
    secrets::Secrets,
};
use serde_json::{Map, Value};
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

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
    /// Begins a run.
    ///
    /// # Errors
    /// Where its folder, journal or worktrees cannot be made, or the inputs do not fit.
    pub fn start(&self, plan: Arc<Plan>, given: &Map<String, Value>, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let inputs = plan.check_inputs(given).map_err(SetupError::Inputs)?;
        self.check_sandboxes(&plan, &options.given)?;
        let head = self.repo.head()?;
        self.begin(plan, Beginning { inputs, head, origin: None, held: Vec::new() }, models, options)
    }

    /// Begins the journal of a run, with what holds of another one where it follows from one.
    pub(super) fn begin(&self, plan: Arc<Plan>, beginning: Beginning, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let options = options.steady(Timestamp::default());
        let Beginning { inputs, head, origin, held } = beginning;
        self.check_bases(&plan, &inputs)?;
        let secrets = secrets::of(&plan, &self.settings.environment, &self.endpoints())?;
        if self.repo.ref_at("refs/heads/spinney")?.is_some() {
            return Err(SetupError::BranchTaken);
        }
        let state = RunDir::state(self.checkout());
        let (run, dir) = new_run(&state, &plan.name)?;
        let (clock, given) = (options.clock.clone(), options.given.clone());
        let first = || -> Result<_, SetupError> {
            let lease = Lease::take(dir.path(), std::process::id(), clock.now())?;
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
                replays: models.replay.is_some(),
                origin,
                given,
            };
            origin::keep_held(&self.repo, &run, &started.base, &held)?;
            let mut journal = Journal::new(store, RunState::new(plan), clock).without(&secrets);
            let begun = journal.take_over(Event::RunStarted(Box::new(started)), held)?;
            let services = self.services((&run, journal.state().plan(), (&begun, 0)), (&dir, secrets), models, options)?;
            Ok((lease, services, journal, begun))
        };
        // Where its first records cannot be kept, or what it needs cannot be made, nothing of the run is.
        let (lease, services, journal, begun) = first().inspect_err(|_| {
            origin::take_back(&self.repo, &dir, &run);
            let _nothing_in_it = fs::remove_dir_all(self.worktrees_of(&run));
        })?;
        restore_artefacts(&services, journal.state(), &begun)?;
        services.cache.prune(&services.repo);
        Ok(Prepared { journal, begun, services: Arc::new(services), dir, run, lease, warnings: Vec::new() })
    }

    /// Takes up a run again.
    ///
    /// # Errors
    /// Where it is over, somebody else has it, or what it was pinned to has changed and that is not accepted.
    pub fn resume(&self, run: &RunId, plan: Arc<Plan>, models: &Models, options: RunOptions) -> Result<Prepared, SetupError> {
        let dir = RunDir::open(&RunDir::state(self.checkout()), run)?;
        dir.require_sound()?;
        let lease = Lease::take(dir.path(), std::process::id(), options.clock.now())?;
        let (store, records) = SqliteStore::open(dir.path())?;
        let torn = store.is_after_loss() && !dir.is_at_rest();
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
        self.check_sandboxes(state.plan(), &options.given)?;
        let given = Some(options.given.clone()).filter(|given| *given != Given::of(&records));
        let lives = 1 + records.iter().filter(|record| matches!(record.event, Event::RunResumed { .. })).count();
        let before = (records.as_slice(), u32::try_from(lives).unwrap_or(u32::MAX));
        let services = self.services((run, state.plan(), before), (&dir, secrets), models, options)?;
        if torn {
            lost::give_up_torn(&state, &services.workspaces)?;
        }
        // Of what the machine's end has torn nobody goes on with anything.
        warnings.extend(self.mend(run, (&dir, &records), !torn)?);
        services.artefacts.recall(&records);
        keep_start(&services.repo, &state)?;
        restore(&services, &state, &records)?;
        let again = done_again(&state, &dir);
        warnings.extend(again.iter().map(|Repeated { node, what }| format!("`{node}`: {what} was begun before its process ended, and is done again")));
        let mut events = vec![Event::RunResumed { pid: std::process::id(), steps, given, again }];
        if services.reaches_out {
            lost::give_up(&state, &services.workspaces)?;
        }
        let why = Why { reaches_out: services.reaches_out, torn };
        for (said, event) in lost::attempts(&self.repo, (run, &state, &records), (why, services.clock.now()))? {
            warnings.push(said);
            events.push(event);
        }
        dir.wake().map_err(|source| SetupError::File { path: dir.path().display().to_string(), source })?;
        let mut journal = Journal::new(store, state, services.clock.clone()).without(&services.secrets);
        let is_given_up = events.len() > 1;
        let begun = journal.append(events)?;
        if is_given_up {
            // Nobody goes on with what was made in those attempts: what keeps it must stand from now on.
            let records: Vec<Record> = records.iter().chain(&begun).cloned().collect();
            warnings.extend(self.mend(run, (&dir, &records), false)?);
        }
        Ok(Prepared { journal, begun, services: Arc::new(services), dir, run: run.clone(), lease, warnings })
    }

    /// Puts what keeps a run's results back where the records say, and returns what was put there. What only hinders nothing
    /// is left to `spinney doctor`.
    ///
    /// # Errors
    /// `Damaged` where something is lost that the run goes on from.
    fn mend(&self, run: &RunId, (dir, records): (&RunDir, &[Record]), all: bool) -> Result<Vec<String>, SetupError> {
        let mut mended = Vec::new();
        let mut lost = Vec::new();
        for fault in health::faults(&self.repo, run, (dir.path(), records), all)? {
            match &fault.mend {
                _ if fault.verdict != Verdict::Broken => {}
                Some(mend @ Mend::Ref { to, .. }) if self.repo.has_commit(to)? => match mend.apply(&self.repo, dir.path()) {
                    Ok(()) => mended.push(format!("{}: {}; it was put back", fault.name, fault.detail)),
                    Err(error) => lost.push(format!("{}: {error}", fault.name)),
                },
                Some(mend @ (Mend::View(_) | Mend::Files(_))) => match mend.apply(&self.repo, dir.path()) {
                    Ok(()) => mended.push(format!("{}: {}; they were put back", fault.name, fault.detail)),
                    Err(error) => lost.push(format!("{}: {error}", fault.name)),
                },
                Some(_) | None => lost.push(format!("{}: {}", fault.name, fault.detail)),
            }
        }
        if lost.is_empty() { Ok(mended) } else { Err(SetupError::Damaged { run: run.clone(), lost }) }
    }

    /// Sees that the sandboxes of a plan's agents can be here what they say, before anything is begun.
    fn check_sandboxes(&self, plan: &Plan, given: &Given) -> Result<(), SetupError> {
        let Settings { directory, environment, config, cache, home, .. } = &self.settings;
        let closed = [Some(self.checkout()), Some(self.repo.common_dir()), Some(directory), config.as_deref(), Some(cache)];
        let here = Here { home: home.as_deref(), closed: closed.into_iter().flatten().map(Path::to_owned).collect() };
        let unwalled = || match Sandbox::new(sandbox::Options { path: environment.get("PATH").map(Into::into), ..sandbox::Options::default() }) {
            _ if given.unconfined => Some("this run is to have none (`--unconfined`)"),
            Ok(sandbox) if sandbox.bubblewrap().is_some() => None,
            Ok(_) | Err(_) => Some("there are none here: bubblewrap is not installed, or does not work"),
        };
        walls::check(plan, &here, unwalled)
    }

    /// Returns what commands get of the user's environment.
    pub(super) fn command_environment(&self, secrets: &Secrets) -> BTreeMap<String, String> {
        secrets::outside(sandbox::clean_env(&self.settings.environment), secrets)
    }

    /// Returns where the worktrees of a run stand.
    fn worktrees_of(&self, run: &RunId) -> PathBuf {
        self.settings.cache.join("worktrees").join(self.repo.id()).join(&run.0)
    }

    fn services(
        &self,
        (run, plan, before): (&RunId, &Plan, (&[Record], u32)),
        (dir, secrets): (&RunDir, Secrets),
        models: &Models,
        options: RunOptions,
    ) -> Result<Services, SetupError> {
        let folder = self.worktrees_of(run);
        let repo = self.repo.registered(&dir.processes())?;
        let workspaces = Workspaces::new(&repo, &folder, run)?.isolated(Isolation::Private).without(&secrets);
        let Settings { environment, program, .. } = &self.settings;
        let sandbox = Sandbox::new(sandbox::Options {
            registry: Some(dir.processes()),
            path: environment.get("PATH").map(Into::into),
            secrets: secrets.clone(),
            program: program.clone(),
            upstream: Upstream::of(environment),
        })?;
        let place = RunPlace { run: run.clone(), worktrees: folder.clone(), checkout: self.checkout().to_owned() };
        if let Some(replay) = &models.replay {
            replay.begin(place.clone(), &secrets, before);
        }
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
            hooks: self.hooks_of(plan),
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
        let mut set = caches::make(folder, &self.settings.environment).map_err(|source| SetupError::File { path: folder.display().to_string(), source })?;
        let mut readable = object_folders(&self.repo.common_dir().join("objects"));
        readable.extend(toolchains(&self.settings.environment));
        readable.extend(self.configuration.readable(self.settings.home.as_deref()));
        // The user's own settings of git are not there, but whose the commits are that a command makes. As the system's it is the last that counts.
        if let Some(user) = self.repo.user() {
            let file = folder.with_file_name("gitconfig");
            fs::write(&file, user.as_configuration()).map_err(|source| SetupError::File { path: file.display().to_string(), source })?;
            set.insert("GIT_CONFIG_SYSTEM".to_owned(), file.display().to_string());
            readable.push(file);
        }
        Ok(Walls { writable: vec![folder.to_owned()], readable, set, ..Walls::default() })
    }
}

/// Returns the hooks and checks that were under way when the process before this one ended, of attempts that go on.
fn done_again(state: &RunState, dir: &RunDir) -> Vec<Repeated> {
    let goes_on = |(attempt, again): (u32, Repeated)| {
        let owner = again.node.owner();
        let is_it = state.is_running(&owner) && state.node(&owner).is_some_and(|of| of.attempts == attempt);
        is_it.then_some(again)
    };
    left_under_way(&dir.processes()).into_iter().filter_map(goes_on).collect()
}

/// Keeps the commit that a run starts from, whatever becomes of the branches that have it.
fn keep_start(repo: &Repository, state: &RunState) -> Result<(), GitError> {
    let Some(started) = state.started() else { return Ok(()) };
    let name = start_of(&started.run);
    if repo.ref_at(&name)?.is_some() { Ok(()) } else { repo.set_ref(&name, &started.base, Expected::Absent) }
}

/// Makes the model of a run that takes place somewhere: one that is recorded, where it is to be.
fn model(models: &Models, recording: Option<Arc<Recording>>, place: RunPlace, secrets: &Secrets) -> Result<Arc<dyn Model>, RecordingError> {
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
