//! The orchestrator's power to ask a person: a call whose result is the answer, whenever it comes.
use crate::{
    message::ToolSpec,
    tools::{Asks, Effect, Tool, ToolContext, ToolError, ToolOutput},
};
use async_trait::async_trait;
use serde_json::{Value, json};

/// The tool.
pub(super) struct AskPerson(ToolSpec);

impl AskPerson {
    pub(super) fn new(name: &str) -> AskPerson {
        AskPerson(ToolSpec {
            name: name.to_owned(),
            description: "Asks a person and waits for the answer, which may take days; other steps go on meanwhile. Ask only what you cannot find out yourself, in one question that can be understood without this conversation.".to_owned(),
            input_schema: json!({
                "type": "object", "additionalProperties": false, "required": ["question"],
                "properties": {
                    "question": {"type": "string", "minLength": 1, "maxLength": 4000, "description": "What you want to know"},
                    "choices": {"type": "array", "minItems": 2, "maxItems": 12, "items": {"type": "string", "minLength": 1, "maxLength": 200}, "description": "The answers there are, where there are only a few"}
                }
            }),
        })
    }
}

#[async_trait]
impl Tool for AskPerson {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _: &Value, _: &ToolContext) -> Effect {
        Effect::Recorded
    }

    fn asks(&self, input: &Value) -> Option<Asks> {
        let choices = input.get("choices").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        Some(Asks { question: input.get("question")?.as_str()?.to_owned(), choices })
    }

    async fn call(&self, _: &Value, _: &ToolContext) -> Result<ToolOutput, ToolError> {
        Err(ToolError::Model("nobody was asked".to_owned()))
    }
}
