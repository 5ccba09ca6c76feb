//! Where a simulated run takes place: a repository, a clock, and its lives one after the other.
use super::{
    end::End,
    faults::{Death, Faults, Frail, Life, lose},
    mind::Mind,
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
    journal::{Answered, Journal, LeaseError, Question, RunDir},
    plan::Plan,
    tasks,
};
use std::{
    collections::BTreeMap,
    fs,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
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
    /// Where everything was.
    pub(super) place: String,
}

/// Everything a run takes place in.
struct World {
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
    let mut world = World::new(scenario, faults)?;
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
        let (id, ended) = world.live(run.as_ref(), life, &synced)?;
        let dir = RunDir::open(&RunDir::state(&world.bench.repo()), &id).map_err(|error| error.to_string())?;
        if life.is_some_and(|life| life.death == Death::Power) && !matches!(ended, Ok(Some(Ended::Finished(_)))) {
            lose(dir.path(), synced.load(Ordering::SeqCst), &mut Rng::with_seed(seed ^ lives as u64));
        }
        let records = world.bench.records(&id);
        world.is_told_of(&id, &records)?;
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
    Ok(Played { end: End::of(&world.bench, &run, &records, (&outside, heard)), records, lives, place })
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

fn options(clock: Clock) -> RunOptions {
    RunOptions { asker: Arc::new(Someone), watcher: Arc::new(Unwatched), clock, given: Given::default(), accept_changes: false, recording: None }
}

impl World {
    fn new(scenario: &Scenario, faults: &Faults) -> Result<World, String> {
        let bench = template().copied();
        let yaml = scenario.yaml(&bench.path("outside").display().to_string());
        let bench = bench.workflow("simulated", &yaml);
        let settings = Settings { contained: true, ..Context::settings(bench.environment().clone(), bench.repo()) };
        let project = Project::open(settings).map_err(|error| error.to_string())?;
        let mind = Arc::new(Mind::new(scenario, faults.broken.clone()));
        let mut models = Models::scripted(mind.clone(), "simulated".to_owned(), &spinney::llm::Endpoints::from_env(&|_| None));
        models.providers.extend(["first", "second", "small"].map(str::to_owned));
        let workflow = project.workflow("simulated").map_err(|error| format!("{error}\n{yaml}"))?;
        let (plan, _) = project.compile(&workflow, &models).map_err(|error| format!("{error}\n{yaml}"))?;
        Ok(World { bench, mind, project, models, plan: Arc::new(plan), now: BEGIN, intended: Arc::new(AtomicU64::new(u64::MAX)) })
    }

    fn prepare(&self, run: Option<&RunId>, clock: Clock) -> Result<Prepared, SetupError> {
        match run {
            None => self.project.start(self.plan.clone(), &Map::new(), &self.models, options(clock)),
            Some(run) => self.project.resume(run, self.plan.clone(), &self.models, options(clock)),
        }
    }

    /// One process's part of a run; nothing where it was dropped as it stood.
    fn live(&mut self, run: Option<&RunId>, life: Option<&Life>, synced: &Arc<AtomicU64>) -> Result<(RunId, Result<Option<Ended>, EngineError>), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
        let _entered = runtime.enter();
        let jump = life.map_or(0, |life| life.jump);
        let clock = Clock::runtime(moved(self.now, jump));
        tasks::in_one_thread(|| {
            let Prepared { journal, services, run: id, lease, begun, .. } =
                self.prepare(run, clock.clone()).map_err(|error| format!("a life could not begin: {error}"))?;
            let (store, state, own) = journal.into_parts();
            if let Some(last) = begun.last().filter(|_| run.is_none()) {
                // The first record of a run is synced.
                synced.store(last.seq + 1, Ordering::SeqCst);
            }
            let forever = Life { records: usize::MAX, death: Death::Dropped, jump: 0, jump_inside: None, second: None };
            let life = *life.unwrap_or(&forever);
            let journal = Journal::new(
                Frail {
                    store,
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
            Ok((id, ended.ok_or("nothing happens any more: it hangs")?))
        })
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
