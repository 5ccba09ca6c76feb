//! Where a simulated run takes place: a repository, a clock, and its lives one after the other.
use super::{
    end::End,
    faults::{Death, Faults, Frail, Life, note_intended},
    mind::{Broken, Mind},
    outside::Send,
    power::{Disk, Tear, spoil},
    scenario::{CHILD, Scenario, WRITING_CHILD},
};
use crate::{fixture::Bench, invariants};
use fastrand::Rng;
use serde_json::Map;
use spinney::{
    agent::Unwatched,
    cli::Context,
    clock::{Clock, Timestamp},
    engine::{self, Asker, Ended, EngineError, Models, Prepared, Project, RunOptions, Settings, SetupError},
    event::{Event, Given, NodeId, Record, RunId},
    journal::{Answered, Journal, LeaseError, Question},
    plan::Plan,
    tasks,
};
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, Mutex, OnceLock,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    task::Poll,
};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// When the first life begins.
const BEGIN: Timestamp = Timestamp(1_796_000_000_000);
/// Most lives that a run may need besides those that are ended: each question and each model that is away takes one.
const LIVES_MAX: usize = 60;
/// How often the loop may be woken without a record: the letters of people are looked for every 0.3 seconds.
const WAKINGS_MAX: usize = 50_000;

/// What a run came to.
pub(super) struct Played {
    pub(super) end: End,
    pub(super) records: Vec<Record>,
    /// How many lives it took.
    pub(super) lives: usize,
    pub(super) happened: Vec<Happened>,
    /// Where everything was.
    pub(super) place: String,
}

/// Something that went wrong, or was otherwise than elsewhere.
#[derive(Debug, Clone, Copy)]
pub(super) enum Happened {
    Died(Death),
    /// What the end of the power took: of the journal's end, records, and files of worktrees.
    Torn {
        tear: Tear,
        lost: usize,
        spoiled: usize,
    },
    /// Another process was refused the run.
    Refused,
    /// By so many seconds.
    ClockSet(i64),
    Broke(Broken),
    /// Commands ran inside of walls.
    Walled,
}

/// One seed of so many has its commands inside of walls, as they are for users: what runs in a simulated run is known.
const WALLED: u64 = 8;

/// A run, how one process's part of it ended, and the disk where the power may have failed.
type Lived = (RunId, Result<Option<Ended>, EngineError>, Option<Arc<Mutex<Disk>>>);

/// Everything a run takes place in.
struct World {
    walled: bool,
    happened: Vec<Happened>,
    bench: Bench,
    mind: Arc<Mind>,
    project: Project,
    models: Models,
    plan: Arc<Plan>,
    now: Timestamp,
    intended: Arc<AtomicU64>,
}

/// Runs a scenario through its lives and to its end.
pub(super) fn play(seed: u64, scenario: &Scenario, faults: &Faults) -> Result<Played, String> {
    let mut world = World::new(seed, scenario, faults)?;
    // The run's name is drawn.
    fastrand::seed(seed);
    let mut run: Option<RunId> = None;
    let mut rest = faults.lives.iter();
    let synced = Arc::new(AtomicU64::new(0));
    let mut lives = 0;
    loop {
        lives += 1;
        if lives > LIVES_MAX {
            return Err(format!("it is not over after {LIVES_MAX} lives"));
        }
        let life = rest.next();
        let (id, ended, disk) = world.live(run.as_ref(), life, &synced)?;
        if let Some(disk) = disk {
            world.power_failed(&id, &disk.lock().unwrap(), &mut Rng::with_seed(seed ^ lives as u64));
        }
        let records = world.bench.records(&id);
        if (records.len() as u64) < synced.load(Ordering::SeqCst) {
            return Err(format!("{} records are there, and {} were on the disk", records.len(), synced.load(Ordering::SeqCst)));
        }
        world.is_told_of(&id, &records)?;
        // What the power's end took is to be told of anew.
        world.intended.store(u64::MAX, Ordering::SeqCst);
        note_intended(&world.intended, &records);
        invariants::of_log(&records);
        invariants::of_plan(&world.plan, &records);
        run = Some(id.clone());
        match ended {
            Ok(Some(Ended::Parked(asked))) => world.answer(&id, &asked),
            Ok(Some(Ended::Interrupted) | None) => {}
            Ok(Some(Ended::Finished(_))) => break,
            Err(EngineError::Journal(_)) if is_over(&records) => {
                world.refused_as_over(&id)?;
                break;
            }
            Err(EngineError::Journal(_)) if life.is_some() => {}
            Err(error) => return Err(format!("a life ended with: {error}")),
        }
    }
    let run = run.expect("there was a life");
    let records = world.bench.records(&run);
    invariants::check(&records, &world.bench.repo());
    let bug = records.iter().find(|record| format!("{:?}", record.event).contains("kind: Bug"));
    if let Some(record) = bug {
        return Err(format!("a bug: {:?}", record.event));
    }
    let outside = fs::read_to_string(world.bench.path("outside")).unwrap_or_default();
    let heard = world.mind.heard();
    // What the power's end takes is asked for again when the files have gone on; and a reply that was cut comes whole then.
    if let Some(problem) = heard.problem.clone().filter(|_| faults.power_cuts() == 0 && faults.broken.is_empty()) {
        return Err(problem);
    }
    let place = world.bench.path("").display().to_string();
    let mut happened = world.happened;
    happened.extend(heard.broke.iter().copied().map(Happened::Broke));
    Ok(Played { end: End::of(&world.bench, &run, &records, (&outside, heard)), records, lives, happened, place })
}

fn is_over(records: &[Record]) -> bool {
    matches!(records.last().map(|record| &record.event), Some(Event::RunFinished { .. }))
}

/// A repository that all runs begin with; made once.
fn template() -> &'static Bench {
    static TEMPLATE: OnceLock<Bench> = OnceLock::new();
    TEMPLATE
        .get_or_init(|| Bench::new().file("shared.txt", "top\nmiddle\nbottom\n").commit("shared").workflow("child", CHILD).workflow("scribe", WRITING_CHILD))
}

/// Says yes where it is asked at once; every other question waits for the next life.
struct Someone;

#[async_trait::async_trait]
impl Asker for Someone {
    async fn ask(&self, _: &NodeId, question: &Question) -> Option<Answered> {
        let at_once = question.text.len().is_multiple_of(2);
        at_once.then(|| Answered { allowed: true, by: "ann".to_owned(), note: None })
    }
}

fn options(clock: Clock, walled: bool) -> RunOptions {
    let given = Given { unconfined: !walled, ..Given::default() };
    RunOptions { asker: Arc::new(Someone), watcher: Arc::new(Unwatched), clock, given, accept_changes: false, recording: None }
}

impl World {
    fn new(seed: u64, scenario: &Scenario, faults: &Faults) -> Result<World, String> {
        let walled = seed % WALLED == WALLED / 2;
        // At the same place for each run of a seed, which a test runs one after the other: what is asked of the model tells of it.
        let bench = template().copied(&seed.to_string());
        let outside = bench.path("outside");
        let yaml = scenario.yaml(&outside.display().to_string());
        let bench = bench.workflow("simulated", &yaml);
        let settings = Settings { contained: true, ..Context::settings(bench.environment().clone(), bench.repo()) };
        let mut project = Project::open(settings).map_err(|error| error.to_string())?;
        project.toolbox = Arc::new((*project.toolbox).clone().with(Arc::new(Send::new(outside))));
        let mind = Arc::new(Mind::new(scenario, faults.broken.clone()));
        let mut models = Models::scripted(mind.clone(), "simulated".to_owned(), &spinney::llm::Endpoints::from_env(&|_| None));
        models.providers.extend(["first", "second", "small"].map(str::to_owned));
        let workflow = project.workflow("simulated").map_err(|error| format!("{error}\n{yaml}"))?;
        let (plan, _) = project.compile(&workflow, &models).map_err(|error| format!("{error}\n{yaml}"))?;
        let happened = walled.then_some(Happened::Walled).into_iter().collect();
        Ok(World { walled, happened, bench, mind, project, models, plan: Arc::new(plan), now: BEGIN, intended: Arc::new(AtomicU64::new(u64::MAX)) })
    }

    fn prepare(&self, run: Option<&RunId>, clock: Clock) -> Result<Prepared, SetupError> {
        match run {
            None => self.project.start(self.plan.clone(), &Map::new(), &self.models, options(clock, self.walled)),
            Some(run) => self.project.resume(run, self.plan.clone(), &self.models, options(clock, self.walled)),
        }
    }

    /// One process's part of a run: nothing where it was dropped as it stood, and the disk where the power failed.
    fn live(&mut self, run: Option<&RunId>, life: Option<&Life>, synced: &Arc<AtomicU64>) -> Result<Lived, String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let _entered = runtime.enter();
        let jump = life.map_or(0, |life| life.jump);
        let clock = Clock::runtime(moved(self.now, jump));
        tasks::in_one_thread(|| {
            let Prepared { journal, services, run: id, lease, begun, dir, .. } =
                self.prepare(run, clock.clone()).map_err(|error| format!("a life could not begin: {error}"))?;
            let (store, state, own) = journal.into_parts();
            if let Some(last) = begun.last().filter(|_| begun.iter().any(|record| record.event.needs_sync())) {
                synced.store(last.seq + 1, Ordering::SeqCst);
            }
            let forever = Life { records: usize::MAX, death: Death::Dropped, jump: 0, jump_inside: None, second: None };
            let life = *life.unwrap_or(&forever);
            let disk = (life.death == Death::Power).then(|| Arc::new(Mutex::new(Disk::new(dir.path()))));
            let dead = Arc::new(AtomicBool::new(false));
            let journal = Journal::new(
                Frail {
                    store,
                    disk: disk.clone(),
                    dead: dead.clone(),
                    left: life.records,
                    death: life.death,
                    synced: synced.clone(),
                    intended: self.intended.clone(),
                    branch: self.bench.repo().join(format!(".git/refs/heads/spinney/{id}")),
                },
                state,
                own,
            );
            let (cancel, enough) = (CancellationToken::new(), Notify::new());
            let (mut seen, mut refused) = (0, Ok(()));
            let wakings = AtomicUsize::new(0);
            let mut observe = |_: &Record| {
                seen += 1;
                wakings.store(0, Ordering::SeqCst);
                if let Some((_, by)) = life.jump_inside.filter(|(at, _)| *at == seen) {
                    clock.set(moved(clock.now(), by));
                }
                if life.second == Some(seen) {
                    refused = self.second(&id, &clock);
                }
                if seen == life.records {
                    match life.death {
                        Death::Dropped => enough.notify_one(),
                        Death::Asked => cancel.cancel(),
                        _ => {}
                    }
                }
            };
            let ended = runtime.block_on(async {
                let mut run = std::pin::pin!(engine::run(journal, services, cancel.clone(), &mut observe));
                let run = std::future::poll_fn(|context| match wakings.fetch_add(1, Ordering::SeqCst) {
                    WAKINGS_MAX.. => Poll::Ready(None),
                    _ => run.as_mut().poll(context).map(Some),
                });
                tokio::select! {
                    biased;
                    () = enough.notified() => Some(Ok(None)),
                    ended = run => ended.map(|ended| ended.map(Some)),
                }
            });
            drop(lease);
            refused?;
            self.now = moved(clock.now(), 1);
            let ended = ended.ok_or("nothing happens any more: it hangs")?;
            let is_dead = dead.load(Ordering::SeqCst) || matches!(ended, Ok(None | Some(Ended::Interrupted)));
            self.happened.extend(is_dead.then_some(Happened::Died(life.death)));
            self.happened.extend((life.second.is_some_and(|at| at <= seen)).then_some(Happened::Refused));
            self.happened.extend(
                [(jump, true), life.jump_inside.map_or((0, false), |(at, by)| (by, at > 0 && at <= seen))]
                    .into_iter()
                    .filter(|(by, was)| *was && *by != 0)
                    .map(|(by, _)| Happened::ClockSet(by)),
            );
            Ok((id, ended, disk))
        })
    }

    /// Leaves of a run what is on the disk after the power failed.
    fn power_failed(&mut self, run: &RunId, disk: &Disk, random: &mut Rng) {
        let before = self.bench.records(run).len();
        let Some(tear) = disk.tear(random) else { return };
        let lost = before - self.bench.records(run).len();
        let spoiled = spoil(&self.bench.path("cache/spinney/worktrees"), random);
        self.happened.push(Happened::Torn { tear, lost, spoiled });
    }

    /// Another process wants the run.
    fn second(&self, run: &RunId, clock: &Clock) -> Result<(), String> {
        match self.prepare(Some(run), clock.clone()) {
            Err(SetupError::Lease(LeaseError::Held { pid, .. })) if pid == std::process::id() => Ok(()),
            Err(other) => Err(format!("a second process was refused with: {other}")),
            Ok(_) => Err("a second process took the run".to_owned()),
        }
    }

    /// Answers what a run waits for as somebody at another terminal does; a letter that is written already stays.
    fn answer(&self, run: &RunId, asked: &[(NodeId, String)]) {
        for (node, _) in asked {
            self.bench.spinney(&["approve", &run.0, &node.to_string(), "--by", "ann", "--no-resume"]);
        }
    }

    /// Whatever people see of a run, its journal knows of it: also where the power failed.
    fn is_told_of(&self, run: &RunId, records: &[Record]) -> Result<(), String> {
        let intended = records.iter().any(|record| matches!(record.event, Event::BranchIntended { .. }));
        let seen = self.bench.repo().join(format!(".git/refs/heads/spinney/{run}")).exists();
        if seen && !intended { Err("there is a branch of which the journal does not know".to_owned()) } else { Ok(()) }
    }

    fn refused_as_over(&self, run: &RunId) -> Result<(), String> {
        match self.prepare(Some(run), Clock::system()) {
            Err(SetupError::Over { .. }) => Ok(()),
            Err(other) => Err(format!("a run that is over is refused with: {other}")),
            Ok(_) => Err("a run that is over went on".to_owned()),
        }
    }
}

fn moved(from: Timestamp, seconds: i64) -> Timestamp {
    Timestamp(from.0.saturating_add_signed(seconds * 1000))
}

/// Counts the lines of a text.
pub(super) fn counted(text: &str) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for line in text.lines() {
        *counts.entry(line.to_owned()).or_default() += 1;
    }
    counts
}
