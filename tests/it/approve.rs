//! `approve`: what is shown, what an answer means, how long it is waited for; other steps go on meanwhile.
use crate::{
    driver::Line,
    fixture::{Bench, outcome},
};
use serde_json::json;
use spinney::{
    clock::{Clock, Timestamp},
    engine::Ended,
    event::{Event, Record, RunId},
};
use std::time::Duration;

const GATED: &str = r#"
version: 1
name: gated
inputs: { goal: { type: string, default: "it" } }
agents: { coder: { system: "You code.", access: write } }
steps:
  work: { agent: coder, prompt: "Write." }
  gate: { needs: [work], approve: { message: "Land {{ inputs.goal }}?", MORE } }
  after: { needs: [gate], run: "cat new.txt; echo {{ steps.gate.output.by | sh }}: {{ steps.gate.output.note | sh }}" }
  sorry: { needs: [{ step: gate, on: failure }], run: "echo {{ steps.gate.output.note | sh }}" }
  beside: { run: "echo beside" }
outputs: { said: "{{ steps.after.stdout }}" }
"#;

const WRITES: &str = r#"
conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Write, input: { file_path: new.txt, content: "hello\n" } }]
      - say: done
"#;

fn gated(more: &str) -> Bench {
    Bench::new().workflow("gated", &GATED.replace("MORE", more))
}

fn questions(records: &[Record]) -> Vec<&Record> {
    records.iter().filter(|record| matches!(record.event, Event::QuestionAsked { .. })).collect()
}

fn parked(bench: &Bench) -> RunId {
    let (said, records) = bench.run("gated", WRITES, &[]);
    let said = said.code(3);
    let run = bench.newest();
    assert!(said.out.contains("Land it?") && said.out.contains(&format!("spinney approve {run}")), "{}", said.out);
    assert!(outcome(&records, "beside")["succeeded"].is_object());
    run
}

#[test]
fn an_approval_passes_the_work_on_and_is_readable() {
    let bench = gated("show: diff");
    let run = parked(&bench);
    let shown = bench.spinney(&["show", &run.0]).code(0);
    assert!(shown.out.contains("+hello") && shown.out.contains(&format!("spinney approve {run}")), "{}", shown.out);
    assert!(bench.spinney(&["runs"]).code(0).out.contains("parked, asks 1"));
    bench.spinney(&["resume", &run.0]).code(3);
    bench.spinney(&["approve", &run.0, "--note", "looks right", "--by", "ann"]).code(0);
    let records = bench.records(&run);
    crate::invariants::check(&records, &bench.repo());
    assert_eq!(questions(&records).len(), 1, "a resume asks no second question");
    assert_eq!(outcome(&records, "gate")["succeeded"]["output"], json!({"approved": true, "by": "ann", "note": "looks right"}));
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "hello\nann: looks right\n");
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:new.txt")]), "hello\n");
}

#[test]
fn a_rejection_fails_and_its_note_is_readable() {
    let bench = gated("show: stat");
    let run = parked(&bench);
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains("new.txt | 1 +"));
    let said = bench.spinney(&["reject", &run.0, "gate", "--note", "not like this", "--by", "bob"]).code(1);
    assert!(said.out.contains("rejected by bob: not like this"), "{}", said.out);
    let records = bench.records(&run);
    let gate = &outcome(&records, "gate")["failed"];
    assert_eq!((&gate["kind"], &gate["output"]["note"]), (&json!("refusal"), &json!("not like this")));
    assert_eq!(outcome(&records, "sorry")["succeeded"]["output"]["stdout"], "not like this\n");
    assert!(outcome(&records, "after")["skipped"].is_object());
}

#[test]
fn options_answer_at_once() {
    for (option, code) in [("allow", 0), ("deny", 1)] {
        let bench = gated("show: diff");
        let (said, records) = bench.run("gated", WRITES, &["--on-ask", option]);
        said.code(code);
        assert!(records.iter().any(|record| matches!(&record.event, Event::QuestionAnswered { by, .. } if *by == format!("--on-ask {option}"))));
    }
}

fn writes(bench: &Bench) -> crate::driver::Drive<'_> {
    bench.drive(|sent, _| if sent.turn() == 0 { Line::call("Write", json!({"file_path": "new.txt", "content": "hello\n"})) } else { Line::say("done") })
}

#[test]
fn a_process_that_waits_takes_silence_for_the_answer_that_was_named() {
    for (word, approved) in [("approve", true), ("reject", false)] {
        let bench = gated(&format!("timeout: 24h, on_timeout: {word}"));
        let (ended, records) = writes(&bench).clock(Clock::fake(Timestamp(1_000_000))).run("gated");
        assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
        let (word, output) = if approved { ("succeeded", outcome(&records, "gate")) } else { ("failed", outcome(&records, "gate")) };
        assert_eq!(output[word]["output"], json!({"approved": approved, "by": "timeout", "note": ""}));
        let asked = questions(&records)[0];
        let Event::QuestionAsked { form, .. } = &asked.event else { unreachable!() };
        assert_eq!(form.deadline.unwrap().at, asked.at.after(Duration::from_hours(24)));
        let answered = records.iter().find(|record| matches!(record.event, Event::QuestionAnswered { .. })).unwrap();
        assert!(answered.at >= form.deadline.unwrap().at, "it was not waited for");
    }
}

#[test]
fn time_counts_from_the_first_asking_over_resumes() {
    let bench = gated("timeout: 24h, on_timeout: approve");
    let run = parked(&bench);
    let asked = questions(&bench.records(&run))[0].at;
    bench.spinney(&["resume", &run.0]).code(3);
    let (ended, records) = writes(&bench).clock(Clock::fake(asked.after(Duration::from_hours(25)))).resume("gated");
    assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
    assert_eq!(questions(&records).len(), 1);
    assert_eq!(outcome(&records, "gate")["succeeded"]["output"]["by"], "timeout");
}

#[test]
fn a_no_of_a_person_is_not_tried_again() {
    let yaml = "version: 1\nname: gated\ndefaults: { retry: { max: 3, on: [any] } }\nsteps:\n  gate: { approve: { message: \"Go?\" } }\n";
    let bench = Bench::new().workflow("gated", yaml);
    let (said, records) = bench.run("gated", "conversations: []", &["--on-ask", "deny"]);
    said.code(1);
    assert_eq!(questions(&records).len(), 1);
}
