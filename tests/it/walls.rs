//! The `sandbox` of an agent: what it opens is open to that agent's commands and to nothing else, and where what it demands is not
//! to be had no run begins.
use crate::fixture::{Bench, not_tested, outcome, results};
use serde_json::{Value, json};
use spinney::{
    event::{Event, Recovery},
    sandbox::{self, Sandbox},
};
use std::{fs, io::Write as _, net::TcpListener};

const WORKFLOW: &str = r#"
version: 1
name: opens
defaults: { model: anthropic/claude-haiku-5-5 }
agents:
  opened: { system: You work., access: write, sandbox: { SANDBOX } }
  plain: { system: You work., access: write }
steps:
  one: { agent: opened, prompt: "Go." }
  two: { agent: plain, prompt: "Go.", needs: [one] }
"#;

fn bench(sandbox: &str) -> Bench {
    Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("opens", &WORKFLOW.replace("SANDBOX", sandbox))
}

/// Every agent runs this command once.
pub(crate) fn runs(command: &str) -> String {
    format!("conversations:\n  - turns:\n      - calls: [{{ tool: Bash, input: {{ command: {} }} }}]\n      - say: done\n", json!(command))
}

pub(crate) fn walls(what: &str) -> bool {
    let there = Sandbox::new(sandbox::Options { path: std::env::var_os("PATH"), ..sandbox::Options::default() }).unwrap().bubblewrap().is_some();
    if !there {
        not_tested(what, "bubblewrap does not work here");
    }
    there
}

/// Answers whoever calls at a port of this machine.
fn listener() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.write_all(b"reached\n");
        }
    });
    port
}

#[test]
fn the_network_is_open_to_the_agent_that_has_it_and_to_no_other() {
    if !walls("the network of an agent") {
        return;
    }
    let script = runs(&format!("cat < /dev/tcp/127.0.0.1/{}", listener()));
    let trusted = bench("network: full");
    trusted.spinney(&["trust", "--yes"]).code(0);
    let (said, records) = trusted.run("opens", &script, &[]);
    said.code(0);
    assert_eq!(results(&records, "one")[0].2.trim(), "reached");
    assert!(results(&records, "two")[0].1, "{:?}", results(&records, "two"));
    // What was done out there nothing brings back, so that a death would not have it done again.
    let recovered = |of: &str| {
        let recovery = |record: &spinney::event::Record| match &record.event {
            Event::ToolStarted { node, recovery, .. } if node.to_string() == of => Some(*recovery == Recovery::Unknown),
            _ => None,
        };
        records.iter().find_map(recovery)
    };
    assert_eq!((recovered("one"), recovered("two")), (Some(true), Some(false)));
    // Whoever wrote it may demand, but opens nothing before it is trusted.
    let untrusted = bench("network: full");
    let (said, records) = untrusted.run("opens", &script, &[]);
    assert!(said.err.contains("not trusted and stays shut: opened"), "{}", said.err);
    assert!(results(&records, "one")[0].1, "{:?}", results(&records, "one"));
}

#[test]
fn folders_are_open_to_the_agent_that_has_them_and_to_no_other() {
    if !walls("the folders of an agent") {
        return;
    }
    let bench = bench("read: [~/data], write: [~/out]");
    let home = bench.path("home").display().to_string();
    let command = format!("cat {home}/data/in.txt && echo out > {home}/out/x.txt && ! touch {home}/data/x.txt && ! ls {home}/other");
    for folder in ["data", "out", "other"] {
        fs::create_dir_all(bench.path("home").join(folder)).unwrap();
    }
    fs::write(bench.path("home/data/in.txt"), "in\n").unwrap();
    let listed = bench.spinney(&["trust", "--yes"]).code(0);
    assert!(listed.out.contains("~/data to read (agent opened)") && listed.out.contains("~/out to write"), "{}", listed.out);
    // The gate asks about a redirect to where an agent may not write.
    let plain = runs(&format!("cat {home}/data/in.txt; touch {home}/out/y.txt"));
    let script = runs(&command).replace("  - turns", "  - agent: opened\n    turns") + plain.strip_prefix("conversations:\n").unwrap();
    let (said, records) = bench.run("opens", &script, &[]);
    said.code(0);
    let [(_, false, text)] = results(&records, "one")[..] else { panic!("{:?}", results(&records, "one")) };
    assert!(text.starts_with("in\n"), "{text}");
    assert_eq!(fs::read_to_string(bench.path("home/out/x.txt")).unwrap(), "out\n");
    assert!(!bench.path("home/data/x.txt").exists() && !bench.path("home/out/y.txt").exists());
    assert!(results(&records, "two")[0].1, "{:?}", results(&records, "two"));
}

#[test]
fn a_tool_reads_what_is_open_to_read() {
    let bench = bench("read: [~/data], require: none");
    fs::create_dir_all(bench.path("home/data")).unwrap();
    fs::write(bench.path("home/data/in.txt"), "found\n").unwrap();
    bench.spinney(&["trust", "--yes"]).code(0);
    let path = bench.path("home/data/in.txt").display().to_string();
    let script = format!("conversations:\n  - turns:\n      - calls: [{{ tool: Read, input: {{ file_path: {path} }} }}]\n      - say: done\n");
    let (said, records) = bench.run("opens", &script, &[]);
    said.code(0);
    assert!(results(&records, "one")[0].2.contains("found"), "{:?}", results(&records, "one"));
    assert!(results(&records, "two")[0].1, "{:?}", results(&records, "two"));
}

#[test]
fn a_sub_agent_has_of_its_sandbox_what_its_chief_has_too() {
    if !walls("the sandbox of a sub-agent") {
        return;
    }
    let workflow = r#"
version: 1
name: hands
defaults: { model: anthropic/claude-haiku-5-5 }
agents:
  chief: { system: You hand over., access: write, tools: [Agent], max_depth: 2, sandbox: { CHIEF } }
  fetcher: { system: You fetch., access: write, sandbox: { network: full } }
steps:
  one: { agent: chief, prompt: "Go." }
"#;
    let script = format!(
        "conversations:\n  - agent: chief\n    turns:\n      - calls: [{{ tool: Agent, input: {{ subagent_type: fetcher, description: fetch, prompt: fetch }} }}]\n      - say: done\n  - agent: fetcher\n    turns:\n      - calls: [{{ tool: Bash, input: {{ command: \"cat < /dev/tcp/127.0.0.1/{}\" }} }}]\n      - - when: reached\n          say: it reached\n        - say: it did not\n",
        listener()
    );
    for (chief, says) in [("network: full", "it reached"), ("require: full", "it did not")] {
        let bench = Bench::new().file(".gitignore", ".spinney/\n").commit("ignore").workflow("hands", &workflow.replace("CHIEF", chief));
        bench.spinney(&["trust", "--yes"]).code(0);
        let (said, records) = bench.run("hands", &script, &[]);
        said.code(0);
        assert!(results(&records, "one")[0].2.contains(says), "{chief}: {:?}", results(&records, "one"));
    }
}

#[test]
fn a_run_does_not_begin_where_what_a_sandbox_demands_is_not_to_be_had() {
    for demand in ["network: none", "require: full", "require: landlock"] {
        let bench = bench(demand);
        let said = bench.spinney(&["run", "opens", "--unconfined", "--script", &bench.script(&runs("true"))]).code(2);
        assert!(said.err.contains("the sandbox of agent `opened` demands walls") && said.err.contains("require: none"), "{}", said.err);
        assert!(bench.spinney(&["runs"]).code(0).out.contains("There are no runs yet"));
    }
    let without = bench("require: none");
    let (said, records) = without.run("opens", &runs("true"), &["--unconfined"]);
    said.code(0);
    assert!(outcome(&records, "one")["succeeded"].is_object());
}

#[test]
fn what_a_path_leads_to_is_judged_when_a_run_begins() {
    let bench = bench("read: [~/link], write: [~/gone], require: none");
    bench.spinney(&["trust", "--yes"]).code(0);
    let script = bench.script(&runs("true"));
    let refused = |why: &str| {
        let said = bench.spinney(&["run", "opens", "--script", &script]).code(2);
        assert!(said.err.contains(why), "{why}: {}", said.err);
    };
    refused("opens `~/gone`, which is not there");
    let link = bench.path("home/link");
    for (target, why) in [
        (bench.repo(), "of the repository"),
        (bench.path("cache"), "of this program"),
        (bench.path("home"), "is everything"),
        ("/proc".into(), "the machine's own"),
    ] {
        let _ = fs::remove_file(&link);
        std::os::unix::fs::symlink(&target, &link).unwrap();
        refused(why);
    }
}

#[test]
fn a_plan_shows_what_the_sandbox_of_an_agent_opens() {
    let bench = bench("network: full, read: [~/data], write: [/data/scratch], require: landlock");
    let page = || bench.spinney(&["plan", "opens"]).code(0).out.split_whitespace().collect::<Vec<_>>().join(" ");
    let shut = page();
    assert!(shut.contains("no network; nothing runs without it; what it opens is not trusted and stays shut"), "{shut}");
    assert!(bench.spinney(&["list"]).code(0).out.contains("what its sandboxes open is not trusted"));
    bench.spinney(&["trust", "--yes"]).code(0);
    let open = page();
    assert!(open.contains("the network; reads ~/data; writes /data/scratch; nothing runs without it"), "{open}");
    let planned: Value = serde_json::from_str(&bench.spinney(&["plan", "opens", "--json"]).code(0).out).unwrap();
    let expected = json!({"network": "full", "read": ["~/data"], "write": ["/data/scratch"], "require": "landlock", "untrusted": false});
    assert_eq!((&planned["steps"][0]["agent"]["sandbox"], &planned["steps"][1]["agent"]["sandbox"]), (&expected, &Value::Null));
}

#[test]
fn commits_of_commands_are_the_users_and_nothing_else_of_their_settings_is_there() {
    if !walls("the identity of git") {
        return;
    }
    let bench = bench("network: none");
    fs::create_dir_all(bench.path("home")).unwrap();
    fs::write(bench.path("home/.gitconfig"), "[user]\n\tname = Ann \\\"A\\\" Other\n\temail = ann@localhost\n[alias]\n\tst = status\n").unwrap();
    bench.git(&["config", "--unset", "user.name"]);
    bench.git(&["config", "--unset", "user.email"]);
    let command =
        "git commit -q --allow-empty -m x && git log -1 --format='%an <%ae>'; git config alias.st; git config --global user.name Bob && git config user.name";
    let (said, records) = bench.run("opens", &runs(command), &[]);
    said.code(0);
    assert_eq!(results(&records, "two"), [("Bash", false, "Ann \"A\" Other <ann@localhost>\nBob\n")]);
}
