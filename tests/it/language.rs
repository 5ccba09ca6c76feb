//! The language through the front door: the four workflows of its definition in their own form, what is wrong with a file told
//! all at once, and what an orchestrator may add.
use crate::{
    driver::{Line, answers},
    fixture::{Bench, outcome},
};
use serde_json::{Value, json};
use spinney::event::Event;

/// Each with the inputs that must be given.
const GIVEN: [(&str, &str, &[&str]); 4] = [
    ("feature", include_str!("../fixtures/language/feature.yaml"), &["--input", "goal=Notes"]),
    ("review", include_str!("../fixtures/language/review.yaml"), &[]),
    ("migrate", include_str!("../fixtures/language/migrate.yaml"), &[]),
    ("tournament", include_str!("../fixtures/language/tournament.yaml"), &["--input", "bug=It falls over"]),
];

#[test]
fn the_workflows_of_the_definition_load_as_they_are_and_are_planned_and_simulated() {
    let hook = r#"{"hooks":{"PostToolUse":[{"matcher":"Edit","hooks":[{"type":"command","command":"true"}]}]}}"#;
    let skill = "---\nname: rust\ndescription: How Rust is written here.\n---\nWell.\n";
    let mut bench = Bench::new().file(".spinney/skills/rust/SKILL.md", skill);
    for name in ["protect-secrets", "fmt-after-edit"] {
        bench = bench.file(&format!(".spinney/hooks/{name}.json"), hook);
    }
    for (name, text, _) in GIVEN {
        bench = bench.file(&format!("given/{name}.yaml"), text);
    }
    let stub = bench.script("{}");
    for (name, _, inputs) in GIVEN {
        let path = format!("given/{name}.yaml");
        bench.spinney(&["validate", &path]).code(0);
        for simulated in [&[] as &[&str], &["--stub", &stub]] {
            bench.spinney(&[&["plan", path.as_str()], inputs, simulated].concat()).code(0);
        }
    }
    let plan: Value = serde_json::from_str(&bench.spinney(&["plan", "given/tournament.yaml", "--input", "bug=x", "--json"]).code(0).out).unwrap();
    let choices = plan["steps"][1]["agent"]["choices"].to_string();
    assert!(choices.contains("google/gemini-3.7-flash"), "{choices}");
}

#[test]
fn errors_of_form_hide_no_others() {
    let flow = r#"
version: 1
name: flow
agents: { w: { model: openai/gpt-6-sol, access: write, system: "x", acess: read } }
steps: { a: { agent: nobody, prompt: "{{ inputs.none }} {{ steps.zzz.output }}", needs: [q] } }
"#;
    let bench = Bench::new().file("flow.yaml", flow);
    let said = bench.spinney(&["validate", "flow.yaml", "--format", "json"]).code(2);
    let verdict: Value = serde_json::from_str(&said.out).unwrap();
    let mut codes: Vec<&str> = verdict[0]["diagnostics"].as_array().unwrap().iter().map(|found| found["code"].as_str().unwrap()).collect();
    codes.sort_unstable();
    assert_eq!(codes, ["E010", "E030", "E031", "E052", "E053"], "{}", said.out);
    // What cannot be run is not run for all that.
    assert!(bench.spinney(&["plan", "flow.yaml"]).code(2).err.contains("acess"));
}

#[test]
fn a_whole_number_may_be_written_with_a_point() {
    let flow = "version: 1\nname: flow\ninputs: { i: { type: integer, required: true } }\nsteps: { a: { run: \"echo {{ inputs.i | sh }}\" } }\n";
    let bench = Bench::new().workflow("flow", flow);
    let plan: Value = serde_json::from_str(&bench.spinney(&["plan", "flow", "--input", "i=3.0", "--json"]).code(0).out).unwrap();
    assert_eq!(plan["inputs"]["i"].to_string(), "3");
    assert!(bench.spinney(&["plan", "flow", "--input", "i=3.5"]).code(2).err.contains("a whole number"));
}

const GROWING: &str = r#"
version: 1
name: growing
agents:
  lead: { system: "You lead." }
  coder: { system: "You code.", access: write }
schemas:
  plan:
    type: object
    required: [tasks]
    properties:
      tasks:
        type: array
        items:
          type: object
          additionalProperties: false
          required: [id, text, files]
          properties:
            id: { type: string }
            text: { type: string }
            files: { type: array, items: { type: string } }
            needs: { type: array, items: { type: string } }
orchestrator: { agent: lead, may: [add_items], max_added: 3, wake: [item_done] }
steps:
  plan: { agent: lead, prompt: "Plan.", output: { schema: plan } }
  build:
    needs: [plan]
    for_each: { items: "{{ steps.plan.output.tasks }}", as: task, key: "{{ task.id }}", needs: "{{ task.needs | default(value=[]) }}", join: all_done }
    agent: coder
    scope: "{{ task.files }}"
    prompt: "{{ task.text }}"
  land: { needs: [build], merge: { from: build } }
"#;

fn task(id: &str, files: &[&str], needs: &[&str]) -> Value {
    json!({"id": id, "text": "Do it.", "files": files, "needs": needs})
}

#[test]
fn what_an_orchestrator_adds_is_held_against_schema_scopes_needs_and_limits() {
    let added = [
        (json!([{"id": "x", "bogus": 1}]), "item `x` does not fit the schema of the step's items"),
        (json!([task("y", &["b.txt", ""], &[])]), "the scope of item `y`"),
        (json!([task("z", &["**"], &[])]), "item `z` may write `**` and item `a` may write `a.txt`"),
        (json!([task("n", &["n.txt"], &[]), task("m", &["n.*"], &[])]), "item `m` may write `n.*` and item `n` may write `n.txt`"),
        (json!([task("g", &["g.txt"], &["gone"])]), "item `g` needs `gone`, which no item is called"),
        (json!([task("a", &["b.txt"], &[])]), "the key `a` is taken"),
        (json!([task("c", &["c.txt"], &["d"]), task("d", &["d.txt"], &["c"])]), "needs itself"),
        (json!(["1", "2", "3", "4"].map(|id| task(id, &[], &[]))), "at most 3 items may be added"),
        (json!([task("b", &["a.txt"], &["a"])]), "added to `build`: b"),
    ];
    let calls: Vec<(String, Value)> = added.iter().map(|(items, _)| ("AddItems".to_owned(), json!({"step": "build", "items": items}))).collect();
    let bench = Bench::new().workflow("growing", GROWING);
    let drive = bench.drive(move |sent, _| match sent.node.as_str() {
        "plan" => Line::say(&json!({"tasks": [task("a", &["a.txt"], &[])]}).to_string()),
        "orchestrator" if !sent.messages.iter().any(|message| message.contains("[call]")) => Line::Say(String::new(), calls.clone()),
        _ => Line::say("Done."),
    });
    let (_, records) = drive.run("growing");
    let answered = answers(&records, "orchestrator");
    assert_eq!(answered.len(), added.len(), "{answered:?}");
    for ((_, is_error, text), (items, said)) in answered.iter().zip(&added) {
        assert!(text.contains(said), "{items}: {text}");
        assert_eq!(*is_error, !said.starts_with("added"), "{items}: {text}");
    }
    assert!(outcome(&records, "build/b")["succeeded"].is_object());
    let by_it = |record: &&spinney::event::Record| matches!(&record.event, Event::ItemsAdded { by, .. } if by.to_string() == "orchestrator");
    assert_eq!(records.iter().filter(by_it).count(), 1, "nothing but the last call had an effect");
}

/// Items that are written out have no schema; what all of them have in common is one.
#[test]
fn what_is_added_to_items_that_are_written_out_is_of_their_kind() {
    let flow = |items: &str| {
        format!(
            "version: 1\nname: kinds\nagents: {{ lead: {{ system: L. }}, coder: {{ system: C. }} }}\norchestrator: {{ agent: lead, may: [add_items], max_added: 9, wake: [start] }}\nsteps:\n  build: {{ for_each: {{ items: {items} }}, agent: coder, prompt: \"go {{{{ item }}}}\" }}\n"
        )
    };
    for (items, wrong, right) in [("[a, b]", json!({"x": 1}), json!("c")), ("[{ id: a, of: 1 }, { id: b }]", json!({"of": 2}), json!({"id": "c"}))] {
        let calls = [&wrong, &right].map(|item| ("AddItems".to_owned(), json!({"step": "build", "items": [item]}))).to_vec();
        let bench = Bench::new().workflow("kinds", &flow(items));
        let drive = bench.drive(move |sent, _| match sent.node.as_str() {
            "orchestrator" if !sent.messages.iter().any(|message| message.contains("[call]")) => Line::Say(String::new(), calls.clone()),
            _ => Line::say("Done."),
        });
        let (_, records) = drive.run("kinds");
        let answered = answers(&records, "orchestrator");
        assert!(answered[0].1 && answered[0].2.contains("does not fit the schema of the step's items"), "{items}: {answered:?}");
        assert!(!answered[1].1, "{items}: {answered:?}");
    }
}

#[test]
fn nothing_is_added_where_nothing_is_left_to_pay_for_it() {
    let poor = GROWING.replace("name: growing\n", "name: growing\nbudget: { turns: 4 }\n");
    let bench = Bench::new().workflow("growing", &poor);
    let drive = bench.drive(move |sent, _| match sent.node.as_str() {
        "plan" => Line::say(&json!({"tasks": [task("a", &["a.txt"], &[])]}).to_string()),
        "orchestrator" if !sent.messages.iter().any(|message| message.contains("[call]")) => {
            let items = json!([task("b", &["b.txt"], &[]), task("c", &["c.txt"], &[])]);
            Line::Say(String::new(), vec![("AddItems".to_owned(), json!({"step": "build", "items": items}))])
        }
        _ => Line::say("Done."),
    });
    let (_, records) = drive.run("growing");
    let answered = answers(&records, "orchestrator");
    assert!(answered[0].1 && answered[0].2.contains("1 turns are left, too little for 2 more"), "{answered:?}");
}

#[test]
fn a_digest_of_many_steps_is_short() {
    let steps: String = (0..300).map(|step| format!("  s{step}: {{ if: \"false\", run: \"true\" }}\n")).collect();
    let flow = format!(
        "version: 1\nname: wide\nagents: {{ lead: {{ system: \"You lead.\" }} }}\norchestrator: {{ agent: lead, may: [], wake: [start] }}\nsteps:\n{steps}"
    );
    let bench = Bench::new().workflow("wide", &flow);
    let drive = bench.drive(|_, _| Line::say("Seen."));
    drive.run("wide");
    let sent = drive.sent();
    let last = sent.last().unwrap();
    assert!(last.last().contains("step s99: ") && !last.last().contains("step s100: "), "{}", last.last());
    assert!(last.last().contains("and more steps: 200 "), "{}", last.last());
    assert!(last.messages.iter().all(|message| message.len() < 6_000), "{:?}", last.messages.iter().map(String::len).collect::<Vec<_>>());
    assert!(last.messages[0].contains("and 200 more"), "{}", last.messages[0]);
}
