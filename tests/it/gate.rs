//! The one gate: whatever forbids a call stops every tool there is, for every kind of agent, and on resume too.
use crate::{
    driver::{self, Drive, Line, Sent},
    fixture::{Bench, outcome, results},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Record},
    llm::ModelCall,
    message::{Reply, StopReason},
    tools::Toolbox,
};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::Path,
    sync::atomic::{AtomicBool, AtomicU32, Ordering},
};

/// The orchestrator's powers, which are tools too.
const POWERS: [&str; 3] = ["AddItems", "RetryItem", "StopItem"];

/// What sub-agents are asked for.
const SUB_TASK: &str = "Say the word.";

const WORKFLOW: &str = r#"
version: 1
name: gated
agents:
  worker: { system: "You work.", access: write, tools: [Agent, Bash, Edit, Glob, Grep, Read, Skill, Write], skills: [lore], hooks: [HOOKS], permissions: { RULES } }
orchestrator: { agent: worker, may: [add_items, retry, stop], max_added: 3, wake: [item_failed] }
steps:
  main: { agent: worker, prompt: "Do it." }
  build:
    for_each: { items: ["a", "b"], as: it, max_parallel: 1, join: all_done }
    agent: worker
    prompt: "Build {{ it }}."
  left: { run: "echo left > clash.txt", scope: ["clash.txt"] }
  right: { run: "echo right > clash.txt", scope: ["clash.txt"] }
  join: { needs: [left, right], merge: { from: [left, right], on_conflict: { agent: worker, attempts: 1, then: eject } } }
  all: { needs: [main, build], merge: { from: [main, build] } }
  end: { needs: [join, all], merge: { from: [join, all] } }
"#;

const DENY: &str = r#"{"hooks":{"PreToolUse":[{"matcher":"*","hooks":[{"type":"command","command":"echo no way >&2; exit 2"}]}]}}"#;

/// A rule of its own for every tool, none of them a bare name, which would hide the tool from the model.
fn rule(tool: &str) -> &'static str {
    match tool {
        "Agent" => "Agent(worker)",
        "Bash" => "Bash(touch:*)",
        "Edit" => "Edit(**)",
        "Glob" => "Glob(**)",
        "Grep" => "Grep(**)",
        "Read" => "Read(**)",
        "Skill" => "Skill(lore)",
        "Write" => "Write(**)",
        "AddItems" => "AddItems",
        "RetryItem" => "RetryItem",
        "StopItem" => "StopItem",
        other => panic!("a new tool `{other}`: say how a rule forbids it, and what its effect is"),
    }
}

/// A call of each tool whose effect can be seen from outside.
fn input(tool: &str, node: &str) -> Value {
    let file = if node.starts_with("join") { "clash.txt".to_owned() } else { format!("made-{}.txt", node.replace('/', "-")) };
    match tool {
        "Agent" => json!({"description": "a word", "prompt": SUB_TASK, "subagent_type": "worker"}),
        // Only where it ran are the pieces joined; it leaves nothing, so that it disturbs no scope.
        "Bash" => json!({"command": "echo BASH-'RAN'; touch ran.txt; rm ran.txt"}),
        "Edit" => json!({"file_path": file, "old_string": "WRITTEN", "new_string": "EDITED"}),
        "Glob" => json!({"pattern": "*-hidden.txt"}),
        "Grep" => json!({"pattern": "TREASURE", "output_mode": "content"}),
        "Read" => json!({"file_path": "well-hidden.txt"}),
        "Skill" => json!({"skill": "lore"}),
        "Write" => json!({"file_path": file, "content": "WRITTEN here\n"}),
        "AddItems" => json!({"step": "build", "items": ["c"]}),
        "RetryItem" => json!({"step": "build", "key": "a"}),
        "StopItem" => json!({"step": "build", "key": "b"}),
        other => panic!("a new tool `{other}`: say how it is called"),
    }
}

/// What shows in a result that a tool had its effect.
fn sign(tool: &str) -> Option<&'static str> {
    match tool {
        "Agent" => Some("SUB-AGENT-RAN"),
        "Bash" => Some("BASH-RAN"),
        "Glob" => Some("well-hidden.txt"),
        "Grep" | "Read" => Some("TREASURE"),
        "Skill" => Some("LORE-BODY"),
        _ => None,
    }
}

fn bench(hooks: &str, rules: &str) -> Bench {
    let bench = Bench::new()
        .file("well-hidden.txt", "TREASURE\n")
        .file(".gitignore", ".spinney/\n")
        .commit("a treasure")
        .file(".spinney/skills/lore/SKILL.md", "---\nname: lore\ndescription: Old knowledge.\n---\nLORE-BODY\n")
        .file(".spinney/hooks/deny.json", DENY)
        .workflow("gated", &WORKFLOW.replace("HOOKS", hooks).replace("RULES", rules));
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

/// Every tool in an order in which each finds what it needs.
fn every_tool(declared: &[String]) -> Vec<&str> {
    let mut tools: Vec<&str> = declared.iter().map(String::as_str).collect();
    tools.sort_by_key(|tool| match *tool {
        "Edit" => 2,
        "Write" => 1,
        _ => 0,
    });
    tools
}

/// An agent that makes a call of every tool it has, then ends. Item `a` fails the first time; item `b` works on until the
/// orchestrator has had its say.
fn model() -> impl Fn(&Sent, &ModelCall<'_>) -> Line + Send + Sync + 'static {
    let said = AtomicBool::new(false);
    let tries = AtomicU32::new(0);
    move |sent, _| {
        if sent.messages[0].ends_with(SUB_TASK) {
            return Line::say("SUB-AGENT-RAN");
        }
        let first = !sent.messages.iter().any(|message| message.contains("[call]"));
        if first {
            let calls = every_tool(&sent.tools).into_iter().map(|tool| (tool.to_owned(), input(tool, &sent.node)));
            return Line::Say(String::new(), calls.filter(|_| sent.node != "build/b" && sent.node != "build/c").chain(spin(sent)).collect());
        }
        match sent.node.as_str() {
            "build/a" if tries.fetch_add(1, Ordering::SeqCst) == 0 => Line::Whole(Box::new(stopped(StopReason::Refusal { category: String::new() }))),
            "build/b" if !said.load(Ordering::SeqCst) => Line::Say(String::new(), spin(sent).collect()),
            node if node.contains("orchestrator") => {
                said.store(true, Ordering::SeqCst);
                Line::say("That was my say.")
            }
            _ => Line::say("done"),
        }
    }
}

fn spin(sent: &Sent) -> impl Iterator<Item = (String, Value)> + use<> {
    let waits = sent.node == "build/b" || sent.node == "build/c";
    waits.then(|| ("Read".to_owned(), json!({"file_path": "README.md", "offset": sent.messages.len() + 1}))).into_iter()
}

fn stopped(stop: StopReason) -> Reply {
    Reply { stop, ..spinney::llm::script::reply("I would rather not.", &[]) }
}

/// The kinds of agent, by the node they work at.
fn kind(node: &str) -> &'static str {
    match node {
        "main" => "main",
        "build/a" => "item",
        _ if node.starts_with("join") => "resolver",
        _ if node.contains("orchestrator") => "orchestrator",
        _ => "other",
    }
}

/// What came of the calls: by kind of agent and tool, the verdicts and the texts.
fn answers(records: &[Record]) -> BTreeMap<(&'static str, String), Vec<(String, String)>> {
    let mut answers: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for record in records {
        if let Event::ToolFinished { node, tool, verdict, result, .. } = &record.event {
            answers.entry((kind(&node.to_string()), tool.clone())).or_default().push((verdict.clone(), result.text.clone()));
        }
    }
    answers
}

fn expected() -> BTreeSet<(&'static str, String)> {
    let toolbox = Toolbox::standard();
    let standard: Vec<String> = toolbox.names().map(str::to_owned).collect();
    assert!(standard.len() >= 7, "{standard:?}");
    let all = ["main", "item", "resolver", "orchestrator"].into_iter().flat_map(|kind| standard.iter().map(move |tool| (kind, tool.clone())));
    // It only reads.
    let all = all.filter(|(kind, tool)| *kind != "orchestrator" || !["Edit", "Write"].contains(&tool.as_str()));
    all.chain(POWERS.map(|power| ("orchestrator", power.to_owned()))).collect()
}

/// Returns every trace that calls of these agents left: in results, in files, in commits, in the run itself.
fn traces(bench: &Bench, records: &[Record]) -> BTreeSet<(String, String)> {
    let mut traces = BTreeSet::new();
    for ((kind, tool), said) in answers(records) {
        if kind != "other" && sign(&tool).is_some_and(|sign| said.iter().any(|(_, text)| text.contains(sign))) {
            traces.insert((kind.to_owned(), tool));
        }
    }
    for record in records {
        match &record.event {
            Event::ItemsAdded { by, .. } if by.to_string().contains("orchestrator") => drop(traces.insert(("orchestrator".into(), "AddItems".into()))),
            // A command that was cut short is tried again, too, and nobody asked for it.
            Event::RetryScheduled { node, .. } if kind(&node.to_string()) != "other" => drop(traces.insert(("orchestrator".into(), "RetryItem".into()))),
            Event::StepFinished { node, .. } if outcome(records, &node.to_string())["skipped"] == "stopped" => {
                traces.insert(("orchestrator".into(), "StopItem".into()));
            }
            Event::WorkCaptured { node, commit, .. } => {
                for (word, tool) in [("WRITTEN", "Write"), ("EDITED", "Edit")] {
                    let found = bench.git(&["log", "-1", "-p", "--format=", commit.0.as_str()]);
                    if found.contains(word) {
                        traces.insert((kind(&node.to_string()).to_owned(), tool.to_owned()));
                    }
                }
            }
            _ => {}
        }
    }
    // Whatever was not captured would still lie in a worktree.
    if written(&bench.path("cache")) {
        traces.insert(("some".to_owned(), "worktree".to_owned()));
    }
    traces
}

fn written(folder: &Path) -> bool {
    fs::read_dir(folder).into_iter().flatten().flatten().any(|entry| {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        let held = |path: &Path| fs::read_to_string(path).is_ok_and(|text| text.contains("WRITTEN here") || text.contains("EDITED here"));
        if kind.is_dir() { written(&path) } else { kind.is_file() && held(&path) }
    })
}

fn hooks_that_denied(records: &[Record]) -> BTreeSet<&'static str> {
    let of = |record: &Record| match &record.event {
        Event::HookRan { node, hook, verdict, .. } if hook == "deny" && verdict.word() == "deny" => Some(kind(&node.to_string())),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

/// Asserts that every tool of every kind of agent was called and refused with this verdict, and that nothing came of it.
fn nothing_came_of_anything(bench: &Bench, records: &[Record], verdict: &str) {
    let answers = answers(records);
    let called: BTreeSet<_> = answers.keys().filter(|(kind, _)| *kind != "other").cloned().collect();
    assert_eq!(called, expected());
    for (what, said) in &answers {
        for (got, text) in said.iter().filter(|_| what.0 != "other") {
            assert_eq!(got, verdict, "{what:?}: {text}");
        }
    }
    let started = records.iter().filter(|record| matches!(&record.event, Event::ToolStarted { node, .. } if kind(&node.to_string()) != "other")).count();
    assert_eq!((traces(bench, records), started), (BTreeSet::new(), 0));
}

#[test]
fn without_a_deny_every_tool_of_every_agent_has_its_effect() {
    let bench = bench("", "");
    let drive = bench.drive(model());
    let (ended, records) = drive.run("gated");
    assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
    let mut wanted: BTreeSet<(String, String)> = expected().into_iter().map(|(kind, tool)| (kind.to_owned(), tool)).collect();
    // The orchestrator only ever reads. What was written was edited at once, so that both show as one in the end.
    for tool in ["Bash", "Edit", "Write"] {
        wanted.remove(&("orchestrator".to_owned(), tool.to_owned()));
        assert!(answers(&records).get(&("orchestrator", tool.to_owned())).is_none_or(|said| said.iter().all(|(verdict, _)| verdict == "denied by its access")));
    }
    wanted.retain(|(_, tool)| tool != "Write");
    let mut found = traces(&bench, &records);
    found.remove(&("some".to_owned(), "worktree".to_owned()));
    // The resolver's worktree is gone and its work is part of the merge's commit, whose record is not that of work.
    if bench.git(&["log", "-p", "--all", "--format=%H"]).contains("EDITED here") {
        wanted.remove(&("resolver".to_owned(), "Edit".to_owned()));
    }
    found.remove(&("resolver".to_owned(), "Edit".to_owned()));
    assert_eq!(found, wanted);
}

#[test]
fn a_deny_by_a_hook_stops_every_tool_of_every_agent() {
    let bench = bench("deny", "");
    let drive = bench.drive(model());
    let (_, records) = drive.run("gated");
    nothing_came_of_anything(&bench, &records, "denied by a hook");
    assert_eq!(hooks_that_denied(&records).into_iter().filter(|kind| *kind != "other").count(), 4);
}

#[test]
fn a_deny_by_a_rule_stops_every_tool_of_every_agent() {
    let toolbox = Toolbox::standard();
    let rules: Vec<String> = toolbox.names().chain(POWERS).map(|tool| format!("\"{}\"", rule(tool))).collect();
    // What allows as much as it can changes nothing.
    let bench = bench("", &format!("deny: [{}], allow: [Agent, Bash, Edit, Glob, Grep, Read, Skill, Write, AddItems, RetryItem, StopItem]", rules.join(", ")));
    let drive = bench.drive(model());
    let (_, records) = drive.run("gated");
    nothing_came_of_anything(&bench, &records, "denied by a rule");
}

#[test]
fn a_tool_forbidden_as_a_whole_is_neither_declared_nor_to_be_had() {
    let toolbox = Toolbox::standard();
    let names: Vec<&str> = toolbox.names().collect();
    let bench = bench("", &format!("deny: [{}]", names.join(", ")));
    let declared: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    let drive = bench.drive(move |sent, _| {
        if sent.node != "main" || sent.turn() > 0 {
            return Line::say("done");
        }
        let calls = every_tool(&declared).into_iter().map(|tool| (tool.to_owned(), input(tool, "main"))).collect();
        Line::Say(String::new(), calls)
    });
    let (_, records) = drive.run("gated");
    assert!(drive.sent().iter().filter(|sent| sent.node == "main").all(|sent| sent.tools.is_empty()));
    assert_eq!(results(&records, "main").len(), names.len());
    assert!(results(&records, "main").iter().all(|(_, is_error, text)| *is_error && text.starts_with("there is no tool")));
    assert_eq!(traces(&bench, &records), BTreeSet::new());
}

#[test]
fn a_deny_holds_after_a_resume() {
    for (hooks, rules, verdict) in [("deny", String::new(), "denied by a hook"), ("", every_rule(), "denied by a rule")] {
        for stop_at in ["main", "build/a", "join", "orchestrator"] {
            let bench = bench(hooks, &rules);
            let drive = bench.drive(model());
            // The process ends with the calls recorded and none of them answered.
            let (ended, before) =
                drive.run_until("gated", |record| matches!(&record.event, Event::ModelReplied { node, .. } if node.to_string().contains(stop_at)));
            assert_eq!(ended, Ended::Interrupted, "{stop_at}");
            let (ended, records) = resumed(&drive);
            assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
            let later = answers(&records[before.len()..]);
            assert!(later.keys().any(|(kind, _)| kind_of_stop(stop_at) == *kind), "{stop_at} answered nothing after the resume");
            nothing_came_of_anything(&bench, &records, verdict);
        }
    }
}

fn every_rule() -> String {
    let toolbox = Toolbox::standard();
    let rules: Vec<String> = toolbox.names().chain(POWERS).map(|tool| format!("\"{}\"", rule(tool))).collect();
    format!("deny: [{}]", rules.join(", "))
}

fn kind_of_stop(node: &str) -> &'static str {
    if node == "join" { "resolver" } else { kind(node) }
}

fn resumed(drive: &Drive<'_>) -> (Ended, Vec<Record>) {
    drive.resume("gated")
}

const SECRETS: &str = r#"
version: 1
name: secrets
agents: { worker: { system: "You work.", access: write, permissions: { deny: ["Read(secret/**)", "Read(key.txt)"] } } }
steps:
  work: { agent: worker, prompt: "Do it." }
"#;

#[test]
fn what_a_rule_keeps_from_reading_is_found_by_no_search_and_no_command() {
    let bench = Bench::new()
        .file("secret/deep/a.txt", "TREASURE\n")
        .file("key.txt", "TREASURE\n")
        .file("open.txt", "TREASURE\n")
        .file(".gitignore", ".spinney/\n")
        .commit("secrets")
        .workflow("secrets", SECRETS);
    let denied = [
        ("Read", json!({"file_path": "key.txt"})),
        ("Read", json!({"file_path": "secret/deep/a.txt"})),
        ("Read", json!({"file_path": "open.txt/../key.txt"})),
        ("Grep", json!({"pattern": "TREASURE", "path": "secret", "output_mode": "content"})),
        ("Grep", json!({"pattern": "TREASURE", "path": "secret/deep", "output_mode": "content"})),
        ("Grep", json!({"pattern": "TREASURE", "path": "key.txt", "output_mode": "content"})),
        ("Glob", json!({"pattern": "**/*", "path": "secret"})),
        ("Edit", json!({"file_path": "key.txt", "old_string": "TREASURE", "new_string": "x"})),
        ("Write", json!({"file_path": "secret/new.txt", "content": "x\n"})),
        ("Bash", json!({"command": "cat key.txt"})),
        ("Bash", json!({"command": "grep TREASURE secret/deep/a.txt"})),
        ("Bash", json!({"command": "head -1 < key.txt"})),
    ];
    let around = [
        ("Grep", json!({"pattern": "TREASURE", "output_mode": "content"})),
        ("Grep", json!({"pattern": "TREASURE"})),
        ("Glob", json!({"pattern": "**/*.txt"})),
    ];
    let calls: Vec<(String, Value)> = denied.iter().chain(&around).map(|(tool, input)| ((*tool).to_owned(), input.clone())).collect();
    let drive = bench.drive(move |sent, _| if sent.turn() == 0 { Line::Say(String::new(), calls.clone()) } else { Line::say("done") });
    let (_, records) = drive.run("secrets");
    let all = driver::answers(&records, "work");
    for ((tool, input), (_, is_error, text)) in denied.iter().zip(&all) {
        assert!(*is_error && text.contains("forbids"), "{tool} {input}: {text}");
    }
    let told: Vec<&str> =
        records.iter().filter_map(|record| if let Event::ToolFinished { result, .. } = &record.event { Some(result.text.as_str()) } else { None }).collect();
    let open: Vec<&&str> = told.iter().filter(|text| text.contains("open.txt")).collect();
    assert_eq!(open.len(), 3, "the searches find what may be read: {told:?}");
    assert!(open.iter().all(|text| !text.contains("key.txt") && !text.contains("deep")), "{open:?}");
}
