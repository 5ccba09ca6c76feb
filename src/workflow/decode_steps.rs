//! Decodes the steps of a checked file: the keys that all steps have in common.
use super::{
    fields::{Fields, text},
    file::{budget, retry},
    hooks::hooks,
    keys,
    types::{Base, Cache, ForEach, Join, Matrix, Need, On, OnItemFailure, Output, Parse, Scope, Step, StepPlace, Verify, Workspace, WorkspaceKind},
    verbs::verb,
    yaml::{Node, Yaml},
};
use crate::source::{Found, Spanned};
use serde_json::Value;
use std::collections::HashSet;

/// Reads a key that holds steps.
pub(super) fn steps(fields: &Fields<'_>, key: &'static str, found: &mut Found) -> Vec<Step> {
    let mut seen = HashSet::new();
    fields
        .map(key)
        // One that stands twice is told, and the first counts.
        .filter(|(id, _)| seen.insert(id.as_str()))
        .map(|(id, node)| step(id, &Fields::new(fields.source, node, &keys::STEP), node, found))
        .collect()
}

fn step(id: &Spanned<String>, fields: &Fields<'_>, node: &Node, found: &mut Found) -> Step {
    let verb = verb(id, fields, node, found);
    Step {
        id: id.clone(),
        place: StepPlace { map: node.span, needs: fields.node("needs").map(|node| node.span) },
        needs: needs(fields),
        condition: fields.text("if"),
        for_each: fields.object("for_each", &keys::FOR_EACH).and_then(|fields| for_each(&fields)),
        matrix: fields.object("matrix", &keys::MATRIX).map(|fields| matrix(&fields)),
        cache: fields.object("cache", &keys::CACHE).map(|fields| Cache { key: fields.texts("key"), inputs: fields.texts("inputs") }),
        workspace: workspace(fields),
        cwd: fields.text("cwd"),
        scope: scope(fields),
        verify: verify(fields),
        output: fields.object("output", &keys::OUTPUT).map(|fields| output(&fields)),
        budget: budget(fields),
        timeout: fields.duration("timeout").map(|duration| duration.value),
        idle_timeout: fields.duration("idle_timeout").map(|duration| duration.value),
        retry: retry(fields),
        allow_failure: fields.flag("allow_failure"),
        env: fields.templates("env"),
        skills: fields.texts("skills"),
        hooks: hooks(fields),
        model: fields.text("model"),
        effort: fields.string("effort"),
        verb,
    }
}

fn needs(fields: &Fields<'_>) -> Vec<Need> {
    let one = |node: &Node| match &node.value {
        Yaml::Map(_) => {
            let need = Fields::new(fields.source, node, &keys::NEED);
            let (step, on) = (need.text("step"), need.word::<On>("on"));
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
    let items = fields.node("items").map(|node| list_or_text(fields, node));
    let for_each = ForEach {
        name: fields.text("as").unwrap_or_else(|| Spanned::new("item".to_owned(), fields.key_span("items"))),
        key: fields.text("key"),
        needs: fields.text("needs"),
        max_parallel: count_or_text(fields, "max_parallel"),
        fail_fast: fields.flag("fail_fast"),
        join: fields.word::<Join>("join").map(|word| word.value).unwrap_or_default(),
        on_item_failure: on_item_failure(fields),
        items: items?,
    };
    Some(for_each)
}

fn on_item_failure(fields: &Fields<'_>) -> OnItemFailure {
    if let Some(map) = fields.object("on_item_failure", &keys::ON_ITEM_FAILURE) {
        return map.text("retry_with").map(OnItemFailure::RetryWith).unwrap_or_default();
    }
    match fields.string("on_item_failure").as_deref() {
        Some("stop") => OnItemFailure::Stop,
        _ => OnItemFailure::Continue,
    }
}

fn matrix(fields: &Fields<'_>) -> Matrix {
    Matrix {
        axes: fields.others().map(|entry| (entry.key.clone(), list_or_text(fields, &entry.value))).collect(),
        exclude: match fields.node("exclude") {
            Some(Spanned { value: Yaml::List(nodes), .. }) => nodes.iter().map(|node| Spanned::new(node.value.to_json(), node.span)).collect(),
            _ => Vec::new(),
        },
        max_parallel: count_or_text(fields, "max_parallel"),
        fail_fast: fields.flag("fail_fast"),
        join: fields.word::<Join>("join").map(|word| word.value).unwrap_or_default(),
    }
}

/// Reads a list as it stands, and anything else as its text.
fn list_or_text(fields: &Fields<'_>, node: &Node) -> Spanned<Value> {
    let value = if let Yaml::List(_) = node.value { node.value.to_json() } else { node.value.scalar(fields.source, node.span).into() };
    Spanned::new(value, node.span)
}

fn count_or_text(fields: &Fields<'_>, key: &'static str) -> Option<Spanned<Value>> {
    let node = fields.node(key)?;
    Some(Spanned::new(node.value.whole().map_or_else(|| node.value.to_json(), Value::from), node.span))
}

/// Reads the key `workspace`.
pub(super) fn workspace(fields: &Fields<'_>) -> Option<Spanned<Workspace>> {
    let span = fields.key_span("workspace");
    if let Some(kind) = fields.word::<WorkspaceKind>("workspace") {
        return Some(Spanned::new(Workspace { kind: kind.value, ..Workspace::default() }, kind.span));
    }
    let map = fields.object("workspace", &keys::WORKSPACE)?;
    // Every kind of isolation is met by what this version makes.
    map.only_checked(&["isolation"]);
    let workspace = Workspace {
        kind: map.word::<WorkspaceKind>("kind").map_or(WorkspaceKind::Worktree, |kind| kind.value),
        base: map.text("base").map(base).unwrap_or_default(),
        setup: map.texts("setup"),
        copy: map.texts("copy"),
        link: map.texts("link"),
        sparse: map.texts("sparse"),
        env: map.templates("env"),
    };
    Some(Spanned::new(workspace, span))
}

fn base(word: Spanned<String>) -> Base {
    match word.as_str() {
        "head" => Base::Head,
        "dirty" => Base::Dirty,
        _ => Base::Ref(word),
    }
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
    Some(Verify { run: verify.texts("run"), attempts: verify.whole("attempts") })
}

fn output(fields: &Fields<'_>) -> Output {
    Output { schema: fields.text("schema"), parse: fields.word::<Parse>("parse"), file: fields.text("file") }
}
