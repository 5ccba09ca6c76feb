//! `cancel`: what is under way is stopped, `finally` runs and `on_failure` does not, and the run counts as cancelled, whoever
//! carries it out.
mod files;

use crate::{
    fixture::{Bench, outcome},
    invariants,
    recovery::life::nothing_is_left,
};
use serde_json::{Value, json};
use spinney::{clock::Timestamp, engine::Inbox, event::Event};
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
finally: { bye: { run: "echo bye {{ run.failure | default(value='') | sh }} >> EFFECTS" } }
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
    let said = bench.spinney(&["doctor"]);
    assert!(said.out.contains(&format!("it is carried out now: process {} has it since", program.id())), "{}", said.out);
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

/// A run that waits, and whose worktree, items, loop and orchestrator are under way; `finally` asks too.
#[test]
fn a_run_that_nothing_can_be_done_with_any_more_is_ended_as_it_stands() {
    let cases = [
        ("workflows/waits.yaml", None, "the run began from `.spinney/workflows/waits.yaml`, which is not there any more"),
        ("workflows/waits.yaml", Some("steps: ["), ".spinney/workflows/waits.yaml:1"),
        ("prompts/lead.md", None, "prompts/lead.md"),
    ];
    for (file, text_now, why) in cases {
        let bench = waits().file(".spinney/prompts/lead.md", "You lead.\n");
        let text = fs::read_to_string(bench.repo().join(".spinney/workflows/waits.yaml")).unwrap().replace("\"You lead.\"", "prompts/lead.md");
        let bench = bench.workflow("waits", &text);
        bench.run("waits", ASKS, &["--unconfined"]).0.code(3);
        let run = bench.newest();
        let broken = bench.repo().join(".spinney").join(file);
        match text_now {
            Some(text) => fs::write(broken, text).unwrap(),
            None => fs::remove_file(broken).unwrap(),
        }
        let before = bench.records(&run);
        let said = bench.spinney(&["cancel", &run.0, "--unconfined"]).code(2);
        assert!(said.err.contains(why) && said.err.contains("is not called off") && said.err.contains("--as-it-stands"), "{}", said.err);
        assert_eq!((bench.records(&run), state(&bench, &run.0)), (before.clone(), json!("parked")), "the word that failed stands");
        let said = bench.spinney(&["doctor"]);
        assert!(said.out.contains("it cannot be gone on with: ") && said.out.contains(&format!("spinney cancel {run} --as-it-stands")), "{}", said.out);
        let said = bench.spinney(&["cancel", &run.0, "--by", "ann", "--as-it-stands"]).code(0);
        assert!(said.out.contains("is cancelled as it stood"), "{}", said.out);
        let records = bench.records(&run);
        assert_eq!(records[..before.len()], before);
        invariants::check(&records, &bench.repo());
        nothing_is_left(&bench, &run);
        assert_eq!(outcome(&records, "run")["failed"]["message"], "cancelled by ann");
        assert_eq!(outcome(&records, "gates/a")["failed"]["kind"], "cancelled");
        assert_eq!(outcome(&records, "polish")["failed"]["kind"], "cancelled");
        assert_eq!(outcome(&records, "each"), json!({"skipped": "run_ending"}));
        assert_eq!(state(&bench, &run.0), "cancelled");
        assert_eq!(fs::read_to_string(bench.path("effects")).unwrap(), "done\n");
        assert!(!bench.spinney(&["doctor"]).out.contains("cannot be gone on with"));
        // With its files back it is as good an origin as any, and the records are those of its plan.
        let bench = bench.file(".spinney/prompts/lead.md", "You lead.\n").workflow("waits", &text);
        let said = bench.spinney(&["resume", &run.0]).code(2);
        assert!(said.err.contains("it is over"), "{}", said.err);
        bench.spinney(&["retry", &run.0, "--unconfined"]).code(3);
        assert_eq!(fs::read_to_string(bench.path("effects")).unwrap(), "done\n", "what was done is done again");
        bench.spinney(&["clean", "--drop", &run.0]).code(0);
    }
}

#[test]
fn a_run_without_its_secret_is_ended_as_it_stands() {
    let flow = "version: 1\nname: keys\nsecrets: [TOKEN]\nsteps: { ask: { approve: { message: \"Yes?\" } } }\n";
    let bench = Bench::new().workflow("keys", flow).env("TOKEN", "a-long-enough-secret");
    bench.run("keys", "conversations: []\n", &[]).0.code(3);
    let run = bench.newest();
    let bench = bench.env("TOKEN", "");
    let said = bench.spinney(&["cancel", &run.0]).code(2);
    assert!(said.err.contains("the environment has no TOKEN") && said.err.contains("--as-it-stands"), "{}", said.err);
    assert!(bench.spinney(&["doctor"]).out.contains("the environment has no TOKEN"));
    bench.spinney(&["cancel", &run.0, "--as-it-stands"]).code(0);
    assert_eq!(state(&bench, &run.0), "cancelled");
}

#[test]
fn what_agents_had_in_their_files_is_kept_of_a_run_that_is_ended_as_it_stands() {
    let flow = "version: 1\nname: keys\nsecrets: [TOKEN]\nagents: { coder: { system: \"You code.\", access: write, permissions: { ask: [\"Bash(touch:*)\"] } } }\n\
                steps: { work: { agent: coder, prompt: \"Work.\" } }\n";
    let script = "conversations: [{ turns: [{ calls: [{ tool: Write, input: { file_path: work.txt, content: half } }] }, { calls: [{ tool: Bash, input: { command: \"touch more\" } }] }, { say: done }] }]\n";
    for known in [true, false] {
        let bench = Bench::new().workflow("keys", flow).env("TOKEN", "a-long-enough-secret");
        bench.run("keys", script, &["--unconfined"]).0.code(3);
        let run = bench.newest();
        let bench = if known { bench } else { bench.env("TOKEN", "") };
        let said = bench.spinney(&["cancel", &run.0, "--as-it-stands"]).code(0);
        let records = bench.records(&run);
        invariants::check(&records, &bench.repo());
        let kept = records.iter().find_map(|record| if let Event::CheckpointKept { commit, .. } = &record.event { Some(commit) } else { None });
        // No commit may hold a value that nobody here knows.
        assert_eq!((kept.is_some(), said.err.contains("stay where they are")), (known, !known), "{said:?}");
        if let Some(commit) = kept {
            assert_eq!(bench.git(&["show", &format!("{commit}:work.txt")]), "half");
            assert!(bench.spinney(&["show", &run.0]).out.contains(&commit.0[..10]));
        }
    }
}

/// A kill between the letter and its being taken up leaves it: the list of runs tells of it.
#[test]
fn a_word_that_waits_to_be_taken_up_is_told_by_the_list_of_runs() {
    let bench = waits();
    bench.run("waits", ASKS, &["--unconfined"]).0.code(3);
    let run = bench.newest();
    let dir = bench.repo().join(format!(".spinney/state/runs/{run}"));
    Inbox::of(&dir).post(&Inbox::cancel("ann", Timestamp(1))).unwrap();
    let said = bench.spinney(&["runs"]).code(0);
    assert!(said.out.contains("to be cancelled by ann"), "{}", said.out);
    fs::remove_file(bench.repo().join(".spinney/workflows/waits.yaml")).unwrap();
    let said = bench.spinney(&["cancel", &run.0]).code(2);
    assert!(said.err.contains("somebody has called it off before"), "{}", said.err);
    assert!(Inbox::of(&dir).is_cancelling(), "the word of somebody else is gone");
}

#[test]
fn an_answer_that_cannot_be_taken_up_now_is_said_to_be_kept() {
    let bench = Bench::new().workflow("asks", "version: 1\nname: asks\nsteps: { ask: { approve: { message: \"Yes?\" } } }\n");
    bench.run("asks", "conversations: []\n", &[]).0.code(3);
    let (run, file) = (bench.newest(), bench.repo().join(".spinney/workflows/asks.yaml"));
    let text = fs::read_to_string(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let said = bench.spinney(&["approve", &run.0]).code(2);
    assert!(said.err.contains("what was said is kept") && said.err.contains(&format!("spinney resume {run}")), "{}", said.err);
    fs::write(&file, text).unwrap();
    bench.spinney(&["resume", &run.0]).code(0);
}
