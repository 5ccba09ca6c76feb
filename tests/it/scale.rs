//! Size: what a large workflow costs, held by counts of work done and never by a clock.
//!
//! A run is simulated from its file to its end. What is counted is the records of its journal and what `decide` commands;
//! time per step at each size is for `cargo bench --bench core`.
use spinney::{
    clock::Timestamp,
    engine::{self, Command, Live, Simulated, decide},
    event::{CommitId, Event, Outcome, Record, RunId, RunStarted, Success},
    journal::RunState,
    plan::{Catalog, Plan},
    source::Source,
    workflow::{Stub, Workflow},
};
use std::{collections::BTreeMap, fmt::Write as _, sync::Arc};

fn compile(yaml: &str) -> Arc<Plan> {
    let workflow = Workflow::load(&Arc::new(Source { name: "large.yaml".to_owned(), text: yaml.to_owned() })).unwrap_or_else(|found| panic!("{found}"));
    Arc::new(Plan::compile(&workflow, &Catalog::default()).unwrap_or_else(|found| panic!("{found}")).0)
}

/// A hundred chains beside each other, as far as there are steps.
fn steps(size: usize) -> String {
    let mut yaml = "version: 1\nname: large\nsteps:\n".to_owned();
    for n in 0..size {
        let needs = if n < 100 { String::new() } else { format!("needs: [s{}], ", n - 100) };
        let _ = writeln!(yaml, "  s{n}: {{ {needs}run: \"true\" }}");
    }
    yaml
}

fn items(size: usize) -> String {
    let items: Vec<String> = (0..size).map(|n| n.to_string()).collect();
    format!("version: 1\nname: many\nsteps:\n  work: {{ for_each: {{ items: [{}], as: n }}, run: \"echo {{{{ n | sh }}}}\" }}\n", items.join(", "))
}

fn simulate(yaml: &str) -> Simulated {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(engine::simulate(compile(yaml), &serde_json::Map::new(), Stub::empty())).unwrap()
}

#[test]
fn ten_thousand_steps_load_and_compile() {
    let plan = compile(&steps(10_000));
    assert_eq!((plan.order().len(), plan.sinks().count()), (10_000, 100));
    assert_eq!(compile(&items(10_000)).order().len(), 1);
}

#[test]
fn every_step_is_two_records_however_many_there_are() {
    for size in [100, 1_000] {
        let run = simulate(&steps(size));
        assert!(run.outcome.as_ref().is_some_and(|outcome| outcome.success().is_some()), "{:?}", run.outcome);
        assert_eq!((run.legs.len(), run.peak), (size, 8));
        // One that it begins, one that it ends; and those of the run itself.
        assert_eq!(run.records, 2 * size as u64 + 2);
        assert_eq!(run.took, engine::OTHER_TAKES * u32::try_from(size.div_ceil(8)).unwrap());
    }
}

#[test]
fn every_item_is_two_records_however_many_there_are() {
    for size in [100, 1_000] {
        let run = simulate(&items(size));
        assert!(run.outcome.as_ref().is_some_and(|outcome| outcome.success().is_some()), "{:?}", run.outcome);
        // Beside the items': that they are added, that they are joined.
        assert_eq!((run.legs.len(), run.records), (size, 2 * size as u64 + 4));
    }
}

/// Runs a plan by hand and counts what `decide` commands after each single event.
#[test]
fn one_end_is_answered_by_what_it_touches() {
    let plan = compile(&steps(2_000));
    let mut state = RunState::new(plan.clone());
    let tell = |state: &mut RunState, event| {
        let record = Record { seq: state.next_seq(), at: Timestamp(0), event };
        state.apply(&record).unwrap();
    };
    let started = RunStarted {
        run: RunId::from("large-1"),
        workflow: "large".to_owned(),
        file: "large.yaml".to_owned(),
        inputs: serde_json::Map::new(),
        base: CommitId::from("0"),
        head: None,
        pins: BTreeMap::new(),
        script: None,
        replays: false,
        steps: BTreeMap::new(),
        origin: None,
        given: spinney::event::Given::default(),
    };
    tell(&mut state, Event::RunStarted(Box::new(started)));
    let mut live = Live::default();
    let mut under_way = std::collections::VecDeque::new();
    let mut ended = 0;
    let mut commands = decide(&plan, &state, &live);
    assert_eq!(commands.len(), plan.max_parallel, "as many begin as there are places");
    loop {
        for command in commands {
            let Command::Start { node, attempt } = command else { return assert_eq!((command, ended), (Command::Close, 2_000)) };
            live.begin(&state, node.clone());
            under_way.push_back(node.clone());
            tell(&mut state, Event::StepStarted { node, attempt });
        }
        assert_eq!(decide(&plan, &state, &live), [], "nothing happened since");
        let node = under_way.pop_front().unwrap();
        live.end(&node);
        tell(&mut state, Event::StepFinished { node, outcome: Outcome::Succeeded(Success::default()) });
        ended += 1;
        commands = decide(&plan, &state, &live);
        assert!(commands.len() <= 1, "one place is free, so one step begins: {commands:?}");
        if commands.is_empty() {
            assert!(ended > 2_000 - plan.max_parallel, "only at the end is there nothing to begin");
        }
    }
}
