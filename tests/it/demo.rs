//! The demo through the front door, and that what it shows really happens: another order, no hook or another conflict give
//! another outcome with the same script.
use crate::fixture::{Bench, Said, git, results};
use spinney::{
    event::{Event, MergeProgress, Record},
    journal::{self, RunDir},
};
use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
};

const WORKFLOW: &str = include_str!("../../workflows/demo.yaml");
const SCRIPT: &str = include_str!("../../workflows/demo.script.yaml");
const CHECK: &str = "cargo test --offline -q";

/// The crate of the demo in a repository, for runs of a changed workflow or script. Their check is always green and costs
/// nothing, since the joining of work is what they are about.
struct Variant {
    bench: Bench,
    said: Said,
    records: Vec<Record>,
}

impl Variant {
    fn run(change: impl FnOnce(&Bench, &mut String, &mut String)) -> Variant {
        let mut bench = Bench::new();
        for entry in fs::read_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("src/cli/demo")).unwrap() {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            let text = fs::read_to_string(entry.path()).unwrap();
            let Some(name) = name.strip_suffix(".txt") else { continue };
            let path = match (name, name.rsplit_once('.')) {
                ("gitignore", _) => ".gitignore".to_owned(),
                ("abbreviations", _) => "data/abbreviations.txt".to_owned(),
                (_, Some((_, "rs"))) => format!("src/{name}"),
                (_, Some((_, "sh"))) => format!("scripts/{name}"),
                _ => name.to_owned(),
            };
            bench = bench.file(&path, &text);
        }
        let bench = bench.commit("a crate");
        let green = "\"echo 'test result: ok. 7 passed'\"";
        let (mut workflow, mut script) = (WORKFLOW.replace(CHECK, green), SCRIPT.replace(CHECK, green));
        change(&bench, &mut workflow, &mut script);
        let bench = bench.workflow("variant", &workflow);
        let (said, records) = bench.run("variant", &script, &["--unconfined"]);
        Variant { bench, said, records }
    }

    /// Returns a file of the run's branch.
    fn result(&self, path: &str) -> String {
        self.bench.git(&["show", &format!("spinney/{}:{path}", self.bench.newest())])
    }

    fn tree(&self) -> String {
        self.bench.git(&["rev-parse", &format!("spinney/{}^{{tree}}", self.bench.newest())])
    }

    fn code(self, code: u8) -> Variant {
        Variant { said: self.said.code(code), ..self }
    }
}

fn replace(text: &mut String, from: &str, to: &str) {
    assert!(text.contains(from), "{from}");
    *text = text.replacen(from, to, 1);
}

/// The table of measures in `src/lib.rs`.
fn table(lib: &str) -> Vec<&str> {
    let inside = lib.lines().skip_while(|line| !line.starts_with("pub const MEASURES")).skip(1);
    inside.take_while(|line| *line != "];").map(str::trim).collect()
}

/// The items of `build` in the order in which they ended.
fn ended(records: &[Record]) -> Vec<String> {
    let of = |record: &Record| match &record.event {
        Event::StepFinished { node, .. } if node.step.0 == "build" => node.item.clone(),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

fn said_by_orchestrator(records: &[Record]) -> Vec<&str> {
    records.iter().filter_map(|record| if let Event::OrchestratorRested { text, .. } = &record.event { Some(text.as_str()) } else { None }).collect()
}

fn conflicts(records: &[Record]) -> Vec<(String, Vec<String>)> {
    let of = |record: &Record| match &record.event {
        Event::MergeAdvanced { progress: MergeProgress::Conflicted { from, paths }, .. } => Some((from.to_string(), paths.clone())),
        _ => None,
    };
    records.iter().filter_map(of).collect()
}

fn position(records: &[Record], what: &str, is: impl Fn(&Event) -> bool) -> usize {
    records.iter().position(|record| is(&record.event)).unwrap_or_else(|| panic!("no event: {what}"))
}

#[test]
fn the_demo_runs_to_its_end_though_its_reader_has_read_enough() {
    let bench = Bench::new();
    let dir = bench.path("demo");
    let mut program = bench.program(&["demo", "--dir", &dir.display().to_string()]);
    let mut first = String::new();
    BufReader::new(program.stdout.take().unwrap()).read_line(&mut first).unwrap();
    assert!(first.starts_with("A small Rust crate"), "{first}");
    assert_eq!(program.wait().unwrap().code(), Some(0));
    assert_eq!(std::io::read_to_string(program.stderr.take().unwrap()).unwrap(), "");
    let state = RunDir::state(&dir);
    let records = journal::read(RunDir::open(&state, &RunDir::list(&state).unwrap()[0]).unwrap().path()).unwrap();
    assert!(matches!(&records.last().unwrap().event, Event::RunFinished { outcome } if outcome.success().is_some()));
}

#[test]
fn the_demo_does_what_it_says() {
    let bench = Bench::new();
    let dir = bench.path("demo");
    let said = bench.spinney(&["demo", "--dir", &dir.display().to_string()]).code(0);
    assert!(said.out.contains("The model is scripted"), "{}", said.out);
    let state = RunDir::state(&dir);
    let run = RunDir::list(&state).unwrap().remove(0);
    let records = journal::read(RunDir::open(&state, &run).unwrap().path()).unwrap();
    crate::invariants::check(&records, &dir);

    let first_end = position(&records, "an item ends", |event| matches!(event, Event::StepFinished { node, .. } if node.item.is_some()));
    for item in ["abbreviations", "characters", "paragraphs"] {
        let works = position(&records, item, |event| matches!(event, Event::ToolStarted { node, .. } if node.item.as_deref() == Some(item)));
        assert!(works < first_end, "{item} works beside the others");
    }
    let denied = results(&records, "build/abbreviations").into_iter().find(|(tool, is_error, _)| *tool == "Edit" && *is_error).unwrap();
    assert!(denied.2.contains("is generated"), "{}", denied.2);
    assert!(results(&records, "build/paragraphs").iter().any(|(tool, is_error, text)| *tool == "Bash" && *is_error && text.contains("left: 3")));
    assert_eq!(conflicts(&records), [("build/paragraphs".to_owned(), vec!["src/lib.rs".to_owned()])]);
    assert!(records.iter().any(|record| matches!(&record.event, Event::MergeAdvanced { progress: MergeProgress::Verified { passed: true, .. }, .. })));

    let show = |what: &str| git(&dir, bench.environment(), &["show", what]);
    let lib = show(&format!("spinney/{run}:src/lib.rs"));
    assert_eq!(table(&lib)[3..], ["(\"characters\", characters::count),", "(\"paragraphs\", paragraphs::count),"]);
    assert!(show(&format!("spinney/{run}:data/abbreviations.txt")).contains("approx.\n"));
    assert_eq!(table(&show("main:src/lib.rs")).len(), 3);
    assert_eq!(git(&dir, bench.environment(), &["status", "--porcelain"]), "");
    let summary = said.out.split("The orchestrator's summary").nth(1).unwrap();
    assert!(summary.contains("All 4 items were built"), "{summary}");
}

#[test]
fn another_order_wakes_the_orchestrator_otherwise_and_lands_the_same() {
    let plain = Variant::run(|_, _, _| ()).code(0);
    // `characters` cannot end before an agent is at work on the item that is added when `paragraphs` has ended.
    let turned = Variant::run(|bench, _, script| {
        let mark = bench.path("mark").display().to_string();
        let wait = format!("until [ -e {mark} ]; do sleep 0.02; done; echo");
        replace(script, "command: \"echo", &format!("command: \"{wait}"));
        let read = "calls: [{ tool: Read, input: { file_path: \"${file}\" } }";
        replace(script, read, &format!("{read}, {{ tool: Bash, input: {{ command: touch {mark} }} }}"));
    })
    .code(0);
    let ended = ended(&turned.records);
    let at = |item: &str| ended.iter().position(|key| key == item);
    assert!(at("paragraphs") < at("characters"), "{ended:?}");
    let added = position(&turned.records, "items are added", |event| matches!(event, Event::ItemsAdded { by, .. } if by.step.0 != "build"));
    let done =
        position(&turned.records, "`characters` ends", |event| matches!(event, Event::StepFinished { node, .. } if node.item.as_deref() == Some("characters")));
    assert!(added < done);
    let words = said_by_orchestrator(&turned.records);
    let alone = |said: &str| said.starts_with("`characters` is done, ") && said.contains("of 4");
    let together = |said: &str| said.contains("`characters`") && said.contains("`docs`") && said.contains("are done");
    assert!(words.iter().any(|said| alone(said) || together(said)), "{words:?}");
    assert_eq!(plain.tree(), turned.tree(), "the order of landing is that of the plan");
}

#[test]
fn without_the_hook_the_forbidden_write_goes_through() {
    let held = Variant::run(|_, _, _| ()).code(0);
    let free = Variant::run(|_, workflow, _| replace(workflow, "    hooks: [protect-files, check-syntax]\n", "")).code(0);
    for variant in [&held, &free] {
        assert!(variant.result("src/abbreviations.rs").contains("\"approx.\""));
    }
    assert!(held.result("data/abbreviations.txt").contains("approx."));
    assert!(!free.result("data/abbreviations.txt").contains("approx."), "nobody told the agent where the list comes from");
    assert!(!results(&free.records, "build/abbreviations").iter().any(|(_, is_error, _)| *is_error));
}

#[test]
fn another_conflict_is_settled_otherwise() {
    let line = "(\\\"paragraphs\\\", paragraphs::count),";
    let other = Variant::run(|_, _, script| replace(script, line, "(\\\"blocks\\\", paragraphs::count), // by another name")).code(0);
    let lib = other.result("src/lib.rs");
    assert_eq!(table(&lib)[3..], ["(\"characters\", characters::count),", "(\"blocks\", paragraphs::count), // by another name"]);

    let none = Variant::run(|_, _, script| {
        replace(script, &format!("\"    ${{last}}\\n    {line}\\n\""), &format!("\"    {line}\\n    ${{last}}\\n\""));
    })
    .code(0);
    assert_eq!(conflicts(&none.records), []);
    let lib = none.result("src/lib.rs");
    assert_eq!(table(&lib)[2..], ["(\"paragraphs\", paragraphs::count),", "(\"sentences\", sentences::count),", "(\"characters\", characters::count),"]);
}

#[test]
fn a_conflict_that_the_resolver_cannot_settle_lands_nothing() {
    let two = Variant::run(|_, _, script| replace(script, "(?<before>(?:pub )?mod lines;)", "(?<before>(?:pub )?mod abbreviations;)")).code(1);
    assert_eq!(conflicts(&two.records).len(), 1);
    assert!(two.bench.git(&["branch", "--list", "spinney/*"]).is_empty());
    assert!(two.said.out.contains("`build` is succeeded, `land` is failed"), "{}", two.said.out);
}
