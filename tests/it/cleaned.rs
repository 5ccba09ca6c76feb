//! `clean`: what is left of runs goes where their work is elsewhere, and unlanded work only where its run is named.
use crate::fixture::Bench;
use serde_json::Value;
use spinney::event::RunId;
use std::collections::BTreeMap;

const FLOW: &str = r#"
version: 1
name: flow
agents: { coder: { system: "You code.", access: write } }
steps:
  build: { for_each: { items: [a, b], as: part }, agent: coder, prompt: "Build {{ part }}." }
  land: { needs: [build], merge: { from: build } }
"#;
const SCRIPT: &str = r#"
conversations:
  - agent: coder
    told: "Build (?<part>[a-z]+)"
    turns:
      - calls: [{ tool: Write, input: { file_path: "${part}.txt", content: "${part}\n" } }]
      - say: "Built."
"#;
const LOOK: &str = "version: 1\nname: look\nsteps: { look: { run: \"ls\" } }\n";
const ASK: &str = "version: 1\nname: ask\nsteps: { ask: { approve: { message: \"Yes?\" } } }\n";
const RED: &str = r#"
version: 1
name: red
agents: { coder: { system: "You code.", access: write } }
steps:
  build: { agent: coder, prompt: "Build x.", verify: { run: ["false"], attempts: 1 } }
"#;

fn run(bench: &Bench, workflow: &str, code: u8) -> RunId {
    bench.run(workflow, SCRIPT, &[]).0.code(code);
    bench.newest()
}

/// Returns what became of each run, by its workflow.
fn cleaned(bench: &Bench, more: &[&str]) -> BTreeMap<String, (bool, String)> {
    let said = bench.spinney(&[&["clean", "--json"], more].concat()).code(0);
    let fates: Value = serde_json::from_str(&said.out).unwrap();
    let one = |fate: &Value| {
        let (run, why) = (fate["run"].as_str().unwrap(), fate["why"].as_str().unwrap());
        (run.rsplit_once('-').unwrap().0.to_owned(), (fate["would_be_removed"] == true, why.to_owned()))
    };
    fates.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn only_what_has_landed_or_left_nothing_goes() {
    let bench = Bench::new().workflow("flow", FLOW).workflow("look", LOOK).workflow("ask", ASK).workflow("red", RED);
    let (flow, look, ask, red) = (run(&bench, "flow", 0), run(&bench, "look", 0), run(&bench, "ask", 3), run(&bench, "red", 1));
    let young = cleaned(&bench, &["--dry-run"]);
    assert!(young.values().all(|(goes, _)| !goes) && young["look"].1.contains("not long enough"), "{young:?}");
    let fates = cleaned(&bench, &["--older-than", "0s", "--dry-run"]);
    assert_eq!(fates["look"], (true, "it left no work".to_owned()));
    for (workflow, why) in [("flow", "is on no branch but the run's own"), ("ask", "it is not over"), ("red", "is on no branch but the run's own")] {
        assert!(!fates[workflow].0 && fates[workflow].1.contains(why), "{fates:?}");
    }
    bench.spinney(&["land", &flow.0]).code(0);
    assert_eq!(cleaned(&bench, &["--older-than", "0s"])["flow"], (true, "its work has landed".to_owned()));
    let left = bench.git(&["for-each-ref", "--format=%(refname)"]);
    assert!(!left.contains(&flow.0) && left.contains(&red.0), "{left}");
    for run in [&flow, &look] {
        assert!(!bench.repo().join(format!(".spinney/state/runs/{run}")).exists(), "{run} is still there");
    }
    // A run that waits is not dropped, even by its name; work that is nowhere else is, by its name alone.
    let said = bench.spinney(&["clean", "--drop", &ask.0]).code(1);
    assert!(said.out.contains("it is not over"), "{}", said.out);
    let said = bench.spinney(&["clean", "--drop", &red.0]).code(0);
    assert!(said.out.contains("dropped, as asked for"), "{}", said.out);
    assert!(!bench.git(&["for-each-ref"]).contains(&red.0));
    assert_eq!(cleaned(&bench, &[]).keys().collect::<Vec<_>>(), ["ask"]);
    bench.spinney(&["clean", "--older-than", "soon"]).code(2);
}
