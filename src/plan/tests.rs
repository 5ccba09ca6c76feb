//! Every broken file with what is said of it, and what a sound one compiles to.
use super::*;
use crate::{
    event::{StepId, Wake},
    message::ToolSpec,
    source::{self, Diagnostic, Diagnostics, Source, Spanned, codes},
    workflow::{Access, Agent, Hooks, On, Text, Workflow, WorkspaceKind},
};
use proptest::prelude::*;
use serde_json::{Map, Value, json};
use std::{collections::BTreeSet, fs, path::PathBuf, sync::Arc, time::Duration};

fn folder(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/diagnostics").join(name)
}

fn files(name: &str) -> Vec<(String, String)> {
    let mut files: Vec<(String, String)> = fs::read_dir(folder(name))
        .expect("the folder is there")
        .map(|entry| entry.expect("it can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "yaml"))
        .map(|path| (path.file_stem().expect("it has a name").to_string_lossy().into_owned(), fs::read_to_string(&path).expect("it is text")))
        .collect();
    files.sort();
    files
}

/// Workflows that others call.
const CALLED: [(&str, &str); 13] = [
    ("gives", include_str!("../../tests/diagnostics/called/gives.yaml")),
    ("publish", include_str!("../../tests/diagnostics/called/publish.yaml")),
    ("look", "version: 1\nname: look\nsteps: { a: { run: ls } }\n"),
    ("broken", "version: 1\nname: broken\nsteps: { a: { run: ls, needs: [b] } }\n"),
    ("unread", "version: 1\nname: [\n"),
    ("again", "version: 1\nname: again\nsteps: { a: { workflow: again } }\n"),
    ("vast", "version: 1\nname: vast\nsteps: { a: &c { workflow: large }, b: *c, c: *c, d: *c, e: *c, f: *c, g: *c, h: *c, i: *c }\n"),
    ("large", "version: 1\nname: large\nsteps: { a: &c { workflow: big }, b: *c, c: *c, d: *c, e: *c, f: *c, g: *c, h: *c, i: *c }\n"),
    ("big", "version: 1\nname: big\nsteps: { a: &c { workflow: some }, b: *c, c: *c, d: *c, e: *c, f: *c, g: *c, h: *c, i: *c }\n"),
    (
        "some",
        "version: 1\nname: some\nsteps: { a: &c { run: ls, matrix: { n: [1, 2] } }, b: *c, c: *c, d: *c, e: *c, f: *c, g: *c, h: *c, i: *c, j: *c, k: *c, l: *c, m: *c, n: *c, o: *c, p: *c, q: *c, r: *c, s: *c, t: *c, u: *c, v: *c, w: *c, x: *c, y: *c, z: *c }\n",
    ),
    ("says", "version: 1\nname: says\ninputs: { a: { type: string } }\nsteps: { s: { run: ls } }\noutputs: { x: \"{{ inputs.a }}\" }\n"),
    ("left", "version: 1\nname: left\nsteps: { a: { workflow: right } }\n"),
    ("right", "version: 1\nname: right\nsteps: { a: { workflow: left } }\n"),
];

fn called(name: &str, text: &str) -> WorkflowFile {
    WorkflowFile { source: Arc::new(Source { name: format!("workflows/{name}.yaml"), text: text.to_owned() }), trusted: name != "publish" }
}

fn catalog() -> Catalog {
    let tool = |name: &str, reads: bool| {
        (name.to_owned(), (ToolSpec { name: name.to_owned(), description: String::new(), input_schema: json!({"type": "object"}) }, reads))
    };
    let text = |text: &str| Some(Spanned::new(Text::Inline(text.to_owned()), source::Span::default()));
    let names = |names: &[&str]| names.iter().map(|name| Spanned::new((*name).to_owned(), source::Span::default())).collect::<Vec<_>>();
    let sloppy = Agent {
        system: text("Look."),
        tools: Some(names(&["Read", "TodoWrite"])),
        skills: names(&["rust", "gone"]),
        hooks: Hooks { named: names(&["gone"]), written: Vec::new() },
        ..Agent::default()
    };
    Catalog {
        other_names: OtherNames::default(),
        defaults: crate::workflow::Defaults::default(),
        aliases: std::collections::BTreeMap::new(),
        tools: [
            tool("Read", true),
            tool("Grep", true),
            tool("Write", false),
            tool("Edit", false),
            tool("Bash", false),
            tool("Agent", false),
            tool("WebFetch", true),
        ]
        .into(),
        skills: ["rust", "review", "review-security", "review-tests"].map(|name| (name.to_owned(), format!("Does {name}."))).into(),
        offered_skills: ["review".to_owned()].into(),
        hooks: ["protect-secrets", "fmt-after-edit"].map(str::to_owned).into(),
        hook_lint: HookLint(Arc::new(|events| {
            let file = crate::hooks::HookFile {
                name: "hooks".to_owned(),
                path: "hooks".to_owned(),
                text: json!({ "hooks": events }).to_string(),
                dir: folder("broken"),
                trusted: true,
                strict: true,
            };
            crate::hooks::Hooks::load(&[file]).1
        })),
        rule_lint: RuleLint(Arc::new(crate::hooks::lint_rule)),
        prompts: [
            ("prompts/coder.md", "You write code.\n"),
            ("prompts/planner.md", "You plan.\n"),
            ("prompts/resolver.md", "You settle conflicts.\n"),
            ("prompts/migrator.md", "You migrate.\n"),
            ("prompts/reviewer.md", "You review.\n"),
            ("prompts/rubric.md", "Fixes {{ inputs.bug }}?\n"),
            ("prompts/broken.md", "# Task\n\nDo {{ inputs. }} now.\n"),
            ("prompts/reads.md", "Look at {{ steps.a.output }} and {{ inputs.goal }}.\n"),
        ]
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .into(),
        agents: [
            (
                "lead".to_owned(),
                AgentFile {
                    agent: Agent { system: text("You lead."), description: Some("Leads.".to_owned()), ..Agent::default() },
                    path: "agents/lead.md".to_owned(),
                },
            ),
            ("sloppy".to_owned(), AgentFile { agent: sloppy, path: "agents/sloppy.md".to_owned() }),
        ]
        .into(),
        workflows: CALLED.into_iter().map(|(name, text)| (name.to_owned(), called(name, text))).collect(),
        prices: Prices(Arc::new(|model| !model.ends_with("/unpriced") && model != "openai/gpt-oss-120b")),
        without_tools: BTreeSet::from(["ollama".to_owned()]),
        providers: ["anthropic", "openai", "google", "ollama"].map(str::to_owned).into(),
        default_model: None,
        model_overrides: std::collections::BTreeMap::new(),
    }
}

/// Codes that are not about the text of a workflow: of a stub file, and of a file that is no text.
const ELSEWHERE: [&str; 2] = [codes::STUB, codes::UNREADABLE];

fn compile_with(text: &str, catalog: &Catalog) -> Result<(Plan, Vec<Diagnostic>), Diagnostics> {
    let source = Arc::new(Source { name: "flow.yaml".to_owned(), text: text.to_owned() });
    Plan::compile(&Workflow::read(&source)?, catalog)
}

fn compile(text: &str) -> Plan {
    compile_with(text, &catalog()).unwrap_or_else(|errors| panic!("{}", source::render(&errors.found, false))).0
}

/// Codes of the errors, in order.
fn errors(text: &str) -> Vec<&'static str> {
    compile_with(text, &catalog()).map(|_| ()).expect_err("there are errors").found.iter().map(|error| error.code).collect()
}

/// Holds a text against the snapshot of this name beside the files.
fn hold(name: &str, text: &str) {
    let mut settings = insta::Settings::clone_current();
    settings.set_snapshot_path(folder("snapshots"));
    settings.set_prepend_module_to_snapshot(false);
    settings.set_omit_expression(true);
    settings.bind(|| insta::assert_snapshot!(name, text));
}

#[test]
fn every_broken_file_is_told_in_full() {
    let mut raised = BTreeSet::new();
    for (name, text) in files("broken") {
        let found = match compile_with(&text, &catalog()) {
            Ok((_, warnings)) => warnings,
            Err(errors) => errors.found,
        };
        assert!(!found.is_empty(), "{name} has nothing wrong");
        raised.extend(found.iter().map(|diagnostic| diagnostic.code));
        hold(&name, &source::render(&found, false));
    }
    let silent: Vec<&str> = codes::ALL.iter().map(|(code, _)| *code).filter(|code| !ELSEWHERE.contains(code) && !raised.contains(code)).collect();
    assert_eq!(silent, Vec::<&str>::new(), "codes that no broken file raises");
}

#[test]
fn whole_files_compile() {
    for (name, text) in files("whole") {
        if let Err(errors) = compile_with(&text, &catalog()) {
            panic!("{name}:\n{}", source::render(&errors.found, false));
        }
    }
}

/// The workflows of a table: a head that all of them have, then the rest of each.
fn table(name: &str) -> Vec<String> {
    let text = fs::read_to_string(folder("nulls").join(name)).expect("the table is there");
    let mut parts = text.split("---\n");
    let head = parts.next().unwrap_or_default().to_owned();
    parts.map(|rest| format!("{head}{rest}")).collect()
}

#[test]
fn a_value_that_is_known_not_to_be_null_may_stand_anywhere() {
    let refused: Vec<String> =
        table("right.txt").iter().filter_map(|text| Some(format!("{text}\n{}", source::render(&compile_with(text, &catalog()).err()?.found, false)))).collect();
    assert!(refused.is_empty(), "{}", refused.join("\n"));
}

#[test]
fn a_value_that_may_be_null_is_told_before_anything_is_paid() {
    for text in table("wrong.txt") {
        let codes = compile_with(&text, &catalog()).map_or_else(|errors| errors.found.iter().map(|error| error.code).collect(), |_| Vec::new());
        assert_eq!(codes, [codes::MAY_BE_NULL], "{text}");
    }
}

const FLOW: &str = include_str!("../../tests/diagnostics/whole/flow.yaml");

#[test]
fn a_plan_holds_everything_resolved() {
    let plan = compile(FLOW);
    let id = StepId::from;
    assert_eq!(plan.order(), [id("plan"), id("build"), id("land"), id("check")]);
    assert_eq!(plan.sinks().map(|step| step.id.0.as_str()).collect::<Vec<_>>(), ["check"]);
    assert_eq!(plan.needs(&id("land")).map(|(step, on)| (step.id.0.as_str(), on)).collect::<Vec<_>>(), [("build", On::Done)]);
    assert_eq!((plan.limits.usd, plan.limits.turns, plan.limits.tokens), (Some(3.0), 60, Limits::RUN.tokens));

    let build = plan.step(&id("build")).expect("it is there");
    let Work::Agent { agent, prompt } = &build.work else { panic!("{build:?}") };
    assert!(build.writes && build.workspace.kind == WorkspaceKind::Worktree);
    assert_eq!(build.timeout, Duration::from_mins(5));
    assert_eq!(build.env.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["A", "B"]);
    assert!(prompt.value.starts_with("Do "));
    assert_eq!(agent.system, "You write code.\n");
    assert_eq!(
        (agent.model.choices.as_slice(), agent.model.effort.as_deref(), agent.model.named),
        (&["openai/z".to_owned()][..], None, NamedBy::Step),
        "the effort is that of the alias"
    );
    assert_eq!(agent.name, "coder");
    assert_eq!(agent.tools, ["Bash", "Edit", "Grep", "Read", "Write"]);
    assert_eq!(agent.skills, ["review", "rust"]);
    assert_eq!(agent.hooks, ["protect-secrets", "fmt-after-edit"]);
    assert_eq!((agent.limits.turns, agent.limits.usd), (5, Some(2.0)));
    assert_eq!(plan.agents["coder"].limits.turns, 60, "an agent stays within the run");

    let plan_step = plan.step(&id("plan")).expect("it is there");
    let Work::Agent { agent, .. } = &plan_step.work else { panic!("{plan_step:?}") };
    assert_eq!((agent.access, agent.tools.as_slice()), (Access::Read, ["Bash", "Grep", "Read", "WebFetch"].map(str::to_owned).as_slice()));
    assert_eq!(agent.description, "Leads.");
    assert!(!plan_step.writes && plan_step.workspace.kind == WorkspaceKind::Shared && plan_step.timeout == Duration::from_mins(10));
    let schema = plan_step.output_schema.as_deref().expect("it has one");
    assert_eq!(schema["properties"]["tasks"]["items"], json!({"$ref": "#/$defs/task"}));
    assert_eq!(schema["$defs"]["task"]["type"], "object");

    let Work::Merge(merge) = &plan.step(&id("land")).expect("it is there").work else { panic!("no merge") };
    assert_eq!((merge.from.as_slice(), merge.resolver_attempts), ([id("build")].as_slice(), 2));
    assert!(plan.step(&id("check")).is_some_and(|step| step.writes && step.workspace.kind == WorkspaceKind::Worktree));

    let orchestrator = plan.orchestrator.as_ref().expect("it is there");
    assert_eq!(orchestrator.wake, [Wake::Start, Wake::Idle]);
    assert_eq!((orchestrator.node.step.0.as_str(), orchestrator.supervises.as_slice()), ("orchestrator", [id("build")].as_slice()));
    assert_eq!(plan.agents.keys().map(String::as_str).collect::<Vec<_>>(), ["coder", "lead", "sloppy"], "agents of files are there, too");
}

#[test]
fn an_override_takes_the_place_of_an_alias() {
    let mut catalog = catalog();
    catalog.model_overrides.insert("large".to_owned(), "google/q".to_owned());
    let (plan, _) = compile_with(FLOW, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan.agents["coder"].model.choices, ["google/q"]);
    assert_eq!(plan.agents["coder"].model.effort.as_deref(), Some("high"));
    catalog.other_names.0.insert("google".to_owned(), "openai".to_owned());
    let (plan, _) = compile_with(FLOW, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan.agents["coder"].model.choices, ["openai/q"], "no other name stands in a plan");
    assert_eq!((plan.model("google/a/b").choices, plan.model("large").choices), (vec!["openai/a/b".to_owned()], vec!["openai/q".to_owned()]));
    catalog.model_overrides.insert("huge".to_owned(), "google/q".to_owned());
    let errors = compile_with(FLOW, &catalog).expect_err("there is no such alias");
    assert_eq!(errors.found[0].code, codes::UNKNOWN_MODEL);
}

#[test]
fn a_default_model_serves_whoever_names_none() {
    let text = "version: 1\nname: a\nagents: { x: { system: y } }\nsteps: { a: { agent: x, prompt: z } }\n";
    let catalog = Catalog { default_model: Some("openai/d".to_owned()), ..catalog() };
    let (plan, _) = compile_with(text, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(plan.agents["x"].model.choices, ["openai/d"]);
}

#[test]
fn inputs_are_checked_and_read_by_their_type() {
    let plan = compile(FLOW);
    let given = |value: Value| if let Value::Object(map) = value { map } else { Map::new() };
    assert_eq!(plan.check_inputs(&given(json!({"goal": "x"}))), Ok(given(json!({"goal": "x", "count": 4, "tags": null}))));
    let problems = plan.check_inputs(&given(json!({"gaol": "x", "count": 9, "tags": [1]}))).expect_err("they do not fit");
    assert_eq!(problems.len(), 4, "{problems:?}");
    assert!(problems[0].contains("did you mean `goal`?") && problems[1].contains("what to build"), "{problems:?}");
    assert_eq!(plan.parse_input("goal", "5"), Ok(json!("5")));
    assert_eq!(plan.parse_input("count", "5"), Ok(json!(5)));
    assert_eq!(plan.parse_input("tags", "[\"a\"]"), Ok(json!(["a"])));
    for (name, text) in [("count", "5.5"), ("count", "five"), ("tags", "a,b"), ("nope", "x")] {
        assert!(plan.parse_input(name, text).is_err(), "{name}={text}");
    }
}

/// Reads what a table of the reference says of a key where it is left out.
fn left_out(head: &str, key: &str, column: usize) -> String {
    let page = include_str!("../../docs/language.md");
    let rest = page.split(head).nth(1).unwrap_or_else(|| panic!("no table {head}"));
    let table = if head.starts_with('|') { rest } else { &rest[rest.find("\n| key").expect("a table follows")..] };
    let table = table.split("\n\n").next().unwrap_or_default();
    let row = table.lines().find(|row| row.starts_with(&format!("| `{key}` |"))).unwrap_or_else(|| panic!("{head}: no row {key}"));
    let cells: Vec<&str> = row.trim_matches('|').split(" | ").collect();
    cells[cells.len() - column].trim_matches(['|', ' ']).to_owned()
}

/// Reads `50 million`, `2,000` or `30 minutes`, the latter as seconds.
fn amount(text: &str) -> u64 {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number: u64 = number.replace(',', "").parse().unwrap_or_else(|_| panic!("{text}"));
    number
        * match unit.split([':', ' ']).next() {
            Some("million") => 1_000_000,
            Some("hours") => 3_600,
            Some("minutes") => 60,
            _ => 1,
        }
}

#[test]
fn what_is_left_out_is_what_the_reference_says() {
    const AGENT: &str = "\n## Agents\n";
    const BUDGET: &str = "| key of `budget` |";
    const ITEMS: &str = "| key of `for_each` |";
    let text = "version: 1\nname: a\nagents: { x: { model: openai/x, access: write } }\norchestrator: { agent: x }\nsteps:\n  a: { for_each: { items: [1, 2] }, agent: x, prompt: x }\n  b: { needs: [a], merge: { from: a } }\n  c: { needs: [b], agent: x, prompt: x, matrix: { n: [1, 2] } }\n  d: { needs: [c], select: { from: c, judge: { agent: x } } }\n";
    let plan = compile(text);
    let agent = &plan.agents["x"];
    let session = |key| amount(&left_out(AGENT, key, 1));
    assert_eq!(session("max_turns"), u64::from(agent.limits.turns));
    assert_eq!(session("timeout"), agent.limits.time.as_secs());
    assert_eq!(session("idle_timeout"), agent.idle_timeout.as_secs());
    assert_eq!(left_out(AGENT, "max_depth", 1).split(':').next(), Some(agent.max_depth.to_string().as_str()));
    assert_eq!(session("max_parallel"), u64::from(agent.max_parallel));
    for (limits, column) in [(plan.limits, 2), (Limits::SESSION, 1)] {
        let said = |key| amount(&left_out(BUDGET, key, column));
        assert_eq!(limits.usd.map(|usd| usd.to_string()), Some(said("usd").to_string()));
        assert_eq!((said("tokens"), said("time"), said("turns")), (limits.tokens, limits.time.as_secs(), u64::from(limits.turns)));
    }
    let orchestrator = plan.orchestrator.as_ref().expect("it is there");
    assert_eq!(amount(&left_out("## The orchestrator", "max_added", 1)), u64::from(orchestrator.max_added));
    assert_eq!((orchestrator.may.len(), left_out("## The orchestrator", "may", 1).as_str()), (4, "all of them"));
    assert_eq!((orchestrator.wake.len(), left_out("## The orchestrator", "wake", 1).as_str()), (4, "at each of them"));
    let for_each = plan.step(&StepId::from("a")).and_then(|step| step.for_each.as_ref()).expect("it is there");
    assert_eq!(left_out(ITEMS, "as", 1), format!("`{}`", for_each.name.value));
    assert_eq!((left_out(ITEMS, "fail_fast", 1), left_out(ITEMS, "join", 1)), (format!("`{}`", for_each.fail_fast), "`all`".to_owned()));
    assert_eq!((for_each.join, left_out(ITEMS, "on_item_failure", 1)), (crate::workflow::Join::All, "`continue`".to_owned()));
    assert_eq!(for_each.on_item_failure, crate::workflow::OnItemFailure::Continue);
    let Work::Merge(merge) = &plan.step(&StepId::from("b")).expect("it is there").work else { panic!("no merge") };
    assert_eq!(format!("{:?}", merge.mode).to_lowercase(), left_out("\n### merge", "mode", 1).trim_matches('`'));
    assert_eq!(amount(&left_out("\n### merge", "flaky_retries", 1)), u64::from(merge.flaky_retries));
    let Work::Select(select) = &plan.step(&StepId::from("d")).expect("it is there").work else { panic!("no choice") };
    assert_eq!((select.tie, left_out("\n### select", "tie", 1)), (crate::workflow::Tie::SmallestDiff, "`smallest_diff`".to_owned()));
}

#[test]
fn the_graph_is_drawn() {
    let plan = compile(FLOW);
    hold("drawn_mermaid", &plan.mermaid());
    hold("drawn_dot", &plan.dot());
}

#[test]
fn what_stands_inside_is_drawn_inside() {
    let plan = compile(include_str!("../../tests/diagnostics/whole/nested_feature.yaml"));
    hold("drawn_inside_mermaid", &plan.mermaid());
    hold("drawn_inside_dot", &plan.dot());
    let choice = compile(include_str!("../../tests/diagnostics/whole/choice.yaml"));
    hold("drawn_choice_mermaid", &choice.mermaid());
}

#[test]
fn what_a_drawing_holds_cannot_leave_its_label() {
    let plan = compile("version: 1\nname: a\nsteps: { a: { run: \"echo \\\"x]\\\" > `y` \\\\ # & é\\nmore\" } }\n");
    assert!(plan.mermaid().contains("run: echo #quot;x]#quot; #gt; #96;y#96; \\ #35; #amp; é…"), "{}", plan.mermaid());
    assert!(plan.dot().contains(r#"label="a\nrun: echo \"x]\" > `y` \\ # & é…""#), "{}", plan.dot());
}

const WRITERS: &str = "version: 1\nname: a\nagents: { w: { model: openai/x, access: write }, r: { model: openai/x } }\nsteps:\n";

fn writers(steps: &str) -> String {
    format!("{WRITERS}{steps}")
}

#[test]
fn writers_that_are_ordered_or_joined_do_not_race() {
    for steps in [
        "  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x, needs: [a]}\n  c: {run: ls, needs: [a, b]}\n",
        "  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x}\n  m: {merge: {from: [a, b]}, needs: [a, b]}\n  c: {run: ls, needs: [a, m, b]}\n",
        "  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x}\n  r: {run: ls, needs: [a, b], workspace: none}\n  m: {merge: {from: [a, b]}, needs: [r]}\n",
        "  a: {agent: w, prompt: x}\n  ok: {agent: w, prompt: x, needs: [a]}\n  mend: {agent: w, prompt: x, needs: [{step: a, on: failure}]}\n",
        "  a: {agent: w, prompt: x, for_each: {items: [1, 2]}}\n  m: {merge: {from: a}, needs: [a]}\n  b: {agent: w, prompt: x, needs: [m, a]}\n",
        "  s: {agent: w, prompt: x}\n  a: {agent: w, prompt: x, needs: [s]}\n  b: {agent: w, prompt: x, needs: [s]}\n  m: {merge: {from: [a, b]}, needs: [a, b, s]}\n",
    ] {
        compile(&writers(steps));
    }
}

#[test]
fn writers_that_meet_unjoined_race_wherever_they_meet() {
    let cases: [(&str, &[&str]); 4] = [
        ("  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x}\n  c: {agent: w, prompt: x, needs: [a, b]}\n", &[codes::WRITERS_RACE]),
        ("  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x}\n  r: {run: ls, needs: [a, b], workspace: none}\n", &[codes::NEVER_JOINED]),
        (
            "  a: {agent: w, prompt: x, allow_failure: true}\n  b: {agent: w, prompt: x, needs: [a]}\n  c: {agent: w, prompt: x, needs: [{step: a, on: failure}]}\n",
            &[codes::NEVER_JOINED],
        ),
        (
            "  a: {agent: w, prompt: x}\n  b: {agent: w, prompt: x}\n  m: {merge: {from: [a]}, needs: [a]}\n  n: {merge: {from: [b]}, needs: [m, b]}\n",
            &[codes::WRITERS_RACE],
        ),
    ];
    for (steps, expected) in cases {
        assert_eq!(errors(&writers(steps)), expected, "{steps}");
    }
}

/// A chain of many steps that read far back; `before` stands before each.
fn chain(count: usize, before: &str) -> String {
    use std::fmt::Write as _;
    let mut text = format!("{before}s0: {{agent: w, prompt: x}}\n");
    for step in 1..count {
        let verb = if step % 2 == 0 { "agent: w, prompt: \"{{ steps.s0.output }}\"" } else { "run: \"echo {{ steps.s0.output | sh }}\"" };
        let far = if step > 2 { format!(", s{}", step / 2) } else { String::new() };
        writeln!(text, "{before}s{step}: {{{verb}, needs: [s{}{far}]}}", step - 1).expect("text can be written to");
    }
    text
}

#[test]
fn ten_thousand_steps_compile() {
    let plan = compile(&writers(&chain(10_000, "  ")));
    assert_eq!(plan.order().len(), 10_000);
    let flat: String = (0..10_000).fold(writers(""), |text, step| text + &format!("  s{step}: {{agent: w, prompt: x}}\n"));
    assert_eq!(errors(&flat), [codes::NEVER_JOINED]);
    let typos: String = (0..2_000).fold(writers(""), |text, step| text + &format!("  s{step}: {{run: ls, needs: [t{step}]}}\n"));
    assert!(errors(&typos).len() <= 200);
}

#[test]
fn ten_thousand_steps_of_a_body_compile() {
    let body = chain(10_000, "      ");
    let reads: String = (0..1_000).map(|step| format!(" {{{{ steps.a.output.s{step}.status | sh }}}}")).collect();
    let text = format!("  a:\n    loop: {{until: \"true\", max: 2}}\n    steps:\n{body}  b: {{needs: [a], run: \"echo{reads}\"}}\n");
    let plan = compile(&writers(&text));
    let Work::Loop(spec) = &plan.step(&StepId::from("a")).expect("it is there").work else { panic!("no loop") };
    assert_eq!((spec.body.order().len(), spec.body.agents.len(), plan.all().len()), (10_000, plan.agents.len(), 2));
    assert!(Arc::ptr_eq(&spec.body.agents, &plan.agents), "what is the same for all frames is there once");
}

#[test]
fn ten_thousand_items_and_a_wide_join_compile() {
    let items: Vec<String> = (0..10_000).map(|item| format!("i{item}")).collect();
    let plan = compile(&writers(&format!("  a: {{run: \"echo {{{{ item | sh }}}}\", for_each: {{items: [{}]}}}}\n", items.join(", "))));
    assert_eq!(plan.step(&StepId::from("a")).and_then(|step| step.for_each.as_ref()?.items.value.as_array().map(Vec::len)), Some(10_000));
    let wide: String = (0..10_000).map(|step| format!("  s{step}: {{agent: w, prompt: x}}\n")).collect();
    let names: Vec<String> = (0..10_000).map(|step| format!("s{step}")).collect();
    let names = names.join(", ");
    let plan = compile(&writers(&format!("{wide}  m: {{needs: [{names}], merge: {{from: [{names}]}}}}\n  z: {{needs: [m], run: ls}}\n")));
    assert_eq!(plan.needs(&StepId::from("m")).count(), 10_000);
}

#[test]
fn a_workflow_that_is_called_twice_is_compiled_once_and_untrusted_rules_do_not_count() {
    let text = "version: 1\nname: a\nsteps:\n  a: { workflow: publish, with: { title: x } }\n  b: { needs: [a], workflow: publish, with: { title: y } }\n";
    let mut catalog = catalog();
    let (plan, _) = compile_with(text, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    let called = |plan: &Plan, id: &str| plan.step(&StepId::from(id)).and_then(PlannedStep::inner).expect("it calls").clone();
    assert!(Arc::ptr_eq(&called(&plan, "a"), &called(&plan, "b")));
    let inner = called(&plan, "a");
    assert_eq!((inner.name.as_str(), inner.agents["writer"].model.choices.as_slice()), ("publish", ["openai/own".to_owned()].as_slice()));
    assert!(inner.agents["writer"].rules.allow.is_empty(), "the file is not trusted");
    assert!(plan.step(&StepId::from("a")).is_some_and(|step| step.writes), "a call writes if what it calls does");
    catalog.model_overrides.insert("own".to_owned(), "google/g".to_owned());
    let (plan, _) = compile_with(text, &catalog).unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!(called(&plan, "b").agents["writer"].model.choices, ["google/g"], "an override reaches the aliases of what is called");
}

#[test]
fn frames_are_plans_with_what_is_around_them() {
    let plan = compile(include_str!("../../tests/diagnostics/whole/nested_feature.yaml"));
    let id = StepId::from;
    let Work::Loop(polish) = &plan.step(&id("polish")).expect("it is there").work else { panic!("no loop") };
    assert_eq!(polish.body.order(), [id("suite"), id("repair"), id("rounds")]);
    assert_eq!((polish.max, polish.body.inputs.len(), polish.body.outputs.len()), (4, 2, 0));
    assert!(polish.body.orchestrator.is_none() && plan.orchestrator.as_ref().is_some_and(|spec| spec.supervises == [id("build")]));
    assert!(plan.step(&id("polish")).is_some_and(|step| step.writes && !step.takes_a_place()));
    let repair = polish.body.step(&id("repair")).expect("it is there");
    assert_eq!((repair.workspace.kind, repair.workspace.setup.len()), (WorkspaceKind::Worktree, 1), "what `defaults` say of worktrees holds for a writer");
    let suite = polish.body.step(&id("suite")).expect("it is there");
    assert_eq!((suite.workspace.kind, suite.workspace.setup.len(), suite.writes), (WorkspaceKind::Shared, 0, false), "and for no reader");
    let build = plan.step(&id("build")).expect("it is there");
    assert_eq!(build.retry_with.as_ref().map(|agent| agent.name.as_str()), Some("resolver"));
    assert_eq!(build.idle_timeout, Some(Duration::from_mins(4)));
    let ends = [&plan.on_failure, &plan.finally].map(|end| end.as_ref().map(|end| end.order().to_vec()));
    assert_eq!(ends, [Some(vec![id("report"), id("mend")]), Some(vec![id("clean")])]);
    assert_eq!(plan.all().len(), 7, "the main graph, two bodies, two called workflows, two ends");
    let review = compile(include_str!("../../tests/diagnostics/whole/matrix_review.yaml"));
    let Work::Agent { agent, .. } = &review.step(&id("look")).expect("it is there").work else { panic!("no agent") };
    assert_eq!(
        (agent.model.choices.as_slice(), agent.skills.as_slice()),
        (["{{ matrix.model }}".to_owned()].as_slice(), ["review", "review-{{ matrix.lens }}"].map(str::to_owned).as_slice())
    );
    assert_eq!(review.models["strong"].choices, ["anthropic/a"]);
}

proptest! {
    #[test]
    fn a_mangled_workflow_is_compiled_or_refused(at in 0..FLOW.len(), cut in 0_usize..30, put in "[\\[\\]{}:,|'\"#a1. \n-]{0,4}") {
        let start = FLOW.floor_char_boundary(at);
        let end = FLOW.floor_char_boundary((start + cut).min(FLOW.len())).max(start);
        let text = format!("{}{put}{}", &FLOW[..start], &FLOW[end..]);
        if let Err(errors) = compile_with(&text, &catalog()) {
            prop_assert!(!errors.found.is_empty());
            for error in &errors.found {
                prop_assert!(error.labels.iter().all(|label| error.source.text.get(label.span.range()).is_some()), "{error}");
            }
        }
    }
}

#[test]
fn long_cycles_are_told_within_bounds() {
    let text: String = (0..5_000).fold(writers(""), |text, step| text + &format!("  s{step}: {{run: ls, needs: [s{}]}}\n", (step + 1) % 5_000));
    let found = compile_with(&text, &catalog()).expect_err("they wait for each other").found;
    assert_eq!((found.len(), found[0].code, found[0].labels.len()), (1, codes::CYCLE, 5_000), "every edge has its place");
    let drawn = source::render(&found, false);
    assert!(drawn.contains("s4999` needs `s0`") && drawn.len() < 300_000, "{} bytes", drawn.len());
}

#[test]
fn every_example_of_the_pages_gives_its_code_and_put_right_gives_none() {
    for (code, _) in codes::ALL.iter().filter(|(code, _)| *code != codes::UNREADABLE) {
        let (wrong, right) = source::pages::Page::of(code).and_then(|page| page.example()).expect("the page has an example");
        let found = |text: &str| {
            if *code == codes::STUB {
                // The one code of a file that is no workflow.
                let source = Source { name: "flow.yaml".to_owned(), text: text.to_owned() };
                return crate::workflow::Stub::load(&Arc::new(source)).map_or_else(|errors| errors.found, |_| Vec::new());
            }
            let itself = WorkflowFile { source: Arc::new(Source { name: "flow.yaml".to_owned(), text: text.to_owned() }), trusted: true };
            let mut catalog = catalog();
            catalog.workflows.insert("release".to_owned(), itself);
            match compile_with(text, &catalog) {
                Ok((_, warnings)) => warnings,
                Err(errors) => errors.found,
            }
        };
        // What a called workflow has wrong stands in its own file.
        let raised: BTreeSet<&str> = found(&wrong).iter().filter(|found| found.source.name == "flow.yaml").map(|found| found.code).collect();
        assert_eq!(raised, BTreeSet::from([*code]), "{wrong}");
        assert_eq!(found(&right), [], "the example of {code} put right");
    }
}
