//! What a loaded file holds, and that it is told in full when it cannot be loaded.
use super::*;
use crate::source::{Diagnostics, Source, codes};
use proptest::prelude::*;
use std::{sync::Arc, time::Duration};

const EVERY_KEY: &str = include_str!("../../tests/diagnostics/whole/every_key.yaml");
const EVERY_VERB: &str = include_str!("../../tests/diagnostics/loads/every_verb.yaml");

fn load(text: &str) -> Result<Workflow, Diagnostics> {
    Workflow::load(&Arc::new(Source { name: "flow.yaml".to_owned(), text: text.to_owned() }))
}

fn errors(text: &str) -> Vec<String> {
    load(text)
        .expect_err("the file has errors")
        .found
        .iter()
        .map(|error| format!("{} {}", error.code, &error.source.text[error.labels[0].span.range()]))
        .collect()
}

#[test]
fn every_key_is_decoded() {
    let workflow = load(EVERY_KEY).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(workflow.name.value, "every-key");
    assert_eq!(workflow.env[0].1.value, "8080");
    assert_eq!(workflow.budget.as_ref().and_then(|budget| budget.tokens.as_ref()).map(|tokens| tokens.value), Some(4_000_000));
    assert_eq!(workflow.defaults.retry.as_ref().map(|retry| retry.max_delay), Some(Duration::from_mins(1)));
    let [plan, build, land, count] = workflow.steps.as_slice() else { panic!("{:?}", workflow.steps) };
    assert!(matches!(&plan.verb, Verb::Agent { agent, .. } if agent.value == "lead"));
    assert_eq!(build.for_each.as_ref().map(|for_each| (for_each.name.value.as_str(), for_each.join)), Some(("task", Join::AllDone)));
    assert_eq!(build.workspace.as_ref().map(|workspace| (workspace.kind, workspace.setup.len())), Some((WorkspaceKind::Worktree, 1)));
    assert_eq!(land.needs[0].on, On::Done);
    assert!(matches!(&land.verb, Verb::Merge(merge) if merge.from.len() == 1 && merge.flaky_retries == 1 && merge.resolver.is_some()));
    assert_eq!(count.needs[0].step.value, "land");
    assert!(count.allow_failure);
}

#[test]
fn every_verb_is_decoded() {
    let workflow = load(EVERY_VERB).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(workflow.secrets[0].value, "TRACKER_TOKEN");
    assert_eq!((workflow.on_failure.len(), workflow.finally.len()), (1, 1));
    let [tries, pick, polish, ask, publish, each] = workflow.steps.as_slice() else { panic!("{:?}", workflow.steps) };
    let matrix = tries.matrix.as_ref().expect("it has one");
    let axes: Vec<(&str, bool)> = matrix.axes.iter().map(|(name, values)| (name.as_str(), values.is_array())).collect();
    assert_eq!((axes.as_slice(), matrix.exclude.len(), matrix.join), ([("model", true), ("approach", false)].as_slice(), 1, Join::AllDone));
    assert_eq!(tries.workspace.as_ref().map(|workspace| workspace.base.clone()), Some(Base::Dirty));
    let Verb::Select(select) = &pick.verb else { panic!("{pick:?}") };
    let judge = select.judge.as_ref().expect("it has one");
    assert_eq!((select.gates.len(), select.tie, select.keep_losers), (2, Tie::First, Some(Duration::from_hours(7 * 24))));
    assert_eq!((judge.votes, judge.blind, judge.criteria.len()), (3, true, 2));
    assert_eq!(judge.rubric.as_deref(), Some(&Text::File("prompts/rubric.md".to_owned())));
    let Verb::Loop(body) = &polish.verb else { panic!("{polish:?}") };
    assert_eq!((body.max.value, body.steps.len(), body.steps[1].needs[0].step.as_str()), (5, 2, "suite"));
    let Verb::Approve(approve) = &ask.verb else { panic!("{ask:?}") };
    assert_eq!((approve.show, approve.on_timeout.as_deref()), (Some(Show::Diff), Some(&OnTimeout::Reject)));
    let Verb::Workflow { workflow, with } = &publish.verb else { panic!("{publish:?}") };
    let with: Vec<String> = with.iter().map(|(name, value)| format!("{}={}", name.value, value.value)).collect();
    assert_eq!((workflow.as_str(), with.join(" ").as_str()), ("publish", r#"title="{{ inputs.bug }}" draft=true labels=["bug"] retries=3"#));
    assert_eq!(each.for_each.as_ref().map(|for_each| &for_each.on_item_failure), Some(&OnItemFailure::Stop));
}

#[test]
fn every_key_of_the_schema_stands_in_the_file_that_uses_every_key() {
    let schema = json_schema();
    let definitions = schema["$defs"].as_object().expect("it has definitions");
    assert!(definitions.len() > 15, "{:?}", definitions.keys());
    for (object, definition) in definitions {
        for key in definition["properties"].as_object().expect("each is an object").keys() {
            let used = [EVERY_KEY, EVERY_VERB].iter().any(|file| file.contains(&format!("{key}: ")) || file.contains(&format!("{key}:\n")));
            assert!(used, "`{key}` of {object} is not used");
            let said = definition["properties"][key]["description"].as_str().unwrap_or_default();
            assert!(said.len() > 5 && said.ends_with('.'), "an editor says nothing of `{key}` of {object}: {said:?}");
        }
    }
}

#[test]
fn the_json_schema_refuses_what_the_loader_refuses() {
    let refused = [
        ("version: 1", "version: 2"),
        ("needs: [plan]", "nedes: [plan]"),
        ("timeout: 10m", "timeout: soon"),
        ("access: read", "access: maybe"),
        ("name: every-key", "name: Every Key"),
        ("attempts: 2 }\n    timeout", "attempts: 0 }\n    timeout"),
        ("as: task", "as: 1task"),
        ("    effort: low\n", "    sandbox: {}\n"),
        ("timeout: 10m", "timeout: 0s"),
        ("timeout: 10m", "timeout: \"0\""),
        ("timeout: 10m", "timeout: 1.5"),
        ("timeout: 10m", "timeout: 99999999999"),
        ("version: 1", "version: 1.5"),
        ("    merge:\n", "    workspace: worktree\n    merge:\n"),
        ("    merge:\n", "    workspace: { kind: worktree }\n    merge:\n"),
        ("    merge:\n", "    workspace: { sparse: [a], setup: [b] }\n    merge:\n"),
    ];
    for (from, to) in refused {
        assert!(EVERY_KEY.contains(from), "{from}");
        let text = EVERY_KEY.replacen(from, to, 1);
        assert!(load(&text).is_err(), "the loader takes {to}");
        assert!(!validator().is_valid(&tree(&text).expect("it is YAML")), "the schema takes {to}");
    }
}

#[test]
fn all_errors_come_in_one_pass_and_in_order() {
    let text =
        "version: 1\nname: Bad\nnmae: x\nsteps:\n  a: {rum: x}\n  b: {run: x, agent: y, timeout: soon}\n  c: {agent: y}\n  D: {run: [x]}\n  a: {run: ls}\n";
    let expected = ["E015 Bad", "E010 nmae", "E010 rum", "E020 run", "E014 soon", "E012 c", "E015 D", "E013 [", "E003 a"];
    assert_eq!(errors(text), expected);
}

#[test]
fn what_this_version_does_not_build_is_said_plainly() {
    let text = "version: 1\nname: a\nagents: {x: {system: y}}\nsteps:\n  a: {run: x, mcp_servers: {}}\n  d: {agent: x, prompt: y, hooks: {SessionStart: []}}\n";
    let errors = load(text).expect_err("it is refused").found;
    assert!(errors.iter().all(|error| error.code == codes::LATER && error.message.ends_with("is part of the language but not of this version")), "{errors:?}");
    assert_eq!(errors.len(), 2, "{errors:?}");
}

#[test]
fn numbers_and_flags_are_text_where_text_is_asked_for() {
    let workflow = load("version: 1\nname: a\nenv: {A: 010, B: true, C: 1.50, D: '5'}\nsteps: {a: {run: true}}\n").unwrap_or_else(|errors| panic!("{errors}"));
    let env: Vec<&str> = workflow.env.iter().map(|(_, value)| value.value.as_str()).collect();
    assert_eq!(env, ["010", "true", "1.50", "5"]);
    assert!(matches!(&workflow.steps[0].verb, Verb::Run { command } if command.value == "true"));
}

#[test]
fn a_quoted_number_is_no_number() {
    let error = load("version: 1\nname: a\nbudget: {usd: '5'}\nsteps: {a: {run: x}}\n").expect_err("it is text").found.remove(0);
    assert_eq!((error.code, error.help.as_deref()), (codes::WRONG_TYPE, Some("quotes make it text: leave them out")));
}

#[test]
fn a_prompt_is_a_file_where_one_line_ends_in_md() {
    let prompt = |text: &str| match load(&format!("version: 1\nname: a\nsteps: {{a: {{agent: x, prompt: {text}}}}}\n"))
        .map(|mut workflow| workflow.steps.remove(0).verb)
    {
        Ok(Verb::Agent { prompt, .. }) => prompt.value,
        other => panic!("{other:?}"),
    };
    assert_eq!(prompt("prompts/a.md"), Text::File("prompts/a.md".to_owned()));
    assert_eq!(prompt("\"Read a.md\\nor b.md\""), Text::Inline("Read a.md\nor b.md".to_owned()));
    assert_eq!(prompt("\"Fix {{ x }}.md\""), Text::Inline("Fix {{ x }}.md".to_owned()));
}

#[test]
fn a_file_that_is_no_map_or_empty_is_refused() {
    for text in ["", "- a\n", "hello", "---\n"] {
        assert_eq!(load(text).expect_err("it is no workflow").found[0].code, codes::WRONG_TYPE, "{text:?}");
    }
}

/// Every file below a folder that ends so, with its text.
fn files(folder: &str, end: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut folders = vec![std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("the folder is there") {
            let path = entry.expect("it can be read").path();
            if path.is_dir() {
                folders.push(path);
            } else if let Some(text) = path.to_string_lossy().ends_with(end).then(|| std::fs::read_to_string(&path).expect("it is text")) {
                found.push((path.display().to_string(), text));
            }
        }
    }
    found.sort();
    found
}

fn validator() -> &'static jsonschema::Validator {
    static VALIDATOR: std::sync::OnceLock<jsonschema::Validator> = std::sync::OnceLock::new();
    VALIDATOR.get_or_init(|| jsonschema::validator_for(&json_schema()).expect("the schema is a schema"))
}

fn tree(text: &str) -> Result<serde_json::Value, Box<crate::source::Diagnostic>> {
    yaml::parse(&Arc::new(Source { name: String::new(), text: text.to_owned() })).map(|node| node.value.to_json())
}

#[test]
fn the_json_schema_takes_every_workflow_that_is_shipped_or_tested() {
    let shipped = files("workflows", ".yaml").into_iter().filter(|(path, _)| !path.ends_with(".script.yaml"));
    let tested = [files("tests/diagnostics/whole", ".yaml"), files("tests/diagnostics/loads", ".yaml"), files("tests", "/workflow.yaml")].concat();
    let all: Vec<(String, String)> = shipped.chain(tested).collect();
    assert!(all.len() >= 14, "{}", all.len());
    for (path, text) in all {
        load(&text).unwrap_or_else(|errors| panic!("{path}: {errors}"));
        let tree = tree(&text).unwrap_or_else(|error| panic!("{path}: {error}"));
        if let Err(error) = validator().validate(&tree) {
            panic!("{path}: {error} at {}", error.instance_path());
        }
    }
}

#[test]
fn the_json_schema_refuses_what_is_broken_in_form() {
    // A JSON reader cannot see a key that stands twice, and a pattern cannot count 400 days.
    let of_form = [
        codes::UNKNOWN_KEY,
        codes::LATER,
        codes::MISSING_KEY,
        codes::WRONG_TYPE,
        codes::BAD_DURATION,
        codes::BAD_NAME,
        codes::UNKNOWN_WORD,
        codes::OUT_OF_RANGE,
        codes::VERSION,
        codes::VERBS,
        codes::NOT_OF_THIS_VERB,
    ];
    let mut refused = 0;
    for (path, text) in files("tests/diagnostics/broken", ".yaml") {
        let (Ok(tree), Err(errors)) = (tree(&text), load(&text)) else { continue };
        if errors.found.iter().any(|error| of_form.contains(&error.code)) {
            assert!(!validator().is_valid(&tree), "{path}: {errors}");
            refused += 1;
        }
    }
    assert!(refused > 40, "{refused}");
}

#[test]
fn a_large_file_is_read_and_its_errors_are_told_within_bounds() {
    let step = |at: usize, key: &str| format!("  s{at}: {{ run: \"echo {at} {}\", {key}: [] }}\n", "x".repeat(80));
    let large = |key: &str| (0..10_000).fold("version: 1\nname: large\nsteps:\n".to_owned(), |text, at| text + &step(at, key));
    let (sound, broken) = (large("needs"), large("nedes"));
    assert!(sound.len() > 1_000_000);
    assert_eq!(load(&sound).unwrap_or_else(|errors| panic!("{errors}")).steps.len(), 10_000);
    let told = load(&broken).expect_err("every step has an error");
    assert_eq!((told.more, told.is_left), (10_000 - crate::source::MOST, false));
    let found = told.found;
    assert_eq!(found.len(), crate::source::MOST);
    assert!(crate::source::render(&found, false).len() < 200_000);
    // All of it on one line: what is found is told without the line.
    let line = broken.replace("steps:\n", "steps: {").replace("] }\n", "] },") + "}";
    let found = load(&line).expect_err("every step has an error").found;
    assert_eq!(found.len(), crate::source::MOST);
    assert!(crate::source::render(&found, false).len() < 200_000);
}

proptest! {
    #[test]
    fn what_is_loaded_is_taken_by_the_json_schema(
        file in prop::sample::select(vec![EVERY_KEY, EVERY_VERB]), from in any::<prop::sample::Index>(), to in any::<prop::sample::Index>(), cut in 0_usize..3
    ) {
        // Lines of one place come to stand at another.
        let mut lines: Vec<&str> = file.lines().collect();
        let moved: Vec<&str> = lines.splice({ let at = from.index(lines.len()); at..(at + cut).min(lines.len()) }, []).collect();
        let at = to.index(lines.len() + 1);
        lines.splice(at..at, moved);
        let text = lines.join("\n");
        if let (Ok(_), Ok(tree)) = (load(&text), tree(&text)) {
            prop_assert!(validator().is_valid(&tree), "{text}");
        }
    }

    #[test]
    fn a_mangled_workflow_is_loaded_or_refused(at in 0..EVERY_KEY.len(), cut in 0_usize..40, put in "[\\[\\]{}:,&*!|>'\"#a1 \n-]{0,4}") {
        let start = EVERY_KEY.floor_char_boundary(at);
        let end = EVERY_KEY.floor_char_boundary((start + cut).min(EVERY_KEY.len()));
        let text = format!("{}{put}{}", &EVERY_KEY[..start], &EVERY_KEY[end.max(start)..]);
        if let Err(errors) = load(&text) {
            for error in &errors.found {
                prop_assert!(error.labels.iter().all(|label| text.get(label.span.range()).is_some()), "{error}");
            }
        }
    }
}
