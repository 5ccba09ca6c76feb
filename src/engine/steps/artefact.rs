//! Outputs that are kept as files: `artifacts/NAME` in the run's folder, never in a checkout.
//!
//! The content is put among the run's blobs, then recorded, then written under its name in one piece. A process that dies
//! in between does the last step of the work again when it is resumed, and this with it.
use super::Task;
use crate::{
    agent::{Trouble, blocking},
    event::{BlobId, Event, Failure, FailureKind, Frame, NodeId, Success},
    journal::{FINALLY, ON_FAILURE, write_whole},
    plan::{AgentSpec, PlannedStep, Work},
    prompts,
};
use serde_json::Value;
use std::path::PathBuf;

/// The share of a model's window that a first message may take, in percent.
const PROMPT_PERCENT: u64 = 40;
/// What a token is counted as, in bytes; as estimates of conversations do.
const TOKEN_BYTES: usize = 3;
/// However small a window is, a prompt of this length is sent.
const PROMPT_BYTES_MIN: usize = 4096;
/// The longest name of a file, in bytes.
const NAME_BYTES_MAX: usize = 120;

/// Gives a node the name of the file that is to keep its output, where its step says so.
/// Returns it with whether the node did not have it before.
pub(super) fn claim(task: &Task, step: &PlannedStep) -> Result<Option<(String, bool)>, Trouble> {
    let Some(file) = &step.file else { return Ok(None) };
    let names = named(step, task, &file.value, &task.render("output.file", &file.value)?)?;
    let claimed = |name: String| task.services.artefacts.claim(&name, &task.node).map(|is_new| (name.clone(), is_new)).map_err(|owner| (name, owner));
    let claimed = claimed(names.wanted).or_else(|(name, owner)| {
        // What a template makes of another node's name is a mistake, but rounds differ by nothing that it need read.
        let is_other_round = owner.step == task.node.step && owner.item == task.node.item;
        match names.otherwise {
            Some(otherwise) if names.is_literal || is_other_round => claimed(otherwise),
            Some(_) | None => Err((name, owner)),
        }
    });
    claimed.map(Some).map_err(|(name, owner)| {
        let failure = Failure::new(FailureKind::Template, format!("`output.file` is `{name}`, which is that of {owner}"));
        failure.hint("give each its own name, with `{{ }}` in it where items differ").into()
    })
}

/// The names that a node's file may have.
struct Names {
    wanted: String,
    /// That which says all that the node stands inside of, where that is another one.
    otherwise: Option<String>,
    /// Whether no template says it.
    is_literal: bool,
}

/// Keeps the output of a node that has succeeded.
pub(super) async fn keep(task: &Task, step: &PlannedStep, name: &str, success: &Success) -> Result<(), Trouble> {
    let content = task.services.secrets.text(&text_of(step, &success.output)).into_owned().into_bytes();
    let (blobs, bytes, kept) = (task.services.blobs.clone(), content.len() as u64, content.clone());
    let content_id = blocking(FailureKind::Environment, move || blobs.put(&kept)).await?;
    task.record(Event::ArtefactKept { node: task.node.clone(), name: name.to_owned(), content: content_id, bytes }).await?;
    let path = task.services.artefacts.folder.join(name);
    blocking(FailureKind::Environment, move || write_whole(&path, &content).map_err(|error| format!("write the artefact {}: {error}", path.display()))).await
}

/// Returns the output as a file holds it: text as it is, everything else as JSON.
fn text_of(step: &PlannedStep, output: &Value) -> String {
    let value = if matches!(step.work, Work::Run { .. }) { &output["output"] } else { output };
    match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}\n"),
    }
}

/// Returns the names of a node's file: each item, round and call has one of its own. A step of an ending, which happens once,
/// has the name as it is written.
fn named(step: &PlannedStep, task: &Task, template: &str, rendered: &str) -> Result<Names, Failure> {
    let node = &task.node;
    let wrong = |why: &str| Failure::new(FailureKind::Template, format!("`output.file` is `{rendered}`, which {why}"));
    if rendered.starts_with('/') || rendered.split('/').any(|part| part == "..") {
        return Err(wrong("is no name of a file: it leads out of the run's artefacts"));
    }
    // Artefacts stand side by side: what a template put in, a path say, makes no folders.
    let rendered = &*if template.contains("{{") { rendered.replace('/', "-") } else { rendered.to_owned() };
    if rendered.is_empty() || rendered.contains('/') || rendered.starts_with('.') || rendered.len() > NAME_BYTES_MAX || rendered.chars().any(char::is_control) {
        return Err(wrong("is no name of a file: it is empty, hidden, too long, or has folders"));
    }
    let openers = || std::iter::successors(node.opener(), NodeId::opener).zip(node.within.iter().rev());
    let is_loop = |opener: &NodeId| task.loops.contains(opener);
    let alone = |node: &NodeId| node.item.as_ref().map_or_else(|| NodeId::step(&node.step), |key| NodeId::item(&node.step, key)).slug();
    let part = |(opener, frame): (NodeId, &Frame)| if is_loop(&opener) { format!("{}.{}", alone(&opener), frame.round) } else { alone(&opener) };
    let own = node.item.as_ref().filter(|_| step.is_fan()).map(|_| {
        let slug = alone(node);
        slug.strip_prefix(&format!("{}.", node.step)).unwrap_or(&slug).to_owned()
    });
    let name = |openers: Vec<String>, own: Option<&String>| {
        let more: String = openers.iter().rev().chain(own).map(|part| format!(".{part}")).collect();
        match rendered.rsplit_once('.') {
            Some((stem, extension)) => format!("{stem}{more}.{extension}"),
            None => format!("{rendered}{more}"),
        }
    };
    let is_literal = !template.contains("{{");
    let all = name(openers().map(part).collect(), own.as_ref());
    let wanted = if is_literal {
        let is_ending = |(_, frame): &(NodeId, &Frame)| [ON_FAILURE, FINALLY].contains(&frame.step.0.as_str());
        name(openers().filter(|around| !is_ending(around)).map(part).collect(), own.as_ref())
    } else {
        rendered.to_owned()
    };
    Ok(Names { otherwise: Some(all).filter(|all| *all != wanted), wanted, is_literal })
}

/// Renders an agent's prompt so that it leaves room for its work; the whole of what is cut is written beside the
/// artefacts, where the agent can read it.
pub(super) async fn fitted(task: &Task, agent: &AgentSpec, template: &str, fixed: usize) -> Result<String, Trouble> {
    let models = agent.model.choices.iter();
    let window = models.map(|model| task.services.model.window(model)).min().unwrap_or_default();
    let tokens = window * PROMPT_PERCENT / 100;
    let room = usize::try_from(tokens).unwrap_or(usize::MAX).saturating_mul(TOKEN_BYTES).saturating_sub(fixed).max(PROMPT_BYTES_MIN);
    let folder = task.services.artefacts.folder.join("inputs");
    let path = |name: &str| folder.join(format!("{}.txt", BlobId::of(format!("{} {name}", task.node).as_bytes()).0.split_at(16).0));
    let fitted = prompts::fit(template, &task.scope, room, &|name| format!("artefact {}", path(name).display()));
    let fitted = fitted.map_err(|error| Failure::new(FailureKind::Template, format!("`prompt`: {error}")))?;
    let files: Vec<(PathBuf, String)> =
        fitted.cut.into_iter().map(|whole| (path(&whole.name), task.services.secrets.text(&whole.content).into_owned())).collect();
    blocking(FailureKind::Environment, move || {
        let written = files.iter().try_for_each(|(path, content)| write_whole(path, content.as_bytes()));
        written.map_err(|error| format!("write what does not fit into the prompt: {error}"))
    })
    .await?;
    Ok(fitted.text)
}
