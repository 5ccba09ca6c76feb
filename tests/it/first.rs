//! A run end to end: plan, parallel work in worktrees, a merge, a branch.
use crate::fixture::{Bench, outcome, results};

const WORKFLOW: &str = r#"
version: 1
name: pair
agents:
  planner: { system: "You plan.", access: read }
  coder: { system: "You code.", access: write }
schemas:
  plan:
    type: object
    required: [tasks]
    properties:
      tasks:
        type: array
        items: { type: object, required: [id, file], properties: { id: { type: string }, file: { type: string } } }
steps:
  plan:
    agent: planner
    prompt: "Plan it."
    output: { schema: plan }
  build:
    needs: [plan]
    for_each: { items: "{{ steps.plan.output.tasks }}", as: task, key: "{{ task.id }}" }
    agent: coder
    scope: ["{{ task.file }}"]
    prompt: "Write {{ task.file }}."
    verify: { run: ["test -s {{ task.file | sh }}"], attempts: 2 }
  land:
    needs: [build]
    merge: { from: build, verify: ["test -s a.txt && test -s b.txt"] }
outputs: { landed: "{{ steps.land.output.landed }}" }
"#;

const SCRIPT: &str = r#"
conversations:
  - agent: planner
    told: "Plan it"
    turns:
      - calls: [{ tool: Read, input: { file_path: README.md } }, { tool: Glob, input: { pattern: "*" } }]
      - say: '{"tasks": [{"id": "a", "file": "a.txt"}, {"id": "b", "file": "b.txt"}]}'
  - agent: coder
    told: "Write (?<file>[a-z.]+)\\."
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}", content: "one\n" } }]
      - calls: [{ tool: Bash, input: { command: "echo two >> ${file}; echo no > other.txt" } }]
      - - when: "."
          calls: [{ tool: Bash, input: { command: "rm other.txt && cat ${file}" } }]
      - say: "wrote ${file}"
"#;

#[test]
fn a_plan_is_worked_out_in_parallel_joined_and_lands_on_a_branch() {
    let bench = Bench::new().workflow("pair", WORKFLOW);
    let (said, records) = bench.run("pair", SCRIPT, &[]);
    let said = said.code(0);
    let run = bench.newest();
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:a.txt")]), "one\ntwo\n");
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:b.txt")]), "one\ntwo\n");
    assert_eq!(results(&records, "build/a").len(), 3);
    assert!(said.out.contains("joined build/a"), "{}", said.out);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["landed"], serde_json::json!(["build/a", "build/b"]), "{}", said.out);
    assert_eq!(bench.git(&["status", "--porcelain", "--", "a.txt", "b.txt"]), "");
}
