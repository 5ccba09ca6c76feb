//! What is sent to a model after a death is what would have been sent without it, byte for byte, but for results that truly
//! differ: those of calls that may have had an effect outside, and are not made twice.
use super::life::{Death, carry};
use crate::{driver::Line, fixture::Bench};
use async_trait::async_trait;
use serde_json::{Value, json};
use spinney::{
    engine::{Ended, EngineError},
    event::Event,
    message::ToolSpec,
    tools::{Effect, Tool, ToolContext, ToolError, ToolOutput},
};
use std::{
    collections::BTreeMap,
    fs,
    io::Write as _,
    path::PathBuf,
    sync::{Arc, Mutex},
};

/// Many calls of each reply that may run beside each other; what the reader sends has an effect outside of any worktree.
const WORKFLOW: &str = r#"
version: 1
name: many
agents:
  coder: { system: "You code.", access: write, tools: [Agent, Bash, Edit, Grep, Read, Write] }
  hand: { system: "You help.", access: write }
  reader: { system: "You read.", access: read, tools: [Read, Send] }
steps:
  work: { agent: coder, prompt: "Work." }
  look: { needs: [work], agent: reader, prompt: "Look." }
"#;

/// A tool that does something outside, which nothing can take back.
struct Send(ToolSpec, PathBuf);

#[async_trait]
impl Tool for Send {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _: &Value, _: &ToolContext) -> Effect {
        Effect::External
    }

    async fn call(&self, _: &Value, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let mut file = fs::OpenOptions::new().append(true).create(true).open(&self.1).unwrap();
        file.write_all(b"once\n").unwrap();
        Ok(ToolOutput { text: "It was sent.".to_owned(), ..ToolOutput::default() })
    }
}

fn says(agent: &str, turn: usize) -> Line {
    let call = |tool: &str, input| (tool.to_owned(), input);
    match (agent, turn) {
        ("coder", 0) => Line::Say(
            "All at once.".to_owned(),
            vec![
                call("Read", json!({"file_path": "README.md"})),
                call("Write", json!({"file_path": "a.txt", "content": "a\n"})),
                call("Write", json!({"file_path": "b.txt", "content": "b\n"})),
                call("Read", json!({"file_path": "a.txt"})),
                call("Bash", json!({"command": "cat a.txt b.txt >> log.txt; cat log.txt"})),
                call("Grep", json!({"pattern": "b", "output_mode": "content"})),
                call("Nothing", json!({})),
            ],
        ),
        ("coder", 1) => Line::Say(
            String::new(),
            vec![
                call("Edit", json!({"file_path": "a.txt", "old_string": "a\n", "new_string": "a\nmore\n"})),
                call("Edit", json!({"file_path": "b.txt", "old_string": "b\n", "new_string": "b\nmore\n"})),
                call("Agent", json!({"description": "a part", "prompt": "Help.", "subagent_type": "hand"})),
                call("Bash", json!({"command": "echo again >> log.txt; cat log.txt a.txt b.txt"})),
            ],
        ),
        ("hand", 0) => Line::call("Bash", json!({"command": "echo part >> part.txt; cat part.txt"})),
        ("reader", 0) => Line::Say(String::new(), vec![call("Read", json!({"file_path": "log.txt"})), call("Send", json!({}))]),
        _ => Line::say("Done."),
    }
}

/// A node, and which of its turns.
type Turn = (String, usize);

/// What was asked, by node and turn: each form in which it was, with how often.
type Asked = BTreeMap<Turn, BTreeMap<String, usize>>;

/// Lives once to a record, where one is said, and then to the end. Returns what was sent, how many records there are, and how
/// often the effect outside happened.
fn play(death: Option<(usize, Death)>) -> (Asked, usize, usize) {
    let bench = Bench::new().workflow("many", WORKFLOW);
    let effects = bench.path("effects");
    let send = ToolSpec { name: "Send".to_owned(), description: "Sends it.".to_owned(), input_schema: json!({"type": "object"}) };
    let asked: Arc<Mutex<Vec<(Turn, String)>>> = Arc::default();
    let log = asked.clone();
    let drive = bench.drive(move |sent, call| {
        let request = json!([call.system, call.tools, call.messages, call.output_schema, call.models]);
        log.lock().unwrap().push(((sent.node.clone(), sent.turn()), serde_json::to_string(&request).unwrap()));
        says(call.agent, sent.turn())
    });
    let drive = drive.lending(Arc::new(Send(send, effects.clone()))).contained();
    let mut lived = carry(drive.begun("many"), death.unwrap_or((usize::MAX, Death::Untold)));
    if matches!(&lived.1, Err(EngineError::Journal(_))) && !is_over(&bench, &lived.0) {
        lived = carry(drive.prepared("many"), (usize::MAX, Death::Untold));
    }
    assert!(matches!(lived.1, Ok(Ended::Finished(_))) || is_over(&bench, &lived.0), "{death:?}: {:?}", lived.1);
    let records = bench.records(&lived.0);
    crate::invariants::check(&records, &bench.repo());
    let mut all = Asked::new();
    for (of, text) in asked.lock().unwrap().drain(..) {
        let text =
            text.replace(&lived.0.0, "RUN").replace(&bench.path(".").display().to_string(), "DIR").replace(&bench.path("").display().to_string(), "DIR/");
        *all.entry(of).or_default().entry(super::without_hashes(&text)).or_default() += 1;
    }
    let done = fs::read_to_string(effects).unwrap_or_default().lines().count();
    (all, records.len(), done)
}

fn is_over(bench: &Bench, run: &spinney::event::RunId) -> bool {
    matches!(bench.records(run).last().unwrap().event, Event::RunFinished { .. })
}

/// Returns how often a request said of a call that its end is not known.
fn the_same_is_sent(death: Death, first: usize) -> usize {
    let (clean, records, done) = play(None);
    assert!(records > 40 && clean.len() >= 6 && done == 1, "{records} records, {} requests, {done} effects", clean.len());
    assert!(clean.values().all(|forms| forms.len() == 1 && forms.values().all(|times| *times == 1)), "a request is made once");
    let mut unknown = 0;
    for at in (first..records).step_by(2) {
        let (asked, _, done) = play(Some((at, death)));
        assert!(done <= 1, "the effect outside happened {done} times after a death at {at}");
        assert_eq!(asked.keys().collect::<Vec<_>>(), clean.keys().collect::<Vec<_>>(), "after a death at {at}");
        for (of, forms) in &asked {
            let (expected, _) = clean[of].first_key_value().unwrap();
            for form in forms.keys().filter(|form| *form != expected) {
                assert!(form.contains("This call was interrupted when the program died."), "{of:?} after a death at {at}:\n{form}\nand not\n{expected}");
                assert_eq!(of.0, "look", "only what may have had an effect outside is told so");
                unknown += 1;
            }
            assert_eq!(forms.len(), 1, "{of:?} after a death at {at} was asked in two ways");
        }
    }
    unknown
}

#[test]
fn the_next_request_is_the_same_bytes_after_a_death_before_the_next_record() {
    assert!(the_same_is_sent(Death::BeforeTheNext, 1) > 0, "the call with an effect outside was under way at none of the records");
}

#[test]
fn the_next_request_is_the_same_bytes_after_a_death_before_an_effect() {
    let _ = the_same_is_sent(Death::Untold, 2);
}
