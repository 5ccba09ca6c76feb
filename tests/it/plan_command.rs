//! `spinney plan`: the run before the run, and the run that is only simulated.
use crate::fixture::{Bench, Said};
use serde_json::Value;
use spinney::journal::RunDir;
use std::collections::BTreeMap;

/// Replaces what differs from place to place.
fn stable(bench: &Bench, text: &str) -> String {
    let head = bench.git(&["rev-parse", "HEAD"]);
    text.replace(&head.trim()[..10], "COMMIT")
}

/// Plans with a stub and checks that nothing came of it.
#[track_caller]
fn simulate(bench: &Bench, workflow: &str, stub: &str, more: &[&str]) -> Said {
    let stub = bench.script(stub);
    let before = bench.git(&["for-each-ref"]) + &bench.git(&["status", "--porcelain"]);
    let mut arguments = vec!["plan", workflow, "--stub", &stub];
    arguments.extend(more);
    let said = bench.spinney(&arguments);
    assert_eq!(bench.git(&["for-each-ref"]) + &bench.git(&["status", "--porcelain"]), before);
    assert!(RunDir::list(&RunDir::state(&bench.repo())).unwrap_or_default().is_empty(), "a run was begun");
    said
}

fn json(said: &Said) -> Value {
    serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"))
}

const BUILD: &str = r#"
version: 1
name: build
description: Plans, builds the parts in parallel and joins them.
inputs:
  goal: { type: string, required: true }
  at_once: { type: integer, default: 2 }
budget: { usd: 20, tokens: 4_000_000, time: 2h }
models:
  large: { use: [anthropic/claude-opus-5-5, openai/gpt-6-sol], effort: high }
defaults: { model: anthropic/claude-sonnet-5-5, retry: { max: 1, on: [transient], delay: 2s } }
agents:
  planner: { system: "You plan.", skills: [rust-tests], model: large, max_turns: 20, budget: { tokens: 100_000 } }
  coder: { system: "You code.", skills: [rust-tests], access: write, permissions: { deny: ["Bash(rm *)"] }, budget: { usd: 1 } }
schemas:
  plan:
    type: object
    required: [tasks]
    properties:
      tasks:
        type: array
        items:
          type: object
          required: [id]
          properties: { id: { type: string, pattern: "^[a-z][a-z0-9-]*$" }, needs: { type: array, items: { type: string } } }
steps:
  plan: { agent: planner, prompt: "Plan {{ inputs.goal }}.", output: { schema: plan } }
  build:
    needs: [plan]
    for_each: { items: "{{ steps.plan.output.tasks }}", as: task, key: "{{ task.id }}", needs: "{{ task.needs | default(value=[]) }}", max_parallel: "{{ inputs.at_once }}", join: all_done }
    agent: coder
    scope: ["src/**"]
    prompt: "Build {{ task.id }}."
    verify: { run: ["make test"], attempts: 3 }
  land: { needs: [build], merge: { from: build, verify: ["make test"], on_conflict: { agent: coder, attempts: 2, then: eject } } }
  check: { needs: [land], run: "make lint", timeout: 5m, allow_failure: true }
  tell: { needs: [{ step: check, on: done }], if: "{{ steps.check.exit_code != 0 }}", run: "echo red" }
outputs: { landed: "{{ steps.land.output.landed }}" }
"#;

const STUB: &str = r#"
defaults: { usd: 0.1, tokens: 1000 }
steps:
  plan: { duration: 2m, output: { tasks: [{ id: a }, { id: b, needs: [a] }, { id: c }] } }
  build:
    duration: 5m
    items:
      - { key: c, duration: 1m, times: [{ status: unavailable, error: "too much to do" }, {}] }
  check: { exit_code: 1 }
"#;

#[test]
fn a_run_is_shown_before_it_is_begun() {
    let bench = Bench::new().workflow("build", BUILD);
    let said = bench.spinney(&["plan", "build", "--input", "goal=a list"]).code(0);
    insta::assert_snapshot!("plan", stable(&bench, &said.out));
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_eq!(bench.spinney(&["plan", "build", "--input", "goal=a list"]).out, said.out);
    let plan = json(&bench.spinney(&["plan", "build", "--input", "goal=a list", "--json"]).code(0));
    assert_eq!(plan["steps"][0]["agent"]["models_from"], "the agent, as alias `large` of the workflow");
    assert_eq!(plan["steps"][1]["base"][0], "head");
    assert_eq!(plan["steps"][3]["base"][0], "steps.land");
    assert_eq!(plan["steps"][1]["items"]["count"], Value::Null);
    assert!(plan["steps"][0]["agent"]["tools"].as_array().unwrap().iter().all(|tool| tool != "Write"), "a reader has no writing tool");
}

#[test]
fn what_is_set_from_outside_is_said_and_what_has_no_price_is_unknown() {
    let bench = Bench::new().workflow("build", BUILD);
    let plan = json(&bench.spinney(&["plan", "build", "--input", "goal=x", "--model", "large=ollama/tiny", "--json"]).code(0));
    let step = &plan["steps"][0];
    assert_eq!((&step["agent"]["models"][0], &step["agent"]["models_from"]), (&"ollama/tiny".into(), &"the agent, as alias `large` set from outside".into()));
    assert_eq!((&step["at_most"]["usd"], &step["at_most"]["unpriced"], &step["at_most"]["tokens"]), (&Value::Null, &true.into(), &200_000.into()));
    assert_eq!(plan["at_most"]["unpriced"], true);
}

#[test]
fn tools_are_those_that_are_declared_and_an_orchestrator_has_its_powers() {
    let flow = r"
version: 1
name: flow
permissions: { deny: [WebSearch] }
agents:
  lead: { model: anthropic/claude-sonnet-5-5, access: write, provider_tools: [web_search, code_execution] }
  coder: { model: anthropic/claude-sonnet-5-5, access: write }
orchestrator: { agent: lead, may: [add_items, ask], max_added: 3, wake: [idle, start] }
steps:
  look: { agent: lead, prompt: x }
  build: { needs: [look], for_each: { items: [1, 2] }, agent: coder, prompt: x }
  land: { needs: [build], merge: { from: build } }
";
    let bench = Bench::new().workflow("flow", flow);
    let plan = json(&bench.spinney(&["plan", "flow", "--json"]).code(0));
    let tools = |agent: &Value| agent["tools"].as_array().unwrap().iter().map(|tool| tool.as_str().unwrap().to_owned()).collect::<Vec<_>>();
    let look = tools(&plan["steps"][0]["agent"]);
    assert!(look.contains(&"code_execution (at the provider)".to_owned()) && look.contains(&"Write".to_owned()), "{look:?}");
    assert!(!look.iter().any(|tool| tool.starts_with("web_search")), "a rule forbids it: {look:?}");
    let watcher = &plan["orchestrator"];
    let own = tools(watcher);
    assert!(own.contains(&"AddItems".to_owned()) && own.contains(&"AskPerson".to_owned()) && own.contains(&"Read".to_owned()), "{own:?}");
    assert!(!own.iter().any(|tool| ["Write", "Edit", "RetryItem", "StopItem"].contains(&tool.as_str())), "{own:?}");
    assert_eq!((&watcher["access"], &watcher["max_added"]), (&"read".into(), &3.into()));
    assert_eq!((&watcher["may"], &watcher["wake"]), (&serde_json::json!(["add_items", "ask"]), &serde_json::json!(["start", "idle"])));
    let said = bench.spinney(&["plan", "flow"]).code(0).out;
    assert!(said.contains("add_items, ask") && said.contains("3 items at most") && said.contains("start, idle, end"), "{said}");
}

#[test]
fn items_that_can_be_known_are_known() {
    let items = "version: 1\nname: items\ninputs: { names: { type: array, default: [x, y] } }\nsteps:\n  a: { for_each: { items: [1, 2, 3], as: n }, run: \"true\" }\n  b: { for_each: { items: \"{{ inputs.names }}\", as: n, key: \"k-{{ n }}\" }, run: \"true\" }\n";
    let bench = Bench::new().workflow("items", items);
    let plan = json(&bench.spinney(&["plan", "items", "--input", "names=[\"p\"]", "--json"]).code(0));
    assert_eq!((&plan["steps"][0]["items"]["count"], &plan["steps"][1]["items"]["keys"]), (&3.into(), &serde_json::json!(["k-p"])));
}

#[test]
fn a_missing_input_leaves_the_rest_known() {
    let bench = Bench::new().workflow("build", BUILD);
    let said = bench.spinney(&["plan", "build"]).code(0);
    assert!(said.out.contains("missing") && said.out.contains("goal; what depends on it"), "{}", said.out);
    assert!(bench.spinney(&["plan", "build", "--input", "goal=x", "--input", "at_once=many"]).code(2).err.contains("a whole number"));
}

#[test]
fn a_whole_run_is_simulated_and_nothing_comes_of_it() {
    let bench = Bench::new().workflow("build", BUILD);
    let said = simulate(&bench, "build", STUB, &["--input", "goal=x"]).code(0);
    insta::assert_snapshot!("simulated", said.out);
    assert!(said.out.lines().all(|line| line.chars().count() <= 80), "{}", said.out);
    assert_eq!(simulate(&bench, "build", STUB, &["--input", "goal=x"]).out, said.out);
}

#[test]
fn the_simulated_clock_follows_needs_limits_and_retries() {
    let bench = Bench::new().workflow("build", BUILD);
    let run = json(&simulate(&bench, "build", STUB, &["--input", "goal=x", "--json"]).code(0));
    let tries: Vec<(String, u64, u64)> = run["tries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|leg| (leg["node"].as_str().unwrap().to_owned(), leg["began_ms"].as_u64().unwrap() / 1000, leg["ended_ms"].as_u64().unwrap() / 1000))
        .collect();
    let told: Vec<(&str, u64, u64)> = tries.iter().map(|(node, began, ended)| (node.as_str(), *began, *ended)).collect();
    assert_eq!(
        told,
        [
            ("plan", 0, 120),
            ("build/a", 120, 420),
            ("build/c", 120, 180),
            // Two seconds after it was told that there is too much to do.
            ("build/c", 182, 242),
            ("build/b", 420, 720),
            ("land", 720, 730),
            ("check", 730, 740),
            ("tell", 740, 750),
        ]
    );
    let way: Vec<&str> = run["critical"].as_array().unwrap().iter().map(|at| told[usize::try_from(at.as_u64().unwrap()).unwrap()].0).collect();
    assert_eq!(way, ["plan", "build/a", "build/b", "land", "check", "tell"]);
    assert_eq!((&run["peak"], &run["took_ms"]), (&2.into(), &750_000.into()));
    assert_eq!(run["outcome"]["succeeded"]["output"]["landed"], serde_json::json!(["build/c", "build/a", "build/b"]));
}

#[test]
fn what_is_not_stubbed_is_made_from_its_schema() {
    let bench = Bench::new().workflow("build", BUILD);
    let run = json(&simulate(&bench, "build", "defaults: {}\n", &["--input", "goal=x", "--json"]).code(0));
    let nodes: Vec<&str> = run["tries"].as_array().unwrap().iter().filter_map(|leg| leg["node"].as_str()).collect();
    assert_eq!(nodes, ["plan", "build/id-1", "land", "check"]);
    assert_eq!(run["skipped"][0]["node"], "tell");
}

#[test]
fn the_run_ends_at_its_budget_as_a_real_one_would() {
    let bench =
        Bench::new().workflow("build", &BUILD.replace("usd: 20,", "usd: 0.2, on_exceed: finish,").replace("budget: { usd: 1 }", "budget: { usd: 0.1 }"));
    let run = json(&simulate(&bench, "build", STUB, &["--input", "goal=x", "--json"]));
    assert_eq!(run["limit"], "money", "{run}");
    let late = Bench::new().workflow("build", &BUILD.replace("time: 2h", "time: 3m"));
    let run = json(&simulate(&late, "build", STUB, &["--input", "goal=x", "--json"]).code(1));
    assert_eq!((&run["limit"], &run["took_ms"]), (&"time".into(), &180_000.into()), "{run}");
}

#[test]
fn a_budget_that_asks_is_raised_at_once() {
    for (budget, raises) in [("usd: 0.25", 1), ("tokens: 50000", 1), ("turns: 2", 2), ("time: 3m", 1), ("usd: 9", 0)] {
        let yaml = format!(
            "version: 1\nname: dear\nbudget: {{ {budget}, on_exceed: ask }}\nagents: {{ worker: {{ system: \"You work.\" }} }}\nsteps:\n  work: {{ for_each: {{ items: [1, 2, 3, 4, 5], as: n, max_parallel: 1 }}, agent: worker, prompt: \"Do {{{{ n }}}}.\" }}\n"
        );
        let bench = Bench::new().workflow("dear", &yaml);
        let stub = "defaults: { usd: 0.1, tokens: 20000 }\n";
        let run = json(&simulate(&bench, "dear", stub, &["--json"]).code(0));
        assert_eq!((run["limit"].clone(), run["raises"].clone()), (Value::Null, raises.into()), "{budget}: {run}");
        assert_eq!(run["tries"].as_array().unwrap().len(), 5, "{budget}: who waits is no try: {run}");
        let said = simulate(&bench, "dear", stub, &[]).code(0).out;
        assert_eq!(said.contains("for as much again of its budget"), raises > 0, "{said}");
    }
}

#[test]
fn a_step_whose_budget_may_finish_is_left_out_in_a_simulated_run_too() {
    for limit in ["usd: 0.15, tokens: 90000", "tokens: 19000"] {
        let yaml = format!(
            "version: 1\nname: dear\nagents: {{ worker: {{ system: \"You work.\" }} }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\", budget: {{ {limit}, on_exceed: finish }} }}\n"
        );
        let said = simulate(&Bench::new().workflow("dear", &yaml), "dear", "defaults: { usd: 0.2, tokens: 20000 }\n", &[]).code(0).out;
        assert!(said.contains("work: the budget of work was used up") && said.contains("succeeded, in part"), "{limit}: {said}");
    }
}

#[test]
fn what_is_wrong_with_a_stub_is_said_with_its_place() {
    let bench = Bench::new().workflow("build", BUILD);
    let wrong = |stub: &str| simulate(&bench, "build", stub, &["--input", "goal=x"]).code(2).err;
    insta::assert_snapshot!("stub_unknown_step", wrong("steps:\n  bulid: { duration: 1s }\n").replace(&bench.path("").display().to_string(), "TMP/"));
    assert!(wrong("steps:\n  build: { steps: { a: {} } }\n").contains("has no steps inside it"));
    assert!(wrong("steps:\n  build: { duratoin: 1s }\n").contains("did you mean `duration`?"));
    let run = json(&simulate(&bench, "build", "steps: { plan: { output: { tasks: 7 } } }\n", &["--input", "goal=x", "--json"]).code(1));
    assert!(run["outcome"]["failed"]["message"].as_str().unwrap().contains("does not fit its schema"), "{run}");
}

const WHOLE: &str = r#"
version: 1
name: whole
description: Every verb and multiplier, in the shape of a feature, a review and a tournament.
defaults: { model: ollama/tiny }
agents:
  coder: { system: "You code.", access: write, skills: [rust-tests] }
  reader: { system: "You read.", skills: [rust-tests] }
schemas:
  findings: { type: object, required: [findings], properties: { findings: { type: array, items: { type: object, required: [claim], properties: { claim: { type: string } } } } } }
steps:
  files: { run: "git ls-files", output: { parse: lines } }
  look:
    needs: [files]
    matrix: { lens: [tests, api], depth: [1, 2], exclude: [{ lens: api, depth: 2 }], max_parallel: 2 }
    agent: reader
    prompt: "Look at {{ matrix.lens }}."
    output: { schema: findings }
  each:
    needs: [files]
    for_each: { items: "{{ steps.files.output[1:] }}", as: path, join: all_done, on_item_failure: { retry_with: coder } }
    agent: coder
    prompt: "Move {{ path }}."
  land: { needs: [each], merge: { from: each } }
  polish:
    needs: [land]
    loop: { until: "{{ steps.suite.exit_code == 0 }}", max: 4 }
    steps:
      suite: { run: "make test", allow_failure: true }
      repair: { needs: [suite], if: "{{ steps.suite.exit_code != 0 }}", agent: coder, prompt: "Mend it: {{ steps.suite.output_tail }}" }
  gate: { needs: [polish, look], approve: { message: "Land it?" } }
outputs: { claims: "{{ steps.look.results | length }}" }
on_failure:
  report: { agent: reader, prompt: "What failed: {{ run.failure }}" }
finally:
  clean: { run: "true" }
"#;

#[test]
fn loops_iterate_matrices_multiply_and_the_ends_run() {
    let bench = Bench::new().workflow("whole", WHOLE);
    let stub = "steps:\n  polish:\n    steps:\n      suite: { times: [{ exit_code: 1 }, { exit_code: 1 }, { exit_code: 0 }] }\n";
    let run = json(&simulate(&bench, "whole", stub, &["--json"]).code(0));
    let nodes: Vec<&str> = run["tries"].as_array().unwrap().iter().filter_map(|leg| leg["node"].as_str()).collect();
    assert_eq!(nodes.iter().filter(|node| node.starts_with("look/")).count(), 3, "{nodes:?}");
    assert_eq!(nodes.iter().filter(|node| node.starts_with("each/")).count(), 2, "{nodes:?}");
    assert_eq!(nodes.iter().filter(|node| node.ends_with("suite")).count(), 3, "{nodes:?}");
    assert_eq!(nodes.iter().filter(|node| node.ends_with("repair")).count(), 2, "{nodes:?}");
    assert!(nodes.iter().any(|node| node.ends_with("clean")) && !nodes.iter().any(|node| node.ends_with("report")), "{nodes:?}");
    assert_eq!(run["outcome"]["succeeded"]["output"]["claims"], 3);
    let red = json(&simulate(&bench, "whole", "steps:\n  polish: { steps: { suite: { exit_code: 1 } } }\n", &["--json"]).code(1));
    let nodes: Vec<&str> = red["tries"].as_array().unwrap().iter().filter_map(|leg| leg["node"].as_str()).collect();
    assert!(nodes.iter().any(|node| node.ends_with("report")) && nodes.iter().filter(|node| node.ends_with("suite")).count() == 4, "{nodes:?}");
    insta::assert_snapshot!("plan_whole", stable(&bench, &bench.spinney(&["plan", "whole"]).code(0).out));
}

#[test]
fn the_shipped_workflows_are_planned_and_simulated() {
    let bench = Bench::new();
    let plain = "defaults: { duration: 1m }\n";
    let shipped = [
        ("feature", plain, &["--input", "goal=x"][..]),
        ("review", plain, &[]),
        ("migrate", plain, &["--input", "pattern=x", "--input", "how=y"]),
        ("tournament", plain, &["--input", "bug=x"]),
    ];
    for (name, stub, inputs) in shipped {
        let planned: Vec<&str> = ["plan", name].into_iter().chain(inputs.iter().copied()).collect();
        assert!(bench.spinney(&planned).code(0).out.contains("costs at most"), "{name}");
        simulate(&bench, name, stub, inputs).code(0);
    }
}

/// Every kind of step, and what may not be said of it.
#[test]
fn nothing_that_a_stub_says_is_passed_over() {
    let bench = Bench::new().workflow("whole", WHOLE);
    let wrong = |stub: &str| {
        let said = simulate(&bench, "whole", stub, &[]).code(2);
        assert!(said.err.contains("stub.yaml:") || said.err.contains("script"), "it has a place: {}", said.err);
        said.err
    };
    for key in ["status: failed", "output: { a: 1 }", "times: [{ error: x }]", "duration: 1s", "usd: 1"] {
        let said = wrong(&format!("steps: {{ polish: {{ {key} }} }}\n"));
        assert!(said.contains("E021") && said.contains("says nothing for a loop") && said.contains("below `steps`"), "{key}: {said}");
    }
    for (step, key) in [("look", "exit_code: 1"), ("look", "stdout: x"), ("files", "usd: 1"), ("gate", "tokens: 1"), ("land", "exit_code: 1")] {
        let said = wrong(&format!("steps: {{ {step}: {{ {key} }} }}\n"));
        assert!(said.contains("E021") && said.contains("says nothing for"), "{step} {key}: {said}");
    }
    for (stub, why) in [
        ("files: { status: unavailable }", "a command is never `unavailable`"),
        ("land: { status: unavailable }", "this step asks none"),
        ("gate: { status: timeout }", "a person says yes or no"),
        ("files: { output: text }", "a list of lines"),
        ("gate: { output: { aproved: true } }", "it has `approved`, `by`, `note`"),
        ("gate: { output: { approved: never } }", "write `approved: true` or `approved: false`"),
        ("each: { output: { done: true } }", "is text"),
        ("files: { items: [{ key: a }] }", "has no items"),
        ("look: { items: [{ key: 'tests,3' }] }", "did you mean `tests,1`?"),
        ("each: { items: [{ key: line-2 }, { key: line-1 }] }", "no item `line-1`"),
    ] {
        let said = wrong(&format!("steps: {{ {stub} }}\n"));
        assert!(said.contains(why), "{stub}: {said}");
    }
}

/// As in a real run: a no is a failure with an output that can be read, and nobody is chosen who is no candidate.
#[test]
fn answers_and_choices_mean_what_they_mean_in_a_run() {
    let yaml = "version: 1\nname: ask\nagents: { a: { system: A., access: write, model: ollama/x } }\nsteps:\n  gate: { approve: { message: Go on? } }\n  after: { needs: [gate], run: ls }\n  no: { needs: [{ step: gate, on: failure }], run: \"echo {{ steps.gate.output.approved | sh }} {{ steps.gate.output.note | sh }}\" }\n  fix: { matrix: { n: [x, y] }, agent: a, prompt: x }\n  pick: { needs: [fix], select: { from: fix, tie: first } }\n  one: { needs: [pick], agent: a, prompt: x }\n  two: { needs: [pick], agent: a, prompt: x }\n  last: { needs: [one, two], select: { from: [one, two], tie: first } }\n";
    let bench = Bench::new().workflow("ask", yaml);
    let ends = |stub: &str| -> BTreeMap<String, String> {
        let run = json(&simulate(&bench, "ask", &format!("steps: {{ {stub} }}\n"), &["--json"]));
        let leg = |leg: &Value| (leg["node"].as_str().unwrap().to_owned(), leg["failure"].as_str().unwrap_or_default().to_owned());
        run["tries"].as_array().unwrap().iter().map(leg).collect()
    };
    for stub in ["gate: { output: { approved: false, by: ann, note: not yet } }", "gate: { status: failed, error: not yet }"] {
        let ends = ends(stub);
        assert!(ends["gate"].starts_with("rejected by ") && ends["gate"].ends_with(": not yet"), "{ends:?}");
        assert!(ends.contains_key("no") && !ends.contains_key("after"), "{ends:?}");
    }
    assert!(ends("").contains_key("after"));
    assert_eq!(ends("pick: { output: { winner: y } }")["pick"], "");
    assert_eq!(ends("fix: { status: failed }").get("pick"), None);
    assert!(ends("pick: { output: { winner: nobody } }")["pick"].contains("\"nobody\" is chosen, which is no candidate"));
    let said = simulate(&bench, "ask", "steps: { last: { output: { winner: nobody } } }\n", &[]).code(2).err;
    assert!(said.contains("E090") && said.contains("it chooses from one, two"), "{said}");
}

#[test]
fn long_names_of_nodes_are_told_apart_in_eighty_columns() {
    let yaml = "version: 1\nname: long\nsteps:\n  reformat-everything: { for_each: { items: [packages/frontend/components/first.tsx, packages/frontend/components/second.tsx], as: it }, run: \"exit 1\" }\n";
    let bench = Bench::new().workflow("long", yaml);
    let stub = "steps: { reformat-everything: { status: failed, error: a long story of what has gone wrong with it and why } }\n";
    let said = simulate(&bench, "long", stub, &[]).code(1).out;
    let rows: Vec<&str> = said.lines().filter(|row| row.contains("reformat…") && row.contains("failed: ")).collect();
    assert!(rows.iter().all(|row| row.chars().count() <= 80), "{said}");
    for end in ["/first.tsx", "/second.tsx"] {
        assert_eq!(rows.iter().filter(|row| row.contains(end)).count(), 1, "{said}");
    }
}

#[test]
fn a_stub_reaches_the_endings_and_the_fields_of_a_merge() {
    let bench = Bench::new().workflow("whole", WHOLE);
    let run =
        json(&simulate(&bench, "whole", "finally: { clean: { exit_code: 3 } }\nsteps: { land: { output: { ejected: [each/x] } } }\n", &["--json"]).code(1));
    assert!(run["outcome"]["failed"]["message"].as_str().unwrap().contains("in `finally`"), "{run}");
    let slow = json(&simulate(&bench, "whole", "steps: { files: { status: timeout } }\non_failure: { report: { duration: 5m } }\n", &["--json"]).code(1));
    let report = slow["tries"].as_array().unwrap().iter().find(|leg| leg["node"].as_str().unwrap().ends_with("report")).unwrap();
    assert_eq!(report["ended_ms"].as_u64().unwrap() - report["began_ms"].as_u64().unwrap(), 300_000);
    assert!(simulate(&bench, "whole", "on_failure: { reprot: {} }\n", &[]).code(2).err.contains("did you mean `report`?"));
}

#[test]
fn sessions_are_held_to_their_own_limits() {
    let bench = Bench::new().workflow("build", BUILD);
    let failure = |step: &str, stub: &str| {
        let run = json(&simulate(&bench, "build", &format!("steps: {{ {step}: {{ {stub} }} }}\n"), &["--input", "goal=x", "--json"]));
        let leg = run["tries"].as_array().unwrap().iter().find(|leg| leg["node"].as_str().unwrap().starts_with(step)).unwrap().clone();
        (leg["failure"].as_str().unwrap_or_default().to_owned(), leg)
    };
    let (tokens, leg) = failure("plan", "tokens: 100_001");
    assert!(tokens.contains("agent `planner` would pass its limit of 100000 tokens") && leg["tokens"] == 100_000, "{tokens} {leg}");
    let (money, leg) = failure("build", "usd: 1.5");
    assert!(money.contains("limit of $1.00") && leg["usd"] == 1.0, "{money} {leg}");
    let (time, leg) = failure("build", "duration: 31m");
    assert!(!time.is_empty() && leg["ended_ms"].as_u64().unwrap() - leg["began_ms"].as_u64().unwrap() == 1_800_000, "{time} {leg}");
    assert_eq!(failure("plan", "tokens: 100_000").0, "");
}

#[test]
fn a_body_is_told_once_however_often_it_runs() {
    let calls = |of: &str| (0..6).map(|n| format!("  c{n}: {{ workflow: {of}, with: {{ word: fixed }} }}\n")).collect::<String>();
    let inputs = "inputs: { word: { type: string, default: w }, list: { type: array, default: [a, b] } }\n";
    let mut bench = Bench::new();
    for level in 0..4 {
        let steps = match level {
            3 => "  leaf: { run: \"true\", for_each: { items: \"{{ inputs.list }}\", as: n } }\n".to_owned(),
            _ => calls(&format!("w{}", level + 1)),
        };
        bench = bench.workflow(&format!("w{level}"), &format!("version: 1\nname: w{level}\n{inputs}steps:\n{steps}"));
    }
    let said = bench.spinney(&["plan", "w0"]).code(0);
    assert_eq!(said.out.matches("leaf").count(), 1, "{}", said.out);
    assert_eq!(said.out.matches("as those of").count(), 3 * 5, "{}", said.out);
    assert!(said.out.contains("216 times at most") && said.out.contains("as those of c0/c0"), "{}", said.out);
    let plan = json(&bench.spinney(&["plan", "w0", "--json"]).code(0));
    let bodies = plan["bodies"].as_array().unwrap();
    let runs: Vec<u64> = bodies.iter().map(|body| body["runs"].as_u64().unwrap()).collect();
    assert_eq!(runs, [216, 36, 6]);
    assert_eq!((&bodies[0]["steps"][0]["items"]["count"], &bodies[0]["inputs"]["word"]), (&2.into(), &"fixed".into()));
    assert_eq!(bench.spinney(&["plan", "w0", "--full"]).code(0).out.matches("leaf").count(), 216);
}

#[test]
fn an_input_that_is_not_known_is_no_default_inside_a_called_workflow() {
    let inner = "version: 1\nname: inner\ninputs: { list: { type: array, default: [a, b] } }\nsteps:\n  each: { for_each: { items: \"{{ inputs.list }}\", as: n }, run: \"true\" }\n";
    let outer = "version: 1\nname: outer\nsteps:\n  list: { run: ls, output: { parse: lines } }\n  open: { needs: [list], workflow: inner, with: { list: \"{{ steps.list.output }}\" } }\n  usual: { workflow: inner }\n";
    let bench = Bench::new().workflow("inner", inner).workflow("outer", outer);
    let plan = json(&bench.spinney(&["plan", "outer", "--json"]).code(0));
    let count = |step: &str| {
        let step = plan["steps"].as_array().unwrap().iter().find(|known| known["id"] == step).unwrap();
        plan["bodies"][usize::try_from(step["body"].as_u64().unwrap()).unwrap()]["steps"][0]["items"]["count"].clone()
    };
    assert_eq!((count("open"), count("usual")), (Value::Null, 2.into()));
}

#[test]
fn models_of_items_are_those_that_they_get() {
    let bench = Bench::new();
    let said = bench.spinney(&["plan", "tournament", "--input", "bug=x"]).code(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("claude-opus-5-5, else openai/gpt-6-sol, for 2 of the items"), "{said}");
    assert!(said.contains("gpt-6-sol, else anthropic/claude-sonnet-5-5, for 2 of the items"), "{said}");
    assert!(said.contains("alias `other` of the workflow"), "{said}");
    let plan = json(&bench.spinney(&["plan", "tournament", "--input", "bug=x", "--json"]).code(0));
    let fix = plan["steps"].as_array().unwrap().iter().find(|step| step["id"] == "fix").unwrap();
    // Four items, three tries of each, no dearer than the limit of a session.
    assert_eq!((&fix["at_most"]["unpriced"], &fix["times"]), (&false.into(), &12.into()));
    let usd = fix["agent"]["limits"]["usd"].as_f64().unwrap();
    assert!((fix["at_most"]["usd"].as_f64().unwrap() - usd * 12.0).abs() < 0.001, "{fix}");
    let open = json(&bench.spinney(&["plan", "tournament", "--input", "bug=x", "--model", "one=local/unknown", "--json"]).code(0));
    let fix = open["steps"].as_array().unwrap().iter().find(|step| step["id"] == "fix").unwrap();
    assert_eq!((&fix["at_most"]["unpriced"], &fix["at_most"]["usd"]), (&true.into(), &Value::Null));
}

const CACHED: &str = "version: 1\nname: cached\ninputs: { word: { type: string, default: one }, names: { type: array, default: [p, q] } }\nsteps:\n  whole: { run: cat src/a.txt, cache: { key: \"{{ inputs.word }}\", inputs: [src] } }\n  each: { for_each: { items: \"{{ inputs.names }}\", as: n }, run: \"echo {{ n | sh }}\", cache: { key: each } }\n  late: { needs: [whole], run: \"echo {{ steps.whole.stdout | sh }}\", cache: { key: late } }\n  never: { run: \"true\" }\n";

#[test]
fn recorded_results_are_looked_up_before_the_run() {
    let bench = Bench::new().file("src/a.txt", "a\n").file(".gitignore", ".spinney/\n").commit("begin").workflow("cached", CACHED);
    let standing = |more: &[&str]| {
        let arguments: Vec<&str> = ["plan", "cached", "--json"].into_iter().chain(more.iter().copied()).collect();
        let plan = json(&bench.spinney(&arguments).code(0));
        plan["steps"].as_array().unwrap().iter().map(|step| step["cache"]["standing"].as_str().unwrap_or("none").to_owned()).collect::<Vec<_>>()
    };
    let sorted = |mut standing: Vec<String>| {
        standing.sort();
        standing
    };
    assert_eq!(sorted(standing(&[])), ["miss", "miss", "none", "open"]);
    let (said, _) = bench.run("cached", "conversations: []\n", &[]);
    said.code(0);
    assert_eq!(sorted(standing(&[])), ["hit", "hit", "none", "open"]);
    assert_eq!(sorted(standing(&["--input", "word=two", "--input", "names=[\"p\", \"r\"]"])), ["miss", "none", "open", "part"]);
    let page = bench.spinney(&["plan", "cached"]).code(0).out;
    assert!(page.contains("hit: the same was done before, by cached-") && page.contains("looked up in the run: it reads what `whole`"), "{page}");
    let bench = bench.file("src/a.txt", "b\n").commit("other");
    let page = bench.spinney(&["plan", "cached"]).code(0).out;
    assert!(page.contains("miss: no result is kept for just this"), "{page}");
}

const HINGES: &str = r#"
version: 1
name: hinges
budget: { usd: 5, on_exceed: ask }
defaults: { model: anthropic/claude-sonnet-5-5, retry: { max: 1, on: [any] } }
agents: { coder: { system: "You code.", access: write }, judge: { system: "You judge." } }
steps:
  fix: { matrix: { way: [short, "long, longer"] }, agent: coder, prompt: "Fix it the {{ matrix.way }} way." }
  none: { for_each: { items: [], as: n }, run: "echo {{ n | sh }}", timeout: 500ms }
  pick: { needs: [fix], select: { from: fix, gates: ["make gate"], judge: { agent: judge, votes: 3 }, tie: first } }
  land: { needs: [fix, pick], merge: { from: [fix, pick], mode: each, verify: ["make test"], on_red: { then: eject } } }
  gate: { needs: [land], approve: { message: "Land it?", timeout: 90m, on_timeout: approve } }
"#;

#[test]
fn what_joins_chooses_and_asks_hinge_on_is_said() {
    let bench = Bench::new().workflow("hinges", HINGES);
    let page = bench.spinney(&["plan", "hinges"]).code(0).out;
    let said = page.split_whitespace().collect::<Vec<_>>().join(" ");
    for words in [
        "make test; after each source",
        "by a source: it is put aside",
        "gates make gate",
        "3 votes; at a tie the first of them",
        "1h 30m, then it counts as approved",
        "2: `short`, `long, longer`",
        "for each 0 works in",
        "0.5s a try",
        "All of it costs at most $5.00",
        "more where a person raises the budget",
        "a session $5.00",
    ] {
        assert!(said.contains(words), "{words}: {page}");
    }
    let plan = json(&bench.spinney(&["plan", "hinges", "--json"]).code(0));
    let step = |id: &str| plan["steps"].as_array().unwrap().iter().find(|step| step["id"] == id).unwrap().clone();
    assert_eq!(step("land")["hinges"]["merge"], serde_json::json!({"verify": ["make test"], "mode": "each", "on_red": "eject", "on_conflict": "eject"}));
    assert_eq!(step("gate")["hinges"]["approve"]["timeout_ms"], 5_400_000);
    assert_eq!((&step("gate")["tries"], &step("fix")["tries"]), (&1.into(), &2.into()), "a no is not asked again");
    assert_eq!(step("none")["timeout_ms"], 500);
}

const WRITTEN: &str = "version: 1
name: written
inputs: { a: { type: string, default: x }, b: { type: string, default: x } }
agents: { r: { system: R., cwd: docs } }
steps:
  taken: { for_each: { items: \"{{ [inputs.a, inputs.b] }}\" }, run: \"echo {{ item | sh }}\", cwd: web }
  listed: { for_each: { items: [one, two] }, agent: r, prompt: \"{{ item }}\" }
";

/// What follows from the inputs is told before the run, be it right or wrong; and where a step begins.
#[test]
fn items_that_are_wrong_and_folders_are_told_by_the_plan() {
    let bench = Bench::new().workflow("written", WRITTEN);
    let said = bench.spinney(&["plan", "written"]).code(0).out;
    let in_one = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(in_one.contains("the step will fail: the key `x` is taken"), "{said}");
    assert!(said.contains("2: one, two") && said.contains("web in a view of") && said.contains("docs in a view of"), "{said}");
    let right = bench.spinney(&["plan", "written", "--input", "b=y"]).code(0).out;
    assert!(right.contains("2: x, y") && !right.contains("will fail"), "{right}");
    let told = json(&bench.spinney(&["plan", "written", "--json"]).code(0));
    assert_eq!((&told["steps"][0]["cwd"], &told["steps"][1]["cwd"]), (&"web".into(), &"docs".into()), "{told}");
}
