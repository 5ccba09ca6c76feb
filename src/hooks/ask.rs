//! The questions that hooks are asked, as the JSON that they read.
use super::on::On;
use serde_json::{Map, Value, json};
use std::path::Path;

/// Whose call or ending it is.
#[derive(Debug, Clone, Copy)]
pub struct Session<'a> {
    /// The conversation.
    pub session_id: &'a str,
    /// A file that holds it, or where one would be.
    pub transcript_path: &'a Path,
    /// Where the agent stands at this call.
    pub cwd: &'a Path,
    /// The root of its workspace.
    pub root: &'a Path,
    /// The main checkout, which stays the same in every worktree.
    pub project_dir: &'a Path,
    /// Set for every agent but the first.
    pub agent_id: Option<&'a str>,
    /// The agent's name.
    pub agent_type: Option<&'a str>,
    /// `default`, `acceptEdits`, `plan`, `dontAsk` or `bypassPermissions`.
    pub permission_mode: &'a str,
}

/// A call that is about to be made, or was made.
#[derive(Debug, Clone, Copy)]
pub struct Ask<'a> {
    /// Whose it is.
    pub session: Session<'a>,
    /// The tool's present name.
    pub tool_name: &'a str,
    /// The input; fits the tool's schema.
    pub tool_input: &'a Value,
    /// The call's id.
    pub tool_use_id: &'a str,
}

/// How a call ended.
#[derive(Debug, Clone, Copy)]
pub struct Answered<'a> {
    /// The tool's structured output.
    pub tool_response: &'a Value,
    /// What went wrong, where the call failed (`Exit code 1 …` of a command, say).
    pub error: Option<&'a str>,
    /// Whether it was cut short from outside.
    pub is_interrupt: bool,
    /// How long it took.
    pub duration_ms: u64,
}

/// An agent that wants to stop.
#[derive(Debug, Clone, Copy)]
pub struct Ending<'a> {
    /// Whose it is.
    pub session: Session<'a>,
    /// Whether it works for another agent or for the engine inside a step, and not as a step's own agent.
    pub is_sub_agent: bool,
    /// Whether it is going on already because a hook said so.
    pub stop_hook_active: bool,
    /// Its last words.
    pub last_assistant_message: Option<&'a str>,
}

/// Something that somebody should know.
#[derive(Debug, Clone)]
pub struct Notice<'a> {
    /// Whose it is.
    pub session: Session<'a>,
    /// In one sentence.
    pub message: &'a str,
    /// In a few words.
    pub title: &'a str,
    /// `permission_prompt` or `question`; what matchers are compared with.
    pub kind: &'a str,
    /// An object of what else hooks read.
    pub more: Value,
}

impl Notice<'_> {
    /// Returns what hooks read.
    pub(super) fn payload(&self) -> Value {
        let mut fields = self.session.payload(On::Notification);
        fields.extend(object(json!({"message": self.message, "title": self.title, "notification_type": self.kind})));
        fields.extend(object(self.more.clone()));
        Value::Object(fields)
    }
}

impl Session<'_> {
    fn payload(&self, on: On) -> Map<String, Value> {
        let mut fields = object(json!({
            "session_id": self.session_id,
            "transcript_path": self.transcript_path.to_string_lossy(),
            "cwd": self.cwd.to_string_lossy(),
            "hook_event_name": on.name(),
            "permission_mode": self.permission_mode,
        }));
        let names = [("agent_id", self.agent_id), ("agent_type", self.agent_type)];
        fields.extend(names.into_iter().filter_map(|(key, name)| name.map(|name| (key.to_owned(), name.into()))));
        fields
    }
}

impl Ask<'_> {
    /// Returns what hooks read before the call.
    pub(super) fn before(&self) -> Value {
        let mut fields = self.session.payload(On::PreToolUse);
        fields.extend(self.call());
        Value::Object(fields)
    }

    /// Returns the event after the call, and what hooks read.
    pub(super) fn after(&self, answered: &Answered<'_>) -> (On, Value) {
        let on = if answered.error.is_some() { On::PostToolUseFailure } else { On::PostToolUse };
        let mut fields = self.session.payload(on);
        fields.extend(self.call());
        fields.extend(match answered.error {
            Some(error) => object(json!({"error": error, "is_interrupt": answered.is_interrupt})),
            None => object(json!({"tool_response": answered.tool_response})),
        });
        fields.insert("duration_ms".to_owned(), answered.duration_ms.into());
        (on, Value::Object(fields))
    }

    fn call(&self) -> Map<String, Value> {
        let mut fields = object(json!({"tool_name": self.tool_name, "tool_input": self.tool_input, "tool_use_id": self.tool_use_id}));
        if let Some((server, _)) = self.tool_name.strip_prefix("mcp__").and_then(|rest| rest.split_once("__")) {
            fields.insert("mcp_server".to_owned(), json!({"name": server, "source": "workflow"}));
        }
        fields
    }

    /// Returns the files that the call names.
    pub(super) fn files(&self) -> Vec<&str> {
        ["file_path", "notebook_path", "path"].iter().filter_map(|key| self.tool_input.get(*key).and_then(Value::as_str)).collect()
    }
}

impl Ending<'_> {
    /// Returns the event, and what hooks read.
    pub(super) fn payload(&self) -> (On, Value) {
        let on = if self.is_sub_agent { On::SubagentStop } else { On::Stop };
        let mut fields = self.session.payload(on);
        fields.insert("stop_hook_active".to_owned(), self.stop_hook_active.into());
        if on == On::SubagentStop {
            fields.insert("agent_transcript_path".to_owned(), self.session.transcript_path.to_string_lossy().into());
        }
        if let Some(words) = self.last_assistant_message {
            fields.insert("last_assistant_message".to_owned(), words.into());
        }
        fields.extend(object(json!({"background_tasks": [], "session_crons": []})));
        (on, Value::Object(fields))
    }
}

fn object(value: Value) -> Map<String, Value> {
    if let Value::Object(fields) = value { fields } else { Map::new() }
}
