//! Sub-agents: what they may touch, what becomes of their work, what bounds them, and that a death changes nothing.
use crate::{
    driver::{Line, Sent, answers},
    fixture::{Bench, outcome},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Delivery, Event, Record},
};
use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

fn workflow(chief: &str, hand: &str) -> String {
    format!(
        r#"version: 1
name: crew
agents:
  chief: {{ system: "You lead.", access: write, tools: [Agent, Read, Write, Bash]{chief} }}
  hand: {{ system: "You do one thing.", description: "Does one thing.", access: write{hand} }}
  eye: {{ system: "You look.", access: read, tools: [Read, Write, Bash] }}
steps:
  lead: {{ agent: chief, prompt: "Have it done." }}
"#
    )
}

fn bench(chief: &str, hand: &str) -> Bench {
    Bench::new()
        .file("a.txt", "one\ntwo\nthree\n")
        .file("b.txt", "b\n")
        .file(".gitignore", ".spinney/\nignored/\n")
        .commit("files")
        .workflow("crew", &workflow(chief, hand))
}

fn hand(prompt: &str) -> (String, Value) {
    start("hand", prompt)
}

fn start(agent: &str, prompt: &str) -> (String, Value) {
    ("Agent".to_owned(), json!({"description": prompt, "prompt": prompt, "subagent_type": agent}))
}

fn write(path: &str, content: &str) -> (String, Value) {
    ("Write".to_owned(), json!({"file_path": path, "content": content}))
}

/// Returns the task a sub-agent was given.
fn task(sent: &Sent) -> &str {
    sent.messages[0].split_once("</workspace>\n\n").map_or("", |(_, task)| task)
}

/// A sub-agent's lines: its task is `write PATH CONTENT`, done in one call.
fn dutiful(sent: &Sent) -> Line {
    match (sent.turn(), task(sent).splitn(3, ' ').collect::<Vec<_>>().as_slice()) {
        (0, ["write", path, content]) => Line::Say(String::new(), vec![write(path, content)]),
        _ => Line::say(&format!("I did: {}", task(sent))),
    }
}

fn is_chief(sent: &Sent) -> bool {
    sent.node == "lead"
}

/// Returns a file as the step's commit has it.
fn landed(bench: &Bench, records: &[Record], path: &str) -> String {
    let commit = outcome(records, "lead")["succeeded"]["commit"].as_str().unwrap_or_default().to_owned();
    assert!(!commit.is_empty(), "{}", outcome(records, "lead"));
    bench.git(&["show", &format!("{commit}:{path}")])
}

/// What agents say to each other across the model: each waits, a call a turn, until so many have come.
#[derive(Clone, Default)]
struct Rendezvous(Arc<AtomicUsize>);

impl Rendezvous {
    /// Comes, once; returns whether enough are here.
    fn meet(&self, sent: &Sent, enough: usize) -> bool {
        if sent.turn() == 0 {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
        self.0.load(Ordering::SeqCst) >= enough
    }
}

/// A call that differs every turn.
fn spin(sent: &Sent) -> Line {
    Line::call("Read", json!({"file_path": "a.txt", "offset": 1 + sent.turn() % 2, "limit": 1 + sent.turn()}))
}

#[test]
fn sub_agents_of_one_reply_work_at_the_same_time_and_their_work_comes_together() {
    let bench = bench("", "");
    let met = Rendezvous::default();
    let drive = bench.drive(move |sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![write("c.txt", "first\n"), hand("one"), hand("two")]),
        (true, _) => Line::say("All done."),
        (false, _) if !met.meet(sent, 2) => spin(sent),
        (false, _) if sent.last().contains("Made") => Line::say(&format!("{} is made.", task(sent))),
        (false, _) => Line::Say(String::new(), vec![write(&format!("{}.txt", task(sent)), "made\n"), ("Bash".into(), json!({"command": "cat c.txt"}))]),
    });
    let (ended, records) = drive.run("crew");
    assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
    let all = answers(&records, "lead");
    assert_eq!(all[1].2, "one is made.\n\n[Its changes are in your files: one.txt]");
    assert_eq!(all[2].2, "two is made.\n\n[Its changes are in your files: two.txt]");
    for helper in ["lead:agent-1-2", "lead:agent-1-3"] {
        assert!(answers(&records, helper).iter().any(|(tool, _, text)| *tool == "Bash" && *text == "first\n"), "{helper} sees what was written before it");
    }
    assert_eq!(["one.txt", "two.txt", "c.txt"].map(|path| landed(&bench, &records, path)), ["made\n", "made\n", "first\n"]);
    nothing_is_left(&bench, &[]);
    let shown = bench.spinney(&["show", &bench.newest().0]).code(0).out;
    assert!(shown.contains(":agent-1-2") && shown.contains(":agent-1-3"), "{shown}");
    let shown = bench.spinney(&["show", &bench.newest().0, "lead:agent-1-2"]).code(0).out;
    assert!(shown.contains("its files are with the agent that asked for them"), "{shown}");
}

#[test]
fn work_that_does_not_fit_changes_nothing_and_is_kept() {
    let bench = bench("", "");
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(
            String::new(),
            vec![hand("write a.txt one"), hand("write a.txt two"), hand("write other.txt x"), ("Read".into(), json!({"file_path": "a.txt"}))],
        ),
        (true, _) => Line::say("Done."),
        (false, _) => dutiful(sent),
    });
    let (_, records) = drive.run("crew");
    let all = answers(&records, "lead");
    assert_eq!([all[0].1, all[1].1, all[2].1], [false, true, false]);
    assert!(all[1].2.contains("do not fit what you have by now, in a.txt. Nothing of yours was changed"), "{}", all[1].2);
    assert!(all[3].2.contains("1\tone"), "what is asked for after the sub-agents sees what they did: {}", all[3].2);
    assert_eq!([landed(&bench, &records, "a.txt"), landed(&bench, &records, "other.txt")], ["one", "x"]);
    let kept = all[1].2.split_once("kept as ").unwrap().1.split_once(',').unwrap().0;
    assert_eq!(bench.git(&["show", &format!("{kept}:a.txt")]), "two");
    let delivered: Vec<bool> = records
        .iter()
        .filter_map(|record| if let Event::WorkDelivered { delivery, .. } = &record.event { Some(matches!(delivery, Delivery::Joined { .. })) } else { None })
        .collect();
    assert_eq!(delivered, [true, false, true]);
    nothing_is_left(&bench, &[]);
}

#[test]
fn so_many_work_at_the_same_time_and_the_rest_queue() {
    let bench = bench(", max_parallel: 2", "");
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), (0..5).map(|n| hand(&format!("write f{n}.txt x"))).collect()),
        (true, _) => Line::say("Done."),
        (false, _) => dutiful(sent),
    });
    let (_, records) = drive.run("crew");
    let (mut now, mut most) = (BTreeSet::new(), 0);
    for record in &records {
        match &record.event {
            Event::AgentBriefed { node, .. } if node.helper.is_some() => drop(now.insert(node.clone())),
            Event::WorkCaptured { node, .. } => drop(now.remove(node)),
            _ => {}
        }
        most = most.max(now.len());
    }
    assert_eq!(most, 2);
    assert!(answers(&records, "lead").iter().all(|(_, is_error, _)| !is_error));
    for n in 0..5 {
        assert_eq!(landed(&bench, &records, &format!("f{n}.txt")), "x");
    }
}

#[test]
fn sub_agents_are_nested_as_deep_as_they_may_be() {
    let bench = bench(", max_depth: 2", ", tools: [Agent, Write], max_depth: 9");
    let drive = bench.drive(|sent, _| match (sent.tools.iter().any(|tool| tool == "Agent"), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![hand("go deeper"), write(&format!("{}.txt", sent.node.replace([':', '/'], "-")), "x\n")]),
        (false, 0) => Line::Say(String::new(), vec![hand("too deep"), write("deepest.txt", "x\n")]),
        _ => Line::say("Done."),
    });
    let (_, records) = drive.run("crew");
    let deepest = answers(&records, "lead:agent-1-1-1-1");
    assert!(deepest[0].1 && deepest[0].2.starts_with("there is no tool `Agent`"), "{deepest:?}");
    for path in ["lead.txt", "lead-agent-1-1.txt", "deepest.txt"] {
        assert_eq!(landed(&bench, &records, path), "x\n", "{path}");
    }
    nothing_is_left(&bench, &[]);
}

#[test]
fn sub_agents_spend_what_is_left_of_the_budget_of_who_started_them() {
    let bench = bench(", max_turns: 6", ", max_turns: 50");
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![hand("one"), hand("two")]),
        (true, _) => Line::say("Done."),
        (false, _) => spin(sent),
    });
    let (_, records) = drive.run("crew");
    let replies = records.iter().filter(|record| matches!(record.event, Event::ModelReplied { .. })).count();
    assert_eq!(replies, 6, "one of the lead's own, five of its sub-agents");
    for (_, is_error, text) in answers(&records, "lead") {
        assert!(is_error && text.contains("the budget that lead shares with its sub-agents is used up"), "{text}");
    }
    assert_eq!(outcome(&records, "lead")["failed"]["kind"]["limit"], "turns");
}

#[test]
fn what_is_denied_to_who_asks_is_denied_to_its_sub_agents() {
    let hook = r#"{"hooks":{"PreToolUse":[{"matcher":"Write","hooks":[{"type":"command","command":"grep -q secret && { echo 'no secrets' >&2; exit 2; }; exit 0"}]}],
        "SubagentStop":[{"hooks":[{"type":"command","command":"grep -q '\"stop_hook_active\":true' || { echo 'say more' >&2; exit 2; }"}]}]}}"#;
    let bench = bench(", hooks: [h], permissions: { deny: [\"Bash(rm:*)\"] }", "").file(".spinney/hooks/h.json", hook);
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![hand("do it"), start("nobody", "x"), start("eye", "look")]),
        (true, _) => Line::say("Done."),
        (false, 0) => Line::Say(String::new(), vec![write("secret.txt", "x"), write("open.txt", "x"), ("Bash".into(), json!({"command": "rm a.txt"}))]),
        (false, 1) => Line::say("Enough."),
        (false, _) => Line::say("And more."),
    });
    let (_, records) = drive.run("crew");
    let told: Vec<bool> = answers(&records, "lead:agent-1-1").iter().map(|(_, is_error, _)| *is_error).collect();
    assert_eq!(told, [true, false, true]);
    let eye: Vec<bool> = answers(&records, "lead:agent-1-3").iter().map(|(_, is_error, _)| *is_error).collect();
    assert_eq!(eye, [true, true, true], "who only reads writes for nobody");
    let all = answers(&records, "lead");
    assert!(all[0].2.starts_with("And more."), "a SubagentStop hook kept it going: {}", all[0].2);
    assert!(all[1].1 && all[1].2.contains("there is no agent `nobody`"), "{}", all[1].2);
    let stops: BTreeSet<&str> = records
        .iter()
        .filter_map(|record| if let Event::HookRan { on, verdict, .. } = &record.event { (verdict.word() == "block").then_some(on.as_str()) } else { None })
        .collect();
    assert_eq!(stops, BTreeSet::from(["SubagentStop"]));
    assert_eq!(landed(&bench, &records, "open.txt"), "x");
    assert!(bench.git(&["log", "--all", "--format=", "--name-only"]).lines().all(|path| path != "secret.txt"));
}

#[test]
fn who_only_reads_has_sub_agents_that_only_read() {
    let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("files").workflow(
        "crew",
        "version: 1\nname: crew\nagents:\n  chief: { system: \"You lead.\", access: read, tools: [Agent] }\n  hand: { system: \"You do.\", access: write, permissions: { allow: [Bash, Write] } }\nsteps:\n  lead: { agent: chief, prompt: \"Have it done.\" }\n",
    );
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![hand("do it")]),
        (false, 0) => Line::Say(
            String::new(),
            vec![write("new.txt", "x"), ("Bash".into(), json!({"command": "touch new.txt"})), ("Bash".into(), json!({"command": "cat README.md"}))],
        ),
        _ => Line::say("Done."),
    });
    let (_, records) = drive.run("crew");
    let told: Vec<bool> = answers(&records, "lead:agent-1-1").iter().map(|(_, is_error, _)| *is_error).collect();
    assert_eq!(told, [true, true, false]);
    assert_eq!(answers(&records, "lead"), [("Agent", false, "Done.")]);
    assert!(outcome(&records, "lead")["succeeded"]["commit"].is_null());
}

#[test]
fn a_sub_agent_that_fails_is_an_answer_and_its_files_are_kept() {
    let bench = bench("", ", max_turns: 2");
    let drive = bench.drive(|sent, _| match (is_chief(sent), sent.turn()) {
        (true, 0) => Line::Say(String::new(), vec![hand("half")]),
        (true, _) => Line::say("I went on alone."),
        (false, 0) => Line::Say(String::new(), vec![write("half.txt", "half\n")]),
        (false, _) => spin(sent),
    });
    let (_, records) = drive.run("crew");
    assert_eq!(outcome(&records, "lead")["succeeded"]["output"], "I went on alone.");
    let (_, is_error, text) = answers(&records, "lead")[0];
    assert!(is_error && text.contains("failed: the budget of agent"), "{text}");
    let kept = text.split_once("kept as ").unwrap().1.trim_end_matches(']');
    assert_eq!(bench.git(&["show", &format!("{kept}:half.txt")]), "half\n");
    // Nothing of the lead's own was committed, so that its worktree stays as well.
    nothing_is_left(&bench, &["lead.1", "lead__agent-1-1.1"]);
}

/// No worktree of the run is there but these.
#[track_caller]
fn nothing_is_left(bench: &Bench, but: &[&str]) {
    let run = bench.newest();
    let folders = fs::read_dir(bench.path("cache/spinney/worktrees")).into_iter().flatten().flatten();
    let mut left: Vec<String> = folders
        .flat_map(|repository| fs::read_dir(repository.path().join(&run.0)).into_iter().flatten().flatten())
        .map(|entry| entry.file_name().into_string().unwrap())
        .filter(|name| !name.starts_with('.'))
        .collect();
    left.sort();
    assert_eq!(left, but);
}
