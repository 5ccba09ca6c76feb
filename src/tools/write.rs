//! Write: a whole file, new or in the place of another.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput, files, on_files, patch, place::Place, text_of, writes};
use crate::{message::ToolSpec, workflow::Access};
use async_trait::async_trait;
use serde_json::{Value, json};

pub(super) struct Write(ToolSpec);

impl Write {
    pub(super) fn new() -> Write {
        let description = "Writes a file as a whole; an existing one is replaced. Missing folders are made.\n\
             - To change a part of an existing file use Edit: it is safer and shorter.\n\
             - Read an existing file before you replace it. If it changed since you read it, the call is refused and you Read it again.\n\
             - Paths are absolute, or relative to your working directory, and lie in the workspace. Symbolic links are not written through."
            .to_owned();
        let input_schema = json!({
            "type": "object",
            "properties": {
                "file_path": {"type": "string", "description": "The file to write"},
                "content": {"type": "string", "description": "The whole content"}
            },
            "required": ["file_path", "content"],
            "additionalProperties": false
        });
        Write(ToolSpec { name: "Write".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Write {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn only_reads(&self) -> bool {
        false
    }

    fn effect(&self, input: &Value, cx: &ToolContext) -> Effect {
        text_of(input, "file_path").map_or_else(|_| Effect::Writes(Vec::new()), |path| writes(cx, path))
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        require_write(cx)?;
        let (path, content) = (text_of(input, "file_path")?.to_owned(), text_of(input, "content")?.to_owned());
        on_files(cx, move |cx| {
            let place = Place::writable(cx, &path)?;
            let original = files::read_if_there(&place)?;
            cx.seen.check(&place, original.as_deref())?;
            files::write(&place, content.as_bytes())?;
            cx.seen.note(&place.key(), content.as_bytes());
            Ok(answer(&place, original.as_deref(), &content))
        })
        .await
    }
}

fn answer(place: &Place, original: Option<&[u8]>, content: &str) -> ToolOutput {
    let lines = content.lines().count();
    let line = if lines == 1 { "line" } else { "lines" };
    let (kind, text) = match original {
        None => ("create", format!("Made `{}` with {lines} {line}.", place.path().display())),
        Some(_) => ("update", format!("Replaced `{}`; it has {lines} {line} now.", place.path().display())),
    };
    let hunks = original.map(|original| patch::hunks(original, content.as_bytes())).unwrap_or_default();
    let response =
        json!({"type": kind, "filePath": place.shown(), "content": content, "structuredPatch": hunks, "originalFile": original.and_then(patch::original)});
    ToolOutput { text, response, is_error: false, whole: None }
}

/// Refuses a writing call of an agent that may only read; the gate has refused it before.
pub(super) fn require_write(cx: &ToolContext) -> Result<(), ToolError> {
    match cx.access {
        Access::Write => Ok(()),
        Access::Read => Err(ToolError::Model("this agent may only read: describe the change in your answer instead".to_owned())),
    }
}
