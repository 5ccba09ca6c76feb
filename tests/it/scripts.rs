//! The page on scripts: what it shows of calls and answers is what the tools and judges take.
use crate::{
    fixture::{Bench, outcome},
    invariants,
};
use spinney::event::Event;

const PAGE: &str = include_str!("../../docs/scripts.md");

const WORKFLOW: &str = r#"
version: 1
name: shapes
agents:
  lead: { system: "You watch." }
  coder: { system: "You code.", tools: [Agent, Read] }
  scout: { system: "You look.", description: "Looks." }
  writer: { system: "You write.", access: write }
  judge: { system: "You judge." }
orchestrator: { agent: lead, may: [add_items, ask], wake: [start] }
steps:
  build: { for_each: { items: [first], as: it }, agent: coder, prompt: "Build {{ it }}." }
  one: { agent: writer, prompt: "Write one." }
  two: { agent: writer, prompt: "Write two." }
  pick: { needs: [one, two], select: { from: [one, two], judge: { agent: judge, blind: false, criteria: [risk] } } }
"#;

/// Returns the example that holds a word.
fn example(word: &str) -> &'static str {
    let all = PAGE.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next());
    all.into_iter().find(|text| text.contains(word)).unwrap()
}

#[test]
fn the_shapes_of_calls_and_answers_are_those_of_the_page() {
    let bench = Bench::new().workflow("shapes", WORKFLOW);
    bench.run("shapes", example("AskPerson"), &[]).0.code(3);
    let run = bench.newest();
    let said = bench.spinney(&["answer", &run.0, "left"]).code(0);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "pick")["succeeded"]["output"]["winner"], "one", "{}", said.out);
    assert_eq!(outcome(&records, "build/late")["succeeded"]["output"], "Built.");
    let refused: Vec<_> = records.iter().filter(|record| matches!(&record.event, Event::ToolFinished { result, .. } if result.is_error)).collect();
    assert!(refused.is_empty(), "{refused:?}");
}

#[test]
fn a_call_of_the_orchestrator_that_no_tool_takes_is_shown() {
    let script = "conversations:\n  - agent: lead\n    turns:\n      - calls: [{ tool: AddItems, input: { stpe: build } }]\n      - say: over\n  - agent: coder\n    turns: [{ say: Built. }]\n";
    let workflow = "version: 1\nname: wrong\nagents: { lead: { system: You watch. }, coder: { system: You code. } }\norchestrator: { agent: lead, wake: [start] }\nsteps:\n  build: { for_each: { items: [a], as: it }, agent: coder, prompt: \"{{ it }}\" }\n";
    let bench = Bench::new().workflow("wrong", workflow);
    let said = bench.run("wrong", script, &[]).0.code(0);
    assert!(said.out.contains("AddItems malformed: "), "{}", said.out);
}

/// A script, or a recording, stands for whatever model a workflow, an agent file or an alias names.
#[test]
fn a_script_stands_for_the_models_of_every_provider() {
    let workflow = "version: 1\nname: any\nmodels: { far: { use: [gemini/gemini-3.7-flash, house/big] } }\nagents:\n  a: { system: A., model: gemini/gemini-3.7-flash }\n  b: { system: B., model: house/big }\n  c: { system: C., model: far }\n  d: { use: filed }\nsteps:\n  a: { agent: a, prompt: x }\n  b: { agent: b, prompt: x }\n  c: { agent: c, prompt: x }\n  d: { agent: d, prompt: x }\n";
    let bench = Bench::new().workflow("any", workflow);
    let bench = bench.file(".spinney/agents/filed.md", "---\nname: filed\ndescription: Filed.\nmodel: gemini-3.7-flash\n---\nYou are filed.\n");
    let config = bench.path("config/spinney/config.yaml");
    std::fs::create_dir_all(config.parent().unwrap()).unwrap();
    std::fs::write(&config, "providers: { house: { protocol: openai_chat, base_url: \"http://127.0.0.1:9/v1\" } }\n").unwrap();
    let tape = bench.path("tape.jsonl").display().to_string();
    let (said, records) = bench.run("any", "conversations: [{ turns: [{ say: done }] }]", &["--record", &tape]);
    said.code(0);
    assert_eq!(outcome(&records, "d")["succeeded"]["output"], "done");
    bench.spinney(&["run", "any", "--replay", &tape]).code(0);
    // What answered then answers now, although nobody here knows of it any more.
    std::fs::remove_file(&config).unwrap();
    bench.spinney(&["run", "any", "--replay", &tape]).code(0);
}
