//! Where steps stand and what surrounds them: folders, environments, silence, and what a workspace is made of.
use crate::fixture::{Bench, outcome, results};

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
