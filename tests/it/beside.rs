//! Calls of one reply, which are made at the same time where they do not touch each other: what each of them did is there in the end.
use crate::{
    driver::Line,
    fixture::{Bench, outcome, results},
};
use async_trait::async_trait;
use serde_json::{Value, json};
use spinney::{
    event::{Event, Record},
    message::ToolSpec,
    tools::{Effect, Tool, ToolContext, ToolError, ToolOutput},
};
use std::{fs, sync::Arc};

const VALUE: &str = "s3cr3t/va+lue=97";

/// A repository with one writing agent under one hook file, trusted, that knows a secret.
fn bench(hook: &Value) -> Bench {
    let workflow = "version: 1\nname: one\nsecrets: [TOKEN]\nagents:\n  worker: { system: \"You work.\", access: write, hooks: [h], permissions: { allow: [Bash] } }\n\
                    steps:\n  work: { agent: worker, prompt: \"Do it.\", timeout: 20s }\n";
    let bench = Bench::new()
        .file("a.txt", &format!("the key is {VALUE}\n"))
        .file("n.txt", "one\ntwo\n")
        .file(".gitignore", ".spinney/\n")
        .commit("old")
        .file(".spinney/hooks/h.json", &hook.to_string())
        .workflow("one", workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench.env("TOKEN", VALUE)
}

/// Makes the calls in one reply, then ends; returns the records.
fn at_once(bench: &Bench, calls: &[(&str, Value)]) -> Vec<Record> {
    let calls: Vec<(String, Value)> = calls.iter().map(|(tool, input)| ((*tool).to_owned(), input.clone())).collect();
    bench.drive(move |sent, _| if sent.turn() == 0 { Line::Say(String::new(), calls.clone()) } else { Line::say("done") }).run("one").1
}

fn kept(bench: &Bench, records: &[Record], path: &str) -> String {
    let commit = records.iter().find_map(|record| if let Event::WorkCaptured { commit, .. } = &record.event { Some(commit.to_string()) } else { None });
    bench.git(&["show", &format!("{}:{path}", commit.unwrap())])
}

fn write(path: &str, content: &str) -> (&'static str, Value) {
    ("Write", json!({"file_path": path, "content": content}))
}

#[test]
fn a_rollback_takes_nothing_of_the_calls_beside_it() {
    let refuses = json!({"onBlock": "rollback", "hooks": {"PostToolUse": [{"matcher": "Write", "hooks": [
        {"type": "command", "command": "sleep 0.2; if grep -q '\"file_path\":\"a.txt\"'; then echo 'not this' >&2; exit 2; fi"}]}]}});
    let bench = bench(&refuses);
    let records = at_once(&bench, &[write("a.txt", "no key\n"), write("b.txt", "kept\n"), write("c.txt", "kept too\n")]);
    let all = results(&records, "work");
    assert_eq!(all.iter().map(|(_, is_error, _)| *is_error).collect::<Vec<_>>(), [true, false, false], "{all:?}");
    assert_eq!((kept(&bench, &records, "b.txt"), kept(&bench, &records, "c.txt")), ("kept\n".to_owned(), "kept too\n".to_owned()));
    assert!(kept(&bench, &records, "a.txt").contains(VALUE));
}

#[test]
fn calls_that_a_hook_leads_to_the_same_file_are_made_one_after_the_other() {
    let rewrites = json!({"hooks": {"PreToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command":
        "sed -n 's/.*\"tool_input\":\\({[^}]*}\\).*/\\1/p' | sed 's/alias.txt/n.txt/; s/^/{\"hookSpecificOutput\":{\"hookEventName\":\"PreToolUse\",\"updatedInput\":/; s/$/}}/'"}]}]}});
    let bench = bench(&rewrites);
    let edit = |path: &str, old: &str, new: &str| ("Edit", json!({"file_path": path, "old_string": old, "new_string": new}));
    let records = at_once(&bench, &[edit("alias.txt", "one", "eins"), edit("n.txt", "two", "zwei")]);
    let all = results(&records, "work");
    assert!(all.iter().all(|(_, is_error, _)| !is_error), "{all:?}");
    assert_eq!(kept(&bench, &records, "n.txt"), "eins\nzwei\n");
}

#[test]
fn a_write_to_a_pipe_is_refused_and_holds_nothing_up() {
    let bench = bench(&json!({"hooks": {}}));
    let drive = bench.drive(|sent, _| match sent.turn() {
        0 => Line::call("Bash", json!({"command": "mkfifo p && ln -s /dev/zero endless"})),
        1 => {
            Line::Say(String::new(), [write("p", "x\n"), write("endless", "x\n"), write("b.txt", "x\n")].map(|(tool, input)| (tool.to_owned(), input)).to_vec())
        }
        2 => Line::call("Bash", json!({"command": "rm p endless"})),
        _ => Line::say("done"),
    });
    let (_, records) = drive.run("one");
    let all = results(&records, "work");
    assert_eq!(all.iter().map(|(_, is_error, _)| *is_error).collect::<Vec<_>>(), [false, true, true, false, false], "{all:?}");
    assert!(all[1].2.contains("a pipe"), "{}", all[1].2);
    assert!(outcome(&records, "work")["succeeded"].is_object());
}

/// A tool whose effect nobody knows, and which writes a file.
struct Beyond(ToolSpec);

#[async_trait]
impl Tool for Beyond {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn only_reads(&self) -> bool {
        false
    }

    fn effect(&self, _input: &Value, _cx: &ToolContext) -> Effect {
        Effect::External
    }

    async fn call(&self, _input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        fs::write(cx.root.join("made.txt"), "x\n").unwrap();
        Ok(ToolOutput { text: "made \u{1b}[31mred\u{1b}[0m\u{0} \u{202e}it".to_owned(), ..ToolOutput::default() })
    }
}

#[test]
fn what_reaches_beyond_is_put_back_where_a_hook_wants_it_and_read_as_text() {
    for (event, matcher, is_there) in [("PostToolUse", "Beyond", false), ("PostToolUse", "Write", true)] {
        let refuses =
            json!({"onBlock": "rollback", "hooks": {event: [{"matcher": matcher, "hooks": [{"type": "command", "command": "echo no >&2; exit 2"}]}]}});
        let bench = bench(&refuses);
        let spec = ToolSpec { name: "Beyond".to_owned(), description: "Reaches out.".to_owned(), input_schema: json!({"type": "object"}) };
        let drive = bench
            .drive(|sent, _| match sent.turn() {
                0 => Line::Say(String::new(), vec![("Beyond".to_owned(), json!({})), ("Bash".to_owned(), json!({"command": "ls"}))]),
                _ => Line::say("done"),
            })
            .lending(Arc::new(Beyond(spec)));
        let (_, records) = drive.run("one");
        let all = results(&records, "work");
        assert_eq!(all[1].2.contains("made.txt"), is_there, "{all:?}");
        if is_there {
            assert_eq!(all[0].2, "made red \u{fffd}it");
        } else {
            assert!(all[0].2.contains("was put back"), "{all:?}");
        }
    }
}
