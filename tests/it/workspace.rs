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
