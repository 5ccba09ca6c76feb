//! The items of a `for_each`: worked out from a template, checked, and joined into one result.
use super::scope;
use crate::{
    event::{Failure, FailureKind, Item, NodeId, Outcome, SkipCause, Success},
    journal::RunState,
    plan::{Combination, PlannedStep, combinations},
    prompts::{self, Scope},
    workflow::{ForEach, Join, Matrix},
};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

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
    check(&items, &BTreeSet::new()).map_err(|why| template(&why))?;
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
    values.into_iter().enumerate().map(|(at, value)| item(for_each, scope, at, value)).collect()
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

/// Makes an item of a value.
fn item(for_each: &ForEach, scope: &Scope, at: usize, value: Value) -> Result<Item, Failure> {
    // Only a key and needs look at the item.
    let inside = || scope.clone().with(&for_each.name.value, value.clone());
    let key = match (&for_each.key, &value) {
        (Some(key), _) => prompts::render(key, &inside()).map_err(|error| template(&error.to_string()))?,
        (None, Value::String(text)) => text.clone(),
        (None, Value::Number(number)) => number.to_string(),
        (None, _) => at.to_string(),
    };
    let needs = match &for_each.needs {
        None => Vec::new(),
        Some(needs) => match prompts::evaluate(needs, &inside()).map_err(|error| template(&error.to_string()))? {
            Value::Array(keys) => keys.iter().map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned)).collect(),
            Value::Null => Vec::new(),
            _ => return Err(template("`for_each.needs` did not give a list of keys")),
        },
    };
    if key.trim().is_empty() {
        return Err(template(&format!("the key of item {at} is empty")));
    }
    Ok(Item { key, value, matrix: Map::new(), needs })
}

/// Makes the items of values that the orchestrator adds, each with every combination where the step has a matrix.
pub(super) fn more(step: &PlannedStep, for_each: &ForEach, scope: &Scope, at: usize, values: &[Value]) -> Result<Vec<Item>, Failure> {
    let items = values.iter().enumerate().map(|(offset, value)| item(for_each, scope, at + offset, value.clone())).collect::<Result<Vec<_>, Failure>>()?;
    match &step.matrix {
        None => Ok(items),
        Some(matrix) => Ok(product(&items, &multiplied(matrix, scope)?)),
    }
}

/// Says what is wrong with new items beside the keys that are there.
pub(super) fn check(items: &[Item], present: &BTreeSet<&str>) -> Result<(), String> {
    let mut keys = present.clone();
    for item in items {
        if !keys.insert(&item.key) {
            return Err(format!("the key `{}` is taken", item.key));
        }
    }
    for item in items {
        if let Some(need) = item.needs.iter().find(|need| !keys.contains(need.as_str())) {
            return Err(format!("item `{}` needs `{need}`, which no item is called", item.key));
        }
    }
    cycle(items).map_or(Ok(()), |key| Err(format!("item `{key}` needs itself, directly or through others")))
}

/// Finds an item that is part of a cycle: what is left when all items without open needs are taken away again and again.
fn cycle(items: &[Item]) -> Option<&str> {
    if items.iter().all(|item| item.needs.is_empty()) {
        return None;
    }
    let own: BTreeSet<&str> = items.iter().map(|item| item.key.as_str()).collect();
    let mut unmet: BTreeMap<&str, usize> = BTreeMap::new();
    let mut waiting: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for item in items {
        let needs = item.needs.iter().filter(|need| own.contains(need.as_str()));
        unmet.insert(&item.key, needs.clone().count());
        needs.for_each(|need| waiting.entry(need).or_default().push(&item.key));
    }
    let mut free: Vec<&str> = unmet.iter().filter(|(_, count)| **count == 0).map(|(key, _)| *key).collect();
    while let Some(key) = free.pop() {
        unmet.remove(key);
        for dependent in waiting.get(key).into_iter().flatten() {
            if let Some(count) = unmet.get_mut(dependent) {
                *count -= 1;
                if *count == 0 {
                    free.push(dependent);
                }
            }
        }
    }
    unmet.into_keys().next()
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

#[cfg(test)]
mod tests {
    use super::*;

    fn items(list: &[(&str, &[&str])]) -> Vec<Item> {
        list.iter()
            .map(|(key, needs)| Item {
                key: (*key).to_owned(),
                value: Value::Null,
                matrix: Map::new(),
                needs: needs.iter().map(|need| (*need).to_owned()).collect(),
            })
            .collect()
    }

    #[test]
    fn wrong_items_are_named() {
        let none = BTreeSet::new();
        assert_eq!(check(&items(&[("a", &[]), ("b", &["a"])]), &none), Ok(()));
        assert_eq!(check(&items(&[("a", &[]), ("a", &[])]), &none), Err("the key `a` is taken".to_owned()));
        assert_eq!(check(&items(&[("a", &["x"])]), &none), Err("item `a` needs `x`, which no item is called".to_owned()));
        assert!(check(&items(&[("a", &["c"]), ("b", &["a"]), ("c", &["b"]), ("d", &[])]), &none).unwrap_err().contains("needs itself"));
        assert_eq!(check(&items(&[("b", &["a"])]), &BTreeSet::from(["a"])), Ok(()));
    }
}
