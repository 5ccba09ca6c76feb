//! Results of earlier runs that stand for work: when they do, when they do not, and what that costs.
use crate::fixture::{Bench, outcome};
use spinney::event::{Event, Record};
use std::fs;

const WORKFLOW: &str = r#"
version: 1
name: cached
inputs: { word: { type: string, default: one } }
agents:
  coder: { system: "You code.", access: write }
  reader: { system: "You read." }
steps:
  work:
    agent: coder
    prompt: "Write it."
    scope: [made.txt]
    cache: { key: ["{{ inputs.word }}"], inputs: ["src/**"] }
  count: { run: "date +%N; cat src/*", cache: { key: ["{{ inputs.word }}"], inputs: [src] } }
  read: { agent: reader, prompt: "Read {{ steps.count.exit_code }}.", needs: [count], cache: { key: [reader] } }
outputs: { said: "{{ steps.read.output }}", count: "{{ steps.count.stdout }}" }
"#;

const SCRIPT: &str = r#"
conversations:
  - agent: coder
    turns: [{ calls: [{ tool: Write, input: { file_path: made.txt, content: "made\n" } }] }, { say: "made" }]
  - agent: reader
    turns: [{ say: "read" }]
"#;

fn bench() -> Bench {
    Bench::new().file("src/a.txt", "a\n").file("other.txt", "o\n").file(".gitignore", ".spinney/\n").commit("begin").workflow("cached", WORKFLOW)
}

fn hits(records: &[Record]) -> Vec<String> {
    let mut hits: Vec<String> =
        records.iter().filter_map(|record| if let Event::CacheHit { node, .. } = &record.event { Some(node.to_string()) } else { None }).collect();
    hits.sort();
    hits
}

fn replies(records: &[Record]) -> usize {
    records.iter().filter(|record| matches!(record.event, Event::ModelReplied { .. })).count()
}

fn commit(records: &[Record], node: &str) -> String {
    outcome(records, node)["succeeded"]["commit"].as_str().unwrap().to_owned()
}

#[test]
fn the_same_work_is_not_done_twice_and_other_work_is() {
    let bench = bench();
    let run = |more: &[&str]| {
        let (said, records) = bench.run("cached", SCRIPT, more);
        said.code(0);
        records
    };
    let first = run(&[]);
    assert_eq!((hits(&first), replies(&first)), (vec![], 3));
    let second = run(&[]);
    assert_eq!((hits(&second), replies(&second)), (["count", "read", "work"].map(str::to_owned).to_vec(), 0));
    assert_eq!(outcome(&second, "run")["succeeded"]["output"], outcome(&first, "run")["succeeded"]["output"]);
    assert_eq!(bench.git(&["show", &format!("{}:made.txt", commit(&second, "work"))]), "made\n");
    assert_ne!(commit(&second, "work"), commit(&first, "work"), "the commit is this run's own");
    // A key that differs, and a flag.
    assert_eq!(hits(&run(&["--input", "word=two"])), ["read"]);
    let anew = run(&["--no-cache"]);
    assert_eq!((hits(&anew), replies(&anew)), (vec![], 3));
    // A file that nobody named may change, and the change lands on what there is now; a file that is an input may not.
    fs::write(bench.repo().join("other.txt"), "other\n").unwrap();
    bench.git(&["commit", "-qam", "other"]);
    let moved = run(&[]);
    assert_eq!(hits(&moved), ["count", "read", "work"]);
    let counted = |records: &[Record]| outcome(records, "count")["succeeded"]["output"]["stdout"].clone();
    assert_eq!(counted(&moved), counted(&anew), "what was done anew is kept");
    assert_ne!(counted(&moved), counted(&second));
    assert_eq!(bench.git(&["show", &format!("{}:other.txt", commit(&moved, "work"))]), "other\n");
    fs::write(bench.repo().join("src/a.txt"), "b\n").unwrap();
    bench.git(&["commit", "-qam", "input"]);
    assert_eq!(hits(&run(&[])), ["read"]);
    bench.git(&["revert", "--no-edit", "HEAD"]);
    // A path that the change touched has another content now.
    fs::write(bench.repo().join("made.txt"), "by hand\n").unwrap();
    bench.git(&["add", "made.txt"]);
    bench.git(&["commit", "-qm", "made"]);
    assert_eq!(hits(&run(&[])), ["count", "read"]);
}

#[test]
fn a_result_that_is_keyed_by_what_is_checked_out_is_of_one_commit() {
    let diff = "version: 1\nname: diff\nsteps: { a: { run: 'git log --format=%s', cache: { key: ['{{ run.head }}'] } } }\n";
    let bench = Bench::new().workflow("diff", diff);
    let run = || {
        let (said, records) = bench.run("diff", "conversations: []", &[]);
        said.code(0);
        (hits(&records).len(), outcome(&records, "a")["succeeded"]["output"]["stdout"].as_str().unwrap().lines().next().unwrap().to_owned())
    };
    let first = run();
    assert_eq!((first.0, run()), (0, (1, first.1)));
    bench.git(&["commit", "-q", "--allow-empty", "-m", "on the same branch"]);
    assert_eq!(run(), (0, "on the same branch".to_owned()));
}

#[test]
fn a_result_hangs_on_the_environment_that_commands_get() {
    let flags = "version: 1\nname: flags\nsteps: { a: { run: 'echo \"$CFLAGS $UNKNOWN\"', cache: { key: [x] } } }\n";
    let bench = Bench::new().workflow("flags", flags).env("CFLAGS", "-O0");
    let run = |bench: &Bench| {
        let (said, records) = bench.run("flags", "conversations: []", &[]);
        said.code(0);
        (hits(&records).len(), outcome(&records, "a")["succeeded"]["output"]["stdout"].as_str().unwrap().trim().to_owned())
    };
    assert_eq!((run(&bench), run(&bench)), ((0, "-O0".to_owned()), (1, "-O0".to_owned())));
    let bench = bench.env("CFLAGS", "-O2");
    assert_eq!((run(&bench), run(&bench)), ((0, "-O2".to_owned()), (1, "-O2".to_owned())));
    assert_eq!(run(&bench.env("UNKNOWN", "it reaches no command")).0, 1);
}

#[test]
fn a_damaged_entry_is_a_miss_and_a_failure_is_never_kept() {
    let bench = bench();
    bench.run("cached", SCRIPT, &[]).0.code(0);
    for entry in fs::read_dir(bench.repo().join(".spinney/state/cache")).unwrap() {
        let path = entry.unwrap().path();
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replace("output", "outpux")).unwrap();
    }
    let (said, records) = bench.run("cached", SCRIPT, &[]);
    said.code(0);
    assert_eq!(hits(&records), Vec::<String>::new());
    assert_eq!(hits(&bench.run("cached", SCRIPT, &[]).1).len(), 3, "and is mended by the work that was done anew");

    let failing = "version: 1\nname: failing\nsteps: { a: { run: \"false\", cache: { key: [x] } } }\n";
    let bench = bench.workflow("failing", failing);
    for _ in 0..2 {
        let (said, records) = bench.run("failing", "conversations: []", &[]);
        said.code(1);
        assert_eq!(hits(&records), Vec::<String>::new());
    }
}

/// An agent whose skill a template chooses, and that may start another.
const CHOOSES: &str = r#"
version: 1
name: chooses
inputs: { lens: { type: string, default: tests } }
agents:
  lead: { system: "You lead.", tools: [Read, Agent] }
  helper: { system: "You help." }
steps:
  work: { agent: lead, prompt: "Look.", skills: ["look-{{ inputs.lens }}"], cache: { key: [fixed] } }
outputs: { said: "{{ steps.work.output }}" }
"#;

#[test]
fn a_result_hangs_on_the_skills_that_were_chosen_and_on_the_agents_that_may_be_started() {
    let skill = |words: &str| format!("---\nname: look-tests\ndescription: looks at tests\n---\n{words}\n");
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("begin").workflow("chooses", CHOOSES);
    let bench = bench.file(".spinney/skills/look-tests/SKILL.md", &skill("First."));
    let script = "conversations: [{ agent: lead, turns: [{ say: seen }] }]";
    let run = |bench: &Bench| {
        let (said, records) = bench.run("chooses", script, &[]);
        said.code(0);
        hits(&records).len()
    };
    assert_eq!((run(&bench), run(&bench)), (0, 1));
    let bench = bench.file(".spinney/skills/look-tests/SKILL.md", &skill("Second."));
    assert_eq!((run(&bench), run(&bench)), (0, 1), "another skill under the name that the template gave");
    let bench = bench.workflow("chooses", &CHOOSES.replace("You help.", "You help a lot."));
    assert_eq!((run(&bench), run(&bench)), (0, 1), "another sub-agent");
}
