//! What is told of runs that follow from others: where they begin, what of them is whose, and how one goes on from a failure.
use super::{SCRIPT, bench, first, follows, runs};
use crate::fixture::Bench;
use serde_json::Value;
use std::fs;

const ASK: &str = "version: 1\nname: ask\nsteps:\n  ask: { approve: { message: \"Yes?\" } }\n  two: { needs: [ask], run: \"cat README.md\" }\n";
const ITEMS: &str = "version: 1\nname: items\nsteps:\n  build: { for_each: { items: [a, b, c], as: it, max_parallel: 1, on_item_failure: stop }, run: \"test ! -e RED.{{ it | sh }}\" }\n";

/// Takes the commit that the runs so far began at out of the branch, and all that nothing keeps out of the repository.
fn forget(bench: &Bench) {
    bench.git(&["commit", "-q", "--amend", "-m", "another beginning"]);
    bench.git(&["reflog", "expire", "--expire=now", "--all"]);
    bench.git(&["gc", "--quiet", "--prune=now"]);
}

fn items() -> Bench {
    let bench = Bench::new();
    let flow = ITEMS.replace("RED", &bench.path("red").display().to_string());
    bench.workflow("items", &flow)
}

#[test]
fn the_commit_that_a_run_starts_from_is_kept_from_its_first_record_on() {
    let bench = Bench::new().workflow("ask", ASK);
    bench.run("ask", "conversations: []\n", &[]).0.code(3);
    let base = bench.git(&["rev-parse", "HEAD"]);
    forget(&bench);
    assert_ne!(bench.git(&["rev-parse", "HEAD"]), base);
    bench.spinney(&["approve", &bench.newest().0]).code(0);
}

#[test]
fn nothing_begins_at_a_commit_that_is_gone() {
    let bench = items();
    fs::write(bench.path("red.b"), "").unwrap();
    bench.run("items", SCRIPT, &["--unconfined"]).0.code(1);
    let run = bench.newest();
    let base = bench.git(&["rev-parse", "HEAD"]);
    bench.git(&["update-ref", "-d", &format!("refs/spinney/{run}/checkout/head")]);
    for slug in bench.git(&["for-each-ref", "--format=%(refname)", &format!("refs/spinney/{run}")]).lines() {
        bench.git(&["update-ref", "-d", slug]);
    }
    forget(&bench);
    for command in [&["retry", run.0.as_str()][..], &["rerun", &run.0], &["plan", &run.0]] {
        let said = bench.spinney(command).code(2);
        assert!(
            said.err.contains(base.trim()) && said.err.contains("is not in the repository any more, or damaged") && said.err.contains("git fetch"),
            "{}",
            said.err
        );
    }
    assert_eq!(runs(&bench).len(), 1, "something was begun");
}

#[test]
fn a_run_whose_beginning_is_lost_is_ended_and_removed() {
    let bench = Bench::new().workflow("ask", ASK);
    bench.run("ask", "conversations: []\n", &[]).0.code(3);
    let run = bench.newest();
    bench.git(&["update-ref", "-d", &format!("refs/spinney/{run}/checkout/head")]);
    forget(&bench);
    let said = bench.spinney(&["cancel", &run.0]).code(1);
    assert!(said.err.contains("the commit that everything starts from") && said.err.contains("--as-it-stands"), "{}", said.err);
    assert!(bench.spinney(&["doctor"]).code(1).out.contains("spinney clean --drop"));
    bench.spinney(&["cancel", &run.0, "--as-it-stands"]).code(0);
    bench.spinney(&["clean", "--drop", &run.0]).code(0);
    assert!(!bench.spinney(&["doctor"]).out.contains(&run.0));
}

#[test]
fn a_run_that_follows_says_where_it_begins_and_how_far_the_branch_has_moved_on() {
    let bench = items();
    fs::write(bench.path("red.b"), "").unwrap();
    bench.run("items", SCRIPT, &["--unconfined"]).0.code(1);
    let run = bench.newest();
    let base = bench.git(&["rev-parse", "--short=10", "HEAD"]);
    let begins = |bench: &Bench| bench.spinney(&["plan", &run.0, "--retry"]).code(0).out;
    assert!(begins(&bench).contains(&format!("Begins at {} of main.\n", base.trim())), "{}", begins(&bench));
    let bench = bench.file("x", "1").commit("one").file("x", "2").commit("two");
    assert!(begins(&bench).contains("main is 2 commits further, `spinney run items` begins at what it has now"), "{}", begins(&bench));
    let json: Value = serde_json::from_str(&bench.spinney(&["plan", &run.0, "--retry", "--json"]).code(0).out).unwrap();
    assert_eq!((&json["commits_behind"], &json["head"]), (&2.into(), &"refs/heads/main".into()));
    fs::remove_file(bench.path("red.b")).unwrap();
    let said = bench.spinney(&["retry", &run.0, "--unconfined"]).code(0);
    assert!(said.out.contains("main is 2 commits further") && said.out.contains(": 1 of 3 items of build holds\n"), "{}", said.out);
    bench.git(&["reset", "-q", "--soft", "HEAD~2"]);
    bench.git(&["commit", "-q", "--amend", "-m", "another beginning"]);
    assert!(begins(&bench).contains("which main does not have any more"), "{}", begins(&bench));
}

#[test]
fn whose_the_records_are_is_told_by_every_command_that_shows_a_run() {
    let bench = bench();
    fs::write(bench.path("red.b"), "").unwrap();
    let old = first(&bench, 1);
    let tokens = |run: &str| {
        let list: Value = serde_json::from_str(&bench.spinney(&["runs", "--json"]).code(0).out).unwrap();
        let row = list.as_array().unwrap().iter().find(|row| row["run"] == run).unwrap().clone();
        (row["tokens"].as_u64().unwrap(), row["kept"]["tokens"].as_u64().unwrap(), row["origin"]["run"].clone())
    };
    let (all, none, no_origin) = tokens(&old.0);
    assert_eq!((none, no_origin), (0, Value::Null));
    // A rerun keeps the failure, and says so.
    let said = bench.spinney(&["rerun", &old.0, "--unconfined"]).code(1);
    assert!(said.out.contains(&format!("Holds as failed: build; `spinney retry {old}` does that again")), "{}", said.out);
    let kept = bench.newest();
    assert_eq!(tokens(&kept.0), (0, all, Value::from(old.0.as_str())));
    let shown = bench.spinney(&["show", &kept.0]).code(0).out;
    assert!(shown.contains(&format!("after {old}, of which ")) && shown.contains("failed, kept") && !shown.contains("Worktrees"), "{shown}");
    assert!(bench.spinney(&["show", &old.0]).code(0).out.contains("Worktrees"));
    fs::remove_file(bench.path("red.b")).unwrap();
    let (new, _) = follows(&bench, &["retry", &old.0], 0);
    let (own, held, origin) = tokens(&new.0);
    assert!(own > 0 && held > 0 && held < all && origin == old.0.as_str(), "{own} {held} of {all}");
    let shown = bench.spinney(&["show", &new.0]).code(0).out;
    assert!(shown.contains(&format!("retry of {old}, of which ")) && shown.contains("of that in what holds: ") && shown.contains("succeeded, kept"), "{shown}");
    assert!(bench.spinney(&["runs"]).code(0).out.contains(&format!("succeeded, retry of {old}")));
    let watched = bench.spinney(&["watch", &new.0]).code(0).out;
    let (before, after) = watched.split_once(&format!("until here it is what holds of {old}\n")).unwrap();
    assert!(before.contains("build/a") && !before.contains("build/b") && after.contains("build/b"), "{watched}");
}

#[test]
fn how_one_goes_on_from_a_failure_is_said_wherever_it_is_met() {
    let bench = items();
    fs::write(bench.path("red.b"), "").unwrap();
    let said = bench.run("items", SCRIPT, &["--unconfined"]).0.code(1);
    let run = bench.newest();
    let retry = format!("spinney retry {run}");
    assert!(said.out.contains(&retry), "{}", said.out);
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains(&retry));
    let said = bench.spinney(&["resume", &run.0]).code(2);
    assert!(said.err.contains("it is over, and failed") && said.err.contains(&retry), "{}", said.err);
}
