//! What a run is pinned to: every file that a step of it reads. Where one is another when the run is taken up, that is said.
use crate::fixture::{Bench, outcome};
use serde_json::{Value, json};
use spinney::event::{Event, RunId};
use std::{collections::BTreeMap, fs};

const FLOW: &str = r#"
version: 1
name: flow
agents:
  coder: { access: write, system: prompts/coder.md, skills: [house], hooks: [watch] }
  judge: { access: read, system: "You judge." }
steps:
  ask: { approve: { message: "Go on?" } }
  two: { needs: [ask], for_each: { items: [x, y], as: it }, agent: coder, prompt: prompts/two.md }
  best: { needs: [two], select: { from: two, judge: { agent: judge, rubric: prompts/rubric.md } } }
  tell: { needs: [best], agent: reader, prompt: "Tell it." }
  sub: { needs: [tell], workflow: inner }
"#;
const INNER: &str = "version: 1\nname: inner\nagents: { a: { system: \"A.\" } }\nsteps: { in: { agent: a, prompt: prompts/inner.md } }\n";
const HOOK: &str = r#"{ "hooks": { "PreToolUse": [{ "hooks": [{ "type": "command", "command": "sh \"${CLAUDE_PLUGIN_ROOT}/watch.sh\"" }] }] } }"#;
const FILES: [(&str, &str); 9] = [
    ("prompts/coder.md", "You code.\n"),
    ("prompts/two.md", "Do {{ it }}.\n"),
    ("prompts/rubric.md", "Look closely.\n"),
    ("prompts/inner.md", "Do it inside.\n"),
    ("agents/reader.md", "---\nname: reader\ndescription: Reads.\ntools: Read, Grep\n---\n\nYou read.\n"),
    ("skills/house/SKILL.md", "---\nname: house\ndescription: The house's rules.\n---\n\nSee more.md.\n"),
    ("skills/house/more.md", "Be kind.\n"),
    ("hooks/watch.json", HOOK),
    ("hooks/watch.sh", "exit 0\n"),
];

#[test]
fn each_file_that_a_step_reads_is_told_of_where_it_has_changed() {
    let bench = FILES.iter().fold(Bench::new(), |bench, (path, text)| bench.file(&format!(".spinney/{path}"), text));
    let bench = bench.workflow("flow", FLOW).workflow("inner", INNER).file(".spinney/config.yaml", "defaults: { max_parallel: 4 }\n");
    bench.run("flow", "conversations: []\n", &[]).0.code(3);
    let run = bench.newest();
    for (path, before, after, pin) in [
        ("prompts/two.md", "Do", "Never do", "prompt:prompts/two.md"),
        ("prompts/rubric.md", "closely", "away", "prompt:prompts/rubric.md"),
        ("prompts/inner.md", "inside", "outside", "prompt:prompts/inner.md"),
        ("prompts/coder.md", "code", "sleep", "system:coder"),
        ("agents/reader.md", "Read, Grep", "Read", "agent:reader"),
        ("skills/house/SKILL.md", "See", "Never see", "skill:house"),
        ("skills/house/more.md", "kind", "rude", "skill:house"),
        ("hooks/watch.json", "PreToolUse", "PostToolUse", "hook:watch"),
        ("hooks/watch.sh", "0", "2", "hook:watch"),
        ("workflows/inner.yaml", "A.", "B.", "workflow:inner"),
        ("workflows/flow.yaml", "Tell it.", "Sing it.", "workflow:flow"),
        ("config.yaml", "4", "5", "configuration:config.yaml"),
    ] {
        let path = bench.repo().join(".spinney").join(path);
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(before), "{text}");
        fs::write(&path, text.replace(before, after)).unwrap();
        let said = bench.spinney(&["resume", &run.0]).code(2);
        assert!(said.err.contains(pin) && said.err.contains("--accept-changes"), "{pin}: {}", said.err);
        fs::write(&path, text).unwrap();
    }
    // What nobody names is nobody's concern.
    let bench = bench.file(".spinney/prompts/other.md", "Other.\n").file(".spinney/agents/new.md", "---\nname: new\ndescription: New.\n---\n\nNew.\n");
    bench.spinney(&["resume", &run.0]).code(3);
}

#[test]
fn an_answer_takes_no_edited_prompt_up_without_a_word() {
    let flow = "version: 1\nname: flow\nagents: { coder: { access: write, system: \"You code.\" } }\nsteps:\n  ask: { approve: { message: \"Go on?\" } }\n  two: { needs: [ask], agent: coder, prompt: prompts/two.md }\n";
    let bench = Bench::new().workflow("flow", flow).file(".spinney/prompts/two.md", "Do it.\n");
    bench.run("flow", "conversations:\n  - agent: coder\n    turns: [{ say: Done. }]\n", &[]).0.code(3);
    let run = bench.newest();
    let bench = bench.file(".spinney/prompts/two.md", "Do it well.\n");
    let said = bench.spinney(&["approve", &run.0]).code(2);
    assert!(said.err.contains("prompt:prompts/two.md") && said.err.contains("--accept-changes") && said.err.contains("is kept"), "{}", said.err);
    bench.spinney(&["resume", &run.0, "--accept-changes"]).code(0);
    let records = bench.records(&run);
    let told = records.iter().find_map(|record| if let Event::AgentBriefed { brief, .. } = &record.event { Some(brief.message.text()) } else { None });
    assert!(told.unwrap().contains("Do it well."));
    assert_eq!(outcome(&records, "two")["succeeded"]["commit"], json!(null));
}

/// Returns which steps of a run hold.
fn holding(bench: &Bench, run: &RunId) -> BTreeMap<String, bool> {
    let plan: Value = serde_json::from_str(&bench.spinney(&["plan", &run.0, "--json"]).code(0).out).unwrap();
    let one = |step: &Value| (step["step"].as_str().unwrap().to_owned(), step["holds"] == true);
    plan["steps"].as_array().unwrap().iter().map(one).collect()
}

/// What a template may choose is whatever there is of its kind.
#[test]
fn what_a_template_chooses_is_a_part_of_its_step() {
    let flow = "version: 1\nname: flow\ninputs: { lens: { type: string, default: a }, model: { type: string, default: large } }\nmodels: { large: { use: ollama/x }, small: { use: ollama/y } }\nagents: { coder: { system: \"You code.\" } }\nsteps:\n  ask: { approve: { message: \"Go on?\" } }\n  two: { needs: [ask], agent: coder, prompt: \"Do it.\", skills: [\"rev-{{ inputs.lens }}\"] }\n  three: { needs: [ask], agent: coder, prompt: \"Do it.\", model: \"{{ inputs.model }}\" }\n";
    let skill = |text: &str| format!("---\nname: rev-a\ndescription: Looks.\n---\n\n{text}\n");
    let bench = Bench::new().workflow("flow", flow).file(".spinney/skills/rev-a/SKILL.md", &skill("Closely."));
    bench.run("flow", "conversations:\n  - turns: [{ say: Done. }]\n", &[]).0.code(3);
    let run = bench.newest();
    let bench = bench.file(".spinney/skills/rev-a/SKILL.md", &skill("Kindly."));
    assert!(bench.spinney(&["resume", &run.0]).code(2).err.contains("skill:rev-a"));
    let bench = bench.file(".spinney/skills/rev-a/SKILL.md", &skill("Closely."));
    bench.spinney(&["approve", &run.0]).code(0);
    let bench = bench.workflow("flow", &flow.replace("ollama/x", "ollama/z"));
    assert_eq!(holding(&bench, &run), [("ask".to_owned(), true), ("two".to_owned(), true), ("three".to_owned(), false)].into());
}

/// A loop has the inputs of the workflow, and reads few of them.
#[test]
fn an_input_that_a_loop_does_not_read_does_not_change_it() {
    let flow = "version: 1\nname: flow\ninputs: { a: { type: string, default: x } }\nsteps:\n  again: { loop: { until: \"true\", max: 2 }, steps: { one: { run: \"true\" } } }\n";
    let bench = Bench::new().workflow("flow", flow);
    bench.run("flow", "conversations: []\n", &[]).0.code(0);
    let bench = bench.workflow("flow", &flow.replace("default: x }", "default: y }, b: { type: string, default: z }"));
    assert_eq!(holding(&bench, &bench.newest()), [("again".to_owned(), true)].into());
}
