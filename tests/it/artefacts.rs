//! Outputs that a run keeps as files.
use crate::fixture::{Bench, outcome, results};
use spinney::event::Event;
use std::fs;

const WORKFLOW: &str = r#"
version: 1
name: kept
agents: { writer: { system: "You report." } }
schemas: { report: { type: object, required: [n], properties: { n: { type: integer } } } }
steps:
  report: { agent: writer, prompt: go, output: { schema: report, file: report.json } }
  log: { run: "seq 1 30000", output: { file: all.txt } }
  each: { for_each: { items: ["a", "b c"], as: it }, run: "echo {{ it | sh }}", output: { file: each.txt } }
  named: { for_each: { items: ["x", "src/y"], as: it }, run: "echo {{ it | sh }}", output: { file: "named-{{ it }}.txt" } }
"#;

const SCRIPT: &str = "conversations: [{ agent: writer, turns: [{ say: '{\"n\": 1}' }] }]";

#[test]
fn outputs_are_kept_whole_one_a_node_and_listed() {
    let bench = Bench::new().file("a", "a").file(".gitignore", ".spinney/\n").commit("begin").workflow("kept", WORKFLOW);
    bench.run("kept", SCRIPT, &[]).0.code(0);
    let run = bench.newest().0;
    let folder = bench.repo().join(".spinney/state/runs").join(&run).join("artifacts");
    let read = |name: &str| fs::read_to_string(folder.join(name)).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(read("report.json"), "{\n  \"n\": 1\n}\n");
    let log = read("all.txt");
    assert!(log.starts_with("1\n2\n") && log.ends_with("\n30000") && log.lines().count() == 30_000, "{} lines", log.lines().count());
    assert_eq!((read("each.a.txt"), read("named-x.txt"), read("named-src-y.txt")), ("a".to_owned(), "x".to_owned(), "src/y".to_owned()));
    assert_eq!(fs::read_dir(&folder).unwrap().filter(|entry| entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("each.")).count(), 2);
    let listed = bench.spinney(&["show", &run, "--artifacts"]).code(0).out;
    assert!(listed.contains("report.json  13 bytes, of report\n") && listed.contains(&folder.join("named-x.txt").display().to_string()), "{listed}");
    assert_eq!(bench.git(&["status", "--porcelain"]), "");
}

#[test]
fn a_name_is_never_a_way_out_nor_anothers() {
    for (name, why) in [("../out", "is no name of a file"), ("/tmp/out", "is no name of a file"), (".hidden", "hidden"), ("", "is no name of a file")] {
        let workflow = "version: 1\nname: bad\ninputs: { name: { type: string } }\nsteps: { a: { run: \"true\", output: { file: \"{{ inputs.name }}\" } } }\n";
        let bench = Bench::new().file("a", "a").commit("begin").workflow("bad", workflow);
        let (said, records) = bench.run("bad", "conversations: []", &["--input", &format!("name={name}")]);
        said.code(1);
        let message = outcome(&records, "a")["failed"]["message"].to_string();
        assert!(message.contains(why), "{message}");
    }
    let both = "version: 1\nname: both\ninputs: { n: { type: string, default: x } }\nsteps:\n  a: { run: \"true\", output: { file: x } }\n  b: { run: \"true\", output: { file: \"{{ inputs.n }}\" }, needs: [a] }\n";
    let bench = Bench::new().file("a", "a").commit("begin").workflow("both", both);
    let (said, records) = bench.run("both", "conversations: []", &[]);
    said.code(1);
    assert!(outcome(&records, "b")["failed"]["message"].as_str().unwrap().contains("`output.file` is `x`, which is that of a"));
}

#[test]
fn two_hundred_long_results_fit_into_a_prompt_and_the_whole_of_each_can_be_read() {
    let workflow = r#"
version: 1
name: many
defaults: { max_parallel: 8 }
agents: { judge: { system: "You judge." } }
steps:
  many:
    for_each: { items: "{{ range(end=200) }}", as: n }
    run: "head -c 50000 /dev/zero | tr '\\0' x; echo end-{{ n | sh }}"
    workspace: none
  judge:
    agent: judge
    needs: [many]
    prompt: "Judge:\n{% for r in steps.many.results %}## {{ r.key }}\n{{ r.output.stdout }}\n{% endfor %}That is all."
"#;
    let script = r#"
window: 200000
conversations:
  - agent: judge
    told: "the rest of result many/150: artefact (?<path>[^\\]]+)\\]"
    turns: [{ calls: [{ tool: Read, input: { file_path: "${path}" } }] }, { say: "judged" }]
"#;
    let bench = Bench::new().file("a", "a").commit("begin").workflow("many", workflow);
    let (said, records) = bench.run("many", script, &[]);
    said.code(0);
    let told = records.iter().find_map(|record| if let Event::AgentBriefed { brief, .. } = &record.event { Some(brief.message.text()) } else { None }).unwrap();
    assert!((150_000..260_000).contains(&told.len()), "{}", told.len());
    assert_eq!(told.matches("## ").count(), 200);
    assert!(told.contains("## 0\nxxx") && told.contains("## 199\nxxx") && told.trim_end().ends_with("That is all."));
    let (tool, is_error, text) = results(&records, "judge")[0];
    assert!(tool == "Read" && !is_error && text.contains("xxxx"), "{text}");
}

/// Each round, each call and each ending has a file of its own, and nothing is written over.
#[test]
fn what_stands_inside_of_something_keeps_a_file_of_its_own() {
    let inner = "version: 1\nname: inner\nsteps: { note: { run: echo inner, output: { file: note.md } } }\n";
    let workflow = r#"
version: 1
name: inside
inputs: { taken: { type: string, default: taken.md } }
steps:
  lp:
    loop: { until: "{{ loop.iteration == 2 }}", max: 3 }
    steps:
      note: { run: "echo {{ loop.iteration | sh }}", output: { file: round.md } }
      log: { run: "echo log {{ loop.iteration | sh }}", output: { file: "log-{{ run.workflow }}.md" } }
  call: { workflow: inner }
  taken: { run: echo taken, output: { file: "{{ inputs.taken }}" } }
  bad: { needs: [lp, call, taken], run: exit 1 }
on_failure:
  why: { run: echo why, output: { file: failure.md } }
  taken: { run: echo again, output: { file: taken.md } }
"#;
    let workflow = workflow.replace("{{ run.workflow }}", "{{ run.id }}");
    let bench = Bench::new().workflow("inner", inner).workflow("inside", &workflow);
    let (said, records) = bench.run("inside", "conversations: []", &[]);
    said.code(1);
    let run = bench.newest().0;
    let folder = bench.repo().join(".spinney/state/runs").join(&run).join("artifacts");
    let mut kept: Vec<(String, String)> = fs::read_dir(&folder)
        .unwrap()
        .map(|entry| (entry.as_ref().unwrap().file_name().to_string_lossy().replace(&run, "RUN"), fs::read_to_string(entry.unwrap().path()).unwrap()))
        .collect();
    kept.sort();
    let expected = [
        ("failure.md", "why"),
        ("log-RUN.lp.2.md", "log 2"),
        ("log-RUN.md", "log 1"),
        ("note.call.md", "inner"),
        ("round.lp.1.md", "1"),
        ("round.lp.2.md", "2"),
        ("taken.md", "taken"),
        ("taken.on_failure.md", "again"),
    ];
    assert_eq!(kept, expected.map(|(name, text)| (name.to_owned(), text.to_owned())), "{records:?}");
}

#[test]
fn a_name_that_another_item_has_is_found_before_anybody_is_asked_and_not_tried_again() {
    let workflow = r#"
version: 1
name: same
inputs: { day: { type: string, default: today } }
agents: { writer: { system: "You report." } }
steps:
  each:
    for_each: { items: [a, b], as: it, max_parallel: 1, needs: "{{ [] }}" }
    agent: writer
    prompt: "Report {{ it }}."
    retry: { max: 3, on: [any], delay: 1ms }
    output: { file: "{{ inputs.day }}.txt" }
"#;
    let bench = Bench::new().file("a", "a").commit("begin").workflow("same", workflow);
    let said = bench.spinney(&["validate", "same"]).code(0);
    assert!(said.out.contains("W008") && said.out.contains("{{ it }}"), "{said:?}");
    let (said, records) = bench.run("same", "conversations: [{ turns: [{ say: done }] }]", &[]);
    said.code(1);
    let replies = records.iter().filter(|record| matches!(record.event, Event::ModelReplied { .. })).count();
    let tried = records.iter().filter(|record| matches!(&record.event, Event::RetryScheduled { .. })).count();
    assert_eq!((replies, tried), (1, 0));
    assert!(outcome(&records, "each/b")["failed"]["message"].as_str().unwrap().contains("which is that of each/a"), "{records:?}");
}

#[test]
fn a_command_that_ran_out_of_time_leaves_what_it_had_said() {
    let workflow = r#"
version: 1
name: slow
steps:
  slow: { run: "echo begun; exec sleep 1000", timeout: 1s, allow_failure: true }
  read: { needs: [slow], if: "{{ steps.slow.exit_code != 0 }}", run: "echo {{ steps.slow.output_tail | sh }}" }
outputs: { said: "{{ steps.read.stdout }}" }
"#;
    let bench = Bench::new().file("a", "a").commit("begin").workflow("slow", workflow);
    let (said, records) = bench.run("slow", "conversations: []", &[]);
    said.code(0);
    let slow = &outcome(&records, "slow")["failed"];
    assert_eq!((&slow["kind"], &slow["output"]["exit_code"], &slow["output"]["stdout"]), (&"timeout".into(), &124.into(), &"begun\n".into()), "{slow}");
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "begun\n\n");
}
