//! What a stubbed node gives: what the stub file says of it, and otherwise something of the right shape.
//!
//! Pure. Templates are rendered as in a real run, so that what they cannot read is found; nothing is carried out.
use super::steps::Job;
use crate::{
    event::{CommitId, Failure, FailureKind, NodeId, StepId, Success},
    plan::{Plan, PlannedStep, Work},
    prompts,
    source::{Diagnostic, Diagnostics, codes, nearest},
    workflow::{Parse, Stub, StubbedNode, StubbedStatus, StubbedStep, StubbedTime},
};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// How long an agent takes of which nothing is said.
pub const AGENT_TAKES: Duration = Duration::from_mins(1);
/// How long everything else takes of which nothing is said.
pub const OTHER_TAKES: Duration = Duration::from_secs(10);
/// How deep an output is made from its schema.
const DEPTH: usize = 12;
/// Lines of the output of a command whose lines are asked for.
const LINES: usize = 3;

/// Says which steps of a stub are no steps of the plan.
///
/// # Errors
/// All of them, each with its place.
pub(super) fn check(plan: &Plan, stub: &Stub) -> Result<(), Diagnostics> {
    let mut found = Vec::new();
    check_steps(plan, &stub.steps, stub, &mut found);
    if found.is_empty() { Ok(()) } else { Err(Diagnostics(found)) }
}

fn check_steps(plan: &Plan, steps: &[StubbedStep], stub: &Stub, found: &mut Vec<Diagnostic>) {
    for stubbed in steps {
        let Some(step) = plan.step(&StepId(stubbed.id.value.clone())) else {
            let unknown = Diagnostic::error(codes::UNKNOWN_STEP, &stub.source, stubbed.id.span, format!("there is no step `{}`", stubbed.id.value));
            let near = nearest(&stubbed.id.value, plan.order().iter().map(|id| id.0.as_str()));
            found.push(match near {
                Some(near) => unknown.help(format!("did you mean `{near}`?")),
                None => unknown.help(format!("the steps are those of `{}`", plan.name)),
            });
            continue;
        };
        match step.inner() {
            Some(inner) => check_steps(inner, &stubbed.steps, stub, found),
            None => found.extend(stubbed.steps.iter().map(|inside| {
                Diagnostic::error(codes::UNKNOWN_STEP, &stub.source, inside.id.span, format!("step `{}` has no steps inside it", stubbed.id.value))
                    .help("only a loop and the call of a workflow have steps inside")
            })),
        }
    }
}

/// Returns what the stub says of a node the time with this number, from 0.
pub(super) fn said(stub: &Stub, node: &NodeId, number: usize) -> StubbedTime {
    let stubbed = find(&stub.steps, node);
    let of_step = stubbed.map(|step| step.gives.time(number)).unwrap_or_default();
    let item = stubbed.zip(node.item.as_ref()).and_then(|(step, key)| step.items.iter().find(|(of, _)| of.value == *key));
    let of_item = item.map(|(_, gives): &(_, StubbedNode)| gives.time(number)).unwrap_or_default();
    of_item.or(&of_step).or(&stub.defaults)
}

/// Returns the steps that lead to a node, the outermost first.
pub(super) fn path(node: &NodeId) -> Vec<String> {
    node.within.iter().map(|frame| &frame.step).chain([&node.step]).map(|step| step.0.clone()).collect()
}

/// Returns whether two nodes are of the same graph.
pub(super) fn beside(a: &NodeId, b: &NodeId) -> bool {
    a.within == b.within
}

fn find<'a>(steps: &'a [StubbedStep], node: &NodeId) -> Option<&'a StubbedStep> {
    let mut steps = steps;
    for frame in &node.within {
        steps = &steps.iter().find(|step| step.id.value == frame.step.0)?.steps;
    }
    steps.iter().find(|step| step.id.value == node.step.0)
}

/// Returns how long it takes, and whether its time ends it.
pub(super) fn takes(said: &StubbedTime, step: &PlannedStep) -> (Duration, bool) {
    let usual = if matches!(step.work, Work::Agent { .. }) { AGENT_TAKES } else { OTHER_TAKES };
    let takes = said.duration.unwrap_or(usual);
    (takes.min(step.timeout), takes > step.timeout)
}

/// Makes what a node gives. `landed` is the work that a merge or a choice is among.
pub(super) fn give(job: &Job, step: &PlannedStep, said: &StubbedTime, landed: &[NodeId]) -> Result<Success, Failure> {
    let what = render(job, step)?;
    let commit =
        step.writes.then(|| CommitId(format!("{}{}", crate::event::BlobId::of(job.node.to_string().as_bytes()).0.get(..38).unwrap_or_default(), "00")));
    let output = match &step.work {
        Work::Run { .. } => return command(step, said, &what).map(|output| Success { output, commit }),
        _ if ends_badly(said) => return Err(failed(said, Value::Null)),
        _ if said.output.is_some() => fitting(step, said.output.clone().unwrap_or_default())?,
        Work::Agent { .. } => match &step.output_schema {
            Some(schema) => fitting(step, example(schema, schema, "", 0))?,
            None => Value::String(format!("What `{}` would say.", job.node)),
        },
        Work::Merge(_) => {
            let landed: Vec<String> = landed.iter().map(ToString::to_string).collect();
            json!({"commit": commit.as_ref().map(|commit| commit.0.clone()), "landed": landed, "ejected": [], "conflicts": [], "report": "simulated"})
        }
        Work::Select(_) => {
            let winner = landed.first().map(ToString::to_string);
            json!({"winner": winner, "why": "simulated", "scores": {}, "commit": commit.as_ref().map(|commit| commit.0.clone())})
        }
        Work::Approve(_) => json!({"approved": true, "by": "stub", "note": ""}),
        Work::Workflow(_) | Work::Loop(_) => Value::Null,
    };
    Ok(Success { output, commit })
}

fn render(job: &Job, step: &PlannedStep) -> Result<String, Failure> {
    let (what, text) = match &step.work {
        Work::Agent { prompt, .. } => ("prompt", &prompt.value),
        Work::Run { command } => ("run", &command.value),
        Work::Approve(approve) => ("message", &approve.message.value),
        Work::Merge(_) | Work::Select(_) | Work::Workflow(_) | Work::Loop(_) => return Ok(String::new()),
    };
    prompts::render(text, &job.scope).map_err(|error| Failure::new(FailureKind::Template, format!("`{what}`: {error}")))
}

fn ends_badly(said: &StubbedTime) -> bool {
    said.status.is_some_and(|status| status != StubbedStatus::Succeeded) || said.error.is_some()
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
    let exit_code = said.exit_code.unwrap_or(i64::from(ends_badly(said)));
    let lines = || Value::from((1..=LINES).map(|number| format!("line-{number}")).collect::<Vec<_>>());
    let printed = said.stdout.clone();
    let output = match (&said.output, step.parse, &printed) {
        (Some(output), ..) => output.clone(),
        (None, Some(Parse::Lines), Some(printed)) => printed.lines().collect(),
        (None, Some(Parse::Lines), None) => lines(),
        (None, Some(Parse::Json), Some(printed)) => {
            serde_json::from_str(printed).map_err(|error| Failure::new(FailureKind::Schema, format!("the stub's `stdout` is not JSON: {error}")))?
        }
        (None, Some(Parse::Json), None) => step.output_schema.as_ref().map_or_else(|| json!({}), |schema| example(schema, schema, "", 0)),
        (None, None, printed) => Value::String(printed.clone().unwrap_or_default()),
    };
    let stdout = printed.unwrap_or_else(|| match &output {
        Value::Array(lines) if step.parse == Some(Parse::Lines) => lines.iter().filter_map(Value::as_str).map(|line| format!("{line}\n")).collect(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    });
    let mut value = json!({"stdout": stdout, "stderr": said.error.clone().unwrap_or_default(), "exit_code": exit_code, "output_tail": stdout});
    if exit_code != 0 {
        let shown: String = command.lines().next().unwrap_or_default().chars().take(200).collect();
        return Err(Failure { output: value, ..Failure::new(FailureKind::Command, format!("`{shown}` exited with {exit_code}")) });
    }
    value["output"] = fitting(step, output)?;
    Ok(value)
}

/// Holds an output against the step's schema.
fn fitting(step: &PlannedStep, output: Value) -> Result<Value, Failure> {
    let Some(schema) = &step.output_schema else { return Ok(output) };
    let misfit = match jsonschema::validator_for(schema) {
        Ok(validator) => validator.iter_errors(&output).next().map(|error| format!("{error} at `{}`", error.instance_path())),
        Err(error) => Some(error.to_string()),
    };
    match misfit {
        None => Ok(output),
        Some(why) => Err(Failure::new(FailureKind::Schema, format!("the simulated output does not fit its schema: {why}"))
            .hint(format!("give `{}` an `output` in the stub file", step.id))),
    }
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
