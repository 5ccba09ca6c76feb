//! Words for agents: who hears one, who cannot, and what has been said while nobody carries the run out.
use crate::{
    fixture::{Bench, outcome},
    invariants,
};
use serde_json::json;
use spinney::event::Event;

const FRAMES: &str = r#"
version: 1
name: frames
agents: { coder: { system: "You code." } }
steps:
  list: { run: "echo x" }
  build: { for_each: { items: [a, b], as: it }, agent: coder, prompt: "Build {{ it }}." }
  gate: { needs: [build], approve: { message: "Go on?" } }
  polish:
    needs: [gate]
    loop: { max: 2, until: "steps.fix.output == 'kind'" }
    steps: { fix: { agent: coder, prompt: "Fix." } }
  call: { needs: [gate], workflow: part }
  later: { needs: [gate], for_each: { items: [x], as: it }, agent: coder, prompt: "Late {{ it }}." }
finally: { close: { agent: coder, prompt: "Close." } }
outputs: { fix: "{{ steps.polish.output.fix.output }}", call: "{{ steps.call.output.said }}" }
"#;
const PART: &str = r#"
version: 1
name: part
agents: { helper: { system: "You help." } }
steps:
  part: { agent: helper, prompt: "Help." }
outputs: { said: "{{ steps.part.output }}" }
"#;
const HEARS: &str = r#"
conversations:
  - told: "Build|Late|Close"
    turns: [{ say: done }]
  - told: "be (?<how>[a-z]+)"
    turns: [{ say: "${how}" }]
  - told: "Fix|Help"
    turns: [{ say: "nobody told me" }]
"#;

#[test]
fn who_can_be_told_something_is_known_at_once_and_whoever_cannot_is_refused_with_who_can() {
    let bench = Bench::new().workflow("frames", FRAMES).workflow("part", PART);
    bench.run("frames", HEARS, &[]).0.code(3);
    let run = bench.newest();
    let tell = |step: &str| bench.spinney(&["tell", &run.0, step, "be kind", "--by", "ann", "--no-resume"]);
    for (step, why, hint) in [
        ("list", "it has ended", "polish#1.fix"),
        ("build", "it has ended", "call#1.part"),
        ("build/a", "it has ended", "finally#1.close"),
        ("gate", "no agent works there: it is a question to a person", "these can be told"),
        ("polish", "no agent is at work inside of it now", "these can be told: polish#1.fix, call#1.part, finally#1.close"),
        ("later", "no agent is at work inside of it now", "polish#1.fix"),
        ("polish#3.fix", "the run does not come to that", "polish#1.fix"),
        ("polish#1.fxi", "there is no such step", "did you mean `polish#1.fix`?"),
    ] {
        let said = tell(step).code(2);
        assert!(said.err.contains(why) && said.err.contains(hint), "{step}: {}", said.err);
    }
    for step in ["polish#2.fix", "call#1.part", "finally#1.close"] {
        tell(step).code(0);
    }
    bench.spinney(&["approve", &run.0]).code(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], json!({"fix": "kind", "call": "kind"}));
    assert_eq!(outcome(&records, "polish")["succeeded"]["output"]["iterations"], 2);
}

const MANY: &str = r#"
version: 1
name: many
agents: { coder: { system: "You code." } }
steps:
  gate: { approve: { message: "Go on?" } }
  build: { for_each: { items: [a, b], as: it }, agent: coder, prompt: "Build {{ it }}." }
outputs: { said: "{{ steps.build.results[0].output }} {{ steps.build.results[1].output }}" }
"#;
const ASKS: &str = r#"
conversations:
  - turns:
      - calls: [{ tool: Bash, input: { command: "echo hello" } }]
      - - when: "be (?<how>[a-z]+)"
          say: "${how}"
        - say: "nobody told me"
"#;

/// Both items wait for a person before their second turn, so that both are at work when their step is told something.
#[test]
fn what_a_step_with_items_is_told_all_its_agents_at_work_hear() {
    let many = MANY.replace("system: \"You code.\"", "system: \"You code.\", permissions: { ask: [\"Bash(echo:*)\"] }");
    let bench = Bench::new().workflow("many", &many);
    bench.run("many", ASKS, &[]).0.code(3);
    let run = bench.newest();
    let said = bench.spinney(&["tell", &run.0, "build", "be kind", "--no-resume"]).code(0);
    assert!(said.out.contains("build/a is told") && said.out.contains("build/b is told"), "{}", said.out);
    for item in ["build/a", "build/b", "gate"] {
        bench.spinney(&["approve", &run.0, item, "--no-resume"]).code(0);
    }
    bench.spinney(&["resume", &run.0]).code(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "kind kind");
}

#[test]
fn what_was_said_while_nobody_carries_the_run_out_is_shown_until_it_is_taken_up() {
    let bench = Bench::new().workflow("frames", FRAMES).workflow("part", PART);
    bench.run("frames", HEARS, &[]).0.code(3);
    let run = bench.newest();
    assert!(bench.spinney(&["runs"]).code(0).out.contains("parked, asks 1"));
    bench.spinney(&["approve", &run.0, "--by", "ann", "--note", "go", "--no-resume"]).code(0);
    bench.spinney(&["tell", &run.0, "call#1.part", "be brief", "--by", "bob", "--no-resume"]).code(0);
    let runs = bench.spinney(&["runs"]).code(0).out;
    assert!(runs.contains("answered, waits for resume") && !runs.contains("asks"), "{runs}");
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    for said in [
        &format!("answered, waits for `spinney resume {run}`") as &str,
        "Said, and waits for `spinney resume`\n  gate answered by ann, yes to: Go on?: go\n  call#1.part told by bob: be brief\n",
    ] {
        assert!(shown.contains(said), "{said}\n{shown}");
    }
    assert!(!shown.contains("Answer with"), "{shown}");
    bench.spinney(&["resume", &run.0]).code(1);
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(!shown.contains("Said, and waits"), "{shown}");
    assert!(bench.records(&run).iter().any(|record| matches!(&record.event, Event::Told { text, .. } if text == "be brief")));
}
