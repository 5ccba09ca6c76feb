//! The items of a `for_each`: worked out from a template, checked, and joined into one result.
use super::scope;
use crate::{
    event::{Failure, FailureKind, Item, NodeId, Outcome, SkipCause, Success},
    journal::RunState,
    plan::{Combination, PlannedStep, combinations, items},
    prompts::{self, Scope},
    workflow::{ForEach, Join, Matrix},
};
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// No `for_each` takes more items.
const ITEMS_MAX: usize = 100_000;

/// Works out the items of a step and how many may run at the same time: those of its list, the combinations of its matrix,
/// or each of the one with each of the other.
///
/// # Errors
/// A failure of the step: a template, a key that is taken, an unknown need, a cycle.
pub(super) fn expand(step: &PlannedStep, scope: &Scope) -> Result<(Vec<Item>, Option<u32>), Failure> {
    let listed = step.for_each.as_ref().map(|for_each| list(for_each, scope)).transpose()?;
    let combined = step.matrix.as_ref().map(|matrix| multiplied(matrix, scope)).transpose()?;
    let items = match (listed, combined) {
        (Some(items), None) => items,
        (None, Some(combinations)) => {
            combinations.into_iter().map(|made| Item { key: made.key, value: Value::Null, matrix: made.values, needs: Vec::new() }).collect()
        }
        (Some(items), Some(combinations)) => product(&items, &combinations),
        (None, None) => return Err(template("the step has neither items nor a matrix")),
    };
    if items.len() > ITEMS_MAX {
        return Err(template(&format!("the step has {} items, more than {ITEMS_MAX}", items.len())));
    }
    items::check(&items, &BTreeSet::new()).map_err(|why| template(&why))?;
    let written = [step.for_each.as_ref().and_then(|fan| fan.max_parallel.as_ref()), step.matrix.as_ref().and_then(|fan| fan.max_parallel.as_ref())];
    let mut most = None;
    for written in written.into_iter().flatten() {
        let given = whole(&value(&written.value, scope)?).filter(|most| *most > 0);
        let given = given.ok_or_else(|| template("`max_parallel` did not give a whole number above 0"))?;
        most = Some(most.map_or(given, |most: u32| most.min(given)));
    }
    Ok((items, most))
}

fn list(for_each: &ForEach, scope: &Scope) -> Result<Vec<Item>, Failure> {
    let Value::Array(values) = value(&for_each.items.value, scope)? else {
        return Err(template("`for_each.items` did not give a list"));
    };
    if values.len() > ITEMS_MAX {
        return Err(template(&format!("`for_each.items` gave {} items, more than {ITEMS_MAX}", values.len())));
    }
    values.into_iter().enumerate().map(|(at, value)| items::make(for_each, scope, at, value).map_err(|why| template(&why))).collect()
}

/// Multiplies a matrix out; an axis that has come to nothing leaves no combinations.
fn multiplied(matrix: &Matrix, scope: &Scope) -> Result<Vec<Combination>, Failure> {
    let mut axes = Vec::new();
    for (name, axis) in &matrix.axes {
        let Value::Array(values) = value(&axis.value, scope)? else {
            return Err(template(&format!("`matrix.{}` did not give a list", name.value)));
        };
        axes.push((name.value.clone(), values));
    }
    let excluded = matrix.exclude.iter().map(|written| prompts::evaluate_all(&written.value, scope)).collect::<Result<Vec<_>, _>>();
    let excluded = excluded.map_err(|error| template(&format!("`matrix.exclude`: {error}")))?;
    if axes.iter().any(|(_, values)| values.is_empty()) {
        return Ok(Vec::new());
    }
    match combinations(&axes, &excluded).map_err(|error| template(&format!("failed to {error}")))? {
        left if left.is_empty() => Err(template("`matrix.exclude` leaves no combination")),
        left => Ok(left),
    }
}

/// Makes every item with every combination. An item that needs others needs them in every combination.
fn product(items: &[Item], combinations: &[Combination]) -> Vec<Item> {
    let key = |key: &str, combination: &Combination| format!("{key},{}", combination.key);
    let one = |item: &Item, combination: &Combination| Item {
        key: key(&item.key, combination),
        value: item.value.clone(),
        matrix: combination.values.clone(),
        needs: item.needs.iter().flat_map(|need| combinations.iter().map(move |combination| key(need, combination))).collect(),
    };
    items.iter().flat_map(|item| combinations.iter().map(|combination| one(item, combination)).collect::<Vec<_>>()).collect()
}

fn whole(value: &Value) -> Option<u32> {
    let number = value.as_u64().or_else(|| value.as_str().and_then(|text| text.trim().parse().ok()))?;
    u32::try_from(number).ok()
}

fn value(written: &Value, scope: &Scope) -> Result<Value, Failure> {
    match written {
        Value::String(text) => prompts::evaluate(text, scope).map_err(|error| template(&error.to_string())),
        other => Ok(other.clone()),
    }
}

/// Makes the items of values that the orchestrator adds, each with every combination where the step has a matrix.
pub(super) fn more(step: &PlannedStep, for_each: &ForEach, scope: &Scope, at: usize, values: &[Value]) -> Result<Vec<Item>, Failure> {
    let one = |(offset, value): (usize, &Value)| items::make(for_each, scope, at + offset, value.clone()).map_err(|why| template(&why));
    let items = values.iter().enumerate().map(one).collect::<Result<Vec<_>, Failure>>()?;
    match &step.matrix {
        None => Ok(items),
        Some(matrix) => Ok(product(&items, &multiplied(matrix, scope)?)),
    }
}

/// What is said of an item that was skipped.
const SKIPPED: &str = "it was skipped";

/// Makes one outcome of a step's items.
pub(super) fn join(state: &RunState, step: &NodeId, join: Join) -> Outcome {
    let results: Vec<Value> = state.items(step).map(|(_, item)| scope::item_result(item)).collect();
    let bad: Vec<(NodeId, String)> = state
        .items(step)
        .filter_map(|(id, item)| match &item.outcome {
            Some(Outcome::Failed(failure)) => Some((id, failure.message.clone())),
            Some(Outcome::Skipped(cause)) if !was_ended(state, cause) => Some((id, SKIPPED.to_owned())),
            Some(Outcome::Succeeded(_) | Outcome::Skipped(_)) | None => None,
        })
        .collect();
    let all = results.len();
    let output = scope::object([("results", Value::Array(results)), ("failed", json!(bad.len()))]);
    match (join, bad.first()) {
        (Join::All, Some((id, why))) => {
            let more = if bad.len() > 1 { format!(" ({})", count(&bad, all)) } else { String::new() };
            let kind = state.outcome(id).and_then(Outcome::failure).map_or(FailureKind::Aborted, |failure| failure.kind);
            Failure { output, ..Failure::new(kind, format!("item `{}`: {why}{more}", id.item.as_deref().unwrap_or_default())) }.into()
        }
        (Join::All | Join::AllDone, _) => Outcome::Succeeded(Success { output: output.into(), commit: None }),
    }
}

/// Counts the items that failed and those that were skipped.
fn count(bad: &[(NodeId, String)], all: usize) -> String {
    let skipped = bad.iter().filter(|(_, why)| why == SKIPPED).count();
    match (bad.len() - skipped, skipped) {
        (failed, 0) => format!("{failed} of {all} items failed"),
        (0, skipped) => format!("{skipped} of {all} items were skipped"),
        (failed, skipped) => format!("of {all} items {failed} failed and {skipped} {} skipped", if skipped == 1 { "was" } else { "were" }),
    }
}

/// Whether an item was skipped because somebody, or the end of the run's budget, ended it or an item that it needs.
fn was_ended(state: &RunState, cause: &SkipCause) -> bool {
    let mut cause = cause;
    while let SkipCause::Upstream(node) = cause {
        // Needs have no cycles, so that this ends.
        let Some(Outcome::Skipped(above)) = state.outcome(node) else { return false };
        cause = above;
    }
    matches!(cause, SkipCause::Stopped | SkipCause::Sibling(_) | SkipCause::RunEnding | SkipCause::Budget(_))
}

fn template(message: &str) -> Failure {
    Failure::new(FailureKind::Template, message)
}
