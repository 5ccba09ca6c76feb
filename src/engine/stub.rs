//! What a stubbed node gives: what the stub file says of it, and otherwise something of the right shape.
//!
//! Pure. Templates are rendered as in a real run, so that what they cannot read is found; nothing is carried out.
use super::steps::{self, Order};
use crate::{
    event::{CommitId, Failure, FailureKind, NodeId, StepId, Success},
    journal::{FINALLY, ON_FAILURE},
    plan::{self, Plan, PlannedStep, SelectSpec, Work},
    prompts,
    source::{Diagnostic, Diagnostics, codes, nearest},
    workflow::{Parse, Stub, StubbedNode, StubbedStatus, StubbedStep, StubbedTime},
};
use serde_json::{Map, Value, json};
use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, LazyLock},
    time::Duration,
};

/// How long an agent takes of which nothing is said.
pub const AGENT_TAKES: Duration = Duration::from_mins(1);
/// How long everything else takes of which nothing is said.
pub const OTHER_TAKES: Duration = Duration::from_secs(10);
/// Keys that a message lists.
const LISTED: usize = 10;
/// How deep an output is made from its schema.
const DEPTH: usize = 12;
/// Lines of the output of a command whose lines are asked for.
const LINES: usize = 3;

/// Says what of a stub means nothing for the plan: steps that it does not have, and keys that say nothing for their kind.
///
/// # Errors
/// All of it, each with its place.
pub(super) fn check(plan: &Plan, stub: &Stub) -> Result<(), Diagnostics> {
    let mut checker = Checker { stub, found: Vec::new() };
    checker.steps(plan, &stub.steps);
    if checker.found.is_empty() { Ok(()) } else { Err(checker.found.into()) }
}

/// Says which items of a stub no step has had, though the items of that step were there. `had` holds the path of each such
/// step, with the keys.
///
/// # Errors
/// All of them, each with its place.
pub(super) fn check_items(stub: &Stub, had: &BTreeMap<Vec<String>, BTreeSet<String>>) -> Result<(), Diagnostics> {
    let mut found = Vec::new();
    for (path, keys) in had {
        let Some(stubbed) = at(&stub.steps, path) else { continue };
        for (key, _) in stubbed.items.iter().filter(|(key, _)| !keys.contains(&key.value)) {
            let wrong = Diagnostic::error(codes::STUB, &stub.source, key.span, format!("`{}` has had no item `{}`", path.join("/"), key.value));
            let near = nearest(&key.value, keys.iter().map(String::as_str)).map(|near| format!("did you mean `{near}`?"));
            let first = || keys.iter().take(LISTED).map(|key| format!("`{key}`")).collect::<Vec<_>>().join(", ");
            found.push(wrong.help(near.unwrap_or_else(|| if keys.is_empty() { "it had none".to_owned() } else { format!("its items were {}", first()) })));
        }
    }
    if found.is_empty() { Ok(()) } else { Err(found.into()) }
}

struct Checker<'a> {
    stub: &'a Stub,
    found: Vec<Diagnostic>,
}

impl Checker<'_> {
    fn steps(&mut self, plan: &Plan, steps: &[StubbedStep]) {
        for stubbed in steps {
            let ending = match stubbed.id.value.as_str() {
                ON_FAILURE => Some(&plan.on_failure),
                FINALLY => Some(&plan.finally),
                _ => None,
            };
            match (ending, plan.step(&StepId(stubbed.id.value.clone()))) {
                (Some(Some(inner)), _) => self.steps(inner, &stubbed.steps),
                (None, Some(step)) => self.step(step, stubbed),
                (Some(None), _) | (None, None) => {
                    let unknown =
                        Diagnostic::error(codes::UNKNOWN_STEP, &self.stub.source, stubbed.id.span, format!("there is no step `{}`", stubbed.id.value));
                    let near = nearest(&stubbed.id.value, plan.order().iter().map(|id| id.0.as_str()));
                    let help = near.map_or_else(|| format!("the steps are those of `{}`", plan.name), |near| format!("did you mean `{near}`?"));
                    self.found.push(unknown.help(help));
                }
            }
        }
    }

    fn step(&mut self, step: &PlannedStep, stubbed: &StubbedStep) {
        for said in times(&stubbed.gives).chain(stubbed.items.iter().flat_map(|(_, gives)| times(gives))) {
            self.time(step, said);
        }
        if !step.is_fan() {
            for (key, _) in &stubbed.items {
                let wrong = Diagnostic::error(codes::NOT_OF_THIS_VERB, &self.stub.source, key.span, format!("step `{}` has no items", step.id));
                self.found.push(wrong.help("say it of the step itself"));
            }
        }
        match step.inner() {
            Some(inner) => self.steps(inner, &stubbed.steps),
            None => self.found.extend(stubbed.steps.iter().map(|inside| {
                Diagnostic::error(codes::UNKNOWN_STEP, &self.stub.source, inside.id.span, format!("step `{}` has no steps inside it", step.id))
                    .help("only a loop and the call of a workflow have steps inside")
            })),
        }
    }

    fn time(&mut self, step: &PlannedStep, said: &StubbedTime) {
        let Kind { what, keys, instead } = Kind::of(step);
        for key in said.keys.iter().filter(|key| !keys.contains(&key.value)) {
            let wrong = Diagnostic::error(codes::NOT_OF_THIS_VERB, &self.stub.source, key.span, format!("`{}` says nothing for {what}", key.value));
            self.found.push(wrong.help(instead));
        }
        let wrong = said.status.and_then(|status| not_of(step, status)).map(|why| ("status", why)).into_iter();
        for (key, why) in wrong.chain(said.output.as_ref().and_then(|output| misfit(step, output)).map(|why| ("output", why))) {
            if let Some(at) = said.keys.iter().find(|at| at.value == key && keys.contains(&key)) {
                self.found.push(Diagnostic::error(codes::STUB, &self.stub.source, at.span, why.0).help(why.1));
            }
        }
    }
}

fn times(node: &StubbedNode) -> impl Iterator<Item = &StubbedTime> {
    std::iter::once(&node.always).chain(&node.times)
}

/// What a stub may say of one kind of step.
struct Kind {
    what: &'static str,
    keys: &'static [&'static str],
    instead: &'static str,
}

impl Kind {
    fn of(step: &PlannedStep) -> Kind {
        const WITH_AGENT: &[&str] = &["status", "output", "error", "usd", "tokens", "duration"];
        const WITHOUT: &[&str] = &["status", "output", "error", "duration"];
        let kind = |what, keys, instead| Kind { what, keys, instead };
        let work = |what, agent: bool| kind(what, if agent { WITH_AGENT } else { WITHOUT }, "take it out");
        match &step.work {
            Work::Agent { .. } => kind("a step that is an agent", WITH_AGENT, "an agent has a `status`, an `output` and an `error`"),
            Work::Run { .. } => kind("a command", &["status", "output", "error", "stdout", "exit_code", "duration"], "a command costs nothing"),
            Work::Merge(_) => work("this merge", step.sessions().is_some()),
            Work::Select(_) => work("this choice", step.sessions().is_some()),
            Work::Approve(_) => work("a question to a person", false),
            Work::Loop(_) => kind("a loop", &[], "say it of the steps in its body, below `steps`"),
            Work::Workflow(_) => kind("the call of a workflow", &[], "say it of the steps of that workflow, below `steps`"),
        }
    }
}

/// Says why a step cannot end like this, and what to say instead.
fn not_of(step: &PlannedStep, status: StubbedStatus) -> Option<(String, String)> {
    let why = |why: &str, help: &str| Some((why.to_owned(), help.to_owned()));
    match (status, &step.work) {
        (StubbedStatus::Unavailable, Work::Run { .. }) => why("a command is never `unavailable`", "say `status: failed`, or an `exit_code`"),
        (StubbedStatus::Unavailable | StubbedStatus::Timeout, Work::Approve(_)) => {
            why("a person says yes or no", "say `status: failed` for a no, with the words as `error`")
        }
        (StubbedStatus::Unavailable, _) if step.sessions().is_none() => {
            why("only a model is ever `unavailable`, and this step asks none", "say `status: failed`")
        }
        _ => None,
    }
}

/// Says why a step cannot have this output, and what to say instead. What has a schema is held against it when it is given.
fn misfit(step: &PlannedStep, output: &Value) -> Option<(String, String)> {
    let text = || Some(("without a schema the output of this step is text".to_owned(), "write it as text, or give the step an `output`".to_owned()));
    match &step.work {
        Work::Agent { .. } if step.output_schema.is_none() && !output.is_string() => text(),
        Work::Run { .. } if step.parse.is_none() && !output.is_string() => text(),
        Work::Run { .. } if step.parse == Some(Parse::Lines) && !output.as_array().is_some_and(|lines| lines.iter().all(Value::is_string)) => {
            Some(("the output of this step is a list of lines".to_owned(), "write it as a list of texts".to_owned()))
        }
        Work::Merge(_) | Work::Select(_) | Work::Approve(_) => {
            let known = usual(step, None, &[]);
            let names = known.as_object().into_iter().flat_map(Map::keys).map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
            let fits = output.as_object().is_some_and(|said| said.keys().all(|name| known.get(name).is_some()));
            if !fits {
                return Some(("this step has another output".to_owned(), format!("it has {names}; what is not said stays as it is")));
            }
            if matches!(step.work, Work::Approve(_)) && output.get("approved").is_some_and(|approved| !approved.is_boolean()) {
                return Some(("a person says yes or no".to_owned(), "write `approved: true` or `approved: false`".to_owned()));
            }
            if let (Work::Select(select), Some(winner)) = (&step.work, output.get("winner").filter(|winner| !winner.is_null())) {
                return no_candidate(select, winner);
            }
            None
        }
        _ => None,
    }
}

/// Says why nothing of this name is chosen from, as far as that is known before there are items.
fn no_candidate(select: &SelectSpec, winner: &Value) -> Option<(String, String)> {
    let is_of =
        |from: &StepId| winner.as_str().and_then(|name| name.strip_prefix(from.0.as_str())).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
    let names: Vec<&str> = select.from.iter().map(|from| from.0.as_str()).collect();
    (names.len() > 1 && !select.from.iter().any(is_of)).then(|| (format!("{winner} is no candidate"), format!("it chooses from {}", names.join(", "))))
}

/// Returns what the stub says of a node the time with this number, from 0. Where nothing is said of its cost, each of its
/// sessions costs what one does; of a merge it is not known whether there is any.
pub(super) fn said(stub: &Stub, step: &PlannedStep, node: &NodeId, number: usize) -> StubbedTime {
    let sessions = step.sessions().map_or(0, |(_, sessions)| if let Work::Merge(_) = step.work { 0 } else { sessions });
    let defaults = StubbedTime {
        usd: stub.defaults.usd.map(|usd| usd * f64::from(sessions)),
        tokens: stub.defaults.tokens.map(|tokens| tokens.saturating_mul(sessions.into())),
        duration: stub.defaults.duration,
        ..StubbedTime::default()
    };
    let Some(stubbed) = Some(&stub.steps).filter(|steps| !steps.is_empty()).and_then(|steps| at(steps, &path(node))) else { return defaults };
    let item = node.item.as_ref().and_then(|key| stubbed.items.iter().find(|(of, _)| of.value == *key));
    let of_item = item.map(|(_, gives): &(_, StubbedNode)| gives.time(number)).unwrap_or_default();
    of_item.or(&stubbed.gives.time(number)).or(&defaults)
}

/// Returns the steps that lead to a node, the outermost first.
pub(super) fn path(node: &NodeId) -> Vec<String> {
    node.within.iter().map(|frame| &frame.step).chain([&node.step]).map(|step| step.0.clone()).collect()
}

/// Returns whether two nodes are of the same graph.
pub(super) fn beside(a: &NodeId, b: &NodeId) -> bool {
    a.within == b.within
}

/// Returns what is said of the step that these steps lead to.
fn at<'a>(steps: &'a [StubbedStep], path: &[String]) -> Option<&'a StubbedStep> {
    let (first, rest) = path.split_first()?;
    let step = steps.iter().find(|step| step.id.value == *first)?;
    if rest.is_empty() { Some(step) } else { at(&step.steps, rest) }
}

/// Returns how long it takes, and whether its time ends it.
pub(super) fn takes(said: &StubbedTime, step: &PlannedStep) -> (Duration, bool) {
    let usual = if matches!(step.work, Work::Agent { .. }) { AGENT_TAKES } else { OTHER_TAKES };
    let takes = said.duration.unwrap_or(usual);
    (takes.min(step.timeout), takes > step.timeout)
}

/// What a node gives.
pub(super) struct Given {
    pub(super) success: Success,
    /// Whether its output follows from nothing but its schema.
    pub(super) is_made_up: bool,
}

/// Makes what a node gives. `landed` is the work that a merge or a choice is among.
pub(super) fn give(order: &Order<'_>, said: &StubbedTime, landed: &[NodeId]) -> Result<Given, Failure> {
    let (node, step) = (order.node, order.step);
    let what = render(order)?;
    let commit = step.writes.then(|| CommitId(format!("{}{}", crate::event::BlobId::of(node.to_string().as_bytes()).0.get(..38).unwrap_or_default(), "00")));
    let is_made_up = said.output.is_none() && said.stdout.is_none() && (step.output_schema.is_some() || step.parse.is_some());
    let output = match &step.work {
        Work::Run { .. } if said.is_silent() && step.parse.is_none() && step.output_schema.is_none() => {
            return Ok(Given { success: Success { output: SILENCE.clone(), commit }, is_made_up });
        }
        Work::Run { .. } => command(step, said, &what)?,
        Work::Approve(_) => answer(said)?,
        _ if ends_badly(said) => return Err(failed(said, Value::Null)),
        Work::Agent { .. } => match (&said.output, &step.output_schema) {
            (Some(output), _) => fitting(step, output.clone())?,
            (None, Some(schema)) => fitting(step, example(schema, schema, "", 0))?,
            (None, None) => Value::String(format!("What `{node}` would say.")),
        },
        Work::Merge(_) | Work::Select(_) | Work::Workflow(_) | Work::Loop(_) => {
            if matches!(step.work, Work::Select(_)) && landed.is_empty() {
                return Err(steps::no_candidate());
            }
            let mut output = usual(step, commit.as_ref(), landed);
            for (name, value) in said.output.iter().filter_map(Value::as_object).flatten() {
                output[name] = value.clone();
            }
            if let Work::Select(select) = &step.work {
                check_winner(select, &output["winner"], landed)?;
            }
            output
        }
    };
    Ok(Given { success: Success { output: output.into(), commit }, is_made_up })
}

/// What a person is to have said: as in a real run, a no is a failure.
fn answer(said: &StubbedTime) -> Result<Value, Failure> {
    let of = |name: &str| said.output.as_ref().and_then(|output| output.get(name));
    let allowed = !ends_badly(said) && of("approved") != Some(&Value::Bool(false));
    let note = of("note").and_then(Value::as_str).or(said.error.as_deref().filter(|_| !allowed)).unwrap_or_default();
    steps::answered(allowed, of("by").and_then(Value::as_str).unwrap_or("stub"), note).map(|success| (*success.output).clone())
}

/// Says of a winner who is no candidate that nothing would come of the choice.
fn check_winner(select: &SelectSpec, winner: &Value, landed: &[NodeId]) -> Result<(), Failure> {
    let names: Vec<String> = landed.iter().map(|node| candidate(select, node)).collect();
    if winner.is_null() || names.iter().any(|name| winner == name) {
        return Ok(());
    }
    let failure = Failure::new(FailureKind::Schema, format!("the stub says that {winner} is chosen, which is no candidate"));
    Err(failure.hint(format!("the candidates are {}", names.join(", "))))
}

/// Names a candidate as in a real run: items of one step go by their keys.
fn candidate(select: &SelectSpec, node: &NodeId) -> String {
    node.item.clone().filter(|_| select.from.len() == 1).unwrap_or_else(|| node.to_string())
}

/// The output of what joins, chooses or asks, where all goes well.
fn usual(step: &PlannedStep, commit: Option<&CommitId>, landed: &[NodeId]) -> Value {
    let commit = commit.map(|commit| commit.0.clone());
    match &step.work {
        Work::Merge(_) => {
            let landed: Vec<String> = landed.iter().map(ToString::to_string).collect();
            json!({"commit": commit, "landed": landed, "ejected": [], "conflicts": [], "report": "simulated"})
        }
        Work::Select(select) => {
            json!({"winner": landed.first().map(|node| candidate(select, node)), "why": "simulated", "scores": {}, "commit": commit})
        }
        Work::Approve(_) => json!({"approved": true, "by": "stub", "note": ""}),
        Work::Agent { .. } | Work::Run { .. } | Work::Workflow(_) | Work::Loop(_) => Value::Null,
    }
}

/// What a command gives that says nothing.
static SILENCE: LazyLock<Arc<Value>> = LazyLock::new(|| printed("", "", 0, Some(String::new().into())).into());

/// Writes down what a command has printed.
fn printed(stdout: &str, stderr: &str, exit_code: i64, output: Option<Value>) -> Value {
    let printed = [("stdout", json!(stdout)), ("stderr", json!(stderr)), ("exit_code", json!(exit_code)), ("output_tail", json!(stdout))];
    let fields = printed.into_iter().chain(output.map(|output| ("output", output)));
    Value::Object(fields.map(|(name, value)| (name.to_owned(), value)).collect())
}

fn render<'a>(order: &Order<'a>) -> Result<Cow<'a, str>, Failure> {
    let (what, text) = match &order.step.work {
        Work::Agent { prompt, .. } => ("prompt", &prompt.value),
        Work::Run { command } => ("run", &command.value),
        Work::Approve(approve) => ("message", &approve.message.value),
        Work::Merge(_) | Work::Select(_) | Work::Workflow(_) | Work::Loop(_) => return Ok(Cow::default()),
    };
    if prompts::is_plain(text) {
        return Ok(text.into());
    }
    prompts::render(text, &order.scope()).map(Cow::from).map_err(|error| Failure::new(FailureKind::Template, format!("`{what}`: {error}")))
}

fn ends_badly(said: &StubbedTime) -> bool {
    said.ends_well() == Some(false)
}

fn failed(said: &StubbedTime, output: Value) -> Failure {
    let kind = match said.status {
        Some(StubbedStatus::Unavailable) => FailureKind::Unavailable,
        Some(StubbedStatus::Timeout) => FailureKind::Timeout,
        Some(StubbedStatus::Succeeded | StubbedStatus::Failed) | None => FailureKind::Verify,
    };
    let output = said.output.clone().unwrap_or(output);
    Failure { output, ..Failure::new(kind, said.error.clone().unwrap_or_else(|| "the stub says so".to_owned())) }
}

fn command(step: &PlannedStep, said: &StubbedTime, command: &str) -> Result<Value, Failure> {
    if said.status == Some(StubbedStatus::Timeout) {
        let stdout = said.stdout.clone().unwrap_or_default();
        let output = step.parse.map(|_| said.output.clone().unwrap_or_else(|| steps::said_in_failure(step, &stdout)));
        return Err(failed(said, printed(&stdout, "", steps::TIMED_OUT.into(), output)));
    }
    let exit_code = said.exit_code.unwrap_or(i64::from(ends_badly(said)));
    let lines = || Value::from((1..=LINES).map(|number| format!("line-{number}")).collect::<Vec<_>>());
    let output = match (&said.output, step.parse, &said.stdout) {
        (Some(output), ..) => output.clone(),
        (None, Some(Parse::Lines), Some(printed)) => printed.lines().collect(),
        (None, Some(Parse::Lines), None) => lines(),
        (None, Some(Parse::Json), Some(printed)) if exit_code != 0 => steps::said_in_failure(step, printed),
        (None, Some(Parse::Json), Some(printed)) => {
            serde_json::from_str(printed).map_err(|error| Failure::new(FailureKind::Schema, format!("the stub's `stdout` is not JSON: {error}")))?
        }
        (None, Some(Parse::Json), None) => step.output_schema.as_ref().map_or_else(|| json!({}), |schema| example(schema, schema, "", 0)),
        (None, None, printed) => Value::String(printed.clone().unwrap_or_default()),
    };
    let stdout = said.stdout.clone().unwrap_or_else(|| match &output {
        Value::Array(lines) if step.parse == Some(Parse::Lines) => lines.iter().filter_map(Value::as_str).map(|line| format!("{line}\n")).collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let stderr = said.error.clone().unwrap_or_default();
    if exit_code != 0 {
        let shown: String = command.lines().next().unwrap_or_default().chars().take(200).collect();
        return Err(Failure {
            output: printed(&stdout, &stderr, exit_code, step.parse.map(|_| output)),
            ..Failure::new(FailureKind::Command, format!("`{shown}` exited with {exit_code}"))
        });
    }
    Ok(printed(&stdout, &stderr, exit_code, Some(fitting(step, output)?)))
}

/// Holds an output against the step's schema.
fn fitting(step: &PlannedStep, output: Value) -> Result<Value, Failure> {
    let Some(schema) = &step.output_schema else { return Ok(output) };
    let wrong = |why| Failure::new(FailureKind::Schema, format!("the simulated output does not fit its schema: {why}"));
    plan::fits(schema, &output).map(|()| output).map_err(|why| wrong(why).hint(format!("give `{}` an `output` in the stub file", step.id)))
}

/// Makes a value that a schema describes: the first of what it names, and one of each thing it wants.
fn example(schema: &Value, root: &Value, name: &str, depth: usize) -> Value {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let found = target.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
        return found.filter(|_| depth < DEPTH).map_or(Value::Null, |found| example(found, root, name, depth + 1));
    }
    for word in ["const", "default"] {
        if let Some(value) = schema.get(word) {
            return value.clone();
        }
    }
    if let Some(first) = schema.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.clone();
    }
    for word in ["anyOf", "oneOf", "allOf"] {
        if let Some(first) = schema.get(word).and_then(Value::as_array).and_then(|schemas| schemas.first()) {
            return example(first, root, name, depth + 1);
        }
    }
    let kind = schema.get("type");
    let kind = kind.and_then(Value::as_str).or_else(|| kind.and_then(Value::as_array).and_then(|kinds| kinds.first()).and_then(Value::as_str));
    let number = |word: &str| schema.get(word).and_then(Value::as_u64);
    match kind {
        Some("array") => {
            let items = schema.get("items").unwrap_or(&Value::Null);
            // One of each thing that has parts; a list of mere words may be empty, as a list of needs is.
            let has_parts = items.get("$ref").is_some() || items.get("properties").is_some();
            let wanted = number("minItems").unwrap_or_else(|| u64::from(has_parts && number("maxItems") != Some(0))).min(1_000);
            (1..=wanted).filter(|_| depth < DEPTH).map(|at| example(items, root, &format!("{name}-{at}"), depth + 1)).collect()
        }
        Some("string") => Value::String(text(schema, name)),
        Some("integer") => schema.get("minimum").filter(|least| least.is_i64() || least.is_u64()).cloned().unwrap_or(json!(1)),
        Some("number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
        Some("boolean") => json!(true),
        Some("null") => Value::Null,
        Some("object") => object(schema, root, name, depth),
        _ if schema.get("properties").is_some() => object(schema, root, name, depth),
        _ => Value::String(text(schema, name)),
    }
}

fn object(schema: &Value, root: &Value, name: &str, depth: usize) -> Value {
    let required: Vec<&str> = schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let properties = schema.get("properties").and_then(Value::as_object).into_iter().flatten();
    let number = name.rsplit('-').next().filter(|number| number.parse::<u32>().is_ok());
    let property = |(property, schema): (&String, &Value)| {
        // What may be left out is left out: an empty list of needs needs nobody.
        required.contains(&property.as_str()).then(|| {
            let name = number.map_or_else(|| property.clone(), |number| format!("{property}-{number}"));
            (property.clone(), example(schema, root, &name, depth + 1))
        })
    };
    if depth < DEPTH { Value::Object(properties.filter_map(property).collect()) } else { Value::Object(Map::new()) }
}

/// Makes text of the length and the letters that are wanted, as far as simple candidates go.
fn text(schema: &Value, name: &str) -> String {
    let number = |word: &str| schema.get(word).and_then(Value::as_u64).and_then(|number| usize::try_from(number).ok());
    let digits: String = name.chars().filter(char::is_ascii_digit).collect();
    let candidates =
        [name.to_owned(), name.replace('-', "_"), name.replace('-', ""), digits, "a".to_owned(), "A".to_owned(), "1".to_owned(), "2026-01-31".to_owned()];
    let sized = |candidate: String| {
        let longer: String =
            candidate.chars().chain(std::iter::repeat('x')).take(candidate.chars().count().max(number("minLength").unwrap_or(0).min(10_000))).collect();
        longer.chars().take(number("maxLength").unwrap_or(usize::MAX)).collect::<String>()
    };
    let fits = |candidate: &String| jsonschema::validator_for(schema).is_ok_and(|validator| validator.is_valid(&Value::String(candidate.clone())));
    candidates.into_iter().map(sized).find(fits).unwrap_or_else(|| name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_fits_the_schema_it_is_made_from() {
        let schema = json!({
            "type": "object",
            "required": ["tasks", "kind", "count", "sure", "when", "next"],
            "properties": {
                "tasks": {"type": "array", "minItems": 2, "items": {"$ref": "#/$defs/task"}},
                "kind": {"enum": ["b", "a"]},
                "count": {"type": "integer", "minimum": 3},
                "sure": {"type": "boolean"},
                "when": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
                "next": {"anyOf": [{"type": "null"}, {"type": "string"}]},
                "maybe": {"type": "string"},
            },
            "$defs": {"task": {"type": "object", "required": ["id", "title"], "properties": {
                "id": {"type": "string", "pattern": "^[a-z][a-z0-9-]*$"},
                "title": {"type": "string", "minLength": 9},
                "needs": {"type": "array", "items": {"type": "string"}},
            }}},
        });
        let made = example(&schema, &schema, "", 0);
        jsonschema::validate(&schema, &made).unwrap_or_else(|error| panic!("{error}: {made}"));
        assert_eq!(
            made,
            json!({
                "tasks": [{"id": "id-1", "title": "title-1xx"}, {"id": "id-2", "title": "title-2xx"}],
                "kind": "b", "count": 3, "sure": true, "when": "2026-01-31", "next": null,
            })
        );
    }

    #[test]
    fn a_schema_that_holds_itself_ends() {
        let schema = json!({"type": "object", "required": ["next"], "properties": {"next": {"$ref": "#"}}});
        assert!(example(&schema, &schema, "", 0).is_object());
    }
}
