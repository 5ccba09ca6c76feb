//! What was said on the command line of a run holds for whatever goes on with it, or follows from it, until something else is
//! said.
use crate::{
    fixture::{Bench, results},
    server::{Answer, Delivery, Hosted, Said},
};
use serde_json::{Value, json};
use spinney::event::{Event, Given};

const WORKFLOW: &str = r#"
version: 1
name: two
agents: { coder: { system: "You code.", access: write } }
permissions: { ask: ["Bash(touch:*)"] }
steps:
  first: { agent: coder, prompt: "First." }
  second: { needs: [first], agent: coder, prompt: "Second." }
"#;

/// A server that is every provider: each agent touches a file and is done.
fn served() -> (Hosted, Bench) {
    let server = Hosted::start(|asked| {
        let said = if asked.turn() == 0 { Said::call("c0", "Bash", json!({"command": "touch new.txt"})) } else { Said::text("Done.") };
        (Answer::Say(said), Delivery::default())
    });
    let bench = Bench::new().env("ANTHROPIC_BASE_URL", &server.anthropic_url()).env("ANTHROPIC_API_KEY", "sk-1").workflow("two", WORKFLOW);
    (server, bench)
}

fn given(bench: &Bench) -> Given {
    Given::of(&bench.records(&bench.newest()))
}

/// Returns the models that the newest run's agents were begun with.
fn models(bench: &Bench) -> Vec<String> {
    let of = |event: &Event| if let Event::AgentBriefed { brief, .. } = event { Some(brief.models.join(",")) } else { None };
    bench.records(&bench.newest()).iter().filter_map(|record| of(&record.event)).collect()
}

#[test]
fn models_and_answers_hold_until_others_are_named() {
    let (server, bench) = served();
    let one = "anthropic/claude-opus-5-5";
    bench.spinney(&["run", "two", "--model", one, "--no-cache", "--unconfined"]).code(3);
    let run = bench.newest().0;
    let said = Given { models: vec![one.to_owned()], unconfined: true, no_cache: true, on_ask: None };
    assert_eq!(given(&bench), said);
    let shown = bench.spinney(&["show", &run]).code(0).out;
    assert!(shown.contains(&format!("--model {one} --unconfined --no-cache\n")), "{shown}");
    bench.spinney(&["resume", &run, "--on-ask", "deny"]).code(0);
    assert_eq!((models(&bench), given(&bench)), (vec![one.to_owned(); 2], Given { on_ask: Some("deny".to_owned()), ..said.clone() }));
    // Nothing has changed, since the model is the one of then.
    let plan: Value = serde_json::from_str(&bench.spinney(&["plan", &run, "--json"]).code(0).out).unwrap();
    assert!(plan["steps"].as_array().unwrap().iter().all(|step| step["holds"] == true), "{plan}");
    assert!(bench.spinney(&["rerun", &run]).code(2).err.contains("nothing in it has changed"));
    bench.spinney(&["rerun", &run, "--from", "second"]).code(0);
    assert_eq!((models(&bench), given(&bench).models), (vec![one.to_owned(); 2], vec![one.to_owned()]));
    assert!(results(&bench.records(&bench.newest()), "second")[0].2.contains("--on-ask deny"));
    // Something else is said: that holds from then on.
    let two = "anthropic/claude-sonnet-5-5";
    bench.spinney(&["rerun", &run, "--model", two, "--on-ask", "park", "--unconfined=false"]).code(3);
    assert_eq!(given(&bench), Given { models: vec![two.to_owned()], unconfined: false, no_cache: true, on_ask: Some("park".to_owned()) });
    assert_eq!(models(&bench), [two]);
    bench.spinney(&["resume", "--model", one, "--on-ask", "allow"]).code(0);
    assert_eq!((models(&bench), given(&bench).models), (vec![two.to_owned(), one.to_owned()], vec![one.to_owned()]));
    assert_eq!(server.problems(), Vec::<String>::new());
}
