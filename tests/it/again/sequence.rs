//! Any sequence of deaths, resumes, reruns, forks, retries and edits comes to what one run of the last definition comes to
//! that is left alone, and what is kept on the way is not done again.
use crate::{
    fixture::Bench,
    invariants,
    recovery::life::{Death, carry, nothing_is_left, options, without_hashes},
};
use serde_json::{Map, Value, json};
use spinney::{
    cli::Context,
    engine::{Again, Ended, EngineError, Models, Prepared, Project, Whence},
    event::{Event, NodeId, Record, RunId},
    llm::{Endpoints, Script},
    plan::Plan,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    sync::Arc,
};

/// Sequences of a usual test run; `SPINNEY_SEQUENCES` is another number of them.
const SEQUENCES: u64 = 4;
/// The steps that can be edited.
const EDITED: [&str; 5] = ["first", "agent", "each", "round", "last"];
const SCRIPT: &str = r#"
conversations:
  - agent: coder
    told: "Write (?<version>[0-9])"
    turns:
      - calls:
          - { tool: Write, input: { file_path: agent.txt, content: "agent ${version}\n" } }
      - say: "Wrote ${version}."
"#;

/// A workflow by the version of each of its steps.
#[derive(Debug, Clone, Default, PartialEq)]
struct Definition {
    versions: BTreeMap<&'static str, u32>,
    input: u32,
}

impl Definition {
    fn yaml(&self, bench: &Bench) -> String {
        let version = |step: &str| self.versions.get(step).copied().unwrap_or_default().to_string();
        let text = r#"
version: 1
name: flow
inputs: { word: { type: string, default: "0" } }
agents: { coder: { system: "You code.", access: write } }
steps:
  first: { run: "echo first >> EFFECTS; echo first VFIRST", output: { file: first.json } }
  agent: { needs: [first], agent: coder, prompt: "Write VAGENT.", workspace: { kind: worktree, setup: ["echo agent >> EFFECTS"] } }
  each:
    needs: [first]
    for_each: { items: [x, y, z], as: it, needs: "{{ ['x'] if it == 'z' else [] }}" }
    workspace: worktree
    run: "echo each/{{ it | sh }} >> EFFECTS; cat x.txt || true; echo {{ it | sh }} VEACH > {{ it | sh }}.txt"
  land: { needs: [agent, each], merge: { from: [agent, each] } }
  round:
    needs: [land]
    loop: { max: 3, until: "loop.iteration >= 2" }
    steps: { once: { run: "echo round >> EFFECTS; echo {{ loop.iteration | sh }} VROUND" } }
  word: { needs: [first], run: "echo word >> EFFECTS; echo {{ inputs.word | sh }}" }
  last: { needs: [round, word], workspace: worktree, run: "echo last >> EFFECTS; cat *.txt > all.txt; echo VLAST >> all.txt; cat all.txt" }
outputs: { all: "{{ steps.last.stdout }}", word: "{{ steps.word.stdout }}", round: "{{ steps.round.output.once.stdout }}" }
"#;
        let text = EDITED.iter().fold(text.to_owned(), |text, step| text.replace(&format!("V{}", step.to_uppercase()), &version(step)));
        text.replace("EFFECTS", &bench.path("effects").display().to_string())
    }

    fn inputs(&self) -> Map<String, Value> {
        Map::from_iter([("word".to_owned(), json!(self.input.to_string()))])
    }
}

struct Room {
    bench: Bench,
    definition: Definition,
}

impl Room {
    fn new(definition: Definition) -> Room {
        let bench = Bench::new();
        let mut room = Room { bench, definition: definition.clone() };
        room.define(definition);
        room
    }

    fn define(&mut self, definition: Definition) {
        let yaml = definition.yaml(&self.bench);
        fs::create_dir_all(self.bench.repo().join(".spinney/workflows")).unwrap();
        fs::write(self.bench.repo().join(".spinney/workflows/flow.yaml"), yaml).unwrap();
        self.definition = definition;
    }

    fn prepare(&self) -> (Project, Models, Arc<Plan>) {
        let project = Project::open(Context::settings(self.bench.environment().clone(), self.bench.repo())).unwrap();
        let models = Models::scripted(Arc::new(Script::parse("script", SCRIPT).unwrap()), SCRIPT.to_owned(), &Endpoints::from_env(&|_| None));
        let (plan, _) = project.compile(&project.workflow("flow").unwrap(), &models).unwrap_or_else(|error| panic!("{error}"));
        (project, models, Arc::new(plan))
    }

    fn begin(&self) -> Prepared {
        let (project, models, plan) = self.prepare();
        project.start(plan, &self.definition.inputs(), &models, options()).unwrap()
    }

    fn resume(&self, run: &RunId) -> Prepared {
        let (project, models, plan) = self.prepare();
        project.resume(run, plan, &models, options()).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Begins a run that follows from another one; `None` where everything holds. Says what is done again.
    fn follow(&self, run: &RunId, from: Whence) -> Option<(Prepared, BTreeSet<String>)> {
        let (project, models, plan) = self.prepare();
        let reset = project.reset(run, &plan, &Again { from, inputs: self.definition.inputs() }).unwrap_or_else(|error| panic!("{error}"));
        let again = reset.again().keys().map(NodeId::to_string).collect::<BTreeSet<_>>();
        let over = matches!(self.bench.records(run).last().map(|record| &record.event), Some(Event::RunFinished { .. }));
        if again.is_empty() && over {
            return None;
        }
        Some((project.begin_again(reset, plan, &models, options()).unwrap_or_else(|error| panic!("{error}")), again))
    }

    /// Returns how often each effect happened since it was asked last.
    fn effects(&self) -> BTreeMap<String, usize> {
        let path = self.bench.path("effects");
        let done = fs::read_to_string(&path).unwrap_or_default();
        fs::write(path, "").unwrap();
        done.lines().fold(BTreeMap::new(), |mut counts, line| {
            *counts.entry(line.to_owned()).or_default() += 1;
            counts
        })
    }

    /// Returns what a run came to, without what differs from run to run.
    fn end(&self, run: &RunId) -> Value {
        let records = self.bench.records(run);
        invariants::check(&records, &self.bench.repo());
        nothing_is_left(&self.bench, run);
        let plain = |text: String| without_hashes(&text.replace(&run.0, "RUN"));
        let outcome = |record: &Record| match &record.event {
            Event::StepFinished { node, outcome } => Some((node.to_string(), outcome.clone())),
            Event::RunFinished { outcome } => Some(("run".to_owned(), outcome.clone())),
            _ => None,
        };
        let outcomes: BTreeMap<String, String> =
            records.iter().filter_map(outcome).map(|(node, outcome)| (node, plain(serde_json::to_string(&outcome).unwrap()))).collect();
        let artefact = fs::read_to_string(self.bench.repo().join(format!(".spinney/state/runs/{run}/artifacts/first.json"))).unwrap();
        let refs: Vec<String> =
            self.bench.git(&["for-each-ref", "--format=%(refname)", &format!("refs/spinney/{run}")]).lines().map(|line| plain(line.to_owned())).collect();
        json!({"outcomes": outcomes, "tree": self.bench.git(&["ls-tree", "-r", &format!("spinney/{run}")]), "artefact": artefact, "refs": refs})
    }
}

/// What a life of a run is to be.
fn life(prepared: Prepared, random: &mut fastrand::Rng) -> (RunId, bool) {
    let death = if random.bool() { Death::Untold } else { Death::BeforeTheNext };
    let most = if random.u32(..3) == 0 { random.usize(2..50) } else { usize::MAX };
    let (run, ended) = carry(prepared, (most, death));
    match ended {
        Ok(Ended::Finished(_)) => (run, true),
        Err(EngineError::Journal(_)) => (run, false),
        other => panic!("{run}: {other:?}"),
    }
}

fn is_over(room: &Room, run: &RunId) -> bool {
    matches!(room.bench.records(run).last().unwrap().event, Event::RunFinished { .. })
}

/// Lives through one sequence, and returns the story of it.
fn sequence(seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut room = Room::new(Definition::default());
    let mut story = vec!["start".to_owned()];
    let (mut run, _) = life(room.begin(), &mut random);
    room.effects();
    for turn in 0..3 {
        let last = turn == 2;
        if !is_over(&room, &run) && random.bool() {
            story.push("resume".to_owned());
            (run, _) = life(room.resume(&run), &mut random);
            room.effects();
            continue;
        }
        for _ in 0..random.u32(..3) {
            let mut edited = room.definition.clone();
            let step = EDITED[random.usize(..EDITED.len())];
            *edited.versions.entry(step).or_default() += 1;
            story.push(format!("edit {step}"));
            room.define(edited);
        }
        if random.u32(..3) == 0 {
            room.definition.input += 1;
            story.push("input".to_owned());
        }
        let whence = match random.u32(..4) {
            _ if last => Whence::Changes,
            0 => Whence::Failures,
            1 | 2 => Whence::Named(["first", "agent", "each", "each/x", "each/y", "land", "round", "last"][random.usize(..8)].to_owned()),
            _ => Whence::Changes,
        };
        // An item that never was cannot be named.
        let whence = match whence {
            Whence::Named(name) if name.contains('/') && !room.bench.records(&run).iter().any(|record| matches!(record.event, Event::ItemsAdded { .. })) => {
                Whence::Changes
            }
            whence => whence,
        };
        story.push(format!("{whence:?}"));
        let Some((prepared, again)) = room.follow(&run, whence) else { continue };
        let alone;
        (run, alone) = life(prepared, &mut random);
        let done = room.effects();
        for (effect, times) in &done {
            // Of a step whose items hold in part those are named that do not.
            let step = effect.split('/').next().unwrap_or_default();
            let whole = again.contains(step) && !again.iter().any(|node| node.starts_with(&format!("{step}/")));
            assert!(whole || again.contains(effect), "seed {seed}: {effect} was done {times} times, and holds: {story:?}, again: {again:?}");
            assert!(!alone || *times == 1 || effect == "round" && *times == 2, "seed {seed}: {effect} was done {times} times: {story:?}");
        }
    }
    // Whatever is left is done now.
    for _ in 0..60 {
        if is_over(&room, &run) {
            break;
        }
        story.push("resume".to_owned());
        (run, _) = life(room.resume(&run), &mut random);
    }
    if let Some((prepared, _)) = room.follow(&run, Whence::Changes) {
        story.push("rerun".to_owned());
        let (id, ended) = carry(prepared, (usize::MAX, Death::Untold));
        assert!(matches!(ended, Ok(Ended::Finished(_))), "seed {seed}: {ended:?}: {story:?}");
        run = id;
    }
    let clean = Room::new(room.definition.clone());
    let (id, ended) = carry(clean.begin(), (usize::MAX, Death::Untold));
    assert!(matches!(ended, Ok(Ended::Finished(_))), "{ended:?}");
    assert_eq!(room.end(&run), clean.end(&id), "seed {seed}: {story:?}; SPINNEY_SEQUENCE={seed} repeats it");
}

#[test]
fn any_sequence_comes_to_what_one_clean_run_comes_to() {
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    if let Some(seed) = number("SPINNEY_SEQUENCE") {
        return sequence(seed);
    }
    (0..number("SPINNEY_SEQUENCES").unwrap_or(SEQUENCES)).for_each(sequence);
}
