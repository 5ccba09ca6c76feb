//! What must be asked: it parks where nobody is there, and is asked again on resume.
use crate::fixture::{Bench, outcome, results};
use serde_json::json;
use spinney::event::Event;
use std::fs;

const WORKFLOW: &str = r#"
version: 1
name: asks
agents: { worker: { system: "You work.", access: write, HOOKS permissions: { RULES } } }
steps:
  work: { agent: worker, prompt: "Do it." }
  other: { run: "echo other" }
"#;

const SCRIPT: &str = r#"
conversations:
  - turns:
      - calls:
          - { tool: Write, input: { file_path: free.txt, content: "x\n" } }
          - { tool: Bash, input: { command: "echo x > asked.txt" } }
      - - when: "refused"
          say: "so be it"
        - say: "done"
"#;

fn bench(hooks: &str, rules: &str) -> Bench {
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("asks", &WORKFLOW.replace("HOOKS", hooks).replace("RULES", rules));
    fs::create_dir_all(bench.repo().join(".spinney/hooks")).unwrap();
    let answer = json!({"hookSpecificOutput": {"hookEventName": "PreToolUse", "permissionDecision": "ask", "permissionDecisionReason": "is that wise?"}});
    let hook = json!({"hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": format!("printf '%s' '{answer}'")}]}]}});
    fs::write(bench.repo().join(".spinney/hooks/ask.json"), hook.to_string()).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

fn asking() -> [Bench; 3] {
    [bench("", "ask: [\"Bash(echo:*)\"]"), bench("", "ask: [\"Bash(echo:*)\"], allow: [Bash]"), bench("hooks: [ask],", "allow: [Bash]")]
}

#[test]
fn what_must_be_asked_parks_the_step_and_everything_else_goes_on() {
    for bench in asking() {
        let (said, records) = bench.run("asks", SCRIPT, &[]);
        let said = said.code(3);
        assert!(said.out.contains("waits for a person") && said.out.contains("echo x > asked.txt"), "{}", said.out);
        assert_eq!(results(&records, "work").iter().map(|(tool, is_error, _)| (*tool, *is_error)).collect::<Vec<_>>(), [("Write", false)]);
        assert!(outcome(&records, "other")["succeeded"].is_object());
        assert!(outcome(&records, "work").is_null());
        // Asked again, it waits again; nothing that was answered is done twice.
        let run = bench.newest();
        bench.spinney(&["resume", &run.0]).code(3);
        let said = bench.spinney(&["resume", &run.0, "--on-ask", "allow"]).code(0);
        let records = bench.records(&run);
        assert_eq!(results(&records, "work").len(), 2, "{}", said.out);
        assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]), "asked.txt\nfree.txt\n");
    }
}

#[test]
fn a_no_is_told_to_the_model_and_the_call_is_not_made() {
    for bench in asking() {
        let (said, records) = bench.run("asks", SCRIPT, &["--on-ask", "deny"]);
        said.code(0);
        let all = results(&records, "work");
        assert!(all[1].1 && all[1].2.contains("refused"), "{all:?}");
        assert_eq!(outcome(&records, "work")["succeeded"]["output"], "so be it");
        assert!(records.iter().any(|record| matches!(&record.event, Event::QuestionAnswered { allowed: false, .. })));
        assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{}", bench.newest())]), "free.txt\n");
    }
}

#[test]
fn a_question_is_not_asked_where_a_deny_has_the_word() {
    let bench = bench("hooks: [ask],", "deny: [\"Bash(echo:*)\"]");
    let (said, records) = bench.run("asks", SCRIPT, &["--on-ask", "allow"]);
    said.code(0);
    assert!(results(&records, "work")[1].1);
    assert!(!records.iter().any(|record| matches!(&record.event, Event::QuestionAsked { .. })));
}

const RESOLVED: &str = r#"
version: 1
name: resolved
agents:
  worker: { system: "You work.", access: write }
  resolver: { system: "You settle.", access: write, permissions: { ask: ["Bash(echo:*)"] } }
steps:
  left: { agent: worker, prompt: "Write left." }
  right: { agent: worker, prompt: "Write right." }
  join: { needs: [left, right], merge: { from: [left, right], on_conflict: { agent: resolver, attempts: 1, then: fail } } }
"#;

const RESOLVES: &str = r#"
conversations:
  - agent: worker
    told: "Write (?<word>left|right)"
    turns:
      - calls: [{ tool: Write, input: { file_path: same.txt, content: "${word}\n" } }]
      - say: done
  - agent: resolver
    turns:
      - calls: [{ tool: Bash, input: { command: "echo both > same.txt" } }]
      - say: settled
"#;

#[test]
fn a_question_of_a_resolver_parks_the_run() {
    let bench = Bench::new().workflow("resolved", RESOLVED);
    let (said, _) = bench.run("resolved", RESOLVES, &[]);
    let said = said.code(3);
    assert!(said.out.contains("waits for a person") && said.out.contains("echo both"), "{}", said.out);
    let run = bench.newest();
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["resume", &run.0, "--on-ask", "allow"]).code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:same.txt")]), "both\n");
}
