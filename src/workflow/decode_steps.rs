//! Decodes the steps of a checked file, and tells what their verbs have to do with their other keys.
use super::{
    check,
    fields::{Fields, text},
    file::{budget, retry, text_or_file},
    keys::{self, Shape},
    types::{ConflictThen, ForEach, Join, Merge, Need, On, Output, Parse, Scope, Step, Verb, Verify, Workspace, WorkspaceKind},
    yaml::{Node, Yaml},
};
use crate::source::{Diagnostic, Spanned, codes, nearest};
use serde_json::Value;

/// The verbs of the language; those that the table of keys calls later are reported there.
const VERBS: [&str; 7] = ["agent", "run", "merge", "workflow", "select", "approve", "loop"];
/// Keys that say nothing for a command.
const NOT_FOR_RUN: [&str; 5] = ["prompt", "model", "effort", "skills", "hooks"];
/// Keys that say nothing for a merge: its own keys say the same of the joined tree.
const NOT_FOR_MERGE: [&str; 11] = ["prompt", "model", "effort", "skills", "hooks", "for_each", "workspace", "cwd", "scope", "verify", "output"];
/// Work is tried this often where `verify` does not say.
const VERIFY_ATTEMPTS: u32 = 3;
/// A resolver tries this often at one conflict where `on_conflict` does not say.
const RESOLVER_ATTEMPTS: u32 = 2;

/// Reads the key `steps`.
pub(super) fn steps(file: &Fields<'_>, found: &mut Vec<Diagnostic>) -> Vec<Step> {
    file.map("steps")
        .filter(|(_, node)| matches!(node.value, Yaml::Map(_)))
        .filter_map(|(id, node)| step(id, &Fields::new(file.source, node, &keys::STEP), node, found))
        .collect()
}

fn step(id: &Spanned<String>, fields: &Fields<'_>, node: &Node, found: &mut Vec<Diagnostic>) -> Option<Step> {
    let verb = verb(id, fields, node, found);
    let step = Step {
        id: id.clone(),
        needs: needs(fields),
        condition: fields.text("if"),
        for_each: fields.object("for_each", &keys::FOR_EACH).and_then(|fields| for_each(&fields)),
        matrix: None,
        cache: None,
        workspace: workspace(fields),
        cwd: fields.text("cwd"),
        scope: scope(fields),
        verify: verify(fields),
        output: fields.object("output", &keys::OUTPUT).map(|fields| output(&fields)),
        budget: budget(fields),
        timeout: fields.duration("timeout").map(|duration| duration.value),
        idle_timeout: None,
        retry: retry(fields),
        allow_failure: fields.flag("allow_failure"),
        env: fields.templates("env"),
        skills: fields.texts("skills"),
        hooks: fields.texts("hooks"),
        model: fields.text("model"),
        effort: fields.string("effort"),
        verb: verb?,
    };
    Some(step)
}

/// Reads a step's verb, and reports keys that do not go with it.
fn verb(id: &Spanned<String>, fields: &Fields<'_>, node: &Node, found: &mut Vec<Diagnostic>) -> Option<Verb> {
    let (agent, prompt) = (fields.text("agent"), fields.text("prompt"));
    let (command, _) = (fields.text("run"), fields.node("merge"));
    let Yaml::Map(entries) = &node.value else { return None };
    let mut verbs: Vec<&Spanned<String>> = entries.iter().map(|entry| &entry.key).filter(|key| VERBS.contains(&key.as_str())).collect();
    // The same verb twice is a duplicate key, and told as that.
    verbs.sort_by_key(|verb| (&verb.value, verb.span));
    verbs.dedup();
    verbs.sort_by_key(|verb| verb.span);
    let buildable = || VERBS.iter().copied().filter(|verb| keys::STEP.key(verb).is_some_and(|key| !matches!(key.shape, Shape::Later)));
    match verbs.as_slice() {
        [] => {
            // A verb that is misspelt is told as an unknown key, with what was meant.
            let misspelt = |key: &Spanned<String>| keys::STEP.key(key).is_none() && nearest(key, VERBS).is_some();
            if !entries.iter().any(|entry| misspelt(&entry.key)) {
                let message = format!("step `{}` does nothing: it has no verb", id.value);
                let help = format!("give it one of {}", check::quoted(buildable()));
                found.push(Diagnostic::error(codes::VERBS, fields.source, id.span, message).help(help));
            }
            return None;
        }
        [_] => {}
        [first, rest @ ..] => {
            let message = format!("step `{}` has {} verbs: a step has exactly one", id.value, verbs.len());
            let several = Diagnostic::error(codes::VERBS, fields.source, first.span, message).label("one verb");
            found.push(rest.iter().fold(several, |several, verb| several.also(verb.span, "another")).help("make a step of each"));
            return None;
        }
    }
    if let Some(agent) = agent {
        let Some(prompt) = prompt else {
            if fields.node("prompt").is_none() {
                let message = format!("step `{}` tells its agent nothing", id.value);
                found.push(Diagnostic::error(codes::MISSING_KEY, fields.source, id.span, message).help("add `prompt:`"));
            }
            return None;
        };
        reject(fields, &[], "an agent", found);
        return Some(Verb::Agent { agent, prompt: text_or_file(prompt) });
    }
    if let Some(command) = command {
        reject(fields, &NOT_FOR_RUN, "a command", found);
        return Some(Verb::Run { command });
    }
    let merging = fields.object("merge", &keys::MERGE)?;
    reject(fields, &NOT_FOR_MERGE, "a merge", found);
    Some(Verb::Merge(Box::new(merge(&merging))))
}

fn reject(fields: &Fields<'_>, keys: &[&'static str], what: &str, found: &mut Vec<Diagnostic>) {
    for entry in keys.iter().filter_map(|key| fields.entry(key)) {
        let message = format!("`{}` says nothing for a step that is {what}", entry.key.value);
        found.push(Diagnostic::error(codes::NOT_OF_THIS_VERB, fields.source, entry.key.span, message).help("take it out"));
    }
}

fn needs(fields: &Fields<'_>) -> Vec<Need> {
    const ON: [(&str, On); 3] = [("success", On::Success), ("failure", On::Failure), ("done", On::Done)];
    let one = |node: &Node| match &node.value {
        Yaml::Map(_) => {
            let need = Fields::new(fields.source, node, &keys::NEED);
            let (step, on) = (need.text("step"), need.word("on", &ON));
            Some(Need { step: step?, on: on.map(|on| on.value).unwrap_or_default() })
        }
        _ => Some(Need { step: text(fields.source, node)?, on: On::Success }),
    };
    match fields.node("needs") {
        Some(Spanned { value: Yaml::List(nodes), .. }) => nodes.iter().filter_map(one).collect(),
        Some(node) => one(node).into_iter().collect(),
        None => Vec::new(),
    }
}

fn for_each(fields: &Fields<'_>) -> Option<ForEach> {
    const JOIN: [(&str, Join); 2] = [("all", Join::All), ("all_done", Join::AllDone)];
    let items = fields.node("items").map(|node| {
        let value = if let Yaml::List(_) = node.value { node.value.to_json() } else { node.value.scalar(fields.source, node.span).into() };
        Spanned::new(value, node.span)
    });
    let max_parallel = fields.node("max_parallel").map(|node| match node.value.whole() {
        Some(number) => Spanned::new(Value::from(number), node.span),
        None => Spanned::new(node.value.to_json(), node.span),
    });
    let for_each = ForEach {
        name: fields.text("as").unwrap_or_else(|| Spanned::new("item".to_owned(), fields.key_span("items"))),
        key: fields.text("key"),
        needs: fields.text("needs"),
        max_parallel,
        fail_fast: fields.flag("fail_fast"),
        join: fields.word("join", &JOIN).map(|word| word.value).unwrap_or_default(),
        on_item_failure: super::types::OnItemFailure::Continue,
        items: items?,
    };
    Some(for_each)
}

fn workspace(fields: &Fields<'_>) -> Option<Spanned<Workspace>> {
    const KIND: [(&str, WorkspaceKind); 3] = [("worktree", WorkspaceKind::Worktree), ("shared", WorkspaceKind::Shared), ("none", WorkspaceKind::None)];
    let span = fields.key_span("workspace");
    if let Some(kind) = fields.word("workspace", &KIND) {
        return Some(Spanned::new(Workspace { kind: kind.value, ..Workspace::default() }, kind.span));
    }
    let map = fields.object("workspace", &keys::WORKSPACE)?;
    // Both kinds of isolation are met by what this version makes; the other bases are of later versions.
    map.only_checked(&["isolation", "base"]);
    let kind = map.word("kind", &KIND).map_or(WorkspaceKind::Worktree, |kind| kind.value);
    Some(Spanned::new(Workspace { kind, setup: map.texts("setup"), ..Workspace::default() }, span))
}

fn scope(fields: &Fields<'_>) -> Option<Spanned<Scope>> {
    let node = fields.node("scope")?;
    if let Yaml::List(_) = node.value {
        return Some(Spanned::new(Scope::Globs(fields.texts("scope")), node.span));
    }
    let text = text(fields.source, node)?;
    // One glob is a list of one; an expression gives the list itself.
    let scope = if text.value.trim_start().starts_with("{{") { Scope::Template(text.value) } else { Scope::Globs(vec![text]) };
    Some(Spanned::new(scope, node.span))
}

fn verify(fields: &Fields<'_>) -> Option<Verify> {
    let verify = fields.object("verify", &keys::VERIFY)?;
    Some(Verify { run: verify.texts("run"), attempts: verify.whole("attempts").map_or(VERIFY_ATTEMPTS, |attempts| attempts.value) })
}

fn output(fields: &Fields<'_>) -> Output {
    const PARSE: [(&str, Parse); 2] = [("lines", Parse::Lines), ("json", Parse::Json)];
    Output { schema: fields.text("schema"), parse: fields.word("parse", &PARSE).map(|word| word.value), file: None }
}

fn merge(fields: &Fields<'_>) -> Merge {
    const THEN: [(&str, ConflictThen); 2] = [("eject", ConflictThen::Eject), ("fail", ConflictThen::Fail)];
    fields.only_checked(&["mode"]);
    let conflict = fields.object("on_conflict", &keys::ON_CONFLICT);
    let conflict = conflict.as_deref();
    Merge {
        from: fields.texts("from"),
        verify: fields.texts("verify"),
        flaky_retries: fields.whole("flaky_retries").map_or(0, |retries| retries.value),
        resolver: conflict.and_then(|conflict| conflict.text("agent")),
        resolver_attempts: conflict.and_then(|conflict| conflict.whole("attempts")).map_or(RESOLVER_ATTEMPTS, |attempts| attempts.value),
        then: conflict.and_then(|conflict| conflict.word("then", &THEN)).map(|word| word.value).unwrap_or_default(),
    }
}
