//! Git killed under the program, as a system does that has no memory left: that is no answer, and nobody's work fails by it. What is
//! left locked by a git of ours is known, and free again; what somebody else has locked stays.
//!
//! One call of a few is taken; with `SPINNEY_EVERY=1` it is each of them, as `.ci/kill` has it.
use crate::{
    fixture::{Bench, Said},
    invariants,
};
use spinney::event::{Event, Outcome};
use std::{
    fs,
    path::{Path, PathBuf},
};

const WORKFLOW: &str = r#"
version: 1
name: small
agents: { coder: { system: "You code.", access: write, tools: [Agent, Bash, Read, Write] }, hand: { system: "You help.", description: "Helps.", access: write } }
steps:
  lead: { agent: coder, prompt: "Lead." }
  build: { for_each: { items: [a, b], as: it }, agent: coder, prompt: "Build {{ it }}." }
  join: { needs: [build, lead], merge: { from: [build, lead], verify: "test -e a.txt", on_conflict: { agent: coder, attempts: 1, then: fail } } }
  told: { needs: [join], run: "cat same.txt > told.txt", scope: ["told.txt"] }
"#;
const SCRIPT: &str = r#"
conversations:
  - told: "Lead"
    turns:
      - calls: [{ tool: Agent, input: { description: "part", prompt: "Help out.", subagent_type: hand } }]
      - say: "Led."
  - told: "Help out"
    turns:
      - calls: [{ tool: Bash, input: { command: "echo help > help.txt" } }]
      - say: "Helped."
  - told: "Build (?<it>.)"
    turns:
      - calls: [{ tool: Bash, input: { command: "echo ${it} > ${it}.txt; echo ${it} > same.txt" } }]
      - say: "Built."
  - turns:
      - calls: [{ tool: Write, input: { file_path: same.txt, content: "both\n" } }]
      - say: "Settled."
"#;

/// A repository with a git in its `PATH` that is killed at some of its calls once somebody has written which: `FIRST LAST before`, or
/// `after` it did what it was to do.
fn with_killer(bench: Bench) -> Bench {
    let path = std::env::var("PATH").unwrap();
    let home = bench.path("home").display().to_string();
    let git = format!(
        "#!/bin/sh\n\
         [ -e '{home}/kills' ] || PATH='{path}' exec git \"$@\"\n\
         n=1; until mkdir \"{home}/calls/$n\" 2>/dev/null; do n=$((n+1)); done\n\
         read first last when < '{home}/kills'\n\
         [ $n -lt $first ] || [ $n -gt $last ] || [ $when != before ] || kill -9 $$\n\
         PATH='{path}' git \"$@\"; code=$?\n\
         [ $n -lt $first ] || [ $n -gt $last ] || kill -9 $$\n\
         exit $code\n"
    );
    let bench = bench.executable("../bin/git", &git);
    let bin = bench.path("bin").display().to_string();
    bench.env("PATH", &format!("{bin}:{path}"))
}

/// Runs a command in which git is killed at these calls, and says at how many it could have been.
fn killed(bench: &Bench, (first, last, when): (usize, usize, &str), arguments: &[&str]) -> (Said, usize) {
    let (home, calls) = (bench.path("home"), bench.path("home/calls"));
    fs::create_dir(&calls).unwrap();
    fs::write(home.join("kills"), format!("{first} {last} {when}\n")).unwrap();
    let said = bench.spinney(arguments);
    fs::remove_file(home.join("kills")).unwrap();
    let called = fs::read_dir(&calls).unwrap().count();
    fs::remove_dir_all(calls).unwrap();
    (said, called)
}

/// What git keeps for a moment only.
fn locks(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    entries
        .flat_map(|path| {
            let is_lock = path.extension().is_some_and(|extension| extension == "lock") || path.ends_with("index.spinney");
            if path.is_dir() { locks(&path) } else { Vec::from_iter(is_lock.then_some(path)) }
        })
        .collect()
}

/// Everything that is left is as where no git was killed.
fn is_as_left_alone(bench: &Bench, at: &str) {
    assert_eq!(bench.git(&["ls-tree", "--name-only", "HEAD"]), "README.md\na.txt\nb.txt\nhelp.txt\nkept.txt\nsame.txt\ntold.txt\n", "{at}");
    assert_eq!(bench.git(&["show", "HEAD:told.txt", "HEAD:same.txt"]), "both\nboth\n", "{at}");
    assert_eq!((bench.git(&["status", "--porcelain", "-uno"]).as_str(), locks(&bench.repo().join(".git"))), ("", Vec::new()), "{at}");
    assert_eq!(bench.git(&["for-each-ref", "--format=%(refname)"]), "refs/heads/main\n", "{at}");
}

fn none_failed(bench: &Bench, at: &str) {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    for record in &records {
        let failed = matches!(&record.event, Event::StepFinished { outcome: Outcome::Failed(_), .. } | Event::RunFinished { outcome: Outcome::Failed(_) });
        assert!(!failed, "{at}: {record:?}");
    }
}

const RUN: [&str; 2] = ["run", "small"];

/// How many calls further the next one is that is killed; an odd number, so that each way to be killed has its turn.
fn step() -> usize {
    std::env::var("SPINNEY_EVERY").map_or(9, |every| every.parse().unwrap())
}

#[test]
fn a_git_that_is_killed_once_changes_nothing() {
    let template = Bench::new().file("kept.txt", "kept\n").commit("kept").workflow("small", WORKFLOW);
    let script = template.script(SCRIPT);
    let run = [&RUN[..], &["--script", &script]].concat();
    let mut at = 1;
    loop {
        let bench = with_killer(template.copied("killed-once"));
        // What it did is done in every other case.
        let when = if at % 2 == 0 { "before" } else { "after" };
        let (mut left, mut said_at) = (Some(at), String::new());
        for command in [&run[..], &["land"], &["clean", "--older-than", "0s"]] {
            let newest = if command == ["land"] { bench.newest().0 } else { String::new() };
            let arguments: Vec<&str> = command.iter().copied().chain((!newest.is_empty()).then_some(newest.as_str())).collect();
            let (said, called) = killed(&bench, (left.unwrap_or(0), left.unwrap_or(0), when), &arguments);
            said_at = format!("call {at}, {when}, of {arguments:?}: {said:?}");
            assert_eq!(said.code, 0, "{said_at}");
            if command == run {
                none_failed(&bench, &said_at);
            }
            left = left.and_then(|left| left.checked_sub(called)).filter(|left| *left > 0);
        }
        is_as_left_alone(&bench, &said_at);
        if left.is_some() {
            break;
        }
        at += step();
    }
    assert!(at > 60, "there were only {at} calls");
}

#[test]
fn a_git_that_is_killed_again_and_again_stops_the_run_and_fails_nobody() {
    let template = Bench::new().file("kept.txt", "kept\n").commit("kept").workflow("small", WORKFLOW);
    let script = template.script(SCRIPT);
    let run = [&RUN[..], &["--script", &script]].concat();
    let mut at = 1;
    loop {
        let bench = with_killer(template.copied("killed-again"));
        let (said, called) = killed(&bench, (at, usize::MAX >> 1, "before"), &run);
        if called < at {
            break;
        }
        let said_at = format!("from call {at} on: {said:?}");
        let has_begun = spinney::journal::RunDir::list(&spinney::journal::RunDir::state(&bench.repo())).is_ok_and(|runs| !runs.is_empty());
        if has_begun {
            none_failed(&bench, &said_at);
        }
        if said.code != 0 {
            assert!(said.err.contains("a signal ended it, again and again") && said.err.contains("hint: "), "{said_at}");
            bench.spinney(if has_begun { &["resume"] } else { &run }).code(0);
        }
        let run = bench.newest().0;
        let (said, _) = killed(&bench, (at, usize::MAX >> 1, "before"), &["land", &run]);
        if said.code != 0 {
            assert!(said.err.contains("a signal ended it, again and again") && said.err.contains("hint: "), "{said:?}");
            bench.spinney(&["land", &run]).code(0);
        }
        bench.spinney(&["clean", "--older-than", "0s"]).code(0);
        is_as_left_alone(&bench, &said_at);
        at += step();
    }
    assert!(at > 20, "there were only {at} calls");
}
