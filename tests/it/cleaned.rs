//! `clean`: what is left of runs goes where their work is elsewhere, and unlanded work only where its run is named.
use crate::fixture::Bench;
use serde_json::Value;
use spinney::event::RunId;
use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

const FLOW: &str = r#"
version: 1
name: flow
agents: { coder: { system: "You code.", access: write } }
steps:
  build: { for_each: { items: [a, b], as: part }, agent: coder, prompt: "Build {{ part }}." }
  land: { needs: [build], merge: { from: build } }
"#;
const SCRIPT: &str = r#"
conversations:
  - agent: coder
    told: "Build (?<part>[a-z]+)"
    turns:
      - calls: [{ tool: Write, input: { file_path: "${part}.txt", content: "${part}\n" } }]
      - calls: [{ tool: Bash, input: { command: "echo more >> ${part}.txt" } }]
      - say: "Built."
  - agent: coder
    told: "Append"
    turns:
      - calls: [{ tool: Bash, input: { command: "echo line >> app.txt" } }]
      - say: "Appended."
"#;
const LOOK: &str = "version: 1\nname: look\nsteps: { look: { run: \"ls\" }, red: { run: \"echo out > report.xml; false\", allow_failure: true } }\n";
const ASK: &str = "version: 1\nname: ask\nsteps: { ask: { approve: { message: \"Yes?\" } } }\n";
const RED: &str = r#"
version: 1
name: red
agents: { coder: { system: "You code.", access: write } }
steps:
  build: { agent: coder, prompt: "Build x.", verify: { run: ["false"], attempts: 1 } }
"#;

fn run(bench: &Bench, workflow: &str, code: u8) -> RunId {
    bench.run(workflow, SCRIPT, &[]).0.code(code);
    bench.newest()
}

/// Returns what became of each run, by its workflow.
fn cleaned(bench: &Bench, more: &[&str]) -> BTreeMap<String, (bool, String)> {
    let said = bench.spinney(&[&["clean", "--json"], more].concat()).code(0);
    let fates: Value = serde_json::from_str(&said.out).unwrap();
    let one = |fate: &Value| {
        let (run, why) = (fate["run"].as_str().unwrap(), fate["why"].as_str().unwrap());
        (run.rsplit_once('-').unwrap().0.to_owned(), (fate["would_be_removed"] == true, why.to_owned()))
    };
    fates.as_array().unwrap().iter().map(one).collect()
}

#[test]
fn only_what_has_landed_or_left_nothing_goes() {
    let bench = Bench::new().workflow("flow", FLOW).workflow("look", LOOK).workflow("ask", ASK).workflow("red", RED);
    let (flow, look, ask, red) = (run(&bench, "flow", 0), run(&bench, "look", 0), run(&bench, "ask", 3), run(&bench, "red", 1));
    let young = cleaned(&bench, &["--dry-run"]);
    assert!(young.values().all(|(goes, _)| !goes) && young["look"].1.contains("not long enough"), "{young:?}");
    let fates = cleaned(&bench, &["--older-than", "0s", "--dry-run"]);
    assert_eq!(fates["look"], (true, "it left no work".to_owned()));
    for (workflow, why) in [("flow", "is on no branch but the run's own"), ("ask", "it is not over"), ("red", "is on no branch but the run's own")] {
        assert!(!fates[workflow].0 && fates[workflow].1.contains(why), "{fates:?}");
    }
    bench.spinney(&["land", &flow.0]).code(0);
    assert_eq!(cleaned(&bench, &["--older-than", "0s"])["flow"], (true, "its work has landed".to_owned()));
    let left = bench.git(&["for-each-ref", "--format=%(refname)"]);
    assert!(!left.contains(&flow.0) && left.contains(&red.0), "{left}");
    for run in [&flow, &look] {
        assert!(!bench.repo().join(format!(".spinney/state/runs/{run}")).exists(), "{run} is still there");
    }
    // A run that waits is not dropped, even by its name; work that is nowhere else is, by its name alone.
    let said = bench.spinney(&["clean", "--drop", &ask.0]).code(1);
    assert!(said.out.contains("it is not over"), "{}", said.out);
    let said = bench.spinney(&["clean", "--drop", &red.0]).code(0);
    assert!(said.out.contains("dropped, as asked for"), "{}", said.out);
    assert!(!bench.git(&["for-each-ref"]).contains(&red.0));
    assert_eq!(cleaned(&bench, &[]).keys().collect::<Vec<_>>(), ["ask"]);
    bench.spinney(&["clean", "--older-than", "soon"]).code(2);
}

/// An agent that writes a file, and one that git ignores, and then has no turn left.
const CUT: &str = r#"
version: 1
name: cut
agents: { coder: { system: "You code.", access: write } }
steps:
  build:
    agent: coder
    prompt: "Build FILE."
    budget: { turns: 1 }
    workspace: { kind: worktree, setup: ["mkdir -p made && echo 1 > made/it"] }
"#;

fn cut(file: &str) -> (Bench, RunId) {
    let bench = Bench::new().file(".gitignore", ".spinney/\n.env\nmade/\nout/\n").commit("ignore").workflow("cut", CUT);
    let call = |file: &str| format!("{{ tool: Write, input: {{ file_path: \"{file}\", content: \"x\\n\" }} }}");
    let calls = file.split(' ').map(call).collect::<Vec<_>>().join(", ");
    let script = format!("conversations:\n  - agent: coder\n    turns:\n      - calls: [{calls}]\n      - say: \"Built.\"\n");
    bench.run("cut", &script, &["--unconfined"]).0.code(1);
    let run = bench.newest();
    (bench, run)
}

#[test]
fn what_git_ignores_in_a_worktree_goes_only_where_that_is_said_or_setup_made_it() {
    let (bench, _) = cut(".env out/x");
    let (goes, why) = cleaned(&bench, &["--older-than", "0s"])["cut"].clone();
    assert!(!goes && why.contains("what git ignores in the worktree") && why.contains("(.env, out/)"), "{why}");
    assert_eq!(cleaned(&bench, &["--older-than", "0s", "--ignored"])["cut"], (true, "it left no work".to_owned()));
}

/// The end of the machine's power may take what is noted of a worktree: whoever only looks leaves it where it is.
#[test]
fn a_worktree_of_which_nothing_is_noted_any_more_is_kept_as_it_is() {
    let (bench, _) = cut(".env");
    let there = || found(&bench.path("cache"), ".env");
    let file = there().expect("the worktree stays");
    let folder = file.parent().unwrap();
    let note = folder.parent().unwrap().join(".engine").join(folder.file_name().unwrap()).join("note.json");
    fs::write(&note, "").unwrap();
    for words in [&["clean", "--older-than", "0s", "--dry-run"][..], &["doctor"], &["clean", "--older-than", "0s"]] {
        let said = bench.spinney(words);
        assert_eq!(there(), Some(file.clone()), "{words:?}: {said:?}");
    }
    let (goes, why) = cleaned(&bench, &["--older-than", "0s"])["cut"].clone();
    assert!(!goes && why.contains("what stands in the worktree"), "{why}");
}

/// Finds a file below a folder.
fn found(folder: &Path, name: &str) -> Option<PathBuf> {
    let entries: Vec<PathBuf> = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()).collect();
    let own = entries.iter().find(|path| path.file_name().is_some_and(|found| found == name)).cloned();
    own.or_else(|| entries.iter().filter(|path| path.is_dir() && !path.is_symlink()).find_map(|path| found(path, name)))
}

#[test]
fn what_goes_with_a_run_that_is_dropped_is_named_beforehand() {
    let (bench, run) = cut("x.txt");
    let (goes, why) = cleaned(&bench, &["--older-than", "0s", "--ignored"])["cut"].clone();
    assert!(!goes, "{why}");
    for more in [&["--dry-run"][..], &[]] {
        let said = bench.spinney(&[&["clean", "--drop", &run.0], more].concat()).code(0);
        assert!(said.out.contains("1 commit was nowhere else") && said.out.contains("had work that is in no commit"), "{}", said.out);
    }
}

#[test]
fn commits_that_somebody_else_has_put_on_the_branch_of_a_run_never_go_with_it() {
    let bench = Bench::new().workflow("flow", FLOW);
    let run = run(&bench, "flow", 0);
    let branch = format!("spinney/{run}");
    bench.git(&["checkout", "-q", &branch]);
    for more in [&["--dry-run"][..], &[]] {
        let said = bench.spinney(&[&["clean", "--drop", &run.0], more].concat()).code(1);
        assert!(said.out.contains("its branch is checked out in"), "{}", said.out);
    }
    let bench = bench.file("mine.txt", "mine").commit("mine");
    let mine = bench.git(&["rev-parse", "HEAD"]);
    bench.git(&["checkout", "-q", "main"]);
    let said = bench.spinney(&["clean", "--drop", &run.0]).code(0);
    assert!(said.out.contains(&format!("`{branch}` stays at {}, which is not what the run left", &mine[..12])), "{}", said.out);
    assert_eq!(bench.git(&["rev-parse", &branch]), mine);
    assert!(!bench.git(&["for-each-ref", "refs/spinney"]).contains(&run.0));
    assert!(!bench.repo().join(format!(".spinney/state/runs/{run}")).exists());
}

#[test]
fn what_failed_work_had_is_shown_by_its_checkpoint() {
    let (bench, run) = cut("x.txt");
    let said = bench.spinney(&["diff", &run.0, "build"]).code(0);
    assert!(said.out.contains("+x\n") && said.err.contains(&format!("refs/spinney/{run}/build.1/checkpoint")), "{said:?}");
    bench.git(&["update-ref", "-d", &format!("refs/spinney/{run}/build.1/checkpoint")]);
    let said = bench.spinney(&["diff", &run.0, "build"]).code(1);
    assert!(said.err.contains("there is no checkpoint of it") && said.err.contains("its worktree is still there: "), "{}", said.err);
}

#[test]
fn what_a_failed_command_had_is_kept_like_an_agents_work() {
    let flow = "version: 1\nname: gen\nsteps: { gen: { run: \"echo long-work > gen.txt; exit 3\", scope: [gen.txt] }, look: { run: \"exit 3\" } }\n";
    let bench = Bench::new().workflow("gen", flow);
    bench.run("gen", SCRIPT, &["--unconfined"]).0.code(1);
    let run = bench.newest();
    let said = bench.spinney(&["diff", &run.0, "gen"]).code(0);
    assert!(said.out.contains("+long-work\n"), "{}", said.out);
    let shown = bench.spinney(&["show", &run.0]).code(0).out;
    assert!(shown.contains(&format!("refs/spinney/{run}/gen.1/checkpoint")) && !shown.contains("look.1/checkpoint"), "{shown}");
}

#[test]
fn a_removal_that_died_is_ended_by_the_next() {
    let bench = Bench::new().workflow("look", LOOK).workflow("flow", FLOW);
    let (look, flow) = (run(&bench, "look", 0), run(&bench, "flow", 0));
    bench.spinney(&["land", &flow.0]).code(0);
    // While a folder was removed, and while git removed refs.
    let runs = bench.repo().join(".spinney/state/runs");
    fs::rename(runs.join(&look.0), runs.join(format!(".leaving-{look}"))).unwrap();
    fs::remove_file(runs.join(format!(".leaving-{look}/mark"))).unwrap();
    fs::write(bench.repo().join(format!(".git/refs/spinney/{flow}/land/result.lock")), "").unwrap();
    fs::create_dir(runs.join("never-abcdef")).unwrap();
    bench.spinney(&["clean", "--dry-run", "--older-than", "0s"]).code(0);
    assert!(runs.join(format!(".leaving-{look}")).exists(), "nothing is removed where it is only looked at");
    let said = bench.spinney(&["clean", "--older-than", "0s"]).code(0).out;
    assert!(said.contains("its work has landed") && said.contains("it died before its first record"), "{said}");
    assert_eq!(fs::read_dir(&runs).unwrap().count(), 0, "{said}");
    assert_eq!(bench.git(&["for-each-ref", "refs/spinney"]), "");
}

/// Work that somebody passes on has landed where he hands it to who takes it in.
#[test]
fn work_that_a_loop_or_a_choice_passes_on_lands_with_what_took_it_in() {
    let yaml = r#"
version: 1
name: flow
agents: { coder: { system: "You code.", access: write } }
steps:
  polish: { loop: { until: "true", max: 2 }, steps: { fix: { agent: coder, prompt: "Build a." } } }
  grow:
    loop: { until: "{{ steps.long.exit_code == 0 }}", max: 3 }
    steps:
      add: { agent: coder, prompt: "Append." }
      long: { needs: [add], run: "test $(wc -l < app.txt) -ge 2", allow_failure: true }
  try: { for_each: { items: [b, d], as: it }, agent: coder, prompt: "Build {{ it }}." }
  pick: { needs: [try], select: { from: try, tie: first, keep_losers: 1ms } }
  more: { agent: coder, prompt: "Build c." }
  land: { needs: [polish, grow, pick, more], merge: { from: [polish, grow, pick, more] } }
"#;
    let bench = Bench::new().workflow("flow", yaml);
    let flow = run(&bench, "flow", 0);
    assert!(!cleaned(&bench, &["--older-than", "0s", "--dry-run"])["flow"].0);
    bench.spinney(&["land", &flow.0]).code(0);
    assert_eq!(bench.git(&["show", "HEAD:app.txt"]), "line\nline\n");
    assert_eq!(cleaned(&bench, &["--older-than", "0s", "--dry-run"])["flow"], (true, "its work has landed".to_owned()));
}

/// Results that `cache` keeps belong to no run, whatever the runs are called.
#[test]
fn kept_results_are_no_leftovers_of_a_run() {
    let yaml = "version: 1\nname: kept\nsteps: { make: { run: \"echo x > x.txt\", scope: [x.txt], cache: { key: x } } }\n";
    let bench = Bench::new().workflow("kept", yaml);
    bench.run("kept", SCRIPT, &[]).0.code(0);
    let kept = || bench.git(&["for-each-ref", "--format=%(refname)", "refs/spinney/cache"]);
    let before = kept();
    assert!(!before.is_empty() && !bench.spinney(&["doctor"]).out.contains("cache:"), "{before}");
    bench.spinney(&["land", &bench.newest().0]).code(0);
    bench.spinney(&["clean", "--older-than", "0s"]).code(0);
    assert_eq!(kept(), before);
}

/// What was moved out of the way of a new attempt may be the only copy of somebody's work.
#[test]
fn files_that_were_moved_aside_keep_their_run() {
    let bench = Bench::new().workflow("flow", FLOW);
    let flow = run(&bench, "flow", 0);
    bench.spinney(&["land", &flow.0]).code(0);
    let folder = bench.path("cache").join("spinney/worktrees");
    let folders = || fs::read_dir(&folder).unwrap().flatten().map(|entry| entry.path().join(&flow.0));
    let aside = folders().next().unwrap().join(".engine/.aside-build.a.1-x/files");
    fs::create_dir_all(&aside).unwrap();
    fs::write(aside.join("only.txt"), "copy\n").unwrap();
    let (goes, why) = cleaned(&bench, &["--older-than", "0s"])["flow"].clone();
    assert!(!goes && why.contains(&aside.display().to_string()) && aside.join("only.txt").exists(), "{why}");
    let said = bench.spinney(&["clean", "--drop", &flow.0, "--dry-run"]).code(0).out;
    assert!(said.contains("had files that are in no commit"), "{said}");
}
