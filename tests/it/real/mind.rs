//! What the server says: worked out from what it is asked, as a model would, in each protocol.
use crate::{
    fixture::Bench,
    server::{Asked, Hosted, Said},
};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// A key that is nowhere to be seen.
pub(super) const KEY: &str = "sk-test-7c1f9e55d0a84b";

/// A wire format.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wire {
    Messages,
    Responses,
    Chat,
    Gemini,
}

/// A bench whose one provider is the server.
pub(super) fn bench(wire: Wire, server: &Hosted) -> Bench {
    match wire {
        Wire::Messages => Bench::new().env("ANTHROPIC_BASE_URL", &server.anthropic_url()).env("ANTHROPIC_API_KEY", KEY),
        Wire::Chat => Bench::new().env("OPENAI_BASE_URL", &server.openai_url()).env("OPENAI_API_KEY", KEY),
        Wire::Gemini => Bench::new().env("GEMINI_BASE_URL", &server.openai_url()).env("GEMINI_API_KEY", KEY),
        Wire::Responses => {
            let bench = Bench::new().env("OPENAI_BASE_URL", &server.openai_url()).env("OPENAI_API_KEY", KEY);
            std::fs::create_dir_all(bench.path("config/spinney")).unwrap();
            std::fs::write(bench.path("config/spinney/config.yaml"), "providers: { openai: { protocol: openai_responses } }\n").unwrap();
            bench
        }
    }
}

/// The model of the workflows' aliases where Gemini is the one provider, whom they do not name.
pub(super) const GEMINI: &str = "gemini/gemini-3.7-flash";

/// Returns the aliases of `feature` that mean another model here.
pub(super) fn overrides(bench: &Bench) -> Vec<&'static str> {
    if bench.environment().contains_key("GEMINI_API_KEY") { vec!["large", "medium"] } else { Vec::new() }
}

/// What a request says, whatever its protocol.
#[derive(Debug)]
pub(super) struct Heard {
    /// The first thing the user says.
    pub(super) first: String,
    /// Everything after the assistant's last message.
    pub(super) last: String,
}

/// Reads a request.
pub(super) fn heard(asked: &Asked) -> Heard {
    let all = asked.dialogue();
    let first = all.iter().find(|(by_model, _)| !by_model).map(|(_, text)| text.clone()).unwrap_or_default();
    let after = all.iter().rposition(|(by_model, _)| *by_model).map_or(0, |at| at + 1);
    let last = all[after..].iter().map(|(_, text)| text.as_str()).collect::<Vec<_>>().join("\n");
    Heard { first, last }
}

/// Returns what stands between two words.
pub(super) fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}

/// A call whose id no other turn of the conversation has.
pub(super) fn call(asked: &Asked, name: &str, input: Value) -> Said {
    calls(asked, &[(name, input)])
}

/// Several of them.
pub(super) fn calls(asked: &Asked, calls: &[(&str, Value)]) -> Said {
    let calls = calls.iter().enumerate().map(|(n, (name, input))| (format!("toolu_{}_{n}", asked.turn()), (*name).to_owned(), input.clone())).collect();
    Said { thinking: Some(format!("turn {}: I wonder\n\u{1F332} \"quoted\"", asked.turn())), calls, ..Said::default() }
}

/// The words at the end of a turn.
pub(super) fn done(text: &str) -> Said {
    Said { thinking: Some("that is it".to_owned()), ..Said::text(text) }
}

/// Plays every part of the workflow `feature`: a plan of two parts, a file each, made by a write and an edit that
/// does not work twice.
pub(super) fn feature(asked: &Asked) -> Said {
    let heard = heard(asked);
    if heard.first.contains("You are the orchestrator") {
        return done("It may go on.");
    }
    if heard.first.contains("Plan this change") {
        let task = |id: &str| json!({"id": id, "title": format!("Write the {id} part"), "prompt": "A file.", "scope": [format!("{id}.txt")], "needs": []});
        return match asked.turn() {
            0 => calls(asked, &[("Read", json!({"file_path": "README.md"})), ("Glob", json!({"pattern": "*"}))]),
            _ => done(&json!({"tasks": [task("left"), task("right")]}).to_string()),
        };
    }
    let part = between(&heard.first, "Write the ", " part").unwrap_or_else(|| panic!("an unknown conversation: {}", heard.first));
    let file = format!("{part}.txt");
    match asked.turn() {
        0 => calls(asked, &[("Read", json!({"file_path": "README.md"})), ("Write", json!({"file_path": file, "content": "once\n"}))]),
        1 => call(asked, "Edit", json!({"file_path": file, "old_string": "once", "new_string": format!("once {part}")})),
        2 => call(asked, "Read", json!({"file_path": file})),
        _ if heard.last.contains(&format!("once {part}")) => done("Done."),
        _ => done("The file is not what it should be."),
    }
}

/// Returns whether a request is a coder's second: the first of several goes alone until its reply begins.
pub(super) fn is_coder_under_way(asked: &Asked) -> bool {
    asked.turn() == 1 && heard(asked).first.contains("Write the ")
}

/// Asserts what holds of all conversations of a run: nothing was refused, each request begins with all of the one before,
/// and the parts of one step share tools and system text.
#[track_caller]
pub(super) fn check_requests(server: &Hosted) {
    assert_eq!(server.problems(), Vec::<String>::new());
    let mut conversations: BTreeMap<String, Vec<Asked>> = BTreeMap::new();
    let mut coders = Vec::new();
    for asked in server.asked() {
        let heard = heard(&asked);
        if heard.first.contains("Write the ") {
            coders.push(head(&asked));
        }
        let place = between(&heard.first, "Your work is ", "\n").unwrap_or("orchestrator").to_owned();
        conversations.entry(place).or_default().push(asked);
    }
    for (place, requests) in &conversations {
        for pair in requests.windows(2) {
            let [before, after] = [&pair[0], &pair[1]].map(unmarked);
            // What closes the last message and the list gives way to what follows.
            let shared = before.trim_end_matches(['}', ']']);
            assert!(after.starts_with(shared), "{place}: a request does not begin with the one before:\n{before}\n---\n{after}");
        }
    }
    assert!(coders.windows(2).all(|pair| pair[0] == pair[1]), "items of one step differ before their first message");
}

/// Returns the body up to the end of what was said, without the marks that move.
fn unmarked(asked: &Asked) -> String {
    let body = String::from_utf8(asked.body.clone()).unwrap();
    let end = [r#"],"max_tokens":"#, r#"],"generationConfig":"#].iter().find_map(|behind| body.rfind(behind)).unwrap_or(body.len());
    body[..end].replace(r#","cache_control":{"type":"ephemeral"}"#, "")
}

/// Returns everything of a body before the user's first message.
fn head(asked: &Asked) -> String {
    unmarked(asked).split_once(r#"{"role":"user""#).unwrap().0.to_owned()
}
