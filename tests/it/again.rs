//! Runs that follow from an earlier one: `retry`, `rerun` and `fork` keep what holds of it, `plan RUN` shows what that is, and
//! the earlier run stays as it was.
mod sequence;
mod told;

use crate::{
    fixture::{Bench, outcome},
    invariants,
};
use serde_json::{Value, json};
use spinney::event::{Event, Outcome, Record, RunId};
use std::{collections::BTreeMap, fs};

/// Each step leaves a line in a file outside of the run, so that work that was done again shows.
const FLOW: &str = r#"
version: 1
name: flow
inputs: { goal: { type: string, default: parser }, words: { type: string, default: few } }
agents:
  planner: { system: "You plan." }
  coder: { system: "You code.", access: write }
schemas:
  plan: { type: object, required: [parts], properties: { parts: { type: array, items: { type: string } } } }
steps:
  plan: { agent: planner, prompt: "Plan the {{ inputs.goal }}.", output: { schema: plan } }
  note: { run: "echo note >> EFFECTS; echo {{ inputs.words | sh }} words", output: { file: note.json } }
  build:
    needs: [plan]
    for_each: { items: "{{ steps.plan.output.parts }}", as: part }
    agent: coder
    prompt: "Build {{ part }}."
    workspace: { kind: worktree, setup: ["echo build/{{ part | sh }} >> EFFECTS"] }
    verify: { run: ["test ! -e RED.{{ part | sh }}"], attempts: 1 }
  land: { needs: [build], merge: { from: build } }
  polish:
    needs: [land]
    loop: { max: 2, until: "steps.fix.exit_code == 0" }
    steps: { fix: { run: "echo polish >> EFFECTS" } }
  report: { needs: [note, polish], run: "echo report >> EFFECTS; cat a.txt b.txt" }
outputs: { said: "{{ steps.report.stdout }}", note: "{{ steps.note.stdout }}" }
finally: { bye: { run: "echo bye >> EFFECTS" } }
"#;
const SCRIPT: &str = r#"
conversations:
  - agent: planner
    turns: [{ say: '{"parts": ["a", "b"]}' }]
  - agent: coder
    told: "Build (?<part>[a-z]+)"
    turns:
      - calls:
          - { tool: Write, input: { file_path: "${part}.txt", content: "${part}\n" } }
      - say: "Built ${part}."
"#;

fn bench() -> Bench {
    let bench = Bench::new();
    let flow = placed(&bench, FLOW);
    bench.workflow("flow", &flow)
}

fn placed(bench: &Bench, text: &str) -> String {
    text.replace("EFFECTS", &bench.path("effects").display().to_string()).replace("RED", &bench.path("red").display().to_string())
}

fn edit(bench: Bench, before: &str, after: &str) -> Bench {
    let path = bench.repo().join(".spinney/workflows/flow.yaml");
    let text = fs::read_to_string(&path).unwrap();
    let (before, after) = (placed(&bench, before), placed(&bench, after));
    assert!(text.contains(&before), "{text}");
    bench.workflow("flow", &text.replace(&before, &after))
}

/// Runs the flow to its end.
fn first(bench: &Bench, code: u8) -> RunId {
    bench.run("flow", SCRIPT, &["--unconfined"]).0.code(code);
    bench.newest()
}

/// Returns what was done since it was asked last, sorted.
fn effects(bench: &Bench) -> Vec<String> {
    let path = bench.path("effects");
    let mut done: Vec<String> = fs::read_to_string(&path).unwrap_or_default().lines().map(str::to_owned).collect();
    done.sort();
    fs::write(path, "").unwrap();
    done
}

/// Runs a command that begins a new run, and returns that with its records.
#[track_caller]
fn follows(bench: &Bench, arguments: &[&str], code: u8) -> (RunId, Vec<Record>) {
    let before: Vec<RunId> = runs(bench);
    let said = bench.spinney(&[arguments, &["--unconfined"]].concat()).code(code);
    let new: Vec<RunId> = runs(bench).into_iter().filter(|run| !before.contains(run)).collect();
    assert_eq!(new.len(), 1, "{}{}", said.out, said.err);
    let records = bench.records(&new[0]);
    invariants::check(&records, &bench.repo());
    (new[0].clone(), records)
}

fn runs(bench: &Bench) -> Vec<RunId> {
    let list: Value = serde_json::from_str(&bench.spinney(&["runs", "--json"]).code(0).out).unwrap();
    list.as_array().unwrap().iter().map(|run| run["run"].as_str().unwrap().into()).collect()
}

/// Returns what `plan RUN` says of each step: nothing where it holds, else why it is done again.
fn planned(bench: &Bench, run: &RunId, more: &[&str]) -> BTreeMap<String, Value> {
    let said = bench.spinney(&[&["plan", run.0.as_str(), "--json"], more].concat()).code(0);
    let plan: Value = serde_json::from_str(&said.out).unwrap();
    let row = |step: &Value| (step["step"].as_str().unwrap().to_owned(), if step["holds"] == true { Value::Null } else { step["why"].clone() });
    plan["steps"].as_array().unwrap().iter().map(row).filter(|(_, why)| !why.is_null()).collect()
}

fn tree(bench: &Bench, run: &RunId) -> String {
    bench.git(&["ls-tree", "-r", &format!("spinney/{run}")])
}

#[test]
fn a_retry_does_what_failed_again_and_what_follows_and_keeps_the_rest() {
    let bench = bench();
    fs::write(bench.path("red.b"), "").unwrap();
    let old = first(&bench, 1);
    assert_eq!(effects(&bench), ["build/a", "build/b", "bye", "note"]);
    let before = bench.records(&old);
    fs::remove_file(bench.path("red.b")).unwrap();
    let why = planned(&bench, &old, &["--retry"]);
    assert_eq!(json!(why), json!({"build": "1 of 2 items", "land": "after build", "polish": "after land", "report": "after polish"}));
    let (new, records) = follows(&bench, &["retry", &old.0], 0);
    assert_eq!(effects(&bench), ["build/b", "bye", "polish", "report"]);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], json!({"said": "a\nb\n", "note": "few words\n"}));
    assert_eq!(bench.records(&old), before, "the earlier run is not what it was");
    // What holds keeps its times, its cost and the file that it left.
    let of_plan = |records: &[Record]| {
        records
            .iter()
            .filter(|record| record.event.node().is_some_and(|node| node.step.0 == "plan"))
            .map(|record| (record.at, record.event.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(of_plan(&records), of_plan(&before));
    let artefact = |run: &RunId| fs::read_to_string(bench.repo().join(format!(".spinney/state/runs/{run}/artifacts/note.json"))).unwrap();
    assert_eq!(artefact(&new), artefact(&old));
    let refs = bench.git(&["for-each-ref", "--format=%(refname)", &format!("refs/spinney/{new}")]);
    assert!(refs.contains("build.a/result") && refs.contains("build.b/result") && refs.contains("land/joined"), "{refs}");
    let said = bench.spinney(&["retry", &new.0]).code(2);
    assert!(said.err.contains("it succeeded, and nothing in it has changed") && said.err.contains("--from STEP"), "{}", said.err);
}

#[test]
fn an_edited_prompt_runs_its_step_again_and_what_follows() {
    let bench = bench();
    let old = first(&bench, 0);
    effects(&bench);
    assert_eq!(planned(&bench, &old, &[]), BTreeMap::new());
    bench.spinney(&["rerun", &old.0]).code(2);
    let bench = edit(bench, "Build {{ part }}.", "Build {{ part }}. Be brief.");
    let why = planned(&bench, &old, &[]);
    assert_eq!(json!(why), json!({"build": "prompt changed", "land": "after build", "polish": "after land", "report": "after polish"}));
    let shown = bench.spinney(&["plan", &old.0]).code(0).out;
    assert!(shown.contains("plan                      holds\n") && shown.contains("build                     again: prompt changed\n"), "{shown}");
    let (new, records) = follows(&bench, &["rerun", &old.0], 0);
    assert_eq!(effects(&bench), ["build/a", "build/b", "bye", "polish", "report"]);
    assert_eq!(records.iter().filter(|record| record.seq > invariants::held(&records) && matches!(record.event, Event::ModelReplied { .. })).count(), 4);
    assert_eq!(tree(&bench, &new), tree(&bench, &old));
    // The new run is as good an origin as any.
    let (newer, _) = follows(&bench, &["rerun", &new.0, "--from", "build/b"], 0);
    assert_eq!(effects(&bench), ["build/b", "bye", "polish", "report"]);
    assert_eq!(tree(&bench, &newer), tree(&bench, &old));
}

#[test]
fn a_fork_runs_again_what_reads_an_input_or_follows_from_its_step() {
    let bench = bench();
    let old = first(&bench, 0);
    effects(&bench);
    let why = planned(&bench, &old, &["--input", "words=many"]);
    assert_eq!(json!(why), json!({"note": "reads the input words", "report": "after note"}));
    let (_, records) = follows(&bench, &["fork", &old.0, "--input", "words=many"], 0);
    assert_eq!(effects(&bench), ["bye", "note", "report"]);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["note"], "many words\n");
    let (_, records) = follows(&bench, &["fork", &format!("{old}@polish"), "--input", "words=other"], 0);
    assert_eq!(effects(&bench), ["bye", "note", "polish", "report"]);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["note"], "other words\n");
    let said = bench.spinney(&["fork", &old.0]).code(2);
    assert!(said.err.contains("neither a step nor an input") && said.err.contains("spinney rerun"), "{}", said.err);
    let said = bench.spinney(&["fork", &old.0, "--input", "wrods=x"]).code(2);
    assert!(said.err.contains("words"), "{}", said.err);
}

#[test]
fn what_nothing_can_begin_from_is_named_with_what_can() {
    let bench = bench();
    let old = first(&bench, 0);
    for (from, why, hint) in [
        ("polsh", "the workflow has no such step", "did you mean `polish`?"),
        ("fix", "it stands inside of `polish`", "name `polish`"),
        ("polish#1.fix", "it stands inside of `polish`", "name `polish`"),
        ("bye", "it belongs to the end of a run", "spinney rerun RUN"),
        ("finally", "it belongs to the end of a run", "spinney rerun RUN"),
        ("build/c", "the step `build` had no such item", "there were a, b"),
        ("land/a", "the step `land` had no such item", "it had no items at all"),
    ] {
        for command in [&["rerun", &old.0, "--from", from][..], &["plan", &old.0, "--from", from], &["fork", &format!("{old}@{from}")]] {
            let said = bench.spinney(command).code(2);
            assert!(said.err.contains(why) && said.err.contains(hint), "{command:?}: {}", said.err);
        }
    }
    assert_eq!(runs(&bench).len(), 1, "something was begun");
}

const WATCHED: &str = r#"
version: 1
name: flow
agents:
  lead: { system: "You lead." }
  coder: { system: "You code." }
orchestrator: { agent: lead, may: [add_items], max_added: 1, wake: [start, item_done] }
steps:
  build: { for_each: { items: [a], as: part }, agent: coder, prompt: "Build {{ part }}." }
  after: { needs: [build], run: "echo after >> EFFECTS; echo {{ steps.build.results | length | sh }}" }
outputs: { parts: "{{ steps.after.stdout }}" }
"#;
const LEADS: &str = r#"
conversations:
  - agent: lead
    turns:
      - say: "It may begin."
      - - when: "build/a succeeded"
          calls: [{ tool: AddItems, input: { step: build, items: [late] } }]
        - say: "All is well."
      - say: "Watched."
      - say: "Still well."
      - say: "Summed up."
      - say: "Summed up again."
  - agent: coder
    turns: [{ say: "Built." }]
"#;

fn of_lead(records: &[Record], event: fn(&Event) -> bool) -> usize {
    records.iter().filter(|record| record.event.node().is_some_and(|node| node.step.0 == "orchestrator") && event(&record.event)).count()
}

#[test]
fn items_that_the_orchestrator_added_hold_and_so_does_its_conversation_where_all_does_that_it_watches() {
    let bench = Bench::new();
    let flow = placed(&bench, WATCHED);
    let bench = bench.workflow("flow", &flow);
    let before = bench.run("flow", LEADS, &[]).1;
    let old = bench.newest();
    let briefed = |event: &Event| matches!(event, Event::AgentBriefed { .. });
    let replies = of_lead(&before, |event| matches!(event, Event::ModelReplied { .. }));
    // What it watches over holds: the conversation goes on from before its last words.
    let (_, records) = follows(&bench, &["rerun", &old.0, "--from", "after"], 0);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["parts"], "2\n");
    assert_eq!((of_lead(&records, briefed), of_lead(&records, |event| matches!(event, Event::ModelReplied { .. }))), (1, replies));
    // An item of it does not: it begins anew, and the item that it added stays.
    let why = planned(&bench, &old, &["--from", "build/a"]);
    assert_eq!(json!(why), json!({"build": "1 of 2 items", "after": "after build", "orchestrator": "after build"}));
    let (_, records) = follows(&bench, &["rerun", &old.0, "--from", "build/a"], 0);
    let added: Vec<_> =
        records.iter().filter_map(|record| if let Event::ItemsAdded { items, .. } = &record.event { Some(items.len()) } else { None }).collect();
    assert_eq!(added[0], 2, "{added:?}");
    let began = |node: &str| {
        records
            .iter()
            .filter(|record| record.seq > invariants::held(&records) && matches!(&record.event, Event::StepStarted { node: of, .. } if of.to_string() == node))
            .count()
    };
    assert_eq!((began("build/a"), began("build/late"), of_lead(&records, briefed)), (1, 0, 1));
    assert!(matches!(&records.last().unwrap().event, Event::RunFinished { outcome: Outcome::Succeeded(_) }));
}
