//! A run as a chain of lives, each ended by a store that dies at a given record; and what is compared at the end.
use crate::{fixture::Bench, invariants};
use serde_json::{Map, Value};
use spinney::{
    agent::Unwatched,
    cli::Context,
    clock::Clock,
    engine::{self, Asker, Ended, EngineError, Models, Prepared, Project, RunOptions, Settings, SetupError},
    event::{Event, Given, NodeId, Outcome, Record, RunId},
    journal::{Answered, Journal, Lease, Question, RunDir, SqliteStore, Store, StoreError},
    llm::{Endpoints, Script},
    plan::Plan,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};
use tokio_util::sync::CancellationToken;

/// What is played, and what it gives.
#[derive(Debug)]
pub(super) struct Tale {
    workflow: &'static str,
    script: &'static str,
    outputs: &'static [(&'static str, &'static str)],
}

/// Everything that leaves a mark outside the journal.
pub(super) const DURABLE: &Tale = &Tale {
    workflow: include_str!("workflow.yaml"),
    script: include_str!("script.yaml"),
    outputs: &[("effects", "first\nsecond\nfirst\n"), ("looked", "looked\ncounted\n")],
};
/// Sub-agents whose work meets, and a choice among what comes of it.
pub(super) const CHOICE: &Tale = &Tale {
    workflow: include_str!("choice.yaml"),
    script: include_str!("choice-script.yaml"),
    outputs: &[("winner", "left"), ("why", "2 of 2 votes: It goes left. / It goes left."), ("effects", "made\nafter\none\n")],
};
/// Questions that a person answers from another terminal, whether a process lives or has died.
pub(super) const ASKED: &Tale =
    &Tale { workflow: include_str!("asked.yaml"), script: include_str!("asked-script.yaml"), outputs: &[("by", "ann"), ("effects", "once\n")] };
const HOOK: &str = r#"{ "hooks": { "PreToolUse": [ { "matcher": "Write", "hooks": [
    { "type": "command", "command": "! grep -q secret.txt || { echo 'no secrets here' >&2; exit 2; }" } ] } ] } }"#;

/// How a process dies at a record.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Death {
    /// The record was acknowledged, and what follows it happened; the one after it never reached the disk.
    BeforeTheNext,
    /// The record reached the disk, but nobody was told, so nothing that follows it happened.
    Untold,
}

/// What a run that was left alone did, to compare others with.
pub(super) struct Story {
    tale: &'static Tale,
    pub(super) records: usize,
    end: End,
}

/// What must not depend on deaths.
#[derive(Debug, PartialEq)]
struct End {
    outcomes: BTreeMap<String, Value>,
    /// The files of every commit that an outcome names, and of the branch, with the hash of each content.
    trees: BTreeMap<String, String>,
    replies: BTreeMap<String, usize>,
    /// How often each node had an answer of a tool that was an error or was none.
    answers: BTreeMap<(String, String, bool), usize>,
    /// Which verdicts there were, not how often: checks run again where their end was recorded and the commit was not.
    checks: BTreeSet<(String, bool)>,
    refs: BTreeSet<String>,
    worktrees: BTreeSet<String>,
}

impl Story {
    /// Runs the workflow without a death.
    pub(super) fn clean(tale: &'static Tale) -> Story {
        let (end, records) = play(tale, &[(usize::MAX, Death::Untold)]);
        for (name, value) in tale.outputs {
            assert_eq!(end.outcomes["run"]["succeeded"]["output"][name], *value, "{end:#?}");
        }
        Story { tale, records, end }
    }

    /// Runs it with deaths: after how many records of each life, and how. A life may end the run before its death.
    #[track_caller]
    pub(super) fn with_deaths(&self, deaths: &[(usize, Death)]) {
        let shown = &deaths[..deaths.len().min(3)];
        let (end, _) = play(self.tale, deaths);
        let End { outcomes, trees, replies, answers, checks, refs, worktrees } = end;
        for (node, outcome) in &outcomes {
            assert_eq!(Some(outcome), self.end.outcomes.get(node), "the end of {node} after {shown:?}");
        }
        assert_eq!(outcomes, self.end.outcomes, "outcomes after {shown:?}");
        assert_eq!(trees, self.end.trees, "trees after {shown:?}");
        assert_eq!(replies, self.end.replies, "replies after {shown:?}");
        assert_eq!(answers, self.end.answers, "answers of tools after {shown:?}");
        assert_eq!(checks, self.end.checks, "checks after {shown:?}");
        assert_eq!(refs, self.end.refs, "refs after {shown:?}");
        assert_eq!(worktrees, self.end.worktrees, "worktrees after {shown:?}");
    }
}

/// Returns the plan and the log of a run that died once.
pub(super) fn log() -> (Arc<Plan>, Vec<Record>) {
    let bench = bench(DURABLE);
    let (run, ended) = live((DURABLE, &bench), None, (60, Death::Untold));
    assert!(ended.is_err());
    assert!(matches!(live((DURABLE, &bench), Some(&run), (usize::MAX, Death::Untold)).1, Ok(Ended::Finished(_))));
    (prepare(DURABLE, &bench).2, bench.records(&run))
}

fn bench(tale: &Tale) -> Bench {
    let bench = Bench::new()
        .file("shared.txt", "top\nmiddle\nbottom\n")
        .commit("shared")
        .workflow("durable", tale.workflow)
        .file(".spinney/hooks/no-secrets.json", HOOK);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

/// Runs the workflow through a chain of lives and looks at what is there in the end.
fn play(tale: &Tale, deaths: &[(usize, Death)]) -> (End, usize) {
    let bench = bench(tale);
    let mut run = None;
    for (records, death) in deaths {
        let mut left = *records;
        let ended = loop {
            let before = run.as_ref().map_or(0, |run| bench.records(run).len());
            let (id, ended) = live((tale, &bench), run.as_ref(), (left, *death));
            let id = run.insert(id);
            let Ok(Ended::Parked(asked)) = &ended else { break ended };
            answer(&bench, id, asked);
            left = left.saturating_sub(bench.records(id).len() - before).max(1);
        };
        match ended {
            Ok(Ended::Finished(_)) => break,
            Ok(other) => panic!("it ended as {other:?} after {deaths:?}"),
            // A record that ends the run may be stored and nobody told: there is nothing to go on with then.
            Err(EngineError::Journal(_)) if is_over(&bench.records(run.as_ref().unwrap())) => {
                assert_refused_as_over(tale, &bench, run.as_ref().unwrap());
                break;
            }
            Err(EngineError::Journal(_)) => {}
            Err(error) => panic!("{error} after {:?}", &deaths[..deaths.len().min(3)]),
        }
    }
    let run = run.unwrap();
    let records = bench.records(&run);
    assert!(is_over(&records), "not over after {} lives: {} records", deaths.len(), records.len());
    invariants::check(&records, &bench.repo());
    nothing_is_left(&bench, &run);
    (end(&bench, &run, &records), records.len())
}

/// Answers what a run waits for as somebody at another terminal does; a letter that is written already stays.
fn answer(bench: &Bench, run: &RunId, asked: &[(NodeId, String)]) {
    for (node, _) in asked {
        let said = bench.spinney(&["approve", &run.0, &node.to_string(), "--by", "ann", "--no-resume"]);
        assert!(said.code == 0 || said.err.contains("has answered it already"), "{}", said.err);
    }
}

fn is_over(records: &[Record]) -> bool {
    matches!(records.last().unwrap().event, Event::RunFinished { .. })
}

fn assert_refused_as_over(tale: &Tale, bench: &Bench, run: &RunId) {
    let (project, models, plan) = prepare(tale, bench);
    let refused = project.resume(run, plan, &models, options()).map(|_| "it went on");
    assert!(matches!(&refused, Err(SetupError::Over { run: over, .. }) if over == run), "{refused:?}");
}

pub(crate) fn options() -> RunOptions {
    RunOptions {
        asker: Arc::new(Nobody),
        watcher: Arc::new(Unwatched),
        clock: Clock::system(),
        given: Given { unconfined: true, ..Given::default() },
        accept_changes: false,
        recording: None,
    }
}

fn prepare(tale: &Tale, bench: &Bench) -> (Project, Models, Arc<Plan>) {
    // What its commands do is done in their worktrees, so that walls would change nothing.
    let settings = Settings { contained: true, ..Context::settings(bench.environment().clone(), bench.repo()) };
    let project = Project::open(settings).unwrap();
    let models = Models::scripted(Arc::new(Script::parse("script", tale.script).unwrap()), tale.script.to_owned(), &Endpoints::from_env(&|_| None));
    let (plan, _) = project.compile(&project.workflow("durable").unwrap(), &models).unwrap_or_else(|error| panic!("{error}"));
    (project, models, Arc::new(plan))
}

/// One process's part of a run.
fn live((tale, bench): (&Tale, &Bench), run: Option<&RunId>, (records, death): (usize, Death)) -> (RunId, Result<Ended, EngineError>) {
    let (project, models, plan) = prepare(tale, bench);
    let options = options();
    let prepared = match run {
        None => project.start(plan, &Map::new(), &models, options),
        Some(run) => project.resume(run, plan, &models, options),
    };
    carry(prepared.unwrap_or_else(|error| panic!("{error}")), (records, death))
}

/// Carries a run out until it has made so many records more.
pub(crate) fn carry(prepared: Prepared, (records, death): (usize, Death)) -> (RunId, Result<Ended, EngineError>) {
    let (store, state, clock) = prepared.journal.into_parts();
    let journal = Journal::new(Mortal { store, left: records, death }, state, clock);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let ended = runtime.block_on(engine::run(journal, prepared.services, CancellationToken::new(), &mut |_| {}));
    // Blocking work that was under way ends here; whatever it would have been followed by does not happen.
    drop(runtime);
    (prepared.run, ended)
}

/// A store that dies.
struct Mortal {
    store: SqliteStore,
    left: usize,
    death: Death,
}

impl Store for Mortal {
    fn append(&mut self, records: &[Record], synced: bool) -> Result<(), StoreError> {
        let kept = records.len().min(self.left);
        self.left -= kept;
        self.store.append(&records[..kept], synced)?;
        let dead = match self.death {
            Death::BeforeTheNext => kept < records.len(),
            Death::Untold => self.left == 0,
        };
        if dead { Err(StoreError::Full { path: PathBuf::from("the end of this life") }) } else { Ok(()) }
    }
}

struct Nobody;

#[async_trait::async_trait]
impl Asker for Nobody {
    async fn ask(&self, _: &NodeId, _: &Question) -> Option<Answered> {
        None
    }
}

fn end(bench: &Bench, run: &RunId, records: &[Record]) -> End {
    let plain = |text: &str| without_hashes(&text.replace(&run.0, "RUN"));
    let mut end = End {
        outcomes: BTreeMap::new(),
        trees: BTreeMap::new(),
        replies: BTreeMap::new(),
        answers: BTreeMap::new(),
        checks: BTreeSet::new(),
        refs: bench.git(&["for-each-ref", "--format=%(refname)"]).lines().map(plain).collect(),
        worktrees: slugs(&bench.path("cache/spinney/worktrees"), run).iter().map(|slug| plain(slug)).collect(),
    };
    let tree = |name: &str| bench.git(&["ls-tree", "-r", name]);
    if !bench.git(&["branch", "--list", &format!("spinney/{run}")]).is_empty() {
        end.trees.insert("the branch".to_owned(), tree(&format!("spinney/{run}")));
    }
    for record in records {
        match &record.event {
            Event::StepFinished { node, outcome } => {
                if let Some(commit) = outcome.success().and_then(|success| success.commit.as_ref()) {
                    end.trees.insert(node.to_string(), tree(&commit.0));
                }
                end.outcomes.insert(node.to_string(), plainly(outcome, &plain));
            }
            Event::RunFinished { outcome } => drop(end.outcomes.insert("run".to_owned(), plainly(outcome, &plain))),
            Event::ModelReplied { node, .. } => *end.replies.entry(plain(&node.to_string())).or_default() += 1,
            Event::ToolFinished { node, tool, result, .. } => {
                *end.answers.entry((plain(&node.to_string()), tool.clone(), result.is_error)).or_default() += 1;
            }
            Event::VerifyRan { node, passed, .. } => end.checks.extend([(node.to_string(), *passed)]),
            _ => {}
        }
    }
    end
}

/// Returns an outcome without what differs from run to run.
pub(crate) fn plainly(outcome: &Outcome, plain: &dyn Fn(&str) -> String) -> Value {
    serde_json::from_str(&plain(&serde_json::to_string(outcome).unwrap())).unwrap()
}

/// Writes `#` for every run of eight or more hexadecimal digits: commits differ from run to run by the run's name.
pub(crate) fn without_hashes(text: &str) -> String {
    let mut plain = String::new();
    let mut digits = String::new();
    for c in text.chars().chain(std::iter::once('\n')) {
        if c.is_ascii_digit() || ('a'..='f').contains(&c) {
            digits.push(c);
            continue;
        }
        plain.push_str(if digits.len() >= 8 { "#" } else { &digits });
        digits.clear();
        plain.push(c);
    }
    plain.pop();
    plain
}

fn slugs(worktrees: &Path, run: &RunId) -> Vec<String> {
    let of_run = fs::read_dir(worktrees).into_iter().flatten().map(|entry| entry.unwrap().path().join(&run.0));
    of_run.flat_map(|folder| fs::read_dir(folder).into_iter().flatten()).map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

/// Nobody holds the run, no process of it runs, no lock file lies about.
pub(crate) fn nothing_is_left(bench: &Bench, run: &RunId) {
    let dir = RunDir::open(&RunDir::state(&bench.repo()), run).unwrap();
    assert!(Lease::owner(dir.path()).unwrap().is_none(), "the lease is held");
    assert_eq!(fs::read_dir(dir.processes()).unwrap().count(), 0, "a process is noted");
    let home = format!("HOME={}\0", bench.path("home").display());
    let ours = |entry: &fs::DirEntry| fs::read(entry.path().join("environ")).is_ok_and(|environ| String::from_utf8_lossy(&environ).contains(&home));
    let running: Vec<_> = fs::read_dir("/proc").into_iter().flatten().flatten().filter(ours).map(|entry| entry.file_name()).collect();
    assert!(running.is_empty(), "these processes still run: {running:?}");
    let locks = [locks(&bench.repo()), locks(&bench.path("cache/spinney/worktrees"))].concat();
    assert!(locks.is_empty(), "these locks are left: {locks:?}");
}

fn locks(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            found.extend(locks(&path));
        } else if path.extension().is_some_and(|extension| extension == "lock") {
            found.push(path);
        }
    }
    found
}
