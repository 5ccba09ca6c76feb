//! What templates see, made from the state of the run.
use super::{frames, steps::NOT_BEGUN};
use crate::{
    event::{Frame, NodeId, Outcome, StepId},
    git,
    journal::{NodeState, RunState},
    plan::{PlannedStep, Reads, Work},
    prompts::{self, Scope},
    workflow::Parse,
};
use serde_json::{Map, Value, json};
use std::collections::BTreeSet;

/// Makes the scope of a node, as far as it is read: inputs, the run, the results of steps, the item and the combination,
/// the iteration, and those of what it stands inside of.
pub(super) fn scope(state: &RunState, node: &NodeId, reads: &Reads) -> Scope {
    let mut scope = Scope::new();
    if reads.names.is_empty() {
        return scope;
    }
    let read = |name: &str| reads.names.contains(name);
    if read("inputs") {
        scope = scope.with("inputs", inputs(state, &node.within));
    }
    if read("run") {
        scope = scope.with("run", run(state, &node.within));
    }
    if read("steps") {
        scope = scope.with("steps", results(state, node, &reads.steps));
    }
    let mut around = Vec::new();
    let mut at = Some(node.owner());
    while let Some(node) = at {
        at = if is_boundary(state, &node.within) { None } else { node.opener() };
        around.push(node);
    }
    // The innermost last: its names hide those around it.
    for node in around.iter().rev() {
        if let Some(last) = node.within.last().filter(|_| read("loop"))
            && node.opener().and_then(|opener| state.step(&opener)).is_some_and(|step| matches!(step.work, Work::Loop(_)))
        {
            scope = scope.with("loop", json!({"iteration": last.round}));
        }
        let (Some(step), Some(item)) = (state.step(node), state.node(node).and_then(|state| state.item.as_ref())) else { continue };
        if let Some(for_each) = step.for_each.as_ref().filter(|for_each| read(&for_each.name.value)) {
            scope = scope.with(&for_each.name.value, item.value.clone());
        }
        if step.matrix.is_some() && read("matrix") {
            scope = scope.with("matrix", Value::Object(item.matrix.clone()));
        }
    }
    if let Some(step) = state.step(node).filter(|step| !step.env.is_empty() && read("env")) {
        let env = env(step, &scope);
        scope = scope.with("env", env);
    }
    scope
}

/// The environment that a step gives its commands, without what holds a secret. What cannot be rendered is told where
/// the environment is made.
fn env(step: &PlannedStep, scope: &Scope) -> Value {
    let secret = |text: &str| prompts::check(text).is_ok_and(|read| read.iter().any(|reading| reading.path.first().is_some_and(|root| root == "secrets")));
    let open = step.env.iter().filter(|(_, text)| !secret(&text.value));
    Value::Object(open.filter_map(|(name, text)| Some((name.clone(), Value::String(prompts::render(&text.value, scope).ok()?)))).collect())
}

/// Returns whether a frame is a workflow of its own: what stands inside it sees nothing of what is around it.
fn is_boundary(state: &RunState, within: &[Frame]) -> bool {
    within.is_empty() || state.frame(within).is_none_or(|frame| frame.inputs.is_some())
}

/// Returns the frames whose steps a node sees, the innermost first.
fn sight<'a>(state: &'a RunState, within: &'a [Frame]) -> impl Iterator<Item = &'a [Frame]> {
    let mut next = Some(within);
    std::iter::from_fn(move || {
        let within = next?;
        next = if is_boundary(state, within) { None } else { within.split_last().map(|(_, outer)| outer) };
        Some(within)
    })
}

fn inputs(state: &RunState, within: &[Frame]) -> Value {
    let own = sight(state, within).find_map(|within| state.frame(within)?.inputs.clone());
    own.or_else(|| state.started().map(|started| started.inputs.clone())).map_or_else(|| json!({}), Value::Object)
}

fn run(state: &RunState, within: &[Frame]) -> Value {
    let Some(started) = state.started() else { return json!({}) };
    json!({
        "id": started.run.0,
        "branch": git::short_name(&state.branch().map_or_else(|| git::branch_of(&started.run), |branch| branch.name.clone())),
        "head": started.base.0,
        "base": started.base.0,
        "failure": failure(state, within),
    })
}

/// What failed first in the workflow that something stands in.
fn failure(state: &RunState, within: &[Frame]) -> Value {
    let workflow = sight(state, within).last().unwrap_or_default();
    let failed = state.frame(workflow).and_then(|frame| frames::first_failure(state, workflow, frame));
    match (failed, state.limit()) {
        _ if state.cancelled().is_some() => json!(state.cancelled().map(|by| frames::called_off(by).message)),
        (Some(failure), _) => json!(failure.message),
        (None, Some(limit)) => json!(crate::agent::out_of_budget(limit).message),
        (None, None) => Value::Null,
    }
}

fn results(state: &RunState, reader: &NodeId, steps: &BTreeSet<StepId>) -> Value {
    let mut map = Map::new();
    for id in steps {
        let seen = sight(state, &reader.within).map(|within| NodeId::inside(within, id)).find(|node| state.step(node).is_some());
        if let Some(node) = seen {
            map.insert(id.0.clone(), result(state, &node));
        }
    }
    Value::Object(map)
}

/// What templates see of a step: what it has not left is null. What a command has said is empty where it failed before it began.
pub(super) fn result(state: &RunState, id: &NodeId) -> Value {
    let outcome = state.outcome(id);
    let mut value = json!({"status": outcome.map_or("waiting", Outcome::word)});
    let (output, commit) = match outcome {
        Some(Outcome::Succeeded(success)) => ((*success.output).clone(), success.commit.as_ref()),
        Some(Outcome::Failed(failure)) => (failure.output.clone(), None),
        Some(Outcome::Skipped(_)) | None => (Value::Null, None),
    };
    let step = state.step(id);
    if commit.is_some() || step.is_some_and(|step| step.writes) {
        value["commit"] = json!(commit.map(|commit| &commit.0));
    }
    if step.is_some_and(PlannedStep::is_fan) {
        value["output"] = output;
        value["results"] = Value::Array(state.items(id).map(|(_, item)| item_result(item)).collect());
        return value;
    }
    if !step.is_some_and(|step| matches!(step.work, Work::Run { .. })) {
        value["output"] = output;
        return value;
    }
    let failed = matches!(outcome, Some(Outcome::Failed(_)));
    for name in ["stdout", "stderr", "output_tail"] {
        value[name] = if failed { json!("") } else { Value::Null };
    }
    value["exit_code"] = if failed { NOT_BEGUN.into() } else { Value::Null };
    let has_no_lines = failed && step.is_some_and(|step| step.parse == Some(Parse::Lines) && step.output_schema.is_none());
    value["output"] = if has_no_lines { json!([]) } else { Value::Null };
    if let Value::Object(fields) = output {
        value.as_object_mut().into_iter().for_each(|value| value.extend(fields.clone()));
    }
    value
}

/// One entry of `results`: `{key, ok, status, output, commit, error}`.
pub(super) fn item_result(item: &NodeState) -> Value {
    let key = item.item.as_ref().map(|item| item.key.as_str()).unwrap_or_default();
    let success = item.outcome.as_ref().and_then(Outcome::success);
    let failure = item.outcome.as_ref().and_then(Outcome::failure);
    let output = success.map(|success| &*success.output).or(failure.map(|failure| &failure.output));
    object([
        ("key", key.into()),
        ("ok", success.is_some().into()),
        ("status", item.outcome.as_ref().map_or("waiting", Outcome::word).into()),
        ("output", output.cloned().unwrap_or_default()),
        ("commit", success.and_then(|success| success.commit.as_ref()).map(|commit| commit.0.as_str()).into()),
        ("error", failure.map(|failure| failure.message.as_str()).into()),
    ])
}

/// Makes an object of values as they are; `json!` would write each of them anew.
pub(super) fn object<const N: usize>(fields: [(&str, Value); N]) -> Value {
    Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
}
