//! Every file that a run keeps in its folder and beside its worktrees, each damaged in one way after the other: either the run ends as the
//! undamaged one, or what is wrong is said and it is not gone on with. It never succeeds without its work.
use super::{
    doctor,
    table::{Scene, flip},
};
use crate::{fixture::Bench, invariants};
use spinney::event::Event;
use std::{
    fs,
    path::{Path, PathBuf},
};

const WORKFLOW: &str = r#"
version: 1
name: every
agents:
  hand: { system: "You work.", access: write, permissions: { ask: ["Bash(touch:*)"] } }
  lead: { system: "You lead.", access: write, tools: [Read, Agent] }
  reader: { system: "You read.", access: read, permissions: { ask: ["Bash(cat:*)"] } }
steps:
  first: { run: "echo first > first.txt", scope: ["first.txt"] }
  work: { needs: [first], agent: hand, prompt: "Work on one.", workspace: { setup: ["echo made > made.txt"] } }
  led: { needs: [first], agent: lead, prompt: "Lead." }
  joined: { needs: [work, led], merge: { from: [work, led] } }
  look: { needs: [first], agent: reader, prompt: "Look.", output: { file: seen } }
"#;
const SCRIPT: &str = r#"
conversations:
  - agent: hand
    told: "on (?<file>\\w+)"
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}.txt", content: "work\n" } }]
      - calls: [{ tool: Bash, input: { command: "touch more-${file}.txt" } }]
      - say: "worked"
  - agent: lead
    turns:
      - calls: [{ tool: Agent, input: { description: "two", prompt: "Work on two.", subagent_type: hand } }]
      - say: "led"
  - agent: reader
    turns:
      - calls: [{ tool: Bash, input: { command: "cat README.md" } }]
      - say: "looked"
"#;
/// What the branch of the undamaged run has.
const FILES: &str = "README.md\nfirst.txt\nmore-one.txt\nmore-two.txt\none.txt\ntwo.txt\n";

fn scene() -> Scene {
    let bench = Bench::new().workflow("every", WORKFLOW);
    let (said, records) = bench.run("every", SCRIPT, &["--unconfined"]);
    said.code(3);
    let asks = records.iter().filter(|record| matches!(record.event, Event::QuestionAsked { .. })).count();
    assert_eq!(asks, 3, "one of them is not there yet");
    Scene::of(bench)
}

/// Returns the files of the run's folder, and those of the cache that are no worktree's, sorted.
fn files(scene: &Scene) -> Vec<PathBuf> {
    let mut found = Vec::new();
    below(&scene.dir(), &|_| true, &mut found);
    // Beside the folder of notes stand the worktrees.
    below(
        &scene.bench.path("cache"),
        &|folder| !folder.parent().is_some_and(|above| above.join(".engine").is_dir()) || folder.ends_with(".engine"),
        &mut found,
    );
    found.sort();
    found
}

fn below(folder: &Path, enters: &dyn Fn(&Path) -> bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        match entry.file_type().unwrap() {
            kind if kind.is_dir() && enters(&path) => below(&path, enters, found),
            kind if kind.is_file() => found.push(path),
            _ => {}
        }
    }
}

/// Returns the file of that name of somebody else: of the same kind where there is one.
fn other(file: &Path, all: &[PathBuf]) -> Option<PathBuf> {
    let content = fs::read(file).ok()?;
    let differs = |other: &&PathBuf| *other != file && fs::read(other).is_ok_and(|text| text != content);
    let is_of_kind = |other: &&PathBuf| other.file_name() == file.file_name();
    all.iter().filter(differs).find(is_of_kind).or_else(|| all.iter().find(differs)).cloned()
}

/// Damages each file, and holds that nothing is passed over.
fn hold(damage: &str, apply: impl Fn(&Path, &[PathBuf])) {
    let scene = scene();
    let (bench, run) = (&scene.bench, &scene.run.0);
    let all = files(&scene);
    assert!(all.len() > 15, "{all:?}");
    let goes_on = |case: &str| {
        let said = bench.spinney(&["resume", run, "--unconfined", "--on-ask", "allow"]);
        if said.code != 0 {
            assert!(said.code == 1 && said.err.contains("hint: "), "{case}: {said:?}");
            return false;
        }
        let records = bench.records(&scene.run);
        invariants::check(&records, &bench.repo());
        assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{run}")]), FILES, "{case}: {said:?}");
        for (name, content) in [("one", "work\n"), ("more-two", ""), ("first", "first\n")] {
            assert_eq!(bench.git(&["show", &format!("spinney/{run}:{name}.txt")]), content, "{case}: {said:?}");
        }
        true
    };
    let mut refused = 0;
    for file in &all {
        let case = format!("{damage} {}", file.display());
        scene.restore();
        apply(file, &all);
        let found = doctor(bench, &[]);
        if goes_on(&case) {
            continue;
        }
        refused += 1;
        assert!(found.contains("broken "), "{case}: it does not go on, and nothing is named: {found}");
        doctor(bench, &["--repair"]);
        goes_on(&case);
    }
    assert!(refused < all.len() / 2, "{refused} of {}", all.len());
}

#[test]
fn a_flipped_byte_in_any_file_of_a_run_is_never_passed_over() {
    hold("flipped", |file, _| {
        if fs::metadata(file).is_ok_and(|found| found.len() > 0) {
            flip(file);
        }
    });
}

#[test]
fn no_file_of_a_run_is_missed_in_silence_where_it_is_empty() {
    hold("emptied", |file, _| fs::write(file, "").unwrap());
}

#[test]
fn no_file_of_a_run_is_missed_in_silence_where_it_is_gone() {
    hold("removed", |file, _| fs::remove_file(file).unwrap());
}

#[test]
fn no_file_of_a_run_is_taken_for_another_s() {
    hold("replaced", |file, all| {
        if let Some(other) = other(file, all) {
            fs::copy(other, file).unwrap();
        }
    });
}
