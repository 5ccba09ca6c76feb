//! Items that the orchestrator adds, held against all that is known of them before one of them begins: the schema that the
//! step's own items have, what they may write beside the others, and what is left to pay for them.
use super::{accounts, steps};
use crate::{
    event::{Item, NodeId, Outcome},
    journal::{NodeState, RunState, Spent},
    plan::{self, Limits, PlannedStep},
    prompts::Scope,
    workflow::{self, OnExceed},
};
use globset::GlobBuilder;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Segments of two globs that are held against each other, in all.
const COMPARED: usize = 100_000;

/// Says what is wrong with new items of a step; `scope` is what templates of the step see without an item.
///
/// # Errors
/// Why none of them is taken, for the model.
pub(super) fn check(state: &RunState, step: &NodeId, planned: &PlannedStep, scope: &Scope, items: &[Item]) -> Result<(), String> {
    if let Some(schema) = &planned.item_schema {
        for item in items {
            plan::fits(schema, &item.value).map_err(|why| format!("item `{}` does not fit the schema of the step's items: {why}", item.key))?;
        }
    }
    scopes(state, step, planned, scope, items)?;
    budgets(state, step, items.len())
}

/// What an item may write runs under its scope, which must be one; and no other item whose work may come together with its own
/// may write the same, but one that it needs. What the step gives all items in common is its author's business.
fn scopes(state: &RunState, step: &NodeId, planned: &PlannedStep, scope: &Scope, items: &[Item]) -> Result<(), String> {
    if planned.scope.is_none() {
        return Ok(());
    }
    let globs = |item: &Item| {
        let globs =
            steps::globs(planned, &with_item(planned, scope, item)).map_err(|failure| format!("the scope of item `{}`: {}", item.key, failure.message))?;
        Ok::<_, String>(globs.unwrap_or_default().into_iter().filter(|glob| !is_common(planned, glob)).collect::<Vec<String>>())
    };
    let counts = |node: &NodeState| matches!(node.outcome, None | Some(Outcome::Succeeded(_)));
    let present: Vec<&Item> = state.items(step).filter(|(_, node)| counts(node)).filter_map(|(_, node)| node.item.as_deref()).collect();
    let needs: BTreeMap<&str, &[String]> = present.iter().copied().chain(items).map(|item| (item.key.as_str(), item.needs.as_slice())).collect();
    // Items that are there run under their own scopes, whatever may be wrong with those.
    let mut others: Vec<(&str, Vec<String>)> = present.into_iter().map(|item| (item.key.as_str(), globs(item).unwrap_or_default())).collect();
    let mut left = COMPARED;
    for item in items {
        let own = globs(item)?;
        let before = needed(&item.key, &needs);
        for (other, theirs) in &others {
            let after = || needed(other, &needs).contains(item.key.as_str());
            if before.contains(other) || after() {
                continue;
            }
            for (a, b) in own.iter().flat_map(|a| theirs.iter().map(move |b| (a, b))) {
                left = left.saturating_sub(a.len() + b.len());
                if left == 0 || overlap(a, b) {
                    return Err(format!(
                        "item `{}` may write `{a}` and item `{other}` may write `{b}`: give it a scope of its own, or let it need `{other}`",
                        item.key
                    ));
                }
            }
        }
        others.push((&item.key, own));
    }
    Ok(())
}

/// Returns whether a glob is one that the step has for every item.
fn is_common(step: &PlannedStep, glob: &str) -> bool {
    match step.scope.as_ref().map(|scope| &scope.value) {
        Some(workflow::Scope::Globs(globs)) => globs.iter().any(|common| common.value == glob),
        Some(workflow::Scope::Template(_)) | None => false,
    }
}

/// Returns what an item needs, directly and through others.
fn needed<'i>(key: &str, needs: &BTreeMap<&str, &'i [String]>) -> BTreeSet<&'i str> {
    let mut found = BTreeSet::new();
    let mut open: Vec<&str> = vec![key];
    while let Some(key) = open.pop() {
        for need in needs.get(key).copied().unwrap_or_default() {
            if found.insert(need.as_str()) {
                open.push(need);
            }
        }
    }
    found
}

/// What templates of a step see with an item.
fn with_item(step: &PlannedStep, scope: &Scope, item: &Item) -> Scope {
    let scope = scope.clone().with("matrix", Value::Object(item.matrix.clone()));
    match &step.for_each {
        Some(for_each) => scope.with(&for_each.name.value, item.value.clone()),
        None => scope,
    }
}

/// Each item asks its model at least once; where that is more than is left nothing could come of it.
fn budgets(state: &RunState, step: &NodeId, items: usize) -> Result<(), String> {
    if let Some(limit) = state.limit() {
        return Err(format!("nothing more is begun: {}", crate::agent::out_of_budget(limit).message));
    }
    let of_run = state.frame(&[]).filter(|frame| frame.plan.on_exceed != OnExceed::Ask).map(|frame| (frame.plan.limits, *state.spent()));
    for (limits, spent) in accounts::used(state, step).into_iter().chain(of_run) {
        if let Some(what) = exhausted(&limits, &spent, items) {
            return Err(format!("of the budget {what} are left, too little for {items} more"));
        }
    }
    Ok(())
}

/// Says what is left where that is not even a request for each item.
fn exhausted(limits: &Limits, spent: &Spent, items: usize) -> Option<String> {
    let turns = limits.turns.saturating_sub(spent.turns);
    let tokens = limits.tokens.saturating_sub(spent.usage.total());
    if (turns as usize) < items {
        return Some(format!("{turns} turns"));
    }
    if tokens < items as u64 {
        return Some(format!("{tokens} tokens"));
    }
    limits.usd.filter(|usd| *usd <= spent.usd).map(|_| "no dollars".to_owned())
}

/// Returns whether some path may be of both globs. What names a folder stands for all that is in it.
fn overlap(a: &str, b: &str) -> bool {
    let parts = |glob: &str| glob.split('/').filter(|part| !matches!(*part, "" | ".")).map(str::to_owned).chain(["**".to_owned()]).collect::<Vec<_>>();
    let (a, b) = (parts(a), parts(b));
    // Row by row: whether what is behind each place of both has a path in common.
    let mut below = vec![false; b.len() + 1];
    for i in (0..=a.len()).rev() {
        let mut row = vec![false; b.len() + 1];
        for j in (0..=b.len()).rev() {
            row[j] = match (a.get(i), b.get(j)) {
                (None, None) => true,
                (Some(one), None) => one == "**" && below[j],
                (None, Some(other)) => other == "**" && row[j + 1],
                (Some(one), Some(other)) if one == "**" || other == "**" => below[j] || row[j + 1] || below[j + 1],
                (Some(one), Some(other)) => below[j + 1] && meet(one, other),
            };
        }
        below = row;
    }
    below[0]
}

/// Returns whether some name may be of both patterns; where both are patterns, their ends are held against each other.
fn meet(a: &str, b: &str) -> bool {
    let special = |c: char| "*?[]{}\\".contains(c);
    let is = |pattern: &str, name: &str| GlobBuilder::new(pattern).literal_separator(true).build().is_ok_and(|glob| glob.compile_matcher().is_match(name));
    match (a.contains(special), b.contains(special)) {
        (false, false) => a == b,
        (true, false) => is(a, b),
        (false, true) => is(b, a),
        (true, true) => {
            let (head, tail) = (
                |text: &str| text.split(special).next().unwrap_or_default().to_owned(),
                |text: &str| text.rsplit(special).next().unwrap_or_default().to_owned(),
            );
            let agree = |one: String, other: String, ends: fn(&str, &str) -> bool| ends(&one, &other) || ends(&other, &one);
            agree(head(a), head(b), |one, other| one.starts_with(other)) && agree(tail(a), tail(b), |one, other| one.ends_with(other))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs_overlap_where_a_path_may_be_of_both() {
        for (a, b) in [
            ("src/**", "src/a.rs"),
            ("src", "src/a/b.rs"),
            ("**", "a.txt"),
            ("**/*.rs", "src/a.rs"),
            ("src/*.rs", "src/a*"),
            ("/src/a", "./src/a/b"),
            ("a/**/z", "a/b/c/z"),
            ("**/x/**", "a/*/c"),
            ("a{b,c}", "ab"),
        ] {
            assert!(overlap(a, b) && overlap(b, a), "{a} {b}");
        }
        for (a, b) in [("src/a", "src/b"), ("src/*.rs", "src/a.md"), ("src/**", "docs/**"), ("a*.rs", "b*.rs"), ("a.txt", "b.txt"), ("src/*.rs", "*.md")] {
            assert!(!overlap(a, b) && !overlap(b, a), "{a} {b}");
        }
    }

    #[test]
    fn what_is_left_must_be_a_request_for_each() {
        let limits = Limits { turns: 5, tokens: 100, usd: Some(1.0), ..Limits::SESSION };
        let spent = |turns: u32, usd: f64| Spent { turns, usd, ..Spent::default() };
        assert_eq!(exhausted(&limits, &spent(3, 0.5), 2), None);
        assert_eq!(exhausted(&limits, &spent(4, 0.5), 2), Some("1 turns".to_owned()));
        assert_eq!(exhausted(&limits, &spent(0, 1.0), 2), Some("no dollars".to_owned()));
    }
}
