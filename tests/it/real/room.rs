//! Conversations that outgrow their window.
use super::{
    drive::{Drive, carry_on},
    mind::{Wire, bench, call, done},
};
use crate::{
    fixture::{Bench, outcome},
    invariants,
    server::{Answer, Delivery, Hosted},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Outcome, Record},
};

const READER: &str = r#"
version: 1
name: reader
agents:
  reader: { system: "You read.", access: read, budget: { turns: 60 } }
steps:
  read: { agent: reader, prompt: "Read all of it." }
"#;

/// Turns of the conversation, each of which reads some thousands of bytes.
const TURNS: usize = 24;

fn library(bench: Bench) -> Bench {
    let page = |number: usize| (0..60).map(|line| format!("{number}: line {line} of a page that somebody has to read\n")).collect::<String>();
    (0..TURNS).fold(bench, |bench, number| bench.file(&format!("page{number}.txt"), &page(number))).commit("pages").workflow("reader", READER)
}

fn script(window: u64) -> String {
    let turns: String = (0..TURNS).map(|number| format!("      - calls: [{{ tool: Read, input: {{ file_path: page{number}.txt }} }}]\n")).collect();
    format!("window: {window}\nconversations:\n  - agent: reader\n    turns:\n{turns}      - say: \"read\"\n")
}

fn compactions(records: &[Record]) -> Vec<Value> {
    records.iter().filter(|record| matches!(record.event, Event::Compacted { .. })).map(|record| serde_json::to_value(&record.event).unwrap()).collect()
}

/// A scripted model goes by the number of its replies in what it is shown, so its turns begin anew after a compaction:
/// here it reads on for ever, and its limit of turns ends it. What counts is that each request fits.
#[test]
fn a_conversation_that_outgrows_its_window_is_shortened_and_goes_on() {
    let server = Hosted::start(|asked| {
        let body = String::from_utf8_lossy(&asked.body).into_owned();
        // It reads the first page that no ledger and no call names yet, as one would who goes by what is in front of it.
        let next = (0..TURNS).find(|number| !body.contains(&format!("page{number}.txt")));
        match next {
            Some(number) => {
                let mut said = call(asked, "Read", json!({"file_path": format!("page{number}.txt")}));
                said.calls[0].0 = format!("toolu_page_{number}");
                // As a real one counts: otherwise nobody would know that there is no room.
                said.prompt = Some(asked.body.len() as u64 / 3);
                (Answer::Say(said), Delivery::default())
            }
            None => (Answer::Say(done("read")), Delivery::default()),
        }
    });
    let mut made = Vec::new();
    for wire in [Wire::Messages, Wire::Messages, Wire::Chat, Wire::Responses, Wire::Gemini] {
        let bench = library(bench(wire, &server));
        let drive = Drive::with_window(&bench, "reader", Some(24_000));
        let ended = carry_on(drive.start(json!({})), usize::MAX);
        assert!(matches!(&ended, Some(Ended::Finished(Outcome::Succeeded(_)))), "{ended:?}");
        let records = bench.records(&bench.newest());
        invariants::check(&records, &bench.repo());
        let compacted = compactions(&records);
        assert!(!compacted.is_empty(), "it was never shortened");
        for event in &compacted {
            let event = &event["compacted"];
            assert!(event["after"].as_u64() < event["before"].as_u64(), "{event}");
            let kept = event["messages"].to_string();
            // What was thought over Chat Completions is bound to nothing, and stays.
            let bound: &[&str] =
                if matches!(wire, Wire::Chat) { &["bound-", "\"item\"", "\"part\""] } else { &["\"thinking\"", "bound-", "\"item\"", "\"part\""] };
            assert!(bound.iter().all(|word| !kept.contains(word)), "thinking is bound to what was dropped: {kept}");
            assert!(event["messages"][0]["blocks"].to_string().contains("Read all of it."), "the task stays: {}", event["messages"][0]);
        }
        // Where the worktree stands differs between two runs, and nothing else.
        let place = bench.path("").display().to_string();
        made.push(
            compacted
                .iter()
                .map(|event| event["compacted"]["messages"].as_array().unwrap()[1..].iter().map(ToString::to_string).collect::<String>().replace(&place, ""))
                .collect::<Vec<_>>(),
        );
        assert_eq!(server.problems(), Vec::<String>::new());
    }
    assert_eq!(made[0], made[1], "the same conversation is shortened in the same way");
}

#[test]
fn a_scripted_window_is_held_too() {
    let bench = library(Bench::new());
    let (said, records) = bench.run("reader", &script(24_000), &[]);
    assert!(!compactions(&records).is_empty());
    // The script begins anew each time and never comes to its end: it ends by its limit, with that status.
    let said = said.code(1);
    assert_eq!(outcome(&records, "read")["failed"]["kind"], json!({"limit": "turns"}), "{}", said.out);
}

#[test]
fn a_task_that_alone_does_not_fit_ends_at_once_with_its_own_status() {
    let bench = library(Bench::new());
    let (said, records) = bench.run("reader", &script(1_000), &[]);
    said.code(1);
    let failure = &outcome(&records, "read")["failed"];
    assert_eq!(failure["kind"], "context_exhausted", "{failure}");
    assert!(failure["hint"].as_str().unwrap().contains("window"), "{failure}");
    assert!(!records.iter().any(|record| matches!(record.event, Event::ModelReplied { .. } | Event::Compacted { .. })), "nothing was asked");
}
