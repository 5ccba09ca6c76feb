//! Skill: opens the instructions of a skill when they are needed.
use super::{Effect, Tool, ToolContext, ToolError, ToolOutput, optional_text, text_of};
use crate::{message::ToolSpec, source::nearest};
use async_trait::async_trait;
use serde_json::{Value, json};

/// Most bytes of a skill's text. Instructions must arrive whole or their end is silently missing, so this is far more than the
/// cap of other answers.
const SKILL_MAX: usize = 60 << 10;

pub(super) struct Skill(ToolSpec);

impl Skill {
    pub(super) fn new() -> Skill {
        let description =
            "Opens a skill: instructions for a kind of task, written by people who know it. The skills are listed in your instructions by name.\n\
             - Open a skill as soon as its description fits what you are about to do, then follow it.\n\
             - Files that it mentions stand in its folder and can be read with Read."
                .to_owned();
        let input_schema = json!({
            "type": "object",
            "properties": {
                "skill": {"type": "string", "description": "The skill's name"},
                "args": {"type": "string", "description": "Arguments, where the skill takes some"}
            },
            "required": ["skill"],
            "additionalProperties": false
        });
        Skill(ToolSpec { name: "Skill".to_owned(), description, input_schema })
    }
}

#[async_trait]
impl Tool for Skill {
    fn spec(&self) -> &ToolSpec {
        &self.0
    }

    /// A skill is text that was read when the run began: nothing in the workspace is touched.
    fn effect(&self, input: &Value, _cx: &ToolContext) -> Effect {
        Effect::Reads(vec![format!("skill:{}", optional_text(input, "skill").unwrap_or_default())])
    }

    async fn call(&self, input: &Value, cx: &ToolContext) -> Result<ToolOutput, ToolError> {
        let name = text_of(input, "skill")?.trim_start_matches('/');
        let args = optional_text(input, "args").unwrap_or_default();
        let Some(text) = cx.skills.open(name, args) else { return Err(unknown(name, &cx.skills.names())) };
        let text = super::text::cap(text, SKILL_MAX, "The skill is too long: read its file for the rest.");
        Ok(ToolOutput { text, response: json!({"success": true, "commandName": name}), is_error: false, whole: None })
    }
}

fn unknown(name: &str, names: &[String]) -> ToolError {
    let hint = match nearest(name, names.iter().map(String::as_str)) {
        Some(meant) => format!("did you mean `{meant}`?"),
        None if names.is_empty() => "there are none here".to_owned(),
        None => format!("the skills are: {}", names.join(", ")),
    };
    ToolError::Model(format!("there is no skill `{name}`; {hint}"))
}
