//! The shipped workflows from end to end: each on a small repository with a scripted model, what comes of it asserted; and
//! interrupted at some of its records and taken up again.
use crate::{
    driver::Drive,
    fixture::{Bench, Said, outcome},
    invariants,
};
use serde_json::{Value, json};
use spinney::{
    engine::Ended,
    event::{Event, Record},
    journal::RunDir,
};
use std::fs;

/// A shipped workflow with all it needs to be run.
struct Example {
    workflow: &'static str,
    script: String,
    inputs: Vec<(&'static str, Value)>,
    bench: fn() -> Bench,
}

impl Example {
    fn input(mut self, name: &'static str, value: impl Into<Value>) -> Example {
        self.inputs.retain(|(known, _)| *known != name);
        self.inputs.push((name, value.into()));
        self
    }

    /// Runs it as a person would.
    fn run(&self) -> (Bench, Said) {
        let bench = (self.bench)();
        let script = bench.script(&self.script);
        let mut words = vec!["run".to_owned(), self.workflow.to_owned(), "--unconfined".to_owned(), "--script".to_owned(), script];
        for (name, value) in &self.inputs {
            words.extend(["--input".to_owned(), format!("{name}={}", value.as_str().map_or_else(|| value.to_string(), str::to_owned))]);
        }
        let said = bench.spinney(&words.iter().map(String::as_str).collect::<Vec<_>>());
        (bench, said)
    }

    /// Prepares to run it where somebody says yes to everything.
    fn drive<'a>(&self, bench: &'a Bench) -> Drive<'a> {
        let inputs = self.inputs.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).collect();
        bench.drive_script(&self.script).inputs(inputs).saying_yes()
    }

    /// Interrupts a run at each `step`th record and takes it up again; `end` says what must be the same, whatever
    /// happened on the way.
    #[track_caller]
    fn interrupted<T: PartialEq + std::fmt::Debug>(&self, step: usize, end: impl Fn(&Bench, &[Record]) -> T) {
        let alone = (self.bench)();
        let (ended, records) = self.drive(&alone).run(self.workflow);
        assert!(matches!(ended, Ended::Finished(_)), "{ended:?}");
        let wanted = end(&alone, &records);
        for at in (step / 2..records.len()).step_by(step) {
            let bench = (self.bench)();
            let (ended, _) = self.drive(&bench).run_until(self.workflow, |record| record.seq >= at as u64);
            let records = match ended {
                Ended::Interrupted => {
                    let (ended, records) = self.drive(&bench).resume(self.workflow);
                    assert!(matches!(ended, Ended::Finished(_)), "after record {at}: {ended:?}");
                    records
                }
                // It was as good as over.
                Ended::Finished(_) => bench.records(&bench.newest()),
                Ended::Parked(questions) => panic!("after record {at} it waits: {questions:?}"),
            };
            assert_eq!(end(&bench, &records), wanted, "after record {at}");
        }
    }
}

/// The log of the newest run, held against what holds of every log.
fn log(bench: &Bench) -> Vec<Record> {
    let records = bench.records(&bench.newest());
    invariants::check(&records, &bench.repo());
    records
}

/// A file of the branch that the newest run has made.
fn result(bench: &Bench, path: &str) -> String {
    bench.git(&["show", &format!("spinney/{}:{path}", bench.newest())])
}

fn files(bench: &Bench) -> Vec<String> {
    bench.git(&["ls-tree", "-r", "--name-only", &format!("spinney/{}", bench.newest())]).lines().map(str::to_owned).collect()
}

fn outputs(records: &[Record]) -> Value {
    let run = outcome(records, "run");
    let output = |word: &str| run[word]["output"].clone();
    if run["succeeded"].is_object() { output("succeeded") } else { output("failed") }
}

fn begun(records: &[Record], node: &str) -> bool {
    records.iter().any(|record| matches!(&record.event, Event::StepStarted { node: of, .. } if of.to_string() == node))
}

/// What the step says that explains a failure.
fn told(records: &[Record]) -> String {
    let of = |record: &Record| match &record.event {
        Event::StepFinished { node, outcome } if node.step.0 == "report" => outcome.success()?.output.as_str().map(str::to_owned),
        _ => None,
    };
    records.iter().find_map(of).unwrap_or_default()
}

fn feature() -> Example {
    Example { workflow: "feature", script: include_str!("examples/feature.yaml").to_owned(), inputs: Vec::new(), bench: Bench::new }
        .input("goal", "Three notes")
        .input("max_agents", 2)
        // Each note is green by itself; two that speak of a limit are not.
        .input("check", "test $(cat *.txt | grep -c limit) -le 1")
        .input("lint", "! grep -H TODO *.txt")
}

#[test]
fn feature_puts_aside_what_is_red_mends_what_is_joined_and_waits_for_a_person() {
    let (bench, said) = feature().run();
    let said = said.code(3);
    let run = bench.newest();
    assert!(said.out.contains("Keep this result for: Three notes? Not in it, put aside by the merge: build/bad."), "{}", said.out);
    assert!(said.out.contains(&format!("spinney approve {run}")), "{}", said.out);
    let records = log(&bench);
    assert_eq!(outcome(&records, "land")["succeeded"]["output"]["landed"], json!(["build/one", "build/two"]));
    assert_eq!(outcome(&records, "polish")["succeeded"]["output"]["iterations"], 2, "red, mended, green");
    assert!(outcome(&records, "run").is_null() && bench.git(&["branch", "--list", "spinney/*"]).is_empty(), "nothing is done yet");
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains("+more"), "the change is shown");
    let said = bench.spinney(&["approve", &run.0, "--note", "fine"]).code(0);
    assert!(said.out.contains("\n  ejected: [{\"from\":\"build/bad\""), "what it results in is printed: {}", said.out);
    assert_eq!(files(&bench), ["README.md", "one.txt", "two.txt"]);
    assert_eq!(result(&bench, "two.txt"), "more\n");
    let outputs = outputs(&log(&bench));
    assert_eq!((&outputs["branch"], &outputs["landed"]), (&json!(format!("spinney/{run}")), &json!(["build/one", "build/two"])));
    assert_eq!(outputs["ejected"][0]["from"], "build/bad");
    assert!(bench.git(&["for-each-ref", &format!("refs/spinney/{run}")]).contains("build.bad"), "its work is kept");
}

#[test]
fn a_feature_that_a_person_rejects_has_failed_and_says_what_became_of_it() {
    let (bench, said) = feature().run();
    said.code(3);
    let run = bench.newest();
    bench.spinney(&["reject", &run.0, "--note", "not this way"]).code(1);
    let records = log(&bench);
    assert_eq!(outcome(&records, "approve")["failed"]["kind"], "refusal");
    assert!(told(&records).contains("not this way"));
    assert!(bench.git(&["branch", "--list", "spinney/*"]).is_empty());
}

#[test]
fn a_feature_that_asks_nobody_is_done_when_it_is_green() {
    let (bench, said) = feature().input("ask", false).run();
    said.code(0);
    assert_eq!(files(&bench), ["README.md", "one.txt", "two.txt"]);
}

#[test]
fn a_feature_whose_plan_fails_is_explained() {
    let (bench, said) = feature().input("goal", "Nothing sensible").run();
    said.code(1);
    let records = log(&bench);
    assert!(told(&records).starts_with("It failed: step `plan`"), "{}", told(&records));
    assert!(!begun(&records, "land"));
}

#[test]
fn a_feature_that_is_interrupted_ends_as_one_that_was_left_alone() {
    feature().input("ask", false).interrupted(37, |bench, records| (files(bench), result(bench, "two.txt"), outputs(records)["ejected"].clone()));
}

/// A change on a branch of its own, held against `main`, which has gone on since.
fn change() -> Bench {
    let bench = Bench::new().file("src/math.rs", "fn add() {}\n").file("tests/math.rs", "#[test]\nfn adds() {}\n").commit("math");
    bench.git(&["checkout", "-q", "-b", "change"]);
    let bench = bench.file("src/math.rs", "fn add() {}\nfn divide() {}\nfn more() {}\n").commit("divide");
    bench.git(&["checkout", "-q", "main"]);
    let bench = bench.file("README.md", "# On main\n").commit("on main");
    bench.git(&["checkout", "-q", "change"]);
    bench
}

fn review(verdict: &str) -> Example {
    let script = include_str!("examples/review.yaml").replace("VERDICT", verdict);
    Example { workflow: "review", script, inputs: Vec::new(), bench: change }
}

#[test]
fn review_confirms_sorts_and_places_findings_and_stands_in_the_way() {
    let (bench, said) = review("request_changes").run();
    let said = said.code(1);
    let records = log(&bench);
    let report = &outcome(&records, "checked")["succeeded"]["output"]["output"];
    let place = |finding: &Value| format!("{} {}:{}", finding["severity"], finding["file"], finding["line"]).replace('"', "");
    let places = |list: &str| report[list].as_array().unwrap().iter().map(place).collect::<Vec<_>>();
    assert_eq!(places("findings"), ["high src/math.rs:2", "low src/math.rs:1"], "the most severe first");
    assert_eq!(places("astray"), ["critical src/gone.rs:1", "medium tests/math.rs:40"], "what points nowhere is told apart");
    assert_eq!(report["findings"][1]["claim"], "A name that isn't $(good).", "no text of a model reaches the shell");
    assert_eq!(report["summary"], "It divides; \"zero\" was forgotten.");
    // Printed, although the run has failed.
    for words in ["# Review: request changes", "## high: `src/math.rs:2`", "it's `x`", "said to be at `src/gone.rs:1`", "changes are requested"] {
        assert!(said.out.contains(words), "{words}: {}", said.out);
    }
    assert_eq!(outputs(&records)["verdict"], "request_changes");
    // Kept as files of the run, for people and for programs.
    let run = bench.newest();
    let listed = bench.spinney(&["show", &run.0, "--artifacts"]).code(0).out;
    assert!(listed.contains("review.json") && listed.contains("review.md"), "{listed}");
    let kept = |name: &str| fs::read_to_string(RunDir::open(&RunDir::state(&bench.repo()), &run).unwrap().path().join("artifacts").join(name)).unwrap();
    assert_eq!(serde_json::from_str::<Value>(&kept("review.json")).unwrap(), *report);
    assert!(kept("review.md").starts_with("# Review: request changes\n\nIt divides"), "{}", kept("review.md"));
    let doubted = records.iter().filter(|record| matches!(&record.event, Event::StepStarted { node, .. } if node.step.0 == "doubt" && node.item.is_some()));
    assert_eq!(doubted.count(), 5, "each finding of each lens is doubted");
    assert!(bench.git(&["branch", "--list", "spinney/*"]).is_empty(), "a review changes nothing");
}

/// A command holds the findings of a whole review, which are longer than the system takes in one argument.
#[test]
fn review_writes_a_long_report_whole() {
    let finding =
        |line: usize| json!({"file": "src/math.rs", "line": line % 3 + 1, "severity": "high", "claim": "é".repeat(600), "evidence": "ß".repeat(1500)});
    let report = json!({"verdict": "approve", "summary": "ä".repeat(2000), "findings": (0..30).map(finding).collect::<Vec<_>>()});
    let script = include_str!("examples/review.yaml");
    let (before, _) = script.split_once("  - agent: editor").unwrap();
    let script = format!("{before}  - agent: editor\n    turns:\n      - say: |\n          {report}\n");
    let (bench, said) = Example { workflow: "review", script, inputs: Vec::new(), bench: change }.run();
    said.code(0);
    let run = bench.newest();
    let kept = |name: &str| fs::read_to_string(RunDir::open(&RunDir::state(&bench.repo()), &run).unwrap().path().join("artifacts").join(name)).unwrap();
    let json: Value = serde_json::from_str(&kept("review.json")).unwrap();
    assert_eq!(json["findings"].as_array().unwrap().len(), 30);
    assert_eq!(kept("review.md").matches(&"ß".repeat(1500)).count(), 30);
}

#[test]
fn review_only_reports_where_it_is_told_to() {
    let (bench, said) = review("request_changes").input("gate", false).run();
    assert!(said.code(0).out.contains("# Review: request changes"));
    assert!(outcome(&log(&bench), "gate")["skipped"].is_object() || outcome(&log(&bench), "gate")["skipped"].is_string());
}

#[test]
fn review_lets_a_change_through_that_is_approved() {
    let (_, said) = review("approve").run();
    assert!(said.code(0).out.contains("  verdict: approve\n"));
}

#[test]
fn review_has_nothing_to_say_where_nothing_differs() {
    let (bench, said) = review("approve").input("base", "HEAD").input("report", "findings").run();
    assert!(said.code(0).out.contains("there is nothing to review"));
    // Whoever keeps the report finds one.
    let artifacts = RunDir::open(&RunDir::state(&bench.repo()), &bench.newest()).unwrap().path().join("artifacts");
    let json: Value = serde_json::from_str(&fs::read_to_string(artifacts.join("findings.json")).unwrap()).unwrap();
    assert_eq!((&json["verdict"], &json["findings"]), (&json!("approve"), &json!([])));
    assert!(fs::read_to_string(artifacts.join("findings.md")).unwrap().starts_with("# Review: approve\n\nNothing differs"));
}

#[test]
fn review_says_that_it_knows_no_such_branch() {
    let (_, said) = review("approve").input("base", "nowhere").run();
    assert!(said.code(1).out.contains("there is no branch or commit nowhere"));
}

#[test]
fn a_review_without_a_reviewer_does_not_let_a_change_through() {
    let example = review("approve");
    let script = example.script.replace("one lens: security", "one lens: nothing");
    let (bench, said) = Example { script, ..example }.run();
    said.code(1);
    assert!(!begun(&log(&bench), "gate"));
}

#[test]
fn a_review_that_is_interrupted_ends_as_one_that_was_left_alone() {
    review("request_changes").interrupted(31, |_, records| outcome(records, "checked")["succeeded"]["output"]["output"].clone());
}

fn old_names() -> Bench {
    ["a", "b", "c", "d", "e"]
        .iter()
        .fold(Bench::new(), |bench, name| bench.file(&format!("{name}.txt"), &format!("{name} calls old_name here\n")))
        .commit("names")
}

fn migrate() -> Example {
    Example { workflow: "migrate", script: include_str!("examples/migrate.yaml").to_owned(), inputs: Vec::new(), bench: old_names }
        .input("pattern", "old_name")
        .input("how", "Call it new_name")
        .input("files", json!(["*.txt"]))
        .input("check", "! grep WRONG *.txt")
}

#[test]
fn migrate_changes_one_file_asks_and_then_changes_all_others() {
    let (bench, said) = migrate().run();
    let said = said.code(3);
    let run = bench.newest();
    assert!(said.out.contains("Is this how the other files"), "{}", said.out);
    let records = log(&bench);
    assert!(outcome(&records, "pilot")["succeeded"]["commit"].is_string() && !begun(&records, "each/b.txt"), "one first");
    assert!(bench.spinney(&["show", &run.0]).code(0).out.contains("+a calls new_name here"));
    bench.spinney(&["approve", &run.0]).code(0);
    let records = log(&bench);
    for file in ["a", "b", "c", "d"] {
        assert_eq!(result(&bench, &format!("{file}.txt")), format!("{file} calls new_name here\n"));
    }
    let outputs = outputs(&records);
    assert_eq!((&outputs["left"], &outputs["ejected"]), (&json!(["e.txt"]), &json!([])));
    let red = |item: &str| {
        records
            .iter()
            .filter(|record| matches!(&record.event, Event::VerifyRan { node, passed: false, .. } if node.to_string() == format!("each/{item}")))
            .count()
    };
    assert_eq!((red("b.txt"), red("c.txt"), red("d.txt")), (0, 1, 3), "mended in the same session, or tried once more by another agent");
}

#[test]
fn a_migration_that_finds_nothing_says_so() {
    let (_, said) = migrate().input("pattern", "no_such_name").run();
    assert!(said.code(1).out.contains("no file holds no_such_name"));
}

#[test]
fn a_migration_that_is_interrupted_ends_as_one_that_was_left_alone() {
    migrate().interrupted(43, |bench, records| (files(bench), result(bench, "d.txt"), outputs(records)["left"].clone(), outputs(records)["ejected"].clone()));
}

fn calculator() -> Bench {
    Bench::new().file("add.sh", "echo $(($1 - $2))\n").file("tests/zero.sh", "[ \"$(sh add.sh 5 0)\" = 5 ]\n").commit("adds")
}

fn tournament() -> Example {
    Example { workflow: "tournament", script: include_str!("examples/tournament.yaml").to_owned(), inputs: Vec::new(), bench: calculator }
        .input("bug", "2 and 3 give -1, not 5")
        .input("check", "for t in tests/*.sh; do sh \"$t\" || { echo \"$t is red\"; exit 1; }; done")
}

#[test]
fn tournament_shows_the_bug_and_keeps_the_fix_that_the_judge_prefers() {
    let (bench, said) = tournament().run();
    said.code(0);
    let records = log(&bench);
    assert_eq!(result(&bench, "add.sh"), "sum() { echo $(($1 + $2)); }\nsum \"$@\"\n");
    assert_eq!(result(&bench, "tests/sum.sh"), "[ \"$(sh add.sh 2 3)\" = 5 ]\n", "the test is as its author wrote it");
    let outputs = outputs(&records);
    assert!(outputs["winner"].as_str().unwrap().contains("the cause at its root"), "{outputs}");
    assert!(outputs["why"].as_str().unwrap().contains("is clear"), "{outputs}");
    let red = |passed: bool, step: &str| {
        records.iter().filter(|record| matches!(&record.event, Event::VerifyRan { node, passed: was, .. } if *was == passed && node.step.0 == step)).count()
    };
    assert_eq!((red(false, "repro"), red(true, "repro")), (1, 1), "a test that does not fail shows no bug");
    assert_eq!((red(false, "fix"), red(true, "fix")), (2, 4), "who changes the test is told to put it back");
}

#[test]
fn a_tournament_needs_sound_ground() {
    let (bench, said) = tournament().input("check", "false").run();
    assert!(said.code(1).out.contains("the check is red before anything was done"));
    assert!(!begun(&log(&bench), "repro"));
}

#[test]
fn a_tournament_that_is_interrupted_ends_with_the_same_fix() {
    tournament().interrupted(47, |bench, _| (result(bench, "add.sh"), result(bench, "tests/sum.sh")));
}
