//! That what ships for the demo fits together, and that its script reacts: what it says follows from what it was shown.
use super::*;
use crate::{
    event::{NodeId, StepId},
    library::{Kind, Library, Places},
    llm::{Model as _, ModelCall, Ordinal, Silent, script::Script},
    message::{Message, Reply, ToolCall, ToolResult},
    source::Source,
    workflow::Workflow,
};
use serde_json::Value;
use std::sync::Arc;

const GOAL: &str =
    "Plan this change so that …:\n\nLet a report count characters and paragraphs as well, and let `sentences` know the abbreviation \"approx.\".\n";

fn load(name: &str) -> Workflow {
    let library = Library::discover(&Places::default());
    let found = library.find(Kind::Workflow, name).unwrap();
    Workflow::load(&Arc::new(Source { name: found.path.clone(), text: found.text.clone() })).unwrap_or_else(|errors| panic!("{errors}"))
}

/// A conversation of one agent with the script.
struct Talk {
    agent: &'static str,
    script: Script,
    messages: Vec<Arc<Message>>,
}

impl Talk {
    fn new(agent: &'static str, told: &str) -> Talk {
        Talk { agent, script: Script::parse("demo.script.yaml", script()).unwrap(), messages: vec![Arc::new(Message::user(told))] }
    }

    /// Says something as the engine does, and returns what is answered.
    async fn say(&mut self, text: &str) -> Reply {
        self.messages.push(Arc::new(Message::user(text)));
        self.turn().await
    }

    async fn turn(&mut self) -> Reply {
        let node = NodeId::step(&StepId::from("s"));
        let call = ModelCall {
            node: &node,
            ordinal: Ordinal::default(),
            agent: self.agent,
            models: &[],
            effort: None,
            max_output_tokens: None,
            is_longest: false,
            prompt_tokens: 0,
            system: "",
            tools: &[],
            provider_tools: &[],
            output_schema: None,
            must_answer: false,
            is_paused: false,
            container: None,
            messages: &self.messages,
        };
        let reply = self.script.reply(&call, &Silent).await.unwrap();
        self.messages.push(Arc::new(reply.message().unwrap()));
        reply
    }

    /// Answers every call of the last reply, the last answer for those that are left, and returns the next reply.
    async fn answer(&mut self, answers: &[&str]) -> Reply {
        let calls: Vec<ToolCall> = self.messages.last().unwrap().calls().cloned().collect();
        assert!(!calls.is_empty());
        let texts = answers.iter().chain(std::iter::repeat(answers.last().unwrap()));
        let results: Vec<ToolResult> = calls.iter().zip(texts).map(|(call, text)| ToolResult::new(&call.id, *text, false)).collect();
        self.messages.push(Arc::new(Message::results(&results, None)));
        self.turn().await
    }
}

fn calls(reply: &Reply) -> Vec<(&str, &str)> {
    let fields = ["command", "file_path", "pattern", "skill", "step"];
    reply.calls().map(|call| (call.name.as_str(), fields.iter().find_map(|field| call.input.get(*field)?.as_str()).unwrap_or_default())).collect()
}

/// Shows a text as Read does.
fn read(text: &str) -> String {
    let lines: Vec<String> = text.lines().enumerate().map(|(at, line)| format!("{:>6}\t{line}\n", at + 1)).collect();
    lines.concat()
}

fn file(path: &str) -> &'static str {
    files().iter().find(|(name, _)| *name == path).unwrap().1
}

#[test]
fn the_shipped_workflows_load() {
    for name in ["demo", "feature"] {
        assert_eq!(load(name).name.value, name);
    }
}

#[test]
fn the_crate_is_whole() {
    assert!(files().is_sorted_by_key(|(path, _)| path));
    assert!(file("src/abbreviations.rs").contains("@generated"));
    for (path, text) in files() {
        assert!(text.ends_with('\n') && !text.contains('\r'), "{path}");
    }
}

#[tokio::test]
async fn the_plan_names_what_the_searches_found_and_fits_its_schema() {
    let mut talk = Talk::new("planner", GOAL);
    assert_eq!(talk.turn().await.calls().count(), 3);
    let looked = talk.answer(&["src/table.rs", "src/table.rs:13:pub const MEASURES: &[(&str, Count)] = &[", "none"]).await;
    assert_eq!(calls(&looked)[0], ("Read", "src/table.rs"));
    let table = read(file("src/lib.rs"));
    let plan = talk.answer(&[&table, "lines", "src/table.rs:13:pub const MEASURES: &[(&str, Count)] = &["]).await;
    let plan: Value = serde_json::from_str(&plan.text()).unwrap();
    let schemas = load("demo").schemas;
    let schema = &schemas.iter().find(|(name, _)| name.value == "plan").unwrap().1.value;
    assert!(jsonschema::is_valid(schema, &plan));
    assert_eq!(plan["tasks"][0]["scope"], serde_json::json!(["src/characters.rs", "src/table.rs"]));
    assert!(plan["tasks"][2]["prompt"].as_str().unwrap().contains("\"approx.\"") && plan["tasks"][0]["prompt"].as_str().unwrap().contains("after `sentences`"));

    let mut lost = Talk::new("planner", GOAL);
    lost.turn().await;
    let answer = lost.answer(&["", "Nothing matches.", ""]).await;
    assert!(answer.calls().count() == 0 && serde_json::from_str::<Value>(&answer.text()).is_err());
}

#[tokio::test]
async fn the_orchestrator_follows_its_digests() {
    let told =
        "You are the orchestrator of run demo-x of the workflow `demo`. …\nInputs: {\"goal\":\"Let a report count characters and paragraphs as well, …\"}";
    let mut talk = Talk::new("planner", told);
    assert!(talk.say("<digest>\nstep plan: open\n</digest>\n\nThe run begins.").await.text().starts_with("The plan comes first"));
    let one = talk.say("<digest>\n- build/abbreviations succeeded (changed data/a.txt, src/a.rs): Done.\nstep plan: succeeded\nstep build: open, 1 of 3 items ended\n</digest>\n\nSomething has changed.").await;
    assert_eq!(one.text(), "`abbreviations` is done, 1 of 3: data/a.txt, src/a.rs.");
    let two = talk.say("<digest>\n- build/b succeeded: x\n- build/c succeeded: y\n</digest>").await;
    assert!(two.text().starts_with("`b` and `c` are done"));
    let last = talk.say("<digest>\n- build/b succeeded: x\nstep build: open, 3 of 3 items ended\n</digest>").await;
    assert_eq!(last.text(), "`b` is done, the last of 3.");
    let undone = "<digest>\n- build/characters succeeded: x\n- build/paragraphs succeeded (changed x): Fine.\nLeft undone: DOC.md does not list it.\n</digest>";
    let added = talk.say(undone).await;
    let call = added.calls().next().unwrap();
    let item = &call.input["items"][0];
    assert_eq!(
        (call.name.as_str(), item["scope"][0].as_str(), item["title"].as_str()),
        ("AddItems", Some("DOC.md"), Some("List characters and paragraphs in DOC.md"))
    );
    assert!(talk.answer(&["added to `build`: docs"]).await.text().contains("`build`: docs"));
    assert!(talk.say("<digest>\n- build/docs failed: no\n</digest>").await.text().starts_with("`docs` failed (no)"));
    let end = "<digest>\nstep plan: succeeded\nstep build: succeeded, 4 of 4 items ended\nstep land: succeeded\n</digest>\n\nEverything has ended. …";
    assert!(talk.say(end).await.text().starts_with("All 4 items were built"));
    let end = "<digest>\nstep build: failed, 4 of 4 items ended\nstep land: skipped\n</digest>\n\nEverything has ended. …";
    assert!(talk.say(end).await.text().contains("`build` is failed, `land` is skipped"));
}

#[tokio::test]
async fn a_denied_edit_makes_the_coder_find_another_way() {
    let found = "src/abbreviations.rs:8:    \"e.g.\",";
    let start = async || {
        let mut talk = Talk::new("coder", "Teach the measure `sentences` the abbreviation \"approx.\": …");
        talk.turn().await;
        let edits = talk.answer(&[found, &read(file("src/sentences.rs"))]).await;
        assert_eq!(calls(&edits), [("Edit", "src/abbreviations.rs"), ("Edit", "src/sentences.rs")]);
        talk
    };
    let mut denied = start().await;
    let looks =
        denied.answer(&["`abbreviations.rs` is generated; it says: // @generated by tools/make.sh from list.txt; do not edit.\nChange …", "Changed"]).await;
    assert_eq!(calls(&looks), [("Read", "tools/make.sh"), ("Read", "list.txt")]);
    let mends = denied.answer(&[&read(file("scripts/abbreviations.sh")), &read(file("data/abbreviations.txt"))]).await;
    let wanted = [("Edit", "data/abbreviations.txt"), ("Bash", "sh scripts/abbreviations.sh"), ("Grep", "\"approx.\""), ("Bash", "cargo test --offline -q")];
    assert_eq!(calls(&mends), wanted);
    let done = denied.answer(&["Changed", "(no output)", "src/abbreviations.rs:8:    \"approx.\",", "test result: ok. 7 passed; 0 failed"]).await;
    assert!(done.text().contains("a hook kept me from editing it by hand"), "{}", done.text());

    let mut free = start().await;
    assert_eq!(calls(&free.answer(&["Changed `src/abbreviations.rs`."]).await), [("Bash", "cargo test --offline -q")]);
    assert!(free.answer(&["test result: ok. 7 passed; 0 failed"]).await.text().contains("by hand"));
}

#[tokio::test]
async fn a_red_test_is_mended_and_a_green_one_is_not() {
    let start = async || {
        let mut talk = Talk::new("coder", "Add the measure `paragraphs`: …");
        talk.turn().await;
        let edits = talk.answer(&[&read(file("src/lib.rs")), &read(file("src/lines.rs")), "x"]).await;
        assert_eq!(calls(&edits), [("Write", "src/paragraphs.rs"), ("Edit", "src/lib.rs"), ("Edit", "src/lib.rs")]);
        talk.answer(&["Changed"]).await;
        talk
    };
    let mut red = start().await;
    let mends = red.answer(&["  left: 3\n right: 2\n\ntest result: FAILED. 5 passed; 1 failed\n[exit code 101]", "OTHER.md:9:| x"]).await;
    assert!(mends.text().contains("3 where 2 was wanted") && calls(&mends)[0] == ("Edit", "src/paragraphs.rs"));
    assert!(red.answer(&["Changed", "test result: ok. 7 passed", "OTHER.md:9:| `sentences` | x |"]).await.text().contains("Left undone: OTHER.md does not"));
    let mut green = start().await;
    let done = green.answer(&["test result: ok. 7 passed", "Nothing matches."]).await;
    assert!(done.calls().count() == 0 && !done.text().contains("Left undone"), "{}", done.text());
}

fn conflict(regions: &[(&str, &str)]) -> String {
    let regions: Vec<String> = regions.iter().map(|(ours, theirs)| format!("(from line 19)\n<<<<<<< ours\n{ours}=======\n{theirs}>>>>>>> theirs\n")).collect();
    format!(
        "<workspace>\nYou stand in /tmp/x\n</workspace>\n\nFiles in conflict:\n- src/a.rs (contents)\n\nIn src/a.rs:\n{}\n\nKeep the intent of both sides. Edit the files so that no conflict marker (<<<<<<<, |||||||, =======, >>>>>>>) is left, then end your turn.",
        regions.concat()
    )
}

#[tokio::test]
async fn another_conflict_gives_another_resolution() {
    for (ours, theirs) in [("    (\"a\", a),\n", "    (\"b\", b),\n"), ("x ${path}\n\ny\n", ""), ("<<<\n", "==\n")] {
        let mut talk = Talk::new("resolver", &conflict(&[(ours, theirs)]));
        assert_eq!(calls(&talk.turn().await), [("Skill", "merge-conflicts"), ("Read", "src/a.rs")]);
        let edit = talk.answer(&["x"]).await;
        let edit = edit.calls().next().unwrap();
        assert_eq!(edit.input["old_string"], format!("<<<<<<< ours\n{ours}=======\n{theirs}>>>>>>> theirs\n"));
        assert_eq!(edit.input["new_string"], format!("{ours}{theirs}"));
        assert!(talk.answer(&["Changed", "Nothing matches.", "test result: ok. 9 passed"]).await.text().contains("9 tests pass"));
    }
    let mut two = Talk::new("resolver", &conflict(&[("a\n", "b\n"), ("c\n", "d\n")]));
    assert_eq!(two.turn().await.calls().count(), 0, "two regions are more than it can settle");
}
