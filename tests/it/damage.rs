//! What happens to a run's files beside the program: each damage is found, named, and mended where that is safe.
mod cut;
mod every;
mod table;

use crate::{fixture::Bench, invariants};
use serde_json::Value;
use spinney::{event::Event, journal};
use std::{
    fs,
    path::{Path, PathBuf},
};

/// A run of the first format of journals that waits for an answer, as the program of that time left it, with its commits.
const FORMAT_1: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-1");

fn copy(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if from.is_dir() {
            copy(&from, &to);
        } else {
            fs::copy(from, to).unwrap();
        }
    }
}

/// Changes every occurrence of some bytes in a file.
fn change(file: &Path, from: &[u8], to: &[u8]) {
    let mut bytes = fs::read(file).unwrap();
    let places: Vec<usize> = (0..bytes.len() - from.len()).filter(|at| bytes[*at..].starts_with(from)).collect();
    assert!(!places.is_empty());
    for at in places {
        bytes[at..at + to.len()].copy_from_slice(to);
    }
    fs::write(file, bytes).unwrap();
}

#[test]
fn a_journal_of_the_first_format_is_shown_and_gone_on_with() {
    let bench = Bench::new();
    bench.git(&["fetch", "-q", &format!("{FORMAT_1}/work.bundle"), "refs/spinney/*:refs/spinney/*"]);
    bench.git(&["reset", "-q", "--hard", "refs/spinney/old-74py29/first.1/base"]);
    let bench = bench.workflow("old", &fs::read_to_string(format!("{FORMAT_1}/workflow.yaml")).unwrap());
    let dir = bench.repo().join(".spinney/state/runs/old-74py29");
    copy(Path::new(FORMAT_1), &dir);
    assert!(bench.spinney(&["runs"]).code(0).out.contains("parked, asks 1"), "{}", bench.spinney(&["runs"]).out);
    assert!(bench.spinney(&["show", "old"]).code(0).out.contains("Go on?"));
    let before = journal::read(&dir).unwrap();
    assert_eq!(before.len(), 12);
    bench.spinney(&["approve", "old", "--by", "ann", "--no-resume"]).code(0);
    bench.spinney(&["resume", "old", "--accept-changes"]).code(0);
    let records = journal::read(&dir).unwrap();
    assert_eq!(records[..12], before);
    invariants::check(&records, &bench.repo());
    assert_eq!(bench.git(&["show", "spinney/old-74py29:second.txt"]), "of second.txt\n");
    // From now on a changed byte is seen.
    change(&dir.join("journal.db"), b"You code.", b"You lode.");
    assert!(bench.spinney(&["show", "old"]).code(1).err.contains("it was changed since it was written"));
}

/// A run of the second format that waits for an answer: an attempt that failed, work that was joined and put aside, a view, a loop.
const FORMAT_2: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-2");

/// One of the third that waits for two: with a sub-agent, a choice, a word to an agent, taken up twice and carried out otherwise from then on.
const FORMAT_3: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-3");

/// Puts a run that is kept as a fixture into a repository that has its commits.
fn recalled(fixture: &str) -> (Bench, String, PathBuf) {
    let bench = Bench::new();
    bench.git(&["fetch", "-q", &format!("{fixture}/work.bundle"), "refs/spinney/*:refs/spinney/*"]);
    let found = bench.git(&["for-each-ref", "--format=%(refname)", "refs/spinney/*/broke.1/base"]);
    bench.git(&["reset", "-q", "--hard", found.trim()]);
    let run = found.split('/').nth(2).unwrap().to_owned();
    let bench = bench.workflow("old", &fs::read_to_string(format!("{fixture}/workflow.yaml")).unwrap());
    let dir = bench.repo().join(".spinney/state/runs").join(&run);
    copy(Path::new(fixture), &dir);
    (bench, run, dir)
}

#[test]
fn a_journal_of_the_second_format_is_shown_and_gone_on_with() {
    let (bench, run, dir) = recalled(FORMAT_2);
    let said = doctor(&bench, &[]);
    assert!(said.starts_with("fine ") && said.lines().count() == 1, "{said}");
    let shown = bench.spinney(&["show", &run]).code(0).out;
    assert!(shown.contains("Go on, ann?") && shown.contains("--unconfined") && shown.contains("/broke.2/checkpoint"), "{shown}");
    let before = journal::read(&dir).unwrap();
    bench.spinney(&["approve", &run, "--by", "ann"]).code(0);
    let records = journal::read(&dir).unwrap();
    assert_eq!(records[..before.len()], before);
    invariants::check(&records, &bench.repo());
    assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{run}")]), "README.md\na.txt\nlog.a\nlog.second\nsecond.txt\n");
    bench.spinney(&["rerun", &run, "--from", "look"]).code(3);
    let kept = bench.git(&["for-each-ref", "--format=%(refname)", &format!("refs/spinney/{}", bench.newest())]);
    assert!(["broke.1/checkpoint", "each.b/ejected", "land/joined", "land/result"].iter().all(|name| kept.contains(name)), "{kept}");
}

#[test]
fn a_journal_of_the_third_format_is_shown_and_gone_on_with() {
    let (bench, run, dir) = recalled(FORMAT_3);
    let said = doctor(&bench, &[]);
    assert!(said.starts_with("warn ") && said.contains("the worktree of `second` is gone") && said.lines().count() == 1, "{said}");
    let shown = bench.spinney(&["show", &run]).code(0).out;
    assert!(["Go on, ann?", "touch second.txt", "--unconfined --no-cache"].iter().all(|word| shown.contains(word)), "{shown}");
    let before = journal::read(&dir).unwrap();
    bench.spinney(&["approve", &run, "ask", "--by", "ann", "--no-resume"]).code(0);
    let said = bench.spinney(&["resume", &run, "--on-ask", "allow"]).code(0);
    assert!(said.err.contains("`second` starts its attempt over: its worktree is gone"), "{said:?}");
    let records = journal::read(&dir).unwrap();
    assert_eq!(records[..before.len()], before);
    invariants::check(&records, &bench.repo());
    let files = "README.md\na.txt\nlog.a\nlog.second\nscout.txt\nsecond.txt\n";
    assert_eq!(bench.git(&["ls-tree", "--name-only", &format!("spinney/{run}")]), files);
    assert!(records.iter().any(|record| matches!(&record.event, Event::MessageAdded { message, .. } if format!("{message:?}").contains("Mind the gap."))));
}

const WORKFLOW: &str = r#"
version: 1
name: two
agents: { coder: { system: "You code.", access: write } }
steps:
  first: { agent: coder, prompt: "Write first.txt." }
  ask: { needs: [first], approve: { message: "Go on?" } }
  second: { needs: [ask], agent: coder, prompt: "Write second.txt.", output: { file: said } }
outputs: { said: "{{ steps.second.output }}" }
"#;
const SCRIPT: &str = r#"
conversations:
  - told: "Write (?<file>\\S+txt)"
    turns:
      - calls: [{ tool: Write, input: { file_path: "${file}", content: "of ${file}\n" } }]
      - say: "${file} is there"
"#;

/// A run that waits for an answer after its first step, and one beside it that is over.
fn waiting() -> (Bench, String, PathBuf) {
    let bench = Bench::new().workflow("two", WORKFLOW).workflow("calm", "version: 1\nname: calm\nsteps: { look: { run: pwd } }\n");
    bench.run("calm", SCRIPT, &[]).0.code(0);
    bench.run("two", SCRIPT, &[]).0.code(3);
    let run = bench.newest().0;
    let dir = bench.repo().join(".spinney/state/runs").join(&run);
    (bench, run, dir)
}

/// Returns what `doctor` says of runs, one a line: verdict, run, what was found and what to do.
fn doctor(bench: &Bench, more: &[&str]) -> String {
    let said = bench.spinney(&[&["doctor", "--json"], more].concat());
    let json: Value = serde_json::from_str(&said.out).unwrap_or_else(|error| panic!("{error}: {said:?}"));
    let word = |check: &Value, name: &str| check[name].as_str().unwrap_or_default().to_owned();
    let line = |check: &Value| format!("{} {}: {} hint: {}\n", word(check, "verdict"), word(check, "name"), word(check, "detail"), word(check, "hint"));
    json["checks"].as_array().unwrap().iter().filter(|check| check["area"] == "runs").map(line).collect()
}

fn goes_on(bench: &Bench, run: &str) {
    bench.spinney(&["approve", run, "--no-resume"]).code(0);
    bench.spinney(&["resume", run]).code(0);
    is_whole(bench, run);
}

fn is_whole(bench: &Bench, run: &str) {
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:second.txt")]), "of second.txt\n");
    let said = doctor(bench, &[]);
    assert!(said.lines().all(|line| line.starts_with("fine ")) && said.lines().count() == 2, "{said}");
}

/// Damages a waiting run; asserts that `doctor` and `show` or `resume` name it, that the other run is seen, and that `--repair`
/// mends it.
fn mended(damage: impl Fn(&Bench, &str, &Path), named: &str) -> (Bench, String) {
    let (bench, run, dir) = waiting();
    damage(&bench, &run, &dir);
    let said = doctor(&bench, &[]);
    assert!(said.contains(named) && said.contains(&run) && said.contains("fine calm-"), "{said}");
    assert!(said.contains("hint: `spinney doctor --repair` mends it"), "{said}");
    assert!(bench.spinney(&["runs"]).code(0).out.contains("calm-"));
    let said = doctor(&bench, &["--repair"]);
    assert!(said.contains("mended ") && said.contains(named), "{said}");
    goes_on(&bench, &run);
    (bench, run)
}

fn truncate(file: &Path) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

#[test]
fn a_journal_that_lost_its_end_is_named_and_goes_on_from_what_is_there() {
    let lose = |bench: &Bench, run: &str, dir: &Path| {
        let journal = fs::read(dir.join("journal.db")).unwrap();
        bench.spinney(&["resume", run]).code(3);
        fs::write(dir.join("journal.db"), journal).unwrap();
        for log in ["journal.db-wal", "journal.db-shm"] {
            fs::remove_file(dir.join(log)).unwrap_or_default();
        }
    };
    mended(lose, "records were written, and");
    mended(|_, _, dir| truncate(&dir.join("mark")), "which says how many records the journal beside it has: it is damaged");
    let (bench, run, dir) = waiting();
    fs::remove_file(dir.join("mark")).unwrap();
    assert!(bench.spinney(&["resume", &run]).code(1).err.contains("it is not there"));
    assert!(bench.spinney(&["show", &run]).code(1).err.contains("spinney doctor --repair"));
    assert!(doctor(&bench, &["--repair"]).contains("mended "));
    goes_on(&bench, &run);
}

#[test]
fn a_journal_with_a_changed_byte_is_named_and_never_gone_on_with() {
    let (bench, run, dir) = waiting();
    change(&dir.join("journal.db"), b"You code.", b"You lode.");
    let changed = "it was changed since it was written";
    for args in [["resume", &run], ["show", &run], ["land", &run], ["diff", &run]] {
        let said = bench.spinney(&args).code(1);
        assert!(said.err.contains(changed) && said.err.contains("hint: "), "{args:?}: {}", said.err);
    }
    assert!(bench.spinney(&["runs"]).code(0).out.contains(changed));
    // Without a name it is not passed over for an older one.
    let said = bench.spinney(&["resume"]).code(2);
    assert!(said.err.contains(&format!("the run `{run}` is passed over")) && said.err.contains(changed), "{}", said.err);
    for more in [&[][..], &["--repair"]] {
        let said = doctor(&bench, more);
        assert!(said.contains("broken two-") && said.contains(changed) && said.contains("commits of it are kept") && said.contains("fine calm-"), "{said}");
    }
    bench.spinney(&["doctor"]).code(1);
}

#[test]
fn refs_that_are_gone_or_moved_are_put_back() {
    let result = |run: &str| format!("refs/spinney/{run}/first/result");
    let (bench, run) = mended(|bench, run, _| drop(bench.git(&["update-ref", "-d", &result(run)])), "it is gone, and keeps");
    mended(|bench, run, _| drop(bench.git(&["update-ref", &result(run), "HEAD"])), "and the result of `first` is");
    // Resume does so itself, and says so.
    let (other, name, _) = waiting();
    other.git(&["update-ref", &result(&name), "HEAD"]);
    let shown = other.spinney(&["show", &name]).code(0).out;
    assert!(shown.contains("Not as the records say") && shown.contains("and the result of `first` is"), "{shown}");
    other.spinney(&["approve", &name, "--no-resume"]).code(0);
    assert!(other.spinney(&["resume", &name]).code(0).err.contains("it was put back"));
    is_whole(&other, &name);
    // The branch of a run that is over.
    let branch = format!("spinney/{run}");
    bench.git(&["branch", "-q", "-D", &branch]);
    assert!(doctor(&bench, &[]).contains("what the run left"));
    assert!(bench.spinney(&["show", &run]).code(0).out.contains("it is gone, and keeps"));
    assert!(doctor(&bench, &["--repair"]).contains("mended "));
    is_whole(&bench, &run);
    bench.git(&["branch", "-q", "-f", &branch, "HEAD"]);
    let said = doctor(&bench, &["--repair"]);
    assert!(said.contains("it stands at") && said.contains(&format!("git branch -f {branch}")), "somebody may have meant it: {said}");
    assert!(bench.spinney(&["land", &run]).code(1).err.contains("it moved from"));
}

#[test]
fn an_object_that_is_gone_is_named_and_the_run_neither_goes_on_nor_lands() {
    let drop_object = |bench: &Bench, revision: &str| {
        let id = bench.git(&["rev-parse", revision]).trim().to_owned();
        fs::remove_file(bench.repo().join(".git/objects").join(&id[..2]).join(&id[2..])).unwrap();
        id
    };
    for what in ["", "^{tree}", ":first.txt"] {
        let (bench, run, _) = waiting();
        let id = drop_object(&bench, &format!("refs/spinney/{run}/first/result{what}"));
        let said = doctor(&bench, &["--repair"]);
        assert!(said.contains(&id) && said.contains("broken ") && said.contains("git fetch") && said.contains("fine calm-"), "{what}: {said}");
        bench.spinney(&["approve", &run, "--no-resume"]).code(0);
        let said = bench.spinney(&["resume", &run]).code(1);
        assert!(said.err.contains(&id) && said.err.contains("hint: "), "{what}: {}", said.err);
        assert!(bench.spinney(&["show", &run]).code(0).out.contains(&id));
    }
    let (bench, run, _) = waiting();
    goes_on(&bench, &run);
    let id = drop_object(&bench, &format!("spinney/{run}:second.txt"));
    let before = bench.git(&["status", "--porcelain", "-uno"]);
    assert!(bench.spinney(&["land", &run]).code(1).err.contains(&id));
    assert_eq!(bench.git(&["status", "--porcelain", "-uno"]), before);
}

#[test]
fn blobs_and_files_of_outputs_are_named_and_made_of_each_other() {
    let (bench, run, dir) = waiting();
    goes_on(&bench, &run);
    let kept = dir.join("artifacts/said");
    let content = fs::read(&kept).unwrap();
    let id = spinney::event::BlobId::of(&content).0;
    let blob = dir.join("blobs").join(&id[..2]).join(&id[2..]);
    for (file, is_cut) in [(&blob, true), (&blob, false), (&kept, true), (&kept, false)] {
        if is_cut {
            truncate(file);
        } else {
            fs::remove_file(file).unwrap();
        }
        assert!(doctor(&bench, &[]).contains("hint: `spinney doctor --repair` mends it"));
        assert!(doctor(&bench, &["--repair"]).contains("mended "));
        assert_eq!(fs::read(file).unwrap(), content);
        is_whole(&bench, &run);
    }
    // The script stands for the models: nothing goes on without it.
    let (bench, run, dir) = waiting();
    let script = fs::read_dir(dir.join("blobs")).unwrap().flatten().flat_map(|entry| fs::read_dir(entry.path()).unwrap().flatten()).next().unwrap().path();
    truncate(&script);
    assert!(doctor(&bench, &[]).contains("of record 0"));
    assert!(bench.spinney(&["resume", &run]).code(1).err.contains("its content has another hash"));
    fs::remove_file(script).unwrap();
    assert!(bench.spinney(&["resume", &run]).code(1).err.contains("find blob"));
}

#[test]
fn a_lease_that_cannot_be_read_and_rubbish_among_letters_are_put_aside() {
    let no_lease = |_: &Bench, _: &str, dir: &Path| {
        fs::remove_file(dir.join("lease")).unwrap();
        fs::create_dir(dir.join("lease")).unwrap();
    };
    mended(no_lease, "lease");
    let (bench, run, dir) = waiting();
    no_lease(&bench, &run, &dir);
    assert!(bench.spinney(&["resume", &run]).code(1).err.contains("spinney doctor --repair"));

    mended(
        |_, _, dir| {
            fs::create_dir_all(dir.join("inbox")).unwrap();
            fs::write(dir.join("inbox/word-1.json"), [0; 100]).unwrap();
        },
        "inbox/word-1.json: it is no letter that can be read",
    );
    // What is no file can never be taken away, and hinders nobody.
    let (bench, run, dir) = waiting();
    fs::create_dir_all(dir.join("inbox/folder.json")).unwrap();
    fs::write(dir.join("inbox/rubbish"), "x").unwrap();
    let said = doctor(&bench, &[]);
    assert!(said.contains("inbox/folder.json: it is no letter") && said.contains("inbox/rubbish: it is no letter"), "{said}");
    bench.spinney(&["approve", &run, "--no-resume"]).code(0);
    bench.spinney(&["resume", &run]).code(0);
}

#[test]
fn a_worktree_that_is_gone_while_an_agent_works_in_it_starts_its_attempt_over_and_says_so() {
    let bench = Bench::new().workflow("two", &WORKFLOW.replace("needs: [ask]", "needs: [first]"));
    let asks = bench.drive_script(SCRIPT);
    let (_, records) = asks.run_until("two", |record| matches!(&record.event, Event::ToolFinished { node, .. } if node.step.0 == "second"));
    assert!(matches!(records.last().unwrap().event, Event::ToolFinished { .. }), "{:?}", records.last());
    let path = records.iter().rev().find_map(|record| if let Event::WorkspaceMade { path, .. } = &record.event { Some(path.clone()) } else { None }).unwrap();
    assert!(Path::new(&path).join("second.txt").exists());
    fs::remove_dir_all(&path).unwrap();
    let said = doctor(&bench, &[]);
    assert!(said.contains(&format!("{path}: the worktree of `second` is gone")), "{said}");
    let said = bench.spinney(&["resume"]);
    assert!(said.err.contains("`second` starts its attempt over: its worktree is gone, and "), "{said:?}");
    let run = bench.newest();
    bench.spinney(&["approve", &run.0]).code(0);
    invariants::check(&bench.records(&run), &bench.repo());
    assert_eq!(bench.git(&["show", &format!("spinney/{run}:second.txt")]), "of second.txt\n");
}
