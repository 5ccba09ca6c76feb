//! Records that are lost from the end of a journal: `doctor --repair` lets the run go on from those that are there, and whoever was at work
//! begins anew, since his files may be from after them.
use super::{doctor, truncate};
use crate::{
    fixture::{Bench, Said, outcome},
    invariants,
};
use spinney::event::{Event, Record, RunId};
use std::{fs, path::PathBuf};

/// Everything whose files or refs could be from after the last record: an agent whose commands add up, a fan that is joined, a command,
/// what is asked.
const WORKFLOW: &str = r#"
version: 1
name: cut
agents: { coder: { system: "You code.", access: write, permissions: { ask: ["Bash(touch:*)"] } } }
steps:
  first: { agent: coder, prompt: "Add first." }
  each: { needs: [first], for_each: { items: [a, b], as: it }, agent: coder, prompt: "Add {{ it }}." }
  land: { needs: [each], merge: { from: each } }
  count: { needs: [land], run: "echo more >> count.txt; LC_ALL=C cat *.txt" }
  last: { needs: [count], agent: coder, prompt: "Touch last." }
outputs: { counted: "{{ steps.count.stdout }}" }
"#;
const SCRIPT: &str = r#"
conversations:
  - told: "Add (?<it>\\w+)\\."
    turns:
      - calls: [{ tool: Bash, input: { command: "echo of ${it} >> ${it}.txt" } }]
      - calls: [{ tool: Write, input: { file_path: "${it}.md", content: "of ${it}\n" } }]
      - say: "${it} is there"
  - told: "Touch last"
    turns:
      - calls: [{ tool: Bash, input: { command: "echo of last >> last.txt" } }]
      - calls: [{ tool: Bash, input: { command: "touch end" } }]
      - say: "it is there"
"#;
const FILES: &str = "README.md\na.md\na.txt\nb.md\nb.txt\nend\nfirst.md\nfirst.txt\nlast.txt\n";

fn dir(bench: &Bench, run: &RunId) -> PathBuf {
    bench.repo().join(".spinney/state/runs").join(&run.0)
}

/// Takes all records away from this one on.
fn cut(bench: &Bench, run: &RunId, from: u64) {
    let journal = rusqlite::Connection::open(dir(bench, run).join("journal.db")).unwrap();
    assert!(journal.execute("DELETE FROM record WHERE seq >= ?1", [i64::try_from(from).unwrap()]).unwrap() > 0);
}

fn repair(bench: &Bench, what: &str) {
    assert!(doctor(bench, &["--repair"]).contains("mended "), "{what}");
    let said = doctor(bench, &[]);
    assert!(said.lines().all(|line| line.starts_with("fine ") || line.starts_with("warn ")), "{what}: {said}");
}

/// Asserts that a run goes on to the end that it had come to without a loss.
fn goes_on(bench: &Bench, run: &RunId, what: &str) -> (String, Vec<Record>) {
    let resume = || bench.spinney(&["resume", &run.0, "--on-ask", "allow"]);
    let mut said = resume();
    if said.err.contains("reference already exists") {
        // The branch is of records that are gone, and somebody may have gone on from it.
        assert!(said.code == 1 && said.err.contains("delete or rename the branch"), "{what}: {said:?}");
        bench.git(&["branch", "-q", "-D", &format!("spinney/{run}")]);
        said = Said { err: said.err, ..resume() };
    }
    assert_eq!(said.code, 0, "{what}: {said:?}");
    let records = bench.records(run);
    invariants::check(&records, &bench.repo());
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["counted"], "of a\nof b\nmore\nof first\n", "{what}");
    assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{run}")]), FILES, "{what}");
    for (file, text) in [("first.txt", "of first\n"), ("a.txt", "of a\n"), ("b.txt", "of b\n"), ("last.txt", "of last\n")] {
        assert_eq!(bench.git(&["show", &format!("spinney/{run}:{file}")]), text, "{what}: {file}");
    }
    (said.err, records)
}

/// A run that has been asked something in its last step, and was left at rest.
fn parked() -> (Bench, RunId) {
    let bench = Bench::new().workflow("cut", WORKFLOW);
    bench.run("cut", SCRIPT, &["--on-ask", "park"]).0.code(3);
    let run = bench.newest();
    assert!(dir(&bench, &run).join("rested").exists());
    (bench, run)
}

/// Takes something from a run.
type Loss<'a> = &'a dyn Fn(&Bench, &RunId);

#[test]
fn whoever_was_at_work_begins_anew_after_each_kind_of_loss() {
    let last_call = |records: &[Record]| records.iter().rposition(|record| matches!(record.event, Event::ToolStarted { .. })).unwrap() as u64;
    let kinds: [(&str, Loss<'_>); 4] = [
        ("the end", &|bench, run| cut(bench, run, last_call(&bench.records(run)) + 1)),
        ("the end, by what is left of a journal", &|bench, run| {
            let journal = dir(bench, run).join("journal.db");
            let before = fs::read(&journal).unwrap();
            bench.spinney(&["resume", &run.0, "--on-ask", "park"]).code(3);
            for log in ["journal.db-wal", "journal.db-shm"] {
                let _ = fs::remove_file(dir(bench, run).join(log));
            }
            fs::write(&journal, before).unwrap();
        }),
        ("the mark", &|bench, run| fs::remove_file(dir(bench, run).join("mark")).unwrap()),
        ("half of the mark", &|bench, run| truncate(&dir(bench, run).join("mark"))),
    ];
    for (what, lose) in kinds {
        let (bench, run) = parked();
        lose(&bench, &run);
        assert!(bench.spinney(&["resume", &run.0]).code(1).err.contains("spinney doctor --repair"), "{what}");
        repair(&bench, what);
        let (said, records) = goes_on(&bench, &run, what);
        assert!(said.contains("`last` starts its attempt over: the machine went down or records are lost"), "{what}: {said}");
        let attempts = records.iter().filter(|record| matches!(&record.event, Event::StepStarted { node, .. } if node.to_string() == "last")).count();
        assert_eq!(attempts, 2, "{what}");
    }
}

#[test]
fn wherever_the_end_is_lost_the_run_comes_to_the_same() {
    let bench = Bench::new().workflow("cut", WORKFLOW);
    let (said, whole) = bench.run("cut", SCRIPT, &["--on-ask", "allow"]);
    said.code(0);
    let run = bench.newest();
    goes_on_from_all(&bench, &run, whole.len() as u64);
}

fn goes_on_from_all(bench: &Bench, run: &RunId, records: u64) {
    for from in (1..records).step_by(3) {
        let what = format!("from record {from} on");
        let copy = bench.copied("cut");
        cut(&copy, run, from);
        repair(&copy, &what);
        goes_on(&copy, run, &what);
    }
}
