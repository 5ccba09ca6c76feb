//! The verbs of steps: which keys go with each, and how each is decoded.
use super::{
    check,
    choices::{Approve, Judge, OnTimeout, Select, Show, Tie},
    decode_steps::steps,
    fields::Fields,
    file::text_or_file,
    keys,
    types::{ConflictThen, Loop, Merge, MergeMode, MergeOrder, RedThen, Step, Verb},
    yaml::{Node, Yaml},
};
use crate::source::{Diagnostic, Found, Span, Spanned, codes, nearest};

/// What goes with one verb.
pub(super) struct VerbKeys {
    /// The key that makes it this verb.
    pub(super) key: &'static str,
    /// What a step with it is, for messages.
    what: &'static str,
    /// The key that must stand beside it, with what its absence means.
    pub(super) beside: Option<(&'static str, &'static str)>,
    /// Keys that say nothing for it, in groups.
    silent: &'static [&'static [&'static str]],
}

/// Keys of an agent's session.
const SESSION: &[&str] = &["prompt", "model", "effort", "skills", "hooks"];
/// Keys of work in a workspace.
const WORK: &[&str] = &["cwd", "scope", "verify", "output", "idle_timeout", "cache"];

/// The key for where a step works; what joins or chooses work says by it how the trees that it checks are prepared.
const PLACE: &[&str] = &["workspace"];
/// What of it belongs to a tree that is only checked.
pub(super) const CHECKED: [&str; 4] = ["setup", "copy", "link", "env"];

/// Every verb. What joins or chooses work says the same of the joined tree by keys of its own, and what opens a frame says
/// it of the steps inside.
pub(super) static VERBS: [VerbKeys; 7] = [
    VerbKeys { key: "agent", what: "an agent", beside: Some(("prompt", "tells its agent nothing")), silent: &[&["with", "steps"]] },
    VerbKeys { key: "run", what: "a command", beside: None, silent: &[SESSION, &["with", "steps"]] },
    VerbKeys { key: "merge", what: "a merge", beside: None, silent: &[SESSION, WORK, &["for_each", "matrix", "with", "steps"]] },
    VerbKeys { key: "workflow", what: "a call of a workflow", beside: None, silent: &[SESSION, PLACE, WORK, &["env", "steps"]] },
    VerbKeys { key: "select", what: "a choice", beside: None, silent: &[SESSION, WORK, &["for_each", "matrix", "with", "steps"]] },
    VerbKeys {
        key: "approve",
        what: "a question to a person",
        beside: None,
        silent: &[SESSION, PLACE, WORK, &["env", "budget", "timeout", "retry", "with", "steps"]],
    },
    VerbKeys { key: "loop", what: "a loop", beside: Some(("steps", "repeats nothing")), silent: &[SESSION, PLACE, WORK, &["env", "with"]] },
];

impl VerbKeys {
    /// Returns the keys that say nothing for it.
    pub(super) fn says_nothing(&self) -> impl Iterator<Item = &'static str> {
        self.silent.iter().flat_map(|keys| keys.iter().copied())
    }

    /// Returns whether its `workspace` says only how trees are prepared that are checked.
    pub(super) fn only_checks(&self) -> bool {
        matches!(self.key, "merge" | "select")
    }
}

/// A resolver tries this often at one conflict where `on_conflict` does not say.
const RESOLVER_ATTEMPTS: u32 = 2;

/// Reads a step's verb, and reports keys that do not go with it. Of several the first counts; what is not there that must be is
/// told, and stands as a placeholder.
pub(super) fn verb(id: &Spanned<String>, fields: &Fields<'_>, node: &Node, found: &mut Found) -> Verb {
    fields.only_checked(&["prompt", "with", "steps"]);
    fields.only_checked(&VERBS.each_ref().map(|verb| verb.key));
    let nothing = || Spanned::new(String::new(), id.span);
    let Some(keys) = one_verb(id, fields, node, found) else { return Verb::Run { command: nothing() } };
    let is_only = VERBS.iter().filter(|verb| fields.entry(verb.key).is_some()).count() == 1;
    let body = if keys.key == "loop" { steps(fields, "steps", found) } else { Vec::new() };
    // One that is misspelt is told as an unknown key.
    let misspelt = |key: &str| fields.others().any(|entry| nearest(&entry.key, keys::STEP.keys.iter().map(|key| key.name)) == Some(key));
    if let Some((beside, otherwise)) = keys.beside
        && fields.node(beside).is_none()
        && is_only
        && !misspelt(beside)
    {
        let message = format!("step `{}` {otherwise}", id.value);
        found.report(Diagnostic::error(codes::MISSING_KEY, fields.source, id.span, message).help(format!("add `{beside}:`")));
    }
    for entry in keys.says_nothing().filter_map(|key| fields.entry(key)).filter(|_| is_only) {
        let message = format!("`{}` says nothing for a step that is {}", entry.key.value, keys.what);
        found.report(Diagnostic::error(codes::NOT_OF_THIS_VERB, fields.source, entry.key.span, message).help("take it out"));
    }
    if keys.only_checks() && is_only {
        only_checked_tree(fields, keys, found);
    }
    decode(keys.key, fields, body).unwrap_or_else(|| Verb::Run { command: nothing() })
}

/// Reports what `workspace` says of more than how a tree is prepared that is only checked.
fn only_checked_tree(fields: &Fields<'_>, keys: &VerbKeys, found: &mut Found) {
    let Some(workspace) = fields.entry("workspace") else { return };
    let wrong = |span, what: &str| {
        let message = format!("{what} says nothing for a step that is {}: its checks have trees of their own", keys.what);
        Diagnostic::error(codes::NOT_OF_THIS_VERB, fields.source, span, message).help(format!("of `workspace` it has {}", check::quoted(CHECKED.into_iter())))
    };
    match &workspace.value.value {
        Yaml::Map(entries) => {
            let others = entries.iter().filter(|entry| keys::WORKSPACE.key(&entry.key).is_some() && !CHECKED.contains(&entry.key.value.as_str()));
            others.for_each(|entry| found.report(wrong(entry.key.span, &format!("`workspace.{}`", entry.key.value))));
        }
        Yaml::Text(word) => found.report(wrong(workspace.value.span, &format!("`workspace: {word}`"))),
        // Told as a wrong type.
        Yaml::Null | Yaml::Bool(_) | Yaml::Number(_) | Yaml::List(_) => {}
    }
}

/// Finds the one verb that a step has; of several, which are told, the first.
fn one_verb(id: &Spanned<String>, fields: &Fields<'_>, node: &Node, found: &mut Found) -> Option<&'static VerbKeys> {
    let Yaml::Map(entries) = &node.value else { return None };
    let names = || VERBS.iter().map(|verb| verb.key);
    // The same verb twice is a duplicate key, and told as that: only the first of each counts.
    let mut verbs: Vec<(&Spanned<String>, &'static VerbKeys)> = VERBS.iter().filter_map(|verb| Some((&fields.entry(verb.key)?.key, verb))).collect();
    verbs.sort_by_key(|(key, _)| key.span);
    match verbs.as_slice() {
        [] => {
            // A verb that is misspelt is told as an unknown key, with what was meant.
            let misspelt = |key: &Spanned<String>| keys::STEP.key(key).is_none() && nearest(key, names()).is_some();
            if !entries.iter().any(|entry| misspelt(&entry.key)) {
                let message = format!("step `{}` does nothing: it has no verb", id.value);
                let help = if fields.entry("steps").is_some() {
                    "steps inside a step are the body of a `loop`: add `loop: { until: …, max: … }`".to_owned()
                } else {
                    format!("give it one of {}", check::quoted(names()))
                };
                found.report(Diagnostic::error(codes::VERBS, fields.source, id.span, message).help(help));
            }
            None
        }
        [(_, verb)] => Some(verb),
        [(first, _), rest @ ..] => {
            let message = format!("step `{}` has {} verbs: a step has exactly one", id.value, verbs.len());
            let several = Diagnostic::error(codes::VERBS, fields.source, first.span, message).label("one verb");
            found.report(rest.iter().fold(several, |several, (verb, _)| several.also(verb.span, "another")).help("make a step of each"));
            verbs.first().map(|(_, verb)| *verb)
        }
    }
}

fn decode(verb: &str, fields: &Fields<'_>, body: Vec<Step>) -> Option<Verb> {
    Some(match verb {
        "agent" => Verb::Agent { agent: fields.text("agent").unwrap_or_default(), prompt: text_or_file(fields.text("prompt").unwrap_or_default()) },
        "run" => Verb::Run { command: fields.text("run")? },
        "merge" => Verb::Merge(Box::new(merge(&*fields.object("merge", &keys::MERGE)?))),
        "workflow" => Verb::Workflow { workflow: fields.text("workflow").unwrap_or_default(), with: fields.values("with") },
        "select" => Verb::Select(Box::new(select(&*fields.object("select", &keys::SELECT)?))),
        "approve" => Verb::Approve(Box::new(approve(&*fields.object("approve", &keys::APPROVE)?))),
        _ => Verb::Loop(Box::new(repeat(&*fields.object("loop", &keys::LOOP)?, body))),
    })
}

fn merge(fields: &Fields<'_>) -> Merge {
    // Work that would go back to its author is put aside, as the warning says.
    const RED: [(&str, RedThen); 3] = [("eject", RedThen::Eject), ("return_to_author", RedThen::Eject), ("fail", RedThen::Fail)];
    fields.only_checked(&["batch_size"]);
    let conflict = fields.object("on_conflict", &keys::ON_CONFLICT);
    let conflict = conflict.as_deref().inspect(|conflict| conflict.only_checked(&["drivers"]));
    let red = fields.object("on_red", &keys::ON_RED);
    let red = red.as_deref().inspect(|red| red.only_checked(&["blame", "attempts"]));
    let order: Vec<MergeOrder> = match fields.word::<MergeOrder>("order") {
        Some(one) => vec![one.value],
        None => fields.words::<MergeOrder>("order").unwrap_or_default().into_iter().map(|word| word.value).collect(),
    };
    Merge {
        from: fields.texts("from"),
        mode: fields.word::<MergeMode>("mode").map(|word| word.value).unwrap_or_default(),
        order: if order.is_empty() { vec![MergeOrder::Needs] } else { order },
        verify: fields.texts("verify"),
        flaky_retries: fields.whole("flaky_retries").map_or(0, |retries| retries.value),
        resolver: conflict.and_then(|conflict| conflict.text("agent")),
        resolver_attempts: conflict.and_then(|conflict| conflict.whole("attempts")).map_or(RESOLVER_ATTEMPTS, |attempts| attempts.value),
        then: conflict.and_then(|conflict| conflict.word::<ConflictThen>("then")).map(|word| word.value).unwrap_or_default(),
        on_red: red.and_then(|red| red.one_of("then", &RED)).map(|word| word.value).unwrap_or_default(),
    }
}

fn select(fields: &Fields<'_>) -> Select {
    Select {
        from: fields.texts("from"),
        gates: fields.texts("gates"),
        judge: fields.object("judge", &keys::JUDGE).and_then(|judge| {
            let (votes, blind) = (judge.whole("votes").map_or(1, |votes| votes.value), judge.flag("blind"));
            let (rubric, criteria) = (judge.text("rubric").map(text_or_file), judge.texts("criteria"));
            Some(Judge { agent: judge.text("agent")?, votes, blind, rubric, criteria })
        }),
        tie: fields.word::<Tie>("tie").map(|word| word.value).unwrap_or_default(),
        keep_losers: fields.duration("keep_losers").map(|duration| duration.value),
    }
}

fn approve(fields: &Fields<'_>) -> Approve {
    let (show, on_timeout) = (fields.word::<Show>("show"), fields.word::<OnTimeout>("on_timeout"));
    let timeout = fields.duration("timeout");
    Approve { message: fields.text("message").unwrap_or_default(), show: show.map(|word| word.value), timeout, on_timeout }
}

fn repeat(fields: &Fields<'_>, steps: Vec<Step>) -> Loop {
    let until = fields.text("until").unwrap_or_else(|| Spanned::new("true".to_owned(), Span::default()));
    Loop { until, max: fields.whole("max").unwrap_or(Spanned::new(1, Span::default())), steps }
}
