//! Where steps stand and what surrounds them: folders, environments, silence, and what a workspace is made of.
use crate::fixture::{Bench, not_tested, outcome, results};
use spinney::{
    event::Event,
    sandbox::{self, Sandbox},
};

#[test]
fn narrower_environments_and_folders_win() {
    let workflow = r#"
version: 1
name: layers
env: { A: "workflow", B: "workflow", C: "workflow" }
defaults: { model: scripted/model }
agents: { reader: { system: x, cwd: sub } }
steps:
  run:
    run: "echo $A $B $C $(basename $PWD)"
    workspace: { kind: worktree, env: { B: "workspace", C: "workspace" } }
    env: { C: "step" }
    cwd: sub
  agent: { agent: reader, prompt: go }
  deeper: { agent: reader, prompt: go, cwd: sub/deep }
outputs: { said: "{{ steps.run.stdout }}" }
"#;
    let script = "conversations: [{ agent: reader, turns: [{ calls: [{ tool: Bash, input: { command: \"pwd\" } }] }, { say: done }] }]";
    let bench = Bench::new().file("sub/deep/a", "a").commit("begin").workflow("layers", workflow);
    let (said, records) = bench.run("layers", script, &[]);
    said.code(0);
    assert_eq!(outcome(&records, "run")["succeeded"]["output"]["said"], "workflow workspace step sub\n");
    assert!(results(&records, "agent")[0].2.trim().ends_with("/sub"));
    assert!(results(&records, "deeper")[0].2.trim().ends_with("/sub/deep"));
}

#[test]
fn silence_ends_a_step_and_words_keep_it() {
    let workflow = r#"
version: 1
name: quiet
agents: { worker: { system: x, access: write, idle_timeout: 500ms } }
steps:
  mute: { run: "sleep 60", idle_timeout: 300ms, allow_failure: true }
  chatty: { run: "for i in 1 2 3 4 5 6 7 8; do echo $i; sleep 0.25; done", idle_timeout: 1500ms }
  agent: { agent: worker, prompt: go, allow_failure: true }
"#;
    let script = "conversations: [{ agent: worker, turns: [{ calls: [{ tool: Bash, input: { command: \"sleep 60\" } }] }, { say: done }] }]";
    let bench = Bench::new().file("a", "a").commit("begin").workflow("quiet", workflow);
    let (said, records) = bench.run("quiet", script, &[]);
    said.code(0);
    for (node, said) in [("mute", "it showed no sign of life for 0.3 seconds"), ("agent", "it showed no sign of life for 0.5 seconds")] {
        let failure = outcome(&records, node)["failed"].clone();
        assert_eq!((failure["kind"].as_str(), failure["message"].as_str()), (Some("timeout"), Some(said)), "{failure}");
    }
    assert!(outcome(&records, "chatty")["succeeded"].is_object());
}

#[test]
fn a_step_may_start_from_what_the_checkout_has_or_from_a_branch() {
    let workflow = r#"
version: 1
name: bases
steps:
  head: { run: "cat f.txt; ls" }
  dirty: { run: "cat f.txt; ls", workspace: { kind: shared, base: dirty } }
  again: { run: "git rev-parse HEAD", needs: [dirty], workspace: { kind: shared, base: dirty } }
  old: { run: "cat f.txt", workspace: { kind: shared, base: old } }
outputs: { head: "{{ steps.head.stdout }}", dirty: "{{ steps.dirty.stdout }}", old: "{{ steps.old.stdout }}", commit: "{{ steps.again.stdout }}" }
"#;
    let bench = Bench::new().file("f.txt", "old\n").file(".gitignore", ".spinney/\n*.log\n").commit("old");
    bench.git(&["branch", "old"]);
    let bench = bench.file("f.txt", "head\n").commit("head").file("f.txt", "dirty\n").file("new.txt", "n").file("x.log", "l").workflow("bases", workflow);
    let (before, index) = (bench.git(&["status", "--porcelain"]), std::fs::read(bench.repo().join(".git/index")).unwrap());
    let (said, records) = bench.run("bases", "conversations: []", &[]);
    said.code(0);
    let output = outcome(&records, "run")["succeeded"]["output"].clone();
    assert_eq!((&output["head"], &output["old"]), (&"head\nREADME.md\nf.txt\n".into(), &"old\n".into()));
    assert_eq!(output["dirty"], "dirty\nREADME.md\nf.txt\nnew.txt\n");
    let refs = bench.git(&["for-each-ref", "--format=%(objectname)", &format!("refs/spinney/{}/checkout/dirty", bench.newest())]);
    assert_eq!(output["commit"], refs);
    assert_eq!((bench.git(&["status", "--porcelain"]), std::fs::read(bench.repo().join(".git/index")).unwrap()), (before, index));
}

#[test]
fn ignored_files_are_copied_or_linked_and_are_never_a_part_of_the_work() {
    let workflow = r#"
version: 1
name: brought
agents: { coder: { system: x, access: write } }
steps:
  work:
    agent: coder
    prompt: go
    workspace: { kind: worktree, copy: [".env", "conf/*.local"], link: [node_modules, "cache/deep"] }
"#;
    let script = r#"
conversations:
  - agent: coder
    turns:
      - calls: [{ tool: Bash, input: { command: "cat .env conf/a.local node_modules/m.js cache/deep/x; echo changed > .env; ls conf; readlink node_modules" } }]
      - - when: "(?<real>/\\S+/node_modules)"
          calls: [{ tool: Read, input: { file_path: "${real}/m.js" } }, { tool: Write, input: { file_path: "${real}/m.js", content: "mine" } }]
      - calls: [{ tool: Write, input: { file_path: node_modules/m.js, content: "mine" } }, { tool: Write, input: { file_path: made.txt, content: "made" } }]
      - say: done
"#;
    let bench = Bench::new().file("f.txt", "f").file(".gitignore", ".spinney/\n.env\n*.local\nnode_modules/\ncache/\n").commit("begin");
    let bench =
        bench.file(".env", "E\n").file("conf/a.local", "A\n").file("conf/b.log.local", "B\n").file("node_modules/m.js", "M\n").file("cache/deep/x", "X\n");
    let bench = bench.workflow("brought", workflow);
    let (said, records) = bench.run("brought", script, &[]);
    said.code(0);
    let answers = results(&records, "work");
    assert!(answers[0].2.contains("E\nA\nM\nX\na.local\nb.log.local"), "{}", answers[0].2);
    assert!(answers.iter().any(|(tool, is_error, text)| *tool == "Read" && !is_error && text.contains('M')), "{answers:?}");
    let refused = answers.iter().filter(|(tool, is_error, _)| *tool == "Write" && *is_error).count();
    assert_eq!(refused, 2, "a tool does not write through a link, nor where it leads: {answers:?}");
    let commit = outcome(&records, "work")["succeeded"]["commit"].as_str().unwrap().to_owned();
    assert_eq!(bench.git(&["diff", "--name-only", "HEAD", &commit]), "made.txt\n");
    assert_eq!(std::fs::read_to_string(bench.repo().join(".env")).unwrap(), "E\n");
    assert_eq!(std::fs::read_to_string(bench.repo().join("node_modules/m.js")).unwrap(), "M\n");

    let bench = Bench::new()
        .file("f.txt", "f")
        .file(".gitignore", ".spinney/\nout\n")
        .commit("begin")
        .workflow("out", "version: 1\nname: out\nsteps: { a: { run: \"cat out\", workspace: { link: [out] } } }\n");
    std::os::unix::fs::symlink("/etc/passwd", bench.repo().join("out")).unwrap();
    let (said, records) = bench.run("out", "conversations: []", &[]);
    said.code(1);
    let failure = outcome(&records, "a")["failed"].clone();
    assert!(failure["kind"] == "isolation" && failure["message"].as_str().unwrap().contains("leads out"), "{failure}");
}

#[test]
fn a_part_of_the_files_is_checked_out_and_the_rest_stays_in_the_work() {
    let workflow = r#"
version: 1
name: part
steps:
  write: { run: "ls; echo more >> web/a.js", scope: ["**"], workspace: { kind: worktree, sparse: ["web/**"] } }
  look: { needs: [write], run: "ls; cat web/a.js" }
  read: { run: "ls", workspace: { kind: shared, sparse: [docs] } }
"#;
    let bench = Bench::new().file("web/a.js", "a\n").file("docs/b", "b").file("top", "t").commit("begin").workflow("part", workflow);
    let (said, records) = bench.run("part", "conversations: []", &[]);
    said.code(0);
    let stdout = |step: &str| outcome(&records, step)["succeeded"]["output"]["stdout"].clone();
    assert_eq!(stdout("write"), "web\n");
    assert_eq!(stdout("read"), "docs\n");
    let whole = stdout("look").as_str().unwrap().to_owned();
    assert!(whole.contains("docs\n") && whole.contains("top\n") && whole.ends_with("a\nmore\n"), "{whole}");
    let branch = format!("spinney/{}", bench.newest());
    assert_eq!(bench.git(&["diff", "--name-only", "main", &branch]), "web/a.js\n");
}

/// The trees in which a merge and a choice check are prepared as those of the steps are, whose work they check.
#[test]
fn the_checks_of_merges_and_choices_have_what_prepares_a_workspace() {
    let check = "test -f made && test \"$MODE\" = strict && grep -q copied .env.test && grep -q linked deps/lib";
    let workflow = format!(
        r#"
version: 1
name: checks
defaults: {{ workspace: {{ kind: worktree, setup: [touch made], copy: [.env.test], link: [deps], env: {{ MODE: strict }} }} }}
steps:
  fix: {{ matrix: {{ n: [x, y] }}, run: "echo {{{{ matrix.n | sh }}}} > {{{{ matrix.n | sh }}}}.txt", scope: ["*.txt"] }}
  join: {{ needs: [fix], merge: {{ from: [fix], verify: ['{check}'] }} }}
  try: {{ needs: [join], matrix: {{ n: [p, q] }}, run: "echo {{{{ matrix.n | sh }}}} > {{{{ matrix.n | sh }}}}.txt", scope: ["*.txt"] }}
  pick: {{ needs: [try], select: {{ from: try, gates: ['{check}'], tie: first }} }}
  own: {{ needs: [pick], merge: {{ from: [last], verify: ['test ! -f made && test "$MODE" = own'] }}, workspace: {{ env: {{ MODE: own }} }} }}
  last: {{ needs: [pick], run: "echo > last.txt", scope: ["*.txt"] }}
"#
    )
    .replace("needs: [pick], merge", "needs: [last], merge");
    let bench = Bench::new()
        .file(".gitignore", ".env.test\ndeps\n.spinney/\n")
        .commit("begin")
        .file(".env.test", "copied\n")
        .file("deps/lib", "linked\n")
        .workflow("checks", &workflow);
    let (said, records) = bench.run("checks", "conversations: []", &[]);
    let said = said.code(0);
    assert_eq!(outcome(&records, "join")["succeeded"]["output"]["ejected"], serde_json::json!([]), "{}", said.out);
    let files = bench.git(&["ls-tree", "-r", "--name-only", &format!("spinney/{}", bench.newest())]);
    assert_eq!(files, ".gitignore\nREADME.md\nlast.txt\np.txt\nx.txt\ny.txt\n", "what setup made is no work");
    for (workspace, wrong) in
        [("worktree", "`workspace: worktree`"), ("{ base: dirty, setup: [x] }", "`workspace.base`"), ("{ sparse: [a] }", "`workspace.sparse`")]
    {
        let bench = Bench::new().workflow(
            "w",
            &format!("version: 1\nname: w\nsteps:\n  a: {{ run: ls, scope: [a] }}\n  b: {{ needs: [a], merge: {{ from: [a] }}, workspace: {workspace} }}\n"),
        );
        let said = bench.spinney(&["validate", "w"]).code(2).out;
        assert!(said.contains("E021") && said.contains(wrong) && said.contains("`setup`"), "{said}");
    }
}

/// What setup made and left is nobody's work: neither is it in the commit, nor does the scope forbid it, nor does it keep the
/// worktree from being cleared away. Once somebody has changed it, it is.
#[test]
fn what_setup_made_is_no_work_until_somebody_changes_it() {
    let workflow = r#"
version: 1
name: prepared
agents: { coder: { system: x, access: write } }
defaults: { workspace: { kind: worktree, setup: ["echo made > made.txt; echo made > touched.txt; echo more >> README.md; rm gone.txt; mkdir -p nested && git init -q nested"] } }
steps:
  agent: { agent: coder, prompt: go, scope: [src/**, touched.txt] }
  make: { run: "cat made.txt README.md; test ! -e gone.txt; echo x > src/run.txt", scope: [src/**] }
  join: { needs: [agent, make], merge: { from: [agent, make] } }
"#;
    let script = "conversations: [{ turns: [{ calls: [{ tool: Bash, input: { command: 'mkdir -p src; cat made.txt > src/a.txt; echo again >> touched.txt' } }] }, { say: done }] }]";
    let bench = Bench::new().file("gone.txt", "x\n").file("src/b.txt", "b\n").commit("begin").workflow("prepared", workflow);
    let (said, records) = bench.run("prepared", script, &[]);
    let said = said.code(0);
    assert_eq!(outcome(&records, "make")["succeeded"]["output"]["stdout"], "made\n# A project\nmore\n", "{}", said.out);
    let diff = bench.git(&["diff", "--name-status", "main", &format!("spinney/{}", bench.newest())]);
    assert_eq!(diff, "A\tsrc/a.txt\nA\tsrc/run.txt\nA\ttouched.txt\n");
    let shown = bench.spinney(&["show", &bench.newest().0]).code(0).out;
    assert!(!shown.contains("Worktrees"), "{shown}");
}

#[test]
fn a_default_that_no_step_takes_up_is_told() {
    let warned = |workflow: &str| {
        let bench = Bench::new().workflow("w", &format!("version: 1\nname: w\n{workflow}"));
        bench.spinney(&["validate", "w"]).code(0).out
    };
    let reader = "steps: { a: { run: ls } }\n";
    let said = warned(&format!("defaults: {{ workspace: {{ setup: [x], base: dirty }} }}\n{reader}"));
    assert!(said.contains("W009") && said.contains("no step takes `base` and `setup` of `defaults.workspace` up"), "{said}");
    let writer = "steps:\n  a: { run: ls, scope: [x], workspace: { kind: worktree } }\n  b: { needs: [a], merge: { from: [a] } }\n";
    let said = warned(&format!("defaults: {{ workspace: {{ setup: [x], sparse: [y] }} }}\n{writer}"));
    assert!(said.contains("no step takes `sparse` of"), "{said}");
    for fine in [
        format!("defaults: {{ workspace: {{ kind: shared, setup: [x] }} }}\n{reader}"),
        format!("defaults: {{ workspace: worktree }}\n{reader}"),
        "defaults: { workspace: { setup: [x] } }\nsteps: { a: { loop: { until: \"{{ true }}\", max: 1 }, steps: { b: { run: ls, scope: [x] } } } }\n"
            .to_owned(),
    ] {
        assert!(!warned(&fine).contains("W009"), "{fine}");
    }
    // What a configuration file says is meant for other workflows, too.
    let bench = Bench::new().file(".spinney/config.yaml", "defaults: { workspace: { setup: [x] } }\n").workflow("w", &format!("version: 1\nname: w\n{reader}"));
    assert!(!bench.spinney(&["validate", "w"]).code(0).out.contains("W009"));
}

#[test]
fn what_a_failed_attempt_has_written_is_kept() {
    let workflow = r#"
version: 1
name: failing
agents: { worker: { system: x, access: write } }
steps:
  work: { agent: worker, prompt: go, verify: { run: "false", attempts: 1 } }
"#;
    let script =
        "conversations: [{ agent: worker, turns: [{ calls: [{ tool: Write, input: { file_path: kept.txt, content: \"kept\\n\" } }] }, { say: done }] }]";
    let bench = Bench::new().workflow("failing", workflow);
    let (said, _) = bench.run("failing", script, &[]);
    said.code(1);
    assert_eq!(bench.git(&["show", &format!("refs/spinney/{}/work.1/checkpoint:kept.txt", bench.newest())]), "kept\n");
}

#[test]
fn what_the_setup_of_a_reader_changes_is_its_own_and_no_damage() {
    let workflow = r#"
version: 1
name: readers
agents: { reader: { system: "You read.", access: read, permissions: { ask: ["Bash(cat:*)"] } } }
steps:
  made: { agent: reader, prompt: "Read made.", workspace: { kind: shared, setup: ["echo more >> README.md"] } }
  plain: { agent: reader, prompt: "Read plain." }
"#;
    let script = r#"
conversations:
  - agent: reader
    turns:
      - calls: [{ tool: Bash, input: { command: "cat README.md" } }]
      - calls: [{ tool: Read, input: { file_path: README.md } }]
      - say: done
"#;
    let bench = Bench::new().workflow("readers", workflow);
    bench.run("readers", script, &[]).0.code(3);
    let run = bench.newest().0;
    assert!(!bench.spinney(&["doctor"]).out.contains("agents read them"));
    let said = bench.spinney(&["resume", &run, "--on-ask", "allow"]).code(0);
    assert!(!said.err.contains("put back"), "{said:?}");
    let records = bench.records(&bench.newest());
    for (node, has_more) in [("made", true), ("plain", false)] {
        let read = results(&records, node);
        assert_eq!(read.len(), 2, "{read:?}");
        assert!(read.iter().all(|(_, wrong, text)| !wrong && text.contains("more") == has_more), "{node}: {read:?}");
    }
}

/// What nobody keeps is not stored either, and what cannot be read is no reason to fail a command that succeeded.
#[test]
fn what_a_command_drops_costs_nothing() {
    let workflow = "version: 1\nname: drops\nsteps:\n  big: { run: \"head -c 3000000 /dev/urandom > big.bin\" }\n  closed: { run: \"mkdir shut && touch shut/x && chmod 0 shut\" }\n  same: { run: \"touch README.md\" }\n";
    let bench = Bench::new().workflow("drops", workflow);
    let stored = || bench.git(&["count-objects", "-v"]).lines().find_map(|line| line.strip_prefix("size: ")?.parse::<u64>().ok()).unwrap();
    let before = stored();
    let (said, records) = bench.run("drops", "conversations: []", &["--unconfined"]);
    said.code(0);
    assert!(stored() < before + 1_000, "the file of 3 MB is no object: {} KiB", stored());
    assert_eq!(outcome(&records, "big")["succeeded"]["output"]["dropped"], serde_json::json!(["big.bin"]));
    assert!(outcome(&records, "same")["succeeded"]["output"].get("dropped").is_none(), "a file that was only touched is as it was");
}

/// A command without a scope: what it writes of the files there are is refused inside the walls, what builds write is not, and what
/// nobody keeps is said.
#[test]
fn what_a_command_without_a_scope_changes_is_refused_or_said_to_be_lost() {
    let workflow = r#"
version: 1
name: reads
steps:
  looks: { run: "echo x >> README.md || true; mkdir app/target && echo x > app/target/x && cat app/target/x && echo x > new.txt" }
"#;
    let bench = Bench::new().file(".gitignore", "target/\n").file("app/Cargo.toml", "").file("app/src/main.rs", "").commit("begin").workflow("reads", workflow);
    let (said, records) = bench.run("reads", "conversations: []", &["--unconfined"]);
    let said = said.code(0).out;
    assert!(said.contains("its changes are not kept: README.md, new.txt"), "{said}");
    assert_eq!(outcome(&records, "looks")["succeeded"]["output"]["dropped"], serde_json::json!(["README.md", "new.txt"]));
    if !walls("what a command without a scope may write") {
        return;
    }
    let bench = bench.workflow("reads", &workflow.replace("mkdir app/target && ", ""));
    let (said, records) = bench.run("reads", "conversations: []", &[]);
    said.code(0);
    let output = &outcome(&records, "looks")["succeeded"]["output"];
    assert_eq!((&output["stdout"], &output["dropped"]), (&"x\n".into(), &serde_json::json!(["new.txt"])), "{output}");
    assert!(output["stderr"].as_str().unwrap().contains("Read-only"), "{output}");
}

/// The shell of an agent with a scope: the rest of its files is held by the walls, and what is new beside is told at once.
#[test]
fn a_scope_is_held_by_the_sandbox_and_told_right_after_the_call() {
    if !walls("a scope in the sandbox") {
        return;
    }
    let workflow = r#"
version: 1
name: held
agents: { worker: { system: x, access: write, model: scripted/model } }
steps:
  work: { agent: worker, prompt: go, scope: ["app/src/**", "docs/new/*.md"] }
  cmd: { run: "echo x > app/src/b.rs; echo x > docs/a.md", scope: ["app/src/**"] }
  land: { needs: [work, cmd], merge: { from: [work, cmd] } }
"#;
    let script = r#"
conversations:
  - agent: worker
    turns:
      - calls: [{ tool: Bash, input: { command: "echo x >> docs/a.md; rm README.md; mv app/lib.rs app/x.rs; sed -i s/a/b/ app/Cargo.toml; true" } }]
      - calls: [{ tool: Bash, input: { command: "mkdir -p docs/new app/src/deep && echo x > docs/new/b.md && echo x > app/src/deep/c.rs && rm app/src/main.rs && echo x > stray.txt" } }]
      - calls: [{ tool: Bash, input: { command: "rm stray.txt" } }]
      - say: done
"#;
    let bench = Bench::new()
        .file("app/Cargo.toml", "a")
        .file("app/lib.rs", "a")
        .file("app/src/main.rs", "a")
        .file("docs/a.md", "a")
        .commit("begin")
        .workflow("held", workflow);
    let (_, records) = bench.run("held", script, &[]);
    let told = results(&records, "work");
    assert!(told[0].2.matches("Read-only").count() + told[0].2.matches("busy").count() >= 4 && !told[0].2.contains("Outside"), "{told:?}");
    assert!(
        !told[1].1
            && told[1].2.contains("[Outside what this step may write (app/src/**, docs/new/*.md), so that its work cannot be kept like this: stray.txt."),
        "{told:?}"
    );
    assert!(!told[2].2.contains("Outside"), "{told:?}");
    let captured = records.iter().find_map(|record| match &record.event {
        Event::WorkCaptured { node, paths, .. } if node.to_string() == "work" => Some(paths.clone()),
        _ => None,
    });
    assert_eq!(captured.unwrap(), ["app/src/deep/c.rs", "app/src/main.rs", "docs/new/b.md"]);
    let failed = outcome(&records, "cmd")["failed"].clone();
    assert!(failed["message"].as_str().unwrap().contains("Read-only"), "{failed}");
}

fn walls(what: &str) -> bool {
    let there = Sandbox::new(sandbox::Options { path: std::env::var_os("PATH"), ..sandbox::Options::default() }).unwrap().bubblewrap().is_some();
    if !there {
        not_tested(what, "bubblewrap does not work here");
    }
    there
}

/// The checks of a command that writes are run on its work before that is a commit; red ones are its failure.
#[test]
fn work_of_a_command_counts_only_where_its_checks_are_green() {
    let yaml = "version: 1\nname: checked\nsteps:\n  good: { run: \"echo x > a.txt\", scope: [a.txt], verify: { run: [\"grep -q x a.txt\"] } }\n  bad: { run: \"echo x > b.txt\", scope: [b.txt], verify: { run: [\"true\", \"echo 'b is bad'; false\"] }, allow_failure: true }\n  join: { needs: [good, { step: bad, on: done }], merge: { from: [good, bad] } }\n";
    let bench = Bench::new().workflow("checked", yaml);
    let (said, records) = bench.run("checked", "conversations: []\n", &[]);
    said.code(0);
    assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{}", bench.newest())]), "README.md\na.txt\n");
    let failure = &outcome(&records, "bad")["failed"];
    assert_eq!(failure["kind"], "verify");
    assert!(failure["message"].as_str().unwrap().contains("b is bad"), "{failure}");
    let ran: Vec<bool> = records.iter().filter_map(|record| if let Event::VerifyRan { passed, .. } = &record.event { Some(*passed) } else { None }).collect();
    assert_eq!(ran.iter().filter(|passed| **passed).count(), 1, "{ran:?}");
    assert_eq!(ran.len(), 2);
    let again = yaml.replace("false\"] }", "false\"], attempts: 3 }");
    let said = bench.workflow("checked", &again).spinney(&["validate", "checked"]).code(2).out;
    assert!(said.contains("E021") && said.contains("it is checked once"), "{said}");
}
