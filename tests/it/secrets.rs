//! Secrets: where a value gets, and that it is nowhere else. The search goes over everything that a run leaves.
use crate::{
    driver::Line,
    fixture::{Bench, outcome, results},
    telemetry::{Collector, spinney},
};
use serde_json::json;
use spinney::event::Event;
use std::{fs, path::Path};

const VALUE: &str = "s3cr3t/va+lue=97";
/// Its value as `base64` and as a URL write it.
const ENCODED: &[&str] = &["czNjcjN0L3ZhK2x1ZT05N", "s3cr3t%2Fva%2Blue%3D97", "NjcjN0L3ZhK2x1ZT05N"];

/// One agent that prints the secret in every way it can, a command that fails with it, and steps that must not have it.
const WORKFLOW: &str = r#"
version: 1
name: leaky
secrets: [TOKEN]
agents:
  coder: { system: "You code.", access: write, hooks: [parrot] }
schemas:
  count: { type: object, required: [n], properties: { n: { type: integer } } }
steps:
  work:
    agent: coder
    prompt: "Do it."
    env: { TOKEN: "{{ secrets.TOKEN }}" }
    output: { schema: count }
  fails: { run: "echo \"no: $TOKEN\" >&2; echo $TOKEN; exit 3", env: { TOKEN: "{{ secrets.TOKEN }}" }, allow_failure: true }
  split: { run: "head -c 16375 /dev/zero | tr '\\0' x; echo $TOKEN; echo end", env: { TOKEN: "{{ secrets.TOKEN }}" } }
  without: { run: "echo \"[$TOKEN]\"" }
outputs: { said: "{{ steps.split.stdout }}", none: "{{ steps.without.stdout }}" }
"#;

const SCRIPT: &str = r#"
conversations:
  - agent: coder
    turns:
      - calls:
          - { tool: Bash, input: { command: "echo $TOKEN; printf %s $TOKEN | base64; printf x%s $TOKEN | base64; printf %s $TOKEN > kept.out; echo s3cr3t%2Fva%2Blue%3D97; test ${#TOKEN} -eq 16 && echo whole" } }
      - calls: [{ tool: Read, input: { file_path: kept.out } }, { tool: Grep, input: { pattern: "s3cr", path: kept.out, output_mode: content, -o: true } }]
      - calls: [{ tool: Write, input: { file_path: note.txt, content: "it is s3cr3t/va+lue=97" } }, { tool: Edit, input: { file_path: kept.out, old_string: "va+lue", new_string: "va+lue" } }]
      - calls: [{ tool: Nothing, input: { x: "s3cr3t/va+lue=97" } }]
      - say: '{"n": "s3cr3t/va+lue=97"}'
      - say: '{"n": 1}'
"#;

/// Repeats what it is told in its reply and into a file.
const HOOK: &str = r#"{"hooks": {"PostToolUse": [{"matcher": "Bash|Read", "hooks": [
  {"type": "command", "command": "cat > heard; cp heard \"$CLAUDE_PROJECT_DIR/.spinney/heard\"; cat heard >&2; rm heard; exit 2"}]}]}}"#;

fn bench() -> Bench {
    let bench = Bench::new().file(".gitignore", ".spinney/\n*.out\n").commit("begin").file(".spinney/hooks/parrot.json", HOOK).workflow("leaky", WORKFLOW);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench.env("TOKEN", VALUE)
}

/// Fails where the value, or a form of it, stands in some bytes.
fn absent(what: &str, bytes: &[u8]) {
    for needle in ENCODED.iter().chain(&[VALUE]) {
        let found = bytes.windows(needle.len()).position(|window| window == needle.as_bytes());
        assert!(
            found.is_none(),
            "{what} holds {needle}: {}",
            String::from_utf8_lossy(&bytes[found.unwrap().saturating_sub(200)..]).chars().take(400).collect::<String>()
        );
    }
}

fn absent_below(folder: &Path) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() { absent_below(&path) } else { absent(&path.display().to_string(), &fs::read(&path).unwrap()) }
    }
}

#[test]
fn a_value_is_in_nothing_that_a_run_leaves() {
    let collector = Collector::start();
    let bench = bench().env("OTEL_EXPORTER_OTLP_ENDPOINT", &collector.base);
    let script = bench.script(SCRIPT);
    let output = spinney(&bench, &["run", "leaky", "--script", &script, "--json"]);
    let bodies = collector.bodies();
    assert!(output.status.success(), "{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let records = bench.records(&bench.newest());
    assert!(!bodies.is_empty() && !output.stdout.is_empty());
    absent("standard output", &output.stdout);
    absent("standard error", &output.stderr);
    for body in &bodies {
        absent("a trace", body);
    }
    absent_below(&bench.repo().join(".spinney/state"));
    absent("what a hook heard", &fs::read(bench.repo().join(".spinney/heard")).unwrap());
    for words in [&["show"][..], &["show", "--json"], &["show", "--step", "work"], &["diff"], &["runs"]] {
        let said = bench.spinney(words);
        absent(&words.join(" "), said.out.as_bytes());
        absent(&words.join(" "), said.err.as_bytes());
    }
    // It was there to be hidden, and it was whole where it was asked for and nowhere else.
    let answers = results(&records, "work");
    let bash = answers.iter().find(|(tool, ..)| *tool == "Bash").unwrap();
    assert!(bash.2.contains("***TOKEN***\n***TOKEN***") && bash.2.contains("whole"), "{}", bash.2);
    assert!(answers.iter().any(|(tool, _, text)| *tool == "Read" && text.contains("***TOKEN***")), "{answers:?}");
    assert!(outcome(&records, "fails")["failed"]["message"].as_str().unwrap().contains("***TOKEN***"));
    let ended = outcome(&records, "run");
    assert!(ended["succeeded"]["output"]["said"].as_str().unwrap().ends_with("x***TOKEN***\nend\n"));
    assert_eq!(ended["succeeded"]["output"]["none"], "[]\n");
    assert!(records.iter().any(|record| matches!(&record.event, Event::MessageAdded { message, .. } if message.text().contains("***TOKEN***"))));
}

/// A command, an agent and its sub-agent that each write the value into files, as text, as a name and as a link.
const WRITERS: &str = r#"
version: 1
name: keep
secrets: [TOKEN]
agents:
  coder: { system: "You code.", access: write, tools: [Bash, Agent], max_depth: 1, max_turns: 20 }
  second: { system: "You help.", access: write, tools: [Bash] }
steps:
  w: { run: "printf %s $TOKEN > f.txt", scope: ["**"], env: { TOKEN: "{{ secrets.TOKEN }}" }, allow_failure: true }
  agent: { agent: coder, prompt: "Do it.", needs: [{ step: w, on: done }], env: { TOKEN: "{{ secrets.TOKEN }}" }, allow_failure: true }
"#;

const WRITING: &str = r#"
conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Bash, input: { command: "printf %s $TOKEN > .env; mkdir -p s3cr3t; touch $TOKEN; ln -s $TOKEN link; echo fine > fine.txt" } }]
      - calls: [{ tool: Bash, input: { command: "printf %s $TOKEN | base64 > encoded; cat .env fine.txt" } }]
      - calls: [{ tool: Agent, input: { subagent_type: second, description: "help", prompt: "Help." } }]
      - say: done
      - say: done
      - say: done
      - say: done
  - agent: second
    turns:
      - calls: [{ tool: Bash, input: { command: "printf %s $TOKEN > theirs" } }]
      - say: done
      - say: done
      - say: done
      - say: done
"#;

#[test]
fn work_that_holds_a_value_is_in_no_object_of_the_repository() {
    let bench = Bench::new().file("a", "a").commit("begin").workflow("keep", WRITERS).env("TOKEN", VALUE);
    let (_, records) = bench.run("keep", WRITING, &[]);
    let failure = outcome(&records, "w")["failed"].clone();
    assert_eq!(failure["kind"], "policy");
    assert!(failure["message"].as_str().unwrap().contains("`f.txt` holds the value of the secret `TOKEN`"), "{failure}");
    let failure = outcome(&records, "agent")["failed"].clone();
    assert_eq!(failure["kind"], "policy", "{failure}");
    let said = failure["message"].as_str().unwrap();
    assert!([".env", "encoded", "link", "***TOKEN***"].iter().all(|path| said.contains(&format!("`{path}` holds the value"))), "{said}");
    let checkpoints = bench.git(&["for-each-ref", "--format=%(refname)", "refs/spinney"]);
    assert!(checkpoints.contains("/checkpoint"), "{checkpoints}");
    let objects = bench.git(&["cat-file", "--batch-all-objects", "--batch", "--buffer"]);
    assert!(objects.contains("Checkpoint of") && objects.contains("fine.txt"));
    absent("an object", objects.as_bytes());
}

#[test]
fn what_is_missing_or_cannot_be_hidden_is_said_before_anything_begins() {
    let bench = Bench::new()
        .file("a", "a")
        .commit("begin")
        .workflow("two", "version: 1\nname: two\nsecrets: [FIRST_KEY, OTHER_KEY]\nsteps: { a: { run: \"true\" } }\n");
    let script = bench.script("conversations: []");
    let run = |bench: &Bench| bench.spinney(&["run", "two", "--script", &script]);
    let said = run(&bench).code(2);
    assert!(said.err.contains("the environment has no FIRST_KEY, OTHER_KEY") && said.err.contains("hint:"), "{}", said.err);
    for (value, why) in [("ab7", "is shorter than 4 bytes"), ("13371", "is a few digits"), ("steps", "stands in the workflow's own text")] {
        let bench = Bench::new()
            .file("a", "a")
            .commit("begin")
            .workflow("two", "version: 1\nname: two\nsecrets: [FIRST_KEY, OTHER_KEY]\nsteps: { a: { run: \"true\" } }\n");
        let bench = bench.env("FIRST_KEY", "long-enough").env("OTHER_KEY", value);
        let script = bench.script("conversations: []");
        let said = bench.spinney(&["run", "two", "--script", &script]).code(2);
        assert!(said.err.contains("`OTHER_KEY`") && said.err.contains(why) && !said.err.contains(&format!("`{value}`")), "{}", said.err);
        assert!(!bench.repo().join(".spinney/state/runs").exists());
    }
}

#[test]
fn a_resumed_run_needs_its_secrets_again_and_says_where_one_has_changed() {
    let workflow = "version: 1\nname: later\nsecrets: [TOKEN]\nagents: { a: { system: x, access: write, permissions: { ask: [Bash] } } }\nsteps:\n  w: { agent: a, prompt: go, env: { TOKEN: \"{{ secrets.TOKEN }}\" } }\n";
    let script = "conversations: [{ agent: a, turns: [{ calls: [{ tool: Bash, input: { command: \"echo $TOKEN | rev\" } }] }, { say: done }] }]";
    let bench = Bench::new().file("a", "a").commit("begin").workflow("later", workflow).env("TOKEN", VALUE);
    bench.run("later", script, &[]).0.code(3);
    let bench = bench.env("TOKEN", "");
    let missing = bench.spinney(&["resume", "--on-ask", "allow"]).code(2);
    assert!(missing.err.contains("the environment has no TOKEN"), "{}", missing.err);
    let bench = bench.env("TOKEN", "another-value");
    let resumed = bench.spinney(&["resume", "--on-ask", "allow"]).code(0);
    assert!(resumed.err.contains("warning: the secret `TOKEN` has another value") && !resumed.err.contains("another-value"), "{}", resumed.err);
    let records = bench.records(&bench.newest());
    assert_eq!(results(&records, "w")[0].2.trim(), "eulav-rehtona");
}

#[test]
fn no_half_of_a_value_is_left_by_a_cut() {
    let workflow = "version: 1\nname: cut\nsecrets: [TOKEN]\nagents: { coder: { system: x, access: write, permissions: { ask: [Bash] } } }\n\
                    steps:\n  w: { agent: coder, prompt: go }\n";
    // The value stands across the 2,000th character of a line, the last byte of what is shown, and the last of a question.
    let long = |before: usize| format!("{}{VALUE}\nlast\n", "y".repeat(before));
    let bench = Bench::new().file("long.txt", &long(1_990)).file(".gitignore", ".spinney/\n").commit("begin").workflow("cut", workflow).env("TOKEN", VALUE);
    let echoed = json!({"command": format!("echo {} {}", long(8 * 1024 - 24), "z".repeat(20_000))});
    let drive = bench.drive(move |sent, _| match sent.turn() {
        0 => Line::call("Edit", json!({"file_path": "long.txt", "old_string": "last", "new_string": "LAST"})),
        1 => Line::call("Bash", echoed.clone()),
        _ => Line::say("done"),
    });
    let (_, records) = drive.run("cut");
    assert!(results(&records, "w")[0].2.contains("LAST"));
    let asked =
        records.iter().find_map(|record| if let Event::QuestionAsked { question, .. } = &record.event { Some(question.clone()) } else { None }).unwrap();
    assert!(asked.contains("bytes are not shown here") && asked.len() < 20_000, "{}", asked.len());
    for record in &records {
        let text = serde_json::to_string(record).unwrap();
        assert!(!text.contains(&VALUE[..6]), "{}", &text[..text.len().min(3_000)]);
    }
}
