//! Servers of tools: what they offer is called through the one gate, and they live as long as the session that was lent them.
use crate::{
    driver::{Drive, Line},
    fixture::{Bench, outcome, results},
};
use serde_json::{Value, json};
use spinney::event::{Event, Record};
use std::fs;

/// A server that notes all it hears outside of the worktree, and ends when its input does.
const SERVER: &str = r#"#!/bin/sh
heard=$1
say() { printf '%s\n' "$1"; }
answer() { say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":$1}"; }
text() { answer "{\"content\":[{\"type\":\"text\",\"text\":\"$1\"}]}"; }
echo "begun $CLAUDE_PROJECT_DIR" >> "$heard"
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"initialize"'*) answer '{"protocolVersion":"2025-11-25","capabilities":{"tools":{}}}' ;;
    *'"tools/list"'*) answer '{"tools":[{"name":"look","description":"Looks.","inputSchema":{"type":"object","properties":{"at":{"type":"string"}},"required":["at"]},"annotations":{"readOnlyHint":true}},{"name":"put","inputSchema":{"type":"object"}}]}' ;;
    *'"at":"die"'*) echo 'out of cheese' >&2; exit 3 ;;
    *'"at":"hang"'*) ;;
    *'"at":"much"'*) text "$(head -c 300000 /dev/zero | tr '\0' x)" ;;
    *'"at":"wrong"'*) answer '{"content":[{"type":"text","text":"no such row"}],"isError":true}' ;;
    *'"look"'*) echo look >> "$heard"; text 'row 42' ;;
    *'"put"'*) echo put >> "$heard"; text 'it is put' ;;
  esac
done
"#;

fn bench(agent: &str) -> Bench {
    let bench = Bench::new().executable("db.sh", SERVER).file(".gitignore", ".spinney/\n").commit("server");
    let heard = bench.path("home").join("heard").display().to_string();
    let workflow = format!(
        "version: 1\nname: one\nmcp_servers:\n  db: {{ command: ./db.sh, args: [\"{heard}\"] }}\nagents:\n  worker: {{ system: \"You work.\", {agent} }}\nsteps:\n  work: {{ agent: worker, prompt: \"Do it.\" }}\n"
    );
    let bench = bench.workflow("one", &workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    bench
}

fn heard(bench: &Bench) -> String {
    fs::read_to_string(bench.path("home").join("heard")).unwrap_or_default()
}

fn drive<'b>(bench: &'b Bench, calls: Vec<(&'static str, Value)>) -> Drive<'b> {
    bench.drive(move |sent, _| match calls.get(sent.turn()) {
        Some((tool, input)) => Line::call(tool, input.clone()),
        None => Line::say("done"),
    })
}

fn declared(records: &[Record]) -> Vec<String> {
    let of = |record: &Record| if let Event::AgentBriefed { brief, .. } = &record.event { Some(brief.tools.clone()) } else { None };
    records.iter().find_map(of).unwrap_or_default().into_iter().map(|tool| tool.name).filter(|name| name.starts_with("mcp__")).collect()
}

#[test]
fn a_servers_tools_are_declared_and_called_and_what_fails_is_told() {
    let bench = bench("access: write");
    let look = |at: &str| ("mcp__db__look", json!({"at": at}));
    let records =
        drive(&bench, vec![look("a"), ("mcp__db__put", json!({})), look("wrong"), ("mcp__db__look", json!({})), look("much"), look("die"), look("a")])
            .run("one")
            .1;
    assert_eq!(declared(&records), ["mcp__db__look", "mcp__db__put"]);
    let all = results(&records, "work");
    assert_eq!((all[0].1, all[0].2), (false, "row 42"));
    assert_eq!((all[1].1, all[1].2), (false, "it is put"));
    assert_eq!((all[2].1, all[2].2), (true, "no such row"));
    assert!(all[3].1 && all[3].2.contains("is required"), "{all:?}");
    assert!(all[4].2.len() < 200_000 && all[4].2.contains("bytes not shown"), "{}", all[4].2.len());
    assert!(all[5].1 && all[5].2.contains("out of cheese") && all[5].2.contains("may or may not have done"), "{all:?}");
    assert_eq!((all[6].1, all[6].2), (false, "row 42"), "it is started again");
    let heard = heard(&bench);
    assert_eq!(heard.matches("begun /").count(), 2, "{heard}");
}

#[test]
fn who_reads_has_the_tools_that_read_and_rules_forbid_as_everywhere() {
    let bench = bench("tools: [Read, mcp__db__look, mcp__db__put], permissions: { deny: [\"mcp__db__look(at:b)\", mcp__db__put] }");
    let plan = bench.spinney(&["plan", "one"]).code(0).out;
    assert!(plan.contains("Read, mcp__db__look"), "{plan}");
    let drive = drive(&bench, vec![("mcp__db__look", json!({"at": "a"})), ("mcp__db__look", json!({"at": "b"})), ("mcp__db__put", json!({}))]);
    let records = drive.run("one").1;
    assert_eq!(declared(&records), ["mcp__db__look"]);
    let all = results(&records, "work");
    assert_eq!((all[0].1, all[0].2), (false, "row 42"));
    assert!(all[1].1 && all[1].2.contains("mcp__db__look(at:b)"), "{all:?}");
    assert!(all[2].1 && all[2].2.contains("there is no tool `mcp__db__put`"), "{all:?}");
    assert!(!heard(&bench).contains("put"));
}

#[test]
fn a_server_of_a_workflow_that_nobody_trusts_does_not_run_and_one_that_fails_says_why() {
    let bench = bench("access: write");
    let file = bench.repo().join(".spinney/workflows/one.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("You work", "You do")).unwrap();
    let failed = |bench: &Bench| {
        let (_, records) = drive(bench, Vec::new()).run("one");
        outcome(&records, "work").to_string()
    };
    let said = failed(&bench);
    assert!(said.contains("is not trusted") && said.contains("spinney trust"), "{said}");
    assert_eq!(heard(&bench), "");
    fs::write(&file, text.replace("./db.sh, args: [", "sh, args: [-c, \"echo no configuration >&2; exit 1\", ")).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let said = failed(&bench);
    assert!(said.contains("no configuration"), "{said}");
}

#[test]
fn a_call_that_was_under_way_when_the_program_died_is_not_made_again() {
    let bench = bench("access: write");
    let drive = drive(&bench, vec![("mcp__db__put", json!({}))]);
    drive.run_until("one", |record| matches!(&record.event, Event::ToolStarted { .. }));
    let records = drive.resume("one").1;
    let all = results(&records, "work");
    assert!(all[0].1 && all[0].2.contains("It may or may not have had its effect"), "{all:?}");
    assert_eq!(declared(&records), ["mcp__db__look", "mcp__db__put"]);
    assert!(heard(&bench).matches("put").count() <= 1);
}

#[test]
fn a_reading_call_that_was_under_way_when_the_program_died_is_made_again() {
    let bench = bench("access: read");
    let drive = drive(&bench, vec![("mcp__db__look", json!({"at": "a"}))]);
    drive.run_until("one", |record| matches!(&record.event, Event::ToolStarted { .. }));
    let records = drive.resume("one").1;
    let all = results(&records, "work");
    assert_eq!((all[0].1, all[0].2), (false, "row 42"), "{all:?}");
    assert_eq!(declared(&records), ["mcp__db__look"]);
}

#[test]
fn a_server_that_hangs_is_told_and_the_run_goes_on() {
    let bench = bench("access: read");
    let file = bench.repo().join(".spinney/workflows/one.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("command: ./db.sh", "timeout: 1s, command: ./db.sh")).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let records = drive(&bench, vec![("mcp__db__look", json!({"at": "hang"})), ("mcp__db__look", json!({"at": "a"}))]).run("one").1;
    let all = results(&records, "work");
    assert!(all[0].1 && all[0].2.contains("within 1000 ms") && all[0].2.contains("may or may not have done"), "{all:?}");
    assert_eq!((all[1].1, all[1].2), (false, "row 42"), "the server is the same: {all:?}");
    assert_eq!(heard(&bench).matches("begun /").count(), 1);
    assert_eq!(outcome(&records, "work")["succeeded"]["output"], "done");
}

#[test]
fn hooks_stand_before_and_after_the_tools_of_servers_and_are_told_whose_they_are() {
    let hooks = r#"access: write, hooks: {
      PreToolUse: [{ matcher: "mcp__db__p.*", hooks: [{ type: command, command: "cat > $HOME/before; echo nothing is put here >&2; exit 2" }] }],
      PostToolUse: [{ matcher: mcp__db__look, hooks: [{ type: command, command: "cat > $HOME/after" }] }] }"#;
    let bench = bench(hooks);
    let records = drive(&bench, vec![("mcp__db__put", json!({})), ("mcp__db__look", json!({"at": "a"}))]).run("one").1;
    let all = results(&records, "work");
    assert!(all[0].1 && all[0].2.contains("nothing is put here"), "{all:?}");
    assert_eq!((all[1].1, all[1].2), (false, "row 42"));
    assert!(!heard(&bench).contains("put"));
    for name in ["before", "after"] {
        let told: Value = serde_json::from_slice(&fs::read(bench.path("home").join(name)).unwrap()).unwrap();
        assert_eq!(told["mcp_server"], json!({"name": "db", "source": "workflow"}), "{told}");
    }
    let told: Value = serde_json::from_slice(&fs::read(bench.path("home").join("after")).unwrap()).unwrap();
    assert_eq!(told["tool_response"]["content"][0]["text"], "row 42", "{told}");
}

#[test]
fn an_agent_has_servers_of_its_own_and_only_those_of_the_file_that_it_names() {
    let bench = bench("access: write");
    let file = bench.repo().join(".spinney/workflows/one.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let declared_with = |said: &str| {
        fs::write(&file, text.replace("access: write", &format!("access: write, mcp_servers: {said}"))).unwrap();
        let shown = bench.spinney(&["trust", "--yes"]).code(0).out;
        assert!(!said.starts_with('{') || (shown.contains(": ./db.sh") && shown.contains("(agent worker)")), "{shown}");
        declared(&drive(&bench, Vec::new()).run("one").1)
    };
    let own = |name: &str| format!("{{ {name}: {{ command: ./db.sh, args: [\"{}\"] }} }}", bench.path("home").join("own").display());
    assert_eq!(declared_with(&own("more")), ["mcp__db__look", "mcp__db__put", "mcp__more__look", "mcp__more__put"]);
    assert_eq!(declared_with("[]"), Vec::<String>::new());
    assert_eq!(declared_with("[db]"), ["mcp__db__look", "mcp__db__put"]);
    let before = heard(&bench);
    assert_eq!(declared_with(&own("db")), ["mcp__db__look", "mcp__db__put"]);
    assert_eq!(heard(&bench), before, "the one of the file is hidden and does not run");
    let plan = bench.spinney(&["plan", "one"]).code(0).out;
    assert!(plan.contains("mcp__db__*"), "{plan}");
}

/// Says what it finds in its environment: in a result, in the description of a tool, and before it dies.
const TELLER: &str = r#"#!/bin/sh
say() { printf '%s\n' "$1"; }
while read -r line; do
  id=${line#*\"id\":}; id=${id%%,*}
  case $line in
    *'"initialize"'*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":\"2025-11-25\",\"capabilities\":{\"tools\":{}}}}" ;;
    *'"tools/list"'*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"tools\":[{\"name\":\"tell\",\"description\":\"Knows $KEY.\",\"inputSchema\":{\"type\":\"object\"}}]}}" ;;
    *'"die"'*) echo "I know $KEY" >&2; exit 3 ;;
    *'"tell"'*) say "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"content\":[{\"type\":\"text\",\"text\":\"$PLAIN, ${#KEY} long: $KEY\"}]}}" ;;
  esac
done
"#;

#[test]
fn a_server_gets_the_secrets_that_its_environment_names_and_nobody_else_does() {
    let value = "s3cr3t-for-the-server";
    let workflow = "version: 1\nname: one\nsecrets: [TOKEN]\nmcp_servers:\n  teller: { command: ./teller.sh, env: { KEY: \"{{ secrets.TOKEN }}\", PLAIN: plain } }\nagents:\n  worker: { system: \"You work.\", access: write }\nsteps:\n  work: { agent: worker, prompt: \"Do it.\" }\n";
    let bench = Bench::new().executable("teller.sh", TELLER).file(".gitignore", ".spinney/\n").commit("server").workflow("one", workflow).env("TOKEN", value);
    bench.spinney(&["trust", "--yes"]).code(0);
    let calls = vec![("mcp__teller__tell", json!({})), ("mcp__teller__tell", json!({"how": "die"})), ("Bash", json!({"command": "echo \"[$KEY]\""}))];
    let records = drive(&bench, calls).run("one").1;
    let all = results(&records, "work");
    assert_eq!(all[0].2, format!("plain, {} long: ***TOKEN***", value.len()));
    assert!(all[1].1 && all[1].2.contains("I know ***TOKEN***"), "{all:?}");
    assert!(all[2].2.contains("[]"), "a command is not given it: {all:?}");
    let briefed = serde_json::to_string(&records).unwrap();
    assert!(briefed.contains("Knows ***TOKEN***") && !briefed.contains(value));
    for told in [bench.spinney(&["show", &bench.newest().0]), bench.spinney(&["plan", "one"]), bench.spinney(&["trust"])] {
        assert!(!format!("{}{}", told.out, told.err).contains(value), "{}", told.out);
    }
}

#[test]
fn a_sub_agent_has_its_own_servers_and_who_starts_it_need_have_none() {
    let bench = bench("access: read");
    let file = bench.repo().join(".spinney/workflows/one.yaml");
    let text = fs::read_to_string(&file).unwrap();
    let chief = "agents:\n  chief: { system: \"You lead.\", tools: [Agent] }\n";
    fs::write(&file, text.replace("agents:\n", chief).replace("agent: worker", "agent: chief")).unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(|sent, _| match (sent.node == "work", sent.turn()) {
        (true, 0) => Line::call("Agent", json!({"description": "look", "prompt": "Look.", "subagent_type": "worker"})),
        (true, _) => Line::say("done"),
        (false, 0) => Line::call("mcp__db__look", json!({"at": "a"})),
        (false, _) => Line::say(if sent.last().contains("row 42") { "It is row 42." } else { "I cannot tell." }),
    });
    let records = drive.run("one").1;
    let all = results(&records, "work");
    assert!(!all[0].1 && all[0].2.contains("It is row 42."), "{all:?}");
    let tools: Vec<Vec<String>> = drive.sent().iter().map(|sent| sent.tools.iter().filter(|name| name.starts_with("mcp__")).cloned().collect()).collect();
    assert_eq!(tools[0], Vec::<String>::new());
    assert_eq!(tools[1], ["mcp__db__look"]);
    assert_eq!(heard(&bench).matches("begun /").count(), 1);
}
