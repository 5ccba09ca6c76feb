//! What hooks may do besides denying: block after the call, roll back, rewrite, tell, keep an agent going; and that a deny
//! wins against everything.
use crate::{
    driver::Line,
    fixture::{Bench, outcome, results},
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Record},
};
use std::fs;

/// A repository with one writing agent `worker` under one hook file, trusted.
fn hooked(hook: &str, more: &str) -> Bench {
    let workflow = format!(
        "version: 1\nname: one\nagents:\n  worker: {{ system: \"You work.\", access: write, hooks: [h] }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\"{more} }}\n"
    );
    let bench = Bench::new()
        .file("old.txt", "old\n")
        .file("gone.txt", "gone\n")
        .file(".gitignore", ".spinney/\n")
        .commit("old")
        .file(".spinney/hooks/h.json", hook)
        .workflow("one", &workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

/// A repository whose workflow has hooks written out at each place that may have some; each says its place.
fn written(agent: &str, step: &str) -> Bench {
    let told =
        |place: &str, tool: &str| format!("{{ PreToolUse: [{{ matcher: {tool}, hooks: [{{ type: command, command: \"echo {place} >&2; exit 2\" }}] }}] }}");
    let workflow = format!(
        "version: 1\nname: one\nhooks: {}\nagents:\n  worker: {{ system: \"You work.\", model: anthropic/claude-opus-5-5, access: write, hooks: {} }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\", hooks: [{}] }}\n",
        told("of the file", "Write"),
        told("of the agent", agent),
        told("of the step", step)
    );
    Bench::new().file(".gitignore", ".spinney/\n").commit("old").workflow("one", &workflow)
}

#[test]
fn hooks_that_stand_in_the_workflow_hold_once_it_is_trusted() {
    let bench = written("Read", "Glob");
    let made = || vec![("Write", json!({"file_path": "a", "content": "x"})), ("Read", json!({"file_path": "README.md"})), ("Glob", json!({"pattern": "*"}))];
    let drive = bench.drive(|_, _| Line::say("done"));
    let refused = outcome(&drive.run("one").1, "work").clone();
    assert_eq!(refused["failed"]["kind"], "hook", "{refused}");
    assert!(refused["failed"]["message"].as_str().unwrap().contains("hook `one/hooks` is not trusted"), "{refused}");
    assert!(drive.sent().is_empty(), "no model was asked");
    assert!(
        bench
            .spinney(&["run", "one", "--script", &bench.script("conversations: []\n")])
            .err
            .contains("do not run: one/agents.worker.hooks, one/hooks, one/steps.work.hooks;")
    );
    let shown = bench.spinney(&["trust", "--yes"]).code(0).out;
    assert!(shown.contains("at PreToolUse (Glob): echo of the step >&2; exit 2"), "{shown}");
    let records = calls(&bench, made());
    let said: Vec<&str> = results(&records, "work").iter().map(|(_, _, text)| text.trim()).collect();
    assert!(said[0].contains("of the file") && said[1].contains("of the agent") && said[2].contains("of the step"), "{said:?}");
    let names: Vec<String> =
        records.iter().filter_map(|record| if let Event::HookRan { hook, .. } = &record.event { Some(hook.clone()) } else { None }).collect();
    assert_eq!(names, ["one/hooks", "one/agents.worker.hooks", "one/steps.work.hooks"]);
    let plan = bench.spinney(&["plan", "one"]).code(0).out;
    assert!(plan.contains("one/hooks, one/agents.worker.hooks, one/steps.work.hooks"), "{plan}");
    // A changed byte of the workflow asks again.
    let file = bench.repo().join(".spinney/workflows/one.yaml");
    fs::write(&file, fs::read_to_string(&file).unwrap().replace("You work", "You do")).unwrap();
    assert!(bench.spinney(&["plan", "one"]).out.contains("one/hooks (not trusted)"));
}

fn at(event: &str, matcher: &str, command: &str, more: &str) -> String {
    let command = json!(command);
    format!(r#"{{"hooks":{{"{event}":[{{"matcher":"{matcher}","hooks":[{{"type":"command","command":{command}}}]}}]}}{more}}}"#)
}

fn answering(event: &str, matcher: &str, fields: &Value) -> String {
    let mut specific = fields.clone();
    specific["hookEventName"] = json!(event);
    at(event, matcher, &format!("cat >/dev/null; printf '%s' '{}'", json!({"hookSpecificOutput": specific})), "")
}

/// Makes the calls one a turn, then ends; returns the records.
fn calls(bench: &Bench, calls: Vec<(&'static str, Value)>) -> Vec<Record> {
    let drive = bench.drive(move |sent, _| match calls.get(sent.turn()) {
        Some((tool, input)) => Line::call(tool, input.clone()),
        None => Line::say("done"),
    });
    drive.run("one").1
}

fn captured(records: &[Record]) -> Vec<String> {
    let of = |record: &Record| match &record.event {
        Event::WorkCaptured { paths, .. } => Some(paths.clone()),
        _ => None,
    };
    records.iter().find_map(of).unwrap_or_default()
}

fn hook_verdicts(records: &[Record]) -> Vec<(String, String)> {
    let of = |record: &Record| match &record.event {
        Event::HookRan { on, verdict, .. } => Some((on.clone(), verdict.word().to_owned())),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

#[test]
fn a_block_after_the_call_makes_its_result_an_error_and_keeps_the_work() {
    let bench = hooked(&at("PostToolUse", "Write", "echo 'tabs, please' >&2; exit 2", ""), "");
    let records = calls(&bench, vec![("Write", json!({"file_path": "new.txt", "content": "x\n"}))]);
    let all = results(&records, "work");
    assert!(all[0].1 && all[0].2.contains("tabs, please"), "{all:?}");
    assert_eq!(captured(&records), ["new.txt"]);
    assert_eq!(hook_verdicts(&records), [("PostToolUse".to_owned(), "block".to_owned())]);
}

#[test]
fn a_block_that_rolls_back_leaves_the_worktree_as_it_was_before_the_call() {
    let bench = hooked(&at("PostToolUse", "Write|Edit|Bash", "grep -q KEEP || { echo 'not this' >&2; exit 2; }", ",\"onBlock\":\"rollback\""), "");
    let records = calls(
        &bench,
        vec![
            ("Write", json!({"file_path": "kept.txt", "content": "KEEP\n"})),
            ("Write", json!({"file_path": "deep/er/new.txt", "content": "x\n"})),
            ("Write", json!({"file_path": "old.txt", "content": "x\n"})),
            ("Read", json!({"file_path": "old.txt"})),
            ("Edit", json!({"file_path": "old.txt", "old_string": "old", "new_string": "new"})),
            (
                "Bash",
                json!({"command": "rm gone.txt; echo x >> old.txt; mkdir more; echo x > more/file; chmod +x old.txt; ln -s old.txt link; echo x >> kept.txt"}),
            ),
            (
                "Bash",
                json!({"command": "find . -name .git -prune -o -type f -print -o -type l -print -o -type d -empty -print | sort | xargs ls -l | cut -c1-10; cat old.txt gone.txt kept.txt; ls deep more # KEEP"}),
            ),
        ],
    );
    let all = results(&records, "work");
    for at in [1, 2, 4, 5] {
        assert!(all[at].1 && all[at].2.contains("not this") && all[at].2.contains("put back"), "{:?}", all[at]);
    }
    assert!(all[3].2.contains("old"), "{:?}", all[3]);
    let seen = all[6].2;
    assert!(
        seen.contains("old\ngone\nKEEP\n") && !seen.contains("lrwx") && seen.contains("cannot access 'deep'") && seen.contains("cannot access 'more'"),
        "{seen}"
    );
    assert_eq!(seen.matches("-rwxr").count(), 0, "{seen}");
    assert_eq!(captured(&records), ["kept.txt"]);
}

#[test]
fn a_rewritten_input_is_what_runs_and_the_model_is_told_nothing_else() {
    let hook = answering("PreToolUse", "Write", &json!({"permissionDecision": "allow", "updatedInput": {"file_path": "other.txt", "content": "rewritten\n"}}));
    let bench = hooked(&hook, "");
    let records = calls(&bench, vec![("Write", json!({"file_path": "new.txt", "content": "x\n"}))]);
    assert_eq!(captured(&records), ["other.txt"]);
    let started = records.iter().find_map(|record| if let Event::ToolStarted { input, .. } = &record.event { Some(input.clone()) } else { None });
    assert_eq!(started.unwrap().unwrap()["file_path"], "other.txt");
}

#[test]
fn a_rewritten_input_is_judged_again_by_schema_scope_and_rules() {
    for (input, scope, why) in [
        (json!({"file_path": "other.txt", "wrong": 1}), "", "wrong"),
        (json!({"file_path": "other.txt", "content": "x\n"}), ", scope: [\"new.txt\"]", "outside what this step may write"),
        (json!({"file_path": "secret/other.txt", "content": "x\n"}), "", "Edit(secret/**)"),
        (json!({"file_path": "../other.txt", "content": "x\n"}), "", "other.txt"),
    ] {
        let bench = hooked(&answering("PreToolUse", "Write", &json!({"permissionDecision": "allow", "updatedInput": input})), scope);
        let path = bench.repo().join(".spinney/workflows/one.yaml");
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{text}permissions: {{ deny: [\"Edit(secret/**)\"] }}\n")).unwrap();
        let records = calls(&bench, vec![("Write", json!({"file_path": "new.txt", "content": "x\n"}))]);
        let all = results(&records, "work");
        assert!(all[0].1 && all[0].2.contains(why), "{input}: {all:?}");
        assert_eq!(captured(&records), Vec::<String>::new(), "{input}");
    }
}

#[test]
fn a_rewritten_command_gets_a_checkpoint_of_its_own_kind() {
    // What reads becomes something that writes: its rollback must find a checkpoint taken before it.
    let rewrite = answering("PreToolUse", "Bash", &json!({"updatedInput": {"command": "echo x >> old.txt"}}));
    let rewrite: Value = serde_json::from_str(&rewrite).unwrap();
    let block: Value = serde_json::from_str(&at("PostToolUse", "Bash", "echo no >&2; exit 2", "")).unwrap();
    let both = json!({"onBlock": "rollback", "hooks": {"PreToolUse": rewrite["hooks"]["PreToolUse"], "PostToolUse": block["hooks"]["PostToolUse"]}});
    let bench = hooked(&both.to_string(), "");
    let records = calls(&bench, vec![("Bash", json!({"command": "cat old.txt"}))]);
    assert!(results(&records, "work")[0].1);
    assert_eq!(captured(&records), Vec::<String>::new());
}

#[test]
fn what_a_hook_tells_reaches_the_model_in_the_message_of_the_result() {
    let hook = answering("PostToolUse", "Write", &json!({"additionalContext": "MIND-THE-GAP"}));
    let bench = hooked(&hook, "");
    let drive = bench.drive(|sent, _| if sent.turn() == 0 { Line::call("Write", json!({"file_path": "a.txt", "content": "x\n"})) } else { Line::say("done") });
    drive.run("one");
    let sent = drive.sent();
    assert_eq!(sent.len(), 2);
    assert_eq!(sent[1].messages.len(), 3, "brief, call, and one message with result and context");
    assert!(sent[1].last().contains("[result]") && sent[1].last().contains("MIND-THE-GAP"), "{}", sent[1].last());
}

#[test]
fn a_stop_hook_keeps_an_agent_going_until_it_is_content() {
    let bench = hooked(&at("Stop|SubagentStop", "", "true", ""), "");
    let hook = json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": "test -e done.txt || { echo 'done.txt is missing' >&2; exit 2; }"}]}]}});
    fs::write(bench.repo().join(".spinney/hooks/h.json"), hook.to_string()).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(|sent, _| {
        if sent.last().contains("done.txt is missing") {
            Line::call("Write", json!({"file_path": "done.txt", "content": "x\n"}))
        } else {
            Line::say("I am done.")
        }
    });
    let (_, records) = drive.run("one");
    assert_eq!(captured(&records), ["done.txt"]);
    assert_eq!(drive.sent().len(), 3);
}

#[test]
fn stop_hooks_that_are_never_content_are_capped() {
    let bench = hooked("{}", "");
    let script = "n=$(cat /COUNT 2>/dev/null || echo 0); echo $((n+1)) > /COUNT; echo \"more, $n\" >&2; exit 2"
        .replace("/COUNT", &bench.path("count").display().to_string());
    let hook = json!({"hooks": {"Stop": [{"hooks": [{"type": "command", "command": script}]}]}});
    fs::write(bench.repo().join(".spinney/hooks/h.json"), hook.to_string()).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(|_, _| Line::say("I am done."));
    let (_, records) = drive.run("one");
    assert_eq!(drive.sent().len(), 9, "the first answer, and eight more in a row");
    assert_eq!(outcome(&records, "work")["succeeded"]["output"], "I am done.");
}

#[test]
fn a_hook_that_stops_ends_the_agent_as_a_failure_of_its_own_kind() {
    let bench = hooked(&at("PreToolUse", "Write", "echo '{\"continue\": false, \"stopReason\": \"enough\"}'", ""), "");
    let records = calls(&bench, vec![("Write", json!({"file_path": "a.txt", "content": "x\n"}))]);
    let outcome = outcome(&records, "work");
    assert_eq!(outcome["failed"]["kind"], "hook");
    assert!(outcome["failed"]["message"].as_str().unwrap().contains("enough"));
}

#[test]
fn a_deny_wins_against_every_allow() {
    let word = |word: &str| answering("PreToolUse", "Write", &json!({"permissionDecision": word, "permissionDecisionReason": "because"}));
    let rules = [
        ("none", "{}"),
        ("allow", "{ allow: [Write, Edit] }"),
        ("deny", "{ deny: [\"Write(**)\"] }"),
        ("both", "{ allow: [Write], deny: [\"Write(a.txt)\"] }"),
    ];
    for first in ["allow", "deny", "none"] {
        for second in ["allow", "deny", "none"] {
            for (rule, permissions) in rules {
                let file = |said: &str| if said == "none" { "{\"hooks\":{}}".to_owned() } else { word(said) };
                let bench = hooked(&file(first), "").file(".spinney/hooks/i.json", &file(second));
                let path = bench.repo().join(".spinney/workflows/one.yaml");
                let text = fs::read_to_string(&path).unwrap();
                fs::write(&path, format!("{text}hooks: [i]\npermissions: {permissions}\n")).unwrap();
                bench.spinney(&["trust", "--yes"]).code(0);
                let records = calls(&bench, vec![("Write", json!({"file_path": "a.txt", "content": "x\n"}))]);
                let denied = first == "deny" || second == "deny" || matches!(rule, "deny" | "both");
                let written = captured(&records) == ["a.txt"];
                assert_eq!((written, results(&records, "work")[0].1), (!denied, denied), "hooks {first} and {second}, rule {rule}");
            }
        }
    }
}

#[test]
fn a_hook_that_is_cut_short_with_the_run_has_refused_nothing() {
    let bench = hooked(&at("PreToolUse", "Write", "cat > /dev/null", ""), "");
    let drive =
        bench.drive(|sent, _| if sent.turn() == 0 { Line::call("Write", json!({"file_path": "new.txt", "content": "new\n"})) } else { Line::say("done") });
    let (ended, records) = drive.run_until("one", |record| matches!(record.event, Event::ModelReplied { .. }));
    assert!(matches!(ended, Ended::Interrupted), "{ended:?}");
    assert!(results(&records, "work").is_empty(), "the call waits for its answer");
    let (ended, records) = drive.resume("one");
    assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
    assert!(results(&records, "work").iter().all(|(_, is_error, _)| !is_error), "{:?}", results(&records, "work"));
    assert_eq!(bench.git(&["show", &format!("spinney/{}:new.txt", bench.newest())]), "new\n");
}

#[test]
fn an_agent_whose_gate_is_not_there_does_not_begin() {
    for hook in ["no JSON", r#"{"hooks": {"Stopp": []}}"#, r#"{"hooks": {"Stop": {}}}"#, r#"{"always": true, "hooks": {"Stop": [{}]}}"#] {
        let bench = hooked(hook, "");
        let drive = bench.drive(|_, _| Line::say("done"));
        let failed = outcome(&drive.run("one").1, "work").clone();
        assert_eq!(failed["failed"]["kind"], "hook", "{hook}: {failed}");
        assert!(drive.sent().is_empty(), "{hook}");
    }
}

#[test]
fn a_hook_about_a_tool_is_asked_by_whatever_name_the_model_calls_it() {
    let bench = hooked(&at("PreToolUse", "Agent", "echo 'no helpers' >&2; exit 2", ""), "");
    let input = json!({"description": "a word", "prompt": "Say it.", "subagent_type": "worker"});
    let path = bench.repo().join(".spinney/workflows/one.yaml");
    fs::write(&path, fs::read_to_string(&path).unwrap().replace("access: write", "access: write, tools: [Agent]")).unwrap();
    let records = calls(&bench, vec![("Task", input.clone()), ("Agent", input)]);
    let all = results(&records, "work");
    assert_eq!(all.len(), 2);
    assert!(all.iter().all(|(_, is_error, text)| *is_error && text.contains("no helpers")), "{all:?}");
}

#[test]
fn a_stop_hook_is_heard_again_once_something_was_done_and_its_last_word_is_on_record() {
    let bench = hooked(&at("Stop", "", "echo 'tests are red' >&2; exit 2", ""), "");
    // It says done, is told, writes a file, says done, is told, and says done.
    let drive = bench.drive(|sent, _| match sent.turn() {
        1 => Line::call("Write", json!({"file_path": "tried.txt", "content": "x\n"})),
        _ => Line::say("I am done."),
    });
    let (_, records) = drive.run("one");
    assert_eq!(drive.sent().len(), 4, "the same reason counts only where nothing was done in between");
    assert!(outcome(&records, "work")["succeeded"].is_object());
    let said: Vec<(String, String)> = hook_verdicts(&records);
    assert_eq!(said.last(), Some(&("Stop".to_owned(), "error".to_owned())), "{said:?}");
    let shown = bench.spinney(&["show", &bench.newest().0, "work"]).code(0).out;
    assert!(shown.contains("it still objects and is overruled") && shown.contains("tests are red"), "{shown}");
}
