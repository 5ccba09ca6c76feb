//! What agents had in their files when a run was called off is kept, whoever carries the run out and wherever that dies.
use crate::{
    driver::Drive,
    fixture::{Bench, outcome},
    invariants,
    recovery::life::{Death, carry, nothing_is_left},
};
use spinney::{
    clock::Clock,
    engine::{Ended, EngineError, Inbox},
    event::{Event, Record, RunId},
};
use std::{collections::BTreeMap, fs, io::Read as _, process::Command};

const WORKFLOW: &str = r#"
version: 1
name: files
agents:
  chief: { system: "You lead.", access: write, tools: [Agent, Write] }
  hand: { system: "You work.", access: write, permissions: { ask: ["Bash(touch:*)"] } }
steps:
  own: { agent: hand, prompt: "Write own." }
  led: { agent: chief, prompt: "Lead." }
  round:
    loop: { max: 2, until: "true" }
    steps: { inner: { agent: hand, prompt: "Write inner." } }
  calm: { agent: hand, prompt: "Ask." }
  all: { needs: [own, led, round, calm], merge: { from: [own, led, round, calm] } }
finally: { bye: { run: "echo bye" } }
"#;
const SCRIPT: &str = r#"
conversations:
  - agent: chief
    turns:
      - calls: [{ tool: Write, input: { file_path: lead.txt, content: "lead\n" } }]
      - calls: [{ tool: Agent, input: { description: "a part", prompt: "Write part.", subagent_type: hand } }]
  - agent: hand
    told: "Write (?<file>\\w+)\\."
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}.txt", content: "of ${file}\n" } }]
      - calls: [{ tool: Bash, input: { command: "touch asked" } }]
  - agent: hand
    told: "Ask\\."
    turns: [{ calls: [{ tool: Bash, input: { command: "touch asked" } }] }]
"#;

fn bench() -> Bench {
    Bench::new().workflow("files", WORKFLOW)
}

/// Runs until everybody waits for an answer.
fn waiting(drive: &Drive<'_>) {
    let (ended, _) = drive.run("files");
    assert!(matches!(&ended, Ended::Parked(asked) if asked.len() == 4), "{ended:?}");
}

/// Returns what is kept: the ref's name below the run's, and the files that its commit adds.
fn kept(bench: &Bench, run: &RunId) -> BTreeMap<String, String> {
    let listed = bench.git(&["for-each-ref", "--format=%(refname)", &format!("refs/spinney/{run}")]);
    let names = listed.lines().filter(|name| name.ends_with("/checkpoint"));
    let files = |name: &str| bench.git(&["diff", "--name-only", "main", name]).trim().replace('\n', " ");
    names.map(|name| (name.trim_start_matches(&format!("refs/spinney/{run}/")).to_owned(), files(name))).collect()
}

fn is_as_called_off(bench: &Bench, run: &RunId, records: &[Record]) {
    invariants::check(records, &bench.repo());
    nothing_is_left(bench, run);
    for node in ["own", "led", "round", "calm", "run"] {
        assert_eq!(outcome(records, node)["failed"]["kind"], "cancelled", "{node}");
    }
    let ends = records.iter().filter(|record| matches!(&record.event, Event::StepFinished { node, .. } if node.step.0 == "bye"));
    assert_eq!(ends.count(), 1, "`finally` is done once");
    let expected = [("led.1", "lead.txt"), ("own.1", "own.txt"), ("inner_", "inner.txt"), ("led__agent-", "lead.txt part.txt")];
    let kept = kept(bench, run);
    let with_files: BTreeMap<&String, &String> = kept.iter().filter(|(_, files)| !files.is_empty()).collect();
    for (name, file) in expected {
        assert!(with_files.iter().any(|(kept, files)| kept.starts_with(name) && *files == file), "{name}: {kept:?}");
    }
    assert_eq!(with_files.len(), expected.len(), "{kept:?}");
    let recorded = records.iter().filter(|record| matches!(record.event, Event::CheckpointKept { .. })).count();
    assert_eq!(recorded, expected.len(), "each is recorded once");
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(with_files.keys().all(|name| shown.contains(&format!("refs/spinney/{run}/{name}"))), "{shown}");
}

/// What a first attempt has committed is kept when the ref of the result becomes the second's.
#[test]
fn the_work_of_an_attempt_that_fails_after_its_commit_is_kept() {
    let bench = Bench::new();
    let refs = bench.repo().join(".git/refs/spinney").display().to_string();
    // A ref below the place of the result's, which cannot be made while it stands.
    let head = bench.git(&["rev-parse", "HEAD"]).trim().to_owned();
    let workflow = format!(
        r#"
version: 1
name: twice
steps:
  make:
    scope: [made.txt]
    run: |
      folder="{refs}/"{{{{ run.id | sh }}}}/make; mkdir -p "$folder"
      if test -e "$HOME/again"; then rm -r "$folder/result"; echo second > made.txt
      else touch "$HOME/again"; mkdir "$folder/result"; echo {head} > "$folder/result/other"; echo first > made.txt; fi
    retry: {{ max: 1, on: [any], delay: 0s }}
"#
    );
    let bench = bench.workflow("twice", &workflow);
    bench.spinney(&["run", "twice", "--unconfined"]).code(0);
    let run = bench.newest();
    let records = bench.records(&run);
    let captured: Vec<_> =
        records.iter().filter_map(|record| if let Event::WorkCaptured { commit, .. } = &record.event { Some(commit) } else { None }).collect();
    let [first, second] = captured[..] else { panic!("{captured:?}") };
    assert_eq!(bench.git(&["show", &format!("{first}:made.txt")]), "first\n");
    invariants::check(&records, &bench.repo());
    let at = |name: &str| bench.git(&["rev-parse", &format!("refs/spinney/{run}/{name}")]).trim().to_owned();
    assert_eq!((at("make.1/checkpoint"), at("make/result")), (first.0.clone(), second.0.clone()));
    bench.git(&["merge", "--quiet", &format!("spinney/{run}")]);
    let said = bench.spinney(&["clean", "--older-than", "0s"]).code(0).out;
    assert!(said.contains("make.1/checkpoint"), "{said}");
}

#[test]
fn the_files_of_agents_that_wait_are_kept_and_named() {
    let bench = bench();
    waiting(&bench.drive_script(SCRIPT));
    let run = bench.newest();
    bench.spinney(&["cancel", &run.0, "--by", "ann", "--unconfined"]).code(0);
    is_as_called_off(&bench, &run, &bench.records(&run));
    // A run that follows keeps them too where the attempt holds: it does not, since it did not end of itself.
    assert!(bench.spinney(&["show", &run.0, "own"]).code(0).out.contains("what it had in its files"));
    let said = bench.spinney(&["clean", "--older-than", "0s"]).code(0).out;
    assert!(said.contains("is on no branch but the run's own"), "{said}");
}

/// Lives of one record each, from the letter to the end.
#[test]
fn a_process_that_dies_at_any_record_of_the_calling_off_changes_nothing() {
    for death in [Death::BeforeTheNext, Death::Untold] {
        let bench = bench();
        let drive = bench.drive_script(SCRIPT).contained();
        waiting(&drive);
        let run = bench.newest();
        let dir = bench.repo().join(".spinney/state/runs").join(&run.0);
        Inbox::of(&dir).post(&Inbox::cancel("ann", Clock::system().now())).unwrap();
        let mut lives = 0;
        loop {
            lives += 1;
            match carry(drive.prepared("files"), (1, death)).1 {
                Ok(Ended::Finished(_)) => break,
                Err(EngineError::Journal(_)) if matches!(bench.records(&run).last().unwrap().event, Event::RunFinished { .. }) => break,
                Err(EngineError::Journal(_)) => assert!(lives < 100, "it gets nowhere"),
                other => panic!("{other:?}"),
            }
        }
        let records = bench.records(&run);
        let begun = records.iter().position(|record| matches!(record.event, Event::RunCancelled { .. })).unwrap();
        let own = records[begun..].iter().filter(|record| !matches!(record.event, Event::RunResumed { .. })).count();
        assert!(own >= 12 && lives + 1 >= own, "{lives} lives for {own} records");
        is_as_called_off(&bench, &run, &records);
    }
}

#[test]
fn the_files_of_an_agent_at_work_in_another_process_are_kept() {
    let bench = Bench::new();
    let fifo = bench.path("fifo").display().to_string();
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let workflow = "version: 1\nname: busy\nagents: { hand: { system: x, access: write } }\nsteps: { work: { agent: hand, prompt: go } }\n";
    let waits = format!("#!/bin/sh\necho begun > {fifo}\nsleep 1000\n");
    let bench = bench.executable("wait.sh", &waits).commit("wait").workflow("busy", workflow);
    let script = bench.script("conversations: [{ turns: [{ calls: [{ tool: Bash, input: { command: \"echo half > half.txt; ./wait.sh\" } }] }] }]\n");
    let mut program = bench.program(&["run", "busy", "--json", "--unconfined", "--script", &script]);
    let mut begun = [0; 6];
    fs::OpenOptions::new().read(true).write(true).open(&fifo).unwrap().read_exact(&mut begun).unwrap();
    let run = bench.newest();
    bench.spinney(&["cancel", &run.0]).code(0);
    assert_eq!(program.wait().unwrap().code(), Some(1));
    invariants::check(&bench.records(&run), &bench.repo());
    nothing_is_left(&bench, &run);
    assert_eq!(bench.git(&["show", &format!("refs/spinney/{run}/work.1/checkpoint:half.txt")]), "half\n");
}
