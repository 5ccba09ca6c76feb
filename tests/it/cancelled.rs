//! `cancel`: what is under way is stopped, `finally` runs and `on_failure` does not, and the run counts as cancelled, whoever
//! carries it out.
mod files;

use crate::{
    fixture::{Bench, outcome},
    invariants,
    recovery::life::nothing_is_left,
};
use serde_json::{Value, json};
use spinney::event::Event;
use std::{fs, io::Read as _, process::Command};

const WAITS: &str = r#"
version: 1
name: waits
agents: { lead: { system: "You lead." }, coder: { system: "You code." } }
orchestrator: { agent: lead, may: [ask], wake: [start] }
steps:
  done: { run: "echo done >> EFFECTS" }
  gates: { needs: [done], for_each: { items: [a, b], as: it }, approve: { message: "Go on with {{ it }}?" } }
  polish:
    needs: [done]
    loop: { max: 2, until: "true" }
    steps: { gate: { approve: { message: "Polish?" } } }
  mend: { needs: [{ step: gates, on: failure }], run: "echo mend >> EFFECTS" }
  each: { needs: [gates], for_each: { items: [x], as: it }, agent: coder, prompt: "Do {{ it }}." }
on_failure: { sorry: { run: "echo sorry >> EFFECTS" } }
finally: { bye: { run: "echo bye {{ run.failure | sh }} >> EFFECTS" } }
"#;
const ASKS: &str = r#"
conversations:
  - agent: lead
    turns:
      - calls: [{ tool: AskPerson, input: { question: "Left or right?" } }]
      - say: "Well."
  - agent: coder
    turns: [{ say: "Done." }]
"#;

fn waits() -> Bench {
    let bench = Bench::new();
    let text = WAITS.replace("EFFECTS", &bench.path("effects").display().to_string());
    bench.workflow("waits", &text)
}

fn state(bench: &Bench, run: &str) -> Value {
    let runs: Value = serde_json::from_str(&bench.spinney(&["runs", "--json"]).code(0).out).unwrap();
    runs.as_array().unwrap().iter().find(|row| row["run"] == run).unwrap()["state"].clone()
}

#[test]
fn a_run_that_nobody_carries_out_is_ended_by_the_command() {
    let bench = waits();
    bench.run("waits", ASKS, &["--unconfined"]).0.code(3);
    let run = bench.newest();
    let said = bench.spinney(&["cancel", &run.0, "--by", "ann", "--unconfined"]).code(0);
    assert!(said.out.contains(&format!("Run {run}: cancelled")) && said.out.contains("cancelled by ann"), "{}", said.out);
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    nothing_is_left(&bench, &run);
    assert_eq!(outcome(&records, "run")["failed"]["kind"], "cancelled");
    assert_eq!(outcome(&records, "gates/a")["failed"]["kind"], "cancelled");
    assert_eq!(outcome(&records, "polish")["failed"]["kind"], "cancelled");
    assert_eq!(outcome(&records, "mend"), json!({"skipped": "run_ending"}));
    assert_eq!(fs::read_to_string(bench.path("effects")).unwrap(), "done\nbye cancelled by ann\n");
    assert_eq!(state(&bench, &run.0), "cancelled");
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains("cancelled"));
    let said = bench.spinney(&["cancel", &run.0]).code(2);
    assert!(said.err.contains("it is over, and cancelled"), "{}", said.err);
    // What was stopped can be done again.
    bench.spinney(&["retry", &run.0, "--unconfined"]).code(3);
    let again = bench.newest();
    assert_ne!(again, run);
    assert_eq!(fs::read_to_string(bench.path("effects")).unwrap(), "done\nbye cancelled by ann\n", "what was done is done again");
    assert_eq!(outcome(&bench.records(&again), "done"), outcome(&records, "done"));
}

#[test]
fn a_run_in_another_process_is_stopped_there() {
    let bench = Bench::new();
    let fifo = bench.path("fifo").display().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let effects = bench.path("effects").display().to_string();
    let yaml = format!(
        "version: 1\nname: slow\nsteps:\n  slow: {{ run: \"echo begun > {fifo}; sleep 1000; echo over >> {effects}\", retry: {{ max: 3, on: [any] }} }}\n  after: {{ needs: [slow], run: \"true\" }}\nfinally: {{ bye: {{ run: \"echo bye >> {effects}\" }} }}\n"
    );
    let bench = bench.workflow("slow", &yaml);
    let mut program = bench.program(&["run", "slow", "--json", "--unconfined"]);
    let mut begun = [0; 6];
    fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap().read_exact(&mut begun).unwrap();
    assert_eq!(&begun, b"begun\n");
    let run = bench.newest();
    let said = bench.spinney(&["retry", &run.0]).code(1);
    assert!(said.err.contains(&format!("process {} has it since", program.id())) && said.err.contains("spinney cancel"), "{}", said.err);
    let said = bench.spinney(&["cancel", &run.0]).code(0);
    assert!(said.out.contains("is cancelled"), "{}", said.out);
    assert_eq!(program.wait().unwrap().code(), Some(1));
    let records = bench.records(&run);
    invariants::check(&records, &bench.repo());
    nothing_is_left(&bench, &run);
    assert_eq!(fs::read_to_string(&effects).unwrap(), "bye\n");
    assert!(records.iter().any(|record| matches!(record.event, Event::RunCancelled { .. })));
    assert_eq!(outcome(&records, "after"), json!({"skipped": {"upstream": {"step": "slow"}}}));
}
