//! Steps inside of steps: loops, called workflows, endings and combinations, with what ends them early, through every death.
use crate::fixture::Bench;
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, NodeId, Outcome, Record, SkipCause},
};

const INNER: &str = r#"version: 1
name: inner
inputs: { what: { type: string, required: true }, ends: { type: boolean, default: true } }
steps:
  say: { matrix: { n: [1, 2] }, run: "echo {{ inputs.what | sh }} {{ matrix.n | sh }}" }
  check: { needs: [say], run: "test {{ inputs.ends | sh }} = true" }
outputs: { said: "{{ [r.output.stdout for r in steps.say.results] }}" }
on_failure: { sorry: { run: "echo sorry {{ inputs.what | sh }}: {{ run.failure | sh }}" } }
finally: { bye: { run: "echo bye {{ inputs.what | sh }}" } }
"#;

const OUTER: &str = r#"version: 1
name: outer
steps:
  make: { run: "echo 0 > n", scope: [n] }
  grow:
    needs: [make]
    loop: { until: "{{ steps.look.stdout | trim == '3' }}", max: 5 }
    steps:
      bump: { run: "echo $(( $(cat n) + 1 )) > n", scope: [n] }
      look: { needs: [bump], run: "cat n; echo {{ loop.iteration | sh }} >&2" }
  call: { needs: [grow], for_each: { items: [a, b], as: x, max_parallel: 1 }, workflow: inner, with: { what: "{{ x }}" } }
outputs:
  n: "{{ steps.grow.output.look.stdout | trim }}"
  iterations: "{{ steps.grow.output.iterations }}"
  said: "{{ [r.output.said for r in steps.call.results] | flatten }}"
finally: { always: { run: "cat n" } }
"#;

fn bench(outer: &str) -> Bench {
    Bench::new().workflow("inner", INNER).workflow("outer", outer)
}

fn outcome<'a>(records: &'a [Record], shown: &str) -> Option<&'a Outcome> {
    records.iter().rev().find_map(|record| match &record.event {
        Event::StepFinished { node, outcome } if node.to_string() == shown => Some(outcome),
        _ => None,
    })
}

fn output(records: &[Record], shown: &str) -> Value {
    let outcome = outcome(records, shown).unwrap_or_else(|| panic!("{shown} has not ended"));
    outcome.success().unwrap_or_else(|| panic!("{shown}: {outcome:?}")).output.as_ref().clone()
}

fn failure(records: &[Record], shown: &str) -> String {
    outcome(records, shown).and_then(Outcome::failure).unwrap_or_else(|| panic!("{shown} has not failed")).message.clone()
}

fn begun(records: &[Record]) -> Vec<String> {
    let node = |record: &Record| if let Event::StepStarted { node, .. } = &record.event { Some(node.to_string()) } else { None };
    records.iter().filter_map(node).collect()
}

fn run(outer: &str) -> (Outcome, Vec<Record>) {
    let bench = bench(outer);
    let (ended, records) = bench.drive(|_, _| panic!("no model is asked")).run("outer");
    match ended {
        Ended::Finished(outcome) => (outcome, records),
        other => panic!("{other:?}"),
    }
}

#[test]
fn loops_calls_and_endings_run_inside_one_journal() {
    let (outcome, records) = run(OUTER);
    let result = outcome.success().expect("it succeeded").output.as_ref();
    assert_eq!(*result, json!({"n": "3", "iterations": 3, "said": ["a 1\n", "a 2\n", "b 1\n", "b 2\n"]}));
    assert_eq!(output(&records, "grow#3.look")["stderr"], "3\n");
    assert_eq!(output(&records, "call/b#1.finally#1.bye")["stdout"], "bye b\n");
    assert_eq!(output(&records, "finally#1.always")["stdout"], "3\n", "an ending stands on the work");
    let begun = begun(&records);
    assert!(!begun.iter().any(|node| node.contains("on_failure")), "{begun:?}");
    let place = |shown: &str| begun.iter().position(|node| node == shown).unwrap_or_else(|| panic!("{shown} of {begun:?}"));
    assert!(place("call/a#1.finally#1.bye") < place("call/b#1.say/1"), "one call at a time");
}

#[test]
fn a_run_with_frames_ends_the_same_after_a_death_at_any_record() {
    let (_, clean) = run(OUTER);
    let ends = |records: &[Record]| {
        let mut ends: Vec<(String, Value)> = Vec::new();
        for record in records {
            if let Event::StepFinished { node, outcome } = &record.event {
                let mut output = outcome.success().map(|success| success.output.as_ref().clone()).unwrap_or_default();
                if let Some(commit) = output.pointer_mut("/bump/commit") {
                    // Commits name their run.
                    *commit = json!("a commit");
                }
                ends.push((node.to_string(), json!([outcome.word(), output])));
            }
        }
        ends.sort_by(|a, b| a.0.cmp(&b.0));
        ends
    };
    let last = clean.len() as u64 - 2;
    for at in (1..last).step_by(5) {
        let bench = bench(OUTER);
        let drive = bench.drive(|_, _| panic!("no model is asked"));
        let (first, _) = drive.run_until("outer", |record| record.seq == at);
        if matches!(first, Ended::Finished(_)) {
            continue;
        }
        let (ended, records) = drive.resume("outer");
        assert!(matches!(&ended, Ended::Finished(Outcome::Succeeded(_))), "after {at}: {ended:?}");
        assert_eq!(ends(&records), ends(&clean), "after {at}");
    }
}

#[test]
fn a_failure_inside_fails_what_holds_it_and_the_endings_run() {
    let outer = r#"version: 1
name: outer
steps:
  call: { workflow: inner, with: { what: x, ends: false } }
  after: { needs: [call], run: "true" }
on_failure: { tell: { run: "echo {{ run.failure | sh }}" } }
finally: { always: { run: "echo {{ steps.call.status | sh }}" } }
"#;
    let (outcome, records) = run(outer);
    let message = outcome.failure().expect("it failed").message.clone();
    assert!(message.contains("step `call`: workflow `inner`: step `check`"), "{message}");
    let sorry = output(&records, "call#1.on_failure#1.sorry")["stdout"].to_string();
    assert!(sorry.contains("sorry x: step `check`"), "{sorry}");
    assert_eq!(output(&records, "call#1.finally#1.bye")["stdout"], "bye x\n");
    assert!(output(&records, "on_failure#1.tell")["stdout"].as_str().unwrap().contains("step `call`"));
    assert_eq!(output(&records, "finally#1.always")["stdout"], "failed\n");
    assert!(matches!(outcome_of(&records, "after"), Outcome::Skipped(SkipCause::Upstream(_))));
}

fn outcome_of<'a>(records: &'a [Record], shown: &str) -> &'a Outcome {
    outcome(records, shown).unwrap_or_else(|| panic!("{shown} has not ended"))
}

#[test]
fn a_loop_has_an_end() {
    let outer = |max: u32, body: &str| {
        format!("version: 1\nname: outer\nsteps:\n  again:\n    loop: {{ until: \"{{{{ steps.look.exit_code == 0 }}}}\", max: {max} }}\n    steps:\n{body}")
    };
    let (outcome, records) = run(&outer(3, "      look: { run: \"false\", allow_failure: true }\n"));
    assert!(outcome.failure().is_some());
    assert_eq!(failure(&records, "again"), "`until` does not hold after 3 iterations");
    assert_eq!(begun(&records).iter().filter(|node| node.ends_with(".look")).count(), 3);
    let (_, records) = run(&outer(3, "      look: { run: \"false\" }\n"));
    assert!(failure(&records, "again").starts_with("iteration 1: step `look`"));
    let (outcome, _) = run(&outer(1, "      look: { run: \"true\" }\n"));
    assert!(outcome.success().is_some());
}

#[test]
fn a_frame_that_is_out_of_time_is_stopped_with_all_that_is_in_it() {
    let outer = r#"version: 1
name: outer
steps:
  again:
    timeout: 1s
    retry: { max: 1, on: [timeout], delay: 0s }
    loop: { until: "{{ steps.hang.exit_code == 0 }}", max: 3 }
    steps:
      hang: { run: "tail -f /dev/null" }
"#;
    let (outcome, records) = run(outer);
    assert!(outcome.failure().is_some());
    assert_eq!(failure(&records, "again"), "it was not done after 1 second");
    assert_eq!(begun(&records), ["again", "again#1.hang", "again", "again@2#1.hang"]);
    let ended_inside = |record: &Record| matches!(&record.event, Event::StepFinished { node, .. } if !node.within.is_empty());
    assert!(!records.iter().any(ended_inside), "what was stopped inside has no end of its own");
}

#[test]
fn the_first_failed_item_stops_loops_beside_it() {
    let outer = r#"version: 1
name: outer
steps:
  each:
    for_each: { items: [bad, good], as: it, fail_fast: true }
    loop: { until: "true", max: 1 }
    steps:
      work: { run: "test {{ it | sh }} = good && tail -f /dev/null" }
"#;
    let (outcome, records) = run(outer);
    assert!(outcome.failure().is_some());
    let bad: NodeId = serde_json::from_value(json!({"step": "each", "item": "bad"})).unwrap();
    assert_eq!(outcome_of(&records, "each/good"), &Outcome::Skipped(SkipCause::Sibling(bad)));
}

#[test]
fn a_matrix_multiplies_and_leaves_out() {
    let outer = r#"version: 1
name: outer
inputs: { sizes: { type: array, default: [1, 2] } }
steps:
  both:
    for_each: { items: [a, b], as: it }
    matrix: { size: "{{ inputs.sizes }}", way: [x, y], exclude: [{ size: 2, way: y }] }
    run: "echo {{ it | sh }} {{ matrix.size | sh }} {{ matrix.way | sh }}"
outputs: { keys: "{{ [r.key for r in steps.both.results] }}", said: "{{ [r.output.stdout for r in steps.both.results] }}" }
"#;
    let (outcome, _) = run(outer);
    let result = outcome.success().expect("it succeeded").output.clone();
    assert_eq!(result["said"], json!(["a 1 x\n", "a 1 y\n", "a 2 x\n", "b 1 x\n", "b 1 y\n", "b 2 x\n"]));
    assert_eq!(result["keys"][0], "a,1,x");
}

/// As where it is known at load: what is excluded leaves something.
#[test]
fn a_matrix_of_which_everything_is_excluded_fails() {
    let outer = |exclude: &str| {
        format!(
            "version: 1\nname: outer\ninputs: {{ sizes: {{ type: array, default: [1] }}, none: {{ type: array, default: [] }} }}\nsteps:\n  a: {{ matrix: {{ size: \"{{{{ inputs.sizes }}}}\", exclude: [{{ size: {exclude} }}] }}, run: ls }}\n  b: {{ matrix: {{ size: \"{{{{ inputs.none }}}}\" }}, run: ls }}\n"
        )
    };
    for (exclude, fails) in [("1", true), ("\"{{ inputs.sizes[0] }}\"", true), ("2", false)] {
        let (outcome, records) = run(&outer(exclude));
        assert_eq!(outcome.failure().is_some_and(|failure| failure.message.contains("`matrix.exclude` leaves no combination")), fails, "{exclude}");
        assert!(fails || outcome_of(&records, "b").success().is_some(), "an axis that has come to nothing has no combinations");
    }
}

#[test]
fn what_failed_first_is_told_and_templates_read_the_environment() {
    let outer = r#"version: 1
name: outer
env: { WORD: "w{{ inputs.n }}" }
inputs: { n: { type: integer, default: 7 } }
steps:
  early: { run: "exit 3" }
  wait: { needs: { step: early, on: failure }, run: "echo {{ env.WORD | sh }}$MORE-{{ env.MORE | sh }}", env: { MORE: "-{{ inputs.n }}" } }
  again: { needs: [wait], run: "exit 5" }
on_failure: { tell: { run: "echo {{ run.failure | sh }}" } }
"#;
    let (outcome, records) = run(outer);
    assert!(outcome.failure().expect("it failed").message.starts_with("step `early`"));
    assert!(output(&records, "on_failure#1.tell")["stdout"].as_str().unwrap().starts_with("step `early`"));
    assert_eq!(output(&records, "wait")["stdout"], "w7-7--7\n");
}

#[test]
fn what_has_steps_inside_is_tried_again() {
    for work in ["loop: { until: \"{{ false }}\", max: 2 }\n    steps: { a: { run: \"true\" } }", "workflow: inner\n    with: { what: x, ends: false }"] {
        let outer = format!(
            "version: 1\nname: outer\nsteps:\n  l:\n    retry: {{ max: 1, on: [any], delay: 0s }}\n    {work}\nfinally: {{ f: {{ run: \"true\" }} }}\n"
        );
        let (outcome, records) = run(&outer);
        assert!(outcome.failure().is_some());
        assert_eq!(begun(&records).iter().filter(|node| *node == "l").count(), 2, "{work}");
        assert!(outcome_of(&records, "finally#1.f").success().is_some());
    }
}

#[test]
fn artefacts_of_items_and_calls_have_a_file_each() {
    let outer = "version: 1\nname: outer\nsteps:\n  c:\n    for_each: { items: [1, 2], as: item }\n    loop: { until: \"{{ loop.iteration == 2 }}\", max: 2 }\n    steps: { a: { run: \"echo {{ item | sh }}\", output: { file: o.txt } } }\n";
    let (_, records) = run(outer);
    let kept: std::collections::BTreeSet<String> =
        records.iter().filter_map(|record| if let Event::ArtefactKept { name, .. } = &record.event { Some(name.clone()) } else { None }).collect();
    assert_eq!(kept.into_iter().collect::<Vec<_>>(), ["o.c.1.1.txt", "o.c.1.2.txt", "o.c.2.1.txt", "o.c.2.2.txt"]);
}
