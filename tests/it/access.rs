//! What an agent may write: nothing with `access: read`, and nothing outside its scope.
use crate::{
    driver::{Line, answers},
    fixture::{Bench, outcome},
};
use serde_json::{Value, json};
use spinney::{event::Event, tools::Toolbox};
use std::{collections::BTreeMap, fs, path::Path};

const READER: &str = r#"
version: 1
name: look
agents: { reader: { system: "You read.", access: read, PERMISSIONS } }
steps:
  look: { agent: reader, prompt: "Look." }
"#;

/// Ways of a shell to write while it looks as if it read.
const TRICKS: &[&str] = &[
    "echo x > new.txt",
    "echo x >> old.txt",
    "cat old.txt | tee new.txt",
    "sed -i s/old/new/ old.txt",
    "sed -n 'w new.txt' old.txt",
    "awk 'BEGIN { print \"x\" > \"new.txt\" }'",
    "find . -name old.txt -delete",
    "find . -name old.txt -exec rm {} ;",
    "find . -fprint new.txt",
    "sort -o new.txt old.txt",
    "sort --out new.txt old.txt",
    "uniq old.txt new.txt",
    "git log --output=new.txt",
    "git diff --no-index --output=new.txt /dev/null old.txt",
    "git -c alias.x='!touch new.txt' x",
    "git -c core.fsmonitor='touch new.txt' status",
    "git -c core.pager='touch new.txt;' -p log",
    "GIT_EXTERNAL_DIFF='touch new.txt' git diff HEAD",
    "GIT_PAGER='touch new.txt' git -p log",
    "git grep -O'touch new.txt' old",
    "git branch sneaky",
    "git config user.name x",
    "git stash",
    "git checkout -b sneaky",
    "git rm old.txt",
    "git gc",
    "$(touch new.txt)",
    "cat <(touch new.txt)",
    "cat `touch new.txt`",
    "ls; touch new.txt",
    "ls && touch new.txt",
    "ls || touch new.txt",
    "ls\ntouch new.txt",
    "ls & touch new.txt",
    "bash -c 'touch new.txt'",
    "env touch new.txt",
    "xargs touch <<< new.txt",
    "command touch new.txt",
    "eval 'touch new.txt'",
    "\\touch new.txt",
    "'touch' new.txt",
    "t\"\"ouch new.txt",
    "X=touch; $X new.txt",
    "rg --pre 'touch' x",
    "python3 -c 'open(\"new.txt\", \"w\")'",
    "cp old.txt new.txt",
    "mv old.txt new.txt",
    "ln -s old.txt new.txt",
    "dd if=old.txt of=new.txt",
    "truncate -s 0 old.txt",
    "chmod +x old.txt",
    "tar cf new.txt old.txt",
    "PATH=.:$PATH ls",
    "ls() { touch new.txt; }; ls",
    "alias ls=touch; ls new.txt",
    "echo ${X:=$(touch new.txt)}",
    "exec 3> new.txt",
    "trap 'touch new.txt' EXIT; ls",
    "source old.txt",
    ". ./old.txt",
    "./old.txt",
    "vim -c 'w new.txt' old.txt",
    "tree -o new.txt",
    "file -C -m old.txt",
    "date -s yesterday",
    "du --files0-from=- > new.txt",
    "[[ -e x ]] || touch new.txt",
    "if true; then touch new.txt; fi",
    "(touch new.txt)",
    "{ touch new.txt; }",
    "coproc touch new.txt",
    "time touch new.txt",
    "! touch new.txt",
    "nohup touch new.txt",
];

fn files(folder: &Path) -> BTreeMap<String, (u32, Vec<u8>)> {
    use std::os::unix::fs::MetadataExt as _;
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().flatten() {
        let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
        let metadata = fs::symlink_metadata(&path).unwrap();
        if name == ".git" {
            continue;
        }
        if metadata.is_dir() {
            all.extend(files(&path).into_iter().map(|(below, content)| (format!("{name}/{below}"), content)));
        } else {
            all.insert(name, (metadata.mode(), fs::read(&path).unwrap_or_default()));
        }
    }
    all
}

/// The calls that try to write: every tool that there is, and every trick.
fn attempts() -> Vec<(String, Value)> {
    let toolbox = Toolbox::standard();
    let tool = |name: &str| match name {
        "Write" => Some(json!({"file_path": "new.txt", "content": "x\n"})),
        "Edit" => Some(json!({"file_path": "old.txt", "old_string": "old", "new_string": "new"})),
        // What a sub-agent of a reader may do is told in `subagents`.
        "Agent" | "Bash" | "Glob" | "Grep" | "Read" | "Skill" => None,
        other => panic!("a new tool `{other}`: can it write?"),
    };
    let tools: Vec<(String, Value)> = toolbox.names().filter_map(|name| Some((name.to_owned(), tool(name)?))).collect();
    tools.into_iter().chain(TRICKS.iter().map(|trick| ("Bash".to_owned(), json!({"command": trick})))).collect()
}

#[test]
fn an_agent_that_may_only_read_writes_by_no_tool_and_no_trick() {
    // Whatever allows it does not make a writer of it either.
    for permissions in ["permissions: {}", "permissions: { allow: [Bash, Write, Edit] }"] {
        let bench =
            Bench::new().file("old.txt", "old\n").file(".gitignore", ".spinney/\n").commit("old").workflow("look", &READER.replace("PERMISSIONS", permissions));
        bench.spinney(&["trust", "--yes"]).code(0);
        let before = files(&bench.repo());
        let drive = bench.drive(move |sent, _| {
            // The one call that shows that it can read at all comes first.
            match sent.turn() {
                0 => Line::call("Bash", json!({"command": "cat old.txt"})),
                1 => Line::Say(String::new(), attempts()),
                _ => Line::say("nothing to be done"),
            }
        });
        // What it stood in is looked at the moment it ends, before anything is cleared away.
        let (mut place, mut seen) = (String::new(), BTreeMap::new());
        let (_, records) = drive.run_until("look", |record| {
            match &record.event {
                Event::WorkspaceMade { path, .. } => place.clone_from(path),
                Event::StepFinished { .. } => seen = files(Path::new(&place)),
                _ => {}
            }
            false
        });
        let all = answers(&records, "look");
        assert_eq!((all[0].1, all[0].2), (false, "old\n"));
        let commands: Vec<String> = attempts().iter().map(|(tool, input)| format!("{tool} {input}")).collect();
        let passed: Vec<(&String, &str)> =
            commands.iter().zip(&all[1..]).filter(|(_, (_, is_error, _))| !*is_error).map(|(call, (.., text))| (call, *text)).collect();
        assert!(passed.is_empty(), "{permissions}: {passed:?}");
        assert_eq!(all.len(), commands.len() + 1);
        assert_eq!(seen.keys().collect::<Vec<_>>(), [".gitignore", "README.md", "old.txt"], "{permissions}");
        assert_eq!(seen["old.txt"].1, b"old\n");
        let state = |files: BTreeMap<String, (u32, Vec<u8>)>| files.into_iter().filter(|(path, _)| !path.starts_with(".spinney/state/")).collect::<Vec<_>>();
        assert_eq!(state(files(&bench.repo())), state(before));
        assert_eq!(bench.git(&["branch", "--list"]).lines().count(), 1);
        assert_eq!(bench.git(&["stash", "list"]), "");
    }
}

#[test]
fn an_orchestrator_only_ever_reads_whatever_allows_it() {
    let workflow = r#"
version: 1
name: watch
agents: { boss: { system: "You watch.", access: write, permissions: { allow: [Bash, Write, Edit] } } }
orchestrator: { agent: boss, wake: [start] }
steps:
  list: { run: "echo a" }
"#;
    let bench = Bench::new().file("old.txt", "old\n").file(".gitignore", ".spinney/\n").commit("old").workflow("watch", workflow);
    bench.spinney(&["trust", "--yes"]).code(0);
    let drive = bench.drive(move |sent, _| if sent.turn() == 0 { Line::Say(String::new(), attempts()) } else { Line::say("watched") });
    let (_, records) = drive.run("watch");
    let node = drive.sent()[0].node.clone();
    let all = answers(&records, &node);
    assert_eq!(all.len(), attempts().len());
    let commands: Vec<String> = attempts().iter().map(|(tool, input)| format!("{tool} {input}")).collect();
    let passed: Vec<(&String, &str)> = commands.iter().zip(&all).filter(|(_, (_, is_error, _))| !*is_error).map(|(call, (.., text))| (call, *text)).collect();
    assert!(passed.is_empty(), "{passed:?}");
}

const SCOPED: &str = r#"
version: 1
name: scoped
agents: { worker: { system: "You work.", access: write } }
steps:
  work: { agent: worker, prompt: "Do it.", scope: ["mine/**"] }
"#;

fn scoped() -> Bench {
    Bench::new().file("other.txt", "other\n").file(".gitignore", ".spinney/\n").commit("other").workflow("scoped", SCOPED)
}

#[test]
fn a_write_outside_the_scope_is_refused_by_the_tool_and_the_agent_is_told() {
    let bench = scoped();
    let drive = bench.drive(|sent, _| match sent.turn() {
        0 => Line::Say(
            String::new(),
            vec![
                ("Write".to_owned(), json!({"file_path": "new.txt", "content": "x\n"})),
                ("Write".to_owned(), json!({"file_path": "mine/../new.txt", "content": "x\n"})),
                ("Write".to_owned(), json!({"file_path": "mine/ok.txt", "content": "x\n"})),
            ],
        ),
        1 => Line::call("Read", json!({"file_path": "other.txt"})),
        2 => Line::call("Edit", json!({"file_path": "other.txt", "old_string": "other", "new_string": "mine"})),
        _ => Line::say("done"),
    });
    let (_, records) = drive.run("scoped");
    let all = answers(&records, "work");
    for at in [0, 1, 4] {
        assert!(all[at].1 && all[at].2.contains("outside what this step may write (mine/**)"), "{:?}", all[at]);
    }
    assert!(!all[2].1);
    assert!(drive.sent()[0].last().contains("You may write only: mine/**"));
    let paths = records.iter().find_map(|record| if let Event::WorkCaptured { paths, .. } = &record.event { Some(paths.clone()) } else { None });
    assert_eq!(paths.unwrap(), ["mine/ok.txt"]);
}

#[test]
fn what_a_command_leaves_outside_the_scope_is_not_committed_and_may_be_mended() {
    let bench = scoped();
    let drive = bench.drive(|sent, _| match sent.turn() {
        0 => Line::call("Bash", json!({"command": "mkdir mine; echo x > mine/ok.txt; echo x > stray.txt; echo x >> other.txt"})),
        1 => Line::say("done"),
        2 if sent.last().contains("stray.txt") && sent.last().contains("other.txt") => {
            Line::call("Bash", json!({"command": "rm stray.txt; git checkout other.txt"}))
        }
        _ => Line::say("mended"),
    });
    let (_, records) = drive.run("scoped");
    assert_eq!(outcome(&records, "work")["succeeded"]["output"], "mended", "{:?}", drive.sent().last().unwrap().last());
    let run = bench.newest();
    assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{run}")]), "mine/ok.txt\n");
}

#[test]
fn work_outside_the_scope_that_is_never_mended_fails_and_lands_nowhere() {
    let bench = scoped();
    let drive =
        bench.drive(|sent, _| if sent.turn() == 0 { Line::call("Bash", json!({"command": "echo x > stray.txt"})) } else { Line::say("it is fine like this") });
    let (_, records) = drive.run("scoped");
    let outcome = outcome(&records, "work");
    assert!(outcome["failed"]["message"].as_str().unwrap().contains("stray.txt"), "{outcome}");
    assert_eq!(bench.git(&["branch", "--list", "spinney/*"]), "");
}

#[test]
fn a_scope_that_comes_out_empty_fails_the_step_before_anything_runs() {
    let workflow = |scope: &str| {
        format!("version: 1\nname: dir\ninputs: {{ dir: {{ type: string }} }}\nsteps:\n  work: {{ run: \"echo x | tee README.md new.txt\", scope: {scope} }}\n")
    };
    for (scope, dir) in [("['{{ inputs.dir }}']", ""), ("['{{ inputs.dir }}/**']", ""), ("['{{ inputs.dir }}']", "!new.txt"), ("'{{ [inputs.dir] }}'", " ")] {
        let bench = Bench::new().workflow("dir", &workflow(scope));
        let (said, records) = bench.run("dir", "conversations: []", &["--input", &format!("dir={dir}")]);
        said.code(1);
        let failed = &outcome(&records, "work")["failed"];
        assert!(failed["message"].as_str().unwrap().contains("`scope`: failed to use the glob `") && failed["hint"].is_string(), "{failed}");
        assert!(!records.iter().any(|record| matches!(record.event, Event::WorkspaceMade { .. })), "{scope}");
    }
    let bench = Bench::new().workflow("dir", &workflow("['{{ inputs.dir }}']"));
    bench.run("dir", "conversations: []", &["--input", "dir=."]).0.code(0);
    assert_eq!(bench.git(&["diff", "--name-only", "main", &format!("spinney/{}", bench.newest())]), "README.md\nnew.txt\n");
    let mut bench = bench;
    for scope in ["['']", "[' ']", "['/']", "['/**']", "['!q.txt', '**']"] {
        bench = bench.workflow("dir", &workflow(scope));
        let said = bench.spinney(&["validate", "dir"]).code(2);
        assert!(said.out.contains("E080") && said.out.contains("help"), "{}", said.out);
    }
}
