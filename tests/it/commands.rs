//! The commands that read, trust and land: through the front door, on runs that really were.
use crate::fixture::{Bench, Said, git};
use serde_json::Value;
use std::fs;

const ONE: &str = r#"
version: 1
name: one
description: Writes one file.
inputs:
  word: { type: string, default: hello, description: What to write }
agents:
  coder: { system: "You code.", access: write }
steps:
  look: { run: "ls" }
  write:
    needs: [look]
    agent: coder
    prompt: "Write {{ inputs.word }} to new.txt."
    verify: { run: ["grep -q two new.txt"], attempts: 2 }
"#;

const SCRIPT: &str = r#"
conversations:
  - agent: coder
    told: "Write (?<word>[a-z]+) to new.txt"
    turns:
      - say: "I write it."
        calls: [{ tool: Read, input: { file_path: README.md } }, { tool: Write, input: { file_path: new.txt, content: "${word}\n" } }]
      - say: "Written."
      - calls: [{ tool: Bash, input: { command: "echo two >> new.txt" } }]
      - say: "Written, and the checks will be green."
"#;

/// A repository in which the workflow has run well.
fn ran() -> Bench {
    let bench = Bench::new().file(".gitignore", "*.log\n").commit("ignore").workflow("one", ONE);
    bench.run("one", SCRIPT, &[]).0.code(0);
    bench
}

/// Replaces what differs from run to run.
fn stable(bench: &Bench, text: &str) -> String {
    let mut text = text.replace(&bench.path("").display().to_string().trim_end_matches('/').to_owned(), "TMP");
    if let Some(run) = spinney::journal::RunDir::list(&spinney::journal::RunDir::state(&bench.repo())).unwrap().first() {
        text = text.replace(&run.0, "RUN");
    }
    let mut all = String::new();
    let mut word = String::new();
    for c in text.chars().chain(['\n']) {
        if c.is_ascii_alphanumeric() || "-:.".contains(c) {
            word.push(c);
            continue;
        }
        match stand_in(&word) {
            Some(name) => {
                // Columns are as wide as what they held.
                all.truncate(all.trim_end_matches(' ').len() + usize::from(all.ends_with(' ')));
                all.push_str(name);
            }
            None => all.push_str(&word),
        }
        all.push(c);
        word.clear();
    }
    all.pop();
    all
}

fn stand_in(word: &str) -> Option<&'static str> {
    let digits = word.chars().filter(char::is_ascii_digit).count();
    if word.len() >= 10 && word.chars().all(|c| c.is_ascii_hexdigit()) {
        Some("COMMIT")
    } else if word.strip_suffix('s').is_some_and(|number| number.parse::<f64>().is_ok()) {
        Some("TIME")
    } else if digits >= 8 && word.starts_with("20") && word.contains('-') {
        Some("DATE")
    } else if digits >= 2 && word.strip_suffix('k').unwrap_or(word).parse::<u64>().is_ok() {
        Some("NUMBER")
    } else {
        None
    }
}

fn said(bench: &Bench, arguments: &[&str]) -> String {
    stable(bench, &bench.spinney(arguments).code(0).out)
}

fn head(bench: &Bench) -> String {
    bench.git(&["rev-parse", "HEAD"]).trim().to_owned()
}

/// Asserts that a command was refused with these words and that nothing of the checkout changed.
#[track_caller]
fn refused(bench: &Bench, arguments: &[&str], words: &str) -> Said {
    let before = (head(bench), bench.git(&["status", "--porcelain"]));
    let said = bench.spinney(arguments);
    assert!(said.code != 0 && said.err.contains(words), "{said:?}");
    assert_eq!((head(bench), bench.git(&["status", "--porcelain"])), before);
    said
}

#[test]
fn a_run_is_listed_shown_and_compared() {
    let bench = ran();
    let run = bench.newest().0;
    insta::assert_snapshot!("show", said(&bench, &["show", &run]));
    insta::assert_snapshot!("show_step", said(&bench, &["show", &run[..5], "write"]));
    insta::assert_snapshot!("diff", said(&bench, &["diff", &run]));
    assert_eq!(bench.spinney(&["diff", &run, "write"]).code(0).out, bench.spinney(&["diff", &run]).code(0).out);
    let runs: Value = serde_json::from_str(&bench.spinney(&["runs", "--json"]).code(0).out).unwrap();
    assert_eq!(
        (&runs[0]["run"], &runs[0]["state"], &runs[0]["steps_ended"], &runs[0]["steps"]),
        (&run.clone().into(), &"succeeded".into(), &2.into(), &2.into())
    );
    let listed = bench.spinney(&["runs"]).code(0).out;
    assert!(listed.contains(&run) && listed.contains("succeeded    2/2") && listed.contains(&format!("spinney/{run}")), "{listed}");
    let lines = bench.spinney(&["show", &run, "write", "--json"]).code(0).out;
    let records: Vec<spinney::event::Record> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(
        records,
        bench.records(&bench.newest()).into_iter().filter(|record| record.event.node().is_some_and(|node| node.step.0 == "write")).collect::<Vec<_>>()
    );
}

#[test]
fn what_was_done_is_shown_although_the_workflow_is_gone() {
    let bench = ran();
    let run = bench.newest().0;
    let before = bench.spinney(&["show", &run]).code(0).out;
    fs::remove_dir_all(bench.repo().join(".spinney/workflows")).unwrap();
    assert_eq!(bench.spinney(&["show", &run]).code(0).out, before);
    assert!(bench.spinney(&["runs"]).code(0).out.contains("2/2"));
}

#[test]
fn a_run_that_cannot_be_read_spoils_nothing() {
    let bench = ran();
    let runs = bench.repo().join(".spinney/state/runs");
    fs::create_dir(runs.join("one-empty")).unwrap();
    fs::create_dir(runs.join("one-broken")).unwrap();
    fs::write(runs.join("one-broken/journal.db"), "not a database, and long enough to be looked at as one").unwrap();
    let listed = bench.spinney(&["runs"]).code(0).out;
    assert!(listed.contains("succeeded") && listed.contains("one-empty") && listed.contains("one-broken"), "{listed}");
    let json: Value = serde_json::from_str(&bench.spinney(&["runs", "--json"]).code(0).out).unwrap();
    assert_eq!(json.as_array().unwrap().iter().filter(|run| run["state"] == "unreadable").count(), 2);
    assert!(bench.spinney(&["show", "one-broken"]).code(1).err.contains("one-broken"));
    assert!(bench.spinney(&["show", "one"]).code(2).err.contains("3 runs begin so"));
    assert!(Bench::new().spinney(&["runs"]).code(0).out.contains("no runs yet"));
}

#[test]
fn a_failed_run_says_why_and_is_not_landed() {
    let bench = Bench::new().workflow("one", &ONE.replace("grep -q two", "grep -q three"));
    bench.run("one", SCRIPT, &[]).0.code(1);
    let run = bench.newest().0;
    let shown = bench.spinney(&["show", &run]).code(0).out;
    assert!(shown.contains(": failed") && shown.contains("write failed") && shown.contains("not green after 2 attempts"), "{shown}");
    refused(&bench, &["land", &run], "it failed");
    assert!(bench.spinney(&["diff", &run]).code(1).err.contains("it has no result"));
}

#[test]
fn a_result_lands_by_moving_forward_and_only_once() {
    let bench = ran();
    let run = bench.newest().0;
    let base = head(&bench);
    let said = bench.spinney(&["land", &run]).code(0).out;
    assert!(said.contains("main moved from") && said.contains("1 path changed"), "{said}");
    assert_eq!(fs::read_to_string(bench.repo().join("new.txt")).unwrap(), "hello\ntwo\n");
    assert_eq!(
        (bench.git(&["rev-parse", "HEAD~1"]).trim(), bench.git(&["rev-parse", "HEAD"])),
        (base.as_str(), bench.git(&["rev-parse", &format!("spinney/{run}")]))
    );
    assert_eq!(bench.git(&["rev-parse", "main@{1}"]).trim(), base, "there is a way back");
    assert!(bench.spinney(&["land", &run]).code(0).out.contains("has spinney/"));
}

#[test]
fn where_both_moved_a_merge_is_made_and_hooks_do_not_run() {
    let bench = ran()
        .file("other.txt", "mine\n")
        .executable(".git/hooks/post-merge", "#!/bin/sh\ntouch ../ran\n")
        .executable("hooks-in-tree/post-merge", "#!/bin/sh\ntouch ../ran\n");
    bench.git(&["config", "core.hooksPath", "hooks-in-tree"]);
    bench.git(&["config", "branch.main.mergeOptions", "--squash --no-commit"]);
    let bench = bench.commit("mine");
    let (run, mine) = (bench.newest().0, head(&bench));
    let said = bench.spinney(&["land", &run]).code(0).out;
    assert!(said.contains("It is a merge"), "{said}");
    assert_eq!(bench.git(&["rev-parse", "HEAD^1", "HEAD^2"]), format!("{mine}\n{}", bench.git(&["rev-parse", &format!("spinney/{run}")])));
    assert_eq!((bench.git(&["status", "--porcelain", "-uno"]).as_str(), bench.repo().join("new.txt").exists(), bench.path("ran").exists()), ("", true, false));
    assert!(bench.git(&["log", "-1", "--format=%an %B"]).starts_with(&format!("Tester Merge branch 'spinney/{run}'\n\nSpinney-Run: {run}")));
}

#[test]
fn what_would_lose_work_or_mean_something_else_is_refused() {
    let bench = ran();
    let run = bench.newest().0;
    let land = ["land", run.as_str()];
    let bench = bench.file("README.md", "# Changed\n");
    assert_eq!(refused(&bench, &land, "README.md").code, 2);
    bench.git(&["add", "README.md"]);
    refused(&bench, &land, "changes: README.md");
    bench.git(&["reset", "-q", "--hard"]);
    // A file that git does not know, and one that it is told to ignore.
    let bench = bench.file("new.txt", "precious\n");
    refused(&bench, &land, "new.txt");
    fs::write(bench.repo().join(".git/info/exclude"), "new.txt\n").unwrap();
    let said = refused(&bench, &land, "new.txt");
    assert!(!said.err.contains("`git merge spinney"), "by hand it would overwrite the file: {}", said.err);
    assert_eq!(fs::read_to_string(bench.repo().join("new.txt")).unwrap(), "precious\n");
    fs::remove_file(bench.repo().join("new.txt")).unwrap();
    bench.git(&["checkout", "-q", "--detach"]);
    assert_eq!(refused(&bench, &land, "HEAD is detached").code, 2);
    bench.git(&["checkout", "-q", "main"]);
    let branch = format!("spinney/{run}");
    let result = bench.git(&["rev-parse", &branch]).trim().to_owned();
    bench.git(&["branch", "-q", "-f", &branch, "main"]);
    refused(&bench, &land, "it moved from");
    bench.git(&["branch", "-q", "-D", &branch]);
    assert!(refused(&bench, &land, "the branch is gone").err.contains(&format!("git branch {branch} {result}")));
    bench.git(&["branch", "-q", &branch, &result]);
    bench.spinney(&land).code(0);
}

/// Git moves the files of a checkout before it locks the branch.
#[test]
fn a_locked_branch_leaves_the_checkout_as_it_is() {
    let bench = ran();
    bench.git(&["config", "core.filesRefLockTimeout", "0"]);
    let run = bench.newest().0;
    for lock in ["refs/heads/main.lock", "HEAD.lock"] {
        let lock = bench.repo().join(".git").join(lock);
        fs::write(&lock, "").unwrap();
        refused(&bench, &["land", &run], "lock");
        assert_eq!((bench.git(&["status", "--porcelain", "-uno"]).as_str(), bench.repo().join("new.txt").exists()), ("", false));
        fs::remove_file(lock).unwrap();
    }
    bench.spinney(&["land", &run]).code(0);
}

#[test]
fn a_conflict_is_named_and_left_to_the_user() {
    let bench = ran().file("new.txt", "mine\n").commit("mine");
    let run = bench.newest().0;
    let said = refused(&bench, &["land", &run], "conflicts with what is checked out in new.txt");
    assert!(said.code == 1 && said.err.contains(&format!("git merge spinney/{run}")), "{said:?}");
}

#[test]
fn a_linked_worktree_lands_on_its_own_branch() {
    let bench = ran();
    let run = bench.newest().0;
    let linked = bench.path("linked").display().to_string();
    bench.git(&["worktree", "add", "-q", "-b", "side", &linked]);
    let before = head(&bench);
    bench.spinney(&["-C", &linked, "land", &run]).code(0);
    assert_eq!((head(&bench), bench.path("linked/new.txt").exists(), bench.repo().join("new.txt").exists()), (before, true, false));
    assert_eq!(git(&bench.path("linked"), bench.environment(), &["rev-parse", "side"]), bench.git(&["rev-parse", &format!("spinney/{run}")]));
}

#[test]
fn workflows_are_judged_one_or_all() {
    let bench = Bench::new().workflow("one", ONE).workflow("bad", "version: 1\nname: bad\nsteps:\n  a: { run: ls, nedes: [b] }\n");
    assert_eq!(bench.spinney(&["validate", "one"]).code(0).out, "one: ok, 2 steps\n");
    let said = bench.spinney(&["validate"]).code(2);
    assert!(said.out.contains("one: ok, 2 steps\n") && said.out.contains("nedes") && said.out.contains("bad: 1 error\n"), "{said:?}");
    let json: Value = serde_json::from_str(&bench.spinney(&["validate", "--format", "json"]).code(2).out).unwrap();
    assert_eq!(
        (&json[0]["workflow"], &json[0]["ok"], &json[0]["diagnostics"][0]["code"], &json[1]["ok"]),
        (&"bad".into(), &false.into(), &"E010".into(), &true.into())
    );
    assert!(bench.spinney(&["validate", "oen"]).code(2).out.contains("did you mean `one`?"));
    assert!(Bench::new().spinney(&["validate"]).code(2).err.contains("spinney init"));
    assert!(bench.spinney(&["graph", "one"]).code(0).out.starts_with("flowchart TD\n"));
    assert!(bench.spinney(&["graph", "one", "--format", "dot"]).code(0).out.starts_with("digraph"));
    assert!(bench.spinney(&["graph", "bad"]).code(2).err.contains("nedes"));
}

#[test]
fn what_is_asked_wrongly_is_told_with_what_to_do() {
    let bench =
        Bench::new().workflow("one", ONE).file("bad.yaml", "conversations: 3\n").file(".spinney/workflows/two.yaml", &ONE.replace("name: one", "name: other"));
    let said = |args: &[&str]| bench.spinney(args).code(2).err;
    for (args, message, hint) in [
        (vec!["run", "one", "--input", "wrd=a"], "failed to use the inputs: there is no input `wrd`: did you mean `word`?", "--input name=value"),
        (vec!["run", "one", "--input", "word=a", "--input", "word=b"], "failed to use the inputs: the input `word` is given twice", "--input name=value"),
        (vec!["run", "one", "--model", "large"], "failed to use `--model large`", "PROVIDER/MODEL"),
        (vec!["run", "one", "--model", "nobody/large"], "failed to use `--model nobody/large`", "there is no provider `nobody`"),
        (vec!["run", "one", "--script", "bad.yaml"], "bad.yaml`: line 1 column 16: ", "docs/scripts.md"),
    ] {
        let err = said(&args);
        assert!(err.starts_with("error: failed to ") && err.contains(message), "{err}");
        assert!(err.lines().any(|line| line.starts_with("hint: ") && line.contains(hint)), "{err}");
    }
    assert!(bench.spinney(&["validate", "two"]).code(0).out.contains("other: ok, 2 steps; `spinney run two` runs it"));
}

#[test]
fn a_first_workflow_is_written_judged_and_run() {
    let bench = Bench::new();
    let said = bench.spinney(&["init"]).code(0).out;
    assert!(said.contains("Wrote .spinney/workflows/first.yaml") && said.contains("spinney validate first"), "{said}");
    assert_eq!(bench.spinney(&["validate"]).code(0).out, "first: ok, 1 step\n");
    assert!(bench.spinney(&["init"]).code(2).err.contains("there is such a file"));
    let script = "conversations:\n  - turns:\n      - calls: [{ tool: Write, input: { file_path: a.txt, content: \"a\\n\" } }]\n      - say: done\n";
    bench.run("first", script, &["--input", "task=write"]).0.code(0);
    assert_eq!(bench.git(&["show", &format!("spinney/{}:a.txt", bench.newest())]), "a\n");
    assert!(bench.spinney(&["init", "../x"]).code(2).err.contains("lower-case"));
}

#[test]
fn what_acts_by_itself_is_shown_and_trusted_by_its_content() {
    let hook = r#"{"description": "Keeps watch", "always": true, "hooks": {"PreToolUse": [{"matcher": "Bash", "hooks": [{"type": "command", "command": "sh \"$HOOK_DIR/watch.sh\""}]}]}}"#;
    let bench = Bench::new()
        .file(".spinney/hooks/watch.json", hook)
        .file(".spinney/hooks/watch.sh", "exit 0\n")
        .workflow("one", &ONE.replace("agents:", "permissions: { allow: [\"Bash(make *)\"] }\nagents:"));
    let listed = bench.spinney(&["list"]).code(0).out;
    assert!(listed.contains("watch  .spinney/hooks/watch.json  always, not trusted: see `spinney trust`\n    Keeps watch\n"), "{listed}");
    assert!(listed.contains("one  .spinney/workflows/one.yaml  its allow rules are not trusted\n    Writes one file.\n    --input word=string  default \"hello\"  What to write\n"), "{listed}");
    let said = bench.spinney(&["trust"]).code(2);
    for words in [
        "Hook watch  .spinney/hooks/watch.json",
        "watch.json, watch.sh",
        "for every agent",
        "at PreToolUse (Bash): sh \"$HOOK_DIR/watch.sh\"",
        "Workflow one",
        "Bash(make *)",
    ] {
        assert!(said.out.contains(words), "{words}\n{}", said.out);
    }
    assert!(said.err.contains("--yes"));
    assert!(bench.spinney(&["trust", "--yes"]).code(0).out.contains("Trusted as now: hook .spinney/hooks/watch.json, workflow .spinney/workflows/one.yaml;"));
    let said = bench.spinney(&["trust"]).code(0).out;
    assert!(said.contains("2 files are trusted already") && said.contains("Nothing of this repository waits"), "{said}");
    assert!(!bench.spinney(&["list"]).code(0).out.contains("not trusted"));
    let bench = bench.file(".spinney/hooks/watch.sh", "exit 1\n");
    assert!(bench.spinney(&["list"]).code(0).out.contains("not trusted"), "a changed byte of a script asks again");
    assert!(bench.spinney(&["trust"]).code(2).out.contains("1 file is trusted already"));
    let json: Value = serde_json::from_str(&bench.spinney(&["list", "--json"]).code(0).out).unwrap();
    let watch = json["hooks"].as_array().unwrap().iter().find(|hook| hook["name"] == "watch").unwrap();
    assert_eq!((&watch["root"], &watch["notes"][0]), (&"repository".into(), &"always".into()));
}
