//! Agent: hands a task to a sub-agent. What is declared and what a call may touch stand here; the agent's own loop carries
//! it out, since a sub-agent is a conversation of its own.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput};
use crate::message::ToolSpec;
use async_trait::async_trait;
use serde_json::{Value, json};

/// The tool's name.
pub(crate) const NAME: &str = "Agent";

pub(super) struct Agent(ToolSpec);

impl Agent {
    pub(super) fn new() -> Agent {
        let description = "Hands a task to a sub-agent, which works on it alone in a copy of your files as they are now, and answers with its last words.\n\
             - It knows nothing of your conversation: the prompt must say all it needs, and what it is to answer with.\n\
             - Sub-agents of one reply work at the same time. Give each a part that touches other files than the others.\n\
             - What it changed is in your files when the call returns, unless it does not fit what you have by then: then nothing is changed, and you are told where."
            .to_owned();
        let input_schema = json!({
            "type": "object",
            "properties": {
                "description": {"type": "string", "description": "The task in three to five words"},
                "prompt": {"type": "string", "minLength": 1, "description": "The whole task"},
                "subagent_type": {"type": "string", "description": "Which agent does it"}
            },
            "required": ["description", "prompt", "subagent_type"],
            "additionalProperties": false
        });
        Agent(ToolSpec { name: NAME.to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Agent {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    fn effect(&self, _input: &Value, _cx: &ToolContext) -> Effect {
        Effect::Delegated
    }

    async fn call(&self, _input: &Value, _cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        Err(ToolError::Model("no sub-agents can be started here".to_owned()))
    }
}
