//! The algorithm on logs that are played without any work: what is done again and why, and that what holds can be replayed.
use super::*;
use crate::{
    engine::{
        decide::{Command, Live, decide},
        definition::{self, Resolved},
        fan, scope,
    },
    event::{CommitId, Failure, RunId, Success},
    journal::RunState,
    plan::Catalog,
    source::Source,
    workflow::{Join, Workflow},
};
use std::sync::Arc;

const FLOW: &str = r#"
version: 1
name: flow
inputs: { goal: { type: string, default: a }, depth: { type: integer, default: 1 } }
steps:
  plan: { run: "echo plan" }
  docs: { run: "echo {{ inputs.depth | sh }}" }
  build:
    needs: [plan]
    for_each: { items: [a, b, c], as: it, needs: "{{ ['a'] if it == 'c' else [] }}", max_parallel: 1 }
    run: "echo {{ it | sh }} {{ inputs.goal | sh }}"
  check: { needs: [build], run: "echo check" }
  report: { needs: [docs, check], run: "echo report" }
"#;

fn compile(yaml: &str) -> Arc<Plan> {
    let workflow = Workflow::load(&Arc::new(Source { name: "flow.yaml".to_owned(), text: yaml.to_owned() })).unwrap_or_else(|error| panic!("{error:?}"));
    Arc::new(Plan::compile(&workflow, &Catalog::default()).unwrap_or_else(|error| panic!("{error:?}")).0)
}

fn definitions(plan: &Plan) -> Definitions {
    definition::definitions(plan, Resolved { pins: &BTreeMap::new(), always: &BTreeSet::new() })
}

fn first(plan: &Plan, inputs: &Value) -> Event {
    Event::RunStarted(Box::new(RunStarted {
        run: RunId::from("flow-1"),
        workflow: "flow".to_owned(),
        file: "flow.yaml".to_owned(),
        inputs: plan.check_inputs(inputs.as_object().unwrap()).unwrap(),
        base: CommitId::from("0"),
        head: None,
        pins: BTreeMap::new(),
        script: None,
        replays: false,
        steps: definitions(plan),
        origin: None,
        given: crate::event::Given::default(),
    }))
}

/// Plays a run from wherever its records end, for so many records at most: every node ends as it is said.
fn play(plan: &Arc<Plan>, mut records: Vec<Record>, most: usize, ends: &dyn Fn(&NodeId) -> Outcome) -> Vec<Record> {
    let mut state = RunState::replay(plan.clone(), &records).unwrap();
    let mut live = Live::default();
    loop {
        let mut events = Vec::new();
        for command in decide(plan, &state, &live) {
            events.push(match command {
                Command::Start { node, attempt } => {
                    live.begin(&state, node.clone());
                    Event::StepStarted { node, attempt }
                }
                Command::Continue { node } => {
                    live.begin(&state, node);
                    continue;
                }
                Command::Stop { node, cause } => {
                    live.end(&node);
                    Event::StepFinished { node, outcome: Outcome::Skipped(cause) }
                }
                Command::Skip { node, cause } => Event::StepFinished { node, outcome: Outcome::Skipped(cause) },
                Command::Expand { step } => {
                    let planned = state.step(&step).unwrap();
                    let (items, max_parallel) = fan::expand(planned, &scope::scope(&state, &step, &planned.reads)).unwrap();
                    Event::ItemsAdded { by: step.clone(), step, items, max_parallel }
                }
                Command::Join { step } => Event::StepFinished { outcome: fan::join(&state, &step, Join::All), node: step },
                Command::Close => return records,
                other => panic!("{other:?}"),
            });
        }
        if events.is_empty() {
            let Some(node) = live.nodes().next().cloned() else { return records };
            live.end(&node);
            let outcome = ends(&node);
            events.push(Event::StepFinished { node, outcome });
        }
        for event in events {
            if records.len() == most {
                return records;
            }
            let record = Record { seq: records.len() as u64, at: Timestamp(records.len() as u64), event };
            state.apply(&record).unwrap();
            records.push(record);
        }
    }
}

fn begin(plan: &Arc<Plan>) -> Vec<Record> {
    vec![Record { seq: 0, at: Timestamp(0), event: first(plan, &serde_json::json!({})) }]
}

fn well(_: &NodeId) -> Outcome {
    Outcome::Succeeded(Success::default())
}

fn failing(names: &'static [&'static str]) -> impl Fn(&NodeId) -> Outcome {
    move |node| if names.contains(&node.to_string().as_str()) { Failure::new(FailureKind::Command, "no").into() } else { well(node) }
}

fn held(records: &[Record], plan: &Plan, wish: &Wish, inputs: &Value) -> Held {
    let steps = definitions(plan);
    let Event::RunStarted(started) = &records[0].event else { panic!("no beginning") };
    let inputs = plan.check_inputs(inputs.as_object().unwrap()).unwrap();
    holds(records, Anew { plan, steps: &steps, before: &started.steps, inputs: &inputs, wish })
}

fn again(records: &[Record], plan: &Plan, wish: &Wish) -> Vec<String> {
    said(&held(records, plan, wish, &serde_json::json!({})))
}

fn said(held: &Held) -> Vec<String> {
    held.again.iter().map(|(node, why)| format!("{node}: {why}")).collect()
}

fn from(step: &str) -> Wish {
    let (step, key) = step.split_once('/').map_or((step, None), |(step, key)| (step, Some(key)));
    let node = NodeId::step(&step.into());
    Wish::From(key.map_or(node.clone(), |key| node.with_item(key)))
}

#[test]
fn an_edit_runs_its_step_again_and_what_follows_and_nothing_else() {
    let plan = compile(FLOW);
    let records = play(&plan, begin(&plan), usize::MAX, &well);
    assert_eq!(again(&records, &plan, &Wish::Changed), [] as [&str; 0]);
    let edit = |before: &str, after: &str| again(&records, &compile(&FLOW.replace(before, after)), &Wish::Changed);
    assert_eq!(edit("echo check", "echo checked"), ["check: run changed", "report: after check"]);
    assert_eq!(edit("[a, b, c]", "[a, b, d]"), ["build: for_each changed", "check: after build", "report: after check"]);
    assert_eq!(edit("needs: [docs, check]", "needs: [check]"), ["report: needs changed"]);
    assert_eq!(edit("run: \"echo report\"", "run: \"echo report\", output: { parse: lines }"), ["report: output changed"]);
    let more = FLOW.replace("  check:", "  extra: { needs: [plan], run: \"echo extra\" }\n  check:").replace("[docs, check]", "[docs, check, extra]");
    assert_eq!(again(&records, &compile(&more), &Wish::Changed), ["extra: it is new", "report: needs changed"]);
}

#[test]
fn more_time_tries_or_money_ask_for_nothing_else() {
    let plan = compile(FLOW);
    let records = play(&plan, begin(&plan), usize::MAX, &well);
    let limits = FLOW
        .replace("max_parallel: 1", "max_parallel: 2")
        .replace("run: \"echo check\"", "run: \"echo check\", timeout: 9m, retry: { max: 3 }, cache: { key: [x] }");
    assert_ne!(limits, FLOW);
    assert_eq!(again(&records, &compile(&limits), &Wish::Changed), [] as [&str; 0]);
    // Nor does another place in the file, or a word for people.
    assert_eq!(
        again(&records, &compile(&format!("# a comment\n{FLOW}").replace("name: flow", "name: flow\ndescription: what it does")), &Wish::Changed),
        [] as [&str; 0]
    );
}

#[test]
fn another_input_runs_again_what_reads_it() {
    let plan = compile(FLOW);
    let records = play(&plan, begin(&plan), usize::MAX, &well);
    let with = |inputs: Value| said(&held(&records, &plan, &Wish::Changed, &inputs));
    assert_eq!(with(serde_json::json!({"depth": 2})), ["docs: reads the input depth", "report: after docs"]);
    assert_eq!(with(serde_json::json!({"goal": "b"})), ["build: reads the input goal", "check: after build", "report: after check"]);
    assert_eq!(with(serde_json::json!({"goal": "a", "depth": 1})), [] as [&str; 0]);
}

#[test]
fn an_item_runs_again_with_what_needs_it_and_the_others_hold() {
    let plan = compile(FLOW);
    let records = play(&plan, begin(&plan), usize::MAX, &well);
    let after = ["check: after build", "report: after check"];
    assert_eq!(again(&records, &plan, &from("build/b")), [&["build: 1 of 3 items", "build/b: asked for"][..], &after].concat());
    assert_eq!(again(&records, &plan, &from("build/a")), [&["build: 2 of 3 items", "build/a: asked for", "build/c: after build/a"][..], &after].concat());
    assert_eq!(again(&records, &plan, &from("build")), [&["build: asked for"][..], &after].concat());
    let failed = play(&plan, begin(&plan), usize::MAX, &failing(&["build/a"]));
    assert_eq!(again(&failed, &plan, &Wish::Failed), [&["build: 2 of 3 items", "build/a: failed", "build/c: after build/a"][..], &after].concat());
    // What failed holds as well as what did not, where only something else is asked for.
    assert_eq!(again(&failed, &plan, &from("report")), ["report: asked for"]);
}

#[test]
fn where_a_failure_keeps_items_from_beginning_it_is_tried_again_with_them() {
    let plan = compile(&FLOW.replace("max_parallel: 1", "max_parallel: 1, on_item_failure: stop"));
    let records = play(&plan, begin(&plan), usize::MAX, &failing(&["build/b"]));
    let items = ["build: 2 of 3 items", "build/b: failed", "build/c: was left out", "check: after build", "report: after check"];
    assert_eq!(again(&records, &plan, &Wish::Failed), items);
    let asked = again(&records, &plan, &from("build/a"));
    assert_eq!(asked[..4], ["build: 3 of 3 items", "build/a: asked for", "build/b: failed", "build/c: was left out"]);
}

#[test]
fn what_was_done_under_an_accepted_change_is_judged_by_that() {
    let (plan, other) = (compile(FLOW), compile(&FLOW.replace("echo plan", "echo plans").replace("echo check", "echo checks")));
    let mut records = play(&plan, begin(&plan), 4, &well);
    assert!(matches!(&records.last().unwrap().event, Event::StepFinished { node, .. } if node.step.0 == "docs" || node.step.0 == "plan"), "{records:?}");
    records = play(&plan, records, 6, &well);
    records.push(Record {
        seq: records.len() as u64,
        at: Timestamp(99),
        event: Event::RunResumed { pid: 1, steps: definitions(&other), given: None, again: Vec::new() },
    });
    let records = play(&other, records, usize::MAX, &well);
    assert_eq!(again(&records, &other, &Wish::Changed)[0], "build: after plan");
    assert!(again(&records, &other, &Wish::Changed).contains(&"plan: run changed".to_owned()));
    // Back at the first definition it is `check` that was another one.
    assert_eq!(again(&records, &plan, &Wish::Changed), ["check: run changed", "report: after check"]);
}

/// Whatever a run came to and whatever is wished and edited: what holds can be replayed, is what ended and is not done again,
/// and the new run comes to the end that one from the beginning comes to.
#[test]
fn what_holds_can_follow_the_new_beginning() {
    let edits: [(&str, &str); 5] =
        [("", ""), ("echo check", "echo x"), ("echo plan", "echo x"), ("[a, b, c]", "[a, b, c, d]"), ("needs: [docs, check]", "needs: [docs]")];
    let bad: [&'static [&'static str]; 4] = [&[], &["build/a"], &["build/b", "docs"], &["plan"]];
    let wishes = [Wish::Changed, Wish::Failed, from("plan"), from("build"), from("build/a"), from("build/b"), from("report")];
    let mut random = fastrand::Rng::with_seed(11);
    let flows = [FLOW.to_owned(), FLOW.replace("max_parallel: 1", "fail_fast: true")];
    let plans = flows.map(|flow| edits.map(|(before, after)| compile(&flow.replace(before, after))));
    for case in 0..400 {
        let plans = &plans[random.usize(..plans.len())];
        let (plan, now) = (&plans[0], &plans[random.usize(..plans.len())]);
        let (fails, later) = (bad[random.usize(..bad.len())], bad[random.usize(..bad.len())]);
        let records = play(plan, begin(plan), random.usize(1..30), &failing(fails));
        let wish = &wishes[random.usize(..wishes.len())];
        let kept = held(&records, now, wish, &serde_json::json!({}));
        let mut log = begin(now);
        log.extend((1..).zip(&kept.events).map(|(seq, (at, event))| Record { seq, at: *at, event: event.clone() }));
        let state = RunState::replay(now.clone(), &log).unwrap_or_else(|error| panic!("case {case}: {wish:?} after {fails:?}: {error}"));
        for id in now.order() {
            let node = NodeId::step(id);
            assert_eq!(state.outcome(&node).is_some(), !kept.again.contains_key(&node), "case {case}: {wish:?}: {node}");
        }
        let whole = play(now, log, usize::MAX, &failing(later));
        let begun = |node: &NodeId| whole.iter().filter(|record| matches!(&record.event, Event::StepStarted { node: of, .. } if of == node)).count();
        let ended = RunState::replay(now.clone(), &whole).unwrap();
        for (node, state) in ended.nodes() {
            assert!(begun(node) <= 1 && state.outcome.is_some(), "case {case}: {wish:?}: {node} began {} times", begun(node));
        }
    }
}
