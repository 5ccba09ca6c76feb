//! Files dropped into a project as a user would write them work in the next run, without code.
use crate::{
    driver::Line,
    fixture::{Bench, outcome, results},
};
use serde_json::json;
use spinney::event::Event;

const SKILL: &str = "---\nname: haiku\ndescription: Use when a text has to be a haiku.\n---\n\n# Haiku\n\nFive, seven, five. FROG-POND $ARGUMENTS\n";
const AGENT: &str = "---\nname: poet\ndescription: Writes poems\ntools: Read, Write, Skill\nmodel: sonnet\n---\n\nYou are a poet. QUILL\n";
const HOOK: &str = r#"{
  "always": true,
  "hooks": {
    "PreToolUse": [
      { "matcher": "Write", "hooks": [{ "type": "command", "command": "sh \"${CLAUDE_PLUGIN_ROOT}/no-prose.sh\"" }] }
    ]
  }
}"#;
const HOOK_SCRIPT: &str = "#!/bin/sh\nif grep -q prose; then echo 'no prose here' >&2; exit 2; fi\n";

fn workflow(agent: &str) -> String {
    format!("version: 1\nname: verse\nagents:\n{agent}\nsteps:\n  write: {{ agent: poet, prompt: prompts/verse.md }}\n")
}

#[test]
fn a_skill_folder_is_listed_and_opened_wherever_it_is_dropped() {
    for root in [".spinney/skills", ".claude/skills", ".agents/skills", ".claude/skills/poetry"] {
        let bench = Bench::new().file(&format!("{root}/haiku/SKILL.md"), SKILL).file(&format!("{root}/haiku/reference/season-words.md"), "SEASONS\n").workflow(
            "verse",
            "version: 1\nname: verse\nskills: [haiku]\nagents: { poet: { system: \"You write.\" } }\nsteps:\n  write: { agent: poet, prompt: \"Write.\" }\n",
        );
        let path = bench.repo().join(root).join("haiku/reference/season-words.md").display().to_string();
        let drive = bench.drive(move |sent, _| match sent.turn() {
            0 => Line::call("Skill", json!({"skill": "haiku", "args": "winter"})),
            1 => Line::call("Read", json!({"file_path": path})),
            _ => Line::say("done"),
        });
        let (_, records) = drive.run("verse");
        let sent = drive.sent();
        assert!(sent[0].system.contains("haiku") && sent[0].system.contains("has to be a haiku"), "{root}: {}", sent[0].system);
        assert!(!sent[0].system.contains("FROG-POND"), "only the line is disclosed at first");
        assert!(sent[1].last().contains("FROG-POND winter"), "{root}: {}", sent[1].last());
        assert!(!results(&records, "write")[1].1 && sent[2].last().contains("SEASONS"), "{root}: {}", sent[2].last());
        assert!(bench.spinney(&["list"]).code(0).out.contains("haiku"));
    }
}

#[test]
fn an_agent_file_is_an_agent_by_its_name() {
    for root in [".claude/agents", ".spinney/agents", ".claude/agents/writers"] {
        let bench = Bench::new()
            .file(&format!("{root}/the-poet.md"), AGENT)
            .file(".spinney/prompts/verse.md", "A verse, please.\n")
            .workflow("verse", "version: 1\nname: verse\nsteps:\n  write: { agent: poet, prompt: prompts/verse.md, scope: [\"*.txt\"] }\n");
        let drive = bench.drive(|sent, _| match sent.turn() {
            0 => Line::call("Write", json!({"file_path": "verse.txt", "content": "o\n"})),
            _ => Line::say("done"),
        });
        let (_, records) = drive.run("verse");
        let sent = drive.sent();
        assert!(sent[0].system.contains("QUILL"), "{root}");
        assert_eq!(sent[0].tools, ["Read", "Skill", "Write"], "{root}");
        assert!(sent[0].last().contains("A verse, please."));
        let run = bench.newest();
        assert!(outcome(&records, "write")["succeeded"].is_object(), "{}", outcome(&records, "write"));
        assert_eq!(bench.git(&["show", &format!("spinney/{run}:verse.txt")]), "o\n");
    }
}

#[test]
fn a_prompt_file_is_a_template_and_is_found_by_its_path() {
    let bench = Bench::new()
        .file(".spinney/prompts/verse.md", "Write of {{ inputs.theme }}.\n")
        .file(".spinney/prompts/system/poet.md", "You are a poet by file.\n")
        .workflow("verse", "version: 1\nname: verse\ninputs: { theme: { type: string, default: frogs } }\nagents: { poet: { system: prompts/system/poet.md } }\nsteps:\n  write: { agent: poet, prompt: prompts/verse.md }\n");
    let drive = bench.drive(|_, _| Line::say("done"));
    drive.run("verse");
    let sent = drive.sent();
    assert!(sent[0].last().contains("Write of frogs.") && sent[0].system.contains("You are a poet by file."));
    // The next run sees the next text, without anything else being done.
    let bench = bench.file(".spinney/prompts/verse.md", "Sing of {{ inputs.theme }}.\n");
    let drive = bench.drive(|_, _| Line::say("done"));
    drive.run("verse");
    assert!(drive.sent()[0].last().contains("Sing of frogs."));
}

#[test]
fn a_hook_runs_once_it_is_trusted_and_not_before_and_that_is_said() {
    let poet = "  poet: { system: \"You write.\", access: write }";
    let bench = Bench::new()
        .file(".gitignore", ".spinney/\n")
        .commit("ignore")
        .file(".spinney/prompts/verse.md", "A verse, please.\n")
        .file(".spinney/hooks/no-prose.json", HOOK)
        .executable(".spinney/hooks/no-prose.sh", HOOK_SCRIPT)
        .workflow("verse", &workflow(poet));
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: Write, input: { file_path: a.txt, content: \"prose\\n\" } }]\n      - say: done\n";

    let (said, records) = bench.run("verse", script, &[]);
    let said = said.code(0);
    assert!(said.err.contains("no-prose") && said.err.contains("not trusted") && said.err.contains("spinney trust"), "{}", said.err);
    assert!(!results(&records, "write")[0].1);
    assert!(!records.iter().any(|record| matches!(record.event, Event::HookRan { .. })));

    let said = bench.spinney(&["trust", "--yes"]).code(0);
    assert!(said.out.contains("no-prose.sh"), "what is trusted is shown: {}", said.out);
    let (said, records) = bench.run("verse", script, &[]);
    let said = said.code(0);
    assert!(!said.err.contains("not trusted"), "{}", said.err);
    assert!(results(&records, "write")[0].1 && results(&records, "write")[0].2.contains("no prose here"), "{:?}", results(&records, "write"));
    assert!(records.iter().any(|record| matches!(&record.event, Event::HookRan { hook, verdict, .. } if hook == "no-prose" && verdict.word() == "deny")));

    // Trust is of the content: a byte of the script that it names, and it asks again.
    let bench = bench.executable(".spinney/hooks/no-prose.sh", &format!("{HOOK_SCRIPT}# changed\n"));
    let (said, records) = bench.run("verse", script, &[]);
    assert!(said.err.contains("not trusted"), "{}", said.err);
    assert!(!records.iter().any(|record| matches!(record.event, Event::HookRan { .. })));
}

#[test]
fn a_hook_that_an_agent_names_and_nobody_trusts_shuts_the_gate() {
    let poet = "  poet: { system: \"You write.\", access: write, hooks: [no-prose] }";
    let bench = Bench::new()
        .file(".spinney/prompts/verse.md", "A verse, please.\n")
        .file(".spinney/hooks/no-prose.json", &HOOK.replace("\"always\": true,", ""))
        .executable(".spinney/hooks/no-prose.sh", HOOK_SCRIPT)
        .workflow("verse", &workflow(poet));
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: Write, input: { file_path: a.txt, content: \"verse\\n\" } }]\n      - say: done\n";
    let (_, records) = bench.run("verse", script, &[]);
    let failed = outcome(&records, "write");
    assert!(failed["failed"]["message"].as_str().unwrap().contains("hook `no-prose` is not trusted"), "{failed}");
    bench.spinney(&["trust", "--yes"]).code(0);
    let (_, records) = bench.run("verse", script, &[]);
    assert!(!results(&records, "write")[0].1, "{:?}", results(&records, "write"));
}

#[test]
fn a_workflow_is_found_by_its_name_and_hides_the_built_in_one() {
    let bench = Bench::new().workflow("feature", "version: 1\nname: feature\nsteps:\n  mine: { run: \"echo mine\" }\n");
    let (said, records) = bench.run("feature", "conversations: []", &[]);
    said.code(0);
    assert!(outcome(&records, "mine")["succeeded"].is_object());
    assert!(bench.spinney(&["list"]).code(0).out.contains("hides"));
}

#[test]
fn allow_rules_of_a_project_are_shown_before_they_are_trusted() {
    let bench = Bench::new().workflow(
        "edit",
        "version: 1\nname: edit\npermissions: { allow: [\"Bash(make:*)\"] }\nagents: { w: { system: \"You read.\" } }\nsteps:\n  work: { agent: w, prompt: \"Go.\" }\n",
    );
    assert!(bench.spinney(&["list"]).code(0).out.contains("not trusted"));
    let said = bench.spinney(&["trust", "--yes"]).code(0);
    assert!(said.out.contains("edit") && said.out.contains("Bash(make:*)"), "{}", said.out);
    assert!(!bench.spinney(&["list"]).code(0).out.contains("its allow rules are not trusted"));
}
