//! The tool that reaches beyond a run.
use async_trait::async_trait;
use serde_json::{Value, json};
use spinney::{
    message::ToolSpec,
    tools::{Effect, Tool, ToolContext, ToolError, ToolOutput},
};
use std::{fs::OpenOptions, io::Write as _, path::PathBuf};

/// Its name.
pub(super) const SEND: &str = "Send";
/// How its lines begin.
pub(super) const SENT: &str = "sent by ";

/// Adds a line to a file that is no part of the run.
pub(super) struct Send {
    spec: ToolSpec,
    file: PathBuf,
}

impl Send {
    pub(super) fn new(file: PathBuf) -> Send {
        let input_schema = json!({"type": "object", "properties": {"from": {"type": "string"}}, "required": ["from"]});
        Send { spec: ToolSpec { name: SEND.to_owned(), description: "Sends.".to_owned(), input_schema }, file }
    }
}

#[async_trait]
impl Tool for Send {
    fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    fn effect(&self, _: &Value, _: &ToolContext) -> Effect {
        Effect::External
    }

    async fn call(&self, input: &Value, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        let mut file = OpenOptions::new().create(true).append(true).open(&self.file).map_err(ToolError::Fatal)?;
        writeln!(file, "{SENT}{}", input["from"].as_str().unwrap_or_default()).map_err(ToolError::Fatal)?;
        Ok(ToolOutput { text: "Sent.".to_owned(), ..ToolOutput::default() })
    }
}
