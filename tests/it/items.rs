//! What a `for_each` and the edges of the graph promise.
use crate::{
    driver::{Line, Sent},
    fixture::{Bench, outcome},
};
use serde_json::{Value, json};
use spinney::{
    clock::{Clock, Timestamp},
    event::{Event, Outcome, Record, SkipCause},
    llm::{ModelCall, ModelError, ModelErrorKind},
};

fn run(yaml: &str) -> (u8, String, Vec<Record>) {
    run_with(&[], yaml)
}

fn run_with(more: &[&str], yaml: &str) -> (u8, String, Vec<Record>) {
    let bench = Bench::new().workflow("w", &format!("version: 1\nname: w\n{yaml}"));
    let (said, records) = bench.run("w", "conversations:\n  - turns:\n      - say: done\n", more);
    (said.code, said.out + &said.err, records)
}

fn started(records: &[Record], node: &str) -> Option<u64> {
    records.iter().find(|record| matches!(&record.event, Event::StepStarted { node: of, .. } if of.to_string() == node)).map(|record| record.seq)
}

fn ended(records: &[Record], node: &str) -> Option<u64> {
    records.iter().find(|record| matches!(&record.event, Event::StepFinished { node: of, .. } if of.to_string() == node)).map(|record| record.seq)
}

/// Returns the node whose end made this one be skipped.
fn upstream(records: &[Record], node: &str) -> String {
    let of = |record: &Record| match &record.event {
        Event::StepFinished { node: of, outcome: Outcome::Skipped(SkipCause::Upstream(cause)) } if of.to_string() == node => Some(cause.to_string()),
        _ => None,
    };
    records.iter().find_map(of).unwrap_or_default()
}

/// Returns the most items of a step that ran at the same time, by the log.
fn most_at_once(records: &[Record], step: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0_usize);
    for record in records {
        match &record.event {
            Event::StepStarted { node, .. } if node.step.0 == step && node.item.is_some() => now += 1,
            Event::StepFinished { node, .. } | Event::RetryScheduled { node, .. }
                if node.step.0 == step && node.item.is_some() && started(records, &node.to_string()).is_some_and(|at| at < record.seq) =>
            {
                now -= 1;
            }
            _ => {}
        }
        most = most.max(now);
    }
    most
}

#[test]
fn all_wants_every_item_and_all_done_only_their_end() {
    for (join, code) in [("all", 1), ("all_done", 0)] {
        let (got, out, records) = run(&format!(
            "steps:\n  each: {{ for_each: {{ items: [ok, bad, fine], as: it, join: {join} }}, run: \"test {{{{ it | sh }}}} != bad\" }}\n  after: {{ needs: [each], run: \"echo {{{{ steps.each.results | json | sh }}}}\", output: {{ parse: json }} }}\n"
        ));
        assert_eq!(got, code, "{out}");
        for item in ["ok", "fine"] {
            assert!(outcome(&records, &format!("each/{item}"))["succeeded"].is_object(), "a failure of one stops no other");
        }
        assert_eq!(outcome(&records, "each/bad")["failed"]["kind"], "command");
        if join == "all" {
            assert!(outcome(&records, "each")["failed"]["message"].as_str().unwrap().contains("bad"));
            assert_eq!(upstream(&records, "after"), "each", "{}", outcome(&records, "after"));
        } else {
            let results = &outcome(&records, "after")["succeeded"]["output"]["output"];
            let keys: Vec<(&str, bool)> =
                results.as_array().unwrap().iter().map(|result| (result["key"].as_str().unwrap(), result["ok"].as_bool().unwrap())).collect();
            assert_eq!(keys, [("ok", true), ("bad", false), ("fine", true)]);
        }
    }
}

#[test]
fn fail_fast_stops_what_runs_and_what_waits() {
    let (code, out, records) = run(
        "steps:\n  each: { for_each: { items: [bad, long, waits], as: it, max_parallel: 2, fail_fast: true }, run: \"case {{ it | sh }} in bad) exit 1;; *) tail -f /dev/null;; esac\" }\n",
    );
    assert_eq!(code, 1, "{out}");
    for item in ["long", "waits"] {
        assert_eq!(outcome(&records, &format!("each/{item}"))["skipped"]["sibling"]["item"], "bad");
    }
    assert!(started(&records, "each/waits").is_none());
    assert!(outcome(&records, "each")["failed"]["message"].as_str().unwrap().contains("bad"));
}

#[test]
fn an_item_waits_for_the_items_it_needs_and_starts_from_their_work() {
    let yaml = "steps:
  each:
    for_each: { items: [{ id: c, needs: [a, b] }, { id: b, needs: [a] }, { id: a, needs: [] }], as: it, key: \"{{ it.id }}\", needs: \"{{ it.needs }}\" }
    run: \"ls *.made 2>/dev/null | tr '\\\\n' ' '; touch {{ it.id | sh }}.made\"
    scope: [\"*.made\"]
  join: { needs: [each], merge: { from: [each] } }
";
    let (code, out, records) = run(yaml);
    assert_eq!(code, 0, "{out}");
    assert!(ended(&records, "each/a") < started(&records, "each/b") && ended(&records, "each/b") < started(&records, "each/c"));
    let seen = |item: &str| outcome(&records, &format!("each/{item}"))["succeeded"]["output"]["stdout"].as_str().unwrap().trim().to_owned();
    assert_eq!((seen("a"), seen("b"), seen("c")), (String::new(), "a.made".to_owned(), "a.made b.made".to_owned()));
}

/// As between steps: whoever needs an item that changed nothing starts from what that one started from, however many of
/// them are in between.
#[test]
fn an_item_that_changed_nothing_passes_on_what_it_started_from() {
    let items = "items: [{ id: a, needs: [] }, { id: b, needs: [a] }, { id: c, needs: [b] }, { id: d, needs: [c, b] }], as: it, key: \"{{ it.id }}\", needs: \"{{ it.needs }}\"";
    let script = |id: &str| format!("ls *.made 2>/dev/null | tr '\\\\n' ' '; case {{{{ {id} | sh }}}} in a|d) touch {{{{ {id} | sh }}}}.made;; esac");
    let run = format!("run: \"{}\"\n    scope: [\"*.made\"]\n", script("it.id"));
    let merge = "  join: { needs: [each], merge: { from: [each] } }\n  after: { needs: [join], run: ls }\n";
    let inner = format!(
        "version: 1\nname: one\ninputs: {{ id: {{ type: string, required: true }} }}\nsteps: {{ make: {{ run: \"{}\", scope: [\"*.made\"] }} }}\noutputs: {{ stdout: \"{{{{ steps.make.stdout }}}}\" }}\n",
        script("inputs.id")
    );
    for (work, key) in
        [(run.clone(), "d"), (format!("matrix: {{ on: [x] }}\n    {run}"), "d,x"), ("workflow: one\n    with: { id: \"{{ it.id }}\" }\n".to_owned(), "d")]
    {
        let bench = Bench::new().workflow("one", &inner);
        let yaml = format!("version: 1\nname: w\nsteps:\n  each:\n    for_each: {{ {items} }}\n    {work}{merge}");
        let bench = bench.workflow("w", &yaml);
        let (said, records) = bench.run("w", "conversations: []\n", &[]);
        let said = said.code(0);
        let seen = outcome(&records, &format!("each/{key}"))["succeeded"]["output"]["stdout"].clone();
        assert_eq!(seen.as_str().unwrap_or_default().trim(), "a.made", "{key}: {seen}");
        let joined = outcome(&records, "join")["succeeded"]["output"].clone();
        assert_eq!(joined["ejected"], json!([]), "{joined}");
        let kept = outcome(&records, "after")["succeeded"]["output"]["stdout"].clone();
        assert!(kept.as_str().unwrap().contains("a.made") && kept.as_str().unwrap().contains("d.made"), "{}", said.out);
    }
}

#[test]
fn an_item_whose_need_failed_is_skipped_with_its_cause() {
    let yaml = "steps:
  each:
    for_each: { items: [{ id: a, needs: [] }, { id: b, needs: [a] }, { id: c, needs: [] }], as: it, key: \"{{ it.id }}\", needs: \"{{ it.needs }}\", join: all_done }
    run: \"test {{ it.id | sh }} != a\"
";
    let (code, out, records) = run(yaml);
    assert_eq!(code, 0, "{out}");
    assert_eq!(upstream(&records, "each/b"), "each/a", "{}", outcome(&records, "each/b"));
    assert!(outcome(&records, "each/c")["succeeded"].is_object());
    // What was skipped has not failed.
    let (_, said, _) = run(
        "steps:\n  each:\n    for_each: { items: [{ id: a, needs: [] }, { id: b, needs: [a] }, { id: c, needs: [] }], as: it, key: \"{{ it.id }}\", needs: \"{{ it.needs }}\" }\n    run: \"test {{ it.id | sh }} != a\"\n",
    );
    assert!(said.contains("(of 3 items 1 failed and 1 was skipped)"), "{said}");
}

#[test]
fn a_cycle_an_unknown_need_or_a_key_twice_fails_before_the_first_item() {
    for (items, why) in [
        ("[{'id': 'a', 'needs': ['b']}, {'id': 'b', 'needs': ['a']}]", "needs itself"),
        ("[{'id': 'a', 'needs': ['x']}, {'id': 'b', 'needs': []}]", "needs `x`"),
        ("[{'id': 'a', 'needs': []}, {'id': 'a', 'needs': []}]", "`a` is taken"),
    ] {
        let (code, out, records) = run(&format!(
            "steps:\n  each: {{ for_each: {{ items: \"{{{{ {items} }}}}\", as: it, key: \"{{{{ it.id }}}}\", needs: \"{{{{ it.needs }}}}\" }}, run: \"true\" }}\n"
        ));
        assert_eq!(code, 1, "{out}");
        assert!(outcome(&records, "each")["failed"]["message"].as_str().unwrap().contains(why), "{}", outcome(&records, "each"));
        assert!(!records.iter().any(|record| matches!(&record.event, Event::StepStarted { node, .. } if node.item.is_some())));
    }
}

#[test]
fn never_more_items_run_at_once_than_max_parallel_says() {
    for most in [1, 2, 3] {
        // They meet in a folder of the home: each waits until as many as may run at once are there.
        let (code, out, records) = run_with(
            &["--unconfined"],
            &format!(
                "steps:\n  each: {{ for_each: {{ items: [a, b, c, d, e, f], as: it, max_parallel: {most} }}, run: \"mkdir -p $HOME/meet && touch $HOME/meet/{{{{ it | sh }}}} && until test $(ls $HOME/meet | wc -l) -ge {most}; do sleep 0.01; done\", timeout: 20s }}\n"
            ),
        );
        assert_eq!(code, 0, "{out}");
        assert_eq!(most_at_once(&records, "each"), most, "as many as may, and never more");
    }
}

#[test]
fn no_items_are_a_success_of_nothing() {
    let (code, out, records) = run("steps:\n  each: { for_each: { items: [], as: it }, run: \"true\" }\n");
    assert_eq!(code, 0, "{out}");
    assert_eq!(outcome(&records, "each")["succeeded"]["output"]["results"], json!([]));
}

#[test]
fn a_condition_skips_and_what_needs_it_is_skipped_too() {
    let (code, out, records) = run(
        "steps:\n  no: { if: \"1 > 2\", run: \"true\" }\n  after: { needs: [no], run: \"true\" }\n  done: { needs: [{ step: no, on: done }], run: \"true\" }\n  yes: { if: \"{{ 2 > 1 }}\", run: \"true\" }\n",
    );
    assert_eq!(code, 0, "{out}");
    assert_eq!(outcome(&records, "no")["skipped"], "condition");
    assert_eq!(upstream(&records, "after"), "no");
    assert_eq!(upstream(&records, "done"), "no", "a skipped upstream skips, whatever it is waited for with");
    assert!(outcome(&records, "yes")["succeeded"].is_object());
}

#[test]
fn needs_may_wait_for_a_failure_and_a_failure_may_be_allowed() {
    let (code, out, records) = run(
        "steps:\n  bad: { run: \"echo out; echo err >&2; exit 3\", allow_failure: true }\n  mend: { needs: [{ step: bad, on: failure }], run: \"echo {{ steps.bad.exit_code | sh }} {{ steps.bad.stdout | sh }}\" }\n  next: { needs: [bad], run: \"true\" }\n  good: { run: \"true\" }\n  never: { needs: [{ step: good, on: failure }], run: \"true\" }\n",
    );
    assert_eq!(code, 0, "{out}");
    assert_eq!(outcome(&records, "bad")["failed"]["output"]["exit_code"], 3);
    assert_eq!(outcome(&records, "mend")["succeeded"]["output"]["stdout"], "3 out\n\n", "what is quoted keeps its line break");
    assert!(outcome(&records, "next")["succeeded"].is_object(), "an allowed failure counts as success for needs");
    assert_eq!(upstream(&records, "never"), "good");
}

#[test]
fn a_failure_that_is_not_allowed_fails_the_run_though_something_mends_it() {
    let (code, out, records) = run("steps:\n  bad: { run: \"exit 3\" }\n  mend: { needs: [{ step: bad, on: failure }], run: \"true\" }\n");
    assert_eq!(code, 1, "{out}");
    assert!(outcome(&records, "mend")["succeeded"].is_object());
}

#[test]
fn a_commands_output_has_its_type() {
    let (code, out, records) = run(
        "steps:\n  lines: { run: \"printf 'a\\\\nb\\\\n\\\\n'\", output: { parse: lines } }\n  json: { run: \"echo '{\\\"n\\\": [1, 2]}'; echo e >&2\", output: { parse: json } }\n  plain: { run: \"echo hi\" }\n  broken: { run: \"echo no\", output: { parse: json }, allow_failure: true }\n  each: { needs: [lines], for_each: { items: \"{{ steps.lines.output }}\", as: it }, run: \"echo {{ it | sh }}\" }\noutputs:\n  n: \"{{ steps.json.output.n }}\"\n  second: \"{{ steps.json.output.n | last }}\"\n  code: \"{{ steps.plain.exit_code }}\"\n  lines: \"{{ steps.lines.output }}\"\n  text: \"n is {{ steps.json.output.n | first }}\"\n",
    );
    assert_eq!(code, 0, "{out}");
    assert_eq!(outcome(&records, "run")["succeeded"]["output"], json!({"n": [1, 2], "second": 2, "code": 0, "lines": ["a", "b"], "text": "n is 1"}));
    assert_eq!(outcome(&records, "json")["succeeded"]["output"]["stderr"], "e\n");
    assert_eq!(outcome(&records, "plain")["succeeded"]["output"]["stdout"], "hi\n");
    assert_eq!(outcome(&records, "broken")["failed"]["kind"], "schema");
    assert_eq!(outcome(&records, "each/b")["succeeded"]["output"]["stdout"], "b\n");
}

/// Linters exit with 1 where they have found something: what they said is there as with success, as far as it is what it should be.
#[test]
fn what_a_failed_command_has_said_is_parsed() {
    let (code, out, records) = run(r#"
schemas: { n: { type: object, required: [n], properties: { n: { type: integer } } } }
steps:
  lines: { run: "echo a; echo b; exit 1", output: { parse: lines }, allow_failure: true }
  json: { run: "echo '[1, 2]'; exit 3", output: { parse: json }, allow_failure: true }
  garbled: { run: "echo '[1,'; exit 1", output: { parse: json }, allow_failure: true }
  misfit: { run: "echo '[1]'; exit 1", output: { parse: json, schema: n }, allow_failure: true }
  slow: { run: "echo a; exec tail -f /dev/null", timeout: 1s, output: { parse: lines }, allow_failure: true }
  never: { run: "true", cwd: gone, output: { parse: lines }, allow_failure: true }
  each: { needs: [lines], for_each: { items: "{{ steps.lines.output }}", as: it }, run: "echo {{ it | sh }}" }
outputs:
  all: "{{ [steps.lines.output, steps.json.output, steps.garbled.output, steps.misfit.output, steps.slow.output, steps.never.output] }}"
  codes: "{{ [steps.json.exit_code, steps.slow.exit_code, steps.never.exit_code] }}"
"#);
    assert_eq!(code, 0, "{out}");
    let output = &outcome(&records, "run")["succeeded"]["output"];
    assert_eq!(*output, json!({"all": [["a", "b"], [1, 2], null, null, ["a"], []], "codes": [3, 124, 126]}));
    assert_eq!(outcome(&records, "each/b")["succeeded"]["output"]["stdout"], "b\n");
}

const ANSWERS: &str = "version: 1
name: w
agents: { a: { system: \"You answer.\" } }
schemas: { s: { type: object, required: [n], properties: { n: { type: integer } }, additionalProperties: false } }
steps:
  ask: { agent: a, prompt: \"Answer.\", output: { schema: s } }
";

fn answering(answers: &'static [&'static str]) -> (Vec<Sent>, Vec<Record>) {
    let bench = Bench::new().workflow("w", ANSWERS);
    let drive = bench.drive(move |sent, _: &ModelCall<'_>| Line::say(answers[sent.turn()]));
    let (_, records) = drive.run("w");
    (drive.sent(), records)
}

#[test]
fn an_answer_that_does_not_fit_is_asked_for_again_up_to_three_times() {
    let (sent, records) = answering(&["no", "{\"n\": \"x\"}", "{\"n\": 1, \"m\": 2}", "{\"n\": 4}"]);
    assert_eq!(outcome(&records, "ask")["succeeded"]["output"], json!({"n": 4}));
    assert!(sent[2].last().contains("/n"), "the place of the fault is said: {}", sent[2].last());
    let (sent, records) = answering(&["no", "no", "no", "no", "{\"n\": 4}"]);
    assert_eq!(sent.len(), 4);
    assert_eq!(outcome(&records, "ask")["failed"]["kind"], "schema");
}

#[test]
fn a_transient_failure_is_tried_again_after_longer_and_longer_waits() {
    let clock = Clock::fake(Timestamp(1_000));
    let bench = Bench::new().workflow(
        "w",
        "version: 1\nname: w\nagents: { a: { system: \"You answer.\" } }\nsteps:\n  ask: { agent: a, prompt: \"Answer.\", retry: { max: 3, on: [transient], delay: 10s, backoff: exponential, max_delay: 15s } }\n",
    );
    let tries = std::sync::atomic::AtomicU32::new(0);
    let drive = bench.drive(move |_, _| match tries.fetch_add(1, std::sync::atomic::Ordering::SeqCst) {
        0..3 => Line::Fail(ModelError::new(ModelErrorKind::Overloaded, "busy")),
        _ => Line::say("at last"),
    });
    let drive = drive.clock(clock);
    let (_, records) = drive.run("w");
    assert_eq!(outcome(&records, "ask")["succeeded"]["output"], "at last");
    let waits: Vec<u64> =
        records.iter().filter_map(|record| if let Event::RetryScheduled { due, .. } = &record.event { Some(due.0 - record.at.0) } else { None }).collect();
    assert_eq!(waits, [10_000, 15_000, 15_000]);
    assert_eq!(drive.sent().len(), 4);
}

#[test]
fn a_retry_has_an_end_and_is_only_for_what_it_names() {
    let yaml = |on: &str| {
        format!(
            "version: 1\nname: w\nagents: {{ a: {{ system: \"You answer.\" }} }}\nsteps:\n  ask: {{ agent: a, prompt: \"Answer.\", retry: {{ max: 2, on: [{on}], delay: 0s }} }}\n"
        )
    };
    // Where the step has no word for it, its run waits for a provider that is down.
    for (on, asked, kind) in [("transient", 3, Value::from("unavailable")), ("timeout", 1, Value::Null), ("any", 3, Value::from("unavailable"))] {
        let bench = Bench::new().workflow("w", &yaml(on));
        let drive = bench.drive(|_, _| Line::Fail(ModelError::new(ModelErrorKind::Overloaded, "busy")));
        let (_, records) = drive.run("w");
        assert_eq!((drive.sent().len(), outcome(&records, "ask")["failed"]["kind"].clone()), (asked, kind), "{on}");
    }
}
