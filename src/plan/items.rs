//! Items of a `for_each`: made of the values of a list, and held against each other. The same at load, where a list is written
//! out, and in the run.
use super::findings::Findings;
use crate::{
    event::Item,
    prompts::{self, Scope},
    source::codes,
    workflow::{ForEach, Step},
};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Judges items that are written out, where nothing but the items makes their keys and needs.
pub(super) fn judge(step: &Step, findings: &mut Findings<'_>) {
    let Some(for_each) = &step.for_each else { return };
    let Value::Array(values) = &for_each.items.value else { return };
    // One that holds a template is told as that.
    if values.iter().any(|value| value.as_str().is_some_and(|text| text.contains("{{"))) {
        return;
    }
    let reads_items_alone = |text: &str| {
        let readings = prompts::check(text);
        readings.is_ok_and(|readings| readings.iter().filter(|reading| reading.is_own()).all(|reading| reading.path.first() == Some(&for_each.name.value)))
    };
    if !for_each.key.iter().chain(&for_each.needs).all(|text| reads_items_alone(text)) {
        return;
    }
    let inside = |value: &Value| Scope::new().with(&for_each.name.value, value.clone());
    let renders = |value: &Value| for_each.key.iter().chain(&for_each.needs).all(|text| prompts::evaluate(text, &inside(value)).is_ok());
    // What a template reads that is not there is told where it stands.
    if !values.iter().all(renders) {
        return;
    }
    let made = values.iter().enumerate().map(|(at, value)| make(for_each, &Scope::new(), at, value.clone()));
    let checked = made.collect::<Result<Vec<Item>, String>>().and_then(|items| check(&items, &BTreeSet::new()));
    if let Err(why) = checked {
        let error = findings.error(codes::ITEMS, for_each.items.span, format!("`{}` cannot begin: {why}", step.id.value));
        let key = "`key` says what an item is known by, and `needs` which others it waits for, by their keys";
        findings.report(error.help(key));
    }
}

/// Makes an item of a value; `scope` is what templates of its step see without one.
///
/// # Errors
/// A template, or an empty key.
pub fn make(for_each: &ForEach, scope: &Scope, at: usize, value: Value) -> Result<Item, String> {
    // Only a key and needs look at the item.
    let inside = || scope.clone().with(&for_each.name.value, value.clone());
    let key = match (&for_each.key, &value) {
        (Some(key), _) => prompts::render(key, &inside()).map_err(|error| error.to_string())?,
        (None, Value::String(text)) => text.clone(),
        (None, Value::Number(number)) => number.to_string(),
        (None, _) => at.to_string(),
    };
    let needs = match &for_each.needs {
        None => Vec::new(),
        Some(needs) => match prompts::evaluate(needs, &inside()).map_err(|error| error.to_string())? {
            Value::Array(keys) => keys.iter().map(|key| key.as_str().map_or_else(|| key.to_string(), str::to_owned)).collect(),
            Value::Null => Vec::new(),
            _ => return Err("`for_each.needs` did not give a list of keys".to_owned()),
        },
    };
    if key.trim().is_empty() {
        return Err(format!("the key of item {at} is empty"));
    }
    Ok(Item { key, value, matrix: Map::new(), needs })
}

/// Says what is wrong with new items beside the keys that are there.
///
/// # Errors
/// A key that is taken, a need that no item is called, a cycle.
pub fn check(items: &[Item], present: &BTreeSet<&str>) -> Result<(), String> {
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
