//! `StructuredOutput`: gives the final answer of a session whose answer must fit a schema.
//!
//! It takes any object: whether the answer fits is judged where all answers are, whose word on what is wrong is counted.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput};
use crate::message::{SUBMIT, ToolSpec};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The tool.
pub struct Submit(ToolSpec);

impl Submit {
    /// Makes the tool. It is declared to models with the schema of the answer, by whoever knows that.
    pub fn new() -> Submit {
        Submit(ToolSpec { name: SUBMIT.to_owned(), description: String::new(), input_schema: json!({"type": "object"}) })
    }
}

impl Default for Submit {
    fn default() -> Submit {
        Submit::new()
    }
}

#[async_trait]
impl Tool for Submit {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _: &Value, _: &ToolContext) -> Effect {
        Effect::Recorded
    }

    async fn call(&self, input: &Value, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput { text: "Your answer was taken.".to_owned(), response: input.clone(), ..ToolOutput::default() })
    }
}
