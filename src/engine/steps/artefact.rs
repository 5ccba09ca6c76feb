//! Outputs that are kept as files: `artifacts/NAME` in the run's folder, never in a checkout.
//!
//! The content is put among the run's blobs, then recorded, then written under its name in one piece. A process that dies
//! in between does the last step of the work again when it is resumed, and this with it.
use super::Task;
use crate::{
    agent::{Trouble, blocking},
    event::{BlobId, Event, Failure, FailureKind, NodeId, StepId, Success},
    plan::{AgentSpec, PlannedStep, Work},
    prompts,
};
use serde_json::Value;
use std::{
    fs, io,
    io::Write as _,
    path::{Path, PathBuf},
};

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
    let name = named(step, &task.node, &file.value, &task.render("output.file", &file.value)?)?;
    let is_new = task.services.artefacts.claim(&name, &task.node)?;
    Ok(Some((name, is_new)))
}

/// Keeps the output of a node that has succeeded.
pub(super) async fn keep(task: &Task, step: &PlannedStep, name: &str, success: &Success) -> Result<(), Trouble> {
    let content = task.services.secrets.text(&text_of(step, &success.output)).into_owned().into_bytes();
    let (blobs, bytes, kept) = (task.services.blobs.clone(), content.len() as u64, content.clone());
    let content_id = blocking(FailureKind::Environment, move || blobs.put(&kept)).await?;
    task.record(Event::ArtefactKept { node: task.node.clone(), name: name.to_owned(), content: content_id, bytes }).await?;
    let path = task.services.artefacts.folder.join(name);
    blocking(FailureKind::Environment, move || write(&path, &content).map_err(|error| format!("write the artefact {}: {error}", path.display()))).await
}

/// Returns the output as a file holds it: text as it is, everything else as JSON.
fn text_of(step: &PlannedStep, output: &Value) -> String {
    let value = if matches!(step.work, Work::Run { .. }) { &output["output"] } else { output };
    match value {
        Value::String(text) => text.clone(),
        other => format!("{other:#}\n"),
    }
}

/// Returns the name of a node's file: an item's own where all items would have the same.
fn named(step: &PlannedStep, node: &NodeId, template: &str, rendered: &str) -> Result<String, Failure> {
    let wrong = |why: &str| Failure::new(FailureKind::Template, format!("`output.file` is `{rendered}`, which {why}"));
    if rendered.starts_with('/') || rendered.split('/').any(|part| part == "..") {
        return Err(wrong("is no name of a file: it leads out of the run's artefacts"));
    }
    // Artefacts stand side by side: what a template put in, a path say, makes no folders.
    let rendered = &*if template.contains("{{") { rendered.replace('/', "-") } else { rendered.to_owned() };
    if rendered.is_empty() || rendered.contains('/') || rendered.starts_with('.') || rendered.len() > NAME_BYTES_MAX || rendered.chars().any(char::is_control) {
        return Err(wrong("is no name of a file: it is empty, hidden, too long, or has folders"));
    }
    let own = if step.is_fan() { node.item.as_ref() } else { None };
    if template.contains("{{") || (own.is_none() && node.within.is_empty()) {
        return Ok(rendered.to_owned());
    }
    // Rounds of a loop follow each other in one file; items and calls around it have one each.
    let alone = |step: &StepId, item: &Option<String>| item.as_ref().map_or_else(|| NodeId::step(step), |key| NodeId::item(step, key)).slug();
    let openers = node.within.iter().map(|frame| alone(&frame.step, &frame.item));
    let slug = alone(&node.step, &node.item);
    let slug = own.map(|_| slug.strip_prefix(&format!("{}.", node.step)).unwrap_or(&slug).to_owned());
    let slug = openers.chain(slug).collect::<Vec<_>>().join(".");
    Ok(match rendered.rsplit_once('.') {
        Some((stem, extension)) => format!("{stem}.{slug}.{extension}"),
        None => format!("{rendered}.{slug}"),
    })
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
        let written = files.iter().try_for_each(|(path, content)| write(path, content.as_bytes()));
        written.map_err(|error| format!("write what does not fit into the prompt: {error}"))
    })
    .await?;
    Ok(fitted.text)
}

/// Writes a file so that it is there whole or not at all.
fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(path);
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(content)?;
    file.persist(path)?;
    Ok(())
}
